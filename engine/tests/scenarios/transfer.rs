//! Bytes through a connected pair: Read, Write, Send over both kinds of regions and logical addresses.

use std::net::SocketAddr;

use std::sync::atomic::Ordering;

use softndk_engine::{
    AdapterSettings, Budget, Completion, FastRegistration, Limits, LogicalAddress, MemoryToken, Operation, Outcome,
    Pass, PostError, RequestFlags, Rights, Semantics,
};
use softndk_engine_kit::{
    A, B, Buffer, Depths, EVERYTHING, FIRST, PROCESSOR, Pair, SECOND, Side, World, outcomes, polled, sge,
};

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 251) as u8).collect()
}

const NONE: RequestFlags = RequestFlags::empty();

#[test]
fn a_connected_pair_closes_without_anything_left() {
    Pair::new().close();
}

#[test]
fn read_brings_each_length_and_nothing_more() {
    for length in [0, 1, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097, 65535, 65536, 65537, (1 << 20) + 3] {
        let mut pair = Pair::new();
        let (here, there) = (Buffer::new(length + 2, 0xee), Buffer::new(length + 1, 0));
        there.write(0, &pattern(length));
        let local = pair.a.register(&pair.world, &here, 0x1000, Rights::LOCAL_WRITE);
        let remote = pair.b.register(&pair.world, &there, 0x7000, Rights::REMOTE_READ);
        let list = [sge(0x1001, length as u32, local.local_token())];
        pair.a.pair.read(1, NONE, list.into_iter(), 0x7000, remote.remote_token()).unwrap();
        pair.world.run();
        assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)], "length {length}");
        assert_eq!(here.read(1, length), pattern(length));
        assert_eq!((here.read(0, 1), here.read(length + 1, 1)), (vec![0xee], vec![0xee]));
        drop((local.close(1), remote.close(1)));
        pair.close();
    }
}

#[test]
fn write_moves_a_scattered_message_into_place() {
    let mut pair = Pair::new();
    let (here, there) = (Buffer::new(300, 0), Buffer::new(200, 0));
    here.write(0, &pattern(300));
    let local = pair.a.register(&pair.world, &here, 0, Rights::empty());
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let token = local.local_token();
    let list = [sge(200, 100, token), sge(0, 0, MemoryToken::NONE), sge(10, 1, token), sge(50, 99, token)];
    pair.a.pair.write(9, NONE, list.into_iter(), 0, remote.remote_token()).unwrap();
    assert_eq!(outcomes(&pair.a.initiator), [(9, Outcome::Success)]);
    let expected = [&pattern(300)[200..300], &pattern(300)[10..11], &pattern(300)[50..149]].concat();
    assert_eq!(there.read(0, 200), expected);
    drop((local.close(1), remote.close(1)));
    pair.world.run();
    pair.close();
}

#[test]
fn send_fills_the_receive_and_completes_both_sides() {
    let pair = Pair::new();
    let (here, there) = (Buffer::new(100, 0), Buffer::new(100, 0));
    here.write(0, &pattern(100));
    let local = pair.a.open.build_mapping(pair.world.map(&here)).map_err(|(error, _)| error).unwrap();
    let remote = pair.b.open.build_mapping(pair.world.map(&there)).map_err(|(error, _)| error).unwrap();
    let receive = [sge(remote.first.0, 40, pair.b.privileged()), sge(remote.first.0 + 60, 40, pair.b.privileged())];
    pair.b.pair.receive(77, receive.into_iter()).unwrap();
    let list = [sge(local.first.0 + 1, 50, pair.a.privileged())];
    pair.a.pair.send(5, RequestFlags::SOLICIT, list.into_iter()).unwrap();
    let sent = polled(&pair.a.initiator);
    assert_eq!((sent[0].context, sent[0].queue_pair_context, sent[0].outcome), (5, A + 4, Outcome::Success));
    let received = polled(&pair.b.receiver);
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].context, received[0].queue_pair_context, received[0].bytes), (77, B + 4, 50));
    assert_eq!((received[0].operation, received[0].solicited), (Operation::Receive, true));
    assert_eq!(there.read(0, 40), pattern(100)[1..41]);
    assert_eq!(there.read(60, 11), [&pattern(100)[41..51], &[0]].concat());
    assert!(pair.a.open.release_mapping(local.first));
    assert!(!pair.a.open.release_mapping(local.first));
    assert!(pair.b.open.release_mapping(remote.first));
    pair.close();
}

/// Every page of the region is another page of the mapping, in reverse, so no two are neighbours.
#[test]
fn a_fast_registration_of_scattered_pages_reads_in_its_own_order() {
    let mut pair = Pair::new();
    let (here, there) = (Buffer::new(5 * 4096, 0), Buffer::new(5 * 4096, 0));
    there.write(0, &pattern(5 * 4096));
    let (local, remote) = (pair.a.build(&pair.world, &here), pair.b.build(&pair.world, &there));
    let region = pair.b.fast_region(&pair.world);
    let registration =
        FastRegistration { first_byte_offset: 100, length: 4 * 4096 + 96, base: 0x5064, rights: Rights::REMOTE_READ };
    let pages = (0..5).rev().map(|page: u32| LogicalAddress(remote.0 + u64::from(page) * 4096));
    let pages: Vec<_> = pages.collect();
    pair.b.pair.fast_register(3, NONE, &region, registration, pages.into_iter()).unwrap();
    assert_eq!(outcomes(&pair.b.initiator), [(3, Outcome::Success)]);
    let length = 4 * 4096 + 96;
    let list = [sge(local.0, 1000, pair.a.privileged()), sge(local.0 + 1000, length - 1000, pair.a.privileged())];
    pair.a.pair.read(1, NONE, list.into_iter(), 0x5064, region.remote_token()).unwrap();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
    let source = pattern(5 * 4096);
    let reversed: Vec<u8> = source.chunks(4096).rev().flatten().copied().collect();
    assert_eq!(here.read(0, length as usize), reversed[100..100 + length as usize]);
    pair.a.open.release_mapping(local);
    pair.b.open.release_mapping(remote);
    drop(region.close(1));
    pair.world.run();
    pair.close();
}

