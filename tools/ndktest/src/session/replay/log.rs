//! What happens outside of the calls of a script: callbacks and ends of requests, written down where they come.
//!
//! Every callback gets a [`Cell`] as its context: the log and the name of a slot. Cells live as long as the session, whatever
//! becomes of the objects in their slots, so that a callback never meets freed memory. The log is made in advance and bounded;
//! what does not fit is counted as lost.

use core::{
    ffi::c_void,
    ptr::{self, NonNull},
};

use ndkpi_sys::{
    ndkpi::{NDK_CONNECTOR, NDK_FN_CLOSE_COMPLETION, NDK_FN_CONNECT_EVENT_CALLBACK, NDK_FN_DISCONNECT_EVENT_CALLBACK},
    nt::{NTSTATUS, PVOID, STATUS_SUCCESS},
};
use softndk_ioctl::{ScriptEvent, ScriptName, ScriptOccurrence, Status};
use softndk_kernel::{event::Event, pool::PoolSlice, spin_lock::SpinLock};

use crate::{
    session::object::{Callback, Completion, Handle},
    tags,
};

/// Occurrences between two observations.
const OCCURRENCE_MAX: usize = 1024;
/// Connectors that arrived and were not taken.
const ARRIVAL_MAX: usize = 64;

pub struct Log {
    state: SpinLock<LogState>,
    /// Something has happened.
    pub changed: Event,
}

struct LogState {
    occurrences: PoolSlice<ScriptOccurrence>,
    count: usize,
    lost: bool,
    arrivals: PoolSlice<Arrival>,
    arrived: usize,
    /// Closes that have not come back.
    closes: u32,
}

#[derive(Clone, Copy)]
struct Arrival {
    listener: ScriptName,
    connector: Option<Handle<'static, NDK_CONNECTOR>>,
}

impl Log {
    pub fn try_new() -> Result<Self, Status> {
        let none = |_| Status::INSUFFICIENT_RESOURCES;
        let arrival = Arrival { listener: ScriptName::NONE, connector: None };
        let state = LogState {
            occurrences: PoolSlice::try_filled(tags::SESSION, OCCURRENCE_MAX, ScriptOccurrence::default())
                .map_err(none)?,
            count: 0,
            lost: false,
            arrivals: PoolSlice::try_filled(tags::SESSION, ARRIVAL_MAX, arrival).map_err(none)?,
            arrived: 0,
            closes: 0,
        };
        let changed = Event::try_synchronization(tags::EVENT, false).map_err(none)?;
        Ok(Self { state: SpinLock::new(state), changed })
    }

    pub fn closes(&self) -> u32 {
        self.state.lock().closes
    }

    /// How many occurrences there are that were not drained.
    pub fn occurrences(&self) -> usize {
        self.state.lock().count
    }

    /// Whether a connector has arrived at this listener and was not taken.
    pub fn has_arrival(&self, listener: ScriptName) -> bool {
        let state = self.state.lock();
        state.arrivals.iter().take(state.arrived).any(|arrival| arrival.listener == listener)
    }

    pub fn begin_close(&self) {
        let mut state = self.state.lock();
        state.closes = state.closes.saturating_add(1);
    }

    /// The last touch of the log by a close. All of it is done under the lock: the context that sees there that no close is left
    /// frees the log.
    pub fn end_close(&self) {
        let mut state = self.state.lock();
        state.closes = state.closes.saturating_sub(1);
        self.changed.set();
    }

    pub fn record(&self, event: ScriptEvent, object: ScriptName, status: NTSTATUS) {
        {
            let mut state = self.state.lock();
            let count = state.count;
            match state.occurrences.get_mut(count) {
                Some(place) => {
                    *place = ScriptOccurrence { event: event as u32, object, status, reserved: [0; 5] };
                    state.count = count + 1;
                }
                None => state.lost = true,
            }
        }
        self.changed.set();
    }

    /// Keeps a connector that arrived; false when there is no room.
    fn keep(&self, listener: ScriptName, connector: Handle<'static, NDK_CONNECTOR>) -> bool {
        let mut state = self.state.lock();
        let arrived = state.arrived;
        let Some(place) = state.arrivals.get_mut(arrived) else { return false };
        *place = Arrival { listener, connector: Some(connector) };
        state.arrived = arrived + 1;
        true
    }

