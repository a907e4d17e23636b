/*
 * A DLL that a process of the kernel host loads. Most of its functions do one part of what a provider does with a device and
 * return 0, or the line of the first value that is not as it should be; the others are steps that a test puts together.
 */
#include "codes.h"
#include "user.h"

#define CHECK(condition)     \
    do {                     \
        if (!(condition)) {  \
            return __LINE__; \
        }                    \
    } while (0)

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

typedef struct {
    ULONG status;
    ULONG information;
} RELEASE;

/* A copy of its own in each process. */
static ULONG attached;
static ULONG *on_detach;
static UCHAR of_image[8192];
static const UCHAR constant[4096] = {1};
static UCHAR *volatile constant_bytes = (UCHAR *)constant;

BOOL DllMain(PVOID module, DWORD reason, PVOID reserved)
{
    (void)module;
    attached += reason == 1;
    if (reason == 0 && on_detach != NULL) {
        *on_detach = reserved == NULL ? 1 : 2;
    }
    return TRUE;
}

/* Where to write when the DLL goes: 1, or 2 with its process. */
VOID WriteOnDetach(ULONG *place)
{
    on_detach = place;
}

ULONG TimesAttached(VOID)
{
    return attached++;
}

HANDLE Open(BOOL overlapped)
{
    return CreateFileW(L"\\\\.\\Pending", GENERIC_READ | GENERIC_WRITE, 0, NULL, OPEN_EXISTING,
                       overlapped ? FILE_FLAG_OVERLAPPED : 0, NULL);
}

/* As a provider sends its requests: the status is the result, and the low bit of the event keeps the packet from the port. */
NTSTATUS Send(HANDLE file, ULONG code, PVOID buffer, ULONG length, OVERLAPPED *overlapped)
{
    PVOID context = (ULONG_PTR)overlapped->hEvent & 1 ? NULL : overlapped;
    BOOL direct = (code & 3) != 0;
    overlapped->Internal = STATUS_PENDING;
    return NtDeviceIoControlFile(file, overlapped->hEvent, NULL, context, overlapped, code, buffer,
                                 direct && length != 0 ? 1 : length, buffer, length);
}

/* Completes the first request that pends, by a file of its own. */
NTSTATUS Release(NTSTATUS status, ULONG information)
{
    RELEASE how = {(ULONG)status, information};
    HANDLE file = Open(FALSE);
    OVERLAPPED overlapped = {0};
    NTSTATUS answer = NtDeviceIoControlFile(file, NULL, NULL, NULL, &overlapped, CODE_RELEASE, &how, sizeof(how), NULL, 0);
    CloseHandle(file);
    return answer;
}

/* How many requests pend. */
ULONG Outstanding(VOID)
{
    HANDLE file = Open(FALSE);
    ULONG count = 0xFFFFFFFF;
    DWORD returned = 0;
    DeviceIoControl(file, CODE_OUTSTANDING, NULL, 0, &count, sizeof(count), &returned, NULL);
    CloseHandle(file);
    return count;
}

static NTSTATUS Direct(HANDLE file, ULONG code, UCHAR value, PVOID buffer, ULONG length, ULONG_PTR *information)
{
    OVERLAPPED overlapped = {0};
    NTSTATUS answer = NtDeviceIoControlFile(file, NULL, NULL, NULL, &overlapped, code, &value, 1, buffer, length);
    *information = overlapped.InternalHigh;
    return answer;
}

