//! Output, exit codes and failures of programs, and that the host outlives them with nothing left.

use kernel_host::{ProgramEnd, RunningProgram};
use networkdirect::cases::{self, Case};
use networkdirect::machine::Machine;
use networkdirect::own_program::{Files, wait_for_output};
use softndk_images::user_program::{self, RunTime};
use softndk_images::workspace::Workspace;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const CASES: &[Case] = networkdirect::cases![
    lists_providers_and_addresses,
    is_the_same_with_the_universal_run_time,
    two_processes_play_ping_pong,
    exit_codes_come_through,
    a_fault_ends_its_process_alone,
    a_fault_in_a_function_of_the_system_does_too,
    a_fault_in_the_host_for_it_does_too,
    abort_ends_its_process,
    a_block_that_is_freed_twice_ends_its_process,
    an_endless_loop_ends_with_its_time,
    a_wait_without_end_ends_with_its_time,
    a_killed_program_leaves_its_peer_alone,
    threads_start_and_end,
    handles_are_used_again,
    missing_imports_are_all_named,
];

/// Longer than any program here needs, in the kernel's time.
const ENOUGH: Duration = Duration::from_mins(10);

const PROVIDERS: &str = "tests/networkdirect/programs/providers.c";
const PINGPONG: &str = "tests/networkdirect/programs/pingpong.c";
const ENDS: &str = "tests/networkdirect/programs/ends.c";
const MISSING: &str = "tests/networkdirect/programs/missing.c";

