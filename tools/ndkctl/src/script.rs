//! The text of replay scripts: one step a line, read and written.
//!
//! The text form of `softndk_ioctl`'s script vocabulary, driven by its table of verbs, so that a new verb needs
//! no code here. The steps are not interpreted.
//!
//! ```text
//! # comment
//! qp Q0 domain=P0 receive=C0 initiator=C1 receive-depth=4 initiator-depth=4 receive-elements=2 initiator-elements=2 inline=0 -> SUCCESS
//! write Q0 context=7 flags=fence|defer remote=M1+16 [M0+0:64 B0+8:8@M3 0x10+0:1@0xdead] -> SUCCESS
//! poll C1 -> [Q0 7 write SUCCESS 0]
//! events -> [notify C1 SUCCESS]
//! bytes B1 offset=0 length=64 digest=0x1f
//! ```
//! A scatter/gather element is place`:`length, and `@` whose token it carries, where that is not the place's own object.

use std::fmt::{self, Write as _};

use softndk_ioctl::{
    SCRIPT_TAIL_MAX, ScriptAnswer, ScriptCode, ScriptEvent, ScriptForm, ScriptKind, ScriptName, ScriptOccurrence,
    ScriptResult, ScriptSge, ScriptStep, Status, next_script_step,
};
use zerocopy::IntoBytes;

/// A step with what follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub step: ScriptStep,
    pub tail: Tail,
}

/// What follows a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tail {
    #[default]
    Nothing,
    Sges(Vec<ScriptSge>),
    Results(Vec<ScriptResult>),
    Occurrences(Vec<ScriptOccurrence>),
}

/// Why a text is no script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoScript {
    /// Counted from 1.
    pub line: usize,
    pub reason: String,
}

impl fmt::Display for NoScript {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for NoScript {}

const FLAGS: &[(&str, u64)] = &[
    ("silent", 0x1),
    ("fence", 0x2),
    ("solicit", 0x4),
    ("remote-read", 0x8),
    ("local-write", 0x10),
    ("remote-write", 0x20),
    ("inline", 0x40),
    ("read-sink", 0x80),
    ("local-invalidate", 0x100),
    ("defer", 0x200),
];
const RIGHTS: &[(&str, u64)] = &[("local-write", 1), ("remote-read", 2), ("remote-write", 4), ("read-sink", 8)];
const ARMS: &[&str] = &["errors", "any", "solicited"];
const OPERATIONS: &[(&str, u32)] = &[
    ("receive", 1),
    ("receive-invalidate", 0x8001),
    ("send", 2),
    ("fast-register", 4),
    ("bind", 8),
    ("invalidate", 16),
    ("read", 32),
    ("write", 64),
];

impl Line {
    /// The bytes the driver takes.
    pub fn bytes(&self, into: &mut Vec<u8>) {
        let step = ScriptStep { tail: self.tail.len() as u16, ..self.step };
        into.extend_from_slice(step.as_bytes());
        match &self.tail {
            Tail::Nothing => {}
            Tail::Sges(tail) => into.extend_from_slice(tail.as_bytes()),
            Tail::Results(tail) => into.extend_from_slice(tail.as_bytes()),
            Tail::Occurrences(tail) => into.extend_from_slice(tail.as_bytes()),
        }
    }
}

impl Tail {
    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Sges(tail) => tail.len(),
            Self::Results(tail) => tail.len(),
            Self::Occurrences(tail) => tail.len(),
        }
    }
}

/// The bytes of a whole script.
#[must_use]
pub fn encode(lines: &[Line]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in lines {
        line.bytes(&mut bytes);
    }
    bytes
}

/// The lines in the bytes of a script.
///
/// # Errors
/// As [`next_script_step`].
pub fn decode(mut bytes: &[u8]) -> Result<Vec<Line>, Status> {
    let mut lines = Vec::new();
    while let Some(item) = next_script_step(&mut bytes)? {
        let count = usize::from(item.step.tail);
        let tail = match item.code {
            ScriptCode::Poll => Tail::Results((0..count).map_while(|index| item.entry(index)).collect()),
            ScriptCode::Events => Tail::Occurrences((0..count).map_while(|index| item.entry(index)).collect()),
            _ if count == 0 => Tail::Nothing,
            _ => Tail::Sges((0..count).map_while(|index| item.entry(index)).collect()),
        };
        lines.push(Line { step: item.step, tail });
    }
    Ok(lines)
}

