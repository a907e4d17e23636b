//! The loops of common consumers: a completion queue drained until it is empty with a post for each result, the same loop at
//! DISPATCH_LEVEL outside of any callback, sends on two processors that feed each other, a result polled for at DISPATCH_LEVEL,
//! contexts that are NULL, one open a socket, and the ways in which such consumers connect and close.
//!
//! Every loop ends by itself: what does not end within [`WITHOUT_END`] results or [`POLLS`] polls has failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, CompletionQueue, End, Pair, ProtectionDomain, QueuePair, QueuePairShape, Window, WindowKind,
};
use conformance::machine::{Machine, Setup, wait_until, wait_until_idle, with_machine};
use conformance::trial::Case;
use kernel_host::irql;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::GROUP_AFFINITY;

pub const CASES: &[Case] = &[
    case!(reads_posted_while_their_queue_is_drained_in_its_callback: "NDK-CQ-6", "BUG-7"),
    case!(writes_posted_while_their_queue_is_drained_in_its_callback: "NDK-CQ-6", "BUG-7"),
    case!(sends_posted_while_their_queue_is_drained_in_its_callback: "NDK-CQ-6", "BUG-7"),
    case!(reads_posted_while_their_queue_is_drained_at_dispatch_level: "NDK-ASY-10", "BUG-7"),
    case!(writes_posted_while_their_queue_is_drained_at_dispatch_level: "NDK-ASY-10", "BUG-7"),
    case!(sends_posted_while_their_queue_is_drained_at_dispatch_level: "NDK-ASY-10", "BUG-7"),
    case!(sends_on_two_processors_that_feed_each_other: "NDK-CQ-6", "BUG-7"),
    // An answer that travels needs the processor that polls for it.
    case!(result_polled_for_at_dispatch_level_comes: "NDK-ASY-10", "BUG-7"; not in stream),
    case!(thread_goes_on_while_a_consumer_of_its_processor_drains_and_posts: "NDK-CQ-6", "BUG-7"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();

/// Messages that one notification may take where both sides have [`IN_FLIGHT`] under way: more of them are sent meanwhile.
const FED: u32 = 8 * IN_FLIGHT as u32;

/// A consumer that has taken so many results without finding its queue empty has a provider that completes each post at once.
const WITHOUT_END: u32 = 10_000;

/// Results of a whole trial, so that a loop without end would have been one.
const ENOUGH: u64 = 2 * WITHOUT_END as u64;

/// Polls of an empty queue that a consumer makes before the trial fails.
const POLLS: u32 = 100_000;

/// Requests in flight.
const IN_FLIGHT: u64 = 16;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Read,
    Write,
    Send,
}

/// One side that posts a request for each result, until it is stopped.
struct Traffic<'a> {
    // Regions go before the protection domains.
    near: Window<'a>,
    peer: Window<'a>,
    pair: Pair<'a>,
    operation: Operation,
    length: usize,
    /// Results with which it is over.
    enough: u64,
    stopped: AtomicBool,
    results: AtomicU64,
    /// Most results that were taken before the queue was found empty.
    longest: AtomicU32,
    /// The same on the receiving side.
    longest_received: AtomicU32,
}

