//! `ndkctl nd ping`: messages that are answered one by one, all their bytes compared at both ends.

use super::arguments::NdPingArguments;
use super::ends::{self, Measurement};
use super::proposal::{self, Proposal, Work};
use crate::failure::Failure;
use crate::transport::Machine;
use crate::units;
use serde::Serialize;
use softndk_ioctl::Histogram;
use std::fmt;

/// Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Latency {
    pub min: u64,
    pub median: u64,
    pub p99: u64,
    pub max: u64,
    pub mean: u64,
}

impl Latency {
    #[must_use]
    pub fn of(histogram: &Histogram) -> Option<Self> {
        Some(Self {
            min: histogram.min,
            median: histogram.quantile(500)?,
            p99: histogram.quantile(990)?,
            max: histogram.max,
            mean: histogram.mean()?,
        })
    }
}

/// What `nd ping` measured.
#[derive(Clone, Debug, Serialize)]
pub struct NdPingReport {
    pub ends: String,
    pub size: u32,
    /// Round trips; of a server alone, messages that it answered.
    pub count: u64,
    pub notify: bool,
    /// Bytes compared at the ends that are here.
    pub bytes_compared: u64,
    /// Of a round trip; null of a server alone.
    pub latency: Option<Latency>,
    pub ioctls: RequestCounts,
}

/// Control requests that each process sent to the driver for the work, connection and end not counted; null where it is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RequestCounts {
    pub client: Option<u64>,
    pub server: Option<u64>,
}

/// Pings.
pub fn run(machine: &Machine, arguments: &NdPingArguments) -> Result<NdPingReport, Failure> {
    let proposal = Proposal {
        work: Work::PingPong,
        size: arguments.size,
        depth: 1,
        count: arguments.count,
        more: false,
        session: proposal::new_session(),
    };
    let serves = |work| work == Work::PingPong;
    let outcome = ends::measure(machine, arguments.provider.dll.as_deref(), &arguments.ends, (&[proposal], serves))?;
    Ok(report(&outcome, &proposal, arguments.ends.notify))
}

fn report(outcome: &Measurement, proposal: &Proposal, notify: bool) -> NdPingReport {
    let client = outcome.measured.first();
    let server = outcome.served.first();
    let compared = client.map_or(0, |client| client.compared) + server.map_or(0, |(_, served)| served.compared);
    NdPingReport {
        ends: outcome.ends.clone(),
        size: server.map_or(proposal, |(told, _)| told).size,
        count: server.map_or(u64::from(proposal.count), |(_, served)| served.messages),
        notify,
        bytes_compared: compared,
        latency: client.and_then(|client| Latency::of(&client.latency)),
        ioctls: RequestCounts {
            client: client.and_then(|client| client.control_requests),
            server: server.and_then(|(_, served)| served.control_requests),
        },
    }
}

impl fmt::Display for NdPingReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = units::size(u64::from(self.size));
        let (count, compared) = (units::count(self.count), units::count(self.bytes_compared));
        write!(formatter, "{count} messages of {size} from {} and back, {compared} bytes compared", self.ends)?;
        if let Some(latency) = &self.latency {
            let time = |nanoseconds: u64| units::duration(nanoseconds as f64);
            write!(
                formatter,
                "\nround trip: min {}, median {}, p99 {}, max {}",
                time(latency.min),
                time(latency.median),
                time(latency.p99),
                time(latency.max)
            )?;
        }
        if let (Some(client), Some(server)) = (self.ioctls.client, self.ioctls.server) {
            let (client, server) = (units::count(client), units::count(server));
            write!(formatter, "\nrequests to the driver: {client} of the client, {server} of the server")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Measurement, Proposal, RequestCounts, Work, report};
    use crate::nd::peer::{Measured, Served};
    use softndk_ioctl::Histogram;
    use std::time::Duration;

    const PROPOSAL: Proposal = Proposal { work: Work::PingPong, size: 64, depth: 1, count: 2, more: false, session: 0 };

    fn measured() -> Measured {
        let mut latency = Box::new(Histogram::EMPTY);
        latency.record(1_000);
        latency.record(3_000);
        Measured { elapsed: Duration::from_micros(5), latency, compared: 128, control_requests: Some(7) }
    }

    #[test]
    fn both_ends_count_what_they_compared() {
        let served = Served { messages: 2, compared: 128, control_requests: Some(8) };
        let outcome = Measurement {
            ends: "10.0.0.1 to 10.0.0.2".to_owned(),
            measured: vec![measured()],
            served: vec![(PROPOSAL, served)],
        };
        let report = report(&outcome, &PROPOSAL, false);
        assert_eq!((report.count, report.bytes_compared), (2, 256));
        assert_eq!(report.ioctls, RequestCounts { client: Some(7), server: Some(8) });
        let text = report.to_string();
        for wanted in
            ["2 messages of 64 B from 10.0.0.1 to 10.0.0.2", "256 bytes compared", "min 1.00 µs", "7 of the client"]
        {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
        assert_eq!(serde_json::to_value(&report).unwrap()["latency"]["max"], 3_000);
    }

    #[test]
    fn a_server_alone_has_no_times_and_knows_what_it_was_told() {
        let served = Served { messages: 9, compared: 900, control_requests: None };
        let told = Proposal { size: 100, count: 9, ..PROPOSAL };
        let outcome =
            Measurement { ends: "server at x".to_owned(), measured: Vec::new(), served: vec![(told, served)] };
        let report = report(&outcome, &PROPOSAL, true);
        assert_eq!((report.count, report.size, report.latency), (9, 100, None));
        assert!(!report.to_string().contains("round trip"));
    }
}
