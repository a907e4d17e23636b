//! Completion queues: entries, arming, overflow.

use std::collections::VecDeque;

use softndk_ioctl::{ScriptEvent, ScriptKind, ScriptName, ScriptResult, Status};

use super::{Call, Column, DONE, Expected, Id, Model, QueuePair, Resource, fails};

/// Most entries a queue may be asked for (NDK_ADAPTER_INFO).
pub const MOST: u32 = 4_194_303;

/// Strength of an arm; a stronger one replaces a weaker one.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Arm {
    Errors,
    Solicited,
    Any,
}

/// An entry, and what it means for arming.
#[derive(Clone, Debug)]
pub struct Entry {
    pub result: ScriptResult,
    /// Errors, and receives of solicited sends.
    pub solicited: bool,
    /// Added after the last notification.
    pub new: New,
}

/// Whether the last notification came before an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum New {
    No,
    /// Both came of one call: which was first is the provider's choice.
    Perhaps,
    Yes,
}

/// A completion queue.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    pub adapter: Id,
    pub depth: u32,
    pub entries: VecDeque<Entry>,
    pub armed: Option<Arm>,
    /// Overflowed: reports no more.
    pub dead: bool,
    /// The consumer has been notified.
    pub notified: bool,
    /// The callback is on its way, and there were so many entries when that was found.
    pub due: Option<usize>,
}

impl CompletionQueue {
    fn satisfies(&self, arm: Arm, new: New) -> bool {
        self.entries.iter().any(|entry| {
            entry.new == new
                && match arm {
                    Arm::Errors => false,
                    Arm::Solicited => entry.solicited,
                    Arm::Any => true,
                }
        })
    }
}

impl Model {
    pub(super) fn create_queue(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let adapter = self.find(call.name(0), ScriptKind::Adapter)?;
        let depth = call.small(1);
        if depth > MOST {
            return fails(Status::INVALID_PARAMETER);
        }
        // Four million entries are too many for a random sequence; a queue without entries is undefined by the contract.
        (1..=4096).contains(&depth).then_some(())?;
        let queue = CompletionQueue {
            adapter,
            depth,
            entries: VecDeque::new(),
            armed: None,
            dead: false,
            notified: false,
            due: None,
        };
        self.add(name, vec![adapter], Resource::CompletionQueue(queue));
        Some(DONE)
    }

    /// NDSPI: a queue that would lose completions by it stays as it is, with BUFFER_OVERFLOW.
    pub(super) fn resize(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let id = self.find(name, ScriptKind::CompletionQueue)?;
        let depth = call.small(0);
        if depth > MOST {
            return fails(Status::INVALID_PARAMETER);
        }
        let column = self.column;
        let queue = self.queue_mut(id);
        // NDSPI: how much more than its depth a queue holds is the provider's choice.
        let certain = column == Column::Ndk || queue.entries.len() <= depth as usize;
        ((1..=4096).contains(&depth) && !queue.dead && certain).then_some(())?;
        if queue.entries.len() > depth as usize {
            return fails(Status::BUFFER_OVERFLOW);
        }
        queue.depth = depth;
        Some(DONE)
    }

    pub(super) fn poll(&mut self, name: ScriptName) -> Option<Expected> {
        let id = self.find(name, ScriptKind::CompletionQueue)?;
        let entries = std::mem::take(&mut self.queue_mut(id).entries);
        Some(Expected::Results(entries.into_iter().map(|entry| entry.result).collect()))
    }

    pub(super) fn arm(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let id = self.find(name, ScriptKind::CompletionQueue)?;
        let arm = match call.number(0) {
            0 => Arm::Errors,
            1 => Arm::Any,
            2 => Arm::Solicited,
            _ => return None,
        };
        let queue = self.queue_mut(id);
        let stronger = queue.armed.max(Some(arm));
        let certain = queue.satisfies(arm, New::Yes) || !queue.satisfies(arm, New::Perhaps);
        (certain || queue.dead).then_some(())?;
        queue.armed = stronger;
        self.notify_if_due(id);
        Some(Expected::Nothing)
    }

    /// The callbacks that are due are made: what is in the queue by then is not new any more.
    pub(super) fn call_back(&mut self) {
        for id in 0..self.nodes.len() {
            let closed = self.closed(id);
            let Resource::CompletionQueue(queue) = &mut self.nodes[id].resource else { continue };
            let Some(before) = queue.due.take() else { continue };
            for (index, entry) in queue.entries.iter_mut().enumerate() {
                entry.new = if index < before { New::No } else { New::Perhaps };
            }
            let status = if queue.dead { Status::BUFFER_OVERFLOW } else { Status::SUCCESS };
            queue.notified = queue.dead;
            if !closed {
                self.occur(ScriptEvent::Notify, id, status);
            }
        }
    }

