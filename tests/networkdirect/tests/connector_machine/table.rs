//! The tables of `xtask/lists/nd-connector-machine.md` beside the machine, and what all of their cells have in common.

use crate::{
    effects::{EngineEffect, QueuePairEffect},
    names::{
        BEFORE, CALLS, Column, Effects, Event, LATE, Machine, NEXT, OTHERS, PRESENT, ROWS, Row, Thing, columns,
        dropped, machine, status,
    },
};
use ndkpi_sys::nt::STATUS_CANCELLED;

const PAGE: &str = include_str!("../../../../xtask/lists/nd-connector-machine.md");

/// What can be seen of a machine: state, things, request, endpoint.
fn shown(machine: &Machine) -> String {
    let state = machine.state();
    let request = state.request().map(|request| request.name);
    format!("{state} {:?} {:?} {request:?} {:?}", state.engine(), state.queue_pair(), machine.endpoint())
}

/// A cell of a table: the next state, what becomes of requests, of the engine's connector, of queue pair and address.
fn cell(before: &str, was_bound: bool, machine: &Machine, effects: &Effects) -> String {
    if let Err(refusal) = effects.answer {
        return status(refusal).into();
    }
    let mut cell = Vec::new();
    let after = machine.state().to_string();
    if after != before {
        cell.push(after);
    }
    if machine.endpoint().is_some() && !was_bound {
        cell.push("bound".into());
    }
    if let Some(notified) = effects.notified {
        cell.push(format!("notifies {}", status(notified)));
    }
    if let Some((request, ends)) = &effects.request {
        cell.push(format!("{} {}", request.name, status(*ends)));
    }
    if effects.answer.as_ref().is_ok_and(|proceed| proceed.engine.is_some()) {
        cell.push("calls the engine".into());
    }
    match effects.engine {
        EngineEffect::Nothing => {}
        EngineEffect::Close(_) => cell.push("closes".into()),
        EngineEffect::Disconnect(_) => cell.push("disconnects".into()),
    }
    match effects.queue_pair {
        QueuePairEffect::Nothing => {}
        QueuePairEffect::Publish(_) => cell.push("publishes".into()),
        QueuePairEffect::Release(_) => cell.push("releases".into()),
    }
    if effects.endpoint.is_some() {
        cell.push("unbinds".into());
    }
    if cell.is_empty() { "·".into() } else { cell.join(", ") }
}

fn cell_of(row: Row, event: Event) -> String {
    let mut machine = machine(row);
    let before = machine.state().to_string();
    let effects = machine.on(event);
    cell(&before, row.1, &machine, &effects)
}