impl<'a> Traffic<'a> {
    fn new(first: &'a Adapter, second: &'a Adapter, operation: Operation, length: usize) -> Self {
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(length), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(length), WindowKind::Registered);
        Self {
            near,
            peer,
            pair,
            operation,
            length,
            stopped: AtomicBool::new(false),
            enough: ENOUGH,
            results: AtomicU64::new(0),
            longest: AtomicU32::new(0),
            longest_received: AtomicU32::new(0),
        }
    }

    /// For a callback, which the trial takes back before the traffic goes.
    fn lasting(self: &Arc<Self>) -> std::sync::Weak<Traffic<'static>> {
        let weak = Arc::downgrade(self);
        // SAFETY: only the lifetime of the adapters changes, which outlive the last strong reference: callbacks take theirs
        // from this one, and `end` has seen the last callback return before the trial drops its own.
        unsafe { std::mem::transmute::<std::sync::Weak<Traffic<'a>>, std::sync::Weak<Traffic<'static>>>(weak) }
    }

    fn post(&self, request: u64) {
        let own = [self.near.sge(0..self.length)];
        let pair = &self.pair.active.queue_pair;
        let status = match self.operation {
            Operation::Read => pair.read(request, &own, self.peer.remote(0), NONE),
            Operation::Write => pair.write(request, &own, self.peer.remote(0), NONE),
            Operation::Send => pair.send(request, &own, NONE),
        };
        assert_eq!(status, 0, "posting a {:?}", self.operation);
    }

    fn post_receive(&self, request: u64) {
        let place = [self.peer.sge(0..self.length)];
        assert_eq!(self.pair.passive.queue_pair.receive(request, &place), 0, "posting a receive");
    }

    fn begin(&self) {
        if matches!(self.operation, Operation::Send) {
            (0..2 * IN_FLIGHT).for_each(|request| self.post_receive(request));
        }
        (0..IN_FLIGHT).for_each(|request| self.post(request));
    }

    /// `while (poll() > 0) { post another }`: the loop that a consumer expects to end.
    fn drain(&self, before: impl Fn()) {
        let taken = drain(&self.pair.active.initiator, &self.stopped, |result| {
            if !self.stopped.load(Ordering::Acquire) {
                before();
                self.post(result.RequestContext as u64);
            }
        });
        self.results.fetch_add(u64::from(taken), Ordering::AcqRel);
        self.longest.fetch_max(taken, Ordering::AcqRel);
    }

    /// The receiving side's half of it: every receive goes back.
    fn drain_receives(&self) {
        let taken = drain(&self.pair.passive.receive, &self.stopped, |result| {
            if !self.stopped.load(Ordering::Acquire) {
                self.post_receive(result.RequestContext as u64);
            }
        });
        self.longest_received.fetch_max(taken, Ordering::AcqRel);
    }

    fn is_over(&self) -> bool {
        self.stopped.load(Ordering::Acquire) || self.results.load(Ordering::Acquire) >= self.enough
    }

    /// Lets what is posted end, takes the callbacks back and judges.
    fn end(&self) {
        self.stopped.store(true, Ordering::Release);
        wait_until_idle();
        for queue in [&self.pair.active.initiator, &self.pair.passive.receive] {
            queue.on_notification(|| {});
        }
        wait_until_idle();
        let [longest, received] = [&self.longest, &self.longest_received].map(|most| most.load(Ordering::Acquire));
        let results = self.results.load(Ordering::Acquire);
        println!(
            "{:?}: {results} results, {longest} at most before the queue was empty, {received} receives",
            self.operation
        );
        for (most, what) in [(longest, "results"), (received, "receives")] {
            assert!(most < WITHOUT_END, "{most} {what} in one loop that ends when the queue is empty");
        }
    }
}

/// Takes results one by one until there is none, or until it is plain that there always is one; that stops the traffic.
fn drain(queue: &CompletionQueue, stopped: &AtomicBool, mut take: impl FnMut(NDK_RESULT_EX)) -> u32 {
    let mut taken = 0;
    while let [result] = queue.take(1)[..] {
        assert_eq!(result.Status, 0, "a result of the traffic");
        taken += 1;
        if taken >= WITHOUT_END {
            stopped.store(true, Ordering::Release);
        }
        take(result);
    }
    taken
}

/// The loop in the notification callback, which arms afterwards.
fn drained_in_its_callback(operation: Operation) {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let traffic = Arc::new(Traffic::new(&first, &second, operation, 4096));
        let sending = traffic.lasting();
        traffic.pair.active.initiator.on_notification(move || {
            let Some(traffic) = sending.upgrade() else { return };
            traffic.drain(|| {});
            traffic.pair.active.initiator.arm(NDK_CQ_NOTIFY_ANY);
        });
        let receiving = traffic.lasting();
        traffic.pair.passive.receive.on_notification(move || {
            let Some(traffic) = receiving.upgrade() else { return };
            traffic.drain_receives();
            traffic.pair.passive.receive.arm(NDK_CQ_NOTIFY_ANY);
        });
        // Armed afterwards: posts of one queue come one at a time (NDKPI), and from here on the callbacks make them.
        traffic.begin();
        traffic.pair.active.initiator.arm(NDK_CQ_NOTIFY_ANY);
        traffic.pair.passive.receive.arm(NDK_CQ_NOTIFY_ANY);
        wait_until("the traffic has gone on for long enough", || traffic.is_over());
        traffic.end();
    });
}

fn reads_posted_while_their_queue_is_drained_in_its_callback() {
    drained_in_its_callback(Operation::Read);
}

fn writes_posted_while_their_queue_is_drained_in_its_callback() {
    drained_in_its_callback(Operation::Write);
}

fn sends_posted_while_their_queue_is_drained_in_its_callback() {
    drained_in_its_callback(Operation::Send);
}

