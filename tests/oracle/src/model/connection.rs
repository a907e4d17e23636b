//! Listeners, connectors, shared endpoints: how connections are made and ended.

use softndk_ioctl::{ScriptCode, ScriptEvent, ScriptKind, ScriptName, Status};

use super::{Call, Column, DONE, Expected, Id, Model, Resource, fails};

/// What the adapter takes (NDK_ADAPTER_INFO).
const CALLER_DATA: u64 = 56;
const CALLEE_DATA: u64 = 148;
const INBOUND: u32 = 16;
const OUTBOUND: u32 = 128;

#[derive(Clone, Debug)]
pub struct Listener {
    pub adapter: Id,
    /// Listening on this port; 0: one that the provider chose.
    pub port: Option<u64>,
    pub paused: bool,
}

/// A local address that a line made explicitly.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub adapter: Id,
    pub port: u64,
}

/// The state of a connector.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    Idle,
    /// Connect is pending.
    Connecting,
    /// It came with a connect event and waits for an answer.
    Arrived,
    /// Its Connect has completed and waits for CompleteConnect.
    Answered,
    /// Its Accept is pending.
    Accepting,
    Connected,
    /// The connection failed: by a failed request, or the other side's close.
    Broken,
    /// The other side gave up before there was a connection.
    Deserted,
    /// Nothing more can be done with it.
    Over,
}

#[derive(Clone, Debug)]
pub struct Connector {
    pub adapter: Id,
    pub phase: Phase,
    /// The connector at the other end.
    pub peer: Option<Id>,
    pub pair: Option<Id>,
    /// Disconnect is pending.
    pub leaving: bool,
    /// It has the notice that the other side has ended.
    pub notified: bool,
    /// Its Connect has completed with success.
    pub answered: bool,
    /// What it asked for, then what it got.
    pub limits: (u32, u32),
    /// Local port asked for, in a connect that used none of the provider's choice, and the remote listener.
    pub route: Option<(Id, Id)>,
}

impl Connector {
    fn new(adapter: Id) -> Self {
        Self {
            adapter,
            phase: Phase::Idle,
            peer: None,
            pair: None,
            leaving: false,
            notified: false,
            answered: false,
            limits: (0, 0),
            route: None,
        }
    }
}

impl Model {
    pub(super) fn create_listener(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let adapter = self.find(call.name(0), ScriptKind::Adapter)?;
        self.add(name, vec![adapter], Resource::Listener(Listener { adapter, port: None, paused: false }));
        Some(DONE)
    }

    pub(super) fn create_connector(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let adapter = self.find(call.name(0), ScriptKind::Adapter)?;
        self.add(name, vec![adapter], Resource::Connector(Connector::new(adapter)));
        Some(DONE)
    }

    pub(super) fn create_endpoint(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let adapter = self.find(call.name(0), ScriptKind::Adapter)?;
        let port = call.number(1);
        self.port_is_sane(port)?;
        if self.port_in_use(adapter, port) {
            return fails(Status::SHARING_VIOLATION);
        }
        self.add(name, vec![adapter], Resource::Endpoint(Endpoint { adapter, port }));
        Some(DONE)
    }

    fn port_is_sane(&self, port: u64) -> Option<()> {
        // Ports that the provider hands out by itself are left alone.
        (port < 49152).then_some(())
    }

    /// In use by a listener or shared endpoint, until it and every connector over it is closed.
    fn port_in_use(&self, adapter: Id, port: u64) -> bool {
        port != 0
            && self.nodes.iter().any(|node| match &node.resource {
                Resource::Listener(listener) if !node.finished => {
                    listener.port == Some(port) && self.host(listener.adapter) == self.host(adapter)
                }
                Resource::Endpoint(endpoint) if !node.finished => {
                    endpoint.port == port && self.host(endpoint.adapter) == self.host(adapter)
                }
                _ => false,
            })
    }

    pub(super) fn listen(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let id = self.find(name, ScriptKind::Listener)?;
        let port = call.number(0);
        self.port_is_sane(port)?;
        let listener = self.listener(id);
        // How a second Listen is refused is undefined by the contract.
        listener.port.is_none().then_some(())?;
        if self.port_in_use(listener.adapter, port) {
            return fails(Status::SHARING_VIOLATION);
        }
        self.listener_mut(id).port = Some(port);
        Some(DONE)
    }

