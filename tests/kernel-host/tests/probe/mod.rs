//! The probe image for tests: built on demand, loaded, and its functions found by name; and trials in child processes,
//! since there is one kernel per process and a bugcheck ends it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Once, OnceLock};

use kernel_host::bugcheck::{EXIT_CODE, REPORT_PREFIX};
use kernel_host::{Driver, Kernel, KernelConfig};
use xtask::cross::toolchain;

const CHILD: &str = "KERNEL_HOST_TRIAL";
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

/// How a trial ended.
pub struct Outcome {
    output: Output,
}

/// Runs the body in a child process: the test starts its own binary again for this one test.
pub fn in_child(test: &str, body: impl FnOnce()) -> Option<Outcome> {
    static STARTED: OnceLock<()> = OnceLock::new();
    if std::env::var(CHILD).is_ok_and(|name| name == test) {
        assert!(STARTED.set(()).is_ok(), "one trial a process");
        body();
        return None;
    }
    build_images();
    let program = std::env::current_exe().expect("a test binary has a path");
    let output = Command::new(program)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, test)
        .output()
        .expect("a test binary starts");
    Some(Outcome { output })
}

impl Outcome {
    fn text(&self) -> String {
        format!("{}{}", String::from_utf8_lossy(&self.output.stdout), String::from_utf8_lossy(&self.output.stderr))
    }

    pub fn expect_success(&self) {
        assert!(self.output.status.success(), "{}", self.text());
    }

    /// The report of the bugcheck that ended the child.
    pub fn expect_bugcheck(&self) -> serde_json::Value {
        let text = self.text();
        assert_eq!(self.output.status.code(), Some(EXIT_CODE), "{text}");
        let line = text.lines().find_map(|line| line.strip_prefix(REPORT_PREFIX));
        serde_json::from_str(line.expect("a report")).expect("the report is JSON")
    }

    pub fn expect_output(&self, wanted: &str) {
        let text = self.text();
        assert!(text.contains(wanted), "no {wanted:?} in:\n{text}");
    }
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
