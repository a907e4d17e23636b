//! Waiting for a child process, and ending it with all that it started.

use crate::processes;
use anyhow::Result;
use std::{
    process::{Child, Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

/// How often a child is asked whether it has ended.
const INTERVAL: Duration = Duration::from_millis(50);

/// Waits for the child, or ends it when the time is over.
pub fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let started = Instant::now();
    wait_while(child, || started.elapsed() <= limit)
}

/// Waits for the child, or ends it when the answer to whether it may go on, which is asked again and again, is no.
pub fn wait_while(child: &mut Child, mut may_go_on: impl FnMut() -> bool) -> Result<Option<ExitStatus>> {
    loop {
        let goes_on = may_go_on();
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if !goes_on {
            end(child)?;
            return Ok(None);
        }
        thread::sleep(INTERVAL);
    }
}

/// Makes the child the leader of a process group: a terminal's interruption comes to this process alone, which ends its children.
#[cfg(unix)]
pub fn lead_a_group(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

#[cfg(not(unix))]
pub fn lead_a_group(_: &mut Command) {}

fn end(child: &mut Child) -> Result<()> {
    processes::end(child.id());
    // Where there is no table of processes.
    child.kill()?;
    child.wait()?;
    Ok(())
}

/// What a child may use until it is ended. Not time by the clock: a busy machine takes longer for the same.
#[derive(Clone, Copy, Debug)]
pub struct ProgressLimit {
    /// Seconds of the processors in all.
    pub processor_seconds: f64,
    /// Looks, one after the other, at a child that neither prints nor uses a processor.
    pub idle_looks: u32,
}

/// Between two looks at a child's progress.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Ten minutes.
pub const IDLE_LOOKS: u32 = 120;

/// What is seen of a child's progress.
pub struct ProgressWatch {
    limit: ProgressLimit,
    idle_looks: u32,
    last: ChildProgress,
}

/// How far a child has come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChildProgress {
    pub printed: u64,
    pub processor_seconds: f64,
}

impl ProgressWatch {
    pub fn new(limit: ProgressLimit) -> Self {
        Self { limit, idle_looks: 0, last: ChildProgress::default() }
    }

    /// Takes a look; why the child has to end, if it has.
    pub fn look(&mut self, now: ChildProgress) -> Option<String> {
        // Processes that end unseen take their time with them.
        self.idle_looks = if now == self.last { self.idle_looks + 1 } else { 0 };
        self.last = now;
        let (used, limit) = (now.processor_seconds, self.limit.processor_seconds);
        if used > limit {
            return Some(format!("it used {used:.0} s of the processors, ten times what it should"));
        }
        let quiet = LOOK_INTERVAL * self.idle_looks;
        let is_idle = self.idle_looks >= self.limit.idle_looks;
        is_idle.then(|| format!("no progress for {} s: it printed nothing and used no processor", quiet.as_secs()))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn run(program: &str, words: &[&str], limit: Duration) -> Option<ExitStatus> {
        let mut command = Command::new(program);
        command.args(words);
        lead_a_group(&mut command);
        wait(&mut command.spawn().unwrap(), limit).unwrap()
    }

    #[test]
    fn exit_status_is_passed_on() {
        assert!(run("true", &[], Duration::from_mins(1)).unwrap().success());
        assert!(!run("false", &[], Duration::from_mins(1)).unwrap().success());
    }

    #[test]
    fn time_limit_ends_the_whole_group() {
        // A child that were not ended would keep the pipe open, and this test for ten minutes.
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & wait"]).stdout(std::process::Stdio::piped());
        lead_a_group(&mut command);
        let mut child = command.spawn().unwrap();
        assert!(wait(&mut child, Duration::from_millis(200)).unwrap().is_none());
        let mut output = String::new();
        std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut output).unwrap();
        assert_eq!(output, "");
    }

    #[test]
    fn child_without_progress_and_one_that_uses_too_much_have_to_end() {
        let at = |printed, processor_seconds| ChildProgress { printed, processor_seconds };
        let mut watch = ProgressWatch::new(ProgressLimit { processor_seconds: 10.0, idle_looks: 2 });
        assert_eq!(watch.look(at(0, 1.0)), None);
        assert_eq!(watch.look(at(0, 1.0)), None);
        // Printing is progress, and using a processor is.
        assert_eq!(watch.look(at(1, 1.0)), None);
        assert_eq!(watch.look(at(1, 2.0)), None);
        assert_eq!(watch.look(at(1, 2.0)), None);
        assert!(watch.look(at(1, 2.0)).unwrap().contains("no progress for 10 s"));
        assert!(watch.look(at(2, 11.0)).unwrap().contains("11 s of the processors"));
    }
}
