//! Work in the order in which it came.

use core::{
    ptr::{self, NonNull},
    sync::atomic::Ordering,
};

use super::{Queued, item::Item};

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
