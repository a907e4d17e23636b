//! MiniportInitializeEx: attributes in the order of NDIS, the adapter built complete, then published.
//!
//! On failure everything is undone by drop; HaltEx is not called then.

use core::{mem::size_of, ptr::NonNull};

use ndkpi_sys::ndis::{
    IF_TYPE_ETHERNET_CSMACD, MediaConnectStateConnected, MediaDuplexStateFull, NDIS_HANDLE,
    NDIS_LINK_STATE_DUPLEX_AUTO_NEGOTIATED, NDIS_LINK_STATE_RCV_LINK_SPEED_AUTO_NEGOTIATED,
    NDIS_LINK_STATE_XMIT_LINK_SPEED_AUTO_NEGOTIATED, NDIS_MAC_OPTION_COPY_LOOKAHEAD_DATA, NDIS_MAC_OPTION_NO_LOOPBACK,
    NDIS_MAC_OPTION_TRANSFERS_NOT_PEND, NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2, NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1, NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2, NDIS_MINIPORT_ATTRIBUTES_NO_HALT_ON_SUSPEND,
    NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK, NDIS_MINIPORT_INIT_PARAMETERS, NDIS_NDK_CAPABILITIES,
    NDIS_NDK_CAPABILITIES_REVISION_1, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT,
    NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES, NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
    NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES, NDIS_PM_CAPABILITIES, NDIS_PM_CAPABILITIES_REVISION_2,
    NDIS_SIZEOF_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2, NDIS_SIZEOF_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1,
    NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2, NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_2,
    NDIS_SIZEOF_NDK_CAPABILITIES_REVISION_1, NDIS_STATUS, NDIS_STATUS_FAILURE, NDIS_STATUS_RESOURCES,
    NDIS_STATUS_SUCCESS, NET_IF_ACCESS_BROADCAST, NET_IF_CONNECTION_DEDICATED, NET_IF_DIRECTION_SENDRECEIVE,
    NdisInterfaceInternal, NdisMSetMiniportAttributes, NdisMedium802_3, NdisPauseFunctionsUnsupported,
    NdisPhysicalMedium802_3,
};
use softndk_kernel::{
    pool::{NoMemory, PoolBox, PoolSpace},
    rundown::Rundown,
    work::Task,
};

use super::{SUPPORTED_PACKET_FILTERS, oid};
use crate::{
    adapter::{Adapter, MARK, NdkDescription},
    control,
    driver::{Driver, Reservation},
    link::{
        Plug, Station,
        configuration::Configuration,
        handle::{MacAddress, MiniportHandle},
        multicast::MULTICAST_MAX,
        statistics::SUPPORTED_STATISTICS,
        uplink::{Surroundings, Uplink},
    },
    nd,
    ndk::{limits, provider::Provider},
    runtime::{event, sockets},
    tags,
};

/// NDIS: MiniportInitializeEx. PASSIVE_LEVEL.
///
/// # Safety
/// NDIS calls it once per adapter with the handle and parameters of that adapter.
pub unsafe extern "C" fn initialize(
    miniport: NDIS_HANDLE,
    _driver_context: NDIS_HANDLE,
    parameters: *mut NDIS_MINIPORT_INIT_PARAMETERS,
) -> NDIS_STATUS {
    // SAFETY: NDIS passes parameters that are valid for the call.
    let Some(parameters) = (unsafe { parameters.as_ref() }) else { return NDIS_STATUS_FAILURE };
    let identity = Identity {
        miniport: MiniportHandle(miniport),
        interface_index: parameters.IfIndex,
        net_luid: parameters.NetLuid.Value,
    };
    match start(identity) {
        Ok(()) => {
            event::adapter_started(identity.net_luid);
            NDIS_STATUS_SUCCESS
        }
        Err(status) => {
            event::adapter_failed(identity.net_luid, status);
            status
        }
    }
}

/// How NDIS names the new adapter.
#[derive(Clone, Copy)]
struct Identity {
    miniport: MiniportHandle,
    interface_index: u32,
    net_luid: u64,
}

fn start(identity: Identity) -> Result<(), NDIS_STATUS> {
    let driver = Driver::get().ok_or(NDIS_STATUS_FAILURE)?;
    let reservation = driver.reserve().ok_or(NDIS_STATUS_RESOURCES)?;
    let adapter = build(identity, &reservation)?;
    let described = set_general_attributes(&adapter).and_then(|()| set_ndk_attributes(&adapter));
    let started = described.and_then(|()| adapter.provider.start());
    let attached = started.and_then(|()| attach(reservation.driver(), identity.miniport));
    if let Err(status) = attached {
        // Whatever failed: the engine holds the adapter since `build`.
        adapter.provider.stop();
        return Err(status);
    }
    reservation.publish(adapter.into_raw());
    Ok(())
}

