/*
 * What this driver uses of the kernel's interface, for x64: names, layouts and values as the driver kit has them, written
 * for this driver alone. Nothing here is shared with the provider under test. With the kit's own folder in front of this
 * one the sources compile against the kit.
 */
#pragma once

#define CONST const

typedef void VOID, *PVOID;
typedef char CHAR;
typedef const char *PCSTR;
typedef unsigned char UCHAR, *PUCHAR, BOOLEAN, KIRQL, *PKIRQL;
typedef short CSHORT;
typedef unsigned short USHORT, *PUSHORT, WCHAR, *PWSTR;
typedef const WCHAR *PCWSTR;
/* 32 bits, and another type than int: an ULONG and an UINT32 do not stand for each other behind a pointer. */
typedef long LONG, NTSTATUS;
typedef unsigned long ULONG, *PULONG, ACCESS_MASK;
typedef unsigned int UINT32;
typedef long long LONGLONG, LONG64, LONG_PTR;
typedef unsigned long long ULONGLONG, ULONG64, UINT64, ULONG_PTR, SIZE_T, KSPIN_LOCK, *PKSPIN_LOCK, KAFFINITY;
typedef void *HANDLE, **PHANDLE;

#define TRUE 1
#define FALSE 0
#define NULL ((void *)0)
#define MAXULONG 0xFFFFFFFFu
#define UNREFERENCED_PARAMETER(parameter) ((void)(parameter))
#define FIELD_OFFSET(type, field) ((LONG)__builtin_offsetof(type, field))
#define CONTAINING_RECORD(address, type, field) ((type *)((PUCHAR)(address) - __builtin_offsetof(type, field)))
#define RTL_NUMBER_OF(array) (sizeof(array) / sizeof((array)[0]))
#define C_ASSERT(condition) _Static_assert(condition, #condition)
#define DECLSPEC_ALIGN(bytes) __attribute__((aligned(bytes)))
#define NTKERNELAPI __declspec(dllimport)
#define PAGE_SIZE 0x1000u
#define ADDRESS_AND_SIZE_TO_SPAN_PAGES(address, size) \
    ((ULONG)((((ULONG_PTR)(address) & (PAGE_SIZE - 1)) + (size) + (PAGE_SIZE - 1)) / PAGE_SIZE))

#define NT_SUCCESS(status) ((NTSTATUS)(status) >= 0)
#define STATUS_SUCCESS ((NTSTATUS)0x00000000)
#define STATUS_TIMEOUT ((NTSTATUS)0x00000102)
#define STATUS_PENDING ((NTSTATUS)0x00000103)
#define STATUS_UNSUCCESSFUL ((NTSTATUS)0xC0000001)
#define STATUS_ACCESS_VIOLATION ((NTSTATUS)0xC0000005)
#define STATUS_NO_MORE_ENTRIES ((NTSTATUS)0x8000001A)
#define STATUS_BUFFER_TOO_SMALL ((NTSTATUS)0xC0000023)
#define STATUS_INVALID_PARAMETER ((NTSTATUS)0xC000000D)
#define STATUS_DATA_ERROR ((NTSTATUS)0xC000003E)
#define STATUS_INSUFFICIENT_RESOURCES ((NTSTATUS)0xC000009A)
#define STATUS_NOT_SUPPORTED ((NTSTATUS)0xC00000BB)
#define STATUS_IO_TIMEOUT ((NTSTATUS)0xC00000B5)
#define STATUS_CANCELLED ((NTSTATUS)0xC0000120)
#define STATUS_CONNECTION_INVALID ((NTSTATUS)0xC000023A)

#define PASSIVE_LEVEL 0
#define APC_LEVEL 1
#define DISPATCH_LEVEL 2

typedef union _LARGE_INTEGER {
    struct {
        ULONG LowPart;
        LONG HighPart;
    };
    LONGLONG QuadPart;
} LARGE_INTEGER, *PLARGE_INTEGER, PHYSICAL_ADDRESS;

typedef struct _GUID {
    ULONG Data1;
    USHORT Data2;
    USHORT Data3;
    UCHAR Data4[8];
} GUID;

typedef struct _LIST_ENTRY {
    struct _LIST_ENTRY *Flink;
    struct _LIST_ENTRY *Blink;
} LIST_ENTRY, *PLIST_ENTRY;

