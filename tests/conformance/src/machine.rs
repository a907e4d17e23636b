//! A booted kernel host with softndk.sys and its adapters: what every trial runs on.
//!
//! Built from the INF and a [`Setup`]; taken down in the order of Windows: adapters removed, driver unloaded, and the
//! report of what was left must be empty. It does not know NDK; one call opens an adapter for a consumer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kernel_host::inf::{AdapterConfig, Inx};
use kernel_host::{Driver, FrameOrder, Kernel, KernelConfig, Mode, dispatcher, dpc, schedule};
use ndkpi_sys::ndkinfo::NDK_VERSION;
use ndkpi_sys::nt::NTSTATUS;

use crate::consumer::{self, completion, refusals};
use crate::peers;

/// One adapter of a machine.
#[derive(Clone, Debug)]
pub struct AdapterSetup {
    pub addresses: Vec<IpAddr>,
    /// Values of the driver key that differ from the INF's defaults.
    pub keywords: Vec<(&'static str, &'static str)>,
}

/// What to boot.
#[derive(Clone, Debug)]
pub struct Setup {
    pub kernel: KernelConfig,
    pub adapters: Vec<AdapterSetup>,
}

impl Default for Setup {
    /// Two adapters on one wire, an IPv4 and an IPv6 address each. The environment can change the profile:
    /// `SOFTNDK_FRAMES=scattered`, `SOFTNDK_PROCESSORS=n`, `SOFTNDK_MODE=fast`, `SOFTNDK_SCHEDULE=seed`; `profile` the keywords.
    fn default() -> Self {
        let mut kernel = KernelConfig { hang_limit: Some(Duration::from_mins(1)), ..KernelConfig::default() };
        if std::env::var("SOFTNDK_FRAMES").is_ok_and(|order| order == "scattered") {
            kernel.frames = FrameOrder::Scattered;
        }
        if std::env::var("SOFTNDK_MODE").is_ok_and(|mode| mode == "fast") {
            kernel.mode = Mode::Fast;
        }
        if let Some(processors) = std::env::var("SOFTNDK_PROCESSORS").ok().and_then(|count| count.parse().ok()) {
            kernel.processors = processors;
        }
        kernel.schedule = std::env::var("SOFTNDK_SCHEDULE").ok().and_then(|seed| seed.parse().ok());
        Self { kernel, adapters: (1..=2).map(AdapterSetup::numbered).collect() }
    }
}

impl AdapterSetup {
    /// The adapter with the addresses 10.0.0.n and fd00::n.
    pub fn numbered(number: u8) -> Self {
        let addresses = vec![
            Ipv4Addr::new(10, 0, 0, number).into(),
            Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, u16::from(number)).into(),
        ];
        Self { addresses, keywords: Vec::new() }
    }

    pub(crate) fn config(&self, inx: &Inx) -> AdapterConfig {
        let mut config = AdapterConfig::from_inx(inx).expect("a configuration from the INF");
        for address in &self.addresses {
            config = config.with_address(*address, if address.is_ipv4() { 24 } else { 64 });
        }
        for (name, value) in profile() {
            config = config.with_keyword(name, value);
        }
        for (name, value) in &self.keywords {
            config = config.with_keyword(name, value);
        }
        config
    }
}

/// The keywords that the environment asks for on every adapter: `SOFTNDK_COMPLETION_MODE`, `SOFTNDK_LIMITS`,
/// `SOFTNDK_LOGICAL_PAGES` and `SOFTNDK_TRANSPORT`, by the names of `docs/registry.md`.
fn profile() -> Vec<(&'static str, &'static str)> {
    let keywords: [(&str, &str, &[&str]); 4] = [
        ("SOFTNDK_COMPLETION_MODE", "CompletionMode", &["auto", "force-async", "force-inline"]),
        ("SOFTNDK_LIMITS", "LimitsProfile", &["connectx-like", "generous", "tiny"]),
        ("SOFTNDK_LOGICAL_PAGES", "LogicalPages", &["adjoining", "scattered"]),
        (peers::VARIABLE, "Transport", &["loopback", "auto", "stream"]),
    ];
    let chosen = |(variable, keyword, names): (&str, &'static str, &[&str])| {
        let wanted = std::env::var(variable).ok()?;
        let value = names.iter().zip(["0", "1", "2"]).find(|(name, _)| **name == wanted);
        let (_, value) = value.unwrap_or_else(|| panic!("{variable}={wanted} is none of {names:?}"));
        Some((keyword, value))
    };
    keywords.into_iter().filter_map(chosen).collect()
}

/// The folder of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The INF of the driver.
pub fn inx() -> Inx {
    Inx::load(workspace().join("inf/softndk.inx")).expect("the INF can be read")
}

/// The driver image: `SOFTNDK_IMAGE`, from the workspace's folder if it is relative, or the debug image of
/// `cargo xtask driver`.
pub fn image() -> PathBuf {
    let given = std::env::var_os("SOFTNDK_IMAGE");
    workspace().join(given.unwrap_or_else(|| "target/driver/x64/debug/softndk.sys".into()))
}

/// What any callout may use of a kernel stack of 24 KiB, so that the rest is left to callers. The host measures it.
const STACK_LIMIT: usize = 16 << 10;

/// A kernel with the driver loaded and its adapters started.
pub struct Machine {
    pub kernel: Kernel,
    pub driver: Driver,
    pub adapters: Vec<kernel_host::Adapter>,
    setup: Setup,
}

