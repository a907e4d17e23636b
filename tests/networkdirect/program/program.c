/*
 * A NetworkDirect program that knows the public interfaces only: it loads a provider, opens two of its adapters and does between them what
 * the usual example programs do. Each command ends with 0, or with the line at which something was not as it should be; main.c
 * has the command line.
 *
 *     list | pingpong | write-pingpong | reads | writes | sends | shared | windows | connections | errors
 *                      | connection-errors | version1 | verbs | streams
 */
#include "program.h"

HRESULT found;

const struct sockaddr *address_of(struct machine *machine, int index) {
    return machine->addresses->Address[index].lpSockaddr;
}

ULONG length_of(struct machine *machine, int index) {
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

int make_pair(struct end *end) {
    STATUS_IS(end->adapter->lpVtbl->CreateQueuePair(end->adapter, &IID_IND2QueuePair, (IUnknown *)end->queue, (IUnknown *)end->queue, end,
                                                    DEPTH, DEPTH, 2, 2, 128, (void **)&end->pair),
              ND_SUCCESS);
    STATUS_IS(end->adapter->lpVtbl->CreateConnector(end->adapter, &IID_IND2Connector, end->file, (void **)&end->connector), ND_SUCCESS);
    return 0;
}

void drop_pair(struct end *end) {
    if (end->pair != NULL) {
        end->pair->lpVtbl->Release(end->pair);
        end->pair = NULL;
    }
    if (end->connector != NULL) {
        end->connector->lpVtbl->Release(end->connector);
        end->connector = NULL;
    }
}

int listen_at(struct machine *machine, IND2Listener **listener, struct sockaddr_storage *at, ULONG *length) {
    struct end *passive = &machine->passive;
    *length = sizeof *at;
    STATUS_IS(passive->adapter->lpVtbl->CreateListener(passive->adapter, &IID_IND2Listener, passive->file, (void **)listener), ND_SUCCESS);
    STATUS_IS((*listener)->lpVtbl->Bind(*listener, address_of(machine, 1), length_of(machine, 1)), ND_SUCCESS);
    STATUS_IS((*listener)->lpVtbl->GetLocalAddress(*listener, (struct sockaddr *)at, length), ND_SUCCESS);
    STATUS_IS((*listener)->lpVtbl->Listen(*listener, 0), ND_SUCCESS);
    return 0;
}

/* Connects the queue pairs of both ends by the three steps of the protocol, with private data in both directions. */
int connect_ends(struct machine *machine, IND2Listener *listener, const struct sockaddr_storage *at, ULONG length) {
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
int one_result(struct end *end, ND2_RESULT *result) {
    while (end->queue->lpVtbl->GetResults(end->queue, result, 1) == 0) {
        STATUS_IS(FINISH(end->queue, end->queue->lpVtbl->Notify(end->queue, ND_CQ_NOTIFY_ANY, &end->notify), &end->notify), ND_SUCCESS);
    }
    return 0;
}

int succeeds(struct end *end, ND2_REQUEST_TYPE type) {
    ND2_RESULT result;
    PASSES(one_result(end, &result));
    STATUS_IS(result.Status, ND_SUCCESS);
    EXPECT(result.RequestType == type && result.QueuePairContext == end);
    return 0;
}

ND2_SGE piece(struct end *end, ULONG offset, ULONG length) {
    ND2_SGE sge = {end->buffer + offset, length, end->region->lpVtbl->GetLocalToken(end->region)};
    return sge;
}

int disconnect(struct machine *machine) {
    struct end *active = &machine->active;
    STATUS_IS(FINISH(active->connector, active->connector->lpVtbl->Disconnect(active->connector, &active->overlapped), &active->overlapped), ND_SUCCESS);
    return 0;
}

typedef int (*command_function)(struct machine *);

static const struct command {
    const char *name;
    command_function run;
    int connected;
} commands[] = {
    {"list", list, 0},
    {"pingpong", pingpong, 1},
    {"write-pingpong", write_pingpong, 1},
    {"reads", reads, 1},
    {"writes", writes, 1},
    {"sends", sends, 1},
    {"shared", shared, 0},
    {"windows", windows, 1},
    {"connections", connections, 0},
    {"errors", errors, 0},
    {"connection-errors", connection_errors, 0},
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
    if (found == ND_SUCCESS && machine.addresses->iAddressCount >= 2 && same(name, "version1")) {
        line = version1(provider, &machine);
    } else if (found == ND_SUCCESS && machine.addresses->iAddressCount >= 2 && same(name, "verbs")) {
        line = verbs(provider);
    } else if (found == ND_SUCCESS && machine.addresses->iAddressCount >= 2 && same(name, "streams")) {
        line = streams(provider, &machine);
    } else if (found == ND_SUCCESS && machine.addresses->iAddressCount >= 2) {
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
    return line;
}

/* What was written, for a host that wants to see it. */
static char output[4096];
static DWORD written;

EXPORTED const char *output_text(void) { return output; }

void put(const char *text) {
    DWORD begin = written, done;
    while (*text != 0 && written + 1 < sizeof output) {
        output[written++] = *text++;
    }
    output[written] = 0;
    WriteFile(GetStdHandle(STD_OUTPUT_HANDLE), output + begin, written - begin, &done, NULL);
}

void end_line(void) { put("\n"); }

void say(const char *text) {
    put(text);
    end_line();
}

void put_number(UINT64 number) {
    char digits[24];
    int place = sizeof digits - 1;
    digits[place] = 0;
    do {
        digits[--place] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    put(digits + place);
}

static void put_status(HRESULT status) {
    char digits[9];
    for (int place = 0; place < 8; place++) {
        digits[place] = "0123456789ABCDEF"[((UINT32)status >> (28 - 4 * place)) & 15];
    }
    digits[8] = 0;
    put(digits);
}

int not_expected(const char *file, int line) {
    put(file);
    put(":");
    put_number((UINT64)line);
    put(": not as expected; the last status was ");
    put_status(found);
    end_line();
    return line;
}
