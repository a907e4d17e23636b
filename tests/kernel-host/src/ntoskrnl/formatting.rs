//! Formats of the C library as the kernel has them: what `RtlStringCbPrintf` and the debug output are made of. C variadics are
//! taken as functions of twelve arguments: in the Windows convention a variadic function finds its arguments where an ordinary
//! one does, and a `va_list` is the address of the first.

use crate::bugcheck::{BugCheck, bugcheck};
use crate::nt::UNICODE_STRING;

crate::exports! {
    module "ntoskrnl.exe";

    /// Formats into a buffer; -1 when that is too small, and no terminator when it is just full. Conversions d i u x X o p c s S Z
    /// with h, l, ll, w, I, I32, I64, z, widths and precisions.
    /// Source: C: _vsnprintf
    [ANY] fn _vsnprintf(buffer: *mut u8, count: usize, format: *const u8, arguments: *const u64) -> i32 {
        // SAFETY: a format with its arguments, and the image's buffer.
        unsafe { format_narrow(buffer, count, format, arguments) }
    }

    /// As _vsnprintf, with wide characters.
    /// Source: C: _vsnwprintf
    [ANY] fn _vsnwprintf(buffer: *mut u16, count: usize, format: *const u16, arguments: *const u64) -> i32 {
        // SAFETY: a format with its arguments, and the image's buffer.
        unsafe { format_wide(buffer, count, format, arguments) }
    }

    /// As _vsnprintf, with the arguments themselves, nine at most.
    /// Checks: the text gets its terminator
    /// Source: C: _snprintf
    [ANY] fn _snprintf(
        buffer: *mut u8, count: usize, format: *const u8,
        a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, i: u64,
    ) -> i32 {
        let all = [a, b, c, d, e, f, g, h, i];
        // SAFETY: a format with its arguments, and the image's buffer.
        let written = unsafe { format_narrow(buffer, count, format, all.as_ptr()) };
        check_terminated("_snprintf", written, count);
        written
    }

    /// As _snprintf, with wide characters.
    /// Checks: the text gets its terminator
    /// Source: C: _snwprintf
    [ANY] fn _snwprintf(
        buffer: *mut u16, count: usize, format: *const u16,
        a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, i: u64,
    ) -> i32 {
        let all = [a, b, c, d, e, f, g, h, i];
        // SAFETY: a format with its arguments, and the image's buffer.
        let written = unsafe { format_wide(buffer, count, format, all.as_ptr()) };
        check_terminated("_snwprintf", written, count);
        written
    }
}

/// The safe string functions of the headers are made of `_vsnprintf` and write the terminator themselves. These here leave it
/// out where the text fills its buffer, and return a negative length only where the text is longer: a driver can check for
/// that; a text of exactly the buffer's length is taken as complete.
fn check_terminated(function: &str, written: i32, capacity: usize) {
    let exact = usize::try_from(written).is_ok_and(|written| written == capacity);
    if capacity != 0 && exact && crate::kernel::is_verifying() {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0x1041, capacity as u64, written as u64, 0],
            format!("{function} fills its {capacity} characters and leaves the text without a terminator"),
        );
    }
}

/// What `%s` and `%c` mean.
#[derive(Clone, Copy, Eq, PartialEq)]
pub enum Width {
    Narrow,
    Wide,
}

/// # Safety
///
/// A format with its arguments, and a buffer of that many bytes.
unsafe fn format_narrow(buffer: *mut u8, count: usize, format: *const u8, arguments: *const u64) -> i32 {
    // SAFETY: the caller's contract.
    unsafe { put(buffer, count, expand(&narrow(format, None), Width::Narrow, list(arguments)).as_bytes()) }
}

/// # Safety
///
/// A format with its arguments, and a buffer of that many characters.
unsafe fn format_wide(buffer: *mut u16, count: usize, format: *const u16, arguments: *const u64) -> i32 {
    // SAFETY: the caller's contract.
    let text = unsafe { expand(&wide(format, None), Width::Wide, list(arguments)) };
    // SAFETY: as above.
    unsafe { put(buffer, count, &text.encode_utf16().collect::<Vec<_>>()) }
}

/// The arguments of a `va_list`, one after the other.
///
/// # Safety
///
/// No more are taken than there are.
unsafe fn list(arguments: *const u64) -> impl FnMut() -> u64 {
    let mut at = arguments;
    move || {
        let current = at;
        at = at.wrapping_add(1);
        // SAFETY: the caller's contract.
        unsafe { current.read() }
    }
}

