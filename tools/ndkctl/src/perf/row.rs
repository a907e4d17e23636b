//! What is measured: the rows that a command line asks for, and the request for one.

use crate::arguments::{Level, Measure, PairArguments, PerfArguments, PerfOperation, Registration};
use crate::failure::{Failure, Kind};
use crate::units;
use serde::Serialize;
use softndk_ioctl::{BUFFER_ALIGNMENT, MeasureFlags, MeasureRequest, MeasuredOperation, RequestHeader};

/// Places of requests shorter than a page lie in one page.
const SMALL: u32 = BUFFER_ALIGNMENT as u32;
/// Bytes that longer requests take turns in, unless one is longer.
const PLACES: u32 = 1 << 20;
/// Sizes of the standard table and defaults of others.
const LATENCY_SIZE: u32 = 8;
const BANDWIDTH_SIZE: u32 = 65_536;
/// Requests outstanding when nothing else is said.
const DEPTH: u32 = 16;
/// Pages of a fast registration when nothing else is said.
const PAGES: u32 = 256;
/// What queue pairs of `connect` are made for: the bytes of an idle one are those of one with this many elements.
const CONNECT_SGES: u32 = 4;
/// The sizes of a sweep: powers of two.
const SWEEP: std::ops::RangeInclusive<u32> = 3..=20;

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    pub operation: PerfOperation,
    pub measure: Measure,
    /// Bytes of one request.
    pub size: u32,
    pub chain: u32,
    pub depth: u32,
    pub connections: u32,
    pub processors: u32,
    pub at: Level,
    /// Of a fast registration.
    pub pages: Option<u32>,
    pub scattered: bool,
    pub sge: u32,
    pub registration: Registration,
    pub inline: bool,
    /// Completions are waited for by notification.
    pub notify: bool,
}

impl Row {
    pub const fn transfers(&self) -> bool {
        matches!(self.operation, PerfOperation::Read | PerfOperation::Write | PerfOperation::Send)
    }

    /// Bytes of source and destination of each processor: requests in flight at the same time have places of their own, as far as
    /// there are. Other registrations than the plain one may be too small for more than one.
    pub fn region_length(&self) -> u64 {
        if self.size == 0 || !self.transfers() {
            return u64::from(self.size);
        }
        let places = if self.size < SMALL {
            self.depth.min(SMALL / self.size)
        } else if self.measure == Measure::Latency || self.registration != Registration::Registered {
            1
        } else {
            self.depth.min(PLACES / self.size).max(1)
        };
        u64::from(self.size) * u64::from(places)
    }

    /// The request that does it so often on each processor.
    pub fn request(&self, ends: &PairArguments, count: u64) -> MeasureRequest {
        let mut flags = MeasureFlags::empty();
        flags.set(MeasureFlags::INLINE, self.inline);
        flags.set(MeasureFlags::NOTIFY, self.notify);
        flags.set(MeasureFlags::AT_DISPATCH, self.at == Level::Dispatch);
        flags.set(MeasureFlags::SCATTERED, self.scattered);
        MeasureRequest {
            header: RequestHeader::of::<MeasureRequest>(),
            client_adapter: ends.client,
            server_adapter: ends.server,
            family: ends.family.into(),
            reserved: 0,
            operation: self.operation.into(),
            region_kind: self.registration.into(),
            flags,
            region_length: self.region_length(),
            request_count: count,
            request_length: self.size,
            sge_count: self.sge,
            depth: self.depth,
            chain_length: self.chain,
            connection_count: self.connections,
            processor_count: self.processors,
        }
    }

    /// The request that makes so many connections of a `connect` row and leaves them idle.
    pub fn idle_request(&self, ends: &PairArguments, connections: u32) -> MeasureRequest {
        let operation = MeasuredOperation::IDLE;
        MeasureRequest { operation, connection_count: connections, ..self.request(ends, 0) }
    }

