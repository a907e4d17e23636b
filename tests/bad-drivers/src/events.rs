//! Providers of Event Tracing, and what they write.

use core::ffi::c_void;
use core::ptr::{null, null_mut};

use crate::Case::{self, Load};
use crate::kernel::{DISPATCH_LEVEL, ExAllocatePool2, KeLowerIrql, KfRaiseIrql, NtStatus, TAG, free};

pub static CASES: &[(&str, Case)] = &[
    ("event-data-in-paged-pool", Load(data_in_paged_pool)),
    ("provider-unregistered-twice", Load(unregistered_twice)),
    ("provider-left-registered", Load(left_registered)),
];

const POOL_FLAG_NON_PAGED: u64 = crate::kernel::POOL_FLAG_NON_PAGED;
const POOL_FLAG_PAGED: u64 = 0x100;
const LENGTH: usize = 64;

static PROVIDER: [u8; 16] = *b"a bad provider's";

/// `EVENT_DESCRIPTOR`: all zero is an event of every level.
#[repr(C)]
struct Descriptor([u64; 2]);

/// `EVENT_DATA_DESCRIPTOR`.
#[repr(C)]
struct Data {
    address: u64,
    size: u32,
    kind: u32,
}

#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    fn EtwRegister(provider: *const c_void, enabled: *const c_void, context: *mut c_void, handle: *mut u64) -> NtStatus;
    fn EtwUnregister(handle: u64) -> NtStatus;
    fn EtwWrite(
        handle: u64,
        event: *const Descriptor,
        activity: *const c_void,
        count: u32,
        data: *const Data,
    ) -> NtStatus;
}

unsafe fn register() -> u64 {
    let mut handle = 0;
    EtwRegister(PROVIDER.as_ptr().cast(), null(), null_mut(), &raw mut handle);
    handle
}

unsafe fn data_in_paged_pool(good: bool) {
    let handle = register();
    let block: *mut u8 = ExAllocatePool2(if good { POOL_FLAG_NON_PAGED } else { POOL_FLAG_PAGED }, LENGTH, TAG).cast();
    block.write_bytes(1, LENGTH);
    let before = KfRaiseIrql(DISPATCH_LEVEL);
    let data = Data { address: block.addr() as u64, size: LENGTH as u32, kind: 0 };
    EtwWrite(handle, &Descriptor([0; 2]), null(), 1, &data);
    KeLowerIrql(before);
    free(block);
    EtwUnregister(handle);
}

unsafe fn unregistered_twice(good: bool) {
    let handle = register();
    EtwUnregister(handle);
    if !good {
        EtwUnregister(handle);
    }
}

unsafe fn left_registered(good: bool) {
    let handle = register();
    if good {
        EtwUnregister(handle);
    }
}