/// Runs at DISPATCH_LEVEL, as a DPC or a timer function of the consumer's own does.
fn at_dispatch<T>(body: impl FnOnce() -> T) -> T {
    let before = irql::raise(irql::DISPATCH);
    let result = body();
    irql::lower(before);
    result
}

/// The loop in a timer function of the consumer's own, which comes again and again.
fn drained_at_dispatch_level(operation: Operation) {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let traffic = Traffic::new(&first, &second, operation, 4096);
        traffic.begin();
        wait_until("the traffic has gone on for long enough", || {
            // Both sides are one consumer's: a receive goes back before the next send.
            at_dispatch(|| traffic.drain(|| traffic.drain_receives()));
            traffic.is_over()
        });
        traffic.end();
    });
}

fn reads_posted_while_their_queue_is_drained_at_dispatch_level() {
    drained_at_dispatch_level(Operation::Read);
}

fn writes_posted_while_their_queue_is_drained_at_dispatch_level() {
    drained_at_dispatch_level(Operation::Write);
}

fn sends_posted_while_their_queue_is_drained_at_dispatch_level() {
    drained_at_dispatch_level(Operation::Send);
}

/// Two ends with one completion queue each, on a processor each. A message that arrives is answered by one.
struct Feeding<'a> {
    // Regions go before the protection domains.
    windows: [Window<'a>; 2],
    pair: Pair<'a>,
    stopped: AtomicBool,
    messages: AtomicU64,
    longest: [AtomicU32; 2],
}

impl Feeding<'_> {
    const LENGTH: usize = 64;

    fn end(&self, side: usize) -> &End<'_> {
        if side == 0 { &self.pair.active } else { &self.pair.passive }
    }

    fn send(&self, side: usize) {
        let list = [self.windows[side].sge(0..Self::LENGTH)];
        let status = self.end(side).queue_pair.send(0, &list, NDK_OP_FLAG_SILENT_SUCCESS);
        assert_eq!(status, 0, "a send of side {side}");
    }

    fn receive(&self, side: usize) {
        let list = [self.windows[side].sge(0..Self::LENGTH)];
        assert_eq!(self.end(side).queue_pair.receive(1, &list), 0, "a receive of side {side}");
    }

    fn drain(&self, side: usize) {
        let queue = &self.end(side).receive;
        let taken = drain(queue, &self.stopped, |_| {
            self.messages.fetch_add(1, Ordering::AcqRel);
            if !self.stopped.load(Ordering::Acquire) {
                self.receive(side);
                self.send(side);
            }
        });
        self.longest[side].fetch_max(taken, Ordering::AcqRel);
        queue.arm(NDK_CQ_NOTIFY_ANY);
    }
}

/// An end whose queues prefer one processor.
fn end_near(adapter: &Adapter, processor: usize) -> End<'_> {
    let affinity = GROUP_AFFINITY { Mask: 1 << processor, Group: 0, Reserved: [0; 3] };
    let shape = adapter.fit(QueuePairShape { receive_depth: 64, initiator_depth: 64, ..QueuePairShape::default() });
    let domain = ProtectionDomain::new(adapter).expect("a protection domain");
    let receive = CompletionQueue::near(adapter, shape.receive_depth, affinity).expect("a completion queue");
    let initiator = CompletionQueue::near(adapter, shape.initiator_depth, affinity).expect("a completion queue");
    let queue_pair = QueuePair::new(&domain, &receive, &initiator, shape).expect("a queue pair");
    End { connector: None, queue_pair, initiator, receive, domain, adapter }
}

