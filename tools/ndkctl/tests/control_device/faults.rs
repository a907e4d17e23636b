//! Every allocation and every mapping of a program's scenarios on the device made to fail once, in each profile of completion mode: the
//! request that needed it fails with its status, those after it are answered as documented, and nothing is left behind.
//!
//! The sites are found by running a scenario once while the host records them; then each is failed at each of its hits, and
//! what a failing path reaches for the first time is added, until nothing new appears. Worker threads live as long as the
//! driver, so each run has a freshly loaded one; loading and unloading run without faults.

use super::handles::File;
use super::machine::{CompletionMode, Machine, ORDINARY, Wish, open, region, result_of, send, send_direct};
use super::pairs::{close_request, create_request, objects};
use super::replay::{TRANSFERS, replay};
use super::transfers::{KINDS, arrived, memcpy_request, prepare, transfer_request};
use super::{Case, cases};
use kernel_host::fault::{self, Site};
use kernel_host::image::stack_trace;
use kernel_host::io::{GENERIC_READ, GENERIC_WRITE};
use ndkctl::script::{encode, parse};
use softndk_ioctl::{
    ObjectListRequest, ObjectPosition, ObjectSummaryReply, Operation, PairCloseRequest, PairCreateReply,
    PairCreateRequest, PairFlags, PairModerationRequest, RegionKind, Request, RequestHeader, ScriptReply, Status,
    TransferRequest,
};
use std::collections::BTreeSet;
use zerocopy::{FromBytes, IntoBytes};

pub const CASES: &[Case] = cases![
    every_allocation_of_a_scenario_on_the_device_fails_once,
    every_allocation_of_a_scenario_in_which_all_pends_fails_once,
    every_allocation_of_a_scenario_in_which_nothing_pends_fails_once,
    every_allocation_of_a_scenario_in_which_all_crosses_streams_fails_once,
];

/// Long enough for several pages in each region.
const LENGTH: u64 = 20_000;

/// Longer than what the driver maps while it is asked: here the completion modes differ.
const LARGE: u64 = (4 << 20) + 1;

