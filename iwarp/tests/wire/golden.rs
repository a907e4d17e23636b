//! Frames whose bytes Wireshark has dissected: built here byte by byte, and read again.

use softndk_iwarp::frame::{self, FrameReader};
use softndk_iwarp::segment::{Header, ReadRequest, Segment, Send, SendKind, Tagged};
use softndk_iwarp::start::{Enhanced, StartFlags, StartFrame, StartKind, StartReader};
use softndk_iwarp::terminate::{Code, Echo, Terminate};

/// Bytes of hexadecimal digits, spaces between them as one likes.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn built(header: &Header, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xEE; frame::MOST];
    let payload = header.length() + data.len();
    let length = frame::build(&mut bytes, payload, true, |payload| {
        let at = header.encode(payload)?;
        payload.get_mut(at..)?.copy_from_slice(data);
        Some(())
    });
    bytes.truncate(length.expect("it fits"));
    bytes
}

/// The frame is these bytes, and these bytes are the frame.
fn is(header: Header, data: &[u8], text: &str) {
    let bytes = hex(text);
    assert_eq!(built(&header, data), bytes, "{header:?}");
    let mut reader = FrameReader::try_new().unwrap();
    let mut input = bytes.as_slice();
    let frame = reader.next(&mut input).unwrap().expect("a frame");
    assert_eq!(Segment::decode(frame.payload()), Ok(Segment { header, data }));
    assert!(input.is_empty());
}

fn send(kind: SendKind, msn: u32) -> Header {
    Header::Send(Send { kind, msn, offset: 0, is_last: true })
}

const READ: ReadRequest = ReadRequest {
    msn: 1,
    sink_stag: 0x1122_3344,
    sink_offset: 0x1000,
    length: 8,
    source_stag: 0xAABB_CC01,
    source_offset: 0x7F00_0000_2000,
};

const READ_BYTES: &str =
    "002e 4141 00000000 00000001 00000001 00000000 11223344 0000000000001000 00000008 aabbcc01 00007f0000002000";

#[test]
fn ready_to_receive() {
    let empty = Tagged { stag: 1, offset: 0, is_last: true };
    is(Header::Write(empty), b"", "000e c140 00000001 0000000000000000 ebd34c5f");
    let read = ReadRequest { msn: 1, sink_stag: 1, sink_offset: 0, length: 0, source_stag: 1, source_offset: 0 };
    is(
        Header::ReadRequest(read),
        b"",
        "002e 4141 00000000 00000001 00000001 00000000 00000001 0000000000000000 00000000 00000001 0000000000000000 27dbd7e7",
    );
}

#[test]
fn sends() {
    let text = "0017 4143 00000000 00000000 00000001 00000000 6162636465 000000 89f65870";
    is(send(SendKind::default(), 1), b"abcde", text);
    let kind = SendKind { is_solicited: true, invalidates: Some(0xAABB_CC01) };
    is(send(kind, 2), b"", "0012 4146 aabbcc01 00000000 00000002 00000000 825a6558");
}

#[test]
fn a_read_and_its_response_in_two() {
    is(Header::ReadRequest(READ), b"", &format!("{READ_BYTES} 78af57a3"));
    let response = |offset, is_last| Header::ReadResponse(Tagged { stag: 0x1122_3344, offset, is_last });
    is(response(0x1000, false), b"ABCD", "0012 8142 11223344 0000000000001000 41424344 260cc78e");
    is(response(0x1004, true), b"EFGH", "0012 c142 11223344 0000000000001004 45464748 a098c35c");
}

#[test]
fn a_write() {
    let write = Tagged { stag: 0xAABB_CC01, offset: 0x7F00_0000_2000, is_last: true };
    is(Header::Write(write), b"xyz", "0011 c140 aabbcc01 00007f0000002000 78797a 00 a1130435");
}

#[test]
fn terminates() {
    let write = hex("0011 c140 aabbcc01 00007f0000002000");
    let read = hex(READ_BYTES);
    for (code, echo, text) in [
        (
            Code::TAGGED_BOUNDS,
            Echo::Headers(&write),
            "0026 4147 00000000 00000002 00000001 00000000 1101 c000 0011 c140aabbcc0100007f0000002000 7886e551"
                .to_owned(),
        ),
        (
            Code::REMOTE_ACCESS,
            Echo::Headers(&read),
            format!("0046 4147 00000000 00000002 00000001 00000000 0102 e000 {READ_BYTES} 8dcb8ac8"),
        ),
        (Code::CRC, Echo::Nothing, "0016 4147 00000000 00000002 00000001 00000000 2002 0000 7fe42585".to_owned()),
    ] {
        let message = Terminate { code, echo };
        let mut payload = [0; 64];
        let length = message.encode(&mut payload).unwrap();
        is(Header::Terminate { msn: 1 }, &payload[..length], &text);
        assert_eq!(Terminate::decode(&payload[..length]), Some(message));
    }
}

#[test]
fn start_frames() {
    let enhanced = Enhanced {
        is_peer_to_peer: true,
        empty_frame: false,
        write: true,
        read: true,
        inbound_reads: 16,
        outbound_reads: 16,
    };
    let flags = StartFlags::CRC | StartFlags::ENHANCED;
    let request =
        StartFrame { kind: StartKind::Request, flags, revision: 2, enhanced: Some(enhanced), private_data: b"hello" };
    let chosen = Enhanced { read: false, ..enhanced };
    let reply = StartFrame { kind: StartKind::Reply, enhanced: Some(chosen), private_data: b"world!", ..request };
    for (frame, text) in [
        (request, "4d504120494420526571204672616d65 50 02 0009 8010 c010 68656c6c6f"),
        (reply, "4d504120494420526570204672616d65 50 02 000a 8010 8010 776f726c6421"),
    ] {
        let mut bytes = [0; 64];
        let length = frame.encode(&mut bytes).unwrap();
        assert_eq!(bytes[..length], hex(text));
        assert_eq!(frame.encode(&mut bytes[..length - 1]), None);
        let mut reader = StartReader::try_new(frame.kind).unwrap();
        assert_eq!(reader.read(&mut &bytes[..length]), Ok(Some(frame)));
    }
}

#[test]
fn an_empty_frame_is_no_segment() {
    // RFC 6581 has it as a ready-to-receive frame, which is never offered.
    let bytes = hex("00 00 00 00 C7 4B 67 48");
    assert_eq!(FrameReader::try_new().unwrap().next(&mut bytes.as_slice()), Err(Code::FRAME_LENGTH));
}
