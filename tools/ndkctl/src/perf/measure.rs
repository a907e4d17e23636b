//! One row: its pilot run, its rounds, and what they come to.

use super::row::Row;
use super::{Round, RowReport, host, memcpy};
use crate::arguments::{Measure, PerfArguments, PerfOperation};
use crate::client::{Client, TransferBuffer};
use crate::failure::{Failure, Kind};
use crate::transport::{Device, DirectBuffer};
use softndk_ioctl::{BUFFER_ALIGNMENT, Histogram, MeasureFlags, MeasureRequest, MeasureResult, scattered_page};
use std::collections::BTreeMap;
use std::time::Duration;

/// Requests of the first pilot run, at least.
const PILOT: u64 = 256;
/// A pilot run that takes less than this share of a round's time is followed by one that is so many times as long: the first ones find
/// nothing in the caches, and would have the rounds be short.
const PILOT_SHARE: u32 = 16;
const PILOT_GROWTH: u64 = 4;
/// Most requests of a round, should the clock stand still.
const ROUND_MAX: u64 = 200_000_000;
/// Most requests of the run with a clock.
const TIMED_MAX: u64 = 100_000;
/// What memcpy is measured for, of a round's time, and at least.
const MEMCPY_SHARE: u32 = 8;
const MEMCPY_TIME: Duration = Duration::from_millis(1);
/// Connections between which the pool is compared.
const FEW_CONNECTIONS: u32 = 1;
const MANY_CONNECTIONS: u32 = 101;

/// Measures a row.
pub fn row<D: Device>(
    client: &Client<D>,
    arguments: &PerfArguments,
    row: Row,
    round_done: impl Fn(),
) -> Result<(RowReport, BTreeMap<String, f64>), Failure> {
    let mut subject = Subject::new(client, arguments, row)?;
    let time = arguments.time / arguments.rounds;
    let count = subject.pilot(time)?;
    let mut results = Vec::new();
    let mut rounds = Vec::new();
    let memcpy_time = (time / MEMCPY_SHARE).max(MEMCPY_TIME);
    host::begin_rounds();
    for _ in 0..arguments.rounds {
        let memcpy_ns = subject.memcpy(memcpy_time);
        let result = subject.run(count, MeasureFlags::empty())?;
        let memcpy_again_ns = subject.memcpy(memcpy_time);
        rounds.push(Round { ns: time_of(&result, count), memcpy_ns, memcpy_again_ns });
        results.push(result);
        round_done();
    }
    let imports = host::imports_per_request(count.saturating_mul(u64::from(arguments.rounds)));
    let latency = if row.measure == Measure::Latency && row.transfers() {
        subject.run(count.min(whole_chains(TIMED_MAX, row.chain)), MeasureFlags::MEASURE_LATENCY)?.latency
    } else {
        let mut all = Histogram::EMPTY;
        for result in &results {
            all.merge(&result.latency);
        }
        all
    };
    let queue_pair_bytes = if row.operation == PerfOperation::Connect { subject.queue_pair_bytes()? } else { None };
    Ok((RowReport { queue_pair_bytes, ..report(row, count, rounds, &results, &latency)? }, imports))
}

/// What is measured, and its memory.
struct Subject<'a, D: Device> {
    client: &'a Client<D>,
    arguments: &'a PerfArguments,
    row: Row,
    buffer: TransferBuffer<D::Buffer>,
    pattern: fastrand::Rng,
}

impl<'a, D: Device> Subject<'a, D> {
    fn new(client: &'a Client<D>, arguments: &'a PerfArguments, row: Row) -> Result<Self, Failure> {
        let request = row.request(&arguments.pair, u64::from(row.chain));
        let layout = request.check_fields().map_err(|status| Failure::refused("cannot measure this", status))?;
        let pattern = fastrand::Rng::with_seed(u64::from(row.size));
        Ok(Self { client, arguments, row, buffer: client.allocate(layout.region_length)?, pattern })
    }

    /// How many requests a round of this time has.
    fn pilot(&mut self, time: Duration) -> Result<u64, Failure> {
        let Row { connections, chain, .. } = self.row;
        // Enough to have every connection used.
        let mut requests = PILOT.max(u64::from(connections) * u64::from(chain));
        loop {
            let pilot = whole_chains(requests, chain);
            let result = self.run(pilot, MeasureFlags::empty())?;
            if Duration::from_nanos(result.elapsed) >= time / PILOT_SHARE || pilot >= ROUND_MAX {
                return Ok(requests_for(&result, pilot, time, chain));
            }
            requests = pilot.saturating_mul(PILOT_GROWTH).min(ROUND_MAX);
        }
    }

