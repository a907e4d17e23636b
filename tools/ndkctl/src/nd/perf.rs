//! `ndkctl nd perf`: Reads, Writes and Sends over sizes and queue depths, a connection each.

use super::arguments::NdPerfArguments;
use super::ends::{self, Measurement};
use super::peer::{Measured, Served};
use super::ping::{Latency, RequestCounts};
use super::proposal::{self, Proposal, Work};
use crate::arguments::OperationName;
use crate::failure::Failure;
use crate::transport::Machine;
use crate::units;
use serde::Serialize;
use softndk_ioctl::Operation;
use std::fmt;
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Style};

/// What `nd perf` measured.
#[derive(Clone, Debug, Serialize)]
pub struct NdPerfReport {
    pub ends: String,
    pub notify: bool,
    pub rows: Vec<NdPerfRow>,
}

/// One operation, size and depth.
#[derive(Clone, Debug, Serialize)]
pub struct NdPerfRow {
    pub operation: OperationName,
    pub size: u32,
    pub depth: u32,
    pub requests: u64,
    /// Nanoseconds of all requests; null of a server alone.
    pub elapsed: Option<u64>,
    pub requests_per_second: Option<f64>,
    /// 10⁶ bytes per second.
    pub rate: Option<f64>,
    /// From a request's post to its result.
    pub latency: Option<Latency>,
    /// Bytes compared at the ends that are here.
    pub bytes_compared: u64,
    pub ioctls: RequestCounts,
    /// The same bytes by the system's TCP; null where that was not asked for.
    pub tcp: Option<BesideTcp>,
}

/// What a row is compared with.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BesideTcp {
    /// Nanoseconds of all requests.
    pub elapsed: u64,
    /// 10⁶ bytes per second.
    pub rate: Option<f64>,
    /// The row's rate as a share of this one.
    pub share: f64,
}

/// Measures every row.
pub fn run(machine: &Machine, arguments: &NdPerfArguments) -> Result<NdPerfReport, Failure> {
    let proposals = proposals(arguments);
    let serves = |work| matches!(work, Work::Stream(_) | Work::Tcp(_));
    let outcome = ends::measure(machine, arguments.provider.dll.as_deref(), &arguments.ends, (&proposals, serves))?;
    Ok(report(&outcome, &proposals, arguments.ends.notify))
}

fn proposals(arguments: &NdPerfArguments) -> Vec<Proposal> {
    let (mut all, session) = (Vec::new(), proposal::new_session());
    for operation in &arguments.op {
        for size in &arguments.size {
            for depth in &arguments.depth {
                let operation = (*operation).into();
                let stream = Proposal {
                    work: Work::Stream(operation),
                    size: *size,
                    depth: *depth,
                    count: arguments.count,
                    more: true,
                    session,
                };
                all.push(stream);
                // Bytes of plain TCP are no messages.
                if arguments.beside_tcp && *size != 0 && operation != Operation::SEND {
                    all.push(Proposal { work: Work::Tcp(operation), ..stream });
                }
            }
        }
    }
    if let Some(last) = all.last_mut() {
        last.more = false;
    }
    all
}

fn report(outcome: &Measurement, proposals: &[Proposal], notify: bool) -> NdPerfReport {
    let told: Vec<Proposal> = if outcome.measured.is_empty() {
        outcome.served.iter().map(|(told, _)| *told).collect()
    } else {
        proposals.to_vec()
    };
    let row = |(index, proposal): (usize, &Proposal)| {
        let served = outcome.served.get(index).map(|(_, served)| served);
        let (measured, next) = (outcome.measured.get(index), outcome.measured.get(index + 1));
        let row = row(proposal, measured, served);
        let tcp = next.filter(|_| told.get(index + 1).is_some_and(Proposal::is_by_tcp));
        NdPerfRow { tcp: tcp.and_then(|tcp| beside_tcp(&row, nanoseconds(tcp))), ..row }
    };
    let rows = told.iter().enumerate().filter(|(_, proposal)| !proposal.is_by_tcp());
    NdPerfReport { ends: outcome.ends.clone(), notify, rows: rows.map(row).collect() }
}

fn nanoseconds(measured: &Measured) -> u64 {
    u64::try_from(measured.elapsed.as_nanos()).unwrap_or(u64::MAX)
}

