//! Accesses that must be refused: each with its outcome, no byte moved, and the connection ended as the contract says.

use softndk_engine::{
    Deregistered, FastRegistration, LogicalAddress, MemoryRegion, MemoryToken, Operation, Outcome, PostError,
    RequestFlags, Rights, Semantics,
};
use softndk_engine_kit::{self as kit, A, B, Buffer, EVERYTHING, Event, GONE, Pair, outcomes, polled, sge};

const NONE: RequestFlags = RequestFlags::empty();
const LENGTH: u64 = 256;
const BASE: u64 = 0x4000;

/// What a Read or Write names at both ends.
#[derive(Clone, Copy)]
struct Names {
    local: (u64, u32, MemoryToken),
    remote: (u64, MemoryToken),
}

/// Two regions with every right, and what would be a good access to all of both.
fn setup(semantics: Semantics) -> (Pair, Buffer, Buffer, Names, [MemoryRegion<kit::Harness>; 2]) {
    let pair = Pair::with(semantics, kit::Depths::default());
    let (here, there) = (Buffer::new(LENGTH as usize, 1), Buffer::new(LENGTH as usize, 2));
    let local = pair.a.register(&pair.world, &here, BASE, EVERYTHING);
    let remote = pair.b.register(&pair.world, &there, BASE, EVERYTHING);
    let names = Names { local: (BASE, LENGTH as u32, local.local_token()), remote: (BASE, remote.remote_token()) };
    (pair, here, there, names, [local, remote])
}

/// Posts a Read or Write and a follower; the first is refused with `outcome`, the second cancelled, and B gets one event.
fn refused(operation: Operation, semantics: Semantics, outcome: Outcome, spoil: impl Fn(&Pair, &mut Names)) {
    let (mut pair, here, there, mut names, regions) = setup(semantics);
    spoil(&pair, &mut names);
    pair.b.pair.receive(70, std::iter::empty()).unwrap();
    pair.a.pair.receive(71, std::iter::empty()).unwrap();
    let (address, length, token) = names.local;
    let list = [sge(address, length, token)].into_iter();
    match operation {
        Operation::Read => pair.a.pair.read(1, RequestFlags::DEFER, list, names.remote.0, names.remote.1),
        _ => pair.a.pair.write(1, RequestFlags::DEFER, list, names.remote.0, names.remote.1),
    }
    .unwrap();
    pair.a.pair.send(2, RequestFlags::SILENT_SUCCESS, std::iter::empty()).unwrap();
    let events = pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(1, outcome), (2, Outcome::Cancelled)], "{operation:?}");
    assert_eq!(outcomes(&pair.a.receiver), [(71, Outcome::Cancelled)]);
    let on_message: Vec<_> = events.into_iter().filter(|event| *event != Event::Retired(None)).collect();
    assert_eq!(on_message, [Event::Disconnected(B + GONE)]);
    let flushed = if semantics.flush_on_peer_end { vec![(70, Outcome::Cancelled)] } else { vec![] };
    assert_eq!(outcomes(&pair.b.receiver), flushed);
    assert_eq!((here.read(0, 256), there.read(0, 256)), (vec![1; 256], vec![2; 256]), "no byte has moved");
    // Posts on an ended connection are accepted and cancelled.
    pair.a.pair.send(3, NONE, std::iter::empty()).unwrap();
    pair.b.pair.send(4, NONE, std::iter::empty()).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(3, Outcome::Cancelled)]);
    assert_eq!(outcomes(&pair.b.initiator), [(4, Outcome::Cancelled)]);
    let [local, remote] = regions;
    drop((local.close(1), remote.close(1)));
    pair.close();
}

const BOTH: [Operation; 2] = [Operation::Read, Operation::Write];

#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn a_wrong_remote_token_is_a_remote_failure_in_each_column() {
    for operation in BOTH {
        let spoil = |_: &Pair, names: &mut Names| names.remote.1 = MemoryToken(names.remote.1.0 ^ 0x10_0000);
        refused(operation, Semantics::NDK, Outcome::RemoteError, spoil);
        refused(operation, Semantics::ND, Outcome::RemoteAccess, spoil);
        refused(operation, Semantics::NDK, Outcome::RemoteError, |_, names| names.remote.1 = MemoryToken::NONE);
        refused(operation, Semantics::NDK, Outcome::RemoteError, |_, names| names.remote.1 = MemoryToken(u32::MAX));
    }
}

#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn one_byte_outside_on_either_side_is_refused_locally_and_remotely() {
    for operation in BOTH {
        for (address, length) in [(BASE - 1, 1), (BASE - 1, 256), (BASE + 1, 256), (BASE + 256, 1), (u64::MAX, 1)] {
            refused(operation, Semantics::NDK, Outcome::LocalAccess, |_, names| {
                names.local.0 = address;
                names.local.1 = length;
            });
        }
        for address in [BASE - 1, BASE + 1, 0, u64::MAX, u64::MAX - 254] {
            refused(operation, Semantics::NDK, Outcome::RemoteError, |_, names| names.remote.0 = address);
        }
    }
}

#[test]
fn a_wrong_local_token_is_a_local_failure() {
    for operation in BOTH {
        for token in [0, 1, u32::MAX] {
            refused(operation, Semantics::NDK, Outcome::LocalAccess, |_, names| names.local.2 = MemoryToken(token));
        }
    }
}

