//! Queue pairs and their requests: matching, moving, failing, flushing.

use std::collections::VecDeque;

use softndk_ioctl::{ScriptEvent, ScriptName, ScriptResult, Status};

use super::memory::{Byte, LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, Registered, Stretch};
use super::{ACROSS_STREAMS, Address, Column, Id, Model, Phase, Resource};

pub const SILENT: u64 = 1;
pub const SOLICIT: u64 = 4;

/// NDK_OPERATION_TYPE.
pub mod operation {
    pub const RECEIVE: u32 = 1;
    pub const SEND: u32 = 2;
    pub const FAST_REGISTER: u32 = 4;
    pub const BIND: u32 = 8;
    pub const INVALIDATE: u32 = 16;
    pub const READ: u32 = 32;
    pub const WRITE: u32 = 64;
    pub const RECEIVE_AND_INVALIDATE: u32 = 0x8001;
}

/// At least so many bytes of a Write are one piece across a stream.
const PIECE: u64 = 8000;

/// The first piece of a Send that has several.
const FIRST_PIECE: u64 = 8174;

/// A scatter/gather element: address, length, token.
pub type Sge = (u64, u64, Address);

/// A Send that has come across a stream and waits for its receive.
#[derive(Clone, Debug)]
pub struct Message {
    bytes: Vec<Byte>,
    /// Where they came from.
    sources: Vec<Stretch>,
    invalidate: Option<Address>,
    solicited: bool,
}

/// A posted receive.
#[derive(Clone, Debug)]
pub struct Receive {
    pub context: u64,
    pub sges: Vec<Sge>,
    /// Buffers its scatter/gather elements lie in.
    pub buffers: Vec<Id>,
}

impl Receive {
    pub fn mentions(&self, buffer: Id) -> bool {
        self.buffers.contains(&buffer)
    }
}

/// Where a request's bytes come from or go to.
#[derive(Clone, Debug)]
pub enum Data {
    Sges(Vec<Sge>),
    /// Taken when it was posted.
    Inline(Vec<Byte>),
}

#[derive(Clone, Debug)]
pub enum Action {
    Send { data: Data, invalidate: Option<Address> },
    Write { data: Data, remote: (u64, Address) },
    Read { sges: Vec<Sge>, remote: (u64, Address), invalidate: Option<Id> },
    FastRegister { region: Id, becomes: Registered },
    Bind { window: Id, bound: super::memory::Bound },
    Invalidate { target: Id },
}

/// A posted initiator request.
#[derive(Clone, Debug)]
pub struct Request {
    pub context: u64,
    pub flags: u64,
    pub action: Action,
    pub buffers: Vec<Id>,
}

impl Request {
    /// A Bind or an Invalidate of this window, a FastRegister or an Invalidate of this region.
    pub(super) fn is_about(&self, wanted: Id) -> bool {
        match self.action {
            Action::Bind { window, .. } => window == wanted,
            Action::FastRegister { region, .. } => region == wanted,
            Action::Invalidate { target } => target == wanted,
            _ => false,
        }
    }

    /// Its scatter/gather elements carry this object's token, or it takes it away.
    fn needs(&self, wanted: Id) -> bool {
        let is = |token: &Address| matches!(token, Address::Of { object, .. } if *object == wanted);
        let among = |sges: &[Sge]| sges.iter().any(|(_, length, token)| *length > 0 && is(token));
        let in_data = |data: &Data| matches!(data, Data::Sges(sges) if among(sges));
        match &self.action {
            Action::Send { data, invalidate } => in_data(data) || invalidate.as_ref().is_some_and(is),
            Action::Write { data, .. } => in_data(data),
            Action::Read { sges, .. } => among(sges),
            Action::Bind { bound, .. } => bound.region == wanted,
            _ => false,
        }
    }

    /// It takes this region's or window's token away when its queue reaches it.
    fn revokes(&self, wanted: Id) -> bool {
        match self.action {
            Action::Send { invalidate: Some(Address::Of { object, .. }), .. } => object == wanted,
            Action::Invalidate { target } => target == wanted,
            Action::Read { invalidate, .. } => invalidate == Some(wanted),
            _ => false,
        }
    }

