//! The adapters that can be opened: interfaces with an IP address whose NDK adapter Winsock Kernel opens, or would if NDK were on.

use core::mem::size_of;

use ndkpi_sys::{ndis::NDIS_STATUS_ADAPTER_NOT_READY, ndkinfo::NDK_ADAPTER_INFO};
use softndk_ioctl::{
    ADAPTER_ADDRESS_MAX, AdapterAddress, AdapterCounters, AdapterEntry, AdapterFlags, AdapterListReply,
    AdapterListRequest, CompletionModeInForce, LimitsProfileInForce, Outcome, ProcessLimits, RequestHeader, Status,
    Technology, adapter_limits, read_request,
};
use softndk_kernel::{irp::Buffer, pool::PoolBox};
use zerocopy::IntoBytes;

use crate::{driver::Driver, interface::Addresses, session::consumer::OpenedAdapter, tags};

/// IOCTL: adapter list. As many whole entries as fit, and how many there are. PASSIVE_LEVEL.
#[inline(never)]
pub fn answer(buffer: &mut Buffer) -> Outcome {
    Outcome::of_list(fill(buffer))
}

/// Bytes written, and whether every adapter is among them.
fn fill(buffer: &mut Buffer) -> Result<(usize, bool), Status> {
    let _request: AdapterListRequest = read_request(buffer.input())?;
    let driver = Driver::get().ok_or(Status::DEVICE_REMOVED)?;
    let addresses = Addresses::read()?;
    let output = buffer.output();
    let (head, mut capacity) =
        output.split_at_mut_checked(size_of::<AdapterListReply>()).ok_or(Status::BUFFER_TOO_SMALL)?;
    let (mut adapters, mut returned) = (0_u32, 0_u32);
    for interface in addresses.interfaces() {
        let Some(entry) = describe(driver, &addresses, (adapters, interface))? else { continue };
        adapters = adapters.saturating_add(1);
        if let Some((place, rest)) = core::mem::take(&mut capacity).split_at_mut_checked(size_of::<AdapterEntry>()) {
            place.copy_from_slice(entry.as_bytes());
            returned = returned.saturating_add(1);
            capacity = rest;
        }
    }
    let entry_size = size_of::<AdapterEntry>() as u32;
    let head_size = size_of::<AdapterListReply>() as u32;
    let reply = AdapterListReply {
        header: RequestHeader::of::<AdapterListReply>(),
        adapter_count: adapters,
        returned_count: returned,
        entry_size,
        required_length: head_size.saturating_add(adapters.saturating_mul(entry_size)),
    };
    head.copy_from_slice(reply.as_bytes());
    Ok((head_size.saturating_add(returned.saturating_mul(entry_size)) as usize, returned == adapters))
}

/// What the list says of an interface; nothing if it has no NDK adapter.
#[inline(never)]
fn describe(
    driver: &'static Driver,
    addresses: &Addresses,
    (index, interface): (u32, u32),
) -> Result<Option<PoolBox<AdapterEntry>>, Status> {
    let mut flags = AdapterFlags::LINK_UP | AdapterFlags::RUNNING;
    let mut information = NDK_ADAPTER_INFO::zeroed();
    let opened = OpenedAdapter::open(driver, interface);
    if !is_listed(&opened) {
        return Ok(None);
    }
    if let Ok(adapter) = opened {
        information = adapter.handle().information()?;
        flags |= AdapterFlags::NDK_ENABLED;
    }
    let mut list = [AdapterAddress::UNUSED; ADAPTER_ADDRESS_MAX];
    let (mut count, mut net_luid) = (0_usize, 0);
    for address in addresses.of(interface) {
        net_luid = address.net_luid;
        match list.get_mut(count) {
            Some(place) => {
                *place = AdapterAddress::new(address.ip, address.prefix_length, address.scope_id);
                count = count.saturating_add(1);
            }
            None => flags |= AdapterFlags::MORE_ADDRESSES,
        }
    }
    let entry = AdapterEntry {
        net_luid,
        link_speed: 0,
        index,
        interface_index: interface,
        wire_number: 0,
        mtu: 0,
        mac_address: [0; 6],
        reserved: [0; 2],
        flags,
        technology: Technology(information.RdmaTechnology.0.cast_unsigned()),
        address_count: count as u32,
        completion_mode: CompletionModeInForce::UNKNOWN,
        limits_profile: LimitsProfileInForce::UNKNOWN,
        limits: adapter_limits!(information),
        counters: AdapterCounters::default(),
        addresses: list,
        process_limits: ProcessLimits::default(),
    };
    PoolBox::try_new(tags::INTERFACE, entry).map(Some).map_err(|_| Status::INSUFFICIENT_RESOURCES)
}

/// Opens the adapter with an index of the list: its place in the order of the interfaces' indices. PASSIVE_LEVEL.
pub fn open(driver: &'static Driver, index: u32) -> Result<OpenedAdapter, Status> {
    let mut before = index;
    for interface in Addresses::read()?.interfaces() {
        let opened = OpenedAdapter::open(driver, interface);
        if !is_listed(&opened) {
            continue;
        }
        match before.checked_sub(1) {
            Some(left) => before = left,
            None => return opened,
        }
    }
    Err(Status::DEVICE_DOES_NOT_EXIST)
}

/// Whether an interface has an NDK adapter, by what its open came to.
fn is_listed(opened: &Result<OpenedAdapter, Status>) -> bool {
    matches!(opened, Ok(_) | Err(Status::DEVICE_NOT_READY | Status::INSUFFICIENT_RESOURCES))
}

/// The statuses with which an open says that NDK is off for now.
pub fn is_off(status: i32) -> bool {
    status == NDIS_STATUS_ADAPTER_NOT_READY || status == Status::DEVICE_NOT_READY.0
}
