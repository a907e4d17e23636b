/*
 * A first NDK consumer: it opens two adapters through Winsock Kernel, connects one to the other, reads 4096 bytes from the other's
 * memory by RDMA Read, and closes everything in order. DriverEntry does all of it and returns how it went.
 */
#include <ntddk.h>
#include <wskndk.h>

#define BYTES 4096u
#define TAG 0x74737246u
#define PORT 5000u

/* What the passive side tells the active one with its accept: where its memory is. */
typedef struct _REMOTE_MEMORY {
    UINT64 Address;
    UINT32 Token;
} REMOTE_MEMORY;

/* A call that may pend: its completion may come after the function that made the call has returned, so none is on a stack. */
typedef struct _WAITER {
    KEVENT Event;
    NTSTATUS Status;
    NDK_OBJECT_HEADER *Object;
} WAITER;

/* One end of the connection. */
typedef struct _SIDE {
    ULONG Interface;
    UCHAR LastByte;
    WAITER Waiter;
    NDK_ADAPTER *Adapter;
    NDK_CQ *Queue;
    NDK_PD *Domain;
    NDK_QP *Pair;
    NDK_MR *Region;
    BOOLEAN Registered;
    NDK_CONNECTOR *Connector;
    PUCHAR Memory;
    PMDL Mdl;
} SIDE;

static struct {
    WSK_REGISTRATION Registration;
    WSK_PROVIDER_NPI Provider;
    WSK_PROVIDER_NDK_DISPATCH Ndk;
    SIDE Active;
    SIDE Passive;
    NDK_LISTENER *Listener;
    KEVENT Arrived;
    WAITER Accept;
    WAITER Close;
    const char *Step;
} First;

static VOID RequestDone(PVOID Context, NTSTATUS Status)
{
    WAITER *waiter = Context;
    waiter->Status = Status;
    KeSetEvent(&waiter->Event, 0, FALSE);
}

static VOID CreateDone(PVOID Context, NTSTATUS Status, NDK_OBJECT_HEADER *Object)
{
    ((WAITER *)Context)->Object = Object;
    RequestDone(Context, Status);
}

static VOID CloseDone(PVOID Context)
{
    RequestDone(Context, STATUS_SUCCESS);
}

static WAITER *Begin(WAITER *Waiter)
{
    KeInitializeEvent(&Waiter->Event, NotificationEvent, FALSE);
    Waiter->Object = NULL;
    return Waiter;
}

/* How a call ended. A create that succeeded in the call has filled its place; one that pended gives the object to its completion. */
static NTSTATUS End(WAITER *Waiter, NTSTATUS Status, PVOID Place)
{
    if (Status == STATUS_PENDING) {
        KeWaitForSingleObject(&Waiter->Event, Executive, KernelMode, FALSE, NULL);
        Status = Waiter->Status;
        if (Place != NULL && NT_SUCCESS(Status)) {
            *(PVOID *)Place = Waiter->Object;
        }
    }
    if (!NT_SUCCESS(Status) && Place != NULL) {
        *(PVOID *)Place = NULL;
    }
    return Status;
}

static VOID Close(PVOID Object, NDK_FN_CLOSE_OBJECT Function)
{
    if (Object != NULL) {
        WAITER *waiter = Begin(&First.Close);
        End(waiter, Function(Object, CloseDone, waiter), NULL);
    }
}

/* Address and port in network order: 10.0.0.LastByte. */
static SOCKADDR_IN AddressOf(const SIDE *Side, USHORT Port)
{
    SOCKADDR_IN address = {.sin_family = AF_INET, .sin_port = (USHORT)(Port << 8 | Port >> 8)};
    address.sin_addr.S_addr = 10u | (ULONG)Side->LastByte << 24;
    return address;
}

/* A connector for the connection request; one arrives, since there is one peer. It is closed whether or not it is accepted. */
static VOID ConnectionArrived(PVOID Context, NDK_CONNECTOR *Connector)
{
    SIDE *side = Context;
    side->Connector = Connector;
    KeSetEvent(&First.Arrived, 0, FALSE);
}

