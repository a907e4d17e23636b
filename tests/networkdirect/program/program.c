/*
 * A NetworkDirect program that knows the public interfaces only: it loads a provider, opens two of its adapters and does between them what
 * the usual example programs do. Each command ends with 0, or with the line at which something was not as it should be; main.c has the
 * command line.
 */
#include "ndspi.h"
#include "program.h"

#define BUFFER_LENGTH (256 * 1024)
#define DEPTH 64

/* What was found instead of what was expected. */
static HRESULT found;
static void say(const char *text);

#define EXPECT(condition)                                                                                                   \
    do {                                                                                                                    \
        if (!(condition)) {                                                                                                 \
            say_number("not as expected: status ", (UINT64)(UINT32)found);                                                  \
            return __LINE__;                                                                                                \
        }                                                                                                                   \
    } while (0)
#define STATUS_IS(call, status) EXPECT((found = (call)) == (status))
/* Ends an overlapped call: waits if it pends. */
#define FINISH(object, call, overlapped)                                                                                    \
    ((found = (call)) == ND_PENDING ? (object)->lpVtbl->GetOverlappedResult((object), (overlapped), TRUE) : found)

struct end {
    IND2Adapter *adapter;
    HANDLE file;
    IND2CompletionQueue *queue;
    IND2QueuePair *pair;
    IND2MemoryRegion *region;
    IND2Connector *connector;
    OVERLAPPED overlapped;
    OVERLAPPED notify;
    unsigned char *buffer;
};

struct machine {
    IND2Provider *provider;
    SOCKET_ADDRESS_LIST *addresses;
    struct end active;
    struct end passive;
};

static const struct sockaddr *address_of(struct machine *machine, int index) {
    return machine->addresses->Address[index].lpSockaddr;
}

static ULONG length_of(struct machine *machine, int index) {
    return (ULONG)machine->addresses->Address[index].iSockaddrLength;
}

static int open_end(struct machine *machine, int index, struct end *end) {
    UINT64 identifier;
    STATUS_IS(machine->provider->lpVtbl->ResolveAddress(machine->provider, address_of(machine, index), length_of(machine, index), &identifier),
              ND_SUCCESS);
    STATUS_IS(machine->provider->lpVtbl->OpenAdapter(machine->provider, &IID_IND2Adapter, identifier, (void **)&end->adapter), ND_SUCCESS);
    STATUS_IS(end->adapter->lpVtbl->CreateOverlappedFile(end->adapter, &end->file), ND_SUCCESS);
    STATUS_IS(end->adapter->lpVtbl->CreateCompletionQueue(end->adapter, &IID_IND2CompletionQueue, end->file, 4 * DEPTH, 0, 0,
                                                          (void **)&end->queue),
              ND_SUCCESS);
    STATUS_IS(end->adapter->lpVtbl->CreateMemoryRegion(end->adapter, &IID_IND2MemoryRegion, end->file, (void **)&end->region), ND_SUCCESS);
    end->overlapped.hEvent = CreateEventW(NULL, FALSE, FALSE, NULL);
    end->notify.hEvent = CreateEventW(NULL, FALSE, FALSE, NULL);
    end->buffer = VirtualAlloc(NULL, BUFFER_LENGTH, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE);
    EXPECT(end->overlapped.hEvent != NULL && end->notify.hEvent != NULL && end->buffer != NULL);
    STATUS_IS(FINISH(end->region,
                     end->region->lpVtbl->Register(end->region, end->buffer, BUFFER_LENGTH,
                                                   ND_MR_FLAG_ALLOW_LOCAL_WRITE | ND_MR_FLAG_ALLOW_REMOTE_READ | ND_MR_FLAG_ALLOW_REMOTE_WRITE,
                                                   &end->overlapped),
                     &end->overlapped),
              ND_SUCCESS);
    return 0;
}

static int make_pair(struct end *end) {
    STATUS_IS(end->adapter->lpVtbl->CreateQueuePair(end->adapter, &IID_IND2QueuePair, (IUnknown *)end->queue, (IUnknown *)end->queue, end,
                                                    DEPTH, DEPTH, 2, 2, 128, (void **)&end->pair),
              ND_SUCCESS);
    STATUS_IS(end->adapter->lpVtbl->CreateConnector(end->adapter, &IID_IND2Connector, end->file, (void **)&end->connector), ND_SUCCESS);
    return 0;
}

