//! The security descriptor of a device, as far as it has allow and deny entries for well-known groups and a mandatory label, from
//! its text form (SDDL) or from memory, and the access check that opening the device does with it.
//!
//! It is not the security reference monitor: no owner, no inheritance, no auditing, no conditional entries. A string it cannot read
//! is a string that `NdisRegisterDeviceEx` refuses.

use std::cell::Cell;

use super::token::{Caller, Integrity, PRIVILEGES};
use crate::bugcheck::{BugCheck, bugcheck};

/// Rights of a file or device (wdm: ACCESS_MASK).
pub const FILE_READ_DATA: u32 = 0x1;
pub const FILE_WRITE_DATA: u32 = 0x2;
/// What `CreateFile` adds to whatever a program asks for.
pub const ALWAYS_ASKED_FOR: u32 = SYNCHRONIZE | FILE_READ_ATTRIBUTES;
const FILE_READ_ATTRIBUTES: u32 = 0x80;
const SYNCHRONIZE: u32 = 0x0010_0000;
pub const GENERIC_ALL: u32 = 0x1000_0000;
pub const GENERIC_EXECUTE: u32 = 0x2000_0000;
pub const GENERIC_WRITE: u32 = 0x4000_0000;
pub const GENERIC_READ: u32 = 0x8000_0000;
const FILE_GENERIC_READ: u32 = 0x0012_0089;
const FILE_GENERIC_WRITE: u32 = 0x0012_0116;
const FILE_GENERIC_EXECUTE: u32 = 0x0012_00A0;
const FILE_ALL_ACCESS: u32 = 0x001F_01FF;

thread_local! {
    static OPENER: Cell<Option<Caller>> = const { Cell::new(None) };
}

/// The current thread dispatches a create request of an opener while this exists.
pub struct OpenerScope(Option<Caller>);

impl OpenerScope {
    #[must_use]
    pub fn enter(caller: Caller) -> Self {
        Self(OPENER.replace(Some(caller)))
    }
}

impl Drop for OpenerScope {
    fn drop(&mut self) {
        OPENER.set(self.0);
    }
}

/// Whether the opener that the current thread serves has a privilege enabled.
pub fn opener_has_enabled(privilege: u64) -> bool {
    let Some(caller) = OPENER.get() else {
        wrong(
            privilege,
            "outside of a create request this is no thread of the user's, and a privilege says nothing about one",
        );
    };
    if !PRIVILEGES.contains(&privilege) {
        wrong(privilege, &format!("this host knows no privilege {privilege}"));
    }
    caller.token().is_none_or(|token| token.has_enabled(privilege))
}

fn wrong(privilege: u64, rule: &str) -> ! {
    bugcheck(
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        [privilege, 0, 0, 0],
        format!("SeSinglePrivilegeCheck: {rule}"),
    )
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct AccessEntry {
    allow: bool,
    rights: u32,
    sid: String,
}

/// The mandatory label of an object: whoever is trusted less may not do so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Label {
    integrity: Integrity,
    write: bool,
    read: bool,
    execute: bool,
}

/// An object without a label: not to be written from below medium integrity.
const NO_LABEL: Label = Label { integrity: Integrity::Medium, write: false, read: true, execute: true };

/// The entries of a discretionary list, in order, and the label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityDescriptor {
    entries: Vec<AccessEntry>,
    label: Label,
}

