//! Queues at DISPATCH_LEVEL, two for each processor: the DPCs that do what is in them, and the threads that take over.
//!
//! Tasks come again and again, jobs do not: each have a queue and a DPC of their own, so that a processor that has much to do does
//! not leave the jobs that come to it to a thread, which may run on any other.
//!
//! A DPC that queues itself runs again before every thread of its processor. So it does that [`ROUNDS`] times in a row and then
//! leaves the queue to a thread, which keeps it until nothing is left: it works at DISPATCH_LEVEL, too, because what is done there
//! must not be preempted, and is an ordinary thread at PASSIVE_LEVEL between two rounds. One context at a time does the work of a
//! queue. What is queued meanwhile is left to it: a DPC queued from inside itself would run again at once.

use core::{ffi::c_void, ptr::NonNull};

use wdk_sys::{KDPC, NTSTATUS};

use super::{Next, Queue, Queued, Repeated, Task, Worker, item::List};
use crate::{
    dpc::Dpc,
    irql,
    pool::{NoMemory, PoolArray, PoolBox, PoolSpace, Tag},
    spin_lock::SpinLock,
};

/// Items done in one round.
const ROUND: usize = 16;
/// Times that a DPC queues itself again before the thread takes over.
const ROUNDS: u32 = 2;
/// Threads for all processors together.
const THREAD_MAX: usize = 16;

/// The queues of all processors.
pub struct Processors {
    tasks: PoolArray<PoolBox<Task<ProcessorQueue>>>,
    jobs: PoolArray<PoolBox<Task<ProcessorQueue>>>,
    /// After the queues, which have pointers to them.
    workers: PoolArray<Worker>,
}

impl Processors {
    /// DPCs and queues, nothing running yet. PASSIVE_LEVEL.
    pub fn try_new(tag: Tag) -> Result<Self, NoMemory> {
        let processors = irql::processor_count().max(1) as usize;
        let workers = PoolArray::try_from_fn(tag, processors.min(THREAD_MAX), |_| Worker::try_new(tag))?;
        let queues = |extent| {
            PoolArray::try_from_fn(tag, processors, |processor| {
                let index = processor.checked_rem(workers.len()).unwrap_or(0);
                ProcessorQueue::try_new(tag, processor as u32, extent, workers.get(index).ok_or(NoMemory)?)
            })
        };
        Ok(Self { tasks: queues(Extent::Present)?, jobs: queues(Extent::Coming)?, workers })
    }

    /// How many there are, at least one.
    pub fn count(&self) -> u32 {
        self.tasks.len() as u32
    }

    /// Starts the threads. PASSIVE_LEVEL.
    pub fn start(&'static self) -> Result<(), NTSTATUS> {
        self.workers.iter().try_for_each(Worker::start)
    }

    /// Waits until nothing runs any more; what is queued is not done. PASSIVE_LEVEL, when no other context queues anything.
    pub fn stop(&self) {
        self.tasks.iter().chain(self.jobs.iter()).for_each(|queue| queue.stop());
        self.workers.iter().for_each(Worker::stop);
    }

    /// The queue for tasks of a processor; of another one for a processor that came later.
    pub fn tasks(&self, processor: u32) -> Option<&impl Queue> {
        at(&self.tasks, processor)
    }

    /// As [`Processors::tasks`], for jobs.
    pub fn jobs(&self, processor: u32) -> Option<&impl Queue> {
        at(&self.jobs, processor)
    }
}

fn at(queues: &[PoolBox<Task<ProcessorQueue>>], processor: u32) -> Option<&ProcessorQueue> {
    let index = (processor as usize).checked_rem(queues.len())?;
    queues.get(index).map(|queue| &***queue)
}

/// What one round does.
#[derive(Clone, Copy)]
enum Extent {
    /// What is queued when it begins: a task that comes again waits for the next one.
    Present,
    /// What comes meanwhile, too.
    Coming,
}

