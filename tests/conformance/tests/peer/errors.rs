//! What one side may not do: the Terminate that says so, and what the consumer sees of it.

use conformance::iwarp_peer::terminate::echo_of;
use conformance::iwarp_peer::{
    Code, Layout, PeerConnection, ReadRequest, Segment, Stage, StreamEnd, Terminate, frame, opcode,
};
use ndkpi_sys::nt::{STATUS_BUFFER_OVERFLOW, STATUS_CANCELLED, STATUS_CONNECTION_ABORTED, STATUS_REMOTE_RESOURCES};

use super::consumer::bytes_of;
use super::roles::{Play, READS, ROLES, Role, SUCCESS, status};

/// The reasons of disconnect events.
pub const PEER_FAILED: &str = "3";
pub const REFUSED_BY_PEER: &str = "9";
pub const STREAM_LOST: &str = "10";

/// The machine ends the stream with this code, and its consumer sees this reason. What the Terminate repeats of `refused` is right.
#[track_caller]
fn expect_refusal(
    play: &mut Play<'_, '_>,
    wire: &mut PeerConnection,
    code: Code,
    refused: Option<&Segment>,
    reason: &str,
) {
    let terminate = wire.expect_terminate(code);
    assert_eq!(terminate.echo, refused.map(echo_of).unwrap_or_default(), "what {code:?} repeats");
    play.stage.expect("event", reason);
    expect_on_list(play, "sent", code);
    wire.finish();
}

/// The newest Terminate on the driver's list of refusals.
#[track_caller]
fn expect_on_list(play: &mut Play<'_, '_>, way: &str, Code(layer, kind, code): Code) {
    play.stage.expect("terminate", &format!("{way} {layer} {kind} {code}"));
}

/// A receive that is too short fails, and so does the Send.
pub fn receive_that_is_too_short_ends_the_stream(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for role in ROLES {
        let mut wire = play.open(role);
        play.receive(4);
        play.receive(4);
        let send = Segment::send(1, b"fiver");
        wire.send_segment(&send);
        expect_refusal(&mut play, &mut wire, Code(1, 2, 5), Some(&send), PEER_FAILED);
        play.stage.expect("received", &format!("{} 0 -", status(STATUS_BUFFER_OVERFLOW)));
        play.stage.expect("code", "11205");
        // An incoming end flushes no receive.
        play.stage.order("disconnect");
        play.stage.expect("disconnected", SUCCESS);
        play.stage.expect("received", &format!("{} 0 -", status(STATUS_CANCELLED)));
    }
}

/// The second segment is what is too long.
pub fn receive_that_is_too_short_for_a_later_segment_ends_the_stream(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let mut wire = play.open(Role::Responder);
    play.receive(4);
    let second = Segment::send(1, b"er").at(3);
    wire.send_together(&[Segment::send(1, b"fiv").not_last(), second.clone()]);
    expect_refusal(&mut play, &mut wire, Code(1, 2, 5), Some(&second), PEER_FAILED);
    play.stage.expect("received", &format!("{} 0 -", status(STATUS_BUFFER_OVERFLOW)));
    play.stage.expect("code", "11205");
}

/// A Send that finds no receive in the time that the machine gives it.
pub fn send_that_waits_too_long_ends_the_stream(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let mut wire = play.open(Role::Responder);
    wire.send_segment(&Segment::send(1, b"early"));
    expect_refusal(&mut play, &mut wire, Code(1, 2, 2), None, PEER_FAILED);
}

/// From a token and an address of memory to those of an access that is refused.
type Access = fn(u32, u64) -> (u32, u64);

