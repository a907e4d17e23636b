//! Rows of the table: what Driver Verifier looks for in pool, levels, locks, handles, mappings and images.

use kernel_host::bugcheck::BugCheck as Code;

use super::scenario::Scenario;
use super::table::{Case, adapter, device, load, patched};

const VERIFIER: Code = Code::DRIVER_VERIFIER_DETECTED_VIOLATION;

const fn verifier(name: &'static str, rule: &'static str, words: &'static str) -> Case {
    load(name, rule, VERIFIER, words)
}

pub const CASES: &[Case] = &[
    load(
        "event-data-in-paged-pool",
        "An event that is written at DISPATCH_LEVEL has no pageable data.",
        Code::IRQL_NOT_LESS_OR_EQUAL,
        "an event is written at DISPATCH_LEVEL with data in paged pool",
    ),
    load(
        "provider-unregistered-twice",
        "An ETW provider is unregistered once.",
        Code::INVALID_KERNEL_HANDLE,
        "which is no registered provider (any more)",
    ),
    verifier("provider-left-registered", "ETW providers are unregistered before unload.", "1 ETW registration"),
    verifier(
        "paged-pool-freed-at-dispatch",
        "Paged pool is freed at APC_LEVEL or below.",
        "frees paged pool at DISPATCH_LEVEL",
    ),
    load(
        "paged-pool-touched-at-dispatch",
        "Paged pool is touched below DISPATCH_LEVEL only.",
        Code::DRIVER_IRQL_NOT_LESS_OR_EQUAL,
        "at DISPATCH_LEVEL: paged pool with the tag 'badd'",
    ),
    load(
        "paged-code-at-dispatch",
        "Pageable code runs below DISPATCH_LEVEL only.",
        Code::DRIVER_PORTION_MUST_BE_NONPAGED,
        "at DISPATCH_LEVEL: the pageable section PAGE",
    ),
    verifier("quota-pool-in-dpc", "No quota is charged in a DPC.", "ExAllocatePoolWithQuotaTag is called in a DPC"),
    verifier("pool-executable", "Pool is not executable.", "is asked for executable pool"),
    verifier(
        "pool-freed-with-work-item",
        "Memory is not freed with a queued work item in it.",
        "frees memory that holds a work item that is queued",
    ),
    load(
        "pool-freed-with-dpc",
        "Memory is not freed with a queued DPC in it.",
        Code::TIMER_OR_DPC_INVALID,
        "frees memory that holds a DPC that is queued",
    ),
    verifier(
        "pool-freed-with-lookaside-list",
        "A lookaside list is deleted before its memory is freed.",
        "a lookaside list that was not deleted",
    ),
    verifier(
        "pool-freed-with-held-mutex",
        "Memory is not freed with a held mutex in it.",
        "frees memory that holds a mutex that is held",
    ),
    verifier(
        "lookaside-list-initialised-twice",
        "A lookaside list is initialised once.",
        "is initialised again before it is deleted",
    ),
    verifier(
        "lookaside-list-of-tiny-blocks",
        "Blocks of a lookaside list are large enough for a link.",
        "blocks of 4 bytes; 8 is the least",
    ),
    verifier(
        "event-in-paged-pool",
        "What threads synchronise with lies in non-paged memory.",
        "KeInitializeEvent is given a synchronization object in pageable memory",
    ),
    verifier(
        "work-item-in-paged-pool",
        "A work item lies in non-paged memory.",
        "ExQueueWorkItem is given a work item in pageable memory",
    ),
    verifier(
        "fast-mutex-released-at-passive",
        "A fast mutex is released at APC_LEVEL.",
        "ExReleaseFastMutex is called at PASSIVE_LEVEL",
    ),
    verifier(
        "unsafe-fast-mutex-with-apcs",
        "A fast mutex is acquired with APCs masked.",
        "ExAcquireFastMutexUnsafe is called with APCs enabled",
    ),
    verifier(
        "unsafe-fast-mutex-released-with-apcs",
        "A fast mutex is released with APCs masked.",
        "ExReleaseFastMutexUnsafe is called with APCs enabled",
    ),
    verifier("mutexes-out-of-order", "Mutexes are taken in one order.", "mutexes or locks are taken out of order"),
    verifier(
        "fast-mutexes-out-of-order",
        "Fast mutexes are taken in one order.",
        "mutexes or locks are taken out of order",
    ),
    verifier(
        "mutex-and-fast-mutex-out-of-order",
        "Locks of different kinds are taken in one order.",
        "mutexes or locks are taken out of order",
    ),
    verifier(
        "level-lowered-hand-over-hand",
        "Locks that are taken hand over hand give the level back with the last one.",
        "the IRQL is lowered to PASSIVE_LEVEL while 1 spin lock(s) are held",
    ),
    verifier(
        "spin-lock-initialised-while-held",
        "A held spin lock is not initialised.",
        "KeInitializeSpinLock initialises the spin lock",
    ),
    verifier(
        "mutex-initialised-while-held",
        "A held mutex is not initialised.",
        "KeInitializeMutex initialises the mutex",
    ),
    verifier(
        "fast-mutex-initialised-while-held",
        "A held fast mutex is not initialised.",
        "KeInitializeEvent initialises the fast mutex",
    ),
    verifier(
        "event-initialised-while-waited-for",
        "An event that a thread waits for is not initialised.",
        "which a thread waits for",
    ),
    load(
        "thread-ends-with-mutex",
        "A thread releases its mutexes before it ends.",
        Code::THREAD_TERMINATE_HELD_MUTEX,
        "a system thread ends and holds the mutex",
    ),
    verifier(
        "thread-ends-with-fast-mutex",
        "A thread releases its fast mutexes before it ends.",
        "a system thread ends and holds the fast mutex",
    ),
    verifier(
        "critical-region-not-left",
        "A routine leaves the critical regions that it enters.",
        "DriverEntry returned inside 1 critical or guarded regions",
    ),
    verifier(
        "guarded-region-not-left",
        "A routine leaves the guarded regions that it enters.",
        "DriverEntry returned inside 1 critical or guarded regions",
    ),
    verifier(
        "critical-region-left-too-often",
        "A critical region is left once.",
        "KeLeaveCriticalRegion is called without the region having been entered",
    ),
    verifier(
        "guarded-region-left-too-often",
        "A guarded region is left once.",
        "KeLeaveGuardedRegion is called without the region having been entered",
    ),
    load(
        "dpc-returns-in-critical-region",
        "A DPC leaves the masking of APCs as it was.",
        Code::TIMER_OR_DPC_INVALID,
        "a DPC routine returned inside 0 critical or guarded regions and owned mutexes; there were 1",
    ),
    device(
        "irp-returns-in-critical-region",
        "A dispatch routine leaves the masking of APCs as it was.",
        VERIFIER,
        "returned inside 1 critical or guarded regions",
    ),
    verifier(
        "user-mode-wait-on-stack",
        "What lies on a kernel stack is waited for in KernelMode.",
        "KeWaitForSingleObject waits in UserMode",
    ),
    load(
        "dpc-on-absent-processor",
        "A DPC is aimed at a processor that is there.",
        Code::TIMER_OR_DPC_INVALID,
        "KeSetTargetProcessorDpc is given processor 100",
    ),
    verifier("null-handle-referenced", "A NULL handle is not referenced.", "ObReferenceObjectByHandle is given NULL"),
    verifier("closed-handle-referenced", "A closed handle is not referenced.", "ObReferenceObjectByHandle is given 0x"),
    load(
        "registry-key-queried-after-close",
        "A registry key is not used after its close.",
        Code::INVALID_KERNEL_HANDLE,
        "ZwQueryValueKey is given",
    ),
    verifier(
        "user-address-in-kernel-call",
        "No kernel function gets an address of a user program.",
        "KeInitializeEvent is given",
    ),
    verifier(
        "user-address-in-system-service",
        "No Zw function gets an address of a user program from a driver.",
        "ZwQueryValueKey is given",
    ),
    verifier(
        "malformed-name-in-system-service",
        "A counted string is not longer than its buffer.",
        "ZwOpenKey is given a UNICODE_STRING that is malformed",
    ),
    verifier(
        "malformed-attributes-in-system-service",
        "Object attributes say their length.",
        "ZwOpenKey is given an OBJECT_ATTRIBUTES that is malformed",
    ),
    verifier(
        "system-service-in-guarded-region",
        "Zw functions are called with special kernel APCs enabled.",
        "ZwClose is called inside a guarded region",
    ),
    verifier("memcpy-of-overlapping-ranges", "Ranges of a memcpy do not overlap.", "memcpy of 100 bytes"),
    verifier("wmi-registration-left", "Registrations with WMI end before unload.", "WMI registration"),
    verifier(
        "device-deleted-while-wmi-knows-it",
        "A device is taken from WMI before it is deleted.",
        "IoDeleteDevice is given a device that is registered with WMI",
    ),
    verifier(
        "mdl-mapped-executable",
        "Pages are mapped without execute access.",
        "MmMapLockedPagesSpecifyCache is called without MdlMappingNoExecute",
    ),
    verifier(
        "mdl-map-stops-the-machine",
        "A shortage of mappings is an answer, not a bugcheck.",
        "MmMapLockedPagesSpecifyCache is called with BugCheckOnFailure",
    ),
    verifier(
        "mdl-locked-twice",
        "Pages of an MDL are locked once.",
        "MmProbeAndLockPages is given an MDL that is locked",
    ),
    verifier(
        "mdl-of-pool-locked",
        "Pages of an MDL over non-paged pool are not locked.",
        "MmProbeAndLockPages is given an MDL that is locked, built for pool",
    ),
    verifier(
        "mdl-over-paged-pool",
        "MmBuildMdlForNonPagedPool describes no paged pool.",
        "MmBuildMdlForNonPagedPool is given an MDL over paged pool",
    ),
    verifier(
        "mdl-over-mapping",
        "MmBuildMdlForNonPagedPool describes no mapping.",
        "MmBuildMdlForNonPagedPool is given an MDL over the mapping of another MDL",
    ),
    verifier(
        "mdl-over-stack",
        "MmBuildMdlForNonPagedPool describes no stack.",
        "MmBuildMdlForNonPagedPool is given an MDL over a kernel stack",
    ),
    adapter(
        "sent-frame-written",
        "A sender's frame is not written to.",
        Code::ATTEMPTED_WRITE_TO_READONLY_MEMORY,
        "the driver writes",
    ),
    patched(
        "section-writable-and-executable",
        "No section of an image is writable and executable.",
        "is writable and executable",
        Scenario::WritableCode,
    ),
    patched(
        "section-not-aligned-to-a-page",
        "Sections of an image are aligned to a page.",
        "is not aligned to a page",
        Scenario::UnalignedSections,
    ),
    patched(
        "import-table-executable",
        "The import address table cannot be executed.",
        "is in the executable section",
        Scenario::ExecutableImports,
    )
    .numbered(0x2005),
];
