//! Measurements: each operation on the real images, every refusal, and ends in the middle.

use super::handles::File;
use super::machine::{Machine, ORDINARY, Wish, list, region, send_direct, start_direct};
use super::pairs::objects;
use super::{Case, cases};
use kernel_host::memory::user_buffer::UserBuffer;
use kernel_host::{FrameOrder, fault};
use softndk_ioctl::{
    AddressFamily, BufferLayout, MeasureFlags, MeasureRequest, MeasureResult, MeasuredOperation, RegionKind,
    RequestHeader, Status, scattered_page,
};
use zerocopy::{FromBytes, FromZeros};

pub const CASES: &[Case] = cases![
    transfers_move_every_byte_and_count_every_request,
    every_registration_is_measured,
    connections_and_processors_have_parts_of_their_own,
    notifications_are_waited_for_and_latency_is_kept,
    fast_registrations_have_their_pages_in_order,
    connections_come_and_go,
    notifications_come_from_the_other_processor,
    idle_connections_leave_nothing,
    fields_out_of_range_are_refused,
    adapters_and_their_limits_refuse,
    buffers_that_do_not_fit_are_refused,
    a_cancelled_measurement_answers_cancelled,
    closing_the_file_cancels_its_measurement,
    disabling_ndk_ends_measurements,
    pulling_an_adapter_out_ends_measurements,
    a_shortage_ends_a_measurement_across_streams_at_once,
];

/// What is measured unless a case says otherwise: two chains of four Reads of 64 bytes.
pub fn read() -> MeasureRequest {
    MeasureRequest {
        header: RequestHeader::of::<MeasureRequest>(),
        server_adapter: 1,
        operation: MeasuredOperation::READ,
        region_kind: RegionKind::REGISTERED,
        region_length: 256,
        request_count: 8,
        request_length: 64,
        sge_count: 1,
        depth: 4,
        chain_length: 4,
        connection_count: 1,
        processor_count: 1,
        ..MeasureRequest::new_zeroed()
    }
}

/// One at a time, without data of its own.
pub fn single(operation: MeasuredOperation) -> MeasureRequest {
    let single = MeasureRequest { operation, depth: 1, chain_length: 1, ..read() };
    match operation {
        MeasuredOperation::NOTIFY => MeasureRequest { region_length: 64, ..single },
        MeasuredOperation::FAST_REGISTER => {
            MeasureRequest { region_length: 5 * 4096, request_length: 5 * 4096, ..single }
        }
        MeasuredOperation::CONNECT => MeasureRequest { region_length: 0, request_length: 0, ..single },
        MeasuredOperation::IDLE => {
            MeasureRequest { region_length: 0, request_length: 0, request_count: 0, connection_count: 9, ..single }
        }
        _ => single,
    }
}

/// Loops that do not end by themselves.
fn endless() -> [MeasureRequest; 6] {
    let count = |request| MeasureRequest { request_count: u64::MAX / 4 * 4, ..request };
    [
        count(read()),
        count(MeasureRequest { operation: MeasuredOperation::SEND, ..read() }),
        count(MeasureRequest { flags: MeasureFlags::NOTIFY, processor_count: 2, ..read() }),
        count(single(MeasuredOperation::FAST_REGISTER)),
        count(single(MeasuredOperation::CONNECT)),
        count(single(MeasuredOperation::NOTIFY)),
    ]
}

/// Memory for a request, with a pattern in the source.
fn buffer_for(request: &MeasureRequest) -> (UserBuffer, BufferLayout) {
    let layout = request.check_fields().expect("a good request");
    let mut buffer = UserBuffer::with_offset(layout.total as usize, 0, FrameOrder::Scattered);
    let source = layout.source as usize..(layout.source + layout.region_length) as usize;
    for (number, byte) in buffer.as_mut_slice()[source].iter_mut().enumerate() {
        *byte = (number / 7 + number * 3 + 1) as u8;
    }
    (buffer, layout)
}

