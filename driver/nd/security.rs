//! Whether a text is a security descriptor that a device may have.
//!
//! NdisRegisterDeviceEx is given what an administrator has written into the registry; what has not at least the form of an owner-less
//! descriptor with entries that allow or deny is not passed on.

/// The longest text taken, in characters.
const LONGEST: usize = 512;

/// Whether the text is `D:`, flags, and entries of six fields in parentheses.
pub fn is_descriptor(text: &[u16]) -> bool {
    let Some(rest) = after(text, "D:").filter(|_| text.len() <= LONGEST) else { return false };
    let flags = rest.iter().take_while(|character| **character != u16::from(b'(')).count();
    let Some((flags, mut entries)) = rest.split_at_checked(flags) else { return false };
    if !flags.iter().all(|flag| is_one_of(*flag, b"PAIR")) || entries.is_empty() {
        return false;
    }
    while !entries.is_empty() {
        let Some(entry) = after(entries, "(") else { return false };
        let length = entry.iter().take_while(|character| **character != u16::from(b')')).count();
        let Some((entry, rest)) = entry.split_at_checked(length) else { return false };
        let Some(rest) = after(rest, ")") else { return false };
        if !is_entry(entry) {
            return false;
        }
        entries = rest;
    }
    true
}

/// Type, flags, rights, two names that no device has, and who.
fn is_entry(entry: &[u16]) -> bool {
    let mut fields = entry.split(|character| *character == u16::from(b';'));
    let mut next = || fields.next();
    let (Some(kind), Some(_flags), Some(rights), Some(object), Some(inherited), Some(who), None) =
        (next(), next(), next(), next(), next(), next(), next())
    else {
        return false;
    };
    let is_kind = matches!(kind, [kind] if is_one_of(*kind, b"AD"));
    is_kind && !rights.is_empty() && object.is_empty() && inherited.is_empty() && !who.is_empty()
}

fn is_one_of(character: u16, list: &[u8]) -> bool {
    list.iter().any(|one| u16::from(*one) == character)
}

/// What follows a beginning.
fn after<'a>(text: &'a [u16], beginning: &str) -> Option<&'a [u16]> {
    let (begins, rest) = text.split_at_checked(beginning.len())?;
    begins.iter().zip(beginning.bytes()).all(|(one, other)| *one == u16::from(other)).then_some(rest)
}
