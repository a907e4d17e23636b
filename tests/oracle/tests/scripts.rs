//! Sequences are the same from the same seed, are unchanged by the text form, and are shrunk to the lines that differ.

use ndkctl::script::{Line, decode, encode, parse};
use oracle::compare::run;
use oracle::engine::Engine;
use oracle::generate::{Features, sequence};
use oracle::model::{Column, Expected, Model, with_expectation};
use oracle::shrink::shortest;
use softndk_ioctl::ScriptCode;

#[test]
fn a_seed_always_makes_the_same_sequence() {
    let make = |seed| sequence(seed, Column::Ndk, 200, Features::ALL);
    assert_eq!(make(7), make(7));
    assert_ne!(make(7), make(8));
}

#[test]
fn a_sequence_survives_text_and_bytes_and_still_holds() {
    for seed in 0..20 {
        let mut model = Model::new(Column::Ndk);
        let mut lines = sequence(seed, Column::Ndk, 200, Features::ALL);
        for line in &mut lines {
            let expected = model.apply(line);
            *line = with_expectation(line, &expected);
        }
        let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let read = parse(&text.join("\n")).unwrap();
        let again = decode(&encode(&read)).unwrap();
        assert_eq!(read, again);
        let rewritten: Vec<String> = again.iter().map(ToString::to_string).collect();
        assert_eq!(rewritten, text);
        run(&again, Column::Ndk, &mut Engine::new(Column::Ndk)).unwrap();
    }
}

/// The rest of a sequence is a sequence after any line is removed: lines without an object are skipped.
#[test]
fn every_part_of_a_sequence_is_a_sequence() {
    let lines = sequence(3, Column::Ndk, 120, Features::ALL);
    for from in 0..lines.len() {
        run(&lines[from..], Column::Ndk, &mut Engine::new(Column::Ndk)).unwrap();
    }
}

/// The token is taken away while the message with it waits for a receive: when it fails is the provider's choice, so the model
/// does not post it.
#[test]
fn a_token_that_a_waiting_request_takes_away_is_not_sent() {
    let lines = parse(
        "open A0 adapter=0 -> SUCCESS
        pd P0 adapter=A0 -> SUCCESS
        cq C0 adapter=A0 depth=256 -> SUCCESS
        qp Q0 domain=P0 receive=C0 initiator=C0 receive-depth=1 initiator-depth=1 receive-elements=1 initiator-elements=1 inline=155 -> SUCCESS
        open A1 adapter=1 -> SUCCESS
        pd P1 adapter=A1 -> SUCCESS
        cq C1 adapter=A1 depth=256 -> SUCCESS
        buffer B1 adapter=A1 length=8192 seed=1 -> SUCCESS
        mr-fast M1 domain=P1 -> SUCCESS
        initialize M1 pages=2 remote=1 -> SUCCESS
        qp Q1 domain=P1 receive=C1 initiator=C1 receive-depth=7 initiator-depth=4 receive-elements=3 initiator-elements=4 inline=184 -> SUCCESS
        listener L0 adapter=A0 -> SUCCESS
        listen L0 port=1002 -> SUCCESS
        connector K0 adapter=A1 -> SUCCESS
        connect K0 qp=Q1 to=L0 host=none port=0 source=0 inbound=4 outbound=4 data=0
        arrive K1 at=L0 -> SUCCESS
        accept K1 qp=Q0 inbound=4 outbound=4 data=0
        complete K0
        fast-register Q1 context=3 flags=remote-read|local-write region=M1 buffer=B1 page=1 pages=1 first-byte=0 length=3823 base=0 -> SUCCESS
        send Q1 context=4 flags=0x0 -> SUCCESS
        invalidate Q1 context=5 flags=0x0 target=M1 -> SUCCESS
        send-invalidate Q0 context=6 flags=0x0 token=M1+0 -> SUCCESS
        receive Q0 context=7 -> SUCCESS
        poll C0 -> [Q0 7 receive SUCCESS 0]",
    )
    .unwrap();
    let mut model = Model::new(Column::Ndk);
    let skipped: Vec<_> = lines.iter().filter(|line| model.apply(line) == Expected::Skip).collect();
    assert!(matches!(skipped[..], [line] if line.step.code == ScriptCode::SendAndInvalidate as u16), "{skipped:?}");
    run(&lines, Column::Ndk, &mut Engine::new(Column::Ndk)).unwrap();
}

