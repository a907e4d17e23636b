//! Memory taken away while another processor copies into it: after Deregister, Invalidate or CloseMr has completed, not
//! one byte changes. The owner proves it by writing its own pattern over the memory the moment the call has completed.

use conformance::case;
use conformance::consumer::{Buffer, End, Pair, QueuePairShape, Window, WindowKind};
use conformance::machine::{Machine, Random, Setup, concurrently, with_machine};
use conformance::trial::Case;
use ndkpi_sys::ndkpi::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub const CASES: &[Case] = &[
    case!(deregister_during_a_write: "NDK-MR-7"),
    case!(close_during_a_write: "NDK-MR-7"),
    case!(invalidate_during_a_write: "NDK-MR-7", "NDK-FRMR-4"),
    case!(deregister_of_a_read_sink: "NDK-MR-7"),
    case!(close_of_a_read_sink: "NDK-MR-7"),
    case!(invalidate_of_a_read_sink: "NDK-MR-7", "NDK-QP-16"),
    case!(send_and_invalidate_after_a_write: "NDK-QP-16", "NDK-MR-7"),
];

const MIB: usize = 1 << 20;
const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const OWNERS: u8 = 0xA5;
/// Rounds of each trial; the moment of the removal moves through the copy.
const ROUNDS: u64 = 60;
/// Transfers of a round.
const TRANSFERS: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Removal {
    Deregister,
    Close,
    /// By the owner; if the owner is the one that reads, by the peer, because a queue keeps its own order.
    Invalidate,
}

/// Takes the sink's region away and waits for that to be complete; false if it came to nothing.
fn take_away(removal: Removal, sink: &Window<'_>, owner: &End<'_>, peer: &End<'_>, sink_is_local: bool) -> bool {
    let region = sink.region.as_ref().expect("a region");
    // The connection may end under an invalidation, which then is none.
    match removal {
        Removal::Deregister => region.deregister() == 0,
        Removal::Close => {
            region.close();
            true
        }
        Removal::Invalidate if sink_is_local => {
            assert_eq!(peer.queue_pair.send_and_invalidate(99, &[], NONE, sink.remote_token()), 0);
            owner.receive.wait_for_one().Status == 0
        }
        Removal::Invalidate => {
            assert_eq!(owner.queue_pair.invalidate(99, region.object(), NONE), 0);
            owner.initiator.wait_for_one().Status == 0
        }
    }
}

/// One round: transfers of 1 MiB into a region whose owner takes it away when `begin` posts have returned and a little
/// later. Returns whether the removal
/// came to pass and met the copying: some transfer had succeeded and some came too late.
fn round(machine: &Machine, removal: Removal, sink_is_local: bool, begin: usize, delay: u64) -> bool {
    let (first, second) = (machine.open(0), machine.open(1));
    let shape = QueuePairShape { initiator_depth: 64, ..QueuePairShape::default() };
    let pair = Pair::connect_with(&first, &second, shape);
    let kind = if removal == Removal::Invalidate { WindowKind::FastRegistered } else { WindowKind::Registered };
    // The sink belongs to the side that takes it away; 1 MiB lies in the middle of it with a guard around.
    let (owner, peer) = if sink_is_local { (&pair.active, &pair.passive) } else { (&pair.passive, &pair.active) };
    let sink = Window::open(owner, Buffer::scattered(MIB), kind);
    let source = Window::open(peer, Buffer::scattered(MIB), WindowKind::Registered);
    source.buffer.fill(|_| 0x11);
    if sink_is_local {
        assert_eq!(owner.queue_pair.receive(1, &[]), 0);
    }
    let (copying, removed, failed) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicUsize::new(0));
    concurrently(
        machine,
        || {
            for request in 0..TRANSFERS as u64 {
                let status = if sink_is_local {
                    pair.active.queue_pair.read(request, &[sink.element(0..MIB)], source.remote(0), NONE)
                } else {
                    pair.active.queue_pair.write(request, &[source.element(0..MIB)], sink.remote(0), NONE)
                };
                assert_eq!(status, 0);
                copying.fetch_add(1, Ordering::AcqRel);
            }
            let results = pair.active.initiator.wait_for(TRANSFERS);
            failed.store(results.iter().filter(|result| result.Status != 0).count(), Ordering::Release);
        },
        || {
            while copying.load(Ordering::Acquire) < begin {
                std::hint::spin_loop();
            }
            for _ in 0..delay {
                std::hint::spin_loop();
            }
            if !take_away(removal, &sink, owner, peer, sink_is_local) {
                return;
            }
            removed.store(true, Ordering::Release);
            sink.buffer.fill(|_| OWNERS);
            // The others may copy on for a while; nothing of it may arrive.
            for _ in 0..200 {
                std::thread::yield_now();
            }
            sink.buffer.assert_all(OWNERS);
        },
    );
    sink.buffer.assert_surroundings();
    let removed = removed.load(Ordering::Acquire);
    assert!(removed || removal == Removal::Invalidate, "only an invalidation needs the connection");
    if removed {
        sink.buffer.assert_all(OWNERS);
    }
    removed && (1..TRANSFERS).contains(&failed.load(Ordering::Acquire))
}

fn rounds(removal: Removal, sink_is_local: bool) {
    let setup = Setup::default();
    with_machine(&setup, |machine| {
        let mut random = Random::new(0x2ACE);
        let mut met = 0;
        for _ in 0..ROUNDS {
            // After some post has returned, from at once to about the time that a copy or two take.
            let (begin, delay) = (random.below(TRANSFERS as u64) as usize, random.below(4_000));
            met += u32::from(round(machine, removal, sink_is_local, begin, delay));
        }
        // A run in which the removal always came too early or too late has shown nothing.
        assert!(met > 0, "no removal met a copy in {ROUNDS} rounds");
    });
}

fn deregister_during_a_write() {
    rounds(Removal::Deregister, false);
}

fn close_during_a_write() {
    rounds(Removal::Close, false);
}

fn invalidate_during_a_write() {
    rounds(Removal::Invalidate, false);
}

fn deregister_of_a_read_sink() {
    rounds(Removal::Deregister, true);
}

fn close_of_a_read_sink() {
    rounds(Removal::Close, true);
}

fn invalidate_of_a_read_sink() {
    rounds(Removal::Invalidate, true);
}

/// The peer writes and then sends with invalidation: when the receive is visible, all of the Write is there and the
/// region is gone.
fn send_and_invalidate_after_a_write() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let pair = Pair::connect(&first, &second);
        let source = Window::open(&pair.active, Buffer::scattered(MIB), WindowKind::Registered);
        for seed in 0..10 {
            let sink = Window::open(&pair.passive, Buffer::scattered(MIB), WindowKind::FastRegistered);
            source.buffer.fill_with_seed(seed);
            assert_eq!(pair.passive.queue_pair.receive(1, &[]), 0);
            let queue_pair = &pair.active.queue_pair;
            assert_eq!(queue_pair.write(1, &[source.element(0..MIB)], sink.remote(0), NDK_OP_FLAG_DEFER), 0);
            assert_eq!(queue_pair.send_and_invalidate(2, &[], NONE, sink.remote_token()), 0);
            let received = pair.passive.receive.wait_for_one();
            assert_eq!(received.Type, NdkOperationTypeReceiveAndInvalidate);
            sink.buffer.assert_seed(seed, 0..MIB);
            sink.buffer.fill(|_| OWNERS);
            let results = pair.active.initiator.wait_for(2);
            assert!(results.iter().all(|result| result.Status == 0), "{results:#x?}");
            sink.buffer.assert_all(OWNERS);
        }
    });
}
