//! The yardstick: the copy routine that softndk.sys has on its data path, alone, over the same memory, without an adapter.

use softndk_ioctl::{EndReason, MemcpyRequest, Status, TransferFlags, TransferResult};
use softndk_kernel::{copy, irp::Request, pool::PoolBox};
use zerocopy::IntoBytes;

use super::{
    cursor::Cursor,
    memory::{Part, UserBuffer},
    request::RequestWait,
    transfer::NANOSECONDS_PER_MILLISECOND,
};
use crate::{driver::Driver, tags};

/// Bytes copied between two looks at clock and cancellation.
const PIECE: u64 = 1 << 20;
/// Copies between two looks.
const COPIES: u64 = 256;

/// Copies as asked and writes the result page. PASSIVE_LEVEL.
#[inline(never)]
pub fn run(
    driver: &'static Driver,
    request: &Request,
    asked: &MemcpyRequest,
    request_wait: &RequestWait<'_>,
) -> Result<usize, Status> {
    let layout = asked.check_fields()?;
    let buffer = UserBuffer::of(request, &layout)?;
    let result = PoolBox::try_new(tags::SESSION, TransferResult::EMPTY);
    let mut result = result.map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
    let now = || driver.clock.now();
    let begin = now();
    let (source, target) =
        (buffer.part(layout.source, layout.region_length)?, buffer.part(layout.destination, layout.region_length)?);
    let from = source.as_ref().map(Part::map).transpose()?;
    let to = target.as_ref().map(Part::map).transpose()?;
    let started = now();
    result.setup = started.saturating_sub(begin);
    let limit = started.saturating_add(u64::from(asked.time_budget) * NANOSECONDS_PER_MILLISECOND);
    let measure = asked.flags.contains(TransferFlags::MEASURE_LATENCY);
    let mut cursor = Cursor::new(layout.region_length, asked.request_length);
    let mut looked_at = (0_u64, 0_u64);
    while asked.request_count == 0 || result.posted < asked.request_count {
        let part = cursor.next();
        let before = if measure { now() } else { 0 };
        if let (Some(to), Some(from)) = (&to, &from) {
            let (to, from) =
                (to.address().wrapping_add(part.offset as usize), from.address().wrapping_add(part.offset as usize));
            // SAFETY: both strides lie in their mapped parts; other programs may write the bytes meanwhile.
            unsafe { copy::bytes(to, from, part.length as usize) };
        }
        if measure {
            result.latency.record(now().saturating_sub(before));
        }
        result.posted += 1;
        result.bytes += u64::from(part.length);
        if result.posted - looked_at.0 >= COPIES || result.bytes - looked_at.1 >= PIECE {
            looked_at = (result.posted, result.bytes);
            request_wait.check()?;
            if asked.time_budget != 0 && now() >= limit {
                result.end_reason = EndReason::TIME_BUDGET;
                break;
            }
        }
    }
    let finished = now();
    result.completed = result.posted;
    result.elapsed = finished.saturating_sub(started);
    drop((from, to));
    result.teardown = now().saturating_sub(finished);
    buffer.write_result(result.as_bytes())?;
    Ok(size_of::<TransferResult>())
}
