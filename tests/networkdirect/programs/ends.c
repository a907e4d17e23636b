/* nd-ends: ends in the way that its argument says. */
#include <windows.h>

#include <process.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void __attribute__((noinline)) write_nowhere(void) {
    *(volatile int *)8 = 1;
}

static unsigned __stdcall count_up(void *argument) {
    InterlockedExchangeAdd((volatile LONG *)argument, 1);
    _endthreadex(7);
    return 0;
}

static DWORD WINAPI loop(void *argument) {
    volatile int *rounds = argument;
    for (;;) {
        *rounds = 1;
    }
    return 0;
}

/* Says so when two threads are in their loops. */
static int start_loops(void) {
    static volatile int rounds[2];
    HANDLE threads[2];
    for (int index = 0; index < 2; index++) {
        threads[index] = CreateThread(NULL, 0, loop, (void *)&rounds[index], 0, NULL);
    }
    while (rounds[0] == 0 || rounds[1] == 0) {
        Sleep(1);
    }
    printf("both loops run\n");
    WaitForMultipleObjects(2, threads, TRUE, INFINITE);
    return 0;
}

static int start_threads(void) {
    HANDLE threads[4];
    LONG sum = 0;
    for (int index = 0; index < 4; index++) {
        threads[index] = (HANDLE)_beginthreadex(NULL, 0, count_up, &sum, 0, NULL);
    }
    DWORD waited = WaitForMultipleObjects(4, threads, TRUE, INFINITE), code = 0;
    GetExitCodeThread(threads[3], &code);
    printf("waited %lu, sum %ld, code %lu\n", waited, sum, code);
    return 0;
}

/* More handles than a process may have open at once. */
static int use_handles(void) {
    for (int round = 0; round < 20000; round++) {
        HANDLE event = CreateEventW(NULL, FALSE, FALSE, NULL);
        if (event == NULL) {
            printf("event %d: error %lu\n", round, GetLastError());
            return 1;
        }
        CloseHandle(event);
    }
    printf("20000 events made and closed\n");
    return 0;
}

static void at_end(void) {
    printf("at exit\n");
}

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "";
    printf("ends by %s\n", how);
    if (strcmp(how, "exit") == 0) {
        atexit(at_end);
        exit(count > 2 ? atoi(words[2]) : 0);
    } else if (strcmp(how, "fault") == 0) {
        write_nowhere();
    } else if (strcmp(how, "library-fault") == 0) {
        printf("%d\n", (int)strlen((const char *)(size_t)count - 2));
    } else if (strcmp(how, "kernel32-fault") == 0) {
        SYSTEM_INFO *volatile nowhere = NULL;
        GetSystemInfo(nowhere);
    } else if (strcmp(how, "twice-freed") == 0) {
        char *volatile block = malloc(10);
        free(block);
        free(block);
    } else if (strcmp(how, "loop") == 0) {
        return start_loops();
    } else if (strcmp(how, "wait") == 0) {
        WaitForSingleObject(CreateEventW(NULL, FALSE, FALSE, NULL), INFINITE);
    } else if (strcmp(how, "threads") == 0) {
        return start_threads();
    } else if (strcmp(how, "handles") == 0) {
        return use_handles();
    } else if (strcmp(how, "abort") == 0) {
        abort();
    }
    return 0;
}
