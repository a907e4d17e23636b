//! What images hold: everything that a driver must give back before it is unloaded is recorded here by kind, with the image
//! that acquired it and the stack of the call, and removed when it is given back. Pool has records of its own, since its blocks
//! are many.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};

use crate::host_lock::HostLock;
use crate::image::{self, Image, stack_trace};

/// One resource that is held.
#[derive(Clone, Debug)]
pub struct LedgerEntry {
    pub kind: &'static str,
    pub address: usize,
    /// Base address of the owning image; 0 is the host itself.
    pub image: usize,
    pub detail: String,
    pub stack: Vec<u64>,
}

/// One line of a leak report: resources of one kind from one call site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leak {
    pub kind: String,
    pub detail: String,
    pub count: usize,
    pub bytes: usize,
    pub stack: Vec<String>,
}

impl std::fmt::Display for Leak {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {} {}", self.count, self.kind, self.detail)?;
        if self.bytes != 0 {
            write!(formatter, ", {} bytes", self.bytes)?;
        }
        for frame in &self.stack {
            write!(formatter, "\n        {frame}")?;
        }
        Ok(())
    }
}

static ENTRIES: HostLock<BTreeMap<(&'static str, usize), LedgerEntry>> = HostLock::new(BTreeMap::new());

fn entries() -> MutexGuard<'static, BTreeMap<(&'static str, usize), LedgerEntry>> {
    ENTRIES.lock()
}

/// Records that the calling image holds a resource of this kind at this address.
pub fn record(kind: &'static str, address: usize, detail: impl Into<String>) {
    let stack = if crate::kernel::is_verifying() { stack_trace::addresses() } else { Vec::new() };
    let image =
        stack.first().and_then(|address| image::containing(*address as usize)).or_else(crate::callout::caller_image);
    record_for(kind, address, detail, image.as_ref(), stack);
}

/// As [`record`], for an image that is known (e.g. the one whose adapter is being initialised).
pub fn record_for(
    kind: &'static str,
    address: usize,
    detail: impl Into<String>,
    image: Option<&Arc<Image>>,
    stack: Vec<u64>,
) {
    let image = image.map_or(0, |image| image.base);
    entries().insert((kind, address), LedgerEntry { kind, address, image, detail: detail.into(), stack });
}

/// Removes a resource; `None` when none of that kind is held there.
pub fn release(kind: &'static str, address: usize) -> Option<LedgerEntry> {
    entries().remove(&(kind, address))
}

/// Whether such a resource is held.
pub fn holds(kind: &'static str, address: usize) -> bool {
    entries().contains_key(&(kind, address))
}

/// A resource of a kind whose address lies in a range.
pub fn within(kind: &'static str, range: std::ops::Range<usize>) -> Option<usize> {
    entries().range((kind, range.start)..(kind, range.end)).next().map(|((_, address), _)| *address)
}

/// Everything of a kind.
pub fn all_of(kind: &'static str) -> Vec<LedgerEntry> {
    entries().range((kind, 0)..=(kind, usize::MAX)).map(|(_, entry)| entry.clone()).collect()
}

/// How many resources of a kind are held, by any image.
pub fn count(kind: &'static str) -> usize {
    entries().range((kind, 0)..=(kind, usize::MAX)).count()
}

/// What an image still holds (base address; `None` for all), grouped by kind and call site.
pub fn outstanding(image: Option<usize>) -> Vec<Leak> {
    let held: Vec<LedgerEntry> =
        entries().values().filter(|entry| image.is_none_or(|base| entry.image == base)).cloned().collect();
    group(held.into_iter().map(|entry| (entry.kind.to_owned(), entry.detail, 0, entry.stack)))
}

/// Adds up equal kinds with equal stacks.
pub(crate) fn group(held: impl Iterator<Item = (String, String, usize, Vec<u64>)>) -> Vec<Leak> {
    let mut groups: BTreeMap<(String, String, Vec<u64>), (usize, usize)> = BTreeMap::new();
    for (kind, detail, bytes, stack) in held {
        let total = groups.entry((kind, detail, stack)).or_default();
        total.0 += 1;
        total.1 += bytes;
    }
    groups
        .into_iter()
        .map(|((kind, detail, stack), (count, bytes))| Leak {
            kind,
            detail,
            count,
            bytes,
            stack: stack_trace::name(&stack).iter().map(ToString::to_string).collect(),
        })
        .collect()
}

/// Drops the records of an image, after they were reported.
pub fn forget(image: usize) {
    entries().retain(|_, entry| entry.image != image);
}
