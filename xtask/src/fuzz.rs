//! `cargo xtask fuzz`: libFuzzer on what takes bytes from outside, from the seeds that are checked in.
//!
//! The targets are cargo-fuzz's, beside the crates they are about, in a workspace of their own; they need no nightly compiler, because no
//! sanitizer is asked for. One target folder serves all, two targets run at a time. A crash fails the command, which then says how
//! to repeat it; its input is added to the seeds, which run before new inputs.

use crate::{
    arch::Arch,
    cargo_tool::CargoTool,
    child::{lead_a_group, wait},
    command,
    driver::{self, Profile},
    setup,
    workspace::Workspace,
};
use anyhow::{Context, Result, bail, ensure};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Let a fuzzer look for inputs that crash, hang or leave something behind.
#[derive(clap::Args)]
pub struct FuzzArguments {
    /// Only these targets; `--list` names them
    targets: Vec<String>,

    /// How long each target runs
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seconds: u64,

    /// Name the targets and do nothing
    #[arg(long)]
    list: bool,

    /// Run one target on this input only: what a crash is repeated with
    #[arg(long)]
    input: Option<PathBuf>,

    /// Afterwards replace the seeds by few of the inputs that reach most
    #[arg(long)]
    keep: bool,
}

/// Builds the targets.
const CARGO_FUZZ: CargoTool = CargoTool { name: "cargo-fuzz", version: "0.13.1", features: None };

/// Inputs of a target that are checked in.
const SEEDS: usize = 60;

/// Targets that run at the same time.
const AT_ONCE: usize = 2;

/// Beyond the time asked for: seeds, and the end of the last input.
const GRACE: Duration = Duration::from_mins(5);

struct Target {
    name: &'static str,
    /// The crate that it is about; its fuzz crate is in `fuzz/` there.
    about: &'static str,
    what: &'static str,
    /// Bytes of the longest input.
    longest: u32,
    /// Needs the loaded image.
    image: bool,
}

const TARGETS: &[Target] = &[
    Target {
        name: "script",
        about: "tools/ioctl",
        what: "replay scripts as text: what is read is written and read again as the same",
        longest: 4096,
        image: false,
    },
    Target {
        name: "wire",
        about: "tools/ioctl",
        what: "requests and steps of the control device as bytes, and the arithmetic of buffers",
        longest: 4096,
        image: false,
    },
    Target {
        name: "stream",
        about: "iwarp",
        what: "what a peer sends on a stream: start-up frames, and frames with right and wrong CRCs, in any cut",
        longest: 2048,
        image: false,
    },
    Target {
        name: "uplink",
        about: "vxlan",
        what: "datagrams of other machines, and peers as the registry has them: the forwarding table beside a list",
        longest: 1024,
        image: false,
    },
    Target {
        name: "peer",
        about: "tests/engine-kit",
        what: "what a peer sends to a connected queue pair of the engine, in both roles and any cut",
        longest: 1024,
        image: false,
    },
    Target {
        name: "engine",
        about: "tests/oracle",
        what: "operations with hostile arguments: engine beside model in both columns, and alone",
        longest: 2048,
        image: false,
    },
    Target {
        name: "control",
        about: "tests/conformance",
        what: "requests to the control device as bytes, against the loaded image",
        longest: 4096,
        image: true,
    },
    Target {
        name: "connections",
        about: "tests/conformance",
        what: "addresses and private data of connections, listeners and shared endpoints, against the loaded image",
        longest: 512,
        image: true,
    },
];

pub fn run(arguments: &FuzzArguments) -> Result<()> {
    if arguments.list {
        for target in TARGETS {
            println!("{:<12} {}", target.name, target.what);
        }
        return Ok(());
    }
    let workspace = Workspace::find()?;
    let targets = chosen(&arguments.targets)?;
    build(&workspace, &targets)?;
    if let Some(input) = &arguments.input {
        let [target] = targets.as_slice() else { bail!("--input needs the name of one target") };
        let input = fs::canonicalize(input).with_context(|| format!("there is no {}", input.display()))?;
        return command::run(program(&workspace, target)?.arg(input));
    }
    let runs = run_all(&workspace, &targets, Duration::from_secs(arguments.seconds))?;
    println!(
        "{:<12} {:>10} {:>7} {:>7} {:>7} {:>7}  verdict",
        "target", "runs", "edges", "traits", "inputs", "seconds"
    );
    for run in &runs {
        println!("{run}");
    }
    let (inputs, found) =
        (runs.iter().map(|run| run.progress.runs).sum::<u64>(), runs.iter().filter(|run| !run.passed));
    println!("fuzz: {} targets, {inputs} inputs, {} crashed", runs.len(), found.count());
    let crashed = runs.iter().filter(|run| !run.passed).map(|run| run.name).collect::<Vec<_>>();
    if !crashed.is_empty() {
        bail!("crashed: {}", crashed.join(", "));
    }
    if arguments.keep {
        targets.iter().try_for_each(|target| keep(&workspace, target))?;
    }
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<&'static Target>> {
    for name in names {
        ensure!(TARGETS.iter().any(|target| target.name == name), "there is no target {name:?}; `--list` names them");
    }
    Ok(TARGETS.iter().filter(|target| names.is_empty() || names.iter().any(|name| name == target.name)).collect())
}