impl SecurityDescriptor {
    /// Reads `D:P(A;;GA;;;SY)(A;;GA;;;BA)` and its like, with a label `S:(ML;;NW;;;HI)` behind or without one; `None` when the
    /// text is not of that form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix("D:")?;
        let (discretionary, system) = text.split_once("S:").map_or((text, None), |(list, label)| (list, Some(label)));
        let entries = entries_of(discretionary)?.into_iter().map(parse_entry).collect::<Option<Vec<_>>>()?;
        let label = match system.map(entries_of) {
            None => NO_LABEL,
            Some(labels) => match labels?.as_slice() {
                [label] => parse_label(label)?,
                _ => return None,
            },
        };
        Some(Self { entries, label })
    }

    /// Reads a descriptor in memory: self-relative, with a discretionary list. What else it has is not modelled. `None` when it is
    /// none.
    #[must_use]
    pub fn from_self_relative(bytes: &[u8]) -> Option<Self> {
        const SELF_RELATIVE: u16 = 0x8000;
        const DACL_PRESENT: u16 = 0x4;
        let control = word(bytes, 2)?;
        let is_one = *bytes.first()? == 1 && control & (SELF_RELATIVE | DACL_PRESENT) == SELF_RELATIVE | DACL_PRESENT;
        let owner_group_and_system = [4, 8, 12].map(|at| long(bytes, at));
        if !is_one || owner_group_and_system != [Some(0); 3] {
            return None;
        }
        let list = bytes.get(long(bytes, 16).filter(|at| at % 4 == 0)? as usize..)?;
        let (size, count) = (usize::from(word(list, 2)?), word(list, 4)?);
        let mut rest = list.get(8..size).filter(|_| list[0] == 2)?;
        let mut entries = Vec::new();
        for _ in 0..count {
            let length = usize::from(word(rest, 2)?);
            let (entry, behind) = rest.split_at_checked(length)?;
            entries.push(AccessEntry {
                allow: match entry.first()? {
                    0 => true,
                    1 => false,
                    _ => return None,
                },
                rights: map_generic(long(entry, 4)?),
                sid: sid_at(entry.get(8..)?)?,
            });
            rest = behind;
        }
        Some(Self { entries, label: NO_LABEL })
    }

    /// Whether the caller gets every right it asks for. First the label, then the entries in order, of which the first one that
    /// is about a right counts. A group that is for denials only is passed by where an entry allows.
    #[must_use]
    pub fn grants(&self, caller: Caller, desired: u32) -> bool {
        let Some(token) = caller.token() else { return true };
        let mut wanted = map_generic(desired);
        if token.integrity < self.label.integrity && wanted & !self.label.rights() != 0 {
            return false;
        }
        for entry in &self.entries {
            if entry.allow && token.is_member(&entry.sid) {
                wanted &= !entry.rights;
            } else if !entry.allow && token.is_denied_as(&entry.sid) && wanted & entry.rights != 0 {
                return false;
            }
        }
        wanted == 0
    }
}

