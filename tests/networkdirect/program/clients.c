/*
 * The calls in the order in which two clients make them that are in use: libfabric's verbs layer, and ni's easyrdma over Microsoft's
 * ndutil. What they count on beside the documentation is checked where they count on it: a file for each object, no event, packets for
 * everything that pends, counts of references at the end.
 */
#include "program.h"

#include <unknwn.h>

#define MESSAGE 4096
#define REGION (5 << 20)
#define DISCONNECTED ((HRESULT)0xC000020C)
#define ADDRESS_LENGTH 16

static const CLSID any_class;
static const IID factory_identifier = {1, 0, 0, {0xC0, 0, 0, 0, 0, 0, 0, 0x46}};

/* ---- libfabric's verbs layer ---- */

/* One catalogue entry: a factory, its provider, the adapter that is opened by it. */
struct fabric {
    IClassFactory *factory;
    IND2Provider *provider;
    IND2Adapter *adapter;
    struct sockaddr_storage address;
};

/* A queue, a region, an identifier of the connection manager: each has a file of its own. */
struct verbs {
    struct fabric *fabric;
    HANDLE port;
    HANDLE queue_file, region_file, id_file;
    IND2CompletionQueue *queue;
    IND2QueuePair *pair;
    IND2MemoryRegion *region;
    IND2Connector *connector;
    OVERLAPPED notification, connection, peer;
    unsigned char *buffer;
    UINT32 local, remote;
};

/* The next packet of the port has to be this request's; its status. */
static int packet_of(HANDLE port, OVERLAPPED *expected, HRESULT *status) {
    DWORD bytes;
    ULONG_PTR key;
    OVERLAPPED *overlapped = NULL;
    GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, 60000);
    EXPECT(overlapped == expected);
    *status = (HRESULT)overlapped->Internal;
    return 0;
}

static int succeeds_by_packet(HANDLE port, OVERLAPPED *expected) {
    PASSES(packet_of(port, expected, &found));
    EXPECT(found == ND_SUCCESS);
    return 0;
}

/* Both catalogue entries of one DLL are made a provider, whatever version they are for; each opens one adapter here. */
static int open_fabric(get_class_object object, int index, struct fabric *fabric) {
    SOCKET_ADDRESS_LIST *list;
    ND2_ADAPTER_INFO info = {0};
    ULONG length = 0, info_length = sizeof info;
    UINT64 identifier;
    STATUS_IS(object(&any_class, &factory_identifier, (void **)&fabric->factory), ND_SUCCESS);
    STATUS_IS(fabric->factory->lpVtbl->CreateInstance(fabric->factory, NULL, &IID_IND2Provider, (void **)&fabric->provider), ND_SUCCESS);
    STATUS_IS(fabric->provider->lpVtbl->QueryAddressList(fabric->provider, NULL, &length), ND_BUFFER_OVERFLOW);
    EXPECT(length != 0);
    list = HeapAlloc(GetProcessHeap(), 0, length);
    STATUS_IS(fabric->provider->lpVtbl->QueryAddressList(fabric->provider, list, &length), ND_SUCCESS);
    EXPECT(list->iAddressCount > index && list->Address[index].iSockaddrLength == ADDRESS_LENGTH);
    for (int byte = 0; byte < ADDRESS_LENGTH; byte++) {
        ((char *)&fabric->address)[byte] = ((const char *)list->Address[index].lpSockaddr)[byte];
    }
    HeapFree(GetProcessHeap(), 0, list);
    STATUS_IS(fabric->provider->lpVtbl->ResolveAddress(fabric->provider, (struct sockaddr *)&fabric->address, ADDRESS_LENGTH, &identifier),
              ND_SUCCESS);
    STATUS_IS(fabric->provider->lpVtbl->OpenAdapter(fabric->provider, &IID_IND2Adapter, identifier, (void **)&fabric->adapter), ND_SUCCESS);
    info.InfoVersion = ND_VERSION_2;
    STATUS_IS(fabric->adapter->lpVtbl->Query(fabric->adapter, &info, &info_length), ND_SUCCESS);
    EXPECT(info.MaxReceiveQueueDepth >= DEPTH && info.MaxInitiatorSge >= 2);
    return 0;
}

