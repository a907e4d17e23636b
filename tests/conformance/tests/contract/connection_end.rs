//! How connections end and which side gets an event: with Disconnect, without, from both sides at once, by a failed request, by an address
//! or adapter that is removed; each time one disconnect event at most, with its reason.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, Connector, End, Listener, Offer, Pair, QueuePairShape, Remote, Window, WindowKind,
};
use conformance::machine::{Machine, Setup, wait_until_idle, with_machine, with_two_adapters};
use conformance::peers;
use conformance::trial::Case;
use ndkpi_sys::ndis::OID_NDK_SET_STATE;
use ndkpi_sys::ndkpi::{NDK_OP_FLAG_SILENT_SUCCESS, NDK_OP_FLAGS};
use ndkpi_sys::nt::{STATUS_CANCELLED, STATUS_CONNECTION_ABORTED, STATUS_REMOTE_RESOURCES};

pub const CASES: &[Case] = &[
    case!(events_say_why_and_come_once: "NDK-CM-41", "NDK-CM-22", "NDK-CM-25", "NDK-CM-8"),
    case!(vanished_address_and_disabled_adapter_are_reasons: "NDK-CM-41", "NDK-CM-45"),
    case!(connections_without_disconnect_events_end_as_others: "NDK-CM-40", "NDK-CM-7"),
    case!(abort_by_the_peer_fails_a_pending_disconnect: "NDK-CM-28"),
    case!(disconnect_completes_when_the_memory_is_at_rest: "NDK-CM-27", "NDK-CM-24"),
    case!(event_may_disconnect_or_close: "NDK-CM-26", "NDK-CM-25"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();

/// The reasons of `docs/connections.md`.
mod reason {
    pub const DISCONNECTED: u32 = 1;
    pub const CLOSED: u32 = 2;
    pub const PEER_FAILED: u32 = 3;
    pub const PEER_ADDRESS_GONE: u32 = 5;
    pub const PEER_ADAPTER_GONE: u32 = 6;
    pub const ADDRESS_GONE: u32 = 7;
    pub const ADAPTER_GONE: u32 = 8;
}

/// Which disconnect event both sides register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Events {
    WithReason,
    Unregistered,
}

fn port_zero(adapter: &Adapter) -> SocketAddr {
    SocketAddr::new(adapter.address().ip(), 0)
}

/// Connects two adapters, both sides with the extended event or with none.
fn connect<'a>(first: &'a Adapter, second: &'a Adapter, events: Events) -> Pair<'a> {
    let mut active = End::new(first, QueuePairShape::default());
    let mut passive = End::new(second, QueuePairShape::default());
    let listener = Listener::new(second).expect("a listener");
    assert_eq!(listener.listen(port_zero(second)), 0);
    let near = Connector::new(first).expect("a connector");
    let (to, offer) = (listener.local_address(), Offer::default());
    let connecting = near.begin_connect(&active.queue_pair, port_zero(first), to, &offer);
    let peer = listener.next();
    let accepting = match events {
        Events::WithReason => peer.begin_accept_ex(&passive.queue_pair, &offer),
        Events::Unregistered => peer.begin_accept_without_event(&passive.queue_pair, &offer),
    };
    assert_eq!(connecting.wait(), 0);
    let completing = match events {
        Events::WithReason => near.begin_complete_connect_ex(),
        Events::Unregistered => near.begin_complete_connect_without_event(),
    };
    assert_eq!(completing.wait(), 0);
    assert_eq!(accepting.wait(), 0);
    active.connector = Some(near);
    passive.connector = Some(peer);
    Pair { active, passive, listener }
}

/// Events and reason at one end.
fn events_of(end: &End<'_>) -> (u32, u32) {
    (end.connector().disconnect_events(), end.connector().disconnect_reason())
}

/// A request that cannot succeed: no region has the token.
fn fail_a_request(end: &End<'_>) {
    let nowhere = Remote { address: 0, token: 0x1234_5678 };
    let buffer = Window::open(end, Buffer::scattered(64), WindowKind::Registered);
    assert_eq!(end.queue_pair.write(1, &[buffer.sge(0..64)], nowhere, NONE), 0);
    assert_eq!(end.initiator.wait_for_one().Status, peers::late(STATUS_REMOTE_RESOURCES));
}

fn events_say_why_and_come_once() {
    with_two_adapters(|first, second| {
        type Ending = (&'static str, fn(&End<'_>), u32);
        let endings: [Ending; 3] = [
            ("disconnect", |near| assert!(near.connector().begin_disconnect().inline() >= 0), reason::DISCONNECTED),
            ("close", |near| near.connector().close(), reason::CLOSED),
            ("failed request", fail_a_request, reason::PEER_FAILED),
        ];
        for (name, end, why) in endings {
            for from_active in [true, false] {
                let pair = connect(first, second, Events::WithReason);
                peers::speak(&pair.passive);
                let (near, peer) =
                    if from_active { (&pair.active, &pair.passive) } else { (&pair.passive, &pair.active) };
                end(near);
                assert!(peer.connector().wait_for_disconnect(), "{name} gives no event");
                wait_until_idle();
                assert_eq!(events_of(peer), (1, why), "{name}, from the active side: {from_active}");
                assert_eq!(peer.connector().begin_disconnect().wait(), 0);
                wait_until_idle();
                assert_eq!(events_of(peer), (1, why));
                // A Write that the peer refuses has succeeded across a stream, so the side that posted it has not ended anything.
                let events = u32::from(name == "failed request" && peers::across_streams());
                assert_eq!(near.connector().disconnect_events(), events, "the side that ends a connection: {name}");
            }
        }
    });
}