#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn a_region_of_another_domain_is_refused_at_both_ends() {
    for operation in BOTH {
        // B's region used locally by A, A's region named as B's.
        refused(operation, Semantics::NDK, Outcome::LocalAccess, |_, names| names.local.2 = names.remote.1);
        refused(operation, Semantics::NDK, Outcome::RemoteError, |_, names| names.remote.1 = names.local.2);
    }
}

#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn the_privileged_token_is_never_good_for_a_peer_nor_for_another_domain() {
    for operation in BOTH {
        refused(operation, Semantics::NDK, Outcome::RemoteError, |pair, names| names.remote.1 = pair.b.privileged());
        refused(operation, Semantics::NDK, Outcome::RemoteError, |pair, names| names.remote.1 = pair.a.privileged());
        refused(operation, Semantics::NDK, Outcome::LocalAccess, |pair, names| names.local.2 = pair.b.privileged());
        refused(operation, Semantics::NDK, Outcome::LocalAccess, |pair, names| names.local.2 = pair.a.privileged());
    }
}

#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn each_missing_right_is_refused() {
    for (operation, local, remote, outcome) in [
        (Operation::Read, Rights::empty(), EVERYTHING, Outcome::LocalAccess),
        (Operation::Read, Rights::REMOTE_READ, EVERYTHING, Outcome::LocalAccess),
        (Operation::Read, EVERYTHING, Rights::LOCAL_WRITE | Rights::REMOTE_WRITE, Outcome::RemoteError),
        (Operation::Read, Rights::LOCAL_WRITE, Rights::REMOTE_READ, Outcome::Success),
        (Operation::Write, EVERYTHING, Rights::LOCAL_WRITE, Outcome::RemoteError),
        (Operation::Write, EVERYTHING, Rights::REMOTE_READ, Outcome::RemoteError),
        (Operation::Write, Rights::empty(), Rights::LOCAL_WRITE | Rights::REMOTE_WRITE, Outcome::Success),
    ] {
        let pair = Pair::new();
        let buffer = Buffer::new(64, 0);
        let here = pair.a.register(&pair.world, &buffer, 0, local);
        let there = pair.b.register(&pair.world, &buffer, 0, remote);
        let list = [sge(0, 64, here.local_token())].into_iter();
        match operation {
            Operation::Read => pair.a.pair.read(1, NONE, list, 0, there.remote_token()),
            _ => pair.a.pair.write(1, NONE, list, 0, there.remote_token()),
        }
        .unwrap();
        assert_eq!(outcomes(&pair.a.initiator), [(1, outcome)], "{operation:?} {local:?} {remote:?}");
        drop((here.close(1), there.close(1)));
        pair.close();
    }
}

/// The second access finds the memory of the first in the cache.
#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn an_access_gives_no_other_right_than_its_own() {
    for (first, local, remote, outcome) in [
        (Operation::Read, EVERYTHING, Rights::REMOTE_READ, Outcome::RemoteError),
        (Operation::Write, Rights::empty(), EVERYTHING, Outcome::LocalAccess),
        (Operation::Write, EVERYTHING, Rights::LOCAL_WRITE | Rights::REMOTE_WRITE, Outcome::RemoteError),
    ] {
        let pair = Pair::new();
        let buffer = Buffer::new(64, 0);
        let here = pair.a.register(&pair.world, &buffer, 0, local);
        let there = pair.b.register(&pair.world, &buffer, 0, remote);
        let list = || [sge(0, 64, here.local_token())].into_iter();
        let read = |context| pair.a.pair.read(context, NONE, list(), 0, there.remote_token()).unwrap();
        let write = |context| pair.a.pair.write(context, NONE, list(), 0, there.remote_token()).unwrap();
        if first == Operation::Read {
            read(1);
            write(2);
        } else {
            write(1);
            read(2);
        }
        let expected = [(1, Outcome::Success), (2, outcome)];
        assert_eq!(outcomes(&pair.a.initiator), expected, "{first:?} {local:?} {remote:?}");
        drop((here.close(1), there.close(1)));
        pair.close();
    }
}

/// The grant of the region stays in the cache, the window's is not kept: each access reads its own memory.
#[test]
fn a_window_is_not_taken_for_a_region_that_was_read_before() {
    let mut pair = Pair::new();
    let buffers = [Buffer::new(64, 0), Buffer::new(64, 1), Buffer::new(64, 2)];
    let here = pair.a.register(&pair.world, &buffers[0], 0, EVERYTHING);
    let [region, lent] = [1, 2].map(|which| pair.b.register(&pair.world, &buffers[which], 0, EVERYTHING));
    let window = pair.b.domain.create_memory_window(pair.world.consumer_object(70)).unwrap();
    pair.b.pair.bind(60, RequestFlags::SILENT_SUCCESS, &lent, &window, 0, 64, Rights::REMOTE_READ).unwrap();
    for byte in [1, 2, 2, 1, 2] {
        let token = if byte == 1 { region.remote_token() } else { window.remote_token() };
        pair.a.pair.read(1, NONE, [sge(0, 64, here.local_token())].into_iter(), 0, token).unwrap();
        pair.world.run();
        assert_eq!(buffers[0].read(0, 64), vec![byte; 64]);
        assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
    }
    drop((window.close(1), here.close(1), region.close(1), lent.close(1)));
    pair.close();
}

