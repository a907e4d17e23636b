//! Does what an event has left to do, with no lock held.
//!
//! The order is that of the process: it may use queue pair and address again when its request completes; it hears of the end of a
//! connection before it sees a cancelled result; its requests complete in the order of arrival.

use ndkpi_sys::nt::NTSTATUS;
use softndk_engine::Connector as EngineConnector;

use super::{
    super::{
        object,
        pending::{Pended, PendingList},
    },
    KernelTypes,
    effects::{ConnectorEffects, EngineEffect, Proceed, QueuePairEffect},
    late_call,
};
use crate::runtime::platform::KernelPlatform;

/// Requests that have waited for the end of the connection, and with which they complete.
pub type Notified = Option<(PendingList, NTSTATUS)>;

/// What the call goes on with, once everything else is done. `notified`: the requests of the effect of that name.
#[inline(never)]
pub fn carry_out(effects: ConnectorEffects<KernelTypes>, notified: Notified) -> Result<Proceed<KernelTypes>, NTSTATUS> {
    let ConnectorEffects { answer, engine, queue_pair, request, endpoint, .. } = effects;
    let ends = match engine {
        EngineEffect::Nothing => None,
        EngineEffect::Close(engine) => {
            close_engine(&engine);
            None
        }
        EngineEffect::Disconnect(engine) => Some(engine),
    };
    let publishes = match queue_pair {
        QueuePairEffect::Nothing => None,
        QueuePairEffect::Publish(pair) => Some(pair),
        QueuePairEffect::Release(pair) => {
            drop(pair);
            None
        }
    };
    let later = complete_before(request.as_ref(), notified);
    if let Some(engine) = ends {
        let _ending = engine.disconnect(late_call::ignored());
    }
    if let Some(pair) = publishes {
        pair.publish();
    }
    if let Some((request, status)) = request {
        request.finish(status);
    }
    if let Some((list, status)) = later {
        list.finish(status);
    }
    drop(endpoint);
    answer
}

/// Completes the requests that came before this one, so that all complete in the order of arrival: those that came after it.
fn complete_before(request: Option<&(Pended, NTSTATUS)>, notified: Notified) -> Notified {
    let (mut list, status) = notified?;
    let Some((request, _)) = request else {
        list.finish(status);
        return None;
    };
    while list.first_kind().is_some_and(|number| number < request.kind())
        && let Some(before) = list.pop()
    {
        before.finish(status);
    }
    Some((list, status))
}

fn close_engine(engine: &EngineConnector<KernelPlatform>) {
    object::finish(engine.close(object::no_callback()));
}
