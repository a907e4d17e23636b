/*
 * The driver's own registry key. In: the indices of two interfaces and an address of each, and how many requests to make.
 * Out: the tally.
 */
#include "consumer.h"

typedef union _VALUE {
    KEY_VALUE_PARTIAL_INFORMATION Information;
    UCHAR Bytes[sizeof(KEY_VALUE_PARTIAL_INFORMATION) + 128];
} VALUE;

NTSTATUS ParametersOpen(PUNICODE_STRING RegistryPath)
{
    static WCHAR characters[300];
    UNICODE_STRING path = {0, sizeof(characters), characters};
    OBJECT_ATTRIBUTES attributes;
    RtlCopyUnicodeString(&path, RegistryPath);
    NTSTATUS status = RtlAppendUnicodeToString(&path, L"\\Parameters");
    if (!NT_SUCCESS(status)) {
        return status;
    }
    InitializeObjectAttributes(&attributes, &path, OBJ_CASE_INSENSITIVE | OBJ_KERNEL_HANDLE, NULL, NULL);
    return ZwOpenKey(&Consumer.Key, KEY_READ | KEY_WRITE, &attributes);
}

static NTSTATUS Query(PCWSTR Name, ULONG Type, VALUE *Value)
{
    UNICODE_STRING name;
    ULONG length = 0;
    RtlInitUnicodeString(&name, Name);
    RtlZeroMemory(Value, sizeof(*Value));
    /* The last two bytes stay zero: text that is stored without its end gets one. */
    NTSTATUS status = ZwQueryValueKey(Consumer.Key, &name, KeyValuePartialInformation, Value, sizeof(*Value) - 2, &length);
    if (NT_SUCCESS(status) && Value->Information.Type != Type) {
        status = STATUS_INVALID_PARAMETER;
    }
    return status;
}

static NTSTATUS Number(PCWSTR Name, ULONG *Number)
{
    VALUE value;
    NTSTATUS status = Query(Name, REG_DWORD, &value);
    if (NT_SUCCESS(status)) {
        memcpy(Number, value.Information.Data, sizeof(*Number));
    }
    return status;
}

static NTSTATUS Address(PCWSTR Name, SOCKADDR_INET *Address)
{
    VALUE value;
    NTSTATUS status = Query(Name, REG_SZ, &value);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    PCWSTR text = (PCWSTR)value.Information.Data;
    RtlZeroMemory(Address, sizeof(*Address));
    if (NT_SUCCESS(RtlIpv4StringToAddressExW(text, TRUE, &Address->Ipv4.sin_addr, &Address->Ipv4.sin_port))) {
        Address->si_family = AF_INET;
        return STATUS_SUCCESS;
    }
    Address->si_family = AF_INET6;
    return RtlIpv6StringToAddressExW(text, &Address->Ipv6.sin6_addr, &Address->Ipv6.sin6_scope_id, &Address->Ipv6.sin6_port);
}

NTSTATUS ParametersRead(VOID)
{
    ULONG requests = 0;
    Consumer.Initiator.Moderation = 20;
    NTSTATUS status = Number(L"Requests", &requests);
    Consumer.Wanted = requests;
    if (NT_SUCCESS(status)) {
        status = Number(L"InitiatorInterface", &Consumer.Initiator.Interface);
    }
    if (NT_SUCCESS(status)) {
        status = Number(L"TargetInterface", &Consumer.Target.Interface);
    }
    if (NT_SUCCESS(status)) {
        status = Number(L"Pattern", &Consumer.Pattern);
    }
    if (NT_SUCCESS(status)) {
        status = Number(L"TargetModeration", &Consumer.Target.Moderation);
    }
    if (NT_SUCCESS(status)) {
        status = Address(L"InitiatorAddress", &Consumer.Initiator.Address);
    }
    if (NT_SUCCESS(status)) {
        status = Address(L"TargetAddress", &Consumer.Target.Address);
    }
    return status;
}

VOID ParametersWriteTally(VOID)
{
    UNICODE_STRING name;
    RtlInitUnicodeString(&name, L"Tally");
    ZwSetValueKey(Consumer.Key, &name, 0, REG_BINARY, &Consumer.Tally, sizeof(Consumer.Tally));
}
