//! What the DLL exports.

#![allow(non_snake_case, reason = "names of the system")]

use core::ffi::c_void;

use softnd_interfaces::{Guid, Status};

use crate::{
    argument::{Answer, Argument, Given, Place},
    class_factory, com,
};

/// WSASYSNOTREADY.
const NOT_READY: i32 = 10091;

softnd_interfaces::define! {
    /// Gives a class factory (`IUnknown`, `IClassFactory`) or, as clients of NetworkDirect ask for it, a provider
    /// (`IND2Provider`, `INDProvider`). The class is not looked at: catalog entries may have any.
    ///
    /// COM_NO_INTERFACE for other interfaces, COM_POINTER without a place for the pointer, NO_MEMORY.
    ///
    /// # Safety
    /// `iid` is null or an identifier, `out` is null or a place for a pointer.
    #[cfg_attr(windows, unsafe(no_mangle))]
    pub fn DllGetClassObject(_class: *const Guid, iid: *const Guid, out: *mut *mut c_void) -> Status {
        if out.is_null() {
            return Status::COM_POINTER;
        }
        // SAFETY: the caller's promise.
        let iid = unsafe { Given::of(iid) };
        // SAFETY: the caller's promise.
        let out = unsafe { Place::of(out) };
        class_factory::class_object(iid, out).raw()
    }
}

softnd_interfaces::define! {
    /// SUCCESS when no object lives and the module is not locked, COM_FALSE otherwise.
    ///
    /// # Safety
    /// Always safe.
    #[cfg_attr(windows, unsafe(no_mangle))]
    pub fn DllCanUnloadNow() -> Status {
        if com::can_unload() { Status::SUCCESS } else { Status::COM_FALSE }
    }
}

softnd_interfaces::define! {
    /// Tells one who takes the catalog's entry for a transport of Winsock that it is none.
    ///
    /// # Safety
    /// Always safe.
    #[cfg_attr(windows, unsafe(no_mangle))]
    pub fn WSPStartup(
        _version: u16,
        _data: *mut c_void,
        _protocol: *const c_void,
        _upcalls: *const c_void,
        _table: *mut c_void,
    ) -> i32 {
        NOT_READY
    }
}
