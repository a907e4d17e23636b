//! The zip: sorted names, one time, one set of attributes, so that the same files give the same bytes.

use crate::inf::Date;
use anyhow::{Result, ensure};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{Cursor, Write},
};
use zip::{CompressionMethod, DateTime, ZipWriter, write::SimpleFileOptions};

/// Names and contents; there are no folders.
pub type Files = BTreeMap<String, Vec<u8>>;

/// What setup.ps1 compares the other files with.
const SUMS: &str = "SHA256SUMS";

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The files and the list of their sums.
pub fn with_sums(mut files: Files) -> Files {
    let line = |(name, contents): (&String, &Vec<u8>)| format!("{}  {name}\n", sha256(contents));
    let sums: String = files.iter().map(line).collect();
    files.insert(SUMS.to_owned(), sums.into_bytes());
    files
}

/// The zip of these files, all of which are of this time, in seconds since 1970.
pub fn write(files: Files, time: u64) -> Result<Vec<u8>> {
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .last_modified_time(date_time(time)?)
        .unix_permissions(0o644);
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, contents) in files {
        ensure!(!name.contains(['/', '\\']), "{name} is in a folder: setup.ps1 looks for files beside it");
        zip.start_file(name, options)?;
        zip.write_all(&contents)?;
    }
    Ok(zip.finish()?.into_inner())
}

fn date_time(time: u64) -> Result<DateTime> {
    let Date { year, month, day } = Date::of(time);
    let of_day = time % 86_400;
    let [hour, minute, second] = [of_day / 3600, of_day / 60 % 60, of_day % 60].map(|part| part as u8);
    Ok(DateTime::from_date_and_time(year as u16, month as u8, day as u8, hour, minute, second)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const TIME: u64 = 1_795_609_279;

    fn files() -> Files {
        let file = |name: &str, contents: &[u8]| (name.to_owned(), contents.to_vec());
        [file("b.sys", &vec![7; 100_000]), file("a.txt", b"a\r\n"), file("SUMS.txt", b"")].into()
    }

    #[test]
    fn same_files_give_the_same_bytes_and_others_do_not() {
        let zip = write(with_sums(files()), TIME).unwrap();
        assert_eq!(write(with_sums(files()), TIME).unwrap(), zip);
        // The format counts in pairs of seconds.
        assert_ne!(write(with_sums(files()), TIME + 2).unwrap(), zip);
        let mut changed = files();
        changed.get_mut("b.sys").unwrap()[99_999] = 8;
        assert_ne!(write(with_sums(changed), TIME).unwrap(), zip);
    }

    #[test]
    fn zip_has_the_files_sorted_with_one_time_and_their_sums() {
        let bytes = write(with_sums(files()), TIME).unwrap();
        assert!(bytes.len() < 5000, "it is not compressed");
        let mut zip = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
        let mut names = Vec::new();
        let mut sums = String::new();
        for index in 0..zip.len() {
            let mut file = zip.by_index(index).unwrap();
            let time = file.last_modified().unwrap();
            assert_eq!((time.year(), time.month(), time.day(), time.hour()), (2026, 11, 25, 12));
            assert_eq!((time.minute(), time.second(), file.unix_mode()), (21, 18, Some(0o100_644)));
            let name = file.name().unwrap().into_owned();
            if name == SUMS {
                file.read_to_string(&mut sums).unwrap();
            }
            names.push(name);
        }
        assert_eq!(names, ["SHA256SUMS", "SUMS.txt", "a.txt", "b.sys"]);
        let of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  SUMS.txt\n";
        assert!(sums.starts_with(of_nothing) && sums.lines().count() == 3, "{sums}");
    }

    #[test]
    fn a_file_in_a_folder_is_refused() {
        let error = write([("a/b".to_owned(), Vec::new())].into(), TIME).unwrap_err();
        assert!(error.to_string().contains("a/b is in a folder"), "{error}");
    }
}
