//! Priorities of `NdisAllocateMemoryWithTagPriority`.

use crate::abi::open_enum;

open_enum! {
    /// How hard the system tries when pool is short.
    pub enum EX_POOL_PRIORITY {
        LowPoolPriority = 0,
        NormalPoolPriority = 16,
        HighPoolPriority = 32,
    }
}
