//! Rundown protection: users take short references, the owner shuts the gate and waits until the last one left.

use core::cell::UnsafeCell;

use wdk_sys::{
    EX_RUNDOWN_REF,
    ntddk::{
        ExAcquireRundownProtection, ExInitializeRundownProtection, ExReInitializeRundownProtection,
        ExReleaseRundownProtection, ExRundownCompleted, ExWaitForRundownProtectionRelease,
    },
};

use crate::pool::{NoMemory, PoolBox, Tag};

pub struct Rundown {
    // A waiter hangs its wait block on the reference, so it must not move.
    reference: PoolBox<UnsafeCell<EX_RUNDOWN_REF>>,
}

// SAFETY: the executive updates the reference with interlocked operations only.
unsafe impl Send for Rundown {}
// SAFETY: as above.
unsafe impl Sync for Rundown {}

impl Rundown {
    /// A gate that lets users in.
    pub fn try_open(tag: Tag) -> Result<Self, NoMemory> {
        let reference = PoolBox::try_new(tag, UnsafeCell::new(EX_RUNDOWN_REF::default()))?;
        // SAFETY: the block is non-paged and not yet in use.
        unsafe { ExInitializeRundownProtection(reference.get()) };
        Ok(Self { reference })
    }

    /// A gate that is shut; [`Rundown::reopen`] opens it.
    pub fn try_shut(tag: Tag) -> Result<Self, NoMemory> {
        let gate = Self::try_open(tag)?;
        gate.shut();
        Ok(gate)
    }

    /// Takes a reference, or nothing once the gate is shut. `IRQL <= DISPATCH_LEVEL`.
    pub fn enter(&self) -> Option<RundownGuard<'_>> {
        // Lazily: a guard that is made for a refused entry would give back a reference that was not taken.
        self.acquire().then(|| RundownGuard { gate: self })
    }

    /// As [`Rundown::enter`] for references that outlive the caller; pair with [`Rundown::release`].
    pub fn acquire(&self) -> bool {
        // SAFETY: initialised by `try_open` and non-paged.
        unsafe { ExAcquireRundownProtection(self.reference.get()) != 0 }
    }

    /// Gives back a reference taken by [`Rundown::acquire`].
    pub fn release(&self) {
        // SAFETY: the caller holds a reference.
        unsafe { ExReleaseRundownProtection(self.reference.get()) };
    }

    /// Shuts the gate and waits until every user left. PASSIVE_LEVEL. Shutting a shut gate does nothing.
    pub fn shut(&self) {
        // SAFETY: initialised; the callers run at PASSIVE_LEVEL and hold no reference of their own.
        unsafe { ExWaitForRundownProtectionRelease(self.reference.get()) };
        // SAFETY: the wait above has returned, which is what ExRundownCompleted asks for.
        unsafe { ExRundownCompleted(self.reference.get()) };
    }

    /// Opens a gate that was shut.
    pub fn reopen(&self) {
        // SAFETY: the gate was run down completely (`shut`), which is what re-initialisation asks for.
        unsafe { ExReInitializeRundownProtection(self.reference.get()) };
    }
}

pub struct RundownGuard<'a> {
    gate: &'a Rundown,
}

impl Drop for RundownGuard<'_> {
    fn drop(&mut self) {
        self.gate.release();
    }
}
