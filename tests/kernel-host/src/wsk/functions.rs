//! The functions of sockets, as drivers call them: what each checks, and what it asks of the sockets.
//!
//! A function answers at once, inside the call or later, or its packet waits in a lane. Either way the packet is completed; the
//! status that the function returns says no more than whether that was inside the call.

mod datagram;

use std::ffi::c_void;
use std::net::SocketAddr;
use std::ptr::from_ref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ndkpi_sys::wsk::{
    IPPROTO_TCP, IPPROTO_UDP, SOCK_DGRAM, SOCK_STREAM, WSK_BUF, WSK_FLAG_ABORTIVE, WSK_FLAG_CONNECTION_SOCKET,
    WSK_FLAG_DATAGRAM_SOCKET, WSK_FLAG_LISTEN_SOCKET, WSK_FLAG_NODELAY, WSK_SOCKET,
};

use super::address::{self, AF_INET, AF_INET6};
use super::buffer::Buffer;
use super::client::{self, Client};
use super::delivery::{Finished, kick};
use super::network::any;
use super::socket::{
    Ending, Kind, LEDGER_KIND, LaneDirection, LaneId, SocketAnswer, SocketId, SocketMemory, Stack, State, Wait, stack,
};
use super::{chance, check_level, late};
use crate::callback::host_function;
use crate::callout::ContextKind;
use crate::io::own_packet::Taken;
use crate::irql::IrqlRange;
use crate::ndis::rule::{Group, broken};
use crate::nt::IRP;
use crate::status::{self, NtStatus};
use crate::thread::Thread;
use crate::{fault, schedule};

const SUCCESS: NtStatus = status::STATUS_SUCCESS;

/// TCP gives up after three attempts.
const CONNECT_TIME: Duration = Duration::from_secs(21);

/// The function that a gap comes from.
const SEND: &str = "WskSend";

/// Of `WskControlSocket`.
const SET_OPTION: u32 = 0;
const TCP_NODELAY: u32 = 1;

/// What is left of a call after its look at the sockets.
enum CallOutcome {
    /// The packet is completed with this.
    Done(SocketAnswer),
    /// As above, and both lanes of the socket have something to do.
    Ended(SocketAnswer),
    /// As above; the function returns this status, also where the completion comes later.
    Refused(SocketAnswer),
    /// As above, before the function returns.
    Inside(SocketAnswer),
    /// The packet waits in a lane.
    Waits(Wait),
}

impl From<NtStatus> for CallOutcome {
    fn from(status: NtStatus) -> Self {
        Self::Done(status.into())
    }
}

/// What every function of a socket, and `WskSocket`, needs of its caller.
fn check_caller(object: usize, function: &str) {
    check_level(function, IrqlRange::UP_TO_DISPATCH);
    let thread = Thread::current();
    if thread.spin_locks_held.load(std::sync::atomic::Ordering::Relaxed) > thread.locks_at_context_entry() {
        broken(Group::Netio, object, format!("{function} is called with a spin lock held"));
    }
    // A DPC that interrupted the completion routine is a context of its own.
    let kinds = thread.context_kinds();
    let mut own = kinds.iter().rev().take_while(|kind| **kind != ContextKind::DeferredProcedureCall);
    if own.any(|kind| *kind == ContextKind::CompletionRoutine) {
        let rule = format!("{function} is called from a completion routine: such calls nest without end");
        broken(Group::Netio, object, rule);
    }
}

/// When a packet is completed that waits for nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerTime {
    /// Inside the call, or later.
    Any,
    /// So is this one, and the function returns its status.
    Refused,
    Inside,
}

/// Completes a packet; what the function returns.
fn answer(finished: Finished, time: AnswerTime) -> NtStatus {
    let status = finished.answer.status;
    if time == AnswerTime::Inside || chance::once_in(2) {
        finished.deliver();
        return status;
    }
    if time == AnswerTime::Any {
        finished.packet.mark_pending();
    }
    late::queue(move || finished.deliver());
    if time == AnswerTime::Any { status::STATUS_PENDING } else { status }
}

fn enter(socket: *const WSK_SOCKET, function: &'static str) -> SocketId {
    let socket = socket as usize;
    check_caller(socket, function);
    let entered = stack().enter(socket, function);
    let id = entered.unwrap_or_else(|rule| broken(Group::Netio, socket, rule));
    schedule::point(Thread::current(), &function);
    id
}

