//! The peers of the adapters under test, and what a consumer sees differently of those across a stream.
//!
//! A Write or Send across a stream succeeds when its bytes have been handed over. That the peer refuses it is never said: the
//! connection ends, and both consumers hear of that.

use std::env;
use std::net::SocketAddr;

use kernel_host::{dispatcher, irql};
use ndkpi_sys::ndkpi::{NDK_OP_FLAGS, NDK_RESULT_EX, NdkOperationTypeSend, NdkOperationTypeWrite};
use ndkpi_sys::nt::{NTSTATUS, STATUS_CANCELLED, STATUS_SUCCESS};

use crate::consumer::{End, Remote};

/// The transport of the adapters; `stream`: all peers are across streams.
pub const VARIABLE: &str = "SOFTNDK_TRANSPORT";

/// Whether the peers are across streams.
pub fn across_streams() -> bool {
    env::var(VARIABLE).is_ok_and(|transport| transport == "stream")
}

/// What a Write or Send completes with that its peer refuses with this status.
pub fn late(status: NTSTATUS) -> NTSTATUS {
    if across_streams() { STATUS_SUCCESS } else { status }
}

/// An address as the peer knows it: a port of TCP that several connections share shows as another one.
pub fn without_port(mut address: SocketAddr) -> SocketAddr {
    if across_streams() {
        address.set_port(0);
    }
    address
}

/// Whether what was sent has been taken: across a stream it would end the connection otherwise, and the consumer has heard of that.
pub fn stands(end: &End<'_>) -> bool {
    !across_streams() || end.connector().disconnect_events() == 0
}

/// Has the passive end of a connection send what no consumer sees: across a stream the active end ends with grace before anything
/// has come from its peer.
pub fn speak(passive: &End<'_>) {
    if across_streams() {
        let nowhere = Remote { address: 0, token: 1 };
        assert_eq!(passive.queue_pair.write(0, &[], nowhere, NDK_OP_FLAGS::empty()), STATUS_SUCCESS);
        assert_eq!(passive.initiator.wait_for_one().Status, STATUS_SUCCESS);
    }
}

/// Whether a request or receive that waited was cancelled: across a stream no Send waits for its receive.
pub fn waited(result: &NDK_RESULT_EX) -> bool {
    let is_sent = across_streams() && (result.Status, result.Type) == (STATUS_SUCCESS, NdkOperationTypeSend);
    result.Status == STATUS_CANCELLED || is_sent
}

/// Lets what the results say to have been sent arrive. Below DISPATCH_LEVEL.
pub(crate) fn settle(results: &[NDK_RESULT_EX]) {
    let travels = [NdkOperationTypeSend, NdkOperationTypeWrite];
    let was_sent = results.iter().any(|result| result.Status == STATUS_SUCCESS && travels.contains(&result.Type));
    if was_sent && across_streams() && irql::current() < irql::DISPATCH {
        dispatcher::delay(-10_000);
    }
}
