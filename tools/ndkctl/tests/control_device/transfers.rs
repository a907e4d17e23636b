//! Transfers and memcpy: every operation, registration, length and list; every refusal; what the result page says.

use super::handles::File;
use super::machine::{Machine, ORDINARY, ask, list, region, result_of, send, send_direct, start_direct};
use super::pairs::{close, create_request, objects};
use super::{Case, cases};
use kernel_host::FrameOrder;
use kernel_host::distortion::DISTORTION;
use kernel_host::memory::user_buffer::UserBuffer;
use softndk_ioctl::{
    BufferLayout, EndReason, MemcpyRequest, Operation, PairCreateRequest, PairFlags, PairModerationRequest,
    REGION_LENGTH_MAX, RegionKind, Request, RequestHeader, Status, TransferFlags, TransferRequest, TransferResult,
    stride_count,
};
use zerocopy::IntoBytes;

pub const CASES: &[Case] = cases![
    sends_and_reads_invalidate_by_their_last_request,
    every_nth_request_is_signalled,
    a_pair_closes_while_every_thread_is_busy,
    moderation_is_set_for_a_pair_of_the_file,
    messages_arrive_through_a_shared_receive_queue,
    messages_through_a_shared_receive_queue_notify,
    every_operation_and_registration_moves_every_length,
    scatter_lists_of_every_length,
    notified_completions_are_the_same,
    chains_and_depths,
    flags_do_what_they_say,
    a_time_budget_ends_a_transfer,
    a_failed_request_ends_a_transfer,
    transfer_parameters_out_of_range_are_refused,
    buffers_are_checked,
    regions_longer_than_their_kind_are_refused,
    transfers_over_strange_pairs_are_not_found,
    a_pair_takes_one_transfer_at_a_time,
    memcpy_copies,
    memcpy_parameters_out_of_range_are_refused,
];

const OPERATIONS: [Operation; 3] = [Operation::READ, Operation::WRITE, Operation::SEND];
pub const KINDS: [RegionKind; 3] = [RegionKind::REGISTERED, RegionKind::FAST_REGISTERED, RegionKind::LOGICAL];

/// One read of the whole region.
pub fn transfer_request(pair: u32, region_length: u64) -> TransferRequest {
    TransferRequest {
        header: RequestHeader::of::<TransferRequest>(),
        pair,
        operation: Operation::READ,
        region_kind: RegionKind::REGISTERED,
        flags: TransferFlags::empty(),
        region_length,
        request_count: 1,
        request_length: region_length as u32,
        sge_count: 1,
        depth: 1,
        chain_length: 1,
        time_budget: 0,
        signal_interval: 0,
    }
}

/// One copy of the whole region.
pub fn memcpy_request(region_length: u64) -> MemcpyRequest {
    MemcpyRequest {
        header: RequestHeader::of::<MemcpyRequest>(),
        region_length,
        request_count: 1,
        request_length: region_length as u32,
        flags: TransferFlags::empty(),
        time_budget: 0,
        reserved: 0,
    }
}

/// Fills source and destination with different bytes.
pub fn prepare(buffer: &mut UserBuffer, region_length: u64) {
    let layout = BufferLayout::new(region_length).expect("short enough");
    let bytes = buffer.as_mut_slice();
    let (front, destination) = bytes.split_at_mut(layout.destination as usize);
    fastrand::Rng::with_seed(region_length).fill(&mut front[layout.source as usize..][..region_length as usize]);
    fastrand::Rng::with_seed(!region_length).fill(&mut destination[..region_length as usize]);
}

/// Whether the destination has the source's bytes.
pub fn arrived(buffer: &UserBuffer, region_length: u64) -> bool {
    let layout = BufferLayout::new(region_length).expect("short enough");
    let part = |start: u64| &buffer.as_slice()[start as usize..(start + region_length) as usize];
    part(layout.source) == part(layout.destination)
}

