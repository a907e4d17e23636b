//! Streams in any cut: the same messages come, whatever the pieces; a changed bit ends them.

use proptest::prelude::*;
use softndk_iwarp::frame::{self, Frame, FrameReader};
use softndk_iwarp::inbound::{Inbound, Message, OpenRead};
use softndk_iwarp::outbound::{Outbound, Outgoing, most_payload};
use softndk_iwarp::segment::{Segment, SendKind};
use softndk_iwarp::terminate::Code;

/// A message of a test, with its bytes.
#[derive(Clone, Debug)]
struct Sent(Outgoing, Vec<u8>);

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8 ^ 0x5A).collect()
}

/// The stream of messages, in payloads of at most so many bytes.
fn stream(messages: &[Sent], most: usize, with_crc: bool) -> Vec<u8> {
    let mut outbound = Outbound::new(most);
    let mut stream = Vec::new();
    for Sent(message, data) in messages {
        let mut sent = 0;
        loop {
            let length = if let Outgoing::ReadRequest { length, .. } = message { *length } else { data.len() as u32 };
            let piece = outbound.next(message, length, sent);
            let mut into = vec![0; frame::MOST];
            let data = &data[piece.range.start as usize..piece.range.end as usize];
            let length = frame::build(&mut into, piece.payload(), with_crc, |payload| {
                let at = piece.header.encode(payload)?;
                payload.get_mut(at..)?.copy_from_slice(data);
                Some(())
            });
            stream.extend_from_slice(&into[..length.expect("it fits")]);
            sent = piece.range.end;
            if piece.is_last {
                break;
            }
        }
    }
    stream
}

/// A message as its receiver has put it together again; Writes as they came.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Received {
    Write(u32, u64, Vec<u8>),
    Send(SendKind, Vec<u8>),
    Request(u32, u32, u64),
    Response(Vec<u8>),
}

/// Both ends of what a receiver knows.
struct Receiver {
    reader: FrameReader,
    inbound: Inbound,
    reads: Vec<OpenRead>,
    open: Vec<u8>,
    received: Vec<Received>,
}

impl Receiver {
    fn new(with_crc: bool, reads: Vec<OpenRead>) -> Self {
        let mut reader = FrameReader::try_new().unwrap();
        reader.begin(with_crc);
        Self { reader, inbound: Inbound::new(u32::MAX), reads, open: Vec::new(), received: Vec::new() }
    }

    fn take(&mut self, mut input: &[u8]) -> Result<(), Code> {
        let before = input.len();
        while let Some(frame) = self.reader.next(&mut input)? {
            let message = self.inbound.take(Segment::decode(frame.payload())?, self.reads.first_mut())?;
            match message {
                Message::Write { stag, offset, data, .. } => write(&mut self.received, stag, offset, data),
                Message::Send { kind, is_first, offset, data, is_last } => {
                    assert_eq!((is_first, self.open.len()), (self.open.is_empty() && offset == 0, offset as usize));
                    self.open.extend_from_slice(data);
                    if is_last {
                        self.received.push(Received::Send(kind, std::mem::take(&mut self.open)));
                    }
                }
                Message::ReadRequest(read) => {
                    self.received.push(Received::Request(read.length, read.source_stag, read.source_offset));
                }
                Message::ReadResponse { offset, data, is_last } => {
                    assert_eq!(self.open.len(), offset as usize);
                    self.open.extend_from_slice(data);
                    if is_last {
                        self.reads.remove(0);
                        self.received.push(Received::Response(std::mem::take(&mut self.open)));
                    }
                }
                Message::Terminate(_) => panic!("the peer ends nothing"),
            }
        }
        assert!(input.is_empty(), "{} of {before} bytes are left", input.len());
        Ok(())
    }
}

/// Segments of one Write are its pieces.
fn write(received: &mut Vec<Received>, stag: u32, offset: u64, data: &[u8]) {
    if let Some(Received::Write(of, at, bytes)) = received.last_mut()
        && *of == stag
        && at.wrapping_add(bytes.len() as u64) == offset
        && !bytes.is_empty()
    {
        bytes.extend_from_slice(data);
    } else {
        received.push(Received::Write(stag, offset, data.to_vec()));
    }
}

/// What has to come of messages.
fn expected(messages: &[Sent]) -> (Vec<Received>, Vec<OpenRead>) {
    let mut reads = Vec::new();
    let received = messages.iter().map(|Sent(message, data)| match message {
        Outgoing::Write { stag, offset } => Received::Write(*stag, *offset, data.clone()),
        Outgoing::Send(kind) => Received::Send(*kind, data.clone()),
        Outgoing::ReadRequest { length, source_stag, source_offset, .. } => {
            Received::Request(*length, *source_stag, *source_offset)
        }
        Outgoing::ReadResponse { stag, .. } => {
            reads.push(OpenRead { stag: *stag, length: data.len() as u32, received: 0 });
            Received::Response(data.clone())
        }
        Outgoing::Terminate => panic!("none of these"),
    });
    (received.collect(), reads)
}

