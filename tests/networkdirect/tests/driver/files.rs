//! Files, contexts and handles.

use super::program::*;
use kernel_host::io::{Caller, GENERIC_READ, GENERIC_WRITE, file};
use networkdirect::machine::{Machine, address, ip};
use networkdirect::{cases, cases::Case};
use softndk_ioctl::Status;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::private::*;
use softndk_ioctl::nd::rings::QueueSizes;
use softndk_ioctl::nd::{INFO_VERSION, VERSION, WIN32_DEVICE_NAME};
use zerocopy::{FromBytes, IntoBytes};

pub const CASES: &[Case] = cases![
    only_administrators_open_the_device,
    the_registry_says_who_opens_the_device,
    a_text_that_is_no_descriptor_is_replaced_by_the_default,
    our_own_codes_want_read_and_write_access,
    a_file_is_initialised_once_and_before_anything_else,
    a_second_file_of_the_process_shares_the_handles,
    a_token_ends_with_the_device,
    handles_are_of_one_process_and_one_kind,
    objects_that_others_are_made_from_are_busy,
    the_adapter_says_what_it_can_do,
    addresses_are_listed_and_resolved,
    short_inputs_and_outputs_are_refused,
];

const WORLD: &str = "D:P(A;;GA;;;SY)(A;;GA;;;BA)(A;;GRGW;;;WD)";

fn only_administrators_open_the_device() {
    let machine = Machine::start();
    assert!(open_as(Caller::User, 1).is_err());
    open_as(Caller::System, 1).expect("SYSTEM").close();
    open_as(Caller::Administrator, 1).expect("an administrator").close();
    machine.finish();
}

fn the_registry_says_who_opens_the_device() {
    let machine = Machine::with(&[("NetworkDirectSddl", WORLD)]);
    open_as(Caller::User, 1).expect("a user").close();
    machine.finish();
}

fn a_text_that_is_no_descriptor_is_replaced_by_the_default() {
    let mut machine = Machine::start();
    let long = format!("D:{}", "(A;;GA;;;WD)".repeat(50));
    for text in [
        "everyone, please",
        "D:",
        "D:P",
        "D:U(A;;GA;;;WD)",
        "D:(A;;GA;;;WD",
        "D:(A;;GA;;;WD)(",
        "D:(A;;GA;;;WD)all",
        "D:(A;;GA;;WD)",
        "D:(A;;GA;;;WD;)",
        "D:(AD;;GA;;;WD)",
        "D:(X;;GA;;;WD)",
        "D:(A;;;;;WD)",
        "D:(A;;GA;object;;WD)",
        "D:(A;;GA;;inherited;WD)",
        "D:(A;;GA;;;)",
        &long,
    ] {
        machine = machine.restart_with(&[("NetworkDirectSddl", text)]);
        assert!(open_as(Caller::User, 1).is_err(), "{text}");
        open(1).close();
    }
    machine.restart_with(&[("NetworkDirectSddl", WORLD)]).finish();
}

/// The codes of `ndioctl.h` have no access bits, ours have both.
fn our_own_codes_want_read_and_write_access() {
    let machine = Machine::start();
    for (access, may) in
        [(0, false), (GENERIC_READ, false), (GENERIC_WRITE, false), (GENERIC_READ | GENERIC_WRITE, true)]
    {
        let file = file::open(WIN32_DEVICE_NAME, access, file::Opener::default()).expect("the device opens");
        assert_eq!(send(&file, PROVIDER_INIT, handle(0).as_bytes(), 0).0, Status::SUCCESS);
        for code in
            [LOCK_FOR_WRITING, LOCK_FOR_READING, ATTACH, DOORBELL, BIND_WINDOW, GET_PRIVATE_DATA, QUERY_ADDRESSES]
        {
            let status =
                file.start_ioctl(code, handle(1).as_bytes(), 0).map_or_else(Status, |request| status(&request));
            assert_eq!(status != ACCESS_DENIED, may, "{code:#x} with access {access:#x}: {status:?}");
        }
        file.close();
    }
    machine.finish();
}

