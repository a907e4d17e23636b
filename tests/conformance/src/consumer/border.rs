//! Where structures and callbacks cross between provider and consumer: `cargo xtask arguments` distorts one field here.

use kernel_host::distortion;
use ndkpi_sys::ndkinfo::NDK_ADAPTER_INFO;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::NTSTATUS;

/// C structures of integers and pointers, for which any bytes are a value.
///
/// # Safety
/// The type is one.
pub(super) unsafe trait Plain: Copy {}

// SAFETY: integers and pointers.
unsafe impl Plain for NDK_SGE {}
// SAFETY: integers and pointers.
unsafe impl Plain for NDK_RESULT {}
// SAFETY: integers and pointers.
unsafe impl Plain for NDK_RESULT_EX {}
// SAFETY: integers.
unsafe impl Plain for NDK_ADAPTER_INFO {}

/// Structures on their way, as the other side sees them.
pub(super) fn distort<T: Plain>(name: &str, structures: &mut [T]) {
    if !distortion::is_watched() {
        return;
    }
    for structure in structures {
        // SAFETY: the bytes of one structure, padding included, of which none is read as anything else.
        let bytes = unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(structure).cast(), size_of::<T>()) };
        distortion::bytes(name, bytes);
    }
}

/// The second argument of a callback, as the consumer sees it.
pub(super) fn distorted_status(name: &str, status: NTSTATUS) -> NTSTATUS {
    if !distortion::is_watched() {
        return status;
    }
    distortion::words(name, &[0, u64::from(status.cast_unsigned())])[1] as NTSTATUS
}
