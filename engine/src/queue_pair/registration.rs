//! Requests that need no other end: fast registration, Bind, Invalidate. Every requester has them carried out here.
//!
//! Rules (NDKPI: NDK_FN_FAST_REGISTER, NDK_FN_BIND, NDK_FN_INVALIDATE): they take effect in the order of the initiator queue; an
//! invalidation completes only when no context inside the epoch can have seen the access that it revokes.

use softndk_cells::Shared;

use crate::completion::completion_queue::Batch;
use crate::error::Outcome;
use crate::memory::memory_region::Edges;
use crate::memory::memory_window::{self, Binding, NotBound};
use crate::platform::Platform;
use crate::queue_pair::pair::QueuePairObject;
use crate::queue_pair::request::Subject;
use crate::queue_pair::work::{Progress, RequestPhase, RequesterContext, Work};

impl<P: Platform> Work<P> {
    #[inline(never)]
    pub(super) fn fast_register(&mut self, pair: &Shared<QueuePairObject<P>>, done: &mut Batch) -> Progress {
        let Some(request) = self.requests.front() else { return Progress::Completed };
        let Subject::Pages(fast, ready) = &mut request.subject else {
            return self.fail(pair, Outcome::InvalidRequest);
        };
        match ready.take().map(|ready| fast.buffers.publish(ready)) {
            Some(Ok(())) => self.complete(pair, done, Outcome::Success),
            Some(Err(ready)) => {
                fast.buffers.discard(ready);
                self.fail(pair, Outcome::InvalidRequest)
            }
            None => self.fail(pair, Outcome::InvalidRequest),
        }
    }

    #[inline(never)]
    pub(super) fn bind(&mut self, pair: &Shared<QueuePairObject<P>>, done: &mut Batch) -> Progress {
        let Some(request) = self.requests.front() else { return Progress::Completed };
        let Subject::Binding(window, region, rights) = &request.subject else {
            return self.fail(pair, Outcome::InvalidRequest);
        };
        let registration = request.single.token;
        // Deregistered meanwhile, or being closed.
        let Some(hold) = region.bound(registration) else { return self.fail(pair, Outcome::InvalidRequest) };
        let binding = Binding {
            token: request.token,
            pair: pair.windows.address(),
            region: pair.domain.tables.seal.key(registration),
            address: request.address,
            length: request.length,
            rights: *rights,
        };
        match memory_window::bind(window, binding, &pair.windows, (region.clone(), hold)) {
            Ok(()) => self.complete(pair, done, Outcome::Success),
            Err((error, hold)) => {
                region.unbound(binding.region, hold);
                match error {
                    NotBound::Occupied => self.fail(pair, Outcome::InvalidRequest),
                    NotBound::Wait(stamp) => Progress::Epoch(stamp, 0),
                }
            }
        }
    }

    #[inline(never)]
    pub(super) fn invalidate(&mut self, context: RequesterContext<'_, P>, done: &mut Batch) -> Progress {
        let pair = context.pair;
        let withdrawn = match self.requests.front().map(|request| &request.subject) {
            Some(Subject::Fast(fast)) => match fast.buffers.withdraw() {
                // Mostly no other context is inside, and this one looks at no memory that it found before.
                Some(stamp) if context.epoch.guard.is_last_before(stamp) => {
                    return self.complete(pair, done, Outcome::Success);
                }
                withdrawn => withdrawn,
            },
            // A window is unbound only by the queue pair it is bound to.
            Some(Subject::Window(window)) => memory_window::unbind(window, |bound| bound.is(&pair.windows)),
            _ => None,
        };
        match withdrawn {
            Some(stamp) => {
                self.phase = RequestPhase::Leaving(stamp);
                Progress::Epoch(stamp, 0)
            }
            None => self.fail(pair, Outcome::InvalidRequest),
        }
    }
}