fn beside_tcp(row: &NdPerfRow, elapsed: u64) -> Option<BesideTcp> {
    let own = row.elapsed.filter(|own| *own > 0)?;
    let rate = units::megabytes_per_second(row.requests * u64::from(row.size), elapsed);
    Some(BesideTcp { elapsed, rate, share: elapsed as f64 / own as f64 })
}

fn row(proposal: &Proposal, measured: Option<&Measured>, served: Option<&Served>) -> NdPerfRow {
    let requests = u64::from(proposal.count);
    let elapsed = measured.map(nanoseconds);
    let each_second = |elapsed: u64| (elapsed > 0).then(|| requests as f64 * 1e9 / elapsed as f64);
    let bytes = requests * u64::from(proposal.size);
    NdPerfRow {
        operation: match proposal.work {
            Work::Stream(Operation::READ) => OperationName::Read,
            Work::Stream(Operation::WRITE) => OperationName::Write,
            _ => OperationName::Send,
        },
        size: proposal.size,
        depth: proposal.depth,
        requests,
        elapsed,
        requests_per_second: elapsed.and_then(each_second),
        rate: elapsed.and_then(|elapsed| units::megabytes_per_second(bytes, elapsed)),
        latency: measured.and_then(|measured| Latency::of(&measured.latency)),
        bytes_compared: measured.map_or(0, |measured| measured.compared) + served.map_or(0, |served| served.compared),
        ioctls: RequestCounts {
            client: measured.and_then(|measured| measured.control_requests),
            server: served.and_then(|served| served.control_requests),
        },
        tcp: None,
    }
}

impl NdPerfRow {
    fn cells(&self) -> [String; 11] {
        let time = |time: fn(&Latency) -> u64| {
            self.latency.as_ref().map_or_else(String::new, |latency| units::duration(time(latency) as f64))
        };
        let number = |number: Option<f64>, unit: &str| {
            number.map_or_else(String::new, |number| format!("{}{unit}", units::count(number.round() as u64)))
        };
        let each = |requests: Option<u64>| {
            requests.map_or_else(String::new, |requests| format!("{:.2}", requests as f64 / self.requests as f64))
        };
        let name = match self.operation {
            OperationName::Read => "Read",
            OperationName::Write => "Write",
            OperationName::Send => "Send",
        };
        [
            name.to_owned(),
            units::size(u64::from(self.size)),
            self.depth.to_string(),
            units::count(self.requests),
            number(self.requests_per_second, ""),
            number(self.rate, " MB/s"),
            time(|latency| latency.median),
            time(|latency| latency.p99),
            each(self.ioctls.client),
            each(self.ioctls.server),
            self.tcp.map_or_else(String::new, |tcp| format!("{:.2}", tcp.share)),
        ]
    }
}

impl fmt::Display for NdPerfReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Builder::default();
        table.push_record([
            "",
            "size",
            "depth",
            "requests",
            "a second",
            "rate",
            "median",
            "p99",
            "IOCTLs each",
            "server's",
            "of TCP",
        ]);
        for row in &self.rows {
            table.push_record(row.cells());
        }
        if self.rows.iter().all(|row| row.tcp.is_none()) {
            table.remove_column(10);
        }
        let mut table = table.build();
        table.with(Style::rounded()).modify(Columns::new(1..), Alignment::right());
        write!(formatter, "{}\n{table}", self.ends)
    }
}

#[cfg(test)]
mod tests {
    use super::{Measured, Measurement, NdPerfReport, Operation, Proposal, Served, Work, row};
    use crate::arguments::{Arguments, Command, OperationName};
    use crate::nd::arguments::NdCommand;
    use clap::Parser;
    use softndk_ioctl::Histogram;
    use std::time::Duration;

    #[test]
    fn rows_are_every_operation_size_and_depth_and_only_the_last_is_the_last() {
        let arguments = Arguments::try_parse_from("ndkctl nd perf --op write,read -s 1,2 -t 3,4,5".split(' ')).unwrap();
        let Command::Nd(nd) = arguments.command else { panic!("another command") };
        let NdCommand::Perf(perf) = nd.command else { panic!("no perf") };
        let all = super::proposals(&perf);
        assert_eq!(all.len(), 12);
        assert_eq!(all.iter().filter(|proposal| !proposal.more).count(), 1);
        assert!(!all[11].more);
        assert_eq!((all[0].work, all[0].size, all[0].depth), (Work::Stream(Operation::WRITE), 1, 3));
    }