/// Reads the text of a script.
///
/// # Errors
/// The first line that is none.
pub fn parse(text: &str) -> Result<Vec<Line>, NoScript> {
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split_once('#').map_or(line, |(before, _)| before).trim();
        if !line.is_empty() {
            lines.push(parse_line(line).map_err(|reason| NoScript { line: index + 1, reason })?);
        }
    }
    Ok(lines)
}

fn parse_line(line: &str) -> Result<Line, String> {
    let (call, answer) = match line.split_once("->") {
        Some((call, answer)) => (call.trim(), Some(answer.trim())),
        None => (line, None),
    };
    let (words, list) = match call.split_once('[') {
        Some((words, list)) => {
            (words, Some(list.strip_suffix(']').ok_or("the list of scatter/gather elements has no end")?))
        }
        None => (call, None),
    };
    let mut words = words.split_whitespace();
    let word = words.next().unwrap_or_default();
    let code = ScriptCode::ALL.iter().find(|code| code.verb().word == word);
    let code = *code.ok_or_else(|| format!("unknown operation `{word}`"))?;
    let verb = code.verb();
    let mut step = ScriptStep { code: code as u16, ..ScriptStep::default() };
    if code != ScriptCode::Events {
        step.object = name(words.next().ok_or("the object is missing")?)?;
    }
    for word in words {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is no argument"))?;
        set_argument(&mut step, verb.arguments, key, value)?;
    }
    let mut tail = Tail::Nothing;
    match (verb.answer, answer) {
        (ScriptAnswer::Inline | ScriptAnswer::Final, Some(answer)) => step.status = status(answer)?,
        (ScriptAnswer::Inline | ScriptAnswer::Final, None) => return Err("the status is missing".to_owned()),
        (ScriptAnswer::Observed, Some(answer)) => tail = observed(code, answer)?,
        // Nothing to be seen is said by an empty list.
        (ScriptAnswer::Observed, None) if code != ScriptCode::Bytes => {
            return Err("a list in brackets must follow".to_owned());
        }
        (_, Some(_)) => return Err(format!("`{word}` has no status")),
        (_, None) => {}
    }
    if let Some(list) = list {
        if !verb.sges {
            return Err(format!("`{word}` takes no scatter/gather elements"));
        }
        let sges = list.split_whitespace().map(sge).collect::<Result<Vec<_>, _>>()?;
        if !sges.is_empty() {
            tail = Tail::Sges(sges);
        }
    }
    if tail.len() > usize::from(SCRIPT_TAIL_MAX) {
        return Err("the list is too long".to_owned());
    }
    step.tail = tail.len() as u16;
    Ok(Line { step, tail })
}

fn set_argument(step: &mut ScriptStep, arguments: &[(&str, ScriptForm)], key: &str, value: &str) -> Result<(), String> {
    let mut index = 0;
    for (known, form) in arguments {
        if *known == key {
            match form {
                ScriptForm::Number | ScriptForm::Digest => step.arguments[index] = number(value)?,
                ScriptForm::Object => step.arguments[index] = u64::from(name(value)?.0),
                ScriptForm::Flags => step.arguments[index] = bits(value, FLAGS)?,
                ScriptForm::Rights => step.arguments[index] = bits(value, RIGHTS)?,
                ScriptForm::Arm => step.arguments[index] = arm(value)?,
                ScriptForm::Remote => {
                    let (base, token, offset) = place(value)?;
                    let named = if token.is_none() { base } else { ScriptName::NONE };
                    step.arguments[index] = u64::from(named.0) | u64::from(token.unwrap_or_default()) << 32;
                    step.arguments[index + 1] = offset;
                }
            }
            return Ok(());
        }
        index += if *form == ScriptForm::Remote { 2 } else { 1 };
    }
    Err(format!("unknown argument `{key}`"))
}

