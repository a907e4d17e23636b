//! String routines of the C library that the kernel exports. They run on the image's own stack.

use crate::exports;

exports! {
    module "ntoskrnl.exe";

    /// Source: C: strlen
    [ANY; direct] fn strlen(text: *const u8) -> usize {
        // SAFETY: the image's string.
        unsafe { length(text) }
    }

    /// Source: C: wcslen
    [ANY; direct] fn wcslen(text: *const u16) -> usize {
        // SAFETY: the image's string.
        unsafe { length(text) }
    }

    /// Source: C: strcmp
    [ANY; direct] fn strcmp(first: *const u8, second: *const u8) -> i32 {
        // SAFETY: the image's strings.
        unsafe { compare(first, second, usize::MAX) }
    }

    /// Source: C: strncmp
    [ANY; direct] fn strncmp(first: *const u8, second: *const u8, count: usize) -> i32 {
        // SAFETY: the image's strings.
        unsafe { compare(first, second, count) }
    }

    /// Source: C: wcscmp
    [ANY; direct] fn wcscmp(first: *const u16, second: *const u16) -> i32 {
        // SAFETY: the image's strings.
        unsafe { compare(first, second, usize::MAX) }
    }

    /// Source: C: wcsncmp
    [ANY; direct] fn wcsncmp(first: *const u16, second: *const u16, count: usize) -> i32 {
        // SAFETY: the image's strings.
        unsafe { compare(first, second, count) }
    }

    /// Source: C: strchr
    [ANY; direct] fn strchr(text: *const u8, wanted: i32) -> *const u8 {
        // SAFETY: the image's string.
        unsafe { find(text, wanted as u8) }
    }

    /// Source: C: wcschr
    [ANY; direct] fn wcschr(text: *const u16, wanted: u16) -> *const u16 {
        // SAFETY: the image's string.
        unsafe { find(text, wanted) }
    }
}

/// # Safety
///
/// Terminated by 0, as are the strings below up to their counts.
unsafe fn length<T: Copy + Into<u32>>(text: *const T) -> usize {
    let mut length = 0;
    // SAFETY: the caller's contract. A volatile read, so that this does not become a call of itself.
    while unsafe { text.add(length).read_volatile() }.into() != 0 {
        length += 1;
    }
    length
}

unsafe fn compare<T: Copy + Into<u32>>(first: *const T, second: *const T, count: usize) -> i32 {
    for index in 0..count {
        // SAFETY: the caller's contract; nothing is read behind the end of either.
        let (left, right): (u32, u32) = unsafe { (first.add(index).read().into(), second.add(index).read().into()) };
        if left != right {
            return if left < right { -1 } else { 1 };
        }
        if left == 0 {
            break;
        }
    }
    0
}

unsafe fn find<T: Copy + Into<u32>>(text: *const T, wanted: T) -> *const T {
    let wanted: u32 = wanted.into();
    let mut at = text;
    loop {
        // SAFETY: the caller's contract.
        let character: u32 = unsafe { at.read() }.into();
        if character == wanted {
            return at;
        }
        if character == 0 {
            return std::ptr::null();
        }
        at = at.wrapping_add(1);
    }
}
