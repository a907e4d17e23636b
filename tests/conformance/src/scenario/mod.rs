//! Scenarios for fault injection: each loads the driver, uses one part of it, and unloads it again. A scenario stops at the
//! first call that fails, closes what there is, and says where it stopped and with which status; nothing in it takes
//! success for granted. So any allocation on the way may be made to fail, and what is left afterwards must be nothing.

mod connection;
mod miniport;
mod queue;
mod transfer;
mod uplink;
mod window;

use std::net::SocketAddr;

use kernel_host::ndis::adapter::StartError;
use kernel_host::{Kernel, LoadError, dispatcher};
use ndkpi_sys::ndis::NDIS_STATUS_RESOURCES;
use ndkpi_sys::ndkinfo::NDK_VERSION;
use ndkpi_sys::nt::{
    NTSTATUS, STATUS_CANCELLED, STATUS_CONNECTION_ABORTED, STATUS_CONNECTION_REFUSED, STATUS_INSUFFICIENT_RESOURCES,
};

use crate::consumer::{
    Adapter, CompletionQueue, Connector, Listener, Offer, ProtectionDomain, QueuePair, QueuePairShape, Started,
};
use crate::machine::{Setup, image, inx, wait_until_idle};
use crate::peers;

/// Where a scenario stopped, and the status that made it stop.
pub type Stop = (&'static str, NTSTATUS);

/// One scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    /// Of the first adapter, beside those of the setup.
    keywords: &'static [(&'static str, &'static str)],
    walk: fn(&[kernel_host::Adapter], &Setup) -> Result<(), Stop>,
}

/// Loads, starts two adapters, opens both, connects, transfers by every kind of memory, closes, unloads.
pub const TRANSFER: Scenario = Scenario::new("transfer", transfer::walk);

pub const SCENARIOS: &[Scenario] = &[
    Scenario::new("miniport", miniport::walk),
    TRANSFER,
    Scenario::new("queues", queue::walk),
    Scenario::new("windows", window::walk),
    Scenario::new("connections", connection::walk),
    Scenario::new("left-open", connection::leave_open),
    Scenario { keywords: uplink::KEYWORDS, ..Scenario::new("uplink", uplink::walk) },
];

impl Scenario {
    const fn new(name: &'static str, walk: fn(&[kernel_host::Adapter], &Setup) -> Result<(), Stop>) -> Self {
        Self { name, keywords: &[], walk }
    }

    /// Runs it on a booted kernel. `before_unload` is called while the image is still there, so that addresses have names.
    pub fn live(&self, kernel: &Kernel, setup: &Setup, before_unload: impl FnOnce()) -> Result<(), Stop> {
        let driver = match kernel.load_driver(image(), "softndk") {
            Ok(driver) => driver,
            Err(LoadError::DriverEntry(status)) => return Err(("DriverEntry", status)),
            Err(error) => panic!("{error}"),
        };
        let result = self.with_adapters(kernel, setup, &driver);
        before_unload();
        driver.unload();
        result
    }

