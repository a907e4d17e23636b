//! A queue at PASSIVE_LEVEL, and the thread that does what is in it, in the order in which it came.

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use wdk_sys::NTSTATUS;

use super::{Queue, Queued, item::List};
use crate::{
    clock::Clock,
    event::Event,
    pool::{NoMemory, Tag},
    spin_lock::SpinLock,
    thread::{self, Thread},
};

/// Nanoseconds that the thread works without rest before it sleeps for a tick.
const STRETCH: u64 = 5_000_000;

pub struct Worker {
    waiting: SpinLock<List>,
    wake: Event,
    stopping: AtomicBool,
    thread: SpinLock<Option<Thread>>,
    clock: Clock,
}

impl Worker {
    /// PASSIVE_LEVEL.
    pub fn try_new(tag: Tag) -> Result<Self, NoMemory> {
        Ok(Self {
            waiting: SpinLock::new(List::new()),
            wake: Event::try_synchronization(tag, false)?,
            stopping: AtomicBool::new(false),
            thread: SpinLock::new(None),
            clock: Clock::new(),
        })
    }

    /// Starts the thread, which is preferred to those that poll for its work. PASSIVE_LEVEL. What exists once per loaded driver
    /// is stopped before it goes.
    pub fn start(&'static self) -> Result<(), NTSTATUS> {
        let context = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: `run` takes the worker's address, which is good until `stop` has joined the thread.
        let thread = unsafe { Thread::start(run, context) }?;
        thread.prefer();
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Waits for the thread, which first does what is queued. PASSIVE_LEVEL, when no other context queues anything.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake.set();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }

    /// Does everything that is queued, and what is queued meanwhile.
    fn work(&self) {
        let mut since = self.clock.now();
        loop {
            let Some(work) = self.waiting.lock().pop() else { return };
            if self.clock.now().saturating_sub(since) > STRETCH {
                thread::pause();
                since = self.clock.now();
            }
            if let Some(again) = work.run() {
                self.waiting.lock().push(again);
            }
        }
    }
}

impl Queue for Worker {
    fn push(&self, work: Queued) {
        self.waiting.lock().push(work);
        self.wake.set();
    }
}

unsafe extern "C" fn run(context: *mut c_void) {
    // SAFETY: `Worker::start` gave the worker, which outlives its thread.
    if let Some(worker) = unsafe { context.cast::<Worker>().as_ref() } {
        loop {
            worker.wake.wait();
            let stopping = worker.stopping.load(Ordering::Acquire);
            worker.work();
            if stopping {
                break;
            }
        }
    }
    thread::exit();
}
