//! Values unlike their neighbours: no two numbers of a call are alike, none is zero, each flag is alone, so that one that is forgotten or
//! taken for another shows (xtask/lists/arguments.txt).

use super::client::*;
use super::connections::{private_data, with_ends};
use super::ends::*;
use super::version1::ends as v1;
use networkdirect::machine::{Machine, address, rest};
use networkdirect::{cases, cases::Case};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

pub const CASES: &[Case] = cases![
    every_number_of_a_connection_is_that_of_its_name,
    every_number_of_a_queue_pair_is_that_of_its_name,
    silent_success_alone,
    solicited_alone,
    inline_alone,
    the_right_to_read_alone,
    the_sink_of_a_read_alone,
    queues_notify_from_the_processors_asked_for,
    a_backlog_holds_as_many_as_it_says,
    zones_cross_the_border,
    version1_every_number_of_a_connection_is_that_of_its_name,
    version1_silent_success_alone,
    version1_solicited_alone,
    version1_a_backlog_holds_as_many_as_it_says,
    version1_results_are_waited_for_and_counted,
];

const LOCAL_ADDRESS: usize = 12;
const PEER_ADDRESS: usize = 13;
const LISTENER_ADDRESS: usize = 7;
/// GetNotifyAffinity, of both kinds of queue.
const QUEUE_AFFINITY: usize = 5;
const NOTIFY_SOLICITED: u64 = 2;
/// ND2_REQUEST_TYPE.
const SENT: u32 = 1;
const HAS_READ: u32 = 4;
const WRITTEN: u32 = 5;

/// The port of an address that a slot gives.
fn port(connector: &Com<'_>, slot: usize, length: u64) -> u16 {
    let program = connector.program;
    let place = program.bytes(&length.to_le_bytes());
    let socket = program.zeroed(28);
    connector.expects(slot, &[socket, place], SUCCESS);
    u16::from_be_bytes(program.read(socket + 2, 2).try_into().expect("two bytes"))
}

// Rule: VALUES-1
fn every_number_of_a_connection_is_that_of_its_name() {
    with_ends(|active, passive| {
        let program = active.program;
        let listener = listen(passive, address(2, 0x1234));
        assert_eq!(port(&listener, LISTENER_ADDRESS, 28), 0x1234);
        let arriving = program.overlapped();
        listener.expects(LISTENER_REQUEST, &[passive.connector.this, arriving.address], PENDING);
        let (own, own_length) = program.socket(address(1, 0x2345));
        active.connector.expects(CONNECTOR_BIND, &[own, own_length], SUCCESS);
        let (connecting, accepting) = (program.overlapped(), program.overlapped());
        let (to, length) = program.socket(address(2, 0x1234));
        let data = program.bytes(b"called");
        let arguments = [active.pair.this, to, length, 3, 5, data, 6, connecting.address];
        active.connector.expects(CONNECTOR_CONNECT, &arguments, PENDING);
        assert_eq!(listener.finish(PENDING, &arriving), SUCCESS);
        assert_eq!(private_data(&passive.connector), b"called");
        let limits = |end: &End<'_>| {
            let place = program.zeroed(8);
            end.connector.expects(CONNECTOR_READ_LIMITS, &[place, place + 4], SUCCESS);
            (program.u32_at(place), program.u32_at(place + 4))
        };
        assert_eq!(limits(passive), (5, 3), "the other way round");
        let data = program.bytes(b"answered");
        let arguments = [passive.pair.this, 4, 2, data, 8, accepting.address];
        passive.connector.expects(CONNECTOR_ACCEPT, &arguments, PENDING);
        assert_eq!(active.connector.finish(PENDING, &connecting), SUCCESS);
        assert_eq!(private_data(&active.connector), b"answered");
        assert_eq!(limits(active), (2, 4), "the lesser of both sides");
        complete(active, passive, &accepting);
        let ports = |end: &End<'_>| [LOCAL_ADDRESS, PEER_ADDRESS].map(|slot| port(&end.connector, slot, 28));
        assert_eq!((ports(active), ports(passive)), ([0x2345, 0x1234], [0x1234, 0x2345]));
    });
}