static int register_region(struct verbs *end) {
    OVERLAPPED overlapped = {0};
    IND2Adapter *adapter = end->fabric->adapter;
    STATUS_IS(adapter->lpVtbl->CreateOverlappedFile(adapter, &end->region_file), ND_SUCCESS);
    STATUS_IS(adapter->lpVtbl->CreateMemoryRegion(adapter, &IID_IND2MemoryRegion, end->region_file, (void **)&end->region), ND_SUCCESS);
    found = end->region->lpVtbl->Register(end->region, end->buffer, REGION, ND_MR_FLAG_ALLOW_LOCAL_WRITE | ND_MR_FLAG_ALLOW_REMOTE_WRITE, &overlapped);
    EXPECT(SUCCEEDED(found));
    STATUS_IS(end->region->lpVtbl->GetOverlappedResult(end->region, &overlapped, TRUE), ND_SUCCESS);
    end->local = end->region->lpVtbl->GetLocalToken(end->region);
    end->remote = end->region->lpVtbl->GetRemoteToken(end->region);
    return 0;
}

static int deregister_region(struct verbs *end) {
    OVERLAPPED overlapped = {0};
    found = end->region->lpVtbl->Deregister(end->region, &overlapped);
    EXPECT(SUCCEEDED(found));
    STATUS_IS(end->region->lpVtbl->GetOverlappedResult(end->region, &overlapped, TRUE), ND_SUCCESS);
    EXPECT(CloseHandle(end->region_file));
    EXPECT(end->region->lpVtbl->Release(end->region) == 0);
    return 0;
}

/* A connector that is not bound, on a file whose packets go to the port. */
static int bind_identifier(struct verbs *end) {
    IND2Adapter *adapter = end->fabric->adapter;
    STATUS_IS(adapter->lpVtbl->CreateOverlappedFile(adapter, &end->id_file), ND_SUCCESS);
    EXPECT(CreateIoCompletionPort(end->id_file, end->port, 0, 0) == end->port);
    STATUS_IS(adapter->lpVtbl->CreateConnector(adapter, &IID_IND2Connector, end->id_file, (void **)&end->connector), ND_SUCCESS);
    return 0;
}

static int open_verbs(struct verbs *end) {
    IND2Adapter *adapter = end->fabric->adapter;
    end->buffer = VirtualAlloc(NULL, REGION, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE);
    EXPECT(end->buffer != NULL);
    STATUS_IS(adapter->lpVtbl->CreateOverlappedFile(adapter, &end->queue_file), ND_SUCCESS);
    EXPECT(CreateIoCompletionPort(end->queue_file, end->port, 0, 0) == end->port);
    STATUS_IS(adapter->lpVtbl->CreateCompletionQueue(adapter, &IID_IND2CompletionQueue, end->queue_file, 4 * DEPTH, 0, 0, (void **)&end->queue),
              ND_SUCCESS);
    STATUS_IS(adapter->lpVtbl->CreateQueuePair(adapter, &IID_IND2QueuePair, (IUnknown *)end->queue, (IUnknown *)end->queue, end, DEPTH, DEPTH, 2, 2,
                                               64, (void **)&end->pair),
              ND_SUCCESS);
    PASSES(register_region(end));
    return 0;
}

/* What the verbs layer asks a connector when its request, or the answer to it, has come. */
static int connection_data(IND2Connector *connector, ULONG expected) {
    ULONG in = 0, out = 0, length = 0;
    char data[64];
    STATUS_IS(connector->lpVtbl->GetReadLimits(connector, &in, &out), ND_SUCCESS);
    EXPECT(in <= 255 && out <= 255);
    STATUS_IS(connector->lpVtbl->GetPrivateData(connector, NULL, &length), ND_BUFFER_OVERFLOW);
    EXPECT(length == expected && length <= sizeof data);
    STATUS_IS(connector->lpVtbl->GetPrivateData(connector, data, &length), ND_SUCCESS);
    return 0;
}

