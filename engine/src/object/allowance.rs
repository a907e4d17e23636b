//! The work that callers at DISPATCH_LEVEL may still do on one processor before it has to get below that level.
//!
//! A post that copies in place makes results at once, so a consumer that posts for each result it takes feeds itself: at
//! DISPATCH_LEVEL its loop would never end, and neither would its DPC. Hence three bounds for each processor: a post inside a
//! service pass (in a callback) copies nothing and leaves its request to the pass; a post elsewhere at DISPATCH_LEVEL copies in
//! place as far as the allowance goes; polls hand out a bounded number of results in a row, and then each queue answers once
//! that it has none and goes on with as many of its own. A service pass and a call below DISPATCH_LEVEL renew the allowance:
//! they prove that the loop, if there was one, has been left.
//!
//! Rules: a processor's allowance is used at DISPATCH_LEVEL on that processor, or renewed; a value that is lost between two
//! processors costs nothing but a renewal too many. What an empty answer holds back counts as new: an arm that follows
//! notifies.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::limits::{DISPATCH_BYTES, DISPATCH_RESULTS, EXHAUSTION_BITS, IN_PLACE_DISPATCH};

/// See the module. A cache line of its own: each processor writes its own all the time.
#[repr(align(64))]
pub(crate) struct Allowance {
    /// Service passes and callbacks under way on the processor; they nest.
    passes: AtomicU32,
    /// The processor of the pass under way and, counted from 1, the run queue that it serves; 0 for none. Processors that share an
    /// allowance have passes at the same time, each with a number of its own.
    serving: AtomicU64,
    /// Bytes that posts at DISPATCH_LEVEL may still process in place.
    bytes: AtomicU64,
    /// Bytes processed by polls inside a pass, which the pass pays for.
    owed: AtomicU64,
    /// Results that polls at DISPATCH_LEVEL may still hand out in a row.
    results: AtomicU64,
    /// Counts how often `results` was used up, from the processor's own first number: no two processors have one in common.
    exhausted: AtomicU64,
}

impl Allowance {
    pub(crate) fn new(processor: u32) -> Self {
        Self {
            passes: AtomicU32::new(0),
            serving: AtomicU64::new(0),
            bytes: AtomicU64::new(DISPATCH_BYTES),
            owed: AtomicU64::new(0),
            results: AtomicU64::new(DISPATCH_RESULTS),
            exhausted: AtomicU64::new((u64::from(processor) << EXHAUSTION_BITS) + 1),
        }
    }

    /// The processor has left whatever loop it was in.
    pub(crate) fn renew(&self) {
        self.bytes.store(DISPATCH_BYTES, Ordering::Relaxed);
        self.results.store(DISPATCH_RESULTS, Ordering::Relaxed);
    }

    /// A service pass or a callback begins.
    pub(crate) fn begin_pass(&self) {
        self.passes.fetch_add(1, Ordering::Relaxed);
        self.renew();
    }

