//! How long one DPC may run. Windows ends a system whose DPC takes too long; a driver that comes near that has a loop without a
//! bound. It counts what a busy machine cannot add to: the processor time of the thread that runs the DPC, and the time of its
//! calls of `KeStallExecutionProcessor`. Kept when verifying only.
//!
//! A DPC that returns is judged when it does. One that does not is found by a thread that checks all processors from time to
//! time.
//!
//! In fast mode nothing is judged; where imports are counted times are kept for [`measure`].

use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::bugcheck::{BugCheck, bugcheck, bugcheck_with_stack};
use crate::image::stack_trace::StackFrame;
use crate::processor;
use crate::processor_time;
use crate::stretches::{PathTimes, Times};
use crate::thread::Thread;

/// Far more than a sound DPC needs, unoptimised, with guard pages and under the host's checks; far less than Windows' own
/// limit of 20 s in a system that is being debugged.
const BUDGET: Duration = Duration::from_secs(1);

/// Requests that a DPC may complete. What a program may have pending it may have pending in thousands, and each completion costs
/// microseconds: a driver that completes all that waits in one DPC has a loop that the program bounds.
const COMPLETIONS: u64 = 256;

/// The time after which a DPC counts as one that never returns. More than `deadlock` gives the holder of a lock, whose report
/// is better for a DPC that waits for one.
const ENDLESS: Duration = Duration::from_secs(6);

/// How often the processors are checked.
const EVERY: Duration = Duration::from_millis(200);

/// Checks at which an endless DPC may be in the host's code, where its stack cannot be taken, before it is reported without.
const PATIENCE: u32 = 10;

/// What a tool measures.
static TIMES: Times = Times::new();

/// From now on the times of DPCs are kept, by path, where imports are counted: each from its first instruction to its last.
pub fn measure() {
    TIMES.begin();
}

/// Those since [`measure`].
pub fn times() -> Vec<PathTimes> {
    TIMES.end()
}

/// The DPC that a processor runs.
pub(crate) struct Running {
    /// Odd while one runs.
    turn: AtomicU64,
    /// What its thread had used before, in nanoseconds.
    began: AtomicU64,
    /// Its stalls, in microseconds.
    stalled: AtomicU64,
    /// Requests it has completed.
    completed: AtomicU64,
    /// The thread's clock, and its number for signals.
    clock: AtomicI32,
    task: AtomicI32,
    routine: AtomicUsize,
}

impl Running {
    pub(crate) const fn new() -> Self {
        Self {
            turn: AtomicU64::new(0),
            began: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            clock: AtomicI32::new(0),
            task: AtomicI32::new(0),
            routine: AtomicUsize::new(0),
        }
    }

    pub(crate) fn stall(&self, microseconds: u32) {
        self.stalled.fetch_add(u64::from(microseconds), Ordering::Relaxed);
    }

    /// A thread completes a request.
    pub(crate) fn complete_request(&self, thread: &Thread) {
        let runs = !self.turn.load(Ordering::Acquire).is_multiple_of(2);
        if !runs || self.task.load(Ordering::Relaxed) != thread.task {
            return;
        }
        if self.completed.fetch_add(1, Ordering::Relaxed) >= COMPLETIONS {
            let had = self.use_at(processor_time::mine());
            let rule =
                had.rule(&format!(" and has completed {COMPLETIONS} requests before this one, as many as it may"));
            bugcheck(BugCheck::DPC_WATCHDOG_VIOLATION, had.parameters(), rule);
        }
    }

    /// The routine of the DPC that runs now.
    pub(crate) fn routine(&self) -> Option<usize> {
        let runs = !self.turn.load(Ordering::Acquire).is_multiple_of(2);
        runs.then(|| self.routine.load(Ordering::Relaxed))
    }

    /// What the DPC has used when its thread has used so much.
    fn use_at(&self, used: Duration) -> Use {
        Use {
            worked: used.saturating_sub(Duration::from_nanos(self.began.load(Ordering::Relaxed))),
            stalled: Duration::from_micros(self.stalled.load(Ordering::Relaxed)),
            routine: self.routine.load(Ordering::Relaxed),
        }
    }

