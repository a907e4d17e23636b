//! `ndkctl nd pull`: a file of the server's, pulled by the client with RDMA Reads.
//!
//! Each end has two windows of registered memory, of some MiB, whatever the file's size. The client asks for a window by a message; the
//! server fills it and says so; the client reads it, and asks again while it writes the bytes to its file. At the end the server says the
//! SHA-256 of what it read. The destination is complete or as it was ([`crate::destination`]): all bytes on disk are read again and their
//! hash is compared before it has its name.

mod client;
mod mailbox;
mod message;
mod offer;
mod server;

use super::arguments::NdPullArguments;
use super::connection::{Listening, Route};
use super::end::EndWay;
use super::ends::{self, Ends};
use super::proposal::{self, Proposal, Work};
use super::stop::Cut;
use super::system::System;
use crate::copy::{hash_again, hexadecimal};
use crate::destination::Destination;
use crate::failure::{Failure, Kind};
use crate::progress::Progress;
use crate::transport::Machine;
use crate::units;
use client::{Pulled, Target};
use offer::Offer;
use serde::Serialize;
use server::Given;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What `nd pull` did.
#[derive(Clone, Debug, Serialize)]
pub struct NdPullReport {
    pub ends: String,
    /// Null where the server is elsewhere.
    pub source: Option<PathBuf>,
    /// Null where the client is elsewhere.
    pub dest: Option<PathBuf>,
    pub bytes: u64,
    pub windows: u64,
    /// RDMA Reads; null of a server alone, as the times are.
    pub reads: Option<u64>,
    /// Nanoseconds from the connection to the last byte in the file.
    pub elapsed: Option<u64>,
    /// 10⁶ bytes per second of that time.
    pub rate: Option<f64>,
    /// Nanoseconds from start to end, the driver's way to the server and the second reading of the file included.
    pub total_time: u64,
    /// Of what the server read.
    pub source_sha256: String,
    /// Of what is in the client's file, where it is here: equal.
    pub dest_sha256: Option<String>,
}

/// Pulls, or offers, or both.
pub fn run(machine: &Machine, arguments: &NdPullArguments, progress: Progress) -> Result<NdPullReport, Failure> {
    let started = Instant::now();
    let (size, depth) = (arguments.request_size, arguments.depth);
    let proposal = Proposal { work: Work::Pull, size, depth, count: 1, more: false, session: proposal::new_session() };
    let mut offer = arguments.source.as_deref().map(Offer::open).transpose()?;
    let dest = arguments.dest.as_deref().map(|path| Ok((Destination::at(path)?, path))).transpose()?;
    let client = |system: &System<'_>, route: Route, way: EndWay<'_>| {
        let (dest, path) = dest.as_ref().ok_or(Cut::Stopped)?;
        let bar = progress.bytes(0, "pull");
        let target = Target { file: dest.file(), path, bar: &bar };
        let pulled = client::pull(system, route, &proposal, way, target);
        bar.finish_and_clear();
        pulled
    };
    let server = |system: &System<'_>, listening: Listening<'_>| {
        server::give(system, listening, offer.as_mut().ok_or(Cut::Stopped)?)
    };
    let ends = ends::run(machine, arguments.provider.dll.as_deref(), &arguments.ends, client, server)?;
    let dest_sha256 = match (dest, &ends.client) {
        (Some((dest, path)), Some(pulled)) => Some(finish(dest, path, pulled)?),
        _ => None,
    };
    Ok(report(arguments, &ends, dest_sha256, started.elapsed()))
}

/// Names the file when what is on disk is what the server read; its hash.
fn finish(dest: Destination, path: &Path, pulled: &Pulled) -> Result<String, Failure> {
    let (source, copy) = (hexadecimal(&pulled.sha256), hash_again(dest.file(), path, pulled.bytes)?);
    if source != copy {
        return Err(Failure::new(
            Kind::Corrupt,
            "the pulled file is not the server's; nothing was left under the destination's name",
            format!("SHA-256 of the source is {source}, of what came {copy}"),
            "this is a fault of the driver or the provider; please report it",
        ));
    }
    dest.finish()?;
    Ok(copy)
}

