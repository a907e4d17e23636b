//! `ndkctl send`, `read` and `write`: many requests of one kind, with the flags that the kind has.
//!
//! One connection for all sizes. Without `--verify` the numbers are those of `perf` without the memcpy rows; with it every byte
//! that the requests cover is compared.

use crate::arguments::{OperationName, ReadArguments, Registration, SendArguments, StreamArguments, WriteArguments};
use crate::client::{Client, TransferBuffer};
use crate::failure::{Failure, Kind};
use crate::pair::{PairSize, ends, with_pair};
use crate::progress::Progress;
use crate::transport::Device;
use crate::units;
use serde::Serialize;
use softndk_ioctl::{PairCreateReply, RequestHeader, TransferFlags, TransferRequest, TransferResult};
use std::fmt;
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Style};

/// Requests smaller than this walk through a region of about this length.
const SMALL_REGION: u32 = 4096;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Stream<'arguments> {
    operation: OperationName,
    common: &'arguments StreamArguments,
    flags: TransferFlags,
    /// Receives are posted to a shared receive queue.
    shared: bool,
}

impl<'arguments> Stream<'arguments> {
    fn new(operation: OperationName, common: &'arguments StreamArguments, own: &[(TransferFlags, bool)]) -> Self {
        let shared = [
            (TransferFlags::READ_FENCE, common.fence),
            (TransferFlags::REMOTE_INVALIDATE, common.invalidate),
            // Every request by itself: what is timed is one request.
            (TransferFlags::MEASURE_LATENCY, common.depth == 1),
        ];
        let mut flags = TransferFlags::empty();
        for (flag, wanted) in own.iter().copied().chain(shared) {
            flags.set(flag, wanted);
        }
        Self { operation, common, flags, shared: false }
    }

    #[must_use]
    pub fn send(arguments: &'arguments SendArguments) -> Self {
        let own = [(TransferFlags::INLINE, arguments.inline), (TransferFlags::SOLICITED, arguments.solicited)];
        Self { shared: arguments.srq, ..Self::new(OperationName::Send, &arguments.stream, &own) }
    }

    #[must_use]
    pub fn read(arguments: &'arguments ReadArguments) -> Self {
        let own = [(TransferFlags::LOCAL_INVALIDATE, arguments.local_invalidate)];
        Self::new(OperationName::Read, &arguments.stream, &own)
    }

    #[must_use]
    pub fn write(arguments: &'arguments WriteArguments) -> Self {
        Self::new(OperationName::Write, &arguments.stream, &[(TransferFlags::INLINE, arguments.inline)])
    }

    /// Checks that the definition of the command line cannot express.
    fn check(&self) -> Result<(), Failure> {
        let common = self.common;
        let refuse =
            |cause: String, next_step: &str| Err(Failure::new(Kind::Usage, "cannot do that", cause, next_step));
        if common.deferred > common.depth {
            let cause = format!("a chain of {} does not fit a depth of {}", common.deferred, common.depth);
            return refuse(cause, "choose --depth at least as large as --deferred");
        }
        if !matches!(common.moderation.len(), 0 | 2) {
            return refuse("--moderation takes two numbers".to_owned(), "for example --moderation 50,16");
        }
        let fast = common.memory == Registration::Fast;
        let send = self.operation == OperationName::Send;
        if self.flags.contains(TransferFlags::LOCAL_INVALIDATE) && !(fast && common.duration.is_none()) {
            return refuse(
                "only fast-registered memory can be invalidated by a read".to_owned(),
                "add --memory fast, and use --count",
            );
        }
        if common.invalidate
            && (common.memory == Registration::Registered || send && !(fast && common.duration.is_none()))
        {
            return refuse(
                "memory of this kind cannot be invalidated by the peer".to_owned(),
                "add --memory fast (a send also needs --count)",
            );
        }
        if send && common.memory == Registration::Window {
            return refuse(
                "a message goes into a receive, not through a window".to_owned(),
                "use read or write with --memory window",
            );
        }
        Ok(())
    }

