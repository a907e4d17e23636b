//! The peer of a queue pair, and who takes its requests there. The way is chosen when the connection is made.
//!
//! A peer is named by a handle that need not be an object of this process: posting, the work and the connector know no more of it.

use softndk_cells::Shared;

use crate::platform::{Lock, Platform};
use crate::queue_pair::local::Local;
use crate::queue_pair::pair::QueuePairObject;

use crate::{
    queue_pair::stream::StreamRequester,
    stream::{StreamObject, Wishes},
};

/// The queue pair at the other end of a connection.
pub(crate) enum PeerQueuePair<P: Platform> {
    /// One of this fabric, whose memory is at hand.
    Local(Shared<QueuePairObject<P>>),
    /// One across a stream.
    Stream(Shared<StreamObject<P>>),
}

impl<P: Platform> Clone for PeerQueuePair<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Local(pair) => Self::Local(pair.clone()),
            Self::Stream(stream) => Self::Stream(stream.clone()),
        }
    }
}

impl<P: Platform> PeerQueuePair<P> {
    /// The queue pair has drained and takes nothing more of its peer.
    #[inline]
    pub(super) fn leave(peer: Option<Self>) {
        if let Some(Self::Stream(stream)) = &peer {
            StreamObject::wish(stream, Wishes::LEAVE);
        }
        drop(peer);
    }
}

/// The requester of a queue pair.
pub(super) enum Peer<P: Platform> {
    /// There is no connection, or it has ended and nothing more is asked.
    None,
    Local(Local<P>),
    Stream(StreamRequester<P>),
}

impl<P: Platform> Peer<P> {
    /// The way to the peer of a queue pair that has one.
    #[inline(never)]
    pub(super) fn of(pair: &QueuePairObject<P>) -> Self {
        match pair.link.with(|link| link.peer.clone()) {
            None => Self::None,
            Some(PeerQueuePair::Local(peer)) => Self::Local(Local::new(peer, &pair.core.scheduler)),
            Some(PeerQueuePair::Stream(stream)) => Self::Stream(StreamRequester::new(stream)),
        }
    }
}