fn report(
    arguments: &NdPullArguments,
    ends: &Ends<Pulled, Given>,
    dest_sha256: Option<String>,
    total: Duration,
) -> NdPullReport {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let client = ends.client.as_ref();
    let of_client = client.map(|pulled| (pulled.bytes, pulled.windows, pulled.sha256));
    let of_server = ends.server.map(|given| (given.bytes, given.windows, given.sha256));
    let (bytes, windows, sha256) = of_client.or(of_server).unwrap_or_default();
    let elapsed = client.map(|pulled| nanoseconds(pulled.elapsed));
    NdPullReport {
        ends: ends.ends.clone(),
        source: arguments.source.clone(),
        dest: arguments.dest.clone(),
        bytes,
        windows,
        reads: client.map(|pulled| pulled.reads),
        elapsed,
        rate: elapsed.and_then(|elapsed| units::megabytes_per_second(bytes, elapsed)),
        total_time: nanoseconds(total),
        source_sha256: hexadecimal(&sha256),
        dest_sha256,
    }
}

impl fmt::Display for NdPullReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes", units::count(self.bytes))?;
        if let Some(source) = &self.source {
            write!(formatter, " of {}", source.display())?;
        }
        if let Some(dest) = &self.dest {
            write!(formatter, " to {}", dest.display())?;
        }
        if let Some(reads) = self.reads {
            write!(formatter, " by {} RDMA reads", units::count(reads))?;
        }
        writeln!(formatter, " in {} windows, from {}", units::count(self.windows), self.ends)?;
        if let Some(elapsed) = self.elapsed {
            let rate = self.rate.map_or_else(String::new, |rate| format!(" ({rate:.0} MB/s)"));
            let (elapsed, total) = (units::duration(elapsed as f64), units::duration(self.total_time as f64));
            writeln!(formatter, "pulling took {elapsed}{rate}, everything {total}")?;
        }
        write!(formatter, "SHA-256 source {}", self.source_sha256)?;
        if let Some(dest) = &self.dest_sha256 {
            write!(formatter, "\nSHA-256 copy   {dest}: equal")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Ends, Given, NdPullArguments, Pulled, report};
    use crate::arguments::{Arguments, Command};
    use crate::nd::arguments::NdCommand;
    use clap::Parser;
    use std::time::Duration;

    fn arguments(line: &str) -> NdPullArguments {
        let words = ["ndkctl", "nd", "pull"].into_iter().chain(line.split_whitespace());
        let Command::Nd(nd) = Arguments::try_parse_from(words).unwrap().command else { panic!("another command") };
        let NdCommand::Pull(pull) = nd.command else { panic!("no pull") };
        pull
    }

    const PULLED: Pulled =
        Pulled { bytes: 5_000_000, reads: 77, windows: 3, elapsed: Duration::from_millis(10), sha256: [0xAB; 32] };
    const GIVEN: Given = Given { bytes: 4_000, windows: 2, sha256: [0xCD; 32] };

    // Rule: NUMBERS-1
    #[test]
    fn client_reports_what_it_pulled_and_how_long_it_took() {
        let ends = Ends { ends: "x to y".to_owned(), client: Some(PULLED), server: None };
        let dest = Some("ab".repeat(32));
        let report = report(&arguments("--client 10.77.1.1 --dest b"), &ends, dest, Duration::from_secs(2));
        assert_eq!((report.bytes, report.windows, report.reads), (5_000_000, 3, Some(77)));
        assert_eq!((report.elapsed, report.rate, report.total_time), (Some(10_000_000), Some(500.0), 2_000_000_000));
        assert_eq!(Some(&report.source_sha256), report.dest_sha256.as_ref());
        let text = report.to_string();
        for wanted in [
            "5 000 000 bytes to b by 77 RDMA reads in 3 windows, from x to y",
            "pulling took 10.00 ms (500 MB/s), everything 2.00 s",
            "abab: equal",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
    }

    #[test]
    fn server_alone_has_no_times() {
        let ends = Ends { ends: "server at x".to_owned(), client: None, server: Some(GIVEN) };
        let report = report(&arguments("--server 10.77.1.1 --source a"), &ends, None, Duration::from_secs(2));
        assert_eq!((report.bytes, report.windows, report.reads, report.elapsed), (4_000, 2, None, None));
        let text = report.to_string();
        assert!(
            text.starts_with("4 000 bytes of a in 2 windows, from server at x\n") && !text.contains("took"),
            "{text}"
        );
        assert!(text.contains("cdcd") && !text.contains("equal"), "{text}");
    }
}
