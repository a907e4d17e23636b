//! Socket addresses as the interfaces have them.

use softnd_interfaces::constants::{FAMILY_IPV4, FAMILY_IPV6, IPV4_ADDRESS_LENGTH, IPV6_ADDRESS_LENGTH};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A sockaddr of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawAddress {
    bytes: [u8; IPV6_ADDRESS_LENGTH],
    length: usize,
}

impl RawAddress {
    /// As much as either family needs, to be filled by the provider.
    pub const EMPTY: Self = Self { bytes: [0; IPV6_ADDRESS_LENGTH], length: IPV6_ADDRESS_LENGTH };

    #[must_use]
    pub const fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    pub const fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    /// Bytes of the sockaddr.
    #[must_use]
    pub const fn length(&self) -> u32 {
        self.length as u32
    }

    /// The address; `None` for another family.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<SocketAddr> {
        let family = u16::from_le_bytes(bytes.first_chunk().copied()?);
        let port = u16::from_be_bytes(bytes.get(2..)?.first_chunk().copied()?);
        match family {
            FAMILY_IPV4 => {
                let ip: [u8; 4] = bytes.get(4..)?.first_chunk().copied()?;
                Some(SocketAddrV4::new(Ipv4Addr::from(ip), port).into())
            }
            FAMILY_IPV6 => {
                let ip: [u8; 16] = bytes.get(8..)?.first_chunk().copied()?;
                let scope = u32::from_le_bytes(bytes.get(24..)?.first_chunk().copied()?);
                Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
            }
            _ => None,
        }
    }

    #[must_use]
    pub fn socket(&self) -> Option<SocketAddr> {
        Self::read(&self.bytes)
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        let mut bytes = [0; IPV6_ADDRESS_LENGTH];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) => {
                bytes[..2].copy_from_slice(&FAMILY_IPV4.to_le_bytes());
                bytes[4..8].copy_from_slice(&v4.ip().octets());
                Self { bytes, length: IPV4_ADDRESS_LENGTH }
            }
            SocketAddr::V6(v6) => {
                bytes[..2].copy_from_slice(&FAMILY_IPV6.to_le_bytes());
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..].copy_from_slice(&v6.scope_id().to_le_bytes());
                Self { bytes, length: IPV6_ADDRESS_LENGTH }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RawAddress;
    use std::net::SocketAddr;

    #[test]
    fn both_families_are_read_as_they_are_written() {
        for (text, length, head) in
            [("10.1.2.3:258", 16, [2, 0, 1, 2, 10, 1, 2, 3]), ("[fd00::7]:1", 28, [23, 0, 0, 1, 0, 0, 0, 0])]
        {
            let address: SocketAddr = text.parse().unwrap();
            let raw = RawAddress::from(address);
            assert_eq!((raw.length(), &raw.bytes[..8]), (length, &head[..]));
            assert_eq!(raw.socket(), Some(address));
            assert_eq!(RawAddress::read(&raw.bytes[..length as usize]), Some(address));
        }
    }

    #[test]
    fn what_is_no_address_is_none() {
        for bytes in [&[][..], &[2], &[2, 0, 0, 1, 10, 0, 0], &[23, 0, 0, 1, 0, 0, 0, 0, 1], &[7, 0, 0, 0, 0, 0, 0, 0]]
        {
            assert_eq!(RawAddress::read(bytes), None, "{bytes:?}");
        }
    }
}