/// A column of what the machine is asked.
type AskedColumn = (&'static str, fn(Row) -> String);

const NOTIFY: AskedColumn = ("NotifyDisconnect", notify_cell);

fn notify_cell(row: Row) -> String {
    match machine(row).end_of_connection() {
        Ok(None) => "waits".into(),
        Ok(Some(end)) => format!("NotifyDisconnect {}", status(end)),
        Err(refusal) => status(refusal).into(),
    }
}

/// The table of these columns as the machine has it, in Markdown.
fn table(columns: &[Column], asked: &[AskedColumn]) -> Vec<String> {
    let heads: Vec<_> = columns.iter().map(|(name, _)| *name).chain(asked.iter().map(|(name, _)| *name)).collect();
    let head = format!("| in state | {} |", heads.join(" | "));
    let rule = format!("|---|{}", "---|".repeat(heads.len()));
    let rows = ROWS.map(|row| {
        let cells = columns.iter().map(|(_, event)| cell_of(row, event(PRESENT)));
        let cells: Vec<_> = cells.chain(asked.iter().map(|(_, cell)| cell(row))).collect();
        format!("| {} | {} |", row.0, cells.join(" | "))
    });
    [head, rule].into_iter().chain(rows).collect()
}

/// Compares a table of the page with that of the machine.
fn compare(machine: &[String]) {
    let page: Vec<&str> = PAGE.lines().skip_while(|line| *line != machine[0]).take(machine.len()).collect();
    assert_eq!(page, machine, "the page is not the machine:\n{}\n", machine.join("\n"));
}

#[test]
fn every_call_does_in_every_state_what_the_page_says() {
    compare(&table(&CALLS, &[NOTIFY]));
}

#[test]
fn every_late_event_does_in_every_state_what_the_page_says() {
    compare(&table(&LATE, &[]));
}

#[test]
fn every_other_event_does_in_every_state_what_the_page_says() {
    compare(&table(&OTHERS, &[]));
}

/// It gives back what it brought, and that is all.
#[test]
fn an_event_of_another_attempt_changes_nothing() {
    for row in ROWS {
        for (name, event) in LATE {
            for number in [0, BEFORE, NEXT, PRESENT + (1 << 32)] {
                let mut machine = machine(row);
                let before = shown(&machine);
                let effects = machine.on(event(number));
                let place = format!("{name} of attempt {number} in {}", row.0);
                assert_eq!(shown(&machine), before, "{place}");
                assert!(effects.request.is_none() && effects.notified.is_none(), "{place}");
                assert!(effects.endpoint.is_none(), "{place}");
                assert!(matches!(effects.queue_pair, QueuePairEffect::Nothing), "{place}");
                match (effects.engine, event(number)) {
                    (EngineEffect::Close(engine), Event::EngineMade { .. }) => {
                        assert_eq!(engine, Thing("new connector"), "{place}");
                        assert_eq!(effects.answer.err(), Some(STATUS_CANCELLED), "{place}");
                    }
                    (EngineEffect::Nothing, other) => {
                        assert!(!matches!(other, Event::EngineMade { .. }), "{place}");
                        assert!(effects.answer.is_ok_and(|proceed| proceed.engine.is_none()), "{place}");
                    }
                    _ => panic!("{place}: the engine's connector of the present attempt is concerned"),
                }
            }
        }
    }
}

#[test]
fn a_refused_call_changes_nothing_and_gives_back_what_it_brought() {
    let mut refused = 0;
    for row in ROWS {
        for (name, event) in CALLS {
            let mut machine = machine(row);
            let before = shown(&machine);
            let effects = machine.on(event(PRESENT));
            let place = format!("{name} in {}", row.0);
            let Some(refusal) = effects.answer.as_ref().err() else { continue };
            refused += 1;
            assert_eq!(shown(&machine), before, "{place}");
            assert!(effects.notified.is_none() && matches!(effects.engine, EngineEffect::Nothing), "{place}");
            let back = effects.request.as_ref().map(|(request, ends)| (request.name, ends));
            let is_request = matches!(name, "Connect" | "Accept" | "Disconnect");
            assert_eq!(back, is_request.then_some((name, refusal)), "{place}");
            let pair = match &effects.queue_pair {
                QueuePairEffect::Release(pair) => Some(pair.0),
                _ => None,
            };
            assert_eq!(pair, matches!(name, "Connect" | "Accept").then_some("next queue pair"), "{place}");
            assert_eq!(effects.endpoint.is_some(), name == "Bind", "{place}");
        }
    }
    assert!(refused > 50, "{refused} calls are refused");
}

/// Requests that may be refused at once are refused for the same reason when they have begun to pend.
#[test]
fn what_a_call_may_is_what_its_event_answers() {
    for row in ROWS {
        let answer = |event: Event| machine(row).on(event).answer.err();
        let machine = machine(row);
        let may = [machine.may_bind().err(), machine.may_connect().err(), machine.may_disconnect().err()];
        let [bind, _, connect, _, _, _, disconnect] = CALLS.map(|(_, event)| answer(event(PRESENT)));
        assert_eq!(may, [bind, connect, disconnect], "{}", row.0);
        assert_eq!(machine.is_reserved(), row.0 == "Reserved");
    }
}

/// Everything that was there or was brought is in the next state or in the effects: the lock is held meanwhile.
#[test]
fn no_event_drops_anything_in_any_state() {
    for row in ROWS {
        for (name, event) in columns() {
            for number in [PRESENT, BEFORE] {
                let (mut machine, event) = (machine(row), event(number));
                let before = dropped();
                let effects = machine.on(event);
                assert_eq!(dropped(), before, "{name} of attempt {number} in {}", row.0);
                drop(effects);
            }
        }
    }
}

/// A state that has a request is left with the request's end, and only so.
#[test]
fn a_request_that_waits_completes_with_its_state() {
    for row in ROWS {
        for (name, event) in columns() {
            let mut machine = machine(row);
            let before = machine.state().request().map(|request| request.name);
            let effects = machine.on(event(PRESENT));
            let after = machine.state().request().map(|request| request.name);
            let ended = effects.request.map(|(request, _)| request.name);
            let brought =
                CALLS.iter().any(|(call, _)| *call == name) && matches!(name, "Connect" | "Accept" | "Disconnect");
            let all = [before, brought.then_some(name)].into_iter().flatten().count();
            assert_eq!([after, ended].into_iter().flatten().count(), all, "{name} in {}", row.0);
        }
    }
}
