//! Ends while requests are under way: cancelled requests, closed pairs and files, adapters that go.

use super::machine::{Machine, ORDINARY, Wish, ask, list, refused, region, result_of, send, send_direct, start_direct};
use super::pairs::{close, create_request, objects};
use super::transfers::{KINDS, arrived, move_all, prepare, transfer_request};
use super::{Case, cases};
use kernel_host::io::device::keep_packets_of_gone_devices;
use kernel_host::memory::user_buffer::UserBuffer;
use kernel_host::{HaltAction, dispatcher, fault, wsk};
use softndk_ioctl::{
    AdapterListRequest, MemcpyRequest, ObjectSummaryRequest, Operation, PairCreateRequest, PairFlags, RegionKind,
    Request, RequestHeader, Status, TransferFlags, TransferRequest, VersionRequest,
};
use zerocopy::IntoBytes;

pub const CASES: &[Case] = cases![
    a_cancelled_transfer_answers_cancelled,
    a_cancelled_memcpy_answers_cancelled,
    mappings_are_counted_while_a_transfer_has_them,
    closing_the_pair_cancels_its_transfer,
    closing_the_file_cancels_its_transfer,
    disabling_ndk_ends_sessions,
    a_pair_is_closed_before_its_adapters_are_opened_again,
    receives_that_no_context_fills_are_over_before_their_memory_goes,
    a_transfer_succeeds_only_when_all_has_arrived,
    transfers_end_while_memory_is_short,
    sends_stay_within_the_receives,
    halting_an_adapter_ends_sessions,
    requests_after_the_last_adapter_answer_device_removed,
    unload_with_handles_open,
    requests_are_over_when_the_last_adapter_is_gone,
    a_handle_outlives_the_device_and_serves_the_next_one,
    handles_without_their_last_requests_are_freed,
];

pub fn endless(pair: u32) -> TransferRequest {
    TransferRequest { request_count: u64::MAX, ..transfer_request(pair, 65_536) }
}

// Rule: IOCTL-7
fn a_cancelled_transfer_answers_cancelled() {
    let machine = Machine::start();
    let file = machine.open();
    let pair = ask(&file, &create_request(&machine)).pair;
    let buffer = region(65_536);
    let running = start_direct(&file, &endless(pair), &buffer);
    assert!(running.cancel());
    let answer = running.wait();
    assert_eq!((Status(answer.status), answer.information), (Status::CANCELLED, 0));
    assert_eq!(close(&file, pair), Status::SUCCESS);
    file.close();
    drop(buffer);
    machine.finish();
}

/// One for each part of each transfer's region, and none before and after.
fn mappings_are_counted_while_a_transfer_has_them() {
    let machine = Machine::start();
    let file = machine.open();
    let pairs = [(); 2].map(|()| ask(&file, &create_request(&machine)).pair);
    let before = objects(&file);
    assert_eq!((before.memory_regions, before.logical_mappings), (0, 0));
    let transfers = pairs.map(|pair| {
        let buffer = region(65_536);
        let request = TransferRequest { region_kind: RegionKind::FAST_REGISTERED, ..endless(pair) };
        (start_direct(&file, &request, &buffer), buffer)
    });
    machine.wait_until(|| objects(&file).logical_mappings == 4);
    for (running, _) in &transfers {
        assert!(running.cancel());
    }
    for (running, _) in transfers {
        assert_eq!(Status(running.wait().status), Status::CANCELLED);
    }
    let after = objects(&file);
    assert_eq!((after.memory_regions, after.logical_mappings), (0, 0));
    for pair in pairs {
        assert_eq!(close(&file, pair), Status::SUCCESS);
    }
    file.close();
    machine.finish();
}

pub fn endless_memcpy() -> MemcpyRequest {
    MemcpyRequest {
        header: RequestHeader::of::<MemcpyRequest>(),
        region_length: 4096,
        request_count: u64::MAX,
        request_length: 4096,
        flags: TransferFlags::empty(),
        time_budget: 0,
        reserved: 0,
    }
}

fn a_cancelled_memcpy_answers_cancelled() {
    let machine = Machine::start();
    let file = machine.open();
    let buffer = region(4096);
    let running = start_direct(&file, &endless_memcpy(), &buffer);
    assert!(running.cancel());
    assert_eq!(Status(running.wait().status), Status::CANCELLED);
    file.close();
    machine.finish();
}

fn closing_the_pair_cancels_its_transfer() {
    let machine = Machine::start();
    let file = machine.open();
    let pair = ask(&file, &create_request(&machine)).pair;
    let buffer = region(65_536);
    let running = start_direct(&file, &endless(pair), &buffer);
    assert_eq!(close(&file, pair), Status::SUCCESS);
    assert_eq!(Status(running.wait().status), Status::CANCELLED);
    file.close();
    machine.finish();
}

