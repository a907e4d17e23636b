//! Two of a kind under way on one object, and many: each ends once, in its order, with work that does not grow with the others.

use super::program::*;
use kernel_host::dispatcher;
use kernel_host::interruption::{hold_system_threads, interrupted};
use kernel_host::io::PendingIrp;
use kernel_host::memory::user_buffer::UserBuffer;
use networkdirect::machine::{Machine, MachineSetup, across_streams, address, pass, rest};
use networkdirect::{cases, cases::Case};
use softndk_ioctl::Status;
use softndk_ioctl::nd::VERSION;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::private::{LOCK_FOR_WRITING, LockMemory};
use softndk_ioctl::nd::rings::{CompletionFlags, OperationFlags, RequestType};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

pub const CASES: &[Case] = cases![
    two_deregisters_of_one_region_both_end,
    a_cancelled_deregister_does_not_end_the_next,
    two_registrations_of_one_region_are_one,
    two_resizes_replace_the_ring_once,
    results_of_the_ring_before_are_told,
    notifies_of_every_type_end_in_their_order,
    an_attempt_that_was_given_up_changes_nothing_of_the_next,
    an_answer_comes_after_the_send_that_it_answers,
    queues_that_have_changed_parts_do_not_wait_for_each_other,
    two_connects_on_one_connector_are_one,
    a_close_ends_two_of_each_kind,
    many_requests_end_in_bounded_passes,
    one_request_too_many_is_refused,
];

const ANY: u32 = 1;
const SOLICITED: u32 = 2;
/// Of a region that the mapper unmaps.
const LARGE: usize = 5 << 20;
/// Requests that may pend on one object.
const MOST: usize = 4096;

fn lock(nd: &Nd, region: u64, memory: &UserBuffer) -> PendingIrp {
    nd.begin_direct(LOCK_FOR_WRITING, &LockMemory { version: VERSION, reserved: 0, region }, memory)
}

fn deregister(nd: &Nd, region: u64) -> PendingIrp {
    nd.begin(MR_DEREGISTER, &handle(region))
}

fn notify_end(program: &Program, connector: u64) -> PendingIrp {
    program.nd.begin(CONNECTOR_NOTIFY_DISCONNECT, &handle(connector))
}

/// The status of a request that ends beside a thread which never rests.
#[track_caller]
fn status_soon(request: &PendingIrp) -> Status {
    for _ in 0..2000 {
        if request.is_completed() {
            return status(request);
        }
        pass(1);
    }
    panic!("a request is lost");
}

/// Deregisters a region, registers it anew and deregisters it again while another thread copies, until both requests have waited together,
/// the first for the mapper, which gets no processor meanwhile.
fn with_two_deregisters(then: impl Fn(&PendingIrp)) {
    let machine = Machine::of(&MachineSetup { processors: 4, ..MachineSetup::default() });
    let (server, client, ..) = pair_of_programs();
    let client = Arc::new(client);
    let large = [&server, &client].map(|program| program.nd.region(program.domain, LARGE, REMOTE_WRITE | LOCAL_WRITE));
    let (remote, local) = ((large[0].address(), large[0].token), large[1].sge(0, LARGE as u32));
    let over = Arc::new(AtomicBool::new(false));
    let busy = kernel_host::thread::spawn("transfers", {
        let (client, over) = (Arc::clone(&client), Arc::clone(&over));
        move || {
            while !over.load(Ordering::Relaxed) {
                client.pair.rdma(&client.nd, RequestType::Write, 1, &[local], remote);
                client.queue.wait(1);
            }
        }
    });
    let nd = &server.nd;
    let region = nd.create(MR_CREATE, server.domain);
    let memory = [(); 2].map(|()| UserBuffer::new(LARGE));
    let register = |memory: &UserBuffer| {
        let lock = lock(nd, region, memory);
        let asked = registration(region, memory, LOCAL_WRITE);
        nd.try_ask::<RegisterReply>(MR_REGISTER, &asked).is_ok().then_some(lock)
    };
    // Where nothing copies, memory goes at once; a copy under way leaves it to the mapper, which keeps it while it is held.
    let without_mapper = hold_system_threads("MmUnmapLockedPages");
    let waiting = |memory: &UserBuffer| {
        let attempt = (0..100_000).find_map(|_| {
            // The region takes a registration once nothing copies any more.
            let lent = std::iter::repeat_with(|| register(memory)).flatten().next()?;
            let request = deregister(nd, region);
            if !request.is_completed() {
                return Some([lent, request]);
            }
            assert_eq!([&lent, &request].map(status_soon), [Status::SUCCESS; 2]);
            None
        });
        attempt.expect("a deregistration meets a copy")
    };
    let [lent, first] = waiting(&memory[0]);
    let [again, second] = waiting(&memory[1]);
    assert!(!first.is_completed(), "two deregistrations of a region wait together");
    drop(without_mapper);
    over.store(true, Ordering::Relaxed);
    then(&first);
    busy.join();
    rest();
    let requests = [lent, first, again, second];
    let ends = requests.each_ref().map(|request| request.is_completed().then(|| status(request)));
    let of_first = ends[1];
    assert_eq!([ends[0], ends[2], ends[3]], [Some(Status::SUCCESS); 3], "one is lost; the first: {of_first:?}");
    assert!(of_first.is_some(), "the first is lost");
    let client = Arc::into_inner(client).expect("no other pointer");
    drop((server.close(), client.close(), requests, large));
    machine.finish();
}

