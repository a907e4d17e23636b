//! Running one command after the other, each with a limit and a log: what `cargo xtask test` and `cargo xtask soak` share.
//!
//! Stages that keep one processor busy and build in folders of their own may run beside the others, one after the other, too.
//! A stage that fails does not keep the others from running, and one that the world outside keeps from its work is skipped. A stage is
//! ended for lack of progress or for what it uses of the processors, never for what the clock says. What each took is kept in a file, from which the next run says what
//! it expects; processor seconds say more than the clock on a machine that does other things as well.

use crate::{
    bad_drivers,
    child::{ChildProgress, IDLE_LOOKS, LOOK_INTERVAL, ProgressLimit, ProgressWatch, lead_a_group, wait_while},
    host_cargo, processes, progress, skipped, test_log,
    workspace::{Workspace, write_if_changed},
};
use anyhow::{Context, Result, bail};
use indicatif::MultiProgress;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    io::{IsTerminal, stderr},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// One command of a run.
pub(crate) struct Stage {
    pub name: &'static str,
    /// What a person learns when it passes.
    pub shows: &'static str,
    pub program: Program,
    pub words: &'static [&'static str],
    pub environment: &'static [(&'static str, &'static str)],
    /// What it takes of the processors where nothing is built yet. After ten times as much it is ended.
    pub processor_seconds: u32,
}

/// What a stage runs.
#[derive(Clone, Copy)]
pub(crate) enum Program {
    Cargo,
    /// Another command of this program.
    Xtask,
}

/// How a stage went.
pub(crate) struct StageOutcome {
    pub end: StageEnd,
    pub cost: Cost,
    pub log: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StageEnd {
    /// What it skipped, if it left a part of its work out, with the reason.
    Passed {
        without: Option<String>,
    },
    Failed(String),
    /// It had nothing to do its work with: the reason.
    Skipped(String),
}

/// Seconds by the clock, and of the processors in this process's children.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    pub elapsed: f64,
    pub processor: f64,
}

impl Stage {
    fn limit(&self) -> ProgressLimit {
        ProgressLimit { processor_seconds: f64::from(self.processor_seconds) * 10.0, idle_looks: IDLE_LOOKS }
    }

    fn command(&self, workspace: &Workspace, xtask: &Path) -> Command {
        let mut command = match self.program {
            Program::Cargo => host_cargo::cargo(workspace),
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
        command.envs(without_incremental(env::var_os("CI").is_some()));
        command
    }
}

/// A pipeline builds once: what makes a second build faster is some gigabytes for nothing there.
fn without_incremental(in_pipeline: bool) -> Option<(&'static str, &'static str)> {
    in_pipeline.then_some(("CARGO_INCREMENTAL", "0"))
}

/// Those of `all` that were asked for by name, in their order; all when none was.
pub(crate) fn chosen<'a>(all: &[&'a Stage], names: &[String], command: &str) -> Result<Vec<&'a Stage>> {
    if let Some(unknown) = names.iter().find(|name| !all.iter().any(|stage| stage.name == **name)) {
        bail!("there is no stage {unknown:?}; `cargo xtask {command} --list` names them");
    }
    Ok(all.iter().copied().filter(|stage| names.is_empty() || names.iter().any(|name| name == stage.name)).collect())
}

/// Names the stages, and what each took when it ran last on this machine.
pub(crate) fn list(all: &[&Stage], runner: &StageRunner<'_>) {
    for stage in all {
        let took = runner.expected(stage).map_or_else(|| "-".to_owned(), |cost| format!("{:.0} s", cost.elapsed));
        println!("{:<16} {took:>7}  {}", stage.name, stage.shows);
    }
}

/// Stages that run one after the other.
struct Lane<'a, 's> {
    runner: StageRunner<'a>,
    stages: Vec<&'s Stage>,
    started: Instant,
}

impl<'s> Lane<'_, 's> {
    fn run(self, bars: &MultiProgress, outcomes: &mpsc::Sender<(&'s Stage, Result<StageOutcome>)>) {
        for (place, stage) in self.stages.iter().enumerate() {
            let place = format!("{} of {}", place + 1, self.stages.len());
            let left = self.runner.left(&self.stages, stage);
            let whole = format!("{} since the start{left}", clock(self.started.elapsed()));
            let outcome = self.runner.stage(stage, &place, &whole, bars);
            if outcomes.send((stage, outcome)).is_err() {
                return;
            }
        }
    }
}

