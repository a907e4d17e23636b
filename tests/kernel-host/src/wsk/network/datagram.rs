//! UDP inside the host: bound ports, which are others than those of TCP, and the datagrams that wait at each.
//!
//! A datagram that finds no port, no space or no host is lost, and its sender does not see that; only a port of this host that nothing is
//! bound to is reported to the sender, as an ICMP message reports it. What leads to a host in another process is in `outside`.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use super::{DYNAMIC, Network, NetworkError, PortId, Woken, covers, exists};
use crate::capture;
use crate::wsk::chance;

/// Bytes of datagrams that a port keeps; more is lost.
const KEPT: usize = 64 * 1024;
/// The longest datagrams of both families.
const LONGEST_V4: usize = 65_507;
const LONGEST_V6: usize = 65_527;

/// What a receive finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::wsk) enum Arrival {
    Datagram {
        from: SocketAddr,
        bytes: Vec<u8>,
    },
    /// A datagram from this port went to one that nothing is bound to.
    Unreachable,
}

impl Arrival {
    /// What it takes of the space of its port.
    fn space(&self) -> usize {
        match self {
            Self::Datagram { bytes, .. } => bytes.len().max(1),
            Self::Unreachable => 1,
        }
    }
}

/// A datagram on its way between two machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
}

struct DatagramPort {
    address: SocketAddr,
    waiting: VecDeque<Arrival>,
    /// Of what waits.
    space: usize,
    /// Comes behind the next one.
    held: Option<Arrival>,
}

pub(super) struct Datagrams {
    ports: BTreeMap<PortId, DatagramPort>,
    next_dynamic: u16,
    /// Every so manieth is lost, by chance; none with 0.
    lost_one_in: u32,
    /// Every so manieth comes late, by chance; none with 0.
    held_one_in: u32,
    /// What was sent to other machines, while a test plays them.
    departed: Option<Vec<Datagram>>,
}

impl Datagrams {
    pub(super) const fn new() -> Self {
        Self { ports: BTreeMap::new(), next_dynamic: *DYNAMIC.start(), lost_one_in: 0, held_one_in: 0, departed: None }
    }

    fn is_bound(&self, address: SocketAddr) -> bool {
        self.ports.values().any(|port| covers(port.address, address) || covers(address, port.address))
    }

    fn free_port(&mut self, ip: IpAddr) -> Option<SocketAddr> {
        DYNAMIC.map(|_| ()).find_map(|()| {
            let address = SocketAddr::new(ip, self.next_dynamic);
            self.next_dynamic = self.next_dynamic.checked_add(1).unwrap_or(*DYNAMIC.start());
            (!self.is_bound(address)).then_some(address)
        })
    }

    pub(super) fn bound_address(&self, port: PortId) -> Option<SocketAddr> {
        self.ports.get(&port).map(|port| port.address)
    }

    pub(super) fn release(&mut self, port: PortId) {
        self.ports.remove(&port);
    }
}

fn draws(one_in: u32) -> bool {
    one_in != 0 && chance::below(one_in as usize) == 0
}

impl Network {
    /// Binds a port of UDP; port 0 picks one.
    pub(in crate::wsk) fn bind_datagrams(&mut self, wanted: SocketAddr) -> Result<PortId, NetworkError> {
        if !wanted.ip().is_unspecified() && !exists(wanted.ip()) {
            return Err(NetworkError::NotLocal);
        }
        // A free port may be taken outside.
        for _ in DYNAMIC {
            let picked = if wanted.port() == 0 { self.datagrams.free_port(wanted.ip()) } else { Some(wanted) };
            let address = picked.filter(|address| !self.datagrams.is_bound(*address)).ok_or(NetworkError::InUse)?;
            match self.outside.open_datagrams(address) {
                Ok(sockets) => {
                    let id = PortId(self.number());
                    let port = DatagramPort { address, waiting: VecDeque::new(), space: 0, held: None };
                    self.datagrams.ports.insert(id, port);
                    self.outside.keep_datagrams(id, sockets);
                    return Ok(id);
                }
                Err(NetworkError::InUse) if wanted.port() == 0 => {}
                Err(error) => return Err(error),
            }
        }
        Err(NetworkError::InUse)
    }

    /// Of so many datagrams one is lost, or comes behind the next one, by chance; none with 0.
    pub(in crate::wsk) fn set_datagram_faults(&mut self, lost_one_in: Option<u32>, held_one_in: Option<u32>) {
        let datagrams = &mut self.datagrams;
        datagrams.lost_one_in = lost_one_in.unwrap_or(datagrams.lost_one_in);
        datagrams.held_one_in = held_one_in.unwrap_or(datagrams.held_one_in);
    }

