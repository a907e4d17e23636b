//! An adapter's way to the stations of other machines: its frames in VXLAN datagrams.
//!
//! An [`Uplink`] is what one adapter has: its network (the wire number), its peers, what it has learned of their stations, and counters.
//! The socket belongs to an [`EndPoint`], which adapters with the same port share.
//!
//! Rules it keeps:
//! - a frame that came from a peer goes to stations of this machine only, never to another peer;
//! - a frame is taken from configured peers only, and only for the network that they are peers of;
//! - a frame to a station of this machine goes to no peer;
//! - a packet to the address of a peer does not go through the uplink: the way to the peers would lead into itself;
//! - everything is copied, so no frame of NDIS waits for a socket, and no datagram for NDIS.

mod departures;
mod end_point;
mod end_points;

use core::{
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering},
};

use ndkpi_sys::ndis::{NDIS_STATUS, NDIS_STATUS_RESOURCES, NET_BUFFER};
use softndk_ioctl::{AdapterAddress, UplinkDrops, UplinkPeer};
use softndk_kernel::{
    clock::Clock,
    pool::{NoMemory, PoolBox, PoolSlice},
    spin_lock::SpinLock,
    work::Task,
};
use softndk_vxlan::{
    ForwardingTable, HEADER_LENGTH, Learned, MacAddress, NetworkIdentifier, PEER_MAX, PeerList, datagram, frame,
};

pub use end_point::{Surroundings, TunnelPort};
pub use end_points::{END_POINT_MAX, EndPoints};

use departures::{Departure, Slot};
use end_points::EndPointHold;

use super::{MTU, Station, wire};
use crate::tags;

/// Stations of other machines that an adapter knows at most.
const STATION_MAX: usize = 1024;
/// Payload of a packet of the network that datagrams cross, where no keyword has another.
pub const OUTER_MTU: u32 = 1500;

/// What an adapter's keywords say of its uplink.
pub struct UplinkSettings {
    pub peers: PeerList,
    pub port: u16,
    pub outer_mtu: u32,
}

impl UplinkSettings {
    /// Payload of the adapter's frames, so that no datagram is longer than a packet of the other network.
    pub fn mtu(&self) -> u32 {
        let Some(is_v6) = self.peers.is_v6() else { return MTU };
        self.outer_mtu.saturating_sub(datagram::overhead(is_v6)).min(MTU)
    }
}

pub struct Uplink {
    network: NetworkIdentifier,
    peers: PeerList,
    forwarding: SpinLock<ForwardingTable<PoolSlice<Option<Learned>>>>,
    counters: UplinkCounters,
    clock: Clock,
    /// Dropped last.
    end_point: EndPointHold,
}

/// Fields as in [`UplinkDrops`]; and what went to and came from each peer.
#[derive(Default)]
struct UplinkCounters {
    peers: [PeerCounters; PEER_MAX],
    exhausted: AtomicU64,
    looped: AtomicU64,
    oversized: AtomicU64,
    duplicates: AtomicU64,
}

#[derive(Default)]
struct PeerCounters {
    sent: AtomicU64,
    received: AtomicU64,
    /// When the last frame came; 0 if none did.
    last: AtomicU64,
}

impl Uplink {
    /// PASSIVE_LEVEL; `None` without peers.
    pub fn try_new(
        settings: &UplinkSettings,
        wire_number: u32,
        end_points: &'static EndPoints,
        surroundings: Surroundings,
    ) -> Result<Option<PoolBox<Self>>, NoMemory> {
        let (Some(is_v6), Some(network)) = (settings.peers.is_v6(), NetworkIdentifier::new(wire_number)) else {
            return Ok(None);
        };
        let stations = PoolSlice::try_filled(tags::UPLINK, STATION_MAX, None)?;
        let uplink = Self {
            network,
            peers: settings.peers,
            forwarding: SpinLock::new(ForwardingTable::new(stations)),
            counters: UplinkCounters::default(),
            clock: Clock::new(),
            end_point: end_points.hold(TunnelPort { is_v6, port: settings.port }, surroundings)?,
        };
        PoolBox::try_new(tags::UPLINK, uplink).map(Some)
    }

    pub fn at(&self) -> TunnelPort {
        self.end_point.at()
    }

    /// STATUS_SUCCESS while datagrams can come.
    pub fn status(&self) -> i32 {
        self.end_point.status()
    }

    pub fn has_peer(&self, address: IpAddr) -> bool {
        self.peers.position(address).is_some()
    }

