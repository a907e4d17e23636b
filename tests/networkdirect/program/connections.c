/* Windows, connections, and what is refused. */
#include "program.h"

int windows(struct machine *machine) {
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

int connections(struct machine *machine) {
    UINT64 begin = GetTickCount64();
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
    EXPECT(GetTickCount64() - begin < 10000);
    say("50 connections made and ended");
    return 0;
}

int errors(struct machine *machine) {
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

/* Starts an attempt to connect the active end, and says how it ends. */
static HRESULT attempt(struct machine *machine, const struct sockaddr *to, ULONG length, const void *data, ULONG data_length) {
    struct end *active = &machine->active;
    return FINISH(active->connector,
                  active->connector->lpVtbl->Connect(active->connector, (IUnknown *)active->pair, to, length, 8, 8, data, data_length, &active->overlapped),
                  &active->overlapped);
}

/* What goes wrong between two programs, one after the other on the same connector. */
int connection_errors(struct machine *machine) {
    struct end *active = &machine->active, *passive = &machine->passive;
    static const char data[1024];
    struct sockaddr_storage at, nowhere = {0};
    OVERLAPPED request = {0};
    IND2Listener *listener;
    ULONG length, size = sizeof nowhere;
    PASSES(listen_at(machine, &listener, &at, &length));
    PASSES(make_pair(active));
    PASSES(make_pair(passive));
    STATUS_IS(attempt(machine, (struct sockaddr *)&at, length, NULL, 0), ND_ADDRESS_NOT_ASSOCIATED);
    STATUS_IS(active->connector->lpVtbl->Bind(active->connector, address_of(machine, 0), length_of(machine, 0)), ND_SUCCESS);
    STATUS_IS(active->connector->lpVtbl->Bind(active->connector, address_of(machine, 0), length_of(machine, 0)), ND_ADDRESS_ALREADY_ASSOCIATED);
    STATUS_IS(active->connector->lpVtbl->GetLocalAddress(active->connector, (struct sockaddr *)&nowhere, &size), ND_SUCCESS);
    EXPECT(size == 16);
    nowhere.__ss_pad1[2] = nowhere.__ss_pad1[3] = nowhere.__ss_pad1[4] = nowhere.__ss_pad1[5] = 0;
    STATUS_IS(attempt(machine, (struct sockaddr *)&nowhere, size, NULL, 0), ND_BAD_NETWORK_NAME);
    STATUS_IS(attempt(machine, (struct sockaddr *)&at, length, data, sizeof data), ND_INVALID_BUFFER_SIZE);
    STATUS_IS(listener->lpVtbl->Listen(listener, 0), ND_INVALID_DEVICE_STATE);
    /* Rejected, with the reason. */
    request.hEvent = passive->notify.hEvent;
    STATUS_IS(listener->lpVtbl->GetConnectionRequest(listener, (IUnknown *)passive->connector, &request), ND_PENDING);
    STATUS_IS(active->connector->lpVtbl->Connect(active->connector, (IUnknown *)active->pair, (struct sockaddr *)&at, length, 8, 8, NULL, 0,
                                               &active->overlapped),
              ND_PENDING);
    STATUS_IS(listener->lpVtbl->GetOverlappedResult(listener, &request, TRUE), ND_SUCCESS);
    STATUS_IS(passive->connector->lpVtbl->Reject(passive->connector, "full", 4), ND_SUCCESS);
    STATUS_IS(active->connector->lpVtbl->GetOverlappedResult(active->connector, &active->overlapped, TRUE), ND_CONNECTION_REFUSED);
    {
        char reason[8] = {0};
        ULONG reason_length = sizeof reason;
        STATUS_IS(active->connector->lpVtbl->GetPrivateData(active->connector, reason, &reason_length), ND_SUCCESS);
        EXPECT(reason_length == 4 && reason[0] == 'f' && reason[3] == 'l');
    }
    /* Not listened to. */
    listener->lpVtbl->Release(listener);
    STATUS_IS(attempt(machine, (struct sockaddr *)&at, length, NULL, 0), ND_CONNECTION_REFUSED);
    STATUS_IS(FINISH(active->connector, active->connector->lpVtbl->Disconnect(active->connector, &active->overlapped), &active->overlapped),
              ND_CONNECTION_INVALID);
    EXPECT(active->connector->lpVtbl->Release(active->connector) == 0);
    active->connector = NULL;
    say("what a connector refuses, and what it survives");
    return 0;
}
