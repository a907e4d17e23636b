//! Listings of the objects of an adapter, for the OIDs and the tools.
//!
//! Each entry was true when it was taken and is not kept up to date.

use core::net::SocketAddr;

pub use crate::flags::ObjectKind;
use crate::object::header::Object;
use crate::platform::Platform;

/// An established connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionEntry {
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// An endpoint that is listened on, or shared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EndpointEntry {
    pub local: SocketAddr,
    /// A listener's; else a shared endpoint.
    pub listener: bool,
}

/// What an object is doing, beyond being there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ObjectState {
    /// Made, and not used for anything yet.
    Idle,
    /// An object without states.
    Open,
    Listening,
    /// A listener that has lost or given up its endpoint.
    Silent,
    Connecting,
    /// A connect that the peer accepted and that is not completed yet.
    Answered,
    /// A connection that is not accepted or rejected yet.
    Arrived,
    Accepting,
    /// A queue pair promised to a connection that is being made.
    Claimed,
    Connected,
    /// The connection has ended.
    Ended,
    /// Memory that can be used through a token.
    Registered,
    /// A fast-register region ready for requests.
    Initialized,
    /// Memory on its way out: copies are still under way.
    Leaving,
    /// The consumer has closed it; something keeps the close from completing.
    Closing,
}

/// How many antecedents of an object are listed; no kind has more.
pub const ANTECEDENTS: usize = 6;

/// One living object. Logical mappings count as holds of their open.
#[derive(Clone, Copy, Debug)]
pub struct ObjectSnapshot {
    pub kind: ObjectKind,
    /// Differs among living objects of one kind.
    pub id: u64,
    /// Differs from that of every other object, live or finished; never 0. Independent of the object's address.
    pub number: u64,
    pub state: ObjectState,
    /// Reasons that keep its close from completing, the consumer's own included.
    pub holds: u32,
    /// Those of them that are other objects.
    pub dependants: u32,
    /// Numbers of the objects it keeps; the rest is 0.
    pub antecedents: [u64; ANTECEDENTS],
    /// Bytes that a queue pair has sent and received, as [`Counters`](crate::Counters) counts them; 0 for other objects.
    pub traffic: [u64; 2],
    /// When it was made, by [`Platform::now`].
    pub made: u64,
    /// What the front end called the open ([`Open::set_label`](crate::Open::set_label)); 0 for other objects.
    pub label: u64,
    pub closing: bool,
}

impl ObjectSnapshot {
    pub(crate) fn of<P: Platform>(object: &Object<P>) -> Option<Self> {
        let core = object.core()?;
        let mut antecedents = [0; ANTECEDENTS];
        core.antecedents(&mut antecedents);
        let closing = core.is_closing();
        Some(Self {
            kind: core.kind,
            id: object.address() as u64,
            number: core.number,
            state: if closing { ObjectState::Closing } else { object.snapshot_state() },
            holds: core.holds(),
            dependants: core.dependants(),
            antecedents,
            traffic: object.snapshot_traffic(),
            made: core.made,
            label: object.label(),
            closing,
        })
    }
}
