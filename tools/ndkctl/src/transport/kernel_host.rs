//! The drivers without Windows: their real images in the kernel host, inside this process.
//!
//! One process has one kernel, so there is one [`Machine`]. Its adapters are what `inf/softndk.inx` installs, with an IPv4 and
//! an IPv6 address each, all on one wire; [`machines`] has the addresses, and how other kernel hosts are reached. Taking the machine down
//! unloads the driver and counts what it left.

mod disturbance;
mod keywords;
mod machines;
mod process;

use super::{Answer, Device, DirectBuffer, Job};
use crate::arguments::{CallerName, HostMode, MachineArguments};
use crate::copy::hexadecimal;
use crate::failure::{Failure, Kind};
use crate::units;
use disturbance::Disturber;
use kernel_host::inf::{AdapterConfig, Inx};
use kernel_host::io::{self as host_io, Caller, File, GENERIC_READ, GENERIC_WRITE, Opener};
use kernel_host::ledger::Leak;
use kernel_host::memory::user_buffer::UserBuffer;
use kernel_host::ndis::adapter;
use kernel_host::netio::mib::interface_name;
use kernel_host::{Driver, FrameOrder, Kernel, KernelConfig, Mode, dispatcher};
use machines::Place;
use serde::Serialize;
use sha2::{Digest, Sha256};
use softndk_ioctl::{Status, TEST_WIN32_DEVICE_NAME, WIN32_DEVICE_NAME, nd};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// What Windows would install.
const INX: &str = include_str!("../../../../inf/softndk.inx");

/// Where `cargo xtask driver` leaves its images.
const DEFAULT_IMAGES: [&str; 2] = ["target/driver/x64/release/softndk.sys", "target/driver/x64/debug/softndk.sys"];

/// A kernel with the driver and its adapters.
pub struct Machine {
    kernel: Kernel,
    driver: Driver,
    /// ndktest.sys, which is beside the driver's image.
    consumer: Driver,
    image: ImageFacts,
    /// The driver keys of the adapters, by interface index.
    driver_keys: Vec<(u32, BTreeMap<String, String>)>,
    caller: Caller,
    place: Place,
}

/// Which image ran.
#[derive(Clone, Debug, Serialize)]
pub struct ImageFacts {
    pub path: PathBuf,
    pub size: u64,
    pub sha256: String,
}

impl Machine {
    /// Boots, loads, adds the adapters.
    pub fn start(arguments: &MachineArguments) -> Result<Self, Failure> {
        let place = Place::of(arguments)?;
        let inx = Inx::parse(INX).map_err(|error| cannot_add(0, &error))?;
        let ordinary = AdapterConfig::from_inx(&inx).map_err(|error| cannot_add(0, &error))?;
        keywords::check(&ordinary, &arguments.keyword)?;
        if let Some(path) = &arguments.capture {
            fs::File::create(path).map_err(|error| Failure::file("write", path, &error))?;
        }
        let image = ImageFacts::read(&find_image(arguments.image.as_deref())?)?;
        let mut config = match arguments.mode {
            HostMode::Fast => KernelConfig { mode: Mode::Fast, ..KernelConfig::default() },
            HostMode::Measure => KernelConfig::for_measuring(),
            HostMode::Count => KernelConfig { count_imports: true, ..KernelConfig::for_measuring() },
            HostMode::Verify => KernelConfig::default(),
        };
        config.trace_ndk |= arguments.trace.is_some();
        config.machines = place.table();
        config.capture.clone_from(&arguments.capture);
        let kernel = Kernel::boot(config);
        let load = |path: &Path, service: &str| {
            kernel.load_driver(path, service).map_err(|error| {
                Failure::new(
                    Kind::Unreachable,
                    format!("cannot load {}", path.display()),
                    error.to_string(),
                    "build the drivers again with \"cargo xtask driver --release\"",
                )
            })
        };
        let driver = load(&image.path, "softndk")?;
        let consumer = load(&consumer_image(&image.path), "ndktest")?;
        let caller = arguments.caller.into();
        let mut machine = Self { kernel, driver, consumer, image, driver_keys: Vec::new(), caller, place };
        for number in 0..arguments.adapters {
            machine.add_adapter(ordinary.clone(), number, arguments)?;
        }
        Ok(machine)
    }

