//! Non-paged pool. When verifying, every block has pages of its own, ends at a guard page, and its addresses are not
//! used again after it is freed, so overruns, underruns, and uses after free are seen at once or at the free. In fast
//! mode blocks come from size classes (`slots.rs`). Both modes record owner and tag; leaks are reported at unload by tag, and by
//! call site when verifying.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::bugcheck::{BugCheck, bugcheck};
use crate::image::stack_trace;
use crate::io::own_packet;
use crate::ledger::{self, Leak};
use crate::memory::address_space::{Protection, Reservation, Zone};
use crate::memory::slots::{Outcome, Record};
use crate::memory::{PAGE_SIZE, frames, map_budget, mdl, paged, slots};
use crate::ntoskrnl::{lookasides, work_items};
use crate::thread::Thread;
use crate::{dispatcher, dpc, irql, lock_order, mutex, spin_lock, timer};

/// A caller's requirements for a block.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolRequest {
    pub size: usize,
    pub tag: u32,
    pub zeroed: bool,
    pub cache_aligned: bool,
    pub paged: bool,
}

/// The byte around a block inside its pages.
const SLACK: u8 = 0xA7;
/// The byte of fresh memory that need not be zero.
const UNINITIALISED: u8 = 0xCD;

const POOL_ALIGNMENT: usize = 16;
const CACHE_LINE: usize = 64;

/// What slots are cut from, and the largest slot.
pub(crate) const CHUNK: usize = 256 * 1024;
const LARGEST_CLASS: usize = CHUNK;
const SMALLEST_CLASS: usize = 32;

/// How many freed blocks the reports remember.
const REMEMBERED: usize = 65_536;

enum Storage {
    /// Pages of its own, with a page without access behind them.
    Pages { reservation: Reservation, frames: Vec<u32>, pattern: bool },
    /// A slot of a size class.
    Slot(usize),
}

struct Block {
    size: usize,
    tag: u32,
    /// Base of the owning image; 0 is the host.
    image: usize,
    stack: Vec<u64>,
    paged: bool,
    storage: Storage,
}

#[derive(Clone)]
struct Freed {
    end: usize,
    size: usize,
    tag: u32,
    allocated_by: Vec<u64>,
    by: Vec<u64>,
}

#[derive(Default)]
struct Pool {
    blocks: BTreeMap<usize, Block>,
    freed: BTreeMap<usize, Freed>,
    order_of_frees: VecDeque<usize>,
    slots: HashMap<usize, Vec<usize>>,
    unguarded: usize,
}

/// From now on the most bytes that the image at `base` has at a time are kept.
pub fn restart_most(base: usize) {
    slots::restart_most(base);
}

/// The most bytes of pool that the image at `base` has had at a time since [`restart_most`].
pub fn most_of(base: usize) -> usize {
    slots::most_of(base)
}

static POOL: Mutex<Option<Pool>> = Mutex::new(None);

fn with<T>(body: impl FnOnce(&mut Pool) -> T) -> T {
    let mut pool: MutexGuard<'_, Option<Pool>> = POOL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    body(pool.get_or_insert_with(Pool::default))
}

