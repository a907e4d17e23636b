//! What only the kernel host knows of a run: the longest DPC, the driver's imports and its pool. On Windows there is no such number.

use std::collections::BTreeMap;

/// Begins to look.
pub(super) fn begin() {
    #[cfg(not(windows))]
    {
        kernel_host::deferred_budget::measure();
        kernel_host::level_time::measure();
    }
}

/// Forgets the imports that were called so far.
pub(super) fn begin_rounds() {
    #[cfg(not(windows))]
    kernel_host::import_counts::reset();
}

/// Times by path: how many took so many nanoseconds.
pub type Paths = BTreeMap<String, BTreeMap<u64, u64>>;

/// The times of DPCs since [`begin`]; none where the kernel host counts no imports.
pub(super) fn deferred_calls() -> Option<Paths> {
    #[cfg(not(windows))]
    return paths(kernel_host::deferred_budget::times);
    #[cfg(windows)]
    None
}

/// The times of threads at DISPATCH_LEVEL since [`begin`]; none where the kernel host counts no imports, because there it does not
/// see every change of the level.
pub(super) fn at_dispatch() -> Option<Paths> {
    #[cfg(not(windows))]
    return paths(kernel_host::level_time::times);
    #[cfg(windows)]
    None
}

#[cfg(not(windows))]
fn paths(times: impl FnOnce() -> Vec<kernel_host::stretches::PathTimes>) -> Option<Paths> {
    let counts = !kernel_host::import_counts::counted().is_empty();
    counts.then(|| times().into_iter().map(|path| (path.path, path.times)).collect())
}

/// The longest of all.
pub(super) fn longest(paths: &Paths) -> Option<u64> {
    paths.values().filter_map(|times| times.keys().next_back()).max().copied()
}

/// How often softndk.sys called each of its imports, for one of `requests` since [`begin_rounds`]. What it calls less often than once in
/// a hundred belongs to connections and registrations. Empty where the kernel host does not count.
pub(super) fn imports_per_request(requests: u64) -> BTreeMap<String, f64> {
    #[cfg(not(windows))]
    {
        let counted = kernel_host::import_counts::counted();
        let own = counted.into_iter().filter(|count| count.image.eq_ignore_ascii_case("softndk.sys"));
        let each = own.map(|count| (count.name, count.calls as f64 / requests.max(1) as f64));
        each.filter(|(_, calls)| *calls >= 0.01).collect()
    }
    #[cfg(windows)]
    {
        let _ = requests;
        BTreeMap::new()
    }
}

/// The most bytes of pool that softndk.sys had at a time while `work` ran, and what `work` gave. None where the host did not load it under
/// its own name.
pub(super) fn most_pool<T>(work: impl FnOnce() -> T) -> (Option<u64>, T) {
    #[cfg(not(windows))]
    {
        let images = kernel_host::kernel::images();
        let provider = images.iter().find(|image| image.name.eq_ignore_ascii_case("softndk.sys"));
        let base = provider.map(|image| image.base);
        if let Some(base) = base {
            kernel_host::memory::pool::restart_most(base);
        }
        let value = work();
        (base.and_then(|base| u64::try_from(kernel_host::memory::pool::most_of(base)).ok()), value)
    }
    #[cfg(windows)]
    (None, work())
}
