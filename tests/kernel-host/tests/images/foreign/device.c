/*
 * A driver with devices of its own, as a driver has that is not a miniport: named and exclusive ones, links, packets, a
 * list under a spin lock, formatted text, event tracing. `DriverEntry` fails with the line of the first value that is not as it
 * should be.
 */
#include <wdm.h>

#define CHECK(condition)                               \
    do {                                               \
        if (!(condition)) {                            \
            return (NTSTATUS)(0xE0000000u | __LINE__); \
        }                                              \
    } while (0)

NTKERNELAPI int _snprintf(CHAR *buffer, SIZE_T count, PCSTR format, ...);
NTKERNELAPI int _vsnwprintf(WCHAR *buffer, SIZE_T count, PCWSTR format, __builtin_va_list arguments);
NTKERNELAPI LIST_ENTRY *ExInterlockedInsertHeadList(LIST_ENTRY *head, LIST_ENTRY *entry, PKSPIN_LOCK lock);
NTKERNELAPI LIST_ENTRY *ExInterlockedInsertTailList(LIST_ENTRY *head, LIST_ENTRY *entry, PKSPIN_LOCK lock);
NTKERNELAPI LIST_ENTRY *ExInterlockedRemoveHeadList(LIST_ENTRY *head, PKSPIN_LOCK lock);
NTKERNELAPI NTSTATUS EtwRegister(const void *provider, PVOID callback, PVOID context, ULONG64 *handle);
NTKERNELAPI NTSTATUS EtwWriteTransfer(ULONG64 handle, const void *event, const void *activity, const void *related,
                                      ULONG count, PVOID data);
NTKERNELAPI NTSTATUS EtwUnregister(ULONG64 handle);

#define DESCRIBE CTL_CODE(FILE_DEVICE_UNKNOWN, 0x800, METHOD_BUFFERED, FILE_ANY_ACCESS)
#define MAKE_LATER CTL_CODE(FILE_DEVICE_UNKNOWN, 0x801, METHOD_BUFFERED, FILE_ANY_ACCESS)
#define FINISH_LATER CTL_CODE(FILE_DEVICE_UNKNOWN, 0x802, METHOD_BUFFERED, FILE_ANY_ACCESS)
#define HOLD CTL_CODE(FILE_DEVICE_UNKNOWN, 0x803, METHOD_OUT_DIRECT, FILE_ANY_ACCESS)
#define FINISH_HELD CTL_CODE(FILE_DEVICE_UNKNOWN, 0x804, METHOD_BUFFERED, FILE_ANY_ACCESS)

typedef struct {
    ULONG opened;
    ULONG closed;
} EXTENSION;

static PDRIVER_OBJECT us;
static PDEVICE_OBJECT later;
static PIRP held;
static BOOLEAN forgetful;

/* From now on the driver leaves everything behind. */
VOID Forget(VOID)
{
    forgetful = TRUE;
}

/* Deletes a device twice. */
VOID DeleteTwice(VOID)
{
    PDEVICE_OBJECT device = us->DeviceObject;
    IoDeleteDevice(device);
    IoDeleteDevice(device);
}

static UNICODE_STRING Text(PCWSTR text)
{
    UNICODE_STRING string;
    RtlInitUnicodeString(&string, text);
    return string;
}

static NTSTATUS Make(PCWSTR name, PCWSTR link, BOOLEAN exclusive, PDEVICE_OBJECT *made)
{
    UNICODE_STRING device = Text(name), symbolic = Text(link);
    NTSTATUS status = IoCreateDevice(us, sizeof(EXTENSION), &device, FILE_DEVICE_UNKNOWN, FILE_DEVICE_SECURE_OPEN,
                                     exclusive, made);
    if (NT_SUCCESS(status)) {
        status = IoCreateSymbolicLink(&symbolic, &device);
    }
    return status;
}

static NTSTATUS Complete(PIRP irp, NTSTATUS status, ULONG_PTR information)
{
    irp->IoStatus.Status = status;
    irp->IoStatus.Information = information;
    IoCompleteRequest(irp, IO_NO_INCREMENT);
    return status;
}

static NTSTATUS Create(PDEVICE_OBJECT device, PIRP irp)
{
    ((EXTENSION *)device->DeviceExtension)->opened++;
    return Complete(irp, STATUS_SUCCESS, 0);
}

static NTSTATUS Close(PDEVICE_OBJECT device, PIRP irp)
{
    ((EXTENSION *)device->DeviceExtension)->closed++;
    return Complete(irp, STATUS_SUCCESS, 0);
}

static NTSTATUS Control(PDEVICE_OBJECT device, PIRP irp)
{
    IO_STACK_LOCATION *stack = IoGetCurrentIrpStackLocation(irp);
    EXTENSION *extension = device->DeviceExtension;
    int length;
    switch (stack->Parameters.DeviceIoControl.IoControlCode) {
    case DESCRIBE:
        length = _snprintf(irp->AssociatedIrp.SystemBuffer, stack->Parameters.DeviceIoControl.OutputBufferLength,
                           "%s:%u opened,%3u closed, %ws %08lX", "device", extension->opened, extension->closed, L"wide",
                           0xABCDEFul);
        return length < 0 ? Complete(irp, STATUS_BUFFER_TOO_SMALL, 0) : Complete(irp, STATUS_SUCCESS, length);
    case MAKE_LATER:
        return Complete(irp, Make(L"\\Device\\Later", L"\\??\\Later", FALSE, &later), 0);
    case FINISH_LATER:
        later->Flags &= ~DO_DEVICE_INITIALIZING;
        return Complete(irp, STATUS_SUCCESS, 0);
    case HOLD:
        IoMarkIrpPending(irp);
        held = irp;
        return STATUS_PENDING;
    case FINISH_HELD:
        Complete(held, STATUS_SUCCESS, 0);
        return Complete(irp, STATUS_SUCCESS, 0);
    default:
        return Complete(irp, STATUS_INVALID_DEVICE_REQUEST, 0);
    }
}

