//! A broken rule of NDIS: the bugcheck that ends the run, with the group of the rule as its first parameter.

use std::ffi::c_void;

use super::handle::HandleProblem;
use crate::bugcheck::{BugCheck, bugcheck};

/// What a rule is about: parameter 1 of `BUGCODE_NDIS_DRIVER` in a report of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Group {
    Registration = 0x100,
    Attributes = 0x101,
    Handle = 0x102,
    State = 0x103,
    Oid = 0x104,
    Send = 0x105,
    Receive = 0x106,
    NetBuffer = 0x107,
    Configuration = 0x108,
    WorkItem = 0x109,
    Timer = 0x10A,
    Device = 0x10B,
    PnpEvent = 0x10C,
    StatusIndication = 0x10D,
    Leak = 0x10E,
    Ndk = 0x10F,
    Netio = 0x110,
    DriverObject = 0x111,
}

/// Ends the process with `BUGCODE_NDIS_DRIVER` and the sentence of the rule.
#[cold]
pub fn broken(group: Group, object: usize, rule: impl AsRef<str>) -> ! {
    bugcheck(BugCheck::BUGCODE_NDIS_DRIVER, [group as u64, object as u64, 0, 0], rule)
}

/// The object, or the end because a driver passed something that is no such handle.
pub fn live<T>(found: Result<T, HandleProblem>, function: &str, kind: &str, handle: *mut c_void) -> T {
    match found {
        Ok(object) => object,
        Err(problem) => {
            broken(Group::Handle, handle as usize, format!("{function}: not a live {kind} handle: {problem}"))
        }
    }
}