    /// Sends a datagram from a bound port.
    pub(in crate::wsk) fn send_datagram(
        &mut self,
        port: PortId,
        to: SocketAddr,
        bytes: &[u8],
    ) -> Result<(), NetworkError> {
        let longest = if to.is_ipv4() { LONGEST_V4 } else { LONGEST_V6 };
        if bytes.len() > longest {
            return Err(NetworkError::TooLong);
        }
        if self.is_silent(to.ip()) {
            return Ok(());
        }
        if exists(to.ip()) {
            self.send_inside(port, to, bytes);
        } else if !draws(self.datagrams.lost_one_in) {
            self.depart(port, to, bytes);
            self.outside.send_datagram(port, to, bytes);
        }
        Ok(())
    }

    fn send_inside(&mut self, port: PortId, to: SocketAddr, bytes: &[u8]) {
        let Some(bound) = self.datagrams.bound_address(port) else { return };
        let from = if bound.ip().is_unspecified() { SocketAddr::new(to.ip(), bound.port()) } else { bound };
        capture::datagram(from, to, bytes);
        let found = self.datagrams.ports.iter().find(|(_, port)| covers(port.address, to));
        match found.map(|(id, _)| *id) {
            Some(there) => self.arrive(there, Arrival::Datagram { from, bytes: bytes.to_vec() }),
            None => self.keep(port, Arrival::Unreachable),
        }
    }

    fn depart(&mut self, port: PortId, to: SocketAddr, bytes: &[u8]) {
        let bound = self.datagrams.bound_address(port);
        if let Some((departed, from)) = self.datagrams.departed.as_mut().zip(bound) {
            departed.push(Datagram { from, to, bytes: bytes.to_vec() });
        }
    }

    /// Keeps what is sent to other machines from now on, or no longer.
    pub(in crate::wsk) fn keep_departed(&mut self, keep: bool) {
        self.datagrams.departed = keep.then(Vec::new);
    }

    /// What was sent to other machines since the last call.
    pub(in crate::wsk) fn take_departed(&mut self) -> Vec<Datagram> {
        self.datagrams.departed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// A datagram of another machine comes, to a port of this host or to none.
    pub(in crate::wsk) fn arrive_from(&mut self, datagram: &Datagram) {
        let found = self.datagrams.ports.iter().find(|(_, port)| covers(port.address, datagram.to));
        if let Some((port, _)) = found {
            let arrival = Arrival::Datagram { from: datagram.from, bytes: datagram.bytes.clone() };
            self.arrive(*port, arrival);
        }
    }

    /// A datagram comes to a port, unless it is lost on the way.
    pub(super) fn arrive(&mut self, port: PortId, arrival: Arrival) {
        if draws(self.datagrams.lost_one_in) {
            return;
        }
        let holds = draws(self.datagrams.held_one_in);
        let Some(there) = self.datagrams.ports.get_mut(&port) else { return };
        if holds && there.held.is_none() {
            there.held = Some(arrival);
            return;
        }
        let late = there.held.take();
        self.keep(port, arrival);
        if let Some(late) = late {
            self.keep(port, late);
        }
    }

    /// Puts something behind what waits at a port, if there is space.
    fn keep(&mut self, port: PortId, arrival: Arrival) {
        let Some(there) = self.datagrams.ports.get_mut(&port) else { return };
        let space = there.space + arrival.space();
        if space > KEPT {
            return;
        }
        there.space = space;
        there.waiting.push_back(arrival);
        self.woken.push(Woken::Arrived(port));
    }

    /// What has waited longest at a port.
    pub(in crate::wsk) fn receive_datagram(&mut self, port: PortId) -> Option<Arrival> {
        let there = self.datagrams.ports.get_mut(&port)?;
        let arrival = there.waiting.pop_front()?;
        there.space -= arrival.space();
        Some(arrival)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::any;
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)
    }

    fn datagram(from: SocketAddr, bytes: &[u8]) -> Arrival {
        Arrival::Datagram { from, bytes: bytes.to_vec() }
    }