fn a_file_is_initialised_once_and_before_anything_else() {
    let machine = Machine::start();
    let file = open(7);
    let call = |code, version| send(&file, code, Handle { version, ..handle(0) }.as_bytes(), 64).0;
    assert_eq!(call(PROVIDER_QUERY_ADDRESS_LIST, VERSION), INVALID_DEVICE_STATE);
    assert_eq!(call(PD_CREATE, VERSION), INVALID_DEVICE_STATE);
    assert_eq!(call(PROVIDER_INIT, VERSION + 1), Status::INVALID_DEVICE_REQUEST);
    assert_eq!(call(0x12_0A00, VERSION), Status::INVALID_DEVICE_REQUEST);
    assert_eq!(send(&file, PROVIDER_INIT, &[1, 0], 0).0, Status::INVALID_DEVICE_REQUEST);
    assert_eq!(call(PROVIDER_INIT, VERSION), Status::SUCCESS);
    assert_eq!(call(PROVIDER_INIT, VERSION), INVALID_DEVICE_STATE);
    assert_eq!(call(PD_CREATE, VERSION), INVALID_HANDLE);
    file.close();
    machine.finish();
}

/// The device goes with its last adapter, and the first one brings another.
fn a_token_ends_with_the_device() {
    let machine = Machine::start();
    let before = Nd::start(7);
    for adapter in &machine.adapters {
        adapter.surprise_remove().expect("is pulled out");
    }
    for adapter in &machine.adapters {
        adapter.start().unwrap_or_else(|error| panic!("starting: {error}"));
    }
    let (now, second) = (Nd::start(7), open(7));
    let bind = |token| send(&second, PROVIDER_BIND_FILE, handle(token).as_bytes(), 0).0;
    assert_ne!(now.token, before.token);
    assert_eq!(bind(before.token), Status::INVALID_PARAMETER);
    assert_eq!(bind(now.token), Status::SUCCESS);
    second.close();
    now.close();
    before.close();
    machine.finish();
}

fn a_second_file_of_the_process_shares_the_handles() {
    let machine = Machine::start();
    let nd = Nd::start(7);
    let adapter = nd.open_adapter(ip(1));
    let (second, other) = (open(7), open(8));
    let bind = |file, token| send(file, PROVIDER_BIND_FILE, handle(token).as_bytes(), 0).0;
    assert_eq!(bind(&other, nd.token), Status::INVALID_PARAMETER, "of another process");
    assert_eq!(bind(&second, nd.token + 1), Status::INVALID_PARAMETER, "no token");
    assert_eq!(bind(&second, nd.token), Status::SUCCESS);
    assert_eq!(bind(&second, nd.token), Status::SUCCESS, "it is bound to that");
    let elsewhere = Nd::start(7);
    assert_eq!(bind(&second, elsewhere.token), INVALID_DEVICE_STATE, "and to no other");
    elsewhere.close();
    let (status, domain) = send(&second, PD_CREATE, handle(adapter).as_bytes(), 8);
    assert_eq!(status, Status::SUCCESS);
    let domain = u64::read_from_bytes(&domain).unwrap();
    // The context lives as long as one of its files.
    second.close();
    assert_eq!(nd.free(PD_FREE, domain), Status::SUCCESS);
    other.close();
    nd.close();
    machine.finish();
}

fn handles_are_of_one_process_and_one_kind() {
    let machine = Machine::start();
    let (one, other) = (Nd::start(7), Nd::start(8));
    let adapter = one.open_adapter(ip(1));
    let domain = one.create(PD_CREATE, adapter);
    assert_eq!(other.call(PD_CREATE, &handle(adapter)), BUFFER_TOO_SMALL);
    assert_eq!(other.try_ask::<u64>(PD_CREATE, &handle(adapter)), Err(INVALID_HANDLE));
    assert_eq!(one.try_ask::<u64>(MR_CREATE, &handle(adapter)), Err(INVALID_HANDLE));
    assert_eq!(one.free(MR_FREE, domain), INVALID_HANDLE);
    assert_eq!(one.free(PD_FREE, 0), INVALID_HANDLE);
    assert_eq!(one.free(PD_FREE, domain), Status::SUCCESS);
    assert_eq!(one.free(PD_FREE, domain), INVALID_HANDLE);
    // The place is taken again, by another number.
    let next = one.create(PD_CREATE, adapter);
    assert_ne!(next, domain);
    assert_eq!(one.free(PD_FREE, domain), INVALID_HANDLE);
    assert_eq!(one.free(PD_FREE, next), Status::SUCCESS);
    one.close();
    other.close();
    machine.finish();
}

