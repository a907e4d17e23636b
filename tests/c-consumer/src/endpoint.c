/* One end of the connection: its objects, its counts, and how results find the slot that waits for them. */
#include "consumer.h"

/* Enough for a command's chain, its answer and an invalidation of every slot. */
#define QUEUE_DEPTH (4 * SLOTS)
#define RESULTS_AT_ONCE 16u

BOOLEAN RequestBegin(ENDPOINT *Endpoint, REQUEST *Request, KIND Kind, BOOLEAN Silent)
{
    if (!Silent && !ExAcquireRundownProtection(&Endpoint->Busy)) {
        return FALSE;
    }
    Request->Kind = Kind;
    Request->Silent = Silent;
    if (InterlockedExchange(&Request->Posted, 1) != 0) {
        InterlockedIncrement64(&Endpoint->Tally->UnknownResults);
    }
    InterlockedIncrement64(&Endpoint->Tally->Kind[Kind].Posted);
    return TRUE;
}

/* The call failed: there will be no result. */
VOID RequestRefused(ENDPOINT *Endpoint, REQUEST *Request)
{
    InterlockedExchange(&Request->Posted, 0);
    InterlockedDecrement64(&Endpoint->Tally->Kind[Request->Kind].Posted);
    InterlockedIncrement64(&Endpoint->Tally->Kind[Request->Kind].Refused);
    if (!Request->Silent) {
        ExReleaseRundownProtection(&Endpoint->Busy);
    }
}

/* A later request on the queue is done: a silent one before it that had no result has succeeded. */
VOID RequestSettle(ENDPOINT *Endpoint, REQUEST *Request)
{
    if (Request->Silent && InterlockedExchange(&Request->Posted, 0) != 0) {
        InterlockedIncrement64(&Endpoint->Tally->Kind[Request->Kind].Silent);
    }
}

static VOID RequestDone(ENDPOINT *Endpoint, const NDK_RESULT_EX *Result)
{
    REQUEST *request = Result->RequestContext;
    if (InterlockedExchange(&request->Posted, 0) != 1) {
        InterlockedIncrement64(&Endpoint->Tally->UnknownResults);
        return;
    }
    /* A silent request has no hold on the endpoint, and its slot may be used again by the handler: the counts come first. */
    BOOLEAN held = !request->Silent;
    InterlockedIncrement64(&Endpoint->Tally->Kind[request->Kind].Completed);
    if (!NT_SUCCESS(Result->Status)) {
        InterlockedIncrement64(&Endpoint->Tally->Kind[request->Kind].Failed);
        Failed(Result->Status);
    } else if (request->Done != NULL) {
        request->Done(request->Slot, Result);
    }
    if (held) {
        ExReleaseRundownProtection(&Endpoint->Busy);
    }
}

/* DISPATCH_LEVEL: takes results until there are none. The handler of a result may post, and often does. */
static VOID Drain(NOTIFIER *Notifier)
{
    ENDPOINT *endpoint = Notifier->Endpoint;
    NDK_RESULT_EX results[RESULTS_AT_ONCE];
    LONG64 taken = 0;
    for (;;) {
        ULONG count = Notifier->Queue->Dispatch->NdkGetCqResultsEx(Notifier->Queue, results, RESULTS_AT_ONCE);
        if (count == 0) {
            break;
        }
        for (ULONG index = 0; index < count; index++) {
            RequestDone(endpoint, &results[index]);
        }
        taken += count;
        /* Written while it goes on: a loop without end is seen from outside. Two at once may lose one of two maxima. */
        if (taken > endpoint->Tally->Longest) {
            endpoint->Tally->Longest = taken;
        }
    }
}

/* From a timer's DPC. */
VOID EndpointDrain(ENDPOINT *Endpoint)
{
    if (ExAcquireRundownProtection(&Endpoint->Polling)) {
        Drain(&Endpoint->Initiated);
        if (Endpoint->Received.Queue != NULL) {
            Drain(&Endpoint->Received);
        }
        ExReleaseRundownProtection(&Endpoint->Polling);
    }
}

static VOID Notified(PVOID Context, NTSTATUS Status)
{
    NOTIFIER *notifier = Context;
    ENDPOINT *endpoint = notifier->Endpoint;
    KIRQL level;
    if (!ExAcquireRundownProtection(&endpoint->Polling)) {
        return;
    }
    InterlockedIncrement64(&endpoint->Tally->Notifications);
    if (KeGetCurrentIrql() == DISPATCH_LEVEL) {
        InterlockedIncrement64(&endpoint->Tally->NotificationsAtDispatch);
    }
    if (NT_SUCCESS(Status)) {
        KeRaiseIrql(DISPATCH_LEVEL, &level);
        Drain(notifier);
        notifier->Queue->Dispatch->NdkArmCq(notifier->Queue, NDK_CQ_NOTIFY_ANY);
        KeLowerIrql(level);
    }
    ExReleaseRundownProtection(&endpoint->Polling);
}

