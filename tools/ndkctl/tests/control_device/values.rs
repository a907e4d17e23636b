//! Values unlike their neighbours: in each trial no two numbers of a request or an answer are alike, none is zero where it may be another,
//! and each flag is alone, so that a field that is forgotten, or taken for the one beside it, shows (xtask/lists/arguments.txt).

use super::handles::File;
use super::machine::{Machine, ORDINARY, Wish, ask, image, list, region, result_of, send, send_direct};
use super::measurements::{measured, read as measured_read, refused as measurement_refused, single, with_file};
use super::pairs::{close, create_request, objects};
use super::replay::replay;
use super::transfers::{memcpy_request, move_all, prepare, transfer_request, with_pair};
use super::{Case, cases};
use kernel_host::KernelConfig;
use kernel_host::inf::AdapterConfig;
use ndkctl::script::{encode, parse};
use softndk_ioctl::{
    ABI_VERSION, ADAPTER_ADDRESS_MAX, AdapterAddress, AdapterEntry, AdapterFlags, AddressFamily, COMMIT_FIELD,
    CompletionModeInForce, EndReason, Histogram, LimitsProfileInForce, MeasureFlags, MeasureRequest, MeasuredOperation,
    MemcpyRequest, Operation, PairCreateRequest, PairFlags, PairModerationRequest, RefusalEntry, RefusalListReply,
    RefusalListRequest, RegionKind, Request, RequestHeader, Status, Technology, TransferFlags, TransferRequest,
    TransferResult, VersionFlags, VersionReply, VersionRequest,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use zerocopy::{FromBytes, IntoBytes};

pub const CASES: &[Case] = cases![
    versions_say_which_driver_it_is,
    an_adapter_is_listed_with_its_own_numbers,
    a_pair_has_each_number_in_its_place,
    a_pair_has_the_addresses_of_its_adapters,
    each_option_of_a_pair_alone,
    moderation_by_time_notifies,
    a_transfer_has_each_number_in_its_place,
    times_of_a_transfer_contain_each_other,
    times_before_and_after_are_not_each_other,
    each_flag_of_a_transfer_needs_its_operation,
    each_flag_of_a_copy_is_refused,
    a_copy_has_each_number_in_its_place,
    a_measurement_connects_from_its_client,
    each_flag_of_a_measurement_needs_its_operation,
    a_measurement_has_each_number_in_its_place,
    refusals_are_listed_from_the_number_that_is_asked_for,
];

/// No two are alike, none is the adapter's own, and none is zero.
const LINK_SPEED_MBPS: u64 = 25_000;
const WIRE: u32 = 7;
const ROCE_V2: Technology = Technology::ROCE_V2;

fn near(host: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 0x10 + host))
}

/// Adapters that have a link-local address each, whose zone is the interface, and no other IPv6 address.
fn with_near_addresses() -> Machine {
    let wish = Wish { ipv6: false, ..ORDINARY };
    Machine::with_changed(&[wish, wish], |number, config| config.with_address(near(number as u16), 10))
}

// Rule: VALUES-1
fn versions_say_which_driver_it_is() {
    let machine = Machine::start();
    let file = machine.open();
    let number = |text: &str| text.parse::<u16>().expect("a number");
    let own = [number(env!("CARGO_PKG_VERSION_MAJOR")), number(env!("CARGO_PKG_VERSION_MINOR")), 0, 0];
    let release = image().parent().is_some_and(|folder| folder.ends_with("release"));
    let build = if release { VersionFlags::empty() } else { VersionFlags::DEBUG_BUILD };
    let expected = |ndis_version, ndkpi_version, flags| VersionReply {
        header: RequestHeader::of::<VersionReply>(),
        driver_version: own,
        ndis_version,
        ndkpi_version,
        processor_count: KernelConfig::default().processors as u32,
        flags,
        commit: COMMIT_FIELD,
    };
    let request = VersionRequest { header: RequestHeader { version: ABI_VERSION, size: 8 } };
    assert_eq!(ask(&file, &request), expected([6, 60], [2, 1], build));
    let mut output = vec![0; size_of::<VersionReply>()];
    let answer = file.consumer().ioctl(VersionRequest::CODE, request.as_bytes(), &mut output);
    assert_eq!(Status(answer.status), Status::SUCCESS);
    let consumer = VersionReply::read_from_bytes(&output).expect("a whole reply");
    assert_eq!(consumer, expected([0; 2], [0; 2], build | VersionFlags::TRANSFERS));
    file.close();
    machine.finish();
}

