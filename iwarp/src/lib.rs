//! The wire of softndk: iWARP (RFC 5040, 5041, 5044, 6581) as bytes and messages.
//!
//! Bytes go in in any cut, and messages come out; messages go in, and bytes come out. There is no socket, no clock, and no allocation
//! after a [`Stream`] is made. No unsafe code, but for one instruction in [`crc`]. Nothing here knows of memory, queue pairs or consumers.
//!
//! | layer | module | unit |
//! |---|---|---|
//! | MPA start-up | [`start`], [`negotiation`] | one Request, one Reply |
//! | MPA | [`frame`], [`crc`] | frames: length, payload, padding, CRC |
//! | DDP and RDMAP | [`segment`] | one segment a frame |
//! | messages | [`inbound`], [`outbound`] | order, numbers, continuity |
//! | one end of a stream | [`stream`], with [`ring`] and [`hold`] | everything above, both ways |
//! | ends | [`terminate`] | layer, type and code |
//!
//! Rules: a peer is hostile. Each length is checked before it is used, no input panics, and a frame is handed on only after its CRC
//! has been checked. Names of fields are the RFCs': STag, tagged offset, queue number, message sequence number (MSN), message offset.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

pub mod crc;
pub mod frame;
pub mod hold;
pub mod inbound;
pub mod negotiation;
pub mod outbound;
pub mod ring;
pub mod segment;
pub mod start;
pub mod stream;
pub mod terminate;

mod bounded;
mod bytes;

pub use frame::{Frame, FrameReader};
pub use inbound::{Inbound, Message};
pub use negotiation::{Agreement, ReadLimits, ReadyToReceive, Refusal};
pub use outbound::{Outbound, Piece};
pub use segment::Segment;
pub use start::{StartFault, StartFrame, StartKind, StartReader};
pub use stream::{End, Event, Owner, Stream};
pub use terminate::{Code, Terminate};
