//! A gate that callers pass while it is open and that, once shut, is waited at until the last caller has left: how the host keeps
//! its own calls into a miniport from meeting the end of a pause or a halt.

use std::sync::MutexGuard;

use crate::dispatcher::Event;
use crate::host_lock::HostLock;

#[derive(Default)]
struct Inside {
    count: usize,
    shut: bool,
}

/// Open at first.
pub struct Gate {
    inside: HostLock<Inside>,
    empty: Event,
}

impl Default for Gate {
    fn default() -> Self {
        Self { inside: HostLock::default(), empty: Event::notification() }
    }
}

/// A caller inside; leaves when dropped.
pub struct RundownReference<'a>(&'a Gate);

impl Gate {
    /// Goes in, unless the gate is shut.
    pub fn enter(&self) -> Option<RundownReference<'_>> {
        let mut inside = self.lock();
        if inside.shut {
            return None;
        }
        inside.count += 1;
        Some(RundownReference(self))
    }

    /// Refuses new references and waits for those that exist.
    pub fn shut(&self) {
        loop {
            {
                let mut inside = self.lock();
                inside.shut = true;
                if inside.count == 0 {
                    return;
                }
                // Within the hold that saw a caller: one that waits here already has its wake-up still to come.
                self.empty.reset();
            }
            self.empty.wait(None);
        }
    }

    /// Opens a shut gate again.
    pub fn open(&self) {
        self.lock().shut = false;
    }

    /// The end of a reference that stayed.
    pub fn leave(&self) {
        let mut inside = self.lock();
        inside.count = inside.count.saturating_sub(1);
        let last = inside.count == 0;
        drop(inside);
        if last {
            self.empty.set();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock()
    }
}

impl RundownReference<'_> {
    /// Stays inside beyond this borrow; the caller owes a [`Gate::leave`].
    pub fn stay(self) {
        std::mem::forget(self);
    }
}

impl Drop for RundownReference<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