impl Label {
    /// What is left for those who are trusted less.
    fn rights(self) -> u32 {
        let all =
            [(self.read, FILE_GENERIC_READ), (self.write, FILE_GENERIC_WRITE), (self.execute, FILE_GENERIC_EXECUTE)];
        all.iter().filter(|(open, _)| *open).fold(0, |rights, (_, more)| rights | more)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The name in SDDL of a SID in memory, or its own form when it has none here.
fn sid_at(bytes: &[u8]) -> Option<String> {
    let (revision, count) = (*bytes.first()?, usize::from(*bytes.get(1)?));
    let authority = bytes.get(2..8)?.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let parts = (0..count).map(|index| long(bytes, 8 + 4 * index)).collect::<Option<Vec<_>>>()?;
    if revision != 1 {
        return None;
    }
    let known = match (authority, parts.as_slice()) {
        (1, [0]) => "WD",
        (5, [4]) => "IU",
        (5, [11]) => "AU",
        (5, [18]) => "SY",
        (5, [32, 544]) => "BA",
        (5, [32, 545]) => "BU",
        _ => return Some(parts.iter().fold(format!("S-1-{authority}"), |text, part| format!("{text}-{part}"))),
    };
    Some(known.to_owned())
}

/// Replaces generic rights by the file rights they stand for.
#[must_use]
pub fn map_generic(mask: u32) -> u32 {
    let pairs = [
        (GENERIC_READ, FILE_GENERIC_READ),
        (GENERIC_WRITE, FILE_GENERIC_WRITE),
        (GENERIC_EXECUTE, FILE_GENERIC_EXECUTE),
        (GENERIC_ALL, FILE_ALL_ACCESS),
    ];
    let generic: u32 = pairs.iter().map(|(generic, _)| generic).fold(0, |all, bit| all | bit);
    let mapped = pairs.iter().filter(|(generic, _)| mask & generic != 0).fold(0, |all, (_, rights)| all | rights);
    (mask & !generic) | mapped
}

/// The entries of a list behind its flags, without their parentheses.
fn entries_of(list: &str) -> Option<Vec<&str>> {
    let (flags, entries) = list.find('(').map_or((list, ""), |at| list.split_at(at));
    if !flags.chars().all(|flag| matches!(flag, 'P' | 'A' | 'I' | 'R')) {
        return None;
    }
    if entries.is_empty() {
        return Some(Vec::new());
    }
    Some(entries.strip_prefix('(')?.strip_suffix(')')?.split(")(").collect())
}

/// `ML;;NWNR;;;HI`.
fn parse_label(text: &str) -> Option<Label> {
    let fields: Vec<&str> = text.split(';').collect();
    let ["ML", _flags, policy, "", "", level] = fields.as_slice() else { return None };
    let integrity = match *level {
        "LW" => Integrity::Low,
        "ME" => Integrity::Medium,
        "HI" => Integrity::High,
        "SI" => Integrity::System,
        _ => return None,
    };
    let mut label = Label { integrity, write: true, read: true, execute: true };
    for code in policy.as_bytes().chunks(2) {
        match code {
            b"NW" => label.write = false,
            b"NR" => label.read = false,
            b"NX" => label.execute = false,
            _ => return None,
        }
    }
    Some(label)
}

fn parse_entry(text: &str) -> Option<AccessEntry> {
    let fields: Vec<&str> = text.split(';').collect();
    let [kind, _flags, rights, object, inherited, sid] = fields.as_slice() else { return None };
    if !object.is_empty() || !inherited.is_empty() || sid.is_empty() {
        return None;
    }
    let allow = match *kind {
        "A" => true,
        "D" => false,
        _ => return None,
    };
    Some(AccessEntry { allow, rights: parse_rights(rights)?, sid: (*sid).to_owned() })
}

fn parse_rights(text: &str) -> Option<u32> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u32::from_str_radix(digits, 16).ok().map(map_generic);
    }
    let codes = text.as_bytes().chunks(2).map(|code| match code {
        b"GA" | b"FA" => Some(FILE_ALL_ACCESS),
        b"GR" | b"FR" => Some(FILE_GENERIC_READ),
        b"GW" | b"FW" => Some(FILE_GENERIC_WRITE),
        b"GX" | b"FX" => Some(FILE_GENERIC_EXECUTE),
        _ => None,
    });
    codes.collect::<Option<Vec<_>>>().map(|rights| rights.into_iter().fold(0, |all, right| all | right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_and_administrators_only() {
        let descriptor = SecurityDescriptor::parse("D:P(A;;GA;;;SY)(A;;GA;;;BA)").expect("parses");
        let both = GENERIC_READ | GENERIC_WRITE;
        assert!(descriptor.grants(Caller::Kernel, both));
        assert!(descriptor.grants(Caller::System, both));
        assert!(descriptor.grants(Caller::Administrator, both));
        assert!(!descriptor.grants(Caller::User, GENERIC_READ));
        assert!(!descriptor.grants(Caller::User, FILE_READ_DATA));
        assert!(descriptor.grants(Caller::User, 0));
    }

    #[test]
    fn a_filtered_administrator_is_a_user_whom_administrators_can_deny() {
        let descriptor = SecurityDescriptor::parse("D:P(A;;GA;;;SY)(A;;GA;;;BA)").expect("parses");
        assert!(!descriptor.grants(Caller::FilteredAdministrator, GENERIC_READ));
        let denied = SecurityDescriptor::parse("D:(D;;GW;;;BA)(A;;GA;;;WD)").expect("parses");
        assert!(!denied.grants(Caller::FilteredAdministrator, FILE_WRITE_DATA));
        assert!(denied.grants(Caller::FilteredAdministrator, FILE_READ_DATA));
        assert!(denied.grants(Caller::User, FILE_WRITE_DATA));
    }

    #[test]
    fn low_integrity_writes_nothing_without_a_label_and_reads_nothing_with_one() {
        let both = GENERIC_READ | GENERIC_WRITE;
        let descriptor = SecurityDescriptor::parse("D:P(A;;GA;;;BA)").expect("parses");
        assert!(!descriptor.grants(Caller::LowIntegrity, both));
        assert!(descriptor.grants(Caller::LowIntegrity, GENERIC_READ));
        let high = SecurityDescriptor::parse("D:P(A;;GA;;;BA)(A;;GA;;;WD)S:(ML;;NWNRNX;;;HI)").expect("parses");
        assert!(high.grants(Caller::Administrator, both));
        for caller in [Caller::LowIntegrity, Caller::User, Caller::FilteredAdministrator] {
            assert!(!high.grants(caller, GENERIC_READ), "{caller:?}");
        }
        let low = SecurityDescriptor::parse("D:P(A;;GA;;;WD)S:(ML;;NW;;;LW)").expect("parses");
        assert!(low.grants(Caller::LowIntegrity, both));
    }

    #[test]
    fn no_privilege_is_enabled_because_it_is_held() {
        use crate::io::token::{SE_CHANGE_NOTIFY, SE_LOAD_DRIVER};
        for caller in [Caller::System, Caller::Administrator] {
            let token = caller.token().expect("user mode");
            assert!(token.privileges.contains(&SE_LOAD_DRIVER) && !token.has_enabled(SE_LOAD_DRIVER), "{caller:?}");
            assert!(token.has_enabled(SE_CHANGE_NOTIFY));
        }
    }

    /// SYSTEM all, users read, administrators denied to write, and an account of its own.
    const IN_MEMORY: [u32; 27] = [
        0x8004_0001,
        0,
        0,
        0,
        20,
        0x0058_0002,
        4,
        0x0014_0000,
        0x1000_0000,
        0x0101,
        0x0500_0000,
        18,
        0x0018_0001,
        2,
        0x0201,
        0x0500_0000,
        32,
        544,
        0x0014_0000,
        0x8000_0000,
        0x0101,
        0x0100_0000,
        0,
        0x0010_0000,
        3,
        0x0001,
        0x0500_0000,
    ];

    #[test]
    fn a_descriptor_in_memory_is_read_as_its_text() {
        let bytes: Vec<u8> = IN_MEMORY.iter().flat_map(|word| word.to_le_bytes()).collect();
        let read = SecurityDescriptor::from_self_relative(&bytes).expect("one");
        let text =
            SecurityDescriptor::parse("D:(A;;GA;;;SY)(D;;0x2;;;BA)(A;;GR;;;WD)(A;;0x3;;;S-1-5)").expect("parses");
        assert_eq!(read, text);
        for length in 0..bytes.len() {
            assert_eq!(SecurityDescriptor::from_self_relative(&bytes[..length]), None, "{length} bytes");
        }
        for (at, wrong) in [(0, 2), (2, 0), (16, 21), (20, 4), (28, 9), (36, 2)] {
            let mut bytes = bytes.clone();
            bytes[at] = wrong;
            assert_eq!(SecurityDescriptor::from_self_relative(&bytes), None, "byte {at}");
        }
    }

    #[test]
    fn first_word_on_a_right_counts() {
        let descriptor = SecurityDescriptor::parse("D:(D;;GW;;;WD)(A;;GA;;;WD)").expect("parses");
        assert!(!descriptor.grants(Caller::Administrator, FILE_WRITE_DATA));
        assert!(descriptor.grants(Caller::User, FILE_READ_DATA));
    }

    #[test]
    fn an_empty_list_grants_nothing() {
        assert!(!SecurityDescriptor::parse("D:P").expect("parses").grants(Caller::System, FILE_READ_DATA));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "O:SY", "D:P(A;;GA;;;SY", "D:P(A;;GA;;SY)", "D:P(A;;QQ;;;SY)", "D:X(A;;GA;;;SY)", "D:PS:(ML;;NQ;;;HI)"]
        {
            assert_eq!(SecurityDescriptor::parse(text), None, "{text}");
        }
    }
}
