/*
 * The initiator. A request goes from buffer to mapping to registration to command, and ends when the command's own result
 * and the target's answer are there and no request can reach the buffer any more.
 */
#include "consumer.h"

static ULONG64 RandomState = 0x2545F4914F6CDD1Dull;
static ULONG64 Sequence;

/* A name for the buffer that is no address of anything: a region's base is only an index. */
static PVOID Label(SLOT *Slot)
{
    return (PVOID)(((ULONG64)(Slot->Index + 1) << 40) + Slot->FirstByteOffset);
}

static NTSTATUS PostCommand(SLOT *Slot)
{
    ENDPOINT *endpoint = Slot->Endpoint;
    ULONG rights = Slot->Outgoing.Command == CommandRead ? NDK_OP_FLAG_ALLOW_REMOTE_WRITE : NDK_OP_FLAG_ALLOW_REMOTE_READ;
    KLOCK_QUEUE_HANDLE lock;
    NTSTATUS status = STATUS_CANCELLED;
    Slot->Waiting = 2;
    KeAcquireInStackQueuedSpinLock(&endpoint->InitiatorLock, &lock);
    if (!Consumer.Stopping && RequestBegin(endpoint, &Slot->FastRegister, KindFastRegister, TRUE)) {
        status = endpoint->Pair->Dispatch->NdkFastRegister(
            endpoint->Pair, &Slot->FastRegister, Slot->Region, Slot->Mapping->AdapterPageCount,
            Slot->Mapping->AdapterPageArray, Slot->FirstByteOffset, Slot->Outgoing.Length, Label(Slot),
            rights | NDK_OP_FLAG_SILENT_SUCCESS | NDK_OP_FLAG_DEFER);
        if (NT_SUCCESS(status)) {
            status = PostMessage(Slot, KindSend, 0);
        } else {
            RequestRefused(endpoint, &Slot->FastRegister);
        }
    }
    KeReleaseInStackQueuedSpinLock(&lock);
    return status;
}

static VOID MappingDone(PVOID Context, NTSTATUS Status)
{
    SLOT *slot = Context;
    ENDPOINT *endpoint = slot->Endpoint;
    /* The mapping stays good without the lists that it was made from. */
    MdlChainFree(slot->Mdl);
    slot->Mdl = NULL;
    if (NT_SUCCESS(Status)) {
        slot->Mapped = TRUE;
        slot->Outgoing.Address = (ULONG64)Label(slot);
        Status = PostCommand(slot);
    }
    if (!NT_SUCCESS(Status)) {
        Failed(Status);
        Over();
    }
    ExReleaseRundownProtection(&endpoint->Busy);
}

/* Fills a buffer, or wipes it where the target is to fill it, and maps it. */
static VOID Begin(SLOT *Slot)
{
    ENDPOINT *endpoint = Slot->Endpoint;
    MESSAGE *command = &Slot->Outgoing;
    KLOCK_QUEUE_HANDLE lock;
    KeAcquireInStackQueuedSpinLock(&endpoint->InitiatorLock, &lock);
    ULONG64 random = Random(&RandomState);
    ULONG64 number = ++Sequence;
    KeReleaseInStackQueuedSpinLock(&lock);
    /* Lengths over the whole range, half of them short. */
    ULONG most = (random & 1) != 0 ? MOST_BYTES : 0x10000;
    RtlZeroMemory(command, sizeof(*command));
    command->Command = (random & 2) != 0 ? CommandRead : CommandWrite;
    command->Slot = Slot->Index;
    command->Length = (LEAST_BYTES + (ULONG)((random >> 8) % (most - LEAST_BYTES + 8))) & ~7u;
    command->Token = Slot->Region->Dispatch->NdkGetRemoteTokenFromMr(Slot->Region);
    command->Seed = random;
    command->KeepToken = number % 4 == 0;
    Slot->Offset = (ULONG)(random >> 40) % PAGE_SIZE & ~7u;
    PUCHAR data = Slot->Buffer + Slot->Offset;
    if (command->Command == CommandWrite) {
        command->Checksum = PatternFill(data, command->Length, command->Seed);
    } else {
        RtlZeroMemory(data, command->Length);
    }
    Slot->Mdl = MdlChain(data, command->Length, 1 + Slot->Index % 3);
    if (Slot->Mdl == NULL || !ExAcquireRundownProtection(&endpoint->Busy)) {
        MdlChainFree(Slot->Mdl);
        Slot->Mdl = NULL;
        Failed(STATUS_INSUFFICIENT_RESOURCES);
        Over();
        return;
    }
    Slot->MappingBytes = FIELD_OFFSET(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageArray) + BUFFER_PAGES * 8;
    NTSTATUS status =
        endpoint->Adapter->Dispatch->NdkBuildLAM(endpoint->Adapter, Slot->Mdl, command->Length, MappingDone, Slot,
                                                 Slot->Mapping, &Slot->MappingBytes, &Slot->FirstByteOffset);
    if (status == STATUS_PENDING) {
        InterlockedIncrement64(&endpoint->Tally->MappingsPended);
    } else {
        MappingDone(Slot, status);
    }
}

static VOID Next(SLOT *Slot)
{
    BOOLEAN enough = InterlockedIncrement64(&Consumer.Started) > Consumer.Wanted && Consumer.Wanted != 0;
    if (enough || Consumer.Stopping) {
        Over();
        return;
    }
    /* The target gives it back when the receive that the command took is posted again: not before its answer's own result. */
    InterlockedIncrement64(&Consumer.InFlight);
    Begin(Slot);
}

