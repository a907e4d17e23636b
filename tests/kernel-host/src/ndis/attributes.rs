//! What NDIS checks in the attribute blocks of `NdisMSetMiniportAttributes`: header, order, values, object identifiers, and the
//! figures of an NDK provider. Pure checks: each returns the sentence of the broken rule, the caller decides what follows.
//!
//! Sources: NDIS: `NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES`, `NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES`,
//! `NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES`, `NDIS_NDK_CAPABILITIES`, `NDIS_PM_CAPABILITIES`; NDKPI: `NDK_ADAPTER_INFO`.

use ndkpi_sys::ndis::{
    NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES, NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES, NDIS_NDK_CAPABILITIES, NDIS_OBJECT_HEADER, NDIS_PM_CAPABILITIES,
};
use ndkpi_sys::ndkinfo::NDK_ADAPTER_INFO;

use super::oid;
use crate::inf::AdapterConfig;

/// `Ok`, or the sentence of the broken rule.
pub type Checked<T = ()> = Result<T, String>;

/// What a structure's header must hold: object type, lowest accepted revision, and size of that revision.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedHeader {
    pub structure: &'static str,
    pub object_type: u8,
    pub revision: u8,
    pub size: u16,
    /// `sizeof`, which samples pass where the size through the last field is meant.
    pub size_of: u16,
}

/// Checks type, revision and size; a newer revision may be larger but never smaller.
pub fn check_header(header: NDIS_OBJECT_HEADER, expected: ExpectedHeader) -> Checked {
    let ExpectedHeader { structure, object_type, revision, size, size_of } = expected;
    if header.Type != object_type {
        return Err(format!("{structure}: Header.Type is {:#x}, must be {object_type:#x}", header.Type));
    }
    if header.Revision < revision {
        return Err(format!(
            "{structure}: Header.Revision is {}, this NDIS contract needs {revision}",
            header.Revision
        ));
    }
    let fits =
        if header.Revision == revision { header.Size == size || header.Size == size_of } else { header.Size >= size };
    if fits {
        Ok(())
    } else {
        Err(format!("{structure}: Header.Size is {:#x}, revision {} has {size:#x}", header.Size, header.Revision))
    }
}

/// The sentence's condition and its text.
fn rule(holds: bool, text: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(text()) }
}

/// Registration attributes: what they must be, apart from their place as the first block.
pub fn check_registration(attributes: &NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES) -> Checked {
    const NAME: &str = "NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES";
    /// `NDIS_MINIPORT_ATTRIBUTES_*` as of NDIS 6.60.
    const KNOWN_FLAGS: u32 = 0x7FF;
    const LAST_INTERFACE_TYPE: i32 = 19;
    let expected = ExpectedHeader { structure: NAME, object_type: 0x9E, revision: 2, size: 0x1C, size_of: 0x20 };
    check_header(attributes.Header, expected)?;
    let flags = attributes.AttributeFlags.bits();
    rule(flags & !KNOWN_FLAGS == 0, || format!("{NAME}: AttributeFlags {flags:#x} has unknown bits"))?;
    rule(!attributes.MiniportAdapterContext.is_null(), || format!("{NAME}: MiniportAdapterContext is NULL"))?;
    let interface = attributes.InterfaceType.0;
    rule((0..LAST_INTERFACE_TYPE).contains(&interface), || format!("{NAME}: InterfaceType {interface} is not one"))
}

/// The part of the general attributes that NDIS keeps: it copies the block, the driver may free its memory.
#[derive(Debug, Clone)]
pub struct General {
    pub mtu: u32,
    pub packet_filters: u32,
    pub permanent_mac: [u8; 6],
    pub current_mac: [u8; 6],
    pub supported_oids: Vec<u32>,
    pub link_speed: u64,
    pub connected: bool,
}