/// The named devices, of which each adapter holds one count.
fn attach(driver: &Driver, miniport: MiniportHandle) -> Result<(), NDIS_STATUS> {
    control::device::attach(driver)?;
    let attached = nd::device::attach(driver, miniport);
    if attached.is_err() {
        control::device::detach(driver);
    }
    attached
}

/// Registration attributes, keywords, and the adapter with all its parts.
///
/// Like the attribute functions below on its own frame, so that their large structures are never on the stack together.
#[inline(never)]
fn build(identity: Identity, reservation: &Reservation) -> Result<PoolBox<Adapter>, NDIS_STATUS> {
    let space = PoolSpace::<Adapter>::try_new(tags::ADAPTER).map_err(resources)?;
    let context = space.as_ptr();
    set_registration_attributes(identity.miniport, context)?;
    let configuration = Configuration::read(identity.miniport)?;
    let information = limits::adapter_information(crate::version::NDKPI_NEWEST, &configuration);
    let mut capabilities = ndk_capabilities(&configuration);
    // SAFETY: only the address of a place inside the block is computed.
    capabilities.NdkInfo = unsafe { &raw mut (*context).ndk.information };
    let engine = reservation.driver().engine;
    let (mtu, uplink) = uplink(identity.miniport, configuration.wire_number, reservation.driver())?;
    let plug = Plug {
        miniport: identity.miniport,
        wire_number: configuration.wire_number,
        permanent_address: configuration.device_address.unwrap_or_else(|| interface_address(identity.net_luid)),
        network_address: configuration.network_address,
        mtu,
        uplink,
        processors: &engine.fabric.platform().services.processors,
    };
    let adapter = Adapter {
        mark: MARK,
        index: reservation.index(),
        interface_index: identity.interface_index,
        net_luid: identity.net_luid,
        gate: Rundown::try_open(tags::RUNDOWN).map_err(resources)?,
        station: Task::new(Station::try_new(plug)?),
        // Last: the engine holds the adapter from here until the provider stops.
        provider: Provider::try_new(identity.miniport, identity.net_luid, configuration, &engine.fabric)?,
        ndk: NdkDescription { capabilities, information },
    };
    Ok(space.fill(adapter))
}

/// The way to other machines, where a keyword names some, and the payload of a frame that goes there.
#[inline(never)]
fn uplink(
    miniport: MiniportHandle,
    wire_number: u32,
    driver: &'static Driver,
) -> Result<(u32, Option<PoolBox<Uplink>>), NDIS_STATUS> {
    let settings = Configuration::uplink(miniport)?;
    let client = sockets::registered().ok_or(NDIS_STATUS_FAILURE)?;
    let surroundings = Surroundings {
        client,
        processors: &driver.engine.fabric.platform().services.processors,
        stations: |visit| {
            if let Some(driver) = Driver::get() {
                driver.each_station(&mut |_, station| visit(station));
            }
        },
        changed: |at, status| event::uplink_changed(at.is_v6, at.port, status),
    };
    let uplink = Uplink::try_new(&settings, wire_number, &driver.end_points, surroundings).map_err(resources)?;
    Ok((settings.mtu(), uplink))
}

fn resources(_: NoMemory) -> NDIS_STATUS {
    NDIS_STATUS_RESOURCES
}

/// A locally administered unicast address, unique on this machine because the interface index inside the LUID is.
fn interface_address(net_luid: u64) -> MacAddress {
    // NET_LUID: 24 reserved bits, then a 24-bit index, then the interface type.
    let [_, _, _, low, middle, high, ..] = net_luid.to_le_bytes();
    [0x02, b'N', b'K', high, middle, low]
}

/// Hands one block of attributes to NDIS.
fn set_attributes<T>(miniport: MiniportHandle, attributes: &mut T) -> Result<(), NDIS_STATUS> {
    let block: *mut T = attributes;
    // SAFETY: PASSIVE_LEVEL inside InitializeEx; NDIS reads the block according to its header and copies it.
    let status = unsafe { NdisMSetMiniportAttributes(miniport.0, block.cast()) };
    if status == NDIS_STATUS_SUCCESS { Ok(()) } else { Err(status) }
}

#[inline(never)]
fn set_registration_attributes(miniport: MiniportHandle, context: *mut Adapter) -> Result<(), NDIS_STATUS> {
    let mut attributes = NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES {
        Header: NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES,
            Revision: NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2,
            Size: NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2,
        },
        MiniportAdapterContext: context.cast(),
        AttributeFlags: NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK | NDIS_MINIPORT_ATTRIBUTES_NO_HALT_ON_SUSPEND,
        CheckForHangTimeInSeconds: 0,
        InterfaceType: NdisInterfaceInternal,
    };
    set_attributes(miniport, &mut attributes)
}

