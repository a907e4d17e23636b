//! The messages between two connectors, and how they reach the other end.
//!
//! Each end keeps its own locks; messages between the ends may cross, and may be late.

use core::net::SocketAddr;

use softndk_cells::{Dispose, NoMemory, Shared};

use crate::adapter::adapter::AdapterObject;
use crate::connection::connector::{ConnectAttempt, ConnectorObject, ReadLimits};
use crate::connection::endpoint::EndpointKey;
use crate::error::{ConnectError, DisconnectReason};
use crate::limits::PRIVATE_DATA;
use crate::platform::Platform;
use crate::queue_pair::pair::QueuePairObject;

/// Private data on its way: a pointer, because messages are moved through many frames of a small stack.
#[derive(Clone)]
pub(crate) struct PrivateData(Option<Shared<PrivateBytes>>);

struct PrivateBytes {
    bytes: [u8; PRIVATE_DATA],
    length: usize,
}

impl Dispose for PrivateBytes {}

static NO_BYTES: PrivateBytes = PrivateBytes { bytes: [0; PRIVATE_DATA], length: 0 };

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
        let mut copy = PrivateBytes { bytes: [0; PRIVATE_DATA], length: data.len() };
        let place = copy.bytes.get_mut(..data.len()).filter(|_| data.len() <= most as usize);
        place.ok_or(ConnectError::PrivateDataTooLong)?.copy_from_slice(data);
        Ok(Self(Some(Shared::try_new(copy)?)))
    }

    fn bytes(&self) -> &PrivateBytes {
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
    /// The request has found no connector there.
    #[cfg_attr(
        not(any(test, feature = "delayed-messages")),
        expect(dead_code, reason = "the loopback refuses at once")
    )]
    Refused {
        error: ConnectError,
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

/// A message by which a connector parts from its peer.
pub(crate) enum EndMessage {
    Rejected { data: PrivateData },
    Abandoned,
    Abort { reason: DisconnectReason },
}

impl<Q> From<EndMessage> for Message<Q> {
    fn from(message: EndMessage) -> Self {
        match message {
            EndMessage::Rejected { data } => Self::Rejected { data },
            EndMessage::Abandoned => Self::Abandoned,
            EndMessage::Abort { reason } => Self::Abort { reason },
        }
    }
}

/// The queue pair at the other end.
pub(crate) type PeerQueuePairOf<P> = Shared<QueuePairObject<P>>;

/// A queue pair of this end as the other end reaches it.
pub(crate) fn reached<P: Platform>(pair: &Shared<QueuePairObject<P>>) -> PeerQueuePairOf<P> {
    pair.clone()
}

/// How connectors reach one another.
#[cfg(not(feature = "delayed-messages"))]
pub(crate) type ConnectionWire = crate::connection::loopback::LoopbackWire;
#[cfg(feature = "delayed-messages")]
pub(crate) type ConnectionWire = crate::connection::delayed::DelayedWire;

/// The connector at the other end.
pub(crate) type PeerConnectorOf<P> = <ConnectionWire as MessageWire<P>>::PeerConnector;

/// What a wire keeps in each connector.
pub(crate) type WirePartOf<P> = <ConnectionWire as MessageWire<P>>::Part;

/// A message over the wire.
pub(crate) type MessageOf<P> = Message<PeerQueuePairOf<P>>;

/// A connection request as the other end gets it.
pub(crate) struct ConnectionRequest<P: Platform> {
    /// Address and port it comes from, as this end sees them.
    pub(crate) source: SocketAddr,
    pub(crate) limits: ReadLimits,
    pub(crate) data: PrivateData,
    /// Bytes of private data that the request could have.
    pub(crate) capacity: u32,
    pub(crate) queue_pair: PeerQueuePairOf<P>,
}

/// Where a request that was not refused is.
pub(crate) enum Asked<P: Platform> {
    /// The other end has its connector.
    #[cfg_attr(feature = "delayed-messages", expect(dead_code, reason = "requests arrive later"))]
    Arrived(Shared<ConnectorObject<P>>),
    /// On its way; a refusal comes as a message.
    #[cfg_attr(not(feature = "delayed-messages"), expect(dead_code, reason = "the loopback answers at once"))]
    Later,
}

/// How the connector at the other end is reached. This is the border behind which a network can stand.
pub(crate) trait MessageWire<P: Platform> {
    /// The connector at the other end, or what will be one when a request has arrived.
    type PeerConnector: Clone + Send + Sync;
    /// The way to a destination.
    type Route;
    /// What the wire keeps in each connector.
    type Part: Send + Sync;

    fn part(adapter: &AdapterObject<P>) -> Result<Self::Part, NoMemory>;

    /// The connector that a request came from.
    fn peer(connector: &Shared<ConnectorObject<P>>) -> Self::PeerConnector;

    /// Whether a message of `from` is one of this peer.
    fn is_peer(peer: &Self::PeerConnector, from: &Shared<ConnectorObject<P>>) -> bool;

    /// Looks for the way to a destination. What can be told at once refuses the Connect at once.
    fn route(from: &ConnectorObject<P>, destination: SocketAddr) -> Result<Self::Route, ConnectError>;

    /// The destination in the endpoint directory.
    fn remote(route: &Self::Route) -> EndpointKey;

    /// Sends the request. The wire calls [`ConnectAttempt::begin`] in the moment in which the request becomes visible to others.
    fn request(route: Self::Route, attempt: ConnectAttempt<'_, P>) -> Result<Asked<P>, ConnectError>;

    /// Sends a message. Messages of one connector arrive in order, perhaps late: the other end accepts those of its present peer.
    fn send(to: &Self::PeerConnector, from: &Shared<ConnectorObject<P>>, message: MessageOf<P>);

    /// What a service pass of a connector does for the wire.
    fn service(connector: &Shared<ConnectorObject<P>>);
}
