//! The thread that changes rings while the driver takes entries out of them. It is none of the kernel's, so it never waits for one.
//!
//! Much of its work is to write one field to and fro between two values, which is what finds a field that is read twice.

use super::mutation::Target;
use fastrand::Rng;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Changes between two looks whether the memory is still there.
const BURST: u64 = 32;

#[derive(Default)]
struct Shared {
    work: Mutex<Option<Work>>,
    done: AtomicU64,
    stop: AtomicBool,
}

struct Work {
    targets: Vec<Target>,
    random: Rng,
    /// Not only to and fro.
    wild: bool,
    /// Changes that are still to be made.
    left: u64,
}

pub struct Flipper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Flipper {
    pub fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            while !theirs.stop.load(Ordering::Relaxed) {
                if !theirs.burst() {
                    std::thread::yield_now();
                }
            }
        });
        Self { shared, thread: Some(thread) }
    }

    pub fn mutations(&self) -> u64 {
        self.shared.done.load(Ordering::Relaxed)
    }

    /// Changes these from now on, so many times.
    pub fn begin(&self, targets: Vec<Target>, wild: bool, seed: u64, changes: u64) {
        *self.work() = Some(Work { targets, random: Rng::with_seed(seed), wild, left: changes });
    }

    /// Leaves them alone: their memory may go.
    pub fn end(&self) {
        *self.work() = None;
    }

    fn work(&self) -> std::sync::MutexGuard<'_, Option<Work>> {
        self.shared.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Flipper {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

impl Shared {
    /// Some changes; `false` when there is nothing to change.
    fn burst(&self) -> bool {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(work) = work.as_mut().filter(|work| work.left != 0) else { return false };
        let target = &work.targets[work.random.usize(..work.targets.len())];
        if !work.wild || work.random.bool() {
            let new = target.choose(&mut work.random);
            // SAFETY: the memory is mapped as long as there is work (`Flipper::end`).
            let old = unsafe { target.before(new) };
            for index in 0..BURST {
                // SAFETY: as above.
                unsafe { target.apply(if index % 2 == 0 { new } else { old }) };
            }
        } else {
            for _ in 0..BURST {
                let change = target.choose(&mut work.random);
                // SAFETY: as above.
                unsafe { target.apply(change) };
            }
        }
        work.left = work.left.saturating_sub(BURST);
        self.done.fetch_add(BURST, Ordering::Relaxed);
        true
    }
}
