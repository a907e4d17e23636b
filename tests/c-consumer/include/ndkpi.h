/* The kernel interface to RDMA adapters, NDKPI 2.1: layouts, values, callbacks and every function of the dispatch
 * tables, written for consumers that are built without the kit; with the kit its ndkpi.h takes the place of this file. */
#pragma once
#include <ws2ipdef.h>

typedef struct {
    USHORT Major;
    USHORT Minor;
} NDK_VERSION;

typedef enum _NDK_OBJECT_TYPE {
    NdkObjectTypeUndefined,
    NdkObjectTypeAdapter,
    NdkObjectTypeQp,
    NdkObjectTypeCq,
    NdkObjectTypeMr,
    NdkObjectTypeMw,
    NdkObjectTypePd,
    NdkObjectTypeSharedEndpoint,
    NdkObjectTypeConnector,
    NdkObjectTypeListener,
    NdkObjectTypeSrq,
    NdkObjectTypeMax
} NDK_OBJECT_TYPE;

typedef enum _NDK_RDMA_TECHNOLOGY {
    NdkUndefined,
    NdkiWarp,
    NdkInfiniBand,
    NdkRoCE,
    NdkRoCEv2,
    NdkMaxTechnology
} NDK_RDMA_TECHNOLOGY;

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
#define NDK_OP_FLAG_INLINE 0x00000040u
#define NDK_OP_FLAG_RDMA_READ_SINK 0x00000080u
#define NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE 0x00000100u
#define NDK_OP_FLAG_DEFER 0x00000200u

#define NDK_MR_FLAG_ALLOW_LOCAL_READ 0x00000000u
#define NDK_MR_FLAG_ALLOW_LOCAL_WRITE 0x00000001u
#define NDK_MR_FLAG_ALLOW_REMOTE_READ 0x00000002u
#define NDK_MR_FLAG_ALLOW_REMOTE_WRITE 0x00000005u
#define NDK_MR_FLAG_RDMA_READ_SINK 0x00000008u

#define NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED 0x00000001u
#define NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED 0x00000002u
#define NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED 0x00000004u
#define NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED 0x00000008u
#define NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED 0x00000010u
#define NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED 0x00000100u
#define NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED 0x00010000u

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
    NDK_RDMA_TECHNOLOGY RdmaTechnology;
} NDK_ADAPTER_INFO;
C_ASSERT(sizeof(NDK_ADAPTER_INFO) == 104);

typedef struct _NDK_RESULT {
    NTSTATUS Status;
    ULONG BytesTransferred;
    PVOID QPContext;
    PVOID RequestContext;
} NDK_RESULT;
C_ASSERT(sizeof(NDK_RESULT) == 24);

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

/* The table of an extension, of a type that the extension's GUID names. */
typedef struct _NDK_EXTENSION_INTERFACE {
    CONST VOID *Dispatch;
} NDK_EXTENSION_INTERFACE;

typedef struct _NDK_ADAPTER NDK_ADAPTER;
typedef struct _NDK_CQ NDK_CQ;
typedef struct _NDK_PD NDK_PD;
typedef struct _NDK_MR NDK_MR;
typedef struct _NDK_MW NDK_MW;
typedef struct _NDK_SRQ NDK_SRQ;
typedef struct _NDK_QP NDK_QP;
typedef struct _NDK_CONNECTOR NDK_CONNECTOR;
typedef struct _NDK_LISTENER NDK_LISTENER;
typedef struct _NDK_SHARED_ENDPOINT NDK_SHARED_ENDPOINT;

/* The kit's NDK_FN_* are pointers to functions; what points at them is no pointer more. */

