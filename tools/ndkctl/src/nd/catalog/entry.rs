//! WSAPROTOCOL_INFOW, and the two of softnd.dll: one for each version of NetworkDirect.

use serde::Serialize;
use softnd_interfaces::Guid;
use softnd_interfaces::constants::{FAMILY_IPV6, IPV4_ADDRESS_LENGTH, IPV6_ADDRESS_LENGTH, VERSION_1, VERSION_2};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// XP1_: what programs that look for NetworkDirect demand.
pub mod service_flag {
    pub const GUARANTEED_DELIVERY: u32 = 0x2;
    pub const GUARANTEED_ORDER: u32 = 0x4;
    pub const MESSAGE_ORIENTED: u32 = 0x8;
    pub const CONNECT_DATA: u32 = 0x80;
    pub const ALL: u32 = GUARANTEED_DELIVERY | GUARANTEED_ORDER | MESSAGE_ORIENTED | CONNECT_DATA;
}

/// PFL_
pub mod provider_flag {
    /// Not for programs that ask for transports.
    pub const HIDDEN: u32 = 0x4;
    pub const NETWORKDIRECT_PROVIDER: u32 = 0x10;
}

/// A base provider, and not a layer over others.
const BASE_PROTOCOL: i32 = 1;
/// No type of socket: it is no transport.
const NO_SOCKET_TYPE: i32 = -1;
const NO_MESSAGE_LIMIT: u32 = u32::MAX;

/// WSAPROTOCOL_INFOW.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProtocolInfo {
    pub service_flags: [u32; 4],
    pub provider_flags: u32,
    pub provider_id: [u8; 16],
    pub catalog_entry_id: u32,
    pub chain_length: i32,
    pub chain_entries: [u32; 7],
    pub version: i32,
    pub address_family: i32,
    pub max_socket_address: i32,
    pub min_socket_address: i32,
    pub socket_type: i32,
    pub protocol: i32,
    pub protocol_max_offset: i32,
    pub network_byte_order: i32,
    pub security_scheme: i32,
    pub message_size: u32,
    pub provider_reserved: u32,
    pub name: [u16; 256],
}

const _: () = assert!(size_of::<ProtocolInfo>() == 628);

/// A version of NetworkDirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Generation {
    Version2,
    Version1,
}

/// In the order in which they are written.
pub const GENERATIONS: [Generation; 2] = [Generation::Version2, Generation::Version1];

impl Generation {
    /// The digits of its ProviderId.
    #[must_use]
    pub const fn provider_id(self) -> u128 {
        match self {
            Self::Version2 => 0x4E17_FD8D_3F4F_433D_AD1A_761C_59D3_59F6,
            Self::Version1 => 0x981B_3AB2_AF3C_4254_B079_D830_D140_C655,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Version2 => "softndk NetworkDirect 2",
            Self::Version1 => "softndk NetworkDirect 1",
        }
    }

    const fn version(self) -> u32 {
        match self {
            Self::Version2 => VERSION_2,
            Self::Version1 => VERSION_1,
        }
    }
}

impl ProtocolInfo {
    /// The entry of softnd.dll. One of IPv6 is enough for both families.
    #[must_use]
    pub fn ours(generation: Generation) -> Self {
        let mut info = Self {
            service_flags: [service_flag::ALL, 0, 0, 0],
            provider_flags: provider_flag::HIDDEN | provider_flag::NETWORKDIRECT_PROVIDER,
            provider_id: turned(generation.provider_id().to_be_bytes()),
            chain_length: BASE_PROTOCOL,
            version: generation.version() as i32,
            address_family: i32::from(FAMILY_IPV6),
            max_socket_address: IPV6_ADDRESS_LENGTH as i32,
            min_socket_address: IPV4_ADDRESS_LENGTH as i32,
            socket_type: NO_SOCKET_TYPE,
            message_size: NO_MESSAGE_LIMIT,
            ..Self::new_zeroed()
        };
        for (place, unit) in info.name.iter_mut().zip(generation.name().encode_utf16()) {
            *place = unit;
        }
        info
    }

    /// Which of ours it is, by its ProviderId.
    #[must_use]
    pub fn generation(&self) -> Option<Generation> {
        GENERATIONS.into_iter().find(|generation| turned(generation.provider_id().to_be_bytes()) == self.provider_id)
    }

    #[must_use]
    pub const fn is_network_direct(&self) -> bool {
        self.provider_flags & provider_flag::NETWORKDIRECT_PROVIDER != 0
    }

