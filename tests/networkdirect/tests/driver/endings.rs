//! Files that are closed and adapters that go, wherever that finds them.

use super::program::*;
use kernel_host::io::PendingIrp;
use kernel_host::memory::user_buffer::UserBuffer;
use networkdirect::machine::{Machine, address, rest};
use networkdirect::{cases, cases::Case};
use softndk_ioctl::Status;
use softndk_ioctl::nd::VERSION;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::private::{LOCK_FOR_WRITING, LockMemory};
use softndk_ioctl::nd::rings::{OperationFlags, RequestType};
use std::sync::Arc;

pub const CASES: &[Case] = cases![
    a_file_closed_anywhere_leaves_nothing,
    files_close_while_others_use_their_connections,
    requests_are_cancelled_while_they_complete,
    a_thread_that_ends_takes_its_requests_along,
    an_adapter_that_goes_ends_what_programs_have_of_it,
    the_last_adapter_takes_the_device_along,
    a_second_file_takes_its_own_requests_along,
];

/// So many steps of a program's life, and then its end.
fn live(steps: usize, random: &mut fastrand::Rng) {
    let (server, client) = (Program::start(100, 1), Program::start(200, 2));
    let mut left = Vec::new();
    let mut connectors = None;
    for step in 0..steps {
        match step {
            0 => {
                let listener = server.listen(5000, 0);
                let theirs = server.connector();
                left.push(server.get_request(listener, theirs));
                connectors = Some((theirs, client.connector()));
            }
            1 => left.push(client.nd.notify(&client.queue, 1)),
            2 => {
                let (_, ours) = connectors.unwrap();
                assert_eq!(client.bind(CONNECTOR_BIND, ours, address(2, 0)), Status::SUCCESS);
                left.push(client.connect(ours, address(1, 5000), b"data"));
                rest();
            }
            3 => left.push(server.accept(connectors.unwrap().0, b"")),
            4 => {
                rest();
                let (_, ours) = connectors.unwrap();
                assert_eq!(client.nd.call(CONNECTOR_COMPLETE_CONNECT, &handle(ours)), Status::SUCCESS);
                rest();
            }
            5 => left.push(server.nd.begin(CONNECTOR_NOTIFY_DISCONNECT, &handle(connectors.unwrap().0))),
            6 => server.pair.receive(&server.nd, 1, &[server.region.sge(0, 64)]),
            7 => client.pair.send(&client.nd, 1, OperationFlags::empty(), &[client.region.sge(0, 64)]),
            8 => {
                let remote = (server.region.address(), server.region.token);
                client.pair.rdma(&client.nd, RequestType::Write, 1, &[client.region.sge(0, 60_000)], remote);
            }
            9 => left.push(client.nd.begin(CONNECTOR_DISCONNECT, &handle(connectors.unwrap().1))),
            _ => left.push(server.nd.begin(MR_DEREGISTER, &handle(server.region.handle))),
        }
    }
    let memory = if random.bool() {
        (server.close(), client.close())
    } else {
        let first = client.close();
        (server.close(), first)
    };
    assert!(left.iter().all(PendingIrp::is_completed));
    drop((left, memory));
}

fn a_file_closed_anywhere_leaves_nothing() {
    let machine = Machine::start();
    let mut random = fastrand::Rng::with_seed(1);
    for steps in 0..=11 {
        live(steps, &mut random);
        live(steps, &mut random);
    }
    machine.finish();
}

fn files_close_while_others_use_their_connections() {
    let machine = Machine::start();
    for _ in 0..15 {
        let (server, client, ..) = pair_of_programs();
        let ending = kernel_host::thread::spawn("ending", move || client.close());
        for round in 0..20 {
            server.pair.receive(&server.nd, round, &[server.region.sge(0, 64)]);
            server.pair.send(&server.nd, round, OperationFlags::empty(), &[server.region.sge(0, 64)]);
            server.queue.poll();
        }
        let left = ending.join();
        drop((server.close(), left));
    }
    machine.finish();
}

/// Another thread cancels whatever there is, all the time.
fn requests_are_cancelled_while_they_complete() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    let server = Arc::new(server);
    let theirs = Arc::clone(&server);
    let (mut done, mut cancelled) = (0, 0);
    for _ in 0..100 {
        let lent = Arc::clone(&theirs);
        let waiting = [(); 3].map(|()| server.nd.notify(&server.queue, 1));
        let waiting = Arc::new(waiting);
        let victims = Arc::clone(&waiting);
        let other = kernel_host::thread::spawn("canceller", move || {
            victims.iter().for_each(|request| {
                request.cancel();
            });
            drop(lent);
        });
        server.pair.receive(&server.nd, 1, &[]);
        client.pair.send(&client.nd, 1, OperationFlags::empty(), &[]);
        other.join();
        for request in waiting.iter() {
            match status(request) {
                Status::SUCCESS => done += 1,
                Status::CANCELLED => cancelled += 1,
                other => panic!("{other:?}"),
            }
        }
        server.queue.poll();
        client.queue.poll();
    }
    println!("{done} done, {cancelled} cancelled");
    assert_eq!(done + cancelled, 300);
    drop(theirs);
    let server = Arc::into_inner(server).expect("no other pointer");
    drop((server.close(), client.close()));
    machine.finish();
}

