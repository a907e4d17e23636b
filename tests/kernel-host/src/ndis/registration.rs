//! Registering a miniport driver: its characteristics, `MiniportSetOptions`, the handlers of an NDK provider, and what NDIS does
//! with the driver object. Keeps the order DriverEntry → register → SetOptions → (adapters) → unload → deregister.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use ndkpi_sys::ndis::{NDIS_MINIPORT_DRIVER_CHARACTERISTICS, NDIS_OBJECT_HEADER};
use ndkpi_sys::ndisndk::NDIS_NDK_PROVIDER_CHARACTERISTICS;

use super::attributes::{ExpectedHeader, check_header};
use super::rule::{Group, broken, live};
use super::{NdisStatus, ndis, status};
use crate::call_image;
use crate::callout::{Context, ContextKind};
use crate::nt::DRIVER_OBJECT;
use crate::thread::Thread;

/// Every minor version of NDIS 6 (NDIS: Specifying an NDIS version number).
const MINORS: &[u8] = &[0, 1, 20, 30, 40, 50, 51, 60, 70, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89];

/// The minor version of NDIS that comes with the Windows build that the kernel plays; a miniport may ask for an older contract.
fn running_minor() -> u8 {
    match crate::kernel::build_number() {
        ..19_041 => 82,
        19_041..20_348 => 84,
        20_348..22_000 => 85,
        22_000..22_621 => 86,
        22_621..25_398 => 87,
        25_398..26_100 => 88,
        26_100.. => 89,
    }
}

/// Optional handlers that NDIS has and this host does not model: PnP, connection-oriented, switch, idle notification.
const OTHER_OPTIONAL_HANDLERS: &[u8] = &[0x90, 0x91, 0x92, 0xA5, 0xA6, 0xB0, 0xB4, 0xB8];

/// Where a registered driver stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum RegistrationPhase {
    /// Inside `NdisMRegisterMiniportDriver`, which calls `MiniportSetOptions`.
    SettingOptions,
    Registered,
    Deregistered,
}

/// The addresses of a miniport's entry points, copied out of its characteristics.
#[derive(Debug, Clone, Copy)]
pub struct Handlers {
    pub initialize: usize,
    pub halt: usize,
    pub unload: usize,
    pub pause: usize,
    pub restart: usize,
    pub oid_request: usize,
    pub send: usize,
    pub return_lists: usize,
    pub cancel_send: usize,
    pub device_pnp_event: usize,
    pub shutdown: usize,
    pub cancel_oid_request: usize,
    pub direct_oid_request: usize,
    pub cancel_direct_oid_request: usize,
}

/// The two handlers of an NDK provider.
#[derive(Debug, Clone, Copy)]
pub struct NdkHandlers {
    pub open: usize,
    pub close: usize,
}

/// A registered miniport driver.
pub struct MiniportDriver {
    pub handle: usize,
    pub driver_object: usize,
    pub context: usize,
    /// The contract's minor version, e.g. 60.
    pub minor: u8,
    pub handlers: Handlers,
    ndk: OnceLock<NdkHandlers>,
    phase: AtomicU8,
}

impl MiniportDriver {
    #[must_use]
    pub fn ndk(&self) -> Option<NdkHandlers> {
        self.ndk.get().copied()
    }

    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.phase.load(Ordering::SeqCst) == RegistrationPhase::Registered as u8
    }
}

/// The registered miniport driver of a driver object.
#[must_use]
pub fn driver_of(driver_object: usize) -> Option<Arc<MiniportDriver>> {
    ndis().drivers.all().into_iter().find(|driver| driver.driver_object == driver_object)
}