// Rule: VALUES-1
fn an_adapter_is_listed_with_its_own_numbers() {
    let many = |host| IpAddr::V4(Ipv4Addr::new(10, 1, 0, host));
    let machine = Machine::with_changed(&[Wish { wire: WIRE, ..ORDINARY }; 2], |number, config: AdapterConfig| {
        if number == 1 {
            return (1..=15).fold(config, |config, host| config.with_address(many(host), 20));
        }
        config
            .with_keyword("LinkSpeedMbps", &LINK_SPEED_MBPS.to_string())
            .with_keyword("*NetworkDirectTechnology", &ROCE_V2.0.to_string())
            .with_keyword("CompletionMode", "1")
            .with_keyword("LimitsProfile", "2")
            .with_address(near(0), 10)
    });
    let file = machine.open();
    let [first, second]: [_; 2] = list(&file).try_into().expect("two adapters");
    let adapter = &machine.adapters[0];
    assert_eq!((first.net_luid, first.interface_index), (adapter.luid(), adapter.if_index()));
    assert_eq!(first.link_speed, LINK_SPEED_MBPS * 1_000_000);
    assert_eq!((first.wire_number, first.mtu, first.technology), (WIRE, 1500, ROCE_V2));
    assert_eq!(first.flags, AdapterFlags::NDK_ENABLED | AdapterFlags::RUNNING | AdapterFlags::LINK_UP);
    let in_force = |entry: &AdapterEntry| (entry.completion_mode, entry.limits_profile);
    assert_eq!(in_force(&first), (CompletionModeInForce::FORCE_ASYNC, LimitsProfileInForce::TINY));
    assert_eq!(in_force(&second), (CompletionModeInForce::AUTO, LimitsProfileInForce::CONNECTX_LIKE));
    assert_eq!((first.limits.vendor_id, first.limits.device_id), (0x00FF_FFFF, 1));
    let mut addresses = [AdapterAddress::UNUSED; ADAPTER_ADDRESS_MAX];
    addresses[0] = AdapterAddress::new(Ipv4Addr::new(10, 0, 0, 1).into(), 24, 0);
    addresses[1] = AdapterAddress::new(Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, 1).into(), 64, 0);
    addresses[2] = AdapterAddress::new(near(0), 10, adapter.if_index());
    assert_eq!((first.address_count, first.addresses), (3, addresses));
    assert_eq!(second.address_count as usize, ADAPTER_ADDRESS_MAX);
    assert_eq!(second.flags, first.flags | AdapterFlags::MORE_ADDRESSES);
    file.close();
    machine.finish();
}

/// The client is the second adapter, and the family is not the one that is taken without a wish.
fn unlike_request() -> PairCreateRequest {
    PairCreateRequest {
        header: RequestHeader::of::<PairCreateRequest>(),
        client_adapter: 1,
        server_adapter: 0,
        family: AddressFamily::IPV6,
        port: 0x1234,
        flags: PairFlags::empty(),
        initiator_queue_depth: 5,
        receive_queue_depth: 3,
        max_request_sge: 2,
        read_limit: 4,
    }
}

/// The first port of those that are given out.
const DYNAMIC_PORTS: u16 = 49_152;

// Rule: VALUES-1
fn a_pair_has_each_number_in_its_place() {
    let machine = Machine::start();
    let file = machine.open();
    let pair = ask(&file, &unlike_request());
    assert_eq!((pair.initiator_queue_depth, pair.receive_queue_depth), (5, 3));
    assert_eq!((pair.max_request_sge, pair.read_limit), (2, 4));
    let [client, server] = [2, 1].map(|host| Some(IpAddr::V6(Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, host))));
    assert_eq!((pair.client.address.ip(), pair.server.address.ip()), (client, server));
    assert_eq!(pair.server.port, 0x1234);
    assert!(pair.client.port >= DYNAMIC_PORTS, "{}", pair.client.port);
    let send = |depth, sge_count| {
        let request = TransferRequest {
            operation: Operation::SEND,
            depth,
            sge_count,
            request_count: 6,
            request_length: 700,
            ..transfer_request(pair.pair, 4096)
        };
        send_direct(&file, &request, &mut region(4096))
    };
    assert_eq!(send(3, 2), Status::SUCCESS);
    assert_eq!(send(4, 1), Status::INVALID_PARAMETER, "three receives");
    assert_eq!(send(1, 3), Status::INVALID_PARAMETER, "two elements");
    assert_eq!(close(&file, pair.pair), Status::SUCCESS);
    file.close();
    machine.finish();
}

