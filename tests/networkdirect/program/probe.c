/*
 * What a provider's DLL does where there is no driver: its exports, its class factory, its providers of both versions, and what they answer.
 * The result is 0, or the line at which something was not as it should be.
 */
#include "program.h"

#include <stddef.h>
#include <unknwn.h>

#define ND_DEVICE_NOT_READY ((HRESULT)0xC00000A3)
#define ND_INVALID_ADDRESS ((HRESULT)0xC0000141)
#define SYSTEM_NOT_READY 10091

static const IID IID_Unknown1 = {0, 0, 0, {0xC0, 0, 0, 0, 0, 0, 0, 0x46}};
static const IID IID_ClassFactory1 = {1, 0, 0, {0xC0, 0, 0, 0, 0, 0, 0, 0x46}};
static const IID IID_Nothing = {0x12345678, 0, 0, {0}};

/* The first and the last method of each interface, by the numbers that the documentation gives them; the tables of softnd-interfaces have the
 * same ones in a test of their own. */
#define SLOT(interface, method, number) _Static_assert(offsetof(interface##Vtbl, method) == (number) * sizeof(void *), #interface)
SLOT(IND2CompletionQueue, GetOverlappedResult, 4);
SLOT(IND2CompletionQueue, GetNotifyAffinity, 5);
SLOT(IND2CompletionQueue, GetResults, 8);
SLOT(IND2SharedReceiveQueue, GetNotifyAffinity, 5);
SLOT(IND2SharedReceiveQueue, Receive, 8);
SLOT(IND2MemoryWindow, GetRemoteToken, 3);
SLOT(IND2MemoryRegion, Register, 5);
SLOT(IND2MemoryRegion, GetRemoteToken, 8);
SLOT(IND2QueuePair, Flush, 3);
SLOT(IND2QueuePair, Write, 9);
SLOT(IND2Connector, Bind, 5);
SLOT(IND2Connector, Disconnect, 15);
SLOT(IND2Listener, Bind, 5);
SLOT(IND2Listener, GetConnectionRequest, 8);
SLOT(IND2Adapter, CreateOverlappedFile, 3);
SLOT(IND2Adapter, CreateListener, 13);
SLOT(IND2Provider, QueryAddressList, 3);
SLOT(IND2Provider, OpenAdapter, 5);
SLOT(INDCompletionQueue, GetOverlappedResult, 4);
SLOT(INDCompletionQueue, Resize, 5);
SLOT(INDCompletionQueue, GetResults, 7);
SLOT(INDEndpoint, Flush, 3);
SLOT(INDEndpoint, Write, 12);
SLOT(INDConnector, CreateEndpoint, 5);
SLOT(INDConnector, Disconnect, 14);
SLOT(INDListen, GetConnectionRequest, 5);
SLOT(INDAdapter, GetFileHandle, 5);
SLOT(INDAdapter, Listen, 13);
SLOT(INDProvider, OpenAdapter, 4);
_Static_assert(sizeof(ND2_ADAPTER_INFO) == 96 && sizeof(ND2_RESULT) == 32 && sizeof(ND2_SGE) == 16, "structures");

typedef HRESULT(STDMETHODCALLTYPE *can_unload)(void);
typedef int(STDMETHODCALLTYPE *startup)(WORD, void *, void *, void *, void *);

struct dll {
    get_class_object class_object;
    can_unload can_unload_now;
    startup wsp_startup;
};

static const struct sockaddr_in somewhere = {.sin_family = AF_INET, .sin_addr.S_un.S_addr = 0x0100000A};

static int probe_version_2(IND2Provider *provider) {
    SOCKET_ADDRESS_LIST list = {.iAddressCount = 7};
    ULONG length = 0;
    UINT64 identifier = 0;
    void *adapter = &list;
    EXPECT(provider->lpVtbl->QueryAddressList(provider, NULL, &length) == ND_BUFFER_OVERFLOW && length >= sizeof list);
    length = sizeof list;
    EXPECT(provider->lpVtbl->QueryAddressList(provider, &list, &length) == ND_SUCCESS && list.iAddressCount == 0);
    EXPECT(provider->lpVtbl->ResolveAddress(provider, (const struct sockaddr *)&somewhere, sizeof somewhere, &identifier) == ND_INVALID_ADDRESS);
    EXPECT(provider->lpVtbl->OpenAdapter(provider, &IID_IND2Adapter, 1, &adapter) == ND_DEVICE_NOT_READY && adapter == NULL);
    return 0;
}

