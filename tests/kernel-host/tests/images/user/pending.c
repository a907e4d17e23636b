/*
 * A driver with one device for programs of user mode: it answers at once by each method, and keeps requests until they are
 * released, cancelled or cleaned up.
 */
#include <wdm.h>

#include "codes.h"

#define STATUS_BUFFER_OVERFLOW ((NTSTATUS)0x80000005)

typedef struct {
    ULONG status;
    ULONG information;
} RELEASE;

static KSPIN_LOCK lock;
static LIST_ENTRY queue = {&queue, &queue};
static PDEVICE_OBJECT device;

static NTSTATUS Complete(PIRP irp, NTSTATUS status, ULONG_PTR information)
{
    irp->IoStatus.Status = status;
    irp->IoStatus.Information = information;
    IoCompleteRequest(irp, IO_NO_INCREMENT);
    return status;
}

static VOID Remove(LIST_ENTRY *entry)
{
    entry->Blink->Flink = entry->Flink;
    entry->Flink->Blink = entry->Blink;
    entry->Flink = entry->Blink = entry;
}

static VOID Cancel(PDEVICE_OBJECT unused, PIRP irp)
{
    KIRQL level;
    UNREFERENCED_PARAMETER(unused);
    IoReleaseCancelSpinLock(irp->CancelIrql);
    level = KeAcquireSpinLockRaiseToDpc(&lock);
    Remove(&irp->Tail.Overlay.ListEntry);
    KeReleaseSpinLock(&lock, level);
    Complete(irp, STATUS_CANCELLED, 0);
}

static PVOID Map(PIRP irp)
{
    return MmMapLockedPagesSpecifyCache(irp->MdlAddress, KernelMode, MmCached, NULL, FALSE,
                                        NormalPagePriority | MdlMappingNoExecute);
}

static NTSTATUS Pend(PIRP irp)
{
    LIST_ENTRY *entry = &irp->Tail.Overlay.ListEntry;
    KIRQL level;
    irp->Tail.Overlay.DriverContext[0] = irp->MdlAddress == NULL ? NULL : Map(irp);
    level = KeAcquireSpinLockRaiseToDpc(&lock);
    IoMarkIrpPending(irp);
    IoSetCancelRoutine(irp, Cancel);
    if (irp->Cancel && IoSetCancelRoutine(irp, NULL) != NULL) {
        KeReleaseSpinLock(&lock, level);
        Complete(irp, STATUS_CANCELLED, 0);
        return STATUS_PENDING;
    }
    entry->Flink = &queue;
    entry->Blink = queue.Blink;
    queue.Blink->Flink = entry;
    queue.Blink = entry;
    KeReleaseSpinLock(&lock, level);
    return STATUS_PENDING;
}

/* The first request that pends, of one file or of any; it is the caller's to complete. */
static PIRP Take(PFILE_OBJECT file)
{
    KIRQL level = KeAcquireSpinLockRaiseToDpc(&lock);
    PIRP found = NULL;
    for (LIST_ENTRY *entry = queue.Flink; entry != &queue; entry = entry->Flink) {
        PIRP irp = CONTAINING_RECORD(entry, IRP, Tail.Overlay.ListEntry);
        BOOLEAN meant = file == NULL || IoGetCurrentIrpStackLocation(irp)->FileObject == file;
        /* Without its routine it is being cancelled, and is the routine's. */
        if (meant && IoSetCancelRoutine(irp, NULL) != NULL) {
            Remove(entry);
            found = irp;
            break;
        }
    }
    KeReleaseSpinLock(&lock, level);
    return found;
}

static ULONG Outstanding(VOID)
{
    KIRQL level = KeAcquireSpinLockRaiseToDpc(&lock);
    ULONG count = 0;
    for (LIST_ENTRY *entry = queue.Flink; entry != &queue; entry = entry->Flink) {
        count++;
    }
    KeReleaseSpinLock(&lock, level);
    return count;
}

static NTSTATUS Release(PIRP irp, const RELEASE *how)
{
    PIRP first = Take(NULL);
    PUCHAR view;
    if (first == NULL) {
        return Complete(irp, STATUS_DATA_ERROR, 0);
    }
    view = first->Tail.Overlay.DriverContext[0];
    if (view != NULL && IoGetCurrentIrpStackLocation(first)->Parameters.DeviceIoControl.IoControlCode == CODE_PEND_OUT) {
        view[0] = 0x5A;
    } else if (view == NULL) {
        memset(first->AssociatedIrp.SystemBuffer, 0x5A, how->information);
    }
    Complete(first, (NTSTATUS)how->status, how->information);
    return Complete(irp, STATUS_SUCCESS, 0);
}

