//! Pool of fast mode: slots of size classes, each with a record beside it. A block costs what it costs on Windows, a list to take it
//! from and a header to fill in: one lock of some instructions, no search and no memory of the host's.
//!
//! Chunks lie at equal distances in one arena, so an address names its record. The record outlives its block: a second free and an
//! address inside of a block are seen as what they are. Slots that were freed last are used first.
//!
//! The bytes of each image are counted here for all of the pool.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::memory::address_space::{Protection, Reservation, Zone};
use crate::memory::pool::{CHUNK, PoolRequest, chunk_frames};
use crate::short_lock::ShortLock;
use crate::thread::Thread;

/// From one chunk to the next: what lies between has no access.
const STRIDE: usize = 2 * CHUNK;
/// A slot's number is that of its chunk and its place there.
const PLACE_BITS: u32 = 13;
const MOST_CHUNKS: usize = 1 << (u32::BITS - PLACE_BITS);
const CLASSES: usize = CHUNK.trailing_zeros() as usize + 1;
/// The image of a holding that can be used again.
const UNLOADED: usize = usize::MAX;
/// The end of a list of free slots.
const NONE: u32 = u32::MAX;

/// What is known of a slot: its block, or the last one.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    /// The next free slot of its class.
    next: u32,
    /// 0: it never had a block.
    size: u32,
    pub(crate) tag: u32,
    /// Index of its image in `holdings`.
    owner: u16,
    pub(crate) live: bool,
    pub(crate) paged: bool,
}

impl Record {
    const EMPTY: Self = Self { next: NONE, size: 0, tag: 0, owner: 0, live: false, paged: false };

    pub(crate) fn size(&self) -> usize {
        self.size as usize
    }
}

struct Chunk {
    /// Bytes of a slot, as a power of two.
    shift: u32,
    records: Box<[Record]>,
}

/// What one image has in the pool; 0 is the host.
struct Holding {
    image: usize,
    bytes: usize,
    /// The most since [`restart_most`].
    most: usize,
}

struct Slots {
    chunks: Vec<Chunk>,
    /// The first free slot of each class.
    free: [u32; CLASSES],
    live: usize,
    holdings: Vec<Holding>,
}

static SLOTS: ShortLock<Slots> =
    ShortLock::new(Slots { chunks: Vec::new(), free: [NONE; CLASSES], live: 0, holdings: Vec::new() });
/// Where the first chunk lies, once there is one.
static ARENA: AtomicUsize = AtomicUsize::new(0);
/// Held while a chunk is made, around `SLOTS`.
static GROWTH: Mutex<Option<Reservation>> = Mutex::new(None);

impl Slots {
    /// The newest images are asked for most.
    #[inline]
    fn holding(&mut self, image: usize) -> u16 {
        let known = self.holdings.iter().rposition(|holding| holding.image == image);
        known.unwrap_or_else(|| self.new_holding(image)) as u16
    }

    #[cold]
    fn new_holding(&mut self, image: usize) -> usize {
        let holding = Holding { image, bytes: 0, most: 0 };
        if let Some(index) = self.holdings.iter().position(|holding| holding.image == UNLOADED) {
            self.holdings[index] = holding;
            return index;
        }
        self.holdings.push(holding);
        self.holdings.len() - 1
    }

    #[inline]
    fn hold(&mut self, owner: u16, bytes: usize) {
        let holding = &mut self.holdings[usize::from(owner)];
        holding.bytes += bytes;
        holding.most = holding.most.max(holding.bytes);
    }

    #[inline]
    fn give_back(&mut self, owner: u16, bytes: usize) {
        self.holdings[usize::from(owner)].bytes -= bytes;
    }

