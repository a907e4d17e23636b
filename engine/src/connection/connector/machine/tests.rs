//! Every state and every event: the tables of `xtask/lists/connector-machine.md` beside the machine, and what holds in all of their cells.

extern crate std;

use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use super::{AcceptedRequest, ConnectorEvent, ConnectorMachine, ConnectorRules};
use crate::connection::connector::ReadLimits;
use crate::connection::connector::effects::{ConnectorCount, ConnectorEffects, PeerEffect, QueuePairEffect};
use crate::connection::connector::state::{ConnectorState, EndedState, MachineTypes, TiedQueuePair, WaitingRequest};
use crate::connection::message::Message;
use crate::error::{ConnectError, DisconnectReason};
use crate::private_data::PrivateData;
use crate::semantics::Semantics;

const PAGE: &str = include_str!("../../../../../xtask/lists/connector-machine.md");

/// Names in the places of pointers and callbacks.
struct Names;

impl MachineTypes for Names {
    type PeerHandle = &'static str;
    type QueuePairHandle = &'static str;
    type QueuePairHold = ();
    type RequestHandle = &'static str;
    type DisconnectHandle = u8;
    type EndpointHandle = &'static str;
}

type NamedState = ConnectorState<Names>;
type NamedMachine = ConnectorMachine<Names>;
type NamedEffects = ConnectorEffects<Names>;
type NamedEvent = ConnectorEvent<Names>;

const DEADLINE: u64 = 7;

fn tied() -> TiedQueuePair<Names> {
    TiedQueuePair { pair: "queue pair", hold: () }
}

fn waiting(request: &'static str) -> WaitingRequest<Names> {
    WaitingRequest { request, deadline: Some(DEADLINE) }
}

fn connected(noticed: bool) -> NamedState {
    NamedState::Connected { peer: "peer", tied: tied(), disconnect: Some(1), noticed }
}

fn disconnecting(noticed: bool) -> NamedState {
    NamedState::Disconnecting { peer: "peer", tied: tied(), waiting: waiting("Disconnect"), noticed }
}

fn draining(tied: Option<TiedQueuePair<Names>>) -> NamedState {
    NamedState::Ended(EndedState::Draining { tied, request: "Disconnect", result: Ok(()) })
}

/// The rows of the tables, in their order.
const STATES: [fn() -> NamedState; 16] = [
    || NamedState::Idle,
    || NamedState::Requesting,
    || NamedState::Connecting { peer: "peer", tied: tied(), waiting: waiting("Connect") },
    || NamedState::Answered { peer: "peer", tied: tied() },
    || NamedState::Arrived { peer: "peer" },
    || NamedState::Accepting { peer: "peer", tied: tied(), waiting: waiting("Accept"), disconnect: Some(1) },
    || connected(false),
    || connected(true),
    || disconnecting(false),
    || disconnecting(true),
    || NamedState::Ended(EndedState::Failed(ConnectError::Refused)),
    || NamedState::Ended(EndedState::Broken(tied())),
    || draining(Some(tied())),
    || draining(None),
    || NamedState::Ended(EndedState::Over(Some(tied()))),
    || NamedState::Ended(EndedState::Over(None)),
];

/// The row of a state.
fn name(state: &NamedState) -> String {
    let detail = match state {
        NamedState::Connected { noticed: true, .. } => ", noticed",
        NamedState::Disconnecting { noticed: true, .. } => ", answered",
        NamedState::Ended(EndedState::Failed(_)) => ": failed",
        NamedState::Ended(EndedState::Broken(_)) => ": broken",
        NamedState::Ended(EndedState::Draining { tied: Some(_), .. }) => ": draining",
        NamedState::Ended(EndedState::Draining { tied: None, .. }) => ": draining, closed",
        NamedState::Ended(EndedState::Over(Some(_))) => ": over",
        NamedState::Ended(EndedState::Over(None)) => ": over, closed",
        _ => "",
    };
    format!("{state}{detail}")
}