static NTSTATUS Register(SIDE *Side, ULONG Flags)
{
    First.Step = "the buffer";
    Side->Memory = ExAllocatePool2(POOL_FLAG_NON_PAGED, BYTES, TAG);
    Side->Mdl = Side->Memory == NULL ? NULL : IoAllocateMdl(Side->Memory, BYTES, FALSE, FALSE, NULL);
    if (Side->Mdl == NULL) {
        return STATUS_INSUFFICIENT_RESOURCES;
    }
    MmBuildMdlForNonPagedPool(Side->Mdl);
    First.Step = "NdkCreateMr";
    WAITER *waiter = Begin(&Side->Waiter);
    NTSTATUS status = Side->Domain->Dispatch->NdkCreateMr(Side->Domain, FALSE, CreateDone, waiter, &Side->Region);
    status = End(waiter, status, &Side->Region);
    if (NT_SUCCESS(status)) {
        First.Step = "NdkRegisterMr";
        status = Side->Region->Dispatch->NdkRegisterMr(Side->Region, Side->Mdl, BYTES, Flags, RequestDone, Begin(waiter));
        status = End(waiter, status, NULL);
        Side->Registered = NT_SUCCESS(status);
    }
    return status;
}

static NTSTATUS Create(SIDE *Side, ULONG Flags)
{
    const NDK_VERSION version = {2, 0};
    WAITER *waiter = &Side->Waiter;
    First.Step = "WskOpenNdkAdapter";
    NTSTATUS status = First.Ndk.WskOpenNdkAdapter(First.Provider.Client, version, Side->Interface, &Side->Adapter);
    if (!NT_SUCCESS(status)) {
        Side->Adapter = NULL;
        return status;
    }
    NDK_ADAPTER *adapter = Side->Adapter;
    First.Step = "NdkCreateCq";
    status = adapter->Dispatch->NdkCreateCq(adapter, 8, NULL, NULL, NULL, CreateDone, Begin(waiter), &Side->Queue);
    status = End(waiter, status, &Side->Queue);
    if (NT_SUCCESS(status)) {
        First.Step = "NdkCreatePd";
        status = adapter->Dispatch->NdkCreatePd(adapter, CreateDone, Begin(waiter), &Side->Domain);
        status = End(waiter, status, &Side->Domain);
    }
    if (NT_SUCCESS(status)) {
        First.Step = "NdkCreateQp";
        status = Side->Domain->Dispatch->NdkCreateQp(Side->Domain, Side->Queue, Side->Queue, NULL, 4, 4, 1, 1, 0, CreateDone,
                                                     Begin(waiter), &Side->Pair);
        status = End(waiter, status, &Side->Pair);
    }
    return NT_SUCCESS(status) ? Register(Side, Flags) : status;
}

static NTSTATUS Listen(SIDE *Passive)
{
    NDK_ADAPTER *adapter = Passive->Adapter;
    WAITER *waiter = Begin(&Passive->Waiter);
    SOCKADDR_IN address = AddressOf(Passive, PORT);
    First.Step = "NdkCreateListener";
    NTSTATUS status =
        adapter->Dispatch->NdkCreateListener(adapter, ConnectionArrived, Passive, CreateDone, waiter, &First.Listener);
    status = End(waiter, status, &First.Listener);
    if (NT_SUCCESS(status)) {
        First.Step = "NdkListen";
        status = First.Listener->Dispatch->NdkListen(First.Listener, (PSOCKADDR)&address, sizeof(address), RequestDone,
                                                     Begin(waiter));
        status = End(waiter, status, NULL);
    }
    return status;
}

/* Accepts what arrived, with the place of the memory as private data. Completes when the active side has completed the connection. */
static NTSTATUS Accept(SIDE *Passive)
{
    REMOTE_MEMORY memory = {(UINT64)Passive->Memory, Passive->Region->Dispatch->NdkGetRemoteTokenFromMr(Passive->Region)};
    First.Step = "NdkAccept";
    return Passive->Connector->Dispatch->NdkAccept(Passive->Connector, Passive->Pair, 1, 1, &memory, sizeof(memory), NULL, NULL,
                                                   RequestDone, Begin(&First.Accept));
}