/* Callbacks of the consumer, at DISPATCH_LEVEL or below. */
typedef VOID (*NDK_FN_CLOSE_COMPLETION)(PVOID Context);
typedef VOID (*NDK_FN_REQUEST_COMPLETION)(PVOID Context, NTSTATUS Status);
typedef VOID (*NDK_FN_CREATE_COMPLETION)(PVOID Context, NTSTATUS Status, NDK_OBJECT_HEADER *pNdkObject);
typedef VOID (*NDK_FN_CQ_NOTIFICATION_CALLBACK)(PVOID CqNotificationContext, NTSTATUS CqStatus);
typedef VOID (*NDK_FN_SRQ_NOTIFICATION_CALLBACK)(PVOID SrqNotificationContext, NTSTATUS SrqStatus);
typedef VOID (*NDK_FN_CONNECT_EVENT_CALLBACK)(PVOID ConnectEventContext, NDK_CONNECTOR *pNdkConnector);
typedef VOID (*NDK_FN_DISCONNECT_EVENT_CALLBACK)(PVOID DisconnectEventContext);
typedef VOID (*NDK_FN_DISCONNECT_EVENT_CALLBACK_EX)(PVOID DisconnectEventContext, ULONG ProviderDisconnectReason);

/* Functions that every object has. */
typedef NTSTATUS (*NDK_FN_CLOSE_OBJECT)(NDK_OBJECT_HEADER *pNdkObject, NDK_FN_CLOSE_COMPLETION CloseCompletion,
                                        PVOID RequestContext);
typedef NTSTATUS (*NDK_FN_QUERY_EXTENSION_INTERFACE)(NDK_OBJECT_HEADER *pNdkObject, GUID *ExtensionInterfaceID,
                                                     NDK_VERSION ExtensionInterfaceVersion,
                                                     NDK_EXTENSION_INTERFACE *pExtensionInterface);

/* Adapter. */
typedef NTSTATUS (*NDK_FN_QUERY_ADAPTER_INFO)(NDK_ADAPTER *, NDK_ADAPTER_INFO *pInfo, PULONG pBufferSize);
typedef NTSTATUS (*NDK_FN_CREATE_CQ)(NDK_ADAPTER *, ULONG CqDepth, NDK_FN_CQ_NOTIFICATION_CALLBACK,
                                     PVOID CqNotificationContext, GROUP_AFFINITY *Affinity, NDK_FN_CREATE_COMPLETION,
                                     PVOID RequestContext, NDK_CQ **ppNdkCq);
typedef NTSTATUS (*NDK_FN_CREATE_PD)(NDK_ADAPTER *, NDK_FN_CREATE_COMPLETION, PVOID RequestContext, NDK_PD **ppNdkPd);
typedef NTSTATUS (*NDK_FN_CREATE_SHARED_ENDPOINT)(NDK_ADAPTER *, CONST PSOCKADDR pAddress, ULONG AddressLength,
                                                  NDK_FN_CREATE_COMPLETION, PVOID RequestContext,
                                                  NDK_SHARED_ENDPOINT **ppNdkSharedEndpoint);
typedef NTSTATUS (*NDK_FN_CREATE_CONNECTOR)(NDK_ADAPTER *, NDK_FN_CREATE_COMPLETION, PVOID RequestContext,
                                            NDK_CONNECTOR **ppNdkConnector);
typedef NTSTATUS (*NDK_FN_CREATE_LISTENER)(NDK_ADAPTER *, NDK_FN_CONNECT_EVENT_CALLBACK, PVOID ConnectEventContext,
                                           NDK_FN_CREATE_COMPLETION, PVOID RequestContext, NDK_LISTENER **ppNdkListener);
typedef NTSTATUS (*NDK_FN_BUILD_LAM)(NDK_ADAPTER *, MDL *Mdl, SIZE_T Length, NDK_FN_REQUEST_COMPLETION,
                                     PVOID RequestContext, NDK_LOGICAL_ADDRESS_MAPPING *pNdkLAM, PULONG pLAMSize,
                                     PULONG pFBO);
typedef VOID (*NDK_FN_RELEASE_LAM)(NDK_ADAPTER *, NDK_LOGICAL_ADDRESS_MAPPING *pNdkLAM);

/* Protection domain. */
typedef NTSTATUS (*NDK_FN_CREATE_MR)(NDK_PD *, BOOLEAN FastRegister, NDK_FN_CREATE_COMPLETION, PVOID RequestContext,
                                     NDK_MR **ppNdkMr);
