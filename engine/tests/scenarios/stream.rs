//! Peers across streams: what no scenario of a peer at hand reaches. Bytes travel, in any cut; a Write or Send succeeds before its peer
//! has it; refusals end the connection.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use softndk_engine::limits::{EPHEMERAL_FIRST, LINGER, PORT_RETRY, STREAM_HELD};
use softndk_engine::{
    AccessFault, AdapterSettings, Arm, Arrived, Budget, Connect, ConnectError, DisconnectReason, Operation, Outcome,
    Pass, ReadLimits, RequestFlags, Requested, Rights, Semantics, Socket as _, Source, StreamCrc, Timeouts,
};
use softndk_engine_kit::meanwhile::{at_every_step, at_point};
use softndk_engine_kit::{
    A, ACCEPT, B, Buffer, CLOSE, CONNECT, DISCONNECT, Depths, Event, Events, FIRST, GONE, MESSAGE_DELAY, Network, Pair,
    SECOND, TcpSocket, Travel, World, outcomes, polled, sge,
};

const NONE: RequestFlags = RequestFlags::empty();

/// One way of what travels exactly.
const TRAVEL: u64 = MESSAGE_DELAY / 2;

fn world(travel: Travel) -> World {
    World::with_travel(travel, AdapterSettings::default())
}

fn unconnected() -> Pair {
    Pair::unconnected(world(Travel::UpTo(MESSAGE_DELAY)), Semantics::NDK, Depths::default())
}

/// A program that speaks no iWARP, at B's port.
fn dial(pair: &Pair, port: u16) -> TcpSocket {
    Network::dial(&pair.world.harness().network, SocketAddr::new(FIRST, port), SocketAddr::new(SECOND, 445))
}

/// Two connected sides; `reads` of each may be under way.
fn apart(travel: Travel, reads: u32) -> Pair {
    let mut pair = Pair::unconnected(world(travel), Semantics::NDK, Depths::default());
    pair.connect_with(ReadLimits { inbound: reads, outbound: reads });
    pair
}

fn connect_to(pair: &Pair, port: u16) -> Result<Requested, ConnectError> {
    pair.a.connector.connect(Connect {
        queue_pair: &pair.a.pair,
        source: Source::Address(SocketAddr::new(FIRST, 0)),
        destination: SocketAddr::new(SECOND, port),
        limits: ReadLimits::default(),
        private_data: &[],
        callback: A + CONNECT,
    })
}

/// The peer sees the port that TCP has, and so does the consumer, from before the arrival to the end.
#[test]
fn a_connector_gives_the_port_that_its_connection_has() {
    let mut pair = unconnected();
    pair.world.harness().network.set_source_port(61_000);
    pair.connect_request().unwrap();
    assert_eq!(pair.world.run(), [Event::Requested(B + 6)]);
    pair.take_arrived();
    let own = Some(SocketAddr::new(FIRST, 61_000));
    assert_eq!((pair.a.connector.local_address(), pair.b.connector.peer_address()), (own, own));
    pair.accept().unwrap();
    assert_eq!(pair.world.run(), [Event::Completed(A + CONNECT, Ok(()))]);
    pair.a.connector.complete_connect(Some(A + GONE), A + ACCEPT).unwrap();
    assert_eq!(pair.world.run(), [Event::Completed(B + ACCEPT, Ok(()))]);
    let mut listed = Vec::new();
    pair.world.first.connections(&mut |entry| listed.push(Some(entry.local)));
    assert_eq!(listed, [own]);
    pair.close();
}

/// Connectors of a shared endpoint have its address; the peer sees the port that TCP has.
#[test]
fn a_connector_of_a_shared_endpoint_keeps_its_address() {
    let mut pair = unconnected();
    let shared = pair.a.open.create_shared_endpoint(SocketAddr::new(FIRST, 0), pair.world.consumer_object(1)).unwrap();
    pair.world.harness().network.set_source_port(61_000);
    let request = Connect {
        queue_pair: &pair.a.pair,
        source: Source::Shared(&shared),
        destination: SocketAddr::new(SECOND, 445),
        limits: ReadLimits::default(),
        private_data: &[],
        callback: A + CONNECT,
    };
    assert_eq!(pair.a.connector.connect(request), Ok(Requested::Pending));
    assert_eq!(pair.world.run(), [Event::Requested(B + 6)]);
    pair.take_arrived();
    assert_eq!(pair.a.connector.local_address(), Some(shared.local_address()));
    assert_eq!(pair.b.connector.peer_address(), Some(SocketAddr::new(FIRST, 61_000)));
    drop(shared.close(CLOSE));
    pair.close();
}

/// The completion of a Listen waits for its port, and a refusal of the system's comes by it.
#[test]
fn a_listen_pends_until_its_port_listens_or_does_not() {
    let mut pair = unconnected();
    let network = pair.world.harness().network.clone();
    let listener = |number| pair.b.open.create_listener(B + number, pair.world.consumer_object(B + number)).unwrap();
    let (first, second) = (listener(7), listener(8));
    network.hold_ports(true);
    assert_eq!(first.listen(SocketAddr::new(SECOND, 446), 31), Ok(Requested::Pending));
    assert_eq!(second.listen(SocketAddr::new(SECOND, 447), 32), Ok(Requested::Pending));
    assert_eq!(pair.world.run(), []);
    let occupied = Network::occupy(&network, SocketAddr::new(SECOND, 447));
    network.hold_ports(false);
    let mut events = pair.world.run();
    events.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(events, [Event::Completed(31, Ok(())), Event::Completed(32, Err(ConnectError::AddressInUse))]);
    drop(occupied);
    assert_eq!(second.listen(SocketAddr::new(SECOND, 447), 33), Ok(Requested::Done), "another one may come");
    drop((first.close(CLOSE), second.close(CLOSE)));
    pair.close();
}

