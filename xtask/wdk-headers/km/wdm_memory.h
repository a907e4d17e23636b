#pragma once
/*
 * wdm_memory.h: pool, memory descriptor lists, mappings.
 *
 * Written for softndk from the documented interface of Windows kernel drivers: the types and functions that softndk and
 * the wdk crates use, under the names that the driver kit gives them, so that the generated Rust names are the same.
 * Not a replacement for the kit's header.
 */

#include "ntdef.h"
#include "wdm_io.h"

#define MDL_ALLOCATED_FIXED_SIZE 0x8
#define MDL_ALLOCATED_MUST_SUCCEED 0x4000
#define MDL_CACHE 0x1f4
#define MDL_DESCRIBES_AWE 0x400
#define MDL_FREE_EXTRA_PTES 0x200
#define MDL_INTERNAL 0x8000
#define MDL_IO_PAGE_READ 0x40
#define MDL_IO_SPACE 0x800
#define MDL_LOCKED_PAGE_TABLES 0x100
#define MDL_MAPPED_TO_SYSTEM_VA 0x1
#define MDL_MAPPING_CAN_FAIL 0x2000
#define MDL_NETWORK_HEADER 0x1000
#define MDL_PAGES_LOCKED 0x2
#define MDL_PAGE_CONTENTS_INVARIANT 0x4000
#define MDL_PARENT_MAPPED_SYSTEM_VA 0x100
#define MDL_PARTIAL 0x10
#define MDL_PARTIAL_HAS_BEEN_MAPPED 0x20
#define MDL_SOURCE_IS_NONPAGED_POOL 0x4
#define MDL_WRITE_OPERATION 0x80
#define MM_COPY_MEMORY_PHYSICAL 0x1
#define MM_COPY_MEMORY_VIRTUAL 0x2

#define MdlMappingNoWrite 0x80000000
#define MdlMappingNoExecute 0x40000000
#define PAGE_SIZE 0x1000
#define PAGE_SHIFT 12L

struct _EPROCESS;
struct _KPROCESS;

typedef struct _KPROCESS *PEPROCESS;
typedef ULONG64 POOL_FLAGS;
typedef ULONG64 PFN_NUMBER, *PPFN_NUMBER;

typedef enum _MEMORY_CACHING_TYPE {
    MmNonCached = 0,
    MmCached = 1,
    MmWriteCombined = 2,
    MmHardwareCoherentCached = 3,
    MmNonCachedUnordered = 4,
    MmUSWCCached = 5,
    MmMaximumCacheType = 6,
    MmNotMapped = -1,
} MEMORY_CACHING_TYPE;

typedef enum _MM_PAGE_PRIORITY {
    LowPagePriority = 0,
    NormalPagePriority = 16,
    HighPagePriority = 32,
} MM_PAGE_PRIORITY;

typedef enum _LOCK_OPERATION {
    IoReadAccess = 0,
    IoWriteAccess = 1,
    IoModifyAccess = 2,
} LOCK_OPERATION;

typedef struct _MDL {
    struct _MDL *Next;
    CSHORT Size;
    CSHORT MdlFlags;
    struct _EPROCESS *Process;
    PVOID MappedSystemVa;
    PVOID StartVa;
    ULONG ByteCount;
    ULONG ByteOffset;
} MDL, *PMDL;

typedef union _MM_COPY_ADDRESS {
    PVOID VirtualAddress;
    PHYSICAL_ADDRESS PhysicalAddress;
} MM_COPY_ADDRESS, *PMMCOPY_ADDRESS;

/* Pool. */
PVOID ExAllocatePool2(POOL_FLAGS Flags, SIZE_T NumberOfBytes, ULONG Tag);
void ExFreePool(PVOID P);
void ExFreePoolWithTag(PVOID P, ULONG Tag);

/* Memory descriptor lists. */
PMDL IoAllocateMdl(PVOID VirtualAddress, ULONG Length, BOOLEAN SecondaryBuffer, BOOLEAN ChargeQuota, PIRP Irp);
void IoFreeMdl(PMDL Mdl);
void IoBuildPartialMdl(PMDL SourceMdl, PMDL TargetMdl, PVOID VirtualAddress, ULONG Length);
void MmBuildMdlForNonPagedPool(PMDL MemoryDescriptorList);
void MmProbeAndLockPages(PMDL MemoryDescriptorList, KPROCESSOR_MODE AccessMode, LOCK_OPERATION Operation);
void MmUnlockPages(PMDL MemoryDescriptorList);
PVOID MmMapLockedPagesSpecifyCache(PMDL MemoryDescriptorList, KPROCESSOR_MODE AccessMode, MEMORY_CACHING_TYPE CacheType, PVOID RequestedAddress, ULONG BugCheckOnFailure, ULONG Priority);
void MmUnmapLockedPages(PVOID BaseAddress, PMDL MemoryDescriptorList);
NTSTATUS MmProtectMdlSystemAddress(PMDL MemoryDescriptorList, ULONG NewProtect);
PMDL MmAllocatePagesForMdlEx(PHYSICAL_ADDRESS LowAddress, PHYSICAL_ADDRESS HighAddress, PHYSICAL_ADDRESS SkipBytes, SIZE_T TotalBytes, MEMORY_CACHING_TYPE CacheType, ULONG Flags);
void MmFreePagesFromMdl(PMDL MemoryDescriptorList);
SIZE_T MmSizeOfMdl(PVOID Base, SIZE_T Length);

/* Mappings and addresses. */
PVOID MmAllocateMappingAddress(SIZE_T NumberOfBytes, ULONG PoolTag);
void MmFreeMappingAddress(PVOID BaseAddress, ULONG PoolTag);
PVOID MmMapLockedPagesWithReservedMapping(PVOID MappingAddress, ULONG PoolTag, PMDL MemoryDescriptorList, MEMORY_CACHING_TYPE CacheType);
void MmUnmapReservedMapping(PVOID BaseAddress, ULONG PoolTag, PMDL MemoryDescriptorList);
NTSTATUS MmCopyMemory(PVOID TargetAddress, MM_COPY_ADDRESS SourceAddress, SIZE_T NumberOfBytes, ULONG Flags, PSIZE_T NumberOfBytesTransferred);
PHYSICAL_ADDRESS MmGetPhysicalAddress(PVOID BaseAddress);
BOOLEAN MmIsAddressValid(PVOID VirtualAddress);