    fn operation(&self) -> u32 {
        match self.action {
            Action::Send { .. } => operation::SEND,
            Action::Write { .. } => operation::WRITE,
            Action::Read { .. } => operation::READ,
            Action::FastRegister { .. } => operation::FAST_REGISTER,
            Action::Bind { .. } => operation::BIND,
            Action::Invalidate { .. } => operation::INVALIDATE,
        }
    }
}

#[derive(Clone, Debug)]
pub struct QueuePair {
    pub domain: Id,
    pub receive_queue: Id,
    pub initiator_queue: Id,
    pub shared: Option<Id>,
    pub receive_depth: u32,
    pub initiator_depth: u32,
    pub receive_sges: u32,
    pub initiator_sges: u32,
    pub inline: u32,
    pub receives: VecDeque<Receive>,
    /// Across a stream: what the peer has sent and has not been received.
    pub unreceived: VecDeque<Message>,
    pub requests: VecDeque<Request>,
    /// How many of the last requests are held back by their DEFER flag.
    pub held: usize,
    /// The connector that has it, from Connect or Accept on.
    pub connector: Option<Id>,
    /// Initiator requests may be posted: it is or was connected.
    pub connected: bool,
    /// Initiator requests end as cancelled.
    pub ended: bool,
    /// Receives end as cancelled.
    pub drained: bool,
}

impl QueuePair {
    pub fn mentions(&self, buffer: Id) -> bool {
        self.receives.iter().any(|receive| receive.mentions(buffer))
            || self.requests.iter().any(|request| request.buffers.contains(&buffer))
    }
}

/// A shared receive queue.
#[derive(Clone, Debug)]
pub struct Shared {
    pub domain: Id,
    pub depth: u32,
    pub sges: u32,
    pub threshold: u32,
    pub armed: bool,
    pub receives: VecDeque<Receive>,
}

/// What became of the request at the head.
enum Fate {
    Waits,
    Done,
    /// Its status; the queue pair has failed.
    Failed(Status),
    /// The receiver failed: the sender's status.
    ReceiverFailed(Status),
    /// Across a stream: it has succeeded, and the peer ends the connection.
    Refused,
}

impl Model {
    /// Memory in use by a request that waits: a consumer does not free it, and when a provider checks it is its choice.
    pub(super) fn in_use(&self, object: Id, except: Option<Id>) -> bool {
        self.any_request(except, |request| request.needs(object))
    }

    /// A request that waits takes the token away: when a message that names it and waits for a receive too looks at it again is the
    /// provider's choice.
    pub(super) fn about_to_revoke(&self, object: Id, except: Option<Id>) -> bool {
        self.any_request(except, |request| request.revokes(object))
    }

    /// A message of this queue pair would wait for a receive while a request of another one takes its memory away.
    pub(super) fn may_lose_memory(&self, id: Id, sges: &[Sge]) -> bool {
        let goes_at_once =
            self.pair(id).requests.is_empty() && self.peer_of(id).is_some_and(|peer| self.next_receive(peer).is_some());
        !goes_at_once
            && sges.iter().any(|(_, length, token)| match token {
                Address::Of { object, .. } => *length > 0 && self.about_to_revoke(*object, Some(id)),
                Address::Privileged | Address::Foreign => false,
            })
    }

    /// A message to this queue pair waits for a receive and carries the token of a window that the end of the queue pair unbinds: when
    /// it looks at the token again is the provider's choice.
    pub(super) fn would_unbind_awaited(&self, id: Id) -> bool {
        let front = self.peer_of(id).and_then(|peer| self.pair(peer).requests.front());
        let Some(Action::Send { invalidate: Some(Address::Of { object, .. }), .. }) = front.map(|first| &first.action)
        else {
            return false;
        };
        match &self.nodes[*object].resource {
            Resource::Window(window) => window.bound.is_some_and(|bound| bound.pair == id),
            _ => false,
        }
    }

    fn any_request(&self, except: Option<Id>, is_so: impl Fn(&Request) -> bool) -> bool {
        self.nodes.iter().enumerate().any(|(id, node)| match &node.resource {
            Resource::QueuePair(pair) => Some(id) != except && pair.requests.iter().any(&is_so),
            _ => false,
        })
    }

