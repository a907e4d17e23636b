//! Ends of TCP in each state: a FIN, a reset, none at all; and what the machine sends when its consumer ends.

use conformance::iwarp_peer::{Enhanced, PeerConnection, ReadRequest, Segment, Stage, StartFrame, StreamEnd, frame};
use ndkpi_sys::nt::{STATUS_CANCELLED, STATUS_CONNECTION_ABORTED, STATUS_CONNECTION_REFUSED, STATUS_IO_TIMEOUT};

use super::consumer::bytes_of;
use super::roles::{Play, READS, ROLES, Role, SUCCESS, WRITE_OR_READ, status};

const DISCONNECTED: &str = "1";
const CLOSED: &str = "2";
const STREAM_LOST: &str = "10";

/// How the peer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Fin,
    Reset,
}

const WAYS: [Way; 2] = [Way::Fin, Way::Reset];

/// The peer ends; what it has after a FIN.
fn leave(wire: PeerConnection, way: Way) -> Option<PeerConnection> {
    match way {
        Way::Reset => {
            wire.reset();
            None
        }
        Way::Fin => {
            wire.finish();
            Some(wire)
        }
    }
}

fn usual_reply() -> StartFrame {
    StartFrame::reply(Enhanced::with_ready(READS, READS, Enhanced::WRITE), &[])
}

fn usual_request() -> StartFrame {
    StartFrame::request(Enhanced::with_ready(READS, READS, WRITE_OR_READ), &[])
}

/// A responder that ends before its Reply is there refuses; the queue pair connects again.
pub fn end_before_the_reply_refuses(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let mut is_first = true;
    for way in WAYS {
        for sent in [0, 10, 22] {
            let (mut wire, _) = if is_first { play.request() } else { play.request_again(READS, &[]) };
            is_first = false;
            wire.send(&usual_reply().to_bytes()[..sent]);
            let _wire = leave(wire, way);
            let connected = play.stage.ask("connected");
            assert_eq!(connected, status(STATUS_CONNECTION_REFUSED), "{way:?} behind {sent} bytes");
        }
    }
    let (mut wire, _) = play.request_again(READS, &[]);
    wire.send_start(&usual_reply());
    play.stage.expect("connected", "00000000 16 16 -");
}

/// An initiator that ends before its Request is whole is nothing to the consumer.
pub fn end_before_the_request_is_nothing(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for way in WAYS {
        for sent in [0, 10, 22] {
            let mut wire = play.reach();
            wire.send(&usual_request().to_bytes()[..sent]);
            if let Some(mut wire) = leave(wire, way) {
                wire.drain();
            }
        }
    }
    play.open(Role::Responder);
}

/// An initiator that ends before the consumer has answered: the Accept fails, and so does a rejection.
pub fn end_before_the_answer_fails_it(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for way in WAYS {
        let mut wire = play.reach();
        wire.send_start(&usual_request());
        play.stage.ask("arrived");
        let wire = leave(wire, way);
        // The end is known when another connection has been made that came after it.
        drop(wire);
        play.stage.order("accept 16 16 -");
        play.stage.expect("accepted", &status(STATUS_CONNECTION_ABORTED));
    }
}

/// A responder that ends between its Reply and the first frame: CompleteConnect fails, or the connection is over at once.
pub fn end_between_reply_and_first_frame_of_the_initiator(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for way in WAYS {
        let (mut wire, _) = play.request();
        wire.send_start(&usual_reply());
        play.stage.expect("connected", "00000000 16 16 -");
        let mut wire = leave(wire, way);
        let completed = play.stage.ask("complete");
        if completed == SUCCESS {
            // The end had not been seen, and is that of a connection.
            let reason = play.stage.ask("event");
            assert!(reason == CLOSED || way == Way::Fin && reason == DISCONNECTED, "{reason} after {way:?}");
            continue;
        }
        assert_eq!(completed, status(STATUS_CONNECTION_ABORTED));
        if let Some(wire) = &mut wire {
            // Never a reset, which siw as responder does not survive.
            wire.expect_end(StreamEnd::Finished);
        }
    }
}

