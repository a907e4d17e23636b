//! Queue pairs: what a process writes into its rings, posted to the engine.
//!
//! A doorbell takes the entries one after the other, in their order, each copied once and checked; what does not make sense ends this
//! queue pair and no other. Initiator requests are taken once the queue pair has been connected, receives at any time. Posting is
//! one context at a time, at PASSIVE_LEVEL, so that the engine copies in place as far as it likes.
//!
//! The driver's part of the header is a snapshot: counts of taken entries, less what occupies a slot of the engine's queues.

use core::cell::Cell;

use ndkpi_sys::nt::{
    NTSTATUS, STATUS_CANCELLED, STATUS_CONNECTION_INVALID, STATUS_INVALID_PARAMETER, STATUS_NO_MORE_ENTRIES,
};
use softndk_cells::Shared;
use softndk_engine::{
    Limits, MemoryToken, PostError, QueuePair as EnginePair, QueuePairSettings, RequestFlags, Rights, Sge,
};
use softndk_ioctl::nd::{
    control::{CreateQueuePair, ResourceDescriptor},
    private::{BindWindow, BindWindowReply, QueuePairContext},
    rings::{
        InitiatorEntry, OperationFlags, QueueLayout, QueuePairState, QueuePairTaken, QueueSizes, ReceiveEntry,
        RequestType,
    },
};
use softndk_kernel::{
    event::CriticalRegion,
    irp::{Buffer, Request},
};
use zerocopy::FromBytes;

use super::{
    adapter::{Domain, OpenedAdapter},
    completion_queue::{Attach, CompletionQueue},
    context::{AdapterLife, HandleReservation, ProcessContext},
    memory_region::MemoryRegion,
    memory_window::MemoryWindow,
    object::{self, Closable, EngineHandle, consumer_object, handle_kind},
    request::{Call, answer, check_output, input, named},
    request_memory::{PollOutcome, RequestMemory, RingPass},
    rings::Attached,
    shared_receive_queue::SharedReceiveQueue,
    status::{Answered, invalid_parameter, of_error},
};
use crate::runtime::platform::{CancelledRequest, KernelPlatform, UserModeObject};

/// Entries that the engine processes together.
const CHAIN: u32 = 16;
/// Bytes moved after which results are shown although there are more entries.
const UNSHOWN: u64 = 16 << 10;

pub struct QueuePair {
    engine: EngineHandle<EnginePair<KernelPlatform>>,
    adapter: Shared<OpenedAdapter>,
    context: Shared<ProcessContext>,
    initiator_queue: Shared<CompletionQueue>,
    receive_queue: Shared<CompletionQueue>,
    shared: Option<Shared<SharedReceiveQueue>>,
    sizes: QueueSizes,
    layout: QueueLayout,
    /// The place of its handle, which completions have as their tag.
    place: u32,
    requests: RequestMemory,
}

/// Why no further entry is taken now.
enum Stop {
    /// The engine's queue is full, or takes nothing yet.
    NotNow,
    /// The entry makes no sense.
    Broken,
}

impl QueuePair {
    pub fn engine(&self) -> Result<&EnginePair<KernelPlatform>, NTSTATUS> {
        self.engine.get()
    }

    pub fn initiator_queue(&self) -> &Shared<CompletionQueue> {
        &self.initiator_queue
    }

    /// Shows the process what is taken and what is free again. `IRQL <= DISPATCH_LEVEL`.
    pub fn publish(&self) {
        if let Some(shared) = &self.shared {
            shared.publish();
        }
        let Ok(engine) = self.engine.get() else { return };
        self.requests.publish(|taken| {
            let (initiator, receive) = engine.outstanding();
            let mut bits = QueuePairState::empty();
            bits.set(QueuePairState::CONNECTED, engine.was_connected());
            bits.set(QueuePairState::ENDED, engine.has_ended());
            QueuePairTaken {
                initiator_retired: taken.initiator_taken.wrapping_sub(initiator),
                receive_retired: taken.receive_taken.wrapping_sub(receive),
                state: bits.bits(),
                ..taken
            }
        });
    }

    /// Posts what is in the rings, and moves what has completed. PASSIVE_LEVEL.
    pub fn doorbell(&self) -> Result<(), NTSTATUS> {
        let posted = self.requests.with_pass(|pass| self.take_all(pass), |pass| self.take_all(pass));
        self.show_and_drain();
        posted.map(|_none_left| ())
    }

    fn take_all(&self, pass: &RingPass<'_>) -> Result<PollOutcome, NTSTATUS> {
        self.take_entries(pass, u32::MAX)
    }

