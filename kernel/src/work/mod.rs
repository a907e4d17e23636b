//! Work that is done outside the stack of the code that asks for it.
//!
//! A [`Job`] is done once and used up; a [`Task`] stays where it is and is done again each time it is queued. Both contain their
//! place in a queue, so that queueing allocates nothing and cannot fail. There are two kinds of [`Queue`]: those of
//! [`Processors`], done at DISPATCH_LEVEL, and that of a [`Worker`], done one after the other by a thread at PASSIVE_LEVEL.
//!
//! No lock is held while work is done.

mod item;
mod job;
mod list;
mod processors;
mod task;
mod worker;

pub use item::Queued;
pub use job::{Job, Once};
pub use processors::Processors;
pub use task::{Next, Repeated, Task};
pub use worker::Worker;

use core::ptr::NonNull;

use crate::{irql, pool::PoolBox};

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