    fn with_adapters(&self, kernel: &Kernel, setup: &Setup, driver: &kernel_host::Driver) -> Result<(), Stop> {
        let inx = inx();
        let mut adapters = Vec::new();
        let mut result = Ok(());
        for (number, adapter) in setup.adapters.iter().enumerate() {
            let keywords = if number == 0 { self.keywords } else { &[] };
            let config = adapter.config(&inx);
            let config = keywords.iter().fold(config, |config, (name, value)| config.with_keyword(name, value));
            match kernel.add_adapter(driver, config) {
                Ok(adapter) => adapters.push(adapter),
                Err(StartError::Initialize(status)) => {
                    result = Err(("MiniportInitializeEx", status));
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        if result.is_ok() {
            result = (self.walk)(&adapters, setup);
        }
        adapters.iter().for_each(kernel_host::Adapter::remove);
        result
    }
}

/// What a call may answer when memory is short. A connect that meets a peer without memory is refused or aborted.
pub fn is_clean(place: &str, status: NTSTATUS) -> bool {
    match status {
        STATUS_INSUFFICIENT_RESOURCES => true,
        STATUS_CONNECTION_REFUSED | STATUS_CONNECTION_ABORTED => {
            matches!(place, "Connect" | "Accept" | "CompleteConnect") || peers::across_streams()
        }
        // A call of a socket that fails ends its connection.
        STATUS_CANCELLED => peers::across_streams(),
        _ => status == NDIS_STATUS_RESOURCES,
    }
}

fn open(adapters: &[kernel_host::Adapter], setup: &Setup, index: usize) -> Result<Adapter, Stop> {
    let opened = adapters[index].open_ndk(NDK_VERSION { Major: 2, Minor: 0 });
    let opened = opened.map_err(|status| ("OpenNDKAdapter", status))?;
    let addresses = setup.adapters[index].addresses.iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
    Ok(Adapter::new(opened, addresses))
}

fn check(place: &'static str, status: NTSTATUS) -> Result<(), Stop> {
    if status == 0 { Ok(()) } else { Err((place, status)) }
}

/// Names the place where something could not be made.
fn at<T>(place: &'static str, made: Result<T, NTSTATUS>) -> Result<T, Stop> {
    made.map_err(|status| (place, status))
}

/// The objects of one side, each created only if all before it were.
struct Side {
    queue_pair: QueuePair,
    initiator: CompletionQueue,
    receive: CompletionQueue,
    domain: ProtectionDomain,
}

impl Side {
    fn new(adapter: &Adapter) -> Result<Self, Stop> {
        let domain = at("CreatePd", ProtectionDomain::new(adapter))?;
        let receive = at("CreateCq", CompletionQueue::new(adapter, 32))?;
        let initiator = at("CreateCq", CompletionQueue::new(adapter, 32))?;
        let shape = adapter.fit(QueuePairShape::default());
        let queue_pair = at("CreateQp", QueuePair::new(&domain, &receive, &initiator, shape))?;
        Ok(Self { queue_pair, initiator, receive, domain })
    }

    /// Waits for one initiator request.
    fn done(&self) -> Result<(), Stop> {
        check("a completion", self.initiator.wait_for_one().Status)
    }
}

/// Lets a request to connect come to its listener. An accept of TCP that has failed is repeated after a while.
fn let_arrive(listener: &Listener, connecting: &Started) {
    wait_until_idle();
    if listener.waiting() == 0 && !connecting.is_done() {
        dispatcher::delay(-2_000_000);
    }
}

/// The two connectors of a connection and the listener that it was made at, in the order in which they can be closed.
struct Connection {
    active: Connector,
    passive: Connector,
    listener: Listener,
}

impl Connection {
    fn new(first: &Adapter, near: &QueuePair, second: &Adapter, peer: &QueuePair) -> Result<Self, Stop> {
        let listener = at("CreateListener", Listener::new(second))?;
        check("Listen", listener.listen(second.address()))?;
        let active = at("CreateConnector", Connector::new(first))?;
        let offer = Offer::default();
        let connecting = active.begin_connect(near, first.address(), listener.local_address(), &offer);
        if connecting.inline() < 0 {
            return Err(("Connect", connecting.inline()));
        }
        let_arrive(&listener, &connecting);
        if listener.waiting() == 0 {
            // The passive side could not make a connector: refused before the consumer saw it.
            check("Connect", connecting.wait())?;
        }
        let passive = listener.next();
        let accepting = passive.begin_accept(peer, &offer);
        wait_until_idle();
        // It pends until the active side completes, unless it has failed.
        if accepting.inline() < 0 || accepting.is_done() && accepting.wait() < 0 {
            passive.close();
            let _ = connecting.wait();
            return Err(("Accept", accepting.wait()));
        }
        check("Connect", connecting.wait())?;
        check("CompleteConnect", active.begin_complete_connect().wait())?;
        check("Accept", accepting.wait())?;
        Ok(Self { active, passive, listener })
    }

    fn disconnect(self) -> Result<(), Stop> {
        let leaving = self.active.begin_disconnect();
        let _ = self.passive.wait_for_disconnect();
        check("Disconnect", self.passive.begin_disconnect().wait())?;
        check("Disconnect", leaving.wait())
    }
}
