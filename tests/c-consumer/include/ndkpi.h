/* The kernel interface to RDMA adapters, NDKPI 2.1: layouts, values and functions that this driver uses. */
#pragma once
#include <ws2ipdef.h>

typedef struct {
    USHORT Major;
    USHORT Minor;
} NDK_VERSION;

typedef enum _NDK_OBJECT_TYPE { NdkObjectTypeUndefined, NdkObjectTypeAdapter, NdkObjectTypeQp } NDK_OBJECT_TYPE;

typedef enum _NDK_OPERATION_TYPE {
    NdkOperationTypeReceive = 1,
    NdkOperationTypeReceiveAndInvalidate = 0x8001,
    NdkOperationTypeSend = 2,
    NdkOperationTypeFastRegister = 4,
    NdkOperationTypeBind = 8,
    NdkOperationTypeInvalidate = 16,
    NdkOperationTypeRead = 32,
    NdkOperationTypeWrite = 64
} NDK_OPERATION_TYPE;

#define NDK_OP_FLAG_SILENT_SUCCESS 0x00000001u
#define NDK_OP_FLAG_READ_FENCE 0x00000002u
#define NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT 0x00000004u
#define NDK_OP_FLAG_ALLOW_REMOTE_READ 0x00000008u
#define NDK_OP_FLAG_ALLOW_LOCAL_WRITE 0x00000010u
#define NDK_OP_FLAG_ALLOW_REMOTE_WRITE 0x00000030u
#define NDK_OP_FLAG_DEFER 0x00000200u

#define NDK_MR_FLAG_ALLOW_LOCAL_WRITE 0x00000001u

#define NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED 0x00000002u
#define NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED 0x00000004u

#define NDK_CQ_NOTIFY_ERRORS 0u
#define NDK_CQ_NOTIFY_ANY 1u
#define NDK_CQ_NOTIFY_SOLICITED 2u

typedef struct _NDK_OBJECT_HEADER {
    NDK_VERSION Version;
    NDK_OBJECT_TYPE ObjectType;
    PVOID NdkReserved[4];
} NDK_OBJECT_HEADER;
C_ASSERT(sizeof(NDK_OBJECT_HEADER) == 40);

typedef struct _NDK_ADAPTER_INFO {
    NDK_VERSION Version;
    UINT32 VendorId;
    UINT32 DeviceId;
    SIZE_T MaxRegistrationSize;
    SIZE_T MaxWindowSize;
    ULONG FRMRPageCount;
    ULONG MaxInitiatorRequestSge;
    ULONG MaxReceiveRequestSge;
    ULONG MaxReadRequestSge;
    ULONG MaxTransferLength;
    ULONG MaxInlineDataSize;
    ULONG MaxInboundReadLimit;
    ULONG MaxOutboundReadLimit;
    ULONG MaxReceiveQueueDepth;
    ULONG MaxInitiatorQueueDepth;
    ULONG MaxSrqDepth;
    ULONG MaxCqDepth;
    ULONG LargeRequestThreshold;
    ULONG MaxCallerData;
    ULONG MaxCalleeData;
    ULONG AdapterFlags;
    ULONG RdmaTechnology;
} NDK_ADAPTER_INFO;
C_ASSERT(sizeof(NDK_ADAPTER_INFO) == 104);

typedef struct _NDK_RESULT_EX {
    NTSTATUS Status;
    ULONG BytesTransferred;
    PVOID QPContext;
    PVOID RequestContext;
    NDK_OPERATION_TYPE Type;
    ULONG ProviderErrorCode;
    ULONG_PTR TypeSpecificCompletionOutput;
} NDK_RESULT_EX;
C_ASSERT(sizeof(NDK_RESULT_EX) == 40);

typedef PHYSICAL_ADDRESS NDK_LOGICAL_ADDRESS;

typedef struct _NDK_LOGICAL_ADDRESS_MAPPING {
    PVOID AdapterContext;
    ULONG AdapterPageCount;
    NDK_LOGICAL_ADDRESS AdapterPageArray[1];
} NDK_LOGICAL_ADDRESS_MAPPING;
C_ASSERT(sizeof(NDK_LOGICAL_ADDRESS_MAPPING) == 24);