// Rule: VALUES-1
fn every_number_of_a_queue_pair_is_that_of_its_name() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (mut active, mut passive) = (End::new(&program, 1), End::new(&program, 2));
    for end in [&mut active, &mut passive] {
        let arguments = [end.queue.this, end.queue.this, 0x51DE_0123_4567, 3, 5, 1, 2, 24];
        end.pair = end.adapter.makes(ADAPTER_QUEUE_PAIR, IND2_QUEUE_PAIR, &arguments).expect("a queue pair");
    }
    connect(&active, &passive, address(2, 7801));
    let piece = |offset: u64| (offset, 8_u32);
    for _ in 0..5 {
        assert_eq!(active.post(SEND, &[piece(0), piece(8)], 0), SUCCESS);
    }
    assert_eq!(active.post(SEND, &[piece(0)], 0), NO_MORE_ENTRIES, "five requests");
    for _ in 0..3 {
        assert_eq!(passive.receive(&[(0, 64)]), SUCCESS);
    }
    let received = passive.wait_for(3);
    assert!(received.iter().all(|done| (done.queue_pair, done.bytes) == (0x51DE_0123_4567, 16)), "{received:x?}");
    assert_eq!(active.wait_for(3).len(), 3);
    for _ in 0..2 {
        assert_eq!(passive.receive(&[(0, 64)]), SUCCESS);
    }
    assert_eq!((passive.wait_for(2).len(), active.wait_for(2).len()), (2, 2));
    for _ in 0..3 {
        assert_eq!(passive.receive(&[(0, 64)]), SUCCESS);
    }
    assert_eq!(passive.receive(&[(0, 64)]), NO_MORE_ENTRIES, "three receives");
    drop((active, passive));
    drop(program);
    machine.finish();
}

/// Each kind of request: with the flag it has no result.
// Rule: VALUES-1
fn silent_success_alone() {
    with_ends(|active, passive| {
        connect(active, passive, address(2, 7802));
        let remote = (passive.buffer, passive.remote_token());
        let made = active.adapter.makes(ADAPTER_MEMORY_WINDOW, IND2_MEMORY_WINDOW, &[]);
        let window = made.expect("a window");
        for _ in 0..3 {
            assert_eq!(passive.receive(&[(0, 64)]), SUCCESS);
        }
        let post = |kind: &str, flags: u64| match kind {
            "send" => active.post(SEND, &[(0, 8)], flags),
            "read" => active.transfer(READ, &[(0, 8)], remote, flags),
            "write" => active.transfer(WRITE, &[(0, 8)], remote, flags),
            "bind" => {
                let arguments =
                    [active.next_context(), active.region.this, window.this, active.buffer, 64, flags | ALLOW_READ];
                active.pair.status(BIND, &arguments)
            }
            _ => active.pair.status(INVALIDATE, &[active.next_context(), window.this, flags]),
        };
        for kind in ["send", "read", "write", "bind", "invalidate"] {
            assert_eq!(post(kind, SILENT), SUCCESS, "{kind}");
            rest();
            assert_eq!(active.results(), [], "{kind}");
        }
        for kind in ["send", "read", "write", "bind", "invalidate"] {
            let context = active.next_context() + 1;
            assert_eq!(post(kind, 0), SUCCESS, "{kind}");
            let done = active.one();
            assert_eq!((done.status, done.context, done.queue_pair), (SUCCESS, context, 1), "{kind}");
        }
        passive.wait_for(2);
    });
}

/// A Notify for solicited results completes with a Send that has the flag alone.
// Rule: VALUES-1
fn solicited_alone() {
    with_ends(|active, passive| {
        connect(active, passive, address(2, 7803));
        for (flags, told) in [(0, false), (SOLICIT, true)] {
            assert_eq!(passive.receive(&[(0, 64)]), SUCCESS);
            let notified = passive.program.overlapped();
            passive.queue.expects(QUEUE_NOTIFY, &[NOTIFY_SOLICITED, notified.address], PENDING);
            assert_eq!(active.post(SEND, &[(0, 8)], flags), SUCCESS);
            active.succeeds(SENT);
            rest();
            assert_eq!(notified.status() != PENDING, told, "{flags}");
            passive.succeeds(0);
            if !told {
                passive.queue.expects(CANCEL, &[], SUCCESS);
            }
        }
    });
}

