//! The maps of the operating system, of which a process has `vm.max_map_count`. Every run of pages in the kernel's address
//! space is one, and the gap behind it another. An image that needs more than there are gets a failure, as Windows gives one
//! when system PTES are short, and a line on standard error gives the reason.

use std::sync::Once;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::memory::PAGE_SIZE;

/// What Linux allows by default.
const USUAL_LIMIT: usize = 65_530;
/// After the operating system refused a map, so many must be given back before an image gets more.
const DISTANCE: usize = 512;
/// Maps that the host keeps back for itself: its heap and its threads go on after an image was refused.
const RESERVE: usize = 256;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
/// How many an image's request may lead to.
static CAP: AtomicUsize = AtomicUsize::new(usize::MAX);
static RESERVED: AtomicUsize = AtomicUsize::new(0);

/// `vm.max_map_count`.
pub(crate) fn limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
        text.trim().parse().unwrap_or(USUAL_LIMIT)
    })
}

pub(crate) fn initialise() {
    CAP.store(limit() / 16 * 15, Ordering::Relaxed);
    RESERVED.store(reserve(), Ordering::Relaxed);
}

/// Pages of which each second one has another protection than its neighbours: a map each.
fn reserve() -> usize {
    let length = 2 * RESERVE * PAGE_SIZE;
    // SAFETY: addresses of the host, without access.
    let start = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(std::ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0)
    };
    if start == libc::MAP_FAILED {
        return 0;
    }
    for page in 0..RESERVE {
        // SAFETY: a page of the mapping above. Without it there is one map less in reserve.
        unsafe { libc::mprotect(start.byte_add(2 * page * PAGE_SIZE), PAGE_SIZE, libc::PROT_READ) };
    }
    start as usize
}

/// How many maps the kernel's address space uses, the gaps included.
pub(crate) fn in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}

pub(crate) fn add(maps: usize) {
    IN_USE.fetch_add(maps, Ordering::Relaxed);
}

pub(crate) fn give_back(maps: usize) {
    IN_USE.fetch_sub(maps, Ordering::Relaxed);
}

/// There are enough for a guard page behind each new block.
pub(crate) fn allows_guards() -> bool {
    in_use() < limit() / 4 * 3
}

/// Whether an image may have so many more.
pub(crate) fn allows(more: usize) -> bool {
    let allowed = in_use() + more <= CAP.load(Ordering::Relaxed);
    if !allowed {
        report_limit();
    }
    allowed
}

/// The operating system has refused a map.
pub(crate) fn refused() {
    CAP.fetch_min(in_use().saturating_sub(DISTANCE), Ordering::Relaxed);
    let start = RESERVED.swap(0, Ordering::Relaxed);
    if start != 0 {
        // SAFETY: the reserve, which nothing points into, once.
        unsafe { libc::munmap(start as *mut libc::c_void, 2 * RESERVE * PAGE_SIZE) };
    }
    report_limit();
}

/// What is short, in a sentence.
pub(crate) fn sentence() -> String {
    format!(
        "the process has no maps left: {} are in use for the kernel's address space, and vm.max_map_count is {}",
        in_use(),
        limit()
    )
}

fn report_limit() {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        eprintln!(
            "kernel-host: {}. From here on allocations and mappings of drivers fail; \"sysctl -w vm.max_map_count={}\" \
             allows more.",
            sentence(),
            4 * limit()
        );
    });
}
