//! Memory windows: the access they grant, to which peer, from when until when, and what waits for them.

use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, End, MemoryRegion, MemoryWindow, Pair, ProtectionDomain, QueuePair, QueuePairShape, Remote,
    Window, WindowKind,
};
use conformance::machine::with_two_adapters;
use conformance::peers;
use conformance::trial::Case;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{
    NTSTATUS, STATUS_ACCESS_VIOLATION, STATUS_CANCELLED, STATUS_DEVICE_BUSY, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_REMOTE_RESOURCES,
};

pub const CASES: &[Case] = &[
    case!(a_new_window_opens_nothing: "NDK-MW-1", "NDK-MW-4"),
    case!(a_window_needs_local_write_to_let_a_peer_write: "NDK-MW-2"),
    case!(a_range_outside_of_the_region_is_refused: "NDK-MW-3", "NDK-MW-17"),
    case!(what_does_not_belong_together_is_not_bound: "NDK-QP-37", "NDK-MW-3"),
    case!(the_token_is_there_before_the_bind_is: "NDK-MW-4", "NDK-MW-13"),
    case!(an_older_token_opens_nothing: "NDK-MW-5"),
    case!(a_window_opens_its_range_and_not_a_byte_more: "NDK-MW-6"),
    case!(a_window_grants_its_own_rights_only: "NDK-MW-6"),
    case!(another_queue_pair_lets_no_context_in: "NDK-MW-7"),
    case!(windows_overlap_with_rights_of_their_own: "NDK-MW-8"),
    case!(an_invalidated_window_opens_nothing: "NDK-MW-9", "NDK-MR-7"),
    case!(an_access_under_way_is_ended_by_an_invalidation: "NDK-MW-9", "NDK-MR-7"; not in tiny),
    case!(the_peer_invalidates_a_window: "NDK-MW-10", "NDK-QP-16"),
    case!(the_peer_of_another_queue_pair_invalidates_nothing: "NDK-MW-10", "NDK-MW-7"),
    case!(closing_a_window_unbinds_it: "NDK-MW-11", "NDK-CLOSE-13"),
    case!(the_end_of_its_queue_pair_unbinds_a_window: "NDK-MW-12", "NDK-CLOSE-13"; not in tiny),
    case!(a_closed_region_serves_its_windows_until_they_are_unbound: "NDK-CLOSE-13", "NDK-CLOSE-2"),
    case!(a_protection_domain_waits_for_its_windows: "NDK-CLOSE-14"),
    case!(bind_and_invalidate_wait_in_the_queue: "NDK-MW-13", "NDK-MW-16"),
    case!(invalidating_an_unbound_window_fails: "NDK-MW-14"),
    case!(binding_a_bound_window_fails: "NDK-MW-15"),
    case!(a_bind_to_a_region_that_has_gone_fails: "NDK-MW-15", "NDK-MR-7"),
    case!(a_region_with_windows_is_busy: "NDK-MR-13"),
];

const LENGTH: usize = 10_000;
const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const BIND: u64 = 0xB14D;
const READ: NDK_OP_FLAGS = NDK_OP_FLAG_ALLOW_REMOTE_READ;
const WRITE: NDK_OP_FLAGS = NDK_OP_FLAG_ALLOW_REMOTE_WRITE;

/// A connection; valid memory on the local side, a region without any remote right and a window on the peer's.
struct Scene<'a> {
    window: MemoryWindow,
    region: MemoryRegion,
    buffer: Buffer,
    near: Window<'a>,
    pair: Pair<'a>,
}

impl<'a> Scene<'a> {
    fn new(first: &'a Adapter, second: &'a Adapter) -> Self {
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(LENGTH), WindowKind::Registered);
        let buffer = Buffer::scattered(LENGTH);
        let region = pair.passive.domain.register(&buffer, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
        let window = MemoryWindow::new(&pair.passive.domain).expect("a memory window");
        near.buffer.fill_with_seed(1);
        buffer.fill_with_seed(2);
        Self { window, region, buffer, near, pair }
    }