#[test]
fn a_stale_token_is_refused_after_deregister_and_after_reuse_of_its_slot() {
    for again in [false, true] {
        let mut pair = Pair::new();
        let buffer = Buffer::new(64, 0);
        let region = pair.b.register(&pair.world, &buffer, 0, EVERYTHING);
        let stale = region.remote_token();
        assert!(matches!(region.deregister(1), Ok(Deregistered::Done(_))));
        assert_eq!(region.remote_token(), MemoryToken::NONE);
        pair.world.run();
        // Slots come back one after another; the new tenant is the one whose token has the same slot.
        let slot = |token: MemoryToken| token.0 & ((1 << MemoryToken::SLOT_BITS) - 1);
        let register = || pair.b.register(&pair.world, &buffer, 0, EVERYTHING);
        let mut fresh = Vec::new();
        while again && fresh.last().is_none_or(|last: &MemoryRegion<_>| slot(last.remote_token()) != slot(stale)) {
            assert!(fresh.len() < 1000, "the slot never came back");
            fresh.push(register());
        }
        let here = pair.a.register(&pair.world, &buffer, 0, EVERYTHING);
        let list = [sge(0, 64, here.local_token())].into_iter();
        pair.a.pair.read(1, NONE, list, 0, stale).unwrap();
        assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::RemoteError)]);
        drop((here.close(1), region.close(1)));
        for fresh in fresh {
            drop(fresh.close(1));
        }
        pair.close();
    }
}

/// Each kind of memory at each end is used by a transfer, taken back, and named once more.
// Rule: NDK-MR-7, NDK-LAM-11
#[test]
fn memory_that_was_used_before_and_taken_back_is_refused() {
    type TakeBack = fn(&Pair, [LogicalAddress; 2], [&MemoryRegion<kit::Harness>; 2]);
    let deregister: TakeBack = |_, _, regions| {
        assert!(matches!(regions[0].deregister(1), Ok(Deregistered::Done(_))));
    };
    let release_local: TakeBack = |pair, mappings, _| assert!(pair.a.open.release_mapping(mappings[0]));
    let release_peers: TakeBack = |pair, mappings, _| assert!(pair.b.open.release_mapping(mappings[1]));
    let invalidate: TakeBack = |pair, _, regions| pair.b.pair.invalidate(9, NONE, regions[1]).unwrap();
    for (fast, take_back, outcome) in [
        (false, deregister, Outcome::RemoteError),
        (false, release_local, Outcome::LocalAccess),
        (true, release_peers, Outcome::RemoteError),
        (true, invalidate, Outcome::RemoteError),
    ] {
        let mut pair = Pair::new();
        let (here, there) = (Buffer::new(4096, 1), Buffer::new(4096, 2));
        let mappings = [pair.a.build(&pair.world, &here), pair.b.build(&pair.world, &there)];
        let registered = pair.b.register(&pair.world, &there, 0, EVERYTHING);
        let region = pair.b.fast_region(&pair.world);
        pair.b.fast_register(&region, mappings[1], 1, 0).unwrap();
        let token = if fast { region.remote_token() } else { registered.remote_token() };
        let read = |context| {
            let list = [sge(mappings[0].0, 64, pair.a.privileged())].into_iter();
            pair.a.pair.read(context, NONE, list, 0, token).unwrap();
            outcomes(&pair.a.initiator)
        };
        assert_eq!((read(1), read(2)), (vec![(1, Outcome::Success)], vec![(2, Outcome::Success)]));
        take_back(&pair, mappings, [&registered, &region]);
        here.write(0, &[7; 64]);
        assert_eq!(read(3), [(3, outcome)]);
        assert_eq!(here.read(0, 64), [7; 64], "nothing is moved");
        pair.a.open.release_mapping(mappings[0]);
        pair.b.open.release_mapping(mappings[1]);
        drop((registered.close(1), region.close(1)));
        pair.world.run();
        pair.close();
    }
}

#[test]
fn zero_length_operations_need_no_valid_token() {
    let pair = Pair::new();
    let bad = MemoryToken(0xdead_beef);
    pair.a.pair.read(1, NONE, std::iter::empty(), u64::MAX, bad).unwrap();
    pair.a.pair.write(2, NONE, [sge(5, 0, bad), sge(6, 0, bad)].into_iter(), 0, bad).unwrap();
    pair.b.pair.receive(3, [sge(1, 0, bad)].into_iter()).unwrap();
    pair.a.pair.send(4, NONE, [sge(1, 0, bad)].into_iter()).unwrap();
    let sent = outcomes(&pair.a.initiator);
    assert_eq!(sent, [(1, Outcome::Success), (2, Outcome::Success), (4, Outcome::Success)]);
    let received = polled(&pair.b.receiver);
    assert_eq!((received[0].outcome, received[0].bytes), (Outcome::Success, 0));
    pair.close();
}

