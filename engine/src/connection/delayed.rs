//! The delayed wire of tests: every message, the request included, waits in the connector that sends it and is delivered by a
//! service pass of that connector, 0 to 200 µs later.
//!
//! It shows that connectors get along with a network: messages of one connector stay in order, those of several do not; a closed
//! connector's messages arrive all the same; a refusal comes as a message. The delays are pseudo-random.
//!
//! Rules: sending allocates nothing; each connector has a place for every message of an attempt before it sends its request.

use alloc::collections::VecDeque;
use core::net::SocketAddr;

use fastrand::Rng;
use softndk_cells::{Dispose, NoMemory, Shared};

use crate::adapter::adapter::AdapterObject;
use crate::connection::connector::{self, ConnectAttempt, ConnectorObject};
use crate::connection::endpoint::EndpointKey;
use crate::connection::loopback::LoopbackRoute;
use crate::connection::message::{Asked, ConnectionRequest, Message, MessageOf, MessageWire};
use crate::error::ConnectError;
use crate::limits::MESSAGE_DELAY;
use crate::object::header::Object;
use crate::object::timer::Timer;
use crate::platform::{Lock, Platform};

/// Messages that wait in one connector.
const PLACES: usize = 12;

/// The messages of an attempt: the request, Ready or Abandoned, Notice, Abort.
const ATTEMPT_PLACES: usize = 4;

/// See the module.
pub(crate) struct DelayedWire;

/// The connector at the other end.
pub(crate) enum DelayedPeer<P: Platform> {
    Known(Shared<ConnectorObject<P>>),
    /// What a request makes when it arrives.
    Requested(Shared<RequestedPeer<P>>),
}

/// The connector that a request has made, from its arrival on.
pub(crate) struct RequestedPeer<P: Platform>(P::Lock<Option<Shared<ConnectorObject<P>>>>);

impl<P: Platform> Dispose for RequestedPeer<P> {}

impl<P: Platform> Clone for DelayedPeer<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Known(connector) => Self::Known(connector.clone()),
            Self::Requested(requested) => Self::Requested(requested.clone()),
        }
    }
}

impl<P: Platform> DelayedPeer<P> {
    fn connector(&self) -> Option<Shared<ConnectorObject<P>>> {
        match self {
            Self::Known(connector) => Some(connector.clone()),
            Self::Requested(requested) => requested.0.with(|connector| connector.clone()),
        }
    }
}

/// Where a request goes.
pub(crate) struct DelayedRoute {
    destination: SocketAddr,
    remote: EndpointKey,
}

/// What waits in a connector.
pub(crate) struct DelayedMessages<P: Platform> {
    timer: Timer<P>,
    queue: P::Lock<DelayedQueue<P>>,
}

struct DelayedQueue<P: Platform> {
    entries: VecDeque<DelayedEntry<P>>,
    /// When the last entry goes.
    last: u64,
    random: Rng,
    /// A context delivers; entries go one after the other.
    is_delivering: bool,
}

struct DelayedEntry<P: Platform> {
    /// When it goes.
    at: u64,
    content: DelayedContent<P>,
}

enum DelayedContent<P: Platform> {
    Request { requested: Shared<RequestedPeer<P>>, destination: SocketAddr, request: ConnectionRequest<P> },
    Message { to: DelayedPeer<P>, message: MessageOf<P> },
}

impl<P: Platform> DelayedQueue<P> {
    /// Between 0 and the longest delay.
    fn delay(&mut self) -> u64 {
        self.random.u64(..=MESSAGE_DELAY)
    }
}

impl<P: Platform> DelayedMessages<P> {
    /// Adds a message where `free` places are.
    fn push(
        &self,
        connector: &Shared<ConnectorObject<P>>,
        free: usize,
        content: DelayedContent<P>,
    ) -> Result<(), NoMemory> {
        let now = connector.core.scheduler.platform().now();
        self.queue.with(|queue| {
            if queue.entries.len() + free > PLACES {
                return Err(NoMemory);
            }
            let at = now.saturating_add(queue.delay()).max(queue.last);
            queue.last = at;
            let is_first = queue.entries.is_empty();
            queue.entries.push_back(DelayedEntry { at, content });
            if is_first {
                self.timer.set(&Object::of(connector), at);
            }
            Ok(())
        })
    }