static int probe_version_1(INDProvider *provider) {
    SOCKET_ADDRESS_LIST list = {.iAddressCount = 7};
    SIZE_T length = 0;
    INDAdapter *adapter = (INDAdapter *)&list;
    EXPECT(provider->lpVtbl->QueryAddressList(provider, NULL, &length) == ND_BUFFER_OVERFLOW && length >= sizeof list);
    length = sizeof list;
    EXPECT(provider->lpVtbl->QueryAddressList(provider, &list, &length) == ND_SUCCESS && list.iAddressCount == 0);
    EXPECT(provider->lpVtbl->OpenAdapter(provider, (const struct sockaddr *)&somewhere, sizeof somewhere, &adapter) == ND_INVALID_ADDRESS);
    EXPECT(adapter == NULL);
    return 0;
}

static int probe_factory(const struct dll *dll, IClassFactory *factory) {
    IND2Provider *version_2;
    INDProvider *version_1;
    IUnknown *unknown;
    void *nothing = factory;
    EXPECT(factory->lpVtbl->CreateInstance(factory, NULL, &IID_IND2Provider, (void **)&version_2) == S_OK);
    EXPECT(factory->lpVtbl->CreateInstance(factory, NULL, &IID_INDProvider, (void **)&version_1) == S_OK);
    EXPECT(factory->lpVtbl->CreateInstance(factory, (IUnknown *)factory, &IID_IND2Provider, &nothing) == CLASS_E_NOAGGREGATION);
    nothing = factory;
    EXPECT(factory->lpVtbl->CreateInstance(factory, NULL, &IID_Nothing, &nothing) == E_NOINTERFACE && nothing == NULL);
    EXPECT(factory->lpVtbl->Release(factory) == 0 && dll->can_unload_now() == S_FALSE);
    EXPECT(version_2->lpVtbl->QueryInterface(version_2, &IID_Unknown1, (void **)&unknown) == S_OK);
    EXPECT(unknown->lpVtbl->AddRef(unknown) == 3 && unknown->lpVtbl->Release(unknown) == 2);
    EXPECT(unknown->lpVtbl->Release(unknown) == 1);
    PASSES(probe_version_2(version_2));
    PASSES(probe_version_1(version_1));
    EXPECT(version_2->lpVtbl->Release(version_2) == 0 && dll->can_unload_now() == S_FALSE);
    EXPECT(version_1->lpVtbl->Release(version_1) == 0 && dll->can_unload_now() == S_OK);
    return 0;
}

static int probe_locks(const struct dll *dll, IClassFactory *factory) {
    EXPECT(factory->lpVtbl->LockServer(factory, TRUE) == S_OK && factory->lpVtbl->Release(factory) == 0);
    EXPECT(dll->can_unload_now() == S_FALSE);
    EXPECT(dll->class_object(&IID_Nothing, &IID_ClassFactory1, (void **)&factory) == S_OK);
    EXPECT(factory->lpVtbl->LockServer(factory, FALSE) == S_OK && factory->lpVtbl->Release(factory) == 0);
    EXPECT(dll->can_unload_now() == S_OK);
    return 0;
}

static int probe_dll(const struct dll *dll) {
    IClassFactory *factory;
    IND2Provider *provider;
    void *nothing = &factory;
    EXPECT(dll->class_object != NULL && dll->can_unload_now != NULL && dll->wsp_startup != NULL);
    EXPECT(dll->can_unload_now() == S_OK);
    EXPECT(dll->wsp_startup(0x0202, NULL, NULL, NULL, NULL) == SYSTEM_NOT_READY);
    EXPECT(dll->class_object(&IID_Nothing, &IID_Nothing, &nothing) == E_NOINTERFACE && nothing == NULL);
    EXPECT(dll->class_object(&IID_Nothing, &IID_IND2Provider, (void **)&provider) == S_OK);
    EXPECT(dll->can_unload_now() == S_FALSE && provider->lpVtbl->Release(provider) == 0);
    EXPECT(dll->class_object(&IID_Nothing, &IID_ClassFactory1, (void **)&factory) == S_OK);
    PASSES(probe_factory(dll, factory));
    EXPECT(dll->class_object(&IID_Nothing, &IID_ClassFactory1, (void **)&factory) == S_OK);
    return probe_locks(dll, factory);
}

/* Loads and probes a DLL, more than once: programs load and free providers around single calls. */
int probe(const WCHAR *path) {
    for (int round = 0; round < 3; round++) {
        HMODULE module = LoadLibraryW(path);
        EXPECT(module != NULL);
        struct dll dll = {
            (get_class_object)(void *)GetProcAddress(module, "DllGetClassObject"),
            (can_unload)(void *)GetProcAddress(module, "DllCanUnloadNow"),
            (startup)(void *)GetProcAddress(module, "WSPStartup"),
        };
        PASSES(probe_dll(&dll));
        EXPECT(FreeLibrary(module));
    }
    return 0;
}
