//! What is wrong with a segment, with the number of a message, with a response: each with the code that a Terminate says.

use softndk_iwarp::inbound::{Inbound, Message, OpenRead};
use softndk_iwarp::segment::{Header, ReadRequest, Segment, Send, SendKind, Tagged};
use softndk_iwarp::terminate::Code;

fn encoded(header: &Header, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    let length = header.encode(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes.extend_from_slice(data);
    bytes
}

const READ: ReadRequest =
    ReadRequest { msn: 1, sink_stag: 7, sink_offset: 0, length: 8, source_stag: 9, source_offset: 0x1000 };

fn send(msn: u32, offset: u32, is_last: bool) -> Header {
    Header::Send(Send { kind: SendKind::default(), msn, offset, is_last })
}

fn response(stag: u32, offset: u64, is_last: bool) -> Header {
    Header::ReadResponse(Tagged { stag, offset, is_last })
}

/// A good segment with one byte changed.
#[test]
fn each_field_of_a_segment_is_checked() {
    let write = encoded(&Header::Write(Tagged { stag: 1, offset: 2, is_last: true }), b"x");
    let send = encoded(&send(1, 0, true), b"x");
    let read = encoded(&Header::ReadRequest(READ), b"");
    let terminate = encoded(&Header::Terminate { msn: 1 }, &[0; 4]);
    for (good, at, value, code) in [
        (&write, 0, 0xC2, Code::TAGGED_VERSION),
        (&write, 0, 0xC0, Code::TAGGED_VERSION),
        (&send, 0, 0x42, Code::UNTAGGED_VERSION),
        (&write, 1, 0x00, Code::RDMAP_VERSION),
        (&send, 1, 0x83, Code::RDMAP_VERSION),
        // Untagged Write and Response, tagged Send and Read, what RFC 7306 adds, what nothing defines.
        (&write, 0, 0x41, Code::UNEXPECTED_OPCODE),
        (&send, 0, 0xC1, Code::UNEXPECTED_OPCODE),
        (&read, 0, 0xC1, Code::UNEXPECTED_OPCODE),
        (&send, 1, 0x48, Code::UNEXPECTED_OPCODE),
        (&send, 1, 0x4F, Code::UNEXPECTED_OPCODE),
        (&send, 9, 1, Code::QUEUE_NUMBER),
        (&send, 6, 1, Code::QUEUE_NUMBER),
        (&read, 9, 0, Code::QUEUE_NUMBER),
        (&terminate, 9, 1, Code::QUEUE_NUMBER),
        (&read, 17, 4, Code::MESSAGE_OFFSET),
        (&read, 0, 0x01, Code::MESSAGE_OFFSET),
        (&terminate, 0, 0x01, Code::MESSAGE_OFFSET),
    ] {
        let mut changed = good.clone();
        assert!(Segment::decode(&changed).is_ok());
        assert_ne!(changed[at], value);
        changed[at] = value;
        assert_eq!(Segment::decode(&changed), Err(code), "byte {at} = {value:#04x} of {good:02x?}");
    }
    for good in [&write[..14], &send[..18], &read[..46], &terminate[..18]] {
        assert!(Segment::decode(good).is_ok());
        for length in 0..good.len() {
            assert_eq!(Segment::decode(&good[..length]), Err(Code::FRAME_LENGTH), "{length} of {good:02x?}");
        }
    }
    let longer = [&read[..], &[0]].concat();
    assert_eq!(Segment::decode(&longer), Err(Code::FRAME_LENGTH));
}

/// Takes segments until one is refused.
fn refused(most_requests: u32, mut open: Option<OpenRead>, segments: &[(Header, &[u8])]) -> (usize, Code) {
    let mut inbound = Inbound::new(most_requests);
    for (number, (header, data)) in segments.iter().enumerate() {
        if let Err(code) = inbound.take(Segment { header: *header, data }, open.as_mut()) {
            let again = inbound.take(Segment { header: send(1, 0, true), data: b"" }, None);
            assert_eq!(again, Err(Code::STREAM_CATASTROPHIC), "nothing is taken after a fault");
            return (number, code);
        }
    }
    panic!("all are taken: {segments:?}");
}

#[test]
fn numbers_and_offsets_of_sends_go_on() {
    assert_eq!(refused(1, None, &[(send(0, 0, true), b"")]), (0, Code::MSN_RANGE));
    assert_eq!(refused(1, None, &[(send(1, 0, true), b""), (send(1, 0, true), b"")]), (1, Code::MSN_RANGE));
    assert_eq!(refused(1, None, &[(send(1, 0, false), b"ab"), (send(2, 2, true), b"")]), (1, Code::MSN_RANGE));
    assert_eq!(refused(1, None, &[(send(1, 4, true), b"ab")]), (0, Code::MESSAGE_OFFSET));
    assert_eq!(refused(1, None, &[(send(1, 0, false), b"ab"), (send(1, 3, true), b"")]), (1, Code::MESSAGE_OFFSET));
    let other = Header::Send(Send {
        kind: SendKind { is_solicited: true, invalidates: None },
        msn: 1,
        offset: 2,
        is_last: true,
    });
    assert_eq!(refused(1, None, &[(send(1, 0, false), b"ab"), (other, b"")]), (1, Code::UNEXPECTED_OPCODE));
}

#[test]
fn other_messages_come_between_the_segments_of_a_send() {
    let mut inbound = Inbound::new(1);
    let mut open = OpenRead { stag: 3, length: 2, received: 0 };
    let write = Header::Write(Tagged { stag: 1, offset: 0, is_last: false });
    for header in [send(1, 0, false), write, Header::ReadRequest(READ), response(3, 0, true), send(1, 2, true)] {
        let data: &[u8] = if let Header::ReadRequest(_) = header { b"" } else { b"ab" };
        assert!(inbound.take(Segment { header, data }, Some(&mut open)).is_ok(), "{header:?}");
    }
}

#[test]
fn reads_are_limited() {
    let read = |msn| Header::ReadRequest(ReadRequest { msn, ..READ });
    assert_eq!(refused(0, None, &[(read(1), b"")]), (0, Code::NO_BUFFER));
    assert_eq!(refused(2, None, &[(read(1), b""), (read(2), b""), (read(3), b"")]), (2, Code::NO_BUFFER));
    assert_eq!(refused(2, None, &[(read(2), b"")]), (0, Code::MSN_RANGE));
    let mut inbound = Inbound::new(1);
    for msn in 1..9 {
        assert!(inbound.take(Segment { header: read(msn), data: b"" }, None).is_ok());
        inbound.answered();
    }
    let wraps = ReadRequest { source_offset: u64::MAX - 6, ..READ };
    assert_eq!(refused(1, None, &[(Header::ReadRequest(wraps), b"")]), (0, Code::REMOTE_WRAP));
    // Of no bytes: nothing wraps.
    let empty = ReadRequest { source_offset: u64::MAX, length: 0, ..READ };
    assert!(Inbound::new(1).take(Segment { header: Header::ReadRequest(empty), data: b"" }, None).is_ok());
    let ends_there = ReadRequest { source_offset: u64::MAX - 8, ..READ };
    let mut inbound = Inbound::new(1);
    assert!(inbound.take(Segment { header: Header::ReadRequest(ends_there), data: b"" }, None).is_ok());
}

#[test]
fn a_write_beyond_the_last_address_is_refused() {
    let write = |offset| Header::Write(Tagged { stag: 1, offset, is_last: true });
    assert_eq!(refused(1, None, &[(write(u64::MAX), b"ab")]), (0, Code::TAGGED_WRAP));
    let mut inbound = Inbound::new(1);
    assert!(inbound.take(Segment { header: write(u64::MAX - 2), data: b"ab" }, None).is_ok());
}

#[test]
fn a_response_is_that_of_the_oldest_read_and_as_long() {
    let open = OpenRead { stag: 5, length: 4, received: 0 };
    assert_eq!(refused(1, None, &[(response(5, 0, true), b"abcd")]), (0, Code::TAGGED_INVALID_STAG));
    for (header, data) in [
        (response(5, 0, true), &b"abc"[..]),
        (response(5, 0, false), b"abcd"),
        (response(5, 0, true), b"abcde"),
        (response(5, 1, true), b"abcd"),
        (response(5, u64::MAX, true), b"abcd"),
    ] {
        assert_eq!(refused(1, Some(open), &[(header, data)]), (0, Code::TAGGED_BOUNDS), "{header:?}");
    }
    assert_eq!(refused(1, Some(open), &[(response(6, 0, true), b"abcd")]), (0, Code::TAGGED_INVALID_STAG));
    let two = [(response(5, 0, false), &b"abc"[..]), (response(5, 3, true), b"de")];
    assert_eq!(refused(1, Some(open), &two), (1, Code::TAGGED_BOUNDS));
    let mut inbound = Inbound::new(1);
    let mut open = open;
    let message = inbound.take(Segment { header: response(5, 0, false), data: b"ab" }, Some(&mut open));
    assert_eq!(message, Ok(Message::ReadResponse { offset: 0, data: b"ab", is_last: false }));
    let message = inbound.take(Segment { header: response(5, 2, true), data: b"cd" }, Some(&mut open));
    assert_eq!((message, open.received), (Ok(Message::ReadResponse { offset: 2, data: b"cd", is_last: true }), 4));
}

#[test]
fn nothing_follows_a_terminate() {
    let mut inbound = Inbound::new(1);
    let ended = inbound.take(Segment { header: Header::Terminate { msn: 1 }, data: &[0x20, 0x02, 0, 0] }, None);
    assert!(matches!(ended, Ok(Message::Terminate(Some(terminate))) if terminate.code == Code::CRC));
    let after = inbound.take(Segment { header: send(1, 0, true), data: b"" }, None);
    assert_eq!(after, Err(Code::STREAM_CATASTROPHIC));
    let short = Inbound::new(1).take(Segment { header: Header::Terminate { msn: 1 }, data: &[0x20] }, None);
    assert_eq!(short, Ok(Message::Terminate(None)));
}