fn objects_that_others_are_made_from_are_busy() {
    let machine = Machine::start();
    let program = Program::start(7, 1);
    let nd = &program.nd;
    for (code, object) in [(ADAPTER_CLOSE, program.adapter), (PD_FREE, program.domain), (CQ_FREE, program.queue.handle)]
    {
        assert_eq!(nd.free(code, object), DEVICE_BUSY);
    }
    assert_eq!(nd.free(QP_FREE, program.pair.handle), Status::SUCCESS);
    assert_eq!(status_now(&program.pair.attach), Status::SUCCESS);
    assert_eq!(nd.free(CQ_FREE, program.queue.handle), Status::SUCCESS);
    assert_eq!(status_now(&program.queue.attach), Status::SUCCESS);
    assert_eq!(nd.free(PD_FREE, program.domain), DEVICE_BUSY, "of the region");
    assert_eq!(nd.free(MR_FREE, program.region.handle), Status::SUCCESS);
    assert_eq!(status(&program.region.lock), Status::SUCCESS);
    assert_eq!(nd.free(PD_FREE, program.domain), Status::SUCCESS);
    assert_eq!(nd.free(ADAPTER_CLOSE, program.adapter), Status::SUCCESS);
    drop(program.close());
    machine.finish();
}

fn the_adapter_says_what_it_can_do() {
    let machine = Machine::start();
    let nd = Nd::start(7);
    let adapter = nd.open_adapter(ip(2));
    let info = nd.query(adapter);
    assert_eq!(info.info_version, INFO_VERSION);
    assert!(info.max_registration_size >= 64 << 20 && info.max_transfer_length >= 32 << 20);
    assert!(info.max_initiator_sge >= 2 && info.max_receive_sge >= 2 && info.max_read_sge <= info.max_initiator_sge);
    assert!(info.inline_request_threshold <= info.max_inline_data_size);
    assert!(info.max_inbound_read_limit >= 16 && info.max_outbound_read_limit >= 16);
    assert!(info.max_receive_queue_depth >= 128);
    assert_eq!(info.max_receive_queue_depth, info.max_initiator_queue_depth);
    assert!(info.max_completion_queue_depth >= 2 * info.max_receive_queue_depth);
    assert!(info.max_caller_data >= 40 && info.max_callee_data >= 40);
    assert_eq!(info.adapter_flags & 0x1_0101, 0x1_0101);
    for (info_version, expected) in
        [(1, Ok(info)), (2, Ok(info)), (3, Err(NOT_SUPPORTED)), (0x2_0001, Err(NOT_SUPPORTED))]
    {
        let asked = AdapterQuery { version: VERSION, info_version, adapter };
        assert_eq!(nd.try_ask::<AdapterInfo>(ADAPTER_QUERY, &asked), expected);
    }
    let largest = nd.create_queue(adapter, info.max_completion_queue_depth).expect("the deepest queue");
    assert_eq!(nd.create_queue(adapter, info.max_completion_queue_depth + 1), Err(invalid_parameter(3)));
    assert_eq!(nd.create_queue(adapter, 0), Err(invalid_parameter(3)));
    let (domain, queue) = (nd.create(PD_CREATE, adapter), nd.create_queue(adapter, 8).expect("a queue"));
    let most = QueueSizes {
        receive_depth: info.max_receive_queue_depth,
        initiator_depth: info.max_initiator_queue_depth,
        receive_sges: info.max_receive_sge,
        initiator_sges: info.max_initiator_sge,
        inline_data: info.max_inline_data_size,
    };
    for (number, sizes) in [
        (5, QueueSizes { receive_depth: most.receive_depth + 1, ..SIZES }),
        (6, QueueSizes { initiator_depth: most.initiator_depth + 1, ..SIZES }),
        (7, QueueSizes { receive_sges: most.receive_sges + 1, ..SIZES }),
        (8, QueueSizes { initiator_sges: most.initiator_sges + 1, ..SIZES }),
        (9, QueueSizes { inline_data: most.inline_data + 1, ..SIZES }),
    ] {
        assert_eq!(try_create_pair(&nd, domain, (queue, queue), sizes, 1), Err(invalid_parameter(number)));
    }
    for sizes in [
        QueueSizes { receive_depth: most.receive_depth, initiator_depth: most.initiator_depth, ..SIZES },
        QueueSizes { receive_depth: SIZES.receive_depth, initiator_depth: SIZES.initiator_depth, ..most },
    ] {
        assert!(try_create_pair(&nd, domain, (queue, queue), sizes, 1).is_ok(), "{sizes:?}");
    }
    let affinity: GroupAffinity = nd.ask(CQ_GET_AFFINITY, &handle(largest));
    assert_ne!(affinity.mask, 0);
    nd.close();
    machine.finish();
}

