//! `ndkctl copy`: a file pulled through the adapters, window by window.
//!
//! Each window is fast-registered page by page and read in deferred chains. The destination is complete or as it was
//! ([`crate::destination`]): when all bytes are on disk it is read again, its SHA-256 compared with the source's, and only then named.

use crate::arguments::CopyArguments;
use crate::client::{Client, TransferBuffer};
use crate::destination::Destination;
use crate::failure::{Failure, Kind};
use crate::pair::{PairSize, ends, with_pair};
use crate::progress::Progress;
use crate::transport::Device;
use crate::units;
use serde::Serialize;
use sha2::{Digest, Sha256};
use softndk_ioctl::{
    AdapterEntry, Operation, PairCreateReply, REGION_LENGTH_MAX, RegionKind, RequestHeader, TransferFlags,
    TransferRequest, stride_count,
};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

const PAGE_SIZE: u64 = 4096;

/// What was in the destination's window before the transfer: a window that nothing wrote shows.
pub(crate) const UNWRITTEN: u8 = 0xA5;

/// What `copy` did.
#[derive(Clone, Debug, Serialize)]
pub struct CopyReport {
    pub source: PathBuf,
    pub dest: PathBuf,
    pub ends: String,
    /// Bytes of the file, all of them moved by RDMA Read.
    pub bytes: u64,
    pub reads: u64,
    pub windows: u64,
    /// Nanoseconds that the Reads took, by the driver's clock.
    pub read_time: u64,
    /// Nanoseconds from start to end, files and hashes included.
    pub total_time: u64,
    pub source_sha256: String,
    pub dest_sha256: String,
}

/// Copies.
pub fn run<D: Device>(
    client: &Client<D>,
    arguments: &CopyArguments,
    progress: Progress,
) -> Result<CopyReport, Failure> {
    let plan = Plan::new(client, arguments)?;
    let size = PairSize { depth: arguments.chain, sge: 1, shared: false };
    let mut source = File::open(&arguments.source).map_err(|error| Failure::file("read", &arguments.source, &error))?;
    let length = file_length(&source, &arguments.source)?;
    let dest = Destination::at(&arguments.dest)?;
    with_pair(client, &arguments.pair, size, |pair| {
        let started = Instant::now();
        let mut copy = Copy { plan, source_hash: Sha256::new(), bytes: 0, reads: 0, windows: 0, read_time: 0 };
        let bar = progress.bytes(length, "copy");
        // Some files say 0 and have bytes: those get a whole window.
        let mut buffer = client.allocate(if length == 0 { plan.window } else { plan.window.min(length) })?;
        while copy.window(client, pair, (&mut source, &arguments.source), dest.file(), &mut buffer)? {
            bar.set_position(copy.bytes);
        }
        bar.finish_and_clear();
        let dest_sha256 = hash_again(dest.file(), &arguments.dest, copy.bytes)?;
        let source_sha256 = hexadecimal(&copy.source_hash.finalize());
        if source_sha256 != dest_sha256 {
            return Err(corrupt(&source_sha256, &dest_sha256));
        }
        dest.finish()?;
        Ok(CopyReport {
            source: arguments.source.clone(),
            dest: arguments.dest.clone(),
            ends: ends(pair),
            bytes: copy.bytes,
            reads: copy.reads,
            windows: copy.windows,
            read_time: copy.read_time,
            total_time: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            source_sha256,
            dest_sha256,
        })
    })
}

/// Sizes that the adapters can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    window: u64,
    request_size: u32,
    chain: u32,
}

impl Plan {
    fn new<D: Device>(client: &Client<D>, arguments: &CopyArguments) -> Result<Self, Failure> {
        let adapters = client.adapters()?;
        let used =
            adapters.iter().filter(|entry| [arguments.pair.client, arguments.pair.server].contains(&entry.index));
        Self::within(arguments, used)
    }

    fn within<'entries>(
        arguments: &CopyArguments,
        adapters: impl Iterator<Item = &'entries AdapterEntry>,
    ) -> Result<Self, Failure> {
        let mut window = REGION_LENGTH_MAX;
        let mut request_size = arguments.request_size;
        for entry in adapters {
            window = window.min(u64::from(entry.limits.frmr_page_count) * PAGE_SIZE);
            request_size = request_size.min(entry.limits.max_transfer_length);
        }
        window = window.min(arguments.window.unwrap_or(u64::MAX));
        if window == 0 || request_size == 0 {
            return Err(Failure::new(
                Kind::Usage,
                "cannot copy in pieces of 0 bytes",
                "the window or the request size is 0, or the adapter cannot fast-register",
                "choose --window and --request-size of at least 1",
            ));
        }
        Ok(Self { window, request_size, chain: arguments.chain })
    }
}

