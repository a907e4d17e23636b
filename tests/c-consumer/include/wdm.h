/*
 * Devices and packets of the kernel's interface, for the drivers here that have a device of their own; beside ntddk.h, under
 * the same terms.
 */
#pragma once
#include <ntddk.h>

#define FILE_DEVICE_UNKNOWN 0x22u
#define FILE_DEVICE_SECURE_OPEN 0x100u
#define METHOD_BUFFERED 0u
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
    ULONG64 Rest[15];
    struct {
        struct {
            IO_STACK_LOCATION *CurrentStackLocation;
            PFILE_OBJECT OriginalFileObject;
        } Overlay;
    } Tail;
    ULONG64 TailRest;
} IRP;
C_ASSERT(sizeof(IRP) == 208);
C_ASSERT(__builtin_offsetof(IRP, Tail.Overlay.CurrentStackLocation) == 184);

typedef NTSTATUS DRIVER_DISPATCH(PDEVICE_OBJECT DeviceObject, PIRP Irp);

#define IoGetCurrentIrpStackLocation(irp) ((irp)->Tail.Overlay.CurrentStackLocation)

NTKERNELAPI NTSTATUS IoCreateDevice(PDRIVER_OBJECT DriverObject, ULONG DeviceExtensionSize, PUNICODE_STRING DeviceName,
                                    ULONG DeviceType, ULONG DeviceCharacteristics, BOOLEAN Exclusive,
                                    PDEVICE_OBJECT *DeviceObject);
NTKERNELAPI VOID IoDeleteDevice(PDEVICE_OBJECT DeviceObject);
NTKERNELAPI NTSTATUS IoCreateSymbolicLink(PUNICODE_STRING SymbolicLinkName, PUNICODE_STRING DeviceName);
NTKERNELAPI NTSTATUS IoDeleteSymbolicLink(PUNICODE_STRING SymbolicLinkName);
NTKERNELAPI VOID IofCompleteRequest(PIRP Irp, CHAR PriorityBoost);
#define IoCompleteRequest IofCompleteRequest
