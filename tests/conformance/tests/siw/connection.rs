//! One connection with the guest and what a trial has of it: an end, two small messages, and the count of what it has posted.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use conformance::consumer::{Adapter, Buffer, Connector, End, Listener, Offer, QueuePairShape, Window, WindowKind};
use conformance::machine::{AdapterSetup, Setup, with_machine};
use kernel_host::wsk::MachineAddress;
use kernel_host::{KernelConfig, Mode};
use ndkpi_sys::ndkpi::{NDK_OP_FLAGS, NDK_RESULT_EX};
use ndkpi_sys::nt::{NTSTATUS, STATUS_SHARING_VIOLATION};

use super::guest;

pub const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
/// What the guest sends.
pub const MESSAGE: usize = 16;
/// What is sent may be longer.
const LONGEST_MESSAGE: usize = 64;

pub const OWN_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
pub const GUEST_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));

/// One adapter. QEMU's user networking connects from 127.0.0.1 to 127.0.0.1 for the guest, so that is this machine's address, and the
/// guest's as well when it connects.
fn setup() -> Setup {
    let row = |address, stand_in| MachineAddress { address, stand_in };
    let there = guest::address().expect("a guest");
    let machines =
        vec![row(OWN_ADDRESS, Ipv4Addr::LOCALHOST), row(GUEST_ADDRESS, there), row(GUEST_ADDRESS, Ipv4Addr::LOCALHOST)];
    let kernel = KernelConfig { mode: Mode::Fast, schedule: None, machines, ..Setup::default().kernel };
    let adapter = AdapterSetup { addresses: vec![OWN_ADDRESS], keywords: vec![("Transport", "1")] };
    Setup { kernel, adapters: vec![adapter] }
}

/// Runs a trial with the adapter open and nothing of an earlier one in the guest.
pub fn with_adapter(trial: impl FnOnce(&Adapter)) {
    with_machine(&setup(), |machine| {
        guest::run("killall -9 rping; dmesg -c");
        trial(&machine.open(0));
    });
}

/// A listener, at a port that no program of this machine has or had a moment ago.
pub fn listen(adapter: &Adapter) -> (Listener, u16) {
    let listener = Listener::new(adapter).expect("a listener");
    let is_free = |port: &u16| match listener.listen(SocketAddr::new(OWN_ADDRESS, *port)) {
        0 => true,
        STATUS_SHARING_VIOLATION => false,
        failure => panic!("{failure:#010x}"),
    };
    // Below those that Linux gives to connections.
    let port = (7200..7300).find(is_free).expect("a free port");
    (listener, port)
}

/// The fields are in the order in which they may be closed.
pub struct Connection<'a> {
    pub connector: Connector,
    pub incoming: Window<'a>,
    pub outgoing: Window<'a>,
    pub end: End<'a>,
}

/// An end with a receive posted, and its messages.
struct Parts<'a> {
    end: End<'a>,
    incoming: Window<'a>,
    outgoing: Window<'a>,
}

impl<'a> Parts<'a> {
    fn new(adapter: &'a Adapter) -> Self {
        let end = End::new(adapter, QueuePairShape::default());
        let open = |length| Window::open(&end, Buffer::scattered(length), WindowKind::Registered);
        let (incoming, outgoing) = (open(MESSAGE), open(LONGEST_MESSAGE));
        Self { end, incoming, outgoing }
    }

    fn with(self, connector: Connector) -> Connection<'a> {
        let Self { end, incoming, outgoing } = self;
        Connection { connector, incoming, outgoing, end }
    }
}

impl<'a> Connection<'a> {
    /// Connects to a port of the guest, with a receive posted.
    pub fn connect(adapter: &'a Adapter, port: u16) -> Result<Self, NTSTATUS> {
        Self::connect_with(adapter, port, &[])
    }

    /// As [`Self::connect`], with private data.
    pub fn connect_with(adapter: &'a Adapter, port: u16, private_data: &[u8]) -> Result<Self, NTSTATUS> {
        Self::connect_after(adapter, port, private_data, Self::expect_message)
    }

    /// Connects to a port of the guest after what is done with the queue pair.
    pub fn connect_after(
        adapter: &'a Adapter,
        port: u16,
        private_data: &[u8],
        before: impl FnOnce(&Self),
    ) -> Result<Self, NTSTATUS> {
        let connection = Parts::new(adapter).with(Connector::new(adapter)?);
        before(&connection);
        let (from, to) = (SocketAddr::new(OWN_ADDRESS, 0), SocketAddr::new(GUEST_ADDRESS, port));
        let offer = Offer { private_data, ..Offer::default() };
        let connector = &connection.connector;
        match connector.begin_connect(&connection.end.queue_pair, from, to, &offer).wait() {
            0 => {}
            failure => return Err(failure),
        }
        assert_eq!(connector.peer_address(), to);
        assert_eq!(connector.begin_complete_connect_ex().wait(), 0);
        Ok(connection)
    }

    /// Accepts the next one from the guest, with a receive posted.
    pub fn accept(adapter: &'a Adapter, listener: &Listener) -> Self {
        Self::accept_with(adapter, listener, Self::expect_message)
    }

    /// Accepts the next one from the guest after what is done with its queue pair.
    pub fn accept_with(adapter: &'a Adapter, listener: &Listener, before: impl FnOnce(&Self)) -> Self {
        let connection = Parts::new(adapter).with(listener.next());
        assert_eq!(connection.connector.peer_address().ip(), GUEST_ADDRESS);
        before(&connection);
        let accepting = connection.connector.begin_accept_ex(&connection.end.queue_pair, &Offer::default());
        assert_eq!(accepting.wait(), 0);
        connection
    }

    /// Memory that the guest may read and write.
    pub fn open(&self, length: usize) -> Window<'a> {
        Window::open(&self.end, Buffer::scattered(length), WindowKind::Registered)
    }

    /// Posts a receive for a message.
    pub fn expect_message(&self) {
        assert_eq!(self.end.queue_pair.receive(1, &self.incoming.in_sges(1)), 0);
    }

    /// The message for which a receive was posted.
    pub fn message(&self) -> [u8; MESSAGE] {
        self.received(&self.end.receive.wait_for_one())
    }

    fn received(&self, result: &NDK_RESULT_EX) -> [u8; MESSAGE] {
        assert_eq!((result.Status, result.BytesTransferred as usize), (0, MESSAGE));
        self.incoming.buffer.to_vec().try_into().expect("a message")
    }

    pub fn send(&self, message: &[u8]) {
        self.outgoing.buffer.fill(|position| message.get(position).copied().unwrap_or(0));
        assert_eq!(self.end.queue_pair.send(3, &self.outgoing.first_in_sges(message.len(), 1), NONE), 0);
        self.finish(1);
    }

    /// Waits until so many requests have succeeded.
    pub fn finish(&self, count: usize) {
        assert!(self.end.initiator.wait_for(count).iter().all(|result| result.Status == 0), "a request failed");
    }

    pub fn disconnect(&self) {
        assert_eq!(self.connector.begin_disconnect().wait(), 0);
    }

    /// Waits for the event that the guest has disconnected, and answers it.
    pub fn follow_disconnect(&self) {
        assert_eq!(self.reason_of_end(), 1, "the reason of the disconnect event");
        self.disconnect();
    }

    /// Waits for the disconnect event; its reason.
    pub fn reason_of_end(&self) -> u32 {
        assert!(self.connector.wait_for_disconnect(), "no disconnect event came");
        self.connector.disconnect_reason()
    }
}
