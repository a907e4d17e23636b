//! Shared receive queues.

use super::program::*;
use networkdirect::machine::{Machine, rest};
use networkdirect::{cases, cases::Case};
use softndk_ioctl::Status;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::rings::{OperationFlags, QueueSizes};
use zerocopy::IntoBytes;

pub const CASES: &[Case] =
    cases![receives_of_a_shared_queue_go_to_its_queue_pairs, a_shared_queue_tells_when_it_runs_low];

const DEPTH: u32 = 8;

fn create(program: &Program, threshold: u32) -> Pair {
    let asked = CreateSharedReceiveQueue {
        version: 1,
        queue_depth: DEPTH,
        max_request_sge: 2,
        notify_threshold: threshold,
        domain: program.domain,
        ..CreateSharedReceiveQueue::default()
    };
    let handle = program.nd.ask::<ResourceDescriptor>(SRQ_CREATE, &asked).handle;
    Pair::attach(&program.nd, handle, QueueSizes { receive_depth: DEPTH, receive_sges: 2, ..QueueSizes::default() })
}

/// Gives a program a queue pair that takes its receives from there.
fn share(program: &mut Program, shared: &Pair) {
    let queues = (program.queue.handle, program.queue.handle);
    program.replace_pair(new_pair_with_shared(&program.nd, program.domain, queues, SIZES, shared));
}

fn receives_of_a_shared_queue_go_to_its_queue_pairs() {
    let machine = Machine::start();
    let (mut server, client) = (Program::start(100, 1), Program::start(200, 2));
    let shared = create(&server, 0);
    share(&mut server, &shared);
    assert_eq!(server.nd.free(SRQ_FREE, shared.handle), DEVICE_BUSY);
    connect(&server, &client);
    // A Send waits for a receive without end.
    client.pair.send(&client.nd, 1, OperationFlags::empty(), &[client.region.sge(0, 64)]);
    networkdirect::machine::pass(20_000);
    assert_eq!(client.queue.poll(), []);
    for round in 0..10 {
        for context in 0..u64::from(DEPTH) {
            shared.write_receive(round * 100 + context, &[server.region.sge(0, 64)]);
        }
        assert_eq!(server.nd.doorbell(shared.handle), Status::SUCCESS);
        for _ in u64::from(round == 0)..u64::from(DEPTH) {
            client.pair.send(&client.nd, 2, OperationFlags::empty(), &[client.region.sge(0, 64)]);
        }
        let received = server.queue.wait(DEPTH as usize);
        let expected = (0..u64::from(DEPTH)).map(|context| round * 100 + context).collect::<Vec<_>>();
        assert_eq!(received.iter().map(|result| result.request_context).collect::<Vec<_>>(), expected);
        client.queue.wait(DEPTH as usize);
        let taken = shared.taken();
        assert_eq!(taken.receive_taken, taken.receive_retired);
    }
    drop((server.close(), client.close()));
    drop(shared);
    machine.finish();
}

fn a_shared_queue_tells_when_it_runs_low() {
    let machine = Machine::start();
    let (mut server, client) = (Program::start(100, 1), Program::start(200, 2));
    let shared = create(&server, 3);
    share(&mut server, &shared);
    connect(&server, &client);
    let notify = || server.nd.begin(SRQ_NOTIFY, &handle(shared.handle));
    let early = notify();
    rest();
    assert_eq!(status_now(&early), Status::SUCCESS, "there are none");
    for context in 0..4 {
        shared.write_receive(context, &[]);
    }
    assert_eq!(server.nd.doorbell(shared.handle), Status::SUCCESS);
    let waiting = [notify(), notify()];
    client.pair.send(&client.nd, 1, OperationFlags::empty(), &[]);
    rest();
    assert!(waiting.iter().all(|request| !request.is_completed()), "three are left");
    client.pair.send(&client.nd, 1, OperationFlags::empty(), &[]);
    rest();
    assert!(waiting.iter().all(|request| status_now(request) == Status::SUCCESS));
    let modify = |depth, threshold| {
        let asked = ModifySharedReceiveQueue {
            version: 1,
            queue_depth: depth,
            notify_threshold: threshold,
            handle: shared.handle,
            ..ModifySharedReceiveQueue::default()
        };
        send(&server.nd.file, SRQ_MODIFY, asked.as_bytes(), 0).0
    };
    assert_eq!(modify(1, 0), BUFFER_OVERFLOW, "two are queued");
    let most = server.nd.query(server.adapter).max_shared_receive_queue_depth;
    assert_eq!(modify(most + 1, 0), Status::INVALID_PARAMETER);
    assert_eq!(modify(0, 2), Status::SUCCESS);
    let last = [notify(), notify()];
    rest();
    assert!(last[0].cancel());
    assert_eq!(status_now(&last[0]), Status::CANCELLED);
    assert!(!last[1].is_completed(), "the other one waits");
    assert_eq!(server.nd.call(SRQ_CANCEL_IO, &handle(shared.handle)), Status::SUCCESS);
    assert_eq!(status_now(&last[1]), Status::CANCELLED);
    assert!(shared.attach.cancel());
    assert_eq!(status_now(&shared.attach), Status::CANCELLED);
    drop((early, waiting, last));
    drop((server.close(), client.close()));
    drop(shared);
    machine.finish();
}
