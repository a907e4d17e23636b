/*
 * What a program needs of the Network Direct service provider interface: interfaces, structures, constants of version 2, then of version 1.
 *
 * The names are those of Microsoft's public ndspi.h, nddef.h and ndstatus.h, so that the program compiles with them as well (in C, with
 * CINTERFACE). Slots that the program does not call are declared as `void *`.
 */
#pragma once

#include <winsock2.h>
#include <ws2ipdef.h>
#include <windows.h>

#define ND_SUCCESS ((HRESULT)0x00000000)
#define ND_PENDING ((HRESULT)0x00000103)
#define ND_TIMEOUT ((HRESULT)0x00000102)
#define ND_BUFFER_OVERFLOW ((HRESULT)0x80000005)
#define ND_DEVICE_BUSY ((HRESULT)0x80000011)
#define ND_NO_MORE_ENTRIES ((HRESULT)0x8000001A)
#define ND_ACCESS_VIOLATION ((HRESULT)0xC0000005)
#define ND_INVALID_PARAMETER ((HRESULT)0xC000000D)
#define ND_INVALID_DEVICE_REQUEST ((HRESULT)0xC0000010)
#define ND_DATA_OVERRUN ((HRESULT)0xC000003C)
#define ND_CANCELED ((HRESULT)0xC0000120)
#define ND_REMOTE_ERROR ((HRESULT)0xC000013D)
#define ND_INVALID_DEVICE_STATE ((HRESULT)0xC0000184)
#define ND_INVALID_BUFFER_SIZE ((HRESULT)0xC0000206)
#define ND_BAD_NETWORK_NAME ((HRESULT)0xC00000CC)
#define ND_ADDRESS_ALREADY_ASSOCIATED ((HRESULT)0xC0000238)
#define ND_ADDRESS_NOT_ASSOCIATED ((HRESULT)0xC0000239)
#define ND_CONNECTION_REFUSED ((HRESULT)0xC0000236)
#define ND_CONNECTION_INVALID ((HRESULT)0xC000023A)
#define ND_CONNECTION_ACTIVE ((HRESULT)0xC000023B)

#define ND_MR_FLAG_ALLOW_LOCAL_WRITE 0x1
#define ND_MR_FLAG_ALLOW_REMOTE_READ 0x2
#define ND_MR_FLAG_ALLOW_REMOTE_WRITE 0x5
#define ND_OP_FLAG_SILENT_SUCCESS 0x1
#define ND_OP_FLAG_READ_FENCE 0x2
#define ND_OP_FLAG_SEND_AND_SOLICIT_EVENT 0x4
#define ND_OP_FLAG_ALLOW_READ 0x8
#define ND_OP_FLAG_ALLOW_WRITE 0x10
#define ND_OP_FLAG_INLINE 0x20
#define ND_CQ_NOTIFY_ERRORS 0
#define ND_CQ_NOTIFY_ANY 1
#define ND_CQ_NOTIFY_SOLICITED 2
#define ND_VERSION_2 0x20000

typedef enum _ND2_REQUEST_TYPE {
    Nd2RequestTypeReceive,
    Nd2RequestTypeSend,
    Nd2RequestTypeBind,
    Nd2RequestTypeInvalidate,
    Nd2RequestTypeRead,
    Nd2RequestTypeWrite
} ND2_REQUEST_TYPE;

typedef struct _ND2_RESULT {
    HRESULT Status;
    ULONG BytesTransferred;
    VOID *QueuePairContext;
    VOID *RequestContext;
    ND2_REQUEST_TYPE RequestType;
} ND2_RESULT;

typedef struct _ND2_SGE {
    VOID *Buffer;
    ULONG BufferLength;
    UINT32 MemoryRegionToken;
} ND2_SGE;

typedef struct _ND2_ADAPTER_INFO {
    ULONG InfoVersion;
    UINT16 VendorId;
    UINT16 DeviceId;
    UINT64 AdapterId;
    SIZE_T MaxRegistrationSize;
    SIZE_T MaxWindowSize;
    ULONG MaxInitiatorSge;
    ULONG MaxReceiveSge;
    ULONG MaxReadSge;
    ULONG MaxTransferLength;
    ULONG MaxInlineDataSize;
    ULONG MaxInboundReadLimit;
    ULONG MaxOutboundReadLimit;
    ULONG MaxReceiveQueueDepth;
    ULONG MaxInitiatorQueueDepth;
    ULONG MaxSharedReceiveQueueDepth;
    ULONG MaxCompletionQueueDepth;
    ULONG InlineRequestThreshold;
    ULONG LargeRequestThreshold;
    ULONG MaxCallerData;
    ULONG MaxCalleeData;
    ULONG AdapterFlags;
} ND2_ADAPTER_INFO;