impl Machine {
    pub fn start(setup: &Setup) -> Self {
        let kernel = Kernel::boot(setup.kernel.clone());
        let (driver, adapters) = load(&kernel, setup);
        if !adapters.is_empty() {
            refusals::watch();
        }
        Self { kernel, driver, adapters, setup: setup.clone() }
    }

    /// Opens an adapter as a consumer that asks for NDKPI 2.
    pub fn open(&self, index: usize) -> consumer::Adapter {
        let opened = self.try_open(index, NDK_VERSION { Major: 2, Minor: 0 });
        opened.unwrap_or_else(|status| panic!("adapter {index} cannot be opened: {status:#010x}"))
    }

    pub fn try_open(&self, index: usize, version: NDK_VERSION) -> Result<consumer::Adapter, NTSTATUS> {
        let opened = self.adapters[index].open_ndk(version)?;
        let addresses = self.setup.adapters[index].addresses.iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
        Ok(consumer::Adapter::new(opened, addresses))
    }

    /// Takes an address from an adapter's interface, as an administrator does.
    pub fn remove_address(&self, index: usize, address: IpAddr) {
        assert!(self.adapters[index].remove_address(address), "the interface has {address}");
        wait_until_idle();
    }

    /// Gives an adapter's interface an address, as an administrator does.
    pub fn add_address(&self, index: usize, address: IpAddr) {
        let prefix = if address.is_ipv4() { 24 } else { 64 };
        assert!(self.adapters[index].add_address(address, prefix), "the interface does not have {address}");
        wait_until_idle();
    }

    /// Takes everything down and checks that nothing is left.
    pub fn stop(self) {
        completion::verify_all();
        refusals::stop();
        unload(self.driver, self.adapters);
        let report = self.kernel.shutdown();
        if let Some(summary) = schedule::summary() {
            println!("{summary}");
        }
        assert!(report.is_clean(), "{report}");
        assert_eq!(dpc::for_the_next_tick(), 0, "DPCs without an interrupt to their processor");
        for (kind, used) in &report.stack_marks {
            assert!(*used < STACK_LIMIT, "the kernel stack below {kind:?} was {used} bytes deep\n{report}");
        }
    }
}

/// Loads the driver into a booted kernel and starts its adapters.
pub fn load(kernel: &Kernel, setup: &Setup) -> (Driver, Vec<kernel_host::Adapter>) {
    let inx = inx();
    let path = image();
    let driver = kernel.load_driver(&path, "softndk").unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let start = |adapter: &AdapterSetup| {
        kernel.add_adapter(&driver, adapter.config(&inx)).unwrap_or_else(|error| panic!("an adapter: {error}"))
    };
    let adapters = setup.adapters.iter().map(start).collect();
    (driver, adapters)
}

/// Removes the adapters and unloads the driver.
pub fn unload(driver: Driver, adapters: Vec<kernel_host::Adapter>) {
    adapters.iter().for_each(kernel_host::Adapter::remove);
    drop(adapters);
    driver.unload();
}

/// Runs a trial on a machine and takes it down.
pub fn with_machine(setup: &Setup, trial: impl FnOnce(&Machine)) {
    let machine = Machine::start(setup);
    let on_failure = TellRefusals;
    trial(&machine);
    drop(on_failure);
    machine.stop();
}

/// Says what the driver refused last when a trial fails.
struct TellRefusals;

impl Drop for TellRefusals {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the driver's last refusals, newest first:\n{}", refusals::last());
        }
    }
}

/// Runs a trial with both adapters of the usual machine open.
pub fn with_two_adapters(trial: impl FnOnce(&consumer::Adapter, &consumer::Adapter)) {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        trial(&first, &second);
    });
}

/// Lets 50 ms of the host's time pass, whatever else is under way.
pub fn pass_time() {
    dispatcher::delay(-500_000);
}

/// Lets a little time pass and everything that is under way come to rest: DPCs run, threads finish their service passes. Not while another
/// thread is busy without end: see [`pass_time`].
pub fn wait_until_idle() {
    assert!(dispatcher::rest(-500_000), "something runs without end");
}

/// Waits until something is so, and fails when it is not so after many looks.
#[track_caller]
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let mut looks = 0;
    while !is_so() {
        assert!(looks < LOOKS, "not so at the {LOOKS}th look: {what}");
        looks += 1;
        // Virtual time goes on, and other threads of the machine run.
        dispatcher::delay(-1000);
        if !schedule::is_on() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A minute's worth on an idle machine; on a busy one each takes longer.
const LOOKS: u32 = 60_000;

/// Runs two closures as kernel threads at the same time and waits for both. A panic of either ends the trial at once: the other
/// may be waiting for what will not come.
pub fn concurrently(machine: &Machine, one: impl FnOnce() + Send, other: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let (body, starting) = machine.kernel.starting_thread(|| or_end(other));
        let running = scope.spawn(body);
        or_end(one);
        let joined = starting.join(|| running.join());
        if let Err(panic) = joined {
            std::panic::resume_unwind(panic);
        }
    });
}

/// The process is the trial's own; what the panic said has been printed.
fn or_end(body: impl FnOnce()) {
    if std::panic::catch_unwind(AssertUnwindSafe(body)).is_err() {
        std::process::exit(101);
    }
}
