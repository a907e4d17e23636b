//! Habits of clients that exist: users without access, references at shutdown, waits without an event, versions that were never set,
//! threads of a completion port, files of another adapter.

use super::client::*;
use super::ends::*;
use super::version1::ends::IND_PROVIDER;
use kernel_host::io::Caller;
use kernel_host::ndis::oid::OID_NDK_SET_STATE;
use networkdirect::machine::{Machine, address, rest};
use networkdirect::{cases, cases::Case};

pub const CASES: &[Case] = cases![
    users_without_access_find_no_adapter,
    adapters_that_are_off_are_not_listed,
    an_adapter_holds_a_reference_of_its_provider,
    references_of_a_provider_may_be_given_up_in_place_of_its_adapters,
    waits_without_an_event_end,
    waits_with_an_event_that_was_set_before_end,
    documented_versions_of_the_information_are_taken,
    any_version_is_taken_where_the_keyword_says_so,
    calls_do_not_take_threads_out_of_their_port,
    files_of_another_provider_are_refused,
];

/// Bytes of a registration whose end the driver leaves to a thread.
const LARGE: usize = 5 << 20;

/// The number of entries in the list that a call gives.
fn listed(program: &Program, provider: &Com<'_>) -> u32 {
    let length = program.zeroed(8);
    provider.expects(PROVIDER_ADDRESSES, &[0, length], BUFFER_OVERFLOW);
    let needed = program.u32_at(length);
    assert!(needed >= 24, "a length of 0 is a failure");
    let list = program.zeroed(needed as usize);
    program.write(list, &[0xFF; 4]);
    provider.expects(PROVIDER_ADDRESSES, &[list, length], SUCCESS);
    program.u32_at(list)
}

/// libfabric takes another answer of one provider for the end of all of them.
fn users_without_access_find_no_adapter() {
    let machine = Machine::start();
    let program = Program::start_as(&machine, Caller::User);
    let provider = program.provider();
    assert_eq!(listed(&program, &provider), 0);
    let (socket, length) = program.socket(address(1, 0));
    provider.expects(PROVIDER_RESOLVE, &[socket, length, program.zeroed(8)], INVALID_ADDRESS);
    assert_eq!(provider.makes(PROVIDER_OPEN, IND2_ADAPTER, &[1]).err(), Some(ACCESS_DENIED), "the reason");
    let first = program.class_object(IND_PROVIDER).expect("version 1");
    assert_eq!(listed(&program, &first), 0);
    let opened = program.made(|out| first.call(4, &[socket, length, out]));
    assert_eq!(opened.err(), Some(INVALID_ADDRESS));
    drop((provider, first));
    drop(program);
    machine.finish();
}

fn adapters_that_are_off_are_not_listed() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let provider = program.provider();
    assert_eq!(listed(&program, &provider), 2);
    let switch = |on: u8| {
        machine.adapters[1].set_keyword("*NetworkDirect", if on == 0 { "0" } else { "1" });
        let answer = machine.adapters[1].set_oid(OID_NDK_SET_STATE, &[on]).expect("a started adapter");
        assert_eq!(answer.status, 0);
        rest();
    };
    let resolve = |status: u32| {
        let (socket, length) = program.socket(address(2, 0));
        provider.expects(PROVIDER_RESOLVE, &[socket, length, program.zeroed(8)], status);
    };
    switch(0);
    assert_eq!(listed(&program, &provider), 1);
    resolve(INVALID_ADDRESS);
    drop(program.adapter(address(1, 0)));
    switch(1);
    assert_eq!(listed(&program, &provider), 2);
    resolve(SUCCESS);
    drop(provider);
    drop(program);
    machine.finish();
}

/// Opens the adapter of an address by a provider that stays.
fn open<'p>(program: &'p Program, provider: &Com<'p>, host: u8) -> Com<'p> {
    let (socket, length) = program.socket(address(host, 0));
    let identifier = program.zeroed(8);
    provider.expects(PROVIDER_RESOLVE, &[socket, length, identifier], SUCCESS);
    provider.makes(PROVIDER_OPEN, IND2_ADAPTER, &[program.u64_at(identifier)]).expect("the adapter opens")
}

