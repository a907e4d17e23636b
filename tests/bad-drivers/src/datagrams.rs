//! Datagram sockets of Winsock Kernel: a driver that sends datagrams to itself over 127.0.0.1.

use core::ffi::c_void;
use core::ptr::{null, null_mut};

use ndkpi_sys::wsk::{
    IPPROTO_UDP, MSG_TRUNC, SOCK_DGRAM, WSK_FLAG_DATAGRAM_SOCKET, WSK_PROVIDER_DATAGRAM_DISPATCH, WSK_PROVIDER_NPI,
    WSK_SOCKET,
};

use crate::Case::{self, Datagrams};
use crate::kernel::{
    DEVICE_LEVEL, ExAllocatePool2, IoAllocateMdl, IoFreeMdl, KeLowerIrql, KfRaiseIrql, MmBuildMdlForNonPagedPool,
    NtStatus, STATUS_CANCELLED, STATUS_SUCCESS, TAG, free,
};
use crate::sockets::{
    ADDRESS_ALREADY_EXISTS, AF_INET, Address, Bytes, INVALID_ADDRESS_COMPONENT, LOOPBACK, NOWHERE, Request, Routine,
    UNKNOWN, ask, check, close, completed, completed_and_closed, end, finish, request, wait, with_provider,
};

pub static CASES: &[(&str, Case)] = &[
    ("datagram-sent-before-bind", Datagrams(Fault::SentBeforeBind)),
    ("datagram-received-before-bind", Datagrams(Fault::ReceivedBeforeBind)),
    ("datagram-buffer-beyond-mdl", Datagrams(Fault::BufferBeyondMdl)),
    ("datagram-buffer-not-locked", Datagrams(Fault::BufferNotLocked)),
    ("datagram-address-in-paged-pool", Datagrams(Fault::AddressPaged)),
    ("datagram-sent-at-device-level", Datagrams(Fault::SentAtDeviceLevel)),
    ("datagram-irp-in-use", Datagrams(Fault::IrpInUse)),
    ("datagram-socket-closed-during-call", Datagrams(Fault::ClosedDuringCall)),
    ("datagram-socket-used-after-close", Datagrams(Fault::UsedAfterClose)),
    ("datagram-socket-left", Datagrams(Fault::SocketLeft)),
];

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    SentBeforeBind,
    ReceivedBeforeBind,
    BufferBeyondMdl,
    BufferNotLocked,
    AddressPaged,
    SentAtDeviceLevel,
    IrpInUse,
    ClosedDuringCall,
    UsedAfterClose,
    SocketLeft,
}

const STATUS_BUFFER_OVERFLOW: NtStatus = 0x8000_0005_u32 as i32;
const STATUS_INVALID_BUFFER_SIZE: NtStatus = 0xC000_0206_u32 as i32;
const STATUS_PORT_UNREACHABLE: NtStatus = 0xC000_023F_u32 as i32;
const POOL_FLAG_PAGED: u64 = 0x100;
/// Of a datagram.
const LENGTH: usize = 1200;

unsafe fn functions(socket: *mut WSK_SOCKET) -> *const WSK_PROVIDER_DATAGRAM_DISPATCH {
    (*socket).Dispatch.cast()
}

unsafe fn make(provider: &WSK_PROVIDER_NPI) -> *mut WSK_SOCKET {
    let none = null_mut::<c_void>();
    let make = (*provider.Dispatch).WskSocket;
    let (status, socket) = finish(|irp| {
        make(
            provider.Client,
            AF_INET as _,
            SOCK_DGRAM,
            IPPROTO_UDP,
            WSK_FLAG_DATAGRAM_SOCKET,
            null_mut(),
            null(),
            none as _,
            none as _,
            none as _,
            irp.cast(),
        );
    });
    check(status == STATUS_SUCCESS);
    socket as *mut WSK_SOCKET
}