#[inline(never)]
fn set_general_attributes(adapter: &Adapter) -> Result<(), NDIS_STATUS> {
    let mut power_management = NDIS_PM_CAPABILITIES::zeroed();
    power_management.Header = NDIS_OBJECT_HEADER {
        Type: NDIS_OBJECT_TYPE_DEFAULT,
        Revision: NDIS_PM_CAPABILITIES_REVISION_2,
        Size: NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_2,
    };
    let speed = adapter.provider.configuration().link_speed;
    let mut attributes = NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES::zeroed();
    attributes.Header = NDIS_OBJECT_HEADER {
        Type: NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
        Revision: NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2,
        Size: NDIS_SIZEOF_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2,
    };
    attributes.MediaType = NdisMedium802_3;
    attributes.PhysicalMediumType = NdisPhysicalMedium802_3;
    attributes.MtuSize = adapter.station.mtu;
    attributes.MaxXmitLinkSpeed = speed;
    attributes.XmitLinkSpeed = speed;
    attributes.MaxRcvLinkSpeed = speed;
    attributes.RcvLinkSpeed = speed;
    attributes.MediaConnectState = MediaConnectStateConnected;
    attributes.MediaDuplexState = MediaDuplexStateFull;
    attributes.LookaheadSize = adapter.station.mtu;
    attributes.MacOptions =
        NDIS_MAC_OPTION_COPY_LOOKAHEAD_DATA | NDIS_MAC_OPTION_TRANSFERS_NOT_PEND | NDIS_MAC_OPTION_NO_LOOPBACK;
    attributes.SupportedPacketFilters = SUPPORTED_PACKET_FILTERS;
    attributes.MaxMulticastListSize = MULTICAST_MAX as u32;
    attributes.MacAddressLength = size_of::<MacAddress>() as u16;
    set_prefix(&mut attributes.PermanentMacAddress, adapter.station.permanent_address);
    set_prefix(&mut attributes.CurrentMacAddress, adapter.station.current_address);
    attributes.AccessType = NET_IF_ACCESS_BROADCAST;
    attributes.DirectionType = NET_IF_DIRECTION_SENDRECEIVE;
    attributes.ConnectionType = NET_IF_CONNECTION_DEDICATED;
    attributes.IfType = IF_TYPE_ETHERNET_CSMACD;
    attributes.IfConnectorPresent = 0;
    attributes.SupportedStatistics = SUPPORTED_STATISTICS;
    attributes.SupportedPauseFunctions = NdisPauseFunctionsUnsupported.0.cast_unsigned();
    attributes.SupportedOidList = oid::SUPPORTED.as_ptr().cast_mut();
    attributes.SupportedOidListLength = size_of_val(&oid::SUPPORTED) as u32;
    attributes.AutoNegotiationFlags = NDIS_LINK_STATE_XMIT_LINK_SPEED_AUTO_NEGOTIATED
        | NDIS_LINK_STATE_RCV_LINK_SPEED_AUTO_NEGOTIATED
        | NDIS_LINK_STATE_DUPLEX_AUTO_NEGOTIATED;
    // Mandatory since NDIS 6.20, even for a miniport that cannot wake anything.
    attributes.PowerManagementCapabilitiesEx = &raw mut power_management;
    set_attributes(adapter.station.miniport, &mut attributes)
}

/// The address at the start of an NDIS address field.
fn set_prefix(field: &mut [u8], address: MacAddress) {
    for (place, byte) in field.iter_mut().zip(address) {
        *place = byte;
    }
}

/// Without the pointer to the information, which the caller fills in.
fn ndk_capabilities(configuration: &Configuration) -> NDIS_NDK_CAPABILITIES {
    NDIS_NDK_CAPABILITIES {
        Header: NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_DEFAULT,
            Revision: NDIS_NDK_CAPABILITIES_REVISION_1,
            Size: NDIS_SIZEOF_NDK_CAPABILITIES_REVISION_1,
        },
        ..limits::capabilities(configuration)
    }
}

/// Also while NDK starts disabled: NDIS requires the capabilities in every case.
#[inline(never)]
fn set_ndk_attributes(adapter: &Adapter) -> Result<(), NDIS_STATUS> {
    let capabilities: *const NDIS_NDK_CAPABILITIES = &raw const adapter.ndk.capabilities;
    let mut attributes = NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES {
        Header: NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
            Revision: NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1,
            Size: NDIS_SIZEOF_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1,
        },
        Enabled: u8::from(adapter.provider.configuration().network_direct),
        NdkCapabilities: capabilities.cast_mut(),
    };
    set_attributes(adapter.station.miniport, &mut attributes)
}

/// The adapter that [`start`] published.
///
/// # Safety
/// `context` is the context of an adapter that InitializeEx published; called once, by HaltEx.
pub unsafe fn take_back(context: NonNull<Adapter>) -> PoolBox<Adapter> {
    // SAFETY: the block came from `build`, which used this tag.
    unsafe { PoolBox::from_raw(tags::ADAPTER, context) }
}