/// Bytes that no region has, which are others as soon as the call has returned.
// Rule: VALUES-1
fn inline_alone() {
    with_ends(|active, passive| {
        connect(active, passive, address(2, 7804));
        let program = active.program;
        let remote = (passive.buffer + 512, passive.remote_token());
        assert_eq!(passive.receive(&[(0, 64)]), SUCCESS);
        for (slot, kind, at) in [(SEND, SENT, 0), (WRITE, WRITTEN, 512)] {
            let bytes = format!("inline {slot}");
            let place = program.bytes(bytes.as_bytes());
            let sge = program.bytes(&[place.to_le_bytes(), (bytes.len() as u64).to_le_bytes()].concat());
            let context = active.next_context();
            let arguments = if slot == SEND {
                vec![context, sge, 1, INLINE]
            } else {
                vec![context, sge, 1, remote.0, remote.1, INLINE]
            };
            active.pair.expects(slot, &arguments, SUCCESS);
            program.write(place, b"others");
            assert_eq!(active.succeeds(kind).context, context);
            assert_eq!(passive.bytes(at, bytes.len()), bytes.as_bytes());
        }
        passive.succeeds(0);
    });
}

// Rule: VALUES-1
fn the_right_to_read_alone() {
    with_ends(|active, passive| {
        connect(active, passive, address(2, 7805));
        passive.fill(512, 8, 7);
        let region = passive.adapter.makes(ADAPTER_MEMORY_REGION, IND2_MEMORY_REGION, &[passive.file]);
        let region = region.expect("a region");
        register(&region, passive.buffer + 512, 64, REMOTE_READ);
        let remote = (passive.buffer + 512, region.call(REGION_REMOTE_TOKEN, &[]) & 0xFFFF_FFFF);
        assert_eq!(active.transfer(READ, &[(0, 8)], remote, 0), SUCCESS);
        active.succeeds(HAS_READ);
        assert_eq!(active.bytes(0, 8), passive.bytes(512, 8));
        disconnect(active);
    });
}

// Rule: VALUES-1
fn the_sink_of_a_read_alone() {
    with_ends(|active, passive| {
        connect(active, passive, address(2, 7815));
        passive.fill(512, 8, 7);
        let region = active.adapter.makes(ADAPTER_MEMORY_REGION, IND2_MEMORY_REGION, &[active.file]);
        let region = region.expect("a region");
        register(&region, active.buffer + 256, 64, READ_SINK);
        let token = region.call(REGION_LOCAL_TOKEN, &[]) as u32;
        let sink = [&(active.buffer + 264).to_le_bytes()[..], &8_u32.to_le_bytes(), &token.to_le_bytes()].concat();
        let (sink, context) = (active.program.bytes(&sink), active.next_context());
        let from = (passive.buffer + 512, passive.remote_token());
        assert_eq!(active.pair.status(READ, &[context, sink, 1, from.0, from.1, 0]), SUCCESS);
        active.succeeds(HAS_READ);
        assert_eq!(active.bytes(264, 8), passive.bytes(512, 8));
        disconnect(active);
    });
}

// Rule: VALUES-1
/// Also from those of a group that the machine does not have: it is a preference.
fn queues_notify_from_the_processors_asked_for() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let adapter = program.adapter(address(1, 0));
    let file = file_of(&adapter);
    let queue = adapter.makes(ADAPTER_COMPLETION_QUEUE, IND2_COMPLETION_QUEUE, &[file, 4, 3, 2]);
    let shared = adapter.makes(ADAPTER_SHARED_QUEUE, IND2_SHARED_RECEIVE_QUEUE, &[file, 5, 3, 1, 0x0102, 2]);
    for (queue, of) in [(queue.expect("a queue"), [3, 0]), (shared.expect("a shared receive queue"), [2, 1])] {
        let (group, processors) = (program.bytes(&[0xFF; 2]), program.zeroed(8));
        queue.expects(QUEUE_AFFINITY, &[group, processors], SUCCESS);
        assert_eq!((program.read(group, 2), program.u64_at(processors)), (of.to_vec(), 2));
    }
    drop(adapter);
    drop(program);
    machine.finish();
}

