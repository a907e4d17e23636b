//! A booted kernel with the driver and its adapters, and requests as bytes, so that wrong ones can be sent.

use super::handles::File;
use super::stack_marks;
use kernel_host::inf::{AdapterConfig, Inx};
use kernel_host::io::{GENERIC_READ, GENERIC_WRITE, IoResult, Opener, PendingIrp};
use kernel_host::memory::user_buffer::UserBuffer;
use kernel_host::ndis::adapter::{self, Adapter, StartError};
use kernel_host::status::NtStatus;
use kernel_host::{Driver, FrameOrder, Kernel, KernelConfig, Mode, dispatcher};
use softndk_ioctl::{
    AdapterEntry, AdapterListReply, AdapterListRequest, BufferLayout, Request, RequestHeader, Status, TransferResult,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const INX: &str = include_str!("../../../../inf/softndk.inx");

/// The image under test: the debug one, whose arithmetic is checked, before the release one.
pub fn image() -> PathBuf {
    if let Some(path) = std::env::var_os("SOFTNDK_IMAGE") {
        return path.into();
    }
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/driver/x64");
    ["debug", "release"]
        .map(|profile| target.join(profile).join("softndk.sys"))
        .into_iter()
        .find(|path| path.exists())
        .expect("there is no driver image; `cargo xtask driver` builds one")
}

/// ndktest.sys: beside the image under test, or where `cargo xtask driver` leaves it.
fn consumer_image() -> PathBuf {
    let beside = image().with_file_name("ndktest.sys");
    if beside.exists() {
        return beside;
    }
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/driver/x64/debug/ndktest.sys")
}

/// The whole machine.
pub struct Machine {
    kernel: Kernel,
    driver: Driver,
    /// ndktest.sys.
    consumer: Driver,
    pub adapters: Vec<Adapter>,
}

/// What one adapter is to be like.
#[derive(Clone, Copy)]
pub struct Wish {
    pub wire: u32,
    pub ipv4: bool,
    pub ipv6: bool,
    pub completion_mode: CompletionMode,
    /// Whether the adapters reach each other across streams.
    pub streams: bool,
}

/// Which way an adapter answers: the keyword of that name.
#[derive(Clone, Copy)]
pub enum CompletionMode {
    Auto = 0,
    Pending = 1,
    Inline = 2,
}

pub const ORDINARY: Wish =
    Wish { wire: 0, ipv4: true, ipv6: true, completion_mode: CompletionMode::Auto, streams: false };

impl Machine {
    /// Two ordinary adapters.
    pub fn start() -> Self {
        Self::with(&[ORDINARY, ORDINARY])
    }

    pub fn with(wishes: &[Wish]) -> Self {
        Self::boot(KernelConfig::default().processors, wishes)
    }

    /// As [`Machine::with`], each adapter changed by its place in the list before it starts.
    pub fn with_changed(wishes: &[Wish], change: impl Fn(usize, AdapterConfig) -> AdapterConfig) -> Self {
        Self::load(Self::kernel(KernelConfig::default().processors), wishes, change)
    }

    /// Two ordinary adapters, while a session of Event Tracing listens.
    pub fn traced() -> Self {
        let kernel = Kernel::boot(KernelConfig { mode: Mode::Verify, trace_events: true, ..KernelConfig::default() });
        Self::load(kernel, &[ORDINARY, ORDINARY], |_, config| config)
    }

    /// On a machine with one processor, where a scenario of the same requests ends with the same pool: tables that the driver has for each
    /// processor grow with their first use.
    pub fn with_one_processor(wishes: &[Wish]) -> Self {
        Self::boot(1, wishes)
    }

    /// Two ordinary adapters in one schedule, always the same, in which time goes on by what the drivers do.
    pub fn in_schedule() -> Self {
        let kernel = Kernel::boot(KernelConfig { mode: Mode::Verify, schedule: Some(1), ..KernelConfig::default() });
        Self::load(kernel, &[ORDINARY, ORDINARY], |_, config| config)
    }

    fn boot(processors: usize, wishes: &[Wish]) -> Self {
        Self::load(Self::kernel(processors), wishes, |_, config| config)
    }

    fn kernel(processors: usize) -> Kernel {
        let schedule = std::env::var("SOFTNDK_SCHEDULE").ok().and_then(|seed| seed.parse().ok());
        Kernel::boot(KernelConfig { mode: Mode::Verify, schedule, processors, ..KernelConfig::default() })
    }

    fn load(kernel: Kernel, wishes: &[Wish], change: impl Fn(usize, AdapterConfig) -> AdapterConfig) -> Self {
        let driver = kernel.load_driver(image(), "softndk").expect("the image loads");
        let inx = Inx::parse(INX).expect("our own file");
        let consumer = kernel.load_driver(consumer_image(), "ndktest").expect("the consumer loads");
        let mut machine = Self { kernel, driver, consumer, adapters: Vec::new() };
        for (number, wish) in wishes.iter().enumerate() {
            let config = change(number, config(&inx, number as u8 + 1, *wish));
            let adapter = adapter::add(machine.driver.object() as usize, config).expect("the adapter starts");
            machine.adapters.push(adapter);
        }
        machine
    }

    /// Starts a third ordinary adapter, which fails where something is made to fail.
    pub fn third_adapter(&self) -> Result<Adapter, StartError> {
        let inx = Inx::parse(INX).expect("our own file");
        adapter::add(self.driver.object() as usize, config(&inx, 3, ORDINARY))
    }

    /// Opens both devices as an administrator, for reading and writing.
    #[expect(clippy::unused_self, reason = "there is no device without a machine")]
    pub fn open(&self) -> File {
        open("", GENERIC_READ | GENERIC_WRITE).expect("the devices open")
    }

    /// Lets kernel time pass until something is so, and gives up after a minute of it.
    pub fn wait_until(&self, so: impl Fn() -> bool) {
        for _ in 0..6000 {
            if so() {
                return;
            }
            self.kernel.sleep(Duration::from_millis(10));
        }
        panic!("waited a minute for nothing");
    }

    /// Lets everything that is under way come to rest.
    #[expect(clippy::unused_self, reason = "there is nothing under way without a machine")]
    pub fn wait_until_idle(&self) {
        assert!(dispatcher::rest(-500_000), "something runs without end");
    }

    /// Unloads, finds nothing left, and loads again: a process has one kernel only.
    pub fn restart(self, wishes: &[Wish]) -> Self {
        let kernel = self.unload();
        let report = kernel.report();
        assert!(report.is_clean(), "left behind: {report}");
        Self::load(kernel, wishes, |_, config| config)
    }

    /// Removes the adapters, unloads, and finds nothing left and no kernel stack used up.
    pub fn finish(self) {
        let report = self.unload().shutdown();
        assert!(report.leaks.is_empty(), "left behind: {:?}", report.leaks);
        stack_marks::write_down(&report);
        for (kind, bytes) in &report.stack_marks {
            assert!(*bytes < stack_marks::LIMIT, "{kind:?} went {bytes} bytes down the kernel stack");
        }
    }

    /// A consumer goes before what it consumes.
    fn unload(self) -> Kernel {
        self.consumer.unload();
        for adapter in self.adapters {
            adapter.remove();
        }
        self.driver.unload();
        self.kernel
    }
}

fn config(inx: &Inx, host: u8, wish: Wish) -> AdapterConfig {
    let mut config = AdapterConfig::from_inx(inx).expect("our own file installs");
    config = config
        .with_keyword("WireNumber", &wish.wire.to_string())
        .with_keyword("CompletionMode", &(wish.completion_mode as u32).to_string());
    if wish.streams {
        config = config.with_keyword("Transport", "2");
    }
    if wish.ipv4 {
        config = config.with_address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), 24);
    }
    if wish.ipv6 {
        config = config.with_address(IpAddr::V6(Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, u16::from(host))), 64);
    }
    config
}

