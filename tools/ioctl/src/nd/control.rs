//! The codes and structures of `ndioctl.h`, version 1. All are METHOD_BUFFERED and ask for no access right: the device's
//! security descriptor decides who opens it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The code of an operation (0 to 63) on a resource.
const fn code(resource: u32, operation: u32) -> u32 {
    0x0012_0000 | (resource << 8) | (operation << 2)
}

macro_rules! codes {
    ($($name:ident = $resource:literal, $operation:literal;)*) => {
        $(pub const $name: u32 = code($resource, $operation);)*
    };
}

codes! {
    PROVIDER_INIT = 0, 0;
    PROVIDER_BIND_FILE = 0, 1;
    PROVIDER_QUERY_ADDRESS_LIST = 0, 2;
    PROVIDER_RESOLVE_ADDRESS = 0, 3;
    ADAPTER_OPEN = 1, 0;
    ADAPTER_CLOSE = 1, 1;
    ADAPTER_QUERY = 1, 2;
    ADAPTER_QUERY_ADDRESS_LIST = 1, 3;
    PD_CREATE = 2, 0;
    PD_FREE = 2, 1;
    CQ_CREATE = 3, 0;
    CQ_FREE = 3, 1;
    CQ_CANCEL_IO = 3, 2;
    CQ_GET_AFFINITY = 3, 3;
    CQ_MODIFY = 3, 4;
    CQ_NOTIFY = 3, 5;
    MR_CREATE = 4, 0;
    MR_FREE = 4, 1;
    MR_CANCEL_IO = 4, 2;
    MR_REGISTER = 4, 3;
    MR_DEREGISTER = 4, 4;
    MW_CREATE = 5, 0;
    MW_FREE = 5, 1;
    SRQ_CREATE = 6, 0;
    SRQ_FREE = 6, 1;
    SRQ_CANCEL_IO = 6, 2;
    SRQ_GET_AFFINITY = 6, 3;
    SRQ_MODIFY = 6, 4;
    SRQ_NOTIFY = 6, 5;
    CONNECTOR_CREATE = 7, 0;
    CONNECTOR_FREE = 7, 1;
    CONNECTOR_CANCEL_IO = 7, 2;
    CONNECTOR_BIND = 7, 3;
    CONNECTOR_CONNECT = 7, 4;
    CONNECTOR_COMPLETE_CONNECT = 7, 5;
    CONNECTOR_ACCEPT = 7, 6;
    CONNECTOR_REJECT = 7, 7;
    CONNECTOR_GET_READ_LIMITS = 7, 8;
    CONNECTOR_GET_PRIVATE_DATA = 7, 9;
    CONNECTOR_GET_PEER_ADDRESS = 7, 10;
    CONNECTOR_GET_ADDRESS = 7, 11;
    CONNECTOR_NOTIFY_DISCONNECT = 7, 12;
    CONNECTOR_DISCONNECT = 7, 13;
    LISTENER_CREATE = 8, 0;
    LISTENER_FREE = 8, 1;
    LISTENER_CANCEL_IO = 8, 2;
    LISTENER_BIND = 8, 3;
    LISTENER_LISTEN = 8, 4;
    LISTENER_GET_ADDRESS = 8, 5;
    LISTENER_GET_CONNECTION_REQUEST = 8, 6;
    QP_CREATE = 9, 0;
    QP_CREATE_WITH_SRQ = 9, 1;
    QP_FREE = 9, 2;
    QP_FLUSH = 9, 3;
}

