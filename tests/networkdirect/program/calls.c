/* Calls of the system that tests make inside a process: completion ports, events. */
#include <windows.h>

__declspec(dllexport) int close_handle(HANDLE handle) { return CloseHandle(handle); }

__declspec(dllexport) HANDLE make_port(HANDLE file) { return CreateIoCompletionPort(file, NULL, 7, 0); }

/* The next packet's OVERLAPPED; NULL when there is none in so many milliseconds. */
__declspec(dllexport) OVERLAPPED *next_packet(HANDLE port, DWORD milliseconds) {
    DWORD bytes;
    ULONG_PTR key;
    OVERLAPPED *overlapped = NULL;
    GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, milliseconds);
    return overlapped;
}

__declspec(dllexport) HANDLE make_event(void) { return CreateEventW(NULL, FALSE, FALSE, NULL); }

__declspec(dllexport) BOOL set_event(HANDLE event) { return SetEvent(event); }

__declspec(dllexport) DWORD wait_event(HANDLE event, DWORD milliseconds) { return WaitForSingleObject(event, milliseconds); }

__declspec(dllexport) BOOL protect_read_only(void *address, SIZE_T length) {
    DWORD old;
    return VirtualProtect(address, length, PAGE_READONLY, &old);
}
