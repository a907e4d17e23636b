//! Access that must be refused: unknown and stale tokens, one byte too far on either side, missing rights, foreign
//! protection domains, local and remote. Each refusal is a completion with its status, ends the connection, and changes
//! no byte outside the permitted range.

use conformance::case;
use conformance::consumer::{Buffer, End, Mapping, Pair, ProtectionDomain, QueuePair, Remote, Window, WindowKind, sge};
use conformance::machine::with_two_adapters;
use conformance::peers;
use conformance::trial::Case;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{NTSTATUS, STATUS_ACCESS_VIOLATION, STATUS_CANCELLED, STATUS_REMOTE_RESOURCES};

pub const CASES: &[Case] = &[
    case!(local_token_unknown: "NDK-MR-5", "NDK-QP-13", "NDK-QP-14"),
    case!(local_token_zero: "NDK-MR-5", "NDK-MR-4"),
    case!(local_token_of_a_deregistered_region: "NDK-MR-5"),
    case!(local_token_of_an_invalidated_region: "NDK-MR-5", "NDK-FRMR-4"),
    case!(local_token_of_a_closed_region: "NDK-MR-5"),
    case!(local_sge_one_byte_before_its_region: "NDK-MR-5"),
    case!(local_sge_one_byte_past_its_region: "NDK-MR-5"),
    case!(local_sge_around_the_address_space: "NDK-MR-5", "BUG-3"),
    case!(local_sink_without_local_write: "NDK-MR-5"),
    case!(local_token_of_another_protection_domain: "NDK-MR-5"),
    case!(privileged_token_with_an_address_one_byte_past_the_mapping: "NDK-MR-5", "NDK-LAM-3"),
    case!(privileged_token_with_a_released_mapping: "NDK-MR-5", "NDK-LAM-8"),
    case!(privileged_token_of_another_protection_domain: "NDK-MR-5"),
    case!(receive_into_memory_that_its_token_does_not_allow: "NDK-MR-5", "NDK-QP-13"),
    case!(remote_token_unknown: "NDK-MR-6", "NDK-QP-13"),
    case!(remote_token_of_a_deregistered_region: "NDK-MR-6"),
    case!(remote_token_of_an_invalidated_region: "NDK-MR-6", "NDK-FRMR-4"),
    case!(remote_token_of_a_closed_region: "NDK-MR-6"),
    case!(remote_range_one_byte_before_its_region: "NDK-MR-6"),
    case!(remote_range_one_byte_past_its_region: "NDK-MR-6"),
    case!(remote_range_around_the_address_space: "NDK-MR-6", "BUG-3"),
    case!(remote_read_without_the_right: "NDK-MR-6"),
    case!(remote_write_without_the_right: "NDK-MR-6"),
    case!(remote_token_of_another_protection_domain: "NDK-MR-6"),
    case!(privileged_token_as_remote_token: "NDK-MR-6", "NDK-LAM-4"),
    case!(fast_registered_region_ends_where_it_says: "NDK-MR-5", "NDK-MR-6"),
];

const LENGTH: usize = 10_000;
const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const OFFENDER: u64 = 0x0FFE;
const LATER: u64 = 0x1A7E;

/// A connection with good memory on both sides.
struct Scene<'a> {
    near: Window<'a>,
    peer: Window<'a>,
    pair: Pair<'a>,
}

impl<'a> Scene<'a> {
    fn new(first: &'a conformance::consumer::Adapter, second: &'a conformance::consumer::Adapter) -> Self {
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(LENGTH), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(LENGTH), WindowKind::Registered);
        near.buffer.fill_with_seed(1);
        peer.buffer.fill_with_seed(2);
        Self { near, peer, pair }
    }

    fn active(&self) -> &End<'a> {
        &self.pair.active
    }

    /// The offending request completes with `expected`, what follows is cancelled, the peer gets one disconnect event.
    fn assert_ended(&self, expected: NTSTATUS) {
        let active = self.active();
        let result = active.initiator.wait_for_one();
        assert_eq!(result.Status, expected, "the offending request: {result:#x?}");
        assert_eq!(result.RequestContext as u64, OFFENDER);
        let later = active.queue_pair.write(LATER, &[self.near.sge(0..1)], self.peer.remote(0), NONE);
        assert_eq!(later, 0, "a post on an ended connection");
        let result = active.initiator.wait_for_one();
        assert_eq!((result.Status, result.RequestContext as u64), (STATUS_CANCELLED, LATER));
        let passive = self.pair.passive.connector();
        assert!(passive.wait_for_disconnect(), "the peer gets a disconnect event");
        assert_eq!(passive.disconnect_events(), 1);
    }

    /// Nothing that was good memory has changed.
    fn assert_untouched(&self) {
        self.near.buffer.assert_seed(1, 0..LENGTH);
        self.peer.buffer.assert_seed(2, 0..LENGTH);
    }
}

