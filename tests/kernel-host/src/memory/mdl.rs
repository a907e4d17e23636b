//! Memory descriptor lists: building them over pool, over part of another and over locked user pages; mapping them into the
//! kernel's address space as real aliases of their frames, and removing the mapping for real.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::bugcheck::{BugCheck, bugcheck};
use crate::host_lock::HostLock;
use crate::ledger;
use crate::memory::address_space::{self, Protection, Reservation, Zone};
use crate::memory::{PAGE_SIZE, first_touch, frames, paged, pool};
use crate::nt::MDL;

pub const MDL_MAPPED_TO_SYSTEM_VA: i16 = 0x0001;
pub const MDL_PAGES_LOCKED: i16 = 0x0002;
pub const MDL_SOURCE_IS_NONPAGED_POOL: i16 = 0x0004;
pub const MDL_ALLOCATED_FIXED_SIZE: i16 = 0x0008;
pub const MDL_PARTIAL: i16 = 0x0010;
pub const MDL_PARTIAL_HAS_BEEN_MAPPED: i16 = 0x0020;
pub const MDL_WRITE_OPERATION: i16 = 0x0080;

/// The kinds under which MDLs and mappings are recorded.
pub const LEDGER_KIND: &str = "MDL";
pub const LEDGER_KIND_MAPPING: &str = "MDL mapping";

const MDL_MAPPING_NO_WRITE: u32 = 0x8000_0000;
pub const MDL_MAPPING_NO_EXECUTE: u32 = 0x4000_0000;

/// The largest length that one MDL can describe: its `Size` is a 16-bit signed number of bytes on paper, but the
/// documentation allows lists up to 4 GiB - PAGE_SIZE, whose `Size` wraps.
const LARGEST: u64 = (1 << 32) - PAGE_SIZE as u64;

const TAG: u32 = u32::from_le_bytes(*b"Mdl ");

/// What the pages were locked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

struct MdlMapping {
    mdl: usize,
    reservation: Reservation,
    frames: Vec<u32>,
    writable: bool,
    /// Of pages that are lent for reading.
    lent: bool,
}

#[derive(Default)]
struct MdlTable {
    /// By the page address of the mapping.
    mappings: BTreeMap<usize, MdlMapping>,
    /// Allocated MDLs ⇒ number of pages that fit.
    lists: BTreeMap<usize, usize>,
    /// How many MDLs hold a frame locked.
    locks: HashMap<u32, u32>,
    /// How many mappings a frame has; kept when verifying.
    mapped: HashMap<u32, u32>,
    /// MDLs whose pages are lent for reading.
    lent: HashSet<usize>,
}

static TABLE: HostLock<Option<MdlTable>> = HostLock::new(None);

/// One hold. What was seen in an earlier one may have changed.
fn with<T>(body: impl FnOnce(&mut MdlTable) -> T) -> T {
    body(TABLE.lock().get_or_insert_default())
}

/// Pages that a range touches.
pub fn span(address: usize, length: usize) -> usize {
    ((address & (PAGE_SIZE - 1)) + length).div_ceil(PAGE_SIZE)
}

/// The array of page frame numbers behind an MDL.
///
/// # Safety
///
/// `mdl` is an MDL.
pub unsafe fn frame_array(mdl: *mut MDL) -> *mut u64 {
    // SAFETY: the array follows the structure.
    unsafe { mdl.add(1).cast() }
}

/// How many pages an MDL describes.
///
/// # Safety
///
/// `mdl` is an MDL.
pub unsafe fn page_count(mdl: *const MDL) -> usize {
    // SAFETY: the caller's contract.
    unsafe { span((*mdl).ByteOffset as usize, (*mdl).ByteCount as usize) }
}