fn an_adapter_holds_a_reference_of_its_provider() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let provider = program.provider();
    let open = |host: u8| open(&program, &provider, host);
    let (first, second, third) = (open(1), open(2), open(1));
    assert_eq!(first.release(), 0);
    assert_eq!(provider.release(), 2, "one for each adapter that is left");
    second.expects(ADAPTER_QUERY, &[0, program.zeroed(4)], BUFFER_OVERFLOW);
    assert_eq!((second.release(), third.release()), (0, 0));
    assert_eq!(program.export("DllCanUnloadNow", &[]), 0);
    // Of version 1, too.
    let older = program.class_object(IND_PROVIDER).expect("version 1");
    let (socket, length) = program.socket(address(1, 0));
    let adapter = program.made(|out| older.call(4, &[socket, length, out])).expect("the adapter opens");
    assert_eq!((older.release(), adapter.release()), (1, 0));
    assert_eq!(program.export("DllCanUnloadNow", &[]), 0);
    provider.is_gone();
    older.is_gone();
    drop((provider, first, second, third, older, adapter));
    drop(program);
    machine.finish();
}

/// libfabric's verbs layer releases the provider once for each open adapter, and then once more; its adapters it never releases.
fn references_of_a_provider_may_be_given_up_in_place_of_its_adapters() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let provider = program.provider();
    let adapter = open(&program, &provider, 1);
    assert_eq!(provider.release(), 1, "what the adapter holds");
    assert_eq!(provider.release(), 0, "and that was the client's last");
    let file = file_of(&adapter);
    let queue = adapter.makes(ADAPTER_COMPLETION_QUEUE, IND2_COMPLETION_QUEUE, &[file, 4, 0, 0]).expect("a queue");
    assert_eq!((queue.release(), adapter.release()), (0, 0), "which a client that knows better may do");
    assert_eq!(program.export("DllCanUnloadNow", &[]), 0);
    provider.is_gone();
    drop((queue, adapter, provider));
    drop(program);
    machine.finish();
}

/// As libfabric waits for each registration and its end: no event, a file of its own.
fn waits_without_an_event_end() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let end = End::new(&program, 1);
    let wait =
        |object: &Com<'_>, overlapped: &Overlapped<'_>| object.status(GET_OVERLAPPED_RESULT, &[overlapped.address, 1]);
    let buffer = program.zeroed(LARGE);
    for event in [0, 1] {
        let file = file_of(&end.adapter);
        let region = end.adapter.makes(ADAPTER_MEMORY_REGION, IND2_MEMORY_REGION, &[file]).expect("a region");
        let overlapped = program.overlapped_with(event);
        let arguments = [buffer, LARGE as u64, LOCAL_WRITE, overlapped.address];
        region.expects(REGION_REGISTER, &arguments, PENDING);
        assert_eq!(wait(&region, &overlapped), SUCCESS);
        region.expects(REGION_DEREGISTER, &[overlapped.address], PENDING);
        assert_eq!(wait(&region, &overlapped), SUCCESS, "the driver unmaps so much by a thread");
        assert_eq!(program.export("close_handle", &[file]), 1);
        assert_eq!(region.release(), 0);
    }
    // What takes long: nothing answers.
    let passive = End::new(&program, 2);
    let listener = listen(&passive, address(2, 7300));
    let connecting = connect_to(&end, address(2, 7300), 0);
    assert_eq!(wait(&end.connector, &connecting), IO_TIMEOUT);
    drop((listener, passive, end));
    drop(program);
    machine.finish();
}

/// An event that two requests share may be set by the other one.
fn waits_with_an_event_that_was_set_before_end() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (active, passive) = (End::new(&program, 1), End::new(&program, 2));
    let listener = listen(&passive, address(2, 7301));
    let event = program.export("make_event", &[]);
    let connecting = connect_to(&active, address(2, 7301), event);
    program.export("set_event", &[event]);
    assert_eq!(active.connector.status(GET_OVERLAPPED_RESULT, &[connecting.address, 1]), IO_TIMEOUT);
    drop((listener, passive, active));
    drop(program);
    machine.finish();
}

/// Asks a listener that takes no requests.
fn connect_to<'p>(end: &End<'p>, to: std::net::SocketAddr, event: u64) -> Overlapped<'p> {
    let program = end.program;
    let (own, own_length) = program.socket(address(1, 0));
    end.connector.expects(CONNECTOR_BIND, &[own, own_length], SUCCESS);
    let (to, length) = program.socket(to);
    let connecting = program.overlapped_with(event);
    let arguments = [end.pair.this, to, length, 0, 0, 0, 0, connecting.address];
    end.connector.expects(CONNECTOR_CONNECT, &arguments, PENDING);
    connecting
}

