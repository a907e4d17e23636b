//! Running the tests with one mutant chosen: until the first that fails, or until they have taken too long.

use crate::{child, workspace::write_if_changed};
use anyhow::{Context, Result, bail};
use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// What became of a mutant.
pub enum Verdict {
    /// By this test, or by an end that no test chose.
    Caught(String),
    Hung,
    Missed,
    Unviable,
}

impl Verdict {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Caught(_) => "caught",
            Self::Hung => "hung",
            Self::Missed => "MISSED",
            Self::Unviable => "unviable",
        }
    }

    /// Who noticed it, for people who wonder.
    pub fn judge(&self) -> String {
        if let Self::Caught(test) = self { format!(" [{test}]") } else { String::new() }
    }
}

/// Longer than the tests take on any machine that is in use for other things as well.
const TIME: Duration = Duration::from_mins(3);
/// Seconds of the processor that the quick tests may take (one, mostly), and those that are left. What hangs mostly spins, and a
/// busy machine does not make that longer.
const QUICK: u32 = 8;
const SLOW: u32 = 60;

/// How test binaries are run, and the folder they run in, where they read which mutant they are to have.
pub struct Suite {
    /// Tests that run when the others have passed: few mutants are noticed by nobody else.
    pub slow: &'static [&'static str],
    pub without_slow: bool,
    pub folder: PathBuf,
}

impl Suite {
    /// Chooses the mutant that the tests are to have; 0 is none.
    pub fn choose(&self, number: u32) -> Result<()> {
        write_if_changed(&self.folder.join("mutant"), number.to_string().as_bytes())
    }

    pub fn require_green(&self, binaries: &[PathBuf]) -> Result<()> {
        self.choose(0)?;
        match self.judge(binaries)? {
            Verdict::Missed => Ok(()),
            verdict => bail!("the tests are not green without a mutant: {}{}", verdict.word(), verdict.judge()),
        }
    }

    pub fn judge(&self, binaries: &[PathBuf]) -> Result<Verdict> {
        let quick = self.slow.iter().flat_map(|test| ["--skip", test]).collect::<Vec<_>>();
        let rounds = [(&*quick, QUICK), (self.slow, SLOW)];
        for (words, seconds) in rounds.into_iter().take(if self.without_slow { 1 } else { 2 }) {
            for binary in binaries {
                match run(Command::new("sh").current_dir(&self.folder), binary, words, seconds)? {
                    Verdict::Missed => {}
                    verdict => return Ok(verdict),
                }
            }
        }
        Ok(Verdict::Missed)
    }
}

/// Runs a test binary until a test fails. A mutant may ask for all the memory there is, or go on for ever.
fn run(shell: &mut Command, binary: &Path, words: &[&str], seconds: u32) -> Result<Verdict> {
    let script = format!("ulimit -v 8000000; ulimit -t {seconds}; exec \"$0\" \"$@\"");
    shell.args(["-c", &script]).arg(binary).args(words);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    child::lead_a_group(shell);
    let mut tests = shell.spawn()?;
    let (told, lines) = mpsc::channel();
    let said = BufReader::new(tests.stdout.take().context("tests that say nothing")?);
    let reader = thread::spawn(move || said.lines().map_while(Result::ok).try_for_each(|line| told.send(line)));
    let verdict = first_failure(&lines);
    let status = child::wait(&mut tests, if verdict.is_some() { Duration::ZERO } else { Duration::from_secs(10) })?;
    drop(lines);
    // It ends with the process whose words it reads, or with the first that nobody wants.
    drop(reader.join());
    Ok(match (verdict, status) {
        (Some(verdict), _) => verdict,
        (None, Some(status)) if status.success() => Verdict::Missed,
        (None, Some(status)) if out_of_time(status) => Verdict::Hung,
        (None, status) => Verdict::Caught(status.map_or("no end".into(), |status| status.to_string())),
    })
}

/// What the tests say about the mutant before they end, if anything.
fn first_failure(lines: &Receiver<String>) -> Option<Verdict> {
    let end = Instant::now() + TIME;
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if let Some(test) = line.strip_suffix(" ... FAILED") {
                    return Some(Verdict::Caught(test.trim_start_matches("test ").to_owned()));
                }
            }
            Err(RecvTimeoutError::Timeout) => return Some(Verdict::Hung),
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// Whether the processor time was over.
#[cfg(unix)]
fn out_of_time(status: std::process::ExitStatus) -> bool {
    const SIGXCPU: i32 = 24;
    const SIGKILL: i32 = 9;
    std::os::unix::process::ExitStatusExt::signal(&status).is_some_and(|signal| signal == SIGXCPU || signal == SIGKILL)
}

#[cfg(not(unix))]
fn out_of_time(_: std::process::ExitStatus) -> bool {
    false
}
