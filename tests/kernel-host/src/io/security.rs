//! The security descriptor of a named device, as far as its text form (SDDL) gives allow and deny entries for well-known groups,
//! and the access check that opening the device does with it.
//!
//! It is not the security reference monitor: no inheritance, no auditing, no conditional entries. A string it cannot read is a
//! string that `NdisRegisterDeviceEx` refuses.

use std::cell::Cell;

use crate::bugcheck::{BugCheck, bugcheck};

/// Rights of a file or device (wdm: ACCESS_MASK).
pub const FILE_READ_DATA: u32 = 0x1;
pub const FILE_WRITE_DATA: u32 = 0x2;
pub const GENERIC_ALL: u32 = 0x1000_0000;
pub const GENERIC_EXECUTE: u32 = 0x2000_0000;
pub const GENERIC_WRITE: u32 = 0x4000_0000;
pub const GENERIC_READ: u32 = 0x8000_0000;
const FILE_GENERIC_READ: u32 = 0x0012_0089;
const FILE_GENERIC_WRITE: u32 = 0x0012_0116;
const FILE_GENERIC_EXECUTE: u32 = 0x0012_00A0;
const FILE_ALL_ACCESS: u32 = 0x001F_01FF;

/// The opener of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A thread of the system process: kernel mode is not checked at all.
    Kernel,
    /// A service running as SYSTEM.
    System,
    /// An elevated administrator.
    Administrator,
    /// A user without administrator rights.
    User,
}

impl Caller {
    fn is_member(self, sid: &str) -> bool {
        match sid {
            "WD" => true,
            "SY" => self == Self::System,
            "BA" => matches!(self, Self::System | Self::Administrator),
            "AU" | "BU" | "IU" => self != Self::Kernel,
            _ => false,
        }
    }
}

/// SE_LOAD_DRIVER_PRIVILEGE and SE_DEBUG_PRIVILEGE: of administrators and the system.
const OF_ADMINISTRATORS: [u64; 2] = [10, 20];

/// SE_CHANGE_NOTIFY_PRIVILEGE: of every user.
const OF_EVERY_USER: u64 = 23;

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

/// Whether the opener that the current thread serves holds a privilege.
pub fn opener_holds(privilege: u64) -> bool {
    let Some(caller) = OPENER.get() else {
        wrong(
            privilege,
            "outside of a create request this is no thread of the user's, and a privilege says nothing about one",
        );
    };
    match privilege {
        OF_EVERY_USER => true,
        number if OF_ADMINISTRATORS.contains(&number) => caller != Caller::User,
        number => wrong(number, &format!("this host knows no privilege {number}")),
    }
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

/// The entries of a discretionary list, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityDescriptor {
    entries: Vec<AccessEntry>,
}

impl SecurityDescriptor {
    /// Reads `D:P(A;;GA;;;SY)(A;;GA;;;BA)` and its like; `None` when the text is not of that form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (flags, list) =
            text.strip_prefix("D:")?.split_once('(').map_or((text.get(2..)?, ""), |(flags, rest)| (flags, rest));
        if !flags.chars().all(|flag| matches!(flag, 'P' | 'A' | 'I' | 'R')) {
            return None;
        }
        if list.is_empty() {
            return Some(Self { entries: Vec::new() });
        }
        let list = list.strip_suffix(')')?;
        let entries = list.split(")(").map(parse_entry).collect::<Option<Vec<_>>>()?;
        Some(Self { entries })
    }

    /// Whether the caller gets every right it asks for: entries in order, the first entry for each right counts.
    #[must_use]
    pub fn grants(&self, caller: Caller, desired: u32) -> bool {
        if caller == Caller::Kernel {
            return true;
        }
        let mut wanted = map_generic(desired);
        for entry in self.entries.iter().filter(|entry| caller.is_member(&entry.sid)) {
            if entry.allow {
                wanted &= !entry.rights;
            } else if wanted & entry.rights != 0 {
                return false;
            }
        }
        wanted == 0
    }
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
        for text in ["", "O:SY", "D:P(A;;GA;;;SY", "D:P(A;;GA;;SY)", "D:P(A;;QQ;;;SY)", "D:X(A;;GA;;;SY)"] {
            assert_eq!(SecurityDescriptor::parse(text), None, "{text}");
        }
    }
}
