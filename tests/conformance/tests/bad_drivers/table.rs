//! The table: each rule, how the host ends a driver that breaks it, and the scenario in which it does.

use std::fmt::Write as _;

use kernel_host::bugcheck::BugCheck;

use crate::scenario::Scenario;

pub struct Case {
    /// The service name of the drivers, without `.bad` or `.good`.
    pub name: &'static str,
    /// The rule, in a sentence.
    pub rule: &'static str,
    /// `None`: refused with an error and no bugcheck, by Windows' own answer or by a consumer that checks the contract.
    pub bugcheck: Option<BugCheck>,
    /// What the report or the error says.
    pub words: &'static str,
    pub scenario: Scenario,
}

const fn load(name: &'static str, rule: &'static str, code: BugCheck, words: &'static str) -> Case {
    Case { name, rule, bugcheck: Some(code), words, scenario: Scenario::Load }
}

const fn adapter(name: &'static str, rule: &'static str, code: BugCheck, words: &'static str) -> Case {
    Case { name, rule, bugcheck: Some(code), words, scenario: Scenario::Adapter }
}

const fn device(name: &'static str, rule: &'static str, code: BugCheck, words: &'static str) -> Case {
    Case { name, rule, bugcheck: Some(code), words, scenario: Scenario::Device }
}

const fn refused(name: &'static str, rule: &'static str, words: &'static str, scenario: Scenario) -> Case {
    Case { name, rule, bugcheck: None, words, scenario }
}

use BugCheck as Code;

