//! Every limit is exact, in each profile: the maximum works, one more gets its status, and all maxima can be had at once.
//!
//! The trials choose the profile themselves, whatever the environment says about limits.

use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, CompletionQueue, End, Mapping, Pair, ProtectionDomain, QueuePair, QueuePairShape, Remote,
    SharedReceiveQueue, SharedShape, Window, WindowKind,
};
use conformance::machine::{Setup, with_machine};
use conformance::trial::Case;
use kernel_host::FrameOrder;
use ndkpi_sys::ndkinfo::NDK_ADAPTER_INFO;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::*;

pub const CASES: &[Case] = &[
    case!(profiles_differ: "NDK-LIM-4"),
    case!(shapes_of_the_default: "NDK-LIM-1", "NDK-LIM-2"),
    case!(shapes_of_generous: "NDK-LIM-1", "NDK-LIM-2"),
    case!(shapes_of_tiny: "NDK-LIM-1", "NDK-LIM-2"),
    case!(requests_of_the_default: "NDK-LIM-1", "NDK-LIM-2"),
    case!(requests_of_generous: "NDK-LIM-1", "NDK-LIM-2"),
    case!(requests_of_tiny: "NDK-LIM-1", "NDK-LIM-2"),
    case!(everything_at_once_in_the_default: "NDK-LIM-3", "NDK-LIM-1"),
    case!(everything_at_once_in_generous: "NDK-LIM-3", "NDK-LIM-1"),
    case!(everything_at_once_in_tiny: "NDK-LIM-3", "NDK-LIM-1"),
    case!(object_counts_are_true: "NDK-LIM-5"),
];

const DEFAULT: &str = "0";
const GENEROUS: &str = "1";
const TINY: &str = "2";
const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();

fn with_limits(profile: &'static str, trial: impl FnOnce(&Adapter, &Adapter)) {
    let mut setup = Setup::default();
    for adapter in &mut setup.adapters {
        adapter.keywords.push(("LimitsProfile", profile));
    }
    with_machine(&setup, |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        trial(&first, &second);
    });
}

fn profiles_differ() {
    let mut setup = Setup::default();
    setup.adapters[0].keywords.push(("LimitsProfile", GENEROUS));
    setup.adapters[1].keywords.push(("LimitsProfile", TINY));
    with_machine(&setup, |machine| {
        let (generous, tiny) = (machine.open(0).info(), machine.open(1).info());
        assert!(generous.MaxInitiatorQueueDepth > 16_351 && tiny.MaxInitiatorQueueDepth < 16_351);
        assert!(generous.FRMRPageCount > 512 && generous.MaxCallerData > 56);
        assert!(tiny.MaxCqDepth < 1000 && tiny.MaxCallerData < 56);
        // NDKPI: NDK_ADAPTER_INFO: 16 at least.
        assert_eq!(tiny.FRMRPageCount, 16);
    });
}

/// The shape with every maximum.
fn widest(info: &NDK_ADAPTER_INFO) -> QueuePairShape {
    QueuePairShape {
        receive_depth: info.MaxReceiveQueueDepth,
        initiator_depth: info.MaxInitiatorQueueDepth,
        receive_sges: info.MaxReceiveRequestSge,
        initiator_sges: info.MaxInitiatorRequestSge,
        inline_size: info.MaxInlineDataSize,
        ..QueuePairShape::default()
    }
}

