//! Requests that pend: from being marked pending to their completion, cancellable all the while.
//!
//! A pended request lies in a block of its own, which the packet names for its cancel routine. Its owner, an object, keeps it in its
//! state, a [`PendingList`] or a [`Lease`] and ends it; the routine asks the owner to end it as cancelled. What takes the
//! routine out of the packet decides who completes: if the driver does, the one that ends the request; if the I/O manager does, the
//! later of that one and the routine, so that the packet lives until both have been there. One that is cancelled on its way in is not
//! taken by its owner.
//!
//! Rules: a request is published under its owner's lock and ended without one; nothing stands where a request stands already; the
//! order of a list is that of arrival; adding and taking a request cost the same however many there are.

use core::{
    cell::UnsafeCell,
    ffi::c_void,
    ptr::NonNull,
    sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
};

use ndkpi_sys::nt::{NTSTATUS, STATUS_CANCELLED, STATUS_INSUFFICIENT_RESOURCES};
use softndk_cells::{Dispose, Erased, Shared, View};
use softndk_ioctl::RefusalWay;
use softndk_kernel::{
    irp::{self, Request},
    irql,
    pool::{PoolBox, PoolSpace},
    spin_lock::SpinLock,
    work::{Job, Once},
};
use wdk_sys::{DEVICE_OBJECT, IRP};

use super::{
    account::{Account, Amounts, Charge},
    limits::{COMPLETIONS_A_PASS, PENDED_REQUESTS},
    refused,
    request::Call,
};
use crate::{
    runtime::{
        engine::Engine,
        memory::Lender,
        platform::{CancelledRequest, UserModeObject},
    },
    tags,
};

/// The object that a pended request belongs to.
pub type Owner = Erased<dyn UserModeObject>;

struct PendedBlock {
    request: Request,
    /// For the request and the memory that it locks.
    _charge: Charge,
    owner: Owner,
    /// The file it came through, by its number.
    file: u64,
    /// What it is to its owner.
    kind: u64,
    /// With which it ends.
    status: AtomicI32,
    /// The cancel routine, where it runs, and the end of the request: the later of both completes it.
    passed: AtomicBool,
    /// The time of the list that it is in ([`PendingList::time`]), 0 in none. Changed under its owner's lock.
    listed: AtomicU64,
    /// Its neighbours in a list. They belong to the list, and with that to the holder of the owner's lock.
    links: UnsafeCell<Links>,
    /// Ends what is left of a list whose first request this is ([`PendingList::finish`]).
    rest: UnsafeCell<Job<Rest>>,
}

#[derive(Clone, Copy, Default)]
struct Links {
    before: Option<NonNull<PendedBlock>>,
    next: Option<NonNull<PendedBlock>>,
}

/// A request that pends. It must be finished: dropping one is a mistake, which an image with checked arithmetic ends the system for and
/// any other answers by ending the request as cancelled.
#[must_use]
pub struct Pended(NonNull<PendedBlock>);

// SAFETY: the block belongs to this value, but for the fields that the cancel routine reads or exchanges atomically.
unsafe impl Send for Pended {}
// SAFETY: as above; what changes through `&self` is atomic.
unsafe impl Sync for Pended {}

