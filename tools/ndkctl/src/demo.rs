//! `ndkctl demo`: everything once, in one boot of the kernel host, with headings that explain each step.
//!
//! Only `perf` has a kernel host of its own, in another process: this one checks each access, and its times say nothing of the driver. The
//! demonstration fails unless every byte arrived, both hashes are equal, the mistake was named, and nothing of the driver was left behind.

use crate::arguments::{
    CopyArguments, DemoArguments, Family, InfoArguments, MachineArguments, ObjectsArguments, OperationName,
    PairArguments, PingArguments, Registration,
};
use crate::client::Client;
use crate::copy::{self, CopyReport};
use crate::failure::{Failure, Kind};
use crate::info::{self, InfoReport};
use crate::objects::{self, ObjectsReport};
use crate::ping::{self, PingReport};
use crate::progress::Progress;
use crate::refusals::{self, RefusalsReport};
use crate::transport::{Device, ImageFacts, Leftovers, Machine};
use crate::units;
use crate::{replay, script};
use serde::Serialize;
use serde_json::Value;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Bytes of the generated file that are made at a time.
const CHUNK: u64 = 1 << 20;

/// What the demonstration showed.
#[derive(Clone, Debug, Serialize)]
pub struct DemoReport {
    pub image: ImageFacts,
    pub info: InfoReport,
    pub transfers: Transfers,
    pub mistake: Mistake,
    pub left: Leftovers,
}

/// The part that moves bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Transfers {
    pub ping: PingReport,
    pub copy: CopyReport,
    /// The JSON report of `ndkctl perf`; null where its table was printed on the way.
    pub perf: Value,
    /// Payload of `ping` and `copy`.
    pub bytes: u64,
}

/// The part that goes wrong on purpose.
#[derive(Clone, Debug, Serialize)]
pub struct Mistake {
    pub refusals: RefusalsReport,
    pub objects: ObjectsReport,
}

/// A connected pair of which one reads past the end of the other one's region.
const MISTAKE: &str = include_str!("demo/mistake.ndk");

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
    output.heading(8, "unload the driver and list what it left");
    let finished = machine.finish();
    let (info, transfers, mistake) = shown?;
    Ok(DemoReport { image, info, transfers, mistake, left: finished? })
}

fn show(
    machine: &Machine,
    machine_arguments: &MachineArguments,
    arguments: &DemoArguments,
    output: Output,
    progress: Progress,
) -> Result<(InfoReport, Transfers, Mistake), Failure> {
    output.heading(2, "ask the driver for its adapters (ndkctl info)");
    let (client, _) = Client::connect(machine.open()?)?;
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
    output.heading(5, "measure in a second kernel host, which checks nothing, beside memcpy (ndkctl perf)");
    let perf = measure(machine.image(), arguments, output)?;
    let mistake = show_mistake(machine, client, output)?;
    let pinged = ping.received.saturating_mul(u64::from(ping.size));
    let bytes = pinged.saturating_add(copy.bytes);
    Ok((info, Transfers { ping, copy, perf, bytes }, mistake))
}

/// Another process, because a process has one kernel: its table on the way, or its report.
fn measure(image: &ImageFacts, arguments: &DemoArguments, output: Output) -> Result<Value, Failure> {
    let failed = |cause: String| {
        Failure::new(Kind::Refused, "cannot measure", cause, "run \"ndkctl --mode measure perf\" by itself")
    };
    let own = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut perf = Command::new(own);
    perf.arg("--image").arg(&image.path).args(["--mode", "measure"]).args((!output.announce).then_some("--json"));
    // Its progress, or why it fails, is for the person.
    perf.args(["perf", "--time", &format!("{}ms", arguments.time)]).stdin(Stdio::null()).stderr(Stdio::inherit());
    let done = perf.output().map_err(|error| failed(error.to_string()))?;
    let said = String::from_utf8_lossy(&done.stdout);
    if !done.status.success() {
        return Err(failed(format!("ndkctl perf ended with {}", done.status)));
    }
    output.say(format_args!("{}", said.trim_end()));
    if output.announce {
        return Ok(Value::Null);
    }
    let document: Value = serde_json::from_str(&said).map_err(|error| failed(error.to_string()))?;
    Ok(document["report"].clone())
}

fn show_mistake<D: Device>(machine: &Machine, client: &Client<D>, output: Output) -> Result<Mistake, Failure> {
    output.heading(6, "read past the end of the peer's region, and see why it was refused (ndkctl refusals)");
    let (provider, _) = Client::connect(machine.open_provider()?)?;
    let file = Path::new("mistake.ndk");
    let lines = script::parse(MISTAKE).map_err(|error| Failure::no_script(file, error.to_string()))?;
    replay::run_script(client, file, MISTAKE, &lines)?;
    let refusals = refusals::last(&provider, 1)?;
    output.say(format_args!("{refusals}"));
    output.heading(7, "list what a consumer holds that has not closed its objects yet (ndkctl objects)");
    let consumer = || machine.open().and_then(Client::connect).map(|(client, _)| client);
    let objects =
        objects::run(&provider, consumer, &ObjectsArguments { example: true, ..ObjectsArguments::default() })?;
    output.say(format_args!("{objects}"));
    Ok(Mistake { refusals, objects })
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
        self.say(format_args!("\n[{number}/8] {what}"));
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
