//! The list of events, and the same events as Event Tracing gets them.

use super::endings::set_ndk;
use super::handles::File;
use super::machine::{Machine, ORDINARY, Wish, ask, list, refused, send};
use super::pairs::{close, create_request};
use super::replay::replay;
use super::{Case, cases};
use kernel_host::event_tracing::{self, TraceEvent, TraceValue};
use kernel_host::fault;
use kernel_host::ndis::adapter::StartError;
use ndkctl::script::{encode, parse};
use softndk_ioctl::{
    AddressFamily, ConnectionEnd, EVENTS_KEPT, EventEntry, EventKind, EventListReply, EventListRequest, NdkCall,
    ObjectKind, RefusalCause, RefusalWay, Request, RequestHeader, Status,
};
use zerocopy::{FromBytes, IntoBytes};

pub const CASES: &[Case] = cases![
    events_are_listed_from_the_number_that_is_asked_for,
    a_connection_is_told_from_its_request_to_its_end,
    a_trace_has_what_the_list_has,
    an_attempt_that_fails_says_why,
    an_adapter_that_does_not_start_is_listed,
    the_list_keeps_the_last_events_while_it_is_written,
    a_session_that_comes_and_goes_has_what_happens_meanwhile,
];

/// One part of the list, from a number on.
fn events(file: &File, first: u64, capacity: usize) -> (EventListReply, Vec<EventEntry>) {
    let request = EventListRequest { header: RequestHeader::of::<EventListRequest>(), first };
    let length = size_of::<EventListReply>() + capacity * size_of::<EventEntry>();
    let (status, output) = send(file, EventListRequest::CODE, request.as_bytes(), length);
    assert_eq!(status, Status::SUCCESS);
    let (fixed, entries) = EventListReply::read_from_prefix(&output).expect("the fixed part");
    let entries = entries.chunks_exact(size_of::<EventEntry>());
    (fixed, entries.map(|entry| EventEntry::read_from_bytes(entry).expect("an entry")).collect())
}

fn kinds(entries: &[EventEntry]) -> Vec<EventKind> {
    entries.iter().map(|entry| entry.event).collect()
}

/// Connects a pair, closes it, is refused two calls, and switches NDK off and on.
fn provoke(machine: &Machine, file: &File) {
    let pair = ask(file, &create_request(machine)).pair;
    assert_eq!(close(file, pair), Status::SUCCESS);
    let refused = include_str!("../scripts/refusals.ndk");
    replay(file, &encode(&parse(refused).expect("a script"))).expect("it runs");
    set_ndk(machine, false);
    set_ndk(machine, true);
    machine.wait_until_idle();
}

// Rule: IOCTL-15
fn events_are_listed_from_the_number_that_is_asked_for() {
    let machine = Machine::start();
    let file = machine.open();
    // The driver and its two adapters.
    let started = [EventKind::DRIVER_LOADED, EventKind::ADAPTER_STARTED, EventKind::ADAPTER_STARTED];
    for (first, capacity, numbers) in [(0, 9, 1..=3), (2, 1, 2..=2), (3, 9, 3..=3)] {
        let (fixed, entries) = events(&file, first, capacity);
        assert_eq!(entries.iter().map(|entry| entry.number).collect::<Vec<_>>(), numbers.clone().collect::<Vec<_>>());
        assert_eq!((fixed.returned_count as usize, fixed.next, fixed.total), (entries.len(), numbers.end() + 1, 3));
        assert_eq!(kinds(&entries), started[*numbers.start() as usize - 1..*numbers.end() as usize]);
    }
    let (fixed, none) = events(&file, 4, 9);
    assert_eq!((fixed.next, none.len()), (4, 0));
    let (_, all) = events(&file, 0, 9);
    let (first, second) = (all[1], all[2]);
    assert_eq!((first.net_luid, second.net_luid), (luid(&file, 0), luid(&file, 1)));
    assert!(all[0].age >= first.age && first.age >= second.age, "{all:?}");
    file.close();
    machine.finish();
}

