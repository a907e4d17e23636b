//! Values unlike their neighbours, so that a field that is forgotten or taken for another shows (xtask/lists/arguments.txt).

use super::program::*;
use networkdirect::machine::{Machine, ip, rest};
use networkdirect::{cases, cases::Case};
use softndk_ioctl::Status;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::private::{BIND_WINDOW, BindWindow, BindWindowReply};
use softndk_ioctl::nd::rings::{
    InitiatorEntry, OperationFlags, QueuePairState, QueueSizes, RequestType, ResultEntry, Sge,
};
use softndk_ioctl::nd::{INFO_VERSION, VERSION};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

pub const CASES: &[Case] = cases![
    zones_cross_the_border,
    every_limit_of_a_card_stands_in_its_field,
    every_limit_of_a_tiny_adapter_stands_in_its_field,
    receives_and_requests_have_a_completion_queue_each,
    a_queue_pair_with_shared_receives_has_each_number_in_its_place,
    affinities_come_back_as_they_were_asked_for,
    each_flag_of_a_request_alone,
    each_right_of_a_registration_alone,
    each_flag_of_a_bound_window_alone,
];

// Rule: VALUES-1
/// Link-local addresses mean something with the zone of their interface only; zone 0 is any.
fn zones_cross_the_border() {
    let machine = Machine::start();
    let [near, far] = [1, 2].map(|host| Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, host));
    for (adapter, ip) in machine.adapters.iter().zip([near, far]) {
        assert!(adapter.add_address(ip.into(), 64));
    }
    rest();
    let [zone, other] = [0, 1].map(|index| machine.adapters[index].if_index());
    let address = |ip, port, zone| SocketAddr::V6(SocketAddrV6::new(ip, port, 0, zone));
    let (server, client) = (Program::start(100, 1), Program::start(200, 2));

    let listener = server.nd.create(LISTENER_CREATE, server.adapter);
    assert_eq!(server.bind(LISTENER_BIND, listener, address(near, 0x1234, other)), INVALID_ADDRESS);
    assert_eq!(server.bind(LISTENER_BIND, listener, address(near, 0x1234, zone)), Status::SUCCESS);
    assert_eq!(server.nd.call(LISTENER_LISTEN, &Listen { version: VERSION, backlog: 0, listener }), Status::SUCCESS);
    assert_eq!(server.address_of(LISTENER_GET_ADDRESS, listener), Ok(address(near, 0x1234, zone)));
    let theirs = server.connector();
    let wrong = server.bind(CONNECTOR_BIND, theirs, address(near, 0x1234, other));
    assert_eq!(wrong, INVALID_ADDRESS, "the process has the port, and not in this zone");

    let arriving = server.get_request(listener, theirs);
    let ours = client.connector();
    assert_eq!(client.bind(CONNECTOR_BIND, ours, address(far, 0x2345, zone)), INVALID_ADDRESS);
    assert_eq!(client.bind(CONNECTOR_BIND, ours, address(far, 0x2345, other)), Status::SUCCESS);
    let connecting = client.connect(ours, address(near, 0x1234, other), b"x");
    assert_eq!(status(&arriving), Status::SUCCESS);
    let accepting = server.accept(theirs, b"y");
    assert_eq!(status(&connecting), Status::SUCCESS);
    assert_eq!(client.nd.call(CONNECTOR_COMPLETE_CONNECT, &handle(ours)), Status::SUCCESS);
    assert_eq!(status(&accepting), Status::SUCCESS);
    assert_eq!(client.address_of(CONNECTOR_GET_ADDRESS, ours), Ok(address(far, 0x2345, other)));
    assert_eq!(client.address_of(CONNECTOR_GET_PEER_ADDRESS, ours), Ok(address(near, 0x1234, other)));
    assert_eq!(server.address_of(CONNECTOR_GET_ADDRESS, theirs), Ok(address(near, 0x1234, zone)));
    assert_eq!(server.address_of(CONNECTOR_GET_PEER_ADDRESS, theirs), Ok(address(far, 0x2345, zone)));

    let resolve = |ip, zone| {
        let asked = ResolveAddress { version: VERSION, reserved: 0, address: socket(address(ip, 7, zone)) };
        server.nd.try_ask::<u64>(PROVIDER_RESOLVE_ADDRESS, &asked)
    };
    let first = resolve(near, zone).expect("an adapter");
    assert_eq!((resolve(near, 0), resolve(near, other)), (Ok(first), Err(INVALID_ADDRESS)));
    assert!(resolve(far, other).is_ok_and(|second| second != first));
    drop(server.close());
    drop(client.close());
    machine.finish();
}

