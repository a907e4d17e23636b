//! TCP/IP over the frames of the real driver image: two adapters on one wire, the second with the stack of another machine.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[allow(dead_code, reason = "other test files use the rest of it")]
mod child;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kernel_host::inf::{AdapterConfig, InterfaceAddress, Inx};
use kernel_host::stack::{FrameDirection, FrameFilter, StackConfig, StackError, StackStream, TcpIpStack};
use kernel_host::{Adapter, Driver, HaltAction, Kernel, KernelConfig, Mode, dispatcher};

const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
const NEAR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xFD77, 0, 0, 0, 0, 0, 0x1234, 1));
const FAR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xFD77, 0, 0, 0, 0, 0, 0x5678, 2));
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The image that `SOFTNDK_IMAGE` names, or that `cargo xtask driver` leaves; it has to be built before.
fn image() -> PathBuf {
    if let Some(named) = std::env::var_os("SOFTNDK_IMAGE") {
        return PathBuf::from(named);
    }
    let images = ["target/driver/x64/debug/softndk.sys", "target/driver/x64/release/softndk.sys"];
    let found = images.iter().map(|image| root().join(image)).find(|image| image.exists());
    found.expect("no driver image: build it with \"cargo xtask driver\"")
}

/// A host with one adapter, and a machine at the other end of its wire.
struct Link {
    kernel: Kernel,
    driver: Driver,
    near: Adapter,
    far: Adapter,
    here: Arc<TcpIpStack>,
    there: Arc<TcpIpStack>,
}

fn foreign() -> StackConfig {
    let address = |address, prefix_length| InterfaceAddress { address, prefix_length };
    StackConfig { foreign: Some(vec![address(FAR, 24), address(FAR_V6, 64)]), reentrant: false }
}

impl Link {
    fn boot(config: KernelConfig) -> Self {
        let kernel = Kernel::boot(KernelConfig { stacks: true, ..config });
        let inx = Inx::load(root().join("inf/softndk.inx")).expect("the INF is readable");
        let driver = kernel.load_driver(image(), "softndk").expect("the driver loads");
        let config = || AdapterConfig::from_inx(&inx).expect("the INF installs");
        let own = config().with_address(NEAR, 24).with_address(NEAR_V6, 64);
        let near = kernel.add_adapter(&driver, own).expect("the adapter starts");
        let far = kernel.add_adapter(&driver, config()).expect("the adapter starts");
        let here = near.stack().expect("each adapter has a stack");
        let there = far.bind_stack(foreign()).expect("the adapter runs");
        Self { kernel, driver, near, far, here, there }
    }

    fn end(self) {
        self.driver.unload();
        let report = self.kernel.shutdown();
        assert!(report.is_clean(), "{report}");
    }

    /// A connection from here to a port over there: both ends.
    fn connected(&self) -> [StackStream; 2] {
        connected(&self.here, &self.there, SocketAddr::new(FAR, 7000))
    }
}

fn connected(here: &Arc<TcpIpStack>, there: &Arc<TcpIpStack>, to: SocketAddr) -> [StackStream; 2] {
    let port = there.tcp_listen(to).expect("a free port");
    let near = here.tcp_connect(to, MINUTE).expect("a listener");
    let far = port.accept(MINUTE).expect("a connection");
    assert_eq!(near.addresses().map(|(_, remote)| remote), Some(to));
    [near, far]
}

/// Bytes that differ from position to position and from one start to another.
fn pattern(count: usize, start: u64) -> Vec<u8> {
    let value = |index: u64| (index + start).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()[7];
    (0..count as u64).map(value).collect()
}

/// Sends one way on a thread of its own while the caller receives.
fn transfer(kernel: &Kernel, from: StackStream, to: &StackStream, bytes: Vec<u8>) -> StackStream {
    let sent = bytes.clone();
    let sender = kernel.spawn("sender", move || {
        from.send(&sent, MINUTE).expect("it is taken");
        from
    });
    assert_eq!(to.receive_exact(bytes.len(), MINUTE), Ok(bytes));
    sender.join()
}

/// Loses one frame in so many, from the first on.
fn losing_one_in(count: u64) -> FrameFilter {
    let seen = AtomicU64::new(0);
    Box::new(move |_, _| seen.fetch_add(1, Ordering::Relaxed) % count != 0)
}

