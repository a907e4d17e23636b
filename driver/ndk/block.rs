//! NDK objects: pool blocks that start with what the consumer sees.
//!
//! The engine keeps the block while the object lives and gives it back when the object is finished; the block keeps the
//! engine's handle. After creation `Dispatch` and `NdkReserved` are not ours: the private part is found by address only.

use core::cell::UnsafeCell;

use ndkpi_sys::{
    ndkinfo::NDK_VERSION,
    ndkpi::{NDK_FN_CLOSE_COMPLETION, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE},
    nt::{NTSTATUS, PVOID, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS},
};
use softndk_engine::{Close, CloseCompletion, CreateError, Retired};

use super::{
    completion_queue::CompletionQueueKind, connector::ConnectorKind, listener::ListenerKind, logical_mapping,
    memory_region::MemoryRegionKind, open::OpenAdapter, protection_domain::ProtectionDomainKind,
    queue_pair::QueuePairKind,
};
use crate::{
    driver::Driver,
    kernel::pool::{PoolBox, Tag},
    mapper::{Job, Work},
    memory::Mapping,
    platform::{Callback, KernelPlatform},
    status,
};

/// A block of some kind, as the engine keeps it. Dropping it frees it.
#[expect(dead_code, reason = "the blocks are owned here and reached through the consumers' pointers")]
pub enum Block {
    Open(PoolBox<OpenAdapter>),
    CompletionQueue(PoolBox<Object<CompletionQueueKind>>),
    ProtectionDomain(PoolBox<Object<ProtectionDomainKind>>),
    MemoryRegion(PoolBox<Object<MemoryRegionKind>>),
    QueuePair(PoolBox<Object<QueuePairKind>>),
    Listener(PoolBox<Object<ListenerKind>>),
    Connector(PoolBox<Object<ConnectorKind>>),
}

/// Whom a close tells.
pub type CloseCallback = Callback<Option<NDK_FN_CLOSE_COMPLETION>>;

/// What differs between the kinds of objects.
pub trait Kind: Sized {
    /// What the consumer sees, e.g. NDK_CQ.
    type Visible;
    /// The engine's object.
    type Handle: Clone;

    const TYPE: NDK_OBJECT_TYPE;
    const TAG: Tag;

    /// The visible part with this kind's dispatch table.
    fn visible(header: NDK_OBJECT_HEADER) -> Self::Visible;
    fn block(object: PoolBox<Object<Self>>) -> Block;
    fn close(handle: &Self::Handle, callback: CloseCallback) -> Close<KernelPlatform>;
}

/// An object of one kind.
#[repr(C)]
pub struct Object<K: Kind> {
    visible: UnsafeCell<K::Visible>,
    /// The version in force for the adapter's open.
    pub version: NDK_VERSION,
    /// Set once, before the consumer knows the object.
    handle: UnsafeCell<Option<K::Handle>>,
}

// SAFETY: the visible part belongs to the layers above; the handle does not change once the object is known.
unsafe impl<K: Kind> Send for Object<K> where K::Handle: Send {}
// SAFETY: as above.
unsafe impl<K: Kind> Sync for Object<K> where K::Handle: Sync {}

impl<K: Kind> Object<K> {
    /// Makes a block and, with it, the engine's object. The result is what the consumer gets.
    pub fn create(
        version: NDK_VERSION,
        make: impl FnOnce(Block) -> Result<K::Handle, CreateError>,
    ) -> Result<*mut K::Visible, NTSTATUS> {
        let (object, block) = Self::reserve(version)?;
        // On failure the engine drops the block.
        let handle = make(block).map_err(status::of_create)?;
        // SAFETY: the engine keeps the block, and nobody else knows the object yet.
        Ok(unsafe { Self::complete(object, handle) })
    }

    /// A block without the engine's object, for objects that the engine makes first.
    pub fn reserve(version: NDK_VERSION) -> Result<(*mut Self, Block), NTSTATUS> {
        let object = Self {
            visible: UnsafeCell::new(K::visible(NDK_OBJECT_HEADER::new(version, K::TYPE))),
            version,
            handle: UnsafeCell::new(None),
        };
        let object = PoolBox::try_new(K::TAG, object).map_err(|_| STATUS_INSUFFICIENT_RESOURCES)?;
        Ok((object.as_ptr(), K::block(object)))
    }

    /// Puts the handle in and gives what the consumer gets.
    ///
    /// # Safety
    /// `object` came from [`Object::reserve`], its block is kept by the engine, and no consumer knows it yet.
    pub unsafe fn complete(object: *mut Self, handle: K::Handle) -> *mut K::Visible {
        // SAFETY: the block is alive (the caller's promise).
        let place = unsafe { &raw mut (*object).handle };
        // SAFETY: nobody else reaches the handle yet.
        unsafe { *(*place).get_mut() = Some(handle) };
        object.cast()
    }

