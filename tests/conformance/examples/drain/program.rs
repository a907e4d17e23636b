//! How a consumer that drains its queue and posts in its callback shares the machine with another one, measured.
//!
//!     SOFTNDK_IMAGE=target/driver/x64/release/softndk.sys cargo run --release -p conformance --example drain [SECONDS]
//!
//! For Read, Write and Send of 4 KiB, 16 in flight, on one and two processors in the kernel host's fast mode: results in one
//! notification, the longest DPC (by the clock: a busy machine makes it longer), and the requests of a second consumer that
//! posts and polls in a thread, alone and beside the first. Ends with 1 when a notification took more results than the bound.

use conformance::consumer::{Adapter, Buffer, Pair, Window, WindowKind};
use conformance::machine::{Machine, Setup, wait_until_idle, with_machine};
use kernel_host::{Mode, deferred_budget};
use ndkpi_sys::ndkpi::{NDK_CQ_NOTIFY_ANY, NDK_OP_FLAGS};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LENGTH: usize = 4096;
const IN_FLIGHT: u64 = 16;
/// Results that a provider may hand out before an empty queue, docs/decisions.md 51.
const BOUND: u64 = 512 + 16;
const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const OPERATIONS: [&str; 3] = ["Read", "Write", "Send"];

pub fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, operation, processors, seconds] = &words[..]
        && word == "child"
    {
        return child(operation, processors.parse().expect("processors"), seconds.parse().expect("seconds"));
    }
    let seconds = words.first().map_or("10", String::as_str);
    println!(
        "{:<6} {:>10} {:>10} {:>8} {:>8} {:>12} {:>12} {:>12}",
        "", "processors", "results/s", "mean", "most", "longest DPC", "other alone", "other beside"
    );
    let mut all_well = true;
    for operation in OPERATIONS {
        for processors in ["1", "2"] {
            // A kernel a process.
            let program = std::env::current_exe().expect("this program");
            let status =
                Command::new(program).args(["child", operation, processors, seconds]).status().expect("a child");
            all_well &= status.success();
        }
    }
    if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn child(operation: &str, processors: usize, seconds: u64) -> ExitCode {
    let mut setup = Setup::default();
    setup.kernel.mode = Mode::Fast;
    // The times of DPCs are kept where imports are counted.
    setup.kernel.count_imports = true;
    setup.kernel.processors = processors;
    setup.kernel.hang_limit = None;
    let operation = OPERATIONS.into_iter().find(|known| *known == operation).expect("an operation");
    let mut most = 0;
    with_machine(&setup, |machine| most = measure(machine, operation, processors, Duration::from_secs(seconds)));
    if most <= BOUND { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What both consumers have.
struct Side<'a> {
    near: Window<'a>,
    peer: Window<'a>,
    pair: Pair<'a>,
}

impl<'a> Side<'a> {
    fn new(first: &'a Adapter, second: &'a Adapter) -> Self {
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(LENGTH), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(LENGTH), WindowKind::Registered);
        Self { near, peer, pair }
    }

    fn post(&self, operation: &str) {
        let own = [self.near.sge(0..LENGTH)];
        let queue_pair = &self.pair.active.queue_pair;
        let status = match operation {
            "Read" => queue_pair.read(1, &own, self.peer.remote(0), NONE),
            "Write" => queue_pair.write(1, &own, self.peer.remote(0), NONE),
            _ => {
                self.post_receive();
                queue_pair.send(1, &own, NONE)
            }
        };
        assert_eq!(status, 0, "posting a {operation}");
    }

    fn post_receive(&self) {
        assert_eq!(self.pair.passive.queue_pair.receive(1, &[self.peer.sge(0..LENGTH)]), 0, "posting a receive");
        self.pair.passive.receive.take(16);
    }
}

/// The consumer that posts a request for each result in its callback.
struct Draining<'a> {
    side: Side<'a>,
    stopped: AtomicBool,
    results: AtomicU64,
    notifications: AtomicU64,
    most: AtomicU64,
}

fn measure(machine: &Machine, operation: &'static str, processors: usize, time: Duration) -> u64 {
    let (first, second) = (machine.open(0), machine.open(1));
    let (third, fourth) = (machine.open(0), machine.open(1));
    let other = Side::new(&third, &fourth);
    let alone = post_and_poll(&other, Duration::from_secs(2).min(time));
    let draining = Arc::new(Draining {
        side: Side::new(&first, &second),
        stopped: AtomicBool::new(false),
        results: AtomicU64::new(0),
        notifications: AtomicU64::new(0),
        most: AtomicU64::new(0),
    });
    drain_in_callback(&draining, operation);
    deferred_budget::measure();
    (0..IN_FLIGHT).for_each(|_| draining.side.post(operation));
    draining.side.pair.active.initiator.arm(NDK_CQ_NOTIFY_ANY);
    let begun = Instant::now();
    let beside = post_and_poll(&other, time);
    let elapsed = begun.elapsed();
    let results = draining.results.load(Ordering::Acquire);
    draining.stopped.store(true, Ordering::Release);
    wait_until_idle();
    draining.side.pair.active.initiator.on_notification(|| {});
    wait_until_idle();
    let most = draining.most.load(Ordering::Acquire);
    let mean = results / draining.notifications.load(Ordering::Acquire).max(1);
    let rate = rate(results, elapsed);
    let longest = format!("{:.0?}", longest_dpc());
    println!(
        "{operation:<6} {processors:>10} {rate:>10} {mean:>8} {most:>8} {longest:>12} {alone:>10}/s {beside:>10}/s"
    );
    most
}

fn longest_dpc() -> Duration {
    let paths = deferred_budget::times();
    let times = paths.iter().filter_map(|path| path.times.keys().next_back());
    Duration::from_nanos(times.max().copied().unwrap_or_default())
}

fn drain_in_callback(draining: &Arc<Draining<'_>>, operation: &'static str) {
    let weak = Arc::downgrade(draining);
    // SAFETY: only the lifetime of the adapters changes, which outlive the callback: `measure` takes it back before they go.
    let weak: std::sync::Weak<Draining<'static>> = unsafe { std::mem::transmute(weak) };
    draining.side.pair.active.initiator.on_notification(move || {
        let Some(draining) = weak.upgrade() else { return };
        let queue = &draining.side.pair.active.initiator;
        let mut taken = 0;
        while let [_result] = queue.take(1)[..] {
            taken += 1;
            if !draining.stopped.load(Ordering::Acquire) {
                draining.side.post(operation);
            }
        }
        draining.notifications.fetch_add(1, Ordering::AcqRel);
        draining.results.fetch_add(taken, Ordering::AcqRel);
        draining.most.fetch_max(taken, Ordering::AcqRel);
        queue.arm(NDK_CQ_NOTIFY_ANY);
    });
}

/// Requests in a second of a consumer that posts one and polls for it.
fn post_and_poll(side: &Side<'_>, time: Duration) -> u64 {
    let (mut done, begun) = (0_u64, Instant::now());
    while begun.elapsed() < time {
        side.post("Read");
        while side.pair.active.initiator.take(1).is_empty() {}
        done += 1;
    }
    rate(done, begun.elapsed())
}

/// So many a second.
fn rate(count: u64, time: Duration) -> u64 {
    (u128::from(count) * 1_000_000 / time.as_micros().max(1)).try_into().unwrap_or(u64::MAX)
}
