//! The file that a server offers, read once from its beginning to its end.

use super::message::{Broken, HASH};
use crate::copy::{file_length, read_full};
use crate::failure::{Failure, Kind};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes read at a time.
const CHUNK: usize = 1 << 18;

/// An open file, what was read of it, and how long it said that it is.
pub struct Offer<F = File> {
    file: F,
    path: PathBuf,
    length: u64,
    done: u64,
    hash: Sha256,
    chunk: Vec<u8>,
}

/// Why the rest of the file is not offered: for the client, and for the user of the server.
#[derive(Debug)]
pub struct Ended {
    pub broken: Broken,
    pub failure: Failure,
}

impl Offer {
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let file = File::open(path).map_err(|error| Failure::file("read", path, &error))?;
        let length = file_length(&file, path)?;
        Ok(Self::of(file, path, length))
    }

    /// Takes the length as it is now: between the open and the client's connection the file may have grown.
    pub fn begin(&mut self) -> Result<(), Failure> {
        self.length = file_length(&self.file, &self.path)?;
        Ok(())
    }
}

impl<F: Read> Offer<F> {
    fn of(file: F, path: &Path, length: u64) -> Self {
        Self { file, path: path.to_owned(), length, done: 0, hash: Sha256::new(), chunk: vec![0; CHUNK] }
    }

    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Reads the next bytes, no more than these, and gives them to `put` with their place in the window. 0: the file has ended.
    pub fn fill(&mut self, window: u32, mut put: impl FnMut(usize, &[u8])) -> Result<u32, Ended> {
        let wanted = u64::from(window).min(self.length - self.done) as u32;
        let mut filled = 0;
        while filled < wanted {
            let part = CHUNK.min((wanted - filled) as usize);
            let count = read_full(&mut self.file, &mut self.chunk[..part]).map_err(|error| self.unreadable(&error))?;
            self.hash.update(&self.chunk[..count]);
            put(filled as usize, &self.chunk[..count]);
            filled += count as u32;
            self.done += count as u64;
            if count < part {
                return Err(self.changed(Broken::Shorter, "shorter"));
            }
        }
        if wanted == 0 && read_full(&mut self.file, &mut self.chunk[..1]).map_err(|error| self.unreadable(&error))? > 0
        {
            return Err(self.changed(Broken::Longer, "longer"));
        }
        Ok(filled)
    }

    /// The hash of all that was read.
    #[must_use]
    pub fn sha256(&self) -> [u8; HASH] {
        self.hash.clone().finalize().into()
    }

    fn unreadable(&self, error: &std::io::Error) -> Ended {
        Ended { broken: Broken::Unreadable, failure: Failure::file("read", &self.path, error) }
    }

    fn changed(&self, broken: Broken, how: &str) -> Ended {
        let what = format!("cannot read {} to its end", self.path.display());
        let cause = format!("it had {} bytes when the client came, and is {how} now", self.length);
        Ended { broken, failure: Failure::new(Kind::File, what, cause, "pull it when no program writes it") }
    }
}

#[cfg(test)]
mod tests {
    use super::{Broken, CHUNK, Offer};
    use crate::copy::hexadecimal;
    use crate::failure::Kind;
    use std::fs;
    use std::path::Path;

    /// What `fill` gives, window by window, and the bytes of all windows.
    fn filled(bytes: &[u8], length: u64, window: u32) -> (Vec<Result<u32, Broken>>, Vec<u8>) {
        let mut offer = Offer::of(bytes, Path::new("some"), length);
        let (mut lengths, mut all) = (Vec::new(), Vec::new());
        loop {
            let mut place = 0;
            let put = |at: usize, part: &[u8]| {
                assert_eq!(at, place, "parts follow each other");
                place += part.len();
                all.extend_from_slice(part);
            };
            let outcome = offer.fill(window, put).map_err(|ended| {
                assert_eq!(ended.failure.kind, Kind::File);
                ended.broken
            });
            lengths.push(outcome);
            if !matches!(outcome, Ok(length) if length > 0) {
                return (lengths, all);
            }
        }
    }

    #[test]
    fn windows_are_the_file_and_then_nothing() {
        let bytes: Vec<u8> = (0..=250).cycle().take(CHUNK + 7).collect();
        let length = bytes.len() as u64;
        assert_eq!(filled(&bytes, length, length as u32 + 1), (vec![Ok(length as u32), Ok(0)], bytes.clone()));
        assert_eq!(filled(&bytes[..9], 9, 4), (vec![Ok(4), Ok(4), Ok(1), Ok(0)], bytes[..9].to_vec()));
        assert_eq!(filled(&bytes[..8], 8, 4).0, [Ok(4), Ok(4), Ok(0)]);
        assert_eq!(filled(&[], 0, 4).0, [Ok(0)]);
    }

    #[test]
    fn another_length_than_it_had_is_noticed() {
        assert_eq!(filled(b"1234567", 8, 4).0, [Ok(4), Err(Broken::Shorter)]);
        assert_eq!(filled(b"1234", 8, 4).0, [Ok(4), Err(Broken::Shorter)]);
        assert_eq!(filled(b"12345", 4, 4).0, [Ok(4), Err(Broken::Longer)]);
        assert_eq!(filled(b"1", 0, 4).0, [Err(Broken::Longer)]);
    }

    #[test]
    fn length_is_that_at_the_beginning_and_the_hash_that_of_the_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "").unwrap();
        let mut offer = Offer::open(&path).unwrap();
        fs::write(&path, "abc").unwrap();
        offer.begin().unwrap();
        assert_eq!(offer.fill(100, |_, _| {}).unwrap(), 3);
        assert_eq!(hexadecimal(&offer.sha256()), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(Offer::open(folder.path()).err().map(|failure| failure.kind), Some(Kind::File));
    }
}