/// The numbers of docs/limits.md, with the depth and the thresholds that programs see (docs/networkdirect.md).
const CARD: AdapterInfo = AdapterInfo {
    info_version: INFO_VERSION,
    vendor_id: 0xFFFF,
    device_id: 1,
    adapter_id: 0,
    max_registration_size: 4_294_963_200,
    max_window_size: 4_294_963_200,
    max_initiator_sge: 32,
    max_receive_sge: 32,
    max_read_sge: 32,
    max_transfer_length: 1 << 30,
    max_inline_data_size: 256,
    max_inbound_read_limit: 16,
    max_outbound_read_limit: 128,
    max_receive_queue_depth: 16_351,
    max_initiator_queue_depth: 16_351,
    max_shared_receive_queue_depth: 16_351,
    max_completion_queue_depth: 65_519,
    inline_request_threshold: 128,
    large_request_threshold: 64 << 10,
    max_caller_data: 56,
    max_callee_data: 148,
    adapter_flags: 0x1_0101,
};

fn adapters_have(profile: &str, limits: AdapterInfo) {
    let machine = Machine::with(&[("LimitsProfile", profile)]);
    let nd = Nd::start(7);
    let adapter_id = nd.adapter_id(ip(2));
    assert_ne!(adapter_id, nd.adapter_id(ip(1)));
    let adapter = nd.open_adapter(ip(2));
    assert_eq!(nd.query(adapter), AdapterInfo { adapter_id, ..limits });
    nd.close();
    machine.finish();
}

// Rule: VALUES-1
fn every_limit_of_a_card_stands_in_its_field() {
    adapters_have("0", CARD);
}

// Rule: VALUES-1
/// Reads have fewer elements than other requests.
fn every_limit_of_a_tiny_adapter_stands_in_its_field() {
    let tiny = AdapterInfo {
        max_registration_size: 4 << 20,
        max_window_size: 4 << 20,
        max_initiator_sge: 4,
        max_receive_sge: 4,
        max_read_sge: 2,
        max_transfer_length: 2 << 20,
        max_inline_data_size: 16,
        max_inbound_read_limit: 1,
        max_outbound_read_limit: 1,
        max_receive_queue_depth: 64,
        max_initiator_queue_depth: 64,
        max_shared_receive_queue_depth: 64,
        max_completion_queue_depth: 256,
        inline_request_threshold: 16,
        max_caller_data: 16,
        max_callee_data: 16,
        ..CARD
    };
    adapters_have("2", tiny);
}

/// Type of CQ_NOTIFY.
const SOLICITED: u32 = 2;

/// The contexts of successful results of a kind.
fn contexts(results: &[ResultEntry], kind: RequestType) -> Vec<u64> {
    assert!(results.iter().all(|result| (result.status, result.request_type) == (0, kind as u32)), "{results:?}");
    results.iter().map(|result| result.request_context).collect()
}

/// Five of three elements; what a shared receive queue has does not count.
const SHAPE: QueueSizes =
    QueueSizes { initiator_depth: 5, initiator_sges: 3, inline_data: 24, receive_depth: 7, receive_sges: 2 };

// Rule: VALUES-1
fn receives_and_requests_have_a_completion_queue_each() {
    let machine = Machine::start();
    let (mut server, client) = (Program::start(100, 1), Program::start(200, 2));
    let receives = server.nd.queue(server.adapter, 32);
    let queues = (receives.handle, server.queue.handle);
    server.replace_pair(new_pair(&server.nd, server.domain, queues, SHAPE));
    exchange(&server, &client, &server.pair, &receives);
    drop((server.close(), client.close()));
    drop(receives);
    machine.finish();
}

/// Each side sends to the other; the server's results come out of the queue that they belong to.
fn exchange(server: &Program, client: &Program, receiving: &Pair, receives: &Queue) {
    connect(server, client);
    for context in [31, 32] {
        receiving.write_receive(context, &[server.region.sge(0, 64)]);
    }
    assert_eq!(server.nd.doorbell(receiving.handle), Status::SUCCESS);
    for context in [41, 42] {
        client.pair.send(&client.nd, context, OperationFlags::empty(), &[client.region.sge(0, 64)]);
    }
    assert_eq!(contexts(&receives.wait(2), RequestType::Receive), [31, 32]);
    assert_eq!(contexts(&client.queue.wait(2), RequestType::Send), [41, 42]);
    // There is no receive: what is posted stays, as many as there may be, each as long as it may be.
    let list = [(0, 16), (100, 17), (200, 18)].map(|(offset, length)| server.region.sge(offset, length));
    for context in 51..=55 {
        server.pair.write_entry(entry(RequestType::Send, context, OperationFlags::empty()), &list, &[]);
    }
    assert_eq!(server.nd.doorbell(server.pair.handle), Status::SUCCESS);
    assert_eq!((server.pair.free(), server.queue.poll()), (0, Vec::new()));
    for context in 61..=65 {
        client.pair.receive(&client.nd, context, &[client.region.sge(4096, 64)]);
    }
    let arrived = client.queue.wait(5);
    assert_eq!(contexts(&arrived, RequestType::Receive), [61, 62, 63, 64, 65]);
    assert!(arrived.iter().all(|result| result.bytes_transferred == 51), "{arrived:?}");
    assert_eq!(contexts(&server.queue.wait(5), RequestType::Send), [51, 52, 53, 54, 55]);
    assert_eq!(receives.poll(), []);
}

