//! Winsock Kernel: registration of a client, capture of the provider, sockets of TCP and UDP, and the extension that opens NDK adapters
//! by the index of their interface. Event callbacks, control information and name resolution are not modelled.

mod address;
mod buffer;
pub(crate) mod chance;
mod client;
mod delivery;
mod functions;
pub(crate) mod late;
mod network;
mod poller;
mod socket;

use std::ffi::c_void;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use ndkpi_sys::ndkinfo::NDK_VERSION;
use ndkpi_sys::ndkpi::NDK_ADAPTER;
use ndkpi_sys::wsk::{
    WSK_CLIENT_NPI, WSK_PROVIDER_CHARACTERISTICS, WSK_PROVIDER_NPI, WSK_REGISTRATION, WSK_VERSION_1_0,
};
use ndkpi_sys::wskndk::WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH;

use client::{captured_by, client_of};
pub use network::{Datagram, MachineAddress};
pub(crate) use poller::{start, stop};
pub use socket::LEDGER_KIND as LEDGER_KIND_SOCKET;
pub(crate) use socket::describe;

use crate::callback::host_function;
use crate::irql::{self, IrqlRange};
use crate::ndis::adapter;
use crate::ndis::rule::{Group, broken};
use crate::ndk::mediator;
use crate::stack::TcpIpStack;
use crate::status::{self, NtStatus};

/// The kind under which registrations are recorded.
pub const LEDGER_KIND: &str = "WSK registration";
/// The kind under which adapters that a client opened are recorded.
pub const LEDGER_KIND_ADAPTER: &str = "NDK adapter opened through WSK";

const SUCCESS: NtStatus = status::STATUS_SUCCESS;

/// An address answers nothing from now on, or answers again: a connect to it waits meanwhile, until TCP gives up.
pub fn set_silent(address: IpAddr, silent: bool) {
    let mut stack = socket::stack();
    stack.network.set_silent(address, silent);
    let lanes = stack.connecting();
    drop(stack);
    delivery::kick(lanes);
}

/// The system takes every socket away that there is, as when TCP/IP goes: what waits at one, and each call of it but its close, ends
/// with STATUS_FILE_FORCED_CLOSED. Connections break.
pub fn close_forcibly() {
    let mut stack = socket::stack();
    let mut lanes = stack.close_forcibly();
    lanes.extend(stack.woken());
    drop(stack);
    delivery::kick(lanes);
}

/// Streams to hosts in other processes are cut at random and stall now and then, or do no longer.
pub fn set_stream_faults(faults: bool) {
    chance::set_stream_faults(faults);
}

/// WskSend returns milliseconds after its effect, as on a processor that a hypervisor takes away: other threads see the bytes first. Or it
/// does so no longer, as at the start.
pub fn set_slow_sends(slow: bool) {
    chance::set_slow_sends(slow);
}

/// Of so many datagrams of UDP one is lost, by chance; none with 0, as at the start.
pub fn set_datagram_loss(one_in: u32) {
    socket::stack().network.set_datagram_faults(Some(one_in), None);
}

/// Of so many datagrams of UDP one comes behind the next one, by chance; none with 0, as at the start.
pub fn set_datagram_reordering(one_in: u32) {
    socket::stack().network.set_datagram_faults(None, Some(one_in));
}

/// A port that another program has, until this is dropped.
pub struct OccupiedPort(network::PortId);

/// Another program listens at an address of the host; nothing where something does already.
#[must_use]
pub fn occupy(address: SocketAddr) -> Option<OccupiedPort> {
    socket::stack().network.bind(address, true).ok().map(OccupiedPort)
}

/// As [`occupy`], for a port of UDP: what is sent there is not answered.
#[must_use]
pub fn occupy_datagram_port(address: SocketAddr) -> Option<OccupiedPort> {
    socket::stack().network.bind_datagrams(address).ok().map(OccupiedPort)
}

impl Drop for OccupiedPort {
    fn drop(&mut self) {
        socket::stack().network.release(self.0);
    }
}

/// Other machines, as far as datagrams of UDP go, played by a test until this is dropped. One at a time.
pub struct OtherMachines(());

impl OtherMachines {
    #[must_use]
    pub fn play() -> Self {
        socket::stack().network.keep_departed(true);
        Self(())
    }

    /// What was sent to addresses that are not this host's, since the last call. The sender's address is the one that its socket is bound to.
    #[must_use]
    pub fn take_received(&self) -> Vec<Datagram> {
        socket::stack().network.take_departed()
    }