/* An interface: its table begins with IUnknown, and with IND2Overlapped where it has that. */
#define UNKNOWN(interface)                                                                                                  \
    HRESULT(STDMETHODCALLTYPE *QueryInterface)(interface *, const IID *, void **);                                          \
    ULONG(STDMETHODCALLTYPE *AddRef)(interface *);                                                                          \
    ULONG(STDMETHODCALLTYPE *Release)(interface *);
#define OVERLAPPED_METHODS(interface)                                                                                       \
    UNKNOWN(interface)                                                                                                      \
    HRESULT(STDMETHODCALLTYPE *CancelOverlappedRequests)(interface *);                                                      \
    HRESULT(STDMETHODCALLTYPE *GetOverlappedResult)(interface *, OVERLAPPED *, BOOL);
#define INTERFACE_BEGIN(name)                                                                                               \
    typedef struct name name;                                                                                               \
    typedef struct name##Vtbl {
#define INTERFACE_END(name)                                                                                                 \
    }                                                                                                                       \
    name##Vtbl;                                                                                                             \
    struct name {                                                                                                           \
        const name##Vtbl *lpVtbl;                                                                                           \
    };
#define METHOD(result, method) result(STDMETHODCALLTYPE *method)

INTERFACE_BEGIN(IND2CompletionQueue)
OVERLAPPED_METHODS(IND2CompletionQueue)
METHOD(HRESULT, GetNotifyAffinity)(IND2CompletionQueue *, USHORT *, KAFFINITY *);
METHOD(HRESULT, Resize)(IND2CompletionQueue *, ULONG);
METHOD(HRESULT, Notify)(IND2CompletionQueue *, ULONG, OVERLAPPED *);
METHOD(ULONG, GetResults)(IND2CompletionQueue *, ND2_RESULT[], ULONG);
INTERFACE_END(IND2CompletionQueue)

INTERFACE_BEGIN(IND2SharedReceiveQueue)
OVERLAPPED_METHODS(IND2SharedReceiveQueue)
METHOD(HRESULT, GetNotifyAffinity)(IND2SharedReceiveQueue *, USHORT *, KAFFINITY *);
METHOD(HRESULT, Modify)(IND2SharedReceiveQueue *, ULONG, ULONG);
METHOD(HRESULT, Notify)(IND2SharedReceiveQueue *, OVERLAPPED *);
METHOD(HRESULT, Receive)(IND2SharedReceiveQueue *, VOID *, const ND2_SGE[], ULONG);
INTERFACE_END(IND2SharedReceiveQueue)

INTERFACE_BEGIN(IND2MemoryWindow)
UNKNOWN(IND2MemoryWindow)
METHOD(UINT32, GetRemoteToken)(IND2MemoryWindow *);
INTERFACE_END(IND2MemoryWindow)

INTERFACE_BEGIN(IND2MemoryRegion)
OVERLAPPED_METHODS(IND2MemoryRegion)
METHOD(HRESULT, Register)(IND2MemoryRegion *, const VOID *, SIZE_T, ULONG, OVERLAPPED *);
METHOD(HRESULT, Deregister)(IND2MemoryRegion *, OVERLAPPED *);
METHOD(UINT32, GetLocalToken)(IND2MemoryRegion *);
METHOD(UINT32, GetRemoteToken)(IND2MemoryRegion *);
INTERFACE_END(IND2MemoryRegion)

INTERFACE_BEGIN(IND2QueuePair)
UNKNOWN(IND2QueuePair)
METHOD(HRESULT, Flush)(IND2QueuePair *);
METHOD(HRESULT, Send)(IND2QueuePair *, VOID *, const ND2_SGE[], ULONG, ULONG);
METHOD(HRESULT, Receive)(IND2QueuePair *, VOID *, const ND2_SGE[], ULONG);
METHOD(HRESULT, Bind)(IND2QueuePair *, VOID *, IUnknown *, IUnknown *, const VOID *, SIZE_T, ULONG);
METHOD(HRESULT, Invalidate)(IND2QueuePair *, VOID *, IUnknown *, ULONG);
METHOD(HRESULT, Read)(IND2QueuePair *, VOID *, const ND2_SGE[], ULONG, UINT64, UINT32, ULONG);
METHOD(HRESULT, Write)(IND2QueuePair *, VOID *, const ND2_SGE[], ULONG, UINT64, UINT32, ULONG);
INTERFACE_END(IND2QueuePair)