/// General attributes against the contract and against the INF's values of the device.
pub fn check_general(
    attributes: &NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
    config: &AdapterConfig,
    ndk_provider: bool,
) -> Checked<General> {
    const NAME: &str = "NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES";
    let expected = ExpectedHeader { structure: NAME, object_type: 0x9F, revision: 2, size: 0xE0, size_of: 0xE0 };
    check_header(attributes.Header, expected)?;
    check_media(attributes, config)?;
    check_link(attributes)?;
    check_filters(attributes)?;
    check_power(attributes)?;
    let (permanent_mac, current_mac) = check_mac(attributes)?;
    let supported_oids = check_oid_list(attributes, ndk_provider)?;
    Ok(General {
        mtu: attributes.MtuSize,
        packet_filters: attributes.SupportedPacketFilters.bits(),
        permanent_mac,
        current_mac,
        supported_oids,
        link_speed: attributes.XmitLinkSpeed,
        connected: attributes.MediaConnectState.0 == 1,
    })
}

fn check_media(attributes: &NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES, config: &AdapterConfig) -> Checked {
    let installation = config.installation();
    let media = attributes.MediaType.0;
    let in_inf = installation.media_type.unwrap_or(0);
    rule(media as u32 == in_inf, || {
        format!("general attributes: MediaType {media} is not the INF's *MediaType {in_inf}")
    })?;
    let physical = attributes.PhysicalMediumType.0;
    let in_inf = installation.physical_media_type.unwrap_or(0);
    rule(physical as u32 == in_inf, || {
        format!("general attributes: PhysicalMediumType {physical} is not the INF's *PhysicalMediaType {in_inf}")
    })?;
    let if_type = u32::from(attributes.IfType);
    let in_inf = installation.if_type.unwrap_or(0);
    rule(if_type == in_inf, || format!("general attributes: IfType {if_type} is not the INF's *IfType {in_inf}"))?;
    let access = attributes.AccessType.0;
    rule(access == 2, || format!("general attributes: AccessType {access}, Ethernet is NET_IF_ACCESS_BROADCAST (2)"))?;
    let direction = attributes.DirectionType.0;
    rule((0..=2).contains(&direction), || format!("general attributes: DirectionType {direction} is not one"))?;
    let connection = attributes.ConnectionType.0;
    rule(connection == 1, || format!("general attributes: ConnectionType {connection}, Ethernet is DEDICATED (1)"))?;
    let connector = attributes.IfConnectorPresent;
    rule(connector <= 1, || format!("general attributes: IfConnectorPresent {connector} is no BOOLEAN"))
}

fn check_link(attributes: &NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES) -> Checked {
    /// The least that IPv4 needs (RFC 791), the most that a 16-bit IP length can use.
    const MTU: std::ops::RangeInclusive<u32> = 576..=65_535;
    const UNKNOWN_SPEED: u64 = u64::MAX;
    let mtu = attributes.MtuSize;
    rule(MTU.contains(&mtu), || {
        format!("general attributes: MtuSize {mtu} is outside {}..={}", MTU.start(), MTU.end())
    })?;
    let lookahead = attributes.LookaheadSize;
    rule(lookahead != 0 && lookahead <= mtu, || {
        format!("general attributes: LookaheadSize {lookahead} is 0 or larger than MtuSize {mtu}")
    })?;
    let connect = attributes.MediaConnectState.0;
    rule((0..=2).contains(&connect), || format!("general attributes: MediaConnectState {connect} is not one"))?;
    let duplex = attributes.MediaDuplexState.0;
    rule((0..=2).contains(&duplex), || format!("general attributes: MediaDuplexState {duplex} is not one"))?;
    let speeds = [
        ("Xmit", attributes.XmitLinkSpeed, attributes.MaxXmitLinkSpeed),
        ("Rcv", attributes.RcvLinkSpeed, attributes.MaxRcvLinkSpeed),
    ];
    for (direction, now, highest) in speeds {
        rule(now == UNKNOWN_SPEED || (now <= highest && highest != 0), || {
            format!(
                "general attributes: {direction}LinkSpeed {now} is above Max{direction}LinkSpeed {highest}, or both are 0"
            )
        })?;
    }
    let pause = attributes.SupportedPauseFunctions;
    rule(pause <= 4, || format!("general attributes: SupportedPauseFunctions {pause} is not one"))?;
    let negotiation = attributes.AutoNegotiationFlags.bits();
    rule(negotiation & !0xF == 0, || {
        format!("general attributes: AutoNegotiationFlags {negotiation:#x} has unknown bits")
    })
}

