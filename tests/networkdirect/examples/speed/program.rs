//! Reads through softnd.dll as `cargo xtask bench` measures them: a line of JSON.
//!
//!     SOFTNDK_IMAGE=target/driver/x64/release/softndk.sys cargo run --release -p networkdirect --example speed -- SIZE CHAIN OUTSTANDING POLL_US
//!
//! The loop is a C program's, in user mode from end to end; a system call costs a microsecond more than the host's own crossing. Transfer and
//! memcpy of the same bytes alternate, the median of the rounds counts, and the bytes are compared after each.

#![allow(dead_code, reason = "the client is that of the provider suite")]
#![expect(clippy::cast_precision_loss, reason = "ratios of times")]
#![expect(clippy::wildcard_imports, reason = "the client is that of the provider suite")]

#[path = "../../tests/provider/border.rs"]
mod border;
#[path = "../../tests/provider/calls.rs"]
mod calls;
#[path = "../../tests/provider/client.rs"]
mod client;
#[path = "../../tests/provider/ends.rs"]
mod ends;

use client::{Program, SUCCESS};
use ends::{End, connect};
use kernel_host::Mode;
use networkdirect::machine::{Machine, MachineSetup, address};
use std::hint::black_box;
use std::time::{Duration, Instant};

const ROUNDS: usize = 3;
/// What a round measures, and again its memcpy.
const ROUND: Duration = Duration::from_millis(60);
/// What a system call is charged.
const SYSTEM_CALL: Duration = Duration::from_micros(1);

pub fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [size, chain, outstanding, poll] = &words[..] else { panic!("usage: speed SIZE CHAIN OUTSTANDING POLL_US") };
    let (size, chain) = (size.parse().expect("a size"), chain.parse().expect("a chain"));
    let outstanding = outstanding.parse().expect("the requests outstanding");
    assert!(outstanding >= u64::from(chain), "a chain is posted whole");
    let setup = MachineSetup {
        mode: Mode::Fast,
        processors: 3,
        system_call: SYSTEM_CALL,
        keywords: &[("NetworkDirectPollUs", poll)],
    };
    let machine = Machine::of(&setup);
    let program = Program::start(&machine);
    let (active, passive) = (End::new(&program, 1), End::new(&program, 2));
    connect(&active, &passive, address(2, 7000));
    measure(&Reads { active: &active, passive: &passive, size, chain, outstanding });
    drop((active, passive));
    drop(program);
    machine.finish();
}

/// What is measured.
struct Reads<'p> {
    active: &'p End<'p>,
    passive: &'p End<'p>,
    size: u32,
    /// Posted, and waited for, together.
    chain: u32,
    /// At most; with two chains the driver works on one while the program takes and posts the other.
    outstanding: u64,
}

impl Reads<'_> {
    /// The C program's structure.
    fn work(&self, count: u64) -> u64 {
        let mut bytes = Vec::new();
        bytes.extend(self.active.pair.this.to_le_bytes());
        bytes.extend(self.active.queue.this.to_le_bytes());
        bytes.extend(self.active.buffer.to_le_bytes());
        bytes.extend(self.size.to_le_bytes());
        bytes.extend((self.active.token() as u32).to_le_bytes());
        bytes.extend(self.passive.buffer.to_le_bytes());
        bytes.extend((self.passive.remote_token() as u32).to_le_bytes());
        bytes.extend(self.chain.to_le_bytes());
        bytes.extend(self.outstanding.to_le_bytes());
        bytes.extend(count.to_le_bytes());
        self.active.program.bytes(&bytes)
    }

    fn run(&self, work: u64) {
        let failed = self.active.program.export("read_in_chains", &[work]);
        assert_eq!(failed, u64::from(SUCCESS), "reads failed");
    }

    fn copy(&self, count: u64) {
        let length = self.size as usize;
        for _ in 0..count {
            let (to, from) = black_box((self.active.buffer as *mut u8, self.passive.buffer as *const u8));
            // SAFETY: both are memory of the process, of `BUFFER` bytes each, which the host may write while the program does not run.
            unsafe { to.copy_from_nonoverlapping(from, length) };
        }
    }

    /// How often fits into a round.
    fn count(&self, mut once: impl FnMut(u64)) -> u64 {
        let mut count = u64::from(self.chain);
        loop {
            let begun = Instant::now();
            once(count);
            let elapsed = begun.elapsed();
            if elapsed * 4 > ROUND {
                let wanted = u128::from(count) * ROUND.as_nanos() / elapsed.as_nanos();
                return u64::try_from(wanted).unwrap_or(count).next_multiple_of(u64::from(self.chain));
            }
            count *= 2;
        }
    }
}

/// Nanoseconds of a request and of memcpy before and after it, and system calls of a request.
struct Round {
    time: f64,
    memcpy: f64,
    memcpy_again: f64,
    calls: f64,
}

fn measure(reads: &Reads<'_>) {
    let count = reads.count(|count| reads.run(reads.work(count)));
    let copies = reads.count(|count| reads.copy(count));
    let work = reads.work(count);
    let mut rows: Vec<Round> = (0..ROUNDS)
        .map(|round| {
            let memcpy = nanoseconds(copies, || reads.copy(copies));
            reads.passive.fill(0, reads.size as usize, round as u8);
            reads.active.fill(0, reads.size as usize, !round as u8);
            let calls = reads.active.program.process.system_calls();
            let time = nanoseconds(count, || reads.run(work));
            let calls = reads.active.program.process.system_calls() - calls;
            let size = reads.size as usize;
            assert_eq!(reads.active.bytes(0, size), reads.passive.bytes(0, size), "bytes after a round");
            let memcpy_again = nanoseconds(copies, || reads.copy(copies));
            Round { time, memcpy, memcpy_again, calls: calls as f64 / count as f64 }
        })
        .collect();
    rows.sort_by(|one, other| (one.time / one.memcpy).total_cmp(&(other.time / other.memcpy)));
    let spread = rows[ROUNDS - 1].time / rows[0].time - 1.0;
    let Round { time, memcpy, memcpy_again, calls } = rows[ROUNDS / 2];
    let Reads { size, chain, outstanding, .. } = reads;
    println!(
        "{{\"size\":{size},\"chain\":{chain},\"outstanding\":{outstanding},\"count\":{count},\"nanoseconds\":{time:.1},\"memcpy\":{memcpy:.1},\
         \"memcpy_again\":{memcpy_again:.1},\"system_calls\":{calls:.4},\"spread\":{spread:.3}}}"
    );
}

fn nanoseconds(count: u64, act: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    act();
    begun.elapsed().as_nanos() as f64 / count as f64
}
