//! Limits are exact: an adapter takes what it reports, and not one more; and sizes that are promised cover what is asked for.

use softndk_engine::{
    AdapterSettings, CompletionQueue, CreateError, Limits, MemoryRegion, MemoryToken, ModerationError, PostError,
    QueuePair, QueuePairSettings, RegionError, Registration, ResizeError, Rights, Semantics, SharedReceiveQueue,
    SharedReceiveQueueSettings, limits,
};

use softndk_engine_kit::{A, Buffer, CLOSE, Depths, Harness, Pair, Side, World, sge};

/// Small, so that the largest of everything can be made.
const LIMITS: Limits = Limits { registration_size: 0x2000, objects: 6, ..Limits::TINY };

const DEPTHS: Depths = Depths { completions: 8, initiator: 4, receive: 4, sges: 2, inline: 0 };

fn unconnected() -> Pair {
    Pair::unconnected(World::with_limits(LIMITS), Semantics::NDK, DEPTHS)
}

fn settings(queue: &CompletionQueue<Harness>) -> QueuePairSettings<'_, Harness> {
    QueuePairSettings {
        receive_queue: queue,
        initiator_queue: queue,
        context: 0,
        receive_depth: 1,
        initiator_depth: 1,
        receive_sges: 1,
        initiator_sges: 1,
        inline_data: 0,
        shared: None,
    }
}

fn shared(depth: u32, sges: u32) -> SharedReceiveQueueSettings<Harness> {
    SharedReceiveQueueSettings { depth, sges, threshold: 0, notify: None, processor: None }
}

/// One number of a queue pair's settings, by the most it may be.
type Number = (u32, for<'a> fn(&mut QueuePairSettings<'a, Harness>, u32));

const NUMBERS: [Number; 5] = [
    (LIMITS.receive_depth, |settings, number| settings.receive_depth = number),
    (LIMITS.initiator_depth, |settings, number| settings.initiator_depth = number),
    (LIMITS.receive_sges, |settings, number| settings.receive_sges = number),
    (LIMITS.initiator_sges, |settings, number| settings.initiator_sges = number),
    (LIMITS.inline_data, |settings, number| settings.inline_data = number),
];

#[test]
fn each_number_of_a_queue_pair_has_its_exact_limit() {
    let pair = unconnected();
    for (index, (most, set)) in NUMBERS.into_iter().enumerate() {
        for (number, taken) in [(0, true), (most, true), (most + 1, false), (most + 2, false), (u32::MAX, false)] {
            let mut settings = settings(&pair.a.initiator);
            set(&mut settings, number);
            let promised = QueuePair::size(&pair.a.domain, &settings).map(drop);
            let made = QueuePair::create(&pair.a.domain, settings, pair.world.consumer_object(1));
            let expected = if taken { Ok(()) } else { Err(CreateError::OverLimit) };
            assert_eq!(promised, expected, "number {index}: {number}");
            assert_eq!(made.as_ref().map(drop).map_err(|error| *error), expected, "number {index}: {number}");
            if let Ok(made) = made {
                drop(made.close(1));
            }
        }
    }
    pair.close();
}

/// With a shared receive queue, what is said about receives of its own does not matter.
#[test]
fn a_queue_pair_with_a_shared_queue_has_no_receives_of_its_own() {
    let pair = unconnected();
    let shared = SharedReceiveQueue::create(&pair.a.domain, shared(1, 1), pair.world.consumer_object(1)).unwrap();
    let with = |depth, sges| QueuePairSettings {
        receive_depth: depth,
        receive_sges: sges,
        shared: Some(&shared),
        ..settings(&pair.a.initiator)
    };
    let size = QueuePair::size(&pair.a.domain, &with(0, 0)).unwrap();
    assert_eq!(QueuePair::size(&pair.a.domain, &with(u32::MAX, u32::MAX)), Ok(size));
    let made = QueuePair::create(&pair.a.domain, with(u32::MAX, u32::MAX), pair.world.consumer_object(2)).unwrap();
    drop(made.close(1));
    drop(shared.close(1));
    pair.close();
}

