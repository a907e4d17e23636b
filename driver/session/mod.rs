//! The driver's own consumer: connection pairs and transfers asked for over the control device.
//!
//! It uses the dispatch tables as a foreign consumer would: through the objects' `Dispatch`, with completions and events, and
//! with memory lists of its own. NDIS does not know about its opens, so HaltEx and the end of NDK on an adapter end its pairs
//! first, without waiting for user mode.

pub mod consumer;
pub mod cursor;
pub mod memcpy;
pub mod memory;
pub mod pair;
pub mod replay;
pub mod request;
pub mod table;
pub mod transfer;
pub mod worker;
