//! Device control requests: which codes there are, and how buffered ones are answered.

use core::{mem::size_of, ptr::NonNull, slice};

use ndkpi_sys::nt::{DEVICE_OBJECT, IRP};
use softndk_engine::ObjectKind;
use softndk_ioctl::{
    ABI_VERSION, AdapterListRequest, MemcpyRequest, ObjectListRequest, ObjectSummaryReply, ObjectSummaryRequest,
    PairCloseRequest, PairCreateRequest, PairModerationRequest, RefusalListRequest, Request as ControlRequest,
    RequestHeader, ScriptRequest, Status, TransferRequest, VersionFlags, VersionReply, VersionRequest, read_request,
    read_request_of_any_version,
};
use softndk_kernel::{
    irql,
    pool::{self, PoolSpace},
};
use wdk_sys::{NTSTATUS, STATUS_INVALID_DEVICE_REQUEST};
use zerocopy::{Immutable, IntoBytes};

use super::{
    adapter_list, device,
    file::{self, ControlFile},
    irp::Request,
    object_list, refusal_list,
};
use crate::{
    driver::{ADAPTER_MAX, Driver},
    ndk::logical_mapping,
    session::{
        replay,
        request::{PendingRequest, RundownReference, Work},
    },
    tags, version,
};

/// The system buffer of a buffered request: input first, overwritten by the output.
pub struct Buffer {
    start: *mut u8,
    input_length: usize,
    output_length: usize,
}

impl Buffer {
    pub fn of(request: &Request) -> Self {
        let parameters = request.device_control();
        let start = request.system_buffer().cast::<u8>();
        if start.is_null() {
            return Self { start, input_length: 0, output_length: 0 };
        }
        Self { start, input_length: parameters.input_length, output_length: parameters.output_length }
    }

    /// The input bytes. Checked values must be copies.
    pub fn input(&self) -> &[u8] {
        if self.input_length == 0 {
            return &[];
        }
        // SAFETY: the I/O manager allocated the system buffer for the longer of both lengths and copied the input into it.
        unsafe { slice::from_raw_parts(self.start, self.input_length) }
    }

    /// The size of the output buffer.
    pub fn output_length(&self) -> usize {
        self.output_length
    }

    /// The output bytes, zeroed, so that nothing of the pool block's past reaches the caller.
    pub fn output(&mut self) -> &mut [u8] {
        if self.output_length == 0 {
            return &mut [];
        }
        // SAFETY: the system buffer is at least as long as the output.
        unsafe { self.start.write_bytes(0, self.output_length) };
        // SAFETY: as above; `&mut self` makes this the only view.
        unsafe { slice::from_raw_parts_mut(self.start, self.output_length) }
    }

    /// Completes with one structure.
    pub fn reply<T: IntoBytes + Immutable>(&mut self, reply: &T) -> Result<usize, Status> {
        let bytes = reply.as_bytes();
        let place = self.output().get_mut(..bytes.len()).ok_or(Status::BUFFER_TOO_SMALL)?;
        place.copy_from_slice(bytes);
        Ok(bytes.len())
    }
}

/// What a request comes to: bytes of output, or a status; a cut reply carries both.
#[derive(Clone, Copy)]
pub struct Outcome {
    pub status: Status,
    pub information: usize,
}

impl From<Result<usize, Status>> for Outcome {
    fn from(result: Result<usize, Status>) -> Self {
        match result {
            Ok(information) => Self { status: Status::SUCCESS, information },
            Err(status) => Self { status, information: 0 },
        }
    }
}