static int connect_verbs(struct verbs *active, struct verbs *passive) {
    HANDLE listen_file;
    IND2Connector *spare;
    IND2Listener *listener;
    OVERLAPPED listening = {0};
    struct sockaddr_storage address = {0};
    ULONG length = ADDRESS_LENGTH;
    /* The listening identifier: its connector takes the first request, the listener is made on the same file. */
    PASSES(bind_identifier(passive));
    listen_file = passive->id_file;
    STATUS_IS(passive->fabric->adapter->lpVtbl->CreateListener(passive->fabric->adapter, &IID_IND2Listener, listen_file, (void **)&listener),
              ND_SUCCESS);
    STATUS_IS(listener->lpVtbl->Bind(listener, (struct sockaddr *)&passive->fabric->address, ADDRESS_LENGTH), ND_SUCCESS);
    STATUS_IS(listener->lpVtbl->GetLocalAddress(listener, (struct sockaddr *)&address, &length), ND_SUCCESS);
    STATUS_IS(listener->lpVtbl->Listen(listener, 0), ND_SUCCESS);
    found = listener->lpVtbl->GetConnectionRequest(listener, (IUnknown *)passive->connector, &listening);
    EXPECT(SUCCEEDED(found));
    PASSES(bind_identifier(active));
    STATUS_IS(active->connector->lpVtbl->Bind(active->connector, (struct sockaddr *)&active->fabric->address, ADDRESS_LENGTH), ND_SUCCESS);
    length = ADDRESS_LENGTH;
    STATUS_IS(active->connector->lpVtbl->GetLocalAddress(active->connector, (struct sockaddr *)&active->fabric->address, &length), ND_SUCCESS);
    found = active->connector->lpVtbl->Connect(active->connector, (IUnknown *)active->pair, (struct sockaddr *)&address, ADDRESS_LENGTH, 8, 8, "hello",
                                             5, &active->connection);
    EXPECT(SUCCEEDED(found));
    PASSES(succeeds_by_packet(passive->port, &listening));
    PASSES(connection_data(passive->connector, 5));
    length = sizeof address;
    STATUS_IS(passive->connector->lpVtbl->GetLocalAddress(passive->connector, (struct sockaddr *)&address, &length), ND_SUCCESS);
    length = sizeof address;
    STATUS_IS(passive->connector->lpVtbl->GetPeerAddress(passive->connector, (struct sockaddr *)&address, &length), ND_SUCCESS);
    /* The next request gets a connector on a file of its own. */
    spare = passive->connector;
    PASSES(bind_identifier(passive));
    found = listener->lpVtbl->GetConnectionRequest(listener, (IUnknown *)passive->connector, &listening);
    EXPECT(SUCCEEDED(found));
    found = spare->lpVtbl->Accept(spare, (IUnknown *)passive->pair, 8, 8, "back", 4, &passive->connection);
    EXPECT(SUCCEEDED(found));
    PASSES(succeeds_by_packet(active->port, &active->connection));
    PASSES(connection_data(active->connector, 4));
    found = active->connector->lpVtbl->CompleteConnect(active->connector, &active->connection);
    EXPECT(SUCCEEDED(found));
    PASSES(succeeds_by_packet(active->port, &active->connection));
    found = active->connector->lpVtbl->NotifyDisconnect(active->connector, &active->peer);
    EXPECT(SUCCEEDED(found));
    PASSES(succeeds_by_packet(passive->port, &passive->connection));
    found = spare->lpVtbl->NotifyDisconnect(spare, &passive->peer);
    EXPECT(SUCCEEDED(found));
    /* The listener ends before its connections: what it waits for is cancelled, its file closed, then the objects released. */
    STATUS_IS(listener->lpVtbl->CancelOverlappedRequests(listener), ND_SUCCESS);
    PASSES(packet_of(passive->port, &listening, &found));
    EXPECT(found == ND_CANCELED);
    EXPECT(CloseHandle(passive->id_file) && listener->lpVtbl->Release(listener) == 0);
    EXPECT(passive->connector->lpVtbl->Release(passive->connector) == 0);
    passive->connector = spare;
    passive->id_file = listen_file;
    return 0;
}

