//! `cargo xtask test`: everything CI runs, in the order in which a mistake shows soonest.
//!
//! Each stage is a command of its own with a time limit; its output goes to `target/test-logs/` and is shown only when it
//! fails. A failing stage does not keep the others from running. The last stage looks whether the work tree is still what
//! it was before the first.

use crate::{
    bad_drivers,
    child::{lead_a_group, wait},
    command, setup, test_log,
    workspace::Workspace,
};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    env,
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
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
    program: Program,
    words: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    minutes: u64,
}

/// What a stage runs.
#[derive(Clone, Copy)]
enum Program {
    Cargo,
    /// Another command of this program.
    Xtask,
}

/// The control device's faults in the two profiles of promptness that force an answer. Each takes as long as the natural one, and the
/// stage `test` has them: no other image does.
pub(crate) const FORCED_FAULTS: &str = "life_in_which";

const STAGES: &[Stage] = &[
    Stage {
        name: "fmt",
        shows: "every file is formatted",
        program: Program::Cargo,
        words: &["fmt", "--all", "--check"],
        environment: &[],
        minutes: 2,
    },
    Stage {
        name: "rules",
        shows: "every rule of the contract has a test, and every test a rule that exists",
        program: Program::Xtask,
        words: &["rules", "--untested"],
        environment: &[],
        minutes: 2,
    },
    Stage {
        name: "clippy",
        shows: "no lint speaks, the driver's included",
        program: Program::Xtask,
        words: &["clippy"],
        environment: &[],
        minutes: 20,
    },
    Stage {
        name: "debug-image",
        shows: "the unoptimised driver builds and keeps the rules",
        program: Program::Xtask,
        words: &["driver"],
        environment: &[],
        minutes: 20,
    },
    Stage {
        name: "release-image",
        shows: "so does the optimised one",
        program: Program::Xtask,
        words: &["driver", "--release"],
        environment: &[],
        minutes: 20,
    },
    Stage {
        name: "arm64-image",
        shows: "and the one for arm64",
        program: Program::Xtask,
        words: &["driver", "--release", "--arch", "arm64"],
        environment: &[],
        minutes: 20,
    },
    Stage {
        name: "bad-drivers",
        shows: "the drivers that break one rule each build",
        program: Program::Xtask,
        words: &["bad-drivers"],
        environment: &[],
        minutes: 10,
    },
    Stage {
        name: "c-consumer",
        shows: "the consumer in C builds",
        program: Program::Xtask,
        words: &["c-consumer"],
        environment: &[],
        minutes: 5,
    },
    Stage {
        name: "test",
        shows: "unit tests, kernel host, conformance",
        program: Program::Cargo,
        words: &["test", "--locked", "--no-fail-fast"],
        environment: &[],
        minutes: 30,
    },
    Stage {
        name: "conformance",
        shows: "the contract holds for the optimised image, in every profile of asynchrony and of limits",
        program: Program::Xtask,
        words: &["conformance", "--part", "--release"],
        environment: &[],
        minutes: 30,
    },
    Stage {
        name: "release-control",
        shows: "so does the control device",
        program: Program::Cargo,
        words: &["test", "--locked", "--package", "ndkctl", "--test", "control_device", "--", "--skip", FORCED_FAULTS],
        environment: &[("SOFTNDK_IMAGE", "target/driver/x64/release/softndk.sys")],
        minutes: 20,
    },
    Stage {
        name: "coverage",
        shows: "tests run through as many lines and branches of driver and engine as before",
        program: Program::Xtask,
        words: &["coverage"],
        environment: &[],
        minutes: 30,
    },
    Stage {
        name: "schedules",
        shows: "the trials with threads at once hold in two orders that seeds give",
        program: Program::Xtask,
        words: &[
            "conformance",
            "--schedule",
            "1..2",
            "race::",
            "callback::",
            "close_order::",
            "completion_queue::",
            "resize::",
            "sharing::",
        ],
        environment: &[],
        minutes: 10,
    },
    Stage {
        name: "verify",
        shows: "every allocation fails once, twice and last, in every life, and nothing is left",
        program: Program::Xtask,
        words: &["verify", "--faults", "--promptness", "natural", "--release"],
        environment: &[],
        minutes: 25,
    },
    Stage {
        name: "stress",
        shows: "two minutes of many consumers at once, while adapters go and come and memory is short",
        program: Program::Xtask,
        words: &["stress", "--minutes", "2"],
        environment: &[],
        minutes: 30,
    },
    Stage {
        name: "fuzz",
        shows: "a minute of libFuzzer on each thing that takes bytes from outside, from the seeds on",
        program: Program::Xtask,
        words: &["fuzz"],
        environment: &[],
        minutes: 40,
    },
    Stage {
        name: "loom",
        shows: "the lock-free cells in every order of events",
        program: Program::Cargo,
        // Optimised, because there are many orders; in a folder of its own, because the flag changes every crate.
        words: &["test", "--locked", "--release", "--package", "softndk-cells", "--lib", "--target-dir", "target/loom"],
        environment: &[("RUSTFLAGS", "--cfg loom")],
        minutes: 20,
    },
    Stage {
        name: "miri",
        shows: "and without undefined behaviour",
        program: Program::Cargo,
        // In a folder of its own, because another compiler builds it.
        words: &[
            "+nightly",
            "miri",
            "test",
            "--locked",
            "--package",
            "softndk-cells",
            "--lib",
            "--target-dir",
            "target/miri",
        ],
        environment: &[],
        minutes: 15,
    },
    Stage {
        name: "breaks",
        shows: "the tests of the engine notice mistakes made on purpose",
        program: Program::Xtask,
        words: &["breaks", "--quick"],
        environment: &[],
        minutes: 30,
    },
    Stage {
        name: "doc",
        shows: "the documentation builds without a broken link",
        program: Program::Cargo,
        words: &["doc", "--locked", "--no-deps", "--document-private-items"],
        environment: &[("RUSTDOCFLAGS", "-D warnings -A rustdoc::redundant_explicit_links")],
        minutes: 15,
    },
    Stage {
        name: "windows-tools",
        shows: "ndkctl.exe builds",
        program: Program::Xtask,
        words: &["tools", "--windows"],
        environment: &[],
        minutes: 20,
    },
    Stage {
        name: "windows-tests",
        shows: "`cargo test` compiles for Windows",
        program: Program::Xtask,
        words: &["tools", "--windows", "--check"],
        environment: &[],
        minutes: 15,
    },
];