/// Which step did not succeed, and what it answered.
type Failure = (&'static str, Status);

/// The steps of a scenario that did not succeed.
struct Steps(Vec<Failure>);

impl Steps {
    /// Whether a step succeeded.
    fn record(&mut self, step: &'static str, status: Status) -> bool {
        if status != Status::SUCCESS {
            self.0.push((step, status));
        }
        status == Status::SUCCESS
    }
}

/// What a program does between opening the device and closing it. A request that fails does not keep those after it from being
/// tried, as far as they need no more than there is.
type Scenario = fn(&File, &PairCreateRequest, &mut Steps);

/// A site that an earlier scenario reached as well is not failed again.
const SCENARIOS: [Scenario; 2] = [everything, much_memory];

/// Makes a pair, moderates it, moves memory of each kind, lists the objects, copies, closes the pair, replays a script.
fn everything(file: &File, create: &PairCreateRequest, steps: &mut Steps) {
    let pair = create_pair(file, create, steps);
    if let Some(pair) = pair {
        let header = RequestHeader::of::<PairModerationRequest>();
        let request = PairModerationRequest { header, pair, interval: 20, count: 4, reserved: 0 };
        steps.record("moderation", send(file, PairModerationRequest::CODE, request.as_bytes(), 0).0);
        for region_kind in KINDS.into_iter().chain([RegionKind::WINDOW]) {
            let request = TransferRequest { region_kind, ..transfer_request(pair, LENGTH) };
            steps.record("transfer", moved(file, &request, LENGTH));
        }
        for operation in [Operation::WRITE, Operation::SEND] {
            let request = TransferRequest { operation, ..transfer_request(pair, LENGTH) };
            steps.record("transfer", moved(file, &request, LENGTH));
        }
    }
    let header = RequestHeader::of::<ObjectListRequest>();
    let list = ObjectListRequest { header, position: ObjectPosition::default() };
    steps.record("object list", send(file, ObjectListRequest::CODE, list.as_bytes(), 4096).0);
    steps.record("memcpy", moved(file, &memcpy_request(LENGTH), LENGTH));
    if let Some(pair) = pair {
        close_pair(file, pair, steps);
    }
    steps.record("replay", replayed(file));
}

/// Moves more memory than is mapped while the driver is asked, over a pair of its own.
fn much_memory(file: &File, create: &PairCreateRequest, steps: &mut Steps) {
    if let Some(pair) = create_pair(file, create, steps) {
        steps.record("transfer", moved(file, &transfer_request(pair, LARGE), LARGE));
        close_pair(file, pair, steps);
    }
}

fn create_pair(file: &File, create: &PairCreateRequest, steps: &mut Steps) -> Option<u32> {
    let (status, output) = send(file, PairCreateRequest::CODE, create.as_bytes(), size_of::<PairCreateReply>());
    steps.record("pair create", status).then(|| PairCreateReply::read_from_bytes(&output).expect("a reply").pair)
}

fn close_pair(file: &File, pair: u32, steps: &mut Steps) {
    steps.record("pair close", send(file, PairCloseRequest::CODE, close_request(pair).as_bytes(), 0).0);
}

/// Opens the device, runs the scenario, closes the device; the steps that failed.
fn live(scenario: Scenario, create: &PairCreateRequest) -> Vec<Failure> {
    let file = match open("", GENERIC_READ | GENERIC_WRITE) {
        Ok(file) => file,
        Err(status) => return vec![("open", Status(status))],
    };
    let mut steps = Steps(Vec::new());
    scenario(&file, create, &mut steps);
    file.close();
    steps.0
}

/// Steps of the script that are replayed: to a connection and a read over it.
const STEPS: usize = 29;

/// Replays a script. What it answers is the request's status, or, when a step gave something else than it says, INSUFFICIENT_RESOURCES
/// if that is what a step answers that ran short: itself, or a connect whose peer did. CANCELLED or CONNECTION_DISCONNECTED if the connection broke.
fn replayed(file: &File) -> Status {
    let lines = parse(TRANSFERS).expect("a script");
    match replay(file, &encode(&lines[..STEPS])) {
        Ok((reply, _)) if reply.differs == 0 => Status::SUCCESS,
        Ok((reply, seen)) => {
            assert_eq!(reply.differs, ScriptReply::DIFFERS, "{}: {reply:?}", lines[reply.steps as usize - 1]);
            let line = lines[reply.steps as usize - 1].to_string();
            if line.starts_with("poll") && seen[16..20] == Status::CANCELLED.0.to_le_bytes() {
                return Status::CANCELLED;
            }
            if line.starts_with("events") && reply.seen >= 3 {
                return Status::CONNECTION_DISCONNECTED;
            }
            // An arrival, a connect or an accept is missed when what makes them ran short.
            let missed = line.starts_with("arrive K1") && Status(reply.status) == Status::NOT_FOUND
                || line.starts_with("events") && reply.seen < 3;
            assert!(missed || Status(reply.status) == Status::INSUFFICIENT_RESOURCES, "{line}: {reply:?} {seen:x?}");
            Status::INSUFFICIENT_RESOURCES
        }
        Err(status) => status,
    }
}

/// Runs a transfer or a copy. What it answers is the request's status, or what the result page calls the first failure.
fn moved<R: Request>(file: &File, request: &R, length: u64) -> Status {
    let mut buffer = region(length);
    prepare(&mut buffer, length);
    let status = send_direct(file, request, &mut buffer);
    if status != Status::SUCCESS {
        return status;
    }
    let result = result_of(&buffer);
    let status = Status(result.first_failure);
    assert_eq!(status == Status::SUCCESS, result.failed == 0, "the result page agrees with itself: {result:?}");
    assert!(status != Status::SUCCESS || arrived(&buffer, length), "success without the bytes: {result:?}");
    status
}

/// Whether a scenario may end like this after one shortage: one step ran short. A connect whose peer runs short is refused or
/// aborted; a transfer that failed under way ends its pair's connection, which the transfers after it say. Across a stream a shortage at
/// its socket breaks the connection.
fn is_documented(failures: &[Failure], streams: bool) -> bool {
    let Some(((step, status), later)) = failures.split_first() else { return true };
    let first = match *status {
        Status::INSUFFICIENT_RESOURCES => true,
        Status::CONNECTION_REFUSED | Status::CONNECTION_ABORTED => *step == "pair create",
        Status::CONNECTION_DISCONNECTED if *step == "pair create" => streams,
        Status::CANCELLED | Status::CONNECTION_DISCONNECTED => {
            streams && ["moderation", "transfer", "replay"].contains(step)
        }
        _ => false,
    };
    let ended = ("transfer", Status::CONNECTION_DISCONNECTED);
    first && later.iter().all(|failure| (*step == "transfer" || streams) && *failure == ended)
}

/// A scenario on a fresh driver, during which `plan` says what fails, and one after it without a fault, which must succeed on
/// what the first left. Returns how the first ended, and the summary at the end, when what an answer leaves to be freed is.
fn two_scenarios(machine: &Machine, scenario: Scenario, plan: impl FnOnce()) -> (Vec<Failure>, ObjectSummaryReply) {
    let create = PairCreateRequest { flags: PairFlags::SHARED_RECEIVE, ..create_request(machine) };
    let watcher = machine.open();
    let before = objects(&watcher);
    plan();
    let failures = live(scenario, &create);
    fault::stop();
    assert_nothing_live(&objects(&watcher), &before, &failures);
    assert_eq!(live(scenario, &create), [], "the scenario after one that ended in {failures:x?}");
    machine.wait_until_idle();
    let after = objects(&watcher);
    assert_nothing_live(&after, &before, &failures);
    watcher.close();
    (failures, after)
}

/// Every count is what it was. Pool is left out: tables grow with first use, and stay.
fn assert_nothing_live(after: &ObjectSummaryReply, before: &ObjectSummaryReply, failures: &[Failure]) {
    assert_eq!((after.pairs, after.queue_pairs, after.memory_regions, after.logical_mappings), (0, 0, 0, 0));
    assert_eq!((after.ndk_adapters, after.shared_receive_queues, after.connectors), (0, 0, 0));
    let live = |reply: &ObjectSummaryReply| ObjectSummaryReply { pool_bytes: 0, pool_blocks: 0, ..*reply };
    assert_eq!(live(after), live(before), "objects are left after {failures:x?}");
}

/// No block of pool is left. A table has less in it after a scenario that ended early, because every slot is used before one
/// comes again.
fn assert_nothing_left(after: &ObjectSummaryReply, usual: &ObjectSummaryReply, stack: &str) {
    assert!(after.pool_bytes <= usual.pool_bytes, "{after:?} instead of {usual:?} after failing {stack}");
    let blocks = |reply: &ObjectSummaryReply| ObjectSummaryReply { pool_bytes: 0, ..*reply };
    assert_eq!(blocks(after), blocks(usual), "pool is left after failing {stack}");
}

/// A call that is to fail: its site, which hit of it, and the stack for the report.
struct Target {
    site: Site,
    hit: u64,
    stack: String,
}

/// The calls at sites that are not known yet. Their stacks are named while the image that they lie in is loaded.
fn new_targets(known: &mut BTreeSet<Site>) -> Vec<Target> {
    let new = fault::sites().into_iter().filter(|record| known.insert(record.site));
    let targets = new.flat_map(|record| {
        let frames = stack_trace::name(&record.stack);
        let stack = frames.iter().fold(record.export.to_owned(), |text, frame| text + "\n    " + &frame.to_string());
        (1..=record.hits).map(move |hit| Target { site: record.site, hit, stack: stack.clone() })
    });
    targets.collect()
}

// Rule: IOCTL-11
fn every_allocation_of_a_scenario_on_the_device_fails_once() {
    fail_all(Wish { completion_mode: CompletionMode::Auto, ..ORDINARY });
}

// Rule: IOCTL-11
fn every_allocation_of_a_scenario_in_which_all_pends_fails_once() {
    fail_all(Wish { completion_mode: CompletionMode::Pending, ..ORDINARY });
}

// Rule: IOCTL-11
fn every_allocation_of_a_scenario_in_which_nothing_pends_fails_once() {
    fail_all(Wish { completion_mode: CompletionMode::Inline, ..ORDINARY });
}

// Rule: IOCTL-11
fn every_allocation_of_a_scenario_in_which_all_crosses_streams_fails_once() {
    fail_all(Wish { streams: true, ..ORDINARY });
}

fn fail_all(wish: Wish) {
    let adapters = [wish; 2];
    let mut machine = Machine::with_one_processor(&adapters);
    let mut known = BTreeSet::new();
    for scenario in SCENARIOS {
        machine = fail_scenario(machine, &adapters, scenario, &mut known);
    }
    machine.finish();
}

/// One scenario with a call failing at every site that is not known yet.
fn fail_scenario(machine: Machine, adapters: &[Wish], scenario: Scenario, known: &mut BTreeSet<Site>) -> Machine {
    let mut machine = machine.restart(adapters);
    let before = known.len();
    let (failures, usual) = two_scenarios(&machine, scenario, fault::start_recording);
    assert_eq!(failures, [], "the scenario without a fault");
    let mut targets = new_targets(known);
    let (mut fired, mut refused) = (0, 0);
    while let Some(Target { site, hit, stack }) = targets.pop() {
        // A bugcheck names its own stack; this line names the fault that led there.
        eprintln!("failing hit {hit} of {stack}");
        machine = machine.restart(adapters);
        let before = fault::failures();
        let (failures, after) = two_scenarios(&machine, scenario, || fault::fail(site, hit));
        let injected = fault::failures() - before;
        eprintln!("ended in {failures:x?}");
        assert!(
            is_documented(&failures, adapters[0].streams),
            "the scenario ended in {failures:x?} after failing hit {hit} of {stack}"
        );
        assert!(injected > 0 || failures.is_empty(), "{failures:x?} without a fault at {stack}");
        assert_nothing_left(&after, &usual, &stack);
        fired += injected;
        refused += u64::from(!failures.is_empty());
        targets.extend(new_targets(known));
    }
    let sites = known.len() - before;
    println!("{sites} sites, {fired} faults, {refused} scenarios with a refused request");
    assert!(fired > 0 && refused > 0, "of {sites} sites {fired} failed and {refused} showed");
    machine = machine.restart(adapters);
    assert_eq!(two_scenarios(&machine, scenario, || ()), (Vec::new(), usual), "the scenario after all faults");
    machine
}
