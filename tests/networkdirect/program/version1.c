/* Ping-pong with the interfaces of version 1: batches, a window of the peer's memory, and a message that invalidates it. */
#include "program.h"

#define ROUNDS 50
#define PORT 0x901F /* 8080 in network order */

struct first {
    INDAdapter *adapter;
    INDCompletionQueue *queue;
    INDConnector *connector;
    INDEndpoint *endpoint;
    ND_MR_HANDLE region;
    unsigned char *buffer;
    OVERLAPPED overlapped;
    SIZE_T bytes;
};

/* Ends an overlapped call: waits if it pends. */
#define FINISH_1(object, call, first)                                                                                       \
    ((found = (call)) == ND_PENDING ? (object)->lpVtbl->GetOverlappedResult((object), &(first)->overlapped, &(first)->bytes, TRUE) : found)

static int open_first(INDProvider *provider, struct machine *machine, int index, struct first *first) {
    SIZE_T inline_data = 0;
    first->overlapped.hEvent = CreateEventW(NULL, FALSE, FALSE, NULL);
    first->buffer = VirtualAlloc(NULL, 65536, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE);
    STATUS_IS(provider->lpVtbl->OpenAdapter(provider, address_of(machine, index), length_of(machine, index), &first->adapter), ND_SUCCESS);
    STATUS_IS(first->adapter->lpVtbl->CreateCompletionQueue(first->adapter, 128, &first->queue), ND_SUCCESS);
    STATUS_IS(first->adapter->lpVtbl->CreateConnector(first->adapter, &first->connector), ND_SUCCESS);
    STATUS_IS(first->connector->lpVtbl->CreateEndpoint(first->connector, first->queue, first->queue, 64, 64, 1, 1, 16, 16, &inline_data,
                                                       &first->endpoint),
              ND_SUCCESS);
    EXPECT(inline_data != 0);
    STATUS_IS(FINISH_1(first->adapter, first->adapter->lpVtbl->RegisterMemory(first->adapter, first->buffer, 65536, &first->overlapped, &first->region),
                       first),
              ND_SUCCESS);
    return 0;
}

static int connect_first(struct machine *machine, struct first *active, struct first *passive) {
    struct sockaddr_storage to = {0};
    OVERLAPPED request = {0};
    INDListen *listen;
    for (ULONG byte = 0; byte < length_of(machine, 1); byte++) {
        ((char *)&to)[byte] = ((const char *)address_of(machine, 1))[byte];
    }
    ((USHORT *)&to)[1] = PORT;
    request.hEvent = CreateEventW(NULL, FALSE, FALSE, NULL);
    STATUS_IS(passive->adapter->lpVtbl->Listen(passive->adapter, 0, 123, PORT, NULL, &listen), ND_SUCCESS);
    STATUS_IS(listen->lpVtbl->GetConnectionRequest(listen, passive->connector, &request), ND_PENDING);
    STATUS_IS(active->connector->lpVtbl->Connect(active->connector, active->endpoint, (struct sockaddr *)&to, length_of(machine, 1), 123, 0, "hi", 2,
                                               &active->overlapped),
              ND_PENDING);
    STATUS_IS(listen->lpVtbl->GetOverlappedResult(listen, &request, &passive->bytes, TRUE), ND_SUCCESS);
    STATUS_IS(passive->connector->lpVtbl->Accept(passive->connector, passive->endpoint, NULL, 0, &passive->overlapped), ND_PENDING);
    STATUS_IS(active->connector->lpVtbl->GetOverlappedResult(active->connector, &active->overlapped, &active->bytes, TRUE), ND_SUCCESS);
    STATUS_IS(FINISH_1(active->connector, active->connector->lpVtbl->CompleteConnect(active->connector, &active->overlapped), active), ND_SUCCESS);
    STATUS_IS(passive->connector->lpVtbl->GetOverlappedResult(passive->connector, &passive->overlapped, &passive->bytes, TRUE), ND_SUCCESS);
    listen->lpVtbl->Release(listen);
    CloseHandle(request.hEvent);
    return 0;
}

/* The next result of an end has to be this one. */
static int gets(struct first *first, ND_RESULT *expected, SIZE_T bytes) {
    ND_RESULT *result;
    while (first->queue->lpVtbl->GetResults(first->queue, &result, 1) == 0) {
        STATUS_IS(FINISH_1(first->queue, first->queue->lpVtbl->Notify(first->queue, ND_CQ_NOTIFY_ANY, &first->overlapped), first), ND_SUCCESS);
    }
    EXPECT(result == expected);
    STATUS_IS(result->Status, ND_SUCCESS);
    EXPECT(result->BytesTransferred == bytes);
    return 0;
}

