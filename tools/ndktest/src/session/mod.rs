//! The consumer: connection pairs, transfers and scripts asked for over the control device.
//!
//! Everything goes through the objects' `Dispatch`, with completions and events, and with memory lists of its own. No one tells a
//! consumer that NDK goes off on an adapter: its connections end, which the disconnect event says, and the pair is then closed by a
//! thread of this driver ([`closer`]), without waiting for user mode, because the provider's end of NDK waits for it.

pub mod closer;
pub mod consumer;
pub mod cursor;
pub mod measure;
pub mod memcpy;
pub mod memory;
pub mod object;
pub mod pair;
pub mod replay;
pub mod request;
pub mod table;
pub mod transfer;
pub mod worker;
