//! The text of replay scripts: whatever is read is written, and read again as the same; in bytes it is the same too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ndkctl::script::{Line, decode, encode, parse};

#[path = "../../../../tests/conformance/fuzz/fuzz_targets/seeds.rs"]
mod seeds;

/// A script from the tests.
const TRANSFERS: &str = include_str!("../../../ndkctl/tests/scripts/transfers.ndk");

fuzz_target!(init: seeds::write(TRANSFERS.split("\n\n").map(|part| part.as_bytes().to_vec())), |text: &str| {
    let Ok(lines) = parse(text) else { return };
    let written = text_of(&lines);
    let again = parse(&written).unwrap_or_else(|error| panic!("{error}\n{written}"));
    assert_eq!(again, lines, "read again from\n{written}");
    let bytes = encode(&lines);
    // The text may name objects that an operation is not for; the bytes are refused then.
    if let Ok(decoded) = decode(&bytes) {
        assert_eq!(decoded, lines);
        assert_eq!(encode(&decoded), bytes);
    }
});

fn text_of(lines: &[Line]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}
