//! Building the copy of the tree and running single tests of it.
//!
//! A test counts as red only if it was built, was found under its name, ran, and failed or did not come to its end.

use super::{
    patch::{DetectingTest, Place},
    tree::Tree,
};
use crate::{arguments::BorderSuite, child, command, test_binary::TestBinary, workspace::Workspace};
use anyhow::{Context, Result, bail};
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    env, fmt,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// Longer than any single test takes, on a busy machine too: a test that is only slow must not count as one that hangs.
const LIMIT: Duration = Duration::from_mins(5);

/// Puts peers across streams, in the engine and in its tests.
const STREAMS: &str = "softndk-engine/streams,softndk-engine-kit/streams";

/// What became of a test.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TestOutcome {
    Passed,
    Failed,
    /// It was ended when its time was over.
    Hung,
    /// No test has this name.
    Unknown,
}

impl fmt::Display for TestOutcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Hung => "did not end",
            Self::Unknown => "there is no such test",
        })
    }
}

/// The image that is built from a copy.
fn image(tree: &Tree) -> PathBuf {
    tree.root().join("target/driver/x64/debug/softndk.sys")
}

/// The provider that is built from a copy.
fn provider(tree: &Tree) -> PathBuf {
    tree.root().join("target/softnd/x64/release/softnd.dll")
}

/// Builds and runs tests of the copy.
pub struct Prover<'a> {
    workspace: &'a Workspace,
    tree: &'a Tree,
    /// This program, asked for before cargo can put another in its place.
    xtask: PathBuf,
    /// The trials use the image only; their binaries are the work tree's own, as they were at the beginning.
    trials: BTreeMap<BorderSuite, PathBuf>,
}

impl<'a> Prover<'a> {
    pub fn new(workspace: &'a Workspace, tree: &'a Tree) -> Result<Self> {
        let xtask = env::current_exe().context("this program has no path")?;
        Ok(Self { workspace, tree, xtask, trials: BTreeMap::new() })
    }

    /// Builds what these tests need of the tree as it is now.
    pub fn build<'t>(&mut self, tests: impl Iterator<Item = &'t DetectingTest>) -> Result<()> {
        let places = tests.map(|test| &test.place).collect::<BTreeSet<_>>();
        for place in places {
            match place {
                Place::Trial(suite) => self.build_image(*suite)?,
                place => {
                    let mut cargo = self.cargo(place);
                    cargo.arg("--no-run").args(["--quiet"]);
                    command::output(&mut cargo).context("the broken tree does not build")?;
                }
            }
        }
        Ok(())
    }

    fn cargo(&self, place: &Place) -> Command {
        let mut cargo = Command::new("cargo");
        match place {
            Place::Library(package) => {
                cargo.current_dir(self.tree.root()).args(["test", "--locked", "--package", package, "--lib"]);
            }
            Place::File(package, file) => {
                cargo.current_dir(self.tree.root()).args(["test", "--locked", "--package", package, "--test", file]);
            }
            Place::Streams(package, file) => {
                cargo.current_dir(self.tree.root()).args(["test", "--locked", "--package", package, "--test", file]);
                let own = if package == "oracle" { ",oracle/streams" } else { "" };
                cargo.args(["--package", "softndk-engine-kit", "--features"]).arg(format!("{STREAMS}{own}"));
            }
            // Its binary is built elsewhere.
            Place::Trial(_) => {}
        }
        cargo
            .args(["--profile", "seeded-bugs"])
            .arg("--target-dir")
            .arg(self.workspace.path("target/seeded-bugs/target"));
        cargo
    }

    /// What a trial needs: the image of the tree as it is now, and the work tree's own test binary.
    fn build_image(&mut self, suite: BorderSuite) -> Result<()> {
        if let Entry::Vacant(place) = self.trials.entry(suite) {
            let (package, file) = suite.test_file();
            let own = self.workspace.path(format!("target/seeded-bugs/{package}-{file}-trials"));
            let built = TestBinary::build(self.workspace, file)?;
            fs::copy(built, &own).with_context(|| format!("cannot write {}", own.display()))?;
            place.insert(own);
        }
        if suite == BorderSuite::Provider {
            self.build_by(&["softnd", "--release"], &provider(self.tree))
                .context("the broken provider does not build")?;
        }
        self.build_by(&["driver"], &image(self.tree)).context("the broken driver does not build")
    }

    /// This program builds an image of the copy as it builds the work tree's; the result of the image check is ignored.
    fn build_by(&self, words: &[&str], image: &Path) -> Result<()> {
        if image.exists() {
            fs::remove_file(image)?;
        }
        let mut xtask = Command::new(&self.xtask);
        xtask.args(words).current_dir(self.tree.root());
        xtask.env("CARGO_MANIFEST_DIR", self.tree.root().join("xtask"));
        let built = command::output(&mut xtask);
        if image.exists() {
            return Ok(());
        }
        built?;
        bail!("there is no image at {}", image.display())
    }

    /// Runs one test that is built; by every seed it names until one does not pass.
    pub fn run(&self, test: &DetectingTest) -> Result<TestOutcome> {
        let Some((first, last)) = test.seeds else { return self.once(test, None) };
        for seed in first..=last {
            let outcome = self.once(test, Some(seed))?;
            if outcome != TestOutcome::Passed {
                return Ok(outcome);
            }
        }
        Ok(TestOutcome::Passed)
    }

    fn log(&self) -> PathBuf {
        self.workspace.path("target/seeded-bugs/test.log")
    }

    /// What the last test said when it failed: from its panic on.
    pub fn why(&self) -> Result<String> {
        const LINES: usize = 8;
        let said = fs::read(self.log())?;
        let said = String::from_utf8_lossy(&said);
        let lines = said.lines().skip_while(|line| !line.contains("panicked") && !line.contains("STOP"));
        Ok(lines.take(LINES).collect::<Vec<_>>().join("\n"))
    }

    fn once(&self, test: &DetectingTest, seed: Option<u64>) -> Result<TestOutcome> {
        let mut run = match &test.place {
            Place::Trial(suite) => {
                let trials = self.trials.get(suite).context("the trials are not built")?;
                let mut run = Command::new(trials);
                run.current_dir(self.workspace.path(suite.package_folder()));
                run.args(["--exact", &test.name]);
                run.env("SOFTNDK_IMAGE", image(self.tree));
                if *suite == BorderSuite::Provider {
                    run.env("SOFTNDK_DLL", provider(self.tree));
                }
                run.envs(seed.map(|seed| ("SOFTNDK_SCHEDULE", seed.to_string())));
                run
            }
            place => {
                let mut cargo = self.cargo(place);
                cargo.arg("--quiet").args(["--", "--exact", &test.name]);
                cargo
            }
        };
        let file = self.log();
        let log = File::create(&file).with_context(|| format!("cannot write {}", file.display()))?;
        run.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        child::lead_a_group(&mut run);
        let status = child::wait(&mut run.spawn()?, LIMIT)?;
        let said = String::from_utf8_lossy(&fs::read(&file)?).into_owned();
        Ok(match status {
            None => TestOutcome::Hung,
            _ if !said.contains("running 1 test") => TestOutcome::Unknown,
            Some(status) if status.success() => TestOutcome::Passed,
            Some(_) => TestOutcome::Failed,
        })
    }
}