/// The fuzzers of the crates asked for, and the image for those that load it.
fn build(workspace: &Workspace, targets: &[&Target]) -> Result<()> {
    setup::ensure(&[setup::Need::CppCompiler])?;
    let cargo_fuzz = CARGO_FUZZ.require(workspace)?;
    if targets.iter().any(|target| target.image) {
        driver::build(workspace, Arch::X64, Profile::Debug)?;
    }
    let mut crates = targets.iter().map(|target| target.about).collect::<Vec<_>>();
    crates.dedup();
    for about in crates {
        let mut build = Command::new(&cargo_fuzz);
        // A sanitizer would add nothing for the engine and the image: their memory errors are the kernel host's to find, and
        // those of the cells miri's and loom's.
        build.current_dir(workspace.path(about)).args(["build", "--fuzz-dir", "fuzz", "--sanitizer", "none"]);
        build.arg("--target-dir").arg(folder(workspace));
        // Its progress is cargo's and of no interest when all is well.
        command::output(&mut build).with_context(|| format!("the fuzz targets of {about} do not build"))?;
    }
    Ok(())
}

/// How a target's run went.
struct Run {
    name: &'static str,
    passed: bool,
    verdict: String,
    seconds: f64,
    progress: Progress,
}

/// What libFuzzer counted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Progress {
    runs: u64,
    edges: u64,
    traits: u64,
    inputs: u64,
}

impl std::fmt::Display for Run {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Progress { runs, edges, traits, inputs } = self.progress;
        let Self { name, seconds, verdict, .. } = self;
        write!(formatter, "{name:<12} {runs:>10} {edges:>7} {traits:>7} {inputs:>7} {seconds:>7.0}  {verdict}")
    }
}

/// A target that is running.
struct Running {
    target: &'static Target,
    child: Child,
    log: PathBuf,
    begun: Instant,
}

fn run_all(workspace: &Workspace, targets: &[&'static Target], time: Duration) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for together in targets.chunks(AT_ONCE) {
        let started = together.iter().map(|target| start(workspace, target, time)).collect::<Result<Vec<_>>>()?;
        for mut running in started {
            let status = wait(&mut running.child, time + GRACE)?;
            runs.push(judge(workspace, &running, status.is_some_and(|status| status.success()))?);
        }
    }
    Ok(runs)
}

fn start(workspace: &Workspace, target: &'static Target, time: Duration) -> Result<Running> {
    let (found, seeds) = (found(workspace, target), seeds(workspace, target));
    fs::create_dir_all(&found)?;
    // A new target has none yet.
    fs::create_dir_all(&seeds)?;
    let log = folder(workspace).join(target.name).with_extension("log");
    let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut program = program(workspace, target)?;
    program.arg(format!("-max_total_time={}", time.as_secs())).arg("-timeout=60");
    // What is new goes to the first folder.
    program.arg(found).arg(seeds);
    program.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    lead_a_group(&mut program);
    let child = program.spawn().with_context(|| format!("cannot start the fuzzer of {}", target.name))?;
    Ok(Running { target, child, log, begun: Instant::now() })
}

fn judge(workspace: &Workspace, running: &Running, passed: bool) -> Result<Run> {
    let text = String::from_utf8_lossy(&fs::read(&running.log)?).into_owned();
    let name = running.target.name;
    let mut verdict = "nothing found".to_owned();
    if !passed {
        let input = text.lines().rev().find_map(|line| line.split_once("Test unit written to "));
        verdict = match input {
            Some((_, input)) => format!("CRASH; again with: cargo xtask fuzz {name} --input {input}"),
            None => "FAILED without an input".to_owned(),
        };
        verdict.push_str("; the whole output is in ");
        verdict.push_str(&workspace.show(&running.log).to_string());
    }
    let seconds = running.begun.elapsed().as_secs_f64();
    Ok(Run { name, passed, verdict, seconds, progress: progress(&text).unwrap_or_default() })
}

