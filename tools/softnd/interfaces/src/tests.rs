//! Slots and offsets against the header's.

extern crate std;

use core::mem::offset_of;
use std::format;

use crate::{
    Status,
    v1::{
        AdapterInfo1, AdapterTable1, CompletionQueueTable1, ConnectorTable1, EndpointTable1, INDMemoryWindow,
        ListenTable1, ProviderTable1,
    },
    v2::{
        AdapterInfo, AdapterTable2, CompletionQueueTable2, ConnectorTable2, IND2Connector, IND2MemoryWindow,
        ListenerTable2, ManaCompletionQueueTable, ManaQueuePairTable, MemoryRegionTable2, MemoryWindowTable2,
        ProviderTable2, QueuePairTable2, RequestResult, SharedReceiveQueueTable2,
    },
};

/// The slot of a function: its offset in pointers.
macro_rules! slot {
    ($Table:ty, $method:ident) => {
        offset_of!($Table, $method) / 8
    };
}

#[test]
fn methods_of_version_2_stand_in_their_slots() {
    assert_eq!(slot!(CompletionQueueTable2, get_notify_affinity), 5);
    assert_eq!(slot!(CompletionQueueTable2, get_results), 8);
    assert_eq!(slot!(SharedReceiveQueueTable2, receive), 8);
    assert_eq!(slot!(MemoryWindowTable2, get_remote_token), 3);
    assert_eq!(slot!(MemoryRegionTable2, register), 5);
    assert_eq!(slot!(MemoryRegionTable2, get_remote_token), 8);
    assert_eq!(slot!(QueuePairTable2, flush), 3);
    assert_eq!(slot!(QueuePairTable2, write), 9);
    assert_eq!(slot!(ManaCompletionQueueTable, get_mana_results), 9);
    assert_eq!(slot!(ManaQueuePairTable, send_with_immediate), 10);
    assert_eq!(slot!(ManaQueuePairTable, write_with_immediate), 11);
    assert_eq!(slot!(ConnectorTable2, bind), 5);
    assert_eq!(slot!(ConnectorTable2, get_peer_address), 13);
    assert_eq!(slot!(ConnectorTable2, disconnect), 15);
    assert_eq!(slot!(ListenerTable2, get_connection_request), 8);
    assert_eq!(slot!(AdapterTable2, create_overlapped_file), 3);
    assert_eq!(slot!(AdapterTable2, create_queue_pair), 10);
    assert_eq!(slot!(AdapterTable2, create_listener), 13);
    assert_eq!(slot!(ProviderTable2, open_adapter), 5);
}

#[test]
fn methods_of_version_1_stand_in_their_slots() {
    assert_eq!(slot!(CompletionQueueTable1, get_results), 7);
    assert_eq!(slot!(EndpointTable1, send), 6);
    assert_eq!(slot!(EndpointTable1, write), 12);
    assert_eq!(slot!(ConnectorTable1, create_endpoint), 5);
    assert_eq!(slot!(ConnectorTable1, get_connection_data), 10);
    assert_eq!(slot!(ConnectorTable1, disconnect), 14);
    assert_eq!(slot!(ListenTable1, get_connection_request), 5);
    assert_eq!(slot!(AdapterTable1, get_file_handle), 5);
    assert_eq!(slot!(AdapterTable1, listen), 13);
    assert_eq!(slot!(ProviderTable1, open_adapter), 4);
}

#[test]
fn fields_stand_where_the_header_has_them() {
    assert_eq!(offset_of!(AdapterInfo, max_initiator_sge), 32);
    assert_eq!(offset_of!(AdapterInfo, adapter_flags), 92);
    assert_eq!(offset_of!(AdapterInfo1, max_inbound_sge), 8);
    assert_eq!(offset_of!(AdapterInfo1, max_callee_data), 120);
    assert_eq!(offset_of!(RequestResult, request_type), 24);
}

#[test]
fn identifiers_are_written_as_they_are_read() {
    assert_eq!(format!("{:?}", IND2Connector::IID), "7DD615C4-6B4C-4866-950C-F3B1D25A5302");
    assert_eq!(INDMemoryWindow::IID, IND2MemoryWindow::IID);
}

#[test]
fn warnings_are_neither_successes_nor_errors() {
    assert!(!Status::DEVICE_BUSY.is_success() && !Status::DEVICE_BUSY.is_error());
    assert!(Status::PENDING.is_success() && Status::CANCELED.is_error());
}
