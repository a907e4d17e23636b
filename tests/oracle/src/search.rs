//! Runs sequences until a difference is found or the number is reached.

use ndkctl::script::Line;

use crate::compare::{Difference, System, run};
use crate::engine::Engine;
use crate::generate::{Features, sequence};
use crate::model::{Column, Expected};
use crate::shrink::shortest;

/// What is looked for, and where.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    pub operations: u64,
    pub seed: u64,
    pub column: Column,
    /// Lines of one sequence.
    pub length: usize,
    pub features: Features,
}

/// How it went.
pub struct Found {
    pub operations: u64,
    /// The seed of the sequence that differed.
    pub episode: u64,
    pub difference: Option<Box<Difference>>,
}

impl System for Engine {
    fn apply(&mut self, line: &Line, _: &Expected) -> Expected {
        Engine::apply(self, line)
    }
}

/// One sequence on an engine, and whether anything stays behind.
fn differs(lines: &[Line], column: Column, engine: &mut Engine) -> Result<u64, Box<Difference>> {
    let done = run(lines, column, engine)?;
    match engine.leftovers() {
        None => Ok(done),
        Some(seen) => Err(Box::new(Difference { script: lines.to_vec(), expected: "nothing left".to_owned(), seen })),
    }
}

/// Searches; a difference comes back cut down.
pub fn find(search: &Search, progress: &mut dyn FnMut(u64)) -> Found {
    let mut engine = Engine::new(search.column);
    let mut operations = 0;
    let mut episode = search.seed.wrapping_mul(0x0001_0000_0000);
    while operations < search.operations {
        let lines = sequence(episode, search.column, search.length, search.features);
        match differs(&lines, search.column, &mut engine) {
            Ok(done) => operations += done,
            Err(first) => {
                let before = first.script.len() as u64;
                std::mem::forget(engine);
                let again = |lines: &[Line]| {
                    let mut engine = Engine::new(search.column);
                    let outcome = differs(lines, search.column, &mut engine).err();
                    std::mem::forget(engine);
                    outcome
                };
                let short = shortest(lines, |lines| again(lines).is_some());
                let difference = again(&short).unwrap_or(first);
                return Found { operations: operations + before, episode, difference: Some(difference) };
            }
        }
        progress(operations);
        episode += 1;
    }
    Found { operations, episode, difference: None }
}
