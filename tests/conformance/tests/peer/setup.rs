//! From TCP to the first frame: private data, refusals, revisions, flags, limits, who sends first.

use conformance::iwarp_peer::{Code, Enhanced, ReadRequest, Segment, Stage, StartFrame, StreamEnd, flag};
use ndkpi_sys::nt::{
    STATUS_CONNECTION_ABORTED, STATUS_CONNECTION_REFUSED, STATUS_INVALID_BUFFER_SIZE, STATUS_IO_TIMEOUT,
};

use super::consumer::{bytes_of, from_hex, to_hex};
use super::roles::{Play, READS, Role, SUCCESS, WRITE_OR_READ, status};

const BOTH: u8 = flag::CRC | flag::ENHANCED;
/// siw's own flag, which cards and siw mirror.
const LARGE_FRAMES: u8 = 0x08;

fn usual_reply() -> StartFrame {
    StartFrame::reply(Enhanced::with_ready(READS, READS, Enhanced::WRITE), &[])
}

fn usual_request() -> StartFrame {
    StartFrame::request(Enhanced::with_ready(READS, READS, WRITE_OR_READ), &[])
}

/// Private data of each length goes both ways as it is; one byte more than every peer takes is refused by the call.
pub fn private_data_is_carried_whole(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for length in [0, 1, 8, 56, 148, 248] {
        let data = bytes_of(length);
        let (mut wire, request) = play.request_with(READS, &data);
        let offered = Enhanced::with_ready(READS, READS, WRITE_OR_READ);
        assert_eq!(request, StartFrame { flags: BOTH, ..StartFrame::request(offered, &data) });
        wire.send_start(&StartFrame { private_data: data.clone(), ..usual_reply() });
        play.stage.expect("connected", &format!("00000000 16 16 {}", to_hex(&data)));
        play.stage.expect("complete", SUCCESS);
        play.part(&mut wire);

        let mut wire = play.reach();
        wire.send_start(&StartFrame { private_data: data.clone(), ..usual_request() });
        let (arrived, reply) = play.accept(&mut wire, READS, &data);
        assert_eq!(arrived, format!("16 16 {}", to_hex(&data)));
        assert_eq!(reply, StartFrame { private_data: data, ..usual_reply() });
        wire.send_segment(&Segment::ready_write());
        play.stage.expect("accepted", SUCCESS);
        play.part(&mut wire);
    }
    play.stage.order("new");
    play.stage.order(&format!("connect 9 1 1 {}", to_hex(&bytes_of(249))));
    play.stage.expect("connected", &status(STATUS_INVALID_BUFFER_SIZE));
}

/// The most that a frame may carry behind its header comes from a peer that is no softndk: the consumer gets what any adapter of softndk
/// could send, whatever its own could.
pub fn private_data_beyond_all_limits_is_cut(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let data = bytes_of(508);
    let mut wire = play.reach();
    wire.send_start(&StartFrame { private_data: data.clone(), ..usual_request() });
    let (arrived, _) = play.accept(&mut wire, READS, &[]);
    assert_eq!(arrived, format!("16 16 {}", to_hex(&data[..256])));
    wire.send_segment(&Segment::ready_write());
    play.stage.expect("accepted", SUCCESS);
    let mut wire = play.reach();
    wire.send_start(&StartFrame { private_data: bytes_of(509), ..usual_request() });
    wire.expect_end(StreamEnd::Finished);
}

/// A rejecting Reply brings its private data, with and without enhanced data; siw sets the flag and sends no byte for it.
pub fn rejection_by_the_peer_brings_its_data(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let limits = Some(Enhanced::limits(0, 0));
    let no_data = format!("{} ", status(STATUS_CONNECTION_REFUSED));
    for (flags, enhanced, data) in
        [(BOTH, limits, "a1b2c3"), (BOTH, limits, "-"), (flag::CRC, None, "a1b2"), (BOTH, None, "-")]
    {
        let (mut wire, _) = play.request();
        let private_data = from_hex(data);
        wire.send_start(&StartFrame { flags: flags | flag::REJECT, enhanced, private_data, ..usual_reply() });
        wire.finish();
        let connected = play.stage.ask("connected");
        assert!(connected.starts_with(&no_data) && connected.ends_with(&format!(" {data}")), "{connected}");
    }
}

