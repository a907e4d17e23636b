//! Queue pairs: posting, the work of a queue pair, the two ways to a peer, receive queues, and what a peer's requests do here.
//!
//! May use `completion`, `memory`, `adapter`, `object` and the ground. A queue pair keeps the connector it is tied to as an
//! object of unknown kind, and reports through its table that it has failed or drained.

mod local;
mod message;
pub(crate) mod pair;
pub(crate) mod peer;
pub(crate) mod posting;
pub(crate) mod receive_queue;
mod registration;
pub(crate) mod request;
pub(crate) mod requester;
mod responder;
pub(crate) mod shared_receive_queue;
mod stream;
mod work;
