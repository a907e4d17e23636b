//! `ndkctl refusals`: the calls that the driver refused last, on which object, with which status, and why.

use crate::arguments::{RefusalsArguments, ReplayArguments};
use crate::client::Client;
use crate::failure::{Failure, Kind};
use crate::replay;
use crate::transport::Device;
use crate::units;
use serde::Serialize;
use softndk_ioctl::{RefusalEntry, RefusalPlace};
use std::fmt;
use std::path::Path;
use tabled::builder::Builder;
use tabled::settings::Style;

/// What `refusals` found, oldest first.
#[derive(Clone, Debug, Serialize)]
pub struct RefusalsReport {
    pub refusals: Vec<RefusalReport>,
}

/// One refusal.
#[derive(Clone, Debug, Serialize)]
pub struct RefusalReport {
    /// The driver's first refusal has 1.
    pub number: u64,
    /// Nanoseconds since.
    pub age: u64,
    pub call: String,
    /// Kind of the object that the call was made on; null when the call named none.
    pub kind: Option<String>,
    /// Its number, as `objects` shows it.
    pub object: Option<u64>,
    /// By name.
    pub status: String,
    /// The number of the status.
    pub code: u32,
    /// Why, in a sentence.
    pub cause: String,
    /// The number of the cause.
    pub cause_code: u32,
    /// At whose memory or receive, in words; null where that was not the reason.
    pub place: Option<String>,
    /// `call`, `completion`, `result` or `peer's result`.
    pub way: String,
    pub irql: u32,
    pub processor: u32,
}

/// Lists them.
pub fn run<D: Device>(
    client: &Client<D>,
    consumer: impl FnOnce() -> Result<Client<D>, Failure>,
    arguments: &RefusalsArguments,
) -> Result<RefusalsReport, Failure> {
    if let Some(file) = &arguments.script {
        run_script(&consumer()?, file)?;
    }
    Ok(report(&client.refusals()?, arguments.last))
}

/// The newest so many.
#[cfg(not(windows))]
pub(crate) fn last<D: Device>(client: &Client<D>, count: usize) -> Result<RefusalsReport, Failure> {
    Ok(report(&client.refusals()?, Some(count)))
}

/// Runs a script for what it leaves on the driver's lists; whether it passed is not checked.
pub(crate) fn run_script<D: Device>(consumer: &Client<D>, file: &Path) -> Result<(), Failure> {
    match replay::run(consumer, &ReplayArguments { file: file.to_owned() }) {
        Err(failure) if failure.kind != Kind::Corrupt => Err(failure),
        _ => Ok(()),
    }
}

/// In words; none where that was not the reason.
pub(crate) fn place_of(place: RefusalPlace) -> Option<String> {
    (place.0 != 0).then(|| place.to_string())
}

fn report(entries: &[RefusalEntry], last: Option<usize>) -> RefusalsReport {
    let skipped = last.map_or(0, |last| entries.len().saturating_sub(last));
    let describe = |entry: &RefusalEntry| RefusalReport {
        number: entry.number,
        age: entry.age,
        call: entry.call.to_string(),
        kind: (entry.object != 0).then(|| entry.kind.to_string()),
        object: (entry.object != 0).then_some(entry.object),
        status: entry.status().to_string(),
        code: entry.status.cast_unsigned(),
        cause: entry.cause.to_string(),
        cause_code: entry.cause.0,
        place: place_of(entry.place),
        way: entry.way.to_string(),
        irql: entry.irql,
        processor: entry.processor,
    };
    RefusalsReport { refusals: entries.iter().skip(skipped).map(describe).collect() }
}

impl fmt::Display for RefusalsReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.refusals.is_empty() {
            return write!(formatter, "no refusals");
        }
        let mut builder = Builder::default();
        builder.push_record(["", "call", "object", "reported by", "status", "why", "ago"]);
        for refusal in &self.refusals {
            let object = match (&refusal.kind, refusal.object) {
                (Some(kind), Some(number)) => format!("{kind} #{number}"),
                _ => "-".to_owned(),
            };
            builder.push_record([
                refusal.number.to_string(),
                refusal.call.clone(),
                object,
                refusal.way.clone(),
                refusal.status.clone(),
                refusal
                    .place
                    .as_ref()
                    .map_or_else(|| refusal.cause.clone(), |place| format!("{} ({place})", refusal.cause)),
                units::duration(refusal.age as f64),
            ]);
        }
        write!(formatter, "{}", builder.build().with(Style::psql()))
    }
}

#[cfg(test)]
mod tests {
    use super::report;
    use softndk_ioctl::{NdkCall, ObjectKind, RefusalCause, RefusalEntry, RefusalPlace, RefusalWay, Status};

    fn entry(number: u64) -> RefusalEntry {
        RefusalEntry {
            number,
            age: 2_000_000,
            object: 17,
            kind: ObjectKind::QUEUE_PAIR,
            call: NdkCall::SEND,
            status: Status::NO_MORE_ENTRIES.0,
            cause: RefusalCause::POST_QUEUE_FULL,
            way: RefusalWay::CALL,
            irql: 2,
            processor: 1,
            place: RefusalPlace(0),
        }
    }

    #[test]
    fn a_refusal_is_shown_by_names() {
        let text = report(&[entry(4)], None).to_string();
        for part in ["NdkSend", "queue pair #17", "STATUS_NO_MORE_ENTRIES", "as many requests are outstanding", "call"]
        {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
    }

    #[test]
    fn a_call_on_nothing_has_no_object_and_the_newest_are_kept() {
        let nothing = RefusalEntry { object: 0, kind: ObjectKind(0), ..entry(9) };
        let report = report(&[entry(7), entry(8), nothing], Some(2));
        let numbers = report.refusals.iter().map(|refusal| refusal.number).collect::<Vec<_>>();
        assert_eq!(numbers, [8, 9]);
        let json = serde_json::to_value(&report).expect("plain data");
        assert_eq!(json["refusals"][1]["object"], serde_json::Value::Null);
        assert_eq!(json["refusals"][0]["code"], 0x8000_001A_u32);
        assert!(super::report(&[], None).to_string().contains("no refusals"));
    }

    #[test]
    fn every_number_is_that_of_its_name() {
        let report = report(&[entry(4)], None);
        let seen = &report.refusals[0];
        assert_eq!((seen.number, seen.age, seen.object), (4, 2_000_000, Some(17)));
        assert_eq!((seen.code, seen.cause_code), (0x8000_001A, RefusalCause::POST_QUEUE_FULL.0));
        assert_eq!((seen.irql, seen.processor, &*seen.way), (2, 1, "call"));
    }
}
