//! Generates sequences of lines from a seed, with a model at hand so that most of them are legal.
//!
//! Each episode begins with two adapters, a few queues and regions and mostly two connected queue pairs, then does what the
//! weights say. Names, offsets, lengths and flags are wrong now and then. Queues and buffers are small, so that limits are reached.

use ndkctl::script::{Line, Tail};
use softndk_ioctl::{ScriptCode as Do, ScriptKind as Of, ScriptName, ScriptSge};

use crate::compare::line;
use crate::model::{Column, Expected, Model, Phase, Resource};

/// Where decisions come from: a seed, the same sequences on every machine; or bytes, in their order, so that a fuzzer changes one
/// decision by changing a byte.
#[derive(Clone, Debug)]
pub enum Random {
    Seeded(fastrand::Rng),
    Bytes(std::vec::IntoIter<u8>),
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Self::Seeded(fastrand::Rng::with_seed(seed))
    }

    /// Each decision is the next two bytes; behind the end all are 0.
    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into_iter())
    }

    /// Bytes that were not used yet.
    pub fn left(&self) -> usize {
        match self {
            Self::Seeded(_) => usize::MAX,
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    pub fn word(&mut self) -> u64 {
        match self {
            Self::Seeded(generator) => generator.u64(..),
            Self::Bytes(bytes) => {
                let mut next = || bytes.next().unwrap_or_default();
                u64::from(u16::from_le_bytes([next(), next()]))
            }
        }
    }

    /// Below `end`; 0 when that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.word().checked_rem(end).unwrap_or(0)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        from.get(self.below(from.len() as u64) as usize).copied()
    }
}

/// What the sequences may use.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    pub shared_receive_queues: bool,
    pub windows: bool,
    pub resize: bool,
    pub shared_endpoints: bool,
    /// Completion queues too small for what is posted.
    pub overflow: bool,
    /// Each queue pair has its own two completion queues, so that there is one order in each.
    pub separate_queues: bool,
}

impl Features {
    /// Everything that the engine has.
    pub const ALL: Self = Self {
        shared_receive_queues: true,
        windows: true,
        resize: true,
        shared_endpoints: true,
        overflow: true,
        separate_queues: false,
    };

    /// The features for a system that is compared through scripts only.
    pub const IMAGE: Self = Self { separate_queues: true, ..Self::ALL };
}

/// Makes one sequence.
pub struct Generator {
    pub random: Random,
    pub model: Model,
    pub lines: Vec<Line>,
    features: Features,
    next_context: u64,
}

const PAGE: u64 = 4096;

/// A sequence of about `length` lines.
pub fn sequence(seed: u64, column: Column, length: usize, features: Features) -> Vec<Line> {
    let mut generator = Generator::new(Random::new(seed), column, features);
    generator.prologue();
    let mut tries = 0;
    while generator.lines.len() < length && tries < length * 4 {
        generator.something();
        tries += 1;
    }
    generator.lines
}

impl Generator {
    pub fn new(random: Random, column: Column, features: Features) -> Self {
        Self { random, model: Model::new(column), lines: Vec::new(), features, next_context: 1 }
    }

    pub(crate) fn put(&mut self, line: Line) -> bool {
        let meant = self.model.apply(&line) != Expected::Skip;
        if meant {
            self.lines.push(line);
        }
        meant
    }

    fn act(&mut self, code: Do, object: ScriptName, arguments: &[u64]) -> bool {
        self.put(line(code, object, arguments))
    }

    fn any(&mut self, kind: Of) -> Option<ScriptName> {
        let names: Vec<ScriptName> = self.model.all(kind).map(|(name, _)| name).collect();
        self.random.pick(&names)
    }

    /// A slot of that kind that is empty.
    fn vacant(&self, kind: Of, most: u16) -> Option<ScriptName> {
        (0..most).map(|number| ScriptName::new(kind, number)).find(|name| !self.model.slots.contains_key(name))
    }

