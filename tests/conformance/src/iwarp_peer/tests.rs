//! The builder against bytes that Wireshark's dissectors have taken with good CRCs.

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).expect("digits"), 16).expect("two digits"))
        .collect()
}

fn refused_write() -> Segment {
    Segment::write(0xAABB_CC01, 0x7F00_0000_2000, b"xyz")
}

fn read() -> ReadRequest {
    ReadRequest {
        sink_stag: 0x1122_3344,
        sink_offset: 0x1000,
        length: 8,
        source_stag: 0xAABB_CC01,
        source_offset: 0x7F00_0000_2000,
    }
}

#[test]
fn start_up_frames_are_the_known_bytes() {
    let request = StartFrame::request(Enhanced::with_ready(16, 16, Enhanced::WRITE | Enhanced::READ), b"hello");
    let reply = StartFrame::reply(Enhanced::with_ready(16, 16, Enhanced::WRITE), b"world!");
    for (frame, known) in [
        (request, "4d504120494420526571204672616d65 50 02 0009 8010 c010 68656c6c6f"),
        (reply, "4d504120494420526570204672616d65 50 02 000a 8010 8010 776f726c6421"),
    ] {
        let known = bytes(known);
        assert_eq!(frame.to_bytes(), known);
        assert_eq!(StartFrame::length(known[..start::HEADER].try_into().expect("a header")), known.len());
        assert_eq!(StartFrame::parse(&known), frame);
    }
}

#[test]
fn frames_are_the_known_bytes() {
    let terminate = |terminate: Terminate| terminate.segment(Layout::Rfc);
    let write = refused_write();
    let request = Segment::read_request(1, &read());
    let response = |at: u64, data: &[u8]| Segment::read_response(0x1122_3344, 0x1000 + at, data);
    let request_bytes =
        "4141 00000000 00000001 00000001 00000000 11223344 0000000000001000 00000008 aabbcc01 00007f0000002000";
    let refused_read = format!("0046 4147 00000000 00000002 00000001 00000000 0102 e000 002e {request_bytes} 8dcb8ac8");
    let request_frame = format!("002e {request_bytes} 78af57a3");
    let ready_read = "002e 4141 00000000 00000001 00000001 00000000 00000001 0000000000000000 00000000 00000001 0000000000000000 27dbd7e7";
    let rows = [
        (Segment::ready_write(), "000e c140 00000001 0000000000000000 ebd34c5f"),
        (Segment::ready_read(), ready_read),
        (Segment::send(1, b"abcde"), "0017 4143 00000000 00000000 00000001 00000000 6162636465 000000 89f65870"),
        (request.clone(), &request_frame),
        (response(0, b"ABCD").not_last(), "0012 8142 11223344 0000000000001000 41424344 260cc78e"),
        (response(4, b"EFGH"), "0012 c142 11223344 0000000000001004 45464748 a098c35c"),
        (write.clone(), "0011 c140 aabbcc01 00007f0000002000 78797a 00 a1130435"),
        (
            Segment::send_of(opcode::SEND_SOLICITED_INVALIDATE, 0xAABB_CC01, 2, &[]),
            "0012 4146 aabbcc01 00000000 00000002 00000000 825a6558",
        ),
        (
            terminate(Terminate::of(Code(1, 1, 1), &write)),
            "0026 4147 00000000 00000002 00000001 00000000 1101 c000 0011 c140aabbcc0100007f0000002000 7886e551",
        ),
        (terminate(Terminate::of(Code(0, 1, 2), &request)), &refused_read),
        (terminate(Terminate::new(Code(2, 0, 2))), "0016 4147 00000000 00000002 00000001 00000000 2002 0000 7fe42585"),
    ];
    for (segment, known) in rows {
        let known = bytes(known);
        assert_eq!(frame::build(&segment.payload(), true), known, "{segment:02x?}");
        assert_eq!(frame::length(segment.payload().len()), known.len());
        assert_eq!(Segment::parse(frame::payload(&known, true)), segment);
    }
    assert_eq!(ReadRequest::parse(&request), read());
}

/// Both are copies of what a siw of Linux 6.1 has sent.
#[test]
fn terminates_of_siw_are_the_known_bytes() {
    let write = "0003 c140deadbe010000000000001000";
    let read =
        "0000 4141 00000000 00000001 00000008 00000000 53000001 0000000000000000 00000008 deadbe01 0000000000001000";
    let rows =
        [(Code(1, 1, 0), write, format!("1100 0300 {write}")), (Code(0, 1, 0), read, format!("1000 0700 {read}"))];
    for (code, echo, known) in rows {
        let sent = Terminate { code, echo: bytes(echo) }.segment(Layout::Siw);
        assert_eq!(sent.data(), bytes(&known));
    }
}

#[test]
fn terminates_are_read_as_they_were_sent() {
    for terminate in [Terminate::new(Code(2, 0, 3)), Terminate::of(Code(1, 1, 0), &refused_write())] {
        assert_eq!(Terminate::parse(&terminate.segment(Layout::Rfc)), terminate);
    }
}

#[test]
fn crc_field_is_zero_without_a_crc() {
    let built = frame::build(b"\x81\x40", false);
    assert_eq!(built, [0, 2, 0x81, 0x40, 0, 0, 0, 0]);
    assert_eq!(frame::payload(&built, false), b"\x81\x40");
}
