//! Rows of the table: datagram sockets of Winsock Kernel.

use super::sockets::broken;
use super::table::Case;

pub const CASES: &[Case] = &[
    broken(
        "datagram-sent-before-bind",
        "A datagram socket is bound before it sends.",
        "WskSendTo is called for a socket that is not bound",
    ),
    broken(
        "datagram-received-before-bind",
        "A datagram socket is bound before it receives.",
        "WskReceiveFrom is called for a socket that is not bound",
    ),
    broken(
        "datagram-buffer-beyond-mdl",
        "The WSK_BUF of a datagram lies within its MDLs.",
        "WskSendTo is given a WSK_BUF that goes 1 bytes beyond its MDLs",
    ),
    broken(
        "datagram-buffer-not-locked",
        "A datagram is received into locked pages or non-paged pool.",
        "WskReceiveFrom is given an MDL whose memory is neither locked nor non-paged pool",
    ),
    broken(
        "datagram-address-in-paged-pool",
        "The address of a datagram's sender is written to non-paged memory.",
        "WskReceiveFrom is given an address to write to in paged pool, which is pageable",
    ),
    broken("datagram-sent-at-device-level", "Datagrams are sent at DISPATCH_LEVEL or below.", "WskSendTo is called at"),
    broken(
        "datagram-irp-in-use",
        "A driver's own IRP is used for one datagram at a time.",
        "WskReceiveFrom is given an IRP that is in use: WskReceiveFrom has not completed it",
    ),
    broken(
        "datagram-socket-closed-during-call",
        "A datagram socket is not closed while another of its functions executes.",
        "WskCloseSocket is called while WskGetLocalAddress of the socket has not returned",
    ),
    broken(
        "datagram-socket-used-after-close",
        "No function of a datagram socket is called after its close.",
        "WskSendTo is given what is no WSK socket (any more)",
    ),
    broken(
        "datagram-socket-left",
        "A client of WSK closes its datagram sockets before it deregisters.",
        "WskDeregister is called while 1 sockets of the client are not closed",
    ),
];