/// What is made of another adapter or another protection domain does not belong to a queue pair.
#[test]
fn a_queue_pair_of_two_adapters_or_two_domains_is_refused() {
    let pair = unconnected();
    let other = Side::open(&pair.world, &pair.world.first, Semantics::NDK, DEPTHS, A);
    let (own, foreign) = (&pair.a.initiator, &pair.b.initiator);
    let shared = SharedReceiveQueue::create(&other.domain, shared(1, 1), pair.world.consumer_object(1)).unwrap();
    for settings in [
        QueuePairSettings { receive_queue: foreign, ..settings(own) },
        QueuePairSettings { initiator_queue: foreign, ..settings(own) },
        QueuePairSettings { shared: Some(&shared), ..settings(own) },
    ] {
        assert_eq!(QueuePair::size(&pair.a.domain, &settings), Err(CreateError::Foreign));
        let made = QueuePair::create(&pair.a.domain, settings, pair.world.consumer_object(2));
        assert_eq!(made.err(), Some(CreateError::Foreign));
    }
    drop(shared.close(1));
    // With objects of another open they are valid.
    for settings in [
        QueuePairSettings { receive_queue: &other.initiator, ..settings(own) },
        QueuePairSettings { initiator_queue: &other.initiator, ..settings(own) },
    ] {
        assert!(QueuePair::size(&pair.a.domain, &settings).is_ok());
        drop(QueuePair::create(&pair.a.domain, settings, pair.world.consumer_object(2)).unwrap().close(1));
    }
    drop(other.connector.close(CLOSE));
    drop(other.pair.close(CLOSE));
    drop(other.initiator.close(CLOSE));
    drop(other.receiver.close(CLOSE));
    drop(other.domain.close(CLOSE));
    drop(other.open.close(CLOSE));
    pair.close();
}

#[test]
fn the_depth_of_a_completion_queue_is_exact_when_it_is_made_and_when_it_is_changed() {
    let pair = unconnected();
    let most = LIMITS.completion_depth;
    for (depth, taken) in [(0, false), (1, true), (most, true), (most + 1, false), (u32::MAX, false)] {
        let made = pair.a.open.create_completion_queue(depth, None, None, pair.world.consumer_object(1));
        assert_eq!(pair.a.open.completion_queue_size(depth).is_ok(), taken, "{depth}");
        assert_eq!(pair.a.initiator.size_of(depth).is_ok(), taken, "{depth}");
        assert_eq!(made.is_ok(), taken, "{depth}");
        if let Ok(made) = made {
            drop(made.close(1));
        }
        let resized = pair.a.initiator.resize(depth);
        assert_eq!(resized, if taken { Ok(()) } else { Err(ResizeError::OverLimit) }, "{depth}");
        assert!(!taken || pair.a.initiator.depth() == depth);
    }
    pair.close();
}

#[test]
fn the_numbers_of_a_shared_receive_queue_are_exact() {
    let pair = unconnected();
    let (depth, sges) = (LIMITS.shared_depth, LIMITS.receive_sges);
    for (depth, sges, taken) in [
        (0, 1, false),
        (1, 0, true),
        (depth, sges, true),
        (depth + 1, 1, false),
        (depth + 2, 1, false),
        (1, sges + 1, false),
        (1, sges + 2, false),
    ] {
        assert_eq!(SharedReceiveQueue::size(&pair.a.domain, &shared(depth, sges)).is_ok(), taken, "{depth} {sges}");
        let made = SharedReceiveQueue::create(&pair.a.domain, shared(depth, sges), pair.world.consumer_object(1));
        assert_eq!(made.as_ref().err().copied(), (!taken).then_some(CreateError::OverLimit), "{depth} {sges}");
        if let Ok(made) = made {
            drop(made.close(1));
        }
    }
    pair.close();
}

#[test]
fn a_registration_is_as_long_as_its_memory_and_the_adapter_let_it_be() {
    let pair = unconnected();
    let region = pair.a.domain.create_memory_region(false, pair.world.consumer_object(1)).unwrap();
    assert_eq!(region.longest(), 0x2000);
    for (memory, base, length, taken) in [
        (0x2000, 0, 0x2000, true),
        (0x3000, 0, 0x2000, true),
        (0x3000, 0, 0x2001, false),
        (0x3000, 0, 0x3000, false),
        (0x100, 0, 0x101, false),
        (0x100, 0, 0, false),
        (0x100, u64::MAX - 0xff, 0x100, true),
        (0x100, u64::MAX - 0xfe, 0x100, false),
    ] {
        let memory = pair.world.map(&Buffer::new(memory, 0));
        let done = region.register(Registration { memory, base, length, rights: Rights::empty() });
        let expected = if taken { Ok(()) } else { Err(RegionError::BadLength) };
        assert_eq!(done.map_err(|(error, _)| error), expected, "{base:#x} {length:#x}");
        assert_eq!(region.deregister(1).is_ok(), taken);
    }
    drop(region.close(1));
    pair.close();
}

