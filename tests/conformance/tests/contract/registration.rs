//! Registered memory beyond plain transfers: what each right means, which kind of region takes which call, flags, logical
//! mappings and the memory lists they are made of, labels of fast registrations.

use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, End, FastRegistration, Mapping, MemoryRegion, Pair, QueuePairShape, Remote, Window, WindowKind,
    register_fast,
};
use conformance::machine::{wait_until_idle, with_two_adapters};
use conformance::peers;
use conformance::trial::Case;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{MDL, MDL_FLAGS, STATUS_ACCESS_VIOLATION, STATUS_INVALID_PARAMETER, STATUS_REMOTE_RESOURCES};

pub const CASES: &[Case] = &[
    case!(rights_of_a_registration_are_compared_whole: "NDK-MR-10", "NDK-MR-11"),
    case!(rights_of_a_fast_registration_are_those_of_its_request: "NDK-FRMR-12"),
    case!(each_kind_of_region_refuses_the_others_calls: "NDK-MR-12", "NDK-QP-18"),
    case!(invalidate_does_not_end_a_registered_region: "NDK-MR-15"),
    case!(unknown_registration_flags_are_refused: "NDK-MR-16"),
    case!(read_sink_flags_change_nothing: "NDK-QP-40"),
    case!(base_of_a_fast_registration_is_any_label: "NDK-FRMR-13"),
    case!(mapping_leaves_the_memory_list_as_it_was: "NDK-LAM-10"),
    case!(registration_outlives_the_consumers_own_mapping: "NDK-MR-2"),
    case!(memory_that_is_not_locked_is_refused: "NDK-MR-17"),
    case!(mapping_of_a_region_is_writable_only_where_bytes_may_arrive: "NDK-MR-18"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const LENGTH: usize = 9000;

/// The accesses of a peer and of the owner to memory: read by the peer, write by the peer, write by the owner's own Read.
fn allowed<'a>(
    first: &'a Adapter,
    second: &'a Adapter,
    open: impl Fn(&End<'a>, &Buffer) -> (MemoryRegion, Option<Mapping<'a>>),
) -> [bool; 3] {
    let attempt = |number: usize| {
        // A refused access ends its connection.
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(LENGTH), WindowKind::Registered);
        let buffer = Buffer::scattered(LENGTH);
        let (region, mapping) = open(&pair.passive, &buffer);
        let remote = Remote { address: buffer.label(), token: region.remote_token() };
        let list = [near.sge(0..64)];
        let (end, denied) = match number {
            0 | 1 => (&pair.active, STATUS_REMOTE_RESOURCES),
            _ => (&pair.passive, STATUS_ACCESS_VIOLATION),
        };
        let posted = match number {
            0 => end.queue_pair.read(1, &list, remote, NONE),
            1 => end.queue_pair.write(1, &list, remote, NONE),
            _ => end.queue_pair.read(1, &[buffer.sge(0..64, region.local_token())], near.remote(0), NONE),
        };
        assert_eq!(posted, 0);
        let status = end.initiator.wait_for_one().Status;
        let is_allowed = status == 0 && peers::stands(end);
        assert!(status == 0 || status == denied, "attempt {number} ended with {status:#x}");
        region.close();
        drop(mapping);
        is_allowed
    };
    [attempt(0), attempt(1), attempt(2)]
}

