//! The trials. Each is a child with a kernel of its own: two adapters on one wire, the second with the stack of another machine.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use conformance::consumer::{Adapter, Buffer, Connector, End, Listener, Offer, QueuePairShape, Window, WindowKind};
use conformance::iwarp_peer::{Enhanced, StartFrame};
use conformance::machine::{AdapterSetup, Machine, Setup, with_machine};
use conformance::trial::{become_child, in_child};
use conformance::two_machines::address_of;
use kernel_host::KernelConfig;
use kernel_host::inf::InterfaceAddress;
use kernel_host::stack::{FrameFilter, StackConfig, TcpIpStack};
use libtest_mimic::{Arguments, Failed, Trial};
use ndkpi_sys::ndkpi::NDK_OP_FLAGS;
use ndkpi_sys::nt::{STATUS_CONNECTION_REFUSED, STATUS_IO_TIMEOUT};

use super::peer::FramesPeer;

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const PORT: u16 = 4791;
const MESSAGE: usize = 60_001;
const READS: u16 = 16;
const LIMIT: Duration = Duration::from_mins(2);
const SEEDS: [&str; 3] = ["1", "2", "3"];

const ROLES: [(&str, fn()); 6] = [
    ("connects", || play(None, connects)),
    ("listens", || play(None, listens)),
    ("connects through loss", || play(Some(losing_one_in_ten()), connects)),
    ("listens through loss", || play(Some(losing_one_in_ten()), listens)),
    ("loses the peer", || play(None, loses_peer)),
    ("connects to an absent machine", || play(None, connects_to_an_absent_machine)),
];

