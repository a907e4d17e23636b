//! Shared receive queues: receives in a ring of the process, posted to the engine for several queue pairs.
//!
//! As a queue pair's receive ring. Requests that wait (SRQ_NOTIFY) complete together when fewer receives are queued than the threshold;
//! each request arms the engine's queue anew, and with a threshold of 0 none completes.

use core::ffi::c_void;

use ndkpi_sys::nt::{NTSTATUS, STATUS_CANCELLED, STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS};
use softndk_cells::Shared;
use softndk_engine::{PostError, SharedReceiveQueue as EngineQueue, SharedReceiveQueueSettings};
use softndk_ioctl::nd::{
    control::{CreateSharedReceiveQueue, GroupAffinity, ModifySharedReceiveQueue, ResourceDescriptor},
    rings::{QueueLayout, QueuePairTaken, QueueSizes, ReceiveEntry},
};
use softndk_kernel::{
    event::CriticalRegion,
    irp::{Buffer, Request},
    spin_lock::SpinLock,
};

use super::{
    adapter::{Domain, OpenedAdapter},
    completion_queue::{Attach, home, notifies_from},
    context::{AdapterLife, HandleReservation},
    object::{self, Closable, EngineHandle, consumer_object, handle_kind},
    pending::{NOT_TAKEN, NotTaken, Pended, PendingList},
    request::{Call, Cancellable, answer, check_output, input, named},
    request_memory::{PollOutcome, RequestMemory, RingPass},
    rings::Attached,
    status::{Answered, invalid_parameter, of_error},
};
use crate::runtime::platform::{Callback, CancelledRequest, KernelPlatform, UserModeObject};

pub struct SharedReceiveQueue {
    engine: EngineHandle<EngineQueue<KernelPlatform>>,
    adapter: Shared<OpenedAdapter>,
    sizes: QueueSizes,
    layout: QueueLayout,
    requests: RequestMemory,
    /// As [`super::completion_queue::CompletionQueue`]'s.
    affinity: GroupAffinity,
    state: SpinLock<SharedState>,
}

struct SharedState {
    closed: bool,
    threshold: u32,
    waiting: PendingList,
}

impl SharedReceiveQueue {
    pub fn engine(&self) -> Result<&EngineQueue<KernelPlatform>, NTSTATUS> {
        self.engine.get()
    }

    /// Shows the process what is taken and what is free again. `IRQL <= DISPATCH_LEVEL`.
    pub fn publish(&self) {
        let Ok(engine) = self.engine.get() else { return };
        self.requests.publish(|taken| QueuePairTaken {
            receive_retired: taken.receive_taken.wrapping_sub(engine.queued()),
            ..taken
        });
    }

    /// Posts what is in the ring. PASSIVE_LEVEL.
    pub fn doorbell(&self) -> Result<(), NTSTATUS> {
        let posted = self.requests.with_pass(|pass| self.take_all(pass), |pass| self.take_all(pass));
        self.publish();
        posted.map(|_none_left| ())
    }

    fn take_all(&self, pass: &RingPass<'_>) -> Result<PollOutcome, NTSTATUS> {
        self.take_entries(pass, u32::MAX)
    }

    /// The same for at most so many entries of this memory; `None` where a thread of the process does it.
    pub fn poll(&self, memory: &Attached, region: &CriticalRegion, most: u32) -> Result<Option<PollOutcome>, NTSTATUS> {
        let posted = self.requests.with_pass_of(memory, region, |pass| self.take_entries(pass, most));
        self.publish();
        posted
    }

    fn take_entries(&self, pass: &RingPass<'_>, most: u32) -> Result<PollOutcome, NTSTATUS> {
        let engine = self.engine.get()?;
        let (ring, memory) = (&self.layout.receive, pass.memory);
        let produced = memory.receive_producer();
        let waiting = produced.wrapping_sub(pass.receive_taken());
        if waiting > ring.entries {
            return Err(pass.break_off());
        }
        for _ in 0..waiting.min(most) {
            let taken = pass.receive_taken();
            let entry = memory.receive_entry(ring, taken);
            if entry.sge_count > self.sizes.receive_sges {
                return Err(pass.break_off());
            }
            let sges = memory.sges(ring, taken, size_of::<ReceiveEntry>(), entry.sge_count);
            match engine.receive(entry.context, sges) {
                Ok(()) => pass.take_receive(),
                Err(PostError::QueueFull | PostError::Concurrent) => break,
                Err(_) => return Err(pass.break_off()),
            }
        }
        Ok(PollOutcome { produced: (memory.initiator_producer(), produced), more: waiting > most })
    }

    pub fn requests(&self) -> &RequestMemory {
        &self.requests
    }

    /// As [`OpenedAdapter::poll_window`].
    pub fn poll_window(&self) -> u64 {
        self.adapter.poll_window
    }

    fn take_waiting(&self) -> PendingList {
        self.state.lock().waiting.take_all()
    }
}

/// Fewer receives than the threshold are queued. `IRQL <= DISPATCH_LEVEL`.
unsafe extern "C" fn notified(context: *mut c_void, _status: NTSTATUS) {
    // SAFETY: the engine keeps the queue's block until its close is complete.
    let Some(queue) = (unsafe { context.cast::<SharedReceiveQueue>().as_ref() }) else { return };
    queue.publish();
    queue.take_waiting().finish(STATUS_SUCCESS);
}

handle_kind!(SharedReceiveQueue);

