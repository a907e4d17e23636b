//! Completion queues: the engine's queue, drained into the ring of the process.
//!
//! The driver keeps the engine's queue armed and moves what comes into the ring, a batch at a time, by one context at a time, in the
//! order in which it came. What finds no free entry stays in the engine's queue until the process rings. Before a batch becomes visible, the queue
//! pairs of its results show the slots that are free again, and completions of their initiator queues that are older than a receive
//! are moved first: an answer is never seen before the Send that it answers.
//!
//! `notify` decides when Notify requests complete.

use core::{
    ffi::c_void,
    sync::atomic::{AtomicBool, Ordering},
};

use ndkpi_sys::nt::{
    NTSTATUS, STATUS_BUFFER_OVERFLOW, STATUS_CANCELLED, STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER,
    STATUS_PENDING, STATUS_SUCCESS,
};
use softndk_cells::{Serialized, Shared};
use softndk_engine::{Arm, Completion, CompletionQueue as EngineQueue, Operation, Outcome, Semantics};
use softndk_ioctl::nd::{
    control::{CreateCompletionQueue, GroupAffinity, ModifyCompletionQueue, ResourceDescriptor},
    rings::{CompletionFlags, RequestType, ResultEntry, Ring, completion_layout},
};
use softndk_kernel::{
    irp::{Buffer, Request},
    irql,
    spin_lock::SpinLock,
};

use super::{
    adapter::OpenedAdapter,
    context::{AdapterLife, HandleReservation, ProcessContext},
    notify::Notifications,
    object::{self, Closable, EngineHandle, consumer_object, handle_kind},
    pending::PendingList,
    queue_pair::QueuePair,
    refused,
    request::{Call, Cancellable, answer, check_output, input, named},
    rings::Attached,
    status::{Answered, invalid_parameter, of_error},
};
use crate::runtime::platform::{Callback, CancelledRequest, KernelPlatform, UserModeObject};

/// Completions moved together.
const BATCH: usize = 16;
/// Batches that one call moves.
const BATCHES: usize = 16;
/// Times that a call begins anew because others asked for it.
const ROUNDS: usize = 4;

pub struct CompletionQueue {
    engine: EngineHandle<EngineQueue<KernelPlatform>>,
    adapter: Shared<OpenedAdapter>,
    context: Shared<ProcessContext>,
    /// Where its notifications come from, as its program knows it.
    affinity: GroupAffinity,
    /// Moving completions, by one context at a time.
    moving: Serialized<()>,
    /// That context waits for another queue.
    waits: AtomicBool,
    pub(super) state: SpinLock<QueueState>,
}

pub struct QueueState {
    pub closed: bool,
    depth: u32,
    /// The depth has changed: the next memory replaces what there is.
    resized: bool,
    ring: Option<ResultRing>,
    /// The ring was full when the process was last notified.
    full: bool,
    pub notifications: Notifications,
}

/// The ring of the process.
struct ResultRing {
    memory: Shared<Attached>,
    ring: Ring,
    /// Results written into it.
    producer: u32,
    /// Those that the process said to have taken when it was asked last.
    consumer: u32,
    /// Results that it had not taken from the ring before this one when that was replaced. It takes them first.
    before: u32,
}

impl ResultRing {
    /// Results that the process has not taken. A count that makes no sense is that of a full ring.
    fn used(&mut self) -> u32 {
        self.consumer = self.memory.consumer();
        self.used_at_most()
    }

    /// The same without a look at what it says now.
    fn used_at_most(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer).min(self.ring.entries)
    }

    /// As [`Self::used`], with those of the ring before. What the process has taken of those since is not known before it takes from
    /// this one.
    fn unread(&mut self) -> u32 {
        let used = self.used();
        if self.consumer == 0 { used.saturating_add(self.before) } else { used }
    }

    /// Places that are free. The process is asked only where a batch would not fit else: it writes its count all the time.
    fn free_entries(&mut self) -> u32 {
        let known = self.ring.entries.saturating_sub(self.used_at_most());
        if known as usize >= BATCH { known } else { self.ring.entries.saturating_sub(self.used()) }
    }
}

impl QueueState {
    /// The requests that complete now.
    pub fn due(&mut self) -> PendingList {
        if !self.notifications.waits() {
            return PendingList::new();
        }
        let unread = self.ring.as_mut().map_or(0, ResultRing::unread);
        self.notifications.due(unread)
    }

    fn flags(&self) -> CompletionFlags {
        let mut flags = CompletionFlags::empty();
        flags.set(CompletionFlags::MORE, self.full);
        flags.set(CompletionFlags::FAILED, self.notifications.has_failed());
        flags
    }

    fn show_flags(&self) {
        if let Some(ring) = &self.ring {
            ring.memory.set_flags(self.flags());
        }
    }