    /// Completes one request of any queue pair; false when nothing moves.
    pub(super) fn transfer_something(&mut self) -> bool {
        (0..self.nodes.len()).any(|id| match &self.nodes[id].resource {
            Resource::QueuePair(pair) if !self.nodes[id].finished => {
                if pair.ended && !pair.requests.is_empty() {
                    self.cancel_requests(id);
                    return true;
                }
                self.receive_message(id) || self.pair(id).requests.len() > self.pair(id).held && self.process(id)
            }
            _ => false,
        })
    }

    fn process(&mut self, id: Id) -> bool {
        let Some(request) = self.pair(id).requests.front().cloned() else { return false };
        let Some(peer) = self.peer_of(id) else { return false };
        let needs_peer = matches!(request.action, Action::Send { .. } | Action::Write { .. } | Action::Read { .. });
        // The end of its stream has been sent.
        if ACROSS_STREAMS && needs_peer && self.is_leaving(id) {
            return false;
        }
        let fate = match &request.action {
            Action::Send { data, invalidate } if ACROSS_STREAMS => {
                self.send_across(id, peer, &request, data, *invalidate)
            }
            Action::Send { data, invalidate } => self.send(id, peer, &request, data, *invalidate),
            Action::Write { data, remote } => self.write(id, peer, data, *remote),
            Action::Read { sges, remote, invalidate } => self.read(id, peer, sges, *remote, *invalidate),
            Action::FastRegister { region, becomes } => {
                self.change(*region, &|now| *now == Registered::Invalid, becomes.clone())
            }
            Action::Bind { window, bound } => self.bind(*window, *bound),
            Action::Invalidate { target } => self.invalidate(*target),
        };
        let status = match fate {
            Fate::Waits => return false,
            Fate::Done | Fate::Refused => Status::SUCCESS,
            Fate::Failed(status) | Fate::ReceiverFailed(status) => status,
        };
        self.pair_mut(id).requests.pop_front();
        self.complete_request(id, &request, status);
        match fate {
            Fate::Failed(_) => self.fail_pair(id),
            Fate::ReceiverFailed(_) => self.fail_both(id, peer),
            // A sender whose completion queue overruns with that ends the connection itself.
            Fate::Refused if self.overrun.contains(&self.pair(id).initiator_queue) => {}
            Fate::Refused => self.end_stream(peer),
            Fate::Waits | Fate::Done => {}
        }
        true
    }

    /// The queue pair at the other end, while the connection lasts.
    pub(super) fn peer_of(&self, id: Id) -> Option<Id> {
        let connector = self.connector(self.pair(id).connector?);
        (connector.phase == Phase::Connected).then_some(())?;
        self.connector(connector.peer?).pair
    }

    fn complete_request(&mut self, id: Id, request: &Request, status: Status) {
        if status == Status::SUCCESS && request.flags & SILENT != 0 {
            return;
        }
        let result = ScriptResult {
            context: request.context,
            queue_pair: self.nodes[id].name,
            operation: request.operation(),
            status: status.0,
            ..ScriptResult::default()
        };
        let queue = self.pair(id).initiator_queue;
        self.enter(queue, result, false);
    }

    fn complete_receive(&mut self, id: Id, context: u64, status: Status, message: (u64, bool, Option<ScriptName>)) {
        let (bytes, solicited, invalidated) = message;
        let result = ScriptResult {
            context,
            queue_pair: self.nodes[id].name,
            operation: if invalidated.is_some() { operation::RECEIVE_AND_INVALIDATE } else { operation::RECEIVE },
            status: status.0,
            bytes: bytes as u32,
            invalidated: invalidated.unwrap_or_default(),
            reserved: 0,
        };
        let queue = self.pair(id).receive_queue;
        self.enter(queue, result, solicited);
    }

