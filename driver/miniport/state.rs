//! Pause, restart, surprise removal, shutdown: the adapter's states between InitializeEx and HaltEx.

use core::sync::atomic::Ordering;

use ndkpi_sys::ndis::{
    NDIS_HANDLE, NDIS_MINIPORT_PAUSE_PARAMETERS, NDIS_MINIPORT_RESTART_PARAMETERS, NDIS_SHUTDOWN_ACTION, NDIS_STATUS,
    NDIS_STATUS_FAILURE, NDIS_STATUS_SUCCESS, NET_DEVICE_PNP_EVENT, NdisDevicePnPEventSurpriseRemoved,
};

use crate::adapter::Adapter;

/// NDIS: MiniportPause. PASSIVE_LEVEL. Waits here for sends and receives in progress, so it never pends.
///
/// # Safety
/// NDIS passes the context of an initialised adapter.
pub unsafe extern "C" fn pause(context: NDIS_HANDLE, _parameters: *mut NDIS_MINIPORT_PAUSE_PARAMETERS) -> NDIS_STATUS {
    // SAFETY: NDIS passes the driver's context while the adapter is initialised.
    if let Some(adapter) = unsafe { Adapter::from_context(context) } {
        adapter.station.port.pause();
    }
    NDIS_STATUS_SUCCESS
}

/// NDIS: MiniportRestart. PASSIVE_LEVEL.
///
/// # Safety
/// NDIS passes the context of an initialised adapter.
pub unsafe extern "C" fn restart(
    context: NDIS_HANDLE,
    _parameters: *mut NDIS_MINIPORT_RESTART_PARAMETERS,
) -> NDIS_STATUS {
    // SAFETY: NDIS passes the driver's context while the adapter is initialised.
    let Some(adapter) = (unsafe { Adapter::from_context(context) }) else { return NDIS_STATUS_FAILURE };
    adapter.station.port.restart();
    NDIS_STATUS_SUCCESS
}

/// NDIS: MiniportDevicePnPEventNotify. PASSIVE_LEVEL. After surprise removal every request is refused, and every
/// connection ends: the halt may be a while.
///
/// # Safety
/// NDIS passes the context of an initialised adapter and an event that is valid for the call.
pub unsafe extern "C" fn pnp_event(context: NDIS_HANDLE, event: *mut NET_DEVICE_PNP_EVENT) {
    // SAFETY: NDIS passes the driver's context while the adapter is initialised.
    let Some(adapter) = (unsafe { Adapter::from_context(context) }) else { return };
    // SAFETY: the event is valid for the call.
    let Some(event) = (unsafe { event.as_ref() }) else { return };
    if event.DevicePnPEvent == NdisDevicePnPEventSurpriseRemoved {
        adapter.station.removed.store(true, Ordering::Release);
        adapter.provider.surprise_removed();
    }
}

/// NDIS: MiniportShutdownEx. Possibly at HIGH_LEVEL: a virtual adapter has nothing to switch off.
///
/// # Safety
/// Reads neither argument.
pub unsafe extern "C" fn shutdown(_context: NDIS_HANDLE, _action: NDIS_SHUTDOWN_ACTION) {}
