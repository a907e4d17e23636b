/*
 * Writes or messages instead of storage requests: each result brings the next post at once, in the loop that takes results
 * until there are none. That loop runs in the queue's notification or in the DPC of a timer.
 */
#include "consumer.h"

#define SENDERS (SLOTS / 2)
#define TICK_MILLISECONDS 1

static KTIMER Timer;
static KDPC Deferred;
static BOOLEAN Ticking;

/* The caller holds the initiator lock. */
static NTSTATUS PostWrite(SLOT *Slot)
{
    ENDPOINT *endpoint = Slot->Endpoint;
    if (Consumer.Stopping || !RequestBegin(endpoint, &Slot->Transfer, KindWrite, FALSE)) {
        return STATUS_CANCELLED;
    }
    /* No bytes: no token is needed for them. */
    NTSTATUS status = endpoint->Pair->Dispatch->NdkWrite(endpoint->Pair, &Slot->Transfer, NULL, 0, 0, 0, 0);
    if (!NT_SUCCESS(status)) {
        RequestRefused(endpoint, &Slot->Transfer);
    }
    return status;
}

static VOID Next(SLOT *Slot)
{
    ENDPOINT *endpoint = Slot->Endpoint;
    KLOCK_QUEUE_HANDLE lock;
    BOOLEAN enough = InterlockedIncrement64(&Consumer.Started) > Consumer.Wanted && Consumer.Wanted != 0;
    if (enough || Consumer.Stopping) {
        Over();
        return;
    }
    KeAcquireInStackQueuedSpinLock(&endpoint->InitiatorLock, &lock);
    NTSTATUS status = Consumer.Pattern == PatternWrites ? PostWrite(Slot) : PostMessage(Slot, KindSend, 0);
    KeReleaseInStackQueuedSpinLock(&lock);
    if (!NT_SUCCESS(status)) {
        Failed(status);
        Over();
    }
}

static VOID Written(SLOT *Slot, const NDK_RESULT_EX *Result)
{
    UNREFERENCED_PARAMETER(Result);
    InterlockedIncrement64(&Slot->Endpoint->Tally->Requests);
    Next(Slot);
}

static VOID Sent(SLOT *Slot, const NDK_RESULT_EX *Result)
{
    UNREFERENCED_PARAMETER(Result);
    InterlockedIncrement64(&Slot->Endpoint->Tally->Requests);
    InterlockedAdd64(&Slot->Endpoint->Tally->InitiatorBytes, MESSAGE_BYTES);
    /* Both ends are drained by one DPC: the receive goes back first, so that nothing waits for one. */
    EndpointDrain(&Consumer.Target);
    Next(Slot);
}

static VOID Received(SLOT *Slot, const NDK_RESULT_EX *Result)
{
    InterlockedAdd64(&Slot->Endpoint->Tally->TargetBytes, Result->BytesTransferred);
    NTSTATUS status = PostReceive(Slot);
    if (!NT_SUCCESS(status)) {
        Failed(status);
    }
}

static VOID Tick(PKDPC Dpc, PVOID Context, PVOID First, PVOID Second)
{
    UNREFERENCED_PARAMETER(Dpc);
    UNREFERENCED_PARAMETER(Context);
    UNREFERENCED_PARAMETER(First);
    UNREFERENCED_PARAMETER(Second);
    EndpointDrain(&Consumer.Initiator);
    EndpointDrain(&Consumer.Target);
}

NTSTATUS DrainPrepare(ENDPOINT *Initiator, ENDPOINT *Target)
{
    NTSTATUS status = STATUS_SUCCESS;
    for (ULONG index = 0; index < SLOTS && NT_SUCCESS(status); index++) {
        Initiator->Slots[index].Transfer.Done = Written;
        Initiator->Slots[index].Send.Done = Sent;
        Target->Slots[index].Receive.Done = Received;
        status = PostReceive(&Target->Slots[index]);
    }
    if (NT_SUCCESS(status) && Consumer.Pattern == PatternTimer) {
        LARGE_INTEGER due = {.QuadPart = -10000 * TICK_MILLISECONDS};
        KeInitializeDpc(&Deferred, Tick, NULL);
        KeInitializeTimer(&Timer);
        KeSetTimerEx(&Timer, due, TICK_MILLISECONDS, &Deferred);
        Ticking = TRUE;
    }
    return status;
}

VOID DrainStart(ENDPOINT *Initiator)
{
    Consumer.InFlight = SENDERS;
    for (ULONG index = 0; index < SENDERS; index++) {
        Next(&Initiator->Slots[index]);
    }
}

VOID DrainStop(VOID)
{
    if (Ticking) {
        KeCancelTimer(&Timer);
        KeFlushQueuedDpcs();
        Ticking = FALSE;
    }
}
