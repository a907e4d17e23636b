//! A connection of TCP with what a script says and expects on it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddrV4, TcpStream};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};

use super::frame;
use super::segment::Segment;
use super::start::{self, StartFrame};
use super::terminate::{Code, Terminate};

/// A guard against a script that waits for what does not come; no outcome depends on it.
const HANG: Duration = Duration::from_mins(2);

/// How the other side has ended what it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// By a FIN.
    Finished,
    /// By a reset.
    Reset,
}

pub struct PeerConnection {
    socket: TcpStream,
    /// Received, and not taken.
    input: Vec<u8>,
    /// What the two start-up frames have agreed on.
    pub crc: bool,
}

impl PeerConnection {
    pub fn new(socket: TcpStream) -> Self {
        socket.set_nodelay(true).expect("a socket");
        socket.set_read_timeout(Some(HANG)).expect("a socket");
        socket.set_write_timeout(Some(HANG)).expect("a socket");
        Self { socket, input: Vec::new(), crc: true }
    }

    /// Connects from an address.
    pub fn connect(from: SocketAddrV4, to: SocketAddrV4) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&from.into()).expect("the address is free");
        socket.connect(&to.into()).expect("something listens there");
        Self::new(socket.into())
    }

    /// Sends bytes as they are. Each call is a segment of TCP of its own, if it is short and the other side reads.
    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the connection takes bytes");
    }

    /// Sends a segment again and again, until a reset says that nothing takes it.
    pub fn send_until_reset(&mut self, segment: &Segment) {
        let bytes = self.frame(segment);
        // It fails at the latest when the buffers are full.
        while self.socket.write_all(&bytes).is_ok() {
            std::thread::yield_now();
        }
    }

    /// Sends bytes one by one.
    pub fn send_singly(&mut self, bytes: &[u8]) {
        bytes.chunks(1).for_each(|byte| self.send(byte));
    }

    pub fn send_start(&mut self, frame: &StartFrame) {
        self.send(&frame.to_bytes());
    }

    /// The frame around a segment.
    pub fn frame(&self, segment: &Segment) -> Vec<u8> {
        frame::build(&segment.payload(), self.crc)
    }

    pub fn send_segment(&mut self, segment: &Segment) {
        self.send(&self.frame(segment));
    }

    /// Sends segments in one piece.
    pub fn send_together(&mut self, segments: &[Segment]) {
        let bytes: Vec<u8> = segments.iter().flat_map(|segment| self.frame(segment)).collect();
        self.send(&bytes);
    }

    /// Takes what comes until there are so many bytes.
    fn fill(&mut self, length: usize) -> Result<(), StreamEnd> {
        let mut piece = [0; 1 << 14];
        while self.input.len() < length {
            match self.socket.read(&mut piece) {
                Ok(0) => return Err(StreamEnd::Finished),
                Ok(count) => self.input.extend(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Err(StreamEnd::Reset),
                Err(error) => panic!("{} of {length} bytes have come, then {error}", self.input.len()),
            }
        }
        Ok(())
    }

    #[track_caller]
    fn expect(&mut self, length: usize) {
        if let Err(end) = self.fill(length) {
            panic!("{end:?} behind {:02x?}, where {length} bytes were expected", self.input);
        }
    }

    #[track_caller]
    pub fn receive_start(&mut self) -> StartFrame {
        self.expect(start::HEADER);
        let length = StartFrame::length(self.input.first_chunk().expect("a header"));
        self.expect(length);
        StartFrame::parse(&self.input.drain(..length).collect::<Vec<_>>())
    }

    /// The next segment that means something: an empty Write, by which an initiator has a slow peer look again, does not.
    #[track_caller]
    pub fn receive_segment(&mut self) -> Segment {
        loop {
            let segment = self.receive_any_segment();
            if segment != Segment::ready_write() {
                return segment;
            }
        }
    }

    /// The next segment, of a right frame.
    #[track_caller]
    pub fn receive_any_segment(&mut self) -> Segment {
        self.expect(2);
        let payload = usize::from(u16::from_be_bytes([self.input[0], self.input[1]]));
        let length = frame::length(payload);
        self.expect(length);
        let frame: Vec<_> = self.input.drain(..length).collect();
        Segment::parse(frame::payload(&frame, self.crc))
    }

    /// The segments of the next message.
    #[track_caller]
    pub fn receive_message(&mut self) -> Vec<Segment> {
        let mut segments = vec![self.receive_segment()];
        while !segments[segments.len() - 1].is_last() {
            segments.push(self.receive_segment());
        }
        segments
    }

    /// The next message ends the stream with this code, and nothing but the end follows.
    #[track_caller]
    pub fn expect_terminate(&mut self, code: Code) -> Terminate {
        let terminate = Terminate::parse(&self.receive_segment());
        assert_eq!(terminate.code, code);
        self.expect_end(StreamEnd::Finished);
        terminate
    }

    /// Nothing that means anything comes any more but this end.
    #[track_caller]
    pub fn expect_end(&mut self, end: StreamEnd) {
        let seen = loop {
            if let Err(seen) = self.fill(self.input.len() + 1) {
                break seen;
            }
        };
        self.drop_empty_writes();
        assert!(self.input.is_empty(), "bytes in front of the end: {:02x?}", self.input);
        assert_eq!(seen, end);
    }

    fn drop_empty_writes(&mut self) {
        let nothing = self.frame(&Segment::ready_write());
        while self.input.starts_with(&nothing) {
            self.input.drain(..nothing.len());
        }
    }

    /// Whether nothing that means anything has come so far and was not taken.
    pub fn is_silent(&mut self) -> bool {
        self.socket.set_nonblocking(true).expect("a socket");
        let mut piece = [0; 1 << 12];
        while let Ok(count @ 1..) = self.socket.read(&mut piece) {
            self.input.extend(&piece[..count]);
        }
        self.socket.set_nonblocking(false).expect("a socket");
        self.drop_empty_writes();
        self.input.is_empty()
    }

    /// How the stream ends, whatever comes before.
    pub fn drain(&mut self) -> StreamEnd {
        loop {
            self.input.clear();
            if let Err(end) = self.fill(1) {
                return end;
            }
        }
    }

    /// Sends a FIN.
    pub fn finish(&self) {
        // The other side may have broken the connection.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Sends a reset.
    pub fn reset(self) {
        SockRef::from(&self.socket).set_linger(Some(Duration::ZERO)).expect("a socket");
    }
}