INTERFACE_BEGIN(IND2Connector)
OVERLAPPED_METHODS(IND2Connector)
METHOD(HRESULT, Bind)(IND2Connector *, const struct sockaddr *, ULONG);
METHOD(HRESULT, Connect)(IND2Connector *, IUnknown *, const struct sockaddr *, ULONG, ULONG, ULONG, const VOID *, ULONG, OVERLAPPED *);
METHOD(HRESULT, CompleteConnect)(IND2Connector *, OVERLAPPED *);
METHOD(HRESULT, Accept)(IND2Connector *, IUnknown *, ULONG, ULONG, const VOID *, ULONG, OVERLAPPED *);
METHOD(HRESULT, Reject)(IND2Connector *, const VOID *, ULONG);
METHOD(HRESULT, GetReadLimits)(IND2Connector *, ULONG *, ULONG *);
METHOD(HRESULT, GetPrivateData)(IND2Connector *, VOID *, ULONG *);
METHOD(HRESULT, GetLocalAddress)(IND2Connector *, struct sockaddr *, ULONG *);
METHOD(HRESULT, GetPeerAddress)(IND2Connector *, struct sockaddr *, ULONG *);
METHOD(HRESULT, NotifyDisconnect)(IND2Connector *, OVERLAPPED *);
METHOD(HRESULT, Disconnect)(IND2Connector *, OVERLAPPED *);
INTERFACE_END(IND2Connector)

INTERFACE_BEGIN(IND2Listener)
OVERLAPPED_METHODS(IND2Listener)
METHOD(HRESULT, Bind)(IND2Listener *, const struct sockaddr *, ULONG);
METHOD(HRESULT, Listen)(IND2Listener *, ULONG);
METHOD(HRESULT, GetLocalAddress)(IND2Listener *, struct sockaddr *, ULONG *);
METHOD(HRESULT, GetConnectionRequest)(IND2Listener *, IUnknown *, OVERLAPPED *);
INTERFACE_END(IND2Listener)

INTERFACE_BEGIN(IND2Adapter)
UNKNOWN(IND2Adapter)
METHOD(HRESULT, CreateOverlappedFile)(IND2Adapter *, HANDLE *);
METHOD(HRESULT, Query)(IND2Adapter *, ND2_ADAPTER_INFO *, ULONG *);
METHOD(HRESULT, QueryAddressList)(IND2Adapter *, SOCKET_ADDRESS_LIST *, ULONG *);
METHOD(HRESULT, CreateCompletionQueue)(IND2Adapter *, const IID *, HANDLE, ULONG, USHORT, KAFFINITY, VOID **);
METHOD(HRESULT, CreateMemoryRegion)(IND2Adapter *, const IID *, HANDLE, VOID **);
METHOD(HRESULT, CreateMemoryWindow)(IND2Adapter *, const IID *, VOID **);
METHOD(HRESULT, CreateSharedReceiveQueue)(IND2Adapter *, const IID *, HANDLE, ULONG, ULONG, ULONG, USHORT, KAFFINITY, VOID **);
METHOD(HRESULT, CreateQueuePair)(IND2Adapter *, const IID *, IUnknown *, IUnknown *, VOID *, ULONG, ULONG, ULONG, ULONG, ULONG, VOID **);
METHOD(HRESULT, CreateQueuePairWithSrq)(IND2Adapter *, const IID *, IUnknown *, IUnknown *, IUnknown *, VOID *, ULONG, ULONG, ULONG, VOID **);
METHOD(HRESULT, CreateConnector)(IND2Adapter *, const IID *, HANDLE, VOID **);
METHOD(HRESULT, CreateListener)(IND2Adapter *, const IID *, HANDLE, VOID **);
INTERFACE_END(IND2Adapter)

INTERFACE_BEGIN(IND2Provider)
UNKNOWN(IND2Provider)
METHOD(HRESULT, QueryAddressList)(IND2Provider *, SOCKET_ADDRESS_LIST *, ULONG *);
METHOD(HRESULT, ResolveAddress)(IND2Provider *, const struct sockaddr *, ULONG, UINT64 *);
METHOD(HRESULT, OpenAdapter)(IND2Provider *, const IID *, UINT64, VOID **);
INTERFACE_END(IND2Provider)