    fn send(&mut self, id: Id, peer: Id, request: &Request, data: &Data, invalidate: Option<Address>) -> Fate {
        let receive = self.next_receive(peer).cloned();
        // A fault in a sender's own memory is the sender's, whether or not a receive waits for the message.
        let Some(bytes) = self.gather(id, data) else { return Fate::Failed(Status::ACCESS_VIOLATION) };
        let revoked = match invalidate {
            None => None,
            Some(token) => match self.remotely_invalid(peer, token) {
                Some(object) => Some(object),
                None => return Fate::ReceiverFailed(Status::REMOTE_RESOURCES),
            },
        };
        let Some(receive) = receive else { return Fate::Waits };
        self.take_receive(peer);
        let too_small = receive.sges.iter().map(|(_, length, _)| length).sum::<u64>() < bytes.len() as u64;
        if too_small {
            let (here, there) = match self.column {
                Column::Ndk => (Status::REMOTE_RESOURCES, Status::BUFFER_OVERFLOW),
                Column::Nd => (Status::SUCCESS, Status::DATA_OVERRUN),
            };
            self.complete_receive(peer, receive.context, there, (0, true, None));
            return Fate::ReceiverFailed(here);
        }
        let domain = self.receiving_domain(peer);
        // A message of no bytes touches nothing.
        let list = if bytes.is_empty() { &[] } else { receive.sges.as_slice() };
        let Some(places) = self.places(domain, list, bytes.len() as u64) else {
            self.forget(domain, &receive.sges);
            self.complete_receive(peer, receive.context, Status::ACCESS_VIOLATION, (0, true, None));
            return Fate::ReceiverFailed(Status::REMOTE_RESOURCES);
        };
        let sources = self.sources(id, data);
        self.transfer(&places, &bytes, &sources);
        if let Some(object) = revoked {
            self.revoke(object);
        }
        let solicited = request.flags & SOLICIT != 0;
        let name = revoked.map(|object| self.nodes[object].name);
        self.complete_receive(peer, receive.context, Status::SUCCESS, (bytes.len() as u64, solicited, name));
        Fate::Done
    }

    /// Across a stream: the bytes are on their way.
    fn send_across(&mut self, id: Id, peer: Id, request: &Request, data: &Data, invalidate: Option<Address>) -> Fate {
        let Some(bytes) = self.gather(id, data) else { return Fate::Failed(Status::ACCESS_VIOLATION) };
        let sources = self.sources(id, data);
        let message = Message { bytes, sources, invalidate, solicited: request.flags & SOLICIT != 0 };
        self.pair_mut(peer).unreceived.push_back(message);
        Fate::Done
    }

    /// What a post across a stream leads to is said by the contract: not a message that has its token looked at again while it waits, a
    /// Read of a side that sends nothing more, more Sends than are held, what goes to a queue pair that was flushed, or what fails at both
    /// ends.
    pub(super) fn has_its_answer(&self, id: Id, request: &Request) -> bool {
        let Some(peer) = self.peer_of(id) else { return true };
        let waiting = &self.pair(peer).unreceived;
        let is_taken = !self.pair(peer).ended && !self.is_full(self.pair(id).initiator_queue);
        match &request.action {
            Action::Send { .. } | Action::Write { .. } | Action::Read { .. } if !is_taken => false,
            // What is flushed with a refused message may overrun.
            Action::Send { .. } if self.would_overrun_flushed(peer) => false,
            Action::Send { invalidate: Some(_), .. } => waiting.is_empty() && self.next_receive(peer).is_some(),
            Action::Send { .. } => {
                waiting.len() < 30 && waiting.iter().map(|message| message.bytes.len()).sum::<usize>() < 16_384
            }
            // It comes in pieces, and those before the wrong one are stored.
            Action::Write { data, remote: (address, token) } => {
                let length = self.gather(id, data).map_or(0, |bytes| bytes.len() as u64);
                length <= PIECE || self.target(peer, *address, length, *token, REMOTE_WRITE).is_some()
            }
            Action::Read { .. } => !self.is_leaving(peer),
            _ => true,
        }
    }

    fn would_overrun_flushed(&self, id: Id) -> bool {
        let pair = self.pair(id);
        let queue = self.queue(pair.receive_queue);
        queue.entries.len() + pair.receives.len() > self.capacity_of(queue)
    }

    fn is_leaving(&self, pair: Id) -> bool {
        self.pair(pair).connector.is_some_and(|connector| self.connector(connector).leaving)
    }

