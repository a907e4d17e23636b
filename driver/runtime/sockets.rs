//! The system's TCP as the engine's platform has it: sockets of Winsock Kernel.
//!
//! The client is there as long as the driver; nothing waits for Winsock Kernel at the start. The engine closes each socket before it
//! forgets it; a socket that is closed is let go here at once, because its block keeps what it wakes.

use core::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
};

use ndkpi_sys::nt::{
    NTSTATUS, STATUS_ADDRESS_ALREADY_EXISTS, STATUS_HOST_UNREACHABLE, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_ADDRESS_COMPONENT, STATUS_IO_TIMEOUT, STATUS_NETWORK_UNREACHABLE,
};
use softndk_engine::limits::{OTHER_PORTS, PORT_BINDS, SOCKET_RECEIVE, SOCKET_SEND, STREAM_START};
use softndk_engine::{Arrived, ConnectError, ListenState, ListeningSocket, Platform, Socket, Waker};
use softndk_kernel::{
    pool::NoMemory,
    published::Published,
    winsock::{self, Client, Connection, End, Listener, Rings, Sizes, State, Wake},
};

use crate::tags;

/// Bytes that wait in each direction of a connection, and until one that has come is accepted.
const SIZES: Sizes = Sizes { send: SOCKET_SEND, receive: SOCKET_RECEIVE };
const START_SIZES: Sizes = Sizes { send: STREAM_START, receive: STREAM_START };

static CLIENT: Published<Client> = Published::new(tags::WSK_CLIENT);

/// It has been registered, and not ended.
static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

/// Registers with Winsock Kernel. PASSIVE_LEVEL, from DriverEntry.
pub fn start() -> Result<(), NTSTATUS> {
    let made = Client::try_new(tags::WSK_CLIENT).and_then(|client| CLIENT.publish(client));
    made.map_err(|NoMemory| STATUS_INSUFFICIENT_RESOURCES)?.register()?;
    IS_REGISTERED.store(true, Ordering::Release);
    Ok(())
}

/// Waits until every socket is closed. PASSIVE_LEVEL, when no adapter is left and the engine still runs.
pub fn stop() {
    if IS_REGISTERED.swap(false, Ordering::AcqRel)
        && let Some(client) = CLIENT.get()
    {
        client.deregister();
    }
}

/// # Safety
/// As of [`Published::withdraw`].
pub unsafe fn withdraw() {
    // SAFETY: the caller's promise.
    unsafe { CLIENT.withdraw() };
}

/// What makes sockets, while there can be any.
pub fn registered() -> Option<&'static Client> {
    CLIENT.get().filter(|_| IS_REGISTERED.load(Ordering::Acquire))
}

/// Closes sockets that came when their owner had gone. Their completions have the engine look once more, and it closes the owner again.
fn reap() {
    if let Some(client) = registered() {
        client.reap();
    }
}

fn client() -> Result<&'static Client, ConnectError> {
    registered().ok_or(ConnectError::HostUnreachable)
}

/// What Winsock Kernel's answer means for a consumer.
const fn cause_of(status: NTSTATUS) -> ConnectError {
    match status {
        STATUS_ADDRESS_ALREADY_EXISTS => ConnectError::AddressInUse,
        STATUS_INVALID_ADDRESS_COMPONENT => ConnectError::InvalidAddress,
        STATUS_INSUFFICIENT_RESOURCES => ConnectError::NoResources,
        STATUS_NETWORK_UNREACHABLE => ConnectError::NetworkUnreachable,
        STATUS_IO_TIMEOUT => ConnectError::TimedOut,
        STATUS_HOST_UNREACHABLE => ConnectError::HostUnreachable,
        // Refused, reset, or ended in another way before an answer.
        _ => ConnectError::Refused,
    }
}

/// Has the engine look.
pub struct EngineWake<P: Platform>(Waker<P>);

impl<P: Platform> Wake for EngineWake<P> {
    fn wake(&self) {
        self.0.wake();
    }
}

/// How a connection begins.
enum Beginning {
    Connect { from: SocketAddr, to: SocketAddr },
    Adopt(winsock::Accepted),
}

/// One end of a connection of TCP.
pub struct TcpSocket<P: Platform> {
    /// Gone when it is closed.
    connection: Option<Connection<EngineWake<P>>>,
    beginning: Option<Beginning>,
    /// `receive` has reported the end of the peer's bytes.
    has_reported_end: bool,
}

impl<P: Platform> TcpSocket<P> {
    pub fn connect(from: SocketAddr, to: SocketAddr) -> Result<Self, ConnectError> {
        Ok(Self::new(client()?, SIZES, Beginning::Connect { from, to })?)
    }

    fn new(client: &'static Client, sizes: Sizes, beginning: Beginning) -> Result<Self, NoMemory> {
        let connection = Some(Connection::try_new(client, tags::SOCKET, sizes, OTHER_PORTS)?);
        Ok(Self { connection, beginning: Some(beginning), has_reported_end: false })
    }

