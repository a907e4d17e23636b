//! The keyword `Transport`: who is reached by memory and who by TCP, and the ports that a listener has there.

use std::net::{Ipv4Addr, SocketAddr};

use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, Connector, End, Listener, Offer, Pair, QueuePairShape, Remote, Started, Window, WindowKind,
    establish,
};
use conformance::machine::{Setup, wait_until_idle, with_machine};
use conformance::trial::Case;
use kernel_host::dispatcher;
use kernel_host::fault::{self, SiteRecord};
use kernel_host::image::stack_trace;
use kernel_host::schedule;
use kernel_host::wsk;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{
    NTSTATUS, STATUS_CANCELLED, STATUS_CONNECTION_ABORTED, STATUS_CONNECTION_REFUSED, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_IO_TIMEOUT, STATUS_REMOTE_RESOURCES, STATUS_SHARING_VIOLATION, STATUS_SUCCESS,
};

pub const CASES: &[Case] = &[
    case!(peers_of_this_machine_are_reached_by_memory_in_loopback: "NDK-CM-51"; not in stream),
    case!(peers_of_this_machine_are_reached_by_memory_in_auto: "NDK-CM-51"; not in stream),
    case!(peers_of_this_machine_are_across_streams_in_stream: "NDK-CM-51"; not in stream),
    case!(a_result_that_a_terminate_has_failed_brings_its_code: "NDK-QP-42"; not in stream),
    case!(a_shortage_at_an_accept_ends_no_listener: "NDK-FAULT-1"; not in stream),
    case!(accepts_that_fail_are_repeated_after_a_while: "NDK-FAULT-3"; not in stream),
    case!(a_port_is_listened_at_again_at_once: "NDK-CM-2"; not in stream),
    case!(a_port_is_connected_from_again_at_once: "NDK-CM-2"; not in stream),
    case!(a_connect_that_cannot_learn_its_port_fails: "NDK-CM-2", "NDK-FAULT-3"; not in stream),
    case!(a_connect_closed_on_its_way_to_another_port_ends: "NDK-CM-2", "NDK-CM-10"; not in stream),
    case!(nothing_is_sent_behind_bytes_that_were_not_taken: "NDK-FAULT-4"; not in stream),
    case!(a_connection_that_comes_behind_a_close_is_broken: "NDK-CM-10"; not in stream),
    case!(a_socket_that_the_system_takes_away_is_made_anew: "NDK-FAULT-3"; not in stream),
    case!(every_disconnect_ends_without_a_time_out: "NDK-CM-7", "NDK-CM-25"; not in stream),
    case!(a_port_of_another_program_is_nothing_to_loopback: "NDK-CM-2"; not in stream),
    case!(a_port_of_another_program_at_every_address_is_refused_as_well: "NDK-CM-2"; not in stream),
    case!(a_connect_takes_another_port_than_that_of_a_program_at_every_address: "NDK-CM-2"; not in stream),
    case!(a_port_of_another_program_is_refused_where_peers_come_by_tcp: "NDK-CM-2"; not in stream),
];

/// Two adapters with this transport, which wait for a peer's Disconnect without limit.
fn with_transport(value: &'static str, trial: impl FnOnce(&Adapter, &Adapter)) {
    let mut setup = Setup::default();
    for adapter in &mut setup.adapters {
        adapter.keywords.extend([("Transport", value), ("DisconnectTimeoutMs", "0")]);
    }
    with_machine(&setup, |machine| trial(&machine.open(0), &machine.open(1)));
}

/// What a Write to memory that there is not completes with: a peer at hand says that it refuses, one across a stream cannot.
fn refused_write(transport: &'static str) -> NTSTATUS {
    let mut status = STATUS_SUCCESS;
    with_transport(transport, |first, second| {
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(4096), WindowKind::Registered);
        let nowhere = Remote { address: 0, token: 0x55AA };
        let none = NDK_OP_FLAGS::empty();
        assert_eq!(pair.active.queue_pair.write(1, &[near.sge(0..64)], nowhere, none), STATUS_SUCCESS);
        status = pair.active.initiator.wait_for_one().Status;
    });
    status
}