/// What Query answers to each version.
fn query_of(program: &Program, versions: &[u32]) -> Vec<u32> {
    let adapter = program.adapter(address(1, 0));
    let (info, length) = (program.zeroed(96), program.bytes(&96_u32.to_le_bytes()));
    let answers = versions.iter().map(|version| {
        program.write(info, &[0xCC; 96]);
        program.write(info, &version.to_le_bytes());
        let status = adapter.status(ADAPTER_QUERY, &[info, length]);
        if status == SUCCESS {
            assert_eq!(program.u32_at(info), 0x2_0000, "what the structure is");
            assert_ne!(program.u32_at(info + 92), 0xCCCC_CCCC, "all of it is written");
        } else {
            assert_eq!(program.u32_at(info + 92), 0xCCCC_CCCC, "nothing is written");
        }
        status
    });
    answers.collect()
}

fn documented_versions_of_the_information_are_taken() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    assert_eq!(query_of(&program, &[1, 2, 0x2_0000]), [SUCCESS; 3]);
    assert_eq!(query_of(&program, &[0, 3, 0x1_0000, 0x2_0001, 0xCCCC_CCCC]), [NOT_SUPPORTED; 5]);
    drop(program);
    machine.finish();
}

/// MsQuic asks with memory that it has not initialised.
fn any_version_is_taken_where_the_keyword_says_so() {
    let machine = Machine::with(&[("NetworkDirectLenient", "1")]);
    let program = Program::start(&machine);
    assert_eq!(query_of(&program, &[0, 0x2_0000, 0xCCCC_CCCC, 2]), [SUCCESS; 4]);
    drop(program);
    machine.finish();
}

/// A thread that takes a packet of one port is counted out of the port whose packets it took before.
fn calls_do_not_take_threads_out_of_their_port() {
    const ROUNDS: usize = 24;
    let machine = Machine::start();
    let program = Program::start(&machine);
    let end = End::new(&program, 1);
    let port = program.export("make_port", &[end.file]);
    let region = end.adapter.makes(ADAPTER_MEMORY_REGION, IND2_MEMORY_REGION, &[end.file]).expect("a region");
    let buffer = program.zeroed(8192);
    let visit = program.process.enter();
    assert_eq!(program.export("next_packet", &[port, 0]), 0, "the thread is the port's now");
    let before = program.process.port_changes();
    for _ in 0..ROUNDS {
        for (slot, arguments) in [(REGION_REGISTER, &[buffer, 8192, LOCAL_WRITE][..]), (REGION_DEREGISTER, &[])] {
            let overlapped = program.overlapped();
            region.expects(slot, &[arguments, &[overlapped.address]].concat(), PENDING);
            overlapped.wait();
            assert_eq!(program.export("next_packet", &[port, 0]), overlapped.address);
        }
    }
    drop(pair_of(&end.adapter, &end.queue, 1));
    assert_eq!(program.process.port_changes() - before, 0, "its own port alone");
    drop(visit);
    program.export("close_handle", &[port]);
    drop((region, end));
    drop(program);
    machine.finish();
}

/// Handles of one provider mean other objects in requests through the file of another one.
fn files_of_another_provider_are_refused() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (adapter, other) = (program.adapter(address(1, 0)), program.adapter(address(1, 0)));
    let (file, foreign, event) = (file_of(&adapter), file_of(&other), program.export("make_event", &[]));
    let queue = |file: u64| adapter.makes(ADAPTER_COMPLETION_QUEUE, IND2_COMPLETION_QUEUE, &[file, 4, 0, 0]).err();
    let shared =
        |file: u64| adapter.makes(ADAPTER_SHARED_QUEUE, IND2_SHARED_RECEIVE_QUEUE, &[file, 4, 1, 0, 0, 0]).err();
    let simple = |slot: usize, iid: &str, file: u64| adapter.makes(slot, iid, &[file]).err();
    for (file, expected) in [
        (file, None),
        (foreign, Some(invalid_parameter(2))),
        (event, Some(invalid_parameter(2))),
        (0xDEAD_BEE8, Some(INVALID_HANDLE)),
    ] {
        assert_eq!(queue(file), expected);
        assert_eq!(shared(file), expected);
        assert_eq!(simple(ADAPTER_MEMORY_REGION, IND2_MEMORY_REGION, file), expected);
        assert_eq!(simple(ADAPTER_CONNECTOR, IND2_CONNECTOR, file), expected);
        assert_eq!(simple(ADAPTER_LISTENER, IND2_LISTENER, file), expected);
    }
    for file in [file, foreign, event] {
        program.export("close_handle", &[file]);
    }
    drop((adapter, other));
    drop(program);
    machine.finish();
}
