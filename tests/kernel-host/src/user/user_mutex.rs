//! Mutexes of programs: one thread owns it, as often as it has waited for it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::dispatcher::Event;
use crate::thread::Thread;

pub(super) struct UserMutex {
    /// Signalled while it has no owner.
    pub free: Event,
    owner: AtomicU64,
    depth: AtomicU32,
}

impl UserMutex {
    pub fn new(owned: bool) -> Self {
        let mutex = Self { free: Event::synchronization(), owner: AtomicU64::new(0), depth: AtomicU32::new(0) };
        if owned {
            mutex.taken();
        } else {
            mutex.free.set();
        }
        mutex
    }

    fn is_mine(&self) -> bool {
        self.owner.load(Ordering::SeqCst) == Thread::current().identifier()
    }

    /// Takes it once more, if it is the thread's.
    pub fn take_again(&self) -> bool {
        let mine = self.is_mine();
        if mine {
            self.depth.fetch_add(1, Ordering::SeqCst);
        }
        mine
    }

    /// A wait for `free` was satisfied.
    pub fn taken(&self) {
        self.owner.store(Thread::current().identifier(), Ordering::SeqCst);
        self.depth.store(1, Ordering::SeqCst);
    }

    /// `ReleaseMutex`; false when it is not the thread's.
    pub fn release(&self) -> bool {
        if !self.is_mine() {
            return false;
        }
        if self.depth.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.owner.store(0, Ordering::SeqCst);
            self.free.set();
        }
        true
    }
}
