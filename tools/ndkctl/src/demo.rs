//! `ndkctl demo`: everything once, in one boot of the kernel host, with headings that explain each step.
//!
//! It fails unless every byte arrived, both hashes are equal, and nothing of the driver was left behind.

use crate::arguments::{
    CopyArguments, DemoArguments, Family, InfoArguments, Level, MachineArguments, OperationName, PairArguments,
    PerfArguments, PingArguments, Registration,
};
use crate::client::Client;
use crate::copy::{self, CopyReport};
use crate::failure::{Failure, Kind};
use crate::info::{self, InfoReport};
use crate::perf::{self, PerfReport};
use crate::ping::{self, PingReport};
use crate::progress::Progress;
use crate::transport::{Device, ImageFacts, Leftovers, Machine};
use crate::units;
use serde::Serialize;
use softndk_ioctl::VersionFlags;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// Bytes of the generated file that are made at a time.
const CHUNK: u64 = 1 << 20;

/// What the demonstration showed.
#[derive(Clone, Debug, Serialize)]
pub struct DemoReport {
    pub image: ImageFacts,
    pub info: InfoReport,
    pub transfers: Transfers,
    pub left: Leftovers,
}

/// The part that moves bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Transfers {
    pub ping: PingReport,
    pub copy: CopyReport,
    pub perf: PerfReport,
    /// Payload of all three.
    pub bytes: u64,
}

/// Shows everything.
pub fn run(
    machine_arguments: &MachineArguments,
    arguments: &DemoArguments,
    announce: bool,
    progress: Progress,
) -> Result<DemoReport, Failure> {
    let output = Output { announce };
    if machine_arguments.adapters < 2 {
        return Err(Failure::new(Kind::Usage, "cannot demonstrate", "a wire has two ends", "leave --adapters out"));
    }
    output.heading(1, "load the driver image into the kernel host and give it two adapters");
    let machine = Machine::start(machine_arguments)?;
    let image = machine.image().clone();
    output.say(format_args!("{}: {} bytes, SHA-256 {}", image.path.display(), units::count(image.size), image.sha256));
    let shown = show(&machine, machine_arguments, arguments, output, progress);
    output.heading(6, "unload the driver and list what it left");
    let finished = machine.finish();
    let (info, transfers) = shown?;
    Ok(DemoReport { image, info, transfers, left: finished? })
}

fn show(
    machine: &Machine,
    machine_arguments: &MachineArguments,
    arguments: &DemoArguments,
    output: Output,
    progress: Progress,
) -> Result<(InfoReport, Transfers), Failure> {
    output.heading(2, "ask the driver for its adapters (ndkctl info)");
    let (client, version) = Client::connect(machine.open()?)?;
    let client = &client;
    let provider = machine.open_provider().and_then(Client::connect);
    let consumer = machine.open().and_then(Client::connect);
    let info = info::collect(provider, consumer, None, &InfoArguments { counters: false })?;
    output.say(format_args!("{info}"));
    if info.adapters.len() != machine_arguments.adapters as usize {
        return Err(Failure::new(
            Kind::Refused,
            "the demonstration's adapters are not all there",
            format!("{} were added, the driver lists {}", machine_arguments.adapters, info.adapters.len()),
            "this is a fault of the driver; please report it",
        ));
    }
    let ping = show_ping(client, arguments, output, progress)?;
    let copy = show_copy(client, arguments, output, progress)?;
    let debug_build = version.flags.contains(VersionFlags::DEBUG_BUILD);
    output.heading(5, "measure three kinds of requests beside memcpy (ndkctl perf)");
    let perf = perf::run(client, &perf_arguments(arguments), debug_build, progress)?;
    output.say(format_args!("{perf}"));
    let measured: u64 = perf.rows.iter().map(|row| row.requests.saturating_mul(u64::from(row.row.size))).sum();
    let pinged = ping.received.saturating_mul(u64::from(ping.size));
    let bytes = pinged.saturating_add(copy.bytes).saturating_add(measured);
    Ok((info, Transfers { ping, copy, perf, bytes }))
}

