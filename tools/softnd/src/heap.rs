//! Memory of the process heap, and memory that is shared with the driver. Whatever is short is a status.

use alloc::{boxed::Box, vec::Vec};
use core::{
    alloc::{GlobalAlloc, Layout},
    ptr::{self, NonNull},
};

use softnd_interfaces::Status;

use crate::imports::{
    COMMIT_AND_RESERVE, GetProcessHeap, HeapAlloc, HeapFree, PAGE_READWRITE, RELEASE, VirtualAlloc, VirtualFree,
};

/// The global allocator.
pub struct ProcessHeap;

/// What the heap of a 64-bit process aligns to. Nothing of this crate asks for more; if it did, it would get nothing.
const ALIGNMENT: usize = 16;

// SAFETY: blocks of the process heap are aligned to 16, at least as long as asked for, and stay until they are freed.
unsafe impl GlobalAlloc for ProcessHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > ALIGNMENT {
            return ptr::null_mut();
        }
        // SAFETY: the function has no precondition.
        let heap = unsafe { GetProcessHeap() };
        // SAFETY: the process heap lives as long as the process.
        unsafe { HeapAlloc(heap, 0, layout.size()) }.cast()
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the function has no precondition.
        let heap = unsafe { GetProcessHeap() };
        // SAFETY: the caller's promise: the block comes from `alloc`.
        unsafe { HeapFree(heap, 0, block.cast()) };
    }
}

/// A value on the heap, or NO_MEMORY.
pub fn try_box<T>(value: T) -> Result<Box<T>, Status> {
    let layout = Layout::new::<T>();
    if layout.size() == 0 {
        return Ok(Box::new(value));
    }
    // SAFETY: the layout is not empty.
    let block = unsafe { alloc::alloc::alloc(layout) }.cast::<T>();
    let block = NonNull::new(block).ok_or(Status::NO_MEMORY)?;
    // SAFETY: a new block of the value's layout.
    unsafe { block.write(value) };
    // SAFETY: the block comes from the global allocator with the value's layout, and holds a value.
    Ok(unsafe { Box::from_raw(block.as_ptr()) })
}

/// A list with room for `length` values, or NO_MEMORY. It grows by [`put`] only, which does not allocate.
pub fn try_list<T>(length: usize) -> Result<Vec<T>, Status> {
    let mut list = Vec::new();
    list.try_reserve_exact(length).map_err(|_| Status::NO_MEMORY)?;
    Ok(list)
}

/// Puts a value at the end of a list that has room for it; false, without the value, where it has none.
pub fn put<T>(list: &mut Vec<T>, value: T) -> bool {
    let length = list.len();
    let Some(place) = list.spare_capacity_mut().first_mut() else { return false };
    place.write(value);
    // SAFETY: the place behind the last value has one now.
    unsafe { list.set_len(length.wrapping_add(1)) };
    true
}

/// Puts values at the end of a list that has room for them.
pub fn put_all<T>(list: &mut Vec<T>, values: impl IntoIterator<Item = T>) {
    for value in values {
        let had_room = put(list, value);
        debug_assert!(had_room);
    }
}

/// `length` zeroes, or NO_MEMORY.
pub fn try_zeroes(length: usize) -> Result<Vec<u8>, Status> {
    let mut bytes = try_list(length)?;
    put_all(&mut bytes, core::iter::repeat_n(0, length));
    Ok(bytes)
}

/// Whole pages of zeroes, which the driver can lock.
pub struct Pages {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the pages belong to the value, and it gives out their address only.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    pub fn new(length: usize) -> Result<Self, Status> {
        // SAFETY: new memory at an address of the system's choice.
        let start = unsafe { VirtualAlloc(ptr::null_mut(), length.max(1), COMMIT_AND_RESERVE, PAGE_READWRITE) };
        let start = NonNull::new(start.cast()).ok_or(Status::NO_MEMORY)?;
        Ok(Self { start, length })
    }

    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the memory comes from VirtualAlloc and is given back once.
        unsafe { VirtualFree(self.start.as_ptr().cast(), 0, RELEASE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_hold_what_was_put_in() {
        assert_eq!(*try_box(7_u64).unwrap(), 7);
        drop(try_box(()).unwrap());
        assert_eq!(try_zeroes(3).unwrap(), [0; 3]);
    }

    #[test]
    fn lists_take_no_more_than_they_have_room_for() {
        let mut list = try_list(2).unwrap();
        let room = list.capacity();
        put_all(&mut list, 0..room);
        assert!(!put(&mut list, 9));
        assert_eq!(list, (0..room).collect::<Vec<_>>());
    }

    #[test]
    fn pages_are_zero_and_aligned() {
        let pages = Pages::new(5000).unwrap();
        assert_eq!(pages.start().as_ptr() as usize % 4096, 0);
        // SAFETY: the last byte of the memory.
        assert_eq!(unsafe { pages.start().as_ptr().wrapping_add(4999).read() }, 0);
    }
}