/// A copy on its way.
struct Copy {
    plan: Plan,
    source_hash: Sha256,
    bytes: u64,
    reads: u64,
    windows: u64,
    read_time: u64,
}

impl Copy {
    /// Moves one window; false when the file has ended. An empty file is one window without bytes.
    fn window<D: Device>(
        &mut self,
        client: &Client<D>,
        pair: &PairCreateReply,
        (source, source_path): (&mut File, &Path),
        mut dest: &File,
        buffer: &mut TransferBuffer<D::Buffer>,
    ) -> Result<bool, Failure> {
        let filled =
            read_full(source, buffer.source_mut()).map_err(|error| Failure::file("read", source_path, &error))?;
        if filled == 0 && self.windows > 0 {
            return Ok(false);
        }
        let whole = filled == buffer.source().len();
        if !whole {
            // The layout of a shorter region starts the same, so the source stays where it is.
            buffer.shrink(filled as u64)?;
        }
        self.source_hash.update(buffer.source());
        buffer.destination_mut().fill(UNWRITTEN);
        self.transfer(client, pair, buffer)?;
        dest.write_all(buffer.destination())
            .map_err(|error| Failure::file("write", Path::new("the temporary file"), &error))?;
        self.windows += 1;
        Ok(whole && filled > 0)
    }

    fn transfer<D: Device>(
        &mut self,
        client: &Client<D>,
        pair: &PairCreateReply,
        buffer: &mut TransferBuffer<D::Buffer>,
    ) -> Result<(), Failure> {
        let length = buffer.region_length();
        let requests = stride_count(length, self.plan.request_size);
        let result = client.transfer(
            &TransferRequest {
                header: RequestHeader::of::<TransferRequest>(),
                pair: pair.pair,
                operation: Operation::READ,
                region_kind: RegionKind::FAST_REGISTERED,
                flags: TransferFlags::empty(),
                region_length: length,
                request_count: requests,
                request_length: self.plan.request_size,
                sge_count: 1,
                depth: self.plan.chain,
                chain_length: self.plan.chain,
                time_budget: 0,
                signal_interval: 0,
            },
            buffer,
        )?;
        if (result.completed, result.bytes) != (requests, length) {
            return Err(Failure::new(
                Kind::Refused,
                "cannot trust the copy",
                format!("{} of {requests} reads moved {} of {length} bytes", result.completed, result.bytes),
                "this is a fault of the driver; please report it",
            ));
        }
        self.bytes += length;
        self.reads += requests;
        self.read_time = self.read_time.saturating_add(result.elapsed);
        Ok(())
    }
}

pub(crate) fn file_length(file: &File, path: &Path) -> Result<u64, Failure> {
    let metadata = file.metadata().map_err(|error| Failure::file("read", path, &error))?;
    if metadata.is_dir() {
        return Err(Failure::new(
            Kind::File,
            format!("cannot read {}", path.display()),
            "it is a folder",
            "name a file; copy does one at a time",
        ));
    }
    Ok(metadata.len())
}

/// Fills the buffer as far as the file goes.
pub(crate) fn read_full(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// SHA-256 of what is in the file now, which must be `length` bytes.
pub(crate) fn hash_again(mut file: &File, dest: &Path, length: u64) -> Result<String, Failure> {
    let hash = || -> io::Result<(u64, String)> {
        file.sync_all()?;
        file.seek(SeekFrom::Start(0))?;
        let mut hash = Sha256::new();
        let mut chunk = vec![0; 1 << 20];
        let mut total = 0;
        loop {
            let filled = read_full(&mut file, &mut chunk)?;
            if filled == 0 {
                return Ok((total, hexadecimal(&hash.finalize())));
            }
            total += filled as u64;
            hash.update(&chunk[..filled]);
        }
    };
    let mut hash = hash;
    let (total, digest) = hash().map_err(|error| Failure::file("read back", dest, &error))?;
    if total == length {
        return Ok(digest);
    }
    Err(Failure::new(
        Kind::File,
        format!("cannot read back {}", dest.display()),
        format!("{length} bytes were written, {total} are there"),
        "check the file system, then try again",
    ))
}

/// Lower-case hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn corrupt(source: &str, dest: &str) -> Failure {
    Failure::new(
        Kind::Corrupt,
        "the copy is not what was copied; nothing was left under the destination's name",
        format!("SHA-256 of the source is {source}, of the copy {dest}"),
        "this is a fault of the driver, unless the source changed meanwhile; please report it",
    )
}

