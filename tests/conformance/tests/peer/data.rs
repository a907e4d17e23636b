//! Messages of every kind and size, in both directions: how they are cut, numbered and put together.

use std::collections::VecDeque;

use conformance::iwarp_peer::{PeerConnection, ReadRequest, Segment, Stage, opcode};

use super::consumer::{bytes_of, from_hex, to_hex};
use super::roles::{Play, READS, ROLES, Role, SUCCESS};

/// The longest payload of a frame that the machine sends.
const MOST_PAYLOAD: usize = 8192;
const SEND_DATA: usize = MOST_PAYLOAD - 18;
const TAGGED_DATA: usize = MOST_PAYLOAD - 14;

/// Lengths with each padding, and at the bounds of a segment.
fn lengths(segment: usize) -> Vec<usize> {
    let bounds = [1, 2].map(|count| [count * segment - 1, count * segment, count * segment + 1]);
    [vec![0, 1, 2, 3, 4, 5], bounds.concat(), vec![65_536, 1 << 20]].concat()
}

/// The bytes of a message whose segments lie one behind the other.
fn joined(segments: &[Segment]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, segment) in segments.iter().enumerate() {
        let place = bytes.len() as u64;
        match (segment, &segments[0]) {
            (Segment::Tagged { offset, stag, .. }, Segment::Tagged { offset: first, stag: same, .. }) => {
                assert_eq!((*offset, stag), (first + place, same));
            }
            (Segment::Untagged { offset, number, stag, .. }, Segment::Untagged { number: same, stag: one, .. }) => {
                assert_eq!((u64::from(*offset), number, stag), (place, same, one));
            }
            _ => panic!("two kinds of segments in a message"),
        }
        assert!(segment.payload().len() <= MOST_PAYLOAD);
        assert!(segments.len() == 1 || !segment.data().is_empty(), "an empty segment");
        assert_eq!(segment.is_last(), index == segments.len() - 1);
        bytes.extend(segment.data());
    }
    bytes
}

/// A message in segments of so many bytes.
fn cut(message: &Segment, length: usize) -> Vec<Segment> {
    let count = message.data().len().div_ceil(length).max(1);
    let pieces = (0..count).map(|index| {
        let (start, end) = (index * length, message.data().len().min((index + 1) * length));
        let mut piece = message.clone().at(start as u32);
        let (Segment::Tagged { data, .. } | Segment::Untagged { data, .. }) = &mut piece;
        *data = data[start..end].to_vec();
        if index + 1 < count { piece.not_last() } else { piece }
    });
    pieces.collect()
}

/// So many Sends of the consumer arrive whole, and each has the next number.
pub fn sends_of_each_length_arrive(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for role in ROLES {
        let mut wire = play.open(role);
        for (index, length) in lengths(SEND_DATA).into_iter().enumerate() {
            play.stage.order(&format!("send {length}"));
            let segments = wire.receive_message();
            assert_eq!((segments[0].opcode(), segments[0].number()), (opcode::SEND, Some(index as u32 + 1)));
            assert!(joined(&segments) == bytes_of(length), "{length} bytes");
            assert_eq!(segments.len(), length.div_ceil(SEND_DATA).max(1));
            play.stage.expect("result", SUCCESS);
        }
        play.part(&mut wire);
    }
}

/// Sends of the peer in segments of any length fill one receive each.
pub fn sends_in_any_segments_are_received(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for role in ROLES {
        let mut wire = play.open(role);
        let rows =
            [(0, 1), (1, 1), (7, 1), (5, 2), (3000, 1424), (65_517, 65_517), (65_518, 65_517), (1 << 20, 30_001)];
        for (index, (length, segment)) in rows.into_iter().enumerate() {
            play.receive(length);
            let message = Segment::send(index as u32 + 1, &bytes_of(length));
            wire.send_together(&cut(&message, segment));
            let received = play.stage.ask("received");
            assert!(received == format!("00000000 0 {}", to_hex(&bytes_of(length))), "{length} bytes by {segment}");
        }
        play.part(&mut wire);
    }
}

/// The other kinds of Send have their own operations.
pub fn kinds_of_send_have_their_operations(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let mut wire = play.open(Role::Initiator);
    for (number, (order, operation, stag)) in [
        ("send 3", opcode::SEND, 0),
        ("solicit 3", opcode::SEND_SOLICITED, 0),
        ("invalidate 3 4660", opcode::SEND_INVALIDATE, 4660),
    ]
    .into_iter()
    .enumerate()
    {
        play.stage.order(order);
        assert_eq!(wire.receive_segment(), Segment::send_of(operation, stag, number as u32 + 1, &bytes_of(3)));
        play.stage.expect("result", SUCCESS);
    }
    for (number, operation) in [opcode::SEND, opcode::SEND_SOLICITED].into_iter().enumerate() {
        play.receive(3);
        wire.send_segment(&Segment::send_of(operation, 0, number as u32 + 1, b"abc"));
        play.stage.expect("received", "00000000 0 616263");
    }
    play.part(&mut wire);
}