/// With a schedule always: on a busy machine the two processors are seldom at work at once.
fn sends_on_two_processors_that_feed_each_other() {
    let mut setup = Setup::default();
    setup.kernel.schedule.get_or_insert(1);
    with_machine(&setup, |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let (active, passive) = (end_near(&first, 0), end_near(&second, 1));
        let pair = Pair::join(active, passive, first.address(), second.address());
        let window = |end| Window::open(end, Buffer::scattered(Feeding::LENGTH), WindowKind::Registered);
        let windows = [window(&pair.active), window(&pair.passive)];
        let feeding = Arc::new(Feeding {
            windows,
            pair,
            stopped: AtomicBool::new(false),
            messages: AtomicU64::new(0),
            longest: [AtomicU32::new(0), AtomicU32::new(0)],
        });
        for side in 0..2 {
            let weak = Arc::downgrade(&feeding);
            // SAFETY: as in `Traffic::lasting`; the callbacks are taken back below.
            let weak: std::sync::Weak<Feeding<'static>> = unsafe { std::mem::transmute(weak) };
            feeding.end(side).receive.on_notification(move || {
                let Some(feeding) = weak.upgrade() else { return };
                feeding.drain(side);
            });
            (0..2 * IN_FLIGHT).for_each(|_| feeding.receive(side));
        }
        for side in 0..2 {
            (0..IN_FLIGHT).for_each(|_| feeding.send(side));
        }
        for side in 0..2 {
            feeding.end(side).receive.arm(NDK_CQ_NOTIFY_ANY);
        }
        wait_until("enough messages", || {
            feeding.stopped.load(Ordering::Acquire) || feeding.messages.load(Ordering::Acquire) >= ENOUGH / 4
        });
        feeding.stopped.store(true, Ordering::Release);
        wait_until_idle();
        for side in 0..2 {
            feeding.end(side).receive.on_notification(|| {});
        }
        wait_until_idle();
        let longest = [0, 1].map(|side: usize| feeding.longest[side].load(Ordering::Acquire));
        println!("{} messages, {longest:?} at most in one notification", feeding.messages.load(Ordering::Acquire));
        assert!(longest.iter().all(|most| *most <= FED), "{longest:?} messages in one notification");
    });
}

/// Posts more than one call copies and polls on, without ever leaving DISPATCH_LEVEL: nothing else runs on this processor.
fn polled_for_at_dispatch_level(machine: &Machine, length: usize, operation: Operation) -> Result<u32, u32> {
    let (first, second) = (machine.open(0), machine.open(1));
    let traffic = Traffic::new(&first, &second, operation, first.fit_registered(length));
    if matches!(operation, Operation::Send) {
        traffic.post_receive(1);
    }
    at_dispatch(|| {
        traffic.post(1);
        let found = (1..=POLLS).find_map(|poll| {
            let result = traffic.pair.active.initiator.take(1);
            result.first().map(|result| (poll, result.Status))
        });
        match found {
            Some((poll, 0)) => Ok(poll),
            Some((_, status)) => panic!("the {operation:?} ended with {status:#010x}"),
            None => Err(POLLS),
        }
    })
}

fn result_polled_for_at_dispatch_level_comes() {
    with_machine(&Setup::default(), |machine| {
        for operation in [Operation::Read, Operation::Write, Operation::Send] {
            for length in [4096, 100_000, 1 << 20] {
                match polled_for_at_dispatch_level(machine, length, operation) {
                    Ok(polls) => println!("{operation:?} of {length} bytes: {polls} polls"),
                    Err(polls) => panic!("a {operation:?} of {length} bytes has no result after {polls} polls"),
                }
            }
        }
    });
}

/// A thread that gets its processor at every chance, and a consumer there that posts for each result in its callback. The consumer
/// stops by itself, so that a provider whose DPC goes on for ever fails here and does not hang.
fn thread_goes_on_while_a_consumer_of_its_processor_drains_and_posts() {
    const STEPS: u32 = 200;
    // On a busy machine the thread itself runs seldom: the traffic ends first only where it keeps the processor.
    const BOUND: u64 = 50 * ENOUGH;
    let mut setup = Setup::default();
    setup.kernel.processors = 1;
    with_machine(&setup, |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        for operation in [Operation::Read, Operation::Write] {
            let mut traffic = Traffic::new(&first, &second, operation, first.fit_registered(4096));
            traffic.enough = BOUND;
            let traffic = Arc::new(traffic);
            let draining = traffic.lasting();
            traffic.pair.active.initiator.on_notification(move || {
                let Some(traffic) = draining.upgrade() else { return };
                traffic.drain(|| {});
                if traffic.is_over() {
                    traffic.stopped.store(true, Ordering::Release);
                }
                traffic.pair.active.initiator.arm(NDK_CQ_NOTIFY_ANY);
            });
            traffic.begin();
            traffic.pair.active.initiator.arm(NDK_CQ_NOTIFY_ANY);
            let steps = (0..STEPS).take_while(|_| {
                at_dispatch(|| ());
                !traffic.is_over()
            });
            let steps = steps.count() as u32;
            println!("{operation:?}: {} results beside {steps} steps", traffic.results.load(Ordering::Acquire));
            traffic.end();
            assert_eq!(steps, STEPS, "the thread came to its processor {steps} times while the other consumer ran");
        }
    });
}