    /// The pass or callback has ended; what polls inside it have processed since [`Self::take_owed`] is dropped.
    pub(crate) fn end_pass(&self) {
        self.owed.store(0, Ordering::Relaxed);
        self.passes.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether the caller, at DISPATCH_LEVEL, is inside a service pass or callback.
    fn in_pass(&self) -> bool {
        self.passes.load(Ordering::Relaxed) > 0
    }

    /// A pass on this processor serves a run queue until [`Self::serve_none`].
    pub(crate) fn serve(&self, processor: u32, list: u32) {
        self.serving.store(pass(processor, list), Ordering::Relaxed);
    }

    pub(crate) fn serve_none(&self) {
        self.serving.store(0, Ordering::Relaxed);
    }

    /// Whether the caller, on this processor, is inside a pass that serves this run queue before it ends. Where another processor shares the
    /// allowance the answer may be no although it is.
    pub(crate) fn serves(&self, processor: u32, list: u32) -> bool {
        self.serving.load(Ordering::Relaxed) == pass(processor, list)
    }

    /// Bytes that a post at DISPATCH_LEVEL may process in place.
    pub(crate) fn in_place(&self) -> u64 {
        if self.in_pass() { 0 } else { self.bytes.load(Ordering::Relaxed).min(IN_PLACE_DISPATCH) }
    }

    /// A post at DISPATCH_LEVEL has processed so many bytes in place.
    pub(crate) fn charge(&self, bytes: u64) {
        self.bytes.store(self.bytes.load(Ordering::Relaxed).saturating_sub(bytes), Ordering::Relaxed);
    }

    /// A poll has processed so many bytes.
    pub(crate) fn charge_pass(&self, bytes: u64) {
        if self.in_pass() {
            self.owed.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// What the pass under way has to pay for.
    pub(crate) fn take_owed(&self) -> u64 {
        self.owed.swap(0, Ordering::Relaxed)
    }

    /// Results that polls may hand out; 0 when they are used up.
    pub(crate) fn results(&self) -> u64 {
        self.results.load(Ordering::Relaxed)
    }

    /// Which exhaustion the processor is in, if it is in one. A queue that has answered empty in this one may go on by itself.
    pub(crate) fn exhaustion(&self) -> u64 {
        self.exhausted.load(Ordering::Relaxed)
    }

    /// A poll is about to hand out results while `waiting` are there: those of a queue that was full before may all be taken.
    pub(crate) fn foresee(&self, waiting: u64) {
        if self.results() == DISPATCH_RESULTS && waiting > DISPATCH_RESULTS {
            self.results.store(waiting, Ordering::Relaxed);
        }
    }

    /// A poll has handed out so many results.
    pub(crate) fn hand_out(&self, results: u64) {
        let left = self.results().saturating_sub(results);
        if left == 0 && results > 0 {
            self.exhausted.fetch_add(1, Ordering::Relaxed);
        }
        self.results.store(left, Ordering::Relaxed);
    }
}

/// A pass of a processor over a run queue; never 0.
fn pass(processor: u32, list: u32) -> u64 {
    u64::from(processor) << 32 | u64::from(list.wrapping_add(1))
}

#[cfg(test)]
mod tests {
    use super::{Allowance, DISPATCH_BYTES, DISPATCH_RESULTS, IN_PLACE_DISPATCH};

    #[test]
    fn posts_use_the_allowance_up_and_a_pass_renews_it() {
        let allowance = Allowance::new(0);
        let mut posts = 0;
        while allowance.in_place() > 0 {
            assert!(allowance.in_place() <= IN_PLACE_DISPATCH);
            allowance.charge(allowance.in_place());
            posts += 1;
        }
        assert_eq!(posts, DISPATCH_BYTES / IN_PLACE_DISPATCH);
        allowance.begin_pass();
        assert_eq!(allowance.in_place(), 0, "inside a pass nothing is processed in place");
        allowance.begin_pass();
        allowance.end_pass();
        assert_eq!(allowance.in_place(), 0, "the outer one is still under way");
        allowance.end_pass();
        assert_eq!(allowance.in_place(), IN_PLACE_DISPATCH);
    }

    #[test]
    fn a_pass_pays_for_what_polls_process_inside_it() {
        let allowance = Allowance::new(0);
        allowance.charge_pass(1);
        assert_eq!(allowance.take_owed(), 0, "outside of a pass");
        allowance.begin_pass();
        allowance.charge_pass(3);
        allowance.charge_pass(4);
        assert_eq!((allowance.take_owed(), allowance.take_owed()), (7, 0));
        allowance.end_pass();
    }

    #[test]
    fn a_pass_serves_on_its_own_processor_only() {
        let allowance = Allowance::new(1);
        allowance.serve(1, 1);
        assert!(allowance.serves(1, 1) && !allowance.serves(1, 0));
        assert!(!allowance.serves(5, 1), "another processor, with the same run queue");
        allowance.serve(5, 1);
        assert!(allowance.serves(5, 1) && !allowance.serves(1, 1));
        allowance.serve_none();
        assert!(!allowance.serves(5, 1) && !allowance.serves(0, 0));
    }

    #[test]
    fn results_run_out_and_each_exhaustion_has_a_number() {
        let allowance = Allowance::new(0);
        let before = allowance.exhaustion();
        allowance.hand_out(DISPATCH_RESULTS - 1);
        assert_eq!((allowance.results(), allowance.exhaustion()), (1, before));
        allowance.hand_out(1);
        assert_eq!((allowance.results(), allowance.exhaustion()), (0, before + 1));
        allowance.renew();
        assert_eq!(allowance.results(), DISPATCH_RESULTS);
    }

    #[test]
    fn no_two_processors_have_an_exhaustion_in_common() {
        let (one, other) = (Allowance::new(0), Allowance::new(1));
        one.hand_out(DISPATCH_RESULTS);
        other.hand_out(DISPATCH_RESULTS);
        assert_ne!(one.exhaustion(), other.exhaustion());
    }

    #[test]
    fn results_that_were_there_before_may_all_be_taken() {
        let allowance = Allowance::new(0);
        allowance.foresee(3 * DISPATCH_RESULTS);
        assert_eq!(allowance.results(), 3 * DISPATCH_RESULTS);
        allowance.hand_out(1);
        allowance.foresee(9 * DISPATCH_RESULTS);
        assert_eq!(allowance.results(), 3 * DISPATCH_RESULTS - 1, "only at the beginning");
    }
}
