//! `ndkctl replay`: runs a script of operations with the answers and observations it must give, and says where it differs.
//!
//! The driver runs the whole script in one request and stops at the first line that gives something else; what the line should
//! have given is in the script, what it gave comes back with the reply.

use crate::arguments::ReplayArguments;
use crate::client::Client;
use crate::failure::{Failure, Kind};
use crate::script::{self, Line, Tail};
use crate::transport::Device;
use serde::Serialize;
use softndk_ioctl::{SCRIPT_LENGTH_MAX, ScriptAnswer, ScriptCode, ScriptOccurrence, ScriptReply, ScriptResult};
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use zerocopy::FromBytes;

/// What `replay` did, when nothing differed.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    pub file: PathBuf,
    /// Lines that are steps.
    pub steps: usize,
    /// Steps that compare something.
    pub checks: usize,
}

/// Runs a script.
pub fn run<D: Device>(client: &Client<D>, arguments: &ReplayArguments) -> Result<ReplayReport, Failure> {
    let file = &arguments.file;
    let text = read(file).map_err(|error| Failure::file("read", file, &error))?;
    let lines = script::parse(&text).map_err(|error| Failure::no_script(file, error.to_string()))?;
    if lines.is_empty() {
        return Err(Failure::no_script(file, "it has no line that is an operation".to_owned()));
    }
    let checks = run_script(client, file, &text, &lines)?;
    Ok(ReplayReport { file: file.clone(), steps: lines.len(), checks })
}

/// Runs the lines of a text; how many of them compare something.
pub fn run_script<D: Device>(client: &Client<D>, file: &Path, text: &str, lines: &[Line]) -> Result<usize, Failure> {
    let bytes = script::encode(lines);
    if bytes.len() > SCRIPT_LENGTH_MAX as usize {
        return Err(Failure::new(
            Kind::Usage,
            format!("cannot run {}", file.display()),
            format!("it needs {} bytes, and the driver takes {SCRIPT_LENGTH_MAX} at a time", bytes.len()),
            "split it into scripts that stand for themselves",
        ));
    }
    let (reply, entries) = client.replay(&bytes)?;
    if reply.differs == 0 {
        return Ok(lines.iter().filter(|line| code(line).is_some_and(compares)).count());
    }
    Err(difference(file, text, lines, &reply, &entries))
}

/// The file's text; standard input for `-`.
fn read(file: &Path) -> io::Result<String> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    fs::read_to_string(file)
}

fn code(line: &Line) -> Option<ScriptCode> {
    ScriptCode::from_number(line.step.code)
}

fn compares(code: ScriptCode) -> bool {
    matches!(code.verb().answer, ScriptAnswer::Inline | ScriptAnswer::Final | ScriptAnswer::Observed)
}

/// Where each step stands in the text, from 1: the lines that are neither empty nor comments.
fn positions(text: &str) -> impl Iterator<Item = usize> {
    let steps = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.split_once('#').map_or(*line, |(before, _)| before).trim().is_empty());
    steps.map(|(index, _)| index + 1)
}

fn difference(file: &Path, text: &str, lines: &[Line], reply: &ScriptReply, entries: &[u8]) -> Failure {
    let index = (reply.steps as usize).saturating_sub(1);
    let (Some(line), Some(position)) = (lines.get(index), positions(text).nth(index)) else {
        return Failure::new(
            Kind::Refused,
            format!("cannot trust the replay of {}", file.display()),
            format!("the driver counts {} steps, the script has {}", reply.steps, lines.len()),
            "use the ndkctl that was built with this driver",
        );
    };
    let at = format!("{}:{position}: {line}", file.display());
    if reply.differs == ScriptReply::BROKEN {
        return Failure::new(
            Kind::Usage,
            format!("the script is broken at {at}"),
            "a slot is taken, empty or of another kind, or a number is out of range",
            "correct the line; the lines before it passed",
        );
    }
    let next_step = "the lines before it passed; report it with the shortest script that still differs";
    Failure::new(Kind::Corrupt, format!("the replay differs at {at}"), seen(line, reply, entries), next_step)
}

