//! SMB Direct: messages of SMB, cut into Sends. Each Send uses a credit, which the receiver grants for a receive that it has posted.

use conformance::consumer::{Adapter, Window};
use ndkpi_sys::ndkpi::NdkOperationTypeReceiveAndInvalidate;

use super::super::connection::{Connection, NONE};
use super::fields::{Fields, u16_at, u32_at};

const PORT: u16 = 5445;
const VERSION: u16 = 0x0100;

/// Receives that are posted. A long message needs more: the peer has to wait for credits.
const RECEIVES: u16 = 20;
/// Bytes that a receive takes, and that a Send of this side has at most: the peer may offer less.
const RECEIVE_SIZE: usize = 1200;
const SEND_SIZE: usize = 1364;
/// Bytes of a message.
const LONGEST_MESSAGE: u32 = 1 << 20;

const NEGOTIATE_RESPONSE: usize = 32;
/// Bytes before the data of a Send.
const DATA_OFFSET: usize = 24;
/// The flag with which the peer asks for a Send at once.
const RESPONSE_REQUESTED: u16 = 1;

/// One connection, and the credits of both sides. The fields are in the order in which they may be closed.
pub struct SmbDirect<'a> {
    outgoing: Window<'a>,
    incoming: Vec<Window<'a>>,
    pub connection: Connection<'a>,
    /// Sends that this side may still make, and the peer.
    own_credits: u16,
    peer_credits: u16,
    /// Receives posted that the peer does not know of.
    ungranted: u16,
    /// Bytes of a Send that the peer takes, and of a message.
    send_size: usize,
    longest_message: usize,
    /// Bytes that the peer reads or writes at a time.
    pub longest_transfer: u32,
    pub counts: Counts,
    /// The token that the last Send of the peer invalidated.
    pub invalidated: Option<u32>,
}

/// For the line of the trial.
#[derive(Default)]
pub struct Counts {
    pub sent: u32,
    pub received: u32,
    /// Credits that the peer has granted, and this side.
    pub granted_by_peer: u32,
    pub granted: u32,
}

impl<'a> SmbDirect<'a> {
    /// Connects, and agrees on sizes.
    pub fn connect(adapter: &'a Adapter) -> Self {
        let mut incoming = Vec::new();
        let connection = Connection::connect_after(adapter, PORT, &[], |connection| {
            incoming.extend((0..RECEIVES).map(|_| connection.open(RECEIVE_SIZE)));
            for window in &incoming {
                post(connection, window);
            }
        });
        let connection = connection.expect("a connection");
        let outgoing = connection.open(SEND_SIZE);
        let mut direct = Self {
            connection,
            outgoing,
            incoming,
            own_credits: 1,
            peer_credits: 1,
            ungranted: RECEIVES - 1,
            send_size: SEND_SIZE,
            longest_message: 0,
            longest_transfer: 0,
            counts: Counts::default(),
            invalidated: None,
        };
        direct.negotiate();
        direct
    }

    fn negotiate(&mut self) {
        let request = Fields::default().u16(VERSION).u16(VERSION).u16(0).u16(255);
        let request = request.u32(SEND_SIZE as u32).u32(RECEIVE_SIZE as u32).u32(LONGEST_MESSAGE);
        self.post_send(&request.0);
        let response = self.take_receive();
        assert_eq!(response.len(), NEGOTIATE_RESPONSE);
        let versions = [0, 2, 4].map(|at| u16_at(&response, at));
        assert_eq!((versions, u32_at(&response, 12)), ([VERSION; 3], 0), "versions and status: {response:02x?}");
        let granted = u16_at(&response, 10);
        assert!(granted > 0, "no credits: {response:02x?}");
        let [transfer, sends, receives, message] = [16, 20, 24, 28].map(|at| u32_at(&response, at));
        assert!(sends as usize <= RECEIVE_SIZE && receives >= 128 && message >= 1 << 17, "sizes: {response:02x?}");
        self.add_credits(granted);
        self.send_size = SEND_SIZE.min(receives as usize);
        self.longest_message = message as usize;
        self.longest_transfer = transfer;
    }