    /// The same for at most so many entries of each ring in this memory; `None` where a thread of the process does it.
    pub fn poll(&self, memory: &Attached, region: &CriticalRegion, most: u32) -> Result<Option<PollOutcome>, NTSTATUS> {
        let posted = self.requests.with_pass_of(memory, region, |pass| self.take_entries(pass, most));
        self.show_and_drain();
        posted
    }

    /// As [`Self::publish`], and moves what has completed.
    fn show_and_drain(&self) {
        let mut shown = self.initiator_queue.drain_of(self);
        if !self.receive_queue.is(&self.initiator_queue) {
            shown |= self.receive_queue.drain_of(self);
        }
        // Where there are results, they have come after the counts.
        if !shown {
            self.publish();
        }
    }

    /// Takes entries that can be posted now.
    fn take_entries(&self, pass: &RingPass<'_>, most: u32) -> Result<PollOutcome, NTSTATUS> {
        let engine = self.engine.get()?;
        let received = self.take_receives(engine, pass, most);
        let initiated = self.take_initiator(engine, pass, most);
        if let (Ok(receives), Ok(requests)) = (received, initiated) {
            return Ok(PollOutcome {
                produced: (requests.produced, receives.produced),
                more: receives.more || requests.more,
            });
        }
        let status = pass.break_off();
        engine.flush();
        Err(status)
    }

    fn take_receives(
        &self,
        engine: &EnginePair<KernelPlatform>,
        pass: &RingPass<'_>,
        most: u32,
    ) -> Result<RingPollOutcome, Broken> {
        let (ring, memory) = (&self.layout.receive, pass.memory);
        let produced = memory.receive_producer();
        let waiting = produced.wrapping_sub(pass.receive_taken());
        if waiting > ring.entries {
            return Err(Broken);
        }
        for _ in 0..waiting.min(most) {
            let taken = pass.receive_taken();
            let entry = memory.receive_entry(ring, taken);
            if entry.sge_count > self.sizes.receive_sges {
                return Err(Broken);
            }
            let sges = memory.sges(ring, taken, size_of::<ReceiveEntry>(), entry.sge_count);
            match stop(engine.receive(entry.context, sges)) {
                Ok(()) => pass.take_receive(),
                Err(Stop::NotNow) => break,
                Err(Stop::Broken) => return Err(Broken),
            }
        }
        Ok(RingPollOutcome { produced, more: waiting > most })
    }

    /// Entries that wait in the initiator ring.
    fn initiator_waiting(&self, pass: &RingPass<'_>) -> Result<u32, Broken> {
        let waiting = pass.memory.initiator_producer().wrapping_sub(pass.initiator_taken());
        if waiting > self.layout.initiator.entries { Err(Broken) } else { Ok(waiting) }
    }

    fn take_initiator(
        &self,
        engine: &EnginePair<KernelPlatform>,
        pass: &RingPass<'_>,
        most: u32,
    ) -> Result<RingPollOutcome, Broken> {
        let (ring, memory) = (&self.layout.initiator, pass.memory);
        let mut waiting = self.initiator_waiting(pass)?;
        let outcome =
            |waiting: u32, more| RingPollOutcome { produced: pass.initiator_taken().wrapping_add(waiting), more };
        if waiting == 0 || !engine.was_connected() {
            return Ok(outcome(waiting, false));
        }
        memory.fetch_ahead(ring, pass.initiator_taken(), waiting.min(CHAIN));
        self.initiator_queue.expect_drain();
        let moved = Cell::new(0);
        let mut chain = 0;
        for left in (0..most.min(ring.entries)).rev() {
            let taken = pass.initiator_taken();
            chain = if chain == CHAIN { 1 } else { chain.saturating_add(1) };
            let is_last = waiting == 1 || left == 0 || chain == CHAIN;
            let entry = memory.initiator_entry(ring, taken);
            let held_back = if is_last { RequestFlags::empty() } else { RequestFlags::DEFER };
            match self.post(engine, (memory, &moved), taken, &entry, held_back) {
                Ok(()) => pass.take_initiator(),
                Err(Stop::NotNow) => return Ok(outcome(waiting, false)),
                Err(Stop::Broken) => return Err(Broken),
            }
            waiting = waiting.saturating_sub(1);
            if waiting == 0 {
                // What has come while the chain was processed, before its results are shown: they wait for short requests only.
                waiting = if moved.get() < UNSHOWN { self.initiator_waiting(pass)? } else { 0 };
                if waiting == 0 {
                    break;
                }
                memory.fetch_ahead(ring, pass.initiator_taken(), waiting.min(CHAIN));
                chain = 0;
            }
        }
        Ok(outcome(waiting, waiting != 0))
    }

