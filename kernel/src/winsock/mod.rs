//! TCP and UDP through Winsock Kernel: a client, the sockets that it has made, and what goes in and out of them.
//!
//! A [`Registration`] is what a driver needs to reach Winsock Kernel at all; a [`Client`] has sockets too: [`Listener`],
//! [`Connection`] and [`DatagramSocket`]. The rules of Winsock Kernel are kept by ownership:
//!
//! - Everything that happens is the completion of a packet; there are no event callbacks. The packets are allocated with their owner, so
//!   that nothing fails for lack of memory between the start and the close of a connection. Rings may be replaced by larger ones.
//! - What a call returns is advisory: its packet is completed in any case, also inside the call. Only completions are believed.
//! - A completion calls nothing of Winsock Kernel, because it may run deep in the stack of such a call: it leaves its result in the packet
//!   and wakes the owner ([`Wake`]), which goes on from there ([`Connection::advance`], [`Listener::advance`],
//!   [`DatagramSocket::advance`]).
//! - No call of a socket is under way when it is closed, and none comes after: all of them take `&mut self`, and closing takes the socket
//!   away. What completions reach is in a block of its own, which stays until the last of them.
//! - No lock is held over a call of Winsock Kernel or over a wake.

mod block;
mod client;
mod connection;
mod datagram;
mod listener;
mod memory;
mod packet;
mod registration;
mod socket;

pub use client::Client;
pub use connection::{Connection, End, Rings, Sizes, State};
pub use datagram::{DatagramLosses, DatagramSlots, DatagramSocket, DatagramState};
pub use listener::{Accepted, ListenState, Listener};
pub use registration::{Captured, Provider, Registration};

/// How the owner of a socket learns that there is something to do.
pub trait Wake: Send + Sync + 'static {
    /// Has the owner look at the socket soon ([`Connection::advance`], [`Listener::advance`], [`DatagramSocket::advance`]), and one that
    /// has let it go call [`Client::reap`].
    ///
    /// Called by completions, also inside the owner's own calls and for some time after the socket was closed: it only notes and queues, and
    /// must not call the socket. `IRQL <= DISPATCH_LEVEL`, no lock held. The value is dropped there, too.
    fn wake(&self);
}
