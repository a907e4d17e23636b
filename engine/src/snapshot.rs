//! Listings of what lives in an adapter, for the OIDs and the tools.
use core::net::SocketAddr;
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionEntry { pub local: SocketAddr, pub remote: SocketAddr }
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EndpointEntry { pub local: SocketAddr }
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ObjectKind { Opening, CompletionQueue, ProtectionDomain, MemoryRegion, LogicalMapping, QueuePair, Listener, Connector }
#[derive(Clone, Copy, Debug)]
pub struct ObjectSnapshot {
    pub kind: ObjectKind,
    /// Differs among living objects of one kind.
    pub id: u64,
    /// Reasons that keep its close from completing, the consumer's own included.
    pub holds: u32,
    pub closing: bool,
}
