//! INDAdapter.

use core::ffi::c_void;

use softnd_interfaces::{
    Guid, Status,
    constants::{VERSION_1, region_flag},
    v1::{AdapterInfo1, AdapterTable1, INDAdapter, INDOverlapped, Result1},
};
use softndk_ioctl::nd::control::{GroupAffinity, SocketAddress};

use super::{
    class, completion_queue::V1CompletionQueue, connector::V1Connector, count, endpoint::MOST_SGES, listen::V1Listen,
    memory_window::V1MemoryWindow, overlapped_table, provider::V1Provider, regions::Regions, windows::WindowResults,
};
use crate::{
    argument::{Bytes, Overlap, Place, Target, entry},
    com::{ClientReference, Face, NewInterface},
    file::{self, Packets},
    handle::OwnedHandle,
    resources::{
        adapter::Adapter, completion_queue::CompletionQueue, connector::Connector, listener::Listener,
        memory_region::MemoryRegion, memory_window::MemoryWindow,
    },
    shared::Shared,
};

pub struct V1Adapter {
    regions: Shared<Regions>,
    windows: Shared<WindowResults>,
    /// What all overlapped requests go through.
    file: OwnedHandle,
    /// The address by which it was opened: connectors and listeners are bound to it.
    address: SocketAddress,
    adapter: Shared<Adapter>,
    _provider: ClientReference<V1Provider>,
}

impl Face for V1Adapter {
    type Table = AdapterTable1;
    const TABLE: &'static Self::Table = &AdapterTable1 {
        base: overlapped_table!(V1Adapter),
        get_file_handle: entry!(V1Adapter, get_file_handle() -> *mut c_void),
        query: entry!(
            V1Adapter,
            query(version: u32, info: Place<AdapterInfo1>, length: Place<usize>) -> Result<(), Status>
        ),
        control: entry!(
            V1Adapter,
            control(
                code: u32,
                input: Bytes,
                input_length: usize,
                output: Target,
                output_length: usize,
                returned: Place<usize>,
                overlapped: Overlap,
            ) -> Status
        ),
        create_completion_queue: entry!(
            V1Adapter,
            create_completion_queue(entries: usize, out: Place<*mut c_void>) -> Result<(), Status>
        ),
        register_memory: entry!(
            V1Adapter,
            register_memory(
                buffer: Bytes,
                length: usize,
                overlapped: Overlap,
                region: Place<*mut c_void>,
            ) -> Status
        ),
        deregister_memory: entry!(
            V1Adapter,
            deregister_memory(region: *mut c_void, overlapped: Overlap) -> Status
        ),
        create_memory_window: entry!(
            V1Adapter,
            create_memory_window(result: Place<Result1>, out: Place<*mut c_void>) -> Result<(), Status>
        ),
        create_connector: entry!(V1Adapter, create_connector(out: Place<*mut c_void>) -> Result<(), Status>),
        listen: entry!(
            V1Adapter,
            listen(
                backlog: usize,
                protocol: i32,
                port: u16,
                assigned: Place<u16>,
                out: Place<*mut c_void>,
            ) -> Result<(), Status>
        ),
    };
    const CLASS: Guid = class(2);
    const INTERFACES: &'static [Guid] = &[INDAdapter::IID, INDOverlapped::IID];
}

impl V1Adapter {
    pub fn new(
        adapter: Shared<Adapter>,
        address: SocketAddress,
        provider: ClientReference<V1Provider>,
    ) -> Result<Self, Status> {
        let file = file::open_overlapped(adapter.device(), Packets::WhenNotFailed)?;
        let (regions, windows) = (Regions::new()?, WindowResults::new()?);
        Ok(Self { regions, windows, file, address, adapter, _provider: provider })
    }

    /// Cancels registrations and their ends.
    fn cancel(&self) -> Result<(), Status> {
        self.regions.cancel()
    }

    /// The adapter's own; the client does not close it.
    fn get_file_handle(&self) -> *mut c_void {
        self.file.raw()
    }

    /// NOT_SUPPORTED for another version.
    fn query(&self, version: u32, info: Place<AdapterInfo1>, length: Place<usize>) -> Result<(), Status> {
        const NEEDED: usize = size_of::<AdapterInfo1>();
        if version != VERSION_1 {
            return Err(Status::NOT_SUPPORTED);
        }
        let room = length.read().ok_or(Status::INVALID_PARAMETER)?;
        length.write(NEEDED)?;
        if info.is_none() || room < NEEDED {
            return Err(Status::BUFFER_OVERFLOW);
        }
        info.write(told(&self.adapter))
    }

    /// There are no codes.
    #[allow(clippy::unused_self, clippy::too_many_arguments, reason = "a method of the interface")]
    fn control(
        &self,
        _code: u32,
        _input: Bytes,
        _input_length: usize,
        _output: Target,
        _output_length: usize,
        returned: Place<usize>,
        _overlapped: Overlap,
    ) -> Status {
        returned.offer(0);
        Status::NOT_SUPPORTED
    }

