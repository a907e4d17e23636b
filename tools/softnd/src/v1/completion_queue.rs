//! INDCompletionQueue.

use softnd_interfaces::{
    Guid, Status,
    constants::request_type,
    v1::{CompletionQueueTable1, INDCompletionQueue, INDOverlapped, Result1},
};

use super::{class, count, overlapped_table};
use crate::{
    argument::{Overlap, Place, entry},
    com::Face,
    resources::completion_queue::CompletionQueue,
    shared::Shared,
};

pub struct V1CompletionQueue(Shared<CompletionQueue>);

impl Face for V1CompletionQueue {
    type Table = CompletionQueueTable1;
    const TABLE: &'static Self::Table = &CompletionQueueTable1 {
        base: overlapped_table!(V1CompletionQueue),
        resize: entry!(V1CompletionQueue, resize(entries: usize) -> Result<(), Status>),
        notify: entry!(V1CompletionQueue, notify(kind: u32, overlapped: Overlap) -> Status),
        get_results: entry!(
            V1CompletionQueue,
            get_results(results: Place<*mut Result1>, count: usize) -> usize
        ),
    };
    const CLASS: Guid = class(3);
    const INTERFACES: &'static [Guid] = &[INDCompletionQueue::IID, INDOverlapped::IID];
}

impl V1CompletionQueue {
    pub fn new(queue: Shared<CompletionQueue>) -> Self {
        Self(queue)
    }

    pub fn queue(&self) -> &Shared<CompletionQueue> {
        &self.0
    }

    fn cancel(&self) -> Result<(), Status> {
        self.0.cancel()
    }

    fn overlapped_result(&self, overlapped: Overlap, bytes: Place<usize>, wait: i32) -> Status {
        self.0.overlapped_result(overlapped, bytes, wait)
    }

    fn resize(&self, entries: usize) -> Result<(), Status> {
        self.0.resize(count(entries))
    }

    fn notify(&self, kind: u32, overlapped: Overlap) -> Status {
        self.0.notify(kind, overlapped)
    }

    /// Fills the client's own results and gives their addresses. The bytes of others than receives stay as the post left them.
    fn get_results(&self, results: Place<*mut Result1>, most: usize) -> usize {
        let most = if results.is_none() { 0 } else { count(most) };
        let mut next = 0_usize;
        let taken = self.0.results(most, |entry| {
            // SAFETY: the context is the address of the result that the client gave with the request, and keeps until now.
            let place = unsafe { Place::<Result1>::with_number(entry.request_context) };
            if let Some(mut result) = place.read() {
                result.status = Status(entry.status);
                if entry.request_type == request_type::RECEIVE {
                    result.bytes_transferred = entry.bytes_transferred as usize;
                }
                place.offer(result);
            }
            results.at(next).offer(entry.request_context as *mut Result1);
            next = next.wrapping_add(1);
        });
        taken as usize
    }
}