    pub(crate) fn prologue(&mut self) {
        for adapter in 0..2_u16 {
            let opened = ScriptName::new(Of::Adapter, adapter);
            self.act(Do::Open, opened, &[u64::from(adapter)]);
            // A second open: what is made of either works with the other's.
            if self.random.one_in(2) {
                let second = ScriptName::new(Of::Adapter, 2 + adapter);
                self.act(Do::Open, second, &[u64::from(adapter)]);
                self.act(Do::CreateDomain, ScriptName::new(Of::Domain, 2 + adapter), &[u64::from(second.0)]);
            }
            let domain = ScriptName::new(Of::Domain, adapter);
            self.act(Do::CreateDomain, domain, &[u64::from(opened.0)]);
            for queue in 0..2 {
                let depth =
                    if self.features.overflow && self.random.one_in(4) { 1 + self.random.below(6) } else { 256 };
                let queue = ScriptName::new(Of::CompletionQueue, adapter * 2 + queue);
                self.act(Do::CreateCompletionQueue, queue, &[u64::from(opened.0), depth]);
            }
            let buffer = ScriptName::new(Of::Buffer, adapter);
            let pages = 1 + self.random.below(3);
            self.act(Do::CreateBuffer, buffer, &[u64::from(opened.0), pages * PAGE, u64::from(adapter)]);
            let region = ScriptName::new(Of::Region, adapter * 2);
            self.act(Do::CreateRegion, region, &[u64::from(domain.0)]);
            self.act(Do::Register, region, &[u64::from(buffer.0), 0, pages * PAGE, 7]);
            let fast = ScriptName::new(Of::Region, adapter * 2 + 1);
            self.act(Do::CreateFastRegion, fast, &[u64::from(domain.0)]);
            self.act(Do::Initialize, fast, &[2, 1]);
            self.queue_pair();
        }
        if !self.random.one_in(8) {
            self.connect_all_the_way();
        }
    }

    /// A queue pair on queues of one adapter.
    fn queue_pair(&mut self) {
        let Some(name) = self.vacant(Of::QueuePair, 6) else { return };
        let Some(domain) = self.fresh_or_any_domain() else { return };
        let (Some(receive), Some(initiator)) = (self.any(Of::CompletionQueue), self.any(Of::CompletionQueue)) else {
            return;
        };
        let (receive, initiator) = if self.features.separate_queues {
            let Some(fresh) = self.fresh_queues(domain) else { return };
            fresh
        } else {
            (receive, initiator)
        };
        let depth = |random: &mut Random| if random.one_in(40) { 16352 } else { 1 + random.below(8) };
        let (receive_depth, initiator_depth) = (depth(&mut self.random), depth(&mut self.random));
        let sges = |random: &mut Random| if random.one_in(40) { 33 } else { 1 + random.below(4) };
        let (receive_sges, initiator_sges) = (sges(&mut self.random), sges(&mut self.random));
        let inline = if self.random.one_in(40) { 257 } else { self.random.below(200) };
        let [domain, receive, initiator] = [domain, receive, initiator].map(|name| u64::from(name.0));
        if self.features.shared_receive_queues
            && self.random.one_in(3)
            && let Some(shared) = self.any(Of::SharedReceiveQueue)
        {
            let arguments = [domain, receive, initiator, u64::from(shared.0), initiator_depth, initiator_sges, inline];
            self.act(Do::CreateQueuePairShared, name, &arguments);
            return;
        }
        let arguments =
            [domain, receive, initiator, receive_depth, initiator_depth, receive_sges, initiator_sges, inline];
        self.act(Do::CreateQueuePair, name, &arguments);
    }

    fn fresh_queues(&mut self, domain: ScriptName) -> Option<(ScriptName, ScriptName)> {
        let id = self.model.find(domain, Of::Domain)?;
        let adapter = self.model.nodes[self.model.nodes[id].antecedents[0]].name;
        let mut fresh = || {
            let name = self.vacant(Of::CompletionQueue, 40)?;
            self.act(Do::CreateCompletionQueue, name, &[u64::from(adapter.0), 256]).then_some(name)
        };
        Some((fresh()?, fresh()?))
    }

