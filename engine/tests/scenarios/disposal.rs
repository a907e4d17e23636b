//! Objects without pointers are dropped by service passes, a bounded number in each, and none is left when the fabric goes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use softndk_engine::limits::DISPOSE_STEP;
use softndk_engine::{Budget, Close, CreateError, Limits, Pass, Semantics};
use softndk_engine_kit::{Pair, World};

const BUDGET: Budget = Budget { bytes: 1 << 20, items: 1 };

/// An object that was never published is dropped with the consumer object it was made for, which shows when that is.
#[test]
fn an_object_is_dropped_by_a_service_pass_and_not_where_its_last_pointer_goes() {
    let mut world = World::with_limits(Limits { objects: 1, ..Limits::default() });
    let open = world.first.open(Semantics::NDK, world.consumer_object(1)).unwrap();
    let blocks = world.counters.blocks.clone();
    let create = || open.create_completion_queue(1, None, None, world.counters.consumer_object(2));
    let queue = create().unwrap();
    let refused = 3 * DISPOSE_STEP;
    for _ in 0..refused {
        assert_eq!(create().err(), Some(CreateError::NoResources));
    }
    assert_eq!(blocks.load(Ordering::SeqCst), 2 + refused);
    for left in (0..3).rev() {
        let pass = world.fabric.service_pass(0, BUDGET, &mut world.events);
        assert_eq!(blocks.load(Ordering::SeqCst), 2 + left * DISPOSE_STEP);
        assert_eq!(pass, if left == 0 { Pass::Idle } else { Pass::More });
    }
    drop((queue.close(1), open.close(1)));
    world.assert_empty();
}

/// The drop of one that keeps others is followed by theirs, in the same pass or a later one.
#[test]
fn a_pass_is_asked_for_until_everything_that_the_dropped_objects_kept_is_dropped() {
    let mut world = World::new();
    world.run();
    let open = world.first.open(Semantics::NDK, world.consumer_object(1)).unwrap();
    let domain = open.create_protection_domain(world.consumer_object(2)).unwrap();
    let region = domain.create_memory_region(true, world.consumer_object(3)).unwrap();
    assert!(matches!(region.close(3), Close::Done(_)));
    assert!(matches!(domain.close(2), Close::Done(_)));
    assert!(matches!(open.close(1), Close::Done(_)));
    world.run();
    world.harness().scheduled.store(false, Ordering::SeqCst);
    drop((open, domain));
    assert!(!world.harness().scheduled.load(Ordering::SeqCst), "the region keeps them");
    drop(region);
    assert!(world.harness().scheduled.load(Ordering::SeqCst));
    let pass = world.fabric.service_pass(0, BUDGET, &mut world.events);
    assert_eq!(pass, Pass::Idle);
    world.assert_empty();
}

#[test]
fn a_fabric_that_goes_drops_what_no_pass_has_dropped() {
    let world = World::new();
    let open = world.first.open(Semantics::NDK, world.consumer_object(1)).unwrap();
    let harness = world.counters.blocks.clone();
    drop(open.close(1));
    drop(open);
    drop(world);
    assert_eq!(Arc::strong_count(&harness), 1, "the platform has gone with everything that pointed to it");
}

/// Handles may go after the fabric; then no pass is asked for.
#[test]
fn handles_that_outlive_the_fabric_leave_no_object_behind() {
    let pair = Pair::new();
    let Pair { mut world, listener, a, b } = pair;
    drop((a.connector.close(1), a.pair.close(2), a.initiator.close(3), a.receiver.close(4)));
    drop((b.connector.close(1), b.pair.close(2), b.initiator.close(3), b.receiver.close(4)));
    drop((listener.close(5), a.domain.close(6), b.domain.close(6), a.open.close(7), b.open.close(7)));
    world.assert_empty();
    let harness = world.counters.blocks.clone();
    let (queue_pair, connector) = (a.pair.clone(), b.connector.clone());
    drop((world, a, b, listener));
    assert!(Arc::strong_count(&harness) > 1, "the platform is kept");
    drop((queue_pair, connector));
    assert_eq!(Arc::strong_count(&harness), 1);
}