    /// The object behind what a consumer passes.
    ///
    /// # Safety
    /// `visible` is null or an object of this kind that is not closed yet.
    pub unsafe fn from_visible<'a>(visible: *mut K::Visible) -> Option<&'a Self> {
        // SAFETY: the visible part is the first member of the block (the caller's promise).
        unsafe { visible.cast::<Self>().as_ref() }
    }

    /// The engine's object.
    pub fn handle(&self) -> Option<&K::Handle> {
        // SAFETY: written once, before the object was handed out.
        unsafe { (*self.handle.get()).as_ref() }
    }
}

/// The engine's object behind what a consumer passes.
///
/// # Safety
/// As [`Object::from_visible`]. The handle may be used for as long as the object is not closed.
pub unsafe fn handle<'a, K: Kind + 'a>(visible: *mut K::Visible) -> Option<&'a K::Handle> {
    // SAFETY: the caller's promise.
    unsafe { Object::<K>::from_visible(visible) }.and_then(Object::handle)
}

/// Gives a new object to the consumer that waits for it inline.
///
/// # Safety
/// `place` is null or where the consumer wants the object.
pub unsafe fn give<V>(created: Result<*mut V, NTSTATUS>, place: *mut *mut V) -> NTSTATUS {
    match created {
        Ok(object) => {
            // SAFETY: the consumer's place, checked before the object was made.
            unsafe { place.write(object) };
            STATUS_SUCCESS
        }
        Err(status) => status,
    }
}

/// NDKPI: NDK_FN_CLOSE_OBJECT, for every kind of object. `IRQL <= DISPATCH_LEVEL`. SUCCESS or PENDING, never a failure.
pub unsafe extern "C" fn close<K: Kind>(
    object: *mut NDK_OBJECT_HEADER,
    completion: Option<NDK_FN_CLOSE_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer passes an object of this kind and closes it once.
    let Some(handle) = (unsafe { handle::<K>(object.cast()) }) else { return STATUS_INVALID_PARAMETER };
    // The block may go while the engine is still at it, so the handle must not be the block's own.
    let handle = handle.clone();
    let callback = CloseCallback::new(completion, context);
    finish(K::close(&handle, callback), callback)
}

/// Turns the engine's answer to a close into ours.
fn finish(close: Close<KernelPlatform>, callback: CloseCallback) -> NTSTATUS {
    match close {
        Close::Pending => STATUS_PENDING,
        Close::Done(object) => {
            if object.memory.as_ref().is_some_and(Mapping::is_large) {
                closed(CloseCompletion { callback, object });
                return STATUS_PENDING;
            }
            drop(object);
            STATUS_SUCCESS
        }
    }
}

/// A close that pended is complete. Large memory is unmapped by the mapper first. `IRQL <= DISPATCH_LEVEL`.
pub fn closed(mut completion: CloseCompletion<KernelPlatform>) {
    let space = completion.object.memory.as_mut().and_then(Mapping::take_retire_space);
    match (space, Driver::get()) {
        (Some(space), Some(driver)) => driver.mapper.queue(space.fill(Job::new(Work::Close(completion)))),
        _ => finish_closed(completion),
    }
}

/// Unmaps, frees, tells the consumer, and then lets the object's antecedents go.
pub fn finish_closed(mut completion: CloseCompletion<KernelPlatform>) {
    drop(completion.object.memory.take());
    drop(completion.object.block.take());
    if let Some(function) = completion.callback.function {
        // SAFETY: the consumer gave function and context with the close, which answered STATUS_PENDING.
        unsafe { function(completion.callback.context.0) };
    }
    drop(completion);
}

/// Memory that nothing copies any more. Large memory is unmapped by the mapper. `IRQL <= DISPATCH_LEVEL`.
pub fn retired(mut retired: Retired<KernelPlatform>) {
    match (retired.memory.take_retire_space(), Driver::get()) {
        (Some(space), Some(driver)) => driver.mapper.queue(space.fill(Job::new(Work::Unmap(retired)))),
        _ => finish_retired(retired),
    }
}

/// Unmaps and tells the Deregister that waits for it, if one does.
pub fn finish_retired(retired: Retired<KernelPlatform>) {
    let callback = retired.callback;
    drop(retired.memory);
    if let Some(callback) = callback {
        // SAFETY: the consumer gave function and context with the request, which answered STATUS_PENDING.
        unsafe { (callback.function)(callback.context.0, STATUS_SUCCESS) };
    } else {
        logical_mapping::unmapped();
    }
    // What is left of `retired` ends here and lets the region close.
}