#[test]
fn the_remote_token_stays_the_same_over_all_cycles_and_only_the_registered_pages_answer() {
    let mut pair = Pair::new();
    let (here, there) = (Buffer::new(4096, 0), Buffer::new(8192, 0));
    there.write(0, &[1; 4096]);
    there.write(4096, &[2; 4096]);
    let (local, remote) = (pair.a.build(&pair.world, &here), pair.b.build(&pair.world, &there));
    let region = pair.b.fast_region(&pair.world);
    let token = region.remote_token();
    assert_ne!(token, MemoryToken::NONE);
    for cycle in 0..6 {
        let first = LogicalAddress(remote.0 + (cycle % 2) * 4096);
        pair.b.fast_register(&region, first, 1, 0).unwrap();
        let list = [sge(local.0, 4096, pair.a.privileged())];
        pair.a.pair.read(cycle, NONE, list.into_iter(), 0, token).unwrap();
        pair.b.pair.invalidate(cycle, NONE, &region).unwrap();
        assert_eq!(outcomes(&pair.a.initiator), [(cycle, Outcome::Success)]);
        assert_eq!(outcomes(&pair.b.initiator), [(cycle, Outcome::Success)]);
        assert_eq!(here.read(0, 4096), [1 + (cycle % 2) as u8; 4096]);
        assert_eq!(region.remote_token(), token);
    }
    pair.a.open.release_mapping(local);
    pair.b.open.release_mapping(remote);
    drop(region.close(1));
    pair.world.run();
    pair.close();
}

// Rule: NDK-FRMR-14
#[test]
fn a_third_queued_registration_is_refused_and_schedules_what_was_held() {
    let pair = Pair::new();
    let there = Buffer::new(4096, 0);
    let remote = pair.b.build(&pair.world, &there);
    let region = pair.b.fast_region(&pair.world);
    let page = || [remote].into_iter();
    let registration = FastRegistration { first_byte_offset: 0, length: 4096, base: 0, rights: EVERYTHING };
    pair.b.pair.fast_register(1, NONE, &region, registration, page()).unwrap();
    pair.b.pair.invalidate(2, RequestFlags::DEFER, &region).unwrap();
    pair.b.pair.fast_register(3, RequestFlags::DEFER, &region, registration, page()).unwrap();
    pair.b.pair.invalidate(4, RequestFlags::DEFER, &region).unwrap();
    assert_eq!(outcomes(&pair.b.initiator), [(1, Outcome::Success)]);
    let third = pair.b.pair.fast_register(5, RequestFlags::DEFER, &region, registration, page());
    assert_eq!(third, Err(PostError::NoResources));
    let scheduled = [(2, Outcome::Success), (3, Outcome::Success), (4, Outcome::Success)];
    assert_eq!(outcomes(&pair.b.initiator), scheduled);
    pair.b.pair.fast_register(6, NONE, &region, registration, page()).unwrap();
    assert_eq!(outcomes(&pair.b.initiator), [(6, Outcome::Success)]);
    pair.b.open.release_mapping(remote);
    drop(region.close(1));
    pair.close();
}

#[test]
fn inline_data_is_taken_during_the_call_from_any_number_of_sges() {
    for length in [0_usize, 1, 63, 64, 65, 127, 128] {
        let pair = Pair::new();
        let (mut here, there) = (pattern(length), Buffer::new(300, 0xee));
        let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
        // One SGE a byte, many more than the queue pair takes otherwise; the token is not checked.
        let list: Vec<_> = here.iter().map(|byte| sge(std::ptr::from_ref(byte) as u64, 1, MemoryToken(1))).collect();
        pair.b.pair.receive(8, [sge(10, 128, remote.local_token())].into_iter()).unwrap();
        let flags = RequestFlags::INLINE | RequestFlags::DEFER;
        pair.a.pair.send(1, flags, list.iter().copied()).unwrap();
        pair.a
            .pair
            .write(2, RequestFlags::INLINE, list.iter().copied(), 150, remote.remote_token())
            .map_or_else(|error| panic!("{error:?}"), |()| ());
        let expected = here.clone();
        here.fill(0xff);
        assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success), (2, Outcome::Success)], "{length}");
        assert_eq!(there.read(150, length), expected);
        assert_eq!(there.read(150 + length, 1), [0xee], "nothing behind the message");
        assert_eq!(polled(&pair.b.receiver)[0].bytes, length as u32);
        assert_eq!(there.read(10, length), expected);
        drop(remote.close(1));
        pair.close();
    }
}

#[test]
fn sges_and_inline_data_free_their_capacity_for_ever() {
    let pair = Pair::with(Semantics::NDK, Depths { initiator: 3, receive: 3, sges: 3, ..Depths::default() });
    let buffer = Buffer::new(64, 0);
    let here = pair.a.register(&pair.world, &buffer, 0, EVERYTHING);
    let there = pair.b.register(&pair.world, &buffer, 0, EVERYTHING);
    let list = |token| (0..3_u64).map(move |index| sge(index, 1, token)).collect::<Vec<_>>().into_iter();
    for context in 0..50 {
        pair.b.pair.receive(context, list(there.local_token())).unwrap();
        pair.a.pair.send(context, NONE, list(here.local_token())).unwrap();
        let bytes = [7_u8; 100];
        let inline = [sge(bytes.as_ptr() as u64, 63, MemoryToken::NONE)].into_iter();
        pair.a.pair.write(context, RequestFlags::INLINE, inline, 0, there.remote_token()).unwrap();
        assert_eq!(outcomes(&pair.a.initiator), [(context, Outcome::Success); 2]);
        assert_eq!(outcomes(&pair.b.receiver), [(context, Outcome::Success)]);
    }
    drop((here.close(1), there.close(1)));
    pair.close();
}

// Rule: NDK-INFO-8
/// A consumer may poll the last byte: it comes last, after everything else, and the end of a message comes in order.
#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn the_end_of_a_message_is_stored_last_and_ascending() {
    for (length, expected) in [
        (1, vec![(true, 0, 1)]),
        (64, vec![(true, 0, 64)]),
        (65, vec![(false, 0, 1), (true, 1, 64)]),
        // The sink has two SGEs, and the border lies inside the end.
        (200, vec![(false, 0, 136), (true, 136, 14), (true, 150, 50)]),
        (230, vec![(false, 0, 150), (false, 150, 16), (true, 166, 64)]),
    ] {
        let pair = Pair::new();
        let buffer = Buffer::new(256, 0);
        let here = pair.a.register(&pair.world, &buffer, 0, EVERYTHING);
        let there = pair.b.register(&pair.world, &buffer, 0, EVERYTHING);
        let token = here.local_token();
        let list = [sge(0, length.min(150), token), sge(150, length.saturating_sub(150), token)];
        pair.world.harness().watch_copies.store(true, Ordering::SeqCst);
        pair.a.pair.read(1, NONE, list.into_iter(), 0, there.remote_token()).unwrap();
        assert_eq!(*pair.world.harness().order.lock().unwrap(), expected, "{length} bytes");
        drop((here.close(1), there.close(1)));
        pair.close();
    }
}

