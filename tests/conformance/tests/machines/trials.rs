//! The trials. Each has two roles: the first machine connects, the second one listens.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use super::failing_calls;
use conformance::consumer::{
    Adapter, Buffer, Connector, End, Listener, Offer, QueuePairShape, Remote, Window, WindowKind,
};
use conformance::machine::{Machine, Setup, wait_until, with_machine};
use conformance::outcome::Outcome;
use conformance::trial::{become_child, in_child};
use conformance::two_machines::{
    address_of, be_killed, open_uplink, own_number, play, receive_line, send_line, setup, setup_with_uplink,
};
use kernel_host::Mode;
use libtest_mimic::{Arguments, Failed, Trial};
use ndkpi_sys::ndkpi::NDK_OP_FLAGS;
use ndkpi_sys::nt::{NTSTATUS, STATUS_CANCELLED, STATUS_CONNECTION_ABORTED, STATUS_CONNECTION_REFUSED};

pub(super) const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const FIRST_DATA: &[u8] = b"from the first machine";
const SECOND_DATA: &[u8] = b"and from the second";

/// What the children do, by name.
const ROLES: [(&str, fn()); 18] = [
    ("uses", uses),
    ("serves", serves),
    ("meets a refusal", meets_refusals),
    ("refuses", refuses),
    ("is killed", is_killed),
    ("loses the peer", loses_peer),
    ("is killed under load", is_killed_under_load),
    ("reads from the killed", reads_from_killed),
    ("calls and answers", calls_and_answers),
    ("meets an abort", meets_abort),
    ("aborts", aborts),
    ("sends frames", sends_frames),
    ("uses by frames", || by_frames(uses)),
    ("serves by frames", || by_frames(serves)),
    ("calls and answers by frames", || by_frames(calls_and_answers)),
    ("moves bytes while calls fail", failing_calls::moves_bytes),
    ("has bytes moved while calls fail", failing_calls::has_bytes_moved),
    ("verifies", verifies),
];

