//! A steppable world for tests of the engine: a platform of plain memory, and two consumers whose adapters reach each other.
//!
//! The smallest front end there can be: callbacks are numbers, consumer-visible objects count themselves, nothing happens until
//! [`World::run`] is called. Everything goes through the engine's public interface.

#![allow(clippy::new_without_default, clippy::must_use_candidate, reason = "made in tests only")]

mod events;
mod harness;
mod lock;
pub mod meanwhile;
mod memory;
mod network;
mod pair;
mod world;

pub use events::{Event, Events, Inside};
pub use harness::{ConsumerObject, Harness, HarnessCounters, PROCESSOR};
pub use lock::SpinLock;
pub use memory::{Buffer, Mapped};
pub use network::{MESSAGE_DELAY, Network, TcpListeningSocket, TcpSocket, Travel};
pub use pair::{A, ACCEPT, B, CLOSE, CONNECT, DISCONNECT, Depths, GONE, Pair, Side, outcomes, polled, sge};
pub use world::{EVERYTHING, FIRST, SECOND, World};
