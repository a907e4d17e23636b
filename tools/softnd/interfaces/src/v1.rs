//! NetworkDirect, version 1.

use core::ffi::c_void;

use crate::{
    Status,
    abi::interfaces,
    structures::{Overlapped, SocketAddressList},
    unknown::UnknownTable,
};

/// ND_ADAPTER_INFO1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct AdapterInfo1 {
    pub vendor_id: u32,
    pub device_id: u32,
    pub max_inbound_sge: usize,
    pub max_inbound_requests: usize,
    pub max_inbound_length: usize,
    pub max_outbound_sge: usize,
    pub max_outbound_requests: usize,
    pub max_outbound_length: usize,
    pub max_inline_data: usize,
    pub max_inbound_read_limit: usize,
    pub max_outbound_read_limit: usize,
    pub max_completion_queue_entries: usize,
    pub max_registration_size: usize,
    pub max_window_size: usize,
    pub large_request_threshold: usize,
    pub max_caller_data: usize,
    pub max_callee_data: usize,
}

/// ND_RESULT: the client's own; its address is what a request is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Result1 {
    pub status: Status,
    pub bytes_transferred: usize,
}

/// ND_SGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sge1 {
    pub address: *mut c_void,
    pub length: usize,
    /// What RegisterMemory gave; null for inline data.
    pub region: *mut c_void,
}

/// ND_MW_DESCRIPTOR: in network byte order, so that it can be sent to the peer as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, packed)]
pub struct WindowDescriptor {
    pub base: u64,
    pub length: u64,
    pub token: u32,
}

const _: () = {
    assert!(size_of::<AdapterInfo1>() == 128);
    assert!(size_of::<Result1>() == 16);
    assert!(size_of::<Sge1>() == 24);
    assert!(size_of::<WindowDescriptor>() == 20);
};

interfaces! {
    INDOverlapped (0xC859E15E_75E2_4FE3_8D6D_0DFF36F02442): OverlappedTable1 > UnknownTable {
        fn cancel_overlapped_requests() -> Status;
        fn get_overlapped_result(overlapped: *mut Overlapped, bytes: *mut usize, wait: i32) -> Status;
    }

    INDCompletionQueue (0x1245A633_2A32_473A_830C_E05D1F869D02): CompletionQueueTable1 > OverlappedTable1 {
        fn resize(entries: usize) -> Status;
        fn notify(kind: u32, overlapped: *mut Overlapped) -> Status;
        fn get_results(results: *mut *mut Result1, count: usize) -> usize;
    }

    /// Its identifier is version 2's as well.
    INDMemoryWindow (0x070FE1F5_0AB5_4361_88DB_974BA704D4B9): MemoryWindowTable1 > UnknownTable {}

    INDEndpoint (0xDBD00EAB_B679_44A9_BD65_E82F3DE12D1A): EndpointTable1 > UnknownTable {
        fn flush() -> Status;
        fn start_request_batch();
        fn submit_request_batch();
        fn send(result: *mut Result1, sges: *const Sge1, count: usize, flags: u32) -> Status;
        fn send_and_invalidate(
            result: *mut Result1,
            sges: *const Sge1,
            count: usize,
            remote_window: *const WindowDescriptor,
            flags: u32,
        ) -> Status;
        fn receive(result: *mut Result1, sges: *const Sge1, count: usize) -> Status;
        fn bind(
            result: *mut Result1,
            region: *mut c_void,
            window: *mut c_void,
            buffer: *const c_void,
            length: usize,
            flags: u32,
            descriptor: *mut WindowDescriptor,
        ) -> Status;
        fn invalidate(result: *mut Result1, window: *mut c_void, flags: u32) -> Status;
        fn read(
            result: *mut Result1,
            sges: *const Sge1,
            count: usize,
            remote_window: *const WindowDescriptor,
            offset: u64,
            flags: u32,
        ) -> Status;
        fn write(
            result: *mut Result1,
            sges: *const Sge1,
            count: usize,
            remote_window: *const WindowDescriptor,
            offset: u64,
            flags: u32,
        ) -> Status;
    }

    INDConnector (0x1BCAF2D1_E274_4AEB_AC57_CD5D4376E0B7): ConnectorTable1 > OverlappedTable1 {
        fn create_endpoint(
            inbound_queue: *mut c_void,
            outbound_queue: *mut c_void,
            inbound_entries: usize,
            outbound_entries: usize,
            inbound_sge: usize,
            outbound_sge: usize,
            inbound_read_limit: usize,
            outbound_read_limit: usize,
            max_inline_data: *mut usize,
            out: *mut *mut c_void,
        ) -> Status;
        fn connect(
            endpoint: *mut c_void,
            address: *const c_void,
            address_length: usize,
            protocol: i32,
            local_port: u16,
            private_data: *const c_void,
            private_data_length: usize,
            overlapped: *mut Overlapped,
        ) -> Status;
        fn complete_connect(overlapped: *mut Overlapped) -> Status;
        fn accept(
            endpoint: *mut c_void,
            private_data: *const c_void,
            private_data_length: usize,
            overlapped: *mut Overlapped,
        ) -> Status;
        fn reject(private_data: *const c_void, private_data_length: usize) -> Status;
        fn get_connection_data(
            inbound_read_limit: *mut usize,
            outbound_read_limit: *mut usize,
            private_data: *mut c_void,
            private_data_length: *mut usize,
        ) -> Status;
        fn get_local_address(address: *mut c_void, length: *mut usize) -> Status;
        fn get_peer_address(address: *mut c_void, length: *mut usize) -> Status;
        fn notify_disconnect(overlapped: *mut Overlapped) -> Status;
        fn disconnect(overlapped: *mut Overlapped) -> Status;
    }

    INDListen (0xBB902588_BA3F_4441_9FE1_3B6795E4E668): ListenTable1 > OverlappedTable1 {
        fn get_connection_request(connector: *mut c_void, overlapped: *mut Overlapped) -> Status;
    }

    INDAdapter (0xA023C5A0_5B73_43BC_8D20_33AA07E9510F): AdapterTable1 > OverlappedTable1 {
        fn get_file_handle() -> *mut c_void;
        fn query(version: u32, info: *mut AdapterInfo1, length: *mut usize) -> Status;
        fn control(
            code: u32,
            input: *const c_void,
            input_length: usize,
            output: *mut c_void,
            output_length: usize,
            returned: *mut usize,
            overlapped: *mut Overlapped,
        ) -> Status;
        fn create_completion_queue(entries: usize, out: *mut *mut c_void) -> Status;
        fn register_memory(
            buffer: *const c_void,
            length: usize,
            overlapped: *mut Overlapped,
            region: *mut *mut c_void,
        ) -> Status;
        fn deregister_memory(region: *mut c_void, overlapped: *mut Overlapped) -> Status;
        fn create_memory_window(invalidate_result: *mut Result1, out: *mut *mut c_void) -> Status;
        fn create_connector(out: *mut *mut c_void) -> Status;
        fn listen(
            backlog: usize,
            protocol: i32,
            port: u16,
            assigned_port: *mut u16,
            out: *mut *mut c_void,
        ) -> Status;
    }

    INDProvider (0x0C5DD316_5FDF_47E6_B2D0_2A6EDA8D39DD): ProviderTable1 > UnknownTable {
        fn query_address_list(list: *mut SocketAddressList, length: *mut usize) -> Status;
        fn open_adapter(address: *const c_void, length: usize, out: *mut *mut c_void) -> Status;
    }
}