    /// "Read 8 B, chains of 16".
    pub fn name(&self) -> String {
        let size = units::size(u64::from(self.size));
        let first = match self.operation {
            PerfOperation::Read | PerfOperation::Write | PerfOperation::Send => format!("{} {size}", self.verb()),
            PerfOperation::FastRegister => format!("FastRegister {} pages, Invalidate", self.pages.unwrap_or(0)),
            PerfOperation::Connect => "connect, disconnect".to_owned(),
            PerfOperation::Notify => format!("Read {size} to notification"),
        };
        let depth = (self.transfers() && self.depth > self.chain).then(|| format!("depth {}", self.depth));
        self.with_remarks(first, depth)
    }

    /// "Read, one at a time": what the rows of a sweep have in common.
    pub fn title(&self) -> String {
        let depth = if self.depth == 1 { "one at a time".to_owned() } else { format!("depth {}", self.depth) };
        self.with_remarks(self.verb().to_owned(), Some(depth))
    }

    const fn verb(&self) -> &'static str {
        match self.operation {
            PerfOperation::Read => "Read",
            PerfOperation::Write => "Write",
            PerfOperation::Send => "Send",
            PerfOperation::FastRegister => "FastRegister",
            PerfOperation::Connect => "connect",
            PerfOperation::Notify => "Read to notification",
        }
    }

    /// What is unusual, behind what is done.
    fn with_remarks(&self, first: String, depth: Option<String>) -> String {
        let mut parts = vec![first];
        let mut part = |there: bool, text: String| parts.extend(there.then_some(text));
        part(self.chain > 1, format!("chains of {}", self.chain));
        part(depth.is_some(), depth.unwrap_or_default());
        part(self.connections > 1, format!("{} connections", units::count(u64::from(self.connections))));
        part(self.processors > 1, format!("{} processors", self.processors));
        part(self.transfers() && self.sge > 1, format!("{} SGEs", self.sge));
        part(self.scattered, "scattered".to_owned());
        part(self.inline, "inline".to_owned());
        part(self.notify, "notified".to_owned());
        part(self.at == Level::Dispatch, "at DISPATCH_LEVEL".to_owned());
        parts.join(", ")
    }
}

/// The rows of a command line.
pub fn rows(arguments: &PerfArguments) -> Result<Vec<Row>, Failure> {
    let Some(operation) = arguments.operation else { return Ok(standard_rows(arguments.pair.notify)) };
    let first = one(operation, arguments);
    check(&first, arguments)?;
    let sizes = if arguments.sweep { SWEEP.map(|power| 1 << power).collect() } else { arguments.size.clone() };
    if sizes.is_empty() {
        return Ok(vec![first]);
    }
    Ok(sizes.into_iter().map(|size| Row { size, ..first }).collect())
}

/// Read, Write and Send: 8 bytes one at a time, and 64 KiB.
fn standard_rows(notify: bool) -> Vec<Row> {
    let operations = [PerfOperation::Read, PerfOperation::Write, PerfOperation::Send];
    let measures = [(Measure::Latency, LATENCY_SIZE, 1), (Measure::Bandwidth, BANDWIDTH_SIZE, DEPTH)];
    let row = |operation, (measure, size, depth)| Row {
        operation,
        measure,
        size,
        chain: 1,
        depth,
        connections: 1,
        processors: 1,
        at: Level::Passive,
        pages: None,
        scattered: false,
        sge: 1,
        registration: Registration::Registered,
        inline: false,
        notify,
    };
    operations.iter().flat_map(|operation| measures.map(|measure| row(*operation, measure))).collect()
}

