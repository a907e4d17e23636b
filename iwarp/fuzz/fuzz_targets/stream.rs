//! What a hostile peer may send: a start-up frame of any bytes, frames of any bytes, or of any payloads with a right CRC, also on a
//! stream that is open and grants some memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use softndk_iwarp::frame::{self, FrameReader};
use softndk_iwarp::hold::SendPart;
use softndk_iwarp::inbound::{Inbound, Message, OpenRead};
use softndk_iwarp::negotiation::{ReadLimits, accept, offer, request, settle};
use softndk_iwarp::segment::Segment;
use softndk_iwarp::start::{HEADER, MOST_DATA, StartKind, StartReader};
use softndk_iwarp::stream::{self, Event, Owner, Push, Sizes, Stream, Taken};
use softndk_iwarp::terminate::Code;

#[path = "../../../tests/conformance/fuzz/fuzz_targets/seeds.rs"]
mod seeds;

const OWN: ReadLimits = ReadLimits { inbound: 4, outbound: 4 };

fuzz_target!(init: seeds::write(seeds()), |bytes: &[u8]| {
    let Some(([flags, cut], bytes)) = bytes.split_first_chunk::<2>() else { return };
    let cut = usize::from(*cut).max(1);
    match flags % 4 {
        0 => start(bytes, cut, flags & 0x80 != 0),
        1 => stream(bytes, cut, flags & 0x80 != 0),
        2 => stream(&framed(bytes), cut, true),
        _ => established(&framed(bytes), cut),
    }
});

/// A start-up frame in pieces.
fn start(bytes: &[u8], cut: usize, is_reply: bool) {
    let kind = if is_reply { StartKind::Reply } else { StartKind::Request };
    let mut reader = StartReader::try_new(kind).unwrap();
    for mut piece in bytes.chunks(cut) {
        match reader.read(&mut piece) {
            Ok(None) => assert!(piece.is_empty(), "bytes are left"),
            Err(_) => return,
            Ok(Some(frame)) if is_reply => {
                if let Ok(agreed) = settle(&request(OWN, true, b""), OWN, &frame) {
                    assert!(agreed.limits.inbound <= OWN.inbound && agreed.limits.outbound <= OWN.outbound);
                }
                return;
            }
            Ok(Some(frame)) => {
                let offered = offer(&frame, OWN);
                let accepted = accept(&frame, OWN, true, &[0; MOST_DATA - 4]);
                assert_eq!(offered.is_ok(), accepted.is_ok());
                if let Ok((reply, _)) = accepted {
                    assert!(reply.encode(&mut [0; HEADER + MOST_DATA]).is_some());
                }
                return;
            }
        }
    }
}