#[test]
fn a_logical_address_is_checked_for_slot_generation_length_and_owner() {
    for spoil in [
        |address: u64| address + 4096,
        |address: u64| address + 4095,
        |address: u64| address ^ 1 << 52,
        |address: u64| address ^ 1 << 40,
        |address: u64| address | 1 << 63,
        |_| 0,
        |_| u64::MAX,
    ] {
        let pair = Pair::new();
        let buffer = Buffer::new(4096, 0);
        let mapping = pair.a.build(&pair.world, &buffer);
        let remote = pair.b.register(&pair.world, &buffer, 0, EVERYTHING);
        let list = [sge(spoil(mapping.0), 2, pair.a.privileged())].into_iter();
        pair.a.pair.write(1, NONE, list, 0, remote.remote_token()).unwrap();
        assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::LocalAccess)]);
        assert!(!pair.b.open.release_mapping(mapping), "not B's to release");
        assert!(pair.a.open.release_mapping(LogicalAddress(mapping.0 + 17)));
        drop(remote.close(1));
        pair.close();
    }
}

#[test]
fn a_page_whose_mapping_was_released_fails_the_access() {
    let pair = Pair::new();
    let buffer = Buffer::new(8192, 0);
    let mapping = pair.b.build(&pair.world, &buffer);
    let region = pair.b.fast_region(&pair.world);
    pair.b.fast_register(&region, mapping, 2, 0).unwrap();
    pair.b.open.release_mapping(mapping);
    let here = pair.a.register(&pair.world, &buffer, 0, EVERYTHING);
    let list = [sge(0, 8192, here.local_token())].into_iter();
    pair.a.pair.read(1, NONE, list, 0, region.remote_token()).unwrap();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::RemoteError)]);
    drop((here.close(1), region.close(1)));
    pair.close();
}

#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn a_receive_too_small_fails_the_receiver_and_the_sender_as_the_column_says() {
    for (semantics, sender) in [(Semantics::NDK, Outcome::RemoteError), (Semantics::ND, Outcome::Success)] {
        let mut pair = Pair::with(semantics, kit::Depths::default());
        let buffer = Buffer::new(64, 0);
        let here = pair.a.register(&pair.world, &buffer, 0, EVERYTHING);
        let there = pair.b.register(&pair.world, &buffer, 0, EVERYTHING);
        pair.b.pair.receive(8, [sge(0, 63, there.local_token())].into_iter()).unwrap();
        pair.b.pair.receive(9, std::iter::empty()).unwrap();
        pair.a.pair.send(1, NONE, [sge(0, 64, here.local_token())].into_iter()).unwrap();
        pair.a.pair.send(2, NONE, std::iter::empty()).unwrap();
        assert_eq!(pair.world.run(), [Event::Disconnected(B + GONE)]);
        assert_eq!(outcomes(&pair.a.initiator), [(1, sender), (2, Outcome::Cancelled)]);
        assert_eq!(outcomes(&pair.b.receiver), [(8, Outcome::ReceiveTooSmall), (9, Outcome::Cancelled)]);
        drop((here.close(1), there.close(1)));
        pair.close();
    }
}

#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn a_receive_into_bad_memory_fails_at_both_ends() {
    let mut pair = Pair::new();
    let buffer = Buffer::new(64, 7);
    let here = pair.a.register(&pair.world, &buffer, 0, EVERYTHING);
    pair.b.pair.receive(8, [sge(0, 64, MemoryToken(5))].into_iter()).unwrap();
    pair.a.pair.send(1, NONE, [sge(0, 64, here.local_token())].into_iter()).unwrap();
    assert_eq!(pair.world.run(), [Event::Disconnected(B + GONE)]);
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::RemoteError)]);
    assert_eq!(outcomes(&pair.b.receiver), [(8, Outcome::LocalAccess)]);
    drop(here.close(1));
    pair.close();
}

#[test]
fn a_send_from_bad_memory_leaves_the_receive_to_the_flush() {
    let mut pair = Pair::new();
    pair.b.pair.receive(8, std::iter::empty()).unwrap();
    pair.a.pair.send(1, NONE, [sge(0, 1, MemoryToken(5))].into_iter()).unwrap();
    assert_eq!(pair.world.run(), [Event::Disconnected(B + GONE)]);
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::LocalAccess)]);
    assert_eq!(outcomes(&pair.b.receiver), []);
    pair.b.pair.flush();
    pair.world.run();
    assert_eq!(outcomes(&pair.b.receiver), [(8, Outcome::Cancelled)]);
    pair.close();
}

/// How the wait of a message ends whose memory was taken away meanwhile.
#[derive(Clone, Copy, Debug)]
enum EndOfWait {
    /// The peer posts a receive.
    Receive,
    /// Something is posted behind the message.
    Post,
    Flush,
    /// The peer closes its connector.
    PeerEnds,
    /// The peer is given its time.
    Time,
}

