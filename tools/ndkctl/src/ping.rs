//! `ndkctl ping`: one request at a time, each timed by the driver from posting to taking its completion.

use crate::arguments::{OperationName, PingArguments, Registration};
use crate::client::{Client, TransferBuffer};
use crate::failure::{Failure, Kind};
use crate::pair::{PairSize, ends, with_pair};
use crate::progress::Progress;
use crate::transport::{Device, DirectBuffer};
use crate::units;
use serde::Serialize;
use softndk_ioctl::{Histogram, PairCreateReply, RequestHeader, TransferFlags, TransferRequest};
use std::fmt;
use std::thread;
use std::time::Duration;

/// Requests per transfer when there is no interval: enough to amortise the IOCTL, few enough to update the bar often.
const BATCH: u64 = 1000;

/// What `ping` measured. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct PingReport {
    pub operation: OperationName,
    pub registration: Registration,
    pub size: u32,
    pub ends: String,
    pub sent: u64,
    pub received: u64,
    pub min: u64,
    pub median: u64,
    pub p99: u64,
    pub max: u64,
    pub mean: u64,
}

/// Pings.
pub fn run<D: Device>(
    client: &Client<D>,
    arguments: &PingArguments,
    progress: Progress,
) -> Result<PingReport, Failure> {
    with_pair(client, &arguments.pair, PairSize { depth: 1, sge: 1, shared: false }, |pair| {
        let mut buffer = client.allocate(u64::from(arguments.size))?;
        let mut latency = Histogram::EMPTY;
        let bar = progress.operations(arguments.count, "ping");
        let batch = if arguments.interval > 0 { 1 } else { BATCH };
        let mut sent = 0;
        while sent < arguments.count {
            if sent > 0 && arguments.interval > 0 {
                thread::sleep(Duration::from_millis(u64::from(arguments.interval)));
            }
            let count = batch.min(arguments.count - sent);
            latency.merge(&ping_batch(client, arguments, pair, count, sent, &mut buffer)?);
            sent += count;
            bar.set_position(sent);
        }
        bar.finish_and_clear();
        report(arguments, ends(pair), sent, &latency)
    })
}

fn ping_batch<D: Device>(
    client: &Client<D>,
    arguments: &PingArguments,
    pair: &PairCreateReply,
    count: u64,
    seed: u64,
    buffer: &mut TransferBuffer<D::Buffer>,
) -> Result<Histogram, Failure> {
    fastrand::Rng::with_seed(seed).fill(buffer.source_mut());
    let request = TransferRequest {
        header: RequestHeader::of::<TransferRequest>(),
        pair: pair.pair,
        operation: arguments.operation.into(),
        region_kind: arguments.registration.into(),
        flags: TransferFlags::MEASURE_LATENCY,
        region_length: buffer.region_length(),
        request_count: count,
        request_length: arguments.size,
        sge_count: 1,
        depth: 1,
        chain_length: 1,
        time_budget: 0,
        signal_interval: 0,
    };
    let result = client.transfer(&request, buffer)?;
    compare(buffer, "ping")?;
    if result.completed != count || result.latency.count != count {
        return Err(Failure::new(
            Kind::Refused,
            "cannot trust the pings",
            format!("of {count} requests {} completed and {} were timed", result.completed, result.latency.count),
            "this is a fault of the driver; please report it",
        ));
    }
    Ok(result.latency)
}

/// Whether all bytes of the source are in the destination.
pub fn compare<B: DirectBuffer>(buffer: &TransferBuffer<B>, command: &str) -> Result<(), Failure> {
    if buffer.source() == buffer.destination() {
        return Ok(());
    }
    let pairs = buffer.source().iter().zip(buffer.destination());
    let first = pairs.take_while(|(sent, received)| sent == received).count();
    Err(Failure::new(
        Kind::Corrupt,
        format!("{command}: the bytes that arrived are not those that were sent"),
        format!("the first difference is at byte {first} of {}", buffer.region_length()),
        "this is a fault of the driver; please report it",
    ))
}

fn report(arguments: &PingArguments, ends: String, sent: u64, latency: &Histogram) -> Result<PingReport, Failure> {
    let numbers = (latency.quantile(500), latency.quantile(990), latency.mean());
    let (Some(median), Some(p99), Some(mean)) = numbers else {
        return Err(Failure::new(
            Kind::Refused,
            "cannot summarise the pings",
            "the driver's histogram is empty",
            "this is a fault of the driver; please report it",
        ));
    };
    Ok(PingReport {
        operation: arguments.operation,
        registration: arguments.registration,
        size: arguments.size,
        ends,
        sent,
        received: latency.count,
        min: latency.min,
        median,
        p99,
        max: latency.max,
        mean,
    })
}

impl fmt::Display for PingReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |nanoseconds: u64| units::duration(nanoseconds as f64);
        let name = match self.operation {
            OperationName::Read => "reads",
            OperationName::Write => "writes",
            OperationName::Send => "sends",
        };
        writeln!(
            formatter,
            "{} {name} of {} from {}: {} answered, all bytes compared",
            units::count(self.sent),
            units::size(u64::from(self.size)),
            self.ends,
            units::count(self.received)
        )?;
        write!(
            formatter,
            "min {}, median {}, p99 {}, max {}",
            time(self.min),
            time(self.median),
            time(self.p99),
            time(self.max)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Histogram, PingReport, report};
    use crate::arguments::{Arguments, Command, OperationName, Registration};
    use clap::Parser;

    #[test]
    fn a_report_reads_well_and_serialises() {
        let report = PingReport {
            operation: OperationName::Read,
            registration: Registration::Fast,
            size: 64,
            ends: "10.0.0.1:5 to 10.0.0.2:6".to_owned(),
            sent: 10_000,
            received: 10_000,
            min: 900,
            median: 1_100,
            p99: 4_000,
            max: 2_000_000,
            mean: 1_200,
        };
        let text = report.to_string();
        assert!(text.contains("10 000 reads of 64 B"), "{text}");
        assert!(text.contains("min 900 ns, median 1.10 µs, p99 4.00 µs, max 2.00 ms"), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["operation"], &json["registration"]), (&"read".into(), &"fast".into()));
        assert_eq!(json["p99"], 4_000);
    }

    #[test]
    fn every_number_is_that_of_its_name() {
        let words = "ndkctl ping --size 48 --count 101".split_whitespace();
        let Command::Ping(asked) = Arguments::try_parse_from(words).unwrap().command else { unreachable!("ping") };
        let mut latency = Histogram::EMPTY;
        (1..=100).for_each(|time| latency.record(time * 16));
        let report = report(&asked, "a to b".to_owned(), 101, &latency).unwrap();
        assert_eq!((report.size, report.sent, report.received), (48, 101, 100));
        assert_eq!((report.min, report.max, report.mean), (16, 1_600, 808));
        assert!(report.median.abs_diff(800) <= 50 && report.p99.abs_diff(1_584) <= 99, "{report:?}");
        assert!(super::report(&asked, String::new(), 1, &Histogram::EMPTY).is_err());
    }
}
