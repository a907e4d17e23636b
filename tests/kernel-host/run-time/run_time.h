/*
 * The run-time library of foreign user programs: what they import from the C run-time (msvcrt, ucrt, vcruntime), from ws2_32 and, as far as
 * the host itself does not export it, from kernel32. One DLL for all of it, a copy in each process, in user mode as on Windows: a wrong
 * pointer faults in the program's own code, and variables are the process's own.
 *
 * Formatting, reading of numbers and mathematics are mingw-w64's. No header of the C run-time is included: this is it.
 */
#ifndef RUN_TIME_H
#define RUN_TIME_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

__declspec(noreturn) void HostProgramFails(const char *why);

/* Of the host; windows.h declares them for those that include it. */
#ifndef _WINDOWS_
void *GetProcessHeap(void);
void *HeapAlloc(void *heap, unsigned flags, size_t bytes);
void *HeapReAlloc(void *heap, unsigned flags, void *block, size_t bytes);
size_t HeapSize(void *heap, unsigned flags, const void *block);
int HeapFree(void *heap, unsigned flags, void *block);
void *GetStdHandle(unsigned which);
int WriteFile(void *file, const void *bytes, unsigned length, unsigned *written, void *overlapped);
__declspec(noreturn) void ExitProcess(unsigned code);
__declspec(noreturn) void ExitThread(unsigned code);
void *CreateThread(void *security, size_t stack, unsigned (*start)(void *), void *argument, unsigned flags, unsigned *identifier);
unsigned TlsAlloc(void);
void *TlsGetValue(unsigned slot);
int TlsSetValue(unsigned slot, void *value);
const char *GetCommandLineA(void);
const uint16_t *GetCommandLineW(void);
unsigned GetLastError(void);
void SetLastError(unsigned error);
void Sleep(unsigned milliseconds);
uint64_t GetTickCount64(void);
void GetSystemTimeAsFileTime(uint64_t *time);
#endif

/* Of the library itself. */
void *malloc(size_t bytes);
void *calloc(size_t count, size_t size);
void *realloc(void *block, size_t bytes);
void free(void *block);
void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
int memcmp(const void *first, const void *second, size_t bytes);
size_t strlen(const char *text);
#ifndef _WINDOWS_
size_t wcslen(const uint16_t *text);
#endif
int *_errno(void);
__declspec(noreturn) void exit(int code);
__declspec(noreturn) void abort(void);

#ifndef EINVAL
#define EINVAL 22
#define ENOENT 2
#define ERANGE 34
#define EBADF 9
#endif

#endif