pub fn main() -> ExitCode {
    become_child(|name| ROLES.iter().find(|(role, _)| *role == name).map(|(_, run)| *run));
    let both_end_well = |roles| move || play(roles)?.iter().try_for_each(Outcome::expect_success);
    let trials = vec![
        Trial::test("connection_between_machines_carries_everything", both_end_well(["uses", "serves"])),
        Trial::test("connect_is_refused_by_the_other_machine", both_end_well(["meets a refusal", "refuses"])),
        Trial::test("abort_by_the_other_machine_is_an_event", both_end_well(["meets an abort", "aborts"])),
        Trial::test("connections_go_both_ways_at_once", both_end_well(["calls and answers"; 2])),
        Trial::test("machine_that_is_killed_disconnects", || killed(["loses the peer", "is killed"])),
        Trial::test("machine_that_is_killed_ends_requests", || {
            killed(["reads from the killed", "is killed under load"])
        }),
        Trial::test("connection_by_frames_carries_everything", both_end_well(["uses by frames", "serves by frames"])),
        Trial::test("connections_by_frames_go_both_ways", both_end_well(["calls and answers by frames"; 2])),
        Trial::test("bytes_are_moved_while_calls_fail", bytes_are_moved),
        Trial::test("frames_cross_between_machines", both_end_well(["sends frames"; 2])),
        Trial::test("machines_are_refused_in_virtual_time", refused_in_virtual_time),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn bytes_are_moved() -> Result<(), Failed> {
    let outcomes = play(["moves bytes while calls fail", "has bytes moved while calls fail"])?;
    outcomes.iter().try_for_each(Outcome::expect_success)?;
    let text = outcomes[0].text();
    // The list of trials has begun a line.
    text.lines().filter(|line| line.starts_with(failing_calls::MOVED)).for_each(|line| println!("\n{line}"));
    Ok(())
}

/// The second role is that of the machine that is killed.
fn killed(roles: [&str; 2]) -> Result<(), Failed> {
    let [survivor, killed] = play(roles)?;
    survivor.expect_success()?;
    if killed.was_killed() { Ok(()) } else { Err(killed.failure("it was not killed")) }
}

fn refused_in_virtual_time() -> Result<(), Failed> {
    in_child("verifies", &[("SOFTNDK_STAND_INS", "127.0.0.2".as_ref())])?.expect_failure("needs Mode::Fast")
}

fn verifies() {
    let mut setup = setup(1);
    setup.kernel.mode = Mode::Verify;
    drop(Machine::start(&Setup { adapters: Vec::new(), ..setup }));
}

/// The machines have TCP/IP on their adapters, whose frames go through uplinks: as two machines with Windows.
static BY_FRAMES: AtomicBool = AtomicBool::new(false);

fn by_frames(role: fn()) {
    BY_FRAMES.store(true, Ordering::Relaxed);
    role();
}

/// Runs a role on its machine, with its adapter open.
pub(super) fn on_machine(number: u8, role: impl FnOnce(&Adapter)) {
    if !BY_FRAMES.load(Ordering::Relaxed) {
        return with_machine(&setup(number), |machine| role(&machine.open(0)));
    }
    let mut setup = setup_with_uplink(number);
    setup.kernel.stacks = true;
    with_machine(&setup, |machine| {
        open_uplink(number, &machine.adapters[0]);
        role(&machine.open(0));
    });
}

pub(super) fn any_port(number: u8) -> SocketAddr {
    SocketAddr::new(address_of(number), 0)
}

/// Where the second machine listens.
pub(super) fn destination(port: &str) -> SocketAddr {
    SocketAddr::new(address_of(2), port.parse().expect("a port"))
}

pub(super) fn listen(adapter: &Adapter) -> Listener {
    let listener = Listener::new(adapter).expect("a listener");
    assert_eq!(listener.listen(any_port(2)), 0);
    listener
}

pub(super) fn say_port_of(listener: &Listener) {
    send_line(&listener.local_address().port().to_string());
}

/// What the peer has sent is followed by zeroes to the size that the wire has.
fn check_data(connector: &Connector, sent: &[u8]) {
    let mut data = connector.data().private_data;
    assert!(data.len() >= sent.len(), "{data:?}");
    let padding = data.split_off(sent.len());
    assert_eq!(data, sent);
    assert!(padding.iter().all(|byte| *byte == 0), "{padding:?}");
}

fn connect(end: &End<'_>, to: SocketAddr) -> Result<Connector, NTSTATUS> {
    let connector = Connector::new(end.adapter)?;
    let offer = Offer { private_data: FIRST_DATA, ..Offer::default() };
    match connector.begin_connect(&end.queue_pair, any_port(1), to, &offer).wait() {
        0 => {}
        failure => return Err(failure),
    }
    check_data(&connector, SECOND_DATA);
    assert_eq!(connector.peer_address(), to);
    assert_eq!(connector.begin_complete_connect().wait(), 0);
    Ok(connector)
}

fn accept(end: &End<'_>, listener: &Listener) -> Connector {
    let connector = listener.next();
    check_data(&connector, FIRST_DATA);
    assert_eq!(connector.peer_address().ip(), address_of(1));
    assert_eq!(connector.local_address(), listener.local_address());
    let offer = Offer { private_data: SECOND_DATA, ..Offer::default() };
    assert_eq!(connector.begin_accept(&end.queue_pair, &offer).wait(), 0);
    connector
}

pub(super) fn end(adapter: &Adapter) -> End<'_> {
    End::new(adapter, QueuePairShape::default())
}

pub(super) fn message<'a>(end: &End<'a>) -> Window<'a> {
    Window::open(end, Buffer::scattered(MESSAGE), WindowKind::Registered)
}

/// Waits for the result of the oldest request, which was this.
fn wait_for(end: &End<'_>, request: u64) {
    let result = end.initiator.wait_for_one();
    assert_eq!((result.Status, result.RequestContext as u64), (0, request));
}

/// Waits for the only receive: of this length.
fn wait_for_message(end: &End<'_>, length: usize) {
    let result = end.receive.wait_for_one();
    assert_eq!((result.Status, result.BytesTransferred as usize), (0, length));
}

pub(super) const MESSAGE: usize = 24;
const WRITTEN: usize = 150_001;
const LENGTH: usize = (4 << 20) + 4097;
const PIECE: usize = 100_003;
/// Reads at a time: more than the peer takes at once.
const AT_A_TIME: usize = 24;
const SEED_WRITTEN: u64 = 0x11;
const SEED_READ: u64 = 0x22;
const SEED_DONE: u64 = 0x33;

