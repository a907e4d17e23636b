//! Formatting of numbers and parsing of sizes and times.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

/// A duration: three or four significant digits and a unit.
#[must_use]
pub fn duration(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 10.0 => format!("{ns:.1} ns"),
        ns if ns < 1_000.0 => format!("{ns:.0} ns"),
        ns if ns < 1_000_000.0 => format!("{:.2} µs", ns / 1_000.0),
        ns if ns < 1_000_000_000.0 => format!("{:.2} ms", ns / 1_000_000.0),
        ns => format!("{:.2} s", ns / 1_000_000_000.0),
    }
}

/// A count with its thousands apart: 65 530.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A size in bytes: exact multiples of a binary unit in that unit, others in bytes.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in UNITS {
        if bytes >> shift > 0 && bytes.trailing_zeros() >= shift {
            return format!("{} {unit}", count(bytes >> shift));
        }
    }
    format!("{} B", count(bytes))
}

/// Megabytes (10⁶) per second; nothing when no time passed.
#[must_use]
pub fn megabytes_per_second(bytes: u64, nanoseconds: u64) -> Option<f64> {
    (nanoseconds > 0).then(|| bytes as f64 * 1_000.0 / nanoseconds as f64)
}

/// A link speed: 100 Gbit/s.
#[must_use]
pub fn link_speed(bits_per_second: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s")];
    for (factor, unit) in UNITS {
        if bits_per_second >= factor {
            let whole = bits_per_second as f64 / factor as f64;
            return format!("{whole} {unit}");
        }
    }
    format!("{bits_per_second} bit/s")
}

/// Reads a size: a number, with K, M or G (or KiB, MiB, GiB) for powers of 1024.
///
/// # Errors
/// A sentence for the user.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        unit => return Err(format!("\"{unit}\" is not a unit: use K, M or G (powers of 1024)")),
    };
    let number: u64 = digits.trim().parse().map_err(|_| format!("\"{text}\" is not a size such as 8, 4K or 1M"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("\"{text}\" is more than 64 bits hold"))
}

/// As [`parse_size`], for sizes that a request field of 32 bits holds.
///
/// # Errors
/// A sentence for the user.
pub fn parse_size_32(text: &str) -> Result<u32, String> {
    u32::try_from(parse_size(text)?).map_err(|_| format!("\"{text}\" is more than one request can carry"))
}

/// Reads a time: milliseconds, or a number with ms or s. Up to an hour, and not 0.
///
/// # Errors
/// A sentence for the user.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let number: u64 =
        digits.trim().parse().map_err(|_| format!("\"{text}\" is not a time such as 300, 300ms or 2s"))?;
    let milliseconds = match &text[digits.len()..] {
        "" | "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        unit => return Err(format!("\"{unit}\" is not a unit: use ms or s")),
    };
    let fitting = milliseconds.filter(|milliseconds| (1..=3_600_000).contains(milliseconds));
    fitting.map(Duration::from_millis).ok_or_else(|| format!("\"{text}\" is not between a millisecond and an hour"))
}

/// Reads a whole number that is not below the least.
///
/// # Errors
/// A sentence for the user.
pub fn at_least<T: FromStr + PartialOrd + Display + Copy>(least: T) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.trim().parse().map_err(|_| format!("\"{text}\" is not a whole number such as {least}"))?;
        if number < least { Err(format!("{number} is too few: at least {least}")) } else { Ok(number) }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        at_least, count, duration, link_speed, megabytes_per_second, parse_duration, parse_size, parse_size_32, size,
    };
    use std::time::Duration;

    #[test]
    fn numbers_have_a_least_one_and_no_greatest_one_in_words() {
        assert_eq!(at_least(1_u64)("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(at_least(1_u32)("0"), Err("0 is too few: at least 1".to_owned()));
        for text in ["", "-1", "1.5", "many", "4294967296"] {
            let refused = at_least(1_u32)(text).unwrap_err();
            assert_eq!(refused, format!("\"{text}\" is not a whole number such as 1"));
        }
    }

    #[test]
    fn times_have_milliseconds_or_a_unit() {
        for (text, milliseconds) in [("1", 1), ("300", 300), ("300ms", 300), (" 2s ", 2_000), ("3600s", 3_600_000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "s", "0", "0s", "3601s", "5h", "-1", "1.5s", "18446744073709551615s", "18446744073709551616"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_change_unit_at_a_thousand() {
        for (nanoseconds, text) in [
            (0.0, "0.0 ns"),
            (2.25, "2.2 ns"),
            (999.0, "999 ns"),
            (1_000.0, "1.00 µs"),
            (1_234_567.0, "1.23 ms"),
            (90_000_000_000.0, "90.00 s"),
        ] {
            assert_eq!(duration(nanoseconds), text);
        }
    }

    #[test]
    fn counts_are_grouped_from_the_right() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1 000"), (65_530, "65 530"), (1_234_567, "1 234 567")] {
            assert_eq!(count(number), text);
        }
        assert_eq!(count(u64::MAX), "18 446 744 073 709 551 615");
    }

    #[test]
    fn sizes_use_a_unit_only_when_it_is_exact() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1 023 B"), (1024, "1 KiB"), (1025, "1 025 B"), (3 << 20, "3 MiB"), (1 << 40, "1 TiB")]
        {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn speeds() {
        assert_eq!(link_speed(100_000_000_000), "100 Gbit/s");
        assert_eq!(link_speed(2_500_000_000), "2.5 Gbit/s");
        assert_eq!(link_speed(0), "0 bit/s");
        assert_eq!(megabytes_per_second(1_000_000, 1_000_000_000), Some(1.0));
        assert_eq!(megabytes_per_second(1, 0), None);
    }

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, bytes) in [("0", 0), ("8", 8), ("4K", 4096), ("4 KiB", 4096), ("1m", 1 << 20), ("2G", 2 << 30)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn bad_sizes_say_why() {
        for text in ["", "K", "-1", "4X", "1.5K", "99999999999999999999", "18446744073709551615K"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert!(parse_size_32("4G").is_err());
        assert_eq!(parse_size_32("64K"), Ok(65_536));
    }
}
