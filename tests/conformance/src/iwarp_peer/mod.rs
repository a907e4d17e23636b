//! An iWARP peer that is scripted byte by byte, on plain sockets: the other side of a machine with the loaded image.
//!
//! It is a second opinion on the wire, written from the layouts of RFC 5044, 5041, 5040 and 6581: nothing here may use the crate
//! `softndk-iwarp`. It checks nothing that a script does not ask for except what makes a frame a frame, and builds wrong frames as
//! readily as right ones.
//!
//! | layer | module |
//! |---|---|
//! | MPA Request and Reply | [`start`] |
//! | MPA frames | [`frame`] |
//! | DDP and RDMAP | [`segment`], [`terminate`] |
//! | a connection of TCP | [`connection`] |
//! | the child with the machine, its lines and sockets | [`stage`] |

pub mod connection;
pub mod frame;
pub mod segment;
pub mod stage;
pub mod start;
pub mod terminate;

#[cfg(test)]
mod tests;

pub use connection::{PeerConnection, StreamEnd};
pub use segment::{ReadRequest, Segment, opcode, queue};
pub use stage::{Stage, play};
pub use start::{Enhanced, StartFrame, flag};
pub use terminate::{Code, Layout, Terminate};
