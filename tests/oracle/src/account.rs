//! Checks the order and number of results when the engine runs only part of its service passes between the lines.
//!
//! The sequences are those that the model accepts; the engine is behind by a random number of passes, so that calls
//! meet requests, connections and closes under way. Statuses and bytes are not compared, because they depend on how far
//! the work was. What must hold for every distribution of passes: a request that was accepted gives one result, or none if it is silent and
//! good; the results of one queue of a queue pair come in the order of posting; each call that pends is called back once; there
//! are not more notifications than arms; each close completes; at the end nothing is left.

use std::collections::BTreeMap;

use ndkctl::script::Line;
use softndk_ioctl::{ScriptCode as Do, ScriptEvent, ScriptKind, ScriptName, ScriptOccurrence, ScriptResult, Status};

use crate::compare::{Difference, line};
use crate::engine::Engine;
use crate::generate::{Features, Random, sequence};
use crate::model::{Column, Expected, Model, with_expectation};
use crate::search::{Found, Search};
use crate::shrink::shortest;

/// An order in which everything may be closed: parents before children, buffers and adapters last.
pub(crate) const CLOSING_ORDER: [ScriptKind; 12] = [
    ScriptKind::Window,
    ScriptKind::Listener,
    ScriptKind::Domain,
    ScriptKind::CompletionQueue,
    ScriptKind::SharedReceiveQueue,
    ScriptKind::QueuePair,
    ScriptKind::Region,
    ScriptKind::Token,
    ScriptKind::Connector,
    ScriptKind::Endpoint,
    ScriptKind::Buffer,
    ScriptKind::Adapter,
];

/// A request that was accepted.
#[derive(Clone, Copy, Debug)]
struct Posted {
    /// Which queue pair of all that were ever made, if it is not a shared receive, and which of its queues.
    of: Option<(u64, bool)>,
    silent: bool,
    /// Where its result comes; none when the consumer has closed the queue.
    queue: ScriptName,
    answered: bool,
}

/// A queue pair's number among all that were ever made, and its completion queues: of receives, of requests.
#[derive(Clone, Copy, Debug)]
struct Pair(u64, [ScriptName; 2]);

/// Results and callbacks that are still due.
#[derive(Default)]
struct Account {
    made: u64,
    pairs: BTreeMap<ScriptName, Pair>,
    /// By context; contexts rise.
    posted: BTreeMap<u64, Posted>,
    last: BTreeMap<(u64, bool), u64>,
    callbacks: BTreeMap<(u32, ScriptName), i64>,
}

impl Account {
    /// Records what a line has done.
    fn record(&mut self, line: &Line, seen: &Expected) -> Result<(), String> {
        let Some(code) = Do::from_number(line.step.code) else { return Ok(()) };
        let (name, arguments) = (line.step.object, &line.step.arguments);
        let good = *seen == Expected::Status(Status::SUCCESS);
        match (code, seen) {
            (_, Expected::Skip) => {}
            (Do::CreateQueuePair | Do::CreateQueuePairShared, _) if good => {
                self.made += 1;
                let queues = [arguments[1], arguments[2]].map(|queue| ScriptName(queue as u32));
                self.pairs.insert(name, Pair(self.made, queues));
            }
            (
                Do::Send | Do::SendAndInvalidate | Do::Read | Do::Write | Do::FastRegister | Do::Bind | Do::Invalidate,
                _,
            ) if good => {
                self.accept(name, arguments[0], false, arguments[1] & 1 != 0);
            }
            (Do::Receive, _) if good => self.accept(name, arguments[0], true, false),
            (Do::SharedReceive, _) if good => {
                let posted = Posted { of: None, silent: true, queue: ScriptName::NONE, answered: false };
                self.posted.insert(arguments[0], posted);
            }
            (Do::Arm, _) => self.owe(ScriptEvent::Notify, name),
            (Do::Modify, _) if good => self.owe(ScriptEvent::Notify, name),
            (Do::Connect | Do::ConnectShared, _) => self.owe(ScriptEvent::Connect, name),
            (Do::Accept, _) => self.owe(ScriptEvent::Accept, name),
            (Do::Complete, _) => self.owe(ScriptEvent::Complete, name),
            (Do::Disconnect, _) => self.owe(ScriptEvent::Disconnect, name),
            (Do::Close, _) => {
                self.owe(ScriptEvent::Closed, name);
                self.forget_queue(name);
            }
            (_, Expected::Results(results)) => return results.iter().try_for_each(|result| self.result(result)),
            (_, Expected::Occurrences(seen)) => return seen.iter().try_for_each(|seen| self.called_back(seen)),
            _ => {}
        }
        Ok(())
    }

    fn accept(&mut self, pair: ScriptName, context: u64, receive: bool, silent: bool) {
        let Some(Pair(number, queues)) = self.pairs.get(&pair) else { return };
        let queue = queues[usize::from(!receive)];
        self.posted.insert(context, Posted { of: Some((*number, receive)), silent, queue, answered: false });
    }

    fn owe(&mut self, event: ScriptEvent, name: ScriptName) {
        *self.callbacks.entry((event as u32, name)).or_default() += 1;
    }

    /// A completion queue that is closed shows no more results.
    fn forget_queue(&mut self, name: ScriptName) {
        let posted = self.posted.values_mut().map(|posted| &mut posted.queue);
        let queues = self.pairs.values_mut().flat_map(|pair| pair.1.iter_mut());
        posted.chain(queues).filter(|queue| **queue == name).for_each(|queue| *queue = ScriptName::NONE);
    }