/// Q1 and Q3 are of one protection domain, where M1 is fast-registered; Q2 and Q4 are their peers, with M2.
const TWO_CONNECTIONS: &str = "
    open A0 adapter=0 -> SUCCESS
    pd P0 adapter=A0 -> SUCCESS
    cq C0 adapter=A0 depth=256 -> SUCCESS
    buffer B0 adapter=A0 length=8192 seed=1 -> SUCCESS
    mr-fast M1 domain=P0 -> SUCCESS
    initialize M1 pages=1 remote=1 -> SUCCESS
    qp Q1 domain=P0 receive=C0 initiator=C0 receive-depth=8 initiator-depth=8 receive-elements=2 initiator-elements=2 inline=64 -> SUCCESS
    qp Q3 domain=P0 receive=C0 initiator=C0 receive-depth=8 initiator-depth=8 receive-elements=2 initiator-elements=2 inline=64 -> SUCCESS
    open A1 adapter=1 -> SUCCESS
    pd P1 adapter=A1 -> SUCCESS
    cq C1 adapter=A1 depth=256 -> SUCCESS
    buffer B1 adapter=A1 length=4096 seed=2 -> SUCCESS
    mr M2 domain=P1 -> SUCCESS
    register M2 buffer=B1 offset=0 length=4096 rights=remote-read -> SUCCESS
    qp Q2 domain=P1 receive=C1 initiator=C1 receive-depth=8 initiator-depth=8 receive-elements=2 initiator-elements=2 inline=64 -> SUCCESS
    qp Q4 domain=P1 receive=C1 initiator=C1 receive-depth=8 initiator-depth=8 receive-elements=2 initiator-elements=2 inline=64 -> SUCCESS
    listener L0 adapter=A1 -> SUCCESS
    listen L0 port=1000 -> SUCCESS
    connector K1 adapter=A0 -> SUCCESS
    connect K1 qp=Q1 to=L0 host=none port=0 source=0 inbound=4 outbound=4 data=0
    arrive K2 at=L0 -> SUCCESS
    accept K2 qp=Q2 inbound=4 outbound=4 data=0
    complete K1
    connector K3 adapter=A0 -> SUCCESS
    connect K3 qp=Q3 to=L0 host=none port=0 source=0 inbound=4 outbound=4 data=0
    arrive K4 at=L0 -> SUCCESS
    accept K4 qp=Q4 inbound=4 outbound=4 data=0
    complete K3
    fast-register Q1 context=1 flags=local-write|remote-write region=M1 buffer=B0 page=0 pages=1 first-byte=0 length=4096 base=0 -> SUCCESS
";