/// The peer invalidates the memory of a message that waits for a receive. Nothing says when the message fails for it: here it looks
/// at its memory again when its queue pair runs next. No byte moves, no receive is used up, and it completes once.
// Rule: NDK-QP-8, NDK-MR-7, BUG-4
#[test]
#[cfg_attr(feature = "streams", ignore = "no Send across a stream waits for its receive")]
fn a_message_whose_memory_is_taken_away_while_it_waits_completes_once() {
    use EndOfWait::{Flush, PeerEnds, Post, Receive, Time};
    for (end, outcome) in [
        (Receive, Outcome::LocalAccess),
        (Post, Outcome::LocalAccess),
        (Flush, Outcome::Cancelled),
        (PeerEnds, Outcome::Cancelled),
        (Time, Outcome::LocalAccess),
    ] {
        let semantics = if matches!(end, Time) { Semantics::ND } else { Semantics::NDK };
        let mut pair = Pair::with(semantics, kit::Depths::default());
        let (here, there) = (Buffer::new(4096, 7), Buffer::new(64, 0));
        let region = pair.a.fast_region(&pair.world);
        let pages = pair.a.build(&pair.world, &here);
        pair.a.fast_register(&region, pages, 1, 0).unwrap();
        let sink = pair.b.register(&pair.world, &there, 0, EVERYTHING);
        pair.a.pair.send(1, RequestFlags::SILENT_SUCCESS, [sge(0, 64, region.local_token())].into_iter()).unwrap();
        pair.b.pair.send_and_invalidate(2, NONE, std::iter::empty(), region.remote_token()).unwrap();
        pair.a.pair.receive(3, std::iter::empty()).unwrap();
        assert_eq!(pair.world.run(), [], "the connection stands");
        assert_eq!(outcomes(&pair.b.initiator), [(2, Outcome::Success)]);
        let received = polled(&pair.a.receiver);
        assert_eq!(received[0].operation, Operation::ReceiveAndInvalidate, "{received:?}");
        assert_eq!(outcomes(&pair.a.initiator), [], "it goes on waiting");
        match end {
            Receive => pair.b.pair.receive(4, [sge(0, 64, sink.local_token())].into_iter()).unwrap(),
            Post => pair.a.pair.send(5, NONE, std::iter::empty()).unwrap(),
            Flush => pair.a.pair.flush(),
            PeerEnds => drop(pair.b.connector.close(1)),
            Time => drop(pair.world.advance(4_000_000_000)),
        }
        pair.world.run();
        let mut expected = vec![(1, outcome)];
        expected.extend(matches!(end, Post).then_some((5, Outcome::Cancelled)));
        assert_eq!(outcomes(&pair.a.initiator), expected, "{end:?}");
        assert_eq!(outcomes(&pair.b.receiver), [], "{end:?}");
        pair.b.pair.flush();
        pair.world.run();
        let left = if matches!(end, Receive) { vec![(4, Outcome::Cancelled)] } else { vec![] };
        assert_eq!(outcomes(&pair.b.receiver), left, "the receive is left to the flush");
        assert_eq!(there.read(0, 64), [0; 64], "no byte has moved");
        drop((region.close(1), sink.close(1)));
        pair.world.run();
        assert!(pair.a.open.release_mapping(pages));
        pair.close();
    }
}

#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn an_unknown_token_to_invalidate_ends_the_connection_without_using_the_receive_up() {
    let mut pair = Pair::new();
    let region = pair.b.fast_region(&pair.world);
    pair.b.pair.receive(8, std::iter::empty()).unwrap();
    pair.a.pair.send_and_invalidate(1, NONE, std::iter::empty(), region.remote_token()).unwrap();
    assert_eq!(pair.world.run(), [Event::Disconnected(B + GONE)]);
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::RemoteError)]);
    assert_eq!(outcomes(&pair.b.receiver), [(8, Outcome::Cancelled)]);
    drop(region.close(1));
    pair.close();
}

#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn a_peer_cannot_invalidate_a_region_that_was_made_without_remote_access() {
    let mut pair = Pair::new();
    let buffer = Buffer::new(4096, 0);
    let mapping = pair.b.build(&pair.world, &buffer);
    let region = pair.b.domain.create_memory_region(true, pair.world.consumer_object(51)).unwrap();
    region.initialize_fast_register(1, false).unwrap();
    let registration = FastRegistration { first_byte_offset: 0, length: 4096, base: 0, rights: Rights::LOCAL_WRITE };
    pair.b.pair.fast_register(1, NONE, &region, registration, [mapping].into_iter()).unwrap();
    assert_eq!(outcomes(&pair.b.initiator), [(1, Outcome::Success)]);
    pair.b.pair.receive(8, std::iter::empty()).unwrap();
    pair.a.pair.send_and_invalidate(1, NONE, std::iter::empty(), region.remote_token()).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::RemoteError)]);
    assert_eq!(outcomes(&pair.b.receiver), [(8, Outcome::Cancelled)]);
    drop(region.close(1));
    assert!(pair.b.open.release_mapping(mapping));
    pair.close();
}

#[test]
fn registering_twice_and_invalidating_twice_fail_by_completion() {
    for twice in [true, false] {
        let mut pair = Pair::new();
        let buffer = Buffer::new(4096, 0);
        let mapping = pair.b.build(&pair.world, &buffer);
        let region = pair.b.fast_region(&pair.world);
        pair.b.fast_register(&region, mapping, 1, 0).unwrap();
        if twice {
            pair.b.fast_register(&region, mapping, 1, 0).unwrap();
        } else {
            pair.b.pair.invalidate(60, RequestFlags::SILENT_SUCCESS, &region).unwrap();
            pair.b.pair.invalidate(60, RequestFlags::SILENT_SUCCESS, &region).unwrap();
        }
        assert_eq!(pair.world.run(), [Event::Disconnected(A + GONE)]);
        assert_eq!(outcomes(&pair.b.initiator), [(60, Outcome::InvalidRequest)]);
        pair.b.open.release_mapping(mapping);
        drop(region.close(1));
        pair.close();
    }
}

