//! Time-outs: how long a connector waits for the peer.
//!
//! A connector has one deadline, because it has one request at a time, and the deadline is part of the state that waits: Connect
//! waits for an answer, Accept for the peer's CompleteConnect, Disconnect for the peer's. A service pass sees that the deadline
//! has passed and ends the wait; a time-out of 0 is never. The consumer may take as long as it likes between a connect event and
//! its answer.
//!
//! Rules (NDKPI: NDK_FN_CONNECT, NDK_FN_ACCEPT, NDK_FN_DISCONNECT): a Connect that timed out may be tried again; the other two
//! end the connection.

use softndk_cells::{NoMemory, Shared};

use super::effects::{carry_out, step};
use super::machine::ConnectorEvent;
use super::state::WaitingRequest;
use super::{ConnectorObject, PendingRequest};
use crate::adapter::adapter::AdapterObject;
use crate::object::header::Object;
use crate::object::timer::Timer;
use crate::platform::{Lock, Platform};

/// The timer of a new connector, on an adapter that has time-outs.
pub(super) fn timer<P: Platform>(adapter: &AdapterObject<P>) -> Result<Option<Timer<P>>, NoMemory> {
    let times = &adapter.timeouts;
    let any = times.connect | times.accept | times.disconnect != 0;
    any.then(|| Timer::try_new(&adapter.scheduler, adapter.scheduler.platform().processor())).transpose()
}

/// A request that waits this long from now on; 0 = for ever.
pub(super) fn request<P: Platform>(
    connector: &Shared<ConnectorObject<P>>,
    callback: P::RequestCallback,
    time: u64,
) -> WaitingRequest<P> {
    let now = || connector.core.scheduler.platform().now();
    let deadline = (time != 0).then(|| now().saturating_add(time));
    WaitingRequest { request: PendingRequest::new(connector, callback), deadline }
}

/// Sets or clears the timer when the state has changed. Under the connector's lock, so that a timer is set while its state waits.
pub(super) fn update<P: Platform>(connector: &Shared<ConnectorObject<P>>, before: Option<u64>, after: Option<u64>) {
    let Some(timer) = connector.timer.as_ref().filter(|_| before != after) else { return };
    match after {
        Some(deadline) => timer.set(&Object::of(connector), deadline),
        None => timer.clear(),
    }
}

/// Ends a wait whose deadline has passed.
pub(super) fn expire<P: Platform>(connector: &Shared<ConnectorObject<P>>) {
    let effects = connector.machine.with(|machine| {
        let deadline = machine.state.deadline()?;
        let has_passed = connector.core.scheduler.platform().now() >= deadline;
        has_passed.then(|| step(connector, machine, ConnectorEvent::TimedOut))
    });
    if let Some(effects) = effects {
        carry_out(connector, effects);
    }
}
