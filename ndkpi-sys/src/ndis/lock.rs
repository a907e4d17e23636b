//! Locks and events of NDIS, as storage: their contents belong to NDIS, and they stay where they are while in use.

use crate::abi::{layout, opaque, zeroed};
use crate::nt::{KEVENT, KIRQL, KSPIN_LOCK, UCHAR};

/// Spin lock with the IRQL that its holder came from. The NDIS functions on it are macros over `KeAcquireSpinLock`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_SPIN_LOCK {
    pub SpinLock: KSPIN_LOCK,
    pub OldIrql: KIRQL,
}
layout!(NDIS_SPIN_LOCK, size 16, align 8, { SpinLock: 0, OldIrql: 8 });

opaque! {
    /// A read/write lock, made by `NdisAllocateRWLock`.
    pub struct NDIS_RW_LOCK_EX;
}

/// Where one acquisition of a read/write lock keeps its state.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LOCK_STATE_EX {
    pub OldIrql: KIRQL,
    pub LockState: UCHAR,
    pub Flags: UCHAR,
}
layout!(LOCK_STATE_EX, size 3, align 1, { OldIrql: 0, LockState: 1, Flags: 2 });

/// Flag of the acquire functions: the caller is at DISPATCH_LEVEL.
pub const NDIS_RWL_AT_DISPATCH_LEVEL: UCHAR = 1;

/// An event; wait for it at PASSIVE_LEVEL only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_EVENT {
    pub Event: KEVENT,
}
layout!(NDIS_EVENT, size 24, align 8, { Event: 0 });

zeroed!(NDIS_SPIN_LOCK, LOCK_STATE_EX, NDIS_EVENT);