/// A function of a socket, from its checks to its return. The step has the sockets locked.
fn call(
    socket: *const WSK_SOCKET,
    function: &'static str,
    irp: *mut IRP,
    step: impl FnOnce(&mut Stack, SocketId) -> CallOutcome,
) -> NtStatus {
    let id = enter(socket, function);
    let packet = Taken::take(irp, function);
    let fails = fault::should_fail(function);
    let mut locked = stack();
    let outcome = if fails {
        short_of_memory(&mut locked, id, function)
    } else if locked.socket(id).is_some_and(|socket| socket.is_forced) {
        status::STATUS_FILE_FORCED_CLOSED.into()
    } else {
        step(&mut locked, id)
    };
    let Some(client) = locked.socket(id).map(|socket| Arc::clone(&socket.client)) else {
        drop(locked);
        broken(Group::Netio, socket as usize, format!("{function} is called for a socket that is being closed"));
    };
    locked.begin_request(id);
    client.request_begins();
    let mut lanes: Vec<LaneId> = Vec::new();
    let mut result = None;
    match outcome {
        CallOutcome::Waits(wait) => {
            packet.mark_pending();
            lanes.extend(locked.wait(id, packet, wait));
        }
        CallOutcome::Done(done) => result = Some((packet, done, AnswerTime::Any)),
        CallOutcome::Refused(done) => result = Some((packet, done, AnswerTime::Refused)),
        CallOutcome::Inside(done) => result = Some((packet, done, AnswerTime::Inside)),
        CallOutcome::Ended(done) => {
            lanes.extend([(id, LaneDirection::Outgoing), (id, LaneDirection::Incoming)]);
            result = Some((packet, done, AnswerTime::Any));
        }
    }
    lanes.extend(locked.woken());
    drop(locked);
    kick(lanes);
    let returned = result.map_or(status::STATUS_PENDING, |(packet, done, time)| {
        answer(Finished { socket: Some(id), client, packet, answer: done }, time)
    });
    if function == SEND {
        chance::linger_behind_a_send();
    }
    schedule::point(Thread::current(), &function);
    stack().leave(id, function);
    returned
}

/// There is no memory for a call.
fn short_of_memory(stack: &mut Stack, id: SocketId, function: &str) -> CallOutcome {
    const STATUS: NtStatus = status::STATUS_INSUFFICIENT_RESOURCES;
    if function != SEND {
        return STATUS.into();
    }
    if chance::once_in(3) {
        // It has taken the bytes: it sends them in their order or not at all.
        stack.break_off(id);
        return CallOutcome::Ended(STATUS.into());
    }
    if chance::once_in(2) {
        // Fewer bytes than were asked for.
        stack.leave_gap(id);
        return CallOutcome::Inside(SocketAnswer::of(SUCCESS, 0));
    }
    refuse_send(stack, id, STATUS)
}

/// The connection goes on without the bytes of a send.
fn refuse_send(stack: &mut Stack, id: SocketId, status: NtStatus) -> CallOutcome {
    stack.leave_gap(id);
    CallOutcome::Refused(status.into())
}

fn not_modelled(object: usize, function: &str, what: &str) -> ! {
    broken(Group::Netio, object, format!("{function}: {what} is not modelled"))
}

/// The functions of a connection, in the order of their table; what is not bound says so.
fn connection_table() -> usize {
    static TABLE: OnceLock<[usize; 13]> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table = [host_function(no_function as *const c_void, 4) as usize; 13];
        table[0] = host_function(control_socket as *const c_void, 10) as usize;
        table[1] = host_function(close_socket as *const c_void, 2) as usize;
        table[2] = host_function(bind as *const c_void, 4) as usize;
        table[3] = host_function(connect as *const c_void, 4) as usize;
        table[4] = host_function(get_local_address as *const c_void, 3) as usize;
        table[5] = host_function(get_remote_address as *const c_void, 3) as usize;
        table[6] = host_function(send as *const c_void, 4) as usize;
        table[7] = host_function(receive as *const c_void, 4) as usize;
        table[8] = host_function(disconnect as *const c_void, 4) as usize;
        table
    });
    from_ref(table) as usize
}

/// The functions of a listening socket.
fn listening_table() -> usize {
    static TABLE: OnceLock<[usize; 6]> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table = [host_function(no_function as *const c_void, 4) as usize; 6];
        table[0] = host_function(control_socket as *const c_void, 10) as usize;
        table[1] = host_function(close_socket as *const c_void, 2) as usize;
        table[2] = host_function(bind as *const c_void, 4) as usize;
        table[3] = host_function(accept as *const c_void, 7) as usize;
        table[5] = host_function(get_local_address as *const c_void, 3) as usize;
        table
    });
    from_ref(table) as usize
}

