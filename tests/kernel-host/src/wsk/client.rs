//! A registered client: captures of the provider, NDK adapters it has open, its sockets and requests.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard};

use crate::dispatcher::Event;
use crate::host_lock::HostLock;
use crate::image::Image;
use crate::ndis::loan::Loan;
use crate::ndis::rule::{Group, broken};

pub(super) const REGISTERED: u64 = 0x4B53_5752;

/// The image sees the address of the loan and nothing behind it.
pub(super) struct Client {
    handle: Loan<u64>,
    /// Who has registered.
    pub(super) image: Option<Arc<Image>>,
    state: HostLock<ClientState>,
    /// Something that a deregistration waits for has come down.
    less: Event,
}

// SAFETY: the loan is an address that is only compared.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

#[derive(Default)]
struct ClientState {
    captured: usize,
    adapters: Vec<usize>,
    /// Sockets that are not closed, or whose close has not completed.
    sockets: usize,
    /// Packets that have not been completed.
    requests: usize,
}

/// Clients by their registration.
static CLIENTS: HostLock<Option<HashMap<usize, Arc<Client>>>> = HostLock::new(None);

fn clients() -> MutexGuard<'static, Option<HashMap<usize, Arc<Client>>>> {
    CLIENTS.lock()
}

/// Registers a client; false when the registration is in use.
pub(super) fn register(registration: usize) -> bool {
    let client = Client {
        handle: Loan::new(REGISTERED),
        image: crate::callout::caller_image(),
        state: HostLock::default(),
        less: Event::notification(),
    };
    clients().get_or_insert_default().insert(registration, Arc::new(client)).is_none()
}

pub(super) fn remove(registration: usize) {
    clients().get_or_insert_default().remove(&registration);
}

pub(super) fn client_of(registration: usize, function: &str) -> Arc<Client> {
    let found = clients().get_or_insert_default().get(&registration).cloned();
    found.unwrap_or_else(|| broken(Group::Netio, registration, format!("{function}: no registered WSK client")))
}

/// The client of a handle, which has captured the provider.
pub(super) fn captured_by(handle: usize, function: &str) -> Arc<Client> {
    let client = client_at(handle, function);
    if client.state().captured == 0 {
        client.not_captured(function);
    }
    client
}

pub(super) fn client_at(handle: usize, function: &str) -> Arc<Client> {
    let found = clients().get_or_insert_default().values().find(|client| client.address() == handle).cloned();
    found.unwrap_or_else(|| broken(Group::Netio, handle, format!("{function}: no WSK client (deregistered?)")))
}

impl Client {
    pub(super) fn address(&self) -> usize {
        self.handle.as_pointer() as usize
    }

    fn state(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock()
    }

    fn not_captured(&self, function: &str) -> ! {
        broken(Group::Netio, self.address(), format!("{function} is called without a captured provider"))
    }

    pub(super) fn capture(&self) {
        self.state().captured += 1;
    }

    /// Lets one capture go.
    pub(super) fn release(&self) {
        let mut state = self.state();
        let captured = state.captured.checked_sub(1);
        state.captured = captured.unwrap_or(0);
        drop(state);
        if captured.is_none() {
            self.not_captured("WskReleaseProviderNPI");
        }
        self.less.set();
    }

    pub(super) fn opened(&self, adapter: usize) {
        self.state().adapters.push(adapter);
    }

    /// The adapter is not open any more; false when it was not.
    pub(super) fn forget(&self, adapter: usize) -> bool {
        let mut state = self.state();
        let found = state.adapters.iter().position(|open| *open == adapter);
        found.map(|index| state.adapters.swap_remove(index)).is_some()
    }

    pub(super) fn request_begins(&self) {
        self.state().requests += 1;
    }

    pub(super) fn request_ends(&self) {
        self.state().requests -= 1;
        self.less.set();
    }

    pub(super) fn socket_begins(&self) {
        self.state().sockets += 1;
    }

    pub(super) fn socket_ends(&self) {
        self.state().sockets -= 1;
        self.less.set();
    }

    fn wait_until(&self, is_so: impl Fn(&ClientState) -> bool) {
        loop {
            {
                let state = self.state();
                if is_so(&state) {
                    return;
                }
                self.less.reset();
            }
            self.less.wait(None);
        }
    }

    /// Waits until the provider is not captured; the adapters that are open then.
    pub(super) fn wait_until_released(&self) -> Vec<usize> {
        self.wait_until(|state| state.captured == 0);
        self.state().adapters.clone()
    }

    /// Waits until every socket's close has completed, and every packet.
    pub(super) fn wait_until_idle(&self) {
        self.wait_until(|state| state.sockets == 0 && state.requests == 0);
    }
}