typedef NTSTATUS (*NDK_FN_CREATE_MW)(NDK_PD *, NDK_FN_CREATE_COMPLETION, PVOID RequestContext, NDK_MW **ppNdkMw);
typedef NTSTATUS (*NDK_FN_CREATE_SRQ)(NDK_PD *, ULONG SrqDepth, ULONG MaxReceiveRequestSge, ULONG NotifyThreshold,
                                      NDK_FN_SRQ_NOTIFICATION_CALLBACK, PVOID SrqNotificationContext,
                                      GROUP_AFFINITY *Affinity, NDK_FN_CREATE_COMPLETION, PVOID RequestContext,
                                      NDK_SRQ **ppNdkSrq);
typedef NTSTATUS (*NDK_FN_CREATE_QP)(NDK_PD *, NDK_CQ *pReceiveCq, NDK_CQ *pInitiatorCq, PVOID QPContext,
                                     ULONG ReceiveQueueDepth, ULONG InitiatorQueueDepth, ULONG MaxReceiveRequestSge,
                                     ULONG MaxInitiatorRequestSge, ULONG InlineDataSize, NDK_FN_CREATE_COMPLETION,
                                     PVOID RequestContext, NDK_QP **ppNdkQp);
typedef NTSTATUS (*NDK_FN_CREATE_QP_WITH_SRQ)(NDK_PD *, NDK_CQ *pReceiveCq, NDK_CQ *pInitiatorCq, NDK_SRQ *pSrq,
                                              PVOID QPContext, ULONG InitiatorQueueDepth, ULONG MaxInitiatorRequestSge,
                                              ULONG InlineDataSize, NDK_FN_CREATE_COMPLETION, PVOID RequestContext,
                                              NDK_QP **ppNdkQp);
typedef VOID (*NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN)(NDK_PD *, UINT32 *pToken);

/* Completion queue. */
typedef NTSTATUS (*NDK_FN_RESIZE_CQ)(NDK_CQ *, ULONG CqDepth, NDK_FN_REQUEST_COMPLETION, PVOID RequestContext);
typedef VOID (*NDK_FN_ARM_CQ)(NDK_CQ *, ULONG Type);
typedef ULONG (*NDK_FN_GET_CQ_RESULTS)(NDK_CQ *, NDK_RESULT Results[], ULONG nResults);
typedef ULONG (*NDK_FN_GET_CQ_RESULTS_EX)(NDK_CQ *, NDK_RESULT_EX Results[], ULONG nResults);
typedef NTSTATUS (*NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION)(NDK_CQ *, ULONG ModerationInterval, ULONG ModerationCount);

/* Shared receive queue. */
typedef NTSTATUS (*NDK_FN_MODIFY_SRQ)(NDK_SRQ *, ULONG SrqDepth, ULONG NotifyThreshold, NDK_FN_REQUEST_COMPLETION,
                                      PVOID RequestContext);
typedef NTSTATUS (*NDK_FN_SRQ_RECEIVE)(NDK_SRQ *, PVOID RequestContext, CONST NDK_SGE *pSgl, ULONG nSge);

/* Memory region and memory window. */
typedef NTSTATUS (*NDK_FN_REGISTER_MR)(NDK_MR *, MDL *Mdl, SIZE_T Length, ULONG Flags, NDK_FN_REQUEST_COMPLETION,
                                       PVOID RequestContext);
typedef NTSTATUS (*NDK_FN_DEREGISTER_MR)(NDK_MR *, NDK_FN_REQUEST_COMPLETION, PVOID RequestContext);
typedef NTSTATUS (*NDK_FN_INITIALIZE_FAST_REGISTER_MR)(NDK_MR *, ULONG AdapterPageCount, BOOLEAN RemoteAccess,
                                                       NDK_FN_REQUEST_COMPLETION, PVOID RequestContext);
typedef UINT32 (*NDK_FN_GET_REMOTE_TOKEN_FROM_MR)(NDK_MR *);
typedef UINT32 (*NDK_FN_GET_LOCAL_TOKEN_FROM_MR)(NDK_MR *);
typedef UINT32 (*NDK_FN_GET_REMOTE_TOKEN_FROM_MW)(NDK_MW *);

