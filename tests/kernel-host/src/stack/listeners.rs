//! Ports of a stack that take connections. A socket of smoltcp becomes the connection that it takes, so each port keeps one that
//! listens.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, State};

use super::engine::{Engine, new_connection};
use crate::dispatcher::Time;

/// Connections of one port that are not accepted; more are refused.
const BACKLOG: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListenerId(u64);

struct StackListener {
    address: SocketAddr,
    listening: Option<SocketHandle>,
    opening: Vec<SocketHandle>,
    ready: VecDeque<SocketHandle>,
}

#[derive(Default)]
pub(super) struct Listeners {
    by_id: BTreeMap<ListenerId, StackListener>,
    next: u64,
}

impl StackListener {
    fn fill(&mut self, sockets: &mut SocketSet<'static>) {
        let state = |sockets: &SocketSet<'static>, handle| sockets.get::<Socket>(handle).state();
        self.opening.extend(self.listening.take_if(|handle| state(sockets, *handle) != State::Listen));
        for handle in std::mem::take(&mut self.opening) {
            match state(sockets, handle) {
                State::SynReceived => self.opening.push(handle),
                // A reset before the connection was open: smoltcp listens again.
                State::Listen | State::Closed => drop(sockets.remove(handle)),
                _ => self.ready.push_back(handle),
            }
        }
        if self.listening.is_none() && self.opening.len() + self.ready.len() < BACKLOG {
            let mut socket = new_connection();
            if socket.listen(self.address).is_ok() {
                self.listening = Some(sockets.add(socket));
            }
        }
    }
}

impl Listeners {
    /// Gives every port a socket that listens.
    pub(super) fn fill(&mut self, sockets: &mut SocketSet<'static>) {
        self.by_id.values_mut().for_each(|listener| listener.fill(sockets));
    }
}

impl Engine {
    /// Takes connections to an address of the stack; `None` when that is taken.
    pub(crate) fn listen(&mut self, address: SocketAddr) -> Option<ListenerId> {
        if self.listeners.by_id.values().any(|listener| listener.address == address) {
            return None;
        }
        self.listeners.next += 1;
        let id = ListenerId(self.listeners.next);
        let mut listener = StackListener { address, listening: None, opening: Vec::new(), ready: VecDeque::new() };
        listener.fill(&mut self.sockets);
        self.listeners.by_id.insert(id, listener);
        Some(id)
    }

    /// The connection that has waited longest.
    pub(crate) fn accept(&mut self, id: ListenerId) -> Option<SocketHandle> {
        self.listeners.by_id.get_mut(&id)?.ready.pop_front()
    }

    /// The address takes no connections any more; those that were not accepted are broken.
    pub(crate) fn stop_listening(&mut self, id: ListenerId, now: Time) {
        let Some(listener) = self.listeners.by_id.remove(&id) else { return };
        let handles = listener.listening.into_iter().chain(listener.opening).chain(listener.ready);
        for handle in handles {
            self.abort(handle);
            self.release(handle, now);
        }
    }
}
