//! Posting: what is refused at once, and what is queued.
//!
//! Where two reasons to refuse meet, which one is named is the provider's choice: such lines are skipped.

use ndkctl::script::Tail;
use softndk_ioctl::{ScriptCode, ScriptKind, ScriptName, ScriptSge, Status};

use super::memory::{Bound, LOCAL_WRITE, PAGE, REMOTE_READ, REMOTE_WRITE, Registered};
use super::transfer::{Action, Data, QueuePair, Receive, Request, Shared};
use super::{ACROSS_STREAMS, Address, Call, Column, DONE, Expected, Id, Model, Resource, fails};

const DEFER: u64 = 0x200;
const INLINE: u64 = 0x40;
const LOCAL_INVALIDATE: u64 = 0x100;
/// SILENT_SUCCESS, READ_FENCE, DEFER.
const ANY: u64 = 0x203;
/// ALLOW_REMOTE_READ, ALLOW_LOCAL_WRITE, the remote-write bit, RDMA_READ_SINK.
const GRANTS: u64 = 0xB8;
/// What the adapter takes (NDK_ADAPTER_INFO).
const SGES: u32 = 32;
const DEPTH: u32 = 16351;
const INLINE_DATA: u32 = 256;
const TRANSFER: u64 = 1 << 30;

impl Model {
    pub(super) fn create_pair(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let [receive_depth, initiator_depth] = [call.small(3), call.small(4)];
        let [receive_sges, initiator_sges] = [call.small(5), call.small(6)];
        let over = receive_depth > DEPTH || receive_sges > SGES;
        let numbers = [receive_depth, initiator_depth, receive_sges, initiator_sges];
        self.build_pair(name, call, numbers, call.small(7), over, None)
    }

    pub(super) fn create_pair_shared(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let shared = self.find(call.name(3), ScriptKind::SharedReceiveQueue)?;
        let domain = self.find(call.name(0), ScriptKind::Domain)?;
        (self.shared(shared).domain == domain).then_some(())?;
        self.build_pair(name, call, [0, call.small(4), 0, call.small(5)], call.small(6), false, Some(shared))
    }

    fn build_pair(
        &mut self,
        name: ScriptName,
        call: &Call<'_>,
        [receive_depth, initiator_depth, receive_sges, initiator_sges]: [u32; 4],
        inline: u32,
        over: bool,
        shared: Option<Id>,
    ) -> Option<Expected> {
        let domain = self.find(call.name(0), ScriptKind::Domain)?;
        let [receive_queue, initiator_queue] = [
            self.find(call.name(1), ScriptKind::CompletionQueue)?,
            self.find(call.name(2), ScriptKind::CompletionQueue)?,
        ];
        let Resource::Domain { adapter } = self.nodes[domain].resource else { return None };
        let over = over || initiator_depth > DEPTH || initiator_sges > SGES || inline > INLINE_DATA;
        let foreign = [receive_queue, initiator_queue]
            .iter()
            .any(|queue| self.host(self.queue(*queue).adapter) != self.host(adapter));
        let dead = [receive_queue, initiator_queue].iter().any(|queue| self.queue(*queue).dead);
        // A queue that may overrun has one order only: whose entries of one call are lost is the provider's choice otherwise.
        let lone = |queue: Id| self.queue(queue).depth >= 200 || self.attached(queue).next().is_none();
        let certain = [receive_queue, initiator_queue].iter().all(|queue| lone(*queue))
            && (receive_queue != initiator_queue || self.queue(receive_queue).depth >= 200);
        if over {
            return (!foreign).then_some(Expected::Status(Status::INVALID_PARAMETER));
        }
        let small = [receive_depth, initiator_depth].iter().all(|depth| *depth <= 1024);
        (!foreign && !dead && certain && small && initiator_depth > 0).then_some(())?;
        let pair = QueuePair {
            domain,
            receive_queue,
            initiator_queue,
            shared,
            receive_depth,
            initiator_depth,
            receive_sges,
            initiator_sges,
            inline,
            receives: std::collections::VecDeque::new(),
            unreceived: std::collections::VecDeque::new(),
            requests: std::collections::VecDeque::new(),
            held: 0,
            connector: None,
            connected: false,
            ended: false,
            drained: false,
        };
        let mut antecedents = vec![domain, receive_queue, initiator_queue];
        antecedents.extend(shared);
        self.add(name, antecedents, Resource::QueuePair(pair));
        Some(DONE)
    }

