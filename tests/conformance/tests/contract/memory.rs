//! Registering memory: what is accepted, what is refused, tokens, logical mappings, the life cycle of a fast-register region.

use super::interruption::{preempted_at_every_point, release_a_mapping, with_preemption};
use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, End, FastRegistration, Mapping, Pair, QueuePairShape, Window, WindowKind, register_fast,
};
use conformance::machine::{Setup, concurrently, with_machine, with_two_adapters};
use conformance::trial::Case;
use kernel_host::{FrameOrder, irql};
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{
    STATUS_ACCESS_VIOLATION, STATUS_BUFFER_TOO_SMALL, STATUS_IMPLEMENTATION_LIMIT, STATUS_INVALID_PARAMETER,
};
use std::sync::atomic::{AtomicBool, Ordering};

pub const CASES: &[Case] = &[
    case!(tokens_are_never_zero_and_differ: "NDK-MR-4"),
    case!(region_is_registered_again_after_deregistration: "NDK-MR-8"),
    case!(same_memory_in_two_regions: "NDK-MR-9"),
    case!(chain_of_memory_lists_is_one_region: "NDK-MR-1", "NDK-QP-15"),
    case!(empty_lists_of_a_chain_are_skipped: "NDK-MR-1", "NDK-LAM-1"; not in scattered),
    case!(chain_with_a_gap_is_refused: "NDK-MR-3"),
    case!(length_beyond_the_chain_is_refused: "NDK-MR-3"),
    case!(too_many_fast_register_pages_are_refused: "NDK-FRMR-1"),
    case!(remote_token_is_constant_over_registrations: "NDK-FRMR-2", "NDK-FRMR-4"),
    case!(remote_rights_without_remote_access_are_refused: "NDK-FRMR-3"),
    case!(registering_a_valid_region_fails: "NDK-FRMR-5"),
    case!(invalidating_an_invalid_region_fails: "NDK-FRMR-6"),
    case!(fast_register_arguments_are_checked: "NDK-FRMR-7", "NDK-FRMR-8", "NDK-FRMR-9", "NDK-FRMR-10", "NDK-QP-18"),
    case!(fast_register_of_pages_in_any_order: "NDK-FRMR-11"),
    case!(registration_in_a_deferred_chain_before_its_use: "NDK-FRMR-4", "NDK-DEFER-3"),
    case!(mapping_reports_its_size_pages_and_offset: "NDK-LAM-1", "NDK-LAM-5", "NDK-ASY-11"),
    case!(mapping_with_a_gap_is_refused: "NDK-LAM-6"),
    case!(adjacent_logical_pages_may_be_merged: "NDK-LAM-3"; not in scattered),
    case!(pages_that_do_not_adjoin_are_elements_of_their_own: "NDK-LAM-3"),
    case!(mappings_never_touch_each_other: "NDK-LAM-7"),
    case!(memory_is_the_consumers_when_release_returns: "NDK-LAM-11"),
    case!(memory_is_the_consumers_when_release_at_dispatch_level_returns: "NDK-LAM-11"; not in stream),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const FULL: NDK_OP_FLAGS = NDK_OP_FLAG_ALLOW_REMOTE_READ.union(NDK_OP_FLAG_ALLOW_REMOTE_WRITE);

fn full() -> NDK_MR_FLAGS {
    NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE
}

fn tokens_are_never_zero_and_differ() {
    with_two_adapters(|first, _| {
        let end = End::new(first, QueuePairShape::default());
        let buffer = Buffer::scattered(4096);
        let regions: Vec<_> = (0..50).map(|_| end.domain.register(&buffer, full())).collect();
        let mut tokens: Vec<u32> = regions.iter().map(conformance::consumer::MemoryRegion::remote_token).collect();
        assert!(regions.iter().all(|region| region.local_token() != 0));
        assert!(tokens.iter().all(|token| *token != 0));
        assert_ne!(end.domain.privileged_token(), 0);
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), 50, "two live regions with one token");
    });
}