/// IRP_MJ_DEVICE_CONTROL. PASSIVE_LEVEL for user mode, `IRQL <= DISPATCH_LEVEL` for kernel callers. What each code does has a
/// frame of its own: here all of them would be one.
///
/// # Safety
/// The I/O manager passes the driver's device and an IRP of this kind.
pub unsafe extern "C" fn device_control(_device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    // SAFETY: the IRP was dispatched to the driver.
    let Some(request) = (unsafe { Request::from_raw(irp) }) else { return STATUS_INVALID_DEVICE_REQUEST };
    let Some(reference) = Driver::get().and_then(|driver| driver.requests.enter()) else {
        request.complete(Status::DEVICE_REMOVED.0, 0);
        return Status::DEVICE_REMOVED.0;
    };
    let mut buffer = Buffer::of(&request);
    let outcome: Outcome = match request.device_control().code {
        VersionRequest::CODE => version(&mut buffer).into(),
        AdapterListRequest::CODE => adapter_list::answer(&mut buffer),
        ObjectSummaryRequest::CODE => object_summary(&mut buffer).into(),
        ObjectListRequest::CODE => object_list::answer(&mut buffer).into(),
        RefusalListRequest::CODE => refusal_list::answer(&mut buffer).into(),
        PairModerationRequest::CODE => moderate(&request, buffer.input()).into(),
        PairCloseRequest::CODE => close_pair(&request, buffer.input()).into(),
        PairCreateRequest::CODE | TransferRequest::CODE | MemcpyRequest::CODE | ScriptRequest::CODE => {
            match pending_work(&request, buffer.input()) {
                Ok(work) => return pend(request, work, reference),
                Err(status) => Err(status).into(),
            }
        }
        _ => Err(Status::INVALID_DEVICE_REQUEST).into(),
    };
    request.complete(outcome.status.0, outcome.information);
    outcome.status.0
}

/// The work of a request that pends.
#[inline(never)]
fn pending_work(request: &Request, input: &[u8]) -> Result<Work, Status> {
    // User mode comes at PASSIVE_LEVEL; a kernel caller must, too.
    if irql::at_dispatch() {
        return Err(Status::NOT_SUPPORTED);
    }
    let work = match request.device_control().code {
        PairCreateRequest::CODE => Work::PairCreate(read_request(input)?),
        TransferRequest::CODE => {
            let asked: TransferRequest = read_request(input)?;
            adapters_left()?;
            asked.check_fields()?;
            let driver = Driver::get().ok_or(Status::DEVICE_REMOVED)?;
            let file = file::state(request).ok_or(Status::INVALID_DEVICE_REQUEST)?;
            // Claimed here and not by the thread, so that transfers are granted in the order they come.
            let pair = driver.pairs.claim(asked.pair, file.id())?;
            return Ok(Work::Transfer(asked, pair));
        }
        ScriptRequest::CODE => Work::Replay(replay::Script::read(input)?),
        _ => Work::Memcpy(read_request(input)?),
    };
    adapters_left()?;
    Ok(work)
}

/// Closes a pair, on the caller's thread: the driver's threads may all be busy with transfers, and the caller waits for the
/// close anyway.
#[inline(never)]
fn close_pair(request: &Request, input: &[u8]) -> Result<usize, Status> {
    if irql::at_dispatch() {
        return Err(Status::NOT_SUPPORTED);
    }
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
    if irql::at_dispatch() {
        return Err(Status::NOT_SUPPORTED);
    }
    let asked: PairModerationRequest = read_request(input)?;
    if asked.reserved != 0 {
        return Err(Status::INVALID_PARAMETER);
    }
    adapters_left()?;
    let driver = Driver::get().ok_or(Status::DEVICE_REMOVED)?;
    let file = file::state(request).ok_or(Status::INVALID_DEVICE_REQUEST)?;
    // Claimed, so that no other request uses the queues meanwhile.
    let pair = driver.pairs.claim(asked.pair, file.id())?;
    let ends = pair.ends.lock();
    let ends = ends.as_ref().ok_or_else(|| pair.ended().unwrap_or(Status::CONNECTION_DISCONNECTED))?;
    ends.client.queue.moderate(asked.interval, asked.count)?;
    ends.server.queue.moderate(asked.interval, asked.count)?;
    Ok(0)
}