fn rights_of_a_registration_are_compared_whole() {
    with_two_adapters(|first, second| {
        let local_read = NDK_MR_FLAG_ALLOW_LOCAL_READ;
        for (flags, expected) in [
            (local_read, [false, false, false]),
            (NDK_MR_FLAG_ALLOW_LOCAL_WRITE, [false, false, true]),
            (NDK_MR_FLAG_ALLOW_REMOTE_READ, [true, false, false]),
            (NDK_MR_FLAG_ALLOW_REMOTE_WRITE, [false, true, true]),
            (NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_LOCAL_WRITE, [true, false, true]),
            (NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE, [true, true, true]),
        ] {
            let seen = allowed(first, second, |end, buffer| (end.domain.register(buffer, flags), None));
            assert_eq!(seen, expected, "remote read, remote write, local write under {flags:?}");
        }
        // Local read needs no flag: it is the source of a Write and of a Send.
        let pair = Pair::connect(first, second);
        let peer = Window::open(&pair.passive, Buffer::scattered(LENGTH), WindowKind::Registered);
        let buffer = Buffer::scattered(LENGTH);
        buffer.fill_with_seed(3);
        let region = pair.active.domain.register(&buffer, local_read);
        let list = [buffer.sge(0..LENGTH, region.local_token())];
        assert_eq!(pair.active.queue_pair.write(1, &list, peer.remote(0), NONE), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
        peer.buffer.assert_seed(3, 0..LENGTH);
        region.close();
    });
}

fn rights_of_a_fast_registration_are_those_of_its_request() {
    with_two_adapters(|first, second| {
        let (read, write) = (NDK_OP_FLAG_ALLOW_REMOTE_READ, NDK_OP_FLAG_ALLOW_REMOTE_WRITE);
        for (rights, expected) in [
            (NONE, [false, false, false]),
            (NDK_OP_FLAG_ALLOW_LOCAL_WRITE, [false, false, true]),
            (read, [true, false, false]),
            (write, [false, true, true]),
            (read | NDK_OP_FLAG_ALLOW_LOCAL_WRITE, [true, false, true]),
            (read | write, [true, true, true]),
        ] {
            let seen = allowed(first, second, |end, buffer| {
                let mapping = Mapping::build(second, buffer).expect("a logical mapping");
                let region = end.domain.fast_region(mapping.pages().len() as u32, true);
                register_fast(end, &region, &mapping, buffer, rights);
                (region, Some(mapping))
            });
            assert_eq!(seen, expected, "remote read, remote write, local write under {rights:?}");
        }
    });
}

fn each_kind_of_region_refuses_the_others_calls() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let buffer = Buffer::new(2 * 4096, 0, kernel_host::FrameOrder::Scattered);
        let fast = pair.active.domain.create_region(true).expect("a region");
        assert!(fast.register(&buffer, NDK_MR_FLAG_ALLOW_LOCAL_WRITE) < 0, "RegisterMr on a fast-register region");
        assert_eq!(fast.initialize_fast_register(2, true), 0, "which is as it was");
        let plain = pair.active.domain.create_region(false).expect("a region");
        assert!(plain.initialize_fast_register(2, true) < 0, "InitializeFastRegisterMr on the other kind");
        assert_eq!(plain.register(&buffer, NDK_MR_FLAG_ALLOW_LOCAL_WRITE), 0, "which is as it was");
        let mapping = Mapping::build(first, &buffer).expect("a logical mapping");
        let registration = FastRegistration {
            pages: mapping.pages(),
            first_byte_offset: 0,
            length: buffer.length(),
            base: buffer.label(),
        };
        let queue_pair = &pair.active.queue_pair;
        let refused = queue_pair.fast_register(1, plain.object(), &registration, NDK_OP_FLAG_ALLOW_REMOTE_READ);
        assert!(refused < 0, "FastRegister of a registered region");
        assert_eq!(queue_pair.fast_register(2, fast.object(), &registration, NDK_OP_FLAG_ALLOW_REMOTE_READ), 0);
        let result = pair.active.initiator.wait_for_one();
        assert_eq!((result.Status, result.RequestContext as u64), (0, 2));
        plain.close();
        fast.close();
    });
}

fn invalidate_does_not_end_a_registered_region() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(64), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(64), WindowKind::Registered);
        let region = peer.region.as_ref().expect("a region");
        let posted = pair.passive.queue_pair.invalidate(1, region.object(), NONE);
        if posted == 0 {
            assert!(pair.passive.initiator.wait_for_one().Status < 0, "Invalidate of a registered region");
        }
        // Over a connection of its own, because a failed request ends one.
        let other = QueuePairShape::default();
        let active = conformance::consumer::QueuePair::new(
            &pair.active.domain,
            &pair.active.receive,
            &pair.active.initiator,
            other,
        )
        .expect("a queue pair");
        let passive = conformance::consumer::QueuePair::new(
            &pair.passive.domain,
            &pair.passive.receive,
            &pair.passive.initiator,
            other,
        )
        .expect("a queue pair");
        let from = (first, &active, first.address());
        let offer = conformance::consumer::Offer::default();
        let connection = conformance::consumer::establish(from, (&pair.listener, &passive), &offer);
        let _connection = connection.expect("a connection");
        assert_eq!(active.read(2, &[near.sge(0..64)], peer.remote(0), NONE), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0, "the region is still registered");
    });
}

