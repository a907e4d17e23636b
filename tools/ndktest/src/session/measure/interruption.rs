//! When a measurement has to end early: its request is cancelled, a connection ended, or another processor's loop failed.

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use ndkpi_sys::ndkpi::NDK_FN_DISCONNECT_EVENT_CALLBACK;
use softndk_ioctl::Status;
use softndk_kernel::event::Event;

use crate::session::{object::Callback, request::RequestWait};

/// What ends every loop of a measurement. It outlives the connections.
pub struct Signals {
    /// A connection ended that we did not end.
    lost: AtomicBool,
    /// The loops should end.
    stop: AtomicBool,
}

impl Signals {
    pub const fn new() -> Self {
        Self { lost: AtomicBool::new(false), stop: AtomicBool::new(false) }
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// What hears of the end of connections that should last.
    pub fn disconnected(&self) -> Callback<'_, NDK_FN_DISCONNECT_EVENT_CALLBACK> {
        // SAFETY: the signals outlive the connections.
        unsafe { Callback::new(disconnected as _, ptr::from_ref(self).cast_mut().cast()) }
    }
}

/// NDK_FN_DISCONNECT_EVENT_CALLBACK of [`Signals`].
unsafe extern "C" fn disconnected(context: *mut c_void) {
    // SAFETY: the signals outlive the connections.
    if let Some(signals) = unsafe { context.cast::<Signals>().as_ref() } {
        signals.lost.store(true, Ordering::Release);
    }
}

/// One loop's view of it.
#[derive(Clone, Copy)]
pub struct Interruption<'a> {
    pub signals: &'a Signals,
    /// Of the thread that has the request; the others hear of its end by the signals.
    pub request_wait: Option<&'a RequestWait<'a>>,
}

impl Interruption<'_> {
    /// Whether the loop should end now, and why. It reads memory only.
    pub fn check(&self) -> Result<(), Status> {
        if let Some(request_wait) = self.request_wait {
            request_wait.check()?;
        }
        if self.signals.lost.load(Ordering::Acquire) {
            return Err(Status::CONNECTION_DISCONNECTED);
        }
        if self.signals.stop.load(Ordering::Acquire) { Err(Status::CANCELLED) } else { Ok(()) }
    }

    /// Waits for an event, for so many nanoseconds at most, or until the request should end. PASSIVE_LEVEL.
    pub fn wait(&self, event: &Event, limit: u64) {
        match self.request_wait {
            Some(request_wait) => {
                let _woken = request_wait.pause(&[event], Some(limit));
            }
            None => {
                let _woken = event.wait_with(&[], Some(limit));
            }
        }
    }
}