fn peers_of_this_machine_are_reached_by_memory_in_loopback() {
    assert_eq!(refused_write("0"), STATUS_REMOTE_RESOURCES);
}

fn peers_of_this_machine_are_reached_by_memory_in_auto() {
    assert_eq!(refused_write("1"), STATUS_REMOTE_RESOURCES);
}

fn peers_of_this_machine_are_across_streams_in_stream() {
    assert_eq!(refused_write("2"), STATUS_SUCCESS);
}

fn a_result_that_a_terminate_has_failed_brings_its_code() {
    with_transport("2", |first, second| {
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(4096), WindowKind::Registered);
        let nowhere = Remote { address: 0, token: 0x55AA };
        let none = NDK_OP_FLAGS::empty();
        assert_eq!(pair.active.queue_pair.read(1, &[near.sge(0..64)], nowhere, none), STATUS_SUCCESS);
        assert_eq!(pair.active.queue_pair.send(2, &[], NDK_OP_FLAG_READ_FENCE), STATUS_SUCCESS);
        let [failed, behind] = pair.active.initiator.wait_for(2)[..] else { panic!("two results") };
        // Layer 0, type 1, code 0: an unknown token.
        assert_eq!((failed.Status, failed.ProviderErrorCode), (STATUS_REMOTE_RESOURCES, 0x1_0100));
        assert_eq!((behind.Status, behind.ProviderErrorCode), (STATUS_CANCELLED, 0));
    });
}

/// What a Listen answers where another program listens, and then where it does not any more.
fn listens(transport: &'static str, everywhere: bool) -> [NTSTATUS; 2] {
    let mut answers = [STATUS_SUCCESS; 2];
    with_transport(transport, |first, _| {
        let mut at = first.address();
        at.set_port(5000);
        let theirs = if everywhere { SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 5000) } else { at };
        let occupied = wsk::occupy(theirs).expect("the port is free");
        let refused = Listener::new(first).expect("a listener");
        answers[0] = refused.listen(at);
        drop(occupied);
        at.set_port(if answers[0] == STATUS_SUCCESS { 5001 } else { 5000 });
        let listener = if answers[0] == STATUS_SUCCESS { Listener::new(first).expect("a listener") } else { refused };
        answers[1] = listener.listen(at);
    });
    answers
}

fn a_port_of_another_program_is_nothing_to_loopback() {
    assert_eq!(listens("0", false), [STATUS_SUCCESS, STATUS_SUCCESS]);
}

fn a_port_of_another_program_is_refused_where_peers_come_by_tcp() {
    assert_eq!(listens("1", false), [STATUS_SHARING_VIOLATION, STATUS_SUCCESS]);
}

fn a_port_of_another_program_at_every_address_is_refused_as_well() {
    assert_eq!(listens("1", true), [STATUS_SHARING_VIOLATION, STATUS_SUCCESS]);
}

fn a_connect_takes_another_port_than_that_of_a_program_at_every_address() {
    with_transport("2", |first, second| {
        let listener = Listener::new(second).expect("a listener");
        assert_eq!(listener.listen(SocketAddr::new(second.address().ip(), 0)), STATUS_SUCCESS);
        let _occupied = wsk::occupy(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 6000)).expect("the port is free");
        let [active, passive] = [first, second].map(|adapter| End::new(adapter, QueuePairShape::default()));
        let from = (first, &active.queue_pair, SocketAddr::new(first.address().ip(), 6000));
        drop(establish(from, (&listener, &passive.queue_pair), &Offer::default()).expect("a connection"));
    });
}

