//! The table: each rule, how the host ends a driver that breaks it, and the scenario in which it does.

use std::fmt::Write as _;

use kernel_host::bugcheck::BugCheck;

use super::scenario::Scenario;

pub struct Case {
    /// The service name of the drivers, without `.bad` or `.good`.
    pub name: &'static str,
    /// The rule, in a sentence.
    pub rule: &'static str,
    /// `None`: refused with an error and no bugcheck, by Windows' own answer or by a consumer that checks the contract.
    pub bugcheck: Option<BugCheck>,
    /// The sub-code that the report gives as the first parameter, where the table names it.
    pub sub_code: Option<u64>,
    /// What the report or the error says.
    pub words: &'static str,
    pub scenario: Scenario,
}

pub const fn load(name: &'static str, rule: &'static str, code: BugCheck, words: &'static str) -> Case {
    Case { name, rule, bugcheck: Some(code), sub_code: None, words, scenario: Scenario::Load }
}

pub const fn adapter(name: &'static str, rule: &'static str, code: BugCheck, words: &'static str) -> Case {
    Case { name, rule, bugcheck: Some(code), sub_code: None, words, scenario: Scenario::Adapter }
}

const fn rare_frames(name: &'static str, rule: &'static str, code: BugCheck, words: &'static str) -> Case {
    Case { scenario: Scenario::RareFrames, ..adapter(name, rule, code, words) }
}

pub const fn device(name: &'static str, rule: &'static str, code: BugCheck, words: &'static str) -> Case {
    Case { name, rule, bugcheck: Some(code), sub_code: None, words, scenario: Scenario::Device }
}

/// A violation that Driver Verifier gives a number of its own, or the host one from 0x1001 up.
pub const fn violation(name: &'static str, rule: &'static str, sub_code: u64, words: &'static str) -> Case {
    load(name, rule, BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, words).numbered(sub_code)
}

impl Case {
    /// The report has this sub-code.
    pub const fn numbered(self, sub_code: u64) -> Self {
        Self { sub_code: Some(sub_code), ..self }
    }
}

const fn refused(name: &'static str, rule: &'static str, words: &'static str, scenario: Scenario) -> Case {
    Case { name, rule, bugcheck: None, sub_code: None, words, scenario }
}

/// A fault of the image itself, which the scenario puts into a copy of it.
pub const fn patched(name: &'static str, rule: &'static str, words: &'static str, scenario: Scenario) -> Case {
    Case { name, rule, bugcheck: Some(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION), sub_code: None, words, scenario }
}

/// Every row.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter().chain(super::verifier_kernel::CASES).chain(super::sockets::CASES).chain(super::datagrams::CASES)
}

use BugCheck as Code;