/// `M0+5`, or `0x10@0xdead` (address and raw token).
fn place(text: &str) -> Result<(ScriptName, Option<u32>, u64), String> {
    if let Some((address, token)) = text.split_once('@') {
        return Ok((ScriptName::NONE, Some(number(token)? as u32), number(address)?));
    }
    let (base, offset) = text.split_once('+').unwrap_or((text, "0"));
    Ok((name(base)?, None, number(offset)?))
}

fn sge(text: &str) -> Result<ScriptSge, String> {
    let (text, token) = match text.split_once('@') {
        Some((text, token)) => (text, Some(token)),
        None => (text, None),
    };
    let (place, length) = text.split_once(':').ok_or_else(|| format!("`{text}` has no length"))?;
    let length = u32::try_from(number(length)?).map_err(|_| format!("`{length}` is too long"))?;
    let (base, offset) = place.split_once('+').unwrap_or((place, "0"));
    let base = if base.starts_with(|first: char| first.is_ascii_digit()) { ScriptName::NONE } else { name(base)? };
    let offset = if base == ScriptName::NONE { number(place)? } else { number(offset)? };
    let mut sge = ScriptSge { base, token: base, length, offset, ..ScriptSge::default() };
    if let Some(token) = token {
        if token.starts_with(|first: char| first.is_ascii_digit()) {
            sge.token = ScriptName::NONE;
            sge.raw_token = number(token)? as u32;
        } else {
            sge.token = name(token)?;
        }
    }
    Ok(sge)
}

fn observed(code: ScriptCode, answer: &str) -> Result<Tail, String> {
    let list =
        answer.strip_prefix('[').and_then(|list| list.strip_suffix(']')).ok_or("a list in brackets must follow")?;
    let entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    match code {
        ScriptCode::Poll => Ok(Tail::Results(entries.map(result).collect::<Result<_, _>>()?)),
        ScriptCode::Events => Ok(Tail::Occurrences(entries.map(occurrence).collect::<Result<_, _>>()?)),
        _ => Err("nothing can follow `->` here".to_owned()),
    }
}

fn result(entry: &str) -> Result<ScriptResult, String> {
    let words: Vec<&str> = entry.split_whitespace().collect();
    let [queue_pair, context, operation, state, bytes, invalidated @ ..] = words.as_slice() else {
        return Err(format!("`{entry}` is no result"));
    };
    let operation = OPERATIONS.iter().find(|(known, _)| known == operation);
    Ok(ScriptResult {
        context: number(context)?,
        queue_pair: name(queue_pair)?,
        operation: operation.ok_or_else(|| format!("unknown operation in `{entry}`"))?.1,
        status: status(state)?,
        bytes: number(bytes)? as u32,
        invalidated: invalidated.first().map_or(Ok(ScriptName::NONE), |word| name(word))?,
        reserved: 0,
    })
}

fn occurrence(entry: &str) -> Result<ScriptOccurrence, String> {
    let words: Vec<&str> = entry.split_whitespace().collect();
    let [event, object, state @ ..] = words.as_slice() else { return Err(format!("`{entry}` is no event")) };
    let known = ScriptEvent::ALL.iter().find(|(_, word)| word == event);
    let (event, _) = known.ok_or_else(|| format!("unknown event `{event}`"))?;
    Ok(ScriptOccurrence {
        event: *event as u32,
        object: name(object)?,
        status: state.first().map_or(Ok(0), |word| status(word))?,
        reserved: [0; 5],
    })
}

fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("`{text}` is no number"))
}

fn name(text: &str) -> Result<ScriptName, String> {
    if text == "none" {
        return Ok(ScriptName::NONE);
    }
    let mut letters = text.chars();
    let letter = letters.next().unwrap_or_default();
    let kind = ScriptKind::ALL.iter().find(|(_, known)| *known == letter).map(|(kind, _)| *kind);
    let named = kind.and_then(|kind| Some(ScriptName::new(kind, letters.as_str().parse().ok()?)));
    named.filter(|name| name.parts().is_some()).ok_or_else(|| format!("`{text}` is no object"))
}