    /// Whether it says the same; the system chooses the number of an entry.
    #[must_use]
    pub fn says_the_same_as(&self, other: &Self) -> bool {
        let of = |info: &Self| Self { catalog_entry_id: 0, ..*info };
        of(self) == of(other)
    }

    #[must_use]
    pub fn shown_id(&self) -> String {
        format!("{:?}", Guid::new(u128::from_be_bytes(turned(self.provider_id))))
    }

    /// Its name up to the zero.
    #[must_use]
    pub fn shown_name(&self) -> String {
        let units: Vec<u16> = self.name.iter().copied().take_while(|unit| *unit != 0).collect();
        String::from_utf16_lossy(&units)
    }
}

/// A GUID in memory from its digits in the order in which they are written, and back.
fn turned(mut bytes: [u8; 16]) -> [u8; 16] {
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    bytes
}

#[cfg(test)]
mod tests {
    use super::{Generation, ProtocolInfo};
    use std::mem::offset_of;
    use zerocopy::{FromBytes, IntoBytes};

    #[test]
    fn fields_stand_where_windows_has_them() {
        assert_eq!(offset_of!(ProtocolInfo, provider_flags), 16);
        assert_eq!(offset_of!(ProtocolInfo, provider_id), 20);
        assert_eq!(offset_of!(ProtocolInfo, catalog_entry_id), 36);
        assert_eq!(offset_of!(ProtocolInfo, chain_length), 40);
        assert_eq!(offset_of!(ProtocolInfo, version), 72);
        assert_eq!(offset_of!(ProtocolInfo, address_family), 76);
        assert_eq!(offset_of!(ProtocolInfo, max_socket_address), 80);
        assert_eq!(offset_of!(ProtocolInfo, min_socket_address), 84);
        assert_eq!(offset_of!(ProtocolInfo, socket_type), 88);
        assert_eq!(offset_of!(ProtocolInfo, protocol), 92);
        assert_eq!(offset_of!(ProtocolInfo, security_scheme), 104);
        assert_eq!(offset_of!(ProtocolInfo, message_size), 108);
        assert_eq!(offset_of!(ProtocolInfo, provider_reserved), 112);
        assert_eq!(offset_of!(ProtocolInfo, name), 116);
    }

    /// Every byte that is not zero, by its place.
    fn exact(version: [u8; 4], id: [u8; 16], name: &str) -> Vec<u8> {
        let mut bytes = vec![0; 628];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &[0x8E, 0, 0, 0]);
        put(16, &[0x14, 0, 0, 0]);
        put(20, &id);
        put(40, &[1, 0, 0, 0]);
        put(72, &version);
        put(76, &[23, 0, 0, 0]);
        put(80, &[28, 0, 0, 0]);
        put(84, &[16, 0, 0, 0]);
        put(88, &[0xFF; 4]);
        put(108, &[0xFF; 4]);
        let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        put(116, &units);
        bytes
    }

    #[test]
    fn entries_of_both_versions_byte_by_byte() {
        let two = [0x8D, 0xFD, 0x17, 0x4E, 0x4F, 0x3F, 0x3D, 0x43, 0xAD, 0x1A, 0x76, 0x1C, 0x59, 0xD3, 0x59, 0xF6];
        let expected = exact([0, 0, 2, 0], two, "softndk NetworkDirect 2");
        assert_eq!(ProtocolInfo::ours(Generation::Version2).as_bytes(), expected);
        let one = [0xB2, 0x3A, 0x1B, 0x98, 0x3C, 0xAF, 0x54, 0x42, 0xB0, 0x79, 0xD8, 0x30, 0xD1, 0x40, 0xC6, 0x55];
        assert_eq!(
            ProtocolInfo::ours(Generation::Version1).as_bytes(),
            exact([1, 0, 0, 0], one, "softndk NetworkDirect 1")
        );
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let info = ProtocolInfo::ours(Generation::Version1);
        let mut read = ProtocolInfo::read_from_bytes(info.as_bytes()).unwrap();
        assert_eq!(read.generation(), Some(Generation::Version1));
        assert_eq!(read.shown_name(), "softndk NetworkDirect 1");
        assert_eq!(read.shown_id(), "981B3AB2-AF3C-4254-B079-D830D140C655");
        assert!(read.is_network_direct());
        read.catalog_entry_id = 1007;
        assert!(read.says_the_same_as(&info), "its number is the system's");
        read.message_size = 0;
        assert!(!read.says_the_same_as(&info));
        read.provider_id[15] ^= 1;
        read.provider_flags = 4;
        assert_eq!((read.generation(), read.is_network_direct()), (None, false));
    }
}
