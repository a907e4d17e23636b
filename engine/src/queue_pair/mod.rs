//! Queue pairs: posting, the requester, receive queues, and how a requester reaches the queue pair at the other end.
//!
//! May use `completion`, `memory`, `adapter`, `object` and the ground. A queue pair keeps the connector it is tied to as an
//! object of unknown kind, and tells it through its table that it has failed or drained.

mod alone;
#[cfg(feature = "delayed-transport")]
mod delayed;
mod local_request;
mod loopback;
mod pace;
pub(crate) mod pair;
mod plain;
pub(crate) mod posting;
pub(crate) mod receive_queue;
pub(crate) mod requester;
mod responder;
pub(crate) mod shared_receive_queue;
mod transport;
