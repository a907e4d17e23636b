//! Statuses of NetworkDirect (`docs/networkdirect.md`). Those of the engine's errors are in the table of both interfaces.

use ndkpi_sys::nt::NTSTATUS;
use softndk_engine::{ConnectError, Outcome};

use crate::runtime::errors::{self, Failure};

/// What a request is answered with: bytes of output, or the status of its failure.
pub type Answered = Result<usize, NTSTATUS>;

/// The name of the destination stands for no host.
pub const STATUS_BAD_NETWORK_NAME: NTSTATUS = 0xC000_00CC_u32.cast_signed();

/// STATUS_INVALID_PARAMETER_1 to _10: which parameter of the provider's method.
pub const fn invalid_parameter(number: i32) -> NTSTATUS {
    0xC000_00EE_u32.cast_signed().wrapping_add(number)
}

/// The status of an error.
pub fn of_error(error: impl Into<Failure>) -> NTSTATUS {
    error.into().nd
}

/// How a work request completed.
pub fn of_outcome(outcome: Outcome) -> NTSTATUS {
    errors::of_outcome(outcome).unwrap_or_else(|failure| failure.nd)
}

/// Connection calls, at once or by their completion. What does not fit the state of a connector is `state`.
pub fn of_connect(error: ConnectError, state: NTSTATUS) -> NTSTATUS {
    if error == ConnectError::InvalidState { state } else { of_error(error) }
}
