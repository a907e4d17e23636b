//! Provider, factory, adapter: how objects are found, made and counted.

use super::client::*;
use super::ends::*;
use networkdirect::machine::{Machine, address};
use networkdirect::{cases, cases::Case};

pub const CASES: &[Case] = cases![
    class_objects,
    addresses_are_listed_and_resolved,
    adapters_are_queried,
    creation_is_refused_by_position,
    largest_objects_are_made,
    release_order_is_free,
    interfaces_know_each_other,
    queues_are_resized_under_traffic,
    files_may_be_closed_early,
];

fn class_objects() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    assert_eq!(program.export("DllCanUnloadNow", &[]), 0, "nothing lives yet");
    let factory = program.class_object(CLASS_FACTORY).expect("a factory");
    assert_eq!(program.export("DllCanUnloadNow", &[]) as u32, 1);
    let provider = program.made(|out| factory.call(3, &[0, program.guid(IND2_PROVIDER), out])).expect("version 2");
    let first = program.made(|out| factory.call(3, &[0, program.guid("0C5DD316-5FDF-47E6-B2D0-2A6EDA8D39DD"), out]));
    assert!(first.is_ok(), "version 1");
    let outer = program.made(|out| factory.call(3, &[factory.this, program.guid(IND2_PROVIDER), out]));
    assert_eq!(outer.err(), Some(0x8004_0110), "no aggregation");
    let unknown = program.made(|out| factory.call(3, &[0, program.guid(IND2_ADAPTER), out]));
    assert_eq!(unknown.err(), Some(0x8000_4002), "no such interface");
    drop((provider, first, factory));
    assert!(program.class_object(UNKNOWN).is_ok());
    assert_eq!(program.export("DllCanUnloadNow", &[]), 0, "nothing lives any more");
    drop(program);
    machine.finish();
}

fn addresses_are_listed_and_resolved() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let provider = program.provider();
    let length = program.zeroed(4);
    provider.expects(PROVIDER_ADDRESSES, &[0, length], BUFFER_OVERFLOW);
    let needed = program.u32_at(length);
    assert!(needed >= 24);
    let list = program.zeroed(needed as usize);
    provider.expects(PROVIDER_ADDRESSES, &[list, length], SUCCESS);
    assert_eq!(program.u32_at(list), 2, "one of each adapter");
    let first = program.read(program.u64_at(list + 8), 8);
    assert_eq!((&first[..2], &first[4..7]), (&[2, 0][..], &[10, 0, 0][..]));
    assert_eq!(program.u32_at(list + 16), 16, "the length of an IPv4 address");
    let (socket, bytes) = program.socket("192.168.7.7:0".parse().unwrap());
    provider.expects(PROVIDER_RESOLVE, &[socket, bytes, program.zeroed(8)], INVALID_ADDRESS);
    assert_eq!(provider.makes(PROVIDER_OPEN, IND2_ADAPTER, &[0x1234_5678]).err(), Some(INVALID_PARAMETER));
    drop(provider);
    drop(program);
    machine.finish();
}

fn adapters_are_queried() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let adapter = program.adapter(address(1, 0));
    let length = program.zeroed(4);
    adapter.expects(ADAPTER_QUERY, &[0, length], BUFFER_OVERFLOW);
    assert_eq!(program.u32_at(length), 96);
    let info = program.zeroed(96);
    program.write(info, &3_u32.to_le_bytes());
    adapter.expects(ADAPTER_QUERY, &[info, length], NOT_SUPPORTED);
    program.write(info, &0x2_0000_u32.to_le_bytes());
    adapter.expects(ADAPTER_QUERY, &[info, length], SUCCESS);
    let word = |at: u64| program.u32_at(info + at);
    assert_eq!((word(0), program.u32_at(length)), (0x2_0000, 96));
    assert_ne!(program.u64_at(info + 8), 0, "AdapterId");
    assert!(program.u64_at(info + 16) >= 64 << 20, "MaxRegistrationSize");
    assert!([32, 36, 40].into_iter().all(|at| word(at) >= 16) && word(40) <= word(32), "SGEs");
    assert!(word(44) >= 32 << 20, "MaxTransferLength");
    assert!(word(48) >= word(76) && word(76) >= 128, "inline data {} and its threshold {}", word(48), word(76));
    assert!(word(52) >= 16 && word(56) >= 16, "read limits");
    assert!(word(60) >= 4096 && word(60) == word(64) && word(68) > 0, "depths");
    assert!(word(72) >= 2 * word(60), "MaxCompletionQueueDepth");
    assert!(word(80) > word(76), "LargeRequestThreshold");
    assert!(word(84) >= 40 && word(88) >= 40, "private data");
    assert_eq!(word(92), 0x1_0101, "in order, resize, loopback, and nothing else");
    let list_length = program.zeroed(4);
    adapter.expects(ADAPTER_ADDRESSES, &[0, list_length], BUFFER_OVERFLOW);
    let list = program.zeroed(program.u32_at(list_length) as usize);
    adapter.expects(ADAPTER_ADDRESSES, &[list, list_length], SUCCESS);
    assert_eq!((program.u32_at(list), program.u32_at(list + 16)), (1, 16), "its own alone");
    drop(adapter);
    drop(program);
    machine.finish();
}

