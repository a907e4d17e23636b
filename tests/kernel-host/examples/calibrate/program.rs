//! `calibrate NAME`: measures one thing of two processors, and prints a line of JSON with its number.
//!
//! `cache_line_round_trip`: nanoseconds of a cache line to another processor and back. `two_loops`: what two processors do together in
//! independent loops, as a share of twice what one does alone.
//!
//! Each number is the median of short bursts, so that a burst in which something else had the processor does not count.

#![expect(clippy::cast_precision_loss, reason = "rates and times")]

use std::{
    hint::{black_box, spin_loop},
    process::ExitCode,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const BURSTS: usize = 15;
/// Two processors at work together need longer than one that is woken takes to come.
const TOGETHER: Duration = Duration::from_millis(4);

pub fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let measure = match name.as_str() {
        "cache_line_round_trip" => cache_line_round_trip,
        "two_loops" => two_loops,
        _ => panic!("usage: calibrate cache_line_round_trip|two_loops"),
    };
    let number = measure(Processors::two().expect("this needs two processors"));
    println!("{}", serde_json::json!({ name: number }));
    ExitCode::SUCCESS
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Two processors that this process may use.
#[derive(Clone, Copy)]
struct Processors([usize; 2]);

impl Processors {
    fn two() -> Option<Self> {
        // SAFETY: an all-zero set is the empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is ours and of the length that is given.
        let status = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
        assert_eq!(status, 0, "the system does not say which processors there are");
        // SAFETY: the numbers are within the set.
        let is_ours = |number: &usize| unsafe { libc::CPU_ISSET(*number, &set) };
        let mut ours = (0..libc::CPU_SETSIZE as usize).filter(is_ours);
        Some(Self([ours.next()?, ours.next()?]))
    }

    fn bind(self, which: usize) {
        // SAFETY: an all-zero set is the empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the number came out of such a set.
        unsafe { libc::CPU_SET(self.0[which], &mut set) };
        // SAFETY: the set is ours and of the length that is given.
        let status = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
        assert_eq!(status, 0, "the thread cannot be bound to processor {}", self.0[which]);
    }
}

/// A variable with a cache line, and the one that is fetched with it, of its own.
#[repr(align(128))]
struct Line(AtomicU64);

fn cache_line_round_trip(processors: Processors) -> f64 {
    const ROUND_TRIPS: u64 = 2000;
    let line = Line(AtomicU64::new(0));
    let trips = ROUND_TRIPS * (BURSTS as u64 + 1);
    let wait_for = |value: u64| {
        while line.0.load(Ordering::Acquire) != value {
            spin_loop();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            processors.bind(1);
            for trip in 0..trips {
                wait_for(2 * trip + 1);
                line.0.store(2 * trip + 2, Ordering::Release);
            }
        });
        let near = scope.spawn(|| {
            processors.bind(0);
            let mut value = 0;
            let mut round_trip = || {
                line.0.store(value + 1, Ordering::Release);
                value += 2;
                wait_for(value);
            };
            let mut burst = || {
                let begun = Instant::now();
                (0..ROUND_TRIPS).for_each(|_| round_trip());
                begun.elapsed().as_secs_f64() * 1e9 / ROUND_TRIPS as f64
            };
            // The first burst wakes the other thread.
            burst();
            median((0..BURSTS).map(|_| burst()).collect())
        });
        near.join().expect("a thread that only counts")
    })
}

/// Alone and together alternate, so that both see the same machine.
fn two_loops(processors: Processors) -> f64 {
    let shares = (0..BURSTS / 2).map(|_| {
        let alone = loops(processors, 1);
        loops(processors, 2) / (2.0 * alone)
    });
    median(shares.collect())
}

/// Rounds a second of `count` threads at work at the same time on as many processors.
fn loops(processors: Processors, count: usize) -> f64 {
    let (gate, stop) = (Barrier::new(count), AtomicBool::new(false));
    let rate = |which: usize| {
        processors.bind(which);
        gate.wait();
        let (begun, mut rounds, mut number) = (Instant::now(), 0_u64, 1_u64);
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..64 {
                number = black_box(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 1);
            }
            rounds += 1;
            // The first one that is done ends it: no thread works alone.
            if rounds.is_multiple_of(64) && begun.elapsed() >= TOGETHER {
                stop.store(true, Ordering::Relaxed);
            }
        }
        rounds as f64 / begun.elapsed().as_secs_f64()
    };
    let rate = &rate;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|which| scope.spawn(move || rate(which))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that only counts")).sum()
    })
}