// Rule: IOCTL-8
fn closing_the_file_cancels_its_transfer() {
    let machine = Machine::start();
    let (file, watcher) = (machine.open(), machine.open());
    let pair = ask(&file, &create_request(&machine)).pair;
    let buffer = region(65_536);
    let running = start_direct(&file, &endless(pair), &buffer);
    file.close();
    assert_eq!(Status(running.wait().status), Status::CANCELLED);
    drop(running);
    assert_eq!(objects(&watcher).pairs, 0);
    watcher.close();
    machine.finish();
}

/// Turns NDK on the second adapter on or off, as NDIS does.
pub fn set_ndk(machine: &Machine, enabled: bool) {
    const OID_NDK_SET_STATE: u32 = 0xFC04_0201;
    let answer = machine.adapters[1].set_oid(OID_NDK_SET_STATE, &[u8::from(enabled)]).expect("the adapter is started");
    assert_eq!(answer.status, 0);
    // The miniport raises the event from a thread of its own.
    machine.wait_until(|| machine.adapters[1].is_ndk_enabled() == enabled);
}

// Rule: IOCTL-9
fn disabling_ndk_ends_sessions() {
    let machine = Machine::start();
    let file = machine.open();
    let request = create_request(&machine);
    let pair = ask(&file, &request).pair;
    let buffer = region(65_536);
    let running = start_direct(&file, &endless(pair), &buffer);
    set_ndk(&machine, false);
    assert_eq!(Status(running.wait().status), Status::DEVICE_REMOVED);
    assert_eq!(send_direct(&file, &transfer_request(pair, 4096), &mut region(4096)), Status::DEVICE_REMOVED);
    refused(&file, &request, Status::DEVICE_NOT_READY);
    assert_eq!(close(&file, pair), Status::SUCCESS);
    set_ndk(&machine, true);
    let again = ask(&file, &request).pair;
    assert_eq!(close(&file, again), Status::SUCCESS);
    file.close();
    machine.finish();
}

/// Why a connection has ended is asked by opening the adapters: not before an adapter that goes has everything back.
// Rule: IOCTL-9
fn a_pair_is_closed_before_its_adapters_are_opened_again() {
    let machine = Machine::start();
    let file = machine.open();
    let pair = ask(&file, &create_request(&machine)).pair;
    let other = &machine.adapters[0];
    let _before = other.take_most_ndk_opens();
    set_ndk(&machine, false);
    machine.wait_until(|| other.ndk_opens() == 0);
    assert_eq!(other.take_most_ndk_opens(), 1, "only the pair's own open");
    assert_eq!(send_direct(&file, &transfer_request(pair, 4096), &mut region(4096)), Status::DEVICE_REMOVED);
    assert_eq!(close(&file, pair), Status::SUCCESS);
    set_ndk(&machine, true);
    file.close();
    machine.finish();
}

/// A transfer of messages is cut off while receives wait: nothing holds their memory when the request has been answered.
// Rule: IOCTL-9
fn receives_that_no_context_fills_are_over_before_their_memory_goes() {
    let machine = Machine::start();
    let file = machine.open();
    for flags in [PairFlags::empty(), PairFlags::SHARED_RECEIVE] {
        for region_kind in KINDS {
            let pair = ask(&file, &PairCreateRequest { flags, ..create_request(&machine) }).pair;
            let messages = TransferRequest {
                operation: Operation::SEND,
                region_kind,
                request_length: 4096,
                depth: 32,
                chain_length: 8,
                ..endless(pair)
            };
            let buffer = region(65_536);
            let running = start_direct(&file, &messages, &buffer);
            set_ndk(&machine, false);
            assert_eq!(Status(running.wait().status), Status::DEVICE_REMOVED);
            drop((running, buffer));
            let left = objects(&file);
            assert_eq!((left.memory_regions, left.logical_mappings), (0, 0), "{flags:?} {region_kind:?}");
            assert_eq!(send_direct(&file, &messages, &mut region(65_536)), Status::DEVICE_REMOVED);
            assert_eq!(close(&file, pair), Status::SUCCESS);
            set_ndk(&machine, true);
        }
    }
    file.close();
    machine.finish();
}

/// The whole region in 64 requests: all posted at once, or a few at a time.
fn in_64_requests(pair: u32, operation: Operation, length: u64, all_at_once: bool) -> TransferRequest {
    let (depth, chain_length) = if all_at_once { (64, 64) } else { (4, 1) };
    let request_length = (length / 64) as u32;
    let whole = transfer_request(pair, length);
    TransferRequest { operation, request_count: 64, request_length, depth, chain_length, ..whole }
}

