//! Requests that pend: from being marked pending to their completion, cancellable all the while.
//!
//! A pended request lies in a block of its own, which the packet names for its cancel routine. Its owner, an object, keeps it in a
//! list or in a [`Lease`] and ends it; the routine asks the owner to end it as cancelled. What takes the routine out of the packet
//! decides who completes: if the driver does, the one that ends the request; if the I/O manager does, the later of that one and
//! the routine, so that the packet lives until both have been there. One that is cancelled on its way in is not taken by its owner.
//!
//! Rules: a request is published under its owner's lock and ended without one; the order of a list is that of arrival.

use core::{
    cell::UnsafeCell,
    ffi::c_void,
    ptr::NonNull,
    sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering},
};

use ndkpi_sys::nt::{NTSTATUS, STATUS_CANCELLED, STATUS_INSUFFICIENT_RESOURCES};
use softndk_cells::{Dispose, Erased, Shared, View};
use softndk_kernel::{
    irp::{self, Request},
    pool::{PoolBox, PoolSpace},
    spin_lock::SpinLock,
};
use wdk_sys::{DEVICE_OBJECT, IRP};

use crate::{memory::Lender, platform::UserModeObject, tags};

/// The object that a pended request belongs to.
pub type Owner = Erased<dyn UserModeObject>;

struct PendedBlock {
    request: Request,
    owner: Owner,
    /// The file it came through, by its number.
    file: u64,
    /// What it is to its owner.
    kind: u32,
    /// With which it ends.
    status: AtomicI32,
    information: AtomicUsize,
    /// The cancel routine, where it runs, and the end of the request: the later of both completes it.
    passed: AtomicBool,
    /// The next one in the owner's list, whose lock guards it.
    next: UnsafeCell<Option<Pended>>,
}

/// A request that pends. It must be finished.
#[must_use]
pub struct Pended(NonNull<PendedBlock>);

// SAFETY: the block belongs to this value, but for the fields that the cancel routine reads or exchanges atomically.
unsafe impl Send for Pended {}
// SAFETY: as above; what changes through `&self` is atomic.
unsafe impl Sync for Pended {}

impl Pended {
    /// Marks a request pending: the dispatch routine answers STATUS_PENDING from here on. Without memory the request comes back. `kind` is
    /// the owner's.
    pub fn begin(mut request: Request, file: u64, owner: Owner, kind: u32) -> Result<Self, Refused> {
        let Ok(space) = PoolSpace::<PendedBlock>::try_new(tags::ND_REQUEST) else {
            return Err(Refused { request, status: STATUS_INSUFFICIENT_RESOURCES });
        };
        let _pending = request.mark_pending();
        let block = space.fill(PendedBlock {
            request,
            owner,
            file,
            kind,
            status: AtomicI32::new(0),
            information: AtomicUsize::new(0),
            passed: AtomicBool::new(false),
            next: UnsafeCell::new(None),
        });
        let pended = Self(block.into_raw());
        let request = &pended.block().request;
        request.set_driver_word(pended.0.cast());
        // The block is complete: the routine may run as soon as it is set.
        request.set_cancel_routine(Some(cancel));
        Ok(pended)
    }

    fn block(&self) -> &PendedBlock {
        // SAFETY: the block lives until the request is completed, which consumes this value or comes after it.
        unsafe { self.0.as_ref() }
    }

    /// The number by which the owner is told of a cancellation.
    pub fn id(&self) -> usize {
        self.block().request.id()
    }

    pub fn file(&self) -> u64 {
        self.block().file
    }

    pub fn kind(&self) -> u32 {
        self.block().kind
    }

    /// Whether it is cancelled already: asked under the owner's lock before it is published. A routine that runs later finds it.
    pub fn is_cancelled(&self) -> bool {
        self.block().request.is_cancelled()
    }

    /// The bytes of a buffered request's output are filled in, and the request ends. `IRQL <= DISPATCH_LEVEL`, no lock held.
    pub fn finish(self, status: NTSTATUS) {
        self.finish_with(status, 0);
    }

    /// As [`Self::finish`], with so many bytes of output.
    pub fn finish_with(self, status: NTSTATUS, information: usize) {
        let block = self.block();
        block.status.store(status, Ordering::Relaxed);
        block.information.store(information, Ordering::Relaxed);
        if block.request.take_cancel_routine() || block.passed.swap(true, Ordering::AcqRel) {
            // SAFETY: the cancel routine is out, or has passed; this value is used up.
            unsafe { complete(self.0) };
        }
    }

    fn next(&mut self) -> &mut Option<Self> {
        // SAFETY: `&mut self` is the list's, under its lock; the cancel routine does not touch this field.
        unsafe { &mut *self.block().next.get() }
    }
}

/// A request that could not be made pending.
pub struct Refused {
    pub request: Request,
    pub status: NTSTATUS,
}