/// A Listen at any port takes the next one where a program has what was picked; whether the system says so at once or later.
#[test]
fn a_listen_at_any_port_takes_one_that_is_free() {
    for pends in [false, true] {
        let mut pair = unconnected();
        let network = pair.world.harness().network.clone();
        let occupied: Vec<_> = (EPHEMERAL_FIRST..EPHEMERAL_FIRST + 40)
            .map(|port| Network::occupy(&network, SocketAddr::new(SECOND, port)))
            .collect();
        let listener = pair.b.open.create_listener(B + 7, pair.world.consumer_object(B + 7)).unwrap();
        network.hold_ports(pends);
        let begun = listener.listen(SocketAddr::new(SECOND, 0), 31);
        network.hold_ports(false);
        let events = pair.world.run();
        assert!(begun == Ok(Requested::Done) || events == [Event::Completed(31, Ok(()))], "{begun:?} {events:?}");
        let port = listener.local_address().expect("it listens").port();
        assert!(port >= EPHEMERAL_FIRST + 40, "{port}");
        drop(occupied);
        drop(listener.close(CLOSE));
        pair.close();
    }
}

/// A close meets the Listen at any step: no port stays taken by a listener that is gone.
#[test]
fn a_listen_at_any_port_that_meets_a_close_keeps_no_port() {
    at_every_step(|place| {
        let mut pair = unconnected();
        let network = pair.world.harness().network.clone();
        let occupied = Network::occupy(&network, SocketAddr::new(SECOND, EPHEMERAL_FIRST));
        let create = |number| pair.b.open.create_listener(B + number, pair.world.consumer_object(B + number)).unwrap();
        let (listener, other) = (create(7), create(8));
        let done = at_point(
            place,
            || {
                let _begun = listener.listen(SocketAddr::new(SECOND, 0), 31);
            },
            || drop(listener.close(CLOSE)),
        );
        drop(listener.close(CLOSE));
        pair.world.run();
        drop(occupied);
        let listened = other.listen(SocketAddr::new(SECOND, EPHEMERAL_FIRST + 1), 32);
        let events = pair.world.run();
        assert!(
            listened == Ok(Requested::Done) || events.contains(&Event::Completed(32, Ok(()))),
            "step {place}: {listened:?} {events:?}"
        );
        drop(other.close(CLOSE));
        pair.close();
        done
    });
}

/// Another context may have the socket between any two steps of a Listen: what it has found is not recorded over.
#[test]
fn a_listen_that_meets_its_port_completes() {
    at_every_step(|place| {
        let mut pair = unconnected();
        let network = pair.world.harness().network.clone();
        let listener = pair.b.open.create_listener(B + 7, pair.world.consumer_object(B + 7)).unwrap();
        network.hold_ports(true);
        let answer = Cell::new(None);
        let seen = Mutex::new(Vec::new());
        let (fabric, counters) = (pair.world.fabric.clone(), pair.world.counters.clone());
        let done = at_point(
            place,
            || answer.set(Some(listener.listen(SocketAddr::new(SECOND, 446), 31))),
            || {
                network.hold_ports(false);
                let mut events = Events::new(counters.clone());
                let budget = Budget { bytes: 1 << 20, items: 64 };
                for processor in 0..2 {
                    while fabric.service_pass(processor, budget, &mut events) == Pass::More {}
                }
                seen.lock().unwrap().append(&mut events.seen);
            },
        );
        network.hold_ports(false);
        let mut seen = seen.into_inner().unwrap();
        seen.extend(pair.world.run());
        let completed = seen.iter().filter(|event| **event == Event::Completed(31, Ok(()))).count();
        match answer.take() {
            Some(Ok(Requested::Done)) => assert_eq!(completed, 0, "step {place}"),
            Some(Ok(Requested::Pending)) => assert_eq!(completed, 1, "step {place}: {seen:?}"),
            other => panic!("step {place}: {other:?}"),
        }
        drop(listener.close(CLOSE));
        pair.close();
        done
    });
}

/// A close does not wait for a port that is still starting; the Listen completes as aborted.
#[test]
fn a_listen_that_waits_ends_with_its_listener() {
    let mut pair = unconnected();
    let network = pair.world.harness().network.clone();
    let listener = pair.b.open.create_listener(B + 7, pair.world.consumer_object(B + 7)).unwrap();
    network.hold_ports(true);
    assert_eq!(listener.listen(SocketAddr::new(SECOND, 446), 31), Ok(Requested::Pending));
    drop(listener.close(CLOSE));
    let events = pair.world.run();
    assert_eq!(events.first(), Some(&Event::Completed(31, Err(ConnectError::Aborted))), "{events:?}");
    network.hold_ports(false);
    pair.close();
}

/// A context that finds the wire held has its holder go round again: the failure of this round comes first all the same.
#[test]
fn a_failure_comes_before_what_is_cancelled_behind_it_when_its_round_is_repeated() {
    let mut pair = apart(Travel::Exactly(0), 4);
    let (here, there) = (Buffer::new(4096, 1), Buffer::new(4096, 2));
    let remote = pair.b.register(&pair.world, &there, 0, Rights::REMOTE_WRITE);
    let local = pair.a.register(&pair.world, &here, 0, Rights::all());
    let element = |token| [sge(0, 64, token)].into_iter();
    let (token, stale) = (local.local_token(), softndk_engine::MemoryToken(local.local_token().0 ^ 0x55_5555));
    pair.a.pair.write(1, RequestFlags::DEFER, element(token), 0, remote.remote_token()).unwrap();
    pair.a.pair.write(2, RequestFlags::DEFER, element(stale), 0, remote.remote_token()).unwrap();
    let (harness, connector) = (pair.world.harness(), pair.a.connector.clone());
    let mut is_first = true;
    *harness.before_copy.lock().unwrap() = Some(Box::new(move || {
        if std::mem::take(&mut is_first) {
            connector.disconnect(A + DISCONNECT).unwrap();
        }
    }));
    harness.watch_copies.store(true, Ordering::SeqCst);
    pair.a.pair.write(3, NONE, element(token), 0, remote.remote_token()).unwrap();
    pair.world.harness().watch_copies.store(false, Ordering::SeqCst);
    *pair.world.harness().before_copy.lock().unwrap() = None;
    pair.world.run();
    let expected = [(1, Outcome::Success), (2, Outcome::LocalAccess), (3, Outcome::Cancelled)];
    assert_eq!(outcomes(&pair.a.initiator), expected);
    drop((remote.close(CLOSE), local.close(CLOSE)));
    pair.close();
}

