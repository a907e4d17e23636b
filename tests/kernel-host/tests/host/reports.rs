//! Reports of the host: a driver in C fails in many ways, and the report must name each.

use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use crate::child::Outcome;
use kernel_host::bugcheck::BugCheck;
use kernel_host::callout::{Context, ContextKind};
use kernel_host::image::loader;
use kernel_host::{Kernel, KernelConfig, call_image};
use serde_json::Value;
use softndk_images::c_image::{self, CImage};
use softndk_images::workspace::Workspace;

const IMAGE: CImage<'static> = CImage {
    name: "reports.sys",
    sources: &["tests/kernel-host/tests/images/reports/reports.c", "tests/c-consumer/src/support.c"],
    include: &["tests/c-consumer/include"],
    imports: &["tests/kernel-host/tests/images/reports/ntoskrnl.def"],
    exports: Some("tests/kernel-host/tests/images/reports/reports.def"),
};

fn workspace() -> Workspace {
    Workspace::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

fn in_child(test: &str, body: impl FnOnce()) -> Option<Outcome> {
    static BUILT: Once = Once::new();
    let build = || {
        BUILT.call_once(|| {
            c_image::build(&workspace(), &IMAGE).unwrap_or_else(|error| panic!("{error:#}"));
        });
    };
    crate::child::in_child(test, build, body)
}

fn load(config: KernelConfig) -> Kernel {
    let kernel = Kernel::boot(config);
    let driver = kernel.load_driver(c_image::path(&workspace(), IMAGE.name), "reports").expect("the image loads");
    std::mem::forget(driver);
    kernel
}

/// Calls an exported function of the image.
fn call(name: &str, arguments: [u64; 2]) -> u64 {
    let address = loader::address_of("reports.sys", name).expect("an exported function");
    let [first, second] = arguments;
    // SAFETY: a function of the image that takes at most two numbers.
    unsafe { call_image!(Context::new(ContextKind::Other, "a test's routine"), address => u64; first, second) }
}

struct Wanted<'test> {
    code: BugCheck,
    first: u64,
    trap: u64,
    rule: &'test [&'test str],
    instruction: &'test str,
}

/// Two functions of the image are on top of the stack, or the outer one alone where the inner one left no frame.
fn check_stack(report: &Value, function: &str) {
    let stack: Vec<&str> = report["stack"].as_array().expect("a stack").iter().filter_map(Value::as_str).collect();
    let inner = format!("Inner{function}");
    assert!(stack.first().is_some_and(|frame| frame.contains(&inner)), "{inner} is not on top: {report}");
    assert!(stack.get(1).is_some_and(|frame| frame.contains(&format!("!{function}"))), "no {function} below: {report}");
    assert!(stack[0].contains("reports.c:"), "no line: {report}");
}

fn faults(function: &str, wanted: &Wanted<'_>) {
    let test = test_of(function);
    let Some(outcome) = in_child(&test, || {
        load(KernelConfig::default());
        call(function, [0; 2]);
    }) else {
        return;
    };
    let report = outcome.expect_bugcheck();
    let rule = report["rule"].as_str().expect("a rule");
    assert_eq!(report["code"], wanted.code as u32, "{report}");
    assert_eq!(report["parameters"][0], wanted.first, "{report}");
    assert_eq!(report["trap"], wanted.trap, "{report}");
    for words in wanted.rule {
        assert!(rule.contains(words), "no {words:?} in {rule}");
    }
    let instruction = report["instruction"].as_str().unwrap_or("none");
    assert!(instruction.contains(wanted.instruction), "no {:?} in {report}", wanted.instruction);
    check_stack(&report, function);
    assert_eq!(report["routines"][0], "a test's routine", "{report}");
}