    /// Room for completions, `None` without a ring.
    fn free_entries(&mut self) -> Option<u32> {
        let free = self.ring.as_mut()?.free_entries();
        let full = free == 0;
        if full != self.full {
            self.full = full;
            self.show_flags();
        }
        Some(free)
    }

    /// As [`Self::free_entries`], where results are written soon.
    fn prepare(&mut self) -> Option<u32> {
        let free = self.free_entries()?;
        if let Some(ring) = &self.ring {
            ring.memory.fetch_for_results(&ring.ring, ring.producer, free.min(BATCH as u32));
        }
        Some(free)
    }

    /// Writes results into the ring. A ring that was changed meanwhile has at least as many free entries.
    fn write(&mut self, engine: &EngineQueue<KernelPlatform>, completions: &[Completion]) {
        let Some(ring) = &mut self.ring else { return };
        for completion in completions {
            ring.memory.write_result(&ring.ring, ring.producer, result_of(engine, completion));
            ring.producer = ring.producer.wrapping_add(1);
            self.notifications.count(completion.solicited || completion.outcome != Outcome::Success);
        }
        ring.memory.publish_results(ring.producer);
    }
}

/// For whom completions are moved.
struct Moved<'a> {
    /// The queue pair that asks for it: it need not be looked for.
    own: Option<&'a QueuePair>,
    /// Its counts were shown, after it had asked.
    shown: bool,
}

fn result_of(queue: &EngineQueue<KernelPlatform>, completion: &Completion) -> ResultEntry {
    ResultEntry {
        status: refused::status_of(queue, completion),
        bytes_transferred: completion.bytes,
        queue_pair_context: completion.queue_pair_context,
        request_context: completion.context,
        request_type: request_type(completion.operation) as u32,
        value: if completion.outcome == Outcome::Success { completion.output } else { 0 },
    }
}

/// Which request completed.
fn request_type(operation: Operation) -> RequestType {
    match operation {
        Operation::Receive => RequestType::Receive,
        Operation::ReceiveAndInvalidate => RequestType::ReceiveAndInvalidate,
        Operation::ReceiveImmediate => RequestType::ReceiveImmediate,
        Operation::ReceiveWriteImmediate => RequestType::ReceiveWriteImmediate,
        Operation::Send | Operation::SendAndInvalidate | Operation::SendImmediate => RequestType::Send,
        Operation::Read => RequestType::Read,
        Operation::Write | Operation::WriteImmediate => RequestType::Write,
        Operation::Bind => RequestType::Bind,
        // No fast registration is posted here.
        Operation::FastRegister | Operation::Invalidate => RequestType::Invalidate,
    }
}

impl CompletionQueue {
    pub fn engine(&self) -> Result<&EngineQueue<KernelPlatform>, NTSTATUS> {
        self.engine.get()
    }

    /// Moves what there is into the ring. `IRQL <= DISPATCH_LEVEL`, no lock held.
    pub fn drain(&self) {
        irql::raised(|_| self.drain_with(true, &mut Moved { own: None, shown: false }));
    }

    /// The same for one of its queue pairs; whether that has shown its counts, because there were results of it.
    pub fn drain_of(&self, pair: &QueuePair) -> bool {
        let mut moved = Moved { own: Some(pair), shown: false };
        irql::raised(|_| self.drain_with(true, &mut moved));
        moved.shown
    }

    /// Requests of the caller's are about to complete here, and [`Self::drain`] follows: nothing needs to notify of them.
    pub fn expect_drain(&self) {
        if let Ok(engine) = self.engine.get() {
            engine.disarm();
        }
    }

    /// `with_others`: the initiator queues of receives go first, and do the same for no others.
    fn drain_with(&self, with_others: bool, moved: &mut Moved<'_>) {
        let Ok(engine) = self.engine.get() else { return };
        let mut held = self.moving.raise();
        for _ in 0..ROUNDS {
            let Some(moving) = held else { return };
            if self.move_batches(engine, with_others, moved) {
                engine.arm_for_rest();
            }
            held = moving.finish();
        }
        if let Some(moving) = held {
            // Others ask for more all the time: a service pass comes back, after this pass.
            drop(moving);
            engine.arm_for_rest();
        }
    }

    /// Leaves the engine's queue armed, or completions behind that fit: then true.
    fn move_batches(&self, engine: &EngineQueue<KernelPlatform>, with_others: bool, moved: &mut Moved<'_>) -> bool {
        let mut free = self.state.lock().prepare();
        let mut batch = [Completion::default(); BATCH];
        for _ in 0..BATCHES {
            let Some(free_now) = free.filter(|free| *free != 0) else {
                engine.arm(Arm::Any);
                return false;
            };
            let places = batch.get_mut(..BATCH.min(free_now as usize)).unwrap_or_default();
            let (count, more) = engine.take(places, true);
            if let Some(batch) = batch.get(..count).filter(|batch| !batch.is_empty()) {
                self.prepare_pairs(batch, with_others, moved);
                let notified = {
                    let mut state = self.state.lock();
                    state.write(engine, batch);
                    free = state.free_entries();
                    state.due()
                };
                notified.finish(STATUS_SUCCESS);
            }
            if !more {
                return false;
            }
        }
        true
    }

