//! User mode: a DLL in C in one or more processes, beside a driver in C that answers, pends and is cleaned up.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::child::Outcome;
use kernel_host::bugcheck::BugCheck;
use kernel_host::memory::address_space::Protection;
use kernel_host::user::{Dll, DllError};
use kernel_host::{Driver, Kernel, KernelConfig, Mode, Process};
use softndk_images::c_image::{self, CImage};
use softndk_images::workspace::Workspace;

const PENDING: CImage<'static> = CImage {
    name: "pending.sys",
    sources: &["tests/kernel-host/tests/images/user/pending.c", "tests/c-consumer/src/support.c"],
    include: &["tests/c-consumer/include"],
    imports: &["tests/kernel-host/tests/images/user/pending-imports.def"],
    exports: None,
};

const PROGRAM: CImage<'static> = CImage {
    name: "program.dll",
    sources: &["tests/kernel-host/tests/images/user/program.c", "tests/c-consumer/src/support.c"],
    include: &[],
    imports: &["tests/kernel-host/tests/images/user/kernel32.def", "tests/kernel-host/tests/images/user/ntdll.def"],
    exports: Some("tests/kernel-host/tests/images/user/program.def"),
};

const STRAY: CImage<'static> = CImage {
    name: "stray.dll",
    sources: &["tests/kernel-host/tests/images/user/stray.c", "tests/c-consumer/src/support.c"],
    imports: &["tests/kernel-host/tests/images/user/stray.def"],
    exports: None,
    ..PROGRAM
};

const CODE_PEND: u64 = 0x0022_2010;
const CODE_PEND_OUT: u64 = 0x0022_2016;
const CODE_PEND_IN: u64 = 0x0022_2019;
const STATUS_SUCCESS: u32 = 0;
const STATUS_PENDING: u32 = 0x103;
const STATUS_CANCELLED: u32 = 0xC000_0120;

/// Where PendAt puts the request's buffer, behind its status block.
const BUFFER: usize = 4096;

