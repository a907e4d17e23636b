/* Moving data: ping-pong by messages and by memory, and queues that are kept full. */
#include "program.h"

int list(struct machine *machine) {
    ND2_ADAPTER_INFO info = {0};
    ULONG length = sizeof info;
    info.InfoVersion = ND_VERSION_2;
    for (int index = 0; index < machine->addresses->iAddressCount; index++) {
        const unsigned char *bytes = (const unsigned char *)address_of(machine, index) + 4;
        IND2Adapter *adapter;
        UINT64 identifier;
        STATUS_IS(machine->provider->lpVtbl->ResolveAddress(machine->provider, address_of(machine, index), length_of(machine, index), &identifier),
                  ND_SUCCESS);
        STATUS_IS(machine->provider->lpVtbl->OpenAdapter(machine->provider, &IID_IND2Adapter, identifier, (void **)&adapter), ND_SUCCESS);
        STATUS_IS(adapter->lpVtbl->Query(adapter, &info, &length), ND_SUCCESS);
        EXPECT(info.InfoVersion == ND_VERSION_2 && info.AdapterId == identifier && length == sizeof info);
        EXPECT(info.MaxInitiatorQueueDepth >= 128 && info.MaxCompletionQueueDepth >= 256 && info.MaxRegistrationSize >= 64 << 20);
        EXPECT(info.InlineRequestThreshold <= info.MaxInlineDataSize && info.MaxCallerData >= 40);
        for (int byte = 0; byte < 4; byte++) {
            put(byte == 0 ? "" : ".");
            put_number(bytes[byte]);
        }
        put(": queue pairs of ");
        put_number(info.MaxInitiatorQueueDepth);
        put(", completion queues of ");
        put_number(info.MaxCompletionQueueDepth);
        put(", ");
        put_number(info.MaxInitiatorSge);
        put(" SGEs, inline data of ");
        put_number(info.InlineRequestThreshold);
        end_line();
        length = 0;
        STATUS_IS(adapter->lpVtbl->Query(adapter, NULL, &length), ND_BUFFER_OVERFLOW);
        EXPECT(length == sizeof info);
        adapter->lpVtbl->Release(adapter);
    }
    return 0;
}