// Rule: VALUES-1
fn a_pair_has_the_addresses_of_its_adapters() {
    let machine = with_near_addresses();
    let file = machine.open();
    let pair = ask(&file, &unlike_request());
    let [server, client] =
        [0, 1].map(|number| AdapterAddress::new(near(number), 0, machine.adapters[usize::from(number)].if_index()));
    assert_eq!((pair.client.address, pair.server.address), (client, server));
    assert_eq!(close(&file, pair.pair), Status::SUCCESS);
    file.close();
    machine.finish();
}

// Rule: VALUES-1
fn each_option_of_a_pair_alone() {
    let machine = Machine::start();
    let file = machine.open();
    for flags in [PairFlags::empty(), PairFlags::NOTIFY, PairFlags::SHARED_RECEIVE] {
        let pair = ask(&file, &PairCreateRequest { flags, ..create_request(&machine) }).pair;
        let shares = objects(&file).shared_receive_queues == 1;
        let notifies = move_all(&file, &transfer_request(pair, 4096)).notifications > 0;
        assert_eq!((notifies, shares), (flags == PairFlags::NOTIFY, flags == PairFlags::SHARED_RECEIVE), "{flags:?}");
        assert_eq!(close(&file, pair), Status::SUCCESS);
    }
    file.close();
    machine.finish();
}

#[track_caller]
fn moderate(file: &File, pair: u32, interval: u32, count: u32) {
    let header = RequestHeader::of::<PairModerationRequest>();
    let request = PairModerationRequest { header, pair, interval, count, reserved: 0 };
    assert_eq!(send(file, PairModerationRequest::CODE, request.as_bytes(), 0).0, Status::SUCCESS);
}

/// One completion is notified of after three microseconds, long before there are four million.
// Rule: VALUES-1
fn moderation_by_time_notifies() {
    with_pair(
        |request| request.flags = PairFlags::NOTIFY,
        |_, file, pair| {
            moderate(file, pair, 3, 4_000_000);
            assert_eq!(move_all(file, &transfer_request(pair, 4096)).notifications, 1);
        },
    );
}

/// What the clock says; all other numbers of a result are known.
fn timed(result: &TransferResult) -> TransferResult {
    let TransferResult { elapsed, setup, teardown, .. } = *result;
    assert!(elapsed > 0, "{result:?}");
    TransferResult { elapsed, setup, teardown, ..TransferResult::EMPTY }
}

// Rule: VALUES-1
fn a_transfer_has_each_number_in_its_place() {
    with_pair(
        |_| {},
        |_, file, pair| {
            let request = TransferRequest {
                operation: Operation::WRITE,
                region_kind: RegionKind::LOGICAL,
                flags: TransferFlags::SILENT_SUCCESS,
                region_length: 5000,
                request_count: 24,
                request_length: 700,
                sge_count: 3,
                depth: 12,
                chain_length: 4,
                ..transfer_request(pair, 5000)
            };
            let result = move_all(file, &request);
            // Three times around, and three of the eight requests of a fourth.
            let expected = TransferResult { posted: 24, completed: 6, silent: 18, bytes: 15_000, ..timed(&result) };
            assert_eq!(result, expected);
            // All are under way at once; each fifth and the last are signalled.
            let signalled = TransferRequest { flags: TransferFlags::empty(), signal_interval: 5, depth: 25, ..request };
            let result = move_all(file, &TransferRequest { chain_length: 1, ..signalled });
            assert_eq!((result.completed, result.silent, result.end_reason), (5, 19, EndReason::COUNT));
            let result = move_all(file, &TransferRequest { request_count: 0, time_budget: 20, ..request });
            assert_eq!((result.end_reason, result.notifications), (EndReason::TIME_BUDGET, 0));
            assert!(result.elapsed >= 20_000_000, "{result:?}");
        },
    );
}

