//! Memory taken away while another processor copies into it: after Deregister, Invalidate or CloseMr has completed, not
//! one byte changes. The owner writes its own pattern over the memory as soon as the call has completed and compares it later.

use conformance::case;
use conformance::consumer::{Buffer, End, Mapping, MemoryRegion, Pair, QueuePairShape, Remote, Window, WindowKind};
use conformance::machine::{Machine, Setup, concurrently, with_machine};
use conformance::trial::Case;
use fastrand::Rng;
use kernel_host::FrameOrder;
use kernel_host::schedule;
use ndkpi_sys::ndkpi::*;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A fast registration of tiny limits holds so little that an invalidation does not coincide with the copying.
pub const CASES: &[Case] = &[
    // A removal seldom meets a copy where all that is copied at once is a parcel.
    case!(deregister_during_a_write: "NDK-MR-7"; not in stream),
    case!(close_during_a_write: "NDK-MR-7", "BUG-1"; not in stream),
    case!(invalidate_during_a_write: "NDK-MR-7", "NDK-FRMR-4"; not in tiny, stream),
    case!(deregister_of_a_read_sink: "NDK-MR-7"; not in stream),
    case!(close_of_a_read_sink: "NDK-MR-7"; not in stream),
    case!(invalidate_of_a_read_sink: "NDK-MR-7", "NDK-QP-16"; not in tiny, stream),
    case!(send_and_invalidate_after_a_write: "NDK-QP-16", "NDK-MR-7"),
    case!(result_that_comes_while_its_queue_is_armed_is_notified: "NDK-CQ-4", "BUG-5"),
    case!(page_list_that_changes_while_it_is_posted: "BUG-9", "NDK-QP-12"),
];

const MIB: usize = 1 << 20;
const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const FULL: NDK_OP_FLAGS = NDK_OP_FLAG_ALLOW_REMOTE_READ.union(NDK_OP_FLAG_ALLOW_REMOTE_WRITE);
const OWNERS: u8 = 0xA5;
/// Rounds of each trial; the time of the removal moves through the copy.
const ROUNDS: u64 = 60;
/// With a schedule the seed chooses the point instead.
const ROUNDS_OF_A_SEED: u64 = 8;
/// A trial that has not met the interleaving that it tests goes on for so many times its rounds.
const AGAIN: u64 = 100;
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
/// happened and came during the copying: some transfer had succeeded and some came too late.
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
                    pair.active.queue_pair.read(request, &[sink.sge(0..MIB)], source.remote(0), NONE)
                } else {
                    pair.active.queue_pair.write(request, &[source.sge(0..MIB)], sink.remote(0), NONE)
                };
                assert_eq!(status, 0);
                copying.fetch_add(1, Ordering::AcqRel);
            }
            let results = pair.active.initiator.wait_for(TRANSFERS);
            failed.store(results.iter().filter(|result| result.Status != 0).count(), Ordering::Release);
        },
        || {
            while copying.load(Ordering::Acquire) < begin {
                schedule::spin();
            }
            for _ in 0..delay {
                schedule::spin();
            }
            if !take_away(removal, &sink, owner, peer, sink_is_local) {
                return;
            }
            removed.store(true, Ordering::Release);
            sink.buffer.fill(|_| OWNERS);
            // The others may copy on for a while; nothing of it may arrive.
            for _ in 0..200 {
                schedule::let_others();
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
        let mut random = Rng::with_seed(0x2ACE);
        let enough = if schedule::is_on() { ROUNDS_OF_A_SEED } else { ROUNDS };
        let (mut met, mut played) = (0, 0);
        // A run in which the removal always came too early or too late proves nothing: it goes on until one came during a copy.
        while played < enough || met == 0 {
            assert!(played < AGAIN * enough, "no removal met a copy in {played} rounds");
            played += 1;
            // After some post has returned, from at once to about the time that a copy or two take.
            let (first, delay) = (random.u64(..TRANSFERS as u64) as usize, random.u64(..4_000));
            met += u32::from(round(machine, removal, sink_is_local, first, delay));
        }
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
        let length = second.fit_fast(MIB);
        let source = Window::open(&pair.active, Buffer::scattered(length), WindowKind::Registered);
        for seed in 0..10 {
            let sink = Window::open(&pair.passive, Buffer::scattered(length), WindowKind::FastRegistered);
            source.buffer.fill_with_seed(seed);
            assert_eq!(pair.passive.queue_pair.receive(1, &[]), 0);
            let queue_pair = &pair.active.queue_pair;
            assert_eq!(queue_pair.write(1, &source.in_sges(1), sink.remote(0), NDK_OP_FLAG_DEFER), 0);
            assert_eq!(queue_pair.send_and_invalidate(2, &[], NONE, sink.remote_token()), 0);
            let received = pair.passive.receive.wait_for_one();
            assert_eq!(received.Type, NdkOperationTypeReceiveAndInvalidate);
            sink.buffer.assert_seed(seed, 0..length);
            sink.buffer.fill(|_| OWNERS);
            let results = pair.active.initiator.wait_for(2);
            assert!(results.iter().all(|result| result.Status == 0), "{results:#x?}");
            sink.buffer.assert_all(OWNERS);
        }
    });
}

