//! Peers across streams that mean no good, or break at a bad moment: what they keep of this machine is bounded in number and in time.

use std::iter;
use std::net::SocketAddr;
use std::sync::Mutex;

use softndk_engine::limits::{HALF_OPEN, LAST_SENDS, PIECE, REQUEST_COST, REQUEST_LIMIT};
use softndk_engine::{
    AdapterSettings, Arrived, Budget, Fabric, MemoryToken, Outcome, Pass, RequestFlags, Semantics, Socket as _,
    StreamCrc,
};
use softndk_engine_kit::meanwhile::{at_every_step, at_point};
use softndk_engine_kit::{
    ACCEPT, B, Buffer, CLOSE, DISCONNECT, Depths, Event, Events, FIRST, Harness, Network, Pair, SECOND, TcpSocket,
    Travel, World, outcomes,
};

const NONE: RequestFlags = RequestFlags::empty();

/// A Write of no bytes, without CRC.
const EMPTY_WRITE: [u8; 20] = [0, 14, 0xC1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A Send of no bytes, without CRC.
fn empty_send(number: u32) -> Vec<u8> {
    [&[0, 18, 0x41, 0x43], &[0; 8][..], &number.to_be_bytes(), &[0; 8]].concat()
}

/// A Request for one Read each way, of the peer-to-peer model or of the client-server model.
fn request(peer_to_peer: bool) -> Vec<u8> {
    let model = if peer_to_peer { 0x80 } else { 0 };
    [b"MPA ID Req Frame".as_slice(), &[0x10, 2, 0, 4, model, 1, model, 1]].concat()
}

fn unconnected() -> Pair {
    let settings = AdapterSettings { stream_crc: StreamCrc::IfAsked, ..AdapterSettings::default() };
    Pair::unconnected(World::with_travel(Travel::Exactly(0), settings), Semantics::NDK, Depths::default())
}

fn dial(pair: &Pair, port: u16) -> TcpSocket {
    Network::dial(&pair.world.harness().network, SocketAddr::new(FIRST, port), SocketAddr::new(SECOND, 445))
}

/// All that one processor has to do.
fn passes(fabric: &Fabric<Harness>, processor: u32, events: &Mutex<Events>) {
    let budget = Budget { bytes: 1 << 20, items: 64 };
    while fabric.service_pass(processor, budget, &mut *events.lock().unwrap()) == Pass::More {}
}

/// A peer that B has accepted, and whose first frame has come.
fn established() -> (Pair, TcpSocket) {
    let mut pair = unconnected();
    let mut peer = dial(&pair, 1000);
    peer.send(&request(true));
    pair.world.run();
    pair.take_arrived();
    pair.accept().expect("it is asked for");
    pair.world.run();
    peer.take_received();
    peer.send(&EMPTY_WRITE);
    assert_eq!(pair.world.run(), [Event::Completed(B + ACCEPT, Ok(()))]);
    (pair, peer)
}

/// Both sides have ended, everything is closed, and the peer does not read: the stream ends all the same.
#[test]
fn what_is_left_to_be_sent_ends_in_time() {
    let (mut pair, mut peer) = established();
    for number in 0..200 {
        if pair.b.pair.write(number, NONE, iter::empty(), 0, MemoryToken(1)).is_ok() {
            pair.world.run();
            outcomes(&pair.b.initiator);
        }
    }
    peer.finish();
    pair.world.run();
    pair.b.connector.disconnect(B + DISCONNECT).expect("it is connected");
    assert_eq!(pair.world.run(), [Event::Completed(B + DISCONNECT, Ok(()))]);
    drop((pair.b.connector.close(B + CLOSE), pair.b.pair.close(B + CLOSE)));
    pair.world.run();
    pair.world.advance(LAST_SENDS / 2);
    assert_eq!(peer.end_ahead(), Arrived::Nothing, "it has time to read");
    pair.world.advance(LAST_SENDS);
    assert_eq!(peer.end_ahead(), Arrived::Reset);
    drop(peer);
    pair.close();
}

/// Frames of no bytes cost something of a pass, too, also behind the end of this side, where they are thrown away.
#[test]
fn a_pass_takes_a_bounded_number_of_frames() {
    for has_ended in [false, true] {
        takes_a_bounded_number_of_frames(has_ended);
    }
}

fn takes_a_bounded_number_of_frames(has_ended: bool) {
    let (mut pair, mut peer) = established();
    if has_ended {
        pair.b.pair.flush();
        pair.b.connector.disconnect(B + DISCONNECT).unwrap();
        pair.world.run();
        assert_eq!((peer.take_received(), peer.receive()), (vec![], Arrived::Finished));
    }
    let flood = EMPTY_WRITE.repeat(3200);
    while peer.send(&flood) != 0 {}
    let (fabric, before) = (pair.world.fabric.clone(), peer.taken_by_peer());
    let mut processor = 0;
    // The first passes find out whose turn it is.
    while peer.taken_by_peer() == before {
        processor ^= 1;
        fabric.service_pass(processor, Budget { bytes: 1, items: 1 }, &mut pair.world.events);
    }
    let frames = (peer.taken_by_peer() - before) / EMPTY_WRITE.len();
    assert!(frames as u64 <= PIECE / REQUEST_COST, "{frames} frames in one pass, {has_ended}");
    drop(peer);
    pair.close();
}

/// Peers that say nothing make room for one that speaks, and their time is bounded.
#[test]
fn a_peer_that_speaks_is_heard_beside_silent_ones() {
    let mut pair = unconnected();
    let mut silent: Vec<_> = (0..2 * HALF_OPEN as u16).map(|index| dial(&pair, 1000 + index)).collect();
    assert_eq!(pair.world.run(), []);
    let mut peer = dial(&pair, 999);
    peer.send(&request(true));
    pair.world.run();
    assert_eq!(pair.world.events.arrived.len(), 1);
    pair.take_arrived();
    let (oldest, rest) = silent.split_at_mut(HALF_OPEN);
    assert!(oldest.iter_mut().all(|socket| socket.receive() == Arrived::Reset), "they made room");
    assert_eq!(rest.iter_mut().map(TcpSocket::receive).filter(|arrived| *arrived == Arrived::Reset).count(), 1);
    pair.world.advance(REQUEST_LIMIT);
    pair.world.run();
    assert!(silent.iter_mut().all(|socket| socket.receive() == Arrived::Reset), "their time is up");
    drop((silent, peer));
    pair.close();
}

/// A Request that has come when another connection takes the place of the oldest is answered.
#[test]
fn a_connection_that_has_spoken_makes_no_room() {
    at_every_step(|place| {
        let mut pair = unconnected();
        let mut peer = dial(&pair, 999);
        let silent: Vec<_> = (1..HALF_OPEN as u16).map(|index| dial(&pair, 1000 + index)).collect();
        pair.world.run();
        peer.send(&request(true));
        let (fabric, counters) = (pair.world.fabric.clone(), pair.world.counters.clone());
        let [own, others] = [(); 2].map(|()| Mutex::new(Events::new(counters.clone())));
        let network = pair.world.harness().network.clone();
        let late = Mutex::new(Vec::new());
        let done = at_point(
            place,
            || passes(&fabric, 0, &own),
            || {
                let to = SocketAddr::new(SECOND, 445);
                let ports = 2000..2003;
                late.lock()
                    .unwrap()
                    .extend(ports.map(|port| Network::dial(&network, SocketAddr::new(FIRST, port), to)));
                passes(&fabric, 1, &others);
            },
        );
        for events in [own, others] {
            pair.world.events.arrived.append(&mut events.into_inner().unwrap().arrived);
        }
        pair.world.run();
        if !pair.world.events.arrived.is_empty() {
            pair.take_arrived();
            pair.accept().expect("it is asked for");
            pair.world.run();
            peer.take_received();
            peer.send(&EMPTY_WRITE);
            assert_eq!(pair.world.run(), [Event::Completed(B + ACCEPT, Ok(()))], "step {place}");
        }
        drop((peer, silent, late));
        pair.close();
        done
    });
}

/// A Send that invalidates something pauses the stream until nothing reads it; an end overtakes neither it nor what is held behind it.
#[test]
fn an_end_overtakes_no_send_that_has_a_receive() {
    for breaks in [false, true] {
        let (mut pair, mut peer) = established();
        let region = pair.b.fast_region(&pair.world);
        let pages = Buffer::new(4096, 3);
        let first = pair.b.build(&pair.world, &pages);
        pair.b.fast_register(&region, first, 1, 0).unwrap();
        pair.world.run();
        outcomes(&pair.b.initiator);
        let mut invalidating = empty_send(1);
        invalidating[3] = 0x44;
        invalidating[4..8].copy_from_slice(&region.remote_token().0.to_be_bytes());
        peer.send(&invalidating);
        peer.send(&empty_send(2));
        pair.world.run();
        for context in [1, 2] {
            pair.b.pair.receive(context, iter::empty()).unwrap();
        }
        if breaks {
            peer.abort()
        } else {
            peer.finish()
        }
        let events = pair.world.run();
        assert!(matches!(events[..], [Event::Disconnected(_)]), "{breaks}: {events:?}");
        assert_eq!(outcomes(&pair.b.receiver), [(1, Outcome::Success), (2, Outcome::Success)], "{breaks}");
        drop(peer);
        drop(region.close(CLOSE));
        pair.world.run();
        assert!(pair.b.open.release_mapping(first));
        pair.close();
    }
}

/// What an initiator sends with its Request is read whole, whatever the adapter lets its own consumers send.
#[test]
fn private_data_of_a_peer_is_not_cut() {
    let mut pair = unconnected();
    let mut peer = dial(&pair, 1000);
    let data = [7; 200];
    let length = (4 + data.len()) as u16;
    let head = [&b"MPA ID Req Frame"[..], &[0x10, 2], &length.to_be_bytes(), &[0x80, 1, 0x80, 1]].concat();
    peer.send(&[head, data.to_vec()].concat());
    pair.world.run();
    pair.take_arrived();
    let mut buffer = [0; 256];
    let said = pair.b.connector.connection_data(&mut buffer).expect("it has arrived");
    assert!(said.required as usize >= data.len() && buffer.starts_with(&data), "{said:?}");
    drop(peer);
    pair.close();
}

/// Sends of no bytes fill what is held without a receive; the end of the peer lies behind those that are not held.
#[test]
fn the_end_of_a_peer_is_noticed_behind_held_sends() {
    for count in [3, 70] {
        for breaks in [false, true] {
            let (mut pair, mut peer) = established();
            for number in 1..=count {
                peer.send(&empty_send(number));
                pair.world.run();
            }
            if breaks {
                peer.abort()
            } else {
                peer.finish()
            }
            let events = pair.world.run();
            assert!(matches!(events[..], [Event::Disconnected(_)]), "{count} {breaks}: {events:?}");
            drop(peer);
            pair.close();
        }
    }
}

/// Another processor meets the reset while this one takes the Request, at any step: nothing hangs, and no stream comes back to life.
#[test]
fn a_reset_behind_the_request_reaches_the_connector() {
    for peer_to_peer in [false, true] {
        at_every_step(|place| {
            let mut pair = unconnected();
            let mut peer = dial(&pair, 1000);
            pair.world.run();
            peer.send(&request(peer_to_peer));
            let (fabric, counters) = (pair.world.fabric.clone(), pair.world.counters.clone());
            let [own, others] = [(); 2].map(|()| Mutex::new(Events::new(counters.clone())));
            let done = at_point(
                place,
                || passes(&fabric, 0, &own),
                || {
                    peer.abort();
                    passes(&fabric, 1, &others);
                },
            );
            let (mut own, mut others) = (own.into_inner().unwrap(), others.into_inner().unwrap());
            pair.world.events.arrived.append(&mut own.arrived);
            pair.world.events.arrived.append(&mut others.arrived);
            pair.world.run();
            if !pair.world.events.arrived.is_empty() {
                pair.take_arrived();
                if pair.accept().is_ok() && done {
                    let events = pair.world.run();
                    let has_ended =
                        |event: &Event| matches!(event, Event::Completed(number, Err(_)) if *number == B + ACCEPT);
                    assert!(events.iter().any(has_ended), "step {place}, {peer_to_peer}: {events:?}");
                }
            }
            drop((peer, own, others));
            pair.close();
            done
        });
    }
}