/// Pulls the whole of `peer` into `near` and compares.
fn pull(pair: &Pair<'_>, near: &Window<'_>, peer: &Window<'_>, seed: u64) {
    let length = near.buffer.length();
    peer.buffer.fill_with_seed(seed);
    near.buffer.fill(|_| 0);
    assert_eq!(pair.active.queue_pair.read(1, &[near.sge(0..length)], peer.remote(0), NONE), 0);
    assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
    near.buffer.assert_seed(seed, 0..length);
}

fn region_is_registered_again_after_deregistration() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(5000), WindowKind::Registered);
        let mut peer = Window::open(&pair.passive, Buffer::scattered(5000), WindowKind::Registered);
        for round in 0..10 {
            pull(&pair, &near, &peer, round);
            let region = peer.region.take().expect("a region");
            assert_eq!(region.deregister(), 0);
            let buffer = Buffer::scattered(5000);
            assert_eq!(region.register(&buffer, full()), 0, "registration {round}");
            peer.replace(buffer, region);
        }
    });
}

fn same_memory_in_two_regions() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(5000), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(5000), WindowKind::Registered);
        let second = pair.passive.domain.register(&peer.buffer, full());
        pull(&pair, &near, &peer, 1);
        assert_eq!(peer.region.as_ref().expect("a region").deregister(), 0);
        let remote = conformance::consumer::Remote { address: peer.buffer.label(), token: second.remote_token() };
        assert_eq!(pair.active.queue_pair.read(1, &[near.sge(0..5000)], remote, NONE), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0, "the other region is still registered");
        second.close();
    });
}

fn chain_of_memory_lists_is_one_region() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(30_000), WindowKind::Registered);
        let buffer = Buffer::scattered(30_000);
        let region = pair.passive.domain.create_region(false).expect("a region");
        // Cuts at page boundaries of the label: how a chain stays virtually contiguous.
        let chain = buffer.chain(&[3080, 3080 + 4096, 3080 + 3 * 4096]);
        assert_eq!(region.register_list(chain.pointer(), 30_000, full()), 0);
        drop(chain);
        let peer = Window::of_region(buffer, region);
        pull(&pair, &near, &peer, 3);
    });
}

fn empty_lists_of_a_chain_are_skipped() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let near = Buffer::scattered(8000);
        let region = pair.passive.domain.create_region(false).expect("a region");
        let buffer = Buffer::scattered(8000);
        assert_eq!(region.register_list(buffer.chain(&[0, 3080, 3080]).pointer(), 8000, full()), 0);
        let peer = Window::of_region(buffer, region);
        let mapping = Mapping::build_list(first, near.chain(&[0, 3080, 3080]).pointer(), 8000).expect("a mapping");
        assert_eq!(mapping.first_byte_offset(), 1016);
        // Whole pages are mapped, so also what lies before the first byte.
        let page = conformance::consumer::sge(mapping.pages()[0], 1016, pair.active.domain.privileged_token());
        assert_eq!(pair.active.queue_pair.write(1, &[page], peer.remote(0), NONE), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
        assert!(peer.buffer.to_vec()[..1016].iter().all(|byte| *byte == 0xE7), "what surrounds a buffer");
        drop(mapping);
        pull(&pair, &Window::open(&pair.active, near, WindowKind::Privileged), &peer, 5);
    });
}

fn chain_with_a_gap_is_refused() {
    with_two_adapters(|first, _| {
        let end = End::new(first, QueuePairShape::default());
        let (one, other) = (Buffer::new(8192, 0, FrameOrder::Scattered), Buffer::new(8192, 0, FrameOrder::Scattered));
        let region = end.domain.create_region(false).expect("a region");
        let (head, tail) = (one.memory_list(), other.memory_list());
        head.link(&tail);
        assert_eq!(region.register_list(head.pointer(), 16_384, full()), STATUS_INVALID_PARAMETER);
        // What lies before the gap is good.
        assert_eq!(region.register_list(head.pointer(), 8192, full()), 0);
        head.unlink();
        region.close();
    });
}

