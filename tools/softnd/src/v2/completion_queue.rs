//! IND2CompletionQueue, and IND2ManaCompletionQueue, which extends it by results with immediate data.

use core::ffi::c_void;

use softnd_interfaces::{
    Guid, Status,
    constants::{mana_request_type, request_type},
    v2::{
        CompletionQueueTable2, IND2CompletionQueue, IND2ManaCompletionQueue, IND2Overlapped, ManaCompletionQueueTable,
        ManaResult, RequestResult,
    },
};
use softndk_ioctl::nd::rings::{RequestType, ResultEntry};

use super::{class, overlapped_table};
use crate::{
    argument::{Overlap, Place, entry},
    com::Face,
    resources::completion_queue::CompletionQueue,
    shared::Shared,
};

pub struct V2CompletionQueue(Shared<CompletionQueue>);

impl Face for V2CompletionQueue {
    type Table = ManaCompletionQueueTable;
    const TABLE: &'static Self::Table = &ManaCompletionQueueTable {
        base: Self::TABLE_2,
        get_mana_results: entry!(V2CompletionQueue, get_mana_results(results: Place<ManaResult>, count: u32) -> u32),
    };
    const CLASS: Guid = class(3);
    const INTERFACES: &'static [Guid] = &[IND2CompletionQueue::IID, IND2ManaCompletionQueue::IID, IND2Overlapped::IID];
}

impl V2CompletionQueue {
    const TABLE_2: CompletionQueueTable2 = CompletionQueueTable2 {
        base: overlapped_table!(V2CompletionQueue),
        get_notify_affinity: entry!(
            V2CompletionQueue,
            get_notify_affinity(group: Place<u16>, mask: Place<usize>) -> Result<(), Status>
        ),
        resize: entry!(V2CompletionQueue, resize(depth: u32) -> Result<(), Status>),
        notify: entry!(V2CompletionQueue, notify(kind: u32, overlapped: Overlap) -> Status),
        get_results: entry!(V2CompletionQueue, get_results(results: Place<RequestResult>, count: u32) -> u32),
    };

    pub fn new(queue: Shared<CompletionQueue>) -> Self {
        Self(queue)
    }

    pub fn queue(&self) -> &Shared<CompletionQueue> {
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
                request_type: request_type_of(entry),
            });
            next = next.wrapping_add(1);
        })
    }

    /// As GetResults, with what a receive brought along. Clients may use both on one queue.
    fn get_mana_results(&self, results: Place<ManaResult>, count: u32) -> u32 {
        let count = if results.is_none() { 0 } else { count };
        let mut next = 0_usize;
        self.0.results(count, |entry| {
            results.at(next).offer(ManaResult {
                status: Status(entry.status),
                bytes_transferred: entry.bytes_transferred,
                queue_pair_context: entry.queue_pair_context as *mut c_void,
                request_context: entry.request_context as *mut c_void,
                request_type: mana_type_of(entry),
                immediate_data_or_token: entry.value,
            });
            next = next.wrapping_add(1);
        })
    }
}

/// ND2_REQUEST_TYPE of a result, which has one kind of receives.
fn request_type_of(entry: &ResultEntry) -> u32 {
    let receives = RequestType::of(entry.request_type).is_some_and(RequestType::is_receive);
    if receives { request_type::RECEIVE } else { entry.request_type }
}

/// ND2_MANA_REQUEST_TYPE of a result.
fn mana_type_of(entry: &ResultEntry) -> u32 {
    match RequestType::of(entry.request_type) {
        Some(RequestType::Send) => mana_request_type::SEND,
        Some(RequestType::Bind) => mana_request_type::BIND,
        Some(RequestType::Invalidate) => mana_request_type::INVALIDATE,
        Some(RequestType::Read) => mana_request_type::READ,
        Some(RequestType::Write) => mana_request_type::WRITE,
        Some(RequestType::ReceiveAndInvalidate) => mana_request_type::RECEIVE_WITH_INVALIDATE,
        Some(RequestType::ReceiveImmediate) => mana_request_type::RECEIVE_WITH_IMMEDIATE,
        Some(RequestType::ReceiveWriteImmediate) => mana_request_type::RECEIVE_RDMA_WITH_IMMEDIATE,
        Some(RequestType::Receive) | None => mana_request_type::RECEIVE,
    }
}