#[test]
fn silent_requests_leave_no_entry_and_free_their_slots() {
    let pair = Pair::new();
    let there = Buffer::new(64, 0);
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let nothing = || std::iter::empty();
    for _ in 0..1000 {
        pair.a.pair.write(1, RequestFlags::SILENT_SUCCESS, nothing(), 0, remote.remote_token()).unwrap();
    }
    assert_eq!(outcomes(&pair.a.initiator), []);
    pair.a.pair.write(2, NONE, nothing(), 0, remote.remote_token()).unwrap();
    assert_eq!(outcomes(&pair.a.initiator), [(2, Outcome::Success)]);
    drop(remote.close(1));
    pair.close();
}

#[test]
fn a_deferred_chain_runs_with_its_last_request_in_order_up_to_the_whole_queue() {
    for chain in [1, 2, 16, 17, 32] {
        let pair = Pair::new();
        for index in 0..chain - 1 {
            pair.a.pair.read(index, RequestFlags::DEFER, std::iter::empty(), 0, MemoryToken::NONE).unwrap();
        }
        assert_eq!(outcomes(&pair.a.initiator), []);
        pair.a.pair.read(chain - 1, NONE, std::iter::empty(), 0, MemoryToken::NONE).unwrap();
        let expected: Vec<_> = (0..chain).map(|index| (index, Outcome::Success)).collect();
        assert_eq!(outcomes(&pair.a.initiator), expected);
        pair.close();
    }
}

/// A post that could be moved past the queue is behind the request that is held back in it.
// Rule: NDK-DEFER-2, NDK-CQ-8
#[test]
#[cfg_attr(feature = "streams", ignore = "a Write may pass a Read that it has no fence for")]
fn a_request_that_moves_bytes_stays_behind_the_one_that_is_held() {
    let pair = Pair::new();
    let (here, there) = (Buffer::new(64, 1), Buffer::new(64, 2));
    let local = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let list = || [sge(0, 64, local.local_token())].into_iter();
    pair.a.pair.read(1, RequestFlags::DEFER, list(), 0, remote.remote_token()).unwrap();
    pair.a.pair.write(2, NONE, list(), 0, remote.remote_token()).unwrap();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success), (2, Outcome::Success)]);
    assert_eq!((here.read(0, 64), there.read(0, 64)), (vec![2; 64], vec![2; 64]), "read, then written back");
    drop((local.close(1), remote.close(1)));
    pair.close();
}

#[test]
fn a_request_that_moves_bytes_is_cancelled_after_the_end() {
    let mut pair = Pair::new();
    let (here, there) = (Buffer::new(64, 1), Buffer::new(64, 2));
    let local = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let list = || [sge(0, 64, local.local_token())].into_iter();
    pair.a.pair.read(1, NONE, list(), 0, remote.remote_token()).unwrap();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
    here.fill(3);
    pair.a.pair.flush();
    // Before the service pass that cancels, and after it.
    pair.a.pair.read(2, NONE, list(), 0, remote.remote_token()).unwrap();
    pair.world.run();
    pair.a.pair.write(3, NONE, list(), 0, remote.remote_token()).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(2, Outcome::Cancelled), (3, Outcome::Cancelled)]);
    assert_eq!((here.read(0, 64), there.read(0, 64)), (vec![3; 64], vec![2; 64]), "nothing is moved");
    drop((local.close(1), remote.close(1)));
    pair.close();
}

// Rule: NDK-DEFER-5, NDK-DEFER-6
#[test]
fn a_chain_that_is_never_ended_is_completed_by_flush_and_by_close() {
    for flush in [true, false] {
        let mut pair = Pair::new();
        for index in 0..5 {
            pair.a.pair.read(index, RequestFlags::DEFER, std::iter::empty(), 0, MemoryToken::NONE).unwrap();
        }
        if flush {
            pair.a.pair.flush();
        } else {
            drop(pair.a.pair.close(1));
        }
        pair.world.run();
        let expected: Vec<_> = (0..5).map(|index| (index, Outcome::Cancelled)).collect();
        assert_eq!(outcomes(&pair.a.initiator), expected);
        pair.close();
    }
}

#[test]
fn a_post_that_fails_inline_schedules_the_chain_before_it() {
    let pair = Pair::new();
    let nothing = || std::iter::empty();
    pair.a.pair.read(1, RequestFlags::DEFER, nothing(), 0, MemoryToken::NONE).unwrap();
    assert_eq!(pair.a.pair.read(2, RequestFlags::SOLICIT, nothing(), 0, MemoryToken::NONE), Err(PostError::BadFlags));
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
    pair.a.pair.read(3, RequestFlags::DEFER, nothing(), 0, MemoryToken::NONE).unwrap();
    pair.a.pair.schedule_held();
    assert_eq!(outcomes(&pair.a.initiator), [(3, Outcome::Success)]);
    pair.close();
}

/// The poster has looked for the end and not added its request yet: the end finds the queue empty, and may not leave it at that.
#[test]
fn a_held_post_that_meets_the_end_is_cancelled() {
    let mut pair = Pair::new();
    let Pair { world, a, .. } = &mut pair;
    let meeting = std::iter::once_with(|| {
        a.pair.flush();
        world.run();
        sge(0, 1, MemoryToken::NONE)
    });
    a.pair.write(1, RequestFlags::DEFER, meeting, 0, MemoryToken::NONE).unwrap();
    assert_eq!((outcomes(&a.initiator), a.pair.outstanding().0), (vec![], 1));
    world.advance(1_000_000);
    world.run();
    assert_eq!((outcomes(&a.initiator), a.pair.outstanding().0), (vec![(1, Outcome::Cancelled)], 0));
    pair.close();
}

