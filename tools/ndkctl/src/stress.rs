//! `ndkctl stress`: consumers with several connections each, that do random legal operations at the same time.
//!
//! The first half of the time is the steady phase: only the consumers act, which also close each other's connections in the
//! middle of transfers and leave connections open when they close their handle. Every operation has to succeed. In the chaos
//! phase, on Linux, the adapters are switched off and on, paused, and started again with other profiles, and memory is short
//! now and then; most operations have to succeed. All the while what was posted has to be completed, and what arrived to be
//! what was sent. When no operation ends for long, the watchdog ends the process.
//!
//! The verdict does not depend on how much of the machine the run gets. Shares are of operations, and disturbances come after a number
//! of operations; the watchdog counts its own looks, which come late when nothing gets a processor; and a time-out counts only if no
//! look came late. `ndktest.sys` waits for what a script expects and not for a time.

use crate::arguments::StressArguments;
use crate::client::Client;
use crate::connect::{Case, run_case};
use crate::failure::{Failure, Kind};
use crate::progress::Progress;
use crate::transport::{Disturbances, Job, Machine, SystemDevice, in_parallel, open_device, open_provider};
use crate::units;
use clap::ValueEnum;
use fastrand::Rng;
use serde::Serialize;
use softndk_ioctl::{
    AdapterEntry, AddressFamily, MemcpyRequest, Operation, PairCreateReply, PairCreateRequest, PairFlags, RegionKind,
    RequestHeader, Status, TransferFlags, TransferRequest, TransferResult, stride_count,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest region of one transfer.
const REGION: u32 = 128 << 10;
/// Operations on one handle before it is closed.
const OPERATIONS: u32 = 40;
/// An adapter that is off is not asked again at once.
const BEFORE_ANOTHER_ATTEMPT: Duration = Duration::from_millis(10);
/// Between two looks of the watchdog, and how many of them may see that no operation has ended: two minutes, and longer where the
/// watchdog itself is kept waiting.
const LOOK: Duration = Duration::from_millis(200);
const LOOKS: u32 = 600;
/// A look that comes so much too late says that the machine gave this process no processor.
const STARVED: Duration = Duration::from_secs(1);
/// What must succeed of each kind.
struct Bound {
    /// In a thousand.
    least: u64,
    /// A kind that was tried less often says nothing about a share.
    few: u64,
}

const STEADY: Bound = Bound { least: 1_000, few: 1 };
const CHAOS: Bound = Bound { least: 600, few: 20 };

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum StressOperation {
    Open,
    Adapters,
    Objects,
    Memcpy,
    Connect,
    Moderate,
    Read,
    Write,
    Send,
    /// A transfer or a setting whose connection another thread closed meanwhile: it must end with a status that says so.
    Interrupted,
    Close,
    /// One of the ways a connection can go, by a script.
    Script,
}

/// Attempts and successes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Count {
    tried: u64,
    succeeded: u64,
}

/// The sums over all requests of all transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Requests {
    posted: u64,
    /// With success.
    completed: u64,
    /// Silent ones that succeeded: without a result.
    silent: u64,
    failed: u64,
    bytes: u64,
    /// Bytes compared with what was sent.
    compared: u64,
}

impl Requests {
    fn add(&mut self, result: &TransferResult, compared: u64) {
        self.posted += result.posted;
        self.completed += result.completed;
        self.silent += result.silent;
        self.failed += result.failed;
        self.bytes += result.bytes;
        self.compared += compared;
    }
}

/// One half of the run.
#[derive(Clone, Debug, Default, Serialize)]
struct Half {
    seconds: f64,
    operations: BTreeMap<StressOperation, Count>,
    requests: Requests,
    /// How often each status ended something that should have gone well.
    failures: BTreeMap<String, u64>,
    /// Operations that ended in a time-out.
    late: BTreeMap<StressOperation, u64>,
    /// Seconds by which the watchdog's latest look was late.
    longest_wait: f64,
    disturbances: Disturbances,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct StressReport {
    seed: u64,
    consumers: u32,
    connections: u32,
    steady: Half,
    /// None if only the steady phase was asked for.
    chaos: Option<Half>,
}

/// What all threads of one half share.
struct Shared {
    until: Instant,
    half: Mutex<Half>,
    /// Transfers whose bytes or counts did not fit: the run has failed.
    wrong: Mutex<Vec<String>>,
    ended: AtomicU64,
    /// The provider is softndk.sys, whose objects can be listed.
    lists: bool,
}

impl Shared {
    fn new(until: Instant, lists: bool) -> Self {
        Self { until, lists, half: Mutex::default(), wrong: Mutex::default(), ended: AtomicU64::new(0) }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until || !lock(&self.wrong).is_empty()
    }