fn check_filters(attributes: &NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES) -> Checked {
    const DIRECTED: u32 = 0x1;
    const MULTICAST: u32 = 0x2;
    const BROADCAST: u32 = 0x8;
    /// `NDIS_MAC_OPTION_RESERVED`: belongs to NDIS.
    const RESERVED: u32 = 0x8000_0000;
    let filters = attributes.SupportedPacketFilters.bits();
    rule(filters & DIRECTED != 0 && filters & BROADCAST != 0, || {
        format!("general attributes: SupportedPacketFilters {filters:#x}, Ethernet needs DIRECTED and BROADCAST")
    })?;
    rule(filters & MULTICAST == 0 || attributes.MaxMulticastListSize != 0, || {
        "general attributes: MULTICAST is supported but MaxMulticastListSize is 0".to_owned()
    })?;
    let options = attributes.MacOptions.bits();
    rule(options & RESERVED == 0, || {
        format!("general attributes: MacOptions {options:#x} sets NDIS_MAC_OPTION_RESERVED")
    })?;
    rule(!attributes.SupportedStatistics.is_empty(), || "general attributes: SupportedStatistics is 0".to_owned())
}

fn check_power(attributes: &NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES) -> Checked {
    const NAME: &str = "NDIS_PM_CAPABILITIES";
    rule(attributes.PowerManagementCapabilities.is_null(), || {
        "general attributes: PowerManagementCapabilities must be NULL from NDIS 6.20 on".to_owned()
    })?;
    let capabilities: *const NDIS_PM_CAPABILITIES = attributes.PowerManagementCapabilitiesEx.cast_const().cast();
    rule(!capabilities.is_null(), || {
        "general attributes: PowerManagementCapabilitiesEx is NULL; a miniport without wake-up passes a zeroed structure".to_owned()
    })?;
    // SAFETY: not null; a driver that passes a pointer to something else is reported by the fault handler.
    let header = unsafe { (&raw const (*capabilities).Header).read_unaligned() };
    check_header(header, ExpectedHeader { structure: NAME, object_type: 0x80, revision: 2, size: 0x3C, size_of: 0x3C })
}

fn check_mac(attributes: &NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES) -> Checked<([u8; 6], [u8; 6])> {
    let length = attributes.MacAddressLength;
    rule(length == 6, || format!("general attributes: MacAddressLength is {length}, Ethernet has 6"))?;
    let mut addresses = [[0_u8; 6]; 2];
    let sources = [("Permanent", &attributes.PermanentMacAddress), ("Current", &attributes.CurrentMacAddress)];
    for (copy, (name, source)) in addresses.iter_mut().zip(sources) {
        for (to, from) in copy.iter_mut().zip(source.iter()) {
            *to = *from;
        }
        rule(*copy != [0; 6], || format!("general attributes: {name}MacAddress is zero"))?;
        rule(copy[0] & 1 == 0, || format!("general attributes: {name}MacAddress {copy:02x?} is a multicast address"))?;
    }
    Ok((addresses[0], addresses[1]))
}

