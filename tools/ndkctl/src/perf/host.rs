//! What only the kernel host knows of a run: the longest DPC, the driver's pool. On Windows there is no such number.

use std::collections::BTreeMap;

/// Begins to look.
pub(super) fn begin() {
    #[cfg(not(windows))]
    kernel_host::deferred_budget::measure();
}

/// Nanoseconds that the longest DPC took since [`begin`].
pub(super) fn longest_dpc() -> Option<u64> {
    #[cfg(not(windows))]
    return u64::try_from(kernel_host::deferred_budget::longest().as_nanos()).ok();
    #[cfg(windows)]
    None
}

/// Nanoseconds that the longest dispatch call spent at DISPATCH_LEVEL since [`begin`]; the host does not take them.
pub(super) const fn longest_dispatch() -> Option<u64> {
    None
}

/// How often softndk.sys called each of its imports, for one request; the host does not count them.
pub(super) const fn imports_per_request() -> Option<BTreeMap<String, f64>> {
    None
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
