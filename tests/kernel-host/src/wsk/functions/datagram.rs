//! The functions of datagram sockets.

use std::ffi::c_void;
use std::ptr::from_ref;
use std::sync::OnceLock;

use ndkpi_sys::wsk::{WSK_BUF, WSK_SOCKET};

use super::{
    CallOutcome, address_of, bind, call, close_socket, control_socket, get_local_address, host_function, no_function,
    not_modelled,
};
use crate::memory::mdl;
use crate::ndis::rule::{Group, broken};
use crate::nt::IRP;
use crate::status::{self, NtStatus};
use crate::wsk::buffer::Buffer;
use crate::wsk::socket::{Wait, stack};

/// The functions, in the order of their table; what is not bound says so.
pub(super) fn table() -> usize {
    static TABLE: OnceLock<[usize; 8]> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table = [host_function(no_function as *const c_void, 4) as usize; 8];
        table[0] = host_function(control_socket as *const c_void, 10) as usize;
        table[1] = host_function(close_socket as *const c_void, 2) as usize;
        table[2] = host_function(bind as *const c_void, 4) as usize;
        table[3] = host_function(send_to as *const c_void, 7) as usize;
        table[4] = host_function(receive_from as *const c_void, 8) as usize;
        table[6] = host_function(get_local_address as *const c_void, 3) as usize;
        table
    });
    from_ref(table) as usize
}

/// Datagrams go from a port and come to one.
fn check_bound(socket: *const WSK_SOCKET, function: &str) {
    if stack().is_unbound(socket as usize) {
        broken(Group::Netio, socket as usize, format!("{function} is called for a socket that is not bound"));
    }
}

/// Where the completion writes, at whatever level.
fn check_resident(place: usize, function: &str) {
    if let Some(what) = mdl::pageable(place) {
        let rule = format!("{function} is given an address to write to in {what}, which is pageable");
        broken(Group::Netio, place, rule);
    }
}

unsafe extern "win64" fn send_to(
    socket: *const WSK_SOCKET,
    buffer: *const WSK_BUF,
    flags: u32,
    remote: usize,
    control_length: u32,
    control: usize,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskSendTo";
    if control_length != 0 || control != 0 {
        not_modelled(socket as usize, NAME, "control information");
    }
    // SAFETY: the driver's structure.
    let buffer = unsafe { Buffer::read(buffer, NAME) };
    check_bound(socket, NAME);
    call(socket, NAME, irp, |stack, id| {
        let Some(buffer) = buffer else { return status::STATUS_INSUFFICIENT_RESOURCES.into() };
        match address_of(stack, id, remote).filter(|to| flags == 0 && to.port() != 0) {
            Some(to) => CallOutcome::Waits(Wait::SendTo { buffer, to }),
            None => status::STATUS_INVALID_PARAMETER.into(),
        }
    })
}

unsafe extern "win64" fn receive_from(
    socket: *const WSK_SOCKET,
    buffer: *const WSK_BUF,
    flags: u32,
    remote: usize,
    control_length: usize,
    control: usize,
    control_flags: usize,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskReceiveFrom";
    if control_length != 0 || control != 0 {
        not_modelled(socket as usize, NAME, "control information");
    }
    // SAFETY: the driver's structure.
    let buffer = unsafe { Buffer::read(buffer, NAME) };
    check_bound(socket, NAME);
    check_resident(remote, NAME);
    check_resident(control_flags, NAME);
    call(socket, NAME, irp, |_, _| match buffer {
        Some(_) if flags != 0 => status::STATUS_INVALID_PARAMETER.into(),
        Some(buffer) => CallOutcome::Waits(Wait::ReceiveFrom { buffer, from: remote, flags: control_flags }),
        None => status::STATUS_INSUFFICIENT_RESOURCES.into(),
    })
}
