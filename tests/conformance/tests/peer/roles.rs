//! The two roles of the machine at the beginning of a connection, taken through their steps by a script.

use conformance::iwarp_peer::stage::PeerListener;
use conformance::iwarp_peer::{Enhanced, PeerConnection, Segment, Stage, StartFrame, flag};
use ndkpi_sys::nt::NTSTATUS;

use super::consumer::to_hex;

/// The role of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It connects.
    Initiator,
    /// It listens.
    Responder,
}

pub const ROLES: [Role; 2] = [Role::Initiator, Role::Responder];

/// Reads at a time, in both directions, unless a script has others.
pub const READS: u16 = 16;

pub const WRITE_OR_READ: u16 = Enhanced::WRITE | Enhanced::READ;

/// A status as the consumer says it.
pub fn status(status: NTSTATUS) -> String {
    format!("{status:08x}")
}

pub const SUCCESS: &str = "00000000";

/// A stage with the consumer's listener and the script's.
pub struct Play<'p, 's> {
    pub stage: &'p mut Stage<'s>,
    listener: PeerListener<'s>,
    port: Option<u16>,
    is_used: bool,
}

impl<'p, 's> Play<'p, 's> {
    pub fn new(stage: &'p mut Stage<'s>) -> Self {
        let listener = stage.listen();
        Self { stage, listener, port: None, is_used: false }
    }

    /// From the second connection on the consumer needs other objects.
    fn begin(&mut self) {
        if std::mem::replace(&mut self.is_used, true) {
            self.stage.order("new");
        }
    }

    /// The consumer connects, with so many Reads each way and private data; the Request.
    pub fn request_with(&mut self, reads: u16, data: &[u8]) -> (PeerConnection, StartFrame) {
        self.begin();
        self.request_again(reads, data)
    }

    /// As [`Self::request_with`], with the queue pair of before.
    pub fn request_again(&mut self, reads: u16, data: &[u8]) -> (PeerConnection, StartFrame) {
        self.stage.order(&format!("connect {} {reads} {reads} {}", self.listener.port(), to_hex(data)));
        self.next_request()
    }

    /// The Request of the next connection that comes.
    pub fn next_request(&mut self) -> (PeerConnection, StartFrame) {
        let mut wire = self.listener.accept();
        let request = wire.receive_start();
        assert!(!request.is_reply);
        (wire, request)
    }

    pub fn request(&mut self) -> (PeerConnection, StartFrame) {
        self.request_with(READS, &[])
    }

    /// Connects to the consumer's listener.
    pub fn reach(&mut self) -> PeerConnection {
        self.begin();
        let port = *self.port.get_or_insert_with(|| self.stage.ask("listen").parse().expect("a port"));
        self.stage.connect(port)
    }

    /// The consumer has seen a Request, and accepts it; the Reply.
    pub fn accept(&mut self, wire: &mut PeerConnection, reads: u16, data: &[u8]) -> (String, StartFrame) {
        let arrived = self.stage.ask("arrived");
        self.stage.order(&format!("accept {reads} {reads} {}", to_hex(data)));
        let reply = wire.receive_start();
        assert!(reply.is_reply);
        (arrived, reply)
    }

    /// An open connection, as two machines with CRC and an empty Write have it.
    pub fn open(&mut self, role: Role) -> PeerConnection {
        match role {
            Role::Initiator => {
                let (mut wire, _) = self.request();
                wire.send_start(&StartFrame::reply(Enhanced::with_ready(READS, READS, Enhanced::WRITE), &[]));
                self.stage.expect("connected", "00000000 16 16 -");
                self.stage.expect("complete", SUCCESS);
                assert_eq!(wire.receive_any_segment(), Segment::ready_write());
                wire
            }
            Role::Responder => {
                let mut wire = self.reach();
                wire.send_start(&StartFrame::request(Enhanced::with_ready(READS, READS, WRITE_OR_READ), &[]));
                let (_, reply) = self.accept(&mut wire, READS, &[]);
                assert_eq!(reply.flags, flag::CRC | flag::ENHANCED);
                wire.send_segment(&Segment::ready_write());
                self.stage.expect("accepted", SUCCESS);
                wire
            }
        }
    }

    /// The consumer disconnects, and the script ends its side.
    #[track_caller]
    pub fn part(&mut self, wire: &mut PeerConnection) {
        self.stage.order("disconnect");
        wire.expect_end(conformance::iwarp_peer::StreamEnd::Finished);
        wire.finish();
        self.stage.expect("disconnected", SUCCESS);
    }

    /// The consumer posts a receive of so many bytes.
    #[track_caller]
    pub fn receive(&mut self, length: usize) {
        self.stage.expect(&format!("receive {length}"), "posted");
    }

    /// Memory of the consumer for the peer: token and address.
    pub fn memory(&mut self, words: &str) -> (u32, u64) {
        let answer = self.stage.ask(words);
        let (token, address) = answer.split_once(' ').expect("two numbers");
        (token.parse().expect("a token"), address.parse().expect("an address"))
    }
}
