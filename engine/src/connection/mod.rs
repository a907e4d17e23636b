//! Connections: endpoints, listeners, connectors and the messages between two of these.
//!
//! May use every module below. [`Network`](network::Network) holds what a connection attempt looks through: the adapters of the
//! fabric and the endpoints in use.

pub(crate) mod connector;
pub(crate) mod endpoint;
pub(crate) mod listener;
pub(crate) mod loopback;
pub(crate) mod message;
pub(crate) mod network;
pub(crate) mod peer;
pub(crate) mod port;
pub(crate) mod shared_endpoint;
pub(crate) mod stream;
