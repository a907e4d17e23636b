//! `ndkctl objects`: every live NDK object of the driver, what it is doing, and what holds it.
//!
//! The driver lists for each object which ones it keeps; inverted, that is what still holds an object that does not close.

use crate::arguments::{ObjectsArguments, PairArguments};
use crate::client::Client;
use crate::failure::Failure;
use crate::pair::{PairSize, with_pair};
use crate::transport::Device;
use crate::units;
use serde::Serialize;
use softndk_ioctl::{AdapterEntry, ObjectEntry, ObjectKind, ObjectState, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use tabled::builder::Builder;
use tabled::settings::Style;

/// What `objects` found.
#[derive(Clone, Debug, Serialize)]
pub struct ObjectsReport {
    pub objects: Vec<ObjectReport>,
    /// Live objects of each kind, by name.
    pub counts: BTreeMap<String, u64>,
    #[serde(skip)]
    tree: bool,
}

/// One object.
#[derive(Clone, Debug, Serialize)]
pub struct ObjectReport {
    pub number: u64,
    pub kind: String,
    pub state: String,
    pub adapter: u32,
    /// Number of the NDK_ADAPTER it belongs to; null when that is gone already.
    pub open: Option<u64>,
    /// `foreign`, or `session` and its id.
    pub owner: String,
    /// Nanoseconds.
    pub age: u64,
    /// Objects it keeps.
    pub keeps: Vec<u64>,
    /// Objects that keep it.
    pub held_by: Vec<u64>,
    /// Its consumer has not closed it.
    pub held_by_consumer: bool,
    /// Requests and callbacks under way that keep it.
    pub held_by_requests: u32,
    /// Of a queue pair, so of a connection: bytes so far, with headers as the adapter's counters count them.
    pub traffic: Option<ObjectTraffic>,
}

/// Bytes of a queue pair.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ObjectTraffic {
    pub sent: u64,
    pub received: u64,
}

/// Lists the objects; with `--example` while a pair is connected, so that there is something to see.
pub fn run<D: Device>(
    client: &Client<D>,
    consumer: impl FnOnce() -> Result<Client<D>, Failure>,
    arguments: &ObjectsArguments,
) -> Result<ObjectsReport, Failure> {
    let entries = if arguments.example {
        let pair = PairArguments { client: 0, server: 1, ..PairArguments::default() };
        with_pair(&consumer()?, &pair, PairSize { depth: 1, sge: 1, shared: false }, |_| client.object_list())?
    } else {
        client.object_list()?
    };
    if let Some(adapter) = arguments.adapter {
        require(adapter, &entries, &client.adapters()?)?;
    }
    Ok(report(&entries, arguments))
}

/// An empty list means that the adapter has no objects, not that there is no such adapter. One that is gone may still have some.
fn require(adapter: u32, objects: &[ObjectEntry], adapters: &[AdapterEntry]) -> Result<(), Failure> {
    let known = adapters.iter().any(|entry| entry.index == adapter);
    if known || objects.iter().any(|entry| entry.adapter == adapter) {
        return Ok(());
    }
    Err(Failure::refused(format!("cannot list the objects of adapter {adapter}"), Status::DEVICE_DOES_NOT_EXIST))
}

fn report(entries: &[ObjectEntry], arguments: &ObjectsArguments) -> ObjectsReport {
    let by_number: BTreeMap<u64, &ObjectEntry> = entries.iter().map(|entry| (entry.number, entry)).collect();
    let mut counts = BTreeMap::new();
    let wanted = |entry: &&ObjectEntry| {
        arguments.adapter.is_none_or(|adapter| entry.adapter == adapter)
            && (!arguments.closing || entry.state == ObjectState::CLOSING)
    };
    let mut objects = Vec::new();
    for entry in entries.iter().filter(wanted) {
        *counts.entry(entry.kind.to_string()).or_insert(0) += 1;
        let open = root(entry, &by_number);
        let held_by = entries.iter().filter(|other| other.antecedents.contains(&entry.number));
        let closing = entry.state == ObjectState::CLOSING;
        objects.push(ObjectReport {
            number: entry.number,
            kind: entry.kind.to_string(),
            state: entry.state.to_string(),
            adapter: entry.adapter,
            open: open.map(|open| open.number),
            owner: open.map_or_else(|| "gone".to_owned(), owner),
            age: entry.age,
            keeps: keeps(entry),
            held_by: held_by.map(|other| other.number).collect(),
            held_by_consumer: !closing,
            held_by_requests: entry.holds.saturating_sub(entry.dependants).saturating_sub(u32::from(!closing)),
            traffic: (entry.kind == ObjectKind::QUEUE_PAIR)
                .then_some(ObjectTraffic { sent: entry.sent, received: entry.received }),
        });
    }
    objects.sort_by_key(|object| (object.adapter, object.open, object.number));
    ObjectsReport { objects, counts, tree: arguments.tree }
}

