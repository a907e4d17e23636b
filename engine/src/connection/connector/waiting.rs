//! Time-outs: how long a connector waits for the peer.
//!
//! A connector has one deadline, because it has one request at a time: Connect waits for an answer, Accept for the peer's
//! CompleteConnect, Disconnect for the peer's. A service pass sees that the deadline has passed and ends the wait; a time-out
//! of 0 is never. The consumer may take as long as it likes between a connect event and its answer.
//!
//! Rules (NDKPI: NDK_FN_CONNECT, NDK_FN_ACCEPT, NDK_FN_DISCONNECT): a Connect that timed out may be tried again; the other two
//! end the connection.

use softndk_cells::Shared;

use super::{After, ConnectorObject, Phase, State, Step};
use crate::adapter::adapter::AdapterObject;
use crate::connection::message::Message;
use crate::counters::count;
use crate::error::{ConnectError, DisconnectReason};
use crate::object::header::Object;
use crate::object::timer::Timer;
use crate::platform::{Lock, Platform};
use softndk_cells::NoMemory;

/// The timer of a new connector, on an adapter that has time-outs.
pub(super) fn timer<P: Platform>(adapter: &AdapterObject<P>) -> Result<Option<Timer<P>>, NoMemory> {
    let times = &adapter.timeouts;
    let any = times.connect | times.accept | times.disconnect != 0;
    any.then(|| Timer::try_new(&adapter.scheduler, adapter.scheduler.platform().processor())).transpose()
}

/// Begins to wait for the other side; 0 = for ever.
pub(super) fn begin<P: Platform>(connector: &Shared<ConnectorObject<P>>, state: &mut State<P>, time: u64) {
    if time != 0
        && let Some(timer) = &connector.timer
    {
        let deadline = connector.core.scheduler.platform().now().saturating_add(time);
        state.deadline = Some(deadline);
        timer.set(&Object::of(connector), deadline);
    }
}

/// Waits no more.
pub(super) fn end<P: Platform>(connector: &ConnectorObject<P>, state: &mut State<P>) {
    if state.deadline.take().is_some()
        && let Some(timer) = &connector.timer
    {
        timer.clear();
    }
}

/// Ends a wait whose deadline has passed.
pub(super) fn expire<P: Platform>(connector: &Shared<ConnectorObject<P>>) {
    let after = connector.state.with(|state| {
        let deadline = state.deadline?;
        let waits = state.request.as_ref().is_some_and(|request| request.result.is_none());
        if !waits || connector.core.scheduler.platform().now() < deadline {
            return None;
        }
        end(connector, state);
        Some(connector.time_out(state))
    });
    if let Some(after) = after {
        connector.finish_after(after);
    }
}

impl<P: Platform> ConnectorObject<P> {
    fn time_out(&self, state: &mut State<P>) -> After<P> {
        let abort = Message::Abort { reason: DisconnectReason::TimedOut };
        match state.phase {
            Phase::Connecting => {
                let mut after = self.on_rejected(state, None, ConnectError::TimedOut);
                after.tell = after.dropped.peer.take().map(|peer| (peer, Message::Abandoned));
                after
            }
            Phase::Accepting => {
                count(&self.open.adapter.statistics.connect_failure);
                state.give_up(ConnectError::TimedOut, Some(abort))
            }
            Phase::Connected if state.disconnecting && !state.noticed => {
                self.count_end();
                state.give_up(ConnectError::TimedOut, Some(abort))
            }
            _ => After::nothing(),
        }
    }
}
