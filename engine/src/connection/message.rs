//! The messages between two connectors, and how they reach the other end.
//!
//! Each end keeps its own locks; messages between the ends may cross, and may be late.

use softndk_cells::Shared;

use crate::connection::connector::{self, ConnectorObject, ReadLimits};
use crate::error::{ConnectError, DisconnectReason};
use crate::limits::PRIVATE_DATA;
use crate::platform::Platform;
use crate::queue_pair::loopback::Loopback;
use crate::queue_pair::wire::Wire;

/// Private data on its way: a pointer, because messages are moved through many frames of a small stack.
#[derive(Clone)]
pub(crate) struct PrivateData(Option<Shared<Bytes>>);

struct Bytes {
    bytes: [u8; PRIVATE_DATA],
    length: usize,
}

static NO_BYTES: Bytes = Bytes { bytes: [0; PRIVATE_DATA], length: 0 };

impl PrivateData {
    pub(crate) const fn empty() -> Self {
        Self(None)
    }

    /// Copies data that is at most `most` bytes long. No data needs no memory.
    #[inline(never)]
    pub(crate) fn new(data: &[u8], most: u32) -> Result<Self, ConnectError> {
        if data.is_empty() {
            return Ok(Self::empty());
        }
        let mut copy = Bytes { bytes: [0; PRIVATE_DATA], length: data.len() };
        let place = copy.bytes.get_mut(..data.len()).filter(|_| data.len() <= most as usize);
        place.ok_or(ConnectError::PrivateDataTooLong)?.copy_from_slice(data);
        Ok(Self(Some(Shared::try_new(copy)?)))
    }

    fn bytes(&self) -> &Bytes {
        self.0.as_deref().unwrap_or(&NO_BYTES)
    }

    pub(crate) fn length(&self) -> usize {
        self.bytes().length
    }

    /// The data and the zeros behind it.
    pub(crate) fn padded(&self) -> &[u8] {
        &self.bytes().bytes
    }
}

/// A message from one connector to the other; `Q` is the queue pair at that end as the other end sees it.
pub(crate) enum Message<Q> {
    /// Accepted: the queue pair at that end, and the limits as this end sees them.
    Accepted {
        peer: Q,
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
    /// An abortive end, with the reason as the peer sees it.
    Abort {
        reason: DisconnectReason,
    },
}

/// How the connector at the other end is reached.
pub(crate) trait MessageWire<P: Platform>: Wire<P> {
    /// The connector at the other end.
    type PeerConnector;

    /// Delivers a message of the connection protocol. Messages may be late: the other end accepts those of its present peer.
    fn tell(to: &Self::PeerConnector, from: &Shared<ConnectorObject<P>>, message: Message<Self::PeerQueuePair>);
}

impl<P: Platform> MessageWire<P> for Loopback {
    type PeerConnector = Shared<ConnectorObject<P>>;

    fn tell(to: &Self::PeerConnector, from: &Shared<ConnectorObject<P>>, message: Message<Self::PeerQueuePair>) {
        connector::on_message(to, from, message);
    }
}
