//! Sockets of Linux that never block, and the queue of what happens to them.

use std::io;
use std::net::{SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// How much [`Happenings::wait_for`] takes at a time.
const BATCH: usize = 64;

/// What has happened to the sockets that were added: each by the number that it was added with.
pub(in crate::wsk) struct Happenings(OwnedFd);

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl Happenings {
    pub(in crate::wsk) fn new() -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let queue = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: a descriptor just made, with no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(queue) }))
    }

    /// Adds what is named as long as there is something: connections that wait, or an end.
    pub(in crate::wsk) fn add_source(&self, source: &impl AsRawFd, number: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, source, number, libc::EPOLLIN)
    }

    /// Adds a socket that is named once for each change, and now for what is there already.
    pub(super) fn add(&self, socket: &impl AsRawFd, number: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, number, CHANGES)
    }

    /// The socket has another number from now on. It is named for what is there already.
    pub(super) fn renumber(&self, socket: &impl AsRawFd, number: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket, number, CHANGES)
    }

    fn control(&self, operation: libc::c_int, of: &impl AsRawFd, number: u64, events: libc::c_int) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: number };
        // SAFETY: two open descriptors, and a structure that is borrowed for the call.
        checked(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, of.as_raw_fd(), &raw mut event) })?;
        Ok(())
    }

    /// Waits until something has happened, no longer than so many milliseconds, for ever with a negative number; the numbers of what it
    /// has happened to.
    pub(in crate::wsk) fn wait_for(&self, time: i32) -> Vec<u64> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        // SAFETY: an open descriptor, and an array as long as it says.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), BATCH as i32, time) };
        // An interrupted wait has found nothing.
        events.iter().take(count.max(0) as usize).map(|event| event.u64).collect()
    }
}

const CHANGES: libc::c_int = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;

/// Listens at an address.
pub(super) fn listen(at: SocketAddrV4) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Sends and receives datagrams at an address.
pub(super) fn datagrams(at: SocketAddrV4) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The next connection that waits.
pub(super) fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let (socket, _) = listener.accept()?;
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Begins to connect. Where the requested port is in use, the system picks another.
pub(super) fn connect(from: SocketAddrV4, to: SocketAddrV4) -> io::Result<TcpStream> {
    match connect_from(from, to) {
        Err(error) if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) => {
            connect_from(SocketAddrV4::new(*from.ip(), 0), to)
        }
        done => done,
    }
}

fn connect_from(from: SocketAddrV4, to: SocketAddrV4) -> io::Result<TcpStream> {
    const KIND: libc::c_int = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    const LENGTH: libc::socklen_t = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: no memory is passed.
    let socket = checked(unsafe { libc::socket(libc::AF_INET, KIND, 0) })?;
    // SAFETY: a descriptor just made, with no other owner.
    let stream = unsafe { TcpStream::from_raw_fd(socket) };
    stream.set_nodelay(true)?;
    let (from, to) = (form(from), form(to));
    // SAFETY: an open descriptor, and a structure of that length.
    checked(unsafe { libc::bind(socket, (&raw const from).cast(), LENGTH) })?;
    // SAFETY: as above.
    match checked(unsafe { libc::connect(socket, (&raw const to).cast(), LENGTH) }) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(stream),
    }
}

fn form(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

/// How many bytes were moved; nothing when the call would have blocked.
fn moved(count: isize) -> io::Result<Option<usize>> {
    if count >= 0 {
        return Ok(Some(count.unsigned_abs()));
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        error if error.raw_os_error() == Some(libc::EFAULT) => panic!("a buffer of the driver's is not there: {error}"),
        error => Err(error),
    }
}

fn message(vectors: &[libc::iovec]) -> libc::msghdr {
    // SAFETY: zeroes are a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (vectors.as_ptr().cast_mut(), vectors.len());
    message
}

/// Sends what the system takes of some memory.
///
/// # Safety
///
/// The memory can be read.
pub(super) unsafe fn send(socket: &TcpStream, vectors: &[libc::iovec]) -> io::Result<Option<usize>> {
    let message = message(vectors);
    // SAFETY: an open descriptor; the caller's contract.
    moved(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) })
}

/// Receives into some memory what has come.
///
/// # Safety
///
/// The memory can be written.
pub(super) unsafe fn receive(socket: &TcpStream, vectors: &[libc::iovec]) -> io::Result<Option<usize>> {
    let mut message = message(vectors);
    // SAFETY: an open descriptor; the caller's contract.
    moved(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) })
}

/// Whether something has come, which stays: 0 at the end.
pub(super) fn peek(socket: &TcpStream) -> io::Result<Option<usize>> {
    let mut byte = [0];
    match socket.peek(&mut byte) {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Breaks a connection: the peer gets a reset.
pub(super) fn abort(socket: TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let length = size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: an open descriptor, and a structure of that length. A failure leaves an end instead of a reset.
    unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), length)
    };
    drop(socket);
}