/// What an object keeps, each once: a queue pair may use one completion queue for both directions.
fn keeps(entry: &ObjectEntry) -> Vec<u64> {
    let numbers: BTreeSet<u64> = entry.antecedents.iter().copied().filter(|&number| number != 0).collect();
    numbers.into_iter().collect()
}

/// The NDK_ADAPTER an object was made from: over what it keeps, as far as that is listed. Bounded, whatever the driver reports.
fn root<'entries>(
    entry: &'entries ObjectEntry,
    by_number: &BTreeMap<u64, &'entries ObjectEntry>,
) -> Option<&'entries ObjectEntry> {
    let mut level = vec![entry];
    for _ in 0..8 {
        if let Some(open) = level.iter().find(|entry| entry.kind == ObjectKind::ADAPTER) {
            return Some(open);
        }
        let next = level.iter().flat_map(|entry| entry.antecedents);
        level = next.filter_map(|number| by_number.get(&number).copied()).collect();
    }
    None
}

fn owner(open: &ObjectEntry) -> String {
    match open.session {
        0 => "foreign".to_owned(),
        id => format!("session 0x{id:X}"),
    }
}

impl ObjectReport {
    fn bytes(&self, which: impl FnOnce(ObjectTraffic) -> u64) -> String {
        self.traffic.map(|traffic| units::count(which(traffic))).unwrap_or_default()
    }

    fn holders(&self) -> String {
        let mut holders = Vec::new();
        if self.held_by_consumer {
            holders.push("its consumer".to_owned());
        }
        if !self.held_by.is_empty() {
            holders.push(numbers(&self.held_by));
        }
        match self.held_by_requests {
            0 => {}
            1 => holders.push("1 request or callback".to_owned()),
            count => holders.push(format!("{count} requests or callbacks")),
        }
        if holders.is_empty() { "nothing".to_owned() } else { holders.join(", ") }
    }
}

fn numbers(numbers: &[u64]) -> String {
    let list: Vec<String> = numbers.iter().map(|number| format!("#{number}")).collect();
    list.join(" ")
}

impl fmt::Display for ObjectsReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.objects.is_empty() {
            return write!(formatter, "no live objects");
        }
        let text = if self.tree { self.as_tree() } else { self.as_table() };
        writeln!(formatter, "{text}")?;
        let counts: Vec<String> = self.counts.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
        write!(formatter, "{} objects: {}", units::count(self.objects.len() as u64), counts.join(", "))
    }
}

impl ObjectsReport {
    fn as_table(&self) -> String {
        let mut builder = Builder::default();
        builder.push_record(["", "kind", "state", "adapter", "owner", "age", "sent", "received", "keeps", "held by"]);
        for object in &self.objects {
            builder.push_record([
                format!("#{}", object.number),
                object.kind.clone(),
                object.state.clone(),
                object.adapter.to_string(),
                object.owner.clone(),
                units::duration(object.age as f64),
                object.bytes(|traffic| traffic.sent),
                object.bytes(|traffic| traffic.received),
                numbers(&object.keeps),
                object.holders(),
            ]);
        }
        builder.build().with(Style::psql()).to_string()
    }

    /// Each object under those it keeps: a queue pair appears below its domain and below each of its completion queues.
    fn as_tree(&self) -> String {
        let by_number: BTreeMap<u64, &ObjectReport> =
            self.objects.iter().map(|object| (object.number, object)).collect();
        let mut text = String::new();
        for object in &self.objects {
            // Roots: opens, and whatever keeps nothing that is listed.
            if !object.keeps.iter().any(|number| by_number.contains_key(number)) {
                branch(&mut text, object, &by_number, 0);
            }
        }
        text.trim_end().to_owned()
    }
}

