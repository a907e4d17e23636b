//! Opens of an adapter by a process, and the protection domains made of them.
//!
//! An open counts on the provider of its adapter until the engine has closed it, as an open of a kernel consumer does: HaltEx waits
//! for it, after it has ended the objects of every process.

use core::{
    ffi::c_void,
    net::{IpAddr, SocketAddr},
    ptr::{self, NonNull},
};

use ndkpi_sys::nt::{
    NTSTATUS, STATUS_BUFFER_OVERFLOW, STATUS_DEVICE_NOT_READY, STATUS_INVALID_ADDRESS, STATUS_INVALID_PARAMETER,
    STATUS_NOT_SUPPORTED, STATUS_SHARING_VIOLATION, STATUS_SUCCESS,
};
use softndk_cells::Shared;
use softndk_engine::{Close, CloseCompletion, Limits, Open, ProtectionDomain, Semantics};
use softndk_ioctl::nd::{
    self,
    control::{AdapterInfo, AdapterQuery, Handle, OpenAdapter, ResolveAddress, ResourceDescriptor, SocketAddress},
    private::AddressListReply,
};
use softndk_ioctl::{NdkCall, RefusalCause};
use softndk_kernel::irp::Buffer;
use zerocopy::IntoBytes;

use super::{
    context::{AdapterLife, HandleReservation},
    endpoint::Endpoint,
    object::{self, Closable, EngineHandle, consumer_object, handle_kind},
    request::{Call, answer, check_output, input},
    socket,
    status::{Answered, of_error},
};
use crate::{
    driver::{ADAPTER_MAX, AdapterReference, Driver},
    ndk::provider::Provider,
    runtime::{
        completion,
        platform::{CancelledRequest, CloseCallback, KernelPlatform, UserModeObject},
        refusal::{Refusal, refuse},
    },
    version,
};

/// Depth of a completion queue, at most: what the largest queue pair needs and more, and cheap to make.
const COMPLETION_DEPTH: u32 = 65_519;
/// Data that is cheaper inline, at most.
const INLINE_THRESHOLD: u32 = 128;
/// From here on a Read or Write beats a Send, in bytes.
const LARGE_REQUEST: u32 = 64 << 10;
/// Versions by which programs ask for ND2_ADAPTER_INFO: two that the documentation names, and the header's.
const INFO_VERSIONS: [u32; 3] = [1, 2, nd::INFO_VERSION];
/// ND_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED, _CQ_RESIZE_SUPPORTED, _LOOPBACK_CONNECTIONS_SUPPORTED.
const FLAGS: u32 = 0x1 | 0x100 | 0x1_0000;

/// An open adapter.
pub struct OpenedAdapter {
    open: EngineHandle<Open<KernelPlatform>>,
    /// It outlives the engine's open.
    provider: NonNull<Provider>,
    pub life: AdapterLife,
    /// By which programs know it.
    id: u64,
    /// How long the driver looks at a queue's rings after the last entry, in nanoseconds; 0: posts need doorbells.
    pub poll_window: u64,
    /// Any version of the information is taken.
    lenient: bool,
}

// SAFETY: the provider is shared by all opens of the adapter and outlives them.
unsafe impl Send for OpenedAdapter {}
// SAFETY: as above.
unsafe impl Sync for OpenedAdapter {}

impl OpenedAdapter {
    /// The engine's open.
    pub fn open(&self) -> Result<&Open<KernelPlatform>, NTSTATUS> {
        self.open.get()
    }

    /// What the process may have of it.
    pub fn limits(&self) -> Result<Limits, NTSTATUS> {
        Ok(limits(self.open()?.adapter().limits()))
    }

    /// The endpoint of a Bind: one that the process has already, or a new one.
    pub fn bind(
        this: &Shared<Self>,
        call: &Call,
        address: SocketAddr,
        listens: bool,
    ) -> Result<Shared<Endpoint>, NTSTATUS> {
        let mut found = None;
        let mut is_taken = false;
        if address.port() != 0 {
            call.context.each_object(&mut |object| {
                let Some((endpoint, is_listener)) = object.bound_to() else { return };
                if endpoint.is_at(address) && ptr::eq(object.adapter(), &raw const this.life) {
                    is_taken |= is_listener && listens;
                    found = Some(endpoint);
                }
            });
        }
        match found {
            _ if is_taken => Err(STATUS_SHARING_VIOLATION),
            Some(endpoint) => Ok(endpoint),
            None => Endpoint::reserve(this.open()?, address, consumer_object(this)),
        }
    }
}

/// The engine's limits, but for a depth that must be cheap.
fn limits(of: &Limits) -> Limits {
    Limits { completion_depth: of.completion_depth.min(COMPLETION_DEPTH), ..*of }
}

handle_kind!(OpenedAdapter);

impl UserModeObject for Shared<OpenedAdapter> {
    fn cancelled(&self, _request: CancelledRequest) {}
}

