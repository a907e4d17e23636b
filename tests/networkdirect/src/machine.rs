//! A booted kernel with the driver and two adapters on one wire.

use kernel_host::inf::{AdapterConfig, Inx};
use kernel_host::ndis::adapter::{self, Adapter};
use kernel_host::{Driver, Kernel, KernelConfig, Mode, dispatcher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

const INX: &str = include_str!("../../../inf/softndk.inx");

/// Names the number of processors.
pub const PROCESSORS: &str = "SOFTNDK_NETWORKDIRECT_PROCESSORS";

/// What any callout may use of a kernel stack of 24 KiB.
const STACK_LIMIT: usize = 16 << 10;

/// The image under test: `SOFTNDK_IMAGE`, from the workspace's folder if it is relative, or the debug image, whose arithmetic is checked,
/// before the release one.
pub fn image() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if let Some(path) = std::env::var_os("SOFTNDK_IMAGE") {
        return workspace.join(path);
    }
    let target = workspace.join("target/driver/x64");
    ["debug", "release"]
        .map(|profile| target.join(profile).join("softndk.sys"))
        .into_iter()
        .find(|path| path.exists())
        .expect("there is no driver image; `cargo xtask driver` builds one")
}

/// Whether all peers are across streams: `SOFTNDK_TRANSPORT=stream`.
pub fn across_streams() -> bool {
    std::env::var("SOFTNDK_TRANSPORT").is_ok_and(|transport| transport == "stream")
}

/// Two, where every post needs a doorbell, or as many as the environment says: from three on the driver polls.
fn processors() -> usize {
    std::env::var(PROCESSORS).ok().and_then(|count| count.parse().ok()).unwrap_or(2)
}

fn boot(setup: &MachineSetup<'_>) -> Kernel {
    let schedule = std::env::var("SOFTNDK_SCHEDULE").ok().and_then(|seed| seed.parse().ok());
    Kernel::boot(KernelConfig {
        mode: setup.mode,
        processors: setup.processors,
        system_call: setup.system_call,
        schedule,
        hang_limit: Some(Duration::from_mins(1)),
        ..KernelConfig::default()
    })
}

pub struct Machine {
    pub kernel: Kernel,
    driver: Driver,
    pub adapters: Vec<Adapter>,
}

/// How a machine differs from the usual one.
pub struct MachineSetup<'a> {
    pub mode: Mode,
    pub processors: usize,
    /// What a system call costs beside what the host does for it.
    pub system_call: Duration,
    /// Of both adapters.
    pub keywords: &'a [(&'a str, &'a str)],
}

impl Default for MachineSetup<'_> {
    fn default() -> Self {
        Self { mode: Mode::Verify, processors: processors(), system_call: Duration::ZERO, keywords: &[] }
    }
}

impl Machine {
    pub fn start() -> Self {
        Self::of(&MachineSetup::default())
    }

    /// With keywords that both adapters have.
    pub fn with(keywords: &[(&str, &str)]) -> Self {
        Self::of(&MachineSetup { keywords, ..MachineSetup::default() })
    }

    pub fn with_one_processor() -> Self {
        Self::of(&MachineSetup { processors: 1, ..MachineSetup::default() })
    }

    pub fn of(setup: &MachineSetup<'_>) -> Self {
        Self::load(boot(setup), setup.keywords)
    }

    fn load(kernel: Kernel, keywords: &[(&str, &str)]) -> Self {
        let driver = kernel.load_driver(image(), "softndk").expect("the image loads");
        let inx = Inx::parse(INX).expect("our own file");
        let mut machine = Self { kernel, driver, adapters: Vec::new() };
        for host in 1..=2 {
            let mut config = AdapterConfig::from_inx(&inx).expect("our own file installs");
            let transport = across_streams().then_some(&("Transport", "2"));
            for (name, value) in keywords.iter().chain(transport) {
                config = config.with_keyword(name, value);
            }
            config = config.with_address(ip(host), 24);
            let adapter = adapter::add(machine.driver.object() as usize, config).expect("the adapter starts");
            machine.adapters.push(adapter);
        }
        machine
    }

    /// Unloads, finds nothing left, and loads again: a process has one kernel only.
    #[must_use]
    pub fn restart(self) -> Self {
        self.restart_with(&[])
    }

    /// As [`Self::restart`], with adapters that have these values in their driver keys.
    #[must_use]
    pub fn restart_with(self, keywords: &[(&str, &str)]) -> Self {
        let kernel = self.unload();
        let report = kernel.report();
        assert!(report.is_clean(), "left behind: {report}");
        Self::load(kernel, keywords)
    }

    fn unload(self) -> Kernel {
        for adapter in self.adapters {
            adapter.remove();
        }
        self.driver.unload();
        self.kernel
    }

    /// Removes the adapters, unloads, and finds nothing left and no kernel stack used up.
    pub fn finish(self) {
        let report = self.unload().shutdown();
        assert!(report.is_clean(), "{report}");
        for (kind, used) in &report.stack_marks {
            assert!(*used < STACK_LIMIT, "the kernel stack below {kind:?} was {used} bytes deep");
        }
    }
}

/// What a Write or Send completes with that its peer refuses with this status: across a stream it has succeeded before.
pub fn late<S>(status: S, success: S) -> S {
    if across_streams() { success } else { status }
}

/// Lets what has been sent across a stream arrive.
pub fn settle() {
    if across_streams() {
        pass(1);
    }
}

/// Lets a little time pass and everything that is under way come to rest.
pub fn rest() {
    assert!(dispatcher::rest(-500_000), "something runs without end");
}

/// Lets so many milliseconds of the kernel's time pass.
pub fn pass(milliseconds: i64) {
    dispatcher::delay(-10_000 * milliseconds);
}

/// The address of an adapter, counted from 1.
pub fn ip(host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, host))
}

pub fn address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::new(ip(host), port)
}
