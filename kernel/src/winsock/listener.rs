//! A listening socket, which has the next connection accepted as soon as the last one was taken.
//!
//! Rule it keeps: the block of an accepted socket is there before the socket is asked for, so whoever has an [`Accepted`] can drop it.

use core::{cell::UnsafeCell, net::SocketAddr, ptr};

use ndkpi_sys::{
    nt::{NTSTATUS, SOCKADDR_INET, STATUS_LOCAL_DISCONNECT, STATUS_UNSUCCESSFUL},
    wsk::{IPPROTO_TCP, SOCK_STREAM, WSK_FLAG_LISTEN_SOCKET},
};

use super::{
    Wake,
    block::{Owner, socket_of},
    client::Client,
    packet::Outcome,
    socket::{Socket, Spare},
};
use crate::{
    address,
    pool::{NoMemory, Tag},
};

/// The only request: everything is done in turn.
const STEP: usize = 0;
const REQUESTS: usize = 1;

/// Accepts that may fail in a row.
const MOST_FAILURES: u8 = 8;

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
    pub(super) remote: SocketAddr,
    pub(super) local: SocketAddr,
}

impl Accepted {
    pub fn remote_address(&self) -> SocketAddr {
        self.remote
    }

    pub fn local_address(&self) -> SocketAddr {
        self.local
    }
}

/// Addresses that calls under way use.
struct Addresses {
    local: UnsafeCell<SOCKADDR_INET>,
    remote: UnsafeCell<SOCKADDR_INET>,
}

// SAFETY: the cells belong to the owner of the listener while the request is idle, and to Winsock Kernel otherwise.
unsafe impl Send for Addresses {}
// SAFETY: as above.
unsafe impl Sync for Addresses {}

/// What is done or to be done next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListenStep {
    Make,
    Bind,
    /// Which port it has become.
    Ask,
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
    closed: bool,
    /// Accepts that have failed in a row.
    failures: u8,
    block: Owner<Addresses, W>,
}

impl<W: Wake> Listener<W> {
    pub fn try_new(client: &'static Client, tag: Tag) -> Result<Self, NoMemory> {
        let body = Addresses {
            local: UnsafeCell::new(SOCKADDR_INET::zeroed()),
            remote: UnsafeCell::new(SOCKADDR_INET::zeroed()),
        };
        Ok(Self {
            client,
            tag,
            socket: None,
            spare: Some(Spare::try_new(tag)?),
            phase: ListenPhase::Fresh,
            local: None,
            came: None,
            closed: false,
            failures: 0,
            block: Owner::try_new(tag, REQUESTS, body)?,
        })
    }

    /// Begins to listen on an address; with port 0 on one that is free. Once. It may have failed when this returns, and then wakes nobody.
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

    /// Takes what has been completed and asks for what is next. For the owner that was woken. If there is no memory for the next
    /// connection, nothing is accepted until this is called again.
    pub fn advance(&mut self) {
        // Calls may be completed inside themselves. The first connection that comes ends this.
        while !self.closed {
            self.harvest();
            if !self.issue() {
                break;
            }
        }
    }

    pub fn state(&self) -> ListenState {
        match self.phase {
            ListenPhase::Under(ListenStep::Accept) => ListenState::Listening,
            ListenPhase::Fresh | ListenPhase::Under(_) => ListenState::Starting,
            ListenPhase::Failed(status) => ListenState::Failed(status),
        }
    }

    /// The address that it listens on, with its port once it listens.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.local
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