fn two_deregisters_of_one_region_both_end() {
    with_two_deregisters(|_| ());
}

fn a_cancelled_deregister_does_not_end_the_next() {
    with_two_deregisters(|first| {
        first.cancel();
        let ended = status_soon(first);
        assert!(ended == Status::SUCCESS || ended == Status::CANCELLED, "{ended:?}");
    });
}

fn two_registrations_of_one_region_are_one() {
    let machine = Machine::start();
    let program = Program::start(7, 1);
    let nd = &program.nd;
    let region = nd.create(MR_CREATE, program.domain);
    let memory = [(); 2].map(|()| UserBuffer::new(8192));
    let locks = memory.each_ref().map(|memory| lock(nd, region, memory));
    assert!(!locks[0].is_completed());
    assert_eq!(status_now(&locks[1]), INVALID_DEVICE_STATE, "there is memory");
    let asked = registration(region, &memory[0], LOCAL_WRITE);
    let first: RegisterReply = nd.ask(MR_REGISTER, &asked);
    assert_eq!(nd.try_ask::<RegisterReply>(MR_REGISTER, &asked).map(|_| ()), Err(INVALID_DEVICE_STATE));
    // The one that stands is not that of the refused one.
    let sge = softndk_ioctl::nd::rings::Sge { address: asked.address, length: 64, token: first.local_token };
    program.pair.write_receive(1, &[sge]);
    assert_eq!(nd.doorbell(program.pair.handle), Status::SUCCESS);
    assert_eq!(status(&deregister(nd, region)), Status::SUCCESS);
    assert_eq!(status(&deregister(nd, region)), INVALID_DEVICE_STATE);
    assert_eq!(status_now(&locks[0]), Status::SUCCESS);
    drop(program.close());
    machine.finish();
}

fn modify(nd: &Nd, queue: u64, queue_depth: u32) -> Status {
    let asked = ModifyCompletionQueue { version: VERSION, queue_depth, handle: queue, ..Default::default() };
    nd.call(CQ_MODIFY, &asked)
}

/// One message from the client to the server.
fn message(server: &Program, client: &Program) {
    server.pair.receive(&server.nd, 1, &[]);
    client.pair.send(&client.nd, 2, OperationFlags::empty(), &[]);
    rest();
    client.queue.poll();
}

fn two_resizes_replace_the_ring_once() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    let nd = &server.nd;
    let old = server.queue.handle;
    message(&server, &client);
    assert_eq!([modify(nd, old, 100), modify(nd, old, 200)], [Status::SUCCESS; 2]);
    // The memory is that of the later one.
    assert_eq!(Queue::try_attach(nd, old, 100).map(|_| ()), Err(BUFFER_TOO_SMALL));
    let next = Queue::attach(nd, old, 200);
    assert!(Queue::try_attach(nd, old, 200).is_err(), "nothing was resized since");
    assert_eq!(status_now(&server.queue.attach), Status::SUCCESS);
    assert!(server.queue.flags().contains(CompletionFlags::MOVED));
    message(&server, &client);
    assert_eq!([server.queue.poll().len(), next.poll().len()], [1, 1], "each result once, in its ring");
    drop((server.close(), client.close(), next));
    machine.finish();
}

