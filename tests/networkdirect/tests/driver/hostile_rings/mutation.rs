//! Changes of a ring's memory: a field of an entry, an SGE, a count, the driver's own part of the header.

use fastrand::Rng;
use softndk_ioctl::nd::rings::{
    COMPLETION_ENTRIES, CONSUMER_OFFSET, CompletionHeader, InitiatorEntry, QueueLayout, QueuePairHeader,
    QueuePairTaken, QueueSizes, ReceiveEntry, Ring, Sge, TAKEN_OFFSET,
};
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Numbers that mean something to the driver: what a process may know of itself and of others.
#[derive(Default)]
pub struct Known {
    pub tokens: Vec<u32>,
    pub addresses: Vec<u64>,
    pub windows: Vec<u64>,
}

#[derive(Clone, Copy)]
pub enum Layout {
    /// Of a queue pair or a shared receive queue.
    Requests(QueueLayout, QueueSizes),
    Results(Ring),
}

/// Memory that is to be changed. It has to stay mapped.
#[derive(Clone)]
pub struct Target {
    pub address: usize,
    pub layout: Layout,
    pub known: Arc<Known>,
}

/// One change: a place, and what is written there.
#[derive(Clone, Copy)]
pub enum Change {
    Word(usize, u32),
    Long(usize, u64),
}

impl Target {
    /// # Safety
    /// The memory is mapped.
    pub unsafe fn apply(&self, change: Change) {
        match change {
            Change::Word(offset, value) => {
                // SAFETY: mapped and aligned; the driver reads it as memory that changes at any time.
                unsafe { AtomicU32::from_ptr((self.address + offset) as *mut u32) }.store(value, Ordering::Release);
            }
            Change::Long(offset, value) => {
                // SAFETY: as above.
                unsafe { AtomicU64::from_ptr((self.address + offset) as *mut u64) }.store(value, Ordering::Release);
            }
        }
    }

    /// What stands where a change goes.
    ///
    /// # Safety
    /// The memory is mapped.
    pub unsafe fn before(&self, change: Change) -> Change {
        match change {
            Change::Word(offset, _) => {
                // SAFETY: mapped and aligned.
                let word = unsafe { AtomicU32::from_ptr((self.address + offset) as *mut u32) };
                Change::Word(offset, word.load(Ordering::Acquire))
            }
            Change::Long(offset, _) => {
                // SAFETY: as above.
                let long = unsafe { AtomicU64::from_ptr((self.address + offset) as *mut u64) };
                Change::Long(offset, long.load(Ordering::Acquire))
            }
        }
    }

    /// A change that a seed chooses.
    pub fn choose(&self, random: &mut Rng) -> Change {
        match self.layout {
            Layout::Results(ring) => result_change(ring, random),
            Layout::Requests(layout, sizes) => match random.u8(..100) {
                0..1 => producer(random, &layout),
                1..8 => taken(random),
                8..30 if layout.receive.entries != 0 => self.receive(&layout, &sizes, random),
                _ if layout.initiator.entries != 0 => self.initiator(&layout, &sizes, random),
                _ => self.receive(&layout, &sizes, random),
            },
        }
    }

    /// A change that breaks nothing: what the driver only passes on, and what it never reads.
    pub fn choose_harmless(&self, random: &mut Rng) -> Change {
        let Layout::Requests(layout, _) = self.layout else { return result_change_of_driver(random) };
        let (initiator, receive) = (layout.initiator.place(random.u32(..)), layout.receive.place(random.u32(..)));
        match random.u8(..4) {
            0 if layout.initiator.entries != 0 => {
                Change::Long(initiator + offset_of!(InitiatorEntry, context), random.u64(..))
            }
            1 if layout.initiator.entries != 0 => {
                Change::Word(initiator + offset_of!(InitiatorEntry, immediate), random.u32(..))
            }
            2 if layout.receive.entries != 0 => {
                Change::Long(receive + offset_of!(ReceiveEntry, context), random.u64(..))
            }
            _ => taken(random),
        }
    }

    fn initiator(&self, layout: &QueueLayout, sizes: &QueueSizes, random: &mut Rng) -> Change {
        let place = layout.initiator.place(random.u32(..));
        if random.u8(..) < 100 && sizes.initiator_sges != 0 {
            return self.sge(place + size_of::<InitiatorEntry>(), sizes.initiator_sges, random);
        }
        let at = |offset: usize| place + offset;
        match random.u8(..9) {
            0 => Change::Long(at(offset_of!(InitiatorEntry, context)), random.u64(..)),
            1 => Change::Word(at(offset_of!(InitiatorEntry, request_type)), pick(random, &[0, 1, 2, 3, 4, 5, 6, 257])),
            2 | 3 => Change::Word(at(offset_of!(InitiatorEntry, flags)), flags(random)),
            4 => Change::Word(at(offset_of!(InitiatorEntry, sge_count)), around(random, sizes.initiator_sges)),
            5 => Change::Word(at(offset_of!(InitiatorEntry, inline_length)), around(random, sizes.inline_data)),
            6 => Change::Long(at(offset_of!(InitiatorEntry, remote_address)), self.address(random)),
            7 => Change::Word(at(offset_of!(InitiatorEntry, remote_token)), self.token(random)),
            _ => Change::Long(at(offset_of!(InitiatorEntry, window)), self.window(random)),
        }
    }