NTSTATUS PostReceive(SLOT *Slot)
{
    ENDPOINT *endpoint = Slot->Endpoint;
    NDK_SGE sge;
    KLOCK_QUEUE_HANDLE lock;
    NTSTATUS status = STATUS_CANCELLED;
    MessageSge(endpoint, Slot->Index, &sge);
    KeAcquireInStackQueuedSpinLock(&endpoint->ReceiveLock, &lock);
    if (!Consumer.Stopping && RequestBegin(endpoint, &Slot->Receive, KindReceive, FALSE)) {
        status = endpoint->Pair->Dispatch->NdkReceive(endpoint->Pair, &Slot->Receive, &sge, 1);
        if (!NT_SUCCESS(status)) {
            RequestRefused(endpoint, &Slot->Receive);
        }
    }
    KeReleaseInStackQueuedSpinLock(&lock);
    return status;
}

/* Sends the slot's message; the caller holds the initiator lock. */
NTSTATUS PostMessage(SLOT *Slot, KIND Kind, UINT32 Token)
{
    ENDPOINT *endpoint = Slot->Endpoint;
    NDK_SGE sge;
    NTSTATUS status;
    endpoint->Messages[SLOTS + Slot->Index] = Slot->Outgoing;
    MessageSge(endpoint, SLOTS + Slot->Index, &sge);
    if (Consumer.Stopping || !RequestBegin(endpoint, &Slot->Send, Kind, FALSE)) {
        return STATUS_CANCELLED;
    }
    if (Kind == KindSendAndInvalidate) {
        status = endpoint->Pair->Dispatch->NdkSendAndInvalidate(endpoint->Pair, &Slot->Send, &sge, 1,
                                                                NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT, Token);
    } else {
        status = endpoint->Pair->Dispatch->NdkSend(endpoint->Pair, &Slot->Send, &sge, 1, 0);
    }
    if (!NT_SUCCESS(status)) {
        RequestRefused(endpoint, &Slot->Send);
    }
    return status;
}

/* Checking data takes long: it is done at PASSIVE_LEVEL. */
static VOID Work(PVOID IoObject, PVOID Context, PIO_WORKITEM WorkItem)
{
    SLOT *slot = Context;
    ENDPOINT *endpoint = slot->Endpoint;
    UNREFERENCED_PARAMETER(IoObject);
    UNREFERENCED_PARAMETER(WorkItem);
    endpoint->Work(slot);
    ExReleaseRundownProtection(&endpoint->Busy);
}

VOID WorkQueue(SLOT *Slot)
{
    if (ExAcquireRundownProtection(&Slot->Endpoint->Busy)) {
        IoQueueWorkItemEx(Slot->WorkItem, Work, DelayedWorkQueue, Slot);
    }
}

VOID EndpointPrepare(ENDPOINT *Endpoint, PCSTR Name)
{
    Endpoint->Name = Name;
    Endpoint->Tally = &Consumer.Tally;
    ExInitializeRundownProtection(&Endpoint->Busy);
    ExInitializeRundownProtection(&Endpoint->Polling);
    KeInitializeEvent(&Endpoint->Connected, NotificationEvent, FALSE);
    KeInitializeEvent(&Endpoint->Disconnected, NotificationEvent, FALSE);
    for (ULONG index = 0; index < SLOTS; index++) {
        SLOT *slot = &Endpoint->Slots[index];
        slot->Endpoint = Endpoint;
        slot->Index = index;
        slot->Receive.Slot = slot;
        slot->Send.Slot = slot;
        slot->Transfer.Slot = slot;
        slot->FastRegister.Slot = slot;
        slot->Invalidate.Slot = slot;
    }
}

