//! Connectors of tests that only messages reach: each message, the request included, waits in the connector that sends it and is
//! delivered by a service pass of that connector, when it has travelled.
//!
//! It shows that connectors get along with a network: messages of one connector stay in order, those of several do not; a closed
//! connector's messages arrive all the same; a refusal comes as a message.
//!
//! Rules: sending allocates nothing; each connector has a slot for every message of an attempt before it sends its request.

use alloc::collections::VecDeque;
use core::net::SocketAddr;

use fastrand::Rng;
use softndk_cells::{Dispose, NoMemory, Shared};

use crate::adapter::adapter::{AdapterObject, FarPeers, Travel};
use crate::connection::connector::{self, ConnectAttempt, ConnectorObject};
use crate::connection::endpoint::EndpointKey;
use crate::connection::loopback::LoopbackRoute;
use crate::connection::message::{ConnectionRequest, Message};
use crate::connection::peer::PeerConnector;
use crate::error::ConnectError;
use crate::object::header::Object;
use crate::object::timer::Timer;
use crate::platform::{Lock, Platform};
use crate::queue_pair::pair::QueuePairObject;

/// Messages that wait in one connector.
const SLOTS: usize = 12;

/// The messages of an attempt: the request, Ready or Abandoned, Notice, Abort.
const ATTEMPT_SLOTS: usize = 4;

/// The connector at the other end.
pub(crate) enum FarConnector<P: Platform> {
    Known(Shared<ConnectorObject<P>>),
    /// What a request makes when it arrives.
    Requested(Shared<RequestedPeer<P>>),
}

/// The connector that a request has made, from its arrival on.
pub(crate) struct RequestedPeer<P: Platform>(P::Lock<Option<Shared<ConnectorObject<P>>>>);

impl<P: Platform> Dispose for RequestedPeer<P> {}

impl<P: Platform> Clone for FarConnector<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Known(connector) => Self::Known(connector.clone()),
            Self::Requested(requested) => Self::Requested(requested.clone()),
        }
    }
}

impl<P: Platform> FarConnector<P> {
    fn connector(&self) -> Option<Shared<ConnectorObject<P>>> {
        match self {
            Self::Known(connector) => Some(connector.clone()),
            Self::Requested(requested) => requested.0.with(|connector| connector.clone()),
        }
    }
}

/// Where a request goes.
pub(crate) struct FarRoute {
    destination: SocketAddr,
    pub(crate) remote: EndpointKey,
}

/// What waits in a connector.
pub(crate) struct FarMessages<P: Platform> {
    timer: Timer<P>,
    queue: P::Lock<FarQueue<P>>,
}

struct FarQueue<P: Platform> {
    entries: VecDeque<FarEntry<P>>,
    /// When the last entry goes.
    last: u64,
    travel: Travel,
    random: Rng,
    /// A context delivers; entries go one after the other.
    is_delivering: bool,
}

struct FarEntry<P: Platform> {
    /// When it goes.
    at: u64,
    content: FarContent<P>,
}

enum FarContent<P: Platform> {
    Request {
        requested: Shared<RequestedPeer<P>>,
        destination: SocketAddr,
        request: ConnectionRequest,
        pair: Shared<QueuePairObject<P>>,
    },
    Message {
        to: FarConnector<P>,
        message: Message,
        pair: Option<Shared<QueuePairObject<P>>>,
    },
}

impl<P: Platform> FarQueue<P> {
    fn delay(&mut self) -> u64 {
        self.travel.take(&mut self.random)
    }
}

impl<P: Platform> FarMessages<P> {
    pub(crate) fn try_new(adapter: &AdapterObject<P>) -> Result<Self, NoMemory> {
        let mut entries = VecDeque::new();
        entries.try_reserve_exact(SLOTS)?;
        let travel = adapter.far.map(FarPeers::travel).unwrap_or_default();
        let random = Rng::with_seed(adapter.scheduler.next_object());
        let queue = FarQueue { entries, last: 0, travel, random, is_delivering: false };
        let timer = Timer::try_new(&adapter.scheduler, adapter.scheduler.platform().processor())?;
        Ok(Self { timer, queue: P::Lock::new(queue) })
    }

    /// Adds a message where `free` slots are.
    fn push(
        &self,
        connector: &Shared<ConnectorObject<P>>,
        free: usize,
        content: FarContent<P>,
    ) -> Result<(), NoMemory> {
        let now = connector.core.scheduler.platform().now();
        self.queue.with(|queue| {
            if queue.entries.len() + free > SLOTS {
                return Err(NoMemory);
            }
            let at = now.saturating_add(queue.delay()).max(queue.last);
            queue.last = at;
            let is_first = queue.entries.is_empty();
            queue.entries.push_back(FarEntry { at, content });
            if is_first {
                self.timer.set(&Object::of(connector), at);
            }
            Ok(())
        })
    }

