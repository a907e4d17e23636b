//! TCP/IP on a miniport, bound to it as a protocol driver is: ARP, neighbour discovery, echo, UDP and TCP in Ethernet frames that
//! the miniport sends and indicates. The protocols are smoltcp's; this module is what tcpip.sys is around them.
//!
//! - `engine`, `listeners` and `queues` are the protocols: data and time in, data out.
//! - A service run polls them and sends what they have, on a DPC or a worker thread of the host, never inside an indication unless
//!   [`StackConfig::reentrant`] asks for it. One run at a time, so that frames stay in order.
//! - The next deadline of the protocols is one of the host's clock: with virtual time, a retransmission comes as soon as everything
//!   waits.
//! - `calls` are the calls of tests, which block as threads of the kernel do. Sockets of Winsock Kernel come from
//!   `wsk::network::frames`.
//!
//! No lock of the stack is held while a miniport or a client of WSK is called.

mod bound;
mod calls;
mod engine;
mod groups;
mod indicated;
mod listeners;
mod queues;
mod sending;
mod service;

use std::sync::atomic::{AtomicBool, Ordering};

pub use bound::TcpIpStack;
pub(crate) use bound::{addresses_changed, bind, bound_to_table, deadline, route, unbind};
pub use calls::{StackError, StackPort, StackStream, StackUdp};
pub(crate) use engine::{Handshake, ReadOutcome};
pub use indicated::IndicationCounts;
pub(crate) use listeners::ListenerId;
pub(crate) use smoltcp::iface::SocketHandle as ConnectionHandle;

use crate::inf::InterfaceAddress;

/// Ethernet header: two addresses and a type.
const HEADER: usize = 14;

/// A stack gets frames that pass, and sends only such: false loses the frame.
pub type FrameFilter = Box<dyn FnMut(FrameDirection, &[u8]) -> bool + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameDirection {
    Received,
    Sent,
}

/// How a stack is bound.
#[derive(Clone, Debug, Default)]
pub struct StackConfig {
    /// The addresses of another machine, for the far end of a test's wire. `None`: those of the interface in the host's table, and
    /// sockets of Winsock Kernel use the stack.
    pub foreign: Option<Vec<InterfaceAddress>>,
    /// Answers are sent inside the indication that brings a frame, as tcpip.sys may: for measuring the depth of stacks.
    pub reentrant: bool,
}

static ENABLED: AtomicBool = AtomicBool::new(false);

/// Whether adapters get a stack when they start.
pub(crate) fn configure(enabled: bool) {
    ENABLED.store(enabled, Ordering::SeqCst);
}

pub(crate) fn is_enabled() -> bool {
    ENABLED.load(Ordering::SeqCst)
}