/// Accesses to memory that does not allow them, and the Terminates that repeat them.
pub fn refused_accesses_end_the_stream(stage: &mut Stage<'_>) {
    const LENGTH: u64 = 4096;
    let read = |stag, offset, length| {
        let request = ReadRequest { sink_stag: 7, sink_offset: 9, length, source_stag: stag, source_offset: offset };
        Segment::read_request(1, &request)
    };
    let inside: Access = |token, address| (token, address);
    let before: Access = |token, address| (token, address - 1);
    let behind: Access = |token, address| (token, address + LENGTH - 7);
    let far: Access = |token, _| (token, 0x10);
    let wrapping: Access = |token, _| (token, u64::MAX - 6);
    let other: Access = |token, address| (token ^ 0x0055_5500, address);
    let none: Access = |_, address| (0, address);
    let sink: Access = |_, address| (1, address);
    let (no_stag, bounds, right, wrap) = (0, 1, 2, 4);
    let reads = [
        ("write", inside, right),
        ("read", before, bounds),
        ("read", behind, bounds),
        ("read", far, bounds),
        ("read", other, no_stag),
        ("read", none, no_stag),
        ("read", sink, no_stag),
        ("read", wrapping, wrap),
    ];
    let mut play = Play::new(stage);
    for (index, (rights, access, code)) in reads.into_iter().enumerate() {
        let mut wire = play.open(ROLES[index % 2]);
        let (token, address) = play.memory(&format!("region {LENGTH} {rights}"));
        let (token, address) = access(token, address);
        let request = read(token, address, 8);
        wire.send_segment(&request);
        expect_refusal(&mut play, &mut wire, Code(0, 1, code), Some(&request), PEER_FAILED);
    }
    let writes = [
        ("read", inside, Code(0, 1, 2)),
        ("write", before, Code(1, 1, 1)),
        ("write", behind, Code(1, 1, 1)),
        ("write", far, Code(1, 1, 1)),
        ("write", other, Code(1, 1, 0)),
        ("write", none, Code(1, 1, 0)),
        // The sinks of Reads are numbers that no Write may name.
        ("write", sink, Code(1, 1, 0)),
        ("write", wrapping, Code(1, 1, 3)),
    ];
    for (index, (rights, access, code)) in writes.into_iter().enumerate() {
        let mut wire = play.open(ROLES[index % 2]);
        let (token, address) = play.memory(&format!("region {LENGTH} {rights}"));
        let (token, address) = access(token, address);
        let write = Segment::write(token, address, b"unwanted");
        wire.send_segment(&write);
        expect_refusal(&mut play, &mut wire, code, Some(&write), PEER_FAILED);
        let memory = play.stage.ask("memory");
        assert!(memory == super::consumer::to_hex(&bytes_of(LENGTH as usize)), "row {index} was stored");
    }
}

/// The second segment of a Write is checked by itself.
pub fn later_segment_of_a_write_is_checked(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let mut wire = play.open(Role::Initiator);
    let (token, address) = play.memory("region 64 write");
    let second = Segment::write(token, address + 60, b"beyond");
    wire.send_together(&[Segment::write(token, address + 56, b"four").not_last(), second.clone()]);
    expect_refusal(&mut play, &mut wire, Code(1, 1, 1), Some(&second), PEER_FAILED);
    assert!(play.stage.ask("memory").ends_with(&super::consumer::to_hex(&[b"four", &bytes_of(64)[60..]].concat())));
}

/// Tokens that the peer may not invalidate: one that was invalidated, one of nothing, one of a region that stays registered.
pub fn refused_invalidation_ends_the_stream(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for kind in ["stale", "nothing", "region"] {
        let mut wire = play.open(Role::Responder);
        let (token, _) = play.memory(if kind == "region" { "region 64 both" } else { "fast 64 both" });
        play.receive(4);
        play.receive(4);
        let mut number = 1;
        if kind == "stale" {
            wire.send_segment(&Segment::send_of(opcode::SEND_INVALIDATE, token, number, b"once"));
            play.stage.expect("received", &format!("00000000 {token} 6f6e6365"));
            number += 1;
        }
        let token = if kind == "nothing" { token ^ 0x0055_5500 } else { token };
        let refused = Segment::send_of(opcode::SEND_INVALIDATE, token, number, b"more");
        wire.send_segment(&refused);
        expect_refusal(&mut play, &mut wire, Code(0, 2, 9), Some(&refused), PEER_FAILED);
    }
}

/// More Reads than the machine has slots for: the first of them are under way when the next comes.
pub fn more_reads_than_agreed_end_the_stream(stage: &mut Stage<'_>) {
    const LENGTH: u32 = 1 << 20;
    let mut play = Play::new(stage);
    for role in ROLES {
        let mut wire = play.open(role);
        let (token, address) = play.memory(&format!("region {LENGTH} read"));
        let request = |number| {
            let request = ReadRequest {
                sink_stag: 3,
                sink_offset: 0,
                length: LENGTH,
                source_stag: token,
                source_offset: address,
            };
            Segment::read_request(number, &request)
        };
        let requests: Vec<_> = (1..=u32::from(READS) + 4).map(request).collect();
        wire.send_together(&requests);
        let end = loop {
            let segment = wire.receive_segment();
            if segment.opcode() != opcode::READ_RESPONSE {
                break Terminate::parse(&segment);
            }
        };
        // In this or the next: one may have been answered before the rest came.
        assert_eq!(end.code, Code(1, 2, 2));
        assert!(requests.iter().skip(READS.into()).any(|request| end.echo == echo_of(request)), "{end:02x?}");
        wire.expect_end(StreamEnd::Finished);
        play.stage.expect("event", PEER_FAILED);
    }
}

