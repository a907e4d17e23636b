//! The messages between two connectors.
//!
//! Nothing here points to an object: a message could cross a network. Messages between the ends may cross, and may be late.

use core::net::SocketAddr;

use crate::connection::connector::ReadLimits;
use crate::error::{ConnectError, DisconnectReason};
use crate::private_data::PrivateData;

/// A message from one connector to the other.
pub(crate) enum Message {
    /// Accepted, with the limits as this end sees them.
    Accepted {
        limits: ReadLimits,
        data: PrivateData,
    },
    Rejected {
        data: PrivateData,
    },
    /// The request has found no connector there.
    Refused {
        error: ConnectError,
    },
    /// The connecting side has completed: both may send.
    Ready,
    /// The connecting side gave up.
    Abandoned,
    /// A graceful end.
    Notice,
    /// An abortive end, with the reason as the peer sees it.
    Abort {
        reason: DisconnectReason,
    },
}

/// A message by which a connector parts from its peer.
pub(crate) enum EndMessage {
    Rejected { data: PrivateData },
    Abandoned,
    Abort { reason: DisconnectReason },
}

impl From<EndMessage> for Message {
    fn from(message: EndMessage) -> Self {
        match message {
            EndMessage::Rejected { data } => Self::Rejected { data },
            EndMessage::Abandoned => Self::Abandoned,
            EndMessage::Abort { reason } => Self::Abort { reason },
        }
    }
}

/// A connection request as the other end gets it.
pub(crate) struct ConnectionRequest {
    /// Address and port it comes from, as this end sees them.
    pub(crate) source: SocketAddr,
    pub(crate) limits: ReadLimits,
    pub(crate) data: PrivateData,
    /// Bytes of private data that the request could have.
    pub(crate) capacity: u32,
}
