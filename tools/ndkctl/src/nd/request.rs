//! Overlapped requests of the client.

use super::memory::Pages;
use super::stop::{Cut, Stop};
use super::system::{Handle, System};
use super::{interface::Interface, provider};
use crate::failure::{Failure, Kind};
use softnd_interfaces::{
    Status,
    structures::Overlapped,
    v2::{IND2CompletionQueue, IND2Connector, IND2Listener, IND2MemoryRegion, IND2Overlapped},
};
use std::time::Instant;

/// How often a request that pends looks whether it is to stop.
const LOOK: u32 = 20;

/// An OVERLAPPED with an event of its own, for one request after the other.
#[derive(Debug)]
pub struct Request<'s> {
    system: &'s System<'s>,
    block: Pages<'s>,
    event: Handle,
}

/// An interface that has overlapped requests.
pub trait HasRequests {
    /// What it begins with.
    fn base(&self) -> *mut IND2Overlapped;
}

macro_rules! has_requests {
    ($($Object:ident),+) => { $(
        impl HasRequests for Interface<'_, $Object> {
            fn base(&self) -> *mut IND2Overlapped {
                self.this().cast()
            }
        }
    )+ };
}
has_requests!(IND2CompletionQueue, IND2Connector, IND2Listener, IND2MemoryRegion);

impl<'s> Request<'s> {
    pub fn new(system: &'s System<'s>) -> Result<Self, Failure> {
        let block = Pages::allocate(system, size_of::<Overlapped>())?;
        let event = system.create_event().ok_or_else(|| {
            let next = "close other programs and try again";
            Failure::new(Kind::Refused, "cannot make an event", "the process has no handles left", next)
        })?;
        // SAFETY: pages of its own, long enough.
        unsafe { block.address().cast::<Overlapped>().write(Overlapped::new(event)) };
        Ok(Self { system, block, event })
    }

    /// The argument of the call that begins the request.
    #[must_use]
    pub const fn overlapped(&self) -> *mut Overlapped {
        self.block.address().cast()
    }

    /// Waits for the end of a request whose call gave `first`. When `stop` is raised the object's requests are cancelled.
    pub fn finish(&self, object: &impl HasRequests, first: Status, stop: &Stop) -> Result<Status, Cut> {
        self.finish_until(object, first, stop, None)?.ok_or(Cut::Stopped)
    }

    /// The same, until then: afterwards the object's requests are cancelled, and there is no status.
    pub fn finish_until(
        &self,
        object: &impl HasRequests,
        first: Status,
        stop: &Stop,
        until: Option<Instant>,
    ) -> Result<Option<Status>, Cut> {
        if first != Status::PENDING {
            return Ok(Some(first));
        }
        let (mut stopped, mut late) = (false, false);
        // SAFETY: its own event.
        while !unsafe { self.system.wait(self.event, LOOK) } {
            if stopped || late {
                continue;
            }
            stopped = stop.is_raised();
            late = until.is_some_and(|until| Instant::now() >= until);
            if stopped || late {
                provider::cancel(object);
            }
        }
        match (stopped, provider::result_of(object, self)) {
            (true, _) => Err(Cut::Stopped),
            (false, Status::CANCELED) if late => Ok(None),
            (false, status) => Ok(Some(status)),
        }
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        // SAFETY: its own event; requests are waited for before this goes.
        unsafe { self.system.close(self.event) };
    }
}