static void drop_pair(struct end *end) {
    if (end->pair != NULL) {
        end->pair->lpVtbl->Release(end->pair);
        end->pair = NULL;
    }
    if (end->connector != NULL) {
        end->connector->lpVtbl->Release(end->connector);
        end->connector = NULL;
    }
}

static int listen_at(struct machine *machine, IND2Listener **listener, struct sockaddr_storage *at, ULONG *length) {
    struct end *passive = &machine->passive;
    *length = sizeof *at;
    STATUS_IS(passive->adapter->lpVtbl->CreateListener(passive->adapter, &IID_IND2Listener, passive->file, (void **)listener), ND_SUCCESS);
    STATUS_IS((*listener)->lpVtbl->Bind(*listener, address_of(machine, 1), length_of(machine, 1)), ND_SUCCESS);
    STATUS_IS((*listener)->lpVtbl->GetLocalAddress(*listener, (struct sockaddr *)at, length), ND_SUCCESS);
    STATUS_IS((*listener)->lpVtbl->Listen(*listener, 0), ND_SUCCESS);
    return 0;
}

/* Connects the queue pairs of both ends by the three steps of the protocol, with private data in both directions. */
static int connect_ends(struct machine *machine, IND2Listener *listener, const struct sockaddr_storage *at, ULONG length) {
    struct end *active = &machine->active, *passive = &machine->passive;
    OVERLAPPED request = {0}, accept = {0};
    char data[16];
    ULONG data_length = sizeof data;
    HRESULT requested;
    request.hEvent = passive->notify.hEvent;
    accept.hEvent = passive->overlapped.hEvent;
    requested = listener->lpVtbl->GetConnectionRequest(listener, (IUnknown *)passive->connector, &request);
    EXPECT(requested == ND_PENDING || requested == ND_SUCCESS);
    STATUS_IS(active->connector->lpVtbl->Bind(active->connector, address_of(machine, 0), length_of(machine, 0)), ND_SUCCESS);
    STATUS_IS(active->connector->lpVtbl->Connect(active->connector, (IUnknown *)active->pair, (const struct sockaddr *)at, length, 8, 8, "hello", 5,
                                               &active->overlapped),
              ND_PENDING);
    STATUS_IS(requested == ND_PENDING ? listener->lpVtbl->GetOverlappedResult(listener, &request, TRUE) : requested, ND_SUCCESS);
    STATUS_IS(passive->connector->lpVtbl->GetPrivateData(passive->connector, data, &data_length), ND_SUCCESS);
    EXPECT(data_length >= 5 && data[0] == 'h' && data[4] == 'o');
    STATUS_IS(passive->connector->lpVtbl->Accept(passive->connector, (IUnknown *)passive->pair, 8, 8, "back", 4, &accept), ND_PENDING);
    STATUS_IS(active->connector->lpVtbl->GetOverlappedResult(active->connector, &active->overlapped, TRUE), ND_SUCCESS);
    STATUS_IS(FINISH(active->connector, active->connector->lpVtbl->CompleteConnect(active->connector, &active->overlapped), &active->overlapped),
              ND_SUCCESS);
    STATUS_IS(passive->connector->lpVtbl->GetOverlappedResult(passive->connector, &accept, TRUE), ND_SUCCESS);
    return 0;
}

/* Waits for one result, by Notify where there is none yet. */
static int one_result(struct end *end, ND2_RESULT *result) {
    while (end->queue->lpVtbl->GetResults(end->queue, result, 1) == 0) {
        STATUS_IS(FINISH(end->queue, end->queue->lpVtbl->Notify(end->queue, ND_CQ_NOTIFY_ANY, &end->notify), &end->notify), ND_SUCCESS);
    }
    return 0;
}

static int succeeds(struct end *end, ND2_REQUEST_TYPE type) {
    ND2_RESULT result;
    PASSES(one_result(end, &result));
    STATUS_IS(result.Status, ND_SUCCESS);
    EXPECT(result.RequestType == type && result.QueuePairContext == end);
    return 0;
}

static ND2_SGE piece(struct end *end, ULONG offset, ULONG length) {
    ND2_SGE sge = {end->buffer + offset, length, end->region->lpVtbl->GetLocalToken(end->region)};
    return sge;
}