macro_rules! structures {
    ($($(#[$about:meta])* $name:ident ($size:literal) { $($(#[$field_about:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub struct $name {
                $($(#[$field_about])* pub $field: $type,)*
            }

            const _: () = assert!(size_of::<$name>() == $size);
        )*
    };
}
pub(super) use structures;

structures! {
    /// SOCKADDR_INET: family (2 or 23), port and address in network order, as Windows lays them out.
    SocketAddress (28) {
        family: u16,
        port: [u8; 2],
        /// IPv4: the address in the first four bytes. IPv6: flow information first.
        rest: [u8; 24],
    }

    /// ND_HANDLE: what most operations take.
    Handle (16) {
        version: u32,
        reserved: u32,
        handle: u64,
    }

    /// ND_RESOURCE_DESCRIPTOR: the answer to the creation of a queue.
    ResourceDescriptor (16) {
        handle: u64,
        /// Always 0: there are no mappings.
        mapping_count: u32,
        mappings_offset: u32,
    }

    /// ND_RESOLVE_ADDRESS.
    ResolveAddress (36) {
        version: u32,
        reserved: u32,
        address: SocketAddress,
    }

    /// ND_OPEN_ADAPTER.
    OpenAdapter (24) {
        version: u32,
        reserved: u32,
        mapping_count: u32,
        mappings_offset: u32,
        adapter_id: u64,
    }

    /// ND_ADAPTER_QUERY. The answer is an [`AdapterInfo`].
    AdapterQuery (16) {
        version: u32,
        info_version: u32,
        adapter: u64,
    }

    /// ND2_ADAPTER_INFO.
    AdapterInfo (96) {
        info_version: u32,
        vendor_id: u16,
        device_id: u16,
        adapter_id: u64,
        max_registration_size: u64,
        max_window_size: u64,
        max_initiator_sge: u32,
        max_receive_sge: u32,
        max_read_sge: u32,
        max_transfer_length: u32,
        max_inline_data_size: u32,
        max_inbound_read_limit: u32,
        max_outbound_read_limit: u32,
        max_receive_queue_depth: u32,
        max_initiator_queue_depth: u32,
        max_shared_receive_queue_depth: u32,
        max_completion_queue_depth: u32,
        inline_request_threshold: u32,
        large_request_threshold: u32,
        max_caller_data: u32,
        max_callee_data: u32,
        adapter_flags: u32,
    }

    /// GROUP_AFFINITY.
    GroupAffinity (16) {
        mask: u64,
        group: u16,
        reserved: [u16; 3],
    }

    /// ND_CREATE_CQ. The answer is a [`ResourceDescriptor`].
    CreateCompletionQueue (40) {
        version: u32,
        queue_depth: u32,
        mapping_count: u32,
        mappings_offset: u32,
        adapter: u64,
        affinity: GroupAffinity,
    }

    /// ND_CREATE_SRQ. The answer is a [`ResourceDescriptor`].
    CreateSharedReceiveQueue (48) {
        version: u32,
        queue_depth: u32,
        mapping_count: u32,
        mappings_offset: u32,
        max_request_sge: u32,
        notify_threshold: u32,
        domain: u64,
        affinity: GroupAffinity,
    }

    /// ND_CREATE_QP and, with `shared_receive_queue` in the place of the last two fields, ND_CREATE_QP_WITH_SRQ. The answer is a
    /// [`ResourceDescriptor`].
    CreateQueuePair (56) {
        version: u32,
        max_inline_data: u32,
        mapping_count: u32,
        mappings_offset: u32,
        initiator_queue_depth: u32,
        max_initiator_request_sge: u32,
        receive_queue: u64,
        initiator_queue: u64,
        domain: u64,
        /// QP_CREATE: the depth in the lower half, the most SGEs of a receive in the upper; QP_CREATE_WITH_SRQ: the handle of
        /// the shared receive queue.
        receive: u64,
    }

    /// ND_SRQ_MODIFY; 0 leaves an item as it is.
    ModifySharedReceiveQueue (32) {
        version: u32,
        queue_depth: u32,
        mapping_count: u32,
        mappings_offset: u32,
        notify_threshold: u32,
        reserved: u32,
        handle: u64,
    }

    /// ND_CQ_MODIFY.
    ModifyCompletionQueue (24) {
        version: u32,
        queue_depth: u32,
        mapping_count: u32,
        mappings_offset: u32,
        handle: u64,
    }

    /// ND_CQ_NOTIFY: type 0 errors, 1 any, 2 solicited.
    Notify (16) {
        version: u32,
        kind: u32,
        handle: u64,
    }

    /// ND_MR_REGISTER: gives a region the memory that [`private::LOCK_FOR_WRITING`](super::private::LOCK_FOR_WRITING) or its
    /// twin has brought. The answer is a [`RegisterReply`].
    Register (40) {
        version: u32,
        flags: u32,
        length: u64,
        /// The address by which peers name the first byte; equal to `address`.
        target_address: u64,
        handle: u64,
        address: u64,
    }

    /// The tokens of a registration.
    RegisterReply (8) {
        local_token: u32,
        remote_token: u32,
    }

    /// ND_BIND, for connectors and listeners.
    Bind (48) {
        version: u32,
        reserved: u32,
        handle: u64,
        address: SocketAddress,
        padding: u32,
    }

    /// ND_READ_LIMITS.
    ReadLimits (8) {
        inbound: u32,
        outbound: u32,
    }

    /// ND_CONNECT; the private data stands behind it, where the offset says.
    Connect (104) {
        version: u32,
        reserved: u32,
        read_limits: ReadLimits,
        private_data_length: u32,
        private_data_offset: u32,
        connector: u64,
        queue_pair: u64,
        destination: SocketAddress,
        /// IF_PHYSICAL_ADDRESS and padding: not used.
        hardware_address: [[u8; 12]; 3],
    }

    /// ND_ACCEPT.
    Accept (40) {
        version: u32,
        reserved: u32,
        read_limits: ReadLimits,
        private_data_length: u32,
        private_data_offset: u32,
        connector: u64,
        queue_pair: u64,
    }

    /// ND_REJECT.
    Reject (24) {
        version: u32,
        reserved: u32,
        private_data_length: u32,
        private_data_offset: u32,
        connector: u64,
    }

    /// ND_LISTEN; a backlog of 0 is none.
    Listen (16) {
        version: u32,
        backlog: u32,
        listener: u64,
    }

    /// ND_GET_CONNECTION_REQUEST.
    GetConnectionRequest (24) {
        version: u32,
        reserved: u32,
        listener: u64,
        connector: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn codes_are_those_of_the_header() {
        let some = [
            (PROVIDER_RESOLVE_ADDRESS, 0x12_000C),
            (ADAPTER_QUERY, 0x12_0108),
            (CQ_NOTIFY, 0x12_0314),
            (MR_DEREGISTER, 0x12_0410),
            (SRQ_MODIFY, 0x12_0610),
            (CONNECTOR_DISCONNECT, 0x12_0734),
            (LISTENER_GET_CONNECTION_REQUEST, 0x12_0818),
            (QP_FLUSH, 0x12_090C),
        ];
        for (code, expected) in some {
            assert_eq!(code, expected);
        }
    }

    #[test]
    fn fields_stand_where_the_header_has_them() {
        assert_eq!(offset_of!(Connect, destination), 40);
        assert_eq!(offset_of!(Connect, hardware_address), 68);
        assert_eq!(offset_of!(Accept, queue_pair), 32);
        assert_eq!(offset_of!(CreateQueuePair, receive), 48);
        assert_eq!(offset_of!(CreateSharedReceiveQueue, affinity), 32);
        assert_eq!(offset_of!(Register, handle), 24);
        assert_eq!(offset_of!(AdapterInfo, max_initiator_sge), 32);
        assert_eq!(offset_of!(AdapterInfo, adapter_flags), 92);
        assert_eq!(offset_of!(Bind, address), 16);
    }
}
