//! A miniport driver's entry points and the parameters that NDIS calls them with.
//!
//! Sources of IRQL and outcomes: NDIS documentation of each `Miniport…` function. An adapter is Paused after
//! initialisation, Running after restart, Paused again after pause; it is halted only while paused.

use super::buffer::{NDIS_RETURN_FLAGS, NDIS_SEND_FLAGS, NET_BUFFER_LIST};
use super::event::NET_DEVICE_PNP_EVENT;
use super::media::{NET_IFINDEX, NET_LUID};
use super::object::{NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_PORT_NUMBER};
use super::oid::NDIS_OID;
use super::request::NDIS_OID_REQUEST;
use super::status::NDIS_STATUS;
use crate::abi::{abi_fn, flags, layout, open_enum, zeroed};
use crate::nt::{BOOLEAN, DRIVER_OBJECT, PVOID, UCHAR, ULONG, USHORT};

open_enum! {
    /// Why `MiniportHaltEx` is called.
    pub enum NDIS_HALT_ACTION {
        NdisHaltDeviceDisabled = 0,
        NdisHaltDeviceInstanceDeInitialized = 1,
        NdisHaltDevicePoweredDown = 2,
        NdisHaltDeviceSurpriseRemoved = 3,
        NdisHaltDeviceFailed = 4,
        NdisHaltDeviceInitializationFailed = 5,
        NdisHaltDeviceStopped = 6,
    }
}

open_enum! {
    /// Why `MiniportShutdownEx` is called.
    pub enum NDIS_SHUTDOWN_ACTION {
        NdisShutdownPowerOff = 0,
        NdisShutdownBugCheck = 1,
    }
}

