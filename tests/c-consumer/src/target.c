/*
 * The target. A place holds one command from its arrival until the answer is sent; only then is its receive posted again,
 * so that a quick initiator's next command may have to wait for it.
 */
#include "consumer.h"

static PUCHAR Buffer(SLOT *Slot)
{
    return Slot->Endpoint->Buffers + (SIZE_T)Slot->Index * MOST_BYTES;
}

static VOID BufferSge(SLOT *Slot, NDK_SGE *Sge)
{
    NDK_MR *region = Slot->Endpoint->BufferRegion;
    Sge->VirtualAddress = Buffer(Slot);
    Sge->Length = Slot->Incoming.Length;
    Sge->MemoryRegionToken = region->Dispatch->NdkGetLocalTokenFromMr(region);
}

static VOID Fetch(SLOT *Slot)
{
    ENDPOINT *endpoint = Slot->Endpoint;
    NDK_SGE sge;
    KLOCK_QUEUE_HANDLE lock;
    NTSTATUS status = STATUS_CANCELLED;
    BufferSge(Slot, &sge);
    KeAcquireInStackQueuedSpinLock(&endpoint->InitiatorLock, &lock);
    if (!Consumer.Stopping && RequestBegin(endpoint, &Slot->Transfer, KindRead, FALSE)) {
        status = endpoint->Pair->Dispatch->NdkRead(endpoint->Pair, &Slot->Transfer, &sge, 1, Slot->Incoming.Address,
                                                   Slot->Incoming.Token, 0);
        if (!NT_SUCCESS(status)) {
            RequestRefused(endpoint, &Slot->Transfer);
        }
    }
    KeReleaseInStackQueuedSpinLock(&lock);
    if (!NT_SUCCESS(status)) {
        Failed(status);
    }
}

/* The data, if the answer brings some, and the answer behind it: one chain, of which only the answer has a result. */
static VOID Answer(SLOT *Slot)
{
    ENDPOINT *endpoint = Slot->Endpoint;
    NDK_SGE sge;
    KLOCK_QUEUE_HANDLE lock;
    NTSTATUS status = STATUS_SUCCESS;
    BufferSge(Slot, &sge);
    KeAcquireInStackQueuedSpinLock(&endpoint->InitiatorLock, &lock);
    if (Consumer.Stopping) {
        status = STATUS_CANCELLED;
    } else if (Slot->Incoming.Command == CommandRead && RequestBegin(endpoint, &Slot->Transfer, KindWrite, TRUE)) {
        status = endpoint->Pair->Dispatch->NdkWrite(endpoint->Pair, &Slot->Transfer, &sge, 1, Slot->Incoming.Address,
                                                    Slot->Incoming.Token, NDK_OP_FLAG_SILENT_SUCCESS | NDK_OP_FLAG_DEFER);
        if (!NT_SUCCESS(status)) {
            RequestRefused(endpoint, &Slot->Transfer);
        }
    }
    if (NT_SUCCESS(status)) {
        status = PostMessage(Slot, Slot->Incoming.KeepToken ? KindSend : KindSendAndInvalidate, Slot->Incoming.Token);
    }
    KeReleaseInStackQueuedSpinLock(&lock);
    if (!NT_SUCCESS(status)) {
        Failed(status);
    }
}

/* PASSIVE_LEVEL: checks the data that was read, or makes the data to be written. */
static VOID Execute(SLOT *Slot)
{
    const MESSAGE *command = &Slot->Incoming;
    MESSAGE *answer = &Slot->Outgoing;
    RtlZeroMemory(answer, sizeof(*answer));
    answer->Command = CommandAnswer;
    answer->Slot = command->Slot;
    if (command->Command == CommandRead) {
        answer->Checksum = PatternFill(Buffer(Slot), command->Length, command->Seed);
    } else {
        BOOLEAN right;
        answer->Checksum = PatternChecksum(Buffer(Slot), command->Length, command->Seed, &right);
        if (!right || answer->Checksum != command->Checksum) {
            answer->Status = STATUS_DATA_ERROR;
            InterlockedIncrement64(&Slot->Endpoint->Tally->Mismatches);
        }
    }
    Answer(Slot);
}

static VOID Commanded(SLOT *Slot, const NDK_RESULT_EX *Result)
{
    MESSAGE *command = &Slot->Incoming;
    *command = Slot->Endpoint->Messages[Slot->Index];
    if (Result->BytesTransferred != sizeof(*command) || command->Length > MOST_BYTES || command->Length % 8 != 0) {
        InterlockedIncrement64(&Slot->Endpoint->Tally->Mismatches);
    } else if (command->Command == CommandWrite) {
        Fetch(Slot);
    } else {
        WorkQueue(Slot);
    }
}

static VOID Fetched(SLOT *Slot, const NDK_RESULT_EX *Result)
{
    UNREFERENCED_PARAMETER(Result);
    WorkQueue(Slot);
}

static VOID AnswerSent(SLOT *Slot, const NDK_RESULT_EX *Result)
{
    TALLY *tally = Slot->Endpoint->Tally;
    UNREFERENCED_PARAMETER(Result);
    RequestSettle(Slot->Endpoint, &Slot->Transfer);
    InterlockedAdd64(&tally->TargetBytes, Slot->Incoming.Length);
    InterlockedAdd64(&tally->TargetChecksum, Slot->Outgoing.Checksum);
    NTSTATUS status = PostReceive(Slot);
    if (!NT_SUCCESS(status)) {
        Failed(status);
    }
    Over();
}

NTSTATUS TargetCreate(ENDPOINT *Endpoint)
{
    WAITER waiter;
    ULONG bytes = SLOTS * MOST_BYTES;
    Endpoint->Work = Execute;
    Endpoint->Buffers = MemoryAllocate(bytes);
    if (Endpoint->Buffers == NULL) {
        return STATUS_INSUFFICIENT_RESOURCES;
    }
    WaiterPrepare(&waiter);
    NTSTATUS status =
        Endpoint->Domain->Dispatch->NdkCreateMr(Endpoint->Domain, FALSE, WaiterCreateDone, &waiter, &Endpoint->BufferRegion);
    status = WaiterResult(&waiter, status, &Endpoint->BufferRegion);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    PMDL mdl = MdlChain(Endpoint->Buffers, bytes, 3);
    if (mdl == NULL) {
        return STATUS_INSUFFICIENT_RESOURCES;
    }
    WaiterPrepare(&waiter);
    status = Endpoint->BufferRegion->Dispatch->NdkRegisterMr(Endpoint->BufferRegion, mdl, bytes, NDK_MR_FLAG_ALLOW_LOCAL_WRITE,
                                                             WaiterRequestDone, &waiter);
    status = WaiterResult(&waiter, status, NULL);
    MdlChainFree(mdl);
    for (ULONG index = 0; index < SLOTS && NT_SUCCESS(status); index++) {
        SLOT *slot = &Endpoint->Slots[index];
        slot->Receive.Done = Commanded;
        slot->Send.Done = AnswerSent;
        slot->Transfer.Done = Fetched;
        status = PostReceive(slot);
    }
    return status;
}