/// Runs a transfer that must succeed and arrive; its result.
pub fn move_all(file: &File, request: &TransferRequest) -> TransferResult {
    let mut buffer = region(request.region_length);
    prepare(&mut buffer, request.region_length);
    assert_eq!(send_direct(file, request, &mut buffer), Status::SUCCESS, "{request:?}");
    let result = result_of(&buffer);
    assert_eq!(result.header, RequestHeader::of::<TransferResult>(), "{request:?}");
    assert_eq!((Status(result.first_failure), result.failed), (Status::SUCCESS, 0), "{request:?}");
    assert_eq!(result.posted, result.completed + result.silent, "{request:?}");
    assert!(arrived(&buffer, request.region_length), "{request:?}");
    result
}

pub fn with_pair(change: impl FnOnce(&mut PairCreateRequest), work: impl FnOnce(&Machine, &File, u32)) {
    let machine = Machine::with(&[ORDINARY, ORDINARY]);
    let file = machine.open();
    let mut request = create_request(&machine);
    change(&mut request);
    let pair = ask(&file, &request).pair;
    work(&machine, &file, pair);
    assert_eq!(close(&file, pair), Status::SUCCESS);
    let left = objects(&file);
    assert_eq!((left.memory_regions, left.logical_mappings, left.protection_domains), (0, 0, 0));
    file.close();
    machine.finish();
}

fn every_operation_and_registration_moves_every_length() {
    with_pair(
        |_| {},
        |_, file, pair| {
            for operation in OPERATIONS {
                for region_kind in KINDS {
                    for length in [0, 1, 63, 64, 65, 4095, 4096, 4097, 65_536, 65_537, (1 << 20) + 3] {
                        let request = TransferRequest { operation, region_kind, ..transfer_request(pair, length) };
                        let result = move_all(file, &request);
                        assert_eq!((result.completed, result.bytes), (1, length), "{request:?}");
                        assert_eq!(result.end_reason, EndReason::COUNT);
                    }
                }
            }
        },
    );
}

fn scatter_lists_of_every_length() {
    with_pair(
        |_| {},
        |_, file, pair| {
            let most = list(file)[0].limits.max_read_request_sge;
            for (operation, region_kind) in OPERATIONS.into_iter().flat_map(|one| KINDS.map(|kind| (one, kind))) {
                for sge_count in 1..=most {
                    for length in [1, u64::from(sge_count), 4097, 20_000] {
                        let request = transfer_request(pair, length);
                        move_all(file, &TransferRequest { operation, region_kind, sge_count, ..request });
                    }
                }
            }
        },
    );
}

fn notified_completions_are_the_same() {
    with_pair(
        |request| request.flags = PairFlags::NOTIFY,
        |_, file, pair| {
            for operation in OPERATIONS {
                let request = TransferRequest {
                    operation,
                    request_length: 1000,
                    request_count: stride_count(100_000, 1000),
                    depth: 16,
                    chain_length: 4,
                    ..transfer_request(pair, 100_000)
                };
                let result = move_all(file, &request);
                assert_eq!((result.completed, result.bytes), (100, 100_000));
                assert!(result.notifications > 0, "completions were waited for by notification");
            }
        },
    );
}

fn chains_and_depths() {
    with_pair(
        |_| {},
        |_, file, pair| {
            for operation in OPERATIONS {
                for (depth, chain_length) in [(1, 1), (2, 1), (2, 2), (16, 16), (128, 1), (128, 100), (128, 128)] {
                    let request = TransferRequest {
                        operation,
                        depth,
                        chain_length,
                        request_length: 7,
                        // Three times around, and a chain that is not full at the end.
                        request_count: 3 * stride_count(4099, 7) + 1,
                        ..transfer_request(pair, 4099)
                    };
                    let result = move_all(file, &request);
                    assert_eq!(result.completed, request.request_count, "{request:?}");
                    assert_eq!(result.bytes, 3 * 4099 + 7, "{request:?}");
                }
            }
        },
    );
}