/* A message that is waited for by a notification and its packet, then taken one result at a time. */
static int verbs_message(struct verbs *from, struct verbs *to, ULONG length) {
    ND2_SGE out = {from->buffer, length, from->local}, in = {to->buffer + MESSAGE, MESSAGE, to->local};
    ND2_RESULT result;
    from->buffer[length - 1] = (unsigned char)length;
    STATUS_IS(to->pair->lpVtbl->Receive(to->pair, to, &in, 1), ND_SUCCESS);
    found = to->queue->lpVtbl->Notify(to->queue, ND_CQ_NOTIFY_ANY, &to->notification);
    EXPECT(SUCCEEDED(found));
    STATUS_IS(from->pair->lpVtbl->Send(from->pair, from, &out, 1, length <= 64 ? ND_OP_FLAG_INLINE : 0), ND_SUCCESS);
    PASSES(succeeds_by_packet(to->port, &to->notification));
    EXPECT(to->queue->lpVtbl->GetResults(to->queue, &result, 1) == 1);
    STATUS_IS(result.Status, ND_SUCCESS);
    EXPECT(result.RequestType == Nd2RequestTypeReceive && result.RequestContext == to && result.BytesTransferred == length);
    EXPECT(to->queue->lpVtbl->GetResults(to->queue, &result, 1) == 0);
    EXPECT(to->buffer[MESSAGE + length - 1] == (unsigned char)length);
    while (from->queue->lpVtbl->GetResults(from->queue, &result, 1) == 0) {
        SwitchToThread();
    }
    STATUS_IS(result.Status, ND_SUCCESS);
    EXPECT(result.RequestType == Nd2RequestTypeSend && result.RequestContext == from);
    return 0;
}

static int disconnect_verbs(struct verbs *active, struct verbs *passive) {
    HRESULT first, second;
    DWORD bytes;
    ULONG_PTR key;
    OVERLAPPED *overlapped;
    found = active->connector->lpVtbl->Disconnect(active->connector, &active->connection);
    EXPECT(SUCCEEDED(found));
    PASSES(succeeds_by_packet(passive->port, &passive->peer));
    found = passive->connector->lpVtbl->Disconnect(passive->connector, &passive->connection);
    EXPECT(SUCCEEDED(found));
    PASSES(succeeds_by_packet(passive->port, &passive->connection));
    /* Two packets of the active side, in any order: the end, and the notification, which says whose it was. */
    for (int packet = 0; packet < 2; packet++) {
        overlapped = NULL;
        GetQueuedCompletionStatus(active->port, &bytes, &key, &overlapped, 60000);
        EXPECT(overlapped == &active->connection || overlapped == &active->peer);
    }
    first = (HRESULT)active->connection.Internal;
    second = (HRESULT)active->peer.Internal;
    EXPECT(first == ND_SUCCESS && second == DISCONNECTED);
    return 0;
}

/* A notification that still waits is cancelled, and its packet taken, before the queue's file is closed. */
static int close_verbs(struct verbs *end) {
    EXPECT(CloseHandle(end->id_file));
    EXPECT(end->connector->lpVtbl->Release(end->connector) == 0);
    EXPECT(end->pair->lpVtbl->Release(end->pair) == 0);
    found = end->queue->lpVtbl->Notify(end->queue, ND_CQ_NOTIFY_SOLICITED, &end->notification);
    EXPECT(SUCCEEDED(found));
    STATUS_IS(end->queue->lpVtbl->CancelOverlappedRequests(end->queue), ND_SUCCESS);
    PASSES(packet_of(end->port, &end->notification, &found));
    EXPECT(CloseHandle(end->queue_file));
    end->queue->lpVtbl->Release(end->queue);
    PASSES(deregister_region(end));
    EXPECT(VirtualFree(end->buffer, 0, MEM_RELEASE) && CloseHandle(end->port));
    return 0;
}