/// A result that was not told, in a ring that has been replaced, tells the next request.
fn results_of_the_ring_before_are_told() {
    let machine = Machine::start();
    for told in [false, true] {
        let (server, client, ..) = pair_of_programs();
        // So that results have been taken from the ring before.
        message(&server, &client);
        assert_eq!(server.queue.poll().len(), 1);
        let before = told.then(|| server.nd.notify(&server.queue, ANY));
        message(&server, &client);
        assert!(before.iter().all(PendingIrp::is_completed));
        assert_eq!(modify(&server.nd, server.queue.handle, 150), Status::SUCCESS);
        let next = Queue::attach(&server.nd, server.queue.handle, 150);
        let waiting = server.nd.notify(&next, ANY);
        rest();
        assert_eq!(waiting.is_completed(), !told, "a result tells once, wherever it is");
        assert_eq!(server.queue.poll().len(), 1);
        message(&server, &client);
        assert_eq!(status_now(&waiting), Status::SUCCESS);
        // From here on the ring before is empty.
        assert_eq!(next.poll().len(), 1);
        let waiting = server.nd.notify(&next, ANY);
        rest();
        assert!(!waiting.is_completed(), "everything was taken");
        drop((server.close(), client.close(), next));
    }
    machine.finish();
}

/// The kind of a notification for failures alone.
const ERRORS: u32 = 0;

fn notifies_of_every_type_end_in_their_order() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    let kinds = [SOLICITED, ERRORS, ERRORS, SOLICITED];
    let waiting = kinds.map(|kind| server.nd.notify(&server.queue, kind));
    message(&server, &client);
    assert!(waiting.iter().all(|request| !request.is_completed()));
    // One of two goes: the other waits as before.
    assert!(waiting[0].cancel());
    assert_eq!(status_now(&waiting[0]), Status::CANCELLED);
    server.pair.receive(&server.nd, 1, &[]);
    client.pair.send(&client.nd, 2, OperationFlags::SEND_AND_SOLICIT_EVENT, &[]);
    rest();
    for request in &waiting[1..] {
        assert_eq!(status_now(request), Status::SUCCESS, "all that wait are told together");
    }
    // And none is left of those that were taken.
    let errors = [(); 2].map(|()| server.nd.notify(&server.queue, ERRORS));
    let solicited = server.nd.notify(&server.queue, SOLICITED);
    assert!(solicited.cancel());
    server.pair.receive(&server.nd, 1, &[]);
    client.pair.send(&client.nd, 2, OperationFlags::SEND_AND_SOLICIT_EVENT, &[]);
    rest();
    assert!(errors.iter().all(|request| !request.is_completed()), "they wait for errors only");
    assert_eq!(server.nd.call(CQ_CANCEL_IO, &handle(server.queue.handle)), Status::SUCCESS);
    assert_eq!(errors.each_ref().map(status_now), [Status::CANCELLED; 2]);
    drop((server.close(), client.close()));
    machine.finish();
}

/// What the connector has come to when the late end of an Accept arrives that was cancelled before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    /// The next connection has arrived.
    Arrived,
    /// Its Accept waits.
    Accepting,
}

/// An Accept is cancelled wherever that finds its end, and the connector gets its next connection meanwhile.
fn an_attempt_that_was_given_up_changes_nothing_of_the_next() {
    let machine = Machine::start();
    for meanwhile in [Meanwhile::Arrived, Meanwhile::Accepting] {
        let mut given_up = 0;
        for at in 0..400 {
            match give_an_accept_up(at, meanwhile) {
                Some(is_given_up) => given_up += u32::from(is_given_up),
                None => break,
            }
        }
        println!("{given_up} attempts were given up");
        assert!(given_up > 3);
    }
    machine.finish();
}

/// As [`interrupted`], but where `other` says so, `request` is sent at the same point, by a thread that lives until `after` has ended:
/// the end of a thread cancels what it has sent. The kernel's time stands still from there to the end of `body`, so that nothing
/// times out.
fn interrupted_by_request(
    at: u64,
    other: impl FnOnce() -> bool + Send,
    request: impl FnOnce() -> PendingIrp + Send,
    body: impl FnOnce(),
    after: impl FnOnce(Option<PendingIrp>),
) -> bool {
    std::thread::scope(|scope| {
        let (order, orders) = mpsc::channel();
        let (sent, requests) = mpsc::channel();
        let sender = scope.spawn(move || {
            let attachment = kernel_host::thread::attach("sender");
            if dispatcher::while_blocked(|| orders.recv()).is_ok() {
                sent.send(request()).expect("the other thread waits");
                // It counts as one that runs until `body` has ended.
                let _body = orders.recv();
                let _after = dispatcher::while_blocked(|| orders.recv());
            }
            drop(attachment);
        });
        let mut pending = None;
        let (first, taken) = (order.clone(), &mut pending);
        let interrupting = move || {
            if other() {
                first.send(()).expect("the sender waits");
                *taken = requests.recv().ok();
            }
        };
        let met = interrupted(at, interrupting, body);
        if pending.is_some() {
            order.send(()).expect("the sender waits");
        }
        after(pending);
        drop(order);
        dispatcher::while_blocked(|| sender.join()).expect("the sender ends");
        met
    })
}