fn flags_do_what_they_say() {
    with_pair(
        |_| {},
        |_, file, pair| {
            let inline = list(file)[0].limits.max_inline_data_size;
            let many = TransferRequest {
                request_length: 64,
                request_count: 640,
                depth: 32,
                chain_length: 8,
                ..transfer_request(pair, 4096)
            };
            let timed = move_all(file, &TransferRequest { flags: TransferFlags::MEASURE_LATENCY, ..many });
            assert_eq!(timed.latency.count, 640 / 8);
            assert!(timed.latency.min <= timed.latency.max);
            assert_eq!(move_all(file, &many).latency.count, 0);
            for operation in OPERATIONS {
                for (flags, signalled) in [(TransferFlags::READ_FENCE, 640), (TransferFlags::SILENT_SUCCESS, 640 / 8)] {
                    let result = move_all(file, &TransferRequest { operation, flags, ..many });
                    assert_eq!(
                        (result.completed, result.silent),
                        (signalled, 640 - signalled),
                        "{operation:?} {flags:?}"
                    );
                }
            }
            if inline > 0 {
                for operation in [Operation::WRITE, Operation::SEND] {
                    let request_length = inline.min(64);
                    let request_count = stride_count(4096, request_length);
                    let flags = TransferFlags::INLINE;
                    move_all(file, &TransferRequest { operation, flags, request_length, request_count, ..many });
                }
            }
            for operation in [Operation::READ, Operation::WRITE] {
                for region_kind in [RegionKind::FAST_REGISTERED, RegionKind::LOGICAL, RegionKind::WINDOW] {
                    move_all(file, &TransferRequest { operation, region_kind, ..many });
                    let flags = TransferFlags::REMOTE_INVALIDATE;
                    move_all(file, &TransferRequest { operation, region_kind, flags, ..many });
                }
            }
        },
    );
}

/// After an invalidation by either side the next transfer over the pair works as before.
fn sends_and_reads_invalidate_by_their_last_request() {
    with_pair(
        |_| {},
        |_, file, pair| {
            let fast = TransferRequest {
                region_kind: RegionKind::FAST_REGISTERED,
                request_count: 10,
                request_length: 1000,
                depth: 4,
                ..transfer_request(pair, 10_000)
            };
            for _ in 0..3 {
                let flags = TransferFlags::REMOTE_INVALIDATE;
                assert_eq!(
                    move_all(file, &TransferRequest { operation: Operation::SEND, flags, ..fast }).completed,
                    10
                );
                let flags = TransferFlags::LOCAL_INVALIDATE;
                assert_eq!(move_all(file, &TransferRequest { flags, ..fast }).completed, 10);
            }
        },
    );
}

/// Every interval, whatever chains and depth make of it; the notifications of solicited sends are counted.
fn every_nth_request_is_signalled() {
    with_pair(
        |request| request.flags = PairFlags::NOTIFY,
        |_, file, pair| {
            // Signalled is every Nth, the last, and one behind which no more fit; how often that comes is a matter of time, but not where
            // it is each one, or the last of each chain.
            for (interval, depth, chain_length, signalled) in [
                (1, 1, 1, 331..=331),
                (2, 1, 1, 331..=331),
                (7, 16, 1, 48..=330),
                (100, 16, 3, 4..=330),
                (5, 4, 4, 133..=133),
                (3, 128, 64, 111..=330),
                (u32::MAX, 128, 7, 1..=330),
            ] {
                for operation in OPERATIONS {
                    let request = TransferRequest {
                        operation,
                        request_count: 331,
                        request_length: 31,
                        depth,
                        chain_length,
                        signal_interval: interval,
                        ..transfer_request(pair, 331 * 31)
                    };
                    let result = move_all(file, &request);
                    assert_eq!(result.succeeded(), 331, "{interval} {depth} {chain_length}");
                    assert!(
                        signalled.contains(&result.completed),
                        "{interval} {depth} {chain_length}: {}",
                        result.completed
                    );
                }
            }
            let endless = TransferRequest {
                request_count: 0,
                time_budget: 5,
                signal_interval: 50,
                depth: 8,
                ..transfer_request(pair, 64)
            };
            let result = move_all(file, &endless);
            assert_eq!((result.posted, result.end_reason), (result.succeeded(), EndReason::TIME_BUDGET));
            let solicited = TransferRequest {
                operation: Operation::SEND,
                flags: TransferFlags::SOLICITED,
                request_count: 4,
                request_length: 16,
                ..transfer_request(pair, 64)
            };
            let plain = TransferRequest { flags: TransferFlags::empty(), ..solicited };
            let (with, without) = (move_all(file, &solicited).notifications, move_all(file, &plain).notifications);
            assert!(with > without, "{with} notifications with, {without} without solicited events");
        },
    );
}