    /// The next message that has waited long enough. Without one the next pass comes when there is.
    fn pop(&self, connector: &Shared<ConnectorObject<P>>, is_next: bool) -> Option<FarContent<P>> {
        let now = connector.core.scheduler.platform().now();
        self.queue.with(|queue| {
            if queue.is_delivering && !is_next {
                return None;
            }
            let first = queue.entries.front()?.at;
            queue.is_delivering = first <= now;
            if !queue.is_delivering {
                self.timer.set(&Object::of(connector), first);
                return None;
            }
            queue.entries.pop_front().map(|entry| entry.content)
        })
    }

    /// No context delivers any more, with the queue empty.
    fn rest(&self, connector: &Shared<ConnectorObject<P>>) {
        self.queue.with(|queue| {
            queue.is_delivering = false;
            if let Some(first) = queue.entries.front() {
                self.timer.set(&Object::of(connector), first.at);
            }
        });
    }
}

impl<P: Platform> FarConnector<P> {
    /// Whether the two are the same connector.
    pub(crate) fn is(&self, other: &Self) -> bool {
        if let (Self::Requested(this), Self::Requested(other)) = (self, other) {
            return this.is(other);
        }
        self.connector().zip(other.connector()).is_some_and(|(this, other)| this.is(&other))
    }

    pub(crate) fn send(
        &self,
        from: &Shared<ConnectorObject<P>>,
        message: Message,
        pair: Option<Shared<QueuePairObject<P>>>,
    ) {
        let sent = from.far.push(from, 1, FarContent::Message { to: self.clone(), message, pair });
        debug_assert!(sent.is_ok(), "an attempt sends more than it has slots for");
    }
}

impl FarRoute {
    /// The way from a connector of an adapter whose peers are far. Whether there is a listener shows when the request arrives.
    pub(crate) fn find<P: Platform>(from: &ConnectorObject<P>, destination: SocketAddr) -> Option<Self> {
        from.adapter().far?;
        let wire = from.adapter().wire;
        let there = from.network().find_adapter(|other| other.wire == wire && other.has_address(destination.ip()));
        let remote = EndpointKey::new(there.map_or(u32::MAX, |there| there.number), destination);
        Some(Self { destination, remote })
    }

    pub(crate) fn request<P: Platform>(self, attempt: ConnectAttempt<'_, P>) -> Result<(), ConnectError> {
        let (connector, request, pair) = (attempt.connector, attempt.request(), attempt.pair().clone());
        let requested = Shared::try_new(RequestedPeer(P::Lock::new(None)))?;
        let peer = PeerConnector::Far(FarConnector::Requested(requested.clone()), None);
        let content = FarContent::Request { requested, destination: self.destination, request, pair };
        attempt.begin(peer, || connector.far.push(connector, ATTEMPT_SLOTS, content))
    }
}

/// Delivers what a connector has sent.
fn deliver<P: Platform>(from: &Shared<ConnectorObject<P>>, content: FarContent<P>) {
    let known = FarConnector::Known(from.clone());
    match content {
        FarContent::Message { to, message, pair } => {
            // A request that was refused has made no connector.
            if let Some(to) = to.connector() {
                connector::deliver(&to, PeerConnector::Far(known, pair), message);
            }
        }
        FarContent::Request { requested, destination, request, pair } => {
            let peer = PeerConnector::Far(known, Some(pair));
            let arrived = LoopbackRoute::find(from.network(), from.adapter(), destination).and_then(|route| {
                route.arrive(peer, &request, |arrived| {
                    requested.0.with(|peer| *peer = Some(arrived.clone()));
                    arrived.adapter().register(&Object::of(arrived)).map_err(ConnectError::from)
                })
            });
            match arrived {
                Ok(arrived) => {
                    arrived.core.scheduler.link(&Object::of(&arrived));
                    connector::abort_if_orphaned(&arrived);
                }
                Err(error) => {
                    let unregistered = requested.0.with(Option::take);
                    drop(unregistered);
                    let peer = PeerConnector::Far(FarConnector::Requested(requested), None);
                    connector::deliver(from, peer, Message::Refused { error });
                }
            }
        }
    }
}

/// What a service pass of a connector delivers.
pub(crate) fn service<P: Platform>(connector: &Shared<ConnectorObject<P>>) {
    let mut is_next = false;
    while let Some(content) = connector.far.pop(connector, is_next) {
        deliver(connector, content);
        is_next = true;
    }
    if is_next {
        connector.far.rest(connector);
    }
}
