//! The loop itself: posts chains, takes completions as many at a time, counts both. It reads no clock and keeps nothing about a
//! request; whether a status was a failure is asked once a batch.

use core::sync::atomic::Ordering;

use ndkpi_sys::{
    ndkpi::{NDK_CQ, NDK_CQ_NOTIFY_ANY, NDK_OP_FLAGS, NDK_RESULT},
    nt::{NTSTATUS, STATUS_SUCCESS},
};
use softndk_ioctl::{Histogram, MeasureFlags, MeasureRequest, MeasuredOperation, Status};
use softndk_kernel::{
    irql,
    pool::{PoolBox, PoolSlice},
    thread,
};

use super::{
    interruption::Interruption,
    lane::{Lane, Target},
    slots::RequestSlot,
};
use crate::{
    driver::Driver,
    session::{object::Handle, pair::SPINS},
    tags,
};

/// Requests, and bytes, between two looks at whether to go on; at DISPATCH_LEVEL, where nothing else runs meanwhile, fewer.
const BATCH: u64 = 4096;
const BATCH_BYTES: u64 = 8 << 20;
const RAISED_BATCH: u64 = 64;
const RAISED_BATCH_BYTES: u64 = 64 << 10;
/// How long a thread waits for a notification before it looks for completions all the same, in nanoseconds.
const LOOK: u64 = 100_000_000;

/// A lane at work.
pub struct Chains<'a> {
    asked: &'a MeasureRequest,
    lane: &'a Lane<'a>,
    slots: &'a [RequestSlot],
    targets: PoolSlice<Target<'a>>,
    results: PoolSlice<NDK_RESULT>,
    remote_token: u32,
    /// Of the last request of a chain.
    flags: NDK_OP_FLAGS,
    /// Chains between two looks.
    batch: u64,
    slot: usize,
    target: usize,
    /// Posted and not completed, of each end.
    outstanding: u32,
    receiving: u32,
    pub posted: u64,
    pub completed: u64,
    pub received: u64,
    pub notifications: u64,
    /// What the completion queue's signal had counted before.
    notified: u32,
    pub latency: PoolBox<Histogram>,
}

impl<'a> Chains<'a> {
    pub fn try_new(asked: &'a MeasureRequest, lane: &'a Lane<'a>) -> Result<Self, Status> {
        let none = |_| Status::INSUFFICIENT_RESOURCES;
        let first = lane.target(0).ok_or(Status::INVALID_PARAMETER)?;
        let mut targets = PoolSlice::try_filled(tags::SESSION, lane.connections.len(), first).map_err(none)?;
        for (number, target) in targets.iter_mut().enumerate() {
            *target = lane.target(number).unwrap_or(first);
        }
        let chain = asked.chain_length as usize;
        let mut flags = NDK_OP_FLAGS::empty();
        flags.set(NDK_OP_FLAGS::INLINE, asked.flags.contains(MeasureFlags::INLINE));
        Ok(Self {
            asked,
            lane,
            slots: lane.slots.as_slice(),
            targets,
            results: PoolSlice::try_filled(tags::SESSION, chain, NDK_RESULT::zeroed()).map_err(none)?,
            remote_token: lane.server_memory.remote_token,
            flags,
            batch: batch(asked),
            slot: 0,
            target: 0,
            outstanding: 0,
            receiving: 0,
            posted: 0,
            completed: 0,
            received: 0,
            notifications: 0,
            notified: 0,
            latency: PoolBox::try_new(tags::SESSION, Histogram::EMPTY).map_err(none)?,
        })
    }

    /// Chains that are enough to have used every connection, slot and line of code once or more.
    pub fn warm_up(&mut self, interruption: &Interruption<'_>) -> Result<(), Status> {
        let chains = self.chain_count();
        let enough = (self.targets.len() as u64).max(self.slots.len() as u64).max(16);
        self.run(enough.min(chains), interruption)?;
        (self.posted, self.completed, self.received, self.notifications) = (0, 0, 0, 0);
        self.notified = self.notified();
        *self.latency = Histogram::EMPTY;
        Ok(())
    }

