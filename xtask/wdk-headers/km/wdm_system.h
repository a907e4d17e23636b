#pragma once
/*
 * wdm_system.h: threads, processors, time, objects, the run-time library.
 *
 * Written for softndk from the documented interface of Windows kernel drivers: the types and functions that softndk and
 * the wdk crates use, under the names that the driver kit gives them, so that the generated Rust names are the same.
 * Not a replacement for the kit's header.
 */

#include "ntdef.h"
#include "wdm_sync.h"
#include "wdm_memory.h"

#define DELETE 0x00010000L
#define READ_CONTROL 0x00020000L
#define SYNCHRONIZE 0x00100000L
#define STANDARD_RIGHTS_REQUIRED 0x000F0000L
#define THREAD_ALL_ACCESS (STANDARD_RIGHTS_REQUIRED | SYNCHRONIZE | 0xFFFF)

#define DPFLTR_ERROR_LEVEL 0
#define DPFLTR_WARNING_LEVEL 1
#define DPFLTR_TRACE_LEVEL 2
#define DPFLTR_INFO_LEVEL 3

typedef enum _DPFLTR_TYPE {
    DPFLTR_IHVDRIVER_ID = 77,
    DPFLTR_IHVNETWORK_ID = 80,
} DPFLTR_TYPE;

struct _OBJECT_TYPE;

typedef struct _OBJECT_TYPE *POBJECT_TYPE;
typedef struct _OBJECT_HANDLE_INFORMATION *POBJECT_HANDLE_INFORMATION;
typedef struct _CLIENT_ID *PCLIENT_ID;

typedef void KSTART_ROUTINE(PVOID StartContext);
typedef KSTART_ROUTINE *PKSTART_ROUTINE;

/* Threads. */
NTSTATUS PsCreateSystemThread(PHANDLE ThreadHandle, ULONG DesiredAccess, POBJECT_ATTRIBUTES ObjectAttributes, HANDLE ProcessHandle, PCLIENT_ID ClientId, PKSTART_ROUTINE StartRoutine, PVOID StartContext);
NTSTATUS PsTerminateSystemThread(NTSTATUS ExitStatus);
HANDLE PsGetCurrentThreadId(void);
HANDLE PsGetCurrentProcessId(void);
KPRIORITY KeSetPriorityThread(PKTHREAD Thread, KPRIORITY Priority);
void KeSetSystemGroupAffinityThread(PGROUP_AFFINITY Affinity, PGROUP_AFFINITY PreviousAffinity);
void KeRevertToUserGroupAffinityThread(PGROUP_AFFINITY PreviousAffinity);
void IoGetStackLimits(PULONG_PTR LowLimit, PULONG_PTR HighLimit);
PEPROCESS IoGetCurrentProcess(void);

/* Processors. */
ULONG KeGetCurrentProcessorNumberEx(PPROCESSOR_NUMBER ProcNumber);
NTSTATUS KeGetProcessorNumberFromIndex(ULONG ProcIndex, PPROCESSOR_NUMBER ProcNumber);
ULONG KeGetProcessorIndexFromNumber(PPROCESSOR_NUMBER ProcNumber);
ULONG KeQueryActiveProcessorCountEx(USHORT GroupNumber);
ULONG KeQueryMaximumProcessorCountEx(USHORT GroupNumber);
LOGICAL KeShouldYieldProcessor(void);

/* Time. */
LARGE_INTEGER KeQueryPerformanceCounter(PLARGE_INTEGER PerformanceFrequency);
ULONGLONG KeQueryUnbiasedInterruptTime(void);
ULONG64 KeQueryInterruptTimePrecise(PULONG64 QpcTimeStamp);
void KeQuerySystemTimePrecise(PLARGE_INTEGER CurrentTime);
ULONG KeQueryTimeIncrement(void);
void KeStallExecutionProcessor(ULONG MicroSeconds);

/* Objects and handles. */
NTSTATUS ObReferenceObjectByHandle(HANDLE Handle, ACCESS_MASK DesiredAccess, POBJECT_TYPE ObjectType, KPROCESSOR_MODE AccessMode, PVOID *Object, POBJECT_HANDLE_INFORMATION HandleInformation);
LONG_PTR ObfReferenceObject(PVOID Object);
LONG_PTR ObfDereferenceObject(PVOID Object);
NTSTATUS ZwClose(HANDLE Handle);

/* Text, diagnostics, run-time library. */
void RtlInitUnicodeString(PUNICODE_STRING DestinationString, PCWSTR SourceString);
BOOLEAN RtlEqualUnicodeString(PCUNICODE_STRING String1, PCUNICODE_STRING String2, BOOLEAN CaseInSensitive);
SIZE_T RtlCompareMemory(const void *Source1, const void *Source2, SIZE_T Length);
ULONG RtlRandomEx(PULONG Seed);
PVOID MmGetSystemRoutineAddress(PUNICODE_STRING SystemRoutineName);
ULONG DbgPrint(PCSTR Format, ...);
ULONG DbgPrintEx(ULONG ComponentId, ULONG Level, PCSTR Format, ...);
__declspec(noreturn) void KeBugCheckEx(ULONG BugCheckCode, ULONG_PTR BugCheckParameter1, ULONG_PTR BugCheckParameter2, ULONG_PTR BugCheckParameter3, ULONG_PTR BugCheckParameter4);

/* Event Tracing: what the crate tracelogging imports. Its callback and descriptors are its own. */
NTSTATUS EtwRegister(const GUID *ProviderId, PVOID EnableCallback, PVOID CallbackContext, ULONGLONG *RegHandle);
NTSTATUS EtwUnregister(ULONGLONG RegHandle);
NTSTATUS EtwSetInformation(ULONGLONG RegHandle, ULONG InformationClass, PVOID EventInformation, ULONG InformationLength);
NTSTATUS EtwWriteTransfer(ULONGLONG RegHandle, const void *EventDescriptor, const GUID *ActivityId, const GUID *RelatedActivityId, ULONG UserDataCount, PVOID UserData);
NTSTATUS EtwActivityIdControl(ULONG ControlCode, GUID *ActivityId);
