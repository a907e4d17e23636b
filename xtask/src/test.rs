//! `cargo xtask test` and `cargo xtask check`: three rungs of one ladder, in the order in which a mistake shows soonest.
//!
//! `test quick` needs no image and is for every change. `test` says whether it works, with the debug image. `check` has the rest of what CI
//! runs. Each kind of mistake is looked for once here; what looks for the same in more combinations, orders and numbers is a step of
//! `cargo xtask soak`. The output of a stage goes to `target/test-logs/` and is shown only when it fails. At the end the work tree has to
//! be what it was at the beginning.

use crate::{
    command, setup,
    stages::{self, Program, Stage, StageEnd, StageRunner},
    workspace::Workspace,
};
use anyhow::{Result, bail};
use std::{fs, process::Command};

/// Does it work, did I break something: with `quick` what needs no image, in less than a minute
#[derive(clap::Args)]
pub struct TestArguments {
    /// Run only these stages; `quick` stands for the first rung
    stages: Vec<String>,

    /// Name the stages and do nothing
    #[arg(long)]
    list: bool,
}

/// Run what CI runs beside `test`
#[derive(clap::Args)]
pub struct CheckArguments {
    /// Run only these stages
    stages: Vec<String>,

    /// Name the stages and do nothing
    #[arg(long)]
    list: bool,
}

/// The lowest command that has a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    Quick,
    Test,
    Check,
}

/// Stands for all stages of the first rung.
const QUICK: &str = "quick";

/// The control device's faults in the two profiles of completion mode that force an answer, and across streams. Each takes as long as
/// the auto one; `cargo xtask soak` has them.
pub(crate) const FORCED_FAULTS: &str = "scenario_in_which";

/// Of the contract across streams: what crosses a connection. `cargo xtask soak` has all of it, in every combination.
const STREAMS_PART: &[&str] = &[
    "conformance",
    "--streams",
    "--completion-mode",
    "auto",
    "--limits",
    "connectx-like",
    "access::",
    "callback::",
    "close_order::",
    "connection_end::",
    "connection_state::",
    "endpoint::",
    "shared_receive::",
    "transfer::",
    "work_request::",
];

/// These keep one processor busy and build in folders of their own: they run beside the others.
const BESIDE: &[&str] = &["loom", "miri", "seeded-bugs", "windows-tests"];

