//! When a completion queue notifies: arming, moderation, failure.
//!
//! This is the state under the queue's lock: the entries and everything that decides about notifications. A due notification is
//! a mark here; a service pass makes the call.
//!
//! Rules (NDKPI: NDK_FN_ARM_CQ, NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION): one arm, at most one notification; arming an armed
//! queue keeps the stronger of the two arms; an arm is satisfied at once by an entry that satisfies it, was added since the
//! last notification began, and is still there; a failed queue satisfies every arm. Moderation holds a satisfied arm back until
//! the count is reached or the interval is over, never a failure. An interval under the timer's resolution ends with the
//! service pass; a longer one may end by that resolution too soon and never too late.

use softndk_cells::NoMemory;

use crate::completion::completion_queue::{Arm, Completion};
use crate::completion::rings::{Ring, Rings, UsedUp};
use crate::error::QueueFailure;

/// A ring for a new depth, and a list that can hold the rings before it.
pub(crate) type SpareRing = (Ring<Completion>, alloc::vec::Vec<Ring<Completion>>);

/// No bound.
pub(crate) const UNBOUNDED: u64 = u64::MAX;

/// How notifications are held back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Moderation {
    /// Nanoseconds; [`UNBOUNDED`] when only the count matters.
    pub(crate) interval: u64,
    /// Entries; [`UNBOUNDED`] when only the interval matters.
    pub(crate) count: u64,
}

/// A satisfied arm that is held back.
#[derive(Clone, Copy)]
struct Deferred {
    since: u64,
    /// Entries that do not count, being there before: of every kind, and of those that satisfy a solicited arm.
    before: Totals,
}

/// Entries of every kind, and those that satisfy a solicited arm.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Totals {
    all: u64,
    solicited: u64,
}

impl Totals {
    fn of(self, arm: Arm) -> u64 {
        match arm {
            Arm::Errors => 0,
            Arm::Solicited => self.solicited,
            Arm::Any => self.all,
        }
    }

    fn later(self, other: Self) -> Self {
        Self { all: self.all.max(other.all), solicited: self.solicited.max(other.solicited) }
    }

    #[inline]
    fn count_one(&mut self, completion: &Completion) {
        self.all = self.all.wrapping_add(1);
        self.solicited = self.solicited.wrapping_add(u64::from(completion.satisfies_solicited()));
    }
}

/// The follow-up that a change of a queue requires.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ask {
    Nothing,
    /// A service pass.
    Pass,
    /// The end of the next service pass, or of the one under way.
    PassEnd,
    /// A service pass at this time.
    At(u64),
}

/// Entries count from 1 in the order they were added; positions never wrap while a machine runs.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of the arm protocol")]
pub(crate) struct Queue {
    rings: Rings<Completion>,
    /// As the consumer asked for it.
    pub(crate) depth: u64,
    /// Entries taken beyond that before the queue fails.
    slack: u32,
    /// Entries taken by the consumer so far.
    taken: Totals,
    /// Entries added so far.
    added: Totals,
    /// `added` when the last notification began.
    notified: Totals,
    pub(crate) armed: Option<Arm>,
    moderation: Option<Moderation>,
    deferred: Option<Deferred>,
    due: bool,
    pub(crate) notifying: bool,
    pub(crate) closed: bool,
    pub(crate) failure: Option<QueueFailure>,
    failure_reported: bool,
}

impl Queue {
    pub(crate) fn try_new(depth: u32, slack: u32) -> Result<Self, NoMemory> {
        Ok(Self {
            rings: Rings::try_new(depth.saturating_add(slack) as usize)?,
            depth: u64::from(depth),
            slack,
            taken: Totals::default(),
            added: Totals::default(),
            notified: Totals::default(),
            armed: None,
            moderation: None,
            deferred: None,
            due: false,
            notifying: false,
            closed: false,
            failure: None,
            failure_reported: false,
        })
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.added.all - self.taken.all
    }

