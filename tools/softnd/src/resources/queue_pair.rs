//! A queue pair: what of a request is decided before it is posted, and the posting.
//!
//! A request is looked at in this order: flags, state, SGEs, length, room. Whatever is decided here leaves the queue pair as it is;
//! tokens, addresses and rights are looked at by the driver, and a completion tells.

use softnd_interfaces::{
    Status,
    constants::{operation_flag as flag, request_type},
    v2::Sge,
};
use softndk_ioctl::nd::{
    VERSION,
    control::{CreateQueuePair, QP_CREATE, QP_CREATE_WITH_SRQ, QP_FLUSH, QP_FREE},
    private::{BIND_WINDOW, BindWindow, BindWindowReply, QueuePairContext},
    rings::{InitiatorEntry, OperationFlags, QueueSizes},
};
use zerocopy::{Immutable, IntoBytes};

use super::{
    Resource,
    adapter::Adapter,
    completion_queue::CompletionQueue,
    memory_region::MemoryRegion,
    memory_window::MemoryWindow,
    request_queue::{RequestQueue, Side},
    shared_receive_queue::SharedReceiveQueue,
};
use crate::{
    argument::{Bytes, Given},
    ring::{InlineBytes, Nothing, SgeList, initiator_head, receive_head},
    shared::Shared,
};

/// SGEs that every queue pair has if the adapter has them: some clients send more than they asked for, and entries of the rings are
/// whole cache lines.
pub const MORE_INITIATOR_SGES: u32 = 5;
/// The same of receives.
pub const MORE_RECEIVE_SGES: u32 = 3;

/// What was asked for, or `enough` where the adapter has it.
pub fn more(asked: u32, enough: u32, most: u32) -> u32 {
    asked.max(enough.min(most))
}

pub struct QueuePair {
    // Closed and freed in `drop`, the resource after the queue; then what the driver's object uses.
    queue: Shared<RequestQueue>,
    resource: Resource,
    limits: RequestLimits,
    shared_receive_queue: Option<Shared<SharedReceiveQueue>>,
    _completion_queues: [Shared<CompletionQueue>; 2],
}

/// What a queue pair is asked to be.
pub struct QueuePairWish<'wish> {
    pub receive_queue: &'wish Shared<CompletionQueue>,
    pub initiator_queue: &'wish Shared<CompletionQueue>,
    pub receives: Receives<'wish>,
    pub context: u64,
    pub initiator_depth: u32,
    pub initiator_sges: u32,
    pub inline_data: u32,
}

/// Where its receives are.
pub enum Receives<'wish> {
    Own { depth: u32, sges: u32 },
    Shared(&'wish Shared<SharedReceiveQueue>),
}

/// The input of the creation: the context stands behind the structure.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct CreateWithContext {
    create: CreateQueuePair,
    context: QueuePairContext,
}

/// What one request may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RequestLimits {
    transfer: u32,
    inline: u32,
    initiator_sges: u32,
    read_sges: u32,
    receive_sges: u32,
}

/// A Send of any kind, a Read or a Write of either as a client gives it.
#[derive(Clone, Copy)]
pub struct Transfer {
    pub context: u64,
    pub sges: Given<Sge>,
    pub count: u32,
    pub flags: u32,
    pub remote_address: u64,
    pub remote_token: u32,
    pub immediate: u32,
}

impl Default for Transfer {
    fn default() -> Self {
        let (context, count, flags, remote_address, remote_token, immediate) = (0, 0, 0, 0, 0, 0);
        Self { context, sges: Given::NONE, count, flags, remote_address, remote_token, immediate }
    }
}

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferKind {
    Send,
    /// A Send after which the peer's window with the remote token is invalid (version 1).
    SendAndInvalidate,
    /// A Send whose immediate data comes with the peer's receive.
    SendWithImmediate,
    Read,
    Write,
    /// A Write that takes a receive of the peer, with which its immediate data comes.
    WriteWithImmediate,
}

impl TransferKind {
    /// Flags that it takes, and the status for others, which numbers the parameter.
    pub const fn flags(self) -> (u32, Status) {
        const ANY: u32 = flag::SILENT_SUCCESS | flag::READ_FENCE;
        const SEND: u32 = ANY | flag::SEND_AND_SOLICIT_EVENT | flag::INLINE;
        match self {
            Self::Send | Self::SendWithImmediate => (SEND, Status::INVALID_PARAMETER_4),
            Self::SendAndInvalidate => (SEND, Status::INVALID_PARAMETER_5),
            Self::Read => (ANY, Status::INVALID_PARAMETER_6),
            Self::Write => (ANY | flag::INLINE, Status::INVALID_PARAMETER_6),
            Self::WriteWithImmediate => (SEND, Status::INVALID_PARAMETER_6),
        }
    }

