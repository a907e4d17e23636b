//! NetworkDirect, version 2.

use core::ffi::c_void;

use crate::{
    Guid, Status,
    abi::interfaces,
    structures::{Overlapped, SocketAddressList},
    unknown::UnknownTable,
};

/// ND2_ADAPTER_INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct AdapterInfo {
    pub info_version: u32,
    pub vendor_id: u16,
    pub device_id: u16,
    pub adapter_id: u64,
    pub max_registration_size: usize,
    pub max_window_size: usize,
    pub max_initiator_sge: u32,
    pub max_receive_sge: u32,
    pub max_read_sge: u32,
    pub max_transfer_length: u32,
    pub max_inline_data_size: u32,
    pub max_inbound_read_limit: u32,
    pub max_outbound_read_limit: u32,
    pub max_receive_queue_depth: u32,
    pub max_initiator_queue_depth: u32,
    pub max_shared_receive_queue_depth: u32,
    pub max_completion_queue_depth: u32,
    pub inline_request_threshold: u32,
    pub large_request_threshold: u32,
    pub max_caller_data: u32,
    pub max_callee_data: u32,
    pub adapter_flags: u32,
}

/// ND2_RESULT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RequestResult {
    pub status: Status,
    pub bytes_transferred: u32,
    pub queue_pair_context: *mut c_void,
    pub request_context: *mut c_void,
    pub request_type: u32,
}

/// ND2_MANA_RESULT, of the public `mana_ndspi.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ManaResult {
    pub status: Status,
    pub bytes_transferred: u32,
    pub queue_pair_context: *mut c_void,
    pub request_context: *mut c_void,
    /// Of [`mana_request_type`](crate::constants::mana_request_type).
    pub request_type: u32,
    /// What the message brought, or the token that it has invalidated.
    pub immediate_data_or_token: u32,
}

/// ND2_SGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    pub buffer: *mut c_void,
    pub buffer_length: u32,
    pub memory_region_token: u32,
}

const _: () = {
    assert!(size_of::<AdapterInfo>() == 96);
    assert!(size_of::<RequestResult>() == 32);
    assert!(size_of::<ManaResult>() == 32);
    assert!(core::mem::offset_of!(ManaResult, immediate_data_or_token) == 28);
    assert!(size_of::<Sge>() == 16);
};