/// What queues, queue pairs and regions may be made with.
fn shapes(profile: &'static str) {
    with_limits(profile, |adapter, _| {
        let info = adapter.info();
        drop(CompletionQueue::new(adapter, info.MaxCqDepth).expect("the deepest queue"));
        assert_eq!(CompletionQueue::new(adapter, info.MaxCqDepth + 1).err(), Some(STATUS_INVALID_PARAMETER));

        let domain = ProtectionDomain::new(adapter).expect("a protection domain");
        let queue = CompletionQueue::new(adapter, 1).expect("a completion queue");
        let least = QueuePairShape { receive_sges: 1, initiator_sges: 1, ..QueuePairShape::default() };
        let fields: [fn(&mut QueuePairShape) -> &mut u32; 5] = [
            |shape| &mut shape.receive_depth,
            |shape| &mut shape.initiator_depth,
            |shape| &mut shape.receive_sges,
            |shape| &mut shape.initiator_sges,
            |shape| &mut shape.inline_size,
        ];
        let mut most = widest(&info);
        for (index, field) in fields.iter().enumerate() {
            let mut shape = least;
            *field(&mut shape) = *field(&mut most);
            drop(QueuePair::new(&domain, &queue, &queue, shape).expect("a queue pair with one maximum"));
            *field(&mut shape) += 1;
            let refused = QueuePair::new(&domain, &queue, &queue, shape).err();
            assert_eq!(refused, Some(STATUS_INVALID_PARAMETER), "field {index}");
        }

        let shared = SharedShape { depth: info.MaxSrqDepth, sges: info.MaxReceiveRequestSge, ..SharedShape::default() };
        drop(SharedReceiveQueue::new(&domain, shared).expect("the widest shared receive queue"));
        for over in [SharedShape { depth: shared.depth + 1, ..shared }, SharedShape { sges: shared.sges + 1, ..shared }]
        {
            assert_eq!(SharedReceiveQueue::new(&domain, over).err(), Some(STATUS_INVALID_PARAMETER));
        }

        let fast = domain.create_region(true).expect("a region");
        assert_eq!(fast.initialize_fast_register(info.FRMRPageCount + 1, true), STATUS_IMPLEMENTATION_LIMIT);
        assert_eq!(fast.initialize_fast_register(info.FRMRPageCount, true), 0);

        let buffer = Buffer::new(4096, 0, FrameOrder::Contiguous);
        let region = domain.create_region(false).expect("a region");
        let list = buffer.memory_list();
        let refused = region.register_list(list.pointer(), info.MaxRegistrationSize + 1, NDK_MR_FLAG_ALLOW_LOCAL_READ);
        assert_eq!(refused, STATUS_INVALID_PARAMETER);
    });
}

fn shapes_of_the_default() {
    shapes(DEFAULT);
}

fn shapes_of_generous() {
    shapes(GENEROUS);
}

fn shapes_of_tiny() {
    shapes(TINY);
}

/// What a request may have.
fn requests(profile: &'static str) {
    with_limits(profile, |first, second| {
        let info = first.info();
        let shape = QueuePairShape { receive_depth: 8, initiator_depth: 8, ..widest(&info) };
        let pair = Pair::connect_with(first, second, shape);
        let (active, passive) = (&pair.active, &pair.passive);
        let near = Window::open(active, Buffer::scattered(8192), WindowKind::Registered);
        let peer = Window::open(passive, Buffer::scattered(8192), WindowKind::Registered);
        let (sends, receives, reads) = (info.MaxInitiatorRequestSge, info.MaxReceiveRequestSge, info.MaxReadRequestSge);
        let list = |window: &Window<'_>, count: u32| window.in_sges(count as usize);

        assert_eq!(passive.queue_pair.receive(1, &list(&peer, receives)), 0);
        assert_eq!(passive.queue_pair.receive(1, &list(&peer, receives + 1)), STATUS_DATA_OVERRUN);
        assert_eq!(active.queue_pair.send(2, &list(&near, sends + 1), NONE), STATUS_DATA_OVERRUN);
        assert_eq!(active.queue_pair.send(2, &list(&near, sends), NONE), 0);
        assert_eq!(active.initiator.wait_for_one().Status, 0);
        assert_eq!(passive.receive.wait_for_one().Status, 0);
        assert_eq!(active.queue_pair.read(3, &list(&near, reads + 1), peer.remote(0), NONE), STATUS_DATA_OVERRUN);
        assert_eq!(active.queue_pair.read(3, &list(&near, reads), peer.remote(0), NONE), 0);
        assert_eq!(active.initiator.wait_for_one().Status, 0);
        assert_eq!(active.queue_pair.write(4, &list(&near, sends + 1), peer.remote(0), NONE), STATUS_DATA_OVERRUN);
        assert_eq!(active.queue_pair.write(4, &list(&near, sends), peer.remote(0), NONE), 0);
        assert_eq!(active.initiator.wait_for_one().Status, 0);

        inline_data(active, &peer, info.MaxInlineDataSize);

        // Only the lengths count: the scatter/gather elements are checked when the request is processed.
        let half = NDK_SGE { Length: info.MaxTransferLength / 2 + 1, ..near.sge(0..1) };
        let nowhere = Remote { address: 0, token: 0 };
        assert_eq!(active.queue_pair.write(5, &[half, half], nowhere, NONE), STATUS_BUFFER_OVERFLOW);
    });
}