/// A tag as tools show it.
pub fn tag_text(tag: u32) -> String {
    tag.to_le_bytes()
        .iter()
        .map(|byte| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' })
        .collect()
}

static MOST_ZEROES: AtomicUsize = AtomicUsize::new(0);

/// The most bytes that a caller at DISPATCH_LEVEL had zeroed in one allocation.
pub fn most_zeroes_at_dispatch() -> usize {
    MOST_ZEROES.load(Ordering::Relaxed)
}

pub(crate) fn record_zeroing_at_dispatch(size: usize) {
    MOST_ZEROES.fetch_max(size, Ordering::Relaxed);
}

/// Allocates for the image that called the running export. `what` names the export.
pub fn allocate(what: &str, request: PoolRequest) -> Option<*mut u8> {
    if request.tag == 0 {
        bugcheck(
            BugCheck::BAD_POOL_CALLER,
            [0x9B, 0, request.size as u64, 0],
            format!("{what} is asked for pool with tag 0"),
        );
    }
    if request.size == 0 {
        bugcheck(
            BugCheck::BAD_POOL_CALLER,
            [0, 0, 0, u64::from(request.tag)],
            format!("{what} is asked for pool of 0 bytes, tag '{}'", tag_text(request.tag)),
        );
    }
    let stack = if crate::kernel::is_verifying() { stack_trace::addresses() } else { Vec::new() };
    allocate_block(request, crate::callout::caller_base(), stack)
}

/// Allocates for the host itself: structures that images only read.
pub fn allocate_for_host(size: usize, tag: u32) -> Option<*mut u8> {
    allocate_block(PoolRequest { size, tag, zeroed: true, ..PoolRequest::default() }, 0, Vec::new())
}

/// Ends a lookaside list that is used for blocks without a size or a tag.
pub(crate) fn refuse(what: &str, size: usize, tag: u32) -> ! {
    let rule = format!("{what} is asked for blocks of {size} bytes with the tag {tag:#x}; neither may be 0");
    bugcheck(BugCheck::BAD_POOL_CALLER, [0x9B, size as u64, u64::from(tag), 0], rule)
}

/// Ends a driver that passes an address without a lookaside list.
pub(crate) fn not_a_list(function: &str, list: usize) -> ! {
    let rule = format!("{function} is given {list:#x}, which is no lookaside list (any more)");
    bugcheck(BugCheck::BAD_POOL_CALLER, [0x9C, list as u64, 0, 0], rule)
}

/// Frees what [`allocate_for_host`] gave.
pub fn free_for_host(address: *mut u8, tag: u32) {
    free("the host", address, Some(tag));
}

/// Lets nothing write into a block that the host lends for reading, where it has pages of its own.
pub(crate) fn make_read_only(address: *mut u8) {
    with(|pool| {
        if let Some(Block { storage: Storage::Pages { reservation, .. }, .. }) = pool.blocks.get(&(address as usize)) {
            reservation.protect(0, reservation.length(), Protection::ReadOnly);
        }
    });
}

fn allocate_block(request: PoolRequest, image: usize, stack: Vec<u64>) -> Option<*mut u8> {
    if !crate::kernel::is_verifying()
        && let Some(class) = slot_size(request)
    {
        let address = slots::allocate(class, request, image)? as *mut u8;
        if request.zeroed {
            // SAFETY: a block of that size, made just now.
            unsafe { address.write_bytes(0, request.size) };
        }
        return Some(address);
    }
    let pageable = request.paged && crate::kernel::is_verifying();
    let guarded = crate::kernel::is_verifying() && map_budget::allows_guards();
    let (address, storage) = if guarded || pageable || slot_size(request).is_none() {
        allocate_pages(request, guarded)?
    } else {
        allocate_slot(request)?
    };
    let fill = if request.zeroed {
        0
    } else if crate::kernel::is_verifying() {
        UNINITIALISED
    } else {
        // Fast mode leaves the contents as they are.
        return Some(record(request, image, stack, address, storage));
    };
    // SAFETY: a block of that size, made just now.
    unsafe { std::ptr::write_bytes(address as *mut u8, fill, request.size) };
    if let Storage::Pages { reservation, .. } = &storage
        && pageable
    {
        let what = format!("paged pool with the tag '{}', {} bytes", tag_text(request.tag), request.size);
        // SAFETY: the block's own pages; `free` takes the range back first.
        unsafe { paged::add(reservation.address(), reservation.length(), Protection::ReadWrite, what) };
    }
    Some(record(request, image, stack, address, storage))
}

fn record(request: PoolRequest, image: usize, stack: Vec<u64>, address: usize, storage: Storage) -> *mut u8 {
    slots::hold(image, request.size);
    with(|pool| {
        pool.unguarded += usize::from(matches!(storage, Storage::Slot(_)));
        pool.blocks.insert(
            address,
            Block { size: request.size, tag: request.tag, image, stack, paged: request.paged, storage },
        );
    });
    address as *mut u8
}

fn alignment(request: PoolRequest) -> usize {
    if request.cache_aligned { CACHE_LINE } else { POOL_ALIGNMENT }
}

/// Pages of its own. Blocks of a page and more begin at a page; smaller ones end at the page's end, and what they leave of their
/// pages has a pattern, if they are guarded.
fn allocate_pages(request: PoolRequest, guarded: bool) -> Option<(usize, Storage)> {
    let bytes = request.size.checked_next_multiple_of(PAGE_SIZE)?;
    let pages = bytes / PAGE_SIZE;
    let list = frames::allocate(pages)?;
    let zone = if request.paged { Zone::PagedPool } else { Zone::Pool };
    let Some(reservation) = Reservation::new(zone, bytes) else {
        frames::free(&list);
        return None;
    };
    if !reservation.try_map(&list, Protection::ReadWrite) {
        frames::free(&list);
        return None;
    }
    let start = reservation.address();
    let address = if request.size >= PAGE_SIZE || !guarded {
        start
    } else {
        let used = request.size.next_multiple_of(alignment(request));
        start + bytes - used
    };
    if guarded {
        // SAFETY: the pages were mapped just now.
        unsafe {
            std::ptr::write_bytes(start as *mut u8, SLACK, address - start);
            std::ptr::write_bytes((address + request.size) as *mut u8, SLACK, start + bytes - address - request.size);
        }
    }
    Some((address, Storage::Pages { reservation, frames: list, pattern: guarded }))
}

/// The size class of a request; none for what gets pages. Mapping pages and taking them away costs more than most drivers do with a
/// block, so in fast mode larger blocks have classes too. A block lies at a multiple of its class in its chunk, so that those of
/// a page and more begin at a page.
fn slot_size(request: PoolRequest) -> Option<usize> {
    let small = request.size < PAGE_SIZE / 2;
    let has_class = if crate::kernel::is_verifying() {
        small && !request.cache_aligned
    } else {
        request.size <= LARGEST_CLASS && (small || !request.paged)
    };
    let least = if request.cache_aligned { CACHE_LINE } else { SMALLEST_CLASS };
    has_class.then(|| request.size.next_power_of_two().max(least))
}

/// The memory of slots of a class: adjacent frames for small ones, those that pages of their own would have for the others.
pub(crate) fn chunk_frames(class: usize, bytes: usize) -> Option<Vec<u32>> {
    let pages = bytes / PAGE_SIZE;
    if class < PAGE_SIZE { Some(frames::allocate_run(pages)?.collect()) } else { frames::allocate(pages) }
}

fn allocate_slot(request: PoolRequest) -> Option<(usize, Storage)> {
    let class = slot_size(request)?;
    let free = with(|pool| pool.slots.entry(class).or_default().pop());
    if let Some(slot) = free {
        return Some((slot, Storage::Slot(class)));
    }
    let list = chunk_frames(class, CHUNK)?;
    let Some(reservation) = Reservation::new(Zone::Pool, CHUNK) else {
        frames::free(&list);
        return None;
    };
    if !reservation.try_map(&list, Protection::ReadWrite) {
        frames::free(&list);
        return None;
    }
    let start = reservation.address();
    with(|pool| pool.slots.entry(class).or_default().extend((1..CHUNK / class).map(|index| start + index * class)));
    Some((start, Storage::Slot(class)))
}

/// Frees a block. `tag` is `None` for the spelling without one.
pub fn free(what: &str, address: *mut u8, tag: Option<u32>) {
    let start = address as usize;
    match slots::free(start) {
        Outcome::Block(block) => check_free(what, start, tag, block.tag, block.paged),
        Outcome::Wrong => freed_wrongly(what, start, tag),
        Outcome::Elsewhere => free_by_map(what, start, tag),
    }
}

/// What a free has to be right about: the tag, and the level for paged pool.
#[inline]
fn check_free(what: &str, start: usize, given: Option<u32>, tag: u32, paged: bool) {
    if let Some(given) = given
        && given != 0
        && given != tag
    {
        wrong_tag(what, start, given, tag);
    }
    if paged && irql::current() > irql::APC {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0x11, u64::from(irql::current()), 1, start as u64],
            format!("{what} frees paged pool at {}; that needs <= APC_LEVEL", irql::name(irql::current())),
        );
    }
}

