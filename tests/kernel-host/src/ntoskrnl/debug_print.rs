//! Debug output, shown when the kernel is booted with it.

use super::formatting::{self, Width};
use crate::exports;

exports! {
    module "ntoskrnl.exe";

    /// Prints a line to standard error, with the conversions of _vsnprintf.
    /// Source: WDM: DbgPrintEx
    [ANY] fn DbgPrintEx(
        _component: u32, _level: u32, format: *const u8,
        a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, i: u64,
    ) -> u32 {
        // SAFETY: a format with its arguments, as the documentation says.
        unsafe { print(format, &[a, b, c, d, e, f, g, h, i]) }
    }

    /// As DbgPrintEx, without component and level.
    /// Source: WDM: DbgPrint
    [ANY] fn DbgPrint(
        format: *const u8,
        a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, i: u64, j: u64, k: u64,
    ) -> u32 {
        // SAFETY: a format with its arguments, as the documentation says.
        unsafe { print(format, &[a, b, c, d, e, f, g, h, i, j, k]) }
    }
}

/// # Safety
///
/// The format is a C string and the arguments are what it describes; those it needs beyond them are 0.
unsafe fn print(format: *const u8, arguments: &[u64]) -> u32 {
    let mut rest = arguments.iter().copied();
    // SAFETY: the caller's contract.
    let text =
        unsafe { formatting::expand(&formatting::narrow(format, None), Width::Narrow, || rest.next().unwrap_or(0)) };
    if crate::kernel::prints_debug_output() {
        eprint!("[driver] {text}{}", if text.ends_with('\n') { "" } else { "\n" });
    }
    0
}
