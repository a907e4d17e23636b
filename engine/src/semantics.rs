//! The one table of differences between the two contracts the engine serves.
//!
//! What it is: a record taken when an adapter is opened; a column each for kernel consumers (NDKPI) and for user-mode
//! NetworkDirect (NDSPI v2). Code asks the record, never which column it is. What it is not: complete before both front ends
//! exist; each new difference becomes a field here.

use crate::cause::Outcome;

/// What one open of an adapter promises its consumer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Semantics {
    /// How a Read or Write completes whose remote access was refused.
    pub remote_access: Outcome,
    /// How a Send completes whose receiver was too small.
    pub receiver_too_small: Outcome,
    /// Whether posted receives are flushed when the peer ends the connection.
    pub flush_on_peer_end: bool,
    /// Whether a waiting Accept says "refused" (else "aborted") when the connecting side gives up.
    pub abandoned_is_refused: bool,
    /// Whether [`connection_data`](crate::Connector::connection_data) reports the fixed size of the wire's field (else the
    /// number of bytes sent).
    pub fixed_private_data: bool,
}

impl Semantics {
    /// Kernel consumers: the network direct kernel provider interface.
    pub const NDK: Self = Self {
        remote_access: Outcome::RemoteError,
        receiver_too_small: Outcome::RemoteError,
        flush_on_peer_end: false,
        abandoned_is_refused: false,
        fixed_private_data: true,
    };

    /// User-mode consumers: the network direct service provider interface, version 2.
    pub const ND: Self = Self {
        remote_access: Outcome::RemoteAccess,
        receiver_too_small: Outcome::Success,
        flush_on_peer_end: true,
        abandoned_is_refused: true,
        fixed_private_data: false,
    };
}
