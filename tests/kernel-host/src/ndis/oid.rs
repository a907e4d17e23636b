//! The object identifiers that NDIS sends to a miniport: name, direction, and whether an Ethernet miniport has to list them.
//!
//! The list is that of "NDIS: Mandatory OIDs for miniport drivers" plus the four of an NDK provider.

/// How NDIS uses an identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Query,
    Set,
    QueryAndSet,
}

/// One mandatory identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mandatory {
    pub oid: u32,
    pub name: &'static str,
    pub direction: Direction,
}

const fn query(oid: u32, name: &'static str) -> Mandatory {
    Mandatory { oid, name, direction: Direction::Query }
}

const fn set(oid: u32, name: &'static str) -> Mandatory {
    Mandatory { oid, name, direction: Direction::Set }
}

/// What every Ethernet miniport lists in its general attributes.
pub const ETHERNET: &[Mandatory] = &[
    set(0x0001_010F, "OID_GEN_CURRENT_LOOKAHEAD"),
    set(0x0001_010E, "OID_GEN_CURRENT_PACKET_FILTER"),
    Mandatory { oid: 0x0001_0209, name: "OID_GEN_INTERRUPT_MODERATION", direction: Direction::QueryAndSet },
    set(0x0001_0208, "OID_GEN_LINK_PARAMETERS"),
    query(0x0001_0111, "OID_GEN_MAXIMUM_TOTAL_SIZE"),
    query(0x0002_0102, "OID_GEN_RCV_OK"),
    query(0x0002_0101, "OID_GEN_XMIT_OK"),
    query(0x0001_010B, "OID_GEN_RECEIVE_BLOCK_SIZE"),
    query(0x0001_010A, "OID_GEN_TRANSMIT_BLOCK_SIZE"),
    query(0x0001_0109, "OID_GEN_RECEIVE_BUFFER_SPACE"),
    query(0x0001_0108, "OID_GEN_TRANSMIT_BUFFER_SPACE"),
    query(0x0002_0106, "OID_GEN_STATISTICS"),
    query(0x0001_010D, "OID_GEN_VENDOR_DESCRIPTION"),
    query(0x0001_0116, "OID_GEN_VENDOR_DRIVER_VERSION"),
    query(0x0001_010C, "OID_GEN_VENDOR_ID"),
    query(0x0101_0101, "OID_802_3_PERMANENT_ADDRESS"),
    query(0x0101_0102, "OID_802_3_CURRENT_ADDRESS"),
    set(0x0101_0103, "OID_802_3_MULTICAST_LIST"),
    query(0x0101_0104, "OID_802_3_MAXIMUM_LIST_SIZE"),
    query(0x0102_0101, "OID_802_3_RCV_ERROR_ALIGNMENT"),
    query(0x0102_0102, "OID_802_3_XMIT_ONE_COLLISION"),
    query(0x0102_0103, "OID_802_3_XMIT_MORE_COLLISIONS"),
    set(0xFD01_0101, "OID_PNP_SET_POWER"),
    query(0xFD01_0102, "OID_PNP_QUERY_POWER"),
];

pub const OID_NDK_SET_STATE: u32 = 0xFC04_0201;
pub const OID_NDK_STATISTICS: u32 = 0xFC04_0202;
pub const OID_NDK_CONNECTIONS: u32 = 0xFC04_0203;
pub const OID_NDK_LOCAL_ENDPOINTS: u32 = 0xFC04_0204;
pub const OID_GEN_CURRENT_PACKET_FILTER: u32 = 0x0001_010E;
pub const OID_802_3_MULTICAST_LIST: u32 = 0x0101_0103;
pub const OID_PNP_SET_POWER: u32 = 0xFD01_0101;
pub const OID_PNP_QUERY_POWER: u32 = 0xFD01_0102;

/// What an NDK provider lists besides.
pub const NDK: &[Mandatory] = &[
    set(OID_NDK_SET_STATE, "OID_NDK_SET_STATE"),
    query(OID_NDK_STATISTICS, "OID_NDK_STATISTICS"),
    query(OID_NDK_CONNECTIONS, "OID_NDK_CONNECTIONS"),
    query(OID_NDK_LOCAL_ENDPOINTS, "OID_NDK_LOCAL_ENDPOINTS"),
];

/// The first identifier of `required` that a miniport's list lacks.
#[must_use]
pub fn missing(required: &[Mandatory], listed: &[u32]) -> Option<Mandatory> {
    required.iter().copied().find(|entry| !listed.contains(&entry.oid))
}

/// The name of an identifier in a report.
#[must_use]
pub fn name(oid: u32) -> String {
    let known = ETHERNET.iter().chain(NDK).find(|entry| entry.oid == oid);
    known.map_or_else(|| format!("OID {oid:#010x}"), |entry| entry.name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_omission_is_seen() {
        for (left_out, entry) in ETHERNET.iter().enumerate() {
            let listed: Vec<u32> = ETHERNET
                .iter()
                .enumerate()
                .filter(|(index, _)| *index != left_out)
                .map(|(_, entry)| entry.oid)
                .collect();
            assert_eq!(missing(ETHERNET, &listed), Some(*entry));
        }
        let all: Vec<u32> = ETHERNET.iter().map(|entry| entry.oid).collect();
        assert_eq!(missing(ETHERNET, &all), None);
    }
}