    /// Runs the loop on bytes that have to be moved, and looks whether they were.
    fn run(&mut self, count: u64, more: MeasureFlags) -> Result<MeasureResult, Failure> {
        let request = self.row.request(&self.arguments.pair, count);
        let request = MeasureRequest { flags: request.flags | more, ..request };
        self.pattern.fill(self.buffer.source_mut());
        let (source, destination) = self.buffer.both();
        for (byte, sent) in destination.iter_mut().zip(source) {
            *byte = !sent;
        }
        let result = self.client.measure(&request, &mut self.buffer)?;
        check_counts(&self.row, &request, &result)?;
        check_bytes(&self.row, &request, &self.buffer)?;
        Ok(result)
    }

    /// memcpy of the first processor's part.
    fn memcpy(&mut self, time: Duration) -> Option<f64> {
        if !self.row.transfers() {
            return None;
        }
        let length = self.row.region_length() as usize;
        let (source, destination) = self.buffer.both();
        memcpy::measure(&source[..length], &mut destination[..length], self.row.size, time)
    }

    /// What the provider takes for a hundred connections more, shared among their ends.
    fn queue_pair_bytes(&mut self) -> Result<Option<u64>, Failure> {
        let mut most = |connections| {
            let request = self.row.idle_request(&self.arguments.pair, connections);
            let (bytes, result) = host::most_pool(|| self.client.measure(&request, &mut self.buffer));
            result.map(|_| bytes)
        };
        // The first time, tables that stay grow.
        most(MANY_CONNECTIONS)?;
        let (few, many) = (most(FEW_CONNECTIONS)?, most(MANY_CONNECTIONS)?);
        let ends = 2 * u64::from(MANY_CONNECTIONS - FEW_CONNECTIONS);
        Ok(few.zip(many).map(|(few, many)| many.saturating_sub(few) / ends))
    }
}

fn whole_chains(requests: u64, chain: u32) -> u64 {
    requests.next_multiple_of(u64::from(chain.max(1)))
}

/// Requests of each processor that take about `time`, in whole chains.
fn requests_for(pilot: &MeasureResult, made: u64, time: Duration, chain: u32) -> u64 {
    let per_request = pilot.elapsed as f64 / made.max(1) as f64;
    // A float cast saturates.
    let wanted = (time.as_nanos() as f64 / per_request.max(0.1)) as u64;
    whole_chains(wanted.clamp(PILOT, ROUND_MAX), chain)
}

/// Nanoseconds of a request: of several processors those of all of them together, as one would need to be as fast.
fn time_of(result: &MeasureResult, count: u64) -> f64 {
    let requests = count.saturating_mul(u64::from(result.processor_count.max(1)));
    result.elapsed as f64 / requests.max(1) as f64
}

/// As many completions as posts, and as many posts as were asked for.
fn check_counts(row: &Row, request: &MeasureRequest, result: &MeasureResult) -> Result<(), Failure> {
    let all = request.request_count.saturating_mul(u64::from(request.processor_count));
    let wanted = match row.operation {
        PerfOperation::FastRegister => all.saturating_mul(2),
        PerfOperation::Connect => 0,
        _ => all,
    };
    let received = if row.operation == PerfOperation::Send { all } else { 0 };
    if (result.posted, result.completed, result.received) == (wanted, wanted, received) {
        return Ok(());
    }
    let cause = format!(
        "{wanted} requests were asked for, {} posted, {} completed, {} received",
        result.posted, result.completed, result.received
    );
    Err(Failure::new(
        Kind::Refused,
        "cannot trust the measurement",
        cause,
        "this is a fault of the driver; please report it",
    ))
}

/// Source and destination are equal, part by part; of a fast registration page by page, in its order.
fn check_bytes<B: DirectBuffer>(
    row: &Row,
    request: &MeasureRequest,
    buffer: &TransferBuffer<B>,
) -> Result<(), Failure> {
    if !row.transfers() && row.operation != PerfOperation::FastRegister {
        return Ok(());
    }
    let (source, destination) = (buffer.source(), buffer.destination());
    let pages = request.region_length / BUFFER_ALIGNMENT;
    let page =
        |bytes: u64| bytes as usize * BUFFER_ALIGNMENT as usize..(bytes as usize + 1) * BUFFER_ALIGNMENT as usize;
    let arrived = if row.scattered {
        (0..pages).all(|place| destination[page(place)] == source[page(scattered_page(place, pages))])
    } else {
        (0..request.processor_count).all(|processor| {
            let begin = request.part(processor) as usize;
            let part = begin..begin + request.region_length as usize;
            source[part.clone()] == destination[part]
        })
    };
    if arrived {
        return Ok(());
    }
    Err(Failure::new(
        Kind::Corrupt,
        format!("perf: {}: the bytes that arrived are not those that were sent", row.name()),
        "source and destination differ after a round",
        "this is a fault of the driver; please report it",
    ))
}

