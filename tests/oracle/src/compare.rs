//! Compares a system with the model: every line is done on both, and their results are compared.
//!
//! What must agree: each status, each result of a poll in the order of its queue pair's queue (there is none between queue
//! pairs, nor between the two queues of one), each event whatever the order, each byte that is known.

use ndkctl::script::{Line, Tail, occurrence_text, result_text, status_text};
use softndk_ioctl::{SCRIPT_SLOTS, ScriptCode, ScriptKind, ScriptName, ScriptResult, ScriptStep};

use crate::model::{Column, Expected, Model, Resource, with_expectation};

/// What the model is compared with.
pub trait System {
    /// Does what the line says, and answers what it gave; `expected` is a hint for how long to wait.
    fn apply(&mut self, line: &Line, expected: &Expected) -> Expected;
}

/// The first line on which they differ.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Everything up to it, with the model's expectations.
    pub script: Vec<Line>,
    pub expected: String,
    pub seen: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.script {
            writeln!(formatter, "{line}")?;
        }
        writeln!(formatter, "# expected {}", self.expected)?;
        write!(formatter, "# seen     {}", self.seen)
    }
}

/// A line of the vocabulary.
pub fn line(code: ScriptCode, object: ScriptName, arguments: &[u64]) -> Line {
    let mut step = ScriptStep { code: code as u16, object, ..ScriptStep::default() };
    step.arguments[..arguments.len()].copy_from_slice(arguments);
    Line { step, tail: Tail::Nothing }
}

/// Runs lines on both, then looks at everything and closes everything. Answers how many operations were done.
pub fn run(lines: &[Line], column: Column, system: &mut impl System) -> Result<u64, Box<Difference>> {
    let mut side = Side { model: Model::new(column), script: Vec::new(), watches: false };
    for line in lines {
        side.step(line, system)?;
    }
    side.finish(system)?;
    Ok(side.script.len() as u64)
}

/// The script of a sequence, with all that follows it, and a look at the events after every line.
pub fn script_of(lines: &[Line], column: Column) -> Vec<Line> {
    let mut side = Side { model: Model::new(column), script: Vec::new(), watches: true };
    for line in lines {
        side.step(line, &mut AcceptAll).expect("it accepts everything");
    }
    side.finish(&mut AcceptAll).expect("it accepts everything");
    side.script
}

/// Gives what is expected.
struct AcceptAll;

impl System for AcceptAll {
    fn apply(&mut self, _: &Line, expected: &Expected) -> Expected {
        expected.clone()
    }
}

struct Side {
    model: Model,
    script: Vec<Line>,
    /// Looks at the events after every line.
    watches: bool,
}

impl Side {
    fn step(&mut self, line: &Line, system: &mut impl System) -> Result<(), Box<Difference>> {
        let expected = self.model.apply(line);
        if expected == Expected::Skip {
            return Ok(());
        }
        self.script.push(with_expectation(line, &expected));
        let seen = system.apply(line, &expected);
        if agree(&expected, &seen) {
            let looks = line.step.code >= ScriptCode::Poll as u16;
            return if self.watches && !looks { self.events(system) } else { Ok(()) };
        }
        Err(Box::new(Difference { script: self.script.clone(), expected: text(&expected), seen: text(&seen) }))
    }

    fn events(&mut self, system: &mut impl System) -> Result<(), Box<Difference>> {
        self.step(&line(ScriptCode::Events, ScriptName::NONE, &[]), system)
    }

    /// Takes what arrived and was not taken.
    fn take_arrivals(&mut self, system: &mut impl System) -> Result<(), Box<Difference>> {
        let listeners: Vec<ScriptName> = self.model.all(ScriptKind::Listener).map(|(name, _)| name).collect();
        for listener in listeners {
            while self.model.has_arrivals(listener) {
                let mut slots = (0..SCRIPT_SLOTS).map(|number| ScriptName::new(ScriptKind::Connector, number));
                let Some(slot) = slots.find(|name| !self.model.slots.contains_key(name)) else { break };
                self.step(&line(ScriptCode::Arrive, slot, &[u64::from(listener.0)]), system)?;
            }
        }
        Ok(())
    }