    /// Sends a datagram to this host.
    pub fn send(&self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let mut stack = socket::stack();
        stack.network.arrive_from(&Datagram { from, to, bytes: bytes.to_vec() });
        let lanes = stack.woken();
        drop(stack);
        delivery::kick(lanes);
    }
}

impl Drop for OtherMachines {
    fn drop(&mut self) {
        socket::stack().network.keep_departed(false);
    }
}

/// A stack of TCP/IP has processed frames, or is gone: what its connections bring goes on.
pub(crate) fn frames_processed(processed: &Arc<TcpIpStack>) {
    let mut stack = socket::stack();
    stack.network.frames_processed(processed);
    let lanes = stack.woken();
    drop(stack);
    delivery::kick(lanes);
}

/// Stacks of TCP/IP have come or gone, or have other addresses.
pub(crate) fn stacks_changed() {
    socket::stack().network.listen_in_frames();
}

/// An address of the host is gone, and its connections with it.
pub(crate) fn address_removed(address: IpAddr) {
    let mut stack = socket::stack();
    stack.network.address_removed(address);
    let lanes = stack.woken();
    drop(stack);
    delivery::kick(lanes);
}

crate::exports! {
    module "netio.sys";

    /// Registers a client of WSK.
    /// Checks: a dispatch with version 1.0; the registration is not in use; can be made to fail
    /// Source: WSK: WskRegister
    [PASSIVE_ONLY] fn WskRegister(npi: *const WSK_CLIENT_NPI, registration: *mut WSK_REGISTRATION) -> NtStatus {
        // SAFETY: the image's structures.
        let dispatch = unsafe { (*npi).Dispatch };
        // SAFETY: as above, where there is one.
        if dispatch.is_null() || unsafe { (*dispatch).Version } != WSK_VERSION_1_0 {
            broken(Group::Netio, npi as usize, "WskRegister: the client names no dispatch of version 1.0");
        }
        if crate::fault::should_fail("WskRegister") {
            return status::STATUS_INSUFFICIENT_RESOURCES;
        }
        if !client::register(registration as usize) {
            broken(Group::Netio, registration as usize, "WskRegister: the registration is in use");
        }
        crate::ledger::record(LEDGER_KIND, registration as usize, "");
        // SAFETY: the image's structure, whose contents are the provider's.
        unsafe { (*registration).ReservedRegistrationState = client::REGISTERED };
        SUCCESS
    }

    /// Ends a registration; waits until the provider is released, and for closes of sockets that have not completed.
    /// Checks: a registered client; no NDK adapter of it is open; WskCloseSocket was called for every socket
    /// Source: WSK: WskDeregister
    [PASSIVE_ONLY] fn WskDeregister(registration: *mut WSK_REGISTRATION) {
        let client = client_of(registration as usize, "WskDeregister");
        let open = client.wait_until_released();
        if !open.is_empty() {
            let places: String = open.iter().map(|adapter| mediator::describe_adapter(*adapter)).collect();
            let count = open.len();
            let rule = format!("WskDeregister is called while {count} NDK adapters of the client are open{places}");
            broken(Group::Netio, registration as usize, rule);
        }
        let sockets = socket::stack().open_of(&client);
        if sockets != 0 {
            let rule = format!("WskDeregister is called while {sockets} sockets of the client are not closed");
            broken(Group::Netio, registration as usize, rule);
        }
        client.wait_until_idle();
        client::remove(registration as usize);
        crate::ledger::release(LEDGER_KIND, registration as usize);
    }

    /// Gives the provider's dispatch table; the provider is always there.
    /// Checks: a registered client; at PASSIVE_LEVEL if it may wait
    /// Source: WSK: WskCaptureProviderNPI
    [UP_TO_DISPATCH] fn WskCaptureProviderNPI(
        registration: *mut WSK_REGISTRATION, timeout: u32, npi: *mut WSK_PROVIDER_NPI,
    ) -> NtStatus {
        if timeout != 0 && irql::current() != irql::PASSIVE {
            broken(Group::Netio, registration as usize, "WskCaptureProviderNPI: waiting needs PASSIVE_LEVEL");
        }
        let client = client_of(registration as usize, "WskCaptureProviderNPI");
        client.capture();
        // SAFETY: the image's output.
        unsafe { npi.write(WSK_PROVIDER_NPI { Client: client.address() as *mut _, Dispatch: dispatch_table().cast() }) };
        SUCCESS
    }

    /// Lets the provider go.
    /// Checks: captured as often
    /// Source: WSK: WskReleaseProviderNPI
    [UP_TO_DISPATCH] fn WskReleaseProviderNPI(registration: *mut WSK_REGISTRATION) {
        client_of(registration as usize, "WskReleaseProviderNPI").release();
    }

    /// The versions of the provider: 1.0.
    /// Checks: a registered client
    /// Source: WSK: WskQueryProviderCharacteristics
    [PASSIVE_ONLY] fn WskQueryProviderCharacteristics(
        registration: *mut WSK_REGISTRATION, characteristics: *mut WSK_PROVIDER_CHARACTERISTICS,
    ) -> NtStatus {
        let _ = client_of(registration as usize, "WskQueryProviderCharacteristics");
        let versions = WSK_PROVIDER_CHARACTERISTICS { HighestVersion: WSK_VERSION_1_0, LowestVersion: WSK_VERSION_1_0 };
        // SAFETY: the image's output.
        unsafe { characteristics.write(versions) };
        SUCCESS
    }
}

