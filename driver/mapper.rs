//! Mapping and unmapping of large memory, on a thread of its own at PASSIVE_LEVEL.
//!
//! Mapping costs a page table entry a page, unmapping the flushing of every processor's translations: too much for a caller at
//! DISPATCH_LEVEL once it is megabytes. Jobs are allocated when the request is made (or, for unmapping, when the memory was
//! mapped), so that releasing memory never needs memory.

use core::{
    ffi::c_void,
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, Ordering},
};

use ndkpi_sys::ndkpi::NDK_FN_REQUEST_COMPLETION;
use softndk_engine::{CloseCompletion, Hold, MemoryRegion, Retired, Rights};
use softndk_kernel::{
    event::Event,
    pool::{OutOfMemory, PoolBox},
    spin_lock::SpinLock,
    thread::{self, Thread},
};
use wdk_sys::NTSTATUS;

use crate::{
    memory::Chain,
    ndk::engine::Engine,
    ndk::{consumer_object, logical_mapping::BuildRequest, memory_region},
    platform::{Callback, KernelPlatform},
    service::Rest,
    tags,
};

/// One piece of work, linked into the queue.
pub struct Job {
    work: Work,
    next: Option<PoolBox<Job>>,
}

pub enum Work {
    /// The creation or resizing of a large object.
    WorkItem(WorkItem),
    /// NdkRegisterMr of large memory.
    Register(RegisterRequest),
    /// NdkBuildLAM of large memory.
    Build(BuildRequest),
    /// Memory that nothing copies any more.
    Unmap(Retired<KernelPlatform>),
    /// A closed region whose memory was still registered.
    Close(CloseCompletion<KernelPlatform>),
}

/// A closure in a block of its own. Dropping it drops what it owns.
pub struct WorkItem {
    /// Of a type that only `finish` has.
    closure: NonNull<c_void>,
    /// Runs the closure or only drops it, and frees the block.
    finish: unsafe fn(NonNull<c_void>, run: bool),
}

// SAFETY: the closure is `Send` (`try_new`).
unsafe impl Send for WorkItem {}

impl WorkItem {
    /// `IRQL <= DISPATCH_LEVEL`.
    pub fn try_new<F: FnOnce() + Send + 'static>(closure: F) -> Result<Self, OutOfMemory> {
        let closure = PoolBox::try_new(tags::MAPPING, closure)?.into_raw().cast();
        Ok(Self { closure, finish: finish::<F> })
    }

    /// PASSIVE_LEVEL.
    pub fn run(self) {
        let (closure, finish) = (self.closure, self.finish);
        core::mem::forget(self);
        // SAFETY: `try_new` paired the closure with the function of its type; it is used once.
        unsafe { finish(closure, true) };
    }
}

impl Drop for WorkItem {
    fn drop(&mut self) {
        // SAFETY: as in `run`, which forgets the work item.
        unsafe { (self.finish)(self.closure, false) };
    }
}

/// # Safety
/// `closure` came from a box of this type with the tag below and is used no more.
unsafe fn finish<F: FnOnce()>(closure: NonNull<c_void>, run: bool) {
    // SAFETY: the caller's promise.
    let closure = unsafe { PoolBox::<F>::from_raw(tags::MAPPING, closure.cast()) };
    if run {
        (closure.into_inner())();
    }
}

/// The parameters of an NdkRegisterMr.
pub struct RegisterRequest {
    pub region: MemoryRegion<KernelPlatform>,
    pub chain: Chain,
    pub rights: Rights,
    pub callback: Callback<NDK_FN_REQUEST_COMPLETION>,
    /// Keeps the region from closing meanwhile.
    pub hold: Hold<KernelPlatform>,
}

impl Job {
    pub fn new(work: Work) -> Self {
        Self { work, next: None }
    }
}

/// First and last of a singly linked queue; the boxes own one another from the first on.
struct Queue {
    /// Newest first; the thread reverses the list when it takes it.
    newest: Option<PoolBox<Job>>,
}

pub struct Mapper {
    queue: SpinLock<Queue>,
    wake: Event,
    stopping: AtomicBool,
    thread: SpinLock<Option<Thread>>,
}

impl Mapper {
    pub fn try_new() -> Result<Self, OutOfMemory> {
        Ok(Self {
            queue: SpinLock::new(Queue { newest: None }),
            wake: Event::try_synchronization(tags::EVENT, false)?,
            stopping: AtomicBool::new(false),
            thread: SpinLock::new(None),
        })
    }

    /// PASSIVE_LEVEL, once the driver state is reachable.
    pub fn start(&self) -> Result<(), NTSTATUS> {
        // SAFETY: `run` uses the driver state only; `stop` joins the thread before that goes.
        let thread = unsafe { Thread::start(run, ptr::null_mut()) }?;
        thread.prefer();
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// PASSIVE_LEVEL, when no context adds jobs any more. What is queued is done first.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake.set();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }

    /// `IRQL <= DISPATCH_LEVEL`.
    pub fn queue(&self, mut job: PoolBox<Job>) {
        {
            let mut queue = self.queue.lock();
            job.next = queue.newest.take();
            queue.newest = Some(job);
        }
        self.wake.set();
    }

    /// Everything queued, oldest first.
    fn take_all(&self) -> Option<PoolBox<Job>> {
        let mut rest = self.queue.lock().newest.take();
        let mut oldest_first = None;
        while let Some(mut job) = rest {
            rest = job.next.take();
            job.next = oldest_first;
            oldest_first = Some(job);
        }
        oldest_first
    }

    fn work(&self, engine: &Engine) {
        let mut jobs = self.take_all();
        let mut rest = Rest::new(engine);
        while let Some(mut job) = jobs {
            jobs = job.next.take();
            rest.take_when_due(engine);
            match job.into_inner().work {
                Work::WorkItem(work_item) => work_item.run(),
                Work::Register(request) => memory_region::register_now(request),
                Work::Build(request) => request.run(),
                Work::Unmap(retired) => consumer_object::finish_retired(retired),
                Work::Close(completion) => consumer_object::finish_closed(completion),
            }
        }
    }
}

unsafe extern "C" fn run(_context: *mut c_void) {
    if let Some(engine) = Engine::get() {
        let mapper = &engine.mapper;
        loop {
            mapper.wake.wait();
            let stopping = mapper.stopping.load(Ordering::Acquire);
            mapper.work(engine);
            if stopping {
                break;
            }
        }
    }
    thread::exit();
}