/// As many endless transfers as there are threads for requests: a close does not wait behind them.
fn a_pair_closes_while_every_thread_is_busy() {
    let machine = Machine::start();
    let file = machine.open();
    let pairs: Vec<u32> = (0..33).map(|_| ask(&file, &create_request(&machine)).pair).collect();
    let buffers: Vec<_> = pairs.iter().map(|_| region(4096)).collect();
    let running: Vec<_> = pairs
        .iter()
        .zip(&buffers)
        .skip(1)
        .map(|(pair, buffer)| {
            start_direct(&file, &TransferRequest { request_count: u64::MAX, ..transfer_request(*pair, 4096) }, buffer)
        })
        .collect();
    assert_eq!(close(&file, pairs[0]), Status::SUCCESS);
    assert_eq!(close(&file, pairs[32]), Status::SUCCESS);
    for pair in &pairs[1..32] {
        assert_eq!(close(&file, *pair), Status::SUCCESS);
    }
    for transfer in running {
        assert_eq!(Status(transfer.wait().status), Status::CANCELLED);
    }
    file.close();
    drop(buffers);
    machine.finish();
}

fn moderation_is_set_for_a_pair_of_the_file() {
    with_pair(
        |request| request.flags = PairFlags::NOTIFY,
        |_, file, pair| {
            let ask = |pair, interval, count| {
                let header = RequestHeader::of::<PairModerationRequest>();
                let request = PairModerationRequest { header, pair, interval, count, reserved: 0 };
                send(file, PairModerationRequest::CODE, request.as_bytes(), 0).0
            };
            for (interval, count) in [(20, 4), (0, 0), (u32::MAX, 8), (50, u32::MAX)] {
                assert_eq!(ask(pair, interval, count), Status::SUCCESS, "{interval} {count}");
            }
            assert_eq!(ask(pair, 20, 4), Status::SUCCESS);
            let many =
                TransferRequest { request_count: 64, request_length: 64, depth: 16, ..transfer_request(pair, 4096) };
            assert_eq!(move_all(file, &many).completed, 64);
            assert_eq!(ask(pair + 1, 20, 4), Status::NOT_FOUND);
            let header = RequestHeader::of::<PairModerationRequest>();
            let wrong = PairModerationRequest { header, pair, interval: 0, count: 0, reserved: 1 };
            let (status, _) = send(file, PairModerationRequest::CODE, wrong.as_bytes(), 0);
            assert_eq!(status, Status::INVALID_PARAMETER);
        },
    );
}

