//! Listeners and connectors of the consumer.

use std::ffi::c_void;
use std::net::{SocketAddr, SocketAddrV6};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use kernel_host::callback;
use kernel_host::irql::IrqlRange;
use ndkpi_sys::ndkinfo::NDK_VERSION;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{NTSTATUS, PVOID};
use ndkpi_sys::windows_abi;

use super::border::distorted_status;
use super::completion::{Started, begin_request, create, request, stub};
use super::object::{Object, function};
use super::refusals::call_provider;
use super::signal::Signal;
use super::{Adapter, QueuePair, SharedEndpoint};

/// A `SOCKADDR_IN` or `SOCKADDR_IN6` and its length; or any bytes passed as one.
#[derive(Clone, Copy, Debug)]
pub struct SocketAddress {
    bytes: [u8; 28],
    length: u32,
}

impl SocketAddress {
    /// As many of these bytes as an address may have.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let mut address = Self { bytes: [0; 28], length: bytes.len().min(28) as u32 };
        address.bytes.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        address
    }
}

impl SocketAddress {
    pub(super) fn pointer(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    pub(super) fn length(&self) -> u32 {
        self.length
    }
}

impl From<SocketAddr> for SocketAddress {
    fn from(address: SocketAddr) -> Self {
        let mut bytes = [0; 28];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        let length = match address {
            SocketAddr::V4(address) => {
                bytes[..2].copy_from_slice(&2_u16.to_le_bytes());
                bytes[4..8].copy_from_slice(&address.ip().octets());
                16
            }
            SocketAddr::V6(address) => {
                bytes[..2].copy_from_slice(&23_u16.to_le_bytes());
                bytes[8..24].copy_from_slice(&address.ip().octets());
                bytes[24..].copy_from_slice(&address.scope_id().to_le_bytes());
                28
            }
        };
        Self { bytes, length }
    }
}

impl SocketAddress {
    fn parse(&self) -> SocketAddr {
        let port = u16::from_be_bytes([self.bytes[2], self.bytes[3]]);
        match u16::from_le_bytes([self.bytes[0], self.bytes[1]]) {
            2 => SocketAddr::new(<[u8; 4]>::try_from(&self.bytes[4..8]).expect("four bytes").into(), port),
            23 => {
                let ip = <[u8; 16]>::try_from(&self.bytes[8..24]).expect("sixteen bytes");
                let zone = u32::from_le_bytes(self.bytes[24..].try_into().expect("four bytes"));
                SocketAddr::V6(SocketAddrV6::new(ip.into(), port, 0, zone))
            }
            family => panic!("an address of family {family}"),
        }
    }
}

/// Runs one of the address getters through its size protocol: probe, one byte short, exact fit.
pub(super) fn query_address(call: impl Fn(*mut u8, *mut u32) -> NTSTATUS) -> SocketAddr {
    let mut length = 0_u32;
    assert_eq!(call(ptr::null_mut(), &raw mut length), ndkpi_sys::nt::STATUS_BUFFER_TOO_SMALL, "an address probe");
    assert!(length == 16 || length == 28, "an address of {length} bytes");
    let mut address = SocketAddress { bytes: [0xAA; 28], length };
    length -= 1;
    assert_eq!(call(address.bytes.as_mut_ptr(), &raw mut length), ndkpi_sys::nt::STATUS_BUFFER_TOO_SMALL);
    assert_eq!(length, address.length, "the length that a buffer too short needs");
    assert_eq!(address.bytes, [0xAA; 28], "a buffer too short was written");
    assert_eq!(call(address.bytes.as_mut_ptr(), &raw mut length), 0);
    assert_eq!(length, address.length);
    address.parse()
}

type ConnectReaction = Box<dyn FnMut(Connector) + Send>;

/// Connection requests that have arrived and not been taken.
struct Arrivals {
    connectors: Mutex<Vec<usize>>,
    /// What the consumer does with a connector inside the callback, instead of keeping it.
    reaction: Mutex<Option<ConnectReaction>>,
    version: NDK_VERSION,
    signal: Signal,
}

windows_abi! {
    unsafe fn connect_event(context: PVOID, connector: *mut NDK_CONNECTOR) {
        callback::enter_consumer_callback("NDK_FN_CONNECT_EVENT_CALLBACK", IrqlRange::DISPATCH_ONLY);
        assert!(!connector.is_null(), "a connect event without a connector");
        // SAFETY: the context is a leaked `Arrivals`.
        let arrivals = unsafe { &*context.cast::<Arrivals>() };
        let mut reaction = arrivals.reaction.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reaction) = reaction.as_mut() {
            reaction(Connector::adopt(Object::adopt(connector, arrivals.version)));
            return;
        }
        arrivals.connectors.lock().unwrap_or_else(PoisonError::into_inner).push(connector as usize);
        arrivals.signal.set();
    }
}

