//! Device control requests: which codes there are, and how buffered ones are answered.

use core::mem::size_of;

use ndkpi_sys::nt::{DEVICE_OBJECT, IRP};
use softndk_engine::ObjectKind;
use softndk_ioctl::{
    ABI_VERSION, AdapterListRequest, COMMIT_FIELD, EventListRequest, ObjectListRequest, ObjectSummaryReply,
    ObjectSummaryRequest, Outcome, RefusalListRequest, Request as ControlRequest, RequestHeader, Status,
    UplinkListRequest, VersionFlags, VersionReply, VersionRequest, read_request, read_request_of_any_version,
};
use softndk_kernel::{
    event::CriticalRegion,
    irp::{Buffer, Request},
    irql, pool,
};
use wdk_sys::{NTSTATUS, STATUS_INVALID_DEVICE_REQUEST};
use zerocopy::IntoBytes;

use super::{adapter_list, file, object_list, record_list};
use crate::{
    driver::{ADAPTER_MAX, Driver},
    runtime::completion,
    version,
};

/// IRP_MJ_DEVICE_CONTROL. PASSIVE_LEVEL for user mode, `IRQL <= DISPATCH_LEVEL` for kernel callers. What each code does has a
/// frame of its own: here all of them would be one.
///
/// # Safety
/// The I/O manager passes the driver's device and an IRP of this kind.
pub unsafe extern "C" fn device_control(_device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    let _not_suspended = CriticalRegion::enter_below_dispatch();
    // SAFETY: the IRP was dispatched to us.
    let Some(request) = (unsafe { Request::from_raw(irp.cast()) }) else { return STATUS_INVALID_DEVICE_REQUEST };
    let Some(_passage) = Driver::get().and_then(|driver| driver.control.requests.enter()) else {
        request.complete(Status::DEVICE_REMOVED.0, 0);
        return Status::DEVICE_REMOVED.0;
    };
    let mut buffer = Buffer::of(&request);
    let outcome: Outcome = match request.device_control().code {
        VersionRequest::CODE => version(&mut buffer).into(),
        AdapterListRequest::CODE => adapter_list::answer(&mut buffer),
        ObjectSummaryRequest::CODE => object_summary(&mut buffer).into(),
        ObjectListRequest::CODE => object_list::answer(&mut buffer).into(),
        RefusalListRequest::CODE => record_list::refusals(&mut buffer).into(),
        EventListRequest::CODE => record_list::events(&mut buffer).into(),
        UplinkListRequest::CODE => record_list::uplinks(&mut buffer).into(),
        _ => Err(Status::INVALID_DEVICE_REQUEST).into(),
    };
    request.complete(outcome.status.0, outcome.information);
    outcome.status.0
}

#[inline(never)]
fn version(buffer: &mut Buffer) -> Result<usize, Status> {
    let _request: VersionRequest = read_request_of_any_version(buffer.input())?;
    let mut flags = VersionFlags::empty();
    flags.set(VersionFlags::DEBUG_BUILD, cfg!(debug_assertions));
    let newest = version::NDKPI_NEWEST;
    let reply = VersionReply {
        header: RequestHeader { version: ABI_VERSION, size: size_of::<VersionReply>() as u32 },
        driver_version: [u16::from(version::DRIVER.0), u16::from(version::DRIVER.1), 0, 0],
        ndis_version: [u16::from(version::NDIS_CONTRACT.0), u16::from(version::NDIS_CONTRACT.1)],
        ndkpi_version: [newest.Major, newest.Minor],
        processor_count: irql::processor_count(),
        flags,
        commit: COMMIT_FIELD,
    };
    let part = reply.part_for(buffer.output().len()).ok_or(Status::BUFFER_TOO_SMALL)?;
    buffer.answer(part).ok_or(Status::BUFFER_TOO_SMALL)
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
        files: file::file_count(),
        logical_mappings: completion::logical_mappings(),
        pool_blocks,
        pool_bytes,
        ..ObjectSummaryReply::default()
    };
    for adapter in (0..ADAPTER_MAX).filter_map(|index| driver.adapter(index)) {
        adapter.provider.engine().objects(&mut |object| count(&mut summary, object.kind));
    }
    buffer.answer(summary.as_bytes()).ok_or(Status::BUFFER_TOO_SMALL)
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
