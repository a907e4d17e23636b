//! The checks that every request makes first: code, length, version, size, space for the answer; and access rights.

use super::handles::File;
use super::machine::{Machine, ask, list, open, region, send, send_direct};
use super::pairs::{close, create_request, objects};
use super::{Case, cases};
use kernel_host::io::{self, Caller, GENERIC_READ, GENERIC_WRITE, Opener};
use kernel_host::irql;
use softndk_ioctl::{
    ABI_VERSION, AdapterEntry, AdapterListReply, AdapterListRequest, EventListRequest, MeasureRequest, MemcpyRequest,
    ObjectListRequest, ObjectSummaryReply, ObjectSummaryRequest, PairCloseRequest, PairCreateReply, PairCreateRequest,
    PairModerationRequest, RefusalListRequest, Request, RequestHeader, ScriptRequest, Status, TEST_WIN32_DEVICE_NAME,
    TransferRequest, UplinkListRequest, VersionReply, VersionRequest, WIN32_DEVICE_NAME,
};
use std::collections::HashSet;
use zerocopy::{FromBytes, IntoBytes};

pub const CASES: &[Case] = cases![
    version_answers_every_abi_version,
    inputs_of_wrong_length_are_refused,
    inputs_with_a_wrong_size_are_refused,
    inputs_of_another_version_are_refused,
    short_outputs_are_refused,
    direct_inputs_of_wrong_length_or_version_are_refused,
    adapter_list_takes_two_calls,
    adapters_are_distinguished,
    object_summary_counts_files,
    every_request_of_a_driver_at_dispatch_is_answered_there,
    unknown_codes_are_refused,
    handles_need_read_and_write,
    only_administrators_and_system_open_it,
    a_name_behind_the_device_is_refused,
];

/// Code, size of the input, and whether the version is compared.
struct Buffered {
    code: u32,
    input: usize,
    versioned: bool,
}

fn buffered<R: Request>() -> Buffered {
    let versioned = R::CODE != VersionRequest::CODE;
    Buffered { code: R::CODE, input: size_of::<R>(), versioned }
}

/// Every buffered request.
fn buffered_requests() -> Vec<Buffered> {
    vec![
        buffered::<VersionRequest>(),
        buffered::<AdapterListRequest>(),
        buffered::<ObjectSummaryRequest>(),
        buffered::<ObjectListRequest>(),
        buffered::<RefusalListRequest>(),
        buffered::<EventListRequest>(),
        buffered::<UplinkListRequest>(),
        buffered::<PairCreateRequest>(),
        buffered::<PairCloseRequest>(),
        buffered::<PairModerationRequest>(),
    ]
}

/// An input of some length with a header that says version and size.
fn input(version: u32, size: usize, length: usize) -> Vec<u8> {
    let mut bytes = RequestHeader { version, size: size as u32 }.as_bytes().to_vec();
    bytes.resize(length, 0);
    bytes
}

fn version_answers_every_abi_version() {
    let machine = Machine::start();
    let file = machine.open();
    for version in [ABI_VERSION, 0, ABI_VERSION + 1, u32::MAX] {
        let (status, output) = send(&file, VersionRequest::CODE, &input(version, 8, 8), size_of::<VersionReply>());
        assert_eq!(status, Status::SUCCESS);
        let reply = VersionReply::read_from_bytes(&output).expect("a whole reply");
        assert_eq!(reply.header, RequestHeader::of::<VersionReply>());
        assert_eq!((reply.ndis_version, reply.ndkpi_version), ([6, 60], [2, 1]));
        assert!(reply.processor_count >= 1);
        // A tool of the first edition brings space for that.
        let (status, first) = send(&file, VersionRequest::CODE, &input(version, 8, 8), VersionReply::FIRST_LENGTH);
        assert_eq!((status, &*first), (Status::SUCCESS, &output[..VersionReply::FIRST_LENGTH]));
    }
    file.close();
    machine.finish();
}

