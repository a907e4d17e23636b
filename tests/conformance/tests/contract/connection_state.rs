//! Every call on a connector in every state of it: what is refused, with which status, and that a refusal changes nothing,
//! because the connection goes on afterwards.

use std::net::SocketAddr;

use conformance::case;
use conformance::consumer::{Adapter, Connector, End, Listener, Offer, QueuePairShape, SharedEndpoint, Started};
use conformance::machine::{wait_until_idle, with_two_adapters};
use conformance::peers;
use conformance::trial::Case;
use ndkpi_sys::ndkpi::NDK_OP_FLAGS;
use ndkpi_sys::nt::{
    NTSTATUS, STATUS_CONNECTION_ABORTED, STATUS_CONNECTION_ACTIVE, STATUS_CONNECTION_INVALID,
    STATUS_CONNECTION_REFUSED, STATUS_INVALID_DEVICE_STATE,
};

pub const CASES: &[Case] = &[
    case!(idle_connector_only_connects: "NDK-CM-55", "NDK-CM-38"),
    case!(connecting_connector_waits_for_its_answer: "NDK-CM-55", "NDK-CM-38"),
    case!(answered_connector_completes_or_rejects: "NDK-CM-55", "NDK-CM-34"),
    case!(arrived_connector_is_accepted_or_rejected: "NDK-CM-55", "NDK-CM-38"),
    case!(accepting_connector_waits_for_its_peer: "NDK-CM-55", "NDK-CM-38"),
    case!(connected_connectors_only_disconnect: "NDK-CM-55", "NDK-CM-34"),
    case!(refused_connector_connects_again: "NDK-CM-55", "NDK-CM-36", "NDK-CM-16"),
    case!(connector_that_rejected_is_ended: "NDK-CM-55", "NDK-CM-35"),
    case!(connectors_whose_peer_gave_up_are_aborted: "NDK-CM-55", "NDK-CM-29", "NDK-CM-39"),
    case!(disconnecting_connector_waits_for_its_peer: "NDK-CM-55", "NDK-CM-34"),
    case!(disconnected_connectors_are_ended: "NDK-CM-55", "NDK-CM-35"),
    case!(aborted_connectors_only_disconnect: "NDK-CM-55", "NDK-CM-35"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const INVALID: NTSTATUS = STATUS_CONNECTION_INVALID;
const ACTIVE: NTSTATUS = STATUS_CONNECTION_ACTIVE;
const ABORTED: NTSTATUS = STATUS_CONNECTION_ABORTED;
const NOT_YET: NTSTATUS = STATUS_INVALID_DEVICE_STATE;

/// The statuses of the calls in one state; `None` where the call is allowed and another trial makes it.
#[derive(Clone, Copy, Debug)]
struct Row {
    connect: Option<NTSTATUS>,
    complete: Option<NTSTATUS>,
    accept: Option<NTSTATUS>,
    reject: Option<NTSTATUS>,
    disconnect: Option<NTSTATUS>,
    data: NTSTATUS,
    addresses: NTSTATUS,
}

/// A connector that is not part of a connection any more, and the reason.
const fn over(connect: NTSTATUS, cause: NTSTATUS, data: NTSTATUS) -> Row {
    Row {
        connect: Some(connect),
        complete: Some(cause),
        accept: Some(cause),
        reject: Some(cause),
        disconnect: Some(INVALID),
        data,
        addresses: 0,
    }
}

/// A listener, a side for each end, and a spare queue pair and shared endpoint for the calls that are refused.
struct Scene<'a> {
    listener: Listener,
    active: End<'a>,
    passive: End<'a>,
    spares: [(End<'a>, SharedEndpoint); 2],
}

fn port_zero(adapter: &Adapter) -> SocketAddr {
    SocketAddr::new(adapter.address().ip(), 0)
}

impl<'a> Scene<'a> {
    fn new(first: &'a Adapter, second: &'a Adapter) -> Self {
        let listener = Listener::new(second).expect("a listener");
        assert_eq!(listener.listen(port_zero(second)), 0);
        let end = |adapter| End::new(adapter, QueuePairShape::default());
        let spare =
            |adapter| (end(adapter), SharedEndpoint::new(adapter, port_zero(adapter)).expect("a shared endpoint"));
        Self { listener, active: end(first), passive: end(second), spares: [first, second].map(spare) }
    }

    fn begin(&self, connector: &Connector) -> Started {
        let from = port_zero(self.active.adapter);
        connector.begin_connect(&self.active.queue_pair, from, self.listener.local_address(), &Offer::default())
    }

    fn connecting(&self) -> (Connector, Started, Connector) {
        let near = Connector::new(self.active.adapter).expect("a connector");
        let connecting = self.begin(&near);
        (near, connecting, self.listener.next())
    }

    fn accept(&self, peer: &Connector) -> Started {
        peer.begin_accept(&self.passive.queue_pair, &Offer::default())
    }

    fn answered(&self) -> (Connector, Connector, Started) {
        let (near, connecting, peer) = self.connecting();
        let accepting = self.accept(&peer);
        assert_eq!(connecting.wait(), 0);
        (near, peer, accepting)
    }

    fn established(&self) -> (Connector, Connector) {
        let (near, peer, accepting) = self.answered();
        assert_eq!(near.begin_complete_connect().wait(), 0);
        assert_eq!(accepting.wait(), 0);
        peers::speak(&self.passive);
        (near, peer)
    }

    /// Makes every call that the row refuses; each of them leaves everything as it is.
    fn check(&self, connector: &Connector, is_active: bool, row: Row) {
        // What the peer did has arrived.
        wait_until_idle();
        let (spare, endpoint) = &self.spares[usize::from(!is_active)];
        let to = self.listener.local_address();
        for _ in 0..2 {
            if let Some(status) = row.connect {
                let from = port_zero(spare.adapter);
                let connect = connector.begin_connect(&spare.queue_pair, from, to, &Offer::default()).wait();
                assert_eq!(connect, status, "Connect, {row:?}");
                let over = connector.begin_connect_shared(&spare.queue_pair, endpoint, to, &Offer::default()).wait();
                assert_eq!(over, status, "ConnectWithSharedEndpoint, {row:?}");
            }
            if let Some(status) = row.complete {
                assert_eq!(connector.begin_complete_connect().wait(), status, "CompleteConnect, {row:?}");
                assert_eq!(connector.begin_complete_connect_ex().wait(), status, "CompleteConnectEx, {row:?}");
            }
            if let Some(status) = row.accept {
                let accept = connector.begin_accept(&spare.queue_pair, &Offer::default()).wait();
                assert_eq!(accept, status, "Accept, {row:?}");
                let accept = connector.begin_accept_ex(&spare.queue_pair, &Offer::default()).wait();
                assert_eq!(accept, status, "AcceptEx, {row:?}");
            }
            if let Some(status) = row.reject {
                assert_eq!(connector.reject(b"no"), status, "Reject, {row:?}");
            }
            if let Some(status) = row.disconnect {
                assert_eq!(connector.begin_disconnect().wait(), status, "Disconnect, {row:?}");
            }
            let mut length = 0;
            assert_eq!(connector.connection_data(None, &mut length).0, row.data, "GetConnectionData, {row:?}");
            assert_eq!(connector.address_statuses(), [row.addresses; 2], "Get*Address, {row:?}");
        }
        // The spare queue pair was never claimed: a post on it says that it was never connected.
        assert_eq!(spare.queue_pair.send(1, &[], NONE), INVALID);
    }

    fn carries(&self) {
        assert_eq!(self.passive.queue_pair.receive(1, &[]), 0);
        assert_eq!(self.active.queue_pair.send(1, &[], NONE), 0);
        assert_eq!(self.active.initiator.wait_for_one().Status, 0);
        assert_eq!(self.passive.receive.wait_for_one().Status, 0);
    }

    /// Completes an answered connection, which then works.
    fn complete(&self, near: &Connector, accepting: Started) {
        assert_eq!(near.begin_complete_connect().wait(), 0);
        assert_eq!(accepting.wait(), 0);
        self.carries();
    }
}

fn with_scene(trial: impl FnOnce(&Scene<'_>)) {
    with_two_adapters(|first, second| trial(&Scene::new(first, second)));
}

const FRESH: Row = Row {
    connect: None,
    complete: Some(INVALID),
    accept: Some(INVALID),
    reject: Some(INVALID),
    disconnect: Some(INVALID),
    data: INVALID,
    addresses: NOT_YET,
};

fn idle_connector_only_connects() {
    with_scene(|scene| {
        let near = Connector::new(scene.active.adapter).expect("a connector");
        scene.check(&near, true, FRESH);
        let connecting = scene.begin(&near);
        let peer = scene.listener.next();
        let accepting = scene.accept(&peer);
        assert_eq!(connecting.wait(), 0);
        scene.complete(&near, accepting);
    });
}

fn connecting_connector_waits_for_its_answer() {
    with_scene(|scene| {
        let (near, connecting, peer) = scene.connecting();
        scene.check(&near, true, Row { connect: Some(ACTIVE), addresses: 0, ..FRESH });
        let accepting = scene.accept(&peer);
        assert_eq!(connecting.wait(), 0);
        scene.complete(&near, accepting);
    });
}

fn answered_connector_completes_or_rejects() {
    with_scene(|scene| {
        let (near, _peer, accepting) = scene.answered();
        let row = Row { connect: Some(ACTIVE), complete: None, reject: None, data: 0, addresses: 0, ..FRESH };
        scene.check(&near, true, row);
        scene.complete(&near, accepting);
    });
}

fn arrived_connector_is_accepted_or_rejected() {
    with_scene(|scene| {
        let (near, connecting, peer) = scene.connecting();
        let row = Row { connect: Some(ACTIVE), accept: None, reject: None, data: 0, addresses: 0, ..FRESH };
        scene.check(&peer, false, row);
        let accepting = scene.accept(&peer);
        assert_eq!(connecting.wait(), 0);
        scene.complete(&near, accepting);
    });
}

fn accepting_connector_waits_for_its_peer() {
    with_scene(|scene| {
        let (near, peer, accepting) = scene.answered();
        scene.check(&peer, false, Row { connect: Some(ACTIVE), data: 0, addresses: 0, ..FRESH });
        assert!(!accepting.is_done());
        scene.complete(&near, accepting);
    });
}

fn connected_connectors_only_disconnect() {
    with_scene(|scene| {
        let (near, peer) = scene.established();
        let row = Row { connect: Some(ACTIVE), disconnect: None, data: 0, addresses: 0, ..FRESH };
        scene.check(&near, true, row);
        scene.check(&peer, false, row);
        scene.carries();
        wait_until_idle();
        assert_eq!((near.disconnect_events(), peer.disconnect_events()), (0, 0));
    });
}

fn refused_connector_connects_again() {
    with_scene(|scene| {
        let (near, connecting, peer) = scene.connecting();
        assert_eq!(peer.reject(b"later"), 0);
        assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
        scene.check(&near, true, Row { data: 0, addresses: 0, ..FRESH });
        assert!(near.data().private_data.starts_with(b"later"));
        let connecting = scene.begin(&near);
        let peer = scene.listener.next();
        let accepting = scene.accept(&peer);
        assert_eq!(connecting.wait(), 0);
        scene.complete(&near, accepting);
    });
}

fn connector_that_rejected_is_ended() {
    with_scene(|scene| {
        let (near, connecting, peer) = scene.connecting();
        assert_eq!(peer.reject(&[]), 0);
        assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
        scene.check(&peer, false, over(INVALID, INVALID, 0));
        near.close();
        // The connecting side rejects an answer.
        let (near, peer, accepting) = scene.answered();
        assert_eq!(near.reject(&[]), 0);
        assert_eq!(accepting.wait(), ABORTED);
        scene.check(&near, true, over(INVALID, INVALID, 0));
        scene.check(&peer, false, over(INVALID, ABORTED, 0));
        // Both queue pairs are free for another attempt.
        let (near, peer, accepting) = scene.answered();
        scene.complete(&near, accepting);
        drop(peer);
    });
}

fn connectors_whose_peer_gave_up_are_aborted() {
    with_scene(|scene| {
        // Before the accept.
        let (near, connecting, peer) = scene.connecting();
        near.close();
        assert!(connecting.wait() < 0, "a Connect whose connector was closed");
        scene.check(&peer, false, over(INVALID, ABORTED, 0));
        // The acceptor, before CompleteConnect.
        let (near, peer, accepting) = scene.answered();
        peer.close();
        assert!(accepting.wait() < 0, "an Accept whose connector was closed");
        scene.check(&near, true, over(INVALID, ABORTED, 0));
        wait_until_idle();
        assert_eq!(near.disconnect_events(), 0, "nothing was established");
        let (near, _peer, accepting) = scene.answered();
        scene.complete(&near, accepting);
    });
}

fn disconnecting_connector_waits_for_its_peer() {
    with_scene(|scene| {
        let (near, peer) = scene.established();
        let leaving = near.begin_disconnect();
        assert!(peer.wait_for_disconnect());
        scene.check(&near, true, Row { connect: Some(ACTIVE), data: 0, addresses: 0, ..FRESH });
        scene.check(&peer, false, Row { connect: Some(ACTIVE), disconnect: None, data: 0, addresses: 0, ..FRESH });
        assert!(!leaving.is_done());
        // The other direction still works: an incoming disconnect flushes nothing.
        assert_eq!(peer.begin_disconnect().wait(), 0);
        assert_eq!(leaving.wait(), 0);
    });
}

fn disconnected_connectors_are_ended() {
    with_scene(|scene| {
        let (near, peer) = scene.established();
        let leaving = near.begin_disconnect();
        assert!(peer.wait_for_disconnect());
        assert_eq!(peer.begin_disconnect().wait(), 0);
        assert_eq!(leaving.wait(), 0);
        for (connector, is_active) in [(&near, true), (&peer, false)] {
            scene.check(connector, is_active, over(INVALID, INVALID, 0));
        }
        // The queue pair is used up as well.
        let again = Connector::new(scene.active.adapter).expect("a connector");
        assert_eq!(scene.begin(&again).wait(), ACTIVE);
    });
}

fn aborted_connectors_only_disconnect() {
    with_two_adapters(|first, second| {
        for closes_active in [true, false] {
            let scene = Scene::new(first, second);
            let (near, peer) = scene.established();
            let (closing, left) = if closes_active { (near, peer) } else { (peer, near) };
            closing.close();
            assert!(left.wait_for_disconnect());
            scene.check(&left, !closes_active, Row { disconnect: None, ..over(INVALID, INVALID, 0) });
            assert_eq!(left.begin_disconnect().wait(), 0, "a Disconnect when the peer has gone already");
            scene.check(&left, !closes_active, over(INVALID, INVALID, 0));
            assert_eq!(left.disconnect_events(), 1);
        }
    });
}
