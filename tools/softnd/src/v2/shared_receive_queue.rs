//! IND2SharedReceiveQueue.

use softnd_interfaces::{
    Guid, Status,
    v2::{IND2Overlapped, IND2SharedReceiveQueue, Sge, SharedReceiveQueueTable2},
};

use super::{class, overlapped_table};
use crate::{
    argument::{Context, Given, Overlap, Place, entry},
    com::Face,
    resources::shared_receive_queue::SharedReceiveQueue,
    shared::Shared,
};

pub struct V2SharedReceiveQueue(Shared<SharedReceiveQueue>);

impl Face for V2SharedReceiveQueue {
    type Table = SharedReceiveQueueTable2;
    const TABLE: &'static Self::Table = &SharedReceiveQueueTable2 {
        base: overlapped_table!(V2SharedReceiveQueue),
        get_notify_affinity: entry!(
            V2SharedReceiveQueue,
            get_notify_affinity(group: Place<u16>, mask: Place<usize>) -> Result<(), Status>
        ),
        modify: entry!(V2SharedReceiveQueue, modify(depth: u32, threshold: u32) -> Result<(), Status>),
        notify: entry!(V2SharedReceiveQueue, notify(overlapped: Overlap) -> Status),
        receive: entry!(
            V2SharedReceiveQueue,
            receive(context: Context, sges: Given<Sge>, count: u32) -> Result<(), Status>
        ),
    };
    const CLASS: Guid = class(4);
    const INTERFACES: &'static [Guid] = &[IND2SharedReceiveQueue::IID, IND2Overlapped::IID];
}

impl V2SharedReceiveQueue {
    pub fn new(queue: Shared<SharedReceiveQueue>) -> Self {
        Self(queue)
    }

    pub fn queue(&self) -> &Shared<SharedReceiveQueue> {
        &self.0
    }

    fn cancel(&self) -> Result<(), Status> {
        self.0.cancel()
    }

    fn get_notify_affinity(&self, group: Place<u16>, mask: Place<usize>) -> Result<(), Status> {
        let affinity = self.0.affinity()?;
        group.write(affinity.group)?;
        mask.write(affinity.mask as usize)
    }

    fn modify(&self, depth: u32, threshold: u32) -> Result<(), Status> {
        self.0.modify(depth, threshold)
    }

    fn notify(&self, overlapped: Overlap) -> Status {
        self.0.notify(overlapped)
    }

    fn receive(&self, context: Context, sges: Given<Sge>, count: u32) -> Result<(), Status> {
        self.0.receive(context.number(), sges, count)
    }
}
