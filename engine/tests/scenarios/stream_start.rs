//! Who sends first across a stream, and what becomes of a first frame that is not seen: the peer is bytes on a connection in memory.

use std::net::SocketAddr;

use softndk_engine::limits::{NUDGE_AFTER, NUDGES};
use softndk_engine::{AdapterSettings, Arrived, DisconnectReason, Outcome, RequestFlags, Semantics, Socket as _};
use softndk_engine_kit::{
    A, ACCEPT, B, CLOSE, CONNECT, Depths, Event, FIRST, GONE, Network, Pair, SECOND, TcpListeningSocket, TcpSocket,
    Travel, World, outcomes,
};

const NONE: RequestFlags = RequestFlags::empty();

/// An empty Write as iWARP has it, with its CRC.
const EMPTY_WRITE: [u8; 20] = [0, 0x0E, 0xC1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0xEB, 0xD3, 0x4C, 0x5F];

/// A start-up frame of revision 2 with CRC: one Read each way, and whether a ready-to-receive Write is meant.
fn start_frame(kind: &str, is_peer_to_peer: bool) -> Vec<u8> {
    let first = if is_peer_to_peer { 0x80 } else { 0 };
    [format!("MPA ID {kind} Frame").as_bytes(), &[0x50, 2, 0, 4, first, 1, first, 1]].concat()
}

fn unconnected() -> Pair {
    let world = World::with_travel(Travel::Exactly(0), AdapterSettings::default());
    Pair::unconnected(world, Semantics::NDK, Depths::default())
}

fn send(pair: &mut Pair, peer: &mut TcpSocket, bytes: &[u8]) {
    assert_eq!(peer.send(bytes), bytes.len());
    pair.world.run();
}

/// A responder of bytes, to which A connects; what it listens with and the connection, with the Request taken.
fn responder(pair: &mut Pair) -> (TcpListeningSocket, TcpSocket) {
    let (listener, peer, request) = pair.connect_to_bytes(1);
    assert!(request.starts_with(b"MPA ID Req Frame"));
    (listener, peer)
}

/// A connects to a responder of bytes and has completed; its first frame is there.
fn connected(pair: &mut Pair) -> (TcpListeningSocket, TcpSocket) {
    let (listener, mut peer) = responder(pair);
    peer.send(&start_frame("Rep", true));
    assert_eq!(pair.world.run(), [Event::Completed(A + CONNECT, Ok(()))]);
    pair.a.connector.complete_connect(Some(A + GONE), A + ACCEPT).unwrap();
    pair.world.run();
    assert_eq!(peer.take_received(), EMPTY_WRITE);
    (listener, peer)
}

/// Each empty Write has a time of its own, and there are no more than a few.
#[test]
fn first_frame_without_an_answer_is_followed_by_empty_writes() {
    let mut pair = unconnected();
    let (listener, mut peer) = connected(&mut pair);
    for _ in 0..NUDGES {
        pair.world.advance(NUDGE_AFTER - 1);
        assert_eq!(peer.take_received(), [], "too early");
        pair.world.advance(1);
        assert_eq!(peer.take_received(), EMPTY_WRITE);
    }
    pair.world.advance(100 * NUDGE_AFTER);
    assert_eq!(peer.take_received(), [], "too many");
    drop((peer, listener));
    pair.close();
}

/// Anything from the peer, were it a part of a frame, says that it looks.
#[test]
fn first_frame_with_an_answer_is_not_followed() {
    for (length, before) in [(20, 0), (1, 0), (20, 1)] {
        let mut pair = unconnected();
        let (listener, mut peer) = connected(&mut pair);
        for _ in 0..before {
            pair.world.advance(NUDGE_AFTER);
            assert_eq!(peer.take_received(), EMPTY_WRITE);
        }
        send(&mut pair, &mut peer, &EMPTY_WRITE[..length]);
        pair.world.advance(100 * NUDGE_AFTER);
        assert_eq!(peer.take_received(), []);
        drop((peer, listener));
        pair.close();
    }
}

/// A Disconnect is looked at only when an empty Write is due: the end goes out all the same.
#[test]
fn an_empty_write_that_is_due_keeps_no_end_back() {
    let mut pair = unconnected();
    let (listener, mut peer) = connected(&mut pair);
    pair.a.connector.disconnect(A + CLOSE).unwrap();
    pair.world.advance(NUDGE_AFTER);
    let _empty_write = peer.take_received();
    assert_eq!(peer.receive(), Arrived::Finished);
    drop((peer, listener));
    pair.close();
}

