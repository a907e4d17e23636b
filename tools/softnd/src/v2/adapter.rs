//! IND2Adapter: what the adapter is, and the making of everything else.

use core::ffi::c_void;

use softnd_interfaces::{
    Guid, Status,
    constants::VERSION_2,
    structures::SocketAddressList,
    v2::{AdapterInfo, AdapterTable2, IND2Adapter},
};
use softndk_ioctl::nd::control::GroupAffinity;

use super::{
    class, completion_queue::V2CompletionQueue, connector::V2Connector, listener::V2Listener,
    memory_region::V2MemoryRegion, memory_window::V2MemoryWindow, provider::V2Provider, queue_pair::V2QueuePair,
    shared_receive_queue::V2SharedReceiveQueue,
};
use crate::{
    argument::{Context, Given, Place, Unknown, entry},
    com::{ClientReference, Face, NewInterface, unknown_table},
    file::{self, Packets},
    resources::{
        adapter::Adapter,
        completion_queue::CompletionQueue,
        connector::Connector,
        listener::Listener,
        memory_region::MemoryRegion,
        memory_window::MemoryWindow,
        queue_pair::{QueuePair, QueuePairWish, Receives},
        shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueWish},
    },
    shared::Shared,
    socket_address,
};

pub struct V2Adapter(Shared<Adapter>, #[allow(dead_code, reason = "held, not used")] ClientReference<V2Provider>);

impl Face for V2Adapter {
    type Table = AdapterTable2;
    const TABLE: &'static Self::Table = &AdapterTable2 {
        base: unknown_table::<Self>(),
        create_overlapped_file: entry!(
            V2Adapter,
            create_overlapped_file(file: Place<*mut c_void>) -> Result<(), Status>
        ),
        query: entry!(V2Adapter, query(info: Place<AdapterInfo>, length: Place<u32>) -> Result<(), Status>),
        query_address_list: entry!(
            V2Adapter,
            query_address_list(list: Place<SocketAddressList>, length: Place<u32>) -> Result<(), Status>
        ),
        create_completion_queue: entry!(
            V2Adapter,
            create_completion_queue(
                iid: Given<Guid>,
                file: *mut c_void,
                depth: u32,
                group: u16,
                mask: usize,
                out: Place<*mut c_void>,
            ) -> Result<(), Status>
        ),
        create_memory_region: entry!(
            V2Adapter,
            create_memory_region(iid: Given<Guid>, file: *mut c_void, out: Place<*mut c_void>) -> Result<(), Status>
        ),
        create_memory_window: entry!(
            V2Adapter,
            create_memory_window(iid: Given<Guid>, out: Place<*mut c_void>) -> Result<(), Status>
        ),
        create_shared_receive_queue: entry!(
            V2Adapter,
            create_shared_receive_queue(
                iid: Given<Guid>,
                file: *mut c_void,
                depth: u32,
                sges: u32,
                threshold: u32,
                group: u16,
                mask: usize,
                out: Place<*mut c_void>,
            ) -> Result<(), Status>
        ),
        create_queue_pair: entry!(
            V2Adapter,
            create_queue_pair(
                iid: Given<Guid>,
                receive_queue: Unknown,
                initiator_queue: Unknown,
                context: Context,
                receive_depth: u32,
                initiator_depth: u32,
                receive_sges: u32,
                initiator_sges: u32,
                inline_data: u32,
                out: Place<*mut c_void>,
            ) -> Result<(), Status>
        ),
        create_queue_pair_with_srq: entry!(
            V2Adapter,
            create_queue_pair_with_srq(
                iid: Given<Guid>,
                receive_queue: Unknown,
                initiator_queue: Unknown,
                shared: Unknown,
                context: Context,
                initiator_depth: u32,
                initiator_sges: u32,
                inline_data: u32,
                out: Place<*mut c_void>,
            ) -> Result<(), Status>
        ),
        create_connector: entry!(
            V2Adapter,
            create_connector(iid: Given<Guid>, file: *mut c_void, out: Place<*mut c_void>) -> Result<(), Status>
        ),
        create_listener: entry!(
            V2Adapter,
            create_listener(iid: Given<Guid>, file: *mut c_void, out: Place<*mut c_void>) -> Result<(), Status>
        ),
    };
    const CLASS: Guid = class(2);
    const INTERFACES: &'static [Guid] = &[IND2Adapter::IID];
}

/// What both ways to make a queue pair ask of the initiator's side, and the statuses that number its parameters.
struct InitiatorWish {
    depth: u32,
    sges: u32,
    inline_data: u32,
    statuses: [Status; 3],
}