/// Measures; result, source and destination.
#[track_caller]
pub fn measured(file: &File, request: &MeasureRequest) -> (MeasureResult, Vec<u8>, Vec<u8>) {
    let (mut buffer, layout) = buffer_for(request);
    assert_eq!(send_direct(file, request, &mut buffer), Status::SUCCESS, "{request:?}");
    let part = |from: u64| buffer.as_slice()[from as usize..(from + layout.region_length) as usize].to_vec();
    let result = MeasureResult::read_from_prefix(buffer.as_slice()).expect("a page").0;
    assert_eq!(result.header, RequestHeader::of::<MeasureResult>());
    assert_eq!(result.processor_count, request.processor_count);
    (result, part(layout.source), part(layout.destination))
}

/// Nothing but files is left.
#[track_caller]
fn nothing_is_left(file: &File) {
    let left = objects(file);
    assert_eq!((left.queue_pairs, left.connectors, left.memory_regions, left.logical_mappings), (0, 0, 0, 0));
}

#[track_caller]
pub fn refused(file: &File, request: &MeasureRequest, expected: Status) {
    let mut buffer = region(65_536);
    assert_eq!(send_direct(file, request, &mut buffer), expected, "{request:?}");
    assert!(buffer.as_slice()[..4096].iter().all(|byte| *byte == 0), "no result");
}

pub fn with_file(work: impl FnOnce(&File)) {
    let machine = Machine::start();
    let file = machine.open();
    work(&file);
    nothing_is_left(&file);
    file.close();
    machine.finish();
}

fn transfers_move_every_byte_and_count_every_request() {
    with_file(|file| {
        for operation in [MeasuredOperation::READ, MeasuredOperation::WRITE, MeasuredOperation::SEND] {
            let inline =
                if operation == MeasuredOperation::READ { MeasureFlags::empty() } else { MeasureFlags::INLINE };
            for (flags, depth, sge_count) in [
                (MeasureFlags::empty(), 4, 1),
                (MeasureFlags::AT_DISPATCH, 9, 3),
                (MeasureFlags::MEASURE_LATENCY, 4, 1),
                (MeasureFlags::AT_DISPATCH | MeasureFlags::MEASURE_LATENCY, 4, 1),
                (inline, 8, 2),
            ] {
                let request = MeasureRequest { operation, flags, depth, sge_count, request_count: 80, ..read() };
                let (result, source, destination) = measured(file, &request);
                assert_eq!((result.posted, result.completed), (80, 80), "{request:?}");
                assert_eq!(result.received, if operation == MeasuredOperation::SEND { 80 } else { 0 });
                assert_eq!(source, destination, "{request:?}");
                let timed = flags.contains(MeasureFlags::MEASURE_LATENCY);
                assert_eq!(result.latency.count, if timed { 20 } else { 0 });
            }
            let empty = MeasureRequest { operation, region_length: 0, request_length: 0, ..read() };
            assert_eq!(measured(file, &empty).0.completed, 8);
        }
    });
}

fn every_registration_is_measured() {
    with_file(|file| {
        let kinds = [RegionKind::REGISTERED, RegionKind::FAST_REGISTERED, RegionKind::WINDOW];
        for region_kind in kinds {
            for operation in [MeasuredOperation::READ, MeasuredOperation::WRITE, MeasuredOperation::SEND] {
                if (region_kind, operation) == (RegionKind::WINDOW, MeasuredOperation::SEND) {
                    continue;
                }
                let (_, source, destination) = measured(file, &MeasureRequest { operation, region_kind, ..read() });
                assert_eq!(source, destination, "{region_kind:?} {operation:?}");
            }
        }
    });
}

fn connections_and_processors_have_parts_of_their_own() {
    with_file(|file| {
        for (connection_count, processor_count) in [(5, 1), (1, 2), (3, 2)] {
            let request = MeasureRequest { connection_count, processor_count, request_count: 64, ..read() };
            let (result, source, destination) = measured(file, &request);
            assert_eq!((result.posted, result.completed), (64 * u64::from(processor_count), result.posted));
            for processor in 0..processor_count {
                let begin = request.part(processor) as usize;
                assert_eq!(source[begin..begin + 256], destination[begin..begin + 256]);
                assert!(destination[begin + 256..].iter().take(100).all(|byte| *byte == 0), "beyond the part");
            }
        }
    });
}

