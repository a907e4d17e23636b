//! A transfer over a pair: register, post in chains, collect, take the registrations back.
//!
//! The client posts everything; the server only receives. Requests complete in their order, so the number in a completion says
//! how many are done, silent ones included. Which were silent is known from the post, so that a completion that is missing or one
//! too many shows in the counts. Whatever happens, what was posted is waited for before the memory goes: by its completion, or,
//! when completions do not come any more, by closing the queue pairs.

use core::{ptr, sync::atomic::Ordering};

use ndkpi_sys::{
    ndkpi::{
        NDK_CQ_NOTIFY_ANY, NDK_CQ_NOTIFY_SOLICITED, NDK_OP_FLAGS, NDK_RESULT_EX, NDK_SGE,
        NdkOperationTypeReceiveAndInvalidate,
    },
    nt::{NTSTATUS, STATUS_SUCCESS},
};
use softndk_ioctl::{
    BufferLayout, EndReason, Operation, Status, Stride, TransferFlags, TransferRequest, TransferResult, segment,
};
use softndk_kernel::{
    irp::Request,
    pool::{PoolBox, PoolSlice},
};
use zerocopy::IntoBytes;

use super::{
    consumer::check,
    cursor::Cursor,
    memory::{Part, Purpose, Registered, UserBuffer},
    object::SgeList,
    pair::{Ends, Pair, REST, SPINS},
    request::{RequestWait, Wake},
};
use crate::{driver::Driver, tags};

pub const NANOSECONDS_PER_MILLISECOND: u64 = 1_000_000;
/// Completions taken at a time.
const BATCH: usize = 16;
/// How long a thread waits for a notification before it looks for completions all the same, in nanoseconds: moderation may hold
/// a notification back for as long as it likes.
const LOOK: u64 = 100_000_000;
/// Rounds of posting and polling between two looks at clock and cancellation.
const ROUNDS: u32 = 64;

/// Runs a transfer and writes the result page. PASSIVE_LEVEL.
#[inline(never)]
pub fn run(
    driver: &'static Driver,
    request: &Request,
    (asked, layout): (&TransferRequest, &BufferLayout),
    pair: &Pair,
    request_wait: &RequestWait<'_>,
) -> Result<usize, Status> {
    asked.check_against(&pair.limits)?;
    let buffer = UserBuffer::of(request, layout)?;
    let result = PoolBox::try_new(tags::SESSION, TransferResult::EMPTY);
    let mut result = result.map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
    let outcome = transfer(driver, (asked, layout), (pair, &buffer), &request_wait.with(pair), &mut result);
    // Why a connection has ended is asked here, where nothing of the pair is held any more: the answer is in whether the adapters
    // can be opened, and one that goes waits for the pair.
    match outcome {
        Ok(()) => {}
        Err(End::Given(status)) => return Err(status),
        Err(End::Disconnected) => return Err(pair.disconnect_status(driver)),
        Err(End::Failed(status)) => return Err(pair.cause(driver, status)),
    }
    if (result.failed != 0 || pair.is_disconnected()) && pair.disconnect_status(driver) == Status::DEVICE_REMOVED {
        // What ended the connection was the end of its adapter, even if no event has said so yet.
        return Err(Status::DEVICE_REMOVED);
    }
    buffer.write_result(result.as_bytes())?;
    Ok(size_of::<TransferResult>())
}

/// Why there is no result.
enum End {
    /// The status says it.
    Given(Status),
    /// The connection had ended.
    Disconnected,
    /// It may have ended with an adapter.
    Failed(Status),
}

impl From<Status> for End {
    fn from(status: Status) -> Self {
        Self::Given(status)
    }
}

