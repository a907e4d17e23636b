//! WaitOnAddress and its wakes, over which the run-time library makes its locks.

use super::fails;
use crate::user::call::system_call;
use crate::user::event;

const ERROR_TIMEOUT: u32 = 1460;

crate::exports! {
    module "kernel32.dll";

    /// Waits while the value at the address is the compared one, in virtual time.
    /// Source: Win32: WaitOnAddress
    [PASSIVE_ONLY] fn WaitOnAddress(address: usize, compared: usize, size: usize, milliseconds: u32) -> u32 {
        system_call(|process| {
            let deadline = event::deadline_of(milliseconds);
            let changed = process.program.address_waits.wait(process, address, compared, size, deadline);
            if changed { 1 } else { fails(ERROR_TIMEOUT) }
        })
    }

    /// Source: Win32: WakeByAddressSingle
    [PASSIVE_ONLY] fn WakeByAddressSingle(address: usize) {
        system_call(|process| process.program.address_waits.wake(address, false));
    }

    /// Source: Win32: WakeByAddressAll
    [PASSIVE_ONLY] fn WakeByAddressAll(address: usize) {
        system_call(|process| process.program.address_waits.wake(address, true));
    }
}