/// One flipped bit, anywhere in a frame behind its length: nothing of it is stored, and nothing is repeated.
pub fn flipped_bit_ends_the_stream(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let length = 2 + 14 + 5;
    let frame_length = frame::length(14 + 5);
    for (index, place) in
        [2, 3, 7, 15, 16, length - 1, length, frame_length - 4, frame_length - 1].into_iter().enumerate()
    {
        let mut wire = play.open(ROLES[index % 2]);
        let (token, address) = play.memory("region 16 write");
        let mut bytes = wire.frame(&Segment::write(token, address, b"right"));
        assert_eq!(bytes.len(), frame_length);
        bytes[place] ^= 1 << (index % 8);
        wire.send(&bytes);
        expect_refusal(&mut play, &mut wire, Code(2, 0, 2), None, STREAM_LOST);
        play.stage.expect("memory", &super::consumer::to_hex(&bytes_of(16)));
    }
}

/// Frames that are no messages, each against its code.
pub fn malformed_frames_end_the_stream(stage: &mut Stage<'_>) {
    let send = Segment::send(1, b"data").payload();
    let read = {
        let request = ReadRequest { sink_stag: 1, sink_offset: 0, length: 0, source_stag: 1, source_offset: 0 };
        Segment::read_request(1, &request).payload()
    };
    let changed = |payload: &[u8], at: usize, byte: u8| {
        let mut payload = payload.to_vec();
        payload[at] = byte;
        payload
    };
    let write = Segment::write(1, 0, &[]).payload();
    let terminate = Segment::terminate(&[0x11, 0, 0, 0]).payload();
    let opcode_code = Code(0, 2, 6);
    let rows = [
        ("no payload", vec![], Code(2, 0, 3)),
        ("shorter than any header", write[..13].to_vec(), Code(2, 0, 3)),
        ("an untagged header cut short", send[..17].to_vec(), Code(2, 0, 3)),
        ("a Read Request cut short", read[..45].to_vec(), Code(2, 0, 3)),
        ("a Read Request with more behind it", [&read[..], &[0]].concat(), Code(2, 0, 3)),
        ("DDP version 0, tagged", changed(&write, 0, 0xC0), Code(1, 1, 4)),
        ("DDP version 2, untagged", changed(&send, 0, 0x42), Code(1, 2, 6)),
        ("RDMAP version 0", changed(&send, 1, 0x03), Code(0, 2, 5)),
        ("RDMAP version 2", changed(&write, 1, 0x80), Code(0, 2, 5)),
        ("immediate data", changed(&send, 1, 0x48), opcode_code),
        ("an atomic request", changed(&send, 1, 0x4A), opcode_code),
        ("opcode 15", changed(&send, 1, 0x4F), opcode_code),
        ("a tagged Send", changed(&send, 0, 0xC1), opcode_code),
        ("an untagged Write", changed(&write, 0, 0x41), opcode_code),
        ("a Send on queue 1", changed(&send, 9, 1), Code(1, 2, 1)),
        ("a Send on queue 3", changed(&send, 9, 3), Code(1, 2, 1)),
        ("a Read Request on queue 0", changed(&read, 9, 0), Code(1, 2, 1)),
        ("a Terminate on queue 0", changed(&terminate, 9, 0), Code(1, 2, 1)),
        ("a Send with number 0", changed(&send, 13, 0), Code(1, 2, 3)),
        ("a Send with number 2", changed(&send, 13, 2), Code(1, 2, 3)),
        ("a Read Request with number 2", changed(&read, 13, 2), Code(1, 2, 3)),
        ("a Send that begins at 4", changed(&send, 17, 4), Code(1, 2, 4)),
        ("a Read Request at 4", changed(&read, 17, 4), Code(1, 2, 4)),
        ("a Read Request that is not the last segment", changed(&read, 0, 0x01), Code(1, 2, 4)),
        ("a response that nothing asked for", changed(&write, 1, 0x42), Code(1, 1, 0)),
    ];
    let mut play = Play::new(stage);
    for (index, (what, payload, code)) in rows.into_iter().enumerate() {
        let mut wire = play.open(ROLES[index % 2]);
        play.receive(4);
        wire.send(&frame::build(&payload, true));
        let terminate = Terminate::parse(&wire.receive_segment());
        assert_eq!(terminate.code, code, "{what}");
        // Where the header can be trusted it is repeated.
        let is_read = matches!(code, Code(1, 2, 3) | Code(1, 1, 0)) || what == "a Send that begins at 4";
        let expected = if is_read { echo_of(&Segment::parse(&payload)) } else { Vec::new() };
        assert_eq!(terminate.echo, expected, "{what}");
        wire.expect_end(StreamEnd::Finished);
        let reason = if code == Code(1, 1, 0) { PEER_FAILED } else { STREAM_LOST };
        assert_eq!(play.stage.ask("event"), reason, "{what}");
        expect_on_list(&mut play, "sent", code);
        wire.finish();
    }
}