/// What needs no image.
const QUICK_STAGES: &[Stage] = &[
    Stage {
        name: "fmt",
        shows: "every file is formatted",
        program: Program::Cargo,
        words: &["fmt", "--all", "--check"],
        environment: &[],
        processor_seconds: 5,
    },
    Stage {
        name: "lints",
        shows: "no lint speaks in the libraries",
        program: Program::Cargo,
        words: &[
            "clippy",
            "--locked",
            "--quiet",
            "--package",
            "softndk-cells",
            "--package",
            "softndk-engine",
            "--package",
            "softndk-iwarp",
            "--package",
            "softndk-ioctl",
            "--package",
            "softndk-vxlan",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
        environment: &[],
        processor_seconds: 60,
    },
    Stage {
        name: "units",
        shows: "unit tests and scenarios of engine, iwarp, vxlan, cells and ioctl",
        program: Program::Cargo,
        words: &[
            "test",
            "--locked",
            "--profile",
            "quick",
            "--package",
            "softndk-cells",
            "--package",
            "softndk-engine",
            "--package",
            "softndk-iwarp",
            "--package",
            "softndk-ioctl",
            "--package",
            "softndk-vxlan",
            "--lib",
            "--tests",
        ],
        environment: &[],
        processor_seconds: 90,
    },
];

/// What works with the debug image.
const TEST_STAGES: &[Stage] = &[
    Stage {
        name: "debug-image",
        shows: "the unoptimised driver builds and keeps the rules",
        program: Program::Xtask,
        words: &["driver"],
        environment: &[],
        processor_seconds: 90,
    },
    Stage {
        name: "bad-drivers",
        shows: "the drivers that break one rule each build",
        program: Program::Xtask,
        words: &["bad-drivers"],
        environment: &[],
        processor_seconds: 20,
    },
    Stage {
        name: "c-consumer",
        shows: "the consumer in C builds",
        program: Program::Xtask,
        words: &["c-consumer"],
        environment: &[],
        processor_seconds: 10,
    },
    Stage {
        name: "softnd",
        shows: "the provider of user-mode NetworkDirect builds and keeps the rules of its image",
        program: Program::Xtask,
        words: &["softnd", "--release"],
        environment: &[],
        processor_seconds: 30,
    },
    Stage {
        name: "two-hosts",
        shows: "a kernel host pulls a file from another one",
        program: Program::Xtask,
        words: &["demo", "--machines", "2", "--size", "8M"],
        environment: &[],
        processor_seconds: 120,
    },
    Stage {
        name: "contract",
        shows: "the contract holds with the debug image and its defaults",
        program: Program::Xtask,
        words: &["conformance", "--completion-mode", "auto", "--limits", "connectx-like"],
        environment: &[],
        processor_seconds: 300,
    },
    Stage {
        name: "networkdirect",
        shows: "user-mode NetworkDirect: the provider, programs of others, connectors",
        program: Program::Cargo,
        words: &[
            "test",
            "--locked",
            "--no-fail-fast",
            "--test",
            "provider",
            "--test",
            "own_programs",
            "--test",
            "connector_machine",
        ],
        environment: &[],
        processor_seconds: 150,
    },
    Stage {
        name: "host",
        shows: "the kernel host, by images of its own; it stops each of the bad drivers",
        program: Program::Cargo,
        words: &["test", "--locked", "--no-fail-fast", "--lib", "--bins", "--test", "host", "--test", "bad_drivers"],
        environment: &[],
        processor_seconds: 500,
    },
    Stage {
        name: "tools",
        shows: "ndkctl in the kernel host: commands, device, doctor, pages",
        program: Program::Cargo,
        words: &[
            "test",
            "--locked",
            "--no-fail-fast",
            "--test",
            "tool",
            "--test",
            "control_device",
            "--",
            "--skip",
            FORCED_FAULTS,
        ],
        environment: &[],
        processor_seconds: 200,
    },
];

/// The rest of what CI runs.
const CHECK_STAGES: &[Stage] = &[
    Stage {
        name: "clippy",
        shows: "no lint speaks, the driver's included",
        program: Program::Xtask,
        words: &["clippy"],
        environment: &[],
        processor_seconds: 300,
    },
    Stage {
        name: "doc",
        shows: "the documentation builds without a broken link",
        program: Program::Cargo,
        words: &["doc", "--locked", "--no-deps", "--document-private-items"],
        environment: &[("RUSTDOCFLAGS", "-D warnings -A rustdoc::redundant_explicit_links")],
        processor_seconds: 150,
    },
    Stage {
        name: "rules",
        shows: "every rule of the contract has a test, and every test a rule that exists",
        program: Program::Xtask,
        words: &["rules", "--untested"],
        environment: &[],
        processor_seconds: 5,
    },
    Stage {
        name: "release-image",
        shows: "so does the optimised one",
        program: Program::Xtask,
        words: &["driver", "--release"],
        environment: &[],
        processor_seconds: 120,
    },
    Stage {
        name: "arm64-image",
        shows: "and the one for arm64",
        program: Program::Xtask,
        words: &["driver", "--release", "--arch", "arm64"],
        environment: &[],
        processor_seconds: 60,
    },
    Stage {
        name: "conformance",
        shows: "the contract holds for the optimised image, where all that may pends and where nothing does",
        program: Program::Xtask,
        words: &["conformance", "--part", "--release", "--completion-mode", "force-async,force-inline"],
        environment: &[],
        processor_seconds: 700,
    },
    Stage {
        name: "instructions",
        shows: "the optimised image takes as many instructions for a request as it did",
        program: Program::Cargo,
        words: &["test", "--locked", "--test", "instructions"],
        environment: &[("SOFTNDK_IMAGE", "target/driver/x64/release/softndk.sys")],
        processor_seconds: 60,
    },
    Stage {
        name: "walks",
        shows: "the page of walks has the files that each call enters",
        program: Program::Cargo,
        words: &["test", "--locked", "--test", "walks"],
        environment: &[("SOFTNDK_IMAGE", "target/driver/x64/release/softndk.sys")],
        processor_seconds: 120,
    },
    Stage {
        name: "streams",
        shows: "what crosses a connection keeps the contract across streams of bytes, cut anywhere and late",
        program: Program::Xtask,
        words: STREAMS_PART,
        environment: &[],
        processor_seconds: 300,
    },
    Stage {
        name: "stream-programs",
        shows: "programs of user-mode NetworkDirect work across streams",
        program: Program::Xtask,
        words: &["networkdirect", "--streams", "program::"],
        environment: &[],
        processor_seconds: 120,
    },
    Stage {
        name: "stream-scenarios",
        shows: "the engine's scenarios hold across streams, and what the model says",
        program: Program::Cargo,
        words: &[
            "test",
            "--locked",
            "--test",
            "scenarios",
            "--test",
            "random",
            "--test",
            "scripts",
            "--features",
            "softndk-engine/streams,softndk-engine-kit/streams,oracle/streams",
        ],
        environment: &[],
        processor_seconds: 200,
    },
    Stage {
        name: "peers",
        shows: "a scripted iWARP peer, frames, two kernel hosts; the calling convention",
        program: Program::Cargo,
        words: &[
            "test",
            "--locked",
            "--no-fail-fast",
            "--test",
            "peer",
            "--test",
            "frames",
            "--test",
            "machines",
            "--test",
            "siw",
            "--test",
            "calling_convention",
        ],
        environment: &[],
        processor_seconds: 120,
    },
    Stage {
        name: "oracle",
        shows: "the engine does what the model says, and so does the image",
        program: Program::Cargo,
        words: &["test", "--locked", "--no-fail-fast", "--test", "image", "--test", "random", "--test", "scripts"],
        environment: &[],
        processor_seconds: 60,
    },
    Stage {
        name: "faults",
        shows: "every allocation of a scenario fails once; the orders of seeds are replayed",
        program: Program::Cargo,
        words: &["test", "--locked", "--no-fail-fast", "--test", "faults", "--test", "schedules"],
        environment: &[],
        processor_seconds: 200,
    },
    Stage {
        name: "nd-driver",
        shows: "the driver's side of user-mode NetworkDirect, hostile processes too",
        program: Program::Cargo,
        words: &["test", "--locked", "--no-fail-fast", "--test", "driver"],
        environment: &[],
        processor_seconds: 200,
    },
    Stage {
        name: "house",
        shows: "the tree, its documents, its commands",
        program: Program::Cargo,
        words: &["test", "--locked", "--no-fail-fast", "--test", "tree"],
        environment: &[],
        processor_seconds: 300,
    },
    Stage {
        name: "schedules",
        shows: "the trials of races hold in two orders that seeds give",
        program: Program::Xtask,
        words: &["conformance", "--schedule", "1..2", "race::"],
        environment: &[],
        processor_seconds: 100,
    },
    Stage {
        name: "loom",
        shows: "the lock-free cells in every order of events",
        program: Program::Cargo,
        // Optimised, because there are many orders; in a folder of its own, because the flag changes every crate.
        words: &["test", "--locked", "--release", "--package", "softndk-cells", "--lib", "--target-dir", "target/loom"],
        // What the release profile has for the driver's sake takes longer to build than it saves.
        environment: &[
            ("RUSTFLAGS", "--cfg loom"),
            ("CARGO_PROFILE_RELEASE_LTO", "off"),
            ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
            ("CARGO_PROFILE_RELEASE_DEBUG", "false"),
        ],
        processor_seconds: 150,
    },
    Stage {
        name: "miri",
        shows: "and without undefined behaviour",
        program: Program::Cargo,
        // In a folder of its own, because another compiler builds it.
        words: &["miri", "test", "--locked", "--package", "softndk-cells", "--lib", "--target-dir", "target/miri"],
        environment: &[("RUSTUP_TOOLCHAIN", "nightly")],
        processor_seconds: 120,
    },
    Stage {
        name: "windows-tools",
        shows: "ndkctl.exe and the NetworkDirect program build and import what is listed",
        program: Program::Xtask,
        words: &["tools", "--windows"],
        environment: &[],
        processor_seconds: 200,
    },
    Stage {
        name: "windows-tests",
        shows: "`cargo test` compiles for Windows",
        program: Program::Xtask,
        words: &["tools", "--windows", "--check"],
        environment: &[],
        processor_seconds: 150,
    },
    Stage {
        name: "interop",
        shows: "the image and siw of Linux, in a guest, understand each other, and Wireshark finds no fault",
        program: Program::Xtask,
        words: &["interop"],
        environment: &[],
        processor_seconds: 500,
    },
    Stage {
        name: "seeded-bugs",
        shows: "the tests of the engine notice a mistake made on purpose, one of each class",
        program: Program::Xtask,
        words: &["seeded-bugs", "--sample"],
        environment: &[],
        processor_seconds: 120,
    },
];

/// All stages, with the rung of each.
pub(crate) fn ladder() -> impl Iterator<Item = (Rung, &'static Stage)> {
    let rungs = [(Rung::Quick, QUICK_STAGES), (Rung::Test, TEST_STAGES), (Rung::Check, CHECK_STAGES)];
    rungs.into_iter().flat_map(|(rung, stages)| stages.iter().map(move |stage| (rung, stage)))
}

pub fn run(arguments: &TestArguments) -> Result<()> {
    let names: Vec<_> = arguments.stages.iter().flat_map(|name| expanded(name)).collect();
    climb(|rung| rung != Rung::Check, "test", &names, arguments.list)
}

pub fn check(arguments: &CheckArguments) -> Result<()> {
    climb(|rung| rung == Rung::Check, "check", &arguments.stages, arguments.list)
}

/// The names that a name stands for.
fn expanded(name: &str) -> Vec<String> {
    if name == QUICK {
        return QUICK_STAGES.iter().map(|stage| stage.name.to_owned()).collect();
    }
    vec![name.to_owned()]
}

fn climb(has: impl Fn(Rung) -> bool, name: &str, wanted: &[String], list: bool) -> Result<()> {
    let workspace = Workspace::find()?;
    let all: Vec<_> = ladder().filter(|(rung, _)| has(*rung)).map(|(_, stage)| stage).collect();
    let mut runner = StageRunner::new(&workspace, "target/test-logs")?;
    if list {
        stages::list(&all, &runner);
        return Ok(());
    }
    let stages = stages::chosen(&all, wanted, name)?;
    setup::run(&setup::SetupArguments { quiet: true })?;
    let before = tree_state(&workspace)?;
    let mut ends = Vec::new();
    runner.run(&stages, BESIDE, |stage, outcome| {
        ends.push((stage.name, outcome.end.clone()));
        Ok(())
    })?;
    let after = tree_state(&workspace)?;
    if after != before {
        println!("the work tree changed during the run; `git status --porcelain` says\n{}", after.0.trim_end());
        ends.push(("work tree", StageEnd::Failed("it changed".to_owned())));
    }
    let summary = RunSummary::of(&ends);
    print!("{}", summary.text());
    if !summary.failed.is_empty() {
        bail!("failed: {}", summary.failed.join(", "));
    }
    Ok(())
}

/// How many stages went how.
struct RunSummary<'a> {
    passed: usize,
    failed: Vec<&'a str>,
    /// Each with the reason.
    skipped: Vec<String>,
    /// What passed without a part of its work, and why.
    parts: Vec<String>,
}

