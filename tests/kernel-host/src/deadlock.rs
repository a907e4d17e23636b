//! Waits for spin locks that cannot end, judged by the processor time of holder and waiter, and never by the clock, which goes
//! on while a busy machine runs neither of them. `lock_order` finds circles of locks.

use std::time::Duration;

use crate::processor_time;
use crate::thread;

/// What a holder may use while another thread waits for its lock; a DPC has one second for all that it does.
const HOLDER: Duration = Duration::from_secs(3);
/// What the waiter may use. Much more, because a holder that is not run is not at fault.
const WAITER: Duration = Duration::from_secs(30);

/// A wait for a lock.
#[derive(Default)]
pub(crate) struct SpinWait {
    since: Option<Since>,
}

/// What both had used when this holder was seen first.
struct Since {
    /// Address of the thread; 0 where the lock has no holder's address.
    holder: usize,
    holder_used: Duration,
    waiter_used: Duration,
}

impl SpinWait {
    /// Checks from time to time, while waiting for the thread at an address or for an unknown one.
    pub(crate) fn is_hopeless(&mut self, holder: Option<usize>) -> bool {
        let Some(address) = holder else { return self.check(0, Duration::ZERO, processor_time::mine()) };
        let holder = thread::all().into_iter().find(|thread| std::ptr::from_ref(*thread) as usize == address);
        // One that has ended releases nothing.
        let Some(used) = holder.and_then(|holder| processor_time::of(holder.clock)) else { return true };
        self.check(address, used, processor_time::mine())
    }

    fn check(&mut self, holder: usize, holder_used: Duration, waiter_used: Duration) -> bool {
        let Some(since) = self.since.as_ref().filter(|since| since.holder == holder) else {
            self.since = Some(Since { holder, holder_used, waiter_used });
            return false;
        };
        holder_used.saturating_sub(since.holder_used) > HOLDER || waiter_used.saturating_sub(since.waiter_used) > WAITER
    }
}

#[cfg(test)]
mod tests {
    use super::{HOLDER, SpinWait, WAITER};
    use std::time::Duration;

    const NOTHING: Duration = Duration::ZERO;
    const MOMENT: Duration = Duration::from_millis(1);

    #[test]
    fn a_holder_that_works_on_without_releasing_is_hopeless() {
        let mut wait = SpinWait::default();
        assert!(!wait.check(1, MOMENT, NOTHING));
        assert!(!wait.check(1, MOMENT + HOLDER, NOTHING));
        assert!(wait.check(1, MOMENT + HOLDER + MOMENT, NOTHING));
    }

    #[test]
    fn a_holder_that_the_machine_does_not_run_is_not() {
        let mut wait = SpinWait::default();
        assert!(!wait.check(1, MOMENT, NOTHING));
        assert!(!wait.check(1, MOMENT, WAITER));
        assert!(wait.check(1, MOMENT, WAITER + MOMENT), "but not for ever");
    }

    #[test]
    fn another_holder_is_a_new_wait() {
        let mut wait = SpinWait::default();
        assert!(!wait.check(1, NOTHING, NOTHING));
        assert!(!wait.check(2, HOLDER * 2, WAITER * 2), "the lock goes from hand to hand");
        assert!(!wait.check(1, HOLDER * 2, WAITER * 2));
    }
}
