//! `calibrate [NAME…]`: measures what is named, or all, and prints a line of JSON with a number for each.
//!
//! `lock_pair_ns`: an uncontended compare-exchange and the store that releases it. `cache_line_round_trip_ns`: a cache line to another
//! processor and back. `two_loops_scaling`: what two processors do together in independent loops, as a share of twice what one does alone.
//! `memcpy_SIZE_ns` and `memcpy_SIZE_again_ns`: two measurements of one copy, alternated.
//!
//! Each number is the median of short bursts, so that a burst in which something else had the processor does not count. What that costs
//! shows in the mean of all bursts: `lock_pair_mean_ns`, `cache_line_round_trip_mean_ns`.

#![expect(clippy::cast_precision_loss, reason = "rates and times")]

use std::{
    hint::{black_box, spin_loop},
    process::ExitCode,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// A burst takes about this long, and so many are made.
const BURST: Duration = Duration::from_micros(500);
const BURSTS: usize = 15;
/// Bursts of lock pairs take longer together than a scheduler lets one of two programs run.
const LOCK_BURSTS: usize = 50;
/// Two processors at work together need longer than one that is woken takes to come.
const TOGETHER: Duration = Duration::from_millis(4);

const SIZES: [(&str, usize); 5] = [("8", 8), ("64", 64), ("4k", 4096), ("64k", 65_536), ("1m", 1 << 20)];

pub fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    let mut numbers = serde_json::Map::new();
    let mut put = |name: String, number: Option<f64>| {
        numbers.insert(name, number.into());
    };
    if is_wanted("lock_pair") {
        let bursts = lock_pair();
        put("lock_pair_mean_ns".to_owned(), Some(mean(&bursts)));
        put("lock_pair_ns".to_owned(), Some(median(bursts)));
    }
    if is_wanted("memcpy") {
        for (name, size) in SIZES {
            let [first, again] = copies(size);
            put(format!("memcpy_{name}_ns"), Some(first));
            put(format!("memcpy_{name}_again_ns"), Some(again));
        }
    }
    if is_wanted("cache_line_round_trip") {
        let bursts = Processors::two().map(cache_line_round_trip);
        put("cache_line_round_trip_mean_ns".to_owned(), bursts.as_deref().map(mean));
        put("cache_line_round_trip_ns".to_owned(), bursts.map(median));
    }
    if is_wanted("two_loops") {
        put("two_loops_scaling".to_owned(), Processors::two().map(two_loops));
    }
    println!("{}", serde_json::Value::Object(numbers));
    ExitCode::SUCCESS
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

/// Nanoseconds of one of `count` rounds.
fn burst(count: u64, round: &mut impl FnMut()) -> f64 {
    let begun = Instant::now();
    for _ in 0..count {
        round();
    }
    begun.elapsed().as_secs_f64() * 1e9 / count as f64
}

/// How many rounds fit into a burst. The processor is at its speed afterwards.
fn fitting(round: &mut impl FnMut()) -> u64 {
    let mut count = 1;
    loop {
        let time = burst(count, round) * count as f64;
        if time > BURST.as_secs_f64() * 1e9 {
            return count;
        }
        count *= 2;
    }
}

fn lock_pair() -> Vec<f64> {
    let lock = AtomicU32::new(0);
    let mut round = || {
        let taken = black_box(&lock).compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        assert!(black_box(taken).is_ok());
        black_box(&lock).store(0, Ordering::Release);
    };
    let count = fitting(&mut round);
    (0..LOCK_BURSTS).map(|_| burst(count, &mut round)).collect()
}

/// As the memory of a registration: where source and target lie differently within 16 bytes, some processors take twenty times as
/// long.
const PAGE: usize = 4096;

/// The same copy measured twice, alternately.
fn copies(size: usize) -> [f64; 2] {
    let [mut source, mut target] = [0x5A_u8, 0].map(|fill| vec![fill; size + PAGE]);
    let [first, second] = [&source, &target].map(|buffer| buffer.as_ptr().align_offset(PAGE));
    let (from, to) = (&mut source[first..][..size], &mut target[second..][..size]);
    let mut round = || {
        let (to, from) = black_box((&mut *to, &*from));
        to.copy_from_slice(from);
    };
    let count = fitting(&mut round);
    let bursts: Vec<_> = (0..BURSTS).map(|_| [(); 2].map(|()| burst(count, &mut round))).collect();
    assert_eq!(from, to, "a copy moved nothing");
    [0, 1].map(|which| median(bursts.iter().map(|burst| burst[which]).collect()))
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

fn cache_line_round_trip(processors: Processors) -> Vec<f64> {
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
            // The first burst wakes the other thread.
            burst(ROUND_TRIPS, &mut round_trip);
            (0..BURSTS).map(|_| burst(ROUND_TRIPS, &mut round_trip)).collect()
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
