//! `cargo xtask test`: everything CI runs, in the order in which a mistake shows soonest.
//!
//! Each stage is a command of its own with a time limit; its output goes to `target/test-logs/` and is shown only when it
//! fails. A failing stage does not keep the others from running. The last stage looks whether the work tree is still what
//! it was before the first.

use crate::{command, setup, workspace::Workspace};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

/// Run everything that CI runs.
#[derive(clap::Args)]
pub struct Arguments {
    /// Run only these stages
    stages: Vec<String>,

    /// Name the stages and do nothing
    #[arg(long)]
    list: bool,
}

/// One step of the test run.
struct Stage {
    name: &'static str,
    /// What a person learns when it passes.
    shows: &'static str,
    command: Command,
    limit: Duration,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let mut stages = stages(&workspace)?;
    if arguments.list {
        for stage in &stages {
            println!("{:<15} {}", stage.name, stage.shows);
        }
        return Ok(());
    }
    for wanted in &arguments.stages {
        if !stages.iter().any(|stage| stage.name == wanted) {
            bail!("there is no stage {wanted:?}; `cargo xtask test --list` names them");
        }
    }
    if !arguments.stages.is_empty() {
        stages.retain(|stage| arguments.stages.iter().any(|wanted| wanted == stage.name));
    }
    setup::run(&setup::Arguments { quiet: true })?;
    let before = tree_state(&workspace)?;
    let mut failed = run_stages(&workspace, stages)?;
    if tree_state(&workspace)? != before {
        println!("the work tree changed during the run; `git status` shows what");
        failed.push("work tree");
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn stages(workspace: &Workspace) -> Result<Vec<Stage>> {
    let xtask = env::current_exe().context("this program has no path")?;
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let stage = |name, shows, program: &Path, words: &[&str], limit| {
        let mut command = Command::new(program);
        command.current_dir(workspace.root()).args(words);
        Stage { name, shows, command, limit }
    };
    let cargo = Path::new("cargo");
    let mut stages = vec![
        stage("fmt", "every file is formatted", cargo, &["fmt", "--all", "--check"], minutes(2)),
        stage("clippy", "no lint speaks, the driver's included", &xtask, &["clippy"], minutes(20)),
        stage("debug-image", "the unoptimised driver builds and keeps the rules", &xtask, &["driver"], minutes(20)),
        stage("release-image", "so does the optimised one", &xtask, &["driver", "--release"], minutes(20)),
        stage("arm64-image", "and the one for arm64", &xtask, &["driver", "--release", "--arch", "arm64"], minutes(20)),
        stage(
            "test",
            "unit tests, kernel host, conformance",
            cargo,
            &["test", "--locked", "--no-fail-fast"],
            minutes(30),
        ),
        stage("loom", "the lock-free cells in every order of events", cargo, LOOM, minutes(20)),
        stage(
            "doc",
            "the documentation builds without a broken link",
            cargo,
            &["doc", "--locked", "--no-deps"],
            minutes(15),
        ),
        stage("windows-tools", "ndkctl.exe builds", &xtask, &["tools", "--windows"], minutes(20)),
    ];
    for stage in &mut stages {
        match stage.name {
            "loom" => {
                stage.command.env("RUSTFLAGS", "--cfg loom");
            }
            "doc" => {
                stage.command.env("RUSTDOCFLAGS", "-D warnings");
            }
            _ => {}
        }
    }
    Ok(stages)
}

/// The model checker explores many interleavings: optimised, and in a folder of its own because `--cfg loom` changes all.
const LOOM: &[&str] =
    &["test", "--locked", "--release", "--package", "softndk-cells", "--lib", "--target-dir", "target/loom"];

fn run_stages(workspace: &Workspace, stages: Vec<Stage>) -> Result<Vec<&'static str>> {
    let logs = workspace.path("target/test-logs");
    fs::create_dir_all(&logs)?;
    let mut failed = Vec::new();
    for stage in stages {
        let Stage { name, shows, command, limit } = stage;
        let log = logs.join(name).with_extension("log");
        let started = Instant::now();
        let verdict = run_stage(name, shows, command, limit, &log)?;
        let seconds = started.elapsed().as_secs_f64();
        match verdict {
            Verdict::Passed => println!("{name:<15} {seconds:>6.1} s  {shows}"),
            Verdict::Failed(why) => {
                println!(
                    "{name:<15} {seconds:>6.1} s  FAILED ({why}); the whole output is in {}",
                    workspace.show(&log)
                );
                println!("{}", tail(&log)?);
                failed.push(name);
            }
        }
    }
    Ok(failed)
}

enum Verdict {
    Passed,
    Failed(String),
}

fn run_stage(name: &str, shows: &str, mut command: Command, limit: Duration, log: &Path) -> Result<Verdict> {
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdin(std::process::Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let spinner = ProgressBar::new_spinner().with_message(format!("{name}: {shows}"));
    spinner.set_style(ProgressStyle::with_template("{spinner} {elapsed:>4} {msg}")?);
    spinner.enable_steady_tick(Duration::from_millis(120));
    let mut child = command.spawn().with_context(|| format!("cannot start the stage {name}"))?;
    let status = wait(&mut child, limit)?;
    spinner.finish_and_clear();
    Ok(match status {
        None => Verdict::Failed(format!("not done after {} minutes", limit.as_secs() / 60)),
        Some(status) if status.success() => Verdict::Passed,
        Some(status) => Verdict::Failed(status.to_string()),
    })
}

/// Waits for the child, or ends it when the time is over.
fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if started.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// The end of a log, where the mistake usually stands.
fn tail(log: &Path) -> Result<String> {
    const LINES: usize = 80;
    let text = String::from_utf8_lossy(&fs::read(log)?).into_owned();
    let lines = text.lines().collect::<Vec<_>>();
    Ok(lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("\n"))
}

/// What git says about the tree, and the contents of `Cargo.lock`.
fn tree_state(workspace: &Workspace) -> Result<(String, Vec<u8>)> {
    let lock: PathBuf = workspace.path("Cargo.lock");
    let status = command::output(Command::new("git").current_dir(workspace.root()).args(["status", "--porcelain"]));
    // A tree without git (an unpacked archive) has only its lock file to compare.
    Ok((status.unwrap_or_default(), fs::read(lock)?))
}
