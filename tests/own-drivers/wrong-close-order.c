/*
 * A mistake that consumers make: it closes its protection domain and waits for that before it closes the queue pair of the domain. The
 * wait never ends, on any provider.
 */
#include "open.h"

static NTSTATUS Run(NDK_ADAPTER *Adapter)
{
    NDK_CQ *queue = NULL;
    NDK_PD *domain = NULL;
    NDK_QP *pair = NULL;
    NTSTATUS status = Adapter->Dispatch->NdkCreateCq(Adapter, 8, NULL, NULL, NULL, CreateDone, Begin(), &queue);
    status = End(status, &queue);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    status = End(Adapter->Dispatch->NdkCreatePd(Adapter, CreateDone, Begin(), &domain), &domain);
    if (NT_SUCCESS(status)) {
        status = domain->Dispatch->NdkCreateQp(domain, queue, queue, NULL, 4, 4, 1, 1, 0, CreateDone, Begin(), &pair);
        status = End(status, &pair);
        /* Here: the queue pair should go first. */
        Close(domain, domain->Dispatch->NdkClosePd);
        if (NT_SUCCESS(status)) {
            Close(pair, pair->Dispatch->NdkCloseQp);
        }
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
    return status;
}
