//! Sequences of operations, legal and random ones, on the engine: beside the model in both columns, and alone with partial service passes.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use oracle::engine::Engine;
use oracle::generate::Random;
use oracle::hostile::{engines, run};

#[path = "../../../conformance/fuzz/fuzz_targets/seeds.rs"]
mod seeds;

thread_local! {
    /// One engine a column for all inputs, as one adapter serves many consumers. What an input leaves behind is found at its end.
    static ENGINES: RefCell<[Engine; 2]> = RefCell::new(engines());
}

fuzz_target!(init: seeds::write(seeds()), |bytes: &[u8]| {
    ENGINES.with_borrow_mut(|engines| {
        if let Err(found) = run(bytes, engines) {
            panic!("{found}");
        }
    });
});

/// Long sequences of any decisions, in both columns and both ways.
fn seeds() -> impl Iterator<Item = Vec<u8>> {
    (0..16_u8).map(|number| {
        let mut random = Random::new(number.into());
        let decisions = (0..200 * (1 + usize::from(number) / 4)).map(|_| random.word() as u8);
        std::iter::once(number).chain(decisions).collect()
    })
}
