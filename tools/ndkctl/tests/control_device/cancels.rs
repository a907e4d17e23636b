//! Requests that end before they are done, in every state: in the queue behind busy threads, at a thread that waits, on their
//! way in or out. Each is completed once (the kernel host sees to that) and without waiting for anything else.

use super::endings::{endless, endless_memcpy};
use super::handles::File;
use super::machine::{Machine, ask, refused, region, send, send_direct, start_direct};
use super::pairs::{close, create_request, objects};
use super::replay;
use super::transfers::{memcpy_request, transfer_request};
use super::{Case, cases};
use kernel_host::io::PendingIrp;
use kernel_host::memory::user_buffer::UserBuffer;
use kernel_host::ndis::life_cycle::DeviceEvent;
use softndk_ioctl::{
    MemcpyRequest, PairCreateReply, PairCreateRequest, PairFlags, PairModerationRequest, Request, RequestHeader,
    ScriptRequest, Status, TransferRequest,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zerocopy::IntoBytes;

pub const CASES: &[Case] = cases![
    queued_requests_are_cancelled_at_once,
    a_pair_closes_while_its_transfer_is_queued,
    an_adapter_goes_while_its_transfer_is_queued,
    a_surprise_removal_ends_requests_before_the_halt,
    files_close_while_their_adapter_is_pulled_out,
    a_file_closes_while_its_requests_are_queued,
    a_thread_that_waits_gets_a_cancel_at_once,
    a_thread_that_waits_gets_the_end_of_its_pair_at_once,
    requests_of_a_thread_that_ends_are_cancelled,
    cancelling_races_with_completing,
    a_request_cancelled_on_its_way_in_is_not_queued,
    the_queue_is_so_long_and_no_longer,
];

/// Requests that the driver works on at the same time.
const THREADS: usize = 32;
/// Requests that may pend.
const REQUESTS: usize = 512;
/// A request that ends within this time has not waited for another one: those take longer.
const AT_ONCE: Duration = Duration::from_millis(20);

/// All of the driver's threads at work for another file.
struct Crowd {
    file: File,
    running: Vec<PendingIrp>,
    _buffer: UserBuffer,
}

impl Crowd {
    fn gather(machine: &Machine) -> Self {
        let (file, buffer) = (machine.open(), region(4096));
        let running = (0..THREADS).map(|_| start_direct(&file, &endless_memcpy(), &buffer)).collect();
        Self { file, running, _buffer: buffer }
    }

    fn scatter(self) {
        assert!(self.running.iter().all(|request| !request.is_completed()), "every thread was busy all the while");
        assert_eq!(self.file.cancel_all(), THREADS);
        for request in self.running {
            assert_eq!(status(&request), Status::CANCELLED);
        }
        self.file.close();
    }
}

fn status(request: &PendingIrp) -> Status {
    Status(request.wait().status)
}

/// The status of a request that must be over.
#[track_caller]
fn status_now(request: &PendingIrp) -> Status {
    assert!(request.is_completed());
    status(request)
}

// Rule: IOCTL-7
fn queued_requests_are_cancelled_at_once() {
    let machine = Machine::start();
    let file = machine.open();
    let (create, buffer) = (create_request(&machine), region(65_536));
    let pair = ask(&file, &create).pair;
    let crowd = Crowd::gather(&machine);
    let start =
        |code, input: &[u8], capacity| file.start_ioctl(code, input, capacity).expect("the I/O manager takes it");
    let script = replay::input(&[]);
    let waiting = [
        start_direct(&file, &endless_memcpy(), &buffer),
        start_direct(&file, &endless(pair), &buffer),
        start(PairCreateRequest::CODE, create.as_bytes(), size_of::<PairCreateReply>()),
        start(ScriptRequest::CODE, &script, 4096),
    ];
    assert_eq!(file.pending(), waiting.len());
    // Out of the middle, from the end, from the front.
    for number in [1, 3, 0, 2] {
        assert!(waiting[number].cancel());
        assert_eq!(status_now(&waiting[number]), Status::CANCELLED);
        assert!(!waiting[number].cancel(), "it is over");
    }
    // What the transfer had of the pair has been given back.
    let again = start_direct(&file, &endless(pair), &buffer);
    assert!(!again.is_completed());
    assert_eq!(file.cancel_all(), 1);
    assert_eq!(status_now(&again), Status::CANCELLED);
    crowd.scatter();
    assert_eq!(send_direct(&file, &transfer_request(pair, 4096), &mut region(4096)), Status::SUCCESS);
    assert_eq!(close(&file, pair), Status::SUCCESS);
    file.close();
    machine.finish();
}

// Rule: IOCTL-7
fn a_pair_closes_while_its_transfer_is_queued() {
    let machine = Machine::start();
    let (file, buffer) = (machine.open(), region(65_536));
    let pairs = [(); 2].map(|()| ask(&file, &create_request(&machine)).pair);
    let crowd = Crowd::gather(&machine);
    let waiting = pairs.map(|pair| start_direct(&file, &endless(pair), &buffer));
    assert_eq!(close(&file, pairs[0]), Status::SUCCESS);
    assert_eq!(status_now(&waiting[0]), Status::CANCELLED);
    assert!(!waiting[1].is_completed(), "the other pair's goes on");
    assert_eq!(close(&file, pairs[1]), Status::SUCCESS);
    assert_eq!(status_now(&waiting[1]), Status::CANCELLED);
    crowd.scatter();
    file.close();
    machine.finish();
}

// Rule: IOCTL-9
fn an_adapter_goes_while_its_transfer_is_queued() {
    let mut machine = Machine::start();
    let (file, buffer) = (machine.open(), region(65_536));
    let pair = ask(&file, &create_request(&machine)).pair;
    let crowd = Crowd::gather(&machine);
    let waiting = start_direct(&file, &endless(pair), &buffer);
    machine.adapters.remove(1).remove();
    assert_eq!(status_now(&waiting), Status::DEVICE_REMOVED);
    crowd.scatter();
    assert_eq!(close(&file, pair), Status::SUCCESS);
    file.close();
    machine.finish();
}

/// Requests at work, in the queue, and a pair that is being made: the miniport has the removal event, and HaltEx is not called yet.
// Rule: IOCTL-9
fn a_surprise_removal_ends_requests_before_the_halt() {
    let machine = Machine::start();
    let (file, buffer) = (machine.open(), region(65_536));
    let create = create_request(&machine);
    let pairs = [(); 2].map(|()| ask(&file, &create).pair);
    let at_work = start_direct(&file, &endless(pairs[0]), &buffer);
    let crowd = Crowd::gather(&machine);
    let waiting = start_direct(&file, &endless(pairs[1]), &buffer);
    machine.adapters[1].device_event(DeviceEvent::SurpriseRemoved).expect("the adapter is started");
    assert_eq!(status(&at_work), Status::DEVICE_REMOVED);
    assert_eq!(status(&waiting), Status::DEVICE_REMOVED);
    crowd.scatter();
    refused(&file, &create, Status::DEVICE_NOT_READY);
    // The disconnect event is what ends them, on a thread of the consumer's.
    machine.wait_until(|| objects(&file).ndk_adapters == 0);
    let left = objects(&file);
    assert_eq!((left.pairs, left.queue_pairs, left.connectors, left.memory_regions), (2, 0, 0, 0));
    for pair in pairs {
        let status = send_direct(&file, &transfer_request(pair, 4096), &mut region(4096));
        assert_eq!(status, Status::DEVICE_REMOVED);
        assert_eq!(close(&file, pair), Status::SUCCESS);
    }
    file.close();
    machine.finish();
}

/// A cleanup and a removal that end the same pairs, and a last adapter that takes the device away in the middle of cleanups.
// Rule: IOCTL-8, IOCTL-9
fn files_close_while_their_adapter_is_pulled_out() {
    const ROUNDS: usize = 40;
    let machine = Machine::start();
    for _ in 0..ROUNDS {
        let buffer = Arc::new(region(65_536));
        let closing: Vec<_> = (0..3)
            .map(|_| {
                let file = machine.open();
                let pairs = [(); 2].map(|()| ask(&file, &create_request(&machine)).pair);
                let lent = Arc::clone(&buffer);
                kernel_host::thread::spawn("program", move || {
                    let running = pairs.map(|pair| start_direct(&file, &endless(pair), &lent));
                    file.close();
                    running.map(|request| status_now(&request))
                })
            })
            .collect();
        for adapter in &machine.adapters {
            adapter.surprise_remove().expect("is pulled out");
        }
        for program in closing {
            for status in program.join() {
                assert!(matches!(status, Status::CANCELLED | Status::DEVICE_REMOVED), "{status:?}");
            }
        }
        for adapter in &machine.adapters {
            adapter.start().unwrap_or_else(|error| panic!("starting again: {error}"));
        }
    }
    machine.finish();
}

// Rule: IOCTL-8
fn a_file_closes_while_its_requests_are_queued() {
    let machine = Machine::start();
    let (file, other, buffer) = (machine.open(), machine.open(), region(65_536));
    let pair = ask(&file, &create_request(&machine)).pair;
    let crowd = Crowd::gather(&machine);
    let waiting = [start_direct(&file, &endless(pair), &buffer), start_direct(&file, &endless_memcpy(), &buffer)];
    let others = start_direct(&other, &endless_memcpy(), &buffer);
    file.close();
    for request in &waiting {
        assert_eq!(status_now(request), Status::CANCELLED);
    }
    drop(waiting);
    assert!(!others.is_completed(), "the other file's stays");
    assert_eq!(objects(&other).pairs, 0);
    other.close();
    assert_eq!(status_now(&others), Status::CANCELLED);
    drop(others);
    crowd.scatter();
    machine.finish();
}

/// A pair whose transfers wait: completions come, and notifications only of thousands of them.
fn slow_pair(machine: &Machine, file: &File) -> u32 {
    let create = PairCreateRequest { flags: PairFlags::NOTIFY, ..create_request(machine) };
    let pair = ask(file, &create).pair;
    let header = RequestHeader::of::<PairModerationRequest>();
    let rare = PairModerationRequest { header, pair, interval: u32::MAX, count: 128, reserved: 0 };
    let (answer, _) = send(file, PairModerationRequest::CODE, rare.as_bytes(), 0);
    assert_eq!(answer, Status::SUCCESS);
    pair
}

fn while_a_thread_waits(end: impl Fn(&Machine, &File, u32, &PendingIrp)) {
    let machine = Machine::start();
    let (file, buffer) = (machine.open(), region(4096));
    for round in 0..20 {
        let pair = slow_pair(&machine, &file);
        let waiting = start_direct(&file, &TransferRequest { depth: 4, ..endless_small(pair) }, &buffer);
        // In the middle of one of its waits, which are a hundred milliseconds long.
        assert_eq!(waiting.wait_for(Duration::from_millis(231 + round)), None, "it is endless");
        end(&machine, &file, pair, &waiting);
        close(&file, pair);
    }
    file.close();
    machine.finish();
}

fn endless_small(pair: u32) -> TransferRequest {
    TransferRequest { request_count: u64::MAX, ..transfer_request(pair, 4096) }
}

// Rule: IOCTL-7
fn a_thread_that_waits_gets_a_cancel_at_once() {
    while_a_thread_waits(|_, _, _, waiting| {
        assert!(waiting.cancel());
        let answer = waiting.wait_for(AT_ONCE).expect("it does not wait for a notification");
        assert_eq!(Status(answer.status), Status::CANCELLED);
    });
}

// Rule: IOCTL-8
fn a_thread_that_waits_gets_the_end_of_its_pair_at_once() {
    while_a_thread_waits(|_, file, pair, waiting| {
        let begun = kernel_host::dispatcher::now();
        assert_eq!(close(file, pair), Status::SUCCESS);
        let passed = (kernel_host::dispatcher::now() - begun) * 1_000 / kernel_host::dispatcher::UNITS_PER_SECOND;
        assert_eq!(status(waiting), Status::CANCELLED);
        assert!(u128::from(passed) < AT_ONCE.as_millis(), "{passed} ms");
    });
}

/// Some at work, some in the queue.
// Rule: IOCTL-7
fn requests_of_a_thread_that_ends_are_cancelled() {
    let machine = Machine::start();
    let (file, buffer) = (Arc::new(machine.open()), Arc::new(region(4096)));
    let (theirs, lent) = (Arc::clone(&file), Arc::clone(&buffer));
    let thread = kernel_host::thread::spawn("program", move || {
        (0..THREADS + 8).map(|_| start_direct(&theirs, &endless_memcpy(), &lent)).collect::<Vec<_>>()
    });
    let requests = thread.join();
    for request in &requests {
        assert_eq!(status_now(request), Status::CANCELLED);
    }
    drop(requests);
    assert_eq!(file.pending(), 0);
    Arc::into_inner(file).expect("no other reference").close();
    machine.finish();
}

/// Short requests, while another thread cancels whatever there is: on its way in, in the queue, at work, on its way out.
// Rule: IOCTL-7
fn cancelling_races_with_completing() {
    const ROUNDS: usize = 150;
    const AT_A_TIME: usize = THREADS + 8;
    let machine = Machine::start();
    let (file, stop) = (Arc::new(machine.open()), Arc::new(AtomicBool::new(false)));
    let (theirs, seen) = (Arc::clone(&file), Arc::clone(&stop));
    let canceller = kernel_host::thread::spawn("canceller", move || {
        let mut calls = 0;
        while !seen.load(Ordering::SeqCst) {
            calls += theirs.cancel_all();
        }
        calls
    });
    let buffer = region(4096);
    let short = MemcpyRequest { request_count: 400, ..memcpy_request(4096) };
    let (mut done, mut ended) = (0, 0);
    for _ in 0..ROUNDS {
        let requests: Vec<_> = (0..AT_A_TIME).map(|_| start_direct(&file, &short, &buffer)).collect();
        for request in requests {
            match status(&request) {
                Status::SUCCESS => done += 1,
                Status::CANCELLED => ended += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    stop.store(true, Ordering::SeqCst);
    let calls = canceller.join();
    println!("{done} done, {ended} cancelled, by {calls} calls");
    assert_eq!(done + ended, ROUNDS * AT_A_TIME);
    assert!(ended > 0 && ended <= calls, "{ended} ended by {calls} calls");
    assert_eq!(file.pending(), 0);
    Arc::into_inner(file).expect("no other reference").close();
    machine.finish();
}

/// The threads are busy, so that only the cancel ends a request, and do no work, so that there is time for the race.
// Rule: IOCTL-7
fn a_request_cancelled_on_its_way_in_is_not_queued() {
    const ROUNDS: usize = 400;
    let machine = Machine::start();
    let (busy, file, buffer) = (machine.open(), Arc::new(machine.open()), region(4096));
    let pairs: Vec<_> = (0..THREADS).map(|_| slow_pair(&machine, &busy)).collect();
    let start = |pair: &u32| start_direct(&busy, &endless_small(*pair), &buffer);
    let running: Vec<_> = pairs.iter().map(start).collect();
    for round in 0..ROUNDS {
        let theirs = Arc::clone(&file);
        let canceller = kernel_host::thread::spawn("canceller", move || while theirs.cancel_all() == 0 {});
        let request = start_direct(&file, &endless_memcpy(), &buffer);
        canceller.join();
        let answer = request.wait_for(AT_ONCE).unwrap_or_else(|| panic!("round {round}: it is in the queue"));
        assert_eq!(Status(answer.status), Status::CANCELLED);
    }
    assert!(running.iter().all(|request| !request.is_completed()));
    Arc::into_inner(file).expect("no other reference").close();
    busy.close();
    assert!(running.iter().all(|request| status_now(request) == Status::CANCELLED));
    drop(running);
    machine.finish();
}

// Rule: IOCTL-11
fn the_queue_is_so_long_and_no_longer() {
    let machine = Machine::start();
    let (file, mut buffer) = (machine.open(), region(4096));
    let pending: Vec<_> = (0..REQUESTS).map(|_| start_direct(&file, &endless_memcpy(), &buffer)).collect();
    assert_eq!(send_direct(&file, &memcpy_request(4096), &mut buffer), Status::INSUFFICIENT_RESOURCES);
    assert_eq!(file.cancel_all(), REQUESTS);
    for request in &pending {
        assert_eq!(status(request), Status::CANCELLED);
    }
    assert_eq!(send_direct(&file, &memcpy_request(4096), &mut buffer), Status::SUCCESS);
    drop(pending);
    file.close();
    machine.finish();
}