/// Deeper than any chain of antecedents.
const DEPTH_MAX: usize = 8;

fn branch(text: &mut String, object: &ObjectReport, by_number: &BTreeMap<u64, &ObjectReport>, depth: usize) {
    let owner = if depth == 0 { format!(", adapter {}, {}", object.adapter, object.owner) } else { String::new() };
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{:indent$}#{} {}: {}, {} old{owner}; held by {}",
        "",
        object.number,
        object.kind,
        object.state,
        units::duration(object.age as f64),
        object.holders(),
        indent = depth * 4
    );
    if depth < DEPTH_MAX {
        for next in object.held_by.iter().filter_map(|number| by_number.get(number)) {
            branch(text, next, by_number, depth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::report;
    use crate::arguments::ObjectsArguments;
    use softndk_ioctl::{ObjectEntry, ObjectKind, ObjectState};

    fn entry(number: u64, kind: ObjectKind, antecedents: &[u64]) -> ObjectEntry {
        let mut keeps = [0; 6];
        keeps[..antecedents.len()].copy_from_slice(antecedents);
        ObjectEntry {
            number,
            age: 1_500_000,
            antecedents: keeps,
            kind,
            state: ObjectState::OPEN,
            holds: 1,
            dependants: 0,
            adapter: 0,
            session: 0,
            sent: 0,
            received: 0,
        }
    }

    /// An open of a session, its domain being closed, and a queue pair that holds it back.
    fn example() -> Vec<ObjectEntry> {
        vec![
            ObjectEntry { session: 0x1FF, dependants: 1, holds: 2, ..entry(1, ObjectKind::ADAPTER, &[]) },
            ObjectEntry {
                state: ObjectState::CLOSING,
                dependants: 1,
                holds: 3,
                ..entry(2, ObjectKind::PROTECTION_DOMAIN, &[1])
            },
            ObjectEntry { sent: 4_096, received: 70_000, ..entry(3, ObjectKind::QUEUE_PAIR, &[2]) },
        ]
    }

    #[test]
    fn a_table_says_who_holds_what() {
        let report = report(&example(), &ObjectsArguments::default());
        let domain = &report.objects[1];
        assert_eq!((domain.owner.as_str(), domain.open), ("session 0x1FF", Some(1)));
        assert_eq!((&domain.held_by[..], domain.held_by_consumer, domain.held_by_requests), (&[3][..], false, 2));
        assert_eq!(report.objects[2].open, Some(1));
        let text = report.to_string();
        assert!(text.contains("#3, 2 requests or callbacks"), "{text}");
        assert!(text.contains("| 4 096 | 70 000   |"), "{text}");
        assert!(domain.traffic.is_none());
        assert!(text.contains("3 objects: 1 × adapter"), "{text}");
    }

    #[test]
    fn a_tree_puts_each_object_below_what_it_keeps() {
        let report = report(&example(), &ObjectsArguments { tree: true, ..ObjectsArguments::default() });
        let text = report.to_string();
        assert!(text.contains("\n    #2 protection domain: closing"), "{text}");
        assert!(text.contains("\n        #3 queue pair"), "{text}");
    }

    #[test]
    fn filters_leave_what_was_asked_for() {
        let closing = report(&example(), &ObjectsArguments { closing: true, ..ObjectsArguments::default() });
        assert_eq!(closing.objects.len(), 1);
        let other = report(&example(), &ObjectsArguments { adapter: Some(1), ..ObjectsArguments::default() });
        assert_eq!(other.to_string(), "no live objects");
    }

    /// A driver that reports cycles of holders gets a listing that ends.
    #[test]
    fn a_circle_ends() {
        let circle = [entry(5, ObjectKind::LISTENER, &[6]), entry(6, ObjectKind::LISTENER, &[5])];
        let report = report(&circle, &ObjectsArguments { tree: true, ..ObjectsArguments::default() });
        assert_eq!(report.objects[0].owner, "gone");
        assert!(report.to_string().contains("2 objects"));
    }
}