/// Whether a transfer of one of those succeeded; then all of it has arrived.
fn succeeded(transfer: &TransferRequest, status: Status, buffer: &UserBuffer) -> bool {
    let succeeded = status == Status::SUCCESS && result_of(buffer).failed == 0;
    assert!(!succeeded || arrived(buffer, transfer.region_length), "{transfer:?}");
    succeeded
}

/// Across a stream a request succeeds before its peer has it, and an end that comes leaves receives where they are.
fn a_transfer_succeeds_only_when_all_has_arrived() {
    const LENGTH: u64 = 1 << 20;
    let machine = Machine::with(&[Wish { streams: true, ..ORDINARY }; 2]);
    let file = machine.open();
    let mut ended = [0, 0];
    for (operation, flags) in [
        (Operation::SEND, PairFlags::empty()),
        (Operation::SEND, PairFlags::SHARED_RECEIVE),
        (Operation::WRITE, PairFlags::SHARED_RECEIVE),
    ] {
        for round in 0..40 {
            let pair = ask(&file, &PairCreateRequest { flags, ..create_request(&machine) }).pair;
            let transfer = in_64_requests(pair, operation, LENGTH, round % 2 == 0);
            let mut buffer = region(LENGTH);
            prepare(&mut buffer, LENGTH);
            let running = start_direct(&file, &transfer, &buffer);
            if round % 8 != 7 {
                dispatcher::delay(-200 * round);
                wsk::close_forcibly();
            }
            let status = Status(running.wait().status);
            drop(running);
            ended[usize::from(succeeded(&transfer, status, &buffer))] += 1;
            assert_eq!(close(&file, pair), Status::SUCCESS);
        }
    }
    assert!(ended.iter().all(|&rounds| rounds > 0), "broken, whole: {ended:?}");
    file.close();
    machine.finish();
}

/// A Send that succeeded across a stream may not have taken its receive yet.
fn sends_stay_within_the_receives() {
    let machine = Machine::with(&[Wish { streams: true, ..ORDINARY }; 2]);
    let file = machine.open();
    let pair = ask(&file, &create_request(&machine)).pair;
    for (depth, request_length) in [(1, 1), (2, 64), (4, 1), (16, 64), (16, 4096), (32, 256)] {
        let transfer = TransferRequest {
            operation: Operation::SEND,
            request_count: 8_192,
            request_length,
            depth,
            chain_length: depth.div_ceil(4),
            flags: TransferFlags::SILENT_SUCCESS,
            ..transfer_request(pair, 1_024 * u64::from(request_length))
        };
        assert_eq!(move_all(&file, &transfer).posted, 8_192);
    }
    assert_eq!(close(&file, pair), Status::SUCCESS);
    file.close();
    machine.finish();
}

/// A shortage at a socket breaks a stream, of which only one end may hear.
fn transfers_end_while_memory_is_short() {
    const LENGTH: u64 = 65_536;
    let machine = Machine::with(&[Wish { streams: true, ..ORDINARY }; 2]);
    let file = machine.open();
    let mut ended = [0, 0];
    for seed in 0..400 {
        let pair = ask(&file, &create_request(&machine)).pair;
        let operation = [Operation::READ, Operation::WRITE, Operation::SEND][seed as usize % 3];
        let all_at_once = seed % 2 == 0;
        let transfer = in_64_requests(pair, operation, LENGTH, all_at_once);
        let mut buffer = region(LENGTH);
        prepare(&mut buffer, LENGTH);
        // Posted a few at a time they take more calls.
        fault::fail_randomly(if all_at_once { 20 } else { 200 }, seed);
        let status = send_direct(&file, &transfer, &mut buffer);
        fault::stop();
        ended[usize::from(succeeded(&transfer, status, &buffer))] += 1;
        assert_eq!(close(&file, pair), Status::SUCCESS);
    }
    assert!(ended.iter().all(|&rounds| rounds > 10), "broken, whole: {ended:?}");
    file.close();
    machine.finish();
}

// Rule: IOCTL-9
fn halting_an_adapter_ends_sessions() {
    let mut machine = Machine::start();
    let file = machine.open();
    let request = create_request(&machine);
    let pair = ask(&file, &request).pair;
    let buffer = region(65_536);
    let running = start_direct(&file, &endless(pair), &buffer);
    machine.adapters.remove(1).remove();
    assert_eq!(Status(running.wait().status), Status::DEVICE_REMOVED);
    assert_eq!(send_direct(&file, &transfer_request(pair, 4096), &mut region(4096)), Status::DEVICE_REMOVED);
    refused(&file, &request, Status::DEVICE_DOES_NOT_EXIST);
    assert_eq!(list(&file).len(), 1);
    assert_eq!(close(&file, pair), Status::SUCCESS);
    file.close();
    machine.finish();
}

