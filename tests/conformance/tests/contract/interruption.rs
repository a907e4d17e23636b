//! Interleavings of two calls: the first is stopped at each of its points while the other runs whole. A call that must wait for the
//! first one waits, and nothing that the first uses is freed. Every window is reached in every run, on real threads and without a seed.
//! Also a thread that the system preempts at each of its points below DISPATCH_LEVEL: other contexts do not wait for it.

use conformance::case;
use conformance::consumer::{Adapter as Open, Buffer, End, Listener, Mapping, Pair, Window, WindowKind};
use conformance::machine::{Machine, Setup, wait_until_idle, with_machine};
use conformance::trial::Case;
use kernel_host::interruption::{interrupted, preempted, watch_copies};
use kernel_host::irql::{self, Irql};
use kernel_host::{Adapter, HaltAction, Mode, dispatcher, schedule};
use ndkpi_sys::ndis::{OID_GEN_CURRENT_PACKET_FILTER, OID_GEN_STATISTICS, OID_NDK_SET_STATE};
use ndkpi_sys::ndkinfo::NDK_VERSION;
use ndkpi_sys::ndkpi::NDK_OP_FLAGS;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

pub const CASES: &[Case] = &[
    case!(halt_at_every_point_of_a_frame_from_the_peer: "NDIS-LIFE-1", "BUG-8"),
    case!(pause_at_every_point_of_a_frame_from_the_peer: "NDIS-LIFE-5"),
    case!(surprise_removal_at_every_point_of_a_frame_from_the_peer: "NDIS-LIFE-3", "BUG-8"),
    case!(halt_at_every_point_of_a_change_of_addresses: "NDIS-LIFE-1", "BUG-8"),
    case!(address_added_at_every_point_of_another_change: "NDK-CM-58"),
    case!(halt_at_every_point_of_an_open: "NDIS-LIFE-2", "BUG-8"),
    case!(disable_at_every_point_of_an_open: "NDIS-OID-8", "NDK-OPEN-3"),
    case!(memory_taken_back_while_a_thread_is_preempted_in_a_read: "NDK-MR-7", "NDK-FRMR-4", "NDK-LAM-11"; not in stream),
    case!(memory_taken_back_while_a_thread_is_preempted_in_a_write: "NDK-MR-7", "NDK-FRMR-4", "NDK-LAM-11"; not in stream),
];

/// With so many points a call is stopped at every one of them, with more at some.
const POINTS: u64 = 80;

/// Runs `body` as often as it has points, with `other` in the middle, and `after` behind both. A schedule by a seed has
/// interruptions of its own.
fn at_every_point(other: impl Fn() + Sync, body: impl Fn(), after: impl Fn()) {
    let other = || or_end(&other);
    until_not_met(|point| interrupted(point, other, || or_end(&body)), after);
}

/// As [`at_every_point`] at the points below DISPATCH_LEVEL, pages that are copied included: `body` gets no processor for
/// [`PREEMPTION`] there.
pub fn preempted_at_every_point(other: impl Fn() + Sync, body: impl Fn(), after: impl Fn()) {
    let other = || or_end(&other);
    until_not_met(|point| preempted(point, PREEMPTION, other, || or_end(&body)), after);
}

/// How long a preempted thread gets no processor, by the clock of the kernel.
const PREEMPTION: Duration = Duration::from_secs(1);

fn until_not_met(attempt: impl Fn(u64) -> bool, after: impl Fn()) {
    if schedule::is_on() {
        return;
    }
    let mut points = 0;
    loop {
        let met = attempt(points);
        after();
        if !met {
            break;
        }
        // Beyond the first ones in longer steps, so that a long call does not take minutes.
        points += if points < POINTS { 1 } else { points / 8 };
    }
    assert!(points > 4, "the call has {points} points: too few to have met anything");
}

/// A panic ends the trial at once: the other thread may be waiting for what will not come. What it said has been printed.
fn or_end(body: impl Fn()) {
    if std::panic::catch_unwind(AssertUnwindSafe(body)).is_err() {
        std::process::exit(101);
    }
}

