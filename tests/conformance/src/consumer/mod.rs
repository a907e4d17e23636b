//! A kernel consumer of NDK, written from the contract alone.
//!
//! It calls the provider through the dispatch tables, never looks into its memory, keeps to the rules of serialisation,
//! and checks at every call what the contract promises a consumer: completions exactly once if and only if the call
//! pended, callbacks outside of dispatch functions and one at a time, complete objects. It is as demanding as a legal
//! consumer can be: scatter/gather lists, page arrays and memory lists are overwritten when the call is over, `Dispatch` and
//! the reserved block of every object are taken over, addresses of memory mean nothing in this process.

mod adapter;
mod border;
mod buffer;
pub mod completion;
mod completion_queue;
mod connection;
mod memory_window;
mod object;
mod pair;
mod protection_domain;
mod queue_pair;
pub mod refusals;
mod shared_endpoint;
mod shared_receive_queue;
mod signal;
mod window;

pub use adapter::Adapter;
pub use buffer::{Buffer, MemoryList, pattern, sge};
pub use completion::Started;
pub use completion_queue::CompletionQueue;
pub use connection::{ConnectionData, Connector, Listener, Offer, SocketAddress};
pub use memory_window::MemoryWindow;
pub use object::{NdkObject, Object};
pub use pair::{End, Pair, establish};
pub use protection_domain::{Mapping, MemoryRegion, ProtectionDomain};
pub use queue_pair::{FastRegistration, QueuePair, QueuePairShape, Remote};
pub use shared_endpoint::SharedEndpoint;
pub use shared_receive_queue::{SharedReceiveQueue, SharedShape};
pub use signal::Signal;
pub use window::{Window, WindowKind, register_fast};