#[cold]
fn wrong_tag(what: &str, start: usize, given: u32, tag: u32) -> ! {
    bugcheck(
        BugCheck::BAD_POOL_CALLER,
        [0xA, start as u64, u64::from(tag), u64::from(given)],
        format!(
            "{what} is given the tag '{}' for a block that was allocated with '{}'",
            tag_text(given),
            tag_text(tag)
        ),
    )
}

/// Frees a block that has no slot of fast mode.
fn free_by_map(what: &str, start: usize, tag: Option<u32>) {
    let block = with(|pool| {
        let block = pool.blocks.remove(&start)?;
        pool.unguarded -= usize::from(matches!(block.storage, Storage::Slot(_)));
        Some(block)
    });
    let Some(block) = block else { freed_wrongly(what, start, tag) };
    slots::give_back(block.image, block.size);
    check_free(what, start, tag, block.tag, block.paged);
    let end = start + block.size;
    if crate::kernel::is_verifying() {
        check_slack(start, &block);
        check_unused(what, start, end);
    }
    match &block.storage {
        Storage::Pages { reservation, frames, .. } => Thread::current().stretch.leave_out(|| {
            if mdl::any_mapped() {
                mdl::check_frames_unmapped(frames, "a pool block is freed");
            }
            paged::remove(reservation.address());
            reservation.release();
            frames::free(frames);
            if crate::kernel::is_verifying() {
                remember(start, &block, reservation);
            }
        }),
        Storage::Slot(class) => with(|pool| pool.slots.entry(*class).or_default().push(start)),
    }
}

