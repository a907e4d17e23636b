//! The messages between two connectors.
//!
//! Nothing here points to an object: a message could cross a network. Messages between the ends may cross, and may be late.

use core::net::SocketAddr;

use crate::adapter::adapter::AdapterObject;
use crate::error::{ConnectError, DisconnectReason};
use crate::platform::Platform;
use crate::private_data::PrivateData;

/// Reads a side lets in and sends out at a time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReadLimits {
    pub inbound: u32,
    pub outbound: u32,
}

impl ReadLimits {
    pub(super) fn capped<P: Platform>(self, adapter: &AdapterObject<P>) -> Self {
        let limits = &adapter.limits;
        Self { inbound: self.inbound.min(limits.inbound_reads), outbound: self.outbound.min(limits.outbound_reads) }
    }

    /// What is left of these limits beside those of the peer: its outbound Reads are the inbound ones here.
    pub(super) fn against(self, peer: Self) -> Self {
        Self { inbound: self.inbound.min(peer.outbound), outbound: self.outbound.min(peer.inbound) }
    }

    /// These limits as the other side sees them.
    pub(super) fn of_peer(self) -> Self {
        Self { inbound: self.outbound, outbound: self.inbound }
    }
}

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
