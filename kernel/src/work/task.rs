//! Work that comes up again and again.

use core::{ops::Deref, ptr::NonNull};

use super::item::Item;

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

    pub(super) fn claim(&self) -> bool {
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