/// # Safety
///
/// The buffer holds that many units.
unsafe fn put<T: Copy + Default>(buffer: *mut T, count: usize, text: &[T]) -> i32 {
    for (index, unit) in text.iter().chain([&T::default()]).take(count).enumerate() {
        // SAFETY: the caller's contract.
        unsafe { buffer.add(index).write(*unit) };
    }
    if text.len() > count { -1 } else { text.len() as i32 }
}

/// # Safety
///
/// Terminated by 0, or as long as the limit.
unsafe fn units<T: Copy + Default + PartialEq>(text: *const T, limit: Option<usize>) -> Vec<T> {
    let mut units = Vec::new();
    while !text.is_null() && limit.is_none_or(|limit| units.len() < limit) {
        // SAFETY: the caller's contract: neither the end nor the limit was reached.
        let unit = unsafe { text.add(units.len()).read() };
        if unit == T::default() {
            break;
        }
        units.push(unit);
    }
    units
}

/// # Safety
///
/// Terminated by 0, or as long as the limit.
pub unsafe fn narrow(text: *const u8, limit: Option<usize>) -> String {
    // SAFETY: the caller's contract.
    String::from_utf8_lossy(&unsafe { units(text, limit) }).into_owned()
}

/// # Safety
///
/// Terminated by 0, or as long as the limit.
pub unsafe fn wide(text: *const u16, limit: Option<usize>) -> String {
    // SAFETY: the caller's contract.
    String::from_utf16_lossy(&unsafe { units(text, limit) })
}

/// What stands between `%` and the conversion.
#[derive(Default)]
struct Specification {
    left: bool,
    zero: bool,
    sign: Option<char>,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    /// The letters of the size.
    size: String,
}

impl Specification {
    fn read(from: &mut std::iter::Peekable<std::str::Chars<'_>>, next: &mut impl FnMut() -> u64) -> Self {
        let mut read = Self::default();
        while let Some(flag) = from.next_if(|letter| "-+ #0".contains(*letter)) {
            match flag {
                '-' => read.left = true,
                '0' => read.zero = true,
                '#' => read.alternate = true,
                sign => read.sign = read.sign.filter(|sign| *sign == '+').or(Some(sign)),
            }
        }
        if let Some(width) = number(from, next) {
            // A negative width is a positive one on the left.
            read.left |= width < 0;
            read.width = width.unsigned_abs() as usize;
        }
        if from.next_if_eq(&'.').is_some() {
            read.precision = usize::try_from(number(from, next).unwrap_or(0)).ok();
        }
        while let Some(letter) = from.next_if(|letter| "hlwIz".contains(*letter)) {
            read.size.push(letter);
            while let Some(digit) = from.next_if(|digit| letter == 'I' && digit.is_ascii_digit()) {
                read.size.push(digit);
            }
        }
        read
    }

    /// How many bits of an argument count.
    fn bits(&self) -> u32 {
        match self.size.as_str() {
            "ll" | "I64" | "I" | "z" => 64,
            "h" => 16,
            "hh" => 8,
            _ => 32,
        }
    }

    fn signed(&self, value: u64) -> String {
        let unused = 64 - self.bits();
        let value = (value << unused) as i64 >> unused;
        let sign = if value < 0 { "-".to_owned() } else { self.sign.map(String::from).unwrap_or_default() };
        self.padded(&sign, &value.unsigned_abs().to_string())
    }

    fn unsigned(&self, value: u64, conversion: char) -> String {
        let value = value & u64::MAX >> (64 - self.bits());
        let (prefix, digits) = match conversion {
            'x' => ("0x", format!("{value:x}")),
            'X' => ("0X", format!("{value:X}")),
            'o' => ("0", format!("{value:o}")),
            _ => ("", value.to_string()),
        };
        self.padded(if self.alternate && value != 0 { prefix } else { "" }, &digits)
    }

    /// A number with its zeroes: up to the precision, or to the width.
    fn padded(&self, prefix: &str, digits: &str) -> String {
        let zeroes = match self.precision {
            Some(precision) => precision,
            None if self.zero && !self.left => self.width.saturating_sub(prefix.len()),
            None => 1,
        };
        format!("{prefix}{digits:0>zeroes$}")
    }

    /// Whether a string or character is wide. A capital conversion is the other way round.
    fn is_wide(&self, conversion: char, width: Width) -> bool {
        match self.size.as_str() {
            "l" | "w" => true,
            "h" => false,
            _ => (width == Width::Wide) != conversion.is_ascii_uppercase(),
        }
    }
}

/// Digits, or a star for an argument.
fn number(from: &mut std::iter::Peekable<std::str::Chars<'_>>, next: &mut impl FnMut() -> u64) -> Option<i32> {
    if from.next_if_eq(&'*').is_some() {
        return Some(next() as i32);
    }
    let mut digits = String::new();
    while let Some(digit) = from.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    digits.parse().ok()
}

