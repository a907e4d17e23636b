//! The scripted peer: start-up frames and segments over a connection of a stack.

use std::time::Duration;

use conformance::iwarp_peer::{Segment, StartFrame, frame, start};
use kernel_host::stack::StackStream;

const LIMIT: Duration = Duration::from_mins(2);
/// Bytes of a segment's data: any number that a frame can hold.
const PIECE: usize = 1400;

pub struct FramesPeer {
    stream: StackStream,
}

impl FramesPeer {
    pub fn new(stream: StackStream) -> Self {
        Self { stream }
    }

    fn take(&self, count: usize) -> Vec<u8> {
        self.stream.receive_exact(count, LIMIT).expect("the bytes come")
    }

    fn send(&self, bytes: &[u8]) {
        self.stream.send(bytes, LIMIT).expect("the connection takes bytes");
    }

    pub fn receive_start(&self) -> StartFrame {
        let mut bytes = self.take(start::HEADER);
        let length = StartFrame::length(bytes.first_chunk().expect("a header"));
        bytes.extend(self.take(length - start::HEADER));
        StartFrame::parse(&bytes)
    }

    pub fn send_start(&self, frame: &StartFrame) {
        self.send(&frame.to_bytes());
    }

    fn receive_segment(&self) -> Segment {
        self.receive_rest(self.take(2))
    }

    /// The segment whose frame begins with these two bytes.
    fn receive_rest(&self, mut bytes: Vec<u8>) -> Segment {
        let payload = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
        bytes.extend(self.take(frame::length(payload) - 2));
        Segment::parse(frame::payload(&bytes, true))
    }

    pub fn send_segment(&self, segment: &Segment) {
        self.send(&frame::build(&segment.payload(), true));
    }

    /// The first segment is the initiator's empty Write.
    pub fn receive_ready(&self) {
        assert_eq!(self.receive_segment(), Segment::ready_write());
    }

    /// The data of the next message.
    pub fn receive_message(&self) -> Vec<u8> {
        let mut data = Vec::new();
        loop {
            let segment = self.receive_segment();
            if segment == Segment::ready_write() {
                continue;
            }
            data.extend(segment.data());
            if segment.is_last() {
                return data;
            }
        }
    }

    /// Sends a message in segments.
    pub fn send_message(&self, number: u32, data: &[u8]) {
        let last = data.len().saturating_sub(1) / PIECE;
        for (index, piece) in data.chunks(PIECE).enumerate() {
            let segment = Segment::send(number, piece).at((index * PIECE) as u32);
            self.send_segment(&if index == last { segment } else { segment.not_last() });
        }
    }

    /// The other side ends, and so does this one. Empty Writes that it has sent for want of an answer may lie before the end.
    pub fn part(self) {
        while let Some(first) = self.stream.receive(1, LIMIT).expect("the end comes").first() {
            assert_eq!(self.receive_rest([&[*first], &*self.take(1)].concat()), Segment::ready_write());
        }
        self.stream.finish();
        self.stream.flush(LIMIT).expect("the end arrives");
    }
}
