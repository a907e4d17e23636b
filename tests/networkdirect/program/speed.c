/* The loop of a program that reads as fast as it can: a chain of posts, then their results, in user mode from end to end. */
#include "ndspi.h"

/* As tests/networkdirect/examples/speed lays it out. */
struct work {
    IND2QueuePair *pair;
    IND2CompletionQueue *queue;
    ND2_SGE sge;
    UINT64 remote_address;
    UINT32 remote_token;
    UINT32 chain;
    UINT64 count;
};

#define MOST 64

/* Reads `count` times and returns how many of the reads did not succeed. */
__declspec(dllexport) UINT64 read_in_chains(const struct work *work) {
    ND2_RESULT results[MOST];
    UINT64 failed = 0;
    for (UINT64 done = 0; done < work->count; done += work->chain) {
        for (UINT32 posted = 0; posted < work->chain; posted++) {
            failed += work->pair->lpVtbl->Read(work->pair, NULL, &work->sge, 1, work->remote_address, work->remote_token, 0) != 0;
        }
        for (ULONG taken = 0; taken < work->chain;) {
            ULONG count = work->queue->lpVtbl->GetResults(work->queue, results, MOST);
            for (ULONG index = 0; index < count; index++) {
                failed += results[index].Status != 0;
            }
            taken += count;
        }
    }
    return failed;
}
