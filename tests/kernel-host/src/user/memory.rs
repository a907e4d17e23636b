//! The memory of a process: what it has allocated, its heap, its stacks and its images, with the protection of each page.
//!
//! Heap blocks have pages of their own and end where these end, so that the page behind and later uses fault. Memory that is given
//! back while a driver has it locked loses its access at once, and its frames when the last lock goes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::image::{Image, loader};
use crate::kernel::FrameOrder;
use crate::memory::PAGE_SIZE;
use crate::memory::address_space::{self, Protection};
use crate::memory::mdl::{self, Access};
use crate::memory::user_buffer::{LockedMdl, UserBuffer};
use crate::status::{self, NtStatus};

/// Allocations of more pages have adjacent frames: each frame that is not costs a map of the operating system.
const MOST_SCATTERED: usize = 64;

/// The alignment of heap blocks.
const HEAP_ALIGNMENT: usize = 16;

/// What a heap block holds before it is written.
const UNWRITTEN: u8 = 0xBD;

/// What holds the frames of a region.
enum Backing {
    Buffer(UserBuffer),
    Image(Arc<Image>),
}

impl Backing {
    fn is_locked(&self) -> bool {
        match self {
            Self::Buffer(buffer) => mdl::any_locked(buffer.frames()),
            Self::Image(image) => mdl::any_locked(&image.frames.clone().collect::<Vec<_>>()),
        }
    }

    fn take_access(&self) {
        match self {
            Self::Buffer(buffer) => buffer.protect(0, buffer.pages().1, Protection::None),
            Self::Image(image) => image.reservation.protect(0, image.length, Protection::None),
        }
    }

    fn release(self) {
        match self {
            Self::Buffer(buffer) => drop(buffer),
            Self::Image(image) => loader::unload(&image),
        }
    }
}

struct Region {
    backing: Backing,
    /// Of each page.
    protections: Vec<Protection>,
}

/// The memory of one process.
#[derive(Default)]
pub(super) struct ProcessMemory {
    /// By the address of their first page.
    regions: Mutex<BTreeMap<usize, Region>>,
    /// The sizes of heap blocks, by their address.
    heap: Mutex<BTreeMap<usize, usize>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was given back and is still locked.
static RETIRED: Mutex<Vec<Backing>> = Mutex::new(Vec::new());
static RETIRED_COUNT: AtomicUsize = AtomicUsize::new(0);

fn retire(backing: Backing) {
    if !backing.is_locked() {
        backing.release();
        return;
    }
    backing.take_access();
    let mut retired = lock(&RETIRED);
    retired.push(backing);
    RETIRED_COUNT.store(retired.len(), Ordering::SeqCst);
}

/// Pages were unlocked: what was kept for them goes.
pub(super) fn release_retired() {
    if RETIRED_COUNT.load(Ordering::SeqCst) == 0 {
        return;
    }
    let free: Vec<Backing> = {
        let mut retired = lock(&RETIRED);
        let (locked, free) = retired.drain(..).partition(Backing::is_locked);
        *retired = locked;
        RETIRED_COUNT.store(retired.len(), Ordering::SeqCst);
        free
    };
    free.into_iter().for_each(Backing::release);
}

fn allows(protection: Protection, access: Access) -> bool {
    match access {
        Access::Read => protection != Protection::None,
        Access::Write => matches!(protection, Protection::ReadWrite | Protection::ReadWriteExecute),
    }
}

/// The first and the last page that a range touches, by their place in a region that begins at `start`.
fn pages_of(start: usize, address: usize, length: usize) -> std::ops::Range<usize> {
    (address - start) / PAGE_SIZE..(address - start + length).div_ceil(PAGE_SIZE)
}

/// The region that holds a range, and its place.
fn holding(regions: &mut BTreeMap<usize, Region>, address: usize, length: usize) -> Option<(usize, &mut Region)> {
    let (start, region) = regions.range_mut(..=address).next_back()?;
    let end = start + region.protections.len() * PAGE_SIZE;
    (address.checked_add(length)? <= end && address < end).then_some((*start, region))
}

fn permits(regions: &mut BTreeMap<usize, Region>, address: usize, length: usize, access: Access) -> bool {
    if length == 0 {
        return true;
    }
    holding(regions, address, length).is_some_and(|(start, region)| {
        region.protections[pages_of(start, address, length)].iter().all(|page| allows(*page, access))
    })
}

impl ProcessMemory {
    fn add(&self, buffer: UserBuffer, protection: Protection) {
        let (start, length) = buffer.pages();
        if protection != Protection::ReadWrite {
            buffer.protect(0, length, protection);
        }
        let region = Region { backing: Backing::Buffer(buffer), protections: vec![protection; length / PAGE_SIZE] };
        lock(&self.regions).insert(start, region);
    }

    /// Zeroed pages.
    pub fn allocate(&self, bytes: usize, protection: Protection) -> usize {
        let scattered = bytes <= MOST_SCATTERED * PAGE_SIZE;
        let order = if scattered { FrameOrder::Scattered } else { FrameOrder::Contiguous };
        let buffer = UserBuffer::with_offset(bytes.max(1).next_multiple_of(PAGE_SIZE), 0, order);
        let address = buffer.address();
        self.add(buffer, protection);
        address
    }

