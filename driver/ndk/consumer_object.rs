//! NDK objects: pool blocks that start with what the consumer sees.
//!
//! The engine keeps the block while the object exists and gives it back when the object is finished; the block keeps the
//! engine's handle. After creation `Dispatch` and `NdkReserved` belong to the layers above: the private part is found by
//! address only.

use core::cell::UnsafeCell;

use ndkpi_sys::{
    ndkinfo::NDK_VERSION,
    ndkpi::{NDK_FN_CLOSE_COMPLETION, NDK_FN_CREATE_COMPLETION, NDK_OBJECT_HEADER},
    nt::{NTSTATUS, PVOID, STATUS_PENDING, STATUS_SUCCESS},
};
use softndk_engine::{Close, CloseCompletion, Closed, Hold};
use softndk_ioctl::{NdkCall, RefusalWay};
use softndk_kernel::pool::{AnyPoolBox, NoMemory, Tag, Tagged};

use super::{
    entry::{Argument, Block, ConsumerRef, CreateAnswer},
    kind::Kind,
};
use crate::{
    link::configuration::CompletionMode,
    runtime::{
        callback, completion,
        deferred::{self, Answer, CompletionRecord, VisibleObject},
        engine::Engine,
        memory::{LARGE, Mapping},
        platform::{Callback, CloseCallback, ConsumerObject, KernelPlatform},
        refusal::{Nothing, Refusal, refuse, refuse_by},
    },
};

/// What an object takes from the open it descends from.
#[derive(Clone, Copy)]
pub struct Origin {
    /// The version in force for the open.
    pub version: NDK_VERSION,
    /// The completion mode of its functions.
    pub completion_mode: CompletionMode,
}

/// An object of one kind.
#[repr(C)]
pub struct Object<K: Kind> {
    visible: UnsafeCell<K::Visible>,
    pub origin: Origin,
    /// The record of the deferred completion of the object's create, and then of its close.
    record: UnsafeCell<CompletionRecord>,
    /// Set once, before the consumer gets the object.
    handle: UnsafeCell<Option<K::Handle>>,
}

// SAFETY: the visible part belongs to the layers above; the handle does not change once the object is known.
unsafe impl<K: Kind> Send for Object<K> where K::Handle: Send {}
// SAFETY: as above.
unsafe impl<K: Kind> Sync for Object<K> where K::Handle: Sync {}

impl<K: Kind> Tagged for Object<K> {
    const TAG: Tag = K::TAG;
}

impl<K: Kind> Object<K> {
    /// Makes a block and, with it, the engine's object. The result is what the consumer gets.
    fn create(
        origin: Origin,
        make: impl FnOnce(ConsumerObject) -> Result<K::Handle, Refusal>,
    ) -> Result<*mut K::Visible, Refusal> {
        let (object, consumer_object) = Self::reserve(origin)?;
        // On failure the engine drops the block.
        let handle = make(consumer_object)?;
        // SAFETY: the engine keeps the block, and no other context has the object yet.
        Ok(unsafe { Self::complete(object, handle) })
    }

    /// A block without the engine's object, for objects that the engine makes first.
    pub fn reserve(origin: Origin) -> Result<(*mut Self, ConsumerObject), Refusal> {
        let object = Self {
            visible: UnsafeCell::new(K::visible(NDK_OBJECT_HEADER::new(origin.version, K::TYPE))),
            origin,
            record: UnsafeCell::new(CompletionRecord::in_place(None)),
            handle: UnsafeCell::new(None),
        };
        let block = AnyPoolBox::try_new(object).map_err(|_| Refusal::NO_MEMORY)?;
        Ok((block.as_ptr().cast(), ConsumerObject::Block(block)))
    }

