//! A listening socket, which has the next connection accepted as soon as the last one was taken.
//!
//! Rule it keeps: the block of an accepted socket is there before the socket is asked for, so whoever has an [`Accepted`] can drop it.

use core::{cell::UnsafeCell, net::SocketAddr, ptr};

use ndkpi_sys::nt::{
    NTSTATUS, SOCKADDR_INET, STATUS_ACCESS_DENIED, STATUS_ADDRESS_ALREADY_EXISTS, STATUS_FILE_FORCED_CLOSED,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_LOCAL_DISCONNECT, STATUS_UNSUCCESSFUL,
};

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

/// The only request: the steps follow one another.
const STEP: usize = 0;
const REQUESTS: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenState {
    Starting,
    Listening,
    /// It does not listen (any more), or it was closed (`STATUS_LOCAL_DISCONNECT`).
    Failed(NTSTATUS),
}

/// A connection that has come. Dropping it breaks the connection: `IRQL <= DISPATCH_LEVEL`, not in a completion.
pub struct Accepted {
    pub(super) socket: Socket,
    remote: SocketAddr,
}

impl Accepted {
    pub fn remote_address(&self) -> SocketAddr {
        self.remote
    }
}

/// The address that the call under way uses: of this side, then of the one that has connected.
struct Address(UnsafeCell<SOCKADDR_INET>);

// SAFETY: the cell belongs to the owner of the listener while the request is idle, and to Winsock Kernel otherwise.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

/// What is done or to be done next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListenStep {
    Make,
    Bind,
    Accept,
}

enum ListenPhase {
    /// It was not asked to listen.
    Fresh,
    Under(ListenStep),
    Failed(NTSTATUS),
}

/// A listening socket; dropping it closes it. Connections that were accepted stay. All functions: `IRQL <= DISPATCH_LEVEL`, and not in a
/// completion ([`Wake`]).
pub struct Listener<W: Wake> {
    client: &'static Client,
    tag: Tag,
    /// Before the block: closed first, so that the request under way is completed.
    socket: Option<Socket>,
    /// For the socket that the next step makes.
    spare: Option<Spare>,
    phase: ListenPhase,
    local: Option<SocketAddr>,
    /// A connection that the owner has not taken.
    came: Option<Accepted>,
    /// An accept or a bind has failed, and the owner has not said yet that it is to be repeated.
    rests: bool,
    /// How often a port in use is asked for again.
    binds_left: u8,
    /// When the bind was asked for, a socket of ours was being closed.
    binds_beside_close: bool,
    closed: bool,
    block: Owner<Address, W>,
}

impl<W: Wake> Listener<W> {
    /// A bind that finds the port in use while the client closes sockets is repeated so often.
    pub fn try_new(client: &'static Client, tag: Tag, repeated_binds: u8) -> Result<Self, NoMemory> {
        let body = Address(UnsafeCell::new(SOCKADDR_INET::zeroed()));
        Ok(Self {
            client,
            tag,
            socket: None,
            spare: Some(Spare::try_new(tag)?),
            phase: ListenPhase::Fresh,
            local: None,
            came: None,
            rests: false,
            binds_left: repeated_binds,
            binds_beside_close: false,
            closed: false,
            block: Owner::try_new(tag, REQUESTS, body)?,
        })
    }

    /// Begins to listen on an address. Once. It may have failed when this returns; then the
    /// waker is never called.
    pub fn listen(&mut self, local: SocketAddr, waker: W) {
        if !matches!(self.phase, ListenPhase::Fresh) {
            return;
        }
        self.client.reap();
        self.local = Some(local);
        self.phase = match self.block.start(self.client, waker) {
            Ok(()) => ListenPhase::Under(ListenStep::Make),
            Err(status) => ListenPhase::Failed(status),
        };
        self.advance();
    }

    /// Takes the result of the completed call and makes the next one. For the owner that was woken.
    pub fn advance(&mut self) {
        // Calls may be completed inside themselves. The first connection that comes ends this, and an accept that fails.
        while !self.closed && self.harvest_and_issue() {}
    }

    fn harvest_and_issue(&mut self) -> bool {
        self.harvest();
        self.issue()
    }

    /// Nothing is under way, because there was no memory for an accept, or the last accept or bind has failed. No wake-up follows:
    /// [`Self::resume`] is called after a while.
    pub fn is_stalled(&self) -> bool {
        self.rests && !self.closed
    }

    /// Repeats what has failed.
    pub fn resume(&mut self) {
        self.rests = false;
        self.advance();
    }

    pub fn state(&self) -> ListenState {
        match self.phase {
            ListenPhase::Under(ListenStep::Accept) => ListenState::Listening,
            ListenPhase::Fresh | ListenPhase::Under(_) => ListenState::Starting,
            ListenPhase::Failed(status) => ListenState::Failed(status),
        }
    }

    /// The connection that has come. Another is accepted from then on, for which the owner is woken.
    pub fn accept(&mut self) -> Option<Accepted> {
        let accepted = self.came.take();
        self.advance();
        accepted
    }

    /// Closes the socket, and breaks a connection that has come and was not taken.
    pub fn close(&mut self) {
        if self.closed {
            return;
        }
        if matches!(self.phase, ListenPhase::Under(ListenStep::Make | ListenStep::Accept))
            && let Some(spare) = self.spare.take()
        {
            // The socket that comes later is closed by the client.
            self.spare = self.block.abandon(STEP, spare);
            if self.spare.is_some() {
                self.harvest();
            }
        }
        self.closed = true;
        drop(self.came.take());
        drop(self.socket.take());
        if !matches!(self.phase, ListenPhase::Failed(_)) {
            self.phase = ListenPhase::Failed(STATUS_LOCAL_DISCONNECT);
        }
    }

