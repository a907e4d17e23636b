//! Set OIDs.

use core::sync::atomic::Ordering;

use ndkpi_sys::ndis::OID_NDK_SET_STATE;
use ndkpi_sys::ndis::{
    NDIS_PACKET_TYPES, NDIS_STATUS, NDIS_STATUS_INVALID_DATA, NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_MULTICAST_FULL,
    NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_SUCCESS, OID_802_3_MULTICAST_LIST, OID_GEN_CURRENT_LOOKAHEAD,
    OID_GEN_CURRENT_PACKET_FILTER, OID_GEN_INTERRUPT_MODERATION, OID_GEN_LINK_PARAMETERS, OID_PNP_SET_POWER,
};

use super::{super::SUPPORTED_PACKET_FILTERS, answer::OidInput};
use crate::{
    adapter::Adapter,
    link::{
        configuration::Configuration,
        multicast::{MULTICAST_MAX, MulticastList},
    },
};

/// Bytes of NDIS_LINK_PARAMETERS.
const LINK_PARAMETERS: usize = 0x20;
/// NdisDeviceStateD0 and NdisDeviceStateD3.
const POWER_D0: u32 = 1;
const POWER_D3: u32 = 4;

/// PASSIVE_LEVEL.
pub fn regular(adapter: &Adapter, oid: u32, input: OidInput<'_>) -> NDIS_STATUS {
    let done = match oid {
        OID_GEN_CURRENT_PACKET_FILTER => packet_filter(adapter, input),
        OID_GEN_CURRENT_LOOKAHEAD => lookahead(adapter, input),
        OID_802_3_MULTICAST_LIST => multicast_list(adapter, input),
        // A wire of memory has no interrupts to moderate, no link to negotiate and no power to save.
        OID_GEN_INTERRUPT_MODERATION => Err(NDIS_STATUS_INVALID_DATA),
        OID_GEN_LINK_PARAMETERS => input.bytes::<LINK_PARAMETERS>().map(|_ignored| ()),
        OID_PNP_SET_POWER => power(input),
        OID_NDK_SET_STATE => ndk_state(adapter, input),
        _ => Err(NDIS_STATUS_NOT_SUPPORTED),
    };
    match done {
        Ok(()) => NDIS_STATUS_SUCCESS,
        Err(status) => status,
    }
}

fn packet_filter(adapter: &Adapter, input: OidInput<'_>) -> Result<(), NDIS_STATUS> {
    let filter = input.u32()?;
    if !SUPPORTED_PACKET_FILTERS.contains(NDIS_PACKET_TYPES::from_bits_retain(filter)) {
        return Err(NDIS_STATUS_NOT_SUPPORTED);
    }
    adapter.station.packet_filter.store(filter, Ordering::Relaxed);
    Ok(())
}

/// NDIS: OID_PNP_SET_POWER. NDIS has paused the adapter; NDK connections, which no device carries, outlive low power.
fn power(input: OidInput<'_>) -> Result<(), NDIS_STATUS> {
    if (POWER_D0..=POWER_D3).contains(&input.u32()?) { Ok(()) } else { Err(NDIS_STATUS_INVALID_DATA) }
}

fn lookahead(adapter: &Adapter, input: OidInput<'_>) -> Result<(), NDIS_STATUS> {
    let bytes = input.u32()?;
    if bytes > adapter.station.mtu {
        return Err(NDIS_STATUS_INVALID_DATA);
    }
    adapter.station.lookahead.store(bytes, Ordering::Relaxed);
    Ok(())
}

fn multicast_list(adapter: &Adapter, input: OidInput<'_>) -> Result<(), NDIS_STATUS> {
    const CAPACITY: usize = MULTICAST_MAX * 6;
    if !input.length.is_multiple_of(6) {
        *input.needed = input.length.div_ceil(6).saturating_mul(6);
        return Err(NDIS_STATUS_INVALID_LENGTH);
    }
    if input.length as usize > CAPACITY {
        *input.needed = CAPACITY as u32;
        return Err(NDIS_STATUS_MULTICAST_FULL);
    }
    let mut bytes = [0; CAPACITY];
    let length = input.copy_to(&mut bytes);
    let list = MulticastList::from_bytes(bytes.get(..length).unwrap_or(&[])).map_err(|_| NDIS_STATUS_MULTICAST_FULL)?;
    *adapter.station.multicast.lock() = list;
    Ok(())
}

/// NDKPI: OID_NDK_SET_STATE never pends and never raises the PnP event here; the adapter's own thread does.
fn ndk_state(adapter: &Adapter, input: OidInput<'_>) -> Result<(), NDIS_STATUS> {
    let [wanted] = input.bytes::<1>()?;
    let enable = wanted != 0;
    // NDKPI: enable only if the keyword, read now, is not zero; otherwise everything stays as it is.
    if !enable || Configuration::network_direct_now(adapter.station.miniport)? {
        adapter.provider.set_state(enable);
    }
    Ok(())
}