    /// Sets the handle and returns what the consumer gets.
    ///
    /// # Safety
    /// `object` came from [`Object::reserve`], its block is kept by the engine, and no consumer has it yet.
    pub unsafe fn complete(object: *mut Self, handle: K::Handle) -> *mut K::Visible {
        // SAFETY: the block is alive (the caller's promise).
        let place = unsafe { &raw mut (*object).handle };
        // SAFETY: no other context reaches the handle yet.
        unsafe { *(*place).get_mut() = Some(handle) };
        object.cast()
    }
}

// SAFETY: `repr(C)`, and the visible part is the first member.
unsafe impl<K: Kind> Block for Object<K> {
    type Visible = K::Visible;
    type Handle = K::Handle;

    fn handle(&self) -> Option<&K::Handle> {
        // SAFETY: written once, before the object was handed out.
        unsafe { (*self.handle.get()).as_ref() }
    }
}

/// A create call of a consumer: how it is answered.
pub struct Creation<'call, V> {
    pub call: NdkCall,
    pub origin: Origin,
    pub answer: CreateAnswer<'call, V>,
}

impl<V> Creation<'_, V> {
    /// Makes an object and completes the create, inline or by callback. `parent` holds what the object is made from.
    pub fn run<K: Kind<Visible = V>>(
        self,
        parent: impl Fn() -> Hold<KernelPlatform>,
        make: impl FnOnce(ConsumerObject) -> Result<K::Handle, Refusal>,
    ) -> NTSTATUS {
        if self.answer.result.is_null() {
            return refuse(self.call, &parent(), Refusal::NO_PLACE);
        }
        let created = Object::<K>::create(self.origin, make);
        match (created.map_err(|refusal| refuse(self.call, &parent(), refusal)), self.answer.completion) {
            (Ok(object), Some(callback)) if self.origin.completion_mode == CompletionMode::Pending => {
                // SAFETY: the object was just made and no other context has it yet.
                unsafe { deliver_created::<K>(object, callback) }.unwrap_or_else(|| self.give(object))
            }
            (Ok(object), _) => self.give(object),
            (Err(status), Some(callback)) if deferred::may_be_deferred(status) => {
                let nothing = VisibleObject(core::ptr::null_mut());
                deferred::space(self.origin.completion_mode).map_or(status, |space| {
                    space.deliver(Answer::Created { callback, status, object: nothing, hold: parent() })
                })
            }
            (Err(status), _) => status,
        }
    }

    /// As [`Creation::run`], for an object that needs `size` bytes: large ones are allocated by a thread at PASSIVE_LEVEL.
    pub fn run_sized<K: Kind<Visible = V>>(
        self,
        size: u64,
        parent: impl Fn() -> Hold<KernelPlatform>,
        make: impl FnOnce(ConsumerObject) -> Result<K::Handle, Refusal> + Send + 'static,
    ) -> NTSTATUS {
        let inline = self.origin.completion_mode == CompletionMode::Inline;
        let at_once = size <= LARGE || inline || self.answer.result.is_null();
        match self.answer.completion {
            Some(callback) if !at_once => create_by_thread::<K>(self.call, self.origin, callback, parent(), make),
            _ => self.run::<K>(parent, make),
        }
    }

    /// The inline result of a create.
    fn give(&self, object: *mut V) -> NTSTATUS {
        self.answer.result.write(object);
        STATUS_SUCCESS
    }
}

/// How a create is reported.
type CreateCallback = Callback<NDK_FN_CREATE_COMPLETION>;

/// Has a create completed by another processor; `None` if that cannot be.
///
/// # Safety
/// The object is complete and the consumer has not got it yet.
unsafe fn deliver_created<K: Kind>(object: *mut K::Visible, callback: CreateCallback) -> Option<NTSTATUS> {
    // SAFETY: the caller's promise: the object is there, and closed by no consumer yet.
    let consumer_object = unsafe { ConsumerRef::<Object<K>>::take(object) }.block()?;
    let hold = K::hold(consumer_object.handle()?);
    let answer = Answer::Created { callback, status: STATUS_SUCCESS, object: VisibleObject(object.cast()), hold };
    // SAFETY: the record lies in the object, which cannot close before the answer's hold is gone; a close uses it only then.
    unsafe { deferred::deliver_by(consumer_object.record.get(), answer) }.ok().map(|()| STATUS_PENDING)
}