static inline VOID InitializeListHead(PLIST_ENTRY ListHead)
{
    ListHead->Flink = ListHead->Blink = ListHead;
}

static inline BOOLEAN IsListEmpty(const LIST_ENTRY *ListHead)
{
    return ListHead->Flink == ListHead;
}

static inline VOID InsertTailList(PLIST_ENTRY ListHead, PLIST_ENTRY Entry)
{
    Entry->Flink = ListHead;
    Entry->Blink = ListHead->Blink;
    ListHead->Blink->Flink = Entry;
    ListHead->Blink = Entry;
}

static inline PLIST_ENTRY RemoveHeadList(PLIST_ENTRY ListHead)
{
    PLIST_ENTRY entry = ListHead->Flink;
    ListHead->Flink = entry->Flink;
    entry->Flink->Blink = ListHead;
    return entry;
}

typedef struct _UNICODE_STRING {
    USHORT Length;
    USHORT MaximumLength;
    PWSTR Buffer;
} UNICODE_STRING, *PUNICODE_STRING;

typedef struct _OBJECT_ATTRIBUTES {
    ULONG Length;
    HANDLE RootDirectory;
    PUNICODE_STRING ObjectName;
    ULONG Attributes;
    PVOID SecurityDescriptor;
    PVOID SecurityQualityOfService;
} OBJECT_ATTRIBUTES, *POBJECT_ATTRIBUTES;
C_ASSERT(sizeof(OBJECT_ATTRIBUTES) == 48);

#define OBJ_CASE_INSENSITIVE 0x00000040u
#define OBJ_KERNEL_HANDLE 0x00000200u
#define InitializeObjectAttributes(object, name, attributes, root, security) \
    do {                                                                     \
        (object)->Length = sizeof(OBJECT_ATTRIBUTES);                        \
        (object)->RootDirectory = (root);                                    \
        (object)->ObjectName = (name);                                       \
        (object)->Attributes = (attributes);                                 \
        (object)->SecurityDescriptor = (security);                           \
        (object)->SecurityQualityOfService = NULL;                           \
    } while (0)

typedef struct _DISPATCHER_HEADER {
    ULONG Lock;
    LONG SignalState;
    LIST_ENTRY WaitListHead;
} DISPATCHER_HEADER;

typedef struct _KEVENT {
    DISPATCHER_HEADER Header;
} KEVENT, *PKEVENT;
C_ASSERT(sizeof(KEVENT) == 24);

typedef enum _EVENT_TYPE { NotificationEvent, SynchronizationEvent } EVENT_TYPE;
typedef enum _KWAIT_REASON { Executive } KWAIT_REASON;
typedef enum _MODE { KernelMode, UserMode } MODE;
typedef enum _WAIT_TYPE { WaitAll, WaitAny } WAIT_TYPE;
typedef CHAR KPROCESSOR_MODE;
typedef struct _KWAIT_BLOCK *PKWAIT_BLOCK;

typedef struct _KDPC {
    ULONG TargetInfoAsUlong;
    LIST_ENTRY *DpcListEntry;
    ULONG_PTR ProcessorHistory;
    PVOID DeferredRoutine;
    PVOID DeferredContext;
    PVOID SystemArgument1;
    PVOID SystemArgument2;
    PVOID DpcData;
} KDPC, *PKDPC;
C_ASSERT(sizeof(KDPC) == 64);

typedef VOID KDEFERRED_ROUTINE(PKDPC Dpc, PVOID DeferredContext, PVOID SystemArgument1, PVOID SystemArgument2);

typedef struct _KTIMER {
    DISPATCHER_HEADER Header;
    ULONGLONG DueTime;
    LIST_ENTRY TimerListEntry;
    PKDPC Dpc;
    USHORT Processor;
    USHORT TimerType;
    ULONG Period;
} KTIMER, *PKTIMER;
C_ASSERT(sizeof(KTIMER) == 64);

typedef struct _KLOCK_QUEUE_HANDLE {
    PVOID LockQueue[2];
    KIRQL OldIrql;
} KLOCK_QUEUE_HANDLE, *PKLOCK_QUEUE_HANDLE;
C_ASSERT(sizeof(KLOCK_QUEUE_HANDLE) == 24);