fn memory_of(kind: Kind) -> SocketMemory {
    let table = match kind {
        Kind::Listening => listening_table(),
        Kind::Connection => connection_table(),
        Kind::Datagram => datagram::table(),
    };
    SocketMemory::new(WSK_SOCKET { Dispatch: table as *const c_void })
}

unsafe extern "win64" fn no_function(socket: u64, _b: u64, _c: u64, _d: u64) -> u64 {
    not_modelled(socket as usize, "a function of a WSK socket", "this one")
}

/// `WskSocket`.
pub(super) unsafe extern "win64" fn socket(
    client: u64,
    family: u16,
    kind: u16,
    protocol: u32,
    flags: u32,
    _context: u64,
    dispatch: u64,
    _process: u64,
    _thread: u64,
    _descriptor: u64,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskSocket";
    check_caller(client as usize, NAME);
    let client = client::captured_by(client as usize, NAME);
    if dispatch != 0 {
        not_modelled(dispatch as usize, NAME, "a table of event callbacks");
    }
    let packet = Taken::take(irp, NAME);
    let kind = match (flags, kind, protocol) {
        (WSK_FLAG_LISTEN_SOCKET, SOCK_STREAM, IPPROTO_TCP) => Some(Kind::Listening),
        (WSK_FLAG_CONNECTION_SOCKET, SOCK_STREAM, IPPROTO_TCP) => Some(Kind::Connection),
        (WSK_FLAG_DATAGRAM_SOCKET, SOCK_DGRAM, IPPROTO_UDP) => Some(Kind::Datagram),
        _ => None,
    };
    let done: SocketAnswer = match kind.filter(|_| matches!(family, AF_INET | AF_INET6)) {
        None => status::STATUS_NOT_SUPPORTED.into(),
        Some(_) if fault::should_fail(NAME) => status::STATUS_INSUFFICIENT_RESOURCES.into(),
        Some(kind) => SocketAnswer::of(SUCCESS, make(&client, kind, family == AF_INET6)),
    };
    client.request_begins();
    answer(Finished { socket: None, client, packet, answer: done }, AnswerTime::Any)
}

fn make(client: &Arc<Client>, kind: Kind, v6: bool) -> usize {
    let memory = memory_of(kind);
    client.socket_begins();
    crate::ledger::record(LEDGER_KIND, memory.as_pointer() as usize, "");
    stack().add(memory, Arc::clone(client), kind, v6, State::Made)
}

unsafe extern "win64" fn control_socket(
    socket: *const WSK_SOCKET,
    request: u32,
    code: u32,
    level: u32,
    input_size: u64,
    input: *const u32,
    _output_size: u64,
    _output: u64,
    _returned: u64,
    irp: *mut IRP,
) -> NtStatus {
    let no_delay = (request, code, level, input_size) == (SET_OPTION, TCP_NODELAY, IPPROTO_TCP, 4) && !input.is_null();
    call(socket, "WskControlSocket", irp, |stack, id| {
        let is_tcp = stack.socket(id).is_some_and(|socket| socket.kind != Kind::Datagram);
        if no_delay && is_tcp { SUCCESS } else { status::STATUS_NOT_SUPPORTED }.into()
    })
}

unsafe extern "win64" fn close_socket(socket: *const WSK_SOCKET, irp: *mut IRP) -> NtStatus {
    const NAME: &str = "WskCloseSocket";
    let id = enter(socket, NAME);
    let packet = Taken::take(irp, NAME);
    packet.mark_pending();
    let mut locked = stack();
    if let Some(other) = locked.executing_besides(id, NAME) {
        drop(locked);
        let rule = format!("{NAME} is called while {other} of the socket has not returned");
        broken(Group::Netio, socket as usize, rule);
    }
    if let Some(socket) = locked.socket(id) {
        socket.client.request_begins();
    }
    let mut closing = locked.close(id, packet);
    closing.lanes.extend(locked.woken());
    drop(locked);
    drop(closing.unused);
    kick(closing.lanes);
    if let Some(closed) = closing.closed {
        if chance::once_in(3) {
            closed.deliver();
        } else {
            late::queue(move || closed.deliver());
        }
    }
    status::STATUS_PENDING
}