    fn fresh_or_any_domain(&mut self) -> Option<ScriptName> {
        self.any(Of::Domain)
    }

    fn unconnected(&mut self, adapter: ScriptName) -> Option<ScriptName> {
        let adapter = self.model.find(adapter, Of::Adapter)?;
        let names: Vec<ScriptName> = self
            .model
            .all(Of::QueuePair)
            .filter(|(_, id)| match &self.model.nodes[*id].resource {
                Resource::QueuePair(pair) => {
                    pair.connector.is_none()
                        && !pair.ended
                        && self.model.host(self.model.nodes[pair.domain].antecedents[0]) == self.model.host(adapter)
                }
                _ => false,
            })
            .map(|(name, _)| name)
            .collect();
        self.random.pick(&names)
    }

    /// Listen, Connect, Accept, CompleteConnect, as far as objects are there.
    fn connect_all_the_way(&mut self) {
        let (Some(from), Some(to)) = (self.any(Of::Adapter), self.any(Of::Adapter)) else { return };
        for adapter in [from, to] {
            for _ in 0..4 {
                if self.unconnected(adapter).is_none() {
                    self.queue_pair();
                }
            }
        }
        let listener = self.listener_of(to);
        let (Some(pair), Some(connector), Some(listener)) =
            (self.unconnected(from), self.vacant(Of::Connector, 12), listener)
        else {
            return;
        };
        self.act(Do::CreateConnector, connector, &[u64::from(from.0)]);
        let [one, other] = [u64::from(pair.0), u64::from(listener.0)];
        if !self.act(Do::Connect, connector, &[one, other, 0, 0, 0, 4, 4, 0]) {
            return;
        }
        let Some(arrived) = self.vacant(Of::Connector, 12) else { return };
        self.act(Do::Arrive, arrived, &[other]);
        let Some(answering) = self.unconnected(to) else { return };
        if self.act(Do::Accept, arrived, &[u64::from(answering.0), 4, 4, 0]) {
            self.act(Do::Complete, connector, &[]);
        }
    }

    fn listener_of(&mut self, adapter: ScriptName) -> Option<ScriptName> {
        let id = self.model.find(adapter, Of::Adapter)?;
        let found = self.model.all(Of::Listener).find(|(_, listener)| match &self.model.nodes[*listener].resource {
            Resource::Listener(listener) => listener.adapter == id && listener.port.is_some() && !listener.paused,
            _ => false,
        });
        if let Some((name, _)) = found {
            return Some(name);
        }
        let name = self.vacant(Of::Listener, 4)?;
        self.act(Do::CreateListener, name, &[u64::from(adapter.0)]);
        let port = 1000 + self.random.below(3);
        self.act(Do::Listen, name, &[port]).then_some(name)
    }

    pub(crate) fn something(&mut self) {
        match self.random.below(100) {
            0..26 => self.initiator_request(),
            26..44 => self.receive_request(),
            44..56 => self.memory_request(),
            56..70 => self.look(),
            70..76 => self.arm(),
            76..86 => self.connection(),
            86..93 => self.make(),
            93..96 => self.flush(),
            _ => self.close(),
        }
    }

    fn flags(&mut self, code: Do) -> u64 {
        let mut flags = 0;
        for (bit, rarity) in [(0x1, 5), (0x2, 8), (0x200, 6)] {
            if self.random.one_in(rarity) {
                flags |= bit;
            }
        }
        if matches!(code, Do::Send | Do::SendAndInvalidate) && self.random.one_in(4) {
            flags |= 4;
        }
        if matches!(code, Do::Send | Do::SendAndInvalidate | Do::Write) && self.random.one_in(5) {
            flags |= 0x40;
        }
        if code == Do::Read && self.random.one_in(6) {
            flags |= 0x100;
        }
        if self.random.one_in(40) {
            flags |= self.random.pick(&[0x400, 0x8000_0000]).unwrap_or(0);
        }
        flags
    }

    fn context(&mut self) -> u64 {
        self.next_context += 1;
        self.next_context
    }