/// `IoAllocateMdl`: space for the pages of a range, only the range filled in.
///
/// # Safety
///
/// Always sound; unsafe only because the result is raw memory that the caller must free.
pub unsafe fn allocate(address: usize, length: usize) -> Option<*mut MDL> {
    if length as u64 > LARGEST {
        return None;
    }
    let pages = span(address, length);
    let bytes = size_of::<MDL>() + pages * size_of::<u64>();
    let mdl = pool::allocate_for_host(bytes, TAG)?.cast::<MDL>();
    // SAFETY: fresh memory of that size.
    unsafe {
        mdl.write(MDL {
            Next: std::ptr::null_mut(),
            Size: bytes as i16,
            MdlFlags: 0,
            Process: std::ptr::null_mut(),
            MappedSystemVa: std::ptr::null_mut(),
            StartVa: (address & !(PAGE_SIZE - 1)) as *mut _,
            ByteCount: length as u32,
            ByteOffset: (address & (PAGE_SIZE - 1)) as u32,
        });
    }
    with(|table| table.lists.insert(mdl as usize, pages));
    Some(mdl)
}

/// Frees an MDL from [`allocate`].
///
/// # Safety
///
/// `mdl` came from [`allocate`] and is used no more.
pub unsafe fn free(mdl: *mut MDL) {
    if with(|table| table.lists.remove(&(mdl as usize))).is_none() {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0x100C, mdl as u64, 0, 0],
            "IoFreeMdl is given an MDL that IoAllocateMdl did not make, or that was freed before",
        );
    }
    // SAFETY: a live MDL, as the table says.
    unsafe {
        let flags = (*mdl).MdlFlags;
        if flags & MDL_PARTIAL_HAS_BEEN_MAPPED != 0 && flags & MDL_MAPPED_TO_SYSTEM_VA != 0 {
            // A partial MDL that was mapped is unmapped by MmPrepareMdlForReuse inside IoFreeMdl.
            unmap((*mdl).MappedSystemVa as usize, mdl);
        }
    }
    let mapped =
        with(|table| table.mappings.iter().find(|(_, mapping)| mapping.mdl == mdl as usize).map(|(at, _)| *at));
    if let Some(at) = mapped {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0xB8, mdl as u64, at as u64, 0],
            "an MDL is freed while its pages are mapped",
        );
    }
    with(|table| table.lent.remove(&(mdl as usize)));
    // SAFETY: a live MDL from this module's pool blocks.
    unsafe {
        if (*mdl).MdlFlags & MDL_PAGES_LOCKED != 0 && (*mdl).MdlFlags & MDL_PARTIAL == 0 {
            bugcheck(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                [0x1040, mdl as u64, 0, 0],
                "an MDL is freed while its flags say that it holds its pages locked",
            );
        }
        pool::free_for_host(mdl.cast(), TAG);
    }
}

/// The flags of an MDL whose pages `MmProbeAndLockPages` must not lock.
///
/// # Safety
///
/// `mdl` is an MDL.
pub unsafe fn check_lockable(mdl: *mut MDL) {
    // SAFETY: the caller's contract.
    let flags = unsafe { (*mdl).MdlFlags };
    let wrong = flags & (MDL_PAGES_LOCKED | MDL_SOURCE_IS_NONPAGED_POOL | MDL_PARTIAL | MDL_MAPPED_TO_SYSTEM_VA);
    if wrong != 0 {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0xB0, mdl as u64, flags as u64, wrong as u64],
            format!(
                "MmProbeAndLockPages is given an MDL that is locked, built for pool, partial or mapped (flags {flags:#x})"
            ),
        );
    }
}

/// Fills in locked frames, as `MmProbeAndLockPages` does.
///
/// # Safety
///
/// `mdl` came from [`allocate`] and has space for these frames.
pub unsafe fn fill_locked(mdl: *mut MDL, list: &[u32], access: Access) {
    // SAFETY: the caller's contract.
    unsafe {
        let pages = page_count(mdl);
        let array = frame_array(mdl);
        for (index, frame) in list.iter().take(pages).enumerate() {
            array.add(index).write(u64::from(*frame));
        }
        paged::lock((*mdl).StartVa as usize);
        (*mdl).MdlFlags |= MDL_PAGES_LOCKED;
        if access == Access::Write {
            (*mdl).MdlFlags |= MDL_WRITE_OPERATION;
        }
    }
    with(|table| list.iter().for_each(|frame| *table.locks.entry(*frame).or_default() += 1));
    ledger::record_for("locked pages", mdl as usize, "", None, Vec::new());
}

