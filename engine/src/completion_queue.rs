//! Completion queues: what came to its end, and who wants to know.
//!
//! What it is: a bounded queue behind one lock, taken once a batch, with the arm rules of NDKPI. What it is not: the caller of
//! notifications; a due one is a mark in the queue, and a turn makes the call.
//!
//! Rules (NDKPI: NDK_FN_ARM_CQ, NDK_FN_CQ_NOTIFICATION_CALLBACK): queues start unarmed; one arm, at most one notification;
//! arming an armed queue keeps the stronger wish; arming fires at once for an entry that was added since the last notification
//! began and is still there; errors satisfy a solicited arm, a failed queue satisfies every arm; notifications of one queue
//! never overlap.

use alloc::vec::Vec;

use softndk_cells::{NoMemory, Shared};

use crate::cause::{CreateError, Outcome, QueueFailure};
use crate::event::{Close, Notification, Sink};
use crate::flags::Operation;
use crate::life::{Antecedents, Core, Hold, Object};
use crate::limits::BATCH;
use crate::opening::OpeningObject;
use crate::platform::{Lock, Platform};
use crate::room::push_in_room;
use crate::statistics::count;
use crate::token::MemoryToken;

/// How a completion queue is armed, weakest first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Arm {
    /// Notify when the queue fails.
    Errors,
    /// Also when a solicited message was received or a request failed.
    Solicited,
    /// Also on any completion.
    Any,
}

/// One completion.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Completion {
    /// The consumer's value given with the request.
    pub context: u64,
    /// The consumer's value given with the queue pair.
    pub queue_pair_context: u64,
    pub outcome: Outcome,
    pub operation: Operation,
    /// The message was sent with the wish to wake the receiver.
    pub solicited: bool,
    /// Bytes received; 0 for initiator requests.
    pub bytes: u32,
    /// The token a `ReceiveAndInvalidate` invalidated.
    pub output: MemoryToken,
}

impl Completion {
    fn satisfies_solicited(&self) -> bool {
        self.solicited || self.outcome != Outcome::Success
    }
}

pub(crate) struct CompletionQueueObject<P: Platform> {
    pub(crate) core: Core<P>,
    pub(crate) opening: Shared<OpeningObject<P>>,
    depth: u32,
    notify: Option<P::NotifyCallback>,
    /// Where notifications run by preference.
    home: Option<u32>,
    queue: P::Lock<Queue>,
}

/// Entries count from 1 in the order they were added; positions never wrap in the life of a machine.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of the arm protocol")]
struct Queue {
    /// Room for a power of two of them, so that positions need no division. It is filled as positions are first used: a deep
    /// queue is made as fast as a shallow one.
    entries: Vec<Completion>,
    /// The last position before they begin anew.
    mask: usize,
    depth: u64,
    /// Entries taken by the consumer so far.
    taken: u64,
    /// Entries added so far.
    added: u64,
    /// `added` when the last notification began.
    notified: u64,
    /// The newest entry that satisfies a solicited arm.
    newest_solicited: u64,
    armed: Option<Arm>,
    due: bool,
    notifying: bool,
    closed: bool,
    failure: Option<QueueFailure>,
    failure_told: bool,
}

impl Queue {
    fn try_new(depth: u32) -> Result<Self, NoMemory> {
        let size = (depth as usize).checked_next_power_of_two().ok_or(NoMemory)?;
        let mut entries = Vec::new();
        entries.try_reserve_exact(size)?;
        Ok(Self {
            entries,
            mask: size - 1,
            depth: u64::from(depth),
            taken: 0,
            added: 0,
            notified: 0,
            newest_solicited: 0,
            armed: None,
            due: false,
            notifying: false,
            closed: false,
            failure: None,
            failure_told: false,
        })
    }

    fn waiting(&self) -> u64 {
        self.added - self.taken
    }

    /// Stores an entry in its position, which nobody waits in.
    fn store(&mut self, number: u64, completion: Completion) {
        if let Some(place) = self.entries.get_mut(number as usize & self.mask) {
            *place = completion;
        } else {
            // The first round: positions come one after the other, and the room for all of them is there.
            let stored = push_in_room(&mut self.entries, completion);
            debug_assert!(stored.is_ok());
        }
    }