    pub(super) fn create_shared(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let domain = self.find(call.name(0), ScriptKind::Domain)?;
        let (depth, sges, threshold) = (call.small(1), call.small(2), call.small(3));
        if depth > DEPTH || sges > SGES {
            return fails(Status::INVALID_PARAMETER);
        }
        // Whether a new queue starts armed is undefined by the contract.
        ((1..=1024).contains(&depth) && threshold == 0).then_some(())?;
        let receives = std::collections::VecDeque::new();
        let shared = Shared { domain, depth, sges, threshold, armed: false, receives };
        self.add(name, vec![domain], Resource::Shared(shared));
        Some(DONE)
    }

    pub(super) fn modify(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let id = self.find(name, ScriptKind::SharedReceiveQueue)?;
        let (depth, threshold) = (call.small(0), call.small(1));
        if depth > DEPTH {
            return fails(Status::INVALID_PARAMETER);
        }
        let shared = self.shared_mut(id);
        // Fewer places than receives posted, and a threshold above the depth, are undefined by the contract.
        let next = if depth == 0 { shared.depth } else { depth };
        (next <= 1024 && next as usize >= shared.receives.len() && threshold <= next).then_some(())?;
        shared.depth = next;
        if threshold > 0 {
            shared.threshold = threshold;
            shared.armed = true;
            self.warn_if_low(id);
        }
        Some(DONE)
    }

    /// The scatter/gather elements of a line: their places, and the buffers they lie in.
    fn sges(&self, call: &Call<'_>, inline: bool) -> Option<(Vec<super::transfer::Sge>, Vec<Id>)> {
        let list: &[ScriptSge] = match &call.line.tail {
            Tail::Sges(list) => list,
            _ => &[],
        };
        let mut buffers = Vec::new();
        let mut sges = Vec::new();
        for sge in list {
            let (address, token) = self.sge(sge, inline)?;
            if let Some(id) = self.slots.get(&sge.base)
                && matches!(self.nodes[*id].resource, Resource::Buffer(_))
            {
                buffers.push(*id);
            }
            sges.push((address, u64::from(sge.length), token));
        }
        Some((sges, buffers))
    }

    /// One reason to refuse is its status; none is none; two are undefined by the contract.
    fn refusal(reasons: &[(bool, Status)]) -> Option<Option<Status>> {
        let mut reasons = reasons.iter().filter(|(applies, _)| *applies).map(|(_, status)| *status);
        match (reasons.next(), reasons.next()) {
            (first, None) => Some(first),
            _ => None,
        }
    }

    /// Queues a request, or refuses it and releases the requests that were held back.
    fn post(&mut self, id: Id, request: Request, mut reasons: Vec<(bool, Status)>) -> Option<Expected> {
        (!self.would_overrun_midway(id)).then_some(())?;
        // Across a stream held requests run with anything that comes.
        (!ACROSS_STREAMS || request.flags & DEFER == 0).then_some(())?;
        (!ACROSS_STREAMS || self.has_its_answer(id, &request)).then_some(())?;
        let finds_receive = self.peer_of(id).is_some_and(|peer| self.next_receive(peer).is_some());
        let arrives = finds_receive && matches!(request.action, Action::Send { .. });
        (!arrives || !self.would_overrun_at_both_ends(id)).then_some(())?;
        let pair = self.pair(id);
        // NDSPI: the side that gets the notice of a disconnect is flushed; what still reaches it is the provider's choice.
        let leaving = pair.connector.is_some_and(|connector| self.connector(connector).leaving);
        (!leaving || self.column == Column::Ndk).then_some(())?;
        reasons.push((!pair.connected, Status::CONNECTION_INVALID));
        reasons.push((pair.requests.len() >= pair.initiator_depth as usize, Status::NO_MORE_ENTRIES));
        // A chain has to be one that can be flushed.
        (request.flags & DEFER == 0 || !self.would_unbind_awaited(id)).then_some(())?;
        let refused = Self::refusal(&reasons)?;
        let pair = self.pair_mut(id);
        let Some(status) = refused else {
            pair.held = if request.flags & DEFER != 0 && !pair.ended { pair.held + 1 } else { 0 };
            pair.requests.push_back(request);
            return Some(DONE);
        };
        pair.held = 0;
        fails(status)
    }

