//! The refusals that softndk.sys keeps, with their causes, read where they lie in its image: a report of a bugcheck may not call it.

use std::sync::OnceLock;

use kernel_host::bugcheck;
use kernel_host::image::loader;
use softndk_ioctl::{REFUSALS_KEPT, REFUSALS_SIGNATURE, RefusalEntry};

/// The name under which the image exports them.
const SYMBOL: &str = "SoftNdkRefusals";
/// The lock in front of them is no longer than this.
const LOCK: usize = 64;
/// How many are shown.
const SHOWN: usize = 16;

static IMAGE: OnceLock<String> = OnceLock::new();

/// Adds the list to every report; `image` is the file name of the provider.
pub fn add_to_reports(image: &str) {
    if IMAGE.set(image.to_owned()).is_ok() {
        bugcheck::add_part(part);
    }
}

/// The title and a line for each, the last one last; no lines for another provider, or without a refusal.
pub fn part() -> (String, Vec<String>) {
    let entries = IMAGE.get().map_or_else(Vec::new, |image| entries(image));
    let skipped = entries.len().saturating_sub(SHOWN);
    ("refused by the provider, the last one last".to_owned(), entries.iter().skip(skipped).map(line).collect())
}

/// Prints them, if there are any, and the calls that the layer saw fail.
pub fn print() {
    let seen = kernel_host::ndk::mediator::describe_refusals();
    for (title, lines) in [("NDK calls that were refused, the last one last".to_owned(), seen), part()] {
        if !lines.is_empty() {
            println!("{title}:\n  {}", lines.join("\n  "));
        }
    }
}

fn line(entry: &RefusalEntry) -> String {
    let object = if entry.object == 0 { String::new() } else { format!(" of {} #{}", entry.kind, entry.object) };
    let place = if entry.place.0 == 0 { String::new() } else { format!(" ({})", entry.place) };
    let RefusalEntry { number, call, way, cause, .. } = entry;
    format!("#{number} {call}{object}, by its {way}: {}: {cause}{place}", entry.status())
}

/// What the image keeps, oldest first.
fn entries(image: &str) -> Vec<RefusalEntry> {
    let Some(symbol) = loader::address_of(image, SYMBOL) else { return Vec::new() };
    // SAFETY: the symbol is a lock around the signature, the total and the entries, all in one variable that is longer than this.
    let word = |at: usize| unsafe { ((symbol + at) as *const u64).read_volatile() };
    let Some(start) = (0..LOCK).step_by(8).find(|at| word(*at) == REFUSALS_SIGNATURE) else { return Vec::new() };
    let first = (symbol + start + 16) as *const RefusalEntry;
    // SAFETY: so many entries follow signature and total. One that is written now may be read half: a report shows what there is.
    let read = |index: usize| unsafe { first.wrapping_add(index).read_volatile() };
    let mut entries: Vec<RefusalEntry> = (0..REFUSALS_KEPT).map(read).filter(|entry| entry.number != 0).collect();
    entries.sort_by_key(|entry| entry.number);
    entries
}
