//! Threads for requests that take their time.
//!
//! A request that pends goes to a queue; a thread takes it, does it at PASSIVE_LEVEL and completes it. Threads are started when
//! all others are busy, up to a limit, and live until the driver is unloaded.

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use crate::{
    driver::Driver,
    kernel::{
        event::Event,
        pool::{OutOfMemory, PoolBox},
        spin_lock::SpinLock,
        thread::{self, Thread},
    },
    session::request::PendingRequest,
};

/// Requests done at the same time; more wait.
const THREAD_MAX: usize = 32;

/// A request in the queue.
pub struct Job {
    request: PendingRequest,
    next: Option<PoolBox<Job>>,
}

impl Job {
    pub fn new(request: PendingRequest) -> Self {
        Self { request, next: None }
    }
}

pub struct Workers {
    state: SpinLock<State>,
    wake: Event,
    stopping: AtomicBool,
    /// Requests that have or wait for a thread. Counted up under the lock of the state.
    busy: AtomicU32,
}

struct State {
    newest: Option<PoolBox<Job>>,
    threads: [Option<Thread>; THREAD_MAX],
    started: usize,
    /// Threads on their way: a start may fail, so nobody relies on them yet.
    starting: usize,
}

impl Workers {
    pub fn try_new() -> Result<Self, OutOfMemory> {
        let state = State { newest: None, threads: [const { None }; THREAD_MAX], started: 0, starting: 0 };
        Ok(Self {
            state: SpinLock::new(state),
            wake: Event::try_synchronization(false)?,
            stopping: AtomicBool::new(false),
            busy: AtomicU32::new(0),
        })
    }

    /// Makes sure that there is a thread for one more request, and counts the request: `queue` or `give_back` follows.
    /// PASSIVE_LEVEL. False: there is none and none can be made.
    pub fn prepare(&self) -> bool {
        {
            let mut state = self.state.lock();
            let free = (self.busy.load(Ordering::Relaxed) as usize) < state.started;
            let full = state.started + state.starting == THREAD_MAX;
            if full && state.started == 0 {
                // All are being started, and each start may still fail.
                return false;
            }
            // Counted at once: of two requests that come together only one gets the thread that is free.
            self.busy.fetch_add(1, Ordering::Relaxed);
            if free || full {
                return true;
            }
            state.starting += 1;
        }
        // SAFETY: `run` uses the driver state only; `stop` joins the thread before that goes.
        let thread = unsafe { Thread::start(run, ptr::null_mut()) };
        let mut state = self.state.lock();
        state.starting -= 1;
        let Ok(thread) = thread else {
            let others = state.started != 0;
            if !others {
                self.give_back();
            }
            return others;
        };
        // There is a slot: no more threads are started than there are slots. Which one matters to nobody.
        if let Some(slot) = state.threads.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(thread);
        }
        state.started += 1;
        true
    }

    /// A request that `prepare` counted is not queued.
    pub fn give_back(&self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    /// Queues a request that `prepare` counted. `IRQL <= DISPATCH_LEVEL`.
    pub fn queue(&self, mut job: PoolBox<Job>) {
        {
            let mut state = self.state.lock();
            job.next = state.newest.take();
            state.newest = Some(job);
        }
        self.wake.set();
    }

    /// The oldest request, and whether more wait behind it.
    fn take(&self) -> Option<(PoolBox<Job>, bool)> {
        let mut state = self.state.lock();
        let mut waiting = state.newest.take();
        // The list is short: as long as there are requests that nobody has begun.
        let mut newer: Option<PoolBox<Job>> = None;
        let mut oldest = None;
        while let Some(mut job) = waiting {
            waiting = job.next.take();
            if waiting.is_none() {
                oldest = Some(job);
            } else {
                job.next = newer;
                newer = Some(job);
            }
        }
        // `newer` is oldest first now; turn it round again.
        let more = newer.is_some();
        while let Some(mut job) = newer {
            newer = job.next.take();
            job.next = state.newest.take();
            state.newest = Some(job);
        }
        oldest.map(|job| (job, more))
    }

    fn work(&self) {
        while let Some((job, more)) = self.take() {
            if more {
                // Another thread may take the next one.
                self.wake.set();
            }
            job.into_inner().request.run();
            self.give_back();
        }
    }

    /// PASSIVE_LEVEL, when no request is left.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        for index in 0..THREAD_MAX {
            let thread = self.state.lock().threads.get_mut(index).and_then(Option::take);
            if let Some(thread) = thread {
                // Each thread that leaves wakes the next one.
                self.wake.set();
                thread.join();
            }
        }
    }
}

unsafe extern "C" fn run(_context: *mut c_void) {
    if let Some(driver) = Driver::get() {
        let workers = &driver.workers;
        while !workers.stopping.load(Ordering::Acquire) {
            workers.wake.wait();
            workers.work();
        }
        workers.wake.set();
    }
    thread::exit();
}