static int disconnect(struct machine *machine) {
    struct end *active = &machine->active;
    STATUS_IS(FINISH(active->connector, active->connector->lpVtbl->Disconnect(active->connector, &active->overlapped), &active->overlapped), ND_SUCCESS);
    return 0;
}

static int list(struct machine *machine) {
    ND2_ADAPTER_INFO info = {0};
    ULONG length = sizeof info;
    info.InfoVersion = ND_VERSION_2;
    say_number("addresses: ", (UINT64)machine->addresses->iAddressCount);
    STATUS_IS(machine->active.adapter->lpVtbl->Query(machine->active.adapter, &info, &length), ND_SUCCESS);
    EXPECT(info.InfoVersion == ND_VERSION_2 && info.MaxInitiatorQueueDepth >= 128 && info.MaxCompletionQueueDepth >= 256);
    EXPECT(info.InlineRequestThreshold <= info.MaxInlineDataSize && info.MaxCallerData >= 40 && info.MaxRegistrationSize >= 64 << 20);
    say_number("completion queue entries: ", info.MaxCompletionQueueDepth);
    length = 0;
    STATUS_IS(machine->active.adapter->lpVtbl->Query(machine->active.adapter, NULL, &length), ND_BUFFER_OVERFLOW);
    EXPECT(length == sizeof info);
    return 0;
}

static int pingpong(struct machine *machine) {
    struct end *active = &machine->active, *passive = &machine->passive;
    for (int round = 0; round < 100; round++) {
        ND2_SGE out = piece(active, 0, 64), in = piece(passive, 4096, 64), back = piece(active, 8192, 64);
        active->buffer[0] = (unsigned char)round;
        active->buffer[63] = (unsigned char)(round + 1);
        STATUS_IS(passive->pair->lpVtbl->Receive(passive->pair, NULL, &in, 1), ND_SUCCESS);
        STATUS_IS(active->pair->lpVtbl->Receive(active->pair, NULL, &back, 1), ND_SUCCESS);
        STATUS_IS(active->pair->lpVtbl->Send(active->pair, NULL, &out, 1, 0), ND_SUCCESS);
        PASSES(succeeds(active, Nd2RequestTypeSend));
        PASSES(succeeds(passive, Nd2RequestTypeReceive));
        EXPECT(passive->buffer[4096] == (unsigned char)round && passive->buffer[4096 + 63] == (unsigned char)(round + 1));
        STATUS_IS(passive->pair->lpVtbl->Send(passive->pair, NULL, &in, 1, ND_OP_FLAG_INLINE), ND_SUCCESS);
        PASSES(succeeds(passive, Nd2RequestTypeSend));
        PASSES(succeeds(active, Nd2RequestTypeReceive));
        EXPECT(active->buffer[8192] == (unsigned char)round);
    }
    say("100 round trips");
    return 0;
}

/* Reads and Writes with the queue kept full. */
static int rates(struct machine *machine) {
    struct end *active = &machine->active, *passive = &machine->passive;
    UINT32 token = passive->region->lpVtbl->GetRemoteToken(passive->region);
    for (int kind = 0; kind < 2; kind++) {
        int posted = 0, done = 0;
        for (int index = 0; index < BUFFER_LENGTH; index++) {
            active->buffer[index] = (unsigned char)(kind == 0 ? 0 : index * 7);
            passive->buffer[index] = (unsigned char)(kind == 0 ? index * 5 : 0);
        }
        while (done < 512) {
            ND2_RESULT result;
            while (posted < 512) {
                ULONG offset = (ULONG)(posted % 64) * 4096;
                ND2_SGE sge = piece(active, offset, 4096);
                UINT64 address = (UINT64)(UINT_PTR)passive->buffer + offset;
                found = kind == 0 ? active->pair->lpVtbl->Read(active->pair, NULL, &sge, 1, address, token, 0)
                                  : active->pair->lpVtbl->Write(active->pair, NULL, &sge, 1, address, token, 0);
                if (found == ND_NO_MORE_ENTRIES) {
                    break;
                }
                EXPECT(found == ND_SUCCESS);
                posted++;
            }
            PASSES(one_result(active, &result));
            STATUS_IS(result.Status, ND_SUCCESS);
            done++;
        }
        for (int index = 0; index < BUFFER_LENGTH; index++) {
            EXPECT(active->buffer[index] == passive->buffer[index]);
        }
    }
    say("512 Reads and 512 Writes of 4 KiB");
    return 0;
}