fn vanished_address_and_disabled_adapter_are_reasons() {
    type Ending = (fn(&Machine), u32, u32);
    let endings: [Ending; 2] = [
        (
            |machine| {
                machine.remove_address(1, [10, 0, 0, 2].into());
                machine.add_address(1, [10, 0, 0, 2].into());
            },
            reason::ADDRESS_GONE,
            reason::PEER_ADDRESS_GONE,
        ),
        (
            |machine| {
                let answer = machine.adapters[1].set_oid(OID_NDK_SET_STATE, &[0]).expect("a started adapter");
                assert_eq!(answer.status, 0);
            },
            reason::ADAPTER_GONE,
            reason::PEER_ADAPTER_GONE,
        ),
    ];
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        for (end, ours, theirs) in endings {
            let pair = connect(&first, &second, Events::WithReason);
            end(machine);
            for side in [&pair.active, &pair.passive] {
                assert!(side.connector().wait_for_disconnect(), "an end that neither side made gives events");
            }
            wait_until_idle();
            // A stream that is broken says no reason, at the end of an address that goes neither: TCP may be the first to break it.
            let theirs = if peers::across_streams() { reason::CLOSED } else { theirs };
            assert_eq!(events_of(&pair.active), (1, theirs));
            let was_broken_first = peers::across_streams() && events_of(&pair.passive) == (1, reason::CLOSED);
            assert!(was_broken_first || events_of(&pair.passive) == (1, ours), "{:?}", events_of(&pair.passive));
        }
    });
}

fn connections_without_disconnect_events_end_as_others() {
    with_two_adapters(|first, second| {
        let pair = connect(first, second, Events::Unregistered);
        let leaving = pair.active.connector().begin_disconnect();
        wait_until_idle();
        assert!(!leaving.is_done());
        assert_eq!(pair.passive.connector().begin_disconnect().wait(), 0);
        assert_eq!(leaving.wait(), 0);
        let pair = connect(first, second, Events::Unregistered);
        pair.passive.connector().close();
        wait_until_idle();
        assert_eq!(pair.active.queue_pair.send(1, &[], NONE), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, STATUS_CANCELLED);
        assert_eq!((events_of(&pair.active), pair.active.connector().begin_disconnect().wait()), ((0, 0), 0));
    });
}

fn abort_by_the_peer_fails_a_pending_disconnect() {
    with_two_adapters(|first, second| {
        for from_active in [true, false] {
            let pair = connect(first, second, Events::WithReason);
            let (near, peer) = if from_active { (&pair.active, &pair.passive) } else { (&pair.passive, &pair.active) };
            assert_eq!(near.queue_pair.receive(5, &[]), 0);
            let leaving = near.connector().begin_disconnect();
            assert!(peer.connector().wait_for_disconnect());
            peer.connector().close();
            assert_eq!(leaving.wait(), STATUS_CONNECTION_ABORTED);
            assert_eq!(near.receive.wait_for_one().Status, STATUS_CANCELLED, "it is fully closed all the same");
            wait_until_idle();
            assert_eq!(near.connector().disconnect_events(), 0);
        }
    });
}

fn disconnect_completes_when_the_memory_is_at_rest() {
    const LENGTH: usize = 1 << 20;
    const REQUESTS: u64 = 8;
    with_two_adapters(|first, second| {
        let pair = connect(first, second, Events::WithReason);
        let near = Window::open(&pair.active, Buffer::scattered(LENGTH), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(LENGTH), WindowKind::Registered);
        near.buffer.fill(|_| 0x11);
        for request in 0..REQUESTS {
            let flags = if request % 2 == 0 { NDK_OP_FLAG_SILENT_SUCCESS } else { NONE };
            let posted = pair.active.queue_pair.write(request, &near.in_sges(1), peer.remote(0), flags);
            assert_eq!(posted, 0);
        }
        let leaving = pair.active.connector().begin_disconnect();
        assert!(pair.passive.connector().wait_for_disconnect());
        assert_eq!(pair.passive.connector().begin_disconnect().wait(), 0);
        assert_eq!(leaving.wait(), 0);
        // Nothing is written any more, by silent requests neither, and every result is there.
        peer.buffer.fill(|_| 0x22);
        let seen = pair.active.initiator.take(REQUESTS as usize * 2);
        wait_until_idle();
        peer.buffer.assert_all(0x22);
        assert!(pair.active.initiator.take(1).is_empty(), "a result after Disconnect had completed");
        let loud = seen.iter().filter(|result| result.RequestContext as u64 % 2 == 1).count();
        assert_eq!(loud as u64, REQUESTS / 2, "each request that is not silent has its result");
    });
}

fn event_may_disconnect_or_close() {
    with_two_adapters(|first, second| {
        for closes in [false, true] {
            let pair = connect(first, second, Events::WithReason);
            let (connector, answer) = (pair.passive.connector.as_ref(), Arc::new(Mutex::new(None)));
            let peer = std::ptr::from_ref(connector.expect("a connected end")) as usize;
            let begun = answer.clone();
            pair.passive.connector().on_disconnect(move || {
                // SAFETY: the connector stays where it is until the pair goes, which is after the event.
                let peer = unsafe { &*(peer as *const Connector) };
                let started = if closes { peer.object().begin_close() } else { peer.begin_disconnect() };
                *begun.lock().expect("no other context holds it") = Some(started);
            });
            let status = pair.active.connector().begin_disconnect().wait();
            assert_eq!(status, if closes { STATUS_CONNECTION_ABORTED } else { 0 }, "the event closes: {closes}");
            assert!(pair.passive.connector().wait_for_disconnect());
            let started = answer.lock().expect("no other context holds it").take().expect("the event ran");
            assert_eq!(started.wait(), 0);
            wait_until_idle();
            assert_eq!(pair.active.connector().disconnect_events(), 0);
        }
    });
}
