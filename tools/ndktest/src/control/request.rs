//! Device control requests: which codes there are, and how buffered ones are answered.

use core::{mem::size_of, ptr::NonNull};

use softndk_ioctl::{
    ABI_VERSION, AdapterListRequest, COMMIT_FIELD, MeasureRequest, MemcpyRequest, ObjectSummaryReply,
    ObjectSummaryRequest, Outcome, PairCloseRequest, PairCreateRequest, PairModerationRequest,
    Request as ControlRequest, RequestHeader, ScriptRequest, Status, TransferRequest, VersionFlags, VersionReply,
    VersionRequest, read_request, read_request_of_any_version,
};
use softndk_kernel::{
    event::CriticalRegion,
    irp::{Buffer, Request},
    irql,
    pool::{self, PoolSpace},
};
use wdk_sys::{DEVICE_OBJECT, IRP, NTSTATUS, STATUS_INVALID_DEVICE_REQUEST};
use zerocopy::IntoBytes;

use super::{
    adapter_list,
    file::{self, ControlFile},
};
use crate::{
    driver::Driver,
    session::{
        consumer::check,
        replay,
        request::{PendingRequest, Work},
    },
    tags,
};

/// IRP_MJ_DEVICE_CONTROL. PASSIVE_LEVEL for user mode, `IRQL <= DISPATCH_LEVEL` for kernel callers. What each code does has a
/// frame of its own: here all of them would be one.
///
/// # Safety
/// The I/O manager passes our device and an IRP of this kind.
pub unsafe extern "C" fn device_control(_device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    let _not_suspended = CriticalRegion::enter_below_dispatch();
    // SAFETY: the IRP was dispatched to us.
    let Some(request) = (unsafe { Request::from_raw(irp) }) else { return STATUS_INVALID_DEVICE_REQUEST };
    let mut buffer = Buffer::of(&request);
    let outcome: Outcome = match request.device_control().code {
        VersionRequest::CODE => version(&mut buffer).into(),
        ObjectSummaryRequest::CODE => object_summary(&mut buffer).into(),
        _ if irql::at_dispatch() => Err(Status::NOT_SUPPORTED).into(),
        AdapterListRequest::CODE => adapter_list::answer(&mut buffer),
        PairModerationRequest::CODE => moderate(&request, buffer.input()).into(),
        PairCloseRequest::CODE => close_pair(&request, buffer.input()).into(),
        PairCreateRequest::CODE
        | TransferRequest::CODE
        | MemcpyRequest::CODE
        | MeasureRequest::CODE
        | ScriptRequest::CODE => match pending_work(&request, buffer.input()) {
            Ok(work) => return pend(request, work),
            Err(status) => Err(status).into(),
        },
        _ => Err(Status::INVALID_DEVICE_REQUEST).into(),
    };
    request.complete(outcome.status.0, outcome.information);
    outcome.status.0
}

/// What a request that pends asks for. PASSIVE_LEVEL.
#[inline(never)]
fn pending_work(request: &Request, input: &[u8]) -> Result<Work, Status> {
    Ok(match request.device_control().code {
        PairCreateRequest::CODE => Work::PairCreate(read_request(input)?),
        TransferRequest::CODE => {
            let asked: TransferRequest = read_request(input)?;
            let layout = asked.check_fields()?;
            let driver = Driver::get().ok_or(Status::DEVICE_REMOVED)?;
            let file = file::state(request).ok_or(Status::INVALID_DEVICE_REQUEST)?;
            // Claimed here and not by the thread, so that transfers are granted in the order they come.
            let pair = driver.pairs.claim(asked.pair, file.id())?;
            Work::Transfer(asked, layout, pair)
        }
        MeasureRequest::CODE => {
            let asked: MeasureRequest = read_request(input)?;
            Work::Measure(asked, asked.check_fields()?)
        }
        ScriptRequest::CODE => Work::Replay(replay::Script::read(input)?),
        _ => Work::Memcpy(read_request(input)?),
    })
}

/// Closes a pair, on the caller's thread: the threads of ours may all be busy with transfers.
#[inline(never)]
fn close_pair(request: &Request, input: &[u8]) -> Result<usize, Status> {
    let asked: PairCloseRequest = read_request(input)?;
    if asked.reserved != 0 {
        return Err(Status::INVALID_PARAMETER);
    }
    let driver = Driver::get().ok_or(Status::DEVICE_REMOVED)?;
    let file = file::state(request).ok_or(Status::INVALID_DEVICE_REQUEST)?;
    driver.pairs.close(asked.pair, file.id(), &driver.workers).map(|()| 0)
}

