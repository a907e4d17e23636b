//! Answers that are decided but not told yet, and who tells them.
//!
//! What it is: the whole difference between the profiles of [`CompletionMode`]. The engine and the entry points decide as always;
//! where the adapter makes everything pend, the decision is written on a note, the call answers STATUS_PENDING, and a DPC of
//! another processor tells the consumer. What it is not: a second way to do things; a note never changes what was decided.
//!
//! Rules. NDKPI: the asynchronous contract: PENDING means exactly one completion, any other answer none, and after PENDING
//! nothing is written through the out pointer. NDKPI: closing objects: a close never fails, so its note lies in the object's
//! own block; the note of a create lies in the block that was created; other notes are allocated, and where that fails the
//! answer is given inline, which is always allowed. Each answer carries what keeps its object from closing, and lets it go
//! after the consumer's callback has returned.

use core::{
    ffi::c_void,
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use ndkpi_sys::{
    ndkpi::{NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER},
    nt::{
        NTSTATUS, STATUS_ADDRESS_ALREADY_EXISTS, STATUS_CONNECTION_ABORTED, STATUS_CONNECTION_REFUSED,
        STATUS_HOST_UNREACHABLE, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_ADDRESS, STATUS_IO_TIMEOUT,
        STATUS_NETWORK_UNREACHABLE, STATUS_PENDING, STATUS_SHARING_VIOLATION, STATUS_SUCCESS,
        STATUS_TOO_MANY_ADDRESSES,
    },
};
use softndk_engine::{CloseCompletion, Hold, Retired};
use softndk_ioctl::NdkCall;
use softndk_kernel::{
    dpc::Dpc,
    irql,
    pool::{OutOfMemory, PoolArray, PoolBox},
    spin_lock::SpinLock,
};

use super::consumer_object;
use crate::{
    callback,
    configuration::CompletionMode,
    driver::Driver,
    mapper::{Job, Work, WorkItem},
    memory::LARGE,
    platform::{Callback, KernelPlatform},
    refusal::{Refusal, refuse},
    service::DPC_ROUNDS,
    tags,
};

/// Answers told in one run of a DPC; what is left waits for the next.
const ROUND: u32 = 16;

/// What is to be told.
pub enum Answer {
    Created {
        callback: Callback<NDK_FN_CREATE_COMPLETION>,
        status: NTSTATUS,
        /// Null when the create failed.
        object: Visible,
        /// Of the object, or of what it would have been created from.
        hold: Hold<KernelPlatform>,
    },
    Requested {
        callback: Callback<NDK_FN_REQUEST_COMPLETION>,
        status: NTSTATUS,
        hold: Hold<KernelPlatform>,
    },
    Closed(CloseCompletion<KernelPlatform>),
    Retired(Retired<KernelPlatform>),
}

/// An object as the consumer sees it; only ever given back to the consumer.
pub struct Visible(pub *mut NDK_OBJECT_HEADER);

// SAFETY: the pointer goes to the consumer on whatever processor that happens.
unsafe impl Send for Visible {}

impl Answer {
    /// Makes the consumer's callback, then lets go what the answer held. `IRQL <= DISPATCH_LEVEL`, no lock held.
    pub fn deliver(self) {
        match self {
            Self::Created { callback, status, object, hold } => {
                // SAFETY: the consumer gave function and context with the create, which answered STATUS_PENDING.
                callback::make(|| unsafe { (callback.function)(callback.context.0, status, object.0) });
                drop(hold);
            }
            Self::Requested { callback, status, hold } => {
                // SAFETY: the consumer gave function and context with the request, which answered STATUS_PENDING.
                callback::make(|| unsafe { (callback.function)(callback.context.0, status) });
                drop(hold);
            }
            Self::Closed(completion) => consumer_object::closed(completion),
            Self::Retired(retired) => consumer_object::retired(retired),
        }
    }
}

/// Room for one answer and its place in a queue. In an object's block, or a block of its own.
pub struct CompletionRecord {
    next: *mut CompletionRecord,
    answer: Option<Answer>,
    /// Allocated for this answer alone.
    alone: bool,
}

// SAFETY: the link is followed under a queue's lock only.
unsafe impl Send for CompletionRecord {}
// SAFETY: as above.
unsafe impl Sync for CompletionRecord {}

impl CompletionRecord {
    /// Without an answer yet.
    pub const fn blank() -> Self {
        Self { next: ptr::null_mut(), answer: None, alone: false }
    }
}

/// The notes of one processor, oldest first.
struct Queue {
    first: *mut CompletionRecord,
    last: *mut CompletionRecord,
}

// SAFETY: the notes belong to the queue until they are taken.
unsafe impl Send for Queue {}

/// Tells what is queued for one processor.
struct CompletionDpc {
    dpc: Dpc,
    queue: SpinLock<Queue>,
    /// A context is telling: it looks at the queue again before it stops.
    delivering: AtomicBool,
    /// Runs in a row that left answers behind.
    rounds: AtomicU32,
    /// Handed to the thread.
    for_thread: AtomicBool,
}

/// The tellers of all processors.
pub struct DeferredCompletions {
    each: PoolArray<CompletionDpc>,
    /// Sized requests that the mapper's thread was given and has not done.
    sized: AtomicU32,
}

impl DeferredCompletions {
    /// PASSIVE_LEVEL.
    pub fn try_new() -> Result<Self, OutOfMemory> {
        let processors = irql::processor_count().max(1) as usize;
        let each = PoolArray::try_from_fn(tags::COMPLETION_DPC, processors, CompletionDpc::try_new)?;
        Ok(Self { each, sized: AtomicU32::new(0) })
    }

    /// Waits until nothing is told any more. PASSIVE_LEVEL, when no adapter is left.
    pub fn stop(&self) {
        for completion_dpc in self.each.iter() {
            completion_dpc.dpc.stop();
        }
    }

    /// The thread's part, when the DPC of a processor has handed over: tells some at DISPATCH_LEVEL; true when more may be left.
    pub fn pass(&self, processor: usize) -> bool {
        let Some(completion_dpc) = self.each.get(processor) else { return false };
        if !completion_dpc.for_thread.load(Ordering::SeqCst) {
            return false;
        }
        if irql::raised(|| completion_dpc.deliver_some()) {
            return true;
        }
        // The thread gives the work back, and looks once more: answers queued in between have queued no DPC.
        completion_dpc.for_thread.store(false, Ordering::SeqCst);
        if !completion_dpc.queue.lock().first.is_null() {
            completion_dpc.dpc.queue();
        }
        false
    }

    /// Has the note's answer told by another processor than this one, if there is one.
    ///
    /// # Safety
    /// The note's memory is not used by anybody else and lives until the answer was taken from it; an answer is in it.
    unsafe fn queue(&self, record: NonNull<CompletionRecord>) {
        let next = (irql::processor() as usize).wrapping_add(1).checked_rem(self.each.len()).unwrap_or(0);
        if let Some(completion_dpc) = self.each.get(next) {
            // SAFETY: the caller's promise.
            unsafe { completion_dpc.queue.lock().push(record) };
            // A DPC queued from inside itself would run again at once, and before every thread of its processor.
            if !completion_dpc.delivering.load(Ordering::SeqCst) && !completion_dpc.for_thread.load(Ordering::SeqCst) {
                completion_dpc.dpc.queue();
            }
        }
    }
}

impl Queue {
    /// # Safety
    /// As [`DeferredCompletions::queue`].
    unsafe fn push(&mut self, record: NonNull<CompletionRecord>) {
        match NonNull::new(self.last) {
            // SAFETY: the last note of the queue is alive until it is taken, under the lock that the caller holds.
            Some(last) => unsafe { (*last.as_ptr()).next = record.as_ptr() },
            None => self.first = record.as_ptr(),
        }
        self.last = record.as_ptr();
    }

    /// The oldest answer, and the block of its note if that is to be freed.
    fn pop(&mut self) -> Option<(Option<Answer>, Option<PoolBox<CompletionRecord>>)> {
        let record = NonNull::new(self.first)?;
        // SAFETY: a queued note is alive and reached under this queue's lock only.
        let place = unsafe { &mut *record.as_ptr() };
        self.first = core::mem::replace(&mut place.next, ptr::null_mut());
        if self.first.is_null() {
            self.last = ptr::null_mut();
        }
        let answer = place.answer.take();
        // SAFETY: `alone` notes came from a box with this tag, and the queue was the only one to know them.
        let own = place.alone.then(|| unsafe { PoolBox::from_raw(tags::DEFERRED, record) });
        Some((answer, own))
    }
}

impl CompletionDpc {
    fn try_new(processor: usize) -> Result<Self, OutOfMemory> {
        // SAFETY: `run` takes an index; `DeferredCompletions::stop` stops the DPC before the driver state goes.
        let dpc = unsafe { Dpc::try_new(tags::DPC, run, ptr::without_provenance_mut(processor)) }?;
        dpc.target(processor as u32);
        Ok(Self {
            dpc,
            queue: SpinLock::new(Queue { first: ptr::null_mut(), last: ptr::null_mut() }),
            delivering: AtomicBool::new(false),
            rounds: AtomicU32::new(0),
            for_thread: AtomicBool::new(false),
        })
    }

    /// Tells some; true when more is left.
    fn deliver_some(&self) -> bool {
        self.delivering.store(true, Ordering::SeqCst);
        self.deliver_a_round();
        // Before the look: an answer that was queued while the mark stood is seen by it.
        self.delivering.store(false, Ordering::SeqCst);
        !self.queue.lock().first.is_null()
    }

    fn deliver_a_round(&self) {
        for _ in 0..ROUND {
            let Some((answer, own)) = self.queue.lock().pop() else { return };
            // Before the callback: what is told may free the object that the note lies in.
            drop(own);
            if let Some(answer) = answer {
                answer.deliver();
            }
        }
    }
}

unsafe extern "C" fn run(
    _dpc: *mut wdk_sys::KDPC,
    context: *mut c_void,
    _argument1: *mut c_void,
    _argument2: *mut c_void,
) {
    let processor = context.addr();
    let Some(driver) = Driver::get() else { return };
    let Some(completion_dpc) = driver.deferred.each.get(processor) else { return };
    if !completion_dpc.deliver_some() {
        completion_dpc.rounds.store(0, Ordering::Relaxed);
    } else if completion_dpc.rounds.fetch_add(1, Ordering::Relaxed) < DPC_ROUNDS {
        completion_dpc.dpc.queue();
    } else {
        // Answers that bring about more answers would keep the processor from its threads.
        completion_dpc.rounds.store(0, Ordering::Relaxed);
        completion_dpc.for_thread.store(true, Ordering::SeqCst);
        driver.fabric.platform().services.wake_thread(processor);
    }
}

/// Has `answer` told by another processor, through a note in memory that the answer itself keeps alive.
///
/// # Safety
/// The note's memory is used by nobody else and lives until the answer is told; `Err` gives the answer back untold.
#[expect(clippy::result_large_err, reason = "the answer itself, given back; there may be no memory to box it")]
pub unsafe fn deliver_by(record: *mut CompletionRecord, answer: Answer) -> Result<(), Answer> {
    let (Some(record), Some(driver)) = (NonNull::new(record), Driver::get()) else { return Err(answer) };
    // SAFETY: the caller's promise.
    unsafe { record.write(CompletionRecord { next: ptr::null_mut(), answer: Some(answer), alone: false }) };
    // SAFETY: as above.
    unsafe { driver.deferred.queue(record) };
    Ok(())
}

/// Room for an answer that lies in no object; nothing where the adapter does not make things pend, or without memory.
pub fn space(completion_mode: CompletionMode) -> Option<Space> {
    if completion_mode != CompletionMode::Pending || Driver::get().is_none() {
        return None;
    }
    PoolBox::try_new(tags::DEFERRED, CompletionRecord { alone: true, ..CompletionRecord::blank() }).ok().map(Space)
}

/// A note of its own, blank.
pub struct Space(PoolBox<CompletionRecord>);

impl Space {
    /// Has `answer` told by another processor.
    pub fn deliver(self, answer: Answer) -> NTSTATUS {
        let Self(mut record) = self;
        record.answer = Some(answer);
        let record = record.into_raw();
        if let Some(driver) = Driver::get() {
            // SAFETY: the note was allocated for this answer and is freed when the answer is taken.
            unsafe { driver.deferred.queue(record) };
        }
        STATUS_PENDING
    }
}

/// Answers a request that is over: at once, or where the adapter makes everything pend, from another processor.
pub fn request(
    completion_mode: CompletionMode,
    status: NTSTATUS,
    callback: Option<Callback<NDK_FN_REQUEST_COMPLETION>>,
    hold: impl FnOnce() -> Hold<KernelPlatform>,
) -> NTSTATUS {
    let Some(callback) = callback else { return status };
    match space(completion_mode) {
        Some(space) if may_be_deferred(status) => space.deliver(Answer::Requested { callback, status, hold: hold() }),
        _ => status,
    }
}

/// As [`request`], for one that allocates `size` bytes: many are allocated by a thread at PASSIVE_LEVEL. While
/// one is, the next go the same way however small they are: none overtakes an earlier one of its object.
pub fn request_sized(
    call: NdkCall,
    completion_mode: CompletionMode,
    size: u64,
    callback: Option<Callback<NDK_FN_REQUEST_COMPLETION>>,
    hold: impl FnOnce() -> Hold<KernelPlatform>,
    run: impl FnOnce() -> NTSTATUS + Send + 'static,
) -> NTSTATUS {
    let behind = Driver::get().is_some_and(|driver| driver.deferred.sized.load(Ordering::SeqCst) != 0);
    match callback {
        Some(callback) if (size > LARGE || behind) && completion_mode != CompletionMode::Inline => {
            by_thread(call, callback, hold(), run)
        }
        _ => request(completion_mode, run(), callback, hold),
    }
}

/// One more sized request for the mapper's thread, until it is done or given up.
struct UnderWay(&'static AtomicU32);

impl UnderWay {
    fn new(count: &'static AtomicU32) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Leaves a request to the mapper's thread.
fn by_thread(
    call: NdkCall,
    callback: Callback<NDK_FN_REQUEST_COMPLETION>,
    hold: Hold<KernelPlatform>,
    run: impl FnOnce() -> NTSTATUS + Send + 'static,
) -> NTSTATUS {
    let Some(driver) = Driver::get() else { return refuse(call, &hold, Refusal::NO_MEMORY) };
    let object = hold.object();
    let under_way = UnderWay::new(&driver.deferred.sized);
    let work_item = WorkItem::try_new(move || {
        let status = run();
        drop(under_way);
        Answer::Requested { callback, status, hold }.deliver();
    });
    match work_item.and_then(|work_item| PoolBox::try_new(tags::MAPPING, Job::new(Work::WorkItem(work_item)))) {
        Ok(job) => {
            driver.mapper.queue(job);
            STATUS_PENDING
        }
        Err(_) => refuse(call, &object, Refusal::NO_MEMORY),
    }
}

/// Whether a completion may bring this status. Misuse of a function is always answered inline.
pub fn may_be_deferred(status: NTSTATUS) -> bool {
    matches!(
        status,
        STATUS_SUCCESS
            | STATUS_INSUFFICIENT_RESOURCES
            | STATUS_SHARING_VIOLATION
            | STATUS_INVALID_ADDRESS
            | STATUS_TOO_MANY_ADDRESSES
            | STATUS_HOST_UNREACHABLE
            | STATUS_NETWORK_UNREACHABLE
            | STATUS_ADDRESS_ALREADY_EXISTS
            | STATUS_IO_TIMEOUT
            | STATUS_CONNECTION_REFUSED
            | STATUS_CONNECTION_ABORTED
    )
}
