//! Service passes of the engine: the contexts that run them, and the callbacks they make.
//!
//! Every processor has a DPC of its own. Scheduling a processor queues its DPC; it runs one pass within a budget, queues itself
//! again twice when more is left, and then hands over to a thread, so that other DPCs and threads of the processor can run. The
//! thread runs the same passes: each at DISPATCH_LEVEL, because what a pass holds must not be preempted and consumers get their
//! callbacks at one level; between two of them it is an ordinary thread at PASSIVE_LEVEL, and after some milliseconds without a
//! rest it sleeps for a tick. Two contexts never run passes of one processor at the same time: the second one sets a mark and
//! leaves, the first checks the mark before it stops.
//!
//! A timer a processor wakes the one whose next deadline has passed: the engine sets one deadline at a time.
//!
//! Callbacks of consumers are made here, by the records of `deferred.rs`, by the mapper's thread and by `consumer_object.rs`,
//! which they all go through for the end of a close; always with no lock held and never under a dispatch function.

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use softndk_engine::{
    Budget, CloseCompletion, ConnectEvent, DisconnectEvent, Notification, Pass, Platform, RequestCompletion, Retired,
    Sink,
};
use softndk_ioctl::RefusalWay;
use softndk_kernel::{
    event::Event,
    irql,
    pool::{OutOfMemory, PoolArray},
    spin_lock::SpinLock,
    thread::{self, Thread},
    timer::Timer,
};
use wdk_sys::{NTSTATUS, STATUS_SUCCESS};

use crate::{
    ndk::engine::Engine,
    ndk::{connector, consumer_object},
    platform::{KernelPlatform, RequestCallback},
    processor_dpc::ProcessorDpc,
    refusal::refuse_by,
    status, tags,
};

/// What one pass may do: some tens of microseconds.
const BUDGET: Budget = Budget { bytes: 256 << 10, items: 64 };
/// Nanoseconds that a thread works without rest before it sleeps for a tick.
const STRETCH: u64 = 5_000_000;
/// No deadline.
const NEVER: u64 = u64::MAX;
/// Threads for all processors together.
const THREAD_MAX: usize = 16;

/// The services of all processors.
pub struct ProcessorServices {
    each: PoolArray<ProcessorService>,
    threads: PoolArray<ServiceThread>,
    stopping: AtomicBool,
}

/// The service of one processor.
struct ProcessorService {
    dpc: ProcessorDpc,
    /// Runs at the engine's next deadline.
    timer: Timer,
    /// That deadline; [`NEVER`] when there is none. The timer is set under the lock, so that it has the newest deadline.
    wake: SpinLock<u64>,
    /// A context is running passes.
    busy: AtomicBool,
    /// Another context has work for it.
    again: AtomicBool,
}

/// A thread that takes over from the DPCs of some processors.
struct ServiceThread {
    wake: Event,
    thread: SpinLock<Option<Thread>>,
}

impl ProcessorServices {
    /// DPCs and events, nothing running yet. PASSIVE_LEVEL.
    pub fn try_new() -> Result<Self, OutOfMemory> {
        let processors = irql::processor_count().max(1) as usize;
        let each = PoolArray::try_from_fn(tags::SERVICE, processors, ProcessorService::try_new)?;
        let count = processors.min(THREAD_MAX);
        let threads = PoolArray::try_from_fn(tags::SERVICE_THREAD, count, |_| ServiceThread::try_new())?;
        Ok(Self { each, threads, stopping: AtomicBool::new(false) })
    }

    /// Processors with a run queue.
    pub fn processors(&self) -> u32 {
        self.each.len() as u32
    }

    /// Starts the threads. PASSIVE_LEVEL, once the driver state is reachable.
    pub fn start(&self) -> Result<(), NTSTATUS> {
        for (index, slot) in self.threads.iter().enumerate() {
            let context = ptr::without_provenance_mut(index);
            // SAFETY: `run_thread` takes an index; `stop` joins the thread before the driver state goes.
            let thread = unsafe { Thread::start(run_thread, context) }?;
            // While it is inside a pass the DPCs do not run one, and a consumer that polls would keep it from going on.
            thread.prefer();
            *slot.thread.lock() = Some(thread);
        }
        Ok(())
    }

    /// Waits until nothing runs any more. PASSIVE_LEVEL, when no pass is scheduled any more.
    pub fn stop(&self) {
        for service in self.each.iter() {
            service.stop();
        }
        self.stopping.store(true, Ordering::Release);
        for slot in self.threads.iter() {
            slot.wake.set();
            let thread = slot.thread.lock().take();
            if let Some(thread) = thread {
                thread.join();
            }
        }
        for service in self.each.iter() {
            service.stop();
        }
    }