abi_fn! {
    /// `MiniportSetOptions`, PASSIVE_LEVEL, inside `NdisMRegisterMiniportDriver`: the place for
    /// `NdisSetOptionalHandlers`. A failure fails the registration.
    pub type SET_OPTIONS_HANDLER = fn(NdisDriverHandle: NDIS_HANDLE, DriverContext: NDIS_HANDLE) -> NDIS_STATUS;

    /// `MiniportInitializeEx`, PASSIVE_LEVEL. Registration attributes first, general attributes second, then the rest.
    ///
    /// - `NDIS_STATUS_SUCCESS`: the adapter is Paused.
    /// - `NDIS_STATUS_NOT_ACCEPTED`, `NDIS_STATUS_RESOURCES`, `NDIS_STATUS_FAILURE` or another error: everything is
    ///   undone; `MiniportHaltEx` is not called.
    pub type MINIPORT_INITIALIZE_HANDLER = fn(
        NdisMiniportHandle: NDIS_HANDLE,
        MiniportDriverContext: NDIS_HANDLE,
        MiniportInitParameters: *mut NDIS_MINIPORT_INIT_PARAMETERS,
    ) -> NDIS_STATUS;

    /// `MiniportHaltEx`, PASSIVE_LEVEL. Undoes `MiniportInitializeEx`; no outstanding requests or sends.
    pub type MINIPORT_HALT_HANDLER = fn(MiniportAdapterContext: NDIS_HANDLE, HaltAction: NDIS_HALT_ACTION);

    /// `MiniportDriverUnload`, PASSIVE_LEVEL. No adapters left.
    pub type MINIPORT_DRIVER_UNLOAD = fn(DriverObject: *mut DRIVER_OBJECT);

    /// `MiniportPause`, PASSIVE_LEVEL. Ends the data path: receives are back, sends are completed. Cannot fail.
    ///
    /// - `NDIS_STATUS_SUCCESS`
    /// - `NDIS_STATUS_PENDING`: `NdisMPauseComplete` follows.
    pub type MINIPORT_PAUSE_HANDLER = fn(
        MiniportAdapterContext: NDIS_HANDLE,
        PauseParameters: *mut NDIS_MINIPORT_PAUSE_PARAMETERS,
    ) -> NDIS_STATUS;

    /// `MiniportRestart`, PASSIVE_LEVEL. Starts the data path.
    ///
    /// - `NDIS_STATUS_SUCCESS`
    /// - `NDIS_STATUS_PENDING`: `NdisMRestartComplete` follows.
    /// - `NDIS_STATUS_RESOURCES`, `NDIS_STATUS_FAILURE`
    pub type MINIPORT_RESTART_HANDLER = fn(
        MiniportAdapterContext: NDIS_HANDLE,
        RestartParameters: *mut NDIS_MINIPORT_RESTART_PARAMETERS,
    ) -> NDIS_STATUS;

    /// `MiniportOidRequest`, PASSIVE_LEVEL, one at a time. NDIS does not check the contents.
    ///
    /// - `NDIS_STATUS_SUCCESS`
    /// - `NDIS_STATUS_PENDING`: `NdisMOidRequestComplete` follows.
    /// - `NDIS_STATUS_BUFFER_TOO_SHORT`: query buffer; `BytesNeeded` says the size.
    /// - `NDIS_STATUS_INVALID_LENGTH`: set buffer; `BytesNeeded` says the size.
    /// - `NDIS_STATUS_INVALID_DATA`: bad contents.
    /// - `NDIS_STATUS_NOT_SUPPORTED`: unknown object.
    /// - `NDIS_STATUS_NOT_ACCEPTED`: after surprise removal.
    pub type MINIPORT_OID_REQUEST_HANDLER = fn(
        MiniportAdapterContext: NDIS_HANDLE,
        OidRequest: *mut NDIS_OID_REQUEST,
    ) -> NDIS_STATUS;

    /// `MiniportSendNetBufferLists`, IRQL <= DISPATCH_LEVEL. Takes the chain over; every list is completed with
    /// `NdisMSendNetBufferListsComplete`, its status in the list.
    pub type MINIPORT_SEND_NET_BUFFER_LISTS_HANDLER = fn(
        MiniportAdapterContext: NDIS_HANDLE,
        NetBufferList: *mut NET_BUFFER_LIST,
        PortNumber: NDIS_PORT_NUMBER,
        SendFlags: NDIS_SEND_FLAGS,
    );

    /// `MiniportReturnNetBufferLists`, IRQL <= DISPATCH_LEVEL, on several processors at once. Gives indicated lists
    /// back.
    pub type MINIPORT_RETURN_NET_BUFFER_LISTS_HANDLER = fn(
        MiniportAdapterContext: NDIS_HANDLE,
        NetBufferLists: *mut NET_BUFFER_LIST,
        ReturnFlags: NDIS_RETURN_FLAGS,
    );

    /// `MiniportCancelSend`, IRQL <= DISPATCH_LEVEL. Queued lists with this cancel id complete with
    /// `NDIS_STATUS_SEND_ABORTED`.
    pub type MINIPORT_CANCEL_SEND_HANDLER = fn(MiniportAdapterContext: NDIS_HANDLE, CancelId: PVOID);

    /// `MiniportCheckForHangEx`, PASSIVE_LEVEL. TRUE requests a reset.
    pub type MINIPORT_CHECK_FOR_HANG_HANDLER = fn(MiniportAdapterContext: NDIS_HANDLE) -> BOOLEAN;

    /// `MiniportResetEx`, IRQL <= DISPATCH_LEVEL.
    ///
    /// - `NDIS_STATUS_SUCCESS`
    /// - `NDIS_STATUS_PENDING`: `NdisMResetComplete` follows.
    /// - `NDIS_STATUS_RESET_IN_PROGRESS`, `NDIS_STATUS_SOFT_ERRORS`, `NDIS_STATUS_HARD_ERRORS`
    pub type MINIPORT_RESET_HANDLER = fn(
        MiniportAdapterContext: NDIS_HANDLE,
        AddressingReset: *mut BOOLEAN,
    ) -> NDIS_STATUS;

    /// `MiniportDevicePnPEventNotify`, PASSIVE_LEVEL.
    pub type MINIPORT_DEVICE_PNP_EVENT_NOTIFY_HANDLER = fn(
        MiniportAdapterContext: NDIS_HANDLE,
        NetDevicePnPEvent: *mut NET_DEVICE_PNP_EVENT,
    );

    /// `MiniportShutdownEx`, PASSIVE_LEVEL at power-off, HIGH_LEVEL at a bugcheck (only with
    /// `NDIS_MINIPORT_ATTRIBUTES_REGISTER_BUGCHECK_CALLBACK`).
    pub type MINIPORT_SHUTDOWN_HANDLER = fn(
        MiniportAdapterContext: NDIS_HANDLE,
        ShutdownAction: NDIS_SHUTDOWN_ACTION,
    );

    /// `MiniportCancelOidRequest`, IRQL <= DISPATCH_LEVEL. A pending request with this id completes soon with
    /// `NDIS_STATUS_REQUEST_ABORTED`.
    pub type MINIPORT_CANCEL_OID_REQUEST_HANDLER = fn(MiniportAdapterContext: NDIS_HANDLE, RequestId: PVOID);

    /// `MiniportDirectOidRequest`, IRQL <= DISPATCH_LEVEL, not serialised. Statuses as the plain handler;
    /// `NDIS_STATUS_PENDING` is followed by `NdisMDirectOidRequestComplete`. An NDK miniport must have it.
    pub type MINIPORT_DIRECT_OID_REQUEST_HANDLER = fn(
        MiniportAdapterContext: NDIS_HANDLE,
        OidRequest: *mut NDIS_OID_REQUEST,
    ) -> NDIS_STATUS;

    /// `MiniportCancelDirectOidRequest`, IRQL <= DISPATCH_LEVEL.
    pub type MINIPORT_CANCEL_DIRECT_OID_REQUEST_HANDLER = fn(MiniportAdapterContext: NDIS_HANDLE, RequestId: PVOID);
}