/// A shortage that keeps a listening socket from accepting passes without a wake-up.
#[test]
fn a_listening_socket_that_lacked_memory_accepts_again_after_a_while() {
    let mut pair = unconnected();
    let network = pair.world.harness().network.clone();
    network.stall_accepts(true);
    pair.connect_request().unwrap();
    assert_eq!(pair.world.run(), []);
    pair.world.advance(PORT_RETRY);
    assert_eq!(pair.world.run(), [], "still short of memory");
    network.stall_accepts(false);
    pair.world.advance(PORT_RETRY);
    pair.world.run();
    assert_eq!(pair.world.events.arrived.len(), 1);
    pair.take_arrived();
    pair.close_for_good();
}

/// Each connection that arrives has the listening socket advanced.
#[test]
fn a_retry_is_not_put_off_by_what_comes_meanwhile() {
    let mut pair = unconnected();
    let network = pair.world.harness().network.clone();
    network.stall_accepts(true);
    pair.connect_request().unwrap();
    pair.world.run();
    let connections: Vec<_> = (0..4_u16)
        .map(|index| {
            pair.world.advance(PORT_RETRY / 5);
            let connection = dial(&pair, 1000 + index);
            assert_eq!(pair.world.run(), []);
            connection
        })
        .collect();
    network.stall_accepts(false);
    pair.world.advance(PORT_RETRY / 5);
    pair.world.run();
    assert_eq!(pair.world.events.arrived.len(), 1);
    pair.take_arrived();
    drop(connections);
    pair.close_for_good();
}

/// A peer that has received the end and sends none of its own: the stream breaks the connection after the time-out.
#[test]
fn an_end_without_an_answer_is_broken_after_a_while() {
    let mut pair = unconnected();
    let mut peer = dial(&pair, 1000);
    // No frame of MPA begins so.
    assert_eq!(peer.send(b"GET / HTTP/1.1"), 14);
    pair.world.run();
    peer.take_received();
    assert_eq!(peer.receive(), Arrived::Finished);
    pair.world.advance(LINGER);
    pair.world.run();
    assert_eq!(peer.receive(), Arrived::Reset);
    drop(peer);
    pair.close_for_good();
}

/// Which of the two ends of a stream asks for a CRC, and whether both have one.
#[test]
fn frames_have_a_crc_where_one_end_asks_for_it() {
    const CRC: u8 = 0x40;
    for (own, asked) in [(StreamCrc::Always, 0), (StreamCrc::IfAsked, 0), (StreamCrc::IfAsked, CRC)] {
        let settings = AdapterSettings { stream_crc: own, ..AdapterSettings::default() };
        let world = World::with_travel(Travel::Exactly(0), settings);
        let mut pair = Pair::unconnected(world, Semantics::NDK, Depths::default());
        let mut peer = dial(&pair, 1000);
        let mut request = *b"MPA ID Req Frame\0\x01\0\0";
        request[16] = asked;
        assert_eq!(peer.send(&request), request.len());
        pair.world.run();
        pair.take_arrived();
        pair.accept().expect("it is asked for");
        pair.world.run();
        let has_crc = peer.take_received()[16] & CRC != 0;
        assert_eq!(has_crc, own == StreamCrc::Always || asked == CRC, "{own:?}, {asked:#x}");
        drop(peer);
        pair.world.run();
        pair.close_for_good();
    }
}

/// Ports come and go with the addresses of a listener that listens everywhere.
#[test]
fn a_listener_everywhere_has_a_port_at_each_address() {
    let mut pair = unconnected();
    let other = IpAddr::from([10, 0, 0, 9]);
    let listener = pair.b.open.create_listener(B + 7, pair.world.consumer_object(B + 7)).unwrap();
    listener.listen(SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 446), 0).unwrap();
    let network = pair.world.harness().network.clone();
    let reached = |pair: &mut Pair| {
        [SECOND, other].map(|address| {
            let mut socket = Network::dial(&network, SocketAddr::new(FIRST, 1000), SocketAddr::new(address, 446));
            pair.world.run();
            socket.receive() == Arrived::Nothing
        })
    };
    assert_eq!(reached(&mut pair), [true, false]);
    pair.world.second.set_addresses(&[SECOND, other]).unwrap();
    assert_eq!(reached(&mut pair), [true, true]);
    pair.world.second.set_addresses(&[SECOND]).unwrap();
    assert_eq!(reached(&mut pair), [true, false]);
    drop(listener.close(CLOSE));
    pair.close();
}

/// Writes of many times what stream and socket take at once go on by themselves.
#[test]
fn a_write_goes_on_when_the_socket_has_taken_all_that_there_was() {
    const LENGTH: u32 = 1 << 20;
    let mut pair = apart(Travel::Exactly(0), 4);
    let (here, there) = (Buffer::new(LENGTH as usize, 1), Buffer::new(LENGTH as usize, 2));
    let remote = pair.b.register(&pair.world, &there, 0, Rights::REMOTE_WRITE);
    let local = pair.a.register(&pair.world, &here, 0, Rights::all());
    for context in 0..4 {
        let element = [sge(0, LENGTH, local.local_token())].into_iter();
        pair.a.pair.write(context, NONE, element, 0, remote.remote_token()).unwrap();
    }
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [0, 1, 2, 3].map(|context| (context, Outcome::Success)));
    assert!(there.read(0, LENGTH as usize).iter().all(|byte| *byte == 1));
    drop((remote.close(CLOSE), local.close(CLOSE)));
    pair.close();
}

