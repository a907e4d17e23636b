/* Threads of the C run-time, and what each has of its own: errno. */
#include "run_time.h"

#define NO_SLOT 0xFFFFFFFF

struct start {
    unsigned (*function)(void *);
    void (*plain)(void *);
    void *argument;
};

static int errno_before_slot;

int *_errno(void) {
    static unsigned slot = NO_SLOT;
    unsigned own = __atomic_load_n(&slot, __ATOMIC_ACQUIRE);
    if (own == NO_SLOT) {
        unsigned expected = NO_SLOT;
        own = TlsAlloc();
        if (!__atomic_compare_exchange_n(&slot, &expected, own, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            own = expected;
        }
    }
    unsigned error = GetLastError();
    int *place = TlsGetValue(own);
    if (place == NULL) {
        place = calloc(1, sizeof *place);
        TlsSetValue(own, place);
    }
    SetLastError(error);
    return place == NULL ? &errno_before_slot : place;
}

unsigned *__doserrno(void) {
    static unsigned error;
    return &error;
}

int _set_errno(int value) {
    *_errno() = value;
    return 0;
}

int _get_errno(int *to) {
    *to = *_errno();
    return 0;
}

static unsigned run(void *argument) {
    struct start start = *(struct start *)argument;
    free(argument);
    if (start.function != NULL) {
        return start.function(start.argument);
    }
    start.plain(start.argument);
    return 0;
}

static void *begin(struct start what, void *security, unsigned stack, unsigned flags, unsigned *identifier) {
    struct start *start = malloc(sizeof *start);
    *start = what;
    return CreateThread(security, stack, run, start, flags, identifier);
}

uintptr_t _beginthreadex(void *security, unsigned stack, unsigned (*function)(void *), void *argument, unsigned flags, unsigned *identifier) {
    struct start start = {.function = function, .argument = argument};
    return (uintptr_t)begin(start, security, stack, flags, identifier);
}

uintptr_t _beginthread(void (*function)(void *), unsigned stack, void *argument) {
    int CloseHandle(void *);
    struct start start = {.plain = function, .argument = argument};
    void *thread = begin(start, NULL, stack, 0, NULL);
    if (thread != NULL) {
        CloseHandle(thread);
    }
    return thread == NULL ? (uintptr_t)-1 : (uintptr_t)thread;
}

void _endthreadex(unsigned code) {
    ExitThread(code);
}

void _endthread(void) {
    ExitThread(0);
}

/* The locks of the run-time by number. */
static volatile unsigned locks[64];
unsigned GetCurrentThreadId(void);
static unsigned depths[64];

void _lock(int number) {
    unsigned own = GetCurrentThreadId(), none = 0;
    if (locks[number] != own) {
        while (!__atomic_compare_exchange_n(&locks[number], &none, own, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            none = 0;
            Sleep(0);
        }
    }
    depths[number]++;
}

void _unlock(int number) {
    if (--depths[number] == 0) {
        __atomic_store_n(&locks[number], 0, __ATOMIC_RELEASE);
    }
}
