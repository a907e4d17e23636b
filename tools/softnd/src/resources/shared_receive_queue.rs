//! A shared receive queue.

use softnd_interfaces::{Status, v2::Sge};
use softndk_ioctl::nd::{
    VERSION,
    control::{
        CreateSharedReceiveQueue, GroupAffinity, Handle, ModifySharedReceiveQueue, SRQ_CANCEL_IO, SRQ_CREATE, SRQ_FREE,
        SRQ_GET_AFFINITY, SRQ_MODIFY, SRQ_NOTIFY,
    },
    rings::QueueSizes,
};

use super::{
    Resource,
    adapter::Adapter,
    queue_pair::{MORE_RECEIVE_SGES, more, post_receive},
    request_queue::RequestQueue,
};
use crate::{
    argument::{Given, Overlap},
    imports::RawHandle,
    overlapped::RequestFile,
    shared::Shared,
};

pub struct SharedReceiveQueue {
    // Closed and freed in `drop`, the resource after the queue.
    queue: Shared<RequestQueue>,
    resource: Resource,
    file: RequestFile,
    sges: u32,
}

/// What a shared receive queue is asked to be.
#[derive(Clone, Copy)]
pub struct SharedReceiveQueueWish {
    pub depth: u32,
    pub sges: u32,
    pub notify_threshold: u32,
    pub affinity: GroupAffinity,
}

impl SharedReceiveQueue {
    /// NOT_SUPPORTED where the adapter has none, INVALID_PARAMETER_3 for the depth, _4 for the SGEs.
    pub fn new(
        adapter: &Shared<Adapter>,
        file: RawHandle,
        wish: SharedReceiveQueueWish,
    ) -> Result<Shared<Self>, Status> {
        let info = adapter.info();
        if info.max_shared_receive_queue_depth == 0 {
            return Err(Status::NOT_SUPPORTED);
        }
        if wish.depth == 0 || wish.depth > info.max_shared_receive_queue_depth {
            return Err(Status::INVALID_PARAMETER_3);
        }
        if wish.sges > info.max_receive_sge {
            return Err(Status::INVALID_PARAMETER_4);
        }
        let sges = more(wish.sges, MORE_RECEIVE_SGES, info.max_receive_sge);
        let file = RequestFile::of(adapter.device(), file)?;
        let input = CreateSharedReceiveQueue {
            version: VERSION,
            queue_depth: wish.depth,
            max_request_sge: sges,
            notify_threshold: wish.notify_threshold,
            domain: adapter.domain(),
            affinity: wish.affinity,
            ..CreateSharedReceiveQueue::default()
        };
        let resource = Resource::queue(adapter, SRQ_CREATE, SRQ_FREE, &input)?;
        let sizes = QueueSizes { receive_depth: wish.depth, receive_sges: sges, ..QueueSizes::default() };
        let queue = RequestQueue::new(adapter, resource.handle(), sizes)?;
        Shared::new(Self { queue, resource, file, sges })
    }

    pub fn handle(&self) -> u64 {
        self.resource.handle()
    }

    /// See [`Resource::shares_handles`].
    pub fn shares_handles(&self, adapter: &Adapter) -> bool {
        self.resource.shares_handles(adapter)
    }

    pub fn affinity(&self) -> Result<GroupAffinity, Status> {
        let input = Handle { version: VERSION, reserved: 0, handle: self.handle() };
        self.resource.device().ask(SRQ_GET_AFFINITY, &input)
    }

    /// Changes depth and threshold; 0 leaves either as it is. INVALID_PARAMETER for a depth beyond the adapter's, BUFFER_OVERFLOW
    /// for one below the receives that are outstanding.
    pub fn modify(&self, depth: u32, notify_threshold: u32) -> Result<(), Status> {
        if depth > self.resource.adapter().info().max_shared_receive_queue_depth {
            return Err(Status::INVALID_PARAMETER);
        }
        if depth != 0 && depth < self.queue.outstanding_receives() {
            return Err(Status::BUFFER_OVERFLOW);
        }
        let input = ModifySharedReceiveQueue {
            version: VERSION,
            queue_depth: depth,
            notify_threshold,
            handle: self.handle(),
            ..ModifySharedReceiveQueue::default()
        };
        self.resource.device().tell(SRQ_MODIFY, &input)?;
        if depth != 0 {
            self.queue.set_receive_depth(depth);
        }
        Ok(())
    }

    pub fn notify(&self, overlapped: Overlap) -> Status {
        self.file.start_on(overlapped, SRQ_NOTIFY, self.handle())
    }

    pub fn receive(&self, context: u64, sges: Given<Sge>, count: u32) -> Result<(), Status> {
        let longest = self.resource.adapter().info().max_transfer_length;
        post_receive(&self.queue, context, (sges, count), self.sges, longest)
    }

    pub fn cancel(&self) -> Result<(), Status> {
        self.resource.call(SRQ_CANCEL_IO)
    }
}