    /// Observes everything, closes everything in the order of its making, observes again.
    fn finish(&mut self, system: &mut impl System) -> Result<(), Box<Difference>> {
        let queues: Vec<ScriptName> = self.model.all(ScriptKind::CompletionQueue).map(|(name, _)| name).collect();
        for name in queues {
            self.step(&line(ScriptCode::Poll, name, &[]), system)?;
        }
        let queue_pairs: Vec<ScriptName> = self.model.all(ScriptKind::QueuePair).map(|(name, _)| name).collect();
        // Twice: while one holds a chain back, nothing is done to the others.
        for name in queue_pairs.repeat(2) {
            self.step(&line(ScriptCode::Flush, name, &[]), system)?;
        }
        self.take_arrivals(system)?;
        self.observe(system)?;
        let mut objects: Vec<(usize, ScriptName)> = self.model.slots.iter().map(|(name, id)| (*id, *name)).collect();
        // Windows first: how a region closes that has some is the provider's choice.
        objects.sort_unstable_by_key(|(id, name)| (!matches!(name.parts(), Some((ScriptKind::Window, _))), *id));
        let (adapters, others): (Vec<_>, Vec<_>) =
            objects.into_iter().partition(|(_, name)| matches!(name.parts(), Some((ScriptKind::Adapter, _))));
        let (buffers, others): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|(_, name)| matches!(name.parts(), Some((ScriptKind::Buffer, _))));
        let names: Vec<ScriptName> = others.into_iter().chain(buffers).map(|(_, name)| name).collect();
        // Twice: a queue pair that a message waits for may be closed only after its connector.
        for name in names.repeat(2) {
            self.step(&line(ScriptCode::Close, name, &[]), system)?;
        }
        self.events(system)?;
        for (_, name) in adapters {
            self.step(&line(ScriptCode::Close, name, &[]), system)?;
        }
        self.events(system)
    }

    fn observe(&mut self, system: &mut impl System) -> Result<(), Box<Difference>> {
        let queues: Vec<ScriptName> = self.model.all(ScriptKind::CompletionQueue).map(|(name, _)| name).collect();
        for name in queues {
            self.step(&line(ScriptCode::Poll, name, &[]), system)?;
        }
        self.step(&line(ScriptCode::Events, ScriptName::NONE, &[]), system)?;
        let mut stretches = Vec::new();
        for (name, id) in self.model.all(ScriptKind::Buffer) {
            let Resource::Buffer(buffer) = &self.model.nodes[id].resource else { continue };
            let mut at = 0;
            for run in buffer.bytes.chunk_by(|one, other| one.is_some() == other.is_some()) {
                if run[0].is_some() {
                    stretches.push((name, at, run.len() as u64));
                }
                at += run.len() as u64;
            }
        }
        for (name, offset, length) in stretches {
            self.step(&line(ScriptCode::Bytes, name, &[offset, length]), system)?;
        }
        Ok(())
    }
}

fn agree(expected: &Expected, seen: &Expected) -> bool {
    match (expected, seen) {
        (Expected::Results(expected), Expected::Results(seen)) => in_order(expected) == in_order(seen),
        (Expected::Occurrences(expected), Expected::Occurrences(seen)) => {
            let sorted = |list: &Vec<_>| {
                let mut list = list.clone();
                list.sort_unstable();
                list
            };
            sorted(expected) == sorted(seen)
        }
        _ => expected == seen,
    }
}

/// Results by queue pair and queue, in the order they came.
fn in_order(results: &[ScriptResult]) -> Vec<ScriptResult> {
    let mut results = results.to_vec();
    results.sort_by_key(|result| (result.queue_pair, result.operation & 1));
    results
}

fn text(expected: &Expected) -> String {
    let list = |texts: Vec<String>| format!("[{}]", texts.join(", "));
    match expected {
        Expected::Skip => "a broken line".to_owned(),
        Expected::Nothing => "nothing".to_owned(),
        Expected::Status(status) => status_text(status.0),
        Expected::Results(results) => list(results.iter().map(result_text).collect()),
        Expected::Occurrences(seen) => list(seen.iter().map(occurrence_text).collect()),
        Expected::Digest(digest) => format!("{digest:#x}"),
        Expected::Limits(inbound, outbound) => format!("inbound {inbound}, outbound {outbound}"),
    }
}
