//! Handles, registry keys, addresses of user programs, strings, registrations with WMI, copies that overlap.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::hint::black_box;
use core::mem::size_of;

use crate::Case::{self, Load, LoadUnload};
use crate::kernel::{
    DriverObject, Event, KeInitializeEvent, KeSetEvent, KeWaitForSingleObject, NtStatus, ObReferenceObjectByHandle,
    ObfDereferenceObject, PAGE, PsCreateSystemThread, UnicodeString, ZwClose, allocate, free, memcpy, memmove,
};
use crate::mutexes::{KeEnterGuardedRegion, KeLeaveGuardedRegion};
use crate::spin_lock::Shared;

pub static CASES: &[(&str, Case)] = &[
    ("null-handle-referenced", Load(null_handle)),
    ("closed-handle-referenced", Load(closed_handle)),
    ("registry-key-queried-after-close", Load(key_after_close)),
    ("user-address-in-kernel-call", Load(user_address)),
    ("user-address-in-system-service", Load(user_address_in_service)),
    ("malformed-name-in-system-service", Load(malformed_name)),
    ("malformed-attributes-in-system-service", Load(malformed_attributes)),
    ("system-service-in-guarded-region", Load(service_in_guarded_region)),
    ("memcpy-of-overlapping-ranges", Load(overlapping_copy)),
    ("wmi-registration-left", LoadUnload(register_wmi, deregister_wmi)),
    ("device-deleted-while-wmi-knows-it", Load(device_deleted)),
];

const OBJ_KERNEL_HANDLE: u32 = 0x200;
const KEY_READ: u32 = 0x2_0019;
const PARTIAL_INFORMATION: u32 = 2;
const WMIREG_ACTION_REGISTER: u32 = 1;
const WMIREG_ACTION_DEREGISTER: u32 = 2;
const WMIREG_FLAG_CALLBACK: u32 = 0x8000_0000;
const FILE_DEVICE_UNKNOWN: u32 = 0x22;

#[repr(C)]
struct ObjectAttributes {
    length: u32,
    root: *mut c_void,
    name: *const UnicodeString,
    attributes: u32,
    security: *mut c_void,
    quality: *mut c_void,
}

#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    fn ZwOpenKey(handle: *mut *mut c_void, access: u32, attributes: *const ObjectAttributes) -> NtStatus;
    fn ZwQueryValueKey(
        key: *mut c_void,
        name: *const UnicodeString,
        class: u32,
        information: *mut c_void,
        length: u32,
        needed: *mut u32,
    ) -> NtStatus;
    fn IoWMIRegistrationControl(object: *mut c_void, action: u32) -> NtStatus;
    fn IoCreateDevice(
        driver: *mut DriverObject,
        extension: u32,
        name: *const UnicodeString,
        kind: u32,
        characteristics: u32,
        exclusive: u8,
        device: *mut *mut c_void,
    ) -> NtStatus;
    fn IoDeleteDevice(device: *mut c_void);
}

macro_rules! text {
    ($text:literal) => {{
        const LENGTH: usize = $text.len();
        static UNITS: [u16; LENGTH] = {
            let mut units = [0; LENGTH];
            let mut index = 0;
            while index < LENGTH {
                units[index] = $text[index] as u16;
                index += 1;
            }
            units
        };
        UnicodeString { length: LENGTH as u16 * 2, maximum_length: LENGTH as u16 * 2, buffer: UNITS.as_ptr() }
    }};
}

static STOP: Shared<Event> = Shared(UnsafeCell::new(Event([0; 24])));

unsafe extern "C" fn wait_for_stop(_: *mut c_void) {
    KeWaitForSingleObject(STOP.0.get().cast(), 0, 0, 0, core::ptr::null());
}

/// A thread whose handle is referenced by `refer`.
unsafe fn with_thread(refer: impl FnOnce(*mut c_void) -> *mut c_void) {
    let none = core::ptr::null_mut();
    let mut handle = none;
    KeInitializeEvent(STOP.0.get(), 0, 0);
    PsCreateSystemThread(&raw mut handle, 0x1F_FFFF, none, none, none, wait_for_stop, none);
    let thread = refer(handle);
    KeSetEvent(STOP.0.get(), 0, 0);
    KeWaitForSingleObject(thread, 0, 0, 0, core::ptr::null());
    ObfDereferenceObject(thread);
}

unsafe fn reference(handle: *mut c_void) -> *mut c_void {
    let none = core::ptr::null_mut();
    let mut thread = none;
    ObReferenceObjectByHandle(handle, 0x1F_FFFF, none, 0, &raw mut thread, none);
    thread
}

unsafe fn null_handle(good: bool) {
    with_thread(|handle| {
        let thread = reference(if good { handle } else { core::ptr::null_mut() });
        ZwClose(handle);
        thread
    });
}

