//! Counters of one adapter, as OID_NDK_STATISTICS reports them.
//!
//! There are event counters, and a traffic counter a queue pair; the latter are added up on request. Each traffic counter is
//! written by one context at a time, once a step, so connections share no cache line here.

use core::sync::atomic::{AtomicU64, Ordering};

use softndk_cells::{Dispose, NoMemory, Shared};

use crate::blocks::Blocks;
use crate::limits::{self, SUM_STEP, UPDATE_STEP};

/// The counters at one time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Outbound connections established.
    pub connect: u64,
    /// Inbound connections established.
    pub accept: u64,
    /// Failed attempts in both directions.
    pub connect_failure: u64,
    /// Established connections that ended before their consumer closed them.
    pub connection_error: u64,
    /// Connections established now.
    pub active_connection: u64,
    /// Completion queues that failed.
    pub completion_queue_error: u64,
    pub octets_in: u64,
    pub octets_out: u64,
    pub frames_in: u64,
    pub frames_out: u64,
}

/// Payload that one step of a queue pair moved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) octets: u64,
    pub(crate) frames: u64,
}

impl Traffic {
    /// One message, or one piece of it, cut into frames.
    #[inline]
    pub(crate) fn of(bytes: u64) -> Self {
        // Most are short, and the division by a number that is no power of two is not.
        let frames = if bytes <= limits::FRAME_PAYLOAD { 1 } else { bytes.div_ceil(limits::FRAME_PAYLOAD) };
        Self { octets: bytes.wrapping_add(frames.wrapping_mul(limits::FRAME_OVERHEAD)), frames }
    }

    /// Adds one message, or one piece of it.
    #[inline]
    pub(crate) fn add(&mut self, bytes: u64) {
        self.join(Self::of(bytes));
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.frames == 0
    }

    /// Adds what was counted elsewhere.
    pub(crate) fn join(&mut self, other: Self) {
        self.frames = self.frames.wrapping_add(other.frames);
        self.octets = self.octets.wrapping_add(other.octets);
    }
}

/// Traffic of one queue pair. Each counter has one writer at a time, the context that processes the initiator queue at this end
/// or at the other, so that counting is two plain accesses.
#[derive(Default)]
pub(crate) struct TrafficCounter {
    /// What this end's requests moved: sent and received.
    own: [DirectionCounter; 2],
    /// What the other end's requests moved, seen from here: sent and received.
    other: [DirectionCounter; 2],
}

impl Dispose for TrafficCounter {}

#[derive(Default)]
struct DirectionCounter {
    octets: AtomicU64,
    frames: AtomicU64,
}

impl DirectionCounter {
    /// The caller is the only writer.
    fn add(&self, traffic: Traffic) {
        if !traffic.is_empty() {
            let add = |counter: &AtomicU64, more: u64| {
                counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
            };
            add(&self.octets, traffic.octets);
            add(&self.frames, traffic.frames);
        }
    }

    fn read(&self) -> Traffic {
        Traffic { octets: self.octets.load(Ordering::Relaxed), frames: self.frames.load(Ordering::Relaxed) }
    }
}

impl TrafficCounter {
    /// One message of a request, at the end that asked and at the other. Called by the context that processes its requests.
    #[inline]
    pub(crate) fn count_message([here, there]: [&Self; 2], is_read: bool, traffic: Traffic) {
        here.own[usize::from(is_read)].add(traffic);
        there.other[usize::from(!is_read)].add(traffic);
    }

    /// Called by the context that processes this end's requests.
    pub(crate) fn count_own(&self, sent: Traffic, received: Traffic) {
        self.own[0].add(sent);
        self.own[1].add(received);
    }

    /// Called by the context that processes the other end's requests.
    pub(crate) fn count_other(&self, sent: Traffic, received: Traffic) {
        self.other[0].add(sent);
        self.other[1].add(received);
    }

    /// What this end has sent and received.
    pub(crate) fn octets(&self) -> [u64; 2] {
        self.sum([Traffic::default(); 2]).map(|traffic| traffic.octets)
    }

    fn sum(&self, mut total: [Traffic; 2]) -> [Traffic; 2] {
        for (direction, total) in total.iter_mut().enumerate() {
            for direction_counter in self.own.get(direction).into_iter().chain(self.other.get(direction)) {
                let traffic = direction_counter.read();
                total.octets = total.octets.wrapping_add(traffic.octets);
                total.frames = total.frames.wrapping_add(traffic.frames);
            }
        }
        total
    }
}

/// The traffic counters of an adapter's queue pairs, and the totals of those that are gone: sums never go back.
pub(crate) struct TrafficCounters {
    living: Blocks<Shared<TrafficCounter>>,
    /// Sent and received.
    gone: [Traffic; 2],
    /// The traffic counter to check next for the end of its queue pair.
    next: usize,
    /// Sums that are being made: meanwhile nothing changes its place.
    sums: u32,
}