fn addresses_are_listed_and_resolved() {
    let machine = Machine::start();
    let nd = Nd::start(7);
    let adapter = nd.open_adapter(ip(2));
    let list = |code, object, room| send(&nd.file, code, handle(object).as_bytes(), room);
    let size = size_of::<SocketAddress>();
    let (status, all) = list(PROVIDER_QUERY_ADDRESS_LIST, 0, 10 * size);
    assert_eq!((status, all.len()), (Status::SUCCESS, 2 * size));
    let (status, some) = list(PROVIDER_QUERY_ADDRESS_LIST, 0, size);
    assert_eq!((status, some.len()), (BUFFER_OVERFLOW, size));
    assert_eq!(list(PROVIDER_QUERY_ADDRESS_LIST, 0, 0).0, BUFFER_OVERFLOW);
    let (status, own) = list(ADAPTER_QUERY_ADDRESS_LIST, adapter, 10 * size);
    assert_eq!(status, Status::SUCCESS);
    assert_eq!(address_of(&SocketAddress::read_from_bytes(&own).unwrap()), address(2, 0));
    for (object, count) in [(0, 2), (adapter, 1)] {
        let (status, output) = list(QUERY_ADDRESSES, object, 8 + size);
        let (head, rest) = AddressListReply::read_from_prefix(&output).unwrap();
        assert_eq!((status, head, rest.len()), (Status::SUCCESS, AddressListReply { count, returned: 1 }, size));
    }
    let unknown = ResolveAddress { version: VERSION, reserved: 0, address: socket(address(3, 0)) };
    assert_eq!(nd.try_ask::<u64>(PROVIDER_RESOLVE_ADDRESS, &unknown), Err(INVALID_ADDRESS));
    let asked = OpenAdapter { version: VERSION, adapter_id: 12345, ..OpenAdapter::default() };
    assert_eq!(nd.try_ask::<ResourceDescriptor>(ADAPTER_OPEN, &asked), Err(Status::INVALID_PARAMETER));
    nd.close();
    machine.finish();
}

/// Every code, with an input of each length up to the longest structure, and no output.
fn short_inputs_and_outputs_are_refused() {
    let machine = Machine::start();
    let nd = Nd::start(7);
    for resource in 0..10_u32 {
        for operation in 0..16_u32 {
            let code = 0x12_0000 | resource << 8 | operation << 2;
            if code == PROVIDER_BIND_FILE {
                continue;
            }
            for length in (0..128).step_by(4) {
                let mut input = vec![0xEE; length];
                if let Some(version) = input.first_chunk_mut::<4>() {
                    *version = VERSION.to_le_bytes();
                }
                let (status, output) = send(&nd.file, code, &input, 0);
                let fine = matches!(code, PROVIDER_QUERY_ADDRESS_LIST) && status == BUFFER_OVERFLOW;
                assert!(fine || status.0 < 0, "{code:#x} with {length} bytes: {status:?}");
                assert!(output.is_empty());
            }
        }
    }
    nd.close();
    machine.finish();
}