/// The second of two notifications is held back for fifty milliseconds.
// Rule: VALUES-1
fn times_of_a_transfer_contain_each_other() {
    with_pair(
        |request| request.flags = PairFlags::NOTIFY,
        |_, file, pair| {
            moderate(file, pair, 50_000, 2);
            let request = TransferRequest {
                flags: TransferFlags::MEASURE_LATENCY,
                request_count: 3,
                request_length: 700,
                depth: 2,
                ..transfer_request(pair, 2000)
            };
            let result = move_all(file, &request);
            assert_eq!(result.notifications, 2);
            latency_agrees(&result.latency, 3);
            assert!(result.elapsed >= result.latency.max, "{result:?}");
        },
    );
}

/// In a schedule it takes longer to map for a copy than to unmap, and to deregister than to register; the warm-up of connections, which is as
/// long as what is measured, comes before it.
// Rule: VALUES-1
fn times_before_and_after_are_not_each_other() {
    let machine = Machine::in_schedule();
    let file = machine.open();
    // Shortest times: a thread that comes between makes one longer.
    let copies: Vec<_> = (0..9).map(|_| copied(&file, &memcpy_request(4096))).collect();
    let shortest = |time: fn(&TransferResult) -> u64| copies.iter().map(time).min();
    let (setup, teardown) = (shortest(|copy| copy.setup), shortest(|copy| copy.teardown));
    assert!(Some(0) < teardown && teardown < setup, "{setup:?} {teardown:?}");
    let (measured, ..) = measured(&file, &MeasureRequest { request_count: 16, ..single(MeasuredOperation::CONNECT) });
    let (before, half, after) = (measured.setup, measured.elapsed / 2, measured.teardown);
    assert!(0 < after && after < half && half < before, "{before} {half} {after}");
    let pair = ask(&file, &create_request(&machine)).pair;
    machine.wait_until_idle();
    let moved = move_all(&file, &transfer_request(pair, 4096));
    assert!(moved.setup > 0 && moved.setup < moved.teardown, "{} {}", moved.setup, moved.teardown);
    assert_eq!(close(&file, pair), Status::SUCCESS);
    file.close();
    machine.finish();
}

/// Samples that are not all alike, each in a bucket.
#[track_caller]
fn latency_agrees(latency: &Histogram, count: u64) {
    let Histogram { min, max, sum, buckets, .. } = latency;
    assert_eq!((latency.count, buckets.iter().map(|bucket| u64::from(*bucket)).sum()), (count, count));
    assert!(*min < *max && *sum >= min + max && *sum <= count * max, "{count} {sum} {min} {max}");
}

// Rule: VALUES-1, IOCTL-4
fn each_flag_of_a_transfer_needs_its_operation() {
    with_pair(
        |_| {},
        |_, file, pair| {
            let refused = |operation, flags| {
                let request = TransferRequest { operation, flags, ..transfer_request(pair, 64) };
                send_direct(file, &request, &mut region(64)) == Status::INVALID_PARAMETER
            };
            for (flags, no_read, no_write, no_send) in [
                (TransferFlags::MEASURE_LATENCY, false, false, false),
                (TransferFlags::READ_FENCE, false, false, false),
                (TransferFlags::SILENT_SUCCESS, false, false, false),
                (TransferFlags::INLINE, true, false, false),
                (TransferFlags::REMOTE_INVALIDATE, true, true, true),
                (TransferFlags::SOLICITED, true, true, false),
                (TransferFlags::LOCAL_INVALIDATE, true, true, true),
            ] {
                let seen = [Operation::READ, Operation::WRITE, Operation::SEND].map(|one| refused(one, flags));
                assert_eq!(seen, [no_read, no_write, no_send], "{flags:?}");
            }
        },
    );
}

// Rule: VALUES-1, IOCTL-4
fn each_flag_of_a_copy_is_refused() {
    let machine = Machine::start();
    let file = machine.open();
    for flags in TransferFlags::all().iter().filter(|flags| *flags != TransferFlags::MEASURE_LATENCY) {
        let request = MemcpyRequest { flags, ..memcpy_request(64) };
        assert_eq!(send_direct(&file, &request, &mut region(64)), Status::INVALID_PARAMETER, "{flags:?}");
    }
    file.close();
    machine.finish();
}

/// Copies, and gives the result.
#[track_caller]
fn copied(file: &File, request: &MemcpyRequest) -> TransferResult {
    let mut buffer = region(request.region_length);
    prepare(&mut buffer, request.region_length);
    assert_eq!(send_direct(file, request, &mut buffer), Status::SUCCESS);
    result_of(&buffer)
}