    fn owner(&self) -> &End<'a> {
        &self.pair.passive
    }

    /// Binds the window to a stretch of the buffer and waits for it.
    fn bind(&self, start: usize, length: usize, rights: NDK_OP_FLAGS) {
        bind(self.owner(), &self.region, &self.window, (self.buffer.label() + start as u64, length), rights);
    }

    fn post_bind(&self, flags: NDK_OP_FLAGS) -> NTSTATUS {
        let range = (self.buffer.label(), LENGTH);
        self.owner().queue_pair.bind(BIND, self.region.object(), self.window.object(), range, flags)
    }

    fn invalidate(&self) -> NTSTATUS {
        assert_eq!(self.owner().queue_pair.invalidate(BIND, self.window.object(), NONE), 0);
        let result = self.owner().initiator.wait_for_one();
        assert_eq!(result.Type, NdkOperationTypeInvalidate);
        result.Status
    }

    /// The place `offset` bytes into the buffer under the window's present token.
    fn remote(&self, offset: usize) -> Remote {
        Remote { address: self.buffer.label() + offset as u64, token: self.window.remote_token() }
    }

    /// What a Read of the peer ends with.
    fn read(&self, remote: Remote, length: usize) -> NTSTATUS {
        let active = &self.pair.active;
        assert_eq!(active.queue_pair.read(1, &[self.near.sge(0..length)], remote, NONE), 0);
        active.initiator.wait_for_one().Status
    }

    fn write(&self, remote: Remote, length: usize) -> NTSTATUS {
        let active = &self.pair.active;
        assert_eq!(active.queue_pair.write(2, &[self.near.sge(0..length)], remote, NONE), 0);
        active.initiator.wait_for_one().Status
    }
}

fn bind(end: &End<'_>, region: &MemoryRegion, window: &MemoryWindow, range: (u64, usize), rights: NDK_OP_FLAGS) {
    assert_eq!(end.queue_pair.bind(BIND, region.object(), window.object(), range, rights), 0, "posting a bind");
    let result = end.initiator.wait_for_one();
    assert_eq!((result.Status, result.Type, result.RequestContext as u64), (0, NdkOperationTypeBind, BIND));
}

/// Runs each of the accesses in a scene of its own: a refused one ends the connection.
fn refused<K>(operations: &[Use], prepare: impl Fn(&Scene<'_>) -> (Remote, usize, K)) {
    with_two_adapters(|first, second| refused_between((first, second), operations, prepare));
}

fn refused_between<K>(
    (first, second): (&Adapter, &Adapter),
    operations: &[Use],
    prepare: impl Fn(&Scene<'_>) -> (Remote, usize, K),
) {
    for operation in operations {
        let scene = Scene::new(first, second);
        let (remote, length, kept) = prepare(&scene);
        let (status, refused) = match operation {
            Use::Read => (scene.read(remote, length), STATUS_REMOTE_RESOURCES),
            Use::Write => (scene.write(remote, length), peers::late(STATUS_REMOTE_RESOURCES)),
        };
        assert_eq!(status, refused, "{operation:?} of {length} bytes at {remote:x?}");
        assert!(scene.owner().connector().wait_for_disconnect(), "a refused access ends the connection");
        scene.near.buffer.assert_seed(1, 0..LENGTH);
        scene.buffer.assert_seed(2, 0..LENGTH);
        // Bound to what is kept, perhaps.
        scene.window.close();
        drop(kept);
    }
}

#[derive(Clone, Copy, Debug)]
enum Use {
    Read,
    Write,
}

const BOTH: [Use; 2] = [Use::Read, Use::Write];

fn a_new_window_opens_nothing() {
    with_two_adapters(|first, second| {
        refused_between((first, second), &BOTH, |scene| (scene.remote(0), 64, ()));
        let scene = Scene::new(first, second);
        for rights in [NONE, READ, WRITE] {
            scene.bind(0, 64, rights);
            assert_ne!(scene.window.remote_token(), 0);
            assert_eq!(scene.invalidate(), 0);
        }
    });
}

fn a_window_needs_local_write_to_let_a_peer_write() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let end = scene.owner();
        for (granted, rights, expected) in [
            (NDK_MR_FLAG_ALLOW_LOCAL_READ, READ, 0),
            (NDK_MR_FLAG_ALLOW_LOCAL_READ, WRITE, STATUS_ACCESS_VIOLATION),
            (NDK_MR_FLAG_ALLOW_LOCAL_READ, READ | WRITE, STATUS_ACCESS_VIOLATION),
            (NDK_MR_FLAG_ALLOW_REMOTE_READ, READ, 0),
            (NDK_MR_FLAG_ALLOW_REMOTE_READ, WRITE, STATUS_ACCESS_VIOLATION),
            (NDK_MR_FLAG_ALLOW_LOCAL_WRITE, READ | WRITE, 0),
            (NDK_MR_FLAG_ALLOW_REMOTE_WRITE, READ | WRITE, 0),
        ] {
            let region = end.domain.register(&scene.buffer, granted);
            let before = scene.window.remote_token();
            let range = (scene.buffer.label(), LENGTH);
            let posted = end.queue_pair.bind(BIND, region.object(), scene.window.object(), range, rights);
            assert_eq!(posted, expected, "{granted:?} and {rights:?}");
            if posted == 0 {
                assert_eq!(end.initiator.wait_for_one().Status, 0);
                assert_eq!(scene.invalidate(), 0);
            } else {
                assert_eq!(scene.window.remote_token(), before, "a refused bind leaves the token");
                assert!(end.initiator.take(1).is_empty(), "a refused bind completes nothing");
            }
        }
    });
}