impl Closable for Shared<OpenedAdapter> {
    fn close(&self, _status: NTSTATUS) {
        let Ok(open) = self.open.get() else { return };
        // SAFETY: `closed` takes the provider, which waits for its opens before it goes.
        let callback = unsafe { CloseCallback::new(Some(closed), self.provider.as_ptr().cast()) };
        if let Close::Done(object) = open.close(callback) {
            completion::closed(CloseCompletion { callback, object });
        }
    }

    fn end_file(&self, _file: u64) {}

    fn adapter(&self) -> &AdapterLife {
        &self.life
    }
}

/// The engine has closed an open. `IRQL <= DISPATCH_LEVEL`.
unsafe extern "C" fn closed(provider: *mut c_void) {
    // SAFETY: the provider waits for this in `Provider::stop`.
    if let Some(provider) = unsafe { provider.cast::<Provider>().as_ref() } {
        provider.closed();
    }
}

/// The running adapter that `fits`.
fn find(fits: impl Fn(&crate::adapter::Adapter) -> bool) -> Option<AdapterReference> {
    let driver = Driver::get()?;
    (0..ADAPTER_MAX).filter_map(|index| driver.adapter(index)).find(|adapter| fits(adapter))
}

/// ADAPTER_OPEN.
pub fn open(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: OpenAdapter = input(buffer)?;
    check_output::<ResourceDescriptor>(buffer)?;
    let found = find(|adapter| adapter.net_luid == asked.adapter_id).ok_or(STATUS_INVALID_PARAMETER)?;
    let mut reservation = HandleReservation::try_new(call, &[], None)?;
    let adapter = object::block(OpenedAdapter {
        open: EngineHandle::none(&mut reservation),
        provider: NonNull::from(&found.provider),
        life: AdapterLife::new(found.index),
        id: found.net_luid,
        poll_window: found.provider.configuration().network_direct_poll,
        lenient: found.provider.configuration().network_direct_lenient,
    })?;
    if !found.provider.engine_open() {
        return Err(STATUS_DEVICE_NOT_READY);
    }
    match found.provider.engine().open(Semantics::ND, consumer_object(&adapter)) {
        Ok(open) => {
            open.set_label(u64::from(call.context.process));
            // SAFETY: no other context has the object yet.
            unsafe { adapter.open.set(open) };
        }
        Err(cause) => {
            found.provider.closed();
            return Err(of_error(cause));
        }
    }
    // The reference is kept until the handle is there: a removal that waits for it finds the open.
    let handle = reservation.fill(adapter);
    drop(found);
    answer(buffer, &ResourceDescriptor { handle, ..ResourceDescriptor::default() })
}

/// Whether a program may ask for the information by this version. What is none is kept among the refusals, also where it is taken.
fn check_version(adapter: &OpenedAdapter, version: u32) -> Result<(), NTSTATUS> {
    if INFO_VERSIONS.contains(&version) {
        return Ok(());
    }
    let status = if adapter.lenient { STATUS_SUCCESS } else { STATUS_NOT_SUPPORTED };
    let refusal = Refusal::new(RefusalCause::UNKNOWN_VERSION, status);
    match refuse(NdkCall::ND_QUERY, adapter.open()?, refusal) {
        STATUS_SUCCESS => Ok(()),
        status => Err(status),
    }
}

/// ADAPTER_QUERY.
pub fn query(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: AdapterQuery = input(buffer)?;
    let adapter = call.context.object::<OpenedAdapter>(asked.adapter)?;
    check_version(&adapter, asked.info_version)?;
    let limits = adapter.limits()?;
    let info = AdapterInfo {
        info_version: nd::INFO_VERSION,
        // "No OUI" does not fit in two bytes; what fits of it does as well.
        vendor_id: version::VENDOR_ID as u16,
        device_id: version::DEVICE_ID as u16,
        adapter_id: adapter.id,
        max_registration_size: limits.registration_size,
        max_window_size: limits.registration_size,
        max_initiator_sge: limits.initiator_sges,
        max_receive_sge: limits.receive_sges,
        max_read_sge: limits.read_sges,
        max_transfer_length: limits.transfer_length,
        max_inline_data_size: limits.inline_data,
        max_inbound_read_limit: limits.inbound_reads,
        max_outbound_read_limit: limits.outbound_reads,
        max_receive_queue_depth: limits.receive_depth,
        max_initiator_queue_depth: limits.initiator_depth,
        max_shared_receive_queue_depth: limits.shared_depth,
        max_completion_queue_depth: limits.completion_depth,
        inline_request_threshold: limits.inline_data.min(INLINE_THRESHOLD),
        large_request_threshold: LARGE_REQUEST,
        max_caller_data: limits.caller_data,
        max_callee_data: limits.callee_data,
        adapter_flags: FLAGS,
    };
    answer(buffer, &info)
}

/// PROVIDER_RESOLVE_ADDRESS. The port does not matter; a link-local address may have its zone or none.
pub fn resolve(_call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: ResolveAddress = input(buffer)?;
    let wanted = socket::read(&asked.address)?;
    let has = |adapter: &crate::adapter::Adapter| {
        let mut has = false;
        adapter.provider.addresses().for_each(|address| {
            has |= address.ip == wanted.ip() && socket::zones_fit(address.scope_id, socket::zone(wanted));
        });
        has && adapter.provider.is_enabled()
    };
    let found = find(has).ok_or(STATUS_INVALID_ADDRESS)?;
    answer(buffer, &found.net_luid)
}