    /// Posts one entry: type, flags, counts, then the engine. `held_back`: with the next one, or with whatever ends the queue pair.
    fn post(
        &self,
        engine: &EnginePair<KernelPlatform>,
        (memory, moved): (&Attached, &Cell<u64>),
        count: u32,
        entry: &InitiatorEntry,
        held_back: RequestFlags,
    ) -> Result<(), Stop> {
        let kind = RequestType::of(entry.request_type).ok_or(Stop::Broken)?;
        let given = OperationFlags::from_bits(entry.flags).ok_or(Stop::Broken)?;
        let flags = request_flags(kind, given).ok_or(Stop::Broken)? | held_back;
        if kind == RequestType::Invalidate {
            let window = self.context.object::<MemoryWindow>(entry.window).map_err(|_| Stop::Broken)?;
            let window = window.engine().map_err(|_| Stop::Broken)?;
            return stop(engine.invalidate_window(entry.context, flags, window));
        }
        let ring = &self.layout.initiator;
        if given.contains(OperationFlags::INLINE) {
            if entry.inline_length > self.sizes.inline_data {
                return Err(Stop::Broken);
            }
            let data = memory.inline(ring, count, entry.inline_length).ok_or(Stop::Broken)?;
            let sges = Some(data).filter(|data| data.length != 0).into_iter();
            return post_data(engine, kind, flags, entry, sges);
        }
        if entry.sge_count > self.sizes.initiator_sges {
            return Err(Stop::Broken);
        }
        let sges = memory.sges(ring, count, size_of::<InitiatorEntry>(), entry.sge_count);
        let sges = sges.inspect(|sge| moved.set(moved.get().saturating_add(u64::from(sge.length))));
        post_data(engine, kind, flags, entry, sges)
    }

    pub fn place(&self) -> u32 {
        self.place
    }

    pub fn requests(&self) -> &RequestMemory {
        &self.requests
    }

    /// As [`OpenedAdapter::poll_window`].
    pub fn poll_window(&self) -> u64 {
        self.adapter.poll_window
    }
}

/// The outcome of one pass over one ring: its producer count when that was read last, and whether there is more than one pass takes.
struct RingPollOutcome {
    produced: u32,
    more: bool,
}

/// An entry made no sense.
struct Broken;

fn stop(posted: Result<(), PostError>) -> Result<(), Stop> {
    posted.map_err(|cause| match cause {
        PostError::QueueFull | PostError::NotConnected | PostError::Concurrent => Stop::NotNow,
        _ => Stop::Broken,
    })
}

/// A Send, Read or Write.
fn post_data(
    engine: &EnginePair<KernelPlatform>,
    kind: RequestType,
    flags: RequestFlags,
    entry: &InitiatorEntry,
    sges: impl ExactSizeIterator<Item = Sge>,
) -> Result<(), Stop> {
    let token = MemoryToken(entry.remote_token);
    let has = |flag: OperationFlags| entry.flags & flag.bits() != 0;
    stop(match kind {
        RequestType::Send if has(OperationFlags::INVALIDATE_REMOTE) => {
            engine.send_and_invalidate(entry.context, flags, sges, token)
        }
        RequestType::Send if has(OperationFlags::IMMEDIATE) => {
            engine.send_immediate(entry.context, flags, sges, entry.immediate)
        }
        RequestType::Write if has(OperationFlags::IMMEDIATE) => {
            engine.write_immediate(entry.context, flags, sges, (entry.remote_address, token), entry.immediate)
        }
        RequestType::Send => engine.send(entry.context, flags, sges),
        RequestType::Read => engine.read(entry.context, flags, sges, entry.remote_address, token),
        RequestType::Write => engine.write(entry.context, flags, sges, entry.remote_address, token),
        // Refused by their flags (`request_flags`), or posted elsewhere.
        _ => return Err(Stop::Broken),
    })
}