/// The row that the options describe, with the default size.
fn one(operation: PerfOperation, arguments: &PerfArguments) -> Row {
    let transfers = matches!(operation, PerfOperation::Read | PerfOperation::Write | PerfOperation::Send);
    let measure = arguments.measure.unwrap_or(if transfers { Measure::Bandwidth } else { Measure::Latency });
    let pages = (operation == PerfOperation::FastRegister).then(|| arguments.pages.unwrap_or(PAGES));
    let (chain, depth) = match (operation, measure) {
        (PerfOperation::Connect, _) => (1, arguments.depth.unwrap_or(DEPTH)),
        (_, Measure::Latency) => (arguments.chain.unwrap_or(1), arguments.depth.unwrap_or(1)),
        (_, Measure::Bandwidth) => {
            let chain = arguments.chain.unwrap_or(1);
            (chain, arguments.depth.unwrap_or(if arguments.chain.is_some() { chain } else { DEPTH }))
        }
    };
    let size = match (operation, measure) {
        (PerfOperation::FastRegister, _) => pages.unwrap_or(0).saturating_mul(SMALL),
        (PerfOperation::Connect, _) => 0,
        (_, Measure::Latency) => LATENCY_SIZE,
        (_, Measure::Bandwidth) => BANDWIDTH_SIZE,
    };
    Row {
        operation,
        measure,
        size,
        chain,
        depth,
        connections: arguments.connections,
        processors: arguments.processors,
        at: arguments.at,
        pages,
        scattered: arguments.scattered,
        sge: if operation == PerfOperation::Connect { CONNECT_SGES } else { arguments.sge },
        registration: arguments.registration,
        inline: arguments.inline,
        notify: arguments.pair.notify,
    }
}