fn luid(file: &File, index: usize) -> u64 {
    list(file)[index].net_luid
}

// Rule: IOCTL-15
fn a_connection_is_told_from_its_request_to_its_end() {
    let machine = Machine::start();
    let file = machine.open();
    let (before, _) = events(&file, 0, 1);
    let made_pair = ask(&file, &create_request(&machine));
    let pair = made_pair.pair;
    let (_, made) = events(&file, before.total + 1, 99);
    let mut seen = kinds(&made);
    seen.sort();
    let expected =
        [EventKind::CONNECTION_REQUESTED, EventKind::CONNECTION_ARRIVED, EventKind::CONNECTED, EventKind::ACCEPTED];
    assert_eq!(seen, expected, "{made:?}");
    let of = |kind: EventKind| *made.iter().find(|entry| entry.event == kind).expect("listed");
    let (active, passive) = (of(EventKind::CONNECTED), of(EventKind::ACCEPTED));
    assert_ne!(active.object, passive.object);
    assert_eq!((of(EventKind::CONNECTION_REQUESTED).object, active.kind), (active.object, ObjectKind::CONNECTOR));
    assert_eq!((of(EventKind::CONNECTION_ARRIVED).object, active.end), (passive.object, ConnectionEnd(0)));
    for (entry, here, there) in
        [(active, made_pair.client, made_pair.server), (passive, made_pair.server, made_pair.client)]
    {
        assert_eq!((entry.local.ip(), entry.peer.ip()), (here.address.ip(), there.address.ip()));
        assert_eq!(entry.ports, [here.port, there.port]);
    }
    assert_eq!(active.local.family, AddressFamily::IPV4);
    assert!(active.ports[0] != active.ports[1] && active.local != active.peer, "{active:?}");
    let (before, _) = events(&file, 0, 1);
    assert_eq!(close(&file, pair), Status::SUCCESS);
    machine.wait_until_idle();
    let (_, over) = events(&file, before.total + 1, 99);
    assert_eq!(kinds(&over), [EventKind::CONNECTION_ENDED; 2], "{over:?}");
    assert!(over.iter().all(|entry| entry.end.name().is_some()), "{over:?}");
    let mut ended = over.iter().map(|entry| entry.object).collect::<Vec<_>>();
    ended.sort_unstable();
    let mut both = [active.object, passive.object];
    both.sort_unstable();
    assert_eq!(ended, both);
    file.close();
    machine.finish();
}

// Rule: IOCTL-15
fn an_attempt_that_fails_says_why() {
    let machine = Machine::with(&[ORDINARY, Wish { wire: 1, ..ORDINARY }]);
    let file = machine.open();
    refused(&file, &create_request(&machine), Status::HOST_UNREACHABLE);
    let (_, listed) = events(&file, 0, 99);
    let failed = listed.iter().find(|entry| entry.event == EventKind::CONNECTION_FAILED).expect("listed");
    assert_eq!((failed.end, failed.cause), (ConnectionEnd::CALL_FAILED, RefusalCause::CONNECT_HOST_UNREACHABLE));
    assert_eq!((failed.kind, failed.object != 0), (ObjectKind::CONNECTOR, true));
    file.close();
    machine.finish();
}