/// An initiator that ends instead of sending its first frame.
pub fn end_instead_of_the_first_frame_fails_the_accept(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for way in WAYS {
        let mut wire = play.reach();
        wire.send_start(&usual_request());
        play.accept(&mut wire, READS, &[]);
        let wire = leave(wire, way);
        play.stage.expect("accepted", &status(STATUS_CONNECTION_ABORTED));
        if let Some(mut wire) = wire {
            wire.expect_end(StreamEnd::Finished);
        }
    }
}

/// A FIN on an open stream is the notice of a disconnect: the consumer may still send, and answers with its own.
pub fn fin_on_an_idle_stream_is_a_notice(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for role in ROLES {
        let mut wire = play.open(role);
        play.receive(4);
        wire.finish();
        play.stage.expect("event", DISCONNECTED);
        play.stage.order("send 6");
        assert_eq!(wire.receive_segment(), Segment::send(1, &bytes_of(6)));
        play.stage.expect("result", SUCCESS);
        play.stage.order("disconnect");
        wire.expect_end(StreamEnd::Finished);
        play.stage.expect("disconnected", SUCCESS);
        play.stage.expect("received", &format!("{} 0 -", status(STATUS_CANCELLED)));
    }
}

/// A reset on an open stream ends the connection; receives stay until the consumer disconnects.
pub fn reset_on_an_idle_stream_is_an_event(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for role in ROLES {
        let wire = play.open(role);
        play.receive(4);
        wire.reset();
        play.stage.expect("event", CLOSED);
        play.stage.order("send 6");
        play.stage.expect("result", &status(STATUS_CANCELLED));
        play.stage.order("disconnect");
        play.stage.expect("disconnected", SUCCESS);
        play.stage.expect("received", &format!("{} 0 -", status(STATUS_CANCELLED)));
    }
}

/// More Sends have come than are held without a receive: the end behind them is an event all the same.
pub fn end_behind_held_sends_is_an_event(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for role in ROLES {
        for way in WAYS {
            let mut wire = play.open(role);
            (1..=70).for_each(|number| wire.send_segment(&Segment::send(number, b"")));
            let wire = leave(wire, way);
            play.stage.expect("event", if way == Way::Fin { DISCONNECTED } else { CLOSED });
            play.stage.order("disconnect");
            play.stage.expect("disconnected", SUCCESS);
            if let Some(mut wire) = wire {
                wire.drain();
            }
        }
    }
}

/// Reads are outstanding when the peer ends.
pub fn end_with_reads_outstanding_cancels_them(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for role in ROLES {
        for way in WAYS {
            let mut wire = play.open(role);
            (0..3).for_each(|_| play.stage.order("read 8 5 0"));
            let oldest = ReadRequest::parse(&wire.receive_segment());
            wire.receive_segment();
            wire.send_segment(&Segment::read_response(oldest.sink_stag, 0, b"complete"));
            play.stage.expect("result", SUCCESS);
            let mut wire = leave(wire, way);
            play.stage.expect("event", if way == Way::Fin { DISCONNECTED } else { CLOSED });
            play.stage.order("disconnect");
            (0..2).for_each(|_| play.stage.expect("result", &status(STATUS_CANCELLED)));
            play.stage.expect("disconnected", SUCCESS);
            if let Some(wire) = &mut wire {
                wire.drain();
            }
        }
    }
}

/// An end inside a frame, or inside a message.
pub fn end_inside_a_frame_breaks_the_stream(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for way in WAYS {
        let mut wire = play.open(Role::Responder);
        play.receive(64);
        let whole = wire.frame(&Segment::send(1, &bytes_of(40)));
        wire.send(&whole[..30]);
        let mut wire = leave(wire, way);
        play.stage.expect("event", if way == Way::Fin { STREAM_LOST } else { CLOSED });
        play.stage.order("disconnect");
        play.stage.expect("disconnected", SUCCESS);
        play.stage.expect("received", &format!("{} 0 -", status(STATUS_CANCELLED)));
        if let Some(wire) = &mut wire {
            wire.drain();
        }
    }
}

/// A disconnect by the consumer: a FIN behind what was posted; complete with the peer's own, or its reset.
pub fn disconnect_is_a_fin_behind_what_was_posted(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for role in ROLES {
        for way in WAYS {
            let mut wire = play.open(role);
            play.stage.order("send 5");
            play.stage.order("disconnect");
            assert_eq!(wire.receive_segment(), Segment::send(1, &bytes_of(5)));
            play.stage.expect("result", SUCCESS);
            wire.expect_end(StreamEnd::Finished);
            leave(wire, way);
            let disconnected = play.stage.ask("disconnected");
            let expected = if way == Way::Fin { SUCCESS.to_owned() } else { status(STATUS_CONNECTION_ABORTED) };
            assert_eq!(disconnected, expected, "{role:?} {way:?}");
            play.stage.expect("events", "0");
        }
    }
}

