//! What `ndkctl wire join` and `leave` do with the keywords of the adapters.
//!
//! Rules kept here:
//! - all adapters of a wire get the same values, or keep what they have: a write that fails takes back those before it;
//! - an adapter that has the values already is neither written nor restarted.

use super::arguments::WireJoinArguments;
use crate::failure::{Failure, Kind};
use serde::Serialize;
use softndk_ioctl::AdapterEntry;
use softndk_vxlan::PeerList;
use softndk_vxlan::peers::PeerListFault;
use std::fmt;
use std::net::IpAddr;

/// The keywords of an uplink; what is absent has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UplinkValues {
    pub peers: Option<String>,
    pub port: Option<String>,
    pub outer_mtu: Option<String>,
}

impl UplinkValues {
    /// Whether an adapter has these; without peers the rest does nothing.
    fn are_in(&self, adapter: &Self) -> bool {
        self == adapter || (self.peers.is_none() && adapter.peers.is_none())
    }
}

/// An adapter with a driver key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireAdapter {
    pub instance: String,
    pub wire_number: u32,
    pub values: UplinkValues,
    /// Its keyword Transport lets it connect to other machines; joining and leaving keep it.
    pub has_streams: bool,
}

/// The driver keys of the adapters.
pub trait WireKeys {
    fn adapters(&self) -> Result<Vec<WireAdapter>, Failure>;
    /// Writes the values that there are, and removes the others.
    fn set(&self, instance: &str, values: &UplinkValues) -> Result<(), Failure>;
    /// Has the adapter read them. Whether Windows must be restarted for that.
    fn restart(&self, instance: &str) -> Result<bool, Failure>;
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WireChangeReport {
    pub wire_number: u32,
    pub values: UplinkValues,
    /// Instance ids of the adapters that were written and restarted.
    pub changed: Vec<String>,
    /// Those that had the values already.
    pub unchanged: Vec<String>,
    /// Those that have peers now, and whose frames alone reach them: Transport is 0.
    pub without_streams: Vec<String>,
    pub restart_needed: bool,
}

/// The networks on which the adapters themselves are.
pub fn networks(adapters: &[AdapterEntry]) -> Vec<(IpAddr, u8)> {
    let addresses = adapters.iter().flat_map(|adapter| adapter.addresses.iter().take(adapter.address_count as usize));
    addresses.filter_map(|address| Some((address.ip()?, address.prefix_length))).collect()
}

/// What the command line asks for.
pub fn values(join: &WireJoinArguments, networks: &[(IpAddr, u8)]) -> Result<UplinkValues, Failure> {
    let mut list = PeerList::EMPTY;
    for peer in &join.peers {
        list.push(*peer).map_err(|fault| refused(*peer, fault))?;
        if let Some((own, prefix)) = network_of(*peer, networks) {
            return Err(Failure::new(
                Kind::Refused,
                format!("cannot take {peer} as a peer"),
                format!(
                    "it is on the adapters' own network ({own}/{prefix}), so the way to it would lead through itself"
                ),
                "name the address of the other machine's real network card",
            ));
        }
    }
    let peers = list.iter().map(|peer| peer.to_string()).collect::<Vec<_>>().join(",");
    Ok(UplinkValues {
        peers: Some(peers),
        port: Some(join.port.to_string()),
        outer_mtu: Some(join.outer_mtu.to_string()),
    })
}

fn refused(peer: IpAddr, fault: PeerListFault) -> Failure {
    let (cause, next) = match fault {
        PeerListFault::NoAddress => ("no machine has this address", "name an address of the other machine"),
        PeerListFault::Repeated => ("it comes twice", "name it once"),
        PeerListFault::TooMany => ("an uplink has sixteen peers at most", "leave some out"),
        PeerListFault::Mixed => {
            ("the others are of the other address family", "name all peers by IPv4, or all by IPv6")
        }
    };
    Failure::new(Kind::Refused, format!("cannot take {peer} as a peer"), cause, next)
}

/// Why the driver takes a value of UplinkPeers for none; `None` where it does not.
#[must_use]
pub fn unusable_peers(value: &str) -> Option<String> {
    let fault = PeerList::read(&value.encode_utf16().collect::<Vec<_>>()).err()?;
    let why = match fault {
        PeerListFault::NoAddress => "a word of it is no address of a machine",
        PeerListFault::Repeated => "an address comes twice",
        PeerListFault::TooMany => "there are more than sixteen addresses",
        PeerListFault::Mixed => "its addresses are of both families",
    };
    Some(format!("UplinkPeers is \"{value}\", which is no list of peers ({why}): the driver has none"))
}

/// Whether an adapter with this value of Transport connects to other machines.
#[must_use]
pub fn has_streams(transport: Option<&str>) -> bool {
    matches!(transport, Some("1" | "2"))
}

/// How an adapter gets that.
#[must_use]
pub fn set_transport(alias: &str) -> String {
    format!(
        "set Transport to 1 (auto): Set-NetAdapterAdvancedProperty -Name \"{alias}\" -RegistryKeyword \"Transport\" -RegistryValue 1"
    )
}

/// The network of an adapter that an address is on.
pub fn network_of(address: IpAddr, networks: &[(IpAddr, u8)]) -> Option<(IpAddr, u8)> {
    networks.iter().copied().find(|(own, prefix)| is_on(address, *own, *prefix))
}

/// Whether an address is on the network of another one.
fn is_on(address: IpAddr, own: IpAddr, prefix: u8) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    let ((first, width), (second, other)) = (bits(address), bits(own));
    let length = u32::from(prefix).min(width);
    width == other && (length == 0 || (first ^ second) >> (128 - length) == 0)
}