    /// What its entry has beside the client's flags.
    const fn own_flags(self) -> u32 {
        match self {
            Self::SendAndInvalidate => OperationFlags::INVALIDATE_REMOTE.bits(),
            Self::SendWithImmediate | Self::WriteWithImmediate => OperationFlags::IMMEDIATE.bits(),
            Self::Send | Self::Read | Self::Write => 0,
        }
    }

    const fn request_type(self) -> u32 {
        match self {
            Self::Send | Self::SendAndInvalidate | Self::SendWithImmediate => request_type::SEND,
            Self::Read => request_type::READ,
            Self::Write | Self::WriteWithImmediate => request_type::WRITE,
        }
    }
}

/// Bytes of a list in all, or BUFFER_OVERFLOW when they are more than `most`.
fn total(list: impl Iterator<Item = Sge>, most: u32) -> Result<u32, Status> {
    let sum = list.fold(0_u64, |sum, sge| sum.saturating_add(u64::from(sge.buffer_length)));
    if sum > u64::from(most) { Err(Status::BUFFER_OVERFLOW) } else { Ok(sum as u32) }
}

impl RequestLimits {
    /// What of a transfer can be decided from its arguments; the bytes of an inline one, 0 of others.
    fn check(&self, kind: TransferKind, transfer: &Transfer) -> Result<u32, Status> {
        let list = || transfer.sges.list(transfer.count as usize);
        if transfer.flags & flag::INLINE != 0 {
            // Tokens are ignored, and the number of SGEs is not limited.
            return total(list(), self.inline.min(self.transfer));
        }
        let sges = if kind == TransferKind::Read { self.read_sges } else { self.initiator_sges };
        if transfer.count > sges {
            return Err(Status::DATA_OVERRUN);
        }
        total(list(), self.transfer).map(|_| 0)
    }
}

/// INVALID_PARAMETER for a list that is none but has entries.
fn check_list(sges: Given<Sge>, count: u32) -> Result<(), Status> {
    if sges.is_none() && count > 0 { Err(Status::INVALID_PARAMETER) } else { Ok(()) }
}

/// Posts a receive to a queue pair's own queue, or to a shared one. DATA_OVERRUN for too many SGEs, BUFFER_OVERFLOW for too many
/// bytes, NO_MORE_ENTRIES when the queue is full. Legal in every state of the connection.
pub fn post_receive(
    queue: &RequestQueue,
    context: u64,
    (sges, count): (Given<Sge>, u32),
    most_sges: u32,
    most_bytes: u32,
) -> Result<(), Status> {
    check_list(sges, count)?;
    if count > most_sges {
        return Err(Status::DATA_OVERRUN);
    }
    total(sges.list(count as usize), most_bytes)?;
    queue.post(Side::Receive, &receive_head(context, count), &SgeList(sges.list(count as usize)))
}

impl QueuePair {
    /// The adapter's limits are looked at by the caller, whose parameters they are; see [`QueuePairWish`].
    pub fn new(adapter: &Shared<Adapter>, wish: &QueuePairWish<'_>) -> Result<Self, Status> {
        let info = adapter.info();
        let initiator_sges = more(wish.initiator_sges, MORE_INITIATOR_SGES, info.max_initiator_sge);
        let (receive_depth, receive_sges, receive, code, shared) = match wish.receives {
            Receives::Own { depth, sges } => {
                let sges = more(sges, MORE_RECEIVE_SGES, info.max_receive_sge);
                (depth, sges, u64::from(depth) | u64::from(sges) << 32, QP_CREATE, None)
            }
            Receives::Shared(queue) => (0, 0, queue.handle(), QP_CREATE_WITH_SRQ, Some(queue.clone())),
        };
        let create = CreateQueuePair {
            version: VERSION,
            max_inline_data: wish.inline_data,
            initiator_queue_depth: wish.initiator_depth,
            max_initiator_request_sge: initiator_sges,
            receive_queue: wish.receive_queue.handle(),
            initiator_queue: wish.initiator_queue.handle(),
            domain: adapter.domain(),
            receive,
            ..CreateQueuePair::default()
        };
        let input = CreateWithContext { create, context: QueuePairContext { context: wish.context } };
        let resource = Resource::queue(adapter, code, QP_FREE, &input)?;
        let sizes = QueueSizes {
            initiator_depth: wish.initiator_depth,
            initiator_sges,
            inline_data: wish.inline_data,
            receive_depth,
            receive_sges,
        };
        let queue = RequestQueue::new(adapter, resource.handle(), sizes)?;
        let limits = RequestLimits {
            transfer: info.max_transfer_length,
            inline: wish.inline_data,
            initiator_sges,
            read_sges: initiator_sges.min(info.max_read_sge),
            receive_sges,
        };
        let completion_queues = [wish.receive_queue.clone(), wish.initiator_queue.clone()];
        Ok(Self { queue, resource, limits, shared_receive_queue: shared, _completion_queues: completion_queues })
    }

