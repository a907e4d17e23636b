//! MiniportHaltEx: everything that InitializeEx built, in reverse.

use core::ptr::NonNull;

use ndkpi_sys::ndis::{NDIS_HALT_ACTION, NDIS_HANDLE};

use super::initialize;
use crate::{adapter::Adapter, control, driver::Driver, nd, runtime::event};

/// NDIS: MiniportHaltEx. PASSIVE_LEVEL, paused, no request outstanding.
///
/// # Safety
/// NDIS calls it once per initialised adapter with the driver's context.
pub unsafe extern "C" fn halt(context: NDIS_HANDLE, _action: NDIS_HALT_ACTION) {
    // SAFETY: NDIS passes the driver's context; the adapter is still initialised.
    let Some(adapter) = (unsafe { Adapter::from_context(context) }) else { return };
    let Some(driver) = Driver::get() else { return };
    // No new references; then the adapter cannot be reached from aside.
    driver.remove(adapter.index);
    adapter.provider.leave();
    adapter.gate.shut();
    nd::device::adapter_removed(adapter.index);
    adapter.provider.stop();
    driver.release(adapter.index);
    adapter.station.port.stop();
    control::device::detach(driver);
    nd::device::detach(driver);
    event::adapter_halted(adapter.net_luid);
    if let Some(block) = NonNull::new(context.cast::<Adapter>()) {
        // SAFETY: published by InitializeEx; nothing refers to the adapter any more.
        drop(unsafe { initialize::take_back(block) });
    }
}
