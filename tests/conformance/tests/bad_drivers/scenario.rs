//! The calls that the host makes to a bad driver or its twin: the same for both, up to the call that the rule is about.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conformance::consumer::{Adapter, CompletionQueue, Connector, ProtectionDomain};
use conformance::machine::inx;
use kernel_host::inf::AdapterConfig;
use kernel_host::irql;
use kernel_host::memory::user_buffer::UserBuffer;
use kernel_host::ndis::data_path::Frame;
use kernel_host::ndis::oid::{Direction, ETHERNET, NDK, OID_NDK_SET_STATE};
use kernel_host::registry;
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
    /// Load, start an adapter, three frames 16 seconds apart, remove, unload.
    RareFrames,
    /// Load, start an adapter, open the control device, a control that completes, one that pends, close, one that pends
    /// when its thread ends, controls with buffers
    /// and cancels of other kinds, remove, unload.
    Device,
    /// Load an image one of whose imports has a name that no module exports.
    UnknownImport,
    /// Start an adapter whose INF lacks a mandatory keyword.
    MissingKeyword,
    /// Load a copy of the image one of whose sections is writable and executable.
    WritableCode,
    /// Load a copy of the image whose sections are aligned to less than a page.
    UnalignedSections,
    /// Load a copy of the image whose import address table can be executed.
    ExecutableImports,
}