/// Another driver may ask at DISPATCH_LEVEL. What has to wait refuses; nothing waits.
// Rule: IOCTL-12
fn every_request_of_a_driver_at_dispatch_is_answered_there() {
    let machine = Machine::start();
    let opener = Opener { caller: Caller::Kernel, ..Opener::default() };
    let file = File::open("", GENERIC_READ | GENERIC_WRITE, opener).expect("a driver opens the device");
    let pair = ask(&file, &create_request(&machine)).pair;
    let at_dispatch = |code, input: &[u8]| {
        let before = irql::raise(irql::DISPATCH);
        let answer = send(&file, code, input, 4096);
        irql::lower(before);
        answer
    };
    let queries = [
        VersionRequest::CODE,
        AdapterListRequest::CODE,
        ObjectSummaryRequest::CODE,
        ObjectListRequest::CODE,
        RefusalListRequest::CODE,
        EventListRequest::CODE,
        UplinkListRequest::CODE,
    ];
    for request in buffered_requests() {
        let (status, output) = at_dispatch(request.code, &input(ABI_VERSION, request.input, request.input));
        let expected = if queries.contains(&request.code) { Status::SUCCESS } else { Status::NOT_SUPPORTED };
        assert_eq!(status, expected, "0x{:08X}", request.code);
        if request.code == ObjectSummaryRequest::CODE {
            let summary = ObjectSummaryReply::read_from_bytes(&output).expect("a whole reply");
            assert_eq!((summary.pairs, summary.queue_pairs), (1, 2));
        }
    }
    assert_eq!(close(&file, pair), Status::SUCCESS);
    assert_eq!(objects(&file).pairs, 0);
    file.close();
    machine.finish();
}

// Rule: IOCTL-3, IOCTL-5
fn inputs_of_wrong_length_are_refused() {
    let machine = Machine::start();
    let file = machine.open();
    for request in buffered_requests() {
        for length in (0..request.input).chain([request.input + 1, request.input + 8, 5000]) {
            // The header agrees with the length, so that the length is what is wrong.
            let (status, output) = send(&file, request.code, &input(ABI_VERSION, length, length), 4096);
            assert_eq!(status, Status::INFO_LENGTH_MISMATCH, "0x{:08X} with {length} bytes", request.code);
            assert!(output.is_empty());
        }
    }
    file.close();
    machine.finish();
}

// Rule: IOCTL-3, IOCTL-5
fn inputs_with_a_wrong_size_are_refused() {
    let machine = Machine::start();
    let file = machine.open();
    for request in buffered_requests() {
        for size in [0, 8 - 1, request.input - 1, request.input + 1, u32::MAX as usize] {
            let (status, output) = send(&file, request.code, &input(ABI_VERSION, size, request.input), 4096);
            assert_eq!(status, Status::INFO_LENGTH_MISMATCH, "0x{:08X} that says {size} bytes", request.code);
            assert!(output.is_empty());
        }
    }
    file.close();
    machine.finish();
}

// Rule: IOCTL-3, IOCTL-5
fn inputs_of_another_version_are_refused() {
    let machine = Machine::start();
    let file = machine.open();
    for request in buffered_requests().iter().filter(|request| request.versioned) {
        for version in [0, ABI_VERSION + 1, u32::MAX] {
            let (status, output) = send(&file, request.code, &input(version, request.input, request.input), 4096);
            assert_eq!(status, Status::REVISION_MISMATCH, "0x{:08X} of version {version}", request.code);
            assert!(output.is_empty());
        }
    }
    file.close();
    machine.finish();
}

// Rule: IOCTL-3, IOCTL-5
fn short_outputs_are_refused() {
    let machine = Machine::start();
    let file = machine.open();
    let mut fixed = vec![
        (VersionRequest::CODE, 8, VersionReply::FIRST_LENGTH),
        (AdapterListRequest::CODE, 8, size_of::<AdapterListReply>()),
        (ObjectSummaryRequest::CODE, 8, size_of::<ObjectSummaryReply>()),
    ];
    let adapters = list(&file);
    assert_ne!(adapters[0].index, adapters[1].index);
    // Both indexes 0 connect the first adapter to itself, if there were space for the answer.
    fixed.push((PairCreateRequest::CODE, size_of::<PairCreateRequest>(), size_of::<PairCreateReply>()));
    for (code, length, reply) in fixed {
        for capacity in [0, 1, reply - 1] {
            let (status, output) = send(&file, code, &input(ABI_VERSION, length, length), capacity);
            assert_eq!(status, Status::BUFFER_TOO_SMALL, "0x{code:08X} with space for {capacity}");
            assert!(output.is_empty());
        }
    }
    file.close();
    machine.finish();
}