/// A server whose Accept waits, and two clients: one waits for its CompleteConnect, the other in the backlog.
struct GivenUp {
    server: Program,
    listener: u64,
    connector: u64,
    accepting: PendingIrp,
    /// Of the first Accept. The server's own is new: one that was connected is for no other connection.
    first_pair: Pair,
    first: (Program, u64),
    next: (Program, u64),
    next_connecting: PendingIrp,
}

impl GivenUp {
    fn start() -> Self {
        let mut server = Program::start(100, 1);
        let listener = server.listen(5000, 0);
        let connector = server.connector();
        let client = |process| {
            let client = Program::start(process, 2);
            let connector = client.connector();
            assert_eq!(client.bind(CONNECTOR_BIND, connector, address(2, 0)), Status::SUCCESS);
            (client, connector)
        };
        let (first, next) = (client(200), client(300));
        let arriving = server.get_request(listener, connector);
        let connecting = first.0.connect(first.1, address(1, 5000), b"");
        assert_eq!(status(&arriving), Status::SUCCESS);
        let accepting = server.accept(connector, b"");
        assert_eq!(status(&connecting), Status::SUCCESS);
        let next_pair = new_pair(&server.nd, server.domain, (server.queue.handle, server.queue.handle), SIZES);
        let first_pair = std::mem::replace(&mut server.pair, next_pair);
        let next_connecting = next.0.connect(next.1, address(1, 5000), b"");
        Self { server, listener, connector, accepting, first_pair, first, next, next_connecting }
    }

    /// Cancels the Accept and waits for the next connection: whether the Accept was there, and whether a connection has come.
    fn cancel(&self) -> (bool, bool) {
        if !self.accepting.cancel() {
            return (false, false);
        }
        let arriving = self.server.get_request(self.listener, self.connector);
        (true, arriving.is_completed() && status(&arriving) == Status::SUCCESS)
    }

    fn disconnect(&self) -> Status {
        status(&self.server.nd.begin(CONNECTOR_DISCONNECT, &handle(self.connector)))
    }

    /// Nothing has been begun with the next connection.
    fn has_arrived(&self) {
        assert_eq!(status_now(&notify_end(&self.server, self.connector)), CONNECTION_INVALID);
        assert_eq!(self.disconnect(), CONNECTION_INVALID);
    }

    /// The next Accept ends when the next client completes.
    fn is_accepting(&self, accepting: &PendingIrp) {
        assert!(!accepting.is_completed(), "{:?}", status(accepting));
        assert_eq!(self.disconnect(), CONNECTION_INVALID);
        assert_eq!(status(&self.next_connecting), Status::SUCCESS);
        assert_eq!(complete(&self.next), Status::SUCCESS);
        assert_eq!(status(accepting), Status::SUCCESS);
    }

    fn close(self) {
        drop((self.server.close(), self.first.0.close(), self.next.0.close(), self.first_pair));
    }
}

fn complete((program, connector): &(Program, u64)) -> Status {
    status(&program.nd.begin(CONNECTOR_COMPLETE_CONNECT, &handle(*connector)))
}

/// The Accept is given up at one point of its end: whether the next connection came meanwhile; `None`: there is no such point.
fn give_an_accept_up(at: u64, meanwhile: Meanwhile) -> Option<bool> {
    let set = GivenUp::start();
    let (mut is_early, mut arrives) = (true, false);
    let give_up = || {
        (is_early, arrives) = set.cancel();
        arrives && meanwhile == Meanwhile::Accepting
    };
    let complete_first = || {
        let _ended = complete(&set.first);
    };
    let accept = || set.server.accept(set.connector, b"");
    let met = interrupted_by_request(at, give_up, accept, complete_first, |accepting| {
        rest();
        if let Some(accepting) = accepting {
            set.is_accepting(&accepting);
        }
    });
    if arrives {
        assert_eq!(status_now(&set.accepting), Status::CANCELLED);
        if meanwhile == Meanwhile::Arrived {
            set.has_arrived();
        }
    }
    set.close();
    (met && is_early).then_some(arrives)
}

