//! Texts as Windows takes and gives them: UTF-16 that ends with a zero.

use std::ffi::OsString;
use std::os::windows::ffi::OsStringExt;

pub fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

/// What stands before the first zero.
pub fn text(units: &[u16]) -> String {
    let end = units.iter().position(|unit| *unit == 0).unwrap_or(units.len());
    OsString::from_wide(&units[..end]).to_string_lossy().into_owned()
}