impl Pended {
    /// Marks a request pending: the dispatch routine answers STATUS_PENDING from here on. Without memory the request comes back. `kind` is
    /// the owner's. Every request that pends comes through here.
    pub fn begin(mut request: Request, call: &Call, owner: Owner, kind: u64) -> Result<Self, Refused> {
        let charge = match Account::charge(call.file.account(), Amounts::request(&request)) {
            Ok(charge) => charge,
            Err(status) => return Err(Refused { request, status }),
        };
        let Ok(space) = PoolSpace::<PendedBlock>::try_new(tags::ND_REQUEST) else {
            return Err(Refused { request, status: STATUS_INSUFFICIENT_RESOURCES });
        };
        let _pending = request.mark_pending();
        let block = space.fill(PendedBlock {
            request,
            _charge: charge,
            owner,
            file: call.file.number,
            kind,
            status: AtomicI32::new(0),
            passed: AtomicBool::new(false),
            listed: AtomicU64::new(0),
            links: UnsafeCell::new(Links::default()),
            rest: UnsafeCell::new(Job::in_place(None)),
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

    /// Whether it is the one whose cancellation its owner handles.
    pub fn is(&self, request: CancelledRequest) -> bool {
        self.0 == request.block().cast()
    }

    pub fn file(&self) -> u64 {
        self.block().file
    }

    pub fn kind(&self) -> u64 {
        self.block().kind
    }

    /// Whether it is cancelled already: asked under the owner's lock before it is published. A routine that runs later finds it.
    pub fn is_cancelled(&self) -> bool {
        self.block().request.is_cancelled()
    }

    /// The request ends. `IRQL <= DISPATCH_LEVEL`, no lock held.
    pub fn finish(self, status: NTSTATUS) {
        let block = self.into_block();
        // SAFETY: the value that stood for it is used up.
        unsafe { finish(block, status) };
    }

    /// Gives up the value without ending the request.
    fn into_block(self) -> NonNull<PendedBlock> {
        let block = self.0;
        core::mem::forget(self);
        block
    }
}

impl Drop for Pended {
    fn drop(&mut self) {
        debug_assert!(false, "a pended request is dropped");
        // SAFETY: the value goes.
        unsafe { finish(self.0, NOT_TAKEN) };
    }
}

/// Ends a request. `IRQL <= DISPATCH_LEVEL`, no lock held.
///
/// # Safety
/// The block came from [`Pended::begin`], and the caller owns it as a [`Pended`] would.
unsafe fn finish(block: NonNull<PendedBlock>, status: NTSTATUS) {
    // SAFETY: it lives until the request is completed, below or by the cancel routine afterwards.
    let place = unsafe { block.as_ref() };
    place.status.store(status, Ordering::Relaxed);
    if place.request.take_cancel_routine() || place.passed.swap(true, Ordering::AcqRel) {
        // SAFETY: the cancel routine is out, or has passed; the caller gives the block up.
        unsafe { complete(block) };
    }
}

/// A request that could not be made pending.
pub struct Refused {
    pub request: Request,
    pub status: NTSTATUS,
}

/// A pended request that its owner does not take, and with which status it ends.
#[must_use]
pub struct NotTaken {
    pub pended: Pended,
    pub status: NTSTATUS,
}

impl NotTaken {
    pub const fn new(pended: Pended, status: NTSTATUS) -> Self {
        Self { pended, status }
    }

    /// No lock held.
    pub fn finish(self) {
        self.pended.finish(self.status);
    }
}

/// Completes the packet and frees the block.
///
/// # Safety
/// The block came from [`Pended::begin`], and no other context uses it any more.
unsafe fn complete(block: NonNull<PendedBlock>) {
    // SAFETY: `begin` made it as a box with this tag.
    let block = unsafe { PoolBox::from_raw(tags::ND_REQUEST, block) }.into_inner();
    let status = block.status.into_inner();
    refused::record(&block.request, status, RefusalWay::COMPLETION);
    block.request.complete(status, 0);
    // The owner goes after its request, perhaps for good.
    drop(block.owner);
}

/// The cancel routine of every pended request.
///
/// # Safety
/// The I/O manager passes an IRP that has this routine, and has taken the routine out of it.
unsafe extern "C" fn cancel(_device: *mut DEVICE_OBJECT, irp: *mut IRP) {
    // SAFETY: the packet is completed after this routine has passed (`finish`).
    let word: *mut c_void = unsafe { irp::cancel_entered(irp) };
    let Some(block) = NonNull::new(word.cast::<PendedBlock>()) else { return };
    // SAFETY: `begin` left the block there; it lives until both sides have passed.
    let place = unsafe { block.as_ref() };
    // SAFETY: as above, and this side passes after the owner has been asked.
    place.owner.cancelled(unsafe { CancelledRequest::new(block.cast()) });
    if place.passed.swap(true, Ordering::AcqRel) {
        // SAFETY: the end of the request has passed before and left the block to this routine.
        unsafe { complete(block) };
    }
}

/// Counts the lists that have been emptied as a whole, and those that have been made: no two have the same time.
static TIMES: AtomicU64 = AtomicU64::new(1);

/// The requests that pend on an object, oldest first. Under the object's lock.
pub struct PendingList {
    first: Option<NonNull<PendedBlock>>,
    last: Option<NonNull<PendedBlock>>,
    length: u32,
    /// What the blocks in it are marked with. It changes when all are taken together, so that none of them is found here afterwards.
    time: u64,
}

// SAFETY: the list owns its blocks as `Pended` values.
unsafe impl Send for PendingList {}

impl PendingList {
    /// An empty list.
    pub fn new() -> Self {
        Self { first: None, last: None, length: 0, time: TIMES.fetch_add(1, Ordering::Relaxed) }
    }

    /// Adds a request at the end. CANCELLED for one that is cancelled already, INSUFFICIENT_RESOURCES for one too many.
    pub fn push(&mut self, pended: Pended) -> Result<(), NotTaken> {
        if pended.is_cancelled() {
            return Err(NotTaken::new(pended, NOT_TAKEN));
        }
        if self.length >= PENDED_REQUESTS {
            return Err(NotTaken::new(pended, STATUS_INSUFFICIENT_RESOURCES));
        }
        self.add(pended);
        Ok(())
    }

    /// The links of a block of this list.
    #[expect(clippy::unused_self, reason = "the links are the list's: it is borrowed for as long as they are")]
    fn links(&mut self, block: NonNull<PendedBlock>) -> &mut Links {
        // SAFETY: a block of the list lives.
        let links = unsafe { block.as_ref() }.links.get();
        // SAFETY: its links are the list's, which is borrowed for as long.
        unsafe { &mut *links }
    }

    /// As [`Self::push`], whatever there is: for lists that only end their requests.
    pub fn add(&mut self, pended: Pended) {
        let block = pended.into_block();
        // SAFETY: it lives (`Pended`).
        unsafe { block.as_ref() }.listed.store(self.time, Ordering::Relaxed);
        *self.links(block) = Links { before: self.last, next: None };
        match self.last {
            Some(last) => self.links(last).next = Some(block),
            None => self.first = Some(block),
        }
        self.last = Some(block);
        self.length = self.length.saturating_add(1);
    }

    /// Takes a block of this list out.
    fn unlink(&mut self, block: NonNull<PendedBlock>) -> Pended {
        let Links { before, next } = core::mem::take(self.links(block));
        match before {
            Some(before) => self.links(before).next = next,
            None => self.first = next,
        }
        match next {
            Some(next) => self.links(next).before = before,
            None => self.last = before,
        }
        self.length = self.length.saturating_sub(1);
        // SAFETY: it lives; nothing else has it any more.
        unsafe { block.as_ref() }.listed.store(0, Ordering::Relaxed);
        Pended(block)
    }

    /// Takes the oldest.
    pub fn pop(&mut self) -> Option<Pended> {
        self.first.map(|first| self.unlink(first))
    }

    /// Takes the request whose cancellation the owner handles, if it is here.
    pub fn take_cancelled(&mut self, request: CancelledRequest) -> Option<Pended> {
        let block = request.block().cast::<PendedBlock>();
        // SAFETY: it lives until the owner has been asked (`CancelledRequest::new`).
        let listed = unsafe { block.as_ref() }.listed.load(Ordering::Relaxed);
        (listed == self.time).then(|| self.unlink(block))
    }

    /// Takes the oldest that `fits`, going through those before it: for short lists.
    pub fn take(&mut self, fits: impl Fn(&Pended) -> bool) -> Option<Pended> {
        let mut place = self.first;
        while let Some(block) = place {
            let pended = core::mem::ManuallyDrop::new(Pended(block));
            if fits(&pended) {
                return Some(self.unlink(block));
            }
            place = self.links(block).next;
        }
        None
    }

    /// Takes all.
    pub fn take_all(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }

    /// Takes those that came through a file, in their order, in one pass.
    pub fn take_of_file(&mut self, file: u64) -> Self {
        let mut taken = Self::new();
        let mut place = self.first;
        while let Some(block) = place {
            place = self.links(block).next;
            // SAFETY: a block of the list lives.
            if unsafe { block.as_ref() }.file == file {
                let pended = self.unlink(block);
                taken.add(pended);
            }
        }
        taken
    }

    /// Calls `act` with what each request is to its owner.
    pub fn each_kind(&mut self, mut act: impl FnMut(u64)) {
        let mut place = self.first;
        while let Some(block) = place {
            // SAFETY: a block of the list lives.
            act(unsafe { block.as_ref() }.kind);
            place = self.links(block).next;
        }
    }

    /// What the oldest is to its owner.
    pub fn first_kind(&self) -> Option<u64> {
        // SAFETY: a block of the list lives.
        self.first.map(|first| unsafe { first.as_ref() }.kind)
    }

    pub fn length(&self) -> u32 {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Finishes all, in their order. No lock held. At DISPATCH_LEVEL no more than [`COMPLETIONS_A_PASS`]; what is left is the mapper's.
    pub fn finish(mut self, status: NTSTATUS) {
        let mut left = if irql::at_dispatch() { COMPLETIONS_A_PASS } else { u32::MAX };
        while let Some(pended) = self.pop() {
            pended.finish(status);
            left = left.saturating_sub(1);
            if left == 0 {
                return self.leave(status);
            }
        }
    }

    /// Leaves what is left to the mapper's thread.
    fn leave(mut self, status: NTSTATUS) {
        let (Some(first), Some(engine)) = (self.first, Engine::get()) else {
            while let Some(pended) = self.pop() {
                pended.finish(status);
            }
            return;
        };
        // SAFETY: a block of the list lives.
        let place = unsafe { first.as_ref() }.rest.get();
        // SAFETY: the job of a request is used once, by the list that the request is the first of.
        unsafe { *place = Job::in_place(Some(Rest { list: self, status })) };
        let Some(job) = NonNull::new(place) else { return };
        // SAFETY: the job lies in a block of the list, which no other context ends; the list is taken out of it first.
        unsafe { engine.mapper.job_in_place(job) };
    }
}

impl Drop for PendingList {
    fn drop(&mut self) {
        while let Some(pended) = self.pop() {
            drop(pended);
        }
    }
}

/// The requests that a pass at DISPATCH_LEVEL has left.
struct Rest {
    list: PendingList,
    status: NTSTATUS,
}

impl Once for Rest {
    /// PASSIVE_LEVEL.
    fn run(self) {
        self.list.finish(self.status);
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

    /// The request, which a lease gets once, cancelled or not. It is to be published next, or the lease dropped.
    pub fn fill(&self, pended: Pended) {
        let mut slot = self.pended.lock();
        let second = if slot.is_some() { Some(pended) } else { slot.replace(pended) };
        drop(slot);
        if let Some(second) = second {
            debug_assert!(false, "a second request of a lease");
            second.finish(NOT_TAKEN);
        }
    }

    /// With which it is going to end: the first that is set.
    pub fn end_with(&self, status: NTSTATUS) {
        let _set = self.status.compare_exchange(0, status, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub fn is_of_request(&self, request: CancelledRequest) -> bool {
        self.pended.lock().as_ref().is_some_and(|pended| pended.is(request))
    }

    pub fn is_of_file(&self, file: u64) -> bool {
        self.pended.lock().as_ref().is_some_and(|pended| pended.file() == file)
    }

    /// As [`Pended::is_cancelled`], or ended already.
    pub fn is_cancelled(&self) -> bool {
        self.pended.lock().as_ref().is_none_or(Pended::is_cancelled)
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
    refused::record(&request, status, RefusalWay::COMPLETION);
    request.complete(status, information);
    pending
}

/// The status with which a request that its owner did not take ends.
pub const NOT_TAKEN: NTSTATUS = STATUS_CANCELLED;