    /// One notification for one arm, as soon as something new satisfies it.
    fn notify_if_due(&mut self, id: Id) {
        let queue = self.queue_mut(id);
        let Some(arm) = queue.armed else { return };
        let satisfied = queue.satisfies(arm, New::Yes);
        // A queue that has failed says so once, and nothing else any more.
        if if queue.dead { !queue.notified } else { satisfied } {
            queue.armed = None;
            queue.due = Some(queue.entries.len());
        }
    }

    /// With one request more several are under way, and one of them may overrun a queue: what the others still do then is the
    /// provider's choice: it may be further than the queue. So is whether the callback of an armed queue comes between its
    /// first result and the one that does not fit.
    pub(super) fn would_overrun_midway(&self, id: Id) -> bool {
        let pair = self.pair(id);
        let peer = self.peer_of(id).map(|peer| self.pair(peer));
        let overruns = |queue: Id, results: usize| {
            let queue = self.queue(queue);
            !queue.dead && queue.entries.len() + results > self.capacity_of(queue)
        };
        let requests = pair.requests.len() + 1;
        let fills = |peer: &QueuePair| overruns(peer.receive_queue, self.receives_of(peer));
        let several = requests > 1 && (overruns(pair.initiator_queue, requests) || peer.is_some_and(fills));
        let both = [Some(pair), peer];
        let notifies = |queue: Id| {
            let of = |pair: &QueuePair| {
                let from = |reports_to: Id, count: usize| if reports_to == queue { count } else { 0 };
                from(pair.initiator_queue, pair.requests.len()) + from(pair.receive_queue, self.receives_of(pair))
            };
            self.queue(queue).armed.is_some() && overruns(queue, 1 + both.into_iter().flatten().map(of).sum::<usize>())
        };
        let mut queues = both.into_iter().flatten().flat_map(|pair| [pair.initiator_queue, pair.receive_queue]);
        several || queues.any(notifies)
    }

    /// A message of this queue pair finds both its queue and that of its receive full: which end fails first, and whose peer gets the
    /// event, is the provider's choice.
    pub(super) fn would_overrun_at_both_ends(&self, id: Id) -> bool {
        let (from, to) = (self.pair(id), self.peer_of(id).map(|peer| self.pair(peer)));
        self.is_full(from.initiator_queue) && to.is_some_and(|to| self.is_full(to.receive_queue))
    }

    pub(super) fn is_full(&self, queue: Id) -> bool {
        let queue = self.queue(queue);
        !queue.dead && queue.entries.len() >= self.capacity_of(queue)
    }

    /// The receives that a message to this queue pair may find.
    fn receives_of(&self, pair: &QueuePair) -> usize {
        pair.shared.map_or(pair.receives.len(), |shared| self.shared(shared).receives.len())
    }

    /// The same for a receive that requests of the peer wait for.
    pub(super) fn certain_with_a_receive(&self, id: Id) -> bool {
        let Some(peer) = self.peer_of(id).filter(|peer| !self.pair(*peer).requests.is_empty()) else { return true };
        if self.pair(peer).requests.len() == 1 {
            return !self.would_overrun_at_both_ends(peer);
        }
        let (pair, peer) = (self.pair(id), self.pair(peer));
        let has_capacity = |queue: Id, results: usize| {
            let queue = self.queue(queue);
            queue.dead || queue.entries.len() + results <= self.capacity_of(queue)
        };
        has_capacity(pair.receive_queue, self.receives_of(pair) + 1)
            && has_capacity(peer.initiator_queue, peer.requests.len())
    }

    /// NDSPI: a queue may be deeper than asked for; ours is by so many entries.
    pub(super) fn capacity_of(&self, queue: &CompletionQueue) -> usize {
        queue.depth as usize + if self.column == Column::Nd { 16 } else { 0 }
    }

    /// Adds an entry; a full queue fails.
    pub(super) fn enter(&mut self, id: Id, result: ScriptResult, solicited: bool) {
        let capacity = self.capacity_of(self.queue(id));
        let queue = self.queue_mut(id);
        if queue.dead {
            return;
        }
        if queue.entries.len() < capacity {
            let error = result.status < 0;
            queue.entries.push_back(Entry { result, solicited: solicited || error, new: New::Yes });
            self.notify_if_due(id);
            return;
        }
        queue.dead = true;
        self.notify_if_due(id);
        self.overrun.push(id);
    }

    /// Ends the queue pairs of a queue that has overrun; what was under way is through by then.
    pub(super) fn end_overrun(&mut self) -> bool {
        let Some(id) = self.overrun.pop() else { return false };
        let attached: Vec<Id> = self.attached(id).collect();
        for pair in attached {
            self.end_pair(pair);
        }
        true
    }

    /// Queue pairs that report to this queue.
    pub(super) fn attached(&self, queue: Id) -> impl Iterator<Item = Id> + '_ {
        self.nodes.iter().enumerate().filter_map(move |(id, node)| match &node.resource {
            Resource::QueuePair(pair) if !node.finished => {
                (pair.receive_queue == queue || pair.initiator_queue == queue).then_some(id)
            }
            _ => None,
        })
    }
}
