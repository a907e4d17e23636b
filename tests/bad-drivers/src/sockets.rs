//! Sockets of Winsock Kernel: a driver that talks to itself over 127.0.0.1, and the packets that it makes for that.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::zeroed;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use ndkpi_sys::wsk::{
    IPPROTO_TCP, PFN_WSK_GET_ADDRESS, SOCK_STREAM, WSK_BUF, WSK_CLIENT_DISPATCH, WSK_CLIENT_NPI, WSK_FLAG_ABORTIVE,
    WSK_FLAG_CONNECTION_SOCKET, WSK_FLAG_LISTEN_SOCKET, WSK_FLAG_NODELAY, WSK_INFINITE_WAIT,
    WSK_PROVIDER_CONNECTION_DISPATCH, WSK_PROVIDER_LISTEN_DISPATCH, WSK_PROVIDER_NPI, WSK_REGISTRATION, WSK_SOCKET,
    WSK_VERSION_1_0, WskCaptureProviderNPI, WskDeregister, WskRegister, WskReleaseProviderNPI,
};

use crate::Case::{self, Sockets};
use crate::kernel::{
    Event, ExFreePoolWithTag, IRP_INFORMATION, IRP_STACK_LOCATION, IRP_STATUS, IoAllocateMdl, IoFreeMdl, KeAcquireSpinLockRaiseToDpc,
    KeBugCheckEx, KeGetCurrentIrql, KeGetCurrentThread, KeInitializeEvent, KeReleaseSpinLock, KeSetEvent,
    KeWaitForSingleObject, Mdl, MmBuildMdlForNonPagedPool, NtStatus, PASSIVE_LEVEL, PsCreateSystemThread,
    STATUS_CANCELLED, STATUS_SUCCESS, SpinLock, ZwClose, allocate, free,
};
use crate::spin_lock::Shared;

pub static CASES: &[(&str, Case)] = &[
    ("socket-left-at-deregistration", Sockets(Fault::SocketLeft)),
    ("socket-used-after-close", Sockets(Fault::UsedAfterClose)),
    ("socket-closed-during-call", Sockets(Fault::ClosedDuringCall)),
    ("socket-call-in-completion-routine", Sockets(Fault::CallInCompletion)),
    ("socket-call-under-lock", Sockets(Fault::CallUnderLock)),
    ("socket-after-release", Sockets(Fault::MadeAfterRelease)),
    ("socket-sends-after-disconnect", Sockets(Fault::SendAfterDisconnect)),
    ("socket-sends-behind-failed-send", Sockets(Fault::SendBehindFailed)),
    ("socket-ends-behind-failed-send", Sockets(Fault::EndBehindFailed)),
    ("socket-buffer-beyond-mdl", Sockets(Fault::BufferBeyondMdl)),
    ("socket-buffer-not-locked", Sockets(Fault::BufferNotLocked)),
    ("own-irp-in-use", Sockets(Fault::IrpInUse)),
    ("own-irp-reused-while-pending", Sockets(Fault::IrpReusedPending)),
    ("own-irp-not-prepared", Sockets(Fault::IrpNotPrepared)),
    ("own-irp-without-routine", Sockets(Fault::IrpWithoutRoutine)),
    ("own-irp-routine-returns-success", Sockets(Fault::IrpRoutineSucceeds)),
    ("own-irp-freed-while-pending", Sockets(Fault::IrpFreedPending)),
    ("own-irp-freed-twice", Sockets(Fault::IrpFreedTwice)),
    ("own-irp-freed-as-pool", Sockets(Fault::IrpFreedAsPool)),
    ("own-irp-left", Sockets(Fault::IrpLeft)),
];

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    SocketLeft,
    UsedAfterClose,
    ClosedDuringCall,
    CallInCompletion,
    CallUnderLock,
    MadeAfterRelease,
    SendAfterDisconnect,
    SendBehindFailed,
    EndBehindFailed,
    BufferBeyondMdl,
    BufferNotLocked,
    IrpInUse,
    IrpReusedPending,
    IrpNotPrepared,
    IrpWithoutRoutine,
    IrpRoutineSucceeds,
    IrpFreedPending,
    IrpFreedTwice,
    IrpFreedAsPool,
    IrpLeft,
}