// Rule: IOCTL-15
fn an_adapter_that_does_not_start_is_listed() {
    let machine = Machine::traced();
    let file = machine.open();
    fault::start_recording();
    machine.third_adapter().expect("nothing fails yet").remove();
    let sites = fault::sites().into_iter().filter(|record| record.export == "ExAllocatePool2");
    // One that the start cannot do without.
    let mut failed = sites.filter_map(|record| {
        let (before, _) = events(&file, 0, 1);
        event_tracing::take();
        fault::fail(record.site, 1);
        let started = machine.third_adapter();
        started.inspect(kernel_host::Adapter::remove).err().map(|error| (before, error))
    });
    let (before, error) = failed.next().expect("an allocation fails");
    drop(failed);
    fault::stop();
    let StartError::Initialize(status) = error else { panic!("{error}") };
    let (_, made) = events(&file, before.total + 1, 9);
    // The allocation may be one whose failure is listed as a refusal, too.
    let (entry, refused) = made.split_last().expect("listed");
    assert!(refused.iter().all(|entry| entry.event == EventKind::REFUSED), "{refused:?}");
    assert_eq!((entry.event, entry.status), (EventKind::ADAPTER_FAILED, status));
    assert!(entry.net_luid != 0 && entry.net_luid != luid(&file, 0) && entry.net_luid != luid(&file, 1));
    let traced = event_tracing::take();
    let failed = traced.iter().find(|event| event.name == "AdapterFailed").expect("a failure");
    assert_eq!(failed.number("NetLuid"), Some(entry.net_luid));
    assert_eq!(failed.number("Status"), Some(status.cast_unsigned().into()));
    assert_eq!((failed.level, failed.keyword), (2, 1));
    file.close();
    machine.finish();
}

/// How often NDK goes off and on: twice as many events, more than the list keeps.
const SWITCHES: usize = EVENTS_KEPT * 5 / 8;

// Rule: IOCTL-15
fn the_list_keeps_the_last_events_while_it_is_written() {
    const PART: usize = 7;
    let machine = Machine::start();
    let file = machine.open();
    let theirs = machine.open();
    // Reads part after part, behind the driver, until it has seen the last event.
    let reader = kernel_host::thread::spawn("reader", move || {
        let (mut next, last) = (1, 3 + 2 * SWITCHES as u64);
        while next <= last {
            let (fixed, entries) = events(&theirs, next, PART);
            for entry in &entries {
                assert!(entry.number >= next, "{} came after {next}", entry.number);
                next = entry.number + 1;
            }
            assert_eq!(fixed.next, next);
            kernel_host::dispatcher::delay(-10_000);
        }
        theirs.close();
    });
    for _ in 0..SWITCHES {
        set_ndk(&machine, false);
        set_ndk(&machine, true);
    }
    reader.join();
    let (fixed, kept) = events(&file, 0, EVENTS_KEPT + 1);
    assert_eq!((fixed.total, kept.len()), (3 + 2 * SWITCHES as u64, EVENTS_KEPT));
    let oldest = fixed.total + 1 - EVENTS_KEPT as u64;
    assert!(kept.iter().map(|entry| entry.number).eq(oldest..=fixed.total), "numbers without a gap");
    let alternating = kept.chunks_exact(2).map(kinds);
    let expected = [EventKind::NDK_DISABLED, EventKind::NDK_ENABLED];
    assert!(alternating.clone().all(|two| two == expected), "{:?}", alternating.take(3).collect::<Vec<_>>());
    file.close();
    machine.finish();
}

// Rule: IOCTL-15
fn a_session_that_comes_and_goes_has_what_happens_meanwhile() {
    let machine = Machine::start();
    let switch = || {
        set_ndk(&machine, false);
        set_ndk(&machine, true);
        event_tracing::take().iter().map(|event| of_trace(event).0).collect::<Vec<_>>()
    };
    let both = [EventKind::NDK_DISABLED, EventKind::NDK_ENABLED];
    assert_eq!(switch(), []);
    event_tracing::start_session();
    assert_eq!(switch(), both);
    event_tracing::stop_session();
    assert_eq!(switch(), []);
    let sessions = kernel_host::thread::spawn("sessions", || {
        for _ in 0..SWITCHES {
            event_tracing::start_session();
            event_tracing::stop_session();
        }
    });
    for _ in 0..16 {
        assert!(switch().iter().all(|kind| both.contains(kind)));
    }
    sessions.join();
    assert_eq!(switch(), []);
    event_tracing::start_session();
    assert_eq!(switch(), both);
    machine.finish();
}

