//! Registrations of an adapter, by the handles that clients have of them.
//!
//! A handle is a place in a table and a generation, so that one that was given up is found out. The driver's object of a
//! registration that is ended is freed later, when its memory is back: the client's request for the end has its own OVERLAPPED, and
//! would be cancelled by the freeing.

use alloc::vec::Vec;
use core::ffi::c_void;

use softnd_interfaces::Status;

use crate::{
    heap::{put_all, try_list},
    resources::memory_region::MemoryRegion,
    shared::Shared,
    spin_lock::SpinLock,
};

pub struct Regions(SpinLock<Vec<Slot>>);

struct Slot {
    generation: u32,
    region: Option<Shared<MemoryRegion>>,
    /// The client's handle is good no more; the region is kept until its memory is back.
    retired: bool,
}

impl Regions {
    pub fn new() -> Result<Shared<Self>, Status> {
        Shared::new(Self(SpinLock::new(Vec::new())))
    }

    /// The handle's number: never 0, and even.
    fn handle(place: usize, generation: u32) -> *mut c_void {
        ((u64::from(generation) << 32) | (place as u64).wrapping_add(1) << 1) as *mut c_void
    }

    fn place(handle: *mut c_void) -> Option<(usize, u32)> {
        let number = handle as u64;
        let place = ((number as u32) >> 1).checked_sub(1)?;
        Some((place as usize, (number >> 32) as u32))
    }

    /// Adds a region and gives out its handle. NO_MEMORY.
    pub fn insert(&self, region: &Shared<MemoryRegion>) -> Result<*mut c_void, Status> {
        loop {
            let (place, wanted) = {
                let mut slots = self.0.lock();
                let free = slots.iter().position(|slot| slot.region.is_none());
                if let Some(place) = free
                    && let Some(slot) = slots.get_mut(place)
                {
                    *slot = Slot {
                        generation: slot.generation.wrapping_add(1),
                        region: Some(region.clone()),
                        retired: false,
                    };
                    return Ok(Self::handle(place, slot.generation));
                }
                (slots.len(), slots.len().saturating_mul(2).saturating_add(8))
            };
            let mut larger = try_list(wanted)?;
            let mut slots = self.0.lock();
            if slots.len() == place {
                put_all(&mut larger, slots.drain(..));
                let free = || Slot { generation: 0, region: None, retired: false };
                put_all(&mut larger, core::iter::repeat_with(free).take(wanted.saturating_sub(place)));
                core::mem::swap(&mut *slots, &mut larger);
            }
            drop(slots);
        }
    }

    /// The region of a good handle.
    pub fn get(&self, handle: *mut c_void) -> Option<Shared<MemoryRegion>> {
        let (place, generation) = Self::place(handle)?;
        let slots = self.0.lock();
        let slot = slots.get(place).filter(|slot| slot.generation == generation && !slot.retired)?;
        slot.region.clone()
    }

    /// The token of an SGE's handle, 0 for one that is not good.
    pub fn token(&self, handle: *mut c_void) -> u32 {
        if handle.is_null() { 0 } else { self.get(handle).map_or(0, |region| region.local_token()) }
    }

    /// Takes a handle back. `kept`: the region stays until its memory is back.
    pub fn retire(&self, handle: *mut c_void, kept: bool) {
        let Some((place, generation)) = Self::place(handle) else { return };
        let mut slots = self.0.lock();
        let slot = slots.get_mut(place).filter(|slot| slot.generation == generation);
        let gone = slot.and_then(|slot| {
            slot.retired = kept;
            if kept { None } else { slot.region.take() }
        });
        drop(slots);
        drop(gone);
    }

    /// Frees what was retired and has its memory back.
    pub fn sweep(&self) {
        loop {
            let mut slots = self.0.lock();
            let returned = |region: &Shared<MemoryRegion>| region.is_returned();
            let done = slots.iter_mut().find(|slot| slot.retired && slot.region.as_ref().is_some_and(returned));
            let gone = done.and_then(|slot| {
                slot.retired = false;
                slot.region.take()
            });
            drop(slots);
            if gone.is_none() {
                return;
            }
        }
    }

    /// Cancels what pends on every region; the first failure.
    pub fn cancel(&self) -> Result<(), Status> {
        let mut result = Ok(());
        let mut place = 0;
        loop {
            let region = {
                let slots = self.0.lock();
                let Some(slot) = slots.get(place) else { return result };
                slot.region.clone()
            };
            if let Some(region) = region {
                result = result.and(region.cancel());
            }
            place = place.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_even_and_not_null() {
        for (place, generation) in [(0, 0), (7, 3), (1000, u32::MAX)] {
            let handle = Regions::handle(place, generation);
            assert!(!handle.is_null() && (handle as u64).is_multiple_of(2));
            assert_eq!(Regions::place(handle), Some((place, generation)));
        }
        assert_eq!(Regions::place(core::ptr::null_mut()), None);
    }
}