    fn add_adapter(
        &mut self,
        ordinary: AdapterConfig,
        number: u32,
        arguments: &MachineArguments,
    ) -> Result<(), Failure> {
        let config = ordinary
            .with_keyword("CompletionMode", &(arguments.completion_mode as u32).to_string())
            .with_keyword("LimitsProfile", &(arguments.limits as u32).to_string());
        let addresses = self.place.addresses(number).into_iter();
        let config = addresses.fold(config, |config, (ip, prefix)| config.with_address(ip, prefix));
        let given = arguments.keyword.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let keywords = self.place.keyword().into_iter().chain(given);
        let config = keywords.fold(config, |config, (name, value)| config.with_keyword(name, value));
        let driver_key = config.values().clone();
        let object = self.driver.object() as usize;
        let adapter = adapter::add(object, config).map_err(|error| cannot_add(number, &error))?;
        self.driver_keys.push((adapter.if_index(), driver_key));
        Ok(())
    }

    /// Which image runs.
    pub fn image(&self) -> &ImageFacts {
        &self.image
    }

    /// Opens the device of ndktest.sys.
    pub fn open(&self) -> Result<HostDevice, Failure> {
        open_path(TEST_WIN32_DEVICE_NAME, self.caller)
    }

    /// Opens the control device of softndk.sys.
    pub fn open_provider(&self) -> Result<HostDevice, Failure> {
        open_path(WIN32_DEVICE_NAME, self.caller)
    }

    /// Opens the device of user-mode NetworkDirect.
    pub fn open_network_direct(&self) -> Result<HostDevice, Failure> {
        open_path(nd::WIN32_DEVICE_NAME, self.caller)
    }

    /// The driver keys of the adapters, by interface index.
    pub fn driver_keys(&self) -> &[(u32, BTreeMap<String, String>)] {
        &self.driver_keys
    }

    /// Whether adapters of other kernel hosts are reached.
    pub fn reaches_others(&self) -> bool {
        self.place.is_one_of_several()
    }

    /// Where Linux's TCP has an address of an adapter, of this machine or of another one.
    pub fn tcp_address(&self, address: IpAddr) -> IpAddr {
        self.place.tcp_address(address)
    }

    /// Waits outside of the machine, whose other threads go on.
    pub fn while_waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        dispatcher::while_blocked(wait)
    }

    /// What disturbs the adapters.
    pub fn disturber(&self) -> Disturber {
        Disturber::of(self.driver.object() as usize)
    }

    /// Removes the adapters, unloads the driver, and looks what is left.
    pub fn finish(self) -> Result<Leftovers, Failure> {
        // A consumer goes before what it consumes.
        let mut leaks = self.consumer.unload_and_report();
        adapter::remove_all_of(self.driver.object() as usize);
        leaks.extend(self.driver.unload_and_report());
        leaks.extend(self.kernel.shutdown().leaks);
        Leftovers::count(&leaks)
    }
}

/// Opens the device of ndktest.sys, on any kernel thread.
pub fn open_device() -> Result<HostDevice, Failure> {
    open_path(TEST_WIN32_DEVICE_NAME, Caller::Administrator)
}

/// Opens the control device of softndk.sys, on any kernel thread.
pub fn open_provider() -> Result<HostDevice, Failure> {
    open_path(WIN32_DEVICE_NAME, Caller::Administrator)
}

fn open_path(name: &str, caller: Caller) -> Result<HostDevice, Failure> {
    let opened = host_io::file::open(name, GENERIC_READ | GENERIC_WRITE, Opener { caller, ..Opener::default() });
    let file = opened.map_err(|status| Failure {
        kind: Kind::Unreachable,
        ..Failure::refused(format!("cannot open {name}"), Status(status))
    })?;
    Ok(HostDevice { file })
}