// Rule: IOCTL-3
fn direct_inputs_of_wrong_length_or_version_are_refused() {
    let machine = Machine::start();
    let file = machine.open();
    let buffer = &mut region(4096);
    for (code, size) in [
        (TransferRequest::CODE, size_of::<TransferRequest>()),
        (MemcpyRequest::CODE, size_of::<MemcpyRequest>()),
        (MeasureRequest::CODE, size_of::<MeasureRequest>()),
    ] {
        for length in [0, 7, 8, size - 1, size + 1] {
            let answer = file.ioctl_direct(code, &input(ABI_VERSION, length, length), buffer);
            assert_eq!(Status(answer.status), Status::INFO_LENGTH_MISMATCH, "0x{code:08X} with {length} bytes");
        }
        let answer = file.ioctl_direct(code, &input(ABI_VERSION + 1, size, size), buffer);
        assert_eq!(Status(answer.status), Status::REVISION_MISMATCH, "0x{code:08X}");
    }
    file.close();
    machine.finish();
}

fn adapter_list_takes_two_calls() {
    let machine = Machine::start();
    let file = machine.open();
    let entry = size_of::<AdapterEntry>();
    let fixed = size_of::<AdapterListReply>();
    for (capacity, returned, expected) in [
        (fixed, 0, Status::BUFFER_OVERFLOW),
        (fixed + entry - 1, 0, Status::BUFFER_OVERFLOW),
        (fixed + entry, 1, Status::BUFFER_OVERFLOW),
        (fixed + 2 * entry - 1, 1, Status::BUFFER_OVERFLOW),
        (fixed + 2 * entry, 2, Status::SUCCESS),
        (fixed + 9 * entry + 5, 2, Status::SUCCESS),
    ] {
        let (status, output) = send(&file, AdapterListRequest::CODE, &input(ABI_VERSION, 8, 8), capacity);
        assert_eq!(status, expected, "space for {capacity} bytes");
        let (reply, _) = AdapterListReply::read_from_prefix(&output).expect("the fixed part");
        assert_eq!(reply.header, RequestHeader::of::<AdapterListReply>());
        assert_eq!((reply.adapter_count, reply.returned_count), (2, returned));
        assert_eq!((reply.entry_size as usize, reply.required_length as usize), (entry, fixed + 2 * entry));
        assert_eq!(output.len(), fixed + returned as usize * entry);
    }
    file.close();
    machine.finish();
}

fn adapters_are_distinguished() {
    let machine = Machine::start();
    let file = machine.open();
    let adapters = list(&file);
    let distinct = |of: fn(&AdapterEntry) -> u64| adapters.iter().map(of).collect::<HashSet<_>>().len();
    assert_eq!(distinct(|adapter| u64::from(adapter.index)), 2);
    assert_eq!(distinct(|adapter| u64::from(adapter.interface_index)), 2);
    assert_eq!(distinct(|adapter| adapter.net_luid), 2);
    assert_eq!(distinct(|adapter| adapter.mac_address.iter().fold(0, |all, byte| all << 8 | u64::from(*byte))), 2);
    for adapter in &adapters {
        assert_eq!(adapter.mac_address[0] & 3, 2, "unicast and locally administered");
        assert_eq!(adapter.address_count, 2);
        assert_eq!(adapter.link_speed, 10_000_000_000);
        assert!(adapter.limits.frmr_page_count >= 16);
        assert_eq!((adapter.reserved, adapter.limits.reserved), ([0; 2], 0));
    }
    file.close();
    machine.finish();
}