    /// Adds entries; on overflow the queue has failed and keeps what it has.
    pub(crate) fn push(&mut self, completions: &[Completion]) -> Result<(), QueueFailure> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let free = (self.depth + u64::from(self.slack)).saturating_sub(self.waiting());
        let fitting = completions.len().min(usize::try_from(free).unwrap_or(usize::MAX));
        let kept = completions.get(..fitting).unwrap_or_default();
        for entry in kept {
            self.rings.store(self.added.all, || *entry);
            self.added.count_one(entry);
        }
        if fitting < completions.len() {
            self.failure = Some(QueueFailure::Overflow);
            return Err(QueueFailure::Overflow);
        }
        Ok(())
    }

    /// As [`Self::push`] for one entry, a success that is not solicited.
    #[inline]
    pub(crate) fn push_success(&mut self, make: impl FnOnce() -> Completion) -> Result<(), QueueFailure> {
        let has_capacity = self.waiting() < self.depth.saturating_add(u64::from(self.slack));
        if self.failure.is_some() || !has_capacity {
            return self.push(core::slice::from_ref(&make()));
        }
        self.rings.store(self.added.all, make);
        self.added.all = self.added.all.wrapping_add(1);
        Ok(())
    }

    /// Gives the oldest entries, up to `most`. Ends early with a ring that has become empty: its memory is freed with no lock held.
    #[inline]
    pub(crate) fn take(&mut self, most: usize, mut give: impl FnMut(&Completion)) -> (usize, Option<Ring<Completion>>) {
        let most = usize::try_from(self.waiting()).unwrap_or(usize::MAX).min(most);
        let (rings, mut taken) = (&mut self.rings, self.taken);
        let (count, used_up) = rings.take_all(taken.all, most, |completion| {
            taken.count_one(completion);
            give(completion);
        });
        self.taken = taken;
        (count, used_up)
    }

    /// Entries before which nothing is new: taken, or there when the last notification began.
    fn seen(&self) -> Totals {
        self.notified.later(self.taken)
    }

    /// What has not been taken counts as added after the last notification: a poll has denied it.
    pub(crate) fn count_waiting_as_new(&mut self) {
        self.notified = self.taken;
    }

    fn failure_is_news(&self) -> bool {
        self.failure.is_some() && !self.failure_reported
    }

    /// Whether something that satisfies `arm` was added since the last notification and is still there.
    fn satisfied(&self, arm: Arm) -> bool {
        self.failure_is_news() || self.added.of(arm) > self.seen().of(arm)
    }

    pub(crate) fn arm(&mut self, arm: Arm) {
        self.armed = self.armed.max(Some(arm));
    }

    /// Takes back an arm that has not led to a notification.
    pub(crate) fn disarm(&mut self) {
        self.armed = None;
        self.deferred = None;
    }

    /// New settings hold for what is held back already.
    pub(crate) fn moderate(&mut self, moderation: Option<Moderation>) {
        self.moderation = moderation;
    }

    /// Whether a notification is asked for, or due: else none comes of any change.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.armed.is_some() || self.due
    }

    /// Whether the deadline matters for what is held back.
    pub(crate) fn needs_clock(&self) -> bool {
        self.moderation.is_some() && self.armed.is_some()
    }

    /// Turns a satisfied arm into a due notification, and returns the follow-up it requires.
    pub(crate) fn update_due(&mut self, now: u64, resolution: u64) -> Ask {
        let mut at_end = false;
        if let Some(arm) = self.armed
            && (self.deferred.is_some() || self.satisfied(arm))
            && !self.closed
        {
            // A notification that is due and has not begun stands for this arm too.
            if !self.due {
                match self.defer(arm, now, resolution) {
                    Ask::At(deadline) => return Ask::At(deadline),
                    ask => at_end = ask == Ask::PassEnd,
                }
            }
            self.armed = None;
            self.deferred = None;
            self.due = true;
        }
        match self.due && !self.notifying && !self.closed {
            false => Ask::Nothing,
            true if at_end => Ask::PassEnd,
            true => Ask::Pass,
        }
    }

    /// When a satisfied arm may notify.
    fn defer(&mut self, arm: Arm, now: u64, resolution: u64) -> Ask {
        let Some(moderation) = self.moderation.filter(|_| !self.failure_is_news()) else { return Ask::Pass };
        let before = self.seen();
        let deferred = *self.deferred.get_or_insert(Deferred { since: now, before });
        // A queue that became shallower than the count notifies when it is full.
        let bound = if moderation.interval == UNBOUNDED { self.depth } else { UNBOUNDED };
        if self.added.of(arm) - deferred.before.of(arm) >= moderation.count.min(bound) {
            return Ask::Pass;
        }
        if moderation.interval == UNBOUNDED {
            return Ask::At(UNBOUNDED);
        }
        let Some(interval) = moderation.interval.checked_sub(resolution) else { return Ask::PassEnd };
        let end = deferred.since.saturating_add(interval);
        if now >= end { Ask::Pass } else { Ask::At(end) }
    }

    /// Begins a due notification.
    pub(crate) fn begin(&mut self) -> Option<Result<(), QueueFailure>> {
        if !self.due || self.notifying || self.closed {
            return None;
        }
        self.due = false;
        self.deferred = None;
        self.notifying = true;
        self.notified = self.added;
        self.failure_reported = self.failure.is_some();
        Some(self.failure.map_or(Ok(()), Err))
    }

    /// No notification begins any more.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.due = false;
        self.deferred = None;
    }

    /// The number of rings that a new list must be able to hold.
    pub(crate) fn rings(&self) -> usize {
        self.rings.count()
    }

    /// Changes to another depth, prepared in `fresh`; false when more entries wait than that.
    pub(crate) fn resize(&mut self, depth: u32, spare: &mut Option<SpareRing>) -> Resized {
        if self.waiting() > u64::from(depth) {
            return Resized::Occupied;
        }
        match spare.take() {
            Some((fresh, list)) if list.capacity() >= self.rings.count() => {
                self.depth = u64::from(depth);
                Resized::Done(self.rings.change(fresh, list, self.taken.all, self.added.all))
            }
            other => {
                *spare = other;
                Resized::MoreRings
            }
        }
    }
}