    fn end(&self) -> Option<End> {
        self.connection.as_ref().map_or(Some(End::Reset(0)), Connection::end)
    }
}

impl<P: Platform> Socket<P> for TcpSocket<P> {
    type Memory = Rings;

    fn allocate() -> Result<Rings, NoMemory> {
        Rings::try_new(tags::SOCKET, SIZES)
    }

    fn take_memory(&mut self, memory: Rings) {
        if let Some(connection) = &mut self.connection {
            connection.take_rings(memory);
        }
    }

    fn attach(&mut self, waker: Waker<P>) {
        let Some(connection) = &mut self.connection else { return };
        match self.beginning.take() {
            Some(Beginning::Connect { from, to }) => connection.connect(from, to, EngineWake(waker)),
            Some(Beginning::Adopt(accepted)) => connection.adopt(accepted, EngineWake(waker)),
            None => {}
        }
    }

    fn advance(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.advance();
        }
    }

    fn take_new_port(&mut self) -> Option<u16> {
        self.connection.as_mut().and_then(Connection::take_new_port)
    }

    fn send(&mut self, bytes: &[u8]) -> usize {
        self.connection.as_mut().map_or(bytes.len(), |connection| connection.send(bytes))
    }

    fn receive(&mut self) -> Arrived {
        if !self.bytes().is_empty() {
            return Arrived::Bytes;
        }
        let end = self.end();
        self.has_reported_end |= end.is_some();
        match end {
            Some(End::Finished) => Arrived::Finished,
            Some(End::Reset(_)) => Arrived::Reset,
            None => Arrived::Nothing,
        }
    }

    fn end_ahead(&self) -> Arrived {
        match self.connection.as_ref() {
            Some(connection) if connection.is_broken() => Arrived::Reset,
            Some(connection) if connection.has_peer_finished() => Arrived::Finished,
            Some(_) => Arrived::Nothing,
            None => Arrived::Reset,
        }
    }

    fn bytes(&self) -> &[u8] {
        self.connection.as_ref().map_or(&[], Connection::received)
    }

    fn consume(&mut self, count: usize) {
        if let Some(connection) = &mut self.connection {
            connection.consume(count);
        }
    }

    fn finish(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.finish();
        }
    }

    fn abort(&mut self) {
        self.close();
    }

    fn is_over(&self) -> bool {
        self.connection.as_ref().is_none_or(|connection| self.has_reported_end && connection.is_over())
    }

    fn refusal(&self) -> ConnectError {
        match self.connection.as_ref().map(Connection::state) {
            Some(State::Failed(status)) => cause_of(status),
            _ => ConnectError::Refused,
        }
    }

    fn close(&mut self) {
        drop(self.connection.take());
        drop(self.beginning.take());
        reap();
    }
}

/// What connections come to.
pub struct TcpListeningSocket<P: Platform> {
    client: &'static Client,
    at: SocketAddr,
    /// Gone when it is closed.
    listener: Option<Listener<EngineWake<P>>>,
}

impl<P: Platform> TcpListeningSocket<P> {
    pub fn listen(at: SocketAddr) -> Result<Self, ConnectError> {
        let client = client()?;
        Ok(Self { client, at, listener: Some(Listener::try_new(client, tags::SOCKET, PORT_BINDS)?) })
    }
}

impl<P: Platform<Socket = TcpSocket<P>>> ListeningSocket<P> for TcpListeningSocket<P> {
    fn attach(&mut self, waker: Waker<P>) {
        if let Some(listener) = &mut self.listener {
            listener.listen(self.at, EngineWake(waker));
        }
    }

    fn advance(&mut self) {
        if let Some(listener) = &mut self.listener {
            listener.advance();
        }
    }

    fn state(&self) -> ListenState {
        match self.listener.as_ref().map(Listener::state) {
            Some(winsock::ListenState::Starting) => ListenState::Starting,
            Some(winsock::ListenState::Listening) => ListenState::Listening,
            Some(winsock::ListenState::Failed(status)) => ListenState::Failed(cause_of(status)),
            None => ListenState::Failed(ConnectError::Aborted),
        }
    }

    fn is_stalled(&self) -> bool {
        self.listener.as_ref().is_some_and(Listener::is_stalled)
    }

    fn resume(&mut self) {
        if let Some(listener) = &mut self.listener {
            listener.resume();
        }
    }

    fn accept(&mut self) -> Option<(TcpSocket<P>, SocketAddr)> {
        let accepted = self.listener.as_mut()?.accept()?;
        let from = accepted.remote_address();
        // Without memory the connection is broken.
        let socket = TcpSocket::new(self.client, START_SIZES, Beginning::Adopt(accepted)).ok()?;
        Some((socket, from))
    }

    fn close(&mut self) {
        drop(self.listener.take());
        reap();
    }
}
