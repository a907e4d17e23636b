//! A kernel with softndk.sys and two adapters, on which the consumer is loaded with its parameters.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kernel_host::inf::{AdapterConfig, Inx};
use kernel_host::registry::{self, Value};
use kernel_host::{Adapter, Driver, FrameOrder, Kernel, KernelConfig, Mode};
use softndk_images::c_consumer;
use softndk_images::workspace::Workspace;

use super::refusals;
use super::tally::{DONE, Tally};

pub const SERVICE: &str = "c-consumer";
pub struct Machine {
    kernel: Kernel,
    provider: Driver,
    adapters: Vec<Adapter>,
    /// How long the target's results may wait for their notification.
    pub target_moderation: Duration,
    /// `PATTERN` of the consumer.
    pub pattern: u32,
}

/// A profile of the provider's asynchrony: the value of the keyword `CompletionMode`.
#[derive(Clone, Copy)]
pub struct CompletionMode(&'static str);

pub const AUTO: CompletionMode = CompletionMode("0");
pub const FORCE_ASYNC: CompletionMode = CompletionMode("1");
pub const FORCE_INLINE: CompletionMode = CompletionMode("2");

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The image that `SOFTNDK_IMAGE` names, or that `cargo xtask driver` leaves; it has to be built before.
fn provider_image() -> PathBuf {
    let given = std::env::var_os("SOFTNDK_IMAGE");
    root().join(given.unwrap_or_else(|| "target/driver/x64/debug/softndk.sys".into()))
}

/// Passes the consumer to load to a child.
pub const IMAGE: &str = "C_CONSUMER_IMAGE";

fn consumer_image() -> PathBuf {
    std::env::var_os(IMAGE).map_or_else(|| c_consumer::image(&Workspace::at(&root())), PathBuf::from)
}

impl Machine {
    /// A kernel in which no page of a buffer has a neighbour in memory, with two adapters of softndk.sys.
    pub fn boot(mode: Mode, completion_mode: CompletionMode) -> Self {
        Self::boot_with(mode, completion_mode, &[])
    }

    /// The same, with more keywords of the adapters.
    pub fn boot_with(mode: Mode, completion_mode: CompletionMode, keywords: &[(&str, &str)]) -> Self {
        let inx = Inx::load(root().join("inf/softndk.inx")).expect("the INF is readable");
        let hang_limit = Some(Duration::from_secs(5));
        let frames = FrameOrder::Scattered;
        let kernel = Kernel::boot(KernelConfig { mode, frames, hang_limit, ..KernelConfig::default() });
        refusals::add_to_reports("softndk.sys");
        let provider = kernel.load_driver(provider_image(), "softndk").expect("softndk.sys loads");
        let adapters = (1..=2).map(|number| {
            let config = AdapterConfig::from_inx(&inx).expect("the INF installs");
            let mut config = config.with_keyword("CompletionMode", completion_mode.0);
            for (name, value) in keywords {
                config = config.with_keyword(name, value);
            }
            let config = config.with_address(format!("10.0.0.{number}").parse().expect("an address"), 24);
            let config = config.with_address(format!("fd00::{number}").parse().expect("an address"), 64);
            kernel.add_adapter(&provider, config).expect("the adapter starts")
        });
        Self {
            adapters: adapters.collect(),
            provider,
            kernel,
            target_moderation: Duration::from_micros(20),
            pattern: 0,
        }
    }

    pub fn sleep(&self, time: Duration) {
        self.kernel.sleep(time);
    }

    pub fn end(self) {
        drop(self.adapters);
        self.provider.unload();
        let report = self.kernel.shutdown();
        assert!(report.is_clean(), "{report}");
    }

    /// Loads the consumer with its parameters.
    pub fn start_consumer(&self, addresses: [&str; 2], requests: u32) -> Driver {
        let parameters = registry::parameters_path(SERVICE);
        registry::set(&parameters, "Requests", requests);
        registry::set(&parameters, "InitiatorInterface", self.adapters[0].if_index());
        registry::set(&parameters, "InitiatorAddress", addresses[0]);
        registry::set(&parameters, "TargetInterface", self.adapters[1].if_index());
        registry::set(&parameters, "TargetAddress", addresses[1]);
        registry::set(&parameters, "Pattern", self.pattern);
        registry::set(&parameters, "TargetModeration", self.target_moderation.as_micros() as u32);
        registry::set(&parameters, "Tally", Value { kind: registry::REG_BINARY, data: vec![0; 1024] });
        self.kernel.load_driver(consumer_image(), SERVICE).expect("the consumer in C loads")
    }

    /// Waits until the tally is as asked for; the watchdog of the kernel host ends a wait without end.
    pub fn wait(&self, what: &str, is_reached: impl Fn(&Tally) -> bool) -> Tally {
        for _ in 0..60_000 {
            if let Some(tally) = Tally::read()
                && (is_reached(&tally) || tally.state == DONE)
            {
                if tally.status != 0 {
                    refusals::print(&refusals::all());
                }
                return tally;
            }
            self.kernel.sleep(Duration::from_millis(10));
        }
        panic!("{what}: not reached; {:#?}", Tally::read())
    }
}
