//! Event Tracing for Windows, as drivers see it: providers register, a session may listen, and what they write is decoded when a test
//! asks for it.
//!
//! The session is there from the beginning ([`KernelConfig::trace_events`]) or comes and goes ([`start_session`], [`stop_session`]). Where
//! it is there, a provider is enabled while it registers: its callback runs before the registration's handle is known, the earliest that
//! Windows does it.
//!
//! [`KernelConfig::trace_events`]: crate::kernel::KernelConfig::trace_events

mod decoded;

use std::sync::atomic::{AtomicBool, Ordering};

pub use decoded::{TraceEvent, TraceValue};

use crate::host_lock::HostLock;
use crate::ntoskrnl::tracing;

/// The most that is kept until a test asks.
const EVENTS_KEPT: usize = 65_536;

static LISTENING: AtomicBool = AtomicBool::new(false);
static SESSION: HostLock<Session> = HostLock::new(Session { written: Vec::new(), lost: 0 });

struct Session {
    written: Vec<Written>,
    lost: usize,
}

/// An event as it was written.
pub(crate) struct Written {
    pub level: u8,
    pub keyword: u64,
    pub metadata: Vec<u8>,
    pub traits: Vec<u8>,
    pub data: Vec<u8>,
}

pub(crate) fn configure(listens: bool) {
    LISTENING.store(listens, Ordering::Relaxed);
}

/// Starts the session, and has the callbacks of the providers that are registered run. `PASSIVE_LEVEL`, beside whatever writes.
pub fn start_session() {
    LISTENING.store(true, Ordering::Relaxed);
    tracing::enable_all(true);
}

/// Ends it. What was written before is kept.
pub fn stop_session() {
    LISTENING.store(false, Ordering::Relaxed);
    tracing::enable_all(false);
}

/// Whether a session listens to every provider.
pub(crate) fn listens() -> bool {
    LISTENING.load(Ordering::Relaxed)
}

/// Keeps an event for the session that listens.
pub(crate) fn keep(event: Written) {
    let mut session = SESSION.lock();
    if session.written.len() < EVENTS_KEPT {
        session.written.push(event);
    } else {
        session.lost += 1;
    }
}

/// What was written since the last call, in order.
///
/// # Panics
///
/// At an event that is not encoded as TraceLogging demands, and where so many were written that some are lost.
pub fn take() -> Vec<TraceEvent> {
    let (written, lost) = {
        let mut session = SESSION.lock();
        (std::mem::take(&mut session.written), std::mem::take(&mut session.lost))
    };
    assert!(lost == 0, "{lost} events were lost");
    let decode = |event: &Written| TraceEvent::decode(event).unwrap_or_else(|error| panic!("an event: {error}"));
    written.iter().map(decode).collect()
}