/// A queue of one processor. As a task it is what its thread does.
struct ProcessorQueue {
    dpc: Dpc,
    extent: Extent,
    state: SpinLock<QueueState>,
    worker: NonNull<Worker>,
}

// SAFETY: the worker is shared by all queues of its processors.
unsafe impl Send for ProcessorQueue {}
// SAFETY: as above; the rest guards itself.
unsafe impl Sync for ProcessorQueue {}

struct QueueState {
    waiting: List,
    runner: Runner,
    /// Runs of the DPC in a row that left something.
    rounds: u32,
}

/// What does the work of a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runner {
    /// Nothing is queued.
    Idle,
    /// The DPC, which is queued or running.
    Dpc,
    Thread,
    /// Nothing ever again.
    Stopped,
}

impl ProcessorQueue {
    fn try_new(tag: Tag, processor: u32, extent: Extent, worker: &Worker) -> Result<PoolBox<Task<Self>>, NoMemory> {
        let space = PoolSpace::<Task<Self>>::try_new(tag)?;
        // SAFETY: the routine takes the address of the queue; `stop` stops the DPC before that goes.
        let dpc = unsafe { Dpc::try_new(tag, run_dpc, space.as_ptr().cast()) }?;
        dpc.target(processor);
        let state = QueueState { waiting: List::new(), runner: Runner::Idle, rounds: 0 };
        Ok(space.fill(Task::new(Self { dpc, extent, state: SpinLock::new(state), worker: NonNull::from(worker) })))
    }

    fn stop(&self) {
        self.state.lock().runner = Runner::Stopped;
        self.dpc.stop();
    }

    /// DISPATCH_LEVEL, one context at a time.
    fn round(&self) {
        let (mut next, mut left) = {
            let mut state = self.state.lock();
            let count = match self.extent {
                Extent::Present => state.waiting.length().min(ROUND),
                Extent::Coming => ROUND,
            };
            (state.waiting.pop(), count)
        };
        while let Some(work) = next {
            let again = work.run();
            left = left.saturating_sub(1);
            if again.is_none() && left == 0 {
                return;
            }
            let mut state = self.state.lock();
            if let Some(again) = again {
                state.waiting.push(again);
            }
            next = if left == 0 { None } else { state.waiting.pop() };
        }
    }

    /// A run of the DPC has ended: true when the thread takes over.
    fn end_run(&self) -> bool {
        let mut state = self.state.lock();
        let left = state.waiting.length() != 0;
        if state.runner != Runner::Dpc {
            return false;
        }
        if left && state.rounds < ROUNDS {
            state.rounds += 1;
            self.dpc.queue();
            return false;
        }
        state.rounds = 0;
        state.runner = if left { Runner::Thread } else { Runner::Idle };
        left
    }
}

impl Queue for ProcessorQueue {
    fn push(&self, work: Queued) {
        let mut state = self.state.lock();
        state.waiting.push(work);
        if state.runner == Runner::Idle {
            state.runner = Runner::Dpc;
            self.dpc.queue();
        }
    }
}

impl Repeated for ProcessorQueue {
    /// The thread's part.
    fn run(task: &Task<Self>) -> Next {
        irql::raised(|_| task.round());
        let mut state = task.state.lock();
        if state.runner == Runner::Thread {
            if state.waiting.length() != 0 {
                return Next::Again;
            }
            state.runner = Runner::Idle;
        }
        Next::Done
    }
}

unsafe extern "C" fn run_dpc(_dpc: *mut KDPC, context: *mut c_void, _argument1: *mut c_void, _argument2: *mut c_void) {
    // SAFETY: the DPC's context is the queue, which outlives the DPC.
    let Some(queue) = (unsafe { context.cast::<Task<ProcessorQueue>>().as_ref() }) else { return };
    queue.round();
    if queue.end_run() {
        // SAFETY: the workers go after the queues have stopped.
        let worker = unsafe { queue.worker.as_ref() };
        // SAFETY: the queue stays until its worker has stopped.
        unsafe { worker.task(queue) };
    }
}