/// An address that a driver passes, of the family of its socket.
fn address_of(stack: &mut Stack, id: SocketId, address: usize) -> Option<SocketAddr> {
    let v6 = stack.socket(id)?.v6;
    // SAFETY: not null; a structure of the driver's.
    let found = if address == 0 { None } else { unsafe { address::read(address) } };
    found.filter(|found| found.is_ipv6() == v6)
}

unsafe extern "win64" fn bind(socket: *const WSK_SOCKET, local: usize, flags: u32, irp: *mut IRP) -> NtStatus {
    call(socket, "WskBind", irp, |stack, id| {
        let Some(wanted) = address_of(stack, id, local).filter(|_| flags == 0) else {
            return status::STATUS_INVALID_PARAMETER.into();
        };
        let Some((kind, State::Made)) = stack.socket(id).map(|socket| (socket.kind, socket.state)) else {
            return status::STATUS_INVALID_DEVICE_STATE.into();
        };
        let bound = match kind {
            Kind::Datagram => stack.network.bind_datagrams(wanted),
            Kind::Listening | Kind::Connection => stack.network.bind(wanted, kind == Kind::Listening),
        };
        match bound {
            Ok(port) => {
                if let Some(socket) = stack.socket(id) {
                    socket.state = State::Bound(port);
                }
                SUCCESS.into()
            }
            Err(error) => CallOutcome::Done(error.into()),
        }
    })
}

unsafe extern "win64" fn connect(socket: *const WSK_SOCKET, remote: usize, flags: u32, irp: *mut IRP) -> NtStatus {
    let mut waits = None;
    let returned = call(socket, "WskConnect", irp, |stack, id| {
        let Some(wanted) = address_of(stack, id, remote).filter(|_| flags == 0) else {
            return status::STATUS_INVALID_PARAMETER.into();
        };
        let Some(State::Bound(port)) = stack.socket(id).map(|socket| socket.state) else {
            return status::STATUS_INVALID_DEVICE_STATE.into();
        };
        if let Some(socket) = stack.socket(id) {
            socket.state = State::Connecting(port, None);
        }
        let number = stack.attempt();
        let ip = wanted.ip();
        let may_wait = stack.network.is_silent(ip) || stack.network.is_outside(ip) || stack.network.is_on_link(ip);
        waits = may_wait.then_some((id, number));
        CallOutcome::Waits(Wait::Connect { remote: wanted, number })
    });
    if let Some((id, number)) = waits {
        late::after(CONNECT_TIME, move || {
            let lane = stack().give_up(id, number);
            kick(lane.into_iter().collect());
        });
    }
    returned
}

unsafe extern "win64" fn get_local_address(socket: *const WSK_SOCKET, to: usize, irp: *mut IRP) -> NtStatus {
    call(socket, "WskGetLocalAddress", irp, |stack, id| {
        let Some((state, v6)) = stack.socket(id).map(|socket| (socket.state, socket.v6)) else {
            return status::STATUS_INVALID_DEVICE_STATE.into();
        };
        let connected = state.connection().and_then(|stream| stack.network.addresses(stream));
        let bound = || state.port().map(|port| stack.network.bound_address(port));
        let found = connected.map(|(local, _)| local).or_else(bound);
        written(to, found.unwrap_or_else(|| SocketAddr::new(any(v6), 0)))
    })
}

unsafe extern "win64" fn get_remote_address(socket: *const WSK_SOCKET, to: usize, irp: *mut IRP) -> NtStatus {
    call(socket, "WskGetRemoteAddress", irp, |stack, id| {
        let connection = stack.socket(id).and_then(|socket| socket.state.connection());
        match connection.and_then(|stream| stack.network.addresses(stream)) {
            Some((_, remote)) => written(to, remote),
            None => status::STATUS_INVALID_DEVICE_STATE.into(),
        }
    })
}

fn written(to: usize, found: SocketAddr) -> CallOutcome {
    if to == 0 {
        return status::STATUS_INVALID_PARAMETER.into();
    }
    CallOutcome::Done(SocketAnswer { addresses: vec![(to, found)], ..SocketAnswer::of(SUCCESS, 0) })
}

fn is_connected(stack: &mut Stack, id: SocketId) -> bool {
    stack.socket(id).is_some_and(|socket| socket.state.connection().is_some())
}

