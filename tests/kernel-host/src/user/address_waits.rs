//! Waits for a change of a value in memory, by its address: what WaitOnAddress, and the run-time library's locks over it, are made of.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::event;
use super::process::ProcessState;
use crate::dispatcher::{Event, Time};
use crate::status::STATUS_SUCCESS;

/// Who waits for a change at an address, the first one first.
#[derive(Default)]
pub(super) struct AddressWaits(Mutex<HashMap<usize, Vec<Arc<Event>>>>);

/// Reads 1, 2, 4 or 8 bytes of the program's.
fn value_at(address: usize, size: usize) -> u64 {
    // SAFETY: the program's memory; other threads of it write it meanwhile.
    unsafe {
        match size {
            1 => u64::from((address as *const u8).read_volatile()),
            2 => u64::from((address as *const u16).read_volatile()),
            4 => u64::from((address as *const u32).read_volatile()),
            _ => (address as *const u64).read_volatile(),
        }
    }
}

impl AddressWaits {
    fn with<T>(&self, body: impl FnOnce(&mut HashMap<usize, Vec<Arc<Event>>>) -> T) -> T {
        body(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits while the value is the compared one; false when the time ran out.
    pub fn wait(
        &self,
        process: &ProcessState,
        address: usize,
        compared: usize,
        size: usize,
        deadline: Option<Time>,
    ) -> bool {
        let wanted = value_at(compared, size);
        let woken = Arc::new(Event::notification());
        // A fault in the first look ends the process before the table is held.
        if value_at(address, size) != wanted {
            return true;
        }
        let waits = self.with(|waits| {
            let same = value_at(address, size) == wanted;
            if same {
                waits.entry(address).or_default().push(Arc::clone(&woken));
            }
            same
        });
        if !waits || event::wait(process, &woken, deadline) == STATUS_SUCCESS {
            return true;
        }
        self.with(|waits| {
            let Some(list) = waits.get_mut(&address) else { return };
            list.retain(|other| !Arc::ptr_eq(other, &woken));
            if list.is_empty() {
                waits.remove(&address);
            }
        });
        false
    }

    pub fn wake(&self, address: usize, all: bool) {
        let woken = self.with(|waits| {
            let Some(list) = waits.get_mut(&address) else { return Vec::new() };
            let count = if all { list.len() } else { 1 };
            let woken = list.drain(..count.min(list.len())).collect::<Vec<_>>();
            if list.is_empty() {
                waits.remove(&address);
            }
            woken
        });
        for event in &woken {
            event.set();
        }
    }
}