    pub(super) fn connect(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let id = self.find(name, ScriptKind::Connector)?;
        let pair = self.find(call.name(0), ScriptKind::QueuePair)?;
        let adapter = self.connector(id).adapter;
        let shared = call.code == ScriptCode::ConnectShared;
        let endpoint = if shared { Some(self.find(call.name(1), ScriptKind::Endpoint)?) } else { None };
        let at = usize::from(shared) + 1;
        let (to, host, port) = (call.name(at), call.name(at + 1), call.number(at + 2));
        // After the port comes the source port, which a shared endpoint has already.
        let rest = at + 3 + usize::from(!shared);
        (shared || call.number(4) == 0).then_some(())?;
        let (inbound, outbound, data) = (call.small(rest), call.small(rest + 1), call.number(rest + 2));
        let target = self.find(to, ScriptKind::Listener);
        if target.is_none() {
            // No listener may have that port by accident.
            let there = self.find(host, ScriptKind::Adapter)?;
            (to == ScriptName::NONE && port > 0 && !self.port_in_use(there, port)).then_some(())?;
        } else {
            self.listener(target?).port?;
        }
        let same = |other: Id| self.host(self.nodes[other].antecedents[0]) == self.host(adapter);
        (self.host_of_pair(pair) == self.host(adapter) && endpoint.is_none_or(same)).then_some(())?;
        (self.connector(id).phase == Phase::Idle && inbound > 0 && outbound > 0).then_some(())?;
        let used = self.pair(pair).connector.is_some() || self.pair(pair).ended;
        let too_long = data > CALLER_DATA;
        let listens = target.is_some_and(|target| !self.listener(target).paused);
        let taken = endpoint.is_some_and(|endpoint| target.is_some_and(|target| self.route_exists(endpoint, target)));
        // With two reasons the status is undefined by the contract.
        if usize::from(used) + usize::from(too_long) + usize::from(!listens) + usize::from(taken) > 1 {
            return None;
        }
        let refused = match (used, too_long, listens, taken) {
            (true, ..) => Some(Status::CONNECTION_ACTIVE),
            (_, true, ..) => Some(Status::INVALID_BUFFER_SIZE),
            (_, _, false, _) => Some(Status::CONNECTION_REFUSED),
            (.., true) => Some(Status::ADDRESS_ALREADY_EXISTS),
            _ => None,
        };
        if let Some(status) = refused {
            self.occur(ScriptEvent::Connect, id, status);
            return Some(Expected::Nothing);
        }
        let target = target?;
        let there = self.listener(target).adapter;
        let mut arrived = Connector::new(there);
        arrived.phase = Phase::Arrived;
        arrived.peer = Some(id);
        arrived.limits = (outbound.min(INBOUND), inbound.min(INBOUND).min(OUTBOUND));
        // It has no slot before it is taken.
        let peer = self.nodes.len();
        self.nodes.push(super::Node {
            name: ScriptName::NONE,
            closed: false,
            finished: false,
            antecedents: vec![there, target],
            resource: Resource::Connector(arrived),
        });
        self.arrivals.push((target, peer));
        self.occur(ScriptEvent::Arrived, target, Status::SUCCESS);
        let connector = self.connector_mut(id);
        connector.phase = Phase::Connecting;
        connector.peer = Some(peer);
        connector.pair = Some(pair);
        connector.limits = (inbound.min(INBOUND), outbound.min(OUTBOUND));
        connector.route = endpoint.map(|endpoint| (endpoint, target));
        self.nodes[id].antecedents.push(pair);
        self.nodes[id].antecedents.extend(endpoint);
        self.pair_mut(pair).connector = Some(id);
        Some(Expected::Nothing)
    }

    fn host_of_pair(&self, pair: Id) -> u64 {
        self.host(self.nodes[self.pair(pair).domain].antecedents[0])
    }

    /// A connection between the same two addresses.
    fn route_exists(&self, endpoint: Id, target: Id) -> bool {
        self.nodes.iter().any(|node| match &node.resource {
            Resource::Connector(connector) if !node.finished => connector.route == Some((endpoint, target)),
            _ => false,
        })
    }

    pub(super) fn arrive(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let listener = self.find(call.name(0), ScriptKind::Listener)?;
        let Some(place) = self.arrivals.iter().position(|(at, _)| *at == listener) else {
            return fails(Status::NOT_FOUND);
        };
        let (_, id) = self.arrivals.remove(place);
        self.nodes[id].name = name;
        self.slots.insert(name, id);
        Some(DONE)
    }

