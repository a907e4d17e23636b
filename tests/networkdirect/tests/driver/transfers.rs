//! Requests in rings, from the doorbell to the result.

use super::program::*;
use kernel_host::memory::user_buffer::UserBuffer;
use networkdirect::machine::{Machine, late, rest};
use networkdirect::{cases, cases::Case};
use softndk_ioctl::Status;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::private::{ATTACH, Attach};
use softndk_ioctl::nd::rings::{LAYOUT, OperationFlags, QueuePairState, RequestType, ResultEntry, Sge};

pub const CASES: &[Case] = cases![
    messages_and_remote_accesses_arrive,
    a_queue_pair_runs_through_its_ring_many_times,
    silent_requests_free_their_slots,
    receives_are_taken_before_there_is_a_connection,
    a_message_too_long_fails_the_receiver_only,
    an_access_outside_of_the_region_is_a_violation,
    posts_after_the_end_are_cancelled,
    a_flush_without_a_connection_cancels_the_receives,
    an_answer_is_not_seen_before_its_send,
    a_full_ring_leaves_the_rest_until_there_is_room,
    a_queue_is_resized_under_traffic,
    rings_are_attached_once,
];

fn brief(result: &ResultEntry) -> (u32, u64, Status, u32) {
    assert_eq!(result.queue_pair_context, PAIR_CONTEXT);
    (result.request_type, result.request_context, Status(result.status), result.bytes_transferred)
}

const SEND: u32 = RequestType::Send as u32;
const RECEIVE: u32 = RequestType::Receive as u32;
const READ: u32 = RequestType::Read as u32;
const WRITE: u32 = RequestType::Write as u32;

fn messages_and_remote_accesses_arrive() {
    let machine = Machine::start();
    let (mut server, mut client, ..) = pair_of_programs();
    client.region.fill(0xC1);
    server.region.fill(0x5E);
    server.pair.receive(&server.nd, 10, &[server.region.sge(0, 100), server.region.sge(4096, 1000)]);
    client.pair.send(&client.nd, 20, OperationFlags::empty(), &[client.region.sge(8, 600), client.region.sge(0, 4)]);
    assert_eq!(client.queue.wait(1).iter().map(brief).collect::<Vec<_>>(), [(SEND, 20, Status::SUCCESS, 604)]);
    assert_eq!(server.queue.wait(1).iter().map(brief).collect::<Vec<_>>(), [(RECEIVE, 10, Status::SUCCESS, 604)]);
    assert!(server.region.buffer.as_slice()[..100].iter().all(|byte| *byte == 0xC1));
    assert!(server.region.buffer.as_slice()[4096..4096 + 504].iter().all(|byte| *byte == 0xC1));
    assert_eq!(server.region.buffer.as_slice()[4096 + 504], 0x5E);
    // Inline, and without any bytes.
    server.pair.receive(&server.nd, 11, &[server.region.sge(0, 64)]);
    server.pair.receive(&server.nd, 12, &[]);
    client.pair.send_inline(&client.nd, 21, b"inline data of some length");
    client.pair.send(&client.nd, 22, OperationFlags::empty(), &[]);
    assert_eq!(client.queue.wait(2).iter().map(|result| result.request_context).collect::<Vec<_>>(), [21, 22]);
    let received = server.queue.wait(2);
    assert_eq!(received.iter().map(|result| result.bytes_transferred).collect::<Vec<_>>(), [26, 0]);
    assert!(server.region.buffer.as_slice().starts_with(b"inline data of some length"));
    // Remote accesses.
    let remote = |offset: u64| (server.region.address() + offset, server.region.token);
    client.pair.rdma(&client.nd, RequestType::Write, 23, &[client.region.sge(100, 5000)], remote(20_000));
    client.pair.rdma(&client.nd, RequestType::Read, 24, &[client.region.sge(30_000, 5000)], remote(19_000));
    let done = client.queue.wait(2);
    assert_eq!(
        done.iter().map(brief).collect::<Vec<_>>(),
        [(WRITE, 23, Status::SUCCESS, 5000), (READ, 24, Status::SUCCESS, 5000)]
    );
    assert!(client.region.buffer.as_slice()[30_000..31_000].iter().all(|byte| *byte == 0x5E));
    assert!(client.region.buffer.as_slice()[31_000..35_000].iter().all(|byte| *byte == 0xC1));
    assert_eq!(server.queue.poll(), []);
    drop(server.close());
    drop(client.close());
    machine.finish();
}

