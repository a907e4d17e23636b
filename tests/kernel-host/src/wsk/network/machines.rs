//! The table of machines: under which address of Linux the TCP of another host reaches an address.

use std::net::{IpAddr, Ipv4Addr};

/// An address of an adapter, of this host or of one in another process, and the address of Linux's loopback network that stands for it.
/// The ports are the same.
///
/// An address may have several rows: it is reached by the first, and connections come from any of them. A stand-in of this host may be that
/// of another one, too, for a program that connects from wherever Linux lets it begin, as QEMU does for its guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineAddress {
    pub address: IpAddr,
    pub stand_in: Ipv4Addr,
}

/// The stand-in of an address that is in the table.
pub(super) fn stand_in(table: &[MachineAddress], address: IpAddr) -> Option<Ipv4Addr> {
    table.iter().find(|machine| machine.address == address).map(|machine| machine.stand_in)
}

/// Whose stand-in this is, other than this host's: what comes through Linux comes from outside.
pub(super) fn outside_address_of(
    table: &[MachineAddress],
    stand_in: IpAddr,
    is_own: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let mut others = table.iter().filter(|machine| !is_own(machine.address));
    others.find(|machine| stand_in == machine.stand_in).map(|machine| machine.address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_finds_the_other_and_nothing_else() {
        let [own, other] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 77, 0, last)));
        let [here, there] = [8, 9].map(|last| Ipv4Addr::new(127, 77, 0, last));
        let row = |address, stand_in| MachineAddress { address, stand_in };
        let table = [row(own, here), row(other, there), row(other, here)];
        let outside = |stand_in: IpAddr| outside_address_of(&table, stand_in, |address| address == own);
        assert_eq!((stand_in(&table, own), stand_in(&table, other)), (Some(here), Some(there)));
        assert_eq!((outside(there.into()), outside(here.into())), (Some(other), Some(other)));
        assert_eq!(outside_address_of(&table[..1], here.into(), |address| address == own), None);
        assert_eq!((stand_in(&table, there.into()), outside(other)), (None, None));
    }
}