/// Two adapters that take every frame.
fn with_wire(trial: impl FnOnce(&Adapter, &Adapter)) {
    const EVERYTHING: u32 = 0x20;
    with_machine(&Setup::default(), |machine: &Machine| {
        let filter = EVERYTHING.to_le_bytes();
        let [first, second] = [0, 1].map(|index| &machine.adapters[index]);
        first.set_oid(OID_GEN_CURRENT_PACKET_FILTER, &filter).expect("a started adapter");
        trial(first, second);
    });
}

fn start(adapter: &Adapter) {
    adapter.start().unwrap_or_else(|error| panic!("starting again: {error}"));
}

fn frame() -> Vec<u8> {
    let mut frame = vec![0xFF; 12];
    frame.extend([0x88, 0xB5]);
    frame.resize(200, 7);
    frame
}

fn send_to_the_peer(from: &Adapter) {
    assert_eq!(
        from.send_frames(&[frame(), frame()]).expect("a running adapter"),
        [0, 0],
        "the sender's wire is in use"
    );
}

fn halt_at_every_point_of_a_frame_from_the_peer() {
    with_wire(|first, second| {
        let halt = || second.halt(HaltAction::DeviceDisabled).expect("halts");
        at_every_point(
            halt,
            || send_to_the_peer(first),
            || {
                if second.state() == HALTED {
                    start(second);
                }
            },
        );
    });
}

const HALTED: kernel_host::ndis::miniport::MiniportState = kernel_host::ndis::miniport::MiniportState::Halted;

fn pause_at_every_point_of_a_frame_from_the_peer() {
    with_wire(|first, second| {
        let pause = || second.pause().expect("pauses");
        let received = || second.take_received().expect("a started adapter");
        let after = || {
            let _before_the_pause = received();
            second.restart().expect("restarts");
            send_to_the_peer(first);
            wait_until_idle();
            assert_eq!(received().len(), 2, "frames since the restart, and none that had come before");
        };
        at_every_point(pause, || send_to_the_peer(first), after);
    });
}

fn surprise_removal_at_every_point_of_a_frame_from_the_peer() {
    with_wire(|first, second| {
        let remove = || second.surprise_remove().expect("is pulled out");
        at_every_point(
            remove,
            || send_to_the_peer(first),
            || {
                if second.state() == HALTED {
                    start(second);
                }
            },
        );
    });
}

fn halt_at_every_point_of_a_change_of_addresses() {
    with_wire(|_, second| {
        let address = IpAddr::from([10, 0, 0, 99]);
        let change = || {
            let _there_already = second.add_address(address, 24);
            let _gone_already = second.remove_address(address);
        };
        let halt = || second.halt(HaltAction::DeviceDisabled).expect("halts");
        at_every_point(halt, change, || {
            if second.state() == HALTED {
                start(second);
            }
        });
    });
}

/// Whichever of two changes is followed first, the one that is followed last has seen both.
fn address_added_at_every_point_of_another_change() {
    with_machine(&Setup::default(), |machine: &Machine| {
        let (adapter, open) = (&machine.adapters[1], machine.open(1));
        let [one, other] = [98, 99].map(|last| IpAddr::from([10, 0, 0, last]));
        let add = |address| assert!(adapter.add_address(address, 24), "{address} is there already");
        let is_known = |address| {
            let listener = Listener::new(&open).expect("a listener");
            listener.listen(SocketAddr::new(address, 5445)) == 0
        };
        at_every_point(
            || add(other),
            || add(one),
            || {
                wait_until_idle();
                let known = [one, other].map(is_known);
                assert_eq!(
                    known,
                    [one, other].map(|address| adapter.remove_address(address)),
                    "addresses of the interface"
                );
            },
        );
    });
}

const NEWEST: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 0 };

fn halt_at_every_point_of_an_open() {
    with_wire(|_, second| {
        // An open during the halt is refused, by NDIS or by the driver.
        let halt = || second.halt(HaltAction::DeviceDisabled).expect("halts");
        let open = || drop(second.open_ndk(NEWEST));
        at_every_point(halt, open, || {
            if second.state() == HALTED {
                start(second);
            }
        });
    });
}