fn length_beyond_the_chain_is_refused() {
    with_two_adapters(|first, _| {
        let end = End::new(first, QueuePairShape::default());
        let buffer = Buffer::scattered(8192);
        let region = end.domain.create_region(false).expect("a region");
        let list = buffer.memory_list();
        for length in [8193, 1 << 32, usize::MAX] {
            assert_eq!(region.register_list(list.pointer(), length, full()), STATUS_INVALID_PARAMETER, "{length}");
        }
        drop(list);
        region.close();
    });
}

fn too_many_fast_register_pages_are_refused() {
    with_two_adapters(|first, _| {
        let end = End::new(first, QueuePairShape::default());
        let most = first.info().FRMRPageCount;
        for pages in [most + 1, u32::MAX] {
            let region = end.domain.create_region(true).expect("a region");
            assert_eq!(region.initialize_fast_register(pages, true), STATUS_IMPLEMENTATION_LIMIT, "{pages} pages");
            region.close();
        }
        end.domain.fast_region(most, true).close();
    });
}

fn invalidate(end: &End<'_>, window: &Window<'_>) -> i32 {
    let region = window.region.as_ref().expect("a region");
    assert_eq!(end.queue_pair.invalidate(9, region.object(), NONE), 0);
    end.initiator.wait_for_one().Status
}

fn remote_token_is_constant_over_registrations() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(9000), WindowKind::Registered);
        let buffer = Buffer::scattered(9000);
        let mapping = Mapping::build(second, &buffer).expect("a logical mapping");
        let region = pair.passive.domain.fast_region(8, true);
        let token = region.remote_token();
        assert_ne!(token, 0);
        let mut peer = Window::of_region(buffer, region);
        peer.mapping = Some(mapping);
        for round in 0..10 {
            let region = peer.region.as_ref().expect("a region");
            let mapping = peer.mapping.as_ref().expect("a mapping");
            register_fast(&pair.passive, region, mapping, &peer.buffer, FULL);
            assert_eq!(region.remote_token(), token, "registration {round}");
            peer.refresh();
            pull(&pair, &near, &peer, round);
            assert_eq!(invalidate(&pair.passive, &peer), 0);
        }
    });
}

fn post_registration(
    end: &End<'_>,
    region: &conformance::consumer::MemoryRegion,
    mapping: &Mapping<'_>,
    buffer: &Buffer,
    rights: NDK_OP_FLAGS,
) -> i32 {
    let registration = FastRegistration {
        pages: mapping.pages(),
        first_byte_offset: mapping.first_byte_offset(),
        length: buffer.length(),
        base: buffer.label(),
    };
    end.queue_pair.fast_register(5, region.object(), &registration, rights)
}

fn remote_rights_without_remote_access_are_refused() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let buffer = Buffer::scattered(9000);
        let mapping = Mapping::build(first, &buffer).expect("a logical mapping");
        let region = pair.active.domain.fast_region(8, false);
        for rights in [NDK_OP_FLAG_ALLOW_REMOTE_READ, NDK_OP_FLAG_ALLOW_REMOTE_WRITE] {
            let status = post_registration(&pair.active, &region, &mapping, &buffer, rights);
            assert_eq!(status, STATUS_ACCESS_VIOLATION, "{rights:?}");
        }
        // Local rights are fine, and the refusals did no harm.
        register_fast(&pair.active, &region, &mapping, &buffer, NDK_OP_FLAG_ALLOW_LOCAL_WRITE);
        region.close();
    });
}

fn registering_a_valid_region_fails() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let window = Window::open(&pair.active, Buffer::scattered(9000), WindowKind::FastRegistered);
        let region = window.region.as_ref().expect("a region");
        let mapping = window.mapping.as_ref().expect("a mapping");
        assert_eq!(post_registration(&pair.active, region, mapping, &window.buffer, FULL), 0);
        assert!(pair.active.initiator.wait_for_one().Status < 0, "a second registration without invalidation");
    });
}

fn invalidating_an_invalid_region_fails() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let window = Window::open(&pair.active, Buffer::scattered(9000), WindowKind::FastRegistered);
        assert_eq!(invalidate(&pair.active, &window), 0);
        assert!(invalidate(&pair.active, &window) < 0, "the second invalidation");
    });
}