typedef struct _EX_RUNDOWN_REF {
    ULONG_PTR Count;
} EX_RUNDOWN_REF, *PEX_RUNDOWN_REF;

typedef struct _MDL {
    struct _MDL *Next;
    CSHORT Size;
    CSHORT MdlFlags;
    PVOID Process;
    PVOID MappedSystemVa;
    PVOID StartVa;
    ULONG ByteCount;
    ULONG ByteOffset;
} MDL, *PMDL;
C_ASSERT(sizeof(MDL) == 48);

typedef struct _GROUP_AFFINITY {
    KAFFINITY Mask;
    USHORT Group;
    USHORT Reserved[3];
} GROUP_AFFINITY, *PGROUP_AFFINITY;

typedef struct _DRIVER_OBJECT {
    CSHORT Type;
    CSHORT Size;
    PVOID DeviceObject;
    ULONG Flags;
    PVOID DriverStart;
    ULONG DriverSize;
    PVOID DriverSection;
    PVOID DriverExtension;
    UNICODE_STRING DriverName;
    PUNICODE_STRING HardwareDatabase;
    PVOID FastIoDispatch;
    PVOID DriverInit;
    PVOID DriverStartIo;
    VOID (*DriverUnload)(struct _DRIVER_OBJECT *DriverObject);
    PVOID MajorFunction[28];
} DRIVER_OBJECT, *PDRIVER_OBJECT;
C_ASSERT(sizeof(DRIVER_OBJECT) == 336);

typedef struct _IO_WORKITEM *PIO_WORKITEM;
typedef enum _WORK_QUEUE_TYPE { CriticalWorkQueue, DelayedWorkQueue } WORK_QUEUE_TYPE;
typedef VOID IO_WORKITEM_ROUTINE_EX(PVOID IoObject, PVOID Context, PIO_WORKITEM IoWorkItem);
typedef VOID KSTART_ROUTINE(PVOID StartContext);
typedef struct _IRP *PIRP;
typedef struct _KTHREAD *PKTHREAD;
typedef struct _OBJECT_TYPE *POBJECT_TYPE;

#define POOL_FLAG_NON_PAGED 0x40ull
#define THREAD_ALL_ACCESS 0x001FFFFFu

typedef struct _KEY_VALUE_PARTIAL_INFORMATION {
    ULONG TitleIndex;
    ULONG Type;
    ULONG DataLength;
    UCHAR Data[1];
} KEY_VALUE_PARTIAL_INFORMATION, *PKEY_VALUE_PARTIAL_INFORMATION;

typedef enum _KEY_VALUE_INFORMATION_CLASS {
    KeyValueBasicInformation,
    KeyValueFullInformation,
    KeyValuePartialInformation
} KEY_VALUE_INFORMATION_CLASS;

#define REG_SZ 1u
#define REG_BINARY 3u
#define REG_DWORD 4u
#define KEY_READ 0x00020019u
#define KEY_WRITE 0x00020006u

NTKERNELAPI NTSTATUS ZwOpenKey(PHANDLE KeyHandle, ACCESS_MASK DesiredAccess, POBJECT_ATTRIBUTES ObjectAttributes);
NTKERNELAPI NTSTATUS ZwQueryValueKey(HANDLE KeyHandle, PUNICODE_STRING ValueName, KEY_VALUE_INFORMATION_CLASS Class,
                                     PVOID Information, ULONG Length, PULONG ResultLength);
NTKERNELAPI NTSTATUS ZwSetValueKey(HANDLE KeyHandle, PUNICODE_STRING ValueName, ULONG TitleIndex, ULONG Type, PVOID Data,
                                   ULONG DataSize);
NTKERNELAPI NTSTATUS ZwClose(HANDLE Handle);
NTKERNELAPI VOID RtlInitUnicodeString(PUNICODE_STRING DestinationString, PCWSTR SourceString);
NTKERNELAPI NTSTATUS RtlAppendUnicodeToString(PUNICODE_STRING Destination, PCWSTR Source);
NTKERNELAPI VOID RtlCopyUnicodeString(PUNICODE_STRING Destination, PUNICODE_STRING Source);

NTKERNELAPI PVOID ExAllocatePool2(ULONG64 Flags, SIZE_T NumberOfBytes, ULONG Tag);
NTKERNELAPI VOID ExFreePoolWithTag(PVOID Block, ULONG Tag);