/// The places of the second machine's memory as bytes, and from them.
pub(super) fn pack(source: &Window<'_>, target: &Window<'_>) -> [u8; MESSAGE] {
    let mut bytes = [0; MESSAGE];
    bytes[..8].copy_from_slice(&source.remote(0).address.to_le_bytes());
    bytes[8..12].copy_from_slice(&source.remote_token().to_le_bytes());
    bytes[12..20].copy_from_slice(&target.remote(0).address.to_le_bytes());
    bytes[20..].copy_from_slice(&target.remote_token().to_le_bytes());
    bytes
}

pub(super) fn unpack(bytes: &[u8]) -> [Remote; 2] {
    [&bytes[..12], &bytes[12..]].map(|bytes| Remote {
        address: u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")),
        token: u32::from_le_bytes(bytes[8..].try_into().expect("four bytes")),
    })
}

fn uses() {
    on_machine(1, |adapter| {
        let end = end(adapter);
        let (incoming, outgoing) = (message(&end), message(&end));
        assert_eq!(end.queue_pair.receive(1, &incoming.in_sges(1)), 0);
        let connector = connect(&end, destination(&receive_line())).expect("a connection");
        wait_for_message(&end, MESSAGE);
        let [source, target] = unpack(&incoming.buffer.to_vec());

        let written = Window::open(&end, Buffer::scattered(WRITTEN), WindowKind::Registered);
        written.buffer.fill_with_seed(SEED_WRITTEN);
        assert_eq!(end.queue_pair.write(2, &written.in_sges(3), target, NONE), 0);
        wait_for(&end, 2);
        read_all(&end, source);

        outgoing.buffer.fill_with_seed(SEED_DONE);
        assert_eq!(end.queue_pair.send(3, &outgoing.in_sges(2), NONE), 0);
        wait_for(&end, 3);
        assert_eq!(connector.begin_disconnect().wait(), 0);
        assert_eq!(connector.disconnect_events(), 0);
    });
}

/// Reads the source in pieces, some at a time, and compares each byte.
fn read_all(end: &End<'_>, source: Remote) {
    let read = Window::open(end, Buffer::scattered(LENGTH), WindowKind::Registered);
    let pieces: Vec<_> = (0..LENGTH).step_by(PIECE).map(|start| start..LENGTH.min(start + PIECE)).collect();
    for some in pieces.chunks(AT_A_TIME) {
        for piece in some {
            let from = Remote { address: source.address + piece.start as u64, ..source };
            assert_eq!(end.queue_pair.read(piece.start as u64, &[read.sge(piece.clone())], from, NONE), 0);
        }
        for piece in some {
            wait_for(end, piece.start as u64);
        }
    }
    read.buffer.assert_seed(SEED_READ, 0..LENGTH);
}

fn serves() {
    on_machine(2, |adapter| {
        let end = end(adapter);
        let (incoming, outgoing) = (message(&end), message(&end));
        let source = Window::open(&end, Buffer::scattered(LENGTH), WindowKind::Registered);
        source.buffer.fill_with_seed(SEED_READ);
        let target = Window::open(&end, Buffer::scattered(WRITTEN), WindowKind::Registered);
        let places = pack(&source, &target);
        outgoing.buffer.fill(|position| places[position]);
        assert_eq!(end.queue_pair.receive(1, &incoming.in_sges(1)), 0);

        let listener = listen(adapter);
        say_port_of(&listener);
        let connector = accept(&end, &listener);
        assert_eq!(end.queue_pair.send(2, &outgoing.in_sges(1), NONE), 0);
        wait_for(&end, 2);
        wait_for_message(&end, MESSAGE);
        incoming.buffer.assert_seed(SEED_DONE, 0..MESSAGE);
        // The Write has come before the Send behind it.
        target.buffer.assert_seed(SEED_WRITTEN, 0..WRITTEN);
        assert!(connector.wait_for_disconnect());
        assert_eq!(connector.begin_disconnect().wait(), 0);
    });
}

fn meets_refusals() {
    on_machine(1, |adapter| {
        let end = end(adapter);
        let port = receive_line();
        assert_eq!(connect(&end, destination(&port)).err(), Some(STATUS_CONNECTION_REFUSED), "nobody listens");
        send_line("refused");
        let port = receive_line();
        assert_eq!(connect(&end, destination(&port)).err(), Some(STATUS_CONNECTION_REFUSED), "it is rejected");
        // The same queue pair connects after that.
        let connector = connect(&end, destination(&port)).expect("a connection");
        assert_eq!(connector.begin_disconnect().wait(), 0);
    });
}