    /// The DPC that runs and has had too much, seen from any thread.
    fn endless(&self) -> Option<Use> {
        let turn = self.turn.load(Ordering::Acquire);
        if turn.is_multiple_of(2) {
            return None;
        }
        let had = self.use_at(processor_time::of(self.clock.load(Ordering::Relaxed))?);
        // If another one has begun meanwhile, the time belongs to neither.
        (self.turn.load(Ordering::Acquire) == turn && had.time() > ENDLESS).then_some(had)
    }
}

/// What a DPC has had.
struct Use {
    worked: Duration,
    stalled: Duration,
    routine: usize,
}

/// Before a DPC runs; whether its time is kept.
pub(crate) fn begin(running: &Running, thread: &Thread, routine: usize) -> bool {
    if TIMES.is_measured() {
        // As a return address: behind the first byte.
        thread.stretch.begin(routine as u64 + 1);
    }
    if !crate::kernel::is_verifying() {
        return false;
    }
    running.stalled.store(0, Ordering::Relaxed);
    running.completed.store(0, Ordering::Relaxed);
    running.clock.store(thread.clock, Ordering::Relaxed);
    running.task.store(thread.task, Ordering::Relaxed);
    running.routine.store(routine, Ordering::Relaxed);
    running.began.store(processor_time::mine().as_nanos() as u64, Ordering::Relaxed);
    running.turn.fetch_add(1, Ordering::Release);
    true
}

/// After it returned.
pub(crate) fn end(running: &Running, thread: &Thread, kept: bool) {
    if thread.stretch.is_open() {
        thread.stretch.end(&TIMES, 0);
    }
    if !kept {
        return;
    }
    running.turn.fetch_add(1, Ordering::Release);
    let had = running.use_at(processor_time::mine());
    if had.time() > BUDGET {
        bugcheck(BugCheck::DPC_WATCHDOG_VIOLATION, had.parameters(), had.rule(""));
    }
}

/// Starts the thread that looks for DPCs that do not return.
pub(crate) fn start() {
    if crate::kernel::is_verifying() {
        let started = std::thread::Builder::new().name("budget".to_owned()).spawn(watch);
        assert!(started.is_ok(), "cannot start the thread that looks at DPCs");
    }
}

fn watch() {
    let mut looks = [0; processor::MAXIMUM_PROCESSORS];
    loop {
        std::thread::sleep(EVERY);
        for (index, looks) in looks.iter_mut().enumerate().take(processor::count()) {
            let running = &processor::get(index).running;
            match running.endless() {
                None => *looks = 0,
                Some(had) if *looks == PATIENCE => had.report(&[]),
                Some(_) => {
                    *looks += 1;
                    crate::fault_handler::interrupt(running.task.load(Ordering::Relaxed));
                }
            }
        }
    }
}

/// The thread was interrupted in the code of an image. Reports the DPC that it runs, if that is endless.
pub(crate) fn interrupted(thread: &Thread, frames: impl FnOnce() -> Vec<StackFrame>) {
    let running = &processor::get(thread.processor()).running;
    if running.task.load(Ordering::Relaxed) == thread.task
        && let Some(had) = running.endless()
    {
        had.report(&frames());
    }
}

impl Use {
    fn time(&self) -> Duration {
        self.worked.max(self.stalled)
    }

    fn parameters(&self) -> [u64; 4] {
        [0, self.time().as_millis() as u64, BUDGET.as_millis() as u64, self.routine as u64]
    }

    fn rule(&self, end: &str) -> String {
        let name = crate::image::stack_trace::name(&[self.routine as u64 + 1]);
        let name = name.first().map_or_else(String::new, ToString::to_string);
        format!(
            "the DPC {name} worked for {} ms and stalled for {} ms{end}; a DPC has {} ms at the most",
            self.worked.as_millis(),
            self.stalled.as_millis(),
            BUDGET.as_millis()
        )
    }

    #[cold]
    fn report(&self, frames: &[StackFrame]) -> ! {
        let rule = self.rule(" and has not returned");
        bugcheck_with_stack(BugCheck::DPC_WATCHDOG_VIOLATION, self.parameters(), &rule, frames)
    }
}
