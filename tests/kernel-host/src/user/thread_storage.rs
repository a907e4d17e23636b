//! What a thread has of its own in a process: the slots of TlsAlloc, and a copy of each image's thread-local variables.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::process::ProcessState;
use crate::image::ThreadLocals;
use crate::memory::address_space::Protection;

/// Slots a process has.
pub(super) const SLOTS: usize = 1088;

/// Images with thread-local variables in a process, at most.
const MOST_IMAGES: usize = 64;

#[derive(Default)]
pub(super) struct ThreadStorage {
    slots: RefCell<Vec<usize>>,
    /// The array that the TEB points at, in the process's memory; 0 while no image needs one.
    array: Cell<usize>,
    copies: RefCell<Vec<usize>>,
}

impl ThreadStorage {
    pub fn slot(&self, index: usize) -> Option<usize> {
        (index < SLOTS).then(|| self.slots.borrow().get(index).copied().unwrap_or(0))
    }

    pub fn set_slot(&self, index: usize, value: usize) -> bool {
        if index >= SLOTS {
            return false;
        }
        let mut slots = self.slots.borrow_mut();
        if slots.len() <= index {
            slots.resize(index + 1, 0);
        }
        slots[index] = value;
        true
    }

    pub fn array(&self) -> usize {
        self.array.get()
    }

    /// Makes the thread's copy of an image's variables, the one with this number.
    pub fn add_copy(&self, process: &Arc<ProcessState>, number: usize, locals: &ThreadLocals) {
        let allocate = |bytes| process.memory.allocate(bytes, Protection::ReadWrite);
        if self.array.get() == 0 {
            self.array.set(allocate(MOST_IMAGES * size_of::<usize>()));
            self.copies.borrow_mut().push(self.array.get());
        }
        assert!(number < MOST_IMAGES, "a process with more than {MOST_IMAGES} images that have thread-local variables");
        let copy = allocate(locals.template.len() + locals.zeroes);
        self.copies.borrow_mut().push(copy);
        if let Some(template) = process.memory.read(locals.template.start, locals.template.len()) {
            process.memory.write(copy, &template);
        }
        process.memory.write(self.array.get() + number * size_of::<usize>(), &copy.to_le_bytes());
    }

    /// The thread ends.
    pub fn release(&self, process: &ProcessState) {
        for copy in self.copies.take() {
            process.memory.free(copy);
        }
        self.array.set(0);
    }
}