    /// Where the objects of the same adapter as a queue pair's or shared queue's are preferred.
    fn near(&mut self, of: ScriptName, kind: Of) -> Option<ScriptName> {
        let id = *self.model.slots.get(&of)?;
        let domain = match &self.model.nodes[id].resource {
            Resource::QueuePair(pair) => pair.domain,
            _ => *self.model.nodes[id].antecedents.first()?,
        };
        let adapter = self.model.nodes[domain].antecedents[0];
        let names: Vec<ScriptName> = self
            .model
            .all(kind)
            .filter(|(_, other)| {
                let antecedents = &self.model.nodes[*other].antecedents;
                antecedents.contains(&domain) || antecedents.contains(&adapter)
            })
            .map(|(name, _)| name)
            .collect();
        if self.random.one_in(30) { self.any(kind) } else { self.random.pick(&names) }
    }

    fn length(&mut self) -> u64 {
        match self.random.below(12) {
            0 => 0,
            1 => 1,
            2 => PAGE,
            3 => 2 * PAGE + 1,
            4 => 65,
            _ => self.random.below(200),
        }
    }

    fn sges(&mut self, of: ScriptName, inline: bool) -> Tail {
        let count = match self.random.below(20) {
            0 => 5,
            1..4 => 0,
            4..16 => 1,
            _ => 2,
        };
        let mut list = Vec::new();
        for _ in 0..count {
            let kind = if inline || self.random.one_in(3) { Of::Buffer } else { Of::Region };
            let Some(base) = self.near(of, kind) else { continue };
            let mut token = base;
            let mut raw_token = 0;
            let wrong = !inline && self.random.one_in(50);
            if wrong {
                token = self.random.pick(&[ScriptName::NONE]).filter(|_| self.random.one_in(2)).unwrap_or(base);
                token = self.any(Of::Region).filter(|_| token == base).unwrap_or(token);
                raw_token = if token == ScriptName::NONE { 0xFFFF_FFFF } else { 0 };
            }
            let length = if inline { self.random.below(80) } else { self.length() };
            let capacity = self.capacity(base);
            let offset = match self.random.below(60) {
                0 if !inline => u64::MAX,
                1 if !inline => capacity.saturating_sub(length) + 1,
                2..10 => capacity.saturating_sub(length),
                _ => self.random.below(capacity.saturating_sub(length) + 1),
            };
            list.push(ScriptSge { base, token, raw_token, length: length as u32, offset, reserved: 0 });
        }
        if list.is_empty() { Tail::Nothing } else { Tail::Sges(list) }
    }

    /// Bytes behind a name.
    fn capacity(&self, name: ScriptName) -> u64 {
        let Some(id) = self.model.slots.get(&name) else { return 0 };
        match &self.model.nodes[*id].resource {
            Resource::Buffer(buffer) => buffer.bytes.len() as u64,
            Resource::Region(region) => match region.registered {
                crate::model::Registered::Whole { length, .. } => length,
                _ => 0,
            },
            Resource::Window(window) => window.bound.map_or(0, |bound| bound.length),
            _ => 100,
        }
    }

    /// A place in some other side's memory.
    fn remote(&mut self, of: ScriptName, length: u64) -> [u64; 2] {
        let kind = match self.random.below(20) {
            0 => Of::Token,
            1..8 if self.features.windows => Of::Window,
            _ => Of::Region,
        };
        let peer = self.peer(of);
        let name = match peer {
            Some(peer) if kind != Of::Token => self.near(peer, kind),
            _ => self.any(kind),
        };
        let Some(name) = name.filter(|_| !self.random.one_in(60)) else { return [0xFFFF_FFFF << 32, 0] };
        let capacity = self.capacity(name);
        let offset = match self.random.below(60) {
            0 => u64::MAX,
            1 => capacity.saturating_sub(length) + 1,
            2..10 => capacity.saturating_sub(length),
            _ => self.random.below(capacity.saturating_sub(length) + 1),
        };
        [u64::from(name.0), offset]
    }

