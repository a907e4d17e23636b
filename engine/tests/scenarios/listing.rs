//! Listings: the live objects, their states, and the objects they keep.

use std::collections::BTreeMap;

use softndk_engine::{Adapter, ObjectKind, ObjectSnapshot, ObjectState, RequestFlags, Rights, Semantics};
use softndk_engine_kit::{Buffer, Depths, Harness, Pair, World};

fn listed(adapter: &Adapter<Harness>) -> Vec<ObjectSnapshot> {
    let mut objects = Vec::new();
    adapter.objects(&mut |object| objects.push(object));
    objects
}

fn find(objects: &[ObjectSnapshot], kind: ObjectKind) -> ObjectSnapshot {
    *objects.iter().find(|object| object.kind == kind).unwrap_or_else(|| panic!("no {kind:?} in {objects:#?}"))
}

#[test]
fn states_follow_the_life_cycle_of_a_connection() {
    let pair = Pair::new();
    let objects = listed(&pair.world.second);
    assert_eq!(find(&objects, ObjectKind::Listener).state, ObjectState::Listening);
    assert_eq!(find(&objects, ObjectKind::Connector).state, ObjectState::Connected);
    assert_eq!(find(&objects, ObjectKind::QueuePair).state, ObjectState::Connected);
    assert_eq!(find(&objects, ObjectKind::ProtectionDomain).state, ObjectState::Open);
    drop(pair.b.open.close(1));
    assert_eq!(find(&listed(&pair.world.second), ObjectKind::Open).state, ObjectState::Closing);
    pair.close();
}

/// What each object says it keeps is what the others count as their dependants.
#[test]
fn antecedents_and_dependants_are_two_views_of_one_relation() {
    let pair = Pair::new();
    for adapter in [&pair.world.first, &pair.world.second] {
        let objects = listed(adapter);
        let numbers: BTreeMap<u64, ObjectKind> = objects.iter().map(|object| (object.number, object.kind)).collect();
        assert_eq!(numbers.len(), objects.len(), "numbers differ");
        for object in &objects {
            let kept = objects.iter().flat_map(|other| other.antecedents).filter(|&number| number == object.number);
            assert_eq!(kept.count() as u32, object.dependants, "{object:?}");
            assert!(object.holds > object.dependants, "the consumer holds it, too: {object:?}");
            assert!(!object.antecedents.contains(&object.number), "{object:?}");
        }
        let domain = find(&objects, ObjectKind::ProtectionDomain).number;
        assert!(find(&objects, ObjectKind::QueuePair).antecedents.contains(&domain));
        let open = find(&objects, ObjectKind::Open);
        assert_eq!(open.antecedents, [0; softndk_engine::ANTECEDENTS]);
    }
    pair.close();
}

#[test]
fn a_closed_object_is_no_dependant_any_more() {
    let pair = Pair::new();
    let before = find(&listed(&pair.world.first), ObjectKind::Open).dependants;
    let queue = pair.a.open.create_completion_queue(4, None, None, pair.world.consumer_object(70)).unwrap();
    assert_eq!(find(&listed(&pair.world.first), ObjectKind::Open).dependants, before + 1);
    drop(queue.close(99));
    assert_eq!(find(&listed(&pair.world.first), ObjectKind::Open).dependants, before);
    pair.close();
}

#[test]
fn a_listing_in_parts_is_the_listing() {
    let pair = Pair::new();
    let whole: Vec<u64> = listed(&pair.world.second).iter().map(|object| object.number).collect();
    for part in 1..=whole.len() + 1 {
        let (mut position, mut numbers) = (Some(0), Vec::new());
        while let Some(next) = position {
            let mut capacity = part;
            position = pair.world.second.objects_from(next, &mut |object| {
                let fits = capacity > 0;
                if fits {
                    capacity -= 1;
                    numbers.push(object.number);
                }
                fits
            });
        }
        assert_eq!(numbers, whole, "in parts of {part}");
    }
    pair.close();
}

#[test]
fn an_open_is_listed_under_its_label() {
    let pair = Pair::new();
    pair.a.open.set_label(0x1234);
    let objects = listed(&pair.world.first);
    assert_eq!(find(&objects, ObjectKind::Open).label, 0x1234);
    assert!(objects.iter().filter(|object| object.kind != ObjectKind::Open).all(|object| object.label == 0));
    pair.close();
}

