//! How long an adapter waits for its peers.
//!
//! Times in nanoseconds; 0 is never, for debugging. The front end chooses and configures them.

/// The times after which an adapter gives up waiting, in nanoseconds; 0 = never.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Timeouts {
    /// From Connect to the peer's answer.
    pub connect: u64,
    /// From Accept to the peer's CompleteConnect.
    pub accept: u64,
    /// From Disconnect to the peer's answer.
    pub disconnect: u64,
    /// From the time a Send finds no receive; where it is not set, each interface has its own
    /// ([`Semantics::receiver_not_ready`](crate::Semantics::receiver_not_ready)).
    pub receiver_not_ready: Option<u64>,
}