fn a_range_outside_of_the_region_is_refused() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let base = scene.buffer.label();
        let size = LENGTH as u64;
        let largest = first.info().MaxWindowSize;
        for (address, length) in [
            (base, 0),
            (base, LENGTH + 1),
            (base - 1, 1),
            (base - 1, LENGTH),
            (base + size, 1),
            (base + size - 1, 2),
            (0, LENGTH),
            (u64::MAX, 1),
            (u64::MAX, 2),
            (base, usize::MAX),
            (base, largest + 1),
        ] {
            let end = scene.owner();
            let posted =
                end.queue_pair.bind(BIND, scene.region.object(), scene.window.object(), (address, length), READ);
            assert_eq!(posted, STATUS_INVALID_PARAMETER, "{length} bytes at {address:#x} of a region at {base:#x}");
            assert!(end.initiator.take(1).is_empty());
        }
        for (start, length) in [(0, 1), (LENGTH - 1, 1), (0, LENGTH)] {
            scene.bind(start, length, READ);
            assert_eq!(scene.invalidate(), 0);
        }
    });
}

fn what_does_not_belong_together_is_not_bound() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let end = scene.owner();
        let other = ProtectionDomain::new(second).expect("a protection domain");
        let foreign_region = other.register(&scene.buffer, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
        let foreign_window = MemoryWindow::new(&other).expect("a memory window");
        let fast = end.domain.fast_region(16, true);
        let unregistered = end.domain.create_region(false).expect("a region");
        let range = (scene.buffer.label(), LENGTH);
        for (region, window) in [
            (&foreign_region, &scene.window),
            (&scene.region, &foreign_window),
            (&foreign_region, &foreign_window),
            (&fast, &scene.window),
            (&unregistered, &scene.window),
        ] {
            let posted = end.queue_pair.bind(BIND, region.object(), window.object(), range, READ);
            assert_eq!(posted, STATUS_INVALID_PARAMETER);
        }
        for flags in [
            NDK_OP_FLAG_ALLOW_LOCAL_WRITE,
            NDK_OP_FLAGS::from_bits_retain(0x20),
            NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT,
            NDK_OP_FLAG_INLINE,
            NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE,
            NDK_OP_FLAGS::from_bits_retain(0x400),
        ] {
            assert_eq!(scene.post_bind(flags), STATUS_INVALID_PARAMETER, "{flags:?}");
        }
        assert_eq!(end.queue_pair.invalidate(BIND, foreign_window.object(), NONE), STATUS_INVALID_PARAMETER);
        assert!(end.initiator.take(1).is_empty());
        scene.bind(0, LENGTH, READ | NDK_OP_FLAG_RDMA_READ_SINK);
    });
}

