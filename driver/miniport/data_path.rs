//! The entry points for raw frames. The virtual wire (`link/wire.rs`) handles the frames.

use core::ffi::c_void;

use ndkpi_sys::ndis::{NDIS_HANDLE, NDIS_PORT_NUMBER, NDIS_RETURN_FLAGS, NDIS_SEND_FLAGS, NET_BUFFER_LIST};
use softndk_kernel::work::Task;

use crate::{
    adapter::Adapter,
    driver::Driver,
    link::{Station, wire},
};

/// NDIS: MiniportSendNetBufferLists. `IRQL <= DISPATCH_LEVEL`. Every list is completed before the return, because the bytes are
/// copied.
///
/// # Safety
/// NDIS passes the context of an initialised adapter and a chain that belongs to the driver until it is completed.
pub unsafe extern "C" fn send(
    context: NDIS_HANDLE,
    chain: *mut NET_BUFFER_LIST,
    _port: NDIS_PORT_NUMBER,
    flags: NDIS_SEND_FLAGS,
) {
    // SAFETY: NDIS passes the driver's context while the adapter is initialised.
    if let Some(adapter) = unsafe { Adapter::from_context(context) } {
        // SAFETY: the chain belongs to the driver until it is completed.
        unsafe { wire::send(&adapter.station, &|visit| each_other(adapter.index, visit), chain, flags) };
    }
}

/// Visits the stations of all adapters but one. `IRQL <= DISPATCH_LEVEL`.
fn each_other(index: usize, visit: &mut dyn FnMut(&Task<Station>)) {
    let Some(driver) = Driver::get() else { return };
    driver.each_station(&mut |other, station| {
        if other != index {
            visit(station);
        }
    });
}

/// NDIS: MiniportReturnNetBufferLists. `IRQL <= DISPATCH_LEVEL`, on several processors at once.
///
/// # Safety
/// NDIS passes the context of an initialised adapter and a chain of lists that it indicated.
pub unsafe extern "C" fn give_back(context: NDIS_HANDLE, chain: *mut NET_BUFFER_LIST, _flags: NDIS_RETURN_FLAGS) {
    // SAFETY: NDIS passes the driver's context while the adapter is initialised.
    if let Some(adapter) = unsafe { Adapter::from_context(context) } {
        // SAFETY: NDIS returns what this adapter indicated, once.
        unsafe { wire::give_back(&adapter.station, chain) };
    }
}

/// NDIS: MiniportCancelSend. No send is ever queued.
///
/// # Safety
/// Reads no argument.
pub unsafe extern "C" fn cancel_send(_context: NDIS_HANDLE, _cancel_id: *mut c_void) {}