    fn count(&self, operation: StressOperation, outcome: Result<(), &Failure>) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        let mut half = lock(&self.half);
        let count = half.operations.entry(operation).or_default();
        count.tried += 1;
        match outcome {
            Ok(()) => count.succeeded += 1,
            Err(failure) => {
                *half.failures.entry(format!("{operation:?}: {}", failure.cause)).or_default() += 1;
                if failure.is(Status::IO_TIMEOUT) {
                    *half.late.entry(operation).or_default() += 1;
                }
            }
        }
    }

    fn count_done<T>(&self, operation: StressOperation, outcome: &Result<T, Failure>) {
        self.count(operation, outcome.as_ref().map(|_| ()));
    }

    /// Counts the outcome, and returns the value.
    fn counted<T>(&self, operation: StressOperation, outcome: Result<T, Failure>) -> Option<T> {
        self.count_done(operation, &outcome);
        outcome.ok()
    }

    fn wrong(&self, what: String) {
        lock(&self.wrong).push(what);
    }

    /// Nothing was wrong with any transfer.
    fn check(&self) -> Result<(), Failure> {
        let Some(wrong) = lock(&self.wrong).first().cloned() else { return Ok(()) };
        Err(Failure::new(
            Kind::Corrupt,
            "the data or the counts of a transfer do not fit",
            wrong,
            "this is a fault of the driver; please report it with the seed",
        ))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection of one handle by its number, 0 for none, and the last one that another thread closed.
#[derive(Default)]
struct Slot {
    pair: AtomicU32,
    taken_away: AtomicU32,
}

/// Runs both halves.
///
/// Whether enough has succeeded is for [`StressReport::check`] to say.
pub fn run(machine: &Machine, arguments: &StressArguments, progress: Progress) -> Result<StressReport, Failure> {
    let half = arguments.time() / if arguments.steady { 1 } else { 2 };
    let steady = run_half(machine, arguments, half, false, progress)?;
    let chaos = if arguments.steady { None } else { Some(run_half(machine, arguments, half, true, progress)?) };
    Ok(StressReport {
        seed: arguments.seed,
        consumers: arguments.consumers,
        connections: arguments.connections,
        steady,
        chaos,
    })
}

fn run_half(
    machine: &Machine,
    arguments: &StressArguments,
    time: Duration,
    chaos: bool,
    progress: Progress,
) -> Result<Half, Failure> {
    let started = Instant::now();
    let shared = &Shared::new(started + time, machine.open_provider().is_ok());
    let (over, disturber) = (AtomicBool::new(false), machine.disturber());
    let seed = arguments.seed.wrapping_add(if chaos { 1 << 32 } else { 0 });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (name, mut shown) = (if chaos { "chaos" } else { "steady" }, progress.long_run());
            let say = |ended| {
                let (passed, ended) = (started.elapsed().as_secs(), units::count(ended));
                shown.say(&format!("{name} phase: {passed} of {} s, {ended} operations", time.as_secs()));
            };
            // A thread that hangs in the driver cannot be ended otherwise.
            if let Some(ended) = hangs(shared, &over, LOOKS, say) {
                eprintln!("ndkctl: no operation has ended for {} s after {ended} that did", (LOOK * LOOKS).as_secs());
                std::process::exit(i32::from(Kind::Refused.exit_code()));
            }
        });
        let consumer = |number: u32| -> Job<'_> {
            Box::new(move || consume(shared, arguments.connections, seed.wrapping_add(u64::from(number) * 1_000)))
        };
        let mut jobs: Vec<Job<'_>> = (0..arguments.consumers).map(consumer).collect();
        if chaos {
            jobs.push(Box::new(move || {
                let done = disturber.disturb(seed, &|| shared.is_over(), &shared.ended);
                lock(&shared.half).disturbances = done;
            }));
        }
        in_parallel(jobs);
        over.store(true, Ordering::Relaxed);
    });
    shared.check()?;
    let mut half = std::mem::take(&mut *lock(&shared.half));
    half.seconds = started.elapsed().as_secs_f64();
    Ok(half)
}