    pub(super) fn accept(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let id = self.find(name, ScriptKind::Connector)?;
        let pair = self.find(call.name(0), ScriptKind::QueuePair)?;
        let (inbound, outbound, data) = (call.small(1), call.small(2), call.number(3));
        (self.host_of_pair(pair) == self.host(self.connector(id).adapter) && inbound > 0 && outbound > 0)
            .then_some(())?;
        let used = self.pair(pair).connector.is_some() || self.pair(pair).ended;
        let too_long = data > CALLEE_DATA;
        let gone = self.connector(id).phase == Phase::Deserted && self.connector(id).pair.is_none();
        (gone || self.connector(id).phase == Phase::Arrived).then_some(())?;
        if usize::from(used) + usize::from(too_long) + usize::from(gone) > 1 {
            return None;
        }
        let refused = match (used, too_long, gone) {
            (true, ..) => Some(Status::CONNECTION_ACTIVE),
            (_, true, _) => Some(Status::INVALID_BUFFER_SIZE),
            (_, _, true) => Some(Status::CONNECTION_ABORTED),
            _ => None,
        };
        if let Some(status) = refused {
            self.occur(ScriptEvent::Accept, id, status);
            return Some(Expected::Nothing);
        }
        let connector = self.connector_mut(id);
        let peer = connector.peer?;
        connector.phase = Phase::Accepting;
        connector.pair = Some(pair);
        let offered = connector.limits;
        connector.limits = (inbound.min(INBOUND).min(offered.0), outbound.min(OUTBOUND).min(offered.1));
        let (inbound, outbound) = connector.limits;
        self.pair_mut(pair).connector = Some(id);
        self.nodes[id].antecedents.push(pair);
        let active = self.connector_mut(peer);
        active.phase = Phase::Answered;
        active.answered = true;
        active.limits = (active.limits.0.min(outbound), active.limits.1.min(inbound));
        self.occur(ScriptEvent::Connect, peer, Status::SUCCESS);
        Some(Expected::Nothing)
    }

    pub(super) fn complete(&mut self, name: ScriptName) -> Option<Expected> {
        let id = self.find(name, ScriptKind::Connector)?;
        let connector = self.connector(id);
        if connector.phase == Phase::Deserted && connector.answered {
            self.occur(ScriptEvent::Complete, id, Status::CONNECTION_ABORTED);
            return Some(Expected::Nothing);
        }
        (connector.phase == Phase::Answered).then_some(())?;
        let peer = connector.peer?;
        // A queue pair that was flushed meanwhile: what it may connect to is undefined by the contract.
        let ended = |connector: Id| self.connector(connector).pair.is_none_or(|pair| self.pair(pair).ended);
        (!ended(id) && !ended(peer)).then_some(())?;
        for connector in [id, peer] {
            self.connector_mut(connector).phase = Phase::Connected;
            let pair = self.connector(connector).pair?;
            self.pair_mut(pair).connected = true;
        }
        self.occur(ScriptEvent::Complete, id, Status::SUCCESS);
        self.occur(ScriptEvent::Accept, peer, Status::SUCCESS);
        Some(Expected::Nothing)
    }

    pub(super) fn reject(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let id = self.find(name, ScriptKind::Connector)?;
        let too_long = call.number(0) > CALLEE_DATA;
        let connector = self.connector(id);
        match connector.phase {
            Phase::Arrived | Phase::Answered if too_long => fails(Status::INVALID_BUFFER_SIZE),
            Phase::Arrived => {
                self.refuse(id);
                Some(DONE)
            }
            Phase::Answered => {
                self.abandon(id);
                Some(DONE)
            }
            Phase::Deserted if !connector.answered && !too_long => fails(Status::CONNECTION_ABORTED),
            _ => None,
        }
    }

    /// The passive side rejects: the Connect fails, and its connector and queue pair are as before.
    fn refuse(&mut self, passive: Id) {
        self.connector_mut(passive).phase = Phase::Over;
        let Some(active) = self.connector(passive).peer else { return };
        let connector = self.connector_mut(active);
        connector.phase = Phase::Idle;
        connector.peer = None;
        self.free(active);
        self.occur(ScriptEvent::Connect, active, Status::CONNECTION_REFUSED);
    }

    /// The attempt came to nothing: the queue pair is as before.
    fn free(&mut self, id: Id) {
        self.free_pair(id);
        self.connector_mut(id).route = None;
        let endpoints: Vec<Id> = (0..self.nodes.len())
            .filter(|other| matches!(self.nodes[*other].resource, Resource::Endpoint(_)))
            .collect();
        self.nodes[id].antecedents.retain(|antecedent| !endpoints.contains(antecedent));
    }

    /// The same, while the connector keeps its shared endpoint: its Connect has succeeded.
    fn free_pair(&mut self, id: Id) {
        if let Some(pair) = self.connector_mut(id).pair.take() {
            self.pair_mut(pair).connector = None;
            self.nodes[id].antecedents.retain(|antecedent| *antecedent != pair);
        }
    }

    /// The active side gives up after its Connect has completed: the waiting Accept fails.
    fn abandon(&mut self, active: Id) {
        self.connector_mut(active).phase = Phase::Over;
        let Some(passive) = self.connector(active).peer else { return };
        self.connector_mut(passive).phase = Phase::Over;
        self.free_pair(active);
        self.free(passive);
        self.occur(
            ScriptEvent::Accept,
            passive,
            match self.column {
                Column::Ndk => Status::CONNECTION_ABORTED,
                Column::Nd => Status::CONNECTION_REFUSED,
            },
        );
    }