/* Buffered and both direct methods, by buffers on the stack, in the image, in the heap and in pages. */
ULONG Methods(VOID)
{
    HANDLE file = Open(TRUE), heap = GetProcessHeap();
    /* No page: a larger frame would need a probe of the stack. */
    UCHAR on_stack[2000];
    const ULONG lengths[] = {sizeof(on_stack), 6000, 6000, 6000};
    UCHAR *buffers[] = {on_stack, of_image + 100, HeapAlloc(heap, 0, 6000),
                        (UCHAR *)VirtualAlloc(NULL, 3 << 20, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE) + 5};
    UCHAR small[4] = {1, 2, 3, 4};
    ULONG_PTR information;
    OVERLAPPED overlapped = {0};
    CHECK(file != INVALID_HANDLE_VALUE);
    CHECK(NtDeviceIoControlFile(file, NULL, NULL, NULL, &overlapped, CODE_ECHO, small, 4, small, 3) == STATUS_SUCCESS);
    CHECK(overlapped.Internal == STATUS_SUCCESS && overlapped.InternalHigh == 3);
    CHECK(small[0] == 2 && small[1] == 3 && small[2] == 4 && small[3] == 4);
    for (ULONG index = 0; index < LENGTH(buffers); index++) {
        UCHAR *buffer = buffers[index];
        ULONG length = lengths[index];
        CHECK(Direct(file, CODE_FILL, 7, buffer, length, &information) == STATUS_SUCCESS && information == length);
        CHECK(buffer[0] == 7 && buffer[length / 2] == 7 && buffer[length - 1] == 7);
        buffer[17] = 0;
        CHECK(Direct(file, CODE_COUNT, 0, buffer, length, &information) == STATUS_SUCCESS && information == length - 1);
    }
    CHECK(Direct(file, CODE_FILL, 9, buffers[3], (3 << 20) - 5, &information) == STATUS_SUCCESS);
    CHECK(buffers[3][(3 << 20) - 6] == 9);
    CHECK(VirtualFree(buffers[3] - 5, 0, MEM_RELEASE) && HeapFree(heap, 0, buffers[2]));
    CHECK(CloseHandle(file) && !CloseHandle(file) && GetLastError() == ERROR_INVALID_HANDLE);
    return 0;
}

/* Ranges that cannot be locked, and buffers that cannot be copied. */
ULONG Protections(VOID)
{
    HANDLE file = Open(TRUE);
    UCHAR *pages = VirtualAlloc(NULL, 3 * 4096, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE);
    UCHAR *other = VirtualAlloc(NULL, 4096, MEM_COMMIT | MEM_RESERVE, PAGE_READONLY);
    OVERLAPPED overlapped = {.Internal = 1, .InternalHigh = 2};
    ULONG_PTR information;
    DWORD old;
    CHECK(Direct(file, CODE_FILL, 1, pages + 4096, 2 * 4096 + 1, &information) == STATUS_ACCESS_VIOLATION);
    CHECK(Direct(file, CODE_COUNT, 1, pages - 1, 2, &information) == STATUS_ACCESS_VIOLATION);
    CHECK(Direct(file, CODE_COUNT, 1, (PVOID)0x10000, 4096, &information) == STATUS_ACCESS_VIOLATION);
    CHECK(Direct(file, CODE_FILL, 1, NULL, 1, &information) == STATUS_ACCESS_VIOLATION);
    CHECK(VirtualProtect(pages + 4096, 1, PAGE_READONLY, &old) && old == PAGE_READWRITE);
    CHECK(Direct(file, CODE_FILL, 1, pages, 4096, &information) == STATUS_SUCCESS);
    CHECK(Direct(file, CODE_FILL, 1, pages, 4097, &information) == STATUS_ACCESS_VIOLATION);
    CHECK(Direct(file, CODE_COUNT, 1, pages, 3 * 4096, &information) == STATUS_SUCCESS && information == 4096);
    CHECK(VirtualProtect(pages + 4096, 1, PAGE_READWRITE, &old) && old == PAGE_READONLY);
    CHECK(Direct(file, CODE_FILL, 1, pages, 3 * 4096, &information) == STATUS_SUCCESS);
    CHECK(Direct(file, CODE_COUNT, 1, other, 4096, &information) == STATUS_SUCCESS && information == 0);
    CHECK(Direct(file, CODE_FILL, 1, constant_bytes, 1, &information) == STATUS_ACCESS_VIOLATION);
    CHECK(Direct(file, CODE_COUNT, 1, constant_bytes, 4096, &information) == STATUS_SUCCESS && information == 1);
    CHECK(NtDeviceIoControlFile(file, NULL, NULL, NULL, &overlapped, CODE_ECHO, pages, 8, other, 8) == STATUS_ACCESS_VIOLATION);
    CHECK(NtDeviceIoControlFile(file, NULL, NULL, NULL, other, CODE_ECHO, pages, 8, pages, 8) == STATUS_ACCESS_VIOLATION);
    CHECK(VirtualFree(pages, 0, MEM_RELEASE) && !VirtualFree(pages, 0, MEM_RELEASE));
    CHECK(NtDeviceIoControlFile(file, NULL, NULL, NULL, &overlapped, CODE_ECHO, pages, 8, NULL, 0) == STATUS_ACCESS_VIOLATION);
    CHECK(overlapped.Internal == 1 && overlapped.InternalHigh == 2);
    CHECK(CloseHandle(file));
    return 0;
}

