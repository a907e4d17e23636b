//! A datagram socket of UDP: slots for datagrams that come, and slots for those that are sent.
//!
//! [`DatagramSocket::advance`] takes the results of what is complete and asks for what is next: the socket, its local address, and then a
//! receive with each slot that is free ([`receive`]). Sends are asked for by the owner ([`send`]). What is lost is counted.
//!
//! Rules it keeps: a slot belongs to one call at a time; calls of the socket do not overlap; one `advance` asks for one receive with
//! each slot at most, so that its work is bounded.

mod receive;
mod send;
mod slot;

use core::net::SocketAddr;

use ndkpi_sys::nt::{NTSTATUS, SOCKADDR_INET, STATUS_LOCAL_DISCONNECT, STATUS_UNSUCCESSFUL};

use super::{
    Wake,
    block::{Owner, socket_of},
    client::Client,
    packet::Outcome,
    socket::{Socket, SocketKind, Spare},
};
use crate::{
    address,
    pool::{NoMemory, Tag},
};
use receive::Inbound;
use send::Outbound;
use slot::DatagramBody;

/// The request of the steps, one at a time; behind it are those of the receives, and those of the sends.
const STEP: usize = 0;
const FIRST_RECEIVE: usize = 1;

/// How many datagrams are under way at a time, one at least in each direction, and how long they are at most.
#[derive(Clone, Copy, Debug)]
pub struct DatagramSlots {
    pub receives: usize,
    pub sends: usize,
    pub bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramState {
    Starting,
    /// Bound: it sends and receives.
    Open,
    /// It was not bound, is no longer functional, or was closed (`STATUS_LOCAL_DISCONNECT`).
    Failed(NTSTATUS),
}

/// Datagrams that were not handed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramLosses {
    /// Came, and were longer than a slot.
    pub too_long: u64,
    /// Receives that failed for another reason; what made them fail may be no datagram.
    pub failed_receives: u64,
    /// Were to be sent, and failed or were longer than a slot.
    pub sends: u64,
}

/// What is done or to be done next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DatagramStep {
    Make,
    Bind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DatagramPhase {
    /// It was not opened.
    Fresh,
    Under(DatagramStep),
    Open,
    Failed(NTSTATUS),
}

/// A datagram socket; dropping it closes it. All functions: `IRQL <= DISPATCH_LEVEL`, and not in a completion ([`Wake`]).
pub struct DatagramSocket<W: Wake> {
    client: &'static Client,
    /// Before the block: closed first, so that the requests under way are completed.
    socket: Option<Socket>,
    /// For the socket that is made.
    spare: Option<Spare>,
    phase: DatagramPhase,
    local: Option<SocketAddr>,
    inbound: Inbound,
    outbound: Outbound,
    losses: DatagramLosses,
    closed: bool,
    block: Owner<DatagramBody, W>,
}

impl<W: Wake> DatagramSocket<W> {
    /// Allocates everything that the socket will need.
    pub fn try_new(client: &'static Client, tag: Tag, slots: DatagramSlots) -> Result<Self, NoMemory> {
        let slots =
            DatagramSlots { receives: slots.receives.max(1), sends: slots.sends.max(1), bytes: slots.bytes.max(1) };
        let requests = slots.receives.checked_add(slots.sends).and_then(|count| count.checked_add(FIRST_RECEIVE));
        let first_send = FIRST_RECEIVE.checked_add(slots.receives).ok_or(NoMemory)?;
        Ok(Self {
            client,
            socket: None,
            spare: Some(Spare::try_new(tag)?),
            phase: DatagramPhase::Fresh,
            local: None,
            inbound: Inbound::try_new(tag, slots.receives)?,
            outbound: Outbound::try_new(tag, slots.sends, first_send)?,
            losses: DatagramLosses::default(),
            closed: false,
            block: Owner::try_new(tag, requests.ok_or(NoMemory)?, DatagramBody::try_new(tag, slots)?)?,
        })
    }

    /// Makes the socket and binds it to an address; it receives from then on. Once. It may have failed when this returns; then the waker
    /// is never called.
    pub fn open(&mut self, local: SocketAddr, waker: W) {
        if self.closed || self.phase != DatagramPhase::Fresh {
            return;
        }
        self.client.reap();
        self.local = Some(local);
        self.phase = match self.prepare(waker) {
            Ok(()) => DatagramPhase::Under(DatagramStep::Make),
            Err(status) => DatagramPhase::Failed(status),
        };
        self.advance();
    }