fn show_ping<D: Device>(
    client: &Client<D>,
    arguments: &DemoArguments,
    output: Output,
    progress: Progress,
) -> Result<PingReport, Failure> {
    output.heading(3, "read a few bytes from the other adapter, again and again (ndkctl ping)");
    let ping = PingArguments {
        count: arguments.pings,
        size: 64,
        interval: 0,
        operation: OperationName::Read,
        registration: Registration::Registered,
        pair: PAIR,
    };
    let report = ping::run(client, &ping, progress)?;
    output.say(format_args!("{report}"));
    Ok(report)
}

fn show_copy<D: Device>(
    client: &Client<D>,
    arguments: &DemoArguments,
    output: Output,
    progress: Progress,
) -> Result<CopyReport, Failure> {
    output.heading(4, "pull a file through it by RDMA Read (ndkctl copy)");
    let folder = tempfile::tempdir().map_err(|error| Failure::file("write into", &std::env::temp_dir(), &error))?;
    let source = folder.path().join("source");
    generate(&source, arguments.size).map_err(|error| Failure::file("write", &source, &error))?;
    let copy = CopyArguments {
        source,
        dest: folder.path().join("copy"),
        request_size: 64 << 10,
        chain: 16,
        window: None,
        pair: PAIR,
    };
    let report = copy::run(client, &copy, progress)?;
    output.say(format_args!("{report}"));
    Ok(report)
}

const PAIR: PairArguments = PairArguments { client: 0, server: 1, family: Family::Any, notify: false };

fn perf_arguments(arguments: &DemoArguments) -> PerfArguments {
    PerfArguments {
        operation: None,
        measure: None,
        size: Vec::new(),
        sweep: false,
        chain: None,
        depth: None,
        connections: 1,
        processors: 1,
        at: Level::Passive,
        inline: false,
        registration: Registration::Registered,
        sge: 1,
        scattered: false,
        pages: None,
        time: Duration::from_millis(u64::from(arguments.time)),
        rounds: 5,
        svg: None,
        pair: PAIR,
    }
}

/// Writes a file of `size` bytes that look like data.
fn generate(path: &Path, size: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut pattern = fastrand::Rng::with_seed(size);
    let mut chunk = vec![0; CHUNK as usize];
    let mut rest = size;
    while rest > 0 {
        let part = &mut chunk[..rest.min(CHUNK) as usize];
        pattern.fill(part);
        file.write_all(part)?;
        rest -= part.len() as u64;
    }
    Ok(())
}

/// The lines printed on the way; the report at the end is the summary.
#[derive(Clone, Copy)]
struct Output {
    announce: bool,
}

impl Output {
    fn heading(self, number: u32, what: &str) {
        self.say(format_args!("\n[{number}/6] {what}"));
    }

    fn say(self, what: fmt::Arguments<'_>) {
        if self.announce {
            // A write error of a closed pipe needs no report.
            let _ = writeln!(io::stdout(), "{what}");
        }
    }
}

impl fmt::Display for DemoReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let image = &self.image;
        let sys = format!(
            "{} ({} bytes, SHA-256 {})",
            image.path.file_name().unwrap_or(image.path.as_os_str()).display(),
            units::count(image.size),
            image.sha256
        );
        writeln!(formatter)?;
        let copy = &self.transfers.copy;
        writeln!(formatter, "{} bytes went by RDMA through {sys}.", units::count(self.transfers.bytes))?;
        writeln!(
            formatter,
            "The file of {} bytes and its copy have the same SHA-256: {}.",
            units::count(copy.bytes),
            copy.dest_sha256
        )?;
        write!(formatter, "{}", self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::generate;
    use std::collections::HashSet;
    use std::fs;

    #[test]
    fn the_generated_file_has_its_size_and_no_page_twice() {
        let folder = tempfile::tempdir().unwrap();
        for size in [0, 1, (1 << 20) - 1, 1 << 20, (2 << 20) + 3] {
            let path = folder.path().join(size.to_string());
            generate(&path, size).unwrap();
            let bytes = fs::read(&path).unwrap();
            assert_eq!(bytes.len() as u64, size);
            let pages: HashSet<&[u8]> = bytes.chunks(4096).collect();
            assert_eq!(pages.len(), bytes.chunks(4096).count());
        }
    }
}