/// Data given with the request itself, as much as there may be and a byte more.
fn inline_data(active: &End<'_>, peer: &Window<'_>, most: u32) {
    let bytes = vec![0x5A_u8; most as usize + 1];
    let sge = |length: u32| NDK_SGE {
        Address: NDK_SGE_ADDRESS { VirtualAddress: bytes.as_ptr().cast_mut().cast() },
        Length: length,
        MemoryRegionToken: 0,
    };
    let write = |length| active.queue_pair.write(6, &[sge(length)], peer.remote(0), NDK_OP_FLAG_INLINE);
    assert_eq!(write(most + 1), STATUS_BUFFER_OVERFLOW);
    assert_eq!(write(most), 0);
    assert_eq!(active.initiator.wait_for_one().Status, 0);
}

fn requests_of_the_default() {
    requests(DEFAULT);
}

fn requests_of_generous() {
    requests(GENEROUS);
}

fn requests_of_tiny() {
    requests(TINY);
}

/// All maxima together, on both ends of a connection, with the longest registration, and they work.
fn everything_at_once(profile: &'static str) {
    with_limits(profile, |first, second| {
        let info = first.info();
        let pair = Pair::connect_with(first, second, widest(&info));
        let deep = CompletionQueue::new(first, info.MaxCqDepth).expect("the deepest queue");
        let shared = SharedShape { depth: info.MaxSrqDepth, sges: info.MaxReceiveRequestSge, ..SharedShape::default() };
        let shared = SharedReceiveQueue::new(&pair.active.domain, shared).expect("the widest shared receive queue");
        let buffer = Buffer::new(info.MaxRegistrationSize, 0, FrameOrder::Contiguous);
        let region = pair.active.domain.register(&buffer, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
        let pages = Buffer::new(info.FRMRPageCount as usize * 4096, 0, FrameOrder::Scattered);
        let fast = pair.active.domain.fast_region(info.FRMRPageCount, true);
        let mapping = Mapping::build(first, &pages).expect("a mapping");
        conformance::consumer::register_fast(&pair.active, &fast, &mapping, &pages, NDK_OP_FLAG_ALLOW_REMOTE_READ);

        let peer = Window::open(&pair.passive, Buffer::scattered(4096), WindowKind::Registered);
        peer.buffer.fill(|position| position as u8);
        let last = buffer.length() - 4096;
        let sink = buffer.sge(last..buffer.length(), region.local_token());
        assert_eq!(pair.active.queue_pair.read(7, &[sink], peer.remote(0), NONE), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
        assert!((0..4096).all(|position| buffer.byte(last + position) == position as u8), "the last page came over");
        drop((deep, shared));
        drop(mapping);
    });
}

fn everything_at_once_in_the_default() {
    everything_at_once(DEFAULT);
}

fn everything_at_once_in_generous() {
    everything_at_once(GENEROUS);
}

fn everything_at_once_in_tiny() {
    everything_at_once(TINY);
}

fn object_counts_are_true() {
    // `docs/limits.md`: of each kind.
    const MOST: usize = 256;
    with_limits(TINY, |adapter, other| {
        let mut domains: Vec<_> = (0..MOST).map(|_| ProtectionDomain::new(adapter).expect("a domain")).collect();
        assert_eq!(ProtectionDomain::new(adapter).err(), Some(STATUS_INSUFFICIENT_RESOURCES));
        // Another adapter, and another kind, count for themselves.
        let queues: Vec<_> = (0..MOST).map(|_| CompletionQueue::new(adapter, 1).expect("a queue")).collect();
        assert_eq!(CompletionQueue::new(adapter, 1).err(), Some(STATUS_INSUFFICIENT_RESOURCES));
        drop(ProtectionDomain::new(other).expect("a domain of another adapter"));
        domains.pop();
        domains.push(ProtectionDomain::new(adapter).expect("a domain in the place of one that was closed"));
        let regions: Vec<_> = (0..MOST).map(|_| domains[0].create_region(false).expect("a region")).collect();
        assert_eq!(domains[0].create_region(true).err(), Some(STATUS_INSUFFICIENT_RESOURCES));
        let shape = QueuePairShape { receive_depth: 1, initiator_depth: 1, ..QueuePairShape::default() };
        let pair = || QueuePair::new(&domains[0], &queues[0], &queues[0], shape);
        let pairs: Vec<_> = (0..MOST).map(|_| pair().expect("a queue pair")).collect();
        assert_eq!(pair().err(), Some(STATUS_INSUFFICIENT_RESOURCES));
        drop((pairs, regions));
    });
}
