//! Deferred completions: answers that are decided and not delivered yet.
//!
//! This is the whole difference between the profiles of [`CompletionMode`]. The engine and the entry points decide as always;
//! where the adapter makes everything pend, the decision is written into a completion record, the call returns STATUS_PENDING,
//! and the queue of another processor makes the consumer's callback. A record never changes what was decided.
//!
//! Rules. NDKPI: the asynchronous contract: PENDING means exactly one completion, any other status none, and after PENDING
//! nothing is written through the out pointer. NDKPI: closing objects: a close never fails, so its record lies in the object's
//! own block; the record of a create lies in the block that was created; other records are allocated, and where that fails the
//! answer is given inline, which is always allowed. Each answer carries what keeps its object from closing, and releases it
//! after the consumer's callback has returned.

use core::ptr::NonNull;

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
    pool::{NoMemory, PoolSpace},
    work::{Job, Once, Queue},
};

use crate::{
    link::configuration::CompletionMode,
    runtime::{
        callback, completion,
        engine::Engine,
        memory::LARGE,
        platform::{Callback, KernelPlatform},
        refusal::{Refusal, refuse},
    },
    tags,
};

/// What is to be delivered.
pub enum Answer {
    Created {
        callback: Callback<NDK_FN_CREATE_COMPLETION>,
        status: NTSTATUS,
        /// Null when the create failed.
        object: VisibleObject,
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
pub struct VisibleObject(pub *mut NDK_OBJECT_HEADER);

// SAFETY: the pointer goes to the consumer on whatever processor that happens.
unsafe impl Send for VisibleObject {}

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
            Self::Closed(completion) => completion::closed(completion),
            Self::Retired(retired) => completion::retired(retired),
        }
    }
}

impl Once for Answer {
    fn run(self) {
        self.deliver();
    }
}

/// One answer and its place in a queue. In an object's block, or a block of its own.
pub type CompletionRecord = Job<Answer>;

/// The queue of another processor than this one, if there is another.
fn queue() -> Option<&'static impl Queue> {
    let processors = &Engine::get()?.fabric.platform().services.processors;
    processors.jobs(irql::processor().wrapping_add(1))
}

/// Has `answer` delivered by another processor, through a record in memory that the answer itself keeps alive.
///
/// # Safety
/// The record's memory is used by no other context and valid until the answer is delivered; `Err` gives the answer back.
pub unsafe fn deliver_by(record: *mut CompletionRecord, answer: Answer) -> Result<(), Answer> {
    let (Some(record), Some(queue)) = (NonNull::new(record), queue()) else { return Err(answer) };
    // SAFETY: the caller's promise.
    unsafe { record.write(CompletionRecord::in_place(Some(answer))) };
    // SAFETY: as above.
    unsafe { queue.job_in_place(record) };
    Ok(())
}

/// A record for an answer that lies in no object; `None` where the adapter completes inline, or without memory.
pub fn space(completion_mode: CompletionMode) -> Option<RecordSpace> {
    if completion_mode != CompletionMode::Pending || Engine::get().is_none() {
        return None;
    }
    PoolSpace::try_new(tags::DEFERRED).ok().map(RecordSpace)
}

/// Memory for a record of its own.
pub struct RecordSpace(PoolSpace<CompletionRecord>);

impl RecordSpace {
    /// Has `answer` delivered by another processor.
    pub fn deliver(self, answer: Answer) -> NTSTATUS {
        let Self(space) = self;
        if let Some(queue) = queue() {
            queue.job(space.fill(CompletionRecord::in_block(tags::DEFERRED, answer)));
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
    let behind = Engine::get().is_some_and(|engine| engine.mapper.has_sized());
    match callback {
        Some(callback) if (size > LARGE || behind) && completion_mode != CompletionMode::Inline => {
            by_thread(call, callback, hold(), run)
        }
        _ => request(completion_mode, run(), callback, hold),
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
    let counted = engine.mapper.count_sized();
    let request = move || {
        let status = run();
        drop(counted);
        Answer::Requested { callback, status, hold }.deliver();
    };
    match engine.mapper.request(request) {
        Ok(()) => STATUS_PENDING,
        Err(NoMemory) => refuse(call, &object, Refusal::NO_MEMORY),
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
