//! Memory descriptor lists: the structure and the `wdm.h` inlines that read it. Building, mapping and freeing MDLs are
//! kernel functions and not declared here.

use super::{CSHORT, EPROCESS, PAGE_SHIFT, PAGE_SIZE, PFN_NUMBER, PVOID, SIZE_T, ULONG};
use crate::abi::{flags, layout, zeroed};

flags! {
    /// `MDL.MdlFlags`.
    pub struct MDL_FLAGS: CSHORT {
        MAPPED_TO_SYSTEM_VA / MDL_MAPPED_TO_SYSTEM_VA = 0x0001;
        PAGES_LOCKED / MDL_PAGES_LOCKED = 0x0002;
        SOURCE_IS_NONPAGED_POOL / MDL_SOURCE_IS_NONPAGED_POOL = 0x0004;
        ALLOCATED_FIXED_SIZE / MDL_ALLOCATED_FIXED_SIZE = 0x0008;
        PARTIAL / MDL_PARTIAL = 0x0010;
        PARTIAL_HAS_BEEN_MAPPED / MDL_PARTIAL_HAS_BEEN_MAPPED = 0x0020;
        IO_PAGE_READ / MDL_IO_PAGE_READ = 0x0040;
        WRITE_OPERATION / MDL_WRITE_OPERATION = 0x0080;
        LOCKED_PAGE_TABLES / MDL_LOCKED_PAGE_TABLES = 0x0100;
        FREE_EXTRA_PTES / MDL_FREE_EXTRA_PTES = 0x0200;
        DESCRIBES_AWE / MDL_DESCRIBES_AWE = 0x0400;
        IO_SPACE / MDL_IO_SPACE = 0x0800;
        NETWORK_HEADER / MDL_NETWORK_HEADER = 0x1000;
        MAPPING_CAN_FAIL / MDL_MAPPING_CAN_FAIL = 0x2000;
        PAGE_CONTENTS_INVARIANT / MDL_PAGE_CONTENTS_INVARIANT = 0x4000;
        INTERNAL / MDL_INTERNAL = 0x8000_u16.cast_signed();
    }
}

/// Describes a buffer by the physical pages it lies on. The page frame numbers follow the structure.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MDL {
    pub Next: *mut MDL,
    /// Bytes of this structure and its page frame numbers.
    pub Size: CSHORT,
    pub MdlFlags: MDL_FLAGS,
    pub Process: *mut EPROCESS,
    /// Valid only with `MAPPED_TO_SYSTEM_VA` or `SOURCE_IS_NONPAGED_POOL`.
    pub MappedSystemVa: PVOID,
    /// Page-aligned address of the buffer in its own address space: an index, not something to follow.
    pub StartVa: PVOID,
    pub ByteCount: ULONG,
    pub ByteOffset: ULONG,
}
layout!(MDL, size 48, align 8, {
    Next: 0, Size: 8, MdlFlags: 10, Process: 16, MappedSystemVa: 24, StartVa: 32, ByteCount: 40, ByteOffset: 44,
});
zeroed!(MDL);

pub type PMDL = *mut MDL;

/// Bytes that the MDL describes.
///
/// # Safety
/// `Mdl` points to a live MDL.
#[inline]
#[must_use]
pub const unsafe fn MmGetMdlByteCount(Mdl: *const MDL) -> ULONG {
    // SAFETY: the caller guarantees a live MDL.
    unsafe { (*Mdl).ByteCount }
}

/// Offset of the buffer in its first page.
///
/// # Safety
/// `Mdl` points to a live MDL.
#[inline]
#[must_use]
pub const unsafe fn MmGetMdlByteOffset(Mdl: *const MDL) -> ULONG {
    // SAFETY: the caller guarantees a live MDL.
    unsafe { (*Mdl).ByteOffset }
}