/// Waits until all is over, or so many looks have seen no operation end: then says how many did before. Meanwhile `say` gets their number.
fn hangs(shared: &Shared, over: &AtomicBool, looks: u32, mut say: impl FnMut(u64)) -> Option<u64> {
    let (mut seen, mut unchanged) = (0, 0);
    while !over.load(Ordering::Relaxed) {
        let ended = shared.ended.load(Ordering::Relaxed);
        say(ended);
        unchanged = if ended == seen { unchanged + 1 } else { 0 };
        seen = ended;
        if unchanged > looks {
            return Some(ended);
        }
        let before = Instant::now();
        std::thread::sleep(LOOK);
        let late = before.elapsed().saturating_sub(LOOK).as_secs_f64();
        let mut half = lock(&shared.half);
        half.longest_wait = half.longest_wait.max(late);
    }
    None
}

/// One consumer: handle after handle, with a thread for each connection.
fn consume(shared: &Shared, connections: u32, seed: u64) {
    let mut random = Rng::with_seed(seed);
    while !shared.is_over() {
        let opened = open_device().and_then(Client::connect);
        let Some((client, _)) = shared.counted(StressOperation::Open, opened) else { continue };
        let Some(adapters) = shared.counted(StressOperation::Adapters, client.adapters()) else { continue };
        // An adapter that is down may be the last one, and the device goes with it: then nothing is listed with this handle.
        let provider = if shared.lists { open_provider().and_then(Client::connect).ok() } else { None };
        let provider = provider.as_ref().map(|(provider, _)| provider);
        let slots: Vec<Slot> = (0..connections).map(|_| Slot::default()).collect();
        let worker = |number: usize, seed: u64| -> Job<'_> {
            let (client, adapters, slots) = (&client, adapters.clone(), &slots);
            Box::new(move || {
                Worker { shared, client, provider, adapters, slots, number, random: Rng::with_seed(seed) }.work();
            })
        };
        in_parallel((0..slots.len()).map(|number| worker(number, random.u64(..))).collect());
        // The handle is closed with whatever is still connected.
    }
}

/// One connection of a handle, and all that is done with it.
struct Worker<'scope> {
    shared: &'scope Shared,
    client: &'scope Client<SystemDevice>,
    provider: Option<&'scope Client<SystemDevice>>,
    /// As they were when they were last asked for.
    adapters: Vec<AdapterEntry>,
    slots: &'scope [Slot],
    number: usize,
    random: Rng,
}