    fn harvest(&mut self) {
        let Some(outcome) = self.block.take(STEP) else { return };
        let ListenPhase::Under(step) = self.phase else { return };
        self.phase = match (step, outcome.result()) {
            (ListenStep::Make, Ok(_)) => self.made(outcome),
            (ListenStep::Bind, Ok(_)) if self.local.is_some_and(|local| local.port() != 0) => {
                ListenPhase::Under(ListenStep::Accept)
            }
            (ListenStep::Bind, Ok(_)) => ListenPhase::Under(ListenStep::Ask),
            (ListenStep::Ask, Ok(_)) => {
                // SAFETY: the request is idle, so the place is ours, and it is plain data.
                let form = unsafe { self.block.body().local.get().read() };
                self.local = address::socket_address(&form).or(self.local);
                ListenPhase::Under(ListenStep::Accept)
            }
            (ListenStep::Accept, Ok(_)) => {
                self.failures = 0;
                self.accepted(outcome)
            }
            // A shortage that passes ends no listener; one that stays must not keep it busy.
            (ListenStep::Accept, Err(_)) if self.failures < MOST_FAILURES => {
                self.failures = self.failures.saturating_add(1);
                ListenPhase::Under(ListenStep::Accept)
            }
            (_, Err(status)) => ListenPhase::Failed(status),
        };
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
        let body = self.block.body();
        // SAFETY: the request is idle, so the place is ours, and it is plain data.
        let local = unsafe { body.local.get().read() };
        // SAFETY: as above.
        let remote = unsafe { body.remote.get().read() };
        if let (Some(local), Some(remote)) = (address::socket_address(&local), address::socket_address(&remote)) {
            self.came = Some(Accepted { socket, remote, local });
        }
        ListenPhase::Under(ListenStep::Accept)
    }

    /// Makes the call that is next, if it can be made; whether it was.
    fn issue(&mut self) -> bool {
        let ListenPhase::Under(step) = self.phase else { return false };
        if !self.block.is_idle(STEP) {
            return false;
        }
        if matches!(step, ListenStep::Make | ListenStep::Accept) && !self.has_spare() {
            // For the first socket there is one. The next time there may be memory.
            return false;
        }
        let begun = match step {
            ListenStep::Make => self.make(),
            ListenStep::Bind | ListenStep::Ask => self.bind(step),
            ListenStep::Accept if self.came.is_some() => return false,
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

    fn make(&self) -> Result<(), NTSTATUS> {
        let family = address::family(&self.local.ok_or(STATUS_UNSUCCESSFUL)?);
        let provider = self.block.provider()?;
        // SAFETY: a provider that is held has a complete table.
        let make = unsafe { (*provider.dispatch).WskSocket };
        self.block.issue(STEP, |packet| {
            // SAFETY: the provider is held; no callbacks, so no context and no table of ours; a packet for this call.
            unsafe {
                make(
                    provider.client,
                    family,
                    SOCK_STREAM,
                    IPPROTO_TCP,
                    WSK_FLAG_LISTEN_SOCKET,
                    ptr::null_mut(),
                    ptr::null(),
                    ptr::null_mut(),
                    ptr::null_mut(),
                    ptr::null_mut(),
                    packet,
                )
            }
        });
        Ok(())
    }

    fn bind(&self, step: ListenStep) -> Result<(), NTSTATUS> {
        let socket = self.socket.as_ref().ok_or(STATUS_UNSUCCESSFUL)?;
        // SAFETY: made as a listening socket.
        let (table, socket) = (unsafe { socket.listener() }, socket.as_ptr());
        let place = self.block.body().local.get();
        // SAFETY: the request is idle, so the place is ours.
        unsafe { place.write(self.local.as_ref().map_or(SOCKADDR_INET::zeroed(), address::inet)) };
        self.block.issue(STEP, |packet| {
            if step == ListenStep::Ask {
                // SAFETY: an open socket; room for every kind of address, in the block; a packet for this call.
                unsafe { (table.WskGetLocalAddress)(socket, place.cast(), packet) }
            } else {
                // SAFETY: as above, not bound yet.
                unsafe { (table.WskBind)(socket, place.cast(), 0, packet) }
            }
        });
        Ok(())
    }

    fn issue_accept(&self) -> Result<(), NTSTATUS> {
        let socket = self.socket.as_ref().ok_or(STATUS_UNSUCCESSFUL)?;
        // SAFETY: made as a listening socket.
        let (table, socket) = (unsafe { socket.listener() }, socket.as_ptr());
        let body = self.block.body();
        let (local, remote) = (body.local.get().cast(), body.remote.get().cast());
        self.block.issue(STEP, |packet| {
            // SAFETY: a bound socket; no callbacks, so no context and no table of ours; room for every kind of address, in the block; a
            // packet for this call.
            unsafe { (table.WskAccept)(socket, 0, ptr::null_mut(), ptr::null(), local, remote, packet) }
        });
        Ok(())
    }
}

impl<W: Wake> Drop for Listener<W> {
    fn drop(&mut self) {
        self.close();
    }
}