/// A closed object is still on a run queue while the next one already has its place in the listing.
#[test]
fn a_pass_that_comes_after_a_close_takes_nothing_from_the_next_object() {
    let mut pair = Pair::new();
    let gone = pair.a.open.create_connector(pair.world.consumer_object(70)).unwrap();
    drop(gone.close(1));
    let next = pair.a.open.create_connector(pair.world.consumer_object(71)).unwrap();
    let before = listed(&pair.world.first).len();
    pair.world.run();
    assert_eq!(listed(&pair.world.first).len(), before);
    drop(next.close(1));
    pair.close();
}

#[test]
fn ids_distinguish_objects_of_a_kind_and_their_creation_time_is_listed() {
    let mut pair = Pair::new();
    pair.world.advance(7);
    let now = pair.world.now();
    let second = pair.a.open.create_completion_queue(4, None, None, pair.world.consumer_object(70)).unwrap();
    let third = pair.a.open.create_protection_domain(pair.world.consumer_object(71)).unwrap();
    let objects = listed(&pair.world.first);
    for one in &objects {
        let same = objects.iter().filter(|other| other.kind == one.kind && other.id == one.id);
        assert_eq!((same.count(), one.id == 0), (1, false), "{one:?}");
    }
    let late = objects.iter().filter(|object| object.made == now).map(|object| object.kind).collect::<Vec<_>>();
    assert_eq!(late, [ObjectKind::CompletionQueue, ObjectKind::ProtectionDomain]);
    assert!(objects.iter().all(|object| object.made == now || object.made <= now - 7));
    drop((second.close(1), third.close(1)));
    pair.close();
}

/// Every stage of a connection, at both ends, and of the queue pair of the active one.
#[test]
fn every_state_of_a_connection_is_listed() {
    use ObjectState::{Accepting, Answered, Arrived, Claimed, Connected, Connecting, Ended, Idle};
    let mut pair = Pair::unconnected(World::new(), Semantics::NDK, Depths::default());
    let stages = |pair: &Pair| {
        let (near, peer) = (listed(&pair.world.first), listed(&pair.world.second));
        // The newest connector of the passive end is the one that arrived.
        let arrived = peer.iter().filter(|object| object.kind == ObjectKind::Connector).max_by_key(|one| one.number);
        let peer = arrived.unwrap().state;
        [find(&near, ObjectKind::Connector).state, peer, find(&near, ObjectKind::QueuePair).state]
    };
    assert_eq!(stages(&pair), [Idle, Idle, Idle]);
    pair.connect_request().unwrap();
    pair.world.deliver_messages();
    assert_eq!(stages(&pair), [Connecting, Arrived, Claimed]);
    pair.world.run();
    pair.take_arrived();
    pair.accept().unwrap();
    pair.world.deliver_messages();
    assert_eq!(stages(&pair), [Answered, Accepting, Claimed]);
    pair.world.run();
    pair.a.connector.complete_connect(None, 0).unwrap();
    pair.world.deliver_messages();
    assert_eq!(stages(&pair), [Connected, Connected, Connected]);
    pair.world.run();
    pair.b.connector.disconnect(1).unwrap();
    pair.a.connector.disconnect(2).unwrap();
    pair.world.run();
    assert_eq!(stages(&pair), [Ended, Ended, Ended]);
    pair.close();
}

#[test]
fn memory_is_listed_by_its_use() {
    let mut pair = Pair::new();
    let buffer = Buffer::new(64, 0);
    let idle = pair.a.domain.create_memory_region(true, pair.world.consumer_object(1)).unwrap();
    let state = |pair: &Pair, kind| find(&listed(&pair.world.first), kind).state;
    assert_eq!(state(&pair, ObjectKind::MemoryRegion), ObjectState::Idle);
    idle.initialize_fast_register(1, false).unwrap();
    assert_eq!(state(&pair, ObjectKind::MemoryRegion), ObjectState::Initialized);
    drop(idle.close(1));
    let region = pair.a.register(&pair.world, &buffer, 0, Rights::LOCAL_WRITE);
    assert_eq!(state(&pair, ObjectKind::MemoryRegion), ObjectState::Registered);
    let window = pair.a.domain.create_memory_window(pair.world.consumer_object(2)).unwrap();
    assert_eq!(state(&pair, ObjectKind::MemoryWindow), ObjectState::Idle);
    pair.a.pair.bind(1, RequestFlags::empty(), &region, &window, 0, 64, Rights::REMOTE_READ).unwrap();
    assert_eq!(state(&pair, ObjectKind::MemoryWindow), ObjectState::Registered);
    drop(window.close(1));
    drop(region.close(1));
    pair.world.second.set_addresses(&[]).unwrap();
    assert_eq!(find(&listed(&pair.world.second), ObjectKind::Listener).state, ObjectState::Silent);
    pair.world.run();
    pair.close();
}