/// The last of libFuzzer's lines like `#6636 DONE cov: 1287 ft: 3979 corp: 254/960b lim: 8 exec/s: 161 rss: 70Mb`.
fn progress(text: &str) -> Option<Progress> {
    let line = text.lines().rev().find(|line| line.starts_with('#') && line.contains(" cov: "))?;
    let words = line.split_whitespace().collect::<Vec<_>>();
    let number = |word: &str| word.split('/').next()?.parse().ok();
    let after = |key: &str| number(words.get(words.iter().position(|word| *word == key)? + 1)?);
    Some(Progress {
        runs: number(words.first()?.strip_prefix('#')?)?,
        edges: after("cov:")?,
        traits: after("ft:")?,
        inputs: after("corp:")?,
    })
}

/// Merges what is made, what was found and what was there into few inputs, and checks in the longest of them.
fn keep(workspace: &Workspace, target: &Target) -> Result<()> {
    let kept = folder(workspace).join("kept").join(target.name);
    let made = folder(workspace).join("made").join(target.name);
    for empty in [&kept, &made] {
        let _ = fs::remove_dir_all(empty);
        fs::create_dir_all(empty)?;
    }
    command::output(program(workspace, target)?.env("SOFTNDK_SEEDS", &made)).context("no seeds are made")?;
    let seeds = seeds(workspace, target);
    fs::create_dir_all(&seeds)?;
    let mut merge = program(workspace, target)?;
    merge.args(["-set_cover_merge=1"]).args([&kept, &made, &found(workspace, target), &seeds]);
    command::output(&mut merge).with_context(|| format!("the inputs of {} cannot be merged", target.name))?;
    // Inputs that found a mistake stay, whatever they reach.
    for entry in fs::read_dir(&seeds)? {
        let path = entry?.path();
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("found-")) {
            fs::remove_file(path)?;
        }
    }
    // The longest do most.
    let mut entries = fs::read_dir(&kept)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.metadata().map_or(0, |metadata| metadata.len())));
    entries.truncate(SEEDS);
    for entry in &entries {
        fs::copy(entry.path(), seeds.join(entry.file_name()))?;
    }
    println!("{}: {} inputs in {}", target.name, entries.len(), workspace.show(&seeds));
    Ok(())
}

/// The fuzzer itself.
fn program(workspace: &Workspace, target: &Target) -> Result<Command> {
    let artifacts = folder(workspace).join("artifacts");
    fs::create_dir_all(&artifacts)?;
    let mut program = Command::new(folder(workspace).join("x86_64-unknown-linux-gnu/release").join(target.name));
    program.current_dir(workspace.root());
    program.arg(format!("-artifact_prefix={}/{}-", workspace.show(&artifacts), target.name));
    program.arg(format!("-max_len={}", target.longest)).arg("-rss_limit_mb=4096").arg("-len_control=20");
    Ok(program)
}

/// Everything that is built and found.
fn folder(workspace: &Workspace) -> PathBuf {
    workspace.path("target/fuzz")
}

/// What runs on this machine have found.
fn found(workspace: &Workspace, target: &Target) -> PathBuf {
    folder(workspace).join("corpus").join(target.name)
}

/// What is checked in.
fn seeds(workspace: &Workspace, target: &Target) -> PathBuf {
    workspace.path(Path::new(target.about).join("fuzz/corpus").join(target.name))
}

#[cfg(test)]
mod tests {
    use super::{Progress, TARGETS, chosen, progress, seeds};
    use crate::workspace::Workspace;
    use std::fs;

    #[test]
    fn the_last_line_of_progress_counts() {
        let text = "#2\tINITED cov: 1 ft: 1 corp: 1/1b exec/s: 0 rss: 50Mb\n\
                    #6636\tDONE   cov: 1287 ft: 3979 corp: 254/960b lim: 8 exec/s: 161 rss: 70Mb\n\
                    ###### Recommended dictionary. ######\n";
        assert_eq!(progress(text), Some(Progress { runs: 6636, edges: 1287, traits: 3979, inputs: 254 }));
        assert_eq!(progress("nothing"), None);
    }

    #[test]
    fn targets_are_chosen_by_name() {
        assert_eq!(chosen(&[]).unwrap().len(), TARGETS.len());
        assert_eq!(chosen(&["engine".to_owned()]).unwrap().len(), 1);
        assert!(chosen(&["motor".to_owned()]).is_err());
    }

    /// A run does not begin with an empty corpus, and the corpus stays below a megabyte.
    #[test]
    fn seeds_are_some_and_small() {
        let workspace = Workspace::find().unwrap();
        for target in TARGETS {
            let folder = seeds(&workspace, target);
            let lengths = fs::read_dir(&folder)
                .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
                .map(|entry| entry.unwrap().metadata().unwrap().len())
                .collect::<Vec<_>>();
            assert!((5..=100).contains(&lengths.len()), "{}: {}", target.name, lengths.len());
            assert!(lengths.iter().all(|length| *length <= u64::from(target.longest)), "{}", target.name);
        }
    }
}