int pingpong(struct machine *machine) {
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

/* Waits for the last byte of a message to change, as a program does that polls memory. */
static int last_byte_is(const unsigned char *place, unsigned char value) {
    for (int spins = 0; spins < 1000000; spins++) {
        if (*(const volatile unsigned char *)place == value) {
            return 0;
        }
        SwitchToThread();
    }
    return __LINE__;
}

int write_pingpong(struct machine *machine) {
    struct end *ends[2] = {&machine->active, &machine->passive};
    for (ULONG length = 1; length <= 65536; length *= 4) {
        for (int round = 0; round < 20; round++) {
            struct end *from = ends[round & 1], *to = ends[(round & 1) ^ 1];
            ND2_SGE out = piece(from, 0, length);
            unsigned char mark = (unsigned char)(round + 1);
            for (ULONG index = 0; index < length; index++) {
                from->buffer[index] = mark;
            }
            STATUS_IS(from->pair->lpVtbl->Write(from->pair, NULL, &out, 1, (UINT64)(UINT_PTR)(to->buffer + 65536),
                                                to->region->lpVtbl->GetRemoteToken(to->region), 0),
                      ND_SUCCESS);
            PASSES(last_byte_is(to->buffer + 65536 + length - 1, mark));
            for (ULONG index = 0; index < length; index++) {
                EXPECT(to->buffer[65536 + index] == mark);
            }
            PASSES(succeeds(from, Nd2RequestTypeWrite));
        }
        put_number(length);
        say(" bytes: 20 Writes, each seen by its last byte");
    }
    return 0;
}

#define TRANSFERS 512
#define TRANSFER 4096

/* Reads or Writes with the queue kept full. */
static int keep_full(struct machine *machine, ND2_REQUEST_TYPE type) {
    struct end *active = &machine->active, *passive = &machine->passive;
    UINT32 token = passive->region->lpVtbl->GetRemoteToken(passive->region);
    int posted = 0, done = 0, full = 0;
    for (int index = 0; index < BUFFER_LENGTH; index++) {
        active->buffer[index] = (unsigned char)(type == Nd2RequestTypeRead ? 0 : index * 7);
        passive->buffer[index] = (unsigned char)(type == Nd2RequestTypeRead ? index * 5 : 0);
    }
    while (done < TRANSFERS) {
        ND2_RESULT result;
        while (posted < TRANSFERS) {
            ULONG offset = (ULONG)(posted % (BUFFER_LENGTH / TRANSFER)) * TRANSFER;
            ND2_SGE sge = piece(active, offset, TRANSFER);
            UINT64 address = (UINT64)(UINT_PTR)passive->buffer + offset;
            found = type == Nd2RequestTypeRead ? active->pair->lpVtbl->Read(active->pair, NULL, &sge, 1, address, token, 0)
                                               : active->pair->lpVtbl->Write(active->pair, NULL, &sge, 1, address, token, 0);
            if (found == ND_NO_MORE_ENTRIES) {
                full++;
                break;
            }
            EXPECT(found == ND_SUCCESS);
            posted++;
        }
        PASSES(one_result(active, &result));
        STATUS_IS(result.Status, ND_SUCCESS);
        EXPECT(result.RequestType == type);
        done++;
    }
    for (int index = 0; index < BUFFER_LENGTH; index++) {
        EXPECT(active->buffer[index] == passive->buffer[index]);
    }
    put_number(TRANSFERS);
    put(type == Nd2RequestTypeRead ? " Reads of " : " Writes of ");
    put_number(TRANSFER);
    say(" bytes");
    return 0;
}

int reads(struct machine *machine) { return keep_full(machine, Nd2RequestTypeRead); }

int writes(struct machine *machine) { return keep_full(machine, Nd2RequestTypeWrite); }

/* A stream of messages with half of the receives kept posted; most Sends are silent. */
int sends(struct machine *machine) {
    struct end *active = &machine->active, *passive = &machine->passive;
    int sent = 0, received = 0, posted = 0;
    while (received < TRANSFERS) {
        ND2_RESULT result;
        while (posted < TRANSFERS && posted - received < DEPTH / 2) {
            ND2_SGE sge = piece(passive, (ULONG)(posted % 32) * 1024, 1024);
            STATUS_IS(passive->pair->lpVtbl->Receive(passive->pair, (void *)(UINT_PTR)posted, &sge, 1), ND_SUCCESS);
            posted++;
        }
        while (sent < posted) {
            ND2_SGE sge = piece(active, (ULONG)(sent % 32) * 1024, (ULONG)(sent % 1024));
            int tells = sent % 16 == 15;
            STATUS_IS(active->pair->lpVtbl->Send(active->pair, NULL, &sge, 1, tells ? 0 : ND_OP_FLAG_SILENT_SUCCESS), ND_SUCCESS);
            sent++;
            if (tells) {
                PASSES(succeeds(active, Nd2RequestTypeSend));
            }
        }
        PASSES(one_result(passive, &result));
        STATUS_IS(result.Status, ND_SUCCESS);
        EXPECT(result.RequestContext == (void *)(UINT_PTR)received && result.BytesTransferred == (ULONG)(received % 1024));
        received++;
    }
    EXPECT(active->queue->lpVtbl->GetResults(active->queue, (ND2_RESULT[1]){{0}}, 1) == 0);
    put_number(TRANSFERS);
    say(" messages, one of 16 told");
    return 0;
}

/* Two connections that share their receives. */
int shared(struct machine *machine) {
    struct end *active = &machine->active, *passive = &machine->passive;
    IND2SharedReceiveQueue *queue;
    STATUS_IS(passive->adapter->lpVtbl->CreateSharedReceiveQueue(passive->adapter, &IID_IND2SharedReceiveQueue, passive->file, 16, 2, 4, 0, 0,
                                                                 (void **)&queue),
              ND_SUCCESS);
    for (int round = 0; round < 2; round++) {
        IND2Listener *listener;
        struct sockaddr_storage at;
        ULONG length;
        OVERLAPPED low = {0};
        low.hEvent = CreateEventW(NULL, FALSE, FALSE, NULL);
        PASSES(listen_at(machine, &listener, &at, &length));
        PASSES(make_pair(active));
        PASSES(make_pair(passive));
        passive->pair->lpVtbl->Release(passive->pair);
        STATUS_IS(passive->adapter->lpVtbl->CreateQueuePairWithSrq(passive->adapter, &IID_IND2QueuePair, (IUnknown *)passive->queue,
                                                                   (IUnknown *)passive->queue, (IUnknown *)queue, passive, DEPTH, 2, 128,
                                                                   (void **)&passive->pair),
                  ND_SUCCESS);
        PASSES(connect_ends(machine, listener, &at, length));
        for (ULONG index = 0; index < 8; index++) {
            ND2_SGE sge = piece(passive, index * 64, 64);
            STATUS_IS(queue->lpVtbl->Receive(queue, NULL, &sge, 1), ND_SUCCESS);
        }
        STATUS_IS(queue->lpVtbl->Notify(queue, &low), ND_PENDING);
        for (ULONG index = 0; index < 8; index++) {
            ND2_SGE sge = piece(active, 0, 64);
            /* It may come a little later than the receive that made the queue low. */
            EXPECT(queue->lpVtbl->GetOverlappedResult(queue, &low, index >= 5) == (index < 5 ? ND_PENDING : ND_SUCCESS));
            active->buffer[0] = (unsigned char)(index + 1);
            STATUS_IS(active->pair->lpVtbl->Send(active->pair, NULL, &sge, 1, 0), ND_SUCCESS);
            PASSES(succeeds(active, Nd2RequestTypeSend));
            PASSES(succeeds(passive, Nd2RequestTypeReceive));
            EXPECT(passive->buffer[index * 64] == (unsigned char)(index + 1));
        }
        PASSES(disconnect(machine));
        drop_pair(active);
        drop_pair(passive);
        listener->lpVtbl->Release(listener);
        CloseHandle(low.hEvent);
    }
    queue->lpVtbl->Release(queue);
    say("16 messages by shared receives, told when fewer than 4 were left");
    return 0;
}
