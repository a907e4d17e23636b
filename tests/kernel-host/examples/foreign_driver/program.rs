//! The command line: what is asked for, the cases that come of it, and the exit code.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use kernel_host::inf::{AdapterConfig, Inx};
use softndk_images::driver_run::DriverRun;

use crate::case::{self, Case};
use crate::children::{self, Finished};
use crate::report::Results;
use crate::{faults, run};

/// Run a driver that uses NDK beside a provider, in the kernel host.
///
/// It runs once for each value of CompletionMode and LimitsProfile, unless --keyword names one, and each time in a kernel of its own: it is
/// loaded, lives for --seconds of the kernel's time, and is unloaded, then the provider. docs/own-driver.md leads through all of it.
#[derive(Parser)]
#[command(
    name = "foreign_driver",
    after_help = "\
Exit codes:
  0    every run was good
  1    a run failed: DriverEntry did, the driver printed a line that begins with TEST-FAILED, text of --expect did not come, or something was left
  2    wrong arguments, an unknown value of a keyword, or an image that cannot be loaded
  113  a run ended in a bugcheck"
)]
pub struct Words {
    /// The provider: softndk.sys
    pub provider: PathBuf,

    /// The file that installs its adapters: inf/softndk.inx
    pub inx: PathBuf,

    /// The driver to run; its .pdb lies beside it
    pub driver: PathBuf,

    #[command(flatten)]
    pub run: DriverRun,
}

/// What ends with exit code 2.
pub type Unusable = Box<dyn Error + Send + Sync>;

const UNUSABLE: u8 = 2;

impl Words {
    /// The driver's file name, by which the kernel knows the image.
    pub fn driver_name(&self) -> String {
        file_name(&self.driver)
    }
}

pub fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

pub fn main() -> ExitCode {
    match run_words(&Words::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(UNUSABLE)
        }
    }
}

fn run_words(words: &Words) -> Result<u8, Unusable> {
    for file in [&words.provider, &words.inx, &words.driver] {
        if !file.is_file() {
            return Err(format!("there is no file {}", file.display()).into());
        }
    }
    let adapter = AdapterConfig::from_inx(&Inx::load(&words.inx)?)?;
    check_keywords(words, &adapter)?;
    let cases = case::all(&words.run, adapter.installation());
    if words.run.in_process {
        let [case, ..] = cases.as_slice() else { return Err("there is no case".into()) };
        return run::here(words, case, adapter);
    }
    let live = cases.len() == 1 && !words.run.faults;
    let mut results = Results::new(words, children::run_all(words, &cases, live)?);
    if words.run.faults {
        results.faults = Some(faults::run_all(words, &cases)?);
    }
    results.write()?;
    Ok(results.exit_code())
}

/// A keyword or a value that the INF does not declare is a mistake of the command line: the driver would take its default.
fn check_keywords(words: &Words, adapter: &AdapterConfig) -> Result<(), Unusable> {
    for (name, value) in &words.run.keywords {
        let Some(keyword) = adapter.keyword(name) else {
            let names: Vec<_> = adapter.installation().keywords.iter().map(|known| known.name.as_str()).collect();
            return Err(format!("the INF declares no keyword {name}; it declares {}", names.join(", ")).into());
        };
        if !keyword.takes(value) {
            let values = keyword.values();
            return Err(format!("{value:?} is no value of the keyword {}, which takes {values}", keyword.name).into());
        }
    }
    Ok(())
}

/// What a run of a case ended with, for those that start it.
pub fn is_bugcheck(finished: &Finished) -> bool {
    finished.bugcheck.is_some()
}

/// The words of a case for a child, and for the command that repeats it.
pub fn case_words(words: &Words, case: &Case) -> Vec<String> {
    let mut all = words.run.machine_words();
    all.extend(case.words());
    all
}
