//! Text of the image in UTF-16, the form in which the kernel takes names.

/// An ASCII text as a `&'static [u16]`, made by the compiler.
#[macro_export]
macro_rules! utf16 {
    ($text:expr) => {{
        const TEXT: &str = $text;
        const WIDE: &[u16] = &$crate::unicode::widen::<{ TEXT.len() }>(TEXT);
        WIDE
    }};
}

/// What [`utf16!`](crate::utf16) evaluates; another character than an ASCII one does not compile there.
pub const fn widen<const LENGTH: usize>(text: &str) -> [u16; LENGTH] {
    assert!(text.is_ascii() && text.len() == LENGTH);
    let mut wide = [0; LENGTH];
    let mut index = 0;
    while index < LENGTH {
        wide[index] = text.as_bytes()[index] as u16;
        index += 1;
    }
    wide
}