static NTSTATUS Connect(SIDE *Active, SIDE *Passive)
{
    WAITER *waiter = Begin(&Active->Waiter);
    SOCKADDR_IN from = AddressOf(Active, 0);
    SOCKADDR_IN to = AddressOf(Passive, PORT);
    First.Step = "NdkCreateConnector";
    NTSTATUS status =
        Active->Adapter->Dispatch->NdkCreateConnector(Active->Adapter, CreateDone, waiter, &Active->Connector);
    status = End(waiter, status, &Active->Connector);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    First.Step = "NdkConnect";
    NTSTATUS connect = Active->Connector->Dispatch->NdkConnect(Active->Connector, Active->Pair, (PSOCKADDR)&from, sizeof(from),
                                                               (PSOCKADDR)&to, sizeof(to), 1, 1, NULL, 0, RequestDone,
                                                               Begin(waiter));
    if (connect != STATUS_PENDING) {
        return NT_SUCCESS(connect) ? STATUS_UNSUCCESSFUL : connect;
    }
    PVOID events[] = {&First.Arrived, &waiter->Event};
    KeWaitForMultipleObjects(2, events, WaitAny, Executive, KernelMode, FALSE, NULL, NULL);
    if (KeReadStateEvent(&First.Arrived) == 0) {
        return End(waiter, connect, NULL);
    }
    NTSTATUS accept = Accept(Passive);
    if (accept != STATUS_PENDING) {
        return NT_SUCCESS(accept) ? STATUS_UNSUCCESSFUL : accept;
    }
    First.Step = "NdkConnect";
    status = End(waiter, connect, NULL);
    if (NT_SUCCESS(status)) {
        First.Step = "NdkCompleteConnect";
        status = Active->Connector->Dispatch->NdkCompleteConnect(Active->Connector, NULL, NULL, RequestDone, Begin(waiter));
        status = End(waiter, status, NULL);
    }
    if (NT_SUCCESS(status)) {
        First.Step = "NdkAccept";
        status = End(&First.Accept, accept, NULL);
    }
    return status;
}

/* Reads the peer's memory and waits for the result by polling, since the queue has no notification function. */
static NTSTATUS Read(SIDE *Active, SIDE *Passive)
{
    /* The length of a connection's private data is the adapter's, whatever was sent; what we need stands at its front. */
    union {
        REMOTE_MEMORY Memory;
        UCHAR Bytes[256];
    } remote;
    ULONG length = sizeof(remote);
    NDK_CONNECTOR *connector = Active->Connector;
    First.Step = "NdkGetConnectionData";
    NTSTATUS status = connector->Dispatch->NdkGetConnectionData(connector, NULL, NULL, &remote, &length);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    NDK_SGE sge = {.VirtualAddress = Active->Memory, .Length = BYTES};
    sge.MemoryRegionToken = Active->Region->Dispatch->NdkGetLocalTokenFromMr(Active->Region);
    First.Step = "NdkRead";
    status = Active->Pair->Dispatch->NdkRead(Active->Pair, NULL, &sge, 1, remote.Memory.Address, remote.Memory.Token, 0);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    First.Step = "the result of NdkRead";
    NDK_RESULT_EX result;
    LARGE_INTEGER millisecond = {.QuadPart = -10000};
    while (Active->Queue->Dispatch->NdkGetCqResultsEx(Active->Queue, &result, 1) == 0) {
        KeDelayExecutionThread(KernelMode, FALSE, &millisecond);
    }
    if (!NT_SUCCESS(result.Status)) {
        return result.Status;
    }
    First.Step = "the bytes";
    return memcmp(Active->Memory, Passive->Memory, BYTES) == 0 ? STATUS_SUCCESS : STATUS_DATA_ERROR;
}

/* Connectors before queue pairs, regions before their memory, domains and queues after what uses them, the adapter last. */
static VOID CloseSide(SIDE *Side)
{
    Close(Side->Pair, Side->Pair == NULL ? NULL : Side->Pair->Dispatch->NdkCloseQp);
    if (Side->Registered) {
        WAITER *waiter = Begin(&Side->Waiter);
        End(waiter, Side->Region->Dispatch->NdkDeregisterMr(Side->Region, RequestDone, waiter), NULL);
    }
    Close(Side->Region, Side->Region == NULL ? NULL : Side->Region->Dispatch->NdkCloseMr);
    Close(Side->Domain, Side->Domain == NULL ? NULL : Side->Domain->Dispatch->NdkClosePd);
    Close(Side->Queue, Side->Queue == NULL ? NULL : Side->Queue->Dispatch->NdkCloseCq);
    if (Side->Adapter != NULL) {
        First.Ndk.WskCloseNdkAdapter(First.Provider.Client, Side->Adapter);
    }
    if (Side->Mdl != NULL) {
        IoFreeMdl(Side->Mdl);
    }
    if (Side->Memory != NULL) {
        ExFreePoolWithTag(Side->Memory, TAG);
    }
}