/// Completes the packet and frees the block.
///
/// # Safety
/// The block came from [`Pended::begin`], and no other context uses it any more.
unsafe fn complete(block: NonNull<PendedBlock>) {
    // SAFETY: `begin` made it as a box with this tag.
    let block = unsafe { PoolBox::from_raw(tags::ND_REQUEST, block) }.into_inner();
    let (status, information) = (block.status.into_inner(), block.information.into_inner());
    block.request.complete(status, information);
    // The owner goes after its request, perhaps for good.
    drop(block.owner);
}

/// The cancel routine of every pended request.
///
/// # Safety
/// The I/O manager passes an IRP that has this routine, and has taken the routine out of it.
unsafe extern "C" fn cancel(_device: *mut DEVICE_OBJECT, irp: *mut IRP) {
    // SAFETY: the packet is completed after this routine has passed (`finish_with`).
    let word: *mut c_void = unsafe { irp::cancel_entered(irp) };
    let Some(block) = NonNull::new(word.cast::<PendedBlock>()) else { return };
    // SAFETY: `begin` left the block there; it lives until both sides have passed.
    let place = unsafe { block.as_ref() };
    place.owner.cancelled(place.request.id());
    if place.passed.swap(true, Ordering::AcqRel) {
        // SAFETY: the end of the request has passed before and left the block to this routine.
        unsafe { complete(block) };
    }
}

/// The requests that pend on an object, oldest first. Under the object's lock.
pub struct PendingList {
    first: Option<Pended>,
}

impl PendingList {
    pub const fn new() -> Self {
        Self { first: None }
    }

    /// Adds a request at the end; one that is cancelled already comes back.
    pub fn push(&mut self, pended: Pended) -> Result<(), Pended> {
        if pended.is_cancelled() {
            return Err(pended);
        }
        self.add(pended);
        Ok(())
    }

    fn add(&mut self, pended: Pended) {
        let mut place = &mut self.first;
        while let Some(entry) = place {
            place = entry.next();
        }
        *place = Some(pended);
    }

    /// Takes the oldest that `fits`.
    pub fn take(&mut self, fits: impl Fn(&Pended) -> bool) -> Option<Pended> {
        let mut place = &mut self.first;
        while place.as_ref().is_some_and(|entry| !fits(entry)) {
            place = place.as_mut()?.next();
        }
        let mut taken = place.take()?;
        *place = taken.next().take();
        Some(taken)
    }

    /// Takes all.
    pub fn take_all(&mut self) -> Self {
        Self { first: self.first.take() }
    }

    /// Takes those that `fit`, in their order, cancelled ones too.
    pub fn take_where(&mut self, fit: impl Fn(&Pended) -> bool) -> Self {
        let mut taken = Self::new();
        while let Some(pended) = self.take(&fit) {
            taken.add(pended);
        }
        taken
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The highest of the owner's kinds in the list.
    pub fn highest_kind(&mut self) -> Option<u32> {
        let mut highest = None;
        let mut place = &mut self.first;
        while let Some(entry) = place {
            highest = highest.max(Some(entry.kind()));
            place = entry.next();
        }
        highest
    }

    /// Finishes all, in their order. No lock held.
    pub fn finish(mut self, status: NTSTATUS) {
        while let Some(pended) = self.take(|_| true) {
            pended.finish(status);
        }
    }
}

/// A request that ends when this is dropped: when what its memory is used for has ended.
pub struct Lease {
    pended: SpinLock<Option<Pended>>,
    status: AtomicI32,
}

impl Lease {
    pub const fn new() -> Self {
        Self { pended: SpinLock::new(None), status: AtomicI32::new(0) }
    }

    /// The request. It is to be published next, or the lease dropped.
    pub fn fill(&self, pended: Pended) {
        let before = self.pended.lock().replace(pended);
        debug_assert!(before.is_none());
    }

    /// With which it is going to end: the first that is set.
    pub fn end_with(&self, status: NTSTATUS) {
        let _set = self.status.compare_exchange(0, status, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub fn is_of_request(&self, request: usize) -> bool {
        self.pended.lock().as_ref().is_some_and(|pended| pended.id() == request)
    }

    pub fn is_of_file(&self, file: u64) -> bool {
        self.pended.lock().as_ref().is_some_and(|pended| pended.file() == file)
    }

    /// As [`Pended::is_cancelled`].
    pub fn is_cancelled(&self) -> bool {
        self.pended.lock().as_ref().is_some_and(Pended::is_cancelled)
    }
}

impl Dispose for Lease {}

impl Lender for Lease {}

impl View for Lease {
    type As = dyn Lender;

    fn view(lease: &Shared<Self>) -> &Self::As {
        &**lease
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let pended = self.pended.lock().take();
        if let Some(pended) = pended {
            pended.finish(self.status.load(Ordering::Relaxed));
        }
    }
}

/// Completes a request that is over, as one that has pended: the caller's completion port or event hears of it either way.
pub fn complete_pended(mut request: Request, status: NTSTATUS, information: usize) -> NTSTATUS {
    let pending = request.mark_pending();
    request.complete(status, information);
    pending
}

/// The status with which a request that its owner did not take ends.
pub const NOT_TAKEN: NTSTATUS = STATUS_CANCELLED;
