//! The table of machines: under which address of Linux the TCP of another host reaches an address.

use std::net::{IpAddr, Ipv4Addr};

/// An address of an adapter, of this host or of one in another process, and the address of Linux's loopback network that stands for it.
/// The ports are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineAddress {
    pub address: IpAddr,
    pub stand_in: Ipv4Addr,
}

/// The stand-in of an address that is in the table.
pub(super) fn stand_in(table: &[MachineAddress], address: IpAddr) -> Option<Ipv4Addr> {
    table.iter().find(|machine| machine.address == address).map(|machine| machine.stand_in)
}

/// Whose stand-in this is.
pub(super) fn address_of(table: &[MachineAddress], stand_in: IpAddr) -> Option<IpAddr> {
    table.iter().find(|machine| stand_in == machine.stand_in).map(|machine| machine.address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_finds_the_other_and_nothing_else() {
        let address = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
        let stand_in_of_it = Ipv4Addr::new(127, 77, 0, 9);
        let table = [MachineAddress { address, stand_in: stand_in_of_it }];
        assert_eq!(stand_in(&table, address), Some(stand_in_of_it));
        assert_eq!(address_of(&table, stand_in_of_it.into()), Some(address));
        assert_eq!(stand_in(&table, stand_in_of_it.into()), None);
        assert_eq!(address_of(&table, address), None);
    }
}
