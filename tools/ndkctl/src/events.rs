//! `ndkctl events`: what happened in the driver last, and with `--follow` what happens now.
//!
//! The driver keeps a ring of numbered events; a reader that is slower than they come sees by the numbers what is missing.

use crate::arguments::EventsArguments;
use crate::client::Client;
use crate::failure::Failure;
use crate::output::{self, Printed};
use crate::refusals::{self, place_of};
use crate::transport::Device;
use crate::units;
use serde::Serialize;
use softndk_ioctl::{EventEntry, EventKind};
use std::fmt;
use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;
use tabled::builder::Builder;
use tabled::settings::Style;

/// Between two looks for new events.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// What `events` found, oldest first.
#[derive(Clone, Debug, Serialize)]
pub struct EventsReport {
    pub events: Vec<EventReport>,
}

/// One event. What it does not have is null.
#[derive(Clone, Debug, Serialize)]
pub struct EventReport {
    /// The driver's first event has 1.
    pub number: u64,
    /// Nanoseconds since.
    pub age: u64,
    /// What happened, in words.
    pub event: String,
    /// Its number.
    pub event_code: u32,
    /// NET_LUID of the adapter.
    pub net_luid: Option<u64>,
    /// Kind of the object: a connector, or what a refused call was made on.
    pub kind: Option<String>,
    /// Its number, as `objects` shows it.
    pub object: Option<u64>,
    /// The refused call.
    pub call: Option<String>,
    /// By name.
    pub status: Option<String>,
    /// The number of the status.
    pub code: Option<u32>,
    /// What ended a connection or an attempt.
    pub end: Option<String>,
    /// Why a call was refused, in a sentence.
    pub cause: Option<String>,
    /// The rule of docs/rules.md that demands it.
    pub rule: Option<String>,
    /// At whose memory or receive.
    pub place: Option<String>,
    /// Of a connection.
    pub local: Option<SocketAddr>,
    pub peer: Option<SocketAddr>,
    pub processor: u32,
}

/// Lists them, or prints them one by one.
pub(crate) fn run<D: Device>(
    client: &Client<D>,
    consumer: impl FnOnce() -> Result<Client<D>, Failure>,
    arguments: &EventsArguments,
    as_json: bool,
) -> Result<Printed, Failure> {
    if let Some(file) = &arguments.script {
        refusals::run_script(&consumer()?, file)?;
    }
    let mut next = 0;
    let kept = client.events(&mut next)?;
    let skipped = arguments.last.map_or(0, |last| kept.len().saturating_sub(last));
    let kept = kept.iter().skip(skipped).map(EventReport::of).collect::<Vec<_>>();
    if !arguments.follow {
        return crate::run::printed(EventsReport { events: kept });
    }
    let mut left = arguments.count.unwrap_or(u64::MAX);
    let mut due = kept;
    loop {
        for event in due {
            show(&event, as_json, &mut stdout())?;
            left -= 1;
            if left == 0 {
                return Ok(Printed::nothing());
            }
        }
        thread::sleep(BETWEEN_LOOKS);
        due = client.events(&mut next)?.iter().map(EventReport::of).collect();
    }
}

/// One event as a line, at once: who follows events wants them now.
fn show(event: &EventReport, as_json: bool, out: &mut impl Write) -> Result<(), Failure> {
    let written = if as_json {
        serde_json::to_string(event).map_err(std::io::Error::from).and_then(|line| writeln!(out, "{line}"))
    } else {
        writeln!(out, "{event}")
    };
    output::flushed(written, out)
}

impl EventReport {
    fn of(entry: &EventEntry) -> Self {
        let named = |number: u32, text: String| (number != 0).then_some(text);
        let has_status =
            [EventKind::ADAPTER_FAILED, EventKind::UPLINK_FAILED, EventKind::REFUSED].contains(&entry.event);
        let address = |which: usize| {
            let address = [&entry.local, &entry.peer][which].ip()?;
            Some(SocketAddr::new(address, entry.ports[which]))
        };
        Self {
            number: entry.number,
            age: entry.age,
            event: entry.event.to_string(),
            event_code: entry.event.0,
            net_luid: (entry.net_luid != 0).then_some(entry.net_luid),
            kind: named(entry.kind.0, entry.kind.to_string()),
            object: (entry.object != 0).then_some(entry.object),
            call: named(entry.call.0, entry.call.to_string()),
            status: has_status.then(|| entry.status().to_string()),
            code: has_status.then_some(entry.status.cast_unsigned()),
            end: named(entry.end.0, entry.end.to_string()),
            cause: named(entry.cause.0, entry.cause.to_string()),
            rule: entry.cause.rule(entry.call).map(str::to_owned),
            place: place_of(entry.place),
            local: address(0),
            peer: address(1),
            processor: entry.processor,
        }
    }

    /// On what: an adapter, an object, an object with its addresses.
    fn subject(&self) -> String {
        let object = match (&self.kind, self.object) {
            (Some(kind), Some(number)) => format!("{kind} #{number}"),
            (None, Some(number)) => format!("process {number}"),
            _ => self.net_luid.map_or_else(String::new, |luid| format!("adapter {luid:#x}")),
        };
        match (self.local, self.peer) {
            (Some(local), Some(peer)) => format!("{object} {local} - {peer}"),
            (Some(local), None) => format!("{object} {local}"),
            _ => object,
        }
    }

