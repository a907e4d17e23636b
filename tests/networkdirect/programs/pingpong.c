/*
 * nd-pingpong: messages there and back between two processes.
 *
 *     nd-pingpong server ADDRESS:PORT
 *     nd-pingpong client SERVER-ADDRESS:PORT ROUNDS SIZE
 *
 * The server waits for results by an event, the client by a completion port that a thread of its own reads.
 */
#include "client.h"

#define DEPTH 16
#define LARGEST 65536

struct end {
    IND2Adapter *adapter;
    HANDLE file;
    IND2CompletionQueue *results;
    IND2MemoryRegion *region;
    IND2QueuePair *pair;
    IND2Connector *connector;
    OVERLAPPED request;
    char *buffer;
};

/* What all objects with requests have in common. */
typedef struct overlapped_object {
    const struct {
        void *unknown[3], *cancel;
        HRESULT(STDMETHODCALLTYPE *get_result)(void *, OVERLAPPED *, BOOL);
    } *methods;
} overlapped_object;

static void wait_for(HRESULT status, void *object, OVERLAPPED *request, const char *what) {
    if (status == ND_PENDING) {
        status = ((overlapped_object *)object)->methods->get_result(object, request, TRUE);
    }
    CHECK(status == ND_SUCCESS, what, status);
}

static void open_end(IND2Provider *provider, const struct sockaddr *local, ULONG length, struct end *end) {
    UINT64 identifier;
    SUCCEEDS(provider->lpVtbl->ResolveAddress(provider, local, length, &identifier), "ResolveAddress");
    SUCCEEDS(provider->lpVtbl->OpenAdapter(provider, &IID_IND2Adapter, identifier, (void **)&end->adapter), "OpenAdapter");
    SUCCEEDS(end->adapter->lpVtbl->CreateOverlappedFile(end->adapter, &end->file), "CreateOverlappedFile");
    SUCCEEDS(end->adapter->lpVtbl->CreateCompletionQueue(end->adapter, &IID_IND2CompletionQueue, end->file, DEPTH, 0, 0, (void **)&end->results),
             "CreateCompletionQueue");
    SUCCEEDS(end->adapter->lpVtbl->CreateMemoryRegion(end->adapter, &IID_IND2MemoryRegion, end->file, (void **)&end->region), "CreateMemoryRegion");
    SUCCEEDS(end->adapter->lpVtbl->CreateQueuePair(end->adapter, &IID_IND2QueuePair, (IUnknown *)end->results, (IUnknown *)end->results, end, DEPTH,
                                                   DEPTH, 1, 1, 0, (void **)&end->pair),
             "CreateQueuePair");
    SUCCEEDS(end->adapter->lpVtbl->CreateConnector(end->adapter, &IID_IND2Connector, end->file, (void **)&end->connector), "CreateConnector");
    end->buffer = malloc(LARGEST);
    end->request.hEvent = CreateEventW(NULL, FALSE, FALSE, NULL);
    wait_for(end->region->lpVtbl->Register(end->region, end->buffer, LARGEST, ND_MR_FLAG_ALLOW_LOCAL_WRITE, &end->request), end->region, &end->request,
             "Register");
}

static void close_end(struct end *end) {
    end->connector->lpVtbl->Release(end->connector);
    end->pair->lpVtbl->Release(end->pair);
    wait_for(end->region->lpVtbl->Deregister(end->region, &end->request), end->region, &end->request, "Deregister");
    end->region->lpVtbl->Release(end->region);
    end->results->lpVtbl->Release(end->results);
    CloseHandle(end->file);
    end->adapter->lpVtbl->Release(end->adapter);
    CloseHandle(end->request.hEvent);
    free(end->buffer);
}

static void post(struct end *end, int receive, ULONG size) {
    ND2_SGE piece = {end->buffer, size, end->region->lpVtbl->GetLocalToken(end->region)};
    if (receive) {
        SUCCEEDS(end->pair->lpVtbl->Receive(end->pair, "receive", &piece, 1), "Receive");
    } else {
        SUCCEEDS(end->pair->lpVtbl->Send(end->pair, "send", &piece, 1, 0), "Send");
    }
}