/// As above, and the post is refused in the end: the end of the queue pair is not held up.
#[test]
fn a_refused_post_that_meets_the_end_leaves_nothing() {
    let limits = Limits { transfer_length: 1000, ..Limits::default() };
    let mut pair = Pair::in_world(World::with_limits(limits), Semantics::NDK, Depths::default());
    let Pair { world, a, .. } = &mut pair;
    let meeting = std::iter::once_with(|| {
        a.pair.flush();
        world.run();
        sge(0, 1001, MemoryToken::NONE)
    });
    let refused = a.pair.write(1, RequestFlags::DEFER, meeting, 0, MemoryToken::NONE);
    assert_eq!(refused, Err(PostError::TooMuchData));
    world.advance(1_000_000);
    world.run();
    assert_eq!((outcomes(&a.initiator), a.pair.outstanding().0), (vec![], 0));
    pair.close();
}

#[test]
fn limits_of_a_post_are_exact() {
    let limits = Limits { transfer_length: 1000, read_sges: 2, ..Limits::default() };
    let depths = Depths { initiator: 3, receive: 2, sges: 3, inline: 10, ..Depths::default() };
    let mut pair = Pair::in_world(World::with_limits(limits), Semantics::NDK, depths);
    let buffer = Buffer::new(2000, 0);
    let region = pair.a.register(&pair.world, &buffer, 0, EVERYTHING);
    let remote = pair.b.register(&pair.world, &buffer, 0, EVERYTHING);
    let token = region.local_token();
    let list = |count: u32, length: u32| (0..count).map(move |_| sge(0, length, token));
    let (to, none) = (remote.remote_token(), RequestFlags::empty());
    let qp = &pair.a.pair;
    assert_eq!(qp.write(1, none, list(4, 1).collect::<Vec<_>>().into_iter(), 0, to), Err(PostError::TooManySges));
    qp.write(1, none, list(3, 1).collect::<Vec<_>>().into_iter(), 0, to).unwrap();
    assert_eq!(qp.read(2, none, list(3, 1).collect::<Vec<_>>().into_iter(), 0, to), Err(PostError::TooManySges));
    qp.read(2, none, list(2, 1).collect::<Vec<_>>().into_iter(), 0, to).unwrap();
    assert_eq!(qp.write(3, none, list(1, 1001).collect::<Vec<_>>().into_iter(), 0, to), Err(PostError::TooMuchData));
    assert_eq!(
        qp.write(3, none, list(2, u32::MAX).collect::<Vec<_>>().into_iter(), 0, to),
        Err(PostError::TooMuchData)
    );
    qp.write(3, none, list(1, 1000).collect::<Vec<_>>().into_iter(), 0, to).unwrap();
    let bytes = [0_u8; 11];
    let inline = |length: u32| [sge(bytes.as_ptr() as u64, length, MemoryToken::NONE)].into_iter();
    assert_eq!(qp.write(4, RequestFlags::INLINE, inline(11), 0, to), Err(PostError::TooMuchData));
    qp.write(4, RequestFlags::INLINE, inline(10), 0, to).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [1, 2, 3, 4].map(|context| (context, Outcome::Success)));
    for context in 0..3 {
        pair.a.pair.write(context, RequestFlags::DEFER, std::iter::empty(), 0, to).unwrap();
    }
    let full = pair.a.pair.write(3, RequestFlags::DEFER, std::iter::empty(), 0, to);
    assert_eq!(full, Err(PostError::QueueFull));
    assert_eq!(outcomes(&pair.a.initiator).len(), 3);
    for context in 0..2 {
        pair.a.pair.receive(context, std::iter::empty()).unwrap();
    }
    assert_eq!(pair.a.pair.receive(2, std::iter::empty()), Err(PostError::QueueFull));
    drop(remote.close(1));
    pair.a.pair.flush();
    pair.world.run();
    drop(region.close(1));
    pair.close();
}

#[test]
#[cfg_attr(feature = "streams", ignore = "no Send across a stream waits for its receive")]
fn a_send_waits_for_its_receive_and_keeps_its_place() {
    let mut pair = Pair::new();
    let buffer = Buffer::new(64, 9);
    let remote = pair.b.build(&pair.world, &buffer);
    pair.a.pair.send(1, NONE, std::iter::empty()).unwrap();
    pair.a.pair.send(2, NONE, std::iter::empty()).unwrap();
    pair.a.pair.read(3, NONE, std::iter::empty(), 0, MemoryToken::NONE).unwrap();
    assert_eq!(pair.world.run(), []);
    assert_eq!(outcomes(&pair.a.initiator), []);
    let receive = |context| {
        let list = [sge(remote.0, 64, pair.b.privileged())];
        pair.b.pair.receive(context, list.into_iter()).unwrap();
    };
    receive(11);
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
    assert_eq!(outcomes(&pair.b.receiver), [(11, Outcome::Success)]);
    let list = [sge(remote.0, 64, pair.b.privileged())];
    pair.b.pair.receive(12, list.into_iter()).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(2, Outcome::Success), (3, Outcome::Success)]);
    assert_eq!(outcomes(&pair.b.receiver), [(12, Outcome::Success)]);
    pair.b.open.release_mapping(remote);
    pair.close();
}

// Rule: BUG-7
#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn what_exceeds_the_bound_of_a_post_is_finished_by_passes_piece_by_piece() {
    for (dispatch, in_place) in [(true, 1), (false, 16)] {
        let mut pair = Pair::new();
        let length = 3 << 20;
        let (here, there) = (Buffer::new(length, 0), Buffer::new(length, 0));
        there.write(0, &pattern(length));
        let local = pair.a.register(&pair.world, &here, 0, EVERYTHING);
        let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
        pair.world.harness().dispatch.store(dispatch, Ordering::SeqCst);
        let list = [sge(0, length as u32, local.local_token())];
        pair.a.pair.read(1, NONE, list.into_iter(), 0, remote.remote_token()).unwrap();
        let done = in_place << 16;
        assert_eq!(here.read(done - 1, 2), [pattern(length)[done - 1], 0], "copied by the post: {in_place} pieces");
        assert!(pair.world.step(65536));
        assert_eq!(here.read(done + 65535, 1), pattern(length)[done + 65535..done + 65536]);
        assert_eq!(outcomes(&pair.a.initiator), []);
        pair.world.run();
        assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
        assert_eq!(here.read(0, length), pattern(length));
        drop((local.close(1), remote.close(1)));
        pair.close();
    }
}