/// What the line gave, in the script's own words.
fn seen(line: &Line, reply: &ScriptReply, entries: &[u8]) -> String {
    match code(line) {
        Some(ScriptCode::Poll) => {
            let seen = list::<ScriptResult>(entries, script::result_text);
            format!("it gave [{}]{}", seen.join(", "), missing(line, seen.len()))
        }
        Some(ScriptCode::Events) => {
            let (extra, absent) = compare_events(line, entries);
            format!("beyond the expected events: [{}]; expected and absent: [{}]", extra.join(", "), absent.join(", "))
        }
        Some(ScriptCode::Bytes) => format!("the bytes there have the digest {:#x}", reply.values[0]),
        Some(ScriptCode::Limits) => {
            let [inbound, outbound] = reply.values;
            format!("it gave {} with inbound={inbound} outbound={outbound}", script::status_text(reply.status))
        }
        _ => format!("it gave {}", script::status_text(reply.status)),
    }
}

fn list<T: FromBytes>(entries: &[u8], text: impl Fn(&T) -> String) -> Vec<String> {
    let chunks = entries.chunks_exact(size_of::<T>());
    chunks.filter_map(|entry| T::read_from_bytes(entry).ok()).map(|entry| text(&entry)).collect()
}

fn missing(line: &Line, seen: usize) -> String {
    let Tail::Results(expected) = &line.tail else { return String::new() };
    if expected.len() == seen { String::new() } else { format!(", {seen} results instead of {}", expected.len()) }
}

/// Events seen and not expected, and the other way round.
fn compare_events(line: &Line, entries: &[u8]) -> (Vec<String>, Vec<String>) {
    let mut extra = list::<ScriptOccurrence>(entries, script::occurrence_text);
    let mut absent = Vec::new();
    if let Tail::Occurrences(expected) = &line.tail {
        for text in expected.iter().map(script::occurrence_text) {
            match extra.iter().position(|seen| *seen == text) {
                Some(found) => drop(extra.remove(found)),
                None => absent.push(text),
            }
        }
    }
    (extra, absent)
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}: {} steps, {} of them checked, 0 differences",
            self.file.display(),
            self.steps,
            self.checks
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{difference, positions};
    use crate::failure::Kind;
    use crate::script::parse;
    use softndk_ioctl::{ScriptEvent, ScriptKind, ScriptName, ScriptOccurrence, ScriptReply};
    use std::path::Path;
    use zerocopy::IntoBytes;

    const TEXT: &str = "\
# one adapter
open A0 adapter=0 -> SUCCESS

pd P0 adapter=A0 -> SUCCESS # its domain
events -> [notify C0 SUCCESS, closed P0 SUCCESS]
";

    fn reply(steps: u32, differs: u32, status: i32) -> ScriptReply {
        ScriptReply { steps, differs, status, ..ScriptReply::default() }
    }

    #[test]
    fn a_difference_is_named_by_its_line_and_what_it_gave() {
        let lines = parse(TEXT).unwrap();
        assert_eq!(positions(TEXT).collect::<Vec<_>>(), [2, 4, 5]);
        let failure = difference(Path::new("x.ndk"), TEXT, &lines, &reply(2, 1, 0xC000_009A_u32 as i32), &[]);
        assert_eq!(failure.kind, Kind::Corrupt);
        assert!(failure.what.contains("x.ndk:4: pd P0 adapter=A0 -> SUCCESS"), "{failure}");
        assert!(failure.cause.contains("INSUFFICIENT_RESOURCES"), "{failure}");
    }

    #[test]
    fn events_are_shown_as_what_is_too_many_and_too_few() {
        let lines = parse(TEXT).unwrap();
        let seen = |event: ScriptEvent, kind| ScriptOccurrence {
            event: event as u32,
            object: ScriptName::new(kind, 0),
            ..ScriptOccurrence::default()
        };
        let entries = [seen(ScriptEvent::Gone, ScriptKind::Connector), seen(ScriptEvent::Closed, ScriptKind::Domain)];
        let failure = difference(Path::new("x"), TEXT, &lines, &reply(3, 1, 0), entries.as_bytes());
        assert!(failure.cause.contains("beyond the expected events: [gone K0 SUCCESS]"), "{failure}");
        assert!(failure.cause.contains("absent: [notify C0 SUCCESS]"), "{failure}");
    }

    #[test]
    fn a_broken_script_is_the_writers_fault_and_a_wrong_count_the_drivers() {
        let lines = parse(TEXT).unwrap();
        let broken = difference(Path::new("x"), TEXT, &lines, &reply(1, ScriptReply::BROKEN, 0), &[]);
        assert_eq!(broken.kind, Kind::Usage);
        assert_eq!(difference(Path::new("x"), TEXT, &lines, &reply(9, 1, 0), &[]).kind, Kind::Refused);
    }
}