/// Payloads, each behind its length, in good frames.
fn framed(mut bytes: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    while let Some((length, rest)) = bytes.split_first() {
        let (payload, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        let mut into = vec![0; frame::length(payload.len())];
        let built = frame::build(&mut into, payload.len(), true, |to| {
            to.copy_from_slice(payload);
            Some(())
        });
        assert_eq!(built, Some(into.len()));
        stream.append(&mut into);
        bytes = rest;
    }
    stream
}

/// Frames in pieces, on a stream with two Reads open at this side.
fn stream(bytes: &[u8], cut: usize, checks_crc: bool) {
    let mut reader = FrameReader::try_new().expect("there is memory");
    reader.begin(checks_crc);
    let mut inbound = Inbound::new(u32::from(OWN.inbound));
    let mut reads = vec![OpenRead { stag: 2, length: 0, received: 0 }, OpenRead { stag: 1, length: 40, received: 0 }];
    let (mut requests, mut begun, mut moved) = (0, None, 0);
    for mut piece in bytes.chunks(cut) {
        loop {
            let message = match reader.next(&mut piece) {
                Err(_) => return,
                Ok(None) => break,
                Ok(Some(frame)) => {
                    let segment = Segment::decode(frame.payload());
                    segment.and_then(|segment| inbound.take(segment, reads.last_mut()))
                }
            };
            match message {
                Err(_) | Ok(Message::Terminate(_)) => return,
                Ok(Message::Write { offset, data, .. }) => {
                    assert!(offset.checked_add(data.len() as u64).is_some());
                    moved += data.len();
                }
                Ok(Message::Send { is_first, offset, data, is_last, .. }) => {
                    assert_eq!((is_first, offset), (begun.is_none(), begun.unwrap_or(0)));
                    begun = (!is_last).then_some(offset + data.len() as u32);
                    moved += data.len();
                }
                Ok(Message::ReadRequest(_)) => {
                    requests += 1;
                    assert!(requests <= u32::from(OWN.inbound), "more than agreed");
                }
                Ok(Message::ReadResponse { offset, data, is_last }) => {
                    let read = reads.last().expect("it is of one");
                    assert_eq!(offset + data.len() as u32, read.received);
                    assert!(read.received <= read.length && is_last == (read.received == read.length));
                    moved += data.len();
                    if is_last {
                        reads.pop();
                    }
                }
            }
        }
        assert!(piece.is_empty(), "bytes are left");
    }
    assert!(moved <= bytes.len(), "bytes out of nothing");
}

/// What a peer may do: write and read `MEMORY` under one STag each, and send as long as there are receives.
struct Memory {
    bytes: [u8; MEMORY],
    receives: usize,
    /// Bytes of a Send that has begun.
    open: Option<u32>,
}

const MEMORY: usize = 64;
const WRITTEN: u32 = 1;
const READ: u32 = 2;

fn within(offset: u64, length: usize) -> Option<core::ops::Range<usize>> {
    let offset = usize::try_from(offset).ok()?;
    offset.checked_add(length).filter(|end| *end <= MEMORY).map(|end| offset..end)
}

impl Owner for Memory {
    fn write(&mut self, stag: u32, offset: u64, data: &[u8], _is_last: bool) -> Result<(), Code> {
        if data.is_empty() {
            return Ok(());
        }
        let range = within(offset, data.len()).filter(|_| stag == WRITTEN).ok_or(Code::TAGGED_BOUNDS)?;
        self.bytes[range].copy_from_slice(data);
        Ok(())
    }

    fn send(&mut self, part: &SendPart<'_>) -> Result<Taken, Code> {
        assert_eq!((part.is_first, part.offset), (self.open.is_none(), self.open.unwrap_or(0)));
        if part.is_first {
            let Some(left) = self.receives.checked_sub(1) else { return Ok(Taken::NoReceive) };
            self.receives = left;
        }
        self.open = (!part.is_last).then_some(part.offset + part.data.len() as u32);
        Ok(Taken::Done)
    }

    fn allow_read(&mut self, _stag: u32, _offset: u64, length: u32) -> Result<(), Code> {
        assert!(length > 0);
        Ok(())
    }

    fn load(&mut self, stag: u32, offset: u64, into: &mut [u8]) -> Result<(), Code> {
        let range = within(offset, into.len()).filter(|_| stag == READ).ok_or(Code::REMOTE_BOUNDS)?;
        into.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn answered(&mut self, _length: u32) {}

    fn response(&mut self, offset: u32, data: &[u8], _is_last: bool) -> Result<Taken, Code> {
        assert!(offset as usize + data.len() <= 32, "longer than any Read of this side");
        Ok(Taken::Done)
    }
}

/// Good frames of any payloads on a stream that is open, with two Reads of this side under way.
fn established(bytes: &[u8], cut: usize) {
    let sizes = Sizes { reads: 4, held: 0, payload: 200 };
    let mut stream = Stream::listen(vec![0; 1024]).expect("there is memory");
    let mut memory = Memory { bytes: [0; MEMORY], receives: 2, open: None };
    let mut asked = [0; HEADER + 4];
    let length = request(OWN, true, b"").encode(&mut asked).expect("it fits");
    assert_eq!(stream.receive(&mut &asked[..length], &mut memory), Event::Requested);
    let opened = stream::Memory::try_new(vec![0; 4096], sizes).expect("there is memory");
    stream.accept(opened, OWN, true, b"").expect("it is one of ours");
    let mut first = [0; 20];
    let ready = b"\xC1\x40\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00";
    frame::build(&mut first, ready.len(), true, |into| {
        into.copy_from_slice(ready);
        Some(())
    });
    assert_eq!(stream.receive(&mut &first[..], &mut memory), Event::Ready);
    for length in [32, 0] {
        assert!(matches!(stream.read(length, READ, 0), Push::Sent(_)));
    }
    for mut piece in bytes.chunks(cut) {
        loop {
            match stream.receive(&mut piece, &mut memory) {
                Event::More if piece.is_empty() => break,
                Event::More => {}
                Event::Held => memory.receives += 1,
                // A Read Request of the peer's.
                Event::Asked => {
                    if stream.serve(&mut memory).is_some() {
                        return;
                    }
                }
                Event::Ended(end) => {
                    assert_eq!(stream.end(), Some(end));
                    return;
                }
                event => panic!("{event:?} on an open stream"),
            }
        }
        assert!(piece.is_empty(), "bytes are left");
        if stream.serve(&mut memory).is_some() {
            return;
        }
        // What goes out is taken slowly.
        let ring = stream.outgoing();
        let length = ring.next_piece().len().min(30);
        ring.handed_over(length);
        ring.done(length);
    }
}

/// A Request, a Reply, and one frame of each kind.
fn seeds() -> Vec<Vec<u8>> {
    let mut bytes = [0; HEADER + MOST_DATA];
    let mut seeds = Vec::new();
    let asked = request(OWN, true, b"hello");
    let length = asked.encode(&mut bytes).expect("it fits");
    seeds.push([&[0x00, 7][..], &bytes[..length]].concat());
    let (reply, _) = accept(&asked, OWN, true, b"world").expect("it is one of ours");
    let length = reply.encode(&mut bytes).expect("it fits");
    seeds.push([&[0x81, 200][..], &bytes[..length]].concat());
    let payloads: [&[u8]; 6] = [
        b"\xC1\x40\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x10\x00write",
        b"\x01\x43\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00se",
        b"\x41\x43\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02nd",
        b"\x41\x41\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\
          \x00\x00\x00\x08\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x10\x00",
        b"\xC1\x42\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00forty bytes of a response, no more: 12345",
        b"\x41\x47\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x00\x20\x02\x00\x00",
    ];
    let mut stream = vec![0x02, 9];
    for payload in payloads {
        stream.push(payload.len() as u8);
        stream.extend_from_slice(payload);
    }
    let open = [&[0x03][..], &stream[1..]].concat();
    seeds.extend([stream, open]);
    seeds
}