#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn a_long_transfer_stays_on_the_run_queue_of_its_pass_whatever_processor_its_thread_runs_on() {
    let mut pair = Pair::new();
    let length = 3 << 20;
    let (here, there) = (Buffer::new(length, 0), Buffer::new(length, 1));
    let local = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    pair.world.harness().dispatch.store(true, Ordering::SeqCst);
    let list = [sge(0, length as u32, local.local_token())];
    pair.a.pair.read(1, NONE, list.into_iter(), 0, remote.remote_token()).unwrap();
    PROCESSOR.with(|place| place.set(1));
    let budget = Budget { bytes: 1 << 16, items: 1 };
    let mut service_passes = 1;
    while pair.world.fabric.service_pass(0, budget, &mut pair.world.events) == Pass::More {
        service_passes += 1;
    }
    PROCESSOR.with(|place| place.set(0));
    // 47 pieces after the one in the post, and a look that finds nothing.
    assert_eq!((service_passes, outcomes(&pair.a.initiator)), (48, vec![(1, Outcome::Success)]));
    drop((local.close(1), remote.close(1)));
    pair.close();
}

// Rule: BUG-7
#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn a_long_chain_at_dispatch_level_is_cut_into_passes() {
    let depths = Depths { completions: 2000, initiator: 1000, ..Depths::default() };
    let mut pair = Pair::with(Semantics::NDK, depths);
    pair.world.harness().dispatch.store(true, Ordering::SeqCst);
    for context in 0..1000 {
        let flags = if context == 999 { NONE } else { RequestFlags::DEFER };
        pair.a.pair.read(context, flags, std::iter::empty(), 0, MemoryToken::NONE).unwrap();
    }
    assert_eq!(outcomes(&pair.a.initiator).len(), 256, "64 KiB at 256 bytes a request");
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator).len(), 744);
    pair.close();
}

#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn a_read_without_sges_has_nothing_to_invalidate_and_is_refused() {
    let mut pair = Pair::new();
    let buffer = Buffer::new(4096, 0);
    let mapping = pair.a.build(&pair.world, &buffer);
    let region = pair.a.fast_region(&pair.world);
    pair.a.fast_register(&region, mapping, 1, 0).unwrap();
    let flags = RequestFlags::LOCAL_INVALIDATE | RequestFlags::DEFER;
    let refused = pair.a.pair.read(1, flags, std::iter::empty(), 0, MemoryToken::NONE);
    assert_eq!(refused, Err(PostError::BadFlags));
    // An SGE of another request is not its first one.
    let list = [sge(0, 8, region.local_token()), sge(8, 8, region.local_token())].into_iter();
    pair.b.pair.receive(3, std::iter::empty()).unwrap();
    pair.a.pair.send(2, NONE, list).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(2, Outcome::RemoteError)], "the receive is too small");
    pair.a.pair.invalidate(4, NONE, &region).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(4, Outcome::Cancelled)]);
    drop(region.close(1));
    assert!(pair.a.open.release_mapping(mapping));
    pair.close();
}

#[test]
fn a_sender_fills_a_receive_of_more_sges_than_its_own_adapter_allows() {
    let mut world = World::new();
    world.first.remove();
    let limits = Limits { receive_sges: 1, ..Limits::default() };
    world.first = world.fabric.add_adapter(AdapterSettings { limits, wire: 0, ..Default::default() }).unwrap();
    world.first.set_addresses(&[FIRST]).unwrap();
    let a = Side::open(&world, &world.first, Semantics::NDK, Depths { sges: 1, ..Depths::default() }, A);
    let b = Side::open(&world, &world.second, Semantics::NDK, Depths { sges: 32, ..Depths::default() }, B);
    let listener = b.open.create_listener(B + 6, world.consumer_object(B + 6)).unwrap();
    listener.listen(SocketAddr::new(SECOND, 445), 0).unwrap();
    let mut pair = Pair { world, listener, a, b };
    pair.connect();
    let (here, there) = (Buffer::new(320, 7), Buffer::new(320, 0));
    let local = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let list = (0..32_u32).map(|index| sge(u64::from(index) * 10, 10, remote.local_token()));
    pair.b.pair.receive(1, list).unwrap();
    pair.a.pair.send(2, NONE, [sge(0, 320, local.local_token())].into_iter()).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(2, Outcome::Success)]);
    assert_eq!(there.read(0, 320), vec![7; 320]);
    drop((local.close(1), remote.close(1)));
    pair.close();
}

#[test]
fn an_adapter_with_more_sges_than_a_sender_keeps_capacity_for_is_refused() {
    let world = World::new();
    let most = softndk_engine::limits::RECEIVE_SGES as u32;
    for (receive_sges, taken) in [(most, true), (most + 1, false)] {
        let limits = Limits { receive_sges, ..Limits::default() };
        let added = world.fabric.add_adapter(AdapterSettings { limits, wire: 0, ..Default::default() });
        assert_eq!(added.is_ok(), taken, "{receive_sges}");
        if let Ok(adapter) = added {
            adapter.remove();
        }
    }
}

#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn a_chain_of_invalidating_reads_is_cut_into_passes_by_its_bytes() {
    let mut pair = Pair::new();
    // A request and the next one's beginning fit into the bound.
    let length = 15 << 12;
    let (here, there) = (Buffer::new(length, 0), Buffer::new(length, 1));
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let mapping = pair.a.build(&pair.world, &here);
    let regions: Vec<_> = (0..6).map(|_| pair.a.fast_region(&pair.world)).collect();
    for region in &regions {
        pair.a.fast_register(region, mapping, 15, 0).unwrap();
    }
    pair.world.harness().dispatch.store(true, Ordering::SeqCst);
    for (region, context) in regions.iter().zip(1..) {
        let flags = RequestFlags::LOCAL_INVALIDATE | if context == 6 { NONE } else { RequestFlags::DEFER };
        let list = [sge(0, length as u32, region.local_token())].into_iter();
        pair.a.pair.read(context, flags, list, 0, remote.remote_token()).unwrap();
    }
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)], "64 KiB in the post");
    pair.world.step(1 << 16);
    let taken = outcomes(&pair.a.initiator);
    assert_eq!(
        taken,
        [(2, Outcome::Success), (3, Outcome::Success)],
        "64 KiB in the poll that found nothing, 64 KiB in a service pass"
    );
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator).len(), 3);
    for region in &regions {
        drop(region.close(1));
    }
    drop(remote.close(1));
    assert!(pair.a.open.release_mapping(mapping));
    pair.close();
}