/* Queue pair. */
typedef VOID (*NDK_FN_FLUSH)(NDK_QP *);
typedef NTSTATUS (*NDK_FN_SEND)(NDK_QP *, PVOID RequestContext, CONST NDK_SGE *pSgl, ULONG nSge, ULONG Flags);
typedef NTSTATUS (*NDK_FN_SEND_AND_INVALIDATE)(NDK_QP *, PVOID RequestContext, CONST NDK_SGE *pSgl, ULONG nSge,
                                               ULONG Flags, UINT32 RemoteToken);
typedef NTSTATUS (*NDK_FN_RECEIVE)(NDK_QP *, PVOID RequestContext, CONST NDK_SGE *pSgl, ULONG nSge);
typedef NTSTATUS (*NDK_FN_BIND)(NDK_QP *, PVOID RequestContext, NDK_MR *pMr, NDK_MW *pMw, CONST PVOID VirtualAddress,
                                SIZE_T Length, ULONG Flags);
typedef NTSTATUS (*NDK_FN_FAST_REGISTER)(NDK_QP *, PVOID RequestContext, NDK_MR *pMr, ULONG AdapterPageCount,
                                         CONST NDK_LOGICAL_ADDRESS *AdapterPageArray, ULONG FBO, SIZE_T Length,
                                         PVOID BaseVirtualAddress, ULONG Flags);
typedef NTSTATUS (*NDK_FN_INVALIDATE)(NDK_QP *, PVOID RequestContext, NDK_OBJECT_HEADER *pNdkMrOrMw, ULONG Flags);
typedef NTSTATUS (*NDK_FN_READ)(NDK_QP *, PVOID RequestContext, CONST NDK_SGE *pSgl, ULONG nSge, UINT64 RemoteAddress,
                                UINT32 RemoteToken, ULONG Flags);
typedef NTSTATUS (*NDK_FN_WRITE)(NDK_QP *, PVOID RequestContext, CONST NDK_SGE *pSgl, ULONG nSge, UINT64 RemoteAddress,
                                 UINT32 RemoteToken, ULONG Flags);

/* Listener and shared endpoint. */
typedef NTSTATUS (*NDK_FN_LISTEN)(NDK_LISTENER *, CONST PSOCKADDR pAddress, ULONG AddressLength,
                                  NDK_FN_REQUEST_COMPLETION, PVOID RequestContext);
typedef NTSTATUS (*NDK_FN_GET_LISTENER_LOCAL_ADDRESS)(NDK_LISTENER *, PSOCKADDR pAddress, PULONG pAddressLength);
typedef VOID (*NDK_FN_CONTROL_CONNECT_EVENTS)(NDK_LISTENER *, BOOLEAN Pause);
typedef NTSTATUS (*NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS)(NDK_SHARED_ENDPOINT *, PSOCKADDR pAddress,
                                                             PULONG pAddressLength);

/* Connector. */
typedef NTSTATUS (*NDK_FN_CONNECT)(NDK_CONNECTOR *, NDK_QP *, CONST PSOCKADDR pSrcAddress, ULONG SrcAddressLength,
                                   CONST PSOCKADDR pDestAddress, ULONG DestAddressLength, ULONG InboundReadLimit,
                                   ULONG OutboundReadLimit, CONST PVOID pPrivateData, ULONG PrivateDataLength,
                                   NDK_FN_REQUEST_COMPLETION, PVOID RequestContext);
typedef NTSTATUS (*NDK_FN_CONNECT_WITH_SHARED_ENDPOINT)(NDK_CONNECTOR *, NDK_QP *, NDK_SHARED_ENDPOINT *,
                                                        CONST PSOCKADDR pDestAddress, ULONG DestAddressLength,
                                                        ULONG InboundReadLimit, ULONG OutboundReadLimit,
                                                        CONST PVOID pPrivateData, ULONG PrivateDataLength,
                                                        NDK_FN_REQUEST_COMPLETION, PVOID RequestContext);
typedef NTSTATUS (*NDK_FN_COMPLETE_CONNECT)(NDK_CONNECTOR *, NDK_FN_DISCONNECT_EVENT_CALLBACK,
                                            PVOID DisconnectEventContext, NDK_FN_REQUEST_COMPLETION,
                                            PVOID RequestContext);
