//! Checks whether the thread with the run token still comes to points. One that spins in image code, or blocks in a place
//! unknown to the host, would keep all others waiting for ever: the run token is taken from it, and the run no longer replays.
//!
//! A busy machine is no reason: what counts is processor time that the thread used, or that it slept at each check.

use std::fs;
use std::time::Duration;

use super::table::lock;

/// The time between checks.
const EVERY: Duration = Duration::from_millis(20);
/// Processor time without a point, in the operating system's ticks of 10 ms.
const SPINS_AFTER: u64 = 100;
/// Consecutive checks that find a thread asleep.
const SLEEPS_AFTER: u32 = 5;

pub(super) fn start() {
    let started = std::thread::Builder::new().name("watch".to_owned()).spawn(watch);
    assert!(started.is_ok(), "cannot start the watch");
}

/// What was seen of the thread with the run token.
struct HolderSample {
    holder: usize,
    points: u64,
    ticks: u64,
    asleep: u32,
}

fn watch() {
    let mut last: Option<HolderSample> = None;
    loop {
        std::thread::sleep(EVERY);
        let (holder, points, task) = {
            let table = lock();
            let Some(holder) = table.holder else { continue };
            (holder, table.points + table.changes, table.task_of(holder))
        };
        let Some((asleep, ticks)) = state_of(task) else { continue };
        let same = last.take().filter(|sight| sight.holder == holder && sight.points == points);
        let Some(HolderSample { ticks: began, asleep: before, .. }) = same else {
            last = Some(HolderSample { holder, points, ticks, asleep: 0 });
            continue;
        };
        let asleep = if asleep { before + 1 } else { 0 };
        if asleep > SLEEPS_AFTER || ticks - began > SPINS_AFTER {
            let why = if asleep > SLEEPS_AFTER {
                "a thread sleeps with the run token"
            } else {
                "a thread spins with the run token"
            };
            let mut table = lock();
            if table.holder == Some(holder) && table.points + table.changes == points {
                table.take_from(holder, why);
            }
        } else {
            last = Some(HolderSample { holder, points, ticks: began, asleep });
        }
    }
}

/// Whether a thread sleeps, and what processor time it has used.
fn state_of(task: i32) -> Option<(bool, u64)> {
    let line = fs::read_to_string(format!("/proc/self/task/{task}/stat")).ok()?;
    // The name before it may have spaces; it ends with the last parenthesis.
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((*fields.first()? == "S", ticks(11)? + ticks(12)?))
}