    fn receive(&self, layout: &QueueLayout, sizes: &QueueSizes, random: &mut Rng) -> Change {
        let place = layout.receive.place(random.u32(..));
        match random.u8(..4) {
            0 => Change::Long(place + offset_of!(ReceiveEntry, context), random.u64(..)),
            1 => Change::Word(place + offset_of!(ReceiveEntry, sge_count), around(random, sizes.receive_sges)),
            2 => Change::Word(place + offset_of!(ReceiveEntry, reserved), random.u32(..)),
            _ => self.sge(place + size_of::<ReceiveEntry>(), sizes.receive_sges, random),
        }
    }

    fn sge(&self, first: usize, sges: u32, random: &mut Rng) -> Change {
        let place = first + random.usize(..sges as usize) * size_of::<Sge>();
        match random.u8(..3) {
            0 => Change::Long(place + offset_of!(Sge, address), self.address(random)),
            1 => Change::Word(place + offset_of!(Sge, length), around(random, 64)),
            _ => Change::Word(place + offset_of!(Sge, token), self.token(random)),
        }
    }

    fn address(&self, random: &mut Rng) -> u64 {
        let known = self.known.addresses[random.usize(..self.known.addresses.len())];
        match random.u8(..8) {
            0 => random.u64(..),
            1 => known.wrapping_sub(random.u64(1..100)),
            2 => known.wrapping_add(random.u64(..70_000)),
            3 => 0xFFFF_8000_0000_0000 | random.u64(..1 << 40),
            4 => self.address as u64 + random.u64(..4096),
            5 => pick(random, &[0, 1, u64::MAX, u64::MAX - 7]),
            _ => known,
        }
    }

    fn token(&self, random: &mut Rng) -> u32 {
        let known = self.known.tokens[random.usize(..self.known.tokens.len())];
        match random.u8(..8) {
            0 => random.u32(..),
            1 => known ^ (1 << random.u32(..32)),
            2 => pick(random, &[0, u32::MAX]),
            _ => known,
        }
    }

    fn window(&self, random: &mut Rng) -> u64 {
        let known = self.known.windows[random.usize(..self.known.windows.len())];
        if random.bool() { known } else { known ^ (1 << random.u32(..40)) }
    }
}

fn pick<T: Copy>(random: &mut Rng, values: &[T]) -> T {
    values[random.usize(..values.len())]
}

/// A number near a limit, or far beyond it.
fn around(random: &mut Rng, limit: u32) -> u32 {
    match random.u8(..8) {
        0 => 0,
        1 => limit + 1,
        2 => pick(random, &[u32::MAX, 1 << 31, 1 << 28, limit << 8, u32::MAX / 16 + 2]),
        3 => limit,
        _ => random.u32(..=limit),
    }
}

fn flags(random: &mut Rng) -> u32 {
    match random.u8(..4) {
        0 => 1 << random.u32(..32),
        1 => random.u32(..0x40),
        _ => pick(random, &[0, 1, 2, 3, 4, 0x20, 0x21]),
    }
}

/// The count of what was put into a ring jumps.
fn producer(random: &mut Rng, layout: &QueueLayout) -> Change {
    let offset =
        pick(random, &[offset_of!(QueuePairHeader, initiator_producer), offset_of!(QueuePairHeader, receive_producer)]);
    let entries = layout.initiator.entries.max(layout.receive.entries);
    Change::Word(offset, pick(random, &[0, 1, entries, entries + 1, 2 * entries, 1 << 31, u32::MAX, 3, 7]))
}

/// The driver's part, which it keeps for itself and never reads.
fn taken(random: &mut Rng) -> Change {
    Change::Word(TAKEN_OFFSET + 4 * random.usize(..size_of::<QueuePairTaken>() / 4), random.u32(..))
}

fn result_change_of_driver(random: &mut Rng) -> Change {
    Change::Word(offset_of!(CompletionHeader, producer), random.u32(..))
}

fn result_change(ring: Ring, random: &mut Rng) -> Change {
    let entries = ring.entries;
    match random.u8(..4) {
        0 => Change::Word(offset_of!(CompletionHeader, producer), random.u32(..)),
        1 => Change::Word(offset_of!(CompletionHeader, flags), random.u32(..)),
        2 => Change::Word(CONSUMER_OFFSET, pick(random, &[0, 1, entries, entries + 1, u32::MAX, 1 << 31, 17])),
        _ => Change::Word(COMPLETION_ENTRIES + 4 * random.usize(..ring.stride * entries as usize / 4), random.u32(..)),
    }
}