    #[test]
    fn ports_of_udp_are_others_than_those_of_tcp() {
        let mut network = Network::new();
        let listener = network.bind(at(7), true).expect("a free port");
        let first = network.bind_datagrams(at(7)).expect("a free port");
        assert_eq!((network.bound_address(listener), network.bound_address(first)), (at(7), at(7)));
        let wildcard = SocketAddr::new(any(false), 7);
        assert_eq!(network.bind_datagrams(wildcard), Err(NetworkError::InUse));
        network.release(listener);
        assert_eq!(network.bind_datagrams(at(7)), Err(NetworkError::InUse));
        network.release(first);
        let all = network.bind_datagrams(wildcard).expect("it is free");
        assert_eq!(network.bind_datagrams(at(7)), Err(NetworkError::InUse));
        let [one, other] = [0, 0].map(|port| network.bind_datagrams(at(port)).expect("a free port"));
        assert_ne!(network.bound_address(one), network.bound_address(other));
        assert_eq!(network.bind(at(7), true).err(), None);
        network.release(all);
        let elsewhere = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), 1);
        assert_eq!(network.bind_datagrams(elsewhere), Err(NetworkError::NotLocal));
    }

    #[test]
    fn datagrams_stay_whole_and_name_their_sender() {
        let mut network = Network::new();
        let here = network.bind_datagrams(SocketAddr::new(any(false), 5)).expect("a free port");
        let there = network.bind_datagrams(at(7)).expect("a free port");
        for bytes in [&b"abc"[..], b"", b"de"] {
            assert_eq!(network.send_datagram(here, at(7), bytes), Ok(()));
        }
        assert_eq!(network.take_woken(), [Woken::Arrived(there); 3]);
        for bytes in [&b"abc"[..], b"", b"de"] {
            assert_eq!(network.receive_datagram(there), Some(datagram(at(5), bytes)));
        }
        assert_eq!(network.receive_datagram(there), None);
        let long = vec![1; LONGEST_V4 + 1];
        assert_eq!(network.send_datagram(here, at(7), &long), Err(NetworkError::TooLong));
        assert_eq!(network.send_datagram(here, at(7), &long[1..]), Ok(()));
        assert_eq!(network.receive_datagram(there), Some(datagram(at(5), &long[1..])));
    }

    #[test]
    fn what_nothing_is_bound_to_is_reported_and_what_is_nowhere_is_lost() {
        let mut network = Network::new();
        let here = network.bind_datagrams(at(5)).expect("a free port");
        let elsewhere = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), 1);
        assert_eq!(network.send_datagram(here, elsewhere, b"lost"), Ok(()));
        assert_eq!(network.receive_datagram(here), None);
        assert_eq!(network.send_datagram(here, at(9), b"refused"), Ok(()));
        assert_eq!(network.take_woken(), [Woken::Arrived(here)]);
        assert_eq!(network.receive_datagram(here), Some(Arrival::Unreachable));
        network.set_silent(at(0).ip(), true);
        assert_eq!(network.send_datagram(here, at(9), b"lost"), Ok(()));
        assert_eq!(network.receive_datagram(here), None);
    }

    #[test]
    fn a_port_keeps_no_more_than_its_space() {
        let mut network = Network::new();
        let here = network.bind_datagrams(at(5)).expect("a free port");
        let there = network.bind_datagrams(at(7)).expect("a free port");
        let bytes = vec![3; 1000];
        for _ in 0..100 {
            assert_eq!(network.send_datagram(here, at(7), &bytes), Ok(()));
        }
        let kept = std::iter::from_fn(|| network.receive_datagram(there)).count();
        assert_eq!(kept, KEPT / bytes.len());
        assert_eq!(network.send_datagram(here, at(7), &bytes), Ok(()));
        assert_eq!(network.receive_datagram(there), Some(datagram(at(5), &bytes)));
    }

    #[test]
    fn datagrams_are_lost_or_come_late_when_a_test_asks_for_it() {
        let mut network = Network::new();
        let here = network.bind_datagrams(at(5)).expect("a free port");
        let there = network.bind_datagrams(at(7)).expect("a free port");
        network.set_datagram_faults(Some(1), None);
        assert_eq!(network.send_datagram(here, at(7), b"lost"), Ok(()));
        assert_eq!(network.receive_datagram(there), None);
        network.set_datagram_faults(Some(0), Some(1));
        for bytes in [b"1", b"2", b"3"] {
            assert_eq!(network.send_datagram(here, at(7), bytes), Ok(()));
        }
        for bytes in [b"2", b"1"] {
            assert_eq!(network.receive_datagram(there), Some(datagram(at(5), bytes)));
        }
        assert_eq!(network.receive_datagram(there), None);
    }
}