impl Worker<'_> {
    fn work(mut self) {
        let mut pair: Option<PairCreateReply> = None;
        for _ in 0..OPERATIONS {
            if self.shared.is_over() {
                break;
            }
            match (pair, self.random.u64(..20)) {
                (_, 0) => self.list_objects(),
                (_, 1) => self.memcpy(),
                (_, 2) => self.script(),
                (_, 3) if self.random.u64(..2) == 0 => self.close_another(),
                (None, _) => pair = self.connect(),
                (Some(open), 4..=5) => {
                    self.close(&open);
                    pair = None;
                }
                (Some(open), 6) => pair = self.moderate(&open).then_some(open),
                (Some(open), _) => pair = self.transfer(&open).then_some(open),
            }
        }
        // Half of the connections are left for the close of the handle.
        if let Some(open) = pair
            && self.random.u64(..2) == 0
        {
            self.close(&open);
        }
    }

    fn list_objects(&self) {
        if let Some(provider) = self.provider {
            self.shared.counted(StressOperation::Objects, provider.object_list());
        }
    }

    /// An adapter was not as it was listed: it is off, or has been started again under another index.
    fn list_adapters_again(&mut self) {
        std::thread::sleep(BEFORE_ANOTHER_ATTEMPT);
        if let Some(adapters) = self.shared.counted(StressOperation::Adapters, self.client.adapters()) {
            self.adapters = adapters;
        }
    }

    fn any_adapter(&mut self) -> Option<AdapterEntry> {
        let index = self.random.u64(..self.adapters.len().max(1) as u64) as usize;
        self.adapters.get(index).copied()
    }

    fn connect(&mut self) -> Option<PairCreateReply> {
        let (local, peer) = (self.any_adapter()?, self.any_adapter()?);
        let mut flags = PairFlags::empty();
        flags.set(PairFlags::NOTIFY, self.random.u64(..2) == 0);
        flags.set(PairFlags::SHARED_RECEIVE, self.random.u64(..3) == 0);
        let depth = [&local, &peer].map(|entry| {
            let limits = &entry.limits;
            limits.max_initiator_queue_depth.min(limits.max_receive_queue_depth).min(limits.max_srq_depth.max(1))
        });
        let depth = self.random.u32(1..=depth[0].min(depth[1]).clamp(1, 64));
        let families = [AddressFamily::UNSPECIFIED, AddressFamily::IPV4, AddressFamily::IPV6];
        let request = PairCreateRequest {
            header: RequestHeader::of::<PairCreateRequest>(),
            client_adapter: local.index,
            server_adapter: peer.index,
            family: families[self.random.u64(..3) as usize],
            port: 0,
            flags,
            initiator_queue_depth: depth,
            receive_queue_depth: depth,
            max_request_sge: 0,
            read_limit: 0,
        };
        let connected = self.shared.counted(StressOperation::Connect, self.client.create_pair(&request));
        if connected.is_none() {
            self.list_adapters_again();
        }
        let pair = connected?;
        self.slots[self.number].pair.store(pair.pair, Ordering::SeqCst);
        Some(pair)
    }

    /// Closes the own connection, unless another thread does.
    fn close(&self, pair: &PairCreateReply) {
        if self.slots[self.number].pair.swap(0, Ordering::SeqCst) != 0 {
            let closed = self.client.close_pair(pair.pair);
            self.shared.count_done(StressOperation::Close, &closed);
        }
    }

    /// Closes another thread's connection, whatever it is doing.
    fn close_another(&mut self) {
        let other = self.random.u64(..self.slots.len() as u64) as usize;
        let slot = &self.slots[other];
        if other == self.number {
            return;
        }
        let pair = slot.pair.swap(0, Ordering::SeqCst);
        if pair != 0 {
            slot.taken_away.store(pair, Ordering::SeqCst);
            let closed = self.client.close_pair(pair);
            self.shared.count_done(StressOperation::Close, &closed);
        }
    }

    /// Whether the connection is still established.
    fn moderate(&mut self, pair: &PairCreateReply) -> bool {
        let (interval, count) = (self.random.u32(0..=100), self.random.u32(0..=16));
        let outcome = self.client.moderate(pair.pair, interval, count);
        self.judge(StressOperation::Moderate, pair, outcome.err())
    }

    /// Counts the outcome of an operation on the connection; whether it is still established.
    fn judge(&self, operation: StressOperation, pair: &PairCreateReply, failure: Option<Failure>) -> bool {
        const ENDED: [Status; 4] =
            [Status::NOT_FOUND, Status::CANCELLED, Status::CONNECTION_DISCONNECTED, Status::DEVICE_REMOVED];
        let Some(failure) = failure else {
            self.shared.count(operation, Ok(()));
            return true;
        };
        if self.slots[self.number].taken_away.load(Ordering::SeqCst) == pair.pair {
            let ended = ENDED.iter().any(|status| failure.is(*status));
            self.shared.count(StressOperation::Interrupted, if ended { Ok(()) } else { Err(&failure) });
            return false;
        }
        self.shared.count(operation, Err(&failure));
        // Whatever the reason, the thread continues with a new connection.
        self.close(pair);
        false
    }

    /// Moves data through the connection; whether it is still established.
    fn transfer(&mut self, pair: &PairCreateReply) -> bool {
        let request = self.any_transfer(pair);
        let operation = match request.operation {
            Operation::READ => StressOperation::Read,
            Operation::WRITE => StressOperation::Write,
            _ => StressOperation::Send,
        };
        let seed = self.random.u64(..);
        let outcome = self.client.allocate(request.region_length).and_then(|mut buffer| {
            Rng::with_seed(seed).fill(buffer.source_mut());
            let result = self.client.try_transfer(&request, &mut buffer)?;
            let complete = is_complete(&result);
            if let Some(misfit) = misfit(&request, &result, buffer.source(), buffer.destination()) {
                self.shared.wrong(format!("{misfit}: {request:?}"));
            }
            let mut half = lock(&self.shared.half);
            half.requests.add(&result, if complete { request.region_length } else { 0 });
            drop(half);
            if complete { Ok(()) } else { Err(Failure::refused("cannot transfer", Status(result.first_failure))) }
        });
        self.judge(operation, pair, outcome.err())
    }

    /// Any transfer that the limits of the adapters allow, over the whole region once or twice.
    fn any_transfer(&mut self, pair: &PairCreateReply) -> TransferRequest {
        let operations = [Operation::READ, Operation::WRITE, Operation::SEND];
        let operation = operations[self.random.u64(..3) as usize];
        let kinds = [RegionKind::REGISTERED, RegionKind::FAST_REGISTERED, RegionKind::LOGICAL, RegionKind::WINDOW];
        // A message goes into a receive, not through a window.
        let kinds = if operation == Operation::SEND { &kinds[..3] } else { &kinds[..] };
        let region_kind = kinds[self.random.u64(..kinds.len() as u64) as usize];
        let least = |limit: fn(&AdapterEntry) -> u64| self.adapters.iter().map(limit).min().unwrap_or(1).max(1);
        let pages = least(|entry| u64::from(entry.limits.frmr_page_count)) * 4096;
        let region = pages.min(least(|entry| entry.limits.max_registration_size));
        let region = region.min(least(|entry| entry.limits.max_window_size)).min(u64::from(REGION));
        let longest = least(|entry| u64::from(entry.limits.max_transfer_length));
        let sges = least(|entry| u64::from(entry.limits.max_read_request_sge));
        let region_length = self.random.u32(1..=u32::try_from(region).unwrap_or(REGION).max(1));
        let depth = pair.initiator_queue_depth.min(pair.receive_queue_depth).clamp(1, 32);
        let depth = self.random.u32(1..=depth);
        let shortest = region_length.div_ceil(64);
        let longest = region_length.min(u32::try_from(longest).unwrap_or(u32::MAX));
        let mut flags = TransferFlags::empty();
        flags.set(TransferFlags::READ_FENCE, self.random.u64(..4) == 0);
        // Silent within chains, or all but every Nth, or none.
        let (quiet, interval) = (self.random.u64(..3), self.random.u32(2..=2 * depth));
        flags.set(TransferFlags::SILENT_SUCCESS, quiet == 0);
        flags.set(TransferFlags::SOLICITED, operation == Operation::SEND && self.random.u64(..3) == 0);
        let mut request = TransferRequest {
            header: RequestHeader::of::<TransferRequest>(),
            pair: pair.pair,
            operation,
            region_kind,
            flags,
            region_length: u64::from(region_length),
            request_count: 0,
            request_length: self.random.u32(shortest.min(longest)..=longest),
            sge_count: self.random.u32(1..=pair.max_request_sge.min(sges as u32).clamp(1, 4)),
            depth,
            chain_length: self.random.u32(1..=depth),
            time_budget: 0,
            signal_interval: if quiet == 1 { interval } else { 0 },
        };
        request.request_count = strides(&request) * u64::from(self.random.u32(1..=2));
        request
    }

    fn memcpy(&mut self) {
        let length = self.random.u32(1..=REGION);
        let request = MemcpyRequest {
            header: RequestHeader::of::<MemcpyRequest>(),
            region_length: u64::from(length),
            request_count: 4,
            request_length: length,
            flags: TransferFlags::empty(),
            time_budget: 0,
            reserved: 0,
        };
        let outcome =
            self.client.allocate(u64::from(length)).and_then(|mut buffer| self.client.memcpy(&request, &mut buffer));
        self.shared.count_done(StressOperation::Memcpy, &outcome);
    }

    /// Some way a connection can go, by a script of its own objects.
    fn script(&mut self) {
        let cases = Case::value_variants();
        let case = cases[self.random.u64(..cases.len() as u64) as usize];
        let (Some(local), Some(peer)) = (self.any_adapter(), self.any_adapter()) else { return };
        // The scripts ask for two reads at once.
        let two =
            |entry: &AdapterEntry| entry.limits.max_inbound_read_limit.min(entry.limits.max_outbound_read_limit) >= 2;
        if !two(&local) || !two(&peer) {
            return;
        }
        let lengths = (local.limits.max_caller_data, peer.limits.max_callee_data);
        let outcome = run_case(self.client, case, (local.index, peer.index), lengths);
        self.shared.count_done(StressOperation::Script, &outcome);
        if outcome.is_err() {
            self.list_adapters_again();
        }
    }
}