/// Both sides disconnect at once.
pub fn disconnects_that_cross_complete(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for role in ROLES {
        let mut wire = play.open(role);
        wire.finish();
        play.stage.order("disconnect");
        wire.expect_end(StreamEnd::Finished);
        play.stage.expect("disconnected", SUCCESS);
    }
}

/// A peer that does not answer a disconnect: its time is bounded.
pub fn disconnect_without_an_answer_times_out(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let mut wire = play.open(Role::Responder);
    play.stage.order("disconnect");
    play.stage.expect("disconnected", &status(STATUS_IO_TIMEOUT));
    assert!(matches!(wire.drain(), StreamEnd::Finished | StreamEnd::Reset));
}

/// A close of an open connection is a reset, once the peer has sent something.
pub fn close_of_an_open_connection_is_a_reset(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for role in ROLES {
        let mut wire = play.open(role);
        play.receive(2);
        wire.send_segment(&Segment::send(1, b"hi"));
        play.stage.expect("received", "00000000 0 6869");
        play.stage.expect("close", "closed");
        wire.expect_end(StreamEnd::Reset);
    }
}

/// An initiator that has received nothing behind the Reply ends with a FIN, whatever its consumer does: a reset there is a fault in
/// the kernel of siw. What comes afterwards is answered by a reset, because the peer is established then.
pub fn end_before_anything_has_come_is_a_fin(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    for order in ["close", "reject a1b2"] {
        let (mut wire, _) = play.request();
        wire.send_start(&usual_reply());
        play.stage.expect("connected", "00000000 16 16 -");
        play.stage.ask(order);
        wire.expect_end(StreamEnd::Finished);
        wire.finish();
    }
    for sends in [false, true] {
        let mut wire = play.open(Role::Initiator);
        play.stage.expect("close", "closed");
        wire.expect_end(StreamEnd::Finished);
        if sends {
            wire.send_until_reset(&Segment::ready_write());
        }
    }
    // So does a responder that gives up behind its Reply.
    let mut wire = play.reach();
    wire.send_start(&usual_request());
    play.accept(&mut wire, READS, &[]);
    play.stage.expect("close", "closed");
    play.stage.expect("accepted", &status(STATUS_CONNECTION_ABORTED));
    wire.expect_end(StreamEnd::Finished);
}

/// An Accept whose initiator sends no frame times out, with a FIN.
pub fn accept_without_a_first_frame_times_out(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let mut wire = play.reach();
    wire.send_start(&usual_request());
    play.accept(&mut wire, READS, &[]);
    play.stage.expect("accepted", &status(STATUS_IO_TIMEOUT));
    wire.expect_end(StreamEnd::Finished);
}

/// A responder that looks at the first frame only when another segment has come, as siw may: the empty Write behind it has it look.
/// No more than two come, and none when the peer has sent something.
pub fn first_frame_that_is_not_seen_is_followed_by_empty_writes(stage: &mut Stage<'_>) {
    let mut play = Play::new(stage);
    let mut wire = play.open(Role::Initiator);
    play.stage.order("send 4");
    assert_eq!(wire.receive_any_segment(), Segment::send(1, &bytes_of(4)));
    assert_eq!(wire.receive_any_segment(), Segment::ready_write());
    assert_eq!(wire.receive_any_segment(), Segment::ready_write());
    // Legal at any time, at both ends.
    play.receive(2);
    let empty = frame::build(&Segment::ready_write().payload(), true);
    wire.send(&empty);
    wire.send_segment(&Segment::send(1, b"ok"));
    wire.send(&empty);
    play.stage.expect("received", "00000000 0 6f6b");
    play.stage.expect("result", SUCCESS);
    play.stage.order("send 4");
    assert_eq!(wire.receive_any_segment(), Segment::send(2, &bytes_of(4)));
    play.stage.expect("result", SUCCESS);
    play.part(&mut wire);
}