fn the_token_is_there_before_the_bind_is() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let end = scene.owner();
        let mut seen = vec![0];
        for _ in 0..4 {
            assert_eq!(scene.post_bind(READ | NDK_OP_FLAG_DEFER), 0);
            let token = scene.window.remote_token();
            assert!(!seen.contains(&token), "{token:#x} was there before: {seen:x?}");
            seen.push(token);
            // The chain goes on with what a consumer would send its peer, and ends with taking it back.
            let remote = Remote { token, ..scene.remote(0) };
            assert_eq!(end.queue_pair.send(3, &[], NONE), 0, "the end of the chain");
            assert_eq!(scene.pair.active.queue_pair.receive(4, &[]), 0);
            assert_eq!(scene.pair.active.receive.wait_for_one().Status, 0);
            assert_eq!(scene.read(remote, 64), 0);
            scene.near.buffer.assert_seed(2, 0..64);
            assert_eq!(scene.invalidate_after(2), 0);
        }
    });
}

impl Scene<'_> {
    /// Takes `earlier` good results, then invalidates.
    fn invalidate_after(&self, earlier: usize) -> NTSTATUS {
        assert!(self.owner().initiator.wait_for(earlier).iter().all(|result| result.Status == 0));
        self.invalidate()
    }
}

fn an_older_token_opens_nothing() {
    refused(&BOTH, |scene| {
        scene.bind(0, LENGTH, READ | WRITE);
        let old = scene.remote(0);
        assert_eq!(scene.invalidate(), 0);
        scene.bind(0, LENGTH, READ | WRITE);
        assert_ne!(old.token, scene.window.remote_token());
        (old, 64, ())
    });
}

fn a_window_opens_its_range_and_not_a_byte_more() {
    const START: usize = 5000;
    const SIZE: usize = 3000;
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let before = scene.buffer.to_vec();
        scene.bind(START, SIZE, READ | WRITE);
        assert_eq!(scene.write(scene.remote(START), SIZE), 0);
        let after = scene.buffer.to_vec();
        assert!(after[..START] == before[..START] && after[START + SIZE..] == before[START + SIZE..]);
        assert!(after[START..START + SIZE] == scene.near.buffer.to_vec()[..SIZE]);
        assert_eq!(scene.read(scene.remote(START + SIZE - 1), 1), 0);
        for (offset, length) in
            [(START - 1, 2), (START - 1, SIZE), (START + SIZE - 1, 2), (START + SIZE, 1), (START, SIZE + 1)]
        {
            refused_between((first, second), &BOTH, |scene| {
                scene.bind(START, SIZE, READ | WRITE);
                (scene.remote(offset), length, ())
            });
        }
    });
}

fn a_window_grants_its_own_rights_only() {
    // The region itself would grant everything to its own token.
    let narrow = |scene: &Scene<'_>, rights: NDK_OP_FLAGS| {
        let all = NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
        let region = scene.owner().domain.register(&scene.buffer, all);
        bind(scene.owner(), &region, &scene.window, (scene.buffer.label(), LENGTH), rights);
        (scene.remote(0), 64, region)
    };
    with_two_adapters(|first, second| {
        refused_between((first, second), &[Use::Write], |scene| narrow(scene, READ));
        refused_between((first, second), &[Use::Read], |scene| narrow(scene, WRITE));
        refused_between((first, second), &BOTH, |scene| narrow(scene, NONE));
    });
}

fn another_queue_pair_lets_no_context_in() {
    with_two_adapters(|first, second| {
        for same_domain in [true, false] {
            let scene = Scene::new(first, second);
            scene.bind(0, LENGTH, READ | WRITE);
            let near = End::new(first, QueuePairShape::default());
            let mut peer = End::new(second, QueuePairShape::default());
            if same_domain {
                peer.queue_pair.close();
                peer.queue_pair =
                    QueuePair::new(&scene.owner().domain, &peer.receive, &peer.initiator, QueuePairShape::default())
                        .expect("a queue pair of the window's domain");
            }
            let other = Pair::join(near, peer, first.address(), second.address());
            let sink = Window::open(&other.active, Buffer::scattered(LENGTH), WindowKind::Registered);
            assert_eq!(other.active.queue_pair.read(1, &[sink.sge(0..64)], scene.remote(0), NONE), 0);
            assert_eq!(other.active.initiator.wait_for_one().Status, STATUS_REMOTE_RESOURCES, "{same_domain}");
            assert_eq!(scene.read(scene.remote(0), 64), 0, "the window's own peer is not concerned");
        }
    });
}

