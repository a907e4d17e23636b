//! What a change of the IRQL costs beside what the host does for it. On Windows it is a write of CR8; the host's level is a
//! byte of the thread. Tools that measure have each raise and each lowering that changes the level cost a number of cycles more.
//!
//! A reading of the clock costs as much as what is to be charged, so the charge is a chain of additions, each of which needs the one
//! before: a sled, entered so far before its end that it takes the cycles. There is no branch in it that a processor could
//! predict wrongly. Each chain begins with the result of the thread's one before, and the stack pointer waits for it: charges cannot overlap
//! one another, and what comes after them overlaps them no more than it would a write of CR8. The fast twins contain the same
//! instructions (`charge!` in `fast`).

use std::arch::{asm, global_asm};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::thread::CHARGED_OFFSET;
use crate::thunk::time_stamp_counter;

// r11, which is 0, is doubled.
global_asm!(
    ".rept {links}",
    "add r11, r11",
    ".endr",
    ".globl kernel_host_end_of_sled",
    "kernel_host_end_of_sled:",
    "ret",
    links = const LINKS,
);

unsafe extern "sysv64" {
    fn kernel_host_end_of_sled();
}

/// The most links of a chain.
const LINKS: usize = 1024;
/// Bytes of a link.
const LINK: usize = 3;

/// Where the chain is entered; 0 is no charge.
pub(crate) static SLED: AtomicUsize = AtomicUsize::new(0);

/// So many cycles of a chain pass while what is before it in the program has not ended yet. Measured where it matters, in Reads of 8 bytes
/// posted and polled at PASSIVE_LEVEL (four changes): 20, 40 and 100 cycles of chain cost 12, 31 and 92.
const OVERLAP: u32 = 8;

/// Two lengths between which the time of a link is measured.
const SHORT: u32 = 16;
const LONG: u32 = 80;

/// From now on a change of the level costs so many cycles of the time stamp counter more. The thread is a kernel thread.
pub(crate) fn set(cycles: u32) {
    let place = if cycles == 0 { 0 } else { entry(links_for(cycles)) };
    SLED.store(place, Ordering::SeqCst);
}

/// Where a chain of so many links is entered.
fn entry(links: usize) -> usize {
    kernel_host_end_of_sled as *const () as usize - links.min(LINKS) * LINK
}

fn links_for(cycles: u32) -> usize {
    let (chain, link) = (f64::from(cycles + OVERLAP), time_of_a_link());
    if link > 0.0 { (chain / link).round() as usize } else { cycles as usize }
}

/// The cycles of a link: of short and long chains in turn the fastest, because what else the machine does, and the rate of its
/// processors, changes meanwhile.
fn time_of_a_link() -> f64 {
    const ATTEMPTS: usize = 100;
    let least = (0..ATTEMPTS).map(|_| (attempt(SHORT), attempt(LONG)));
    let (short, long) =
        least.fold((f64::MAX, f64::MAX), |least, (short, long)| (least.0.min(short), least.1.min(long)));
    (long - short) / f64::from(LONG - SHORT)
}

/// The cycles of one of many chains.
fn attempt(links: u32) -> f64 {
    const CHAINS: u32 = 200;
    let entry = entry(links as usize);
    let began = time_stamp_counter();
    (0..CHAINS).for_each(|_| spend(entry));
    let passed = time_stamp_counter().wrapping_sub(began);
    f64::from(u32::try_from(passed).unwrap_or(u32::MAX)) / f64::from(CHAINS)
}

/// After the level of the current thread has changed.
#[inline]
pub(crate) fn level_changed() {
    let entry = SLED.load(Ordering::Relaxed);
    if entry != 0 {
        spend(entry);
    }
}

#[inline]
fn spend(entry: usize) {
    // SAFETY: calls code of this module that changes r11 only; reads and writes a word of the thread's own block, which is at the gs base
    // and holds 0 before and after.
    unsafe {
        asm!(
            "mov r11, gs:[{charged}]",
            "call {entry}",
            "mov gs:[{charged}], r11",
            entry = in(reg) entry,
            charged = const CHARGED_OFFSET,
            out("r11") _,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_entered_its_links_before_the_end() {
        let end = kernel_host_end_of_sled as *const () as usize;
        // SAFETY: code of this module.
        let bytes = unsafe { std::slice::from_raw_parts((end - LINKS * LINK) as *const u8, LINKS * LINK + 1) };
        let (links, last) = bytes.split_at(LINKS * LINK);
        assert!(links.chunks(LINK).all(|link| link == &links[..LINK]), "every link is the same instruction");
        assert_eq!(last, [0xC3]);
        assert_eq!((entry(0), entry(1), entry(LINKS + 1)), (end, end - LINK, end - LINKS * LINK));
    }
}