fn unknown_registration_flags_are_refused() {
    with_two_adapters(|first, _| {
        let end = End::new(first, QueuePairShape::default());
        let buffer = Buffer::scattered(LENGTH);
        let region = end.domain.create_region(false).expect("a region");
        // The remote half of remote write alone is no flag either.
        for bits in [0x4, 0x10, 0x8000_0000, 0x11, u32::MAX] {
            let status = region.register(&buffer, NDK_MR_FLAGS::from_bits_retain(bits));
            assert_eq!(status, STATUS_INVALID_PARAMETER, "flags {bits:#x}");
        }
        assert_eq!(region.register(&buffer, NDK_MR_FLAGS::from_bits_retain(0xF)), 0, "all flags there are");
        region.close();
    });
}

fn read_sink_flags_change_nothing() {
    with_two_adapters(|first, second| {
        let seen =
            allowed(first, second, |end, buffer| (end.domain.register(buffer, NDK_MR_FLAG_RDMA_READ_SINK), None));
        assert_eq!(seen, [false, false, false], "a read sink that nothing else was allowed");
        let flags = NDK_MR_FLAG_RDMA_READ_SINK | NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
        let seen = allowed(first, second, |end, buffer| (end.domain.register(buffer, flags), None));
        assert_eq!(seen, [false, false, true]);
        let seen = allowed(first, second, |end, buffer| {
            let mapping = Mapping::build(second, buffer).expect("a logical mapping");
            let region = end.domain.fast_region(mapping.pages().len() as u32, true);
            let rights = NDK_OP_FLAG_RDMA_READ_SINK | NDK_OP_FLAG_ALLOW_REMOTE_READ;
            register_fast(end, &region, &mapping, buffer, rights);
            (region, Some(mapping))
        });
        assert_eq!(seen, [true, false, false], "a fast registration with the flag");
    });
}

fn base_of_a_fast_registration_is_any_label() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(LENGTH), WindowKind::Registered);
        let buffer = Buffer::scattered(LENGTH);
        buffer.fill_with_seed(5);
        let mapping = Mapping::build(second, &buffer).expect("a logical mapping");
        let offset = u64::from(mapping.first_byte_offset());
        let region = pair.passive.domain.fast_region(mapping.pages().len() as u32, true);
        // Low, high, in the middle, and as near to the end of all addresses as the length allows.
        for page in [0x1000, 0x7FFF_0000_0000, 0xFFFF_8000_0000_0000, u64::MAX - 0xFFFF - 4096 * 4] {
            let base = (page & !0xFFF) + offset;
            let registration = FastRegistration {
                pages: mapping.pages(),
                first_byte_offset: mapping.first_byte_offset(),
                length: LENGTH,
                base,
            };
            let end = &pair.passive;
            let rights = NDK_OP_FLAG_ALLOW_REMOTE_READ;
            assert_eq!(end.queue_pair.fast_register(1, region.object(), &registration, rights), 0, "{base:#x}");
            assert_eq!(end.initiator.wait_for_one().Status, 0);
            near.buffer.fill(|_| 0);
            let remote = Remote { address: base + 100, token: region.remote_token() };
            assert_eq!(pair.active.queue_pair.read(2, &[near.sge(100..LENGTH)], remote, NONE), 0);
            assert_eq!(pair.active.initiator.wait_for_one().Status, 0, "{base:#x}");
            assert!(near.buffer.to_vec()[100..] == buffer.to_vec()[100..], "other bytes than those of {base:#x}");
            assert_eq!(end.queue_pair.invalidate(3, region.object(), NONE), 0);
            assert_eq!(end.initiator.wait_for_one().Status, 0);
        }
        region.close();
    });
}

/// The words of a memory list: its head and its page frames.
fn words(list: *const MDL) -> Vec<u64> {
    // SAFETY: a list that the trial holds.
    let size = unsafe { (*list).Size };
    assert!(size >= 56, "a memory list of {size} bytes");
    // SAFETY: the list is as long as it says, and no context writes it now.
    unsafe { std::slice::from_raw_parts(list.cast::<u64>(), size as usize / 8) }.to_vec()
}

