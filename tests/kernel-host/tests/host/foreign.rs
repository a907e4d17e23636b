//! Foreign images: two drivers in C, one of which imports from the other, with what the driver kit
//! puts into every driver (security cookie, control flow guard) and what its headers do in line.

use std::path::Path;
use std::sync::Once;

use crate::child::Outcome;
use kernel_host::bugcheck::BugCheck;
use kernel_host::callout::{Context, ContextKind};
use kernel_host::image::loader;
use kernel_host::{Driver, Kernel, KernelConfig, LoadError, call_image};
use softndk_images::c_image::{self, CImage};
use softndk_images::workspace::Workspace;

const SUPPORT: &str = "tests/c-consumer/src/support.c";
const INCLUDE: &str = "tests/c-consumer/include";

const EXPORTER: CImage<'static> = CImage {
    name: "exporter.sys",
    sources: &["tests/kernel-host/tests/images/foreign/exporter.c", SUPPORT],
    include: &[INCLUDE],
    imports: &[],
    exports: Some("tests/kernel-host/tests/images/foreign/exporter.def"),
};

const FOREIGN: CImage<'static> = CImage {
    name: "foreign.sys",
    sources: &["tests/kernel-host/tests/images/foreign/foreign.c", SUPPORT],
    include: &[INCLUDE],
    imports: &[
        "tests/kernel-host/tests/images/foreign/ntoskrnl.def",
        "tests/kernel-host/tests/images/foreign/exporter-imports.def",
    ],
    exports: Some("tests/kernel-host/tests/images/foreign/foreign.def"),
};

fn workspace() -> Workspace {
    Workspace::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

fn build_images() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        for image in [&EXPORTER, &FOREIGN] {
            c_image::build(&workspace(), image).unwrap_or_else(|error| panic!("{error:#}"));
        }
    });
}

fn in_child(test: &str, body: impl FnOnce()) -> Option<Outcome> {
    crate::child::in_child(test, build_images, body)
}

/// A kernel with both drivers loaded.
struct Machine {
    kernel: Kernel,
    exporter: Driver,
    foreign: Driver,
}

impl Machine {
    fn boot() -> Self {
        let kernel = Kernel::boot(KernelConfig::default());
        let load = |image: &CImage<'_>, service| kernel.load_driver(c_image::path(&workspace(), image.name), service);
        let exporter = load(&EXPORTER, "exporter").expect("the exporter loads");
        // The status of a failure names the line in foreign.c.
        let foreign = load(&FOREIGN, "foreign").expect("everything in foreign.c is as it should be");
        Self { kernel, exporter, foreign }
    }

    /// Calls an exported function of foreign.sys.
    #[expect(clippy::unused_self, reason = "there is something to call while the machine is there")]
    fn call(&self, name: &str, argument: u32) {
        let address = loader::address_of("foreign.sys", name).expect("an exported function");
        // SAFETY: a function of the image that takes at most one number.
        unsafe { call_image!(Context::new(ContextKind::Other, "a test"), address => (); argument) };
    }
}

#[test]
fn a_driver_in_c_finds_everything_it_expects() {
    let outcome = in_child("a_driver_in_c_finds_everything_it_expects", || {
        let machine = Machine::boot();
        machine.call("SmashStack", 16);
        machine.foreign.unload();
        machine.exporter.unload();
        let report = machine.kernel.shutdown();
        assert!(report.is_clean(), "{report}");
    });
    if let Some(outcome) = outcome {
        outcome.expect_success();
    }
}

#[test]
fn imports_of_a_driver_that_is_not_loaded_are_named() {
    let outcome = in_child("imports_of_a_driver_that_is_not_loaded_are_named", || {
        let kernel = Kernel::boot(KernelConfig::default());
        let error =
            kernel.load_driver(c_image::path(&workspace(), FOREIGN.name), "foreign").expect_err("it is missing");
        let LoadError::Image(error) = error else { panic!("{error}") };
        let text = error.to_string();
        for name in ["exporter.sys!ExportedByName", "exporter.sys!#7", "exporter.sys!ForwardedHome"] {
            assert!(text.contains(name), "no {name} in {text}");
        }
        assert!(!text.contains("ntoskrnl"), "{text}");
        assert!(kernel.shutdown().is_clean());
    });
    if let Some(outcome) = outcome {
        outcome.expect_success();
    }
}

/// Calls an exported function that must end the kernel.
fn ends_in(test: &str, function: &str, argument: u32, code: BugCheck, first: u64, words: &str) {
    let Some(outcome) = in_child(test, || Machine::boot().call(function, argument)) else { return };
    let report = outcome.expect_bugcheck();
    assert_eq!(
        (report["code"].as_u64(), report["parameters"][0].as_u64()),
        (Some(code as u64), Some(first)),
        "{report}"
    );
    assert!(report["rule"].as_str().is_some_and(|rule| rule.contains(words)), "no {words:?} in {report}");
}

#[test]
fn an_overwritten_cookie_is_a_fast_fail() {
    let code = BugCheck::KERNEL_SECURITY_CHECK_FAILURE;
    ends_in("an_overwritten_cookie_is_a_fast_fail", "SmashStack", 32, code, 2, "cookie");
}

#[test]
fn a_call_into_the_middle_of_a_function_is_refused() {
    let code = BugCheck::KERNEL_SECURITY_CHECK_FAILURE;
    ends_in("a_call_into_the_middle_of_a_function_is_refused", "CallIntoTheMiddle", 0, code, 10, "control flow guard");
}

#[test]
fn a_level_beyond_the_highest_is_refused() {
    let code = BugCheck::KMODE_EXCEPTION_NOT_HANDLED;
    ends_in("a_level_beyond_the_highest_is_refused", "WriteLevelSixteen", 0, code, 0xC000_0096, "CR8");
}

#[test]
fn a_level_that_cr8_raised_is_noticed_on_return() {
    let test = "a_level_that_cr8_raised_is_noticed_on_return";
    let Some(outcome) = in_child(test, || Machine::boot().call("ReturnRaised", 0)) else { return };
    assert_eq!(outcome.expect_bugcheck()["code"], BugCheck::IRQL_UNEXPECTED_VALUE as u64);
}

#[test]
fn a_store_to_the_shared_page_is_a_fault() {
    let code = BugCheck::PAGE_FAULT_IN_NONPAGED_AREA;
    ends_in("a_store_to_the_shared_page_is_a_fault", "StoreToSharedPage", 0, code, 0xFFFF_F780_0000_0260, "writes");
}

#[test]
fn an_exception_inside_a_handler_is_a_bugcheck_with_a_name() {
    let code = BugCheck::KMODE_EXCEPTION_NOT_HANDLED;
    let test = "an_exception_inside_a_handler_is_a_bugcheck_with_a_name";
    ends_in(test, "ProbeNothing", 0, code, 0xC000_0005, "handlers (__try) are not modelled");
}
