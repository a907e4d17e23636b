//! The table of semantics: every row seen in both columns, and with peers across streams where that changes it. A field without a row
//! here does not compile.

use softndk_engine::{Arm, Close, Outcome, RequestFlags, Semantics};
use softndk_engine_kit::{A, B, Buffer, DISCONNECT, Depths, EVERYTHING, Event, Pair, World, outcomes, sge};
use std::sync::{Arc, Mutex};

const SECOND: u64 = 1_000_000_000;

/// Makes a test of each row: what is seen under the two columns, beside what the contracts say.
macro_rules! rows {
    ($($row:ident: $see:path, $ndk:expr, $nd:expr $(, across a stream $stream:expr)?;)*) => {
        #[test]
        fn every_field_is_a_row() {
            for Semantics { $($row),* } in [Semantics::NDK, Semantics::ND] {
                $(let _ = $row;)*
            }
        }

        $(#[test]
        fn $row() {
            let columns = [$ndk, $nd];
            #[cfg(feature = "streams")]
            let columns = [columns, $([$stream, $stream])?].last().copied().unwrap_or(columns);
            assert_eq!([Semantics::NDK, Semantics::ND].map($see), columns, "the kernel's column, and the user's");
        })*
    };
}

rows! {
    remote_access: outcome_of_a_refused_write, Outcome::RemoteError, Outcome::RemoteAccess, across a stream Outcome::Success;
    receiver_too_small: outcome_of_a_send_that_does_not_fit, Outcome::RemoteError, Outcome::Success, across a stream Outcome::Success;
    flush_on_peer_end: receives_are_flushed_by_the_peers_end, false, true;
    flush_on_disconnect: receives_are_flushed_before_the_peer_answers, false, true;
    abandoned_is_refused: an_abandoned_accept_is_refused, false, true;
    fixed_private_data: private_data_has_a_fixed_size, true, false;
    receiver_not_ready: seconds_a_send_waits, None, Some(3);
    queue_slack: entries_before_an_overrun, 4, 20;
}

fn connected(semantics: Semantics) -> Pair {
    Pair::with(semantics, Depths::default())
}

fn outcome_of_a_refused_write(semantics: Semantics) -> Outcome {
    let pair = connected(semantics);
    let buffer = Buffer::new(64, 1);
    let region = pair.a.register(&pair.world, &buffer, 0x1000, EVERYTHING);
    let list = [sge(0x1000, 64, region.local_token())];
    // The token is one of the near side: of no use at the other.
    pair.a.pair.write(1, RequestFlags::empty(), list.into_iter(), 0x1000, region.remote_token()).unwrap();
    let (_, outcome) = outcomes(&pair.a.initiator)[0];
    drop(region.close(1));
    pair.close();
    outcome
}

fn outcome_of_a_send_that_does_not_fit(semantics: Semantics) -> Outcome {
    let pair = connected(semantics);
    let buffer = Buffer::new(64, 1);
    let region = pair.a.register(&pair.world, &buffer, 0, EVERYTHING);
    pair.b.pair.receive(1, std::iter::empty()).unwrap();
    pair.a.pair.send(2, RequestFlags::empty(), [sge(0, 64, region.local_token())].into_iter()).unwrap();
    let (_, outcome) = outcomes(&pair.a.initiator)[0];
    assert_eq!(outcomes(&pair.b.receiver), [(1, Outcome::ReceiveTooSmall)], "in both columns");
    drop(region.close(1));
    pair.close();
    outcome
}

fn receives_are_flushed_by_the_peers_end(semantics: Semantics) -> bool {
    let mut pair = connected(semantics);
    pair.b.pair.receive(1, std::iter::empty()).unwrap();
    pair.a.connector.disconnect(A + DISCONNECT).unwrap();
    pair.world.run();
    let flushed = outcomes(&pair.b.receiver);
    assert!(flushed.is_empty() || flushed == [(1, Outcome::Cancelled)]);
    pair.b.connector.disconnect(B + DISCONNECT).unwrap();
    pair.world.run();
    pair.close();
    !flushed.is_empty()
}

/// Whichever way the peer ends it: user-mode programs tell by a cancelled request that the connection is over, and ask why.
#[test]
fn the_event_of_the_peers_end_comes_before_the_flush() {
    for abortive in [false, true] {
        let mut pair = connected(Semantics::ND);
        pair.b.pair.receive(1, std::iter::empty()).unwrap();
        let ended = Arc::new(Mutex::new(None));
        let (queue_pair, seen) = (pair.b.pair.clone(), ended.clone());
        pair.world.events.inside = Some(Box::new(move |event| {
            if matches!(event, Event::Disconnected(_)) {
                *seen.lock().unwrap() = Some(queue_pair.has_ended());
            }
        }));
        if abortive {
            drop(pair.a.connector.close(1));
        } else {
            pair.a.connector.disconnect(A + DISCONNECT).unwrap();
        }
        pair.world.run();
        pair.world.events.inside = None;
        assert_eq!(*ended.lock().unwrap(), Some(false), "abortive: {abortive}");
        assert_eq!(outcomes(&pair.b.receiver), [(1, Outcome::Cancelled)]);
        pair.b.connector.disconnect(B + DISCONNECT).unwrap();
        pair.world.run();
        pair.close();
    }
}