// Rule: VALUES-1
fn a_copy_has_each_number_in_its_place() {
    let machine = Machine::start();
    let file = machine.open();
    let request = MemcpyRequest { request_count: 24, request_length: 700, ..memcpy_request(5000) };
    let result = copied(&file, &request);
    assert_eq!(result, TransferResult { posted: 24, completed: 24, bytes: 15_000, ..timed(&result) });
    let flags = TransferFlags::MEASURE_LATENCY;
    let result = copied(&file, &MemcpyRequest { flags, request_count: 0, time_budget: 20, ..request });
    assert_eq!((result.end_reason, result.silent, result.failed), (EndReason::TIME_BUDGET, 0, 0));
    assert_eq!((result.notifications, result.other_failures), (0, 0));
    assert!(result.elapsed >= 20_000_000, "{result:?}");
    latency_agrees(&result.latency, result.posted);
    file.close();
    machine.finish();
}

// Rule: VALUES-1
fn a_measurement_connects_from_its_client() {
    with_file(|file| {
        let connections = || {
            list(file).iter().map(|adapter| adapter.counters).map(|all| (all.connects, all.accepts)).collect::<Vec<_>>()
        };
        assert_eq!(connections(), [(0, 0), (0, 0)]);
        measured(file, &MeasureRequest { client_adapter: 1, server_adapter: 0, depth: 9, ..measured_read() });
        assert_eq!(connections(), [(0, 1), (1, 0)]);
    });
}

// Rule: VALUES-1, IOCTL-4
fn each_flag_of_a_measurement_needs_its_operation() {
    with_file(|file| {
        let notify = single(MeasuredOperation::NOTIFY);
        for flags in MeasureFlags::all().iter() {
            measurement_refused(file, &MeasureRequest { flags, ..notify }, Status::INVALID_PARAMETER);
        }
    });
}

// Rule: VALUES-1
fn a_measurement_has_each_number_in_its_place() {
    with_file(|file| {
        let flags = MeasureFlags::NOTIFY | MeasureFlags::MEASURE_LATENCY;
        let request =
            MeasureRequest { flags, operation: MeasuredOperation::SEND, request_count: 400, ..measured_read() };
        let (result, ..) = measured(file, &request);
        assert_eq!((result.posted, result.completed, result.received), (400, 400, 400));
        assert_eq!((result.elsewhere, result.page_runs), (0, 0));
        latency_agrees(&result.latency, 100);
        assert!(result.elapsed >= result.latency.sum, "{result:?}");
        assert_eq!((result.processors[0], &result.processors[1..]), (result.elapsed, &[0; 63][..]));
    });
}

/// One part of the list, from a number on.
fn refusals(file: &File, first: u64, capacity: usize) -> (RefusalListReply, Vec<RefusalEntry>) {
    let request = RefusalListRequest { header: RequestHeader::of::<RefusalListRequest>(), first };
    let length = size_of::<RefusalListReply>() + capacity * size_of::<RefusalEntry>();
    let (status, output) = send(file, RefusalListRequest::CODE, request.as_bytes(), length);
    assert_eq!(status, Status::SUCCESS);
    let (fixed, entries) = RefusalListReply::read_from_prefix(&output).expect("the fixed part");
    let entries = entries.chunks_exact(size_of::<RefusalEntry>());
    (fixed, entries.map(|entry| RefusalEntry::read_from_bytes(entry).expect("an entry")).collect())
}

// Rule: VALUES-1, IOCTL-13
fn refusals_are_listed_from_the_number_that_is_asked_for() {
    let machine = Machine::start();
    let file = machine.open();
    let refused = include_str!("../scripts/refusals.ndk");
    let (_, known) = refusals(&file, 0, 9);
    assert_eq!(known.len(), 0);
    for _ in 0..3 {
        replay(&file, &encode(&parse(refused).expect("a script"))).expect("it runs");
    }
    for (first, capacity, numbers) in [(0, 9, 1..=6), (2, 3, 2..=4), (5, 9, 5..=6)] {
        let (fixed, entries) = refusals(&file, first, capacity);
        assert_eq!(entries.iter().map(|entry| entry.number).collect::<Vec<_>>(), numbers.clone().collect::<Vec<_>>());
        assert_eq!((fixed.returned_count as usize, fixed.next, fixed.total), (entries.len(), numbers.end() + 1, 6));
    }
    file.close();
    machine.finish();
}