fn creation_is_refused_by_position() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let end = End::new(&program, 1);
    let queue =
        |depth: u64| end.adapter.makes(ADAPTER_COMPLETION_QUEUE, IND2_COMPLETION_QUEUE, &[end.file, depth, 0, 0]);
    assert_eq!(queue(0).err(), Some(invalid_parameter(3)));
    assert_eq!(queue(0xFFFF_FFFF).err(), Some(invalid_parameter(3)));
    let pair = |arguments: [u64; 8]| end.adapter.makes(ADAPTER_QUEUE_PAIR, IND2_QUEUE_PAIR, &arguments).err();
    let own = end.queue.this;
    assert_eq!(pair([end.region.this, own, 1, 1, 1, 1, 1, 0]), Some(invalid_parameter(2)), "no receive queue");
    assert_eq!(pair([own, end.region.this, 1, 1, 1, 1, 1, 0]), Some(invalid_parameter(3)), "no initiator queue");
    let huge = 0x10_0000;
    assert_eq!(pair([own, own, 1, huge, 1, 1, 1, 0]), Some(invalid_parameter(5)));
    assert_eq!(pair([own, own, 1, 1, huge, 1, 1, 0]), Some(invalid_parameter(6)));
    assert_eq!(pair([own, own, 1, 1, 1, huge, 1, 0]), Some(invalid_parameter(7)));
    assert_eq!(pair([own, own, 1, 1, 1, 1, huge, 0]), Some(invalid_parameter(8)));
    assert_eq!(pair([own, own, 1, 1, 1, 1, 1, huge]), Some(invalid_parameter(9)));
    drop(end);
    drop(program);
    machine.finish();
}

fn largest_objects_are_made() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let end = End::new(&program, 1);
    let (info, length) = (program.zeroed(96), program.bytes(&96_u32.to_le_bytes()));
    program.write(info, &0x2_0000_u32.to_le_bytes());
    end.adapter.expects(ADAPTER_QUERY, &[info, length], SUCCESS);
    let limit = |at: u64| u64::from(program.u32_at(info + at));
    let queue = end
        .adapter
        .makes(ADAPTER_COMPLETION_QUEUE, IND2_COMPLETION_QUEUE, &[end.file, limit(72), 0, 0])
        .expect("the deepest completion queue");
    let arguments = [queue.this, queue.this, 1, limit(60), limit(64), 1, 1, 0];
    let deep = end.adapter.makes(ADAPTER_QUEUE_PAIR, IND2_QUEUE_PAIR, &arguments).expect("the deepest queue pair");
    let arguments = [queue.this, queue.this, 1, 16, 16, limit(36), limit(32), limit(48)];
    let wide = end.adapter.makes(ADAPTER_QUEUE_PAIR, IND2_QUEUE_PAIR, &arguments).expect("the widest queue pair");
    let arguments = [end.file, limit(68), 1, 0, 0, 0];
    let shared = end.adapter.makes(ADAPTER_SHARED_QUEUE, IND2_SHARED_RECEIVE_QUEUE, &arguments).expect("the deepest");
    let arguments = [end.file, 4, limit(36), 0, 0, 0];
    let wide_shared =
        end.adapter.makes(ADAPTER_SHARED_QUEUE, IND2_SHARED_RECEIVE_QUEUE, &arguments).expect("the widest");
    let arguments = [queue.this, queue.this, shared.this, 1, limit(64), 1, 0];
    let sharing = end.adapter.makes(ADAPTER_QUEUE_PAIR_WITH_SHARED, IND2_QUEUE_PAIR, &arguments).expect("with it");
    // Each holds what it says.
    let receive = |object: &Com<'_>, slot: usize| {
        (0..=limit(60).max(limit(68))).take_while(|context| object.status(slot, &[*context, 0, 0]) == SUCCESS).count()
    };
    assert_eq!(receive(&deep, RECEIVE) as u64, limit(60));
    assert_eq!(receive(&shared, 8) as u64, limit(68));
    let many: Vec<(u64, u32)> = (0..limit(36)).map(|index| (8 * index, 8)).collect();
    wide.expects(RECEIVE, &[1, end.sges(&many), limit(36)], SUCCESS);
    wide_shared.expects(8, &[1, end.sges(&many), limit(36)], SUCCESS);
    drop((sharing, shared, wide_shared));
    drop((deep, wide, queue, end));
    drop(program);
    machine.finish();
}

