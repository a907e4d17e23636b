//! Deferred completions: answers that are decided and not delivered yet, and the DPCs that deliver them.
//!
//! This is the whole difference between the profiles of [`CompletionMode`]. The engine and the entry points decide as always;
//! where the adapter makes everything pend, the decision is written into a completion record, the call returns STATUS_PENDING,
//! and a DPC of another processor makes the consumer's callback. A record never changes what was decided.
//!
//! Rules. NDKPI: the asynchronous contract: PENDING means exactly one completion, any other status none, and after PENDING
//! nothing is written through the out pointer. NDKPI: closing objects: a close never fails, so its record lies in the object's
//! own block; the record of a create lies in the block that was created; other records are allocated, and where that fails the
//! answer is given inline, which is always allowed. Each answer carries what keeps its object from closing, and releases it
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
    irql,
    pool::{OutOfMemory, PoolArray, PoolBox},
    spin_lock::SpinLock,
};

use super::consumer_object;
use crate::{
    callback,
    configuration::CompletionMode,
    mapper::{Job, Work, WorkItem},
    memory::LARGE,
    ndk::engine::Engine,
    platform::{Callback, KernelPlatform},
    processor_dpc::ProcessorDpc,
    refusal::{Refusal, refuse},
    tags,
};

/// Answers delivered in one run of a DPC; what is left waits for the next.
const ROUND: u32 = 16;

/// What is to be delivered.
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
    /// Makes the consumer's callback, then releases what the answer held. `IRQL <= DISPATCH_LEVEL`, no lock held.
    pub fn deliver(self) {
        match self {
            Self::Created { callback, status, object, hold } => {
                callback::make(|| callback.complete(status, object.0));
                drop(hold);
            }
            Self::Requested { callback, status, hold } => {
                callback::make(|| callback.complete(status));
                drop(hold);
            }
            Self::Closed(completion) => consumer_object::closed(completion),
            Self::Retired(retired) => consumer_object::retired(retired),
        }
    }
}

/// One answer and its place in a queue. In an object's block, or a block of its own.
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

/// The records of one processor, oldest first.
struct Queue {
    first: *mut CompletionRecord,
    last: *mut CompletionRecord,
}

// SAFETY: the records belong to the queue until they are taken.
unsafe impl Send for Queue {}

/// Delivers what is queued for one processor.
struct CompletionDpc {
    dpc: ProcessorDpc,
    queue: SpinLock<Queue>,
    /// A context is delivering: it checks the queue again before it stops.
    delivering: AtomicBool,
}

/// The completion DPCs of all processors.
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

    /// Waits until nothing is delivered any more. PASSIVE_LEVEL, when no adapter is left.
    pub fn stop(&self) {
        for completion_dpc in self.each.iter() {
            completion_dpc.dpc.stop();
        }
    }

    /// The thread's part, when the DPC of a processor has handed over: delivers some at DISPATCH_LEVEL; true when more may be
    /// left.
    pub fn pass(&self, processor: usize) -> bool {
        let Some(completion_dpc) = self.each.get(processor) else { return false };
        if !completion_dpc.dpc.is_for_thread() {
            return false;
        }
        if irql::raised(|| completion_dpc.deliver_some()) {
            return true;
        }
        completion_dpc.dpc.give_back(|| !completion_dpc.queue.lock().first.is_null());
        false
    }

    /// Has the record's answer delivered by another processor than this one, if there is one.
    ///
    /// # Safety
    /// The record's memory is used by no other context and valid until the answer was taken from it; an answer is in it.
    unsafe fn queue(&self, record: NonNull<CompletionRecord>) {
        let next = (irql::processor() as usize).wrapping_add(1).checked_rem(self.each.len()).unwrap_or(0);
        if let Some(completion_dpc) = self.each.get(next) {
            // SAFETY: the caller's promise.
            unsafe { completion_dpc.queue.lock().push(record) };
            // A context that delivers checks the queue before it stops.
            if !completion_dpc.delivering.load(Ordering::SeqCst) {
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
            // SAFETY: the last record of the queue is valid until it is taken, under the lock that the caller holds.
            Some(last) => unsafe { (*last.as_ptr()).next = record.as_ptr() },
            None => self.first = record.as_ptr(),
        }
        self.last = record.as_ptr();
    }

    /// The oldest answer, and the block of its record if that is to be freed.
    fn pop(&mut self) -> Option<(Option<Answer>, Option<PoolBox<CompletionRecord>>)> {
        let record = NonNull::new(self.first)?;
        // SAFETY: a queued record is valid and reached under this queue's lock only.
        let place = unsafe { &mut *record.as_ptr() };
        self.first = core::mem::replace(&mut place.next, ptr::null_mut());
        if self.first.is_null() {
            self.last = ptr::null_mut();
        }
        let answer = place.answer.take();
        // SAFETY: `alone` records came from a box with this tag, and only the queue had a pointer to them.
        let own = place.alone.then(|| unsafe { PoolBox::from_raw(tags::DEFERRED, record) });
        Some((answer, own))
    }
}