/// The transfer itself, with the pair's ends held.
#[inline(never)]
fn transfer(
    driver: &'static Driver,
    (asked, layout): (&TransferRequest, &BufferLayout),
    (pair, buffer): (&Pair, &UserBuffer),
    request_wait: &RequestWait<'_>,
    result: &mut TransferResult,
) -> Result<(), End> {
    let ends = pair.ends.lock();
    if pair.is_disconnected() {
        return Err(End::Disconnected);
    }
    let ends = ends.as_ref().ok_or_else(|| pair.end_status())?;
    let now = || driver.clock.now();
    let parts = Parts::try_new(buffer, layout)?;
    let begin = now();
    let memory = Memory::try_new(ends, asked, &parts, request_wait).map_err(End::Failed)?;
    result.setup = now().saturating_sub(begin);
    let mut transfer = Transfer::try_new(ends, asked, layout, &memory, result, &now)?;
    let gave_up = transfer.run(request_wait);
    let arrived = if gave_up.is_ok() { transfer.see_it_arrive(request_wait) } else { Ok(()) };
    let (invalidated, drained) = (transfer.invalidated, transfer.is_drained());
    drop(transfer);
    let broken = result.failed != 0 || arrived.is_err();
    if !drained {
        // SAFETY: the lock on the ends is held, the transfer is over, and release does not post on a connection that is no more.
        unsafe { ends.abandon(pair) };
    }
    if broken {
        // A failed request ends the pair's connection, whichever end hears of it first.
        pair.set_disconnected();
    }
    let finished = now();
    let broken = broken || pair.is_disconnected();
    let ended = memory.release(ends, asked, request_wait, invalidated, broken);
    // Deregisters and unmaps.
    drop(memory);
    result.teardown = now().saturating_sub(finished);
    gave_up?;
    arrived?;
    // Of a broken connection nothing is taken back.
    ended.map_err(End::Failed)
}

/// An empty Send, which perhaps invalidates a token, into an empty receive.
fn send_empty(ends: &Ends, token: Option<u32>, request_wait: &RequestWait<'_>) -> Result<(), Status> {
    check(ends.server.receive(SgeList::EMPTY))?;
    let (client, flags) = (ends.client.queue_pair.handle(), NDK_OP_FLAGS::empty());
    check(match token {
        Some(token) => client.send_and_invalidate(ptr::null_mut(), SgeList::EMPTY, flags, token),
        None => client.send(ptr::null_mut(), SgeList::EMPTY, flags),
    })?;
    check(ends.client.wait_for_one(request_wait)?.Status)?;
    check(ends.server.wait_for_message(request_wait)?.Status)
}

/// Memory lists of source and destination.
struct Parts {
    source: Option<Part>,
    destination: Option<Part>,
}

impl Parts {
    fn try_new(buffer: &UserBuffer, layout: &BufferLayout) -> Result<Self, Status> {
        Ok(Self {
            source: buffer.part(layout.source, layout.region_length)?,
            destination: buffer.part(layout.destination, layout.region_length)?,
        })
    }
}

/// Both ends' memory as the adapters know it.
struct Memory<'a> {
    client: Registered,
    server: Registered,
    /// The client's part in system address space, for inline requests.
    inline: Option<super::memory::MappedPart<'a>>,
}

impl<'a> Memory<'a> {
    fn try_new(
        ends: &Ends,
        asked: &TransferRequest,
        parts: &'a Parts,
        request_wait: &RequestWait<'_>,
    ) -> Result<Self, Status> {
        let (Some(source), Some(destination)) = (&parts.source, &parts.destination) else {
            return Ok(Self { client: Registered::NOTHING, server: Registered::NOTHING, inline: None });
        };
        let read = asked.operation == Operation::READ;
        let (client_part, server_part) = if read { (destination, source) } else { (source, destination) };
        let client_purpose = Purpose { written: read, remote: false };
        // Only what the client may address can be invalidated by it.
        let remote = asked.operation != Operation::SEND || asked.flags.contains(TransferFlags::REMOTE_INVALIDATE);
        let server_purpose = Purpose { written: !read, remote };
        let server = Registered::try_new(&ends.server, server_part, asked.region_kind, server_purpose, request_wait)?;
        let client = Registered::try_new(&ends.client, client_part, asked.region_kind, client_purpose, request_wait)?;
        let inline = asked.flags.contains(TransferFlags::INLINE);
        let inline = if inline { Some(client_part.map()?) } else { None };
        Ok(Self { client, server, inline })
    }

    /// Takes fast registrations back where the connection still lives; closing does the rest.
    fn release(
        &self,
        ends: &Ends,
        asked: &TransferRequest,
        request_wait: &RequestWait<'_>,
        invalidated: Invalidated,
        broken: bool,
    ) -> Result<(), Status> {
        if broken {
            return Ok(());
        }
        if self.server.fast && !invalidated.server {
            if asked.flags.contains(TransferFlags::REMOTE_INVALIDATE) && asked.operation != Operation::SEND {
                send_empty(ends, Some(self.server.remote_token), request_wait)?;
            } else {
                check(self.server.invalidate(&ends.server, request_wait)?.Status)?;
            }
        }
        if self.client.fast && !invalidated.client {
            check(self.client.invalidate(&ends.client, request_wait)?.Status)?;
        }
        Ok(())
    }
}

