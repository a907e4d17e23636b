//! `ndkctl bench`: transfers beside memcpy of the same size, over the same memory, in the same run.
//!
//! A row is measured in rounds, transfer and memcpy alternately, so that both see the same machine; the median round is reported.
//! The number of requests of a round is found by a pilot run, so that no clock is read while measuring.

#[cfg(not(windows))]
use crate::arguments::HostMode;
use crate::arguments::{BenchArguments, OperationName, PairArguments, Registration};
use crate::client::{Client, TransferBuffer};
use crate::failure::{Failure, Kind};
use crate::pair::{PairSize, with_pair};
use crate::ping::compare;
use crate::progress::Progress;
use crate::transport::Device;
use crate::units;
use serde::Serialize;
use softndk_ioctl::{MemcpyRequest, PairCreateReply, RequestHeader, TransferFlags, TransferRequest, TransferResult};
use std::fmt;
use std::time::Duration;
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Style};

/// Rounds per row: odd, so that there is a middle one.
const ROUNDS: u32 = 5;
/// Requests of the pilot run.
const PILOT: u64 = 2_000;
/// Most requests of a round, should the clock stand still.
const ROUND_MAX: u64 = 200_000_000;
/// Requests smaller than this walk through a region of this length.
const SMALL_REGION: u64 = 4096;

/// What a row measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub operation: OperationName,
    pub registration: Registration,
    pub size: u32,
    pub chain: u32,
    pub depth: u32,
    pub sge: u32,
}

/// The rows without `--operation`.
pub const STANDARD_ROWS: [Row; 3] = [
    Row {
        operation: OperationName::Read,
        registration: Registration::Registered,
        size: 8,
        chain: 16,
        depth: 16,
        sge: 1,
    },
    Row {
        operation: OperationName::Read,
        registration: Registration::Registered,
        size: 65_536,
        chain: 1,
        depth: 1,
        sge: 1,
    },
    Row {
        operation: OperationName::Send,
        registration: Registration::Registered,
        size: 64,
        chain: 1,
        depth: 1,
        sge: 1,
    },
];

/// What `bench` measured.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    pub rows: Vec<BenchRowReport>,
    /// The driver was built without optimisation.
    pub debug_build: bool,
    /// Nanoseconds that the longest DPC took; none where the system does not report it.
    pub longest_dpc_ns: Option<u64>,
}

/// One row: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct BenchRowReport {
    pub operation: OperationName,
    pub registration: Registration,
    pub size: u32,
    pub chain: u32,
    pub depth: u32,
    pub sge: u32,
    /// Requests measured, all rounds.
    pub requests: u64,
    pub ns_per_request: f64,
    pub megabytes_per_second: f64,
    pub memcpy_ns: f64,
    pub memcpy_megabytes_per_second: f64,
    /// Request time over memcpy time.
    pub ratio: f64,
}

/// Measures the rows that the arguments ask for.
pub fn run<D: Device>(
    client: &Client<D>,
    arguments: &BenchArguments,
    debug_build: bool,
    progress: Progress,
) -> Result<BenchReport, Failure> {
    let rows = rows(arguments)?;
    let bar = progress.operations(rows.len() as u64 * u64::from(ROUNDS), "bench");
    #[cfg(not(windows))]
    kernel_host::deferred_budget::measure();
    let mut reports = Vec::new();
    for row in rows {
        reports.push(measure(client, &arguments.pair, row, arguments.time(), || bar.inc(1))?);
    }
    bar.finish_and_clear();
    Ok(BenchReport { rows: reports, debug_build, longest_dpc_ns: longest_dpc() })
}

#[cfg(not(windows))]
fn longest_dpc() -> Option<u64> {
    u64::try_from(kernel_host::deferred_budget::longest().as_nanos()).ok()
}

#[cfg(windows)]
fn longest_dpc() -> Option<u64> {
    None
}

fn rows(arguments: &BenchArguments) -> Result<Vec<Row>, Failure> {
    let Some(operation) = arguments.operation else { return Ok(STANDARD_ROWS.to_vec()) };
    let (chain, depth) = (arguments.chain, arguments.depth.unwrap_or(arguments.chain));
    if chain > depth {
        return Err(Failure::new(
            Kind::Usage,
            format!("cannot have {chain} requests in a chain with {depth} outstanding"),
            "a chain is outstanding as a whole",
            "choose --depth of at least --chain",
        ));
    }
    let (registration, size, sge) = (arguments.registration, arguments.size, arguments.sge);
    Ok(vec![Row { operation, registration, size, chain, depth, sge }])
}

fn measure<D: Device>(
    client: &Client<D>,
    ends: &PairArguments,
    row: Row,
    time: Duration,
    round_done: impl Fn(),
) -> Result<BenchRowReport, Failure> {
    with_pair(client, ends, PairSize { depth: row.depth, sge: row.sge, shared: false }, |pair| {
        let mut buffer = client.allocate(region_length(row.size))?;
        fastrand::Rng::with_seed(u64::from(row.size)).fill(buffer.source_mut());
        let round = time / ROUNDS;
        let transfers = requests_for(&transfer(client, pair, row, PILOT, &mut buffer)?, round, row.chain);
        let copies = requests_for(&memcpy(client, row, PILOT, &mut buffer)?, round, 1);
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            buffer.destination_mut().fill(0);
            let moved = transfer(client, pair, row, transfers, &mut buffer)?;
            compare(&buffer, "bench")?;
            rounds.push((moved, memcpy(client, row, copies, &mut buffer)?));
            round_done();
        }
        report(row, &rounds)
    })
}

