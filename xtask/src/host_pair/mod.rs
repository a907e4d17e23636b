//! Two ndkctl in two processes, each a machine of its own with the driver's image: one serves, the other one is its client.

mod host;

use anyhow::{Context, Result, bail, ensure};
use host::{Event, Host};
use serde_json::Value;
use std::{
    path::Path,
    process::Command,
    sync::mpsc::{self, Receiver},
};

/// As `ndkctl` has it.
const NETWORKS: u32 = 1 << 14;

/// Numbers of machines, and where that of the server listens.
pub const SERVER: &str = "1";
pub const CLIENT: &str = "2";
pub const LISTEN_AT: &str = "10.77.1.1:0";

/// The network of this process's machines: two pairs at once do not meet.
#[must_use]
pub fn network() -> u32 {
    std::process::id() % NETWORKS
}

/// What both are started with.
#[derive(Clone, Copy)]
pub struct HostPair<'a> {
    pub ndkctl: &'a Path,
    pub image: &'a Path,
    /// Before the command.
    pub options: &'a [&'a str],
}

/// What a process has said at its end.
struct Said {
    succeeded: bool,
    report: String,
    errors: String,
}

impl HostPair<'_> {
    /// The start of a command line of either machine.
    #[must_use]
    pub fn command(&self, machine: &str, words: &[&str]) -> Command {
        let mut command = Command::new(self.ndkctl);
        command.arg("--image").arg(self.image).args([
            "--machine",
            machine,
            "--network",
            &network().to_string(),
            "--json",
        ]);
        command.args(self.options).args(words);
        command
    }
}

/// Starts the server, and the client once it listens; both reports.
pub fn run(server: &mut Command, client: impl FnOnce(&str) -> Result<Command>) -> Result<[Value; 2]> {
    let (sender, events) = mpsc::channel();
    let server = Host::start(0, server, sender.clone())?;
    let address = listening(&events)?;
    let client = Host::start(1, &mut client(&address)?, sender)?;
    let [first, second] = both_ended(&events, &mut [server, client])?;
    Ok([report(&first)?, report(&second)?])
}

/// Waits until the server listens; where.
fn listening(events: &Receiver<Event>) -> Result<String> {
    match events.recv()? {
        Event::Listens(address) => Ok(address),
        Event::Ended { report, errors, .. } => bail!("machine 1 has ended before it listened:\n{report}{errors}"),
    }
}

/// Waits until both have ended. When one fails the other one is ended, and the output of both is shown.
fn both_ended(events: &Receiver<Event>, hosts: &mut [Host; 2]) -> Result<[Said; 2]> {
    let mut said = [None, None];
    while said.iter().any(Option::is_none) {
        let Event::Ended { number, report, errors } = events.recv()? else { continue };
        let succeeded = hosts[number].wait()?.success();
        said[number] = Some(Said { succeeded, report, errors });
        if !succeeded {
            hosts[1 - number].end();
        }
    }
    let [Some(first), Some(second)] = said else { bail!("a host has said nothing") };
    if first.succeeded && second.succeeded {
        return Ok([first, second]);
    }
    for (said, machine) in [(first, 1), (second, 2)] {
        let how = if said.succeeded { "succeeded" } else { "failed, or was ended" };
        println!("machine {machine} {how}:\n{}{}", said.report, said.errors);
    }
    bail!("a machine failed")
}

/// The report in a document of ndkctl, which says that nothing was left behind: it has failed otherwise.
fn report(said: &Said) -> Result<Value> {
    let document: Value = serde_json::from_str(&said.report).context("a host's report is no JSON")?;
    ensure!(document["ok"] == true, "a host has failed: {document:#}");
    Ok(document["report"].clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_of_a_failure_is_none() {
        let said = |report: &str| Said { succeeded: true, report: report.to_owned(), errors: String::new() };
        assert_eq!(report(&said(r#"{ "ok": true, "report": 3 }"#)).unwrap(), 3);
        assert!(report(&said(r#"{ "ok": false, "report": 3 }"#)).is_err());
        assert!(report(&said("")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn one_that_fails_ends_the_other() {
        let (sender, events) = mpsc::channel();
        let shell = |script| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let waits = Host::start(0, &mut shell("exec sleep 600"), sender.clone()).unwrap();
        let fails = Host::start(1, &mut shell("exit 4"), sender).unwrap();
        assert!(both_ended(&events, &mut [waits, fails]).is_err());
    }
}
