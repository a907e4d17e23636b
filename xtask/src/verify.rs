//! `cargo xtask verify`: the driver under every rule of the kernel host, then with every call of it that can fail made to
//! fail.
//!
//! First the life cycle, the contract's trials and the C consumer (where it is built) with all rules on. Then the faults:
//! each scenario of `tests/conformance/src/scenario` runs in a process of its own, in which site after site fails at its first,
//! second and last hit. A process that ends early (a bugcheck, a leak, a wrong status) is a failed case; the next process
//! continues with the next site. Every failed case is printed with the command that repeats it.

use crate::{
    arch::Arch,
    command,
    conformance::{self, COMPLETION_MODE},
    driver::{self, Profile},
    host_cargo, progress, setup,
    test_binary::TestBinary,
    workspace::Workspace,
};
use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// The scenarios of `tests/conformance/src/scenario`: a name that is none is refused before anything is built.
const SCENARIOS: [&str; 7] = ["miniport", "transfer", "queues", "windows", "connections", "left-open", "uplink"];

/// Run the driver under every rule of the kernel host, and with every allocation failed.
#[derive(clap::Args)]
pub struct VerifyArguments {
    /// Only the faults, not the trials before them
    #[arg(long)]
    faults: bool,

    /// Faults in these scenarios only
    #[arg(long, value_delimiter = ',', value_parser = SCENARIOS)]
    scenario: Vec<String>,

    /// Only these ways of answering: auto, force-async, force-inline
    #[arg(long, value_delimiter = ',', value_parser = COMPLETION_MODE)]
    completion_mode: Vec<String>,

    /// Only this call site, by its number; implies --faults
    #[arg(long)]
    site: Option<String>,

    /// Only this hit of the site
    #[arg(long, requires = "site")]
    hit: Option<u64>,

    /// Against the optimised image
    #[arg(long)]
    release: bool,
}

/// Before a run with a fault, as the child says it.
struct Begins {
    site: String,
    hit: u64,
    export: String,
    stack: Vec<String>,
    /// Sites known so far.
    sites: usize,
}

/// After it.
struct Ended {
    site: String,
    fired: bool,
    stopped: bool,
}

impl Begins {
    fn read(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let stack = value.get("stack")?.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned);
        Some(Self {
            site: value.get("site")?.as_str()?.to_owned(),
            hit: value.get("hit")?.as_u64()?,
            export: value.get("export")?.as_str()?.to_owned(),
            stack: stack.collect(),
            sites: usize::try_from(value.get("sites")?.as_u64()?).ok()?,
        })
    }
}

impl Ended {
    fn read(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        Some(Self {
            site: value.get("site")?.as_str()?.to_owned(),
            fired: value.get("fired")?.as_bool()?,
            stopped: value.get("stopped")?.as_bool()?,
        })
    }
}

/// A failed case.
struct Failure {
    command: String,
    export: String,
    stack: Vec<String>,
    output: String,
}

/// The counts of all faults together.
#[derive(Default)]
struct ScenarioTally {
    found: BTreeSet<String>,
    failed: BTreeSet<String>,
    runs: usize,
    faults: usize,
    /// Runs that the fault made stop early.
    stopped: usize,
    failures: Vec<Failure>,
}

/// One scenario in one profile.
struct Case<'a> {
    scenario: &'a str,
    completion_mode: &'a str,
}

pub fn run(arguments: &VerifyArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    setup::run(&setup::SetupArguments { quiet: true })?;
    let image = driver::build(&workspace, Arch::X64, Profile::of(arguments.release))?;
    if !arguments.faults && arguments.site.is_none() {
        rules(&workspace, &image)?;
    }
    let started = Instant::now();
    let binary = TestBinary::build(&workspace, "faults")?;
    let scenarios = scenarios(&binary)?;
    let mut tally = ScenarioTally::default();
    for completion_mode in COMPLETION_MODE.into_iter().filter(|name| chosen(&arguments.completion_mode, name)) {
        for scenario in scenarios.iter().filter(|name| chosen(&arguments.scenario, name)) {
            run_scenario(&binary, &image, &Case { scenario, completion_mode }, arguments, &mut tally)?;
        }
    }
    report(&tally, started.elapsed());
    verdict(&tally)
}

fn verdict(tally: &ScenarioTally) -> Result<()> {
    if !tally.failures.is_empty() {
        bail!("{} faults did not end well", tally.failures.len());
    }
    // A site, or a hit of it, that a run did not come to has shown nothing.
    if tally.faults == 0 {
        bail!("no fault was tried in {} runs", tally.runs);
    }
    Ok(())
}

fn chosen(list: &[String], name: &str) -> bool {
    list.is_empty() || list.iter().any(|wanted| wanted == name)
}

/// Everything without a fault, with all rules on.
fn rules(workspace: &Workspace, image: &Path) -> Result<()> {
    let host_test = |name: &str| {
        let mut cargo = host_cargo::cargo(workspace);
        cargo.args(["test", "--quiet", "--locked", "--test", name]).env("SOFTNDK_IMAGE", image);
        command::output(&mut cargo).with_context(|| format!("{name} fails"))
    };
    host_test("softndk_life_cycle")?;
    println!("life cycle: clean");
    println!("conformance: {} trials passed", conformance::run_plain(workspace, image)?);
    host_test("c_consumer")?;
    println!("C consumer: clean");
    Ok(())
}