fn in_child(test: &str, body: impl FnOnce()) {
    if let Some(outcome) = child::in_child(test, || {}, body) {
        outcome.expect_success();
    }
}

fn pings(link: &Link) {
    for length in [0, 1, 1422, 1472] {
        let data = pattern(length, 7);
        assert_eq!(link.here.ping(FAR, &data, SECOND), Some(data.clone()), "{length} bytes");
        assert_eq!(link.there.ping(NEAR, &data, SECOND), Some(data), "{length} bytes back");
    }
    for length in [0, 1, 1452] {
        let data = pattern(length, 9);
        assert_eq!(link.here.ping(FAR_V6, &data, 3 * SECOND), Some(data.clone()), "{length} bytes");
        assert_eq!(link.there.ping(NEAR_V6, &data, 3 * SECOND), Some(data), "{length} bytes back");
    }
    let nobody = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 9));
    let before = dispatcher::now();
    assert_eq!(link.here.ping(nobody, &[1], 4 * SECOND), None);
    assert!(dispatcher::now() - before >= 4 * dispatcher::UNITS_PER_SECOND);
    assert_eq!(link.here.ping(IpAddr::V4(Ipv4Addr::new(10, 78, 0, 1)), &[1], SECOND), None, "not on the link");
}

#[test]
fn echo_requests_are_answered_both_ways() {
    in_child("echo_requests_are_answered_both_ways", || {
        let link = Link::boot(KernelConfig::default());
        pings(&link);
        assert!(link.near.take_received().expect("it runs").len() > 10, "tests still see the frames");
        link.end();
    });
}

#[test]
fn echo_requests_are_answered_in_other_orders() {
    const TEST: &str = "echo_requests_are_answered_in_other_orders";
    const SEED: &str = "STACK_SEED";
    if let Ok(seed) = std::env::var(SEED) {
        let link = Link::boot(KernelConfig { schedule: seed.parse().ok(), ..KernelConfig::default() });
        pings(&link);
        return link.end();
    }
    for seed in 1..=4 {
        child::in_child_with(TEST, &[(SEED, &seed.to_string())]).expect_success();
    }
}

fn datagrams(link: &Link) {
    let (near, far) = (link.here.udp(0).expect("a port"), link.there.udp(5353).expect("a port"));
    for length in [0, 1, 1472] {
        let data = pattern(length, 3);
        assert!(near.send(SocketAddr::new(FAR, 5353), &data));
        let (received, from) = far.receive(SECOND).expect("a datagram");
        assert_eq!((received, from), (data.clone(), SocketAddr::new(NEAR, near.port())));
        assert!(far.send(from, &data));
        assert_eq!(near.receive(SECOND), Some((data, SocketAddr::new(FAR, 5353))));
    }
    assert_eq!(near.receive(SECOND), None);
}

fn streams(link: &Link, to: IpAddr) {
    let [near, far] = connected(&link.here, &link.there, SocketAddr::new(to, 7000));
    let near = transfer(&link.kernel, near, &far, pattern(1 << 20, 1));
    let far = transfer(&link.kernel, far, &near, pattern(1 << 20, 2));
    near.finish();
    assert_eq!(far.receive(100, MINUTE), Ok(Vec::new()));
    far.send(b"last", MINUTE).expect("this direction is open");
    assert_eq!(near.receive_exact(4, MINUTE), Ok(b"last".to_vec()));
    far.finish();
    assert_eq!(near.receive(100, MINUTE), Ok(Vec::new()));
    let refused = link.here.tcp_connect(SocketAddr::new(to, 7001), MINUTE);
    assert_eq!(refused.err(), Some(StackError::Refused));
}

#[test]
fn datagrams_and_streams_cross_the_wire() {
    in_child("datagrams_and_streams_cross_the_wire", || {
        let link = Link::boot(KernelConfig::default());
        datagrams(&link);
        streams(&link, FAR);
        streams(&link, FAR_V6);
        link.end();
    });
}

#[test]
fn datagrams_and_streams_cross_the_wire_in_fast_mode() {
    in_child("datagrams_and_streams_cross_the_wire_in_fast_mode", || {
        let link = Link::boot(KernelConfig { mode: Mode::Fast, ..KernelConfig::default() });
        datagrams(&link);
        streams(&link, FAR);
        link.end();
    });
}