#[test]
fn a_refusal_comes_by_the_completion_and_leaves_all_as_it_was() {
    let mut pair = unconnected();
    assert_eq!(connect_to(&pair, 9), Ok(Requested::Pending));
    assert_eq!(connect_to(&pair, 9), Err(ConnectError::AlreadyConnected), "the first is on its way");
    assert_eq!(pair.world.run(), [Event::Completed(A + CONNECT, Err(ConnectError::Refused))]);
    assert_eq!(pair.world.first.counters().connect_failure, 1);
    pair.connect();
    pair.close_for_good();
}

/// The FIN and the end that follows it come from a connector that is gone.
#[test]
fn a_connector_that_is_closed_behind_its_disconnect_says_so_once() {
    for _ in 0..20 {
        let mut pair = apart(Travel::UpTo(MESSAGE_DELAY), 4);
        pair.a.connector.disconnect(A + DISCONNECT).unwrap();
        drop(pair.a.connector.close(A + CLOSE));
        let events = pair.world.run();
        assert_eq!(events.iter().filter(|event| **event == Event::Disconnected(B + GONE)).count(), 1, "{events:?}");
        assert_eq!(pair.world.events.reasons, [DisconnectReason::Disconnected]);
        assert!(events.contains(&Event::Completed(A + DISCONNECT, Err(ConnectError::Aborted))), "{events:?}");
        pair.close_for_good();
    }
}

/// No socket is there any more: what comes to it is answered by a reset, and the side that has sent it is cut off.
#[test]
fn what_is_sent_to_a_connector_that_is_closed_ends_the_connection() {
    let mut pair = apart(Travel::UpTo(MESSAGE_DELAY), 4);
    pair.a.connector.disconnect(A + DISCONNECT).unwrap();
    drop(pair.a.connector.close(A + CLOSE));
    pair.world.run();
    pair.b.pair.send(1, NONE, std::iter::empty()).unwrap();
    pair.world.run();
    pair.b.pair.send(2, NONE, std::iter::empty()).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.b.initiator), [(1, Outcome::Success), (2, Outcome::Cancelled)]);
    pair.close_for_good();
}

/// The Request and the reset that gives it up are both on their way when the connector is closed.
#[test]
fn a_connect_that_is_given_up_at_once_leaves_nothing() {
    for _ in 0..20 {
        let mut pair = unconnected();
        pair.connect_request().unwrap();
        drop(pair.a.connector.close(A + CLOSE));
        let events = pair.world.run();
        assert!(events.contains(&Event::Completed(A + CONNECT, Err(ConnectError::Aborted))), "{events:?}");
        for arrived in std::mem::take(&mut pair.world.events.arrived) {
            assert_eq!(arrived.reject(&[]), Err(ConnectError::Aborted));
            drop(arrived.close(CLOSE));
        }
        pair.close_for_good();
    }
}

/// The Reply is on its way while the connect times out and a second one begins.
#[test]
fn a_late_reply_is_not_that_of_the_next_attempt() {
    let timeouts = Timeouts { connect: 20 * MESSAGE_DELAY, ..Timeouts::default() };
    let mut pair = Pair::unconnected(
        World::with_travel(Travel::UpTo(MESSAGE_DELAY), AdapterSettings { timeouts, ..AdapterSettings::default() }),
        Semantics::NDK,
        Depths::default(),
    );
    let other = pair.b.open.create_listener(B + 7, pair.world.consumer_object(B + 7)).unwrap();
    other.listen(SocketAddr::new(SECOND, 446), 0).unwrap();
    let deadline = pair.world.now() + timeouts.connect;
    pair.connect_request().unwrap();
    assert_eq!(pair.world.run(), [Event::Requested(B + 6)]);
    pair.take_arrived();
    pair.world.advance(deadline - 1 - pair.world.now());
    pair.accept().unwrap();
    let timed_out = (deadline, Event::Completed(A + CONNECT, Err(ConnectError::TimedOut)));
    assert_eq!(pair.world.advance(1), [timed_out]);
    connect_to(&pair, 446).unwrap();
    let events = pair.world.run();
    assert!(events.contains(&Event::Requested(B + 7)), "{events:?}");
    assert!(!events.contains(&Event::Completed(A + CONNECT, Ok(()))), "the second is not accepted: {events:?}");
    drop(other.close(CLOSE));
    pair.close();
}

/// An acceptor that gives up before the first frame: the Reply has come, and then the end.
#[test]
fn an_end_between_the_reply_and_the_first_frame_fails_both() {
    for travel in [Travel::Exactly(TRAVEL), Travel::UpTo(MESSAGE_DELAY)] {
        let mut pair = Pair::unconnected(world(travel), Semantics::NDK, Depths::default());
        pair.connect_request().unwrap();
        pair.world.run();
        pair.take_arrived();
        pair.accept().unwrap();
        drop(pair.b.connector.close(B + CLOSE));
        let events = pair.world.run();
        assert!(events.contains(&Event::Completed(B + ACCEPT, Err(ConnectError::Aborted))), "{events:?}");
        assert!(events.contains(&Event::Completed(A + CONNECT, Ok(()))), "a Reply is not lost: {events:?}");
        assert_eq!(pair.a.connector.complete_connect(None, 1), Err(ConnectError::Aborted));
        pair.close_for_good();
    }
}