    /// The oldest message that has come goes into its receive; false when it waits.
    fn receive_message(&mut self, id: Id) -> bool {
        let Some(message) = self.pair(id).unreceived.front().cloned() else { return false };
        let revoked = match message.invalidate {
            None => None,
            Some(token) => {
                let Some(object) = self.remotely_invalid(id, token) else {
                    self.refuse_message(id);
                    return true;
                };
                Some(object)
            }
        };
        let Some(receive) = self.next_receive(id).cloned() else { return false };
        self.take_receive(id);
        let length = message.bytes.len() as u64;
        let domain = self.receiving_domain(id);
        let capacity = receive.sges.iter().map(|(_, length, _)| length).sum::<u64>();
        // How long a message of several pieces is shows with the last; its memory is looked at with the first.
        let is_bad = capacity >= FIRST_PIECE && self.places(domain, &receive.sges, length).is_none();
        if capacity < length && !is_bad {
            let status = if self.column == Column::Ndk { Status::BUFFER_OVERFLOW } else { Status::DATA_OVERRUN };
            self.complete_receive(id, receive.context, status, (0, true, None));
            self.refuse_message(id);
            return true;
        }
        let list = if length == 0 { &[] } else { receive.sges.as_slice() };
        let Some(places) = self.places(domain, list, length) else {
            self.forget(domain, &receive.sges);
            self.complete_receive(id, receive.context, Status::ACCESS_VIOLATION, (0, true, None));
            self.refuse_message(id);
            return true;
        };
        self.transfer(&places, &message.bytes, &message.sources);
        if let Some(object) = revoked {
            self.revoke(object);
        }
        let name = revoked.map(|object| self.nodes[object].name);
        self.pair_mut(id).unreceived.pop_front();
        self.complete_receive(id, receive.context, Status::SUCCESS, (length, message.solicited, name));
        true
    }

    /// The receiver is in error, and both consumers hear that the connection has ended.
    fn refuse_message(&mut self, receiver: Id) {
        self.pair_mut(receiver).unreceived.clear();
        self.flush(receiver);
        // One whose completion queue overruns with that ends the connection itself.
        if !self.overrun.contains(&self.pair(receiver).receive_queue) {
            self.end_stream(receiver);
        }
    }

    /// A side has refused what its peer sent: neither has ended the connection.
    fn end_stream(&mut self, refusing: Id) {
        let Some(connector) = self.pair(refusing).connector else { return };
        let Some(sender) = self.connector(connector).peer else { return };
        if self.connector(sender).phase != Phase::Connected {
            return;
        }
        self.notify(sender);
        self.break_connection(sender);
        if self.column == Column::Nd
            && let Some(pair) = self.connector(sender).pair
        {
            self.flush(pair);
        }
    }

    /// The receive that the next message to this queue pair goes into.
    pub(super) fn next_receive(&self, pair: Id) -> Option<&Receive> {
        let pair = self.pair(pair);
        let receives = pair.shared.map_or(&pair.receives, |shared| &self.shared(shared).receives);
        // A queue pair that has been flushed takes nothing from the shared queue any more.
        receives.front().filter(|_| !pair.drained)
    }

    fn receiving_domain(&self, pair: Id) -> Id {
        self.pair(pair).shared.map_or(self.pair(pair).domain, |shared| self.shared(shared).domain)
    }

    fn take_receive(&mut self, pair: Id) {
        let Some(shared) = self.pair(pair).shared else {
            self.pair_mut(pair).receives.pop_front();
            return;
        };
        self.shared_mut(shared).receives.pop_front();
        self.warn_if_low(shared);
    }

    /// The single-shot notification of a shared receive queue that has fewer receives than its threshold.
    pub(super) fn warn_if_low(&mut self, shared: Id) {
        let closed = self.closed(shared);
        let queue = self.shared_mut(shared);
        if queue.armed && (queue.receives.len() as u64) < u64::from(queue.threshold) && !closed {
            queue.armed = false;
            self.occur(ScriptEvent::Notify, shared, Status::SUCCESS);
        }
    }