typedef NTSTATUS (*NDK_FN_COMPLETE_CONNECT_EX)(NDK_CONNECTOR *, NDK_FN_DISCONNECT_EVENT_CALLBACK_EX,
                                               PVOID DisconnectEventContext, NDK_FN_REQUEST_COMPLETION,
                                               PVOID RequestContext);
typedef NTSTATUS (*NDK_FN_ACCEPT)(NDK_CONNECTOR *, NDK_QP *, ULONG InboundReadLimit, ULONG OutboundReadLimit,
                                  CONST PVOID pPrivateData, ULONG PrivateDataLength, NDK_FN_DISCONNECT_EVENT_CALLBACK,
                                  PVOID DisconnectEventContext, NDK_FN_REQUEST_COMPLETION, PVOID RequestContext);
typedef NTSTATUS (*NDK_FN_ACCEPT_EX)(NDK_CONNECTOR *, NDK_QP *, ULONG InboundReadLimit, ULONG OutboundReadLimit,
                                     CONST PVOID pPrivateData, ULONG PrivateDataLength,
                                     NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, PVOID DisconnectEventContext,
                                     NDK_FN_REQUEST_COMPLETION, PVOID RequestContext);
typedef NTSTATUS (*NDK_FN_REJECT)(NDK_CONNECTOR *, CONST PVOID pPrivateData, ULONG PrivateDataLength);
typedef NTSTATUS (*NDK_FN_GET_CONNECTION_DATA)(NDK_CONNECTOR *, PULONG pInboundReadLimit, PULONG pOutboundReadLimit,
                                               PVOID pPrivateData, PULONG pPrivateDataLength);
typedef NTSTATUS (*NDK_FN_GET_LOCAL_ADDRESS)(NDK_CONNECTOR *, PSOCKADDR pAddress, PULONG pAddressLength);
typedef NTSTATUS (*NDK_FN_GET_PEER_ADDRESS)(NDK_CONNECTOR *, PSOCKADDR pAddress, PULONG pAddressLength);
typedef NTSTATUS (*NDK_FN_DISCONNECT)(NDK_CONNECTOR *, NDK_FN_REQUEST_COMPLETION, PVOID RequestContext);

typedef struct _NDK_ADAPTER_DISPATCH {
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_QUERY_ADAPTER_INFO NdkQueryAdapterInfo;
    NDK_FN_CREATE_CQ NdkCreateCq;
    NDK_FN_CREATE_PD NdkCreatePd;
    NDK_FN_CREATE_SHARED_ENDPOINT NdkCreateSharedEndpoint;
    NDK_FN_CREATE_CONNECTOR NdkCreateConnector;
    NDK_FN_CREATE_LISTENER NdkCreateListener;
    NDK_FN_BUILD_LAM NdkBuildLAM;
    NDK_FN_RELEASE_LAM NdkReleaseLAM;
} NDK_ADAPTER_DISPATCH;
C_ASSERT(sizeof(NDK_ADAPTER_DISPATCH) == 72);

typedef struct _NDK_PD_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkClosePd;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_CREATE_MR NdkCreateMr;
    NDK_FN_CREATE_MW NdkCreateMw;
    NDK_FN_CREATE_SRQ NdkCreateSrq;
    NDK_FN_CREATE_QP NdkCreateQp;
    NDK_FN_CREATE_QP_WITH_SRQ NdkCreateQpWithSrq;
    NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN NdkGetPrivilegedMemoryRegionToken;
} NDK_PD_DISPATCH;
C_ASSERT(sizeof(NDK_PD_DISPATCH) == 64);

typedef struct _NDK_CQ_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseCq;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_RESIZE_CQ NdkResizeCq;
    NDK_FN_ARM_CQ NdkArmCq;
    NDK_FN_GET_CQ_RESULTS NdkGetCqResults;
    NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION NdkControlCqInterruptModeration;
    NDK_FN_GET_CQ_RESULTS_EX NdkGetCqResultsEx;
} NDK_CQ_DISPATCH;
C_ASSERT(sizeof(NDK_CQ_DISPATCH) == 56);

