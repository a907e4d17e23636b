/* Locks of user mode over WaitOnAddress: critical sections, slim locks, condition variables, initialisation once, lists. */
#include "run_time.h"

#define FREE 0
#define HELD 1
#define WAITED_FOR 2
#define INFINITE 0xFFFFFFFF
#define INITIALISED ((void *)-1)
#define ERROR_TIMEOUT 1460
#define SHARED 1

unsigned GetCurrentThreadId(void);
int WaitOnAddress(volatile void *address, void *compared, size_t size, unsigned milliseconds);
void WakeByAddressSingle(void *address);
void WakeByAddressAll(void *address);

/* CRITICAL_SECTION: the word is where Windows keeps its semaphore. */
struct critical_section {
    void *debug;
    int lock_count;
    int depth;
    uint64_t owner;
    unsigned word;
    unsigned unused;
    uint64_t spins;
};

static int take_word(unsigned *word) {
    unsigned expected = FREE;
    return __atomic_compare_exchange_n(word, &expected, HELD, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static void lock_word(unsigned *word) {
    if (take_word(word)) {
        return;
    }
    unsigned waited_for = WAITED_FOR;
    while (__atomic_exchange_n(word, WAITED_FOR, __ATOMIC_ACQUIRE) != FREE) {
        WaitOnAddress(word, &waited_for, sizeof *word, INFINITE);
    }
}

static void unlock_word(unsigned *word) {
    if (__atomic_exchange_n(word, FREE, __ATOMIC_RELEASE) == WAITED_FOR) {
        WakeByAddressSingle(word);
    }
}

void InitializeCriticalSection(struct critical_section *section) {
    *section = (struct critical_section){.debug = INITIALISED, .lock_count = -1};
}

int InitializeCriticalSectionAndSpinCount(struct critical_section *section, unsigned spins) {
    InitializeCriticalSection(section);
    section->spins = spins;
    return 1;
}

int InitializeCriticalSectionEx(struct critical_section *section, unsigned spins, unsigned flags) {
    (void)flags;
    return InitializeCriticalSectionAndSpinCount(section, spins);
}

unsigned SetCriticalSectionSpinCount(struct critical_section *section, unsigned spins) {
    unsigned before = (unsigned)section->spins;
    section->spins = spins;
    return before;
}

static void check(const struct critical_section *section) {
    if (section->debug != INITIALISED) {
        HostProgramFails("it enters or leaves a critical section that was not initialised, or was deleted");
    }
}

static void entered(struct critical_section *section) {
    section->owner = GetCurrentThreadId();
    section->depth = 1;
}

void EnterCriticalSection(struct critical_section *section) {
    check(section);
    if (section->owner == GetCurrentThreadId()) {
        section->depth++;
        return;
    }
    lock_word(&section->word);
    entered(section);
}

int TryEnterCriticalSection(struct critical_section *section) {
    check(section);
    if (section->owner == GetCurrentThreadId()) {
        section->depth++;
        return 1;
    }
    int taken = take_word(&section->word);
    if (taken) {
        entered(section);
    }
    return taken;
}

void LeaveCriticalSection(struct critical_section *section) {
    check(section);
    if (section->owner != GetCurrentThreadId()) {
        HostProgramFails("it leaves a critical section that this thread has not entered");
    }
    if (--section->depth == 0) {
        section->owner = 0;
        unlock_word(&section->word);
    }
}

void DeleteCriticalSection(struct critical_section *section) {
    *section = (struct critical_section){0};
}

/* SRWLOCK: -1 held by one, else how many share it. */
#define EXCLUSIVE (-1)

void InitializeSRWLock(int *lock) {
    *lock = 0;
}

static void take_slim(int *lock, int shared) {
    for (;;) {
        int held = __atomic_load_n(lock, __ATOMIC_RELAXED);
        if (held == 0 || (shared && held != EXCLUSIVE)) {
            if (__atomic_compare_exchange_n(lock, &held, shared ? held + 1 : EXCLUSIVE, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
                return;
            }
        } else {
            WaitOnAddress(lock, &held, sizeof held, INFINITE);
        }
    }
}

static unsigned char try_slim(int *lock, int shared) {
    int held = __atomic_load_n(lock, __ATOMIC_RELAXED);
    int may = held == 0 || (shared && held != EXCLUSIVE);
    return may && __atomic_compare_exchange_n(lock, &held, shared ? held + 1 : EXCLUSIVE, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

void AcquireSRWLockExclusive(int *lock) {
    take_slim(lock, 0);
}

void AcquireSRWLockShared(int *lock) {
    take_slim(lock, SHARED);
}

unsigned char TryAcquireSRWLockExclusive(int *lock) {
    return try_slim(lock, 0);
}

unsigned char TryAcquireSRWLockShared(int *lock) {
    return try_slim(lock, SHARED);
}

void ReleaseSRWLockExclusive(int *lock) {
    __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
    WakeByAddressAll(lock);
}

void ReleaseSRWLockShared(int *lock) {
    if (__atomic_sub_fetch(lock, 1, __ATOMIC_RELEASE) == 0) {
        WakeByAddressAll(lock);
    }
}

/* CONDITION_VARIABLE: a count of wakes. */
void InitializeConditionVariable(unsigned *variable) {
    *variable = 0;
}

static int wait_for_wake(unsigned *variable, unsigned seen, unsigned milliseconds) {
    int woken = WaitOnAddress(variable, &seen, sizeof seen, milliseconds);
    if (!woken) {
        SetLastError(ERROR_TIMEOUT);
    }
    return woken;
}

int SleepConditionVariableCS(unsigned *variable, struct critical_section *section, unsigned milliseconds) {
    unsigned seen = __atomic_load_n(variable, __ATOMIC_ACQUIRE);
    LeaveCriticalSection(section);
    int woken = wait_for_wake(variable, seen, milliseconds);
    EnterCriticalSection(section);
    return woken;
}

int SleepConditionVariableSRW(unsigned *variable, int *lock, unsigned milliseconds, unsigned flags) {
    unsigned seen = __atomic_load_n(variable, __ATOMIC_ACQUIRE);
    int shared = flags & SHARED;
    if (shared) {
        ReleaseSRWLockShared(lock);
    } else {
        ReleaseSRWLockExclusive(lock);
    }
    int woken = wait_for_wake(variable, seen, milliseconds);
    take_slim(lock, shared);
    return woken;
}

void WakeConditionVariable(unsigned *variable) {
    __atomic_add_fetch(variable, 1, __ATOMIC_RELEASE);
    WakeByAddressSingle(variable);
}

void WakeAllConditionVariable(unsigned *variable) {
    __atomic_add_fetch(variable, 1, __ATOMIC_RELEASE);
    WakeByAddressAll(variable);
}

/* INIT_ONCE: the state, and behind it what was made (its low bits are free). */
#define RUNNING 1
#define DONE 2
#define CHECK_ONLY 1
#define INIT_FAILED 4

struct once {
    volatile uintptr_t word;
};

int InitOnceBeginInitialize(struct once *once, unsigned flags, int *pending, void **context) {
    for (;;) {
        uintptr_t word = __atomic_load_n(&once->word, __ATOMIC_ACQUIRE);
        if ((word & 3) == DONE) {
            *pending = 0;
            if (context != NULL) {
                *context = (void *)(word & ~(uintptr_t)3);
            }
            return 1;
        }
        if (flags & CHECK_ONLY) {
            *pending = 1;
            return 0;
        }
        if (word == 0 && __atomic_compare_exchange_n(&once->word, &word, RUNNING, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            *pending = 1;
            return 1;
        }
        if (word != 0) {
            WaitOnAddress(&once->word, &word, sizeof word, INFINITE);
        }
    }
}

int InitOnceComplete(struct once *once, unsigned flags, void *context) {
    __atomic_store_n(&once->word, flags & INIT_FAILED ? 0 : (uintptr_t)context | DONE, __ATOMIC_RELEASE);
    WakeByAddressAll((void *)&once->word);
    return 1;
}

int InitOnceExecuteOnce(struct once *once, int (*function)(struct once *, void *, void **), void *parameter, void **context) {
    int pending;
    void *made = NULL;
    InitOnceBeginInitialize(once, 0, &pending, context);
    if (!pending) {
        return 1;
    }
    int done = function(once, parameter, &made);
    InitOnceComplete(once, done ? 0 : INIT_FAILED, made);
    if (done && context != NULL) {
        *context = made;
    }
    return done;
}

/* SLIST_HEADER, with a lock in its second half. */
struct list {
    struct entry *first;
    unsigned lock;
    unsigned short depth;
};

struct entry {
    struct entry *next;
};

static void lock_list(struct list *list) {
    while (!take_word(&list->lock)) {
        Sleep(0);
    }
}

void InitializeSListHead(struct list *list) {
    *list = (struct list){0};
}

struct entry *InterlockedPushEntrySList(struct list *list, struct entry *entry) {
    lock_list(list);
    struct entry *before = list->first;
    entry->next = before;
    list->first = entry;
    list->depth++;
    unlock_word(&list->lock);
    return before;
}

struct entry *InterlockedPopEntrySList(struct list *list) {
    lock_list(list);
    struct entry *entry = list->first;
    if (entry != NULL) {
        list->first = entry->next;
        list->depth--;
    }
    unlock_word(&list->lock);
    return entry;
}

struct entry *InterlockedFlushSList(struct list *list) {
    lock_list(list);
    struct entry *entry = list->first;
    list->first = NULL;
    list->depth = 0;
    unlock_word(&list->lock);
    return entry;
}

unsigned short QueryDepthSList(struct list *list) {
    return list->depth;
}