#[test]
fn send_and_invalidate_takes_the_region_away_before_the_receive_completes() {
    let mut pair = Pair::new();
    let there = Buffer::new(4096, 0);
    let remote = pair.b.build(&pair.world, &there);
    let region = pair.b.fast_region(&pair.world);
    pair.b.fast_register(&region, remote, 1, 0).unwrap();
    pair.b.pair.receive(7, std::iter::empty()).unwrap();
    pair.a.pair.send_and_invalidate(1, NONE, std::iter::empty(), region.remote_token()).unwrap();
    pair.world.run();
    let received = polled(&pair.b.receiver);
    assert_eq!((received[0].operation, received[0].output), (Operation::ReceiveAndInvalidate, region.remote_token().0));
    let sent = polled(&pair.a.initiator);
    assert_eq!((sent[0].operation, sent[0].outcome), (Operation::Send, Outcome::Success));
    // Free again at once, in both its page lists.
    for _ in 0..3 {
        pair.b.fast_register(&region, remote, 1, 0).unwrap();
        pair.b.pair.invalidate(8, RequestFlags::SILENT_SUCCESS, &region).unwrap();
    }
    pair.b.pair.invalidate(9, NONE, &region).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.b.initiator), [(9, Outcome::InvalidRequest)], "the peer and we took it away before");
    pair.b.open.release_mapping(remote);
    drop(region.close(1));
    pair.close();
}

#[test]
fn read_with_local_invalidate_takes_its_sink_away() {
    let mut pair = Pair::new();
    let (here, there) = (Buffer::new(4096, 0), Buffer::new(4096, 5));
    let local = pair.a.build(&pair.world, &here);
    let sink = pair.a.fast_region(&pair.world);
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    pair.a.fast_register(&sink, local, 1, 0).unwrap();
    let list = || [sge(0, 4096, sink.local_token())].into_iter();
    pair.a.pair.read(1, RequestFlags::LOCAL_INVALIDATE, list(), 0, remote.remote_token()).unwrap();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
    assert_eq!(here.read(0, 4096), [5; 4096]);
    pair.a.pair.read(2, NONE, list(), 0, remote.remote_token()).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(2, Outcome::LocalAccess)]);
    pair.a.open.release_mapping(local);
    drop((sink.close(1), remote.close(1)));
    pair.close();
}

#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn statistics_count_both_directions_on_both_adapters() {
    let pair = Pair::new();
    let (here, there) = (Buffer::new(8192, 0), Buffer::new(8192, 0));
    let local = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let list = |length| [sge(0, length, local.local_token())].into_iter();
    pair.a.pair.read(1, NONE, list(4097), 0, remote.remote_token()).unwrap();
    pair.a.pair.write(2, NONE, list(10), 0, remote.remote_token()).unwrap();
    let (first, second) = (pair.world.first.counters(), pair.world.second.counters());
    assert_eq!((first.octets_in, first.frames_in), (4097 + 2 * 90, 2));
    assert_eq!((first.octets_out, first.frames_out), (10 + 90, 1));
    assert_eq!((second.octets_out, second.frames_out), (4097 + 2 * 90, 2));
    assert_eq!((second.octets_in, second.frames_in), (10 + 90, 1));
    assert_eq!((first.connect, second.accept, first.active_connection, second.active_connection), (1, 1, 1, 1));
    drop((local.close(1), remote.close(1)));
    pair.close();
}

/// A page list whose pages lie together is one stretch: it is copied as one, up to the bound of a piece.
#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn neighbouring_pages_are_copied_together() {
    let pair = Pair::new();
    let (here, there) = (Buffer::new(4 * 4096, 1), Buffer::new(4 * 4096, 2));
    let source = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let pages = pair.b.build(&pair.world, &there);
    let region = pair.b.fast_region(&pair.world);
    pair.b.fast_register(&region, pages, 4, 0).unwrap();
    pair.world.harness().watch_copies.store(true, Ordering::SeqCst);
    let list = [sge(0, 4 * 4096, source.local_token())].into_iter();
    pair.a.pair.write(1, NONE, list, 0, region.remote_token()).unwrap();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
    let order = pair.world.harness().order.lock().unwrap().clone();
    assert_eq!(order, [(false, 0, 4 * 4096 - 64), (true, 4 * 4096 - 64, 64)]);
    drop((source.close(1), region.close(1)));
    pair.b.open.release_mapping(pages);
    pair.close();
}

/// A transfer that takes many service passes is counted as one that takes none: every byte once.
#[test]
fn a_transfer_in_pieces_is_counted_once() {
    const LENGTH: usize = 4 << 20;
    let mut pair = Pair::new();
    let (here, there) = (Buffer::new(LENGTH, 1), Buffer::new(LENGTH, 2));
    let local = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let octets = (LENGTH + LENGTH / 4096 * 90) as u64;
    let list = || [sge(0, LENGTH as u32, local.local_token())].into_iter();
    pair.b.pair.receive(2, [sge(0, LENGTH as u32, remote.local_token())].into_iter()).unwrap();
    for (round, sent) in [(0, 0), (1, octets), (2, octets)] {
        let before = (pair.world.first.counters(), pair.world.second.counters());
        match round {
            0 => pair.a.pair.read(1, NONE, list(), 0, remote.remote_token()),
            1 => pair.a.pair.write(1, NONE, list(), 0, remote.remote_token()),
            _ => pair.a.pair.send(1, NONE, list()),
        }
        .unwrap();
        pair.world.run();
        assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
        let (first, second) = (pair.world.first.counters(), pair.world.second.counters());
        assert_eq!(first.octets_out - before.0.octets_out, sent);
        assert_eq!(first.octets_in - before.0.octets_in, octets - sent);
        assert_eq!(second.octets_in - before.1.octets_in, sent);
        assert_eq!(second.octets_out - before.1.octets_out, octets - sent);
    }
    drop((local.close(1), remote.close(1)));
    pair.close();
}

#[test]
fn a_receive_without_a_waiting_sender_requests_no_pass() {
    let mut pair = Pair::new();
    pair.world.run();
    pair.world.harness().scheduled.store(false, Ordering::SeqCst);
    pair.b.pair.receive(1, std::iter::empty()).unwrap();
    assert!(!pair.world.harness().scheduled.load(Ordering::SeqCst));
    pair.close();
}

