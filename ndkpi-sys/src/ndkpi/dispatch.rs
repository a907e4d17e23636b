//! The dispatch tables, one per object type, constant and completely filled: a provider returns `STATUS_NOT_SUPPORTED` for what
//! it does not have, it never leaves a slot empty.
//!
//! The tables are those of NDKPI 2.1. A consumer of an older version sees a prefix of them.

use super::function::{
    NDK_FN_ACCEPT, NDK_FN_ACCEPT_EX, NDK_FN_ARM_CQ, NDK_FN_BIND, NDK_FN_BUILD_LAM, NDK_FN_CLOSE_OBJECT,
    NDK_FN_COMPLETE_CONNECT, NDK_FN_COMPLETE_CONNECT_EX, NDK_FN_CONNECT, NDK_FN_CONNECT_WITH_SHARED_ENDPOINT,
    NDK_FN_CONTROL_CONNECT_EVENTS, NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION, NDK_FN_CREATE_CONNECTOR, NDK_FN_CREATE_CQ,
    NDK_FN_CREATE_LISTENER, NDK_FN_CREATE_MR, NDK_FN_CREATE_MW, NDK_FN_CREATE_PD, NDK_FN_CREATE_QP,
    NDK_FN_CREATE_QP_WITH_SRQ, NDK_FN_CREATE_SHARED_ENDPOINT, NDK_FN_CREATE_SRQ, NDK_FN_DEREGISTER_MR,
    NDK_FN_DISCONNECT, NDK_FN_FAST_REGISTER, NDK_FN_FLUSH, NDK_FN_GET_CONNECTION_DATA, NDK_FN_GET_CQ_RESULTS,
    NDK_FN_GET_CQ_RESULTS_EX, NDK_FN_GET_LISTENER_LOCAL_ADDRESS, NDK_FN_GET_LOCAL_ADDRESS,
    NDK_FN_GET_LOCAL_TOKEN_FROM_MR, NDK_FN_GET_PEER_ADDRESS, NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN,
    NDK_FN_GET_REMOTE_TOKEN_FROM_MR, NDK_FN_GET_REMOTE_TOKEN_FROM_MW, NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS,
    NDK_FN_INITIALIZE_FAST_REGISTER_MR, NDK_FN_INVALIDATE, NDK_FN_LISTEN, NDK_FN_MODIFY_SRQ, NDK_FN_QUERY_ADAPTER_INFO,
    NDK_FN_QUERY_EXTENSION_INTERFACE, NDK_FN_READ, NDK_FN_RECEIVE, NDK_FN_REGISTER_MR, NDK_FN_REJECT,
    NDK_FN_RELEASE_LAM, NDK_FN_RESIZE_CQ, NDK_FN_SEND, NDK_FN_SEND_AND_INVALIDATE, NDK_FN_SRQ_RECEIVE, NDK_FN_WRITE,
};
use crate::abi::layout;