/// `WSK_PROVIDER_DISPATCH`, as words: version, then a function a slot.
fn dispatch_table() -> *const usize {
    static TABLE: OnceLock<[usize; 7]> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table = [host_function(other_function as *const c_void, 4) as usize; 7];
        table[0] = usize::from(WSK_VERSION_1_0);
        table[1] = host_function(functions::socket as *const c_void, 11) as usize;
        table[3] = host_function(control_client as *const c_void, 8) as usize;
        table
    });
    table.as_ptr()
}

/// `WSK_PROVIDER_NDK_DISPATCH`.
fn ndk_table() -> [usize; 2] {
    [
        host_function(open_ndk_adapter as *const c_void, 4) as usize,
        host_function(close_ndk_adapter as *const c_void, 2) as usize,
    ]
}

unsafe extern "win64" fn other_function(client: u64, _b: u64, _c: u64, _d: u64) -> u64 {
    broken(Group::Netio, client as usize, "a function of WSK is called that is not modelled")
}

fn check_level(function: &str, range: IrqlRange) {
    let level = irql::current();
    if !range.contains(level) {
        let rule = format!("{function} is called at {}; it needs {}", irql::name(level), range.describe());
        broken(Group::Netio, 0, rule);
    }
}

unsafe extern "win64" fn control_client(
    client: u64,
    code: u32,
    _input_size: u64,
    _input: u64,
    output_size: u64,
    output: *mut [usize; 2],
    returned: *mut u64,
    irp: u64,
) -> NtStatus {
    check_level("WskControlClient", IrqlRange::UP_TO_DISPATCH);
    captured_by(client as usize, "WskControlClient");
    if code != WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH || irp != 0 {
        return status::STATUS_NOT_SUPPORTED;
    }
    if output_size != size_of::<[usize; 2]>() as u64 || output.is_null() {
        return status::STATUS_INVALID_PARAMETER;
    }
    // SAFETY: the image's output of that size, and its optional count.
    unsafe {
        output.write(ndk_table());
        if !returned.is_null() {
            returned.write(output_size);
        }
    }
    SUCCESS
}

unsafe extern "win64" fn open_ndk_adapter(
    client: u64,
    version: NDK_VERSION,
    if_index: u32,
    opened: *mut *mut NDK_ADAPTER,
) -> NtStatus {
    check_level("WskOpenNdkAdapter", IrqlRange::PASSIVE_ONLY);
    let client = captured_by(client as usize, "WskOpenNdkAdapter");
    let Some(adapter) = adapter::of_interface(if_index) else { return status::STATUS_NOT_FOUND };
    match adapter.open_ndk(version) {
        Ok(open) => {
            let pointer = mediator::adopt_adapter(open);
            client.opened(pointer as usize);
            crate::ledger::record(LEDGER_KIND_ADAPTER, pointer as usize, "");
            // SAFETY: the image's output.
            unsafe { opened.write(pointer) };
            SUCCESS
        }
        Err(failure) => failure,
    }
}

unsafe extern "win64" fn close_ndk_adapter(client: u64, pointer: *mut NDK_ADAPTER) {
    check_level("WskCloseNdkAdapter", IrqlRange::PASSIVE_ONLY);
    let client = client::client_at(client as usize, "WskCloseNdkAdapter");
    if !client.forget(pointer as usize) {
        broken(Group::Netio, pointer as usize, "WskCloseNdkAdapter: not an adapter that this client has open");
    }
    // Before the close: the provider may give the address out again, to an open that is recorded anew.
    crate::ledger::release(LEDGER_KIND_ADAPTER, pointer as usize);
    mediator::close_adapter(pointer);
}