/// Options that do not go together.
fn check(row: &Row, arguments: &PerfArguments) -> Result<(), Failure> {
    let operation = row.operation;
    let (latency, several) = (row.measure == Measure::Latency, row.connections > 1 || row.processors > 1);
    let fixed = matches!(operation, PerfOperation::FastRegister | PerfOperation::Connect);
    let sized = arguments.sweep || !arguments.size.is_empty();
    let faults = [
        (row.chain > row.depth, "a chain is outstanding as a whole", "choose --depth of at least --chain"),
        (
            latency && row.transfers() && row.depth > 1,
            "latency is that of one request at a time",
            "leave --chain and --depth out, or choose --measure bandwidth",
        ),
        (
            !row.transfers() && (!latency || several || row.chain > 1 || row.at == Level::Dispatch || row.notify),
            "this operation is done one at a time, on one connection of one processor at PASSIVE_LEVEL",
            "leave --measure, --chain, --connections, --processors, --at and --notify out",
        ),
        (
            fixed && sized,
            "this operation has no sizes",
            "leave --size and --sweep out (--pages says how much is registered)",
        ),
        (
            !row.transfers() && row.registration != Registration::Registered,
            "only read, write and send have a choice of registrations",
            "leave --registration out",
        ),
        (
            operation == PerfOperation::Send && row.registration == Registration::Window,
            "a send does not address the server's memory",
            "choose another --registration",
        ),
        (
            operation != PerfOperation::FastRegister && (row.scattered || arguments.pages.is_some()),
            "--pages and --scattered are about fast registrations",
            "choose --operation fast-register",
        ),
        (
            row.inline && !matches!(operation, PerfOperation::Write | PerfOperation::Send),
            "inline data are data that the client posts",
            "choose --operation write or send",
        ),
        (
            row.notify && row.at == Level::Dispatch,
            "a thread cannot wait at DISPATCH_LEVEL",
            "leave --notify or --at dispatch out",
        ),
    ];
    match faults.into_iter().find(|(fault, ..)| *fault) {
        Some((_, cause, next_step)) => Err(Failure::new(Kind::Usage, "cannot measure this", cause, next_step)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;

    fn asked(line: &str) -> Result<Vec<Row>, Failure> {
        let words = ["ndkctl", "perf"].into_iter().chain(line.split_whitespace());
        match Arguments::try_parse_from(words).unwrap().command {
            Command::Perf(perf) => rows(&perf),
            _ => unreachable!("the line says perf"),
        }
    }

    fn only(line: &str) -> Row {
        match asked(line).unwrap()[..] {
            [row] => row,
            ref rows => panic!("{line}: {rows:?}"),
        }
    }

    #[test]
    fn the_standard_table_has_two_rows_of_each_transfer() {
        let rows = asked("").unwrap();
        let sizes: Vec<_> = rows.iter().map(|row| (row.operation, row.size, row.depth)).collect();
        assert_eq!(sizes.len(), 6);
        assert_eq!(sizes[..2], [(PerfOperation::Read, 8, 1), (PerfOperation::Read, 65_536, 16)]);
    }

    #[test]
    fn chains_and_depths_have_defaults() {
        for (line, chain, depth, size) in [
            ("--operation read", 1, 16, 65_536),
            ("--operation read --measure latency", 1, 1, 8),
            ("--operation write --chain 4 --size 1M", 4, 4, 1 << 20),
            ("--operation send --chain 4 --depth 64 --size 64", 4, 64, 64),
            ("--operation fast-register", 1, 1, 256 * 4096),
            ("--operation fast-register --pages 2 --scattered", 1, 1, 8192),
            ("--operation connect", 1, 16, 0),
            ("--operation notify", 1, 1, 8),
        ] {
            let row = only(line);
            assert_eq!((row.chain, row.depth, row.size), (chain, depth, size), "{line}");
        }
        assert_eq!(asked("--operation read --sweep").unwrap().len(), 18);
        assert_eq!(asked("--operation read --size 8,4K,1M").unwrap().len(), 3);
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for line in [
            "--operation write --chain 4 --depth 3",
            "--operation read --measure latency --chain 2 --depth 2",
            "--operation read --measure latency --depth 2",
            "--operation read --inline",
            "--operation read --scattered",
            "--operation read --pages 4",
            "--operation read --notify --at dispatch",
            "--operation send --registration window",
            "--operation fast-register --size 8",
            "--operation fast-register --sweep",
            "--operation fast-register --connections 2",
            "--operation connect --processors 2",
            "--operation connect --at dispatch",
            "--operation connect --registration fast",
            "--operation notify --measure bandwidth",
            "--operation notify --notify",
        ] {
            assert_eq!(asked(line).unwrap_err().kind, Kind::Usage, "{line}");
        }
    }

    #[test]
    fn every_row_is_a_request_that_the_driver_takes() {
        let lines = [
            "",
            "--operation read --sweep --connections 7 --processors 2",
            "--operation write --size 0,1,3,8,100,4095,4096,4097,1M --inline --chain 16 --sge 3",
            "--operation send --size 64 --chain 16 --depth 64 --at dispatch",
            "--operation fast-register --scattered --pages 7",
            "--operation connect",
            "--operation notify --size 64",
        ];
        for row in lines.iter().flat_map(|line| asked(line).unwrap()) {
            let request = row.request(&PairArguments::default(), 160);
            assert!(request.check_fields().is_ok(), "{row:?}: {request:?}");
        }
        assert!(only("--operation connect").idle_request(&PairArguments::default(), 101).check_fields().is_ok());
    }

    #[test]
    fn title_says_operation_and_depth_and_no_size() {
        for (line, title) in [
            ("--operation read --measure latency --size 8,64", "Read, one at a time"),
            ("--operation write --size 8,64 --chain 4 --depth 16", "Write, chains of 4, depth 16"),
            ("--operation notify --size 8,64", "Read to notification, one at a time"),
        ] {
            assert!(asked(line).unwrap().iter().all(|row| row.title() == title), "{title}");
        }
    }

    #[test]
    fn names_say_what_is_unusual() {
        for (line, name) in [
            ("--operation read --measure latency", "Read 8 B"),
            ("--operation read --size 8 --chain 16 --depth 32", "Read 8 B, chains of 16, depth 32"),
            ("--operation fast-register --scattered", "FastRegister 256 pages, Invalidate, scattered"),
            ("--operation connect", "connect, disconnect"),
            (
                "--operation send --size 64 --depth 1 --connections 1000 --processors 2 --at dispatch --inline",
                "Send 64 B, 1 000 connections, 2 processors, inline, at DISPATCH_LEVEL",
            ),
        ] {
            assert_eq!(only(line).name(), name);
        }
    }
}
