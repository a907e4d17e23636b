//! A table of objects by slot number whose keys carry a generation.
//!
//! Many contexts read the table without a lock or a count, protected by the epoch they are in, while others insert and remove.
//! A key may outlive its object: the generation no longer fits. Keys are given out, not chosen, and a removed object stays in
//! its slot until [`SlotTable::reclaim`] finds that every reader has left.
//!
//! Rules: slot 0 and generation 0 are never given out; the table grows by blocks that never move; free slots are a stack of
//! numbers with a tag against reuse in between. A slot that was used goes to a second stack, which is taken when the first one
//! is empty: every free slot is used before one comes again, so that a stale key stays stale for as long as the table allows.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr;

use crate::epoch::{Epoch, Guard, Stamp};
use crate::shared::{NoMemory, Shared};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, UnsafeCell, loom_fence};

/// Slots of one block.
#[cfg(not(loom))]
const BLOCK: u32 = 256;
#[cfg(loom)]
const BLOCK: u32 = 2;

const FREE: u32 = 0;
const LIVE: u32 = 2;
const DEAD: u32 = 3;

/// A slot number with a generation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SlotKey {
    pub slot: u32,
    pub generation: u32,
}

struct Slot<T> {
    /// Generation above two bits of phase.
    state: AtomicU32,
    /// The next free slot while this one is free; 0 ends the stack.
    next: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// See the module.
pub struct SlotTable<T> {
    blocks: Box<[AtomicPtr<Slot<T>>]>,
    /// The number of the first free slot below a tag that counts changes.
    free: AtomicU64,
    /// As `free`: slots that have been used since they were last there.
    returned: AtomicU64,
    generations: u32,
    epoch: Shared<Epoch>,
    _owns: PhantomData<T>,
}

// SAFETY: values are shared as `&T` under an epoch and taken by value once no reader is left; `T: Send + Sync` allows both.
unsafe impl<T: Send + Sync> Sync for SlotTable<T> {}
// SAFETY: owning the table is owning its values.
unsafe impl<T: Send + Sync> Send for SlotTable<T> {}

/// A removed object on its way out; give it to [`SlotTable::reclaim`].
#[derive(Debug)]
#[must_use = "the slot stays occupied until it is reclaimed"]
pub struct Removed {
    key: SlotKey,
    stamp: Stamp,
    table: usize,
}

impl Removed {
    /// When its last possible reader has left.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }
}

/// A claimed slot without a value; dropping it frees the slot.
pub struct Vacant<'a, T> {
    table: &'a SlotTable<T>,
    slot: &'a Slot<T>,
    key: SlotKey,
}

impl<T> Vacant<'_, T> {
    /// The key the value will have.
    pub fn key(&self) -> SlotKey {
        self.key
    }

    /// Publishes the value.
    pub fn fill(self, value: T) -> SlotKey {
        self.slot.value.with_mut(|place| {
            // SAFETY: the slot came off the free stack, so it is this context's alone, and it holds no value.
            let place = unsafe { &mut *place };
            place.write(value);
        });
        self.slot.state.store(state_of(self.key.generation, LIVE), Ordering::SeqCst);
        let key = self.key;
        core::mem::forget(self);
        key
    }
}

impl<T> Drop for Vacant<'_, T> {
    fn drop(&mut self) {
        push(&self.table.free, self.key.slot, self.slot);
    }
}

const fn state_of(generation: u32, phase: u32) -> u32 {
    generation << 2 | phase
}

impl<T> SlotTable<T> {
    /// A table of up to `slots` slots (rounded up to a block) with generations 1 to `generations`.
    pub fn try_new(slots: u32, generations: u32, epoch: Shared<Epoch>) -> Result<Self, NoMemory> {
        let count = slots.div_ceil(BLOCK) as usize;
        let mut blocks = Vec::new();
        blocks.try_reserve_exact(count)?;
        blocks.extend((0..count).map(|_| AtomicPtr::new(ptr::null_mut())));
        let free = AtomicU64::new(0);
        let returned = AtomicU64::new(0);
        Ok(Self { blocks: blocks.into_boxed_slice(), free, returned, generations, epoch, _owns: PhantomData })
    }

