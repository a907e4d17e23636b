//! Errors: one enum an operation. The front end maps each to its statuses in one place.
//!
//! Which error becomes which status is the front end's table; where the two columns of [`Semantics`](crate::Semantics) differ
//! in the error itself, that table decides here.

use softndk_cells::NoMemory;

/// Why an object could not be created or memory not be registered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CreateError {
    /// No memory, or no slot left in a table.
    NoResources,
    /// A depth or count over the adapter's limits, or zero where zero makes no sense.
    OverLimit,
    /// Two objects that do not belong together (another adapter, another protection domain).
    Foreign,
    /// The adapter is disabled or going away.
    AdapterGone,
}

/// Why memory could not be registered or a region not be used as asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RegionError {
    NoResources,
    /// Longer than the adapter registers, longer than the memory, or wrapping around.
    BadLength,
    /// Registered already, or initialised already.
    InUse,
    /// Windows are bound to the region.
    WindowsBound,
    /// The region is of the other kind (fast-register or not), or is not registered.
    WrongKind,
    /// More pages than the adapter fast-registers at once.
    TooManyPages,
    /// The region or the open has been closed meanwhile.
    Closing,
}

/// Why a work request was refused at once. The queue pair stays healthy and no completion follows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PostError {
    QueueFull,
    TooManySges,
    /// More bytes than the adapter transfers at once, or than the queue pair keeps inline.
    TooMuchData,
    /// A flag that this operation does not take, or one that needs another.
    BadFlags,
    /// An argument that makes no sense (offset in page, base address, length, object of another adapter).
    BadParameter,
    /// The queue pair has never been connected.
    NotConnected,
    /// The region does not grant what was asked for.
    AccessDenied,
    /// A third page list for one region, two being in use.
    NoResources,
    /// Two posts to one queue at the same time: the consumer has to serialise them.
    Concurrent,
}

/// How an accepted request ended, as its completion reports.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Outcome {
    #[default]
    Success,
    /// Flushed, or ended by an earlier failure or the end of the connection.
    Cancelled,
    /// A local SGE names memory that is not registered, out of bounds, not granted, or of another protection domain.
    LocalAccess,
    /// The peer's memory refused the access: token, bounds, right, protection domain.
    RemoteAccess,
    /// The request made the remote queue pair fail (receive too small, token to invalidate unknown).
    RemoteError,
    /// The peer had no receive in time.
    NotReady,
    /// The incoming message was longer than the receive request.
    ReceiveTooSmall,
    /// The request does not fit the state of its object (invalidate what is invalid, register what is registered).
    InvalidRequest,
}

/// What was wrong with memory, a token or a receive that a request needed: the first check that failed. Which end it was at follows
/// from the [`Outcome`] and the operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AccessFault {
    /// Nothing has had the token.
    NoToken,
    /// The token was good once: what had it is gone, or has another one since.
    StaleToken,
    /// The privileged token, which is for local elements only.
    PrivilegedToken,
    /// The token of a window, which is for the peer only.
    WindowToken,
    /// The region or window is there and is not registered or bound now.
    NotInUse,
    /// Of another protection domain than the queue pair.
    Domain,
    /// The window is bound for another queue pair.
    QueuePair,
    /// The right that the access needs is not granted.
    Rights,
    /// Outside of the registered or bound range.
    Bounds,
    /// A logical address, or one of a fast registration's pages, is in no mapping of the adapter, or runs out of one.
    NoMapping,
    /// The receive's elements together are shorter than the message.
    ReceiveTooSmall,
    /// The token that a message invalidates is of nothing that its sender may invalidate.
    NotInvalidated,
}

/// How the connection calls end, at once or by their completion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ConnectError {
    NoResources,
    /// The local address is not one of this adapter's.
    InvalidAddress,
    /// The local address and port are in use.
    AddressInUse,
    /// There is a connection between these two addresses and ports.
    TupleInUse,
    /// No ephemeral port is left.
    NoPorts,
    /// The address of a shared endpoint is not the adapter's at present.
    NetworkUnreachable,
    /// No adapter on this wire has the destination address.
    HostUnreachable,
    /// No listener there, or the peer rejected.
    Refused,
    /// The other side gave up, or this side is being closed.
    Aborted,
    /// The other side did not answer in time.
    TimedOut,
    /// The queue pair is connected already, or has been.
    AlreadyConnected,
    /// The call does not fit the state of the connector or listener.
    InvalidState,
    /// Private data over the adapter's limit.
    PrivateDataTooLong,
    /// The queue pair belongs to another adapter.
    Foreign,
    /// The adapter is disabled or going away.
    AdapterGone,
}

/// Why a queue kept its depth.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ResizeError {
    NoResources,
    /// Over the adapter's limits, or zero.
    OverLimit,
    /// More entries wait than the new depth holds.
    Occupied,
    /// The queue has failed.
    Failed,
}

/// Why notifications are moderated as before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ModerationError {
    NoResources,
    /// Neither the interval nor the count is a bound.
    Mix,
}

/// Why a connection ended, as the disconnect event reports.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DisconnectReason {
    /// The peer disconnected.
    Disconnected,
    /// The peer closed its connector without disconnecting.
    Closed,
    /// A request of the peer failed.
    PeerFailed,
    /// The peer waited too long for this side's answer to its disconnect.
    TimedOut,
    /// The peer's address was removed.
    PeerAddressGone,
    /// The peer's adapter was disabled or is going away.
    PeerAdapterGone,
    /// This side's address was removed.
    AddressGone,
    /// This side's adapter was disabled or is going away.
    AdapterGone,
    /// Across a stream: the peer refused a request of this side, or ended the stream for another reason of the protocol.
    RefusedByPeer,
    /// Across a stream: it ended in the middle of a message, or what came was none.
    StreamLost,
}

/// A completion queue that reports no more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QueueFailure {
    /// More completions than entries.
    Overflow,
}

/// The result of a connection call or of a listen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Requested {
    /// Done; the callback is never called.
    Done,
    /// The callback is called exactly once, possibly before this call returns.
    Pending,
}

impl From<NoMemory> for CreateError {
    fn from(_: NoMemory) -> Self {
        Self::NoResources
    }
}

impl From<NoMemory> for ResizeError {
    fn from(_: NoMemory) -> Self {
        Self::NoResources
    }
}

impl From<NoMemory> for RegionError {
    fn from(_: NoMemory) -> Self {
        Self::NoResources
    }
}

impl From<NoMemory> for ConnectError {
    fn from(_: NoMemory) -> Self {
        Self::NoResources
    }
}