fn mapping_leaves_the_memory_list_as_it_was() {
    with_two_adapters(|first, _| {
        let buffer = Buffer::scattered(20_000);
        let list = buffer.memory_list();
        let before = words(list.pointer());
        let mapping = Mapping::build_list(first, list.pointer(), 20_000).expect("a logical mapping");
        assert_eq!(words(list.pointer()), before, "after building");
        drop(mapping);
        assert_eq!(words(list.pointer()), before, "after releasing");
        let end = End::new(first, QueuePairShape::default());
        let region = end.domain.create_region(false).expect("a region");
        assert_eq!(region.register_list(list.pointer(), 20_000, NDK_MR_FLAG_ALLOW_LOCAL_WRITE), 0);
        assert_eq!(words(list.pointer()), before, "after registering");
        region.close();
        assert_eq!(words(list.pointer()), before, "after closing the region");
    });
}

fn registration_outlives_the_consumers_own_mapping() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(LENGTH), WindowKind::Registered);
        near.buffer.fill_with_seed(8);
        let buffer = Buffer::scattered(LENGTH);
        let region = pair.passive.domain.create_region(false).expect("a region");
        // The consumer has looked at the first part of its memory, and at the second not yet.
        let list = buffer.chain(&[3000]);
        let mapped = list.map();
        assert_eq!(region.register_list(list.pointer(), LENGTH, NDK_MR_FLAG_ALLOW_REMOTE_WRITE), 0);
        list.unmap(mapped);
        drop(list);
        let remote = Remote { address: buffer.label(), token: region.remote_token() };
        assert_eq!(pair.active.queue_pair.write(1, &[near.sge(0..LENGTH)], remote, NONE), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
        buffer.assert_seed(8, 0..LENGTH);
        region.close();
    });
}

/// Gives a memory list other flags for the time of a call.
fn with_flags<T>(list: *mut MDL, flags: MDL_FLAGS, call: impl FnOnce() -> T) -> T {
    // SAFETY: a list that the trial holds.
    let list = unsafe { &raw mut (*list).MdlFlags };
    // SAFETY: as above; no other context reads it between the calls.
    let before = unsafe { list.replace(flags) };
    let answer = call();
    // SAFETY: as above.
    unsafe { list.write(before) };
    answer
}

fn memory_that_is_not_locked_is_refused() {
    with_two_adapters(|first, _| {
        let end = End::new(first, QueuePairShape::default());
        let buffer = Buffer::scattered(LENGTH);
        let list = buffer.chain(&[5000]);
        // SAFETY: the chain exists.
        let second = unsafe { (*list.pointer()).Next };
        let region = end.domain.create_region(false).expect("a region");
        let register = || region.register_list(list.pointer(), LENGTH, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
        for part in [list.pointer(), second] {
            for flags in [MDL_FLAGS::empty(), MDL_FLAGS::PAGES_LOCKED | MDL_FLAGS::IO_SPACE] {
                assert_eq!(with_flags(part, flags, register), STATUS_INVALID_PARAMETER, "{flags:?}");
            }
        }
        assert_eq!(register(), 0, "the same memory, locked");
        region.close();
    });
}

/// Inline and by the thread for large memory, in one list and in a chain; a view is never executable, or the host ends the trial.
fn mapping_of_a_region_is_writable_only_where_bytes_may_arrive() {
    with_two_adapters(|first, _| {
        let end = End::new(first, QueuePairShape::default());
        for (flags, writable) in [
            (NDK_MR_FLAG_ALLOW_LOCAL_READ, false),
            (NDK_MR_FLAG_ALLOW_REMOTE_READ, false),
            (NDK_MR_FLAG_RDMA_READ_SINK | NDK_MR_FLAG_ALLOW_REMOTE_READ, false),
            (NDK_MR_FLAG_ALLOW_LOCAL_WRITE, true),
            (NDK_MR_FLAG_ALLOW_REMOTE_WRITE, true),
            (NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_LOCAL_WRITE, true),
        ] {
            let longest = first.info().MaxRegistrationSize;
            for length in [LENGTH, longest.min(5 << 20)] {
                let buffer = Buffer::scattered(length);
                assert_eq!(buffer.views(), [], "before the registration");
                let region = end.domain.create_region(false).expect("a region");
                let list = buffer.chain(&[5000]);
                assert_eq!(region.register_list(list.pointer(), length, flags), 0);
                let views = buffer.views();
                assert!(!views.is_empty(), "{length} bytes are mapped");
                assert!(
                    views.iter().all(|view| view.writable == writable),
                    "{length} bytes under {flags:?}: {views:?}"
                );
                region.close();
                wait_until_idle();
                assert_eq!(buffer.views(), [], "after the close");
            }
        }
    });
}
