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
    UINT64 outstanding;
    UINT64 count;
};

#define MOST 64

/* Reads `count` times and returns how many of the reads did not succeed. */
__declspec(dllexport) UINT64 read_in_chains(const struct work *work) {
    ND2_RESULT results[MOST];
    UINT64 failed = 0, posted = 0, taken = 0;
    while (taken < work->count) {
        while (posted < work->count && posted - taken + work->chain <= work->outstanding) {
            for (UINT32 each = 0; each < work->chain; each++, posted++) {
                failed += work->pair->lpVtbl->Read(work->pair, NULL, &work->sge, 1, work->remote_address, work->remote_token, 0) != 0;
            }
        }
        UINT64 wanted = posted - taken < work->chain ? posted : taken + work->chain;
        while (taken < wanted) {
            ULONG count = work->queue->lpVtbl->GetResults(work->queue, results, MOST);
            for (ULONG index = 0; index < count; index++) {
                failed += results[index].Status != 0;
            }
            taken += count;
        }
    }
    return failed;
}