fn workspace() -> Workspace {
    Workspace::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

pub fn main() -> ExitCode {
    let prepare = || {
        user_program::run_time(&workspace()).unwrap_or_else(|error| panic!("{error:#}"));
        for source in [PROVIDERS, PINGPONG, ENDS, MISSING] {
            program(source);
        }
        universal(PROVIDERS);
    };
    cases::run(&[CASES], prepare, Vec::new, |_| Ok(()))
}

fn built(source: &str, run_time: RunTime) -> PathBuf {
    let stem = Path::new(source).file_stem().expect("a file").to_string_lossy();
    let built = user_program::build(&workspace(), &format!("nd-{stem}.exe"), &[source], run_time);
    built.unwrap_or_else(|error| panic!("{error:#}"))
}

fn program(source: &str) -> PathBuf {
    built(source, RunTime::Msvcrt)
}

fn universal(source: &str) -> PathBuf {
    built(source, RunTime::Universal)
}

fn start(machine: &Machine, program: &Path, words: &[&str]) -> Result<RunningProgram, String> {
    let files = Files {
        run_time: user_program::run_time(&workspace()).unwrap_or_else(|error| panic!("{error:#}")),
        provider: workspace().path("target/softnd/x64/release/softnd.dll"),
    };
    let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
    files.start(&machine.kernel, program, &words, None)
}

#[track_caller]
fn wait_until(machine: &Machine, program: &RunningProgram, has_written: &str) {
    wait_for_output(&machine.kernel, program, has_written).unwrap_or_else(|error| panic!("{error}"));
}

/// Runs a program to its end on a machine of its own, which then has nothing left.
fn run(source: &str, words: &[&str]) -> (ProgramEnd, String) {
    let machine = Machine::start();
    let running = start(&machine, &program(source), words).unwrap_or_else(|error| panic!("{error}"));
    end_of(machine, running, ENOUGH)
}

fn end_of(machine: Machine, running: RunningProgram, limit: Duration) -> (ProgramEnd, String) {
    let end = running.wait(limit);
    let output = running.output().replace("\r\n", "\n");
    drop(running);
    machine.finish();
    (end, output)
}

/// The program that ends in a way by its argument.
#[track_caller]
fn ends(how: &str) -> String {
    let (end, output) = run(ENDS, &[how]);
    assert!(output.starts_with(&format!("ends by {how}\n")), "{output}");
    match end {
        ProgramEnd::Failed(report) => report,
        other => panic!("{other:?}"),
    }
}

const LISTED: &str = "\
nd-providers.exe: 1 argument, 10.0 MHz, ab   |+0042|0xff
provider \"softndk NetworkDirect 2\", version 2.0, entry 1002
provider \"softndk NetworkDirect 1\", version 0.1, entry 1003
2 of 3 entries are NetworkDirect
adapter 10.0.0.1
adapter 10.0.0.2
the way to the peer begins at 10.0.0.1
local 10.0.0.1
local 10.0.0.2
";

fn lists_providers_and_addresses() {
    let (end, output) = run(PROVIDERS, &["10.0.0.77"]);
    assert_eq!((end, output.as_str()), (ProgramEnd::Exited(0), LISTED));
}

fn is_the_same_with_the_universal_run_time() {
    let machine = Machine::start();
    let running = start(&machine, &universal(PROVIDERS), &["10.0.0.77"]).unwrap_or_else(|error| panic!("{error}"));
    let end = running.wait(ENOUGH);
    assert_eq!((end, running.output().replace("\r\n", "\n").as_str()), (ProgramEnd::Exited(0), LISTED));
    drop(running);
    machine.finish();
}

fn two_processes_play_ping_pong() {
    let machine = Machine::start();
    let image = program(PINGPONG);
    let begin = |words: &[&str]| start(&machine, &image, words).unwrap_or_else(|error| panic!("{error}"));
    let server = begin(&["server", "10.0.0.2:5000"]);
    wait_until(&machine, &server, "listening");
    let client = begin(&["client", "10.0.0.2:5000", "100", "4000"]);
    let ended = (client.wait(ENOUGH), server.wait(ENOUGH));
    assert_eq!(
        (client.output().trim_end(), server.output().replace("\r\n", "\n").trim_end()),
        ("100 round trips of 4000 bytes", "listening\n100 messages answered")
    );
    assert_eq!(ended, (ProgramEnd::Exited(0), ProgramEnd::Exited(0)));
    drop((client, server));
    machine.finish();
}

fn exit_codes_come_through() {
    let (end, output) = run(ENDS, &["exit", "40961"]);
    assert_eq!((end, output.as_str()), (ProgramEnd::Exited(40961), "ends by exit\nat exit\n"));
}

fn a_fault_ends_its_process_alone() {
    let report = ends("fault");
    assert!(report.contains("the user program in nd-ends.exe writes 0x8: no memory at all"), "{report}");
    assert!(report.contains("nd-ends.exe!write_nowhere") && report.contains("nd-ends.exe!main"), "{report}");
}

fn a_fault_in_a_function_of_the_system_does_too() {
    let report = ends("library-fault");
    assert!(report.contains("the user program in run-time.dll reads 0x0"), "{report}");
    assert!(report.contains("run-time.dll!strlen") && report.contains("nd-ends.exe!main"), "{report}");
}

fn a_fault_in_the_host_for_it_does_too() {
    let report = ends("kernel32-fault");
    assert!(report.contains("GetSystemInfo, which is given a pointer by the user program, writes 0x0"), "{report}");
    assert!(report.contains("nd-ends.exe!main"), "{report}");
}

fn abort_ends_its_process() {
    let report = ends("abort");
    assert!(report.contains("it has called abort"), "{report}");
}

fn a_block_that_is_freed_twice_ends_its_process() {
    let report = ends("twice-freed");
    assert!(report.contains("which is no block of its heap, or was freed before"), "{report}");
}

fn an_endless_loop_ends_with_its_time() {
    let machine = Machine::start();
    let running = start(&machine, &program(ENDS), &["loop"]).unwrap_or_else(|error| panic!("{error}"));
    wait_until(&machine, &running, "both loops run");
    let (end, output) = end_of(machine, running, Duration::ZERO);
    let ProgramEnd::TimedOut(report) = end else { panic!("{end:?}") };
    assert_eq!(output, "ends by loop\nboth loops run\n");
    assert_eq!(report.matches("a thread ran:\n  nd-ends.exe!loop").count(), 2, "{report}");
}

fn a_wait_without_end_ends_with_its_time() {
    let (end, _) = run(ENDS, &["wait"]);
    let ProgramEnd::TimedOut(report) = end else { panic!("{end:?}") };
    assert!(report.contains("a thread waits in WaitForSingleObject:\n  nd-ends.exe!main"), "{report}");
}

/// A server whose client ends in the middle learns of it, and ends.
fn a_killed_program_leaves_its_peer_alone() {
    let machine = Machine::start();
    let image = program(PINGPONG);
    let begin = |words: &[&str]| start(&machine, &image, words).unwrap_or_else(|error| panic!("{error}"));
    let server = begin(&["server", "10.0.0.2:5000"]);
    wait_until(&machine, &server, "listening");
    // Rounds without end; the client's time is over in the middle.
    let client = begin(&["client", "10.0.0.2:5000", "2000000000", "64"]);
    wait_until(&machine, &server, "1000 messages so far");
    let ended = client.wait(Duration::ZERO);
    assert!(matches!(ended, ProgramEnd::TimedOut(_)), "{ended:?}: {}", client.output());
    // By itself: its requests are cancelled, and NotifyDisconnect completes.
    assert_eq!(server.wait(ENOUGH), ProgramEnd::Exited(0), "{}", server.output());
    drop((client, server));
    machine.finish();
}

fn threads_start_and_end() {
    let (end, output) = run(ENDS, &["threads"]);
    assert_eq!((end, output.as_str()), (ProgramEnd::Exited(0), "ends by threads\nwaited 0, sum 4, code 7\n"));
}

fn handles_are_used_again() {
    let (end, output) = run(ENDS, &["handles"]);
    assert_eq!((end, output.as_str()), (ProgramEnd::Exited(0), "ends by handles\n20000 events made and closed\n"));
}

fn missing_imports_are_all_named() {
    let machine = Machine::start();
    let refusal = start(&machine, &program(MISSING), &[]).err().expect("it cannot be loaded");
    for name in ["KERNEL32.dll!Beep", "KERNEL32.dll!GetVolumeInformationA"] {
        assert!(refusal.contains(name), "{refusal}");
    }
    machine.finish();
}