/// Everything went through.
fn is_complete(result: &TransferResult) -> bool {
    result.failed == 0 && result.first_failure == Status::SUCCESS.0
}

/// What is wrong in the counts of a transfer, or in the bytes that arrived.
fn misfit(request: &TransferRequest, result: &TransferResult, sent: &[u8], arrived: &[u8]) -> Option<String> {
    let TransferResult { posted, completed, silent, failed, bytes, .. } = *result;
    if posted != completed + silent + failed {
        return Some(format!("{posted} posted, {completed} completed, {silent} silent, {failed} failed"));
    }
    if !is_complete(result) {
        return None;
    }
    let expected = request.region_length * (request.request_count / strides(request));
    if posted != request.request_count || bytes != expected {
        return Some(format!("{posted} requests, {bytes} bytes"));
    }
    let differ = || sent.iter().zip(arrived).enumerate().filter(|(_, (sent, arrived))| sent != arrived);
    let (first, _) = differ().next()?;
    Some(format!("other bytes arrived than were sent: {} from byte {first} on", differ().count()))
}

/// How many requests cover the region once.
const fn strides(request: &TransferRequest) -> u64 {
    stride_count(request.region_length, request.request_length)
}

impl Count {
    /// Successes in a thousand.
    fn rate(self) -> u64 {
        self.succeeded * 1_000 / self.tried.max(1)
    }