/// One of each kind, lengths around every limit that a payload of 128 bytes has.
fn each_kind() -> Vec<Sent> {
    let mut messages = Vec::new();
    for (number, length) in [0, 1, 4, 109, 110, 111, 113, 114, 115, 300].into_iter().enumerate() {
        let number = number as u32;
        let kind =
            SendKind { is_solicited: number % 2 == 1, invalidates: (number % 3 == 1).then_some(0x0102_0300 + number) };
        messages.push(Sent(Outgoing::Write { stag: 0x1000 + number, offset: 0x7F00_0000_0FFF }, bytes(length)));
        messages.push(Sent(Outgoing::Send(kind), bytes(length)));
        let read = Outgoing::ReadRequest { sink_stag: 9, length: 77, source_stag: 0x2000 + number, source_offset: 5 };
        messages.push(Sent(read, Vec::new()));
        messages.push(Sent(Outgoing::ReadResponse { stag: 0x3000 + number, offset: 0 }, bytes(length)));
    }
    messages
}

#[test]
fn a_stream_cut_at_any_byte_brings_the_same() {
    let messages = each_kind();
    for with_crc in [true, false] {
        let stream = stream(&messages, 128, with_crc);
        let (wanted, reads) = expected(&messages);
        for at in 0..=stream.len() {
            let mut receiver = Receiver::new(with_crc, reads.clone());
            receiver.take(&stream[..at]).unwrap();
            receiver.take(&stream[at..]).unwrap();
            assert_eq!(receiver.received, wanted, "cut at {at}");
        }
    }
}

#[test]
fn a_stream_of_single_bytes_brings_the_same() {
    let messages = each_kind();
    let stream = stream(&messages, 128, true);
    let (wanted, reads) = expected(&messages);
    let mut receiver = Receiver::new(true, reads);
    for byte in &stream {
        receiver.take(&[*byte]).unwrap();
    }
    assert_eq!(receiver.received, wanted);
}

#[test]
fn every_changed_bit_is_seen() {
    let messages = &each_kind()[4..12];
    let stream = stream(messages, 128, true);
    let (wanted, reads) = expected(messages);
    for bit in 0..stream.len() * 8 {
        let mut changed = stream.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let mut receiver = Receiver::new(true, reads.clone());
        let fault = receiver.take(&changed);
        // A length that has grown may leave the reader waiting for bytes that do not come.
        let has_ended = matches!(fault, Err(Code::CRC | Code::FRAME_LENGTH));
        assert!(has_ended || fault == Ok(()) && receiver.received.len() < wanted.len(), "bit {bit}: {fault:?}");
        // The last may be the beginning of a Write.
        let whole = receiver.received.len().saturating_sub(1);
        assert!(wanted.starts_with(&receiver.received[..whole]), "bit {bit}");
        if has_ended {
            assert_eq!(receiver.reader.next(&mut &stream[..]), Err(fault.unwrap_err()), "a fault is for good");
        }
    }
}

#[test]
fn the_longest_frame_is_read_whole_and_in_pieces() {
    let most = most_payload(usize::from(u16::MAX));
    let messages = [Sent(Outgoing::Send(SendKind::default()), bytes(most - 18))];
    let stream = stream(&messages, most, true);
    for piece in [stream.len(), 1460, 4096] {
        let mut receiver = Receiver::new(true, Vec::new());
        for part in stream.chunks(piece) {
            receiver.take(part).unwrap();
        }
        assert_eq!(receiver.received, expected(&messages).0);
    }
    // Longer than any that is sent here: siw sends payloads of up to 64 KiB.
    let mut longest = vec![0; frame::MOST];
    let length = frame::build(&mut longest, frame::MOST_PAYLOAD, true, |payload| {
        payload[..2].copy_from_slice(&[0xC1, 0x40]);
        Some(())
    });
    assert_eq!(length, Some(frame::MOST));
    for piece in [frame::MOST, 1460] {
        let mut reader = FrameReader::try_new().unwrap();
        let mut seen = 0;
        for mut part in longest.chunks(piece) {
            seen += reader.next(&mut part).unwrap().map_or(0, |frame| frame.payload().len());
        }
        assert_eq!(seen, frame::MOST_PAYLOAD);
    }
}

