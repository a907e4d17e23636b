//! `cargo xtask repeat`: every suite many times, on an idle and on a busy machine, and a table of what failed.
//!
//! A suite is a test binary of the workspace, which is built once and started again and again; the rounds go through all suites
//! one after the other. The load is an endless loop for each processor, in this process. The output of each run that fails is kept.

use crate::{
    arch::Arch,
    bad_drivers,
    child::{lead_a_group, wait},
    driver::{self, Profile},
    setup,
    test_binary::TestBinary,
    test_log::{failed_trials, totals},
    workspace::Workspace,
};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    hint,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Run every suite many times, on an idle and on a busy machine, and print a table of the failures.
#[derive(clap::Args)]
pub struct RepeatArguments {
    /// Only suites whose names contain one of these: `kernel-host/c_consumer`, `conformance/`
    suites: Vec<String>,

    /// Runs of each suite under each load
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    times: u32,

    /// Only under these loads
    #[arg(long, value_delimiter = ',', value_enum)]
    load: Vec<Load>,

    /// Only trials whose names contain this; a suite without one is passed over
    #[arg(long)]
    trial: Option<String>,
}

/// What the machine does beside the suites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Load {
    /// Nothing that this command starts
    Idle,
    /// An endless loop on each processor
    Busy,
}

impl Load {
    const ALL: [Self; 2] = [Self::Idle, Self::Busy];

    fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
        }
    }
}

/// Failures of one trial of a suite under one load, or of the suite as such.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    load: &'static str,
    suite: String,
    trial: String,
    failed: u32,
    /// What the first failed run said.
    log: String,
}

/// After which a run is ended and counts as failed.
const LIMIT: Duration = Duration::from_mins(30);

/// The name of the trial where a run ended without naming one.
const WHOLE: &str = "(the run itself)";

pub fn run(arguments: &RepeatArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    setup::run(&setup::SetupArguments { quiet: true })?;
    let image = driver::build(&workspace, Arch::X64, Profile::Debug)?;
    bad_drivers::build(&workspace)?;
    let mut suites = TestBinary::build_all(&workspace, &[])?;
    suites.retain(|suite| is_chosen(&arguments.suites, &suite.name));
    if suites.is_empty() {
        bail!("no suite has a name with one of {:?} in it", arguments.suites);
    }
    let logs = workspace.path("target/repeat-logs");
    fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
    let started = Instant::now();
    let runner = TrialRunner { workspace: &workspace, arguments, image: &image, logs: &logs };
    let (mut rows, mut passed) = (Vec::new(), 0);
    for load in Load::ALL.into_iter().filter(|load| arguments.load.is_empty() || arguments.load.contains(load)) {
        let _busy = (load == Load::Busy).then(Busy::start);
        let (failed, well) = runner.under(load, &suites)?;
        rows.extend(failed);
        passed += well;
    }
    report(&rows, &suites, arguments, started.elapsed());
    verdict(&rows, passed)
}

fn verdict(rows: &[Row], passed: usize) -> Result<()> {
    if !rows.is_empty() {
        bail!("{} trials failed at least once", rows.len());
    }
    if passed == 0 {
        bail!("no trial ran: none has such a name");
    }
    Ok(())
}

fn is_chosen(wanted: &[String], name: &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()))
}

/// Endless loops, one on each processor, until it is dropped.
struct Busy {
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    fn start() -> Self {
        let stopping = Arc::new(AtomicBool::new(false));
        let spin = |stopping: Arc<AtomicBool>| {
            move || {
                while !stopping.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            }
        };
        let count = thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..count).map(|_| thread::spawn(spin(Arc::clone(&stopping)))).collect();
        Self { stopping, threads }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A loop cannot panic.
            let _ = thread.join();
        }
    }
}

struct TrialRunner<'run> {
    workspace: &'run Workspace,
    arguments: &'run RepeatArguments,
    image: &'run Path,
    logs: &'run Path,
}