/// A segment of one message inside another: a jump, a different kind of Send.
pub fn broken_message_ends_the_stream(stage: &mut Stage<'_>) {
    let begun = Segment::send(1, b"half").not_last();
    let rows = [
        (Segment::send(1, b"gap").at(5), Code(1, 2, 4)),
        (Segment::send(2, b"next"), Code(1, 2, 3)),
        (Segment::send_of(opcode::SEND_SOLICITED, 0, 1, b"kind").at(4), Code(0, 2, 6)),
    ];
    let mut play = Play::new(stage);
    for (second, code) in rows {
        let mut wire = play.open(Role::Responder);
        play.receive(16);
        wire.send_together(&[begun.clone(), second.clone()]);
        expect_refusal(&mut play, &mut wire, code, Some(&second), STREAM_LOST);
        play.stage.order("disconnect");
        play.stage.expect("disconnected", SUCCESS);
        play.stage.expect("received", &format!("{} 0 -", status(STATUS_CANCELLED)));
    }
}

/// What comes in the place of a response.
type Response = fn(&ReadRequest) -> Segment;

/// Responses that are not those of the oldest Read: the Read is cancelled, and nothing is stored beyond its sink.
pub fn response_that_does_not_fit_ends_the_stream(stage: &mut Stage<'_>) {
    let rows: [(Response, Code); 7] = [
        (|read| Segment::read_response(read.sink_stag ^ 1, read.sink_offset, b"fourteen"), Code(1, 1, 0)),
        (|read| Segment::read_response(0, read.sink_offset, b"fourteen"), Code(1, 1, 0)),
        (|read| Segment::read_response(read.sink_stag, read.sink_offset + 1, b"fourteen"), Code(1, 1, 1)),
        (|read| Segment::read_response(read.sink_stag, read.sink_offset, b"ninebytes"), Code(1, 1, 1)),
        (|read| Segment::read_response(read.sink_stag, read.sink_offset, b"seven77"), Code(1, 1, 1)),
        // Whole, and not marked so; and more behind it.
        (|read| Segment::read_response(read.sink_stag, read.sink_offset, b"fourteen").not_last(), Code(1, 1, 1)),
        // The sink of a Read is no memory that the peer may write.
        (|read| Segment::write(read.sink_stag, read.sink_offset, b"fourteen"), Code(1, 1, 0)),
    ];
    let mut play = Play::new(stage);
    for (response, code) in rows {
        let mut wire = play.open(Role::Initiator);
        play.stage.order("read 8 5 0");
        let request = ReadRequest::parse(&wire.receive_segment());
        let wrong = response(&request);
        wire.send_segment(&wrong);
        expect_refusal(&mut play, &mut wire, code, Some(&wrong), PEER_FAILED);
        play.stage.expect("result", &status(STATUS_CANCELLED));
        play.stage.expect("bytes 9", "000000000000000000");
    }
}

