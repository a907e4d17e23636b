/* The connection: made in the order that the interface requires, and ended as two storage peers end it. */
#include "consumer.h"

typedef struct _HELLO {
    ULONG Signature;
    ULONG Slots;
    ULONG MessageBytes;
    ULONG Reserved;
} HELLO;

/* Never written; the interface takes it through a pointer that could. */
static HELLO Hello = {TAG, SLOTS, MESSAGE_BYTES, 0};

static ULONG AddressLength(const SOCKADDR_INET *Address)
{
    return Address->si_family == AF_INET ? sizeof(Address->Ipv4) : sizeof(Address->Ipv6);
}

/* How much private data there is depends on the provider: ask, then fetch. */
static NTSTATUS CheckHello(NDK_CONNECTOR *Connector)
{
    union {
        HELLO Hello;
        UCHAR Bytes[512];
    } data;
    ULONG length = 0;
    NTSTATUS status = Connector->Dispatch->NdkGetConnectionData(Connector, NULL, NULL, NULL, &length);
    if (!NT_SUCCESS(status) || length < sizeof(HELLO) || length > sizeof(data)) {
        return NT_SUCCESS(status) ? STATUS_DATA_ERROR : status;
    }
    length = sizeof(data);
    ULONG inbound, outbound;
    status = Connector->Dispatch->NdkGetConnectionData(Connector, &inbound, &outbound, &data, &length);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    BOOLEAN right = data.Hello.Signature == Hello.Signature && data.Hello.Slots == Hello.Slots &&
                    data.Hello.MessageBytes == Hello.MessageBytes;
    return right && inbound > 0 && outbound > 0 ? STATUS_SUCCESS : STATUS_DATA_ERROR;
}

static VOID DisconnectEvent(PVOID Context)
{
    ENDPOINT *endpoint = Context;
    KeSetEvent(&endpoint->Disconnected, 0, FALSE);
}

static VOID AcceptDone(PVOID Context, NTSTATUS Status)
{
    ENDPOINT *target = Context;
    target->ConnectStatus = Status;
    KeSetEvent(&target->Connected, 0, FALSE);
}

static VOID IgnoredCloseDone(PVOID Context)
{
    UNREFERENCED_PARAMETER(Context);
}

/* Answered in the callback, at its level. */
static VOID ConnectEvent(PVOID Context, NDK_CONNECTOR *Connector)
{
    ENDPOINT *target = Context;
    NTSTATUS status = CheckHello(Connector);
    if (!NT_SUCCESS(status) || target->Connector != NULL) {
        Connector->Dispatch->NdkReject(Connector, NULL, 0);
        Connector->Dispatch->NdkCloseConnector(&Connector->Header, IgnoredCloseDone, NULL);
        return;
    }
    target->Connector = Connector;
    status = Connector->Dispatch->NdkAccept(Connector, target->Pair, target->Info.MaxInboundReadLimit,
                                            target->Info.MaxOutboundReadLimit, &Hello, sizeof(Hello), DisconnectEvent,
                                            target, AcceptDone, target);
    if (status != STATUS_PENDING) {
        AcceptDone(target, status);
    }
}

static NTSTATUS Listen(ENDPOINT *Target)
{
    WAITER waiter;
    WaiterPrepare(&waiter);
    NTSTATUS status = Target->Adapter->Dispatch->NdkCreateListener(Target->Adapter, ConnectEvent, Target, WaiterCreateDone,
                                                                   &waiter, &Target->Listener);
    status = WaiterResult(&waiter, status, &Target->Listener);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    WaiterPrepare(&waiter);
    status = Target->Listener->Dispatch->NdkListen(Target->Listener, (SOCKADDR *)&Target->Address,
                                                   AddressLength(&Target->Address), WaiterRequestDone, &waiter);
    status = WaiterResult(&waiter, status, NULL);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    ULONG length = sizeof(Target->Address);
    return Target->Listener->Dispatch->NdkGetLocalAddress(Target->Listener, (SOCKADDR *)&Target->Address, &length);
}

NTSTATUS Connect(ENDPOINT *Initiator, ENDPOINT *Target)
{
    WAITER waiter;
    NTSTATUS status = Listen(Target);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    WaiterPrepare(&waiter);
    status = Initiator->Adapter->Dispatch->NdkCreateConnector(Initiator->Adapter, WaiterCreateDone, &waiter,
                                                              &Initiator->Connector);
    status = WaiterResult(&waiter, status, &Initiator->Connector);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    NDK_CONNECTOR *connector = Initiator->Connector;
    WaiterPrepare(&waiter);
    status = connector->Dispatch->NdkConnect(connector, Initiator->Pair, (SOCKADDR *)&Initiator->Address,
                                             AddressLength(&Initiator->Address), (SOCKADDR *)&Target->Address,
                                             AddressLength(&Target->Address), Initiator->Info.MaxInboundReadLimit,
                                             Initiator->Info.MaxOutboundReadLimit, &Hello, sizeof(Hello),
                                             WaiterRequestDone, &waiter);
    status = WaiterResult(&waiter, status, NULL);
    if (NT_SUCCESS(status)) {
        status = CheckHello(connector);
    }
    if (!NT_SUCCESS(status)) {
        return status;
    }
    WaiterPrepare(&waiter);
    status = connector->Dispatch->NdkCompleteConnect(connector, DisconnectEvent, Initiator, WaiterRequestDone, &waiter);
    status = WaiterResult(&waiter, status, NULL);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    KeWaitForSingleObject(&Target->Connected, Executive, KernelMode, FALSE, NULL);
    return Target->ConnectStatus;
}

/* The initiator's call ends when the target has answered with its own. */
VOID DisconnectGracefully(ENDPOINT *Initiator, ENDPOINT *Target)
{
    WAITER ours, theirs;
    WaiterPrepare(&ours);
    WaiterPrepare(&theirs);
    NTSTATUS status = Initiator->Connector->Dispatch->NdkDisconnect(Initiator->Connector, WaiterRequestDone, &ours);
    if (status == STATUS_PENDING) {
        KeWaitForSingleObject(&Target->Disconnected, Executive, KernelMode, FALSE, NULL);
    }
    NTSTATUS answer = Target->Connector->Dispatch->NdkDisconnect(Target->Connector, WaiterRequestDone, &theirs);
    answer = WaiterResult(&theirs, answer, NULL);
    status = WaiterResult(&ours, status, NULL);
    if (!NT_SUCCESS(status) || !NT_SUCCESS(answer)) {
        Consumer.Tally.Status = NT_SUCCESS(status) ? answer : status;
    }
}
