//! Debug output. C variadics are taken as functions of twelve arguments: in the Windows convention a variadic function
//! finds its arguments where an ordinary one does.

use std::fmt::Write as _;

use crate::exports;
use crate::nt::UNICODE_STRING;

exports! {
    module "ntoskrnl.exe";

    /// Prints a line to standard error, with the C conversions %d %i %u %x %X %p %c %s %ws %S %wZ %% and l, ll, I64.
    /// Source: WDM: DbgPrintEx
    [ANY] fn DbgPrintEx(
        _component: u32, _level: u32, format: *const u8,
        a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, i: u64,
    ) -> u32 {
        // SAFETY: the format is a C string, as the documentation says.
        let text = unsafe { expand(format, &[a, b, c, d, e, f, g, h, i]) };
        print(&text);
        0
    }

    /// As DbgPrintEx, without component and level.
    /// Source: WDM: DbgPrint
    [ANY] fn DbgPrint(
        format: *const u8,
        a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, i: u64, j: u64, k: u64,
    ) -> u32 {
        // SAFETY: the format is a C string, as the documentation says.
        let text = unsafe { expand(format, &[a, b, c, d, e, f, g, h, i, j, k]) };
        print(&text);
        0
    }
}

fn print(text: &str) {
    if crate::kernel::prints_debug_output() {
        eprint!("[driver] {text}{}", if text.ends_with('\n') { "" } else { "\n" });
    }
}

unsafe fn c_string(address: *const u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut at = address;
    // SAFETY: the caller's contract: terminated by 0.
    unsafe {
        while !at.is_null() && at.read() != 0 {
            bytes.push(at.read());
            at = at.add(1);
        }
    }
    bytes
}

unsafe fn wide_string(address: *const u16) -> String {
    let mut units = Vec::new();
    let mut at = address;
    // SAFETY: the caller's contract: terminated by 0.
    unsafe {
        while !at.is_null() && at.read() != 0 {
            units.push(at.read());
            at = at.add(1);
        }
    }
    String::from_utf16_lossy(&units)
}

/// Expands a C format.
///
/// # Safety
///
/// The format is a C string and the arguments are what it says.
unsafe fn expand(format: *const u8, arguments: &[u64]) -> String {
    // SAFETY: the caller's contract.
    let format = unsafe { c_string(format) };
    let mut output = String::new();
    let mut values = arguments.iter().copied();
    let mut characters = format.iter().map(|byte| char::from(*byte)).peekable();
    while let Some(character) = characters.next() {
        if character != '%' {
            output.push(character);
            continue;
        }
        let mut specification = String::new();
        while let Some(modifier) = characters.next_if(|next| "0123456789.-+# lhIwz".contains(*next)) {
            specification.push(modifier);
        }
        let Some(conversion) = characters.next() else { break };
        if conversion == '%' {
            output.push('%');
            continue;
        }
        let value = values.next().unwrap_or(0);
        let wide = specification.contains('w') || specification.contains('l');
        let long = specification.contains("ll") || specification.contains("I64") || specification.contains('z');
        let width: usize = specification
            .trim_start_matches(['-', '+', '#', ' '])
            .chars()
            .take_while(char::is_ascii_digit)
            .collect::<String>()
            .parse()
            .unwrap_or(0);
        let zero = specification.trim_start_matches(['-', '+', '#', ' ']).starts_with('0');
        // SAFETY: strings are what the format says.
        let text = unsafe {
            match conversion {
                'd' | 'i' if long => (value as i64).to_string(),
                'd' | 'i' => (value as i32).to_string(),
                'u' if long => value.to_string(),
                'u' => (value as u32).to_string(),
                'x' if long => format!("{value:x}"),
                'x' => format!("{:x}", value as u32),
                'X' if long => format!("{value:X}"),
                'X' => format!("{:X}", value as u32),
                'p' => format!("{value:016X}"),
                'c' => char::from(value as u8).to_string(),
                'Z' if value != 0 => (*(value as *const UNICODE_STRING)).text(),
                'S' => wide_string(value as *const u16),
                's' if wide => wide_string(value as *const u16),
                's' => String::from_utf8_lossy(&c_string(value as *const u8)).into_owned(),
                other => format!("%{other}"),
            }
        };
        for _ in text.len()..width {
            output.push(if zero { '0' } else { ' ' });
        }
        let _ = write!(output, "{text}");
    }
    output
}