fn windows_overlap_with_rights_of_their_own() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let end = scene.owner();
        let second_window = MemoryWindow::new(&end.domain).expect("a memory window");
        scene.bind(0, 6000, READ);
        bind(end, &scene.region, &second_window, (scene.buffer.label() + 3000, 6000), WRITE);
        let through_second = Remote { token: second_window.remote_token(), ..scene.remote(3000) };
        assert_eq!(scene.write(through_second, 3000), 0);
        assert_eq!(scene.buffer.to_vec()[3000..6000], scene.near.buffer.to_vec()[..3000]);
        assert_eq!(scene.read(scene.remote(3000), 3000), 0);
        assert_eq!(scene.invalidate(), 0);
        assert_eq!(scene.write(through_second, 64), 0, "the other window is still bound");
        let denied = Remote { token: second_window.remote_token(), ..scene.remote(3000) };
        assert_eq!(scene.read(denied, 64), STATUS_REMOTE_RESOURCES, "it was bound for writing");
    });
}

fn an_invalidated_window_opens_nothing() {
    refused(&BOTH, |scene| {
        scene.bind(0, LENGTH, READ | WRITE);
        assert_eq!(scene.read(scene.remote(0), 1), 0);
        scene.near.buffer.fill_with_seed(1);
        assert_eq!(scene.invalidate(), 0);
        (scene.remote(0), 64, ())
    });
}

/// A long Write of the peer runs during the invalidation of its window: whatever it moved before, once the Invalidate has completed no
/// byte changes any more, and the connection is at its end. On a busy machine the write may be through first: then again.
fn an_access_under_way_is_ended_by_an_invalidation() {
    with_two_adapters(|first, second| {
        let met = (0..500).any(|_| invalidation_meets_a_write(first, second));
        assert!(met, "no invalidation met its write");
    });
}

/// One round; whether the two overlapped.
fn invalidation_meets_a_write(first: &Adapter, second: &Adapter) -> bool {
    const LONG: usize = 64 << 20;
    let pair = Pair::connect(first, second);
    let near =
        Window::open(&pair.active, Buffer::new(LONG, 0, kernel_host::FrameOrder::Contiguous), WindowKind::Registered);
    let buffer = Buffer::new(LONG, 0, kernel_host::FrameOrder::Contiguous);
    let region = pair.passive.domain.register(&buffer, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
    let window = MemoryWindow::new(&pair.passive.domain).expect("a memory window");
    bind(&pair.passive, &region, &window, (buffer.label(), LONG), WRITE);
    let remote = Remote { address: buffer.label(), token: window.remote_token() };
    let written = pair.active.queue_pair.write(1, &[near.sge(0..LONG)], remote, NONE);
    assert_eq!(written, 0);
    assert_eq!(pair.passive.queue_pair.invalidate(2, window.object(), NONE), 0);
    let invalidated = pair.passive.initiator.wait_for_one();
    let before = buffer.to_vec();
    let status = pair.active.initiator.wait_for_one().Status;
    if status == STATUS_REMOTE_RESOURCES {
        assert_eq!(invalidated.Status, 0);
        assert!(pair.passive.connector().wait_for_disconnect());
    } else {
        assert_eq!(status, 0, "the write was through before");
    }
    assert!(buffer.to_vec() == before, "no byte moves after the invalidation");
    status != 0
}

fn the_peer_invalidates_a_window() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        scene.bind(0, LENGTH, READ);
        let token = scene.window.remote_token();
        let (active, passive) = (&scene.pair.active, scene.owner());
        assert_eq!(passive.queue_pair.receive(7, &[]), 0);
        assert_eq!(active.queue_pair.send_and_invalidate(8, &[], NONE, token), 0);
        let sent = active.initiator.wait_for_one();
        assert_eq!((sent.Status, sent.Type), (0, NdkOperationTypeSend));
        let received = passive.receive.wait_for_one();
        assert_eq!((received.Status, received.Type), (0, NdkOperationTypeReceiveAndInvalidate));
        assert_eq!(received.TypeSpecificCompletionOutput, token as usize);
        // Unbound: it can be bound again, the region could be deregistered, a local Invalidate has nothing to do.
        scene.bind(0, LENGTH, READ);
        assert_ne!(scene.window.remote_token(), token);
        assert_eq!(scene.read(scene.remote(0), 64), 0);
        assert_eq!(scene.invalidate(), 0);
        assert_eq!(scene.region.deregister(), 0);
        assert_eq!(scene.invalidate(), STATUS_INVALID_DEVICE_REQUEST);
    });
}

