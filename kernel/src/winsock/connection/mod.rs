//! A TCP connection: made or accepted, with a ring of bytes in each direction.
//!
//! The owner writes into the send ring and reads from the receive ring; Winsock Kernel does the same at the other ends. [`Connection::advance`]
//! takes the results of what is complete and asks for what is next: the steps of connecting ([`steps`]), a receive into what is free of the
//! one ring, sends of what is in the other, and the end behind the last byte ([`stream`]).
//!
//! Rules it keeps: the parts of the rings that calls under way read or write are not touched meanwhile; calls of a socket do not overlap;
//! a send is asked for when those before it were, so that they keep their order.

mod steps;
mod stream;

use core::{cell::UnsafeCell, net::SocketAddr};

use ndkpi_sys::{
    nt::{NTSTATUS, SOCKADDR_INET, STATUS_LOCAL_DISCONNECT},
    wsk::WSK_BUF,
};
use softndk_cells::{ByteRing, Once};

use super::{
    Wake,
    block::Owner,
    client::Client,
    listener::Accepted,
    memory::Memory,
    socket::{Socket, Spare},
};
use crate::pool::{NoMemory, Tag};
use steps::Step;

/// The requests: one for the steps of connecting and ending, one at a time, and those of the stream.
const STEP: usize = 0;
const RECEIVE: usize = 1;
const SENDS: [usize; 2] = [2, 3];
const REQUESTS: usize = 4;

/// Bytes of the rings.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub send: usize,
    pub receive: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not open yet.
    Connecting,
    /// It was connected; [`Connection::end`] says whether it still is.
    Open,
    /// It was not connected, or it was closed (`STATUS_LOCAL_DISCONNECT`).
    Failed(NTSTATUS),
}

/// How the peer's bytes have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The peer sends no more, and everything was consumed.
    Finished,
    /// The connection was broken. There may be bytes that came before.
    Reset(NTSTATUS),
}

/// The memory of both rings.
pub struct Rings {
    outgoing: Memory,
    incoming: Memory,
}

impl Rings {
    /// A ring has one byte at least, and less than 4 GiB.
    pub fn try_new(tag: Tag, sizes: Sizes) -> Result<Self, NoMemory> {
        Ok(Self {
            outgoing: Memory::try_new(tag, sizes.send.max(1))?,
            incoming: Memory::try_new(tag, sizes.receive.max(1))?,
        })
    }
}

/// What calls under way use.
struct Body {
    rings: Rings,
    /// Those that replace them, each once the one before is empty and no call uses it.
    next: Once<Rings>,
    /// Of the step.
    address: UnsafeCell<SOCKADDR_INET>,
    receive: UnsafeCell<WSK_BUF>,
    sends: [UnsafeCell<WSK_BUF>; 2],
}

// SAFETY: each cell belongs to the owner of the connection while the request that it is for is idle, and to Winsock Kernel otherwise; the
// memory is divided in the same way.
unsafe impl Send for Body {}
// SAFETY: as above.
unsafe impl Sync for Body {}

enum Phase {
    /// Neither connected nor adopted.
    Fresh,
    Under(Step),
    Open,
    Failed(NTSTATUS),
}

/// The end that this side sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Finish {
    No,
    Asked,
    UnderWay,
    Done,
}

/// Which of the replaced rings are in use.
#[derive(Clone, Copy, Default)]
struct UsesNext {
    outgoing: bool,
    incoming: bool,
}

