//! Rules about headers: the fields that the loader of Windows checks before it runs an instruction.

use super::{
    ImageRule, Violation,
    image::{Image, Machine},
};

const SUBSYSTEM_NATIVE: u16 = 1;

/// Flags every kernel image of ours carries, and what each is called.
const REQUIRED_CHARACTERISTICS: &[(u16, &str)] =
    &[(0x0040, "DYNAMIC_BASE"), (0x0080, "FORCE_INTEGRITY"), (0x0100, "NX_COMPAT"), (0x4000, "GUARD_CF")];

/// Flags of the load configuration: calls are checked, and there is a list of the functions they may go to.
const REQUIRED_GUARD_FLAGS: &[(u32, &str)] = &[(0x100, "CF_INSTRUMENTED"), (0x400, "CF_FUNCTION_TABLE_PRESENT")];

pub fn check(image: &Image) -> Vec<Violation> {
    let mut violations = Vec::new();
    if image.subsystem != SUBSYSTEM_NATIVE {
        violations.push(ImageRule::Subsystem.broken(format!("subsystem {}, expected NATIVE (1)", image.subsystem)));
    }
    let entry = image.exports.iter().find(|(name, _)| name == "DriverEntry").map(|(_, address)| *address);
    if entry != Some(image.entry) {
        violations.push(ImageRule::Entry.broken(format!("the entry point {:#x} is not DriverEntry", image.entry)));
    }
    for (flag, name) in REQUIRED_CHARACTERISTICS {
        if image.characteristics & flag == 0 {
            violations.push(ImageRule::Characteristics.broken(format!("the header lacks {name}")));
        }
    }
    for section in &image.sections {
        if section.writable && section.executable {
            violations
                .push(ImageRule::WritableCode.broken(format!("section {} is writable and executable", section.name)));
        }
    }
    violations.extend(check_guard(image));
    let right = checksum(&image.bytes, image.checksum_offset);
    if image.checksum == 0 || image.checksum != right {
        violations
            .push(ImageRule::Checksum.broken(format!("the checksum is {:#x}, expected {right:#x}", image.checksum)));
    }
    violations
}

/// The loader of Windows finds through the load configuration what control flow guard needs.
fn check_guard(image: &Image) -> Vec<Violation> {
    let broken = |what: &str| ImageRule::Guard.broken(what.to_owned());
    let Some(guard) = &image.guard else {
        return vec![broken("there is no load configuration that reaches to the flags of control flow guard")];
    };
    let mut violations = Vec::new();
    for (flag, name) in REQUIRED_GUARD_FLAGS {
        if guard.flags & flag == 0 {
            violations.push(broken(&format!("the load configuration lacks {name}")));
        }
    }
    if guard.targets.is_empty() {
        violations.push(broken("the list of call targets is empty"));
    }
    if let Some(stray) = guard.targets.iter().find(|target| !image.is_code(**target)) {
        violations.push(broken(&format!("call target {stray:#x} is no code")));
    }
    for (slot, name) in [(guard.check_slot, "check"), (guard.dispatch_slot, "dispatch")] {
        // Code that can write the slot decides where every call goes.
        let constant = image.sections.iter().any(|section| section.holds(slot) && !section.writable);
        if !constant && (name == "check" || image.machine == Machine::X64) {
            violations
                .push(broken(&format!("the {name} function's slot {slot:#x} is not in a section that stays as it is")));
        }
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