    fn peer(&self, of: ScriptName) -> Option<ScriptName> {
        let id = *self.model.slots.get(&of)?;
        let Resource::QueuePair(pair) = &self.model.nodes[id].resource else { return None };
        let Resource::Connector(connector) = &self.model.nodes[pair.connector?].resource else { return None };
        let Resource::Connector(peer) = &self.model.nodes[connector.peer?].resource else { return None };
        let name = self.model.nodes[peer.pair?].name;
        self.model.slots.contains_key(&name).then_some(name)
    }

    /// A queue pair; one that can carry something is preferred.
    fn busy_pair(&mut self) -> Option<ScriptName> {
        let held = self.model.all(Of::QueuePair).find(|(_, id)| match &self.model.nodes[*id].resource {
            Resource::QueuePair(pair) => pair.held > 0,
            _ => false,
        });
        if let Some((name, _)) = held {
            return Some(name);
        }
        let names: Vec<ScriptName> = self
            .model
            .all(Of::QueuePair)
            .filter(|(_, id)| match &self.model.nodes[*id].resource {
                Resource::QueuePair(pair) => pair.connected && !pair.ended,
                _ => false,
            })
            .map(|(name, _)| name)
            .collect();
        if names.is_empty() || self.random.one_in(15) { self.any(Of::QueuePair) } else { self.random.pick(&names) }
    }

    fn initiator_request(&mut self) {
        let Some(pair) = self.busy_pair() else { return };
        let code = match self.random.below(10) {
            0..4 => Do::Send,
            4 => Do::SendAndInvalidate,
            5..8 => Do::Write,
            _ => Do::Read,
        };
        let flags = self.flags(code);
        let tail = self.sges(pair, flags & 0x40 != 0);
        let total = match &tail {
            Tail::Sges(list) => list.iter().map(|sge| u64::from(sge.length)).sum(),
            _ => 0,
        };
        let context = self.context();
        let [first, second] = if code == Do::Send { [0, 0] } else { self.remote(pair, total) };
        let second = if code == Do::SendAndInvalidate { 0 } else { second };
        let mut line = line(code, pair, &[context, flags, first, second]);
        line.tail = tail;
        if self.put(line.clone()) && self.random.one_in(3) {
            self.after_access(line);
        }
    }

    /// The same once more by the same queue pair, mostly with one end of it moved to the end of its memory, or a byte over it: what a
    /// system keeps of the first access matters for the second.
    fn after_access(&mut self, mut again: Line) {
        let Tail::Sges(list) = &mut again.tail else { return };
        let Some(first) = list.first_mut() else { return };
        again.step.arguments[0] = self.context();
        again.step.arguments[1] &= 0x40;
        let over = u64::from(self.random.one_in(2));
        let length = u64::from(first.length);
        let is_remote = matches!(Do::from_number(again.step.code), Some(Do::Read | Do::Write));
        match self.random.below(4) {
            0 => {}
            1 if is_remote => {
                let total: u64 = list.iter().map(|sge| u64::from(sge.length)).sum();
                let end = self.capacity(ScriptName(again.step.arguments[2] as u32));
                again.step.arguments[3] = end.saturating_sub(total) + over;
            }
            2 => first.length = first.length.saturating_add(over as u32),
            _ if again.step.arguments[1] == 0 => first.offset = self.capacity(first.base).saturating_sub(length) + over,
            _ => {}
        }
        self.put(again);
    }

    fn receive_request(&mut self) {
        let context = self.context();
        let shared = self.features.shared_receive_queues && self.random.one_in(3);
        let kind = if shared { Of::SharedReceiveQueue } else { Of::QueuePair };
        let Some(of) = self.any(kind) else { return };
        let code = if shared { Do::SharedReceive } else { Do::Receive };
        let mut line = line(code, of, &[context]);
        line.tail = self.sges(of, false);
        self.put(line);
    }

