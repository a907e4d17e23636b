//! Work that is done once.

use core::ptr::NonNull;

use super::{Next, item::Item};
use crate::pool::{NoMemory, PoolBox, Tag};

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
    /// A job inside other memory, which the value may own; [`Queue::job_in_place`](super::Queue::job_in_place) has it done.
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