static NTSTATUS Count(PIRP irp, ULONG length)
{
    const UCHAR *view = Map(irp);
    ULONG found = 0;
    for (ULONG index = 0; index < length; index++) {
        found += view[index] != 0;
    }
    return Complete(irp, STATUS_SUCCESS, found);
}

static NTSTATUS Answer(PIRP irp, ULONG value)
{
    memcpy(irp->AssociatedIrp.SystemBuffer, &value, sizeof(value));
    return Complete(irp, STATUS_SUCCESS, sizeof(value));
}

static NTSTATUS Control(PDEVICE_OBJECT unused, PIRP irp)
{
    IO_STACK_LOCATION *stack = IoGetCurrentIrpStackLocation(irp);
    ULONG input = stack->Parameters.DeviceIoControl.InputBufferLength;
    ULONG output = stack->Parameters.DeviceIoControl.OutputBufferLength;
    PUCHAR buffer = irp->AssociatedIrp.SystemBuffer;
    UNREFERENCED_PARAMETER(unused);
    switch (stack->Parameters.DeviceIoControl.IoControlCode) {
    case CODE_ECHO:
        for (ULONG index = 0; index < input; index++) {
            buffer[index]++;
        }
        return Complete(irp, STATUS_SUCCESS, input < output ? input : output);
    case CODE_FILL:
        memset(Map(irp), buffer[0], output);
        return Complete(irp, STATUS_SUCCESS, output);
    case CODE_COUNT:
        return Count(irp, output);
    case CODE_SCRIBBLE:
        *(PUCHAR)Map(irp) = 1;
        return Complete(irp, STATUS_SUCCESS, 0);
    case CODE_PEND:
    case CODE_PEND_OUT:
    case CODE_PEND_IN:
        return Pend(irp);
    case CODE_RELEASE:
        return Release(irp, (const RELEASE *)buffer);
    case CODE_OUTSTANDING:
        return Answer(irp, Outstanding());
    case CODE_WARN:
        memset(buffer, 0x77, 4);
        return Complete(irp, STATUS_BUFFER_OVERFLOW, 4);
    case CODE_FAIL:
        return Complete(irp, STATUS_INVALID_PARAMETER, 0);
    case CODE_LATE:
        IoMarkIrpPending(irp);
        Answer(irp, 1);
        return STATUS_PENDING;
    case CODE_PROCESS:
        return Answer(irp, IoGetRequestorProcessId(irp));
    default:
        return Complete(irp, STATUS_INVALID_DEVICE_REQUEST, 0);
    }
}

static NTSTATUS Succeed(PDEVICE_OBJECT unused, PIRP irp)
{
    UNREFERENCED_PARAMETER(unused);
    return Complete(irp, STATUS_SUCCESS, 0);
}

static NTSTATUS Cleanup(PDEVICE_OBJECT unused, PIRP irp)
{
    PFILE_OBJECT file = IoGetCurrentIrpStackLocation(irp)->FileObject;
    PIRP pended;
    UNREFERENCED_PARAMETER(unused);
    while ((pended = Take(file)) != NULL) {
        Complete(pended, STATUS_CANCELLED, 0);
    }
    return Complete(irp, STATUS_SUCCESS, 0);
}

static VOID Unload(PDRIVER_OBJECT driver)
{
    UNICODE_STRING link;
    UNREFERENCED_PARAMETER(driver);
    RtlInitUnicodeString(&link, L"\\??\\Pending");
    IoDeleteSymbolicLink(&link);
    IoDeleteDevice(device);
}

NTSTATUS DriverEntry(PDRIVER_OBJECT driver, PUNICODE_STRING path)
{
    UNICODE_STRING name, link;
    NTSTATUS status;
    UNREFERENCED_PARAMETER(path);
    driver->DriverUnload = Unload;
    driver->MajorFunction[IRP_MJ_CREATE] = Succeed;
    driver->MajorFunction[IRP_MJ_CLOSE] = Succeed;
    driver->MajorFunction[IRP_MJ_CLEANUP] = Cleanup;
    driver->MajorFunction[IRP_MJ_DEVICE_CONTROL] = Control;
    RtlInitUnicodeString(&name, L"\\Device\\Pending");
    RtlInitUnicodeString(&link, L"\\??\\Pending");
    status = IoCreateDevice(driver, 0, &name, FILE_DEVICE_UNKNOWN, 0, FALSE, &device);
    return NT_SUCCESS(status) ? IoCreateSymbolicLink(&link, &name) : status;
}