/// Runs until the initiator queue of A has so many results; how long that took.
fn until_results(pair: &mut Pair, wanted: usize) -> (u64, Vec<(u64, Outcome)>) {
    let began = pair.world.now();
    let mut results = outcomes(&pair.a.initiator);
    while results.len() < wanted {
        assert!(pair.world.now() - began < 1_000 * TRAVEL, "{} of {wanted} results", results.len());
        pair.world.advance(TRAVEL / 10);
        results.extend(outcomes(&pair.a.initiator));
    }
    (pair.world.now() - began, results)
}

/// Sixteen Reads of 64 bytes from B's memory: how long they took.
fn sixteen_reads(pair: &mut Pair) -> u64 {
    let (source, sink) = (Buffer::new(4096, 0), Buffer::new(4096, 0));
    source.write(0, &(0..1024_u32).map(|at| (at % 251) as u8).collect::<Vec<_>>());
    let remote = pair.b.register(&pair.world, &source, 0, Rights::REMOTE_READ);
    let local = pair.a.build(&pair.world, &sink);
    for index in 0..16_u64 {
        let into = sge(local.0 + 64 * index, 64, pair.a.privileged());
        pair.a.pair.read(index, NONE, [into].into_iter(), 64 * index, remote.remote_token()).unwrap();
    }
    let (took, results) = until_results(pair, 16);
    assert_eq!(results, (0..16).map(|index| (index, Outcome::Success)).collect::<Vec<_>>());
    assert_eq!(sink.read(0, 1024), source.read(0, 1024));
    drop(remote.close(CLOSE));
    assert!(pair.a.open.release_mapping(local));
    took
}

/// Sixteen Reads are under way at a time: they take one way there and one back, not sixteen.
#[test]
fn many_reads_share_the_time_that_a_peer_takes() {
    let mut pair = apart(Travel::Exactly(TRAVEL), 16);
    let took = sixteen_reads(&mut pair);
    assert!((2 * TRAVEL..=2 * TRAVEL + TRAVEL / 5).contains(&took), "{took} ns for ways of {TRAVEL} ns");
    pair.close();
}

/// No more are under way than the connection allows: four at a time take four times as long.
#[test]
fn no_more_reads_are_under_way_than_the_connection_allows() {
    let mut pair = apart(Travel::Exactly(TRAVEL), 4);
    let took = sixteen_reads(&mut pair);
    assert!((8 * TRAVEL..=8 * TRAVEL + TRAVEL).contains(&took), "{took} ns for ways of {TRAVEL} ns");
    pair.close();
}

/// A Write with a fence carries what the Read before it has brought; one without goes out at once.
#[test]
fn a_read_fence_waits_for_the_reads_before_it() {
    let mut pair = apart(Travel::Exactly(TRAVEL), 16);
    let (here, there) = (Buffer::new(4096, 1), Buffer::new(4096, 2));
    let remote = pair.b.register(&pair.world, &there, 0, Rights::REMOTE_READ | Rights::REMOTE_WRITE);
    let local = pair.a.build(&pair.world, &here);
    let token = remote.remote_token();
    for (flags, brought) in [(NONE, 1), (RequestFlags::READ_FENCE, 2)] {
        here.write(0, &[1; 64]);
        let element = || [sge(local.0, 64, pair.a.privileged())].into_iter();
        pair.a.pair.read(1, NONE, element(), 0, token).unwrap();
        pair.a.pair.write(2, flags, element(), 1024, token).unwrap();
        let (_, results) = until_results(&mut pair, 2);
        assert_eq!(results, [(1, Outcome::Success), (2, Outcome::Success)]);
        pair.world.advance(4 * TRAVEL);
        assert_eq!(there.read(1024, 64), [brought; 64], "{flags:?}");
    }
    drop(remote.close(CLOSE));
    assert!(pair.a.open.release_mapping(local));
    pair.close();
}

/// Short Reads do not wait for one another, as far as both ends have agreed to.
#[test]
fn reads_that_were_agreed_on_take_one_round_trip() {
    const READS: u64 = 16;
    let mut pair = apart(Travel::Exactly(TRAVEL), READS as u32);
    let (here, there) = (Buffer::new(4096, 1), Buffer::new(4096, 2));
    let remote = pair.b.register(&pair.world, &there, 0, Rights::REMOTE_READ);
    let local = pair.a.build(&pair.world, &here);
    for trips in 1..=2 {
        for number in 0..trips * READS {
            let element = [sge(local.0 + 8 * number, 8, pair.a.privileged())].into_iter();
            pair.a.pair.read(number, NONE, element, 8 * number, remote.remote_token()).unwrap();
        }
        pair.world.run_what_is_scheduled();
        pair.world.advance(trips * 2 * TRAVEL - 1);
        assert_eq!(polled(&pair.a.initiator).len() as u64, (trips - 1) * READS, "before the end of trip {trips}");
        pair.world.advance(1);
        assert_eq!(polled(&pair.a.initiator).len() as u64, READS, "in trip {trips}");
    }
    let length = 8 * 2 * READS as usize;
    assert_eq!(here.read(0, length), there.read(0, length));
    drop(remote.close(CLOSE));
    assert!(pair.a.open.release_mapping(local));
    pair.close();
}