/* The provider is released in the place of its adapter, which never is. */
static int close_fabric(struct fabric *fabric) {
    EXPECT(fabric->provider->lpVtbl->Release(fabric->provider) == 1);
    EXPECT(fabric->provider->lpVtbl->Release(fabric->provider) == 0);
    EXPECT(fabric->factory->lpVtbl->Release(fabric->factory) == 0);
    return 0;
}

int verbs(get_class_object object) {
    struct fabric fabrics[2] = {{0}};
    struct verbs active = {0}, passive = {0};
    active.fabric = &fabrics[0];
    passive.fabric = &fabrics[1];
    PASSES(open_fabric(object, 0, active.fabric));
    PASSES(open_fabric(object, 1, passive.fabric));
    active.port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
    passive.port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
    EXPECT(active.port != NULL && passive.port != NULL);
    PASSES(open_verbs(&active));
    PASSES(open_verbs(&passive));
    PASSES(connect_verbs(&active, &passive));
    for (ULONG length = 1; length <= MESSAGE; length *= 2) {
        PASSES(verbs_message(&active, &passive, length));
        PASSES(verbs_message(&passive, &active, length));
    }
    PASSES(disconnect_verbs(&active, &passive));
    PASSES(close_verbs(&active));
    PASSES(close_verbs(&passive));
    PASSES(close_fabric(active.fabric));
    PASSES(close_fabric(passive.fabric));
    say("the calls of libfabric's verbs layer");
    return 0;
}

/* ---- easyrdma, over ndutil ---- */

struct stream {
    IND2Adapter *adapter;
    HANDLE file;
    IND2CompletionQueue *queue;
    IND2QueuePair *pair;
    IND2Connector *connector;
    IND2MemoryRegion *region;
    unsigned char *buffer;
    UINT32 token;
};

/* An OVERLAPPED with an event, as easyrdma makes one for each wait. */
#define WAITS(object, call, overlapped)                                                                                     \
    do {                                                                                                                    \
        found = (call);                                                                                                     \
        EXPECT(SUCCEEDED(found));                                                                                           \
        if (found == ND_PENDING) {                                                                                          \
            STATUS_IS((object)->lpVtbl->GetOverlappedResult((object), (overlapped), TRUE), ND_SUCCESS);                      \
        }                                                                                                                   \
    } while (0)

/* NdOpenAdapter: a provider for each open, given up once the adapter is there. */
static int open_stream(get_class_object object, const struct sockaddr *address, ULONG length, struct stream *stream) {
    IND2Provider *provider;
    UINT64 identifier;
    STATUS_IS(object(&any_class, &IID_IND2Provider, (void **)&provider), ND_SUCCESS);
    STATUS_IS(provider->lpVtbl->ResolveAddress(provider, address, length, &identifier), ND_SUCCESS);
    STATUS_IS(provider->lpVtbl->OpenAdapter(provider, &IID_IND2Adapter, identifier, (void **)&stream->adapter), ND_SUCCESS);
    provider->lpVtbl->Release(provider);
    STATUS_IS(stream->adapter->lpVtbl->CreateOverlappedFile(stream->adapter, &stream->file), ND_SUCCESS);
    return 0;
}

static int prepare_stream(struct stream *stream, OVERLAPPED *overlapped) {
    IND2Adapter *adapter = stream->adapter;
    ND2_ADAPTER_INFO info = {0};
    ULONG length = sizeof info, depth;
    info.InfoVersion = ND_VERSION_2;
    STATUS_IS(adapter->lpVtbl->Query(adapter, &info, &length), ND_SUCCESS);
    depth = info.MaxCompletionQueueDepth < info.MaxInitiatorQueueDepth ? info.MaxCompletionQueueDepth : info.MaxInitiatorQueueDepth;
    STATUS_IS(adapter->lpVtbl->CreateCompletionQueue(adapter, &IID_IND2CompletionQueue, stream->file, depth, 0, 0, (void **)&stream->queue),
              ND_SUCCESS);
    STATUS_IS(adapter->lpVtbl->CreateQueuePair(adapter, &IID_IND2QueuePair, (IUnknown *)stream->queue, (IUnknown *)stream->queue, NULL, depth, depth, 2,
                                               2, info.InlineRequestThreshold, (void **)&stream->pair),
              ND_SUCCESS);
    stream->buffer = VirtualAlloc(NULL, 65536, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE);
    STATUS_IS(adapter->lpVtbl->CreateMemoryRegion(adapter, &IID_IND2MemoryRegion, stream->file, (void **)&stream->region), ND_SUCCESS);
    WAITS(stream->region, stream->region->lpVtbl->Register(stream->region, stream->buffer, 65536, ND_MR_FLAG_ALLOW_LOCAL_WRITE, overlapped), overlapped);
    stream->token = stream->region->lpVtbl->GetLocalToken(stream->region);
    return 0;
}