fn fast_register_arguments_are_checked() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let buffer = Buffer::new(3 * 4096, 0, FrameOrder::Scattered);
        let mapping = Mapping::build(first, &buffer).expect("a logical mapping");
        let region = pair.active.domain.fast_region(3, true);
        let good =
            FastRegistration { pages: mapping.pages(), first_byte_offset: 0, length: 3 * 4096, base: buffer.label() };
        let crooked: Vec<u64> = mapping.pages().iter().map(|page| page + 1).collect();
        let many = [mapping.pages(), mapping.pages()].concat();
        let bad = [
            FastRegistration { first_byte_offset: 4096, ..good },
            FastRegistration { first_byte_offset: 8, ..good },
            FastRegistration { length: 3 * 4096 + 1, ..good },
            FastRegistration { length: usize::MAX, ..good },
            FastRegistration { base: buffer.label() + 8, ..good },
            FastRegistration { base: u64::MAX - 4095, ..good },
            FastRegistration { pages: &crooked, ..good },
            FastRegistration { pages: &many, length: 4 * 4096, ..good },
        ];
        for registration in bad {
            let status = pair.active.queue_pair.fast_register(5, region.object(), &registration, FULL);
            assert!(status < 0, "accepted {registration:#x?}");
        }
        assert_eq!(pair.active.queue_pair.fast_register(5, region.object(), &good, FULL), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0, "the refusals did no harm");
        region.close();
    });
}

fn fast_register_of_pages_in_any_order() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(3 * 4096), WindowKind::Registered);
        let buffer = Buffer::new(3 * 4096, 0, FrameOrder::Scattered);
        buffer.fill(|position| (position / 4096) as u8 + 1);
        let mapping = Mapping::build(second, &buffer).expect("a logical mapping");
        let region = pair.passive.domain.fast_region(3, true);
        let pages = [mapping.pages()[2], mapping.pages()[0], mapping.pages()[1]];
        let registration = FastRegistration { pages: &pages, first_byte_offset: 0, length: 3 * 4096, base: 0 };
        assert_eq!(pair.passive.queue_pair.fast_register(5, region.object(), &registration, FULL), 0);
        assert_eq!(pair.passive.initiator.wait_for_one().Status, 0);
        let remote = conformance::consumer::Remote { address: 0, token: region.remote_token() };
        assert_eq!(pair.active.queue_pair.read(1, &[near.sge(0..3 * 4096)], remote, NONE), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
        let seen: Vec<u8> = [0, 4096, 8192].iter().map(|position| near.buffer.byte(*position)).collect();
        assert_eq!(seen, [3, 1, 2]);
        region.close();
    });
}

fn registration_in_a_deferred_chain_before_its_use() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let peer = Window::open(&pair.passive, Buffer::scattered(9000), WindowKind::Registered);
        peer.buffer.fill_with_seed(4);
        let buffer = Buffer::scattered(9000);
        let mapping = Mapping::build(first, &buffer).expect("a logical mapping");
        let region = pair.active.domain.fast_region(8, false);
        let defer = NDK_OP_FLAG_DEFER;
        for _ in 0..5 {
            let registration = FastRegistration {
                pages: mapping.pages(),
                first_byte_offset: mapping.first_byte_offset(),
                length: 9000,
                base: buffer.label(),
            };
            let queue_pair = &pair.active.queue_pair;
            let rights = NDK_OP_FLAG_ALLOW_LOCAL_WRITE | defer;
            assert_eq!(queue_pair.fast_register(1, region.object(), &registration, rights), 0);
            let token = region.local_token();
            assert_eq!(queue_pair.read(2, &[buffer.whole(token)], peer.remote(0), defer), 0);
            assert_eq!(queue_pair.invalidate(3, region.object(), NONE), 0);
            let results = pair.active.initiator.wait_for(3);
            assert!(results.iter().all(|result| result.Status == 0), "{results:#x?}");
            buffer.assert_seed(4, 0..9000);
        }
        region.close();
    });
}

