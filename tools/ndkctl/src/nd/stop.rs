//! What ends the work of both ends when one of them fails.

use crate::failure::Failure;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The first failure of two ends that work together; the other one stops by it.
#[derive(Debug, Default)]
pub struct Stop {
    raised: AtomicBool,
    failures: Mutex<Failures>,
    /// Where the server listens; 0 before it does.
    port: AtomicU32,
}

#[derive(Debug, Default)]
struct Failures {
    /// Of an end's own work.
    own: Option<Failure>,
    /// Of an end whose peer has gone: the peer's own failure says more.
    by_other: Option<Failure>,
}

impl Stop {
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    /// Ends the other one's work.
    pub fn fail(&self, failure: Failure) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).own.get_or_insert(failure);
        self.raised.store(true, Ordering::Release);
    }

    /// The same of an end whose peer has gone.
    pub fn fail_by_other(&self, failure: Failure) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).by_other.get_or_insert(failure);
        self.raised.store(true, Ordering::Release);
    }

    pub fn into_failure(self) -> Option<Failure> {
        let Failures { own, by_other } = self.failures.into_inner().unwrap_or_else(PoisonError::into_inner);
        own.or(by_other)
    }

    pub fn listens_at(&self, port: u16) {
        self.port.store(u32::from(port), Ordering::Release);
    }

    /// The port of the server, once it listens.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        u16::try_from(self.port.load(Ordering::Acquire)).ok().filter(|port| *port != 0)
    }
}

/// Why an end does not go on.
#[derive(Debug)]
pub enum Cut {
    Failed(Failure),
    /// The other end has gone before the work was done.
    Gone(Failure),
    Stopped,
}

impl From<Failure> for Cut {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::Stop;
    use crate::failure::{Failure, Kind};

    #[test]
    fn own_failure_of_an_end_comes_before_that_of_the_end_that_it_left() {
        let stop = Stop::default();
        stop.fail_by_other(Failure::new(Kind::Refused, "gone", "", ""));
        assert!(stop.is_raised());
        stop.fail(Failure::new(Kind::Corrupt, "own", "", ""));
        assert_eq!(stop.into_failure().map(|failure| failure.what), Some("own".to_owned()));
        let stop = Stop::default();
        stop.fail_by_other(Failure::new(Kind::Refused, "gone", "", ""));
        assert_eq!(stop.into_failure().map(|failure| failure.what), Some("gone".to_owned()));
    }

    #[test]
    fn first_failure_is_the_one_that_is_told() {
        let stop = Stop::default();
        assert!(!stop.is_raised() && stop.port().is_none());
        stop.listens_at(7);
        assert_eq!(stop.port(), Some(7));
        for what in ["first", "second"] {
            stop.fail(Failure::new(Kind::Refused, what, "", ""));
        }
        assert!(stop.is_raised());
        assert_eq!(stop.into_failure().map(|failure| failure.what), Some("first".to_owned()));
    }
}