/// Runs stages and remembers what they took.
#[derive(Clone)]
pub(crate) struct StageRunner<'a> {
    workspace: &'a Workspace,
    xtask: PathBuf,
    folder: PathBuf,
    known: BTreeMap<String, Cost>,
}

impl<'a> StageRunner<'a> {
    /// Logs and times go to `folder`, below the work tree.
    pub fn new(workspace: &'a Workspace, folder: &str) -> Result<Self> {
        // Asked before the first stage: `cargo test` puts another file in this one's place, and then only the path is good.
        let xtask = env::current_exe().context("this program has no path")?;
        let folder = workspace.path(folder);
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let known = fs::read_to_string(times(&folder)).map(|text| read_times(&text)).unwrap_or_default();
        Ok(Self { workspace, xtask, folder, known })
    }

    /// What the stage took when it passed last.
    fn expected(&self, stage: &Stage) -> Option<Cost> {
        self.known.get(stage.name).copied()
    }

    /// Runs the stages in their order, those named in `beside` in theirs at the same time; prints a line for each, and calls `done`
    /// with how it went.
    pub fn run(
        &mut self,
        stages: &[&Stage],
        beside: &[&str],
        mut done: impl FnMut(&Stage, &StageOutcome) -> Result<()>,
    ) -> Result<()> {
        let started = Instant::now();
        let (second, first): (Vec<_>, Vec<_>) = stages.iter().partition(|stage| beside.contains(&stage.name));
        let bars = MultiProgress::new();
        let mut processor = 0.0;
        thread::scope(|scope| {
            let (sender, outcomes) = mpsc::channel();
            for lane in [first, second] {
                let (sender, bars, lane) =
                    (sender.clone(), bars.clone(), Lane { runner: self.clone(), stages: lane, started });
                scope.spawn(move || lane.run(&bars, &sender));
            }
            drop(sender);
            for (stage, outcome) in outcomes {
                let outcome = outcome?;
                bars.suspend(|| self.print(stage, &outcome))?;
                processor += outcome.cost.processor;
                if matches!(outcome.end, StageEnd::Passed { .. }) {
                    self.known.insert(stage.name.to_owned(), outcome.cost);
                    write_if_changed(&times(&self.folder), write_times(&self.known).as_bytes())?;
                }
                done(stage, &outcome)?;
            }
            Ok::<_, anyhow::Error>(())
        })?;
        println!("{:<16} {}", "all", Cost { elapsed: started.elapsed().as_secs_f64(), processor });
        Ok(())
    }

    /// What the stages from this one on took last time, for those that are known.
    fn left(&self, stages: &[&Stage], from: &Stage) -> String {
        let rest = stages.iter().skip_while(|stage| stage.name != from.name);
        let (mut seconds, mut unknown) = (0.0, 0);
        for stage in rest {
            match self.expected(stage) {
                Some(cost) => seconds += cost.elapsed,
                None => unknown += 1,
            }
        }
        let time = clock(Duration::from_secs_f64(seconds));
        match (seconds > 0.0, unknown) {
            (false, _) => String::new(),
            (true, 0) => format!(", about {time} left"),
            (true, _) => format!(", about {time} left without the {unknown} of unknown length"),
        }
    }

    fn stage(&self, stage: &Stage, place: &str, whole: &str, bars: &MultiProgress) -> Result<StageOutcome> {
        let log = self.folder.join(stage.name).with_extension("log");
        let expected = self.expected(stage).map(|cost| clock(Duration::from_secs_f64(cost.elapsed)));
        let about = expected.map_or_else(|| "of unknown length".to_owned(), |time| format!("of about {time}"));
        let message = format!("{about}  {place}, {}: {} ({whole})", stage.name, stage.shows);
        if !stderr().is_terminal() {
            eprintln!("        {message}");
        }
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = stage.command(self.workspace, &self.xtask);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        lead_a_group(&mut command);
        let bar = progress::spinner_of(bars, message)?;
        let started = Instant::now();
        let mut child = command.spawn().with_context(|| format!("cannot start the stage {}", stage.name))?;
        let (number, mut processor, mut too_long, mut next_look) = (child.id(), 0.0, None, LOOK_INTERVAL);
        let mut watch = ProgressWatch::new(stage.limit());
        let status = wait_while(&mut child, || {
            // Asked while it runs: nothing says it afterwards.
            processor = processes::seconds_of(number).max(processor);
            if started.elapsed() >= next_look {
                next_look = started.elapsed() + LOOK_INTERVAL;
                let printed = fs::metadata(&log).map_or(0, |log| log.len());
                too_long = watch.look(ChildProgress { printed, processor_seconds: processes::seconds(number) });
            }
            too_long.is_none()
        })?;
        bar.finish_and_clear();
        // The child may have ended because this process is ending it.
        #[cfg(target_os = "linux")]
        processes::wait_for_the_end_on_a_signal();
        let end = match status {
            None => StageEnd::Failed(too_long.unwrap_or_default()),
            Some(status) => StageEnd::of(status, &String::from_utf8_lossy(&fs::read(&log)?)),
        };
        let cost = Cost { elapsed: started.elapsed().as_secs_f64(), processor };
        Ok(StageOutcome { end, cost, log })
    }