#[test]
fn one_frame_in_ten_is_lost_and_all_bytes_arrive() {
    in_child("one_frame_in_ten_is_lost_and_all_bytes_arrive", || {
        let link = Link::boot(KernelConfig::default());
        link.here.set_filter(Some(losing_one_in(10)));
        let [near, far] = link.connected();
        let near = transfer(&link.kernel, near, &far, pattern(200_000, 1));
        drop(transfer(&link.kernel, far, &near, pattern(200_000, 2)));
        link.here.set_filter(None);
        link.end();
    });
}

#[test]
fn a_peer_that_vanishes_ends_the_connection_after_its_retransmissions() {
    in_child("a_peer_that_vanishes_ends_the_connection_after_its_retransmissions", || {
        let link = Link::boot(KernelConfig::default());
        let [near, far] = link.connected();
        near.send(&[1; 100], SECOND).expect("it is taken");
        assert_eq!(far.receive_exact(100, MINUTE), Ok(vec![1; 100]));
        near.flush(MINUTE).expect("it is acknowledged");
        let sent = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&sent);
        // From now on the machine over there neither sees nor sends anything.
        link.there.set_filter(Some(Box::new(|_, _| false)));
        link.here.set_filter(Some(Box::new(move |direction, _| {
            counted.fetch_add(u64::from(direction == FrameDirection::Sent), Ordering::Relaxed);
            true
        })));
        let (real, before) = (std::time::Instant::now(), dispatcher::now());
        near.send(&[2; 3000], SECOND).expect("it is taken");
        assert_eq!(near.flush(2 * MINUTE), Err(StackError::Broken));
        let passed = (dispatcher::now() - before) / dispatcher::UNITS_PER_SECOND;
        assert!((15..60).contains(&passed), "{passed} s");
        assert!((4..100).contains(&sent.load(Ordering::Relaxed)), "{} frames", sent.load(Ordering::Relaxed));
        assert!(real.elapsed() < MINUTE, "the time is skipped");
        link.end();
    });
}

#[test]
fn adapters_pause_restart_and_halt_under_a_stack() {
    in_child("adapters_pause_restart_and_halt_under_a_stack", || {
        let link = Link::boot(KernelConfig::default());
        for adapter in [&link.near, &link.far] {
            let [near, far] = link.connected();
            let bytes = pattern(300_000, 5);
            let sent = bytes.clone();
            let sender = link.kernel.spawn("sender", move || {
                near.send(&sent, MINUTE).expect("it is taken");
                near
            });
            let mut received = far.receive_exact(50_000, MINUTE).expect("it comes");
            adapter.pause().expect("pauses");
            link.kernel.sleep(SECOND);
            adapter.restart().expect("restarts");
            received.extend(far.receive_exact(100_000, MINUTE).expect("it comes again"));
            adapter.restart().expect("pauses and restarts");
            received.extend(far.receive_exact(150_000, MINUTE).expect("it comes again"));
            assert!(received == bytes);
            drop(sender.join());
        }
        let [near, far] = link.connected();
        near.send(&[3; 20_000], MINUTE).expect("it is taken");
        link.near.halt(HaltAction::DeviceDisabled).expect("halts");
        assert_eq!(near.receive(1, MINUTE), Err(StackError::Broken));
        link.near.start().expect("starts");
        let again = link.near.stack().expect("a new stack");
        assert_eq!(again.ping(FAR, b"again", 3 * SECOND), Some(b"again".to_vec()));
        link.near.surprise_remove().expect("is pulled out");
        drop((near, far));
        link.end();
    });
}

#[test]
fn a_reentrant_stack_answers_inside_the_indication() {
    in_child("a_reentrant_stack_answers_inside_the_indication", || {
        let mut link = Link::boot(KernelConfig::default());
        link.there = link.far.bind_stack(StackConfig { reentrant: true, ..foreign() }).expect("it runs");
        assert_eq!(link.here.ping(FAR, b"now", 3 * SECOND), Some(b"now".to_vec()));
        let [near, far] = link.connected();
        drop(transfer(&link.kernel, near, &far, pattern(100_000, 1)));
        drop(far);
        link.end();
    });
}