static const IID IID_IND2CompletionQueue = {0x20CC445E, 0x64A0, 0x4CBB, {0xAA, 0x75, 0xF6, 0xA7, 0x25, 0x1F, 0xDA, 0x9E}};
static const IID IID_IND2SharedReceiveQueue = {0xAABD67DC, 0x459A, 0x4DB1, {0x82, 0x6B, 0x56, 0xCF, 0xCC, 0x27, 0x88, 0x83}};
static const IID IID_IND2MemoryWindow = {0x070FE1F5, 0x0AB5, 0x4361, {0x88, 0xDB, 0x97, 0x4B, 0xA7, 0x04, 0xD4, 0xB9}};
static const IID IID_IND2MemoryRegion = {0x55DFEA2F, 0xBC56, 0x4982, {0x8A, 0x45, 0x03, 0x01, 0xBE, 0x46, 0xC4, 0x13}};
static const IID IID_IND2QueuePair = {0xEEF2F332, 0xB75D, 0x4063, {0xBC, 0xE3, 0x3A, 0x0B, 0xAD, 0x2D, 0x02, 0xCE}};
static const IID IID_IND2Connector = {0x7DD615C4, 0x6B4C, 0x4866, {0x95, 0x0C, 0xF3, 0xB1, 0xD2, 0x5A, 0x53, 0x02}};
static const IID IID_IND2Listener = {0x65D23D83, 0x3A57, 0x4E02, {0x86, 0xA4, 0x35, 0x01, 0x65, 0xC2, 0xD1, 0x30}};
static const IID IID_IND2Adapter = {0xD89C798C, 0x4823, 0x4D69, {0x84, 0x6C, 0xDF, 0xDC, 0xCF, 0xF9, 0xE5, 0xF3}};
static const IID IID_IND2Provider = {0x49EAE6C1, 0x76C4, 0x46D0, {0x80, 0x03, 0x5C, 0x2E, 0xAA, 0x2C, 0x9A, 0x8E}};

typedef struct _ND_RESULT {
    HRESULT Status;
    SIZE_T BytesTransferred;
} ND_RESULT;

typedef VOID *ND_MR_HANDLE;

typedef struct _ND_SGE {
    VOID *pAddr;
    SIZE_T Length;
    ND_MR_HANDLE hMr;
} ND_SGE;

#pragma pack(push, 1)
typedef struct _ND_MW_DESCRIPTOR {
    UINT64 Base;
    UINT64 Length;
    UINT32 Token;
} ND_MW_DESCRIPTOR;
#pragma pack(pop)

#define OVERLAPPED_METHODS_1(interface)                                                                                     \
    UNKNOWN(interface)                                                                                                      \
    HRESULT(STDMETHODCALLTYPE *CancelOverlappedRequests)(interface *);                                                      \
    HRESULT(STDMETHODCALLTYPE *GetOverlappedResult)(interface *, OVERLAPPED *, SIZE_T *, BOOL);

INTERFACE_BEGIN(INDCompletionQueue)
OVERLAPPED_METHODS_1(INDCompletionQueue)
METHOD(HRESULT, Resize)(INDCompletionQueue *, SIZE_T);
METHOD(HRESULT, Notify)(INDCompletionQueue *, DWORD, OVERLAPPED *);
METHOD(SIZE_T, GetResults)(INDCompletionQueue *, ND_RESULT *[], SIZE_T);
INTERFACE_END(INDCompletionQueue)

INTERFACE_BEGIN(INDMemoryWindow)
UNKNOWN(INDMemoryWindow)
INTERFACE_END(INDMemoryWindow)