/// A column of a table.
type EventColumn = (&'static str, fn() -> NamedEvent);

/// A message of the peer, whose handle is another than the one that is known: it may bring a queue pair.
fn message(message: Message) -> NamedEvent {
    NamedEvent::Message { from: "peer of now", message }
}

const MESSAGES: [EventColumn; 8] = [
    ("Accepted", || message(Message::Accepted { limits: ReadLimits::default(), data: PrivateData::empty() })),
    ("Rejected", || message(Message::Rejected { data: PrivateData::empty() })),
    ("Refused", || message(Message::Refused { error: ConnectError::Refused })),
    ("Ready", || message(Message::Ready)),
    ("Abandoned", || message(Message::Abandoned)),
    ("Notice", || message(Message::Notice)),
    ("Abort 2", || message(Message::Abort { reason: DisconnectReason::Closed })),
    ("Abort 4", || message(Message::Abort { reason: DisconnectReason::TimedOut })),
];

const OTHERS: [EventColumn; 4] = [
    ("time-out", || NamedEvent::TimedOut),
    ("queue pair failed", || NamedEvent::QueuePairFailed),
    ("queue pair drained", || NamedEvent::QueuePairDrained),
    ("address gone", || NamedEvent::AddressGone {
        here: DisconnectReason::AddressGone,
        there: DisconnectReason::PeerAddressGone,
    }),
];

const CALLS: [EventColumn; 8] = [
    ("Connect", || NamedEvent::Connect),
    ("request sent", || NamedEvent::Requested { peer: "peer", tied: tied(), waiting: waiting("Connect") }),
    ("Connect fails", || NamedEvent::ConnectFailed),
    ("CompleteConnect", || NamedEvent::CompleteConnect { disconnect: Some(1) }),
    ("Accept", || {
        NamedEvent::Accept(AcceptedRequest {
            tied: tied(),
            limits: ReadLimits::default(),
            data: PrivateData::empty(),
            disconnect: Some(1),
            waiting: waiting("Accept"),
        })
    }),
    ("Reject", || NamedEvent::Reject { data: PrivateData::empty() }),
    ("Disconnect", || NamedEvent::Disconnect { waiting: waiting("Disconnect") }),
    ("Close", || NamedEvent::Close),
];

fn machine(state: NamedState, semantics: Semantics) -> NamedMachine {
    let mut machine = NamedMachine::new(state, ConnectorRules { semantics, callee_data: 148 });
    if machine.state.peer().is_some() {
        machine.endpoint = Some("endpoint");
    }
    machine
}

fn reason(reason: DisconnectReason) -> u8 {
    match reason {
        DisconnectReason::Disconnected => 1,
        DisconnectReason::Closed => 2,
        DisconnectReason::PeerFailed => 3,
        DisconnectReason::TimedOut => 4,
        DisconnectReason::PeerAddressGone => 5,
        DisconnectReason::PeerAdapterGone => 6,
        DisconnectReason::AddressGone => 7,
        DisconnectReason::AdapterGone => 8,
        DisconnectReason::RefusedByPeer => 9,
        DisconnectReason::StreamLost => 10,
    }
}

fn error(error: ConnectError) -> &'static str {
    match error {
        ConnectError::InvalidState => "INVALID",
        ConnectError::AlreadyConnected => "ACTIVE",
        ConnectError::Aborted => "ABORTED",
        ConnectError::Refused => "REFUSED",
        ConnectError::TimedOut => "TIMEOUT",
        other => panic!("{other:?} is no answer of a connector"),
    }
}

/// A cell of a table: the next state, what the consumer gets, what the peer gets, what the queue pair does.
fn cell(before: &str, machine: &mut NamedMachine, effects: &NamedEffects) -> String {
    if let Err(refusal) = effects.answer {
        assert_eq!(name(&machine.state), before, "a refused call changes nothing");
        return error(refusal).to_string();
    }
    let mut cell = Vec::new();
    let after = name(&machine.state);
    if after != before {
        cell.push(after);
    }
    if effects.completes {
        assert!(machine.due.take_completion().is_none(), "it is held until queue pair and endpoint are free");
        machine.due.release();
    }
    if let Some(completion) = machine.due.take_completion() {
        cell.push(format!("{} {}", completion.request, completion.result.map_or_else(error, |()| "completes")));
        machine.due.completion_returned();
    }
    if let Some((1, why)) = machine.due.take_event() {
        cell.push(format!("event {}", reason(why)));
    }
    match effects.peer.as_ref().and_then(|effect| effect.message.as_ref()) {
        None => {}
        Some(Message::Accepted { .. }) => cell.push("sends Accepted".into()),
        Some(Message::Rejected { .. }) => cell.push("sends Rejected".into()),
        Some(Message::Refused { .. }) => cell.push("sends Refused".into()),
        Some(Message::Ready) => cell.push("sends Ready".into()),
        Some(Message::Abandoned) => cell.push("sends Abandoned".into()),
        Some(Message::Notice) => cell.push("sends Notice".into()),
        Some(Message::Abort { reason: why }) => cell.push(format!("sends Abort {}", reason(*why))),
    }
    match effects.queue_pair {
        QueuePairEffect::Nothing => {}
        QueuePairEffect::End(_) | QueuePairEffect::Leave { .. } => cell.push("flush".into()),
        QueuePairEffect::Cut(_) => cell.push("flush sends".into()),
        QueuePairEffect::Free(_) => cell.push("free".into()),
    }
    if cell.is_empty() { "·".into() } else { cell.join(", ") }
}

