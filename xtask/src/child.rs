//! Waiting for a child process with a limit, and ending it with all that it started.

#[cfg(unix)]
use crate::command;
use anyhow::Result;
use std::{
    process::{Child, Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

/// Waits for the child, or ends it when the time is over.
pub fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    wait_with(child, limit, || {})
}

/// The same, with calls of `meanwhile` again and again until the end.
pub fn wait_with(child: &mut Child, limit: Duration, mut meanwhile: impl FnMut()) -> Result<Option<ExitStatus>> {
    let started = Instant::now();
    loop {
        meanwhile();
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if started.elapsed() > limit {
            end(child)?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Makes the stage the leader of a process group: what it starts (test processes, compilers) can be ended with it.
#[cfg(unix)]
pub fn lead_a_group(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

#[cfg(unix)]
fn end(child: &mut Child) -> Result<()> {
    command::output(Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]))?;
    child.wait()?;
    Ok(())
}

#[cfg(not(unix))]
pub fn lead_a_group(_: &mut Command) {}

#[cfg(not(unix))]
fn end(child: &mut Child) -> Result<()> {
    child.kill()?;
    child.wait()?;
    Ok(())
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
}
