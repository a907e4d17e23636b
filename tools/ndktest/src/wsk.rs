//! The way to NDK adapters: a client of Winsock Kernel, which opens an adapter by the index of its interface.
//!
//! The provider is captured for each open and released with its close, so that nothing is held while no adapter is open.

use core::{
    mem::size_of,
    ptr::{self, NonNull},
};

use ndkpi_sys::{
    ndkinfo::NDK_VERSION,
    ndkpi::NDK_ADAPTER,
    nt::{NTSTATUS, STATUS_SUCCESS},
    wsk::WSK_CLIENT,
    wskndk::{WSK_PROVIDER_NDK_DISPATCH, WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH},
};
use softndk_kernel::{
    pool::NoMemory,
    winsock::{Captured, Registration},
};

use crate::{session::object::Handle, tags};

/// How long an open waits for Winsock Kernel to be there, in milliseconds.
const PROVIDER_LIMIT: u32 = 5_000;

/// Asked for in this order: the lowest minor version of each major that has the functions used here.
const VERSIONS: [NDK_VERSION; 2] = [NDK_VERSION { Major: 2, Minor: 0 }, NDK_VERSION { Major: 1, Minor: 2 }];

/// "NDIS_STATUS_BAD_VERSION".
const BAD_VERSION: NTSTATUS = ndkpi_sys::ndis::NDIS_STATUS_BAD_VERSION;

/// The registration of this driver.
pub struct Client {
    registration: Registration,
}

impl Client {
    pub fn try_new() -> Result<Self, NoMemory> {
        Ok(Self { registration: Registration::try_new(tags::WSK_CLIENT)? })
    }

    /// PASSIVE_LEVEL, once.
    pub fn register(&self) -> Result<(), NTSTATUS> {
        self.registration.register()
    }

    /// PASSIVE_LEVEL, when every adapter is closed. Nothing if there is no registration.
    pub fn deregister(&self) {
        self.registration.deregister();
    }

    /// Opens the NDK adapter of an interface. PASSIVE_LEVEL.
    pub fn open(&'static self, interface: u32) -> Result<Open, NTSTATUS> {
        let provider = self.capture()?;
        let mut last = BAD_VERSION;
        for version in VERSIONS {
            let mut adapter = ptr::null_mut();
            // SAFETY: PASSIVE_LEVEL; the provider is captured; a place for the answer.
            last = unsafe { (provider.ndk.WskOpenNdkAdapter)(provider.client, version, interface, &raw mut adapter) };
            if let (STATUS_SUCCESS, Some(adapter)) = (last, NonNull::new(adapter)) {
                // SAFETY: just opened; the open lends it as long as it lives.
                return Ok(Open { provider, adapter: unsafe { Handle::new(adapter) } });
            }
            if last != BAD_VERSION {
                break;
            }
        }
        Err(last)
    }

    fn capture(&'static self) -> Result<Provider, NTSTATUS> {
        // Given back when it is dropped, whatever happens.
        let held = self.registration.capture(PROVIDER_LIMIT)?;
        let captured = held.provider();
        // SAFETY: a captured provider has a complete table.
        let control = unsafe { (*captured.dispatch).WskControlClient };
        let mut ndk = core::mem::MaybeUninit::<WSK_PROVIDER_NDK_DISPATCH>::uninit();
        // SAFETY: a captured provider; no input, no IRP, and room for exactly the table.
        let status = unsafe {
            control(
                captured.client,
                WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH,
                0,
                ptr::null_mut(),
                size_of::<WSK_PROVIDER_NDK_DISPATCH>() as u64 as _,
                ndk.as_mut_ptr().cast(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        if status != STATUS_SUCCESS {
            return Err(status);
        }
        // SAFETY: the call succeeded, so it filled the table.
        let ndk = unsafe { ndk.assume_init() };
        Ok(Provider { client: captured.client, ndk, _held: held })
    }
}

/// The captured provider and its functions for NDK.
struct Provider {
    client: *mut WSK_CLIENT,
    ndk: WSK_PROVIDER_NDK_DISPATCH,
    _held: Captured<'static>,
}

/// An open NDK adapter; dropping it closes it and waits until everything made from it is closed. PASSIVE_LEVEL.
pub struct Open {
    provider: Provider,
    adapter: Handle<'static, NDK_ADAPTER>,
}

// SAFETY: NDK objects may be used from every thread.
unsafe impl Send for Open {}
// SAFETY: as above.
unsafe impl Sync for Open {}

impl Open {
    /// The adapter's functions.
    pub fn handle(&self) -> Handle<'_, NDK_ADAPTER> {
        self.adapter
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: PASSIVE_LEVEL; opened through this provider and closed once.
        unsafe { (self.provider.ndk.WskCloseNdkAdapter)(self.provider.client, self.adapter.as_ptr()) };
    }
}
