//! The connector at the other end, and the way to one. Which kind of peer it is, is chosen when a connection is asked for.
//!
//! A peer is named by a handle that need not be an object of this process. Each end keeps its own locks: a message is delivered
//! with none held.

use core::net::SocketAddr;

use softndk_cells::Shared;

use crate::connection::connector::{self, ConnectAttempt, ConnectorObject};
use crate::connection::endpoint::EndpointKey;
use crate::connection::loopback::{self, LoopbackRoute};
use crate::connection::message::Message;
use crate::error::ConnectError;
use crate::platform::Platform;
use crate::queue_pair::pair::QueuePairObject;
use crate::queue_pair::peer::PeerQueuePair;

use crate::{
    connection::stream::{self, StreamRoute},
    stream::StreamObject,
};

/// The connector at the other end.
pub(crate) enum PeerConnector<P: Platform> {
    /// One of this fabric, and its queue pair from when it has brought one.
    Local(Shared<ConnectorObject<P>>, Option<Shared<QueuePairObject<P>>>),
    /// One across a stream.
    Stream(Shared<StreamObject<P>>),
}

impl<P: Platform> Clone for PeerConnector<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Local(connector, pair) => Self::Local(connector.clone(), pair.clone()),
            Self::Stream(stream) => Self::Stream(stream.clone()),
        }
    }
}

impl<P: Platform> PeerConnector<P> {
    /// How the queue pair of this end reaches the one at the other end.
    pub(crate) fn queue_pair(&self) -> Option<PeerQueuePair<P>> {
        match self {
            Self::Local(_, pair) => pair.clone().map(PeerQueuePair::Local),
            Self::Stream(stream) => Some(PeerQueuePair::Stream(stream.clone())),
        }
    }

    /// Whether the two are the same connector.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local(this, _), Self::Local(other, _)) => this.is(other),
            (Self::Stream(this), Self::Stream(other)) => this.is(other),
            _ => false,
        }
    }

    /// Sends a message of `from`; `pair` is what the peer reaches at this end from now on. Messages of one connector arrive in
    /// order, perhaps late: the other end accepts those of its present peer.
    pub(crate) fn send(
        &self,
        from: &Shared<ConnectorObject<P>>,
        message: Message,
        pair: Option<Shared<QueuePairObject<P>>>,
    ) {
        match self {
            Self::Local(to, _) => connector::deliver(to, Self::Local(from.clone(), pair), message),
            Self::Stream(stream) => stream::send(stream, message, pair),
        }
    }
}

/// The way to a destination, and with it the kind of the peer.
pub(crate) enum Route<P: Platform> {
    Local(LoopbackRoute<P>),
    Stream(StreamRoute),
}

impl<P: Platform> Route<P> {
    /// Looks for the way to a destination. What is known at once refuses the Connect at once.
    pub(crate) fn find(from: &ConnectorObject<P>, destination: SocketAddr) -> Result<Self, ConnectError> {
        if let Some(route) = StreamRoute::find(from, destination) {
            return Ok(Self::Stream(route));
        }
        LoopbackRoute::find(from.network(), from.adapter(), destination).map(Self::Local)
    }

    /// The destination in the endpoint directory.
    pub(crate) const fn remote(&self) -> EndpointKey {
        match self {
            Self::Local(route) => route.remote,
            Self::Stream(route) => route.remote,
        }
    }

    /// Sends the request. [`ConnectAttempt::begin`] is called in the moment in which the request becomes visible to others.
    pub(crate) fn request(self, attempt: ConnectAttempt<'_, P>) -> Result<(), ConnectError> {
        match self {
            Self::Local(route) => loopback::request(route, attempt),
            Self::Stream(route) => route.request(attempt),
        }
    }
}
