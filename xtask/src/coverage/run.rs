//! The runs that are counted: the libraries' own tests, and what loads the image.

use super::COUNTING;
use crate::{
    command, conformance::ACROSS_STREAMS, driver::Profile, host_cargo, softnd, test::FORCED_FAULTS,
    workspace::Workspace,
};
use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Message;
use std::{
    fmt::Write as _,
    io::BufReader,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The libraries that are in the image and have tests of their own.
const LIBRARIES: [&str; 3] = ["softndk-engine", "softndk-cells", "softndk-ioctl"];

/// Tests that load the image: unit tests of its translation layer there are none.
const LOADING: [&str; 7] = ["contract", "faults", "frames", "peer", "control_device", "driver", "provider"];

/// Builds the libraries' tests with counters, runs them, and says where the programs are: they hold the map of the counters.
pub(super) fn libraries(workspace: &Workspace, profiles: &Path) -> Result<Vec<PathBuf>> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(workspace.root()).args(["test", "--quiet", "--locked"]);
    cargo.args(LIBRARIES.map(|library| format!("--package={library}")));
    cargo.args(["--lib", "--tests", "--message-format=json-render-diagnostics", "--target-dir"]);
    // In a folder of its own, because the flags change every crate.
    cargo.arg(workspace.path("target/coverage/libraries"));
    cargo.env("RUSTFLAGS", COUNTING).env("RUSTC_BOOTSTRAP", "1");
    // Build scripts and macros count as well; they are none of the programs whose numbers are asked for.
    cargo.env("LLVM_PROFILE_FILE", profiles.join("library-%p-%m.profraw"));
    let mut child = cargo.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let mut programs = Vec::new();
    let mut said = String::new();
    for message in Message::parse_stream(BufReader::new(output)) {
        match message? {
            Message::CompilerArtifact(artifact) if artifact.profile.test => {
                programs.extend(artifact.executable.map(PathBuf::from));
            }
            // What the tests print comes in between.
            Message::TextLine(line) => writeln!(said, "{line}")?,
            _ => {}
        }
    }
    if !child.wait()?.success() {
        bail!("a test of the libraries failed:\n{said}");
    }
    ensure!(programs.len() > LIBRARIES.len(), "cargo named {} test programs", programs.len());
    Ok(programs)
}

/// Runs what loads the image. Numbers of a run with failures are of no use.
pub(super) fn trials(workspace: &Workspace, image: &Path, profiles: &Path) -> Result<()> {
    // What programs of user-mode NetworkDirect load.
    softnd::build(workspace, Profile::Release)?;
    let mut cargo = host_cargo::cargo(workspace);
    cargo.args(["test", "--quiet", "--locked", "--no-fail-fast"]);
    cargo.args(LOADING.iter().flat_map(|test| ["--test", test]));
    cargo.args(["--", "--skip", FORCED_FAULTS]);
    run(&mut cargo, image, profiles)?;
    // What is across a stream, too: only there all of it is.
    let mut cargo = host_cargo::cargo(workspace);
    cargo.args(["test", "--quiet", "--locked", "--test", "contract"]);
    run(cargo.envs([ACROSS_STREAMS]), image, profiles)
}

fn run(cargo: &mut Command, image: &Path, profiles: &Path) -> Result<()> {
    cargo.env("SOFTNDK_IMAGE", image).env("KERNEL_HOST_COVERAGE", profiles);
    command::output(cargo).context("a trial failed on the image that counts").map(drop)
}
