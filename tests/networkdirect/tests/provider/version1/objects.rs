//! Provider, adapter and what it makes, in version 1.

use super::super::client::*;
use super::ends::*;
use networkdirect::machine::Machine;
use networkdirect::{cases, cases::Case};

pub const CASES: &[Case] = cases![
    providers_list_and_open,
    adapters_are_queried,
    creation_is_refused_by_position,
    registrations_are_refused,
    largest_objects_are_made,
    interfaces_know_each_other,
];

fn with_adapter(run: impl FnOnce(&Program, &Com<'_>)) {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let adapter = adapter(&program, 1);
    run(&program, &adapter);
    drop(adapter);
    drop(program);
    machine.finish();
}

fn providers_list_and_open() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let provider = provider(&program);
    let length = program.zeroed(8);
    provider.expects(PROVIDER_ADDRESSES, &[0, length], BUFFER_OVERFLOW);
    let list = program.zeroed(program.u64_at(length) as usize);
    provider.expects(PROVIDER_ADDRESSES, &[list, length], SUCCESS);
    assert_eq!(program.u32_at(list), 2);
    assert_eq!(program.u32_at(list + 16), 16, "the length of an IPv4 address");
    let (socket, bytes) = program.socket("192.168.7.7:0".parse().unwrap());
    assert_eq!(program.made(|out| provider.call(PROVIDER_OPEN, &[socket, bytes, out])).err(), Some(INVALID_ADDRESS));
    drop(provider);
    drop(program);
    machine.finish();
}

fn adapters_are_queried() {
    with_adapter(|program, adapter| {
        let (info, length) = (program.zeroed(128), program.zeroed(8));
        adapter.expects(ADAPTER_QUERY, &[2, info, length], NOT_SUPPORTED);
        adapter.expects(ADAPTER_QUERY, &[1, 0, length], BUFFER_OVERFLOW);
        assert_eq!(program.u64_at(length), 128);
        program.write(length, &127_u64.to_le_bytes());
        adapter.expects(ADAPTER_QUERY, &[1, info, length], BUFFER_OVERFLOW);
        assert_eq!(program.read(info, 128), [0; 128], "as it was");
        adapter.expects(ADAPTER_QUERY, &[1, info, length], SUCCESS);
        let number = |at: u64| program.u64_at(info + at);
        assert!(number(8) >= 2 && number(32) >= 2, "SGEs");
        assert!(number(16) >= 64 && number(40) >= 64, "requests");
        assert!(number(24) >= 32 << 20 && number(48) >= 32 << 20, "lengths");
        assert!(number(64) >= 16 && number(72) >= 16, "read limits");
        assert!(number(80) >= 2 * number(16), "entries of a completion queue");
        assert!(number(88) >= 64 << 20, "MaxRegistrationSize");
        assert!(number(112) >= 40 && number(120) >= 40, "private data");
        let returned = program.bytes(&[0xFF; 8]);
        adapter.expects(ADAPTER_CONTROL, &[1, 0, 0, 0, 0, returned, 0], NOT_SUPPORTED);
        assert_eq!(program.u64_at(returned), 0);
        let file = adapter.call(ADAPTER_FILE, &[]);
        assert!(file != 0 && file == adapter.call(ADAPTER_FILE, &[]), "one file");
    });
}

