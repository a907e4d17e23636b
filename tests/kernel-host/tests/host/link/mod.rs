//! A host with one adapter of the real driver image, and a machine at the other end of its wire: a second adapter, with a stack whose
//! addresses the host does not have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kernel_host::inf::{AdapterConfig, InterfaceAddress, Inx};
use kernel_host::stack::{FrameFilter, StackConfig, StackStream, TcpIpStack};
use kernel_host::{Adapter, Driver, Kernel, KernelConfig};

use crate::child;

pub const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
pub const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
pub const NEAR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xFD77, 0, 0, 0, 0, 0, 0x1234, 1));
pub const FAR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xFD77, 0, 0, 0, 0, 0, 0x5678, 2));
/// What a callout may use of a kernel stack of 24 KiB.
const STACK_LIMIT: usize = 16 << 10;
pub const SECOND: Duration = Duration::from_secs(1);
pub const MINUTE: Duration = Duration::from_mins(1);

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The image that `SOFTNDK_IMAGE` names, or that `cargo xtask driver` leaves; it has to be built before.
pub fn image() -> PathBuf {
    if let Some(named) = std::env::var_os("SOFTNDK_IMAGE") {
        return PathBuf::from(named);
    }
    let images = ["target/driver/x64/debug/softndk.sys", "target/driver/x64/release/softndk.sys"];
    let found = images.iter().map(|image| root().join(image)).find(|image| image.exists());
    found.expect("no driver image: build it with \"cargo xtask driver\"")
}

/// A host with one adapter, and a machine at the other end of its wire.
pub struct Link {
    pub kernel: Kernel,
    pub driver: Driver,
    pub near: Adapter,
    pub far: Adapter,
    pub here: Arc<TcpIpStack>,
    pub there: Arc<TcpIpStack>,
}

pub fn foreign() -> StackConfig {
    let address = |address, prefix_length| InterfaceAddress { address, prefix_length };
    StackConfig { foreign: Some(vec![address(FAR, 24), address(FAR_V6, 64)]), reentrant: false }
}

impl Link {
    pub fn boot(config: KernelConfig) -> Self {
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

    pub fn end(self) {
        self.driver.unload();
        let report = self.kernel.shutdown();
        assert!(report.is_clean(), "{report}");
        for (kind, used) in &report.stack_marks {
            assert!(*used < STACK_LIMIT, "the kernel stack below {kind:?} was {used} bytes deep\n{report}");
        }
    }

    /// A connection from here to a port over there: both ends.
    pub fn connected(&self) -> [StackStream; 2] {
        connected(&self.here, &self.there, SocketAddr::new(FAR, 7000))
    }
}

pub fn connected(here: &Arc<TcpIpStack>, there: &Arc<TcpIpStack>, to: SocketAddr) -> [StackStream; 2] {
    let port = there.tcp_listen(to).expect("a free port");
    let near = here.tcp_connect(to, MINUTE).expect("a listener");
    let far = port.accept(MINUTE).expect("a connection");
    assert_eq!(near.addresses().map(|(_, remote)| remote), Some(to));
    [near, far]
}

/// Bytes that differ from position to position and from one start to another.
pub fn pattern(count: usize, start: u64) -> Vec<u8> {
    let value = |index: u64| (index + start).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()[7];
    (0..count as u64).map(value).collect()
}

/// Sends one way on a thread of its own while the caller receives.
pub fn transfer(kernel: &Kernel, from: StackStream, to: &StackStream, bytes: Vec<u8>) -> StackStream {
    let sent = bytes.clone();
    let sender = kernel.spawn("sender", move || {
        from.send(&sent, MINUTE).expect("it is taken");
        from
    });
    assert_eq!(to.receive_exact(bytes.len(), MINUTE), Ok(bytes));
    sender.join()
}

/// Loses one frame in so many, at random: in a fixed rhythm it could be the same segment each time.
pub fn losing_one_in(count: u64) -> FrameFilter {
    let seen = AtomicU64::new(0);
    Box::new(move |_, _| {
        let value = (seen.fetch_add(1, Ordering::Relaxed) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 27)) >> 8 & 0xFFFF_FFFF >= (1 << 32) / count
    })
}

pub fn in_child(test: &str, body: impl FnOnce()) {
    if let Some(outcome) = child::in_child(test, || {}, body) {
        outcome.expect_success();
    }
}