    /// Without operations that were kept from ending in time.
    fn without(self, late: u64) -> Self {
        Self { tried: self.tried.saturating_sub(late), ..self }
    }
}

impl Half {
    /// Whether enough of each kind succeeded, and whether the phase has shown anything.
    fn check(&self, name: &str, bound: &Bound) -> Result<(), Failure> {
        if self.requests.completed + self.requests.silent == 0 {
            return Err(too_short(name, "no request was completed"));
        }
        // A time-out says something about the driver only where the machine kept nothing waiting.
        let starved = self.longest_wait >= STARVED.as_secs_f64();
        let judged = |(operation, count): (&StressOperation, &Count)| {
            let late = if starved { self.late.get(operation).copied().unwrap_or(0) } else { 0 };
            (*operation, count.without(late))
        };
        let mut judged = self.operations.iter().map(judged);
        match judged.find(|(_, count)| count.tried >= bound.few && count.rate() < bound.least) {
            Some((operation, count)) => Err(self.too_little(name, operation, count, bound.least)),
            None => Ok(()),
        }
    }

    /// Its sums, and how long the machine kept the run waiting.
    fn line(&self, name: &str) -> String {
        let Requests { posted, completed, silent, failed, bytes, compared } = self.requests;
        let late: u64 = self.late.values().sum();
        format!(
            "{name}: {} requests posted = {} completed + {} silent + {} failed; {} bytes, {} of them compared; {:.0} s; \
             {late} time-outs, without a processor for {:.1} s at most",
            units::count(posted),
            units::count(completed),
            units::count(silent),
            units::count(failed),
            units::count(bytes),
            units::count(compared),
            self.seconds,
            self.longest_wait
        )
    }

    fn too_little(&self, name: &str, operation: StressOperation, count: Count, least: u64) -> Failure {
        let causes = self.failures.iter().map(|(cause, times)| format!("{times} times {cause}"));
        let Count { tried, succeeded } = count;
        Failure::new(
            Kind::Refused,
            format!("too little succeeds in the {name} phase"),
            format!(
                "{succeeded} of {tried} of the kind {operation:?}, of a thousand {least} must; {}",
                causes.collect::<Vec<_>>().join("; ")
            ),
            "run it again with the same seed, and report it",
        )
    }
}

fn too_short(name: &str, cause: &str) -> Failure {
    let next_step = "choose more --seconds";
    Failure::new(Kind::Refused, format!("the {name} phase has shown nothing"), cause, next_step)
}

impl StressReport {
    /// Enough has succeeded, of every kind and in both halves.
    pub fn check(&self) -> Result<(), Failure> {
        self.steady.check("steady", &STEADY)?;
        let Some(chaos) = &self.chaos else { return Ok(()) };
        chaos.check("chaos", &CHAOS)?;
        // On Windows nothing is disturbed from here.
        if cfg!(not(windows)) && !chaos.disturbances.any() {
            return Err(too_short("chaos", "nothing was disturbed"));
        }
        Ok(())
    }
}

impl fmt::Display for StressReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{} consumers, {} connections each, seed {}", self.consumers, self.connections, self.seed)?;
        let halves = std::iter::once(("steady", &self.steady)).chain(self.chaos.iter().map(|chaos| ("chaos", chaos)));
        let halves = halves.collect::<Vec<_>>();
        let title = |(name, _): &(&str, &Half)| format!(" {name:>10} {:>9}", "good");
        writeln!(formatter, "{:<12}{}", "", halves.iter().map(title).collect::<String>())?;
        for operation in halves.iter().flat_map(|(_, half)| half.operations.keys()).collect::<BTreeSet<_>>() {
            let name = serde_json::to_value(operation).ok().and_then(|name| name.as_str().map(str::to_owned));
            let cell = |(_, half): &(&str, &Half)| {
                let count = half.operations.get(operation).copied().unwrap_or_default();
                let rate = count.succeeded as f64 * 100.0 / count.tried.max(1) as f64;
                format!(" {:>10} {rate:>7.2} %", units::count(count.tried))
            };
            let cells = halves.iter().map(cell).collect::<String>();
            writeln!(formatter, "{:<12}{cells}", name.unwrap_or_default())?;
        }
        let lines = halves.iter().map(|(name, half)| half.line(name));
        write!(formatter, "{}", lines.collect::<Vec<_>>().join("\n"))?;
        let Some(chaos) = &self.chaos else { return Ok(()) };
        let Disturbances { ndk_off, halts, profiles, pauses, failed_allocations } = chaos.disturbances;
        write!(
            formatter,
            "\nNDK switched off {ndk_off} times, {halts} halts, {profiles} changes of profiles, {pauses} pauses and changes of \
             power, {failed_allocations} allocations failed"
        )
    }
}