    fn result(&mut self, result: &ScriptResult) -> Result<(), String> {
        let context = result.context;
        let Some(posted) = self.posted.get_mut(&context) else {
            return Err(format!("a result of {context}, which was not accepted"));
        };
        if std::mem::replace(&mut posted.answered, true) {
            return Err(format!("two results of {context}"));
        }
        let Some(of) = posted.of else { return Ok(()) };
        if posted.silent && result.status == Status::SUCCESS.0 {
            return Err(format!("a result of {context}, which is silent and good"));
        }
        match self.last.insert(of, context) {
            Some(before) if before > context => Err(format!("{context} came after {before}")),
            _ => Ok(()),
        }
    }

    fn called_back(&mut self, seen: &ScriptOccurrence) -> Result<(), String> {
        let counted = [
            ScriptEvent::Notify,
            ScriptEvent::Connect,
            ScriptEvent::Accept,
            ScriptEvent::Complete,
            ScriptEvent::Disconnect,
            ScriptEvent::Closed,
        ];
        if !counted.iter().any(|event| *event as u32 == seen.event) {
            return Ok(());
        }
        let owed = self.callbacks.entry((seen.event, seen.object)).or_default();
        *owed -= 1;
        if *owed < 0 { Err(format!("a callback without a pending call: {seen:?}")) } else { Ok(()) }
    }

    /// Everything that was asked for has come.
    fn finish(&self) -> Result<(), String> {
        let open = |posted: &Posted| !posted.answered && !posted.silent && posted.queue != ScriptName::NONE;
        if let Some((context, _)) = self.posted.iter().find(|(_, posted)| open(posted)) {
            return Err(format!("no result of {context}"));
        }
        Ok(())
    }

    fn called_back_all(&self) -> Result<(), String> {
        let missing = |(event, count): (u32, i64)| count != 0 && event != ScriptEvent::Notify as u32;
        match self.callbacks.iter().find(|((event, _), count)| missing((*event, **count))) {
            Some(((event, name), count)) => Err(format!("{count} callbacks {event} of {name:?} did not come")),
            None => Ok(()),
        }
    }
}

/// An engine that is behind, and its account.
struct Behind {
    engine: Engine,
    random: Random,
    account: Account,
    script: Vec<Line>,
}

impl Behind {
    fn new(column: Column, seed: u64) -> Self {
        let (engine, random) = (Engine::new(column), Random::new(seed));
        Self { engine, random, account: Account::default(), script: Vec::new() }
    }

    /// One line, with few service passes or many after it, and what was called back until then.
    fn step(&mut self, line: &Line) -> Result<(), String> {
        let passes = self.random.below(12);
        self.engine.lazy = (passes < 11).then_some((passes / 2) as u32);
        let seen = self.engine.apply(line);
        self.script.push(with_expectation(line, &seen));
        self.account.record(line, &seen)?;
        self.look()
    }

    fn rest(&mut self) -> Result<(), String> {
        self.engine.rest();
        self.look()
    }

    /// Records what was called back.
    fn look(&mut self) -> Result<(), String> {
        let Expected::Occurrences(events) = self.engine.take_occurrences() else { return Ok(()) };
        events.iter().try_for_each(|event| self.account.called_back(event))
    }

    fn run(&mut self, lines: &[Line], column: Column) -> Result<(), String> {
        let mut model = Model::new(column);
        for line in lines {
            // A late arrival may use an entry that is free in the model.
            let code = Do::from_number(line.step.code);
            let taken = code.is_some_and(|code| code.verb().makes) && self.engine.has(line.step.object);
            if model.apply(line) != Expected::Skip && !taken {
                self.step(line)?;
            }
        }
        self.finish()
    }

    /// Cancels everything, takes what came of it, closes everything.
    fn finish(&mut self) -> Result<(), String> {
        for name in self.engine.names(ScriptKind::QueuePair) {
            self.step(&line(Do::Flush, name, &[]))?;
        }
        self.rest()?;
        for name in self.engine.names(ScriptKind::CompletionQueue) {
            self.step(&line(Do::Poll, name, &[]))?;
        }
        self.account.finish()?;
        for kind in CLOSING_ORDER {
            if kind == ScriptKind::Adapter {
                self.rest()?;
            }
            for name in self.engine.names(kind) {
                self.step(&line(Do::Close, name, &[]))?;
            }
        }
        self.rest()?;
        self.account.called_back_all()?;
        self.engine.leftovers().map_or(Ok(()), Err)
    }
}

fn differs(lines: &[Line], column: Column, seed: u64) -> Result<u64, Box<Difference>> {
    let mut behind = Behind::new(column, seed);
    let outcome = behind.run(lines, column);
    let script = std::mem::take(&mut behind.script);
    match outcome {
        Ok(()) => Ok(script.len() as u64),
        Err(found) => {
            // What is left of it may be what is wrong with it.
            std::mem::forget(behind);
            Err(Box::new(Difference {
                script,
                expected: "each result and callback once, in order".to_owned(),
                seen: found,
            }))
        }
    }
}

/// Searches with partial service passes; a difference comes back cut down. Queues that may overrun lose results: they are left out.
pub fn find(search: &Search) -> Found {
    let features = Features { overflow: false, resize: false, ..search.features };
    let (mut operations, mut episode) = (0, search.seed.wrapping_mul(0x0001_0000_0000));
    while operations < search.operations {
        let lines = sequence(episode, search.column, search.length, features);
        match differs(&lines, search.column, episode) {
            Ok(done) => operations += done,
            Err(first) => {
                let again = |lines: &[Line]| differs(lines, search.column, episode).err();
                let short = shortest(lines, |lines| again(lines).is_some());
                return Found { operations, episode, difference: Some(again(&short).unwrap_or(first)) };
            }
        }
        episode += 1;
    }
    Found { operations, episode, difference: None }
}