const CASES: &[Case] = &[
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
        "A spin lock without a holder is not released.",
        Code::SPIN_LOCK_NOT_OWNED,
        "a spin lock without an owner is released",
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
        "spin-locks-out-of-order",
        "Spin locks are taken in one order.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "spin locks are taken out of order",
    ),
    load(
        "spin-locks-in-a-circle",
        "Spin locks are taken in one order, over any number of them.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "spin locks are taken out of order",
    ),
    load(
        "spin-lock-held-over-wait",
        "No spin lock is held over a wait.",
        Code::IRQL_NOT_LESS_OR_EQUAL,
        "with 1 spin lock(s) held; a wait needs",
    ),
    load(
        "spin-lock-never-released",
        "A spin lock is released without the help of the thread that waits for it.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "a spin lock is not released, however long its holder runs",
    ),
    load(
        "spin-lock-freed-while-held",
        "Memory is not freed with a held spin lock in it.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "frees memory that holds a spin lock that is held",
    ),
    load("dpc-too-long", "A DPC keeps to its budget.", Code::DPC_WATCHDOG_VIOLATION, "a DPC has 1000 ms at the most"),
    load("dpc-without-end", "A DPC comes to an end.", Code::DPC_WATCHDOG_VIOLATION, "and has not returned"),
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
        "pool-freed-at-device-level",
        "Pool is freed at DISPATCH_LEVEL or below.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "ExFreePoolWithTag is called at a device level",
    ),
    load(
        "pool-freed-with-timer",
        "Memory is not freed with a set timer in it.",
        Code::TIMER_OR_DPC_INVALID,
        "frees memory that holds a timer that is set",
    ),
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
    violation(
        "mdl-freed-while-mapped",
        "An MDL is unmapped before it is freed.",
        0xB8,
        "freed while its pages are mapped",
    ),
    violation("mdl-unmapped-twice", "A mapping is unmapped once.", 0x1010, "at which this MDL is not mapped"),
    violation("mdl-mapped-unlocked", "Only locked pages are mapped.", 0xB3, "whose pages are not locked"),
    violation(
        "mdl-of-pool-mapped",
        "An MDL of non-paged pool has its mapping already.",
        0xB2,
        "over non-paged pool, which is mapped already",
    ),
    load(
        "mdl-write-to-read-only",
        "A mapping made without write access is not written to.",
        Code::ATTEMPTED_WRITE_TO_READONLY_MEMORY,
        "inside a live MDL mapping",
    ),
    load(
        "mdl-access-after-unlock",
        "A mapping is not used after MmUnlockPages.",
        Code::PAGE_FAULT_IN_NONPAGED_AREA,
        "an MDL mapping that was unmapped",
    ),
    violation(
        "mdl-mapped-after-unlock",
        "Pages are not mapped after they are unlocked.",
        0xB3,
        "whose pages are not locked",
    ),
    load(
        "mdl-unlocked-while-mapped",
        "Pages stay locked while an MDL maps them.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "pages are unlocked while an MDL still maps them",
    ),
    violation(
        "mdl-unlocked-twice",
        "Pages are unlocked once.",
        0x7C,
        "MmUnlockPages is called for an MDL whose pages are not locked",
    ),
    violation(
        "mdl-freed-while-locked",
        "Pages are unlocked before their MDL is freed.",
        0x1040,
        "freed while its flags say that it holds its pages locked",
    ),
    violation(
        "mdl-freed-marked-locked",
        "A lock flag that was set by hand is cleared before the MDL is freed.",
        0x1040,
        "freed while its flags say that it holds its pages locked",
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
    load(
        "threads-that-starve-others",
        "Threads of a realtime priority wait now and then.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "is ready and gets no processor for 1 s",
    ),
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
    adapter(
        "completion-under-lock",
        "No consumer callback comes with a spin lock held.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "with a spin lock of the provider held",
    ),
    adapter(
        "notification-under-lock",
        "No notification comes with a spin lock held.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "with a spin lock of the provider held",
    ),
    adapter(
        "notification-at-device-level",
        "A notification comes at DISPATCH_LEVEL or below.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "NDK_FN_CQ_NOTIFICATION_CALLBACK is called at a device level",
    ),
    refused(
        "notifications-at-once",
        "Notifications of one queue come one at a time.",
        "two notifications of one queue at a time",
        Scenario::Adapter,
    ),
    refused(
        "notification-after-close",
        "No notification comes after the close of its queue completed.",
        "a notification came after its queue was closed",
        Scenario::Adapter,
    ),
    adapter(
        "send-kept",
        "A pause completes with no send outstanding.",
        Code::BUGCODE_NDIS_DRIVER,
        "sent NET_BUFFER_LISTs are not completed",
    ),
    adapter(
        "send-completed-twice",
        "A sent list is completed once.",
        Code::BUGCODE_NDIS_DRIVER,
        "is no outstanding send of this adapter",
    ),
    adapter(
        "send-completed-pending",
        "A sent list is completed with a final status.",
        Code::BUGCODE_NDIS_DRIVER,
        "NBL.Status is NDIS_STATUS_PENDING",
    ),
    adapter(
        "send-completed-under-lock",
        "Sent lists are completed with no spin lock held.",
        Code::BUGCODE_NDIS_DRIVER,
        "NdisMSendNetBufferListsComplete is called with 1 spin lock",
    ),
    adapter(
        "send-completed-level-untold",
        "Sends completed at DISPATCH_LEVEL say so where the level is known.",
        Code::BUGCODE_NDIS_DRIVER,
        "NdisMSendNetBufferListsComplete: the level is known to be DISPATCH_LEVEL",
    ),
    adapter(
        "send-touched-after-completion",
        "A sent list is not touched after its completion.",
        Code::PAGE_FAULT_IN_FREED_SPECIAL_POOL,
        "freed pool block",
    ),
    adapter(
        "senders-list-indicated",
        "A sender's list is not indicated as received.",
        Code::BUGCODE_NDIS_DRIVER,
        "a sender's list is never indicated",
    ),
    adapter(
        "receive-short",
        "A received frame has an Ethernet header.",
        Code::BUGCODE_NDIS_DRIVER,
        "does not hold an Ethernet header",
    ),
    adapter(
        "receive-without-source",
        "A received list names its adapter.",
        Code::BUGCODE_NDIS_DRIVER,
        "not the receiving adapter",
    ),
    adapter(
        "receive-miscounted",
        "The number of received lists is right.",
        Code::BUGCODE_NDIS_DRIVER,
        "the chain has 1 lists, the count says 2",
    ),
    adapter(
        "receive-indicated-twice",
        "A received list is not indicated again before it is back.",
        Code::BUGCODE_NDIS_DRIVER,
        "is indicated again before it came back",
    ),
    adapter(
        "receive-under-lock",
        "Frames are indicated with no spin lock held.",
        Code::BUGCODE_NDIS_DRIVER,
        "NdisMIndicateReceiveNetBufferLists is called with 1 spin lock",
    ),
    adapter(
        "receive-freed-early",
        "A received list is not freed before it is back.",
        Code::BUGCODE_NDIS_DRIVER,
        "the list is indicated and not returned yet",
    ),
    adapter(
        "receive-level-untold",
        "Frames indicated at DISPATCH_LEVEL say so where the level is known.",
        Code::BUGCODE_NDIS_DRIVER,
        "NdisMIndicateReceiveNetBufferLists: the level is known to be DISPATCH_LEVEL",
    ),
    adapter(
        "receive-level-wrong",
        "Frames indicated below DISPATCH_LEVEL do not claim that level.",
        Code::BUGCODE_NDIS_DRIVER,
        "NdisMIndicateReceiveNetBufferLists: the DISPATCH_LEVEL flag is set below DISPATCH_LEVEL",
    ),
    adapter(
        "receive-while-halting",
        "Nothing is received on an adapter that is not running.",
        Code::BUGCODE_NDIS_DRIVER,
        "the adapter is in state Halting",
    ),
    adapter("pause-fails", "MiniportPause does not fail.", Code::BUGCODE_NDIS_DRIVER, "MiniportPause returned"),
    adapter(
        "pause-never-completed",
        "A pending pause is completed in time.",
        Code::BUGCODE_NDIS_DRIVER,
        "NdisMPauseComplete was not called within",
    ),
    adapter(
        "pause-completed-twice",
        "A pause is completed once.",
        Code::BUGCODE_NDIS_DRIVER,
        "NdisMPauseComplete is called twice",
    ),
    adapter(
        "pause-completed-and-returned",
        "A pause ends by completion or by its return value.",
        Code::BUGCODE_NDIS_DRIVER,
        "NdisMPauseComplete is called although the handler did not return pending",
    ),
    adapter(
        "restart-completed-unasked",
        "A restart that did not pend is not completed.",
        Code::BUGCODE_NDIS_DRIVER,
        "NdisMRestartComplete is called although the handler did not return pending",
    ),
    adapter(
        "restart-never-completed",
        "A pending restart is completed in time.",
        Code::BUGCODE_NDIS_DRIVER,
        "NdisMRestartComplete was not called within",
    ),
    adapter(
        "status-type",
        "A status indication has its object type.",
        Code::BUGCODE_NDIS_DRIVER,
        "NDIS_STATUS_INDICATION: Header.Type",
    ),
    adapter(
        "status-without-source",
        "A status indication names its adapter.",
        Code::BUGCODE_NDIS_DRIVER,
        "SourceHandle is not the miniport adapter handle",
    ),
    adapter(
        "link-state-header",
        "A link state has the size of its revision.",
        Code::BUGCODE_NDIS_DRIVER,
        "NDIS_LINK_STATE: Header.Size",
    ),
    adapter(
        "link-state-short",
        "A link state is given whole.",
        Code::BUGCODE_NDIS_DRIVER,
        "is shorter than NDIS_LINK_STATE",
    ),
    adapter(
        "oid-never-completed",
        "A pending OID request is completed in time.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "was not completed within",
    )
    .numbered(0x92003),
    adapter(
        "oid-completed-twice",
        "An OID request is completed once.",
        Code::BUGCODE_NDIS_DRIVER,
        "is completed twice",
    ),
    adapter(
        "oid-completed-and-returned",
        "An OID request ends by completion or by its return value.",
        Code::BUGCODE_NDIS_DRIVER,
        "and was completed as well",
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
    device(
        "irp-completed-pending",
        "An IRP is completed with a final status.",
        Code::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
        "completed with STATUS_PENDING",
    ),
    device(
        "irp-completed-under-lock",
        "An IRP is completed with no spin lock held.",
        Code::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
        "completed with a spin lock held",
    ),
    device(
        "irp-completed-cancelable",
        "An IRP is completed without a cancel routine.",
        Code::CANCEL_STATE_IN_COMPLETED_IRP,
        "completed with its cancel routine still set",
    ),
    device(
        "irp-output-unwritten",
        "Every returned byte was written.",
        Code::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
        "was never written: pool contents are disclosed",
    ),
    device(
        "irp-survives-its-thread",
        "The IRPs of a thread that ends are cancelled and completed.",
        Code::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
        "its thread has ended and cancelled it",
    ),
    device(
        "cancel-routine-keeps-lock",
        "A cancel routine gives the cancel spin lock back.",
        Code::IRQL_UNEXPECTED_VALUE,
        "a cancel routine returned at DISPATCH_LEVEL",
    ),
    device(
        "irp-status-unwritten",
        "IoStatus.Status is written before an IRP is completed.",
        Code::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
        "completed with 0xffffffff, which is no status",
    ),
    device(
        "irp-status-meaningless",
        "An IRP is completed with a status that there is.",
        Code::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
        "completed with 0xdeadbeef, which is no status",
    ),
    device(
        "irp-cleanup-fails",
        "IRP_MJ_CLEANUP does not fail.",
        Code::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
        "IRP_MJ_CLEANUP failed with 0xc0000001",
    ),
    device(
        "irp-close-fails",
        "IRP_MJ_CLOSE does not fail.",
        Code::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
        "IRP_MJ_CLOSE failed with 0xc0000001",
    ),
    device(
        "irp-marked-after-unlock",
        "A queued IRP is marked pending before the queue's lock is released.",
        Code::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
        "in a queue whose lock is released, and not marked pending",
    ),
    device(
        "irp-marked-after-interlocked-queue",
        "An IRP is marked pending before an interlocked function queues it.",
        Code::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
        "in a queue whose lock is released, and not marked pending",
    ),
    device(
        "irp-cancel-not-read",
        "Irp->Cancel is read after the cancel routine was set.",
        Code::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
        "Irp->Cancel is not read after that",
    ),
    device(
        "irp-input-written",
        "A buffer that is lent for reading is not written.",
        Code::ATTEMPTED_WRITE_TO_READONLY_MEMORY,
        "inside a mapping of a buffer that is lent for reading",
    ),
    load(
        "device-flags-contradict",
        "DO_BUFFERED_IO and DO_DIRECT_IO exclude each other.",
        Code::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
        "DO_BUFFERED_IO and DO_DIRECT_IO are both set",
    ),
    load(
        "dpc-queued-at-unload",
        "DPCs have run before unload.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "queued to processor 1",
    ),
    load(
        "work-item-queued-at-unload",
        "Executive work items have ended before unload.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "1 executive work item queued or running",
    ),
    violation(
        "stall-too-long",
        "A stall is no longer than 50 microseconds.",
        0x101E,
        "KeStallExecutionProcessor for 51",
    ),
    violation("text-without-end", "A formatted text has its terminator.", 0x1041, "_snprintf fills its 4 characters"),
    rare_frames(
        "send-too-late",
        "A sent list is completed within 30 seconds.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "a sent NET_BUFFER_LIST was not completed within 30s",
    )
    .numbered(0x9200D),
    rare_frames(
        "sends-stand-still",
        "While sends are pending, one is completed every 22 seconds.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "and none was completed for 22s",
    )
    .numbered(0x9200F),
    adapter(
        "oid-too-late",
        "An OID request is completed within 12 seconds.",
        Code::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "the request was not completed within 12s",
    )
    .numbered(0x92003),
    adapter(
        "level-asked-in-send",
        "A handler that gets its level as a flag does not ask for it.",
        Code::BUGCODE_NDIS_DRIVER,
        "KeGetCurrentIrql is called in MiniportSendNetBufferLists",
    ),
    adapter(
        "periodic-timer-cancelled-raised",
        "A periodic timer is cancelled at PASSIVE_LEVEL.",
        Code::BUGCODE_NDIS_DRIVER,
        "a periodic timer is cancelled above PASSIVE_LEVEL",
    ),
    refused(
        "completion-after-success",
        "No completion comes after a call that did not pend.",
        "the completion of NDK_FN_CREATE_PD came",
        Scenario::Adapter,
    ),
    refused("completion-twice", "A completion comes once.", "came 2 times", Scenario::Adapter),
    refused(
        "completion-never",
        "A call that pended is completed.",
        "NDK_FN_CREATE_PD returned STATUS_PENDING and its completion never came",
        Scenario::Adapter,
    ),
    refused(
        "dispatch-overwritten",
        "Dispatch of an object is not touched after it was handed out.",
        "NDK_CQ: the provider wrote Dispatch",
        Scenario::Adapter,
    ),
    refused(
        "disconnect-twice",
        "The end of a connection is indicated once.",
        "2 disconnect events for one connection",
        Scenario::Adapter,
    ),
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

/// `xtask/lists/bad-drivers.md`.
pub fn as_markdown() -> String {
    let mut text = String::from(
        "# Bad drivers\n\n\
         Each row is a driver in `tests/bad-drivers` that breaks one rule of Windows' kernel, NDIS or NDK, and a good twin that\n\
         differs from it by one call. `cargo test -p conformance --test bad_drivers` runs both in the kernel host: the bad one must\n\
         end in the bugcheck of its row, with the words that name the rule; the good one must pass the same scenario and\n\
         leave nothing behind. The table is written by a run in which every row passed (`SOFTNDK_BLESS=1`), and the test fails\n\
         when the table is not that of its list.\n\n\
         | driver | rule | bugcheck | bad one | good twin |\n|---|---|---|---|---|\n",
    );
    for case in cases() {
        let end = match case.bugcheck {
            Some(code) => {
                let sub_code = case.sub_code.map(|number| format!(", {number:#X}")).unwrap_or_default();
                format!("{:#X} {}{sub_code}", code as u32, code.name())
            }
            None => format!("none; refused: \"{}\"", case.words),
        };
        let _ = writeln!(text, "| {} | {} | {end} | caught | passes |", case.name, case.rule);
    }
    let _ = writeln!(
        text,
        "\n{0} rules, {1} drivers: {0} of {0} caught, {0} of {0} good twins pass.",
        cases().count(),
        cases().count() * 2
    );
    text
}