#[test]
fn fast_registration_arguments_are_checked_inline() {
    let pair = Pair::new();
    let buffer = Buffer::new(40 * 4096, 0);
    let mapping = pair.b.build(&pair.world, &buffer);
    let region = pair.b.fast_region(&pair.world);
    let local_only = pair.b.domain.create_memory_region(true, pair.world.consumer_object(1)).unwrap();
    local_only.initialize_fast_register(1, false).unwrap();
    let plain = pair.b.register(&pair.world, &buffer, 0, EVERYTHING);
    let good = FastRegistration { first_byte_offset: 16, length: 4080, base: 0x1010, rights: Rights::LOCAL_WRITE };
    let post = |region, registration, pages: u32, first: u64| {
        let pages = (0..pages).map(move |page| LogicalAddress(first + u64::from(page) * 4096));
        pair.b.pair.fast_register(1, NONE, region, registration, pages)
    };
    let bad = Err(PostError::BadParameter);
    assert_eq!(post(&region, FastRegistration { length: 4081, ..good }, 1, mapping.0), bad);
    assert_eq!(post(&region, FastRegistration { length: 0, ..good }, 1, mapping.0), bad);
    assert_eq!(post(&region, FastRegistration { base: 0x1011, ..good }, 1, mapping.0), bad);
    assert_eq!(post(&region, FastRegistration { first_byte_offset: 4096, base: 0, ..good }, 2, mapping.0), bad);
    assert_eq!(post(&region, FastRegistration { length: 8000, base: u64::MAX - 4079, ..good }, 2, mapping.0), bad);
    assert_eq!(post(&region, good, 0, mapping.0), bad);
    assert_eq!(post(&region, good, 33, mapping.0), bad);
    assert_eq!(post(&region, good, 1, mapping.0 + 1), bad);
    assert_eq!(post(&plain, good, 1, mapping.0), bad);
    let remote = FastRegistration { rights: Rights::REMOTE_READ, ..good };
    assert_eq!(post(&local_only, remote, 1, mapping.0), Err(PostError::AccessDenied));
    assert_eq!(post(&local_only, good, 1, mapping.0), Ok(()));
    assert_eq!(post(&region, good, 32, mapping.0), Ok(()));
    assert_eq!(outcomes(&pair.b.initiator), [(1, Outcome::Success); 2]);
    pair.b.open.release_mapping(mapping);
    drop((region.close(1), local_only.close(1), plain.close(1)));
    pair.close();
}

#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn a_fast_register_region_of_another_domain_is_refused_at_both_ends() {
    for remote_side in [false, true] {
        let pair = Pair::new();
        let buffer = Buffer::new(4096, 0);
        let other = pair.b.open.create_protection_domain(pair.world.consumer_object(1)).unwrap();
        let mapping = pair.a.build(&pair.world, &buffer);
        let region = pair.a.fast_region(&pair.world);
        pair.a.fast_register(&region, mapping, 1, 0).unwrap();
        let plain = pair.b.register(&pair.world, &buffer, 0, EVERYTHING);
        let here = pair.a.register(&pair.world, &buffer, 0, EVERYTHING);
        // A's own fast region is good for A locally, and neither as B's memory nor in B's SGEs.
        if remote_side {
            let list = [sge(0, 1, here.local_token())].into_iter();
            pair.a.pair.write(1, NONE, list, 0, region.remote_token()).unwrap();
            assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::RemoteError)]);
        } else {
            let list = [sge(0, 1, region.local_token())].into_iter();
            pair.a.pair.read(1, NONE, list, 0, plain.remote_token()).unwrap();
            assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
            let list = [sge(0, 1, region.local_token())].into_iter();
            pair.b.pair.read(2, NONE, list, 0, here.remote_token()).unwrap();
            assert_eq!(outcomes(&pair.b.initiator), [(2, Outcome::LocalAccess)]);
        }
        pair.a.open.release_mapping(mapping);
        drop((region.close(1), plain.close(1), here.close(1), other.close(1)));
        pair.close();
    }
}

#[test]
fn logical_addresses_of_another_open_are_refused_in_sges_and_in_page_lists() {
    for in_page_list in [false, true] {
        let pair = Pair::new();
        let buffer = Buffer::new(4096, 0);
        let (mine, foreign) = (pair.a.build(&pair.world, &buffer), pair.b.build(&pair.world, &buffer));
        let remote = pair.b.register(&pair.world, &buffer, 0, EVERYTHING);
        let region = pair.a.fast_region(&pair.world);
        let good = [sge(mine.0, 1, pair.a.privileged())].into_iter();
        pair.a.pair.read(0, NONE, good, 0, remote.remote_token()).unwrap();
        let bad = if in_page_list {
            pair.a.fast_register(&region, foreign, 1, 0).unwrap();
            sge(0, 1, region.local_token())
        } else {
            sge(foreign.0, 1, pair.a.privileged())
        };
        pair.a.pair.read(1, NONE, [bad].into_iter(), 0, remote.remote_token()).unwrap();
        assert_eq!(outcomes(&pair.a.initiator), [(0, Outcome::Success), (1, Outcome::LocalAccess)]);
        pair.a.open.release_mapping(mine);
        pair.b.open.release_mapping(foreign);
        drop((region.close(1), remote.close(1)));
        pair.close();
    }
}