// Rule: VALUES-1
fn a_backlog_holds_as_many_as_it_says() {
    with_ends(|active, passive| {
        let program = active.program;
        let listener = passive.adapter.makes(ADAPTER_LISTENER, IND2_LISTENER, &[passive.file]).expect("a listener");
        let (to, length) = program.socket(address(2, 7806));
        listener.expects(LISTENER_BIND, &[to, length], SUCCESS);
        listener.expects(LISTENER_LISTEN, &[2], SUCCESS);
        let attempts = [(); 3].map(|()| {
            let connector = active.adapter.makes(ADAPTER_CONNECTOR, IND2_CONNECTOR, &[active.file]).expect("another");
            let (pair, connecting) = (pair_of(&active.adapter, &active.queue, 1), program.overlapped());
            let (own, own_length) = program.socket(address(1, 0));
            connector.expects(CONNECTOR_BIND, &[own, own_length], SUCCESS);
            let arguments = [pair.this, to, length, 3, 5, 0, 0, connecting.address];
            connector.expects(CONNECTOR_CONNECT, &arguments, PENDING);
            rest();
            (connecting, connector, pair)
        });
        let statuses = attempts.each_ref().map(|(connecting, ..)| connecting.status());
        assert_eq!(statuses, [PENDING, PENDING, CONNECTION_REFUSED]);
    });
}

/// An endpoint with these read limits.
fn endpoint<'p>(end: &v1::End<'p>, connector: &Com<'_>, inbound: u64, outbound: u64) -> Com<'p> {
    let program = end.program;
    let most = program.zeroed(8);
    let endpoint = program.made(|out| {
        let arguments = [end.queue.this, end.queue.this, 6, 7, 2, 1, inbound, outbound, most, out];
        connector.call(v1::CREATE_ENDPOINT, &arguments)
    });
    assert_ne!(program.u64_at(most), 0, "bytes of inline data");
    endpoint.expect("an endpoint").named("INDEndpoint")
}

/// Another endpoint and connector, with these read limits.
fn renew(end: &mut v1::End<'_>, inbound: u64, outbound: u64) {
    end.connector = v1::connector(&end.adapter);
    end.endpoint = endpoint(end, &end.connector, inbound, outbound);
}

// Rule: VALUES-1
fn version1_every_number_of_a_connection_is_that_of_its_name() {
    v1::between(false, |active, passive| {
        renew(active, 3, 5);
        renew(passive, 4, 2);
        let program = active.program;
        let listener = v1::listen(passive, 0x1234);
        let (arriving, connecting, accepting) = (program.overlapped(), program.overlapped(), program.overlapped());
        let status = listener.status(v1::CONNECTION_REQUEST, &[passive.connector.this, arriving.address]);
        let (to, length) = program.socket(address(2, 0x1234));
        let local_port = u64::from(0x2345_u16.to_be());
        let arguments = [active.endpoint.this, to, length, 99, local_port, 0, 0, connecting.address];
        active.connector.expects(v1::CONNECT, &arguments, PENDING);
        assert_eq!(listener.finish1(status, &arriving), SUCCESS);
        let limits = |end: &v1::End<'_>| {
            let place = program.zeroed(16);
            end.connector.expects(v1::CONNECTION_DATA, &[place, place + 8, 0, 0], SUCCESS);
            (program.u64_at(place), program.u64_at(place + 8))
        };
        assert_eq!(limits(passive), (5, 3), "the other way round");
        assert_eq!(v1::accept(passive, b"back", &accepting), PENDING);
        assert_eq!(active.connector.finish1(PENDING, &connecting), SUCCESS);
        assert_eq!(limits(active), (2, 4), "the lesser of both sides");
        let completing = program.overlapped();
        let status = active.connector.status(v1::COMPLETE, &[completing.address]);
        assert_eq!(active.connector.finish1(status, &completing), SUCCESS);
        assert_eq!(passive.connector.finish1(PENDING, &accepting), SUCCESS);
        let ports =
            |end: &v1::End<'_>| [v1::LOCAL_ADDRESS, v1::PEER_ADDRESS].map(|slot| port(&end.connector, slot, 28));
        assert_eq!((ports(active), ports(passive)), ([0x2345, 0x1234], [0x1234, 0x2345]));
    });
}

