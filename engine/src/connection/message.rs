//! The messages between two connectors.
//!
//! Nothing here points to an object: a message could cross a network. Messages between the ends may cross, and may be late.

use core::net::SocketAddr;

use softndk_cells::{Dispose, Shared};

use crate::connection::connector::ReadLimits;
use crate::error::{ConnectError, DisconnectReason};
use crate::limits::PRIVATE_DATA;

/// Private data on its way: a pointer, because messages are moved through many frames of a small stack.
#[derive(Clone)]
pub(crate) struct PrivateData(Option<Shared<PrivateBytes>>);

struct PrivateBytes {
    bytes: [u8; PRIVATE_DATA],
    length: usize,
}

impl Dispose for PrivateBytes {}

static NO_BYTES: PrivateBytes = PrivateBytes { bytes: [0; PRIVATE_DATA], length: 0 };

impl PrivateData {
    pub(crate) const fn empty() -> Self {
        Self(None)
    }

    /// Copies data that is at most `most` bytes long. No data needs no memory.
    #[inline(never)]
    pub(crate) fn new(data: &[u8], most: u32) -> Result<Self, ConnectError> {
        if data.is_empty() {
            return Ok(Self::empty());
        }
        let mut copy = PrivateBytes { bytes: [0; PRIVATE_DATA], length: data.len() };
        let place = copy.bytes.get_mut(..data.len()).filter(|_| data.len() <= most as usize);
        place.ok_or(ConnectError::PrivateDataTooLong)?.copy_from_slice(data);
        Ok(Self(Some(Shared::try_new(copy)?)))
    }

    fn bytes(&self) -> &PrivateBytes {
        self.0.as_deref().unwrap_or(&NO_BYTES)
    }

    pub(crate) fn length(&self) -> usize {
        self.bytes().length
    }

    /// The data and the zeros behind it.
    pub(crate) fn padded(&self) -> &[u8] {
        &self.bytes().bytes
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
    #[cfg_attr(not(any(test, feature = "far-peer")), expect(dead_code, reason = "a peer at hand refuses at once"))]
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
