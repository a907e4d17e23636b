//! Numbers of both versions.

/// ND_VERSION_1, which version 1's `Query` asks for.
pub const VERSION_1: u32 = 1;
/// ND_VERSION_2, the `InfoVersion` of version 2.
pub const VERSION_2: u32 = 0x2_0000;

pub mod adapter_flag {
    pub const IN_ORDER_DMA_SUPPORTED: u32 = 0x1;
    pub const CQ_INTERRUPT_MODERATION_SUPPORTED: u32 = 0x4;
    pub const MULTI_ENGINE_SUPPORTED: u32 = 0x8;
    pub const CQ_RESIZE_SUPPORTED: u32 = 0x100;
    pub const LOOPBACK_CONNECTIONS_SUPPORTED: u32 = 0x1_0000;
}

pub mod notify {
    /// The failure of the completion queue only.
    pub const ERRORS: u32 = 0;
    pub const ANY: u32 = 1;
    pub const SOLICITED: u32 = 2;
}

pub mod region_flag {
    pub const ALLOW_LOCAL_WRITE: u32 = 0x1;
    pub const ALLOW_REMOTE_READ: u32 = 0x2;
    /// Contains local write.
    pub const ALLOW_REMOTE_WRITE: u32 = 0x5;
    pub const RDMA_READ_SINK: u32 = 0x8;
    pub const DO_NOT_SECURE_VM: u32 = 0x8000_0000;
}

pub mod operation_flag {
    pub const SILENT_SUCCESS: u32 = 0x1;
    pub const READ_FENCE: u32 = 0x2;
    pub const SEND_AND_SOLICIT_EVENT: u32 = 0x4;
    pub const ALLOW_READ: u32 = 0x8;
    pub const ALLOW_WRITE: u32 = 0x10;
    /// Version 2 only.
    pub const INLINE: u32 = 0x20;
}

pub mod request_type {
    pub const RECEIVE: u32 = 0;
    pub const SEND: u32 = 1;
    pub const BIND: u32 = 2;
    pub const INVALIDATE: u32 = 3;
    pub const READ: u32 = 4;
    pub const WRITE: u32 = 5;
}

/// ND2_MANA_REQUEST_TYPE, of the public `mana_ndspi.h`.
pub mod mana_request_type {
    pub const SEND: u32 = 0;
    pub const BIND: u32 = 1;
    pub const INVALIDATE: u32 = 2;
    pub const READ: u32 = 3;
    pub const WRITE: u32 = 4;
    pub const RECEIVE: u32 = 0x80;
    pub const RECEIVE_WITH_INVALIDATE: u32 = 0x81;
    pub const RECEIVE_WITH_IMMEDIATE: u32 = 0x82;
    /// A Write with immediate data took the receive.
    pub const RECEIVE_RDMA_WITH_IMMEDIATE: u32 = 0x83;
}

/// AF_INET and AF_INET6.
pub const FAMILY_IPV4: u16 = 2;
pub const FAMILY_IPV6: u16 = 23;
/// Bytes of a sockaddr of each.
pub const IPV4_ADDRESS_LENGTH: usize = 16;
pub const IPV6_ADDRESS_LENGTH: usize = 28;