    #[inline]
    fn take(&mut self, shift: u32, request: PoolRequest, image: usize) -> Option<usize> {
        let number = self.free[shift as usize];
        if number == NONE {
            return None;
        }
        let owner = self.holding(image);
        let (chunk, place) = parts(number);
        let record = &mut self.chunks[chunk].records[place];
        self.free[shift as usize] = record.next;
        let size = request.size as u32;
        *record = Record { next: NONE, size, tag: request.tag, owner, live: true, paged: request.paged };
        self.live += 1;
        self.hold(owner, request.size);
        Some(address_of(chunk, place, shift))
    }

    /// The slot that an address lies in.
    #[inline]
    fn find(&self, address: usize) -> Option<(usize, usize, &Chunk)> {
        let offset = address.checked_sub(ARENA.load(Ordering::Relaxed))?;
        let (index, within) = (offset / STRIDE, offset % STRIDE);
        let chunk = self.chunks.get(index)?;
        (within < CHUNK).then_some((index, within >> chunk.shift, chunk))
    }

    fn each_live(&self) -> impl Iterator<Item = &Record> {
        self.chunks.iter().flat_map(|chunk| &chunk.records).filter(|record| record.live)
    }
}

#[inline]
fn parts(number: u32) -> (usize, usize) {
    ((number >> PLACE_BITS) as usize, (number & ((1 << PLACE_BITS) - 1)) as usize)
}

#[inline]
fn number_of(chunk: usize, place: usize) -> u32 {
    (chunk as u32) << PLACE_BITS | place as u32
}

#[inline]
fn address_of(chunk: usize, place: usize, shift: u32) -> usize {
    ARENA.load(Ordering::Relaxed) + chunk * STRIDE + (place << shift)
}

/// A block in a slot of `class` bytes, a power of two; `None` without memory.
#[inline]
pub(crate) fn allocate(class: usize, request: PoolRequest, image: usize) -> Option<usize> {
    let shift = class.trailing_zeros();
    let from_new_chunk = || Thread::current().stretch.leave_out(|| allocate_from_new_chunk(shift, request, image));
    SLOTS.with(|slots| slots.take(shift, request, image)).or_else(from_new_chunk)
}

/// Mapping a chunk takes a quarter of a millisecond under a hypervisor, a few microseconds on Windows: no time of the driver's.
#[cold]
fn allocate_from_new_chunk(shift: u32, request: PoolRequest, image: usize) -> Option<usize> {
    let mut arena = GROWTH.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(address) = SLOTS.with(|slots| slots.take(shift, request, image)) {
        return Some(address);
    }
    if arena.is_none() {
        // One part more, to begin at a multiple.
        let whole = Reservation::new(Zone::Pool, (MOST_CHUNKS + 1) * STRIDE)?;
        ARENA.store(whole.address().next_multiple_of(STRIDE), Ordering::Relaxed);
        *arena = Some(whole);
    }
    let index = SLOTS.with(|slots| slots.chunks.len());
    let records = new_chunk(arena.as_ref()?, index, shift)?;
    SLOTS.with(|slots| {
        slots.chunks.push(Chunk { shift, records });
        slots.free[shift as usize] = number_of(index, 0);
        slots.take(shift, request, image)
    })
}

/// Maps a chunk and makes its records, which are linked in their order.
fn new_chunk(arena: &Reservation, index: usize, shift: u32) -> Option<Box<[Record]>> {
    if index == MOST_CHUNKS {
        return None;
    }
    let list = chunk_frames(1 << shift, CHUNK)?;
    let part = arena.part(address_of(index, 0, shift) - arena.address(), CHUNK);
    if !part.try_map(&list, Protection::ReadWrite) {
        crate::memory::frames::free(&list);
        return None;
    }
    let count = CHUNK >> shift;
    let next = |place: usize| if place + 1 < count { number_of(index, place + 1) } else { NONE };
    Some((0..count).map(|place| Record { next: next(place), ..Record::EMPTY }).collect())
}

/// What became of a free.
pub(crate) enum Outcome {
    Block(Record),
    /// A slot, but not the start of a block that lives.
    Wrong,
    /// No slot.
    Elsewhere,
}

