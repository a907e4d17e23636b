//! Rules that the headers alone decide: what the loader of Windows looks at before it runs an instruction.

use super::{Rule, Violation, image::Image};

const SUBSYSTEM_NATIVE: u16 = 1;

/// Flags every kernel image of ours carries, and what each is called.
const REQUIRED_CHARACTERISTICS: &[(u16, &str)] =
    &[(0x0040, "DYNAMIC_BASE"), (0x0080, "FORCE_INTEGRITY"), (0x0100, "NX_COMPAT")];

pub fn check(image: &Image) -> Vec<Violation> {
    let mut violations = Vec::new();
    if image.subsystem != SUBSYSTEM_NATIVE {
        violations.push(Rule::Subsystem.broken(format!("subsystem {}, expected NATIVE (1)", image.subsystem)));
    }
    let entry = image.exports.iter().find(|(name, _)| name == "DriverEntry").map(|(_, address)| *address);
    if entry != Some(image.entry) {
        violations.push(Rule::Entry.broken(format!("the entry point {:#x} is not DriverEntry", image.entry)));
    }
    for (flag, name) in REQUIRED_CHARACTERISTICS {
        if image.characteristics & flag == 0 {
            violations.push(Rule::Characteristics.broken(format!("the header lacks {name}")));
        }
    }
    for section in &image.sections {
        if section.writable && section.executable {
            violations.push(Rule::WritableCode.broken(format!("section {} is writable and executable", section.name)));
        }
    }
    let right = checksum(&image.bytes, image.checksum_offset);
    if image.checksum == 0 || image.checksum != right {
        violations.push(Rule::Checksum.broken(format!("the checksum is {:#x}, expected {right:#x}", image.checksum)));
    }
    violations
}

/// The checksum of a PE file: its 16-bit words added with end-around carry, its own field left out, plus its length.
pub fn checksum(bytes: &[u8], field: usize) -> u32 {
    let mut sum: u32 = 0;
    for (index, pair) in bytes.chunks(2).enumerate() {
        let offset = index * 2;
        if offset == field || offset == field + 2 {
            continue;
        }
        let word = pair.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        sum += word;
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum + bytes.len() as u32
}