/// Requests of every kind and of many lengths, one and several at a time, over ways of any length: every one completes once, and
/// every byte arrives.
#[test]
fn every_request_completes() {
    for round in 0..40_u64 {
        let mut pair = apart(Travel::UpTo(10_000), 16);
        let (here, there) = (Buffer::new(65_536, 1), Buffer::new(65_536, 2));
        let remote = pair.b.register(&pair.world, &there, 0, Rights::REMOTE_READ | Rights::REMOTE_WRITE);
        let local = pair.a.build(&pair.world, &here);
        let sink = pair.b.build(&pair.world, &there);
        let mut expected = Vec::new();
        for index in 0..8_u64 {
            let length = [8, 8178, 8179, 30_000][((index + round) % 4) as usize];
            here.write(0, &vec![index as u8; length as usize]);
            let element = [sge(local.0, length, pair.a.privileged())].into_iter();
            match (index + round / 4) % 3 {
                0 => pair.a.pair.read(index, NONE, element, 0, remote.remote_token()).unwrap(),
                1 => pair.a.pair.write(index, NONE, element, 0, remote.remote_token()).unwrap(),
                _ => {
                    let receive = [sge(sink.0, 32_768, pair.b.privileged())].into_iter();
                    pair.b.pair.receive(100 + index, receive).unwrap();
                    pair.a.pair.send(index, NONE, element).unwrap();
                }
            }
            expected.push((index, Outcome::Success));
            if index % 3 == round % 3 {
                pair.world.run();
                assert_eq!(outcomes(&pair.a.initiator), expected, "round {round}");
                // Of several the last may have been loaded for the first.
                if expected.len() == 1 {
                    assert_eq!(here.read(0, length as usize), there.read(0, length as usize), "round {round}, {index}");
                }
                expected.clear();
            }
        }
        pair.world.run();
        assert_eq!(outcomes(&pair.a.initiator), expected, "round {round}");
        drop(remote.close(CLOSE));
        assert!(pair.a.open.release_mapping(local) && pair.b.open.release_mapping(sink));
        pair.close();
    }
}

/// What was sent between two Reads completes between them.
#[test]
fn a_send_between_two_reads_completes_in_its_place() {
    for travel in [Travel::Exactly(0), Travel::Exactly(TRAVEL), Travel::UpTo(10_000)] {
        let mut pair = apart(travel, 4);
        let (here, there) = (Buffer::new(4096, 1), Buffer::new(4096, 2));
        let remote = pair.b.register(&pair.world, &there, 0, Rights::REMOTE_READ);
        let local = pair.a.build(&pair.world, &here);
        let read = |pair: &Pair, context, at: u64| {
            let into = [sge(local.0 + at, 64, pair.a.privileged())].into_iter();
            pair.a.pair.read(context, NONE, into, 0, remote.remote_token()).unwrap();
        };
        pair.b.pair.receive(9, std::iter::empty()).unwrap();
        read(&pair, 1, 0);
        pair.a.pair.send(2, NONE, std::iter::empty()).unwrap();
        read(&pair, 3, 64);
        pair.world.run();
        assert_eq!(outcomes(&pair.a.initiator), [1, 2, 3].map(|context| (context, Outcome::Success)));
        assert_eq!(here.read(0, 129), [vec![2; 128], vec![1]].concat());
        assert_eq!(outcomes(&pair.b.receiver), [(9, Outcome::Success)]);
        drop(remote.close(CLOSE));
        assert!(pair.a.open.release_mapping(local));
        pair.close();
    }
}

/// What a Write or Send that the peer refuses leads to: success, then the end, of which both consumers hear.
fn refused(pair: &mut Pair, post: impl FnOnce(&Pair)) {
    post(pair);
    let events = pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
    let mut reasons = std::mem::take(&mut pair.world.events.reasons);
    reasons.sort_by_key(|reason| *reason == DisconnectReason::RefusedByPeer);
    assert_eq!(reasons, [DisconnectReason::PeerFailed, DisconnectReason::RefusedByPeer]);
    assert!([A + GONE, B + GONE].iter().all(|gone| events.contains(&Event::Disconnected(*gone))), "{events:?}");
    pair.a.pair.send(2, NONE, std::iter::empty()).unwrap();
    assert_eq!(outcomes(&pair.a.initiator), [(2, Outcome::Cancelled)]);
}

#[test]
fn a_write_that_is_refused_has_succeeded_and_ends_the_connection() {
    for wrong in 0..4 {
        let mut pair = apart(Travel::UpTo(MESSAGE_DELAY), 4);
        let (here, there) = (Buffer::new(4096, 1), Buffer::new(4096, 2));
        let rights = if wrong == 0 { Rights::REMOTE_READ } else { Rights::REMOTE_WRITE };
        let remote = pair.b.register(&pair.world, &there, 0, rights);
        let local = pair.a.build(&pair.world, &here);
        let token = if wrong == 1 { pair.b.privileged() } else { remote.remote_token() };
        let address = [0, 0, 4095, u64::MAX][wrong];
        refused(&mut pair, |pair| {
            let element = [sge(local.0, 8, pair.a.privileged())].into_iter();
            pair.a.pair.write(1, NONE, element, address, token).unwrap();
        });
        assert_eq!(there.read(0, 4096), [2; 4096], "{wrong}");
        drop(remote.close(CLOSE));
        assert!(pair.a.open.release_mapping(local));
        pair.close();
    }
}

#[test]
fn a_send_that_is_refused_has_succeeded_and_ends_the_connection() {
    let mut pair = apart(Travel::UpTo(MESSAGE_DELAY), 4);
    let there = Buffer::new(4096, 2);
    let sink = pair.b.build(&pair.world, &there);
    pair.b.pair.receive(7, [sge(sink.0, 4, pair.b.privileged())].into_iter()).unwrap();
    let here = Buffer::new(64, 1);
    let local = pair.a.build(&pair.world, &here);
    refused(&mut pair, |pair| {
        pair.a.pair.send(1, NONE, [sge(local.0, 5, pair.a.privileged())].into_iter()).unwrap();
    });
    assert_eq!(outcomes(&pair.b.receiver), [(7, Outcome::ReceiveTooSmall)]);
    assert!(pair.a.open.release_mapping(local) && pair.b.open.release_mapping(sink));
    pair.close_for_good();
}

