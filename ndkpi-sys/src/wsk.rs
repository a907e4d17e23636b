//! `wsk.h`, as far as a kernel consumer needs it to reach an NDK adapter, and a driver its peers: registration, the provider's
//! dispatch table, the client control function, listening sockets, connections and datagram sockets.
//! Event callbacks, control information and address resolution are not bound; their slots are untyped pointers.
//!
//! Every function of a socket takes a packet of the caller's with one stack location at least and a completion routine that is
//! called in any case; what the function returns is advisory.

use crate::abi::{abi_fn, layout, opaque, zeroed};
use crate::nt::{
    ADDRESS_FAMILY, KSPIN_LOCK, NTSTATUS, PEPROCESS, PETHREAD, PIRP, PMDL, PSECURITY_DESCRIPTOR, PSOCKADDR, PVOID,
    SIZE_T, ULONG, ULONGLONG, USHORT,
};

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

    /// Makes a socket; the packet's `Information` is its address then. IRQL <= DISPATCH_LEVEL.
    pub type PFN_WSK_SOCKET = fn(
        Client: *mut WSK_CLIENT,
        AddressFamily: ADDRESS_FAMILY,
        SocketType: USHORT,
        Protocol: ULONG,
        Flags: ULONG,
        SocketContext: PVOID,
        Dispatch: *const core::ffi::c_void,
        OwningProcess: PEPROCESS,
        OwningThread: PETHREAD,
        SecurityDescriptor: PSECURITY_DESCRIPTOR,
        Irp: PIRP,
    ) -> NTSTATUS;

    /// Sets or gets an option of a socket. IRQL <= DISPATCH_LEVEL but for address lists.
    pub type PFN_WSK_CONTROL_SOCKET = fn(
        Socket: *mut WSK_SOCKET,
        RequestType: ULONG,
        ControlCode: ULONG,
        Level: ULONG,
        InputSize: SIZE_T,
        InputBuffer: PVOID,
        OutputSize: SIZE_T,
        OutputBuffer: PVOID,
        OutputSizeReturned: *mut SIZE_T,
        Irp: PIRP,
    ) -> NTSTATUS;

    /// Closes a socket: completes its packets, waits for its callbacks, and breaks a connection that has not ended both ways.
    /// No other call of the socket may be executing, and none comes after. IRQL <= DISPATCH_LEVEL.
    pub type PFN_WSK_CLOSE_SOCKET = fn(Socket: *mut WSK_SOCKET, Irp: PIRP) -> NTSTATUS;

    /// Binds a socket to an address; port 0 picks one; a listening socket listens from then on. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_ADDRESS_ALREADY_EXISTS`: the address and port are in use.
    pub type PFN_WSK_BIND =
        fn(Socket: *mut WSK_SOCKET, LocalAddress: PSOCKADDR, Flags: ULONG, Irp: PIRP) -> NTSTATUS;

    /// Connects a bound socket. IRQL <= DISPATCH_LEVEL.
    pub type PFN_WSK_CONNECT =
        fn(Socket: *mut WSK_SOCKET, RemoteAddress: PSOCKADDR, Flags: ULONG, Irp: PIRP) -> NTSTATUS;

    /// The local or the remote address of a socket. IRQL <= DISPATCH_LEVEL.
    pub type PFN_WSK_GET_ADDRESS = fn(Socket: *mut WSK_SOCKET, Address: PSOCKADDR, Irp: PIRP) -> NTSTATUS;

    /// Sends a buffer, which stays the provider's until completion: when all of it has been sent. Completes in order; the caller
    /// serialises its calls. IRQL <= DISPATCH_LEVEL.
    pub type PFN_WSK_SEND = fn(Socket: *mut WSK_SOCKET, Buffer: *mut WSK_BUF, Flags: ULONG, Irp: PIRP) -> NTSTATUS;

    /// Receives into a buffer, which stays the provider's until completion: when some bytes have come. `Information` says how
    /// many; 0 is the end that the peer has sent. IRQL <= DISPATCH_LEVEL.
    pub type PFN_WSK_RECEIVE = fn(Socket: *mut WSK_SOCKET, Buffer: *mut WSK_BUF, Flags: ULONG, Irp: PIRP) -> NTSTATUS;

    /// Sends the end behind what has been sent, or breaks the connection. IRQL <= DISPATCH_LEVEL.
    pub type PFN_WSK_DISCONNECT =
        fn(Socket: *mut WSK_SOCKET, Buffer: *mut WSK_BUF, Flags: ULONG, Irp: PIRP) -> NTSTATUS;

    /// Waits for a connection that has come to a listening socket without an event callback; `Information` is its socket then.
    /// The addresses are written at completion. IRQL <= DISPATCH_LEVEL.
    pub type PFN_WSK_ACCEPT = fn(
        ListenSocket: *mut WSK_SOCKET,
        Flags: ULONG,
        AcceptSocketContext: PVOID,
        AcceptSocketDispatch: *const core::ffi::c_void,
        LocalAddress: PSOCKADDR,
        RemoteAddress: PSOCKADDR,
        Irp: PIRP,
    ) -> NTSTATUS;

    /// Sends a buffer as one datagram; the buffer stays the provider's until completion. The address may be NULL only where the
    /// socket has a fixed one. The socket is bound. IRQL <= DISPATCH_LEVEL.
    pub type PFN_WSK_SEND_TO = fn(
        Socket: *mut WSK_SOCKET,
        Buffer: *mut WSK_BUF,
        Flags: ULONG,
        RemoteAddress: PSOCKADDR,
        ControlInfoLength: ULONG,
        ControlInfo: PVOID,
        Irp: PIRP,
    ) -> NTSTATUS;

    /// Receives one datagram; everything that is named stays the provider's until completion and is non-paged. `Information` says
    /// how many bytes came, and `ControlFlags` whether some did not fit (`MSG_TRUNC`). The socket is bound. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_BUFFER_OVERFLOW`: the datagram is longer than the buffer, which has its first bytes.
    /// - `STATUS_PORT_UNREACHABLE`: the destination of an earlier datagram has no socket at that port.
    pub type PFN_WSK_RECEIVE_FROM = fn(
        Socket: *mut WSK_SOCKET,
        Buffer: *mut WSK_BUF,
        Flags: ULONG,
        RemoteAddress: PSOCKADDR,
        ControlInfoLength: *mut ULONG,
        ControlInfo: PVOID,
        ControlFlags: *mut ULONG,
        Irp: PIRP,
    ) -> NTSTATUS;
}