/// The name under which Windows shows an interface, by its NET_LUID and its index.
pub fn interface_alias(_net_luid: u64, index: u32) -> Option<String> {
    (index != 0).then(|| interface_name(index))
}

/// Runs all jobs at once, each in a kernel thread of its own, and waits for them.
pub fn in_parallel(jobs: Vec<Job<'_>>) {
    std::thread::scope(|scope| {
        let threads: Vec<_> = jobs
            .into_iter()
            .map(|job| {
                scope.spawn(move || {
                    let _attachment = kernel_host::thread::attach("parallel");
                    job();
                })
            })
            .collect();
        dispatcher::while_blocked(|| {
            for thread in threads {
                if let Err(panic) = thread.join() {
                    std::panic::resume_unwind(panic);
                }
            }
        });
    });
}

impl From<CallerName> for Caller {
    fn from(name: CallerName) -> Self {
        match name {
            CallerName::Administrator => Self::Administrator,
            CallerName::User => Self::User,
        }
    }
}

fn cannot_add(number: u32, error: &dyn fmt::Display) -> Failure {
    Failure::new(
        Kind::Unreachable,
        format!("cannot start adapter {number}"),
        error.to_string(),
        "this is a fault of the driver or of inf/softndk.inx; please report it",
    )
}

fn find_image(wanted: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = wanted {
        return Ok(path.to_owned());
    }
    let found = DEFAULT_IMAGES.iter().map(PathBuf::from).find(|path| path.exists());
    found.ok_or_else(|| {
        Failure::new(
            Kind::Unreachable,
            "cannot find the driver image",
            format!("neither {} nor {} is there", DEFAULT_IMAGES[0], DEFAULT_IMAGES[1]),
            "build it with \"cargo xtask driver --release\", or name one with --image",
        )
    })
}

/// The consumer's image: beside the driver's, or where `cargo xtask driver` leaves it.
fn consumer_image(image: &Path) -> PathBuf {
    let name = |image: &Path| image.with_file_name("ndktest.sys");
    let beside = name(image);
    let built = DEFAULT_IMAGES.iter().map(|image| name(Path::new(image)));
    std::iter::once(beside.clone()).chain(built).find(|path| path.exists()).unwrap_or(beside)
}

impl ImageFacts {
    fn read(path: &Path) -> Result<Self, Failure> {
        let read = || -> io::Result<Self> {
            let bytes = fs::read(path)?;
            let sha256 = hexadecimal(&Sha256::digest(&bytes));
            Ok(Self { path: path.to_owned(), size: bytes.len() as u64, sha256 })
        };
        read().map_err(|error| {
            let next_step = "build it with \"cargo xtask driver --release\", or name another with --image";
            Failure::new(
                Kind::Unreachable,
                format!("cannot read the driver image {}", path.display()),
                error.to_string(),
                next_step,
            )
        })
    }
}

/// What the driver left behind: nothing, or there is no such value.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Leftovers {
    pub pool_blocks: u64,
    pub mdls: u64,
    pub handles: u64,
    /// Everything else: mappings, threads, timers, work items.
    pub others: u64,
}

impl Leftovers {
    fn count(leaks: &[Leak]) -> Result<Self, Failure> {
        let count = |wanted: &[&str]| -> u64 {
            leaks.iter().filter(|leak| wanted.contains(&leak.kind.as_str())).map(|leak| leak.count as u64).sum()
        };
        let all: u64 = leaks.iter().map(|leak| leak.count as u64).sum();
        let (pool_blocks, mdls, handles) = (count(&["pool block"]), count(&["MDL"]), count(&["open handle"]));
        let left = Self { pool_blocks, mdls, handles, others: all - pool_blocks - mdls - handles };
        if all == 0 {
            return Ok(left);
        }
        let list: Vec<String> = leaks.iter().map(ToString::to_string).collect();
        Err(Failure::new(
            Kind::LeftBehind,
            format!("the driver is unloaded, but not all is gone. {left}"),
            list.join("\n    "),
            "this is a fault of the driver; run it with --mode verify for the call stacks, and report it",
        ))
    }
}

