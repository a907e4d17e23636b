//! The driver's objects, as both versions of the interface use them. What a version is in the way of arguments and statuses is in
//! [`crate::v1`] and [`crate::v2`].

pub mod adapter;
pub mod completion_queue;
pub mod connector;
pub mod listener;
pub mod memory_region;
pub mod memory_window;
pub mod provider;
pub mod queue_pair;
pub mod request_queue;
pub mod resource;
pub mod shared_receive_queue;

pub use resource::Resource;