#[test]
fn each_kind_of_region_takes_its_own_way_of_becoming_one_and_its_exact_number_of_pages() {
    let pair = unconnected();
    let made = |fast| pair.a.domain.create_memory_region(fast, pair.world.consumer_object(1)).unwrap();
    let register = |region: &MemoryRegion<Harness>| {
        let memory = pair.world.map(&Buffer::new(1, 0));
        region
            .register(Registration { memory, base: 0, length: 1, rights: Rights::empty() })
            .map_err(|(error, _)| error)
    };
    let (plain, fast) = (made(false), made(true));
    assert_eq!((plain.is_fast_register(), fast.is_fast_register()), (false, true));
    assert_eq!(plain.initialize_fast_register(1, false), Err(RegionError::WrongKind));
    assert_eq!(register(&fast), Err(RegionError::WrongKind));
    let most = LIMITS.fast_register_pages;
    for pages in [0, most + 1, most + 2] {
        assert_eq!(fast.initialize_fast_register(pages, false), Err(RegionError::TooManyPages));
    }
    assert_eq!(fast.initialize_fast_register(most, false), Ok(()));
    drop((plain.close(1), fast.close(1)));
    pair.close();
}

/// Objects with a reported limit are counted, each kind for itself; a closed one frees its place.
#[test]
fn objects_of_a_kind_are_limited_and_closed_ones_free_their_place() {
    let pair = unconnected();
    let most = LIMITS.objects as usize;
    let consumer_object = || pair.world.consumer_object(1);
    // One of each kind is there already, or two.
    let (open, domain) = (&pair.a.open, &pair.a.domain);
    let completions = || open.create_completion_queue(1, None, None, consumer_object());
    for _ in 0..3 {
        let queues: Vec<_> = (2..most).map(|_| completions().unwrap()).collect();
        assert_eq!(completions().err(), Some(CreateError::NoResources));
        let domains: Vec<_> = (1..most).map(|_| open.create_protection_domain(consumer_object()).unwrap()).collect();
        assert_eq!(open.create_protection_domain(consumer_object()).err(), Some(CreateError::NoResources));
        let regions: Vec<_> =
            (0..most).map(|_| domain.create_memory_region(true, consumer_object()).unwrap()).collect();
        assert_eq!(domain.create_memory_region(false, consumer_object()).err(), Some(CreateError::NoResources));
        let windows: Vec<_> = (0..most).map(|_| domain.create_memory_window(consumer_object()).unwrap()).collect();
        assert_eq!(domain.create_memory_window(consumer_object()).err(), Some(CreateError::NoResources));
        let pair_of = || QueuePair::create(domain, settings(&pair.a.initiator), consumer_object());
        let pairs: Vec<_> = (1..most).map(|_| pair_of().unwrap()).collect();
        assert_eq!(pair_of().err(), Some(CreateError::NoResources));
        let receives: Vec<_> =
            (0..most).map(|_| SharedReceiveQueue::create(domain, shared(1, 1), consumer_object()).unwrap()).collect();
        assert_eq!(
            SharedReceiveQueue::create(domain, shared(1, 1), consumer_object()).err(),
            Some(CreateError::NoResources)
        );
        // These have no limit.
        let connectors: Vec<_> = (0..2 * most).map(|_| open.create_connector(consumer_object()).unwrap()).collect();
        for one in connectors {
            drop(one.close(1));
        }
        for one in pairs {
            drop(one.close(1));
        }
        for one in queues {
            drop(one.close(1));
        }
        for one in domains {
            drop(one.close(1));
        }
        for one in regions {
            drop(one.close(1));
        }
        for one in windows {
            drop(one.close(1));
        }
        for one in receives {
            drop(one.close(1));
        }
    }
    pair.close();
}

#[test]
fn an_adapter_promises_no_more_than_the_engine_keeps() {
    let world = World::new();
    let most = Limits {
        caller_data: limits::PRIVATE_DATA as u32,
        callee_data: limits::PRIVATE_DATA as u32,
        registration_size: limits::MAPPING_LENGTH,
        receive_sges: limits::RECEIVE_SGES as u32,
        ..Limits::TINY
    };
    let add = |limits| world.fabric.add_adapter(AdapterSettings { limits, ..Default::default() });
    add(most).unwrap().remove();
    for over in [
        Limits { caller_data: most.caller_data + 1, ..most },
        Limits { callee_data: most.callee_data + 1, ..most },
        Limits { registration_size: most.registration_size + 1, ..most },
        Limits { receive_sges: most.receive_sges + 1, ..most },
    ] {
        assert_eq!(add(over).err(), Some(CreateError::OverLimit));
    }
}