/// What the last request has invalidated already.
#[derive(Clone, Copy, Default)]
struct Invalidated {
    client: bool,
    server: bool,
}

struct Transfer<'a> {
    ends: &'a Ends,
    asked: &'a TransferRequest,
    memory: &'a Memory<'a>,
    result: &'a mut TransferResult,
    now: &'a dyn Fn() -> u64,
    sges: PoolSlice<NDK_SGE>,
    receive_sges: PoolSlice<NDK_SGE>,
    /// Where completions are taken to, of either end.
    results: PoolSlice<NDK_RESULT_EX>,
    /// When each outstanding chain was begun, by chain number modulo its length.
    chain_starts: PoolSlice<u64>,
    /// Whether each outstanding request was posted silent, by the low bits of its number: the length is a power of two.
    silent: PoolSlice<bool>,
    to_post: Cursor,
    to_receive: Cursor,
    done: Cursor,
    /// Numbers of the last request posted and done; the first is 1.
    posted: u64,
    completed: u64,
    receives_posted: u64,
    receives_done: u64,
    /// A receive has ended without a message.
    receive_failed: bool,
    /// The last request posted completes silently: nothing would tell when it is done.
    tail_silent: bool,
    /// Notifications of the server's completion queue that were seen.
    solicited: u32,
    invalidated: Invalidated,
    stop: bool,
}

impl<'a> Transfer<'a> {
    fn try_new(
        ends: &'a Ends,
        asked: &'a TransferRequest,
        layout: &BufferLayout,
        memory: &'a Memory<'a>,
        result: &'a mut TransferResult,
        now: &'a dyn Fn() -> u64,
    ) -> Result<Self, Status> {
        let none = |_| Status::INSUFFICIENT_RESOURCES;
        let (sges, depth) = (asked.sge_count as usize, asked.depth as usize);
        let cursor = Cursor::new(layout.region_length, asked.request_length);
        Ok(Self {
            ends,
            asked,
            memory,
            result,
            now,
            sges: PoolSlice::try_filled(tags::SESSION, sges, NDK_SGE::zeroed()).map_err(none)?,
            receive_sges: PoolSlice::try_filled(tags::SESSION, sges, NDK_SGE::zeroed()).map_err(none)?,
            results: PoolSlice::try_filled(tags::SESSION, BATCH, NDK_RESULT_EX::zeroed()).map_err(none)?,
            chain_starts: PoolSlice::try_filled(tags::SESSION, depth, 0).map_err(none)?,
            silent: PoolSlice::try_filled(tags::SESSION, depth.next_power_of_two(), false).map_err(none)?,
            to_post: cursor,
            to_receive: cursor,
            done: cursor,
            posted: 0,
            completed: 0,
            receives_posted: 0,
            receives_done: 0,
            receive_failed: false,
            tail_silent: false,
            solicited: ends.server.signal.notifications.load(Ordering::Relaxed),
            invalidated: Invalidated::default(),
            stop: false,
        })
    }

    /// Posts and collects until all is done. What was posted is waited for, unless completions have stopped coming.
    fn run(&mut self, request_wait: &RequestWait<'_>) -> Result<(), Status> {
        if self.asked.flags.contains(TransferFlags::SOLICITED) {
            self.ends.server.queue.handle().arm(NDK_CQ_NOTIFY_SOLICITED);
        }
        let started = (self.now)();
        let limit = started.saturating_add(u64::from(self.asked.time_budget) * NANOSECONDS_PER_MILLISECOND);
        let mut gave_up = Ok(());
        let mut rounds = 0;
        let mut spins = 0;
        loop {
            let posted = self.post_chains();
            let left = (self.asked.time_budget != 0 && !self.stop).then(|| limit.saturating_sub((self.now)()));
            if self.await_notification(request_wait, left) {
                rounds = ROUNDS;
            }
            // Whatever has arrived was completed before the event that tells the end.
            let disconnected = request_wait.is_disconnected();
            let collected = self.collect();
            if collected {
                spins = 0;
            }
            if self.is_finished() {
                break;
            }
            if gave_up.is_err() && self.result.failed != 0 {
                // Nothing waits for what a broken connection may never tell.
                break;
            }
            if disconnected && !posted && (self.completed == self.posted || self.tail_silent) {
                // An end that comes leaves receives where they are, and they make no room.
                break;
            }
            rounds += 1;
            if rounds >= ROUNDS {
                rounds = 0;
                if gave_up.is_ok() {
                    gave_up = request_wait.check();
                    self.stop |= gave_up.is_err();
                }
                if self.asked.time_budget != 0 && !self.stop && (self.now)() >= limit {
                    self.stop = true;
                    self.result.end_reason = EndReason::TIME_BUDGET;
                }
            }
            if !posted && !collected {
                spins += 1;
                if self.idle(spins, request_wait)? {
                    rounds = ROUNDS;
                }
            }
        }
        self.result.elapsed = (self.now)().saturating_sub(started);
        gave_up
    }