#[cold]
fn freed_wrongly(what: &str, start: usize, tag: Option<u32>) -> ! {
    let tag = u64::from(tag.unwrap_or(0));
    if let Some((at, block)) = slots::around(start) {
        slot_freed_wrongly(what, start, at, block);
    }
    let (parameters, rule) = with(|pool| {
        if let Some(freed) = pool.freed.get(&start) {
            let stack = stack_trace::name(&freed.by);
            let first = stack.first().map_or_else(|| "the host".to_owned(), ToString::to_string);
            return (
                [7, u64::from(freed.tag), 0, start as u64],
                format!(
                    "{what} frees {start:#x} (tag '{}') a second time; it was freed by {first}",
                    tag_text(freed.tag)
                ),
            );
        }
        let inside = pool.blocks.range(..start).next_back().filter(|(at, block)| start < **at + block.size);
        match inside {
            Some((at, block)) => (
                [0x46, start as u64, *at as u64, u64::from(block.tag)],
                format!("{what} is given {start:#x}, which lies inside the block at {at:#x}"),
            ),
            None => ([0x46, start as u64, 0, tag], format!("{what} is given {start:#x}, which is no pool block")),
        }
    });
    bugcheck(BugCheck::BAD_POOL_CALLER, parameters, rule)
}

/// `start` lies in the slot whose block, or last block, is at `at`.
fn slot_freed_wrongly(what: &str, start: usize, at: usize, block: Record) -> ! {
    let tag = u64::from(block.tag);
    let (parameters, rule) = if block.live {
        let rule = format!("{what} is given {start:#x}, which lies inside the block at {at:#x}");
        ([0x46, start as u64, at as u64, tag], rule)
    } else if at == start {
        let rule = format!("{what} frees {start:#x} (tag '{}') a second time", tag_text(block.tag));
        ([7, tag, 0, start as u64], rule)
    } else {
        ([0x46, start as u64, 0, tag], format!("{what} is given {start:#x}, which is no pool block"))
    };
    bugcheck(BugCheck::BAD_POOL_CALLER, parameters, rule)
}

/// A page of slack, to compare with.
const PATTERN: [u8; PAGE_SIZE] = [SLACK; PAGE_SIZE];

/// Checks the bytes around a block in its pages.
fn check_slack(start: usize, block: &Block) {
    // A block that got no guard, because maps are short, has no pattern around it either.
    let Storage::Pages { reservation, pattern: true, .. } = &block.storage else { return };
    let first = reservation.address();
    let end = start + block.size;
    let last = first + reservation.length();
    let dirty = |from: usize, to: usize| {
        // SAFETY: the block's own pages; less than a page on either side of a block is slack.
        let slack = unsafe { std::slice::from_raw_parts(from as *const u8, to - from) };
        let clean = PATTERN.get(..slack.len()).is_some_and(|pattern| pattern == slack);
        if clean { None } else { slack.iter().position(|byte| *byte != SLACK).map(|index| from + index) }
    };
    // What lies before a block of a page and more is nothing.
    if let Some(at) = dirty(first, start) {
        bad_slack(start, block, at, "in front of");
    }
    if let Some(at) = dirty(end, last) {
        bad_slack(start, block, at, "behind");
    }
}

