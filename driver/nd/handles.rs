//! Tables of handles: numbers that mean something for one process only.
//!
//! A handle is a place and a generation, so that a number of the past is not a new object's. An entry is reserved before its object is
//! made and counts on those it is made from, which are busy as long as it is there. Rules: growing the table is the only
//! allocation, a block at a time, and may fail; all under the owner's lock, and no call looks at more than a block of places.

use softndk_kernel::pool::{NoMemory, PoolArray, Tag};

/// Entries of one block.
const BLOCK: usize = 128;
/// Blocks of a table: handles that it may have at a time are as many times more.
const BLOCKS: usize = 512;
/// Entries that one search under the owner's lock looks at.
const SEARCH: u32 = 128;
/// Objects that one is made from, at most.
pub const PARENTS: usize = 4;

/// Why a handle is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleError {
    /// It names nothing, or not what is asked for.
    Invalid,
    /// Others count on the object.
    Busy,
    NoMemory,
}

impl From<NoMemory> for HandleError {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

/// What a step of a search has found.
pub enum Taken<T> {
    Object(T),
    /// There are more places.
    NotYet,
    None,
}

pub struct HandleTable<T> {
    tag: Tag,
    blocks: PoolArray<Option<PoolArray<HandleEntry<T>>>>,
    /// Entries of the blocks there are.
    length: usize,
    /// The first free entry, counted from 1.
    free: usize,
}

struct HandleEntry<T> {
    generation: u32,
    content: Content<T>,
    /// Entries that count on this one.
    children: u32,
    parents: [u64; PARENTS],
}

enum Content<T> {
    /// With the next free one, counted from 1.
    Free(usize),
    Reserved,
    Used(T),
}

/// The place in a handle.
fn place_of(handle: u64) -> Option<usize> {
    (handle as u32 as usize).checked_sub(1)
}

impl<T> HandleTable<T> {
    pub fn try_new(tag: Tag) -> Result<Self, NoMemory> {
        let blocks = PoolArray::try_from_fn(tag, BLOCKS, |_| Ok::<_, NoMemory>(None))?;
        Ok(Self { tag, blocks, length: 0, free: 0 })
    }

    fn entry(&self, place: usize) -> Option<&HandleEntry<T>> {
        self.blocks.get(place / BLOCK)?.as_ref()?.get(place % BLOCK)
    }

    fn entry_mut(&mut self, place: usize) -> Option<&mut HandleEntry<T>> {
        self.blocks.get_mut(place / BLOCK)?.as_mut()?.get_mut(place % BLOCK)
    }

    /// The entry of a handle.
    fn named(&mut self, handle: u64) -> Option<&mut HandleEntry<T>> {
        let entry = self.entry_mut(place_of(handle)?)?;
        (u64::from(entry.generation) == handle >> 32).then_some(entry)
    }

    pub fn get(&self, handle: u64) -> Option<&T> {
        let entry = self.entry(place_of(handle)?)?;
        match &entry.content {
            Content::Used(value) if u64::from(entry.generation) == handle >> 32 => Some(value),
            _ => None,
        }
    }

    /// What is at a place, whatever its generation.
    pub fn at(&self, place: u32) -> Option<&T> {
        match &self.entry(place as usize)?.content {
            Content::Used(value) => Some(value),
            _ => None,
        }
    }

    /// Places there are: [`Self::at`] finds nothing behind them.
    pub fn length(&self) -> u32 {
        self.length as u32
    }

    fn grow(&mut self) -> Result<(), NoMemory> {
        let (tag, first) = (self.tag, self.length);
        let block = self.blocks.get_mut(first / BLOCK).ok_or(NoMemory)?;
        let last = first.saturating_add(BLOCK);
        let make = |index: usize| {
            let next = first.saturating_add(index).saturating_add(2);
            let content = Content::Free(if next > last { 0 } else { next });
            Ok::<_, NoMemory>(HandleEntry { generation: 1, content, children: 0, parents: [0; PARENTS] })
        };
        *block = Some(PoolArray::try_from_fn(tag, BLOCK, make)?);
        self.length = last;
        self.free = first.saturating_add(1);
        Ok(())
    }

    /// A handle without an object yet, made from others.
    pub fn reserve(&mut self, parents: &[u64]) -> Result<u64, HandleError> {
        if parents.iter().any(|parent| self.get(*parent).is_none()) || parents.len() > PARENTS {
            return Err(HandleError::Invalid);
        }
        if self.free == 0 {
            self.grow()?;
        }
        let place = self.free.checked_sub(1).ok_or(HandleError::NoMemory)?;
        let entry = self.entry_mut(place).ok_or(HandleError::NoMemory)?;
        let Content::Free(next) = entry.content else { return Err(HandleError::NoMemory) };
        entry.content = Content::Reserved;
        entry.children = 0;
        entry.parents = [0; PARENTS];
        for (to, from) in entry.parents.iter_mut().zip(parents) {
            *to = *from;
        }
        let handle = u64::from(entry.generation) << 32 | (place as u64).wrapping_add(1);
        self.free = next;
        for parent in parents {
            if let Some(parent) = self.named(*parent) {
                parent.children = parent.children.saturating_add(1);
            }
        }
        Ok(handle)
    }

    /// Gives a reserved handle its object.
    pub fn fill(&mut self, handle: u64, value: T) {
        if let Some(entry) = self.named(handle) {
            entry.content = Content::Used(value);
        }
    }

    /// Takes an object out that no other counts on.
    pub fn remove(&mut self, handle: u64, fits: impl FnOnce(&T) -> bool) -> Result<T, HandleError> {
        if !self.get(handle).is_some_and(fits) {
            return Err(HandleError::Invalid);
        }
        if self.named(handle).is_some_and(|entry| entry.children != 0) {
            return Err(HandleError::Busy);
        }
        self.clear(handle).ok_or(HandleError::Invalid)
    }

    /// Takes an object out, whatever counts on it; gives a reserved handle back.
    pub fn clear(&mut self, handle: u64) -> Option<T> {
        let free = self.free;
        let entry = self.named(handle)?;
        if matches!(entry.content, Content::Free(_)) {
            return None;
        }
        let content = core::mem::replace(&mut entry.content, Content::Free(free));
        let parents = core::mem::replace(&mut entry.parents, [0; PARENTS]);
        // Never 0, so that no handle is.
        entry.generation = entry.generation.wrapping_add(1).max(1);
        self.free = handle as u32 as usize;
        for parent in parents.into_iter().filter(|parent| *parent != 0) {
            if let Some(parent) = self.named(parent) {
                parent.children = parent.children.saturating_sub(1);
            }
        }
        match content {
            Content::Used(value) => Some(value),
            _ => None,
        }
    }

    /// Takes an object that `fits` out, one of the next [`SEARCH`] places.
    pub fn take(&mut self, from: &mut u32, fits: impl Fn(&T) -> bool) -> Taken<T> {
        for _ in 0..SEARCH {
            let place = *from;
            if place >= self.length() {
                return Taken::None;
            }
            let fitting = self.entry(place as usize).filter(|_| self.at(place).is_some_and(&fits));
            if let Some(generation) = fitting.map(|entry| entry.generation)
                && let Some(object) = self.clear(u64::from(generation) << 32 | u64::from(place).wrapping_add(1))
            {
                return Taken::Object(object);
            }
            *from = from.saturating_add(1);
        }
        Taken::NotYet
    }

    /// The place of a handle, by which [`Self::at`] finds its object.
    pub fn place(handle: u64) -> u32 {
        (handle as u32).wrapping_sub(1)
    }
}