    fn chain_count(&self) -> u64 {
        self.asked.request_count.checked_div(u64::from(self.asked.chain_length)).unwrap_or(0)
    }

    /// All that was asked for. PASSIVE_LEVEL.
    pub fn run_all(&mut self, interruption: &Interruption<'_>) -> Result<(), Status> {
        self.run(self.chain_count(), interruption)
    }

    /// Posts so many chains and waits for them. PASSIVE_LEVEL.
    pub fn run(&mut self, chains: u64, interruption: &Interruption<'_>) -> Result<(), Status> {
        if self.asked.flags.intersects(MeasureFlags::NOTIFY | MeasureFlags::MEASURE_LATENCY) {
            return self.run_one_by_one(chains, interruption);
        }
        let mut left = chains;
        while left > 0 {
            interruption.check()?;
            let wanted = left.min(self.batch);
            let done = self.at_level(|chains| chains.advance(wanted))?;
            left = left.saturating_sub(done);
            if done < wanted {
                thread::pause();
            }
        }
        self.drain(interruption)
    }

    fn drain(&mut self, interruption: &Interruption<'_>) -> Result<(), Status> {
        while !self.at_level(|chains| chains.collect_until(0))? {
            interruption.check()?;
            thread::pause();
        }
        Ok(())
    }

