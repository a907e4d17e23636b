//! Sequences are the same from the same seed, are unchanged by the text form, and are shrunk to the lines that differ.

use ndkctl::script::{Line, decode, encode, parse};
use oracle::compare::run;
use oracle::engine::Engine;
use oracle::generate::{Features, sequence};
use oracle::model::{Column, Expected, Model, with_expectation};
use oracle::shrink::shortest;
use softndk_ioctl::ScriptCode;

#[test]
fn a_seed_always_makes_the_same_sequence() {
    let make = |seed| sequence(seed, Column::Ndk, 200, Features::ALL);
    assert_eq!(make(7), make(7));
    assert_ne!(make(7), make(8));
}

#[test]
fn a_sequence_survives_text_and_bytes_and_still_holds() {
    for seed in 0..20 {
        let mut model = Model::new(Column::Ndk);
        let mut lines = sequence(seed, Column::Ndk, 200, Features::ALL);
        for line in &mut lines {
            let expected = model.apply(line);
            *line = with_expectation(line, &expected);
        }
        let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let read = parse(&text.join("\n")).unwrap();
        let again = decode(&encode(&read)).unwrap();
        assert_eq!(read, again);
        let rewritten: Vec<String> = again.iter().map(ToString::to_string).collect();
        assert_eq!(rewritten, text);
        run(&again, Column::Ndk, &mut Engine::new(Column::Ndk)).unwrap();
    }
}

/// The rest of a sequence is a sequence after any line is removed: lines without an object are skipped.
#[test]
fn every_part_of_a_sequence_is_a_sequence() {
    let lines = sequence(3, Column::Ndk, 120, Features::ALL);
    for from in 0..lines.len() {
        run(&lines[from..], Column::Ndk, &mut Engine::new(Column::Ndk)).unwrap();
    }
}

#[test]
fn a_difference_is_cut_down_to_what_makes_it() {
    let lines = sequence(11, Column::Ndk, 200, Features::ALL);
    let flushes = |lines: &[_]| {
        let mut model = Model::new(Column::Ndk);
        let meant = |line: &Line| line.step.code == ScriptCode::Flush as u16;
        lines.iter().any(|line| model.apply(line) != Expected::Skip && meant(line))
    };
    assert!(flushes(&lines), "the seed has one");
    let short = shortest(lines, flushes);
    let words: Vec<_> = short.iter().filter_map(|line| ScriptCode::from_number(line.step.code)).collect();
    let words: Vec<_> = words.iter().map(|code| code.verb().word).collect();
    assert!(["open", "pd", "cq", "qp", "flush"].iter().all(|word| words.contains(word)));
    assert!(short.len() <= 6, "{words:?}");
}