/// Runs each of the operations that take local memory against a scatter/gather element that must be refused. `bad` makes the element
/// from a fresh scene; what it returns besides is kept alive until the end.
fn refused_locally<K>(operations: &[Use], bad: impl Fn(&Scene<'_>) -> (NDK_SGE, K)) {
    with_two_adapters(|first, second| {
        for operation in operations {
            let scene = Scene::new(first, second);
            let (sge, kept) = bad(&scene);
            let queue_pair = &scene.active().queue_pair;
            let status = match operation {
                Use::Write => queue_pair.write(OFFENDER, &[sge], scene.peer.remote(0), NONE),
                Use::Read => queue_pair.read(OFFENDER, &[sge], scene.peer.remote(0), NONE),
                Use::Send => {
                    let receive = [scene.peer.sge(0..LENGTH)];
                    assert_eq!(scene.pair.passive.queue_pair.receive(1, &receive), 0);
                    queue_pair.send(OFFENDER, &[sge], NONE)
                }
            };
            assert_eq!(status, 0, "a bad token is no reason to refuse a post");
            scene.assert_ended(STATUS_ACCESS_VIOLATION);
            scene.assert_untouched();
            drop(kept);
        }
    });
}

#[derive(Clone, Copy)]
enum Use {
    Read,
    Write,
    Send,
}

const ALL: [Use; 3] = [Use::Read, Use::Write, Use::Send];

fn local_token_unknown() {
    refused_locally(&ALL, |scene| (scene.near.buffer.whole(scene.near.local_token() ^ 0x0055_5555), ()));
}

fn local_token_zero() {
    refused_locally(&ALL, |scene| (scene.near.buffer.whole(0), ()));
}

fn local_token_of_a_deregistered_region() {
    refused_locally(&ALL, |scene| {
        let region = scene.active().domain.register(&scene.near.buffer, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
        let token = region.local_token();
        assert_eq!(region.deregister(), 0);
        (scene.near.buffer.whole(token), region)
    });
}

fn local_token_of_an_invalidated_region() {
    refused_locally(&ALL, |scene| {
        let token = invalidated(scene.active());
        (scene.near.buffer.whole(token), ())
    });
}

/// The remote token of a region that was fast-registered and invalidated again.
fn invalidated(end: &End<'_>) -> u32 {
    let window = Window::open(end, Buffer::scattered(LENGTH), WindowKind::FastRegistered);
    let region = window.region.as_ref().expect("a region");
    assert_eq!(end.queue_pair.invalidate(3, region.object(), NONE), 0);
    let result = end.initiator.wait_for_one();
    assert_eq!((result.Status, result.Type), (0, NdkOperationTypeInvalidate));
    window.remote_token()
}

fn local_token_of_a_closed_region() {
    refused_locally(&ALL, |scene| {
        let region = scene.active().domain.register(&scene.near.buffer, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
        let token = region.local_token();
        region.close();
        (scene.near.buffer.whole(token), ())
    });
}

fn local_sge_one_byte_before_its_region() {
    refused_locally(&ALL, |scene| (sge(scene.near.buffer.label() - 1, 2, scene.near.local_token()), ()));
}

fn local_sge_one_byte_past_its_region() {
    refused_locally(&ALL, |scene| {
        let last = scene.near.buffer.label() + LENGTH as u64 - 1;
        (sge(last, 2, scene.near.local_token()), ())
    });
}

fn local_sge_around_the_address_space() {
    refused_locally(&ALL, |scene| (sge(u64::MAX - 1, 64, scene.near.local_token()), ()));
}

fn local_sink_without_local_write() {
    refused_locally(&[Use::Read], |scene| {
        let region = scene.active().domain.register(&scene.near.buffer, NDK_MR_FLAG_ALLOW_REMOTE_READ);
        (scene.near.buffer.whole(region.local_token()), region)
    });
}

fn local_token_of_another_protection_domain() {
    refused_locally(&ALL, |scene| {
        let domain = ProtectionDomain::new(scene.active().adapter).expect("a protection domain");
        let region = domain.register(&scene.near.buffer, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
        (scene.near.buffer.whole(region.local_token()), (region, domain))
    });
}

fn privileged_token_with_an_address_one_byte_past_the_mapping() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        // The mapping ends with a whole page, so the byte after it is not even in the mapping's last page.
        let buffer = Buffer::new(8192, 0, kernel_host::FrameOrder::Scattered);
        let mapping = Mapping::build(first, &buffer).expect("a logical mapping");
        let last = mapping.address_of(8191);
        let bad = sge(last, 2, scene.active().domain.privileged_token());
        assert_eq!(scene.active().queue_pair.read(OFFENDER, &[bad], scene.peer.remote(0), NONE), 0);
        scene.assert_ended(STATUS_ACCESS_VIOLATION);
        buffer.assert_all(0);
    });
}

fn privileged_token_with_a_released_mapping() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let buffer = Buffer::scattered(8192);
        let mapping = Mapping::build(first, &buffer).expect("a logical mapping");
        let bad = sge(mapping.address_of(0), 8192, scene.active().domain.privileged_token());
        drop(mapping);
        assert_eq!(scene.active().queue_pair.read(OFFENDER, &[bad], scene.peer.remote(0), NONE), 0);
        scene.assert_ended(STATUS_ACCESS_VIOLATION);
        buffer.assert_all(0);
    });
}

