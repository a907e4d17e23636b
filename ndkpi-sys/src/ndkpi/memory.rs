//! The memory parameters of work requests: scatter/gather elements and logical address mappings.

use crate::abi::{layout, zeroed};
use crate::nt::{PHYSICAL_ADDRESS, PVOID, UINT32, ULONG};

/// An adapter logical address: opaque, chosen by the provider. Consumers add offsets to it and merge numerically
/// adjacent pages.
pub type NDK_LOGICAL_ADDRESS = PHYSICAL_ADDRESS;

/// Output of `NdkBuildLAM`, in a buffer of the consumer. The page array goes on behind the declared element.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDK_LOGICAL_ADDRESS_MAPPING {
    /// The provider's own word.
    pub AdapterContext: PVOID,
    pub AdapterPageCount: ULONG,
    /// `AdapterPageCount` page-aligned addresses.
    pub AdapterPageArray: [NDK_LOGICAL_ADDRESS; 1],
}
layout!(NDK_LOGICAL_ADDRESS_MAPPING, size 24, align 8, {
    AdapterContext: 0, AdapterPageCount: 8, AdapterPageArray: 16,
});
zeroed!(NDK_LOGICAL_ADDRESS_MAPPING);

impl NDK_LOGICAL_ADDRESS_MAPPING {
    /// Bytes of a mapping of `pages` pages, or `None` if that is no size.
    #[must_use]
    pub const fn size_for(pages: usize) -> Option<usize> {
        match pages.checked_mul(size_of::<NDK_LOGICAL_ADDRESS>()) {
            Some(array) => array.checked_add(core::mem::offset_of!(Self, AdapterPageArray)),
            None => None,
        }
    }
}

/// Where an element begins: a virtual address inside the region that the token names, or, with the privileged token,
/// an adapter logical address.
#[repr(C)]
#[derive(Clone, Copy)]
pub union NDK_SGE_ADDRESS {
    pub VirtualAddress: PVOID,
    pub LogicalAddress: NDK_LOGICAL_ADDRESS,
}
layout!(union NDK_SGE_ADDRESS, size 8, align 8, { VirtualAddress: 0, LogicalAddress: 0 });

impl NDK_SGE_ADDRESS {
    /// The address as a number, whichever member was written. It is a label: except with `NDK_OP_FLAG_INLINE` it must
    /// never be followed.
    #[must_use]
    pub fn value(self) -> u64 {
        // SAFETY: any eight bytes are a valid number.
        let address = unsafe { self.LogicalAddress };
        address.QuadPart.cast_unsigned()
    }
}

impl core::fmt::Debug for NDK_SGE_ADDRESS {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "{:#x}", self.value())
    }
}

/// A scatter/gather element. In C the address is an anonymous union.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDK_SGE {
    pub Address: NDK_SGE_ADDRESS,
    pub Length: ULONG,
    /// The local token of a region or the privileged token; ignored with `NDK_OP_FLAG_INLINE`.
    pub MemoryRegionToken: UINT32,
}
layout!(NDK_SGE, size 16, align 8, { Address: 0, Length: 8, MemoryRegionToken: 12 });
zeroed!(NDK_SGE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapping_size_counts_the_header_once_and_never_wraps() {
        assert_eq!(NDK_LOGICAL_ADDRESS_MAPPING::size_for(0), Some(0x10));
        assert_eq!(NDK_LOGICAL_ADDRESS_MAPPING::size_for(1), Some(size_of::<NDK_LOGICAL_ADDRESS_MAPPING>()));
        assert_eq!(NDK_LOGICAL_ADDRESS_MAPPING::size_for(512), Some(0x10 + 512 * 8));
        assert_eq!(NDK_LOGICAL_ADDRESS_MAPPING::size_for(usize::MAX), None);
        assert_eq!(NDK_LOGICAL_ADDRESS_MAPPING::size_for(usize::MAX / 8), None);
    }

    #[test]
    fn sge_address_reads_back_as_a_number() {
        let address = NDK_SGE_ADDRESS { VirtualAddress: core::ptr::without_provenance_mut(0xFFFF_8000_1234_5678) };
        assert_eq!(address.value(), 0xFFFF_8000_1234_5678);
    }
}
