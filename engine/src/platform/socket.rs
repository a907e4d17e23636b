//! The border to the system's TCP: what a platform's sockets do for streams and listeners.
//!
//! Rules for implementers: every method may be called at DISPATCH_LEVEL and does not wait; no two of one socket run at a time. A
//! [`Waker`](crate::Waker) is called whenever something has changed, from any context, with no lock held; never from inside one of these methods
//! with a lock of the implementer's held. A socket is made idle and begins when its waker is attached. Dropping it closes it.
//!
//! A socket that was accepted has little memory, enough for a Request, until the consumer has accepted, too: what a peer can take of this
//! machine before that is bounded by it.

use core::net::SocketAddr;

use softndk_cells::NoMemory;

use crate::error::ConnectError;
use crate::platform::Platform;

/// What wakes the engine. It links objects of a module above this one, which names it there: [`Waker`](crate::Waker).
pub trait SocketWaker {
    type Waker;
}

/// What there is to be received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arrived {
    /// [`Socket::bytes`] has them.
    Bytes,
    Nothing,
    /// The peer has sent its last.
    Finished,
    Reset,
}

/// One end of a connection of TCP.
pub trait Socket<P: Platform>: Send + 'static {
    /// What an accepted socket gets when its connection is made.
    type Memory: Send;

    fn allocate() -> Result<Self::Memory, NoMemory>;

    /// Uses the memory from now on; before anything but a Request is received or sent. Once.
    fn take_memory(&mut self, memory: Self::Memory);

    /// Begins: connects, or receives where the connection has been accepted.
    fn attach(&mut self, waker: <P as SocketWaker>::Waker);

    /// Goes on with what could not be done where it was found. Called first of all after a wake-up.
    fn advance(&mut self);

    /// The port that has taken the place of the one it was to connect from, which TCP has. It goes on when it is advanced after this
    /// call, so that nothing has been sent to the peer before.
    fn take_new_port(&mut self) -> Option<u16>;

    /// Takes as many of these bytes as there is space for, to be sent; wakes when there is space again. After a reset, and after the
    /// end, all: nothing says that they are not taken.
    fn send(&mut self, bytes: &[u8]) -> usize;

    /// Looks for bytes behind those that have been consumed.
    fn receive(&mut self) -> Arrived;

    /// Whether the end of the peer's bytes is known although some have not been consumed: `Finished` or `Reset`, else `Nothing`.
    fn end_ahead(&self) -> Arrived;

    /// The oldest that have been received and not consumed, as far as they lie together.
    fn bytes(&self) -> &[u8];

    /// So many of the oldest are not needed any more.
    fn consume(&mut self, count: usize);

    /// Sends the end behind what is to be sent.
    fn finish(&mut self);

    /// Breaks the connection. The peer may receive the reset before the bytes that were sent.
    fn abort(&mut self);

    /// Both directions have ended, as [`Self::receive`] has said, or it has been aborted.
    fn is_over(&self) -> bool;

    /// Why no connection was made; before the socket is aborted or closed.
    fn refusal(&self) -> ConnectError;

    /// Wakes nothing any more; breaks a connection that is not over.
    fn close(&mut self);
}

/// How far a listening socket is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ListenState {
    Starting,
    Listening,
    Failed(ConnectError),
}

/// A socket to which connections come.
pub trait ListeningSocket<P: Platform>: Send + 'static {
    /// Begins.
    fn attach(&mut self, waker: <P as SocketWaker>::Waker);

    /// As of [`Socket`].
    fn advance(&mut self);

    fn state(&self) -> ListenState;

    /// It cannot accept for a shortage and wakes nothing: [`Self::resume`] is called after a while.
    fn is_stalled(&self) -> bool;

    /// Accepts again.
    fn resume(&mut self);

    /// The next connection that has come, with the address it comes from.
    fn accept(&mut self) -> Option<(P::Socket, SocketAddr)>;

    /// Wakes nothing any more; connections that have not been taken break.
    fn close(&mut self);
}