flags! {
    /// `Flags` of the driver characteristics. A virtual miniport has none.
    pub struct NDIS_MINIPORT_DRIVER_FLAGS: ULONG {
        INTERMEDIATE_DRIVER / NDIS_INTERMEDIATE_DRIVER = 0x0000_0001;
        /// The lower edge is WDM (USB, for example).
        WDM_DRIVER / NDIS_WDM_DRIVER = 0x0000_0002;
    }
}

/// Argument of `NdisMRegisterMiniportDriver`, revision 2 (6.30 to 6.70 contracts). Every handler is mandatory unless it
/// says otherwise.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_MINIPORT_DRIVER_CHARACTERISTICS {
    pub Header: NDIS_OBJECT_HEADER,
    pub MajorNdisVersion: UCHAR,
    pub MinorNdisVersion: UCHAR,
    pub MajorDriverVersion: UCHAR,
    pub MinorDriverVersion: UCHAR,
    pub Flags: NDIS_MINIPORT_DRIVER_FLAGS,
    pub SetOptionsHandler: Option<SET_OPTIONS_HANDLER>,
    pub InitializeHandlerEx: Option<MINIPORT_INITIALIZE_HANDLER>,
    pub HaltHandlerEx: Option<MINIPORT_HALT_HANDLER>,
    pub UnloadHandler: Option<MINIPORT_DRIVER_UNLOAD>,
    pub PauseHandler: Option<MINIPORT_PAUSE_HANDLER>,
    pub RestartHandler: Option<MINIPORT_RESTART_HANDLER>,
    pub OidRequestHandler: Option<MINIPORT_OID_REQUEST_HANDLER>,
    pub SendNetBufferListsHandler: Option<MINIPORT_SEND_NET_BUFFER_LISTS_HANDLER>,
    pub ReturnNetBufferListsHandler: Option<MINIPORT_RETURN_NET_BUFFER_LISTS_HANDLER>,
    pub CancelSendHandler: Option<MINIPORT_CANCEL_SEND_HANDLER>,
    /// Optional.
    pub CheckForHangHandlerEx: Option<MINIPORT_CHECK_FOR_HANG_HANDLER>,
    /// Optional.
    pub ResetHandlerEx: Option<MINIPORT_RESET_HANDLER>,
    pub DevicePnPEventNotifyHandler: Option<MINIPORT_DEVICE_PNP_EVENT_NOTIFY_HANDLER>,
    pub ShutdownHandlerEx: Option<MINIPORT_SHUTDOWN_HANDLER>,
    pub CancelOidRequestHandler: Option<MINIPORT_CANCEL_OID_REQUEST_HANDLER>,
    /// Revision 2.
    pub DirectOidRequestHandler: Option<MINIPORT_DIRECT_OID_REQUEST_HANDLER>,
    /// Revision 2.
    pub CancelDirectOidRequestHandler: Option<MINIPORT_CANCEL_DIRECT_OID_REQUEST_HANDLER>,
}
layout!(NDIS_MINIPORT_DRIVER_CHARACTERISTICS, size 152, align 8, {
    Header: 0, MajorNdisVersion: 4, MinorNdisVersion: 5, MajorDriverVersion: 6, MinorDriverVersion: 7, Flags: 8,
    SetOptionsHandler: 16, InitializeHandlerEx: 24, HaltHandlerEx: 32, UnloadHandler: 40, PauseHandler: 48,
    RestartHandler: 56, OidRequestHandler: 64, SendNetBufferListsHandler: 72, ReturnNetBufferListsHandler: 80,
    CancelSendHandler: 88, CheckForHangHandlerEx: 96, ResetHandlerEx: 104, DevicePnPEventNotifyHandler: 112,
    ShutdownHandlerEx: 120, CancelOidRequestHandler: 128, DirectOidRequestHandler: 136,
    CancelDirectOidRequestHandler: 144,
});
pub const NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_1: UCHAR = 1;
pub const NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_2: UCHAR = 2;
pub const NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_1: USHORT = 0x88;
pub const NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_2: USHORT = 0x98;