impl InitiatorWish {
    fn check(&self, adapter: &Adapter) -> Result<(), Status> {
        let info = adapter.info();
        let [depth, sges, inline_data] = self.statuses;
        within(self.depth, info.max_initiator_queue_depth, depth)?;
        within(self.sges, info.max_initiator_sge, sges)?;
        within(self.inline_data, info.max_inline_data_size, inline_data)
    }
}

fn within(asked: u32, most: u32, otherwise: Status) -> Result<(), Status> {
    if asked <= most { Ok(()) } else { Err(otherwise) }
}

fn affinity(mask: usize, group: u16) -> GroupAffinity {
    GroupAffinity { mask: mask as u64, group, reserved: [0; 3] }
}

impl V2Adapter {
    pub fn new(adapter: Shared<Adapter>, provider: ClientReference<V2Provider>) -> Self {
        Self(adapter, provider)
    }

    fn create_overlapped_file(&self, file: Place<*mut c_void>) -> Result<(), Status> {
        file.write(core::ptr::null_mut())?;
        file.write(file::open_overlapped(self.0.device(), Packets::WhenPended)?.into_raw())
    }

    /// NOT_SUPPORTED for an `InfoVersion` that the driver does not take.
    fn query(&self, info: Place<AdapterInfo>, length: Place<u32>) -> Result<(), Status> {
        const NEEDED: u32 = size_of::<AdapterInfo>() as u32;
        let room = length.read().ok_or(Status::INVALID_PARAMETER)?;
        if info.is_none() || room < NEEDED {
            length.write(NEEDED)?;
            return Err(Status::BUFFER_OVERFLOW);
        }
        self.0.check_version(info.read().map_or(0, |info| info.info_version))?;
        length.write(NEEDED)?;
        info.write(told(&self.0))
    }

    fn query_address_list(&self, list: Place<SocketAddressList>, length: Place<u32>) -> Result<(), Status> {
        socket_address::write_list(&self.0.addresses()?, list, length)
    }

    fn create_completion_queue(
        &self,
        iid: Given<Guid>,
        file: *mut c_void,
        depth: u32,
        group: u16,
        mask: usize,
        out: Place<*mut c_void>,
    ) -> Result<(), Status> {
        let interface = NewInterface::new(iid, out)?;
        let queue = CompletionQueue::new(&self.0, file, depth, affinity(mask, group))?;
        interface.give(V2CompletionQueue::new(queue))
    }

    fn create_memory_region(&self, iid: Given<Guid>, file: *mut c_void, out: Place<*mut c_void>) -> Result<(), Status> {
        let interface = NewInterface::new(iid, out)?;
        interface.give(V2MemoryRegion::new(MemoryRegion::new(&self.0, file)?))
    }

    fn create_memory_window(&self, iid: Given<Guid>, out: Place<*mut c_void>) -> Result<(), Status> {
        let interface = NewInterface::new(iid, out)?;
        interface.give(V2MemoryWindow::new(MemoryWindow::new(&self.0)?))
    }

    #[allow(clippy::too_many_arguments, reason = "the interface has as many")]
    fn create_shared_receive_queue(
        &self,
        iid: Given<Guid>,
        file: *mut c_void,
        depth: u32,
        sges: u32,
        notify_threshold: u32,
        group: u16,
        mask: usize,
        out: Place<*mut c_void>,
    ) -> Result<(), Status> {
        let interface = NewInterface::new(iid, out)?;
        let wish = SharedReceiveQueueWish { depth, sges, notify_threshold, affinity: affinity(mask, group) };
        interface.give(V2SharedReceiveQueue::new(SharedReceiveQueue::new(&self.0, file, wish)?))
    }

    /// A completion queue of this provider, or `otherwise`.
    fn queue(&self, queue: Unknown, otherwise: Status) -> Result<Shared<CompletionQueue>, Status> {
        let queue = queue.recover::<V2CompletionQueue>().map(|queue| queue.queue().clone());
        queue.filter(|queue| queue.shares_handles(&self.0)).ok_or(otherwise)
    }

