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
    /// A receive has failed, none has succeeded since, and the owner has not said yet that it is to be repeated.
    rests: bool,
}

impl Inbound {
    pub fn try_new(tag: Tag, slots: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            free: PoolQueue::try_full::<NoMemory>(tag, slots, Ok)?,
            posted: PoolQueue::try_empty(tag, slots)?,
            came: PoolQueue::try_empty(tag, slots)?,
            datagrams: PoolSlice::try_filled(tag, slots, None)?,
            rests: false,
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

    /// It is open, and no receive is under way, because the last ones have failed. No wake-up follows: [`Self::resume`] is called after a
    /// while.
    pub fn is_stalled(&self) -> bool {
        let receives = self.phase == DatagramPhase::Open && !self.closed;
        receives && self.inbound.rests && self.inbound.posted.is_empty()
    }

    /// Repeats the receives that have failed.
    pub fn resume(&mut self) {
        self.inbound.rests = false;
        self.advance();
    }

    /// Takes what has come, and receives with each slot that is free, unless a receive has failed: that is not repeated at once, because it
    /// may fail after its call has returned, each time, and its completion wakes the owner.
    pub(super) fn advance_receives(&mut self) {
        for _ in 0..self.inbound.posted.count() {
            let Some(slot) = self.inbound.posted.pop() else { break };
            match FIRST_RECEIVE.checked_add(slot).and_then(|request| self.block.take(request)) {
                Some(outcome) => self.received(slot, outcome),
                None => self.inbound.posted.push(slot),
            }
        }
        for _ in 0..self.inbound.free.count() {
            if self.inbound.rests || self.phase != DatagramPhase::Open {
                break;
            }
            self.issue_receive();
        }
    }

    /// A receive with the slot that is free longest.
    fn issue_receive(&mut self) {
        let Some(slot) = self.inbound.free.pop() else { return };
        let request = FIRST_RECEIVE.saturating_add(slot);
        if !self.call_receive(slot, request) {
            self.inbound.rests = true;
            self.inbound.free.push(slot);
        } else if let Some(outcome) = self.block.take(request) {
            self.received(slot, outcome);
        } else {
            self.inbound.posted.push(slot);
        }
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

    /// The receive of a slot, which is in no queue, is complete.
    fn received(&mut self, slot: usize, outcome: Outcome) {
        let came = match outcome.result() {
            Ok(length) => self.datagram(slot, length).ok_or(STATUS_BUFFER_OVERFLOW),
            Err(status) => Err(status),
        };
        match came {
            Ok(datagram) => return self.keep(slot, datagram),
            Err(STATUS_BUFFER_OVERFLOW) => self.losses.too_long = self.losses.too_long.saturating_add(1),
            Err(status) => self.failed(status),
        }
        self.inbound.free.push(slot);
    }

    fn failed(&mut self, status: NTSTATUS) {
        self.losses.failed_receives = self.losses.failed_receives.saturating_add(1);
        if status == STATUS_FILE_FORCED_CLOSED {
            self.phase = DatagramPhase::Failed(status);
        }
        self.inbound.rests |= !is_of_the_network(status);
    }

    fn keep(&mut self, slot: usize, datagram: Datagram) {
        if let Some(place) = self.inbound.datagrams.get_mut(slot) {
            *place = Some(datagram);
        }
        self.inbound.rests = false;
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