static BOOL IsEmpty(HANDLE port)
{
    DWORD bytes;
    ULONG_PTR key;
    OVERLAPPED *found = (OVERLAPPED *)1;
    BOOL taken = GetQueuedCompletionStatus(port, &bytes, &key, &found, 0);
    return !taken && found == NULL && GetLastError() == WAIT_TIMEOUT;
}

/* Packets come in the order of completion, each with its request's bytes, status and key. */
ULONG Port(VOID)
{
    HANDLE file = Open(TRUE), port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
    OVERLAPPED overlapped[3] = {{0}}, *found;
    UCHAR buffers[3][8] = {{0}};
    ULONG_PTR key;
    DWORD bytes;
    ULONG64 began;
    CHECK(CreateIoCompletionPort(file, port, 42, 0) == port);
    CHECK(CreateIoCompletionPort(file, port, 43, 0) == NULL && GetLastError() == ERROR_INVALID_PARAMETER);
    for (ULONG index = 0; index < 3; index++) {
        CHECK(Send(file, CODE_PEND, buffers[index], 8, &overlapped[index]) == STATUS_PENDING);
    }
    CHECK(IsEmpty(port) && Outstanding() == 3);
    CHECK(Release(STATUS_SUCCESS, 1) == STATUS_SUCCESS && Release(STATUS_DATA_ERROR, 0) == STATUS_SUCCESS);
    CHECK(Release(STATUS_BUFFER_OVERFLOW, 8) == STATUS_SUCCESS && Release(STATUS_SUCCESS, 0) == STATUS_DATA_ERROR);
    CHECK(PostQueuedCompletionStatus(port, 5, 6, (OVERLAPPED *)7));
    CHECK(GetQueuedCompletionStatus(port, &bytes, &key, &found, 0) && found == &overlapped[0] && bytes == 1 && key == 42);
    CHECK(found->Internal == STATUS_SUCCESS && found->InternalHigh == 1 && buffers[0][0] == 0x5A && buffers[0][1] == 0);
    CHECK(!GetQueuedCompletionStatus(port, &bytes, &key, &found, INFINITE) && found == &overlapped[1] && key == 42);
    CHECK((NTSTATUS)found->Internal == STATUS_DATA_ERROR && buffers[1][0] == 0);
    CHECK(!GetQueuedCompletionStatus(port, &bytes, &key, &found, 10) && found == &overlapped[2] && bytes == 8);
    CHECK(GetLastError() == ERROR_MORE_DATA && buffers[2][7] == 0x5A);
    CHECK(GetQueuedCompletionStatus(port, &bytes, &key, &found, 10) && bytes == 5 && key == 6 && found == (OVERLAPPED *)7);
    began = GetTickCount64();
    CHECK(!GetQueuedCompletionStatus(port, &bytes, &key, &found, 60 * 1000) && GetLastError() == WAIT_TIMEOUT);
    CHECK(GetTickCount64() - began >= 60 * 1000);
    CHECK(CloseHandle(file) && CloseHandle(port));
    CHECK(!GetQueuedCompletionStatus(port, &bytes, &key, &found, 0) && GetLastError() == ERROR_INVALID_HANDLE);
    return 0;
}