fn a_queue_pair_runs_through_its_ring_many_times() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    for round in 0..50_u64 {
        for index in 0..SIZES.receive_depth {
            server.pair.write_receive(round * 100 + u64::from(index), &[server.region.sge(0, 8)]);
        }
        assert_eq!(server.nd.doorbell(server.pair.handle), Status::SUCCESS);
        for index in 0..SIZES.initiator_depth {
            let head = entry(RequestType::Send, round * 100 + u64::from(index), OperationFlags::empty());
            client.pair.write_entry(head, &[client.region.sge(0, 8)], &[]);
        }
        assert_eq!(client.nd.doorbell(client.pair.handle), Status::SUCCESS);
        for results in [client.queue.wait(16), server.queue.wait(16)] {
            let expected = (0..16).map(|index| round * 100 + index).collect::<Vec<_>>();
            assert_eq!(results.iter().map(|result| result.request_context).collect::<Vec<_>>(), expected);
        }
        assert_eq!(client.pair.free(), SIZES.initiator_depth);
        let taken = server.pair.taken();
        assert_eq!((taken.receive_taken, taken.receive_retired), ((round as u32 + 1) * 16, (round as u32 + 1) * 16));
    }
    drop(server.close());
    drop(client.close());
    machine.finish();
}

fn silent_requests_free_their_slots() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    let remote = (server.region.address(), server.region.token);
    for _ in 0..20 {
        while client.pair.free() > 0 {
            let head = softndk_ioctl::nd::rings::InitiatorEntry {
                remote_address: remote.0,
                remote_token: remote.1,
                ..entry(RequestType::Write, 0, OperationFlags::SILENT_SUCCESS)
            };
            client.pair.write_entry(head, &[client.region.sge(0, 64)], &[]);
        }
        // A full queue asks once more before it refuses; across a stream the requests take their time.
        assert_eq!(client.nd.doorbell(client.pair.handle), Status::SUCCESS);
        if client.pair.free() < SIZES.initiator_depth {
            networkdirect::machine::pass(100);
            assert_eq!(client.nd.doorbell(client.pair.handle), Status::SUCCESS);
        }
        assert_eq!(client.pair.free(), SIZES.initiator_depth);
    }
    assert_eq!(client.queue.poll(), []);
    drop(server.close());
    drop(client.close());
    machine.finish();
}

fn receives_are_taken_before_there_is_a_connection() {
    let machine = Machine::start();
    let (server, client) = (Program::start(100, 1), Program::start(200, 2));
    server.pair.receive(&server.nd, 1, &[server.region.sge(0, 64)]);
    assert_eq!(server.pair.taken().receive_taken, 1);
    client.pair.write_entry(entry(RequestType::Send, 2, OperationFlags::empty()), &[client.region.sge(0, 64)], &[]);
    assert_eq!(client.nd.doorbell(client.pair.handle), Status::SUCCESS);
    assert_eq!(client.pair.taken().initiator_taken, 0, "not connected");
    connect(&server, &client);
    assert_eq!(client.nd.doorbell(client.pair.handle), Status::SUCCESS);
    assert_eq!(brief(&client.queue.wait(1)[0]), (SEND, 2, Status::SUCCESS, 64));
    assert_eq!(brief(&server.queue.wait(1)[0]), (RECEIVE, 1, Status::SUCCESS, 64));
    drop(server.close());
    drop(client.close());
    machine.finish();
}

fn a_message_too_long_fails_the_receiver_only() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    server.pair.receive(&server.nd, 1, &[server.region.sge(0, 10)]);
    server.pair.receive(&server.nd, 2, &[server.region.sge(0, 100)]);
    client.pair.send(&client.nd, 3, OperationFlags::empty(), &[client.region.sge(0, 11)]);
    assert_eq!(brief(&client.queue.wait(1)[0]), (SEND, 3, Status::SUCCESS, 11));
    let received = server.queue.wait(2);
    assert_eq!(
        received.iter().map(|result| Status(result.status)).collect::<Vec<_>>(),
        [DATA_OVERRUN, Status::CANCELLED]
    );
    drop(server.close());
    drop(client.close());
    machine.finish();
}

fn an_access_outside_of_the_region_is_a_violation() {
    let machine = Machine::start();
    for wrong in 0..4 {
        let (server, client, ..) = pair_of_programs();
        server.pair.receive(&server.nd, 1, &[server.region.sge(0, 10)]);
        let (address, token) = (server.region.address(), server.region.token);
        let local = client.region.sge(0, 64);
        let (kind, sge, remote) = match wrong {
            0 => (RequestType::Read, local, (address + 65_536 - 63, token)),
            1 => (RequestType::Write, local, (address, token ^ 0x0040_0000)),
            2 => (RequestType::Write, Sge { token: 0, ..local }, (address, token)),
            _ => (RequestType::Write, Sge { length: 65_537, ..local }, (address, token)),
        };
        client.pair.rdma(&client.nd, kind, 2, &[sge], remote);
        let refused = if wrong == 1 { late(ACCESS_VIOLATION, Status::SUCCESS) } else { ACCESS_VIOLATION };
        assert_eq!(Status(client.queue.wait(1)[0].status), refused, "{wrong}");
        assert_eq!(Status(server.queue.wait(1)[0].status), Status::CANCELLED, "the connection is over");
        assert!(client.pair.state().contains(QueuePairState::ENDED));
        drop(server.close());
        drop(client.close());
    }
    machine.finish();
}

