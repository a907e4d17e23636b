//! `wsk.h`, as far as a kernel consumer needs it to reach an NDK adapter: registration, the provider's dispatch table
//! and the client control function. Sockets and address resolution are not bound; their slots are untyped pointers.

use crate::abi::{abi_fn, layout, opaque, zeroed};
use crate::nt::{KSPIN_LOCK, NTSTATUS, PIRP, PVOID, SIZE_T, ULONG, ULONGLONG, USHORT};

opaque! {
    /// What the provider gives a registered client.
    pub struct WSK_CLIENT;
}

abi_fn! {
    /// Events of the client itself; may be absent. IRQL <= DISPATCH_LEVEL.
    pub type PFN_WSK_CLIENT_EVENT = fn(
        ClientContext: PVOID,
        EventType: ULONG,
        Information: PVOID,
        InformationLength: SIZE_T,
    ) -> NTSTATUS;

    /// Control operation that needs no socket. With a NULL IRP it runs inline.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_INVALID_PARAMETER`: the output buffer is not as long as the answer.
    /// - `STATUS_NOT_SUPPORTED`: unknown control code.
    pub type PFN_WSK_CONTROL_CLIENT = fn(
        Client: *mut WSK_CLIENT,
        ControlCode: ULONG,
        InputSize: SIZE_T,
        InputBuffer: PVOID,
        OutputSize: SIZE_T,
        OutputBuffer: PVOID,
        OutputSizeReturned: *mut SIZE_T,
        Irp: PIRP,
    ) -> NTSTATUS;
}

/// Version 1.0 as the structures write it (`MAKE_WSK_VERSION(1, 0)`).
pub const WSK_VERSION_1_0: USHORT = MAKE_WSK_VERSION(1, 0);
/// `WskCaptureProviderNPI`: do not wait for the provider.
pub const WSK_NO_WAIT: ULONG = 0;
/// `WskCaptureProviderNPI`: wait for ever.
pub const WSK_INFINITE_WAIT: ULONG = 0xFFFF_FFFF;

/// A version number: major in the high byte.
#[must_use]
pub const fn MAKE_WSK_VERSION(Major: u8, Minor: u8) -> USHORT {
    (Major as USHORT) << 8 | Minor as USHORT
}

/// The client's half of the registration. Must outlive it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WSK_CLIENT_DISPATCH {
    pub Version: USHORT,
    pub Reserved: USHORT,
    pub WskClientEvent: Option<PFN_WSK_CLIENT_EVENT>,
}
layout!(WSK_CLIENT_DISPATCH, size 16, align 8, { Version: 0, Reserved: 2, WskClientEvent: 8 });

/// Client and its context, input of `WskRegister`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WSK_CLIENT_NPI {
    pub ClientContext: PVOID,
    pub Dispatch: *const WSK_CLIENT_DISPATCH,
}
layout!(WSK_CLIENT_NPI, size 16, align 8, { ClientContext: 0, Dispatch: 8 });

/// State of a registration, the client's storage, the provider's contents.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WSK_REGISTRATION {
    pub ReservedRegistrationState: ULONGLONG,
    pub ReservedRegistrationContext: PVOID,
    pub ReservedRegistrationLock: KSPIN_LOCK,
}
layout!(WSK_REGISTRATION, size 24, align 8, {
    ReservedRegistrationState: 0, ReservedRegistrationContext: 8, ReservedRegistrationLock: 16,
});

/// Functions of the provider. The untyped slots are functions of sockets and names.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WSK_PROVIDER_DISPATCH {
    pub Version: USHORT,
    pub Reserved: USHORT,
    pub WskSocket: PVOID,
    pub WskSocketConnect: PVOID,
    pub WskControlClient: PFN_WSK_CONTROL_CLIENT,
    pub WskGetAddressInfo: PVOID,
    pub WskFreeAddressInfo: PVOID,
    pub WskGetNameInfo: PVOID,
}
layout!(WSK_PROVIDER_DISPATCH, size 56, align 8, {
    Version: 0, Reserved: 2, WskSocket: 8, WskSocketConnect: 16, WskControlClient: 24, WskGetAddressInfo: 32,
    WskFreeAddressInfo: 40, WskGetNameInfo: 48,
});

/// The provider, output of `WskCaptureProviderNPI`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WSK_PROVIDER_NPI {
    pub Client: *mut WSK_CLIENT,
    pub Dispatch: *const WSK_PROVIDER_DISPATCH,
}
layout!(WSK_PROVIDER_NPI, size 16, align 8, { Client: 0, Dispatch: 8 });

/// Versions that the provider speaks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WSK_PROVIDER_CHARACTERISTICS {
    pub HighestVersion: USHORT,
    pub LowestVersion: USHORT,
}
layout!(WSK_PROVIDER_CHARACTERISTICS, size 4, align 2, { HighestVersion: 0, LowestVersion: 2 });

zeroed!(WSK_CLIENT_NPI, WSK_REGISTRATION, WSK_PROVIDER_NPI, WSK_PROVIDER_CHARACTERISTICS);

#[cfg(target_os = "windows")]
#[link(name = "netio.sys", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "C" {
    /// Registers a client. PASSIVE_LEVEL.
    pub fn WskRegister(WskClientNpi: *mut WSK_CLIENT_NPI, WskRegistration: *mut WSK_REGISTRATION) -> NTSTATUS;

    /// Ends the registration; waits for captured providers and for open sockets and NDK adapters. PASSIVE_LEVEL.
    pub fn WskDeregister(WskRegistration: *mut WSK_REGISTRATION);

    /// Waits for the provider and takes hold of it: `STATUS_SUCCESS`, `STATUS_NOINTERFACE`, `STATUS_DEVICE_NOT_READY`.
    /// PASSIVE_LEVEL unless it does not wait.
    pub fn WskCaptureProviderNPI(
        WskRegistration: *mut WSK_REGISTRATION,
        WaitTimeout: ULONG,
        WskProviderNpi: *mut WSK_PROVIDER_NPI,
    ) -> NTSTATUS;

    /// Lets the provider go. IRQL <= DISPATCH_LEVEL.
    pub fn WskReleaseProviderNPI(WskRegistration: *mut WSK_REGISTRATION);

    /// Versions of the provider. PASSIVE_LEVEL.
    pub fn WskQueryProviderCharacteristics(
        WskRegistration: *mut WSK_REGISTRATION,
        WskProviderCharacteristics: *mut WSK_PROVIDER_CHARACTERISTICS,
    ) -> NTSTATUS;
}
