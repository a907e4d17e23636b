//! NDK switched off and on under consumers: which events each of them gets, how long the event pends, requests that cross, and the
//! keyword that decides.

use std::net::SocketAddr;

use conformance::case;
use conformance::consumer::{Adapter, Connector, End, Listener, Offer, Pair, QueuePairShape};
use conformance::machine::{Machine, Setup, wait_until_idle, with_machine};
use conformance::trial::Case;
use kernel_host::HaltAction;
use kernel_host::fault::{self, Site};
use kernel_host::ndis::life_cycle::DeviceEvent;
use ndkpi_sys::ndis::{NDIS_STATUS_ADAPTER_NOT_READY, NDIS_STATUS_FAILURE, NDIS_STATUS_RESOURCES, OID_NDK_SET_STATE};
use ndkpi_sys::ndkinfo::{NDK_RDMA_TECHNOLOGY, NDK_VERSION, NdkRoCEv2, NdkiWarp};
use ndkpi_sys::nt::{NTSTATUS, STATUS_CANCELLED, STATUS_CONNECTION_REFUSED};

pub const CASES: &[Case] = &[
    case!(requests_that_cross_end_in_the_last_one: "NDIS-OID-8", "NDIS-OID-21"),
    case!(disable_is_in_force_when_the_request_returns: "NDIS-OID-8", "NDK-OPEN-3"),
    case!(repeated_requests_raise_no_event: "NDIS-OID-21"),
    case!(disable_notifies_every_consumer_and_waits_for_the_last_close: "NDIS-OID-11", "NDIS-OID-22", "NDK-OPEN-3"),
    case!(disable_leaves_the_other_adapter_open: "NDIS-OID-22"),
    case!(adapter_that_starts_disabled_is_enabled_by_request: "NDIS-OID-8", "NDIS-OID-10"),
    case!(enable_that_meets_a_surprise_removal_lets_no_context_in: "NDIS-LIFE-3", "NDIS-OID-8"),
    case!(event_that_fails_is_raised_again: "NDIS-OID-11"),
    case!(event_that_is_refused_is_not_raised_without_end: "NDIS-OID-11"),
    case!(request_taken_back_before_its_event_is_raised: "NDIS-OID-11"),
    case!(address_that_goes_without_memory_is_missed_later: "NDK-CM-45"),
    case!(keyword_names_the_technology: "NDK-INFO-7"),
];

const ANY: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 0 };

/// NDIS waits for the answer of the handler, which may not pend.
fn set_state(adapter: &kernel_host::Adapter, enable: bool) {
    let answer = adapter.set_oid(OID_NDK_SET_STATE, &[u8::from(enable)]).expect("a started adapter");
    assert_eq!((answer.status, answer.bytes_done), (0, 1));
}

/// What the provider itself says, when NDIS does not ask first.
fn open_directly(adapter: &kernel_host::Adapter) -> Result<(), NTSTATUS> {
    adapter.open_ndk_directly(ANY).map(drop)
}

fn assert_alternating(events: &[bool], first: bool) {
    for (index, event) in events.iter().enumerate() {
        assert_eq!(*event, first ^ (index % 2 == 1), "events {events:?}");
    }
}

fn requests_that_cross_end_in_the_last_one() {
    with_machine(&Setup::default(), |machine| {
        let adapter = &machine.adapters[0];
        for last in [true, false, true] {
            for round in 0..40_u32 {
                set_state(adapter, round.is_multiple_of(2));
                if round.is_multiple_of(7) {
                    wait_until_idle();
                }
            }
            set_state(adapter, last);
            wait_until_idle();
            assert_eq!(adapter.is_ndk_enabled(), last);
            assert_eq!(open_directly(adapter).is_ok(), last, "the provider agrees with NDIS");
            let events = adapter.ndk_events();
            assert!(events.len() >= 2, "some of the requests were reported: {events:?}");
            assert_alternating(&events, false);
        }
    });
}

