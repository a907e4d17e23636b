//! The model of the contract: the results that a consumer must see.
//!
//! It is sequential: every call takes its whole effect before the next one. Its state is plain vectors and maps.
//! It is written from the documents (NDKPI, NDSPI v2) and `docs/decisions.md`, shares no code with the
//! engine, and has no queues between processors, no tokens, no epochs, no budgets.
//!
//! [`Model::apply`] answers what a line must give. Lines that a correct consumer would not write, or for which the contract
//! leaves a choice, are *skipped*: the model stays as it was and the line is left out of the script. So a script can be cut
//! anywhere and stays a script.

mod completion;
mod connection;
mod memory;
mod posting;
mod transfer;

use std::collections::BTreeMap;

use ndkctl::script::{Line, Tail};
use softndk_ioctl::{ScriptCode, ScriptEvent, ScriptKind, ScriptName, ScriptOccurrence, ScriptResult, Status};

pub use completion::CompletionQueue;
pub use connection::{Connector, Phase};
pub use memory::{Address, Region, Registered, Window};
pub use transfer::{QueuePair, Receive, Request};

/// Which contract the consumer uses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Column {
    /// Kernel consumers (NDKPI).
    Ndk,
    /// User-mode consumers (NDSPI version 2).
    Nd,
}

/// Both ends of every connection are across a stream (`docs/semantics.md`): what is sent has succeeded, whatever its peer does with it.
pub const ACROSS_STREAMS: bool = cfg!(feature = "streams");

/// An object, by its place in the model's list; never reused.
pub type Id = usize;

/// The life cycle of an object.
#[derive(Clone, Debug)]
pub struct Node {
    pub name: ScriptName,
    /// The consumer has called close.
    pub closed: bool,
    /// Its close is complete.
    pub finished: bool,
    /// Objects whose close waits for this one's.
    pub antecedents: Vec<Id>,
    pub resource: Resource,
}

/// What an object is.
#[derive(Clone, Debug)]
pub enum Resource {
    Adapter(u64),
    Domain { adapter: Id },
    CompletionQueue(CompletionQueue),
    Shared(transfer::Shared),
    QueuePair(QueuePair),
    Buffer(memory::Buffer),
    Region(Region),
    Window(Window),
    Token(memory::Remembered),
    Listener(connection::Listener),
    Connector(Connector),
    Endpoint(connection::Endpoint),
}

/// What a line must give.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// Not a line for this state: leave it out.
    Skip,
    /// Nothing to compare.
    Nothing,
    Status(Status),
    Results(Vec<ScriptResult>),
    Occurrences(Vec<ScriptOccurrence>),
    Digest(u64),
    Limits(u32, u32),
}

/// All objects and their state, by the contract.
#[derive(Clone, Debug)]
pub struct Model {
    pub column: Column,
    pub nodes: Vec<Node>,
    /// Slots that are taken.
    pub slots: BTreeMap<ScriptName, Id>,
    pub(crate) occurrences: Vec<ScriptOccurrence>,
    /// Arrived connectors that the consumer has not taken yet, by listener, oldest first.
    pub(crate) arrivals: Vec<(Id, Id)>,
    /// Completion queues that have overrun, and whose queue pairs have not ended yet.
    pub(crate) overrun: Vec<Id>,
    /// Numbers that mark tokens apart.
    pub(crate) next_token: u64,
}

macro_rules! access {
    ($($name:ident, $name_mut:ident, $variant:ident, $type:ty;)*) => {
        #[allow(dead_code, reason = "one pair a kind")]
        impl Model {
            $(
                pub(crate) fn $name(&self, id: Id) -> &$type {
                    match &self.nodes[id].resource { Resource::$variant(resource) => resource, other => panic!("{id} is {other:?}") }
                }
                pub(crate) fn $name_mut(&mut self, id: Id) -> &mut $type {
                    match &mut self.nodes[id].resource { Resource::$variant(resource) => resource, other => panic!("{id} is {other:?}") }
                }
            )*
        }
    };
}

access! {
    queue, queue_mut, CompletionQueue, CompletionQueue;
    shared, shared_mut, Shared, transfer::Shared;
    pair, pair_mut, QueuePair, QueuePair;
    buffer, buffer_mut, Buffer, memory::Buffer;
    region, region_mut, Region, Region;
    window, window_mut, Window, Window;
    token, token_mut, Token, memory::Remembered;
    listener, listener_mut, Listener, connection::Listener;
    connector, connector_mut, Connector, Connector;
    endpoint, endpoint_mut, Endpoint, connection::Endpoint;
}

/// A line with the model's lookups; `None` anywhere means: skip it.
pub(crate) struct Call<'a> {
    pub line: &'a Line,
    pub code: ScriptCode,
}

impl Call<'_> {
    pub fn number(&self, index: usize) -> u64 {
        self.line.step.arguments[index]
    }

    pub fn small(&self, index: usize) -> u32 {
        self.line.step.arguments[index] as u32
    }

    pub fn name(&self, index: usize) -> ScriptName {
        ScriptName(self.line.step.arguments[index] as u32)
    }
}