fn mapping_reports_its_size_pages_and_offset() {
    with_two_adapters(|first, _| {
        for (length, offset, pages) in
            [(1, 0, 1), (1, 4095, 1), (2, 4095, 2), (4096, 0, 1), (4096, 1, 2), (70_000, 16, 18)]
        {
            let buffer = Buffer::new(length, offset, FrameOrder::Scattered);
            let mapping = Mapping::build(first, &buffer).expect("a logical mapping");
            assert_eq!(mapping.pages().len(), pages, "{length} bytes at {offset}");
            assert_eq!(mapping.first_byte_offset() as usize, offset);
            assert!(mapping.pages().iter().all(|page| page % 4096 == 0 && *page != 0), "{:#x?}", mapping.pages());
            drop(mapping);
            check_mapping_sizes(first, &buffer, pages);
        }
    });
}

fn check_mapping_sizes(adapter: &Adapter, buffer: &Buffer, pages: usize) {
    let needed = 16 + 8 * pages as u32;
    let list = buffer.memory_list();
    let mut words = vec![0x5A5A_u64; pages + 8];
    let mut offset = 0;
    let mut size = needed - 1;
    let short = Mapping::call(adapter, list.pointer(), buffer.length(), Some(&mut words), &mut size, &mut offset);
    assert_eq!((short, size), (STATUS_BUFFER_TOO_SMALL, needed));
    let mut size = 0;
    let probe = Mapping::call(adapter, list.pointer(), buffer.length(), None, &mut size, &mut offset);
    assert_eq!((probe, size), (STATUS_BUFFER_TOO_SMALL, needed));
    assert!(words[pages + 2..].iter().all(|word| *word == 0x5A5A), "memory past the mapping was written");
}

fn mapping_with_a_gap_is_refused() {
    with_two_adapters(|first, _| {
        let (one, other) = (Buffer::new(8192, 0, FrameOrder::Scattered), Buffer::new(8192, 0, FrameOrder::Scattered));
        let (head, tail) = (one.memory_list(), other.memory_list());
        head.link(&tail);
        let mut words = vec![0; 64];
        let (mut size, mut offset) = (512, 0);
        let status = Mapping::call(first, head.pointer(), 16_384, Some(&mut words), &mut size, &mut offset);
        assert_eq!(status, STATUS_INVALID_PARAMETER);
        head.unlink();
    });
}

fn adjacent_logical_pages_may_be_merged() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(40_000), WindowKind::Privileged);
        let peer = Window::open(&pair.passive, Buffer::scattered(40_000), WindowKind::Registered);
        let mapping = near.mapping.as_ref().expect("a mapping");
        peer.buffer.fill_with_seed(6);
        // From the middle of one page to the middle of another, for every run of adjacent pages there is.
        let token = near.local_token();
        for (start, end) in [(5, 4090), (100, 39_000), (4096, 8192), (39_999, 40_000)] {
            let address = mapping.address_of(start);
            let run = mapping.address_of(end - 1) - address + 1;
            assert_eq!(run, (end - start) as u64, "pages of one mapping that are not adjacent");
            let sge = conformance::consumer::sge(address, end - start, token);
            near.buffer.fill(|_| 0);
            assert_eq!(pair.active.queue_pair.read(1, &[sge], peer.remote(0), NONE), 0);
            assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
            near.buffer.assert_seed(6, start..end);
            let written = near.buffer.to_vec();
            let outside = written[..start].iter().chain(&written[end..]);
            assert!(outside.copied().all(|byte| byte == 0), "bytes outside {start}..{end} were written");
        }
    });
}