pub struct Listener {
    object: Object<NDK_LISTENER>,
    arrivals: &'static Arrivals,
}

impl Listener {
    pub fn new(adapter: &Adapter) -> Result<Self, NTSTATUS> {
        static SLOT: OnceLock<usize> = OnceLock::new();
        let arrivals = &*Box::leak(Box::new(Arrivals {
            connectors: Mutex::new(Vec::new()),
            reaction: Mutex::new(None),
            version: adapter.version(),
            signal: Signal::new(),
        }));
        let event = stub(&SLOT, connect_event as *const c_void, 2);
        let object = create("NDK_FN_CREATE_LISTENER", |callback, context, out| {
            // SAFETY: the arguments are those of NDK_FN_CREATE_LISTENER.
            unsafe {
                call_provider!(function("NDK_FN_CREATE_LISTENER"), adapter.table().NdkCreateListener => NTSTATUS;
                    adapter.pointer(), event, ptr::from_ref(arrivals), callback, context, out)
            }
        })?;
        Ok(Self { object: Object::adopt(object, adapter.version()), arrivals })
    }

    pub fn object(&self) -> &Object<NDK_LISTENER> {
        &self.object
    }

    pub fn close(&self) {
        self.object.close();
    }

    pub fn listen(&self, address: impl Into<SocketAddress>) -> NTSTATUS {
        let address: SocketAddress = address.into();
        request("NDK_FN_LISTEN", |callback, context| {
            // SAFETY: the arguments are those of NDK_FN_LISTEN.
            unsafe {
                call_provider!(function("NDK_FN_LISTEN"), self.object.table().NdkListen => NTSTATUS;
                    self.object.pointer(), address.pointer(), address.length, callback, context)
            }
        })
    }

    pub fn local_address(&self) -> SocketAddr {
        query_address(|address, length| {
            // SAFETY: the arguments are those of NDK_FN_GET_LISTENER_LOCAL_ADDRESS.
            unsafe {
                call_provider!(function("NDK_FN_GET_LISTENER_LOCAL_ADDRESS"),
                    self.object.table().NdkGetLocalAddress => NTSTATUS; self.object.pointer(), address, length)
            }
        })
    }

    pub fn pause_events(&self, pause: bool) {
        // SAFETY: the arguments are those of NDK_FN_CONTROL_CONNECT_EVENTS.
        unsafe {
            call_provider!(function("NDK_FN_CONTROL_CONNECT_EVENTS"),
                self.object.table().NdkControlConnectEvents => (); self.object.pointer(), pause);
        }
    }

    /// Has every connector that arrives from now on handled inside the connect event, at whatever level that runs.
    pub fn on_connect(&self, reaction: impl FnMut(Connector) + Send + 'static) {
        *self.arrivals.reaction.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(reaction));
    }

    /// Takes the next connection request, waiting for it.
    pub fn next(&self) -> Connector {
        loop {
            self.arrivals.signal.clear();
            let next = {
                let mut connectors = self.arrivals.connectors.lock().unwrap_or_else(PoisonError::into_inner);
                if connectors.is_empty() { None } else { Some(connectors.remove(0)) }
            };
            if let Some(connector) = next {
                return Connector::adopt(Object::adopt(connector as *mut NDK_CONNECTOR, self.object.version()));
            }
            assert!(self.arrivals.signal.wait(), "no connection request arrived");
        }
    }

    /// Connection requests that have arrived and were not taken.
    pub fn waiting(&self) -> usize {
        self.arrivals.connectors.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Disconnect events of one connector.
struct Events {
    calls: AtomicU32,
    /// What the extended event said.
    reason: AtomicU32,
    /// What the consumer does inside the event.
    reaction: Mutex<Option<Box<dyn FnMut() + Send>>>,
    signal: Signal,
}

impl Events {
    fn react(&self) {
        if let Some(reaction) = self.reaction.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            reaction();
        }
    }
}

windows_abi! {
    unsafe fn disconnect_event(context: PVOID) {
        callback::enter_consumer_callback("NDK_FN_DISCONNECT_EVENT_CALLBACK", IrqlRange::DISPATCH_ONLY);
        // SAFETY: the context is a leaked `Events`.
        let events = unsafe { &*context.cast::<Events>() };
        let before = events.calls.fetch_add(1, Ordering::AcqRel);
        assert!(before == 0, "{} disconnect events for one connection", before + 1);
        events.react();
        events.signal.set();
    }
}