fn disable_at_every_point_of_an_open() {
    with_wire(|_, second| {
        let set = |state| assert_eq!(second.set_oid(OID_NDK_SET_STATE, &[state]).expect("a started adapter").status, 0);
        // Past NDIS, as an open that is on its way when the disable comes.
        let open = || drop(second.open_ndk_directly(NEWEST));
        at_every_point(
            || set(0),
            open,
            || {
                wait_until_idle();
                assert_eq!(second.ndk_opens(), 0);
                set(1);
                wait_until_idle();
                assert!(second.is_ndk_enabled());
                assert_eq!(second.query_oid(OID_GEN_STATISTICS, 256).expect("a started adapter").status, 0);
            },
        );
    });
}

/// A call that does not wait for a thread which gets no processor. The kernel's clock creeps while something runs, so that a busy
/// machine has four seconds.
pub fn promptly<T>(what: &str, call: impl FnOnce() -> T) -> T {
    const LONGEST: dispatcher::Time = dispatcher::UNITS_PER_SECOND / 4;
    let begun = dispatcher::now();
    let result = call();
    let took = dispatcher::now() - begun;
    assert!(took < LONGEST, "{what} takes {} ms beside a thread that is preempted", took / 10_000);
    result
}

/// A machine whose threads can be preempted inside of a copy.
pub fn with_preemption(trial: impl FnOnce(&Machine)) {
    let mut setup = Setup::default();
    // A second of the kernel's is none of the machine's.
    setup.kernel.mode = Mode::Verify;
    watch_copies();
    with_machine(&setup, trial);
}

/// What one consumer has mapped, it takes back. The host looks that nothing maps a buffer that goes.
fn take_memory_back(end: &End<'_>) {
    let length = end.adapter.fit_fast(3 * 4096);
    let fast = Window::open(end, Buffer::scattered(length), WindowKind::FastRegistered);
    let registered = Window::open(end, Buffer::scattered(length), WindowKind::Registered);
    promptly("an Invalidate", || {
        let region = fast.region.as_ref().expect("a region");
        assert_eq!(end.queue_pair.invalidate(1, region.object(), NDK_OP_FLAGS::empty()), 0);
        assert_eq!(end.initiator.wait_for_one().Status, 0);
    });
    promptly("a Deregister", || assert_eq!(registered.region.as_ref().expect("a region").deregister(), 0));
    drop((fast, registered));
    for level in [irql::PASSIVE, irql::DISPATCH] {
        release_a_mapping(end.adapter, level);
    }
}

/// A mapping released at this level, whose memory then goes at once.
pub fn release_a_mapping(open: &Open, level: Irql) {
    let buffer = Buffer::scattered(3 * 4096);
    let mapping = Mapping::build(open, &buffer).expect("a mapping");
    promptly("a ReleaseLAM", || {
        let before = irql::raise(level);
        drop(mapping);
        irql::lower(before);
    });
    assert!(buffer.views().is_empty(), "released at {level}, and still mapped");
}

fn while_a_thread_is_preempted(post: impl Fn(&Pair<'_>, &Window<'_>, &Window<'_>) -> i32) {
    with_preemption(|machine| {
        let [first, second, third, fourth] = [0, 1, 0, 1].map(|index| machine.open(index));
        let (pair, others) = (Pair::connect(&first, &second), Pair::connect(&third, &fourth));
        let length = first.fit_registered(1 << 20);
        let near = Window::open(&pair.active, Buffer::scattered(length), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(length), WindowKind::Registered);
        preempted_at_every_point(
            || take_memory_back(&others.active),
            || assert_eq!(post(&pair, &near, &peer), 0),
            || assert_eq!(pair.active.initiator.wait_for_one().Status, 0),
        );
    });
}

fn memory_taken_back_while_a_thread_is_preempted_in_a_read() {
    while_a_thread_is_preempted(|pair, near, peer| {
        let list = [near.sge(0..near.buffer.length())];
        pair.active.queue_pair.read(1, &list, peer.remote(0), NDK_OP_FLAGS::empty())
    });
}

fn memory_taken_back_while_a_thread_is_preempted_in_a_write() {
    while_a_thread_is_preempted(|pair, near, peer| {
        let list = [near.sge(0..near.buffer.length())];
        pair.active.queue_pair.write(1, &list, peer.remote(0), NDK_OP_FLAGS::empty())
    });
}
