//! ```text
//! own_program RUN-TIME SOFTND [--seconds N] [--fast] [--keyword NAME=VALUE]… PROGRAM [ARGUMENT…] [--second [--after TEXT] PROGRAM [ARGUMENT…]]…
//! ```
//!
//! `cargo xtask own-program` builds the files and gives the first two words. The first program starts; each other one a moment later, or
//! when the one before it has written TEXT. The exit code is 0 when all of theirs are.

use kernel_host::{Mode, ProgramEnd, RunningProgram};
use networkdirect::machine::{Machine, MachineSetup};
use networkdirect::own_program::{Files, describe, head_start, wait_for_output};
use networkdirect::refusals;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: cargo xtask own-program [--seconds N] [--fast] [--keyword NAME=VALUE]… PROGRAM.exe [ARGUMENT…] \
                     [--second [--after TEXT] OTHER.exe [ARGUMENT…]]…";

/// How long programs may run, in the kernel's time.
const SECONDS: u64 = 60;

/// A program and its words.
struct Called {
    program: PathBuf,
    arguments: Vec<String>,
    /// What the program before it has written by then.
    after: Option<String>,
}

struct Words {
    files: Files,
    seconds: u64,
    mode: Mode,
    keywords: Vec<(String, String)>,
    programs: Vec<Called>,
}

pub fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(|words| run(&words)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut given: impl Iterator<Item = String>) -> Result<Words, String> {
    let mut next = || given.next().ok_or_else(|| USAGE.to_owned());
    let files = Files { run_time: next()?.into(), provider: next()?.into() };
    let mut words = Words { files, seconds: SECONDS, mode: Mode::Verify, keywords: Vec::new(), programs: Vec::new() };
    loop {
        let word = next()?;
        match word.as_str() {
            "--seconds" => words.seconds = next()?.parse().map_err(|error| format!("--seconds: {error}"))?,
            "--fast" => words.mode = Mode::Fast,
            "--keyword" => {
                let pair = next()?;
                let (name, value) = pair.split_once('=').ok_or(USAGE)?;
                words.keywords.push((name.to_owned(), value.to_owned()));
            }
            option if option.starts_with("--") => return Err(format!("there is no option {option}\n{USAGE}")),
            _ => {
                words.programs.push(Called { program: word.into(), arguments: Vec::new(), after: None });
                break;
            }
        }
    }
    while let Some(word) = given.next() {
        if word == "--second" {
            let mut program = given.next().ok_or(USAGE)?;
            let mut after = None;
            if program == "--after" {
                after = Some(given.next().ok_or(USAGE)?);
                program = given.next().ok_or(USAGE)?;
            }
            words.programs.push(Called { program: program.into(), arguments: Vec::new(), after });
        } else if let Some(called) = words.programs.last_mut() {
            called.arguments.push(word);
        }
    }
    Ok(words)
}

fn run(words: &Words) -> Result<bool, String> {
    if let Some(called) = words.programs.iter().find(|called| !called.program.is_file()) {
        return Err(format!("there is no file {}", called.program.display()));
    }
    let keywords: Vec<_> = words.keywords.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let machine = Machine::of(&MachineSetup { mode: words.mode, keywords: &keywords, ..MachineSetup::default() });
    let mut running = Vec::new();
    for (number, called) in (1..).zip(&words.programs) {
        match (running.last(), &called.after) {
            (None, _) => {}
            (Some(_), None) => head_start(&machine.kernel),
            (Some(before), Some(text)) => {
                let waited = wait_for_output(&machine.kernel, before, text);
                waited.map_err(|error| format!("--after: the program before {}: {error}", called.program.display()))?;
            }
        }
        running.push(start(words, &machine, called, number)?);
    }
    let limit = Duration::from_secs(words.seconds);
    let mut all_well = true;
    for (number, (called, program)) in (1..).zip(words.programs.iter().zip(&running)) {
        let end = program.wait(limit);
        println!("{number}: {}: {}", name_of(&called.program), describe(&end));
        if matches!(end, ProgramEnd::TimedOut(_)) {
            println!("{number}: it had {} seconds of the kernel's time; --seconds N gives it more", words.seconds);
        }
        all_well &= end == ProgramEnd::Exited(0);
    }
    drop(running);
    print_refusals();
    machine.finish();
    Ok(all_well)
}

/// What the driver refused the programs, the last one last.
fn print_refusals() {
    let refused = refusals::kept();
    if !refused.is_empty() {
        println!("refused by the driver, the last one last:");
        for entry in &refused {
            println!("  #{} {}", entry.number, refusals::sentence(entry));
        }
    }
}

fn name_of(program: &Path) -> String {
    program.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn start(words: &Words, machine: &Machine, called: &Called, number: usize) -> Result<RunningProgram, String> {
    let prefix = if words.programs.len() > 1 { format!("{number}| ") } else { String::new() };
    let show = Box::new(move |line: &str| println!("{prefix}{line}"));
    let started = words.files.start(&machine.kernel, &called.program, &called.arguments, Some(show));
    started.map_err(|error| {
        format!(
            "{error}\nA DLL of your own belongs beside the program. What the host and its run-time library have is in docs/own-program.md; a \
             function that is missing there belongs into tests/kernel-host/run-time."
        )
    })
}
