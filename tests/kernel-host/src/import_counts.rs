//! How often images call their imports, by image and name. Counting is chosen when the kernel is booted
//! (`KernelConfig::count_imports`): each import slot then names a stub of its own that counts and goes on to what the slot
//! would have named, so that without counting an import costs nothing more.
//!
//! Functions are counted, with those that compilers call (`memcpy`); variables and `__chkstk` are not.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::thunk;

/// The calls of one import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportCount {
    /// The file name of the image that called.
    pub image: String,
    pub name: String,
    pub calls: u64,
}

static ON: AtomicBool = AtomicBool::new(false);

/// By image and name. An image that is loaded again goes on where it was.
static COUNTERS: Mutex<BTreeMap<(String, String), &'static AtomicU64>> = Mutex::new(BTreeMap::new());

fn counters() -> MutexGuard<'static, BTreeMap<(String, String), &'static AtomicU64>> {
    COUNTERS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn configure(on: bool) {
    ON.store(on, Ordering::SeqCst);
}

/// Whether imports are counted.
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The calls of all imports since the images were loaded, or since [`reset`], by image and name. Empty unless the kernel was booted
/// to count.
#[must_use]
pub fn counted() -> Vec<ImportCount> {
    let count = |((image, name), calls): (&(String, String), &&AtomicU64)| ImportCount {
        image: image.clone(),
        name: name.clone(),
        calls: calls.load(Ordering::Relaxed),
    };
    counters().iter().map(count).collect()
}

/// Begins again at 0.
pub fn reset() {
    counters().values().for_each(|calls| calls.store(0, Ordering::Relaxed));
}

/// What the import slot of an image receives for a function at `address`.
pub(crate) fn slot_for(image: &str, name: &str, address: usize) -> usize {
    if !ON.load(Ordering::Relaxed) {
        return address;
    }
    let key = (image.to_owned(), name.to_owned());
    let counter = *counters().entry(key).or_insert_with(|| Box::leak(Box::new(AtomicU64::new(0))));
    thunk::counting_stub(address, counter)
}