impl<'a> RunSummary<'a> {
    fn of(ends: &'a [(&'a str, StageEnd)]) -> Self {
        let mut summary = Self { passed: 0, failed: Vec::new(), skipped: Vec::new(), parts: Vec::new() };
        for (name, end) in ends {
            match end {
                StageEnd::Passed { without } => {
                    summary.passed += 1;
                    summary.parts.extend(without.iter().map(|what| format!("{name} without {what}")));
                }
                StageEnd::Failed(_) => summary.failed.push(name),
                StageEnd::Skipped(why) => summary.skipped.push(format!("{name} ({why})")),
            }
        }
        summary
    }

    /// The counts, in a line that ends the output unless a stage was skipped: then the last line has the reasons.
    fn text(&self) -> String {
        let Self { passed, failed, skipped, parts } = self;
        let counts = format!("stages: {passed} passed, {} failed, {} skipped\n", failed.len(), skipped.len());
        let reasons = [skipped.as_slice(), parts].concat();
        if reasons.is_empty() { counts } else { format!("{counts}skipped: {}\n", reasons.join("; ")) }
    }
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
    use super::{BESIDE, FORCED_FAULTS, QUICK, RunSummary, Rung, expanded, ladder};
    use crate::{
        stages::{Program, Stage, StageEnd},
        workspace::Workspace,
    };
    use cargo_metadata::{MetadataCommand, TargetKind};
    use std::fs;

    #[test]
    fn stage_names_are_unique() {
        let mut names = ladder().map(|(_, stage)| stage.name).collect::<Vec<_>>();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    /// What `cargo test` runs in a stage: of the named packages all, else the named binaries.
    fn has_binary(stage: &Stage, package: &str, name: &str) -> bool {
        let follows = |option: &str, value: &str| stage.words.windows(2).any(|pair| pair == [option, value]);
        let is_test = matches!(stage.program, Program::Cargo) && stage.words[0] == "test";
        is_test && (follows("--test", name) || follows("--package", package) && stage.words.contains(&"--tests"))
    }

    /// Binaries that a command of this program runs.
    const BY_COMMAND: &[(&str, &str)] = &[("contract", "conformance")];

    #[test]
    fn every_test_binary_has_a_stage() {
        let metadata = MetadataCommand::new().no_deps().exec().unwrap();
        for package in metadata.workspace_default_packages() {
            for target in package.targets.iter().filter(|target| target.is_kind(TargetKind::Test)) {
                let by_command = BY_COMMAND.iter().find(|(name, _)| *name == target.name);
                let has = |stage: &Stage| match by_command {
                    Some((_, command)) => stage.words[0] == *command,
                    None => has_binary(stage, &package.name, &target.name),
                };
                assert!(ladder().any(|(_, stage)| has(stage)), "no stage runs {} of {}", target.name, package.name);
            }
        }
    }

    #[test]
    fn quick_stands_for_the_first_rung() {
        let first = ladder().filter(|(rung, _)| *rung == Rung::Quick).map(|(_, stage)| stage.name);
        assert_eq!(expanded(QUICK), first.collect::<Vec<_>>());
        assert_eq!(expanded("contract"), ["contract"]);
    }

    #[test]
    fn last_line_has_the_reason_of_what_was_skipped() {
        let failed = StageEnd::Failed("exit status: 1".to_owned());
        let passed = || StageEnd::Passed { without: None };
        let mut ends = vec![("fmt", passed()), ("doc", failed), ("rules", passed())];
        assert_eq!(RunSummary::of(&ends).text(), "stages: 2 passed, 1 failed, 0 skipped\n");
        ends.push(("interop", StageEnd::Skipped("no kernel".to_owned())));
        let summary = RunSummary::of(&ends);
        assert_eq!(summary.text(), "stages: 2 passed, 1 failed, 1 skipped\nskipped: interop (no kernel)\n");
        assert_eq!(summary.failed, ["doc"]);
        let part = [("interop", StageEnd::Passed { without: Some("smb: no daemon".to_owned()) })];
        let text = RunSummary::of(&part).text();
        assert_eq!(text, "stages: 1 passed, 0 failed, 0 skipped\nskipped: interop without smb: no daemon\n");
    }

    #[test]
    fn stages_beside_the_others_are_stages() {
        assert!(BESIDE.iter().all(|name| ladder().any(|(_, stage)| stage.name == *name)));
    }

    /// A filter that fits no case skips nothing.
    #[test]
    fn the_filter_of_forced_faults_fits_its_cases() {
        let path = Workspace::find().unwrap().path("tools/ndkctl/tests/control_device/faults.rs");
        let cases = fs::read_to_string(path).unwrap();
        let fits = |line: &&str| line.trim_start().starts_with("fn ") && line.contains(FORCED_FAULTS);
        assert_eq!(cases.lines().filter(fits).count(), 3);
    }
}