fn refuses() {
    on_machine(2, |adapter| {
        let closed = listen(adapter);
        let port = closed.local_address().port();
        closed.close();
        send_line(&port.to_string());
        assert_eq!(receive_line(), "refused");
        let listener = listen(adapter);
        say_port_of(&listener);
        let rejected = listener.next();
        check_data(&rejected, FIRST_DATA);
        assert_eq!(rejected.reject(SECOND_DATA), 0);
        let end = end(adapter);
        let connector = accept(&end, &listener);
        assert!(connector.wait_for_disconnect());
        assert_eq!(connector.begin_disconnect().wait(), 0);
    });
}

fn loses_peer() {
    on_machine(1, |adapter| {
        let end = end(adapter);
        assert_eq!(end.queue_pair.receive(1, &[]), 0);
        let connector = connect(&end, destination(&receive_line())).expect("a connection");
        send_line("connected");
        assert!(connector.wait_for_disconnect());
        let ended = connector.begin_disconnect().wait();
        assert!(matches!(ended, 0 | STATUS_CONNECTION_ABORTED), "{ended:#010x}");
        assert_eq!(end.receive.wait_for_one().Status, STATUS_CANCELLED);
    });
}

fn is_killed() {
    on_machine(2, |adapter| {
        let end = end(adapter);
        let listener = listen(adapter);
        say_port_of(&listener);
        let _connector = accept(&end, &listener);
        assert_eq!(receive_line(), "connected");
        be_killed();
    });
}

fn reads_from_killed() {
    on_machine(1, |adapter| {
        let end = end(adapter);
        let incoming = message(&end);
        assert_eq!(end.queue_pair.receive(1, &incoming.in_sges(1)), 0);
        let connector = connect(&end, destination(&receive_line())).expect("a connection");
        wait_for_message(&end, MESSAGE);
        let [source, _] = unpack(&incoming.buffer.to_vec());
        let read = Window::open(&end, Buffer::scattered(WRITTEN), WindowKind::Registered);
        let post = || assert_eq!(end.queue_pair.read(1, &[read.sge(0..WRITTEN)], source, NONE), 0);
        (0..AT_A_TIME).for_each(|_| post());
        let (done, failed) = (Cell::new(0), Cell::new(0));
        // Each result is followed by another request, until the connection ends under them.
        wait_until("the peer is killed", || {
            for result in end.initiator.take(AT_A_TIME) {
                if result.Status == 0 {
                    done.set(done.get() + 1);
                    if done.get() == AT_A_TIME {
                        send_line("reads");
                    }
                    post();
                } else {
                    failed.set(failed.get() + 1);
                }
            }
            connector.disconnect_events() != 0
        });
        assert!(done.get() >= AT_A_TIME, "only {} Reads before the end", done.get());
        // A killed process may end a connection gracefully: then the Reads wait for the disconnect.
        let ended = connector.begin_disconnect().wait();
        assert!(matches!(ended, 0 | STATUS_CONNECTION_ABORTED), "{ended:#010x}");
        end.initiator.wait_for(AT_A_TIME - failed.get());
        assert!(end.initiator.take(1).is_empty());
    });
}

fn is_killed_under_load() {
    on_machine(2, |adapter| {
        let end = end(adapter);
        let outgoing = message(&end);
        let source = Window::open(&end, Buffer::scattered(WRITTEN), WindowKind::Registered);
        let places = pack(&source, &source);
        outgoing.buffer.fill(|position| places[position]);
        let listener = listen(adapter);
        say_port_of(&listener);
        let _connector = accept(&end, &listener);
        assert_eq!(end.queue_pair.send(2, &outgoing.in_sges(1), NONE), 0);
        assert_eq!(receive_line(), "reads");
        be_killed();
    });
}

/// Connections from each machine to the other.
const CALLS: usize = 8;

