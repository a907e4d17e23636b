//! Measurements: the same thing again and again over connections of the request's own, as fast as it goes.
//!
//! Everything is made before the time is taken and closed afterwards, within the request; a measurement of which anything failed has no
//! result. The loops are apart from those of transfers, which can do more and cost more.

mod call_status;
mod chains;
mod connect;
mod connection;
mod fast_register;
mod interruption;
mod lane;
mod notify;
mod slots;
mod team;

use softndk_ioctl::{BufferLayout, MeasureRequest, MeasureResult, MeasuredOperation, Status};
use softndk_kernel::{
    irp::Request,
    irql,
    pool::{PoolArray, PoolBox},
};
use zerocopy::IntoBytes;

use self::{
    chains::Chains,
    interruption::{Interruption, Signals},
    lane::{Lane, LaneParts, LanePlan},
    team::{Member, Team},
};
use super::{
    consumer::OpenedAdapter,
    memory::UserBuffer,
    pair::{are_there, choose_addresses, serves},
    request::RequestWait,
};
use crate::{control::adapter_list, driver::Driver, tags};

type Lanes<'a> = PoolArray<PoolBox<Lane<'a>>>;

/// Between the first post and the last completion, by the driver's clock.
#[derive(Clone, Copy)]
struct TimedSpan {
    begun: u64,
    ended: u64,
}

impl TimedSpan {
    const fn length(&self) -> u64 {
        self.ended.saturating_sub(self.begun)
    }
}

/// Measures and writes the result page. PASSIVE_LEVEL.
#[inline(never)]
pub fn run(
    driver: &'static Driver,
    request: &Request,
    (asked, layout): (&MeasureRequest, &BufferLayout),
    request_wait: &RequestWait<'_>,
) -> Result<usize, Status> {
    let buffer = UserBuffer::of(request, layout)?;
    if asked.processor_count > irql::processor_count() {
        return Err(Status::INVALID_PARAMETER);
    }
    let result = PoolBox::try_new(tags::SESSION, MeasureResult::EMPTY);
    let mut result = result.map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
    let interfaces = [interface(driver, asked.client_adapter)?, interface(driver, asked.server_adapter)?];
    let addresses = choose_addresses(interfaces, asked.family)?;
    let signals = PoolBox::try_new(tags::SESSION, Signals::new()).map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
    let plan = LanePlan { driver, asked, addresses, signals: &signals };
    let begun = driver.clock.now();
    let measured = measure(&plan, &buffer, layout, request_wait, &mut result);
    let measured = measured.map_err(|status| cause(&plan, interfaces, request_wait, status))?;
    result.setup = measured.begun.saturating_sub(begun);
    result.teardown = driver.clock.now().saturating_sub(measured.ended);
    buffer.write_result(result.as_bytes())?;
    Ok(size_of::<MeasureResult>())
}

fn interface(driver: &'static Driver, index: u32) -> Result<u32, Status> {
    adapter_list::open(driver, index).as_ref().map(OpenedAdapter::interface).map_err(|status| *status)
}

/// Why a measurement failed: its request ended, an adapter went, or a connection.
fn cause(plan: &LanePlan<'_>, interfaces: [u32; 2], request_wait: &RequestWait<'_>, status: Status) -> Status {
    if let Err(ended) = request_wait.check() {
        return ended;
    }
    let ended = status == Status::CANCELLED || status == Status::CONNECTION_DISCONNECTED;
    let serve = interfaces.iter().all(|&interface| serves(plan.driver, interface));
    if !serve || !are_there(plan.addresses.into_iter().zip(interfaces)) {
        Status::DEVICE_REMOVED
    } else if ended {
        Status::CONNECTION_DISCONNECTED
    } else {
        status
    }
}