    /// The oldest connector that arrived at a listener; at any, if none is named.
    pub fn take_arrival(&self, listener: ScriptName) -> Option<Handle<'static, NDK_CONNECTOR>> {
        let mut state = self.state.lock();
        let count = state.arrived;
        let mut waiting = state.arrivals.iter().take(count);
        let found = waiting.position(|arrival| listener == ScriptName::NONE || arrival.listener == listener)?;
        let connector = state.arrivals.get(found)?.connector;
        // The younger ones move up.
        state.arrivals.get_mut(found..count).filter(|rest| !rest.is_empty())?.rotate_left(1);
        state.arrived = count - 1;
        connector
    }

    /// Hands out what happened since the last time, and whether something was lost.
    pub fn drain(&self, into: &mut [ScriptOccurrence]) -> (usize, bool) {
        let mut state = self.state.lock();
        let count = state.count.min(into.len());
        let whole = state.count == count && !state.lost;
        for (place, occurrence) in into.iter_mut().zip(state.occurrences.iter().take(count)) {
            *place = *occurrence;
        }
        state.count = 0;
        state.lost = false;
        (count, whole)
    }
}

/// The context of every callback of a slot.
pub struct Cell {
    log: *const Log,
    name: ScriptName,
}

impl Cell {
    pub fn new(log: &Log, name: ScriptName) -> Self {
        Self { log, name }
    }

    fn log(&self) -> &Log {
        // SAFETY: the session frees its log after every object and its callbacks are gone.
        unsafe { &*self.log }
    }

    /// For a function below, which takes its context for this cell.
    fn callback<F>(&self, function: F) -> Callback<'_, F> {
        // SAFETY: the cell lives until the session has seen the end of every object.
        unsafe { Callback::new(function, ptr::from_ref(self).cast_mut().cast()) }
    }

    /// For a close, which [`Log::begin_close`] has counted.
    pub fn closed(&self) -> Callback<'_, NDK_FN_CLOSE_COMPLETION> {
        self.callback(closed as _)
    }

    /// A close is over.
    pub fn end_close(&self) {
        let log = self.log();
        log.record(ScriptEvent::Closed, self.name, STATUS_SUCCESS);
        log.end_close();
    }

    /// For the end of a connection.
    pub fn gone(&self) -> Callback<'_, NDK_FN_DISCONNECT_EVENT_CALLBACK> {
        self.callback(gone as _)
    }

    /// For the connections of a listener.
    pub fn arrived(&self) -> Callback<'_, NDK_FN_CONNECT_EVENT_CALLBACK> {
        self.callback(arrived as _)
    }
}

macro_rules! request_completions {
    ($($name:ident: $event:ident;)*) => {
        impl Cell {$(
            /// For a request or a notification: the event of that name.
            pub fn $name(&self) -> Completion<'_> {
                self.callback($name as _)
            }
        )*}
        $(
            /// NDK_FN_REQUEST_COMPLETION or a notification callback.
            unsafe extern "C" fn $name(context: PVOID, status: NTSTATUS) {
                // SAFETY: given with a request or object whose end the session waits for.
                if let Some(cell) = unsafe { context.cast::<Cell>().as_ref() } {
                    cell.log().record(ScriptEvent::$event, cell.name, status);
                }
            }
        )*
    };
}

request_completions! {
    notified: Notify;
    connected: Connect;
    accepted: Accept;
    completed: Complete;
    disconnected: Disconnect;
}

/// NDK_FN_CLOSE_COMPLETION.
unsafe extern "C" fn closed(context: PVOID) {
    // SAFETY: given with a close that the session waits for.
    if let Some(cell) = unsafe { context.cast::<Cell>().as_ref() } {
        cell.end_close();
    }
}

/// NDK_FN_DISCONNECT_EVENT_CALLBACK.
unsafe extern "C" fn gone(context: *mut c_void) {
    // SAFETY: given with a request of a connector whose close the session waits for.
    if let Some(cell) = unsafe { context.cast::<Cell>().as_ref() } {
        cell.log().record(ScriptEvent::Gone, cell.name, STATUS_SUCCESS);
    }
}

/// NDK_FN_CONNECT_EVENT_CALLBACK.
unsafe extern "C" fn arrived(context: *mut c_void, connector: *mut NDK_CONNECTOR) {
    // SAFETY: given with a listener whose close the session waits for.
    let Some(cell) = (unsafe { context.cast::<Cell>().as_ref() }) else { return };
    let Some(connector) = NonNull::new(connector) else { return };
    // SAFETY: a connector handed to us, open until the session closes it.
    let connector = unsafe { Handle::new(connector) };
    let log = cell.log();
    if log.keep(cell.name, connector) {
        log.record(ScriptEvent::Arrived, cell.name, STATUS_SUCCESS);
    } else {
        // Closing refuses the connection.
        // SAFETY: no other context knows it.
        unsafe { connector.close_unowned() };
    }
}
