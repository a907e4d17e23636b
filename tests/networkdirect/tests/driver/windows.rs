//! Memory windows.

use super::program::*;
use networkdirect::machine::{Machine, rest};
use networkdirect::{cases, cases::Case};
use softndk_ioctl::Status;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::private::{BIND_WINDOW, BindWindow, BindWindowReply};
use softndk_ioctl::nd::rings::{InitiatorEntry, OperationFlags, RequestType};

pub const CASES: &[Case] = cases![
    a_window_lends_memory_until_it_is_invalidated,
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
    assert_eq!(Status(client.queue.wait(1)[0].status), ACCESS_VIOLATION);
    drop((server.close(), client.close()));
    machine.finish();
}

fn windows_keep_their_region_registered() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    let window = server.nd.create(MW_CREATE, server.domain);
    let first = bind(&server, window, &server.region, (0, 64), 0).expect("without rights");
    server.queue.wait(1);
    assert_eq!(server.nd.call(MR_DEREGISTER, &handle(server.region.handle)), DEVICE_BUSY);
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