fn bits(text: &str, names: &[(&str, u64)]) -> Result<u64, String> {
    text.split('|').try_fold(0, |all, word| match names.iter().find(|(known, _)| *known == word) {
        Some((_, bit)) => Ok(all | bit),
        None => Ok(all | number(word)?),
    })
}

fn arm(text: &str) -> Result<u64, String> {
    let known = ARMS.iter().position(|known| *known == text);
    known.map_or_else(|| number(text), |kind| Ok(kind as u64))
}

/// A status by its name without `STATUS_`, or as a number.
fn status(text: &str) -> Result<i32, String> {
    if text.starts_with("0x") {
        return Ok(number(text)? as u32 as i32);
    }
    Status::named(text).map(|status| status.0).ok_or_else(|| format!("unknown status `{text}`"))
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&text_of(self))
    }
}

fn text_of(line: &Line) -> String {
    let Some(code) = ScriptCode::from_number(line.step.code) else {
        return format!("# unknown operation {}", line.step.code);
    };
    let verb = code.verb();
    let mut text = verb.word.to_owned();
    if code != ScriptCode::Events {
        let _ = write!(text, " {}", name_text(line.step.object));
    }
    let mut index = 0;
    for (key, form) in verb.arguments {
        let value = line.step.arguments[index];
        let value = match form {
            ScriptForm::Number => value.to_string(),
            ScriptForm::Digest => format!("{value:#x}"),
            ScriptForm::Object => name_text(ScriptName(value as u32)),
            ScriptForm::Flags => bits_text(value, FLAGS),
            ScriptForm::Rights => bits_text(value, RIGHTS),
            ScriptForm::Arm => ARMS.get(value as usize).map_or_else(|| value.to_string(), |known| (*known).to_owned()),
            ScriptForm::Remote => {
                index += 1;
                let offset = line.step.arguments[index];
                match ScriptName(value as u32) {
                    ScriptName::NONE => format!("{offset:#x}@{:#x}", value >> 32),
                    base => format!("{}+{offset}", name_text(base)),
                }
            }
        };
        let _ = write!(text, " {key}={value}");
        index += 1;
    }
    if let Tail::Sges(sges) = &line.tail {
        let sges: Vec<String> = sges.iter().map(sge_text).collect();
        let _ = write!(text, " [{}]", sges.join(" "));
    }
    match (verb.answer, &line.tail) {
        (ScriptAnswer::Inline | ScriptAnswer::Final, _) => {
            let _ = write!(text, " -> {}", status_text(line.step.status));
        }
        (_, Tail::Results(results)) => {
            let results: Vec<String> = results.iter().map(result_text).collect();
            let _ = write!(text, " -> [{}]", results.join(", "));
        }
        (_, Tail::Occurrences(occurrences)) => {
            let occurrences: Vec<String> = occurrences.iter().map(occurrence_text).collect();
            let _ = write!(text, " -> [{}]", occurrences.join(", "));
        }
        _ => {}
    }
    text
}

/// A name as the text writes it.
#[must_use]
pub fn name_text(name: ScriptName) -> String {
    let letter = |kind| ScriptKind::ALL.iter().find(|(known, _)| *known == kind).map_or('?', |(_, letter)| *letter);
    name.parts().map_or_else(|| "none".to_owned(), |(kind, number)| format!("{}{number}", letter(kind)))
}

fn bits_text(value: u64, names: &[(&str, u64)]) -> String {
    let mut words: Vec<String> =
        names.iter().filter(|(_, bit)| value & bit != 0).map(|(name, _)| (*name).to_owned()).collect();
    let unknown = names.iter().fold(value, |left, (_, bit)| left & !bit);
    if unknown != 0 || words.is_empty() {
        words.push(format!("{unknown:#x}"));
    }
    words.join("|")
}

fn sge_text(sge: &ScriptSge) -> String {
    let place = match sge.base {
        ScriptName::NONE => format!("{:#x}", sge.offset),
        base => format!("{}+{}", name_text(base), sge.offset),
    };
    let token = match sge.token {
        ScriptName::NONE => format!("@{:#x}", sge.raw_token),
        token if token == sge.base => String::new(),
        token => format!("@{}", name_text(token)),
    };
    format!("{place}:{}{token}", sge.length)
}