    /// Across a stream success is no arrival: a Send that succeeded may find no receive any more, and what was written is in
    /// place when a Send behind it has arrived.
    fn see_it_arrive(&self, request_wait: &RequestWait<'_>) -> Result<(), End> {
        if self.result.failed != 0 {
            return Ok(());
        }
        if self.receive_failed || self.receives_done < self.receives_posted || self.wants_more() {
            return Err(End::Disconnected);
        }
        if self.asked.operation != Operation::WRITE || self.posted == 0 {
            return Ok(());
        }
        let of = |status| if request_wait.is_disconnected() { End::Disconnected } else { End::Failed(status) };
        send_empty(self.ends, None, request_wait).map_err(of)
    }

    /// Nothing to post and nothing arrived: now and then waits a moment. Whether it is time to look round.
    fn idle(&mut self, spins: u32, request_wait: &RequestWait<'_>) -> Result<bool, Status> {
        let client = &self.ends.client;
        if client.signal.failed() || self.ends.server.signal.failed() {
            return Err(Status::IO_DEVICE_ERROR);
        }
        let over_the_limit = spins.is_multiple_of(SPINS);
        if over_the_limit {
            request_wait.pause(&[&client.signal.arrived], Some(REST));
        }
        Ok(over_the_limit)
    }

    /// With notifications, completions are looked for only after one has come, or a call, or the time is over. Whether it is
    /// time to look round.
    fn await_notification(&mut self, request_wait: &RequestWait<'_>, limit: Option<u64>) -> bool {
        let client = &self.ends.client;
        if !self.ends.notify || self.posted == self.completed {
            return false;
        }
        let before = client.signal.notifications.load(Ordering::Relaxed);
        client.queue.handle().arm(NDK_CQ_NOTIFY_ANY);
        let limit = limit.map_or(LOOK, |limit| limit.min(LOOK));
        let woken = request_wait.pause(&[&client.signal.arrived], Some(limit));
        let taken = client.signal.notifications.load(Ordering::Relaxed).wrapping_sub(before);
        self.result.notifications += u64::from(taken);
        woken != Wake::Event
    }

    fn wants_more(&self) -> bool {
        !self.stop && (self.asked.request_count == 0 || self.posted < self.asked.request_count)
    }

    /// Every completion has come, so that nothing that was posted touches the memory any more.
    fn is_drained(&self) -> bool {
        self.completed == self.posted && self.receives_done >= self.receives_posted
    }

    fn is_finished(&self) -> bool {
        let drained = self.completed == self.posted && self.receives_done >= self.receives_wanted();
        drained && !self.wants_more()
    }

    /// Receives that will complete: all of them, unless the connection broke.
    fn receives_wanted(&self) -> u64 {
        if self.result.failed == 0 { self.receives_posted } else { 0 }
    }

    /// How many requests there is room for. A Send that succeeded may not have taken its receive yet.
    fn capacity(&self) -> u64 {
        let receives = self.receives_posted.saturating_sub(self.receives_done);
        let outstanding = self.posted.saturating_sub(self.completed).max(receives);
        u64::from(self.asked.depth).saturating_sub(outstanding)
    }

    /// Posts as many chains as there is room for; whether it posted any.
    fn post_chains(&mut self) -> bool {
        let mut any = false;
        while self.wants_more() {
            let rest = match self.asked.request_count {
                0 => u64::MAX,
                count => count.saturating_sub(self.posted),
            };
            let chain = u64::from(self.asked.chain_length).min(rest);
            if self.capacity() < chain {
                break;
            }
            any = true;
            self.post_chain(chain);
        }
        if self.stop && self.tail_silent && self.result.failed == 0 && self.capacity() > 0 {
            // One more, so that the silent ones before it are seen to be done.
            self.post_chain(1);
            any = true;
        }
        any
    }