pub fn main() -> ExitCode {
    become_child(|name| ROLES.iter().find(|(role, _)| *role == name).map(|(_, run)| *run));
    let ends_well = |role: &'static str| move || in_child(role, &[])?.expect_success();
    let trials = vec![
        Trial::test("connection_to_a_peer_carries_messages_in_frames", ends_well("connects")),
        Trial::test("connection_from_a_peer_carries_messages_in_frames", ends_well("listens")),
        Trial::test("messages_to_a_peer_survive_the_loss_of_frames", ends_well("connects through loss")),
        Trial::test("messages_from_a_peer_survive_the_loss_of_frames", ends_well("listens through loss")),
        Trial::test("peer_that_vanishes_from_the_wire_disconnects", ends_well("loses the peer")),
        Trial::test("connect_in_frames_is_refused_or_times_out", ends_well("connects to an absent machine")),
        Trial::test("connections_in_frames_pass_in_other_orders", in_other_orders),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn in_other_orders() -> Result<(), Failed> {
    for seed in SEEDS {
        for role in ["connects", "listens"] {
            in_child(role, &[("SOFTNDK_SCHEDULE", OsStr::new(seed))])?.expect_success()?;
        }
    }
    Ok(())
}

/// Loses one frame in ten, at random.
fn losing_one_in_ten() -> FrameFilter {
    let mut random = fastrand::Rng::with_seed(7);
    Box::new(move |_, _| random.u8(..10) != 0)
}

/// Plays a trial on a machine with one consumer and the stack of its peer.
fn play(filter: Option<FrameFilter>, trial: fn(&Machine, &Adapter, &Arc<TcpIpStack>)) {
    let adapter = |addresses| AdapterSetup { addresses, keywords: vec![("Transport", "1")] };
    let setup = Setup::default();
    let kernel = KernelConfig { stacks: true, ..setup.kernel };
    let setup = Setup { kernel, adapters: vec![adapter(vec![address_of(1)]), adapter(Vec::new())] };
    with_machine(&setup, |machine| {
        let address = InterfaceAddress { address: address_of(2), prefix_length: 24 };
        let config = StackConfig { foreign: Some(vec![address]), reentrant: false };
        let peer = machine.adapters[1].bind_stack(config).expect("the adapter runs");
        peer.set_filter(filter);
        trial(machine, &machine.open(0), &peer);
    });
}

fn at(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}

/// The consumer's end with a window for what it sends and one for what it receives.
fn end(adapter: &Adapter) -> (End<'_>, Window<'_>, Window<'_>) {
    let end = End::new(adapter, QueuePairShape::default());
    let open = || Window::open(&end, Buffer::scattered(MESSAGE), WindowKind::Registered);
    let (outgoing, incoming) = (open(), open());
    outgoing.buffer.fill_with_seed(5);
    (end, outgoing, incoming)
}

/// Sends a message and gets it back.
fn exchange(end: &End<'_>, outgoing: &Window<'_>, incoming: &Window<'_>) {
    assert_eq!(end.queue_pair.receive(1, &incoming.in_sges(1)), 0);
    assert_eq!(end.queue_pair.send(2, &outgoing.in_sges(2), NONE), 0);
    assert_eq!(end.initiator.wait_for_one().Status, 0);
    let received = end.receive.wait_for_one();
    assert_eq!((received.Status, received.BytesTransferred as usize), (0, MESSAGE));
    assert!(incoming.buffer.to_vec() == outgoing.buffer.to_vec());
}

/// The peer's part of [`exchange`].
fn echo(peer: &FramesPeer) {
    let message = peer.receive_message();
    peer.send_message(1, &message);
}

fn connects(machine: &Machine, adapter: &Adapter, stack: &Arc<TcpIpStack>) {
    let port = stack.tcp_listen(at(address_of(2), PORT)).expect("a free port");
    let peer = machine.kernel.spawn("peer", move || {
        let peer = FramesPeer::new(port.accept(LIMIT).expect("a connection"));
        assert_eq!(peer.receive_start().private_data, b"question");
        peer.send_start(&StartFrame::reply(Enhanced::with_ready(READS, READS, Enhanced::WRITE), b"answer"));
        peer.receive_ready();
        echo(&peer);
        peer.part();
    });
    let (end, outgoing, incoming) = end(adapter);
    let connector = Connector::new(adapter).expect("a connector");
    let offer = Offer { private_data: b"question", ..Offer::default() };
    let connecting = connector.begin_connect(&end.queue_pair, at(address_of(1), 0), at(address_of(2), PORT), &offer);
    assert_eq!(connecting.wait(), 0);
    assert!(connector.data().private_data.starts_with(b"answer"));
    assert_eq!(connector.begin_complete_connect_ex().wait(), 0);
    exchange(&end, &outgoing, &incoming);
    assert_eq!(connector.begin_disconnect().wait(), 0);
    peer.join();
}

fn listens(machine: &Machine, adapter: &Adapter, stack: &Arc<TcpIpStack>) {
    let listener = Listener::new(adapter).expect("a listener");
    assert_eq!(listener.listen(at(address_of(1), 0)), 0);
    let (to, stack) = (listener.local_address(), Arc::clone(stack));
    let peer = machine.kernel.spawn("peer", move || {
        let peer = FramesPeer::new(stack.tcp_connect(to, LIMIT).expect("a listener"));
        let offer = Enhanced::with_ready(READS, READS, Enhanced::WRITE | Enhanced::READ);
        peer.send_start(&StartFrame::request(offer, b"question"));
        assert!(peer.receive_start().is_reply);
        peer.send_segment(&conformance::iwarp_peer::Segment::ready_write());
        echo(&peer);
        peer.part();
    });
    let (end, outgoing, incoming) = end(adapter);
    let connector = listener.next();
    assert!(connector.data().private_data.starts_with(b"question"));
    assert_eq!(connector.peer_address().ip(), address_of(2));
    assert_eq!(connector.begin_accept_ex(&end.queue_pair, &Offer::default()).wait(), 0);
    exchange(&end, &outgoing, &incoming);
    assert_eq!(connector.begin_disconnect().wait(), 0);
    peer.join();
}

/// Everything that the peer sends and gets is lost: TCP gives up, and the consumer gets the event.
fn loses_peer(machine: &Machine, adapter: &Adapter, stack: &Arc<TcpIpStack>) {
    let port = stack.tcp_listen(at(address_of(2), PORT)).expect("a free port");
    let wire = Arc::clone(stack);
    let peer = machine.kernel.spawn("peer", move || {
        let peer = FramesPeer::new(port.accept(LIMIT).expect("a connection"));
        peer.receive_start();
        peer.send_start(&StartFrame::reply(Enhanced::with_ready(READS, READS, Enhanced::WRITE), &[]));
        peer.receive_ready();
        wire.set_filter(Some(Box::new(|_, _| false)));
        peer
    });
    let (end, outgoing, _) = end(adapter);
    let connector = Connector::new(adapter).expect("a connector");
    let (from, to) = (at(address_of(1), 0), at(address_of(2), PORT));
    assert_eq!(connector.begin_connect(&end.queue_pair, from, to, &Offer::default()).wait(), 0);
    assert_eq!(connector.begin_complete_connect_ex().wait(), 0);
    let peer = peer.join();
    assert_eq!(end.queue_pair.send(1, &outgoing.in_sges(1), NONE), 0);
    assert!(connector.wait_for_disconnect(), "no disconnect event");
    let _ = end.initiator.wait_for_one();
    drop(peer);
}

fn connects_to_an_absent_machine(_: &Machine, adapter: &Adapter, stack: &Arc<TcpIpStack>) {
    let (end, ..) = end(adapter);
    let asked = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&asked);
    stack.set_filter(Some(Box::new(move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        true
    })));
    for (last, expected) in [(2, STATUS_CONNECTION_REFUSED), (9, STATUS_IO_TIMEOUT)] {
        let connector = Connector::new(adapter).expect("a connector");
        let (from, to) = (at(address_of(1), 0), at(address_of(last), PORT));
        assert_eq!(connector.begin_connect(&end.queue_pair, from, to, &Offer::default()).wait(), expected, "{to}");
        connector.close();
        assert!(asked.swap(0, Ordering::Relaxed) > 0, "it has asked the wire");
    }
}