const STATUS_MORE_PROCESSING_REQUIRED: NtStatus = 0xC000_0016_u32 as i32;
pub const AF_INET: u16 = 2;
const SET_OPTION: u32 = 0;
const TCP_NODELAY: u32 = 1;
/// `SL_INVOKE_ON_SUCCESS`, `SL_INVOKE_ON_ERROR` and `SL_INVOKE_ON_CANCEL`.
const INVOKE_ALWAYS: u8 = 0xE0;
/// Offsets in `IO_STACK_LOCATION`.
const STACK_SIZE: usize = 72;
const STACK_CONTROL: usize = 3;
const STACK_ROUTINE: usize = 56;
const STACK_CONTEXT: usize = 64;
/// Each of the sends; two of them do not fit a window.
const LENGTH: usize = 40 * 1024;
/// Each of the receives.
const PART: usize = 7 * 1024;

#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    fn IoAllocateIrp(locations: i8, charge: u8) -> *mut c_void;
    fn IoFreeIrp(irp: *mut c_void);
    fn IoReuseIrp(irp: *mut c_void, status: NtStatus);
}

/// `SOCKADDR_IN`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Address {
    pub family: u16,
    pub port: u16,
    pub address: [u8; 4],
    pub zero: [u8; 8],
}

pub const LOOPBACK: Address = Address { family: AF_INET, port: 0, address: [127, 0, 0, 1], zero: [0; 8] };
pub const UNKNOWN: Address = Address { family: 0, port: 0, address: [0; 4], zero: [0; 8] };

/// Ends the machine where the host does not do what the driver counts on.
#[track_caller]
pub fn check(is_so: bool) {
    if !is_so {
        let line = core::panic::Location::caller().line() as usize;
        unsafe { KeBugCheckEx(0xE000_0001, line, 0, 0, 0) };
    }
}

/// A packet, and what it was completed with.
#[repr(C)]
pub struct Request {
    event: Event,
    pub irp: *mut c_void,
    status: NtStatus,
    pub information: usize,
}

pub type Routine = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> NtStatus;

pub unsafe extern "C" fn completed(_device: *mut c_void, irp: *mut c_void, context: *mut c_void) -> NtStatus {
    let request = context.cast::<Request>();
    (*request).status = irp.byte_add(IRP_STATUS).cast::<NtStatus>().read();
    (*request).information = irp.byte_add(IRP_INFORMATION).cast::<usize>().read();
    KeSetEvent(&raw mut (*request).event, 0, 0);
    STATUS_MORE_PROCESSING_REQUIRED
}

unsafe extern "C" fn completed_and_succeeds(device: *mut c_void, irp: *mut c_void, context: *mut c_void) -> NtStatus {
    completed(device, irp, context);
    STATUS_SUCCESS
}

/// The socket that a completion routine calls, or that another thread closes during a call.
static TOUCHED: AtomicPtr<WSK_SOCKET> = AtomicPtr::new(null_mut());
static SECOND: AtomicPtr<Request> = AtomicPtr::new(null_mut());
static CALLER: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static TOUCHED_ONCE: AtomicBool = AtomicBool::new(false);
static FOUND: Shared<Address> = Shared(UnsafeCell::new(UNKNOWN));
static CLOSED: Shared<Event> = Shared(UnsafeCell::new(Event([0; 24])));
static LOCK: Shared<SpinLock> = Shared(UnsafeCell::new(0));

unsafe extern "C" fn completed_and_calls(device: *mut c_void, irp: *mut c_void, context: *mut c_void) -> NtStatus {
    if !TOUCHED_ONCE.swap(true, Ordering::SeqCst) {
        let socket = TOUCHED.load(Ordering::SeqCst);
        let second = SECOND.load(Ordering::SeqCst);
        prepare(second, completed);
        ((*connection(socket)).WskGetLocalAddress)(socket, FOUND.0.get().cast(), (*second).irp.cast());
    }
    completed(device, irp, context)
}

unsafe extern "C" fn close_it(_: *mut c_void) {
    let socket = TOUCHED.load(Ordering::SeqCst);
    let second = SECOND.load(Ordering::SeqCst);
    prepare(second, completed);
    ((*connection(socket)).Basic.WskCloseSocket)(socket, (*second).irp.cast());
    wait(second);
    KeSetEvent(CLOSED.0.get(), 0, 0);
}