INTERFACE_BEGIN(INDEndpoint)
UNKNOWN(INDEndpoint)
METHOD(HRESULT, Flush)(INDEndpoint *);
METHOD(void, StartRequestBatch)(INDEndpoint *);
METHOD(void, SubmitRequestBatch)(INDEndpoint *);
METHOD(HRESULT, Send)(INDEndpoint *, ND_RESULT *, const ND_SGE *, SIZE_T, DWORD);
METHOD(HRESULT, SendAndInvalidate)(INDEndpoint *, ND_RESULT *, const ND_SGE *, SIZE_T, const ND_MW_DESCRIPTOR *, DWORD);
METHOD(HRESULT, Receive)(INDEndpoint *, ND_RESULT *, const ND_SGE *, SIZE_T);
METHOD(HRESULT, Bind)(INDEndpoint *, ND_RESULT *, ND_MR_HANDLE, INDMemoryWindow *, const void *, SIZE_T, DWORD, ND_MW_DESCRIPTOR *);
METHOD(HRESULT, Invalidate)(INDEndpoint *, ND_RESULT *, INDMemoryWindow *, DWORD);
METHOD(HRESULT, Read)(INDEndpoint *, ND_RESULT *, const ND_SGE *, SIZE_T, const ND_MW_DESCRIPTOR *, ULONGLONG, DWORD);
METHOD(HRESULT, Write)(INDEndpoint *, ND_RESULT *, const ND_SGE *, SIZE_T, const ND_MW_DESCRIPTOR *, ULONGLONG, DWORD);
INTERFACE_END(INDEndpoint)

INTERFACE_BEGIN(INDConnector)
OVERLAPPED_METHODS_1(INDConnector)
METHOD(HRESULT, CreateEndpoint)(INDConnector *, INDCompletionQueue *, INDCompletionQueue *, SIZE_T, SIZE_T, SIZE_T, SIZE_T, SIZE_T, SIZE_T,
                                SIZE_T *, INDEndpoint **);
METHOD(HRESULT, Connect)(INDConnector *, INDEndpoint *, const struct sockaddr *, SIZE_T, INT, USHORT, const void *, SIZE_T, OVERLAPPED *);
METHOD(HRESULT, CompleteConnect)(INDConnector *, OVERLAPPED *);
METHOD(HRESULT, Accept)(INDConnector *, INDEndpoint *, const void *, SIZE_T, OVERLAPPED *);
METHOD(HRESULT, Reject)(INDConnector *, const void *, SIZE_T);
METHOD(HRESULT, GetConnectionData)(INDConnector *, SIZE_T *, SIZE_T *, void *, SIZE_T *);
METHOD(HRESULT, GetLocalAddress)(INDConnector *, struct sockaddr *, SIZE_T *);
METHOD(HRESULT, GetPeerAddress)(INDConnector *, struct sockaddr *, SIZE_T *);
METHOD(HRESULT, NotifyDisconnect)(INDConnector *, OVERLAPPED *);
METHOD(HRESULT, Disconnect)(INDConnector *, OVERLAPPED *);
INTERFACE_END(INDConnector)

INTERFACE_BEGIN(INDListen)
OVERLAPPED_METHODS_1(INDListen)
METHOD(HRESULT, GetConnectionRequest)(INDListen *, INDConnector *, OVERLAPPED *);
INTERFACE_END(INDListen)

INTERFACE_BEGIN(INDAdapter)
OVERLAPPED_METHODS_1(INDAdapter)
METHOD(HANDLE, GetFileHandle)(INDAdapter *);
METHOD(HRESULT, Query)(INDAdapter *, DWORD, void *, SIZE_T *);
METHOD(HRESULT, Control)(INDAdapter *, DWORD, const void *, SIZE_T, void *, SIZE_T, SIZE_T *, OVERLAPPED *);
METHOD(HRESULT, CreateCompletionQueue)(INDAdapter *, SIZE_T, INDCompletionQueue **);
METHOD(HRESULT, RegisterMemory)(INDAdapter *, const void *, SIZE_T, OVERLAPPED *, ND_MR_HANDLE *);
METHOD(HRESULT, DeregisterMemory)(INDAdapter *, ND_MR_HANDLE, OVERLAPPED *);
METHOD(HRESULT, CreateMemoryWindow)(INDAdapter *, ND_RESULT *, INDMemoryWindow **);
METHOD(HRESULT, CreateConnector)(INDAdapter *, INDConnector **);
METHOD(HRESULT, Listen)(INDAdapter *, SIZE_T, INT, USHORT, USHORT *, INDListen **);
INTERFACE_END(INDAdapter)

INTERFACE_BEGIN(INDProvider)
UNKNOWN(INDProvider)
METHOD(HRESULT, QueryAddressList)(INDProvider *, SOCKET_ADDRESS_LIST *, SIZE_T *);
METHOD(HRESULT, OpenAdapter)(INDProvider *, const struct sockaddr *, SIZE_T, INDAdapter **);
INTERFACE_END(INDProvider)

static const IID IID_INDProvider = {0x0C5DD316, 0x5FDF, 0x47E6, {0xB2, 0xD0, 0x2A, 0x6E, 0xDA, 0x8D, 0x39, 0xDD}};