    fn create_completion_queue(&self, entries: usize, out: Place<*mut c_void>) -> Result<(), Status> {
        let interface = NewInterface::fixed(out)?;
        let queue = CompletionQueue::new(&self.adapter, self.file.raw(), count(entries), GroupAffinity::default());
        let queue = queue.map_err(|status| match status {
            Status::INVALID_PARAMETER_3 => Status::INVALID_PARAMETER_1,
            other => other,
        });
        interface.give(V1CompletionQueue::new(queue?, self.windows.clone()))
    }

    fn register_memory(&self, buffer: Bytes, length: usize, overlapped: Overlap, region: Place<*mut c_void>) -> Status {
        self.try_register(buffer, length, overlapped, region).unwrap_or_else(|status| status)
    }

    fn try_register(
        &self,
        buffer: Bytes,
        length: usize,
        overlapped: Overlap,
        out: Place<*mut c_void>,
    ) -> Result<Status, Status> {
        out.write(core::ptr::null_mut())?;
        self.sweep();
        let region = MemoryRegion::new(&self.adapter, self.file.raw())?;
        let handle = self.regions.insert(&region)?;
        // Before the request is on its way: its packet may come to another thread first.
        out.write(handle)?;
        let status = region.register(buffer, length, region_flag::ALLOW_LOCAL_WRITE, overlapped);
        if !status.is_success() {
            out.write(core::ptr::null_mut())?;
            self.regions.retire(handle, false);
        }
        Ok(status)
    }

    /// INVALID_HANDLE for one that RegisterMemory has not given, or that was given back.
    fn deregister_memory(&self, region: *mut c_void, overlapped: Overlap) -> Status {
        self.sweep();
        let Some(found) = self.regions.get(region) else { return Status::INVALID_HANDLE };
        let status = found.deregister(overlapped);
        if status.is_success() {
            self.regions.retire(region, true);
        }
        status
    }

    /// Frees regions that are done with.
    fn sweep(&self) {
        self.adapter.device().collect();
        self.regions.sweep();
    }

    /// The result tells of an invalidation by the peer; it may be none.
    fn create_memory_window(&self, result: Place<Result1>, out: Place<*mut c_void>) -> Result<(), Status> {
        let interface = NewInterface::fixed(out)?;
        let window = MemoryWindow::new(&self.adapter)?;
        interface.give(V1MemoryWindow::new(window, &self.windows, result.number())?)
    }

    fn create_connector(&self, out: Place<*mut c_void>) -> Result<(), Status> {
        let interface = NewInterface::fixed(out)?;
        let connector = Connector::new(&self.adapter, self.file.raw())?;
        interface.give(V1Connector::new(connector, self.regions.clone(), self.address))
    }

    /// INVALID_PARAMETER_MIX for port 0 without a place for the one that is chosen, ADDRESS_ALREADY_EXISTS for a port in use. The
    /// protocol is not looked at. Ports are in network order.
    fn listen(
        &self,
        backlog: usize,
        _protocol: i32,
        port: u16,
        assigned: Place<u16>,
        out: Place<*mut c_void>,
    ) -> Result<(), Status> {
        let interface = NewInterface::fixed(out)?;
        if port == 0 && assigned.is_none() {
            return Err(Status::INVALID_PARAMETER_MIX);
        }
        let listener = Listener::new(&self.adapter, self.file.raw())?;
        let bound = listener.bind(SocketAddress { port: port.to_le_bytes(), ..self.address });
        bound.map_err(|status| match status {
            Status::SHARING_VIOLATION => Status::ADDRESS_ALREADY_EXISTS,
            other => other,
        })?;
        assigned.offer(u16::from_le_bytes(listener.local_address()?.port));
        listener.listen(count(backlog))?;
        interface.give(V1Listen::new(listener))
    }
}

/// What clients are told of an adapter.
fn told(adapter: &Adapter) -> AdapterInfo1 {
    let info = adapter.info();
    let number = |number: u32| number as usize;
    AdapterInfo1 {
        vendor_id: u32::from(info.vendor_id),
        device_id: u32::from(info.device_id),
        max_inbound_sge: number(info.max_receive_sge).min(MOST_SGES),
        max_inbound_requests: number(info.max_receive_queue_depth),
        max_inbound_length: number(info.max_transfer_length),
        max_outbound_sge: number(info.max_initiator_sge).min(MOST_SGES),
        max_outbound_requests: number(info.max_initiator_queue_depth),
        max_outbound_length: number(info.max_transfer_length),
        max_inline_data: number(info.max_inline_data_size),
        max_inbound_read_limit: number(info.max_inbound_read_limit),
        max_outbound_read_limit: number(info.max_outbound_read_limit),
        max_completion_queue_entries: number(info.max_completion_queue_depth),
        max_registration_size: info.max_registration_size as usize,
        max_window_size: info.max_window_size as usize,
        large_request_threshold: number(info.large_request_threshold),
        max_caller_data: number(info.max_caller_data),
        max_callee_data: number(info.max_callee_data),
    }
}