// Rule: IOCTL-1, IOCTL-9
fn requests_after_the_last_adapter_answer_device_removed() {
    let mut machine = Machine::start();
    let file = machine.open();
    for adapter in machine.adapters.drain(..) {
        adapter.remove();
    }
    for code in [AdapterListRequest::CODE, ObjectSummaryRequest::CODE] {
        let header = RequestHeader::of::<VersionRequest>();
        let (status, output) = send(&file, code, header.as_bytes(), 4096);
        assert_eq!(status, Status::DEVICE_REMOVED, "0x{code:08X}");
        assert!(output.is_empty());
    }
    file.close();
    machine.finish();
}

fn unload_with_handles_open() {
    let mut machine = Machine::start();
    let file = machine.open();
    let pair = ask(&file, &create_request(&machine)).pair;
    let buffer = region(65_536);
    let running = start_direct(&file, &endless(pair), &buffer);
    for adapter in machine.adapters.drain(..) {
        adapter.remove();
    }
    assert_eq!(Status(running.wait().status), Status::DEVICE_REMOVED);
    drop(running);
    // The handle outlives the adapters; the unload waits for its close.
    file.close();
    machine.finish();
}

/// The device is taken away only when no request is worked on any more: nothing of the driver runs for a handle afterwards.
// Rule: IOCTL-9
fn requests_are_over_when_the_last_adapter_is_gone() {
    let mut machine = Machine::start();
    let file = machine.open();
    let pair = ask(&file, &create_request(&machine)).pair;
    let (one, other, third) = (region(65_536), region(4096), region(4096));
    let transfer = start_direct(&file, &endless(pair), &one);
    let copies = [&other, &third].map(|buffer| start_direct(&file, &endless_memcpy(), buffer));
    assert!(!transfer.is_completed() && copies.iter().all(|request| !request.is_completed()));
    for adapter in machine.adapters.drain(..) {
        adapter.remove();
    }
    // The halt waits for the close of what the transfer stands on, and that for the transfer; copies need no adapter.
    assert!(transfer.is_completed(), "a transfer outlives its adapter");
    assert_eq!(Status(transfer.wait().status), Status::DEVICE_REMOVED);
    for request in copies {
        assert!(!request.is_completed(), "a copy ends with an adapter that it does not use");
        assert!(request.cancel());
        assert_eq!(Status(request.wait().status), Status::CANCELLED);
    }
    refused(&file, &VersionRequest { header: RequestHeader::of::<VersionRequest>() }, Status::DEVICE_REMOVED);
    file.close();
    machine.finish();
}

/// NDIS does not promise that cleanup and close of a handle reach a driver that has taken its device back.
// Rule: IOCTL-9
fn handles_without_their_last_requests_are_freed() {
    let mut machine = Machine::start();
    let files = [(); 4].map(|()| machine.open());
    let mut pairs = files.iter().map(|file| ask(file, &create_request(&machine)).pair).collect::<Vec<_>>();
    let [first, second, third, fourth] = files;
    // Out of the middle, the end and the start of any list.
    second.close();
    assert_eq!(objects(&third).files, 3);
    assert_eq!(close(&third, pairs.remove(2)), Status::SUCCESS);
    keep_packets_of_gone_devices(true);
    for adapter in machine.adapters.drain(..) {
        adapter.remove();
    }
    for file in [third, first, fourth] {
        file.close();
    }
    machine.finish();
}

fn a_handle_outlives_the_device_and_serves_the_next_one() {
    let machine = Machine::start();
    let file = machine.open();
    let request = create_request(&machine);
    let pair = ask(&file, &request).pair;
    for adapter in &machine.adapters {
        adapter.halt(HaltAction::DeviceDisabled).expect("a halt");
    }
    refused(&file, &request, Status::DEVICE_DOES_NOT_EXIST);
    for adapter in &machine.adapters {
        adapter.start().unwrap_or_else(|error| panic!("starting again: {error}"));
    }
    assert_eq!(close(&file, pair), Status::SUCCESS, "the pair that ended is still the file's");
    assert_eq!(list(&file).len(), 2);
    let again = ask(&file, &create_request(&machine)).pair;
    assert_eq!(close(&file, again), Status::SUCCESS);
    file.close();
    machine.finish();
}