// Rule: VALUES-1
fn a_queue_pair_with_shared_receives_has_each_number_in_its_place() {
    let machine = Machine::start();
    let (mut server, client) = (Program::start(100, 1), Program::start(200, 2));
    let receives = server.nd.queue(server.adapter, 32);
    let asked = CreateSharedReceiveQueue {
        version: VERSION,
        queue_depth: 9,
        max_request_sge: 2,
        domain: server.domain,
        ..CreateSharedReceiveQueue::default()
    };
    let sizes = QueueSizes { receive_depth: 9, receive_sges: 2, ..QueueSizes::default() };
    let shared = Pair::attach(&server.nd, server.nd.ask::<ResourceDescriptor>(SRQ_CREATE, &asked).handle, sizes);
    let queues = (receives.handle, server.queue.handle);
    server.replace_pair(new_pair_with_shared(&server.nd, server.domain, queues, SHAPE, &shared));
    exchange(&server, &client, &shared, &receives);
    drop((server.close(), client.close()));
    drop((receives, shared));
    machine.finish();
}

// Rule: VALUES-1
/// Also one with processors of a group that the machine does not have: it is a preference.
fn affinities_come_back_as_they_were_asked_for() {
    let machine = Machine::start();
    let nd = Nd::start(7);
    let adapter = nd.open_adapter(ip(1));
    let domain = nd.create(PD_CREATE, adapter);
    let of = |mask, group| GroupAffinity { mask, group, ..GroupAffinity::default() };
    for affinity in [of(0b10, 0), of(0b1000, 0x0102)] {
        let queue = CreateCompletionQueue { version: VERSION, queue_depth: 5, adapter, affinity, ..Default::default() };
        let queue = nd.ask::<ResourceDescriptor>(CQ_CREATE, &queue).handle;
        assert_eq!(nd.ask::<GroupAffinity>(CQ_GET_AFFINITY, &handle(queue)), affinity);
        let shared = CreateSharedReceiveQueue {
            version: VERSION,
            queue_depth: 5,
            max_request_sge: 3,
            domain,
            affinity,
            ..Default::default()
        };
        let shared = nd.ask::<ResourceDescriptor>(SRQ_CREATE, &shared).handle;
        assert_eq!(nd.ask::<GroupAffinity>(SRQ_GET_AFFINITY, &handle(shared)), affinity);
    }
    nd.close();
    machine.finish();
}

fn post(program: &Program, kind: RequestType, context: u64, flags: OperationFlags, (address, token): (u64, u32)) {
    let head = InitiatorEntry { remote_address: address, remote_token: token, ..entry(kind, context, flags) };
    program.pair.post(&program.nd, head, &[program.region.sge(256, 48)]);
}

