//! Bytes: every operation with every length that is known to cause faults, over every way to open memory, in one scatter/gather element
//! and in many, on frames that lie next to each other and on frames that do not.

use conformance::case;
use conformance::consumer::{Buffer, End, Pair, QueuePairShape, Window, WindowKind};
use conformance::machine::with_two_adapters;
use conformance::trial::Case;
use kernel_host::FrameOrder;
use ndkpi_sys::ndkpi::*;

const MIB: usize = 1 << 20;
/// Nothing, one byte, around a page, and a length with an odd tail.
const LENGTHS: [usize; 6] = [0, 1, 4095, 4096, 4097, MIB + 3];

pub const CASES: &[Case] = &[
    case!(read_of_every_length_over_registered_memory: "NDK-QP-15", "NDK-MR-1", "NDK-MR-2"),
    case!(write_of_every_length_over_registered_memory: "NDK-QP-15", "NDK-MR-1"),
    case!(send_of_every_length_over_registered_memory: "NDK-QP-15", "NDK-QP-5", "NDK-CQ-9"),
    case!(read_of_every_length_over_fast_registered_memory: "NDK-QP-15", "NDK-LAM-2", "NDK-QP-12"),
    case!(write_of_every_length_over_fast_registered_memory: "NDK-QP-15"),
    case!(send_of_every_length_over_fast_registered_memory: "NDK-QP-15"),
    case!(read_of_every_length_into_mapped_memory: "NDK-QP-15", "NDK-LAM-3", "NDK-LAM-9"; not in scattered),
    case!(write_of_every_length_out_of_mapped_memory: "NDK-QP-15", "NDK-LAM-3", "NDK-LAM-9"; not in scattered),
    case!(send_of_every_length_between_mapped_memory: "NDK-QP-15", "NDK-LAM-3"; not in scattered),
    case!(scatter_lists_from_one_to_the_most: "NDK-QP-15", "NDK-QP-12"; not in scattered),
    case!(scatter_list_with_empty_sges: "NDK-QP-15"),
    case!(largest_transfer: "NDK-QP-15"),
    case!(largest_fast_registration: "NDK-QP-15", "NDK-INFO-5"),
    case!(both_directions_at_once: "NDK-QP-15"),
    case!(loopback_on_one_adapter: "NDK-INFO-6", "NDK-CM-51"),
    case!(the_last_byte_comes_after_all_others: "NDK-INFO-8"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Read,
    Write,
    Send,
}

/// The request context of the transfer and of the receive it may need.
const REQUEST: u64 = 0x7001;
const RECEIVE: u64 = 0x7002;

/// Moves the whole of `source` to `sink` and checks completion and contents. For a Read `near` is the sink.
fn transfer(operation: Operation, near: (&End<'_>, &Window<'_>), peer: (&End<'_>, &Window<'_>), sges: usize) {
    transfer_length(operation, near, peer, sges, near.1.buffer.length());
}

/// As [`transfer`], for the first `length` bytes; those behind them stay as they are.
fn transfer_length(
    operation: Operation,
    near: (&End<'_>, &Window<'_>),
    peer: (&End<'_>, &Window<'_>),
    sges: usize,
    length: usize,
) {
    let (near_end, near_window) = near;
    let (peer_end, peer_window) = peer;
    let seed = 0x5EED ^ length as u64 ^ (sges as u64) << 32;
    let (source, sink) = match operation {
        Operation::Read => (peer_window, near_window),
        Operation::Write | Operation::Send => (near_window, peer_window),
    };
    source.buffer.fill_with_seed(seed);
    sink.buffer.fill_with_seed(!seed);
    let whole = sink.buffer.length() == length;
    let before = if whole { Vec::new() } else { sink.buffer.to_vec() };
    post_in_sges(operation, near, peer, length, sges);
    check_result(operation, near_end, peer_end, length);
    sink.buffer.assert_seed(seed, 0..length);
    if !whole {
        assert_eq!(sink.buffer.to_vec()[length..], before[length..], "bytes behind the {length} of the transfer");
    }
    source.buffer.assert_surroundings();
    sink.buffer.assert_surroundings();
}

/// Posts the operation in one scatter/gather element, with the receive that it may need.
fn post(operation: Operation, near: (&End<'_>, &Window<'_>), peer: (&End<'_>, &Window<'_>), length: usize) {
    post_in_sges(operation, near, peer, length, 1);
}

fn post_in_sges(
    operation: Operation,
    (near_end, near_window): (&End<'_>, &Window<'_>),
    (peer_end, peer_window): (&End<'_>, &Window<'_>),
    length: usize,
    sges: usize,
) {
    let list = near_window.first_in_sges(length, sges);
    let flags = NDK_OP_FLAGS::empty();
    let status = match operation {
        Operation::Read => near_end.queue_pair.read(REQUEST, &list, peer_window.remote(0), flags),
        Operation::Write => near_end.queue_pair.write(REQUEST, &list, peer_window.remote(0), flags),
        Operation::Send => {
            let receive = peer_end.queue_pair.receive(RECEIVE, &peer_window.first_in_sges(length, sges));
            assert_eq!(receive, 0, "posting a receive of {length} bytes");
            near_end.queue_pair.send(REQUEST, &list, flags)
        }
    };
    assert_eq!(status, 0, "posting a {operation:?} of {length} bytes in {sges} scatter/gather elements");
}

fn check_result(operation: Operation, near: &End<'_>, peer: &End<'_>, length: usize) {
    let result = near.initiator.wait_for_one();
    assert_eq!(result.Status, 0, "a {operation:?} of {length} bytes");
    assert_eq!(result.RequestContext as u64, REQUEST);
    assert_eq!(result.QPContext as usize, QueuePairShape::default().context);
    assert_eq!(result.ProviderErrorCode, 0, "a provider error code on success");
    let expected = match operation {
        Operation::Read => NdkOperationTypeRead,
        Operation::Write => NdkOperationTypeWrite,
        Operation::Send => NdkOperationTypeSend,
    };
    assert_eq!(result.Type, expected);
    if operation == Operation::Send {
        let received = peer.receive.wait_for_one();
        assert_eq!(received.Status, 0, "a receive of {length} bytes");
        assert_eq!(received.BytesTransferred as usize, length);
        assert_eq!(received.RequestContext as u64, RECEIVE);
        assert_eq!(received.Type, NdkOperationTypeReceive);
    }
}

/// One operation over one pair of windows for each length and frame order.
fn every_length(operation: Operation, near: WindowKind, peer: WindowKind) {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let fast = [near, peer].contains(&WindowKind::FastRegistered);
        let lengths = LENGTHS.map(|length| if fast { first.fit_fast(length) } else { first.fit_registered(length) });
        for length in lengths {
            for (offset, order) in [(0, FrameOrder::Contiguous), (1016, FrameOrder::Scattered)] {
                // Registering nothing is no case of its own: a transfer of nothing goes over memory that is there.
                let open = |end, kind, offset| Window::open(end, Buffer::new(length.max(64), offset, order), kind);
                let near = open(&pair.active, near, offset);
                // The peer's buffer begins elsewhere in its page, so that no copy is aligned with itself.
                let peer = open(&pair.passive, peer, offset / 3);
                transfer_length(operation, (&pair.active, &near), (&pair.passive, &peer), 1, length);
            }
        }
    });
}