// Rule: VALUES-1
fn version1_silent_success_alone() {
    v1::between(true, |active, passive| {
        let program = active.program;
        let (window, theirs) = (active.window(0), passive.window(0));
        let (descriptor, own) = (program.zeroed(20), program.zeroed(20));
        for _ in 0..4 {
            assert_eq!(passive.receive(&[(0, 64)]), SUCCESS);
        }
        for flags in [SILENT, 0] {
            assert_eq!(passive.bind(&theirs, 0, 64, ALLOW_READ | ALLOW_WRITE, descriptor), SUCCESS);
            passive.succeeds();
            let post = |kind: &str| match kind {
                "send" => active.send(&[(0, 8)], flags),
                "read" => active.transfer(v1::READ, &[(0, 8)], descriptor, 0, flags),
                "write" => active.transfer(v1::WRITE, &[(0, 8)], descriptor, 0, flags),
                "bind" => active.bind(&window, 0, 64, flags | ALLOW_READ, own),
                "invalidate" => {
                    let arguments = [active.result(v1::INVALIDATE), window.this, flags];
                    active.endpoint.status(v1::INVALIDATE, &arguments)
                }
                _ => active.send_and_invalidate(&[(0, 8)], descriptor, flags),
            };
            for kind in ["send", "read", "write", "bind", "invalidate", "send and invalidate"] {
                assert_eq!(post(kind), SUCCESS, "{kind}");
                rest();
                assert_eq!(active.take(8).len(), usize::from(flags == 0), "{kind} with {flags}");
            }
            assert_eq!(passive.wait_for(2).len(), 2, "the receives");
        }
    });
}

/// A queue that waits for solicited results is told of a SendAndInvalidate with the flag alone.
// Rule: VALUES-1
fn version1_solicited_alone() {
    v1::between(true, |active, passive| {
        let program = active.program;
        let theirs = passive.window(0);
        let descriptor = program.zeroed(20);
        for (flags, told) in [(0, false), (SOLICIT, true)] {
            assert_eq!(passive.bind(&theirs, 0, 64, ALLOW_READ, descriptor), SUCCESS);
            passive.succeeds();
            assert_eq!(passive.receive(&[(0, 64)]), SUCCESS);
            let notified = program.overlapped();
            passive.queue.expects(v1::QUEUE_NOTIFY, &[NOTIFY_SOLICITED, notified.address], PENDING);
            assert_eq!(active.send_and_invalidate(&[(0, 8)], descriptor, flags), SUCCESS);
            active.succeeds();
            rest();
            assert_eq!(notified.status() != PENDING, told, "{flags}");
            passive.succeeds();
            if !told {
                passive.queue.expects(CANCEL, &[], SUCCESS);
            }
        }
    });
}

// Rule: VALUES-1
fn version1_a_backlog_holds_as_many_as_it_says() {
    v1::between(false, |active, passive| {
        let program = active.program;
        let port = u64::from(7807_u16.to_be());
        let listener = program.made(|out| passive.adapter.call(v1::ADAPTER_LISTEN, &[2, 99, port, 0, out]));
        let _listener = listener.expect("a listener").named("INDListen");
        let (to, length) = program.socket(address(2, 7807));
        let attempts = [(); 3].map(|()| {
            let (connector, connecting) = (v1::connector(&active.adapter), program.overlapped());
            let endpoint = endpoint(active, &connector, 3, 5);
            let arguments = [endpoint.this, to, length, 99, 0, 0, 0, connecting.address];
            connector.expects(v1::CONNECT, &arguments, PENDING);
            rest();
            (connecting, connector, endpoint)
        });
        let statuses = attempts.each_ref().map(|(connecting, ..)| connecting.status());
        assert_eq!(statuses, [PENDING, PENDING, CONNECTION_REFUSED]);
    });
}