/// The scenarios that the test binary lists.
fn scenarios(binary: &Path) -> Result<Vec<String>> {
    let list = command::output(Command::new(binary).arg("--list"))?;
    let names = list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect::<Vec<_>>();
    if names.iter().collect::<BTreeSet<_>>() != SCENARIOS.map(str::to_owned).iter().collect() {
        bail!(
            "{} has the scenarios {}, and `SCENARIOS` in xtask/src/verify.rs does not",
            binary.display(),
            names.join(", ")
        );
    }
    Ok(names)
}

/// Starts processes for one scenario until one of them comes to the end.
fn run_scenario(
    binary: &Path,
    image: &Path,
    case: &Case<'_>,
    arguments: &VerifyArguments,
    tally: &mut ScenarioTally,
) -> Result<()> {
    let bar = progress::spinner(format!("{}, {}", case.scenario, case.completion_mode))?;
    let mut done: Vec<String> = Vec::new();
    loop {
        let failure = run_process(binary, image, case, arguments, &mut done, tally, &bar)?;
        let Some(failure) = failure else { break };
        let single = arguments.hit.is_some();
        tally.failures.push(failure);
        if single {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn run_process(
    binary: &Path,
    image: &Path,
    case: &Case<'_>,
    arguments: &VerifyArguments,
    done: &mut Vec<String>,
    tally: &mut ScenarioTally,
    bar: &ProgressBar,
) -> Result<Option<Failure>> {
    let mut command = Command::new(binary);
    command
        .env("SOFTNDK_TRIAL", case.scenario)
        .env("SOFTNDK_COMPLETION_MODE", case.completion_mode)
        .env("SOFTNDK_IMAGE", image);
    command.env("SOFTNDK_FAULT_DONE", done.join(","));
    command.envs(arguments.site.as_ref().map(|site| ("SOFTNDK_FAULT_SITE", site)));
    command.envs(arguments.hit.map(|hit| ("SOFTNDK_FAULT_HIT", hit.to_string())));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut errors = child.stderr.take().context("the child has no error output")?;
    let errors = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is all there is to show.
        let _ = errors.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let output = child.stdout.take().context("the child has no output")?;
    let mut running: Option<Begins> = None;
    for line in BufReader::new(output).lines() {
        let line = line?;
        if let Some(begins) = line.strip_prefix("FAULT-BEGINS ") {
            let begins = Begins::read(begins).with_context(|| format!("no line of the child: {line}"))?;
            tally.found.insert(begins.site.clone());
            done.push(format!("{}:{}", begins.site, begins.hit));
            bar.set_message(format!(
                "{}, {}: run {} over {} sites",
                case.scenario,
                case.completion_mode,
                done.len(),
                begins.sites
            ));
            running = Some(begins);
        } else if let Some(ended) = line.strip_prefix("FAULT-ENDED ") {
            tally.add(&Ended::read(ended).with_context(|| format!("no line of the child: {line}"))?);
            running = None;
        }
    }
    let status = child.wait()?;
    let errors = errors.join().unwrap_or_default();
    if status.success() {
        return Ok(None);
    }
    let Some(begins) = running else {
        bail!("{}, {}: ended with {status} outside of a fault:\n{errors}", case.scenario, case.completion_mode);
    };
    tally.runs += 1;
    Ok(Some(Failure {
        command: case.command(&begins, arguments),
        export: begins.export,
        stack: begins.stack,
        output: errors,
    }))
}

impl Case<'_> {
    /// What repeats one fault.
    fn command(&self, fault: &Begins, arguments: &VerifyArguments) -> String {
        let Self { scenario, completion_mode } = self;
        let release = if arguments.release { " --release" } else { "" };
        let Begins { site, hit, .. } = fault;
        format!(
            "cargo xtask verify --scenario {scenario} --completion-mode {completion_mode} --site {site} --hit {hit}{release}"
        )
    }
}

impl ScenarioTally {
    fn add(&mut self, ended: &Ended) {
        self.runs += 1;
        if ended.fired {
            self.faults += 1;
            self.failed.insert(ended.site.clone());
        }
        self.stopped += usize::from(ended.stopped);
    }
}

fn report(tally: &ScenarioTally, time: Duration) {
    for failure in &tally.failures {
        eprintln!("{}\n  {} at", failure.command, failure.export);
        failure.stack.iter().for_each(|frame| eprintln!("    {frame}"));
        eprintln!("{}", failure.output.trim_end());
    }
    let (found, failed) = (tally.found.len(), tally.failed.len());
    let (runs, bad) = (tally.runs, tally.failures.len());
    println!("sites found:  {found}");
    println!("sites failed: {failed} ({} were not met again)", found - failed);
    println!(
        "runs:         {runs}, {} with a fault, {} of them stopped by it; {} s",
        tally.faults,
        tally.stopped,
        time.as_secs()
    );
    for failure in &tally.failures {
        println!("failed:       {}", failure.command);
    }
    println!("verify: {failed} of {found} sites failed, {runs} runs, {bad} did not end well");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn scenarios_are_those_of_the_source() {
        let source =
            fs::read_to_string(Workspace::find().unwrap().path("tests/conformance/src/scenario/mod.rs")).unwrap();
        let named = source.split("Scenario::new(\"").skip(1).filter_map(|rest| rest.split('"').next());
        assert_eq!(named.collect::<BTreeSet<_>>(), BTreeSet::from(SCENARIOS));
    }

    #[test]
    fn run_without_a_fault_is_not_green() {
        let tally = |runs, faults| ScenarioTally { runs, faults, ..ScenarioTally::default() };
        assert!(verdict(&tally(0, 0)).is_err());
        assert!(verdict(&tally(3, 0)).is_err(), "the site was not met");
        assert!(verdict(&tally(3, 1)).is_ok());
    }
}