    #[allow(clippy::too_many_arguments, reason = "the interface has as many")]
    fn create_queue_pair(
        &self,
        iid: Given<Guid>,
        receive_queue: Unknown,
        initiator_queue: Unknown,
        context: Context,
        receive_depth: u32,
        initiator_depth: u32,
        receive_sges: u32,
        initiator_sges: u32,
        inline_data: u32,
        out: Place<*mut c_void>,
    ) -> Result<(), Status> {
        let interface = NewInterface::new(iid, out)?;
        let receive_queue = self.queue(receive_queue, Status::INVALID_PARAMETER_2)?;
        let initiator_queue = self.queue(initiator_queue, Status::INVALID_PARAMETER_3)?;
        let info = self.0.info();
        within(receive_depth, info.max_receive_queue_depth, Status::INVALID_PARAMETER_5)?;
        within(receive_sges, info.max_receive_sge, Status::INVALID_PARAMETER_7)?;
        let statuses = [Status::INVALID_PARAMETER_6, Status::INVALID_PARAMETER_8, Status::INVALID_PARAMETER_9];
        InitiatorWish { depth: initiator_depth, sges: initiator_sges, inline_data, statuses }.check(&self.0)?;
        let wish = QueuePairWish {
            receive_queue: &receive_queue,
            initiator_queue: &initiator_queue,
            receives: Receives::Own { depth: receive_depth, sges: receive_sges },
            context: context.number(),
            initiator_depth,
            initiator_sges,
            inline_data,
        };
        interface.give(V2QueuePair::new(QueuePair::new(&self.0, &wish)?))
    }

    #[allow(clippy::too_many_arguments, reason = "the interface has as many")]
    fn create_queue_pair_with_srq(
        &self,
        iid: Given<Guid>,
        receive_queue: Unknown,
        initiator_queue: Unknown,
        shared: Unknown,
        context: Context,
        initiator_depth: u32,
        initiator_sges: u32,
        inline_data: u32,
        out: Place<*mut c_void>,
    ) -> Result<(), Status> {
        let interface = NewInterface::new(iid, out)?;
        if self.0.info().max_shared_receive_queue_depth == 0 {
            return Err(Status::NOT_SUPPORTED);
        }
        let receive_queue = self.queue(receive_queue, Status::INVALID_PARAMETER_2)?;
        let initiator_queue = self.queue(initiator_queue, Status::INVALID_PARAMETER_3)?;
        let shared = shared.recover::<V2SharedReceiveQueue>().map(|shared| shared.queue().clone());
        let shared = shared.filter(|shared| shared.shares_handles(&self.0)).ok_or(Status::INVALID_PARAMETER_4)?;
        let statuses = [Status::INVALID_PARAMETER_6, Status::INVALID_PARAMETER_7, Status::INVALID_PARAMETER_8];
        InitiatorWish { depth: initiator_depth, sges: initiator_sges, inline_data, statuses }.check(&self.0)?;
        let wish = QueuePairWish {
            receive_queue: &receive_queue,
            initiator_queue: &initiator_queue,
            receives: Receives::Shared(&shared),
            context: context.number(),
            initiator_depth,
            initiator_sges,
            inline_data,
        };
        interface.give(V2QueuePair::new(QueuePair::new(&self.0, &wish)?))
    }

    fn create_connector(&self, iid: Given<Guid>, file: *mut c_void, out: Place<*mut c_void>) -> Result<(), Status> {
        let interface = NewInterface::new(iid, out)?;
        interface.give(V2Connector::new(Connector::new(&self.0, file)?))
    }

    fn create_listener(&self, iid: Given<Guid>, file: *mut c_void, out: Place<*mut c_void>) -> Result<(), Status> {
        let interface = NewInterface::new(iid, out)?;
        interface.give(V2Listener::new(Listener::new(&self.0, file)?))
    }
}

/// What clients are told of an adapter.
fn told(adapter: &Adapter) -> AdapterInfo {
    let info = adapter.info();
    AdapterInfo {
        info_version: VERSION_2,
        vendor_id: info.vendor_id,
        device_id: info.device_id,
        adapter_id: info.adapter_id,
        max_registration_size: info.max_registration_size as usize,
        max_window_size: info.max_window_size as usize,
        max_initiator_sge: info.max_initiator_sge,
        max_receive_sge: info.max_receive_sge,
        max_read_sge: info.max_read_sge,
        max_transfer_length: info.max_transfer_length,
        max_inline_data_size: info.max_inline_data_size,
        max_inbound_read_limit: info.max_inbound_read_limit,
        max_outbound_read_limit: info.max_outbound_read_limit,
        max_receive_queue_depth: info.max_receive_queue_depth,
        max_initiator_queue_depth: info.max_initiator_queue_depth,
        max_shared_receive_queue_depth: info.max_shared_receive_queue_depth,
        max_completion_queue_depth: info.max_completion_queue_depth,
        inline_request_threshold: info.inline_request_threshold,
        large_request_threshold: info.large_request_threshold,
        max_caller_data: info.max_caller_data,
        max_callee_data: info.max_callee_data,
        adapter_flags: info.adapter_flags,
    }
}
