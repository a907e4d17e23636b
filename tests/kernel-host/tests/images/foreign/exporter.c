/* A driver that other drivers import from: functions by name and by number, a variable, and names that lie elsewhere. */
#include <ntddk.h>

ULONG ExportedVariable = 17;

ULONG ExportedByName(ULONG value)
{
    return value + ExportedVariable;
}

ULONG ExportedByNumber(ULONG value)
{
    return 3 * value;
}

static VOID Unload(PDRIVER_OBJECT driver)
{
    UNREFERENCED_PARAMETER(driver);
}

NTSTATUS DriverEntry(PDRIVER_OBJECT driver, PUNICODE_STRING path)
{
    UNREFERENCED_PARAMETER(path);
    driver->DriverUnload = Unload;
    return STATUS_SUCCESS;
}