/// The flags of a request; `None` where there is one that it does not take.
fn request_flags(kind: RequestType, given: OperationFlags) -> Option<RequestFlags> {
    let any = OperationFlags::SILENT_SUCCESS | OperationFlags::READ_FENCE;
    let message = any | OperationFlags::SEND_AND_SOLICIT_EVENT | OperationFlags::INLINE;
    let has_immediate = given.contains(OperationFlags::IMMEDIATE);
    let known = match kind {
        // A message brings one of the two.
        RequestType::Send | RequestType::Write if has_immediate => message | OperationFlags::IMMEDIATE,
        RequestType::Send => message | OperationFlags::INVALIDATE_REMOTE,
        RequestType::Write => any | OperationFlags::INLINE,
        RequestType::Read | RequestType::Invalidate => any,
        RequestType::Bind => any | OperationFlags::ALLOW_READ | OperationFlags::ALLOW_WRITE,
        _ => return None,
    };
    let mut flags = RequestFlags::empty();
    flags.set(RequestFlags::SILENT_SUCCESS, given.contains(OperationFlags::SILENT_SUCCESS));
    flags.set(RequestFlags::READ_FENCE, given.contains(OperationFlags::READ_FENCE));
    flags.set(RequestFlags::SOLICIT, given.contains(OperationFlags::SEND_AND_SOLICIT_EVENT));
    flags.set(RequestFlags::INLINE, given.contains(OperationFlags::INLINE));
    known.contains(given).then_some(flags)
}

handle_kind!(QueuePair);

impl UserModeObject for Shared<QueuePair> {
    fn cancelled(&self, request: CancelledRequest) {
        self.requests.detach(STATUS_CANCELLED, |memory| memory.lease.is_of_request(request));
    }
}

impl Closable for Shared<QueuePair> {
    fn close(&self, _status: NTSTATUS) {
        self.requests.shut();
        if let Ok(engine) = self.engine.get() {
            object::finish(engine.close(object::no_callback()));
        }
        self.requests.close();
    }

    fn end_file(&self, file: u64) {
        self.requests.end_file(file);
    }

    fn adapter(&self) -> &AdapterLife {
        &self.adapter.life
    }
}

impl Attach for Shared<QueuePair> {
    fn attach(&self, call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
        let attached = self.requests.attach(call, request, self.layout.length, self, |pass| self.take_all(pass));
        self.publish();
        attached
    }
}

/// What is wrong with the numbers of a queue pair, by the parameters of CreateQueuePair or, with a shared queue, of
/// CreateQueuePairWithSrq.
fn check(sizes: &QueueSizes, limits: &Limits, shared: bool) -> Result<(), NTSTATUS> {
    let places = if shared { [0, 6, 0, 7, 8] } else { [5, 6, 7, 8, 9] };
    let over = [
        sizes.receive_depth > limits.receive_depth,
        sizes.initiator_depth > limits.initiator_depth,
        sizes.receive_sges > limits.receive_sges,
        sizes.initiator_sges > limits.initiator_sges,
        sizes.inline_data > limits.inline_data,
    ];
    let first = over.iter().zip(places).find(|(over, place)| **over && *place != 0);
    first.map_or(Ok(()), |(_, place)| Err(invalid_parameter(place)))
}

/// QP_CREATE.
pub fn create(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: CreateQueuePair = input(buffer)?;
    let sizes = QueueSizes {
        initiator_depth: asked.initiator_queue_depth,
        initiator_sges: asked.max_initiator_request_sge,
        inline_data: asked.max_inline_data,
        receive_depth: asked.receive as u32,
        receive_sges: (asked.receive >> 32) as u32,
    };
    create_pair(call, buffer, &asked, sizes, None)
}

/// QP_CREATE_WITH_SRQ.
pub fn create_with_shared_queue(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: CreateQueuePair = input(buffer)?;
    let shared = call.context.object::<SharedReceiveQueue>(asked.receive).map_err(|_| invalid_parameter(4))?;
    let sizes = QueueSizes {
        initiator_depth: asked.initiator_queue_depth,
        initiator_sges: asked.max_initiator_request_sge,
        inline_data: asked.max_inline_data,
        receive_depth: 0,
        receive_sges: 0,
    };
    create_pair(call, buffer, &asked, sizes, Some(shared))
}

