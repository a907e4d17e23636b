//! Points of a schedule, or of an interruption that needs them, inside of an image's own copies. Such code calls nothing that
//! the host could make a point of; but it touches pages. So one page of each mapping of an MDL has no access: the first touch
//! by image code is a point, at which another thread may go on, and another page of the mapping is without access from then on.
//! The seed draws the pages, so the points are the same in each run.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::interruption;
use crate::memory::PAGE_SIZE;
use crate::memory::address_space::{self, Protection};
use crate::schedule;
use crate::thread::Thread;

/// With more maps of the operating system's than this, further mappings are left alone: a page without access makes two more.
const MAPS: usize = 30_000;

/// Without a seed: pages from one that was touched to the next.
const DISTANCE: u64 = 5;

struct Watched {
    pages: usize,
    protection: Protection,
    /// The page without access; none when a mapping of one page has been touched.
    page: Option<usize>,
}

/// By the address of the mapping.
static WATCHED: Mutex<BTreeMap<usize, Watched>> = Mutex::new(BTreeMap::new());

fn watched() -> MutexGuard<'static, BTreeMap<usize, Watched>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn protect(start: usize, page: usize, protection: Protection) {
    // SAFETY: a page of a mapping, whose record is dropped before its reservation is released.
    unsafe { address_space::protect(start + page * PAGE_SIZE, PAGE_SIZE, protection) };
}

/// A page among so many, drawn by the seed or at a fixed distance.
fn draw(pages: u64) -> usize {
    (if schedule::is_on() { schedule::draw_below(pages) } else { DISTANCE.min(pages) - 1 }) as usize
}

/// Watches a mapping of so many pages, which have this protection.
pub(crate) fn watch(start: usize, pages: usize, protection: Protection) {
    if !is_on() || address_space::maps() > MAPS {
        return;
    }
    let page = draw(pages as u64);
    let mut all = watched();
    protect(start, page, Protection::None);
    all.insert(start, Watched { pages, protection, page: Some(page) });
    // What has been touched since can be touched anew.
    for (start, spent) in all.iter_mut().filter(|(_, watched)| watched.page.is_none()) {
        protect(*start, 0, Protection::None);
        spent.page = Some(0);
    }
}

/// The mapping is about to be removed.
pub(crate) fn forget(start: usize) {
    watched().remove(&start);
}

/// Whether there can be pages without access.
pub(crate) fn is_on() -> bool {
    schedule::is_on() || interruption::watches_copies()
}

/// A fault: whether it was the first touch of a watched page, which has its access now. In image code it is a point.
pub(crate) fn touched(address: usize, writes: bool, in_image: bool) -> bool {
    {
        let mut all = watched();
        let Some((&start, found)) = all.range_mut(..=address).next_back() else { return false };
        let touched = (address - start) / PAGE_SIZE;
        if found.page != Some(touched) {
            // Without a schedule two processors may come to a page at once, and the other one has opened it.
            let permitted = found.protection == Protection::ReadWrite || !writes;
            return !schedule::is_on() && touched < found.pages && permitted;
        }
        let others = found.pages as u64 - 1;
        let next = (others > 0).then(|| (touched + 1 + draw(others)) % found.pages);
        found.page = next;
        protect(start, touched, found.protection);
        if let Some(next) = next {
            protect(start, next, Protection::None);
        }
    }
    // The host's own code may hold what the others need.
    if in_image && let Some(thread) = Thread::try_current() {
        schedule::inside_a_copy_of_the_image(thread);
    }
    true
}
