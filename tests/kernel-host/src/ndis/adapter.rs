//! An adapter as a test or a tool sees it: a device with a driver key, an interface with addresses, and, while it is started, a
//! miniport. This is where the steps of [`super::life_cycle`] become what plug and play, power management and the protocols above do.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ndkpi_sys::ndkinfo::NDK_VERSION;

use super::attributes::General;
use super::data_path::Frame;
use super::life_cycle::{self, DeviceEvent, HaltAction, StepError};
use super::miniport::{Miniport, MiniportState, lock};
use super::oid_request::{OidAnswer, OidKind};
use super::registration::{MiniportDriver, driver_of};
use super::rule::{Group, broken};
use super::{NdisStatus, oid, status};
use crate::inf::{AdapterConfig, InterfaceAddress};
use crate::kernel::{Driver, Kernel};
use crate::ndk::{self, ConsumerRegistration, NdkAdapter};
use crate::netio::address_table::{DetectionState, InterfaceLuid};
use crate::netio::notification::{Change, announce};
use crate::netio::table;
use crate::stack::{self, StackConfig, TcpIpStack};
use crate::status::NtStatus;

/// Why an adapter was not added or started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartError {
    /// The driver has not registered itself as a miniport driver.
    NoMiniportDriver,
    /// The INF lacks this keyword; the device is installed, but `MiniportInitializeEx` is never called.
    MissingKeyword(&'static str),
    /// The given interface index is taken.
    InterfaceIndexTaken,
    /// The adapter is started already.
    Started,
    /// `MiniportInitializeEx` failed.
    Initialize(NdisStatus),
    /// `MiniportRestart` failed; the adapter was halted again.
    Restart(StepError),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoMiniportDriver => write!(formatter, "the driver has registered no miniport"),
            Self::MissingKeyword(name) => {
                write!(
                    formatter,
                    "the INF has no {name}: the device installs, but MiniportInitializeEx is never called"
                )
            }
            Self::InterfaceIndexTaken => write!(formatter, "the interface index is taken"),
            Self::Started => write!(formatter, "the adapter is started already"),
            Self::Initialize(failure) => {
                write!(formatter, "MiniportInitializeEx failed with NDIS_STATUS_{}", status::name(*failure))
            }
            Self::Restart(error) => write!(formatter, "MiniportRestart: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl Kernel {
    /// Installs a device for a loaded driver and starts it: initialise, restart, bind.
    pub fn add_adapter(&self, driver: &Driver, config: AdapterConfig) -> Result<Adapter, StartError> {
        add(driver.object() as usize, config)
    }
}

struct Node {
    driver_object: usize,
    if_index: u32,
    luid: InterfaceLuid,
    config: Mutex<AdapterConfig>,
    miniport: Mutex<Option<Arc<Miniport>>>,
}

static NODES: Mutex<Vec<Arc<Node>>> = Mutex::new(Vec::new());

/// An adapter of this host.
#[derive(Clone)]
pub struct Adapter {
    node: Arc<Node>,
}

/// The number that Windows gives each new network device, in its driver key: no two are equal, on whatever machine.
fn new_instance_id() -> String {
    static DEVICES: AtomicU32 = AtomicU32::new(1);
    let (process, device) = (std::process::id(), DEVICES.fetch_add(1, Ordering::Relaxed));
    format!("{{{process:08X}-5F4E-4B00-8000-{device:012X}}}")
}

/// What Windows writes into the driver key of a new device.
fn installed(config: AdapterConfig) -> AdapterConfig {
    const INSTANCE: &str = "NetCfgInstanceId";
    if config.values().contains_key(INSTANCE) { config } else { config.with_keyword(INSTANCE, &new_instance_id()) }
}

/// Installs a device for a driver and starts it: initialise, restart, bind.
pub fn add(driver_object: usize, config: AdapterConfig) -> Result<Adapter, StartError> {
    if let Some(keyword) = config.installation().missing_mandatory_keyword() {
        return Err(StartError::MissingKeyword(keyword));
    }
    driver_of(driver_object).ok_or(StartError::NoMiniportDriver)?;
    let if_type = config.installation().if_type.unwrap_or(0) as u16;
    let interface = table().add_interface(if_type, config.if_index());
    let (if_index, luid) = interface.ok_or(StartError::InterfaceIndexTaken)?;
    let node = Arc::new(Node {
        driver_object,
        if_index,
        luid,
        config: Mutex::new(installed(config)),
        miniport: Mutex::new(None),
    });
    let adapter = Adapter { node };
    if let Err(error) = adapter.start() {
        table().remove_interface(if_index);
        return Err(error);
    }
    lock(&NODES).push(Arc::clone(&adapter.node));
    Ok(adapter)
}

/// Every adapter of a driver that is still there.
#[must_use]
pub fn of_driver(driver_object: usize) -> Vec<Adapter> {
    let nodes = lock(&NODES);
    nodes
        .iter()
        .filter(|node| node.driver_object == driver_object)
        .map(|node| Adapter { node: Arc::clone(node) })
        .collect()
}

/// The adapter of an interface.
#[must_use]
pub fn of_interface(if_index: u32) -> Option<Adapter> {
    let nodes = lock(&NODES);
    nodes.iter().find(|node| node.if_index == if_index).map(|node| Adapter { node: Arc::clone(node) })
}

/// Removes every adapter of a driver, as plug and play does before it unloads it.
pub fn remove_all_of(driver_object: usize) {
    for adapter in of_driver(driver_object) {
        adapter.remove();
    }
}

impl Adapter {
    #[must_use]
    pub fn if_index(&self) -> u32 {
        self.node.if_index
    }

    /// `NET_LUID` as a number.
    #[must_use]
    pub fn luid(&self) -> u64 {
        self.node.luid.0
    }

    #[must_use]
    pub fn state(&self) -> MiniportState {
        lock(&self.node.miniport).as_ref().map_or(MiniportState::Halted, |miniport| miniport.state())
    }

    /// The general attributes; `None` while halted.
    #[must_use]
    pub fn general(&self) -> Option<General> {
        lock(&self.node.miniport).as_ref().and_then(|miniport| miniport.general().cloned())
    }

    /// Whether the layers above may open NDK now.
    #[must_use]
    pub fn is_ndk_enabled(&self) -> bool {
        lock(&self.node.miniport).as_ref().is_some_and(|miniport| miniport.ndk_opens.is_enabled())
    }

    /// How often the miniport indicated a status.
    #[must_use]
    pub fn indications(&self, code: i32) -> usize {
        let miniport = lock(&self.node.miniport).clone();
        miniport.and_then(|miniport| lock(&miniport.indications).counts.get(&code).copied()).unwrap_or(0)
    }

    /// The NDK events that the miniport raised since it was started: enabled or disabled, in their order.
    #[must_use]
    pub fn ndk_events(&self) -> Vec<bool> {
        let miniport = lock(&self.node.miniport).clone();
        miniport.map(|miniport| lock(&miniport.indications).ndk_events.clone()).unwrap_or_default()
    }

    /// Has NDIS refuse every NDK event of the miniport with a status instead of following it; `None` ends that. Starts the
    /// count of refused events again.
    pub fn refuse_ndk_events(&self, answer: Option<NdisStatus>) {
        if let Some(miniport) = lock(&self.node.miniport).as_ref() {
            let mut indications = lock(&miniport.indications);
            indications.ndk_event_answer = answer;
            indications.ndk_events_refused = 0;
        }
    }

    /// How many NDK events were refused in a row.
    #[must_use]
    pub fn ndk_events_refused(&self) -> usize {
        lock(&self.node.miniport).as_ref().map_or(0, |miniport| lock(&miniport.indications).ndk_events_refused)
    }

    /// Starts a halted adapter: initialise, restart, bind the protocol, give it its addresses.
    pub fn start(&self) -> Result<(), StartError> {
        if lock(&self.node.miniport).is_some() {
            return Err(StartError::Started);
        }
        let driver: Arc<MiniportDriver> = driver_of(self.node.driver_object).ok_or(StartError::NoMiniportDriver)?;
        let config = lock(&self.node.config).clone();
        let addresses = config.addresses().to_vec();
        let miniport = life_cycle::initialize(&driver, config, self.node.if_index, self.node.luid)
            .map_err(StartError::Initialize)?;
        if let Err(error) = life_cycle::restart(&miniport) {
            let _ = life_cycle::halt(&miniport, HaltAction::InitializationFailed);
            return Err(StartError::Restart(error));
        }
        *lock(&self.node.miniport) = Some(Arc::clone(&miniport));
        bind(&miniport);
        if stack::is_enabled() {
            stack::bind(&miniport, StackConfig::default());
        }
        for address in addresses {
            self.announce_address(address, DetectionState::Preferred);
        }
        Ok(())
    }

    /// Pauses a running adapter.
    pub fn pause(&self) -> Result<(), StepError> {
        let miniport = self.started()?;
        life_cycle::pause(&miniport)
    }

    /// Restarts a paused adapter; a running one is paused first, as when a filter is inserted.
    pub fn restart(&self) -> Result<(), StepError> {
        let miniport = self.started()?;
        if miniport.state() == MiniportState::Running {
            life_cycle::pause(&miniport)?;
        }
        life_cycle::restart(&miniport)
    }

    /// Takes the adapter down: consumers of NDK close, the protocol unbinds, the adapter pauses and halts.
    pub fn halt(&self, action: HaltAction) -> Result<(), StepError> {
        let miniport = self.miniport()?;
        miniport.ndk_opens.set_enabled(false);
        // A consumer that is a driver is told by no one; it sees the addresses of the interface go, which TCP/IP takes back first.
        miniport.ndk_opens.close_all_or(&miniport, "the adapter is halted", || self.withdraw_addresses());
        stack::unbind(&miniport);
        unbind(&miniport, action);
        if miniport.state() == MiniportState::Running {
            life_cycle::pause(&miniport)?;
        }
        miniport.callers.shut();
        // A consumer may have opened the provider directly, without NDIS, before the halt.
        miniport.ndk_opens.close_all(&miniport, "the adapter is halted");
        self.withdraw_addresses();
        life_cycle::halt(&miniport, action)?;
        *lock(&self.node.miniport) = None;
        Ok(())
    }

    /// The device is gone: the miniport gets the event, then everything is taken down.
    pub fn surprise_remove(&self) -> Result<(), StepError> {
        self.device_event(DeviceEvent::SurpriseRemoved)?;
        self.halt(HaltAction::SurpriseRemoved)
    }

    /// `MiniportDevicePnPEventNotify` alone.
    pub fn device_event(&self, event: DeviceEvent) -> Result<(), StepError> {
        let call = self.started()?;
        life_cycle::device_event(&call, event);
        Ok(())
    }

    /// `MiniportShutdownEx`, as at power-off.
    pub fn shutdown(&self) -> Result<(), StepError> {
        let call = self.started()?;
        life_cycle::shutdown(&call);
        Ok(())
    }

    /// Low power: pause, then either the power OID (a miniport that declared not to be halted on suspend) or a halt.
    pub fn power_down(&self) -> Result<(), StepError> {
        const NO_HALT_ON_SUSPEND: u32 = 0x20;
        const D3: u32 = 4;
        let miniport = self.started()?;
        let flags = miniport.registered().map_or(0, |registered| registered.flags);
        if flags & NO_HALT_ON_SUSPEND == 0 {
            drop(miniport);
            return self.halt(HaltAction::DevicePoweredDown);
        }
        set_and_expect(&miniport, oid::OID_PNP_QUERY_POWER, None, D3);
        if miniport.state() == MiniportState::Running {
            life_cycle::pause(&miniport)?;
        }
        set_and_expect(&miniport, oid::OID_PNP_SET_POWER, Some(D3), D3);
        Ok(())
    }

    /// Full power again: the reverse of [`Self::power_down`].
    pub fn power_up(&self) -> Result<(), StartError> {
        const D0: u32 = 1;
        let Ok(miniport) = self.started() else { return self.start() };
        set_and_expect(&miniport, oid::OID_PNP_SET_POWER, Some(D0), D0);
        life_cycle::restart(&miniport).map_err(StartError::Restart)
    }

    /// Removes the device with its interface; a started one is halted first.
    pub fn remove(&self) {
        if self.miniport().is_ok()
            && let Err(error) = self.halt(HaltAction::InstanceDeInitialized)
        {
            panic!("the adapter with interface index {} cannot be halted: {error}", self.node.if_index);
        }
        table().remove_interface(self.node.if_index);
        lock(&NODES).retain(|node| !Arc::ptr_eq(node, &self.node));
    }

    /// Sets a value of the driver key; the driver sees it when it opens its configuration the next time.
    pub fn set_keyword(&self, name: &str, value: &str) {
        let changed = |config: &mut AdapterConfig| *config = config.clone().with_keyword(name, value);
        changed(&mut lock(&self.node.config));
        if let Ok(miniport) = self.started() {
            changed(&mut lock(&miniport.config));
        }
    }

    /// A query on the serial path with a buffer of `length` bytes.
    pub fn query_oid(&self, oid: u32, length: usize) -> Result<OidAnswer, StepError> {
        let miniport = self.started()?;
        Ok(miniport.oids.request(&miniport, oid, &OidKind::Query(length)))
    }

    /// A set on the serial path.
    pub fn set_oid(&self, oid: u32, data: &[u8]) -> Result<OidAnswer, StepError> {
        let miniport = self.started()?;
        Ok(miniport.oids.request(&miniport, oid, &OidKind::Set(data.to_vec())))
    }

    /// A query on the direct path with a buffer of `length` bytes; up to DISPATCH_LEVEL if the miniport answers at once.
    pub fn direct_query_oid(&self, oid: u32, length: usize) -> Result<OidAnswer, StepError> {
        let miniport = self.started()?;
        Ok(miniport.oids.direct_request(&miniport, oid, &OidKind::Query(length)))
    }

    /// Calls the cancel handler for every outstanding request for `oid`.
    pub fn cancel_oid(&self, oid: u32) -> Result<usize, StepError> {
        let miniport = self.started()?;
        Ok(miniport.oids.cancel(&miniport, oid))
    }

    /// Gives the interface an address; `false` when it has it already.
    #[must_use]
    pub fn add_address(&self, address: IpAddr, prefix_length: u8) -> bool {
        self.add_address_in(address, prefix_length, DetectionState::Preferred)
    }

    /// As [`Self::add_address`], with the address in a state of duplicate address detection.
    #[must_use]
    pub fn add_address_in(&self, address: IpAddr, prefix_length: u8, detection: DetectionState) -> bool {
        self.announce_address(InterfaceAddress { address, prefix_length }, detection)
    }

    /// Lets duplicate address detection come to a result; `false` when the interface does not have the address.
    #[must_use]
    pub fn set_address_detection(&self, address: IpAddr, detection: DetectionState) -> bool {
        let row = table().set_detection(self.node.if_index, address, detection);
        if let Some(row) = &row {
            announce(row, Change::Parameter);
        }
        row.is_some()
    }

    /// Removes an address; `false` when the interface does not have it.
    #[must_use]
    pub fn remove_address(&self, address: IpAddr) -> bool {
        let row = table().remove(self.node.if_index, address);
        if let Some(row) = &row {
            announce(row, Change::Deleted);
        }
        row.is_some()
    }

    /// Opens the NDK provider, as WSK does for a kernel consumer.
    pub fn open_ndk(&self, version: NDK_VERSION) -> Result<NdkAdapter, NtStatus> {
        let miniport = self.started().map_err(|_| status::ADAPTER_NOT_FOUND)?;
        ndk::open(&miniport, version)
    }

    /// Calls the provider's open handler even when NDIS would refuse.
    pub fn open_ndk_directly(&self, version: NDK_VERSION) -> Result<NdkAdapter, NtStatus> {
        let miniport = self.started().map_err(|_| status::ADAPTER_NOT_FOUND)?;
        ndk::open_directly(&miniport, version)
    }

    /// Registers a consumer that closes what it opened when NDK is disabled or the adapter is halted.
    pub fn on_ndk_close(&self, close: impl Fn() + Send + Sync + 'static) -> Result<ConsumerRegistration, StepError> {
        let call = self.started()?;
        Ok(ndk::register_consumer(&call, close))
    }

    /// How many NDK adapters are open on this adapter.
    #[must_use]
    pub fn ndk_opens(&self) -> usize {
        self.miniport().map_or(0, |miniport| miniport.ndk_opens.count())
    }

    /// The most NDK adapters that were open on this adapter at a time since the last call.
    #[must_use]
    pub fn take_most_ndk_opens(&self) -> usize {
        self.miniport().map_or(0, |miniport| miniport.ndk_opens.take_most())
    }

    /// Sends frames, each in one piece, and waits for their completion.
    pub fn send_frames(&self, frames: &[Vec<u8>]) -> Result<Vec<NdisStatus>, StepError> {
        self.send(frames.iter().cloned().map(Frame::from).collect()).map(super::data_path::SendBatch::wait)
    }

    /// Sends frames without waiting.
    pub fn send(&self, frames: Vec<Frame>) -> Result<super::data_path::SendBatch, StepError> {
        let miniport = self.started()?;
        Ok(miniport.data.send(&miniport, frames))
    }

    /// Sends frames that were on their way when a pause began: the miniport gets them whatever its state.
    pub fn send_late(&self, frames: Vec<Frame>) -> Result<super::data_path::SendBatch, StepError> {
        let miniport = self.started()?;
        Ok(miniport.data.send_late(&miniport, frames))
    }

    /// Cancels sends by their cancel id.
    pub fn cancel_send(&self, cancel_id: usize) -> Result<(), StepError> {
        let miniport = self.started()?;
        miniport.data.cancel(&miniport, cancel_id);
        Ok(())
    }

    /// Takes the frames that came in since the last call.
    pub fn take_received(&self) -> Result<Vec<Vec<u8>>, StepError> {
        Ok(self.started()?.data.take_received())
    }

    /// Whether indicated lists are kept until [`Self::return_received`] or a pause instead of being returned at once.
    pub fn keep_received(&self, keep: bool) -> Result<(), StepError> {
        self.started()?.data.keep_received(keep);
        Ok(())
    }

    /// Returns the lists that were kept.
    pub fn return_received(&self) -> Result<(), StepError> {
        let miniport = self.started()?;
        miniport.data.return_held(&miniport);
        Ok(())
    }

    /// Binds TCP/IP to the adapter until it is halted, in place of the stack that is bound to it.
    pub fn bind_stack(&self, config: StackConfig) -> Result<Arc<TcpIpStack>, StepError> {
        let call = self.started()?;
        Ok(stack::bind(&call, config))
    }

    /// The stack that is bound to the adapter.
    #[must_use]
    pub fn stack(&self) -> Option<Arc<TcpIpStack>> {
        self.miniport().ok().and_then(|miniport| miniport.data.stack())
    }

    /// Unbinds TCP/IP: connections of the adapter's addresses over it break.
    pub fn unbind_stack(&self) -> Result<(), StepError> {
        stack::unbind(&*self.started()?);
        Ok(())
    }

    fn miniport(&self) -> Result<Arc<Miniport>, StepError> {
        lock(&self.node.miniport).clone().ok_or(StepError::WrongState(MiniportState::Halted))
    }

    /// The miniport for one call; a halt waits until the call is over.
    fn started(&self) -> Result<Call, StepError> {
        let miniport = self.miniport()?;
        let reference = miniport.callers.enter().ok_or(StepError::WrongState(MiniportState::Halting))?;
        reference.stay();
        Ok(Call { miniport })
    }

    fn announce_address(&self, address: InterfaceAddress, detection: DetectionState) -> bool {
        let row = table().add(self.node.if_index, address, detection);
        if let Some(row) = &row {
            announce(row, Change::Added);
        }
        row.is_some()
    }

    fn withdraw_addresses(&self) {
        let rows = table().rows();
        for row in rows.iter().filter(|row| row.if_index == self.node.if_index) {
            let _ = self.remove_address(row.address.address);
        }
    }
}

/// A call from outside into a miniport. It holds the miniport and its place inside the gate together.
struct Call {
    miniport: Arc<Miniport>,
}

impl std::ops::Deref for Call {
    type Target = Arc<Miniport>;

    fn deref(&self) -> &Arc<Miniport> {
        &self.miniport
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.miniport.callers.leave();
    }
}

/// What TCP/IP does when it binds: look-ahead, multicast list, packet filter.
fn bind(miniport: &Miniport) {
    const DIRECTED_MULTICAST_BROADCAST: u32 = 0x0B;
    const ALL_HOSTS: [u8; 6] = [0x01, 0x00, 0x5E, 0x00, 0x00, 0x01];
    let supported = miniport.general().map_or(0, |general| general.packet_filters);
    let filter = DIRECTED_MULTICAST_BROADCAST & supported;
    let requests = [
        (0x0001_010F, 128_u32.to_le_bytes().to_vec()),
        (oid::OID_802_3_MULTICAST_LIST, ALL_HOSTS.to_vec()),
        (oid::OID_GEN_CURRENT_PACKET_FILTER, filter.to_le_bytes().to_vec()),
    ];
    for (identifier, data) in requests {
        let answer = miniport.oids.request(miniport, identifier, &OidKind::Set(data));
        if answer.status != status::SUCCESS {
            let rule = format!(
                "{} fails with NDIS_STATUS_{}: TCP/IP could not bind to the adapter",
                oid::name(identifier),
                status::name(answer.status)
            );
            broken(Group::Oid, miniport.handle, rule);
        }
    }
}

/// What unbinding does; after a surprise removal the results do not matter, and requests are refused.
fn unbind(miniport: &Miniport, action: HaltAction) {
    if action == HaltAction::SurpriseRemoved {
        return;
    }
    let none = OidKind::Set(0_u32.to_le_bytes().to_vec());
    let _ = miniport.oids.request(miniport, oid::OID_GEN_CURRENT_PACKET_FILTER, &none);
    let _ = miniport.oids.request(miniport, oid::OID_802_3_MULTICAST_LIST, &OidKind::Set(Vec::new()));
}

/// A power OID has to succeed. `data` is what a set carries; a query has a buffer of one word.
fn set_and_expect(miniport: &Miniport, identifier: u32, data: Option<u32>, state: u32) {
    let kind = data.map_or(OidKind::Query(4), |data| OidKind::Set(data.to_le_bytes().to_vec()));
    let answer = miniport.oids.request(miniport, identifier, &kind);
    if answer.status != status::SUCCESS {
        let rule =
            format!("{} for device state {state} fails with {}", oid::name(identifier), status::name(answer.status));
        broken(Group::Oid, miniport.handle, rule);
    }
}