/// What both machines do: they listen and connect at once, and over each connection a message goes each way.
fn calls_and_answers() {
    let number = own_number();
    on_machine(number, |adapter| {
        let listener = Listener::new(adapter).expect("a listener");
        assert_eq!(listener.listen(any_port(number)), 0);
        say_port_of(&listener);
        let to = SocketAddr::new(address_of(3 - number), receive_line().parse().expect("a port"));
        let ends: Vec<_> = (0..2 * CALLS).map(|_| end(adapter)).collect();
        let windows: Vec<_> = ends.iter().map(|end| [message(end), message(end)]).collect();
        for (end, [incoming, outgoing]) in ends.iter().zip(&windows) {
            outgoing.buffer.fill_with_seed(number.into());
            assert_eq!(end.queue_pair.receive(1, &incoming.in_sges(1)), 0);
        }
        let (calling, answering) = ends.split_at(CALLS);
        let call = |end: &End<'_>| {
            let connector = Connector::new(adapter).expect("a connector");
            let connecting = connector.begin_connect(&end.queue_pair, any_port(number), to, &Offer::default());
            (connector, connecting)
        };
        let calls: Vec<_> = calling.iter().map(call).collect();
        let answer = |end: &End<'_>| {
            let connector = listener.next();
            let accepting = connector.begin_accept(&end.queue_pair, &Offer::default());
            (connector, accepting)
        };
        let answers: Vec<_> = answering.iter().map(answer).collect();
        for (connector, connecting) in &calls {
            assert_eq!(connecting.wait(), 0);
            assert_eq!(connector.begin_complete_connect().wait(), 0);
        }
        assert!(answers.iter().all(|(_, accepting)| accepting.wait() == 0));

        for (end, [_, outgoing]) in ends.iter().zip(&windows) {
            assert_eq!(end.queue_pair.send(2, &outgoing.in_sges(1), NONE), 0);
        }
        for (end, [incoming, _]) in ends.iter().zip(&windows) {
            wait_for(end, 2);
            wait_for_message(end, MESSAGE);
            incoming.buffer.assert_seed((3 - number).into(), 0..MESSAGE);
        }
        let leaving: Vec<_> = calls.iter().map(|(connector, _)| connector.begin_disconnect()).collect();
        for (connector, _) in &answers {
            assert!(connector.wait_for_disconnect());
            assert_eq!(connector.begin_disconnect().wait(), 0);
        }
        assert!(leaving.iter().all(|leaving| leaving.wait() == 0));
    });
}

fn meets_abort() {
    on_machine(1, |adapter| {
        let end = end(adapter);
        let connector = connect(&end, destination(&receive_line())).expect("a connection");
        send_line("connected");
        assert!(connector.wait_for_disconnect());
        assert_eq!(end.queue_pair.send(1, &[], NONE), 0);
        assert_eq!(end.initiator.wait_for_one().Status, STATUS_CANCELLED);
    });
}

fn aborts() {
    on_machine(2, |adapter| {
        let end = end(adapter);
        let listener = listen(adapter);
        say_port_of(&listener);
        let connector = accept(&end, &listener);
        assert_eq!(receive_line(), "connected");
        connector.close();
    });
}

/// Frames that each machine sends to the other.
const FRAMES: usize = 400;
/// Frames under way at a time, so that none is lost.
const FRAME_BATCH: usize = 20;

/// What both machines do: frames of all lengths go to the other one's adapter in VXLAN datagrams, and come from it.
fn sends_frames() {
    let (own, peer) = (own_number(), 3 - own_number());
    with_machine(&setup_with_uplink(own), |machine| {
        let adapter = &machine.adapters[0];
        open_uplink(own, adapter);
        send_line("ready");
        assert_eq!(receive_line(), "ready");
        let frame = |from: u8, number: usize| {
            let length = 60 + number * 7 % 1405;
            let payload = (0..length - 14).map(|index| (index * 5 + number + usize::from(from)) as u8);
            [&[0xFF; 6][..], &[2, 0, 0, 0, 0, from], &[0x88, 0xB5]]
                .concat()
                .into_iter()
                .chain(payload)
                .collect::<Vec<u8>>()
        };
        let received = RefCell::new(Vec::new());
        for first in (0..FRAMES).step_by(FRAME_BATCH) {
            let frames = (first..first + FRAME_BATCH).map(|number| frame(own, number).into()).collect();
            let answers = adapter.send(frames).expect("a started adapter").wait();
            assert!(answers.iter().all(|answer| *answer == 0), "{answers:?}");
            wait_until("the peer's frames have come", || {
                received.borrow_mut().extend(adapter.take_received().expect("a started adapter"));
                received.borrow().len() >= first + FRAME_BATCH
            });
        }
        let mut expected: Vec<_> = (0..FRAMES).map(|number| frame(peer, number)).collect();
        let mut received = received.into_inner();
        expected.sort();
        received.sort();
        assert!(received == expected, "{} frames came, and are not what was sent", received.len());
    });
}
