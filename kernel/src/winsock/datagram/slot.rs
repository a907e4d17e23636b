//! What calls under way use: each slot has the memory of one datagram, its address, and what else a call writes.

use core::{cell::UnsafeCell, ptr};

use ndkpi_sys::{
    nt::{SOCKADDR_INET, ULONG},
    wsk::WSK_BUF,
};

use super::DatagramSlots;
use crate::{
    pool::{NoMemory, PoolArray, Tag},
    winsock::memory::Memory,
};

/// Of one receive or send.
pub(super) struct DatagramSlot {
    pub memory: Memory,
    pub buffer: UnsafeCell<WSK_BUF>,
    /// The sender of what came, or where it is to go.
    pub address: UnsafeCell<SOCKADDR_INET>,
    /// `MSG_…` of what came.
    pub flags: UnsafeCell<ULONG>,
}

impl DatagramSlot {
    fn try_new(tag: Tag, bytes: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            memory: Memory::try_new(tag, bytes)?,
            buffer: UnsafeCell::new(WSK_BUF { Mdl: ptr::null_mut(), Offset: 0, Length: 0 }),
            address: UnsafeCell::new(SOCKADDR_INET::zeroed()),
            flags: UnsafeCell::new(0),
        })
    }
}

/// The part of a datagram socket that stays until its last completion.
pub(super) struct DatagramBody {
    /// Of the bind.
    pub address: UnsafeCell<SOCKADDR_INET>,
    pub receives: PoolArray<DatagramSlot>,
    pub sends: PoolArray<DatagramSlot>,
}

// SAFETY: each cell, and the memory of each slot, belongs to the owner of the socket while the request that it is for is idle, and to
// Winsock Kernel otherwise.
unsafe impl Send for DatagramBody {}
// SAFETY: as above.
unsafe impl Sync for DatagramBody {}

impl DatagramBody {
    pub fn try_new(tag: Tag, slots: DatagramSlots) -> Result<Self, NoMemory> {
        let slot = |_| DatagramSlot::try_new(tag, slots.bytes);
        Ok(Self {
            address: UnsafeCell::new(SOCKADDR_INET::zeroed()),
            receives: PoolArray::try_from_fn(tag, slots.receives, slot)?,
            sends: PoolArray::try_from_fn(tag, slots.sends, slot)?,
        })
    }
}