fn disable_is_in_force_when_the_request_returns() {
    with_machine(&Setup::default(), |machine| {
        let adapter = &machine.adapters[0];
        for _ in 0..20 {
            set_state(adapter, false);
            // NDIS may not have the event yet; the provider refuses by itself.
            assert_eq!(open_directly(adapter), Err(NDIS_STATUS_ADAPTER_NOT_READY));
            wait_until_idle();
            set_state(adapter, true);
            wait_until_idle();
            assert_eq!(open_directly(adapter), Ok(()));
        }
    });
}

fn repeated_requests_raise_no_event() {
    with_machine(&Setup::default(), |machine| {
        let adapter = &machine.adapters[0];
        let repeat = |enable| {
            for _ in 0..3 {
                set_state(adapter, enable);
                wait_until_idle();
            }
        };
        repeat(true);
        assert_eq!(adapter.ndk_events(), [] as [bool; 0]);
        repeat(false);
        assert_eq!(adapter.ndk_events(), [false]);
        repeat(true);
        assert_eq!(adapter.ndk_events(), [false, true]);
    });
}

fn any_port(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), 0)
}

fn listening(adapter: &Adapter) -> Listener {
    let listener = Listener::new(adapter).expect("a listener");
    assert_eq!(listener.listen(any_port(adapter.address())), 0);
    listener
}

fn disable_notifies_every_consumer_and_waits_for_the_last_close() {
    with_machine(&Setup::default(), |machine| {
        let adapter = &machine.adapters[0];
        let (first, second) = (machine.open(0), machine.open(1));
        {
            let pair = Pair::connect(&first, &second);
            assert_eq!(pair.active.queue_pair.receive(7, &[]), 0);
            // A Connect without an answer, in either direction.
            let (near, peer) = (listening(&first), listening(&second));
            let (leaving, coming) =
                (End::new(&first, QueuePairShape::default()), End::new(&second, QueuePairShape::default()));
            let (outward, inward) = (Connector::new(&first).expect("one"), Connector::new(&second).expect("one"));
            let offer = Offer::default();
            let out =
                outward.begin_connect(&leaving.queue_pair, any_port(first.address()), peer.local_address(), &offer);
            let into =
                inward.begin_connect(&coming.queue_pair, any_port(second.address()), near.local_address(), &offer);
            let arrived = [near.next(), peer.next()];
            assert!(!out.is_done() && !into.is_done());

            set_state(adapter, false);
            wait_until_idle();
            assert_eq!(adapter.ndk_events(), [false]);
            assert!(!adapter.is_ndk_enabled());
            assert_eq!(adapter.ndk_opens(), 1, "the event waits for the consumer's own close");
            assert!(pair.active.connector().wait_for_disconnect(), "at the adapter that is switched off");
            assert!(pair.passive.connector().wait_for_disconnect(), "at the other one");
            assert!(out.is_done() && out.wait() != 0, "the connect that left: {:#x}", out.wait());
            assert_eq!(into.wait(), STATUS_CONNECTION_REFUSED, "the connect that came");
            pair.active.queue_pair.flush();
            assert_eq!(pair.active.receive.wait_for_one().Status, STATUS_CANCELLED);

            // Enabling is accepted at once, and comes after the disable that is under way.
            set_state(adapter, true);
            wait_until_idle();
            assert_eq!(adapter.ndk_events(), [false], "the disable is not over");
            assert_eq!(open_directly(adapter), Err(NDIS_STATUS_ADAPTER_NOT_READY));
            drop(arrived);
        }
        drop(first);
        wait_until_idle();
        assert_eq!(adapter.ndk_events(), [false, true]);
        let again = machine.open(0);
        drop(Pair::connect(&again, &second));
    });
}

