/*
 * Writes or messages instead of storage requests: each result brings the next post at once, in the loop that takes results
 * until there are none. That loop runs in the queue's notification or in the DPC of a timer. Or a thread polls for each result.
 */
#include "consumer.h"

#define SENDERS (SLOTS / 2)
#define TICK_MILLISECONDS 1
/* Writes that are posted and polled for before the thread goes below DISPATCH_LEVEL. */
#define POLLED_AT_ONCE 1000

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

static VOID Polled(SLOT *Slot, const NDK_RESULT_EX *Result)
{
    UNREFERENCED_PARAMETER(Result);
    InterlockedIncrement64(&Slot->Endpoint->Tally->Requests);
    Slot->Waiting = 0;
}

/* Nothing else of this processor runs between the post and its result: the poll itself has to bring it forward. */
static NTSTATUS WriteAndPoll(SLOT *Slot)
{
    KLOCK_QUEUE_HANDLE lock;
    Slot->Waiting = 1;
    KeAcquireInStackQueuedSpinLock(&Slot->Endpoint->InitiatorLock, &lock);
    NTSTATUS status = PostWrite(Slot);
    KeReleaseInStackQueuedSpinLock(&lock);
    while (NT_SUCCESS(status) && Slot->Waiting != 0) {
        EndpointDrain(Slot->Endpoint);
    }
    return status;
}

static VOID Poll(SLOT *Slot)
{
    NTSTATUS status = STATUS_SUCCESS;
    BOOLEAN enough = FALSE;
    while (NT_SUCCESS(status) && !enough && !Consumer.Stopping) {
        KIRQL level;
        KeRaiseIrql(DISPATCH_LEVEL, &level);
        for (ULONG count = 0; count < POLLED_AT_ONCE && NT_SUCCESS(status) && !enough; count++) {
            enough = InterlockedIncrement64(&Consumer.Started) > Consumer.Wanted && Consumer.Wanted != 0;
            if (!enough) {
                status = WriteAndPoll(Slot);
            }
        }
        KeLowerIrql(level);
        ParametersWriteTally();
    }
    if (!NT_SUCCESS(status) && status != STATUS_CANCELLED) {
        Failed(status);
    }
    Over();
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
        Initiator->Slots[index].Transfer.Done = Consumer.Pattern == PatternPolled ? Polled : Written;
        Initiator->Slots[index].Send.Done = Sent;
        Target->Slots[index].Receive.Done = Received;
        if (Consumer.Pattern != PatternPolled) {
            status = PostReceive(&Target->Slots[index]);
        }
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
    if (Consumer.Pattern == PatternPolled) {
        Consumer.InFlight = 1;
        Poll(&Initiator->Slots[0]);
        return;
    }
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
