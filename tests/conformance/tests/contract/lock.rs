//! A consumer that posts, polls and arms at DISPATCH_LEVEL with a spin lock of its own held: no callback may run until
//! it has released it, because every callback acquires that lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use conformance::case;
use conformance::consumer::{Buffer, Pair, Window, WindowKind};
use conformance::machine::{Setup, wait_until_idle, with_machine};
use conformance::trial::Case;
use kernel_host::irql;
use kernel_host::thread::Thread;
use ndkpi_sys::ndkpi::*;

pub const CASES: &[Case] = &[
    case!(no_callback_while_the_consumer_holds_its_lock: "NDK-ASY-2", "NDK-CQ-6", "BUG-6"),
    case!(everything_posts_at_dispatch_level: "NDK-ASY-2"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();

/// Runs at DISPATCH_LEVEL, as under a spin lock.
fn at_dispatch<T>(body: impl FnOnce() -> T) -> T {
    let before = irql::raise(irql::DISPATCH);
    let result = body();
    irql::lower(before);
    result
}

fn no_callback_while_the_consumer_holds_its_lock() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let pair = Pair::connect(&first, &second);
        let near = Window::open(&pair.active, Buffer::scattered(4096), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(4096), WindowKind::Registered);
        let held = Arc::new(AtomicBool::new(false));
        let holder = Thread::current().identifier();
        let under_the_lock = Arc::new(AtomicU32::new(0));
        for queue in [&pair.active.initiator, &pair.passive.receive] {
            let (held, under) = (Arc::clone(&held), Arc::clone(&under_the_lock));
            // On another processor a real consumer would spin here; on the holder's own thread it would never end.
            queue.on_notification(move || {
                if held.load(Ordering::Acquire) && Thread::current().identifier() == holder {
                    under.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        for request in 0..200 {
            at_dispatch(|| {
                held.store(true, Ordering::Release);
                pair.active.initiator.arm(NDK_CQ_NOTIFY_ANY);
                pair.passive.receive.arm(NDK_CQ_NOTIFY_ANY);
                assert_eq!(pair.passive.queue_pair.receive(request, &[peer.sge(0..64)]), 0);
                assert_eq!(pair.active.queue_pair.send(request, &[near.sge(0..64)], NONE), 0);
                assert_eq!(pair.active.queue_pair.read(request, &[near.sge(0..4096)], peer.remote(0), NONE), 0);
                pair.active.initiator.arm(NDK_CQ_NOTIFY_ANY);
                held.store(false, Ordering::Release);
            });
            assert!(pair.active.initiator.wait_for(2).iter().all(|result| result.Status == 0));
            assert_eq!(pair.passive.receive.wait_for_one().Status, 0);
        }
        wait_until_idle();
        assert_eq!(under_the_lock.load(Ordering::Acquire), 0, "callbacks on the thread that holds the lock");
        assert!(pair.active.initiator.notification_count() > 0, "there were notifications at all");
        for queue in [&pair.active.initiator, &pair.passive.receive] {
            queue.on_notification(|| {});
        }
    });
}

/// Everything except open, close and query of an adapter may be called at DISPATCH_LEVEL.
fn everything_posts_at_dispatch_level() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let pair = Pair::connect(&first, &second);
        let near = Window::open(&pair.active, Buffer::scattered(100_000), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(100_000), WindowKind::Registered);
        peer.buffer.fill_with_seed(1);
        // More than a post at DISPATCH_LEVEL copies in place.
        let status = at_dispatch(|| pair.active.queue_pair.read(1, &[near.sge(0..100_000)], peer.remote(0), NONE));
        assert_eq!(status, 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
        near.buffer.assert_seed(1, 0..100_000);
        let closing = at_dispatch(|| near.region.as_ref().expect("a region").object().begin_close());
        closing.wait();
        let closing = at_dispatch(|| {
            [pair.active.connector().object().begin_close(), pair.active.queue_pair.object().begin_close()]
        });
        for started in closing {
            started.wait();
        }
    });
}