/* Which requests queue a packet: those that pend always, those that do not unless the file's mode skips them. */
ULONG Modes(VOID)
{
    HANDLE file = Open(TRUE), port = CreateIoCompletionPort(file, NULL, 1, 0), event = CreateEventW(NULL, TRUE, FALSE, NULL);
    OVERLAPPED overlapped = {0}, *found;
    UCHAR buffer[8] = {0};
    ULONG_PTR key;
    DWORD bytes;
    CHECK(Send(file, CODE_ECHO, buffer, 8, &overlapped) == STATUS_SUCCESS && WaitForSingleObject(file, 0) == 0);
    CHECK(GetQueuedCompletionStatus(port, &bytes, &key, &found, 0) && found == &overlapped && bytes == 8);
    CHECK(Send(file, CODE_FAIL, buffer, 8, &overlapped) == STATUS_INVALID_PARAMETER && IsEmpty(port));
    CHECK(overlapped.Internal == STATUS_PENDING && WaitForSingleObject(file, 0) == WAIT_TIMEOUT);
    CHECK(Send(file, CODE_WARN, buffer, 8, &overlapped) == STATUS_BUFFER_OVERFLOW && buffer[3] == 0x77);
    CHECK(!GetQueuedCompletionStatus(port, &bytes, &key, &found, 0) && found == &overlapped && bytes == 4);
    CHECK(SetFileCompletionNotificationModes(file, FILE_SKIP_COMPLETION_PORT_ON_SUCCESS | FILE_SKIP_SET_EVENT_ON_HANDLE));
    CHECK(Send(file, CODE_ECHO, buffer, 8, &overlapped) == STATUS_SUCCESS && overlapped.InternalHigh == 8);
    CHECK(IsEmpty(port) && WaitForSingleObject(file, 0) == WAIT_TIMEOUT);
    CHECK(Send(file, CODE_LATE, buffer, 8, &overlapped) == STATUS_PENDING && overlapped.Internal == STATUS_SUCCESS);
    CHECK(GetQueuedCompletionStatus(port, &bytes, &key, &found, 0) && found == &overlapped && bytes == 4);
    overlapped.hEvent = (HANDLE)((ULONG_PTR)event | 1);
    CHECK(Send(file, CODE_LATE, buffer, 8, &overlapped) == STATUS_PENDING && IsEmpty(port));
    CHECK(WaitForSingleObject(event, 0) == 0 && WaitForSingleObject(file, 0) == WAIT_TIMEOUT);
    CHECK(CloseHandle(file) && CloseHandle(event) && CloseHandle(port));
    return 0;
}

