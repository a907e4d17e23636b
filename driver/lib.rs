#![no_std]
use wdk_alloc::WdkAllocator;
use wdk_sys::{NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, STATUS_SUCCESS};
extern crate wdk_panic;
#[global_allocator]
static ALLOCATOR: WdkAllocator = WdkAllocator;
#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "system" fn driver_entry(_driver: PDRIVER_OBJECT, _registry_path: PCUNICODE_STRING) -> NTSTATUS {
    STATUS_SUCCESS
}
