//! Memory windows.

use super::program::*;
use networkdirect::machine::{Machine, late, rest};
use networkdirect::{cases, cases::Case};
use softndk_ioctl::Status;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::private::{BIND_WINDOW, BindWindow, BindWindowReply};
use softndk_ioctl::nd::rings::{InitiatorEntry, OperationFlags, RequestType};

pub const CASES: &[Case] = cases![
    a_window_lends_memory_until_it_is_invalidated,
    the_peers_message_invalidates_a_window,
    windows_keep_their_region_registered,
    a_cancelled_lock_takes_the_windows_along,
    binds_that_make_no_sense_are_refused,
];

fn bind(
    program: &Program,
    window: u64,
    region: &Region,
    (offset, length): (u64, u64),
    flags: u32,
) -> Result<u32, Status> {
    let asked = BindWindow {
        version: 1,
        flags,
        queue_pair: program.pair.handle,
        region: region.handle,
        window,
        context: 77,
        address: region.address() + offset,
        length,
    };
    program.nd.try_ask::<BindWindowReply>(BIND_WINDOW, &asked).map(|reply| reply.remote_token)
}

const BOTH: u32 = 0x18;

fn invalidate(program: &Program, window: u64) {
    let head = InitiatorEntry { window, ..entry(RequestType::Invalidate, 78, OperationFlags::empty()) };
    program.pair.post(&program.nd, head, &[]);
}

fn a_window_lends_memory_until_it_is_invalidated() {
    let machine = Machine::start();
    let (server, mut client, ..) = pair_of_programs();
    client.region.fill(0xC1);
    let window = server.nd.create(MW_CREATE, server.domain);
    let token = bind(&server, window, &server.region, (4096, 4096), BOTH).unwrap();
    let bound = server.queue.wait(1);
    assert_eq!((bound[0].request_type, bound[0].request_context, bound[0].status), (2, 77, 0));
    let remote = |offset: u64| (server.region.address() + offset, token);
    client.pair.rdma(&client.nd, RequestType::Write, 1, &[client.region.sge(0, 4096)], remote(4096));
    assert_eq!(client.queue.wait(1)[0].status, 0);
    assert!(server.region.buffer.as_slice()[4096..8192].iter().all(|byte| *byte == 0xC1));
    invalidate(&server, window);
    let done = server.queue.wait(1);
    assert_eq!((done[0].request_type, done[0].request_context, done[0].status), (3, 78, 0));
    client.pair.rdma(&client.nd, RequestType::Write, 2, &[client.region.sge(0, 1)], remote(4096));
    assert_eq!(Status(client.queue.wait(1)[0].status), late(ACCESS_VIOLATION, Status::SUCCESS));
    drop((server.close(), client.close()));
    machine.finish();
}

fn send_and_invalidate(program: &Program, token: u32) {
    let head = InitiatorEntry { remote_token: token, ..entry(RequestType::Send, 5, OperationFlags::INVALIDATE_REMOTE) };
    program.pair.post(&program.nd, head, &[]);
}

/// The result of its receive says which; then the region may go, and the token is worth nothing.
fn the_peers_message_invalidates_a_window() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    let window = server.nd.create(MW_CREATE, server.domain);
    for round in 0..3 {
        let token = bind(&server, window, &server.region, (0, 64), BOTH).unwrap();
        server.queue.wait(1);
        server.pair.receive(&server.nd, round, &[]);
        send_and_invalidate(&client, token);
        let sent = client.queue.wait(1)[0];
        assert_eq!((sent.request_type, sent.request_context, sent.status, sent.value), (1, 5, 0, 0));
        let received = server.queue.wait(1)[0];
        let kind = RequestType::ReceiveAndInvalidate as u32;
        assert_eq!((received.request_type, received.status, received.value), (kind, 0, token));
    }
    assert_eq!(status(&server.nd.begin(MR_DEREGISTER, &handle(server.region.handle))), Status::SUCCESS);
    // No other request takes the flag, and a token without a window fails the message and the connection.
    server.pair.receive(&server.nd, 9, &[]);
    send_and_invalidate(&client, 0x1234);
    assert_eq!(Status(client.queue.wait(1)[0].status), late(REMOTE_RESOURCES, Status::SUCCESS));
    assert_eq!(Status(server.queue.wait(1)[0].status), Status::CANCELLED);
    let head = entry(RequestType::Write, 6, OperationFlags::INVALIDATE_REMOTE);
    client.pair.write_entry(head, &[], &[]);
    assert!(is_refused(client.nd.doorbell(client.pair.handle)));
    drop((server.close(), client.close()));
    machine.finish();
}

