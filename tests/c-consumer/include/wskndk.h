/* NDK adapters opened through Winsock Kernel. */
#pragma once
#include <ndkpi.h>
#include <netioapi.h>
#include <wsk.h>

#define WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH 0x4E444B44u

typedef struct _WSK_PROVIDER_NDK_DISPATCH {
    NTSTATUS (*WskOpenNdkAdapter)(PWSK_CLIENT Client, NDK_VERSION NdkVersion, NET_IFINDEX IfIndex, NDK_ADAPTER **ppNdkAdapter);
    VOID (*WskCloseNdkAdapter)(PWSK_CLIENT Client, NDK_ADAPTER *pNdkAdapter);
} WSK_PROVIDER_NDK_DISPATCH;
C_ASSERT(sizeof(WSK_PROVIDER_NDK_DISPATCH) == 16);