    #[test]
    fn a_row_has_rate_latency_and_requests_each() {
        let proposal =
            Proposal { work: Work::Stream(Operation::READ), size: 1000, depth: 2, count: 4, more: false, session: 0 };
        let mut latency = Box::new(Histogram::EMPTY);
        latency.record(500);
        let measured =
            Measured { elapsed: Duration::from_micros(4), latency, compared: 2000, control_requests: Some(6) };
        let served = Served { messages: 0, compared: 0, control_requests: Some(0) };
        let row = row(&proposal, Some(&measured), Some(&served));
        assert_eq!((row.operation, row.requests_per_second, row.rate), (OperationName::Read, Some(1e6), Some(1000.0)));
        let text = NdPerfReport { ends: "a to b".to_owned(), notify: false, rows: vec![row] }.to_string();
        for wanted in ["1 000 MB/s", "1 000 000", "500 ns", "1.50"] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
    }

    // Rule: NUMBERS-1
    /// No two numbers are alike.
    #[test]
    fn every_number_of_a_row_is_that_of_its_name() {
        let proposal = Proposal {
            work: Work::Stream(Operation::WRITE),
            size: 4096,
            depth: 3,
            count: 100,
            more: false,
            session: 0,
        };
        let mut latency = Box::new(Histogram::EMPTY);
        (1..=100).for_each(|time| latency.record(time * 16));
        let measured =
            Measured { elapsed: Duration::from_micros(50), latency, compared: 70_000, control_requests: Some(250) };
        let served = Served { messages: 9, compared: 11_000, control_requests: Some(25) };
        let row = row(&proposal, Some(&measured), Some(&served));
        assert_eq!((row.operation, row.size, row.depth, row.requests), (OperationName::Write, 4096, 3, 100));
        assert_eq!((row.elapsed, row.requests_per_second, row.rate), (Some(50_000), Some(2e6), Some(8192.0)));
        assert_eq!((row.bytes_compared, row.ioctls.client, row.ioctls.server), (81_000, Some(250), Some(25)));
        let latency = row.latency.unwrap();
        assert!(latency.median.abs_diff(800) <= 50 && latency.p99.abs_diff(1_584) <= 99, "{latency:?}");
        assert_eq!((latency.min, latency.max, latency.mean), (16, 1_600, 808));
        let median = latency.median;
        let cells = row.cells();
        let expected = [
            "Write",
            "4 KiB",
            "3",
            "100",
            "2 000 000",
            "8 192 MB/s",
            &*format!("{median} ns"),
            "1.57 µs",
            "2.50",
            "0.25",
            "",
        ];
        assert_eq!(cells, expected);
    }

    #[test]
    fn a_row_is_compared_with_the_tcp_that_follows_it() {
        let line = "ndkctl nd perf --op read,send -s 1000 -t 1 -n 4 --beside-tcp";
        let Command::Nd(nd) = Arguments::try_parse_from(line.split(' ')).unwrap().command else { panic!("not nd") };
        let NdCommand::Perf(perf) = nd.command else { panic!("no perf") };
        let proposals = super::proposals(&perf);
        let [Work::Stream(Operation::READ), Work::Tcp(Operation::READ), Work::Stream(Operation::SEND)] =
            *proposals.iter().map(|proposal| proposal.work).collect::<Vec<_>>()
        else {
            panic!("{proposals:?}")
        };
        let measured = [4, 1, 9].map(|time| Measured {
            elapsed: Duration::from_micros(time),
            latency: Box::new(Histogram::EMPTY),
            compared: 0,
            control_requests: None,
        });
        let outcome = Measurement { ends: String::new(), measured: measured.into(), served: Vec::new() };
        let report = super::report(&outcome, &proposals, false);
        let tcp: Vec<_> = report.rows.iter().map(|row| row.tcp.map(|tcp| (tcp.elapsed, tcp.rate, tcp.share))).collect();
        assert_eq!(tcp, [Some((1_000, Some(4000.0), 0.25)), None]);
        assert!(report.to_string().contains("of TCP"), "{report}");
    }

    #[test]
    fn a_server_alone_has_no_times() {
        let proposal =
            Proposal { work: Work::Stream(Operation::SEND), size: 8, depth: 1, count: 4, more: false, session: 0 };
        let served = Served { messages: 4, compared: 32, control_requests: Some(5) };
        let row = row(&proposal, None, Some(&served));
        assert_eq!((row.elapsed, row.requests_per_second, row.rate, row.bytes_compared), (None, None, None, 32));
        assert_eq!((row.ioctls.client, row.ioctls.server), (None, Some(5)));
    }
}
