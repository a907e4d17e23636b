//! Sockets of Winsock Kernel: a driver's conversation with itself in many orders and in fast mode, and connects that a client of
//! this file makes to addresses that are silent, or go.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a table is read in one go")]

#[allow(dead_code, reason = "other test files use the rest of it")]
mod child;

use std::ffi::c_void;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kernel_host::callback::host_function;
use kernel_host::callout::{self, Context, ContextKind};
use kernel_host::dispatcher::Event;
use kernel_host::io::own_packet;
use kernel_host::nt::IRP;
use kernel_host::{Kernel, KernelConfig, fault, ledger, status, wsk};
use ndkpi_sys::wsk::{
    IPPROTO_TCP, SOCK_STREAM, WSK_CLIENT_DISPATCH, WSK_CLIENT_NPI, WSK_FLAG_CONNECTION_SOCKET, WSK_NO_WAIT,
    WSK_PROVIDER_NPI, WSK_REGISTRATION, WSK_VERSION_1_0,
};
use softndk_images::bad_drivers;
use softndk_images::workspace::Workspace;

fn config() -> KernelConfig {
    KernelConfig { hang_limit: Some(Duration::from_secs(10)), ..KernelConfig::default() }
}

fn workspace() -> Workspace {
    Workspace::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

/// Loads and unloads the driver that talks to itself.
fn converse(config: KernelConfig) {
    let kernel = Kernel::boot(config);
    let driver = kernel.load_driver(bad_drivers::image(&workspace()), "own-irp-left.good").expect("the driver loads");
    driver.unload();
    let report = kernel.shutdown();
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_conversation_passes_in_every_order() {
    const TEST: &str = "a_conversation_passes_in_every_order";
    const SEED: &str = "SOCKETS_SEED";
    if let Ok(seed) = std::env::var(SEED) {
        return converse(KernelConfig { schedule: seed.parse().ok(), ..config() });
    }
    bad_drivers::build(&workspace()).expect("the bad drivers build");
    for seed in 0..24 {
        child::in_child_with(TEST, &[(SEED, &seed.to_string())]).expect_success();
    }
}

#[test]
fn a_conversation_passes_in_fast_mode() {
    let build = || drop(bad_drivers::build(&workspace()).expect("the bad drivers build"));
    let fast = KernelConfig { hang_limit: config().hang_limit, ..KernelConfig::for_measuring() };
    let outcome = child::in_child("a_conversation_passes_in_fast_mode", build, || converse(fast));
    if let Some(outcome) = outcome {
        outcome.expect_success();
    }
}

static DISPATCH: WSK_CLIENT_DISPATCH =
    WSK_CLIENT_DISPATCH { Version: WSK_VERSION_1_0, Reserved: 0, WskClientEvent: None };

const CLIENT: Context = Context::new(ContextKind::Other, "a client of WSK");
/// Words of the provider's table and of a connection's.
const SOCKET: usize = 1;
const CLOSE: usize = 1;
const BIND: usize = 2;
const CONNECT: usize = 3;
const MORE_PROCESSING_REQUIRED: i32 = status::STATUS_MORE_PROCESSING_REQUIRED;

/// What a packet was completed with.
struct Done {
    event: Event,
    status: AtomicUsize,
    information: AtomicUsize,
}

unsafe extern "win64" fn completed(_device: u64, irp: *mut IRP, done: *const Done) -> i32 {
    // SAFETY: the packet and the context of `Packet::new`.
    unsafe {
        (*done).status.store((*irp).IoStatus.u.Status as usize, Ordering::SeqCst);
        (*done).information.store((*irp).IoStatus.Information, Ordering::SeqCst);
        (*done).event.set();
    }
    MORE_PROCESSING_REQUIRED
}

struct Packet {
    irp: *mut IRP,
    done: Arc<Done>,
}

impl Packet {
    fn new() -> Self {
        let done = Arc::new(Done { event: Event::notification(), status: 0.into(), information: 0.into() });
        // SAFETY: a packet with one stack location, of which the next one is set.
        let irp = unsafe {
            let irp = own_packet::IoAllocateIrp(1, 0);
            let next = (*irp).CurrentStackLocation.sub(1);
            (*next).CompletionRoutine = host_function(completed as *const c_void, 3).cast_mut();
            (*next).Context = Arc::as_ptr(&done).cast_mut().cast();
            (*next).Control = 0xE0;
            irp
        };
        Self { irp, done }
    }

    fn is_completed(&self) -> bool {
        self.done.event.is_set()
    }

    /// Waits; the status and the information.
    fn end(self) -> (i32, usize) {
        self.done.event.wait(None);
        // SAFETY: completed, and freed once.
        unsafe { own_packet::IoFreeIrp(self.irp) };
        (self.done.status.load(Ordering::SeqCst) as i32, self.done.information.load(Ordering::SeqCst))
    }
}

/// A registered client with one connection socket, bound to 127.0.0.1.
struct Client {
    registration: *mut WSK_REGISTRATION,
    provider: WSK_PROVIDER_NPI,
    socket: usize,
}

fn address(ip: Ipv4Addr, port: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0] = 2;
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&ip.octets());
    bytes
}