/// Small requests walk through a page, large ones use one region of their size again and again.
fn region_length(size: u32) -> u64 {
    let size = u64::from(size);
    // A whole number of strides, so that every request has the same length.
    if size == 0 || size >= SMALL_REGION { size } else { SMALL_REGION / size * size }
}

/// Requests that take about `time`, in whole chains, and at least one pass through the region.
fn requests_for(pilot: &TransferResult, time: Duration, chain: u32) -> u64 {
    let per_request = pilot.elapsed as f64 / pilot.completed.max(1) as f64;
    let wanted = time.as_nanos() as f64 / per_request.max(0.1);
    // A float cast saturates.
    let wanted = (wanted as u64).clamp(SMALL_REGION, ROUND_MAX);
    wanted.next_multiple_of(u64::from(chain.max(1)))
}

fn transfer<D: Device>(
    client: &Client<D>,
    pair: &PairCreateReply,
    row: Row,
    count: u64,
    buffer: &mut TransferBuffer<D::Buffer>,
) -> Result<TransferResult, Failure> {
    let request = TransferRequest {
        header: RequestHeader::of::<TransferRequest>(),
        pair: pair.pair,
        operation: row.operation.into(),
        region_kind: row.registration.into(),
        flags: TransferFlags::empty(),
        region_length: buffer.region_length(),
        request_count: count,
        request_length: row.size,
        sge_count: row.sge,
        depth: row.depth,
        chain_length: row.chain,
        time_budget: 0,
        signal_interval: 0,
    };
    let result = client.transfer(&request, buffer)?;
    all_done(&result, count)
}

fn memcpy<D: Device>(
    client: &Client<D>,
    row: Row,
    count: u64,
    buffer: &mut TransferBuffer<D::Buffer>,
) -> Result<TransferResult, Failure> {
    let request = MemcpyRequest {
        header: RequestHeader::of::<MemcpyRequest>(),
        region_length: buffer.region_length(),
        request_count: count,
        request_length: row.size,
        flags: TransferFlags::empty(),
        time_budget: 0,
        reserved: 0,
    };
    let result = client.memcpy(&request, buffer)?;
    all_done(&result, count)
}

fn all_done(result: &TransferResult, count: u64) -> Result<TransferResult, Failure> {
    if result.completed == count {
        return Ok(*result);
    }
    Err(Failure::new(
        Kind::Refused,
        "cannot trust the measurement",
        format!("{} of {count} requests completed", result.completed),
        "this is a fault of the driver; please report it",
    ))
}

fn report(row: Row, rounds: &[(TransferResult, TransferResult)]) -> Result<BenchRowReport, Failure> {
    let per_request = |results: Vec<TransferResult>| {
        median(results.iter().map(|result| result.elapsed as f64 / result.completed.max(1) as f64).collect())
    };
    let transfers = per_request(rounds.iter().map(|(moved, _)| *moved).collect());
    let copies = per_request(rounds.iter().map(|(_, copied)| *copied).collect());
    let (Some(ns_per_request), Some(memcpy_ns)) = (transfers, copies) else { return Err(no_time()) };
    let rate = |nanoseconds: f64| f64::from(row.size) * 1_000.0 / nanoseconds;
    Ok(BenchRowReport {
        operation: row.operation,
        registration: row.registration,
        size: row.size,
        chain: row.chain,
        depth: row.depth,
        sge: row.sge,
        requests: rounds.iter().map(|(moved, _)| moved.completed).sum(),
        ns_per_request,
        megabytes_per_second: rate(ns_per_request),
        memcpy_ns,
        memcpy_megabytes_per_second: rate(memcpy_ns),
        ratio: ns_per_request / memcpy_ns,
    })
}

/// The middle one; nothing if there is none or it is no time at all.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().filter(|&value| value > 0.0)
}

fn no_time() -> Failure {
    Failure::new(
        Kind::Refused,
        "cannot measure",
        "the driver's clock did not move",
        "give the run more time with --time",
    )
}

/// Times are measured only where time is real.
#[cfg(not(windows))]
pub fn check_mode(mode: HostMode) -> Result<(), Failure> {
    if mode == HostMode::Verify {
        return Err(Failure::new(
            Kind::Usage,
            "cannot measure",
            "time is virtual in the kernel host's verify mode",
            "use --mode fast",
        ));
    }
    Ok(())
}