    /// Claims a free slot, whose key is known before its value.
    pub fn vacant(&self) -> Result<Vacant<'_, T>, NoMemory> {
        let number = match self.pop_free().or_else(|| self.refill()) {
            Some(number) => number,
            // Another context may have taken the returned slots and not put them onto the free stack yet.
            None => self.grow().or_else(|full| self.pop_free().ok_or(full))?,
        };
        let slot = self.slot(number).ok_or(NoMemory)?;
        let generation = slot.state.load(Ordering::Relaxed) >> 2;
        Ok(Vacant { table: self, slot, key: SlotKey { slot: number, generation } })
    }

    /// Puts a value into a free slot; it is given back when there is neither slot nor memory.
    pub fn insert(&self, value: T) -> Result<SlotKey, T> {
        match self.vacant() {
            Ok(vacant) => Ok(vacant.fill(value)),
            Err(NoMemory) => Err(value),
        }
    }

    /// The value under a key, valid as long as the guard.
    #[inline]
    pub fn get<'g>(&'g self, key: SlotKey, guard: &'g Guard<'_>) -> Option<&'g T> {
        if !guard.is_of(&self.epoch) {
            return None;
        }
        loom_fence();
        let slot = self.slot(key.slot)?;
        if slot.state.load(Ordering::SeqCst) != Self::live(key)? {
            return None;
        }
        Some(slot.value.with(|place| {
            // SAFETY: the slot was live after this context entered the epoch, so the value stays until the guard is gone.
            let place = unsafe { &*place };
            // SAFETY: a live slot is initialised.
            unsafe { place.assume_init_ref() }
        }))
    }

    /// Whether the key was given out before and is good no more, as far as the slot's generation tells: it begins anew after its last.
    #[cold]
    pub fn is_stale(&self, key: SlotKey) -> bool {
        let Some(slot) = self.slot(key.slot) else { return false };
        let state = slot.state.load(Ordering::SeqCst);
        let (generation, phase) = (state >> 2, state & 3);
        key.generation > 0 && (key.generation < generation || key.generation == generation && phase == DEAD)
    }

    /// Gives a living value another key: from now on only `generation` finds it, and a context that has found it keeps it.
    /// `None` when the key is stale or the generation is none of this table's.
    pub fn renew(&self, key: SlotKey, generation: u32) -> Option<SlotKey> {
        let renewed = SlotKey { slot: key.slot, generation };
        let slot = self.slot(key.slot).filter(|_| (1..=self.generations).contains(&generation))?;
        let live = Self::live(renewed)?;
        slot.state.compare_exchange(Self::live(key)?, live, Ordering::SeqCst, Ordering::Relaxed).ok()?;
        Some(renewed)
    }

    /// The generation that follows another one.
    pub fn generation_after(&self, generation: u32) -> u32 {
        if generation < self.generations { generation + 1 } else { 1 }
    }

    /// Takes a value out of sight; `None` when the key is stale.
    pub fn remove(&self, key: SlotKey) -> Option<Removed> {
        let slot = self.slot(key.slot)?;
        let dead = state_of(key.generation, DEAD);
        slot.state.compare_exchange(Self::live(key)?, dead, Ordering::SeqCst, Ordering::Relaxed).ok()?;
        Some(Removed { key, stamp: self.epoch.retire(), table: ptr::from_ref(self).addr() })
    }

    /// The removed value, when every context that could have seen it has left.
    pub fn reclaim(&self, removed: Removed) -> Result<T, Removed> {
        let Some(slot) = self.slot(removed.key.slot) else { return Err(removed) };
        if removed.table != ptr::from_ref(self).addr() || !self.epoch.passed(removed.stamp) {
            return Err(removed);
        }
        let value = slot.value.with_mut(|place| {
            // SAFETY: the slot is dead, its readers have left, and this is the only `Removed` for it.
            let place = unsafe { &mut *place };
            // SAFETY: a dead slot is initialised; it is marked empty below and never read again before it is filled.
            unsafe { place.assume_init_read() }
        });
        let generation = self.generation_after(removed.key.generation);
        slot.state.store(state_of(generation, FREE), Ordering::Release);
        push(&self.returned, removed.key.slot, slot);
        Ok(value)
    }

    /// What no other table of the same epoch has, wherever the table is moved.
    pub(crate) fn identity(&self) -> usize {
        self.blocks.as_ptr().addr()
    }

    /// The state word of a live slot with this key; `None` for a generation that does not fit the word.
    fn live(key: SlotKey) -> Option<u32> {
        (key.generation <= u32::MAX >> 2).then_some(state_of(key.generation, LIVE))
    }

    fn slot(&self, number: u32) -> Option<&Slot<T>> {
        let block = self.blocks.get((number / BLOCK) as usize)?.load(Ordering::Acquire);
        if block.is_null() {
            return None;
        }
        let inside = (number % BLOCK) as usize;
        // SAFETY: a published block is an array of BLOCK slots, and the index is smaller.
        let slot = unsafe { block.add(inside) };
        // SAFETY: published blocks stay until the table is dropped, which `&self` excludes.
        Some(unsafe { &*slot })
    }

    fn pop_free(&self) -> Option<u32> {
        let mut seen = self.free.load(Ordering::Acquire);
        loop {
            let number = seen as u32;
            if number == 0 {
                return None;
            }
            let next = self.slot(number)?.next.load(Ordering::Relaxed);
            let changed = tagged(seen, next);
            match self.free.compare_exchange_weak(seen, changed, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(number),
                Err(now) => seen = now,
            }
        }
    }

    /// Takes every returned slot: one for the caller, the others for the free stack.
    fn refill(&self) -> Option<u32> {
        let first = self.returned.swap(0, Ordering::AcqRel) as u32;
        let slot = self.slot(first).filter(|_| first != 0)?;
        let rest = slot.next.load(Ordering::Relaxed);
        if rest != 0 {
            self.put_chain(rest);
        }
        Some(first)
    }

    /// Puts a chain of slots onto the free stack, which is normally empty.
    fn put_chain(&self, first: u32) {
        let mut seen = self.free.load(Ordering::Relaxed);
        let mut last = None;
        loop {
            if seen as u32 != 0 {
                // Others filled it meanwhile; the end of the chain is looked for once.
                let last = last.get_or_insert_with(|| self.end_of_chain(first));
                if let Some(slot) = self.slot(*last) {
                    slot.next.store(seen as u32, Ordering::Relaxed);
                }
            } else if let Some(slot) = last.and_then(|last| self.slot(last)) {
                slot.next.store(0, Ordering::Relaxed);
            }
            match self.free.compare_exchange_weak(seen, tagged(seen, first), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    fn end_of_chain(&self, first: u32) -> u32 {
        let mut last = first;
        while let Some(next) = self.slot(last).map(|slot| slot.next.load(Ordering::Relaxed)).filter(|next| *next != 0) {
            last = next;
        }
        last
    }

    /// Adds a block, keeps its first usable slot for the caller and frees the rest.
    fn grow(&self) -> Result<u32, NoMemory> {
        let mut fresh = Some(new_block::<T>()?);
        for (place, number) in self.blocks.iter().zip((0..u32::MAX).step_by(BLOCK as usize)) {
            let Some(block) = fresh.take() else { break };
            let raw = Box::into_raw(block).cast::<Slot<T>>();
            if place.compare_exchange(ptr::null_mut(), raw, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                // SAFETY: made by `into_raw` above and not published.
                fresh = Some(unsafe { block_from(raw) });
                continue;
            }
            let first = number.max(1_u32);
            for other in (first.saturating_add(1)..number.saturating_add(BLOCK)).rev() {
                if let Some(slot) = self.slot(other) {
                    push(&self.free, other, slot);
                }
            }
            return Ok(first);
        }
        Err(NoMemory)
    }
}

/// Puts a slot onto a stack.
fn push<T>(stack: &AtomicU64, number: u32, slot: &Slot<T>) {
    let mut seen = stack.load(Ordering::Relaxed);
    loop {
        slot.next.store(seen as u32, Ordering::Relaxed);
        match stack.compare_exchange_weak(seen, tagged(seen, number), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// The word of the free stack after a change: the tag counts up so that a word is never seen twice in between.
const fn tagged(seen: u64, number: u32) -> u64 {
    ((seen >> 32).wrapping_add(1)) << 32 | number as u64
}

fn new_block<T>() -> Result<Box<[Slot<T>]>, NoMemory> {
    let mut slots = Vec::new();
    slots.try_reserve_exact(BLOCK as usize)?;
    slots.extend((0..BLOCK).map(|_| Slot {
        state: AtomicU32::new(state_of(1, FREE)),
        next: AtomicU32::new(0),
        value: UnsafeCell::new(MaybeUninit::uninit()),
    }));
    Ok(slots.into_boxed_slice())
}

/// Takes a block back.
///
/// # Safety
/// `raw` points to the first slot of a box made by [`new_block`] and no other context uses it.
unsafe fn block_from<T>(raw: *mut Slot<T>) -> Box<[Slot<T>]> {
    let slots = ptr::slice_from_raw_parts_mut(raw, BLOCK as usize);
    // SAFETY: the caller's promise; blocks are boxed slices of BLOCK slots.
    unsafe { Box::from_raw(slots) }
}

impl<T> Drop for SlotTable<T> {
    fn drop(&mut self) {
        // A cached value of this table is not given out any more.
        self.epoch.retire();
        for block in &self.blocks {
            let raw = block.load(Ordering::Acquire);
            if raw.is_null() {
                continue;
            }
            // SAFETY: published by `grow`; `&mut self` means that no other context uses the table.
            let slots = unsafe { block_from(raw) };
            for slot in slots {
                if slot.state.load(Ordering::Acquire) & 3 >= LIVE {
                    slot.value.with_mut(|place| {
                        // SAFETY: no other context uses the table.
                        let place = unsafe { &mut *place };
                        // SAFETY: live and dead slots are initialised, and the slot goes away with this pass.
                        unsafe { place.assume_init_drop() };
                    });
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::vec::Vec;

    use super::{SlotKey, SlotTable};
    use crate::{Epoch, Shared};

    fn table(slots: u32, generations: u32) -> (Shared<Epoch>, SlotTable<Arc<u32>>) {
        let epoch = Shared::try_new(Epoch::try_new(2).unwrap()).unwrap();
        let table = SlotTable::try_new(slots, generations, epoch.clone()).unwrap();
        (epoch, table)
    }

    #[test]
    fn a_stale_key_finds_nothing_after_the_slot_is_reused() {
        let (epoch, table) = table(10, 3);
        let old = table.insert(Arc::new(1)).unwrap();
        let value = table.reclaim(table.remove(old).unwrap()).unwrap();
        assert_eq!(*value, 1);
        let all: Vec<_> = core::iter::from_fn(|| table.insert(Arc::new(2)).ok()).collect();
        let new = *all.iter().find(|key| key.slot == old.slot).unwrap();
        assert_eq!(new, SlotKey { slot: old.slot, generation: old.generation + 1 });
        let guard = epoch.enter(0).unwrap();
        assert!(table.get(old, &guard).is_none());
        assert_eq!(**table.get(new, &guard).unwrap(), 2);
        assert!(table.remove(old).is_none());
    }

    #[test]
    fn a_removed_value_is_not_given_back_while_a_reader_is_inside() {
        let (epoch, table) = table(10, 3);
        let key = table.insert(Arc::new(1)).unwrap();
        let guard = epoch.enter(0).unwrap();
        let seen = table.get(key, &guard).unwrap();
        let removed = table.reclaim(table.remove(key).unwrap()).unwrap_err();
        assert_eq!(**seen, 1);
        drop(guard);
        assert!(table.reclaim(removed).is_ok());
    }

    #[test]
    fn a_dropped_claim_frees_its_slot() {
        let (epoch, table) = table(10, 3);
        let key = table.vacant().unwrap().key();
        assert!(table.get(key, &epoch.enter(0).unwrap()).is_none());
        assert_eq!(table.insert(Arc::new(1)).unwrap(), key);
    }

    #[test]
    fn generations_wrap_past_zero() {
        let (_, table) = table(10, 2);
        for generation in [1, 2, 1, 2, 1] {
            let keys: Vec<_> = core::iter::from_fn(|| table.insert(Arc::new(0)).ok()).collect();
            assert_eq!(keys.len(), 255);
            for key in keys {
                assert_eq!(key.generation, generation);
                table.reclaim(table.remove(key).unwrap()).unwrap();
            }
        }
    }

    #[test]
    fn every_free_slot_is_used_before_one_comes_again() {
        let (_, table) = table(10, 3);
        let kept = table.insert(Arc::new(0)).unwrap();
        for generation in [1, 2, 3] {
            let mut seen: Vec<_> = (0..254)
                .map(|_| {
                    let key = table.insert(Arc::new(0)).unwrap();
                    table.reclaim(table.remove(key).unwrap()).unwrap();
                    assert_eq!(key.generation, generation);
                    key.slot
                })
                .collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), 254);
            assert!(!seen.contains(&kept.slot));
        }
    }

    #[test]
    fn a_renewed_value_is_found_by_its_newest_key_only() {
        let (epoch, table) = table(10, 5);
        let first = table.insert(Arc::new(1)).unwrap();
        let guard = epoch.enter(0).unwrap();
        let seen = table.get(first, &guard).unwrap();
        let third = table.renew(first, 3).unwrap();
        assert_eq!(third, SlotKey { slot: first.slot, generation: 3 });
        assert!(table.get(first, &guard).is_none());
        assert_eq!(**table.get(third, &guard).unwrap(), 1);
        assert_eq!(**seen, 1, "a reader keeps what it has found");
        for (key, generation) in [(first, 4), (third, 0), (third, 6), (SlotKey { slot: 0, generation: 1 }, 2)] {
            assert!(table.renew(key, generation).is_none());
        }
        drop(guard);
        assert!(table.remove(first).is_none());
        table.reclaim(table.remove(third).unwrap()).unwrap();
        let mut others = core::iter::from_fn(|| table.insert(Arc::new(2)).ok());
        let next = others.find(|key| key.slot == first.slot).unwrap();
        assert_eq!(next.generation, 4, "the slot goes on after its newest key");
        assert_eq!((table.generation_after(4), table.generation_after(5)), (5, 1));
    }

    #[test]
    fn a_full_table_refuses_and_slot_zero_is_never_given_out() {
        let (_, table) = table(256, 2);
        let keys: Vec<_> = core::iter::from_fn(|| table.insert(Arc::new(0)).ok()).collect();
        assert_eq!(keys.len(), 255);
        assert!(keys.iter().all(|key| key.slot != 0 && key.generation == 1));
        let _ = table.remove(keys[9]).unwrap();
        assert!(table.insert(Arc::new(0)).is_err());
    }

    #[test]
    fn keys_that_were_not_given_out_find_nothing() {
        let (epoch, table) = table(256, 2);
        let key = table.insert(Arc::new(0)).unwrap();
        let guard = epoch.enter(0).unwrap();
        for (slot, generation) in
            [(0, 1), (key.slot, 0), (key.slot, u32::MAX), (u32::MAX, 1), (key.slot, (1 << 30) + 1)]
        {
            assert!(table.get(SlotKey { slot, generation }, &guard).is_none());
        }
    }

    #[test]
    fn a_dropped_table_drops_live_and_dead_values() {
        let (_, table) = table(10, 3);
        let value = Arc::new(1);
        table.insert(value.clone()).unwrap();
        let dead = table.insert(value.clone()).unwrap();
        let _ = table.remove(dead).unwrap();
        drop(table);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::thread;

    use super::SlotTable;
    use crate::{Epoch, Shared};

    /// A reader that found a value keeps it; the remover gets it only afterwards.
    #[test]
    fn a_found_value_stays_while_the_reader_is_inside() {
        loom::model(|| {
            let epoch = Shared::try_new(Epoch::try_new(1).unwrap()).unwrap();
            let table = Shared::try_new(SlotTable::try_new(2, 3, epoch.clone()).unwrap()).unwrap();
            let key = table.insert(std::boxed::Box::new(7)).unwrap();
            let reader = {
                let (epoch, table) = (epoch.clone(), table.clone());
                thread::spawn(move || {
                    let guard = epoch.enter(0).unwrap();
                    if let Some(value) = table.get(key, &guard) {
                        assert_eq!(**value, 7);
                    }
                })
            };
            if let Ok(value) = table.reclaim(table.remove(key).unwrap()) {
                drop(value);
                let _ = table.insert(std::boxed::Box::new(8));
            }
            reader.join().unwrap();
        });
    }

    /// Two contexts inserting and removing never get the same slot.
    #[test]
    fn two_inserters_get_two_slots() {
        loom::model(|| {
            let epoch = Shared::try_new(Epoch::try_new(1).unwrap()).unwrap();
            let table = Shared::try_new(SlotTable::try_new(4, 3, epoch.clone()).unwrap()).unwrap();
            let first = table.insert(1).unwrap();
            let other = {
                let table = table.clone();
                thread::spawn(move || {
                    let _ = table.reclaim(table.remove(first).unwrap());
                    table.insert(2).unwrap()
                })
            };
            let second = table.insert(3).unwrap();
            let third = other.join().unwrap();
            assert_ne!(second.slot, third.slot);
            let guard = epoch.enter(0).unwrap();
            assert_eq!(table.get(second, &guard), Some(&3));
            assert_eq!(table.get(third, &guard), Some(&2));
        });
    }
}