fn windows_keep_their_region_registered() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    let window = server.nd.create(MW_CREATE, server.domain);
    let first = bind(&server, window, &server.region, (0, 64), 0).expect("without rights");
    server.queue.wait(1);
    assert_eq!(server.nd.call(MR_DEREGISTER, &handle(server.region.handle)), RESOURCE_IN_USE);
    assert!(!server.region.lock.is_completed());
    invalidate(&server, window);
    server.queue.wait(1);
    let second = bind(&server, window, &server.region, (0, 64), BOTH).unwrap();
    assert_ne!(first, second, "each Bind has a token of its own");
    server.queue.wait(1);
    // The end of the queue pair unbinds.
    assert_eq!(server.nd.free(QP_FREE, server.pair.handle), Status::SUCCESS);
    rest();
    assert_eq!(status(&server.nd.begin(MR_DEREGISTER, &handle(server.region.handle))), Status::SUCCESS);
    assert_eq!(status_now(&server.region.lock), Status::SUCCESS);
    drop((server.close(), client.close()));
    machine.finish();
}

fn a_cancelled_lock_takes_the_windows_along() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    let window = server.nd.create(MW_CREATE, server.domain);
    let token = bind(&server, window, &server.region, (0, 4096), BOTH).unwrap();
    server.queue.wait(1);
    assert!(server.region.lock.cancel());
    assert_eq!(status(&server.region.lock), Status::CANCELLED);
    let remote = (server.region.address(), token);
    client.pair.rdma(&client.nd, RequestType::Read, 2, &[client.region.sge(0, 1)], remote);
    assert_eq!(Status(client.queue.wait(1)[0].status), ACCESS_VIOLATION);
    // The region takes memory again, and the end of the old binding does not count for it.
    let again = Region::register(
        &server.nd,
        server.domain,
        kernel_host::memory::user_buffer::UserBuffer::new(4096),
        LOCAL_WRITE,
    );
    assert_eq!(server.nd.free(MW_FREE, window), Status::SUCCESS);
    assert_eq!(status(&server.nd.begin(MR_DEREGISTER, &handle(again.handle))), Status::SUCCESS);
    drop((server.close(), client.close()));
    drop(again);
    machine.finish();
}

fn binds_that_make_no_sense_are_refused() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    let window = server.nd.create(MW_CREATE, server.domain);
    let read_only = server.nd.region(server.domain, 4096, REMOTE_READ);
    assert_eq!(bind(&server, window, &server.region, (65_536, 1), BOTH), Err(ACCESS_VIOLATION));
    assert_eq!(bind(&server, window, &server.region, (1, 65_536), BOTH), Err(ACCESS_VIOLATION));
    assert_eq!(bind(&server, window, &server.region, (0, u64::MAX), BOTH), Err(ACCESS_VIOLATION));
    assert_eq!(bind(&server, window, &read_only, (0, 64), BOTH), Err(ACCESS_VIOLATION), "no local write");
    assert_eq!(bind(&server, window, &server.region, (0, 64), 0x20), Err(Status::INVALID_PARAMETER));
    assert_eq!(bind(&server, 99, &server.region, (0, 64), BOTH), Err(INVALID_HANDLE));
    let alone = Program::start(300, 1);
    let window = alone.nd.create(MW_CREATE, alone.domain);
    assert_eq!(bind(&alone, window, &alone.region, (0, 64), BOTH), Err(CONNECTION_INVALID));
    assert_eq!(server.queue.poll(), []);
    drop((server.close(), client.close(), alone.close()));
    drop(read_only);
    machine.finish();
}