/// Virtual address of the buffer in the address space it was described in. It may be a user address or stale: an index
/// to compare with, never to dereference.
///
/// # Safety
/// `Mdl` points to a live MDL.
#[inline]
#[must_use]
pub const unsafe fn MmGetMdlVirtualAddress(Mdl: *const MDL) -> PVOID {
    // SAFETY: the caller guarantees a live MDL.
    let mdl = unsafe { &*Mdl };
    mdl.StartVa.wrapping_byte_add(mdl.ByteOffset as usize)
}

/// The page frame numbers behind the structure; [`ADDRESS_AND_SIZE_TO_SPAN_PAGES`] says how many.
///
/// # Safety
/// `Mdl` points to a live MDL together with its array.
#[inline]
#[must_use]
pub const unsafe fn MmGetMdlPfnArray(Mdl: *mut MDL) -> *mut PFN_NUMBER {
    // SAFETY: the caller guarantees that the array follows the structure in the same allocation.
    unsafe { Mdl.add(1) }.cast()
}

/// The next MDL of the chain (`NdisGetNextMdl`, `Mdl->Next`).
///
/// # Safety
/// `Mdl` points to a live MDL.
#[inline]
#[must_use]
pub const unsafe fn NdisGetNextMdl(Mdl: *const MDL) -> *mut MDL {
    // SAFETY: the caller guarantees a live MDL.
    unsafe { (*Mdl).Next }
}

/// Offset of an address in its page.
#[inline]
#[must_use]
pub fn BYTE_OFFSET(Va: PVOID) -> usize {
    Va.addr() & (PAGE_SIZE - 1)
}

/// Number of pages that `Size` bytes at `Va` touch. Wraps for sizes near the whole address space, as the C macro does.
#[inline]
#[must_use]
pub fn ADDRESS_AND_SIZE_TO_SPAN_PAGES(Va: PVOID, Size: SIZE_T) -> usize {
    BYTE_OFFSET(Va).wrapping_add(Size).wrapping_add(PAGE_SIZE - 1) >> PAGE_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(value: usize) -> PVOID {
        core::ptr::without_provenance_mut(value)
    }

    #[test]
    fn a_buffer_spans_the_pages_that_it_touches() {
        let pages = |start, size| ADDRESS_AND_SIZE_TO_SPAN_PAGES(address(start), size);
        assert_eq!(pages(0x1000, 0), 0);
        assert_eq!(pages(0x1000, 1), 1);
        assert_eq!(pages(0x1000, 4096), 1);
        assert_eq!(pages(0x1000, 4097), 2);
        assert_eq!(pages(0x1FFF, 1), 1);
        assert_eq!(pages(0x1FFF, 2), 2);
        assert_eq!(pages(0x1FFF, 4098), 3);
    }

    #[test]
    fn the_virtual_address_is_page_and_offset_and_the_frames_follow_the_structure() {
        #[repr(C)]
        struct Described {
            mdl: MDL,
            frames: [PFN_NUMBER; 2],
        }
        let mut described = Described { mdl: MDL::zeroed(), frames: [7, 8] };
        described.mdl.StartVa = address(0x7FFF_0000);
        described.mdl.ByteOffset = 0x123;
        described.mdl.ByteCount = 0x1000;
        let mdl = (&raw mut described).cast::<MDL>();
        // SAFETY: the MDL lives until the end of the test.
        assert_eq!(unsafe { MmGetMdlVirtualAddress(mdl) }, address(0x7FFF_0123));
        // SAFETY: as above.
        assert_eq!(unsafe { MmGetMdlByteOffset(mdl) }, 0x123);
        // SAFETY: as above.
        assert_eq!(unsafe { MmGetMdlByteCount(mdl) }, 0x1000);
        // SAFETY: as above.
        assert!(unsafe { NdisGetNextMdl(mdl) }.is_null());
        // SAFETY: the array follows the structure in the same allocation.
        let frames = unsafe { MmGetMdlPfnArray(mdl) };
        // SAFETY: as above.
        assert_eq!(unsafe { frames.wrapping_add(1).read() }, 8);
    }
}