/// Makes the lanes, runs what was asked for on them, and closes them; when it ran.
#[inline(never)]
fn measure(
    plan: &LanePlan<'_>,
    buffer: &UserBuffer,
    layout: &BufferLayout,
    request_wait: &RequestWait<'_>,
    result: &mut MeasureResult,
) -> Result<TimedSpan, Status> {
    let asked = plan.asked;
    let count = asked.processor_count as usize;
    let offsets = (layout.source, layout.destination);
    let parts = parts(buffer, asked, offsets)?;
    let home = (asked.operation == MeasuredOperation::NOTIFY).then(|| notify::home(irql::processor_count()));
    let lanes: Lanes<'_> = PoolArray::try_from_fn(tags::SESSION, count, |number| {
        let parts = parts.get(number).ok_or(Failed(Status::INVALID_PARAMETER))?;
        Lane::try_new(plan, parts, home, request_wait).map_err(Failed)
    })
    .map_err(|Failed(status)| status)?;
    let interruption = Interruption { signals: plan.signals, request_wait: Some(request_wait) };
    result.processor_count = asked.processor_count;
    let (Some(lane), Some(part)) = (lanes.first(), parts.first()) else { return Err(Status::INVALID_PARAMETER) };
    match asked.operation {
        MeasuredOperation::CONNECT => connect::run(lane, asked.request_count, &interruption, result),
        MeasuredOperation::FAST_REGISTER => {
            fast_register::run(lane, asked, part.source.as_ref(), &interruption, result)
        }
        MeasuredOperation::NOTIFY => notify::run(lane, asked, home.unwrap_or(0), &interruption, result),
        MeasuredOperation::IDLE => {
            let now = plan.driver.clock.now();
            Ok(TimedSpan { begun: now, ended: now })
        }
        _ => transfer(asked, &lanes, &interruption, result),
    }
}

fn parts(buffer: &UserBuffer, asked: &MeasureRequest, offsets: (u64, u64)) -> Result<PoolArray<LaneParts>, Status> {
    let made = PoolArray::try_from_fn(tags::SESSION, asked.processor_count as usize, |number| {
        LaneParts::try_new(buffer, asked, offsets, number as u32).map_err(Failed)
    });
    made.map_err(|Failed(status)| status)
}

/// A status that a list of pool values can fail with.
struct Failed(Status);

impl From<softndk_kernel::pool::NoMemory> for Failed {
    fn from(_: softndk_kernel::pool::NoMemory) -> Self {
        Self(Status::INSUFFICIENT_RESOURCES)
    }
}

/// Read, Write, Send on every lane.
#[inline(never)]
fn transfer(
    asked: &MeasureRequest,
    lanes: &Lanes<'_>,
    interruption: &Interruption<'_>,
    result: &mut MeasureResult,
) -> Result<TimedSpan, Status> {
    let team = Team::try_new(interruption.signals, asked.processor_count)?;
    let members = PoolArray::try_from_fn(tags::SESSION, lanes.len(), |number| {
        let lane = lanes.get(number).ok_or(Failed(Status::INVALID_PARAMETER))?;
        let chains = Chains::try_new(asked, lane).map_err(Failed)?;
        Ok(Member::new(chains, &team, number as u32))
    });
    let mut members = members.map_err(|Failed(status)| status)?;
    team.run(&mut members, interruption)?;
    let begun = members.iter().map(|member| member.begun).min().unwrap_or(0);
    let ended = members.iter().map(|member| member.ended).max().unwrap_or(0);
    let span = TimedSpan { begun, ended };
    result.elapsed = span.length();
    for (member, place) in members.iter().zip(&mut result.processors) {
        *place = member.ended.saturating_sub(member.begun);
        result.posted = result.posted.saturating_add(member.chains.posted);
        result.completed = result.completed.saturating_add(member.chains.completed);
        result.received = result.received.saturating_add(member.chains.received);
        result.notifications = result.notifications.saturating_add(member.chains.notifications);
        result.latency.merge(&member.chains.latency);
    }
    Ok(span)
}