/// A status as the text writes it.
#[must_use]
pub fn status_text(status: i32) -> String {
    Status(status).name().map_or_else(|| format!("{status:#010x}"), str::to_owned)
}

/// A result as the text writes it.
#[must_use]
pub fn result_text(result: &ScriptResult) -> String {
    let known = OPERATIONS.iter().find(|(_, operation)| *operation == result.operation);
    let operation = known.map_or_else(|| format!("{:#x}", result.operation), |(word, _)| (*word).to_owned());
    let state = status_text(result.status);
    let (pair, context, bytes) = (name_text(result.queue_pair), result.context, result.bytes);
    let invalidated = match result.invalidated {
        ScriptName::NONE => String::new(),
        name => format!(" {}", name_text(name)),
    };
    format!("{pair} {context} {operation} {state} {bytes}{invalidated}")
}

/// An event as the text writes it.
#[must_use]
pub fn occurrence_text(occurrence: &ScriptOccurrence) -> String {
    let known = ScriptEvent::ALL.iter().find(|(event, _)| *event as u32 == occurrence.event);
    let event = known.map_or_else(|| format!("{:#x}", occurrence.event), |(_, word)| (*word).to_owned());
    format!("{event} {} {}", name_text(occurrence.object), status_text(occurrence.status))
}

#[cfg(test)]
mod tests {
    use super::{decode, encode, parse};

    const TEXT: &str = "\
open A0 adapter=0 -> SUCCESS
qp Q0 domain=P0 receive=C0 initiator=C1 receive-depth=4 initiator-depth=4 receive-elements=2 initiator-elements=2 inline=0 -> INVALID_PARAMETER
register M0 buffer=B0 offset=16 length=64 rights=local-write|remote-read -> SUCCESS
write Q0 context=7 flags=fence|defer remote=M1+16 [M0+0:64 B0+8:8@M3 0x10:1@0xdead] -> SUCCESS
read Q0 context=8 flags=0x0 remote=0x10@0xbeef -> CONNECTION_INVALID
send-invalidate Q0 context=9 flags=0x400 token=T3+0 -> INVALID_PARAMETER
arm C1 type=solicited
connect K0 qp=Q0 to=L0 host=none port=0 source=0 inbound=4 outbound=4 data=8
close P0
poll C1 -> [Q0 7 write SUCCESS 0, Q0 8 receive-invalidate 0xc0000999 12 W0]
poll C1 -> []
events -> [notify C1 SUCCESS, gone K0 SUCCESS]
bytes B1 offset=0 length=64 digest=0x1f
";

    #[test]
    fn text_and_bytes_come_back_as_they_went() {
        let lines = parse(TEXT).unwrap();
        let text = lines.iter().fold(String::new(), |text, line| text + &line.to_string() + "\n");
        assert_eq!(text, TEXT);
        assert_eq!(decode(&encode(&lines)).unwrap(), lines);
        assert_eq!(parse(&format!("# about\n\n  {TEXT}")).unwrap(), lines);
    }

    #[test]
    fn what_is_no_script_is_named_by_its_line() {
        for broken in [
            "jump Q0",
            "send",
            "send X0 -> SUCCESS",
            "send Q64 -> SUCCESS",
            "send Q0",
            "send Q0 colour=1 -> SUCCESS",
            "send Q0 [M0 -> SUCCESS",
            "send Q0 [M0+1] -> SUCCESS",
            "flush Q0 [M0+1:2]",
            "flush Q0 -> SUCCESS",
            "send Q0 -> HAPPY",
            "poll C0",
            "events",
            "poll C0 -> x",
            "poll C0 -> [Q0 1]",
            "events -> [notify]",
            "send Q0 context=z -> SUCCESS",
        ] {
            assert_eq!(parse(&format!("events -> []\n{broken}")).unwrap_err().line, 2, "{broken}");
        }
    }
}