pub(crate) const DONE: Expected = Expected::Status(Status::SUCCESS);

pub(crate) fn fails(status: Status) -> Option<Expected> {
    Some(Expected::Status(status))
}

impl Model {
    pub fn new(column: Column) -> Self {
        Self {
            column,
            nodes: Vec::new(),
            slots: BTreeMap::new(),
            occurrences: Vec::new(),
            arrivals: Vec::new(),
            overrun: Vec::new(),
            next_token: 1,
        }
    }

    /// The object of that kind in a slot that the consumer may still use.
    pub fn find(&self, name: ScriptName, kind: ScriptKind) -> Option<Id> {
        let (of, _) = name.parts()?;
        (of == kind).then_some(())?;
        self.slots.get(&name).copied()
    }

    /// Live objects of one kind.
    pub fn all(&self, kind: ScriptKind) -> impl Iterator<Item = (ScriptName, Id)> + '_ {
        let range = ScriptName::new(kind, 0)..=ScriptName::new(kind, u16::MAX);
        self.slots.range(range).map(|(name, id)| (*name, *id))
    }

    /// True when the consumer has given everything back and all of it is finished, adapters aside.
    pub fn is_at_rest(&self) -> bool {
        self.nodes.iter().all(|node| node.finished || matches!(node.resource, Resource::Adapter(_)))
    }

    pub(crate) fn add(&mut self, name: ScriptName, antecedents: Vec<Id>, resource: Resource) -> Id {
        let id = self.nodes.len();
        self.nodes.push(Node { name, closed: false, finished: false, antecedents, resource });
        self.slots.insert(name, id);
        id
    }

    pub(crate) fn occur(&mut self, event: ScriptEvent, object: Id, status: Status) {
        let object = self.nodes[object].name;
        // What never had a slot has no name to be seen by.
        if object == ScriptName::NONE {
            return;
        }
        self.occurrences.push(ScriptOccurrence { event: event as u32, object, status: status.0, reserved: [0; 5] });
    }

    pub(crate) fn closed(&self, id: Id) -> bool {
        self.nodes[id].closed
    }

    /// What the line must give; its whole effect has happened then.
    pub fn apply(&mut self, line: &Line) -> Expected {
        let Some(code) = ScriptCode::from_number(line.step.code) else { return Expected::Skip };
        let call = Call { line, code };
        let chain = self.nodes.iter().position(|node| match &node.resource {
            Resource::QueuePair(pair) => pair.held > 0,
            _ => false,
        });
        // Whether held requests run early is the provider's choice: no event between the links of a chain shows it.
        if let Some(chain) = chain
            && !self.fits_chain(&call, chain)
        {
            return Expected::Skip;
        }
        let expected = self.dispatch(&call).unwrap_or(Expected::Skip);
        if expected != Expected::Skip {
            self.wait_until_idle();
        }
        expected
    }

    fn fits_chain(&self, call: &Call<'_>, chain: Id) -> bool {
        use ScriptCode as Do;
        let on_chain = self.nodes[chain].name == call.line.step.object;
        let posts = matches!(
            call.code,
            Do::Send | Do::SendAndInvalidate | Do::Read | Do::Write | Do::FastRegister | Do::Bind | Do::Invalidate
        );
        let ends = matches!(call.code, Do::Flush | Do::Close);
        (on_chain && (posts || ends)) || matches!(call.code, Do::Poll | Do::Events)
    }

    fn dispatch(&mut self, call: &Call<'_>) -> Option<Expected> {
        use ScriptCode as Do;
        let name = call.line.step.object;
        let (of, _) = if call.code == Do::Events { (ScriptKind::Adapter, 0) } else { name.parts()? };
        let verb = call.code.verb();
        if verb.object.is_some_and(|kind| kind != of) || (verb.makes && self.slots.contains_key(&name)) {
            return None;
        }
        match call.code {
            Do::Open => self.open(name, call),
            Do::CreateDomain => {
                let adapter = self.find(call.name(0), ScriptKind::Adapter)?;
                self.add(name, vec![adapter], Resource::Domain { adapter });
                Some(DONE)
            }
            Do::CreateCompletionQueue => self.create_queue(name, call),
            Do::CreateSharedReceiveQueue => self.create_shared(name, call),
            Do::CreateQueuePair => self.create_pair(name, call),
            Do::CreateQueuePairShared => self.create_pair_shared(name, call),
            Do::CreateBuffer => self.create_buffer(name, call),
            Do::Fill => self.fill(name, call),
            Do::CreateRegion | Do::CreateFastRegion => self.create_region(name, call),
            Do::CreateWindow => self.create_window(name, call),
            Do::Register => self.register(name, call),
            Do::Deregister => self.deregister(name),
            Do::Initialize => self.initialize(name, call),
            Do::Remember => self.remember(name, call),
            Do::CreateListener => self.create_listener(name, call),
            Do::CreateConnector => self.create_connector(name, call),
            Do::CreateEndpoint => self.create_endpoint(name, call),
            Do::Send | Do::SendAndInvalidate | Do::Read | Do::Write => self.post_transfer(name, call),
            Do::FastRegister => self.post_fast_register(name, call),
            Do::Bind => self.post_bind(name, call),
            Do::Invalidate => self.post_invalidate(name, call),
            Do::Receive => self.post_receive(name, call),
            Do::SharedReceive => self.post_shared_receive(name, call),
            Do::Flush => {
                let pair = self.find(name, ScriptKind::QueuePair)?;
                (!self.would_unbind_awaited(pair)).then_some(())?;
                self.flush(pair);
                Some(Expected::Nothing)
            }
            Do::Arm => self.arm(name, call),
            Do::Resize => self.resize(name, call),
            Do::Moderate => None,
            Do::Modify => self.modify(name, call),
            Do::Listen => self.listen(name, call),
            Do::Pause => {
                let listener = self.find(name, ScriptKind::Listener)?;
                self.listener_mut(listener).paused = call.number(0) != 0;
                Some(Expected::Nothing)
            }
            Do::Connect | Do::ConnectShared => self.connect(name, call),
            Do::Arrive => self.arrive(name, call),
            Do::Accept => self.accept(name, call),
            Do::Complete => self.complete(name),
            Do::Reject => self.reject(name, call),
            Do::Disconnect => self.disconnect(name),
            Do::Close => self.close(name),
            Do::Poll => self.poll(name),
            Do::Events => Some(Expected::Occurrences(std::mem::take(&mut self.occurrences))),
            Do::Bytes => self.bytes(name, call),
            Do::Limits => self.limits(name),
        }
    }

    fn open(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        (call.number(0) < 2).then_some(())?;
        self.add(name, Vec::new(), Resource::Adapter(call.number(0)));
        Some(DONE)
    }

    /// The adapter that an open is of: whatever its opens make works together.
    pub(crate) fn host(&self, open: Id) -> u64 {
        match self.nodes[open].resource {
            Resource::Adapter(host) => host,
            _ => u64::MAX,
        }
    }

    /// A close never fails; when it is complete is found out in [`Self::wait_until_idle`].
    fn close(&mut self, name: ScriptName) -> Option<Expected> {
        let id = *self.slots.get(&name)?;
        match &self.nodes[id].resource {
            // It blocks until everything under it is closed.
            Resource::Adapter(_) => {
                let under = |node: &Node| !node.finished && node.antecedents.contains(&id);
                (!self.nodes.iter().any(under)).then_some(())?;
            }
            Resource::Buffer(_) => self.release_buffer(id)?,
            Resource::Region(_) => self.close_region(id)?,
            Resource::Window(_) => {
                (!self.in_use(id, None) && !self.has_request_waiting(id)).then_some(())?;
                self.unbind(id);
            }
            Resource::QueuePair(_) => {
                (!self.would_unbind_awaited(id)).then_some(())?;
                self.flush(id);
            }
            Resource::Listener(_) => self.close_listener(id)?,
            // What a peer across a stream still does after that is said by nothing.
            Resource::Connector(connector) if ACROSS_STREAMS && connector.leaving => return None,
            Resource::Connector(_) => self.close_connector(id),
            Resource::CompletionQueue(_) => {
                self.queue_mut(id).armed = None;
            }
            Resource::Domain { .. } | Resource::Shared(_) | Resource::Token(_) | Resource::Endpoint(_) => {}
        }
        self.nodes[id].closed = true;
        self.slots.remove(&name);
        Some(Expected::Nothing)
    }

    /// Everything that follows from what has been done: transfers, then closes that nothing keeps open.
    fn wait_until_idle(&mut self) {
        while self.end_overrun() || self.transfer_something() {}
        self.call_back();
        loop {
            let ready = (0..self.nodes.len()).find(|id| {
                let node = &self.nodes[*id];
                let waits = |other: &Node| !other.finished && other.antecedents.contains(id);
                node.closed && !node.finished && !self.nodes.iter().any(waits)
            });
            let Some(id) = ready else { return };
            self.nodes[id].finished = true;
            self.occur(ScriptEvent::Closed, id, Status::SUCCESS);
        }
    }
}

/// The line as the model wants it: with its expectation in it.
pub fn with_expectation(line: &Line, expected: &Expected) -> Line {
    let mut line = line.clone();
    match expected {
        Expected::Skip | Expected::Nothing => {}
        Expected::Status(status) => line.step.status = status.0,
        Expected::Results(results) => line.tail = Tail::Results(results.clone()),
        Expected::Occurrences(seen) => line.tail = Tail::Occurrences(seen.clone()),
        Expected::Digest(digest) => line.step.arguments[2] = *digest,
        Expected::Limits(inbound, outbound) => {
            line.step.arguments[0] = u64::from(*inbound);
            line.step.arguments[1] = u64::from(*outbound);
        }
    }
    line
}
