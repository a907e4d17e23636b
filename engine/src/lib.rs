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

mod access;
mod adapter;
mod allowance;
mod arming;
mod capacity;
mod completion_queue;
mod connector;
mod endpoint;
mod error;
mod event;
mod fabric;
mod flags;
pub mod limits;
mod listener;
mod loopback;
mod mapping;
mod memory_region;
mod memory_window;
mod object;
mod open;
mod platform;
mod protection_domain;
mod queue_pair;
mod receive_queue;
mod requester;
mod rings;
mod run_queue;
mod semantics;
mod shared_endpoint;
mod shared_receive_queue;
mod snapshot;
mod statistics;
mod timeouts;
mod timer;
mod token;
mod transfer;
mod wire;

pub use adapter::{Adapter, AdapterAddress, AdapterSettings};
pub use completion_queue::{Arm, Completion, CompletionQueue};
pub use connector::{Accept, Connect, ConnectionData, Connector, ReadLimits, Source};
pub use error::{
    ConnectError, CreateError, DisconnectReason, ModerationError, Outcome, PostError, QueueFailure, RegionError,
    Requested, ResizeError,
};
pub use event::{
    Arrival, Budget, Close, CloseCompletion, Closed, ConnectEvent, Deregistered, DisconnectEvent, Notification, Pass,
    RequestCompletion, Retired, Sink,
};
pub use fabric::Fabric;
pub use flags::{Operation, RequestFlags, Rights};
pub use limits::Limits;
pub use listener::Listener;
pub use mapping::{LogicalMapping, Releasing, StillCopied};
pub use memory_region::{MemoryRegion, Registration};
pub use memory_window::MemoryWindow;
pub use object::Hold;
pub use open::Open;
pub use platform::{Lock, Memory, Platform};
pub use protection_domain::ProtectionDomain;
pub use queue_pair::{FastRegistration, QueuePair, QueuePairSettings};
pub use semantics::Semantics;
pub use shared_endpoint::SharedEndpoint;
pub use shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueSettings};
pub use snapshot::{ANTECEDENTS, ConnectionEntry, EndpointEntry, ObjectKind, ObjectSnapshot, ObjectState};
pub use softndk_cells::{NoMemory, Shared};
pub use statistics::Counters;
pub use timeouts::Timeouts;
pub use token::{LogicalAddress, MemoryToken, Sge};