impl Stage {
    fn command(&self, workspace: &Workspace, xtask: &Path) -> Command {
        let mut command = match self.program {
            Program::Cargo => Command::new("cargo"),
            Program::Xtask => Command::new(xtask),
        };
        command.current_dir(workspace.root()).args(self.words).envs(self.environment.iter().copied());
        for (name, value) in self.environment {
            // Tests run in the folders of their crates: a path in the environment has to be whole.
            if workspace.path(value).exists() {
                command.env(name, workspace.path(value));
            }
        }
        // Built by the stage before, by whichever compiler this machine has for Windows.
        command.env("SOFTNDK_BAD_DRIVERS", bad_drivers::image(workspace));
        command
    }
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::find()?;
    // Asked before the first stage: `cargo test` puts another file in this one's place, and then only the path is good.
    let xtask = env::current_exe().context("this program has no path")?;
    if arguments.list {
        for stage in STAGES {
            println!("{:<15} {}", stage.name, stage.shows);
        }
        return Ok(());
    }
    for wanted in &arguments.stages {
        if !STAGES.iter().any(|stage| stage.name == wanted) {
            bail!("there is no stage {wanted:?}; `cargo xtask test --list` names them");
        }
    }
    let asked = |stage: &&Stage| arguments.stages.is_empty() || arguments.stages.iter().any(|name| name == stage.name);
    let stages = STAGES.iter().filter(asked).collect::<Vec<_>>();
    setup::run(&setup::Arguments { quiet: true })?;
    let before = tree_state(&workspace)?;
    let mut failed = run_stages(&workspace, &xtask, &stages)?;
    let after = tree_state(&workspace)?;
    if after != before {
        println!("the work tree changed during the run; `git status --porcelain` says\n{}", after.0.trim_end());
        failed.push("work tree");
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn run_stages(workspace: &Workspace, xtask: &Path, stages: &[&Stage]) -> Result<Vec<&'static str>> {
    let logs = workspace.path("target/test-logs");
    fs::create_dir_all(&logs)?;
    let mut failed = Vec::new();
    for stage in stages {
        let name = stage.name;
        let log = logs.join(name).with_extension("log");
        let started = Instant::now();
        let verdict = run_stage(stage, stage.command(workspace, xtask), &log)?;
        let seconds = started.elapsed().as_secs_f64();
        match verdict {
            Verdict::Passed => println!("{name:<15} {seconds:>6.1} s  {}", stage.shows),
            Verdict::Failed(why) => {
                println!(
                    "{name:<15} {seconds:>6.1} s  FAILED ({why}); the whole output is in {}",
                    workspace.show(&log)
                );
                println!("{}", test_log::excerpt(&String::from_utf8_lossy(&fs::read(&log)?)));
                failed.push(name);
            }
        }
    }
    Ok(failed)
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed(String),
}

fn run_stage(stage: &Stage, mut command: Command, log: &Path) -> Result<Verdict> {
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    lead_a_group(&mut command);
    let spinner = ProgressBar::new_spinner().with_message(format!("{}: {}", stage.name, stage.shows));
    spinner.set_style(ProgressStyle::with_template("{spinner} {elapsed:>4} {msg}")?);
    spinner.enable_steady_tick(Duration::from_millis(120));
    let mut child = command.spawn().with_context(|| format!("cannot start the stage {}", stage.name))?;
    let status = wait(&mut child, Duration::from_mins(stage.minutes))?;
    spinner.finish_and_clear();
    Ok(match status {
        None => Verdict::Failed(format!("not done after {} minutes", stage.minutes)),
        Some(status) if status.success() => Verdict::Passed,
        Some(status) => Verdict::Failed(status.to_string()),
    })
}

/// What git says about the tree, and the contents of `Cargo.lock`.
fn tree_state(workspace: &Workspace) -> Result<(String, Vec<u8>)> {
    let lock = workspace.path("Cargo.lock");
    let status = command::output(Command::new("git").current_dir(workspace.root()).args(["status", "--porcelain"]));
    // A tree without git (an unpacked archive) has only its lock file to compare.
    Ok((status.unwrap_or_default(), fs::read(lock)?))
}

#[cfg(test)]
mod tests {
    use super::STAGES;

    #[test]
    fn stage_names_are_unique() {
        let mut names = STAGES.iter().map(|stage| stage.name).collect::<Vec<_>>();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STAGES.len());
    }
}