    /// The next message that has waited long enough. Without one the next pass comes when there is.
    fn pop(&self, connector: &Shared<ConnectorObject<P>>, is_next: bool) -> Option<DelayedContent<P>> {
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

/// Delivers what a connector has sent.
fn deliver<P: Platform>(from: &Shared<ConnectorObject<P>>, content: DelayedContent<P>) {
    match content {
        DelayedContent::Message { to, message } => {
            // A request that was refused has made no connector.
            if let Some(to) = to.connector() {
                connector::deliver(&to, |peer| DelayedWire::is_peer(peer, from), message);
            }
        }
        DelayedContent::Request { requested, destination, request } => {
            let arrived = LoopbackRoute::find(from.network(), from.adapter(), destination).and_then(|route| {
                route.arrive(from, &request, |arrived| {
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
                    let is_this =
                        |peer: &DelayedPeer<P>| matches!(peer, DelayedPeer::Requested(of) if of.is(&requested));
                    connector::deliver(from, is_this, Message::Refused { error });
                }
            }
        }
    }
}

impl<P: Platform> MessageWire<P> for DelayedWire {
    type PeerConnector = DelayedPeer<P>;
    type Route = DelayedRoute;
    type Part = DelayedMessages<P>;

    fn part(adapter: &AdapterObject<P>) -> Result<Self::Part, NoMemory> {
        let mut entries = VecDeque::new();
        entries.try_reserve_exact(PLACES)?;
        let random = Rng::with_seed(adapter.scheduler.next_object());
        let queue = DelayedQueue { entries, last: 0, random, is_delivering: false };
        let timer = Timer::try_new(&adapter.scheduler, adapter.scheduler.platform().processor())?;
        Ok(DelayedMessages { timer, queue: P::Lock::new(queue) })
    }

    fn peer(connector: &Shared<ConnectorObject<P>>) -> Self::PeerConnector {
        DelayedPeer::Known(connector.clone())
    }

    fn is_peer(peer: &Self::PeerConnector, from: &Shared<ConnectorObject<P>>) -> bool {
        peer.connector().is_some_and(|peer| peer.is(from))
    }

    fn route(from: &ConnectorObject<P>, destination: SocketAddr) -> Result<Self::Route, ConnectError> {
        let wire = from.adapter().wire;
        let there = from.network().find_adapter(|other| other.wire == wire && other.has_address(destination.ip()));
        let remote = EndpointKey::new(there.map_or(u32::MAX, |there| there.number), destination);
        Ok(DelayedRoute { destination, remote })
    }

    fn remote(route: &Self::Route) -> EndpointKey {
        route.remote
    }

    fn request(route: Self::Route, attempt: ConnectAttempt<'_, P>) -> Result<Asked<P>, ConnectError> {
        let (connector, request) = (attempt.connector, attempt.request());
        let requested = Shared::try_new(RequestedPeer(P::Lock::new(None)))?;
        let peer = DelayedPeer::Requested(requested.clone());
        let content = DelayedContent::Request { requested, destination: route.destination, request };
        attempt.begin(peer, || connector.wire.push(connector, ATTEMPT_PLACES, content))?;
        Ok(Asked::Later)
    }

    fn send(to: &Self::PeerConnector, from: &Shared<ConnectorObject<P>>, message: MessageOf<P>) {
        let sent = from.wire.push(from, 1, DelayedContent::Message { to: to.clone(), message });
        debug_assert!(sent.is_ok(), "an attempt sends more than it has places for");
    }

    fn service(connector: &Shared<ConnectorObject<P>>) {
        let mut is_next = false;
        while let Some(content) = connector.wire.pop(connector, is_next) {
            deliver(connector, content);
            is_next = true;
        }
        if is_next {
            connector.wire.rest(connector);
        }
    }
}