/// The Read knows why; what was posted behind it is cancelled, and its consumer gets no event.
#[test]
fn a_read_that_is_refused_fails_and_says_why() {
    let cases = [AccessFault::Rights, AccessFault::NoToken, AccessFault::Bounds, AccessFault::Domain];
    for fault in cases {
        let mut pair = apart(Travel::UpTo(MESSAGE_DELAY), 4);
        let other = pair.b.open.create_protection_domain(pair.world.consumer_object(B + 40)).unwrap();
        let (here, there) = (Buffer::new(4096, 1), Buffer::new(4096, 2));
        let rights = if fault == AccessFault::Rights { Rights::REMOTE_WRITE } else { Rights::REMOTE_READ };
        let remote = pair.b.register(&pair.world, &there, 0, rights);
        let foreign = other.create_memory_region(false, pair.world.consumer_object(B + 41)).unwrap();
        let memory = pair.world.map(&there);
        let registration = softndk_engine::Registration { memory, base: 0, length: 4096, rights };
        foreign.register(registration).map_err(|(error, _)| error).unwrap();
        let local = pair.a.build(&pair.world, &here);
        let (address, token) = match fault {
            AccessFault::NoToken => (0, softndk_engine::MemoryToken(remote.remote_token().0 ^ 0x55_5555)),
            AccessFault::Bounds => (4090, remote.remote_token()),
            AccessFault::Domain => (0, foreign.remote_token()),
            _ => (0, remote.remote_token()),
        };
        let element = || [sge(local.0, 8, pair.a.privileged())].into_iter();
        pair.a.pair.read(1, NONE, element(), address, token).unwrap();
        pair.a.pair.read(2, NONE, element(), address, token).unwrap();
        pair.a.pair.send(3, NONE, std::iter::empty()).unwrap();
        let events = pair.world.run();
        let results = polled(&pair.a.initiator);
        let seen: Vec<_> = results.iter().map(|result| (result.context, result.outcome, result.fault)).collect();
        assert_eq!(seen[0], (1, Outcome::RemoteError, Some(fault)), "{fault:?}: {seen:?}");
        assert!(seen[1..].iter().all(|(_, outcome, _)| *outcome == Outcome::Cancelled), "{fault:?}: {seen:?}");
        assert!(events.contains(&Event::Disconnected(B + GONE)) && !events.contains(&Event::Disconnected(A + GONE)));
        assert_eq!(here.read(0, 4096), [1; 4096]);
        drop((remote.close(CLOSE), foreign.close(CLOSE), other.close(CLOSE)));
        assert!(pair.a.open.release_mapping(local));
        pair.close();
    }
}

/// A Send without a receive does not stand in the way of a response: a consumer may post receives only when its Read has come back.
#[test]
fn a_response_passes_a_send_that_waits() {
    let mut pair = apart(Travel::UpTo(MESSAGE_DELAY), 4);
    let there = Buffer::new(4096, 2);
    let remote = pair.b.register(&pair.world, &there, 0, Rights::REMOTE_READ);
    let here = Buffer::new(4096, 1);
    let local = pair.a.build(&pair.world, &here);
    pair.b.pair.send(1, NONE, std::iter::empty()).unwrap();
    pair.world.run();
    pair.a.pair.read(2, NONE, [sge(local.0, 64, pair.a.privileged())].into_iter(), 0, remote.remote_token()).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(2, Outcome::Success)]);
    pair.a.pair.receive(3, std::iter::empty()).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.receiver), [(3, Outcome::Success)]);
    drop(remote.close(CLOSE));
    assert!(pair.a.open.release_mapping(local));
    pair.close();
}

/// More than is held stops the stream, and nothing is lost: each Send goes into its receive, in order, when there is one.
#[test]
fn sends_without_receives_stop_the_stream_and_lose_nothing() {
    const LENGTH: usize = 16_384;
    let count = 4 * STREAM_HELD / LENGTH;
    let mut pair = apart(Travel::UpTo(10_000), 4);
    let (here, there) = (Buffer::new(LENGTH, 1), Buffer::new(LENGTH, 2));
    let (local, sink) = (pair.a.build(&pair.world, &here), pair.b.build(&pair.world, &there));
    for index in 0..count {
        here.write(0, &[index as u8 + 10; LENGTH]);
        pair.a.pair.send(index as u64, NONE, [sge(local.0, LENGTH as u32, pair.a.privileged())].into_iter()).unwrap();
        pair.world.run();
    }
    let sent = outcomes(&pair.a.initiator).len();
    assert!((STREAM_HELD / LENGTH..count).contains(&sent), "{sent} of {count} have been handed over");
    for index in 0..count {
        let into = [sge(sink.0, LENGTH as u32, pair.b.privileged())].into_iter();
        pair.b.pair.receive(index as u64, into).unwrap();
        pair.world.run();
        assert_eq!(outcomes(&pair.b.receiver), [(index as u64, Outcome::Success)]);
        // What was handed over late has been loaded late; of the first of those perhaps a part before.
        let (early, late) = (index as u8 + 10, count as u8 + 9);
        let bytes = there.read(0, LENGTH);
        let turn = bytes.iter().position(|byte| *byte != early).unwrap_or(LENGTH);
        assert!(bytes[turn..].iter().all(|byte| *byte == late), "{index}");
        assert!(
            if index < sent { turn == LENGTH } else { turn == 0 || index == sent || early == late },
            "{index}: {turn}"
        );
    }
    assert!(pair.a.open.release_mapping(local) && pair.b.open.release_mapping(sink));
    pair.close_for_good();
}