unsafe fn closed_handle(good: bool) {
    with_thread(|handle| {
        if !good {
            ZwClose(handle);
        }
        let thread = reference(handle);
        ZwClose(handle);
        thread
    });
}

unsafe fn attributes(name: *const UnicodeString) -> ObjectAttributes {
    let none = core::ptr::null_mut();
    let length = size_of::<ObjectAttributes>() as u32;
    ObjectAttributes { length, root: none, name, attributes: OBJ_KERNEL_HANDLE, security: none, quality: none }
}

/// The parameters of the driver, where the host has put the address of a user program's buffer.
unsafe fn open_parameters() -> *mut c_void {
    let name = text!(br"\REGISTRY\MACHINE\SYSTEM\ControlSet001\Services\BadDrivers\Parameters");
    let attributes = attributes(&raw const name);
    let mut key = core::ptr::null_mut();
    ZwOpenKey(&raw mut key, KEY_READ, &raw const attributes);
    key
}

unsafe fn query(key: *mut c_void, needed: *mut u32) -> u64 {
    let name = text!(b"UserBuffer");
    let mut information = [0_u32; 5];
    ZwQueryValueKey(key, &raw const name, PARTIAL_INFORMATION, (&raw mut information).cast(), 20, needed);
    u64::from(information[3]) | u64::from(information[4]) << 32
}

unsafe fn user_buffer() -> *mut c_void {
    let key = open_parameters();
    let mut needed = 0;
    let address = query(key, &raw mut needed);
    ZwClose(key);
    address as *mut c_void
}

unsafe fn key_after_close(good: bool) {
    let key = open_parameters();
    let mut needed = 0;
    if !good {
        ZwClose(key);
    }
    black_box(query(key, &raw mut needed));
    if good {
        ZwClose(key);
    }
}

unsafe fn user_address(good: bool) {
    let mut own = Event([0; 24]);
    KeInitializeEvent(if good { &raw mut own } else { user_buffer().cast() }, 0, 0);
}

unsafe fn user_address_in_service(good: bool) {
    let user = user_buffer();
    let key = open_parameters();
    let mut needed = 0;
    black_box(query(key, if good { &raw mut needed } else { user.cast() }));
    ZwClose(key);
}

unsafe fn malformed_name(good: bool) {
    let mut name = text!(br"\REGISTRY\MACHINE\SYSTEM\ControlSet001\Services\BadDrivers\Parameters");
    if !good {
        name.length = name.maximum_length + 2;
    }
    let attributes = attributes(&raw const name);
    let mut key = core::ptr::null_mut();
    ZwOpenKey(&raw mut key, KEY_READ, &raw const attributes);
    ZwClose(key);
}

unsafe fn malformed_attributes(good: bool) {
    let name = text!(br"\REGISTRY\MACHINE\SYSTEM\ControlSet001\Services\BadDrivers\Parameters");
    let mut attributes = attributes(&raw const name);
    if !good {
        attributes.length = 0;
    }
    let mut key = core::ptr::null_mut();
    ZwOpenKey(&raw mut key, KEY_READ, &raw const attributes);
    ZwClose(key);
}

unsafe fn service_in_guarded_region(good: bool) {
    let key = open_parameters();
    KeEnterGuardedRegion();
    if good {
        KeLeaveGuardedRegion();
    }
    ZwClose(key);
    if !good {
        KeLeaveGuardedRegion();
    }
}

unsafe fn overlapping_copy(good: bool) {
    let block = allocate(PAGE);
    block.write_bytes(1, PAGE);
    let (target, source) = (block.add(8).cast(), block.cast_const().cast());
    if good {
        memmove(target, source, black_box(100));
    } else {
        memcpy(target, source, black_box(100));
    }
    free(block);
}

unsafe extern "C" fn callback() -> NtStatus {
    0
}

unsafe fn register_wmi(_good: bool) {
    IoWMIRegistrationControl(callback as *const () as *mut c_void, WMIREG_ACTION_REGISTER | WMIREG_FLAG_CALLBACK);
}

unsafe fn deregister_wmi(good: bool) {
    if good {
        IoWMIRegistrationControl(callback as *const () as *mut c_void, WMIREG_ACTION_DEREGISTER | WMIREG_FLAG_CALLBACK);
    }
}

unsafe fn device_deleted(good: bool) {
    let none = core::ptr::null();
    let mut device = core::ptr::null_mut();
    IoCreateDevice(crate::driver_object(), 0, none, FILE_DEVICE_UNKNOWN, 0, 0, &raw mut device);
    IoWMIRegistrationControl(device, WMIREG_ACTION_REGISTER);
    if good {
        IoWMIRegistrationControl(device, WMIREG_ACTION_DEREGISTER);
    }
    IoDeleteDevice(device);
}