/// The ends of both sides cross in every order that the host's TCP gives them; a wake-up that is lost is a hang.
fn every_disconnect_ends_without_a_time_out() {
    with_transport("2", |first, second| {
        for both_at_once in [true, false].into_iter().cycle().take(60) {
            let pair = Pair::connect(first, second);
            let near = pair.active.connector().begin_disconnect();
            if !both_at_once {
                assert!(pair.passive.connector().wait_for_disconnect(), "the peer gets an event");
            }
            let peer = pair.passive.connector().begin_disconnect();
            assert_eq!([near.wait(), peer.wait()], [STATUS_SUCCESS; 2]);
        }
    });
}

/// Whether an accept fails inside its call or late, no processor is busy with it meanwhile.
fn accepts_that_fail_are_repeated_after_a_while() {
    with_transport("2", |first, second| {
        let attempts = || fault::calls_of("WskAccept");
        for _ in 0..8 {
            let listener = Listener::new(second).expect("a listener");
            fault::fail_calls_of("WskAccept");
            assert_eq!(listener.listen(SocketAddr::new(second.address().ip(), 0)), STATUS_SUCCESS);
            wait_until_idle();
            let before = attempts();
            dispatcher::delay(-10_000_000);
            wait_until_idle();
            assert!((1..=5).contains(&before), "{before} at once");
            // Each 100 ms, and more time may have passed.
            assert!((5..=20).contains(&(attempts() - before)), "{before}, then {}", attempts());
            fault::stop();
            dispatcher::delay(-2_000_000);
            let [active, passive] = [first, second].map(|adapter| End::new(adapter, QueuePairShape::default()));
            let from = (first, &active.queue_pair, SocketAddr::new(first.address().ip(), 0));
            drop(establish(from, (&listener, &passive.queue_pair), &Offer::default()).expect("a connection"));
        }
    });
}

/// The close of a listener does not wait for its socket's, which still has the port for a while.
fn a_port_is_listened_at_again_at_once() {
    with_transport("2", |_, second| {
        for _ in 0..200 {
            let listener = Listener::new(second).expect("a listener");
            assert_eq!(listener.listen(SocketAddr::new(second.address().ip(), 6001)), STATUS_SUCCESS);
            listener.close();
        }
    });
}

/// What connects from one port again and again. TCP remembers each connection that has ended from this side, so that the next one has
/// to take another.
struct SamePort<'adapters> {
    ends: [&'adapters Adapter; 2],
    listener: Listener,
}

impl<'adapters> SamePort<'adapters> {
    fn new(first: &'adapters Adapter, second: &'adapters Adapter) -> Self {
        let listener = Listener::new(second).expect("a listener");
        let listening = SamePort { ends: [first, second], listener };
        listening.listen();
        assert_eq!(listening.connects_from(6000), 6000);
        listening
    }

    fn listen(&self) {
        assert_eq!(self.listener.listen(SocketAddr::new(self.ends[1].address().ip(), 6001)), STATUS_SUCCESS);
    }

    fn begin(&self, connector: &Connector, end: &End<'_>, port: u16) -> Started {
        let from = SocketAddr::new(self.ends[0].address().ip(), port);
        connector.begin_connect(&end.queue_pair, from, self.listener.local_address(), &Offer::default())
    }

    /// The port that a whole connection has had.
    fn connects_from(&self, port: u16) -> u16 {
        let [active, passive] = self.ends.map(|adapter| End::new(adapter, QueuePairShape::default()));
        let connector = Connector::new(self.ends[0]).expect("a connector");
        let connecting = self.begin(&connector, &active, port);
        let arrived = self.listener.next();
        let seen = arrived.peer_address().port();
        assert_eq!(connector.local_address().port(), seen, "the connector has it before the peer");
        let accepting = arrived.begin_accept(&passive.queue_pair, &Offer::default());
        assert_eq!(connecting.wait(), STATUS_SUCCESS);
        assert_eq!(connector.begin_complete_connect().wait(), STATUS_SUCCESS);
        assert_eq!(accepting.wait(), STATUS_SUCCESS);
        let near = connector.begin_disconnect();
        assert!(arrived.wait_for_disconnect(), "the peer gets an event");
        let peer = arrived.begin_disconnect();
        assert_eq!([near.wait(), peer.wait()], [STATUS_SUCCESS; 2]);
        seen
    }
}