fn posts_after_the_end_are_cancelled() {
    let machine = Machine::start();
    let (server, client, theirs, ours) = pair_of_programs();
    server.pair.receive(&server.nd, 1, &[server.region.sge(0, 10)]);
    let disconnecting = client.nd.begin(CONNECTOR_DISCONNECT, &handle(ours));
    assert_eq!(status(&disconnecting), Status::SUCCESS);
    assert_eq!(brief(&server.queue.wait(1)[0]), (RECEIVE, 1, Status::CANCELLED, 0));
    for program in [&server, &client] {
        program.pair.receive(&program.nd, 2, &[program.region.sge(0, 10)]);
        program.pair.send(&program.nd, 3, OperationFlags::SILENT_SUCCESS, &[program.region.sge(0, 10)]);
        let mut results = program.queue.wait(2);
        results.sort_by_key(|result| result.request_context);
        let results = results.iter().map(brief).collect::<Vec<_>>();
        assert_eq!(results, [(RECEIVE, 2, Status::CANCELLED, 0), (SEND, 3, Status::CANCELLED, 0)]);
    }
    assert_eq!(
        status(&server.nd.begin(CONNECTOR_DISCONNECT, &handle(theirs))),
        Status::SUCCESS,
        "the first of its side"
    );
    drop(server.close());
    drop(client.close());
    machine.finish();
}

fn a_flush_without_a_connection_cancels_the_receives() {
    let machine = Machine::start();
    let program = Program::start(7, 1);
    for context in 0..3 {
        program.pair.write_receive(context, &[]);
    }
    let waiting = program.nd.notify(&program.queue, 1);
    assert_eq!(program.nd.call(QP_FLUSH, &handle(program.pair.handle)), Status::SUCCESS);
    assert_eq!(status(&waiting), Status::SUCCESS);
    let results = program.queue.poll();
    assert_eq!(results.len(), 3, "all of them with the notification");
    assert!(results.iter().all(|result| Status(result.status) == Status::CANCELLED));
    drop(program.close());
    machine.finish();
}

/// Two programs with completion queues of their own for both directions, and those of their initiators.
fn with_two_queues() -> (Program, Program, [Queue; 2]) {
    let (mut server, mut client) = (Program::start(100, 1), Program::start(200, 2));
    let queues = [&mut server, &mut client].map(|program| {
        let initiator = program.nd.queue(program.adapter, 16);
        let pair = new_pair(&program.nd, program.domain, (program.queue.handle, initiator.handle), SIZES);
        let old = std::mem::replace(&mut program.pair, pair);
        assert_eq!(program.nd.free(QP_FREE, old.handle), Status::SUCCESS);
        initiator
    });
    connect(&server, &client);
    (server, client, queues)
}

/// When a program sees the answer, its Send is complete: also where the Send's result found no room at first.
fn an_answer_is_not_seen_before_its_send() {
    let machine = Machine::start();
    let (server, client, queues) = with_two_queues();
    for round in 0..10 {
        client.pair.receive(&client.nd, round, &[]);
        // The ring of 32 is full, and one result waits in the driver.
        for _ in 0..3 {
            let count = 11_u64;
            for context in 0..count {
                server.pair.write_receive(context, &[]);
            }
            assert_eq!(server.nd.doorbell(server.pair.handle), Status::SUCCESS);
            for context in 0..count {
                client.pair.write_entry(entry(RequestType::Send, context, OperationFlags::empty()), &[], &[]);
            }
            assert_eq!(client.nd.doorbell(client.pair.handle), Status::SUCCESS);
            server.queue.wait(count as usize);
            rest();
        }
        assert_eq!(queues[1].poll().len(), 32, "round {round}");
        // There is room, and the driver has not been told.
        assert_eq!(queues[1].poll(), []);
        server.pair.send(&server.nd, round, OperationFlags::empty(), &[]);
        client.queue.wait(1);
        assert_eq!(queues[1].poll().len(), 1, "round {round}: the answer came before the end of its Send");
        queues[0].wait(1);
    }
    drop(server.close());
    drop(client.close());
    machine.finish();
}