fn report(
    row: Row,
    count: u64,
    rounds: Vec<Round>,
    results: &[MeasureResult],
    latency: &Histogram,
) -> Result<RowReport, Failure> {
    let Some(ns_per_request) = median(rounds.iter().map(|round| round.ns)) else { return Err(no_time()) };
    let copies = |round: &Round| Some(f64::midpoint(round.memcpy_ns?, round.memcpy_again_ns?));
    let quantile = |part| (latency.count > 0).then(|| latency.quantile(part)).flatten();
    let processors = if row.processors > 1 { row.processors as usize } else { 0 };
    let of_processor =
        |number: usize| median(results.iter().map(|result| result.processors[number] as f64 / count as f64));
    Ok(RowReport {
        row,
        requests: count.saturating_mul(u64::from(row.processors)).saturating_mul(rounds.len() as u64),
        ns_per_request,
        megabytes_per_second: row.transfers().then(|| f64::from(row.size) * 1_000.0 / ns_per_request),
        memcpy_ns: median(rounds.iter().filter_map(copies)),
        ratio: median(rounds.iter().filter_map(|round| Some(round.ns / copies(round)?))),
        rounds,
        p50_ns: quantile(500),
        p99_ns: quantile(990),
        // A row of which either was not so is a failure and has no report.
        completions_verified: true,
        bytes_verified: (row.transfers() || row.operation == PerfOperation::FastRegister).then_some(true),
        queue_pair_bytes: None,
        per_processor_ns: (0..processors).filter_map(of_processor).collect(),
        page_runs: results.first().map(|result| result.page_runs).filter(|&runs| runs > 0),
        elsewhere: (row.operation == PerfOperation::Notify)
            .then(|| results.iter().map(|result| result.elsewhere).sum()),
        notifications: results.iter().map(|result| result.notifications).sum(),
    })
}

/// The middle one, of an even number the mean of the two in the middle; nothing if there is none or it is no time at all.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get(values.len().saturating_sub(1) / 2)?;
    Some(f64::midpoint(lower, upper)).filter(|&value| value > 0.0)
}

fn no_time() -> Failure {
    Failure::new(
        Kind::Refused,
        "cannot measure",
        "the driver's clock did not move",
        "give the run more time with --time",
    )
}