/// How a resize ended.
pub(crate) enum Resized {
    /// Drop what it carries with no lock held.
    Done(UsedUp<Completion>),
    Occupied,
    /// Another resize happened in between: the list has to be longer.
    MoreRings,
}

#[cfg(test)]
mod tests {
    use super::{Arm, Ask, Completion, Moderation, Queue, Resized, Ring, UNBOUNDED};
    use crate::error::{Outcome, QueueFailure};

    fn queue(depth: u32) -> Queue {
        Queue::try_new(depth, 0).unwrap()
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

    /// Arms, and returns whether a notification is due at once.
    fn arm(queue: &mut Queue, arm: Arm) -> bool {
        queue.arm(arm);
        update_due(queue)
    }

    /// Whether a notification is due, without moderation.
    fn update_due(queue: &mut Queue) -> bool {
        queue.update_due(0, 0) == Ask::Pass
    }

    fn take(queue: &mut Queue, count: usize) {
        (0..count).for_each(|_| assert_eq!(queue.take(1, |_| ()).0, 1));
    }

    #[test]
    fn arming_twice_keeps_the_stronger_arm() {
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
        for (wanted, entry, fires) in [
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
            assert!(!arm(&mut queue, wanted));
            queue.push(&[entry]).unwrap();
            assert_eq!(update_due(&mut queue), fires, "{wanted:?} {entry:?}");
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
        assert!(update_due(&mut queue));
    }

    #[test]
    fn an_entry_added_while_the_notification_runs_fires_after_it() {
        let mut queue = queue(4);
        arm(&mut queue, Arm::Any);
        queue.push(&[plain()]).unwrap();
        assert!(update_due(&mut queue));
        queue.begin().unwrap().unwrap();
        queue.push(&[plain()]).unwrap();
        assert!(!arm(&mut queue, Arm::Any), "not while the first runs");
        assert!(queue.begin().is_none());
        queue.notifying = false;
        assert!(update_due(&mut queue));
    }

    #[test]
    fn a_drained_queue_does_not_fire() {
        let mut queue = queue(4);
        queue.push(&[plain()]).unwrap();
        take(&mut queue, 1);
        assert!(!arm(&mut queue, Arm::Any));
    }

    #[test]
    fn an_overflow_keeps_the_entries_fires_every_arm_once_and_takes_no_more() {
        for wanted in [Arm::Errors, Arm::Solicited, Arm::Any] {
            let mut queue = queue(2);
            queue.push(&[plain(), plain()]).unwrap();
            assert_eq!(queue.push(&[plain()]), Err(QueueFailure::Overflow));
            assert_eq!(queue.waiting(), 2);
            take(&mut queue, 2);
            assert_eq!(queue.push(&[plain()]), Err(QueueFailure::Overflow));
            assert!(arm(&mut queue, wanted));
            assert_eq!(queue.begin(), Some(Err(QueueFailure::Overflow)));
            queue.notifying = false;
            assert!(!arm(&mut queue, wanted));
        }
    }

    #[test]
    fn making_the_deepest_queue_touches_none_of_its_entries() {
        let queue = queue(crate::limits::Limits::CONNECTX_LIKE.completion_depth);
        assert_eq!(queue.rings.slots(), (0, 1 << 22));
    }

    #[test]
    fn entries_come_out_as_they_went_in_over_many_rounds_of_each_depth() {
        for depth in [1, 2, 3, 5, 16] {
            let (mut queue, mut next, mut expected) = (queue(depth), 0, 0);
            for round in 0..40 {
                let capacity = u64::from(depth) - queue.waiting();
                for _ in 0..capacity.min(1 + round % 4) {
                    queue.push(&[Completion { context: next, ..plain() }]).unwrap();
                    next += 1;
                }
                queue.take(2, |entry| {
                    assert_eq!(entry.context, expected, "depth {depth}");
                    expected += 1;
                });
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
                take(&mut queue, depth as usize);
            }
            for _ in 0..depth {
                queue.push(&[plain()]).unwrap();
            }
            assert!(queue.push(&[plain()]).is_err());
        }
    }

    fn resize(queue: &mut Queue, depth: u32) -> bool {
        let list = alloc::vec::Vec::with_capacity(queue.rings());
        let mut spare = Some((Ring::try_new(depth as usize).unwrap(), list));
        matches!(queue.resize(depth, &mut spare), Resized::Done(_))
    }

    #[test]
    fn a_resize_at_every_fill_and_round_keeps_every_entry_in_order_and_bounds_exactly() {
        for depth in [1, 3, 4, 8] {
            for rounds in 0..6 {
                for filled in 0..=depth {
                    for next_depth in [1, 2, 5, 16] {
                        let (mut queue, mut next, mut expected) = (queue(depth), 0, 0);
                        let add = |queue: &mut Queue, next: &mut u64| {
                            queue.push(&[Completion { context: *next, ..plain() }]).unwrap();
                            *next += 1;
                        };
                        for _ in 0..rounds {
                            add(&mut queue, &mut next);
                            take(&mut queue, 1);
                            expected += 1;
                        }
                        (0..filled).for_each(|_| add(&mut queue, &mut next));
                        let fits = filled <= next_depth;
                        assert_eq!(resize(&mut queue, next_depth), fits);
                        let bound = if fits { next_depth } else { depth };
                        // Again and again, with entries left in each ring.
                        for _ in 0..3 {
                            while queue.waiting() < u64::from(bound) {
                                add(&mut queue, &mut next);
                            }
                            if bound > 1 {
                                take(&mut queue, 1);
                                expected += 1;
                                assert!(resize(&mut queue, bound));
                            }
                        }
                        while queue.waiting() < u64::from(bound) {
                            add(&mut queue, &mut next);
                        }
                        while queue.waiting() > 0 {
                            queue.take(7, |entry| {
                                assert_eq!(entry.context, expected);
                                expected += 1;
                            });
                        }
                        assert_eq!((expected, queue.rings()), (next, 1));
                        (0..bound).for_each(|_| add(&mut queue, &mut next));
                        assert!(queue.push(&[plain()]).is_err());
                    }
                }
            }
        }
    }

    const TICK: u64 = 1000;

    fn moderated(interval: u64, count: u64) -> Queue {
        let mut queue = queue(64);
        queue.moderate(Some(Moderation { interval, count }));
        queue
    }

    #[test]
    fn a_count_holds_back_exactly_that_many_entries_of_those_that_satisfy_the_arm() {
        for count in [2, 3, 16] {
            for (wanted, entry) in [(Arm::Any, plain()), (Arm::Solicited, solicited()), (Arm::Solicited, failed())] {
                let mut queue = moderated(UNBOUNDED, count);
                // What was taken before the arm does not count.
                queue.push(&[entry]).unwrap();
                take(&mut queue, 1);
                queue.arm(wanted);
                for _ in 1..count {
                    queue.push(&[entry]).unwrap();
                    assert_eq!(queue.update_due(0, TICK), Ask::At(UNBOUNDED));
                }
                queue.push(&[entry]).unwrap();
                assert_eq!(queue.update_due(0, TICK), Ask::Pass);
                assert_eq!(queue.begin(), Some(Ok(())));
            }
        }
    }

    #[test]
    fn an_interval_counts_from_the_first_entry_and_ends_a_tick_early_at_most() {
        let mut queue = moderated(10 * TICK, UNBOUNDED);
        queue.arm(Arm::Any);
        assert_eq!(queue.update_due(5, TICK), Ask::Nothing);
        queue.push(&[plain()]).unwrap();
        assert_eq!(queue.update_due(100, TICK), Ask::At(100 + 9 * TICK));
        queue.push(&[plain()]).unwrap();
        assert_eq!(queue.update_due(5000, TICK), Ask::At(100 + 9 * TICK));
        assert_eq!(queue.update_due(100 + 9 * TICK, TICK), Ask::Pass);
    }

    #[test]
    fn an_interval_below_the_tick_ends_with_the_pass() {
        let mut queue = moderated(TICK - 1, UNBOUNDED);
        queue.arm(Arm::Any);
        queue.push(&[plain()]).unwrap();
        assert_eq!(queue.update_due(0, TICK), Ask::PassEnd);
        assert_eq!(queue.begin(), Some(Ok(())));
    }

    #[test]
    fn a_failure_is_never_held_back() {
        let mut queue = moderated(UNBOUNDED, 60);
        queue.arm(Arm::Errors);
        queue.push(&[plain(); 64]).unwrap();
        assert_eq!(queue.update_due(0, TICK), Ask::Nothing);
        queue.push(&[plain()]).unwrap_err();
        assert_eq!(queue.update_due(0, TICK), Ask::Pass);
        assert_eq!(queue.begin(), Some(Err(QueueFailure::Overflow)));
    }

    #[test]
    fn what_is_held_back_follows_the_newest_settings() {
        let mut queue = moderated(UNBOUNDED, 8);
        queue.arm(Arm::Any);
        queue.push(&[plain(); 2]).unwrap();
        assert_eq!(queue.update_due(0, TICK), Ask::At(UNBOUNDED));
        queue.moderate(Some(Moderation { interval: 50 * TICK, count: 8 }));
        assert_eq!(queue.update_due(10 * TICK, TICK), Ask::At(49 * TICK));
        queue.moderate(None);
        assert_eq!(queue.update_due(11 * TICK, TICK), Ask::Pass);
    }

    #[test]
    fn a_queue_shallower_than_the_count_notifies_when_it_is_full() {
        let mut queue = moderated(UNBOUNDED, 10);
        assert!(resize(&mut queue, 4));
        queue.arm(Arm::Any);
        for _ in 0..3 {
            queue.push(&[plain()]).unwrap();
            assert_eq!(queue.update_due(0, TICK), Ask::At(UNBOUNDED));
        }
        queue.push(&[plain()]).unwrap();
        assert_eq!(queue.update_due(0, TICK), Ask::Pass);
    }

    #[test]
    fn entries_taken_while_the_notification_is_held_back_do_not_take_it_away() {
        let mut queue = moderated(10 * TICK, 4);
        queue.arm(Arm::Any);
        queue.push(&[plain(); 2]).unwrap();
        assert_eq!(queue.update_due(0, TICK), Ask::At(9 * TICK));
        take(&mut queue, 2);
        assert_eq!(queue.update_due(9 * TICK, TICK), Ask::Pass);
        assert_eq!(queue.begin(), Some(Ok(())));
        queue.notifying = false;
        queue.arm(Arm::Any);
        assert_eq!(queue.update_due(20 * TICK, TICK), Ask::Nothing);
    }
}