#[cold]
fn bad_slack(start: usize, block: &Block, at: usize, place: &str) -> ! {
    bugcheck(
        BugCheck::BAD_POOL_HEADER,
        [0x20, start as u64, at as u64, block.size as u64],
        format!(
            "a byte {place} the pool block at {start:#x} (tag '{}', {} bytes) was overwritten; seen at its free",
            tag_text(block.tag),
            block.size
        ),
    )
}

/// Kernel objects inside freed memory that the kernel still uses.
fn check_unused(what: &str, start: usize, end: usize) {
    const TIMERS: BugCheck = BugCheck::TIMER_OR_DPC_INVALID;
    const VERIFIER: BugCheck = BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION;
    let found = [
        (timer::set_within(start, end), "a timer that is set", TIMERS, 0x1012),
        (dpc::queued_within(start, end), "a DPC that is queued", TIMERS, 0x1012),
        (dispatcher::waited_within(start, end), "a dispatcher object that a thread waits for", VERIFIER, 0x1012),
        (spin_lock::held_within(start, end), "a spin lock that is held", VERIFIER, 0x1012),
        (mutex::held_within(start, end), "a mutex that is held", VERIFIER, 0x1012),
        (work_items::queued_within(start, end), "a work item that is queued", VERIFIER, 0x1012),
        (own_packet::in_use_within(start, end), "an IRP that a provider has", VERIFIER, 0x1012),
        (ledger::within(own_packet::LEDGER_KIND, start..end), "an IRP, which IoFreeIrp is for", VERIFIER, 0x105),
        (lookasides::live_within(start, end), "a lookaside list that was not deleted", VERIFIER, 0xCC),
    ];
    for (address, resource, code, subject) in found {
        if let Some(address) = address {
            bugcheck(
                code,
                [subject, address as u64, start as u64, end as u64],
                format!("{what} frees memory that holds {resource}"),
            );
        }
    }
    lock_order::forget(&(start..end));
}

fn remember(start: usize, block: &Block, reservation: &Reservation) {
    let freed = Freed {
        end: reservation.address() + reservation.length() + PAGE_SIZE,
        size: block.size,
        tag: block.tag,
        allocated_by: block.stack.clone(),
        by: stack_trace::addresses(),
    };
    with(|pool| {
        pool.freed.insert(start, freed);
        pool.order_of_frees.push_back(start);
        if pool.order_of_frees.len() > REMEMBERED
            && let Some(oldest) = pool.order_of_frees.pop_front()
        {
            pool.freed.remove(&oldest);
        }
    });
}

/// What the pool zone holds at an address, for the fault handler: the bugcheck, and a sentence.
pub(crate) fn describe(address: usize) -> (BugCheck, String) {
    let Ok(pool) = POOL.try_lock() else { return (BugCheck::PAGE_FAULT_IN_NONPAGED_AREA, "pool".to_owned()) };
    let Some(pool) = pool.as_ref() else { return (BugCheck::PAGE_FAULT_IN_NONPAGED_AREA, "pool".to_owned()) };
    let page = address & !(PAGE_SIZE - 1);
    // The page without access between two blocks is behind one and in front of the other: the nearer one counts.
    let before = pool.blocks.range(..=address).next_back().filter(|(_, block)| match &block.storage {
        Storage::Pages { reservation, .. } => page <= (reservation.address() + reservation.length()),
        Storage::Slot(_) => false,
    });
    let after = pool.blocks.range(address..).next().filter(|(_, block)| {
        matches!(&block.storage, Storage::Pages { reservation, .. } if reservation.address() == page + PAGE_SIZE)
    });
    let freed = pool
        .freed
        .range(..=page + PAGE_SIZE)
        .rev()
        .take(4)
        .find(|(at, freed)| (*at & !(PAGE_SIZE - 1)..freed.end).contains(&address));
    let inside_freed = freed.is_some_and(|(_, freed)| address < freed.end - PAGE_SIZE);
    let distance_before = before.map_or(usize::MAX, |(at, block)| address.saturating_sub(at + block.size));
    if let Some((at, block)) = after
        && !inside_freed
        && at - address < distance_before
    {
        let text = format!("{} bytes in front of {}", at - address, block_text(*at, block));
        return (BugCheck::PAGE_FAULT_IN_NONPAGED_AREA, text);
    }
    if let Some((at, block)) = before
        && !inside_freed
    {
        let text = match address.checked_sub(at + block.size) {
            Some(distance) => format!("{distance} bytes behind the end of {}", block_text(*at, block)),
            None => format!("inside {}", block_text(*at, block)),
        };
        return (BugCheck::PAGE_FAULT_BEYOND_END_OF_ALLOCATION, text);
    }
    match freed {
        Some((at, freed)) => (
            BugCheck::PAGE_FAULT_IN_FREED_SPECIAL_POOL,
            format!(
                "inside or behind the freed pool block at {at:#x} (tag '{}', {} bytes), allocated by{}\n***   and freed by{}",
                tag_text(freed.tag),
                freed.size,
                stack_text(&freed.allocated_by),
                stack_text(&freed.by)
            ),
        ),
        None => (BugCheck::PAGE_FAULT_IN_NONPAGED_AREA, "an address of the pool where no block is".to_owned()),
    }
}