// Rule: VALUES-1
fn version1_results_are_waited_for_and_counted() {
    v1::between(false, |active, passive| {
        let program = active.program;
        let _listener = v1::listen(passive, 7808);
        let (connecting, bytes) = (program.overlapped(), program.bytes(&[0x5A; 8]));
        assert_eq!(v1::connect_to(active, address(2, 7808), b"", &connecting), PENDING);
        let result = |wait: u64| active.connector.status(GET_OVERLAPPED_RESULT, &[connecting.address, bytes, wait]);
        assert_eq!((result(0), program.u64_at(bytes)), (PENDING, 0), "none while it has not ended");
        assert_eq!(result(1), TIMEOUT, "no answer comes");
        let (registering, place) = (program.overlapped(), program.zeroed(8));
        let arguments = [active.buffer, 4096, registering.address, place];
        active.adapter.expects(v1::ADAPTER_REGISTER, &arguments, PENDING);
        let arguments = [registering.address, bytes, 1];
        active.adapter.expects(GET_OVERLAPPED_RESULT, &arguments, SUCCESS);
        assert_eq!(program.u64_at(bytes), 8, "two tokens");
        active.adapter.expects(v1::ADAPTER_DEREGISTER, &[program.u64_at(place), registering.address], PENDING);
        assert_eq!(active.adapter.finish1(PENDING, &registering), SUCCESS);
    });
}

/// Link-local addresses mean something with the zone of their interface only.
// Rule: VALUES-1
fn zones_cross_the_border() {
    let machine = Machine::start();
    let near = Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 1);
    assert!(machine.adapters[0].add_address(near.into(), 64));
    rest();
    let [zone, other] = [0, 1].map(|index| machine.adapters[index].if_index());
    let program = Program::start(&machine);
    let at = |port, zone| program.socket(SocketAddr::V6(SocketAddrV6::new(near, port, 0, zone)));
    let (wrong, right) = (at(0x1234, other), at(0x1234, zone));
    let provider = program.provider();
    provider.expects(PROVIDER_RESOLVE, &[wrong.0, wrong.1, program.zeroed(8)], INVALID_ADDRESS);
    let place = program.zeroed(8);
    provider.expects(PROVIDER_RESOLVE, &[right.0, right.1, place], SUCCESS);
    let identifier = program.u64_at(place);
    let adapter = provider.makes(PROVIDER_OPEN, IND2_ADAPTER, &[identifier]).expect("the adapter opens");
    let file = file_of(&adapter);
    let listener = adapter.makes(ADAPTER_LISTENER, IND2_LISTENER, &[file]).expect("a listener");
    listener.expects(LISTENER_BIND, &[wrong.0, wrong.1], INVALID_ADDRESS);
    listener.expects(LISTENER_BIND, &[right.0, right.1], SUCCESS);
    let connector = adapter.makes(ADAPTER_CONNECTOR, IND2_CONNECTOR, &[file]).expect("a connector");
    let (wrong, right) = (at(0x2345, other), at(0x2345, zone));
    connector.expects(CONNECTOR_BIND, &[wrong.0, wrong.1], INVALID_ADDRESS);
    connector.expects(CONNECTOR_BIND, &[right.0, right.1], SUCCESS);
    let first = v1::provider(&program);
    let open = |(socket, length): (u64, u64)| program.made(|out| first.call(v1::PROVIDER_OPEN, &[socket, length, out]));
    assert_eq!(open(wrong).err(), Some(INVALID_ADDRESS));
    assert!(open(right).is_ok());
    drop((listener, connector, adapter, provider, first));
    drop(program);
    machine.finish();
}