    /// Sends a message, in as many Sends as it needs.
    pub fn send(&mut self, message: &[u8]) {
        assert!(message.len() <= self.longest_message, "the peer takes {} bytes", self.longest_message);
        let mut rest = message;
        while !rest.is_empty() {
            let (data, behind) = rest.split_at(rest.len().min(self.send_size - DATA_OFFSET));
            // The last credit is for a Send that grants some.
            while self.own_credits == 0 || (self.own_credits == 1 && self.ungranted == 0) {
                let grant = self.take_transfer();
                assert!(grant.data.is_empty(), "a message that no request is for");
            }
            self.send_transfer(data, behind.len());
            rest = behind;
        }
    }

    /// The next message, put together.
    pub fn receive(&mut self) -> Vec<u8> {
        let (mut message, mut expected) = (Vec::new(), None);
        loop {
            let Transfer { data, remaining } = self.take_transfer();
            // One without data is for its credits.
            if data.is_empty() {
                continue;
            }
            let whole = data.len() + remaining;
            assert_eq!(expected.unwrap_or(whole), whole, "bytes from here to the end of a message");
            message.extend(data);
            if remaining == 0 {
                return message;
            }
            expected = Some(remaining);
        }
    }

    /// Takes what the peer sends, and grants credits when it has half of them used.
    fn take_transfer(&mut self) -> Transfer {
        let bytes = self.take_receive();
        let [_, granted, flags] = [0, 2, 4].map(|at| u16_at(&bytes, at));
        let [remaining, offset, length] = [8, 12, 16].map(|at| u32_at(&bytes, at) as usize);
        assert!(length == 0 || offset % 8 == 0 && offset >= DATA_OFFSET, "data at {offset}");
        self.add_credits(granted);
        let data = bytes[offset..offset + length].to_vec();
        let is_due = self.ungranted >= RECEIVES / 2 || flags & RESPONSE_REQUESTED != 0;
        if is_due && self.own_credits > 0 {
            self.send_transfer(&[], 0);
        }
        Transfer { data, remaining }
    }

    fn send_transfer(&mut self, data: &[u8], remaining: usize) {
        let granted = std::mem::take(&mut self.ungranted);
        self.peer_credits += granted;
        self.counts.granted += u32::from(granted);
        let header = Fields::default().u16(255).u16(granted).u16(0).u16(0).u32(remaining as u32);
        let send = if data.is_empty() {
            header.u32(0).u32(0)
        } else {
            header.u32(DATA_OFFSET as u32).u32(data.len() as u32).u32(0).bytes(data)
        };
        self.post_send(&send.0);
    }

    fn add_credits(&mut self, granted: u16) {
        self.own_credits += granted;
        self.counts.granted_by_peer += u32::from(granted);
    }

    fn post_send(&mut self, bytes: &[u8]) {
        self.own_credits = self.own_credits.checked_sub(1).expect("a credit for a Send");
        self.counts.sent += 1;
        self.outgoing.buffer.fill(|position| bytes.get(position).copied().unwrap_or(0));
        let sges = self.outgoing.first_in_sges(bytes.len(), 2);
        assert_eq!(self.connection.end.queue_pair.send(2, &sges, NONE), 0);
        self.connection.finish(1);
    }

    /// Takes the bytes of the peer's next Send, and posts the receive again.
    fn take_receive(&mut self) -> Vec<u8> {
        let result = self.connection.end.receive.wait_for_one();
        assert_eq!(result.Status, 0);
        if result.Type == NdkOperationTypeReceiveAndInvalidate {
            self.invalidated = Some(result.TypeSpecificCompletionOutput as u32);
        }
        self.peer_credits = self.peer_credits.checked_sub(1).expect("the peer has a credit for its Send");
        // They complete in the order in which they were posted.
        let window = &self.incoming[self.counts.received as usize % self.incoming.len()];
        self.counts.received += 1;
        let mut bytes = window.buffer.to_vec();
        bytes.truncate(result.BytesTransferred as usize);
        post(&self.connection, window);
        self.ungranted += 1;
        bytes
    }
}

/// The data of one Send.
struct Transfer {
    data: Vec<u8>,
    /// Bytes of the message that come behind it.
    remaining: usize,
}

fn post(connection: &Connection<'_>, window: &Window<'_>) {
    assert_eq!(connection.end.queue_pair.receive(1, &window.in_sges(1)), 0);
}
