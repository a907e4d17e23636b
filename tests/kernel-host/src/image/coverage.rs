//! What an image built with `-Cinstrument-coverage` counted, written where LLVM's tools read it.
//!
//! Such an image has no run-time of its own: it counts in a section and leaves the rest to its loader. When it is unloaded and
//! `KERNEL_HOST_COVERAGE` names a folder, the counters go there as a raw profile, one file a process and image; an image that
//! is loaded again adds to what it counted before. Nothing is written for other images, and what a bugcheck ends is lost. The
//! line of a counter is in the image's file, for `llvm-cov`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use super::Image;

/// Names the folder that raw profiles go to.
const FOLDER: &str = "KERNEL_HOST_COVERAGE";

/// Sections of the compiler's making.
const DATA: &str = ".lprfd";
const COUNTERS: &str = ".lprfc";
const NAMES: &str = ".lprfn";

/// The magic number of profiles with 64-bit addresses, and the version of the layout below.
const MAGIC: u64 = u64::from_le_bytes([129, b'r', b'f', b'o', b'r', b'p', b'l', 255]);
const VERSION: u64 = 10;

/// The length of one function's record in [`DATA`].
const RECORD: usize = 64;

/// The last kind of values that a record can hold; the compiler of an image without a run-time uses none.
const LAST_VALUE_KIND: u64 = 2;

/// A section in memory.
struct SectionPart<'memory> {
    address: usize,
    bytes: &'memory [u8],
}

/// The counters of each image so far, by the file that they are written to.
static COUNTED: Mutex<BTreeMap<PathBuf, Vec<u64>>> = Mutex::new(BTreeMap::new());

/// Records what an image counted, if it counts and counters are wanted. No code may run in it any more.
pub(super) fn write(image: &Image) {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let [Some(data), Some(counters), Some(names)] = [DATA, COUNTERS, NAMES].map(|name| part(image, name)) else {
        return;
    };
    let file = folder.join(format!("{}-{}-{}.profraw", image.name, std::process::id(), start()));
    let mut counted = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    let totals = counted.entry(file.clone()).or_default();
    add(totals, counters.bytes);
    // The first byte of the section is none of a name: LLVM's tools expect it in images, but not in profiles.
    let names = names.bytes.strip_prefix(&[0]).unwrap_or(names.bytes);
    let profile = profile(&data, counters.address, totals, names);
    // A missing profile would lower the numbers silently: the run ends.
    fs::write(&file, profile).unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
}

/// A section's bytes as they are in memory, without what fills its last page.
fn part<'image>(image: &'image Image, name: &str) -> Option<SectionPart<'image>> {
    let section = image.sections.iter().find(|section| section.name == name)?;
    // SAFETY: the section is mapped as long as the image is, and no code of the image runs any more that could write to it.
    let bytes = unsafe { std::slice::from_raw_parts(section.address as *const u8, section.used) };
    Some(SectionPart { address: section.address, bytes })
}

/// When this process wrote first: with its number a name that no other process has.
fn start() -> u128 {
    static START: std::sync::OnceLock<u128> = std::sync::OnceLock::new();
    *START.get_or_init(|| SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos()))
}

fn add(totals: &mut Vec<u64>, counters: &[u8]) {
    let counters = counters.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
    if totals.is_empty() {
        totals.extend(counters);
    } else {
        totals.iter_mut().zip(counters).for_each(|(total, counter)| *total = total.saturating_add(counter));
    }
}

/// The file: a header, the records, the counters, the names, the last filled up to whole words.
fn profile(data: &SectionPart<'_>, counters: usize, totals: &[u64], names: &[u8]) -> Vec<u8> {
    // A record holds the distance of its counters from itself in the 32 bits that the linker of a PE image can fill in.
    let distance = (counters as u32).wrapping_sub(data.address as u32);
    let header = [
        MAGIC,
        VERSION,
        0, // bytes of build identifiers
        (data.bytes.len() / RECORD) as u64,
        0, // bytes between records and counters
        totals.len() as u64,
        0, // bytes between counters and bitmap
        0, // bytes of bitmap
        0, // bytes between bitmap and names
        names.len() as u64,
        u64::from(distance),
        0, // distance of the bitmap
        0, // address of the names, which nothing refers to
        0, // virtual tables
        0, // bytes of their names
        LAST_VALUE_KIND,
    ];
    let mut file = Vec::with_capacity(size_of_val(&header) + data.bytes.len() + totals.len() * 8 + names.len() + 8);
    file.extend(header.iter().flat_map(|word| word.to_le_bytes()));
    file.extend(data.bytes);
    file.extend(totals.iter().flat_map(|word| word.to_le_bytes()));
    file.extend(names);
    file.resize(file.len().next_multiple_of(8), 0);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_that_is_loaded_again_adds_to_what_it_counted() {
        let mut totals = Vec::new();
        add(&mut totals, &[1_u64.to_le_bytes(), u64::MAX.to_le_bytes()].concat());
        add(&mut totals, &[2_u64.to_le_bytes(), 5_u64.to_le_bytes()].concat());
        assert_eq!(totals, [3, u64::MAX]);
    }

    #[test]
    fn profile_is_as_long_as_its_header_says() {
        let data = SectionPart { address: 0x1_2000_3000, bytes: &[7; 2 * RECORD] };
        let file = profile(&data, 0x1_2000_1000, &[4, 5, 6], b"names");
        let word = |index: usize| u64::from_le_bytes(file[index * 8..][..8].try_into().unwrap());
        assert_eq!((word(3), word(5), word(9)), (2, 3, 5));
        assert_eq!(word(10), 0xFFFF_E000, "32 bits, as the linker writes it");
        assert_eq!(file.len(), 16 * 8 + 2 * RECORD + 3 * 8 + 8);
        assert_eq!((word(16 + 16), &file[file.len() - 8..]), (4, &b"names\0\0\0"[..]));
    }
}