/// When verifying: from now on the MDL, and what is built as a part of it, is mapped without write access, whatever the
/// mapping asks for.
pub(crate) fn lend_for_reading(mdl: *mut MDL) {
    if crate::kernel::is_verifying() {
        with(|table| table.lent.insert(mdl as usize));
    }
}

/// Whether an MDL holds any of these frames locked.
#[must_use]
pub fn any_locked(list: &[u32]) -> bool {
    with(|table| list.iter().any(|frame| table.locks.contains_key(frame)))
}

/// `MmUnlockPages`.
///
/// # Safety
///
/// `mdl` is an MDL that was filled by [`fill_locked`].
pub unsafe fn unlock(mdl: *mut MDL) {
    if ledger::release("locked pages", mdl as usize).is_none() {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0x7C, mdl as u64, 0, 0],
            "MmUnlockPages is called for an MDL whose pages are not locked",
        );
    }
    // SAFETY: the caller's contract.
    unsafe {
        let list = frames_of(mdl, "MmUnlockPages");
        let own =
            with(|table| table.mappings.iter().find(|(_, mapping)| mapping.mdl == mdl as usize).map(|(at, _)| *at));
        if let Some(at) = own {
            unmap(at + (*mdl).ByteOffset as usize, mdl);
        }
        (*mdl).MdlFlags &= !(MDL_PAGES_LOCKED | MDL_WRITE_OPERATION);
        paged::unlock((*mdl).StartVa as usize);
        // One hold: another thread may lock and map the same pages at any time.
        let mapped = with(|table| {
            for frame in &list {
                take_one(&mut table.locks, *frame);
            }
            table.mapping_of(list.iter().filter(|frame| !table.locks.contains_key(frame)))
        });
        report_mapped(mapped, "pages are unlocked");
    }
}

/// The frames that an MDL names, checked.
///
/// # Safety
///
/// `mdl` is an MDL.
pub unsafe fn frames_of(mdl: *mut MDL, what: &str) -> Vec<u32> {
    // SAFETY: the caller's contract.
    unsafe {
        let array = frame_array(mdl);
        (0..page_count(mdl))
            .map(|index| {
                let frame = array.add(index).read();
                if !frames::exists(frame) {
                    bugcheck(
                        BugCheck::PFN_LIST_CORRUPT,
                        [0x99, frame, mdl as u64, index as u64],
                        format!(
                            "{what} is given an MDL whose page {index} names the frame {frame:#x}, which does not exist"
                        ),
                    );
                }
                frame as u32
            })
            .collect()
    }
}

/// What lies at an address, if an MDL may not describe it as non-paged pool.
fn pageable_or_mapped(address: usize) -> Option<&'static str> {
    match address_space::zone_of(address)? {
        Zone::PagedPool => Some("paged pool"),
        Zone::UserBuffers => Some("memory of a user program"),
        Zone::Mappings => Some("the mapping of another MDL"),
        Zone::Stacks => Some("a kernel stack"),
        Zone::Images => paged::is_pageable(address).then_some("a pageable section"),
        Zone::Pool => None,
    }
}

/// What lies at an address, if it may be paged out.
pub(crate) fn pageable(address: usize) -> Option<&'static str> {
    match address_space::zone_of(address)? {
        Zone::PagedPool => Some("paged pool"),
        Zone::UserBuffers => Some("memory of a user program"),
        Zone::Images => paged::is_pageable(address).then_some("a pageable section"),
        Zone::Mappings | Zone::Stacks | Zone::Pool => None,
    }
}

