//! What becomes of connections, for a record of the front end's: [`Platform::connection_changed`](crate::Platform::connection_changed).
//!
//! Nothing here decides anything. One end reports what happened to itself, so a connection between two connectors of this engine is
//! reported twice.

use core::net::SocketAddr;

use crate::error::{ConnectError, DisconnectReason};

/// A Terminate of iWARP that has ended a stream. What a peer says is a hint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Terminate {
    /// The peer has sent it; otherwise this end has.
    pub is_of_peer: bool,
    /// The layer that found the error, the type of the error and its code, as RFC 5040 numbers them.
    pub layer: u8,
    pub kind: u8,
    pub code: u8,
}

/// What became of one end of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionRecord {
    /// The connector's number.
    pub connector: u64,
    /// None before the attempt has one.
    pub local: Option<SocketAddr>,
    pub peer: Option<SocketAddr>,
    pub change: ConnectionChange,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ConnectionChange {
    /// The active end has sent its request.
    Requested,
    /// The passive end hands a request to its listener's consumer.
    Arrived,
    /// The active end is connected.
    Connected,
    /// The passive end is.
    Accepted,
    /// The attempt came to nothing.
    Failed(ConnectionCause),
    /// The connection is over.
    Ended(ConnectionCause),
}

/// What ended an attempt or a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ConnectionCause {
    /// This end's consumer disconnected.
    Disconnected,
    /// It closed the connector.
    Closed,
    /// It rejected.
    Rejected,
    /// A request of this end failed.
    RequestFailed,
    /// The peer did not answer in time.
    TimedOut,
    /// The peer's consumer rejected.
    PeerRejected,
    /// Nothing listens there, or nothing there can take the request.
    Refused(ConnectError),
    /// The peer gave the attempt up.
    PeerGaveUp,
    /// An end that the disconnect event has a reason for.
    Reason(DisconnectReason),
    /// Connect failed, and no request went out.
    Call(ConnectError),
}