crate::exports! {
    module "ndis.sys";

    /// Registers the driver and calls its SetOptions handler; NDIS takes over the driver object.
    /// Checks: called inside DriverEntry, once a driver; object header and version, mandatory handlers, OID handler pairs
    /// (BAD_CHARACTERISTICS and BAD_VERSION are returned, as by NDIS).
    /// Source: NDIS: NdisMRegisterMiniportDriver, NDIS_MINIPORT_DRIVER_CHARACTERISTICS
    [PASSIVE_ONLY] fn NdisMRegisterMiniportDriver(
        driver_object: *mut DRIVER_OBJECT,
        registry_path: *mut c_void,
        context: *mut c_void,
        characteristics: *const NDIS_MINIPORT_DRIVER_CHARACTERISTICS,
        handle: *mut *mut c_void,
    ) -> NdisStatus {
        if !Thread::current().is_inside(ContextKind::DriverEntry) {
            broken(Group::Registration, 0, "NdisMRegisterMiniportDriver is called outside DriverEntry");
        }
        if driver_object.is_null() || registry_path.is_null() || characteristics.is_null() || handle.is_null() {
            broken(Group::Registration, 0, "NdisMRegisterMiniportDriver: a required pointer is NULL");
        }
        if driver_of(driver_object as usize).is_some() {
            broken(Group::Registration, driver_object as usize, "NdisMRegisterMiniportDriver is called twice for one driver");
        }
        // SAFETY: not null; the driver's structure by contract.
        let characteristics = unsafe { characteristics.read_unaligned() };
        match check_characteristics(&characteristics) {
            Ok(()) => {}
            Err((status, rule)) => {
                super::log::record(format!("NdisMRegisterMiniportDriver fails: {rule}"));
                return status;
            }
        }
        let driver = ndis().drivers.insert_with(|number| MiniportDriver {
            handle: number,
            driver_object: driver_object as usize,
            context: context as usize,
            minor: characteristics.MinorNdisVersion,
            handlers: handlers_of(&characteristics),
            ndk: OnceLock::new(),
            phase: AtomicU8::new(RegistrationPhase::SettingOptions as u8),
        });
        // SAFETY: the caller's out parameter; it is valid in SetOptions already.
        unsafe { handle.write(driver.handle as *mut c_void) };
        let set_options = address(characteristics.SetOptionsHandler);
        if set_options != 0 {
            let answer = call_set_options(set_options, &driver);
            if answer != status::SUCCESS {
                let _ = ndis().drivers.remove(driver.handle as *mut c_void);
                return answer;
            }
        }
        if driver.ndk().is_some() && driver.handlers.direct_oid_request == 0 {
            let rule = "an NDK provider without direct OID handlers: OID_NDK_STATISTICS arrives on the direct path";
            broken(Group::Registration, driver.handle, rule);
        }
        driver.phase.store(RegistrationPhase::Registered as u8, Ordering::SeqCst);
        super::driver_object::take_over(driver_object, &driver);
        status::SUCCESS
    }

    /// Ends the registration.
    /// Checks: a live driver handle, no adapter left, called from the unload handler or a failing DriverEntry.
    /// Source: NDIS: NdisMDeregisterMiniportDriver
    [PASSIVE_ONLY] fn NdisMDeregisterMiniportDriver(handle: *mut c_void) {
        let driver = live(ndis().drivers.get(handle), "NdisMDeregisterMiniportDriver", "miniport driver", handle);
        let thread = Thread::current();
        if !thread.is_inside(ContextKind::DriverUnload) && !thread.is_inside(ContextKind::DriverEntry) {
            broken(Group::Registration, driver.handle, "NdisMDeregisterMiniportDriver is called outside DriverEntry and the unload handler");
        }
        super::leak::check_driver(&driver);
        driver.phase.store(RegistrationPhase::Deregistered as u8, Ordering::SeqCst);
        let _ = ndis().drivers.remove(handle);
    }

    /// Adds optional handlers; this host knows those of an NDK provider and answers NOT_SUPPORTED to others.
    /// Checks: called inside SetOptions, object header, Flags 0, both handlers given, given once.
    /// Source: NDIS: NdisSetOptionalHandlers; NDKPI: NDIS_NDK_PROVIDER_CHARACTERISTICS
    [PASSIVE_ONLY] fn NdisSetOptionalHandlers(handle: *mut c_void, handlers: *const NDIS_OBJECT_HEADER) -> NdisStatus {
        const NDK_PROVIDER_CHARACTERISTICS: u8 = 0xB2;
        let driver = live(ndis().drivers.get(handle), "NdisSetOptionalHandlers", "miniport driver", handle);
        if driver.phase.load(Ordering::SeqCst) != RegistrationPhase::SettingOptions as u8 {
            broken(Group::Registration, driver.handle, "NdisSetOptionalHandlers is called outside MiniportSetOptions");
        }
        if handlers.is_null() {
            broken(Group::Registration, driver.handle, "NdisSetOptionalHandlers: OptionalHandlers is NULL");
        }
        // SAFETY: not null; every optional handler structure starts with this header.
        let header = unsafe { handlers.read_unaligned() };
        if header.Type != NDK_PROVIDER_CHARACTERISTICS {
            if !OTHER_OPTIONAL_HANDLERS.contains(&header.Type) {
                let rule = format!("NdisSetOptionalHandlers: {:#x} is no type of optional handlers", header.Type);
                broken(Group::Registration, driver.handle, rule);
            }
            return status::NOT_SUPPORTED;
        }
        // SAFETY: the type says that the structure is this one.
        let provider = unsafe { handlers.cast::<NDIS_NDK_PROVIDER_CHARACTERISTICS>().read_unaligned() };
        match check_ndk_provider(&provider) {
            Ok(found) => {
                if driver.ndk.set(found).is_err() {
                    broken(Group::Registration, driver.handle, "NdisSetOptionalHandlers is called twice with NDK provider characteristics");
                }
                status::SUCCESS
            }
            Err(rule) => broken(Group::Registration, driver.handle, rule),
        }
    }

    /// The version of the running NDIS, by the Windows build: 6.84 is 19041, 6.85 is 20348, 6.89 is 26100.
    /// Source: NDIS: NdisGetVersion
    [ANY] fn NdisGetVersion() -> u32 {
        (6 << 16) | u32::from(running_minor())
    }
}

