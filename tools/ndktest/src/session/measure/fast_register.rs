//! The loop that registers: NdkFastRegister of a list of pages, and NdkInvalidate.

use core::ptr;

use ndkpi_sys::{
    ndkpi::{NDK_LOGICAL_ADDRESS, NDK_OP_FLAGS, NDK_RESULT, NDK_SGE, NDK_SGE_ADDRESS},
    nt::PAGE_SIZE,
};
use softndk_ioctl::{MeasureFlags, MeasureRequest, MeasureResult, Status, scattered_page};
use softndk_kernel::{pool::PoolSlice, thread};

use super::{TimedSpan, interruption::Interruption, lane::Lane};
use crate::{
    driver::Driver,
    session::{
        consumer::check,
        memory::{LogicalMapping, Part, initialised_region},
        object::{FastRegistration, SgeList},
        pair::SPINS,
    },
    tags,
};

/// Pairs of requests before the time is taken, and between two looks at whether to go on.
const WARM_UP: u64 = 64;
const BATCH: u64 = 256;
/// The label of the first byte.
const BASE: u64 = 0x5EED_0000_0000;

/// Registers and invalidates so many times, then moves the bytes through one more registration. PASSIVE_LEVEL.
pub fn run(
    lane: &Lane<'_>,
    asked: &MeasureRequest,
    source: Option<&Part>,
    interruption: &Interruption<'_>,
    result: &mut MeasureResult,
) -> Result<TimedSpan, Status> {
    let clock = &Driver::get().ok_or(Status::DEVICE_REMOVED)?.clock;
    let source = source.ok_or(Status::INVALID_PARAMETER)?;
    // Before the region, which is closed first.
    let mapping = LogicalMapping::try_new(&lane.client.adapter, source.list(), source.length as usize)?;
    let pages = ordered(mapping.pages(), asked)?;
    let region = initialised_region(&lane.client.domain, pages.len() as u32, true)?;
    let length = asked.request_length as usize;
    let what = FastRegistration { region: region.handle(), pages: &pages, first_byte_offset: 0, length, base: BASE };
    let registration = Registration { lane, what };
    result.page_runs = runs(&pages);
    registration.repeat(WARM_UP.min(asked.request_count), interruption)?;
    let begun = clock.now();
    registration.repeat(asked.request_count, interruption)?;
    let span = TimedSpan { begun, ended: clock.now() };
    result.elapsed = span.length();
    result.posted = asked.request_count.saturating_mul(2);
    result.completed = result.posted;
    registration.write_through(interruption)?;
    Ok(span)
}

/// The pages in the order that was asked for.
fn ordered(mapped: &[NDK_LOGICAL_ADDRESS], asked: &MeasureRequest) -> Result<PoolSlice<NDK_LOGICAL_ADDRESS>, Status> {
    let count = asked.region_length / PAGE_SIZE as u64;
    let first = *mapped.first().ok_or(Status::INVALID_PARAMETER)?;
    let pages = PoolSlice::try_filled(tags::SESSION, count as usize, first);
    let mut pages = pages.map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
    let scattered = asked.flags.contains(MeasureFlags::SCATTERED);
    for (place, page) in pages.iter_mut().enumerate() {
        let wanted = if scattered { scattered_page(place as u64, count) } else { place as u64 };
        *page = *mapped.get(wanted as usize).ok_or(Status::INVALID_PARAMETER)?;
    }
    Ok(pages)
}

/// Runs of pages that follow each other in memory.
fn runs(pages: &[NDK_LOGICAL_ADDRESS]) -> u32 {
    let follows = |pair: &[NDK_LOGICAL_ADDRESS]| match pair {
        [first, second] => first.QuadPart.wrapping_add(PAGE_SIZE as i64) == second.QuadPart,
        _ => false,
    };
    let breaks = pages.windows(2).filter(|pair| !follows(pair)).count();
    breaks.saturating_add(usize::from(!pages.is_empty())) as u32
}

/// What is registered again and again.
struct Registration<'a> {
    lane: &'a Lane<'a>,
    what: FastRegistration<'a>,
}

impl Registration<'_> {
    fn repeat(&self, count: u64, interruption: &Interruption<'_>) -> Result<(), Status> {
        let mut left = count;
        while left > 0 {
            interruption.check()?;
            for _ in 0..left.min(BATCH) {
                self.register()?;
                self.invalidate()?;
                self.take(2, interruption)?;
            }
            left = left.saturating_sub(BATCH);
        }
        Ok(())
    }

    fn register(&self) -> Result<(), Status> {
        let queue_pair = self.lane.client.queue_pair.handle();
        // SAFETY: the mapping goes after the region.
        check(unsafe { queue_pair.fast_register(ptr::null_mut(), &self.what, NDK_OP_FLAGS::ALLOW_REMOTE_READ) })
    }

    fn invalidate(&self) -> Result<(), Status> {
        let queue_pair = self.lane.client.queue_pair.handle();
        check(queue_pair.invalidate(ptr::null_mut(), self.what.region, NDK_OP_FLAGS::empty()))
    }

    /// Takes exactly so many completions, all of them successes.
    fn take(&self, wanted: u32, interruption: &Interruption<'_>) -> Result<(), Status> {
        let mut results = [NDK_RESULT::zeroed(); 2];
        let (mut left, mut spins) = (wanted as usize, 0);
        while left > 0 {
            let room = results.get_mut(..left.min(2)).ok_or(Status::IO_DEVICE_ERROR)?;
            let count = self.lane.client.queue.handle().poll_first_form(room) as usize;
            for result in room.iter().take(count) {
                check(result.Status)?;
            }
            left = left.checked_sub(count).ok_or(Status::IO_DEVICE_ERROR)?;
            spins += u32::from(count == 0);
            if spins == SPINS {
                spins = 0;
                interruption.check()?;
                thread::pause();
            }
        }
        Ok(())
    }

    /// Writes the registered pages into the server's memory: what was registered is what was asked for.
    fn write_through(&self, interruption: &Interruption<'_>) -> Result<(), Status> {
        self.register()?;
        self.take(1, interruption)?;
        let address = NDK_SGE_ADDRESS { VirtualAddress: ptr::without_provenance_mut(BASE as usize) };
        let (length, token) = (self.what.length as u32, self.what.region.local_token());
        let sge = [NDK_SGE { Address: address, Length: length, MemoryRegionToken: token }];
        // SAFETY: the element lives for the call, the memory until the completion or the queue pair's close.
        let sges = unsafe { SgeList::new(&sge) };
        let (queue_pair, target) = (self.lane.client.queue_pair.handle(), &self.lane.server_memory);
        let flags = NDK_OP_FLAGS::empty();
        check(queue_pair.write(ptr::null_mut(), sges, target.address, target.remote_token, flags))?;
        self.take(1, interruption)?;
        self.invalidate()?;
        self.take(1, interruption)
    }
}