/// Writes of the consumer go to the token and address that it has named.
pub fn writes_of_each_length_arrive(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let mut wire = play.open(Role::Responder);
    for length in lengths(TAGGED_DATA) {
        play.stage.order(&format!("write {length} 305419896 8589934593"));
        let mut segments = Vec::new();
        let mut come = 0;
        while segments.is_empty() || come < length {
            // Each piece may be a Write of its own.
            let segment = wire.receive_any_segment();
            let Segment::Tagged { opcode: opcode::WRITE, stag, offset, data, .. } = &segment else {
                panic!("no Write: {segment:02x?}")
            };
            assert_eq!((*stag, *offset), (305_419_896, 8_589_934_593 + come as u64));
            assert!(data[..] == bytes_of(length)[come..come + data.len()], "{length} bytes");
            come += data.len();
            segments.push(segment);
        }
        assert_eq!(come, length);
        assert!(segments.last().is_some_and(Segment::is_last));
        play.stage.expect("result", SUCCESS);
    }
    play.part(&mut wire);
}

/// The peer writes anywhere into what it may write, and a Send behind that says so; an empty Write needs no token.
pub fn writes_of_the_peer_are_stored(stage: &mut Stage<'_>) {
    const LENGTH: usize = 200_000;
    let mut play = Play::new(stage);
    for (role, kind) in [(Role::Initiator, "region"), (Role::Responder, "fast")] {
        let mut wire = play.open(role);
        let (token, address) = play.memory(&format!("{kind} {LENGTH} write"));
        let mut expected = bytes_of(LENGTH);
        for (at, length, segment) in
            [(0, 1, 1), (1, 3, 1), (199_999, 1, 9), (4095, 2, 2), (10_007, 65_521, 65_521), (99_990, 100_000, 30_000)]
        {
            let bytes: Vec<u8> = bytes_of(length).iter().map(|byte| !byte).collect();
            expected[at..at + length].copy_from_slice(&bytes);
            wire.send_together(&cut(&Segment::write(token, address + at as u64, &bytes), segment));
        }
        play.receive(0);
        wire.send_together(&[
            Segment::write(0xDEAD_BEEF, u64::MAX, &[]),
            Segment::write(token, 0, &[]),
            Segment::send(1, &[]),
        ]);
        play.stage.expect("received", "00000000 0 -");
        assert!(from_hex(&play.stage.ask("memory")) == expected);
        play.part(&mut wire);
    }
}

/// Answers Reads in order, with bytes that depend on the place they are read from.
fn answer_read(wire: &mut PeerConnection, request: &ReadRequest, segment: usize) {
    let bytes =
        bytes_of(request.source_offset as usize + request.length as usize).split_off(request.source_offset as usize);
    wire.send_together(&cut(&Segment::read_response(request.sink_stag, request.sink_offset, &bytes), segment));
}

/// Reads of the consumer are one request each, whatever their length; the response comes in any segments.
pub fn reads_of_each_length_are_answered(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let mut wire = play.open(Role::Initiator);
    for (index, length) in lengths(TAGGED_DATA).into_iter().enumerate() {
        let place = index * 3;
        play.stage.order(&format!("read {length} 99 {place}"));
        let segment = wire.receive_segment();
        assert_eq!(segment.number(), Some(index as u32 + 1));
        let request = ReadRequest::parse(&segment);
        assert_eq!((request.length as usize, request.source_stag, request.source_offset), (length, 99, place as u64));
        assert!(request.sink_stag != 0);
        answer_read(&mut wire, &request, [1, 1000, 60_000][(length > 64) as usize + (length > 1000) as usize]);
        play.stage.expect("result", SUCCESS);
        let expected = to_hex(&bytes_of(place + length)[place..]);
        assert!(play.stage.ask(&format!("bytes {length}")) == expected, "{length} bytes");
    }
    play.part(&mut wire);
}