static NTSTATUS Lists(VOID)
{
    KSPIN_LOCK lock = 0;
    LIST_ENTRY head = {&head, &head}, one, two;
    CHECK(ExInterlockedRemoveHeadList(&head, &lock) == NULL);
    CHECK(ExInterlockedInsertTailList(&head, &two, &lock) == NULL);
    CHECK(ExInterlockedInsertHeadList(&head, &one, &lock) == &two);
    CHECK(head.Blink == &two && two.Blink == &one && one.Blink == &head);
    CHECK(ExInterlockedRemoveHeadList(&head, &lock) == &one);
    CHECK(ExInterlockedRemoveHeadList(&head, &lock) == &two);
    CHECK(head.Flink == &head && head.Blink == &head && lock == 0);
    return STATUS_SUCCESS;
}

static int Format(WCHAR *buffer, SIZE_T count, PCWSTR format, ...)
{
    __builtin_va_list arguments;
    int length;
    __builtin_va_start(arguments, format);
    length = _vsnwprintf(buffer, count, format, arguments);
    __builtin_va_end(arguments);
    return length;
}

static NTSTATUS Texts(VOID)
{
    WCHAR buffer[8];
    CHECK(Format(buffer, 8, L"%s%d", L"ab", -5) == 4 && buffer[3] == L'5' && buffer[4] == 0);
    CHECK(Format(buffer, 3, L"%s%d", L"ab", -5) == -1 && buffer[2] == L'-');
    return STATUS_SUCCESS;
}

static NTSTATUS Tracing(VOID)
{
    static const UCHAR provider[16] = {1};
    ULONG64 handle = 0;
    CHECK(EtwRegister(provider, NULL, NULL, &handle) == STATUS_SUCCESS && handle != 0);
    CHECK(EtwWriteTransfer(handle, provider, NULL, NULL, 0, NULL) == STATUS_SUCCESS);
    CHECK(EtwUnregister(handle) == STATUS_SUCCESS);
    return STATUS_SUCCESS;
}

static VOID Unload(PDRIVER_OBJECT driver)
{
    UNICODE_STRING link = Text(L"\\DosDevices\\foreign"), alone = Text(L"\\DosDevices\\Alone"), late = Text(L"\\??\\Later");
    if (forgetful) {
        return;
    }
    IoDeleteSymbolicLink(&link);
    IoDeleteSymbolicLink(&alone);
    IoDeleteSymbolicLink(&late);
    while (driver->DeviceObject != NULL) {
        IoDeleteDevice(driver->DeviceObject);
    }
}

static NTSTATUS Devices(VOID)
{
    PDEVICE_OBJECT device, alone, third;
    UNICODE_STRING unknown = Text(L"\\??\\Nobody");
    CHECK(NT_SUCCESS(Make(L"\\Device\\Foreign", L"\\DosDevices\\Foreign", FALSE, &device)));
    CHECK(us->DeviceObject == device && device->NextDevice == NULL && device->DriverObject == us);
    CHECK((device->Flags & DO_DEVICE_INITIALIZING) != 0 && ((EXTENSION *)device->DeviceExtension)->opened == 0);
    CHECK(Make(L"\\Device\\FOREIGN", L"\\??\\Other", FALSE, &third) == STATUS_OBJECT_NAME_COLLISION);
    CHECK(NT_SUCCESS(Make(L"\\Device\\Alone", L"\\??\\Alone", TRUE, &alone)));
    CHECK(us->DeviceObject == alone && alone->NextDevice == device);
    CHECK(Make(L"\\Device\\Third", L"\\??\\Alone", FALSE, &third) == STATUS_OBJECT_NAME_COLLISION);
    IoDeleteDevice(third);
    CHECK(us->DeviceObject == alone);
    CHECK(IoDeleteSymbolicLink(&unknown) == STATUS_OBJECT_NAME_NOT_FOUND);
    return STATUS_SUCCESS;
}

NTSTATUS DriverEntry(PDRIVER_OBJECT driver, PUNICODE_STRING path)
{
    NTSTATUS (*const parts[])(VOID) = {Lists, Texts, Tracing, Devices};
    UNREFERENCED_PARAMETER(path);
    us = driver;
    driver->DriverUnload = Unload;
    driver->MajorFunction[IRP_MJ_CREATE] = Create;
    driver->MajorFunction[IRP_MJ_CLOSE] = Close;
    driver->MajorFunction[IRP_MJ_DEVICE_CONTROL] = Control;
    for (ULONG part = 0; part < RTL_NUMBER_OF(parts); part++) {
        NTSTATUS status = parts[part]();
        if (!NT_SUCCESS(status)) {
            return status;
        }
    }
    return STATUS_SUCCESS;
}