/// Parents first: what they were made from lives on until its children are released.
fn release_order_is_free() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (active, passive) = (End::new(&program, 1), End::new(&program, 2));
    connect(&active, &passive, address(2, 7001));
    active.adapter.release();
    active.queue.release();
    assert_eq!(active.connector.release(), 0, "the client's only reference");
    active.region.release();
    assert_eq!(active.pair.release(), 0);
    drop((active, passive));
    drop(program);
    machine.finish();
}

fn interfaces_know_each_other() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (end, provider) = (End::new(&program, 1), program.provider());
    let window = end.adapter.makes(ADAPTER_MEMORY_WINDOW, IND2_MEMORY_WINDOW, &[]).expect("a window");
    let listener = listen(&end, address(1, 7002));
    for object in [&provider, &end.adapter, &end.queue, &end.region, &end.pair, &end.connector, &window, &listener] {
        object.answers_for_itself();
    }
    let nothing = end.adapter.makes(ADAPTER_MEMORY_WINDOW, IND2_QUEUE_PAIR, &[]);
    assert_eq!(nothing.err(), Some(0x8000_4002), "no interface of a window");
    drop((window, listener, end, provider));
    drop(program);
    machine.finish();
}

/// No result is lost and none comes twice, in whatever direction.
fn queues_are_resized_under_traffic() {
    const RESIZE: usize = 6;
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (active, passive) = (End::new(&program, 1), End::new(&program, 2));
    connect(&active, &passive, address(2, 7003));
    passive.queue.expects(RESIZE, &[0], INVALID_PARAMETER);
    passive.queue.expects(RESIZE, &[0xFFFF_FFFF], INVALID_PARAMETER);
    let mut expected = 1;
    for depth in [3, 1000, 64, 7, 4 * DEPTH] {
        for _ in 0..8 {
            assert_eq!(passive.receive(&[]), SUCCESS);
            assert_eq!(active.post(SEND, &[], 0), SUCCESS);
            active.one();
        }
        passive.queue.expects(RESIZE, &[depth], SUCCESS);
        for _ in 0..4 {
            assert_eq!(passive.receive(&[]), SUCCESS);
            assert_eq!(active.post(SEND, &[], 0), SUCCESS);
            active.one();
        }
        for done in passive.wait_for(12) {
            assert_eq!((done.context, done.status), (expected, SUCCESS));
            expected += 1;
        }
    }
    let (group, mask) = (program.zeroed(2), program.zeroed(8));
    passive.queue.expects(5, &[group, mask], SUCCESS);
    assert_ne!(program.u64_at(mask), 0, "some processor tells");
    disconnect(&active);
    drop((active, passive));
    drop(program);
    machine.finish();
}

/// The client's own handle of its file is no more needed once the objects are there.
fn files_may_be_closed_early() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (active, passive) = (End::new(&program, 1), End::new(&program, 2));
    let listener = listen(&passive, address(2, 7004));
    for end in [&active, &passive] {
        assert_eq!(program.export("close_handle", &[end.file]), 1);
    }
    let connecting = request(&active, &passive, &listener, address(2, 7004), b"");
    let accepting = program.overlapped();
    passive.connector.expects(CONNECTOR_ACCEPT, &[passive.pair.this, 8, 8, 0, 0, accepting.address], PENDING);
    assert_eq!(active.connector.finish(PENDING, &connecting), SUCCESS);
    complete(&active, &passive, &accepting);
    assert_eq!(passive.receive(&[(0, 8)]), SUCCESS);
    assert_eq!(active.post(SEND, &[(0, 8)], 0), SUCCESS);
    active.succeeds(1);
    passive.succeeds(0);
    assert_eq!(active.adapter.makes(ADAPTER_CONNECTOR, IND2_CONNECTOR, &[0]).err(), Some(INVALID_HANDLE));
    disconnect(&active);
    drop((listener, active, passive));
    drop(program);
    machine.finish();
}