#[test]
fn a_privileged_token_of_another_domain_of_the_same_open_is_refused() {
    let pair = Pair::new();
    let buffer = Buffer::new(4096, 0);
    let other = pair.a.open.create_protection_domain(pair.world.consumer_object(1)).unwrap();
    let mapping = pair.a.build(&pair.world, &buffer);
    let remote = pair.b.register(&pair.world, &buffer, 0, EVERYTHING);
    let list = [sge(mapping.0, 1, other.privileged_token())].into_iter();
    pair.a.pair.read(1, NONE, list, 0, remote.remote_token()).unwrap();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::LocalAccess)]);
    pair.a.open.release_mapping(mapping);
    drop((other.close(1), remote.close(1)));
    pair.close();
}

#[test]
fn slots_of_retired_domains_are_used_again() {
    let mut world = kit::World::new();
    let open = world.first.open(Semantics::NDK, world.consumer_object(1)).unwrap();
    let mut highest = 0;
    for _ in 0..10_000 {
        let domain = open.create_protection_domain(world.consumer_object(2)).unwrap();
        highest = highest.max(domain.privileged_token().0 & 0xf_ffff);
        drop(domain.close(1));
        drop(domain);
        world.run();
    }
    assert!(highest < 300, "slot {highest}");
    drop(open.close(1));
}

/// A region that has no pages, and one of another protection domain: a message that names it moves nothing, and the region
/// stays as it was.
#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn a_message_that_invalidates_what_it_may_not_fails_before_its_first_byte() {
    for foreign in [false, true] {
        let mut pair = Pair::new();
        let other = pair.b.open.create_protection_domain(pair.world.consumer_object(1)).unwrap();
        let (caller, host) = pair.another_connection(&other);
        let (here, there) = (Buffer::new(64, 7), Buffer::new(4096, 0));
        let region = if foreign { host.fast_region(&pair.world) } else { pair.b.fast_region(&pair.world) };
        let pages = host.build(&pair.world, &there);
        if foreign {
            host.fast_register(&region, pages, 1, 0).unwrap();
        }
        let source = pair.a.register(&pair.world, &here, 0, EVERYTHING);
        let sink = pair.b.register(&pair.world, &there, 0, EVERYTHING);
        pair.b.pair.receive(8, [sge(0, 64, sink.local_token())].into_iter()).unwrap();
        let message = [sge(0, 64, source.local_token())].into_iter();
        pair.a.pair.send_and_invalidate(1, NONE, message, region.remote_token()).unwrap();
        pair.world.run();
        assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::RemoteError)]);
        assert_eq!(outcomes(&pair.b.receiver), [(8, Outcome::Cancelled)]);
        assert_eq!(there.read(0, 64), [0; 64], "no byte has moved, foreign: {foreign}");
        if foreign {
            host.pair.invalidate(9, NONE, &region).unwrap();
            assert_eq!(outcomes(&host.initiator), [(9, Outcome::Success)], "it was registered all the while");
        }
        drop((source.close(1), sink.close(1), region.close(1)));
        assert!(host.open.release_mapping(pages));
        pair.close_other_connection(&caller, &host);
        drop(other.close(1));
        pair.close();
    }
}

/// The second SGE of the receive is invalid: the first is not touched.
#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn a_receive_with_a_bad_sge_fails_before_its_first_byte() {
    let mut pair = Pair::new();
    let (here, there) = (Buffer::new(64, 7), Buffer::new(64, 0));
    let source = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let good = pair.b.register(&pair.world, &there, 0, Rights::LOCAL_WRITE);
    let bad = pair.b.register(&pair.world, &there, 0, Rights::REMOTE_WRITE);
    let list = [sge(0, 32, good.local_token()), sge(32, 32, bad.local_token())];
    pair.b.pair.receive(8, list.into_iter()).unwrap();
    pair.a.pair.send(1, NONE, [sge(0, 64, source.local_token())].into_iter()).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::RemoteError)]);
    assert_eq!(outcomes(&pair.b.receiver), [(8, Outcome::LocalAccess)]);
    assert_eq!(there.read(0, 64), [0; 64], "no byte has moved");
    drop((source.close(1), good.close(1), bad.close(1)));
    pair.close();
}

