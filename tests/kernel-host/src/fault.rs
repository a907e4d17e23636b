//! Making allocations and mappings fail on purpose, by call site. A site is the stack of image return addresses of the
//! call, so the same loop of the same caller is one site however often it runs, and the same routine called from two
//! places is two; what a DPC interrupted is no part of it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::image::{self, stack_trace};

/// A call site's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site(pub u64);

/// What is known about a site.
#[derive(Clone, Debug)]
pub struct SiteRecord {
    pub site: Site,
    /// The export that was called.
    pub export: &'static str,
    pub hits: u64,
    /// Return addresses of its first hit.
    pub stack: Vec<u64>,
}

#[derive(Default)]
struct Plan {
    sites: BTreeMap<Site, SiteRecord>,
    /// Fail this hit (1 is the first) of this site.
    fail: Option<(Site, u64)>,
    /// Only calls that this image makes itself count, and a site is the part of the stack that lies in it.
    caller: Option<String>,
    /// Fail each call of this export.
    export: Option<&'static str>,
    /// Fail one call in so many, at random.
    one_in: u64,
    random: u64,
}

static RECORDING: AtomicBool = AtomicBool::new(false);
/// Calls of NDK functions are among the sites.
static NDK_CALLS: AtomicBool = AtomicBool::new(false);
static FAILURES: AtomicU64 = AtomicU64::new(0);
static PLAN: Mutex<Option<Plan>> = Mutex::new(None);

fn with_plan<T>(body: impl FnOnce(&mut Plan) -> T) -> T {
    let mut plan = PLAN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    body(plan.get_or_insert_with(Plan::default))
}

/// Begins to record sites, with all counts at zero and nothing failing.
pub fn start_recording() {
    with_plan(|plan| *plan = Plan::default());
    RECORDING.store(true, Ordering::Relaxed);
}

/// As [`start_recording`], for the calls of one image alone, by its file name, with its calls of NDK functions among them: a
/// consumer is to be tested, and not what lies behind the functions that it calls.
pub fn start_recording_calls_of(image: &str) {
    with_plan(|plan| *plan = Plan { caller: Some(image.to_owned()), ..Plan::default() });
    NDK_CALLS.store(true, Ordering::Relaxed);
    RECORDING.store(true, Ordering::Relaxed);
}

/// Ends recording and failing.
pub fn stop() {
    RECORDING.store(false, Ordering::Relaxed);
    with_plan(|plan| (plan.fail, plan.export, plan.one_in) = (None, None, 0));
}

/// The sites seen since recording began.
pub fn sites() -> Vec<SiteRecord> {
    with_plan(|plan| plan.sites.values().cloned().collect())
}

/// How often an export was called since recording began.
pub fn calls_of(export: &str) -> u64 {
    with_plan(|plan| plan.sites.values().filter(|record| record.export == export).map(|record| record.hits).sum())
}

/// Makes the `hit`-th call (1 is the first) from now on at this site fail; counts start again at zero.
pub fn fail(site: Site, hit: u64) {
    with_plan(|plan| {
        for record in plan.sites.values_mut() {
            record.hits = 0;
        }
        plan.fail = Some((site, hit));
    });
    RECORDING.store(true, Ordering::Relaxed);
}

/// Makes each call of an export fail, with all counts at zero.
pub fn fail_calls_of(export: &'static str) {
    with_plan(|plan| *plan = Plan { export: Some(export), ..Plan::default() });
    RECORDING.store(true, Ordering::Relaxed);
}

/// Makes one call in `one_in` fail, by a seeded random choice.
pub fn fail_randomly(one_in: u64, seed: u64) {
    with_plan(|plan| {
        plan.one_in = one_in;
        plan.random = seed | 1;
    });
    RECORDING.store(true, Ordering::Relaxed);
}

/// How many calls were made to fail so far.
pub fn failures() -> u64 {
    FAILURES.load(Ordering::Relaxed)
}

/// Called by every export that allocates, maps or queues; `export` is its name.
#[inline]
pub fn should_fail(export: &'static str) -> bool {
    RECORDING.load(Ordering::Relaxed) && decide(export)
}

/// Called for each NDK function that may lack memory.
#[inline]
pub(crate) fn should_fail_ndk(function: &'static str) -> bool {
    NDK_CALLS.load(Ordering::Relaxed) && should_fail(function)
}

/// The addresses that lie in an image, if the first one does.
fn part_in(image: &str, stack: Vec<u64>) -> Option<Vec<u64>> {
    let is_in = |address: &u64| image::containing(*address as usize).is_some_and(|found| found.name == image);
    stack.first().is_some_and(is_in).then(|| stack.into_iter().filter(is_in).collect())
}

#[cold]
fn decide(export: &'static str) -> bool {
    let stack = stack_trace::addresses_of_work();
    let fails = with_plan(|plan| {
        let stack = match &plan.caller {
            None => stack,
            Some(image) => match part_in(image, stack) {
                Some(part) => part,
                None => return false,
            },
        };
        let site = Site(stack_trace::site_of(export, &stack));
        let record = plan.sites.entry(site).or_insert(SiteRecord { site, export, hits: 0, stack });
        record.hits += 1;
        let planned = plan.fail == Some((site, record.hits));
        let random = plan.one_in != 0 && {
            plan.random ^= plan.random << 13;
            plan.random ^= plan.random >> 7;
            plan.random ^= plan.random << 17;
            plan.random.is_multiple_of(plan.one_in)
        };
        planned || random || plan.export == Some(export)
    });
    if fails {
        FAILURES.fetch_add(1, Ordering::Relaxed);
    }
    fails
}