/* Events, GetOverlappedResult and files that are opened for synchronous use. */
ULONG Events(VOID)
{
    HANDLE file = Open(TRUE), event = CreateEventW(NULL, TRUE, TRUE, NULL), once = CreateEventW(NULL, FALSE, FALSE, NULL), copy;
    OVERLAPPED overlapped = {.hEvent = event}, plain = {0};
    const LONGLONG second = -10000000;
    UCHAR buffer[8] = {0};
    DWORD bytes = 0;
    CHECK(!DeviceIoControl(file, CODE_PEND, buffer, 8, buffer, 8, NULL, &overlapped) && GetLastError() == ERROR_IO_PENDING);
    CHECK(WaitForSingleObject(event, 1000) == WAIT_TIMEOUT && NtWaitForSingleObject(event, FALSE, &second) == 0x102);
    CHECK(!GetOverlappedResult(file, &overlapped, &bytes, FALSE) && GetLastError() == ERROR_IO_INCOMPLETE);
    CHECK(Release(STATUS_SUCCESS, 8) == STATUS_SUCCESS);
    CHECK(GetOverlappedResult(file, &overlapped, &bytes, TRUE) && bytes == 8 && buffer[7] == 0x5A);
    CHECK(WaitForSingleObject(event, 0) == 0 && ResetEvent(event) && WaitForSingleObject(event, 0) == WAIT_TIMEOUT);
    CHECK(!DeviceIoControl(file, CODE_PEND, buffer, 8, buffer, 8, NULL, &plain) && GetLastError() == ERROR_IO_PENDING);
    CHECK(Release(STATUS_DATA_ERROR, 0) == STATUS_SUCCESS && WaitForSingleObject(file, 0) == 0);
    CHECK(!GetOverlappedResult(file, &plain, &bytes, TRUE) && GetLastError() == RtlNtStatusToDosError(STATUS_DATA_ERROR));
    CHECK(SetEvent(once) && WaitForSingleObject(once, INFINITE) == 0 && WaitForSingleObject(once, 0) == WAIT_TIMEOUT);
    CHECK(WaitForSingleObject((HANDLE)12, 0) == 0xFFFFFFFF && GetLastError() == ERROR_INVALID_HANDLE);
    CHECK(NtDeviceIoControlFile(file, file, NULL, NULL, &plain, CODE_ECHO, NULL, 0, NULL, 0) == STATUS_OBJECT_TYPE_MISMATCH);
    CHECK(NtDeviceIoControlFile(event, NULL, NULL, NULL, &plain, CODE_ECHO, NULL, 0, NULL, 0) == STATUS_OBJECT_TYPE_MISMATCH);
    CHECK(DuplicateHandle(GetCurrentProcess(), file, GetCurrentProcess(), &copy, 0, FALSE, DUPLICATE_SAME_ACCESS));
    CHECK(CloseHandle(file));
    CHECK(DeviceIoControl(copy, CODE_ECHO, buffer, 2, buffer, 2, &bytes, NULL) && bytes == 2 && buffer[0] == 0x5B);
    CHECK(!DeviceIoControl(copy, CODE_FAIL, NULL, 0, NULL, 0, &bytes, NULL) && GetLastError() == ERROR_INVALID_PARAMETER);
    CHECK(CloseHandle(copy) && CloseHandle(event) && CloseHandle(once));
    CHECK(CreateFileW(L"\\\\.\\Other", 0, 0, NULL, OPEN_EXISTING, 0, NULL) == INVALID_HANDLE_VALUE);
    CHECK(GetLastError() == ERROR_FILE_NOT_FOUND);
    return 0;
}

/* One request of several, then all, in their order. */
ULONG Cancel(VOID)
{
    HANDLE file = Open(TRUE), port = CreateIoCompletionPort(file, NULL, 1, 0);
    OVERLAPPED overlapped[4] = {{0}}, *found;
    UCHAR buffer[8] = {0};
    ULONG_PTR key;
    DWORD bytes;
    const ULONG order[] = {2, 0, 1, 3};
    for (ULONG index = 0; index < 4; index++) {
        CHECK(Send(file, CODE_PEND, buffer, 8, &overlapped[index]) == STATUS_PENDING);
    }
    CHECK(CancelIoEx(file, &overlapped[2]) && !CancelIoEx(file, &overlapped[2]) && GetLastError() == ERROR_NOT_FOUND);
    CHECK(Outstanding() == 3 && CancelIoEx(file, NULL) && Outstanding() == 0);
    CHECK(!CancelIoEx(file, NULL) && GetLastError() == ERROR_NOT_FOUND);
    for (ULONG index = 0; index < 4; index++) {
        CHECK(!GetQueuedCompletionStatus(port, &bytes, &key, &found, 0) && found == &overlapped[order[index]]);
        CHECK(GetLastError() == ERROR_OPERATION_ABORTED && (NTSTATUS)found->Internal == STATUS_CANCELLED);
    }
    CHECK(IsEmpty(port));
    /* What pends when the file is closed is the driver's to complete. */
    CHECK(Send(file, CODE_PEND, buffer, 8, &overlapped[0]) == STATUS_PENDING && CloseHandle(file));
    CHECK(!GetQueuedCompletionStatus(port, &bytes, &key, &found, 0) && found == &overlapped[0] && CloseHandle(port));
    return 0;
}