    /// Before results become visible: the slots of their queue pairs are, and older completions of theirs.
    fn prepare_pairs(&self, batch: &[Completion], with_others: bool, moved: &mut Moved<'_>) {
        let mut before = None;
        for completion in batch {
            let receives = completion.operation.is_receive();
            if before == Some((completion.tag, receives)) {
                continue;
            }
            before = Some((completion.tag, receives));
            if let Some(own) = moved.own.filter(|own| own.place() == completion.tag) {
                moved.shown = true;
                self.prepare(own, receives && with_others);
            } else if let Some(pair) = self.context.object_at::<QueuePair>(completion.tag) {
                self.prepare(&pair, receives && with_others);
            }
        }
    }

    fn prepare(&self, pair: &QueuePair, after_initiator: bool) {
        pair.publish();
        let initiator = pair.initiator_queue();
        if after_initiator && !core::ptr::eq(&raw const **initiator, self) {
            self.waits.store(true, Ordering::SeqCst);
            initiator.show_all();
            self.waits.store(false, Ordering::SeqCst);
        }
    }

    /// Moves what there is, and waits for the context that is at it, some microseconds: one that waits itself, perhaps for the
    /// caller's queue, is not waited for. DISPATCH_LEVEL.
    fn show_all(&self) {
        self.drain_with(false, &mut Moved { own: None, shown: false });
        while self.moving.is_held() && !self.waits.load(Ordering::SeqCst) {
            irql::stall();
        }
    }

    /// The engine's queue has overrun.
    fn fail(&self) {
        let waiting = {
            let mut state = self.state.lock();
            let waiting = state.notifications.fail();
            state.show_flags();
            waiting
        };
        waiting.finish(STATUS_BUFFER_OVERFLOW);
    }

    /// Takes the ring away; its request ends with this status when no context uses it any more.
    fn detach(&self, status: NTSTATUS, fits: impl FnOnce(&Attached) -> bool) {
        let ring = self.state.lock().ring.take_if(|ring| fits(&ring.memory));
        if let Some(ring) = ring {
            ring.memory.lease.end_with(status);
        }
    }

    fn take_waiting(&self) -> PendingList {
        self.state.lock().notifications.take_all()
    }
}

/// The engine's notification. `IRQL <= DISPATCH_LEVEL`.
unsafe extern "C" fn notified(context: *mut c_void, status: NTSTATUS) {
    // SAFETY: the engine keeps the queue's block until its close is complete.
    let Some(queue) = (unsafe { context.cast::<CompletionQueue>().as_ref() }) else { return };
    queue.drain();
    if status != STATUS_SUCCESS {
        queue.fail();
    }
}

handle_kind!(CompletionQueue);

impl UserModeObject for Shared<CompletionQueue> {
    fn cancelled(&self, request: CancelledRequest) {
        let waiting = self.state.lock().notifications.take_cancelled(request);
        match waiting {
            Some(pended) => pended.finish(STATUS_CANCELLED),
            None => self.detach(STATUS_CANCELLED, |memory| memory.lease.is_of_request(request)),
        }
    }
}

impl Cancellable for CompletionQueue {
    fn cancel_all(&self) {
        self.take_waiting().finish(STATUS_CANCELLED);
    }
}

impl Closable for Shared<CompletionQueue> {
    fn close(&self, status: NTSTATUS) {
        self.state.lock().closed = true;
        self.take_waiting().finish(status);
        self.detach(STATUS_SUCCESS, |_| true);
        if let Ok(engine) = self.engine.get() {
            object::finish(engine.close(object::no_callback()));
        }
    }

    fn end_file(&self, file: u64) {
        let waiting = self.state.lock().notifications.take_of_file(file);
        waiting.finish(STATUS_CANCELLED);
        self.detach(STATUS_CANCELLED, |memory| memory.lease.is_of_file(file));
    }

    fn adapter(&self) -> &AdapterLife {
        &self.adapter.life
    }
}

