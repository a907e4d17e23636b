/*
 * Faults, waits and allocations whose reports the host's tests read. Each exported function fails in the way that its
 * name says, below a function of its own, so that the stack has two frames.
 */
#include <ntddk.h>

#define TAG 'troR'
#define NOT_CANONICAL 0x4141414141414140ull

static VOID Unload(PDRIVER_OBJECT Driver)
{
    UNREFERENCED_PARAMETER(Driver);
}

NTSTATUS DriverEntry(PDRIVER_OBJECT Driver, PUNICODE_STRING Path)
{
    UNREFERENCED_PARAMETER(Path);
    Driver->DriverUnload = Unload;
    return STATUS_SUCCESS;
}

/* The last export that a faulting function has called. */
static __attribute__((noinline)) VOID CallAnExport(VOID)
{
    KEVENT event;
    KeInitializeEvent(&event, NotificationEvent, FALSE);
    KeSetEvent(&event, 0, FALSE);
}

#define FAULT(name, body)                               \
    static __attribute__((noinline)) ULONG64 Inner##name(ULONG64 value) \
    {                                                   \
        body;                                           \
        return value + 1;                               \
    }                                                   \
    ULONG64 name(ULONG64 value)                         \
    {                                                   \
        CallAnExport();                                 \
        return Inner##name(value) + 1;                  \
    }

FAULT(AssertFails, __asm__ volatile("int $0x2c"))
FAULT(Breakpoint, __asm__ volatile("int3"))
FAULT(ReadNotCanonical, value = *(volatile ULONG64 *)(NOT_CANONICAL + 8))
FAULT(WriteNotCanonical, *(volatile ULONG64 *)(NOT_CANONICAL + 8) = value)
FAULT(CallNotCanonical, __asm__ volatile("callq *%0" : : "r"(NOT_CANONICAL) : "memory"))
FAULT(Privileged, __asm__ volatile("cli"))
FAULT(Misaligned, __asm__ volatile("andq $-16, %0\n\tmovaps %%xmm0, 8(%0)" : "+r"(value) : : "memory"))
FAULT(Trap, __asm__ volatile("ud2"))
FAULT(DivideByZero, __asm__ volatile("xorl %%edx, %%edx\n\txorl %%ecx, %%ecx\n\tdivl %%ecx" : : : "rax", "rcx", "rdx"))
FAULT(ReadNull, value = *(volatile ULONG64 *)8)
FAULT(CallWild, __asm__ volatile("callq *%0" : : "r"(0x1230ull) : "memory"))
FAULT(CopyFromWild, memcpy(&value, (const VOID *)0x1230, sizeof(value)))
FAULT(SetWildEvent, KeSetEvent((PKEVENT)NOT_CANONICAL, 0, FALSE))
FAULT(StopByOwnCode, KeBugCheckEx(0x7E, (ULONG_PTR)(LONG64)(LONG)0xC000009A, 0, 0, 0))

/* In code that may be paged, which is a section of its own; what it calls fails there, too. */
#define PAGED __attribute__((noinline, section("PAGE")))

static PAGED ULONG64 InnerPagedCodeFails(ULONG64 value)
{
    /* Has a frame: its caller is found by its unwind codes. */
    volatile ULONG64 kept[4] = {value};
    value = *(volatile ULONG64 *)8;
    return kept[value % 4];
}

PAGED ULONG64 PagedCodeFails(ULONG64 value)
{
    return InnerPagedCodeFails(value) + 1;
}

static PAGED NTSTATUS WaitInPagedCode(PKEVENT Event)
{
    NTSTATUS status = KeWaitForSingleObject(Event, Executive, KernelMode, FALSE, NULL);
    return NT_SUCCESS(status) ? STATUS_TIMEOUT : status;
}

PAGED NTSTATUS PagedCodeWaits(VOID)
{
    KEVENT event;
    KeInitializeEvent(&event, SynchronizationEvent, FALSE);
    NTSTATUS status = WaitInPagedCode(&event);
    return NT_SUCCESS(status) ? STATUS_TIMEOUT : status;
}

/* Waits for what never comes, with another wait below a function of its own. */
static __attribute__((noinline)) NTSTATUS WaitInside(PKEVENT Event)
{
    NTSTATUS status = KeWaitForSingleObject(Event, Executive, KernelMode, FALSE, NULL);
    return NT_SUCCESS(status) ? STATUS_TIMEOUT : status;
}

NTSTATUS WaitForever(VOID)
{
    PKEVENT event = ExAllocatePool2(POOL_FLAG_NON_PAGED, sizeof(KEVENT), TAG);
    KeInitializeEvent(event, SynchronizationEvent, FALSE);
    NTSTATUS status = WaitInside(event);
    ExFreePoolWithTag(event, TAG);
    return status;
}

struct Ticker {
    KTIMER Timer;
    KDPC Dpc;
    KEVENT Event;
    ULONG64 Count;
    ULONG64 Last;
};

static VOID Tick(PKDPC Dpc, PVOID Context, PVOID First, PVOID Second)
{
    struct Ticker *ticker = Context;
    UNREFERENCED_PARAMETER(Dpc);
    UNREFERENCED_PARAMETER(First);
    UNREFERENCED_PARAMETER(Second);
    if (++ticker->Count == ticker->Last) {
        KeSetEvent(&ticker->Event, 0, FALSE);
    }
}

/* A timer fires every ten milliseconds. The wait ends with the last tick. */
NTSTATUS WaitForTicks(ULONG64 Last)
{
    struct Ticker *ticker = ExAllocatePool2(POOL_FLAG_NON_PAGED, sizeof(*ticker), TAG);
    LARGE_INTEGER due;
    due.QuadPart = -100000;
    ticker->Last = Last;
    KeInitializeEvent(&ticker->Event, SynchronizationEvent, FALSE);
    KeInitializeTimer(&ticker->Timer);
    KeInitializeDpc(&ticker->Dpc, Tick, ticker);
    KeSetTimerEx(&ticker->Timer, due, 10, &ticker->Dpc);
    NTSTATUS status = WaitInside(&ticker->Event);
    KeCancelTimer(&ticker->Timer);
    KeFlushQueuedDpcs();
    ExFreePoolWithTag(ticker, TAG);
    return status;
}

/* Takes blocks until one is refused, and gives all back. */
ULONG64 AllocateUntilRefused(ULONG64 Bytes, ULONG64 Most)
{
    PVOID *last = NULL;
    ULONG64 count = 0;
    while (count < Most) {
        PVOID *block = ExAllocatePool2(POOL_FLAG_NON_PAGED, Bytes, TAG);
        if (block == NULL) {
            break;
        }
        *block = last;
        last = block;
        count++;
    }
    while (last != NULL) {
        PVOID *next = *last;
        ExFreePoolWithTag(last, TAG);
        last = next;
    }
    return count;
}
