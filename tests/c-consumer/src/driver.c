/* Entry, unload, and the thread that runs the scenario from the open of the adapters to their close. */
#include "consumer.h"

CONSUMER Consumer;

/* An unexpected failure ends the traffic; a request that is flushed because of the end is not a failure. */
VOID Failed(NTSTATUS Status)
{
    if (!Consumer.Stopping && Consumer.Tally.State < StateEnding) {
        Consumer.Tally.Status = Status;
        KeSetEvent(&Consumer.Stop, 0, FALSE);
    }
}

/* One half of a request is over. */
VOID Over(VOID)
{
    if (InterlockedDecrement64(&Consumer.InFlight) == 0) {
        KeSetEvent(&Consumer.Idle, 0, FALSE);
    }
}

static NTSTATUS Prepare(VOID)
{
    const NDK_VERSION first = {1, 2};
    const NDK_VERSION second = {2, 0};
    NTSTATUS status = WskStart();
    if (NT_SUCCESS(status)) {
        status = AdapterOpen(&Consumer.Target, first);
    }
    if (NT_SUCCESS(status)) {
        status = AdapterOpen(&Consumer.Initiator, second);
    }
    if (NT_SUCCESS(status)) {
        status = EndpointCreate(&Consumer.Target, TRUE);
    }
    if (NT_SUCCESS(status)) {
        status = EndpointCreate(&Consumer.Initiator, FALSE);
    }
    if (NT_SUCCESS(status) && Consumer.Pattern == PatternStorage) {
        status = TargetCreate(&Consumer.Target);
        if (NT_SUCCESS(status)) {
            status = InitiatorCreate(&Consumer.Initiator);
        }
    } else if (NT_SUCCESS(status)) {
        status = DrainPrepare(&Consumer.Initiator, &Consumer.Target);
    }
    if (NT_SUCCESS(status)) {
        status = Connect(&Consumer.Initiator, &Consumer.Target);
    }
    return status;
}

static BOOLEAN IsSet(PKEVENT Event, LONGLONG Milliseconds)
{
    LARGE_INTEGER timeout = {.QuadPart = -10000 * Milliseconds};
    return KeWaitForSingleObject(Event, Executive, KernelMode, FALSE, &timeout) == STATUS_SUCCESS;
}

/* Until all requests are done, or something failed, or the driver is to go. */
static VOID Watch(VOID)
{
    while (!IsSet(&Consumer.Idle, 10) && !IsSet(&Consumer.Stop, 0)) {
        ParametersWriteTally();
    }
}

/* In the middle of everything: nothing new is posted, and what is under way is flushed. */
static VOID BreakOff(VOID)
{
    Consumer.Stopping = TRUE;
    ENDPOINT *ends[] = {&Consumer.Initiator, &Consumer.Target};
    for (ULONG index = 0; index < RTL_NUMBER_OF(ends); index++) {
        EndpointBarrier(ends[index]);
        if (ends[index]->Pair != NULL) {
            ends[index]->Pair->Dispatch->NdkFlush(ends[index]->Pair);
        }
    }
}

static VOID Finish(VOID)
{
    ExWaitForRundownProtectionRelease(&Consumer.Initiator.Busy);
    ExWaitForRundownProtectionRelease(&Consumer.Target.Busy);
    DrainStop();
    ExWaitForRundownProtectionRelease(&Consumer.Initiator.Polling);
    ExWaitForRundownProtectionRelease(&Consumer.Target.Polling);
    EndpointClose(&Consumer.Initiator);
    EndpointClose(&Consumer.Target);
    AdapterClose(&Consumer.Initiator);
    AdapterClose(&Consumer.Target);
    WskStop();
}

static VOID Lead(PVOID Context)
{
    UNREFERENCED_PARAMETER(Context);
    NTSTATUS status = Prepare();
    if (NT_SUCCESS(status)) {
        Consumer.Tally.State = StateRunning;
        if (Consumer.Pattern == PatternStorage) {
            InitiatorStart(&Consumer.Initiator);
        } else {
            DrainStart(&Consumer.Initiator);
        }
        Watch();
    } else {
        Consumer.Tally.Status = status;
    }
    BOOLEAN quiet = NT_SUCCESS(Consumer.Tally.Status) && Consumer.InFlight == 0;
    Consumer.Tally.State = StateEnding;
    if (quiet) {
        DisconnectGracefully(&Consumer.Initiator, &Consumer.Target);
    }
    BreakOff();
    Finish();
    Consumer.Tally.State = StateDone;
    ParametersWriteTally();
    if (!NT_SUCCESS(Consumer.Tally.Status)) {
        DbgPrint("TEST-FAILED: c-consumer ended with 0x%08X\n", Consumer.Tally.Status);
    }
}

static VOID Unload(PDRIVER_OBJECT Driver)
{
    UNREFERENCED_PARAMETER(Driver);
    KeSetEvent(&Consumer.Stop, 0, FALSE);
    KeWaitForSingleObject(Consumer.Thread, Executive, KernelMode, FALSE, NULL);
    ObDereferenceObject(Consumer.Thread);
    ZwClose(Consumer.Key);
}

static NTSTATUS StartThread(VOID)
{
    HANDLE handle;
    OBJECT_ATTRIBUTES attributes;
    InitializeObjectAttributes(&attributes, NULL, OBJ_KERNEL_HANDLE, NULL, NULL);
    NTSTATUS status = PsCreateSystemThread(&handle, THREAD_ALL_ACCESS, &attributes, NULL, NULL, Lead, NULL);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    status = ObReferenceObjectByHandle(handle, THREAD_ALL_ACCESS, *PsThreadType, KernelMode, &Consumer.Thread, NULL);
    ZwClose(handle);
    return status;
}

NTSTATUS DriverEntry(PDRIVER_OBJECT Driver, PUNICODE_STRING RegistryPath)
{
    Consumer.Driver = Driver;
    Driver->DriverUnload = Unload;
    KeInitializeEvent(&Consumer.Stop, NotificationEvent, FALSE);
    KeInitializeEvent(&Consumer.Idle, NotificationEvent, FALSE);
    EndpointPrepare(&Consumer.Initiator, "initiator");
    EndpointPrepare(&Consumer.Target, "target");
    NTSTATUS status = ParametersOpen(RegistryPath);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    status = ParametersRead();
    if (NT_SUCCESS(status)) {
        status = StartThread();
    }
    if (!NT_SUCCESS(status)) {
        ZwClose(Consumer.Key);
    }
    return status;
}