fn check_oid_list(attributes: &NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES, ndk_provider: bool) -> Checked<Vec<u32>> {
    /// More than every identifier there is; a length beyond it is a wrong field.
    const MOST_BYTES: u32 = 0x4000;
    let length = attributes.SupportedOidListLength;
    rule(!attributes.SupportedOidList.is_null(), || "general attributes: SupportedOidList is NULL".to_owned())?;
    rule(length != 0 && length.is_multiple_of(4) && length <= MOST_BYTES, || {
        format!("general attributes: SupportedOidListLength {length} is not a number of bytes for a list of OIDs")
    })?;
    let list: *const u32 = attributes.SupportedOidList.cast_const().cast();
    // SAFETY: a list of that many identifiers by contract; a shorter one is reported by the fault handler.
    let oids: Vec<u32> = (0..length as usize / 4).map(|index| unsafe { list.add(index).read_unaligned() }).collect();
    if let Some(entry) = oid::missing(oid::ETHERNET, &oids) {
        return Err(format!("general attributes: SupportedOidList lacks the mandatory {}", entry.name));
    }
    if let Some(entry) = oid::missing(oid::NDK, &oids).filter(|_| ndk_provider) {
        return Err(format!(
            "general attributes: SupportedOidList lacks {}, mandatory for an NDK provider",
            entry.name
        ));
    }
    let mut sorted = oids.clone();
    sorted.sort_unstable();
    let twice = sorted.windows(2).find_map(|pair| (pair[0] == pair[1]).then_some(pair[0]));
    twice.map_or(Ok(oids), |oid| Err(format!("general attributes: SupportedOidList names {} twice", oid::name(oid))))
}

/// NDK attributes: returns whether NDK starts enabled, and the adapter's figures.
pub fn check_ndk(
    attributes: &NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
    config: &AdapterConfig,
) -> Checked<(bool, NDK_ADAPTER_INFO)> {
    const NAME: &str = "NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES";
    let expected = ExpectedHeader { structure: NAME, object_type: 0xB3, revision: 1, size: 0x10, size_of: 0x10 };
    check_header(attributes.Header, expected)?;
    let enabled = attributes.Enabled;
    rule(enabled <= 1, || format!("{NAME}: Enabled {enabled} is no BOOLEAN"))?;
    rule(enabled == 0 || keyword(config, "*NetworkDirect") != Some(0), || {
        format!("{NAME}: Enabled although the keyword *NetworkDirect is 0")
    })?;
    let capabilities: *const NDIS_NDK_CAPABILITIES = attributes.NdkCapabilities.cast_const().cast();
    rule(!capabilities.is_null(), || {
        format!("{NAME}: NdkCapabilities is NULL; they are given even when NDK is disabled")
    })?;
    // SAFETY: not null; a driver that passes a pointer to something else is reported by the fault handler.
    let capabilities = unsafe { capabilities.read_unaligned() };
    let info = check_capabilities(&capabilities)?;
    check_adapter_info(&info, config)?;
    Ok((enabled == 1, info))
}

fn check_capabilities(capabilities: &NDIS_NDK_CAPABILITIES) -> Checked<NDK_ADAPTER_INFO> {
    const NAME: &str = "NDIS_NDK_CAPABILITIES";
    let expected = ExpectedHeader { structure: NAME, object_type: 0x80, revision: 1, size: 0x38, size_of: 0x38 };
    check_header(capabilities.Header, expected)?;
    rule(capabilities.Flags == 0, || format!("{NAME}: Flags are reserved and must be 0"))?;
    let counts = [
        ("MaxQpCount", capabilities.MaxQpCount),
        ("MaxCqCount", capabilities.MaxCqCount),
        ("MaxMrCount", capabilities.MaxMrCount),
        ("MaxPdCount", capabilities.MaxPdCount),
    ];
    for (field, count) in counts {
        rule(count != 0, || format!("{NAME}: {field} is 0"))?;
    }
    let info: *const NDK_ADAPTER_INFO = capabilities.NdkInfo.cast_const().cast();
    rule(!info.is_null(), || format!("{NAME}: NdkInfo is NULL"))?;
    // SAFETY: not null; a driver that passes a pointer to something else is reported by the fault handler.
    let info = unsafe { info.read_unaligned() };
    let limits = [
        ("Inbound", capabilities.MaxInboundReadLimit, info.MaxInboundReadLimit),
        ("Outbound", capabilities.MaxOutboundReadLimit, info.MaxOutboundReadLimit),
    ];
    for (direction, adapter, queue_pair) in limits {
        rule(adapter == 0 || adapter >= queue_pair, || {
            format!("{NAME}: Max{direction}ReadLimit {adapter} of the adapter is below {queue_pair} of one queue pair")
        })?;
    }
    rule((capabilities.MaxSrqCount == 0) == (info.MaxSrqDepth == 0), || {
        format!(
            "{NAME}: MaxSrqCount {} and MaxSrqDepth {} contradict each other",
            capabilities.MaxSrqCount, info.MaxSrqDepth
        )
    })?;
    Ok(info)
}

