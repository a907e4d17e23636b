//! Service passes of the engine: the contexts that run them, and the callbacks they make.
//!
//! Each processor's passes are a task in its queue of work: at DISPATCH_LEVEL, because what a pass holds must not be preempted and
//! consumers get their callbacks at one level. A pass has a budget; when more is left the task is queued again, behind what else
//! waits there.
//!
//! A timer a processor wakes the one whose next deadline has passed: the engine sets one deadline at a time.
//!
//! Callbacks of consumers are made here, by the records of `deferred.rs`, by the mapper's thread and by `completion.rs`,
//! which they all go through for the end of a close; always with no lock held and never under a dispatch function.

use core::{ffi::c_void, ptr};

use softndk_engine::{
    Budget, CloseCompletion, ConnectEvent, DisconnectEvent, Notification, Pass, Platform, RequestCompletion, Retired,
    Sink,
};
use softndk_ioctl::RefusalWay;
use softndk_kernel::{
    pool::{NoMemory, PoolArray},
    spin_lock::SpinLock,
    timer::Timer,
    work::{Next, Processors, Queue, Repeated, Task},
};
use wdk_sys::{NTSTATUS, STATUS_SUCCESS};

use crate::{
    runtime::{
        completion,
        engine::Engine,
        errors,
        platform::{ConnectCallback, ConsumerRequest, KernelPlatform, RequestCallback},
        refusal::refuse_by,
        status,
    },
    tags,
};

/// What one pass may do: some tens of microseconds.
const BUDGET: Budget = Budget { bytes: 256 << 10, items: 64 };
/// No deadline.
const NEVER: u64 = u64::MAX;

/// The services of all processors.
pub struct ProcessorServices {
    each: PoolArray<Task<ProcessorService>>,
    /// Where the passes run, and whatever else has to leave its caller's stack.
    pub processors: Processors,
}

/// The service of one processor.
struct ProcessorService {
    processor: u32,
    /// Runs at the engine's next deadline.
    timer: Timer,
    /// That deadline; [`NEVER`] when there is none. The timer is set under the lock, so that it has the newest deadline.
    wake: SpinLock<u64>,
}

impl ProcessorServices {
    /// Nothing running yet. PASSIVE_LEVEL.
    pub fn try_new() -> Result<Self, NoMemory> {
        let processors = Processors::try_new(tags::WORK)?;
        let each = PoolArray::try_from_fn(tags::SERVICE, processors.count() as usize, ProcessorService::try_new)?;
        Ok(Self { each, processors })
    }

    /// Starts the threads. PASSIVE_LEVEL, once the driver state is reachable.
    pub fn start(&'static self) -> Result<(), NTSTATUS> {
        self.processors.start()
    }

    /// Waits until nothing runs any more. PASSIVE_LEVEL, when no pass is scheduled any more.
    pub fn stop(&self) {
        for service in self.each.iter() {
            service.stop();
        }
        self.processors.stop();
    }

    /// Makes sure that a pass runs soon. Any IRQL up to DISPATCH_LEVEL, also with a lock held.
    pub fn schedule(&self, processor: u32) {
        if let (Some(service), Some(queue)) = (self.service(processor), self.processors.tasks(processor)) {
            // SAFETY: the services stay in their block until the queues have stopped.
            unsafe { queue.task(service) };
        }
    }

    /// Makes sure that a pass runs at a deadline of the performance counter's clock. Up to DISPATCH_LEVEL, also with a lock
    /// held.
    pub fn wake_at(&self, processor: u32, deadline: u64, now: u64) {
        if let Some(service) = self.service(processor) {
            let mut due = service.wake.lock();
            *due = deadline;
            service.timer.set(deadline.saturating_sub(now));
        }
    }

    fn service(&self, processor: u32) -> Option<&Task<ProcessorService>> {
        let index = (processor as usize).checked_rem(self.each.len())?;
        self.each.get(index)
    }
}

impl ProcessorService {
    fn try_new(processor: usize) -> Result<Task<Self>, NoMemory> {
        let (context, processor) = (ptr::without_provenance_mut(processor), processor as u32);
        // SAFETY: `run_timer` takes a number; `ProcessorServices::stop` stops the timer before the driver state goes.
        let timer = unsafe { Timer::try_new(tags::DPC, run_timer, context, processor) }?;
        Ok(Task::new(Self { processor, timer, wake: SpinLock::new(NEVER) }))
    }

    fn stop(&self) {
        // So that the timer's own DPC does not set it for the rest of a deadline. A pass does not: it asks to be woken for the
        // deadlines of objects, and there is no object any more.
        *self.wake.lock() = NEVER;
        self.timer.stop();
    }

    /// The timer has run: true when its deadline has passed, else it is set for the rest. The system's clock has coarser steps
    /// than the performance counter, so it may run too soon.
    fn has_come(&self, now: u64) -> bool {
        let mut due = self.wake.lock();
        if *due <= now {
            *due = NEVER;
            return true;
        }
        if *due != NEVER {
            self.timer.set(due.saturating_sub(now));
        }
        false
    }
}

impl Repeated for ProcessorService {
    /// One pass.
    fn run(task: &Task<Self>) -> Next {
        let Some(engine) = Engine::get() else { return Next::Done };
        match engine.fabric.service_pass(task.processor, BUDGET, &mut Callbacks) {
            Pass::More => Next::Again,
            Pass::Idle => Next::Done,
        }
    }
}

unsafe extern "C" fn run_timer(
    _dpc: *mut wdk_sys::KDPC,
    context: *mut c_void,
    _argument1: *mut c_void,
    _argument2: *mut c_void,
) {
    let processor = context.addr() as u32;
    let Some(engine) = Engine::get() else { return };
    let platform = engine.fabric.platform();
    let Some(service) = platform.services.service(processor) else { return };
    if service.has_come(platform.now()) {
        platform.services.schedule(processor);
    }
}

/// Makes the consumers' callbacks: inside a pass, so at DISPATCH_LEVEL. Each event is dropped after the callback has returned,
/// because it is what lets closes complete.
struct Callbacks;

impl Sink<KernelPlatform> for Callbacks {
    fn notify(&mut self, event: Notification<KernelPlatform>) {
        let callback = event.callback;
        callback.notify(status::of_queue(event.status));
        drop(event);
    }

    fn request_completed(&mut self, event: RequestCompletion<KernelPlatform>) {
        match event.callback {
            RequestCallback::Consumer(ConsumerRequest { callback, call }) => {
                let refused = |cause| refuse_by(RefusalWay::COMPLETION, call, event.hold(), cause);
                let status = event.result.map_or_else(refused, |()| STATUS_SUCCESS);
                callback.complete(status);
            }
            RequestCallback::UserMode(callback) => callback.complete(event.result),
        }
        drop(event);
    }

    fn connection_requested(&mut self, event: ConnectEvent<KernelPlatform>) {
        // What is left of the event ends behind the callback and lets the listener close.
        let ConnectEvent { callback, connector: arrival, .. } = event;
        match callback {
            ConnectCallback::Consumer(listener) => (listener.deliver)(listener, arrival),
            ConnectCallback::UserMode(callback) => callback.connect(arrival),
        }
    }

    fn disconnected(&mut self, event: DisconnectEvent<KernelPlatform>) {
        let callback = event.callback;
        callback.disconnected(errors::of_disconnect(event.reason));
        drop(event);
    }

    fn closed(&mut self, event: CloseCompletion<KernelPlatform>) {
        completion::closed(event);
    }

    fn retired(&mut self, event: Retired<KernelPlatform>) {
        completion::retired(event);
    }
}
