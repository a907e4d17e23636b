//! What a service pass hands out: callbacks to make, objects that are finished, memory to unmap.
//!
//! The front end passes a [`Sink`] to [`Fabric::service_pass`](crate::Fabric::service_pass). No lock is held and no epoch
//! entered while one of its methods runs; the consumer may call anything from inside its callback.
//!
//! Rules: each event is handed out exactly once. An event carries a [`Hold`]: the close of the object (and of what it depends
//! on) cannot complete before the event is dropped, so the front end drops it *after* the consumer's callback has returned.
//! Notifications of one completion queue never overlap.

use crate::error::{ConnectError, DisconnectReason, QueueFailure};
use crate::object::header::{Antecedents, Hold, Object};
use crate::platform::Platform;

/// The event of an arrived connection. It carries an object of a module above this one, which names it there.
pub trait ArrivalEvent {
    type ConnectEvent;
}

/// Receives what a service pass hands out. Implemented by the front end.
pub trait Sink<P: Platform> {
    fn notify(&mut self, event: Notification<P>);
    fn request_completed(&mut self, event: RequestCompletion<P>);
    fn connection_requested(&mut self, event: <P as ArrivalEvent>::ConnectEvent);
    fn disconnected(&mut self, event: DisconnectEvent<P>);
    fn closed(&mut self, event: CloseCompletion<P>);
    fn retired(&mut self, event: Retired<P>);
}

/// What a service pass brings to the objects that it serves.
pub(crate) struct ServicePass<'a, P: Platform> {
    /// Whose run queue is served.
    pub(crate) processor: u32,
    /// What is left of the budget.
    pub(crate) bytes: &'a mut u64,
    pub(crate) sink: &'a mut dyn Sink<P>,
}

/// A notification under way: when the event is dropped, the next one may begin.
pub(crate) struct Notifying<P: Platform>(pub(crate) Object<P>);

impl<P: Platform> Drop for Notifying<P> {
    fn drop(&mut self) {
        self.0.notified();
    }
}

/// Completions arrived in an armed queue, or the queue failed.
pub struct Notification<P: Platform> {
    pub callback: P::NotifyCallback,
    pub status: Result<(), QueueFailure>,
    /// Dropped before the hold: the next notification may begin.
    #[expect(dead_code, reason = "keeps the object until it is dropped")]
    pub(crate) guard: Notifying<P>,
    #[expect(dead_code, reason = "keeps the object until it is dropped")]
    pub(crate) hold: Hold<P>,
}

/// A connection request (connect, accept, complete, disconnect, listen) has ended.
pub struct RequestCompletion<P: Platform> {
    pub callback: P::RequestCallback,
    pub result: Result<(), ConnectError>,
    pub(crate) hold: Hold<P>,
}

impl<P: Platform> RequestCompletion<P> {
    /// The object that the request was made on.
    #[must_use]
    pub fn hold(&self) -> &Hold<P> {
        &self.hold
    }
}

/// The connection has ended, and not by a call of this side.
pub struct DisconnectEvent<P: Platform> {
    pub callback: P::DisconnectCallback,
    pub reason: DisconnectReason,
    #[expect(dead_code, reason = "keeps the object until it is dropped")]
    pub(crate) hold: Hold<P>,
}

/// A close that returned [`Close::Pending`] is complete.
pub struct CloseCompletion<P: Platform> {
    pub callback: P::CloseCallback,
    pub object: Closed<P>,
}

/// A finished object: give the block back, unmap the memory, then drop this.
pub struct Closed<P: Platform> {
    pub consumer_object: Option<P::ConsumerObject>,
    /// What was still registered in a closed region.
    pub memory: Option<P::Memory>,
    /// Releases the objects it depended on.
    #[expect(dead_code, reason = "keeps the object until it is dropped")]
    pub(crate) antecedents: Antecedents<P>,
}

/// The result of a close. A close cannot fail.
pub enum Close<P: Platform> {
    /// Closed; the callback is never called.
    Done(Closed<P>),
    /// The callback is called exactly once.
    Pending,
}

/// Memory that nothing copies any more: unmap it (by dropping it), then complete the request if there is one.
pub struct Retired<P: Platform> {
    pub memory: P::Memory,
    /// The Deregister that waits for it; `None` for a released logical mapping.
    pub callback: Option<P::RequestCallback>,
    #[expect(dead_code, reason = "keeps the object until it is dropped")]
    pub(crate) hold: Hold<P>,
}

/// The result of a deregister.
pub enum Deregistered<P: Platform> {
    /// Nothing was copying: unmap it now; the callback is never called.
    Done(Retired<P>),
    /// [`Sink::retired`] follows.
    Pending,
}

/// How much one service pass may do.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    pub bytes: u64,
    /// Objects serviced.
    pub items: u32,
}

/// Whether a service pass left work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pass {
    /// Nothing is left; the next link schedules a pass.
    Idle,
    /// The budget is used up: call again soon, no link schedules a pass.
    More,
}