    /// What was dropped so far, by reason.
    pub fn drops(&self) -> UplinkDrops {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let shared = &self.end_point.counters;
        UplinkDrops {
            exhausted: read(&self.counters.exhausted),
            looped: read(&self.counters.looped),
            oversized: read(&self.counters.oversized),
            duplicates: read(&self.counters.duplicates),
            unsent: read(&shared.unsent),
            malformed: read(&shared.malformed),
            foreign: read(&shared.foreign),
        }
    }

    /// Each peer, in the order of the keyword.
    pub fn peers(&self) -> impl Iterator<Item = UplinkPeer> {
        let now = self.clock.now();
        let mut stations = [0_u32; PEER_MAX];
        self.forwarding.lock().count(&self.peers, now, &mut stations);
        self.peers.iter().zip(&self.counters.peers).zip(stations).map(move |((address, peer), stations)| {
            let last = peer.last.load(Ordering::Relaxed);
            UplinkPeer {
                address: AdapterAddress::new(address, 0, 0),
                stations,
                has_answered: u32::from(last != 0),
                age: if last == 0 { 0 } else { now.saturating_sub(last) },
                sent: peer.sent.load(Ordering::Relaxed),
                received: peer.received.load(Ordering::Relaxed),
            }
        })
    }

    /// Queues a frame for the peer that has its destination, or for all peers; whether it was queued for any. `IRQL <= DISPATCH_LEVEL`. Fails
    /// when the frame's memory cannot be mapped.
    pub fn send(&self, buffer: &mut NET_BUFFER, destination: MacAddress) -> Result<bool, NDIS_STATUS> {
        let departures = self.end_point.departures();
        let Some(mut slot) = departures.take_free() else { return Ok(self.exhausted()) };
        let Some(length) = self.fill(&mut slot, buffer) else {
            departures.put_free(slot);
            return Err(NDIS_STATUS_RESOURCES);
        };
        let frame = slot.get(HEADER_LENGTH..length).unwrap_or_default();
        if frame::ip_destination(frame).is_some_and(|address| self.peers.position(address).is_some()) {
            departures.put_free(slot);
            self.counters.looped.fetch_add(1, Ordering::Relaxed);
            return Ok(false);
        }
        let now = self.clock.now();
        let known = if frame::is_group(destination) { None } else { self.forwarding.lock().find(destination, now) };
        match known {
            Some(peer) => self.depart(slot, length, peer),
            None => self.depart_to_all(slot, length),
        }
        end_point::schedule(&self.end_point);
        Ok(true)
    }

    /// Header and frame; how many bytes they are.
    fn fill(&self, slot: &mut Slot, buffer: &mut NET_BUFFER) -> Option<usize> {
        let (header, frame) = slot.split_first_chunk_mut::<HEADER_LENGTH>()?;
        *header = datagram::header(self.network);
        let length = wire::copy_frame(buffer, frame)?;
        HEADER_LENGTH.checked_add(length as usize)
    }

    fn depart(&self, slot: Slot, length: usize, to: IpAddr) {
        if let Some(counters) = self.counters_of(to) {
            counters.sent.fetch_add(1, Ordering::Relaxed);
        }
        self.end_point.departures().push(Departure { slot, length, to });
    }

    /// Once to each peer (head-end replication).
    fn depart_to_all(&self, slot: Slot, length: usize) {
        let mut others = self.peers.iter();
        let Some(first) = others.next() else { return self.end_point.departures().put_free(slot) };
        for other in others {
            let Some(mut copy) = self.end_point.departures().take_free() else {
                self.exhausted();
                break;
            };
            if let (Some(to), Some(from)) = (copy.get_mut(..length), slot.get(..length)) {
                to.copy_from_slice(from);
            }
            self.depart(copy, length, other);
        }
        self.depart(slot, length, first);
    }

    fn exhausted(&self) -> bool {
        self.counters.exhausted.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn counters_of(&self, peer: IpAddr) -> Option<&PeerCounters> {
        self.counters.peers.get(self.peers.position(peer)?)
    }

    /// Hands a frame of a datagram to the adapter; false when the sender is no peer of this network. DISPATCH_LEVEL.
    fn receive(&self, station: &Task<Station>, network: NetworkIdentifier, from: IpAddr, frame: &[u8]) -> bool {
        let Some(counters) = self.counters_of(from).filter(|_| network == self.network) else { return false };
        let Some((_, source)) = frame::ends(frame) else { return false };
        if source == station.current_address {
            self.counters.duplicates.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        if frame.len() > station.frame_max() as usize {
            self.counters.oversized.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        let now = self.clock.now();
        counters.received.fetch_add(1, Ordering::Relaxed);
        counters.last.store(now, Ordering::Relaxed);
        self.forwarding.lock().learn(source, from, now);
        wire::deliver_bytes(station, frame);
        true
    }
}
