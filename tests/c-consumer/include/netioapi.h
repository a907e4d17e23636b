/* Names of interfaces. */
#pragma once

typedef ULONG NET_IFINDEX;
typedef union _NET_LUID {
    ULONG64 Value;
} NET_LUID;

#define IF_MAX_STRING_SIZE 256

NTKERNELAPI NTSTATUS ConvertInterfaceIndexToLuid(NET_IFINDEX InterfaceIndex, NET_LUID *InterfaceLuid);
NTKERNELAPI NTSTATUS ConvertInterfaceLuidToAlias(const NET_LUID *InterfaceLuid, PWSTR InterfaceAlias, SIZE_T Length);