/* The heap, the machine, the thread. */
ULONG Small(VOID)
{
    struct {
        DWORD architecture, page;
        PVOID lowest, highest;
        ULONG64 mask;
        DWORD processors, rest[3];
    } machine;
    HANDLE heap = GetProcessHeap();
    UCHAR *block = HeapAlloc(heap, HEAP_ZERO_MEMORY, 100);
    CHECK(((ULONG_PTR)block & 15) == 0 && block[0] == 0 && block[99] == 0);
    block[99] = 3;
    block = HeapReAlloc(heap, 0, block, 10000);
    CHECK(block[0] == 0 && block[99] == 3 && HeapFree(heap, 0, block) && HeapFree(heap, 0, NULL));
    GetSystemInfo(&machine);
    CHECK(machine.page == 4096 && machine.processors == 2 && machine.mask == 3);
    SetLastError(77);
    CHECK(GetLastError() == 77 && GetCurrentThreadId() != 0 && GetCurrentProcessId() % 4 == 0);
    Sleep(5);
    Sleep(0);
    SwitchToThread();
    return 0;
}

/* What the driver takes for the caller's process. */
ULONG ProcessOfRequests(VOID)
{
    HANDLE file = Open(FALSE);
    ULONG number = 0;
    DWORD returned;
    BOOL done = DeviceIoControl(file, CODE_PROCESS, NULL, 0, &number, sizeof(number), &returned, NULL);
    CloseHandle(file);
    return done ? number : 0;
}

/* A request with the status block and the buffer at an address, by a file whose packets go to a port or to none. */
NTSTATUS PendAt(ULONG code, PVOID memory, ULONG length, BOOL with_port, HANDLE *port)
{
    HANDLE file = Open(TRUE);
    if (with_port) {
        *port = CreateIoCompletionPort(file, NULL, 1, 0);
    }
    return Send(file, code, (UCHAR *)memory + 4096, length, memory);
}

/* A request that pends, by a file that is opened for synchronous use: returns when it is over. */
ULONG PendAndWait(VOID)
{
    UCHAR buffer[8] = {0};
    DWORD returned;
    return DeviceIoControl(Open(FALSE), CODE_PEND, buffer, 8, buffer, 8, &returned, NULL) ? returned : 0;
}

/* Takes a packet of a port, however long it takes. */
ULONG TakePacket(HANDLE port)
{
    DWORD bytes;
    ULONG_PTR key;
    OVERLAPPED *found;
    return GetQueuedCompletionStatus(port, &bytes, &key, &found, INFINITE) ? 1 : 2;
}

/* What another process's handle is here: the status of a request, then the errors of calls. */
ULONG Foreign(HANDLE file, HANDLE port)
{
    OVERLAPPED overlapped = {0}, *found;
    ULONG_PTR key;
    DWORD bytes;
    CHECK(Send(file, CODE_ECHO, NULL, 0, &overlapped) == STATUS_INVALID_HANDLE);
    CHECK(!CancelIoEx(file, NULL) && GetLastError() == ERROR_INVALID_HANDLE);
    CHECK(!PostQueuedCompletionStatus(port, 0, 0, NULL) && GetLastError() == ERROR_INVALID_HANDLE);
    CHECK(!GetQueuedCompletionStatus(port, &bytes, &key, &found, 0) && GetLastError() == ERROR_INVALID_HANDLE);
    CHECK(!CloseHandle(file) && GetLastError() == ERROR_INVALID_HANDLE);
    return 0;
}

/* Has the driver write to a buffer that it was lent for reading. */
NTSTATUS Scribble(PVOID buffer)
{
    HANDLE file = Open(FALSE);
    ULONG_PTR information;
    return Direct(file, CODE_SCRIBBLE, 0, buffer, 64, &information);
}

/* Gives pages back that a driver may have locked. */
BOOL GiveBack(PVOID pages)
{
    return VirtualFree(pages, 0, MEM_RELEASE);
}