/// Pieces begin inside of SGEs, behind others that are done.
#[test]
fn a_scattered_transfer_in_pieces_brings_every_byte_to_its_place() {
    const PART: usize = 1_000_001;
    let mut pair = Pair::with(Semantics::NDK, Depths { sges: 4, ..Depths::default() });
    let bytes = pattern(3 * PART);
    let (here, there) = (Buffer::new(3 * PART, 0), Buffer::new(3 * PART, 0));
    here.write(0, &bytes);
    let local = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let parts = |token| (0..3).map(move |part| sge((part * PART) as u64, PART as u32, token));
    let parts = |token| parts(token).collect::<Vec<_>>().into_iter();
    pair.b.pair.receive(1, parts(remote.local_token())).unwrap();
    for round in 0..3 {
        match round {
            0 => pair.a.pair.write(1, NONE, parts(local.local_token()), 0, remote.remote_token()),
            1 => pair.a.pair.read(1, NONE, parts(local.local_token()), 0, remote.remote_token()),
            _ => pair.a.pair.send(1, NONE, parts(local.local_token())),
        }
        .unwrap();
        pair.world.run();
        assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
        let reached = if round == 1 { &here } else { &there };
        assert!(reached.read(0, 3 * PART) == bytes, "round {round}");
        // The next round has to bring them again.
        if round == 0 { &here } else { &there }.fill(0xee);
    }
    drop((local.close(1), remote.close(1)));
    pair.close();
}

/// Two pages that are neighbours, and two that lie the other way round behind them.
#[test]
fn pages_are_taken_in_the_order_of_their_list() {
    let pair = Pair::new();
    let (here, there) = (Buffer::new(4 * 4096, 0), Buffer::new(4 * 4096, 0));
    for page in 0..4 {
        there.write(page * 4096, &[page as u8 + 1; 4096]);
    }
    let sink = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let pages = pair.b.build(&pair.world, &there);
    let region = pair.b.fast_region(&pair.world);
    let registration = FastRegistration { first_byte_offset: 0, length: 4 * 4096, base: 0, rights: EVERYTHING };
    let list = [0, 1, 3, 2].map(|page| LogicalAddress(pages.0 + page * 4096));
    pair.b.pair.fast_register(1, RequestFlags::SILENT_SUCCESS, &region, registration, list.into_iter()).unwrap();
    let list = [sge(0, 4 * 4096, sink.local_token())].into_iter();
    pair.a.pair.read(1, NONE, list, 0, region.remote_token()).unwrap();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
    assert_eq!([0, 1, 2, 3].map(|page| here.read(page * 4096 + 4095, 1)[0]), [1, 2, 4, 3]);
    drop((sink.close(1), region.close(1)));
    pair.b.open.release_mapping(pages);
    pair.close();
}

/// Requests with one SGE and with several, alternating, many more than fit at a time.
#[test]
fn lists_of_one_and_of_several_sges_follow_one_another() {
    let pair = Pair::with(Semantics::NDK, Depths { initiator: 4, receive: 4, sges: 3, ..Depths::default() });
    let (here, there) = (Buffer::new(64, 1), Buffer::new(64, 0));
    let source = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let sink = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let list = |count: u64, token| (0..count).map(move |index| sge(8 * index, 8, token)).collect::<Vec<_>>();
    for round in 0..40_u64 {
        there.fill(0);
        // Both are waiting when the first one goes.
        let counts = [[1, 3], [2, 1], [1, 1], [3, 2]][round as usize % 4];
        for count in counts {
            pair.b.pair.receive(count, list(count, sink.local_token()).into_iter()).unwrap();
        }
        for (count, flags) in counts.into_iter().zip([RequestFlags::DEFER, NONE]) {
            pair.a.pair.send(count, flags, list(count, source.local_token()).into_iter()).unwrap();
        }
        let expected = counts.map(|count| (count, Outcome::Success));
        assert_eq!(outcomes(&pair.a.initiator), expected, "round {round}");
        assert_eq!(outcomes(&pair.b.receiver), expected, "round {round}");
        let most = 8 * counts[0].max(counts[1]) as usize;
        assert_eq!(there.read(0, most), vec![1; most], "round {round}");
    }
    drop((source.close(1), sink.close(1)));
    pair.close();
}

/// The seams of the receive and those of the inline chunks are in different places.
#[test]
fn an_inline_message_fills_a_scattered_receive() {
    let pair = Pair::new();
    let (bytes, there) = (pattern(110), Buffer::new(300, 0xee));
    let sink = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let parts = [sge(0, 10, sink.local_token()), sge(100, 90, sink.local_token())];
    pair.b
        .pair
        .receive(1, parts.into_iter().chain([sge(200, 40, sink.local_token())]).collect::<Vec<_>>().into_iter())
        .unwrap();
    let inline = [sge(bytes.as_ptr() as u64, 110, MemoryToken::NONE)].into_iter();
    pair.a.pair.send(1, RequestFlags::INLINE, inline).unwrap();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
    assert_eq!(there.read(0, 10), bytes[..10]);
    assert_eq!(there.read(100, 90), bytes[10..100]);
    assert_eq!(there.read(200, 10), bytes[100..]);
    assert_eq!((there.read(10, 1), there.read(190, 1), there.read(210, 1)), (vec![0xee], vec![0xee], vec![0xee]));
    drop(sink.close(1));
    pair.close();
}

/// SGEs of inline data end where they like; the chunks that they are kept in do not show.
#[test]
fn inline_data_of_several_sges_is_one_message() {
    let pair = Pair::new();
    let (bytes, there) = (pattern(128), Buffer::new(200, 0xee));
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    for parts in [[50, 30, 48], [64, 1, 63], [1, 126, 1], [0, 65, 63]] {
        there.fill(0xee);
        let mut from = bytes.as_ptr() as u64;
        let list = parts.map(|length| {
            let part = sge(from, length, MemoryToken::NONE);
            from += u64::from(length);
            part
        });
        pair.a.pair.write(1, RequestFlags::INLINE, list.into_iter(), 0, remote.remote_token()).unwrap();
        assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
        assert_eq!(there.read(0, 129), [&bytes[..], &[0xee]].concat(), "{parts:?}");
    }
    drop(remote.close(1));
    pair.close();
}

#[test]
fn completions_carry_the_tag_and_slots_are_free_before_them() {
    let mut pair = Pair::new();
    pair.a.pair.set_tag(7);
    pair.b.pair.set_tag(9);
    for context in 0..3 {
        pair.b.pair.receive(context, std::iter::empty()).unwrap();
    }
    assert_eq!(pair.b.pair.outstanding(), (0, 3));
    assert!(pair.a.pair.was_connected() && !pair.a.pair.has_ended());
    for context in 0..2 {
        pair.a.pair.send(context, RequestFlags::empty(), std::iter::empty()).unwrap();
    }
    pair.world.run();
    assert_eq!((pair.a.pair.outstanding(), pair.b.pair.outstanding()), ((0, 0), (0, 1)));
    pair.b.pair.flush();
    pair.world.run();
    assert!(pair.b.pair.has_ended());
    let tags = |queue| polled(queue).iter().map(|completion| completion.tag).collect::<Vec<_>>();
    assert_eq!(tags(&pair.a.initiator), [7, 7]);
    assert_eq!(tags(&pair.b.receiver), [9, 9, 9]);
    pair.close();
}