    /// A user stack; its lowest address.
    pub fn allocate_stack(&self, bytes: usize) -> usize {
        let buffer = UserBuffer::with_offset(bytes, 0, FrameOrder::Contiguous);
        let address = buffer.address();
        self.add(buffer, Protection::ReadWrite);
        address
    }

    /// The pages of an image are the process's from now on.
    pub fn add_image(&self, image: &Arc<Image>) {
        let mut protections = vec![Protection::ReadOnly; image.length / PAGE_SIZE];
        for section in &image.sections {
            let protection = loader::protection_of(section);
            protections[pages_of(image.base, section.address, section.length)].fill(protection);
        }
        let region = Region { backing: Backing::Image(Arc::clone(image)), protections };
        lock(&self.regions).insert(image.base, region);
    }

    /// Gives a region back, by its first address; `false` when there is none.
    pub fn free(&self, address: usize) -> bool {
        let region = lock(&self.regions).remove(&address);
        region.map(|region| retire(region.backing)).is_some()
    }

    pub fn free_all(&self) {
        lock(&self.heap).clear();
        let regions = std::mem::take(&mut *lock(&self.regions));
        for region in regions.into_values() {
            retire(region.backing);
        }
    }

    /// Changes the protection of the pages of a range; that of the first one before.
    pub fn protect(&self, address: usize, length: usize, protection: Protection) -> Option<Protection> {
        let mut regions = lock(&self.regions);
        let (start, region) = holding(&mut regions, address, length.max(1))?;
        let pages = pages_of(start, address, length.max(1));
        let before = region.protections[pages.start];
        // SAFETY: pages of a live region, whose reservation stays while the table is locked.
        unsafe { address_space::protect(start + pages.start * PAGE_SIZE, pages.len() * PAGE_SIZE, protection) };
        region.protections[pages].fill(protection);
        Some(before)
    }

    /// The region that an address is in, and the pages around it from its own on that have the same protection.
    pub fn query(&self, address: usize) -> Option<(usize, std::ops::Range<usize>, Protection)> {
        let mut regions = lock(&self.regions);
        let (start, region) = holding(&mut regions, address, 1)?;
        let first = pages_of(start, address, 1).start;
        let protection = region.protections[first];
        let same = region.protections[first..].iter().take_while(|other| **other == protection).count();
        Some((start, start + first * PAGE_SIZE..start + (first + same) * PAGE_SIZE, protection))
    }

    /// Whether the range is the process's and may be touched so.
    pub fn permits(&self, address: usize, length: usize, access: Access) -> bool {
        permits(&mut lock(&self.regions), address, length, access)
    }

    pub fn read(&self, address: usize, length: usize) -> Option<Vec<u8>> {
        let mut regions = lock(&self.regions);
        if !permits(&mut regions, address, length, Access::Read) {
            return None;
        }
        let mut bytes = vec![0; length];
        if length != 0 {
            // SAFETY: readable memory of the process, which stays while the table is locked; the program may write it meanwhile.
            unsafe { std::ptr::copy_nonoverlapping(address as *const u8, bytes.as_mut_ptr(), length) };
        }
        Some(bytes)
    }

    pub fn write(&self, address: usize, bytes: &[u8]) -> bool {
        let mut regions = lock(&self.regions);
        let permitted = permits(&mut regions, address, bytes.len(), Access::Write);
        if permitted && !bytes.is_empty() {
            // SAFETY: writable memory of the process, which stays while the table is locked; the program may read it meanwhile.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
        }
        permitted
    }

    /// Locks a range as the I/O manager does for a direct code.
    ///
    /// STATUS_ACCESS_VIOLATION: not the process's, or it may not touch it so. STATUS_INSUFFICIENT_RESOURCES: no memory for
    /// the MDL.
    pub fn lock_pages(&self, address: usize, length: usize, access: Access) -> Result<LockedMdl, NtStatus> {
        let mut regions = lock(&self.regions);
        if !permits(&mut regions, address, length, access) {
            return Err(status::STATUS_ACCESS_VIOLATION);
        }
        LockedMdl::over(address, length, access).ok_or(status::STATUS_INSUFFICIENT_RESOURCES)
    }

    /// A block of the heap.
    pub fn heap_allocate(&self, bytes: usize, zeroed: bool) -> usize {
        let rounded = bytes.max(1).next_multiple_of(HEAP_ALIGNMENT);
        let offset = rounded.next_multiple_of(PAGE_SIZE) - rounded;
        let mut buffer = UserBuffer::with_offset(rounded, offset, FrameOrder::Contiguous);
        if !zeroed {
            buffer.as_mut_slice().fill(UNWRITTEN);
        }
        let address = buffer.address();
        self.add(buffer, Protection::ReadWrite);
        lock(&self.heap).insert(address, bytes);
        address
    }

    /// The size of a heap block.
    pub fn heap_size(&self, address: usize) -> Option<usize> {
        lock(&self.heap).get(&address).copied()
    }

    /// Frees a block of the heap; `false` when there is none at this address.
    pub fn heap_free(&self, address: usize) -> bool {
        let found = lock(&self.heap).remove(&address).is_some();
        found && self.free(address & !(PAGE_SIZE - 1))
    }

    pub fn heap_blocks(&self) -> usize {
        lock(&self.heap).len()
    }
}