    fn write(&mut self, id: Id, peer: Id, data: &Data, (address, token): (u64, Address)) -> Fate {
        let Some(bytes) = self.gather(id, data) else { return Fate::Failed(Status::ACCESS_VIOLATION) };
        if bytes.is_empty() {
            return Fate::Done;
        }
        let Some(place) = self.target(peer, address, bytes.len() as u64, token, REMOTE_WRITE) else {
            return if ACROSS_STREAMS { Fate::Refused } else { self.remote_refusal(peer) };
        };
        let sources = self.sources(id, data);
        self.transfer(&[place], &bytes, &sources);
        Fate::Done
    }

    fn read(
        &mut self,
        id: Id,
        peer: Id,
        sges: &[Sge],
        (address, token): (u64, Address),
        invalidate: Option<Id>,
    ) -> Fate {
        let length = sges.iter().map(|(_, length, _)| length).sum();
        let domain = self.pair(id).domain;
        let Some(places) = self.places(domain, sges, length) else {
            self.forget(domain, sges);
            return Fate::Failed(Status::ACCESS_VIOLATION);
        };
        if length > 0 {
            let Some(from) = self.target(peer, address, length, token, REMOTE_READ) else {
                return self.remote_refusal(peer);
            };
            let bytes = self.load(from);
            self.transfer(&places, &bytes, &[from]);
        }
        if let Some(region) = invalidate {
            self.region_mut(region).registered = Registered::Invalid;
        }
        Fate::Done
    }

    /// NDSPI: the target's connection ends and its receives are cancelled too; NDKPI: the initiator's only.
    fn remote_refusal(&self, _peer: Id) -> Fate {
        Fate::Failed(match self.column {
            Column::Ndk => Status::REMOTE_RESOURCES,
            Column::Nd => Status::ACCESS_VIOLATION,
        })
    }

    fn change(&mut self, region: Id, from: &dyn Fn(&Registered) -> bool, to: Registered) -> Fate {
        let region = self.region_mut(region);
        if !from(&region.registered) {
            return Fate::Failed(Status::INVALID_DEVICE_REQUEST);
        }
        region.registered = to;
        Fate::Done
    }

    fn bind(&mut self, window: Id, bound: super::memory::Bound) -> Fate {
        if self.window(window).bound.is_some() {
            return Fate::Failed(Status::INVALID_DEVICE_REQUEST);
        }
        self.window_mut(window).bound = Some(bound);
        Fate::Done
    }

    fn invalidate(&mut self, target: Id) -> Fate {
        if let Resource::Window(window) = &self.nodes[target].resource {
            if window.bound.is_none() {
                return Fate::Failed(Status::INVALID_DEVICE_REQUEST);
            }
            self.unbind(target);
            return Fate::Done;
        }
        self.change(target, &|now| matches!(now, Registered::Whole { .. }), Registered::Invalid)
    }

    /// What a peer's token names at this queue pair, if a peer may take it away.
    fn remotely_invalid(&self, pair: Id, token: Address) -> Option<Id> {
        let Address::Of { object, token } = token else { return None };
        match &self.nodes[object].resource {
            Resource::Region(region) => {
                let good = region.fast && region.remote && region.token == token;
                let valid = matches!(region.registered, Registered::Whole { .. });
                (good && valid && region.domain == self.pair(pair).domain).then_some(object)
            }
            Resource::Window(window) => {
                window.bound.is_some_and(|bound| bound.pair == pair && bound.token == token).then_some(object)
            }
            _ => None,
        }
    }

    fn revoke(&mut self, object: Id) {
        match &mut self.nodes[object].resource {
            Resource::Region(region) => region.registered = Registered::Invalid,
            Resource::Window(window) => window.bound = None,
            _ => {}
        }
    }

    fn gather(&self, id: Id, data: &Data) -> Option<Vec<Byte>> {
        match data {
            Data::Inline(bytes) => Some(bytes.clone()),
            Data::Sges(sges) => {
                let domain = self.pair(id).domain;
                let mut bytes = Vec::new();
                for (address, length, token) in sges.iter().filter(|(_, length, _)| *length > 0) {
                    bytes.extend(self.load(self.local(domain, *address, *length, *token, 0)?));
                }
                Some(bytes)
            }
        }
    }

