//! Two connected queue pairs with their objects, with which most trials begin.

use std::net::SocketAddr;

use ndkpi_sys::nt::{NTSTATUS, STATUS_PENDING};

use super::connection::{Connector, Listener, Offer};
use super::queue_pair::{QueuePair, QueuePairShape};
use super::{Adapter, CompletionQueue, ProtectionDomain};

/// One side of a connection. The fields are in the order in which they may be closed one by one.
pub struct End<'a> {
    pub connector: Option<Connector>,
    pub queue_pair: QueuePair,
    pub initiator: CompletionQueue,
    pub receive: CompletionQueue,
    pub domain: ProtectionDomain,
    pub adapter: &'a Adapter,
}

impl<'a> End<'a> {
    pub fn new(adapter: &'a Adapter, shape: QueuePairShape) -> Self {
        let domain = ProtectionDomain::new(adapter).expect("a protection domain");
        let receive = CompletionQueue::new(adapter, shape.receive_depth.max(1)).expect("a completion queue");
        let initiator = CompletionQueue::new(adapter, shape.initiator_depth.max(1)).expect("a completion queue");
        let queue_pair = QueuePair::new(&domain, &receive, &initiator, shape).expect("a queue pair");
        Self { connector: None, queue_pair, initiator, receive, domain, adapter }
    }

    pub fn connector(&self) -> &Connector {
        self.connector.as_ref().expect("a connected end")
    }
}

pub struct Pair<'a> {
    pub active: End<'a>,
    pub passive: End<'a>,
    pub listener: Listener,
}

impl<'a> Pair<'a> {
    /// Connects `from` to `to` over their first addresses.
    pub fn connect(from: &'a Adapter, to: &'a Adapter) -> Self {
        Self::connect_with(from, to, QueuePairShape::default())
    }

    pub fn connect_with(from: &'a Adapter, to: &'a Adapter, shape: QueuePairShape) -> Self {
        let active = End::new(from, shape);
        let passive = End::new(to, shape);
        Self::join(active, passive, from.address(), to.address())
    }

    /// Connects two ends that exist already.
    pub fn join(mut active: End<'a>, mut passive: End<'a>, from: SocketAddr, to: SocketAddr) -> Self {
        let listener = Listener::new(passive.adapter).expect("a listener");
        assert_eq!(listener.listen(SocketAddr::new(to.ip(), 0)), 0, "listening on {to}");
        let (connector, accepted) = establish(
            (active.adapter, &active.queue_pair, SocketAddr::new(from.ip(), 0)),
            (&listener, &passive.queue_pair),
            &Offer::default(),
        )
        .expect("a connection");
        active.connector = Some(connector);
        passive.connector = Some(accepted);
        Self { active, passive, listener }
    }

    /// The sides the other way round: what the passive one does to the active one.
    pub fn ends(&self) -> [(&End<'a>, &End<'a>); 2] {
        [(&self.active, &self.passive), (&self.passive, &self.active)]
    }
}

/// Takes a connection through all its steps: connect, event, accept, complete.
pub fn establish(
    active: (&Adapter, &QueuePair, SocketAddr),
    passive: (&Listener, &QueuePair),
    offer: &Offer<'_>,
) -> Result<(Connector, Connector), NTSTATUS> {
    let (adapter, queue_pair, from) = active;
    let (listener, accepting) = passive;
    let connector = Connector::new(adapter)?;
    let connecting = connector.begin_connect(queue_pair, from, listener.local_address(), offer);
    if connecting.inline() != STATUS_PENDING && connecting.inline() != 0 {
        return Err(connecting.inline());
    }
    let accepted = listener.next();
    let accepting = accepted.begin_accept(accepting, offer);
    match connecting.wait() {
        0 => {}
        failure => return Err(failure),
    }
    match connector.begin_complete_connect().wait() {
        0 => {}
        failure => return Err(failure),
    }
    match accepting.wait() {
        0 => Ok((connector, accepted)),
        failure => Err(failure),
    }
}
