//! The last records of a kind: a ring, whose lock is held for one copy.
//!
//! `IRQL <= DISPATCH_LEVEL` everywhere; nothing is allocated.

use softndk_kernel::{clock::Clock, spin_lock::SpinLock};

/// What a ring keeps: it has a number, and the time it was made, which a reader sees as an age.
pub trait Record: Copy + Send {
    fn number(&self) -> u64;
    fn age(&self) -> u64;
    /// The same with another number and age.
    fn at(self, number: u64, age: u64) -> Self;
}

/// Makes an entry of the ABI a [`Record`].
macro_rules! record {
    ($Entry:ty) => {
        impl $crate::runtime::records::Record for $Entry {
            fn number(&self) -> u64 {
                self.number
            }

            fn age(&self) -> u64 {
                self.age
            }

            fn at(self, number: u64, age: u64) -> Self {
                Self { number, age, ..self }
            }
        }
    };
}
pub(crate) use record;

/// A debugger, or a host that reports a bugcheck, may read it where it lies: the lock's value begins with the signature.
#[repr(C)]
pub struct RecordRing<T, const COUNT: usize> {
    signature: u64,
    total: u64,
    /// An entry's slot is its number modulo the slots, and its age is the time it was made.
    entries: [T; COUNT],
}

#[repr(transparent)]
pub struct Records<T, const COUNT: usize>(SpinLock<RecordRing<T, COUNT>>);

impl<T: Record, const COUNT: usize> Records<T, COUNT> {
    pub const fn new(signature: u64, none: T) -> Self {
        Self(SpinLock::new(RecordRing { signature, total: 0, entries: [none; COUNT] }))
    }

    /// Keeps a record, in the slot of the oldest.
    #[inline(never)]
    pub fn keep(&self, record: T) {
        let now = now();
        let mut ring = self.0.lock();
        ring.total = ring.total.wrapping_add(1);
        let number = ring.total;
        if let Some(slot) = ring.entries.get_mut(slot::<COUNT>(number)) {
            *slot = record.at(number, now);
        }
    }

    /// Records so far; the newest has this number.
    pub fn total(&self) -> u64 {
        self.0.lock().total
    }

    /// The record with this number, or the oldest that is kept if it is gone; `None` behind the newest.
    pub fn get(&self, number: u64) -> Option<T> {
        let record = {
            let ring = self.0.lock();
            let oldest = ring.total.saturating_sub(COUNT as u64 - 1).max(1);
            let number = number.max(oldest);
            ring.entries.get(slot::<COUNT>(number)).copied().filter(|record| record.number() == number)?
        };
        Some(record.at(record.number(), now().saturating_sub(record.age())))
    }
}

const fn slot<const COUNT: usize>(number: u64) -> usize {
    (number % COUNT as u64) as usize
}

fn now() -> u64 {
    Clock::new().now()
}
