//! The uplink of an adapter, as tools see it.

use softndk_ioctl::{UPLINK_PEER_MAX, UplinkEntry, UplinkPeer};
use softndk_vxlan::PEER_MAX;

use crate::{
    adapter::Adapter,
    driver::{ADAPTER_MAX, Driver},
    link::uplink::Uplink,
};

const _: () = assert!(PEER_MAX == UPLINK_PEER_MAX);

/// The uplink of the first adapter that has one, from an adapter's number on, and the number of that adapter. `IRQL <= DISPATCH_LEVEL`.
pub fn at(first: u64) -> Option<(u64, UplinkEntry)> {
    let (driver, first) = (Driver::get()?, usize::try_from(first).ok()?);
    (first..ADAPTER_MAX).find_map(|index| {
        let adapter = driver.adapter(index)?;
        let uplink = adapter.station.uplink.as_ref()?;
        Some((index as u64, describe(&adapter, uplink)))
    })
}

// An entry has a frame of its own.
#[inline(never)]
fn describe(adapter: &Adapter, uplink: &Uplink) -> UplinkEntry {
    let station = &adapter.station;
    let mut entry = UplinkEntry {
        net_luid: adapter.net_luid,
        adapter: adapter.index as u32,
        wire_number: station.wire_number,
        status: uplink.status(),
        mtu: station.mtu,
        port: uplink.at().port,
        peer_count: 0,
        reserved: 0,
        drops: uplink.drops(),
        peers: [UplinkPeer::UNUSED; UPLINK_PEER_MAX],
    };
    for (place, peer) in entry.peers.iter_mut().zip(uplink.peers()) {
        *place = peer;
        entry.peer_count = entry.peer_count.saturating_add(1);
    }
    entry
}