impl fmt::Display for CopyReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{} bytes of {} to {} by {} RDMA reads in {} windows, from {}",
            units::count(self.bytes),
            self.source.display(),
            self.dest.display(),
            units::count(self.reads),
            units::count(self.windows),
            self.ends
        )?;
        let rate = |time: u64| {
            units::megabytes_per_second(self.bytes, time).map_or_else(String::new, |rate| format!(" ({rate:.0} MB/s)"))
        };
        writeln!(
            formatter,
            "reads took {}{}, everything {}{}",
            units::duration(self.read_time as f64),
            rate(self.read_time),
            units::duration(self.total_time as f64),
            rate(self.total_time)
        )?;
        writeln!(formatter, "SHA-256 source {}", self.source_sha256)?;
        write!(formatter, "SHA-256 copy   {}: equal", self.dest_sha256)
    }
}

#[cfg(test)]
mod tests {
    use super::{CopyReport, Plan, hexadecimal, read_full};
    use crate::arguments::{Arguments, Command, CopyArguments};
    use crate::failure::Kind;
    use clap::Parser;
    use softndk_ioctl::AdapterEntry;
    use std::io::{self, Read};
    use std::path::Path;
    use zerocopy::FromZeros;

    fn arguments(line: &str) -> CopyArguments {
        let words = ["ndkctl", "copy", "a", "b"].into_iter().chain(line.split_whitespace());
        match Arguments::try_parse_from(words).unwrap().command {
            Command::Copy(copy) => copy,
            _ => unreachable!("the line says copy"),
        }
    }

    fn entry(pages: u32, transfer: u32) -> AdapterEntry {
        let mut entry = AdapterEntry::new_zeroed();
        entry.limits.frmr_page_count = pages;
        entry.limits.max_transfer_length = transfer;
        entry
    }

    #[test]
    fn the_smaller_adapter_decides() {
        let adapters = [entry(512, 1 << 30), entry(16, 8192)];
        let plan = Plan::within(&arguments(""), adapters.iter()).unwrap();
        assert_eq!((plan.window, plan.request_size), (65_536, 8192));
        let plan = Plan::within(&arguments("--window 4097 --request-size 1"), adapters.iter()).unwrap();
        assert_eq!((plan.window, plan.request_size), (4097, 1));
    }

    #[test]
    fn nothing_can_be_copied_in_nothing() {
        for (line, pages) in [("--window 0", 512), ("--request-size 0", 512), ("", 0)] {
            let adapters = [entry(pages, 1 << 30)];
            assert_eq!(Plan::within(&arguments(line), adapters.iter()).unwrap_err().kind, Kind::Usage);
        }
    }

    /// A reader that gives one byte at a time and is interrupted in between.
    struct Dribble(u8, bool);

    impl Read for Dribble {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if self.0 == 0 {
                return Ok(0);
            }
            self.0 -= 1;
            buffer[0] = self.0;
            Ok(1)
        }
    }

    #[test]
    fn short_reads_are_put_together() {
        let mut buffer = [9; 5];
        assert_eq!(read_full(&mut Dribble(7, false), &mut buffer).unwrap(), 5);
        assert_eq!(buffer, [6, 5, 4, 3, 2]);
        assert_eq!(read_full(&mut Dribble(2, false), &mut buffer).unwrap(), 2);
        assert_eq!(read_full(&mut Dribble(2, false), &mut []).unwrap(), 0);
    }

    #[test]
    fn hexadecimal_digits() {
        assert_eq!(hexadecimal(&[0, 0x0F, 0xF0, 0xFF]), "000ff0ff");
    }

    #[test]
    fn the_report_says_both_hashes() {
        let report = CopyReport {
            source: Path::new("a").to_owned(),
            dest: Path::new("b").to_owned(),
            ends: "x to y".to_owned(),
            bytes: 67_108_864,
            reads: 1024,
            windows: 32,
            read_time: 0,
            total_time: 1_000_000_000,
            source_sha256: "aa".to_owned(),
            dest_sha256: "aa".to_owned(),
        };
        let text = report.to_string();
        assert!(text.contains("67 108 864 bytes of a to b by 1 024 RDMA reads in 32 windows"), "{text}");
        assert!(text.contains("everything 1.00 s (67 MB/s)"), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["source_sha256"], json["dest_sha256"]);
    }

    #[test]
    fn each_time_has_its_own_rate() {
        let report = CopyReport {
            source: Path::new("a").to_owned(),
            dest: Path::new("b").to_owned(),
            ends: "x to y".to_owned(),
            bytes: 3_000_000,
            reads: 21,
            windows: 4,
            read_time: 1_000_000,
            total_time: 4_000_000,
            source_sha256: "aa".to_owned(),
            dest_sha256: "bb".to_owned(),
        };
        let text = report.to_string();
        assert!(text.contains("reads took 1.00 ms (3000 MB/s), everything 4.00 ms (750 MB/s)"), "{text}");
        assert!(text.contains("by 21 RDMA reads in 4 windows, from x to y"), "{text}");
        assert!(text.contains("source aa") && text.contains("copy   bb"), "{text}");
    }
}
