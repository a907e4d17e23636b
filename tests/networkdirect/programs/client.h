/* What clients of NetworkDirect do to reach a provider: the Winsock catalogue, the DLL, its class factory. */
#pragma once

#define CINTERFACE
#include <winsock2.h>
#include <ws2tcpip.h>
#include <ws2spi.h>

#include "../program/ndspi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unknwn.h>

#define VERSION_2 0x20000

/* The message says what failed, with the status or the error. */
#define CHECK(condition, what, number)                                               \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s failed: 0x%08lX\n", what, (unsigned long)(number)); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)
#define SUCCEEDS(call, what)              \
    do {                                  \
        HRESULT status = (call);          \
        CHECK(status >= 0, what, status); \
    } while (0)

typedef HRESULT(STDMETHODCALLTYPE *class_object_function)(const CLSID *, const IID *, void **);

/* The entries of the catalogue, in memory of malloc. */
static inline WSAPROTOCOL_INFOW *catalog(int *count) {
    WSAPROTOCOL_INFOW *entries = NULL;
    DWORD length = 0;
    int error = 0;
    *count = WSCEnumProtocols(NULL, NULL, &length, &error);
    CHECK(*count == SOCKET_ERROR && error == WSAENOBUFS, "WSCEnumProtocols without a buffer", error);
    entries = malloc(length);
    *count = WSCEnumProtocols(NULL, entries, &length, &error);
    CHECK(*count != SOCKET_ERROR, "WSCEnumProtocols", error);
    return entries;
}

/* Whether an entry is one of a provider of this version: what the documentation tells clients to look at. */
static inline int is_provider(const WSAPROTOCOL_INFOW *entry, int version) {
    const DWORD flags = XP1_GUARANTEED_DELIVERY | XP1_GUARANTEED_ORDER | XP1_MESSAGE_ORIENTED | XP1_CONNECT_DATA;
    return (entry->dwServiceFlags1 & flags) == flags && entry->iVersion == version && entry->iSocketType == -1 && entry->iProtocol == 0 &&
           entry->iProtocolMaxOffset == 0 && (entry->iAddressFamily == AF_INET || entry->iAddressFamily == AF_INET6);
}

/* Loads the provider of version 2 and makes its object. */
static inline IND2Provider *load_provider(void) {
    WCHAR path[MAX_PATH], expanded[MAX_PATH];
    int count, length = MAX_PATH, error = 0;
    WSAPROTOCOL_INFOW *entries = catalog(&count), *entry = entries;
    while (count-- > 0 && !is_provider(entry, VERSION_2)) {
        entry++;
    }
    CHECK(count >= 0, "the search for a provider", 0);
    CHECK(WSCGetProviderPath(&entry->ProviderId, path, &length, &error) == 0, "WSCGetProviderPath", error);
    CHECK(ExpandEnvironmentStringsW(path, expanded, MAX_PATH) != 0, "ExpandEnvironmentStrings", GetLastError());
    HMODULE module = LoadLibraryExW(expanded, NULL, 0);
    CHECK(module != NULL, "LoadLibraryEx", GetLastError());
    class_object_function class_object = (class_object_function)(void *)GetProcAddress(module, "DllGetClassObject");
    CHECK(class_object != NULL, "GetProcAddress", GetLastError());
    IClassFactory *factory;
    IND2Provider *provider;
    static const IID class_factory = {1, 0, 0, {0xC0, 0, 0, 0, 0, 0, 0, 0x46}};
    SUCCEEDS(class_object(&entry->ProviderId, &class_factory, (void **)&factory), "DllGetClassObject");
    SUCCEEDS(factory->lpVtbl->CreateInstance(factory, NULL, &IID_IND2Provider, (void **)&provider), "CreateInstance");
    factory->lpVtbl->Release(factory);
    free(entries);
    return provider;
}
