//! Scenarios: what the contract asks of the engine, through its public interface, one module for each part of the contract.
//!
//! One binary, because the engine is generic: each binary would compile all of it again.

mod access;
mod access_causes;
mod allocation;
mod bounded;
mod closing;
mod connection;
mod connection_table;
mod crossing;
mod disposal;
mod endpoint;
// Two contexts inside of one call: of a peer at hand.
#[cfg(not(feature = "streams"))]
mod hand_shake;
mod interleaving;
mod limits;
mod listing;
mod memory_window;
mod notification;
mod race;
mod second_access;
mod semantics;
mod shared_receive;
#[cfg(feature = "streams")]
mod stream;
#[cfg(feature = "streams")]
mod stream_peers;
#[cfg(feature = "streams")]
mod stream_start;
mod timeout;
mod transfer;