/// A connection; dropping it closes it. All functions: `IRQL <= DISPATCH_LEVEL`, and not in a completion ([`Wake`]).
pub struct Connection<W: Wake> {
    client: &'static Client,
    tag: Tag,
    /// Before the block: closed first, so that the requests under way are completed.
    socket: Option<Socket>,
    /// For the socket that connecting makes.
    spare: Option<Spare>,
    phase: Phase,
    local: Option<SocketAddr>,
    /// How often it may ask for another port than that of `local`.
    ports_left: u8,
    /// The port that has taken the place of the first one, until the owner has heard of it.
    new_port: Option<u16>,
    remote: Option<SocketAddr>,
    /// Which of them are in use.
    uses_next: UsesNext,
    /// Bytes to be sent and under way.
    outgoing: ByteRing,
    /// How many bytes each send under way has, and which one is the older.
    sends: [usize; 2],
    older: usize,
    /// Bytes that have come.
    incoming: ByteRing,
    finish: Finish,
    /// The peer has sent its end.
    finished: bool,
    reset: Option<NTSTATUS>,
    closed: bool,
    block: Owner<Body, W>,
}

impl<W: Wake> Connection<W> {
    /// Allocates everything that the connection will need. [`Self::take_rings`] replaces the rings. A port in use is replaced by
    /// another one so often.
    pub fn try_new(client: &'static Client, tag: Tag, sizes: Sizes, other_ports: u8) -> Result<Self, NoMemory> {
        let none = || UnsafeCell::new(WSK_BUF { Mdl: core::ptr::null_mut(), Offset: 0, Length: 0 });
        let body = Body {
            rings: Rings::try_new(tag, sizes)?,
            next: Once::new(),
            address: UnsafeCell::new(SOCKADDR_INET::zeroed()),
            receive: none(),
            sends: [none(), none()],
        };
        let Rings { outgoing, incoming } = &body.rings;
        let (outgoing, incoming) = (ByteRing::new(outgoing.length()), ByteRing::new(incoming.length()));
        Ok(Self {
            client,
            tag,
            socket: None,
            spare: Some(Spare::try_new(tag)?),
            phase: Phase::Fresh,
            local: None,
            ports_left: other_ports,
            new_port: None,
            remote: None,
            uses_next: UsesNext::default(),
            outgoing,
            sends: [0; 2],
            older: 0,
            incoming,
            finish: Finish::No,
            finished: false,
            reset: None,
            closed: false,
            block: Owner::try_new(tag, REQUESTS, body)?,
        })
    }

    /// Uses these rings, each as soon as the one before is empty. Once; others are freed.
    pub fn take_rings(&mut self, rings: Rings) {
        drop(self.block.body().next.set(rings));
        self.advance();
    }

    /// Replaces rings that are empty and used by no call.
    fn change_rings(&mut self) {
        let Some(next) = self.block.body().next.get() else { return };
        if !self.uses_next.outgoing && self.outgoing.is_empty() {
            (self.outgoing, self.uses_next.outgoing) = (ByteRing::new(next.outgoing.length()), true);
        }
        if !self.uses_next.incoming && self.incoming.is_empty() && self.block.is_idle(RECEIVE) {
            (self.incoming, self.uses_next.incoming) = (ByteRing::new(next.incoming.length()), true);
        }
    }

    fn outgoing_memory(&self) -> &Memory {
        let body = self.block.body();
        &body.next.get().filter(|_| self.uses_next.outgoing).unwrap_or(&body.rings).outgoing
    }

    fn incoming_memory(&self) -> &Memory {
        let body = self.block.body();
        &body.next.get().filter(|_| self.uses_next.incoming).unwrap_or(&body.rings).incoming
    }

    /// Whether a ring is to be replaced and is not yet: nothing more is received into it.
    fn is_incoming_replaced(&self) -> bool {
        !self.uses_next.incoming && self.block.body().next.get().is_some()
    }

    /// Begins to connect from one address to another. Once, and not for a connection that was adopted. A port of the local address that is
    /// in use is replaced by one that is free. It may have failed when this returns; then the waker is never called.
    pub fn connect(&mut self, local: SocketAddr, remote: SocketAddr, waker: W) {
        if !matches!(self.phase, Phase::Fresh) {
            return;
        }
        self.client.reap();
        (self.local, self.remote) = (Some(local), Some(remote));
        self.phase = match self.prepare(waker) {
            Ok(()) => Phase::Under(Step::Make),
            Err(status) => Phase::Failed(status),
        };
        self.advance();
    }