/// An element a page reaches all of the buffer; one that runs out of its page is refused, and so is no way into other memory.
fn pages_that_do_not_adjoin_are_elements_of_their_own() {
    const LENGTH: usize = 3 * 4096;
    let mut setup = Setup::default();
    for adapter in &mut setup.adapters {
        adapter.keywords.push(("LogicalPages", "1"));
    }
    with_machine(&setup, |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let pair = Pair::connect(&first, &second);
        let near = Buffer::new(LENGTH, 0, FrameOrder::Scattered);
        let mapping = Mapping::build(&first, &near).expect("a logical mapping");
        let peer = Window::open(&pair.passive, Buffer::scattered(LENGTH), WindowKind::Registered);
        let token = pair.active.domain.privileged_token();
        let page = |number: usize, length| conformance::consumer::sge(mapping.address_of(number * 4096), length, token);
        let adjoining = mapping.pages().windows(2).filter(|two| two[0] + 4096 == two[1]).count();
        assert_eq!(adjoining, 0, "{:#x?}", mapping.pages());
        near.fill_with_seed(8);
        let list = [page(0, 4096), page(1, 4096), page(2, 4096)];
        assert_eq!(pair.active.queue_pair.write(1, &list, peer.remote(0), NONE), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
        peer.buffer.assert_seed(8, 0..LENGTH);
        assert_eq!(pair.active.queue_pair.write(2, &[page(1, 4097)], peer.remote(0), NONE), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, STATUS_ACCESS_VIOLATION);
    });
}

fn mappings_never_touch_each_other() {
    with_two_adapters(|first, _| {
        let buffers: Vec<Buffer> = (0..32).map(|_| Buffer::new(8192, 0, FrameOrder::Contiguous)).collect();
        let mappings: Vec<Mapping<'_>> =
            buffers.iter().map(|buffer| Mapping::build(first, buffer).expect("a logical mapping")).collect();
        for (number, one) in mappings.iter().enumerate() {
            for after in one.pages().iter().map(|page| page + 4096) {
                let others = mappings.iter().enumerate().filter(|(other, _)| *other != number);
                let touching = others.into_iter().any(|(_, other)| other.pages().contains(&after));
                assert!(!touching, "a consumer would merge the pages of two mappings at {after:#x}");
            }
        }
    });
}

/// The kernel host bugchecks when a buffer goes away that something still maps: here at once after the release, with another
/// connection copying all the while.
fn memory_is_the_consumers_when_release_returns() {
    released_while_another_copies(&Setup::default(), irql::PASSIVE);
}

/// A release at DISPATCH_LEVEL cannot wait for a thread that the system has preempted in the middle of a copy, and must not go
/// without it. With a seed: in any order with the copying.
fn memory_is_the_consumers_when_release_at_dispatch_level_returns() {
    let setup = Setup::default();
    if setup.kernel.schedule.is_some() {
        return released_while_another_copies(&setup, irql::DISPATCH);
    }
    with_preemption(|machine| {
        let (first, second) = (&machine.open(0), &machine.open(1));
        let pair = Pair::connect(first, second);
        let length = first.fit_registered(1 << 20);
        let near = Window::open(&pair.active, Buffer::scattered(length), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(length), WindowKind::Registered);
        preempted_at_every_point(
            || release_a_mapping(first, irql::DISPATCH),
            || assert_eq!(pair.active.queue_pair.read(1, &[near.sge(0..length)], peer.remote(0), NONE), 0),
            || assert_eq!(pair.active.initiator.wait_for_one().Status, 0),
        );
    });
}

fn released_while_another_copies(setup: &Setup, level: irql::Irql) {
    const ROUNDS: usize = 40;
    with_machine(setup, |machine| {
        let (first, second) = (&machine.open(0), &machine.open(1));
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(1 << 20), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(1 << 20), WindowKind::Registered);
        let over = AtomicBool::new(false);
        concurrently(
            machine,
            || {
                let mut transfers = 0;
                while !over.load(Ordering::Acquire) || transfers == 0 {
                    let sge = near.sge(0..near.buffer.length());
                    assert_eq!(pair.active.queue_pair.read(1, &[sge], peer.remote(0), NONE), 0);
                    assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
                    transfers += 1;
                }
            },
            || {
                for round in 0..ROUNDS {
                    // Below and above what the driver maps at once.
                    let length = if round % 8 == 7 { 5 << 20 } else { 3 * 4096 };
                    let buffer = Buffer::scattered(length);
                    let mapping = Mapping::build(first, &buffer).expect("a mapping");
                    let before = irql::raise(level);
                    drop(mapping);
                    irql::lower(before);
                    drop(buffer);
                }
                over.store(true, Ordering::Release);
            },
        );
    });
}