fn cell_of(state: fn() -> NamedState, event: fn() -> NamedEvent, semantics: Semantics) -> String {
    let before = name(&state());
    let mut machine = machine(state(), semantics);
    let effects = machine.on(event());
    cell(&before, &mut machine, &effects)
}

/// The table of these columns as the machine has it, in Markdown.
fn table(columns: &[EventColumn]) -> Vec<String> {
    let head: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let mut lines =
        Vec::from([format!("| in state | {} |", head.join(" | ")), format!("|---|{}", "---|".repeat(columns.len()))]);
    for state in STATES {
        let cells: Vec<String> = columns.iter().map(|(_, event)| cell_of(state, *event, Semantics::NDK)).collect();
        lines.push(format!("| {} | {} |", name(&state()), cells.join(" | ")));
    }
    lines
}

/// Compares the table that begins with the first of these columns on the page with the machine.
fn compare(columns: &[EventColumn]) {
    let machine = table(columns);
    let page: Vec<&str> = PAGE.lines().skip_while(|line| *line != machine[0]).take(machine.len()).collect();
    assert_eq!(page, machine, "the page is not the machine:\n{}\n", machine.join("\n"));
}

#[test]
fn every_message_does_in_every_state_what_the_page_says() {
    compare(&MESSAGES);
}

#[test]
fn what_comes_from_below_does_in_every_state_what_the_page_says() {
    compare(&OTHERS);
}

#[test]
fn every_call_does_in_every_state_what_the_page_says() {
    compare(&CALLS);
}

/// Where the column of user-mode consumers differs.
#[test]
fn the_nd_column_flushes_after_the_event_and_says_refused() {
    let mut differences = Vec::new();
    for state in STATES {
        for (event, make) in MESSAGES.iter().chain(&OTHERS).chain(&CALLS) {
            let (ndk, nd) = (cell_of(state, *make, Semantics::NDK), cell_of(state, *make, Semantics::ND));
            if ndk != nd {
                differences.push(format!("{event} in {}: {nd}", name(&state())));
            }
        }
    }
    assert_eq!(
        differences,
        [
            "Abandoned in Accepting: Ended: failed, Accept REFUSED, free",
            "Abort 2 in Connected: Ended: broken, event 2",
            "Abort 4 in Connected: Ended: broken, event 4",
            "Disconnect in Connected: Disconnecting, sends Notice, flush",
        ]
    );
}

fn is_connection(state: &NamedState) -> bool {
    matches!(state, NamedState::Connected { .. } | NamedState::Disconnecting { .. })
}

