//! The stacks that are bound, each to one miniport: binding and unbinding, their addresses, and the way to another machine.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use smoltcp::wire::{IpAddress, IpCidr};

use super::engine::Engine;
use super::indicated::KeptLists;
use super::service::{Deadlines, Runs};
use super::{FrameFilter, StackConfig, groups};
use crate::dispatcher;
use crate::host_lock::HostLock;
use crate::inf::InterfaceAddress;
use crate::ndis::gate::Gate;
use crate::ndis::miniport::{Miniport, lock};
use crate::netio;
use crate::netio::address_table::DetectionState;
use crate::wsk::{self, chance};

/// TCP/IP bound to a miniport.
pub struct TcpIpStack {
    pub(super) id: usize,
    pub(super) if_index: u32,
    pub(super) miniport: Weak<Miniport>,
    pub(super) config: StackConfig,
    pub(super) engine: HostLock<Engine>,
    pub(super) filter: Mutex<Option<FrameFilter>>,
    pub(super) runs: Mutex<Runs>,
    pub(super) deadlines: Mutex<Deadlines>,
    pub(super) kept: Mutex<KeptLists>,
    /// Service runs; shut when the stack is unbound.
    pub(super) bound: Gate,
}

static STACKS: Mutex<Vec<Arc<TcpIpStack>>> = Mutex::new(Vec::new());
static NEXT: AtomicUsize = AtomicUsize::new(1);

fn all() -> Vec<Arc<TcpIpStack>> {
    lock(&STACKS).clone()
}

/// Binds a stack to a miniport, in place of the one that is bound to it. PASSIVE_LEVEL.
pub(crate) fn bind(miniport: &Arc<Miniport>, config: StackConfig) -> Arc<TcpIpStack> {
    unbind(miniport);
    let (mac, mtu) = miniport.general().map_or(([0; 6], 0), |general| (general.current_mac, general.mtu as usize));
    let seed = chance::below(1 << 31) as u64;
    let stack = Arc::new(TcpIpStack {
        id: NEXT.fetch_add(1, Ordering::Relaxed),
        if_index: miniport.if_index,
        miniport: Arc::downgrade(miniport),
        config,
        engine: HostLock::new(Engine::new(mac, mtu, seed, dispatcher::now())),
        filter: Mutex::new(None),
        runs: Mutex::new(Runs::default()),
        deadlines: Mutex::new(Deadlines::default()),
        kept: Mutex::new(KeptLists::default()),
        bound: Gate::default(),
    });
    lock(&STACKS).push(Arc::clone(&stack));
    stack.update_addresses();
    miniport.data.bind_stack(Some(Arc::clone(&stack)));
    wsk::stacks_changed();
    stack
}

/// Unbinds the stack of a miniport: its connections break, and nothing is sent. PASSIVE_LEVEL.
pub(crate) fn unbind(miniport: &Miniport) {
    let Some(stack) = miniport.data.bind_stack(None) else { return };
    lock(&STACKS).retain(|other| !Arc::ptr_eq(other, &stack));
    stack.bound.shut();
    stack.disarm();
    stack.engine.lock().shut();
    stack.wake_all();
    wsk::frames_processed(&stack);
    wsk::stacks_changed();
    miniport.data.return_kept_by_stack(miniport);
}

/// The addresses of an interface are others now. PASSIVE_LEVEL.
pub(crate) fn addresses_changed(if_index: u32) {
    let of_interface = |stack: &&Arc<TcpIpStack>| stack.if_index == if_index && stack.config.foreign.is_none();
    let stacks = all();
    let mut found = stacks.iter().filter(of_interface).peekable();
    if found.peek().is_none() {
        return;
    }
    found.for_each(|stack| stack.update_addresses());
    wsk::stacks_changed();
}

/// The clock has come to a deadline of a stack.
pub(crate) fn deadline(id: usize) {
    if let Some(stack) = all().into_iter().find(|stack| stack.id == id) {
        stack.notify();
    }
}

/// The stacks whose addresses are the host's.
pub(crate) fn bound_to_table() -> Vec<Arc<TcpIpStack>> {
    all().into_iter().filter(|stack| stack.config.foreign.is_none()).collect()
}

/// The stack and the address of this host from which an address is reached on the link.
pub(crate) fn route(remote: IpAddr) -> Option<(Arc<TcpIpStack>, IpAddr)> {
    bound_to_table().into_iter().find_map(|stack| {
        let own = stack.addresses();
        let near = own.iter().find(|own| {
            own.address.is_ipv4() == remote.is_ipv4()
                && IpCidr::new(own.address.into(), own.prefix_length).contains_addr(&IpAddress::from(remote))
        });
        near.map(|own| (Arc::clone(&stack), own.address))
    })
}

impl TcpIpStack {
    /// The addresses of the stack that may be used.
    #[must_use]
    pub fn addresses(&self) -> Vec<InterfaceAddress> {
        if let Some(foreign) = &self.config.foreign {
            return foreign.clone();
        }
        let usable = |detection| matches!(detection, DetectionState::Preferred | DetectionState::Deprecated);
        let rows = netio::table().rows().into_iter();
        rows.filter(|row| row.if_index == self.if_index && usable(row.detection)).map(|row| row.address).collect()
    }

    fn update_addresses(&self) {
        let addresses = self.addresses();
        self.engine.lock().set_addresses(&addresses);
        if let Some(miniport) = self.miniport.upgrade() {
            groups::set(&miniport, &addresses);
        }
    }

    pub(crate) fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock()
    }

    /// Loses frames from now on, in either direction, or none any more.
    pub fn set_filter(&self, filter: Option<FrameFilter>) {
        *lock(&self.filter) = filter;
    }

    /// Every thread that waits for a socket checks its condition.
    pub(super) fn wake_all(&self) {
        let (_, waiters) = self.engine.lock().poll(dispatcher::now());
        for waiter in waiters {
            waiter.set();
        }
    }
}

impl std::fmt::Debug for TcpIpStack {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TcpIpStack").field("if_index", &self.if_index).finish_non_exhaustive()
    }
}