    /// Goes on with a connection that a listener has accepted. Once, and not for one that was connected.
    pub fn adopt(&mut self, accepted: Accepted, waker: W) {
        if !matches!(self.phase, Phase::Fresh) {
            return;
        }
        self.phase = match self.block.start(self.client, waker) {
            Ok(()) => Phase::Open,
            Err(status) => Phase::Failed(status),
        };
        self.socket = Some(accepted.socket);
        self.spare = None;
        self.advance();
    }

    /// The port that has taken the place of the one it was to connect from. It goes on with [`Self::advance`] after this call: so the owner
    /// knows the port before the peer does.
    pub fn take_new_port(&mut self) -> Option<u16> {
        self.new_port.take()
    }

    fn prepare(&mut self, waker: W) -> Result<(), NTSTATUS> {
        if let Some(spare) = &mut self.spare {
            spare.arm(self.client)?;
        }
        self.block.start(self.client, waker)
    }

    /// Takes what has been completed and asks for what is next. For the owner that was woken.
    pub fn advance(&mut self) {
        // Calls may be completed inside themselves. Each fills or empties a part of a ring, or is a step: they come to an end.
        while !self.closed {
            self.harvest();
            if !self.issue() {
                break;
            }
        }
    }

    fn harvest(&mut self) {
        if let Some(outcome) = self.block.take(STEP) {
            self.step_done(outcome);
        }
        self.harvest_sends();
        if let Some(outcome) = self.block.take(RECEIVE) {
            self.receive_done(outcome);
        }
        self.change_rings();
    }

    /// Makes the calls that can be made; whether there was one.
    fn issue(&mut self) -> bool {
        match self.phase {
            Phase::Under(step) => self.issue_step(step),
            Phase::Open => self.issue_stream(),
            Phase::Fresh | Phase::Failed(_) => false,
        }
    }

    pub fn state(&self) -> State {
        match self.phase {
            Phase::Fresh | Phase::Under(_) => State::Connecting,
            Phase::Open => State::Open,
            Phase::Failed(status) => State::Failed(status),
        }
    }

    /// How the peer's bytes have ended, if they have. While the receive ring is full and nothing is being sent, an end is not seen.
    pub fn end(&self) -> Option<End> {
        if let Some(status) = self.broken() {
            return Some(End::Reset(status));
        }
        (self.finished && self.incoming.is_empty()).then_some(End::Finished)
    }

    /// Whether there is no connection (any more), whatever has come and was not consumed.
    pub fn is_broken(&self) -> bool {
        self.broken().is_some()
    }

    /// Whether the peer has sent its end, whatever has come before it and was not consumed.
    pub fn has_peer_finished(&self) -> bool {
        self.finished
    }

    /// Why there is no connection (any more).
    fn broken(&self) -> Option<NTSTATUS> {
        if let Phase::Failed(status) = self.phase { Some(status) } else { self.reset }
    }

    /// Whether both sides have ended, or the connection is broken: nothing comes any more.
    pub fn is_over(&self) -> bool {
        self.broken().is_some() || (self.finished && self.finish == Finish::Done)
    }

    /// Closes the socket, which breaks a connection that is not over. Nothing is sent or received any more; bytes that have come can still
    /// be read.
    pub fn close(&mut self) {
        if self.closed {
            return;
        }
        if matches!(self.phase, Phase::Under(Step::Make))
            && let Some(spare) = self.spare.take()
        {
            // The socket that comes later is closed by the client.
            self.spare = self.block.abandon(STEP, spare);
            if self.spare.is_some() {
                self.harvest();
            }
        }
        self.closed = true;
        drop(self.socket.take());
        if !matches!(self.phase, Phase::Failed(_)) {
            self.phase = Phase::Failed(STATUS_LOCAL_DISCONNECT);
        }
    }
}

impl<W: Wake> Drop for Connection<W> {
    fn drop(&mut self) {
        self.close();
    }
}