    pub fn handle(&self) -> u64 {
        self.resource.handle()
    }

    pub fn queue(&self) -> &Shared<RequestQueue> {
        &self.queue
    }

    /// See [`Resource::shares_handles`].
    pub fn shares_handles(&self, adapter: &Adapter) -> bool {
        self.resource.shares_handles(adapter)
    }

    /// The most bytes of an inline request.
    pub fn inline_limit(&self) -> u32 {
        self.limits.inline
    }

    /// Tells the driver of what waits.
    pub fn submit(&self) {
        self.queue.submit();
    }

    pub fn flush(&self) -> Result<(), Status> {
        self.submit();
        self.resource.call(QP_FLUSH)
    }

    /// INVALID_DEVICE_REQUEST with a shared receive queue.
    pub fn receive(&self, context: u64, sges: Given<Sge>, count: u32) -> Result<(), Status> {
        if self.shared_receive_queue.is_some() {
            return Err(Status::INVALID_DEVICE_REQUEST);
        }
        post_receive(&self.queue, context, (sges, count), self.limits.receive_sges, self.limits.transfer)
    }

    /// Posts a Send of either kind, a Read or a Write.
    pub fn transfer(&self, kind: TransferKind, transfer: &Transfer) -> Result<(), Status> {
        let (flags, status) = kind.flags();
        if transfer.flags & !flags != 0 {
            return Err(status);
        }
        self.require_connection()?;
        check_list(transfer.sges, transfer.count)?;
        let inline_length = self.limits.check(kind, transfer)?;
        let head = InitiatorEntry {
            remote_address: transfer.remote_address,
            remote_token: transfer.remote_token,
            immediate: transfer.immediate,
            ..initiator_head(transfer.context, kind.request_type(), transfer.flags | kind.own_flags())
        };
        let list = transfer.sges.list(transfer.count as usize);
        if transfer.flags & flag::INLINE != 0 {
            let head = InitiatorEntry { inline_length, ..head };
            self.queue.post(Side::Initiator, &head, &InlineBytes { list, length: inline_length })
        } else {
            let head = InitiatorEntry { sge_count: transfer.count, ..head };
            self.queue.post(Side::Initiator, &head, &SgeList(list))
        }
    }

    /// Posts a Bind, after all that was posted before. The window has its token when this returns. INVALID_PARAMETER_2, _3 and _6 for region,
    /// window and flags; other statuses are the driver's.
    pub fn bind(
        &self,
        context: u64,
        region: &Shared<MemoryRegion>,
        window: &MemoryWindow,
        (buffer, length): (Bytes, usize),
        flags: u32,
    ) -> Result<(), Status> {
        const FLAGS: u32 = flag::SILENT_SUCCESS | flag::READ_FENCE | flag::ALLOW_READ | flag::ALLOW_WRITE;
        if flags & !FLAGS != 0 {
            return Err(Status::INVALID_PARAMETER_6);
        }
        let adapter = self.resource.adapter();
        if !region.shares_handles(adapter) {
            return Err(Status::INVALID_PARAMETER_2);
        }
        if !window.shares_handles(adapter) {
            return Err(Status::INVALID_PARAMETER_3);
        }
        self.require_connection()?;
        self.submit();
        let input = BindWindow {
            version: VERSION,
            flags,
            queue_pair: self.handle(),
            region: region.handle(),
            window: window.handle(),
            context,
            address: buffer.address(),
            length: length as u64,
        };
        let reply: BindWindowReply = self.resource.device().ask(BIND_WINDOW, &input)?;
        self.queue.after_bind();
        window.bound(region, reply.remote_token);
        Ok(())
    }