/// What a receive says of the message or Write that took it.
fn brought(completion: &Completion) -> (u64, Operation, u32, u32, bool) {
    (completion.context, completion.operation, completion.output, completion.bytes, completion.solicited)
}

#[test]
#[cfg_attr(feature = "streams", ignore = "no message that every peer knows brings immediate data")]
fn immediate_data_comes_with_the_receive_of_a_message() {
    let mut pair = Pair::with(Semantics::ND, Depths::default());
    let (here, there) = (Buffer::new(96, 0), Buffer::new(96, 0));
    here.write(0, &pattern(96));
    let local = pair.a.register(&pair.world, &here, 0, Rights::empty());
    let sink = pair.b.register(&pair.world, &there, 0, Rights::LOCAL_WRITE);
    for context in 1..=3 {
        pair.b.pair.receive(context, [sge(0, 96, sink.local_token())].into_iter()).unwrap();
    }
    let token = local.local_token();
    pair.a.pair.send_immediate(5, NONE, [sge(0, 90, token)].into_iter(), 0x8765_4321).unwrap();
    // A list of none, and then a message without any: its receive has no leftovers.
    pair.a.pair.send_immediate(6, RequestFlags::SOLICIT, std::iter::empty(), 0).unwrap();
    pair.a.pair.send(7, NONE, [sge(0, 10, token)].into_iter()).unwrap();
    pair.world.run();
    let sent: Vec<_> =
        polled(&pair.a.initiator).iter().map(|done| (done.context, done.operation, done.output)).collect();
    assert_eq!(sent, [5, 6, 7].map(|context| (context, Operation::Send, 0)));
    let received: Vec<_> = polled(&pair.b.receiver).iter().map(brought).collect();
    assert_eq!(
        received,
        [
            (1, Operation::ReceiveImmediate, 0x8765_4321, 90, false),
            (2, Operation::ReceiveImmediate, 0, 0, true),
            (3, Operation::Receive, 0, 10, false),
        ]
    );
    assert_eq!(there.read(0, 90), pattern(96)[..90]);
    drop((local.close(1), sink.close(1)));
    pair.world.run();
    pair.close();
}

/// The receive's own memory is left alone, however short it is; the bytes are in place before it completes.
#[test]
#[cfg_attr(feature = "streams", ignore = "no message that every peer knows brings immediate data")]
fn a_write_with_immediate_data_takes_a_receive_when_its_bytes_are_in_place() {
    for length in [0, 1, 90, (1 << 20) + 3] {
        let mut pair = Pair::with(Semantics::ND, Depths::default());
        let (here, there) = (Buffer::new(length + 1, 0), Buffer::new(length + 8, 0xEE));
        here.write(0, &pattern(length));
        let local = pair.a.register(&pair.world, &here, 0x1000, Rights::empty());
        let remote = pair.b.register(&pair.world, &there, 0x9000, EVERYTHING);
        let list = || [sge(0x1000, length as u32, local.local_token())].into_iter();
        let place = (0x9004, remote.remote_token());
        let write =
            |context, immediate| pair.a.pair.write_immediate(context, RequestFlags::SOLICIT, list(), place, immediate);
        write(5, 0x1234_5678).unwrap();
        pair.world.run();
        assert_eq!(outcomes(&pair.a.initiator), [], "it waits for a receive");
        assert_eq!(there.read(4, length), pattern(length), "which its bytes do not");
        pair.b.pair.receive(77, std::iter::empty()).unwrap();
        pair.world.run();
        let sent = polled(&pair.a.initiator);
        assert_eq!((sent[0].context, sent[0].operation, sent[0].outcome), (5, Operation::Write, Outcome::Success));
        let received: Vec<_> = polled(&pair.b.receiver).iter().map(brought).collect();
        assert_eq!(received, [(77, Operation::ReceiveWriteImmediate, 0x1234_5678, length as u32, true)]);
        assert_eq!((there.read(0, 4), there.read(length + 4, 4)), (vec![0xEE; 4], vec![0xEE; 4]));
        drop((local.close(1), remote.close(1)));
        pair.world.run();
        pair.close();
    }
}

#[test]
#[cfg_attr(feature = "streams", ignore = "no message that every peer knows brings immediate data")]
fn a_write_with_immediate_data_that_is_refused_takes_no_receive() {
    let mut pair = Pair::with(Semantics::ND, Depths::default());
    let here = Buffer::new(64, 1);
    let local = pair.a.register(&pair.world, &here, 0x1000, EVERYTHING);
    pair.b.pair.receive(77, std::iter::empty()).unwrap();
    let list = [sge(0x1000, 64, local.local_token())];
    // The token is one of the near side: of no use at the other.
    pair.a.pair.write_immediate(5, NONE, list.into_iter(), (0x1000, local.remote_token()), 9).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(5, Outcome::RemoteAccess)]);
    let received = polled(&pair.b.receiver);
    let cancelled = received.iter().all(|done| done.outcome == Outcome::Cancelled && done.output == 0);
    assert!(cancelled && received.iter().all(|done| done.operation == Operation::Receive), "{received:?}");
    drop(local.close(1));
    pair.world.run();
    pair.close();
}

#[test]
#[cfg_attr(feature = "streams", ignore = "no message that every peer knows brings immediate data")]
fn a_write_with_immediate_data_waits_no_longer_for_a_receive_than_a_message() {
    let mut pair = Pair::with(Semantics::ND, Depths::default());
    let (here, there) = (Buffer::new(64, 1), Buffer::new(64, 0));
    let local = pair.a.register(&pair.world, &here, 0, Rights::empty());
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let list = [sge(0, 64, local.local_token())];
    pair.a.pair.write_immediate(5, NONE, list.into_iter(), (0, remote.remote_token()), 9).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), []);
    pair.world.advance(3_000_000_001);
    assert_eq!(outcomes(&pair.a.initiator), [(5, Outcome::NotReady)]);
    drop((local.close(1), remote.close(1)));
    pair.world.run();
    pair.close();
}
