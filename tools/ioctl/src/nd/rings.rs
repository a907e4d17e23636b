//! Queues in memory that a process shares with the driver: where what stands, and who writes it.
//!
//! A ring has a power of two of entries. Counts run on and wrap; an entry's place is its count modulo the ring. Each count has
//! one writer: `producer` and `consumer` of what the process makes or takes are the process's, all else is the driver's. The driver
//! keeps its own copies of the counts that it writes and never reads them back.
//!
//! A completion queue: [`CompletionHeader`], [`CONSUMER_OFFSET`], entries of [`ResultEntry`]. A queue pair: [`QueuePairHeader`], then the
//! initiator ring, then the receive ring. A shared receive queue: the same with a receive ring only.

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::control::structures;

/// Which layout this is, for [`ATTACH`](super::private::ATTACH): a library and a driver of different builds refuse each other. To be counted up
/// with every change of a place or of a meaning.
pub const LAYOUT: u32 = 2;
/// Bytes before the entries of a completion ring.
pub const COMPLETION_ENTRIES: usize = 128;
/// Where the process writes how many results it has taken: a cache line of its own.
pub const CONSUMER_OFFSET: usize = 64;
/// Bytes before the rings of a queue pair.
pub const QUEUE_PAIR_ENTRIES: usize = 192;
/// Where the driver's part of a queue pair's header begins: a cache line of its own.
pub const TAKEN_OFFSET: usize = 64;
/// Where [`QueuePairPolling`] is: a line that hardly ever changes, so that a post need not wait for it.
pub const POLLING_OFFSET: usize = 128;

structures! {
    /// The driver's part of a completion ring, at offset 0.
    CompletionHeader (8) {
        /// Results that were ever put into this ring.
        producer: u32,
        /// [`CompletionFlags`].
        flags: u32,
    }

    /// ND2_RESULT.
    ResultEntry (32) {
        status: i32,
        bytes_transferred: u32,
        queue_pair_context: u64,
        request_context: u64,
        /// [`RequestType`].
        request_type: u32,
        /// What comes with a receive of its type: the token of the window that the peer's Send has invalidated, or immediate data.
        /// Of others 0.
        value: u32,
    }

    /// The process's part of a queue pair's header, at offset 0.
    QueuePairHeader (8) {
        /// Entries that were ever put into the initiator ring.
        initiator_producer: u32,
        /// The same of the receive ring.
        receive_producer: u32,
    }

    /// The driver's part, at [`TAKEN_OFFSET`]. It changes all the time: a process looks where it has to.
    QueuePairTaken (20) {
        /// Entries of the initiator ring that the driver has taken: their places may be written again.
        initiator_taken: u32,
        receive_taken: u32,
        /// Requests of which the slot in the queue is free again. What was produced less this is what the depth limits. A Bind in
        /// flight takes a slot, too, and this count back by one; silent requests bring no result, so a full queue rings before it
        /// refuses.
        initiator_retired: u32,
        receive_retired: u32,
        /// [`QueuePairState`].
        state: u32,
    }

    /// Whether posts need a doorbell, at [`POLLING_OFFSET`].
    QueuePairPolling (4) {
        /// Not 0: the driver looks at the rings by itself, and a post needs no doorbell. A process writes its producer count,
        /// then, after a full barrier, reads this; the driver clears it, then, after a full barrier, looks once more.
        polling: u32,
    }

    /// The head of an initiator entry; SGEs or inline bytes stand behind it.
    InitiatorEntry (48) {
        context: u64,
        /// [`RequestType`]: Send, Invalidate, Read or Write.
        request_type: u32,
        /// ND_OP_FLAG_*.
        flags: u32,
        /// SGEs that follow; 0 with inline data.
        sge_count: u32,
        /// Bytes that follow with ND_OP_FLAG_INLINE.
        inline_length: u32,
        remote_address: u64,
        remote_token: u32,
        /// With [`OperationFlags::IMMEDIATE`]: what comes with the peer's receive.
        immediate: u32,
        /// The window of an Invalidate.
        window: u64,
    }

    /// The head of a receive entry.
    ReceiveEntry (16) {
        context: u64,
        sge_count: u32,
        reserved: u32,
    }

    /// ND2_SGE.
    Sge (16) {
        address: u64,
        length: u32,
        token: u32,
    }
}

/// ND2_REQUEST_TYPE, and the receives among results that bring something, of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RequestType {
    Receive = 0,
    Send = 1,
    Bind = 2,
    Invalidate = 3,
    Read = 4,
    Write = 5,
    /// A Receive whose message has invalidated a window.
    ReceiveAndInvalidate = 0x100,
    /// A Receive whose message brought immediate data.
    ReceiveImmediate = 0x101,
    /// A Receive that a Write with immediate data took: nothing is in its memory.
    ReceiveWriteImmediate = 0x102,
}

impl RequestType {
    #[must_use]
    pub const fn of(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Receive,
            1 => Self::Send,
            2 => Self::Bind,
            3 => Self::Invalidate,
            4 => Self::Read,
            5 => Self::Write,
            0x100 => Self::ReceiveAndInvalidate,
            0x101 => Self::ReceiveImmediate,
            0x102 => Self::ReceiveWriteImmediate,
            _ => return None,
        })
    }

    /// Whether it is a receive of any kind.
    #[must_use]
    pub const fn is_receive(self) -> bool {
        matches!(
            self,
            Self::Receive | Self::ReceiveAndInvalidate | Self::ReceiveImmediate | Self::ReceiveWriteImmediate
        )
    }
}