/// Expands a format; unknown conversions stay as they are.
///
/// # Safety
///
/// The arguments are those of the format.
pub unsafe fn expand(format: &str, width: Width, mut next: impl FnMut() -> u64) -> String {
    let mut output = String::new();
    let mut characters = format.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '%' {
            output.push(character);
            continue;
        }
        let specification = Specification::read(&mut characters, &mut next);
        let Some(conversion) = characters.next() else { break };
        let text = match conversion {
            '%' => "%".to_owned(),
            // SAFETY: the caller's contract.
            _ => unsafe { convert(&specification, conversion, width, &mut next) },
        };
        let fill = specification.width.saturating_sub(text.chars().count());
        let spaces = " ".repeat(fill);
        output.extend(if specification.left { [text, spaces] } else { [spaces, text] });
    }
    output
}

/// # Safety
///
/// As [`expand`].
unsafe fn convert(
    specification: &Specification,
    conversion: char,
    width: Width,
    next: &mut impl FnMut() -> u64,
) -> String {
    let limit = specification.precision;
    match conversion {
        'd' | 'i' => specification.signed(next()),
        'u' | 'x' | 'X' | 'o' => specification.unsigned(next(), conversion),
        'p' => format!("{:016X}", next()),
        'c' | 'C' if specification.is_wide(conversion, width) => String::from_utf16_lossy(&[next() as u16]),
        'c' | 'C' => char::from(next() as u8).to_string(),
        's' | 'S' => match next() {
            0 => "(null)".to_owned(),
            // SAFETY: a string, as the format says, of the kind it says.
            text if specification.is_wide(conversion, width) => unsafe { wide(text as *const u16, limit) },
            // SAFETY: as above.
            text => unsafe { narrow(text as *const u8, limit) },
        },
        // SAFETY: a counted string, as the format says.
        'Z' => match unsafe { (next() as *const UNICODE_STRING).as_ref() } {
            // SAFETY: as above, of wide characters.
            Some(string) if specification.size == "w" => unsafe { string.text() },
            Some(string) => {
                // SAFETY: a counted string of bytes.
                unsafe { narrow(string.Buffer.cast(), Some(usize::from(string.Length))) }
            }
            None => "(null)".to_owned(),
        },
        other => format!("%{other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Width, expand, list, put};

    fn formatted(format: &str, arguments: &[u64]) -> String {
        // SAFETY: each test gives the arguments of its format.
        unsafe { expand(format, Width::Narrow, list(arguments.as_ptr())) }
    }

    #[test]
    fn numbers_have_size_sign_width_and_precision() {
        let minus = -2_i64 as u64;
        assert_eq!(formatted("%d|%u|%lld|%I64u|%hd", &[minus; 5]), "-2|4294967294|-2|18446744073709551614|-2");
        assert_eq!(formatted("%5d|%-5d|%05d|%+d|% d|%.3d", &[42; 6]), "   42|42   |00042|+42| 42|042");
        assert_eq!(formatted("%x|%#X|%08lx|%o|%I32x", &[0x1_0000_00AB; 5]), "ab|0XAB|000000ab|253|ab");
        assert_eq!(formatted("%05d|%*d|%-*d|", &[minus, 6, 7, minus, 7]), "-0002|     7|7 |");
        assert_eq!(formatted("100%% %p", &[0xFFFF]), "100% 000000000000FFFF");
    }

    #[test]
    fn strings_are_narrow_or_wide_and_no_longer_than_their_precision() {
        let (narrow, wide): (&[u8], Vec<u16>) = (b"abcdef", "wide\0".encode_utf16().collect());
        let texts = [3, narrow.as_ptr() as u64, wide.as_ptr() as u64, wide.as_ptr() as u64, 0];
        assert_eq!(formatted("%.*s|%S|%8ws|%s", &texts), "abc|wide|    wide|(null)");
        let swapped = [wide.as_ptr() as u64, narrow.as_ptr() as u64];
        // SAFETY: the strings fit the format.
        assert_eq!(unsafe { expand("%s|%.2S", Width::Wide, list(swapped.as_ptr())) }, "wide|ab");
    }

    #[test]
    fn a_full_buffer_has_no_terminator_and_a_small_one_is_reported() {
        for (count, answer, left) in [(0, -1, "zzzz"), (2, -1, "abzz"), (3, 3, "abcz"), (4, 3, "abc\0")] {
            let mut buffer = *b"zzzz";
            // SAFETY: the buffer has four bytes.
            assert_eq!(unsafe { put(buffer.as_mut_ptr(), count, b"abc") }, answer, "{count}");
            assert_eq!(buffer, left.as_bytes(), "{count}");
        }
    }
}