    /// Takes the result of the call, if it is complete. An accept that has failed is not repeated at once: it may fail after its call has
    /// returned, each time, and its completion wakes the owner.
    fn harvest(&mut self) {
        let Some(outcome) = self.block.take(STEP) else { return };
        let ListenPhase::Under(step) = self.phase else { return };
        self.phase = match (step, outcome.result()) {
            (ListenStep::Make, Ok(_)) => self.made(outcome),
            (ListenStep::Bind, Ok(_)) => ListenPhase::Under(ListenStep::Accept),
            (ListenStep::Accept, Ok(_)) => self.accepted(outcome),
            (ListenStep::Bind, Err(STATUS_ACCESS_DENIED | STATUS_ADDRESS_ALREADY_EXISTS)) if self.repeats_bind() => {
                ListenPhase::Under(ListenStep::Make)
            }
            // Another socket has the port at every address.
            (ListenStep::Bind, Err(STATUS_ACCESS_DENIED)) => ListenPhase::Failed(STATUS_ADDRESS_ALREADY_EXISTS),
            // A shortage that passes ends no listener.
            (ListenStep::Accept, Err(status)) if status != STATUS_FILE_FORCED_CLOSED => {
                self.rests = true;
                ListenPhase::Under(ListenStep::Accept)
            }
            // Of an accept it is that the system has closed the socket.
            (_, Err(status)) => ListenPhase::Failed(status),
        };
    }

    /// A port in use may be that of a socket of ours whose close was not complete: then another socket asks for it after a while.
    fn repeats_bind(&mut self) -> bool {
        let Some(left) = self.binds_left.checked_sub(1).filter(|_| self.binds_beside_close) else { return false };
        self.binds_left = left;
        self.rests = true;
        drop(self.socket.take());
        true
    }

    fn made(&mut self, outcome: Outcome) -> ListenPhase {
        if let (Some(socket), Some(spare)) = (socket_of(outcome), self.spare.take()) {
            self.socket = Some(Socket::new(spare, socket));
            return ListenPhase::Under(ListenStep::Bind);
        }
        ListenPhase::Failed(STATUS_UNSUCCESSFUL)
    }

    fn accepted(&mut self, outcome: Outcome) -> ListenPhase {
        let (Some(socket), Some(spare)) = (socket_of(outcome), self.spare.take()) else {
            return ListenPhase::Failed(STATUS_UNSUCCESSFUL);
        };
        let socket = Socket::new(spare, socket);
        // SAFETY: the request is idle, so the place is ours, and it is plain data.
        let remote = unsafe { self.block.body().0.get().read() };
        if let Some(remote) = address::socket_address(&remote) {
            self.came = Some(Accepted { socket, remote });
        }
        ListenPhase::Under(ListenStep::Accept)
    }

    /// Makes the call that is next, if it can be made; whether it was.
    fn issue(&mut self) -> bool {
        let ListenPhase::Under(step) = self.phase else { return false };
        if self.rests || !self.block.is_idle(STEP) {
            return false;
        }
        let begun = match step {
            ListenStep::Make => self.make(),
            ListenStep::Bind => self.bind(),
            ListenStep::Accept if self.came.is_some() => return false,
            ListenStep::Accept if !self.has_spare() => {
                self.rests = true;
                return false;
            }
            ListenStep::Accept => self.issue_accept(),
        };
        if let Err(status) = begun {
            self.phase = ListenPhase::Failed(status);
        }
        begun.is_ok()
    }

    /// Whether there is the block of the next socket.
    fn has_spare(&mut self) -> bool {
        let spare = self.spare.take().map_or_else(|| Spare::try_new(self.tag), Ok);
        self.spare = spare.ok().and_then(|mut spare| spare.arm(self.client).ok().map(|()| spare));
        self.spare.is_some()
    }

    fn make(&mut self) -> Result<(), NTSTATUS> {
        if !self.has_spare() {
            return Err(STATUS_INSUFFICIENT_RESOURCES);
        }
        let local = self.local.as_ref().ok_or(STATUS_UNSUCCESSFUL)?;
        self.block.make_socket(STEP, local, SocketKind::LISTENING)
    }

    fn bind(&mut self) -> Result<(), NTSTATUS> {
        self.binds_beside_close = self.client.is_closing_sockets();
        let socket = self.socket.as_ref().ok_or(STATUS_UNSUCCESSFUL)?;
        // SAFETY: made as a listening socket.
        let (table, socket) = (unsafe { socket.listener() }, socket.as_ptr());
        let place = self.block.body().0.get();
        // SAFETY: the request is idle, so the place is ours.
        unsafe { place.write(self.local.as_ref().map_or(SOCKADDR_INET::zeroed(), address::inet)) };
        self.block.issue(STEP, |packet| {
            // SAFETY: an open socket, not bound yet; the address stays in the block; a packet for this call.
            unsafe { (table.WskBind)(socket, place.cast(), 0, packet) }
        });
        Ok(())
    }

    fn issue_accept(&self) -> Result<(), NTSTATUS> {
        let socket = self.socket.as_ref().ok_or(STATUS_UNSUCCESSFUL)?;
        // SAFETY: made as a listening socket.
        let (table, socket) = (unsafe { socket.listener() }, socket.as_ptr());
        let remote = self.block.body().0.get().cast();
        self.block.issue(STEP, |packet| {
            // SAFETY: a bound socket; no callbacks, so no context and no table of ours; room for every kind of address, in the block; a
            // packet for this call.
            unsafe { (table.WskAccept)(socket, 0, ptr::null_mut(), ptr::null(), ptr::null_mut(), remote, packet) }
        });
        Ok(())
    }
}

impl<W: Wake> Drop for Listener<W> {
    fn drop(&mut self) {
        self.close();
    }
}