/// Gives all adapters of a wire the values, and restarts those that did not have them.
pub fn apply(keys: &impl WireKeys, number: u32, values: &UplinkValues) -> Result<WireChangeReport, Failure> {
    let there = keys.adapters()?.into_iter().filter(|adapter| adapter.wire_number == number).collect::<Vec<_>>();
    if there.is_empty() {
        return Err(Failure::new(
            Kind::Refused,
            format!("cannot change wire {number}"),
            "no adapter has this wire number",
            "look at \"ndkctl info\"; the keyword WireNumber of an adapter says its wire",
        ));
    }
    let lacking = there.iter().filter(|adapter| values.peers.is_some() && !adapter.has_streams);
    let without_streams = lacking.map(|adapter| adapter.instance.clone()).collect();
    let (others, unchanged): (Vec<_>, Vec<_>) = there.into_iter().partition(|adapter| !values.are_in(&adapter.values));
    for (index, adapter) in others.iter().enumerate() {
        if let Err(failure) = keys.set(&adapter.instance, values) {
            return Err(taken_back(keys, &others[..=index], failure));
        }
    }
    let mut restart_needed = false;
    for adapter in &others {
        restart_needed |= keys.restart(&adapter.instance)?;
    }
    let instances = |adapters: Vec<WireAdapter>| adapters.into_iter().map(|adapter| adapter.instance).collect();
    Ok(WireChangeReport {
        wire_number: number,
        values: values.clone(),
        changed: instances(others),
        unchanged: instances(unchanged),
        without_streams,
        restart_needed,
    })
}

fn taken_back(keys: &impl WireKeys, written: &[WireAdapter], mut failure: Failure) -> Failure {
    for adapter in written {
        if keys.set(&adapter.instance, &adapter.values).is_err() {
            failure.cause = format!("{}; {} keeps the new values", failure.cause, adapter.instance);
        }
    }
    failure
}

impl fmt::Display for WireChangeReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.wire_number;
        match &self.values.peers {
            Some(peers) => writeln!(formatter, "wire {number} reaches {peers}")?,
            None => writeln!(formatter, "wire {number} ends at this machine")?,
        }
        for instance in &self.changed {
            writeln!(formatter, "{instance}: written and restarted")?;
        }
        for instance in &self.unchanged {
            writeln!(formatter, "{instance}: was so already")?;
        }
        for instance in &self.without_streams {
            let next = set_transport("NAME");
            writeln!(
                formatter,
                "{instance}: Transport is 0, so frames reach the peers and RDMA does not\n  next: {next}"
            )?;
        }
        if self.restart_needed {
            return write!(formatter, "Windows must be restarted.");
        }
        write!(formatter, "Look at it with \"ndkctl wire list\".")
    }
}

#[cfg(test)]
mod tests {
    use super::{UplinkValues, WireAdapter, WireKeys, apply, is_on, networks, values};
    use crate::failure::{Failure, Kind};
    use crate::wire::arguments::WireJoinArguments;
    use softndk_ioctl::{AdapterAddress, AdapterEntry};
    use std::cell::{Cell, RefCell};
    use std::net::IpAddr;
    use zerocopy::FromZeros;

    /// A registry that refuses the write with this number, from 1.
    #[derive(Default)]
    struct Model {
        adapters: RefCell<Vec<WireAdapter>>,
        writes: Cell<u32>,
        fails_at: u32,
        restarted: RefCell<Vec<String>>,
    }

    impl Model {
        fn with(wire_numbers: &[u32]) -> Self {
            let adapter = |(number, wire_number): (usize, &u32)| WireAdapter {
                instance: number.to_string(),
                wire_number: *wire_number,
                values: UplinkValues::default(),
                has_streams: number != 0,
            };
            let adapters = wire_numbers.iter().enumerate().map(adapter).collect();
            Self { adapters: RefCell::new(adapters), ..Self::default() }
        }

        fn peers(&self) -> Vec<Option<String>> {
            self.adapters.borrow().iter().map(|adapter| adapter.values.peers.clone()).collect()
        }
    }

    impl WireKeys for Model {
        fn adapters(&self) -> Result<Vec<WireAdapter>, Failure> {
            Ok(self.adapters.borrow().clone())
        }

        fn set(&self, instance: &str, values: &UplinkValues) -> Result<(), Failure> {
            self.writes.set(self.writes.get() + 1);
            if self.writes.get() == self.fails_at {
                return Err(Failure::new(Kind::Unreachable, "cannot write", "refused", ""));
            }
            let mut adapters = self.adapters.borrow_mut();
            adapters.iter_mut().find(|adapter| adapter.instance == instance).expect("an adapter").values =
                values.clone();
            Ok(())
        }