impl Attach for Shared<CompletionQueue> {
    fn attach(&self, call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
        let layout = {
            let state = self.state.lock();
            if state.ring.is_some() && !state.resized {
                None
            } else {
                completion_layout(state.depth).map(|layout| (layout, state.depth))
            }
        };
        let Some(((ring, length), depth)) = layout else { return Err((request, STATUS_INVALID_DEVICE_STATE)) };
        let memory = Attached::try_new(call, request, length, object::owner(self))?;
        let replaced = {
            let mut state = self.state.lock();
            if state.closed || memory.lease.is_cancelled() {
                Err(STATUS_CANCELLED)
            } else if state.depth != depth || (state.ring.is_some() && !state.resized) {
                Err(STATUS_INVALID_DEVICE_STATE)
            } else {
                state.resized = false;
                state.full = false;
                let before = state.ring.as_mut().map_or(0, ResultRing::unread);
                let next = ResultRing { memory: memory.clone(), ring, producer: 0, consumer: 0, before };
                let old = state.ring.replace(next);
                memory.publish_results(0);
                state.show_flags();
                if let Some(old) = &old {
                    old.memory.set_flags(CompletionFlags::MOVED);
                }
                Ok(old)
            }
        };
        match replaced {
            Ok(old) => drop(old),
            Err(status) => memory.lease.end_with(status),
        }
        drop(memory);
        self.drain();
        Ok(STATUS_PENDING)
    }
}

/// What an object with rings does with the memory that a process brings.
pub trait Attach {
    /// ATTACH.
    fn attach(&self, call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)>;
}

/// CQ_CREATE.
pub fn create(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: CreateCompletionQueue = input(buffer)?;
    check_output::<ResourceDescriptor>(buffer)?;
    let adapter = call.context.object::<OpenedAdapter>(asked.adapter)?;
    let depth = asked.queue_depth;
    if depth == 0 || depth > adapter.limits()?.completion_depth {
        return Err(invalid_parameter(3));
    }
    let mut reservation = HandleReservation::try_new(call, &[asked.adapter], Some(&adapter.life))?;
    let state = QueueState {
        closed: false,
        depth,
        resized: false,
        ring: None,
        full: false,
        notifications: Notifications::new(),
    };
    let queue = object::block(CompletionQueue {
        engine: EngineHandle::none(&mut reservation),
        adapter: adapter.clone(),
        context: call.context.clone(),
        affinity: notifies_from(asked.affinity),
        moving: Serialized::new(()),
        waits: AtomicBool::new(false),
        state: SpinLock::new(state),
    })?;
    // SAFETY: `notified` takes the queue, which the engine keeps until its close is complete.
    let notify = unsafe { Callback::new(notified as _, object::context(&queue)) };
    let home = home(&asked.affinity);
    queue.engine.charge_pool(size(depth))?;
    let open = adapter.open()?;
    let engine = open.create_completion_queue(depth, Some(notify), home, consumer_object(&queue)).map_err(of_error)?;
    engine.arm(Arm::Any);
    // SAFETY: no other context has the object yet: nothing notifies of a queue without queue pairs.
    unsafe { queue.engine.set(engine) };
    answer(buffer, &ResourceDescriptor { handle: reservation.fill(queue), ..ResourceDescriptor::default() })
}

/// The first processor that a program prefers, if there is one.
pub fn home(affinity: &GroupAffinity) -> Option<u32> {
    let first = u8::try_from(affinity.mask.trailing_zeros()).ok()?;
    if affinity.mask == 0 { None } else { irql::processor_index(affinity.group, first) }
}

/// All processors of the first group: where notifications may come from.
fn all_processors() -> GroupAffinity {
    let count = irql::processor_count().min(u64::BITS);
    let mask = u64::MAX.checked_shr(u64::BITS.saturating_sub(count)).unwrap_or(u64::MAX);
    GroupAffinity { mask, ..GroupAffinity::default() }
}

/// What a queue answers that was made with this affinity.
pub fn notifies_from(asked: GroupAffinity) -> GroupAffinity {
    if asked.mask == 0 { all_processors() } else { asked }
}

/// CQ_GET_AFFINITY.
pub fn affinity(call: &Call, buffer: &mut Buffer) -> Answered {
    let queue = named::<CompletionQueue>(call, buffer)?;
    answer(buffer, &queue.affinity)
}

/// Bytes that the engine's ring of a queue takes, roughly.
fn size(depth: u32) -> u64 {
    let entries = u64::from(depth).saturating_add(u64::from(Semantics::ND.queue_slack));
    entries.checked_next_power_of_two().unwrap_or(u64::MAX).saturating_mul(size_of::<Completion>() as u64)
}

/// CQ_MODIFY: the next ATTACH replaces the ring.
pub fn modify(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: ModifyCompletionQueue = input(buffer)?;
    let queue = call.context.object::<CompletionQueue>(asked.handle)?;
    if asked.queue_depth == 0 || asked.queue_depth > queue.adapter.limits()?.completion_depth {
        return Err(STATUS_INVALID_PARAMETER);
    }
    queue.engine.charge_pool(size(asked.queue_depth))?;
    queue.engine()?.resize(asked.queue_depth).map_err(of_error)?;
    let mut state = queue.state.lock();
    state.depth = asked.queue_depth;
    state.resized = true;
    Ok(0)
}