/// Messages of every kind of memory through the server's shared receive queue; the rest of a pair is as without.
fn shared_receives(flags: PairFlags) {
    with_pair(
        |request| request.flags = flags,
        |_, file, pair| {
            assert_eq!(objects(file).shared_receive_queues, 1, "the server's");
            let many = TransferRequest {
                operation: Operation::SEND,
                request_length: 64,
                request_count: 640,
                depth: 32,
                chain_length: 8,
                ..transfer_request(pair, 4096)
            };
            for region_kind in KINDS {
                assert_eq!(move_all(file, &TransferRequest { region_kind, ..many }).completed, 640);
            }
            let flags = TransferFlags::REMOTE_INVALIDATE;
            for (operation, region_kind) in
                [(Operation::SEND, RegionKind::FAST_REGISTERED), (Operation::WRITE, RegionKind::WINDOW)]
            {
                move_all(file, &TransferRequest { operation, region_kind, flags, ..many });
            }
            move_all(file, &transfer_request(pair, 4096));
        },
    );
}

fn messages_arrive_through_a_shared_receive_queue() {
    shared_receives(PairFlags::SHARED_RECEIVE);
}

fn messages_through_a_shared_receive_queue_notify() {
    shared_receives(PairFlags::SHARED_RECEIVE | PairFlags::NOTIFY);
}

fn a_time_budget_ends_a_transfer() {
    with_pair(
        |_| {},
        |_, file, pair| {
            // More requests than can be made: only the budget ends it.
            for request_count in [0, u64::MAX] {
                let request = TransferRequest { request_count, time_budget: 20, ..transfer_request(pair, 4096) };
                let result = move_all(file, &request);
                assert_eq!(result.end_reason, EndReason::TIME_BUDGET);
                assert!(result.completed > 0);
            }
        },
    );
}

fn a_failed_request_ends_a_transfer() {
    // Every read has a token that nothing was registered with.
    // SAFETY: this process has one thread, and nothing has asked for the variable.
    unsafe { std::env::set_var(DISTORTION, "NdkRead/5/forgotten") };
    with_pair(
        |_| {},
        |_, file, pair| {
            let request =
                TransferRequest { request_count: 40, request_length: 64, depth: 4, ..transfer_request(pair, 4096) };
            let mut buffer = region(4096);
            prepare(&mut buffer, 4096);
            assert_eq!(send_direct(file, &request, &mut buffer), Status::SUCCESS);
            let result = result_of(&buffer);
            assert_eq!(result.end_reason, EndReason::FAILURE);
            assert_eq!(result.posted, result.completed + result.silent + result.failed, "{result:?}");
            assert!(result.posted < 40 && result.completed == 0 && result.bytes == 0, "{result:?}");
            // The first failed by its token, those behind it were cancelled.
            let [first, others, ..] = result.failures;
            assert_eq!((first.count, first.status), (1, result.first_failure));
            assert_ne!(Status(first.status), Status::CANCELLED);
            assert_eq!((others.count, result.failed), (result.posted - 1, result.posted), "{result:?}");
            assert!(others.count == 0 || Status(others.status) == Status::CANCELLED, "{result:?}");
            assert!(!arrived(&buffer, 4096));
        },
    );
}

