//! The adapter list: what `ndkctl info` shows.

use core::mem::size_of;

use softndk_ioctl::{
    ADAPTER_ADDRESS_MAX, AdapterAddress, AdapterCounters, AdapterEntry, AdapterFlags, AdapterListReply,
    AdapterListRequest, Outcome, RequestHeader, Status, Technology, adapter_limits, read_request,
};
use zerocopy::IntoBytes;

use super::request::adapters_left;
use crate::{
    adapter::Adapter,
    driver::{ADAPTER_MAX, Driver},
    nd::account,
};
use softndk_kernel::irp::Buffer;

/// IOCTL: adapter list. As many whole entries as fit, and how many there are.
pub fn answer(buffer: &mut Buffer) -> Outcome {
    Outcome::of_list(fill(buffer))
}

/// Bytes written, and whether every adapter is among them.
fn fill(buffer: &mut Buffer) -> Result<(usize, bool), Status> {
    let _request: AdapterListRequest = read_request(buffer.input())?;
    let driver = Driver::get().ok_or(Status::DEVICE_REMOVED)?;
    adapters_left()?;
    let output = buffer.output();
    let (head, mut capacity) =
        output.split_at_mut_checked(size_of::<AdapterListReply>()).ok_or(Status::BUFFER_TOO_SMALL)?;
    let (mut adapters, mut returned) = (0_u32, 0_u32);
    for index in 0..ADAPTER_MAX {
        let Some(adapter) = driver.adapter(index) else { continue };
        adapters += 1;
        if let Some((place, rest)) = core::mem::take(&mut capacity).split_at_mut_checked(size_of::<AdapterEntry>()) {
            describe(&adapter, place);
            returned += 1;
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
        // At most ADAPTER_MAX entries: no overflow.
        required_length: head_size + adapters * entry_size,
    };
    head.copy_from_slice(reply.as_bytes());
    Ok(((head_size + returned * entry_size) as usize, returned == adapters))
}

fn describe(adapter: &Adapter, place: &mut [u8]) {
    let mut flags = AdapterFlags::LINK_UP;
    flags.set(AdapterFlags::NDK_ENABLED, adapter.provider.is_enabled());
    flags.set(AdapterFlags::RUNNING, adapter.station.port.is_running());
    let mut addresses = [AdapterAddress::UNUSED; ADAPTER_ADDRESS_MAX];
    let mut count = 0_usize;
    adapter.provider.addresses().for_each(|address| match addresses.get_mut(count) {
        Some(entry) => {
            *entry = AdapterAddress::new(address.ip, address.prefix_length, address.scope_id);
            count += 1;
        }
        None => flags.insert(AdapterFlags::MORE_ADDRESSES),
    });
    let configuration = adapter.provider.configuration();
    let entry = AdapterEntry {
        net_luid: adapter.net_luid,
        link_speed: configuration.link_speed,
        index: adapter.index as u32,
        interface_index: adapter.interface_index,
        wire_number: configuration.wire_number,
        mtu: adapter.station.mtu,
        mac_address: adapter.station.current_address,
        reserved: [0; 2],
        flags,
        technology: Technology(configuration.technology.0.cast_unsigned()),
        address_count: count as u32,
        completion_mode: configuration.completion_mode.in_force(),
        limits_profile: configuration.limits.in_force(),
        limits: adapter_limits!(adapter.ndk.information),
        counters: counters(adapter),
        addresses,
        process_limits: account::limits(),
    };
    place.copy_from_slice(entry.as_bytes());
}

fn counters(adapter: &Adapter) -> AdapterCounters {
    let rdma = adapter.provider.counters();
    let received = adapter.station.statistics.received.read();
    let sent = adapter.station.statistics.sent.read();
    AdapterCounters {
        connects: rdma.connect,
        accepts: rdma.accept,
        connect_failures: rdma.connect_failure,
        connection_errors: rdma.connection_error,
        active_connections: rdma.active_connection,
        completion_queue_errors: rdma.completion_queue_error,
        rdma_in_octets: rdma.octets_in,
        rdma_out_octets: rdma.octets_out,
        rdma_in_frames: rdma.frames_in,
        rdma_out_frames: rdma.frames_out,
        frame_in_octets: received.octet_sum(),
        frame_out_octets: sent.octet_sum(),
        frames_in: received.frame_sum(),
        frames_out: sent.frame_sum(),
        in_discards: received.discards,
        out_discards: sent.discards,
    }
}