    /// Adds entries; on overflow the queue has failed and keeps what it has.
    fn push(&mut self, completions: &[Completion]) -> Result<(), QueueFailure> {
        for completion in completions {
            if let Some(failure) = self.failure {
                return Err(failure);
            }
            if self.waiting() >= self.depth {
                self.failure = Some(QueueFailure::Overflow);
                return Err(QueueFailure::Overflow);
            }
            let number = self.added;
            self.store(number, *completion);
            self.added += 1;
            if completion.satisfies_solicited() {
                self.newest_solicited = self.added;
            }
        }
        Ok(())
    }

    /// Takes the oldest entries, as many as there is room for.
    fn take(&mut self, room: &mut [Completion]) -> usize {
        let count = self.waiting().min(room.len() as u64) as usize;
        for into in room.iter_mut().take(count) {
            if let Some(entry) = self.entries.get(self.taken as usize & self.mask) {
                *into = *entry;
            }
            self.taken += 1;
        }
        count
    }

    /// Whether something that satisfies `arm` was added since the last notification and is still there.
    fn satisfied(&self, arm: Arm) -> bool {
        if self.failure.is_some() && !self.failure_told {
            return true;
        }
        let seen = self.notified.max(self.taken);
        match arm {
            Arm::Errors => false,
            Arm::Solicited => self.newest_solicited > seen,
            Arm::Any => self.added > seen,
        }
    }

    /// Turns a satisfied arm into a due notification; true when a turn has to be asked for.
    fn settle(&mut self) -> bool {
        if self.armed.is_some_and(|arm| self.satisfied(arm)) {
            self.armed = None;
            self.due = !self.closed;
        }
        self.due && !self.notifying
    }

    /// Begins a due notification.
    fn begin(&mut self) -> Option<Result<(), QueueFailure>> {
        if !self.due || self.notifying || self.closed {
            return None;
        }
        self.due = false;
        self.notifying = true;
        self.notified = self.added;
        self.failure_told = self.failure.is_some();
        Some(self.failure.map_or(Ok(()), Err))
    }
}

/// A completion queue.
pub struct CompletionQueue<P: Platform>(pub(crate) Shared<CompletionQueueObject<P>>);

impl<P: Platform> Clone for CompletionQueue<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Platform> CompletionQueue<P> {
    pub(crate) fn create(
        opening: &Shared<OpeningObject<P>>,
        depth: u32,
        notify: Option<P::NotifyCallback>,
        home: Option<u32>,
        block: P::Block,
    ) -> Result<Self, CreateError> {
        let adapter = &opening.core.adapter;
        adapter.ready()?;
        if depth == 0 || depth > adapter.limits.completion_depth {
            return Err(CreateError::OverLimit);
        }
        let queue = Shared::try_new(CompletionQueueObject {
            core: Core::new(adapter, Some(block), Antecedents::none().with(Object::Opening(opening.clone()))),
            opening: opening.clone(),
            depth,
            notify,
            home,
            queue: P::Lock::new(Queue::try_new(depth)?),
        })?;
        adapter.register(&Object::CompletionQueue(queue.clone()))?;
        Ok(Self(queue))
    }

    pub fn depth(&self) -> u32 {
        self.0.depth
    }

    /// Takes up to `most` completions, oldest first, and gives each with its index to `each`, with no lock held: what it writes
    /// to may be pageable when the caller is at PASSIVE_LEVEL. Answers how many there were. Callers take turns, as the contract
    /// asks of them; two at a time get each completion once, but in no order.
    pub fn poll(&self, most: u32, mut each: impl FnMut(u32, &Completion)) -> u32 {
        let mut given = 0;
        let mut batch = [Completion::default(); BATCH];
        while given < most {
            // A batch at a time, so that nobody who has something to add waits for long.
            let room = BATCH.min((most - given) as usize);
            let (count, more) = self.0.queue.with(|queue| {
                let count = queue.take(batch.get_mut(..room).unwrap_or_default());
                (count, queue.waiting() > 0)
            });
            for completion in batch.iter().take(count) {
                each(given, completion);
                given += 1;
            }
            if !more {
                break;
            }
        }
        given
    }