NTKERNELAPI VOID KeInitializeEvent(PKEVENT Event, EVENT_TYPE Type, BOOLEAN State);
NTKERNELAPI LONG KeSetEvent(PKEVENT Event, LONG Increment, BOOLEAN Wait);
NTKERNELAPI NTSTATUS KeWaitForSingleObject(PVOID Object, KWAIT_REASON WaitReason, KPROCESSOR_MODE WaitMode,
                                           BOOLEAN Alertable, PLARGE_INTEGER Timeout);
NTKERNELAPI NTSTATUS KeWaitForMultipleObjects(ULONG Count, PVOID Object[], WAIT_TYPE WaitType, KWAIT_REASON WaitReason,
                                              KPROCESSOR_MODE WaitMode, BOOLEAN Alertable, PLARGE_INTEGER Timeout,
                                              PKWAIT_BLOCK WaitBlockArray);
NTKERNELAPI LONG KeResetEvent(PKEVENT Event);
NTKERNELAPI VOID KeClearEvent(PKEVENT Event);
NTKERNELAPI LONG KeReadStateEvent(PKEVENT Event);
NTKERNELAPI NTSTATUS KeDelayExecutionThread(KPROCESSOR_MODE WaitMode, BOOLEAN Alertable, PLARGE_INTEGER Interval);
NTKERNELAPI LARGE_INTEGER KeQueryPerformanceCounter(PLARGE_INTEGER PerformanceFrequency);
NTKERNELAPI BOOLEAN KeInsertQueueDpc(PKDPC Dpc, PVOID SystemArgument1, PVOID SystemArgument2);
NTKERNELAPI BOOLEAN KeRemoveQueueDpc(PKDPC Dpc);
NTKERNELAPI VOID KeInitializeDpc(PKDPC Dpc, KDEFERRED_ROUTINE *DeferredRoutine, PVOID DeferredContext);
NTKERNELAPI VOID KeFlushQueuedDpcs(VOID);
NTKERNELAPI VOID KeInitializeTimer(PKTIMER Timer);
NTKERNELAPI BOOLEAN KeSetTimerEx(PKTIMER Timer, LARGE_INTEGER DueTime, LONG Period, PKDPC Dpc);
NTKERNELAPI BOOLEAN KeCancelTimer(PKTIMER Timer);
NTKERNELAPI VOID KeAcquireInStackQueuedSpinLock(PKSPIN_LOCK SpinLock, PKLOCK_QUEUE_HANDLE LockHandle);
NTKERNELAPI VOID KeReleaseInStackQueuedSpinLock(PKLOCK_QUEUE_HANDLE LockHandle);
NTKERNELAPI VOID KeInitializeSpinLock(PKSPIN_LOCK SpinLock);
NTKERNELAPI KIRQL KeAcquireSpinLockRaiseToDpc(PKSPIN_LOCK SpinLock);
NTKERNELAPI VOID KeReleaseSpinLock(PKSPIN_LOCK SpinLock, KIRQL NewIrql);
#define KeAcquireSpinLock(lock, old) (*(old) = KeAcquireSpinLockRaiseToDpc(lock))
NTKERNELAPI VOID KeAcquireSpinLockAtDpcLevel(PKSPIN_LOCK SpinLock);
NTKERNELAPI VOID KeReleaseSpinLockFromDpcLevel(PKSPIN_LOCK SpinLock);
NTKERNELAPI KIRQL KfRaiseIrql(KIRQL NewIrql);
NTKERNELAPI VOID KeLowerIrql(KIRQL NewIrql);

NTKERNELAPI VOID ExInitializeRundownProtection(PEX_RUNDOWN_REF RunRef);
NTKERNELAPI BOOLEAN ExAcquireRundownProtection(PEX_RUNDOWN_REF RunRef);
NTKERNELAPI VOID ExReleaseRundownProtection(PEX_RUNDOWN_REF RunRef);
NTKERNELAPI VOID ExWaitForRundownProtectionRelease(PEX_RUNDOWN_REF RunRef);


NTKERNELAPI PMDL IoAllocateMdl(PVOID VirtualAddress, ULONG Length, BOOLEAN SecondaryBuffer, BOOLEAN ChargeQuota, PIRP Irp);
NTKERNELAPI VOID IoFreeMdl(PMDL Mdl);
NTKERNELAPI VOID MmBuildMdlForNonPagedPool(PMDL MemoryDescriptorList);