    fn print(&self, stage: &Stage, outcome: &StageOutcome) -> Result<()> {
        let StageOutcome { end, cost: Cost { elapsed, processor }, log } = outcome;
        let took = format!("{:<16} {elapsed:>7.1} s {processor:>7.1} s", stage.name);
        match end {
            StageEnd::Passed { without: None } => println!("{took}  {}", stage.shows),
            StageEnd::Passed { without: Some(what) } => println!("{took}  {}; skipped: {what}", stage.shows),
            StageEnd::Skipped(why) => println!("{took}  skipped: {why}"),
            StageEnd::Failed(why) => {
                println!("{took}  FAILED ({why}); the whole output is in {}", self.workspace.show(log));
                println!("{}", test_log::excerpt(&String::from_utf8_lossy(&fs::read(log)?)));
            }
        }
        Ok(())
    }
}

impl StageEnd {
    fn of(status: ExitStatus, log: &str) -> Self {
        let skipped = skipped::reason(log).map(str::to_owned);
        match (status.code(), skipped) {
            (Some(0), without) => Self::Passed { without },
            (Some(code), Some(reason)) if code == i32::from(skipped::EXIT_STATUS) => Self::Skipped(reason),
            _ => Self::Failed(status.to_string()),
        }
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:.0} s by the clock, {:.0} s of the processors", self.elapsed, self.processor)
    }
}

/// Hours, minutes and seconds.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

fn times(folder: &Path) -> PathBuf {
    folder.join("times.json")
}

/// What cannot be read is not known.
fn read_times(text: &str) -> BTreeMap<String, Cost> {
    let Ok(Value::Object(stages)) = serde_json::from_str(text) else { return BTreeMap::new() };
    let cost = |value: &Value| {
        Some(Cost { elapsed: value.get("elapsed")?.as_f64()?, processor: value.get("processor")?.as_f64()? })
    };
    stages.into_iter().filter_map(|(name, value)| Some((name, cost(&value)?))).collect()
}

