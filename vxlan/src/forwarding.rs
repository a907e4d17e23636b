//! The forwarding table of an uplink: behind which peer a station was seen last.
//!
//! The table has a fixed number of places, in sets: an address belongs to one set, and a look-up reads that set only. A station that is new
//! to a full set takes the place that was not refreshed for longest. Entries age: one that was not refreshed for [`AGE`] is not found.

use core::{net::IpAddr, ops::DerefMut};

use crate::frame::{MacAddress, is_group};
use crate::peers::PeerList;

/// How long a station is remembered that sends nothing: 300 seconds, as in Linux and in bridges.
pub const AGE: u64 = 300_000_000_000;

/// Places of one set.
const WAYS: usize = 4;

/// A station and the peer that it is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learned {
    station: MacAddress,
    peer: IpAddr,
    /// When a frame of it came last.
    at: u64,
}

/// See the module. `Places` is the memory: slices of [`Learned`] whose length is a multiple of four; what is over is not used.
pub struct ForwardingTable<Places> {
    places: Places,
}

impl<Places: DerefMut<Target = [Option<Learned>]>> ForwardingTable<Places> {
    pub const fn new(places: Places) -> Self {
        Self { places }
    }

    /// The places of a station's set.
    fn set(&mut self, station: MacAddress) -> &mut [Option<Learned>] {
        let places = &mut *self.places;
        let sets = places.len() / WAYS;
        let set = (mixed(station) as usize).checked_rem(sets).unwrap_or(0);
        places.chunks_exact_mut(WAYS).nth(set).unwrap_or_default()
    }

    /// A frame of a station came from a peer. Groups are no stations.
    pub fn learn(&mut self, station: MacAddress, peer: IpAddr, now: u64) {
        if is_group(station) {
            return;
        }
        // Its own place comes first, then an empty one, then that of the station that was silent longest.
        let rank = |place: &Option<Learned>| match place {
            Some(known) if known.station == station => (0, 0),
            None => (1, 0),
            Some(known) => (2, known.at),
        };
        if let Some(place) = self.set(station).iter_mut().min_by_key(|place| rank(place)) {
            *place = Some(Learned { station, peer, at: now });
        }
    }

    /// The peer that a station is behind.
    pub fn find(&mut self, station: MacAddress, now: u64) -> Option<IpAddr> {
        let found = self.set(station).iter().flatten().find(|known| known.station == station)?;
        is_fresh(found, now).then_some(found.peer)
    }

    /// How many stations behind each peer are known, in the order of the list.
    pub fn count(&self, peers: &PeerList, now: u64, counted: &mut [u32]) {
        for known in self.places.iter().flatten().filter(|known| is_fresh(known, now)) {
            if let Some(count) = peers.position(known.peer).and_then(|index| counted.get_mut(index)) {
                *count = count.saturating_add(1);
            }
        }
    }

    /// Forgets all stations.
    pub fn clear(&mut self) {
        self.places.fill(None);
    }
}

fn is_fresh(known: &Learned, now: u64) -> bool {
    now.saturating_sub(known.at) < AGE
}

/// Spreads addresses that differ in a few bits only (Fibonacci hashing).
fn mixed(station: MacAddress) -> u32 {
    let number = station.iter().fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    use super::*;

    type Table = ForwardingTable<Vec<Option<Learned>>>;

    fn table(places: usize) -> Table {
        ForwardingTable::new(vec![None; places])
    }

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn station(number: u16) -> MacAddress {
        let [high, low] = number.to_be_bytes();
        [2, 0, 0, 0, high, low]
    }

    #[test]
    fn station_is_behind_the_peer_that_it_was_last_seen_at() {
        let mut table = table(64);
        assert_eq!(table.find(station(1), 0), None);
        table.learn(station(1), peer(1), 5);
        table.learn(station(2), peer(1), 5);
        assert_eq!(table.find(station(1), 6), Some(peer(1)));
        table.learn(station(1), peer(2), 7);
        assert_eq!((table.find(station(1), 8), table.find(station(2), 8)), (Some(peer(2)), Some(peer(1))));
        table.clear();
        assert_eq!(table.find(station(1), 8), None);
    }

    #[test]
    fn stations_age_and_frames_refresh_them() {
        let mut table = table(4);
        table.learn(station(1), peer(1), 100);
        assert_eq!(table.find(station(1), 99 + AGE), Some(peer(1)));
        assert_eq!(table.find(station(1), 100 + AGE), None);
        table.learn(station(1), peer(1), 100 + AGE);
        assert_eq!(table.find(station(1), 100 + AGE), Some(peer(1)));
    }

    #[test]
    fn full_set_forgets_the_station_that_was_silent_longest() {
        let mut table = table(4);
        for number in 0..4 {
            table.learn(station(number), peer(1), u64::from(number));
        }
        table.learn(station(0), peer(1), 10);
        table.learn(station(9), peer(2), 11);
        assert_eq!(table.find(station(1), 12), None);
        for number in [0, 2, 3] {
            assert_eq!(table.find(station(number), 12), Some(peer(1)), "{number}");
        }
        assert_eq!(table.find(station(9), 12), Some(peer(2)));
    }

    #[test]
    fn groups_are_not_learned_and_no_memory_is_no_fault() {
        let mut table = table(4);
        table.learn([0xFF; 6], peer(1), 0);
        assert_eq!(table.find([0xFF; 6], 0), None);
        for places in 0..4 {
            let mut small = tests::table(places);
            small.learn(station(1), peer(1), 0);
            assert_eq!(small.find(station(1), 0), None);
        }
    }

    #[test]
    fn stations_are_counted_by_peer() {
        let mut table = table(64);
        let mut peers = PeerList::EMPTY;
        peers.push(peer(1)).unwrap();
        peers.push(peer(2)).unwrap();
        for number in 0..3 {
            table.learn(station(number), peer(2), 50);
        }
        table.learn(station(9), peer(1), 0);
        table.learn(station(10), peer(3), 50);
        let mut counted = [0; 2];
        table.count(&peers, 20 + AGE, &mut counted);
        assert_eq!(counted, [0, 3]);
    }

    #[test]
    fn neighbours_of_one_vendor_spread_over_the_sets() {
        let mut table = table(1024);
        for number in 0..512 {
            table.learn(station(number), peer(1), 1);
        }
        let found = (0..512).filter(|number| table.find(station(*number), 1).is_some()).count();
        assert!(found > 480, "{found} of 512 stations are known in 1024 places");
    }

    #[test]
    fn table_agrees_with_a_map_of_the_same_frames() {
        let mut random = fastrand::Rng::with_seed(27);
        // One set a station, so that nothing is pushed out.
        let mut table = table(4);
        let mut model = [None; 4];
        for _ in 0..20_000 {
            let (number, now) = (random.u16(0..4), random.u64(0..4) * (AGE / 3));
            if random.bool() {
                let at = peer(random.u8(1..4));
                table.learn(station(number), at, now);
                model[usize::from(number)] = Some((at, now));
            } else {
                let known = model[usize::from(number)].filter(|(_, at)| now.saturating_sub(*at) < AGE);
                assert_eq!(table.find(station(number), now), known.map(|(at, _)| at));
            }
        }
    }
}