    /// Why, as far as it has a reason.
    fn reason(&self) -> String {
        let parts = [&self.call, &self.status, &self.end, &self.cause, &self.place, &self.rule];
        parts.into_iter().flatten().cloned().collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for EventReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.number, self.event)?;
        for part in [self.subject(), self.reason()].iter().filter(|part| !part.is_empty()) {
            write!(formatter, "; {part}")?;
        }
        Ok(())
    }
}

impl fmt::Display for EventsReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.events.is_empty() {
            return write!(formatter, "no events");
        }
        let mut builder = Builder::default();
        builder.push_record(["", "event", "of", "why", "ago"]);
        for event in &self.events {
            let age = units::duration(event.age as f64);
            builder.push_record([event.number.to_string(), event.event.clone(), event.subject(), event.reason(), age]);
        }
        write!(formatter, "{}", builder.build().with(Style::psql()))
    }
}

#[cfg(test)]
mod tests {
    use super::{EventReport, EventsReport, show};
    use softndk_ioctl::{
        AdapterAddress, ConnectionEnd, EventEntry, EventKind, NdkCall, ObjectKind, RefusalCause, RefusalPlace, Status,
    };
    use std::net::Ipv4Addr;

    fn ended() -> EventEntry {
        EventEntry {
            number: 7,
            age: 2_000_000,
            event: EventKind::CONNECTION_ENDED,
            object: 17,
            kind: ObjectKind::CONNECTOR,
            end: ConnectionEnd::PEER_CLOSED,
            ports: [5001, 49_152],
            local: AdapterAddress::new(Ipv4Addr::new(10, 77, 0, 1).into(), 32, 0),
            peer: AdapterAddress::new(Ipv4Addr::new(10, 77, 0, 2).into(), 32, 0),
            processor: 3,
            ..EventEntry::NONE
        }
    }

    #[test]
    fn an_end_of_a_connection_has_its_addresses_and_its_reason() {
        let line = EventReport::of(&ended()).to_string();
        assert_eq!(
            line,
            "7 connection ended; connector #17 10.77.0.1:5001 - 10.77.0.2:49152; \
             the peer closed its connector without disconnecting"
        );
    }

    #[test]
    fn a_refusal_has_call_status_cause_place_and_rule() {
        let refused = EventEntry {
            event: EventKind::REFUSED,
            object: 4,
            kind: ObjectKind::QUEUE_PAIR,
            call: NdkCall::READ,
            status: Status::NO_MORE_ENTRIES.0,
            cause: RefusalCause::RESULT_NO_RIGHT,
            place: RefusalPlace::PEER_SOURCE,
            ..ended()
        };
        let event = EventReport::of(&EventEntry { end: ConnectionEnd(0), ..refused });
        let json = serde_json::to_value(&event).expect("plain data");
        assert_eq!((&json["code"], &json["rule"]), (&0x8000_001A_u32.into(), &"NDK-MR-10".into()));
        for part in ["queue pair #4", "NdkRead", "STATUS_NO_MORE_ENTRIES", "does not grant the right", "as a source"] {
            assert!(event.to_string().contains(part), "{part} is missing: {event}");
        }
    }

    #[test]
    fn what_an_event_does_not_have_is_null() {
        let event = EventReport::of(&EventEntry { number: 1, event: EventKind::DRIVER_LOADED, ..EventEntry::NONE });
        let json = serde_json::to_value(&event).expect("plain data");
        for field in
            ["net_luid", "kind", "object", "call", "status", "code", "end", "cause", "rule", "place", "local", "peer"]
        {
            assert!(json[field].is_null(), "{field}");
        }
        assert_eq!(event.to_string(), "1 driver loaded");
        let failed = EventEntry { event: EventKind::ADAPTER_FAILED, net_luid: 0x10, status: -1, ..EventEntry::NONE };
        assert!(EventReport::of(&failed).to_string().contains("adapter 0x10"), "{}", EventReport::of(&failed));
        assert!(EventsReport { events: vec![event] }.to_string().contains("driver loaded"));
        assert_eq!(EventsReport { events: vec![] }.to_string(), "no events");
    }

    #[test]
    fn who_follows_gets_a_line_an_event() {
        let (mut text, mut json) = (Vec::new(), Vec::new());
        show(&EventReport::of(&ended()), false, &mut text).unwrap();
        show(&EventReport::of(&ended()), true, &mut json).unwrap();
        assert!(text.starts_with(b"7 connection ended") && text.ends_with(b"\n"));
        let line = serde_json::from_slice::<serde_json::Value>(&json).unwrap();
        assert_eq!((&line["number"], &line["processor"], &line["age"]), (&7.into(), &3.into(), &2_000_000.into()));
        assert_eq!(json.iter().position(|byte| *byte == b'\n'), Some(json.len() - 1), "one line");
    }
}
