//! System worker threads: they run queued routines one after the other at PASSIVE. NDIS and I/O work items are built on
//! this queue. There are a few threads, as on Windows, so a routine that blocks for ever holds one.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::dispatcher::Event;
use crate::thread;

struct Routine {
    run: Box<dyn FnOnce() + Send>,
    /// A driver has asked for it, and has to wait for it before it goes.
    is_drivers: bool,
}

#[derive(Default)]
struct WorkQueue {
    routines: VecDeque<Routine>,
    /// Those of drivers, queued or running.
    drivers: usize,
    stopping: bool,
}

static QUEUE: Mutex<Option<WorkQueue>> = Mutex::new(None);
static READY: OnceLock<Event> = OnceLock::new();
static THREADS: Mutex<Vec<thread::JoinHandle<()>>> = Mutex::new(Vec::new());

/// How many worker threads there are.
pub const WORKERS: usize = 4;

fn with_queue<T>(body: impl FnOnce(&mut WorkQueue) -> T) -> T {
    let mut queue: MutexGuard<'_, Option<WorkQueue>> = QUEUE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    body(queue.get_or_insert_with(WorkQueue::default))
}

fn ready() -> &'static Event {
    READY.get_or_init(Event::synchronization)
}

pub(crate) fn start() {
    let mut threads = THREADS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for index in 0..WORKERS {
        threads.push(thread::spawn(&format!("worker {index}"), worker_loop));
    }
}

/// A fault of the host itself: what the routine was to do never happens, and would look like a fault of the driver.
struct EndsProcess;

impl Drop for EndsProcess {
    fn drop(&mut self) {
        eprintln!("a routine of the kernel host has panicked on a worker thread");
        std::process::abort();
    }
}

fn worker_loop() {
    loop {
        let (routine, more, stopping) = with_queue(|queue| {
            let routine = queue.routines.pop_front();
            (routine, !queue.routines.is_empty(), queue.stopping)
        });
        if more || (stopping && routine.is_none()) {
            ready().set();
        }
        match routine {
            Some(routine) => {
                let Routine { run, is_drivers } = routine;
                let ends_process = EndsProcess;
                run();
                std::mem::forget(ends_process);
                with_queue(|queue| queue.drivers -= usize::from(is_drivers));
            }
            None if stopping => return,
            None => {
                ready().wait(None);
            }
        }
    }
}

/// Queues a routine of a driver; any level up to DISPATCH.
pub fn queue(routine: impl FnOnce() + Send + 'static) {
    push(Routine { run: Box::new(routine), is_drivers: true });
}

/// Queues a routine of the system's own, which may be left when everything of a driver has gone.
pub(crate) fn queue_own(routine: impl FnOnce() + Send + 'static) {
    push(Routine { run: Box::new(routine), is_drivers: false });
}

fn push(routine: Routine) {
    with_queue(|queue| {
        queue.drivers += usize::from(routine.is_drivers);
        queue.routines.push_back(routine);
    });
    ready().set();
}

/// Routines of drivers that are queued or running.
pub fn outstanding() -> usize {
    with_queue(|queue| queue.drivers)
}

pub(crate) fn stop() {
    with_queue(|queue| queue.stopping = true);
    ready().set();
    let threads: Vec<_> = THREADS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).drain(..).collect();
    threads.into_iter().for_each(thread::JoinHandle::join);
}
