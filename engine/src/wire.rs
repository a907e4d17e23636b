//! What connects two ends: how the peer's memory, receives and connector are reached.
//!
//! What it is: the border behind which the peer lives. What it is not: a lock over both ends; each end keeps its own locks, and
//! what one tells the other is a message that may cross another on its way.

use core::ops::Range;

use softndk_cells::Shared;
use softndk_cells::ring::Receiver;

use crate::access::Accessor;
use crate::completion_queue::Completion;
use crate::connector::ReadLimits;
use crate::limits::PRIVATE_DATA;
use crate::platform::Platform;
use crate::queue_pair::{QueuePairObject, Request};
use crate::receive_queue::Receive;
use crate::token::Element;
use crate::transfer::{CHUNK, Spans};

/// Which side refused an access.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refused {
    Local,
    Remote,
}

/// Private data on its way.
#[derive(Clone, Copy)]
pub(crate) struct PrivateData {
    bytes: [u8; PRIVATE_DATA],
    length: usize,
}

impl PrivateData {
    pub(crate) const fn empty() -> Self {
        Self { bytes: [0; PRIVATE_DATA], length: 0 }
    }

    /// Copies data; `None` when it is longer than `most`.
    pub(crate) fn new(data: &[u8], most: u32) -> Option<Self> {
        let mut copy = Self::empty();
        if data.len() > most as usize {
            return None;
        }
        copy.bytes.get_mut(..data.len())?.copy_from_slice(data);
        copy.length = data.len();
        Some(copy)
    }

    pub(crate) const fn length(&self) -> usize {
        self.length
    }

    /// The data and the zeros behind it.
    pub(crate) const fn padded(&self) -> &[u8] {
        &self.bytes
    }
}

/// What one connector tells the other.
pub(crate) enum Message<F> {
    /// Accepted: the queue pair at that end, and the limits as this end sees them.
    Accepted {
        far: F,
        limits: ReadLimits,
        data: PrivateData,
    },
    Rejected {
        data: PrivateData,
    },
    /// The connecting side has completed: both may send.
    Ready,
    /// The connecting side gave up.
    Abandoned,
    /// A graceful end.
    Notice,
    /// An end without grace.
    Abort,
}

/// How the other end is reached.
pub(crate) trait Wire<P: Platform> {
    /// The connector at the other end.
    type FarConnector;
    /// The queue pair at the other end.
    type FarQueuePair;

    /// Delivers a message of the connection protocol.
    fn tell(to: &Self::FarConnector, message: Message<Self::FarQueuePair>);

    /// Moves a range of a Read from the peer's memory.
    fn read<'g>(
        far: &Self::FarQueuePair,
        here: Accessor<'g, P>,
        request: &Request<P>,
        local: &mut impl Spans<'g, P>,
        range: Range<u64>,
    ) -> Result<(), Refused>;

    /// Moves a range of a Write into the peer's memory.
    fn write<'g>(
        far: &Self::FarQueuePair,
        here: Accessor<'g, P>,
        request: &Request<P>,
        local: &mut impl Spans<'g, P>,
        range: Range<u64>,
    ) -> Result<(), Refused>;

    /// Moves a whole inline Write into the peer's memory.
    fn write_inline(
        far: &Self::FarQueuePair,
        here: Accessor<'_, P>,
        request: &Request<P>,
        chunks: &Receiver<[u8; CHUNK]>,
    ) -> Result<(), Refused>;

    /// Takes the peer's receive after the `filled` ones, with its elements; without one, the queue pair is linked when the
    /// peer posts one.
    fn begin_send(
        pair: &Shared<QueuePairObject<P>>,
        far: &Self::FarQueuePair,
        filled: usize,
        elements: &mut alloc::vec::Vec<Element>,
    ) -> Option<Receive>;

    /// Completes the filled receives at the other end; `moving` says that another one is being filled.
    fn end_sends(far: &Self::FarQueuePair, filled: &[Completion], moving: bool);
}
