//! Which build an image is of: the commit that it was made from, as far as the build says it.
//!
//! `cargo xtask package` sets `SOFTNDK_COMMIT`; an ordinary build does not, and its images say "unknown". Driver, consumer, DLL and tool
//! each compile this crate, so each reports the commit of its own build.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a commit: forty digits, and space for "-dirty".
pub const COMMIT_LENGTH: usize = 48;

/// What stands in the place of a commit that the build does not name.
pub const COMMIT_UNKNOWN: &str = "unknown";

/// The commit of this build.
pub const COMMIT: &str = match option_env!("SOFTNDK_COMMIT") {
    Some(commit) if !commit.is_empty() => commit,
    _ => COMMIT_UNKNOWN,
};

/// [`COMMIT`] as the drivers report it.
pub const COMMIT_FIELD: [u8; COMMIT_LENGTH] = fixed_text(COMMIT);

/// A text in a field of a fixed length, filled up with zeros; cut where it is longer.
#[must_use]
const fn fixed_text<const LENGTH: usize>(text: &str) -> [u8; LENGTH] {
    let mut field = [0; LENGTH];
    let mut rest = text.as_bytes();
    let mut index = 0;
    while let ([first, tail @ ..], true) = (rest, index < LENGTH) {
        field[index] = *first;
        rest = tail;
        index += 1;
    }
    field
}

/// The text of such a field, up to its first zero; nothing where it is not printable ASCII.
#[must_use]
pub fn text_of(field: &[u8]) -> Option<&str> {
    let text = field.split(|byte| *byte == 0).next()?;
    if text.is_empty() || !text.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    core::str::from_utf8(text).ok()
}

/// What an image says of its build to a tool that reads its file, because no IOCTL reaches it: softnd.dll has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BuildMark {
    /// [`BuildMark::TAG`].
    pub tag: [u8; 16],
    /// Its version, in ASCII.
    pub version: [u8; 16],
    /// Its commit, in ASCII.
    pub commit: [u8; COMMIT_LENGTH],
}

impl BuildMark {
    /// By which it is found.
    pub const TAG: [u8; 16] = *b"softndk\x01build\x02\x03\x04";

    /// That of this build, for a `static` of the image.
    pub const THIS: Self =
        Self { tag: Self::TAG, version: fixed_text(env!("CARGO_PKG_VERSION")), commit: COMMIT_FIELD };

    /// The first one in the bytes of an image.
    #[must_use]
    pub fn find(image: &[u8]) -> Option<Self> {
        let start = image.windows(Self::TAG.len()).position(|window| window == Self::TAG)?;
        Self::read_from_prefix(image.get(start..)?).ok().map(|(mark, _)| mark)
    }
}

const _: () = assert!(size_of::<BuildMark>() == 80);

#[cfg(test)]
mod tests {
    extern crate std;
    use super::{BuildMark, COMMIT, fixed_text, text_of};
    use std::vec::Vec;
    use zerocopy::IntoBytes;

    #[test]
    fn texts_are_filled_up_and_cut() {
        assert_eq!(fixed_text::<4>("ab"), *b"ab\0\0");
        assert_eq!(fixed_text::<2>("abc"), *b"ab");
        assert_eq!(fixed_text::<2>(""), [0; 2]);
    }

    #[test]
    fn a_text_ends_with_its_zero_and_is_printable() {
        assert_eq!(text_of(b"0.1.0\0x"), Some("0.1.0"));
        assert_eq!(text_of(b"ab"), Some("ab"));
        for nothing in [&b"\0ab"[..], b"", b"a b", b"a\x07", b"\xFF"] {
            assert_eq!(text_of(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn a_mark_is_found_anywhere_and_only_whole() {
        let mark = BuildMark::THIS;
        let mut image: Vec<u8> = b"MZ, then softndk\x01build, which is none".to_vec();
        assert_eq!(BuildMark::find(&image), None);
        image.extend_from_slice(mark.as_bytes());
        assert_eq!(BuildMark::find(&image), Some(mark));
        assert_eq!(text_of(&mark.version), Some(env!("CARGO_PKG_VERSION")));
        assert_eq!(text_of(&mark.commit), Some(COMMIT));
        image.pop();
        assert_eq!(BuildMark::find(&image), None, "its last byte is not there");
    }
}
