//! Privileges of the thread that asks: what an opener of a device may do beside opening it.

use crate::io::security;

crate::exports! {
    module "ntoskrnl.exe";

    /// Whether the caller of the current thread holds a privilege: kernel mode holds all; otherwise the opener whose IRP_MJ_CREATE
    /// is being dispatched is asked.
    /// Checks: a privilege this host knows; asked for user mode inside a create request only, where the thread is the opener's.
    /// Source: NTDDK: SeSinglePrivilegeCheck
    [PASSIVE_ONLY] fn SeSinglePrivilegeCheck(privilege: u64, previous_mode: u8) -> u8 {
        u8::from(previous_mode == 0 || security::opener_holds(privilege))
    }
}