    fn post_chain(&mut self, chain: u64) {
        if self.asked.operation == Operation::SEND {
            for _ in 0..chain {
                if !self.post_receive() {
                    return;
                }
            }
        }
        if self.asked.flags.contains(TransferFlags::MEASURE_LATENCY) {
            let now = (self.now)();
            let index = self.chain_index(self.posted + 1);
            if let Some(start) = self.chain_starts.get_mut(index) {
                *start = now;
            }
        }
        // No further chain fits behind this one: its last request has to be heard of.
        // Numbers of completions are the adapter's word: they may be beyond what was posted.
        let outstanding = self.posted.saturating_sub(self.completed).saturating_add(chain);
        let fills = outstanding.saturating_add(u64::from(self.asked.chain_length)) > u64::from(self.asked.depth);
        for position in 1..=chain {
            let last = position == chain;
            let flags = self.flags(last, last && (fills || self.stop));
            self.tail_silent = flags.contains(NDK_OP_FLAGS::SILENT_SUCCESS);
            let status = self.post(flags);
            if status != STATUS_SUCCESS {
                self.result.record_failure(Status(status));
                self.result.end_reason = EndReason::FAILURE;
                self.stop = true;
                return;
            }
            self.posted += 1;
            self.result.posted += 1;
            let index = self.silent_index(self.posted);
            if let Some(silent) = self.silent.get_mut(index) {
                *silent = self.tail_silent;
            }
        }
    }

    /// Where it is kept whether a request is silent: no more than the depth are outstanding.
    fn silent_index(&self, number: u64) -> usize {
        number as usize & self.silent.len().wrapping_sub(1)
    }

    fn was_silent(&self, number: u64) -> bool {
        self.silent.get(self.silent_index(number)).is_some_and(|&silent| silent)
    }

    /// Where the start of the chain of a request is kept.
    fn chain_index(&self, number: u64) -> usize {
        let chain = number.saturating_sub(1) / u64::from(self.asked.chain_length.max(1));
        (chain % u64::from(self.asked.depth.max(1))) as usize
    }

    /// The request posted next is the last of all.
    fn is_last(&self) -> bool {
        self.posted + 1 == self.asked.request_count
    }

    /// The flags of the request posted next.
    fn flags(&self, ends_chain: bool, must_signal: bool) -> NDK_OP_FLAGS {
        let asked = self.asked.flags;
        let silent = match u64::from(self.asked.signal_interval) {
            0 => !ends_chain && asked.contains(TransferFlags::SILENT_SUCCESS),
            interval => !must_signal && !self.is_last() && !(self.posted + 1).is_multiple_of(interval),
        };
        let mut flags = NDK_OP_FLAGS::empty();
        flags.set(NDK_OP_FLAGS::DEFER, !ends_chain);
        flags.set(NDK_OP_FLAGS::SILENT_SUCCESS, silent);
        flags.set(NDK_OP_FLAGS::READ_FENCE, asked.contains(TransferFlags::READ_FENCE));
        flags.set(NDK_OP_FLAGS::INLINE, asked.contains(TransferFlags::INLINE));
        flags.set(NDK_OP_FLAGS::SEND_AND_SOLICIT_EVENT, asked.contains(TransferFlags::SOLICITED));
        let invalidates = asked.contains(TransferFlags::LOCAL_INVALIDATE) && self.is_last();
        flags.set(NDK_OP_FLAGS::RDMA_READ_LOCAL_INVALIDATE, invalidates);
        flags
    }

    /// Posts the next request of the client.
    fn post(&mut self, flags: NDK_OP_FLAGS) -> NTSTATUS {
        let stride = self.to_post.next();
        let count = if stride.length == 0 { 0 } else { self.asked.sge_count };
        let sges = self.sges.get_mut(..count as usize).unwrap_or_default();
        for (index, sge) in sges.iter_mut().enumerate() {
            let part = segment(stride.length, count, index as u32).unwrap_or(Stride { offset: 0, length: 0 });
            *sge = self.memory.client.sge(stride.offset + part.offset, part.length);
            if let Some(mapped) = &self.memory.inline {
                let address = mapped.address().wrapping_add((stride.offset + part.offset) as usize);
                sge.Address.VirtualAddress = address.cast();
            }
        }
        let queue_pair = self.ends.client.queue_pair.handle();
        // SAFETY: the list stays as it is for the call, the memory until the completion.
        let sges = unsafe { SgeList::new(sges) };
        let context = ptr::without_provenance_mut((self.posted + 1) as usize);
        let remote = self.memory.server.address + stride.offset;
        let token = self.memory.server.remote_token;
        match self.asked.operation {
            Operation::READ => queue_pair.read(context, sges, remote, token, flags),
            Operation::WRITE => queue_pair.write(context, sges, remote, token, flags),
            _ if self.asked.flags.contains(TransferFlags::REMOTE_INVALIDATE) && self.is_last() => {
                queue_pair.send_and_invalidate(context, sges, flags, token)
            }
            _ => queue_pair.send(context, sges, flags),
        }
    }