fn read_of_every_length_over_registered_memory() {
    every_length(Operation::Read, WindowKind::Registered, WindowKind::Registered);
}

fn write_of_every_length_over_registered_memory() {
    every_length(Operation::Write, WindowKind::Registered, WindowKind::Registered);
}

fn send_of_every_length_over_registered_memory() {
    every_length(Operation::Send, WindowKind::Registered, WindowKind::Registered);
}

fn read_of_every_length_over_fast_registered_memory() {
    every_length(Operation::Read, WindowKind::FastRegistered, WindowKind::FastRegistered);
}

fn write_of_every_length_over_fast_registered_memory() {
    every_length(Operation::Write, WindowKind::FastRegistered, WindowKind::FastRegistered);
}

fn send_of_every_length_over_fast_registered_memory() {
    every_length(Operation::Send, WindowKind::FastRegistered, WindowKind::FastRegistered);
}

fn read_of_every_length_into_mapped_memory() {
    every_length(Operation::Read, WindowKind::Privileged, WindowKind::FastRegistered);
}

fn write_of_every_length_out_of_mapped_memory() {
    every_length(Operation::Write, WindowKind::Privileged, WindowKind::Registered);
}

fn send_of_every_length_between_mapped_memory() {
    every_length(Operation::Send, WindowKind::Privileged, WindowKind::Privileged);
}

/// Both ends with as many scatter/gather elements as the adapter takes.
fn wide(most: u32) -> QueuePairShape {
    QueuePairShape { receive_sges: most, initiator_sges: most, ..QueuePairShape::default() }
}

fn scatter_lists_from_one_to_the_most() {
    with_two_adapters(|first, second| {
        let info = first.info();
        let most = info.MaxInitiatorRequestSge.min(info.MaxReceiveRequestSge).min(info.MaxReadRequestSge);
        let length = first.fit_fast(70_001);
        for (local, remote) in [
            (WindowKind::Registered, WindowKind::Registered),
            (WindowKind::FastRegistered, WindowKind::FastRegistered),
            (WindowKind::Privileged, WindowKind::FastRegistered),
        ] {
            let pair = Pair::connect_with(first, second, wide(most));
            let near = Window::open(&pair.active, Buffer::scattered(length), local);
            let peer = Window::open(&pair.passive, Buffer::scattered(length), remote);
            for sges in 1..=most as usize {
                for operation in [Operation::Read, Operation::Write, Operation::Send] {
                    transfer(operation, (&pair.active, &near), (&pair.passive, &peer), sges);
                }
            }
        }
    });
}

