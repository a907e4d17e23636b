//! The way to NDK adapters: a client of Winsock Kernel, which opens an adapter by the index of its interface.
//!
//! The provider is captured for each open and released with its close, so that nothing is held while no adapter is open.

use core::{
    cell::UnsafeCell,
    mem::size_of,
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, Ordering},
};

use ndkpi_sys::{
    ndkinfo::NDK_VERSION,
    ndkpi::NDK_ADAPTER,
    nt::{NTSTATUS, STATUS_SUCCESS},
    wsk::{
        WSK_CLIENT, WSK_CLIENT_DISPATCH, WSK_CLIENT_NPI, WSK_PROVIDER_NPI, WSK_REGISTRATION, WSK_VERSION_1_0,
        WskCaptureProviderNPI, WskDeregister, WskRegister, WskReleaseProviderNPI,
    },
    wskndk::{WSK_PROVIDER_NDK_DISPATCH, WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH},
};
use softndk_kernel::pool::{NoMemory, PoolBox};

use crate::{session::object::Handle, tags};

/// How long an open waits for Winsock Kernel to be there, in milliseconds.
const PROVIDER_LIMIT: u32 = 5_000;

/// Asked for in this order: the lowest minor version of each major that has the functions used here.
const VERSIONS: [NDK_VERSION; 2] = [NDK_VERSION { Major: 2, Minor: 0 }, NDK_VERSION { Major: 1, Minor: 2 }];

/// "NDIS_STATUS_BAD_VERSION".
const BAD_VERSION: NTSTATUS = ndkpi_sys::ndis::NDIS_STATUS_BAD_VERSION;

static DISPATCH: WSK_CLIENT_DISPATCH =
    WSK_CLIENT_DISPATCH { Version: WSK_VERSION_1_0, Reserved: 0, WskClientEvent: None };

/// The registration of this driver.
pub struct Client {
    // Winsock Kernel links it: it must not move.
    registration: PoolBox<UnsafeCell<WSK_REGISTRATION>>,
    registered: AtomicBool,
}

// SAFETY: Winsock Kernel serialises the operations on a registration.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

impl Client {
    pub fn try_new() -> Result<Self, NoMemory> {
        let registration = PoolBox::try_new(tags::WSK_CLIENT, UnsafeCell::new(WSK_REGISTRATION::zeroed()))?;
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

    /// PASSIVE_LEVEL, when every adapter is closed. Nothing if there is no registration.
    pub fn deregister(&self) {
        if self.registered.swap(false, Ordering::AcqRel) {
            // SAFETY: PASSIVE_LEVEL; registered, and ended once.
            unsafe { WskDeregister(self.registration.get()) };
        }
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
        let mut captured = WSK_PROVIDER_NPI::zeroed();
        // SAFETY: PASSIVE_LEVEL; registered; a place for the answer.
        let status = unsafe { WskCaptureProviderNPI(self.registration.get(), PROVIDER_LIMIT, &raw mut captured) };
        if status != STATUS_SUCCESS {
            return Err(status);
        }
        // Given back from here on, whatever happens.
        let held = Held(self);
        // SAFETY: a captured provider has a complete table.
        let control = unsafe { (*captured.Dispatch).WskControlClient };
        let mut ndk = core::mem::MaybeUninit::<WSK_PROVIDER_NDK_DISPATCH>::uninit();
        // SAFETY: a captured provider; no input, no IRP, and room for exactly the table.
        let status = unsafe {
            control(
                captured.Client,
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
        Ok(Provider { client: captured.Client, ndk, _held: held })
    }
}

/// One capture of the provider.
struct Held(&'static Client);

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: captured once for each value of this type.
        unsafe { WskReleaseProviderNPI(self.0.registration.get()) };
    }
}

/// The captured provider and its functions for NDK.
struct Provider {
    client: *mut WSK_CLIENT,
    ndk: WSK_PROVIDER_NDK_DISPATCH,
    _held: Held,
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