/// A rejection by the consumer is a Reply and an end.
pub fn rejection_by_the_consumer_is_a_reply(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for (request, revision, enhanced) in
        [(usual_request(), 2, Some(Enhanced::limits(0, 0))), (StartFrame::of_revision_1(false, &[]), 1, None)]
    {
        let mut wire = play.reach();
        wire.send_start(&request);
        play.stage.ask("arrived");
        play.stage.expect("reject a1b2", SUCCESS);
        let reply = wire.receive_start();
        assert_eq!(reply.flags & flag::REJECT, flag::REJECT);
        assert_eq!((reply.revision, reply.enhanced, &*reply.private_data), (revision, enhanced, &[0xA1, 0xB2][..]));
        wire.expect_end(StreamEnd::Finished);
    }
}

/// A program that connects and says nothing is cut off; the listener goes on.
pub fn silent_client_is_cut_off(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let mut wires = [play.reach(), play.reach()];
    wires[1].send(&usual_request().to_bytes()[..19]);
    for wire in &mut wires {
        wire.expect_end(StreamEnd::Reset);
    }
    play.open(Role::Responder);
}

/// A responder that says nothing, or not enough: the Connect times out, and the next one succeeds.
pub fn silent_responder_times_out(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for sent in [0, 15, 20, 23] {
        let (mut wire, _) = play.request();
        wire.send(&usual_reply().to_bytes()[..sent]);
        play.stage.expect("connected", &status(STATUS_IO_TIMEOUT));
        wire.expect_end(StreamEnd::Reset);
    }
    let (mut wire, _) = play.request_again(READS, &[]);
    wire.send_start(&usual_reply());
    play.stage.expect("connected", "00000000 16 16 -");
}

/// Frames come byte by byte, in both roles.
pub fn frames_come_byte_by_byte(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let (mut wire, _) = play.request();
    wire.send_singly(&StartFrame { private_data: vec![7; 9], ..usual_reply() }.to_bytes());
    play.stage.expect("connected", "00000000 16 16 070707070707070707");
    play.stage.expect("complete", SUCCESS);
    play.receive(5);
    let frame = wire.frame(&Segment::send(1, b"singl"));
    wire.send_singly(&frame);
    play.stage.expect("received", "00000000 0 73696e676c");

    let mut wire = play.reach();
    wire.send_singly(&usual_request().to_bytes());
    play.accept(&mut wire, READS, &[]);
    let frame = wire.frame(&Segment::ready_write());
    wire.send_singly(&frame);
    play.stage.expect("accepted", SUCCESS);
}

/// A responder that sends behind its Reply at once, as siw does: in one segment with it, before and after CompleteConnect.
pub fn frame_right_behind_the_reply_waits_for_the_consumer(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for is_together in [true, false] {
        let (mut wire, _) = play.request();
        play.receive(5);
        let (reply, send) = (usual_reply().to_bytes(), wire.frame(&Segment::send(1, b"first")));
        if is_together {
            wire.send(&[reply, send].concat());
        } else {
            wire.send(&reply);
            wire.send(&send);
        }
        play.stage.expect("connected", "00000000 16 16 -");
        play.stage.expect("complete", SUCCESS);
        assert_eq!(wire.receive_any_segment(), Segment::ready_write());
        play.stage.expect("received", "00000000 0 6669727374");
        play.part(&mut wire);
    }
}

/// Nothing may come behind a Request before its Reply.
pub fn frame_right_behind_the_request_ends_the_connection(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let mut wire = play.reach();
    let early = wire.frame(&Segment::ready_write());
    wire.send(&[usual_request().to_bytes(), early].concat());
    wire.expect_end(StreamEnd::Finished);
}