impl fmt::Display for Leftovers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = units::count;
        write!(
            formatter,
            "Left behind: {} pool blocks, {} MDLs, {} handles, {} others.",
            count(self.pool_blocks),
            count(self.mdls),
            count(self.handles),
            count(self.others)
        )
    }
}

/// A handle of the control device.
pub struct HostDevice {
    file: File,
}

impl Device for HostDevice {
    type Buffer = UserBuffer;

    fn buffered(&self, code: u32, input: &[u8], output: &mut [u8]) -> Answer {
        let result = self.file.ioctl(code, input, output);
        Answer { status: Status(result.status), information: result.information }
    }

    fn direct(&self, code: u32, input: &[u8], buffer: &mut UserBuffer) -> Answer {
        let result = self.file.ioctl_direct(code, input, buffer);
        Answer { status: Status(result.status), information: result.information }
    }

    /// Its frames are contiguous: a fresh machine's memory is, and mapping it page by page would measure the host.
    fn allocate(&self, length: usize) -> Result<UserBuffer, Failure> {
        Ok(UserBuffer::with_offset(length, 0, FrameOrder::Contiguous))
    }
}

impl DirectBuffer for UserBuffer {
    fn bytes(&self) -> &[u8] {
        self.as_slice()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::{INX, ImageFacts, Leftovers, find_image};
    use crate::failure::Kind;
    use kernel_host::inf::{AdapterConfig, Inx};
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_inx_installs_an_adapter_that_starts() {
        let config = AdapterConfig::from_inx(&Inx::parse(INX).unwrap()).unwrap();
        assert_eq!(config.installation().missing_mandatory_keyword(), None);
        assert_eq!(config.installation().binary, "softndk.sys");
        assert_eq!(config.installation().upper_range.as_deref(), Some("ndis5"));
    }

    /// docs/registry.md names every keyword of the INF with its default, and no other.
    #[test]
    fn the_registry_page_is_the_inx() {
        let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/registry.md")).unwrap();
        let page = page.split("Not offered").next().unwrap();
        let keywords = Inx::parse(INX).unwrap().install().unwrap().keywords;
        for keyword in &keywords {
            let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", keyword.name)));
            let cells: Vec<&str> =
                row.unwrap_or_else(|| panic!("{} is not documented", keyword.name)).split('|').collect();
            let default = if keyword.optional { "absent" } else { keyword.default.as_deref().unwrap() };
            assert_eq!(cells[4].trim(), default, "default of {}", keyword.name);
            for limit in [keyword.minimum, keyword.maximum].into_iter().flatten() {
                assert!(cells[3].contains(&limit.to_string()), "{limit} of {}", keyword.name);
            }
            for choice in keyword.choices.keys() {
                assert!(cells[3].contains(choice), "value {choice} of {}", keyword.name);
            }
        }
        assert_eq!(page.lines().filter(|line| line.starts_with("| `")).count(), keywords.len());
    }

    #[test]
    fn a_missing_image_is_named_with_the_next_step() {
        let path = find_image(Some(Path::new("/no/such.sys"))).unwrap();
        let failure = ImageFacts::read(&path).unwrap_err();
        assert_eq!(failure.kind, Kind::Unreachable);
        assert!(failure.what.contains("/no/such.sys") && failure.next_step.contains("cargo xtask driver"), "{failure}");
    }

    #[test]
    fn an_image_is_known_by_its_hash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.sys");
        fs::write(&path, b"abc").unwrap();
        let facts = ImageFacts::read(&path).unwrap();
        assert_eq!(facts.size, 3);
        assert_eq!(facts.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn leftovers_are_said_in_one_line() {
        let left = Leftovers { pool_blocks: 0, mdls: 1, handles: 0, others: 1000 };
        assert_eq!(left.to_string(), "Left behind: 0 pool blocks, 1 MDLs, 0 handles, 1 000 others.");
    }
}