/// What `NdisSetOptionalHandlers` takes: any characteristics, distinguished by their header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_DRIVER_OPTIONAL_HANDLERS {
    pub Header: NDIS_OBJECT_HEADER,
}
layout!(NDIS_DRIVER_OPTIONAL_HANDLERS, size 4, align 2, { Header: 0 });

/// Argument of `MiniportInitializeEx`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_MINIPORT_INIT_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    /// NULL for a virtual adapter.
    pub AllocatedResources: PVOID,
    pub IMDeviceInstanceContext: NDIS_HANDLE,
    pub MiniportAddDeviceContext: NDIS_HANDLE,
    /// Names the adapter to user mode and to WSK.
    pub IfIndex: NET_IFINDEX,
    /// Names the adapter in address tables.
    pub NetLuid: NET_LUID,
    pub DefaultPortAuthStates: PVOID,
    pub PciDeviceCustomProperties: PVOID,
}
layout!(NDIS_MINIPORT_INIT_PARAMETERS, size 64, align 8, {
    Header: 0, Flags: 4, AllocatedResources: 8, IMDeviceInstanceContext: 16, MiniportAddDeviceContext: 24, IfIndex: 32,
    NetLuid: 40, DefaultPortAuthStates: 48, PciDeviceCustomProperties: 56,
});
pub const NDIS_MINIPORT_INIT_PARAMETERS_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_MINIPORT_INIT_PARAMETER_REVISION_1: USHORT = 0x40;

/// Argument of `MiniportPause`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_MINIPORT_PAUSE_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub PauseReason: ULONG,
}
layout!(NDIS_MINIPORT_PAUSE_PARAMETERS, size 12, align 4, { Header: 0, Flags: 4, PauseReason: 8 });
pub const NDIS_MINIPORT_PAUSE_PARAMETERS_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_MINIPORT_PAUSE_PARAMETERS_REVISION_1: USHORT = 0xC;

/// Argument of `MiniportRestart`. `Size` is 0x14, less than the type.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_MINIPORT_RESTART_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    /// May be NULL.
    pub RestartAttributes: *mut NDIS_RESTART_ATTRIBUTES,
    pub Flags: ULONG,
}
layout!(NDIS_MINIPORT_RESTART_PARAMETERS, size 24, align 8, { Header: 0, RestartAttributes: 8, Flags: 16 });
pub const NDIS_MINIPORT_RESTART_PARAMETERS_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_MINIPORT_RESTART_PARAMETERS_REVISION_1: USHORT = 0x14;

/// One entry of a list of attributes that lower layers changed; data goes on behind the declared byte.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_RESTART_ATTRIBUTES {
    pub Next: *mut NDIS_RESTART_ATTRIBUTES,
    pub Oid: NDIS_OID,
    pub DataLength: ULONG,
    pub Data: [UCHAR; 1],
}
layout!(NDIS_RESTART_ATTRIBUTES, size 32, align 16, { Next: 0, Oid: 8, DataLength: 12, Data: 16 });

zeroed!(
    NDIS_MINIPORT_DRIVER_CHARACTERISTICS,
    NDIS_MINIPORT_INIT_PARAMETERS,
    NDIS_MINIPORT_PAUSE_PARAMETERS,
    NDIS_MINIPORT_RESTART_PARAMETERS,
);