fn scatter_list_with_empty_sges() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect_with(first, second, first.fit(wide(8)));
        let near = Window::open(&pair.active, Buffer::scattered(5000), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(5000), WindowKind::Registered);
        peer.buffer.fill_with_seed(11);
        let many =
            [near.sge(0..0), near.sge(0..4097), near.sge(4097..4097), near.sge(4097..5000), near.sge(5000..5000)];
        let two = [near.sge(0..0), near.sge(0..5000)];
        let list: &[_] = if first.info().MaxReadRequestSge < 5 { &two } else { &many };
        assert_eq!(pair.active.queue_pair.read(REQUEST, list, peer.remote(0), NDK_OP_FLAGS::empty()), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
        near.buffer.assert_seed(11, 0..5000);
    });
}

fn largest_transfer() {
    with_two_adapters(|first, second| {
        let info = first.info();
        // No longer than the machine of a trial has memory for.
        let length = (info.MaxTransferLength as usize).min(info.MaxRegistrationSize).min(1 << 30);
        let pair = Pair::connect(first, second);
        let open = |end| Window::open(end, Buffer::new(length, 0, FrameOrder::Contiguous), WindowKind::Registered);
        let (near, peer) = (open(&pair.active), open(&pair.passive));
        transfer(Operation::Read, (&pair.active, &near), (&pair.passive, &peer), 1);
    });
}

fn largest_fast_registration() {
    with_two_adapters(|first, second| {
        let pages = first.info().FRMRPageCount as usize;
        let pair = Pair::connect(first, second);
        let open = |end| {
            // The last byte of the last page is in, the first byte of the first page is not.
            let buffer = Buffer::new(pages * 4096 - 1, 1, FrameOrder::Scattered);
            Window::open(end, buffer, WindowKind::FastRegistered)
        };
        let (near, peer) = (open(&pair.active), open(&pair.passive));
        transfer(Operation::Read, (&pair.active, &near), (&pair.passive, &peer), 1);
        transfer(Operation::Write, (&pair.active, &near), (&pair.passive, &peer), 1);
    });
}

fn both_directions_at_once() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let open = |end| Window::open(end, Buffer::scattered(MIB + 3), WindowKind::Registered);
        let windows = [open(&pair.active), open(&pair.passive), open(&pair.active), open(&pair.passive)];
        windows[0].buffer.fill_with_seed(1);
        windows[3].buffer.fill_with_seed(2);
        let none = NDK_OP_FLAGS::empty();
        let whole = |window: &Window<'_>| window.in_sges(1);
        assert_eq!(pair.active.queue_pair.write(1, &whole(&windows[0]), windows[1].remote(0), none), 0);
        assert_eq!(pair.passive.queue_pair.write(2, &whole(&windows[3]), windows[2].remote(0), none), 0);
        for (end, _) in pair.ends() {
            assert_eq!(end.initiator.wait_for_one().Status, 0);
        }
        windows[1].buffer.assert_seed(1, 0..MIB + 3);
        windows[2].buffer.assert_seed(2, 0..MIB + 3);
    });
}

fn loopback_on_one_adapter() {
    with_two_adapters(|first, _| {
        let pair = Pair::connect(first, first);
        let near = Window::open(&pair.active, Buffer::scattered(10_000), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(10_000), WindowKind::Registered);
        transfer(Operation::Read, (&pair.active, &near), (&pair.passive, &peer), 2);
    });
}

/// A processor beside polls the last byte of a message, as consumers do that want no completion: when it is there, all the others are.
fn the_last_byte_comes_after_all_others() {
    const ROUNDS: u8 = 60;
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        for length in [9_usize, 64, 65, 200, 4096, 0x1_0000] {
            let open = |end, offset| {
                Window::open(end, Buffer::new(length, offset, FrameOrder::Contiguous), WindowKind::Registered)
            };
            let (near, peer) = (open(&pair.active, 0), open(&pair.passive, 24));
            for operation in [Operation::Read, Operation::Write, Operation::Send] {
                let (source, sink) = if operation == Operation::Read { (&peer, &near) } else { (&near, &peer) };
                let last = length - 1;
                for round in 1..=ROUNDS {
                    source.buffer.fill(|_| round);
                    sink.buffer.fill(|_| 0);
                    std::thread::scope(|scope| {
                        let reader = scope.spawn(|| {
                            while sink.buffer.byte(last) != round {
                                std::hint::spin_loop();
                            }
                            // From the end, where a byte that comes too late would be.
                            (0..length).rev().find(|position| sink.buffer.byte(*position) != round)
                        });
                        post(operation, (&pair.active, &near), (&pair.passive, &peer), length);
                        let missing = reader.join().expect("the reader's end");
                        assert_eq!(
                            missing, None,
                            "a byte of {length} that is not there when the last is, {operation:?}"
                        );
                    });
                    check_result(operation, &pair.active, &pair.passive, length);
                }
            }
        }
    });
}