fn call_set_options(target: usize, driver: &MiniportDriver) -> NdisStatus {
    let context = Context::new(ContextKind::MiniportEntry, "MiniportSetOptions");
    // SAFETY: the handler that the driver registered for these arguments.
    unsafe { call_image!(context, target => i32; driver.handle, driver.context) }
}

/// The address in an optional function pointer, 0 for NULL.
fn address<F: Copy>(handler: Option<F>) -> usize {
    const { assert!(size_of::<Option<F>>() == size_of::<usize>(), "a handler is a nullable function pointer") };
    // SAFETY: a nullable function pointer is an address, 0 when absent; the assertion above holds the size.
    unsafe { std::mem::transmute_copy(&handler) }
}

fn handlers_of(from: &NDIS_MINIPORT_DRIVER_CHARACTERISTICS) -> Handlers {
    Handlers {
        initialize: address(from.InitializeHandlerEx),
        halt: address(from.HaltHandlerEx),
        unload: address(from.UnloadHandler),
        pause: address(from.PauseHandler),
        restart: address(from.RestartHandler),
        oid_request: address(from.OidRequestHandler),
        send: address(from.SendNetBufferListsHandler),
        return_lists: address(from.ReturnNetBufferListsHandler),
        cancel_send: address(from.CancelSendHandler),
        device_pnp_event: address(from.DevicePnPEventNotifyHandler),
        shutdown: address(from.ShutdownHandlerEx),
        cancel_oid_request: address(from.CancelOidRequestHandler),
        direct_oid_request: address(from.DirectOidRequestHandler),
        cancel_direct_oid_request: address(from.CancelDirectOidRequestHandler),
    }
}