/* Takes results until one is of a message that came; its length, or -1 when the connection has gone. */
static int receive_by_event(struct end *end) {
    ND2_RESULT result;
    for (;;) {
        while (end->results->lpVtbl->GetResults(end->results, &result, 1) == 0) {
            wait_for(end->results->lpVtbl->Notify(end->results, ND_CQ_NOTIFY_ANY, &end->request), end->results, &end->request, "Notify");
        }
        if (result.Status == ND_CANCELED) {
            return -1;
        }
        CHECK(result.Status == ND_SUCCESS, "a request", result.Status);
        if (result.RequestType == Nd2RequestTypeReceive) {
            return (int)result.BytesTransferred;
        }
    }
}

static void serve(IND2Provider *provider, const struct sockaddr *at, ULONG length) {
    struct end end = {0};
    IND2Listener *listener;
    OVERLAPPED gone = {0};
    int rounds = 0, size;
    open_end(provider, at, length, &end);
    SUCCEEDS(end.adapter->lpVtbl->CreateListener(end.adapter, &IID_IND2Listener, end.file, (void **)&listener), "CreateListener");
    SUCCEEDS(listener->lpVtbl->Bind(listener, at, length), "Bind");
    SUCCEEDS(listener->lpVtbl->Listen(listener, 0), "Listen");
    printf("listening\n");
    wait_for(listener->lpVtbl->GetConnectionRequest(listener, (IUnknown *)end.connector, &end.request), listener, &end.request, "GetConnectionRequest");
    post(&end, 1, LARGEST);
    wait_for(end.connector->lpVtbl->Accept(end.connector, (IUnknown *)end.pair, 0, 0, NULL, 0, &end.request), end.connector, &end.request, "Accept");
    gone.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL);
    HRESULT status = end.connector->lpVtbl->NotifyDisconnect(end.connector, &gone);
    CHECK(status == ND_PENDING, "NotifyDisconnect", status);
    while ((size = receive_by_event(&end)) > 0 && end.buffer[0] != 'q') {
        post(&end, 1, LARGEST);
        post(&end, 0, (ULONG)size);
        if (++rounds == 1000) {
            printf("1000 messages so far\n");
        }
    }
    wait_for(ND_PENDING, end.connector, &gone, "the end of the connection");
    printf("%d messages answered\n", rounds);
    listener->lpVtbl->Release(listener);
    close_end(&end);
    CloseHandle(gone.hEvent);
}

/* The client's thread: takes packets of the port and counts what has arrived. */
struct reader {
    HANDLE port, arrived;
    CRITICAL_SECTION lock;
    int packets;
};

static DWORD WINAPI read_port(void *argument) {
    struct reader *reader = argument;
    for (;;) {
        DWORD bytes;
        ULONG_PTR key;
        OVERLAPPED *request;
        BOOL taken = GetQueuedCompletionStatus(reader->port, &bytes, &key, &request, INFINITE);
        if (!taken || request == NULL) {
            return 5;
        }
        EnterCriticalSection(&reader->lock);
        reader->packets++;
        LeaveCriticalSection(&reader->lock);
        SetEvent(reader->arrived);
    }
}

static void receive_by_port(struct end *end, struct reader *reader, OVERLAPPED *notify) {
    ND2_RESULT result;
    for (;;) {
        while (end->results->lpVtbl->GetResults(end->results, &result, 1) == 0) {
            HRESULT status = end->results->lpVtbl->Notify(end->results, ND_CQ_NOTIFY_ANY, notify);
            CHECK(status >= 0, "Notify", status);
            WaitForSingleObject(reader->arrived, INFINITE);
        }
        CHECK(result.Status == ND_SUCCESS, "a request", result.Status);
        if (result.RequestType == Nd2RequestTypeReceive) {
            return;
        }
    }
}