bitflags! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CompletionFlags: u32 {
        /// The ring was full: a [`DOORBELL`](super::private::DOORBELL) brings what is left, once there is room.
        const MORE = 1;
        /// Nothing more comes into this ring: the queue has another one since it was resized.
        const MOVED = 1 << 1;
        /// The queue has overrun and its queue pairs have ended.
        const FAILED = 1 << 2;
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QueuePairState: u32 {
        /// It is or was connected: initiator requests are taken.
        const CONNECTED = 1;
        /// Its connection has ended or it was flushed.
        const ENDED = 1 << 1;
    }

    /// ND_OP_FLAG_*.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OperationFlags: u32 {
        const SILENT_SUCCESS = 0x1;
        const READ_FENCE = 0x2;
        const SEND_AND_SOLICIT_EVENT = 0x4;
        const ALLOW_READ = 0x8;
        const ALLOW_WRITE = 0x10;
        const INLINE = 0x20;
        /// Ours. Of a Send: the peer's window with the entry's remote token is invalidated before the message's completions.
        const INVALIDATE_REMOTE = 0x4000_0000;
        /// Ours. Of a Send or a Write: the entry's immediate data comes with the peer's receive, which a Write takes for it.
        const IMMEDIATE = 0x2000_0000;
    }
}

/// A ring of entries: where it begins, how many it has and how far apart they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    pub offset: usize,
    pub stride: usize,
    /// A power of two, or 0.
    pub entries: u32,
}

impl Ring {
    /// Where the entry with this count stands, from the beginning of the memory. No ring is made of which the end is not a number,
    /// so nothing wraps here.
    #[must_use]
    pub const fn place(&self, count: u32) -> usize {
        let index = (count & self.entries.wrapping_sub(1)) as usize;
        self.offset.wrapping_add(index.wrapping_mul(self.stride))
    }

    /// Where it ends, unless that is more than there are numbers.
    const fn end(&self) -> Option<usize> {
        match self.stride.checked_mul(self.entries as usize) {
            Some(bytes) => self.offset.checked_add(bytes),
            None => None,
        }
    }

    fn new(offset: usize, depth: u32, head: usize, behind: usize) -> Option<Self> {
        let stride = head.checked_add(behind)?.checked_next_multiple_of(64)?;
        let entries = if depth == 0 { 0 } else { depth.checked_next_power_of_two()? };
        let ring = Self { offset, stride, entries };
        ring.end().map(|_| ring)
    }
}

/// What a queue pair or a shared receive queue is made with, as far as it decides the layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSizes {
    pub initiator_depth: u32,
    pub initiator_sges: u32,
    pub inline_data: u32,
    /// 0 with a shared receive queue.
    pub receive_depth: u32,
    pub receive_sges: u32,
}

/// The layout of a queue pair's memory, or of a shared receive queue's, whose initiator ring has no entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLayout {
    pub initiator: Ring,
    pub receive: Ring,
    /// Bytes in all.
    pub length: usize,
}

impl QueueLayout {
    /// `None` when the sizes are more than there are numbers.
    #[must_use]
    pub fn new(sizes: QueueSizes) -> Option<Self> {
        let sges = |count: u32| (count as usize).checked_mul(size_of::<Sge>());
        let behind = sges(sizes.initiator_sges)?.max(sizes.inline_data as usize);
        let initiator = Ring::new(QUEUE_PAIR_ENTRIES, sizes.initiator_depth, size_of::<InitiatorEntry>(), behind)?;
        let receive =
            Ring::new(initiator.end()?, sizes.receive_depth, size_of::<ReceiveEntry>(), sges(sizes.receive_sges)?)?;
        Some(Self { initiator, receive, length: receive.end()? })
    }
}

/// Entries that a completion queue takes beyond its depth before the ring is full.
pub const COMPLETION_SLACK: u32 = 16;

/// The layout of a completion queue's memory and its length in bytes.
#[must_use]
pub fn completion_layout(depth: u32) -> Option<(Ring, usize)> {
    let entries = depth.checked_add(COMPLETION_SLACK)?.checked_next_power_of_two()?;
    let ring = Ring { offset: COMPLETION_ENTRIES, stride: size_of::<ResultEntry>(), entries };
    Some((ring, ring.end()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_of_a_queue_pair_lie_behind_each_other() {
        let sizes =
            QueueSizes { initiator_depth: 100, initiator_sges: 2, inline_data: 200, receive_depth: 3, receive_sges: 4 };
        let layout = QueueLayout::new(sizes).unwrap();
        assert_eq!(layout.initiator, Ring { offset: 192, stride: 256, entries: 128 });
        assert_eq!(layout.receive, Ring { offset: 192 + 128 * 256, stride: 128, entries: 4 });
        assert_eq!(layout.length, 192 + 128 * 256 + 4 * 128);
        assert_eq!(layout.receive.place(7), layout.receive.place(3));
    }

    #[test]
    fn a_shared_receive_queue_has_no_initiator_ring() {
        let layout =
            QueueLayout::new(QueueSizes { receive_depth: 1, receive_sges: 1, ..QueueSizes::default() }).unwrap();
        assert_eq!((layout.initiator.entries, layout.receive.offset, layout.length), (0, 192, 256));
    }

    #[test]
    fn sizes_beyond_all_numbers_have_no_layout() {
        let sizes = QueueSizes { initiator_depth: u32::MAX, inline_data: u32::MAX, ..QueueSizes::default() };
        assert_eq!(QueueLayout::new(sizes), None);
        assert_eq!(completion_layout(u32::MAX), None);
    }
}