#[inline(never)]
fn moderate(request: &Request, input: &[u8]) -> Result<usize, Status> {
    let asked: PairModerationRequest = read_request(input)?;
    if asked.reserved != 0 {
        return Err(Status::INVALID_PARAMETER);
    }
    let driver = Driver::get().ok_or(Status::DEVICE_REMOVED)?;
    let file = file::state(request).ok_or(Status::INVALID_DEVICE_REQUEST)?;
    // Claimed, so that no transfer uses the queues meanwhile.
    let pair = driver.pairs.claim(asked.pair, file.id())?;
    let ends = pair.ends.lock();
    let ends = ends.as_ref().ok_or_else(|| pair.end_status())?;
    check(ends.client.queue.handle().moderate(asked.interval, asked.count))?;
    check(ends.server.queue.handle().moderate(asked.interval, asked.count))?;
    Ok(0)
}

/// Hands a request to a thread of ours.
fn pend(request: Request, work: Work) -> NTSTATUS {
    match place_for(&request) {
        Ok((driver, file, space)) => {
            // SAFETY: the file outlives the request that came through it.
            let file = unsafe { file.as_ref() };
            begin((driver, file), space, request, work)
        }
        Err(status) => {
            // Before the answer: a program that gets it may ask for the next transfer at once.
            drop(work);
            request.complete(status.0, 0);
            status.0
        }
    }
}

/// Everything a pended request needs, before it is marked as one.
fn place_for(request: &Request) -> Result<(&'static Driver, NonNull<ControlFile>, PoolSpace<PendingRequest>), Status> {
    let driver = Driver::get().ok_or(Status::DEVICE_REMOVED)?;
    let file = file::state(request).map(NonNull::from).ok_or(Status::INVALID_DEVICE_REQUEST)?;
    let space = PoolSpace::try_new(tags::SESSION).map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
    // Last, because it counts the request.
    if driver.workers.prepare() { Ok((driver, file, space)) } else { Err(Status::INSUFFICIENT_RESOURCES) }
}

fn begin(
    (driver, file): (&'static Driver, &ControlFile),
    space: PoolSpace<PendingRequest>,
    mut request: Request,
    work: Work,
) -> NTSTATUS {
    // From here on the answer is PENDING, whatever becomes of the request.
    let pending = request.mark_pending();
    match PendingRequest::new(request, file, work) {
        Ok(request) => driver.workers.queue(space.fill(request)),
        Err(request) => {
            driver.workers.give_back();
            request.complete(Status::CANCELLED.0, 0);
        }
    }
    pending
}

/// The driver's version; it is no provider, so it has neither an NDIS contract nor a version of NDKPI.
#[inline(never)]
fn version(buffer: &mut Buffer) -> Result<usize, Status> {
    let _request: VersionRequest = read_request_of_any_version(buffer.input())?;
    let mut flags = VersionFlags::TRANSFERS;
    flags.set(VersionFlags::DEBUG_BUILD, cfg!(debug_assertions));
    let reply = VersionReply {
        header: RequestHeader { version: ABI_VERSION, size: size_of::<VersionReply>() as u32 },
        driver_version: [number(env!("CARGO_PKG_VERSION_MAJOR")), number(env!("CARGO_PKG_VERSION_MINOR")), 0, 0],
        ndis_version: [0; 2],
        ndkpi_version: [0; 2],
        processor_count: irql::processor_count(),
        flags,
        commit: COMMIT_FIELD,
    };
    let part = reply.part_for(buffer.output().len()).ok_or(Status::BUFFER_TOO_SMALL)?;
    buffer.answer(part).ok_or(Status::BUFFER_TOO_SMALL)
}

/// What this driver holds: files, pairs and pool. Objects are the provider's to count.
#[inline(never)]
fn object_summary(buffer: &mut Buffer) -> Result<usize, Status> {
    let _request: ObjectSummaryRequest = read_request(buffer.input())?;
    let driver = Driver::get().ok_or(Status::DEVICE_REMOVED)?;
    let (pool_blocks, pool_bytes) = pool::held();
    let summary = ObjectSummaryReply {
        header: RequestHeader::of::<ObjectSummaryReply>(),
        files: file::file_count(),
        pairs: driver.pairs.count(),
        pool_blocks,
        pool_bytes,
        ..ObjectSummaryReply::default()
    };
    buffer.answer(summary.as_bytes()).ok_or(Status::BUFFER_TOO_SMALL)
}

/// A decimal number of Cargo's.
const fn number(text: &str) -> u16 {
    let (bytes, mut value, mut index) = (text.as_bytes(), 0_u16, 0);
    while index < bytes.len() {
        value = value.wrapping_mul(10).wrapping_add((bytes[index] - b'0') as u16);
        index += 1;
    }
    value
}
