//! The cases: trials of the conformance package, each run by itself so that a guest whose kernel has broken serves no other one.

use super::{
    guest::{BootPlan, Guest},
    judge::{Judgement, SideCount, judge},
};
use crate::{command, host_pair, progress};
use anyhow::{Context, Result, bail};
use std::{fs, net::Ipv4Addr, path::PathBuf, process::Command, time::Instant};

/// Names the guest to the trials: the address of its ports.
const GUEST: &str = "SOFTNDK_SIW_GUEST";
/// Names the UDP port of VXLAN in the guest.
const TUNNEL: &str = "SOFTNDK_SIW_TUNNEL";
/// How a trial's line begins that says what it counted.
const COUNTED: &str = "counted: ";

/// The case of a Reject. To a program in the guest a stream that ends looks the same.
const REJECTS: &str = "reject_reaches_the_guest";

/// In the names of the cases whose frames are to be in VXLAN.
const IN_TUNNEL: &str = "vxlan";

/// Names what the case of ndkctl starts: the program, the DLL, and the number of the network whose first machine is the guest.
const NDKCTL: &str = "SOFTNDK_NDKCTL";
const DLL: &str = "SOFTNDK_DLL";
const NETWORK: &str = "SOFTNDK_NDKCTL_NETWORK";

/// The program of the trials, the driver's image, and what else is started.
pub(super) struct Trials {
    pub program: PathBuf,
    pub image: PathBuf,
    pub ndkctl: PathBuf,
    pub dll: PathBuf,
}

/// How one case went.
pub(super) struct CaseOutcome {
    pub name: String,
    pub seconds: f64,
    /// What was counted, or why it failed.
    pub result: Result<String, String>,
    pub judgement: Judgement,
}

/// All outcomes, and the last guest.
pub(super) struct Outcomes {
    pub cases: Vec<CaseOutcome>,
    pub guest: Option<Guest>,
    /// How many guests were booted.
    pub guests: usize,
}

impl Trials {
    fn command(&self, guest: Ipv4Addr, tunnel_port: u16) -> Command {
        let mut command = Command::new(&self.program);
        command.env(GUEST, guest.to_string()).env(TUNNEL, tunnel_port.to_string()).env("SOFTNDK_IMAGE", &self.image);
        command.env(NDKCTL, &self.ndkctl).env(DLL, &self.dll).env(NETWORK, host_pair::network().to_string());
        command
    }

    /// The names of the cases that have one of these words.
    pub(super) fn names(&self, only: &[String]) -> Result<Vec<String>> {
        let said = command::output(self.command(Ipv4Addr::LOCALHOST, 0).arg("--list"))?;
        let names = said.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned);
        let is_wanted = |name: &String| only.is_empty() || only.iter().any(|word| name.contains(word.as_str()));
        let chosen: Vec<_> = names.filter(is_wanted).collect();
        if chosen.is_empty() {
            bail!("no case has {only:?} in its name; they are:\n{said}");
        }
        Ok(chosen)
    }

    /// Runs the cases one after the other. One in which the guest's kernel breaks has failed, and the next one has a new guest.
    pub(super) fn run(&self, plan: &BootPlan<'_>, names: &[String]) -> Result<Outcomes> {
        let mut outcomes = Outcomes { cases: Vec::new(), guest: None, guests: 0 };
        for name in names {
            let mut guest = if let Some(guest) = outcomes.guest.take() {
                guest
            } else {
                outcomes.guests += 1;
                Guest::boot(plan, outcomes.guests)?
            };
            let outcome = self.run_one(name, &mut guest, plan)?;
            eprintln!("interop: {}", outcome.line());
            outcomes.cases.push(outcome);
            if guest.crash()?.is_none() {
                outcomes.guest = Some(guest);
            }
        }
        Ok(outcomes)
    }

    fn run_one(&self, name: &str, guest: &mut Guest, plan: &BootPlan<'_>) -> Result<CaseOutcome> {
        let file = |extension: &str| plan.folder.join(format!("{name}.{extension}"));
        let (log, capture) = (file("log"), file("pcap"));
        let spinner = progress::spinner(name.to_owned())?;
        let started = Instant::now();
        let mut trial = self.command(guest.address, plan.tunnel_port);
        let done = trial.args(["--exact", name]).output().context("cannot start the trials")?;
        let seconds = started.elapsed().as_secs_f64();
        spinner.finish_and_clear();
        let said = [done.stdout, done.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
        fs::write(&log, &said)?;
        guest.capture.take(&capture)?;
        let judgement = judge(plan.packages, &capture, plan.tunnel_port)?;
        let result = match guest.crash()? {
            Some(why) => Err(why),
            None if name == REJECTS && judgement.driver.rejections == 0 => {
                Err("tshark sees no Reply that rejects".to_owned())
            }
            None if name.contains(IN_TUNNEL) && judgement.driver.tunnelled == 0 => {
                Err("tshark sees no VXLAN of the driver".to_owned())
            }
            None if done.status.success() && said.contains("1 passed") => Ok(counted(&said)),
            None => Err(format!("{}; all in {}", why(&said), log.display())),
        };
        Ok(CaseOutcome { name: name.to_owned(), seconds, result, judgement })
    }
}

impl CaseOutcome {
    /// For a person.
    pub(super) fn line(&self) -> String {
        let (verdict, said) = match &self.result {
            Ok(counted) => ("ok", counted),
            Err(why) => ("FAILED", why),
        };
        let (name, seconds, SideCount { frames, malformed, bad_crcs, .. }) =
            (&self.name, self.seconds, self.judgement.driver);
        format!("{name:<42} {verdict:<6} {seconds:>6.1} s {frames:>6} {malformed:>4} {bad_crcs:>4}  {said}")
    }
}

fn counted(said: &str) -> String {
    // The list of trials has no line of its own for what a trial says.
    let lines: Vec<_> = said.lines().filter_map(|line| Some(line.split_once(COUNTED)?.1)).collect();
    lines.join("; ")
}

/// The first line of a panic, or of what ended the trial.
fn why(said: &str) -> String {
    let mut lines = said.lines().skip_while(|line| !line.contains("panicked at") && !line.contains("*** STOP"));
    let (first, second) = (lines.next(), lines.next());
    match (first, second) {
        (Some(first), _) if first.contains("STOP") => first.to_owned(),
        (Some(first), Some(second)) => format!("{second} ({first})"),
        _ => "it says no reason".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_say_what_was_counted_and_why_it_failed() {
        assert_eq!(
            counted("running 1 test\ntest a ... counted: 10 pings\ncounted: 3 stalls\ntest result: ok\n"),
            "10 pings; 3 stalls"
        );
        let failed = "output:\nthread 'main' panicked at a.rs:1:2:\nnot equal\nmore";
        assert_eq!(why(failed), "not equal (thread 'main' panicked at a.rs:1:2:)");
        assert_eq!(why("nothing"), "it says no reason");
    }
}