interfaces! {
    IND2Overlapped (0xABF72719_B016_4A40_A6F7_622791A7044C): OverlappedTable2 > UnknownTable {
        fn cancel_overlapped_requests() -> Status;
        fn get_overlapped_result(overlapped: *mut Overlapped, wait: i32) -> Status;
    }

    IND2CompletionQueue (0x20CC445E_64A0_4CBB_AA75_F6A7251FDA9E): CompletionQueueTable2 > OverlappedTable2 {
        fn get_notify_affinity(group: *mut u16, affinity: *mut usize) -> Status;
        fn resize(depth: u32) -> Status;
        fn notify(kind: u32, overlapped: *mut Overlapped) -> Status;
        fn get_results(results: *mut RequestResult, count: u32) -> u32;
    }

    /// Of the public `mana_ndspi.h`: results with immediate data.
    IND2ManaCompletionQueue (0x28925856_4FCC_4479_915C_034426A50B9E): ManaCompletionQueueTable > CompletionQueueTable2 {
        fn get_mana_results(results: *mut ManaResult, count: u32) -> u32;
    }

    IND2SharedReceiveQueue (0xAABD67DC_459A_4DB1_826B_56CFCC278883): SharedReceiveQueueTable2 > OverlappedTable2 {
        fn get_notify_affinity(group: *mut u16, affinity: *mut usize) -> Status;
        fn modify(depth: u32, notify_threshold: u32) -> Status;
        fn notify(overlapped: *mut Overlapped) -> Status;
        fn receive(context: *mut c_void, sges: *const Sge, count: u32) -> Status;
    }

    /// Its identifier is version 1's as well.
    IND2MemoryWindow (0x070FE1F5_0AB5_4361_88DB_974BA704D4B9): MemoryWindowTable2 > UnknownTable {
        fn get_remote_token() -> u32;
    }

    IND2MemoryRegion (0x55DFEA2F_BC56_4982_8A45_0301BE46C413): MemoryRegionTable2 > OverlappedTable2 {
        fn register(buffer: *const c_void, length: usize, flags: u32, overlapped: *mut Overlapped) -> Status;
        fn deregister(overlapped: *mut Overlapped) -> Status;
        fn get_local_token() -> u32;
        fn get_remote_token() -> u32;
    }

    IND2QueuePair (0xEEF2F332_B75D_4063_BCE3_3A0BAD2D02CE): QueuePairTable2 > UnknownTable {
        fn flush() -> Status;
        fn send(context: *mut c_void, sges: *const Sge, count: u32, flags: u32) -> Status;
        fn receive(context: *mut c_void, sges: *const Sge, count: u32) -> Status;
        fn bind(
            context: *mut c_void,
            region: *mut c_void,
            window: *mut c_void,
            buffer: *const c_void,
            length: usize,
            flags: u32,
        ) -> Status;
        fn invalidate(context: *mut c_void, window: *mut c_void, flags: u32) -> Status;
        fn read(
            context: *mut c_void,
            sges: *const Sge,
            count: u32,
            remote_address: u64,
            remote_token: u32,
            flags: u32,
        ) -> Status;
        fn write(
            context: *mut c_void,
            sges: *const Sge,
            count: u32,
            remote_address: u64,
            remote_token: u32,
            flags: u32,
        ) -> Status;
    }

    /// Of the public `mana_ndspi.h`: requests with immediate data.
    IND2ManaQueuePair (0x8B1811D5_52DD_4084_8119_15C11AB32FB9): ManaQueuePairTable > QueuePairTable2 {
        fn send_with_immediate(
            context: *mut c_void,
            sges: *const Sge,
            count: u32,
            flags: u32,
            immediate: u32,
        ) -> Status;
        fn write_with_immediate(
            context: *mut c_void,
            sges: *const Sge,
            count: u32,
            remote_address: u64,
            remote_token: u32,
            flags: u32,
            immediate: u32,
        ) -> Status;
    }

    IND2Connector (0x7DD615C4_6B4C_4866_950C_F3B1D25A5302): ConnectorTable2 > OverlappedTable2 {
        fn bind(address: *const c_void, length: u32) -> Status;
        fn connect(
            queue_pair: *mut c_void,
            destination: *const c_void,
            destination_length: u32,
            inbound_read_limit: u32,
            outbound_read_limit: u32,
            private_data: *const c_void,
            private_data_length: u32,
            overlapped: *mut Overlapped,
        ) -> Status;
        fn complete_connect(overlapped: *mut Overlapped) -> Status;
        fn accept(
            queue_pair: *mut c_void,
            inbound_read_limit: u32,
            outbound_read_limit: u32,
            private_data: *const c_void,
            private_data_length: u32,
            overlapped: *mut Overlapped,
        ) -> Status;
        fn reject(private_data: *const c_void, private_data_length: u32) -> Status;
        fn get_read_limits(inbound: *mut u32, outbound: *mut u32) -> Status;
        fn get_private_data(private_data: *mut c_void, length: *mut u32) -> Status;
        fn get_local_address(address: *mut c_void, length: *mut u32) -> Status;
        fn get_peer_address(address: *mut c_void, length: *mut u32) -> Status;
        fn notify_disconnect(overlapped: *mut Overlapped) -> Status;
        fn disconnect(overlapped: *mut Overlapped) -> Status;
    }

    IND2Listener (0x65D23D83_3A57_4E02_86A4_350165C2D130): ListenerTable2 > OverlappedTable2 {
        fn bind(address: *const c_void, length: u32) -> Status;
        fn listen(backlog: u32) -> Status;
        fn get_local_address(address: *mut c_void, length: *mut u32) -> Status;
        fn get_connection_request(connector: *mut c_void, overlapped: *mut Overlapped) -> Status;
    }

    IND2Adapter (0xD89C798C_4823_4D69_846C_DFDCCFF9E5F3): AdapterTable2 > UnknownTable {
        fn create_overlapped_file(file: *mut *mut c_void) -> Status;
        fn query(info: *mut AdapterInfo, length: *mut u32) -> Status;
        fn query_address_list(list: *mut SocketAddressList, length: *mut u32) -> Status;
        fn create_completion_queue(
            iid: *const Guid,
            file: *mut c_void,
            depth: u32,
            group: u16,
            affinity: usize,
            out: *mut *mut c_void,
        ) -> Status;
        fn create_memory_region(iid: *const Guid, file: *mut c_void, out: *mut *mut c_void) -> Status;
        fn create_memory_window(iid: *const Guid, out: *mut *mut c_void) -> Status;
        fn create_shared_receive_queue(
            iid: *const Guid,
            file: *mut c_void,
            depth: u32,
            max_sge: u32,
            notify_threshold: u32,
            group: u16,
            affinity: usize,
            out: *mut *mut c_void,
        ) -> Status;
        fn create_queue_pair(
            iid: *const Guid,
            receive_completion_queue: *mut c_void,
            initiator_completion_queue: *mut c_void,
            context: *mut c_void,
            receive_depth: u32,
            initiator_depth: u32,
            max_receive_sge: u32,
            max_initiator_sge: u32,
            inline_data_size: u32,
            out: *mut *mut c_void,
        ) -> Status;
        fn create_queue_pair_with_srq(
            iid: *const Guid,
            receive_completion_queue: *mut c_void,
            initiator_completion_queue: *mut c_void,
            shared_receive_queue: *mut c_void,
            context: *mut c_void,
            initiator_depth: u32,
            max_initiator_sge: u32,
            inline_data_size: u32,
            out: *mut *mut c_void,
        ) -> Status;
        fn create_connector(iid: *const Guid, file: *mut c_void, out: *mut *mut c_void) -> Status;
        fn create_listener(iid: *const Guid, file: *mut c_void, out: *mut *mut c_void) -> Status;
    }

    IND2Provider (0x49EAE6C1_76C4_46D0_8003_5C2EAA2C9A8E): ProviderTable2 > UnknownTable {
        fn query_address_list(list: *mut SocketAddressList, length: *mut u32) -> Status;
        fn resolve_address(address: *const c_void, length: u32, adapter_id: *mut u64) -> Status;
        fn open_adapter(iid: *const Guid, adapter_id: u64, out: *mut *mut c_void) -> Status;
    }
}