pub const CASES: &[Case] = &[
    load("wait-at-dispatch", "No wait at DISPATCH_LEVEL.", Code::IRQL_NOT_LESS_OR_EQUAL, "a wait needs <= APC_LEVEL"),
    load("delay-at-dispatch", "No delay at DISPATCH_LEVEL.", Code::IRQL_NOT_LESS_OR_EQUAL, "a wait needs <= APC_LEVEL"),
    load(
        "passive-call-at-dispatch",
        "A PASSIVE_LEVEL function is not called above it.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "KeFlushQueuedDpcs is called at DISPATCH_LEVEL",
    ),
    load(
        "pool-at-device-level",
        "Pool is allocated at DISPATCH_LEVEL or below.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "ExAllocatePool2 is called at a device level",
    ),
    load(
        "driver-entry-returns-raised",
        "A routine returns at the level at which it was called.",
        Code::IRQL_UNEXPECTED_VALUE,
        "DriverEntry was entered at PASSIVE_LEVEL and returned at DISPATCH_LEVEL",
    ),
    load(
        "lower-above-current",
        "KeLowerIrql does not raise.",
        Code::IRQL_NOT_LESS_OR_EQUAL,
        "KeLowerIrql called to go",
    ),
    load(
        "raise-below-current",
        "KeRaiseIrql does not lower.",
        Code::IRQL_NOT_GREATER_OR_EQUAL,
        "KeRaiseIrql called to go",
    ),
    load(
        "spin-lock-recursion",
        "A spin lock is not acquired by its holder.",
        Code::SPIN_LOCK_ALREADY_OWNED,
        "acquired by the thread that holds it",
    ),
    load(
        "spin-lock-released-twice",
        "A spin lock that nobody holds is not released.",
        Code::SPIN_LOCK_NOT_OWNED,
        "released that nobody holds",
    ),
    load(
        "spin-lock-released-by-another",
        "A spin lock is released by its holder.",
        Code::SPIN_LOCK_NOT_OWNED,
        "released by a thread that does not hold it",
    ),
    load(
        "spin-lock-released-below-dispatch",
        "A spin lock is held at DISPATCH_LEVEL or above until its release.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "while 1 spin lock(s) are held",
    ),
    load(
        "spin-lock-acquired-below-dispatch",
        "The AtDpcLevel form is called at DISPATCH_LEVEL or above.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "KeAcquireSpinLockAtDpcLevel is called at PASSIVE_LEVEL",
    ),
    load(
        "spin-lock-held-on-return",
        "A DPC releases what it acquired.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "a DPC routine returned with 1 spin locks held",
    ),
    load(
        "dpc-returns-raised",
        "A DPC returns at DISPATCH_LEVEL.",
        Code::IRQL_UNEXPECTED_VALUE,
        "a DPC routine was entered at DISPATCH_LEVEL and returned at a device level",
    ),
    load("dpc-waits", "A DPC does not wait.", Code::ATTEMPTED_SWITCH_FROM_DPC, "a wait needs <= APC_LEVEL"),
    load("double-free", "A pool block is freed once.", Code::BAD_POOL_CALLER, "a second time"),
    load("wrong-tag", "A pool block is freed with its tag.", Code::BAD_POOL_CALLER, "is given the tag 'evil'"),
    load("tag-zero", "A pool tag is not zero.", Code::BAD_POOL_CALLER, "with tag 0"),
    load("size-zero", "A pool block has a size.", Code::BAD_POOL_CALLER, "of 0 bytes"),
    load(
        "free-inside-block",
        "A pool block is freed by its own address.",
        Code::BAD_POOL_CALLER,
        "which lies inside the block",
    ),
    load("use-after-free", "Freed pool is not touched.", Code::PAGE_FAULT_IN_FREED_SPECIAL_POOL, "freed pool block"),
    load(
        "overrun-by-one",
        "Nothing is written past a block, not even into its rounding.",
        Code::BAD_POOL_HEADER,
        "was overwritten; seen at its free",
    ),
    load(
        "overrun-by-sixteen",
        "Nothing is written past a block.",
        Code::PAGE_FAULT_BEYOND_END_OF_ALLOCATION,
        "16 bytes behind the end of the pool block",
    ),
    load(
        "underrun",
        "Nothing is written before a block.",
        Code::PAGE_FAULT_IN_NONPAGED_AREA,
        "1 bytes in front of the pool block",
    ),
    load(
        "pool-leak",
        "Pool is freed before unload.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "1 pool block with tag 'badd', 100 bytes",
    ),
    load(
        "wild-read",
        "Nothing is read through a wild pointer.",
        Code::PAGE_FAULT_IN_NONPAGED_AREA,
        "the driver reads 0x10",
    ),
    load(
        "mdl-access-after-unmap",
        "A mapping is not used after MmUnmapLockedPages.",
        Code::PAGE_FAULT_IN_NONPAGED_AREA,
        "an MDL mapping that was unmapped",
    ),
    load(
        "mdl-freed-while-mapped",
        "An MDL is unmapped before it is freed.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "freed while its pages are mapped",
    ),
    load(
        "mdl-unmapped-twice",
        "A mapping is unmapped once.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "at which this MDL is not mapped",
    ),
    load(
        "mdl-mapped-unlocked",
        "Only locked pages are mapped.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "whose pages are not locked",
    ),
    load(
        "mdl-of-pool-mapped",
        "An MDL of non-paged pool has its mapping already.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "over non-paged pool, which is mapped already",
    ),
    load(
        "mdl-write-to-read-only",
        "A mapping made without write access is not written to.",
        Code::ATTEMPTED_WRITE_TO_READONLY_MEMORY,
        "inside a live MDL mapping",
    ),
    load("mdl-leak", "MDLs are freed before unload.", Code::DRIVER_VERIFIER_DETECTED_VIOLATION, "1 MDL "),
    load(
        "timer-running-at-unload",
        "Timers are cancelled before unload.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "1 set timer",
    ),
    load(
        "thread-running-at-unload",
        "Threads have ended before unload.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "1 system thread still running",
    ),
    load(
        "handle-leak",
        "Handles are closed before unload.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "1 open handle to a thread",
    ),
    load("handle-closed-twice", "A handle is closed once.", Code::INVALID_KERNEL_HANDLE, "which is no open handle"),
    load(
        "rundown-released-too-often",
        "Rundown protection is released as often as acquired.",
        Code::REFERENCE_BY_POINTER,
        "more often than it was acquired",
    ),
    load("stack-overflow", "24 KiB of kernel stack must do.", Code::UNEXPECTED_KERNEL_MODE_TRAP, "a stack overflow"),
    refused(
        "characteristics-type",
        "Miniport characteristics have their object type.",
        "DriverEntry returned 0xC0010005",
        Scenario::Adapter,
    ),
    refused(
        "characteristics-revision",
        "Miniport characteristics have a known revision.",
        "DriverEntry returned 0xC0010005",
        Scenario::Adapter,
    ),
    refused(
        "characteristics-size",
        "Miniport characteristics have the size of their revision.",
        "DriverEntry returned 0xC0010005",
        Scenario::Adapter,
    ),
    refused(
        "halt-handler-missing",
        "Mandatory handlers are there.",
        "DriverEntry returned 0xC0010005",
        Scenario::Adapter,
    ),
    adapter(
        "direct-oid-pair-missing",
        "An NDK miniport has the direct OID handlers.",
        Code::BUGCODE_NDIS_DRIVER,
        "without direct OID handlers",
    ),
    adapter(
        "provider-type",
        "NDK provider characteristics have their object type.",
        Code::BUGCODE_NDIS_DRIVER,
        "0xb3 is no type of optional handlers",
    ),
    adapter(
        "registration-type",
        "Registration attributes have their object type.",
        Code::BUGCODE_NDIS_DRIVER,
        "0x80 is no type of an attribute block",
    ),
    adapter(
        "registration-size",
        "Registration attributes have the size of their revision.",
        Code::BUGCODE_NDIS_DRIVER,
        "Header.Size is 0x8",
    ),
    adapter(
        "general-attributes-first",
        "Registration attributes are set before all others.",
        Code::BUGCODE_NDIS_DRIVER,
        "before the registration attributes",
    ),
    adapter(
        "general-attributes-missing",
        "InitializeEx succeeds only with general attributes set.",
        Code::BUGCODE_NDIS_DRIVER,
        "without setting general attributes",
    ),
    adapter(
        "power-capabilities-missing",
        "General attributes point at power management capabilities.",
        Code::BUGCODE_NDIS_DRIVER,
        "PowerManagementCapabilitiesEx is NULL",
    ),
    adapter(
        "multicast-address",
        "A station address is not a multicast address.",
        Code::BUGCODE_NDIS_DRIVER,
        "is a multicast address",
    ),
    adapter(
        "mandatory-oid-missing",
        "Every mandatory OID is listed.",
        Code::BUGCODE_NDIS_DRIVER,
        "lacks the mandatory OID_GEN_XMIT_OK",
    ),
    adapter(
        "ndk-oid-missing",
        "Every OID of an NDK provider is listed.",
        Code::BUGCODE_NDIS_DRIVER,
        "lacks OID_NDK_STATISTICS",
    ),
    adapter(
        "ndk-attributes-size",
        "NDK attributes have the size of their revision.",
        Code::BUGCODE_NDIS_DRIVER,
        "Header.Size is 0x4",
    ),
    adapter(
        "ndk-info-missing",
        "NDK capabilities point at adapter information.",
        Code::BUGCODE_NDIS_DRIVER,
        "NdkInfo is NULL",
    ),
    adapter(
        "fast-register-pages-too-few",
        "A fast registration takes at least 16 pages.",
        Code::BUGCODE_NDIS_DRIVER,
        "FRMRPageCount is 15",
    ),
    adapter(
        "set-state-pends",
        "OID_NDK_SET_STATE does not pend.",
        Code::BUGCODE_NDIS_DRIVER,
        "returned NDIS_STATUS_PENDING",
    ),
    adapter(
        "event-in-oid",
        "NdisMNetPnPEvent is not called in an OID handler.",
        Code::BUGCODE_NDIS_DRIVER,
        "called inside an OID handler",
    ),
    adapter(
        "oid-overrun",
        "BytesWritten is no more than the buffer.",
        Code::BUGCODE_NDIS_DRIVER,
        "bytes done, the buffer has",
    ),
    adapter(
        "oid-returns-raised",
        "A miniport handler returns at the level at which it was called.",
        Code::IRQL_UNEXPECTED_VALUE,
        "MiniportOidRequest was entered at PASSIVE_LEVEL and returned at DISPATCH_LEVEL",
    ),
    adapter("work-item-left", "HaltEx frees work items.", Code::BUGCODE_NDIS_DRIVER, "1 work item"),
    adapter("buffer-pool-left", "HaltEx frees buffer pools.", Code::BUGCODE_NDIS_DRIVER, "1 NET_BUFFER_LIST pool"),
    adapter(
        "configuration-left",
        "Configuration handles are closed.",
        Code::BUGCODE_NDIS_DRIVER,
        "1 configuration handle",
    ),
    adapter(
        "null-slot",
        "Every slot of a dispatch table is filled.",
        Code::BUGCODE_NDIS_DRIVER,
        "slot 2 of the Adapter dispatch table is NULL",
    ),
    adapter(
        "wrong-object-type",
        "An NDK object names its type.",
        Code::BUGCODE_NDIS_DRIVER,
        "Header.ObjectType of the Adapter object",
    ),
    adapter(
        "reserved-not-zero",
        "The reserved block of a new NDK object is zero.",
        Code::BUGCODE_NDIS_DRIVER,
        "Header.NdkReserved of the Adapter object is not zero",
    ),
    adapter(
        "table-on-heap",
        "Dispatch tables are constant data of the image.",
        Code::BUGCODE_NDIS_DRIVER,
        "not in read-only memory",
    ),
    adapter(
        "completion-in-call",
        "No consumer callback runs under a dispatch function.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "in the call stack of a dispatch function",
    ),
    adapter(
        "device-left",
        "The control device is deregistered before unload.",
        Code::BUGCODE_NDIS_DRIVER,
        "1 control device",
    ),
    device(
        "irp-completed-twice",
        "An IRP is completed once.",
        Code::MULTIPLE_IRP_COMPLETE_REQUESTS,
        "completed before, or never was one",
    ),
    device(
        "irp-never-completed",
        "A file's IRPs are completed at its cleanup.",
        Code::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
        "still not completed",
    ),
    device(
        "irp-information-too-large",
        "IoStatus.Information is no more than the output buffer.",
        Code::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
        "Information 17 is above the output length 16",
    ),
    device(
        "irp-pending-not-marked",
        "STATUS_PENDING goes with IoMarkIrpPending.",
        Code::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
        "STATUS_PENDING without IoMarkIrpPending",
    ),
    device(
        "irp-marked-not-pending",
        "IoMarkIrpPending goes with STATUS_PENDING.",
        Code::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
        "marked pending, but",
    ),
    device(
        "irp-status-differs",
        "A dispatch routine returns the status with which it completed the IRP.",
        Code::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
        "completed with 0x0, but",
    ),
    device(
        "irp-completed-raised",
        "An IRP is completed at DISPATCH_LEVEL or below.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "IofCompleteRequest is called at a device level",
    ),
    refused(
        "completion-after-success",
        "No completion comes after a call that did not pend.",
        "the completion of NDK_FN_CREATE_PD came",
        Scenario::Adapter,
    ),
    refused("completion-twice", "A completion comes once.", "came 2 times", Scenario::Adapter),
    refused("close-fails", "A close does not fail.", "NDK_PD failed with", Scenario::Adapter),
    refused(
        "unknown-import",
        "Every import exists; the error names the one that does not.",
        "KeCancelTimes",
        Scenario::UnknownImport,
    ),
    refused(
        "missing-keyword",
        "Without a mandatory INF keyword InitializeEx is never called.",
        "*MediaType",
        Scenario::MissingKeyword,
    ),
];

/// `docs/bad-drivers.md`.
pub fn as_markdown() -> String {
    let mut text = String::from(
        "# Bad drivers\n\n\
         Each row is a driver in `tests/bad-drivers` that breaks one rule of Windows' kernel, NDIS or NDK, and a good twin that\n\
         differs from it by one call. `cargo test -p conformance --test bad_drivers` runs both in the kernel host: the bad one must\n\
         end in the bugcheck of its row, the good one must live through the same scenario and leave nothing behind. The table is\n\
         written from the list that the test runs (`SOFTNDK_BLESS=1` rewrites it), so a row that is here is a row that passes.\n\n\
         | driver | rule | ends in |\n|---|---|---|\n",
    );
    for case in CASES {
        let end = match case.bugcheck {
            Some(code) => format!("{:#X} {}", code as u32, code.name()),
            None => format!("refused: \"{}\"", case.words),
        };
        let _ = writeln!(text, "| {} | {} | {end} |", case.name, case.rule);
    }
    let _ = writeln!(text, "\n{} rules, {} drivers.", CASES.len(), CASES.len() * 2);
    text
}