windows_abi! {
    unsafe fn disconnect_event_ex(context: PVOID, reason: u32) {
        callback::enter_consumer_callback("NDK_FN_DISCONNECT_EVENT_CALLBACK_EX", IrqlRange::DISPATCH_ONLY);
        // SAFETY: the context is a leaked `Events`.
        let events = unsafe { &*context.cast::<Events>() };
        let reason = distorted_status("NDK_FN_DISCONNECT_EVENT_CALLBACK_EX", reason.cast_signed()).cast_unsigned();
        events.reason.store(reason, Ordering::Release);
        let before = events.calls.fetch_add(1, Ordering::AcqRel);
        assert!(before == 0, "{} disconnect events for one connection", before + 1);
        events.react();
        events.signal.set();
    }
}

fn disconnect_callback_ex() -> *const c_void {
    static SLOT: OnceLock<usize> = OnceLock::new();
    stub(&SLOT, disconnect_event_ex as *const c_void, 2)
}

fn disconnect_callback() -> *const c_void {
    static SLOT: OnceLock<usize> = OnceLock::new();
    stub(&SLOT, disconnect_event as *const c_void, 1)
}

/// What a connector says about its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionData {
    pub inbound_reads: u32,
    pub outbound_reads: u32,
    pub private_data: Vec<u8>,
}

/// What a side offers when it connects or accepts.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    pub inbound_reads: u32,
    pub outbound_reads: u32,
    pub private_data: &'a [u8],
}

impl Default for Offer<'_> {
    fn default() -> Self {
        Self { inbound_reads: 16, outbound_reads: 16, private_data: &[] }
    }
}

impl Offer<'_> {
    fn data(&self) -> *const u8 {
        if self.private_data.is_empty() { ptr::null() } else { self.private_data.as_ptr() }
    }
}

pub struct Connector {
    object: Object<NDK_CONNECTOR>,
    events: &'static Events,
}

impl Connector {
    pub fn new(adapter: &Adapter) -> Result<Self, NTSTATUS> {
        let object = create("NDK_FN_CREATE_CONNECTOR", |callback, context, out| {
            // SAFETY: the arguments are those of NDK_FN_CREATE_CONNECTOR.
            unsafe {
                call_provider!(function("NDK_FN_CREATE_CONNECTOR"), adapter.table().NdkCreateConnector => NTSTATUS;
                    adapter.pointer(), callback, context, out)
            }
        })?;
        Ok(Self::adopt(Object::adopt(object, adapter.version())))
    }

    fn adopt(object: Object<NDK_CONNECTOR>) -> Self {
        let events = &*Box::leak(Box::new(Events {
            calls: AtomicU32::new(0),
            reason: AtomicU32::new(0),
            reaction: Mutex::new(None),
            signal: Signal::new(),
        }));
        Self { object, events }
    }

    pub fn object(&self) -> &Object<NDK_CONNECTOR> {
        &self.object
    }

    pub fn close(&self) {
        self.object.close();
    }

    pub fn begin_connect(
        &self,
        pair: &QueuePair,
        from: impl Into<SocketAddress>,
        to: impl Into<SocketAddress>,
        offer: &Offer<'_>,
    ) -> Started {
        let (from, to): (SocketAddress, SocketAddress) = (from.into(), to.into());
        begin_request("NDK_FN_CONNECT", |callback, context| {
            // SAFETY: the arguments are those of NDK_FN_CONNECT.
            unsafe {
                call_provider!(function("NDK_FN_CONNECT"), self.object.table().NdkConnect => NTSTATUS;
                    self.object.pointer(), pair.object().pointer(), from.pointer(), from.length,
                    to.pointer(), to.length, offer.inbound_reads, offer.outbound_reads,
                    offer.data(), offer.private_data.len() as u32, callback, context)
            }
        })
    }

    pub fn begin_connect_shared(
        &self,
        pair: &QueuePair,
        from: &SharedEndpoint,
        to: impl Into<SocketAddress>,
        offer: &Offer<'_>,
    ) -> Started {
        let to: SocketAddress = to.into();
        begin_request("NDK_FN_CONNECT_WITH_SHARED_ENDPOINT", |callback, context| {
            // SAFETY: the arguments are those of NDK_FN_CONNECT_WITH_SHARED_ENDPOINT.
            unsafe {
                call_provider!(function("NDK_FN_CONNECT_WITH_SHARED_ENDPOINT"),
                    self.object.table().NdkConnectWithSharedEndpoint => NTSTATUS;
                    self.object.pointer(), pair.object().pointer(), from.object().pointer(),
                    to.pointer(), to.length, offer.inbound_reads, offer.outbound_reads,
                    offer.data(), offer.private_data.len() as u32, callback, context)
            }
        })
    }