static VOID CloseAll(BOOLEAN Connected)
{
    SIDE *active = &First.Active;
    if (Connected) {
        /* A disconnect completes when the peer has answered with its own; neither side has an event function to learn of it by. */
        NDK_CONNECTOR *peer = First.Passive.Connector;
        NTSTATUS status =
            active->Connector->Dispatch->NdkDisconnect(active->Connector, RequestDone, Begin(&active->Waiter));
        End(&First.Accept, peer->Dispatch->NdkDisconnect(peer, RequestDone, Begin(&First.Accept)), NULL);
        End(&active->Waiter, status, NULL);
    }
    Close(active->Connector, active->Connector == NULL ? NULL : active->Connector->Dispatch->NdkCloseConnector);
    Close(First.Passive.Connector,
          First.Passive.Connector == NULL ? NULL : First.Passive.Connector->Dispatch->NdkCloseConnector);
    Close(First.Listener, First.Listener == NULL ? NULL : First.Listener->Dispatch->NdkCloseListener);
    CloseSide(active);
    CloseSide(&First.Passive);
}

static NTSTATUS Run(VOID)
{
    SIDE *active = &First.Active;
    SIDE *passive = &First.Passive;
    KeInitializeEvent(&First.Arrived, NotificationEvent, FALSE);
    NTSTATUS status = Create(passive, NDK_MR_FLAG_ALLOW_REMOTE_READ);
    if (NT_SUCCESS(status)) {
        status = Create(active, NDK_MR_FLAG_ALLOW_LOCAL_WRITE | NDK_MR_FLAG_RDMA_READ_SINK);
    }
    if (NT_SUCCESS(status)) {
        memset(passive->Memory, 0x5A, BYTES);
        status = Listen(passive);
    }
    if (NT_SUCCESS(status)) {
        status = Connect(active, passive);
    }
    BOOLEAN connected = NT_SUCCESS(status);
    if (connected) {
        status = Read(active, passive);
    }
    CloseAll(connected);
    return status;
}

static VOID Unload(PDRIVER_OBJECT Driver)
{
    UNREFERENCED_PARAMETER(Driver);
}

NTSTATUS DriverEntry(PDRIVER_OBJECT Driver, PUNICODE_STRING RegistryPath)
{
    static const WSK_CLIENT_DISPATCH dispatch = {MAKE_WSK_VERSION(1, 0), 0, NULL};
    WSK_CLIENT_NPI client = {NULL, &dispatch};
    UNREFERENCED_PARAMETER(RegistryPath);
    Driver->DriverUnload = Unload;
    First.Active.Interface = 11;
    First.Active.LastByte = 1;
    First.Passive.Interface = 12;
    First.Passive.LastByte = 2;
    First.Step = "WskRegister";
    NTSTATUS status = WskRegister(&client, &First.Registration);
    if (NT_SUCCESS(status)) {
        First.Step = "WskCaptureProviderNPI";
        status = WskCaptureProviderNPI(&First.Registration, WSK_INFINITE_WAIT, &First.Provider);
        if (NT_SUCCESS(status)) {
            First.Step = "WskControlClient";
            status = First.Provider.Dispatch->WskControlClient(First.Provider.Client, WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH, 0,
                                                               NULL, sizeof(First.Ndk), &First.Ndk, NULL, NULL);
            if (NT_SUCCESS(status)) {
                status = Run();
            }
            WskReleaseProviderNPI(&First.Registration);
        }
        WskDeregister(&First.Registration);
    }
    if (NT_SUCCESS(status)) {
        DbgPrint("read %u bytes from the other adapter\n", BYTES);
    } else {
        DbgPrint("TEST-FAILED: %s: 0x%08X\n", First.Step, status);
    }
    return status;
}
