//! The links of a queue: the head of every job and task, and a list of heads in the order in which they came.

use core::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, AtomicPtr, Ordering},
};

use super::Next;

/// Does what the item is the head of.
type WorkRoutine = unsafe fn(NonNull<Item>) -> Next;

/// The first field of a job or a task.
pub(super) struct Item {
    /// The next one in the queue, whose lock guards it.
    pub next: AtomicPtr<Item>,
    /// In a queue, or about to be.
    queued: AtomicBool,
    routine: WorkRoutine,
}

impl Item {
    pub const fn new(routine: WorkRoutine) -> Self {
        Self { next: AtomicPtr::new(ptr::null_mut()), queued: AtomicBool::new(false), routine }
    }

    /// Lets the caller queue the item; false when it is queued already. Both ways what the caller did before is seen by the work.
    pub fn claim(&self) -> bool {
        !self.queued.swap(true, Ordering::AcqRel)
    }
}

/// The item of a job or a task that is queued and has not been done.
pub struct Queued(NonNull<Item>);

// SAFETY: jobs and tasks are done on whatever processor comes to it (`Once`, `Repeated`).
unsafe impl Send for Queued {}

impl Queued {
    /// # Safety
    /// The item is in no queue and claimed by the caller only, the head of what its routine takes, and valid until that has been done.
    pub(super) unsafe fn new(item: NonNull<Item>) -> Self {
        Self(item)
    }

    pub(super) fn item(&self) -> &Item {
        // SAFETY: valid until it has been done (`new`).
        unsafe { self.0.as_ref() }
    }

    pub(super) fn as_ptr(&self) -> *mut Item {
        self.0.as_ptr()
    }

    /// Does the work. What has to be queued again comes back; otherwise it may have gone. No lock is held.
    pub(super) fn run(self) -> Option<Self> {
        let routine = self.item().routine;
        // Read and written in one: a claim that failed happens before the work.
        self.item().queued.swap(false, Ordering::AcqRel);
        // SAFETY: the routine of this item, which is in no queue (`new`).
        let next = unsafe { routine(self.0) };
        // A task that is not done stays (`Repeated::run`). It may have been queued meanwhile.
        (next == Next::Again && self.item().claim()).then_some(self)
    }
}

/// Work in the order in which it came.
pub(super) struct List {
    first: *mut Item,
    last: Option<Queued>,
    length: usize,
}

// SAFETY: the items belong to the list until they are taken, whichever processor does that.
unsafe impl Send for List {}

impl List {
    pub const fn new() -> Self {
        Self { first: ptr::null_mut(), last: None, length: 0 }
    }

    pub fn length(&self) -> usize {
        self.length
    }

    pub fn push(&mut self, work: Queued) {
        let item = work.as_ptr();
        match self.last.replace(work) {
            Some(last) => last.item().next.store(item, Ordering::Relaxed),
            None => self.first = item,
        }
        self.length = self.length.wrapping_add(1);
    }

    /// The oldest.
    pub fn pop(&mut self) -> Option<Queued> {
        // SAFETY: `push` took it, and it is in no other place.
        let work = unsafe { Queued::new(NonNull::new(self.first)?) };
        self.first = work.item().next.swap(ptr::null_mut(), Ordering::Relaxed);
        if self.first.is_null() {
            self.last = None;
        }
        self.length = self.length.wrapping_sub(1);
        Some(work)
    }
}