    /// NDK_FN_COMPLETE_CONNECT_EX: the event brings a reason.
    pub fn begin_complete_connect_ex(&self) -> Started {
        begin_request("NDK_FN_COMPLETE_CONNECT_EX", |callback, context| {
            // SAFETY: the arguments are those of NDK_FN_COMPLETE_CONNECT_EX.
            unsafe {
                call_provider!(function("NDK_FN_COMPLETE_CONNECT_EX"),
                    self.object.table().NdkCompleteConnectEx => NTSTATUS;
                    self.object.pointer(), disconnect_callback_ex(), ptr::from_ref(self.events), callback, context)
            }
        })
    }

    /// NDK_FN_COMPLETE_CONNECT without a disconnect event.
    pub fn begin_complete_connect_without_event(&self) -> Started {
        begin_request("NDK_FN_COMPLETE_CONNECT", |callback, context| {
            // SAFETY: the arguments are those of NDK_FN_COMPLETE_CONNECT; the event is optional.
            unsafe {
                call_provider!(function("NDK_FN_COMPLETE_CONNECT"), self.object.table().NdkCompleteConnect => NTSTATUS;
                    self.object.pointer(), ptr::null::<c_void>(), ptr::null::<c_void>(), callback, context)
            }
        })
    }

    pub fn begin_complete_connect(&self) -> Started {
        begin_request("NDK_FN_COMPLETE_CONNECT", |callback, context| {
            // SAFETY: the arguments are those of NDK_FN_COMPLETE_CONNECT.
            unsafe {
                call_provider!(function("NDK_FN_COMPLETE_CONNECT"), self.object.table().NdkCompleteConnect => NTSTATUS;
                    self.object.pointer(), disconnect_callback(), ptr::from_ref(self.events), callback, context)
            }
        })
    }

    pub fn begin_accept(&self, pair: &QueuePair, offer: &Offer<'_>) -> Started {
        begin_request("NDK_FN_ACCEPT", |callback, context| {
            // SAFETY: the arguments are those of NDK_FN_ACCEPT.
            unsafe {
                call_provider!(function("NDK_FN_ACCEPT"), self.object.table().NdkAccept => NTSTATUS;
                    self.object.pointer(), pair.object().pointer(), offer.inbound_reads, offer.outbound_reads,
                    offer.data(), offer.private_data.len() as u32, disconnect_callback(),
                    ptr::from_ref(self.events), callback, context)
            }
        })
    }

    /// NDK_FN_ACCEPT_EX: the event brings a reason.
    pub fn begin_accept_ex(&self, pair: &QueuePair, offer: &Offer<'_>) -> Started {
        begin_request("NDK_FN_ACCEPT_EX", |callback, context| {
            // SAFETY: the arguments are those of NDK_FN_ACCEPT_EX.
            unsafe {
                call_provider!(function("NDK_FN_ACCEPT_EX"), self.object.table().NdkAcceptEx => NTSTATUS;
                    self.object.pointer(), pair.object().pointer(), offer.inbound_reads, offer.outbound_reads,
                    offer.data(), offer.private_data.len() as u32, disconnect_callback_ex(),
                    ptr::from_ref(self.events), callback, context)
            }
        })
    }

    /// NDK_FN_ACCEPT without a disconnect event.
    pub fn begin_accept_without_event(&self, pair: &QueuePair, offer: &Offer<'_>) -> Started {
        begin_request("NDK_FN_ACCEPT", |callback, context| {
            // SAFETY: the arguments are those of NDK_FN_ACCEPT; the event is optional.
            unsafe {
                call_provider!(function("NDK_FN_ACCEPT"), self.object.table().NdkAccept => NTSTATUS;
                    self.object.pointer(), pair.object().pointer(), offer.inbound_reads, offer.outbound_reads,
                    offer.data(), offer.private_data.len() as u32, ptr::null::<c_void>(),
                    ptr::null::<c_void>(), callback, context)
            }
        })
    }