impl Scenario {
    const ALL: [Self; 9] = [
        Self::Load,
        Self::Adapter,
        Self::RareFrames,
        Self::Device,
        Self::UnknownImport,
        Self::MissingKeyword,
        Self::WritableCode,
        Self::UnalignedSections,
        Self::ExecutableImports,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Adapter => "adapter",
            Self::RareFrames => "rare frames",
            Self::Device => "device",
            Self::UnknownImport => "unknown import",
            Self::MissingKeyword => "missing keyword",
            Self::WritableCode => "writable code",
            Self::UnalignedSections => "unaligned sections",
            Self::ExecutableImports => "executable imports",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scenario| scenario.name() == name)
    }

    /// What the child process runs.
    pub fn body(self) -> fn() {
        match self {
            Self::Load => load_and_unload,
            Self::Adapter => adapter_life_cycle,
            Self::RareFrames => rare_frames,
            Self::Device => device_life_cycle,
            Self::UnknownImport => unknown_import,
            Self::MissingKeyword => missing_keyword,
            Self::WritableCode => writable_code,
            Self::UnalignedSections => unaligned_sections,
            Self::ExecutableImports => executable_imports,
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
    let kernel = Kernel::boot(config_of_kernel());
    let driver = load(&kernel);
    (kernel, driver)
}

fn config_of_kernel() -> KernelConfig {
    KernelConfig { hang_limit: Some(Duration::from_secs(10)), ..KernelConfig::default() }
}

fn load(kernel: &Kernel) -> Driver {
    let path = std::env::var_os(super::IMAGE).expect("the path of the image");
    kernel.load_driver(path, &service()).unwrap_or_else(|error| panic!("loading: {error}"))
}

/// Unloads, and nothing may be left.
fn end(kernel: Kernel, driver: Driver) {
    driver.unload();
    let report = kernel.shutdown();
    assert!(report.is_clean(), "{report}");
}

/// The parameters that a driver finds hold the address of a user program's buffer.
fn load_and_unload() {
    let kernel = Kernel::boot(config_of_kernel());
    let buffer = UserBuffer::new(64);
    let address = (buffer.address() as u64).to_le_bytes().to_vec();
    let value = registry::Value { kind: registry::REG_BINARY, data: address };
    registry::set(&registry::parameters_path("BadDrivers"), "UserBuffer", value);
    let driver = load(&kernel);
    end(kernel, driver);
}

fn config() -> AdapterConfig {
    let config = AdapterConfig::from_inx(&inx()).expect("a configuration from the INF");
    config.with_address(Ipv4Addr::new(10, 0, 0, 1).into(), 24)
}

fn adapter_life_cycle() {
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
    conformance::machine::wait_until_idle();
    domain.close();
    notifications(&consumer);
    disconnect(&consumer);
    drop(consumer);
    conformance::consumer::completion::verify_all();
    adapter.remove();
    drop(adapter);
    end(kernel, driver);
}

/// The first frame is waited for in the end: the miniport has time to be late.
fn rare_frames() {
    let (kernel, driver) = boot();
    let adapter = kernel.add_adapter(&driver, config()).unwrap_or_else(|error| panic!("starting: {error}"));
    adapter.restart().expect("pause and restart");
    let frame = || vec![Frame::from(vec![0xFF; 60])];
    let first = adapter.send(frame()).expect("a running adapter");
    for _ in 0..2 {
        kernel.sleep(Duration::from_secs(16));
        let sent = adapter.send(frame()).expect("a running adapter");
        assert_eq!(sent.wait(), [0], "the frame was sent");
    }
    assert_eq!(first.wait(), [0], "the frame was sent");
    adapter.remove();
    drop(adapter);
    end(kernel, driver);
}

/// One frame out and one in at each level; those that come in stay with the host for a while.
fn frames(adapter: &kernel_host::Adapter) {
    let give = || adapter.send(vec![Frame::from(vec![0xFF; 60])]).expect("a running adapter");
    adapter.keep_received(true).expect("a started adapter");
    let sent = give();
    let before = irql::raise(irql::DISPATCH);
    let sent_above = give();
    irql::lower(before);
    conformance::machine::wait_until_idle();
    adapter.keep_received(false).expect("a started adapter");
    adapter.return_received().expect("a started adapter");
    adapter.restart().expect("pause and restart");
    assert_eq!((sent.wait(), sent_above.wait()), (vec![0], vec![0]), "the frames were sent");
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
    conformance::machine::wait_until_idle();
    assert_eq!(queue.notification_count(), 2, "each arm brings a notification");
    queue.on_notification(|| {});
    queue.close();
}

/// A connection that the peer ends as soon as it is established.
fn disconnect(consumer: &Adapter) {
    let connector = Connector::new(consumer).expect("a connector");
    assert_eq!(connector.begin_complete_connect().wait(), 0, "the connection is established");
    assert!(connector.wait_for_disconnect(), "the peer has left");
    conformance::machine::wait_until_idle();
    connector.close();
}

/// CTL_CODE(0x8BAD, function, METHOD_BUFFERED, READ | WRITE) of the bad device.
const fn control(function: u32) -> u32 {
    (0x8BAD << 16) | (3 << 14) | (function << 2)
}

const GENERIC_READ_WRITE: u32 = 0xC000_0000;

fn device_life_cycle() {
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
    more_controls(&kernel);
    adapter.remove();
    drop(adapter);
    end(kernel, driver);
}

/// A control that pends in another way, one that is cancelled before the driver has it, a buffer to read.
fn more_controls(kernel: &Kernel) {
    const IN_DIRECT: u32 = 1;
    let file = kernel.open_device(r"\\.\SoftNdkBad", GENERIC_READ_WRITE).expect("the control device");
    let pending = file.start_ioctl(control(0x803), &[], 16).expect("a pended control");
    assert!(pending.cancel());
    assert_eq!(pending.wait().status, STATUS_CANCELLED);
    let cancelled = file.start_ioctl_cancelled(control(0x801), &[], 16).expect("a cancelled control");
    assert_eq!(cancelled.wait().status, STATUS_CANCELLED);
    let mut buffer = UserBuffer::from_slice(&[7; 64]);
    assert_eq!(file.ioctl_direct(control(0x804) | IN_DIRECT, &[], &mut buffer).status, 0);
    file.close();
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

/// Loads a copy of the image in which one import was renamed to a name that does not exist.
fn unknown_import() {
    load_patched(|bytes| {
        let old = b"KeCancelTimer\0";
        let place = bytes.windows(old.len()).position(|window| window == old).expect("the import to rename");
        bytes[place..place + old.len()].copy_from_slice(b"KeCancelTimes\0");
    });
}

/// Offsets in a PE file: of the new header in the old one, and from the new header on.
const NEW_HEADER: usize = 0x3C;
const SIZE_OF_OPTIONAL_HEADER: usize = 20;
const OPTIONAL_HEADER: usize = 24;
const SECTION_ALIGNMENT: usize = OPTIONAL_HEADER + 32;
const NUMBER_OF_SECTIONS: usize = 6;
/// The thirteenth data directory of an optional header of 64 bits.
const IMPORT_ADDRESS_TABLE: usize = OPTIONAL_HEADER + 112 + 12 * 8;
const SECTION_HEADER: usize = 40;
const SECTION_VIRTUAL_SIZE: usize = 8;
const SECTION_VIRTUAL_ADDRESS: usize = 12;
const SECTION_CHARACTERISTICS: usize = 36;

fn number_at<const N: usize>(bytes: &[u8], place: usize) -> [u8; N] {
    bytes[place..place + N].try_into().expect("bytes of the image")
}

fn new_header(bytes: &[u8]) -> usize {
    u32::from_le_bytes(number_at(bytes, NEW_HEADER)) as usize
}

/// The headers of the sections: where each begins.
fn section_headers(bytes: &[u8]) -> impl Iterator<Item = usize> + use<> {
    let header = new_header(bytes);
    let optional = u16::from_le_bytes(number_at(bytes, header + SIZE_OF_OPTIONAL_HEADER));
    let first = header + OPTIONAL_HEADER + usize::from(optional);
    let count = u16::from_le_bytes(number_at(bytes, header + NUMBER_OF_SECTIONS));
    (0..usize::from(count)).map(move |index| first + index * SECTION_HEADER)
}

/// Makes the first section, which holds code, writable.
fn writable_code() {
    const MEM_WRITE: u8 = 0x80;
    load_patched(|bytes| {
        let first = section_headers(bytes).next().expect("a section");
        bytes[first + SECTION_CHARACTERISTICS + 3] |= MEM_WRITE;
    });
}

/// Makes the section that holds the import address table executable.
fn executable_imports() {
    const MEM_EXECUTE: u8 = 0x20;
    load_patched(|bytes| {
        let table = u32::from_le_bytes(number_at(bytes, new_header(bytes) + IMPORT_ADDRESS_TABLE));
        let holds = |header: &usize| {
            let length = u32::from_le_bytes(number_at(bytes, header + SECTION_VIRTUAL_SIZE));
            let address = u32::from_le_bytes(number_at(bytes, header + SECTION_VIRTUAL_ADDRESS));
            (address..address + length).contains(&table)
        };
        let header = section_headers(bytes).find(holds).expect("a section with the table");
        bytes[header + SECTION_CHARACTERISTICS + 3] |= MEM_EXECUTE;
    });
}

fn unaligned_sections() {
    load_patched(|bytes| {
        let place = new_header(bytes) + SECTION_ALIGNMENT;
        bytes[place..place + 4].copy_from_slice(&512_u32.to_le_bytes());
    });
}

/// Loads a copy of the image; that of the bad twin is patched first.
fn load_patched(alter: impl FnOnce(&mut Vec<u8>)) {
    let kernel = Kernel::boot(KernelConfig::default());
    let path = std::env::var_os(super::IMAGE).expect("the path of the image");
    let mut bytes = std::fs::read(path).expect("the image");
    if !is_good() {
        alter(&mut bytes);
    }
    // A bugcheck leaves the copy; the next run writes over it.
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.sys", service()));
    std::fs::write(&copy, bytes).expect("a copy of the image");
    let loaded = kernel.load_driver(&copy, "size-zero.good");
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
