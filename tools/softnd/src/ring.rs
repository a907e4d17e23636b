//! The process's side of the queues that it shares with the driver: where `softndk_ioctl::nd::rings` says how they lie.
//!
//! This is the only file that touches shared memory. Counts are read with acquire order and written with release order; an entry is
//! written before the count that makes it the driver's, and read before the count that gives its place back. The driver is
//! trusted: what it writes decides how many entries there are, though never where one lies.

use core::{
    mem::size_of,
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

use softnd_interfaces::{Status, v2::Sge};
use softndk_ioctl::nd::rings::{
    CONSUMER_OFFSET, CompletionFlags, CompletionHeader, InitiatorEntry, LAYOUT, POLLING_OFFSET, QueueLayout,
    QueuePairHeader, QueuePairPolling, QueuePairState, QueuePairTaken, QueueSizes, ReceiveEntry, ResultEntry, Ring,
    TAKEN_OFFSET, completion_layout,
};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::{
    argument::Bytes,
    device::{Device, Loan},
    heap::Pages,
    shared::Shared,
    spin_lock::SpinLock,
};
use softndk_ioctl::nd::{
    VERSION,
    private::{ATTACH, Attach},
};

/// Memory that a queue shares with the driver.
struct Memory(Shared<Loan>);

impl Memory {
    /// Zeroed memory, not yet the driver's. NO_MEMORY.
    fn new(length: usize) -> Result<Self, Status> {
        Ok(Self(Loan::new(Some(Pages::new(length)?))?))
    }

    /// Gives it to a queue of the driver.
    fn attach(&self, device: &Device, handle: u64) -> Result<(), Status> {
        device.lend(ATTACH, &Attach { version: VERSION, layout: LAYOUT, handle }, (ptr::null_mut(), 0), &self.0)
    }

    /// The place `offset` bytes from the start. Past the end it is the start, which no caller asks for.
    fn at(&self, offset: usize, length: usize) -> *mut u8 {
        let Some(pages) = self.0.pages() else { return ptr::null_mut() };
        let fits = offset.checked_add(length).is_some_and(|end| end <= pages.length());
        debug_assert!(fits);
        pages.start().as_ptr().wrapping_add(if fits { offset } else { 0 })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the word lies in the pages, which live as long as the memory, and is aligned: every count's offset is.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: the bytes lie in the pages; the driver reads them once the count says so.
        unsafe { self.at(offset, bytes.len()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

/// Whether one more entry may be put into a ring: the queue's depth limits what is not retired, the ring what is not taken.
fn has_room(produced: u32, taken: u32, retired: u32, depth: u32, entries: u32) -> bool {
    // Signed: should the driver have retired more than was produced, there is room.
    let not_retired = produced.wrapping_sub(retired).cast_signed();
    let not_taken = produced.wrapping_sub(taken).cast_signed();
    i64::from(not_retired) < i64::from(depth) && i64::from(not_taken) < i64::from(entries)
}

/// One of the two rings of a queue's memory.
pub struct RequestRing {
    ring: Ring,
    depth: AtomicU32,
    producer_offset: usize,
    taken_offset: usize,
    retired_offset: usize,
    counts: SpinLock<Counts>,
}

/// Counts of a ring as the process knows them.
struct Counts {
    produced: u32,
    /// What the driver showed when it was looked at last: it writes that line all the time, so a post looks only where there is no room
    /// by these.
    taken: u32,
    retired: u32,
}

impl Counts {
    const fn at(count: u32) -> Self {
        Self { produced: count, taken: count, retired: count }
    }

    fn have_room(&self, ring: &RequestRing) -> bool {
        has_room(self.produced, self.taken, self.retired, ring.depth(), ring.ring.entries)
    }
}

/// What became of a request that was put into a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    NoRoom,
    /// The driver looks at the ring by itself.
    Polled,
    /// The driver looks when it is told.
    Unseen,
}

/// What stands behind the head of an entry.
pub trait Payload {
    /// Writes it at an offset of `capacity` bytes and says what was written. Called with the ring locked: no waiting.
    fn write(&self, memory: &QueueMemory, offset: usize, capacity: usize);
}

/// The memory of a queue pair or of a shared receive queue, with both its rings.
pub struct QueueMemory {
    memory: Memory,
    pub initiator: RequestRing,
    pub receive: RequestRing,
}

macro_rules! offset {
    ($Part:ty, $field:ident, $base:expr) => {
        $base + core::mem::offset_of!($Part, $field)
    };
}

impl QueueMemory {
    /// Memory for a queue with these sizes. INVALID_PARAMETER where they are more than there are numbers, NO_MEMORY.
    pub fn new(sizes: QueueSizes) -> Result<Self, Status> {
        let layout = QueueLayout::new(sizes).ok_or(Status::INVALID_PARAMETER)?;
        // The request that brings it has 32 bits for the length.
        let length = u32::try_from(layout.length).map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        let initiator = RequestRing {
            ring: layout.initiator,
            depth: AtomicU32::new(sizes.initiator_depth),
            producer_offset: offset!(QueuePairHeader, initiator_producer, 0),
            taken_offset: offset!(QueuePairTaken, initiator_taken, TAKEN_OFFSET),
            retired_offset: offset!(QueuePairTaken, initiator_retired, TAKEN_OFFSET),
            counts: SpinLock::new(Counts::at(0)),
        };
        let receive = RequestRing {
            ring: layout.receive,
            depth: AtomicU32::new(sizes.receive_depth),
            producer_offset: offset!(QueuePairHeader, receive_producer, 0),
            taken_offset: offset!(QueuePairTaken, receive_taken, TAKEN_OFFSET),
            retired_offset: offset!(QueuePairTaken, receive_retired, TAKEN_OFFSET),
            counts: SpinLock::new(Counts::at(0)),
        };
        Ok(Self { memory: Memory::new(length as usize)?, initiator, receive })
    }

    /// Gives it to the driver.
    pub fn attach(&self, device: &Device, handle: u64) -> Result<(), Status> {
        self.memory.attach(device, handle)
    }

    /// As the driver showed it last.
    pub fn state(&self) -> QueuePairState {
        let word = self.memory.word(offset!(QueuePairTaken, state, TAKEN_OFFSET));
        QueuePairState::from_bits_retain(word.load(Ordering::Acquire))
    }

    /// Puts an entry into one of the rings, and says whether the driver looks by itself.
    pub fn put(&self, ring: &RequestRing, head: &(impl IntoBytes + Immutable), payload: &impl Payload) -> Put {
        let mut counts = ring.counts.lock();
        if !counts.have_room(ring) {
            self.look(ring, &mut counts);
            if !counts.have_room(ring) {
                return Put::NoRoom;
            }
        }
        let place = ring.ring.place(counts.produced);
        let head = head.as_bytes();
        self.memory.write(place, head);
        payload.write(self, place.wrapping_add(head.len()), ring.ring.stride.saturating_sub(head.len()));
        counts.produced = counts.produced.wrapping_add(1);
        fetch_for_writing(self.memory.at(ring.ring.place(counts.produced.wrapping_add(1)), size_of::<ReceiveEntry>()));
        // The driver clears `polling` and then looks at the producer's count once more; between the two there is a full barrier, and
        // here the exchange is one.
        self.memory.word(ring.producer_offset).swap(counts.produced, Ordering::SeqCst);
        let polling = self.memory.word(offset!(QueuePairPolling, polling, POLLING_OFFSET)).load(Ordering::SeqCst);
        if polling == 0 { Put::Unseen } else { Put::Polled }
    }

    /// Requests that were posted and are not retired.
    pub fn outstanding(&self, ring: &RequestRing) -> u32 {
        let counts = ring.counts.lock();
        counts.produced.wrapping_sub(self.memory.word(ring.retired_offset).load(Ordering::Acquire))
    }

    /// What the driver shows now.
    fn look(&self, ring: &RequestRing, counts: &mut Counts) {
        let count = |offset: usize| self.memory.word(offset).load(Ordering::Acquire);
        (counts.taken, counts.retired) = (count(ring.taken_offset), count(ring.retired_offset));
    }

    /// A slot of the initiator queue is used by something that was not put into the ring: what was known of the room is old.
    pub fn look_at_initiator(&self) {
        self.look(&self.initiator, &mut self.initiator.counts.lock());
    }
}

/// Has the processor bring a line that the driver's has a copy of, before it is written: a post that writes it then waits for nothing.
fn fetch_for_writing(place: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, for any address; every processor that 64-bit Windows runs on has the instruction.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

impl RequestRing {
    pub fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    /// The depth of a shared receive queue can change. Its ring does not: it is the way to the driver, not the queue.
    pub fn set_depth(&self, depth: u32) {
        self.depth.store(depth, Ordering::Relaxed);
    }
}

/// A payload of none.
pub struct Nothing;

impl Payload for Nothing {
    fn write(&self, _: &QueueMemory, _: usize, _: usize) {}
}

/// The scatter/gather list of a request.
pub struct SgeList<I>(pub I);

impl<I: Iterator<Item = Sge> + Clone> Payload for SgeList<I> {
    fn write(&self, memory: &QueueMemory, offset: usize, capacity: usize) {
        let places = (0..capacity / size_of::<Sge>()).map(|index| offset.wrapping_add(index * size_of::<Sge>()));
        for (sge, place) in self.0.clone().zip(places) {
            let entry = softndk_ioctl::nd::rings::Sge {
                address: sge.buffer as u64,
                length: sge.buffer_length,
                token: sge.memory_region_token,
            };
            memory.memory.write(place, entry.as_bytes());
        }
    }
}

/// The bytes of a request with inline data, copied from where its list says.
pub struct InlineBytes<I> {
    pub list: I,
    /// What the head of the entry says. Should the client change its list meanwhile, no more than this is copied.
    pub length: u32,
}

impl<I: Iterator<Item = Sge> + Clone> Payload for InlineBytes<I> {
    fn write(&self, memory: &QueueMemory, offset: usize, capacity: usize) {
        let mut left = (self.length as usize).min(capacity);
        let mut place = offset;
        for sge in self.list.clone() {
            let length = left.min(sge.buffer_length as usize);
            let target = memory.memory.at(place, length);
            if length > 0 && !target.is_null() {
                // SAFETY: the place lies in the entry, which is the process's until the count says otherwise.
                let target = unsafe { core::slice::from_raw_parts_mut(target, length) };
                // SAFETY: the client's promise: inline data is memory of its own.
                let source = unsafe { Bytes::at(sge.buffer) };
                source.copy_to(target);
            }
            place = place.wrapping_add(length);
            left = left.saturating_sub(length);
        }
    }
}

/// The memory of a completion queue, until a resize brings another.
pub struct CompletionRing {
    memory: Memory,
    ring: Ring,
    consumed: u32,
}

impl CompletionRing {
    /// Memory for a queue of this depth. INVALID_PARAMETER where it is more than there are numbers, NO_MEMORY.
    pub fn new(depth: u32) -> Result<Self, Status> {
        let (ring, length) = completion_layout(depth).ok_or(Status::INVALID_PARAMETER)?;
        let length = u32::try_from(length).map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        Ok(Self { memory: Memory::new(length as usize)?, ring, consumed: 0 })
    }

    /// Gives it to the driver.
    pub fn attach(&self, device: &Device, handle: u64) -> Result<(), Status> {
        self.memory.attach(device, handle)
    }

    /// Results that were put in and not taken.
    pub fn available(&self) -> u32 {
        let producer = self.memory.word(offset!(CompletionHeader, producer, 0)).load(Ordering::Acquire);
        // Never more than the ring has, whatever the count says.
        producer.wrapping_sub(self.consumed).min(self.ring.entries)
    }

    pub fn flags(&self) -> CompletionFlags {
        let word = self.memory.word(offset!(CompletionHeader, flags, 0)).load(Ordering::Acquire);
        CompletionFlags::from_bits_retain(word)
    }

    /// Takes up to `count` results and gives their places back to the driver.
    pub fn take(&mut self, count: u32, mut each: impl FnMut(&ResultEntry)) -> u32 {
        let taken = self.available().min(count);
        for _ in 0..taken {
            let place = self.ring.place(self.consumed);
            let mut entry = ResultEntry::new_zeroed();
            let bytes = entry.as_mut_bytes();
            let source = self.memory.at(place, bytes.len());
            // SAFETY: the entry lies in the pages, and is the process's until the consumer's count says otherwise.
            unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(source, bytes.len()) };
            each(&entry);
            self.consumed = self.consumed.wrapping_add(1);
        }
        if taken > 0 {
            self.memory.word(CONSUMER_OFFSET).store(self.consumed, Ordering::Release);
        }
        taken
    }
}

/// The head of a receive.
pub fn receive_head(context: u64, sge_count: u32) -> ReceiveEntry {
    ReceiveEntry { context, sge_count, reserved: 0 }
}

/// The head of a request of the initiator that names no remote memory and no window.
pub fn initiator_head(context: u64, request_type: u32, flags: u32) -> InitiatorEntry {
    InitiatorEntry { context, request_type, flags, ..InitiatorEntry::new_zeroed() }
}

#[cfg(test)]
pub mod driver {
    //! The driver's side, as far as tests play it.

    use super::{CompletionRing, Counts, Memory, QueueMemory, RequestRing, ResultEntry};
    use core::sync::atomic::Ordering;
    use softndk_ioctl::nd::rings::{POLLING_OFFSET, QueuePairState, TAKEN_OFFSET};
    use zerocopy::{FromBytes, IntoBytes};

    fn bytes(memory: &Memory, offset: usize, length: usize) -> Vec<u8> {
        // SAFETY: tests read what lies within.
        unsafe { std::slice::from_raw_parts(memory.at(offset, length), length) }.to_vec()
    }

    /// A structure and what stands behind it, at the place with a count.
    pub fn entry<Head: FromBytes>(
        queue: &QueueMemory,
        ring: &RequestRing,
        count: u32,
        behind: usize,
    ) -> (Head, Vec<u8>) {
        let place = ring.ring.place(count);
        let head = Head::read_from_bytes(&bytes(&queue.memory, place, size_of::<Head>())).unwrap();
        (head, bytes(&queue.memory, place + size_of::<Head>(), behind))
    }

    pub fn produced(queue: &QueueMemory, ring: &RequestRing) -> u32 {
        queue.memory.word(ring.producer_offset).load(Ordering::Acquire)
    }

    pub fn set_counts(queue: &QueueMemory, ring: &RequestRing, taken: u32, retired: u32) {
        queue.memory.word(ring.taken_offset).store(taken, Ordering::Release);
        queue.memory.word(ring.retired_offset).store(retired, Ordering::Release);
    }

    pub fn set_state(queue: &QueueMemory, state: QueuePairState, polling: u32) {
        queue.memory.word(TAKEN_OFFSET + 16).store(state.bits(), Ordering::Release);
        queue.memory.word(POLLING_OFFSET).store(polling, Ordering::Release);
    }

    /// Puts a result in, if the ring has room.
    pub fn complete(ring: &CompletionRing, entry: &ResultEntry) -> bool {
        let producer = ring.memory.word(0).load(Ordering::Acquire);
        let consumer = ring.memory.word(super::CONSUMER_OFFSET).load(Ordering::Acquire);
        if producer.wrapping_sub(consumer) >= ring.ring.entries {
            return false;
        }
        ring.memory.write(ring.ring.place(producer), entry.as_bytes());
        ring.memory.word(0).store(producer.wrapping_add(1), Ordering::Release);
        true
    }

    pub fn entries(ring: &CompletionRing) -> u32 {
        ring.ring.entries
    }

    /// Lets all counts begin elsewhere, near where they wrap.
    pub fn start_at(queue: &QueueMemory, ring: &RequestRing, count: u32) {
        *ring.counts.lock() = Counts::at(count);
        set_counts(queue, ring, count, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{thread, vec::Vec};

    fn queue(initiator_depth: u32) -> QueueMemory {
        let sizes =
            QueueSizes { initiator_depth, initiator_sges: 2, inline_data: 40, receive_depth: 3, receive_sges: 1 };
        QueueMemory::new(sizes).unwrap()
    }

    fn sge(address: u64, length: u32, token: u32) -> Sge {
        Sge { buffer: address as *mut _, buffer_length: length, memory_region_token: token }
    }

    #[test]
    fn room_is_depth_less_what_is_not_retired_and_ring_less_what_is_not_taken() {
        for (produced, taken, retired, expected) in [
            (0, 0, 0, true),
            (2, 2, 0, true),
            (3, 3, 0, false),
            (3, 3, 1, true),
            (7, 3, 7, false),
            (6, 3, 6, true),
            // Counts wrap.
            (1, u32::MAX, u32::MAX, true),
            (2, u32::MAX, u32::MAX, false),
            // More retired than produced.
            (0, 0, 1, true),
        ] {
            assert_eq!(has_room(produced, taken, retired, 3, 4), expected, "{produced} {taken} {retired}");
        }
        assert!(!has_room(0, 0, 0, 0, 0));
        assert!(has_room(1, 0, 0, u32::MAX, u32::MAX));
    }

    #[test]
    fn entries_are_written_before_the_count_and_in_their_places() {
        let queue = queue(3);
        driver::start_at(&queue, &queue.initiator, u32::MAX);
        let list = [sge(0x1000, 8, 5), sge(0x2000, 9, 6)];
        let head = InitiatorEntry { sge_count: 2, ..initiator_head(77, 1, 0) };
        assert_eq!(queue.put(&queue.initiator, &head, &SgeList(list.iter().copied())), Put::Unseen);
        assert_eq!(driver::produced(&queue, &queue.initiator), 0);
        let (found, behind) = driver::entry::<InitiatorEntry>(&queue, &queue.initiator, u32::MAX, 32);
        assert_eq!(found, head);
        assert_eq!(behind[..8], 0x1000_u64.to_le_bytes());
        assert_eq!(behind[24..28], 9_u32.to_le_bytes());
        assert_eq!(queue.put(&queue.initiator, &head, &Nothing), Put::Unseen);
        assert_eq!(queue.put(&queue.initiator, &head, &Nothing), Put::Unseen);
        assert_eq!(queue.put(&queue.initiator, &head, &Nothing), Put::NoRoom);
        assert_eq!(queue.outstanding(&queue.initiator), 3);
        driver::set_counts(&queue, &queue.initiator, 0, 0);
        assert_eq!(queue.put(&queue.initiator, &head, &Nothing), Put::Unseen);
    }

    #[test]
    fn inline_bytes_are_gathered_and_never_more_than_the_head_says() {
        let queue = queue(2);
        let (first, second) = ([1_u8, 2, 3], [4_u8; 100]);
        let list = [sge(first.as_ptr() as u64, 3, 0), sge(second.as_ptr() as u64, 100, 0)];
        let head = InitiatorEntry { inline_length: 5, ..initiator_head(1, 1, 0x20) };
        let payload = InlineBytes { list: list.iter().copied(), length: 5 };
        assert_eq!(queue.put(&queue.initiator, &head, &payload), Put::Unseen);
        let (_, behind) = driver::entry::<InitiatorEntry>(&queue, &queue.initiator, 0, 8);
        assert_eq!(behind, [1, 2, 3, 4, 4, 0, 0, 0]);
    }

    #[test]
    fn posts_of_several_threads_get_a_place_each() {
        const POSTS: u32 = 2000;
        let queue = queue(4);
        thread::scope(|scope| {
            for thread in 0..3_u64 {
                let queue = &queue;
                scope.spawn(move || {
                    for number in 0..u64::from(POSTS) {
                        let head = initiator_head(thread << 32 | number, 1, 0);
                        while queue.put(&queue.initiator, &head, &Nothing) == Put::NoRoom {
                            thread::yield_now();
                        }
                    }
                });
            }
            let mut next = [0_u64; 3];
            let mut taken = 0_u32;
            while taken < 3 * POSTS {
                if taken == driver::produced(&queue, &queue.initiator) {
                    thread::yield_now();
                    continue;
                }
                let (entry, _) = driver::entry::<InitiatorEntry>(&queue, &queue.initiator, taken, 0);
                let thread = (entry.context >> 32) as usize;
                assert_eq!(entry.context & 0xFFFF_FFFF, next[thread]);
                next[thread] += 1;
                taken += 1;
                driver::set_counts(&queue, &queue.initiator, taken, taken);
            }
        });
    }

    #[test]
    fn results_come_once_and_their_places_go_back() {
        let mut ring = CompletionRing::new(1).unwrap();
        let entries = driver::entries(&ring);
        assert_eq!(entries, 32);
        let result = |number: u64| ResultEntry { request_context: number, ..ResultEntry::new_zeroed() };
        let mut taken = Vec::new();
        for number in 0..100 {
            while !driver::complete(&ring, &result(number)) {
                assert_eq!(ring.available(), entries);
                assert_eq!(ring.take(5, |entry| taken.push(entry.request_context)), 5);
            }
        }
        while ring.take(7, |entry| taken.push(entry.request_context)) > 0 {}
        assert_eq!(taken, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_producer_count_of_nonsense_gives_no_more_than_the_ring_has() {
        let mut ring = CompletionRing::new(16).unwrap();
        ring.memory.word(0).store(0x8000_0000, Ordering::Release);
        assert_eq!(ring.take(u32::MAX, |_| ()), driver::entries(&ring));
    }
}