/// The peer reads anywhere in what it may read: each response is whole, in order, and goes to the sink that was named.
pub fn reads_of_the_peer_are_answered_in_order(stage: &mut Stage<'_>) {
    const LENGTH: usize = 200_000;
    let mut play = Play::new(stage);
    for (role, kind) in [(Role::Initiator, "fast"), (Role::Responder, "region")] {
        let mut wire = play.open(role);
        let (token, address) = play.memory(&format!("{kind} {LENGTH} read"));
        let rows: Vec<(usize, usize)> =
            vec![(0, 0), (0, 1), (199_999, 1), (4095, 3), (1001, 8178), (1002, 8179), (5, 100_000), (0, LENGTH)];
        let mut requests = VecDeque::new();
        let mut bytes = Vec::new();
        for (index, (at, length)) in rows.iter().enumerate() {
            let number = index as u32 + 1;
            let request = ReadRequest {
                sink_stag: 0x7000_0000 + number,
                sink_offset: 0x1_0000_0001 * u64::from(number),
                length: *length as u32,
                source_stag: if *length == 0 { 0xBAD } else { token },
                source_offset: address + *at as u64,
            };
            bytes.extend(wire.frame(&Segment::read_request(number, &request)));
            requests.push_back(request);
        }
        wire.send(&bytes);
        for (request, (at, length)) in requests.iter().zip(&rows) {
            let segments = wire.receive_message();
            let Segment::Tagged { opcode: opcode::READ_RESPONSE, stag, offset, .. } = segments[0] else {
                panic!("no response: {:02x?}", segments[0])
            };
            assert_eq!((stag, offset), (request.sink_stag, request.sink_offset));
            assert!(joined(&segments) == bytes_of(LENGTH)[*at..at + length], "{length} bytes at {at}");
        }
        play.part(&mut wire);
    }
}

/// A Read behind a Write in the same segment of TCP sees its bytes; the consumer's Send behind a fence waits for its Read.
pub fn order_of_reads_and_writes_is_kept(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let mut wire = play.open(Role::Responder);
    let (token, address) = play.memory("region 64 both");
    for round in 1..=50_u32 {
        let request =
            ReadRequest { sink_stag: round, sink_offset: 0, length: 4, source_stag: token, source_offset: address + 8 };
        let written = round.to_be_bytes();
        wire.send_together(&[Segment::write(token, address + 8, &written), Segment::read_request(round, &request)]);
        assert_eq!(wire.receive_segment(), Segment::read_response(round, 0, &written));
    }
    play.stage.order("read 4 5 0");
    play.stage.order("fence");
    let request = ReadRequest::parse(&wire.receive_segment());
    play.stage.expect("events", "0");
    assert!(wire.is_silent(), "a Send passes the Read that it is fenced from");
    answer_read(&mut wire, &request, 4);
    assert_eq!(wire.receive_segment(), Segment::send(1, &[]));
    play.stage.expect("result", SUCCESS);
    play.stage.expect("result", SUCCESS);
    play.part(&mut wire);
}

/// A Send with Invalidate takes the token from the peer before it is received.
pub fn invalidation_by_the_peer_is_received(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for operation in [opcode::SEND_INVALIDATE, opcode::SEND_SOLICITED_INVALIDATE] {
        let mut wire = play.open(Role::Responder);
        let (token, _) = play.memory("fast 64 both");
        play.receive(4);
        wire.send_segment(&Segment::send_of(operation, token, 1, b"done"));
        play.stage.expect("received", &format!("00000000 {token} 646f6e65"));
        play.part(&mut wire);
    }
}

/// A Send without a receive waits for one, and does not stand in the way of what comes behind it.
pub fn send_without_receive_waits(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for role in ROLES {
        let mut wire = play.open(role);
        let (token, address) = play.memory("region 64 both");
        let read = ReadRequest { sink_stag: 3, sink_offset: 0, length: 2, source_stag: token, source_offset: address };
        wire.send_together(&[Segment::send(1, b"late"), Segment::send(2, b"later"), Segment::read_request(1, &read)]);
        assert_eq!(wire.receive_segment(), Segment::read_response(3, 0, &bytes_of(2)));
        play.receive(5);
        play.stage.expect("received", "00000000 0 6c617465");
        play.receive(5);
        play.stage.expect("received", "00000000 0 6c61746572");
        play.part(&mut wire);
    }
}

/// A peer that stops reading and goes on later: nothing is lost, and no request fails.
pub fn peer_that_stops_reading_loses_nothing(stage: &mut Stage<'_>) {
    const LENGTH: usize = 1 << 20;
    const COUNT: u32 = 24;
    let mut play = Play::new(stage);
    let mut wire = play.open(Role::Initiator);
    (0..COUNT).for_each(|_| play.stage.order(&format!("send {LENGTH}")));
    play.stage.expect("events", "0");
    // What the peer sends meanwhile is taken.
    play.receive(4);
    wire.send_segment(&Segment::send(1, b"wait"));
    play.stage.expect("received", "00000000 0 77616974");
    for number in 1..=COUNT {
        let segments = wire.receive_message();
        assert_eq!(segments[0].number(), Some(number));
        assert!(joined(&segments) == bytes_of(LENGTH));
    }
    (0..COUNT).for_each(|_| play.stage.expect("result", SUCCESS));
    assert!(COUNT > u32::from(READS));
    play.part(&mut wire);
}
