//! How long an adapter waits for somebody else.
//!
//! What it is: times in nanoseconds; 0 is never, for people who sit in a debugger. What it is not: configuration, nor a choice
//! of times; the front end has both.

/// The times after which an adapter gives up waiting, in nanoseconds; 0 = never.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Timeouts {
    /// From Connect to the peer's answer.
    pub connect: u64,
    /// From Accept to the peer's CompleteConnect.
    pub accept: u64,
    /// From Disconnect to the peer's answer.
    pub disconnect: u64,
    /// From the moment a Send finds no receive.
    pub receiver_not_ready: u64,
}