/// `MmBuildMdlForNonPagedPool`.
///
/// # Safety
///
/// `mdl` is an MDL over memory of this kernel.
pub unsafe fn build_for_nonpaged_pool(mdl: *mut MDL) {
    // SAFETY: the caller's contract.
    unsafe {
        let flags = (*mdl).MdlFlags;
        let busy = MDL_PAGES_LOCKED | MDL_MAPPED_TO_SYSTEM_VA | MDL_SOURCE_IS_NONPAGED_POOL | MDL_PARTIAL;
        if flags & busy != 0 {
            bugcheck(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                [0x100D, mdl as u64, flags as u64, 0],
                "MmBuildMdlForNonPagedPool is given an MDL that describes something already",
            );
        }
        let start = (*mdl).StartVa as usize;
        if let Some(kind) = pageable_or_mapped(start) {
            bugcheck(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                [0x7F, mdl as u64, start as u64, u64::from((*mdl).ByteCount)],
                format!("MmBuildMdlForNonPagedPool is given an MDL over {kind}, which is no non-paged pool"),
            );
        }
        let Some(list) = address_space::frames_at(start, page_count(mdl)) else {
            bugcheck(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                [0x7F, u64::from(crate::irql::current()), mdl as u64, flags as u64],
                "MmBuildMdlForNonPagedPool is given an MDL over memory that is no non-paged pool",
            );
        };
        let array = frame_array(mdl);
        for (index, frame) in list.iter().enumerate() {
            array.add(index).write(u64::from(*frame));
        }
        (*mdl).MdlFlags |= MDL_SOURCE_IS_NONPAGED_POOL;
        (*mdl).MappedSystemVa = (start + (*mdl).ByteOffset as usize) as *mut _;
        (*mdl).Process = std::ptr::null_mut();
    }
}

/// `IoBuildPartialMdl`.
///
/// # Safety
///
/// Both are MDLs.
pub unsafe fn build_partial(source: *mut MDL, target: *mut MDL, address: usize, length: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        let source_start = (*source).StartVa as usize + (*source).ByteOffset as usize;
        let source_end = source_start + (*source).ByteCount as usize;
        let length = if length == 0 { source_end.saturating_sub(address) } else { length };
        let inside = address >= source_start && address.checked_add(length).is_some_and(|end| end <= source_end);
        let capacity = with(|table| table.lists.get(&(target as usize)).copied());
        let pages = span(address, length);
        if !inside || capacity.is_some_and(|capacity| pages > capacity) {
            bugcheck(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                [0x100E, source as u64, target as u64, address as u64],
                "IoBuildPartialMdl is asked for bytes that the source MDL does not describe, or that do not fit the target",
            );
        }
        let described = MDL_PAGES_LOCKED | MDL_SOURCE_IS_NONPAGED_POOL | MDL_PARTIAL;
        if (*source).MdlFlags & described == 0 {
            bugcheck(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                [0x100F, source as u64, (*source).MdlFlags as u64, 0],
                "IoBuildPartialMdl is given a source MDL whose pages are not locked",
            );
        }
        let shared = MDL_MAPPED_TO_SYSTEM_VA | MDL_SOURCE_IS_NONPAGED_POOL;
        let kept = (*target).MdlFlags & MDL_ALLOCATED_FIXED_SIZE;
        // A partial of a partial's own mapping shares only the address, never the duty to unmap.
        let inherited = (*source).MdlFlags & (shared | MDL_PAGES_LOCKED | MDL_WRITE_OPERATION);
        (*target).MdlFlags = kept | MDL_PARTIAL | inherited;
        (*target).Process = (*source).Process;
        (*target).StartVa = (address & !(PAGE_SIZE - 1)) as *mut _;
        (*target).ByteCount = length as u32;
        (*target).ByteOffset = (address & (PAGE_SIZE - 1)) as u32;
        (*target).MappedSystemVa = if (*source).MdlFlags & shared == 0 {
            std::ptr::null_mut()
        } else {
            ((*source).MappedSystemVa as usize + (address - source_start)) as *mut _
        };
        with(|table| {
            if table.lent.contains(&(source as usize)) {
                table.lent.insert(target as usize);
            } else {
                table.lent.remove(&(target as usize));
            }
        });
        let first = (address & !(PAGE_SIZE - 1)).saturating_sub((*source).StartVa as usize) / PAGE_SIZE;
        let from = frame_array(source).add(first);
        let to = frame_array(target);
        for index in 0..pages {
            to.add(index).write(from.add(index).read());
        }
    }
}