/// The conditions that fail a run, one by one.
#[cfg(test)]
mod tests {
    use super::{Count, Half, Requests, Shared, StressOperation, StressReport, hangs, misfit};
    use crate::failure::{Failure, Kind};
    use crate::transport::Disturbances;
    use softndk_ioctl::{Operation, RegionKind, RequestHeader, Status, TransferFlags, TransferRequest, TransferResult};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    /// Four requests of 100 bytes over a region of 200, twice.
    const REQUEST: TransferRequest = TransferRequest {
        header: RequestHeader::of::<TransferRequest>(),
        pair: 1,
        operation: Operation::WRITE,
        region_kind: RegionKind::REGISTERED,
        flags: TransferFlags::SILENT_SUCCESS,
        region_length: 200,
        request_count: 4,
        request_length: 100,
        sge_count: 1,
        depth: 4,
        chain_length: 2,
        time_budget: 0,
        signal_interval: 0,
    };
    const WELL: TransferResult =
        TransferResult { posted: 4, completed: 2, silent: 2, bytes: 400, ..TransferResult::EMPTY };

    fn said(result: &TransferResult, arrived: &[u8]) -> String {
        misfit(&REQUEST, result, &[7; 200], arrived).unwrap_or_default()
    }

    #[test]
    fn a_byte_that_arrives_wrong_is_a_misfit() {
        let mut arrived = [7; 200];
        assert_eq!(said(&WELL, &arrived), "");
        arrived[199] = 8;
        assert_eq!(said(&WELL, &arrived), "other bytes arrived than were sent: 1 from byte 199 on");
    }

    #[test]
    fn a_request_that_is_not_completed_is_a_misfit() {
        let lost = TransferResult { completed: 1, ..WELL };
        assert_eq!(said(&lost, &[7; 200]), "4 posted, 1 completed, 2 silent, 0 failed");
        let loud = TransferResult { completed: 3, ..WELL };
        assert_eq!(said(&loud, &[7; 200]), "4 posted, 3 completed, 2 silent, 0 failed");
        let twice = TransferResult { failed: 1, first_failure: Status::CANCELLED.0, ..WELL };
        assert_eq!(said(&twice, &[7; 200]), "4 posted, 2 completed, 2 silent, 1 failed");
        let flushed = TransferResult { completed: 1, failed: 1, first_failure: Status::CANCELLED.0, ..WELL };
        assert_eq!(said(&flushed, &[0; 200]), "", "the bytes of a failed transfer need not arrive");
    }

    #[test]
    fn success_with_too_few_requests_or_bytes_is_a_misfit() {
        let early = TransferResult { posted: 3, silent: 1, bytes: 300, ..WELL };
        assert_eq!(said(&early, &[7; 200]), "3 requests, 300 bytes");
        let short = TransferResult { bytes: 399, ..WELL };
        assert_eq!(said(&short, &[7; 200]), "4 requests, 399 bytes");
    }

    #[test]
    fn a_misfit_ends_the_run_as_corrupt() {
        let shared = Shared::new(Instant::now() + Duration::from_hours(1), true);
        assert!(!shared.is_over() && shared.check().is_ok());
        shared.wrong("something".to_owned());
        assert!(shared.is_over());
        assert_eq!(shared.check().unwrap_err().kind, Kind::Corrupt);
    }

    #[test]
    fn the_watchdog_fires_when_nothing_ends() {
        let shared = Shared::new(Instant::now(), true);
        let over = AtomicBool::new(false);
        shared.count(StressOperation::Open, Ok(()));
        assert_eq!(hangs(&shared, &over, 2, |_| ()), Some(1));
        over.store(true, Ordering::Relaxed);
        assert_eq!(hangs(&shared, &over, 0, |_| ()), None);
    }