fn the_peer_of_another_queue_pair_invalidates_nothing() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        scene.bind(0, LENGTH, READ);
        let near = End::new(first, QueuePairShape::default());
        let mut peer = End::new(second, QueuePairShape::default());
        peer.queue_pair.close();
        let domain = &scene.owner().domain;
        peer.queue_pair =
            QueuePair::new(domain, &peer.receive, &peer.initiator, QueuePairShape::default()).expect("a queue pair");
        let other = Pair::join(near, peer, first.address(), second.address());
        assert_eq!(other.passive.queue_pair.receive(7, &[]), 0);
        let token = scene.window.remote_token();
        assert_eq!(other.active.queue_pair.send_and_invalidate(8, &[], NONE, token), 0);
        assert_eq!(other.active.initiator.wait_for_one().Status, peers::late(STATUS_REMOTE_RESOURCES));
        assert_eq!(other.passive.receive.wait_for_one().Status, STATUS_CANCELLED);
        assert!(other.passive.connector().wait_for_disconnect());
        assert_eq!(scene.read(scene.remote(0), 64), 0);
        // Nor does the queue pair itself, if another one bound the window.
        let mut refused = Scene::new(first, second);
        refused.window = MemoryWindow::new(&refused.owner().domain).expect("a memory window");
        assert_eq!(refused.owner().queue_pair.invalidate(1, refused.window.object(), NONE), 0);
        assert_eq!(refused.owner().initiator.wait_for_one().Status, STATUS_INVALID_DEVICE_REQUEST);
    });
}

fn closing_a_window_unbinds_it() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        scene.bind(0, LENGTH, READ);
        let closing = scene.region.object().begin_close();
        assert_eq!(closing.inline(), STATUS_PENDING, "a window is bound");
        let remote = scene.remote(0);
        scene.window.close();
        closing.wait();
        assert_eq!(scene.read(remote, 64), STATUS_REMOTE_RESOURCES);
    });
}

/// The queue pair stays open where it ends with its connection.
fn the_end_of_its_queue_pair_unbinds_a_window() {
    let ends: [fn(&Scene<'_>); 3] = [
        |scene| {
            let asked = scene.pair.active.connector().begin_disconnect();
            assert!(scene.owner().connector().wait_for_disconnect());
            assert_eq!(scene.owner().connector().begin_disconnect().wait(), 0);
            assert_eq!(asked.wait(), 0);
        },
        |scene| {
            peers::speak(&scene.pair.passive);
            scene.pair.active.connector().close();
            assert!(scene.owner().connector().wait_for_disconnect());
        },
        |scene| {
            scene.owner().connector().close();
            scene.owner().queue_pair.close();
        },
    ];
    with_two_adapters(|first, second| {
        for end in ends {
            unbound_by(&Scene::new(first, second), end);
        }
    });
}

fn unbound_by(scene: &Scene<'_>, end: fn(&Scene<'_>)) {
    let others: Vec<_> = (0..600)
        .map(|_| {
            let window = MemoryWindow::new(&scene.owner().domain).expect("a memory window");
            bind(scene.owner(), &scene.region, &window, (scene.buffer.label(), LENGTH), READ);
            window
        })
        .collect();
    scene.bind(0, LENGTH, READ);
    let closing = scene.region.object().begin_close();
    assert_eq!(closing.inline(), STATUS_PENDING, "windows are bound");
    end(scene);
    closing.wait();
    for window in others.iter().chain([&scene.window]) {
        window.close();
    }
}