macro_rules! tables {
    ($(
        $(#[$meta:meta])*
        $Table:ident, size $size:literal {
            $( $(#[$doc:meta])* $slot:ident: $Function:ident @ $offset:literal, )*
        }
    )*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $Table {
            $( $(#[$doc])* pub $slot: $Function, )*
        }
        layout!($Table, size $size, align 8, { $($slot: $offset),* });
    )*};
}

tables! {
    /// Functions of an adapter.
    NDK_ADAPTER_DISPATCH, size 72 {
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE @ 0,
        NdkQueryAdapterInfo: NDK_FN_QUERY_ADAPTER_INFO @ 8,
        NdkCreateCq: NDK_FN_CREATE_CQ @ 16,
        NdkCreatePd: NDK_FN_CREATE_PD @ 24,
        NdkCreateSharedEndpoint: NDK_FN_CREATE_SHARED_ENDPOINT @ 32,
        NdkCreateConnector: NDK_FN_CREATE_CONNECTOR @ 40,
        NdkCreateListener: NDK_FN_CREATE_LISTENER @ 48,
        NdkBuildLAM: NDK_FN_BUILD_LAM @ 56,
        NdkReleaseLAM: NDK_FN_RELEASE_LAM @ 64,
    }

    /// Functions of a protection domain.
    NDK_PD_DISPATCH, size 64 {
        NdkClosePd: NDK_FN_CLOSE_OBJECT @ 0,
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE @ 8,
        NdkCreateMr: NDK_FN_CREATE_MR @ 16,
        NdkCreateMw: NDK_FN_CREATE_MW @ 24,
        NdkCreateSrq: NDK_FN_CREATE_SRQ @ 32,
        NdkCreateQp: NDK_FN_CREATE_QP @ 40,
        NdkCreateQpWithSrq: NDK_FN_CREATE_QP_WITH_SRQ @ 48,
        NdkGetPrivilegedMemoryRegionToken: NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN @ 56,
    }

    /// Functions of a completion queue.
    NDK_CQ_DISPATCH, size 56 {
        NdkCloseCq: NDK_FN_CLOSE_OBJECT @ 0,
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE @ 8,
        NdkResizeCq: NDK_FN_RESIZE_CQ @ 16,
        NdkArmCq: NDK_FN_ARM_CQ @ 24,
        NdkGetCqResults: NDK_FN_GET_CQ_RESULTS @ 32,
        NdkControlCqInterruptModeration: NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION @ 40,
        /// NDKPI 1.2.
        NdkGetCqResultsEx: NDK_FN_GET_CQ_RESULTS_EX @ 48,
    }

    /// Functions of a queue pair.
    NDK_QP_DISPATCH, size 88 {
        NdkCloseQp: NDK_FN_CLOSE_OBJECT @ 0,
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE @ 8,
        NdkFlush: NDK_FN_FLUSH @ 16,
        NdkSend: NDK_FN_SEND @ 24,
        NdkReceive: NDK_FN_RECEIVE @ 32,
        NdkBind: NDK_FN_BIND @ 40,
        NdkFastRegister: NDK_FN_FAST_REGISTER @ 48,
        NdkInvalidate: NDK_FN_INVALIDATE @ 56,
        NdkRead: NDK_FN_READ @ 64,
        NdkWrite: NDK_FN_WRITE @ 72,
        /// NDKPI 1.2.
        NdkSendAndInvalidate: NDK_FN_SEND_AND_INVALIDATE @ 80,
    }

    /// Functions of a shared receive queue.
    NDK_SRQ_DISPATCH, size 32 {
        NdkCloseSrq: NDK_FN_CLOSE_OBJECT @ 0,
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE @ 8,
        NdkModifySrq: NDK_FN_MODIFY_SRQ @ 16,
        NdkSrqReceive: NDK_FN_SRQ_RECEIVE @ 24,
    }

    /// Functions of a memory region.
    NDK_MR_DISPATCH, size 56 {
        NdkCloseMr: NDK_FN_CLOSE_OBJECT @ 0,
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE @ 8,
        NdkRegisterMr: NDK_FN_REGISTER_MR @ 16,
        NdkDeregisterMr: NDK_FN_DEREGISTER_MR @ 24,
        NdkInitializeFastRegisterMr: NDK_FN_INITIALIZE_FAST_REGISTER_MR @ 32,
        NdkGetRemoteTokenFromMr: NDK_FN_GET_REMOTE_TOKEN_FROM_MR @ 40,
        NdkGetLocalTokenFromMr: NDK_FN_GET_LOCAL_TOKEN_FROM_MR @ 48,
    }

    /// Functions of a memory window.
    NDK_MW_DISPATCH, size 24 {
        NdkCloseMw: NDK_FN_CLOSE_OBJECT @ 0,
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE @ 8,
        NdkGetRemoteTokenFromMw: NDK_FN_GET_REMOTE_TOKEN_FROM_MW @ 16,
    }

    /// Functions of a listener.
    NDK_LISTENER_DISPATCH, size 40 {
        NdkCloseListener: NDK_FN_CLOSE_OBJECT @ 0,
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE @ 8,
        NdkListen: NDK_FN_LISTEN @ 16,
        NdkGetLocalAddress: NDK_FN_GET_LISTENER_LOCAL_ADDRESS @ 24,
        NdkControlConnectEvents: NDK_FN_CONTROL_CONNECT_EVENTS @ 32,
    }

    /// Functions of a connector. 0x58 bytes before NDKPI 2.1.
    NDK_CONNECTOR_DISPATCH, size 104 {
        NdkCloseConnector: NDK_FN_CLOSE_OBJECT @ 0,
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE @ 8,
        NdkConnect: NDK_FN_CONNECT @ 16,
        NdkConnectWithSharedEndpoint: NDK_FN_CONNECT_WITH_SHARED_ENDPOINT @ 24,
        NdkCompleteConnect: NDK_FN_COMPLETE_CONNECT @ 32,
        NdkAccept: NDK_FN_ACCEPT @ 40,
        NdkReject: NDK_FN_REJECT @ 48,
        NdkGetConnectionData: NDK_FN_GET_CONNECTION_DATA @ 56,
        NdkGetLocalAddress: NDK_FN_GET_LOCAL_ADDRESS @ 64,
        NdkGetPeerAddress: NDK_FN_GET_PEER_ADDRESS @ 72,
        NdkDisconnect: NDK_FN_DISCONNECT @ 80,
        /// NDKPI 2.1.
        NdkCompleteConnectEx: NDK_FN_COMPLETE_CONNECT_EX @ 88,
        /// NDKPI 2.1.
        NdkAcceptEx: NDK_FN_ACCEPT_EX @ 96,
    }

    /// Functions of a shared endpoint.
    NDK_SHARED_ENDPOINT_DISPATCH, size 24 {
        NdkCloseSharedEndpoint: NDK_FN_CLOSE_OBJECT @ 0,
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE @ 8,
        NdkGetLocalAddress: NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS @ 16,
    }
}
