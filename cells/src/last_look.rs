//! The last look of a context that has looked by itself: who posts wakes it from then on, or what was posted is seen.
//!
//! One side looks for posts again and again, and says so in a word; the other side rings after a post when the word says that nothing
//! looks. Each side writes its own word and then reads the other's, with a full barrier between the two (the posting side's is in
//! user mode, an exchange): at least one of them sees what the other wrote. The accesses are the caller's, because the words lie in
//! memory that is shared with a process.
//!
//! Rule: no post is lost. The looking side forgets itself after [`withdraw`] only, and takes what that has seen.

use crate::sync::{Ordering, fence};

/// Says that nothing looks any more, and looks once more: `say` writes the word, `look` reads what has been posted.
#[inline]
pub fn withdraw<R>(say: impl FnOnce(), look: impl FnOnce() -> R) -> R {
    say();
    fence(Ordering::SeqCst);
    look()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use core::cell::Cell;

    use super::withdraw;

    #[test]
    fn it_says_so_before_it_looks() {
        let step = Cell::new(0);
        let next = || step.replace(step.get() + 1);
        assert_eq!(withdraw(|| assert_eq!(next(), 0), next), 1);
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
    use loom::thread;

    use super::withdraw;

    /// A post meets the end of the looking: it is seen by the last look, or its context is asked to ring.
    #[test]
    fn a_post_is_seen_by_the_last_look_or_rings() {
        loom::model(|| {
            let shared = Arc::new((AtomicU32::new(0), AtomicBool::new(true)));
            let poster = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.0.store(1, Ordering::Release);
                    fence(Ordering::SeqCst);
                    !shared.1.load(Ordering::Acquire)
                })
            };
            let seen = withdraw(|| shared.1.store(false, Ordering::Release), || shared.0.load(Ordering::Acquire));
            let rings = poster.join().unwrap();
            assert!(rings || seen == 1, "a post that neither is seen nor rings");
        });
    }
}