/// The live block that an address lies in; for reports.
pub(crate) fn whereabouts(address: usize) -> Option<String> {
    let text = |at: usize, tag: u32, size: usize| {
        format!("in the pool block at {at:#x} (tag '{}', {size} bytes)", tag_text(tag))
    };
    if let Some((at, block)) = slots::around(address).filter(|(_, block)| block.live) {
        return Some(text(at, block.tag, block.size()));
    }
    let pool = POOL.try_lock().ok()?;
    let (at, block) = pool.as_ref()?.blocks.range(..=address).next_back()?;
    (address < at + block.size).then(|| text(*at, block.tag, block.size))
}

fn block_text(at: usize, block: &Block) -> String {
    format!(
        "the pool block at {at:#x} (tag '{}', {} bytes), allocated by{}",
        tag_text(block.tag),
        block.size,
        stack_text(&block.stack)
    )
}

fn stack_text(stack: &[u64]) -> String {
    let frames = stack_trace::name(stack);
    if frames.is_empty() {
        return " the host".to_owned();
    }
    let mut text = String::new();
    for frame in frames.iter().take(6) {
        let _ = write!(text, "\n***     {frame}");
    }
    text
}

/// Live blocks and bytes of all images.
pub fn usage() -> (usize, usize) {
    (with(|pool| pool.blocks.len()) + slots::live(), slots::bytes())
}

/// Live blocks of images only.
pub fn blocks_of_images() -> usize {
    with(|pool| pool.blocks.values().filter(|block| block.image != 0).count()) + slots::of_images()
}

/// Blocks that have no guard page although the host verifies.
pub fn unguarded() -> usize {
    with(|pool| pool.unguarded)
}

/// What an image (base address; `None` for all images) still holds, by tag and call site.
pub fn outstanding(image: Option<usize>) -> Vec<Leak> {
    let held: Vec<(String, String, usize, Vec<u64>)> = with(|pool| {
        pool.blocks
            .values()
            .filter(|block| image.map_or(block.image != 0, |base| block.image == base))
            .map(|block| {
                (
                    "pool block".to_owned(),
                    format!("with tag '{}'", tag_text(block.tag)),
                    block.size,
                    block.stack.clone(),
                )
            })
            .collect()
    });
    let in_slots = slots::outstanding(image).into_iter();
    let in_slots = in_slots
        .map(|(tag, size)| ("pool block".to_owned(), format!("with tag '{}'", tag_text(tag)), size, Vec::new()));
    ledger::group(held.into_iter().chain(in_slots))
}

/// Gives an image's blocks to the host, after they were reported, so that they are not reported again.
pub(crate) fn disown(image: usize) {
    with(|pool| {
        for block in pool.blocks.values_mut().filter(|block| block.image == image) {
            slots::give_back(block.image, block.size);
            slots::hold(0, block.size);
            block.image = 0;
        }
    });
    slots::disown(image);
}