/// The front end makes large objects in its own thread; the estimate must grow with every parameter.
#[test]
fn a_size_covers_every_part() {
    let pair = Pair::unconnected(World::new(), Semantics::NDK, Depths::default());
    let completion = size_of::<softndk_engine::Completion>() as u64;
    for depth in [1, 1000, 100_000] {
        let size = pair.a.open.completion_queue_size(depth).unwrap();
        let entries = u64::from(depth) * completion;
        assert!((entries..=4 * entries).contains(&size), "{size} for {depth}");
        assert_eq!(pair.a.initiator.size_of(depth), Ok(size));
    }
    let sge = size_of::<softndk_engine::Sge>() as u64;
    let sized = |change: fn(&mut QueuePairSettings<'_, Harness>)| {
        let mut settings = settings(&pair.a.initiator);
        change(&mut settings);
        QueuePair::size(&pair.a.domain, &settings).unwrap()
    };
    let small = sized(|_| {});
    assert!((sge..0x1000).contains(&small), "{small}");
    // A thousand of a kind take at least a thousand times its size, and not a hundred times as much.
    for (change, least) in [
        ((|settings| settings.initiator_depth = 1000) as fn(&mut QueuePairSettings<'_, Harness>), 1000 * sge),
        (|settings| settings.receive_depth = 1000, 1000 * sge),
        (|settings| (settings.initiator_depth, settings.initiator_sges) = (1000, 32), 32_000 * sge),
        (|settings| (settings.receive_depth, settings.receive_sges) = (1000, 32), 32_000 * sge),
        (|settings| (settings.initiator_depth, settings.inline_data) = (1000, 256), 256_000),
    ] {
        let size = sized(change);
        assert!((least..100 * least).contains(&size), "{size} for {least}");
    }
    let sized = |depth, sges| SharedReceiveQueue::size(&pair.a.domain, &shared(depth, sges)).unwrap();
    assert!(sized(1, 1) < 0x1000);
    assert!((1000 * sge..100_000 * sge).contains(&sized(1000, 1)));
    assert!((32_000 * sge..100_000 * sge).contains(&sized(1000, 32)));
    let queue = SharedReceiveQueue::create(&pair.a.domain, shared(1, 32), pair.world.consumer_object(1)).unwrap();
    assert_eq!(queue.size_of(1000), sized(1000, 32));
    drop(queue.close(1));
    pair.close();
}

#[test]
fn a_receive_of_a_shared_queue_has_its_exact_number_of_sges_and_bytes() {
    let pair = unconnected();
    let queue = SharedReceiveQueue::create(&pair.a.domain, shared(8, 3), pair.world.consumer_object(1)).unwrap();
    let sge = |length| sge(0, length, MemoryToken::NONE);
    let most = LIMITS.transfer_length;
    let receive = |lengths: &[u32]| {
        let list = lengths.iter().map(|length| sge(*length)).collect::<Vec<_>>();
        queue.receive(1, list.into_iter())
    };
    assert_eq!(receive(&[1, 1, 1]), Ok(()));
    assert_eq!(receive(&[1, 1, 1, 1]), Err(PostError::TooManySges));
    assert_eq!(receive(&[most]), Ok(()));
    assert_eq!(receive(&[most - 1, 1]), Ok(()));
    assert_eq!(receive(&[most, 1]), Err(PostError::TooMuchData));
    assert_eq!(receive(&[most + 1]), Err(PostError::TooMuchData));
    assert_eq!(receive(&[u32::MAX, u32::MAX]), Err(PostError::TooMuchData));
    assert_eq!(queue.modify(LIMITS.shared_depth, 0), Ok(()));
    assert_eq!(queue.modify(LIMITS.shared_depth + 1, 0), Err(ResizeError::OverLimit));
    drop(queue.close(1));
    pair.close();
}

#[test]
fn a_mapping_has_bytes() {
    let pair = unconnected();
    let built = |length| pair.a.open.build_mapping(pair.world.map(&Buffer::new(length, 0))).map_err(|(error, _)| error);
    assert_eq!(built(0), Err(RegionError::BadLength));
    for (length, pages) in [(1, 1), (4096, 1), (4097, 2)] {
        let mapping = built(length).unwrap();
        assert_eq!(mapping.pages, pages);
        assert!(pair.a.open.release_mapping(mapping.first));
    }
    pair.close();
}

/// As many results as the queue holds are a bound; one more is none.
#[test]
fn a_count_up_to_the_depth_is_a_bound() {
    let pair = unconnected();
    let depth = DEPTHS.completions;
    assert_eq!(pair.a.initiator.moderate(u32::MAX, depth), Ok(()));
    assert_eq!(pair.a.initiator.moderate(u32::MAX, depth + 1), Err(ModerationError::Mix));
    assert_eq!(pair.a.initiator.moderate(u32::MAX, 2), Ok(()));
    pair.close();
}
