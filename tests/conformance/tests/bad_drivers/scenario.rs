//! What the host does with a bad driver or its twin: the same for both, far enough that the rule has to be met.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use conformance::consumer::{Adapter, CompletionQueue, Connector, ProtectionDomain};
use conformance::machine::inx;
use kernel_host::inf::AdapterConfig;
use kernel_host::ndis::data_path::Frame;
use kernel_host::ndis::oid::{Direction, ETHERNET, NDK, OID_NDK_SET_STATE};
use kernel_host::{Driver, Kernel, KernelConfig};
use ndkpi_sys::ndkinfo::NDK_VERSION;
use ndkpi_sys::ndkpi::NDK_CQ_NOTIFY_ANY;
use ndkpi_sys::nt::STATUS_CANCELLED;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Load, unload.
    Load,
    /// Load, start an adapter, every mandatory OID, pause, restart, a frame each way, open NDK, create and close a
    /// protection domain, arm a completion queue twice, have a connection that the peer ends, close, remove, unload.
    Adapter,
    /// Load, start an adapter, open the control device, a control that completes, one that pends, close, one that pends
    /// when its thread ends, remove, unload.
    Device,
    /// Load an image one of whose imports has a name that no module exports.
    UnknownImport,
    /// Start an adapter whose INF lacks a mandatory keyword.
    MissingKeyword,
}

impl Scenario {
    const ALL: [Self; 5] = [Self::Load, Self::Adapter, Self::Device, Self::UnknownImport, Self::MissingKeyword];

    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Adapter => "adapter",
            Self::Device => "device",
            Self::UnknownImport => "unknown import",
            Self::MissingKeyword => "missing keyword",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scenario| scenario.name() == name)
    }

    /// What the child process runs.
    pub fn body(self) -> fn() {
        match self {
            Self::Load => load_and_unload,
            Self::Adapter => adapter_life,
            Self::Device => device_life,
            Self::UnknownImport => unknown_import,
            Self::MissingKeyword => missing_keyword,
        }
    }
}

fn service() -> String {
    std::env::var(super::SERVICE).expect("a service name")
}

/// Whether this is the good twin.
fn is_good() -> bool {
    service().rsplit_once('.').is_some_and(|(_, twin)| twin == "good")
}

fn boot() -> (Kernel, Driver) {
    let kernel = Kernel::boot(KernelConfig { hang_limit: Some(Duration::from_secs(10)), ..KernelConfig::default() });
    let path = std::env::var_os(super::IMAGE).expect("the path of the image");
    let driver = kernel.load_driver(path, &service()).unwrap_or_else(|error| panic!("loading: {error}"));
    (kernel, driver)
}

/// Unloads, and nothing may be left.
fn end(kernel: Kernel, driver: Driver) {
    driver.unload();
    let report = kernel.shutdown();
    assert!(report.is_clean(), "{report}");
}

fn load_and_unload() {
    let (kernel, driver) = boot();
    end(kernel, driver);
}

fn config() -> AdapterConfig {
    let config = AdapterConfig::from_inx(&inx()).expect("a configuration from the INF");
    config.with_address(Ipv4Addr::new(10, 0, 0, 1).into(), 24)
}

fn adapter_life() {
    let (kernel, driver) = boot();
    let adapter = kernel.add_adapter(&driver, config()).unwrap_or_else(|error| panic!("starting: {error}"));
    for mandatory in ETHERNET.iter().chain(NDK) {
        if mandatory.direction != Direction::Set {
            adapter.query_oid(mandatory.oid, 256).expect("a started adapter");
        }
    }
    adapter.set_oid(OID_NDK_SET_STATE, &[1]).expect("a started adapter");
    adapter.restart().expect("pause and restart");
    frames(&adapter);
    let opened = adapter.open_ndk(NDK_VERSION { Major: 2, Minor: 0 }).expect("an NDK adapter");
    let consumer = Adapter::new(opened, Vec::new());
    let domain = ProtectionDomain::new(&consumer).expect("a protection domain");
    conformance::machine::settle();
    domain.close();
    notifications(&consumer);
    disconnect(&consumer);
    drop(consumer);
    conformance::consumer::completion::verify_all();
    adapter.remove();
    drop(adapter);
    end(kernel, driver);
}

/// One frame out and one in, which stays with the host for a while.
fn frames(adapter: &kernel_host::Adapter) {
    adapter.keep_received(true).expect("a started adapter");
    let sent = adapter.send(vec![Frame::from(vec![0xFF; 60])]).expect("a running adapter");
    conformance::machine::settle();
    adapter.keep_received(false).expect("a started adapter");
    adapter.return_received().expect("a started adapter");
    adapter.restart().expect("pause and restart");
    assert_eq!(sent.wait(), [0], "the frame was sent");
}

