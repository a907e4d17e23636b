//! Opens of the provider: the object behind NDK_ADAPTER, and how it is closed.

use core::{cell::UnsafeCell, ffi::c_void, ptr::NonNull};

use ndkpi_sys::{
    ndis::{NDIS_STATUS_ADAPTER_NOT_READY, NDIS_STATUS_BAD_VERSION, NDIS_STATUS_RESOURCES},
    ndkinfo::NDK_VERSION,
    ndkpi::{NDK_ADAPTER, NDK_OBJECT_HEADER, NdkObjectTypeAdapter},
};
use softndk_engine::{Close, CreateError, Open, Semantics};
use softndk_ioctl::RefusalCause;
use softndk_kernel::{
    event::Event,
    pool::{AnyPoolBox, NoMemory, Tag, Tagged},
    spin_lock::SpinLock,
};

use super::{
    adapter,
    consumer_object::Origin,
    entry::{Argument, Block, ConsumerRef},
    provider::Provider,
};
use crate::{
    runtime::{
        platform::{CloseCallback, ConsumerObject, Context, KernelPlatform},
        refusal::Refusal,
    },
    tags, version,
};

/// One open of the adapter. The consumer sees the first member; `Dispatch` and `NdkReserved` in it belong to the layers above
/// after creation.
#[repr(C)]
pub struct OpenAdapter {
    object: UnsafeCell<NDK_ADAPTER>,
    pub origin: Origin,
    provider: NonNull<Provider>,
    /// Set once, before the consumer gets the object.
    engine_open: UnsafeCell<Option<Open<KernelPlatform>>>,
    /// What the close waits for; made in advance, because a close cannot fail.
    closed: SpinLock<Option<Event>>,
}

// SAFETY: the provider outlives its opens; the object part belongs to the layers above; the engine's open does not change once
// the consumer has the object.
unsafe impl Send for OpenAdapter {}
// SAFETY: as above.
unsafe impl Sync for OpenAdapter {}

impl Tagged for OpenAdapter {
    const TAG: Tag = tags::NDK_ADAPTER;
}

impl OpenAdapter {
    fn try_new(provider: &Provider, version: NDK_VERSION) -> Result<NonNull<Self>, Refusal> {
        let object = NDK_ADAPTER {
            Header: NDK_OBJECT_HEADER::new(version, NdkObjectTypeAdapter),
            Dispatch: &raw const adapter::DISPATCH,
        };
        let closed = Event::try_notification(tags::EVENT).map_err(resources)?;
        let open = Self {
            object: UnsafeCell::new(object),
            origin: Origin { version, completion_mode: provider.configuration().completion_mode },
            provider: NonNull::from(provider),
            engine_open: UnsafeCell::new(None),
            closed: SpinLock::new(Some(closed)),
        };
        let open = AnyPoolBox::try_new(open).map_err(resources)?;
        let place: *mut Self = open.as_ptr().cast();
        // On failure the engine drops the block.
        let engine_open = provider.engine().open(Semantics::NDK, ConsumerObject::Block(open)).map_err(refused)?;
        // SAFETY: the engine keeps the block.
        let cell = unsafe { &raw mut (*place).engine_open };
        // SAFETY: no other context reaches the engine's open yet.
        unsafe { *(*cell).get_mut() = Some(engine_open) };
        NonNull::new(place).ok_or_else(|| resources(NoMemory))
    }

    /// The open as the engine keeps it with a listener.
    pub fn context(&self) -> Context {
        Context(core::ptr::from_ref(self).cast_mut().cast())
    }

    pub fn provider(&self) -> &Provider {
        // SAFETY: the open holds a reference on the provider.
        unsafe { self.provider.as_ref() }
    }
}

// SAFETY: `repr(C)`, and the object is the first member.
unsafe impl Block for OpenAdapter {
    type Visible = NDK_ADAPTER;
    type Handle = Open<KernelPlatform>;

    fn handle(&self) -> Option<&Open<KernelPlatform>> {
        // SAFETY: written once, before the object was handed out.
        unsafe { (*self.engine_open.get()).as_ref() }
    }
}

/// An open of a consumer, or null.
pub type OpenRef<'call> = ConsumerRef<'call, OpenAdapter>;

fn resources(_: NoMemory) -> Refusal {
    Refusal::new(RefusalCause::NO_MEMORY, NDIS_STATUS_RESOURCES)
}

/// The refusal of an open during a disable, or before an enable has ended.
fn refused(cause: CreateError) -> Refusal {
    if cause == CreateError::AdapterGone { NDK_OFF } else { cause.into() }
}

const NDK_OFF: Refusal = Refusal::new(RefusalCause::NDK_OFF, NDIS_STATUS_ADAPTER_NOT_READY);

/// Opens the adapter with a version that satisfies `wanted`. PASSIVE_LEVEL.
pub fn open(provider: &Provider, wanted: NDK_VERSION) -> Result<*mut NDK_ADAPTER, Refusal> {
    let unknown = Refusal::new(RefusalCause::UNKNOWN_VERSION, NDIS_STATUS_BAD_VERSION);
    let version = version::negotiate(wanted).ok_or(unknown)?;
    if !provider.engine_open() {
        return Err(NDK_OFF);
    }
    match OpenAdapter::try_new(provider, version) {
        Ok(open) => Ok(open.as_ptr().cast()),
        Err(refusal) => {
            provider.closed();
            Err(refusal)
        }
    }
}

/// Closes an open and waits. PASSIVE_LEVEL.
///
/// # Safety
/// `object` came from [`open`] on this provider and is closed once.
pub unsafe fn close(provider: &Provider, object: *mut NDK_ADAPTER) {
    // SAFETY: the caller's promise.
    let Some(open) = unsafe { OpenRef::take(object) }.block() else { return };
    let (Some(engine_open), Some(closed)) = (open.handle().cloned(), open.closed.lock().take()) else { return };
    // From here on the block belongs to the engine's close.
    let event: *const Event = &raw const closed;
    // SAFETY: `signal` takes an event, which lives until it is signalled or the close is done.
    let callback = unsafe { CloseCallback::new(Some(signal), event.cast_mut().cast()) };
    match engine_open.close(callback) {
        Close::Done(object) => drop(object),
        Close::Pending => closed.wait(),
    }
    drop(engine_open);
    provider.closed();
}

/// Close completion of an open: wakes the thread that waits in [`close`].
unsafe extern "C" fn signal(context: *mut c_void) {
    // SAFETY: the event lives on the waiter's stack until it is signalled.
    if let Some(closed) = unsafe { context.cast::<Event>().as_ref() } {
        closed.set();
    }
}