/// The next connection has another port, one that TCP does not remember either.
fn a_port_is_connected_from_again_at_once() {
    with_transport("2", |first, second| {
        let same = SamePort::new(first, second);
        // The peer has the Request before the send of it returns.
        wsk::set_slow_sends(true);
        let other = (0..100).fold(0, |_, _| same.connects_from(6000));
        let next = other + 1..other + 4;
        next.clone().for_each(|port| assert_eq!(same.connects_from(port), port));
        assert!(same.connects_from(6000) >= next.end, "the system gives the next ones first");
    });
}

/// No connection is made that the two ends would describe differently.
fn a_connect_that_cannot_learn_its_port_fails() {
    with_transport("2", |first, second| {
        let same = SamePort::new(first, second);
        for _ in 0..20 {
            fault::fail_calls_of("WskGetLocalAddress");
            let before = fault::failures();
            let end = End::new(first, QueuePairShape::default());
            let connector = Connector::new(first).expect("a connector");
            assert_eq!(same.begin(&connector, &end, 6000).wait(), STATUS_INSUFFICIENT_RESOURCES);
            assert_eq!(fault::failures(), before + 1, "it is asked for once");
            fault::stop();
            assert_ne!(same.connects_from(6000), 6000, "the next connect succeeds, and takes another port");
        }
    });
}

/// From the question for the port on, whatever step the connect has come to.
fn a_connect_closed_on_its_way_to_another_port_ends() {
    with_transport("2", |first, second| {
        let mut same = SamePort::new(first, second);
        same.listener.on_connect(|connector| {
            connector.object().begin_close();
        });
        fault::start_recording();
        for attempt in 1..=100_u64 {
            let end = End::new(first, QueuePairShape::default());
            let connector = Connector::new(first).expect("a connector");
            let connecting = same.begin(&connector, &end, 6000);
            // Without a pause, so that the close meets the call itself, too.
            while fault::calls_of("WskGetLocalAddress") < attempt {
                schedule::let_others();
            }
            (0..attempt * attempt).for_each(|_| schedule::spin());
            connector.object().close();
            let status = connecting.wait();
            // By this close, or by that of the peer's connector, which the Request may reach first.
            let ends = [STATUS_CANCELLED, STATUS_CONNECTION_ABORTED, STATUS_CONNECTION_REFUSED];
            assert!(ends.contains(&status), "{status:#x}");
        }
        fault::stop();
        same.listener = Listener::new(second).expect("a listener");
        same.listen();
        assert_ne!(same.connects_from(6000), 6000);
    });
}

/// Whether a send is refused, sends less than it was asked to, or fails with its connection, what was posted behind it does not arrive: the
/// Write would be missing, and the Send would say that it is there.
fn nothing_is_sent_behind_bytes_that_were_not_taken() {
    with_transport("2", |first, second| {
        for at_once in [true, false].into_iter().cycle().take(96) {
            let pair = Pair::connect(first, second);
            let open = |end| Window::open(end, Buffer::scattered(4096), WindowKind::Registered);
            let (near, far) = (open(&pair.active), open(&pair.passive));
            assert_eq!(pair.passive.queue_pair.receive(7, &[]), STATUS_SUCCESS);
            let (before, none) = (fault::failures(), NDK_OP_FLAGS::empty());
            fault::fail_calls_of("WskSend");
            assert_eq!(pair.active.queue_pair.write(1, &near.in_sges(1), far.remote(0), none), STATUS_SUCCESS);
            let has_failed = || fault::failures() > before;
            while !at_once && !has_failed() {
                dispatcher::delay(-10_000);
            }
            let _refused_or_cancelled = pair.active.queue_pair.send(2, &[], none);
            while !has_failed() {
                dispatcher::delay(-10_000);
            }
            fault::stop();
            assert!(
                [pair.active.connector(), pair.passive.connector()].into_iter().all(Connector::wait_for_disconnect)
            );
            let arrived = pair.passive.receive.take(1).into_iter().any(|result| result.Status == STATUS_SUCCESS);
            assert!(!arrived, "the Send has arrived, and the Write has not");
        }
    });
}

