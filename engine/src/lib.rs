//! The RDMA engine of softndk: completion queues, queue pairs, memory regions, logical mappings, connections.
//!
//! The engine is the whole meaning of an RDMA adapter as a library without unsafe code. Inputs are calls; outputs come from
//! [`Fabric::service_pass`]. It depends on neither NDIS nor pointers nor NTSTATUS, has no threads, and makes no callback inside
//! a call.
//!
//! Start with [`Fabric`], then [`Adapter`], [`Open`]; `engine/README.md` is the tour.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod adapter;
mod blocks;
mod capacity;
mod change;
mod completion;
mod connection;
mod counters;
mod error;
mod fabric;
mod flags;
pub mod limits;
mod memory;
mod object;
mod platform;
mod private_data;
mod queue_pair;
mod semantics;
mod stream;
mod token;

pub use adapter::adapter::{AdapterAddress, AdapterSettings, LogicalPages, StreamCrc, Transport};
pub use adapter::timeouts::Timeouts;
pub use change::{ConnectionCause, ConnectionChange, ConnectionRecord, Terminate};
pub use completion::completion_queue::{Arm, Completion, CompletionQueue, TERMINATED};
pub use connection::connector::{Accept, Arrival, Connect, ConnectEvent, ConnectionData, Connector, Source};
pub use connection::listener::Listener;
pub use connection::message::ReadLimits;
pub use connection::shared_endpoint::SharedEndpoint;
pub use counters::Counters;
pub use error::{
    AccessFault, ConnectError, CreateError, DisconnectReason, ModerationError, Outcome, PostError, QueueFailure,
    RegionError, Requested, ResizeError,
};
pub use fabric::Fabric;
pub use fabric::adapter::Adapter;
pub use fabric::open::Open;
pub use flags::{Operation, RequestFlags, Rights};
pub use limits::Limits;
pub use memory::mapping::{LogicalMapping, Releasing, StillCopied};
pub use memory::memory_region::{MemoryRegion, Pages, Registration};
pub use memory::memory_window::MemoryWindow;
pub use memory::protection_domain::ProtectionDomain;
pub use object::event::{
    Budget, Close, CloseCompletion, Closed, Deregistered, DisconnectEvent, Notification, Pass, RequestCompletion,
    Retired, Sink,
};
pub use object::header::Hold;
pub use object::snapshot::{ANTECEDENTS, ConnectionEntry, EndpointEntry, ObjectKind, ObjectSnapshot, ObjectState};
pub use object::waker::Waker;
pub use platform::socket::{Arrived, ListenState, ListeningSocket, Socket};
pub use platform::{Lock, Memory, Platform};
pub use queue_pair::pair::{QueuePair, QueuePairSettings};
pub use queue_pair::posting::FastRegistration;
pub use queue_pair::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueSettings};
pub use semantics::Semantics;
pub use softndk_cells::{NoMemory, Shared};
pub use token::{LogicalAddress, MemoryToken, Sge};