/// `MmMapLockedPagesSpecifyCache` for the kernel; the address of the first byte, or `None` when addresses or maps are
/// short.
///
/// # Safety
///
/// `mdl` is an MDL.
pub unsafe fn map(mdl: *mut MDL, priority: u32) -> Option<usize> {
    // SAFETY: the caller's contract.
    unsafe {
        let flags = (*mdl).MdlFlags;
        if flags & MDL_SOURCE_IS_NONPAGED_POOL != 0 {
            bugcheck(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                [0xB2, mdl as u64, flags as u64, MDL_SOURCE_IS_NONPAGED_POOL as u64],
                "MmMapLockedPages is called for an MDL over non-paged pool, which is mapped already",
            );
        }
        if flags & MDL_MAPPED_TO_SYSTEM_VA != 0 {
            bugcheck(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                [0xB2, mdl as u64, flags as u64, MDL_MAPPED_TO_SYSTEM_VA as u64],
                "MmMapLockedPages is called for an MDL that is mapped",
            );
        }
        if flags & MDL_PAGES_LOCKED == 0 {
            bugcheck(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                [0xB3, mdl as u64, flags as u64, MDL_PAGES_LOCKED as u64],
                "MmMapLockedPages is called for an MDL whose pages are not locked",
            );
        }
        if priority & MDL_MAPPING_NO_EXECUTE == 0 {
            bugcheck(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                [0x2002, mdl as u64, flags as u64, u64::from(priority)],
                "MmMapLockedPagesSpecifyCache is called without MdlMappingNoExecute: the mapping would be executable",
            );
        }
        let list = frames_of(mdl, "MmMapLockedPages");
        let pages = list.len();
        let reservation = Reservation::new(Zone::Mappings, pages * PAGE_SIZE)?;
        let lent = with(|table| table.lent.contains(&(mdl as usize)));
        let protection =
            if lent || priority & MDL_MAPPING_NO_WRITE != 0 { Protection::ReadOnly } else { Protection::ReadWrite };
        if !reservation.try_map(&list, protection) {
            return None;
        }
        let at = reservation.address();
        first_touch::watch(at, pages, protection);
        let address = at + (*mdl).ByteOffset as usize;
        (*mdl).MdlFlags |= MDL_MAPPED_TO_SYSTEM_VA;
        if flags & MDL_PARTIAL != 0 {
            (*mdl).MdlFlags |= MDL_PARTIAL_HAS_BEEN_MAPPED;
        }
        (*mdl).MappedSystemVa = address as *mut _;
        with(|table| {
            if crate::kernel::is_verifying() {
                for frame in &list {
                    *table.mapped.entry(*frame).or_default() += 1;
                }
            }
            let writable = protection == Protection::ReadWrite;
            table.mappings.insert(at, MdlMapping { mdl: mdl as usize, reservation, frames: list, writable, lent });
        });
        ledger::record(LEDGER_KIND_MAPPING, at, format!("of {pages} pages"));
        Some(address)
    }
}

