//! The probe image for tests: built on demand, loaded, and its functions found by name.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

use kernel_host::{Driver, Kernel, KernelConfig};
use softndk_images::toolchain;

use crate::child::{self, Outcome};

const TARGET: &str = "x86_64-pc-windows-msvc";

/// Where the image lies, with a feature or without. Built once, by the process that runs the tests.
pub fn image(feature: Option<&'static str>) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(feature.unwrap_or("probe"));
    target.join(TARGET).join("release/probe.dll")
}

/// As [`image`], for another crate of `images`.
#[allow(dead_code, reason = "not every test file has an image of its own")]
pub fn image_of(name: &str) -> PathBuf {
    let file = format!("release/{}.dll", name.replace('-', "_"));
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name).join(TARGET).join(file)
}

fn build_images() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        build("probe", None);
        build("probe", Some("missing-imports"));
        build("slow-miniport", None);
    });
}

fn build(name: &str, feature: Option<&str>) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images").join(name);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(feature.unwrap_or(name));
    let libraries = toolchain::require(TARGET).unwrap_or_else(|error| panic!("{error:#}"));
    let linker = toolchain::linker().unwrap_or_else(|error| panic!("{error:#}"));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(source).args(["build", "--quiet", "--release", "--target", TARGET]);
    cargo.args(feature.iter().flat_map(|feature| ["--features", feature]));
    libraries.apply(&mut cargo, toolchain::Use::Driver);
    let flags = ["/SUBSYSTEM:NATIVE", "/ENTRY:DriverEntry", "/NODEFAULTLIB", "/DRIVER", "/DEBUG"];
    let flags = flags.map(|flag| format!("-Clink-arg={flag}")).join(" ");
    cargo.env("RUSTFLAGS", format!("-Clinker={} {flags}", linker.display())).env("CARGO_TARGET_DIR", &target);
    let status = cargo.status().expect("cargo starts");
    assert!(status.success(), "the image {name} does not build");
}

/// A booted kernel with the probe image loaded.
pub struct Probe {
    pub kernel: Kernel,
    pub driver: Driver,
}

impl Probe {
    pub fn boot(config: KernelConfig) -> Self {
        let kernel = Kernel::boot(config);
        let driver = kernel.load_driver(image(None), "probe").expect("the probe image loads");
        Self { kernel, driver }
    }

    /// The address of an exported function.
    pub fn function(&self, name: &str) -> usize {
        let exports = &self.driver.image().exports;
        let found = exports.iter().find(|(exported, _)| exported == name);
        found.unwrap_or_else(|| panic!("the probe exports no {name}")).1
    }

    /// Unloads the image and shuts the kernel down; nothing may be left.
    pub fn finish(self) {
        self.driver.unload();
        let report = self.kernel.shutdown();
        assert!(report.is_clean(), "{report}");
    }
}

/// Runs the body in a child process, with the images built.
pub fn in_child(test: &str, body: impl FnOnce()) -> Option<Outcome> {
    child::in_child(test, build_images, body)
}

/// Declares a test whose body runs in a child process and must end well.
#[macro_export]
macro_rules! trial {
    ($(#[$attribute:meta])* fn $name:ident() $body:block) => {
        $(#[$attribute])*
        #[test]
        fn $name() {
            if let Some(outcome) = $crate::probe::in_child(stringify!($name), || $body) {
                outcome.expect_success();
            }
        }
    };
}