/// Frees the block at an address.
#[inline]
pub(crate) fn free(address: usize) -> Outcome {
    SLOTS.with(|slots| {
        let Some((index, place, chunk)) = slots.find(address) else { return Outcome::Elsewhere };
        let shift = chunk.shift;
        let record = &mut slots.chunks[index].records[place];
        if !record.live || !address.is_multiple_of(1 << shift) {
            return Outcome::Wrong;
        }
        record.live = false;
        record.next = slots.free[shift as usize];
        let block = *record;
        slots.free[shift as usize] = number_of(index, place);
        slots.live -= 1;
        slots.give_back(block.owner, block.size());
        Outcome::Block(block)
    })
}

/// The block that an address lies in, or that its slot had last, and where it begins. For reports: nothing when a thread is
/// at the slots just now.
pub(crate) fn around(address: usize) -> Option<(usize, Record)> {
    let found = SLOTS.try_with(|slots| {
        let (index, place, chunk) = slots.find(address)?;
        let start = address_of(index, place, chunk.shift);
        Some((start, chunk.records[place]))
    });
    found.flatten().filter(|(start, record)| address < start + record.size())
}

/// Live blocks in slots.
pub(crate) fn live() -> usize {
    SLOTS.with(|slots| slots.live)
}

/// Live blocks in slots that belong to images.
pub(crate) fn of_images() -> usize {
    SLOTS.with(|slots| slots.each_live().filter(|record| slots.holdings[usize::from(record.owner)].image != 0).count())
}

/// Tag and size of the live blocks of an image, of all images for `None`.
pub(crate) fn outstanding(image: Option<usize>) -> Vec<(u32, usize)> {
    let is_asked_for = |owner: usize| image.map_or(owner != 0, |base| owner == base);
    SLOTS.with(|slots| {
        let asked_for = |record: &&Record| is_asked_for(slots.holdings[usize::from(record.owner)].image);
        slots.each_live().filter(asked_for).map(|record| (record.tag, record.size())).collect()
    })
}

/// Gives the blocks of an image in slots to the host. The image has no others by now.
pub(crate) fn disown(image: usize) {
    SLOTS.with(|slots| {
        let (from, to) = (slots.holding(image), slots.holding(0));
        let records = slots.chunks.iter_mut().flat_map(|chunk| &mut chunk.records);
        let mut bytes = 0;
        for record in records.filter(|record| record.live && record.owner == from) {
            record.owner = to;
            bytes += record.size();
        }
        slots.give_back(from, bytes);
        slots.hold(to, bytes);
        if slots.holdings[usize::from(from)].bytes == 0 {
            slots.holdings[usize::from(from)].image = UNLOADED;
        }
    });
}

/// An image has so many bytes more, in a block that is in no slot.
pub(crate) fn hold(image: usize, bytes: usize) {
    SLOTS.with(|slots| {
        let owner = slots.holding(image);
        slots.hold(owner, bytes);
    });
}

/// It has them no more.
pub(crate) fn give_back(image: usize, bytes: usize) {
    SLOTS.with(|slots| {
        let owner = slots.holding(image);
        slots.give_back(owner, bytes);
    });
}

/// The bytes of all.
pub(crate) fn bytes() -> usize {
    SLOTS.with(|slots| slots.holdings.iter().map(|holding| holding.bytes).sum())
}

/// From now on the most bytes that the image at `base` has at a time are kept.
pub(crate) fn restart_most(base: usize) {
    SLOTS.with(|slots| {
        let owner = usize::from(slots.holding(base));
        slots.holdings[owner].most = slots.holdings[owner].bytes;
    });
}

/// The most bytes of pool that the image at `base` has had at a time since [`restart_most`].
pub(crate) fn most_of(base: usize) -> usize {
    SLOTS.with(|slots| {
        let owner = usize::from(slots.holding(base));
        slots.holdings[owner].most
    })
}