    pub(super) fn disconnect(&mut self, name: ScriptName) -> Option<Expected> {
        let id = self.find(name, ScriptKind::Connector)?;
        let connector = self.connector(id);
        let peer = connector.peer?;
        (!connector.leaving).then_some(())?;
        match connector.phase {
            Phase::Connected if self.connector(peer).leaving => {
                for connector in [id, peer] {
                    self.leave(connector, Status::SUCCESS);
                }
            }
            Phase::Connected => {
                self.connector_mut(id).leaving = true;
                self.notify(peer);
                // NDSPI: a disconnect flushes at once, and so does the peer's notice of one; NDKPI: only the end of the handshake.
                for side in [id, peer] {
                    if self.column == Column::Nd
                        && let Some(pair) = self.connector(side).pair
                    {
                        self.flush(pair);
                    }
                }
            }
            // The other side has ended already: there is no answer to wait for.
            Phase::Broken => {
                let pair = connector.pair?;
                self.pair(pair).connected.then_some(())?;
                self.leave(id, Status::SUCCESS);
            }
            _ => return None,
        }
        Some(Expected::Nothing)
    }

    /// The end of a Disconnect: everything on the queue pair is cancelled, then it completes.
    fn leave(&mut self, id: Id, status: Status) {
        self.connector_mut(id).phase = Phase::Over;
        self.connector_mut(id).leaving = false;
        if let Some(pair) = self.connector(id).pair {
            self.flush(pair);
        }
        self.occur(ScriptEvent::Disconnect, id, status);
    }

    /// The disconnect event: once, and none for a side that is disconnecting.
    pub(super) fn notify(&mut self, id: Id) {
        let connector = self.connector_mut(id);
        if !connector.notified && !connector.leaving {
            connector.notified = true;
            if !self.closed(id) {
                self.occur(ScriptEvent::Gone, id, Status::SUCCESS);
            }
        }
    }

    /// A connected connector whose side has failed: the connection has ended, the other side gets an event.
    pub(super) fn break_connection(&mut self, id: Id) {
        if self.connector(id).phase != Phase::Connected {
            return;
        }
        let Some(peer) = self.connector(id).peer else { return };
        for connector in [id, peer] {
            self.connector_mut(connector).phase = Phase::Broken;
            if let Some(pair) = self.connector(connector).pair {
                self.pair_mut(pair).ended = true;
                self.cancel_requests(pair);
                self.unbind_from(pair);
            }
        }
        if self.column == Column::Nd
            && let Some(pair) = self.connector(peer).pair
        {
            self.flush(pair);
        }
        self.notify(peer);
        for connector in [id, peer] {
            if self.connector(connector).leaving {
                self.leave(connector, Status::CONNECTION_ABORTED);
            }
        }
    }

    pub(super) fn close_connector(&mut self, id: Id) {
        match self.connector(id).phase {
            Phase::Idle | Phase::Over | Phase::Deserted => {}
            Phase::Arrived => self.refuse(id),
            Phase::Answered => self.abandon(id),
            Phase::Connecting => {
                self.occur(ScriptEvent::Connect, id, Status::CONNECTION_ABORTED);
                self.free(id);
                if let Some(passive) = self.connector(id).peer {
                    self.connector_mut(passive).phase = Phase::Deserted;
                }
            }
            Phase::Accepting => {
                self.occur(ScriptEvent::Accept, id, Status::CONNECTION_ABORTED);
                self.free(id);
                if let Some(active) = self.connector(id).peer {
                    self.connector_mut(active).phase = Phase::Deserted;
                    self.free_pair(active);
                }
            }
            // An implicit disconnect: its own queue pair is flushed.
            Phase::Connected | Phase::Broken => {
                if let Some(pair) = self.connector(id).pair {
                    self.flush(pair);
                }
                self.break_connection(id);
            }
        }
        if self.connector(id).phase != Phase::Over {
            self.connector_mut(id).phase = Phase::Over;
        }
    }

    /// From now on no connect request arrives. A consumer takes the connectors that have arrived first: they are its own.
    pub(super) fn close_listener(&mut self, id: Id) -> Option<()> {
        (!self.arrivals.iter().any(|(at, _)| *at == id)).then_some(())
    }

    /// Connectors of the consumer's that it has not taken yet.
    pub fn has_arrivals(&self, name: ScriptName) -> bool {
        let id = self.slots.get(&name);
        self.arrivals.iter().any(|(at, _)| Some(at) == id)
    }

    pub(super) fn limits(&mut self, name: ScriptName) -> Option<Expected> {
        let id = self.find(name, ScriptKind::Connector)?;
        let connector = self.connector(id);
        matches!(connector.phase, Phase::Arrived | Phase::Answered).then_some(())?;
        Some(Expected::Limits(connector.limits.0, connector.limits.1))
    }
}