fn notifications_are_waited_for_and_latency_is_kept() {
    with_file(|file| {
        for operation in [MeasuredOperation::READ, MeasuredOperation::SEND] {
            let flags = MeasureFlags::NOTIFY | MeasureFlags::MEASURE_LATENCY;
            let (result, source, destination) = measured(file, &MeasureRequest { operation, flags, ..read() });
            assert_eq!((result.completed, result.latency.count), (8, 2));
            assert!(result.notifications >= 2, "{} notifications", result.notifications);
            assert_eq!(source, destination);
        }
    });
}

fn fast_registrations_have_their_pages_in_order() {
    with_file(|file| {
        for (pages, flags) in [(1, 0), (5, 0), (2, 8), (5, 8), (16, 8)] {
            let length = pages * 4096;
            let flags = MeasureFlags::from_bits_retain(flags);
            let request = MeasureRequest {
                flags,
                region_length: length,
                request_length: length as u32,
                ..single(MeasuredOperation::FAST_REGISTER)
            };
            let (result, source, destination) = measured(file, &request);
            assert_eq!((result.posted, result.completed), (16, 16));
            assert!(u64::from(result.page_runs) <= pages && result.page_runs > 0);
            for place in 0..pages {
                let scattered = flags.contains(MeasureFlags::SCATTERED);
                let page = if scattered { scattered_page(place, pages) } else { place };
                let bytes = |page: u64| page as usize * 4096..(page as usize + 1) * 4096;
                assert_eq!(destination[bytes(place)], source[bytes(page)], "page {place} of {pages}");
            }
        }
    });
}

fn connections_come_and_go() {
    with_file(|file| {
        let (result, ..) = measured(file, &MeasureRequest { request_count: 20, ..single(MeasuredOperation::CONNECT) });
        assert_eq!((result.posted, result.completed), (0, 0));
    });
}

fn notifications_come_from_the_other_processor() {
    with_file(|file| {
        let (result, ..) = measured(file, &MeasureRequest { request_count: 20, ..single(MeasuredOperation::NOTIFY) });
        assert_eq!((result.posted, result.completed, result.notifications), (20, 20, 20));
        assert_eq!((result.latency.count, result.elsewhere), (20, 0));
    });
}

fn idle_connections_leave_nothing() {
    with_file(|file| {
        let (result, ..) = measured(file, &single(MeasuredOperation::IDLE));
        assert_eq!((result.posted, result.elapsed), (0, 0));
    });
}

/// Which values they are is tested beside the request; here that the driver looks at each field.
fn fields_out_of_range_are_refused() {
    with_file(|file| {
        let wrong: [fn(&mut MeasureRequest); 18] = [
            |request| request.family = AddressFamily(9),
            |request| request.reserved = 1,
            |request| request.operation = MeasuredOperation(0),
            |request| request.operation = MeasuredOperation(8),
            |request| request.region_kind = RegionKind(0),
            |request| request.region_kind = RegionKind(5),
            |request| request.flags = MeasureFlags::from_bits_retain(32),
            |request| request.flags = MeasureFlags::INLINE,
            |request| request.region_length = u64::MAX,
            |request| request.region_length = 255,
            |request| request.request_count = 0,
            |request| request.request_count = 9,
            |request| request.request_length = 0,
            |request| request.sge_count = 0,
            |request| request.depth = 3,
            |request| request.chain_length = 0,
            |request| request.connection_count = 10_001,
            |request| request.processor_count = 65,
        ];
        for change in wrong {
            let mut request = read();
            change(&mut request);
            refused(file, &request, Status::INVALID_PARAMETER);
        }
    });
}

fn adapters_and_their_limits_refuse() {
    with_file(|file| {
        // The machine has two processors.
        refused(file, &MeasureRequest { processor_count: 3, ..read() }, Status::INVALID_PARAMETER);
        refused(file, &MeasureRequest { client_adapter: 2, ..read() }, Status::DEVICE_DOES_NOT_EXIST);
        refused(file, &MeasureRequest { server_adapter: u32::MAX, ..read() }, Status::DEVICE_DOES_NOT_EXIST);
        let limits = &list(file)[0].limits;
        let wide = MeasureRequest { sge_count: limits.max_initiator_request_sge + 1, ..read() };
        refused(file, &wide, Status::INVALID_PARAMETER);
        let deep = MeasureRequest { depth: limits.max_initiator_queue_depth + 1, ..read() };
        refused(file, &deep, Status::INVALID_PARAMETER);
    });
}

