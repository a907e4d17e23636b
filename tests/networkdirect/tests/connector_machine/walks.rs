//! Walks over several events: what is kept after the first attempt, and what comes between two steps of a call.

use crate::{
    effects::{EngineEffect, QueuePairEffect},
    machine::AttemptRequest,
    names::{Event, FAILURE, Machine, Names, State, Thing, Waiting, endpoint, engine, pair, request},
};
use ndkpi_sys::nt::*;

fn asked(number: u64, name: &'static str) -> AttemptRequest<Names> {
    AttemptRequest { number, pair: pair(), request: request(name) }
}

fn cancelled(name: &'static str) -> Waiting {
    Waiting { is_cancelled: true, ..request(name) }
}

/// The names of the states that events lead to.
fn walk<const N: usize>(machine: &mut Machine, events: [Event; N]) -> [String; N] {
    events.map(|event| {
        let _effects = machine.on(event);
        machine.state().to_string()
    })
}

/// An Accept is given up while its end is on its way, and the connector accepts the next connection meanwhile.
#[test]
fn the_late_end_of_an_accept_is_not_that_of_the_next() {
    let mut machine = Machine::new(State::Reserved, None);
    let (first, second) = (machine.next_number(), machine.next_number());
    let states = walk(
        &mut machine,
        [
            Event::Arrive { engine: Thing("first") },
            Event::Accept(asked(first, "Accept")),
            Event::Cancel,
            Event::Reserve,
            Event::Arrive { engine: Thing("second") },
            Event::Succeeded { number: first },
            Event::Accept(asked(second, "Accept")),
            Event::Succeeded { number: first },
            Event::Failed { number: first, status: FAILURE },
            Event::PeerEnded { number: first },
            Event::Succeeded { number: second },
            Event::PeerEnded { number: first },
            Event::PeerEnded { number: second },
        ],
    );
    let expected = [
        "Arrived",
        "Accepting",
        "Idle",
        "Reserved",
        "Arrived",
        "Arrived",
        "Accepting",
        "Accepting",
        "Accepting",
        "Accepting",
        "Connected",
        "Connected",
        "PeerGone",
    ];
    assert_eq!(states, expected);
    assert_eq!(machine.state().engine(), Some(&Thing("second")));
}

#[test]
fn the_late_end_of_a_connect_is_not_that_of_the_next() {
    let mut machine = Machine::new(State::Idle { engine: None }, Some(endpoint()));
    let states = walk(
        &mut machine,
        [
            Event::Connect(asked(1, "Connect")),
            Event::Cancel,
            Event::Connect(asked(2, "Connect")),
            Event::EngineMade { number: 1, engine: Thing("first") },
            Event::EngineMade { number: 2, engine: Thing("second") },
            Event::Failed { number: 1, status: FAILURE },
            Event::Succeeded { number: 1 },
            Event::Failed { number: 2, status: FAILURE },
            Event::Connect(asked(3, "Connect")),
            Event::Succeeded { number: 2 },
            Event::Succeeded { number: 3 },
        ],
    );
    let expected = [
        "Requesting",
        "Idle",
        "Requesting",
        "Requesting",
        "Connecting",
        "Connecting",
        "Connecting",
        "Idle",
        "Connecting",
        "Connecting",
        "Answered",
    ];
    assert_eq!(states, expected);
    assert_eq!(machine.state().engine(), Some(&Thing("second")), "the one of the refused attempt, and not a new one");
}

/// The engine is called with no lock held, so that the end of the connection may come before its answer.
#[test]
fn what_comes_inside_complete_connect_stays() {
    let answered = || Machine::new(State::Answered { number: 5, pair: pair(), engine: engine() }, None);
    let failed = || Event::CompleteConnectFailed { number: 5 };
    let ended = walk(&mut answered(), [Event::CompleteConnect, Event::PeerEnded { number: 5 }, failed()]);
    assert_eq!(ended, ["Connected", "PeerGone", "PeerGone"]);
    let rejected = walk(&mut answered(), [Event::CompleteConnect, Event::Rejected { number: 5 }, failed()]);
    assert_eq!(rejected, ["Connected", "Idle", "Idle"]);
    let refused = walk(&mut answered(), [Event::CompleteConnect, failed(), Event::CompleteConnect]);
    assert_eq!(refused, ["Connected", "Answered", "Connected"]);
}