/// A Terminate without a request that it could be of: an event with its reason, in both layouts, whole and cut in two.
pub fn terminate_on_an_idle_stream_is_an_event(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let write = Segment::write(5, 0, b"refused");
    let rows = [
        (Terminate::of(Code(1, 1, 0), &write).segment(Layout::Rfc), REFUSED_BY_PEER, Some(Code(1, 1, 0))),
        (Terminate::of(Code(1, 1, 1), &write).segment(Layout::Siw), REFUSED_BY_PEER, Some(Code(1, 1, 1))),
        (Terminate::of(Code(1, 2, 2), &write).segment(Layout::Siw), REFUSED_BY_PEER, Some(Code(1, 2, 2))),
        (Terminate::new(Code(2, 0, 2)).segment(Layout::Rfc), REFUSED_BY_PEER, Some(Code(2, 0, 2))),
        (Terminate::new(Code(2, 0, 3)).segment(Layout::Siw), REFUSED_BY_PEER, Some(Code(2, 0, 3))),
        (Terminate::new(Code(0, 0, 0)).segment(Layout::Rfc), PEER_FAILED, Some(Code(0, 0, 0))),
        // Too short for a code, and a code that no RFC has.
        (Segment::terminate(&[]), REFUSED_BY_PEER, None),
        (Segment::terminate(&[0x10]), REFUSED_BY_PEER, None),
        (Segment::terminate(&[0xF8; 60]), REFUSED_BY_PEER, Some(Code(15, 8, 0xF8))),
    ];
    for (index, (terminate, reason, code)) in rows.into_iter().enumerate() {
        let mut wire = play.open(ROLES[index % 2]);
        let bytes = wire.frame(&terminate);
        let (first, second) = bytes.split_at(bytes.len() / 2 * (index % 2));
        wire.send(first);
        wire.send(second);
        wire.finish();
        play.stage.expect("event", reason);
        if let Some(code) = code {
            expect_on_list(&mut play, "received", code);
        }
        // Requests after it complete as those of any connection that has ended.
        play.stage.order("send 4");
        play.stage.expect("result", &status(STATUS_CANCELLED));
        wire.drain();
    }
}

/// A Terminate that can be of the oldest request fails that, and its consumer gets no event; what is behind it is cancelled.
pub fn terminate_fails_the_request_that_it_is_of(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let refused = status(STATUS_REMOTE_RESOURCES);
    for (index, (code, layout)) in [
        (Code(0, 1, 0), Layout::Rfc),
        (Code(0, 1, 1), Layout::Siw),
        (Code(0, 1, 2), Layout::Rfc),
        (Code(0, 1, 3), Layout::Siw),
    ]
    .into_iter()
    .enumerate()
    {
        let mut wire = play.open(ROLES[index % 2]);
        play.stage.order("read 8 5 0");
        play.stage.order("read 8 5 8");
        play.stage.order("fence");
        let request = wire.receive_segment();
        wire.receive_segment();
        wire.send_segment(&Terminate::of(code, &request).segment(layout));
        wire.finish();
        play.stage.expect("result", &refused);
        let Code(layer, kind, number) = code;
        play.stage.expect("code", &format!("1{layer:x}{kind:x}{number:02x}"));
        play.stage.expect("result", &status(STATUS_CANCELLED));
        play.stage.expect("code", "0");
        play.stage.expect("result", &status(STATUS_CANCELLED));
        play.stage.expect("events", "0");
        expect_on_list(&mut play, "received", code);
        wire.drain();
    }
    // One that cannot be of a Read is an event, and the Read is cancelled.
    let mut wire = play.open(Role::Initiator);
    play.stage.order("read 8 5 0");
    wire.receive_segment();
    wire.send_segment(&Terminate::new(Code(1, 2, 2)).segment(Layout::Rfc));
    play.stage.expect("event", REFUSED_BY_PEER);
    play.stage.expect("result", &status(STATUS_CANCELLED));
    wire.drain();
}

/// A Terminate in the middle of a long Write, which the peer reads only in part.
pub fn terminate_meets_a_long_write(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let mut wire = play.open(Role::Initiator);
    (0..16).for_each(|_| play.stage.order(&format!("write {} 5 4096", 1 << 20)));
    let first = wire.receive_segment();
    wire.send_segment(&Terminate::of(Code(1, 1, 0), &first).segment(Layout::Rfc));
    // The Write of which a part has been sent fails; what is complete stays so. Between two Writes there is none, only the end.
    let results: Vec<_> = (0..16).map(|_| play.stage.ask("result")).collect();
    let done = results.iter().take_while(|result| *result == SUCCESS).count();
    assert!(done < 16, "{results:?}");
    if results[done] == status(STATUS_CANCELLED) {
        play.stage.expect("event", REFUSED_BY_PEER);
    } else {
        assert_eq!(results[done], status(STATUS_REMOTE_RESOURCES));
        play.stage.expect("events", "0");
    }
    assert!(results[done + 1..].iter().all(|result| *result == status(STATUS_CANCELLED)), "{results:?}");
    wire.drain();
    play.stage.order("disconnect");
    let disconnected = play.stage.ask("disconnected");
    assert!([SUCCESS.to_owned(), status(STATUS_CONNECTION_ABORTED)].contains(&disconnected), "{disconnected}");
}