static NTSTATUS CreateWorkItems(ENDPOINT *Endpoint)
{
    for (ULONG index = 0; index < SLOTS; index++) {
        PIO_WORKITEM item = MemoryAllocate(IoSizeofWorkItem());
        if (item == NULL) {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        IoInitializeWorkItem(Consumer.Driver, item);
        Endpoint->Slots[index].WorkItem = item;
    }
    return STATUS_SUCCESS;
}

/* A context that posts after this sees that the traffic is to stop. */
VOID EndpointBarrier(ENDPOINT *Endpoint)
{
    KLOCK_QUEUE_HANDLE lock;
    KeAcquireInStackQueuedSpinLock(&Endpoint->InitiatorLock, &lock);
    KeReleaseInStackQueuedSpinLock(&lock);
    KeAcquireInStackQueuedSpinLock(&Endpoint->ReceiveLock, &lock);
    KeReleaseInStackQueuedSpinLock(&lock);
}

static NTSTATUS CreateQueue(ENDPOINT *Endpoint, NOTIFIER *Notifier, ULONG Depth)
{
    WAITER waiter;
    Notifier->Endpoint = Endpoint;
    WaiterPrepare(&waiter);
    NTSTATUS status = Endpoint->Adapter->Dispatch->NdkCreateCq(Endpoint->Adapter, Depth, Notified, Notifier, NULL,
                                                               WaiterCreateDone, &waiter, &Notifier->Queue);
    status = WaiterResult(&waiter, status, &Notifier->Queue);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    if ((Endpoint->Info.AdapterFlags & NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED) != 0) {
        status = Notifier->Queue->Dispatch->NdkControlCqInterruptModeration(Notifier->Queue, Endpoint->Moderation, MAXULONG);
    }
    if (Consumer.Pattern != PatternTimer && Consumer.Pattern != PatternPolled) {
        Notifier->Queue->Dispatch->NdkArmCq(Notifier->Queue, NDK_CQ_NOTIFY_ANY);
    }
    return status;
}

NTSTATUS EndpointCreate(ENDPOINT *Endpoint, BOOLEAN OneQueue)
{
    WAITER waiter;
    NTSTATUS status;
    status = CreateWorkItems(Endpoint);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    WaiterPrepare(&waiter);
    status = Endpoint->Adapter->Dispatch->NdkCreatePd(Endpoint->Adapter, WaiterCreateDone, &waiter, &Endpoint->Domain);
    status = WaiterResult(&waiter, status, &Endpoint->Domain);
    if (NT_SUCCESS(status)) {
        status = CreateQueue(Endpoint, &Endpoint->Initiated, QUEUE_DEPTH + SLOTS);
    }
    if (NT_SUCCESS(status) && !OneQueue) {
        status = CreateQueue(Endpoint, &Endpoint->Received, SLOTS);
    }
    if (NT_SUCCESS(status)) {
        NDK_CQ *received = OneQueue ? Endpoint->Initiated.Queue : Endpoint->Received.Queue;
        WaiterPrepare(&waiter);
        status = Endpoint->Domain->Dispatch->NdkCreateQp(Endpoint->Domain, received, Endpoint->Initiated.Queue, Endpoint,
                                                         SLOTS, QUEUE_DEPTH, 1, 1, 0, WaiterCreateDone, &waiter,
                                                         &Endpoint->Pair);
        status = WaiterResult(&waiter, status, &Endpoint->Pair);
    }
    if (NT_SUCCESS(status)) {
        status = MessagesCreate(Endpoint, OneQueue);
    }
    return status;
}

/*
 * Everything is closed at once and in an order that the interface allows: parents before their children.
 * The adapter's own close then waits for all of them again.
 */
VOID EndpointClose(ENDPOINT *Endpoint)
{
    CLOSER closer;
    CloserPrepare(&closer);
    if (Endpoint->Domain != NULL) {
        CloserClose(&closer, Endpoint->Domain, Endpoint->Domain->Dispatch->NdkClosePd);
    }
    if (Endpoint->Listener != NULL) {
        CloserClose(&closer, Endpoint->Listener, Endpoint->Listener->Dispatch->NdkCloseListener);
    }
    if (Endpoint->Initiated.Queue != NULL) {
        CloserClose(&closer, Endpoint->Initiated.Queue, Endpoint->Initiated.Queue->Dispatch->NdkCloseCq);
    }
    if (Endpoint->Received.Queue != NULL) {
        CloserClose(&closer, Endpoint->Received.Queue, Endpoint->Received.Queue->Dispatch->NdkCloseCq);
    }
    MemoryClose(Endpoint, &closer);
    if (Endpoint->Pair != NULL) {
        CloserClose(&closer, Endpoint->Pair, Endpoint->Pair->Dispatch->NdkCloseQp);
    }
    if (Endpoint->Connector != NULL) {
        CloserClose(&closer, Endpoint->Connector, Endpoint->Connector->Dispatch->NdkCloseConnector);
    }
    CloserWait(&closer);
    for (ULONG index = 0; index < SLOTS; index++) {
        SLOT *slot = &Endpoint->Slots[index];
        if (slot->WorkItem != NULL) {
            IoUninitializeWorkItem(slot->WorkItem);
        }
        RequestSettle(Endpoint, &slot->FastRegister);
        RequestSettle(Endpoint, &slot->Transfer);
    }
    MemoryRelease(Endpoint);
}