/// Leaves a create to the mapper's thread.
fn create_by_thread<K: Kind>(
    call: NdkCall,
    origin: Origin,
    callback: CreateCallback,
    parent: Hold<KernelPlatform>,
    make: impl FnOnce(ConsumerObject) -> Result<K::Handle, Refusal> + Send + 'static,
) -> NTSTATUS {
    let Some(engine) = Engine::get() else { return refuse(call, &parent, Refusal::NO_MEMORY) };
    let from = parent.object();
    let request = move || {
        // Taken whole: its parts alone may not change threads.
        let callback = callback;
        let refused = |refusal| refuse_by(RefusalWay::COMPLETION, call, &parent, refusal);
        let created = Object::<K>::create(origin, make).map_err(refused);
        let status = created.err().unwrap_or(STATUS_SUCCESS);
        let object = created.unwrap_or(core::ptr::null_mut());
        // SAFETY: null, or a complete object that no consumer has yet.
        let hold = unsafe { ConsumerRef::<Object<K>>::take(object) }.get().map(K::hold);
        callback::make(|| callback.complete(status, object.cast()));
        // Only now may the object, or what it would have been made from, finish its close.
        drop(hold);
        drop(parent);
    };
    match engine.mapper.request(request) {
        Ok(()) => STATUS_PENDING,
        Err(NoMemory) => refuse(call, &from, Refusal::NO_MEMORY),
    }
}

/// NDKPI: NDK_FN_CLOSE_OBJECT, for every kind of object. `IRQL <= DISPATCH_LEVEL`. SUCCESS or PENDING, never a failure.
pub unsafe extern "C" fn close<K: Kind>(
    object: *mut NDK_OBJECT_HEADER,
    completion: Option<NDK_FN_CLOSE_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer passes an object of this kind, which starts with its header, and closes it once.
    let object = unsafe { ConsumerRef::<Object<K>>::take(object.cast()) };
    let Some((consumer_object, handle)) = object.both() else {
        return refuse(NdkCall::CLOSE, &Nothing, Refusal::NO_OBJECT);
    };
    // The block may be freed while the engine still uses it, so nothing below may belong to the block. The record is used only
    // if the engine gives the block back, which means that nothing is under way any more.
    let (handle, completion_mode, record) =
        (handle.clone(), consumer_object.origin.completion_mode, consumer_object.record.get());
    // SAFETY: the consumer gives the context with the function.
    let callback = unsafe { CloseCallback::new(completion, context) };
    match K::close(&handle, callback) {
        Close::Pending => STATUS_PENDING,
        Close::Done(object) => finish(object, callback, completion_mode, record),
    }
}

/// Completes a close that the engine did at once. `record` lies in the object's block.
fn finish(
    object: Closed<KernelPlatform>,
    callback: CloseCallback,
    completion_mode: CompletionMode,
    record: *mut CompletionRecord,
) -> NTSTATUS {
    // Without a block the object is closed already, and the record gone with it.
    let pends = completion_mode == CompletionMode::Pending && callback.is_there() && object.consumer_object.is_some();
    let large = completion_mode == CompletionMode::Auto && object.memory.as_ref().is_some_and(Mapping::is_large);
    if pends {
        let answer = Answer::Closed(CloseCompletion { callback, object });
        // SAFETY: the answer owns the block that the record lies in, and no other context reaches it any more.
        return match unsafe { deferred::deliver_by(record, answer) } {
            Ok(()) => STATUS_PENDING,
            Err(answer) => {
                drop(answer);
                STATUS_SUCCESS
            }
        };
    }
    if large {
        completion::closed(CloseCompletion { callback, object });
        return STATUS_PENDING;
    }
    drop(object);
    STATUS_SUCCESS
}
