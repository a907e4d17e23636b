//! What can be read from an Ethernet frame without trusting it.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An Ethernet address.
pub type MacAddress = [u8; 6];

/// Bytes of an Ethernet header: destination, source, type.
pub const ETHERNET_HEADER: usize = 14;

const TYPE_V4: [u8; 2] = [0x08, 0x00];
const TYPE_V6: [u8; 2] = [0x86, 0xDD];

/// Whether an address names a group of stations, all of them included.
pub const fn is_group(address: MacAddress) -> bool {
    address[0] & 1 != 0
}

/// Where a frame goes, and where it comes from.
pub fn ends(frame: &[u8]) -> Option<(MacAddress, MacAddress)> {
    let (destination, rest) = frame.split_first_chunk::<6>()?;
    let source = rest.first_chunk::<6>()?;
    Some((*destination, *source))
}

/// The IP address that a frame goes to, if it carries IP.
pub fn ip_destination(frame: &[u8]) -> Option<IpAddr> {
    ip_address(frame, 16, 24)
}

/// The IP address that a frame says it comes from, if it carries IP.
pub fn ip_source(frame: &[u8]) -> Option<IpAddr> {
    ip_address(frame, 12, 8)
}

/// The address at one place of a packet of IPv4, or another one of IPv6.
fn ip_address(frame: &[u8], at_v4: usize, at_v6: usize) -> Option<IpAddr> {
    let kind = frame.get(12..ETHERNET_HEADER)?;
    let packet = frame.get(ETHERNET_HEADER..)?;
    if kind == TYPE_V4 {
        let bytes: [u8; 4] = *packet.get(at_v4..)?.first_chunk()?;
        return Some(Ipv4Addr::from(bytes).into());
    }
    if kind == TYPE_V6 {
        let bytes: [u8; 16] = *packet.get(at_v6..)?.first_chunk()?;
        return Some(Ipv6Addr::from(bytes).into());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: [u8; 2], at: usize, address: &[u8]) -> [u8; 60] {
        let mut frame = [0x11; 60];
        frame[..6].copy_from_slice(&[2, 1, 1, 1, 1, 1]);
        frame[6..12].copy_from_slice(&[2, 2, 2, 2, 2, 2]);
        frame[12..14].copy_from_slice(&kind);
        frame[ETHERNET_HEADER + at..][..address.len()].copy_from_slice(address);
        frame
    }

    #[test]
    fn ends_are_destination_and_source() {
        let frame = frame(TYPE_V4, 0, &[]);
        assert_eq!(ends(&frame), Some(([2, 1, 1, 1, 1, 1], [2, 2, 2, 2, 2, 2])));
        assert_eq!(ends(&frame[..11]), None);
        assert!(is_group([0xFF; 6]) && is_group([1, 0, 0x5E, 0, 0, 1]) && !is_group([2, 0, 0, 0, 0, 1]));
    }

    #[test]
    fn addresses_of_ip_packets_only() {
        let v4 = frame(TYPE_V4, 12, &[10, 0, 0, 6, 10, 0, 0, 7]);
        assert_eq!(ip_source(&v4), Some(Ipv4Addr::new(10, 0, 0, 6).into()));
        assert_eq!(ip_destination(&v4), Some(Ipv4Addr::new(10, 0, 0, 7).into()));
        let address = |last| Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, last);
        let v6 = frame(TYPE_V6, 8, &[address(8), address(9)].map(|address| address.octets()).concat());
        assert_eq!(ip_source(&v6), Some(address(8).into()));
        assert_eq!(ip_destination(&v6), Some(address(9).into()));
        assert_eq!(ip_destination(&frame([0x08, 0x06], 16, &[10, 0, 0, 7])), None);
        for length in 0..ETHERNET_HEADER + 20 {
            assert_eq!(ip_destination(&v4[..length]), None, "{length}");
        }
        for length in 0..ETHERNET_HEADER + 40 {
            assert_eq!(ip_destination(&v6[..length]), None, "{length}");
        }
    }
}