/// The number of a Disconnect is that of no attempt.
#[test]
fn a_disconnect_ends_with_its_own_number() {
    let mut machine = Machine::new(State::Connected { number: 5, pair: pair(), engine: engine() }, None);
    let states = walk(
        &mut machine,
        [
            Event::Disconnect { number: 9, request: Some(request("Disconnect")) },
            Event::Succeeded { number: 5 },
            Event::PeerEnded { number: 5 },
            Event::Succeeded { number: 9 },
        ],
    );
    assert_eq!(states, ["Disconnecting", "Disconnecting", "Disconnecting", "Disconnected"]);
}

/// Its cancellation has come too early to find it in the state.
#[test]
fn a_request_that_is_cancelled_on_its_way_in_does_not_wait() {
    for (state, is_connect) in [(State::Idle { engine: None }, true), (State::Arrived { engine: engine() }, false)] {
        let before = state.to_string();
        let mut machine = Machine::new(state, Some(endpoint()));
        let asked = AttemptRequest { number: 1, pair: pair(), request: cancelled("request") };
        let effects = machine.on(if is_connect { Event::Connect(asked) } else { Event::Accept(asked) });
        assert_eq!(effects.answer.err(), Some(STATUS_CANCELLED));
        assert_eq!(effects.request.map(|(request, ends)| (request.name, ends)), Some(("request", STATUS_CANCELLED)));
        assert!(matches!(effects.queue_pair, QueuePairEffect::Release(_)));
        assert_eq!(machine.state().to_string(), before);
    }
}

/// The connection ends although nothing waits for that.
#[test]
fn a_disconnect_without_a_request_ends_the_connection() {
    for request in [None, Some(cancelled("Disconnect"))] {
        let expected = request.is_some().then_some(("Disconnect", STATUS_CANCELLED));
        let mut machine = Machine::new(State::Connected { number: 5, pair: pair(), engine: engine() }, None);
        let effects = machine.on(Event::Disconnect { number: 9, request });
        assert!(effects.answer.is_ok_and(|proceed| proceed.engine.is_none()));
        assert_eq!(effects.request.map(|(request, ends)| (request.name, ends)), expected);
        assert_eq!(effects.notified, Some(STATUS_CONNECTION_DISCONNECTED));
        assert!(matches!(effects.engine, EngineEffect::Disconnect(_)));
        assert!(matches!(effects.queue_pair, QueuePairEffect::Publish(_)));
        assert_eq!(machine.state().to_string(), "Disconnected");
    }
    // The peer's end has been answered before.
    for request in [None, Some(cancelled("Disconnect"))] {
        let expected = request.is_some().then_some(("Disconnect", STATUS_SUCCESS));
        let mut machine = Machine::new(State::PeerGone { pair: pair(), engine: engine() }, None);
        let effects = machine.on(Event::Disconnect { number: 9, request });
        assert!(effects.answer.is_ok_and(|proceed| proceed.engine.is_none()));
        assert_eq!(effects.request.map(|(request, ends)| (request.name, ends)), expected);
        assert!(matches!(effects.engine, EngineEffect::Nothing) && effects.notified.is_none());
        assert_eq!(machine.state().to_string(), "Disconnected");
    }
}

/// A call goes on with the engine's connector of its attempt, under the attempt's number.
#[test]
fn a_call_goes_on_with_the_number_of_its_attempt() {
    let goes_on = |state: State, event: Event| {
        let answer = Machine::new(state, Some(endpoint())).on(event).answer.ok();
        answer.map(|proceed| (proceed.engine.map(|engine| engine.0), proceed.number))
    };
    let named = Some("engine's connector");
    let answered = || State::Answered { number: 5, pair: pair(), engine: engine() };
    let arrived = || State::Arrived { engine: engine() };
    let connected = State::Connected { number: 5, pair: pair(), engine: engine() };
    let disconnect = Event::Disconnect { number: 9, request: Some(request("Disconnect")) };
    for (state, event, expected) in [
        (State::Idle { engine: None }, Event::Connect(asked(3, "Connect")), (None, 3)),
        (State::Idle { engine: Some(engine()) }, Event::Connect(asked(3, "Connect")), (named, 3)),
        (arrived(), Event::Accept(asked(3, "Accept")), (named, 3)),
        (answered(), Event::CompleteConnect, (named, 5)),
        (answered(), Event::Reject, (named, 5)),
        (arrived(), Event::CompleteConnect, (named, 0)),
        (arrived(), Event::Reject, (named, 0)),
        (connected, disconnect, (named, 9)),
    ] {
        assert_eq!(goes_on(state, event), Some(expected));
    }
}