/// Kinds of sockets.
pub const WSK_FLAG_BASIC_SOCKET: ULONG = 0;
pub const WSK_FLAG_LISTEN_SOCKET: ULONG = 1;
pub const WSK_FLAG_CONNECTION_SOCKET: ULONG = 2;
pub const WSK_FLAG_DATAGRAM_SOCKET: ULONG = 4;
/// `WskSend`: nothing waits for more to be sent with it.
pub const WSK_FLAG_NODELAY: ULONG = 2;
/// `WskDisconnect`: break the connection.
pub const WSK_FLAG_ABORTIVE: ULONG = 1;
pub const SOCK_STREAM: USHORT = 1;
pub const SOCK_DGRAM: USHORT = 2;
pub const IPPROTO_TCP: ULONG = 6;
pub const IPPROTO_UDP: ULONG = 17;
/// `ControlFlags` of `WskReceiveFrom`: the datagram was longer than the buffer.
pub const MSG_TRUNC: ULONG = 0x100;

/// A socket, whose table depends on its kind.
#[repr(C)]
#[derive(Debug)]
pub struct WSK_SOCKET {
    pub Dispatch: *const core::ffi::c_void,
}
layout!(WSK_SOCKET, size 8, align 8, { Dispatch: 0 });

/// Bytes in a chain of memory descriptors; the offset lies in the first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WSK_BUF {
    pub Mdl: PMDL,
    pub Offset: ULONG,
    pub Length: SIZE_T,
}
layout!(WSK_BUF, size 24, align 8, { Mdl: 0, Offset: 8, Length: 16 });

/// Functions of every socket.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WSK_PROVIDER_BASIC_DISPATCH {
    pub WskControlSocket: PFN_WSK_CONTROL_SOCKET,
    pub WskCloseSocket: PFN_WSK_CLOSE_SOCKET,
}
layout!(WSK_PROVIDER_BASIC_DISPATCH, size 16, align 8, { WskControlSocket: 0, WskCloseSocket: 8 });

/// Functions of a listening socket.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WSK_PROVIDER_LISTEN_DISPATCH {
    pub Basic: WSK_PROVIDER_BASIC_DISPATCH,
    pub WskBind: PFN_WSK_BIND,
    pub WskAccept: PFN_WSK_ACCEPT,
    pub WskInspectComplete: PVOID,
    pub WskGetLocalAddress: PFN_WSK_GET_ADDRESS,
}
layout!(WSK_PROVIDER_LISTEN_DISPATCH, size 48, align 8, {
    Basic: 0, WskBind: 16, WskAccept: 24, WskInspectComplete: 32, WskGetLocalAddress: 40,
});

/// Functions of a connection.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WSK_PROVIDER_CONNECTION_DISPATCH {
    pub Basic: WSK_PROVIDER_BASIC_DISPATCH,
    pub WskBind: PFN_WSK_BIND,
    pub WskConnect: PFN_WSK_CONNECT,
    pub WskGetLocalAddress: PFN_WSK_GET_ADDRESS,
    pub WskGetRemoteAddress: PFN_WSK_GET_ADDRESS,
    pub WskSend: PFN_WSK_SEND,
    pub WskReceive: PFN_WSK_RECEIVE,
    pub WskDisconnect: PFN_WSK_DISCONNECT,
    pub WskRelease: PVOID,
    pub WskConnectEx: PVOID,
    pub WskSendEx: PVOID,
    pub WskReceiveEx: PVOID,
}
layout!(WSK_PROVIDER_CONNECTION_DISPATCH, size 104, align 8, {
    Basic: 0, WskBind: 16, WskConnect: 24, WskGetLocalAddress: 32, WskGetRemoteAddress: 40, WskSend: 48, WskReceive: 56,
    WskDisconnect: 64, WskRelease: 72, WskConnectEx: 80, WskSendEx: 88, WskReceiveEx: 96,
});

/// Functions of a datagram socket.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WSK_PROVIDER_DATAGRAM_DISPATCH {
    pub Basic: WSK_PROVIDER_BASIC_DISPATCH,
    pub WskBind: PFN_WSK_BIND,
    pub WskSendTo: PFN_WSK_SEND_TO,
    pub WskReceiveFrom: PFN_WSK_RECEIVE_FROM,
    pub WskRelease: PVOID,
    pub WskGetLocalAddress: PFN_WSK_GET_ADDRESS,
    pub WskSendMessages: PVOID,
}
layout!(WSK_PROVIDER_DATAGRAM_DISPATCH, size 64, align 8, {
    Basic: 0, WskBind: 16, WskSendTo: 24, WskReceiveFrom: 32, WskRelease: 40, WskGetLocalAddress: 48, WskSendMessages: 56,
});

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

/// Functions of the provider. The untyped slots are functions that are not used here.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WSK_PROVIDER_DISPATCH {
    pub Version: USHORT,
    pub Reserved: USHORT,
    pub WskSocket: PFN_WSK_SOCKET,
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