fn workspace() -> Workspace {
    Workspace::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

fn build() {
    for image in [PENDING, PROGRAM, STRAY] {
        c_image::build(&workspace(), &image).unwrap_or_else(|error| panic!("{error:#}"));
    }
}

/// A process with the program's DLL.
struct Program {
    process: Process,
    dll: Dll,
}

impl Program {
    fn start(kernel: &Kernel) -> Self {
        let process = kernel.start_process();
        let dll = process.load_dll(c_image::path(&workspace(), PROGRAM.name)).expect("the DLL loads");
        Self { process, dll }
    }

    fn try_call(&self, function: &str, arguments: &[u64]) -> Option<u32> {
        let address = self.dll.export(function).expect("an exported function");
        // SAFETY: a function of program.c with its arguments.
        unsafe { self.process.try_call(address, arguments) }.map(|result| result as u32)
    }

    fn call(&self, function: &str, arguments: &[u64]) -> u32 {
        self.try_call(function, arguments).expect("the process lives")
    }

    /// A handle of a file of the driver's.
    fn open(&self) -> u64 {
        let address = self.dll.export("Open").expect("an exported function");
        // SAFETY: the function of program.c.
        unsafe { self.process.call(address, &[1]) }
    }

    /// Two pages, and a request that pends with the status block in the first and the buffer in the second one.
    fn pend(&self, code: u64, length: u64) -> usize {
        let memory = self.process.allocate(2 * BUFFER);
        assert_eq!(self.call("PendAt", &[code, memory as u64, length, 0, 0]), STATUS_PENDING);
        memory
    }

    /// As [`Self::pend`], by a file with a completion port; its handle, too.
    fn pend_with_port(&self, code: u64, length: u64) -> (usize, u64) {
        let (memory, handle) = (self.process.allocate(2 * BUFFER), self.process.allocate(8));
        assert_eq!(self.call("PendAt", &[code, memory as u64, length, 1, handle as u64]), STATUS_PENDING);
        let port = self.process.read(handle, 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        (memory, port.expect("a handle"))
    }

    /// The status of a request.
    fn status(&self, memory: usize) -> u32 {
        let bytes = self.process.read(memory, 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_le_bytes).expect("a status block")
    }

    fn outstanding(&self) -> u32 {
        self.call("Outstanding", &[])
    }
}

fn in_child(test: &str, body: impl FnOnce(&Kernel)) -> Option<Outcome> {
    in_child_with(KernelConfig::default(), test, body)
}

fn in_child_with(configuration: KernelConfig, test: &str, body: impl FnOnce(&Kernel)) -> Option<Outcome> {
    crate::child::in_child(test, build, || {
        let kernel = Kernel::boot(configuration);
        let load = || kernel.load_driver(c_image::path(&workspace(), PENDING.name), "pending");
        let driver: Driver = load().expect("the driver loads");
        // The kernel's own threads have started, and those of the test have ended.
        kernel.rest(Duration::from_millis(1));
        let frames = kernel.report().frames;
        body(&kernel);
        kernel.rest(Duration::from_millis(1));
        // In fast mode the pool keeps frames.
        let gives_back = kernel.config().mode == Mode::Verify;
        assert!(!gives_back || kernel.report().frames == frames, "every process has gone, and its memory has not");
        driver.unload();
        let report = kernel.shutdown();
        assert!(report.is_clean(), "{report}");
    })
}

/// A test whose body must end well.
macro_rules! trials {
    ($($(#[$meta:meta])* $name:ident = $body:expr;)*) => {
        $(
            $(#[$meta])*
            #[test]
            fn $name() {
                if let Some(outcome) = in_child(stringify!($name), $body) {
                    outcome.expect_success();
                }
            }
        )*
    };
}

/// Runs a part of program.c, which returns the line of what is wrong, in a process that ends afterwards.
fn part(kernel: &Kernel, function: &str) {
    let program = Program::start(kernel);
    let handles = program.process.open_handles();
    assert_eq!(program.call(function, &[]), 0, "{function}: the line of program.c");
    assert_eq!(program.process.open_handles(), handles, "{function} has closed what it has opened");
    assert_eq!(program.process.heap_blocks(), 0, "{function} has freed what it has allocated");
    program.process.exit();
}

trials! {
    requests_travel_by_each_method = |kernel| part(kernel, "Methods");
    what_may_not_be_touched_is_an_access_violation = |kernel| part(kernel, "Protections");
    packets_come_in_the_order_of_completion = |kernel| part(kernel, "Port");
    modes_of_a_file_say_what_queues_a_packet = |kernel| part(kernel, "Modes");
    events_and_results_of_overlapped_requests = |kernel| part(kernel, "Events");
    requests_are_cancelled_alone_and_together = |kernel| part(kernel, "Cancel");
    heap_and_machine = |kernel| part(kernel, "Small");

    each_process_has_its_own_copy_of_a_dll = |kernel| {
        let (one, other) = (Program::start(kernel), Program::start(kernel));
        assert_ne!(one.dll.image().base, other.dll.image().base);
        assert_eq!([one.call("TimesAttached", &[]), one.call("TimesAttached", &[])], [1, 2]);
        assert_eq!(other.call("TimesAttached", &[]), 1);
        assert_eq!(one.call("ProcessOfRequests", &[]), one.process.number());
        assert_eq!(other.call("ProcessOfRequests", &[]), other.process.number());
        let place = one.process.allocate(4);
        one.call("WriteOnDetach", &[place as u64]);
        let Program { process, dll } = one;
        dll.unload(&process);
        assert_eq!(process.read(place, 1), Some(vec![1]), "DllMain was called");
        assert_eq!(other.call("TimesAttached", &[]), 2);
    };

    handles_mean_something_in_their_process_only = |kernel| {
        let (one, other) = (Program::start(kernel), Program::start(kernel));
        let file = one.open();
        assert_ne!(file, other.open(), "the first handles of both");
        let (_, port) = one.pend_with_port(CODE_PEND, 8);
        assert_eq!(other.call("Foreign", &[file, port]), 0, "the line of program.c");
        assert_eq!(one.outstanding(), 1);
    };

    the_end_of_a_thread_cancels_its_requests = |kernel| {
        let program = Arc::new(Program::start(kernel));
        let own = program.pend(CODE_PEND, 8);
        let theirs = Arc::clone(&program);
        let thread = kernel.spawn("of the program", move || {
            let _guard = theirs.process.enter();
            (theirs.pend(CODE_PEND_OUT, 100), theirs.pend_with_port(CODE_PEND, 8).0)
        });
        let (plain, with_port) = thread.join();
        assert_eq!(program.status(plain), STATUS_CANCELLED);
        assert_eq!([program.status(own), program.status(with_port)], [STATUS_PENDING; 2]);
        let guard = program.process.enter();
        guard.exit_thread();
        assert_eq!([program.status(own), program.status(with_port)], [STATUS_CANCELLED, STATUS_PENDING]);
        assert_eq!(program.call("Release", &[0, 8]), STATUS_SUCCESS);
        assert_eq!(program.status(with_port), STATUS_SUCCESS);
    };

    a_killed_process_leaves_nothing_behind = |kernel| {
        let (killed, witness) = (Program::start(kernel), Program::start(kernel));
        let kept = witness.pend(CODE_PEND, 8);
        let memory = killed.pend(CODE_PEND_OUT, 4096);
        killed.pend_with_port(CODE_PEND_IN, 4096);
        killed.pend_with_port(CODE_PEND, 8);
        assert_eq!(witness.outstanding(), 4);
        killed.process.kill();
        assert_eq!(witness.outstanding(), 1);
        assert_eq!(killed.process.read(memory, 1), None, "its memory is gone");
        assert_eq!(killed.try_call("Outstanding", &[]), None, "its code runs no more");
        assert_eq!(killed.process.open_handles(), 0);
        assert_eq!(witness.status(kept), STATUS_PENDING);
        killed.process.kill();
    };

    a_program_in_rust_runs_as_code_of_its_process = |kernel| {
        let program = Program::start(kernel);
        let before = program.process.control_requests();
        let number = program.process.run(|| {
            let here = 7_u64;
            assert!(program.process.read(&raw const here as usize, 8).is_some(), "its stack is memory of the process");
            let address = kernel_host::user::program::function("kernel32.dll", "GetCurrentProcessId").expect("an export");
            // SAFETY: a function without arguments, by its address.
            let function = unsafe { std::mem::transmute::<usize, unsafe extern "win64" fn() -> u32>(address) };
            // SAFETY: as above; the thread is in a process.
            unsafe { function() }
        });
        assert_eq!(number, program.process.number());
        assert_eq!(kernel_host::user::program::function("kernel32.dll", "NoSuchFunction"), None);
        assert_eq!(program.process.control_requests(), before);
        program.pend(CODE_PEND, 8);
        assert_eq!(program.process.control_requests(), before + 1);
    };

    a_thread_that_waits_leaves_a_killed_process = |kernel| {
        let program = Arc::new(Program::start(kernel));
        let (_, port) = program.pend_with_port(CODE_PEND, 8);
        let theirs = Arc::clone(&program);
        let thread = kernel.spawn("of the program", move || theirs.try_call("TakePacket", &[port]));
        kernel.rest(Duration::from_millis(1));
        program.process.kill();
        assert_eq!(thread.join(), None);
    };

    a_thread_in_a_synchronous_request_leaves_a_killed_process = |kernel| {
        let (program, witness) = (Arc::new(Program::start(kernel)), Program::start(kernel));
        let theirs = Arc::clone(&program);
        let ended = kernel.spawn("of the program", move || theirs.try_call("PendAndWait", &[]));
        let theirs = Arc::clone(&program);
        kernel.rest(Duration::from_millis(1));
        assert_eq!(witness.call("Release", &[0, 5]), STATUS_SUCCESS);
        assert_eq!(ended.join(), Some(5));
        let killed = kernel.spawn("of the program", move || theirs.try_call("PendAndWait", &[]));
        kernel.rest(Duration::from_millis(1));
        program.process.kill();
        assert_eq!((killed.join(), witness.outstanding()), (None, 0));
    };

    a_thread_is_woken_by_the_packet_that_it_waits_for = |kernel| {
        let program = Arc::new(Program::start(kernel));
        let (_, port) = program.pend_with_port(CODE_PEND, 8);
        let theirs = Arc::clone(&program);
        let thread = kernel.spawn("of the program", move || theirs.try_call("TakePacket", &[port]));
        kernel.rest(Duration::from_millis(1));
        assert_eq!(program.call("Release", &[0, 8]), STATUS_SUCCESS);
        assert_eq!(thread.join(), Some(1));
    };

    a_program_writes_what_is_lent_for_reading = |kernel| {
        let program = Program::start(kernel);
        let memory = program.pend(CODE_PEND_IN, 4096);
        assert!(program.process.write(memory + BUFFER, &[1, 2, 3]));
        assert_eq!(program.call("Release", &[0, 0]), STATUS_SUCCESS);
        assert_eq!(program.status(memory), STATUS_SUCCESS);
        assert_eq!(program.process.read(memory + BUFFER, 3), Some(vec![1, 2, 3]));
    };

    locked_memory_goes_with_its_last_request = |kernel| {
        let program = Program::start(kernel);
        let before = kernel.report().frames;
        let memory = program.pend(CODE_PEND_OUT, 4096);
        assert_eq!(program.call("GiveBack", &[memory as u64]), 1);
        assert_eq!(program.process.read(memory, 1), None);
        assert!(kernel.report().frames >= before + 2, "the driver has it locked");
        // Neither the buffer nor the status block is there to be written.
        assert_eq!(program.call("Release", &[0, 0]), STATUS_SUCCESS);
        program.process.kill();
    };

    memory_of_a_process_is_what_its_protection_says = |kernel| {
        let process = kernel.start_process();
        let memory = process.allocate(3 * 4096);
        assert!(process.write(memory + 4095, &[1, 2]));
        assert!(process.protect(memory + 4096, 1, Protection::ReadOnly));
        assert!(!process.write(memory + 4095, &[3, 4]));
        assert_eq!(process.read(memory + 4095, 2), Some(vec![1, 2]));
        assert!(process.protect(memory, 4096, Protection::None));
        assert_eq!(process.read(memory + 4095, 2), None);
        assert!(!process.protect(memory + 2 * 4096, 4097, Protection::ReadOnly));
        assert!(process.free(memory) && !process.free(memory));
        assert_eq!(process.read(memory + 4096, 1), None);
    };

    an_import_that_is_not_there_is_named = |kernel| {
        let process = kernel.start_process();
        let Err(DllError::Image(error)) = process.load_dll(c_image::path(&workspace(), STRAY.name)) else {
            panic!("it loads without CreateFiber");
        };
        assert!(error.to_string().contains("kernel32.dll!CreateFiber"), "{error}");
        let driver = process.load_dll(c_image::path(&workspace(), PENDING.name));
        assert!(driver.is_err_and(|error| error.to_string().contains("not a DLL")));
        let dll = kernel.load_driver(c_image::path(&workspace(), PROGRAM.name), "program");
        assert!(dll.is_err_and(|error| error.to_string().contains("not a driver")));
    };
}

#[test]
fn programs_run_in_a_schedule() {
    let outcome = in_child_with(
        KernelConfig { schedule: Some(7), ..KernelConfig::default() },
        "programs_run_in_a_schedule",
        |kernel| {
            for function in ["Methods", "Port", "Modes", "Events", "Cancel"] {
                part(kernel, function);
            }
        },
    );
    if let Some(outcome) = outcome {
        outcome.expect_success();
    }
}

#[test]
fn programs_run_in_fast_mode() {
    let outcome = in_child_with(
        KernelConfig { mode: Mode::Fast, ..KernelConfig::default() },
        "programs_run_in_fast_mode",
        |kernel| {
            for function in ["Methods", "Protections", "Modes", "Cancel"] {
                part(kernel, function);
            }
        },
    );
    if let Some(outcome) = outcome {
        outcome.expect_success();
    }
}

#[test]
fn a_driver_that_writes_what_it_was_lent_for_reading_is_reported() {
    let outcome = in_child("a_driver_that_writes_what_it_was_lent_for_reading_is_reported", |kernel| {
        let program = Program::start(kernel);
        let buffer = program.process.allocate(64);
        program.call("Scribble", &[buffer as u64]);
    });
    let Some(outcome) = outcome else { return };
    let report = outcome.expect_bugcheck();
    assert_eq!(report["code"], BugCheck::ATTEMPTED_WRITE_TO_READONLY_MEMORY as u64, "{report}");
    let rule = report["rule"].as_str().unwrap_or_default();
    assert!(rule.contains("lent for reading") && rule.contains("the driver writes"), "{rule}");
}
