/* Pool, memory descriptor lists and the places of messages. */
#include "consumer.h"

PVOID MemoryAllocate(SIZE_T Bytes)
{
    return ExAllocatePool2(POOL_FLAG_NON_PAGED, Bytes, TAG);
}

VOID MemoryFree(PVOID Memory)
{
    if (Memory != NULL) {
        ExFreePoolWithTag(Memory, TAG);
    }
}

/* A range as a chain of lists whose seams lie on page borders. */
PMDL MdlChain(PVOID Address, ULONG Bytes, ULONG Pieces)
{
    PMDL first = NULL;
    PMDL *link = &first;
    PUCHAR next = Address;
    ULONG left = Bytes;
    while (left > 0) {
        ULONG length = left;
        ULONG share = left / Pieces;
        if (Pieces > 1 && share > PAGE_SIZE) {
            length = share - (ULONG)((ULONG_PTR)(next + share) % PAGE_SIZE);
            Pieces -= 1;
        }
        PMDL mdl = IoAllocateMdl(next, length, FALSE, FALSE, NULL);
        if (mdl == NULL) {
            MdlChainFree(first);
            return NULL;
        }
        MmBuildMdlForNonPagedPool(mdl);
        *link = mdl;
        link = &mdl->Next;
        next += length;
        left -= length;
    }
    return first;
}

VOID MdlChainFree(PMDL Mdl)
{
    while (Mdl != NULL) {
        PMDL next = Mdl->Next;
        IoFreeMdl(Mdl);
        Mdl = next;
    }
}

/*
 * Messages lie in a block of their own: SLOTS that arrive, then SLOTS that leave. The privileged way gives the provider
 * logical addresses, the other one addresses in a registered region.
 */
NTSTATUS MessagesCreate(ENDPOINT *Endpoint, BOOLEAN Privileged)
{
    ULONG bytes = 2 * SLOTS * MESSAGE_BYTES;
    ULONG pages = bytes / PAGE_SIZE + 1;
    ULONG mappingBytes = FIELD_OFFSET(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageArray) + pages * sizeof(NDK_LOGICAL_ADDRESS);
    WAITER waiter;
    NTSTATUS status;
    Endpoint->Messages = MemoryAllocate(bytes);
    PMDL mdl = Endpoint->Messages == NULL ? NULL : MdlChain(Endpoint->Messages, bytes, 1);
    if (mdl == NULL) {
        return STATUS_INSUFFICIENT_RESOURCES;
    }
    WaiterPrepare(&waiter);
    if (Privileged) {
        NDK_LOGICAL_ADDRESS_MAPPING *mapping = MemoryAllocate(mappingBytes);
        status = STATUS_INSUFFICIENT_RESOURCES;
        if (mapping != NULL) {
            status = Endpoint->Adapter->Dispatch->NdkBuildLAM(Endpoint->Adapter, mdl, bytes, WaiterRequestDone, &waiter,
                                                              mapping, &mappingBytes, &Endpoint->MessageOffset);
            status = WaiterResult(&waiter, status, NULL);
        }
        if (NT_SUCCESS(status)) {
            Endpoint->MessageMapping = mapping;
            Endpoint->Domain->Dispatch->NdkGetPrivilegedMemoryRegionToken(Endpoint->Domain, &Endpoint->PrivilegedToken);
        } else {
            MemoryFree(mapping);
        }
    } else {
        status = Endpoint->Domain->Dispatch->NdkCreateMr(Endpoint->Domain, FALSE, WaiterCreateDone, &waiter,
                                                         &Endpoint->MessageRegion);
        status = WaiterResult(&waiter, status, &Endpoint->MessageRegion);
        if (NT_SUCCESS(status)) {
            WaiterPrepare(&waiter);
            status = Endpoint->MessageRegion->Dispatch->NdkRegisterMr(Endpoint->MessageRegion, mdl, bytes,
                                                                      NDK_MR_FLAG_ALLOW_LOCAL_WRITE, WaiterRequestDone, &waiter);
            status = WaiterResult(&waiter, status, NULL);
        }
    }
    /* The provider has taken what it needs; mapping and region stay without the list. */
    MdlChainFree(mdl);
    return status;
}

VOID MessageSge(ENDPOINT *Endpoint, ULONG Index, NDK_SGE *Sge)
{
    Sge->Length = MESSAGE_BYTES;
    if (Endpoint->MessageMapping != NULL) {
        /* A block of whole pages: a message does not cross into another page. */
        ULONG place = Endpoint->MessageOffset + Index * MESSAGE_BYTES;
        Sge->LogicalAddress = Endpoint->MessageMapping->AdapterPageArray[place / PAGE_SIZE];
        Sge->LogicalAddress.QuadPart += place % PAGE_SIZE;
        Sge->MemoryRegionToken = Endpoint->PrivilegedToken;
    } else {
        Sge->VirtualAddress = &Endpoint->Messages[Index];
        Sge->MemoryRegionToken = Endpoint->MessageRegion->Dispatch->NdkGetLocalTokenFromMr(Endpoint->MessageRegion);
    }
}

VOID MemoryClose(ENDPOINT *Endpoint, CLOSER *Closer)
{
    for (ULONG index = 0; index < SLOTS; index++) {
        NDK_MR *region = Endpoint->Slots[index].Region;
        if (region != NULL) {
            CloserClose(Closer, region, region->Dispatch->NdkCloseMr);
        }
    }
    if (Endpoint->MessageRegion != NULL) {
        CloserClose(Closer, Endpoint->MessageRegion, Endpoint->MessageRegion->Dispatch->NdkCloseMr);
    }
    if (Endpoint->BufferRegion != NULL) {
        CloserClose(Closer, Endpoint->BufferRegion, Endpoint->BufferRegion->Dispatch->NdkCloseMr);
    }
}

/* Everything that used the mappings and the memory is closed. */
VOID MemoryRelease(ENDPOINT *Endpoint)
{
    for (ULONG index = 0; index < SLOTS; index++) {
        SLOT *slot = &Endpoint->Slots[index];
        if (slot->Mapped) {
            Endpoint->Adapter->Dispatch->NdkReleaseLAM(Endpoint->Adapter, slot->Mapping);
            slot->Mapped = FALSE;
        }
        MemoryFree(slot->Mapping);
        MemoryFree(slot->WorkItem);
        if (Endpoint->Buffers == NULL) {
            MemoryFree(slot->Buffer);
        }
    }
    if (Endpoint->MessageMapping != NULL) {
        Endpoint->Adapter->Dispatch->NdkReleaseLAM(Endpoint->Adapter, Endpoint->MessageMapping);
        MemoryFree(Endpoint->MessageMapping);
    }
    MemoryFree(Endpoint->Messages);
    MemoryFree(Endpoint->Buffers);
}