    /// Makes sure that a pass runs soon. Any IRQL up to DISPATCH_LEVEL, also with a lock held.
    pub fn schedule(&self, processor: u32) {
        if let Some(service) = self.service(processor) {
            service.schedule();
        }
    }

    /// Makes sure that a pass runs at a deadline of the performance counter's clock. Up to DISPATCH_LEVEL, also with a lock
    /// held.
    pub fn wake_at(&self, processor: u32, deadline: u64, now: u64) {
        if let Some(service) = self.service(processor) {
            let mut due = service.wake.lock();
            *due = deadline;
            service.timer.set(deadline.saturating_sub(now));
        }
    }

    fn service(&self, processor: u32) -> Option<&ProcessorService> {
        let index = (processor as usize).checked_rem(self.each.len())?;
        self.each.get(index)
    }

    /// One budget for each processor that was handed to thread `index`, so that none waits for another to have no more to do;
    /// true when something is left.
    fn pass(&self, engine: &Engine, index: usize) -> bool {
        let mut more = false;
        let mine = self.each.iter().enumerate().skip(index).step_by(self.threads.len().max(1));
        for (processor, service) in mine {
            if service.dpc.is_for_thread() {
                more |= irql::raised(|| service.run_for_thread(engine, processor)) == Pass::More;
            }
            more |= engine.deferred.pass(processor);
        }
        more
    }

    /// Wakes the thread that takes over from the DPCs of a processor. `IRQL <= DISPATCH_LEVEL`.
    pub fn wake_thread(&self, processor: usize) {
        if let Some(slot) = processor.checked_rem(self.threads.len()).and_then(|index| self.threads.get(index)) {
            slot.wake.set();
        }
    }
}

impl ProcessorService {
    fn try_new(processor: usize) -> Result<Self, OutOfMemory> {
        // SAFETY: `ProcessorServices::stop` stops the DPC before the driver state goes.
        let dpc = unsafe { ProcessorDpc::try_new(run_dpc, processor) }?;
        // SAFETY: as above; `run_timer` takes a number, too.
        let timer =
            unsafe { Timer::try_new(tags::DPC, run_timer, ptr::without_provenance_mut(processor), processor as u32) }?;
        Ok(Self { dpc, timer, wake: SpinLock::new(NEVER), busy: AtomicBool::new(false), again: AtomicBool::new(false) })
    }

    fn stop(&self) {
        // So that the timer's own DPC does not set it for the rest of a deadline. A pass does not: it asks to be woken for the
        // deadlines of objects, and there is no object any more.
        *self.wake.lock() = NEVER;
        self.timer.stop();
        self.dpc.stop();
    }

    /// Has a pass run soon. Work that comes up inside a pass is left to the context that runs it, or to the thread if that has
    /// taken over: a DPC queued from inside itself would run again at once, and before every thread of its processor.
    fn schedule(&self) {
        // The mark and `busy` (and whether the thread has the work) as in `run`.
        self.again.store(true, Ordering::SeqCst);
        if !self.busy.load(Ordering::SeqCst) {
            self.dpc.queue();
        }
    }

    /// The timer has run: true when its deadline has passed, else it is set for the rest. The system's clock has coarser steps
    /// than the performance counter, so it may run too soon.
    fn has_come(&self, now: u64) -> bool {
        let mut due = self.wake.lock();
        if *due <= now {
            *due = NEVER;
            return true;
        }
        if *due != NEVER {
            self.timer.set(due.saturating_sub(now));
        }
        false
    }

    /// Runs one pass at DISPATCH_LEVEL, unless another context runs one. More is left when the pass used up its budget, or
    /// another context set the mark meanwhile.
    fn run(&self, engine: &Engine, processor: usize) -> Pass {
        // The mark and `busy` are a store and a load of different places on each side: a context that sees `busy` set must be
        // seen by its holder's next check of the mark, which takes one order of all four (arm64 keeps none without it).
        self.again.store(true, Ordering::SeqCst);
        if self.busy.swap(true, Ordering::SeqCst) {
            // The context that runs one sees the mark before it stops.
            return Pass::Idle;
        }
        self.again.store(false, Ordering::SeqCst);
        let service = engine.fabric.service_pass(processor as u32, BUDGET, &mut Callbacks);
        self.busy.store(false, Ordering::SeqCst);
        if self.again.load(Ordering::SeqCst) { Pass::More } else { service }
    }