static int windows(struct machine *machine) {
    struct end *active = &machine->active, *passive = &machine->passive;
    IND2MemoryWindow *window;
    ND2_SGE sge = piece(active, 0, 256);
    ND2_RESULT result;
    UINT32 token;
    STATUS_IS(passive->adapter->lpVtbl->CreateMemoryWindow(passive->adapter, &IID_IND2MemoryWindow, (void **)&window), ND_SUCCESS);
    STATUS_IS(passive->pair->lpVtbl->Bind(passive->pair, NULL, (IUnknown *)passive->region, (IUnknown *)window, passive->buffer, 4096, ND_OP_FLAG_ALLOW_READ),
              ND_SUCCESS);
    token = window->lpVtbl->GetRemoteToken(window);
    PASSES(succeeds(passive, Nd2RequestTypeBind));
    STATUS_IS(active->pair->lpVtbl->Read(active->pair, NULL, &sge, 1, (UINT64)(UINT_PTR)passive->buffer, token, 0), ND_SUCCESS);
    PASSES(succeeds(active, Nd2RequestTypeRead));
    STATUS_IS(passive->region->lpVtbl->Deregister(passive->region, &passive->overlapped), ND_DEVICE_BUSY);
    STATUS_IS(passive->pair->lpVtbl->Invalidate(passive->pair, NULL, (IUnknown *)window, 0), ND_SUCCESS);
    PASSES(succeeds(passive, Nd2RequestTypeInvalidate));
    STATUS_IS(active->pair->lpVtbl->Read(active->pair, NULL, &sge, 1, (UINT64)(UINT_PTR)passive->buffer, token, 0), ND_SUCCESS);
    PASSES(one_result(active, &result));
    STATUS_IS(result.Status, ND_ACCESS_VIOLATION);
    window->lpVtbl->Release(window);
    say("a window bound, read through, invalidated");
    return 0;
}

static int connections(struct machine *machine) {
    for (int round = 0; round < 50; round++) {
        IND2Listener *listener;
        struct sockaddr_storage at;
        ULONG length;
        PASSES(listen_at(machine, &listener, &at, &length));
        PASSES(make_pair(&machine->active));
        PASSES(make_pair(&machine->passive));
        PASSES(connect_ends(machine, listener, &at, length));
        PASSES(disconnect(machine));
        drop_pair(&machine->active);
        drop_pair(&machine->passive);
        listener->lpVtbl->Release(listener);
    }
    say("50 connections");
    return 0;
}

static int errors(struct machine *machine) {
    struct end *active = &machine->active;
    ND2_SGE sges[40];
    struct sockaddr_storage at;
    ULONG length = sizeof at;
    IND2Listener *listener;
    for (ULONG index = 0; index < 40; index++) {
        sges[index] = piece(active, 8 * index, 8);
    }
    PASSES(listen_at(machine, &listener, &at, &length));
    listener->lpVtbl->Release(listener);
    PASSES(make_pair(active));
    STATUS_IS(active->pair->lpVtbl->Send(active->pair, NULL, sges, 1, 0), ND_CONNECTION_INVALID);
    STATUS_IS(active->pair->lpVtbl->Receive(active->pair, NULL, sges, 40), ND_DATA_OVERRUN);
    STATUS_IS(active->region->lpVtbl->Register(active->region, NULL, 0, 0, &active->overlapped), ND_INVALID_PARAMETER);
    STATUS_IS(active->region->lpVtbl->Register(active->region, active->buffer, 0, 0, &active->overlapped), ND_INVALID_BUFFER_SIZE);
    STATUS_IS(active->connector->lpVtbl->Bind(active->connector, address_of(machine, 0), length_of(machine, 0)), ND_SUCCESS);
    STATUS_IS(FINISH(active->connector,
                     active->connector->lpVtbl->Connect(active->connector, (IUnknown *)active->pair, (struct sockaddr *)&at, length, 0, 0, NULL, 0,
                                                      &active->overlapped),
                     &active->overlapped),
              ND_CONNECTION_REFUSED);
    for (int receives = 0; receives < 2; receives++) {
        STATUS_IS(active->pair->lpVtbl->Receive(active->pair, NULL, sges, 1), ND_SUCCESS);
    }
    STATUS_IS(active->pair->lpVtbl->Flush(active->pair), ND_SUCCESS);
    for (int receives = 0; receives < 2; receives++) {
        ND2_RESULT result;
        PASSES(one_result(active, &result));
        STATUS_IS(result.Status, ND_CANCELED);
    }
    drop_pair(active);
    say("the usual refusals");
    return 0;
}