    /// Asks for one notification.
    pub fn arm(&self, arm: Arm) {
        let ask = self.0.queue.with(|queue| {
            queue.armed = queue.armed.max(Some(arm));
            queue.settle()
        });
        ask_turn(&self.0, ask);
    }

    pub fn close(&self, callback: P::CloseCallback) -> Close<P> {
        self.0.core.close(Some(callback), || {
            self.0.queue.with(|queue| {
                queue.closed = true;
                queue.due = false;
            });
        })
    }
}

/// Adds completions under one lock and asks for a notification if one is due; false when the queue has failed and takes none.
pub(crate) fn enter<P: Platform>(queue: &Shared<CompletionQueueObject<P>>, completions: &[Completion]) -> bool {
    if completions.is_empty() {
        return true;
    }
    let (entered, ask, just_failed) = queue.queue.with(|inner| {
        let failed_before = inner.failure.is_some();
        let entered = inner.push(completions).is_ok();
        (entered, inner.settle(), !entered && !failed_before)
    });
    if just_failed {
        count(&queue.core.adapter.statistics.completion_queue_error);
    }
    ask_turn(queue, ask);
    entered
}

fn ask_turn<P: Platform>(queue: &Shared<CompletionQueueObject<P>>, ask: bool) {
    if ask && queue.notify.is_some() {
        queue.core.fabric.link_at(&Object::CompletionQueue(queue.clone()), queue.home);
    }
}

/// Makes a due notification.
pub(crate) fn look_at<P: Platform>(queue: &Shared<CompletionQueueObject<P>>, sink: &mut impl Sink<P>) {
    let Some(callback) = queue.notify else { return };
    let begun = queue.queue.with(|inner| {
        // Held before the lock is let go: a close that comes now waits for the callback.
        inner.begin().map(|status| (status, Hold::new(Object::CompletionQueue(queue.clone()))))
    });
    let Some((status, hold)) = begun else { return };
    let guard = Notifying(queue.clone());
    sink.notify(Notification { callback, status, guard, hold });
}

/// A notification under way: when the event is dropped, the next one may begin.
pub(crate) struct Notifying<P: Platform>(Shared<CompletionQueueObject<P>>);

impl<P: Platform> Drop for Notifying<P> {
    fn drop(&mut self) {
        let ask = self.0.queue.with(|queue| {
            queue.notifying = false;
            queue.settle()
        });
        ask_turn(&self.0, ask);
    }
}

#[cfg(test)]
mod tests {
    use super::{Arm, Completion, Queue};
    use crate::cause::{Outcome, QueueFailure};

    fn queue(depth: u32) -> Queue {
        Queue::try_new(depth).unwrap()
    }

    fn plain() -> Completion {
        Completion::default()
    }

    fn solicited() -> Completion {
        Completion { solicited: true, ..plain() }
    }

    fn failed() -> Completion {
        Completion { outcome: Outcome::Cancelled, ..plain() }
    }

    /// Arms, and says whether a notification is due at once.
    fn arm(queue: &mut Queue, arm: Arm) -> bool {
        queue.armed = queue.armed.max(Some(arm));
        queue.settle()
    }

    #[test]
    fn arming_twice_keeps_the_stronger_wish() {
        use Arm::{Any, Errors, Solicited};
        for (first, second, kept) in [
            (Any, Any, Any),
            (Any, Errors, Any),
            (Any, Solicited, Any),
            (Errors, Any, Any),
            (Errors, Errors, Errors),
            (Errors, Solicited, Solicited),
            (Solicited, Any, Any),
            (Solicited, Errors, Solicited),
            (Solicited, Solicited, Solicited),
        ] {
            let mut queue = queue(4);
            arm(&mut queue, first);
            arm(&mut queue, second);
            assert_eq!(queue.armed, Some(kept), "{first:?} then {second:?}");
        }
    }