/// `AssertFails` is tested by `assert_fails`.
fn test_of(function: &str) -> String {
    let mut name = String::new();
    for letter in function.chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

macro_rules! faults {
    ($($test:ident: $function:literal is $code:ident $first:literal by trap $trap:literal at $instruction:literal with [$($words:literal),*];)*) => {
        $(#[test]
        fn $test() {
            assert_eq!(test_of($function), stringify!($test));
            faults($function, &Wanted {
                code: BugCheck::$code,
                first: $first,
                trap: $trap,
                rule: &[$($words),*],
                instruction: $instruction,
            });
        })*
    };
}

faults! {
    assert_fails: "AssertFails" is KMODE_EXCEPTION_NOT_HANDLED 0xC000_0420 by trap 13 at "int 2Ch"
        with ["trap 13 (general protection)", "NT_ASSERT", "STATUS_ASSERTION_FAILURE"];
    breakpoint: "Breakpoint" is KMODE_EXCEPTION_NOT_HANDLED 0x8000_0003 by trap 3 at "int 3"
        with ["trap 3 (breakpoint)", "DbgBreakPoint", "STATUS_BREAKPOINT"];
    read_not_canonical: "ReadNotCanonical" is KMODE_EXCEPTION_NOT_HANDLED 0xC000_0005 by trap 13 at "mov"
        with ["reads 0x4141414141414148", "not canonical", "STATUS_ACCESS_VIOLATION"];
    write_not_canonical: "WriteNotCanonical" is KMODE_EXCEPTION_NOT_HANDLED 0xC000_0005 by trap 13 at "mov"
        with ["writes 0x4141414141414148", "not canonical"];
    call_not_canonical: "CallNotCanonical" is KMODE_EXCEPTION_NOT_HANDLED 0xC000_0005 by trap 13 at "call r"
        with ["goes to 0x4141414141414140", "no function pointer"];
    privileged: "Privileged" is KMODE_EXCEPTION_NOT_HANDLED 0xC000_0096 by trap 13 at "cli"
        with ["`cli` is privileged", "ring 0", "STATUS_PRIVILEGED_INSTRUCTION"];
    misaligned: "Misaligned" is KMODE_EXCEPTION_NOT_HANDLED 0xC000_0005 by trap 13 at "movaps"
        with ["writes 0x8, which is not a multiple of 16"];
    trap: "Trap" is KMODE_EXCEPTION_NOT_HANDLED 0xC000_001D by trap 6 at "ud2" with ["must not get to"];
    divide_by_zero: "DivideByZero" is KMODE_EXCEPTION_NOT_HANDLED 0xC000_0094 by trap 0 at "div ecx"
        with ["is a division by 0", "STATUS_INTEGER_DIVIDE_BY_ZERO"];
    read_null: "ReadNull" is PAGE_FAULT_IN_NONPAGED_AREA 0x8 by trap 14 at "mov"
        with ["the driver reads 0x8", "no memory at all"];
    call_wild: "CallWild" is PAGE_FAULT_IN_NONPAGED_AREA 0x1230 by trap 14 at "none"
        with ["the driver executes 0x1230"];
    paged_code_fails: "PagedCodeFails" is PAGE_FAULT_IN_NONPAGED_AREA 0x8 by trap 14 at "mov"
        with ["the driver reads 0x8"];
    copy_from_wild: "CopyFromWild" is PAGE_FAULT_IN_NONPAGED_AREA 0x1230 by trap 14 at ""
        with ["memcpy, which is given a pointer by the driver, reads 0x1230"];
    set_wild_event: "SetWildEvent" is KMODE_EXCEPTION_NOT_HANDLED 0xC000_0005 by trap 13 at ""
        with ["0x4141414141414140, which is not canonical", "KeSetEvent, which is given a pointer by the driver"];
}

#[test]
fn the_last_export_is_not_where_the_fault_is() {
    let test = "the_last_export_is_not_where_the_fault_is";
    let outcome = in_child(test, || {
        load(KernelConfig::default());
        call("ReadNull", [0; 2]);
    });
    let Some(outcome) = outcome else { return };
    assert_eq!(outcome.expect_bugcheck()["place"], "in the driver's code; last export called: KeSetEvent");
    outcome.expect_output("trap 14 (page fault) at `mov");
    outcome.expect_output("rip=");
}

#[test]
fn an_export_that_faults_is_the_place() {
    let outcome = in_child("an_export_that_faults_is_the_place", || {
        load(KernelConfig::default());
        call("SetWildEvent", [0; 2]);
    });
    let Some(outcome) = outcome else { return };
    assert_eq!(outcome.expect_bugcheck()["place"], "in KeSetEvent");
}

#[test]
fn codes_and_statuses_of_a_driver_have_names() {
    let outcome = in_child("codes_and_statuses_of_a_driver_have_names", || {
        load(KernelConfig::default());
        call("StopByOwnCode", [0; 2]);
    });
    let Some(outcome) = outcome else { return };
    let report = outcome.expect_bugcheck();
    assert_eq!(report["name"], "SYSTEM_THREAD_EXCEPTION_NOT_HANDLED");
    assert!(report["rule"].as_str().is_some_and(|rule| rule.contains("STATUS_INSUFFICIENT_RESOURCES")), "{report}");
}

#[test]
fn a_hang_shows_what_is_waited_for_and_where() {
    let outcome = in_child("a_hang_shows_what_is_waited_for_and_where", || {
        load(KernelConfig { hang_limit: Some(Duration::from_millis(300)), ..KernelConfig::default() });
        call("WaitForever", [0; 2]);
    });
    let Some(outcome) = outcome else { return };
    let report = outcome.expect_bugcheck();
    let rule = report["rule"].as_str().expect("a rule");
    for words in ["waits in KeWaitForSingleObject", "synchronization event", "tag 'Rort'", "WaitInside", "!WaitForever"]
    {
        assert!(rule.contains(words), "no {words:?} in {rule}");
    }
}

#[test]
fn a_wait_in_paged_code_has_its_callers() {
    let outcome = in_child("a_wait_in_paged_code_has_its_callers", || {
        load(KernelConfig { hang_limit: Some(Duration::from_millis(300)), ..KernelConfig::default() });
        call("PagedCodeWaits", [0; 2]);
    });
    let Some(outcome) = outcome else { return };
    let rule = outcome.expect_bugcheck()["rule"].to_string();
    for words in ["!WaitInPagedCode", "!PagedCodeWaits"] {
        assert!(rule.contains(words), "no {words:?} in {rule}");
    }
}

#[test]
fn a_hang_under_a_periodic_timer_is_seen() {
    let outcome = in_child("a_hang_under_a_periodic_timer_is_seen", || {
        load(KernelConfig { hang_limit: Some(Duration::from_millis(100)), ..KernelConfig::default() });
        // 200 s; the limit is three.
        call("WaitForTicks", [20_000, 0]);
    });
    let Some(outcome) = outcome else { return };
    let report = outcome.expect_bugcheck();
    assert_eq!(report["code"], BugCheck::UNMOUNTABLE_HANG as u32, "{report}");
    let rule = report["rule"].as_str().expect("a rule");
    for words in
        ["only periodic timers", "every 10 ms", "reports.sys!Tick", "waits in KeWaitForSingleObject", "!WaitForTicks"]
    {
        assert!(rule.contains(words), "no {words:?} in {rule}");
    }
}

#[test]
fn a_wait_that_a_periodic_timer_ends_is_no_hang() {
    let outcome = in_child("a_wait_that_a_periodic_timer_ends_is_no_hang", || {
        load(KernelConfig { hang_limit: Some(Duration::from_millis(100)), ..KernelConfig::default() });
        // Two waits of two seconds: together longer than the limit of three, each shorter.
        call("WaitForTicks", [200, 0]);
        call("WaitForTicks", [200, 0]);
    });
    let Some(outcome) = outcome else { return };
    outcome.expect_success();
}

/// Uses the process's maps up, but for a few: pages whose neighbours have another protection.
fn use_maps_up() {
    const LEFT: usize = 200;
    const PAGE: usize = 4096;
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").expect("a limit");
    let most: usize = text.trim().parse().expect("a number");
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: fresh addresses without access.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), 2 * most * PAGE, libc::PROT_NONE, flags, -1, 0) } as usize;
    let protect = |page: usize, protection| {
        // SAFETY: a page of the addresses above, which nothing else uses.
        unsafe { libc::mprotect((start + 2 * page * PAGE) as *mut _, PAGE, protection) }
    };
    let made = (0..most).take_while(|page| protect(*page, libc::PROT_READ) == 0).count();
    assert!((LEFT..most).contains(&made), "{made} of {most} maps could be made");
    for page in made - LEFT..made {
        assert_eq!(protect(page, libc::PROT_NONE), 0);
    }
}

#[test]
fn an_image_is_refused_what_the_operating_system_has_no_maps_for() {
    let test = "an_image_is_refused_what_the_operating_system_has_no_maps_for";
    let outcome = in_child(test, || {
        let _kernel = load(KernelConfig::default());
        use_maps_up();
        let count = call("AllocateUntilRefused", [8192, 10_000]);
        assert!(count < 10_000, "no block was refused");
    });
    let Some(outcome) = outcome else { return };
    outcome.expect_success();
    outcome.expect_output("vm.max_map_count");
}
