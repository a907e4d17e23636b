//! How a platform's socket has the engine look at it.

use crate::object::header::Object;
use crate::object::scheduler::Scheduler;
use crate::platform::Platform;
use crate::platform::socket::SocketWaker;

/// Has the engine look at a socket soon. Until the socket is closed it keeps what it wakes.
pub struct Waker<P: Platform> {
    scheduler: Scheduler<P>,
    object: Object<P>,
}

impl<P: Platform> Clone for Waker<P> {
    fn clone(&self) -> Self {
        Self::new(&self.scheduler, self.object.clone())
    }
}

impl<P: Platform> Waker<P> {
    pub(crate) fn new(scheduler: &Scheduler<P>, object: Object<P>) -> Self {
        Self { scheduler: scheduler.clone(), object }
    }

    /// `IRQL <= DISPATCH_LEVEL`, with no lock held that a method of a socket takes.
    pub fn wake(&self) {
        self.scheduler.link(&self.object);
    }
}

impl<P: Platform> SocketWaker for P {
    type Waker = Waker<P>;
}