/// In the user-mode column a receiver is waited for as long as the receiving side has it; then the connection ends.
#[test]
fn a_send_waits_for_its_receive_no_longer_than_the_receiver_has_it() {
    let timeouts = Timeouts { receiver_not_ready: Some(1_000_000), ..Timeouts::default() };
    let world = World::with_travel(Travel::Exactly(TRAVEL), AdapterSettings { timeouts, ..AdapterSettings::default() });
    let mut pair = Pair::in_world(world, Semantics::NDK, Depths::default());
    // One that is met in time does not shorten the time of the next.
    for context in [1, 2] {
        pair.a.pair.send(context, NONE, std::iter::empty()).unwrap();
        pair.world.advance(TRAVEL + 900_000);
        pair.b.pair.receive(context, std::iter::empty()).unwrap();
        pair.world.advance(TRAVEL);
        assert_eq!(outcomes(&pair.b.receiver), [(context, Outcome::Success)]);
    }
    pair.a.pair.send(3, NONE, std::iter::empty()).unwrap();
    pair.world.advance(TRAVEL + 990_000);
    assert!(pair.world.events.reasons.is_empty());
    pair.world.advance(3 * TRAVEL);
    assert_eq!(outcomes(&pair.a.initiator), [1, 2, 3].map(|context| (context, Outcome::Success)));
    let reasons = std::mem::take(&mut pair.world.events.reasons);
    assert_eq!(reasons, [DisconnectReason::PeerFailed, DisconnectReason::RefusedByPeer]);
    pair.close_for_good();
}

/// What was posted before the Disconnect arrives, and then the notice.
#[test]
fn a_disconnect_comes_behind_what_was_posted() {
    for seed in 0..10_usize {
        let mut pair = apart(Travel::UpTo(MESSAGE_DELAY), 4);
        let (here, there) = (Buffer::new(32_768, 1), Buffer::new(32_768, 2));
        let remote = pair.b.register(&pair.world, &there, 0, Rights::REMOTE_WRITE);
        let local = pair.a.build(&pair.world, &here);
        let length = 1000 + 3000 * seed;
        pair.b.pair.receive(9, std::iter::empty()).unwrap();
        // More than the stream and its peer take at once.
        for context in 0..8 {
            let element = [sge(local.0, length as u32, pair.a.privileged())].into_iter();
            pair.a.pair.write(context, NONE, element, 0, remote.remote_token()).unwrap();
        }
        pair.a.pair.send(8, NONE, std::iter::empty()).unwrap();
        pair.a.connector.disconnect(A + DISCONNECT).unwrap();
        assert_eq!(pair.world.run(), [Event::Disconnected(B + GONE)]);
        assert_eq!(there.read(0, length), vec![1; length], "{seed}");
        assert_eq!(outcomes(&pair.b.receiver), [(9, Outcome::Success)]);
        pair.b.connector.disconnect(B + DISCONNECT).unwrap();
        let mut events = pair.world.run();
        events.sort_by_key(|event| format!("{event:?}"));
        assert_eq!(events, [A, B].map(|side| Event::Completed(side + DISCONNECT, Ok(()))));
        drop(remote.close(CLOSE));
        assert!(pair.a.open.release_mapping(local));
        pair.close();
    }
}

/// Posts inside a callback are only queued; a Disconnect there is behind them all the same.
#[test]
fn a_disconnect_in_a_callback_comes_behind_what_was_posted_there() {
    let mut pair = apart(Travel::Exactly(TRAVEL), 4);
    (0..2).for_each(|context| pair.b.pair.receive(context, std::iter::empty()).unwrap());
    pair.a.initiator.arm(Arm::Any);
    let (sender, connector) = (pair.a.pair.clone(), pair.a.connector.clone());
    pair.world.events.inside = Some(Box::new(move |event| {
        if matches!(event, Event::Notified(..)) {
            sender.send(2, NONE, std::iter::empty()).unwrap();
            connector.disconnect(A + DISCONNECT).unwrap();
        }
    }));
    pair.a.pair.send(1, NONE, std::iter::empty()).unwrap();
    assert!(pair.world.run().contains(&Event::Disconnected(B + GONE)));
    pair.world.events.inside = None;
    assert_eq!(outcomes(&pair.b.receiver), [(0, Outcome::Success), (1, Outcome::Success)]);
    pair.b.connector.disconnect(B + DISCONNECT).unwrap();
    pair.world.run();
    pair.close();
}

/// So do Reads that the connection did not let out before.
#[test]
fn a_disconnect_waits_for_reads_that_have_not_been_sent() {
    let mut pair = apart(Travel::UpTo(MESSAGE_DELAY), 1);
    let (here, there) = (Buffer::new(4096, 1), Buffer::new(4096, 2));
    let remote = pair.b.register(&pair.world, &there, 0, Rights::REMOTE_READ);
    let local = pair.a.build(&pair.world, &here);
    for context in 0..4 {
        let into = [sge(local.0 + 64 * context, 64, pair.a.privileged())].into_iter();
        pair.a.pair.read(context, NONE, into, 0, remote.remote_token()).unwrap();
    }
    pair.a.connector.disconnect(A + DISCONNECT).unwrap();
    assert_eq!(pair.world.run(), [Event::Disconnected(B + GONE)]);
    assert_eq!(outcomes(&pair.a.initiator), [0, 1, 2, 3].map(|context| (context, Outcome::Success)));
    assert_eq!(here.read(0, 256), [2; 256]);
    drop(remote.close(CLOSE));
    assert!(pair.a.open.release_mapping(local));
    pair.close();
}

/// The token is free for others when the message that invalidates it has been received.
#[test]
fn a_send_that_invalidates_is_received_when_nothing_reads_any_more() {
    let mut pair = apart(Travel::UpTo(MESSAGE_DELAY), 4);
    let region = pair.b.fast_region(&pair.world);
    let pages = Buffer::new(4096, 3);
    let first = pair.b.build(&pair.world, &pages);
    pair.b.fast_register(&region, first, 1, 0).unwrap();
    pair.world.run();
    pair.b.pair.receive(5, std::iter::empty()).unwrap();
    pair.a.pair.send_and_invalidate(1, NONE, std::iter::empty(), region.remote_token()).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
    let received = polled(&pair.b.receiver);
    assert_eq!((received[0].operation, received[0].output), (Operation::ReceiveAndInvalidate, region.remote_token().0));
    pair.b.fast_register(&region, first, 1, 0).unwrap();
    pair.world.run();
    drop(region.close(CLOSE));
    pair.world.run();
    assert!(pair.b.open.release_mapping(first));
    pair.close();
}