/* One result, by Notify and its event; the loop of the event thread. */
static int stream_result(struct stream *stream, OVERLAPPED *overlapped, ND2_REQUEST_TYPE type, void *context, ULONG bytes) {
    ND2_RESULT result;
    while (stream->queue->lpVtbl->GetResults(stream->queue, &result, 1) == 0) {
        WAITS(stream->queue, stream->queue->lpVtbl->Notify(stream->queue, ND_CQ_NOTIFY_ANY, overlapped), overlapped);
    }
    STATUS_IS(result.Status, ND_SUCCESS);
    EXPECT(result.RequestType == type && result.RequestContext == context);
    EXPECT(result.BytesTransferred == bytes);
    return 0;
}

static int end_stream(struct stream *stream, OVERLAPPED *overlapped) {
    WAITS(stream->region, stream->region->lpVtbl->Deregister(stream->region, overlapped), overlapped);
    stream->region->lpVtbl->Release(stream->region);
    EXPECT(stream->connector->lpVtbl->Release(stream->connector) == 0);
    STATUS_IS(stream->pair->lpVtbl->Flush(stream->pair), ND_SUCCESS);
    stream->pair->lpVtbl->Release(stream->pair);
    STATUS_IS(stream->queue->lpVtbl->CancelOverlappedRequests(stream->queue), ND_SUCCESS);
    stream->queue->lpVtbl->Release(stream->queue);
    VirtualFree(stream->buffer, 0, MEM_RELEASE);
    /* Its file stays open. */
    EXPECT(stream->adapter->lpVtbl->Release(stream->adapter) == 0);
    return 0;
}