/// An initiator of the client-server model, as siw: the Accept is complete with the Reply, and what the consumer sends then waits
/// for the initiator's first frame.
pub fn initiator_without_ready_frame_sends_first(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let old = StartFrame::of_revision_1(false, &[]);
    let plain = StartFrame { flags: BOTH, enhanced: Some(Enhanced::limits(READS, READS)), ..usual_request() };
    let bare = StartFrame { revision: 2, ..old.clone() };
    for request in [plain, old, bare] {
        let mut wire = play.reach();
        wire.send_start(&request);
        let (_, reply) = play.accept(&mut wire, READS, &[]);
        let enhanced = request.enhanced.map(|_| Enhanced::limits(READS, READS));
        assert_eq!(reply, StartFrame { is_reply: true, enhanced, ..request });
        play.stage.expect("accepted", SUCCESS);
        play.stage.order("send 3");
        play.stage.expect("events", "0");
        assert!(wire.is_silent(), "a responder sends nothing before the initiator's first frame");
        play.receive(5);
        wire.send_segment(&Segment::send(1, b"hello"));
        play.stage.expect("received", "00000000 0 68656c6c6f");
        assert_eq!(wire.receive_segment(), Segment::send(1, &bytes_of(3)));
        play.stage.expect("result", SUCCESS);
        play.part(&mut wire);
    }
}

/// As responder: which ready-to-receive frame is chosen of those that are offered, and what may come instead.
pub fn responder_takes_each_ready_frame(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let (write, read) = (Segment::ready_write(), Segment::ready_read());
    let (by_write, by_read) = (Enhanced::WRITE, Enhanced::READ);
    for (offered, chosen, first) in [
        (WRITE_OR_READ, by_write, &write),
        (by_write, by_write, &write),
        (by_read, by_read, &read),
        // As siw: what is taken if nothing is offered.
        (0, by_write, &write),
        // It need not look at which one has come.
        (by_read, by_read, &write),
        (by_write, by_write, &read),
    ] {
        let mut wire = play.reach();
        let offer = Enhanced { inbound: Enhanced::PEER_TO_PEER | READS, outbound: offered | READS };
        wire.send_start(&StartFrame::request(offer, &[]));
        let (_, reply) = play.accept(&mut wire, READS, &[]);
        assert_eq!(reply.enhanced, Some(Enhanced::with_ready(READS, READS, chosen)), "{offered:#06x}");
        wire.send_segment(first);
        play.stage.expect("accepted", SUCCESS);
        if *first == read {
            assert_eq!(wire.receive_segment(), Segment::read_response(1, 0, &[]));
        }
        play.stage.order("send 4");
        assert_eq!(wire.receive_segment(), Segment::send(1, &bytes_of(4)));
        play.stage.expect("result", SUCCESS);
        play.part(&mut wire);
    }
}

/// As initiator: the frame that the Reply chooses is sent; without one the consumer's first request is the first frame.
pub fn initiator_sends_the_ready_frame_that_is_chosen(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let choices = [
        (Enhanced::with_ready(READS, READS, Enhanced::WRITE), Some(Segment::ready_write()), 1),
        (Enhanced::with_ready(READS, READS, Enhanced::READ), Some(Segment::ready_read()), 2),
        (Enhanced::limits(READS, READS), None, 1),
    ];
    for (chosen, first, number) in choices {
        let (mut wire, _) = play.request();
        wire.send_start(&StartFrame::reply(chosen, &[]));
        play.stage.expect("connected", "00000000 16 16 -");
        play.stage.expect("complete", SUCCESS);
        if let Some(first) = first {
            assert_eq!(wire.receive_any_segment(), first);
            if first == Segment::ready_read() {
                wire.send_segment(&Segment::read_response(1, 0, &[]));
            }
        }
        play.stage.order("read 8 77 1000");
        let segment = wire.receive_segment();
        let request = ReadRequest::parse(&segment);
        assert_eq!(segment.number(), Some(number));
        assert_eq!((request.length, request.source_stag, request.source_offset), (8, 77, 1000));
        wire.send_segment(&Segment::read_response(request.sink_stag, request.sink_offset, b"contents"));
        play.stage.expect("result", SUCCESS);
        play.stage.expect("bytes 8", &to_hex(b"contents"));
        play.part(&mut wire);
    }
}