/// Inside the call of which it is the completion, has another thread close the socket meanwhile.
pub unsafe extern "C" fn completed_and_closed(device: *mut c_void, irp: *mut c_void, context: *mut c_void) -> NtStatus {
    let inside = KeGetCurrentThread() == CALLER.load(Ordering::SeqCst) && KeGetCurrentIrql() == PASSIVE_LEVEL;
    if inside && !TOUCHED_ONCE.swap(true, Ordering::SeqCst) {
        let mut handle = null_mut();
        let none = null_mut();
        PsCreateSystemThread(&raw mut handle, 0x1F_FFFF, none, none, none, close_it, none);
        ZwClose(handle);
        KeWaitForSingleObject(CLOSED.0.get().cast(), 0, 0, 0, null());
    }
    completed(device, irp, context)
}

pub unsafe fn request() -> *mut Request {
    let request = allocate(size_of::<Request>()).cast::<Request>();
    (*request).irp = IoAllocateIrp(1, 0);
    KeInitializeEvent(&raw mut (*request).event, 0, 0);
    set_routine((*request).irp, request, completed);
    request
}

/// `IoSetCompletionRoutine`.
unsafe fn set_routine(irp: *mut c_void, request: *mut Request, routine: Routine) {
    let next = irp.byte_add(IRP_STACK_LOCATION).cast::<*mut u8>().read().sub(STACK_SIZE);
    next.add(STACK_ROUTINE).cast::<Routine>().write(routine);
    next.add(STACK_CONTEXT).cast::<*mut Request>().write(request);
    next.add(STACK_CONTROL).write(INVOKE_ALWAYS);
}

/// Makes a completed packet ready for another use.
unsafe fn prepare(request: *mut Request, routine: Routine) {
    IoReuseIrp((*request).irp, STATUS_SUCCESS);
    KeInitializeEvent(&raw mut (*request).event, 0, 0);
    set_routine((*request).irp, request, routine);
}

pub unsafe fn end(request: *mut Request) {
    IoFreeIrp((*request).irp);
    free(request.cast());
}

/// Waits for the completion; the status.
pub unsafe fn wait(request: *mut Request) -> NtStatus {
    KeWaitForSingleObject((&raw mut (*request).event).cast(), 0, 0, 0, null());
    (*request).status
}

/// Calls a function with a packet of its own and waits; the status and the information.
pub unsafe fn finish(call: impl FnOnce(*mut c_void)) -> (NtStatus, usize) {
    let request = request();
    call((*request).irp);
    let answer = (wait(request), (*request).information);
    end(request);
    answer
}

unsafe fn connection(socket: *mut WSK_SOCKET) -> *const WSK_PROVIDER_CONNECTION_DISPATCH {
    (*socket).Dispatch.cast()
}

unsafe fn listening(socket: *mut WSK_SOCKET) -> *const WSK_PROVIDER_LISTEN_DISPATCH {
    (*socket).Dispatch.cast()
}