/// Two page lists are all a region has; those of requests that never took place are free again, for any queue pair.
#[test]
fn page_lists_of_cancelled_registrations_are_free_again() {
    let mut pair = Pair::new();
    let (caller, host) = pair.another_connection(&pair.b.domain.clone());
    let pages = host.build(&pair.world, &Buffer::new(4096, 0));
    let region = host.fast_region(&pair.world);
    let registration = FastRegistration { first_byte_offset: 0, length: 4096, base: 0, rights: EVERYTHING };
    for _ in 0..2 {
        let list = std::iter::once(pages);
        pair.b.pair.fast_register(1, RequestFlags::DEFER, &region, registration, list).unwrap();
    }
    pair.b.pair.flush();
    pair.world.run();
    assert_eq!(outcomes(&pair.b.initiator), [(1, Outcome::Cancelled), (1, Outcome::Cancelled)]);
    host.fast_register(&region, pages, 1, 0).unwrap();
    host.pair.invalidate(2, NONE, &region).unwrap();
    assert_eq!(outcomes(&host.initiator), [(2, Outcome::Success)]);
    drop(region.close(1));
    host.open.release_mapping(pages);
    pair.close_other_connection(&caller, &host);
    pair.close();
}

/// The region is closed while its registration waits in the queue. Nothing says what the registration completes with; it leaves the
/// queue and gives no access.
// Rule: NDK-MR-7
#[test]
fn a_registration_that_comes_after_the_close_of_its_region_gives_no_access() {
    let mut pair = Pair::new();
    let (here, there) = (Buffer::new(64, 1), Buffer::new(4096, 2));
    let sink = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let pages = pair.b.build(&pair.world, &there);
    let region = pair.b.fast_region(&pair.world);
    let token = region.remote_token();
    pair.b.pair.send(1, RequestFlags::SILENT_SUCCESS, std::iter::empty()).unwrap();
    pair.b.fast_register(&region, pages, 1, 0).unwrap();
    drop(region.close(1));
    pair.world.run();
    pair.a.pair.receive(2, std::iter::empty()).unwrap();
    pair.world.run();
    assert_eq!(pair.b.pair.outstanding(), (0, 0));
    pair.a.pair.read(3, NONE, [sge(0, 64, sink.local_token())].into_iter(), 0, token).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(3, Outcome::RemoteError)]);
    assert_eq!(here.read(0, 64), [1; 64], "no byte has moved");
    drop(sink.close(1));
    pair.b.open.release_mapping(pages);
    pair.close();
}

/// Every number of a fast registration at its bounds; the label may end with the last address there is.
#[test]
fn a_fast_registration_is_checked_to_the_byte() {
    let pair = Pair::new();
    let pages = pair.b.build(&pair.world, &Buffer::new(33 * 4096, 0));
    let region = pair.b.fast_region(&pair.world);
    let top = u64::MAX - 4095;
    for (count, offset, base, length, fits) in [
        (0, 0, 0, 1, false),
        (32, 0, 0, 32 * 4096, true),
        (33, 0, 0, 1, false),
        (1, 0, 0, 4096, true),
        (1, 0, 0, 4097, false),
        (1, 0, 0, 0, false),
        (1, 1, 0x1001, 4095, true),
        (1, 1, 0x1001, 4096, false),
        (1, 1, 0x1000, 1, false),
        (1, 4095, 4095, 1, true),
        (1, 4096, 0, 1, false),
        (1, 0, top, 4096, true),
        (2, 0, top, 4097, false),
    ] {
        let registration = FastRegistration { first_byte_offset: offset, length, base, rights: EVERYTHING };
        let list = (0..count).map(|page: u32| LogicalAddress(pages.0 + u64::from(page) * 4096));
        let posted = pair.b.pair.fast_register(1, RequestFlags::SILENT_SUCCESS, &region, registration, list);
        let expected = if fits { Ok(()) } else { Err(PostError::BadParameter) };
        assert_eq!(posted, expected, "{count} pages, {offset} {base:#x} {length:#x}");
        if fits {
            pair.b.pair.invalidate(2, RequestFlags::SILENT_SUCCESS, &region).unwrap();
        }
    }
    assert_eq!(outcomes(&pair.b.initiator), []);
    drop(region.close(1));
    pair.b.open.release_mapping(pages);
    pair.close();
}

/// The local list is checked as a whole before its first byte moves; SGEs without bytes need no token.
#[test]
fn a_list_with_a_bad_sge_moves_nothing_and_one_with_an_empty_sge_moves_all() {
    for operation in BOTH {
        for empty in [false, true] {
            let pair = Pair::new();
            let (here, there) = (Buffer::new(64, 1), Buffer::new(64, 2));
            let local = pair.a.register(&pair.world, &here, 0, EVERYTHING);
            let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
            let (good, bad) = (local.local_token(), MemoryToken(0xdead_beef));
            let last = if empty { good } else { bad };
            let pieces = [sge(0, 32, good), sge(7, 0, bad), sge(32, 32, last)].into_iter();
            match operation {
                Operation::Read => pair.a.pair.read(1, NONE, pieces, 0, remote.remote_token()),
                _ => pair.a.pair.write(1, NONE, pieces, 0, remote.remote_token()),
            }
            .unwrap();
            let outcome = if empty { Outcome::Success } else { Outcome::LocalAccess };
            assert_eq!(outcomes(&pair.a.initiator), [(1, outcome)], "{operation:?}");
            let expected = match (empty, operation) {
                (false, _) => (1, 2),
                (true, Operation::Read) => (2, 2),
                (true, _) => (1, 1),
            };
            assert_eq!((here.read(0, 64), there.read(0, 64)), (vec![expected.0; 64], vec![expected.1; 64]));
            drop((local.close(1), remote.close(1)));
            pair.close();
        }
    }
}
