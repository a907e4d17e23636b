/* The way to an adapter and the waits that the consumers of this folder have in common. */
#pragma once
#include <ntddk.h>
#include <wskndk.h>

static WSK_REGISTRATION Registration;
static WSK_PROVIDER_NPI Provider;
static WSK_PROVIDER_NDK_DISPATCH Ndk;

typedef struct _WAITER {
    KEVENT Event;
    NTSTATUS Status;
    NDK_OBJECT_HEADER *Object;
} WAITER;

static WAITER Waiter;

static VOID CloseDone(PVOID Context)
{
    KeSetEvent(&((WAITER *)Context)->Event, 0, FALSE);
}

static VOID CreateDone(PVOID Context, NTSTATUS Status, NDK_OBJECT_HEADER *Object)
{
    WAITER *waiter = Context;
    waiter->Status = Status;
    waiter->Object = Object;
    KeSetEvent(&waiter->Event, 0, FALSE);
}

static WAITER *Begin(VOID)
{
    KeInitializeEvent(&Waiter.Event, NotificationEvent, FALSE);
    Waiter.Status = STATUS_SUCCESS;
    return &Waiter;
}

/* How a create or close ended; `Place` is where the object of a create goes. */
static NTSTATUS End(NTSTATUS Status, PVOID Place)
{
    if (Status == STATUS_PENDING) {
        KeWaitForSingleObject(&Waiter.Event, Executive, KernelMode, FALSE, NULL);
        Status = Waiter.Status;
        if (Place != NULL && NT_SUCCESS(Status)) {
            *(PVOID *)Place = Waiter.Object;
        }
    }
    if (Place != NULL && !NT_SUCCESS(Status)) {
        *(PVOID *)Place = NULL;
    }
    return Status;
}

static VOID Close(PVOID Object, NDK_FN_CLOSE_OBJECT Function)
{
    End(Function(Object, CloseDone, Begin()), NULL);
}

static NTSTATUS OpenAdapter(ULONG Interface, NDK_ADAPTER **Adapter)
{
    static const WSK_CLIENT_DISPATCH dispatch = {MAKE_WSK_VERSION(1, 0), 0, NULL};
    const NDK_VERSION version = {2, 0};
    WSK_CLIENT_NPI client = {NULL, &dispatch};
    NTSTATUS status = WskRegister(&client, &Registration);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    status = WskCaptureProviderNPI(&Registration, WSK_INFINITE_WAIT, &Provider);
    if (NT_SUCCESS(status)) {
        status = Provider.Dispatch->WskControlClient(Provider.Client, WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH, 0, NULL,
                                                     sizeof(Ndk), &Ndk, NULL, NULL);
        if (NT_SUCCESS(status)) {
            status = Ndk.WskOpenNdkAdapter(Provider.Client, version, Interface, Adapter);
        }
        if (!NT_SUCCESS(status)) {
            WskReleaseProviderNPI(&Registration);
        }
    }
    if (!NT_SUCCESS(status)) {
        WskDeregister(&Registration);
    }
    return status;
}

static VOID CloseAdapter(NDK_ADAPTER *Adapter)
{
    Ndk.WskCloseNdkAdapter(Provider.Client, Adapter);
    WskReleaseProviderNPI(&Registration);
    WskDeregister(&Registration);
}