/// Reports of made-up measurements: no two numbers are alike, so that one in another's place shows.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command, PairArguments};
    use crate::perf::row;
    use clap::Parser;

    fn asked(line: &str) -> Row {
        let words = ["ndkctl", "perf"].into_iter().chain(line.split_whitespace());
        let Command::Perf(perf) = Arguments::try_parse_from(words).unwrap().command else { unreachable!("perf") };
        row::rows(&perf).unwrap()[0]
    }

    fn round(ns: f64, memcpy_ns: f64, memcpy_again_ns: f64) -> Round {
        Round { ns, memcpy_ns: Some(memcpy_ns), memcpy_again_ns: Some(memcpy_again_ns) }
    }

    fn of_two_processors(elapsed: u64, processors: [u64; 2], notifications: u64) -> MeasureResult {
        let mut result = MeasureResult { elapsed, processor_count: 2, notifications, ..MeasureResult::EMPTY };
        result.processors[..2].copy_from_slice(&processors);
        result
    }

    /// Whether two times are the same but for the last bits.
    fn same(one: Option<f64>, other: f64) -> bool {
        one.is_some_and(|one| (one - other).abs() < 1e-9 * other.abs())
    }

    // Rule: NUMBERS-1
    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        assert_eq!(median([9.0, 1.0, 4.0].into_iter()), Some(4.0));
        assert_eq!(median([9.0, 1.0, 4.0, 6.0].into_iter()), Some(5.0));
        assert_eq!(median([7.0].into_iter()), Some(7.0));
        assert_eq!(median(std::iter::empty()), None);
        assert_eq!(median([0.0, 0.0, 3.0].into_iter()), None, "no time is no measurement");
    }

    // Rule: NUMBERS-1
    #[test]
    fn a_request_of_several_processors_takes_what_all_of_them_take_together() {
        let result = of_two_processors(12_000, [11_000, 12_000], 0);
        assert!(same(Some(time_of(&result, 100)), 60.0));
        let alone = MeasureResult { processor_count: 1, ..result };
        assert!(same(Some(time_of(&alone, 100)), 120.0));
    }

    #[test]
    fn a_round_has_as_many_requests_as_fit_its_time_in_whole_chains() {
        let pilot = MeasureResult { elapsed: 50_000, processor_count: 1, ..MeasureResult::EMPTY };
        // 100 ns a request, each processor's own time.
        assert_eq!(requests_for(&pilot, 500, Duration::from_micros(100), 16), 1_008);
        assert_eq!(requests_for(&pilot, 500, Duration::from_nanos(1), 1), PILOT);
        let still = MeasureResult { elapsed: 0, ..pilot };
        assert_eq!(requests_for(&still, 500, Duration::from_hours(1), 1), ROUND_MAX);
    }

    // Rule: NUMBERS-1
    #[test]
    fn every_number_of_a_report_is_that_of_its_name() {
        let asked = asked("--operation read --size 4096 --processors 2 --depth 4");
        let rounds = vec![round(500.0, 90.0, 110.0), round(800.0, 300.0, 500.0), round(600.0, 150.0, 250.0)];
        let results = [
            of_two_processors(1, [7_000, 9_000], 3),
            of_two_processors(1, [17_000, 29_000], 5),
            of_two_processors(1, [8_000, 13_000], 11),
        ];
        let mut latency = Histogram::EMPTY;
        (1..=100).for_each(|time| latency.record(time * 16));
        let report = report(asked, 100, rounds, &results, &latency).unwrap();
        assert_eq!(report.requests, 600, "three rounds of a hundred on two processors");
        assert!(same(Some(report.ns_per_request), 600.0));
        assert!(same(report.megabytes_per_second, 4_096_000.0 / 600.0));
        assert!(same(report.memcpy_ns, 200.0), "the mean of before and after, in the middle round");
        assert!(same(report.ratio, 3.0), "of 5, 2 and 3: each round's own");
        let (p50, p99) = (report.p50_ns.unwrap(), report.p99_ns.unwrap());
        assert!(p50.abs_diff(800) <= 50 && p99.abs_diff(1_584) <= 99, "{p50} and {p99}");
        assert_eq!(report.per_processor_ns, [80.0, 130.0]);
        assert_eq!((report.notifications, report.elsewhere, report.page_runs), (19, None, None));
        assert_eq!((report.completions_verified, report.bytes_verified), (true, Some(true)));
        let text = report.cells();
        assert_eq!(text[1..], ["600 ns", &*format!("{p50} ns"), "1.57 µs", "6827 MB/s", "200 ns", "3.00"]);
    }

    #[test]
    fn a_notification_made_elsewhere_is_counted_over_all_rounds() {
        let of = |elsewhere| MeasureResult { elsewhere, processor_count: 1, ..MeasureResult::EMPTY };
        let rounds = vec![Round { ns: 40.0, memcpy_ns: None, memcpy_again_ns: None }; 2];
        let report = report(asked("--operation notify"), 50, rounds, &[of(2), of(3)], &Histogram::EMPTY).unwrap();
        assert_eq!((report.elsewhere, report.requests, report.p50_ns), (Some(5), 100, None));
        assert_eq!((report.megabytes_per_second, report.memcpy_ns, report.ratio), (None, None, None));
    }

    #[test]
    fn counts_that_do_not_fit_are_not_trusted() {
        let fits = |line: &str, posted, completed, received| {
            let asked = asked(line);
            let request = asked.request(&PairArguments::default(), 10);
            check_counts(&asked, &request, &MeasureResult { posted, completed, received, ..MeasureResult::EMPTY })
                .is_ok()
        };
        assert!(fits("--operation read --processors 2", 20, 20, 0));
        assert!(fits("--operation send --processors 2", 20, 20, 20));
        assert!(fits("--operation fast-register", 20, 20, 0), "FastRegister and Invalidate");
        assert!(fits("--operation connect", 0, 0, 0));
        for (posted, completed, received) in [(10, 20, 20), (20, 10, 20), (20, 20, 10), (20, 20, 0)] {
            assert!(!fits("--operation send --processors 2", posted, completed, received));
        }
        assert!(!fits("--operation read", 10, 10, 10), "a Read receives nothing");
    }
}
