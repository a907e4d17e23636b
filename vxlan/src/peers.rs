//! The peers of an uplink: the addresses of other machines, as a list and as text.

use core::net::IpAddr;

/// Peers that one uplink has at most: each frame for all stations is sent once to each of them.
pub const PEER_MAX: usize = 16;

/// The longest text of one address.
const TEXT_MAX: usize = 45;

/// Why a text is no list of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerListFault {
    /// A word is no IP address, or one that no machine has.
    NoAddress,
    /// An address comes twice.
    Repeated,
    /// There are more than [`PEER_MAX`].
    TooMany,
    /// The addresses are of both families: one socket reaches one of them.
    Mixed,
}

/// Addresses of one family, each once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerList {
    addresses: [Option<IpAddr>; PEER_MAX],
    count: usize,
}

impl PeerList {
    pub const EMPTY: Self = Self { addresses: [None; PEER_MAX], count: 0 };

    /// Addresses separated by commas, semicolons or blanks, in UTF-16 as the registry has it. An empty text is an empty list.
    pub fn read(text: &[u16]) -> Result<Self, PeerListFault> {
        let mut list = Self::EMPTY;
        for word in text.split(|unit| is_separator(*unit)).filter(|word| !word.is_empty()) {
            list.push(address(word).ok_or(PeerListFault::NoAddress)?)?;
        }
        Ok(list)
    }

    pub fn push(&mut self, address: IpAddr) -> Result<(), PeerListFault> {
        if address.is_unspecified() || address.is_multicast() || is_broadcast(address) {
            return Err(PeerListFault::NoAddress);
        }
        if self.position(address).is_some() {
            return Err(PeerListFault::Repeated);
        }
        if self.is_v6().is_some_and(|is_v6| is_v6 != address.is_ipv6()) {
            return Err(PeerListFault::Mixed);
        }
        let place = self.addresses.get_mut(self.count).ok_or(PeerListFault::TooMany)?;
        *place = Some(address);
        self.count = self.count.saturating_add(1);
        Ok(())
    }

    pub const fn len(&self) -> usize {
        self.count
    }

    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The family of all of them; `None` of an empty list.
    pub fn is_v6(&self) -> Option<bool> {
        self.get(0).map(|first| first.is_ipv6())
    }

    pub fn get(&self, index: usize) -> Option<IpAddr> {
        self.addresses.get(index).copied().flatten()
    }

    pub fn position(&self, address: IpAddr) -> Option<usize> {
        self.iter().position(|other| other == address)
    }

    pub fn iter(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().copied().flatten()
    }
}

fn is_separator(unit: u16) -> bool {
    [b' ', b',', b';', b'\t', 0].iter().any(|separator| unit == u16::from(*separator))
}

fn is_broadcast(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(v4) if v4.is_broadcast())
}

/// The address that a word of UTF-16 names.
fn address(word: &[u16]) -> Option<IpAddr> {
    let mut bytes = [0_u8; TEXT_MAX];
    let text = bytes.get_mut(..word.len())?;
    for (byte, unit) in text.iter_mut().zip(word) {
        *byte = u8::try_from(*unit).ok().filter(u8::is_ascii)?;
    }
    core::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    fn read(text: &str) -> Result<Vec<IpAddr>, PeerListFault> {
        let units = text.encode_utf16().collect::<Vec<_>>();
        PeerList::read(&units).map(|list| list.iter().collect())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn text_is_read_as_it_is_written() {
        assert_eq!(read(""), Ok(Vec::new()));
        assert_eq!(read(" , ;"), Ok(Vec::new()));
        assert_eq!(read("192.0.2.1"), Ok(Vec::from([ip("192.0.2.1")])));
        assert_eq!(
            read("192.0.2.1, 192.0.2.2;192.0.2.3\0"),
            Ok(["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(ip).into())
        );
        assert_eq!(read("2001:db8::1 2001:db8::2"), Ok(["2001:db8::1", "2001:db8::2"].map(ip).into()));
    }

    #[test]
    fn text_that_is_no_list_says_why() {
        for text in
            ["192.0.2", "host", "192.0.2.1:4789", "0.0.0.0", "255.255.255.255", "224.0.0.1", "::", "ff02::1", "\u{661}"]
        {
            assert_eq!(read(text), Err(PeerListFault::NoAddress), "{text}");
        }
        assert_eq!(read(&"1".repeat(46)), Err(PeerListFault::NoAddress));
        assert_eq!(read("192.0.2.1 192.0.2.1"), Err(PeerListFault::Repeated));
        assert_eq!(read("192.0.2.1 2001:db8::1"), Err(PeerListFault::Mixed));
        let many = (1..=17).map(|last| std::format!("192.0.2.{last}")).collect::<Vec<_>>();
        assert_eq!(read(&many[..16].join(",")).map(|list| list.len()), Ok(16));
        assert_eq!(read(&many.join(",")), Err(PeerListFault::TooMany));
    }

    #[test]
    fn list_finds_its_addresses() {
        let mut list = PeerList::EMPTY;
        assert!(list.is_empty() && list.is_v6().is_none());
        list.push(ip("192.0.2.1")).unwrap();
        list.push(ip("192.0.2.2")).unwrap();
        assert_eq!((list.len(), list.is_v6(), list.get(1)), (2, Some(false), Some(ip("192.0.2.2"))));
        assert_eq!(
            (list.position(ip("192.0.2.2")), list.position(ip("192.0.2.3")), list.get(2)),
            (Some(1), None, None)
        );
    }
}