    fn memory_request(&mut self) {
        let Some(pair) = self.busy_pair() else { return };
        let context = self.context();
        let mut flags = self.flags(Do::Invalidate);
        let windows = self.features.windows && self.random.one_in(2);
        if windows && self.random.one_in(2) {
            let (Some(region), Some(window)) = (self.near(pair, Of::Region), self.near(pair, Of::Window)) else {
                return;
            };
            flags |= self.random.pick(&[0x8, 0x30, 0x38]).unwrap_or(0);
            let capacity = self.capacity(region);
            let offset = self.random.below(capacity);
            let length = 1 + self.random.below(capacity.saturating_sub(offset));
            let [region, window] = [region, window].map(|name| u64::from(name.0));
            self.act(Do::Bind, pair, &[context, flags, region, window, offset, length]);
            return;
        }
        if self.random.one_in(3) {
            let kind = if windows { Of::Window } else { Of::Region };
            let Some(target) = self.near(pair, kind) else { return };
            self.act(Do::Invalidate, pair, &[context, flags, u64::from(target.0)]);
            return;
        }
        let (Some(region), Some(buffer)) = (self.near(pair, Of::Region), self.near(pair, Of::Buffer)) else { return };
        flags |= self.random.pick(&[0x38, 0x38, 0x10, 0x8, 0x18, 0xB8]).unwrap_or(0);
        let pages = 1 + self.random.below(2);
        let page = self.random.below(3);
        let first = if self.random.one_in(3) { self.random.below(PAGE) } else { 0 };
        let most = (pages * PAGE).saturating_sub(first);
        let length = if self.random.one_in(20) { most + 1 } else { 1 + self.random.below(most) };
        let base = self.random.pick(&[0, 0x10_0000, 0x7777_0000]).unwrap_or(0);
        let base = if base == 0 && first != 0 { PAGE } else { base } + if self.random.one_in(40) { 1 } else { first };
        let [region, buffer] = [region, buffer].map(|name| u64::from(name.0));
        self.act(Do::FastRegister, pair, &[context, flags, region, buffer, page, pages, first, length, base]);
    }

    fn look(&mut self) {
        match self.random.below(6) {
            0 | 1 => {
                let Some(queue) = self.any(Of::CompletionQueue) else { return };
                self.act(Do::Poll, queue, &[]);
            }
            2 | 3 => {
                self.act(Do::Events, ScriptName::NONE, &[]);
            }
            4 => {
                let Some(buffer) = self.any(Of::Buffer) else { return };
                let capacity = self.capacity(buffer);
                let offset = self.random.below(capacity);
                let length = self.random.below(capacity - offset) + 1;
                self.act(Do::Bytes, buffer, &[offset, length]);
            }
            _ => {
                let Some(buffer) = self.any(Of::Buffer) else { return };
                let capacity = self.capacity(buffer);
                let seed = self.random.below(1000);
                self.act(Do::Fill, buffer, &[0, capacity, seed]);
            }
        }
    }

    fn arm(&mut self) {
        let Some(queue) = self.any(Of::CompletionQueue) else { return };
        let arm = self.random.below(3);
        self.act(Do::Arm, queue, &[arm]);
        if self.features.resize && self.random.one_in(4) {
            // Too small for what is in it, or large enough for what may come.
            let waiting = match self.model.slots.get(&queue).map(|id| &self.model.nodes[*id].resource) {
                Some(Resource::CompletionQueue(queue)) => queue.entries.len() as u64,
                _ => 0,
            };
            let too_small = waiting > 1 && self.random.one_in(2);
            let depth = if too_small { waiting - 1 } else { 200 + self.random.below(100) };
            let depth = if self.random.one_in(30) { 4_194_304 } else { depth };
            self.act(Do::Resize, queue, &[depth]);
        }
    }

    fn connection(&mut self) {
        match self.random.below(16) {
            0..5 => self.connect_all_the_way(),
            5 => {
                let Some(adapter) = self.any(Of::Adapter) else { return };
                self.listener_of(adapter);
            }
            6 => {
                let Some(listener) = self.any(Of::Listener) else { return };
                let pause = self.random.below(2);
                self.act(Do::Pause, listener, &[pause]);
            }
            7..9 => self.connect(),
            9 => {
                let (Some(listener), Some(connector)) = (self.any(Of::Listener), self.vacant(Of::Connector, 12)) else {
                    return;
                };
                self.act(Do::Arrive, connector, &[u64::from(listener.0)]);
            }
            _ => self.connector(),
        }
    }