NTKERNELAPI ULONG IoSizeofWorkItem(VOID);
NTKERNELAPI VOID IoInitializeWorkItem(PVOID IoObject, PIO_WORKITEM IoWorkItem);
NTKERNELAPI VOID IoUninitializeWorkItem(PIO_WORKITEM IoWorkItem);
NTKERNELAPI VOID IoQueueWorkItemEx(PIO_WORKITEM IoWorkItem, IO_WORKITEM_ROUTINE_EX *WorkerRoutine,
                                   WORK_QUEUE_TYPE QueueType, PVOID Context);

NTKERNELAPI NTSTATUS PsCreateSystemThread(PHANDLE ThreadHandle, ULONG DesiredAccess, POBJECT_ATTRIBUTES ObjectAttributes,
                                          HANDLE ProcessHandle, PVOID ClientId, KSTART_ROUTINE *StartRoutine,
                                          PVOID StartContext);
NTKERNELAPI NTSTATUS ObReferenceObjectByHandle(HANDLE Handle, ACCESS_MASK DesiredAccess, POBJECT_TYPE ObjectType,
                                               KPROCESSOR_MODE AccessMode, PVOID *Object, PVOID HandleInformation);
NTKERNELAPI LONG_PTR ObfDereferenceObject(PVOID Object);
#define ObDereferenceObject ObfDereferenceObject
/* The import's slot holds the address of the kernel's variable. */
extern POBJECT_TYPE *__imp_PsThreadType;
#define PsThreadType __imp_PsThreadType

NTKERNELAPI NTSTATUS PsTerminateSystemThread(NTSTATUS ExitStatus);

NTKERNELAPI ULONG DbgPrint(PCSTR Format, ...);
NTKERNELAPI ULONG DbgPrintEx(ULONG ComponentId, ULONG Level, PCSTR Format, ...);
NTKERNELAPI __attribute__((noreturn)) VOID KeBugCheckEx(ULONG Code, ULONG_PTR Parameter1, ULONG_PTR Parameter2,
                                                        ULONG_PTR Parameter3, ULONG_PTR Parameter4);

void *memcpy(void *destination, const void *source, SIZE_T count);
void *memmove(void *destination, const void *source, SIZE_T count);
void *memset(void *destination, int value, SIZE_T count);
int memcmp(const void *first, const void *second, SIZE_T count);
#define RtlCopyMemory(destination, source, count) memcpy((destination), (source), (count))
#define RtlZeroMemory(destination, count) memset((destination), 0, (count))

#define KeRaiseIrql(level, old) (*(old) = KfRaiseIrql(level))

/* Functions and not macros, as the kit's are: they take a pointer to LONG or LONG64 and no other. */
static inline LONG64 InterlockedAdd64(LONG64 volatile *Addend, LONG64 Value)
{
    return __atomic_add_fetch(Addend, Value, __ATOMIC_SEQ_CST);
}

static inline LONG64 InterlockedIncrement64(LONG64 volatile *Addend)
{
    return InterlockedAdd64(Addend, 1);
}

static inline LONG64 InterlockedDecrement64(LONG64 volatile *Addend)
{
    return InterlockedAdd64(Addend, -1);
}

static inline LONG InterlockedIncrement(LONG volatile *Addend)
{
    return __atomic_add_fetch(Addend, 1, __ATOMIC_SEQ_CST);
}

static inline LONG InterlockedDecrement(LONG volatile *Addend)
{
    return __atomic_sub_fetch(Addend, 1, __ATOMIC_SEQ_CST);
}

static inline LONG InterlockedCompareExchange(LONG volatile *Destination, LONG Exchange, LONG Comperand)
{
    __atomic_compare_exchange_n(Destination, &Comperand, Exchange, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return Comperand;
}

static inline LONG InterlockedExchange(LONG volatile *Target, LONG Value)
{
    return __atomic_exchange_n(Target, Value, __ATOMIC_SEQ_CST);
}

/* The level is a control register, and the header reads it in place. */
static inline KIRQL KeGetCurrentIrql(VOID)
{
    ULONG64 level;
    __asm__ volatile("mov %%cr8, %0" : "=r"(level));
    return (KIRQL)level;
}