    /// Posts the server's next receive; false ends the transfer.
    fn post_receive(&mut self) -> bool {
        let stride = self.to_receive.next();
        let count = if stride.length == 0 { 0 } else { self.asked.sge_count };
        let sges = self.receive_sges.get_mut(..count as usize).unwrap_or_default();
        for (index, sge) in sges.iter_mut().enumerate() {
            let part = segment(stride.length, count, index as u32).unwrap_or(Stride { offset: 0, length: 0 });
            *sge = self.memory.server.sge(stride.offset + part.offset, part.length);
        }
        // SAFETY: the list stays as it is for the call, the memory until the completion.
        let status = self.ends.server.receive(unsafe { SgeList::new(sges) });
        if status != STATUS_SUCCESS {
            self.result.record_failure(Status(status));
            self.result.end_reason = EndReason::FAILURE;
            self.stop = true;
            return false;
        }
        self.receives_posted += 1;
        true
    }

    /// Takes completions of both ends; whether there were any.
    fn collect(&mut self) -> bool {
        let mut any = false;
        loop {
            let count = self.ends.client.queue.handle().poll(&mut self.results) as usize;
            for index in 0..count {
                if let Some(&result) = self.results.get(index) {
                    self.complete(&result);
                }
            }
            any |= count != 0;
            if count < BATCH {
                break;
            }
        }
        self.collect_receives() || any
    }

    fn collect_receives(&mut self) -> bool {
        if self.receives_done == self.receives_posted {
            return false;
        }
        let count = self.ends.server.queue.handle().poll(&mut self.results) as usize;
        self.receives_done += count as u64;
        self.receive_failed |= self.results.iter().take(count).any(|result| result.Status != STATUS_SUCCESS);
        let token = self.memory.server.remote_token as u64;
        let invalidated = |result: &NDK_RESULT_EX| {
            result.Type == NdkOperationTypeReceiveAndInvalidate && result.TypeSpecificCompletionOutput as u64 == token
        };
        self.invalidated.server |= self.results.iter().take(count).any(invalidated);
        if self.asked.flags.contains(TransferFlags::SOLICITED) {
            self.solicit();
        }
        count != 0
    }

    /// Counts the notifications of solicited completions and asks for the next.
    fn solicit(&mut self) {
        let latest = self.ends.server.signal.notifications.load(Ordering::Relaxed);
        let taken = latest.wrapping_sub(core::mem::replace(&mut self.solicited, latest));
        self.result.notifications += u64::from(taken);
        self.ends.server.queue.handle().arm(NDK_CQ_NOTIFY_SOLICITED);
    }

    /// Counts one completion, and the silent ones before it.
    fn complete(&mut self, result: &NDK_RESULT_EX) {
        let number = result.RequestContext.addr() as u64;
        let succeeded_until = if result.Status == STATUS_SUCCESS { number } else { number.saturating_sub(1) };
        // The read that invalidates is the last of all.
        let last = result.Status == STATUS_SUCCESS && number == self.asked.request_count;
        self.invalidated.client |= last && self.asked.flags.contains(TransferFlags::LOCAL_INVALIDATE);
        while self.completed < succeeded_until {
            self.result.bytes += u64::from(self.done.next().length);
            self.completed += 1;
            self.result.silent += u64::from(self.was_silent(self.completed));
        }
        if result.Status == STATUS_SUCCESS {
            self.result.completed += 1;
        } else {
            self.result.record_failure(Status(result.Status));
            self.result.end_reason = EndReason::FAILURE;
            self.done.next();
            self.completed = self.completed.max(number);
            self.stop = true;
        }
        if self.asked.flags.contains(TransferFlags::MEASURE_LATENCY) {
            let ends_chain =
                number.is_multiple_of(u64::from(self.asked.chain_length.max(1))) || number == self.asked.request_count;
            if let Some(start) = self.chain_starts.get(self.chain_index(number)).filter(|_| ends_chain) {
                let latency = (self.now)().saturating_sub(*start);
                self.result.latency.record(latency);
            }
        }
    }
}