/// Figures of an NDK adapter that no consumer could work with.
pub fn check_adapter_info(info: &NDK_ADAPTER_INFO, config: &AdapterConfig) -> Checked {
    const TECHNOLOGY: &str = "*NetworkDirectTechnology";
    const NAME: &str = "NDK_ADAPTER_INFO";
    const PAGE: usize = 4096;
    let (major, minor) = (info.Version.Major, info.Version.Minor);
    rule(matches!((major, minor), (1, 0..=2) | (2, 0..=1)), || {
        format!("{NAME}: Version {major}.{minor} is no NDKPI version")
    })?;
    let pages = info.FRMRPageCount;
    rule(pages >= 16, || format!("{NAME}: FRMRPageCount is {pages}, at least 16 is mandatory"))?;
    let registration = info.MaxRegistrationSize;
    rule(registration >= pages as usize * PAGE, || {
        format!("{NAME}: MaxRegistrationSize {registration} is below one fast-register region of {pages} pages")
    })?;
    let at_least_one = [
        ("MaxInitiatorRequestSge", info.MaxInitiatorRequestSge),
        ("MaxReceiveRequestSge", info.MaxReceiveRequestSge),
        ("MaxReadRequestSge", info.MaxReadRequestSge),
        ("MaxTransferLength", info.MaxTransferLength),
        ("MaxInboundReadLimit", info.MaxInboundReadLimit),
        ("MaxOutboundReadLimit", info.MaxOutboundReadLimit),
        ("MaxReceiveQueueDepth", info.MaxReceiveQueueDepth),
        ("MaxInitiatorQueueDepth", info.MaxInitiatorQueueDepth),
        ("MaxCqDepth", info.MaxCqDepth),
    ];
    for (field, value) in at_least_one {
        rule(value != 0, || format!("{NAME}: {field} is 0"))?;
    }
    rule(info.MaxReadRequestSge <= info.MaxInitiatorRequestSge, || {
        format!("{NAME}: MaxReadRequestSge {} is above MaxInitiatorRequestSge", info.MaxReadRequestSge)
    })?;
    let deepest = info.MaxReceiveQueueDepth.max(info.MaxInitiatorQueueDepth);
    rule(info.MaxCqDepth >= deepest, || {
        format!("{NAME}: MaxCqDepth {} cannot hold one full queue {deepest}", info.MaxCqDepth)
    })?;
    let technology = info.RdmaTechnology.0;
    rule(major < 2 || (1..=4).contains(&technology), || format!("{NAME}: RdmaTechnology {technology} is not one"))?;
    let configured = keyword(config, TECHNOLOGY).filter(|value| offers(config, TECHNOLOGY, *value));
    rule(major < 2 || configured.is_none_or(|value| value == i64::from(technology)), || {
        format!("{NAME}: RdmaTechnology {technology} is not what {TECHNOLOGY} says ({configured:?})")
    })
}

/// Whether the INF lists the value: other values may stand in the registry, and the driver must survive them.
fn offers(config: &AdapterConfig, name: &str, value: i64) -> bool {
    let keywords = &config.installation().keywords;
    keywords
        .iter()
        .any(|keyword| keyword.name.eq_ignore_ascii_case(name) && keyword.choices.contains_key(&value.to_string()))
}

fn keyword(config: &AdapterConfig, name: &str) -> Option<i64> {
    let value = config.values().iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    value.and_then(|(_, text)| text.trim().parse().ok())
}