unsafe fn bind(socket: *mut WSK_SOCKET, mut to: Address) -> NtStatus {
    let bind = (*functions(socket)).WskBind;
    let (status, _) = finish(|irp| {
        bind(socket, (&raw mut to).cast(), 0, irp.cast());
    });
    status
}

unsafe fn local_address(socket: *mut WSK_SOCKET) -> Address {
    let mut found = UNKNOWN;
    let get = (*functions(socket)).WskGetLocalAddress;
    let (status, _) = finish(|irp| {
        get(socket, (&raw mut found).cast(), irp.cast());
    });
    check(status == STATUS_SUCCESS);
    found
}

unsafe fn send(socket: *mut WSK_SOCKET, mut to: Address, bytes: &Bytes, length: usize) -> (NtStatus, usize) {
    let send = (*functions(socket)).WskSendTo;
    let mut buffer = bytes.all(length);
    finish(|irp| {
        send(socket, &raw mut buffer, 0, (&raw mut to).cast(), 0, null_mut(), irp.cast());
    })
}

/// Where a datagram is received.
struct Place {
    from: Address,
    flags: u32,
}

unsafe fn begin_receive(socket: *mut WSK_SOCKET, bytes: &Bytes, length: usize, place: *mut Place) -> *mut Request {
    let receive = (*functions(socket)).WskReceiveFrom;
    let mut buffer = bytes.all(length);
    let receives = request();
    let (from, flags) = ((&raw mut (*place).from).cast(), &raw mut (*place).flags);
    receive(socket, &raw mut buffer, 0, from, null_mut(), null_mut(), flags, (*receives).irp.cast());
    receives
}

unsafe fn receive(socket: *mut WSK_SOCKET, bytes: &Bytes, length: usize) -> (NtStatus, usize, Place) {
    let mut place = Place { from: UNKNOWN, flags: 7 };
    let receives = begin_receive(socket, bytes, length, &raw mut place);
    let (status, count) = (wait(receives), (*receives).information);
    end(receives);
    (status, count, place)
}

/// Datagrams that come whole, are cut, and go nowhere.
unsafe fn exchange(here: *mut WSK_SOCKET, there: *mut WSK_SOCKET) {
    let (near, far) = (local_address(here), local_address(there));
    let (out, into) = (Bytes::new(1 << 16), Bytes::new(LENGTH));
    for place in 0..LENGTH {
        out.at.add(place).write((place * 11 + place / 251) as u8);
    }
    for length in [LENGTH, 0, 1] {
        check(send(here, far, &out, length) == (STATUS_SUCCESS, length));
        let (status, count, place) = receive(there, &into, LENGTH);
        check(status == STATUS_SUCCESS && count == length && place.from == near && place.flags == 0);
        check((0..length).all(|index| *into.at.add(index) == *out.at.add(index)));
    }
    check(send(here, far, &out, LENGTH) == (STATUS_SUCCESS, LENGTH));
    let (status, count, place) = receive(there, &into, 100);
    check(status == STATUS_BUFFER_OVERFLOW && count == 100 && place.from == near && place.flags & MSG_TRUNC != 0);
    check(send(here, far, &out, 1 << 16).0 == STATUS_INVALID_BUFFER_SIZE);
    check(send(here, NOWHERE, &out, 9) == (STATUS_SUCCESS, 9));
    check(send(here, Address { port: 9_u16.to_be(), ..LOOPBACK }, &out, 9) == (STATUS_SUCCESS, 9));
    check(receive(here, &into, LENGTH).0 == STATUS_PORT_UNREACHABLE);
    out.free();
    into.free();
}

