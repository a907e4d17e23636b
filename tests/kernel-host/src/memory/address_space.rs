//! The kernel's address space: one large reserved range without access, out of which everything is carved that images can
//! reach: images, pool, mappings, user buffers, stacks. An address that was given back stays without access, so a late use
//! faults instead of reaching another object; the range is large enough that addresses are not reused soon.
//!
//! It also records which frames lie behind which address, which is what an MDL is built from.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::bugcheck::{BugCheck, bugcheck};
use crate::memory::{PAGE_SIZE, frames, map_budget};

/// What a part of the address space is for; the fault handler names a wild address by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    Images,
    Pool,
    Mappings,
    UserBuffers,
    Stacks,
    PagedPool,
}

impl Zone {
    const COUNT: usize = 6;

    fn index(self) -> usize {
        self as usize
    }

    fn from_index(index: usize) -> Option<Self> {
        [Self::Images, Self::Pool, Self::Mappings, Self::UserBuffers, Self::Stacks, Self::PagedPool].get(index).copied()
    }
}

/// Each zone's share. The whole is reserved, not committed.
const ZONE_LENGTH: usize = 4 << 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    None,
    ReadOnly,
    ReadWrite,
    ReadExecute,
    ReadWriteExecute,
}

impl Protection {
    fn bits(self) -> libc::c_int {
        match self {
            Self::None => libc::PROT_NONE,
            Self::ReadOnly => libc::PROT_READ,
            Self::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
            Self::ReadExecute => libc::PROT_READ | libc::PROT_EXEC,
            Self::ReadWriteExecute => libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
        }
    }
}

struct Space {
    base: usize,
    next: [AtomicUsize; Zone::COUNT],
    /// Page address ⇒ pages and first frame, one entry a run.
    backing: Mutex<BTreeMap<usize, (usize, u32)>>,
}

static SPACE: OnceLock<Space> = OnceLock::new();

pub(crate) fn initialise() {
    let length = ZONE_LENGTH * Zone::COUNT;
    // SAFETY: reserves addresses without access.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    assert_ne!(base, libc::MAP_FAILED, "cannot reserve the kernel's address space");
    let base = base as usize;
    let next = std::array::from_fn(|zone| AtomicUsize::new(base + zone * ZONE_LENGTH + PAGE_SIZE));
    map_budget::initialise();
    let made = SPACE.set(Space { base, next, backing: Mutex::new(BTreeMap::new()) });
    assert!(made.is_ok(), "the kernel's address space exists already");
}

fn space() -> &'static Space {
    SPACE.get().unwrap_or_else(|| panic!("Kernel::boot has not run"))
}

fn backing() -> MutexGuard<'static, BTreeMap<usize, (usize, u32)>> {
    space().backing.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Which zone an address lies in, if any.
pub fn zone_of(address: usize) -> Option<Zone> {
    let offset = address.checked_sub(SPACE.get()?.base)?;
    Zone::from_index(offset / ZONE_LENGTH)
}

/// How many maps of the operating system the kernel's address space uses.
pub fn maps() -> usize {
    map_budget::in_use()
}

/// The frame behind an address.
pub fn frame_at(address: usize) -> Option<u32> {
    frame_in(&backing(), address)
}

fn frame_in(backing: &BTreeMap<usize, (usize, u32)>, address: usize) -> Option<u32> {
    let page = address & !(PAGE_SIZE - 1);
    let (start, (pages, first)) = backing.range(..=page).next_back()?;
    let index = (page - start) / PAGE_SIZE;
    (index < *pages).then(|| *first + index as u32)
}

/// The frames behind a range of pages; `None` when a page has none.
pub fn frames_at(address: usize, pages: usize) -> Option<Vec<u32>> {
    let backing = backing();
    (0..pages).map(|page| frame_in(&backing, address.checked_add(page * PAGE_SIZE)?)).collect()
}

/// Changes the protection of mapped pages.
///
/// # Safety
///
/// They lie inside of one live reservation.
pub(crate) unsafe fn protect(address: usize, length: usize, protection: Protection) {
    // SAFETY: the caller's contract.
    let result = unsafe { libc::mprotect(address as *mut libc::c_void, length, protection.bits()) };
    if result != 0 {
        map_budget::refused();
        out_of_maps();
    }
}

/// A reserved range, followed by at least one page without access.
#[derive(Debug)]
pub struct Reservation {
    address: usize,
    length: usize,
}

