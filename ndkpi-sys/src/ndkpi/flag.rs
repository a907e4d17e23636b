//! Flags of work requests and of memory registration, and the completion queue arm types.
//!
//! Two members have two bits, because remote write includes local write. Testing them with `intersects` is a bug: local
//! write alone intersects them. The values differ from user-mode NDSPI.

use crate::abi::flags;
use crate::nt::ULONG;

flags! {
    /// Flags of a work request.
    pub struct NDK_OP_FLAGS: ULONG {
        /// No completion queue entry on success. Failure and flush still give one. All initiator requests.
        SILENT_SUCCESS / NDK_OP_FLAG_SILENT_SUCCESS = 0x0000_0001;
        /// Starts only when all earlier Reads of the queue pair have completed. All initiator requests.
        READ_FENCE / NDK_OP_FLAG_READ_FENCE = 0x0000_0002;
        /// The receiver's completion is a solicited event. Send, SendAndInvalidate.
        SEND_AND_SOLICIT_EVENT / NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT = 0x0000_0004;
        /// Grants remote read. Bind, FastRegister.
        ALLOW_REMOTE_READ / NDK_OP_FLAG_ALLOW_REMOTE_READ = 0x0000_0008;
        /// Grants local write. FastRegister.
        ALLOW_LOCAL_WRITE / NDK_OP_FLAG_ALLOW_LOCAL_WRITE = 0x0000_0010;
        /// Grants remote write, which includes local write: two bits. Bind, FastRegister.
        ALLOW_REMOTE_WRITE / NDK_OP_FLAG_ALLOW_REMOTE_WRITE = 0x0000_0030;
        /// The data is taken from the virtual addresses of the elements before the call returns; tokens are ignored.
        /// Send, SendAndInvalidate, Write.
        INLINE / NDK_OP_FLAG_INLINE = 0x0000_0040;
        /// The region may be the sink of a Read. FastRegister.
        RDMA_READ_SINK / NDK_OP_FLAG_RDMA_READ_SINK = 0x0000_0080;
        /// Invalidates the token of the first element when the Read succeeds. Read, NDKPI 1.2.
        RDMA_READ_LOCAL_INVALIDATE / NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE = 0x0000_0100;
        /// The provider may hold the request back until one without this flag follows. All initiator requests,
        /// NDKPI 1.2.
        DEFER / NDK_OP_FLAG_DEFER = 0x0000_0200;
    }
}

/// The bit of [`NDK_OP_FLAGS::ALLOW_REMOTE_WRITE`] beside local write. The header has no name for it.
pub const NDK_OP_FLAG_REMOTE_WRITE_BIT: ULONG = 0x0000_0020;

flags! {
    /// Flags of `NdkRegisterMr`.
    pub struct NDK_MR_FLAGS: ULONG {
        /// Always granted: no bits.
        ALLOW_LOCAL_READ / NDK_MR_FLAG_ALLOW_LOCAL_READ = 0x0000_0000;
        ALLOW_LOCAL_WRITE / NDK_MR_FLAG_ALLOW_LOCAL_WRITE = 0x0000_0001;
        ALLOW_REMOTE_READ / NDK_MR_FLAG_ALLOW_REMOTE_READ = 0x0000_0002;
        /// Includes local write: two bits.
        ALLOW_REMOTE_WRITE / NDK_MR_FLAG_ALLOW_REMOTE_WRITE = 0x0000_0005;
        /// The region may be the sink of a Read.
        RDMA_READ_SINK / NDK_MR_FLAG_RDMA_READ_SINK = 0x0000_0008;
    }
}

/// The bit of [`NDK_MR_FLAGS::ALLOW_REMOTE_WRITE`] beside local write. The header has no name for it.
pub const NDK_MR_FLAG_REMOTE_WRITE_BIT: ULONG = 0x0000_0004;

/// Arm type of `NdkArmCq`: notify when the completion queue fails. Values are not bits.
pub const NDK_CQ_NOTIFY_ERRORS: ULONG = 0;
/// Arm type of `NdkArmCq`: notify on the next completion.
pub const NDK_CQ_NOTIFY_ANY: ULONG = 1;
/// Arm type of `NdkArmCq`: notify on the next solicited receive or failed request.
pub const NDK_CQ_NOTIFY_SOLICITED: ULONG = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Local write alone shares a bit with remote write; only `contains` distinguishes them.
    #[test]
    fn local_write_is_not_remote_write_for_requests() {
        let local = NDK_OP_FLAG_ALLOW_LOCAL_WRITE;
        assert!(local.intersects(NDK_OP_FLAG_ALLOW_REMOTE_WRITE));
        assert!(!local.contains(NDK_OP_FLAG_ALLOW_REMOTE_WRITE));

        let remote = NDK_OP_FLAGS::from_bits_retain(0x30);
        assert!(remote.contains(NDK_OP_FLAG_ALLOW_REMOTE_WRITE));
        assert!(remote.contains(NDK_OP_FLAG_ALLOW_LOCAL_WRITE));
        assert_eq!(remote - local, NDK_OP_FLAGS::from_bits_retain(NDK_OP_FLAG_REMOTE_WRITE_BIT));
    }

    #[test]
    fn the_lone_remote_write_bit_is_not_the_remote_write_right() {
        let bit = NDK_OP_FLAGS::from_bits_retain(NDK_OP_FLAG_REMOTE_WRITE_BIT);
        assert!(!bit.contains(NDK_OP_FLAG_ALLOW_REMOTE_WRITE));
        let bit = NDK_MR_FLAGS::from_bits_retain(NDK_MR_FLAG_REMOTE_WRITE_BIT);
        assert!(!bit.contains(NDK_MR_FLAG_ALLOW_REMOTE_WRITE));
    }

    #[test]
    fn local_write_is_not_remote_write_for_regions() {
        let local = NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
        assert!(local.intersects(NDK_MR_FLAG_ALLOW_REMOTE_WRITE));
        assert!(!local.contains(NDK_MR_FLAG_ALLOW_REMOTE_WRITE));

        let remote = NDK_MR_FLAGS::from_bits_retain(0x5);
        assert!(remote.contains(NDK_MR_FLAG_ALLOW_REMOTE_WRITE));
        assert!(remote.contains(NDK_MR_FLAG_ALLOW_LOCAL_WRITE));
        assert!(!remote.contains(NDK_MR_FLAG_ALLOW_REMOTE_READ));
    }

    /// A bitmask, not a choice: read + write + sink together is a legal request.
    #[test]
    fn region_rights_combine() {
        let all = NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE | NDK_MR_FLAG_RDMA_READ_SINK;
        assert_eq!(all.bits(), 0xF);
        assert!(all.contains(NDK_MR_FLAG_ALLOW_LOCAL_READ));
    }

    #[test]
    fn local_invalidate_and_defer_are_two_bits() {
        assert_eq!(NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE.bits(), 0x100);
        assert_eq!(NDK_OP_FLAG_DEFER.bits(), 0x200);
    }

    #[test]
    fn unknown_bits_survive() {
        let flags = NDK_OP_FLAGS::from_bits_retain(0x8000_0000) | NDK_OP_FLAG_INLINE;
        assert_eq!(flags.bits(), 0x8000_0040);
        assert_eq!(NDK_OP_FLAGS::from_bits_truncate(0x8000_0040), flags);
        assert_eq!((flags - NDK_OP_FLAG_INLINE).bits(), 0x8000_0000);
        assert_eq!(NDK_MR_FLAGS::from_bits(0xFFFF_FFF0).map(|flags| flags.bits()), Some(0xFFFF_FFF0));
    }
}