/// A request that waits for a receive, or behind a message that does, takes away memory: when a message out of this memory that waits
/// too looks at it again is the provider's choice, so the model does not post it. One that goes at once is compared.
#[test]
#[cfg_attr(feature = "streams", ignore = "no Send across a stream waits for its receive")]
fn memory_that_a_waiting_request_takes_away_is_not_sent_by_a_message_that_waits() {
    let takes_away = [
        ("send-invalidate Q2 context=3 flags=0x0 token=M1+0", "receive Q1 context=9"),
        ("invalidate Q3 context=3 flags=0x0 target=M1", "receive Q4 context=9"),
        ("read Q3 context=3 flags=local-invalidate remote=M2+0 [M1+0:8]", "receive Q4 context=9"),
    ];
    for (request, lets_it_go) in takes_away {
        for goes_at_once in [false, true] {
            let first = if goes_at_once { "receive Q2 context=2 [B1+0:64] -> SUCCESS" } else { "" };
            let rest = format!(
                "{first}
                send Q3 context=2 flags=0x0 -> SUCCESS
                {request} -> SUCCESS
                send Q1 context=4 flags=0x0 [M1+0:64] -> SUCCESS
                {lets_it_go} -> SUCCESS
                poll C0 -> []"
            );
            let lines = parse(&format!("{TWO_CONNECTIONS}{rest}")).unwrap();
            let mut model = Model::new(Column::Ndk);
            let skipped: Vec<_> = lines.iter().filter(|line| model.apply(line) == Expected::Skip).collect();
            match skipped[..] {
                [] => assert!(goes_at_once, "{request}"),
                [line] => assert!(!goes_at_once && line.to_string().starts_with("send Q1"), "{line}"),
                _ => panic!("{skipped:?}"),
            }
            run(&lines, Column::Ndk, &mut Engine::new(Column::Ndk)).unwrap();
        }
    }
}

/// A window is unbound while the message that would invalidate it waits for a receive: when it fails is the provider's choice, so the
/// queue pair is not flushed before the message has ended. Also where both sides wait so, everything can be closed.
#[test]
#[cfg_attr(feature = "streams", ignore = "no Send across a stream waits for its receive")]
fn a_queue_pair_is_not_flushed_while_a_message_waits_that_invalidates_its_window() {
    for both in [false, true] {
        for end in ["flush Q1", "close Q1"] {
            let other = if both { "send-invalidate Q1 context=4 flags=0x0 token=W2+0 -> SUCCESS" } else { "" };
            let rest = format!(
                "mr M3 domain=P0 -> SUCCESS
                register M3 buffer=B0 offset=0 length=4096 rights=remote-read -> SUCCESS
                mw W1 domain=P0 -> SUCCESS
                bind Q1 context=2 flags=remote-read region=M3 window=W1 offset=0 length=64 -> SUCCESS
                mw W2 domain=P1 -> SUCCESS
                bind Q2 context=2 flags=remote-read region=M2 window=W2 offset=0 length=64 -> SUCCESS
                send-invalidate Q2 context=3 flags=0x0 token=W1+0 -> SUCCESS
                {other}
                {end}
                send Q1 context=5 flags=defer -> SUCCESS"
            );
            let lines = parse(&format!("{TWO_CONNECTIONS}{rest}")).unwrap();
            let mut model = Model::new(Column::Ndk);
            let skipped: Vec<_> = lines.iter().filter(|line| model.apply(line) == Expected::Skip).collect();
            assert!(matches!(skipped[..], [one, _] if one.to_string() == end), "{skipped:?}");
            let mut engine = Engine::new(Column::Ndk);
            run(&lines, Column::Ndk, &mut engine).unwrap();
            assert_eq!(engine.leftovers(), None);
        }
    }
}