    /// The thread's pass. It keeps the processor's work until nothing is left, and checks the mark once more when it gives it
    /// back: scheduling in between has queued no DPC.
    fn run_for_thread(&self, engine: &Engine, processor: usize) -> Pass {
        if self.run(engine, processor) == Pass::More {
            return Pass::More;
        }
        self.dpc.give_back(|| self.again.swap(false, Ordering::SeqCst));
        Pass::Idle
    }
}

impl ServiceThread {
    fn try_new() -> Result<Self, OutOfMemory> {
        Ok(Self { wake: Event::try_synchronization(tags::EVENT, false)?, thread: SpinLock::new(None) })
    }
}

unsafe extern "C" fn run_timer(
    _dpc: *mut wdk_sys::KDPC,
    context: *mut c_void,
    _argument1: *mut c_void,
    _argument2: *mut c_void,
) {
    let Some(engine) = Engine::get() else { return };
    let platform = engine.fabric.platform();
    let Some(service) = platform.services.each.get(context.addr()) else { return };
    if service.has_come(platform.now()) {
        service.schedule();
    }
}

unsafe extern "C" fn run_dpc(
    _dpc: *mut wdk_sys::KDPC,
    context: *mut c_void,
    _argument1: *mut c_void,
    _argument2: *mut c_void,
) {
    let processor = context.addr();
    let Some(engine) = Engine::get() else { return };
    let services = &engine.fabric.platform().services;
    let Some(service) = services.each.get(processor) else { return };
    let more = service.run(engine, processor) == Pass::More;
    // When the driver ends, no consumer waits for what is left, and `stop` takes the DPC from the queue once: one that queues itself
    // meanwhile could run after that.
    if !(more && services.stopping.load(Ordering::Acquire)) && service.dpc.end_run(more) {
        services.wake_thread(processor);
    }
}

/// The rest that a preferred thread takes, so that the threads below it get the processor.
pub struct Rest {
    /// Working without rest since then.
    since: u64,
}

impl Rest {
    /// The thread has just been idle.
    pub fn new(engine: &Engine) -> Self {
        Self { since: engine.fabric.platform().now() }
    }

    /// Sleeps for a tick when it has worked for long. PASSIVE_LEVEL.
    pub fn take_when_due(&mut self, engine: &Engine) {
        let platform = engine.fabric.platform();
        if platform.now().saturating_sub(self.since) > STRETCH {
            thread::pause();
            self.since = platform.now();
        }
    }
}

/// A thread at PASSIVE_LEVEL: runs the passes that the DPCs handed over.
unsafe extern "C" fn run_thread(context: *mut c_void) {
    let index = context.addr();
    if let Some(engine) = Engine::get() {
        let services = &engine.fabric.platform().services;
        while let Some(slot) = services.threads.get(index) {
            slot.wake.wait();
            if services.stopping.load(Ordering::Acquire) {
                break;
            }
            let mut rest = Rest::new(engine);
            while services.pass(engine, index) {
                rest.take_when_due(engine);
            }
        }
    }
    thread::exit();
}

/// Makes the consumers' callbacks: inside a pass, so at DISPATCH_LEVEL. Each event is dropped after the callback has returned,
/// because it is what lets closes complete.
struct Callbacks;

impl Sink<KernelPlatform> for Callbacks {
    fn notify(&mut self, event: Notification<KernelPlatform>) {
        let callback = event.callback;
        callback.notify(status::of_queue(event.status));
        drop(event);
    }

    fn request_completed(&mut self, event: RequestCompletion<KernelPlatform>) {
        let RequestCallback { callback, call } = event.callback;
        let refused = |cause| refuse_by(RefusalWay::COMPLETION, call, event.hold(), cause);
        let status = event.result.map_or_else(refused, |()| STATUS_SUCCESS);
        callback.complete(status);
        drop(event);
    }

    fn connection_requested(&mut self, event: ConnectEvent<KernelPlatform>) {
        connector::deliver(event);
    }

    fn disconnected(&mut self, event: DisconnectEvent<KernelPlatform>) {
        let callback = event.callback;
        callback.disconnected(status::of_disconnect(event.reason));
        drop(event);
    }

    fn closed(&mut self, event: CloseCompletion<KernelPlatform>) {
        consumer_object::closed(event);
    }

    fn retired(&mut self, event: Retired<KernelPlatform>) {
        consumer_object::retired(event);
    }
}
