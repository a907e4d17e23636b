//! Bytes in and out of an open connection, and its ends.

use core::ptr;

use ndkpi_sys::{
    nt::{NTSTATUS, STATUS_GRACEFUL_DISCONNECT, STATUS_SUCCESS, STATUS_UNSUCCESSFUL},
    wsk::{WSK_FLAG_NODELAY, WSK_PROVIDER_CONNECTION_DISPATCH, WSK_SOCKET},
};

use super::{Connection, Finish, RECEIVE, SENDS, STEP};
use crate::winsock::{Wake, packet::Outcome};

impl<W: Wake> Connection<W> {
    /// Sends bytes, as many as there is space for; how many those are. The owner is woken when there is space again.
    ///
    /// Bytes for a connection that is broken, or finished from this side, are thrown away and counted as sent, which is all that TCP says
    /// of bytes under way.
    pub fn send(&mut self, bytes: &[u8]) -> usize {
        if self.broken().is_some() || self.finish != Finish::No {
            return bytes.len();
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let free = self.outgoing.free();
            // SAFETY: free bytes of the ring are given to no send.
            let count = unsafe { self.outgoing_memory().write(&free, rest) };
            if count == 0 {
                break;
            }
            self.outgoing.fill(count);
            rest = rest.get(count..).unwrap_or_default();
        }
        self.advance();
        bytes.len().saturating_sub(rest.len())
    }

    /// The oldest bytes that have come, as far as they lie in one piece.
    pub fn received(&self) -> &[u8] {
        // SAFETY: bytes that have come are outside of what a receive writes, until they are consumed, which this borrow excludes.
        unsafe { self.incoming_memory().read(&self.incoming.held(0)) }
    }

    /// Frees the space of the oldest bytes.
    pub fn consume(&mut self, count: usize) {
        self.incoming.release(count);
        self.advance();
    }

    /// Ends this side behind everything that was sent. The peer may still send.
    pub fn finish(&mut self) {
        if self.finish == Finish::No {
            self.finish = Finish::Asked;
        }
        self.advance();
    }

    pub(super) fn issue_stream(&mut self) -> bool {
        if self.reset.is_some() {
            return false;
        }
        let Some(socket) = &self.socket else { return false };
        // SAFETY: made or accepted as a connection.
        let (table, socket) = (unsafe { socket.connection() }, socket.as_ptr());
        // Each of them, whatever the others have done.
        let received = self.issue_receive(&table, socket);
        let sent = self.issue_send(&table, socket);
        let finished = self.issue_finish(&table, socket);
        received || sent || finished
    }

    fn issue_receive(&self, table: &WSK_PROVIDER_CONNECTION_DISPATCH, socket: *mut WSK_SOCKET) -> bool {
        let free = self.incoming.free();
        if self.finished || free.is_empty() || self.is_incoming_replaced() || !self.block.is_idle(RECEIVE) {
            return false;
        }
        let Some(buffer) = self.incoming_memory().buffer(&free) else { return false };
        let place = self.block.body().receive.get();
        // SAFETY: the request is idle, so the place is ours.
        unsafe { place.write(buffer) };
        self.block.issue(RECEIVE, |packet| {
            // SAFETY: a connected socket; the buffer is free space of the ring, which stays in the block; a packet for this call.
            unsafe { (table.WskReceive)(socket, place, 0, packet) }
        });
        true
    }

    /// Sends what is in the ring and not under way, with the request that is free.
    fn issue_send(&mut self, table: &WSK_PROVIDER_CONNECTION_DISPATCH, socket: *mut WSK_SOCKET) -> bool {
        // The older one first: if both are free, the next result is expected there.
        let turn = if self.sends.get(self.older) == Some(&0) { self.older } else { self.older ^ 1 };
        let under_way = self.sends.iter().fold(0_usize, |sum, count| sum.saturating_add(*count));
        let part = self.outgoing.held(under_way);
        let Some(buffer) = self.outgoing_memory().buffer(&part) else { return false };
        let (Some(request), Some(place), Some(count)) =
            (SENDS.get(turn), self.block.body().sends.get(turn), self.sends.get_mut(turn))
        else {
            return false;
        };
        if *count != 0 || part.is_empty() || !self.block.is_idle(*request) {
            return false;
        }
        let place = place.get();
        // SAFETY: the request is idle, so the place is ours.
        unsafe { place.write(buffer) };
        *count = part.len();
        let status = self.block.issue(*request, |packet| {
            // SAFETY: a connected socket; the buffer holds bytes of the ring that the owner does not write until they are sent, and stays in the block;
            // a packet for this call.
            unsafe { (table.WskSend)(socket, place, WSK_FLAG_NODELAY, packet) }
        });
        if status < STATUS_SUCCESS {
            // The stream must not go on without these bytes, whenever the packet is completed.
            self.broke(status);
        }
        true
    }

    fn issue_finish(&mut self, table: &WSK_PROVIDER_CONNECTION_DISPATCH, socket: *mut WSK_SOCKET) -> bool {
        if self.finish != Finish::Asked || !self.outgoing.is_empty() || !self.block.is_idle(STEP) {
            return false;
        }
        self.finish = Finish::UnderWay;
        self.block.issue(STEP, |packet| {
            // SAFETY: a connected socket with no send under way; no last bytes; a packet for this call.
            unsafe { (table.WskDisconnect)(socket, ptr::null_mut(), 0, packet) }
        });
        true
    }

    /// Takes the results of sends in the order in which they were asked for.
    pub(super) fn harvest_sends(&mut self) {
        while let Some(count) = self.sends.get_mut(self.older).filter(|count| **count != 0)
            && let Some(outcome) = SENDS.get(self.older).and_then(|request| self.block.take(*request))
        {
            let asked = core::mem::take(count);
            self.outgoing.release(asked);
            self.older ^= 1;
            match outcome.result() {
                Ok(sent) if sent == asked => {}
                Ok(_) => self.broke(STATUS_UNSUCCESSFUL),
                Err(status) => self.broke(status),
            }
        }
    }

    pub(super) fn receive_done(&mut self, outcome: Outcome) {
        match outcome.result() {
            Ok(0) | Err(STATUS_GRACEFUL_DISCONNECT) => self.finished = true,
            Ok(count) => self.incoming.fill(count),
            Err(status) => self.broke(status),
        }
    }

    /// The connection is broken, for the first reason seen.
    pub(super) fn broke(&mut self, status: NTSTATUS) {
        self.reset.get_or_insert(status);
    }
}
