/*
 * A driver that uses what foreign drivers use: imports of every form, inline code of the kit's headers, pool and lists in all
 * spellings, locks, pages without addresses. `DriverEntry` fails with the line of the first value that is not as it should
 * be. The exported functions do what a correct driver does not.
 */
#include <ntddk.h>

#include <ws2ipdef.h>

#include <ip2string.h>

#define CHECK(condition)                             \
    do {                                             \
        if (!(condition)) {                          \
            return (NTSTATUS)(0xE0000000u | __LINE__); \
        }                                            \
    } while (0)
#define CHECKED(call)                \
    do {                             \
        NTSTATUS checked = (call);   \
        if (!NT_SUCCESS(checked)) {  \
            return checked;          \
        }                            \
    } while (0)

#define TAG 'ngrF'

/* exporter.sys */
NTKERNELAPI ULONG ExportedByName(ULONG value);
NTKERNELAPI ULONG ExportedByNumber(ULONG value);
extern NTKERNELAPI ULONG ExportedVariable;
NTKERNELAPI KIRQL ForwardedToKernel(VOID);
NTKERNELAPI ULONG ForwardedHome(ULONG value);
NTKERNELAPI ULONG ForwardedByNumber(ULONG value);

static NTSTATUS Imports(VOID)
{
    CHECK(ExportedByName(5) == 22);
    CHECK(ExportedByNumber(5) == 15);
    CHECK(ExportedVariable == 17);
    ExportedVariable = 18;
    CHECK(ExportedByName(5) == 23);
    ExportedVariable = 17;
    CHECK(ForwardedToKernel() == PASSIVE_LEVEL);
    CHECK(ForwardedHome(1) == 18);
    CHECK(ForwardedByNumber(2) == 6);
    return STATUS_SUCCESS;
}

extern ULONG64 __security_cookie;

static ULONG Twice(ULONG value)
{
    return 2 * value;
}

static NTSTATUS LoadConfiguration(VOID)
{
    ULONG (*volatile function)(ULONG) = Twice;
    CHECK(__security_cookie != 0x00002B992DDFA232ull);
    CHECK(__security_cookie >> 48 == 0);
    CHECK(function(21) == 42);
    return STATUS_SUCCESS;
}

/* A frame of more than a page: the compiler calls __chkstk. */
static NTSTATUS LargeFrame(VOID)
{
    volatile UCHAR frame[9000];
    for (ULONG index = 0; index < sizeof(frame); index++) {
        frame[index] = (UCHAR)index;
    }
    CHECK(frame[8999] == (UCHAR)8999);
    return STATUS_SUCCESS;
}

static inline VOID WriteLevel(ULONG64 level)
{
    __asm__ volatile("mov %0, %%cr8" : : "r"(level) : "memory");
}

NTKERNELAPI BOOLEAN KeInsertQueueDpc(PKDPC Dpc, PVOID Argument1, PVOID Argument2);

static VOID Count(PKDPC Dpc, PVOID Context, PVOID Argument1, PVOID Argument2)
{
    UNREFERENCED_PARAMETER(Dpc);
    UNREFERENCED_PARAMETER(Argument1);
    UNREFERENCED_PARAMETER(Argument2);
    InterlockedIncrement((LONG *)Context);
}