/// A completion queue that is armed, and armed again by its first notification.
fn notifications(consumer: &Adapter) {
    let queue = Arc::new(CompletionQueue::new(consumer, 8).expect("a completion queue"));
    let (again, mut first) = (Arc::clone(&queue), true);
    queue.on_notification(move || {
        if std::mem::take(&mut first) {
            again.arm(NDK_CQ_NOTIFY_ANY);
        }
    });
    queue.arm(NDK_CQ_NOTIFY_ANY);
    conformance::machine::settle();
    assert_eq!(queue.notification_count(), 2, "each arm brings a notification");
    queue.on_notification(|| {});
    queue.close();
}

/// A connection that the peer ends as soon as it stands.
fn disconnect(consumer: &Adapter) {
    let connector = Connector::new(consumer).expect("a connector");
    assert_eq!(connector.begin_complete_connect().wait(), 0, "the connection stands");
    assert!(connector.wait_for_disconnect(), "the peer has left");
    conformance::machine::settle();
    connector.close();
}

/// CTL_CODE(0x8BAD, function, METHOD_BUFFERED, READ | WRITE) of the bad device.
const fn control(function: u32) -> u32 {
    (0x8BAD << 16) | (3 << 14) | (function << 2)
}

const GENERIC_READ_WRITE: u32 = 0xC000_0000;

fn device_life() {
    let (kernel, driver) = boot();
    let adapter = kernel.add_adapter(&driver, config()).unwrap_or_else(|error| panic!("starting: {error}"));
    let file = kernel.open_device(r"\\.\SoftNdkBad", GENERIC_READ_WRITE).expect("the control device");
    let mut output = [0; 16];
    let result = file.ioctl(control(0x800), &[1, 2, 3], &mut output);
    assert_eq!((result.status, result.information), (0, 0));
    let pending = file.start_ioctl(control(0x801), &[], 16).expect("a pended control");
    assert!(!pending.is_completed());
    file.close();
    assert!(pending.is_completed(), "a packet survived the cleanup of its file");
    call_of_a_thread_that_ends(&kernel);
    adapter.remove();
    drop(adapter);
    end(kernel, driver);
}

/// A thread sends a control that pends and ends.
fn call_of_a_thread_that_ends(kernel: &Kernel) {
    let file = kernel.open_device(r"\\.\SoftNdkBad", GENERIC_READ_WRITE).expect("the control device");
    let caller = kernel.spawn("a caller that ends", move || {
        let pending = file.start_ioctl(control(0x801), &[], 16).expect("a pended control");
        (file, pending)
    });
    let (file, pending) = caller.join();
    let result = pending.wait();
    assert_eq!(result.status, STATUS_CANCELLED, "a packet outlived its thread");
    file.close();
}

/// Loads a copy of the image in which one import was renamed; the good twin renames it to a name that exists.
fn unknown_import() {
    let kernel = Kernel::boot(KernelConfig::default());
    let path = std::env::var_os(super::IMAGE).expect("the path of the image");
    let mut bytes = std::fs::read(path).expect("the image");
    let good = is_good();
    let old = b"KeCancelTimer\0";
    let new = if good { b"KeCancelTimer\0" } else { b"KeCancelTimes\0" };
    let place = bytes.windows(old.len()).position(|window| window == old).expect("the import to rename");
    bytes[place..place + new.len()].copy_from_slice(new);
    let copy = std::env::temp_dir().join(format!("bad_drivers_{}.sys", std::process::id()));
    std::fs::write(&copy, bytes).expect("a copy of the image");
    let loaded = kernel.load_driver(&copy, "size-zero.good");
    std::fs::remove_file(&copy).expect("the copy removed");
    end(kernel, loaded.unwrap_or_else(|error| panic!("loading: {error}")));
}

fn missing_keyword() {
    let good = is_good();
    let kernel = Kernel::boot(KernelConfig::default());
    let path = std::env::var_os(super::IMAGE).expect("the path of the image");
    let driver = kernel.load_driver(path, "null-slot.good").unwrap_or_else(|error| panic!("loading: {error}"));
    let config = if good { config() } else { config().without_keyword("*MediaType") };
    let adapter = kernel.add_adapter(&driver, config).unwrap_or_else(|error| panic!("starting: {error}"));
    adapter.remove();
    drop(adapter);
    end(kernel, driver);
}