// Rule: VALUES-1
fn each_flag_of_a_request_alone() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    let receive = |context| server.pair.receive(&server.nd, context, &[server.region.sge(4096, 64)]);
    let remote = (server.region.address() + 512, server.region.token);
    for kind in [RequestType::Send, RequestType::Read, RequestType::Write] {
        for (context, flags) in [(21, OperationFlags::SILENT_SUCCESS), (22, OperationFlags::empty())] {
            if kind == RequestType::Send {
                receive(11);
            }
            post(&client, kind, context, flags, remote);
        }
        rest();
        assert_eq!(contexts(&client.queue.poll(), kind), [22]);
    }
    assert_eq!(contexts(&server.queue.wait(2), RequestType::Receive), [11, 11]);

    let solicited = server.nd.notify(&server.queue, SOLICITED);
    for (flags, notified) in [(OperationFlags::empty(), false), (OperationFlags::SEND_AND_SOLICIT_EVENT, true)] {
        receive(12);
        post(&client, RequestType::Send, 23, flags, (0, 0));
        rest();
        assert_eq!(solicited.is_completed(), notified, "{flags:?}");
    }
    assert_eq!(status_now(&solicited), Status::SUCCESS);
    assert_eq!(contexts(&server.queue.wait(2), RequestType::Receive), [12, 12]);

    receive(13);
    client.pair.send_inline(&client.nd, 24, b"inline");
    assert_eq!(contexts(&client.queue.wait(3), RequestType::Send), [23, 23, 24]);
    let received = server.queue.wait(1)[0];
    assert_eq!((received.status, received.request_context, received.bytes_transferred), (0, 13, 6));
    assert_eq!(server.region.buffer.as_slice()[4096..4102], *b"inline");

    // What comes with a message: nothing, a window's token, immediate data.
    let window = server.nd.create(MW_CREATE, server.domain);
    let token = bind(&server, window, ALLOW_READ).expect("a token");
    assert_eq!(contexts(&server.queue.wait(1), RequestType::Bind), [BIND_CONTEXT]);
    for (flags, kind, value) in [
        (OperationFlags::empty(), RequestType::Receive, 0),
        (OperationFlags::INVALIDATE_REMOTE, RequestType::ReceiveAndInvalidate, token),
        (OperationFlags::IMMEDIATE, RequestType::ReceiveImmediate, 0x0123_4567),
    ] {
        receive(14);
        let head =
            InitiatorEntry { remote_token: token, immediate: 0x0123_4567, ..entry(RequestType::Send, 25, flags) };
        client.pair.post(&client.nd, head, &[]);
        let received = server.queue.wait(1);
        assert_eq!((contexts(&received, kind), received[0].value), (vec![14], value), "{flags:?}");
        assert_eq!(contexts(&client.queue.wait(1), RequestType::Send), [25]);
    }
    drop((solicited, server.close(), client.close()));
    machine.finish();
}

const ACCESSES: [RequestType; 3] = [RequestType::Read, RequestType::Write, RequestType::Send];

/// Whether a peer's request succeeds: one that reads memory or writes it, or a message that a receive puts there.
fn succeeds(server: &Program, client: &Program, kind: RequestType, memory: Sge) -> bool {
    if kind == RequestType::Send {
        server.pair.receive(&server.nd, 15, &[memory]);
    }
    post(client, kind, 26, OperationFlags::empty(), (memory.address, memory.token));
    client.queue.wait(1)[0].status == 0 && !client.pair.state().contains(QueuePairState::ENDED)
}

// Rule: VALUES-1
/// An access that is not allowed ends the connection, so each has one of its own.
fn each_right_of_a_registration_alone() {
    let machine = Machine::start();
    for (flags, allowed) in [
        (REMOTE_READ, [true, false, false]),
        (LOCAL_WRITE, [false, false, true]),
        (REMOTE_WRITE, [false, true, true]),
        (READ_SINK, [false, false, true]),
    ] {
        for (kind, allowed) in ACCESSES.into_iter().zip(allowed) {
            let (server, client, ..) = pair_of_programs();
            let region = server.nd.region(server.domain, 4096, flags);
            assert_eq!(succeeds(&server, &client, kind, region.sge(128, 64)), allowed, "{kind:?} with {flags:#x}");
            drop((server.close(), client.close()));
            drop(region);
        }
    }
    machine.finish();
}

const SILENT_SUCCESS: u32 = 0x1;
const ALLOW_READ: u32 = 0x8;
const ALLOW_WRITE: u32 = 0x10;
const BIND_CONTEXT: u64 = 0x1_0000_0016;

/// Binds 64 bytes from the 512th on.
fn bind(program: &Program, window: u64, flags: u32) -> Result<u32, Status> {
    let asked = BindWindow {
        version: VERSION,
        flags,
        queue_pair: program.pair.handle,
        region: program.region.handle,
        window,
        context: BIND_CONTEXT,
        address: program.region.address() + 512,
        length: 64,
    };
    program.nd.try_ask::<BindWindowReply>(BIND_WINDOW, &asked).map(|reply| reply.remote_token)
}

// Rule: VALUES-1
fn each_flag_of_a_bound_window_alone() {
    let machine = Machine::start();
    let rights = [(ALLOW_READ, [true, false]), (ALLOW_WRITE, [false, true]), (SILENT_SUCCESS, [false, false])];
    for (flags, allowed) in rights {
        for (kind, allowed) in ACCESSES.into_iter().zip(allowed) {
            let (server, client, ..) = pair_of_programs();
            let window = server.nd.create(MW_CREATE, server.domain);
            let token = bind(&server, window, flags).expect("a token");
            rest();
            let bound = contexts(&server.queue.poll(), RequestType::Bind);
            assert_eq!(bound, [BIND_CONTEXT][usize::from(flags == SILENT_SUCCESS)..], "{flags:#x}");
            let memory = Sge { token, ..server.region.sge(512, 64) };
            assert_eq!(succeeds(&server, &client, kind, memory), allowed, "{kind:?} with {flags:#x}");
            drop((server.close(), client.close()));
        }
    }
    machine.finish();
}
