//! Datagrams that wait for their socket: filled where a frame is sent, sent by the end point's task.
//!
//! All memory is allocated with the queues. A sender fills the slot that it has taken with no lock held.

use core::net::IpAddr;

use softndk_kernel::{
    pool::{NoMemory, PoolSlice},
    pool_queue::PoolQueue,
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

/// Both can hold all datagrams.
pub struct Departures {
    free: SpinLock<PoolQueue<Slot>>,
    waiting: SpinLock<PoolQueue<Departure>>,
}

impl Departures {
    pub fn try_new() -> Result<Self, NoMemory> {
        let slot = |_| PoolSlice::try_filled(tags::UPLINK, DATAGRAM_MAX, 0_u8);
        Ok(Self {
            free: SpinLock::new(PoolQueue::try_full(tags::UPLINK, DEPARTURE_MAX, slot)?),
            waiting: SpinLock::new(PoolQueue::try_empty(tags::UPLINK, DEPARTURE_MAX)?),
        })
    }

    pub fn take_free(&self) -> Option<Slot> {
        self.free.lock().pop()
    }

    pub fn put_free(&self, slot: Slot) {
        self.free.lock().push(slot);
    }

    pub fn push(&self, departure: Departure) {
        self.waiting.lock().push(departure);
    }

    pub fn pop(&self) -> Option<Departure> {
        self.waiting.lock().pop()
    }
}