fn a_closed_region_serves_its_windows_until_they_are_unbound() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let other = MemoryWindow::new(&scene.owner().domain).expect("a memory window");
        bind(scene.owner(), &scene.region, &other, (scene.buffer.label(), LENGTH), READ);
        scene.bind(0, LENGTH, READ);
        let closing = scene.region.object().begin_close();
        assert_eq!(closing.inline(), STATUS_PENDING);
        assert_eq!(scene.read(scene.remote(0), 64), 0, "an early close has no effect on what depends on the region");
        assert_eq!(scene.invalidate(), 0);
        assert!(!closing.is_done(), "one window is still bound");
        let remote = Remote { token: other.remote_token(), ..scene.remote(0) };
        assert_eq!(scene.read(remote, 64), 0);
        assert_eq!(scene.owner().queue_pair.invalidate(3, other.object(), NONE), 0);
        assert_eq!(scene.owner().initiator.wait_for_one().Status, 0);
        closing.wait();
    });
}

fn a_protection_domain_waits_for_its_windows() {
    with_two_adapters(|first, _| {
        let domain = ProtectionDomain::new(first).expect("a protection domain");
        let window = MemoryWindow::new(&domain).expect("a memory window");
        let closing = domain.object().begin_close();
        assert_eq!(closing.inline(), STATUS_PENDING);
        assert!(!closing.is_done());
        window.close();
        closing.wait();
    });
}

fn bind_and_invalidate_wait_in_the_queue() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let queue_pair = &scene.owner().queue_pair;
        // A held chain: bind, invalidate, bind, invalidate, bind; each finds what the one before left.
        for round in 0..2 {
            assert_eq!(scene.post_bind(READ | NDK_OP_FLAG_DEFER), 0, "bind {round}");
            assert_eq!(queue_pair.invalidate(BIND, scene.window.object(), NDK_OP_FLAG_DEFER), 0);
        }
        assert_eq!(scene.post_bind(READ), 0);
        let results = scene.owner().initiator.wait_for(5);
        let (bound, invalidated) = (NdkOperationTypeBind, NdkOperationTypeInvalidate);
        let seen: Vec<_> = results.iter().map(|result| (result.Status, result.Type)).collect();
        assert_eq!(seen, [(0, bound), (0, invalidated), (0, bound), (0, invalidated), (0, bound)]);
        assert_eq!(scene.read(scene.remote(0), 64), 0, "the last token is the good one");
    });
}

fn invalidating_an_unbound_window_fails() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        assert_eq!(scene.invalidate(), STATUS_INVALID_DEVICE_REQUEST);
        assert!(scene.pair.active.connector().wait_for_disconnect(), "a failed request ends the connection");
        assert_eq!(scene.invalidate(), STATUS_CANCELLED);
        let scene = Scene::new(first, second);
        scene.bind(0, LENGTH, READ);
        assert_eq!(scene.invalidate(), 0);
        assert_eq!(scene.invalidate(), STATUS_INVALID_DEVICE_REQUEST);
    });
}

fn binding_a_bound_window_fails() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        scene.bind(0, LENGTH, READ);
        assert_eq!(scene.post_bind(READ), 0);
        assert_eq!(scene.owner().initiator.wait_for_one().Status, STATUS_INVALID_DEVICE_REQUEST);
        assert!(scene.pair.active.connector().wait_for_disconnect());
        let closing = scene.region.object().begin_close();
        scene.window.close();
        closing.wait();
    });
}

fn a_bind_to_a_region_that_has_gone_fails() {
    with_two_adapters(|first, second| {
        for again in [false, true] {
            let scene = Scene::new(first, second);
            assert_eq!(scene.post_bind(READ | NDK_OP_FLAG_DEFER), 0);
            assert_eq!(scene.region.deregister(), 0, "nothing is bound yet");
            if again {
                assert_eq!(scene.region.register(&scene.buffer, NDK_MR_FLAG_ALLOW_LOCAL_WRITE), 0);
            }
            assert_eq!(scene.owner().queue_pair.send(1, &[], NONE), 0);
            let statuses: Vec<_> = scene.owner().initiator.wait_for(2).iter().map(|result| result.Status).collect();
            assert_eq!(statuses, [STATUS_INVALID_DEVICE_REQUEST, STATUS_CANCELLED]);
        }
    });
}

fn a_region_with_windows_is_busy() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        scene.bind(0, LENGTH, READ);
        assert_eq!(scene.region.deregister(), STATUS_DEVICE_BUSY);
        assert_eq!(scene.read(scene.remote(0), 64), 0, "nothing has changed");
        assert_eq!(scene.invalidate(), 0);
        assert_eq!(scene.region.deregister(), 0);
    });
}