    fn too_many(&self, id: Id, count: usize) -> bool {
        count > self.pair(id).initiator_sges as usize
    }

    pub(super) fn post_transfer(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let id = self.find(name, ScriptKind::QueuePair)?;
        let (context, flags) = (call.number(0), call.number(1));
        let allowed = match call.code {
            ScriptCode::Send | ScriptCode::SendAndInvalidate => ANY | INLINE | 4,
            ScriptCode::Write => ANY | INLINE,
            _ => ANY | LOCAL_INVALIDATE,
        };
        let inline = flags & INLINE != 0 && allowed & INLINE != 0;
        let (sges, buffers) = self.sges(call, inline)?;
        let total: u64 = sges.iter().map(|(_, length, _)| length).sum();
        let most = if inline { u64::from(self.pair(id).inline) } else { TRANSFER };
        let reasons = vec![
            (flags & !allowed != 0, Status::INVALID_PARAMETER),
            (!inline && self.too_many(id, sges.len()), Status::DATA_OVERRUN),
            (total > most, Status::BUFFER_OVERFLOW),
        ];
        let first = sges.first().copied();
        let is_message = matches!(call.code, ScriptCode::Send | ScriptCode::SendAndInvalidate);
        (inline || !is_message || !self.may_lose_memory(id, &sges)).then_some(())?;
        let data = if inline { Data::Inline(self.inline_bytes(&sges)?) } else { Data::Sges(sges.clone()) };
        let action = match call.code {
            ScriptCode::Send => Action::Send { data, invalidate: None },
            ScriptCode::SendAndInvalidate => {
                let (_, token) = self.remote(call.number(2), call.number(3))?;
                if let Address::Of { object, .. } = token {
                    (!self.in_use(object, None) && !self.about_to_revoke(object, None)).then_some(())?;
                }
                Action::Send { data, invalidate: Some(token) }
            }
            ScriptCode::Write => Action::Write { data, remote: self.remote(call.number(2), call.number(3))? },
            _ => {
                let invalidate = if flags & LOCAL_INVALIDATE == 0 { None } else { Some(self.sink_of(first?)?) };
                (!invalidate.is_some_and(|sink| self.in_use(sink, Some(id)))).then_some(())?;
                Action::Read { sges, remote: self.remote(call.number(2), call.number(3))?, invalidate }
            }
        };
        self.post(id, Request { context, flags, action, buffers }, reasons)
    }

    /// The fast-register region whose token the first scatter/gather element of a Read carries: what may be invalidated with it.
    fn sink_of(&self, (_, length, token): super::transfer::Sge) -> Option<Id> {
        let Address::Of { object, .. } = token else { return None };
        let Resource::Region(region) = &self.nodes[object].resource else { return None };
        let valid = matches!(region.registered, Registered::Whole { .. });
        (region.fast && valid && length > 0).then_some(object)
    }

    /// The bytes there now. Inline addresses are real ones: they are in the consumer's buffers.
    fn inline_bytes(&self, sges: &[super::transfer::Sge]) -> Option<Vec<super::memory::Byte>> {
        let mut bytes = Vec::new();
        for (address, length, token) in sges {
            (*token == Address::Privileged).then_some(())?;
            bytes.extend(self.nodes.iter().find_map(|node| match &node.resource {
                Resource::Buffer(buffer) if !node.finished => {
                    let offset = address.checked_sub(buffer.place)? as usize;
                    buffer.bytes.get(offset..offset.checked_add(*length as usize)?)
                }
                _ => None,
            })?);
        }
        Some(bytes)
    }

