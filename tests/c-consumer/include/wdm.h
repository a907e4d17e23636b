/*
 * Devices and packets of the kernel's interface, for the drivers here that have a device of their own; beside ntddk.h, under
 * the same terms.
 */
#pragma once
#include <ntddk.h>

#define FILE_DEVICE_UNKNOWN 0x22u
#define FILE_DEVICE_SECURE_OPEN 0x100u
#define METHOD_BUFFERED 0u
#define METHOD_IN_DIRECT 1u
#define METHOD_OUT_DIRECT 2u
#define FILE_ANY_ACCESS 0u
#define CTL_CODE(type, function, method, access) (((type) << 16) | ((access) << 14) | ((function) << 2) | (method))
#define IRP_MJ_CREATE 0x00
#define IRP_MJ_CLOSE 0x02
#define IRP_MJ_DEVICE_CONTROL 0x0E
#define IRP_MJ_CLEANUP 0x12
#define IO_NO_INCREMENT 0
#define DO_DEVICE_INITIALIZING 0x80u
#define STATUS_INVALID_DEVICE_REQUEST ((NTSTATUS)0xC0000010)
#define STATUS_OBJECT_NAME_NOT_FOUND ((NTSTATUS)0xC0000034)
#define STATUS_OBJECT_NAME_COLLISION ((NTSTATUS)0xC0000035)

typedef struct _FILE_OBJECT *PFILE_OBJECT;
typedef struct _VPB *PVPB;

typedef struct DECLSPEC_ALIGN(16) _DEVICE_OBJECT {
    CSHORT Type;
    USHORT Size;
    LONG ReferenceCount;
    PDRIVER_OBJECT DriverObject;
    struct _DEVICE_OBJECT *NextDevice;
    struct _DEVICE_OBJECT *AttachedDevice;
    PIRP CurrentIrp;
    PVOID Timer;
    ULONG Flags;
    ULONG Characteristics;
    PVPB Vpb;
    PVOID DeviceExtension;
    ULONG DeviceType;
    CHAR StackSize;
    ULONG64 Queue[9];
    ULONG AlignmentRequirement;
    ULONG64 Rest[22];
} DEVICE_OBJECT, *PDEVICE_OBJECT;
C_ASSERT(sizeof(DEVICE_OBJECT) == 336);

typedef struct _IO_STACK_LOCATION {
    UCHAR MajorFunction;
    UCHAR MinorFunction;
    UCHAR Flags;
    UCHAR Control;
    union {
        struct {
            ULONG OutputBufferLength;
            ULONG DECLSPEC_ALIGN(8) InputBufferLength;
            ULONG DECLSPEC_ALIGN(8) IoControlCode;
            PVOID Type3InputBuffer;
        } DeviceIoControl;
        ULONG64 Words[4];
    } Parameters;
    PDEVICE_OBJECT DeviceObject;
    PFILE_OBJECT FileObject;
    PVOID CompletionRoutine;
    PVOID Context;
} IO_STACK_LOCATION, *PIO_STACK_LOCATION;
C_ASSERT(sizeof(IO_STACK_LOCATION) == 72);

typedef struct _IO_STATUS_BLOCK {
    union {
        NTSTATUS Status;
        PVOID Pointer;
    };
    ULONG_PTR Information;
} IO_STATUS_BLOCK;

typedef struct DECLSPEC_ALIGN(16) _IRP {
    CSHORT Type;
    USHORT Size;
    PMDL MdlAddress;
    ULONG Flags;
    union {
        PVOID SystemBuffer;
    } AssociatedIrp;
    LIST_ENTRY ThreadListEntry;
    IO_STATUS_BLOCK IoStatus;
    CHAR RequestorMode;
    BOOLEAN PendingReturned;
    CHAR StackCount;
    CHAR CurrentLocation;
    BOOLEAN Cancel;
    KIRQL CancelIrql;
    CHAR ApcEnvironment;
    UCHAR AllocationFlags;
    IO_STATUS_BLOCK *UserIosb;
    PKEVENT UserEvent;
    ULONG64 Overlay[2];
    PVOID CancelRoutine;
    PVOID UserBuffer;
    struct {
        struct {
            PVOID DriverContext[4];
            PKTHREAD Thread;
            PVOID AuxiliaryBuffer;
            LIST_ENTRY ListEntry;
            IO_STACK_LOCATION *CurrentStackLocation;
            PFILE_OBJECT OriginalFileObject;
        } Overlay;
    } Tail;
    ULONG64 TailRest;
} IRP;
C_ASSERT(sizeof(IRP) == 208);
C_ASSERT(__builtin_offsetof(IRP, CancelRoutine) == 104);
C_ASSERT(__builtin_offsetof(IRP, Tail.Overlay.ListEntry) == 168);
C_ASSERT(__builtin_offsetof(IRP, Tail.Overlay.CurrentStackLocation) == 184);

typedef NTSTATUS DRIVER_DISPATCH(PDEVICE_OBJECT DeviceObject, PIRP Irp);

typedef VOID DRIVER_CANCEL(PDEVICE_OBJECT DeviceObject, PIRP Irp);

#define SL_PENDING_RETURNED 0x01
#define IoGetCurrentIrpStackLocation(irp) ((irp)->Tail.Overlay.CurrentStackLocation)
#define IoMarkIrpPending(irp) (IoGetCurrentIrpStackLocation(irp)->Control |= SL_PENDING_RETURNED)
#define IoSetCancelRoutine(irp, routine) __atomic_exchange_n(&(irp)->CancelRoutine, (PVOID)(routine), __ATOMIC_SEQ_CST)

NTKERNELAPI NTSTATUS IoCreateDevice(PDRIVER_OBJECT DriverObject, ULONG DeviceExtensionSize, PUNICODE_STRING DeviceName,
                                    ULONG DeviceType, ULONG DeviceCharacteristics, BOOLEAN Exclusive,
                                    PDEVICE_OBJECT *DeviceObject);
NTKERNELAPI VOID IoDeleteDevice(PDEVICE_OBJECT DeviceObject);
NTKERNELAPI NTSTATUS IoCreateSymbolicLink(PUNICODE_STRING SymbolicLinkName, PUNICODE_STRING DeviceName);
NTKERNELAPI NTSTATUS IoDeleteSymbolicLink(PUNICODE_STRING SymbolicLinkName);
NTKERNELAPI VOID IofCompleteRequest(PIRP Irp, CHAR PriorityBoost);
#define IoCompleteRequest IofCompleteRequest
NTKERNELAPI VOID IoReleaseCancelSpinLock(KIRQL Irql);
NTKERNELAPI ULONG IoGetRequestorProcessId(PIRP Irp);

#define NormalPagePriority 16u
#define MdlMappingNoExecute 0x40000000u
typedef enum _MEMORY_CACHING_TYPE { MmNonCached, MmCached } MEMORY_CACHING_TYPE;
NTKERNELAPI PVOID MmMapLockedPagesSpecifyCache(PMDL Mdl, KPROCESSOR_MODE AccessMode, MEMORY_CACHING_TYPE CacheType,
                                               PVOID RequestedAddress, ULONG BugCheckOnFailure, ULONG Priority);