/// What both ways say of an event.
fn of_trace(event: &TraceEvent) -> (EventKind, u64) {
    let kind = match &*event.name {
        "DriverLoaded" => EventKind::DRIVER_LOADED,
        "AdapterStarted" => EventKind::ADAPTER_STARTED,
        "AdapterHalted" => EventKind::ADAPTER_HALTED,
        "NdkSwitched" if event.number("On") == Some(1) => EventKind::NDK_ENABLED,
        "NdkSwitched" => EventKind::NDK_DISABLED,
        "Refused" => EventKind::REFUSED,
        "DriverUnloaded" => EventKind::DRIVER_UNLOADED,
        "Connection" => (1..=EventKind::CONNECTION_ENDED.0)
            .map(EventKind)
            .find(|kind| kind.name() == Some(event.text("Change")))
            .expect("a change that has a name"),
        other => panic!("{other} is no event of softndk"),
    };
    let number = ["NetLuid", "Object", "Connector"].into_iter().find_map(|field| event.number(field));
    (kind, number.unwrap_or(0))
}

// Rule: IOCTL-15
fn a_trace_has_what_the_list_has() {
    let machine = Machine::traced();
    let file = machine.open();
    provoke(&machine, &file);
    let (_, listed) = events(&file, 0, 99);
    let traced = event_tracing::take();
    assert!(traced.iter().all(|event| event.provider == "SoftNdk"), "{traced:?}");
    // Two processors may report in another order on the two ways.
    let mut of_list =
        listed.iter().map(|entry| (entry.event, if entry.net_luid != 0 { entry.net_luid } else { entry.object }));
    let mut seen = traced.iter().map(of_trace).collect::<Vec<_>>();
    let mut expected = of_list.by_ref().collect::<Vec<_>>();
    seen.sort_unstable();
    expected.sort_unstable();
    assert_eq!(seen, expected);
    for kind in [EventKind::NDK_ENABLED, EventKind::NDK_DISABLED, EventKind::CONNECTION_ENDED, EventKind::REFUSED] {
        assert!(expected.iter().any(|(other, _)| *other == kind), "{kind} was not provoked");
    }
    let refused = listed.iter().find(|entry| entry.event == EventKind::REFUSED).expect("a refusal");
    assert_eq!((refused.call, refused.status), (NdkCall::RECEIVE, Status::NO_MORE_ENTRIES.0));
    assert_eq!((refused.cause, refused.way), (RefusalCause::POST_QUEUE_FULL, RefusalWay::CALL));
    let event = traced.iter().find(|event| event.name == "Refused").expect("a refusal");
    assert_eq!(
        (event.text("Call"), event.text("ObjectKind"), event.text("Rule")),
        ("NdkReceive", "queue pair", "NDK-QP-4")
    );
    assert_eq!(event.number("Status"), Some(Status::NO_MORE_ENTRIES.0.cast_unsigned().into()));
    assert_eq!((event.text("Cause"), event.text("Way")), (refused.cause.name().unwrap_or(""), "call"));
    assert_eq!((event.level, event.keyword), (3, 2));
    let connected = traced.iter().find(|event| event.text("Change") == "connected").expect("a connection");
    let entry = listed.iter().find(|entry| entry.event == EventKind::CONNECTED).expect("a connection");
    assert_eq!(connected.field("Local"), Some(&TraceValue::Bytes(entry.local.bytes[..4].to_vec())));
    assert_eq!(connected.field("Peer"), Some(&TraceValue::Bytes(entry.peer.bytes[..4].to_vec())));
    assert_eq!(
        (connected.number("LocalPort"), connected.number("PeerPort")),
        (Some(entry.ports[0].into()), Some(entry.ports[1].into()))
    );
    file.close();
    machine.finish();
    let last = event_tracing::take();
    let last = last.iter().map(|event| of_trace(event).0).collect::<Vec<_>>();
    assert_eq!(last, [EventKind::ADAPTER_HALTED, EventKind::ADAPTER_HALTED, EventKind::DRIVER_UNLOADED]);
}