    pub(super) fn post_receive(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let id = self.find(name, ScriptKind::QueuePair)?;
        let (sges, buffers) = self.sges(call, false)?;
        let total: u64 = sges.iter().map(|(_, length, _)| length).sum();
        let pair = self.pair_mut(id);
        pair.shared.is_none().then_some(())?;
        let refused = Self::refusal(&[
            (sges.len() > pair.receive_sges as usize, Status::DATA_OVERRUN),
            (total > TRANSFER, Status::BUFFER_OVERFLOW),
            (pair.receives.len() >= pair.receive_depth as usize, Status::NO_MORE_ENTRIES),
        ])?;
        if let Some(status) = refused {
            return fails(status);
        }
        self.certain_with_a_receive(id).then_some(())?;
        let pair = self.pair_mut(id);
        pair.receives.push_back(Receive { context: call.number(0), sges, buffers });
        if pair.drained {
            self.cancel_receives(id);
        }
        Some(DONE)
    }

    pub(super) fn post_shared_receive(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let id = self.find(name, ScriptKind::SharedReceiveQueue)?;
        let (sges, buffers) = self.sges(call, false)?;
        let total: u64 = sges.iter().map(|(_, length, _)| length).sum();
        // Which of several waiting senders gets it is the provider's choice.
        let mut waiting = self.nodes.iter().enumerate().filter_map(|(sender, node)| match &node.resource {
            Resource::QueuePair(pair) if !pair.requests.is_empty() => {
                self.peer_of(sender).filter(|peer| self.pair(*peer).shared == Some(id))
            }
            _ => None,
        });
        let receiver = waiting.next();
        let one = waiting.next().is_none();
        (one && receiver.is_none_or(|receiver| self.certain_with_a_receive(receiver))).then_some(())?;
        let shared = self.shared_mut(id);
        let refused = Self::refusal(&[
            (sges.len() > shared.sges as usize, Status::DATA_OVERRUN),
            (total > TRANSFER, Status::BUFFER_OVERFLOW),
            (shared.receives.len() >= shared.depth as usize, Status::NO_MORE_ENTRIES),
        ])?;
        if let Some(status) = refused {
            return fails(status);
        }
        shared.receives.push_back(Receive { context: call.number(0), sges, buffers });
        Some(DONE)
    }

    pub(super) fn post_fast_register(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let id = self.find(name, ScriptKind::QueuePair)?;
        let (context, flags) = (call.number(0), call.number(1));
        let region = self.find(call.name(2), ScriptKind::Region)?;
        let buffer = self.find(call.name(3), ScriptKind::Buffer)?;
        let [page, pages, first, length, base] = [4, 5, 6, 7, 8].map(|index| call.number(index));
        let rights = grants(flags)?;
        let of = self.region(region);
        let same = of.domain == self.pair(id).domain && of.fast && of.registered != Registered::Nothing;
        let adapter = self.nodes[of.domain].antecedents[0];
        let whole = self.buffer(buffer);
        let inside = page.checked_add(pages)? <= whole.bytes.len() as u64 / PAGE;
        (same && inside && self.host(whole.adapter) == self.host(adapter) && pages > 0).then_some(())?;
        // A third list for one region is refused where two are kept; how many are is the provider's choice.
        let queued = self.nodes.iter().any(|node| match &node.resource {
            Resource::QueuePair(pair) => pair.requests.iter().any(|request| match request.action {
                Action::FastRegister { region: other, .. } => other == region,
                _ => false,
            }),
            _ => false,
        });
        (!queued).then_some(())?;
        let bad = pages > u64::from(of.pages)
            || first >= PAGE
            || length == 0
            || length > (pages * PAGE).checked_sub(first)?
            || !(base % PAGE == first || base == 0 && first == 0)
            || base.checked_add(length).is_none();
        let reasons = vec![
            (flags & !(ANY | GRANTS) != 0 || bad, Status::INVALID_PARAMETER),
            (rights & (REMOTE_READ | REMOTE_WRITE) != 0 && !of.remote, Status::ACCESS_VIOLATION),
        ];
        let becomes = Registered::Whole { buffer, offset: page * PAGE + first, length, base, rights };
        let action = Action::FastRegister { region, becomes };
        let expected = self.post(id, Request { context, flags, action, buffers: vec![buffer] }, reasons)?;
        if expected == DONE {
            self.region_mut(region).base = base;
        }
        Some(expected)
    }

