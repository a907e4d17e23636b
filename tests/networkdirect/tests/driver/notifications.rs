//! Requests that wait for completions.

use super::program::*;
use networkdirect::machine::{Machine, rest};
use networkdirect::{cases, cases::Case};
use softndk_ioctl::Status;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::rings::{CompletionFlags, OperationFlags, QueueSizes, RequestType};

pub const CASES: &[Case] = cases![
    a_completion_tells_all_that_wait_once,
    a_completion_that_was_not_waited_for_tells_the_next,
    solicited_requests_are_told_of_solicited_messages_and_errors,
    any_takes_solicited_along,
    cancelled_requests_end_in_their_order,
    an_overrun_is_told_to_everyone,
];

const ERRORS: u32 = 0;
const ANY: u32 = 1;
const SOLICITED: u32 = 2;

/// One message from the client to the server.
fn message(server: &Program, client: &Program, flags: OperationFlags) {
    server.pair.receive(&server.nd, 1, &[]);
    client.pair.send(&client.nd, 2, flags, &[]);
    rest();
}

fn a_completion_tells_all_that_wait_once() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    let waiting = [(); 3].map(|()| server.nd.notify(&server.queue, ANY));
    rest();
    assert!(waiting.iter().all(|request| !request.is_completed()));
    message(&server, &client, OperationFlags::empty());
    for request in &waiting {
        assert_eq!(status_now(request), Status::SUCCESS);
    }
    // It has told, and is not taken: it tells no more.
    let next = server.nd.notify(&server.queue, ANY);
    rest();
    assert!(!next.is_completed());
    message(&server, &client, OperationFlags::empty());
    assert_eq!(status_now(&next), Status::SUCCESS);
    assert_eq!(server.queue.poll().len(), 2);
    assert_eq!(
        status(&server.nd.begin(CQ_NOTIFY, &Notify { version: 1, kind: 3, handle: server.queue.handle })),
        Status::INVALID_PARAMETER
    );
    drop((server.close(), client.close()));
    machine.finish();
}

/// What comes between the last look at the queue and the request is not lost; what was looked at does not tell.
fn a_completion_that_was_not_waited_for_tells_the_next() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    message(&server, &client, OperationFlags::empty());
    assert_eq!(server.queue.poll().len(), 1);
    let waiting = server.nd.notify(&server.queue, ANY);
    rest();
    assert!(!waiting.is_completed(), "it was taken");
    message(&server, &client, OperationFlags::empty());
    assert_eq!(status_now(&waiting), Status::SUCCESS);
    assert_eq!(server.queue.poll().len(), 1);
    message(&server, &client, OperationFlags::empty());
    assert_eq!(status(&server.nd.notify(&server.queue, ANY)), Status::SUCCESS, "it is there");
    drop((server.close(), client.close()));
    machine.finish();
}

fn solicited_requests_are_told_of_solicited_messages_and_errors() {
    let machine = Machine::start();
    let (server, client, _, ours) = pair_of_programs();
    let waiting = server.nd.notify(&server.queue, SOLICITED);
    message(&server, &client, OperationFlags::empty());
    assert!(!waiting.is_completed());
    message(&server, &client, OperationFlags::SEND_AND_SOLICIT_EVENT);
    assert_eq!(status_now(&waiting), Status::SUCCESS);
    server.queue.poll();
    let waiting = server.nd.notify(&server.queue, SOLICITED);
    server.pair.receive(&server.nd, 1, &[]);
    rest();
    assert!(!waiting.is_completed());
    assert_eq!(status(&client.nd.begin(CONNECTOR_DISCONNECT, &handle(ours))), Status::SUCCESS);
    rest();
    assert_eq!(status_now(&waiting), Status::SUCCESS, "a cancelled receive is an error");
    drop((server.close(), client.close()));
    machine.finish();
}

fn any_takes_solicited_along() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    let solicited = server.nd.notify(&server.queue, SOLICITED);
    let any = server.nd.notify(&server.queue, ANY);
    message(&server, &client, OperationFlags::empty());
    assert_eq!([status_now(&solicited), status_now(&any)], [Status::SUCCESS; 2]);
    // And no more once it is cancelled.
    let solicited = server.nd.notify(&server.queue, SOLICITED);
    let any = server.nd.notify(&server.queue, ANY);
    assert!(any.cancel());
    message(&server, &client, OperationFlags::empty());
    assert_eq!(status_now(&any), Status::CANCELLED);
    assert!(!solicited.is_completed());
    drop((server.close(), client.close()));
    assert_eq!(status_now(&solicited), Status::CANCELLED);
    drop(solicited);
    machine.finish();
}

fn cancelled_requests_end_in_their_order() {
    let machine = Machine::start();
    let program = Program::start(7, 1);
    let other = program.nd.queue(program.adapter, 4);
    for round in 0..50 {
        let waiting = [program.nd.notify(&program.queue, ANY), program.nd.notify(&other, ANY)];
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        let queues = [program.queue.handle, other.handle];
        for index in order {
            assert!(!waiting[index].is_completed());
            assert_eq!(program.nd.call(CQ_CANCEL_IO, &handle(queues[index])), Status::SUCCESS);
            assert_eq!(status_now(&waiting[index]), Status::CANCELLED);
        }
    }
    let last = program.nd.notify(&other, ANY);
    assert_eq!(program.nd.free(CQ_FREE, other.handle), Status::SUCCESS);
    assert_eq!(status_now(&last), Status::CANCELLED);
    drop(last);
    drop(program.close());
    drop(other);
    machine.finish();
}

fn an_overrun_is_told_to_everyone() {
    let machine = Machine::start();
    // A queue of 2: a ring of 32, and 18 behind it.
    let sizes = QueueSizes { receive_depth: 64, ..SIZES };
    let (server, client) = (Program::with(100, 1, sizes, 2), Program::start(200, 2));
    connect(&server, &client);
    let waiting = server.nd.notify(&server.queue, ERRORS);
    for context in 0..64 {
        server.pair.write_receive(context, &[]);
    }
    assert_eq!(server.nd.doorbell(server.pair.handle), Status::SUCCESS);
    for _ in 0..4 {
        for _ in 0..16 {
            client.pair.write_entry(entry(RequestType::Send, 0, OperationFlags::empty()), &[], &[]);
        }
        assert_eq!(client.nd.doorbell(client.pair.handle), Status::SUCCESS);
        rest();
        client.queue.poll();
    }
    assert_eq!(status_now(&waiting), BUFFER_OVERFLOW);
    assert!(server.queue.flags().contains(CompletionFlags::FAILED));
    assert_eq!(status(&server.nd.notify(&server.queue, ANY)), BUFFER_OVERFLOW);
    drop(waiting);
    drop((server.close(), client.close()));
    machine.finish();
}