impl UserModeObject for Shared<SharedReceiveQueue> {
    fn cancelled(&self, request: CancelledRequest) {
        let waiting = self.state.lock().waiting.take_cancelled(request);
        match waiting {
            Some(pended) => pended.finish(STATUS_CANCELLED),
            None => self.requests.detach(STATUS_CANCELLED, |memory| memory.lease.is_of_request(request)),
        }
    }
}

impl Cancellable for SharedReceiveQueue {
    fn cancel_all(&self) {
        self.take_waiting().finish(STATUS_CANCELLED);
    }
}

impl Closable for Shared<SharedReceiveQueue> {
    fn close(&self, status: NTSTATUS) {
        self.state.lock().closed = true;
        self.take_waiting().finish(status);
        if let Ok(engine) = self.engine.get() {
            object::finish(engine.close(object::no_callback()));
        }
        self.requests.close();
    }

    fn end_file(&self, file: u64) {
        let waiting = self.state.lock().waiting.take_of_file(file);
        waiting.finish(STATUS_CANCELLED);
        self.requests.end_file(file);
    }

    fn adapter(&self) -> &AdapterLife {
        &self.adapter.life
    }
}

impl Attach for Shared<SharedReceiveQueue> {
    fn attach(&self, call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
        let attached = self.requests.attach(call, request, self.layout.length, self, |pass| self.take_all(pass));
        self.publish();
        attached
    }
}

/// SRQ_CREATE.
pub fn create(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: CreateSharedReceiveQueue = input(buffer)?;
    check_output::<ResourceDescriptor>(buffer)?;
    let domain = call.context.object::<Domain>(asked.domain)?;
    let adapter = domain.adapter.clone();
    let limits = adapter.limits()?;
    if asked.queue_depth == 0 || asked.queue_depth > limits.shared_depth {
        return Err(invalid_parameter(3));
    }
    if asked.max_request_sge > limits.receive_sges {
        return Err(invalid_parameter(4));
    }
    let sizes =
        QueueSizes { receive_depth: asked.queue_depth, receive_sges: asked.max_request_sge, ..QueueSizes::default() };
    let layout = QueueLayout::new(sizes).ok_or(STATUS_INVALID_PARAMETER)?;
    let mut reservation = HandleReservation::try_new(call, &[asked.domain], Some(&adapter.life))?;
    let state = SharedState { closed: false, threshold: asked.notify_threshold, waiting: PendingList::new() };
    let queue = object::block(SharedReceiveQueue {
        engine: EngineHandle::none(&mut reservation),
        adapter,
        sizes,
        layout,
        requests: RequestMemory::try_new()?,
        affinity: notifies_from(asked.affinity),
        state: SpinLock::new(state),
    })?;
    // SAFETY: `notified` takes the queue, which the engine keeps until its close is complete.
    let notify = unsafe { Callback::new(notified as _, object::context(&queue)) };
    let settings = SharedReceiveQueueSettings {
        depth: asked.queue_depth,
        sges: asked.max_request_sge,
        threshold: asked.notify_threshold,
        notify: Some(notify),
        processor: home(&asked.affinity),
    };
    queue.engine.charge_pool(EngineQueue::size(domain.engine()?, &settings).map_err(of_error)?)?;
    let engine = EngineQueue::create(domain.engine()?, settings, consumer_object(&queue)).map_err(of_error)?;
    // SAFETY: no other context has the object yet.
    unsafe { queue.engine.set(engine) };
    answer(buffer, &ResourceDescriptor { handle: reservation.fill(queue), ..ResourceDescriptor::default() })
}

/// SRQ_GET_AFFINITY.
pub fn affinity(call: &Call, buffer: &mut Buffer) -> Answered {
    let queue = named::<SharedReceiveQueue>(call, buffer)?;
    answer(buffer, &queue.affinity)
}

/// SRQ_MODIFY. The ring stays as long as it is: it is the way to the queue, which takes what lies there.
pub fn modify(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: ModifySharedReceiveQueue = input(buffer)?;
    let queue = call.context.object::<SharedReceiveQueue>(asked.handle)?;
    if asked.queue_depth > queue.adapter.limits()?.shared_depth {
        return Err(STATUS_INVALID_PARAMETER);
    }
    let engine = queue.engine()?;
    queue.engine.charge_pool(engine.size_of(asked.queue_depth))?;
    engine.modify(asked.queue_depth, 0).map_err(of_error)?;
    if asked.notify_threshold != 0 {
        let waits = {
            let mut state = queue.state.lock();
            state.threshold = asked.notify_threshold;
            !state.waiting.is_empty()
        };
        if waits {
            engine.modify(0, asked.notify_threshold).map_err(of_error)?;
        }
    }
    Ok(0)
}

/// SRQ_NOTIFY.
pub fn notify(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    let named = named::<SharedReceiveQueue>(call, &Buffer::of(&request));
    let queue = match named {
        Ok(queue) => queue,
        Err(status) => return Err((request, status)),
    };
    // What was posted before counts: a polled ring is taken by the poller, later.
    let _taken = queue.doorbell();
    let pended = match Pended::begin(request, call, object::owner(&queue), 0) {
        Ok(pended) => pended,
        Err(refused) => return Err((refused.request, refused.status)),
    };
    let (refused, threshold) = {
        let mut state = queue.state.lock();
        let taken = if state.closed { Err(NotTaken::new(pended, NOT_TAKEN)) } else { state.waiting.push(pended) };
        (taken.err(), state.threshold)
    };
    if let Some(not_taken) = refused {
        not_taken.finish();
    } else if threshold != 0
        && let Ok(engine) = queue.engine()
    {
        // Arms, and completes at once where fewer are queued.
        let _armed = engine.modify(0, threshold);
    }
    Ok(STATUS_PENDING)
}