typedef int (*command_function)(struct machine *);

static const struct command {
    const char *name;
    command_function run;
    int connected;
} commands[] = {
    {"list", list, 0},       {"pingpong", pingpong, 1},       {"rates", rates, 1},
    {"windows", windows, 1}, {"connections", connections, 0}, {"errors", errors, 0},
};

static int run(struct machine *machine, const struct command *command) {
    IND2Listener *listener = NULL;
    PASSES(open_end(machine, 0, &machine->active));
    PASSES(open_end(machine, 1, &machine->passive));
    if (command->connected) {
        struct sockaddr_storage at;
        ULONG length;
        PASSES(listen_at(machine, &listener, &at, &length));
        PASSES(make_pair(&machine->active));
        PASSES(make_pair(&machine->passive));
        PASSES(connect_ends(machine, listener, &at, length));
    }
    PASSES(command->run(machine));
    if (command->connected) {
        PASSES(disconnect(machine));
        listener->lpVtbl->Release(listener);
    }
    return 0;
}

static void close_end(struct end *end) {
    drop_pair(end);
    if (end->region != NULL) {
        HRESULT status = end->region->lpVtbl->Deregister(end->region, &end->overlapped);
        if (status == ND_PENDING) {
            end->region->lpVtbl->GetOverlappedResult(end->region, &end->overlapped, TRUE);
        }
        end->region->lpVtbl->Release(end->region);
    }
    if (end->queue != NULL) {
        end->queue->lpVtbl->Release(end->queue);
    }
    if (end->file != NULL) {
        CloseHandle(end->file);
    }
    if (end->adapter != NULL) {
        end->adapter->lpVtbl->Release(end->adapter);
    }
    CloseHandle(end->overlapped.hEvent);
    CloseHandle(end->notify.hEvent);
    VirtualFree(end->buffer, 0, MEM_RELEASE);
}

static int same(const char *one, const char *other) {
    while (*one != 0 && *one == *other) {
        one++;
        other++;
    }
    return *one == *other;
}

/* Runs a command with a provider; the entry for a host that has loaded the provider itself. */
EXPORTED int run_program(get_class_object provider, const char *name) {
    static const CLSID any = {0};
    struct machine machine = {0};
    ULONG length = 0;
    int line = __LINE__;
    found = provider(&any, &IID_IND2Provider, (void **)&machine.provider);
    if (found != ND_SUCCESS) {
        return line;
    }
    found = machine.provider->lpVtbl->QueryAddressList(machine.provider, NULL, &length);
    if (found == ND_BUFFER_OVERFLOW) {
        machine.addresses = HeapAlloc(GetProcessHeap(), 0, length);
        found = machine.provider->lpVtbl->QueryAddressList(machine.provider, machine.addresses, &length);
    }
    if (found == ND_SUCCESS && machine.addresses->iAddressCount >= 2) {
        for (unsigned index = 0; index < sizeof commands / sizeof commands[0]; index++) {
            if (same(commands[index].name, name)) {
                line = run(&machine, &commands[index]);
                close_end(&machine.active);
                close_end(&machine.passive);
            }
        }
    }
    machine.provider->lpVtbl->Release(machine.provider);
    HeapFree(GetProcessHeap(), 0, machine.addresses);
    if (line != 0) {
        say_number("failed at line ", (UINT64)line);
    }
    return line;
}

static void write_text(const char *text, DWORD length) {
    DWORD written;
    WriteFile(GetStdHandle(STD_OUTPUT_HANDLE), text, length, &written, NULL);
}

static void say(const char *text) {
    DWORD length = 0;
    while (text[length] != 0) {
        length++;
    }
    write_text(text, length);
    write_text("\r\n", 2);
}

void say_number(const char *text, UINT64 number) {
    char line[96];
    char digits[16];
    DWORD length = 0, count = 0;
    while (text[length] != 0 && length < 64) {
        line[length] = text[length];
        length++;
    }
    do {
        digits[count++] = "0123456789abcdef"[number & 15];
        number >>= 4;
    } while (number != 0);
    line[length++] = '0';
    line[length++] = 'x';
    while (count != 0) {
        line[length++] = digits[--count];
    }
    line[length] = 0;
    say(line);
}