static int exchange(struct first *from, struct first *to, SIZE_T length, unsigned char mark) {
    ND_SGE out = {from->buffer, length, from->region}, in = {to->buffer + 32768, 4096, to->region};
    ND_RESULT sent, received;
    from->buffer[length - 1] = mark;
    STATUS_IS(to->endpoint->lpVtbl->Receive(to->endpoint, &received, &in, 1), ND_SUCCESS);
    from->endpoint->lpVtbl->StartRequestBatch(from->endpoint);
    STATUS_IS(from->endpoint->lpVtbl->Send(from->endpoint, &sent, &out, 1, 0), ND_SUCCESS);
    from->endpoint->lpVtbl->SubmitRequestBatch(from->endpoint);
    PASSES(gets(from, &sent, length));
    PASSES(gets(to, &received, length));
    EXPECT(to->buffer[32768 + length - 1] == mark);
    return 0;
}

/* The passive end lends its memory; the active one reads, writes and takes the right away by a message. */
static int lend(struct first *active, struct first *passive) {
    INDMemoryWindow *window;
    ND_MW_DESCRIPTOR descriptor;
    ND_RESULT bound, received, done, told;
    ND_SGE sge = {active->buffer, 1024, active->region}, none = {active->buffer, 0, active->region};
    ND_SGE last = {active->buffer + 2048, 1, active->region};
    STATUS_IS(passive->adapter->lpVtbl->CreateMemoryWindow(passive->adapter, &told, &window), ND_SUCCESS);
    bound.BytesTransferred = 0;
    STATUS_IS(passive->endpoint->lpVtbl->Bind(passive->endpoint, &bound, passive->region, window, passive->buffer, 8192,
                                              ND_OP_FLAG_ALLOW_READ | ND_OP_FLAG_ALLOW_WRITE, &descriptor),
              ND_SUCCESS);
    PASSES(gets(passive, &bound, 0));
    passive->buffer[4096 + 7] = 77;
    STATUS_IS(active->endpoint->lpVtbl->Read(active->endpoint, &done, &sge, 1, &descriptor, 4096, 0), ND_SUCCESS);
    PASSES(gets(active, &done, 1024));
    EXPECT(active->buffer[7] == 77);
    STATUS_IS(active->endpoint->lpVtbl->Write(active->endpoint, &done, &sge, 1, &descriptor, 1, 0), ND_SUCCESS);
    PASSES(gets(active, &done, 1024));
    /* A Read sees what was written before it; the Write itself may still be on its way. */
    STATUS_IS(active->endpoint->lpVtbl->Read(active->endpoint, &done, &last, 1, &descriptor, 0, 0), ND_SUCCESS);
    PASSES(gets(active, &done, 1));
    EXPECT(passive->buffer[8] == 77);
    STATUS_IS(active->endpoint->lpVtbl->Write(active->endpoint, &done, &sge, 1, &descriptor, 8192 - 1023, 0), ND_REMOTE_ERROR);
    STATUS_IS(passive->adapter->lpVtbl->DeregisterMemory(passive->adapter, passive->region, &passive->overlapped), ND_DEVICE_BUSY);
    STATUS_IS(passive->endpoint->lpVtbl->Receive(passive->endpoint, &received, NULL, 0), ND_SUCCESS);
    STATUS_IS(active->endpoint->lpVtbl->SendAndInvalidate(active->endpoint, &done, &none, 1, &descriptor, 0), ND_SUCCESS);
    PASSES(gets(active, &done, 0));
    PASSES(gets(passive, &received, 0));
    PASSES(gets(passive, &told, 0));
    window->lpVtbl->Release(window);
    return 0;
}

static int close_first(struct first *first) {
    first->endpoint->lpVtbl->Release(first->endpoint);
    first->connector->lpVtbl->Release(first->connector);
    STATUS_IS(FINISH_1(first->adapter, first->adapter->lpVtbl->DeregisterMemory(first->adapter, first->region, &first->overlapped), first), ND_SUCCESS);
    first->queue->lpVtbl->Release(first->queue);
    first->adapter->lpVtbl->Release(first->adapter);
    VirtualFree(first->buffer, 0, MEM_RELEASE);
    CloseHandle(first->overlapped.hEvent);
    return 0;
}

int version1(get_class_object object, struct machine *machine) {
    static const CLSID any;
    struct first active = {0}, passive = {0};
    INDProvider *provider;
    STATUS_IS(object(&any, &IID_INDProvider, (void **)&provider), ND_SUCCESS);
    PASSES(open_first(provider, machine, 0, &active));
    PASSES(open_first(provider, machine, 1, &passive));
    provider->lpVtbl->Release(provider);
    PASSES(connect_first(machine, &active, &passive));
    for (SIZE_T length = 1; length <= 4096; length *= 8) {
        for (int round = 0; round < ROUNDS; round++) {
            PASSES(exchange(&active, &passive, length, (unsigned char)round));
            PASSES(exchange(&passive, &active, length, (unsigned char)(round + 1)));
        }
        put_number(length);
        put(" bytes: ");
        put_number(ROUNDS);
        say(" round trips");
    }
    PASSES(lend(&active, &passive));
    STATUS_IS(FINISH_1(active.connector, active.connector->lpVtbl->Disconnect(active.connector, &active.overlapped), &active), ND_SUCCESS);
    PASSES(close_first(&active));
    PASSES(close_first(&passive));
    say("a window lent, used and taken back");
    return 0;
}
