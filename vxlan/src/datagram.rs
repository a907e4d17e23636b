//! The header of a VXLAN datagram: flags, and the number of the network that the frame behind it belongs to.

use crate::frame::ETHERNET_HEADER;

/// Bytes in front of the frame.
pub const HEADER_LENGTH: usize = 8;

/// The port that IANA has assigned; Linux takes 8472 unless it is given another.
pub const DEFAULT_PORT: u16 = 4789;

/// The only flag: the network identifier is valid.
const IDENTIFIER_IS_VALID: u8 = 0x08;

/// A VXLAN network identifier (VNI): 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkIdentifier(u32);

impl NetworkIdentifier {
    /// `None` above 24 bits.
    pub const fn new(number: u32) -> Option<Self> {
        if number < 1 << 24 { Some(Self(number)) } else { None }
    }

    pub const fn number(self) -> u32 {
        self.0
    }
}

/// Why a datagram carries no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It does not hold the header and an Ethernet header.
    TooShort,
    /// The identifier is not marked as valid.
    NoIdentifier,
}

/// The bytes in front of a frame.
pub const fn header(network: NetworkIdentifier) -> [u8; HEADER_LENGTH] {
    let [_, high, middle, low] = network.0.to_be_bytes();
    [IDENTIFIER_IS_VALID, 0, 0, 0, high, middle, low, 0]
}

/// The network and the frame of a datagram. Reserved bits are ignored, as RFC 7348 requires of a receiver.
pub fn read(datagram: &[u8]) -> Result<(NetworkIdentifier, &[u8]), Malformed> {
    let (header, frame) = datagram.split_first_chunk::<HEADER_LENGTH>().ok_or(Malformed::TooShort)?;
    let [flags, _, _, _, high, middle, low, _] = *header;
    if flags & IDENTIFIER_IS_VALID == 0 {
        return Err(Malformed::NoIdentifier);
    }
    if frame.len() < ETHERNET_HEADER {
        return Err(Malformed::TooShort);
    }
    Ok((NetworkIdentifier(u32::from_be_bytes([0, high, middle, low])), frame))
}

/// Bytes that the headers around a frame's payload take of an outer packet: IP, UDP, VXLAN, Ethernet.
pub const fn overhead(outer_is_v6: bool) -> u32 {
    let ip = if outer_is_v6 { 40 } else { 20 };
    ip + 8 + HEADER_LENGTH as u32 + ETHERNET_HEADER as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_has_the_bytes_of_the_rfc() {
        let network = NetworkIdentifier::new(0x12_3456).unwrap();
        assert_eq!(header(network), [0x08, 0, 0, 0, 0x12, 0x34, 0x56, 0]);
        assert_eq!(NetworkIdentifier::new(1 << 24), None);
        assert_eq!((overhead(false), overhead(true)), (50, 70));
    }

    #[test]
    fn datagram_gives_its_network_and_frame() {
        let mut datagram = [0xA5; HEADER_LENGTH + ETHERNET_HEADER];
        let network = NetworkIdentifier::new(7).unwrap();
        datagram[..HEADER_LENGTH].copy_from_slice(&header(network));
        assert_eq!(read(&datagram), Ok((network, &[0xA5; ETHERNET_HEADER][..])));
        // Reserved bits.
        datagram[0] |= 0xF7;
        datagram[1..4].fill(0xFF);
        datagram[7] = 0xFF;
        assert_eq!(read(&datagram).map(|(network, _)| network), Ok(network));
    }

    #[test]
    fn datagram_without_identifier_or_frame_is_refused() {
        let datagram = [0xFF; HEADER_LENGTH + ETHERNET_HEADER];
        for length in 0..datagram.len() {
            assert_eq!(read(&datagram[..length]), Err(Malformed::TooShort), "{length}");
        }
        let mut other = datagram;
        other[0] &= !IDENTIFIER_IS_VALID;
        assert_eq!(read(&other), Err(Malformed::NoIdentifier));
    }
}