fn write_times(known: &BTreeMap<String, Cost>) -> String {
    let of = |cost: &Cost| json!({ "elapsed": cost.elapsed, "processor": cost.processor });
    let stages: serde_json::Map<_, _> = known.iter().map(|(name, cost)| (name.clone(), of(cost))).collect();
    format!("{:#}\n", Value::Object(stages))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &'static str, program: &'static [&'static str]) -> Stage {
        Stage { name, shows: "", program: Program::Cargo, words: program, environment: &[], processor_seconds: 60 }
    }

    fn runner<'a>(workspace: &'a Workspace, folder: &str) -> StageRunner<'a> {
        let _ = fs::remove_dir_all(workspace.path(folder));
        StageRunner::new(workspace, folder).unwrap()
    }

    #[test]
    fn only_a_pipeline_builds_without_incremental_folders() {
        assert_eq!(without_incremental(true), Some(("CARGO_INCREMENTAL", "0")));
        assert_eq!(without_incremental(false), None);
    }

    #[test]
    fn unknown_name_is_refused_and_the_order_is_kept() {
        let all = [&stage("one", &[]), &stage("two", &[])];
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(chosen(&all, &names(&["two", "one"]), "test").unwrap()[0].name, "one");
        assert_eq!(chosen(&all, &[], "test").unwrap().len(), 2);
        assert!(chosen(&all, &names(&["three"]), "test").is_err());
    }

    #[test]
    fn failing_stage_does_not_stop_the_next_and_only_times_of_good_ones_are_kept() {
        let workspace = Workspace::find().unwrap();
        let mut runner = runner(&workspace, "target/stages-test");
        let (good, bad) = (stage("good", &["--version"]), stage("bad", &["no-such-command"]));
        let mut failed = Vec::new();
        let done = |stage: &Stage, outcome: &StageOutcome| {
            failed.push((stage.name, matches!(outcome.end, StageEnd::Failed(_))));
            Ok(())
        };
        runner.run(&[&bad, &good], &[], done).unwrap();
        assert_eq!(failed, [("bad", true), ("good", false)]);
        let again = StageRunner::new(&workspace, "target/stages-test").unwrap();
        assert!(again.expected(&good).is_some_and(|cost| cost.elapsed > 0.0) && again.expected(&bad).is_none());
        assert!(again.left(&[&bad, &good], &bad).ends_with("without the 1 of unknown length"));
        fs::remove_dir_all(workspace.path("target/stages-test")).unwrap();
    }

    /// The first waits for what the second writes.
    #[cfg(unix)]
    #[test]
    fn stages_run_beside_others() {
        let workspace = Workspace::find().unwrap();
        let folder = "target/stages-beside-test";
        let mut runner = runner(&workspace, folder);
        runner.xtask = PathBuf::from("sh");
        let of = |name, words| Stage { program: Program::Xtask, ..stage(name, words) };
        let waits = of("waits", &["-c", "until [ -e target/stages-beside-test/written ]; do sleep 0.02; done"]);
        let writes = of("writes", &["-c", "touch target/stages-beside-test/written"]);
        let mut seen = Vec::new();
        let done = |stage: &Stage, outcome: &StageOutcome| {
            seen.push((stage.name, matches!(outcome.end, StageEnd::Failed(_))));
            Ok(())
        };
        runner.run(&[&waits, &writes], &["writes"], done).unwrap();
        seen.sort_unstable();
        assert_eq!(seen, [("waits", false), ("writes", false)]);
        fs::remove_dir_all(workspace.path(folder)).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn stage_that_says_why_is_skipped_and_its_time_is_not_kept() {
        let workspace = Workspace::find().unwrap();
        let folder = "target/stages-skip-test";
        let mut runner = runner(&workspace, folder);
        runner.xtask = PathBuf::from("sh");
        let of = |name, words| Stage { program: Program::Xtask, ..stage(name, words) };
        let skipped = of("skipped", &["-c", "echo skipped: no such package; exit 77"]);
        let silent = of("silent", &["-c", "echo it was skipped: no; exit 77"]);
        let mut ends = Vec::new();
        let done = |_: &Stage, outcome: &StageOutcome| {
            ends.push(outcome.end.clone());
            Ok(())
        };
        let part = of("part", &["-c", "echo skipped: a case: no daemon"]);
        runner.run(&[&skipped, &silent, &part], &[], done).unwrap();
        assert_eq!(ends[0], StageEnd::Skipped("no such package".to_owned()));
        assert!(matches!(ends[1], StageEnd::Failed(_)));
        assert_eq!(ends[2], StageEnd::Passed { without: Some("a case: no daemon".to_owned()) });
        assert_eq!(runner.expected(&skipped), None);
        fs::remove_dir_all(workspace.path(folder)).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn stage_that_uses_too_much_is_ended() {
        let workspace = Workspace::find().unwrap();
        let folder = "target/stages-limit-test";
        let mut runner = runner(&workspace, folder);
        runner.xtask = PathBuf::from("sh");
        // Ten times nothing is used up at the first look.
        let endless =
            Stage { program: Program::Xtask, processor_seconds: 0, ..stage("endless", &["-c", "while :; do :; done"]) };
        let mut ends = Vec::new();
        let done = |_: &Stage, outcome: &StageOutcome| {
            ends.push(outcome.end.clone());
            Ok(())
        };
        runner.run(&[&endless], &[], done).unwrap();
        assert!(matches!(&ends[0], StageEnd::Failed(why) if why.contains("of the processors")), "{ends:?}");
        fs::remove_dir_all(workspace.path(folder)).unwrap();
    }

    #[test]
    fn times_are_written_and_read() {
        let known = BTreeMap::from([("a".to_owned(), Cost { elapsed: 1.5, processor: 2.0 })]);
        assert_eq!(read_times(&write_times(&known)), known);
        assert!(read_times("{").is_empty() && read_times("{\"a\": 1}").is_empty());
    }
}
