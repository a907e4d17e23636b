//! "Physical memory": one memory file, handed out in page frames. A page frame number is the frame's index plus
//! [`FIRST_FRAME`], so that no valid number is 0 and a shifted one looks like an address.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::kernel::FrameOrder;
use crate::memory::PAGE_SIZE;

/// The number of the first frame.
pub const FIRST_FRAME: u32 = 0x1000;

struct Physical {
    file: libc::c_int,
    frames: usize,
    order: FrameOrder,
    state: Mutex<FrameState>,
}

struct FrameState {
    /// Free runs, by first frame; neighbours are merged.
    free: std::collections::BTreeMap<u32, u32>,
    random: u64,
    used: usize,
}

static PHYSICAL: OnceLock<Physical> = OnceLock::new();

/// Makes the memory file. Pages are only backed once they are touched.
pub(crate) fn initialise(bytes: usize, order: FrameOrder, seed: u64) {
    let frames = bytes / PAGE_SIZE;
    // SAFETY: creates a file; the name is a constant.
    let file = unsafe { libc::memfd_create(c"kernel-host physical memory".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(file >= 0, "memfd_create failed");
    // SAFETY: sets the length of the file made above.
    let result = unsafe { libc::ftruncate(file, (frames * PAGE_SIZE) as libc::off_t) };
    assert_eq!(result, 0, "the memory file cannot be {bytes} bytes long");
    let mut free = std::collections::BTreeMap::new();
    free.insert(FIRST_FRAME, frames as u32);
    let state = Mutex::new(FrameState { free, random: seed | 1, used: 0 });
    let made = PHYSICAL.set(Physical { file, frames, order, state });
    assert!(made.is_ok(), "physical memory exists already");
}

fn physical() -> &'static Physical {
    PHYSICAL.get().unwrap_or_else(|| panic!("Kernel::boot has not run"))
}

fn state() -> MutexGuard<'static, FrameState> {
    physical().state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The memory file, for mapping.
pub(crate) fn file() -> libc::c_int {
    physical().file
}

/// Where a frame lies in the file.
pub(crate) fn offset_of(frame: u32) -> libc::off_t {
    libc::off_t::from(frame - FIRST_FRAME) * PAGE_SIZE as libc::off_t
}

/// Whether a number names a frame.
pub fn exists(frame: u64) -> bool {
    let first = u64::from(FIRST_FRAME);
    (first..first + physical().frames as u64).contains(&frame)
}

/// Frames in use now.
pub fn used() -> usize {
    state().used
}

impl FrameState {
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn take(&mut self, start: u32, length: u32, first: u32, count: u32) -> Range<u32> {
        self.free.remove(&start);
        if first > start {
            self.free.insert(start, first - start);
        }
        let end = first + count;
        if end < start + length {
            self.free.insert(end, start + length - end);
        }
        self.used += count as usize;
        first..end
    }

    fn take_run(&mut self, count: u32) -> Option<Range<u32>> {
        let (start, length) =
            self.free.iter().find(|(_, length)| **length >= count).map(|(start, length)| (*start, *length))?;
        Some(self.take(start, length, start, count))
    }

    fn take_scattered(&mut self) -> Option<u32> {
        // A frame out of the middle of a random free run, so that neighbours in an MDL are no neighbours in memory.
        let frames = physical().frames as u64;
        for _ in 0..8 {
            let guess = FIRST_FRAME + (self.next_random() % frames.min(1 << 16)) as u32;
            let run = self.free.range(..=guess).next_back().map(|(start, length)| (*start, *length));
            if let Some((start, length)) = run
                && guess < start + length
            {
                return Some(self.take(start, length, guess, 1).start);
            }
        }
        self.take_run(1).map(|run| run.start)
    }

    fn give_back(&mut self, run: Range<u32>) {
        self.used -= run.len();
        let (mut start, mut length) = (run.start, run.end - run.start);
        if let Some((before, before_length)) = self.free.range(..start).next_back().map(|(key, value)| (*key, *value))
            && before + before_length == start
        {
            self.free.remove(&before);
            start = before;
            length += before_length;
        }
        if let Some(after_length) = self.free.remove(&(start + length)) {
            length += after_length;
        }
        self.free.insert(start, length);
    }
}

/// A run of adjacent frames.
pub fn allocate_run(count: usize) -> Option<Range<u32>> {
    state().take_run(u32::try_from(count).ok()?)
}

/// Gives a run back.
pub fn free_run(run: Range<u32>) {
    discard(&run);
    state().give_back(run);
}

/// Frames for `count` pages in the order that the kernel was booted with: adjacent, or scattered.
pub fn allocate(count: usize) -> Option<Vec<u32>> {
    allocate_in_order(count, physical().order)
}

/// Frames for `count` pages in an order of the caller's choice.
pub fn allocate_in_order(count: usize, order: FrameOrder) -> Option<Vec<u32>> {
    let mut state = state();
    match order {
        FrameOrder::Contiguous => Some(state.take_run(u32::try_from(count).ok()?)?.collect()),
        FrameOrder::Scattered => {
            let mut frames = Vec::with_capacity(count);
            for _ in 0..count {
                let Some(frame) = state.take_scattered() else {
                    for frame in frames {
                        state.give_back(frame..frame + 1);
                    }
                    return None;
                };
                frames.push(frame);
            }
            Some(frames)
        }
    }
}

/// Gives frames back.
pub fn free(frames: &[u32]) {
    let runs = runs(frames);
    runs.iter().for_each(discard);
    let mut state = state();
    for run in runs {
        state.give_back(run);
    }
}

/// Groups frames that are adjacent and ascending.
pub fn runs(frames: &[u32]) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for frame in frames {
        match runs.last_mut() {
            Some(run) if run.end == *frame => run.end += 1,
            _ => runs.push(*frame..*frame + 1),
        }
    }
    runs
}

/// Drops large contents at once, so that a long run does not keep memory; small ones are overwritten soon.
fn discard(run: &Range<u32>) {
    const WORTH_A_SYSTEM_CALL: usize = 64;
    if run.len() >= WORTH_A_SYSTEM_CALL {
        // SAFETY: no allocation lies there any more.
        let _ = unsafe { punch(run) };
    }
}

/// Makes frames read as zero that lie side by side in the file, and returns whether it could: no page is touched.
///
/// # Safety
///
/// The frames are the caller's.
pub unsafe fn clear(frames: &[u32]) -> bool {
    let adjacent = frames.windows(2).all(|pair| matches!(pair, [one, next] if one + 1 == *next));
    let Some((first, last)) = frames.first().zip(frames.last()).filter(|_| adjacent) else { return false };
    // SAFETY: as the caller says.
    unsafe { punch(&(*first..*last + 1)) }
}

/// # Safety
///
/// The frames hold no data in use.
unsafe fn punch(run: &Range<u32>) -> bool {
    let (start, length) = (offset_of(run.start), (run.len() * PAGE_SIZE) as libc::off_t);
    // SAFETY: a hole in the host's own file, whose contents are the caller's to drop.
    unsafe { libc::fallocate(file(), libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, start, length) == 0 }
}