static NTSTATUS Level(VOID)
{
    static KDPC dpc;
    volatile LONG ran = 0;
    CHECK(KeGetCurrentIrql() == PASSIVE_LEVEL);
    WriteLevel(DISPATCH_LEVEL);
    CHECK(KeGetCurrentIrql() == DISPATCH_LEVEL);
    KeInitializeDpc(&dpc, Count, (PVOID)&ran);
    CHECK(KeInsertQueueDpc(&dpc, NULL, NULL));
    CHECK(ran == 0);
    /* The write runs the DPC, and the code around it must not notice: registers and flags are as before. */
    ULONG64 flags, sum;
    __asm__ volatile("mov $1, %%ecx\n\t"
                     "mov $2, %%edx\n\t"
                     "mov $3, %%r8d\n\t"
                     "mov $4, %%r9d\n\t"
                     "mov $5, %%r10d\n\t"
                     "mov $6, %%r11d\n\t"
                     "xor %%eax, %%eax\n\t"
                     "stc\n\t"
                     "mov %%rax, %%cr8\n\t"
                     "pushfq\n\t"
                     "pop %0\n\t"
                     "lea (%%rcx, %%rdx), %1\n\t"
                     "add %%r8, %1\n\t"
                     "add %%r9, %1\n\t"
                     "add %%r10, %1\n\t"
                     "add %%r11, %1\n\t"
                     "add %%rax, %1"
                     : "=&r"(flags), "=&r"(sum)
                     :
                     : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory", "cc");
    CHECK(ran == 1);
    CHECK(KeGetCurrentIrql() == PASSIVE_LEVEL);
    CHECK(sum == 21);
    CHECK((flags & 1) != 0);
    return STATUS_SUCCESS;
}

typedef struct _PROCESSOR_NUMBER {
    USHORT Group;
    UCHAR Number;
    UCHAR Reserved;
} PROCESSOR_NUMBER;
NTKERNELAPI PVOID KeGetCurrentThread(VOID);
NTKERNELAPI ULONG KeGetCurrentProcessorNumberEx(PROCESSOR_NUMBER *Number);

/* The block of the processor, which the headers read through gs. */
static NTSTATUS ProcessorBlock(VOID)
{
    PVOID thread, self;
    UCHAR number;
    ULONG index;
    __asm__("mov %%gs:0x188, %0" : "=r"(thread));
    CHECK(thread == KeGetCurrentThread());
    __asm__("mov %%gs:0x18, %0" : "=r"(self));
    CHECK(*(PVOID *)((PUCHAR)self + 0x188) == thread);
    CHECK(*(PUCHAR *)((PUCHAR)self + 0x20) == (PUCHAR)self + 0x180);
    WriteLevel(DISPATCH_LEVEL);
    __asm__ volatile("movb %%gs:0x184, %0" : "=q"(number));
    __asm__ volatile("movl %%gs:0x1A4, %0" : "=r"(index));
    ULONG right = KeGetCurrentProcessorNumberEx(NULL);
    WriteLevel(PASSIVE_LEVEL);
    CHECK(number == right && index == right);
    return STATUS_SUCCESS;
}

#define SHARED_PAGE 0xFFFFF78000000000ull
NTKERNELAPI ULONGLONG KeQueryUnbiasedInterruptTime(VOID);
NTKERNELAPI VOID KeQuerySystemTimePrecise(PLARGE_INTEGER CurrentTime);

static NTSTATUS SharedPage(VOID)
{
    LARGE_INTEGER system;
    ULONGLONG before = KeQueryUnbiasedInterruptTime();
    ULONGLONG now = *(volatile ULONGLONG *)(SHARED_PAGE + 0x08);
    ULONGLONG ticks = *(volatile ULONGLONG *)(SHARED_PAGE + 0x320);
    ULONG high = *(volatile ULONG *)(SHARED_PAGE + 0x10);
    ULONGLONG after = KeQueryUnbiasedInterruptTime();
    CHECK(before <= now && now <= after);
    CHECK(high == (ULONG)(now >> 32));
    CHECK(ticks <= after / 156250);
    KeQuerySystemTimePrecise(&system);
    ULONGLONG shared = *(volatile ULONGLONG *)(SHARED_PAGE + 0x14);
    CHECK(shared >= (ULONGLONG)system.QuadPart && shared - (ULONGLONG)system.QuadPart < 600000000ull);
    CHECK(*(volatile ULONG *)(SHARED_PAGE + 0x26C) == 10);
    ULONG build = *(volatile ULONG *)(SHARED_PAGE + 0x260);
    CHECK(build >= 19041);
    CHECK(*(volatile USHORT *)(SHARED_PAGE + 0x260) == (USHORT)build);
    CHECK(*(volatile UCHAR *)(SHARED_PAGE + 0x260) == (UCHAR)build);
    return STATUS_SUCCESS;
}

NTKERNELAPI PVOID ExAllocatePool3(ULONG64 Flags, SIZE_T Bytes, ULONG Tag, PVOID Parameters, ULONG Count);
NTKERNELAPI PVOID ExAllocatePoolWithTag(ULONG Type, SIZE_T Bytes, ULONG Tag);
NTKERNELAPI PVOID ExAllocatePoolWithQuotaTag(ULONG Type, SIZE_T Bytes, ULONG Tag);
NTKERNELAPI PVOID ExAllocatePoolWithTagPriority(ULONG Type, SIZE_T Bytes, ULONG Tag, ULONG Priority);
NTKERNELAPI VOID ExFreePool(PVOID Block);

static NTSTATUS Pool(VOID)
{
    enum { NonPagedPoolNx = 512 };
    PVOID blocks[] = {
        ExAllocatePool2(POOL_FLAG_NON_PAGED, 100, TAG),
        ExAllocatePool3(POOL_FLAG_NON_PAGED, 5000, TAG, NULL, 0),
        ExAllocatePoolWithTag(NonPagedPoolNx, 200, TAG),
        ExAllocatePoolWithQuotaTag(NonPagedPoolNx, 300, TAG),
        ExAllocatePoolWithTagPriority(NonPagedPoolNx, 400, TAG, 16),
    };
    for (ULONG index = 0; index < RTL_NUMBER_OF(blocks); index++) {
        CHECK(blocks[index] != NULL);
        memset(blocks[index], 0x5A, 100);
        if (index % 2 == 0) {
            ExFreePoolWithTag(blocks[index], TAG);
        } else {
            ExFreePool(blocks[index]);
        }
    }
    return STATUS_SUCCESS;
}

typedef struct DECLSPEC_ALIGN(16) _SLIST_ENTRY {
    struct _SLIST_ENTRY *Next;
} SLIST_ENTRY, *PSLIST_ENTRY;
typedef union DECLSPEC_ALIGN(16) _SLIST_HEADER {
    ULONGLONG Words[2];
} SLIST_HEADER, *PSLIST_HEADER;
NTKERNELAPI PSLIST_ENTRY ExpInterlockedPushEntrySList(PSLIST_HEADER List, PSLIST_ENTRY Entry);
NTKERNELAPI PSLIST_ENTRY ExpInterlockedPopEntrySList(PSLIST_HEADER List);
NTKERNELAPI PSLIST_ENTRY ExpInterlockedFlushSList(PSLIST_HEADER List);
NTKERNELAPI USHORT ExQueryDepthSList(PSLIST_HEADER List);

static NTSTATUS InterlockedLists(VOID)
{
    static SLIST_HEADER list;
    static SLIST_ENTRY entries[3];
    CHECK(ExpInterlockedPopEntrySList(&list) == NULL);
    for (ULONG index = 0; index < 3; index++) {
        PSLIST_ENTRY before = ExpInterlockedPushEntrySList(&list, &entries[index]);
        CHECK(before == (index == 0 ? NULL : &entries[index - 1]));
    }
    CHECK(ExQueryDepthSList(&list) == 3);
    CHECK(ExpInterlockedPopEntrySList(&list) == &entries[2]);
    CHECK(ExpInterlockedFlushSList(&list) == &entries[1]);
    CHECK(entries[1].Next == &entries[0] && entries[0].Next == NULL);
    CHECK(ExQueryDepthSList(&list) == 0);
    return STATUS_SUCCESS;
}

/* The part of a lookaside list that the inline functions touch. */
typedef struct DECLSPEC_ALIGN(64) _LOOKASIDE {
    SLIST_HEADER ListHead;
    USHORT Depth;
    USHORT MaximumDepth;
    ULONG TotalAllocates;
    ULONG AllocateMisses;
    ULONG TotalFrees;
    ULONG FreeMisses;
    ULONG Type;
    ULONG Tag;
    ULONG Size;
    union {
        PVOID (*Allocate)(ULONG Type, SIZE_T Bytes, ULONG Tag);
        PVOID (*AllocateEx)(ULONG Type, SIZE_T Bytes, ULONG Tag, struct _LOOKASIDE *List);
    };
    union {
        VOID (*Free)(PVOID Block);
        VOID (*FreeEx)(PVOID Block, struct _LOOKASIDE *List);
    };
    ULONGLONG Rest[8];
} LOOKASIDE;
C_ASSERT(__builtin_offsetof(LOOKASIDE, Allocate) == 48 && sizeof(LOOKASIDE) == 128);
NTKERNELAPI VOID ExInitializeNPagedLookasideList(LOOKASIDE *List, PVOID Allocate, PVOID Free, ULONG Flags, SIZE_T Size, ULONG Tag,
                                                 USHORT Depth);
NTKERNELAPI VOID ExDeleteNPagedLookasideList(LOOKASIDE *List);
NTKERNELAPI NTSTATUS ExInitializeLookasideListEx(LOOKASIDE *List, PVOID Allocate, PVOID Free, ULONG Type, ULONG Flags,
                                                 SIZE_T Size, ULONG Tag, USHORT Depth);
NTKERNELAPI VOID ExFlushLookasideListEx(LOOKASIDE *List);
NTKERNELAPI VOID ExDeleteLookasideListEx(LOOKASIDE *List);

static PVOID LookasideAllocate(LOOKASIDE *list, BOOLEAN extended)
{
    PVOID block = ExpInterlockedPopEntrySList(&list->ListHead);
    list->TotalAllocates++;
    if (block == NULL) {
        list->AllocateMisses++;
        block = extended ? list->AllocateEx(list->Type, list->Size, list->Tag, list)
                         : list->Allocate(list->Type, list->Size, list->Tag);
    }
    return block;
}

static VOID LookasideFree(LOOKASIDE *list, PVOID block, BOOLEAN extended)
{
    if (ExQueryDepthSList(&list->ListHead) < list->Depth) {
        ExpInterlockedPushEntrySList(&list->ListHead, block);
    } else if (extended) {
        list->FreeEx(block, list);
    } else {
        list->Free(block);
    }
}

static LONG OwnFrees;

static VOID OwnFree(PVOID block, LOOKASIDE *list)
{
    UNREFERENCED_PARAMETER(list);
    InterlockedIncrement(&OwnFrees);
    ExFreePoolWithTag(block, TAG);
}

static NTSTATUS LookasideLists(VOID)
{
    static LOOKASIDE list, extended;
    PVOID blocks[8];
    ExInitializeNPagedLookasideList(&list, NULL, NULL, 0x200, 96, TAG, 0);
    CHECKED(ExInitializeLookasideListEx(&extended, NULL, OwnFree, 512, 0, 200, TAG, 0));
    for (ULONG index = 0; index < 8; index++) {
        blocks[index] = LookasideAllocate(&list, FALSE);
        CHECK(blocks[index] != NULL);
        memset(blocks[index], 1, 96);
    }
    for (ULONG index = 0; index < 8; index++) {
        LookasideFree(&list, blocks[index], FALSE);
    }
    CHECK(ExQueryDepthSList(&list.ListHead) == list.Depth);
    PVOID again = LookasideAllocate(&list, FALSE);
    CHECK(again == blocks[list.Depth - 1]);
    LookasideFree(&list, again, FALSE);
    ExDeleteNPagedLookasideList(&list);
    PVOID one = LookasideAllocate(&extended, TRUE);
    CHECK(one != NULL);
    LookasideFree(&extended, one, TRUE);
    ExFlushLookasideListEx(&extended);
    CHECK(OwnFrees == 1);
    ExDeleteLookasideListEx(&extended);
    return STATUS_SUCCESS;
}

typedef struct _FAST_MUTEX {
    LONG Count;
    PVOID Owner;
    ULONG Contention;
    KEVENT Event;
    ULONG OldIrql;
} FAST_MUTEX;
C_ASSERT(sizeof(FAST_MUTEX) == 56);
NTKERNELAPI VOID KeEnterCriticalRegion(VOID);
NTKERNELAPI VOID KeLeaveCriticalRegion(VOID);
NTKERNELAPI VOID ExAcquireFastMutexUnsafe(FAST_MUTEX *Mutex);
NTKERNELAPI VOID ExReleaseFastMutexUnsafe(FAST_MUTEX *Mutex);
NTKERNELAPI VOID KeInitializeGuardedMutex(FAST_MUTEX *Mutex);
NTKERNELAPI VOID KeAcquireGuardedMutex(FAST_MUTEX *Mutex);
NTKERNELAPI VOID KeReleaseGuardedMutex(FAST_MUTEX *Mutex);
NTKERNELAPI KIRQL ExAcquireSpinLockShared(LONG *Lock);
NTKERNELAPI VOID ExReleaseSpinLockShared(LONG *Lock, KIRQL Old);
NTKERNELAPI KIRQL ExAcquireSpinLockExclusive(LONG *Lock);
NTKERNELAPI VOID ExReleaseSpinLockExclusive(LONG *Lock, KIRQL Old);
NTKERNELAPI VOID KeAcquireInStackQueuedSpinLockForDpc(PKSPIN_LOCK Lock, PKLOCK_QUEUE_HANDLE Handle);
NTKERNELAPI VOID KeReleaseInStackQueuedSpinLockForDpc(PKLOCK_QUEUE_HANDLE Handle);
NTKERNELAPI BOOLEAN ExAcquireRundownProtectionEx(PEX_RUNDOWN_REF Run, ULONG Count);
NTKERNELAPI VOID ExReleaseRundownProtectionEx(PEX_RUNDOWN_REF Run, ULONG Count);

static NTSTATUS Locks(VOID)
{
    static FAST_MUTEX fast, guarded;
    static LONG readerWriter;
    static KSPIN_LOCK spin;
    static EX_RUNDOWN_REF run;
    KLOCK_QUEUE_HANDLE handle;
    fast.Count = 1;
    KeInitializeEvent(&fast.Event, SynchronizationEvent, FALSE);
    KeEnterCriticalRegion();
    ExAcquireFastMutexUnsafe(&fast);
    CHECK(KeGetCurrentIrql() == PASSIVE_LEVEL);
    ExReleaseFastMutexUnsafe(&fast);
    KeLeaveCriticalRegion();
    KeInitializeGuardedMutex(&guarded);
    KeAcquireGuardedMutex(&guarded);
    KeReleaseGuardedMutex(&guarded);
    KIRQL old = ExAcquireSpinLockShared(&readerWriter);
    CHECK(old == PASSIVE_LEVEL && KeGetCurrentIrql() == DISPATCH_LEVEL);
    ExReleaseSpinLockShared(&readerWriter, old);
    old = ExAcquireSpinLockExclusive(&readerWriter);
    KeAcquireInStackQueuedSpinLockForDpc(&spin, &handle);
    KeReleaseInStackQueuedSpinLockForDpc(&handle);
    ExReleaseSpinLockExclusive(&readerWriter, old);
    ExInitializeRundownProtection(&run);
    CHECK(ExAcquireRundownProtectionEx(&run, 3));
    ExReleaseRundownProtectionEx(&run, 3);
    ExWaitForRundownProtectionRelease(&run);
    CHECK(!ExAcquireRundownProtectionEx(&run, 2));
    return STATUS_SUCCESS;
}

#define MdlMappingNoExecute 0x40000000

NTKERNELAPI PMDL MmAllocatePagesForMdlEx(PHYSICAL_ADDRESS Low, PHYSICAL_ADDRESS High, PHYSICAL_ADDRESS Skip, SIZE_T Bytes,
                                         ULONG Cache, ULONG Flags);
NTKERNELAPI VOID MmFreePagesFromMdl(PMDL Mdl);
NTKERNELAPI PVOID MmMapLockedPagesSpecifyCache(PMDL Mdl, KPROCESSOR_MODE Mode, ULONG Cache, PVOID Address, ULONG BugCheck,
                                               ULONG Priority);
NTKERNELAPI VOID MmUnmapLockedPages(PVOID Address, PMDL Mdl);
NTKERNELAPI VOID IoBuildPartialMdl(PMDL Source, PMDL Target, PVOID Address, ULONG Length);
NTKERNELAPI VOID MmProbeAndLockPages(PMDL Mdl, KPROCESSOR_MODE Mode, ULONG Operation);
NTKERNELAPI VOID MmUnlockPages(PMDL Mdl);

static NTSTATUS PageLists(VOID)
{
    const PHYSICAL_ADDRESS low = {.QuadPart = 0}, high = {.QuadPart = -1};
    PMDL pages = MmAllocatePagesForMdlEx(low, high, low, 5 * PAGE_SIZE - 10, 1, 0);
    CHECK(pages != NULL && pages->ByteCount == 5 * PAGE_SIZE && pages->Next == NULL);
    PUCHAR mapped = MmMapLockedPagesSpecifyCache(pages, KernelMode, 1, NULL, 0, 16 | MdlMappingNoExecute);
    CHECK(mapped != NULL && mapped[0] == 0 && mapped[5 * PAGE_SIZE - 1] == 0);
    mapped[3 * PAGE_SIZE + 7] = 0x77;
    PMDL part = IoAllocateMdl(mapped + 3 * PAGE_SIZE, 100, FALSE, FALSE, NULL);
    CHECK(part != NULL);
    IoBuildPartialMdl(pages, part, (PUCHAR)pages->StartVa + 3 * PAGE_SIZE, 100);
    CHECK(((PUCHAR)part->MappedSystemVa)[7] == 0x77);
    IoFreeMdl(part);
    MmUnmapLockedPages(mapped, pages);
    /* Another address, the same pages. */
    mapped = MmMapLockedPagesSpecifyCache(pages, KernelMode, 1, NULL, 0, 16 | MdlMappingNoExecute);
    CHECK(mapped[3 * PAGE_SIZE + 7] == 0x77);
    MmUnmapLockedPages(mapped, pages);
    MmFreePagesFromMdl(pages);
    ExFreePool(pages);
    return STATUS_SUCCESS;
}

/* With a handler around it, as the documentation requires; nothing is raised here. */
static NTSTATUS ProbeAndLock(VOID)
{
    PVOID block = ExAllocatePool2(POOL_FLAG_NON_PAGED, 3 * PAGE_SIZE, TAG);
    PMDL mdl = block == NULL ? NULL : IoAllocateMdl(block, 3 * PAGE_SIZE, FALSE, FALSE, NULL);
    CHECK(mdl != NULL);
    NTSTATUS status = STATUS_SUCCESS;
    __try {
        MmProbeAndLockPages(mdl, KernelMode, 1);
    } __except (1) {
        status = STATUS_DATA_ERROR;
    }
    CHECKED(status);
    MmUnlockPages(mdl);
    IoFreeMdl(mdl);
    ExFreePoolWithTag(block, TAG);
    return STATUS_SUCCESS;
}

typedef struct _WORK_QUEUE_ITEM {
    LIST_ENTRY List;
    VOID (*WorkerRoutine)(PVOID Parameter);
    PVOID Parameter;
} WORK_QUEUE_ITEM;
NTKERNELAPI VOID ExQueueWorkItem(WORK_QUEUE_ITEM *Item, ULONG Queue);
NTKERNELAPI PIO_WORKITEM IoAllocateWorkItem(PVOID Object);
NTKERNELAPI VOID IoFreeWorkItem(PIO_WORKITEM Item);
NTKERNELAPI VOID IoQueueWorkItem(PIO_WORKITEM Item, VOID (*Routine)(PVOID Object, PVOID Context), ULONG Queue, PVOID Context);
NTKERNELAPI BOOLEAN KeSetTimer(KTIMER *Timer, LARGE_INTEGER Due, PKDPC Dpc);
NTKERNELAPI VOID KeFlushQueuedDpcs(VOID);

static VOID SetEvent(PVOID event)
{
    KeSetEvent(event, 0, FALSE);
}

static VOID SetEventOf(PVOID object, PVOID event)
{
    UNREFERENCED_PARAMETER(object);
    KeSetEvent(event, 0, FALSE);
}

static VOID SetEventEx(PVOID object, PVOID event, PIO_WORKITEM item)
{
    UNREFERENCED_PARAMETER(object);
    UNREFERENCED_PARAMETER(item);
    KeSetEvent(event, 0, FALSE);
}

static VOID SetEventInDpc(PKDPC dpc, PVOID event, PVOID first, PVOID second)
{
    UNREFERENCED_PARAMETER(dpc);
    UNREFERENCED_PARAMETER(first);
    UNREFERENCED_PARAMETER(second);
    KeSetEvent(event, 0, FALSE);
}

static NTSTATUS Wait(PKEVENT event)
{
    return KeWaitForSingleObject(event, Executive, KernelMode, FALSE, NULL);
}

static NTSTATUS OtherThreads(PDRIVER_OBJECT driver)
{
    static KEVENT done;
    static KDPC dpc;
    static KTIMER timer;
    HANDLE handle;
    PVOID thread;
    OBJECT_ATTRIBUTES attributes;
    LARGE_INTEGER due = {.QuadPart = -10000};
    WORK_QUEUE_ITEM executive = {{NULL, NULL}, SetEvent, &done};
    KeInitializeEvent(&done, SynchronizationEvent, FALSE);
    ExQueueWorkItem(&executive, DelayedWorkQueue);
    CHECKED(Wait(&done));
    PIO_WORKITEM item = IoAllocateWorkItem(driver);
    CHECK(item != NULL);
    IoQueueWorkItem(item, SetEventOf, DelayedWorkQueue, &done);
    CHECKED(Wait(&done));
    IoQueueWorkItemEx(item, SetEventEx, DelayedWorkQueue, &done);
    CHECKED(Wait(&done));
    IoFreeWorkItem(item);
    KeInitializeTimer(&timer);
    KeInitializeDpc(&dpc, SetEventInDpc, &done);
    CHECK(!KeSetTimer(&timer, due, &dpc));
    CHECKED(Wait(&done));
    /* The event is set before the DPC has returned, and the unload may come next. */
    KeFlushQueuedDpcs();
    InitializeObjectAttributes(&attributes, NULL, OBJ_KERNEL_HANDLE, NULL, NULL);
    CHECKED(PsCreateSystemThread(&handle, THREAD_ALL_ACCESS, &attributes, NULL, NULL, SetEvent, &done));
    CHECKED(ObReferenceObjectByHandle(handle, THREAD_ALL_ACCESS, *PsThreadType, KernelMode, &thread, NULL));
    ZwClose(handle);
    CHECKED(Wait(&done));
    CHECKED(KeWaitForSingleObject(thread, Executive, KernelMode, FALSE, NULL));
    ObDereferenceObject(thread);
    return STATUS_SUCCESS;
}

NTKERNELAPI SIZE_T strlen(PCSTR text);
NTKERNELAPI LONG strcmp(PCSTR first, PCSTR second);
NTKERNELAPI SIZE_T wcslen(PCWSTR text);
NTKERNELAPI LONG wcsncmp(PCWSTR first, PCWSTR second, SIZE_T count);
NTKERNELAPI PWSTR wcschr(PCWSTR text, WCHAR character);
NTKERNELAPI NTSTATUS RtlAppendUnicodeStringToString(PUNICODE_STRING destination, PUNICODE_STRING source);

static NTSTATUS Strings(VOID)
{
    WCHAR characters[12];
    UNICODE_STRING text = {0, sizeof(characters), characters}, more;
    IN_ADDR address;
    USHORT port;
    CHECK(strlen("softndk") == 7 && strcmp("a", "b") < 0 && strcmp("ab", "ab") == 0);
    CHECK(wcslen(L"softndk") == 7 && wcsncmp(L"abc", L"abd", 2) == 0 && wcsncmp(L"abc", L"abd", 3) < 0);
    CHECK(*wcschr(L"a.b", L'.') == L'.' && wcschr(L"ab", L'.') == NULL);
    RtlInitUnicodeString(&more, L"-more");
    CHECKED(RtlAppendUnicodeToString(&text, L"some"));
    CHECKED(RtlAppendUnicodeStringToString(&text, &more));
    CHECK(text.Length == 18 && wcsncmp(characters, L"some-more", 10) == 0);
    CHECK(RtlAppendUnicodeToString(&text, L"much") == STATUS_BUFFER_TOO_SMALL && text.Length == 18);
    CHECKED(RtlIpv4StringToAddressExW(L"10.1.2.3:445", TRUE, &address, &port));
    CHECK(address.S_addr == 0x0302010A && port == 0xBD01);
    CHECK(RtlIpv4StringToAddressExW(L"10.1.2", TRUE, &address, &port) == STATUS_INVALID_PARAMETER);
    return STATUS_SUCCESS;
}

/* Calls that end the system. */

VOID SmashStack(ULONG length)
{
    volatile UCHAR frame[16];
    for (ULONG index = 0; index < length; index++) {
        frame[index] = 0x41;
    }
}

VOID CallIntoTheMiddle(VOID)
{
    ULONG (*volatile function)(ULONG) = (ULONG(*)(ULONG))((ULONG_PTR)Twice + 1);
    function(1);
}

VOID WriteLevelSixteen(VOID)
{
    WriteLevel(16);
}

VOID ReturnRaised(VOID)
{
    WriteLevel(DISPATCH_LEVEL);
}

VOID StoreToSharedPage(VOID)
{
    *(volatile ULONG *)(SHARED_PAGE + 0x260) = 1;
}

VOID ProbeNothing(VOID)
{
    PMDL mdl = IoAllocateMdl((PVOID)0x10000, PAGE_SIZE, FALSE, FALSE, NULL);
    if (mdl == NULL) {
        return;
    }
    __try {
        MmProbeAndLockPages(mdl, UserMode, 0);
    } __except (1) {
        IoFreeMdl(mdl);
    }
}

static VOID Unload(PDRIVER_OBJECT driver)
{
    UNREFERENCED_PARAMETER(driver);
}

NTSTATUS DriverEntry(PDRIVER_OBJECT driver, PUNICODE_STRING path)
{
    UNREFERENCED_PARAMETER(path);
    driver->DriverUnload = Unload;
    CHECKED(Imports());
    CHECKED(LoadConfiguration());
    CHECKED(LargeFrame());
    CHECKED(Level());
    CHECKED(ProcessorBlock());
    CHECKED(SharedPage());
    CHECKED(Pool());
    CHECKED(InterlockedLists());
    CHECKED(LookasideLists());
    CHECKED(Locks());
    CHECKED(PageLists());
    CHECKED(ProbeAndLock());
    CHECKED(OtherThreads(driver));
    CHECKED(Strings());
    return STATUS_SUCCESS;
}