fn check_characteristics(from: &NDIS_MINIPORT_DRIVER_CHARACTERISTICS) -> Result<(), (NdisStatus, String)> {
    const NAME: &str = "NDIS_MINIPORT_DRIVER_CHARACTERISTICS";
    /// `NDIS_INTERMEDIATE_DRIVER` and `NDIS_WDM_DRIVER` and those above that concern other driver models.
    const KNOWN_FLAGS: u32 = 0x7F;
    let bad = |rule: String| Err((status::BAD_CHARACTERISTICS, rule));
    if from.Header.Type != 0x8A {
        return bad(format!("{NAME}: Header.Type is {:#x}, must be 0x8a", from.Header.Type));
    }
    let newest = running_minor();
    if from.MajorNdisVersion != 6 || from.MinorNdisVersion > newest || !MINORS.contains(&from.MinorNdisVersion) {
        let (major, minor) = (from.MajorNdisVersion, from.MinorNdisVersion);
        let text = format!("{NAME}: NDIS {major}.{minor} is no version that NDIS 6.{newest} accepts");
        return Err((status::BAD_VERSION, text));
    }
    let latest = if from.MinorNdisVersion >= 80 { 3 } else { 2 };
    if from.Header.Revision > latest {
        return bad(format!("{NAME}: NDIS 6.{} has no revision {}", from.MinorNdisVersion, from.Header.Revision));
    }
    let (revision, size) = match (from.MinorNdisVersion, from.Header.Revision) {
        (0..20, _) => (1, 0x88),
        (80.., 3..) => (3, 0xA0),
        _ => (2, 0x98),
    };
    let expected = ExpectedHeader { structure: NAME, object_type: 0x8A, revision, size, size_of: size };
    if let Err(rule) = check_header(from.Header, expected) {
        return bad(rule);
    }
    if from.Flags.bits() & !KNOWN_FLAGS != 0 {
        return bad(format!("{NAME}: Flags {:#x} has unknown bits", from.Flags.bits()));
    }
    let handlers = handlers_of(from);
    let mandatory = [
        ("InitializeHandlerEx", handlers.initialize),
        ("HaltHandlerEx", handlers.halt),
        ("UnloadHandler", handlers.unload),
        ("PauseHandler", handlers.pause),
        ("RestartHandler", handlers.restart),
        ("OidRequestHandler", handlers.oid_request),
        ("SendNetBufferListsHandler", handlers.send),
        ("ReturnNetBufferListsHandler", handlers.return_lists),
        ("CancelSendHandler", handlers.cancel_send),
        ("DevicePnPEventNotifyHandler", handlers.device_pnp_event),
        ("ShutdownHandlerEx", handlers.shutdown),
        ("CancelOidRequestHandler", handlers.cancel_oid_request),
    ];
    if let Some((name, _)) = mandatory.iter().find(|(_, address)| *address == 0) {
        return bad(format!("{NAME}: the mandatory {name} is NULL"));
    }
    if (handlers.direct_oid_request == 0) != (handlers.cancel_direct_oid_request == 0) {
        return bad(format!("{NAME}: the direct OID handler and its cancel handler come both or not at all"));
    }
    if from.CheckForHangHandlerEx.is_some() != from.ResetHandlerEx.is_some() {
        return bad(format!("{NAME}: CheckForHangHandlerEx and ResetHandlerEx come both or not at all"));
    }
    Ok(())
}

fn check_ndk_provider(from: &NDIS_NDK_PROVIDER_CHARACTERISTICS) -> Result<NdkHandlers, String> {
    const NAME: &str = "NDIS_NDK_PROVIDER_CHARACTERISTICS";
    let expected = ExpectedHeader { structure: NAME, object_type: 0xB2, revision: 1, size: 0x18, size_of: 0x18 };
    check_header(from.Header, expected)?;
    if from.Flags != 0 {
        return Err(format!("{NAME}: Flags are reserved and must be 0"));
    }
    let handlers =
        NdkHandlers { open: address(from.OpenNDKAdapterHandler), close: address(from.CloseNDKAdapterHandler) };
    if handlers.open == 0 || handlers.close == 0 {
        return Err(format!("{NAME}: OpenNDKAdapterHandler or CloseNDKAdapterHandler is NULL"));
    }
    Ok(handlers)
}