// Rule: IOCTL-14
/// With a completion queue for each kind of result, whichever context moves them: the answer of the peer comes while the Send's completion
/// is on its way.
fn an_answer_comes_after_the_send_that_it_answers() {
    let machine = Machine::start();
    let mut answers = 0;
    for at in 0..400 {
        let (server, mut client) = (Program::start(100, 1), Program::start(200, 2));
        let received = client.nd.queue(client.adapter, 64);
        client.replace_pair(new_pair(&client.nd, client.domain, (received.handle, client.queue.handle), SIZES));
        connect(&server, &client);
        server.pair.receive(&server.nd, 1, &[]);
        client.pair.receive(&client.nd, 2, &[]);
        let mut entries = (0, 0);
        let met = interrupted(
            at,
            || {
                if server.queue.unread() != 0 {
                    server.pair.send(&server.nd, 3, OperationFlags::empty(), &[]);
                }
                // In this order, as a program looks.
                entries = (received.unread(), client.queue.unread());
            },
            || client.pair.send(&client.nd, 4, OperationFlags::empty(), &[]),
        );
        let is_ordered = entries.0 == 0 || entries.1 == 1;
        assert!(is_ordered, "interrupted at {at}: an answer, and the Send is under way");
        answers += entries.0;
        rest();
        drop((received, server.close(), client.close()));
        if !met {
            break;
        }
    }
    assert!(answers > 0, "the peer never answered in between");
    machine.finish();
}

// Rule: IOCTL-14
/// Two queue pairs with two completion queues, of which each has the other's: a receive of either waits for the queue into which
/// the other's is moved.
fn queues_that_have_changed_parts_do_not_wait_for_each_other() {
    let machine = Machine::start();
    for at in 0..400 {
        let (one, other) = (Program::start(100, 1), Program::start(100, 1));
        let mut client = Program::start(200, 2);
        let second_queue = client.nd.queue(client.adapter, 64);
        let queues = [second_queue.handle, client.queue.handle];
        client.replace_pair(new_pair(&client.nd, client.domain, (queues[0], queues[1]), SIZES));
        let back = new_pair(&client.nd, client.domain, (queues[1], queues[0]), SIZES);
        connect(&one, &client);
        let there = std::mem::replace(&mut client.pair, back);
        connect(&other, &client);
        there.receive(&client.nd, 1, &[]);
        client.pair.receive(&client.nd, 2, &[]);
        let met = interrupted(
            at,
            || other.pair.send(&other.nd, 3, OperationFlags::empty(), &[]),
            || one.pair.send(&one.nd, 4, OperationFlags::empty(), &[]),
        );
        rest();
        assert_eq!((second_queue.unread(), client.queue.unread()), (1, u32::from(met)), "interrupted at {at}");
        assert_eq!(client.nd.free(QP_FREE, there.handle), Status::SUCCESS);
        drop((there, second_queue, one.close(), other.close(), client.close()));
        if !met {
            break;
        }
    }
    machine.finish();
}