typedef struct _NDK_QP_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseQp;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_FLUSH NdkFlush;
    NDK_FN_SEND NdkSend;
    NDK_FN_RECEIVE NdkReceive;
    NDK_FN_BIND NdkBind;
    NDK_FN_FAST_REGISTER NdkFastRegister;
    NDK_FN_INVALIDATE NdkInvalidate;
    NDK_FN_READ NdkRead;
    NDK_FN_WRITE NdkWrite;
    NDK_FN_SEND_AND_INVALIDATE NdkSendAndInvalidate;
} NDK_QP_DISPATCH;
C_ASSERT(sizeof(NDK_QP_DISPATCH) == 88);

typedef struct _NDK_SRQ_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseSrq;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_MODIFY_SRQ NdkModifySrq;
    NDK_FN_SRQ_RECEIVE NdkSrqReceive;
} NDK_SRQ_DISPATCH;
C_ASSERT(sizeof(NDK_SRQ_DISPATCH) == 32);

typedef struct _NDK_MR_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseMr;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_REGISTER_MR NdkRegisterMr;
    NDK_FN_DEREGISTER_MR NdkDeregisterMr;
    NDK_FN_INITIALIZE_FAST_REGISTER_MR NdkInitializeFastRegisterMr;
    NDK_FN_GET_REMOTE_TOKEN_FROM_MR NdkGetRemoteTokenFromMr;
    NDK_FN_GET_LOCAL_TOKEN_FROM_MR NdkGetLocalTokenFromMr;
} NDK_MR_DISPATCH;
C_ASSERT(sizeof(NDK_MR_DISPATCH) == 56);

typedef struct _NDK_MW_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseMw;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_GET_REMOTE_TOKEN_FROM_MW NdkGetRemoteTokenFromMw;
} NDK_MW_DISPATCH;
C_ASSERT(sizeof(NDK_MW_DISPATCH) == 24);

typedef struct _NDK_LISTENER_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseListener;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_LISTEN NdkListen;
    NDK_FN_GET_LISTENER_LOCAL_ADDRESS NdkGetLocalAddress;
    NDK_FN_CONTROL_CONNECT_EVENTS NdkControlConnectEvents;
} NDK_LISTENER_DISPATCH;
C_ASSERT(sizeof(NDK_LISTENER_DISPATCH) == 40);

typedef struct _NDK_CONNECTOR_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseConnector;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_CONNECT NdkConnect;
    NDK_FN_CONNECT_WITH_SHARED_ENDPOINT NdkConnectWithSharedEndpoint;
    NDK_FN_COMPLETE_CONNECT NdkCompleteConnect;
    NDK_FN_ACCEPT NdkAccept;
    NDK_FN_REJECT NdkReject;
    NDK_FN_GET_CONNECTION_DATA NdkGetConnectionData;
    NDK_FN_GET_LOCAL_ADDRESS NdkGetLocalAddress;
    NDK_FN_GET_PEER_ADDRESS NdkGetPeerAddress;
    NDK_FN_DISCONNECT NdkDisconnect;
    NDK_FN_COMPLETE_CONNECT_EX NdkCompleteConnectEx;
    NDK_FN_ACCEPT_EX NdkAcceptEx;
} NDK_CONNECTOR_DISPATCH;
C_ASSERT(sizeof(NDK_CONNECTOR_DISPATCH) == 104);

typedef struct _NDK_SHARED_ENDPOINT_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseSharedEndpoint;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS NdkGetLocalAddress;
} NDK_SHARED_ENDPOINT_DISPATCH;
C_ASSERT(sizeof(NDK_SHARED_ENDPOINT_DISPATCH) == 24);

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
NDK_DECLARE_OBJECT(NDK_MW);
NDK_DECLARE_OBJECT(NDK_SRQ);
NDK_DECLARE_OBJECT(NDK_QP);
NDK_DECLARE_OBJECT(NDK_LISTENER);
NDK_DECLARE_OBJECT(NDK_CONNECTOR);
NDK_DECLARE_OBJECT(NDK_SHARED_ENDPOINT);
