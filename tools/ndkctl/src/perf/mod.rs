//! `ndkctl perf`: loops of the driver, timed, beside memcpy between the same buffers in the same run.
//!
//! A row is measured in rounds: memcpy, the loop, memcpy again; the median round is reported. The number of requests of a round is
//! found by a pilot run, so that no clock is read in the loop. Before each round the destination is made to differ from the source in
//! every byte, and afterwards all bytes are compared.

mod host;
mod measure;
mod memcpy;
mod plot;
mod row;

#[cfg(not(windows))]
use crate::arguments::HostMode;
use crate::arguments::PerfArguments;
use crate::client::Client;
use crate::destination::Destination;
use crate::failure::Failure;
#[cfg(not(windows))]
use crate::failure::Kind;
use crate::progress::Progress;
use crate::transport::Device;
use crate::units;
pub use row::Row;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Style};

/// What `perf` measured.
#[derive(Clone, Debug, Serialize)]
pub struct PerfReport {
    pub rows: Vec<RowReport>,
    /// Nanoseconds that the longest DPC took; none where the system does not report it.
    pub longest_dpc_ns: Option<u64>,
    /// As `longest_dpc_ns`, of one call at DISPATCH_LEVEL.
    pub longest_dispatch_ns: Option<u64>,
    /// The times of all DPCs by path.
    pub dpc_paths: Option<host::Paths>,
    /// The times of all calls at DISPATCH_LEVEL by path.
    pub dispatch_paths: Option<host::Paths>,
    /// How often the provider called its imports, for one request.
    pub imports_per_request: Option<BTreeMap<String, f64>>,
    /// The driver has its assertions.
    pub debug_build: bool,
    /// Why the picture that was asked for is not there.
    #[serde(skip)]
    pub without_picture: Option<Failure>,
}

/// One row: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct RowReport {
    #[serde(flatten)]
    pub row: Row,
    /// Requests measured, all rounds: of a fast registration pairs of them, of `connect` connections.
    pub requests: u64,
    pub ns_per_request: f64,
    pub rounds: Vec<Round>,
    /// 10⁶ bytes per second.
    pub megabytes_per_second: Option<f64>,
    pub memcpy_ns: Option<f64>,
    /// Request time over memcpy time, of the same round.
    pub ratio: Option<f64>,
    /// Quantiles of a run of its own, with a clock: of the rounds only where what is measured is a time between two events.
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    /// There were as many completions as posts, all successes.
    pub completions_verified: bool,
    /// Source and destination were equal after each round; none where nothing is moved.
    pub bytes_verified: Option<bool>,
    /// Bytes of pool that the provider takes for one end of an idle connection, its completion queue entries included. `connect` only,
    /// in the kernel host only.
    pub queue_pair_bytes: Option<u64>,
    /// Each processor's time per request, where there are several: medians.
    pub per_processor_ns: Vec<f64>,
    /// Runs of adjacent pages in the list of a fast registration.
    pub page_runs: Option<u32>,
    /// Notifications that another processor made than the one that was asked for. `notify` only.
    pub elsewhere: Option<u64>,
    /// Completion queue notifications taken, all rounds.
    pub notifications: u64,
}

/// One round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Round {
    /// Of a request.
    pub ns: f64,
    /// Of a memcpy of the same size, before and after.
    pub memcpy_ns: Option<f64>,
    pub memcpy_again_ns: Option<f64>,
}

/// Measures the rows that the arguments ask for.
pub fn run<D: Device>(
    client: &Client<D>,
    arguments: &PerfArguments,
    debug_build: bool,
    progress: Progress,
) -> Result<PerfReport, Failure> {
    let rows = row::rows(arguments)?;
    // Before what takes minutes.
    let picture = arguments.svg.as_deref().map(Destination::at).transpose()?;
    let title = rows.first().map(Row::title).unwrap_or_default();
    let bar = progress.operations(rows.len() as u64 * u64::from(arguments.rounds), "perf");
    host::begin();
    let mut reports = Vec::new();
    let mut imports = BTreeMap::new();
    for row in rows {
        // Of the last row: counting begins anew with each.
        let (report, counted) = measure::row(client, arguments, row, || bar.inc(1))?;
        reports.push(report);
        imports = counted;
    }
    bar.finish_and_clear();
    let without_picture = picture.and_then(|picture| plot::draw(&reports, &title, debug_build, picture).err());
    let (dpc_paths, dispatch_paths) = (host::deferred_calls(), host::at_dispatch());
    Ok(PerfReport {
        rows: reports,
        longest_dpc_ns: dpc_paths.as_ref().and_then(host::longest),
        longest_dispatch_ns: dispatch_paths.as_ref().and_then(host::longest),
        dpc_paths,
        dispatch_paths,
        imports_per_request: Some(imports).filter(|imports| !imports.is_empty()),
        debug_build,
        without_picture,
    })
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

impl fmt::Display for PerfReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Builder::default();
        table.push_record(["request", "time", "median", "p99", "rate", "memcpy", "ratio"]);
        for row in &self.rows {
            table.push_record(row.cells());
        }
        let mut table = table.build();
        table.with(Style::rounded()).modify(Columns::new(1..), Alignment::right());
        write!(formatter, "{table}")?;
        for row in &self.rows {
            row.remarks(formatter)?;
        }
        if let Some(longest) = self.longest_dpc_ns {
            write!(formatter, "\nLongest DPC: {}.", units::duration(longest as f64))?;
        }
        if self.debug_build {
            write!(
                formatter,
                "\nThis is a debug build of the driver, with its assertions: a release build is faster."
            )?;
        }
        Ok(())
    }
}

impl RowReport {
    fn cells(&self) -> [String; 7] {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let quantile = |value: Option<u64>| or_dash(value.map(|value| units::duration(value as f64)));
        [
            self.row.name(),
            units::duration(self.ns_per_request),
            quantile(self.p50_ns),
            quantile(self.p99_ns),
            or_dash(self.megabytes_per_second.map(|rate| format!("{rate:.0} MB/s"))),
            or_dash(self.memcpy_ns.map(units::duration)),
            or_dash(self.ratio.map(|ratio| format!("{ratio:.2}"))),
        ]
    }

    /// What the table has no column for.
    fn remarks(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(bytes) = self.queue_pair_bytes {
            write!(formatter, "\nPool of one end of an idle connection: {} bytes.", units::count(bytes))?;
        }
        if let Some(elsewhere) = self.elsewhere.filter(|&elsewhere| elsewhere > 0) {
            let of = units::count(self.requests);
            write!(formatter, "\n{} of {of} notifications came on another processor.", units::count(elsewhere))?;
        }
        if !self.per_processor_ns.is_empty() {
            let times: Vec<String> = self.per_processor_ns.iter().map(|time| units::duration(*time)).collect();
            write!(formatter, "\nA request of each processor: {}.", times.join(", "))?;
        }
        Ok(())
    }
}