fn privileged_token_of_another_protection_domain() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let domain = ProtectionDomain::new(first).expect("a protection domain");
        let buffer = Buffer::scattered(8192);
        let mapping = Mapping::build(first, &buffer).expect("a logical mapping");
        let bad = sge(mapping.address_of(0), 8192, domain.privileged_token());
        assert_eq!(scene.active().queue_pair.read(OFFENDER, &[bad], scene.peer.remote(0), NONE), 0);
        scene.assert_ended(STATUS_ACCESS_VIOLATION);
        buffer.assert_all(0);
    });
}

fn receive_into_memory_that_its_token_does_not_allow() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let passive = &scene.pair.passive;
        let read_only = passive.domain.register(&scene.peer.buffer, NDK_MR_FLAG_ALLOW_REMOTE_READ);
        assert_eq!(passive.queue_pair.receive(7, &[scene.peer.buffer.whole(read_only.local_token())]), 0);
        assert_eq!(scene.active().queue_pair.send(OFFENDER, &[scene.near.sge(0..LENGTH)], NONE), 0);
        let received = passive.receive.wait_for_one();
        assert_eq!((received.Status, received.RequestContext as u64), (STATUS_ACCESS_VIOLATION, 7));
        let sent = scene.active().initiator.wait_for_one();
        assert_eq!(sent.Status, peers::late(STATUS_REMOTE_RESOURCES), "the send that made its peer fail");
        scene.assert_untouched();
    });
}