impl TrafficCounters {
    pub(crate) const fn new() -> Self {
        const NOTHING: Traffic = Traffic { octets: 0, frames: 0 };
        Self { living: Blocks::new(), gone: [NOTHING; 2], next: 0, sums: 0 }
    }

    /// A traffic counter for a new queue pair. More than one old counter is checked each time, so that those of closed queue
    /// pairs do not accumulate.
    pub(crate) fn add(&mut self) -> Result<Shared<TrafficCounter>, NoMemory> {
        self.update(UPDATE_STEP);
        let traffic_counter = Shared::try_new(TrafficCounter::default())?;
        self.living.push(traffic_counter.clone())?;
        Ok(traffic_counter)
    }

    /// Checks so many traffic counters.
    fn update(&mut self, count: usize) {
        for _ in 0..count {
            if self.sums == 0 {
                self.update_one();
            }
        }
    }

    /// Checks one traffic counter, and takes its totals over if no queue pair writes it any more.
    fn update_one(&mut self) {
        let index = if self.next < self.living.len() { self.next } else { 0 };
        let Some(traffic_counter) = self.living.get(index) else { return };
        if !traffic_counter.is_unique() {
            self.next = index + 1;
            return;
        }
        self.gone = traffic_counter.sum(self.gone);
        // The last one takes its place, and is checked next.
        let last = self.living.pop();
        if let (Some(place), Some(last)) = (self.living.get_mut(index), last) {
            *place = last;
        }
        self.next = index;
    }

    /// Begins to add up: until the sum is complete, nothing changes its place.
    fn begin_sum(&mut self) -> Sum {
        self.sums = self.sums.saturating_add(1);
        Sum { next: 0, total: self.gone }
    }

    /// Adds a few more; whether that were all.
    fn continue_sum(&mut self, sum: &mut Sum) -> bool {
        for _ in 0..SUM_STEP {
            let Some(traffic_counter) = self.living.get(sum.next) else {
                self.sums = self.sums.saturating_sub(1);
                return true;
            };
            sum.total = traffic_counter.sum(sum.total);
            sum.next = sum.next.saturating_add(1);
        }
        false
    }
}

/// A sum that is made step by step.
struct Sum {
    next: usize,
    total: [Traffic; 2],
}

/// Everything sent and received so far, a few traffic counters under one lock. What is gone is taken over before.
fn sum(mut locked: impl FnMut(&mut dyn FnMut(&mut TrafficCounters))) -> [Traffic; 2] {
    let (mut left, mut sum, mut is_complete) = (0, Sum { next: 0, total: Default::default() }, false);
    locked(&mut |counters| left = counters.living.len().div_ceil(SUM_STEP));
    for _ in 0..left {
        locked(&mut |counters| counters.update(SUM_STEP));
    }
    locked(&mut |counters| sum = counters.begin_sum());
    while !is_complete {
        locked(&mut |counters| is_complete = counters.continue_sum(&mut sum));
    }
    sum.total
}

