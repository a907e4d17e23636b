//! Work that is done outside the stack of the code that asks for it.
//!
//! A [`Job`] is done once and used up; a [`Task`] stays where it is and is done again each time it is queued. Both contain their
//! place in a queue, so that queueing allocates nothing and cannot fail. There are two kinds of [`Queue`]: those of
//! [`Processors`], done at DISPATCH_LEVEL, and that of a [`Worker`], done one after the other by a thread at PASSIVE_LEVEL.
//!
//! No lock is held while work is done.

mod item;
mod processors;
mod worker;

pub use item::Queued;
pub use processors::Processors;
pub use worker::Worker;

use core::{ops::Deref, ptr::NonNull};

use crate::irql;
use crate::pool::{NoMemory, PoolBox, Tag};
use item::Item;

/// What takes work. Any IRQL up to DISPATCH_LEVEL, also with a lock held.
pub trait Queue {
    fn push(&self, work: Queued);

    /// Has a job done that has a block of its own.
    fn job<T: Once>(&self, job: PoolBox<Job<T>>) {
        let job = job.into_raw();
        // SAFETY: the block lives until the job frees it, which is when it is done.
        self.push(unsafe { Queued::new(job.cast()) });
    }

    /// Has a job done that lies in other memory.
    ///
    /// # Safety
    /// The job is queued nowhere, and valid until its value has been taken from it, which is before that is done.
    unsafe fn job_in_place<T: Once>(&self, job: NonNull<Job<T>>) {
        // SAFETY: the caller's promise; a job starts with its item.
        self.push(unsafe { Queued::new(job.cast()) });
    }

    /// Has a task done, unless it is queued already: then that time sees what the caller did before. Whether it was not.
    ///
    /// # Safety
    /// The task stays where it is until it has been done, or the queue has stopped.
    unsafe fn task<T: Repeated>(&self, task: &Task<T>) -> bool {
        // Others leave the task to the one that has claimed it, which must not be preempted before it is queued.
        irql::raised(|_| {
            let claimed = task.claim();
            if claimed {
                // SAFETY: claimed; otherwise the caller's promise; a task starts with its item.
                self.push(unsafe { Queued::new(NonNull::from(task).cast()) });
            }
            claimed
        })
    }
}

/// What a job does.
pub trait Once: Send {
    fn run(self);
}

impl<F: FnOnce() + Send> Once for F {
    fn run(self) {
        self();
    }
}

/// A value that does its work once, and the place in a queue for that.
#[repr(C)]
pub struct Job<T> {
    item: Item,
    value: Option<T>,
    /// The tag of the pool block that the job is alone in.
    block: Option<Tag>,
}

impl<T: Once> Job<T> {
    /// A job inside other memory, which the value may own; [`Queue::job_in_place`](Queue::job_in_place) has it done.
    pub const fn in_place(value: Option<T>) -> Self {
        Self { item: Item::new(Self::run), value, block: None }
    }

    /// A job for a block with this tag.
    pub const fn in_block(tag: Tag, value: T) -> Self {
        Self { item: Item::new(Self::run), value: Some(value), block: Some(tag) }
    }

    /// A job in a block of its own. `IRQL <= DISPATCH_LEVEL`.
    pub fn try_new(tag: Tag, value: T) -> Result<PoolBox<Self>, NoMemory> {
        PoolBox::try_new(tag, Self::in_block(tag, value))
    }

    /// # Safety
    /// The item is the head of a job of this type, and in no queue any more.
    unsafe fn run(item: NonNull<Item>) -> Next {
        let job = item.cast::<Self>();
        // SAFETY: as above; only the queue had a pointer to it.
        let place = unsafe { &mut *job.as_ptr() };
        let (value, block) = (place.value.take(), place.block);
        // Before the work: that may free the memory which a job in place lies in.
        // SAFETY: the job came to the queue out of a box with this tag (`Queue::job`).
        drop(block.map(|tag| unsafe { PoolBox::from_raw(tag, job) }));
        if let Some(value) = value {
            value.run();
        }
        Next::Done
    }
}

/// What a task does.
pub trait Repeated: Sync + Sized {
    /// The task may be queued again meanwhile, by itself too. After [`Next::Done`] no queue that it is not in touches it.
    fn run(task: &Task<Self>) -> Next;
}

/// What a queue does with a task that has been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Done,
    /// Something is left: the task takes its place behind what is queued.
    Again,
}

/// A value that does its work each time it is queued, and the place in a queue for that.
#[repr(C)]
pub struct Task<T> {
    item: Item,
    value: T,
}

impl<T: Repeated> Task<T> {
    pub const fn new(value: T) -> Self {
        Self { item: Item::new(Self::run), value }
    }

    fn claim(&self) -> bool {
        self.item.claim()
    }

    /// # Safety
    /// The item is the head of a task of this type.
    unsafe fn run(item: NonNull<Item>) -> Next {
        // SAFETY: as above; queued tasks stay where they are (`Queue::task`).
        T::run(unsafe { item.cast::<Self>().as_ref() })
    }
}

impl<T> Deref for Task<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}
