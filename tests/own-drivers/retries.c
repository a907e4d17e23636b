/*
 * A consumer that asks for too much and retries with less until it gets something: a completion queue, a queue pair, and receives until
 * the queue is full. Refusals are its way of working, and no failure.
 */
#include "open.h"

#define MOST 0x00800000u

static NTSTATUS CreateQueue(NDK_ADAPTER *Adapter, NDK_CQ **Queue)
{
    NTSTATUS status = STATUS_UNSUCCESSFUL;
    for (ULONG depth = MOST; depth != 0 && !NT_SUCCESS(status); depth /= 2) {
        status = End(Adapter->Dispatch->NdkCreateCq(Adapter, depth, NULL, NULL, NULL, CreateDone, Begin(), Queue), Queue);
        if (NT_SUCCESS(status)) {
            DbgPrint("a completion queue for %u results\n", depth);
        }
    }
    return status;
}

static NTSTATUS CreatePair(NDK_PD *Domain, NDK_CQ *Queue, NDK_QP **Pair)
{
    NTSTATUS status = STATUS_UNSUCCESSFUL;
    for (ULONG depth = 1024; depth != 0 && !NT_SUCCESS(status); depth /= 2) {
        status = Domain->Dispatch->NdkCreateQp(Domain, Queue, Queue, NULL, depth, 4, 1, 1, 0, CreateDone, Begin(), Pair);
        status = End(status, Pair);
    }
    return status;
}

/* Receives of no bytes until one is refused; then all are flushed and counted. */
static NTSTATUS FillAndFlush(NDK_QP *Pair, NDK_CQ *Queue)
{
    NDK_RESULT_EX result;
    ULONG posted = 0;
    ULONG flushed = 0;
    NTSTATUS status;
    while (NT_SUCCESS(status = Pair->Dispatch->NdkReceive(Pair, NULL, NULL, 0))) {
        posted++;
    }
    Pair->Dispatch->NdkFlush(Pair);
    LARGE_INTEGER millisecond = {.QuadPart = -10000};
    while (flushed < posted) {
        if (Queue->Dispatch->NdkGetCqResultsEx(Queue, &result, 1) == 0) {
            KeDelayExecutionThread(KernelMode, FALSE, &millisecond);
            continue;
        }
        flushed++;
    }
    DbgPrint("%u receives fit, then 0x%08X\n", posted, status);
    return posted != 0 ? STATUS_SUCCESS : status;
}

static NTSTATUS Run(NDK_ADAPTER *Adapter)
{
    NDK_CQ *queue;
    NDK_PD *domain;
    NDK_QP *pair;
    NTSTATUS status = CreateQueue(Adapter, &queue);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    status = End(Adapter->Dispatch->NdkCreatePd(Adapter, CreateDone, Begin(), &domain), &domain);
    if (NT_SUCCESS(status)) {
        status = CreatePair(domain, queue, &pair);
        if (NT_SUCCESS(status)) {
            status = FillAndFlush(pair, queue);
            Close(pair, pair->Dispatch->NdkCloseQp);
        }
        Close(domain, domain->Dispatch->NdkClosePd);
    }
    Close(queue, queue->Dispatch->NdkCloseCq);
    return status;
}

static VOID Unload(PDRIVER_OBJECT Driver)
{
    UNREFERENCED_PARAMETER(Driver);
}

NTSTATUS DriverEntry(PDRIVER_OBJECT Driver, PUNICODE_STRING RegistryPath)
{
    NDK_ADAPTER *adapter;
    UNREFERENCED_PARAMETER(RegistryPath);
    Driver->DriverUnload = Unload;
    NTSTATUS status = OpenAdapter(11, &adapter);
    if (NT_SUCCESS(status)) {
        status = Run(adapter);
        CloseAdapter(adapter);
    }
    if (!NT_SUCCESS(status)) {
        DbgPrint("TEST-FAILED: 0x%08X\n", status);
    }
    return status;
}