int streams(get_class_object object, struct machine *machine) {
    struct stream active = {0}, passive = {0}, listening = {0};
    struct sockaddr_storage local = {0}, address = {0};
    OVERLAPPED first = {0}, second = {0}, told = {0};
    IND2Listener *listener;
    ULONG length = sizeof address;
    char data[1024];
    first.hEvent = CreateEventW(NULL, FALSE, FALSE, NULL);
    second.hEvent = CreateEventW(NULL, FALSE, FALSE, NULL);
    told.hEvent = CreateEventW(NULL, FALSE, FALSE, NULL);
    PASSES(open_stream(object, address_of(machine, 1), length_of(machine, 1), &listening));
    passive = listening;
    STATUS_IS(listening.adapter->lpVtbl->CreateListener(listening.adapter, &IID_IND2Listener, listening.file, (void **)&listener), ND_SUCCESS);
    STATUS_IS(listener->lpVtbl->Bind(listener, address_of(machine, 1), length_of(machine, 1)), ND_SUCCESS);
    STATUS_IS(listener->lpVtbl->Listen(listener, 0), ND_SUCCESS);
    STATUS_IS(listener->lpVtbl->GetLocalAddress(listener, (struct sockaddr *)&address, &length), ND_SUCCESS);
    /* The connecting side is bound by a structure that is longer than its address. */
    for (ULONG byte = 0; byte < length_of(machine, 0); byte++) {
        ((char *)&local)[byte] = ((const char *)address_of(machine, 0))[byte];
    }
    PASSES(open_stream(object, (struct sockaddr *)&local, length_of(machine, 0), &active));
    STATUS_IS(active.adapter->lpVtbl->CreateConnector(active.adapter, &IID_IND2Connector, active.file, (void **)&active.connector), ND_SUCCESS);
    STATUS_IS(active.connector->lpVtbl->Bind(active.connector, (struct sockaddr *)&local, sizeof local), ND_SUCCESS);
    STATUS_IS(passive.adapter->lpVtbl->CreateConnector(passive.adapter, &IID_IND2Connector, passive.file, (void **)&passive.connector), ND_SUCCESS);
    found = listener->lpVtbl->GetConnectionRequest(listener, (IUnknown *)passive.connector, &first);
    EXPECT(SUCCEEDED(found));
    PASSES(prepare_stream(&active, &second));
    found = active.connector->lpVtbl->Connect(active.connector, (IUnknown *)active.pair, (struct sockaddr *)&address, length, 0, 0, "stream", 6, &second);
    EXPECT(SUCCEEDED(found));
    /* The listener's request is asked for by the connector that it went into. */
    STATUS_IS(passive.connector->lpVtbl->GetOverlappedResult(passive.connector, &first, TRUE), ND_SUCCESS);
    PASSES(prepare_stream(&passive, &first));
    length = sizeof data;
    STATUS_IS(passive.connector->lpVtbl->GetPrivateData(passive.connector, data, &length), ND_SUCCESS);
    EXPECT(length >= 6 && data[5] == 'm');
    found = passive.connector->lpVtbl->Accept(passive.connector, (IUnknown *)passive.pair, 0, 0, "stream", 6, &first);
    EXPECT(SUCCEEDED(found));
    STATUS_IS(active.connector->lpVtbl->GetOverlappedResult(active.connector, &second, TRUE), ND_SUCCESS);
    WAITS(active.connector, active.connector->lpVtbl->CompleteConnect(active.connector, &second), &second);
    STATUS_IS(passive.connector->lpVtbl->GetOverlappedResult(passive.connector, &first, TRUE), ND_SUCCESS);
    length = sizeof address;
    STATUS_IS(passive.connector->lpVtbl->GetPeerAddress(passive.connector, (struct sockaddr *)&address, &length), ND_SUCCESS);
    found = passive.connector->lpVtbl->NotifyDisconnect(passive.connector, &told);
    EXPECT(found == ND_PENDING);
    for (ULONG round = 0; round < 32; round++) {
        /* Around the end of a circular buffer: two pieces. */
        ND2_SGE out[2] = {{active.buffer + 65536 - 100, 100, active.token}, {active.buffer, 1000 + round, active.token}};
        ND2_SGE in = {passive.buffer, 4096, passive.token};
        active.buffer[999 + round] = (unsigned char)round;
        STATUS_IS(passive.pair->lpVtbl->Receive(passive.pair, &passive, &in, 1), ND_SUCCESS);
        STATUS_IS(active.pair->lpVtbl->Send(active.pair, &active, out, 2, 0), ND_SUCCESS);
        PASSES(stream_result(&active, &second, Nd2RequestTypeSend, &active, 1100 + round));
        PASSES(stream_result(&passive, &first, Nd2RequestTypeReceive, &passive, 1100 + round));
        EXPECT(passive.buffer[1099 + round] == (unsigned char)round);
    }
    WAITS(active.connector, active.connector->lpVtbl->Disconnect(active.connector, &second), &second);
    STATUS_IS(passive.connector->lpVtbl->GetOverlappedResult(passive.connector, &told, TRUE), ND_SUCCESS);
    WAITS(passive.connector, passive.connector->lpVtbl->Disconnect(passive.connector, &first), &first);
    STATUS_IS(listener->lpVtbl->CancelOverlappedRequests(listener), ND_SUCCESS);
    listener->lpVtbl->Release(listener);
    PASSES(end_stream(&active, &second));
    PASSES(end_stream(&passive, &first));
    CloseHandle(first.hEvent);
    CloseHandle(second.hEvent);
    CloseHandle(told.hEvent);
    say("the calls of easyrdma");
    return 0;
}