    /// Does something at the level that was asked for: a batch of it.
    fn at_level<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        if self.asked.flags.contains(MeasureFlags::AT_DISPATCH) { irql::raised(|_| work(self)) } else { work(self) }
    }

    /// Posts up to so many chains, as completions make room. How many: fewer when nothing completes for a while.
    /// `IRQL <= DISPATCH_LEVEL`.
    fn advance(&mut self, chains: u64) -> Result<u64, Status> {
        let room = self.asked.depth.saturating_sub(self.asked.chain_length);
        for done in 0..chains {
            if !self.collect_until(room)? {
                return Ok(done);
            }
            self.post_chain()?;
        }
        Ok(chains)
    }

    /// Takes completions until no more than so many are outstanding; false when none comes for a while. `IRQL <= DISPATCH_LEVEL`.
    fn collect_until(&mut self, limit: u32) -> Result<bool, Status> {
        let mut spins = 0;
        while self.outstanding > limit || self.receiving > limit {
            if self.collect()? {
                spins = 0;
            } else {
                spins += 1;
                if spins == SPINS {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Takes what is there of both ends; whether there was any.
    fn collect(&mut self) -> Result<bool, Status> {
        let count = take(self.lane.client.queue.handle(), &mut self.results)?;
        self.outstanding = self.outstanding.checked_sub(count).ok_or(Status::IO_DEVICE_ERROR)?;
        self.completed += u64::from(count);
        if self.receiving == 0 {
            return Ok(count != 0);
        }
        let received = take(self.lane.server.queue.handle(), &mut self.results)?;
        self.receiving = self.receiving.checked_sub(received).ok_or(Status::IO_DEVICE_ERROR)?;
        self.received += u64::from(received);
        Ok(count | received != 0)
    }

    fn post_chain(&mut self) -> Result<(), Status> {
        let Some(&target) = self.targets.get(self.target) else { return Err(Status::INVALID_PARAMETER) };
        self.target += 1;
        if self.target == self.targets.len() {
            self.target = 0;
        }
        let chain = self.asked.chain_length;
        let first = self.slot;
        if self.asked.operation == MeasuredOperation::SEND {
            for _ in 0..chain {
                self.post_receive(target)?;
            }
            self.slot = first;
        }
        let deferred = self.flags | NDK_OP_FLAGS::DEFER;
        for _ in 1..chain {
            self.post(target, deferred)?;
        }
        self.post(target, self.flags)?;
        self.posted += u64::from(chain);
        Ok(())
    }

    /// The next stride of the region.
    fn next_slot(&mut self) -> Result<RequestSlot, Status> {
        let Some(&slot) = self.slots.get(self.slot) else { return Err(Status::INVALID_PARAMETER) };
        self.slot += 1;
        if self.slot == self.slots.len() {
            self.slot = 0;
        }
        Ok(slot)
    }

    fn post(&mut self, target: Target<'_>, flags: NDK_OP_FLAGS) -> Result<(), Status> {
        let slot = self.next_slot()?;
        let (context, token) = (core::ptr::null_mut(), self.remote_token);
        let status = match self.asked.operation {
            MeasuredOperation::READ => target.client.read(context, slot.sges(), slot.remote, token, flags),
            MeasuredOperation::WRITE => target.client.write(context, slot.sges(), slot.remote, token, flags),
            _ => target.client.send(context, slot.sges(), flags),
        };
        self.outstanding += 1;
        accepted(status)
    }

    fn post_receive(&mut self, target: Target<'_>) -> Result<(), Status> {
        let status = target.server.receive(core::ptr::null_mut(), self.next_slot()?.receive_sges());
        self.receiving += 1;
        accepted(status)
    }

    /// The loop with a clock or with notifications: one chain at a time.
    fn run_one_by_one(&mut self, chains: u64, interruption: &Interruption<'_>) -> Result<(), Status> {
        let clock = &Driver::get().ok_or(Status::DEVICE_REMOVED)?.clock;
        let notify = self.asked.flags.contains(MeasureFlags::NOTIFY);
        for _ in 0..chains {
            interruption.check()?;
            let begun = clock.now();
            self.at_level(Self::post_chain)?;
            if notify {
                self.await_notifications(interruption)?;
            } else {
                self.drain(interruption)?;
            }
            self.latency.record(clock.now().saturating_sub(begun));
        }
        Ok(())
    }

    /// Waits with the client's completion queue until all is done. An arm is satisfied by what is there already.
    fn await_notifications(&mut self, interruption: &Interruption<'_>) -> Result<(), Status> {
        let (queue, signal) = (self.lane.client.queue.handle(), &self.lane.client.signal);
        while self.outstanding > 0 {
            queue.arm(NDK_CQ_NOTIFY_ANY);
            interruption.wait(&signal.arrived, LOOK);
            interruption.check()?;
            if signal.failed() {
                return Err(Status::IO_DEVICE_ERROR);
            }
            while self.collect()? {}
        }
        self.notifications = u64::from(self.notified().wrapping_sub(self.notified));
        self.drain(interruption)
    }

    fn notified(&self) -> u32 {
        self.lane.client.signal.notifications.load(Ordering::Relaxed)
    }
}

fn accepted(status: NTSTATUS) -> Result<(), Status> {
    if status == STATUS_SUCCESS { Ok(()) } else { Err(Status(status)) }
}

/// Takes completions; how many, if all are successes.
fn take(queue: Handle<'_, NDK_CQ>, results: &mut [NDK_RESULT]) -> Result<u32, Status> {
    let count = queue.poll_first_form(results);
    let taken = results.get(..count as usize).ok_or(Status::IO_DEVICE_ERROR)?;
    // STATUS_SUCCESS has no bits.
    if taken.iter().fold(0, |all, result| all | result.Status) == STATUS_SUCCESS {
        return Ok(count);
    }
    let failed = taken.iter().map(|result| result.Status).find(|status| *status != STATUS_SUCCESS);
    Err(Status(failed.unwrap_or(Status::IO_DEVICE_ERROR.0)))
}

/// Chains between two looks at whether to go on: one at least.
fn batch(asked: &MeasureRequest) -> u64 {
    let raised = asked.flags.contains(MeasureFlags::AT_DISPATCH);
    let (requests, bytes) = if raised { (RAISED_BATCH, RAISED_BATCH_BYTES) } else { (BATCH, BATCH_BYTES) };
    let fitting = bytes / u64::from(asked.request_length.max(1));
    (requests.min(fitting) / u64::from(asked.chain_length.max(1))).max(1)
}
