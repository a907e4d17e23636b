//! Kernel stacks: 24 KiB as on x64 Windows, with a guard page below, painted so that the deepest use can be read back.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

use crate::callout::ContextKind;
use crate::memory::PAGE_SIZE;
use crate::memory::address_space::{Protection, Reservation, Zone};
use crate::memory::frames;
use crate::thread::Thread;

/// What x64 Windows gives a kernel thread.
pub const KERNEL_STACK_SIZE: usize = 24 * 1024;

/// Space above the first frame, so that a stub that copies stack arguments never reads past the top.
const SLACK_AT_TOP: usize = 256;

const PAINT: u64 = 0x5A5A_5A5A_A5A5_A5A5;

/// A stack of 24 KiB plus the slack, guard page below.
pub struct KernelStack {
    reservation: Reservation,
    frames: Range<u32>,
}

impl KernelStack {
    pub fn allocate() -> Self {
        let pages = KERNEL_STACK_SIZE / PAGE_SIZE + 1;
        // One page more at the low end, which stays without access.
        let reservation = Reservation::new(Zone::Stacks, (pages + 1) * PAGE_SIZE)
            .unwrap_or_else(|| panic!("no addresses for a kernel stack"));
        let frames = frames::allocate_run(pages).unwrap_or_else(|| panic!("no memory for a kernel stack"));
        reservation.map_run(PAGE_SIZE, frames.clone(), Protection::ReadWrite);
        let stack = Self { reservation, frames };
        stack.paint(stack.bottom(), stack.top());
        stack
    }

    /// The first stack pointer, 16-byte aligned.
    pub fn top(&self) -> usize {
        self.bottom() + KERNEL_STACK_SIZE
    }

    /// The lowest address that may be used. The page below is the guard.
    pub fn bottom(&self) -> usize {
        // The slack lies above the top: the mapped part is one page longer than the stack.
        const { assert!(SLACK_AT_TOP <= PAGE_SIZE) };
        self.reservation.address() + PAGE_SIZE
    }

    pub fn range(&self) -> Range<u64> {
        self.bottom() as u64..(self.top() + SLACK_AT_TOP) as u64
    }

    /// Whether an address is in the guard page.
    pub fn is_guard(&self, address: usize) -> bool {
        (self.reservation.address()..self.bottom()).contains(&address)
    }

    fn paint(&self, from: usize, to: usize) {
        debug_assert!(from >= self.bottom() && to <= self.top(), "paint outside of the stack");
        let mut address = from;
        while address + 8 <= to {
            // SAFETY: inside this stack, below every live frame.
            unsafe { (address as *mut u64).write_volatile(PAINT) };
            address += 8;
        }
    }

    /// The lowest address that was written since it was painted.
    fn lowest_written(&self) -> usize {
        let mut address = self.bottom();
        while address < self.top() {
            // SAFETY: inside this stack.
            if unsafe { (address as *const u64).read_volatile() } != PAINT {
                break;
            }
            address += 8;
        }
        address
    }
}

impl Drop for KernelStack {
    fn drop(&mut self) {
        self.reservation.release();
        frames::free_run(self.frames.clone());
    }
}

/// The deepest use of kernel stack below the entry, by kind of callout, in bytes.
static HIGH_WATER: Mutex<BTreeMap<ContextKind, usize>> = Mutex::new(BTreeMap::new());

/// What a callout remembers to measure its stack.
pub(crate) struct Measurement {
    entry: usize,
    lowest_before: usize,
}

/// Starts measuring a callout: records how deep the stack was used before and paints what is below.
pub(crate) fn begin_measurement(thread: &Thread) -> Option<Measurement> {
    if !crate::kernel::is_verifying() {
        return None;
    }
    let entry = thread.kernel_stack.get() as usize;
    thread.with_stack_at(entry, |stack| {
        let lowest_before = stack.lowest_written();
        stack.paint(lowest_before, entry & !15);
        Measurement { entry, lowest_before }
    })
}

/// Ends it: records the depth for the kind and leaves the deepest mark for the callouts around.
pub(crate) fn end_measurement(thread: &Thread, kind: ContextKind, measurement: Option<Measurement>) {
    let Some(measurement) = measurement else { return };
    thread.with_stack_at(measurement.entry, |stack| {
        let lowest = stack.lowest_written();
        let used = measurement.entry.saturating_sub(lowest);
        let mut marks = HIGH_WATER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mark = marks.entry(kind).or_default();
        *mark = (*mark).max(used);
        if measurement.lowest_before < lowest {
            // SAFETY: inside this stack, below every live frame: any value but the paint marks the depth.
            unsafe { (measurement.lowest_before as *mut u64).write_volatile(0) };
        }
    });
}

/// The high-water marks so far.
pub fn high_water_marks() -> BTreeMap<ContextKind, usize> {
    HIGH_WATER.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
}
