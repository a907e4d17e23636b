//! What connects two queue pairs: how a requester reaches the peer's memory and receives.
//!
//! This is the border behind which the peer lives. Each end keeps its own locks. The messages of connectors have a border of their
//! own, in `connection`.

use alloc::vec::Vec;
use core::ops::Range;

use softndk_cells::ring::Receiver;
use softndk_cells::{Shared, Stamp};

use crate::completion::completion_queue::Completion;
use crate::counters::Traffic;
use crate::error::Outcome;
use crate::memory::access::Accessor;
use crate::memory::transfer::{CHUNK, Fault, Spans};
use crate::platform::Platform;
use crate::queue_pair::pair::{QueuePairObject, Request};
use crate::queue_pair::receive_queue::Receive;
use crate::token::{MemoryToken, Sge};

/// Which side refused an access.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refused {
    Local,
    Remote,
    /// The first SGE is of memory that the request cannot invalidate.
    Unfit,
}

/// How the other end is reached.
pub(crate) trait Wire<P: Platform> {
    /// The queue pair at the other end.
    type PeerQueuePair;

    /// Moves a range of a Read from the peer's memory.
    fn read<'g>(
        peer: &Self::PeerQueuePair,
        here: Accessor<'g, P>,
        request: &Request<P>,
        local: &mut impl Spans<'g, P>,
        range: Range<u64>,
    ) -> Result<(), Refused>;

    /// Moves a range of a Write into the peer's memory.
    fn write<'g>(
        peer: &Self::PeerQueuePair,
        here: Accessor<'g, P>,
        request: &Request<P>,
        local: &mut impl Spans<'g, P>,
        range: Range<u64>,
    ) -> Result<(), Refused>;

    /// Moves a whole inline Write into the peer's memory.
    fn write_inline(
        peer: &Self::PeerQueuePair,
        here: Accessor<'_, P>,
        request: &Request<P>,
        chunks: &Receiver<[u8; CHUNK]>,
    ) -> Result<(), Refused>;

    /// Takes the peer's receive after the `filled` ones and checks that the message can go into it; without one, the queue pair
    /// is linked when the peer posts one. `sges` gets the SGEs of the receive.
    fn begin_send(
        pair: &Shared<QueuePairObject<P>>,
        peer: &Self::PeerQueuePair,
        here: Accessor<'_, P>,
        delivery: Delivery,
        sges: &mut Vec<Sge>,
    ) -> Begun;

    /// Moves a range of a message into the SGEs of its receive.
    fn send<'g>(
        peer: &Self::PeerQueuePair,
        here: Accessor<'g, P>,
        sges: &[Sge],
        source: &mut impl Spans<'g, P>,
        range: Range<u64>,
        total: u64,
    ) -> Result<(), Fault>;

    /// Moves a whole inline message, whose chunks begin at `first`, into the SGEs of its receive.
    fn send_inline(
        peer: &Self::PeerQueuePair,
        here: Accessor<'_, P>,
        sges: &[Sge],
        chunks: (&Receiver<[u8; CHUNK]>, usize),
        total: u64,
    ) -> Result<(), Fault>;

    /// Revokes the access to one of the peer's regions or windows; `None` when it has none under the token.
    fn invalidate(peer: &Self::PeerQueuePair, here: Accessor<'_, P>, token: MemoryToken) -> Option<Stamp>;

    /// Whether a message that finds no receive waits for ever, whatever the time-out: the peer's receives are shared.
    fn is_patient(peer: &Self::PeerQueuePair) -> bool;

    /// Completes the filled receives at the other end; `moving`: another one is being filled.
    fn end_sends(peer: &Self::PeerQueuePair, filled: &mut [Completion], moving: bool);

    /// Nothing more is sent: a place among the senders that wait for a receive is freed.
    fn give_up(peer: &Self::PeerQueuePair);

    /// The request failed the other end too: everything posted there is cancelled.
    fn break_off(peer: &Self::PeerQueuePair);

    /// Counts traffic at the other end: what it sent and what it received.
    fn count(peer: &Self::PeerQueuePair, sent: Traffic, received: Traffic);
}

/// A message that looks for its receive.
#[derive(Clone, Copy)]
pub(crate) struct Delivery {
    pub(crate) length: u64,
    /// The peer's token that the message invalidates.
    pub(crate) invalidates: Option<MemoryToken>,
    /// Receives this side has filled and not yet completed.
    pub(crate) filled: usize,
}

/// How a message found the other end.
pub(crate) enum Begun {
    Found(Receive),
    NoReceive,
    /// The token to invalidate is not in use; no receive was touched.
    UnknownToken,
    /// The receive fails, and with it both ends.
    Failed(Receive, Outcome),
}