/// An accept may be complete when its listener has gone: what came is broken at once, not when something else is asked of TCP.
fn a_connection_that_comes_behind_a_close_is_broken() {
    with_transport("2", |first, second| {
        for _ in 0..200 {
            let listener = Listener::new(second).expect("a listener");
            assert_eq!(listener.listen(SocketAddr::new(second.address().ip(), 0)), STATUS_SUCCESS);
            listener.on_connect(|connector| {
                connector.object().begin_close();
            });
            let to = listener.local_address();
            let end = End::new(first, QueuePairShape::default());
            let connector = Connector::new(first).expect("a connector");
            let from = SocketAddr::new(first.address().ip(), 0);
            let connecting = connector.begin_connect(&end.queue_pair, from, to, &Offer::default());
            listener.close();
            assert_ne!(connecting.wait(), STATUS_IO_TIMEOUT);
        }
    });
}

/// The connection ends, and the listener has another socket after a while.
fn a_socket_that_the_system_takes_away_is_made_anew() {
    with_transport("2", |first, second| {
        let listener = Listener::new(second).expect("a listener");
        assert_eq!(listener.listen(SocketAddr::new(second.address().ip(), 0)), STATUS_SUCCESS);
        let connect = || {
            let ends = [first, second].map(|adapter| End::new(adapter, QueuePairShape::default()));
            let from = (first, &ends[0].queue_pair, SocketAddr::new(first.address().ip(), 0));
            let connected = establish(from, (&listener, &ends[1].queue_pair), &Offer::default());
            (connected.expect("a connection"), ends)
        };
        for _ in 0..3 {
            let ((active, passive), _ends) = connect();
            wsk::close_forcibly();
            assert!([&active, &passive].into_iter().all(Connector::wait_for_disconnect));
            drop((active, passive));
            dispatcher::delay(-2_000_000);
            drop(connect());
        }
    });
}

/// Each call and allocation on the way to the next accept fails once; the connection after that arrives all the same.
fn a_shortage_at_an_accept_ends_no_listener() {
    with_transport("2", |first, second| {
        let listener = Listener::new(second).expect("a listener");
        assert_eq!(listener.listen(SocketAddr::new(second.address().ip(), 0)), STATUS_SUCCESS);
        let connect = || {
            let [active, passive] = [first, second].map(|adapter| End::new(adapter, QueuePairShape::default()));
            let from = (first, &active.queue_pair, SocketAddr::new(first.address().ip(), 0));
            let connected = establish(from, (&listener, &passive.queue_pair), &Offer::default());
            drop(connected.expect("a connection"));
        };
        fault::start_recording();
        connect();
        let is_of_accept = |record: &SiteRecord| {
            let frames = stack_trace::name(&record.stack);
            record.export == "WskAccept" || frames.iter().any(|frame| frame.to_string().contains("has_spare"))
        };
        let sites: Vec<_> = fault::sites().into_iter().filter(is_of_accept).collect();
        assert!(sites.len() >= 3, "packet, block and accept, not {}", sites.len());
        for record in sites {
            fault::fail(record.site, 1);
            // The accept behind this connection meets the shortage; the listening socket tries again after a while.
            connect();
            dispatcher::delay(-2_000_000);
            connect();
        }
        fault::stop();
    });
}
