//! How long a driver stalls, and text that has no end.

use core::ffi::c_void;

use crate::kernel::{_snprintf, KeStallExecutionProcessor};

pub unsafe fn stall_too_long(good: bool) {
    KeStallExecutionProcessor(if good { 50 } else { 51 });
}

/// Four letters and their terminator fit into five bytes and not into four.
pub unsafe fn text_without_end(good: bool) {
    let mut text = [0_u8; 5];
    let capacity = if good { text.len() } else { text.len() - 1 };
    let _: *mut c_void = core::hint::black_box(text.as_mut_ptr().cast());
    _snprintf(text.as_mut_ptr(), capacity, c"four".as_ptr().cast());
}
