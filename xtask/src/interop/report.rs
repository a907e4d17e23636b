//! What a run says: a line a case, the sums, and whether it is good.

use super::{cases::CaseOutcome, guest::Acceleration, judge::SideCount};
use crate::skipped::Skipped;
use anyhow::{Result, bail};
use serde_json::{Value, json};

/// In these cases no stream comes from the driver.
const WITHOUT_FRAMES: [&str; 2] = ["connect_is_refused_where_nothing_listens", "siw_to_siw_beside_tcp"];

pub(super) struct InteropReport {
    pub cases: Vec<CaseOutcome>,
    pub skipped: Option<SkippedCase>,
    /// How many were booted.
    pub guests: usize,
    /// The guest's.
    pub kernel: String,
    pub acceleration: Acceleration,
}

/// A case that cannot run with the packages of the day.
pub(super) struct SkippedCase {
    pub name: String,
    pub why: String,
}

impl InteropReport {
    /// What the driver sent in all cases, and the guest.
    fn sums(&self) -> [SideCount; 2] {
        let mut sums = [SideCount::default(); 2];
        for case in &self.cases {
            sums[0] += case.judgement.driver;
            sums[1] += case.judgement.guest;
        }
        sums
    }

    /// For a person.
    pub(super) fn text(&self) -> String {
        let cases: String = self.cases.iter().map(|case| case.line() + "\n").collect();
        let [driver, guest] = self.sums();
        let passed = self.cases.iter().filter(|case| case.result.is_ok()).count();
        let head =
            format!("{:<42} {:<6} {:>8} {:>6} {:>4} {:>4}  result\n", "case", "", "time", "frames", "mal", "crc");
        let sum = format!(
            "interop: {passed} of {} cases passed{} with siw of Linux {} ({}, {} guests)",
            self.cases.len() + usize::from(self.skipped.is_some()),
            if self.skipped.is_some() { ", 1 was skipped," } else { "" },
            self.kernel,
            self.acceleration.name(),
            self.guests
        );
        let skipped = self.skipped.iter().map(|case| format!("{}\n", Skipped(format!("{}: {}", case.name, case.why))));
        format!(
            "{head}{cases}{}tshark, driver: {}\ntshark, siw: {}\n{sum}; tshark: {}\n",
            skipped.collect::<String>(),
            said(driver),
            said(guest),
            short(driver)
        )
    }

    pub(super) fn json(&self) -> Value {
        let case = |case: &CaseOutcome| {
            let (passed, said) = match &case.result {
                Ok(said) => (true, said),
                Err(said) => (false, said),
            };
            json!({
                "name": case.name, "passed": passed, "result": said, "seconds": case.seconds,
                "driver": counts(case.judgement.driver), "siw": counts(case.judgement.guest),
            })
        };
        let [driver, guest] = self.sums();
        json!({
            "skipped": self.skipped.as_ref().map(|case| json!({ "name": case.name, "why": case.why })),
            "cases": self.cases.iter().map(case).collect::<Vec<_>>(), "driver": counts(driver), "siw": counts(guest),
            "kernel": self.kernel, "acceleration": self.acceleration.name(), "guests": self.guests,
        })
    }

    /// Fails where a case failed, and where Wireshark finds a fault in what the driver sent or sees nothing of it.
    pub(super) fn verdict(&self) -> Result<()> {
        if self.cases.is_empty() {
            return Err(Skipped("no case can run with the packages of today".to_owned()).into());
        }
        let failed: Vec<_> = self.cases.iter().filter(|case| case.result.is_err()).map(|case| &*case.name).collect();
        if !failed.is_empty() {
            bail!("these cases failed: {}", failed.join(", "));
        }
        let [driver, _] = self.sums();
        let expects_frames = self.cases.iter().any(|case| !WITHOUT_FRAMES.contains(&&*case.name));
        if driver.malformed > 0 || driver.bad_crcs > 0 {
            bail!("tshark finds faults in what the driver sent: {}", said(driver));
        }
        if expects_frames && driver.frames + driver.starts + driver.tunnelled == 0 {
            bail!("tshark sees nothing of the driver: the captures are empty, or it knows neither iWARP nor VXLAN");
        }
        Ok(())
    }
}

fn said(side: SideCount) -> String {
    let SideCount { frames, good_crcs, bad_crcs, starts, starts_with_crc, rejections, tunnelled, malformed } = side;
    format!(
        "{frames} frames, {good_crcs} good and {bad_crcs} bad CRCs, {starts} frames of start-up, {starts_with_crc} of them with the CRC flag, {rejections} that reject; {tunnelled} \
         in VXLAN; {malformed} malformed"
    )
}

fn short(side: SideCount) -> String {
    format!("{} frames of the driver, {} malformed, {} bad CRCs", side.frames, side.malformed, side.bad_crcs)
}

fn counts(side: SideCount) -> Value {
    let SideCount { frames, good_crcs, bad_crcs, starts, starts_with_crc, rejections, tunnelled, malformed } = side;
    json!({
        "frames": frames, "good_crcs": good_crcs, "bad_crcs": bad_crcs, "starts": starts, "starts_with_crc": starts_with_crc,
        "rejections": rejections, "tunnelled": tunnelled, "malformed": malformed,
    })
}