fn create_pair(
    call: &Call,
    buffer: &mut Buffer,
    asked: &CreateQueuePair,
    sizes: QueueSizes,
    shared: Option<Shared<SharedReceiveQueue>>,
) -> Answered {
    check_output::<ResourceDescriptor>(buffer)?;
    let behind = buffer.input().get(size_of::<CreateQueuePair>()..).unwrap_or_default();
    let user = QueuePairContext::read_from_prefix(behind).map(|(user, _)| user).unwrap_or_default();
    let domain = call.context.object::<Domain>(asked.domain)?;
    let receive_queue =
        call.context.object::<CompletionQueue>(asked.receive_queue).map_err(|_| invalid_parameter(2))?;
    let initiator_queue =
        call.context.object::<CompletionQueue>(asked.initiator_queue).map_err(|_| invalid_parameter(3))?;
    let adapter = domain.adapter.clone();
    check(&sizes, &adapter.limits()?, shared.is_some())?;
    let layout = QueueLayout::new(sizes).ok_or(STATUS_INVALID_PARAMETER)?;
    let parents = [asked.domain, asked.receive_queue, asked.initiator_queue, asked.receive];
    let parents =
        if shared.is_some() { parents.as_slice() } else { parents.split_last().map_or(&[][..], |(_, own)| own) };
    let mut reservation = HandleReservation::try_new(call, parents, Some(&adapter.life))?;
    let pair = object::block(QueuePair {
        engine: EngineHandle::none(&mut reservation),
        adapter,
        context: call.context.clone(),
        initiator_queue,
        receive_queue,
        shared,
        sizes,
        layout,
        place: reservation.place(),
        requests: RequestMemory::try_new()?,
    })?;
    make(&pair, &domain, user.context)?;
    answer(buffer, &ResourceDescriptor { handle: reservation.fill(pair), ..ResourceDescriptor::default() })
}

/// The engine's part of a new queue pair.
#[inline(never)]
fn make(pair: &Shared<QueuePair>, domain: &Domain, context: u64) -> Result<(), NTSTATUS> {
    let shared = pair.shared.as_ref().map(|shared| shared.engine()).transpose()?;
    let settings = QueuePairSettings {
        receive_queue: pair.receive_queue.engine()?,
        initiator_queue: pair.initiator_queue.engine()?,
        context,
        receive_depth: pair.sizes.receive_depth,
        initiator_depth: pair.sizes.initiator_depth,
        receive_sges: pair.sizes.receive_sges,
        initiator_sges: pair.sizes.initiator_sges,
        inline_data: pair.sizes.inline_data,
        shared,
    };
    pair.engine.charge_pool(EnginePair::size(domain.engine()?, &settings).map_err(of_error)?)?;
    let engine = EnginePair::create(domain.engine()?, settings, consumer_object(pair)).map_err(of_error)?;
    engine.set_tag(pair.place);
    // SAFETY: no other context has the object yet.
    unsafe { pair.engine.set(engine) };
    Ok(())
}

/// QP_FLUSH: after everything in the rings.
pub fn flush(call: &Call, buffer: &mut Buffer) -> Answered {
    let pair = named::<QueuePair>(call, buffer)?;
    // Without rings nothing is posted.
    let _posted = pair.doorbell();
    pair.engine()?.flush();
    pair.publish();
    Ok(0)
}

/// BIND_WINDOW: after everything in the initiator ring.
pub fn bind_window(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: BindWindow = input(buffer)?;
    check_output::<BindWindowReply>(buffer)?;
    let pair = call.context.object::<QueuePair>(asked.queue_pair)?;
    let region = call.context.object::<MemoryRegion>(asked.region)?;
    let window = call.context.object::<MemoryWindow>(asked.window)?;
    let given = OperationFlags::from_bits(asked.flags).ok_or(STATUS_INVALID_PARAMETER)?;
    let flags = request_flags(RequestType::Bind, given).ok_or(STATUS_INVALID_PARAMETER)?;
    let mut rights = Rights::empty();
    rights.set(Rights::REMOTE_READ, given.contains(OperationFlags::ALLOW_READ));
    rights.set(Rights::REMOTE_WRITE | Rights::LOCAL_WRITE, given.contains(OperationFlags::ALLOW_WRITE));
    let (engine, window, region) = (pair.engine()?, window.engine()?, region.engine()?);
    let bind = |pass: &RingPass<'_>| {
        pair.take_all(pass)?;
        if !engine.was_connected() {
            return Err(STATUS_CONNECTION_INVALID);
        }
        if pair.requests.has_initiator_entries() {
            return Err(STATUS_NO_MORE_ENTRIES);
        }
        Ok(engine.bind(asked.context, flags, region, window, asked.address, asked.length, rights))
    };
    let bound = pair.requests.with_pass(bind, |pass| pair.take_all(pass));
    let token = window.remote_token().0;
    // However it ended, entries may have been taken, and the completion queue counts on this.
    pair.show_and_drain();
    bound?.map_err(of_error)?;
    answer(buffer, &BindWindowReply { remote_token: token, reserved: 0 })
}