/// `MmUnmapLockedPages`.
///
/// # Safety
///
/// `mdl` is an MDL.
pub unsafe fn unmap(address: usize, mdl: *mut MDL) {
    // SAFETY: the caller's contract.
    unsafe {
        let flags = (*mdl).MdlFlags;
        if flags & MDL_SOURCE_IS_NONPAGED_POOL != 0 {
            bugcheck(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                [0x1010, mdl as u64, address as u64, flags as u64],
                "MmUnmapLockedPages is called for an MDL over non-paged pool",
            );
        }
        let at = address & !(PAGE_SIZE - 1);
        let mapping = with(|table| {
            let ours = table.mappings.get(&at).is_some_and(|mapping| mapping.mdl == mdl as usize);
            let mapping = if ours { table.mappings.remove(&at) } else { None };
            mapping.iter().flat_map(|mapping| &mapping.frames).for_each(|frame| take_one(&mut table.mapped, *frame));
            mapping
        });
        let Some(mapping) = mapping.filter(|_| (*mdl).MdlFlags & MDL_MAPPED_TO_SYSTEM_VA != 0) else {
            bugcheck(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                [0x1010, mdl as u64, address as u64, flags as u64],
                "MmUnmapLockedPages is called for an address at which this MDL is not mapped",
            );
        };
        if mapping.frames != frames_of(mdl, "MmUnmapLockedPages") {
            bugcheck(
                BugCheck::PFN_LIST_CORRUPT,
                [0x9A, mdl as u64, address as u64, 0],
                "an MDL names other frames when it is unmapped than when it was mapped",
            );
        }
        first_touch::forget(at);
        mapping.reservation.release();
        ledger::release(LEDGER_KIND_MAPPING, at);
        (*mdl).MdlFlags &= !(MDL_MAPPED_TO_SYSTEM_VA | MDL_PARTIAL_HAS_BEEN_MAPPED);
        (*mdl).MappedSystemVa = std::ptr::null_mut();
    }
}

/// Fails when frames that are freed are still mapped by an MDL.
pub fn check_frames_unmapped(list: &[u32], what: &str) {
    report_mapped(with(|table| table.mapping_of(list)), what);
}

impl MdlTable {
    /// Where one of the frames is mapped, and by which MDL.
    fn mapping_of<'a>(&self, frames: impl IntoIterator<Item = &'a u32>) -> Option<(usize, usize)> {
        let frame = frames.into_iter().find(|frame| self.mapped.contains_key(frame))?;
        let mapping = self.mappings.iter().find(|(_, mapping)| mapping.frames.contains(frame))?;
        Some((*mapping.0, mapping.1.mdl))
    }
}

fn report_mapped(mapped: Option<(usize, usize)>, what: &str) {
    if let Some((at, mdl)) = mapped {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0x1011, mdl as u64, at as u64, 0],
            format!("{what} while an MDL still maps them at {at:#x}"),
        );
    }
}

/// A mapping as a trial sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    pub pages: usize,
    pub writable: bool,
}

/// What maps any of these frames now.
#[must_use]
pub fn views_of(list: &[u32]) -> Vec<View> {
    let list: HashSet<u32> = list.iter().copied().collect();
    with(|table| {
        let overlapping =
            table.mappings.values().filter(|mapping| mapping.frames.iter().any(|frame| list.contains(frame)));
        overlapping.map(|mapping| View { pages: mapping.frames.len(), writable: mapping.writable }).collect()
    })
}

/// Counts down, and removes what reaches zero.
fn take_one(counts: &mut HashMap<u32, u32>, frame: u32) {
    if let Some(count) = counts.get_mut(&frame) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&frame);
        }
    }
}

/// Whether anything is mapped at all: the cheap question before [`check_frames_unmapped`].
pub(crate) fn any_mapped() -> bool {
    with(|table| !table.mappings.is_empty())
}

/// What the mapping zone held at an address, for reports: whether it is mapped now.
pub(crate) fn describe(address: usize) -> String {
    let lent = with(|table| {
        let found = table.mappings.range(..=address).next_back();
        found.filter(|(at, mapping)| address < *at + mapping.reservation.length()).map(|(_, mapping)| mapping.lent)
    });
    match lent {
        Some(true) => "inside a mapping of a buffer that is lent for reading".to_owned(),
        Some(false) => "inside a live MDL mapping".to_owned(),
        None => "an MDL mapping that was unmapped, or the page behind one".to_owned(),
    }
}
