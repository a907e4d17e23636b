//! Devices of a driver in C that is not a miniport: made, opened, served, deleted, and left behind.

use std::path::Path;

use crate::child::Outcome;
use kernel_host::bugcheck::BugCheck;
use kernel_host::callout::{Context, ContextKind};
use kernel_host::image::loader;
use kernel_host::interruption::interrupted_in_the_host;
use kernel_host::io::{Caller, GENERIC_READ, GENERIC_WRITE, Opener};
use kernel_host::memory::mdl;
use kernel_host::memory::user_buffer::UserBuffer;
use kernel_host::{Driver, Kernel, KernelConfig, call_image};
use softndk_images::c_image::{self, CImage};
use softndk_images::workspace::Workspace;

const DEVICE: CImage<'static> = CImage {
    name: "device.sys",
    sources: &["tests/kernel-host/tests/images/foreign/device.c", "tests/c-consumer/src/support.c"],
    include: &["tests/c-consumer/include"],
    imports: &["tests/kernel-host/tests/images/foreign/device-imports.def"],
    exports: Some("tests/kernel-host/tests/images/foreign/device.def"),
};

const BOTH: u32 = GENERIC_READ | GENERIC_WRITE;
const DESCRIBE: u32 = 0x0022_2000;
const MAKE_LATER: u32 = 0x0022_2004;
const FINISH_LATER: u32 = 0x0022_2008;
const HOLD: u32 = 0x0022_200E;
const FINISH_HELD: u32 = 0x0022_2010;
const STATUS_NO_SUCH_DEVICE: i32 = 0xC000_000E_u32 as i32;
const STATUS_ACCESS_DENIED: i32 = 0xC000_0022_u32 as i32;
const STATUS_BUFFER_TOO_SMALL: i32 = 0xC000_0023_u32 as i32;
const STATUS_OBJECT_NAME_NOT_FOUND: i32 = 0xC000_0034_u32 as i32;