impl Reservation {
    /// Reserves addresses in a zone. Nothing is mapped yet.
    pub fn new(zone: Zone, length: usize) -> Option<Self> {
        let length = length.checked_next_multiple_of(PAGE_SIZE)?;
        let limit = space().base + (zone.index() + 1) * ZONE_LENGTH;
        let next = &space().next[zone.index()];
        let step = length.checked_add(PAGE_SIZE)?;
        let address = next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |address| {
                address.checked_add(step).filter(|end| *end <= limit)
            })
            .ok()?;
        Some(Self { address, length })
    }

    /// A part of it, to be mapped and released by itself. What has no access around it is the caller's business.
    pub(crate) fn part(&self, offset: usize, length: usize) -> Self {
        assert!(offset + length <= self.length, "a part longer than its reservation");
        Self { address: self.address + offset, length }
    }

    pub fn address(&self) -> usize {
        self.address
    }

    pub fn length(&self) -> usize {
        self.length
    }

    /// Maps adjacent frames at a byte offset, for the host itself: without maps there is no kernel.
    pub fn map_run(&self, offset: usize, run: Range<u32>, protection: Protection) {
        if !self.try_map_run(offset, run, protection) {
            out_of_maps();
        }
    }

    /// Maps adjacent frames at a byte offset; false when the operating system has no more maps.
    #[must_use]
    fn try_map_run(&self, offset: usize, run: Range<u32>, protection: Protection) -> bool {
        let length = run.len() * PAGE_SIZE;
        assert!(offset + length <= self.length, "a mapping longer than its reservation");
        let address = self.address + offset;
        // A page fault a page is what Windows would not have: its mappings are complete when they are made.
        let populate = if crate::kernel::is_verifying() { 0 } else { libc::MAP_POPULATE };
        // SAFETY: replaces a part of the host's own reservation.
        let result = unsafe {
            libc::mmap(
                address as *mut libc::c_void,
                length,
                protection.bits(),
                libc::MAP_SHARED | libc::MAP_FIXED | populate,
                frames::file(),
                frames::offset_of(run.start),
            )
        };
        if result == libc::MAP_FAILED {
            map_budget::refused();
            return false;
        }
        let mut backing = backing();
        let first = backing.range(self.address..self.address + self.length).next().is_none();
        map_budget::add(1 + usize::from(first));
        backing.insert(address, (run.len(), run.start));
        true
    }

    /// Maps frames in their order from the start, for the host itself.
    pub fn map(&self, list: &[u32], protection: Protection) {
        if !self.map_all(list, protection) {
            out_of_maps();
        }
    }

    /// Maps frames in their order from the start, for an image; false, and nothing is mapped, when there are no more maps.
    #[must_use]
    pub fn try_map(&self, list: &[u32], protection: Protection) -> bool {
        if !map_budget::allows(frames::runs(list).len() + 1) {
            return false;
        }
        let mapped = self.map_all(list, protection);
        if !mapped {
            self.release();
        }
        mapped
    }

    fn map_all(&self, list: &[u32], protection: Protection) -> bool {
        let mut offset = 0;
        frames::runs(list).into_iter().all(|run| {
            let length = run.len() * PAGE_SIZE;
            let mapped = self.try_map_run(offset, run, protection);
            offset += length;
            mapped
        })
    }

    /// Changes the protection of a part.
    pub fn protect(&self, offset: usize, length: usize, protection: Protection) {
        assert!(offset + length <= self.length, "a protection change outside of the reservation");
        // SAFETY: a part of the host's own reservation.
        unsafe { protect(self.address + offset, length, protection) };
    }

    /// Removes all access, finally; the addresses are not given out again.
    pub fn release(&self) {
        // SAFETY: replaces the host's own reservation by an inaccessible one.
        let result = unsafe {
            libc::mmap(
                self.address as *mut libc::c_void,
                self.length,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if result == libc::MAP_FAILED {
            map_budget::refused();
            self.protect(0, self.length, Protection::None);
        }
        let mut backing = backing();
        let starts: Vec<usize> =
            backing.range(self.address..self.address + self.length).map(|(start, _)| *start).collect();
        map_budget::give_back(starts.len() + usize::from(!starts.is_empty()));
        for start in starts {
            backing.remove(&start);
        }
    }
}

/// The host itself needs a map and the operating system has none.
#[cold]
fn out_of_maps() -> ! {
    bugcheck(
        BugCheck::NO_MORE_SYSTEM_PTES,
        [map_budget::in_use() as u64, map_budget::limit() as u64, 0, 0],
        map_budget::sentence(),
    )
}