typedef struct _NDK_SGE {
    union {
        PVOID VirtualAddress;
        NDK_LOGICAL_ADDRESS LogicalAddress;
    };
    ULONG Length;
    UINT32 MemoryRegionToken;
} NDK_SGE;
C_ASSERT(sizeof(NDK_SGE) == 16);

typedef struct _NDK_ADAPTER NDK_ADAPTER;
typedef struct _NDK_CQ NDK_CQ;
typedef struct _NDK_PD NDK_PD;
typedef struct _NDK_MR NDK_MR;
typedef struct _NDK_QP NDK_QP;
typedef struct _NDK_CONNECTOR NDK_CONNECTOR;
typedef struct _NDK_LISTENER NDK_LISTENER;

/* The kit's NDK_FN_* are pointers to functions; what points at them is no pointer more. */
typedef VOID (*NDK_FN_CLOSE_COMPLETION)(PVOID Context);
typedef VOID (*NDK_FN_REQUEST_COMPLETION)(PVOID Context, NTSTATUS Status);
typedef VOID (*NDK_FN_CREATE_COMPLETION)(PVOID Context, NTSTATUS Status, NDK_OBJECT_HEADER *pNdkObject);
typedef VOID (*NDK_FN_CQ_NOTIFICATION_CALLBACK)(PVOID CqNotificationContext, NTSTATUS CqStatus);
typedef VOID (*NDK_FN_CONNECT_EVENT_CALLBACK)(PVOID ConnectEventContext, NDK_CONNECTOR *pNdkConnector);
typedef VOID (*NDK_FN_DISCONNECT_EVENT_CALLBACK)(PVOID DisconnectEventContext);
typedef NTSTATUS (*NDK_FN_CLOSE_OBJECT)(NDK_OBJECT_HEADER *pNdkObject, NDK_FN_CLOSE_COMPLETION CloseCompletion,
                                        PVOID RequestContext);

typedef struct _NDK_ADAPTER_DISPATCH {
    PVOID NdkQueryExtension;
    NTSTATUS (*NdkQueryAdapterInfo)(NDK_ADAPTER *, NDK_ADAPTER_INFO *Info, PULONG pBufferSize);
    NTSTATUS (*NdkCreateCq)(NDK_ADAPTER *, ULONG CqDepth, NDK_FN_CQ_NOTIFICATION_CALLBACK, PVOID NotificationContext,
                            GROUP_AFFINITY *Affinity, NDK_FN_CREATE_COMPLETION, PVOID Context, NDK_CQ **);
    NTSTATUS (*NdkCreatePd)(NDK_ADAPTER *, NDK_FN_CREATE_COMPLETION, PVOID Context, NDK_PD **);
    PVOID NdkCreateSharedEndpoint;
    NTSTATUS (*NdkCreateConnector)(NDK_ADAPTER *, NDK_FN_CREATE_COMPLETION, PVOID Context, NDK_CONNECTOR **);
    NTSTATUS (*NdkCreateListener)(NDK_ADAPTER *, NDK_FN_CONNECT_EVENT_CALLBACK, PVOID ConnectEventContext,
                                  NDK_FN_CREATE_COMPLETION, PVOID Context, NDK_LISTENER **);
    NTSTATUS (*NdkBuildLAM)(NDK_ADAPTER *, MDL *, SIZE_T Length, NDK_FN_REQUEST_COMPLETION, PVOID Context,
                            NDK_LOGICAL_ADDRESS_MAPPING *, PULONG pLAMSize, PULONG pFBO);
    VOID (*NdkReleaseLAM)(NDK_ADAPTER *, NDK_LOGICAL_ADDRESS_MAPPING *);
} NDK_ADAPTER_DISPATCH;
C_ASSERT(sizeof(NDK_ADAPTER_DISPATCH) == 72);