fn workspace() -> Workspace {
    Workspace::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

fn in_child(test: &str, body: impl FnOnce(&Kernel, Driver)) -> Option<Outcome> {
    let build = || {
        c_image::build(&workspace(), &DEVICE).unwrap_or_else(|error| panic!("{error:#}"));
    };
    crate::child::in_child(test, build, || {
        let kernel = Kernel::boot(KernelConfig::default());
        // The status of a failure names the line in device.c.
        let driver = kernel.load_driver(c_image::path(&workspace(), DEVICE.name), "device");
        body(&kernel, driver.expect("everything in device.c is as it should be"));
        let report = kernel.shutdown();
        assert!(report.is_clean(), "{report}");
    })
}

/// Calls an exported function of the driver.
fn call(name: &str) {
    let address = loader::address_of("device.sys", name).expect("an exported function");
    // SAFETY: a function of the image without arguments.
    unsafe { call_image!(Context::new(ContextKind::Other, "a test"), address => (); 0) };
}

#[test]
fn a_device_is_opened_served_and_deleted() {
    let outcome = in_child("a_device_is_opened_served_and_deleted", |kernel, driver| {
        let first = kernel.open_device(r"\\.\foreign", BOTH).expect("a device of DriverEntry's, in any case");
        kernel.open_device(r"\\.\Foreign", BOTH).expect("once more").close();
        let mut output = [0; 64];
        let answer = first.ioctl(DESCRIBE, &[], &mut output);
        let text = String::from_utf8_lossy(&output[..answer.information]).into_owned();
        assert_eq!((answer.status, text.as_str()), (0, "device:2 opened,  1 closed, wide 00ABCDEF"));
        assert_eq!(first.ioctl(DESCRIBE, &[], &mut output[..5]).status, STATUS_BUFFER_TOO_SMALL);
        let user = Opener { caller: Caller::User, ..Opener::default() };
        kernel
            .open_device_as(r"\\.\Foreign", BOTH, user)
            .expect("without a descriptor of its own it is for every user")
            .close();
        assert_eq!(kernel.open_device(r"\\.\Nobody", BOTH).err(), Some(STATUS_OBJECT_NAME_NOT_FOUND));
        first.close();
        driver.unload();
        assert_eq!(kernel.open_device(r"\\.\Foreign", BOTH).err(), Some(STATUS_OBJECT_NAME_NOT_FOUND));
    });
    if let Some(outcome) = outcome {
        outcome.expect_success();
    }
}

#[test]
fn an_exclusive_device_is_opened_once_at_a_time() {
    let outcome = in_child("an_exclusive_device_is_opened_once_at_a_time", |kernel, driver| {
        let alone = kernel.open_device(r"\\.\Alone", BOTH).expect("the first");
        assert_eq!(kernel.open_device(r"\\.\Alone", BOTH).err(), Some(STATUS_ACCESS_DENIED));
        alone.close();
        kernel.open_device(r"\\.\Alone", BOTH).expect("the next one").close();
        driver.unload();
    });
    if let Some(outcome) = outcome {
        outcome.expect_success();
    }
}

#[test]
fn a_later_device_is_not_opened_before_its_driver_says_so() {
    let outcome = in_child("a_later_device_is_not_opened_before_its_driver_says_so", |kernel, driver| {
        let first = kernel.open_device(r"\\.\Foreign", BOTH).expect("the device");
        assert_eq!(first.ioctl(MAKE_LATER, &[], &mut []).status, 0);
        assert_eq!(kernel.open_device(r"\\.\Later", BOTH).err(), Some(STATUS_NO_SUCH_DEVICE));
        assert_eq!(first.ioctl(FINISH_LATER, &[], &mut []).status, 0);
        kernel.open_device(r"\\.\Later", BOTH).expect("the later device").close();
        first.close();
        driver.unload();
    });
    if let Some(outcome) = outcome {
        outcome.expect_success();
    }
}

#[test]
fn devices_and_links_that_are_left_behind_are_named() {
    let outcome = in_child("devices_and_links_that_are_left_behind_are_named", |_, driver| {
        call("Forget");
        driver.unload();
    });
    let Some(outcome) = outcome else { return };
    let report = outcome.expect_bugcheck();
    assert_eq!(report["code"], BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION as u64, "{report}");
    let rule = report["rule"].as_str().unwrap_or_default();
    for left in [r"device object \Device\Foreign", r"device object \Device\Alone", "symbolic link"] {
        assert!(rule.contains(left), "no {left} in {rule}");
    }
}

#[test]
fn a_device_is_deleted_once() {
    let outcome = in_child("a_device_is_deleted_once", |_, driver| {
        call("DeleteTwice");
        driver.unload();
    });
    let Some(outcome) = outcome else { return };
    let report = outcome.expect_bugcheck();
    assert_eq!(report["code"], BugCheck::DRIVER_VERIFIER_IOMANAGER_VIOLATION as u64, "{report}");
}

/// Whatever the thread that completes is doing: a program that sees the end of its request may use, or free, the pages.
#[test]
fn a_program_that_sees_the_end_of_its_request_has_its_pages_back() {
    let outcome = in_child("a_program_that_sees_the_end_of_its_request_has_its_pages_back", |kernel, driver| {
        let device = kernel.open_device(r"\\.\Foreign", BOTH).expect("the device");
        let buffer = UserBuffer::new(4096);
        let mut point = 0;
        loop {
            let held = device.start_ioctl_direct(HOLD, &[], &buffer).expect("a code of the device");
            let program = || {
                assert_eq!(held.wait().status, 0);
                assert!(!mdl::any_locked(buffer.frames()), "at point {point} the pages are still locked");
            };
            let finish = || assert_eq!(device.ioctl(FINISH_HELD, &[], &mut []).status, 0);
            let met = interrupted_in_the_host(point, program, finish);
            assert_eq!(held.wait().status, 0);
            if !met {
                break;
            }
            point += 1;
        }
        assert!(point > 8, "{point} points");
        device.close();
        driver.unload();
    });
    if let Some(outcome) = outcome {
        outcome.expect_success();
    }
}