fn message() -> impl Strategy<Value = Sent> {
    let data = prop_oneof![0..8_usize, 90..130_usize, 0..2_000_usize].prop_map(bytes);
    let kind = (any::<bool>(), any::<Option<u32>>())
        .prop_map(|(is_solicited, invalidates)| SendKind { is_solicited, invalidates });
    let outgoing = prop_oneof![
        (any::<u32>(), 0..1_u64 << 40).prop_map(|(stag, offset)| Outgoing::Write { stag, offset }),
        kind.prop_map(Outgoing::Send),
        any::<u32>().prop_map(|stag| Outgoing::ReadResponse { stag, offset: 0 }),
        (any::<u32>(), any::<u32>(), 0..1_u64 << 40).prop_map(|(length, source_stag, source_offset)| {
            Outgoing::ReadRequest { sink_stag: 1, length, source_stag, source_offset }
        }),
    ];
    (outgoing, data).prop_map(|(outgoing, data)| {
        let is_request = matches!(outgoing, Outgoing::ReadRequest { .. });
        Sent(outgoing, if is_request { Vec::new() } else { data })
    })
}

/// What a reader without a buffer finds in a whole stream: the model.
fn whole_frames(stream: &[u8], with_crc: bool) -> (Vec<Vec<u8>>, Option<Code>) {
    let (mut rest, mut frames) = (stream, Vec::new());
    loop {
        let Some(length) = rest.first_chunk::<2>().map(|bytes| usize::from(u16::from_be_bytes(*bytes))) else {
            return (frames, None);
        };
        if length < 14 {
            return (frames, Some(Code::FRAME_LENGTH));
        }
        let covered = (2 + length).div_ceil(4) * 4;
        if rest.len() < covered + 4 {
            return (frames, None);
        }
        let good = rest[covered..covered + 4] == softndk_iwarp::crc::of(&rest[..covered]);
        if with_crc && !good {
            return (frames, Some(Code::CRC));
        }
        frames.push(rest[2..2 + length].to_vec());
        rest = &rest[covered + 4..];
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_streams_in_random_cuts_bring_the_same(
        messages in prop::collection::vec(message(), 1..12),
        most in 128..1500_usize,
        cuts in prop::collection::vec(1..700_usize, 1..40),
        with_crc: bool,
    ) {
        let stream = stream(&messages, most, with_crc);
        let (wanted, reads) = expected(&messages);
        let mut receiver = Receiver::new(with_crc, reads);
        let (mut rest, mut cuts) = (stream.as_slice(), cuts.iter().cycle());
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(rest.len().min(*cuts.next().expect("a cycle")));
            receiver.take(part).unwrap();
            rest = behind;
        }
        // Writes that follow one another in memory look like one.
        let joined = |received: &[Received]| received.iter().map(|it| match it {
            Received::Write(.., bytes) | Received::Send(_, bytes) | Received::Response(bytes) => bytes.len(),
            Received::Request(..) => 0,
        }).sum::<usize>();
        prop_assert_eq!(joined(&receiver.received), joined(&wanted));
        prop_assert!(receiver.received.len() <= wanted.len());
        prop_assert_eq!(receiver.received.last(), wanted.last());
    }

    #[test]
    fn any_bytes_are_read_as_the_model_reads_them(
        mut stream in prop::collection::vec(any::<u8>(), 0..600),
        good in 0..4_usize,
        cuts in prop::collection::vec(1..90_usize, 1..9),
        with_crc: bool,
    ) {
        // Some frames are right, or nothing behind the first would be looked at.
        let mut frames: Vec<u8> = Vec::new();
        for length in (0..good).map(|number| 14 + number * 7) {
            let mut into = vec![0; 100];
            let built = frame::build(&mut into, length, true, |payload| { payload.fill(0x3C); Some(()) });
            frames.extend_from_slice(&into[..built.expect("it fits")]);
        }
        frames.append(&mut stream);
        let (wanted, fault) = whole_frames(&frames, with_crc);
        let mut reader = FrameReader::try_new().unwrap();
        reader.begin(with_crc);
        let (mut found, mut ended) = (Vec::new(), None);
        let (mut rest, mut cuts) = (frames.as_slice(), cuts.iter().cycle());
        while !rest.is_empty() && ended.is_none() {
            let (mut part, behind) = rest.split_at(rest.len().min(*cuts.next().expect("a cycle")));
            loop {
                match reader.next(&mut part).map(|frame| frame.map(Frame::payload)) {
                    Ok(Some(payload)) => found.push(payload.to_vec()),
                    Ok(None) => break,
                    Err(code) => { ended = Some(code); break; }
                }
            }
            rest = behind;
        }
        prop_assert_eq!((found, ended), (wanted, fault));
    }
}