fn buffers_that_do_not_fit_are_refused() {
    with_file(|file| {
        let request = read();
        let layout = request.check_fields().expect("a good request");
        let sized = |length| UserBuffer::with_offset(length, 0, FrameOrder::Scattered);
        for length in [4096, layout.total as usize - 1] {
            assert_eq!(send_direct(file, &request, &mut sized(length)), Status::BUFFER_TOO_SMALL, "{length} bytes");
        }
        let mut shifted = UserBuffer::with_offset(layout.total as usize, 64, FrameOrder::Scattered);
        assert_eq!(send_direct(file, &request, &mut shifted), Status::DATATYPE_MISALIGNMENT);
    });
}

// Rule: IOCTL-7
fn a_cancelled_measurement_answers_cancelled() {
    with_file(|file| {
        for request in endless() {
            let (buffer, _) = buffer_for(&request);
            let running = start_direct(file, &request, &buffer);
            while objects(file).queue_pairs == 0 && !running.is_completed() {
                std::thread::yield_now();
            }
            assert!(running.cancel(), "{request:?}");
            let answer = running.wait();
            assert_eq!((Status(answer.status), answer.information), (Status::CANCELLED, 0), "{request:?}");
        }
    });
}

// Rule: IOCTL-8
fn closing_the_file_cancels_its_measurement() {
    let machine = Machine::start();
    for request in endless() {
        let file = machine.open();
        let (buffer, _) = buffer_for(&request);
        let running = start_direct(&file, &request, &buffer);
        file.close();
        assert_eq!(Status(running.wait().status), Status::CANCELLED, "{request:?}");
    }
    machine.finish();
}

/// The provider waits for its adapters to be closed: the loop has to notice that its connection went.
// Rule: IOCTL-9
fn disabling_ndk_ends_measurements() {
    let machine = Machine::start();
    let file = machine.open();
    for request in endless() {
        let (buffer, _) = buffer_for(&request);
        let running = start_direct(&file, &request, &buffer);
        machine.wait_until(|| objects(&file).connectors >= 2 || running.is_completed());
        super::endings::set_ndk(&machine, false);
        assert_eq!(Status(running.wait().status), Status::DEVICE_REMOVED, "{request:?}");
        super::endings::set_ndk(&machine, true);
        nothing_is_left(&file);
    }
    assert_eq!(measured(&file, &read()).0.completed, 8);
    file.close();
    machine.finish();
}

// Rule: IOCTL-9
fn pulling_an_adapter_out_ends_measurements() {
    let mut machine = Machine::start();
    let file = machine.open();
    let [request, ..] = endless();
    let (buffer, _) = buffer_for(&request);
    let running = start_direct(&file, &request, &buffer);
    machine.wait_until(|| objects(&file).connectors >= 2);
    machine.adapters.remove(1).remove();
    assert_eq!(Status(running.wait().status), Status::DEVICE_REMOVED);
    file.close();
    machine.finish();
}

/// Not when a connect that nothing answers has waited for its limit.
fn a_shortage_ends_a_measurement_across_streams_at_once() {
    let machine = Machine::with(&[Wish { streams: true, ..ORDINARY }; 2]);
    let file = machine.open();
    let kinds = [
        MeasureRequest { request_count: 8, ..read() },
        MeasureRequest { request_count: 8, operation: MeasuredOperation::SEND, ..read() },
        MeasureRequest { request_count: 4, ..single(MeasuredOperation::CONNECT) },
    ];
    let mut ended = [0, 0];
    for seed in 0..150 {
        let request = &kinds[seed as usize % kinds.len()];
        let (mut buffer, _) = buffer_for(request);
        fault::fail_randomly(400, seed);
        let status = send_direct(&file, request, &mut buffer);
        fault::stop();
        assert_ne!(status, Status::IO_TIMEOUT, "{request:?}, {seed}");
        nothing_is_left(&file);
        ended[usize::from(status == Status::SUCCESS)] += 1;
    }
    assert!(ended.iter().all(|&runs| runs > 10), "refused, whole: {ended:?}");
    file.close();
    machine.finish();
}