fn a_thread_that_ends_takes_its_requests_along() {
    let machine = Machine::start();
    let program = Arc::new(Program::start(7, 1));
    let theirs = Arc::clone(&program);
    let thread = kernel_host::thread::spawn("program", move || {
        let region = theirs.nd.region(theirs.domain, 8192, REMOTE_WRITE);
        let queue = theirs.nd.queue(theirs.adapter, 4);
        let waiting = theirs.nd.notify(&queue, 1);
        (region, queue, waiting)
    });
    let (region, queue, waiting) = thread.join();
    assert_eq!(status_now(&region.lock), Status::CANCELLED);
    assert_eq!(status_now(&queue.attach), Status::CANCELLED);
    assert_eq!(status_now(&waiting), Status::CANCELLED);
    drop((region, queue, waiting));
    drop(Arc::into_inner(program).expect("no other pointer").close());
    machine.finish();
}

fn an_adapter_that_goes_ends_what_programs_have_of_it() {
    let machine = Machine::start();
    for _ in 0..2 {
        let (server, client, theirs, _) = pair_of_programs();
        let told = server.nd.begin(CONNECTOR_NOTIFY_DISCONNECT, &handle(theirs));
        let waiting = client.nd.notify(&client.queue, 1);
        machine.adapters[1].surprise_remove().expect("is pulled out");
        assert_eq!(status(&told), Status::SUCCESS);
        assert_eq!(status_now(&waiting), Status::DEVICE_REMOVED);
        for request in [&client.pair.attach, &client.queue.attach, &client.region.lock] {
            assert_eq!(status_now(request), Status::SUCCESS);
        }
        assert_eq!(client.nd.free(PD_FREE, client.domain), INVALID_HANDLE);
        assert_eq!(client.nd.doorbell(client.pair.handle), INVALID_HANDLE);
        let other = server.nd.create(PD_CREATE, server.adapter);
        assert_eq!(server.nd.free(PD_FREE, other), Status::SUCCESS, "the other adapter is as it was");
        machine.adapters[1].start().unwrap_or_else(|error| panic!("starting: {error}"));
        drop((server.close(), client.close()));
    }
    machine.finish();
}

fn the_last_adapter_takes_the_device_along() {
    let mut machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    for adapter in machine.adapters.drain(..) {
        adapter.remove();
    }
    assert_eq!(server.nd.call(PD_CREATE, &handle(1)), Status::DEVICE_REMOVED);
    assert!(open_as(kernel_host::io::Caller::Administrator, 1).is_err());
    drop((server.close(), client.close()));
    machine.finish();
}

/// What pends through a file of a process ends with that file; what pends through another one of the process stays, and so do the
/// objects. Memory that peers may access takes the connections along.
fn a_second_file_takes_its_own_requests_along() {
    let machine = Machine::start();
    let (server, client, connected, _) = pair_of_programs();
    let own = &server.nd;
    let [second, third] = [(); 2].map(|()| {
        let nd = Nd { file: open(100), token: own.token };
        assert_eq!(nd.call(PROVIDER_BIND_FILE, &handle(own.token)), Status::SUCCESS);
        nd
    });
    let listener = server.listen(5000, 0);
    let queues = (server.queue.handle, server.queue.handle);
    let pair = create_pair(own, server.domain, queues, SIZES, PAIR_CONTEXT);
    let queue = own.create_queue(server.adapter, 4).expect("a queue");
    let begin = |nd: &Nd| {
        let asked = GetConnectionRequest { version: VERSION, reserved: 0, listener, connector: server.connector() };
        let requests = [
            nd.begin(LISTENER_GET_CONNECTION_REQUEST, &asked),
            nd.notify(&server.queue, 1),
            nd.begin(CONNECTOR_NOTIFY_DISCONNECT, &handle(connected)),
        ];
        (requests, Pair::attach(nd, pair, SIZES), Queue::attach(nd, queue, 4))
    };
    let (requests, pair, queue) = begin(&second);
    let others = own.begin(CONNECTOR_NOTIFY_DISCONNECT, &handle(connected));
    let region = third.region(server.domain, 4096, 0);
    second.close();
    for request in requests.iter().chain([&pair.attach, &queue.attach]) {
        assert_eq!(status_now(request), Status::CANCELLED);
    }
    for request in [&others, &region.lock, &server.pair.attach, &server.queue.attach, &server.region.lock] {
        assert!(!request.is_completed(), "of another file");
    }
    let again = begin(own);
    third.close();
    assert_eq!((status_now(&region.lock), status_now(&others)), (Status::CANCELLED, Status::SUCCESS));
    assert_eq!(again.0.each_ref().map(PendingIrp::is_completed), [false, false, true]);
    // The region takes memory again.
    let memory = UserBuffer::new(4096);
    let lock = LockMemory { version: VERSION, reserved: 0, region: region.handle };
    let lock = own.lend(LOCK_FOR_WRITING, &lock, &memory).expect("a region without memory");
    let left = (server.close(), client.close());
    drop((left, lock, memory, again, others, region, requests, pair, queue));
    machine.finish();
}
