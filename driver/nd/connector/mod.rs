//! Connectors: one end of a connection of a process.
//!
//! A connector is a state machine (`state`, `machine`, `effects`) behind a lock. It is driven by the requests of the process
//! (`requests`, `connect`, `disconnect`), by the listener that hands a connection over, and by what the engine reports
//! (`late_call`). Each of them is an event; `carry_out` does what the event leaves to do, with no lock held.
//!
//! The engine's connector is made when the process connects, or comes with the connection that a listener hands over. An attempt
//! that is cancelled takes it along, and the next one gets a new one. The driver itself answers the peer's end: the requests that
//! wait for it complete, and the engine's connector disconnects, so that the peer's Disconnect does not wait for the process.

mod carry_out;
mod connect;
mod disconnect;
mod effects;
mod late_call;
mod machine;
mod requests;
mod state;

use ndkpi_sys::nt::{NTSTATUS, STATUS_CANCELLED, STATUS_CONNECTION_INVALID};
use softndk_cells::Shared;
use softndk_engine::{Arrival, Connector as EngineConnector};
use softndk_kernel::spin_lock::SpinLock;

use self::{
    carry_out::carry_out,
    effects::{ConnectorEffects, Proceed},
    machine::{ConnectorEvent, ConnectorMachine},
    state::{ConnectorState, MachineTypes, PendedRequest},
};
use super::{
    account::Charge,
    adapter::OpenedAdapter,
    context::AdapterLife,
    endpoint::Endpoint,
    object::{Closable, consumer_object, handle_kind},
    pending::{Pended, PendingList},
    queue_pair::QueuePair,
    request::Cancellable,
};
use crate::runtime::platform::{CancelledRequest, KernelPlatform, UserModeObject};

pub use connect::{accept, complete_connect, connect, reject};
pub use disconnect::{disconnect, notify_disconnect};
pub use requests::{bind, create, local_address, peer_address, plain_private_data, private_data, read_limits};

/// The driver's objects in the machine.
enum KernelTypes {}

impl MachineTypes for KernelTypes {
    type Engine = EngineConnector<KernelPlatform>;
    type QueuePair = Shared<QueuePair>;
    type Endpoint = Shared<Endpoint>;
    type Request = Pended;
}

impl PendedRequest for Pended {
    fn is_cancelled(&self) -> bool {
        Self::is_cancelled(self)
    }
}

pub struct Connector {
    adapter: Shared<OpenedAdapter>,
    guarded: SpinLock<Guarded>,
    /// What the process is charged for it.
    _charge: Option<Charge>,
}

/// What the connector's lock guards.
struct Guarded {
    machine: ConnectorMachine<KernelTypes>,
    /// The requests that wait for the end of the connection. They outlast an attempt that fails.
    notifies: PendingList,
}

/// Which requests are cancelled.
#[derive(Clone, Copy)]
enum Selection {
    All,
    OfFile(u64),
    One(CancelledRequest),
}

impl Selection {
    fn has(self, pended: &Pended) -> bool {
        match self {
            Self::All => true,
            Self::OfFile(file) => pended.file() == file,
            Self::One(request) => pended.is(request),
        }
    }

    fn take_from(self, list: &mut PendingList) -> PendingList {
        match self {
            Self::All => list.take_all(),
            Self::OfFile(file) => list.take_of_file(file),
            Self::One(request) => {
                let mut taken = PendingList::new();
                if let Some(pended) = list.take_cancelled(request) {
                    taken.add(pended);
                }
                taken
            }
        }
    }
}

impl Connector {
    fn new(adapter: Shared<OpenedAdapter>, charge: Option<Charge>) -> Self {
        let machine = ConnectorMachine::new(ConnectorState::Idle { engine: None }, None);
        let guarded = SpinLock::new(Guarded { machine, notifies: PendingList::new() });
        Self { adapter, guarded, _charge: charge }
    }

    /// Reads the machine under the lock.
    fn with_machine<R>(&self, read: impl FnOnce(&ConnectorMachine<KernelTypes>) -> R) -> R {
        read(&self.guarded.lock().machine)
    }

    /// The engine's connector, of an attempt or connection.
    fn engine(&self) -> Result<EngineConnector<KernelPlatform>, NTSTATUS> {
        self.with_machine(|machine| machine.state().engine().cloned()).ok_or(STATUS_CONNECTION_INVALID)
    }

    fn queue_pair(&self) -> Option<Shared<QueuePair>> {
        self.with_machine(|machine| machine.state().queue_pair().cloned())
    }

    fn next_number(&self) -> u64 {
        self.guarded.lock().machine.next_number()
    }

    /// An event and its effects: what the call goes on with. No lock held.
    #[inline(never)]
    fn process(&self, event: ConnectorEvent<KernelTypes>) -> Result<Proceed<KernelTypes>, NTSTATUS> {
        let (effects, notified) = {
            let mut guarded = self.guarded.lock();
            let effects = guarded.machine.on(event);
            let notified = effects.notified.map(|status| (guarded.notifies.take_all(), status));
            (effects, notified)
        };
        carry_out(effects, notified)
    }

    /// Cancels the requests of a selection.
    fn cancel(&self, selection: Selection) {
        let (effects, notified) = {
            let mut guarded = self.guarded.lock();
            let is_meant = guarded.machine.state().request().is_some_and(|request| selection.has(request));
            let effects = if is_meant { guarded.machine.on(ConnectorEvent::Cancel) } else { ConnectorEffects::none() };
            (effects, Some((selection.take_from(&mut guarded.notifies), STATUS_CANCELLED)))
        };
        let _cancelled = carry_out(effects, notified);
    }

    /// Reserves it for a request of a listener.
    pub fn reserve(&self) -> Result<(), NTSTATUS> {
        self.process(ConnectorEvent::Reserve).map(|_reserved| ())
    }

    pub fn unreserve(&self) {
        let _free = self.process(ConnectorEvent::Unreserve);
    }
}

/// Hands an arrived connection to a connector that waits for one; it comes back where that does not any more.
/// `IRQL <= DISPATCH_LEVEL`.
pub fn take_arrival(
    connector: &Shared<Connector>,
    arrival: Arrival<KernelPlatform>,
) -> Result<(), Arrival<KernelPlatform>> {
    if !connector.with_machine(ConnectorMachine::is_reserved) {
        return Err(arrival);
    }
    // Reserved until the event: meanwhile no other request gets it.
    let engine = arrival.adopt(consumer_object(connector));
    let _arrived = connector.process(ConnectorEvent::Arrive { engine });
    Ok(())
}

handle_kind!(Connector);

impl UserModeObject for Shared<Connector> {
    fn cancelled(&self, request: CancelledRequest) {
        self.cancel(Selection::One(request));
    }
}

impl Cancellable for Connector {
    fn cancel_all(&self) {
        self.cancel(Selection::All);
    }
}

impl Closable for Shared<Connector> {
    fn close(&self, status: NTSTATUS) {
        let _closed = self.process(ConnectorEvent::Close { status });
    }

    fn end_file(&self, file: u64) {
        self.cancel(Selection::OfFile(file));
    }

    fn end_connection(&self) {
        let _ended = self.process(ConnectorEvent::MemoryLeaves);
    }

    fn adapter(&self) -> &AdapterLife {
        &self.adapter.life
    }

    fn bound_to(&self) -> Option<(Shared<Endpoint>, bool)> {
        self.with_machine(|machine| machine.endpoint().cloned()).map(|endpoint| (endpoint, false))
    }
}