typedef struct _NDK_PD_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkClosePd;
    PVOID NdkQueryExtension;
    NTSTATUS (*NdkCreateMr)(NDK_PD *, BOOLEAN FastRegister, NDK_FN_CREATE_COMPLETION, PVOID Context, NDK_MR **);
    PVOID NdkCreateMw;
    PVOID NdkCreateSrq;
    NTSTATUS (*NdkCreateQp)(NDK_PD *, NDK_CQ *pReceiveCq, NDK_CQ *pInitiatorCq, PVOID QPContext, ULONG ReceiveQueueDepth,
                            ULONG InitiatorQueueDepth, ULONG MaxReceiveRequestSge, ULONG MaxInitiatorRequestSge,
                            ULONG InlineDataSize, NDK_FN_CREATE_COMPLETION, PVOID Context, NDK_QP **);
    PVOID NdkCreateQpWithSrq;
    VOID (*NdkGetPrivilegedMemoryRegionToken)(NDK_PD *, UINT32 *pToken);
} NDK_PD_DISPATCH;
C_ASSERT(sizeof(NDK_PD_DISPATCH) == 64);

typedef struct _NDK_CQ_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseCq;
    PVOID NdkQueryExtension;
    PVOID NdkResizeCq;
    VOID (*NdkArmCq)(NDK_CQ *, ULONG Type);
    PVOID NdkGetCqResults;
    NTSTATUS (*NdkControlCqInterruptModeration)(NDK_CQ *, ULONG ModerationInterval, ULONG ModerationCount);
    ULONG (*NdkGetCqResultsEx)(NDK_CQ *, NDK_RESULT_EX *Results, ULONG nResults);
} NDK_CQ_DISPATCH;
C_ASSERT(sizeof(NDK_CQ_DISPATCH) == 56);

typedef struct _NDK_MR_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseMr;
    PVOID NdkQueryExtension;
    NTSTATUS (*NdkRegisterMr)(NDK_MR *, MDL *, SIZE_T Length, ULONG Flags, NDK_FN_REQUEST_COMPLETION, PVOID Context);
    NTSTATUS (*NdkDeregisterMr)(NDK_MR *, NDK_FN_REQUEST_COMPLETION, PVOID Context);
    NTSTATUS (*NdkInitializeFastRegisterMr)(NDK_MR *, ULONG AdapterPageCount, BOOLEAN RemoteAccess,
                                            NDK_FN_REQUEST_COMPLETION, PVOID Context);
    UINT32 (*NdkGetRemoteTokenFromMr)(NDK_MR *);
    UINT32 (*NdkGetLocalTokenFromMr)(NDK_MR *);
} NDK_MR_DISPATCH;
C_ASSERT(sizeof(NDK_MR_DISPATCH) == 56);

typedef struct _NDK_QP_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseQp;
    PVOID NdkQueryExtension;
    VOID (*NdkFlush)(NDK_QP *);
    NTSTATUS (*NdkSend)(NDK_QP *, PVOID Context, CONST NDK_SGE *, ULONG nSge, ULONG Flags);
    NTSTATUS (*NdkReceive)(NDK_QP *, PVOID Context, CONST NDK_SGE *, ULONG nSge);
    PVOID NdkBind;
    NTSTATUS (*NdkFastRegister)(NDK_QP *, PVOID Context, NDK_MR *, ULONG AdapterPageCount,
                                CONST NDK_LOGICAL_ADDRESS *AdapterPageArray, ULONG FBO, SIZE_T Length,
                                PVOID BaseVirtualAddress, ULONG Flags);
    NTSTATUS (*NdkInvalidate)(NDK_QP *, PVOID Context, NDK_OBJECT_HEADER *pNdkMrOrMw, ULONG Flags);
    NTSTATUS (*NdkRead)(NDK_QP *, PVOID Context, CONST NDK_SGE *, ULONG nSge, UINT64 RemoteAddress, UINT32 RemoteToken,
                        ULONG Flags);
    NTSTATUS (*NdkWrite)(NDK_QP *, PVOID Context, CONST NDK_SGE *, ULONG nSge, UINT64 RemoteAddress, UINT32 RemoteToken,
                         ULONG Flags);
    NTSTATUS (*NdkSendAndInvalidate)(NDK_QP *, PVOID Context, CONST NDK_SGE *, ULONG nSge, ULONG Flags, UINT32 RemoteToken);
} NDK_QP_DISPATCH;
C_ASSERT(sizeof(NDK_QP_DISPATCH) == 88);