unsafe extern "win64" fn send(
    socket: *const WSK_SOCKET,
    buffer: *const WSK_BUF,
    flags: u32,
    irp: *mut IRP,
) -> NtStatus {
    // SAFETY: the driver's structure.
    let buffer = unsafe { Buffer::read(buffer, SEND) };
    check_not_ended(socket, SEND);
    check_no_gap(socket, SEND);
    call(socket, SEND, irp, |stack, id| match buffer {
        Some(_) if flags & !WSK_FLAG_NODELAY != 0 => refuse_send(stack, id, status::STATUS_INVALID_PARAMETER),
        Some(_) if !is_connected(stack, id) => status::STATUS_INVALID_DEVICE_STATE.into(),
        Some(buffer) => CallOutcome::Waits(Wait::Send { buffer, sent: 0 }),
        None => short_of_memory(stack, id, SEND),
    })
}

/// Nothing is sent behind bytes that TCP has not taken, the end neither: whole messages would be missing, and the peer could not know.
fn check_no_gap(socket: *const WSK_SOCKET, function: &str) {
    if stack().has_gap(socket as usize) {
        let rule =
            format!("{function} is called for a socket after a WskSend that has failed: the peer's stream has a gap");
        broken(Group::Netio, socket as usize, rule);
    }
}

/// Nothing is sent behind the end that the driver has asked for.
fn check_not_ended(socket: *const WSK_SOCKET, function: &str) {
    if stack().is_ending(socket as usize) {
        let rule = format!("{function} is called for a socket after its WskDisconnect");
        broken(Group::Netio, socket as usize, rule);
    }
}

unsafe extern "win64" fn receive(
    socket: *const WSK_SOCKET,
    buffer: *const WSK_BUF,
    flags: u32,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskReceive";
    // SAFETY: the driver's structure.
    let buffer = unsafe { Buffer::read(buffer, NAME) };
    call(socket, NAME, irp, |stack, id| match buffer {
        Some(_) if flags != 0 => status::STATUS_NOT_SUPPORTED.into(),
        // Its completion could not be distinguished from the peer's end.
        Some(buffer) if buffer.length() == 0 => status::STATUS_NOT_SUPPORTED.into(),
        Some(_) if !is_connected(stack, id) => status::STATUS_INVALID_DEVICE_STATE.into(),
        Some(buffer) => CallOutcome::Waits(Wait::Receive { buffer }),
        None => status::STATUS_INSUFFICIENT_RESOURCES.into(),
    })
}

unsafe extern "win64" fn disconnect(
    socket: *const WSK_SOCKET,
    buffer: *const WSK_BUF,
    flags: u32,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskDisconnect";
    if flags & WSK_FLAG_ABORTIVE == 0 {
        check_no_gap(socket, NAME);
    }
    call(socket, NAME, irp, |stack, id| {
        if !buffer.is_null() || flags & !WSK_FLAG_ABORTIVE != 0 {
            return status::STATUS_NOT_SUPPORTED.into();
        }
        let Some(socket) = stack.socket(id) else { return status::STATUS_INVALID_DEVICE_STATE.into() };
        let (stream, ending) = (socket.state.connection(), socket.ending);
        match (stream, flags, ending) {
            (None, ..) | (_, 0, Some(_)) => status::STATUS_INVALID_DEVICE_STATE.into(),
            (_, 0, None) => {
                socket.ending = Some(Ending::Graceful);
                CallOutcome::Waits(Wait::Disconnect)
            }
            (Some(stream), ..) => {
                socket.ending = Some(Ending::Abortive);
                stack.network.reset(stream);
                CallOutcome::Ended(SUCCESS.into())
            }
        }
    })
}

unsafe extern "win64" fn accept(
    socket: *const WSK_SOCKET,
    flags: u32,
    _context: u64,
    dispatch: u64,
    local: usize,
    remote: usize,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskAccept";
    if dispatch != 0 {
        not_modelled(dispatch as usize, NAME, "a table of event callbacks");
    }
    // Made, and dropped if unused, here: the pool is not called with the sockets locked.
    let mut memory = Some(memory_of(Kind::Connection));
    call(socket, NAME, irp, |stack, id| {
        if flags != 0 {
            return status::STATUS_INVALID_PARAMETER.into();
        }
        let bound = matches!(stack.socket(id).map(|socket| socket.state), Some(State::Bound(_)));
        match memory.take_if(|_| bound) {
            Some(memory) => CallOutcome::Waits(Wait::Accept { memory, local, remote }),
            None => status::STATUS_INVALID_DEVICE_STATE.into(),
        }
    })
}
