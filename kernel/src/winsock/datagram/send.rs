//! Datagrams that are sent: each is written into a slot that is free.

use core::{net::SocketAddr, ptr};

use super::{DatagramPhase, DatagramSocket};
use crate::{
    address,
    pool::{NoMemory, Tag},
    pool_queue::PoolQueue,
    winsock::{Wake, packet::Outcome},
};

/// Which slots of sends are where.
pub(super) struct Outbound {
    free: PoolQueue<usize>,
    /// With a send under way, the oldest first.
    sending: PoolQueue<usize>,
    /// The request of the first slot.
    first_request: usize,
}

impl Outbound {
    pub fn try_new(tag: Tag, slots: usize, first_request: usize) -> Result<Self, NoMemory> {
        let free = PoolQueue::try_full::<NoMemory>(tag, slots, Ok)?;
        Ok(Self { free, sending: PoolQueue::try_empty(tag, slots)?, first_request })
    }

    fn request(&self, slot: usize) -> usize {
        self.first_request.saturating_add(slot)
    }
}

impl<W: Wake> DatagramSocket<W> {
    /// Sends one datagram that `fill` writes: it returns the length, or `None` to send nothing. False, without a call of `fill`, when no
    /// slot is free or the socket is not open yet; a wake-up follows when one is. A socket that has failed throws it away.
    pub fn send(&mut self, to: SocketAddr, fill: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        match self.phase {
            DatagramPhase::Open => {}
            DatagramPhase::Fresh | DatagramPhase::Under(_) => return false,
            DatagramPhase::Failed(_) => {
                self.lost_send();
                return true;
            }
        }
        if self.outbound.free.is_empty() {
            self.harvest_sends();
        }
        let Some(slot) = self.outbound.free.pop() else { return false };
        match self.write(slot, fill) {
            Some(length) => self.send_slot(slot, &to, length),
            None => self.outbound.free.push(slot),
        }
        true
    }

    fn write(&self, slot: usize, fill: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<usize> {
        let slot = self.block.body().sends.get(slot)?;
        // SAFETY: the request of a slot that is free is idle, and the owner is here.
        unsafe { slot.memory.write_with(fill) }
    }

    fn send_slot(&mut self, slot: usize, to: &SocketAddr, length: usize) {
        let request = self.outbound.request(slot);
        if !self.call_send(slot, request, to, length) {
            self.lost_send();
            self.outbound.free.push(slot);
            return;
        }
        match self.block.take(request) {
            Some(outcome) => self.sent(slot, outcome),
            None => self.outbound.sending.push(slot),
        }
    }

    fn call_send(&self, slot: usize, request: usize, to: &SocketAddr, length: usize) -> bool {
        let (Some(socket), Some(slot)) = (&self.socket, self.block.body().sends.get(slot)) else { return false };
        let Some(buffer) = slot.memory.buffer(&(0..length)) else { return false };
        if !self.block.is_idle(request) {
            return false;
        }
        // SAFETY: made as a datagram socket.
        let (table, socket) = (unsafe { socket.datagram() }, socket.as_ptr());
        let (place, destination) = (slot.buffer.get(), slot.address.get());
        // SAFETY: the request is idle, so the place is ours.
        unsafe { place.write(buffer) };
        // SAFETY: as above.
        unsafe { destination.write(address::inet(to)) };
        self.block.issue(request, |packet| {
            // SAFETY: a bound socket; the bytes and the address are in the slot, which stays in the block and is not written meanwhile; no
            // control information; a packet for this call.
            unsafe { (table.WskSendTo)(socket, place, 0, destination.cast(), 0, ptr::null_mut(), packet) }
        });
        true
    }

    /// Frees the slots of sends that are complete.
    pub(super) fn harvest_sends(&mut self) {
        for _ in 0..self.outbound.sending.count() {
            let Some(slot) = self.outbound.sending.pop() else { break };
            match self.block.take(self.outbound.request(slot)) {
                Some(outcome) => self.sent(slot, outcome),
                None => self.outbound.sending.push(slot),
            }
        }
    }

    fn sent(&mut self, slot: usize, outcome: Outcome) {
        if outcome.result().is_err() {
            self.lost_send();
        }
        self.outbound.free.push(slot);
    }

    fn lost_send(&mut self) {
        self.losses.sends = self.losses.sends.saturating_add(1);
    }
}