    /// Where a message of this length goes in a list that is long enough.
    fn places(&self, domain: Id, sges: &[Sge], mut length: u64) -> Option<Vec<Stretch>> {
        let mut places = Vec::new();
        for (address, capacity, token) in sges.iter().filter(|(_, length, _)| *length > 0) {
            // All of a list must be good, also what the message does not reach.
            let mut place = self.local(domain, *address, *capacity, *token, LOCAL_WRITE)?;
            place.length = place.length.min(length);
            length -= place.length;
            places.push(place);
        }
        Some(places)
    }

    /// Where a request's bytes come from; inline ones were taken already.
    fn sources(&self, id: Id, data: &Data) -> Vec<Stretch> {
        let Data::Sges(sges) = data else { return Vec::new() };
        let domain = self.pair(id).domain;
        sges.iter().filter_map(|(at, length, token)| self.local(domain, *at, *length, *token, 0)).collect()
    }

    /// Moves bytes; where source and destination overlap, the result is unknown.
    fn transfer(&mut self, places: &[Stretch], bytes: &[Byte], sources: &[Stretch]) {
        let meet = |one: &Stretch, other: &Stretch| {
            let apart = one.offset + one.length <= other.offset || other.offset + other.length <= one.offset;
            one.buffer == other.buffer && !apart
        };
        if places.iter().any(|place| sources.iter().any(|source| meet(place, source))) {
            self.store(places, &vec![None; bytes.len()]);
        } else {
            self.store(places, bytes);
        }
    }

    fn load(&self, from: Stretch) -> Vec<Byte> {
        self.buffer(from.buffer).bytes[from.offset as usize..(from.offset + from.length) as usize].to_vec()
    }

    fn store(&mut self, places: &[Stretch], bytes: &[Byte]) {
        let mut rest = bytes;
        for place in places {
            let (now, later) = rest.split_at((place.length as usize).min(rest.len()));
            let at = place.offset as usize;
            self.buffer_mut(place.buffer).bytes[at..at + now.len()].copy_from_slice(now);
            rest = later;
        }
    }

    /// A failed request may have written wherever its list allows.
    fn forget(&mut self, domain: Id, sges: &[Sge]) {
        for (address, length, token) in sges {
            if let Some(place) = self.local(domain, *address, *length, *token, LOCAL_WRITE) {
                let unknown = vec![None; place.length as usize];
                self.store(&[place], &unknown);
            }
        }
    }

    pub(super) fn cancel_requests(&mut self, id: Id) {
        let pair = self.pair_mut(id);
        pair.held = 0;
        pair.unreceived.clear();
        let requests = std::mem::take(&mut pair.requests);
        for request in requests {
            self.complete_request(id, &request, Status::CANCELLED);
        }
    }

    pub(super) fn cancel_receives(&mut self, id: Id) {
        let receives = std::mem::take(&mut self.pair_mut(id).receives);
        for receive in receives {
            self.complete_receive(id, receive.context, Status::CANCELLED, (0, true, None));
        }
    }

    /// NdkFlush: everything on both queues is cancelled, and what is posted later too.
    pub(super) fn flush(&mut self, id: Id) {
        let pair = self.pair_mut(id);
        pair.ended = true;
        pair.drained = true;
        self.cancel_requests(id);
        self.cancel_receives(id);
        self.unbind_from(id);
    }

    /// The end of a queue pair is the end of what is bound to it.
    pub(super) fn unbind_from(&mut self, pair: Id) {
        for node in &mut self.nodes {
            if let Resource::Window(window) = &mut node.resource {
                window.bound = window.bound.filter(|bound| bound.pair != pair);
            }
        }
    }

    /// A queue pair in error: it is flushed, its connection has ended, the peer gets an event.
    pub(super) fn fail_pair(&mut self, id: Id) {
        if self.pair(id).drained && self.pair(id).ended {
            return;
        }
        self.end_pair(id);
    }

    /// Also a flushed queue pair has a connection that can end.
    pub(super) fn end_pair(&mut self, id: Id) {
        let connector = self.pair(id).connector;
        self.flush(id);
        if let Some(connector) = connector {
            self.break_connection(connector);
        }
    }

    /// The receiver is in error, and so is the sender whose message it was; the receiver's consumer gets an event.
    fn fail_both(&mut self, sender: Id, receiver: Id) {
        self.flush(receiver);
        self.fail_pair(sender);
    }
}