fn a_full_ring_leaves_the_rest_until_there_is_room() {
    let machine = Machine::start();
    // A ring of 32 results.
    let (server, client) = (Program::with(100, 1, SIZES, 2), Program::start(200, 2));
    connect(&server, &client);
    let mut expected = 0;
    for round in 0..3 {
        for index in 0..16 {
            server.pair.write_receive(round * 16 + index, &[]);
        }
        assert_eq!(server.nd.doorbell(server.pair.handle), Status::SUCCESS);
        for _ in 0..16 {
            client.pair.write_entry(entry(RequestType::Send, 0, OperationFlags::empty()), &[], &[]);
        }
        assert_eq!(client.nd.doorbell(client.pair.handle), Status::SUCCESS);
        assert_eq!(client.queue.wait(16).len(), 16);
        rest();
    }
    assert!(server.queue.flags().contains(softndk_ioctl::nd::rings::CompletionFlags::MORE));
    let mut results = server.queue.poll();
    assert_eq!(results.len(), 32);
    assert_eq!(server.nd.doorbell(server.queue.handle), Status::SUCCESS);
    results.extend(server.queue.poll());
    for result in &results {
        assert_eq!(result.request_context, expected);
        expected += 1;
    }
    assert_eq!(expected, 48);
    assert!(!server.queue.flags().contains(softndk_ioctl::nd::rings::CompletionFlags::MORE));
    drop(server.close());
    drop(client.close());
    machine.finish();
}

fn a_queue_is_resized_under_traffic() {
    let machine = Machine::start();
    let (mut server, client, ..) = pair_of_programs();
    let (mut expected, mut next) = (0, 0);
    for depth in [3, 100, 64, 7, 1000] {
        for _ in 0..2 {
            server.pair.receive(&server.nd, next, &[]);
            client.pair.send(&client.nd, 0, OperationFlags::empty(), &[]);
            next += 1;
        }
        rest();
        let asked =
            ModifyCompletionQueue { version: 1, queue_depth: depth, handle: server.queue.handle, ..Default::default() };
        assert_eq!(server.nd.call(CQ_MODIFY, &asked), Status::SUCCESS);
        let fresh = Queue::attach(&server.nd, server.queue.handle, depth);
        let old = std::mem::replace(&mut server.queue, fresh);
        assert_eq!(status_now(&old.attach), Status::SUCCESS);
        assert!(old.flags().contains(softndk_ioctl::nd::rings::CompletionFlags::MOVED));
        server.pair.receive(&server.nd, next, &[]);
        client.pair.send(&client.nd, 0, OperationFlags::empty(), &[]);
        next += 1;
        rest();
        for result in old.poll().iter().chain(&server.queue.poll()) {
            assert_eq!(result.request_context, expected);
            expected += 1;
        }
        client.queue.poll();
    }
    assert_eq!(expected, next);
    drop(server.close());
    drop(client.close());
    machine.finish();
}

fn rings_are_attached_once() {
    let machine = Machine::start();
    let program = Program::start(7, 1);
    let nd = &program.nd;
    let attach = |object: u64, memory: &UserBuffer| {
        status(&nd.begin_direct(ATTACH, &Attach { version: 1, layout: LAYOUT, handle: object }, memory))
    };
    let memory = UserBuffer::new(65_536);
    assert_eq!(attach(program.pair.handle, &memory), INVALID_DEVICE_STATE);
    assert_eq!(attach(program.queue.handle, &memory), INVALID_DEVICE_STATE);
    assert_eq!(attach(program.domain, &memory), INVALID_HANDLE);
    let bare = nd.create_queue(program.adapter, 4).unwrap();
    assert_eq!(attach(bare, &UserBuffer::new(128)), BUFFER_TOO_SMALL);
    let crooked = UserBuffer::with_offset(8192, 64, kernel_host::FrameOrder::Scattered);
    assert_eq!(attach(bare, &crooked), Status::INVALID_PARAMETER);
    // Libraries of another build mean other places.
    for layout in [LAYOUT - 1, LAYOUT + 1, u32::MAX] {
        for object in [bare, program.pair.handle] {
            let asked = Attach { version: 1, layout, handle: object };
            assert_eq!(status(&nd.begin_direct(ATTACH, &asked, &memory)), Status::REVISION_MISMATCH);
        }
    }
    // Cancelled, and brought again.
    let queue = Queue::attach(nd, bare, 4);
    assert!(queue.attach.cancel());
    assert_eq!(status_now(&queue.attach), Status::CANCELLED);
    let again = Queue::attach(nd, bare, 4);
    assert_eq!(nd.free(CQ_FREE, bare), Status::SUCCESS);
    assert_eq!(status_now(&again.attach), Status::SUCCESS);
    drop(program.close());
    machine.finish();
}