    /// Posts an Invalidate. INVALID_PARAMETER_2 for the window, _3 for flags. The driver is told at once: the client may release the window next.
    pub fn invalidate(&self, context: u64, window: &MemoryWindow, flags: u32) -> Result<(), Status> {
        if flags & !(flag::SILENT_SUCCESS | flag::READ_FENCE) != 0 {
            return Err(Status::INVALID_PARAMETER_3);
        }
        if !window.shares_handles(self.resource.adapter()) {
            return Err(Status::INVALID_PARAMETER_2);
        }
        self.require_connection()?;
        let head =
            InitiatorEntry { window: window.handle(), ..initiator_head(context, request_type::INVALIDATE, flags) };
        self.queue.post(Side::Initiator, &head, &Nothing)?;
        self.queue.submit();
        Ok(())
    }

    /// CONNECTION_INVALID as long as it was never connected. On an ended connection requests are taken, and complete CANCELED.
    fn require_connection(&self) -> Result<(), Status> {
        if self.queue.is_connected() { Ok(()) } else { Err(Status::CONNECTION_INVALID) }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.queue.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;

    const LIMITS: RequestLimits =
        RequestLimits { transfer: 1000, inline: 64, initiator_sges: 3, read_sges: 2, receive_sges: 3 };

    fn list(lengths: &[u32]) -> Vec<Sge> {
        let sge = |length: &u32| Sge { buffer: ptr::null_mut(), buffer_length: *length, memory_region_token: 1 };
        lengths.iter().map(sge).collect()
    }

    fn transfer(sges: &[Sge], flags: u32) -> Transfer {
        Transfer { context: 0, sges: Given::of_slice(sges), count: sges.len() as u32, flags, ..Transfer::default() }
    }

    #[test]
    fn what_a_request_may_be_is_decided_from_its_arguments() {
        use TransferKind::{Read, Send, Write};
        for (kind, lengths, flags, expected) in [
            (Send, &[][..], 0, Ok(0)),
            (Send, &[0, 0], 0, Ok(0)),
            (Send, &[500, 500], 0, Ok(0)),
            (Send, &[500, 501], 0, Err(Status::BUFFER_OVERFLOW)),
            (Write, &[u32::MAX, u32::MAX], 0, Err(Status::BUFFER_OVERFLOW)),
            (Send, &[1, 1, 1], 0, Ok(0)),
            (Send, &[1, 1, 1, 1], 0, Err(Status::DATA_OVERRUN)),
            (Read, &[1, 1], 0, Ok(0)),
            (Read, &[1, 1, 1], 0, Err(Status::DATA_OVERRUN)),
            (Send, &[16, 16, 16, 16], flag::INLINE, Ok(64)),
            (Write, &[65], flag::INLINE, Err(Status::BUFFER_OVERFLOW)),
            (Send, &[], flag::INLINE, Ok(0)),
        ] {
            let sges = list(lengths);
            assert_eq!(LIMITS.check(kind, &transfer(&sges, flags)), expected, "{kind:?} {lengths:?} {flags}");
        }
    }

    #[test]
    fn each_kind_takes_its_flags_only() {
        assert_eq!(TransferKind::Send.flags(), (0x27, Status::INVALID_PARAMETER_4));
        assert_eq!(TransferKind::Write.flags(), (0x23, Status::INVALID_PARAMETER_6));
        assert_eq!(TransferKind::Read.flags(), (0x3, Status::INVALID_PARAMETER_6));
        assert_eq!(TransferKind::SendWithImmediate.flags(), (0x27, Status::INVALID_PARAMETER_4));
        assert_eq!(TransferKind::WriteWithImmediate.flags(), (0x27, Status::INVALID_PARAMETER_6));
    }

    #[test]
    fn more_is_given_than_asked_for_where_the_adapter_has_it() {
        assert_eq!([more(1, 5, 16), more(8, 5, 16), more(1, 5, 2), more(0, 5, 0)], [5, 8, 2, 0]);
    }

    #[test]
    fn lists_that_are_none_have_no_entries() {
        assert_eq!(check_list(Given::of_slice(&[]), 0), Ok(()));
        // SAFETY: no list.
        let none = unsafe { <Given<Sge> as crate::argument::Argument>::of(ptr::null()) };
        assert_eq!((check_list(none, 0), check_list(none, 1)), (Ok(()), Err(Status::INVALID_PARAMETER)));
    }
}
