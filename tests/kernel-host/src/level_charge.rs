//! What a change of the IRQL costs beside what the host does for it. On Windows it is a write of CR8; the host's level is a
//! byte of the thread. Tools that measure have each raise and each lowering that changes the level cost a number of cycles more.
//!
//! A reading of the clock costs as much as what is to be charged, so the charge is a chain of subtractions whose length is
//! found at boot. Each chain begins with the result of the thread's one before: charges cannot overlap one another, only what is around
//! them. The fast twins contain the same instructions (`charge!` in `fast`).

use std::arch::asm;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::thread::CHARGED_OFFSET;
use crate::thunk::time_stamp_counter;

/// Links of the chain; 0 is no charge.
pub(crate) static ROUNDS: AtomicU32 = AtomicU32::new(0);

/// Two lengths between which the time of a chain is measured: such as the processor predicts the end of.
const SHORT: u32 = 4;
const LONG: u32 = 20;

/// From now on a change of the level costs so many cycles of the time stamp counter more. The thread is a kernel thread.
pub(crate) fn set(cycles: u32) {
    ROUNDS.store(rounds_for(cycles), Ordering::SeqCst);
}

fn rounds_for(cycles: u32) -> u32 {
    if cycles == 0 {
        return 0;
    }
    let (short, long) = (measure(SHORT), measure(LONG));
    let link = (long - short) / f64::from(LONG - SHORT);
    if link <= 0.0 {
        return cycles;
    }
    let rounds = f64::from(SHORT) + (f64::from(cycles) - short) / link;
    (rounds.round() as u32).max(1)
}

/// The cycles of a chain, the least of several attempts.
fn measure(rounds: u32) -> f64 {
    const CHAINS: u32 = 1_000;
    let attempt = || {
        let began = time_stamp_counter();
        (0..CHAINS).for_each(|_| spend(rounds));
        time_stamp_counter().wrapping_sub(began)
    };
    let least = (0..50).map(|_| attempt()).min().unwrap_or_default();
    f64::from(u32::try_from(least).unwrap_or(u32::MAX)) / f64::from(CHAINS)
}

/// After the level of the current thread has changed.
#[inline]
pub(crate) fn level_changed() {
    let rounds = ROUNDS.load(Ordering::Relaxed);
    if rounds != 0 {
        spend(rounds);
    }
}

#[inline]
fn spend(rounds: u32) {
    // SAFETY: reads and writes a word of the thread's own block, which is at the gs base and holds 0 before and after.
    unsafe {
        asm!(
            "add {rounds}, gs:[{charged}]",
            "2:",
            "dec {rounds}",
            "jnz 2b",
            "mov gs:[{charged}], {rounds}",
            rounds = inout(reg) u64::from(rounds) => _,
            charged = const CHARGED_OFFSET,
            options(nostack),
        );
    }
}