fn object_summary_counts_files() {
    let machine = Machine::start();
    let first = machine.open();
    let count = || {
        let (status, output) = send(&first, ObjectSummaryRequest::CODE, &input(ABI_VERSION, 8, 8), 4096);
        assert_eq!(status, Status::SUCCESS);
        ObjectSummaryReply::read_from_bytes(&output).expect("a whole reply")
    };
    assert_eq!((count().adapters, count().files, count().pairs), (2, 1, 0));
    let second = machine.open();
    assert_eq!(count().files, 2);
    second.close();
    assert_eq!(count().files, 1);
    first.close();
    machine.finish();
}

// Rule: IOCTL-2, IOCTL-10
fn unknown_codes_are_refused() {
    let machine = Machine::start();
    let file = machine.open();
    let known = [
        VersionRequest::CODE,
        AdapterListRequest::CODE,
        ObjectSummaryRequest::CODE,
        ObjectListRequest::CODE,
        RefusalListRequest::CODE,
        EventListRequest::CODE,
        UplinkListRequest::CODE,
        PairCreateRequest::CODE,
        PairCloseRequest::CODE,
        PairModerationRequest::CODE,
        TransferRequest::CODE,
        MemcpyRequest::CODE,
        MeasureRequest::CODE,
        ScriptRequest::CODE,
    ];
    // Neighbouring functions, other methods, the same function with fewer rights, of another device, of the public range; and NetworkDirect's.
    let near =
        known.iter().flat_map(|code| [code + 4, code ^ 1, code ^ 2, code ^ 0x4000, code ^ 0x0001_0000, code & !0x2000]);
    let others = near.chain([0, 0x0012_0000, 0x0012_0100, !3]).filter(|code| !known.contains(code));
    for code in others {
        let (status, output) = match code & 3 {
            0 => send(&file, code, &input(ABI_VERSION, 8, 8), 4096),
            // METHOD_NEITHER: the host has no such requests.
            3 => continue,
            _ => {
                let mut buffer = region(0);
                (Status(file.ioctl_direct(code, &input(ABI_VERSION, 8, 8), &mut buffer).status), Vec::new())
            }
        };
        assert_eq!(status, Status::INVALID_DEVICE_REQUEST, "0x{code:08X}");
        assert!(output.is_empty());
    }
    // The device answers as before.
    assert_eq!(list(&file).len(), 2);
    file.close();
    machine.finish();
}

// Rule: IOCTL-2
fn handles_need_read_and_write() {
    let machine = Machine::start();
    for access in [GENERIC_READ, GENERIC_WRITE] {
        let file = open("", access).expect("the device opens");
        for code in [VersionRequest::CODE, AdapterListRequest::CODE, ObjectSummaryRequest::CODE] {
            let (status, _) = send(&file, code, &input(ABI_VERSION, 8, 8), 4096);
            assert_eq!(status, Status::ACCESS_DENIED);
        }
        let mut buffer = region(0);
        let request: MemcpyRequest = zerocopy::FromZeros::new_zeroed();
        assert_eq!(send_direct(&file, &request, &mut buffer), Status::ACCESS_DENIED);
        file.close();
    }
    machine.finish();
}

// Rule: IOCTL-1
fn only_administrators_and_system_open_it() {
    let machine = Machine::start();
    for device in [WIN32_DEVICE_NAME, TEST_WIN32_DEVICE_NAME] {
        let open = |caller| {
            let opener = Opener { caller, ..Opener::default() };
            io::file::open(device, GENERIC_READ | GENERIC_WRITE, opener).map(io::File::close).map_err(Status)
        };
        assert_eq!(open(Caller::Administrator), Ok(()), "{device}");
        assert_eq!(open(Caller::System), Ok(()), "{device}");
        for caller in [Caller::User, Caller::FilteredAdministrator, Caller::LowIntegrity] {
            assert_eq!(open(caller), Err(Status::ACCESS_DENIED), "{device}: {caller:?}");
        }
    }
    machine.finish();
}

fn a_name_behind_the_device_is_refused() {
    let machine = Machine::start();
    for name in [r"\x", r"\", r"\Adapter0"] {
        let path = name.to_owned();
        let answer = open(&path, GENERIC_READ | GENERIC_WRITE);
        assert_eq!(answer.map(|_| ()).map_err(Status), Err(Status::OBJECT_NAME_NOT_FOUND), "{path}");
    }
    machine.finish();
}
