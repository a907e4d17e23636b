/* Pointers by which the parts of mingw-w64 that are linked in call functions of this library: they were compiled to import them. */
#define IMPORTED(name)                 \
    extern void name(void);            \
    void (*const __imp_##name)(void) = name

IMPORTED(DeleteCriticalSection);
IMPORTED(EnterCriticalSection);
IMPORTED(InitializeCriticalSection);
IMPORTED(LeaveCriticalSection);
