/* Winsock Kernel, as far as it leads to NDK adapters. */
#pragma once
#include <ws2ipdef.h>

#define MAKE_WSK_VERSION(major, minor) ((USHORT)(((major) << 8) | (minor)))
#define WSK_NO_WAIT 0u
#define WSK_INFINITE_WAIT 0xFFFFFFFFu

typedef struct _WSK_CLIENT *PWSK_CLIENT;

typedef NTSTATUS (*PFN_WSK_CLIENT_EVENT)(PVOID ClientContext, ULONG EventType, PVOID Information, SIZE_T InformationLength);
typedef NTSTATUS (*PFN_WSK_CONTROL_CLIENT)(PWSK_CLIENT Client, ULONG ControlCode, SIZE_T InputSize, PVOID InputBuffer,
                                           SIZE_T OutputSize, PVOID OutputBuffer, SIZE_T *OutputSizeReturned, PIRP Irp);

typedef struct _WSK_CLIENT_DISPATCH {
    USHORT Version;
    USHORT Reserved;
    PFN_WSK_CLIENT_EVENT WskClientEvent;
} WSK_CLIENT_DISPATCH;

typedef struct _WSK_CLIENT_NPI {
    PVOID ClientContext;
    const WSK_CLIENT_DISPATCH *Dispatch;
} WSK_CLIENT_NPI, *PWSK_CLIENT_NPI;

typedef struct _WSK_REGISTRATION {
    ULONGLONG ReservedRegistrationState;
    PVOID ReservedRegistrationContext;
    KSPIN_LOCK ReservedRegistrationLock;
} WSK_REGISTRATION, *PWSK_REGISTRATION;

typedef struct _WSK_PROVIDER_DISPATCH {
    USHORT Version;
    USHORT Reserved;
    PVOID WskSocket;
    PVOID WskSocketConnect;
    PFN_WSK_CONTROL_CLIENT WskControlClient;
    PVOID WskGetAddressInfo;
    PVOID WskFreeAddressInfo;
    PVOID WskGetNameInfo;
} WSK_PROVIDER_DISPATCH;
C_ASSERT(sizeof(WSK_PROVIDER_DISPATCH) == 56);

typedef struct _WSK_PROVIDER_NPI {
    PWSK_CLIENT Client;
    const WSK_PROVIDER_DISPATCH *Dispatch;
} WSK_PROVIDER_NPI, *PWSK_PROVIDER_NPI;

NTKERNELAPI NTSTATUS WskRegister(PWSK_CLIENT_NPI WskClientNpi, PWSK_REGISTRATION WskRegistration);
NTKERNELAPI VOID WskDeregister(PWSK_REGISTRATION WskRegistration);
NTKERNELAPI NTSTATUS WskCaptureProviderNPI(PWSK_REGISTRATION WskRegistration, ULONG WaitTimeout,
                                           PWSK_PROVIDER_NPI WskProviderNpi);
NTKERNELAPI VOID WskReleaseProviderNPI(PWSK_REGISTRATION WskRegistration);