    fn sizes(&self) -> Vec<u32> {
        if self.common.all { (1..=23).map(|power| 1 << power).collect() } else { self.common.size.clone() }
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct StreamReport {
    pub operation: OperationName,
    pub memory: Registration,
    pub ends: String,
    pub depth: u32,
    pub sges: u32,
    pub deferred: u32,
    /// Names of the options that were on.
    pub options: Vec<&'static str>,
    pub rows: Vec<StreamRowReport>,
}

/// One size. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct StreamRowReport {
    pub size: u32,
    pub requests: u64,
    pub bytes: u64,
    pub elapsed: u64,
    pub ns_per_request: Option<f64>,
    pub megabytes_per_second: Option<f64>,
    /// With a depth of 1.
    pub median: Option<u64>,
    pub p99: Option<u64>,
    /// Completion queue notifications taken.
    pub notifications: u64,
    /// Bytes compared.
    pub verified: u64,
}

/// Runs every size over one connection.
pub fn run<D: Device>(client: &Client<D>, stream: &Stream<'_>, progress: Progress) -> Result<StreamReport, Failure> {
    stream.check()?;
    let common = stream.common;
    let size = PairSize { depth: common.depth, sge: common.sges, shared: stream.shared };
    with_pair(client, &common.pair, size, |pair| {
        if let [interval, count] = common.moderation[..] {
            client.moderate(pair.pair, interval, count)?;
        }
        let sizes = stream.sizes();
        let bar = progress.operations(sizes.len() as u64, "sizes");
        let mut rows = Vec::new();
        for size in sizes {
            rows.push(row(client, stream, pair, size)?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(StreamReport {
            operation: stream.operation,
            memory: common.memory,
            ends: ends(pair),
            depth: common.depth,
            sges: common.sges,
            deferred: common.deferred,
            options: options(stream),
            rows,
        })
    })
}

fn options(stream: &Stream<'_>) -> Vec<&'static str> {
    let common = stream.common;
    let all = [
        ("inline", stream.flags.contains(TransferFlags::INLINE)),
        ("fence", common.fence),
        ("silent", common.silent.is_some()),
        ("shared receive queue", stream.shared),
        ("solicited", stream.flags.contains(TransferFlags::SOLICITED)),
        ("invalidate", common.invalidate),
        ("local invalidate", stream.flags.contains(TransferFlags::LOCAL_INVALIDATE)),
        ("notify", common.pair.notify),
        ("moderation", !common.moderation.is_empty()),
        ("verify", common.verify),
    ];
    all.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect()
}

/// Whole strides, so that every request has the same length.
fn region_length(size: u32) -> u64 {
    u64::from(if size == 0 || size >= SMALL_REGION { size } else { SMALL_REGION / size * size })
}

fn row<D: Device>(
    client: &Client<D>,
    stream: &Stream<'_>,
    pair: &PairCreateReply,
    size: u32,
) -> Result<StreamRowReport, Failure> {
    let common = stream.common;
    let mut buffer = client.allocate(region_length(size))?;
    fastrand::Rng::with_seed(u64::from(size)).fill(buffer.source_mut());
    let count = if common.duration.is_some() { 0 } else { common.count };
    let request = TransferRequest {
        header: RequestHeader::of::<TransferRequest>(),
        pair: pair.pair,
        operation: stream.operation.into(),
        region_kind: common.memory.into(),
        flags: stream.flags,
        region_length: buffer.region_length(),
        request_count: count,
        request_length: size,
        sge_count: common.sges,
        depth: common.depth,
        chain_length: common.deferred,
        time_budget: common.duration.map_or(0, |seconds| seconds.saturating_mul(1000)),
        signal_interval: common.silent.unwrap_or(0),
    };
    let result = client.transfer(&request, &mut buffer)?;
    let requests = result.succeeded();
    if count != 0 && requests != count {
        return Err(Failure::new(
            Kind::Refused,
            format!("cannot trust the requests of {}", units::size(u64::from(size))),
            format!("of {count} {} completed and {} were silent", result.completed, result.silent),
            "this is a fault of the driver; please report it",
        ));
    }
    let verified = if common.verify { verify(&buffer, size, requests)? } else { 0 };
    Ok(numbers(size, &result, verified))
}

fn numbers(size: u32, result: &TransferResult, verified: u64) -> StreamRowReport {
    let requests = result.succeeded();
    let latency = |part| (result.latency.count != 0).then(|| result.latency.quantile(part)).flatten();
    let per_request = (requests != 0 && result.elapsed != 0).then(|| result.elapsed as f64 / requests as f64);
    StreamRowReport {
        size,
        requests,
        bytes: result.bytes,
        elapsed: result.elapsed,
        ns_per_request: per_request,
        megabytes_per_second: units::megabytes_per_second(result.bytes, result.elapsed),
        median: latency(500),
        p99: latency(990),
        notifications: result.notifications,
        verified,
    }
}

/// Compares what the requests covered; how much that is.
fn verify<B: crate::transport::DirectBuffer>(
    buffer: &TransferBuffer<B>,
    size: u32,
    completed: u64,
) -> Result<u64, Failure> {
    let covered = completed.saturating_mul(u64::from(size)).min(buffer.region_length());
    let both = buffer.source().iter().zip(buffer.destination()).take(covered as usize);
    match both.enumerate().find(|(_, (sent, received))| sent != received) {
        None => Ok(covered),
        Some((first, _)) => Err(Failure::new(
            Kind::Corrupt,
            format!(
                "the bytes that arrived by requests of {} are not those that were sent",
                units::size(u64::from(size))
            ),
            format!("the first difference is at byte {first} of {covered}"),
            "this is a fault of the driver; please report it",
        )),
    }
}

impl fmt::Display for StreamReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.operation {
            OperationName::Read => "reads",
            OperationName::Write => "writes",
            OperationName::Send => "sends",
        };
        let options = if self.options.is_empty() { String::new() } else { format!(", {}", self.options.join(", ")) };
        writeln!(
            formatter,
            "{name} from {}: depth {}, chains of {}, {} scatter/gather elements{options}",
            self.ends, self.depth, self.deferred, self.sges
        )?;
        let mut table = Builder::default();
        table.push_record(["size", "requests", "per request", "MB/s", "median", "p99", "notifications", "compared"]);
        let dash = || "-".to_owned();
        for row in &self.rows {
            table.push_record([
                units::size(u64::from(row.size)),
                units::count(row.requests),
                row.ns_per_request.map_or_else(dash, units::duration),
                row.megabytes_per_second.map_or_else(dash, |rate| format!("{rate:.0}")),
                row.median.map_or_else(dash, |time| units::duration(time as f64)),
                row.p99.map_or_else(dash, |time| units::duration(time as f64)),
                units::count(row.notifications),
                if row.verified == 0 { dash() } else { units::size(row.verified) },
            ]);
        }
        let mut table = table.build();
        table.with(Style::psql()).modify(Columns::new(..), Alignment::right());
        write!(formatter, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::{Stream, numbers, region_length};
    use crate::arguments::{Arguments, Command};
    use clap::Parser;
    use softndk_ioctl::TransferResult;

    fn refused(line: &str) -> bool {
        let words = std::iter::once("ndkctl").chain(line.split_whitespace());
        let arguments = Arguments::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
        match &arguments.command {
            Command::Send(send) => Stream::send(send).check().is_err(),
            Command::Read(read) => Stream::read(read).check().is_err(),
            Command::Write(write) => Stream::write(write).check().is_err(),
            _ => unreachable!("the lines say send, read or write"),
        }
    }

    #[test]
    fn options_go_together_or_are_refused() {
        for line in [
            "send --inline -s 8,16 --solicited -e --moderation 20,4",
            "send --invalidate --memory fast",
            "read --local-invalidate --memory fast -n 5",
            "read --invalidate --memory window",
            "write -I -s 64 --silent 16 --deferred 4 -t 32 --fence --verify",
            "write --all --iters 10 --sge 2 --registration logical",
        ] {
            assert!(!refused(line), "{line}");
        }
        for line in [
            "send --memory window",
            "send --invalidate",
            "send --invalidate --memory fast -D 1",
            "read --local-invalidate",
            "write --invalidate",
            "write --deferred 65",
            "write --moderation 5",
        ] {
            assert!(refused(line), "{line}");
        }
    }

    #[test]
    fn regions_are_whole_strides() {
        for (size, length) in [(0, 0), (1, 4096), (7, 4095), (3000, 3000), (4096, 4096), (1 << 20, 1 << 20)] {
            assert_eq!(region_length(size), length);
        }
    }

    /// No two numbers are alike.
    #[test]
    fn every_number_of_a_row_is_that_of_its_name() {
        let mut result = TransferResult { completed: 30, silent: 70, posted: 101, failed: 1, ..TransferResult::EMPTY };
        (result.bytes, result.elapsed, result.setup, result.teardown) = (6_400, 50_000, 7, 9);
        result.notifications = 13;
        (1..=100).for_each(|time| result.latency.record(time * 16));
        let row = numbers(64, &result, 4_096);
        assert_eq!((row.size, row.requests, row.bytes, row.elapsed), (64, 100, 6_400, 50_000));
        assert_eq!((row.ns_per_request, row.megabytes_per_second), (Some(500.0), Some(128.0)));
        let (median, p99) = (row.median.unwrap(), row.p99.unwrap());
        assert!(median.abs_diff(800) <= 50 && p99.abs_diff(1_584) <= 99, "{median} and {p99}");
        assert_eq!((row.notifications, row.verified), (13, 4_096));
        let nothing = numbers(64, &TransferResult::EMPTY, 0);
        assert_eq!((nothing.ns_per_request, nothing.median, nothing.p99), (None, None, None));
    }
}