        fn restart(&self, instance: &str) -> Result<bool, Failure> {
            self.restarted.borrow_mut().push(instance.to_owned());
            Ok(instance == "2")
        }
    }

    fn join(peers: &[&str]) -> WireJoinArguments {
        let peers = peers.iter().map(|peer| peer.parse().unwrap()).collect();
        WireJoinArguments { number: 7, peers, port: 4789, outer_mtu: 1500 }
    }

    #[test]
    fn adapters_of_the_wire_get_the_values_once() {
        let keys = Model::with(&[7, 0, 7]);
        let wanted = values(&join(&["192.0.2.2", "192.0.2.3"]), &[]).unwrap();
        let report = apply(&keys, 7, &wanted).unwrap();
        assert_eq!((report.changed.len(), report.unchanged.len(), report.restart_needed), (2, 0, true));
        assert_eq!(report.without_streams, ["0"]);
        let text = report.to_string();
        assert!(
            text.contains("0: Transport is 0") && text.contains("set Transport to 1") && !text.contains("2: T"),
            "{text}"
        );
        let text = Some("192.0.2.2,192.0.2.3".to_owned());
        assert_eq!(keys.peers(), [text.clone(), None, text]);
        assert_eq!(*keys.restarted.borrow(), ["0", "2"]);
        let again = apply(&keys, 7, &wanted).unwrap();
        assert_eq!((again.changed.len(), again.unchanged.len(), again.restart_needed), (0, 2, false));
        assert_eq!(again.without_streams, ["0"], "said as long as it is so");
        assert_eq!(keys.restarted.borrow().len(), 2);
        assert!(apply(&keys, 7, &UplinkValues::default()).unwrap().without_streams.is_empty());
        assert_eq!(keys.peers(), [None, None, None]);
        // The INF writes the defaults of the others.
        keys.adapters.borrow_mut()[0].values.port = Some("4789".to_owned());
        assert!(apply(&keys, 7, &UplinkValues::default()).unwrap().changed.is_empty());
    }

    #[test]
    fn write_that_fails_takes_back_those_before_it_and_restarts_none() {
        let keys = Model { fails_at: 2, ..Model::with(&[7, 7]) };
        let wanted = values(&join(&["192.0.2.2"]), &[]).unwrap();
        assert_eq!(apply(&keys, 7, &wanted).unwrap_err().cause, "refused");
        assert_eq!(keys.peers(), [None, None]);
        assert!(keys.restarted.borrow().is_empty());
    }

    #[test]
    fn wire_without_adapters_is_refused() {
        let failure = apply(&Model::with(&[0, 1]), 7, &UplinkValues::default()).unwrap_err();
        assert!(failure.cause.contains("no adapter"), "{failure}");
    }

    #[test]
    fn peers_that_cannot_be_are_refused_with_the_reason() {
        let own = [("10.77.0.1".parse().unwrap(), 24), ("fe80::1".parse().unwrap(), 64)];
        for (peers, cause) in [
            (&["10.77.0.9"][..], "own network (10.77.0.1/24)"),
            (&["fe80::2"], "own network (fe80::1/64)"),
            (&["192.0.2.2", "192.0.2.2"], "twice"),
            (&["192.0.2.2", "2001:db8::1"], "other address family"),
            (&["0.0.0.0"], "no machine"),
        ] {
            let failure = values(&join(peers), &own).unwrap_err();
            assert!(failure.cause.contains(cause), "{failure}");
        }
        let many = (1..=17).map(|last| format!("192.0.2.{last}")).collect::<Vec<_>>();
        let many = many.iter().map(String::as_str).collect::<Vec<_>>();
        assert!(values(&join(&many), &own).unwrap_err().cause.contains("sixteen"));
        assert!(values(&join(&many[..16]), &own).is_ok());
    }

    #[test]
    fn networks_are_those_of_the_adapters_addresses() {
        let mut adapter = AdapterEntry::new_zeroed();
        adapter.addresses[0] = AdapterAddress::new(IpAddr::from([10, 77, 0, 1]), 24, 0);
        adapter.addresses[1] = AdapterAddress::new(IpAddr::from([10, 78, 0, 1]), 16, 0);
        adapter.address_count = 1;
        assert_eq!(networks(&[adapter]), [(IpAddr::from([10, 77, 0, 1]), 24)]);
    }

    #[test]
    fn networks_are_compared_by_their_prefix() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(is_on(ip("10.77.0.9"), ip("10.77.0.1"), 24) && !is_on(ip("10.77.1.9"), ip("10.77.0.1"), 24));
        assert!(is_on(ip("10.77.0.1"), ip("10.77.0.1"), 32) && !is_on(ip("10.77.0.0"), ip("10.77.0.1"), 32));
        assert!(is_on(ip("1.2.3.4"), ip("10.77.0.1"), 0) && !is_on(ip("::1"), ip("10.77.0.1"), 0));
        assert!(is_on(ip("fd00::2"), ip("fd00::1"), 64) && !is_on(ip("fd00::2"), ip("fd00::1"), 255));
    }
}
