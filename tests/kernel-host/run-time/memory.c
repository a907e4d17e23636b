/* The heap: each block has pages of its own, so that an access behind its end, or after its free, faults. */
#include "run_time.h"

#define HEAP_ZERO_MEMORY 8

void *malloc(size_t bytes) {
    return HeapAlloc(GetProcessHeap(), 0, bytes);
}

void *calloc(size_t count, size_t size) {
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? NULL : HeapAlloc(GetProcessHeap(), HEAP_ZERO_MEMORY, bytes);
}

void free(void *block) {
    HeapFree(GetProcessHeap(), 0, block);
}

void *realloc(void *block, size_t bytes) {
    if (block == NULL) {
        return malloc(bytes);
    }
    if (bytes == 0) {
        free(block);
        return NULL;
    }
    return HeapReAlloc(GetProcessHeap(), 0, block, bytes);
}

size_t _msize(void *block) {
    return HeapSize(GetProcessHeap(), 0, block);
}

/* The block's own address stands in front of what is handed out. */
void *_aligned_malloc(size_t bytes, size_t alignment) {
    size_t room = sizeof(void *) + alignment;
    char *block = bytes > SIZE_MAX - room ? NULL : malloc(bytes + room);
    if (block == NULL) {
        return NULL;
    }
    char *aligned = (char *)(((uintptr_t)block + room) & ~(uintptr_t)(alignment - 1));
    ((void **)aligned)[-1] = block;
    return aligned;
}

void _aligned_free(void *aligned) {
    if (aligned != NULL) {
        free(((void **)aligned)[-1]);
    }
}

int _callnewh(size_t bytes) {
    (void)bytes;
    return 0;
}
