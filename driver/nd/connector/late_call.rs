//! What the engine reports late: the end of a call that pended, and the end of a connection.
//!
//! Each report has the number of the request that it belongs to, so that the end of one that was given up is not taken for the end
//! of the next.

use core::{ffi::c_void, ptr::NonNull};

use ndkpi_sys::nt::NTSTATUS;
use softndk_cells::Shared;
use softndk_engine::{ConnectError, Requested};
use softndk_kernel::pool::PoolBox;

use super::{
    super::{object, status::of_connect},
    Connector,
    machine::ConnectorEvent,
};
use crate::{
    runtime::platform::{Callback, DisconnectFunction, RequestCallback, UserModeDisconnect, UserModeRequest},
    tags,
};

/// A call to the engine that may pend. Until its callback it lies in a block of its own, which the callback owns.
pub struct LateCall {
    pub connector: Shared<Connector>,
    pub number: u64,
    /// The status of a call that does not fit the state of the engine's connector.
    pub misfit: NTSTATUS,
}

impl LateCall {
    /// Makes the call. Its end is an event, whether it pends or not. `Err`: there was no memory, and no call.
    pub fn make(self, call: impl FnOnce(RequestCallback) -> Result<Requested, ConnectError>) -> Result<(), NTSTATUS> {
        let block = PoolBox::try_new(tags::ND_REQUEST, self).map_err(object::no_memory)?.into_raw();
        // SAFETY: `call_ended` takes such a block, and is called once, by an engine that has answered Pending.
        let callback = unsafe { Callback::<UserModeRequest>::new(call_ended, block.as_ptr().cast()) };
        let result = match call(RequestCallback::UserMode(callback)) {
            Ok(Requested::Pending) => return Ok(()),
            Ok(Requested::Done) => Ok(()),
            Err(cause) => Err(cause),
        };
        // SAFETY: it was a box with this tag, and the engine has not taken the callback.
        unsafe { PoolBox::from_raw(tags::ND_REQUEST, block) }.into_inner().end(result);
        Ok(())
    }

    fn end(self, result: Result<(), ConnectError>) {
        self.connector.request_ended(self.number, result.map_err(|cause| of_connect(cause, self.misfit)));
    }
}

/// A call has ended. `IRQL <= DISPATCH_LEVEL`.
///
/// # Safety
/// The context is the block of a call that pends, and this is called once.
unsafe fn call_ended(context: *mut c_void, result: Result<(), ConnectError>) {
    let Some(block) = NonNull::new(context.cast::<LateCall>()) else { return };
    // SAFETY: `make` made it as a box with this tag and has given it up.
    unsafe { PoolBox::from_raw(tags::ND_REQUEST, block) }.into_inner().end(result);
}

/// For calls whose end nothing waits for.
pub fn ignored() -> RequestCallback {
    unsafe fn ignore(_context: *mut c_void, _result: Result<(), ConnectError>) {}
    // SAFETY: the function takes anything.
    RequestCallback::UserMode(unsafe { Callback::<UserModeRequest>::new(ignore, core::ptr::null_mut()) })
}

/// The callback of an attempt's connection. The engine may never call it, so it cannot own anything.
pub fn peer_ended(connector: &Shared<Connector>, number: u64) -> Callback<DisconnectFunction> {
    let function: UserModeDisconnect = report_peer_ended;
    // SAFETY: the function takes the connector, which the engine keeps until its events have been reported.
    unsafe { Callback::new(DisconnectFunction::UserMode(function, number), object::context(connector)) }
}

/// The connection has ended, and not by this side. `IRQL <= DISPATCH_LEVEL`.
///
/// # Safety
/// The context is the address of a connector that lives.
unsafe fn report_peer_ended(context: *mut c_void, number: u64) {
    // SAFETY: the engine keeps the connector's block until its events have been reported.
    if let Some(connector) = unsafe { context.cast::<Connector>().as_ref() } {
        let _ended = connector.process(ConnectorEvent::PeerEnded { number });
    }
}

impl Connector {
    /// The end of Connect, Accept or Disconnect.
    pub fn request_ended(&self, number: u64, result: Result<(), NTSTATUS>) {
        let _ended = self.process(match result {
            Ok(()) => ConnectorEvent::Succeeded { number },
            Err(status) => ConnectorEvent::Failed { number, status },
        });
    }
}
