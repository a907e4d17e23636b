//! Datagrams that wait for their socket: filled where a frame is sent, sent by the end point's task.
//!
//! All memory is allocated with the queue. Whoever takes a free slot fills it with no lock held.

use core::net::IpAddr;

use softndk_kernel::{
    pool::{NoMemory, PoolArray, PoolSlice},
    spin_lock::SpinLock,
};
use softndk_vxlan::HEADER_LENGTH;

use crate::{link::FRAME_MAX, tags};

/// Datagrams that wait at most; more are dropped.
const DEPARTURE_MAX: usize = 128;
/// Bytes of the longest datagram.
pub const DATAGRAM_MAX: usize = HEADER_LENGTH + FRAME_MAX as usize;

/// The memory of one datagram.
pub type Slot = PoolSlice<u8>;

/// A filled datagram.
pub struct Departure {
    pub slot: Slot,
    pub length: usize,
    pub to: IpAddr,
}

pub struct Departures(SpinLock<DepartureQueue>);

/// Free slots as a stack, filled ones as a ring; both can hold all of them.
struct DepartureQueue {
    free: PoolArray<Option<Slot>>,
    free_count: usize,
    filled: PoolArray<Option<Departure>>,
    first: usize,
    filled_count: usize,
}

impl Departures {
    pub fn try_new() -> Result<Self, NoMemory> {
        let slot = |_| PoolSlice::try_filled(tags::UPLINK, DATAGRAM_MAX, 0_u8).map(Some);
        let queue = DepartureQueue {
            free: PoolArray::try_from_fn(tags::UPLINK, DEPARTURE_MAX, slot)?,
            free_count: DEPARTURE_MAX,
            filled: PoolArray::try_from_fn::<NoMemory>(tags::UPLINK, DEPARTURE_MAX, |_| Ok(None))?,
            first: 0,
            filled_count: 0,
        };
        Ok(Self(SpinLock::new(queue)))
    }

    pub fn take_free(&self) -> Option<Slot> {
        let mut queue = self.0.lock();
        let index = queue.free_count.checked_sub(1)?;
        let slot = queue.free.get_mut(index)?.take()?;
        queue.free_count = index;
        Some(slot)
    }

    pub fn put_free(&self, slot: Slot) {
        let mut queue = self.0.lock();
        let index = queue.free_count;
        if let Some(place) = queue.free.get_mut(index) {
            *place = Some(slot);
            queue.free_count = index.saturating_add(1);
        }
    }

    pub fn push(&self, departure: Departure) {
        let mut queue = self.0.lock();
        let index = queue.first.wrapping_add(queue.filled_count) % DEPARTURE_MAX;
        if let Some(place) = queue.filled.get_mut(index) {
            *place = Some(departure);
            queue.filled_count = queue.filled_count.saturating_add(1);
        }
    }

    pub fn pop(&self) -> Option<Departure> {
        let mut queue = self.0.lock();
        let rest = queue.filled_count.checked_sub(1)?;
        let first = queue.first;
        let departure = queue.filled.get_mut(first)?.take()?;
        queue.first = first.wrapping_add(1) % DEPARTURE_MAX;
        queue.filled_count = rest;
        Some(departure)
    }
}