/// Runs Read and Write against a remote address that must be refused.
fn refused_remotely<K>(operations: &[Use], length: usize, bad: impl Fn(&Scene<'_>) -> (Remote, K)) {
    with_two_adapters(|first, second| {
        for operation in operations {
            let scene = Scene::new(first, second);
            let (remote, kept) = bad(&scene);
            let near = [scene.near.sge(0..length)];
            let queue_pair: &QueuePair = &scene.active().queue_pair;
            let (status, refused) = match operation {
                Use::Read => (queue_pair.read(OFFENDER, &near, remote, NONE), STATUS_REMOTE_RESOURCES),
                Use::Write | Use::Send => {
                    (queue_pair.write(OFFENDER, &near, remote, NONE), peers::late(STATUS_REMOTE_RESOURCES))
                }
            };
            assert_eq!(status, 0, "a bad remote token is not known when a request is posted");
            scene.assert_ended(refused);
            scene.assert_untouched();
            drop(kept);
        }
    });
}

const REMOTE: [Use; 2] = [Use::Read, Use::Write];

fn remote_token_unknown() {
    refused_remotely(&REMOTE, 64, |scene| {
        (Remote { token: scene.peer.remote_token() ^ 0x0055_5555, ..scene.peer.remote(0) }, ())
    });
}

fn remote_token_of_a_deregistered_region() {
    refused_remotely(&REMOTE, 64, |scene| {
        let region = scene.pair.passive.domain.register(&scene.peer.buffer, full_rights());
        let remote = Remote { address: scene.peer.buffer.label(), token: region.remote_token() };
        assert_eq!(region.deregister(), 0);
        (remote, region)
    });
}

fn full_rights() -> NDK_MR_FLAGS {
    NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE
}

fn remote_token_of_an_invalidated_region() {
    refused_remotely(&REMOTE, 64, |scene| {
        let token = invalidated(&scene.pair.passive);
        (Remote { address: scene.peer.buffer.label(), token }, ())
    });
}

fn remote_token_of_a_closed_region() {
    refused_remotely(&REMOTE, 64, |scene| {
        let region = scene.pair.passive.domain.register(&scene.peer.buffer, full_rights());
        let token = region.remote_token();
        region.close();
        (Remote { address: scene.peer.buffer.label(), token }, ())
    });
}

fn remote_range_one_byte_before_its_region() {
    refused_remotely(&REMOTE, 2, |scene| {
        (Remote { address: scene.peer.buffer.label() - 1, ..scene.peer.remote(0) }, ())
    });
}

fn remote_range_one_byte_past_its_region() {
    refused_remotely(&REMOTE, 2, |scene| (scene.peer.remote(LENGTH - 1), ()));
}

fn remote_range_around_the_address_space() {
    refused_remotely(&REMOTE, 64, |scene| (Remote { address: u64::MAX - 1, ..scene.peer.remote(0) }, ()));
}

fn remote_read_without_the_right() {
    refused_remotely(&[Use::Read], 64, |scene| {
        let region = scene.pair.passive.domain.register(&scene.peer.buffer, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
        (Remote { token: region.remote_token(), ..scene.peer.remote(0) }, region)
    });
}

fn remote_write_without_the_right() {
    refused_remotely(&[Use::Write], 64, |scene| {
        let rights = NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
        let region = scene.pair.passive.domain.register(&scene.peer.buffer, rights);
        (Remote { token: region.remote_token(), ..scene.peer.remote(0) }, region)
    });
}

fn remote_token_of_another_protection_domain() {
    refused_remotely(&REMOTE, 64, |scene| {
        let domain = ProtectionDomain::new(scene.pair.passive.adapter).expect("a protection domain");
        let region = domain.register(&scene.peer.buffer, full_rights());
        (Remote { token: region.remote_token(), ..scene.peer.remote(0) }, (region, domain))
    });
}

fn privileged_token_as_remote_token() {
    with_two_adapters(|first, second| {
        for write in [false, true] {
            let scene = Scene::new(first, second);
            let passive = &scene.pair.passive;
            // The address of memory that is mapped, so that only the token is wrong.
            let buffer = Buffer::scattered(4096);
            let mapping = Mapping::build(second, &buffer).expect("a logical mapping");
            let remote = Remote { address: mapping.address_of(0), token: passive.domain.privileged_token() };
            let near = [scene.near.sge(0..64)];
            let queue_pair = &scene.active().queue_pair;
            let (status, refused) = if write {
                (queue_pair.write(OFFENDER, &near, remote, NONE), peers::late(STATUS_REMOTE_RESOURCES))
            } else {
                (queue_pair.read(OFFENDER, &near, remote, NONE), STATUS_REMOTE_RESOURCES)
            };
            assert_eq!(status, 0);
            scene.assert_ended(refused);
            scene.assert_untouched();
            buffer.assert_all(0);
        }
    });
}

fn fast_registered_region_ends_where_it_says() {
    with_two_adapters(|first, second| {
        for (offset, length) in [(-1, 2), (LENGTH as i64 - 1, 2)] {
            let scene = Scene::new(first, second);
            let peer = Window::open(&scene.pair.passive, Buffer::scattered(LENGTH), WindowKind::FastRegistered);
            let remote =
                Remote { address: peer.buffer.label().wrapping_add_signed(offset), token: peer.remote_token() };
            let near = [scene.near.sge(0..length)];
            assert_eq!(scene.active().queue_pair.write(OFFENDER, &near, remote, NONE), 0);
            scene.assert_ended(peers::late(STATUS_REMOTE_RESOURCES));
            peer.buffer.assert_all(0);
        }
    });
}