impl fmt::Display for BenchReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Builder::default();
        table.push_record(["request", "time", "rate", "memcpy", "memcpy rate", "ratio"]);
        for row in &self.rows {
            table.push_record(row.cells());
        }
        let mut table = table.build();
        table.with(Style::rounded()).modify(Columns::new(1..), Alignment::right());
        write!(formatter, "{table}")?;
        if let Some(longest) = self.longest_dpc_ns {
            write!(formatter, "\nLongest DPC: {}.", units::duration(longest as f64))?;
        }
        if self.debug_build {
            write!(formatter, "\nThis is a debug build of the driver: its speed says nothing.")?;
        }
        Ok(())
    }
}

impl BenchRowReport {
    fn cells(&self) -> [String; 6] {
        let rate = |megabytes: f64| if self.size == 0 { "-".to_owned() } else { format!("{megabytes:.0} MB/s") };
        [
            self.name(),
            units::duration(self.ns_per_request),
            rate(self.megabytes_per_second),
            units::duration(self.memcpy_ns),
            rate(self.memcpy_megabytes_per_second),
            format!("{:.2}", self.ratio),
        ]
    }

    fn name(&self) -> String {
        let operation = match self.operation {
            OperationName::Read => "Read",
            OperationName::Write => "Write",
            OperationName::Send => "Send",
        };
        let mut parts = vec![format!("{operation} {}", units::size(u64::from(self.size)))];
        if self.chain > 1 {
            parts.push(format!("chains of {}", self.chain));
        }
        if self.depth > self.chain {
            parts.push(format!("depth {}", self.depth));
        }
        if self.sge > 1 {
            parts.push(format!("{} SGEs", self.sge));
        }
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::{BenchReport, ROUND_MAX, Row, STANDARD_ROWS, median, region_length, report, requests_for, rows};
    use crate::arguments::{Arguments, BenchArguments, Command};
    use crate::failure::Kind;
    use clap::Parser;
    use softndk_ioctl::TransferResult;
    use std::time::Duration;

    fn arguments(line: &str) -> BenchArguments {
        let words = ["ndkctl", "bench"].into_iter().chain(line.split_whitespace());
        match Arguments::try_parse_from(words).unwrap().command {
            Command::Bench(bench) => bench,
            _ => unreachable!("the line says bench"),
        }
    }

    fn result(completed: u64, elapsed: u64) -> TransferResult {
        TransferResult { completed, elapsed, ..TransferResult::EMPTY }
    }

    #[test]
    fn the_standard_rows_are_the_three() {
        let sizes: Vec<(u32, u32)> = rows(&arguments("")).unwrap().iter().map(|row| (row.size, row.chain)).collect();
        assert_eq!(sizes, [(8, 16), (65_536, 1), (64, 1)]);
    }

    #[test]
    fn an_own_row_has_at_least_a_chain_outstanding() {
        let own = rows(&arguments("--operation write --size 1M --chain 4")).unwrap();
        assert_eq!((own.len(), own[0].size, own[0].depth), (1, 1 << 20, 4));
        let refused = rows(&arguments("--operation write --chain 4 --depth 3")).unwrap_err();
        assert_eq!(refused.kind, Kind::Usage);
    }

    #[test]
    fn every_request_of_a_row_has_the_same_length() {
        for size in [0, 1, 3, 8, 64, 100, 4095, 4096, 4097, 65_536] {
            let region = region_length(size);
            assert!(size == 0 || region.is_multiple_of(u64::from(size)), "{size}");
        }
    }

    #[test]
    fn a_round_is_as_long_as_wanted_in_whole_chains() {
        let wanted = requests_for(&result(1000, 100_000), Duration::from_millis(10), 16);
        assert_eq!(wanted, 100_000);
        assert!(requests_for(&result(1000, 100_000), Duration::from_millis(10), 7).is_multiple_of(7));
        assert_eq!(requests_for(&result(0, 0), Duration::from_hours(1), 1), ROUND_MAX);
        assert_eq!(requests_for(&result(1, u64::MAX), Duration::from_millis(1), 1), 4096);
    }

    #[test]
    fn the_median_is_reported_beside_memcpy() {
        let row: Row = STANDARD_ROWS[1];
        let rounds = [(3000, 1000), (9000, 500), (2000, 2000)];
        let rounds: Vec<_> = rounds.map(|(moved, copied)| (result(10, moved), result(10, copied))).to_vec();
        let report = report(row, &rounds).unwrap();
        assert_eq!((report.ns_per_request, report.memcpy_ns, report.ratio), (300.0, 100.0, 3.0));
        assert_eq!(report.requests, 30);
        let report = BenchReport { rows: vec![report], debug_build: true, longest_dpc_ns: Some(84_000) };
        let text = report.to_string();
        assert!(text.contains("Read 64 KiB") && text.contains("300 ns") && text.contains("3.00"), "{text}");
        assert!(text.contains("debug build") && text.contains("Longest DPC: 84"), "{text}");
        assert_eq!(serde_json::to_value(&report).unwrap()["rows"][0]["ratio"], 3.0);
    }

    #[test]
    fn a_clock_that_stands_still_is_a_failure_and_not_a_rate() {
        let rounds = vec![(result(10, 0), result(10, 0)); 3];
        assert_eq!(report(STANDARD_ROWS[0], &rounds).unwrap_err().kind, Kind::Refused);
        assert_eq!(median(Vec::new()), None);
    }
}