fn disable_leaves_the_other_adapter_open() {
    with_machine(&Setup::default(), |machine| {
        let (second, alone) = (machine.open(1), machine.open(1));
        let pair = Pair::connect(&second, &alone);
        set_state(&machine.adapters[0], false);
        wait_until_idle();
        assert!(machine.adapters[1].is_ndk_enabled());
        assert_eq!(machine.adapters[1].ndk_events(), [] as [bool; 0]);
        assert_eq!(pair.active.connector().disconnect_events(), 0);
        assert_eq!(pair.passive.queue_pair.receive(1, &[]), 0);
        assert_eq!(pair.active.queue_pair.send(2, &[], ndkpi_sys::ndkpi::NDK_OP_FLAGS::empty()), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
    });
}

fn adapter_that_starts_disabled_is_enabled_by_request() {
    let mut setup = Setup::default();
    setup.adapters[0].keywords.push(("*NetworkDirect", "0"));
    with_machine(&setup, |machine| {
        let adapter = &machine.adapters[0];
        assert_eq!(open_directly(adapter), Err(NDIS_STATUS_ADAPTER_NOT_READY));
        set_state(adapter, true);
        wait_until_idle();
        assert_eq!(adapter.ndk_events(), [] as [bool; 0], "the keyword forbids it");
        assert_eq!(open_directly(adapter), Err(NDIS_STATUS_ADAPTER_NOT_READY));
        adapter.set_keyword("*NetworkDirect", "1");
        set_state(adapter, true);
        wait_until_idle();
        assert_eq!(adapter.ndk_events(), [true], "the keyword is read when it is asked for");
        let (first, second) = (machine.open(0), machine.open(1));
        drop(Pair::connect(&first, &second));
    });
}

fn enable_that_meets_a_surprise_removal_lets_no_context_in() {
    with_machine(&Setup::default(), |machine| {
        let adapter = &machine.adapters[0];
        for round in 0..20 {
            set_state(adapter, false);
            wait_until_idle();
            set_state(adapter, true);
            if round % 2 == 1 {
                wait_until_idle();
            }
            adapter.device_event(DeviceEvent::SurpriseRemoved).expect("a started adapter");
            for _ in 0..3 {
                assert_eq!(open_directly(adapter), Err(NDIS_STATUS_ADAPTER_NOT_READY), "round {round}");
                wait_until_idle();
            }
            adapter.halt(HaltAction::SurpriseRemoved).expect("a halt");
            adapter.start().unwrap_or_else(|error| panic!("starting again: {error}"));
        }
    });
}

/// The site of `export` that `once` reaches.
fn site_of(export: &str, once: impl FnOnce()) -> Site {
    fault::start_recording();
    once();
    let sites = fault::sites();
    fault::stop();
    sites.iter().find(|record| record.export == export).unwrap_or_else(|| panic!("no {export}")).site
}

fn event_that_fails_is_raised_again() {
    with_machine(&Setup::default(), |machine| {
        let adapter = &machine.adapters[0];
        let site = site_of("NdisMNetPnPEvent", || {
            set_state(adapter, false);
            wait_until_idle();
        });
        for enable in [true, false, true] {
            let before = adapter.ndk_events().len();
            fault::fail(site, 1);
            set_state(adapter, enable);
            kernel_host::dispatcher::delay(-5_000_000);
            fault::stop();
            assert_eq!(adapter.is_ndk_enabled(), enable, "NDIS got the event at the second try");
            assert_eq!(adapter.ndk_events()[before..], [enable]);
        }
        drop(machine.open(0));
    });
}

fn event_that_is_refused_is_not_raised_without_end() {
    with_machine(&Setup::default(), |machine| {
        let adapter = &machine.adapters[0];
        for enable in [false, true] {
            // For a status that a retry does not change: once a request, and no more.
            let before = adapter.ndk_events().len();
            adapter.refuse_ndk_events(Some(NDIS_STATUS_FAILURE));
            set_state(adapter, enable);
            kernel_host::dispatcher::delay(-600_000_000);
            assert_eq!(adapter.ndk_events_refused(), 1, "an event that NDIS refuses");
            set_state(adapter, enable);
            wait_until_idle();
            assert_eq!(adapter.ndk_events_refused(), 2, "asked for again, raised again");
            // For lack of resources: after longer and longer pauses, and not without end.
            adapter.refuse_ndk_events(Some(NDIS_STATUS_RESOURCES));
            set_state(adapter, enable);
            kernel_host::dispatcher::delay(-10_000_000);
            let soon = adapter.ndk_events_refused();
            assert!((2..=5).contains(&soon), "{soon} in the first second");
            kernel_host::dispatcher::delay(-6_000_000_000);
            let late = adapter.ndk_events_refused();
            assert!((soon + 1..=16).contains(&late), "{late} in ten minutes");
            kernel_host::dispatcher::delay(-6_000_000_000);
            assert_eq!(adapter.ndk_events_refused(), late, "given up");
            // An event that was given up is raised with the next request.
            adapter.refuse_ndk_events(None);
            assert_eq!(adapter.ndk_events().len(), before);
            set_state(adapter, enable);
            wait_until_idle();
            assert_eq!(adapter.ndk_events()[before..], [enable]);
            assert_eq!(open_directly(adapter).is_ok(), enable);
        }
    });
}

fn request_taken_back_before_its_event_is_raised() {
    with_machine(&Setup::default(), |machine| {
        let adapter = &machine.adapters[0];
        let site = site_of("NdisMNetPnPEvent", || {
            set_state(adapter, false);
            wait_until_idle();
        });
        for enable in [true, false, true] {
            // Each way round: the event fails once, and before it is raised again the opposite is asked for.
            let before = adapter.ndk_events().len();
            fault::fail(site, 1);
            set_state(adapter, enable);
            kernel_host::dispatcher::delay(-200_000);
            set_state(adapter, !enable);
            kernel_host::dispatcher::delay(-5_000_000);
            fault::stop();
            assert_eq!(open_directly(adapter).is_ok(), !enable, "what was asked for last is so");
            set_state(adapter, enable);
            wait_until_idle();
            assert_eq!(adapter.ndk_events()[before..], [enable], "NDIS got an event for the last change only");
        }
        drop(machine.open(0));
    });
}

fn address_that_goes_without_memory_is_missed_later() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let address = first.address().ip();
        let toggle = || {
            machine.remove_address(0, address);
            assert!(machine.adapters[0].add_address(address, 24));
            wait_until_idle();
        };
        fault::start_recording();
        toggle();
        let sites = fault::sites();
        fault::stop();
        assert!(sites.len() >= 3, "the table, the snapshot and the engine's list: {}", sites.len());
        for record in &sites {
            let pair = Pair::connect(&first, &second);
            fault::fail(record.site, 1);
            machine.remove_address(0, address);
            kernel_host::dispatcher::delay(-5_000_000);
            fault::stop();
            assert_eq!(pair.active.connector().disconnect_events(), 1, "{}: the address is gone", record.export);
            drop(pair);
            assert!(machine.adapters[0].add_address(address, 24));
            wait_until_idle();
        }
    });
}

fn keyword_names_the_technology() {
    // A technology that the adapter does not have, and a value that is no number, give the default.
    let values: [(&str, NDK_RDMA_TECHNOLOGY); 7] = [
        ("1", NdkiWarp),
        ("4", NdkRoCEv2),
        ("0", NdkiWarp),
        ("2", NdkiWarp),
        ("3", NdkiWarp),
        ("5", NdkiWarp),
        ("four", NdkiWarp),
    ];
    with_machine(&Setup::default(), |machine: &Machine| {
        let adapter = &machine.adapters[0];
        for (value, technology) in values {
            adapter.set_keyword("*NetworkDirectTechnology", value);
            adapter.halt(HaltAction::DeviceDisabled).expect("a halt");
            adapter.start().unwrap_or_else(|error| panic!("starting again: {error}"));
            assert_eq!(machine.open(0).info().RdmaTechnology, technology, "{value}");
        }
    });
}