/// The living counters of an adapter.
#[derive(Default)]
pub(crate) struct Statistics {
    pub(crate) connect: AtomicU64,
    pub(crate) accept: AtomicU64,
    pub(crate) connect_failure: AtomicU64,
    pub(crate) connection_error: AtomicU64,
    pub(crate) active_connection: AtomicU64,
    pub(crate) completion_queue_error: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Statistics {
    /// `locked` calls what it is given under the lock of the traffic counters.
    pub(crate) fn read(&self, locked: impl FnMut(&mut dyn FnMut(&mut TrafficCounters))) -> Counters {
        let one = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let [sent, received] = sum(locked);
        Counters {
            connect: one(&self.connect),
            accept: one(&self.accept),
            connect_failure: one(&self.connect_failure),
            connection_error: one(&self.connection_error),
            active_connection: one(&self.active_connection),
            completion_queue_error: one(&self.completion_queue_error),
            octets_in: received.octets,
            octets_out: sent.octets,
            frames_in: received.frames,
            frames_out: sent.frames,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Statistics, Traffic, TrafficCounters, sum};
    use crate::limits::SUM_STEP;

    #[test]
    fn a_message_is_cut_into_frames_each_with_its_overhead() {
        for (bytes, frames) in [(0, 1), (1, 1), (4096, 1), (4097, 2), (65536, 16)] {
            let mut traffic = Traffic::default();
            traffic.add(bytes);
            assert_eq!((traffic.frames, traffic.octets), (frames, bytes + frames * 90));
        }
    }

    #[test]
    fn counters_of_gone_queue_pairs_do_not_gather_and_stay_counted() {
        let mut traffic_counters = TrafficCounters::new();
        let kept: alloc::vec::Vec<_> = (0..100).map(|_| traffic_counters.add().unwrap()).collect();
        for _ in 0..1000 {
            let traffic_counter = traffic_counters.add().unwrap();
            traffic_counter.count_own(Traffic { octets: 10, frames: 1 }, Traffic::default());
            assert!(traffic_counters.living.len() < 140, "{} meters", traffic_counters.living.len());
        }
        assert_eq!(sum(|with| with(&mut traffic_counters))[0].octets, 10_000);
        assert_eq!(traffic_counters.living.len(), kept.len());
    }

    /// What closed queue pairs leave is one counter each, at most as many as lived at once, until the adapter's counters are read or as
    /// many queue pairs again are made.
    #[test]
    fn counters_of_closed_queue_pairs_stay_until_the_sum_or_the_next_ones() {
        const LIVED_AT_ONCE: usize = 900;
        let mut traffic_counters = TrafficCounters::new();
        for _ in 0..3 {
            let lived: alloc::vec::Vec<_> = (0..LIVED_AT_ONCE).map(|_| traffic_counters.add().unwrap()).collect();
            assert_eq!(traffic_counters.living.len(), LIVED_AT_ONCE, "the ones before have gone meanwhile");
            drop(lived);
        }
        assert_eq!(traffic_counters.living.len(), LIVED_AT_ONCE);
        sum(|with| with(&mut traffic_counters));
        assert_eq!(traffic_counters.living.len(), 0);
    }

    /// The search wraps: retired ones in front of those that stay are found too.
    #[test]
    fn counters_that_go_later_than_those_behind_them_do_not_gather() {
        let mut traffic_counters = TrafficCounters::new();
        let early: alloc::vec::Vec<_> = (0..100).map(|_| traffic_counters.add().unwrap()).collect();
        let late: alloc::vec::Vec<_> = (0..100).map(|_| traffic_counters.add().unwrap()).collect();
        drop(early);
        let more: alloc::vec::Vec<_> = (0..300).map(|_| traffic_counters.add().unwrap()).collect();
        assert_eq!(traffic_counters.living.len(), late.len() + more.len());
    }

    /// A queue pair that ends during a sum is counted once, and the next one to end too.
    #[test]
    fn sum_is_complete_whatever_ends_and_begins_between_its_steps() {
        let mut traffic_counters = TrafficCounters::new();
        let mut living: alloc::vec::Vec<_> = (0..10 * SUM_STEP)
            .map(|_| {
                let traffic_counter = traffic_counters.add().unwrap();
                traffic_counter.count_own(Traffic { octets: 1, frames: 1 }, Traffic::default());
                traffic_counter
            })
            .collect();
        let all = living.len() as u64;
        let mut steps = 0;
        let total = sum(|with| {
            with(&mut traffic_counters);
            steps += 1;
            // One of the front and one of the end go; two come, which look for what is gone.
            for ended in [living.remove(0), living.pop().unwrap()] {
                drop(ended);
                drop(traffic_counters.add().unwrap());
            }
        });
        assert!(steps > 20, "{steps}");
        assert_eq!(total[0].octets, all);
        assert_eq!(sum(|with| with(&mut traffic_counters))[0].octets, all);
        assert_eq!(traffic_counters.living.len(), living.len());
        assert_eq!(traffic_counters.sums, 0);
    }

    /// One of those that the sum has behind it ends, and the search stands there: the last one, which the sum has before it, stays where it is.
    #[test]
    fn nothing_changes_its_place_during_a_sum() {
        let mut traffic_counters = TrafficCounters::new();
        let mut living: alloc::vec::Vec<_> = (0..3 * SUM_STEP).map(|_| traffic_counters.add().unwrap()).collect();
        for traffic_counter in &living {
            traffic_counter.count_own(Traffic { octets: 1, frames: 1 }, Traffic::default());
        }
        let mut sum = traffic_counters.begin_sum();
        assert!(!traffic_counters.continue_sum(&mut sum));
        traffic_counters.next = 0;
        drop(living.remove(0));
        let _new = traffic_counters.add().unwrap();
        while !traffic_counters.continue_sum(&mut sum) {}
        assert_eq!(sum.total[0].octets, 3 * SUM_STEP as u64);
    }

    #[test]
    fn counters_add_up_and_what_is_gone_stays_counted() {
        let (statistics, mut traffic_counters) = (Statistics::default(), TrafficCounters::new());
        for round in 1..=3_u64 {
            let traffic_counter = traffic_counters.add().unwrap();
            traffic_counter.count_own(Traffic { octets: 10, frames: 1 }, Traffic::default());
            traffic_counter.count_other(Traffic { octets: 5, frames: 1 }, Traffic { octets: 7, frames: 2 });
            let counters = statistics.read(|with| with(&mut traffic_counters));
            assert_eq!((counters.octets_out, counters.frames_out), (15 * round, 2 * round));
            assert_eq!((counters.octets_in, counters.frames_in), (7 * round, 2 * round));
            assert_eq!(traffic_counters.living.len(), 1);
        }
        assert_eq!(statistics.read(|with| with(&mut traffic_counters)).octets_out, 45);
        assert_eq!(traffic_counters.living.len(), 0);
    }
}
