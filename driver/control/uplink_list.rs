//! The uplinks: what `ndkctl wire list` shows.

use softndk_ioctl::{
    AdapterAddress, RequestHeader, Status, UPLINK_PEER_MAX, UplinkEntry, UplinkListReply, UplinkListRequest,
    UplinkPeer, list_capacity, read_request,
};
use softndk_kernel::irp::Buffer;
use softndk_vxlan::PEER_MAX;
use zerocopy::IntoBytes;

use super::request::adapters_left;
use crate::{
    driver::{ADAPTER_MAX, Driver},
    link::{
        Station,
        uplink::{PeerReading, Uplink},
    },
};

const _: () = assert!(PEER_MAX == UPLINK_PEER_MAX);

/// IOCTL: uplink list. As many whole entries as fit. `IRQL <= DISPATCH_LEVEL`; no lock is held between two entries.
pub fn answer(buffer: &mut Buffer) -> Result<usize, Status> {
    let request: UplinkListRequest = read_request(buffer.input())?;
    list_capacity::<UplinkListReply, UplinkEntry>(buffer.output_length())?;
    adapters_left()?;
    let driver = Driver::get().ok_or(Status::DEVICE_REMOVED)?;
    let output = buffer.output();
    let (head, capacity) = output.split_at_mut_checked(size_of::<UplinkListReply>()).ok_or(Status::BUFFER_TOO_SMALL)?;
    let mut places = capacity.chunks_exact_mut(size_of::<UplinkEntry>()).peekable();
    let mut next = usize::try_from(request.first).unwrap_or(ADAPTER_MAX).min(ADAPTER_MAX);
    let mut count = 0_u32;
    while next < ADAPTER_MAX && places.peek().is_some() {
        if let Some(adapter) = driver.adapter(next)
            && let Some(uplink) = &adapter.station.uplink
            && let Some(place) = places.next()
        {
            describe(place, next as u32, adapter.net_luid, &adapter.station, uplink);
            count = count.saturating_add(1);
        }
        next = next.saturating_add(1);
    }
    let entry_size = size_of::<UplinkEntry>();
    let reply = UplinkListReply {
        header: RequestHeader::of::<UplinkListReply>(),
        returned_count: count,
        entry_size: entry_size as u32,
        next: next as u64,
    };
    head.copy_from_slice(reply.as_bytes());
    Ok((count as usize).saturating_mul(entry_size).saturating_add(size_of::<UplinkListReply>()))
}

// An entry has a frame of its own.
#[inline(never)]
fn describe(place: &mut [u8], adapter: u32, net_luid: u64, station: &Station, uplink: &Uplink) {
    let dropped = uplink.dropped();
    let mut entry = UplinkEntry {
        net_luid,
        adapter,
        wire_number: station.wire_number,
        status: uplink.status(),
        mtu: station.mtu,
        port: uplink.at().port,
        peer_count: 0,
        reserved: 0,
        exhausted: dropped.exhausted,
        looped: dropped.looped,
        oversized: dropped.oversized,
        duplicates: dropped.duplicates,
        malformed: dropped.malformed,
        foreign: dropped.foreign,
        peers: [UplinkPeer::UNUSED; UPLINK_PEER_MAX],
    };
    for (place, peer) in entry.peers.iter_mut().zip(uplink.peers()) {
        *place = described(&peer);
        entry.peer_count = entry.peer_count.saturating_add(1);
    }
    place.copy_from_slice(entry.as_bytes());
}

fn described(peer: &PeerReading) -> UplinkPeer {
    UplinkPeer {
        address: AdapterAddress::new(peer.address, 0, 0),
        stations: peer.stations,
        has_answered: u32::from(peer.age.is_some()),
        age: peer.age.unwrap_or(0),
        sent: peer.sent,
        received: peer.received,
    }
}
