//! The registration with Winsock Kernel, and holding its provider.
//!
//! Rules it keeps: the registration stays where it is until it is ended; nothing is asked of it before it is made; each capture is
//! released once.

use core::{
    cell::UnsafeCell,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use ndkpi_sys::{
    nt::{NTSTATUS, STATUS_DEVICE_NOT_READY, STATUS_SUCCESS},
    wsk::{
        WSK_CLIENT, WSK_CLIENT_DISPATCH, WSK_CLIENT_NPI, WSK_PROVIDER_DISPATCH, WSK_PROVIDER_NPI, WSK_REGISTRATION,
        WSK_VERSION_1_0, WskCaptureProviderNPI, WskDeregister, WskRegister, WskReleaseProviderNPI,
    },
};

use crate::pool::{NoMemory, PoolBox, Tag};

static DISPATCH: WSK_CLIENT_DISPATCH =
    WSK_CLIENT_DISPATCH { Version: WSK_VERSION_1_0, Reserved: 0, WskClientEvent: None };

/// The registration of a driver.
pub struct Registration {
    // Winsock Kernel links it: it must not move.
    registration: PoolBox<UnsafeCell<WSK_REGISTRATION>>,
    registered: AtomicBool,
}

// SAFETY: Winsock Kernel serialises the operations on a registration.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

/// The provider's handle of the client, and the provider's functions. Valid while a capture is held.
#[derive(Clone, Copy)]
pub struct Provider {
    pub client: *mut WSK_CLIENT,
    pub dispatch: *const WSK_PROVIDER_DISPATCH,
}

// SAFETY: two addresses of the provider's, which are good on every thread.
unsafe impl Send for Provider {}
// SAFETY: as above.
unsafe impl Sync for Provider {}

impl Registration {
    pub fn try_new(tag: Tag) -> Result<Self, NoMemory> {
        let registration = PoolBox::try_new(tag, UnsafeCell::new(WSK_REGISTRATION::zeroed()))?;
        Ok(Self { registration, registered: AtomicBool::new(false) })
    }

    /// PASSIVE_LEVEL, once.
    pub fn register(&self) -> Result<(), NTSTATUS> {
        let mut client = WSK_CLIENT_NPI { ClientContext: ptr::null_mut(), Dispatch: &raw const DISPATCH };
        // SAFETY: PASSIVE_LEVEL; the registration stays where it is until it is ended, the dispatch for as long as the image.
        let status = unsafe { WskRegister(&raw mut client, self.registration.get()) };
        if status != STATUS_SUCCESS {
            return Err(status);
        }
        self.registered.store(true, Ordering::Release);
        Ok(())
    }

    /// PASSIVE_LEVEL, when everything made through it is closed. Nothing if there is no registration. A capture that waits in another
    /// thread ends with `STATUS_DEVICE_NOT_READY`.
    pub fn deregister(&self) {
        if self.registered.swap(false, Ordering::AcqRel) {
            // SAFETY: PASSIVE_LEVEL; registered, and ended once.
            unsafe { WskDeregister(self.registration.get()) };
        }
    }

    /// Takes hold of the provider, for which it waits so many milliseconds. PASSIVE_LEVEL; with 0 (`WSK_NO_WAIT`)
    /// `IRQL <= DISPATCH_LEVEL`.
    pub fn capture(&self, limit: u32) -> Result<Captured<'_>, NTSTATUS> {
        if !self.registered.load(Ordering::Acquire) {
            return Err(STATUS_DEVICE_NOT_READY);
        }
        let mut captured = WSK_PROVIDER_NPI::zeroed();
        // SAFETY: the caller's IRQL; registered; a place for the answer.
        let status = unsafe { WskCaptureProviderNPI(self.registration.get(), limit, &raw mut captured) };
        if status != STATUS_SUCCESS {
            return Err(status);
        }
        let provider = Provider { client: captured.Client, dispatch: captured.Dispatch };
        Ok(Captured { registration: self, provider })
    }

    /// Ends a capture. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Safety
    /// A capture of this registration was kept ([`Captured::keep`]) and is released here only; nothing uses it any more.
    pub(super) unsafe fn release(&self) {
        // SAFETY: the caller's promise.
        unsafe { WskReleaseProviderNPI(self.registration.get()) };
    }
}

/// One capture of the provider, which ends when it is dropped. `IRQL <= DISPATCH_LEVEL`.
pub struct Captured<'a> {
    registration: &'a Registration,
    provider: Provider,
}

impl Captured<'_> {
    /// The provider, valid until this is dropped.
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// Goes on holding the provider until [`Registration::release`].
    pub(super) fn keep(self) -> Provider {
        let provider = self.provider;
        core::mem::forget(self);
        provider
    }
}

impl Drop for Captured<'_> {
    fn drop(&mut self) {
        // SAFETY: captured once for each value of this type, which was not kept.
        unsafe { self.registration.release() };
    }
}
