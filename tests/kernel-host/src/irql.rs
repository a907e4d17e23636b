//! Interrupt request levels: the numbers, the range that an export or a callback allows, and raising and lowering the level of
//! the current kernel thread. The level is a property of the thread; its meaning (one thread per processor at DISPATCH) is in
//! [`crate::processor`].

use crate::bugcheck::{BugCheck, bugcheck};
use crate::level_charge;
use crate::processor;
use crate::thread::Thread;

pub type Irql = u8;

pub const PASSIVE: Irql = 0;
pub const APC: Irql = 1;
pub const DISPATCH: Irql = 2;
pub const HIGH: Irql = 15;

/// The levels at which something may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrqlRange {
    pub lowest: Irql,
    pub highest: Irql,
}

impl IrqlRange {
    pub const PASSIVE_ONLY: Self = Self { lowest: PASSIVE, highest: PASSIVE };
    pub const UP_TO_APC: Self = Self { lowest: PASSIVE, highest: APC };
    pub const UP_TO_DISPATCH: Self = Self { lowest: PASSIVE, highest: DISPATCH };
    pub const DISPATCH_ONLY: Self = Self { lowest: DISPATCH, highest: DISPATCH };
    pub const FROM_DISPATCH: Self = Self { lowest: DISPATCH, highest: HIGH };
    pub const ANY: Self = Self { lowest: PASSIVE, highest: HIGH };

    #[inline]
    pub const fn contains(self, irql: Irql) -> bool {
        irql >= self.lowest && irql <= self.highest
    }

    /// The form of the documentation.
    pub fn describe(self) -> &'static str {
        match (self.lowest, self.highest) {
            (PASSIVE, PASSIVE) => "PASSIVE_LEVEL",
            (PASSIVE, APC) => "<= APC_LEVEL",
            (PASSIVE, DISPATCH) => "<= DISPATCH_LEVEL",
            (DISPATCH, DISPATCH) => "DISPATCH_LEVEL",
            (DISPATCH, HIGH) => ">= DISPATCH_LEVEL",
            _ => "any level",
        }
    }
}

pub fn name(irql: Irql) -> &'static str {
    match irql {
        PASSIVE => "PASSIVE_LEVEL",
        APC => "APC_LEVEL",
        DISPATCH => "DISPATCH_LEVEL",
        _ => "a device level",
    }
}

/// The current thread's level.
#[inline]
pub fn current() -> Irql {
    Thread::current().irql()
}

/// Raises the current thread to `new` and returns the level before. Taking the processor happens here when the level
/// crosses DISPATCH. Lowering by this call is the bugcheck that Windows has for it.
#[inline]
pub fn raise(new: Irql) -> Irql {
    let thread = Thread::current();
    let old = thread.irql();
    if new < old {
        raised_downwards(old, new);
    }
    if old < DISPATCH && new >= DISPATCH {
        processor::acquire(thread);
        crate::memory::paged::trim();
        crate::level_time::raised(thread);
    }
    thread.set_irql(new);
    if new != old {
        level_charge::level_changed();
    }
    old
}

/// Lowers the current thread to `new`; below DISPATCH the processor first runs its queued DPCs and is then given up.
#[inline]
pub fn lower(new: Irql) {
    let thread = Thread::current();
    let old = thread.irql();
    if new > old {
        lowered_upwards(old, new);
    }
    if old >= DISPATCH && new < DISPATCH {
        crate::level_time::lowered(thread);
        processor::release(thread, new);
    } else {
        thread.set_irql(new);
    }
    if new != old {
        level_charge::level_changed();
    }
}

#[cold]
#[inline(never)]
extern "win64" fn raised_downwards(old: Irql, new: Irql) -> ! {
    bugcheck(
        BugCheck::IRQL_NOT_GREATER_OR_EQUAL,
        [u64::from(old), u64::from(new), 0, 0],
        format!("KeRaiseIrql called to go from {} down to {}", name(old), name(new)),
    )
}

#[cold]
#[inline(never)]
extern "win64" fn lowered_upwards(old: Irql, new: Irql) -> ! {
    bugcheck(
        BugCheck::IRQL_NOT_LESS_OR_EQUAL,
        [u64::from(old), u64::from(new), 0, 0],
        format!("KeLowerIrql called to go from {} up to {}", name(old), name(new)),
    )
}