/// A Reply that does not fit its Request: why the stream ends, and what the Connect says.
pub fn reply_that_does_not_fit_ends_the_attempt(stage: &mut Stage<'_>) {
    let start = Code(2, 0, 4);
    let usual = usual_reply().to_bytes();
    let changed = |at: usize, byte: u8| {
        let mut bytes = usual.clone();
        bytes[at] = byte;
        bytes
    };
    let with = |enhanced| StartFrame::reply(enhanced, &[]).to_bytes();
    let short =
        |length: usize| StartFrame { enhanced: None, private_data: vec![0; length], ..usual_reply() }.to_bytes();
    let rows = [
        ("a key that is none", changed(5, b'X'), start),
        ("a Request", usual_request().to_bytes(), start),
        ("revision 3", changed(17, 3), start),
        ("revision 0", changed(17, 0), start),
        ("markers", changed(16, BOTH | flag::MARKERS), start),
        ("no enhanced data", StartFrame { flags: flag::CRC, enhanced: None, ..usual_reply() }.to_bytes(), start),
        ("enhanced data of 0 bytes", short(0), start),
        ("enhanced data of 1 byte", short(1), start),
        ("enhanced data of 3 bytes", short(3), start),
        ("more than 512 bytes", changed(18, 2), start),
        ("none that was offered", with(Enhanced::with_ready(1 | Enhanced::EMPTY_FRAME, 1, 0)), Code(2, 0, 7)),
        ("more Reads than it may have", with(Enhanced::with_ready(1, READS + 1, Enhanced::WRITE)), Code(2, 0, 6)),
    ];
    let mut play = Play::new(stage);
    for (what, reply, code) in rows {
        let (mut wire, _) = play.request();
        wire.send(&reply);
        let connected = play.stage.ask("connected");
        assert_eq!(connected, status(STATUS_CONNECTION_ABORTED), "{what}");
        let terminate = wire.expect_terminate(code);
        assert!(terminate.echo.is_empty(), "{what}");
        wire.finish();
    }
}

/// What a Reply may have in it that means nothing.
pub fn reply_with_odd_flags_is_taken(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for flags in [flag::ENHANCED, BOTH | LARGE_FRAMES, BOTH | 0x07] {
        let (mut wire, _) = play.request();
        wire.send_start(&StartFrame { flags, ..usual_reply() });
        play.stage.expect("connected", "00000000 16 16 -");
        play.stage.expect("complete", SUCCESS);
        // Either side's wish for a CRC is enough.
        assert_eq!(wire.receive_any_segment(), Segment::ready_write());
        play.part(&mut wire);
    }
}

/// A Request that is none: an end and no Reply. One for markers: a Reply that rejects. The consumer sees neither.
pub fn request_that_is_none_is_not_answered(stage: &mut Stage<'_>) {
    let usual = usual_request().to_bytes();
    let changed = |at: usize, byte: u8| {
        let mut bytes = usual.clone();
        bytes[at] = byte;
        bytes
    };
    let short =
        |length: usize| StartFrame { enhanced: None, private_data: vec![0; length], ..usual_request() }.to_bytes();
    let rows = [
        changed(0, b'X'),
        usual_reply().to_bytes(),
        changed(17, 3),
        changed(17, 0),
        short(0),
        short(1),
        short(2),
        short(3),
        changed(18, 2),
    ];
    let mut play = Play::new(stage);
    for bytes in rows {
        let mut wire = play.reach();
        wire.send(&bytes);
        wire.expect_end(StreamEnd::Finished);
        wire.finish();
    }
    let mut wire = play.reach();
    wire.send(&changed(16, BOTH | flag::MARKERS));
    let reply = wire.receive_start();
    assert_eq!((reply.flags, reply.revision), (BOTH | flag::REJECT, 2));
    wire.expect_end(StreamEnd::Finished);
    wire.finish();
    // The next to arrive is the one after these.
    play.open(Role::Responder);
}

/// Flags of a Request that mean nothing, and one without CRC: the Reply asks for one.
pub fn request_with_odd_flags_is_answered(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for flags in [flag::ENHANCED, BOTH | LARGE_FRAMES, BOTH | flag::REJECT, BOTH | 0x07] {
        let mut wire = play.reach();
        wire.send_start(&StartFrame { flags, ..usual_request() });
        let (_, reply) = play.accept(&mut wire, READS, &[]);
        assert_eq!(reply.flags, BOTH, "{flags:#04x}");
        wire.send_segment(&Segment::ready_write());
        play.stage.expect("accepted", SUCCESS);
        play.part(&mut wire);
    }
}

