//! Listings of what lives in an adapter, for the OIDs and the tools.
//!
//! What it is not: kept up to date; each entry was true when it was taken.

use core::net::SocketAddr;

use crate::life::Object;
use crate::platform::Platform;

/// An established connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionEntry {
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// A listening endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EndpointEntry {
    pub local: SocketAddr,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ObjectKind {
    Opening,
    CompletionQueue,
    ProtectionDomain,
    MemoryRegion,
    QueuePair,
    Listener,
    Connector,
}

impl ObjectKind {
    pub(crate) fn of<P: Platform>(object: &Object<P>) -> Self {
        match object {
            Object::Opening(_) => Self::Opening,
            Object::CompletionQueue(_) => Self::CompletionQueue,
            Object::Domain(_) => Self::ProtectionDomain,
            Object::Region(_) => Self::MemoryRegion,
            Object::QueuePair(_) => Self::QueuePair,
            Object::Listener(_) => Self::Listener,
            Object::Connector(_) => Self::Connector,
        }
    }
}

/// One living object. Logical mappings count as holds of their opening.
#[derive(Clone, Copy, Debug)]
pub struct ObjectSnapshot {
    pub kind: ObjectKind,
    /// Differs among living objects of one kind.
    pub id: u64,
    /// Reasons that keep its close from completing, the consumer's own included.
    pub holds: u32,
    pub closing: bool,
}