/// Opens both devices as an administrator, with something behind their names.
pub fn open(behind: &str, access: u32) -> Result<File, NtStatus> {
    File::open(behind, access, Opener::default())
}

/// A buffered request with these very bytes; the reply's bytes are those the driver called valid.
pub fn send(file: &File, code: u32, input: &[u8], output_length: usize) -> (Status, Vec<u8>) {
    let mut output = vec![0; output_length];
    let IoResult { status, information } = file.ioctl(code, input, &mut output);
    output.truncate(information);
    (Status(status), output)
}

/// A good request, which must succeed.
pub fn ask<R>(file: &File, request: &R) -> R::Reply
where
    R: Request,
    R::Reply: FromBytes + IntoBytes + Immutable + KnownLayout,
{
    let (status, output) = send(file, R::CODE, request.as_bytes(), size_of::<R::Reply>());
    assert_eq!(status, Status::SUCCESS);
    R::Reply::read_from_bytes(&output).expect("a whole reply")
}

/// A request that must be refused with nothing in the output.
#[track_caller]
pub fn refused<R: Request>(file: &File, request: &R, expected: Status) {
    let (status, output) = send(file, R::CODE, request.as_bytes(), 4096);
    assert_eq!(status, expected);
    assert!(output.is_empty(), "a refused request returns nothing");
}

/// A direct request.
pub fn send_direct<R: Request>(file: &File, request: &R, buffer: &mut UserBuffer) -> Status {
    Status(file.ioctl_direct(R::CODE, request.as_bytes(), buffer).status)
}

/// A direct request that goes on beside the caller.
pub fn start_direct<R: Request>(file: &File, request: &R, buffer: &UserBuffer) -> PendingIrp {
    file.start_ioctl_direct(R::CODE, request.as_bytes(), buffer).expect("the I/O manager takes it")
}

/// Memory for a region of this length, its frames scattered as a program's are.
pub fn region(length: u64) -> UserBuffer {
    let layout = BufferLayout::new(length).expect("short enough");
    UserBuffer::with_offset(layout.total as usize, 0, FrameOrder::Scattered)
}

/// The result page.
pub fn result_of(buffer: &UserBuffer) -> TransferResult {
    TransferResult::read_from_prefix(buffer.as_slice()).expect("a page").0
}

/// All adapters that the provider lists, in order of their indexes.
pub fn list(file: &File) -> Vec<AdapterEntry> {
    list_by(|code, input, output| file.ioctl(code, input, output))
}

/// All adapters that the driver behind a handle lists.
pub fn list_of(file: &kernel_host::io::File) -> Vec<AdapterEntry> {
    list_by(|code, input, output| file.ioctl(code, input, output))
}

fn list_by(ask: impl Fn(u32, &[u8], &mut [u8]) -> IoResult) -> Vec<AdapterEntry> {
    let request = AdapterListRequest { header: RequestHeader::of::<AdapterListRequest>() };
    let mut output = vec![0; 64 << 10];
    let answer = ask(AdapterListRequest::CODE, request.as_bytes(), &mut output);
    assert_eq!(Status(answer.status), Status::SUCCESS);
    let (fixed, entries) = AdapterListReply::read_from_prefix(&output[..answer.information]).expect("the fixed part");
    let entries = entries.chunks_exact(fixed.entry_size as usize);
    entries.map(|entry| AdapterEntry::read_from_prefix(entry).expect("an entry").0).collect()
}