    // Rule: NUMBERS-1
    /// No two numbers are alike.
    #[test]
    fn every_number_of_a_report_is_that_of_its_name() {
        let mut requests = Requests::default();
        let result =
            TransferResult { posted: 100, completed: 60, silent: 33, failed: 7, bytes: 5_000, ..TransferResult::EMPTY };
        requests.add(&result, 4_000);
        requests.add(&TransferResult { posted: 1, completed: 1, ..TransferResult::EMPTY }, 0);
        let all = Requests { posted: 101, completed: 61, silent: 33, failed: 7, bytes: 5_000, compared: 4_000 };
        assert_eq!(requests, all);
        let half = |tried, succeeded, seconds| Half {
            operations: [(StressOperation::Read, Count { tried, succeeded })].into(),
            requests,
            seconds,
            ..Half::default()
        };
        let disturbances = Disturbances { ndk_off: 2, halts: 3, profiles: 5, pauses: 7, failed_allocations: 11 };
        let chaos = Some(Half {
            disturbances,
            late: [(StressOperation::Read, 6)].into(),
            longest_wait: 1.5,
            ..half(400, 300, 12.0)
        });
        let text =
            StressReport { seed: 9, consumers: 4, connections: 6, steady: half(1_250, 1_000, 8.0), chaos }.to_string();
        for wanted in [
            "4 consumers, 6 connections each, seed 9",
            "read              1 250   80.00 %        400   75.00 %",
            "steady: 101 requests posted = 61 completed + 33 silent + 7 failed; 5 000 bytes, 4 000 of them compared; 8 s",
            "compared; 12 s; 6 time-outs, without a processor for 1.5 s at most",
            "NDK switched off 2 times, 3 halts, 5 changes of profiles, 7 pauses and changes of power, 11 allocations failed",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
    }

    /// A phase in which this many of its Reads succeeded.
    fn phase(tried: u64, succeeded: u64) -> Half {
        let operations = [(StressOperation::Read, Count { tried, succeeded })].into();
        Half { operations, requests: Requests { completed: 1, ..Requests::default() }, ..Half::default() }
    }

    fn verdict(steady: Half, chaos: Option<Half>) -> Result<(), Kind> {
        let report = StressReport { seed: 1, consumers: 1, connections: 1, steady, chaos };
        report.check().map_err(|failure| failure.kind)
    }

    fn disturbed(half: Half) -> Half {
        Half { disturbances: Disturbances { halts: 1, ..Disturbances::default() }, ..half }
    }

    #[test]
    fn every_operation_of_the_steady_phase_has_to_succeed() {
        assert_eq!(verdict(phase(1, 1), None), Ok(()));
        for (tried, succeeded) in [(1, 0), (19, 18), (100_000, 99_999)] {
            assert_eq!(verdict(phase(tried, succeeded), None), Err(Kind::Refused), "{succeeded} of {tried}");
        }
    }

    #[test]
    fn most_operations_of_the_chaos_phase_have_to_succeed() {
        let verdict = |tried, succeeded| verdict(phase(1, 1), Some(disturbed(phase(tried, succeeded))));
        assert_eq!((verdict(1_000, 600), verdict(1_000, 599)), (Ok(()), Err(Kind::Refused)));
        assert_eq!((verdict(19, 0), verdict(20, 0)), (Ok(()), Err(Kind::Refused)), "few say nothing");
    }

    #[test]
    fn phase_that_has_shown_nothing_fails_the_run() {
        assert_eq!(verdict(Half::default(), None), Err(Kind::Refused), "nothing was completed");
        assert_eq!(verdict(phase(1, 1), Some(disturbed(Half::default()))), Err(Kind::Refused), "nothing was completed");
        assert_eq!(verdict(phase(1, 1), Some(phase(1, 1))), Err(Kind::Refused), "nothing was disturbed");
        assert_eq!(verdict(phase(1, 1), Some(disturbed(phase(1, 1)))), Ok(()));
    }

    #[test]
    fn time_outs_count_unless_the_machine_kept_the_run_waiting() {
        let late = |longest_wait| Half { late: [(StressOperation::Read, 2)].into(), longest_wait, ..phase(10, 8) };
        assert_eq!(verdict(late(0.9), None), Err(Kind::Refused));
        assert_eq!(verdict(late(1.0), None), Ok(()));
        let another = Half { late: [(StressOperation::Connect, 2)].into(), ..late(9.0) };
        assert_eq!(verdict(another, None), Err(Kind::Refused), "the failures are not the time-outs");
    }

    #[test]
    fn time_outs_are_counted_by_kind() {
        let shared = Shared::new(Instant::now(), true);
        for status in [Status::IO_TIMEOUT, Status::NOT_FOUND] {
            shared.count(StressOperation::Connect, Err(&Failure::refused("cannot", status)));
        }
        let half = shared.half.lock().unwrap();
        assert_eq!(half.late, [(StressOperation::Connect, 1)].into());
        assert_eq!(half.operations[&StressOperation::Connect], Count { tried: 2, succeeded: 0 });
    }
}
