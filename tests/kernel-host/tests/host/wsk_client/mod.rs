//! A client of Winsock Kernel that is a test: its registration, sockets and packets.

#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a table is read in one go")]

use std::ffi::c_void;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernel_host::callback::host_function;
use kernel_host::callout::{self, Context, ContextKind};
use kernel_host::dispatcher::Event;
use kernel_host::io::own_packet;
use kernel_host::memory::mdl;
use kernel_host::ndis::loan::LoanedBytes;
use kernel_host::nt::{IRP, MDL};
use kernel_host::{ledger, status, wsk};
use ndkpi_sys::wsk::{
    IPPROTO_TCP, SOCK_STREAM, WSK_BUF, WSK_CLIENT_DISPATCH, WSK_CLIENT_NPI, WSK_FLAG_CONNECTION_SOCKET,
    WSK_FLAG_LISTEN_SOCKET, WSK_NO_WAIT, WSK_PROVIDER_NPI, WSK_REGISTRATION, WSK_VERSION_1_0,
};

static DISPATCH: WSK_CLIENT_DISPATCH =
    WSK_CLIENT_DISPATCH { Version: WSK_VERSION_1_0, Reserved: 0, WskClientEvent: None };

const CLIENT: Context = Context::new(ContextKind::Other, "a client of WSK");
/// Words of the provider's table and of a connection's.
const SOCKET: usize = 1;
const CLOSE: usize = 1;
const BIND: usize = 2;
const CONNECT: usize = 3;
/// The word of a listening socket's table.
const ACCEPT: usize = 3;
const SEND: usize = 6;
const RECEIVE: usize = 7;
const DISCONNECT: usize = 8;
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

pub struct Packet {
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

    pub fn is_completed(&self) -> bool {
        self.done.event.is_set()
    }

    /// Waits; the status and the information.
    pub fn end(self) -> (i32, usize) {
        self.done.event.wait(None);
        // SAFETY: completed, and freed once.
        unsafe { own_packet::IoFreeIrp(self.irp) };
        (self.done.status.load(Ordering::SeqCst) as i32, self.done.information.load(Ordering::SeqCst))
    }
}

fn address(address: SocketAddr) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes[0] = 2;
            bytes[4..8].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes[0] = 23;
            bytes[8..24].copy_from_slice(&ip.octets());
        }
    }
    bytes
}

/// Calls a function of a table that an object points to.
fn call(table: *const usize, slot: usize, arguments: &[u64]) {
    // SAFETY: a table of the provider's and the arguments of that function.
    unsafe { callout::call_image(CLIENT, table.add(slot).read(), arguments) };
}

/// A registered client.
pub struct Client {
    registration: *mut WSK_REGISTRATION,
    provider: WSK_PROVIDER_NPI,
}

impl Client {
    pub fn register() -> Self {
        let npi = WSK_CLIENT_NPI { ClientContext: std::ptr::null_mut(), Dispatch: &raw const DISPATCH };
        let registration = Box::into_raw(Box::new(WSK_REGISTRATION::zeroed()));
        let mut provider = WSK_PROVIDER_NPI::zeroed();
        // SAFETY: structures of our own.
        unsafe {
            assert_eq!(wsk::WskRegister(&raw const npi, registration), 0);
            assert_eq!(wsk::WskCaptureProviderNPI(registration, WSK_NO_WAIT, &raw mut provider), 0);
        }
        Self { registration, provider }
    }

    /// A connection socket that is bound.
    pub fn connection(&self, local: SocketAddr) -> ClientSocket {
        self.bound(WSK_FLAG_CONNECTION_SOCKET, local)
    }

    /// A listening socket that is bound.
    pub fn listener(&self, local: SocketAddr) -> ClientSocket {
        self.bound(WSK_FLAG_LISTEN_SOCKET, local)
    }

    fn bound(&self, flags: u32, local: SocketAddr) -> ClientSocket {
        let packet = Packet::new();
        let (kind, protocol) = (u64::from(SOCK_STREAM), u64::from(IPPROTO_TCP));
        let local = address(local);
        let client = self.provider.Client as u64;
        let arguments = [client, local[0].into(), kind, protocol, flags.into(), 0, 0, 0, 0, 0, packet.irp as u64];
        call(self.provider.Dispatch.cast(), SOCKET, &arguments);
        let (status, address) = packet.end();
        assert_eq!(status, 0);
        let socket = ClientSocket { address };
        let packet = Packet::new();
        socket.call(BIND, &[(&raw const local) as u64, 0, packet.irp as u64]);
        assert_eq!(packet.end().0, 0);
        socket
    }

    /// Ends the registration; nothing is left of it.
    pub fn end(self) {
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

/// Memory of a request, behind an MDL.
pub struct Memory {
    bytes: LoanedBytes,
    list: *mut MDL,
}

impl Memory {
    fn new(bytes: &[u8]) -> Self {
        let bytes = LoanedBytes::copy_of(bytes);
        // SAFETY: non-paged memory of that length, which outlives the MDL.
        let list = unsafe {
            let list = mdl::allocate(bytes.as_pointer() as usize, bytes.len()).expect("memory");
            mdl::build_for_nonpaged_pool(list);
            list
        };
        Self { bytes, list }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: of `new`, freed once, and no request uses it any more.
        unsafe { mdl::free(self.list) };
    }
}

/// An open socket.
pub struct ClientSocket {
    address: usize,
}

impl ClientSocket {
    fn call(&self, slot: usize, arguments: &[u64]) {
        // SAFETY: an open socket begins with its table.
        let table = unsafe { (self.address as *const *const usize).read() };
        call(table, slot, &[&[self.address as u64], arguments].concat());
    }

    pub fn connect(&self, to: SocketAddr) -> Packet {
        let packet = Packet::new();
        let remote = address(to);
        self.call(CONNECT, &[(&raw const remote) as u64, 0, packet.irp as u64]);
        packet
    }

    /// The next connection of a listening socket.
    pub fn accept(&self) -> Self {
        let packet = Packet::new();
        self.call(ACCEPT, &[0, 0, 0, 0, 0, packet.irp as u64]);
        let (status, address) = packet.end();
        assert_eq!(status, 0);
        Self { address }
    }

    fn request(&self, slot: usize, memory: &Memory) -> (i32, usize) {
        let packet = Packet::new();
        let buffer = WSK_BUF { Mdl: memory.list.cast(), Offset: 0, Length: memory.bytes.len() };
        self.call(slot, &[(&raw const buffer) as u64, 0, packet.irp as u64]);
        packet.end()
    }

    /// Sends all bytes; the status.
    pub fn send(&self, bytes: &[u8]) -> i32 {
        let memory = Memory::new(bytes);
        let (status, sent) = self.request(SEND, &memory);
        assert!(status != 0 || sent == bytes.len());
        status
    }

    /// What has come, at most so many bytes; none at the peer's end.
    pub fn receive(&self, most: usize) -> Result<Vec<u8>, i32> {
        let memory = Memory::new(&vec![0; most]);
        let (status, count) = self.request(RECEIVE, &memory);
        if status == 0 { Ok(memory.bytes.to_vec()[..count].to_vec()) } else { Err(status) }
    }

    /// Ends the own direction; the status.
    pub fn disconnect(&self) -> i32 {
        let packet = Packet::new();
        self.call(DISCONNECT, &[0, 0, packet.irp as u64]);
        packet.end().0
    }

    pub fn close(self) {
        let packet = Packet::new();
        self.call(CLOSE, &[packet.irp as u64]);
        assert_eq!(packet.end().0, 0);
    }
}