unsafe fn make(provider: &WSK_PROVIDER_NPI, flags: u32) -> *mut WSK_SOCKET {
    let none = null_mut();
    let make = (*provider.Dispatch).WskSocket;
    let (status, socket) = finish(|irp| {
        make(
            provider.Client,
            AF_INET as _,
            SOCK_STREAM,
            IPPROTO_TCP,
            flags,
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

pub unsafe fn close(socket: *mut WSK_SOCKET) {
    let (status, _) = finish(|irp| {
        ((*connection(socket)).Basic.WskCloseSocket)(socket, irp.cast());
    });
    check(status == STATUS_SUCCESS);
}

unsafe fn local_address(socket: *mut WSK_SOCKET, listens: bool) -> Address {
    let mut found = UNKNOWN;
    let get = if listens { (*listening(socket)).WskGetLocalAddress } else { (*connection(socket)).WskGetLocalAddress };
    let (status, _) = finish(|irp| {
        get(socket, (&raw mut found).cast(), irp.cast());
    });
    check(status == STATUS_SUCCESS);
    found
}

/// Bytes of non-paged pool with their descriptor.
pub struct Bytes {
    pub at: *mut u8,
    pub mdl: *mut Mdl,
}

impl Bytes {
    pub unsafe fn new(length: usize) -> Self {
        let at = allocate(length);
        let mdl = IoAllocateMdl(at.cast(), length as u32, 0, 0, null_mut());
        MmBuildMdlForNonPagedPool(mdl);
        Self { at, mdl }
    }

    pub fn all(&self, length: usize) -> WSK_BUF {
        WSK_BUF { Mdl: self.mdl.cast(), Offset: 0, Length: length }
    }

    pub unsafe fn free(self) {
        IoFreeMdl(self.mdl);
        free(self.at);
    }
}

/// What stands at a place of the stream.
fn pattern(place: usize) -> u8 {
    (place * 7 + place / 251) as u8
}

/// Sends two buffers through the window and receives them at the other end.
unsafe fn exchange(from: *mut WSK_SOCKET, to: *mut WSK_SOCKET) {
    let bytes = Bytes::new(2 * LENGTH);
    for place in 0..2 * LENGTH {
        bytes.at.add(place).write(pattern(place));
    }
    let sends = [request(), request()];
    for (index, send) in sends.into_iter().enumerate() {
        let mut buffer = WSK_BUF { Mdl: bytes.mdl.cast(), Offset: (index * LENGTH) as u32, Length: LENGTH };
        ((*connection(from)).WskSend)(from, &raw mut buffer, WSK_FLAG_NODELAY, (*send).irp.cast());
    }
    let part = Bytes::new(PART);
    let mut place = 0;
    while place < 2 * LENGTH {
        let mut buffer = part.all(PART);
        let (status, count) = finish(|irp| {
            ((*connection(to)).WskReceive)(to, &raw mut buffer, 0, irp.cast());
        });
        check(status == STATUS_SUCCESS && count != 0 && count <= PART);
        check((0..count).all(|index| *part.at.add(index) == pattern(place + index)));
        place += count;
    }
    for send in sends {
        check(wait(send) == STATUS_SUCCESS && (*send).information == LENGTH);
        end(send);
    }
    part.free();
    bytes.free();
}

/// Receives, as one end does that expects nothing but the peer's end.
unsafe fn expect_end(socket: *mut WSK_SOCKET) {
    let part = Bytes::new(PART);
    let mut buffer = part.all(PART);
    let answer = finish(|irp| {
        ((*connection(socket)).WskReceive)(socket, &raw mut buffer, 0, irp.cast());
    });
    check(answer == (STATUS_SUCCESS, 0));
    part.free();
}

unsafe fn disconnect(socket: *mut WSK_SOCKET) {
    let (status, _) = finish(|irp| {
        ((*connection(socket)).WskDisconnect)(socket, null_mut(), 0, irp.cast());
    });
    check(status == STATUS_SUCCESS);
}

/// A listener, and both ends of a connection with it.
struct Conversation {
    listener: *mut WSK_SOCKET,
    here: *mut WSK_SOCKET,
    there: *mut WSK_SOCKET,
}

unsafe fn connect(provider: &WSK_PROVIDER_NPI) -> Conversation {
    let listener = make(provider, WSK_FLAG_LISTEN_SOCKET);
    let mut any = LOOPBACK;
    let bound = finish(|irp| {
        ((*listening(listener)).WskBind)(listener, (&raw mut any).cast(), 0, irp.cast());
    });
    check(bound.0 == STATUS_SUCCESS);
    let mut address = local_address(listener, true);
    check(address.address == LOOPBACK.address && address.port != 0);
    let here = make(provider, WSK_FLAG_CONNECTION_SOCKET);
    let mut on = 1_u32;
    let option = finish(|irp| {
        ((*connection(here)).Basic.WskControlSocket)(
            here,
            SET_OPTION,
            TCP_NODELAY,
            IPPROTO_TCP,
            size_of::<u32>(),
            (&raw mut on).cast(),
            0,
            null_mut(),
            null_mut(),
            irp.cast(),
        );
    });
    check(option.0 == STATUS_SUCCESS);
    let bound = finish(|irp| {
        ((*connection(here)).WskBind)(here, (&raw mut any).cast(), 0, irp.cast());
    });
    check(bound.0 == STATUS_SUCCESS);
    let (mut local, mut remote) = (UNKNOWN, UNKNOWN);
    let accepts = request();
    ((*listening(listener)).WskAccept)(
        listener,
        0,
        null_mut(),
        null(),
        (&raw mut local).cast(),
        (&raw mut remote).cast(),
        (*accepts).irp.cast(),
    );
    let connected = finish(|irp| {
        ((*connection(here)).WskConnect)(here, (&raw mut address).cast(), 0, irp.cast());
    });
    check(connected.0 == STATUS_SUCCESS && wait(accepts) == STATUS_SUCCESS);
    let there = (*accepts).information as *mut WSK_SOCKET;
    end(accepts);
    check(local == address && remote == local_address(here, false));
    Conversation { listener, here, there }
}

/// A receive that a driver breaks a rule with, or keeps it, while the packet is pending; the peer sends nothing.
unsafe fn pending(socket: *mut WSK_SOCKET, fault: Fault) -> (*mut Request, Bytes) {
    let receive = request();
    let part = Bytes::new(PART);
    let mut buffer = part.all(PART);
    let receives = (*connection(socket)).WskReceive;
    receives(socket, &raw mut buffer, 0, (*receive).irp.cast());
    match fault {
        Fault::IrpInUse => {
            receives(socket, &raw mut buffer, 0, (*receive).irp.cast());
        }
        Fault::IrpReusedPending => IoReuseIrp((*receive).irp, STATUS_SUCCESS),
        Fault::IrpFreedPending => IoFreeIrp((*receive).irp),
        _ => {}
    }
    (receive, part)
}

/// Asks for an address again and again, with a routine that does more than it may.
pub unsafe fn ask(socket: *mut WSK_SOCKET, get: PFN_WSK_GET_ADDRESS, routine: Routine) {
    let (asks, second) = (request(), request());
    let mut found = UNKNOWN;
    TOUCHED.store(socket, Ordering::SeqCst);
    SECOND.store(second, Ordering::SeqCst);
    CALLER.store(KeGetCurrentThread(), Ordering::SeqCst);
    KeInitializeEvent(CLOSED.0.get(), 0, 0);
    for _ in 0..64 {
        prepare(asks, routine);
        get(socket, (&raw mut found).cast(), (*asks).irp.cast());
        check(wait(asks) == STATUS_SUCCESS);
    }
    end(asks);
    end(second);
}

/// What is wrong with one request of a socket.
unsafe fn one_request(sockets: &Conversation, fault: Fault) {
    let asks = request();
    let mut found = UNKNOWN;
    let get = |irp: *mut c_void, found: *mut Address| {
        ((*connection(sockets.here)).WskGetLocalAddress)(sockets.here, found.cast(), irp.cast());
    };
    let lock = (fault == Fault::CallUnderLock).then(|| KeAcquireSpinLockRaiseToDpc(LOCK.0.get()));
    match fault {
        Fault::IrpRoutineSucceeds => set_routine((*asks).irp, asks, completed_and_succeeds),
        Fault::IrpWithoutRoutine => IoReuseIrp((*asks).irp, STATUS_SUCCESS),
        _ => {}
    }
    get((*asks).irp, &raw mut found);
    if let Some(level) = lock {
        KeReleaseSpinLock(LOCK.0.get(), level);
    }
    check(wait(asks) == STATUS_SUCCESS);
    if fault == Fault::IrpNotPrepared {
        set_routine((*asks).irp, asks, completed);
    } else {
        prepare(asks, completed);
    }
    get((*asks).irp, &raw mut found);
    check(wait(asks) == STATUS_SUCCESS);
    if fault == Fault::IrpLeft {
        free(asks.cast());
        return;
    }
    match fault {
        Fault::IrpFreedTwice => IoFreeIrp((*asks).irp),
        // Tag 0: any.
        Fault::IrpFreedAsPool => ExFreePoolWithTag((*asks).irp, 0),
        _ => {}
    }
    end(asks);
}

/// A send whose buffer is wrong.
unsafe fn one_send(from: *mut WSK_SOCKET, to: *mut WSK_SOCKET, fault: Fault) {
    let length = if fault == Fault::BufferBeyondMdl { PART + 1 } else { PART };
    let bytes = Bytes::new(PART);
    bytes.at.write_bytes(1, PART);
    let raw = IoAllocateMdl(bytes.at.cast(), PART as u32, 0, 0, null_mut());
    if fault != Fault::BufferNotLocked {
        MmBuildMdlForNonPagedPool(raw);
    }
    let mut buffer = WSK_BUF { Mdl: raw.cast(), Offset: 0, Length: length };
    let sent = finish(|irp| {
        ((*connection(from)).WskSend)(from, &raw mut buffer, 0, irp.cast());
    });
    check(sent == (STATUS_SUCCESS, PART));
    let mut place = 0;
    while place < PART {
        let mut buffer = bytes.all(PART);
        let (status, count) = finish(|irp| {
            ((*connection(to)).WskReceive)(to, &raw mut buffer, 0, irp.cast());
        });
        check(status == STATUS_SUCCESS && count != 0);
        place += count;
    }
    IoFreeMdl(raw);
    bytes.free();
}

/// A send that is refused, of which nothing goes out.
unsafe fn refused_send(from: *mut WSK_SOCKET) {
    const UNKNOWN_FLAG: u32 = 0x8000_0000;
    let bytes = Bytes::new(PART);
    let mut buffer = bytes.all(PART);
    let (status, _) = finish(|irp| {
        ((*connection(from)).WskSend)(from, &raw mut buffer, UNKNOWN_FLAG, irp.cast());
    });
    check(status == INVALID_PARAMETER);
    bytes.free();
}

const INVALID_PARAMETER: NtStatus = 0xC000_000D_u32 as i32;
pub const INVALID_ADDRESS_COMPONENT: NtStatus = 0xC000_0207_u32 as i32;
pub const ADDRESS_ALREADY_EXISTS: NtStatus = 0xC000_020A_u32 as i32;
const CONNECTION_RESET: NtStatus = 0xC000_020D_u32 as i32;
const CONNECTION_REFUSED: NtStatus = 0xC000_0236_u32 as i32;
const HOST_UNREACHABLE: NtStatus = 0xC000_023D_u32 as i32;
const CONNECTION_ABORTED: NtStatus = 0xC000_0241_u32 as i32;

/// An address that no host has.
pub const NOWHERE: Address = Address { family: AF_INET, port: 9_u16.to_be(), address: [192, 0, 2, 1], zero: [0; 8] };

/// Binds and connects that fail.
unsafe fn refusals(provider: &WSK_PROVIDER_NPI) {
    let (first, second) = (make(provider, WSK_FLAG_CONNECTION_SOCKET), make(provider, WSK_FLAG_CONNECTION_SOCKET));
    let bind = |socket: *mut WSK_SOCKET, mut to: Address| {
        let bind = (*connection(socket)).WskBind;
        let (status, _) = finish(|irp| {
            bind(socket, (&raw mut to).cast(), 0, irp.cast());
        });
        status
    };
    check(bind(first, NOWHERE) == INVALID_ADDRESS_COMPONENT);
    check(bind(first, LOOPBACK) == STATUS_SUCCESS);
    let taken = local_address(first, false);
    check(bind(second, taken) == ADDRESS_ALREADY_EXISTS);
    let connect = |mut to: Address| {
        let connect = (*connection(first)).WskConnect;
        let (status, _) = finish(|irp| {
            connect(first, (&raw mut to).cast(), 0, irp.cast());
        });
        status
    };
    check(connect(NOWHERE) == HOST_UNREACHABLE);
    check(connect(Address { port: 9_u16.to_be(), ..LOOPBACK }) == CONNECTION_REFUSED);
    close(first);
    close(second);
}

/// Two connections that are broken, by a disconnect and by a close, behind a send that is refused and with packets that wait.
unsafe fn breaks(provider: &WSK_PROVIDER_NPI, fault: Fault) {
    for by_close in [false, true] {
        let sockets = connect(provider);
        refused_send(sockets.here);
        match fault {
            Fault::SendBehindFailed => one_send(sockets.here, sockets.there, Fault::None),
            Fault::EndBehindFailed => disconnect(sockets.here),
            _ => {}
        }
        let (own, part) = pending(sockets.here, Fault::None);
        let (peers, other) = pending(sockets.there, Fault::None);
        if by_close {
            close(sockets.here);
        } else {
            let disconnects = (*connection(sockets.here)).WskDisconnect;
            let (status, _) = finish(|irp| {
                disconnects(sockets.here, null_mut(), WSK_FLAG_ABORTIVE, irp.cast());
            });
            check(status == STATUS_SUCCESS);
        }
        check(wait(own) == if by_close { STATUS_CANCELLED } else { CONNECTION_ABORTED });
        check(wait(peers) == CONNECTION_RESET);
        if !by_close {
            close(sockets.here);
        }
        close(sockets.there);
        close(sockets.listener);
        end(own);
        end(peers);
        part.free();
        other.free();
    }
}

static REGISTRATION: Shared<WSK_REGISTRATION> = Shared(UnsafeCell::new(unsafe { zeroed() }));
static DISPATCH: WSK_CLIENT_DISPATCH =
    WSK_CLIENT_DISPATCH { Version: WSK_VERSION_1_0, Reserved: 0, WskClientEvent: None };
/// Bytes that came with the last receive; only so that the compiler keeps it.
static LAST: AtomicUsize = AtomicUsize::new(0);

/// Has the provider for as long as something is done with it.
pub unsafe fn with_provider(body: impl FnOnce(&WSK_PROVIDER_NPI)) {
    let mut client = WSK_CLIENT_NPI { ClientContext: null_mut(), Dispatch: &raw const DISPATCH };
    let registration = REGISTRATION.0.get();
    check(WskRegister(&raw mut client, registration) == STATUS_SUCCESS);
    let mut provider: WSK_PROVIDER_NPI = zeroed();
    check(WskCaptureProviderNPI(registration, WSK_INFINITE_WAIT, &raw mut provider) == STATUS_SUCCESS);
    body(&provider);
    WskReleaseProviderNPI(registration);
    WskDeregister(registration);
}

/// Listens, connects to itself, sends both ways, ends both directions and closes; somewhere the bad twin breaks its rule.
pub unsafe fn talk(fault: Fault) {
    let mut client = WSK_CLIENT_NPI { ClientContext: null_mut(), Dispatch: &raw const DISPATCH };
    let registration = REGISTRATION.0.get();
    check(WskRegister(&raw mut client, registration) == STATUS_SUCCESS);
    let mut provider: WSK_PROVIDER_NPI = zeroed();
    check(WskCaptureProviderNPI(registration, WSK_INFINITE_WAIT, &raw mut provider) == STATUS_SUCCESS);
    refusals(&provider);
    breaks(&provider, fault);
    let sockets = connect(&provider);
    exchange(sockets.here, sockets.there);
    exchange(sockets.there, sockets.here);
    one_request(&sockets, fault);
    one_send(sockets.here, sockets.there, fault);
    let routine = match fault {
        Fault::CallInCompletion => completed_and_calls,
        Fault::ClosedDuringCall => completed_and_closed,
        _ => completed as Routine,
    };
    ask(sockets.here, (*connection(sockets.here)).WskGetLocalAddress, routine);
    let (receive, part) = pending(sockets.here, fault);
    disconnect(sockets.here);
    if fault == Fault::SendAfterDisconnect {
        one_send(sockets.here, sockets.there, Fault::None);
    }
    expect_end(sockets.there);
    disconnect(sockets.there);
    check(wait(receive) == STATUS_SUCCESS && (*receive).information == 0);
    LAST.store((*receive).information, Ordering::Relaxed);
    end(receive);
    part.free();
    let waits = request();
    let listen = (*listening(sockets.listener)).WskAccept;
    listen(sockets.listener, 0, null_mut(), null(), null_mut(), null_mut(), (*waits).irp.cast());
    close(sockets.listener);
    check(wait(waits) == STATUS_CANCELLED);
    end(waits);
    let table = connection(sockets.here);
    close(sockets.here);
    if fault == Fault::UsedAfterClose {
        finish(|irp| {
            ((*table).WskGetLocalAddress)(sockets.here, FOUND.0.get().cast(), irp.cast());
        });
    }
    if fault != Fault::SocketLeft {
        close(sockets.there);
    }
    WskReleaseProviderNPI(registration);
    if fault == Fault::MadeAfterRelease {
        make(&provider, WSK_FLAG_CONNECTION_SOCKET);
    }
    WskDeregister(registration);
}