// Rule: IOCTL-4, IOCTL-10
fn transfer_parameters_out_of_range_are_refused() {
    with_pair(
        |_| {},
        |_, file, pair| {
            let limits = list(file)[0].limits;
            let good = transfer_request(pair, 4096);
            let refuse = |name: &str, change: &dyn Fn(&mut TransferRequest)| {
                let mut request = good;
                change(&mut request);
                let status = send_direct(file, &request, &mut region(4096));
                assert_eq!(status, Status::INVALID_PARAMETER, "{name}");
            };
            refuse("no operation", &|request| request.operation = Operation(0));
            refuse("unknown operation", &|request| request.operation = Operation(u32::MAX));
            refuse("no kind", &|request| request.region_kind = RegionKind(0));
            refuse("unknown kind", &|request| request.region_kind = RegionKind(u32::MAX));
            refuse("unknown flag", &|request| request.flags = TransferFlags::from_bits_retain(1 << 31));
            refuse("no scatter/gather element", &|request| request.sge_count = 0);
            refuse("scatter/gather elements", &|request| request.sge_count = limits.max_read_request_sge + 1);
            refuse("all scatter/gather elements", &|request| request.sge_count = u32::MAX);
            refuse("no depth", &|request| request.depth = 0);
            refuse("depth", &|request| request.depth = 129);
            refuse("no chain", &|request| request.chain_length = 0);
            refuse("chain above depth", &|request| request.chain_length = 2);
            refuse("no end", &|request| request.request_count = 0);
            refuse("request length", &|request| request.request_length = limits.max_transfer_length + 1);
            refuse("all lengths", &|request| request.request_length = u32::MAX);
            refuse("region", &|request| request.region_length = REGION_LENGTH_MAX + 1);
            refuse("all regions", &|request| request.region_length = u64::MAX);
            refuse("window for sends", &|request| {
                request.operation = Operation::SEND;
                request.region_kind = RegionKind::WINDOW;
            });
            refuse("solicited read", &|request| request.flags = TransferFlags::SOLICITED);
            refuse("local invalidate of registered memory", &|request| {
                request.flags = TransferFlags::LOCAL_INVALIDATE;
            });
            refuse("local invalidate without a last request", &|request| {
                request.flags = TransferFlags::LOCAL_INVALIDATE;
                request.region_kind = RegionKind::FAST_REGISTERED;
                (request.request_count, request.time_budget) = (0, 1);
            });
            refuse("inline read", &|request| request.flags = TransferFlags::INLINE);
            refuse("remote invalidate of registered memory", &|request| {
                request.flags = TransferFlags::REMOTE_INVALIDATE;
            });
            refuse("remote invalidate by a send without a last one", &|request| {
                request.flags = TransferFlags::REMOTE_INVALIDATE;
                request.operation = Operation::SEND;
                request.region_kind = RegionKind::FAST_REGISTERED;
                (request.request_count, request.time_budget) = (0, 1);
            });
            refuse("inline data", &|request| {
                request.flags = TransferFlags::INLINE;
                request.operation = Operation::WRITE;
                request.request_length = limits.max_inline_data_size + 1;
            });
            // The pair is as good as before.
            move_all(file, &good);
        },
    );
}

// Rule: IOCTL-3, IOCTL-10
fn buffers_are_checked() {
    with_pair(
        |_| {},
        |_, file, pair| {
            let length = BufferLayout::new(4096).expect("short enough").total as usize;
            for offset in [1, 8, 4095] {
                let mut buffer = UserBuffer::with_offset(length, offset, FrameOrder::Scattered);
                let status = send_direct(file, &transfer_request(pair, 4096), &mut buffer);
                assert_eq!(status, Status::DATATYPE_MISALIGNMENT, "{offset}");
                assert_eq!(send_direct(file, &memcpy_request(4096), &mut buffer), Status::DATATYPE_MISALIGNMENT);
            }
            for short in [0, 1, 4095, 4096, 8192, length - 1] {
                let mut buffer = UserBuffer::with_offset(short, 0, FrameOrder::Scattered);
                let status = send_direct(file, &transfer_request(pair, 4096), &mut buffer);
                assert_eq!(status, Status::BUFFER_TOO_SMALL, "{short}");
                assert_eq!(send_direct(file, &memcpy_request(4096), &mut buffer), Status::BUFFER_TOO_SMALL, "{short}");
            }
            // Longer is fine, and what is behind stays as it was.
            let mut buffer = UserBuffer::with_offset(length + 5000, 0, FrameOrder::Scattered);
            prepare(&mut buffer, 4096);
            buffer.as_mut_slice()[length..].fill(0x5A);
            assert_eq!(send_direct(file, &transfer_request(pair, 4096), &mut buffer), Status::SUCCESS);
            assert!(arrived(&buffer, 4096));
            assert!(buffer.as_slice()[length..].iter().all(|&byte| byte == 0x5A));
        },
    );
}