    #[test]
    fn each_arm_is_satisfied_by_its_entries_only() {
        for (wish, entry, fires) in [
            (Arm::Any, plain(), true),
            (Arm::Any, failed(), true),
            (Arm::Solicited, plain(), false),
            (Arm::Solicited, solicited(), true),
            (Arm::Solicited, failed(), true),
            (Arm::Errors, plain(), false),
            (Arm::Errors, solicited(), false),
            (Arm::Errors, failed(), false),
        ] {
            let mut queue = queue(4);
            assert!(!arm(&mut queue, wish));
            queue.push(&[entry]).unwrap();
            assert_eq!(queue.settle(), fires, "{wish:?} {entry:?}");
        }
    }

    #[test]
    fn an_entry_added_before_the_arm_fires_at_once_and_only_once() {
        let mut queue = queue(4);
        queue.push(&[plain()]).unwrap();
        assert!(arm(&mut queue, Arm::Any));
        assert_eq!(queue.begin(), Some(Ok(())));
        queue.notifying = false;
        assert!(!arm(&mut queue, Arm::Any), "the entry was there at the last notification");
        queue.push(&[plain()]).unwrap();
        assert!(queue.settle());
    }

    #[test]
    fn an_entry_added_while_the_notification_runs_fires_after_it() {
        let mut queue = queue(4);
        arm(&mut queue, Arm::Any);
        queue.push(&[plain()]).unwrap();
        assert!(queue.settle());
        queue.begin().unwrap().unwrap();
        queue.push(&[plain()]).unwrap();
        assert!(!arm(&mut queue, Arm::Any), "not while the first runs");
        assert!(queue.begin().is_none());
        queue.notifying = false;
        assert!(queue.settle());
    }

    #[test]
    fn a_drained_queue_does_not_fire() {
        let mut queue = queue(4);
        queue.push(&[plain()]).unwrap();
        queue.taken += 1;
        assert!(!arm(&mut queue, Arm::Any));
    }

    #[test]
    fn an_overflow_keeps_the_entries_fires_every_arm_once_and_takes_no_more() {
        for wish in [Arm::Errors, Arm::Solicited, Arm::Any] {
            let mut queue = queue(2);
            queue.push(&[plain(), plain()]).unwrap();
            assert_eq!(queue.push(&[plain()]), Err(QueueFailure::Overflow));
            assert_eq!(queue.waiting(), 2);
            queue.taken = 2;
            assert_eq!(queue.push(&[plain()]), Err(QueueFailure::Overflow));
            assert!(arm(&mut queue, wish));
            assert_eq!(queue.begin(), Some(Err(QueueFailure::Overflow)));
            queue.notifying = false;
            assert!(!arm(&mut queue, wish));
        }
    }

    #[test]
    fn making_the_deepest_queue_touches_none_of_its_entries() {
        let queue = queue(crate::limits::Limits::CONNECTX_LIKE.completion_depth);
        assert_eq!((queue.entries.len(), queue.entries.capacity()), (0, 1 << 22));
    }

    #[test]
    fn entries_come_out_as_they_went_in_over_many_rounds_of_each_depth() {
        for depth in [1, 2, 3, 5, 16] {
            let (mut queue, mut next, mut expected) = (queue(depth), 0, 0);
            for round in 0..40 {
                let room = u64::from(depth) - queue.waiting();
                for _ in 0..room.min(1 + round % 4) {
                    queue.push(&[Completion { context: next, ..plain() }]).unwrap();
                    next += 1;
                }
                let mut out = [plain(); 2];
                let count = queue.take(&mut out);
                for entry in out.iter().take(count) {
                    assert_eq!(entry.context, expected, "depth {depth}");
                    expected += 1;
                }
            }
            assert!(expected > 30);
        }
    }

    #[test]
    fn a_full_queue_of_each_depth_takes_exactly_its_depth() {
        for depth in [1, 2, 3, 16] {
            let mut queue = queue(depth);
            for _ in 0..3 {
                for _ in 0..depth {
                    queue.push(&[plain()]).unwrap();
                }
                queue.taken += u64::from(depth);
            }
            for _ in 0..depth {
                queue.push(&[plain()]).unwrap();
            }
            assert!(queue.push(&[plain()]).is_err());
        }
    }
}
