//! Where this kernel host stands: alone, or as one of several in processes of their own, which reach each other by Linux's TCP.
//!
//! All addresses follow from numbers, so that every process knows those of the others.

use crate::arguments::{HostMode, MACHINES, MachineArguments};
use crate::failure::{Failure, Kind};
use kernel_host::wsk::MachineAddress;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most adapters that a machine has.
const ADAPTERS: u32 = 16;

/// Adapters on other machines are reached by streams.
const REACHES_OTHERS: (&str, &str) = ("Transport", "1");

/// Which addresses the adapters have, and which other ones are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Alone,
    OneOf { network: u16, machine: u8 },
}

impl Place {
    /// That of a command line.
    pub fn of(arguments: &MachineArguments) -> Result<Self, Failure> {
        let Some(machine) = arguments.machine else {
            return match arguments.network {
                None => Ok(Self::Alone),
                Some(_) => Err(refused(
                    "--network has the number of a network of machines, and this is none of them",
                    "give the machine its number with --machine",
                )),
            };
        };
        if arguments.mode != HostMode::Fast {
            return Err(refused("machines reach each other in real time, by Linux's TCP", "leave --mode out"));
        }
        Ok(Self::OneOf { network: arguments.network.unwrap_or(0), machine })
    }

    pub const fn is_one_of_several(self) -> bool {
        matches!(self, Self::OneOf { .. })
    }

    /// The addresses of an adapter, with the lengths of their prefixes.
    pub fn addresses(self, adapter: u32) -> [(IpAddr, u8); 2] {
        match self {
            Self::Alone => {
                let host = host(adapter);
                [(Ipv4Addr::new(192, 168, 100, host).into(), 24), (ipv6(0, host), 64)]
            }
            Self::OneOf { machine, .. } => of_machine(machine, adapter),
        }
    }

    /// Where the system's TCP has an address of an adapter.
    pub fn tcp_address(self, address: IpAddr) -> IpAddr {
        let entry = self.table().into_iter().find(|entry| entry.address == address);
        entry.map_or(Ipv4Addr::LOCALHOST, |entry| entry.stand_in).into()
    }

    /// A value of the adapters' driver keys.
    pub fn keyword(self) -> Option<(&'static str, &'static str)> {
        self.is_one_of_several().then_some(REACHES_OTHERS)
    }

    /// All addresses of the network; none where there is no other machine.
    pub fn table(self) -> Vec<MachineAddress> {
        let Self::OneOf { network, .. } = self else { return Vec::new() };
        let adapters = (1..=MACHINES).flat_map(|machine| (0..ADAPTERS).map(move |adapter| (machine, adapter)));
        let both = |(machine, adapter)| {
            let stand_in = move |family| stand_in(network, family, machine, adapter);
            let [(ipv4, _), (ipv6, _)] = of_machine(machine, adapter);
            [(ipv4, 0), (ipv6, 1)].map(|(address, family)| MachineAddress { address, stand_in: stand_in(family) })
        };
        adapters.flat_map(both).collect()
    }
}

/// The last byte of the addresses of an adapter, of which there are sixteen.
const fn host(adapter: u32) -> u8 {
    adapter as u8 + 1
}

fn ipv6(machine: u8, host: u8) -> IpAddr {
    Ipv6Addr::new(0xFD00, 0x736F, 0x6674, 0x6E64, 0, 0, machine.into(), host.into()).into()
}

fn of_machine(machine: u8, adapter: u32) -> [(IpAddr, u8); 2] {
    let host = host(adapter);
    [(Ipv4Addr::new(10, 77, machine, host).into(), 16), (ipv6(machine, host), 64)]
}

/// In 127.128.0.0/9: fourteen bits of the network, one of the family, four of the machine, four of the adapter. None ends in 0 or 255.
fn stand_in(network: u16, family: u32, machine: u8, adapter: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x7F80_0000 | u32::from(network) << 9 | family << 8 | u32::from(machine) << 4 | adapter)
}

fn refused(cause: &str, next_step: &str) -> Failure {
    Failure::new(Kind::Usage, "cannot be one of several machines", cause, next_step)
}

#[cfg(test)]
mod tests {
    use super::{ADAPTERS, Place, stand_in};
    use crate::arguments::{HostMode, MACHINES, MachineArguments, NETWORKS};
    use crate::failure::Kind;
    use std::collections::HashSet;

    const SECOND: Place = Place::OneOf { network: 0, machine: 2 };

    #[test]
    fn adapters_have_addresses_of_their_own() {
        for place in [Place::Alone, SECOND] {
            let all: Vec<_> = (0..16).flat_map(|adapter| place.addresses(adapter)).collect();
            assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        }
        let first = |place: Place| place.addresses(0).map(|(address, prefix)| format!("{address}/{prefix}"));
        assert_eq!(first(Place::Alone), ["192.168.100.1/24", "fd00:736f:6674:6e64::1/64"]);
        assert_eq!(first(SECOND), ["10.77.2.1/16", "fd00:736f:6674:6e64::2:1/64"]);
    }

    #[test]
    fn table_has_every_address_of_the_network_once() {
        let table = SECOND.table();
        assert_eq!(table.len(), 2 * usize::from(MACHINES) * ADAPTERS as usize);
        let addresses: HashSet<_> = table.iter().map(|entry| entry.address).collect();
        let stand_ins: HashSet<_> = table.iter().map(|entry| entry.stand_in).collect();
        assert_eq!((addresses.len(), stand_ins.len()), (table.len(), table.len()));
        for machine in 1..=MACHINES {
            let place = Place::OneOf { network: 0, machine };
            let own = (0..ADAPTERS).flat_map(|adapter| place.addresses(adapter));
            assert!(own.into_iter().all(|(address, _)| addresses.contains(&address)), "{machine}");
            assert_eq!(place.table(), table, "each machine has the same table");
        }
        assert!(Place::Alone.table().is_empty());
        assert!(table.iter().all(|entry| SECOND.tcp_address(entry.address) == entry.stand_in));
        assert!(Place::Alone.tcp_address("192.168.100.1".parse().unwrap()).is_loopback());
    }

    #[test]
    fn networks_share_no_stand_in() {
        let of = |network| Place::OneOf { network, machine: 1 }.table().into_iter().map(|entry| entry.stand_in);
        let all: HashSet<_> = [0, 1, 2, 255, 256, NETWORKS - 1].into_iter().flat_map(of).collect();
        assert_eq!(all.len(), 6 * SECOND.table().len());
        assert!(all.iter().all(|address| address.is_loopback() && ![0, 255].contains(&address.octets()[3])));
        assert_eq!(stand_in(3, 1, 2, 4).to_string(), "127.128.7.36");
    }

    #[test]
    fn what_does_not_go_with_several_machines_is_refused() {
        let alone = MachineArguments::default();
        assert_eq!(Place::of(&alone), Ok(Place::Alone));
        let second = MachineArguments { machine: Some(2), ..alone.clone() };
        assert_eq!(Place::of(&second), Ok(SECOND));
        let network = MachineArguments { network: Some(7), ..alone };
        assert!(Place::of(&network).is_err_and(|failure| failure.next_step.contains("--machine")));
        for mode in [HostMode::Measure, HostMode::Count, HostMode::Verify] {
            let failure = Place::of(&MachineArguments { mode, ..second.clone() }).unwrap_err();
            assert_eq!(failure.kind, Kind::Usage);
        }
    }
}