/// A consumer sees nothing of them, and none follows a disconnect.
#[test]
fn empty_writes_are_nothing_to_consumers() {
    let mut pair = Pair::in_world(
        World::with_travel(Travel::Exactly(1000), AdapterSettings::default()),
        Semantics::NDK,
        Depths::default(),
    );
    assert_eq!(pair.world.advance(10 * NUDGE_AFTER), []);
    assert_eq!((outcomes(&pair.a.initiator), outcomes(&pair.b.receiver)), (vec![], vec![]));
    pair.b.pair.receive(1, std::iter::empty()).unwrap();
    pair.a.pair.send(2, NONE, std::iter::empty()).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(2, Outcome::Success)]);
    assert_eq!(outcomes(&pair.b.receiver), [(1, Outcome::Success)]);
    pair.close();

    let mut pair = unconnected();
    let (listener, mut peer) = connected(&mut pair);
    pair.a.connector.disconnect(A + CLOSE).unwrap();
    pair.world.run_what_is_scheduled();
    pair.world.advance(10 * NUDGE_AFTER);
    assert_eq!(peer.take_received(), []);
    drop((peer, listener));
    pair.close();
}

/// An initiator that is to send first: the Accept is complete with the Reply, and what the consumer sends waits for the first frame.
#[test]
fn accept_of_a_client_is_complete_with_its_reply() {
    let mut pair = unconnected();
    let network = pair.world.harness().network.clone();
    let mut peer = Network::dial(&network, SocketAddr::new(FIRST, 1000), SocketAddr::new(SECOND, 445));
    send(&mut pair, &mut peer, &start_frame("Req", false));
    pair.take_arrived();
    pair.accept().unwrap();
    assert_eq!(pair.world.run(), [Event::Completed(B + ACCEPT, Ok(()))]);
    assert!(peer.take_received().starts_with(b"MPA ID Rep Frame"));
    pair.b.pair.send(1, NONE, std::iter::empty()).unwrap();
    pair.world.advance(10 * NUDGE_AFTER);
    assert_eq!(peer.take_received(), [], "a responder sends nothing first");
    assert_eq!(outcomes(&pair.b.initiator), []);
    send(&mut pair, &mut peer, &EMPTY_WRITE);
    let send = peer.take_received();
    assert_eq!((send.len(), &send[..4]), (24, &[0, 18, 0x41, 0x43][..]));
    assert_eq!(outcomes(&pair.b.initiator), [(1, Outcome::Success)]);
    drop(peer);
    pair.close();
}

/// Until the peer has sent something behind its start-up frame, an end is a FIN: siw as responder does not survive a reset there.
#[test]
fn end_before_anything_has_come_is_no_reset() {
    for is_complete in [false, true] {
        let mut pair = unconnected();
        let (listener, mut peer) = if is_complete {
            connected(&mut pair)
        } else {
            let (listener, mut peer) = responder(&mut pair);
            peer.send(&start_frame("Rep", true));
            pair.world.run();
            (listener, peer)
        };
        drop(pair.a.connector.close(A + CLOSE));
        pair.world.run();
        assert_eq!(peer.receive(), Arrived::Finished);
        // From here on it is established: nothing takes what it sends.
        send(&mut pair, &mut peer, &EMPTY_WRITE);
        assert_eq!(peer.receive(), Arrived::Reset);
        drop((peer, listener));
        pair.close();
    }
}

/// The peer of a softndk that is closed so sees a disconnect.
#[test]
fn end_before_anything_has_come_is_a_disconnect_to_the_peer() {
    for has_spoken in [false, true] {
        let mut pair = Pair::new();
        if has_spoken {
            pair.speak();
        }
        drop(pair.a.connector.close(A + CLOSE));
        assert_eq!(pair.world.run(), [Event::Disconnected(B + GONE)]);
        let expected = if has_spoken { DisconnectReason::Closed } else { DisconnectReason::Disconnected };
        assert_eq!(pair.world.events.reasons, [expected]);
        pair.close();
    }
}

/// A reset that comes right after a request has been sent does not cancel it.
#[test]
fn a_request_that_has_been_sent_succeeds_though_the_peer_breaks_at_once() {
    let mut pair = unconnected();
    let (listener, mut peer) = connected(&mut pair);
    pair.a.pair.send(1, RequestFlags::DEFER, std::iter::empty()).unwrap();
    assert_eq!(peer.send(&EMPTY_WRITE), EMPTY_WRITE.len());
    let sent = (0..100).find_map(|_| {
        pair.world.step(1);
        Some(peer.take_received()).filter(|bytes| !bytes.is_empty())
    });
    assert!(sent.is_some(), "the deferred request goes out");
    peer.abort();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
    drop((peer, listener));
    pair.close_for_good();
}