static void ask(IND2Provider *provider, const struct sockaddr *to, ULONG length, int rounds, ULONG size) {
    struct sockaddr_storage local = {0};
    struct end end = {0};
    struct reader reader = {.arrived = CreateEventW(NULL, FALSE, FALSE, NULL)};
    OVERLAPPED notify = {0};
    DWORD returned, code = 0;
    LARGE_INTEGER begin, finish;
    SOCKET socket = WSASocketW(to->sa_family, SOCK_STREAM, 0, NULL, 0, 0);
    int found = WSAIoctl(socket, SIO_ROUTING_INTERFACE_QUERY, (void *)to, length, &local, sizeof local, &returned, NULL, NULL);
    CHECK(found == 0, "SIO_ROUTING_INTERFACE_QUERY", WSAGetLastError());
    closesocket(socket);
    open_end(provider, (struct sockaddr *)&local, length, &end);
    SUCCEEDS(end.connector->lpVtbl->Bind(end.connector, (struct sockaddr *)&local, length), "Bind");
    wait_for(end.connector->lpVtbl->Connect(end.connector, (IUnknown *)end.pair, to, length, 0, 0, NULL, 0, &end.request), end.connector, &end.request,
             "Connect");
    wait_for(end.connector->lpVtbl->CompleteConnect(end.connector, &end.request), end.connector, &end.request, "CompleteConnect");
    InitializeCriticalSection(&reader.lock);
    reader.port = CreateIoCompletionPort(end.file, NULL, 7, 1);
    HANDLE thread = CreateThread(NULL, 0, read_port, &reader, 0, NULL);
    QueryPerformanceCounter(&begin);
    for (int round = 0; round < rounds; round++) {
        memset(end.buffer, 'a' + round % 16, size);
        post(&end, 1, LARGEST);
        post(&end, 0, size);
        receive_by_port(&end, &reader, &notify);
        CHECK(end.buffer[0] == 'a' + round % 16 && end.buffer[size - 1] == 'a' + round % 16, "the comparison of the message that came back", round);
    }
    QueryPerformanceCounter(&finish);
    end.buffer[0] = 'q';
    post(&end, 0, 1);
    printf("%d round trips of %lu bytes\n", rounds, (unsigned long)size);
    PostQueuedCompletionStatus(reader.port, 0, 0, NULL);
    WaitForSingleObject(thread, INFINITE);
    GetExitCodeThread(thread, &code);
    CHECK(code == 5 && finish.QuadPart >= begin.QuadPart, "the reader's end", code);
    OVERLAPPED disconnect = {.hEvent = (HANDLE)((ULONG_PTR)end.request.hEvent | 1)};
    wait_for(end.connector->lpVtbl->Disconnect(end.connector, &disconnect), end.connector, &disconnect, "Disconnect");
    end.request.hEvent = (HANDLE)((ULONG_PTR)end.request.hEvent | 1);
    close_end(&end);
    DeleteCriticalSection(&reader.lock);
    CloseHandle(thread);
    CloseHandle(reader.port);
    CloseHandle(reader.arrived);
}

int main(int count, char **words) {
    WSADATA data;
    SOCKADDR_STORAGE address;
    int length = sizeof address;
    if (count < 3 || (strcmp(words[1], "server") != 0 && count < 5)) {
        fprintf(stderr, "usage: nd-pingpong server ADDRESS:PORT | client SERVER-ADDRESS:PORT ROUNDS SIZE\n");
        return 2;
    }
    CHECK(WSAStartup(MAKEWORD(2, 2), &data) == 0, "WSAStartup", 0);
    int read = WSAStringToAddressA(words[2], AF_INET, NULL, (struct sockaddr *)&address, &length);
    CHECK(read == 0, "WSAStringToAddress", WSAGetLastError());
    IND2Provider *provider = load_provider();
    if (strcmp(words[1], "server") == 0) {
        serve(provider, (struct sockaddr *)&address, (ULONG)length);
    } else {
        ask(provider, (struct sockaddr *)&address, (ULONG)length, atoi(words[3]), strtoul(words[4], NULL, 0));
    }
    provider->lpVtbl->Release(provider);
    WSACleanup();
    return 0;
}
