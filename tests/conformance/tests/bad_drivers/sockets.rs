//! Rows of the table: sockets of Winsock Kernel, and the packets that a driver makes for them.

use kernel_host::bugcheck::BugCheck as Code;

use super::table::{Case, load, violation};

pub const fn broken(name: &'static str, rule: &'static str, words: &'static str) -> Case {
    load(name, rule, Code::BUGCODE_NDIS_DRIVER, words).numbered(NETIO)
}

/// The group of the rules of netio in a report.
const NETIO: u64 = 0x110;

pub const CASES: &[Case] = &[
    broken(
        "socket-left-at-deregistration",
        "A client of WSK closes its sockets before it deregisters.",
        "WskDeregister is called while 1 sockets of the client are not closed",
    ),
    broken(
        "socket-used-after-close",
        "No function of a socket is called after its close.",
        "WskGetLocalAddress is given what is no WSK socket (any more)",
    ),
    broken(
        "socket-closed-during-call",
        "A socket is not closed while another of its functions executes.",
        "WskCloseSocket is called while WskGetLocalAddress of the socket has not returned",
    ),
    broken(
        "socket-call-in-completion-routine",
        "No function of WSK is called from a completion routine.",
        "WskGetLocalAddress is called from a completion routine",
    ),
    broken(
        "socket-call-under-lock",
        "No spin lock is held over a call of WSK.",
        "WskGetLocalAddress is called with a spin lock held",
    ),
    broken(
        "socket-after-release",
        "The provider's functions are not called after its release.",
        "WskSocket is called without a captured provider",
    ),
    broken(
        "socket-sends-after-disconnect",
        "Nothing is sent after WskDisconnect.",
        "WskSend is called for a socket after its WskDisconnect",
    ),
    broken(
        "socket-sends-behind-failed-send",
        "Nothing is sent behind a WskSend that has failed.",
        "WskSend is called for a socket after a WskSend that has failed: the peer's stream has a gap",
    ),
    broken(
        "socket-ends-behind-failed-send",
        "No end is sent behind a WskSend that has failed.",
        "WskDisconnect is called for a socket after a WskSend that has failed",
    ),
    broken(
        "socket-buffer-beyond-mdl",
        "A WSK_BUF lies within its MDLs.",
        "WskSend is given a WSK_BUF that goes 1 bytes beyond its MDLs",
    ),
    broken(
        "socket-buffer-not-locked",
        "The MDLs of a WSK_BUF describe locked pages or non-paged pool.",
        "WskSend is given an MDL whose memory is neither locked nor non-paged pool",
    ),
    broken(
        "own-irp-in-use",
        "A driver's own IRP is used once at a time.",
        "WskReceive is given an IRP that is in use: WskReceive has not completed it",
    ),
    broken(
        "own-irp-reused-while-pending",
        "IoReuseIrp is called for completed IRPs.",
        "IoReuseIrp is given an IRP that is in use: WskReceive has not completed it",
    ),
    broken(
        "own-irp-not-prepared",
        "A completed IRP is prepared by IoReuseIrp before its next use.",
        "WskGetLocalAddress is given an IRP that was completed and not prepared by IoReuseIrp since",
    ),
    broken(
        "own-irp-without-routine",
        "A driver's own IRP has a completion routine for every outcome.",
        "WskGetLocalAddress is given an IRP without a completion routine for success, error and cancel",
    ),
    broken(
        "own-irp-routine-returns-success",
        "The completion routine of a driver's own IRP keeps it.",
        "and not STATUS_MORE_PROCESSING_REQUIRED",
    ),
    broken(
        "own-irp-freed-while-pending",
        "An IRP is not freed before its completion.",
        "IoFreeIrp is given an IRP that is in use: WskReceive has not completed it",
    ),
    broken(
        "own-irp-freed-twice",
        "An IRP is freed once.",
        "IoFreeIrp is given what is no IRP of IoAllocateIrp (any more)",
    ),
    violation(
        "own-irp-freed-as-pool",
        "An IRP is not freed as pool.",
        0x105,
        "frees memory that holds an IRP, which IoFreeIrp is for",
    ),
    load("own-irp-left", "IRPs are freed before unload.", Code::DRIVER_VERIFIER_DETECTED_VIOLATION, "1 IRP"),
];