/// Calls a function of a table that an object points to.
fn call(table: *const usize, slot: usize, arguments: &[u64]) {
    // SAFETY: a table of the provider's and the arguments of that function.
    unsafe { callout::call_image(CLIENT, table.add(slot).read(), arguments) };
}

impl Client {
    fn register() -> Self {
        let npi = WSK_CLIENT_NPI { ClientContext: std::ptr::null_mut(), Dispatch: &raw const DISPATCH };
        let registration = Box::into_raw(Box::new(WSK_REGISTRATION::zeroed()));
        let mut provider = WSK_PROVIDER_NPI::zeroed();
        // SAFETY: structures of our own.
        unsafe {
            assert_eq!(wsk::WskRegister(&raw const npi, registration), 0);
            assert_eq!(wsk::WskCaptureProviderNPI(registration, WSK_NO_WAIT, &raw mut provider), 0);
        }
        let mut client = Self { registration, provider, socket: 0 };
        let (status, socket) = client.make().end();
        assert_eq!(status, 0);
        client.socket = socket;
        let local = address(Ipv4Addr::LOCALHOST, 0);
        let packet = Packet::new();
        client.call(BIND, &[(&raw const local) as u64, 0, packet.irp as u64]);
        assert_eq!(packet.end().0, 0);
        client
    }

    fn make(&self) -> Packet {
        let packet = Packet::new();
        let (kind, protocol) = (u64::from(SOCK_STREAM), u64::from(IPPROTO_TCP));
        let flags = u64::from(WSK_FLAG_CONNECTION_SOCKET);
        let client = self.provider.Client as u64;
        let arguments = [client, 2, kind, protocol, flags, 0, 0, 0, 0, 0, packet.irp as u64];
        call(self.provider.Dispatch.cast(), SOCKET, &arguments);
        packet
    }

    fn call(&self, slot: usize, arguments: &[u64]) {
        // SAFETY: an open socket begins with its table.
        let table = unsafe { (self.socket as *const *const usize).read() };
        call(table, slot, &[&[self.socket as u64], arguments].concat());
    }

    fn connect(&self, to: Ipv4Addr) -> Packet {
        let packet = Packet::new();
        let remote = address(to, 9);
        self.call(CONNECT, &[(&raw const remote) as u64, 0, packet.irp as u64]);
        packet
    }

    fn close(&self) {
        let packet = Packet::new();
        self.call(CLOSE, &[packet.irp as u64]);
        assert_eq!(packet.end().0, 0);
    }

    fn end(self) {
        // SAFETY: a registration of `register`, whose provider is captured once.
        unsafe {
            wsk::WskReleaseProviderNPI(self.registration);
            wsk::WskDeregister(self.registration);
            drop(Box::from_raw(self.registration));
        }
        assert_eq!(ledger::count(wsk::LEDGER_KIND_SOCKET), 0);
        assert_eq!(ledger::count(own_packet::LEDGER_KIND), 0);
    }
}

fn in_child(test: &str, body: impl FnOnce()) {
    if let Some(outcome) = child::in_child(test, || {}, body) {
        outcome.expect_success();
    }
}

const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

#[test]
fn a_connect_to_a_silent_address_waits() {
    in_child("a_connect_to_a_silent_address_waits", || {
        let kernel = Kernel::boot(config());
        let client = Client::register();
        wsk::set_silent(IpAddr::V4(ELSEWHERE), true);
        let waits = client.connect(ELSEWHERE);
        kernel.sleep(Duration::from_secs(20));
        assert!(!waits.is_completed());
        wsk::set_silent(IpAddr::V4(ELSEWHERE), false);
        assert_eq!(waits.end().0, status::STATUS_HOST_UNREACHABLE);
        wsk::set_silent(IpAddr::V4(ELSEWHERE), true);
        assert_eq!(client.connect(ELSEWHERE).end().0, status::STATUS_IO_TIMEOUT);
        let waits = client.connect(ELSEWHERE);
        kernel.sleep(Duration::from_secs(1));
        assert!(!waits.is_completed());
        client.close();
        assert_eq!(waits.end().0, status::STATUS_CANCELLED);
        client.end();
        let report = kernel.shutdown();
        assert!(report.is_clean(), "{report}");
    });
}

#[test]
fn a_call_that_is_made_to_fail_completes_its_packet() {
    in_child("a_call_that_is_made_to_fail_completes_its_packet", || {
        let kernel = Kernel::boot(config());
        let client = Client::register();
        fault::start_recording();
        assert_eq!(client.connect(Ipv4Addr::LOCALHOST).end().0, status::STATUS_CONNECTION_REFUSED);
        let site = fault::sites().into_iter().find(|site| site.export == "WskConnect").expect("a site");
        fault::fail(site.site, 1);
        assert_eq!(client.connect(Ipv4Addr::LOCALHOST).end().0, status::STATUS_INSUFFICIENT_RESOURCES);
        fault::stop();
        client.close();
        client.end();
        let report = kernel.shutdown();
        assert!(report.is_clean(), "{report}");
    });
}
