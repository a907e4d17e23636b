//! The one table of differences between the two contracts the engine serves.
//!
//! A record is taken when an adapter is opened; there is a column each for kernel consumers (NDKPI) and for user-mode
//! NetworkDirect (NDSPI v2). Code reads the record, never which column it is. The status number of an error is each front end's
//! own table. `docs/semantics.md` is the readable table, with what both contracts share.
//!
//! Rule: every field is a row of the table and has a test of both columns (`tests/scenarios/semantics.rs` does not compile
//! without).

use crate::error::Outcome;

/// What one open of an adapter promises its consumer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent rows of the table")]
pub struct Semantics {
    /// How a Read or Write completes whose remote access was refused.
    pub remote_access: Outcome,
    /// How a Send completes whose receiver was too small.
    pub receiver_too_small: Outcome,
    /// Whether posted receives are flushed when the peer ends the connection.
    pub flush_on_peer_end: bool,
    /// Whether a local Disconnect flushes at once (else when the peer has answered it).
    pub flush_on_disconnect: bool,
    /// Whether a waiting Accept reports "refused" (else "aborted") when the connecting side gives up.
    pub abandoned_is_refused: bool,
    /// Whether [`connection_data`](crate::Connector::connection_data) reports the fixed size of the wire's field (else the
    /// number of bytes sent).
    pub fixed_private_data: bool,
    /// How long a message waits for a receive of the peer, in nanoseconds, where the adapter has no time-out of its own; 0 = for ever.
    /// Receives of a shared queue are always waited for.
    pub receiver_not_ready: u64,
    /// Entries a completion queue takes beyond its depth before it overruns.
    pub queue_slack: u32,
}

impl Semantics {
    /// Kernel consumers: the network direct kernel provider interface.
    pub const NDK: Self = Self {
        remote_access: Outcome::RemoteError,
        receiver_too_small: Outcome::RemoteError,
        flush_on_peer_end: false,
        flush_on_disconnect: false,
        abandoned_is_refused: false,
        fixed_private_data: true,
        receiver_not_ready: 0,
        queue_slack: 0,
    };

    /// User-mode consumers: the network direct service provider interface, version 2.
    pub const ND: Self = Self {
        remote_access: Outcome::RemoteAccess,
        receiver_too_small: Outcome::Success,
        flush_on_peer_end: true,
        flush_on_disconnect: true,
        abandoned_is_refused: true,
        fixed_private_data: false,
        receiver_not_ready: 3_000_000_000,
        queue_slack: 16,
    };
}
