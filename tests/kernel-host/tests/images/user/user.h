/*
 * What the programs here use of user mode, for x64: names, layouts and values as the Windows headers have them, written for
 * these programs alone.
 */
#pragma once

typedef void VOID, *PVOID, *HANDLE;
typedef unsigned char UCHAR;
typedef int BOOL;
typedef unsigned short WCHAR;
typedef long LONG, NTSTATUS;
typedef unsigned long DWORD, ULONG;
typedef long long LONGLONG;
typedef unsigned long long ULONG64, ULONG_PTR, SIZE_T;

#define TRUE 1
#define FALSE 0
#define NULL ((void *)0)
#define INFINITE 0xFFFFFFFFu
#define INVALID_HANDLE_VALUE ((HANDLE)(LONGLONG)-1)
#define IMPORT __declspec(dllimport)

#define STATUS_SUCCESS ((NTSTATUS)0x00000000)
#define STATUS_PENDING ((NTSTATUS)0x00000103)
#define STATUS_BUFFER_OVERFLOW ((NTSTATUS)0x80000005)
#define STATUS_ACCESS_VIOLATION ((NTSTATUS)0xC0000005)
#define STATUS_INVALID_HANDLE ((NTSTATUS)0xC0000008)
#define STATUS_INVALID_PARAMETER ((NTSTATUS)0xC000000D)
#define STATUS_OBJECT_TYPE_MISMATCH ((NTSTATUS)0xC0000024)
#define STATUS_DATA_ERROR ((NTSTATUS)0xC000003E)
#define STATUS_CANCELLED ((NTSTATUS)0xC0000120)

#define ERROR_FILE_NOT_FOUND 2u
#define ERROR_INVALID_HANDLE 6u
#define ERROR_INVALID_PARAMETER 87u
#define WAIT_TIMEOUT 258u
#define ERROR_MORE_DATA 234u
#define ERROR_ABANDONED_WAIT_0 735u
#define ERROR_OPERATION_ABORTED 995u
#define ERROR_IO_INCOMPLETE 996u
#define ERROR_IO_PENDING 997u
#define ERROR_NOT_FOUND 1168u

#define GENERIC_READ 0x80000000u
#define GENERIC_WRITE 0x40000000u
#define OPEN_EXISTING 3u
#define FILE_FLAG_OVERLAPPED 0x40000000u
#define FILE_SKIP_COMPLETION_PORT_ON_SUCCESS 1
#define FILE_SKIP_SET_EVENT_ON_HANDLE 2
#define DUPLICATE_SAME_ACCESS 2u
#define HEAP_ZERO_MEMORY 8u
#define MEM_COMMIT 0x1000u
#define MEM_RESERVE 0x2000u
#define MEM_RELEASE 0x8000u
#define PAGE_READONLY 0x02u
#define PAGE_READWRITE 0x04u

typedef struct {
    ULONG_PTR Internal;
    ULONG_PTR InternalHigh;
    ULONG64 Offset;
    HANDLE hEvent;
} OVERLAPPED;
_Static_assert(sizeof(OVERLAPPED) == 32, "OVERLAPPED");

IMPORT NTSTATUS NtDeviceIoControlFile(HANDLE file, HANDLE event, PVOID apc_routine, PVOID apc_context, PVOID status_block,
                                      ULONG code, const void *input, ULONG input_length, PVOID output, ULONG output_length);
IMPORT NTSTATUS NtWaitForSingleObject(HANDLE handle, UCHAR alertable, const LONGLONG *timeout);
IMPORT ULONG RtlNtStatusToDosError(NTSTATUS status);
IMPORT HANDLE CreateFileW(const WCHAR *name, DWORD access, DWORD share, PVOID security, DWORD disposition, DWORD flags,
                          HANDLE pattern);
IMPORT BOOL CloseHandle(HANDLE handle);
IMPORT BOOL DuplicateHandle(HANDLE source_process, HANDLE source, HANDLE target_process, HANDLE *target, DWORD access,
                            BOOL inherit, DWORD options);
IMPORT BOOL DeviceIoControl(HANDLE file, DWORD code, const void *input, DWORD input_length, PVOID output, DWORD output_length,
                            DWORD *returned, OVERLAPPED *overlapped);
IMPORT BOOL GetOverlappedResult(HANDLE file, OVERLAPPED *overlapped, DWORD *bytes, BOOL wait);
IMPORT BOOL CancelIoEx(HANDLE file, OVERLAPPED *overlapped);
IMPORT BOOL SetFileCompletionNotificationModes(HANDLE file, UCHAR modes);
IMPORT HANDLE CreateIoCompletionPort(HANDLE file, HANDLE existing, ULONG_PTR key, DWORD threads);
IMPORT BOOL GetQueuedCompletionStatus(HANDLE port, DWORD *bytes, ULONG_PTR *key, OVERLAPPED **overlapped, DWORD milliseconds);
IMPORT BOOL PostQueuedCompletionStatus(HANDLE port, DWORD bytes, ULONG_PTR key, OVERLAPPED *overlapped);
IMPORT HANDLE CreateEventW(PVOID security, BOOL manual_reset, BOOL initial, const WCHAR *name);
IMPORT BOOL SetEvent(HANDLE event);
IMPORT BOOL ResetEvent(HANDLE event);
IMPORT DWORD WaitForSingleObject(HANDLE handle, DWORD milliseconds);
IMPORT VOID Sleep(DWORD milliseconds);
IMPORT BOOL SwitchToThread(VOID);
IMPORT ULONG64 GetTickCount64(VOID);
IMPORT HANDLE GetProcessHeap(VOID);
IMPORT PVOID HeapAlloc(HANDLE heap, DWORD flags, SIZE_T bytes);
IMPORT PVOID HeapReAlloc(HANDLE heap, DWORD flags, PVOID block, SIZE_T bytes);
IMPORT BOOL HeapFree(HANDLE heap, DWORD flags, PVOID block);
IMPORT PVOID VirtualAlloc(PVOID address, SIZE_T bytes, DWORD kind, DWORD protection);
IMPORT BOOL VirtualFree(PVOID address, SIZE_T bytes, DWORD kind);
IMPORT BOOL VirtualProtect(PVOID address, SIZE_T bytes, DWORD protection, DWORD *old);
IMPORT HANDLE GetCurrentProcess(VOID);
IMPORT DWORD GetCurrentProcessId(VOID);
IMPORT DWORD GetCurrentThreadId(VOID);
IMPORT DWORD GetLastError(VOID);
IMPORT VOID SetLastError(DWORD error);
IMPORT VOID GetSystemInfo(PVOID information);