fn regions_longer_than_their_kind_are_refused() {
    with_pair(
        |_| {},
        |_, file, pair| {
            let longest = u64::from(list(file)[0].limits.frmr_page_count) * 4096;
            let fast =
                |length| TransferRequest { region_kind: RegionKind::FAST_REGISTERED, ..transfer_request(pair, length) };
            move_all(file, &fast(longest));
            if longest < REGION_LENGTH_MAX {
                let status = send_direct(file, &fast(longest + 1), &mut region(longest + 1));
                assert_eq!(status, Status::INVALID_BUFFER_SIZE);
                move_all(file, &transfer_request(pair, longest + 1));
            }
        },
    );
}

fn transfers_over_strange_pairs_are_not_found() {
    with_pair(
        |_| {},
        |machine, file, pair| {
            let other_file = machine.open();
            for id in [0, pair, pair + 1, u32::MAX] {
                let status = send_direct(&other_file, &transfer_request(id, 4096), &mut region(4096));
                assert_eq!(status, Status::NOT_FOUND, "{id}");
            }
            other_file.close();
            let closed = ask(file, &create_request(machine)).pair;
            assert_eq!(close(file, closed), Status::SUCCESS);
            let status = send_direct(file, &transfer_request(closed, 4096), &mut region(4096));
            assert_eq!(status, Status::NOT_FOUND);
        },
    );
}

fn a_pair_takes_one_transfer_at_a_time() {
    with_pair(
        |_| {},
        |_, file, pair| {
            let endless = TransferRequest { request_count: u64::MAX, ..transfer_request(pair, 4096) };
            let buffer = region(4096);
            let running = start_direct(file, &endless, &buffer);
            let status = send_direct(file, &transfer_request(pair, 4096), &mut region(4096));
            assert_eq!(status, Status::DEVICE_BUSY);
            assert!(running.cancel());
            assert_eq!(Status(running.wait().status), Status::CANCELLED);
        },
    );
}

fn memcpy_copies() {
    let machine = Machine::start();
    let file = machine.open();
    for length in [0, 1, 7, 8, 63, 64, 65, 4095, 4096, 4097, (1 << 20) + 3] {
        let mut buffer = region(length);
        prepare(&mut buffer, length);
        assert_eq!(send_direct(&file, &memcpy_request(length), &mut buffer), Status::SUCCESS, "{length}");
        let result = result_of(&buffer);
        assert_eq!((result.completed, result.bytes, result.end_reason), (1, length, EndReason::COUNT));
        assert!(arrived(&buffer, length), "{length}");
    }
    let mut buffer = region(100_000);
    prepare(&mut buffer, 100_000);
    let strided = MemcpyRequest { request_length: 999, request_count: 101, ..memcpy_request(100_000) };
    assert_eq!(send_direct(&file, &strided, &mut buffer), Status::SUCCESS);
    assert_eq!(result_of(&buffer).bytes, 100_000);
    assert!(arrived(&buffer, 100_000));
    file.close();
    machine.finish();
}

fn memcpy_parameters_out_of_range_are_refused() {
    let machine = Machine::start();
    let file = machine.open();
    let good = memcpy_request(4096);
    let refuse = |change: &dyn Fn(&mut MemcpyRequest)| {
        let mut request = good;
        change(&mut request);
        assert_eq!(send_direct(&file, &request, &mut region(4096)), Status::INVALID_PARAMETER, "{request:?}");
    };
    refuse(&|request| request.request_count = 0);
    refuse(&|request| request.flags = TransferFlags::READ_FENCE);
    refuse(&|request| request.flags = TransferFlags::from_bits_retain(u32::MAX));
    refuse(&|request| request.region_length = REGION_LENGTH_MAX + 1);
    refuse(&|request| request.region_length = u64::MAX);
    refuse(&|request| request.reserved = 1);
    assert_eq!(send_direct(&file, &good, &mut region(4096)), Status::SUCCESS);
    file.close();
    machine.finish();
}