impl CompletionDpc {
    fn try_new(processor: usize) -> Result<Self, OutOfMemory> {
        // SAFETY: `DeferredCompletions::stop` stops the DPC before the driver state goes.
        let dpc = unsafe { ProcessorDpc::try_new(run, processor) }?;
        Ok(Self {
            dpc,
            queue: SpinLock::new(Queue { first: ptr::null_mut(), last: ptr::null_mut() }),
            delivering: AtomicBool::new(false),
        })
    }

    /// Delivers some; true when more is left.
    fn deliver_some(&self) -> bool {
        self.delivering.store(true, Ordering::SeqCst);
        self.deliver_a_round();
        // Before the check: an answer that was queued while the mark stood is seen by it.
        self.delivering.store(false, Ordering::SeqCst);
        !self.queue.lock().first.is_null()
    }

    fn deliver_a_round(&self) {
        for _ in 0..ROUND {
            let Some((answer, own)) = self.queue.lock().pop() else { return };
            // Before the callback: it may free the object that the record lies in.
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
    let Some(engine) = Engine::get() else { return };
    let Some(completion_dpc) = engine.deferred.each.get(processor) else { return };
    let more = completion_dpc.deliver_some();
    if completion_dpc.dpc.end_run(more) {
        engine.fabric.platform().services.wake_thread(processor);
    }
}

/// Has `answer` delivered by another processor, through a record in memory that the answer itself keeps alive.
///
/// # Safety
/// The record's memory is used by no other context and valid until the answer is delivered; `Err` gives the answer back.
pub unsafe fn deliver_by(record: *mut CompletionRecord, answer: Answer) -> Result<(), Answer> {
    let (Some(record), Some(engine)) = (NonNull::new(record), Engine::get()) else { return Err(answer) };
    // SAFETY: the caller's promise.
    unsafe { record.write(CompletionRecord { next: ptr::null_mut(), answer: Some(answer), alone: false }) };
    // SAFETY: as above.
    unsafe { engine.deferred.queue(record) };
    Ok(())
}

/// A record for an answer that lies in no object; `None` where the adapter completes inline, or without memory.
pub fn space(completion_mode: CompletionMode) -> Option<Space> {
    if completion_mode != CompletionMode::Pending || Engine::get().is_none() {
        return None;
    }
    PoolBox::try_new(tags::DEFERRED, CompletionRecord { alone: true, ..CompletionRecord::blank() }).ok().map(Space)
}

/// A record of its own, blank.
pub struct Space(PoolBox<CompletionRecord>);

impl Space {
    /// Has `answer` delivered by another processor.
    pub fn deliver(self, answer: Answer) -> NTSTATUS {
        let Self(mut record) = self;
        record.answer = Some(answer);
        let record = record.into_raw();
        if let Some(engine) = Engine::get() {
            // SAFETY: the record was allocated for this answer and is freed when the answer is taken.
            unsafe { engine.deferred.queue(record) };
        }
        STATUS_PENDING
    }
}

/// Completes a request that is over: at once, or where the adapter makes everything pend, from another processor.
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

/// As [`request`], for one that allocates `size` bytes: large ones are allocated by a thread at PASSIVE_LEVEL. While one is,
/// the next go the same way however small they are: none overtakes an earlier one of its object.
pub fn request_sized(
    call: NdkCall,
    completion_mode: CompletionMode,
    size: u64,
    callback: Option<Callback<NDK_FN_REQUEST_COMPLETION>>,
    hold: impl FnOnce() -> Hold<KernelPlatform>,
    run: impl FnOnce() -> NTSTATUS + Send + 'static,
) -> NTSTATUS {
    let behind = Engine::get().is_some_and(|engine| engine.deferred.sized.load(Ordering::SeqCst) != 0);
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
    let Some(engine) = Engine::get() else { return refuse(call, &hold, Refusal::NO_MEMORY) };
    let object = hold.object();
    let under_way = UnderWay::new(&engine.deferred.sized);
    let work_item = WorkItem::try_new(move || {
        let status = run();
        drop(under_way);
        Answer::Requested { callback, status, hold }.deliver();
    });
    match work_item.and_then(|work_item| PoolBox::try_new(tags::MAPPING, Job::new(Work::WorkItem(work_item)))) {
        Ok(job) => {
            engine.mapper.queue(job);
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