    pub fn reject(&self, private_data: &[u8]) -> NTSTATUS {
        let data = if private_data.is_empty() { ptr::null() } else { private_data.as_ptr() };
        // SAFETY: the arguments are those of NDK_FN_REJECT.
        unsafe {
            call_provider!(function("NDK_FN_REJECT"), self.object.table().NdkReject => NTSTATUS;
                self.object.pointer(), data, private_data.len() as u32)
        }
    }

    pub fn begin_disconnect(&self) -> Started {
        begin_request("NDK_FN_DISCONNECT", |callback, context| {
            // SAFETY: the arguments are those of NDK_FN_DISCONNECT.
            unsafe {
                call_provider!(function("NDK_FN_DISCONNECT"), self.object.table().NdkDisconnect => NTSTATUS;
                    self.object.pointer(), callback, context)
            }
        })
    }

    /// NDK_FN_GET_CONNECTION_DATA as it is.
    pub fn connection_data(&self, buffer: Option<&mut [u8]>, length: &mut u32) -> (NTSTATUS, u32, u32) {
        let (mut inbound, mut outbound) = (u32::MAX, u32::MAX);
        let data = buffer.map_or(ptr::null_mut(), <[u8]>::as_mut_ptr);
        // SAFETY: the arguments are those of NDK_FN_GET_CONNECTION_DATA.
        let status = unsafe {
            call_provider!(function("NDK_FN_GET_CONNECTION_DATA"), self.object.table().NdkGetConnectionData => NTSTATUS;
                self.object.pointer(), &raw mut inbound, &raw mut outbound, data, ptr::from_mut(length))
        };
        (status, inbound, outbound)
    }

    /// The limits and the private data, through the size protocol.
    pub fn data(&self) -> ConnectionData {
        let mut length = 0;
        let (status, ..) = self.connection_data(None, &mut length);
        assert_eq!(status, 0, "a size query for private data");
        let mut private_data = vec![0; length as usize];
        let (status, inbound_reads, outbound_reads) = if private_data.is_empty() {
            self.connection_data(None, &mut length)
        } else {
            self.connection_data(Some(&mut private_data), &mut length)
        };
        assert_eq!(status, 0, "private data into a buffer of the size asked for");
        ConnectionData { inbound_reads, outbound_reads, private_data }
    }

    pub fn local_address(&self) -> SocketAddr {
        query_address(|address, length| {
            // SAFETY: the arguments are those of NDK_FN_GET_LOCAL_ADDRESS.
            unsafe {
                call_provider!(function("NDK_FN_GET_LOCAL_ADDRESS"), self.object.table().NdkGetLocalAddress => NTSTATUS;
                    self.object.pointer(), address, length)
            }
        })
    }

    pub fn peer_address(&self) -> SocketAddr {
        query_address(|address, length| {
            // SAFETY: the arguments are those of NDK_FN_GET_PEER_ADDRESS.
            unsafe {
                call_provider!(function("NDK_FN_GET_PEER_ADDRESS"), self.object.table().NdkGetPeerAddress => NTSTATUS;
                    self.object.pointer(), address, length)
            }
        })
    }

    /// What both address queries answer into a buffer that is large enough: local, then peer.
    pub fn address_statuses(&self) -> [NTSTATUS; 2] {
        let mut bytes = [0_u8; 28];
        let mut length = bytes.len() as u32;
        // SAFETY: the arguments are those of NDK_FN_GET_LOCAL_ADDRESS.
        let local = unsafe {
            call_provider!(function("NDK_FN_GET_LOCAL_ADDRESS"), self.object.table().NdkGetLocalAddress => NTSTATUS;
                self.object.pointer(), bytes.as_mut_ptr(), &raw mut length)
        };
        length = bytes.len() as u32;
        // SAFETY: the arguments are those of NDK_FN_GET_PEER_ADDRESS.
        let peer = unsafe {
            call_provider!(function("NDK_FN_GET_PEER_ADDRESS"), self.object.table().NdkGetPeerAddress => NTSTATUS;
                self.object.pointer(), bytes.as_mut_ptr(), &raw mut length)
        };
        [local, peer]
    }

    /// How often the disconnect event has come.
    pub fn disconnect_events(&self) -> u32 {
        self.events.calls.load(Ordering::Acquire)
    }

    /// Has something done inside the disconnect event, at whatever level that runs.
    pub fn on_disconnect(&self, reaction: impl FnMut() + Send + 'static) {
        *self.events.reaction.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(reaction));
    }

    /// What the extended event said last; 0 without one.
    pub fn disconnect_reason(&self) -> u32 {
        self.events.reason.load(Ordering::Acquire)
    }

    pub fn wait_for_disconnect(&self) -> bool {
        self.events.signal.wait()
    }
}