    fn connect(&mut self) {
        let Some(adapter) = self.any(Of::Adapter) else { return };
        let Some(connector) = self.vacant(Of::Connector, 12) else { return };
        self.act(Do::CreateConnector, connector, &[u64::from(adapter.0)]);
        let pair = if self.random.one_in(4) { self.any(Of::QueuePair) } else { self.unconnected(adapter) };
        let (Some(pair), Some(listener)) = (pair, self.any(Of::Listener)) else { return };
        let data = if self.random.one_in(6) { 56 + self.random.below(2) } else { self.random.below(50) };
        let (inbound, outbound) = (1 + self.random.below(20), 1 + self.random.below(150));
        let [pair, listener, host] = [pair.0, listener.0, adapter.0].map(u64::from);
        let to = if self.random.one_in(8) { [0, host, 2000] } else { [listener, 0, 0] };
        if self.features.shared_endpoints
            && self.random.one_in(3)
            && let Some(endpoint) = self.endpoint_of(adapter)
        {
            let endpoint = u64::from(endpoint.0);
            self.act(Do::ConnectShared, connector, &[pair, endpoint, to[0], to[1], to[2], inbound, outbound, data]);
            return;
        }
        self.act(Do::Connect, connector, &[pair, to[0], to[1], to[2], 0, inbound, outbound, data]);
    }

    fn endpoint_of(&mut self, adapter: ScriptName) -> Option<ScriptName> {
        if self.random.one_in(3) {
            let name = self.vacant(Of::Endpoint, 4)?;
            let port = self.random.pick(&[0, 1000, 1001, 3000])?;
            return self.act(Do::CreateEndpoint, name, &[u64::from(adapter.0), port]).then_some(name);
        }
        self.any(Of::Endpoint)
    }

    /// The next step of a connector, or a wrong one.
    fn connector(&mut self) {
        let Some(name) = self.any(Of::Connector) else { return };
        let id = self.model.slots[&name];
        let Resource::Connector(connector) = &self.model.nodes[id].resource else { return };
        let (phase, adapter) = (connector.phase, self.model.nodes[connector.adapter].name);
        match phase {
            Phase::Arrived | Phase::Idle => match self.random.below(5) {
                0 => {
                    let data = self.random.pick(&[0, 148, 149]).unwrap_or(0);
                    self.act(Do::Reject, name, &[data]);
                }
                1 => {
                    self.act(Do::Limits, name, &[]);
                }
                _ => {
                    let pair = if self.random.one_in(6) { self.any(Of::QueuePair) } else { self.unconnected(adapter) };
                    let Some(pair) = pair else { return };
                    let data = if self.random.one_in(6) { 148 + self.random.below(2) } else { 3 };
                    let (inbound, outbound) = (1 + self.random.below(20), 1 + self.random.below(150));
                    self.act(Do::Accept, name, &[u64::from(pair.0), inbound, outbound, data]);
                }
            },
            Phase::Answered => match self.random.below(5) {
                0 => {
                    self.act(Do::Reject, name, &[0]);
                }
                1 => {
                    self.act(Do::Limits, name, &[]);
                }
                _ => {
                    self.act(Do::Complete, name, &[]);
                }
            },
            Phase::Connected if !self.random.one_in(3) => {}
            _ => {
                let code = self.random.pick(&[Do::Disconnect, Do::Disconnect, Do::Complete]).unwrap_or(Do::Disconnect);
                self.act(code, name, &[]);
            }
        }
    }

