//! Cancelling a packet: the cancel spin lock, the flag, the driver's cancel routine (WDM: IoCancelIrp, IoSetCancelRoutine).
//!
//! The routine is taken out of the packet while the packet cannot be completed, so for a driver that lost the race its routine
//! runs; the routine gives the cancel spin lock back.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::irp::{ActiveIrp, with_live};
use crate::bugcheck::{BugCheck, bugcheck};
use crate::call_image;
use crate::callout::{Context, ContextKind};
use crate::irql::{self, Irql};
use crate::spin_lock::{self, Manner};
use crate::thread::Thread;

static CANCEL_LOCK: AtomicUsize = AtomicUsize::new(0);

/// Takes the system's cancel spin lock; the level before.
fn acquire() -> Irql {
    let level = irql::raise(irql::DISPATCH);
    // SAFETY: an initialised lock (0 is free) that is never freed.
    unsafe { spin_lock::acquire(Thread::current(), CANCEL_LOCK.as_ptr(), Manner::Plain) };
    level
}

/// Gives the cancel spin lock back.
pub(crate) fn release(level: Irql) {
    // SAFETY: as above; a release by a thread that does not hold it is reported.
    unsafe { spin_lock::release(Thread::current(), CANCEL_LOCK.as_ptr(), Manner::Plain) };
    irql::lower(level);
}

/// Cancels a packet; `false` when it is completed already.
pub fn cancel(packet: &ActiveIrp) -> bool {
    let level = acquire();
    let routine = with_live(packet, |irp| {
        // SAFETY: the packet is live while the closure runs. The routine's field is exchanged atomically, as drivers do.
        unsafe {
            (*irp).Cancel = 1;
            (*irp).CancelIrql = level;
            AtomicPtr::from_ptr(&raw mut (*irp).CancelRoutine).swap(std::ptr::null_mut(), Ordering::SeqCst)
        }
    });
    match routine {
        Some(routine) if !routine.is_null() => {
            let context = Context::new(ContextKind::CancelRoutine, "cancel routine");
            let device: *mut c_void = packet.device.object().cast();
            // SAFETY: the routine that the driver set for this packet, with the arguments of DRIVER_CANCEL.
            unsafe { call_image!(context, routine => (); device, packet.address()) };
            check_routine_released(level);
            true
        }
        found => {
            release(level);
            found.is_some()
        }
    }
}

/// A cancel routine is entered with the cancel spin lock and gives it back, at the level that the packet remembers.
fn check_routine_released(level: Irql) {
    let now = irql::current();
    if now != level {
        bugcheck(
            BugCheck::IRQL_UNEXPECTED_VALUE,
            [u64::from(now) << 16 | u64::from(level) << 8, 0, 0, 0],
            format!("a cancel routine returned at {} instead of {}", irql::name(now), irql::name(level)),
        );
    }
}

crate::exports! {
    module "ntoskrnl.exe";

    /// Takes the system's cancel spin lock.
    /// Checks: not recursive.
    /// Source: WDM: IoAcquireCancelSpinLock
    [UP_TO_DISPATCH] fn IoAcquireCancelSpinLock(level: *mut Irql) {
        let old = acquire();
        // SAFETY: the caller's out parameter.
        unsafe { level.write(old) };
    }

    /// Gives the system's cancel spin lock back.
    /// Checks: held by the caller, at DISPATCH_LEVEL.
    /// Source: WDM: IoReleaseCancelSpinLock
    [DISPATCH_ONLY] fn IoReleaseCancelSpinLock(level: Irql) {
        release(level);
    }
}