/// Limits of a Request: what the consumer sees of them (inbound, outbound), and the Reply. The adapter has 16 and 128.
pub fn limits_of_a_request_are_met(stage: &mut Stage<'_>) {
    let unknown = Enhanced::LIMIT;
    let rows = [
        ((0, 0), "0 0", 128, (0, 0)),
        ((1, 1), "1 1", 128, (1, 1)),
        ((5, 3), "3 5", 128, (3, 5)),
        ((16, 128), "16 16", 128, (16, 16)),
        ((200, 7), "7 128", 128, (7, 128)),
        ((9, 7), "7 9", 4, (4, 4)),
        // Never answered as it came, which siw does not survive.
        ((unknown, unknown), "16 128", 128, (16, 128)),
    ];
    let mut play = Play::new(stage);
    for ((inbound, outbound), seen, accepts, answered) in rows {
        let mut wire = play.reach();
        wire.send_start(&StartFrame::request(Enhanced::with_ready(inbound, outbound, WRITE_OR_READ), &[]));
        let (arrived, reply) = play.accept(&mut wire, accepts, &[]);
        assert_eq!(arrived, format!("{seen} -"));
        assert_eq!(reply.enhanced, Some(Enhanced::with_ready(answered.0, answered.1, Enhanced::WRITE)), "{seen}");
        wire.send_segment(&Segment::ready_write());
        play.stage.expect("accepted", SUCCESS);
        play.part(&mut wire);
    }
}

/// Limits of the consumer, of a Reply to it, and what holds then.
pub fn limits_of_a_reply_are_met(stage: &mut Stage<'_>) {
    let unknown = Enhanced::LIMIT;
    let rows = [
        (0, (1, 1), (0, 0), "0 0"),
        (16, (16, 16), (0, 0), "0 0"),
        (16, (16, 16), (1, 1), "1 1"),
        (16, (16, 16), (5, 3), "3 5"),
        (16, (16, 16), (128, 16), "16 16"),
        (16, (16, 16), (unknown, unknown), "16 16"),
        (128, (16, 128), (100, 9), "9 100"),
    ];
    let mut play = Play::new(stage);
    for (wanted, requested, replied, seen) in rows {
        let (mut wire, request) = play.request_with(wanted, &[]);
        let offered = Enhanced::with_ready(requested.0, requested.1, WRITE_OR_READ);
        assert_eq!(request.enhanced, Some(offered), "{wanted}");
        wire.send_start(&StartFrame::reply(Enhanced::with_ready(replied.0, replied.1, Enhanced::WRITE), &[]));
        play.stage.expect("connected", &format!("00000000 {seen} -"));
        play.stage.expect("complete", SUCCESS);
        play.part(&mut wire);
    }
}

/// So many Reads are outstanding, and no more.
pub fn reads_wait_for_the_limit(stage: &mut Stage<'_>) {
    const LIMIT: u16 = 3;
    let mut play = Play::new(stage);
    let (mut wire, _) = play.request();
    wire.send_start(&StartFrame::reply(Enhanced::with_ready(LIMIT, LIMIT, Enhanced::WRITE), &[]));
    play.stage.expect("connected", "00000000 3 3 -");
    play.stage.expect("complete", SUCCESS);
    (0..10).for_each(|_| play.stage.order("read 4 77 1000"));
    let mut open = std::collections::VecDeque::new();
    for number in 1..=10 {
        let segment = wire.receive_segment();
        assert_eq!(segment.number(), Some(number));
        open.push_back(ReadRequest::parse(&segment));
        if open.len() == usize::from(LIMIT) {
            play.stage.expect("events", "0");
            assert!(wire.is_silent(), "more Reads than the peer serves");
            let oldest = open.pop_front().expect("a Read");
            wire.send_segment(&Segment::read_response(oldest.sink_stag, 0, b"four"));
        }
    }
    for oldest in open {
        wire.send_segment(&Segment::read_response(oldest.sink_stag, 0, b"four"));
    }
    (0..10).for_each(|_| play.stage.expect("result", SUCCESS));
    play.part(&mut wire);
}