fn receives_are_flushed_before_the_peer_answers(semantics: Semantics) -> bool {
    let mut pair = connected(semantics);
    pair.a.pair.receive(1, std::iter::empty()).unwrap();
    pair.a.connector.disconnect(A + DISCONNECT).unwrap();
    let done = Event::Completed(A + DISCONNECT, Ok(()));
    assert!(!pair.world.run().contains(&done), "the peer has not answered");
    let flushed = outcomes(&pair.a.receiver);
    assert!(flushed.is_empty() || flushed == [(1, Outcome::Cancelled)]);
    pair.b.connector.disconnect(B + DISCONNECT).unwrap();
    assert!(pair.world.run().contains(&done), "in both columns it completes with the peer's answer");
    let rest = outcomes(&pair.a.receiver);
    assert_eq!(flushed.len() + rest.len(), 1, "each receive once");
    pair.close();
    !flushed.is_empty()
}

fn an_abandoned_accept_is_refused(semantics: Semantics) -> bool {
    let mut pair = Pair::unconnected(World::new(), semantics, Depths::default());
    pair.connect_request().unwrap();
    pair.world.run();
    pair.take_arrived();
    pair.accept().unwrap();
    pair.world.run();
    assert!(matches!(pair.a.connector.close(1), Close::Done(_)));
    let events = pair.world.run();
    let result = events.iter().find_map(|event| match event {
        Event::Completed(_, result) => Some(*result),
        _ => None,
    });
    pair.close();
    match result {
        Some(Err(softndk_engine::ConnectError::Refused)) => true,
        Some(Err(softndk_engine::ConnectError::Aborted)) => false,
        other => panic!("the accept ended with {other:?}"),
    }
}

fn private_data_has_a_fixed_size(semantics: Semantics) -> bool {
    let pair = connected(semantics);
    let mut buffer = [0xEE; 300];
    let data = pair.a.connector.connection_data(&mut buffer);
    let length = data.unwrap().required;
    assert_eq!(&buffer[..7], b"welcome");
    pair.close();
    length > 7
}

/// The time after which a Send fails that finds no receive.
fn seconds_a_send_waits(semantics: Semantics) -> Option<u64> {
    let mut pair = connected(semantics);
    pair.b.pair.receive(9, std::iter::empty()).unwrap();
    pair.a.pair.send(1, RequestFlags::empty(), std::iter::empty()).unwrap();
    pair.a.pair.send(2, RequestFlags::empty(), std::iter::empty()).unwrap();
    if cfg!(feature = "streams") {
        return seconds_a_receiver_lets_it_wait(pair);
    }
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
    assert_eq!(outcomes(&pair.b.receiver), [(9, Outcome::Success)]);
    let waited = (1..100).find(|_| {
        pair.world.advance(SECOND);
        pair.world.run();
        let seen = outcomes(&pair.a.initiator);
        assert!(seen.is_empty() || seen == [(2, Outcome::NotReady)]);
        !seen.is_empty()
    });
    assert!(outcomes(&pair.b.receiver).is_empty());
    pair.close();
    waited
}

/// Across a stream it has succeeded, and the receiving side ends the connection.
fn seconds_a_receiver_lets_it_wait(mut pair: Pair) -> Option<u64> {
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success), (2, Outcome::Success)]);
    assert_eq!(outcomes(&pair.b.receiver), [(9, Outcome::Success)]);
    let waited = (1..100).find(|_| {
        pair.world.advance(SECOND);
        pair.world.run();
        !pair.world.events.reasons.is_empty()
    });
    pair.close();
    waited
}

/// Receives that a completion queue of depth 4 takes before it overruns.
fn entries_before_an_overrun(semantics: Semantics) -> usize {
    let depths = Depths { completions: 4, ..Depths::default() };
    let mut pair = Pair::with(semantics, depths);
    pair.a.receiver.arm(Arm::Errors);
    let entries = (0..100)
        .take_while(|number| {
            pair.a.pair.receive(*number, std::iter::empty()).unwrap();
            pair.b.pair.send(*number, RequestFlags::SILENT_SUCCESS, std::iter::empty()).unwrap();
            let failed = |event: &Event| matches!(event, Event::Notified(_, Err(_)));
            !pair.world.run().iter().any(failed)
        })
        .count();
    assert_eq!(pair.a.receiver.depth(), 4, "in both columns");
    pair.close();
    entries
}