fn creation_is_refused_by_position() {
    with_adapter(|program, adapter| {
        for depth in [0, u64::MAX] {
            let made = program.made(|out| adapter.call(ADAPTER_QUEUE, &[depth, out]));
            assert_eq!(made.err(), Some(invalid_parameter(1)));
        }
        let (queue, connector) = (queue(adapter, 8), connector(adapter));
        queue.expects(QUEUE_RESIZE, &[0], INVALID_PARAMETER);
        queue.expects(QUEUE_RESIZE, &[u64::MAX], INVALID_PARAMETER);
        queue.expects(QUEUE_RESIZE, &[64], SUCCESS);
        queue.expects(QUEUE_NOTIFY, &[3, program.overlapped().address], INVALID_PARAMETER);
        let endpoint = |arguments: [u64; 8]| {
            let made = program.made(|out| connector.call(CREATE_ENDPOINT, &[arguments.as_slice(), &[0, out]].concat()));
            made.err()
        };
        let (own, huge) = (queue.this, 1 << 40);
        assert_eq!(endpoint([adapter.this, own, 1, 1, 1, 1, 0, 0]), Some(invalid_parameter(1)));
        assert_eq!(endpoint([own, adapter.this, 1, 1, 1, 1, 0, 0]), Some(invalid_parameter(2)));
        assert_eq!(endpoint([own, own, huge, 1, 1, 1, 0, 0]), Some(invalid_parameter(3)));
        assert_eq!(endpoint([own, own, 1, huge, 1, 1, 0, 0]), Some(invalid_parameter(4)));
        assert_eq!(endpoint([own, own, 1, 1, huge, 1, 0, 0]), Some(invalid_parameter(5)));
        assert_eq!(endpoint([own, own, 1, 1, 1, huge, 0, 0]), Some(invalid_parameter(6)));
        assert_eq!(endpoint([own, own, 1, 1, 1, 1, huge, huge]), None, "read limits are capped");
        let listen = |port: u16, assigned: u64| {
            program.made(|out| adapter.call(ADAPTER_LISTEN, &[0, 123, u64::from(port.to_be()), assigned, out]))
        };
        assert_eq!(listen(0, 0).err(), Some(INVALID_PARAMETER_MIX));
        let assigned = program.zeroed(2);
        let first = listen(0, assigned).expect("a listener on any port").named("INDListen");
        let port = u16::from_be_bytes(program.read(assigned, 2).try_into().unwrap());
        assert!(port >= 49152);
        assert_eq!(listen(port, 0).err(), Some(ADDRESS_ALREADY_EXISTS));
        first.expects(CONNECTION_REQUEST, &[queue.this, program.overlapped().address], invalid_parameter(1));
    });
}

fn registrations_are_refused() {
    with_adapter(|program, adapter| {
        let (overlapped, place, buffer) = (program.overlapped(), program.zeroed(8), program.zeroed(4096));
        let register = |buffer: u64, length: u64| {
            let status = adapter.status(ADAPTER_REGISTER, &[buffer, length, overlapped.address, place]);
            let status = adapter.finish1(status, &overlapped);
            (status, program.u64_at(place))
        };
        assert_eq!(register(0, 0), (INVALID_PARAMETER, 0));
        assert_eq!(register(buffer, 0), (INVALID_BUFFER_SIZE, 0));
        assert_eq!(register(buffer, 1 << 40), (INVALID_PARAMETER, 0));
        let gone = program.zeroed(4096);
        assert!(program.process.free(gone as usize));
        assert_eq!(register(gone, 4096), (ACCESS_VIOLATION, 0));
        adapter.expects(ADAPTER_DEREGISTER, &[0, overlapped.address], INVALID_HANDLE);
        adapter.expects(ADAPTER_DEREGISTER, &[0x1234, overlapped.address], INVALID_HANDLE);
        let (status, region) = register(buffer, 4096);
        assert_eq!(status, SUCCESS);
        adapter.expects(CANCEL, &[], SUCCESS);
        let status = adapter.status(ADAPTER_DEREGISTER, &[region, overlapped.address]);
        assert_eq!(adapter.finish1(status, &overlapped), SUCCESS, "nothing pended");
        adapter.expects(ADAPTER_DEREGISTER, &[region, overlapped.address], INVALID_HANDLE);
    });
}

fn largest_objects_are_made() {
    with_adapter(|program, adapter| {
        let (info, length) = (program.zeroed(128), program.bytes(&128_u64.to_le_bytes()));
        adapter.expects(ADAPTER_QUERY, &[1, info, length], SUCCESS);
        let most = |at: u64| program.u64_at(info + at);
        let deep = queue(adapter, most(80));
        let connector = connector(adapter);
        let endpoint = |requests: [u64; 4]| {
            let arguments = [&[deep.this, deep.this], requests.as_slice(), &[most(64), most(72), 0]].concat();
            program.made(|out| connector.call(CREATE_ENDPOINT, &[arguments.as_slice(), &[out]].concat()))
        };
        drop(endpoint([most(16), most(40), 1, 1]).expect("the deepest endpoint"));
        drop(endpoint([16, 16, most(8), most(32)]).expect("the widest endpoint"));
        let buffer = program.zeroed(64 << 20);
        let region = register(adapter, buffer, 64 << 20);
        let overlapped = program.overlapped();
        let status = adapter.status(ADAPTER_DEREGISTER, &[region, overlapped.address]);
        assert_eq!(adapter.finish1(status, &overlapped), SUCCESS);
    });
}

fn interfaces_know_each_other() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (end, first) = (End::new(&program, 1), provider(&program));
    let (window, listener) = (end.window(0), listen(&end, 7302));
    for object in [&first, &end.adapter, &end.queue, &end.connector, &end.endpoint, &window, &listener] {
        object.answers_for_itself();
    }
    drop((window, listener, end, first));
    drop(program);
    machine.finish();
}