    pub(super) fn post_bind(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let id = self.find(name, ScriptKind::QueuePair)?;
        let (context, flags) = (call.number(0), call.number(1));
        let region = self.find(call.name(2), ScriptKind::Region)?;
        let window = self.find(call.name(3), ScriptKind::Window)?;
        let (offset, length) = (call.number(4), call.number(5));
        let rights = grants(flags)? & !LOCAL_WRITE;
        let of = self.region(region);
        let domain = self.pair(id).domain;
        let Registered::Whole { length: whole, base, rights: granted, .. } = of.registered else { return None };
        let inside = length > 0 && offset.checked_add(length).is_some_and(|end| end <= whole);
        // Outside of the region, or of another domain: inline or by completion is undefined by the contract.
        (!of.fast && of.domain == domain && self.window(window).domain == domain && inside).then_some(())?;
        // So is a window that is bound, or about to be.
        let plain = flags & 0x80 == 0 && flags & 0x30 != 0x10;
        (!self.has_request_waiting(window) && self.window(window).bound.is_none() && plain).then_some(())?;
        let reasons = vec![
            (flags & !(ANY | GRANTS) != 0, Status::INVALID_PARAMETER),
            (rights & REMOTE_WRITE != 0 && granted & LOCAL_WRITE == 0, Status::ACCESS_VIOLATION),
        ];
        let token = self.new_token();
        let bound = Bound { region, pair: id, address: base + offset, length, rights, token };
        let request = Request { context, flags, action: Action::Bind { window, bound }, buffers: Vec::new() };
        let expected = self.post(id, request, reasons)?;
        if expected == DONE {
            let window = self.window_mut(window);
            (window.token, window.base) = (token, base + offset);
        }
        Some(expected)
    }

    pub(super) fn post_invalidate(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let id = self.find(name, ScriptKind::QueuePair)?;
        let (context, flags) = (call.number(0), call.number(1));
        let target = *self.slots.get(&call.name(2))?;
        let domain = match &self.nodes[target].resource {
            Resource::Region(region) => {
                (region.fast && region.registered != Registered::Nothing).then_some(())?;
                region.domain
            }
            Resource::Window(window) => {
                let own = window.bound.is_none_or(|bound| bound.pair == id);
                // Bound by another queue pair by then, or by this one: the order is that of the peers.
                let others = self.nodes.iter().enumerate().any(|(other, node)| match &node.resource {
                    Resource::QueuePair(pair) if other != id => {
                        pair.requests.iter().any(|request| request.is_about(target))
                    }
                    _ => false,
                });
                (own && !others).then_some(())?;
                window.domain
            }
            _ => return None,
        };
        (domain == self.pair(id).domain && !self.in_use(target, Some(id))).then_some(())?;
        let reasons = vec![(flags & !ANY != 0, Status::INVALID_PARAMETER)];
        let request = Request { context, flags, action: Action::Invalidate { target }, buffers: Vec::new() };
        self.post(id, request, reasons)
    }
}

/// The rights in NDK_OP_FLAG_ALLOW_*; the lone remote-write bit is undefined by the contract.
fn grants(flags: u64) -> Option<u8> {
    let mut rights = 0;
    if flags & 0x8 != 0 {
        rights |= REMOTE_READ;
    }
    if flags & 0x10 != 0 {
        rights |= LOCAL_WRITE;
    }
    if flags & 0x20 != 0 {
        rights |= REMOTE_WRITE;
    }
    (flags & 0x30 != 0x20).then_some(rights)
}