/// What every cell of the tables has in common: nothing is lost, everything is counted once.
#[test]
fn no_event_loses_anything_or_counts_twice_in_any_state() {
    for state in STATES {
        for (event, make) in MESSAGES.iter().chain(&OTHERS).chain(&CALLS) {
            let (before, mut machine) = (state(), machine(state(), Semantics::NDK));
            let effects = machine.on(make());
            let place = format!("{event} in {}", name(&before));
            let after = &machine.state;
            let is_failed = matches!(after, NamedState::Ended(EndedState::Failed(_)) | NamedState::Idle);
            let was_attempt =
                before.peer().is_some() && !is_connection(&before) || matches!(before, NamedState::Requesting);
            let expected = match (is_connection(&before), is_connection(after)) {
                (false, true) if matches!(before, NamedState::Answered { .. }) => Some(ConnectorCount::Connected),
                (false, true) => Some(ConnectorCount::Accepted),
                (true, false) => {
                    effects.count.filter(|count| matches!(count, ConnectorCount::Ended | ConnectorCount::Broken))
                }
                // The call of Connect counts its failures itself.
                (false, false) if was_attempt && is_failed && *event != "Connect fails" => {
                    Some(ConnectorCount::AttemptFailed)
                }
                _ => None,
            };
            assert_eq!(effects.count, expected, "{place}");
            assert_eq!(effects.count.is_none(), is_connection(&before) == is_connection(after) && expected.is_none());
            // The peer stays, or is released, perhaps with a message; a message of the peer is never answered with one.
            let released = effects.peer.is_some() || effects.sender == Some("peer");
            let sends = effects.peer.as_ref().is_some_and(|effect| effect.message.is_some());
            assert!(before.peer().is_none() || after.peer().is_some() || released, "{place}");
            assert!(!sends || !MESSAGES.iter().any(|(message, _)| message == event), "{place}");
            // This end's queue pair reaches the peer's once, by the handle that came with it.
            let begins = match &before {
                NamedState::Arrived { .. } => *event == "Accept",
                NamedState::Answered { .. } => *event == "CompleteConnect",
                _ => false,
            };
            assert_eq!(effects.reaches, begins, "{place}");
            if let NamedState::Answered { peer, .. } = after {
                let brought = if *event == "Accepted" && before.deadline().is_some() { "peer of now" } else { "peer" };
                assert_eq!(*peer, brought, "{place}");
            }
            // What a message leaves is given back, to be dropped outside the lock.
            let given_back = effects.sender.is_some() || matches!(effects.peer, Some(PeerEffect { message: None, .. }));
            assert!(given_back || !MESSAGES.iter().any(|(message, _)| message == event), "{place}");
            // A request waits, completes, or is given back; it has a deadline while it waits for the other side.
            let is_waiting = after.deadline().is_some();
            assert!(
                before.deadline().is_none() || is_waiting || machine.due.has_completion() || {
                    matches!(
                        after,
                        NamedState::Disconnecting { noticed: true, .. }
                            | NamedState::Ended(EndedState::Draining { .. })
                    )
                },
                "{place}"
            );
            // An attempt that fails frees what it claimed; only then is its completion handed out.
            assert_eq!(effects.completes, before.deadline().is_some() && was_attempt && is_failed, "{place}");
            let refused_attempt = matches!(before, NamedState::Connecting { .. }) && matches!(after, NamedState::Idle);
            let closes = *event == "Close";
            assert_eq!(effects.frees_endpoint, refused_attempt || closes, "{place}");
        }
    }
}

/// The notice's event stays what it was when the end comes before a service pass.
#[test]
fn an_end_after_the_notice_leaves_the_event_that_is_due() {
    for event in [MESSAGES[6].1, OTHERS[3].1] {
        let mut machine = machine(connected(false), Semantics::NDK);
        let _noticed = machine.on(MESSAGES[5].1());
        let _ended = machine.on(event());
        assert_eq!(machine.due.take_event(), Some((1, DisconnectReason::Disconnected)));
    }
    // The consumer's own end withdraws it.
    for event in [CALLS[6].1, CALLS[7].1, OTHERS[1].1] {
        let mut machine = machine(connected(false), Semantics::NDK);
        let _noticed = machine.on(MESSAGES[5].1());
        let _ended = machine.on(event());
        assert_eq!(machine.due.take_event(), None);
    }
}

/// A disconnect that the peer has not answered reports what ended it; an answered one succeeds.
#[test]
fn a_disconnect_that_is_cut_off_says_so_when_it_has_drained() {
    for (answered, event, result) in [
        (false, MESSAGES[6].1, Err(ConnectError::Aborted)),
        (false, OTHERS[0].1, Err(ConnectError::TimedOut)),
        (false, OTHERS[1].1, Err(ConnectError::Aborted)),
        (false, CALLS[7].1, Err(ConnectError::Aborted)),
        (true, MESSAGES[6].1, Ok(())),
        (true, OTHERS[3].1, Ok(())),
        (true, CALLS[7].1, Ok(())),
    ] {
        let mut machine = machine(disconnecting(answered), Semantics::NDK);
        let _ended = machine.on(event());
        let _drained = machine.on(NamedEvent::QueuePairDrained);
        assert_eq!(machine.due.take_completion().map(|completion| completion.result), Some(result));
    }
}

/// The consumer has not heard of the end of its request yet.
#[test]
fn a_request_is_refused_while_the_completion_of_the_one_before_is_due() {
    for (state, call, later) in [
        (STATES[0], CALLS[0].1, "Requesting"),
        (STATES[6], CALLS[6].1, "Disconnecting, sends Notice"),
        (STATES[11], CALLS[6].1, "Ended: draining, flush"),
    ] {
        let mut machine = machine(state(), Semantics::NDK);
        machine.due.complete("Connect", Ok(()));
        let before = name(&machine.state);
        assert_eq!(machine.on(call()).answer, Err(ConnectError::InvalidState));
        assert!(machine.due.take_completion().is_some());
        let effects = machine.on(call());
        assert_eq!(cell(&before, &mut machine, &effects), later);
    }
}