typedef struct _NDK_LISTENER_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseListener;
    PVOID NdkQueryExtension;
    NTSTATUS (*NdkListen)(NDK_LISTENER *, CONST PSOCKADDR pAddress, ULONG AddressLength, NDK_FN_REQUEST_COMPLETION,
                          PVOID Context);
    NTSTATUS (*NdkGetLocalAddress)(NDK_LISTENER *, PSOCKADDR pAddress, PULONG pAddressLength);
    VOID (*NdkControlConnectEvents)(NDK_LISTENER *, BOOLEAN Pause);
} NDK_LISTENER_DISPATCH;
C_ASSERT(sizeof(NDK_LISTENER_DISPATCH) == 40);

typedef struct _NDK_CONNECTOR_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseConnector;
    PVOID NdkQueryExtension;
    NTSTATUS (*NdkConnect)(NDK_CONNECTOR *, NDK_QP *, CONST PSOCKADDR pSrcAddress, ULONG SrcAddressLength,
                           CONST PSOCKADDR pDestAddress, ULONG DestAddressLength, ULONG InboundReadLimit,
                           ULONG OutboundReadLimit, CONST PVOID pPrivateData, ULONG PrivateDataLength,
                           NDK_FN_REQUEST_COMPLETION, PVOID Context);
    PVOID NdkConnectWithSharedEndpoint;
    NTSTATUS (*NdkCompleteConnect)(NDK_CONNECTOR *, NDK_FN_DISCONNECT_EVENT_CALLBACK, PVOID DisconnectEventContext,
                                   NDK_FN_REQUEST_COMPLETION, PVOID Context);
    NTSTATUS (*NdkAccept)(NDK_CONNECTOR *, NDK_QP *, ULONG InboundReadLimit, ULONG OutboundReadLimit,
                          CONST PVOID pPrivateData, ULONG PrivateDataLength, NDK_FN_DISCONNECT_EVENT_CALLBACK,
                          PVOID DisconnectEventContext, NDK_FN_REQUEST_COMPLETION, PVOID Context);
    NTSTATUS (*NdkReject)(NDK_CONNECTOR *, CONST PVOID pPrivateData, ULONG PrivateDataLength);
    NTSTATUS (*NdkGetConnectionData)(NDK_CONNECTOR *, PULONG pInboundReadLimit, PULONG pOutboundReadLimit,
                                     PVOID pPrivateData, PULONG pPrivateDataLength);
    PVOID NdkGetLocalAddress;
    PVOID NdkGetPeerAddress;
    NTSTATUS (*NdkDisconnect)(NDK_CONNECTOR *, NDK_FN_REQUEST_COMPLETION, PVOID Context);
    PVOID NdkCompleteConnectEx;
    PVOID NdkAcceptEx;
} NDK_CONNECTOR_DISPATCH;
C_ASSERT(sizeof(NDK_CONNECTOR_DISPATCH) == 104);

#define NDK_DECLARE_OBJECT(name)                \
    struct _##name {                            \
        NDK_OBJECT_HEADER Header;               \
        CONST name##_DISPATCH *Dispatch;        \
    };                                          \
    C_ASSERT(sizeof(struct _##name) == 48)

NDK_DECLARE_OBJECT(NDK_ADAPTER);
NDK_DECLARE_OBJECT(NDK_PD);
NDK_DECLARE_OBJECT(NDK_CQ);
NDK_DECLARE_OBJECT(NDK_MR);
NDK_DECLARE_OBJECT(NDK_QP);
NDK_DECLARE_OBJECT(NDK_LISTENER);
NDK_DECLARE_OBJECT(NDK_CONNECTOR);