impl TrialRunner<'_> {
    /// All rounds under one load: what failed, and how many trials passed.
    fn under(&self, load: Load, suites: &[TestBinary]) -> Result<(Vec<Row>, usize)> {
        let mut passed = 0;
        let mut failures: BTreeMap<(String, String), (u32, String)> = BTreeMap::new();
        let bar = ProgressBar::new(u64::from(self.arguments.times) * suites.len() as u64);
        bar.set_style(ProgressStyle::with_template("{spinner} {elapsed:>4} {pos}/{len} {msg}")?);
        bar.enable_steady_tick(Duration::from_millis(120));
        for round in 1..=self.arguments.times {
            for suite in suites {
                bar.set_message(format!("{}, round {round}: {}", load.name(), suite.name));
                let log = self.logs.join(format!("{}-{}-{round}.log", load.name(), suite.name.replace('/', "-")));
                let (failed, well) = self.once(suite, &log)?;
                passed += well;
                for trial in failed {
                    let shown = self.workspace.show(&log).to_string();
                    bar.suspend(|| eprintln!("{}, round {round}: FAILED {} {trial}; {shown}", load.name(), suite.name));
                    failures.entry((suite.name.clone(), trial)).or_insert((0, shown)).0 += 1;
                }
                bar.inc(1);
            }
            let failed = failures.len();
            bar.suspend(|| {
                eprintln!("{}, round {round} of {}: {failed} trials failed so far", load.name(), self.arguments.times);
            });
        }
        bar.finish_and_clear();
        let row = |((suite, trial), (failed, log))| Row { load: load.name(), suite, trial, failed, log };
        Ok((failures.into_iter().map(row).collect(), passed))
    }

    /// One run of a suite: the trials that failed, and how many passed. Its output is kept if any failed.
    fn once(&self, suite: &TestBinary, log: &Path) -> Result<(Vec<String>, usize)> {
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(&suite.program);
        command.current_dir(&suite.folder).args(self.arguments.trial.as_ref());
        command.env("CARGO_MANIFEST_DIR", &suite.folder).env("SOFTNDK_IMAGE", self.image);
        command.env("SOFTNDK_BAD_DRIVERS", bad_drivers::image(self.workspace));
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        lead_a_group(&mut command);
        let mut child = command.spawn().with_context(|| format!("cannot start {}", suite.program.display()))?;
        let status = wait(&mut child, LIMIT)?;
        let text = String::from_utf8_lossy(&fs::read(log)?).into_owned();
        let failed = failed(&text, status.is_some_and(|status| status.success()));
        if failed.is_empty() {
            fs::remove_file(log)?;
        }
        Ok((failed, totals(&text).map_or(0, |totals| totals.passed)))
    }
}

/// The trials that a run of a test binary names as failed; the run itself if it did not end well and names none.
fn failed(text: &str, success: bool) -> Vec<String> {
    let mut names = failed_trials(text);
    if names.is_empty() && !success {
        names.push(WHOLE.to_owned());
    }
    if success { Vec::new() } else { names }
}

fn report(rows: &[Row], suites: &[TestBinary], arguments: &RepeatArguments, time: Duration) {
    let (times, count, seconds) = (arguments.times, suites.len(), time.as_secs());
    if !rows.is_empty() {
        let width = |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).len()).max().unwrap_or(0).max(5);
        let (suite, trial) = (width(|row| &row.suite), width(|row| &row.trial));
        println!("load  {:<suite$}  {:<trial$}  {:>8}  first log", "suite", "trial", "failed");
        for row in rows {
            let of = format!("{}/{times}", row.failed);
            println!("{:<4}  {:<suite$}  {:<trial$}  {of:>8}  {}", row.load, row.suite, row.trial, row.log);
        }
    }
    let loads = if arguments.load.is_empty() { Load::ALL.len() } else { arguments.load.len() };
    println!("repeat: {count} suites, {times} times under {loads} loads, {} failures, {seconds} s", rows.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_in_which_nothing_ran_is_not_green() {
        assert!(verdict(&[], 0).is_err());
        assert!(verdict(&[], 1).is_ok());
    }

    #[test]
    fn run_that_names_no_trial_counts_as_one() {
        assert_eq!(failed("memory allocation failed", false), [WHOLE]);
        // A test may print what looks like a failure of its child and pass.
        assert!(failed("test inner ... FAILED\ntest outer ... ok\n", true).is_empty());
    }

    #[test]
    fn suites_are_chosen_by_parts_of_their_names() {
        let wanted = ["c_consumer".to_owned(), "engine/".to_owned()];
        assert!(is_chosen(&wanted, "kernel-host/c_consumer") && is_chosen(&wanted, "engine/softndk_engine"));
        assert!(!is_chosen(&wanted, "conformance/contract") && is_chosen(&[], "conformance/contract"));
    }

    #[test]
    fn load_ends_with_its_owner() {
        let busy = Busy::start();
        let stopping = Arc::clone(&busy.stopping);
        assert_eq!(busy.threads.len(), thread::available_parallelism().unwrap().get());
        drop(busy);
        assert_eq!(Arc::strong_count(&stopping), 1, "the loops have ended");
    }
}
