//! What stampinf does on Windows: the architecture, and the version and date of the driver.

use super::Inf;
use crate::arch::Arch;
use anyhow::{Result, ensure};
use std::fmt;

/// A day of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    pub year: u32,
    pub month: u32,
    pub day: u32,
}

impl Date {
    /// The day, in UTC, of a time in seconds since 1970.
    pub fn of(seconds: u64) -> Self {
        // Days since 1 March of the year 0, by eras of 400 years: Howard Hinnant, "chrono-compatible low-level date algorithms".
        let days = seconds / 86_400 + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        let day = day_of_year - (153 * from_march + 2) / 5 + 1;
        Self { year: year as u32, month: month as u32, day: day as u32 }
    }

    /// As `DriverVer` has it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let mut part = |digits: usize| parts.next().filter(|part| part.len() == digits)?.parse().ok();
        let (month, day, year) = (part(2)?, part(2)?, part(4)?);
        let valid = (1..=12).contains(&month) && (1..=31).contains(&day) && parts.next().is_none();
        valid.then_some(Self { year, month, day })
    }
}

impl fmt::Display for Date {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:02}/{:02}/{:04}", self.month, self.day, self.year)
    }
}

/// The name of an architecture in an INF.
pub fn architecture(arch: Arch) -> &'static str {
    match arch {
        Arch::X64 => "amd64",
        Arch::Arm64 => "arm64",
    }
}

/// The INF for an architecture, with this version of the driver. The catalogue is the one that the template names.
pub fn stamp(template: &str, arch: Arch, date: Date, version: &str) -> Result<String> {
    ensure!(template.contains("$ARCH$"), "the INF template has no $ARCH$");
    Inf::parse(template)?;
    let mut stamped = 0;
    let lines = template.lines().map(|line| {
        // Comments at the top speak of the template.
        let line = if line.starts_with(';') { line.to_owned() } else { line.replace("$ARCH$", architecture(arch)) };
        let Some((key, _)) = line.split_once('=').filter(|(key, _)| key.trim().eq_ignore_ascii_case("DriverVer"))
        else {
            return format!("{line}\r\n");
        };
        stamped += 1;
        format!("{key}= {date},{version}\r\n")
    });
    let text: String = lines.collect();
    ensure!(stamped == 1, "the INF template has {stamped} lines DriverVer, expected one");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, day) in [
            (0, "01/01/1970"),
            (951_782_399, "02/28/2000"),
            (951_782_400, "02/29/2000"),
            (951_868_800, "03/01/2000"),
            (1_735_689_599, "12/31/2024"),
            (1_795_609_279, "11/25/2026"),
            (4_107_542_399, "02/28/2100"),
            (4_107_542_400, "03/01/2100"),
        ] {
            assert_eq!(Date::of(seconds).to_string(), day);
            assert_eq!(Date::parse(day), Some(Date::of(seconds)));
        }
        for none in ["2/28/2000", "13/01/2000", "02/32/2000", "02/28/20000", "02-28-2000", ""] {
            assert_eq!(Date::parse(none), None, "{none}");
        }
    }

    #[test]
    fn stamp_puts_in_architecture_date_and_version() {
        let template = "; $ARCH$\n[A.NT$ARCH$]\nDriverVer   = 1 ; stampinf\n";
        let date = Date { year: 2026, month: 3, day: 4 };
        assert_eq!(
            stamp(template, Arch::Arm64, date, "0.1.0.7").unwrap(),
            "; $ARCH$\r\n[A.NTarm64]\r\nDriverVer   = 03/04/2026,0.1.0.7\r\n"
        );
        assert!(stamp("[A]\nDriverVer = 1\n", Arch::X64, date, "1").is_err());
        assert!(stamp("[A.NT$ARCH$]\n", Arch::X64, date, "1").is_err());
    }
}
