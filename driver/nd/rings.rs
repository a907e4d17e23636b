//! Memory that a process shares with the driver: the only place that reads or writes it.
//!
//! It is the process's and may change at any time, whatever the process's part of the ABI says. So a count is read once for each use, an entry
//! is copied before it is looked at, and no place is computed from what was read but modulo the ring. Layouts are those of
//! `softndk_ioctl::nd::rings`.

use core::{
    mem::offset_of,
    ptr::NonNull,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use ndkpi_sys::nt::{
    NTSTATUS, PAGE_SIZE, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_BUFFER_SIZE, STATUS_INVALID_PARAMETER,
};
use softndk_cells::{Dispose, Erased, Shared};
use softndk_engine::MemoryToken;
use softndk_ioctl::nd::rings::{
    CONSUMER_OFFSET, CompletionFlags, CompletionHeader, InitiatorEntry, POLLING_OFFSET, QueuePairHeader,
    QueuePairPolling, QueuePairTaken, ReceiveEntry, ResultEntry, Ring, Sge, TAKEN_OFFSET,
};
use softndk_kernel::{irp::Request, irql};

use super::{
    object,
    pending::{Lease, Owner, Pended},
    request::Call,
    status::of_error,
};
use crate::runtime::{
    engine::Engine,
    mapper::Release,
    memory::{Access, Chain, Extent, Mapping},
};

/// Results of one cache line.
const RESULTS_A_LINE: usize = 2;

/// Rings in memory of a process, for as long as the request pends that brought the memory.
pub struct Attached {
    start: NonNull<u8>,
    length: usize,
    /// There until this is dropped. It keeps the lease, too: the request ends behind the unmapping.
    mapping: Option<Mapping>,
    pub lease: Shared<Lease>,
    /// The object does not have it any more: it ends with its last user.
    revoked: AtomicBool,
}

// SAFETY: the memory is mapped for every processor as long as the value lives, and accessed by volatile or atomic accesses only.
unsafe impl Send for Attached {}
// SAFETY: as above.
unsafe impl Sync for Attached {}

impl Dispose for Attached {}

impl Drop for Attached {
    /// A request that is cancelled at DISPATCH_LEVEL leaves large memory to the mapper.
    fn drop(&mut self) {
        let Some(mut mapping) = self.mapping.take() else { return };
        if !irql::at_dispatch() {
            return;
        }
        if let (Some(space), Some(engine)) = (mapping.take_retire_space(), Engine::get()) {
            engine.mapper.release(space, Release::Rings(mapping));
        }
    }
}

impl Attached {
    /// Maps the memory of an ATTACH request, at least `length` bytes on a page boundary. The request comes back with a failure; else it
    /// pends until the last pointer to this is dropped.
    pub fn try_new(
        call: &Call,
        request: Request,
        length: usize,
        owner: Owner,
    ) -> Result<Shared<Self>, (Request, NTSTATUS)> {
        let attached = match Self::map(&request, length) {
            Ok(attached) => attached,
            Err(status) => return Err((request, status)),
        };
        let pended = match Pended::begin(request, call, owner, 0) {
            Ok(pended) => pended,
            Err(refused) => return Err((refused.request, refused.status)),
        };
        attached.lease.fill(pended);
        Ok(attached)
    }

    /// The object gives it up. Under its lock, so that memory which follows finds this revoked.
    pub fn revoke(&self) {
        self.revoked.store(true, Ordering::Release);
    }

    pub fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    /// The memory of a request that does not pend yet.
    fn map(request: &Request, length: usize) -> Result<Shared<Self>, NTSTATUS> {
        let mut mapping = map(request, length)?;
        let start = mapping.start().ok_or(STATUS_INVALID_PARAMETER)?;
        let lease = object::block(Lease::new())?;
        mapping.keep(Erased::of(&lease));
        object::block(Self { start, length, mapping: Some(mapping), lease, revoked: AtomicBool::new(false) })
    }

    /// A word of the memory.
    fn word(&self, offset: usize) -> Option<&AtomicU32> {
        let place = self.place::<u32>(offset)?;
        // SAFETY: inside of the mapped memory and aligned (`place`); the process changes it as a device would.
        Some(unsafe { AtomicU32::from_ptr(place) })
    }

    /// A count that the process writes; what it wrote before is visible afterwards.
    fn read(&self, offset: usize) -> u32 {
        self.word(offset).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// A count that the driver writes, after everything before it.
    fn write(&self, offset: usize, value: u32) {
        if let Some(word) = self.word(offset) {
            word.store(value, Ordering::Release);
        }
    }

    /// A place for a value.
    fn place<T>(&self, offset: usize) -> Option<*mut T> {
        let inside = offset.checked_add(size_of::<T>())? <= self.length && offset.is_multiple_of(align_of::<T>());
        // SAFETY: inside of the mapped memory.
        inside.then(|| unsafe { self.start.as_ptr().add(offset) }.cast())
    }

    /// A copy of an entry.
    fn copy<T: Copy + Default>(&self, offset: usize) -> T {
        let Some(place) = self.place::<T>(offset) else { return T::default() };
        // SAFETY: mapped and aligned (`place`); the types are plain numbers, for which every mixture of bytes is a value.
        unsafe { place.read_volatile() }
    }

    pub fn initiator_producer(&self) -> u32 {
        self.read(offset_of!(QueuePairHeader, initiator_producer))
    }

    pub fn receive_producer(&self) -> u32 {
        self.read(offset_of!(QueuePairHeader, receive_producer))
    }

    /// Both producer counts of a queue pair.
    pub fn producers(&self) -> (u32, u32) {
        (self.initiator_producer(), self.receive_producer())
    }

    /// Entries from `count` on are copied soon: has the processor bring them, all at once instead of one after the other.
    pub fn fetch_ahead(&self, ring: &Ring, count: u32, entries: u32) {
        for index in 0..entries {
            if let Some(place) = self.place::<InitiatorEntry>(ring.place(count.wrapping_add(index))) {
                prefetch(place.cast());
            }
        }
    }

    pub fn initiator_entry(&self, ring: &Ring, count: u32) -> InitiatorEntry {
        self.copy(ring.place(count))
    }

    pub fn receive_entry(&self, ring: &Ring, count: u32) -> ReceiveEntry {
        self.copy(ring.place(count))
    }

    /// The SGEs behind the head of an entry, each copied once, when it is reached.
    pub fn sges(&self, ring: &Ring, count: u32, head: usize, sges: u32) -> Sges<'_> {
        Sges { memory: self, offset: ring.place(count).saturating_add(head), left: sges }
    }

    /// The inline data behind the head of an entry, as the engine takes it: by its address.
    pub fn inline(&self, ring: &Ring, count: u32, length: u32) -> Option<softndk_engine::Sge> {
        let offset = ring.place(count).checked_add(size_of::<InitiatorEntry>())?;
        let inside = offset.checked_add(length as usize)? <= self.length;
        let address = self.start.as_ptr().expose_provenance() as u64;
        let address = address.checked_add(offset as u64)?;
        inside.then_some(softndk_engine::Sge { address, length, token: MemoryToken::NONE })
    }

    /// Says whether posts need a doorbell.
    pub fn show_polling(&self, polling: bool) {
        self.write(POLLING_OFFSET.saturating_add(offset_of!(QueuePairPolling, polling)), u32::from(polling));
    }

    /// Publishes the counts and the state of a queue pair.
    pub fn publish(&self, taken: &QueuePairTaken) {
        let fields = [
            (offset_of!(QueuePairTaken, initiator_retired), taken.initiator_retired),
            (offset_of!(QueuePairTaken, receive_retired), taken.receive_retired),
            (offset_of!(QueuePairTaken, state), taken.state),
            (offset_of!(QueuePairTaken, initiator_taken), taken.initiator_taken),
            (offset_of!(QueuePairTaken, receive_taken), taken.receive_taken),
        ];
        for (offset, value) in fields {
            self.write(TAKEN_OFFSET.saturating_add(offset), value);
        }
    }

    /// How many results the process says to have taken.
    pub fn consumer(&self) -> u32 {
        self.read(CONSUMER_OFFSET)
    }

    /// Results are written from `count` on soon: has the processor bring their lines, of which the process's has copies, all at once.
    pub fn fetch_for_results(&self, ring: &Ring, count: u32, results: u32) {
        for index in (0..results).step_by(RESULTS_A_LINE) {
            if let Some(place) = self.place::<ResultEntry>(ring.place(count.wrapping_add(index))) {
                fetch_for_writing(place.cast());
            }
        }
    }

    /// Writes a result; it becomes visible by [`Self::publish_results`].
    pub fn write_result(&self, ring: &Ring, count: u32, result: ResultEntry) {
        if let Some(place) = self.place::<ResultEntry>(ring.place(count)) {
            // SAFETY: mapped for writing and aligned.
            unsafe { place.write_volatile(result) };
        }
    }

    pub fn publish_results(&self, producer: u32) {
        self.write(offset_of!(CompletionHeader, producer), producer);
    }

    pub fn set_flags(&self, flags: CompletionFlags) {
        self.write(offset_of!(CompletionHeader, flags), flags.bits());
    }
}

/// Tells the processor that memory is read soon. What is there is not looked at.
fn prefetch(place: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, for any address; the instruction is part of SSE, which x64 has.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(place);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// As [`prefetch`], for a line that is written soon.
fn fetch_for_writing(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, for any address; every processor that 64-bit Windows runs on has the instruction.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Maps the memory of a direct request.
fn map(request: &Request, length: usize) -> Result<Mapping, NTSTATUS> {
    let given = request.device_control().output_length;
    if request.mdl().is_null() || given == 0 {
        return Err(STATUS_INVALID_BUFFER_SIZE);
    }
    if given < length {
        return Err(STATUS_BUFFER_TOO_SMALL);
    }
    // SAFETY: the I/O manager made the MDL for this request, which is not completed before the mapping is gone.
    let chain = unsafe { Chain::check(request.mdl().cast(), length as u64, u64::from(u32::MAX)) }.map_err(of_error)?;
    if !chain.base.is_multiple_of(PAGE_SIZE as u64) {
        return Err(STATUS_INVALID_PARAMETER);
    }
    Mapping::try_new(&chain, Access::ReadWrite, Extent::Bytes).map_err(of_error)
}

/// Scatter/gather elements of an entry.
pub struct Sges<'a> {
    memory: &'a Attached,
    offset: usize,
    left: u32,
}

impl Iterator for Sges<'_> {
    type Item = softndk_engine::Sge;

    fn next(&mut self) -> Option<softndk_engine::Sge> {
        self.left = self.left.checked_sub(1)?;
        let sge: Sge = self.memory.copy(self.offset);
        self.offset = self.offset.saturating_add(size_of::<Sge>());
        Some(softndk_engine::Sge { address: sge.address, length: sge.length, token: MemoryToken(sge.token) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Sges<'_> {}
