//! IUnknown and IClassFactory.

use core::ffi::c_void;

use crate::{Guid, Status, abi::interfaces, function};

/// The function table with which every other one begins.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UnknownTable {
    pub query_interface: function!((this: *mut c_void, iid: *const Guid, out: *mut *mut c_void) -> Status),
    pub add_ref: function!((this: *mut c_void) -> u32),
    pub release: function!((this: *mut c_void) -> u32),
}

/// What every interface pointer points to, as far as it is an IUnknown.
#[repr(C)]
pub struct IUnknown {
    pub table: *const UnknownTable,
}

impl IUnknown {
    pub const IID: Guid = Guid::new(0x0000_0000_0000_0000_C000_0000_0000_0046);

    /// # Safety
    /// `this` is a live interface; `out` may be written.
    pub unsafe fn query_interface(this: *mut Self, iid: *const Guid, out: *mut *mut c_void) -> Status {
        // SAFETY: the caller's promise: a live interface begins with the address of its table.
        let table = unsafe { (*this).table };
        // SAFETY: tables live as long as their module.
        let method = unsafe { (*table).query_interface };
        // SAFETY: the caller's promise.
        unsafe { method(this.cast(), iid, out) }
    }

    /// # Safety
    /// `this` is a live interface.
    pub unsafe fn add_ref(this: *mut Self) -> u32 {
        // SAFETY: the caller's promise: a live interface begins with the address of its table.
        let table = unsafe { (*this).table };
        // SAFETY: tables live as long as their module.
        let method = unsafe { (*table).add_ref };
        // SAFETY: the caller's promise.
        unsafe { method(this.cast()) }
    }

    /// # Safety
    /// `this` is a live interface, of which the caller gives up a reference.
    pub unsafe fn release(this: *mut Self) -> u32 {
        // SAFETY: the caller's promise: a live interface begins with the address of its table.
        let table = unsafe { (*this).table };
        // SAFETY: tables live as long as their module.
        let method = unsafe { (*table).release };
        // SAFETY: the caller's promise.
        unsafe { method(this.cast()) }
    }
}

interfaces! {
    /// What `DllGetClassObject` gives to clients that ask for a factory.
    IClassFactory (0x0000_0001_0000_0000_C000_0000_0000_0046): ClassFactoryTable > UnknownTable {
        fn create_instance(outer: *mut c_void, iid: *const Guid, out: *mut *mut c_void) -> Status;
        fn lock_server(lock: i32) -> Status;
    }
}