    fn prepare(&mut self, waker: W) -> Result<(), NTSTATUS> {
        if let Some(spare) = &mut self.spare {
            spare.arm(self.client)?;
        }
        self.block.start(self.client, waker)
    }

    /// Takes what has been completed and asks for what is next. For the owner that was woken.
    pub fn advance(&mut self) {
        // Calls may be completed inside themselves. The steps come to an end.
        while !self.closed && self.harvest_step() && self.issue_step() {}
        if !self.closed && self.phase == DatagramPhase::Open {
            self.harvest_sends();
            self.advance_receives();
        }
    }

    pub fn state(&self) -> DatagramState {
        match self.phase {
            DatagramPhase::Fresh | DatagramPhase::Under(_) => DatagramState::Starting,
            DatagramPhase::Open => DatagramState::Open,
            DatagramPhase::Failed(status) => DatagramState::Failed(status),
        }
    }

    /// What was lost so far.
    pub fn losses(&self) -> DatagramLosses {
        self.losses
    }

    /// Closes the socket. Nothing is sent or received any more; datagrams that have come can still be taken.
    pub fn close(&mut self) {
        if self.closed {
            return;
        }
        if self.phase == DatagramPhase::Under(DatagramStep::Make)
            && let Some(spare) = self.spare.take()
        {
            // The socket that comes later is closed by the client.
            self.spare = self.block.abandon(STEP, spare);
            if self.spare.is_some() {
                self.harvest_step();
            }
        }
        self.closed = true;
        drop(self.socket.take());
        if !matches!(self.phase, DatagramPhase::Failed(_)) {
            self.phase = DatagramPhase::Failed(STATUS_LOCAL_DISCONNECT);
        }
    }

    /// Takes the result of the step, if it is complete; whether there may be a next one.
    fn harvest_step(&mut self) -> bool {
        let DatagramPhase::Under(step) = self.phase else { return false };
        let Some(outcome) = self.block.take(STEP) else { return true };
        self.phase = match (step, outcome.result()) {
            (DatagramStep::Make, Ok(_)) => self.made(outcome),
            (DatagramStep::Bind, Ok(_)) => DatagramPhase::Open,
            (_, Err(status)) => DatagramPhase::Failed(status),
        };
        true
    }

    fn made(&mut self, outcome: Outcome) -> DatagramPhase {
        if let (Some(socket), Some(spare)) = (socket_of(outcome), self.spare.take()) {
            self.socket = Some(Socket::new(spare, socket));
            return DatagramPhase::Under(DatagramStep::Bind);
        }
        DatagramPhase::Failed(STATUS_UNSUCCESSFUL)
    }

    /// Begins the step that is next; whether it was begun.
    fn issue_step(&mut self) -> bool {
        let DatagramPhase::Under(step) = self.phase else { return false };
        if !self.block.is_idle(STEP) {
            return false;
        }
        let begun = match step {
            DatagramStep::Make => self
                .local
                .as_ref()
                .ok_or(STATUS_UNSUCCESSFUL)
                .and_then(|local| self.block.make_socket(STEP, local, SocketKind::DATAGRAM)),
            DatagramStep::Bind => self.bind(),
        };
        if let Err(status) = begun {
            self.phase = DatagramPhase::Failed(status);
        }
        begun.is_ok()
    }

    fn bind(&self) -> Result<(), NTSTATUS> {
        let socket = self.socket.as_ref().ok_or(STATUS_UNSUCCESSFUL)?;
        // SAFETY: made as a datagram socket.
        let (table, socket) = (unsafe { socket.datagram() }, socket.as_ptr());
        let place = self.block.body().address.get();
        // SAFETY: the request of the steps is idle, so the place is ours.
        unsafe { place.write(self.local.as_ref().map_or(SOCKADDR_INET::zeroed(), address::inet)) };
        self.block.issue(STEP, |packet| {
            // SAFETY: an open socket, not bound yet; the address stays in the block; a packet for this call.
            unsafe { (table.WskBind)(socket, place.cast(), 0, packet) }
        });
        Ok(())
    }
}

impl<W: Wake> Drop for DatagramSocket<W> {
    fn drop(&mut self) {
        self.close();
    }
}
