/* The way to an NDK adapter: a client of Winsock Kernel, which opens it by the index of its interface. */
#include "consumer.h"

static const WSK_CLIENT_DISPATCH ClientDispatch = {MAKE_WSK_VERSION(1, 0), 0, NULL};

NTSTATUS WskStart(VOID)
{
    WSK_CLIENT_NPI client = {NULL, &ClientDispatch};
    NTSTATUS status = WskRegister(&client, &Consumer.Registration);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    Consumer.WskRegistered = TRUE;
    status = WskCaptureProviderNPI(&Consumer.Registration, WSK_INFINITE_WAIT, &Consumer.Provider);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    Consumer.WskCaptured = TRUE;
    return Consumer.Provider.Dispatch->WskControlClient(Consumer.Provider.Client, WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH, 0,
                                                        NULL, sizeof(Consumer.Ndk), &Consumer.Ndk, NULL, NULL);
}

VOID WskStop(VOID)
{
    if (Consumer.WskCaptured) {
        WskReleaseProviderNPI(&Consumer.Registration);
        Consumer.WskCaptured = FALSE;
    }
    if (Consumer.WskRegistered) {
        WskDeregister(&Consumer.Registration);
        Consumer.WskRegistered = FALSE;
    }
}

NTSTATUS AdapterOpen(ENDPOINT *Endpoint, NDK_VERSION Version)
{
    static WCHAR alias[IF_MAX_STRING_SIZE + 1];
    NET_LUID luid;
    NTSTATUS status = ConvertInterfaceIndexToLuid(Endpoint->Interface, &luid);
    if (NT_SUCCESS(status)) {
        status = ConvertInterfaceLuidToAlias(&luid, alias, RTL_NUMBER_OF(alias));
    }
    if (!NT_SUCCESS(status)) {
        return status;
    }
    DbgPrint("c-consumer: the %s opens interface %u, %ws\n", Endpoint->Name, Endpoint->Interface, alias);
    status = Consumer.Ndk.WskOpenNdkAdapter(Consumer.Provider.Client, Version, Endpoint->Interface, &Endpoint->Adapter);
    if (!NT_SUCCESS(status)) {
        Endpoint->Adapter = NULL;
        return status;
    }
    ULONG bytes = sizeof(Endpoint->Info);
    status = Endpoint->Adapter->Dispatch->NdkQueryAdapterInfo(Endpoint->Adapter, &Endpoint->Info, &bytes);
    if (!NT_SUCCESS(status)) {
        return status;
    }
    /* Without it every buffer that a Read fills would need a region of its own with sink rights. */
    BOOLEAN enough = (Endpoint->Info.AdapterFlags & NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED) != 0 &&
                     Endpoint->Info.FRMRPageCount >= BUFFER_PAGES && Endpoint->Info.MaxTransferLength >= MOST_BYTES &&
                     Endpoint->Info.MaxInitiatorQueueDepth >= 4 * SLOTS;
    return enough ? STATUS_SUCCESS : STATUS_NOT_SUPPORTED;
}

VOID AdapterClose(ENDPOINT *Endpoint)
{
    if (Endpoint->Adapter != NULL) {
        Consumer.Ndk.WskCloseNdkAdapter(Consumer.Provider.Client, Endpoint->Adapter);
        Endpoint->Adapter = NULL;
    }
}