    fn make(&mut self) {
        let Some(adapter) = self.any(Of::Adapter) else { return };
        let adapter = u64::from(adapter.0);
        match self.random.below(12) {
            0 => {
                let Some(name) = self.vacant(Of::Domain, 5) else { return };
                self.act(Do::CreateDomain, name, &[adapter]);
            }
            1 => {
                let Some(name) = self.vacant(Of::CompletionQueue, 8) else { return };
                let small = self.features.overflow && self.random.one_in(2);
                let depth = if small { 1 + self.random.below(8) } else { 200 };
                let depth = if self.random.one_in(20) { 4_194_304 } else { depth };
                self.act(Do::CreateCompletionQueue, name, &[adapter, depth]);
            }
            2 | 3 => self.queue_pair(),
            4 => {
                let Some(name) = self.vacant(Of::Buffer, 5) else { return };
                let (pages, seed) = (1 + self.random.below(2), self.random.below(1000));
                self.act(Do::CreateBuffer, name, &[adapter, pages * PAGE, seed]);
            }
            5..8 => {
                let (Some(name), Some(domain)) = (self.vacant(Of::Region, 12), self.any(Of::Domain)) else { return };
                let fast = self.random.one_in(2);
                self.act(if fast { Do::CreateFastRegion } else { Do::CreateRegion }, name, &[u64::from(domain.0)]);
                if fast {
                    let pages = if self.random.one_in(20) { 513 } else { 1 + self.random.below(3) };
                    let remote = u64::from(!self.random.one_in(4));
                    self.act(Do::Initialize, name, &[pages, remote]);
                } else if let Some(buffer) = self.any(Of::Buffer) {
                    let capacity = self.capacity(buffer);
                    let offset = self.random.below(capacity);
                    let length = 1 + self.random.below(capacity - offset);
                    let rights = self.random.pick(&[0, 1, 2, 3, 5, 7, 15]).unwrap_or(7);
                    self.act(Do::Register, name, &[u64::from(buffer.0), offset, length, rights]);
                }
            }
            8 => {
                let Some(name) = self.any(Of::Region) else { return };
                self.act(Do::Deregister, name, &[]);
            }
            9 => {
                let Some(name) = self.vacant(Of::Token, 6) else { return };
                let kind = if self.features.windows && self.random.one_in(2) { Of::Window } else { Of::Region };
                let Some(of) = self.any(kind) else { return };
                self.act(Do::Remember, name, &[u64::from(of.0)]);
            }
            10 if self.features.windows => {
                let (Some(name), Some(domain)) = (self.vacant(Of::Window, 6), self.any(Of::Domain)) else { return };
                self.act(Do::CreateWindow, name, &[u64::from(domain.0)]);
            }
            11 if self.features.shared_receive_queues => self.shared(),
            _ => {}
        }
    }

    fn shared(&mut self) {
        if self.random.one_in(2)
            && let Some(name) = self.any(Of::SharedReceiveQueue)
        {
            let depth = if self.random.one_in(2) { 0 } else { 1 + self.random.below(10) };
            let threshold = self.random.below(4);
            self.act(Do::Modify, name, &[depth, threshold]);
            return;
        }
        let (Some(name), Some(domain)) = (self.vacant(Of::SharedReceiveQueue, 4), self.any(Of::Domain)) else { return };
        let (depth, sges) = (1 + self.random.below(8), 1 + self.random.below(4));
        self.act(Do::CreateSharedReceiveQueue, name, &[u64::from(domain.0), depth, sges, 0]);
    }

    fn flush(&mut self) {
        if !self.random.one_in(3) {
            return;
        }
        let Some(pair) = self.any(Of::QueuePair) else { return };
        self.act(Do::Flush, pair, &[]);
    }

    fn close(&mut self) {
        if !self.random.one_in(2) {
            return;
        }
        let kinds = [
            Of::Domain,
            Of::CompletionQueue,
            Of::SharedReceiveQueue,
            Of::QueuePair,
            Of::QueuePair,
            Of::Buffer,
            Of::Region,
            Of::Window,
            Of::Token,
            Of::Endpoint,
            Of::Listener,
            Of::Connector,
            Of::Connector,
        ];
        let Some(kind) = self.random.pick(&kinds) else { return };
        let Some(name) = self.any(kind) else { return };
        self.act(Do::Close, name, &[]);
    }
}
