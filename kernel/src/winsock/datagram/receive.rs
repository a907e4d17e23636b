//! Datagrams that come: a receive with each free slot, and what has come until the owner takes it.

use core::{net::SocketAddr, ptr};

use ndkpi_sys::{
    nt::{
        NTSTATUS, STATUS_BUFFER_OVERFLOW, STATUS_CONNECTION_RESET, STATUS_FILE_FORCED_CLOSED, STATUS_HOST_UNREACHABLE,
        STATUS_NETWORK_UNREACHABLE, STATUS_PORT_UNREACHABLE, STATUS_PROTOCOL_UNREACHABLE,
    },
    wsk::MSG_TRUNC,
};

use super::{DatagramPhase, DatagramSocket, FIRST_RECEIVE};
use crate::{
    address,
    pool::{NoMemory, PoolSlice, Tag},
    pool_queue::PoolQueue,
    winsock::{Wake, packet::Outcome},
};

/// A datagram in its slot.
#[derive(Clone, Copy)]
struct Datagram {
    from: SocketAddr,
    length: usize,
}

/// Which slots of receives are where.
pub(super) struct Inbound {
    free: PoolQueue<usize>,
    /// With a receive under way, the oldest first.
    posted: PoolQueue<usize>,
    /// With a datagram that the owner has not taken.
    came: PoolQueue<usize>,
    /// By slot; those in `came` have one.
    datagrams: PoolSlice<Option<Datagram>>,
}

impl Inbound {
    pub fn try_new(tag: Tag, slots: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            free: PoolQueue::try_full::<NoMemory>(tag, slots, Ok)?,
            posted: PoolQueue::try_empty(tag, slots)?,
            came: PoolQueue::try_empty(tag, slots)?,
            datagrams: PoolSlice::try_filled(tag, slots, None)?,
        })
    }
}

/// Whether a receive fails with this because of an earlier datagram of ours: the next one need not fail.
const fn is_of_the_network(status: NTSTATUS) -> bool {
    matches!(
        status,
        STATUS_PORT_UNREACHABLE
            | STATUS_CONNECTION_RESET
            | STATUS_HOST_UNREACHABLE
            | STATUS_NETWORK_UNREACHABLE
            | STATUS_PROTOCOL_UNREACHABLE
    )
}

impl<W: Wake> DatagramSocket<W> {
    /// Calls `take` with the next datagram that came and its sender; false when there is none. Its slot receives again with the next
    /// [`Self::advance`].
    pub fn receive(&mut self, take: impl FnOnce(SocketAddr, &[u8])) -> bool {
        let Some(slot) = self.inbound.came.pop() else { return false };
        self.inbound.free.push(slot);
        let datagram = self.inbound.datagrams.get_mut(slot).and_then(Option::take);
        if let (Some(datagram), Some(place)) = (datagram, self.block.body().receives.get(slot)) {
            // SAFETY: the request of the slot is idle for as long as the bytes are borrowed.
            let bytes = unsafe { place.memory.read(&(0..datagram.length)) };
            take(datagram.from, bytes);
        }
        true
    }

    /// After [`Self::advance`]: it is open, nothing waits for [`Self::receive`], and no receive is under way, because the last ones have
    /// failed. No wake-up follows.
    pub fn is_stalled(&self) -> bool {
        let receives = self.phase == DatagramPhase::Open && !self.closed;
        receives && self.inbound.posted.is_empty() && self.inbound.came.is_empty()
    }

    /// Takes what has come, and receives with each slot that is free, unless a receive has just failed: that is not repeated at once.
    pub(super) fn advance_receives(&mut self) {
        let mut goes_on = true;
        for _ in 0..self.inbound.posted.count() {
            let Some(slot) = self.inbound.posted.pop() else { break };
            match FIRST_RECEIVE.checked_add(slot).and_then(|request| self.block.take(request)) {
                Some(outcome) => goes_on &= self.received(slot, outcome),
                None => self.inbound.posted.push(slot),
            }
        }
        for _ in 0..self.inbound.free.count() {
            if !goes_on || self.phase != DatagramPhase::Open {
                break;
            }
            goes_on = self.issue_receive();
        }
    }

    /// A receive with the slot that is free longest; false when it has failed inside the call.
    fn issue_receive(&mut self) -> bool {
        let Some(slot) = self.inbound.free.pop() else { return false };
        let request = FIRST_RECEIVE.saturating_add(slot);
        if !self.call_receive(slot, request) {
            self.inbound.free.push(slot);
            return false;
        }
        if let Some(outcome) = self.block.take(request) {
            return self.received(slot, outcome);
        }
        self.inbound.posted.push(slot);
        true
    }

    fn call_receive(&self, slot: usize, request: usize) -> bool {
        let (Some(socket), Some(slot)) = (&self.socket, self.block.body().receives.get(slot)) else { return false };
        let Some(buffer) = slot.memory.buffer(&(0..slot.memory.length())) else { return false };
        if !self.block.is_idle(request) {
            return false;
        }
        // SAFETY: made as a datagram socket.
        let (table, socket) = (unsafe { socket.datagram() }, socket.as_ptr());
        let (place, from, flags) = (slot.buffer.get(), slot.address.get().cast(), slot.flags.get());
        // SAFETY: the request is idle, so the place is ours.
        unsafe { place.write(buffer) };
        // SAFETY: as above.
        unsafe { flags.write(0) };
        self.block.issue(request, |packet| {
            // SAFETY: a bound socket; everything that is written is in the slot, which stays in the block; no control information; a
            // packet for this call.
            unsafe { (table.WskReceiveFrom)(socket, place, 0, from, ptr::null_mut(), ptr::null_mut(), flags, packet) }
        });
        true
    }

    /// The receive of a slot, which is in no queue, is complete; false when it has failed and is not to be repeated at once.
    fn received(&mut self, slot: usize, outcome: Outcome) -> bool {
        let goes_on = match outcome.result() {
            Ok(length) => {
                if let Some(datagram) = self.datagram(slot, length) {
                    self.keep(slot, datagram);
                    return true;
                }
                self.losses.too_long = self.losses.too_long.saturating_add(1);
                true
            }
            Err(STATUS_BUFFER_OVERFLOW) => {
                self.losses.too_long = self.losses.too_long.saturating_add(1);
                true
            }
            Err(status) => {
                self.losses.failed_receives = self.losses.failed_receives.saturating_add(1);
                if status == STATUS_FILE_FORCED_CLOSED {
                    self.phase = DatagramPhase::Failed(status);
                }
                is_of_the_network(status)
            }
        };
        self.inbound.free.push(slot);
        goes_on
    }

    fn keep(&mut self, slot: usize, datagram: Datagram) {
        if let Some(place) = self.inbound.datagrams.get_mut(slot) {
            *place = Some(datagram);
        }
        self.inbound.came.push(slot);
    }

    /// What the slot of a complete receive has; nothing where some bytes did not fit.
    fn datagram(&self, slot: usize, length: usize) -> Option<Datagram> {
        let slot = self.block.body().receives.get(slot)?;
        // SAFETY: the request is idle, so the place is ours, and it is plain data.
        let flags = unsafe { slot.flags.get().read() };
        // SAFETY: as above.
        let from = unsafe { slot.address.get().read() };
        let fits = flags & MSG_TRUNC == 0 && length <= slot.memory.length();
        address::socket_address(&from).filter(|_| fits).map(|from| Datagram { from, length })
    }
}