/// Calls `each` for the addresses of all adapters that can be opened, or of one that is.
fn each_address(of: Option<usize>, each: &mut dyn FnMut(IpAddr, u32)) {
    let Some(driver) = Driver::get() else { return };
    for index in (0..ADAPTER_MAX).filter(|index| of.is_none_or(|of| of == *index)) {
        if let Some(adapter) = driver.adapter(index).filter(|adapter| of.is_some() || adapter.provider.is_enabled()) {
            adapter.provider.addresses().for_each(|address| each(address.ip, address.scope_id));
        }
    }
}

/// Writes as many addresses as fit; how many there are and how many were written.
fn list(of: Option<usize>, output: &mut [u8]) -> (u32, u32) {
    let (mut count, mut written) = (0_u32, 0_u32);
    let mut places = output.chunks_exact_mut(size_of::<SocketAddress>());
    each_address(of, &mut |ip, zone| {
        count = count.saturating_add(1);
        if let Some(place) = places.next() {
            let mut address = SocketAddr::new(ip, 0);
            if let SocketAddr::V6(address) = &mut address {
                address.set_scope_id(zone);
            }
            place.copy_from_slice(socket::write(&address).as_bytes());
            written = written.saturating_add(1);
        }
    });
    (count, written)
}

/// The adapter that a handle names; none for handle 0.
fn index_of(call: &Call, handle: u64) -> Result<Option<usize>, NTSTATUS> {
    if handle == 0 { Ok(None) } else { Ok(Some(call.context.object::<OpenedAdapter>(handle)?.life.index)) }
}

/// PROVIDER_QUERY_ADDRESS_LIST: BUFFER_OVERFLOW with as many as fit where not all do.
pub fn provider_addresses(_call: &Call, buffer: &mut Buffer) -> (NTSTATUS, usize) {
    match input::<Handle>(buffer) {
        Ok(_) => addresses(None, buffer),
        Err(status) => (status, 0),
    }
}

/// ADAPTER_QUERY_ADDRESS_LIST.
pub fn adapter_addresses(call: &Call, buffer: &mut Buffer) -> (NTSTATUS, usize) {
    let found = input::<Handle>(buffer).and_then(|asked| call.context.object::<OpenedAdapter>(asked.handle));
    match found {
        Ok(adapter) => addresses(Some(adapter.life.index), buffer),
        Err(status) => (status, 0),
    }
}

fn addresses(of: Option<usize>, buffer: &mut Buffer) -> (NTSTATUS, usize) {
    let (count, written) = list(of, buffer.output());
    let bytes = (written as usize).saturating_mul(size_of::<SocketAddress>());
    (if written == count { STATUS_SUCCESS } else { STATUS_BUFFER_OVERFLOW }, bytes)
}

/// QUERY_ADDRESSES.
pub fn query_addresses(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: Handle = input(buffer)?;
    check_output::<AddressListReply>(buffer)?;
    let of = index_of(call, asked.handle)?;
    let output = buffer.output();
    let Some((head, places)) = output.split_at_mut_checked(size_of::<AddressListReply>()) else { return Ok(0) };
    let (count, returned) = list(of, places);
    head.copy_from_slice(AddressListReply { count, returned }.as_bytes());
    Ok(size_of::<AddressListReply>().saturating_add((returned as usize).saturating_mul(size_of::<SocketAddress>())))
}

/// A protection domain.
pub struct Domain {
    engine: EngineHandle<ProtectionDomain<KernelPlatform>>,
    pub adapter: Shared<OpenedAdapter>,
}

impl Domain {
    pub fn engine(&self) -> Result<&ProtectionDomain<KernelPlatform>, NTSTATUS> {
        self.engine.get()
    }
}

handle_kind!(Domain);

impl UserModeObject for Shared<Domain> {
    fn cancelled(&self, _request: CancelledRequest) {}
}

impl Closable for Shared<Domain> {
    fn close(&self, _status: NTSTATUS) {
        if let Ok(engine) = self.engine.get() {
            object::finish(engine.close(object::no_callback()));
        }
    }

    fn end_file(&self, _file: u64) {}

    fn adapter(&self) -> &AdapterLife {
        &self.adapter.life
    }
}

/// PD_CREATE.
pub fn create_domain(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: Handle = input(buffer)?;
    check_output::<u64>(buffer)?;
    let adapter = call.context.object::<OpenedAdapter>(asked.handle)?;
    let mut reservation = HandleReservation::try_new(call, &[asked.handle], Some(&adapter.life))?;
    let domain = object::block(Domain { engine: EngineHandle::none(&mut reservation), adapter: adapter.clone() })?;
    let engine = adapter.open()?.create_protection_domain(consumer_object(&domain)).map_err(of_error)?;
    // SAFETY: no other context has the object yet.
    unsafe { domain.engine.set(engine) };
    answer(buffer, &reservation.fill(domain))
}