/// Hands a request to a worker thread.
fn pend(request: Request, work: Work, reference: RundownReference) -> NTSTATUS {
    match place_for(&request) {
        Ok((driver, file, space)) => {
            // SAFETY: the file outlives the request that came through it.
            let file = unsafe { file.as_ref() };
            begin((driver, file), space, request, work, reference)
        }
        Err(status) => {
            // Before the completion: its receiver may request the next transfer at once.
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
    reference: RundownReference,
) -> NTSTATUS {
    // From here on the status is PENDING, whatever becomes of the request.
    let pending = request.mark_pending();
    match PendingRequest::new(request, file, work, reference) {
        Ok(request) => driver.workers.queue(space.fill(request)),
        Err(request) => {
            driver.workers.give_back();
            request.complete(Status::CANCELLED.0, 0);
        }
    }
    pending
}

#[inline(never)]
fn version(buffer: &mut Buffer) -> Result<usize, Status> {
    let _request: VersionRequest = read_request_of_any_version(buffer.input())?;
    let mut flags = VersionFlags::empty();
    flags.insert(VersionFlags::TRANSFERS);
    flags.set(VersionFlags::DEBUG_BUILD, cfg!(debug_assertions));
    let newest = version::NDKPI_NEWEST;
    buffer.reply(&VersionReply {
        header: RequestHeader { version: ABI_VERSION, size: size_of::<VersionReply>() as u32 },
        driver_version: [u16::from(version::DRIVER.0), u16::from(version::DRIVER.1), 0, 0],
        ndis_version: [u16::from(version::NDIS_CONTRACT.0), u16::from(version::NDIS_CONTRACT.1)],
        ndkpi_version: [newest.Major, newest.Minor],
        processor_count: irql::processor_count(),
        flags,
    })
}

#[inline(never)]
fn object_summary(buffer: &mut Buffer) -> Result<usize, Status> {
    let _request: ObjectSummaryRequest = read_request(buffer.input())?;
    let adapters = adapters_left()?;
    let driver = Driver::get().ok_or(Status::DEVICE_REMOVED)?;
    let (pool_blocks, pool_bytes) = pool::held();
    let mut summary = ObjectSummaryReply {
        header: RequestHeader::of::<ObjectSummaryReply>(),
        adapters,
        files: device::file_count(),
        pairs: driver.pairs.count(),
        logical_mappings: logical_mapping::live(),
        pool_blocks,
        pool_bytes,
        ..ObjectSummaryReply::default()
    };
    for adapter in (0..ADAPTER_MAX).filter_map(|index| driver.adapter(index)) {
        adapter.provider.engine().objects(&mut |object| count(&mut summary, object.kind));
    }
    buffer.reply(&summary)
}

/// Counts one object.
fn count(summary: &mut ObjectSummaryReply, kind: ObjectKind) {
    let counter = match kind {
        ObjectKind::Open => &mut summary.ndk_adapters,
        ObjectKind::CompletionQueue => &mut summary.completion_queues,
        ObjectKind::ProtectionDomain => &mut summary.protection_domains,
        ObjectKind::MemoryRegion => &mut summary.memory_regions,
        ObjectKind::MemoryWindow => &mut summary.memory_windows,
        ObjectKind::SharedReceiveQueue => &mut summary.shared_receive_queues,
        ObjectKind::QueuePair => &mut summary.queue_pairs,
        ObjectKind::Listener => &mut summary.listeners,
        ObjectKind::Connector => &mut summary.connectors,
        ObjectKind::SharedEndpoint => &mut summary.shared_endpoints,
    };
    *counter = counter.saturating_add(1);
}

/// How many adapters there are. Handles outlive the last one: their adapters are removed then.
pub fn adapters_left() -> Result<u32, Status> {
    Driver::get().map(Driver::adapter_count).filter(|&count| count > 0).ok_or(Status::DEVICE_REMOVED)
}