/// One arms and then only waits, without looking once more, while another has the result made: whichever comes first, it is
/// notified. The window is a few instructions wide, so this always runs by a seed.
fn result_that_comes_while_its_queue_is_armed_is_notified() {
    let mut setup = Setup::default();
    setup.kernel.schedule.get_or_insert(1);
    with_machine(&setup, |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let pair = Pair::connect(&first, &second);
        let queue = &pair.passive.receive;
        for round in 0..60 {
            assert_eq!(pair.passive.queue_pair.receive(round, &[]), 0);
            queue.clear_notification();
            concurrently(
                machine,
                || {
                    queue.arm(NDK_CQ_NOTIFY_ANY);
                    assert!(queue.wait_for_notification(), "round {round}: a result is there without a notification");
                },
                || assert_eq!(pair.active.queue_pair.send(round, &[], NONE), 0),
            );
            assert_eq!(queue.take(2).len(), 1);
            assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
        }
    });
}

/// A consumer that must not, but does, write the page list of a FastRegister while the call runs: what was checked is what is
/// used. The last page is now the right one and now a misaligned one; the call refuses, or the region begins on whole pages.
fn page_list_that_changes_while_it_is_posted() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let count = second.info().FRMRPageCount.min(512) as usize;
        let pair = Pair::connect(&first, &second);
        let near = Window::open(&pair.active, Buffer::scattered(64), WindowKind::Registered);
        let buffer = Buffer::new(count * 4096, 0, FrameOrder::Scattered);
        // The value of every byte is its place in its page.
        buffer.fill(|position| (position % 4096) as u8);
        let mapping = Mapping::build(&second, &buffer).expect("a logical mapping");
        let region = pair.passive.domain.fast_region(count as u32, true);
        let list: Vec<AtomicU64> = mapping.pages().iter().map(|page| AtomicU64::new(*page)).collect();
        let (good, crooked) = (mapping.pages()[count - 1], mapping.pages()[0] + 7);
        let (done, changes) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (mut accepted, mut refused, mut met) = (0, 0, 0);
        concurrently(
            machine,
            || {
                // A list that did not change while it was read proves nothing. One at a time, threads change it between calls.
                let (enough, often) = if schedule::is_on() { (50, 0) } else { (3000, 200) };
                for round in 0.. {
                    if round >= enough && accepted > 10 && refused > 10 && met >= often {
                        break;
                    }
                    assert!(round < AGAIN * enough, "{accepted} accepted, {refused} refused, {met} met a change");
                    let before = changes.load(Ordering::Acquire);
                    let status = post(&pair.passive, &region, &list, buffer.label());
                    met += u32::from(changes.load(Ordering::Acquire) != before);
                    if status != 0 {
                        refused += 1;
                        continue;
                    }
                    assert_eq!(pair.passive.initiator.wait_for_one().Status, 0, "a list that was accepted");
                    accepted += 1;
                    let address = buffer.label() + (count as u64 - 1) * 4096;
                    let remote = Remote { address, token: region.remote_token() };
                    assert_eq!(pair.active.queue_pair.read(1, &[near.sge(0..64)], remote, NONE), 0);
                    assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
                    assert_eq!(near.buffer.byte(0), 0, "the region has a page that was not checked");
                    assert_eq!(pair.passive.queue_pair.invalidate(2, region.object(), NONE), 0);
                    assert_eq!(pair.passive.initiator.wait_for_one().Status, 0);
                }
                done.store(true, Ordering::Release);
            },
            || {
                while !done.load(Ordering::Acquire) {
                    list[count - 1].store(crooked, Ordering::Relaxed);
                    schedule::spin();
                    list[count - 1].store(good, Ordering::Relaxed);
                    changes.fetch_add(1, Ordering::Release);
                    schedule::spin();
                }
            },
        );
        region.close();
    });
}

/// FastRegister with a page list in shared memory; the consumer layer would hand over a copy.
fn post(end: &End<'_>, region: &MemoryRegion, list: &[AtomicU64], base: u64) -> i32 {
    let pages = list.as_ptr().cast::<u64>();
    let length = list.len() * 4096;
    end.queue_pair.fast_register_in_place(3, region.object(), (pages, list.len()), (base, length), FULL)
}