/// A message overruns its completion queue and that of its receive: which end fails first is the provider's choice, so there is no
/// such message, and no receive for it.
#[test]
#[cfg_attr(feature = "streams", ignore = "no Send across a stream waits for its receive")]
fn a_message_does_not_overrun_queues_at_both_ends() {
    let begin = "
        open A0 adapter=0 -> SUCCESS
        pd P0 adapter=A0 -> SUCCESS
        cq C0 adapter=A0 depth=256 -> SUCCESS
        cq C1 adapter=A0 depth=1 -> SUCCESS
        qp Q0 domain=P0 receive=C0 initiator=C1 receive-depth=4 initiator-depth=4 receive-elements=1 initiator-elements=1 inline=0 -> SUCCESS
        open A1 adapter=1 -> SUCCESS
        pd P1 adapter=A1 -> SUCCESS
        cq C2 adapter=A1 depth=1 -> SUCCESS
        cq C3 adapter=A1 depth=256 -> SUCCESS
        qp Q1 domain=P1 receive=C2 initiator=C3 receive-depth=4 initiator-depth=4 receive-elements=1 initiator-elements=1 inline=0 -> SUCCESS
        listener L0 adapter=A1 -> SUCCESS
        listen L0 port=1000 -> SUCCESS
        connector K0 adapter=A0 -> SUCCESS
        connect K0 qp=Q0 to=L0 host=none port=0 source=0 inbound=4 outbound=4 data=0
        arrive K1 at=L0 -> SUCCESS
        accept K1 qp=Q1 inbound=4 outbound=4 data=0
        complete K0
        receive Q1 context=1 -> SUCCESS
        send Q0 context=2 flags=0x0 -> SUCCESS
    ";
    let (send, receive) = ("send Q0 context=3 flags=0x0 -> SUCCESS", "receive Q1 context=4 -> SUCCESS");
    for [first, second] in [[send, receive], [receive, send]] {
        let lines = parse(&format!("{begin}{first}\n{second}\nevents -> []\n")).unwrap();
        let mut model = Model::new(Column::Ndk);
        let skipped: Vec<_> = lines.iter().filter(|line| model.apply(line) == Expected::Skip).collect();
        assert!(matches!(skipped[..], [one] if one.to_string() == second), "{skipped:?}");
        run(&lines, Column::Ndk, &mut Engine::new(Column::Ndk)).unwrap();
    }
}

/// What becomes of a request about a region that was closed before is the provider's choice.
#[test]
#[cfg_attr(feature = "streams", ignore = "no Send across a stream waits for its receive")]
fn a_region_is_not_closed_while_a_request_about_it_waits() {
    let fast_register = "mr-fast M4 domain=P0 -> SUCCESS
        initialize M4 pages=1 remote=1 -> SUCCESS
        send Q3 context=2 flags=0x0 -> SUCCESS
        fast-register Q3 context=3 flags=remote-read region=M4 buffer=B0 page=0 pages=1 first-byte=0 length=64 base=0 -> SUCCESS";
    let invalidate = "send Q3 context=2 flags=0x0 -> SUCCESS
        invalidate Q3 context=3 flags=0x0 target=M1 -> SUCCESS";
    for (requests, close) in [(fast_register, "close M4"), (invalidate, "close M1")] {
        let rest = format!("{requests}\n{close}\nreceive Q4 context=4 -> SUCCESS\npoll C0 -> []");
        let lines = parse(&format!("{TWO_CONNECTIONS}{rest}")).unwrap();
        let mut model = Model::new(Column::Ndk);
        let skipped: Vec<_> = lines.iter().filter(|line| model.apply(line) == Expected::Skip).collect();
        assert!(matches!(skipped[..], [one] if one.to_string() == close), "{skipped:?}");
        run(&lines, Column::Ndk, &mut Engine::new(Column::Ndk)).unwrap();
    }
}

#[test]
fn a_difference_is_cut_down_to_what_makes_it() {
    let lines = sequence(11, Column::Ndk, 200, Features::ALL);
    let flushes = |lines: &[_]| {
        let mut model = Model::new(Column::Ndk);
        let meant = |line: &Line| line.step.code == ScriptCode::Flush as u16;
        lines.iter().any(|line| model.apply(line) != Expected::Skip && meant(line))
    };
    assert!(flushes(&lines), "the seed has one");
    let short = shortest(lines, flushes);
    let words: Vec<_> = short.iter().filter_map(|line| ScriptCode::from_number(line.step.code)).collect();
    let words: Vec<_> = words.iter().map(|code| code.verb().word).collect();
    assert!(["open", "pd", "cq", "qp", "flush"].iter().all(|word| words.contains(word)));
    assert!(short.len() <= 6, "{words:?}");
}
