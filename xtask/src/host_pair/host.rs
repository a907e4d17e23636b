//! One ndkctl of a pair, in a process of its own: what it says on the way, and how it ends.

use anyhow::{Context, Result};
use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::mpsc::Sender,
    thread,
};

/// What an ndkctl begins the line with in which it says where it listens.
const LISTENS: &str = "listens at ";

/// What has happened to one of the hosts, by its number.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// It listens at this address.
    Listens(String),
    /// Its outputs have ended: the report, and everything else.
    Ended { number: usize, report: String, errors: String },
}

/// A process, which does not outlive this value.
pub(super) struct Host(Child);

impl Host {
    pub fn start(number: usize, command: &mut Command, events: Sender<Event>) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (mut stdout, stderr) = (stdout.context("no output")?, stderr.context("no errors")?);
        thread::spawn(move || {
            let listening = events.clone();
            let errors = thread::spawn(move || read_errors(stderr, &listening));
            let mut report = String::new();
            // What is no text is no report.
            let _ = stdout.read_to_string(&mut report);
            let errors = errors.join().unwrap_or_default();
            // The pair may have failed by now.
            let _ = events.send(Event::Ended { number, report, errors });
        });
        Ok(Self(child))
    }

    /// After its outputs have ended.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.0.wait()?)
    }

    /// Ends it, unless it has ended.
    pub fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.end();
    }
}

fn read_errors(stderr: ChildStderr, events: &Sender<Event>) -> String {
    let mut all = String::new();
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        match line.strip_prefix(LISTENS) {
            Some(address) => drop(events.send(Event::Listens(address.to_owned()))),
            None => all.extend([line.as_str(), "\n"]),
        }
    }
    all
}

#[cfg(all(test, unix))]
mod tests {
    use super::{Event, Host};
    use std::{process::Command, sync::mpsc};

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn host_says_where_it_listens_and_then_that_it_has_ended() {
        let (sender, events) = mpsc::channel();
        let script = "echo other >&2; echo listens at 10.77.1.1:7 >&2; echo report; exit 3";
        let mut host = Host::start(4, &mut shell(script), sender).unwrap();
        assert_eq!(events.recv().unwrap(), Event::Listens("10.77.1.1:7".to_owned()));
        let (report, errors) = ("report\n".to_owned(), "other\n".to_owned());
        assert_eq!(events.recv().unwrap(), Event::Ended { number: 4, report, errors });
        assert_eq!(host.wait().unwrap().code(), Some(3));
    }

    #[test]
    fn host_that_is_given_up_is_ended() {
        let (sender, events) = mpsc::channel();
        drop(Host::start(0, &mut shell("exec sleep 600"), sender).unwrap());
        assert!(matches!(events.recv().unwrap(), Event::Ended { number: 0, .. }));
    }
}
