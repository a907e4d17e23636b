//! The part of a guest's capture that belongs to one case, as a capture of its own.

use anyhow::{Context, Result};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Bytes before the first packet.
const FILE_HEADER: usize = 24;
/// Bytes before each packet, and where the number of its captured bytes is among them.
const PACKET_HEADER: usize = 16;
const CAPTURED: std::ops::Range<usize> = 8..12;

/// A capture that grows.
pub(super) struct Capture {
    path: PathBuf,
    /// Bytes that belong to earlier cases.
    taken: usize,
}

impl Capture {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, taken: FILE_HEADER }
    }

    /// Puts the whole packets that have come since the last call into a file.
    pub(super) fn take(&mut self, to: &Path) -> Result<()> {
        let all = fs::read(&self.path).with_context(|| format!("cannot read {}", self.path.display()))?;
        let end = whole_packets(&all, self.taken);
        let parts = [all.get(..FILE_HEADER), all.get(self.taken..end)];
        fs::write(to, parts.map(Option::unwrap_or_default).concat())?;
        self.taken = end;
        Ok(())
    }
}

/// Where the last whole packet ends.
fn whole_packets(all: &[u8], mut start: usize) -> usize {
    while let Some(header) = all.get(start..start + PACKET_HEADER) {
        let captured = header[CAPTURED].try_into().map_or(0, u32::from_le_bytes);
        let end = start + PACKET_HEADER + captured as usize;
        if end > all.len() {
            break;
        }
        start = end;
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_taken_once_and_whole() {
        let mut bytes = vec![0; FILE_HEADER];
        for length in [3_u8, 0, 5] {
            let mut header = [0; PACKET_HEADER];
            header[CAPTURED.start] = length;
            bytes.extend(header);
            bytes.extend(vec![length; length.into()]);
        }
        let (two, three) = (FILE_HEADER + 2 * PACKET_HEADER + 3, bytes.len());
        assert_eq!(whole_packets(&bytes[..three - 1], FILE_HEADER), two);
        assert_eq!((whole_packets(&bytes, FILE_HEADER), whole_packets(&bytes, two)), (three, three));
        assert_eq!(whole_packets(&bytes[..two + PACKET_HEADER - 1], two), two);
    }
}
