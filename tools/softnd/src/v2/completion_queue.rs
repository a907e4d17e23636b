//! IND2CompletionQueue.

use core::ffi::c_void;

use softnd_interfaces::{
    Guid, Status,
    v2::{CompletionQueueTable2, IND2CompletionQueue, IND2Overlapped, RequestResult},
};

use super::{class, overlapped_table};
use crate::{
    argument::{Overlap, Place, entry},
    com::Face,
    resources::completion_queue::CompletionQueue,
    shared::Shared,
};

pub struct V2CompletionQueue(Shared<CompletionQueue>);

impl Face for V2CompletionQueue {
    type Table = CompletionQueueTable2;
    const TABLE: &'static Self::Table = &CompletionQueueTable2 {
        base: overlapped_table!(V2CompletionQueue),
        get_notify_affinity: entry!(
            V2CompletionQueue,
            get_notify_affinity(group: Place<u16>, mask: Place<usize>) -> Result<(), Status>
        ),
        resize: entry!(V2CompletionQueue, resize(depth: u32) -> Result<(), Status>),
        notify: entry!(V2CompletionQueue, notify(kind: u32, overlapped: Overlap) -> Status),
        get_results: entry!(V2CompletionQueue, get_results(results: Place<RequestResult>, count: u32) -> u32),
    };
    const CLASS: Guid = class(3);
    const INTERFACES: &'static [Guid] = &[IND2CompletionQueue::IID, IND2Overlapped::IID];
}

impl V2CompletionQueue {
    pub fn new(queue: Shared<CompletionQueue>) -> Self {
        Self(queue)
    }

    pub fn queue(&self) -> &Shared<CompletionQueue> {
        &self.0
    }

    fn cancel(&self) -> Result<(), Status> {
        self.0.cancel()
    }

    fn overlapped_result(&self, overlapped: Overlap, wait: i32) -> Status {
        self.0.overlapped_result(overlapped, Place::NONE, wait)
    }

    fn get_notify_affinity(&self, group: Place<u16>, mask: Place<usize>) -> Result<(), Status> {
        let affinity = self.0.affinity()?;
        group.write(affinity.group)?;
        mask.write(affinity.mask as usize)
    }

    fn resize(&self, depth: u32) -> Result<(), Status> {
        self.0.resize(depth)
    }

    fn notify(&self, kind: u32, overlapped: Overlap) -> Status {
        self.0.notify(kind, overlapped)
    }

    fn get_results(&self, results: Place<RequestResult>, count: u32) -> u32 {
        let count = if results.is_none() { 0 } else { count };
        let mut next = 0_usize;
        self.0.results(count, |entry| {
            results.at(next).offer(RequestResult {
                status: Status(entry.status),
                bytes_transferred: entry.bytes_transferred,
                queue_pair_context: entry.queue_pair_context as *mut c_void,
                request_context: entry.request_context as *mut c_void,
                request_type: entry.request_type,
            });
            next = next.wrapping_add(1);
        })
    }
}
