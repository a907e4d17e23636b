//! INDCompletionQueue.

use softnd_interfaces::{
    Guid, Status,
    v1::{CompletionQueueTable1, INDCompletionQueue, INDOverlapped, Result1},
};
use softndk_ioctl::nd::rings::{RequestType, ResultEntry};

use super::{class, count, overlapped_table, windows::WindowResults};
use crate::{
    argument::{Overlap, Place, entry},
    com::Face,
    resources::completion_queue::CompletionQueue,
    shared::Shared,
};

pub struct V1CompletionQueue {
    queue: Shared<CompletionQueue>,
    windows: Shared<WindowResults>,
}

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
    pub fn new(queue: Shared<CompletionQueue>, windows: Shared<WindowResults>) -> Self {
        Self { queue, windows }
    }

    pub fn queue(&self) -> &Shared<CompletionQueue> {
        &self.queue
    }

    fn cancel(&self) -> Result<(), Status> {
        self.queue.cancel()
    }

    fn resize(&self, entries: usize) -> Result<(), Status> {
        self.queue.resize(count(entries))
    }

    fn notify(&self, kind: u32, overlapped: Overlap) -> Status {
        self.queue.notify(kind, overlapped)
    }

    /// Fills the client's own results and gives their addresses. The bytes of others than receives stay as the post left them.
    fn get_results(&self, results: Place<*mut Result1>, most: usize) -> usize {
        let most = if results.is_none() { 0 } else { count(most) };
        let queue = self.queue.handle() as usize;
        let mut given = 0_u32;
        let mut give = |address: u64| {
            results.at(given as usize).offer(address as *mut Result1);
            given = given.wrapping_add(1);
        };
        let due = self.give_windows(queue, most, &mut give);
        let taken = self.queue.results(most.saturating_sub(due), |entry| {
            fill(entry);
            give(entry.request_context);
            if RequestType::of(entry.request_type) == Some(RequestType::ReceiveAndInvalidate) {
                self.windows.invalidated(entry.value, queue);
            }
        });
        let given = due.saturating_add(taken);
        given.saturating_add(self.give_windows(queue, most.saturating_sub(given), &mut give)) as usize
    }

    /// Tells of windows that the peer has invalidated; of how many.
    fn give_windows(&self, queue: usize, most: u32, give: &mut impl FnMut(u64)) -> u32 {
        for told in 0..most {
            let Some(address) = self.windows.take_due(queue) else { return told };
            // SAFETY: the result that the client gave for the window, and keeps as long as that lives.
            unsafe { Place::<Result1>::with_number(address) }
                .offer(Result1 { status: Status::SUCCESS, bytes_transferred: 0 });
            give(address);
        }
        most
    }
}

fn fill(entry: &ResultEntry) {
    // SAFETY: the context is the address of the result that the client gave with the request, and keeps until now.
    let place = unsafe { Place::<Result1>::with_number(entry.request_context) };
    if let Some(mut result) = place.read() {
        result.status = Status(entry.status);
        if RequestType::of(entry.request_type).is_some_and(RequestType::is_receive) {
            result.bytes_transferred = entry.bytes_transferred as usize;
        }
        place.offer(result);
    }
}