fn two_connects_on_one_connector_are_one() {
    let machine = Machine::start();
    let (server, client) = (Program::start(100, 1), Program::start(200, 2));
    let listener = server.listen(5000, 0);
    let ours = client.connector();
    assert_eq!(client.bind(CONNECTOR_BIND, ours, address(2, 0)), Status::SUCCESS);
    let first = client.connect(ours, address(1, 5000), b"first");
    assert_eq!(status_now(&client.connect(ours, address(1, 5000), b"second")), CONNECTION_ACTIVE);
    // What pends ends in the order of arrival; one that waited for the end of an attempt given up waits for that of the next.
    let notify = notify_end(&client, ours);
    assert!(first.cancel());
    assert_eq!(status_now(&first), Status::CANCELLED);
    pass(20);
    assert!(!notify.is_completed());
    let third = client.connect(ours, address(1, 5000), b"third");
    let fourth = notify_end(&client, ours);
    assert!(!third.is_completed() && !fourth.is_completed());
    assert_eq!(client.nd.call(CONNECTOR_CANCEL_IO, &handle(ours)), Status::SUCCESS);
    assert_eq!([&notify, &third, &fourth].map(status_now), [Status::CANCELLED; 3]);
    pass(20);
    let last = client.connect(ours, address(1, 5000), b"last");
    // The first two are in the backlog, and withdrawn. A request that travels may be withdrawn before it gets there.
    let mut withdrawn = 0;
    let theirs = loop {
        let connector = server.connector();
        assert_eq!(status(&server.get_request(listener, connector)), Status::SUCCESS);
        if server.private_data(connector, 100).1 == b"last" {
            break connector;
        }
        assert_eq!(status(&server.accept(connector, b"")), CONNECTION_ABORTED);
        withdrawn += 1;
    };
    assert!(if across_streams() { withdrawn <= 2 } else { withdrawn == 2 }, "{withdrawn} withdrawn requests");
    let accepting = server.accept(theirs, b"");
    assert_eq!(status_now(&server.accept(theirs, b"")), CONNECTION_ACTIVE);
    assert_eq!(status(&last), Status::SUCCESS);
    assert_eq!(client.nd.call(CONNECTOR_COMPLETE_CONNECT, &handle(ours)), Status::SUCCESS);
    assert_eq!(client.nd.call(CONNECTOR_COMPLETE_CONNECT, &handle(ours)), CONNECTION_INVALID);
    assert_eq!(status(&accepting), Status::SUCCESS);
    drop((server.close(), client.close()));
    machine.finish();
}

fn a_close_ends_two_of_each_kind() {
    let machine = Machine::start();
    let (server, client, theirs, ours) = pair_of_programs();
    let waiting = [(); 2].map(|()| [notify_end(&server, theirs), server.nd.notify(&server.queue, ANY)]);
    let others = [(); 2].map(|()| notify_end(&client, ours));
    assert_eq!(server.nd.free(CONNECTOR_FREE, theirs), Status::SUCCESS);
    for [connector, queue] in &waiting {
        assert_eq!(status_now(connector), Status::CANCELLED);
        assert!(!queue.is_completed());
    }
    rest();
    assert_eq!(others.each_ref().map(status_now), [Status::SUCCESS; 2], "the peer's end");
    let left = server.close();
    for [_, queue] in &waiting {
        assert_eq!(status_now(queue), Status::CANCELLED);
    }
    drop((left, client.close()));
    machine.finish();
}

/// The peer's end, at DISPATCH_LEVEL: the host bounds what one call there completes.
fn many_requests_end_in_bounded_passes() {
    let machine = Machine::start();
    let (server, client, theirs, ours) = pair_of_programs();
    let waiting: Vec<_> = (0..2000).map(|_| notify_end(&client, ours)).collect();
    let notifies: Vec<_> = (0..2000).map(|_| client.nd.notify(&client.queue, ANY)).collect();
    assert_eq!(status(&server.nd.begin(CONNECTOR_DISCONNECT, &handle(theirs))), Status::SUCCESS);
    client.pair.receive(&client.nd, 1, &[]);
    rest();
    assert!(waiting.iter().chain(&notifies).all(|request| status_now(request) == Status::SUCCESS));
    drop((server.close(), client.close()));
    machine.finish();
}

fn one_request_too_many_is_refused() {
    let machine = Machine::start();
    let (server, client, _, ours) = pair_of_programs();
    let nd = &client.nd;
    let objects: [&dyn Fn() -> PendingIrp; 2] = [&|| notify_end(&client, ours), &|| nd.notify(&client.queue, ANY)];
    for ask in objects {
        let waiting: Vec<_> = (0..MOST).map(|_| ask()).collect();
        assert!(waiting.iter().all(|request| !request.is_completed()));
        assert_eq!(status_now(&ask()), Status::INSUFFICIENT_RESOURCES);
        assert!(waiting[MOST / 2].cancel());
        let again = ask();
        assert!(!again.is_completed(), "one has gone");
        assert_eq!(status_now(&ask()), Status::INSUFFICIENT_RESOURCES);
        assert_eq!(status(&waiting[MOST / 2]), Status::CANCELLED);
        for object in [(CONNECTOR_CANCEL_IO, ours), (CQ_CANCEL_IO, client.queue.handle)] {
            assert_eq!(nd.call(object.0, &handle(object.1)), Status::SUCCESS);
        }
        assert!(waiting.iter().chain([&again]).all(|request| status_now(request) == Status::CANCELLED));
    }
    drop((server.close(), client.close()));
    machine.finish();
}
