//! The requests of a loop, made before it: which bytes each stride of the region is, as scatter/gather lists that posts point to.

use core::ptr;

use ndkpi_sys::ndkpi::NDK_SGE;
use softndk_ioctl::{MeasureRequest, Status, Stride, segment, stride, stride_count};
use softndk_kernel::pool::PoolSlice;

use crate::{
    session::{
        memory::{MappedPart, Registered},
        object::SgeList,
    },
    tags,
};

/// One stride: what its request carries.
#[derive(Clone, Copy)]
pub struct RequestSlot {
    /// The client's elements, and the server's for the receive.
    sges: *const NDK_SGE,
    receive_sges: *const NDK_SGE,
    count: u32,
    /// Where it is in the server's memory.
    pub remote: u64,
}

impl RequestSlot {
    /// A request without data.
    const EMPTY: Self = Self { sges: ptr::null(), receive_sges: ptr::null(), count: 0, remote: 0 };

    /// The client's elements.
    #[inline]
    pub fn sges(&self) -> SgeList {
        self.list(self.sges)
    }

    /// The server's elements for the receive.
    #[inline]
    pub fn receive_sges(&self) -> SgeList {
        self.list(self.receive_sges)
    }

    #[inline]
    fn list(&self, first: *const NDK_SGE) -> SgeList {
        // SAFETY: list and memory stay until the lane goes, whose end waits for what was posted.
        unsafe { SgeList::from_raw(first, self.count) }
    }
}

/// All strides of a region.
pub struct RequestSlots {
    slots: PoolSlice<RequestSlot>,
    /// What the slots point to.
    client: PoolSlice<NDK_SGE>,
    server: PoolSlice<NDK_SGE>,
}

impl RequestSlots {
    pub fn none() -> Result<Self, Status> {
        Self::of(0, 0)
    }

    /// One request without data.
    pub fn empty_requests() -> Result<Self, Status> {
        Self::of(1, 0)
    }

    fn of(slots: usize, sges: usize) -> Result<Self, Status> {
        let none = |_| Status::INSUFFICIENT_RESOURCES;
        let elements = || PoolSlice::try_filled(tags::SESSION, sges, NDK_SGE::zeroed()).map_err(none);
        Ok(Self {
            slots: PoolSlice::try_filled(tags::SESSION, slots, RequestSlot::EMPTY).map_err(none)?,
            client: elements()?,
            server: elements()?,
        })
    }

    pub fn try_new(
        asked: &MeasureRequest,
        (local, inline, remote): (&Registered, Option<&MappedPart<'_>>, &Registered),
    ) -> Result<Self, Status> {
        let (count, width) = (stride_count(asked.region_length, asked.request_length), asked.sge_count.max(1));
        // `check_fields` bounds the product.
        let mut made = Self::of(count as usize, (count as usize).saturating_mul(width as usize))?;
        let mut lists = made.client.chunks_exact_mut(width as usize).zip(made.server.chunks_exact_mut(width as usize));
        for (number, slot) in made.slots.iter_mut().enumerate() {
            let Some((sending, receiving)) = lists.next() else { break };
            let whole = stride(asked.region_length, asked.request_length, number as u64);
            for (index, (sge, receive)) in sending.iter_mut().zip(receiving.iter_mut()).enumerate() {
                let part = segment(whole.length, width, index as u32).unwrap_or(Stride { offset: 0, length: 0 });
                let offset = whole.offset.saturating_add(part.offset);
                *sge = local.sge(offset, part.length);
                *receive = remote.sge(offset, part.length);
                if let Some(mapped) = inline {
                    sge.Address.VirtualAddress = mapped.address().wrapping_add(offset as usize).cast();
                }
            }
            *slot = RequestSlot {
                sges: sending.as_ptr(),
                receive_sges: receiving.as_ptr(),
                count: width,
                remote: remote.address.wrapping_add(whole.offset),
            };
        }
        Ok(made)
    }

    pub fn as_slice(&self) -> &[RequestSlot] {
        &self.slots
    }
}