/// One datagram to itself, with whatever is wrong with its send or its receive.
unsafe fn one_datagram(socket: *mut WSK_SOCKET, fault: Fault) {
    let own = local_address(socket);
    let bytes = Bytes::new(LENGTH);
    bytes.at.write_bytes(5, LENGTH);
    let length = if fault == Fault::BufferBeyondMdl { LENGTH + 1 } else { LENGTH };
    let sends = request();
    let (mut buffer, mut to) = (bytes.all(length), own);
    let send = (*functions(socket)).WskSendTo;
    let level = (fault == Fault::SentAtDeviceLevel).then(|| KfRaiseIrql(DEVICE_LEVEL));
    send(socket, &raw mut buffer, 0, (&raw mut to).cast(), 0, null_mut(), (*sends).irp.cast());
    if let Some(level) = level {
        KeLowerIrql(level);
    }
    check(wait(sends) == STATUS_SUCCESS);
    end(sends);
    let raw = IoAllocateMdl(bytes.at.cast(), LENGTH as u32, 0, 0, null_mut());
    if fault != Fault::BufferNotLocked {
        MmBuildMdlForNonPagedPool(raw);
    }
    let into = Bytes { at: bytes.at, mdl: raw };
    let paged = ExAllocatePool2(POOL_FLAG_PAGED, size_of::<Place>(), TAG).cast::<Place>();
    let mut resident = Place { from: UNKNOWN, flags: 0 };
    let place = if fault == Fault::AddressPaged { paged } else { &raw mut resident };
    let receives = begin_receive(socket, &into, LENGTH, place);
    check(wait(receives) == STATUS_SUCCESS && (*receives).information == LENGTH && (*place).from == own);
    end(receives);
    free(paged.cast());
    IoFreeMdl(raw);
    bytes.free();
}

/// Two receives that wait when the socket is closed.
unsafe fn close_with_receives(socket: *mut WSK_SOCKET, fault: Fault) {
    let bytes = Bytes::new(LENGTH);
    let mut places = [Place { from: UNKNOWN, flags: 0 }, Place { from: UNKNOWN, flags: 0 }];
    let [first, second] = &mut places;
    let waits = [begin_receive(socket, &bytes, 4, first), begin_receive(socket, &bytes, 4, second)];
    if fault == Fault::IrpInUse {
        let receive = (*functions(socket)).WskReceiveFrom;
        let mut buffer = bytes.all(4);
        let none = null_mut();
        receive(socket, &raw mut buffer, 0, none, null_mut(), null_mut(), null_mut(), (*waits[0]).irp.cast());
    }
    close(socket);
    for receives in waits {
        check(wait(receives) == STATUS_CANCELLED);
        end(receives);
    }
    bytes.free();
}

/// Binds two sockets, exchanges datagrams, and closes them; somewhere the bad twin breaks its rule.
pub unsafe fn talk(fault: Fault) {
    with_provider(|provider| {
        let (here, there) = (make(provider), make(provider));
        check(bind(here, NOWHERE) == INVALID_ADDRESS_COMPONENT);
        check(bind(here, LOOPBACK) == STATUS_SUCCESS);
        check(bind(there, local_address(here)) == ADDRESS_ALREADY_EXISTS);
        let unbound = Bytes::new(8);
        match fault {
            Fault::SentBeforeBind => _ = send(there, local_address(here), &unbound, 8),
            Fault::ReceivedBeforeBind => _ = receive(there, &unbound, 8),
            _ => {}
        }
        check(bind(there, LOOPBACK) == STATUS_SUCCESS);
        exchange(here, there);
        exchange(there, here);
        one_datagram(here, fault);
        let routine = if fault == Fault::ClosedDuringCall { completed_and_closed } else { completed as Routine };
        ask(here, (*functions(here)).WskGetLocalAddress, routine);
        let address = local_address(here);
        let table = functions(here);
        close_with_receives(here, fault);
        if fault == Fault::UsedAfterClose {
            let (mut buffer, mut to) = (unbound.all(8), address);
            finish(|irp| {
                ((*table).WskSendTo)(here, &raw mut buffer, 0, (&raw mut to).cast(), 0, null_mut(), irp.cast());
            });
        }
        if fault != Fault::SocketLeft {
            close(there);
        }
        unbound.free();
    });
}