/* PASSIVE_LEVEL: the request is over and its buffer is the slot's own again. */
static VOID Examine(SLOT *Slot)
{
    ENDPOINT *endpoint = Slot->Endpoint;
    TALLY *tally = endpoint->Tally;
    const MESSAGE *command = &Slot->Outgoing;
    BOOLEAN right;
    ULONG64 sum = PatternChecksum(Slot->Buffer + Slot->Offset, command->Length, command->Seed, &right);
    if (!right || Slot->Incoming.Status != STATUS_SUCCESS || Slot->Incoming.Checksum != sum) {
        InterlockedIncrement64(&tally->Mismatches);
    }
    InterlockedAdd64(&tally->InitiatorBytes, command->Length);
    InterlockedAdd64(&tally->InitiatorChecksum, sum);
    InterlockedIncrement64(&tally->Requests);
    endpoint->Adapter->Dispatch->NdkReleaseLAM(endpoint->Adapter, Slot->Mapping);
    Slot->Mapped = FALSE;
    Next(Slot);
}

static VOID OneLess(SLOT *Slot)
{
    if (InterlockedDecrement(&Slot->Waiting) == 0) {
        WorkQueue(Slot);
    }
}

static VOID CommandSent(SLOT *Slot, const NDK_RESULT_EX *Result)
{
    UNREFERENCED_PARAMETER(Result);
    RequestSettle(Slot->Endpoint, &Slot->FastRegister);
    OneLess(Slot);
}

static VOID Invalidated(SLOT *Slot, const NDK_RESULT_EX *Result)
{
    UNREFERENCED_PARAMETER(Result);
    OneLess(Slot);
}

static VOID InvalidateHere(SLOT *Slot)
{
    ENDPOINT *endpoint = Slot->Endpoint;
    KLOCK_QUEUE_HANDLE lock;
    KeAcquireInStackQueuedSpinLock(&endpoint->InitiatorLock, &lock);
    if (!Consumer.Stopping && RequestBegin(endpoint, &Slot->Invalidate, KindInvalidate, FALSE)) {
        NTSTATUS status =
            endpoint->Pair->Dispatch->NdkInvalidate(endpoint->Pair, &Slot->Invalidate, &Slot->Region->Header, 0);
        if (!NT_SUCCESS(status)) {
            RequestRefused(endpoint, &Slot->Invalidate);
            Failed(status);
        }
    }
    KeReleaseInStackQueuedSpinLock(&lock);
}

/* An answer comes in whichever receive is next; it names the slot that it is for. */
static VOID Answered(SLOT *Place, const NDK_RESULT_EX *Result)
{
    ENDPOINT *endpoint = Place->Endpoint;
    MESSAGE message = endpoint->Messages[Place->Index];
    NTSTATUS status = PostReceive(Place);
    if (!NT_SUCCESS(status)) {
        Failed(status);
    }
    if (Result->BytesTransferred != sizeof(message) || message.Command != CommandAnswer || message.Slot >= SLOTS) {
        InterlockedIncrement64(&endpoint->Tally->Mismatches);
        return;
    }
    SLOT *slot = &endpoint->Slots[message.Slot];
    slot->Incoming = message;
    if (Result->Type != NdkOperationTypeReceiveAndInvalidate) {
        InvalidateHere(slot);
        return;
    }
    if (slot->Outgoing.KeepToken || Result->TypeSpecificCompletionOutput != slot->Outgoing.Token) {
        InterlockedIncrement64(&endpoint->Tally->Mismatches);
    }
    OneLess(slot);
}

static NTSTATUS CreateRegion(SLOT *Slot)
{
    ENDPOINT *endpoint = Slot->Endpoint;
    WAITER waiter;
    WaiterPrepare(&waiter);
    NTSTATUS status =
        endpoint->Domain->Dispatch->NdkCreateMr(endpoint->Domain, TRUE, WaiterCreateDone, &waiter, &Slot->Region);
    status = WaiterResult(&waiter, status, &Slot->Region);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    WaiterPrepare(&waiter);
    status = Slot->Region->Dispatch->NdkInitializeFastRegisterMr(Slot->Region, BUFFER_PAGES, TRUE, WaiterRequestDone, &waiter);
    return WaiterResult(&waiter, status, NULL);
}

NTSTATUS InitiatorCreate(ENDPOINT *Endpoint)
{
    Endpoint->Work = Examine;
    for (ULONG index = 0; index < SLOTS; index++) {
        SLOT *slot = &Endpoint->Slots[index];
        slot->Receive.Done = Answered;
        slot->Send.Done = CommandSent;
        slot->Invalidate.Done = Invalidated;
        slot->Buffer = MemoryAllocate(BUFFER_BYTES);
        slot->Mapping = MemoryAllocate(FIELD_OFFSET(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageArray) + BUFFER_PAGES * 8);
        if (slot->Buffer == NULL || slot->Mapping == NULL) {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        NTSTATUS status = CreateRegion(slot);
        if (NT_SUCCESS(status)) {
            status = PostReceive(slot);
        }
        if (!NT_SUCCESS(status)) {
            return status;
        }
    }
    return STATUS_SUCCESS;
}

VOID InitiatorStart(ENDPOINT *Endpoint)
{
    Consumer.InFlight = SLOTS;
    for (ULONG index = 0; index < SLOTS; index++) {
        Next(&Endpoint->Slots[index]);
    }
}
