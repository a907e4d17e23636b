//! The table of all pairs, and the request that makes one.
//!
//! A pair is found by its id and its file. What uses one holds a reference on its gate; ending a pair shuts the gate, waits,
//! and closes what it stands on. A pair whose connection ended stays in the table, without objects, until its file closes it.

use core::{
    net::SocketAddr,
    ops::Deref,
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use softndk_ioctl::{
    AdapterAddress, PairCreateReply, PairCreateRequest, PairEndpoint, PairLimits, RequestHeader, Status, adapter_limits,
};
use softndk_kernel::{
    event::Mutex,
    irp::{Buffer, Request},
    pool::{NoMemory, PoolArray, PoolBox},
};
use zerocopy::IntoBytes;

use super::{
    consumer::OpenedAdapter,
    pair::{self, Ends, Pair, Plan},
    request::RequestWait,
    worker::Workers,
};
use crate::{control::adapter_list, driver::Driver, tags};

/// Pairs of all files together.
const PAIR_MAX: usize = 256;
/// Bits of an id that are the slot.
const SLOT_BITS: u32 = 8;

pub struct Pairs {
    /// Held while a pair is ended or removed: one at a time, because a gate has one waiter.
    closing: Mutex<()>,
    slots: Mutex<PoolArray<Option<PoolBox<Pair>>>>,
    generation: AtomicU32,
    /// Pairs in the table: readable at any IRQL, which the table is not.
    live: AtomicU32,
}

/// A pair that cannot go away while this lives.
pub struct PairReference(NonNull<Pair>);

impl PairReference {
    fn take(pair: &PoolBox<Pair>) -> Option<Self> {
        pair.users.acquire().then(|| Self(NonNull::from(&**pair)))
    }
}

impl Deref for PairReference {
    type Target = Pair;

    fn deref(&self) -> &Pair {
        // SAFETY: the reference on the gate keeps the pair.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for PairReference {
    fn drop(&mut self) {
        self.users.release();
    }
}

/// A pair on which no other transfer can begin while this lives.
pub struct ClaimedPair(PairReference);

impl Deref for ClaimedPair {
    type Target = Pair;

    fn deref(&self) -> &Pair {
        &self.0
    }
}

impl Drop for ClaimedPair {
    fn drop(&mut self) {
        self.finish_transfer();
    }
}

impl Pairs {
    pub fn try_new() -> Result<Self, NoMemory> {
        let slots = PoolArray::try_from_fn(tags::SESSION, PAIR_MAX, |_| Ok::<_, NoMemory>(None))?;
        Ok(Self {
            closing: Mutex::try_new(tags::EVENT, ())?,
            slots: Mutex::try_new(tags::EVENT, slots)?,
            generation: AtomicU32::new(0),
            live: AtomicU32::new(0),
        })
    }

    /// The pair with this id on this file. PASSIVE_LEVEL.
    fn find(&self, id: u32, file: usize) -> Result<PairReference, Status> {
        let slots = self.slots.lock();
        let pair = slots.iter().flatten().find(|pair| pair.id == id && pair.file == file).ok_or(Status::NOT_FOUND)?;
        PairReference::take(pair).ok_or_else(|| pair.end_status())
    }

    /// The pair for a transfer: first come, first served. PASSIVE_LEVEL.
    pub fn claim(&self, id: u32, file: usize) -> Result<ClaimedPair, Status> {
        let pair = self.find(id, file)?;
        pair.begin_transfer()?;
        Ok(ClaimedPair(pair))
    }

    /// Puts a new pair in the table and takes a reference.
    fn insert(&self, file: usize, interfaces: [u32; 2], limits: PairLimits) -> Result<PairReference, Status> {
        let mut slots = self.slots.lock();
        let (slot, place) =
            slots.iter_mut().enumerate().find(|(_, place)| place.is_none()).ok_or(Status::INSUFFICIENT_RESOURCES)?;
        // Never 0, and not the same again for a long time.
        let generation = self.generation.fetch_add(1, Ordering::Relaxed) % ((1 << (32 - SLOT_BITS)) - 1) + 1;
        let pair = Pair::try_new(generation << SLOT_BITS | slot as u32, file, interfaces, limits)?;
        let reference = PairReference::take(&pair).ok_or(Status::INSUFFICIENT_RESOURCES)?;
        *place = Some(pair);
        self.live.fetch_add(1, Ordering::Relaxed);
        Ok(reference)
    }

    /// Ends a pair and takes it out of the table. PASSIVE_LEVEL.
    pub fn close(&self, id: u32, file: usize, workers: &Workers) -> Result<(), Status> {
        // Before `closing` is taken, as requests are completed by it.
        if self.condemn(|pair| pair.id == id && pair.file == file, Status::CANCELLED) {
            workers.call_off();
        }
        let slot = (id & ((1 << SLOT_BITS) - 1)) as usize;
        let _one_at_a_time = self.closing.lock();
        let pair = {
            let slots = self.slots.lock();
            let pair = slots.get(slot).and_then(Option::as_ref);
            let pair = pair.filter(|pair| pair.id == id && pair.file == file).ok_or(Status::NOT_FOUND)?;
            NonNull::from(&**pair)
        };
        // SAFETY: pairs are taken out of the table only under `closing`, which is held.
        unsafe { pair.as_ref() }.end();
        let closed = {
            let mut slots = self.slots.lock();
            slots.get_mut(slot).and_then(|place| place.take_if(|pair| pair.id == id))
        };
        let closed = closed.ok_or(Status::NOT_FOUND)?;
        self.live.fetch_sub(1, Ordering::Relaxed);
        drop(closed);
        Ok(())
    }

    /// Has the requests of some pairs give up; whether there is such a pair.
    fn condemn(&self, which: impl Fn(&Pair) -> bool, reason: Status) -> bool {
        let mut any = false;
        for pair in self.slots.lock().iter().flatten().filter(|pair| which(pair)) {
            pair.condemn(reason);
            any = true;
        }
        any
    }

    /// Closes all pairs of a file. PASSIVE_LEVEL, when no request of the file is left.
    pub fn close_file(&self, file: usize, workers: &Workers) {
        loop {
            let next = self.slots.lock().iter().flatten().find(|pair| pair.file == file).map(|pair| pair.id);
            let Some(id) = next else { break };
            let _closed = self.close(id, file, workers);
        }
    }

    /// Closes what pairs without a connection stand on; they stay in the table, dead. One whose addresses went ends at once, any
    /// other one when the transfer that runs on it is over, which is soon. PASSIVE_LEVEL.
    ///
    /// An adapter that goes waits for this. So everything of the pair is closed first, its opens last; only then is it asked, by
    /// opening them anew, whether its adapters are there.
    pub fn end_disconnected(&self, driver: &'static Driver) {
        for slot in 0..PAIR_MAX {
            let _one_at_a_time = self.closing.lock();
            let pair = {
                let slots = self.slots.lock();
                let pair = slots.get(slot).and_then(Option::as_ref);
                pair.filter(|pair| pair.ended().is_none()).map(|pair| NonNull::from(&**pair))
            };
            let Some(pair) = pair else { continue };
            // SAFETY: pairs are taken out of the table only under `closing`, which is held.
            let pair = unsafe { pair.as_ref() };
            if !pair.is_disconnected() && pair.addresses_are_there() {
                continue;
            }
            pair.set_disconnected();
            if !pair.addresses_are_there() {
                pair.condemn(Status::DEVICE_REMOVED);
                driver.workers.call_off();
            }
            pair.close_ends();
            pair.condemn(pair.disconnect_status(driver));
            // Transfers that have not begun end: all threads may be busy with others.
            driver.workers.call_off();
            pair.end();
        }
    }

    /// Pairs of all files. Any IRQL.
    pub fn count(&self) -> u32 {
        self.live.load(Ordering::Relaxed)
    }
}

/// Makes a pair. PASSIVE_LEVEL.
#[inline(never)]
pub fn create(
    driver: &'static Driver,
    request: &Request,
    asked: &PairCreateRequest,
    request_wait: &RequestWait<'_>,
) -> Result<usize, Status> {
    let mut buffer = Buffer::of(request);
    if buffer.output_length() < size_of::<PairCreateReply>() {
        return Err(Status::BUFFER_TOO_SMALL);
    }
    asked.check_fields()?;
    let client = adapter_list::open(driver, asked.client_adapter)?;
    let server = adapter_list::open(driver, asked.server_adapter)?;
    let interfaces = [client.interface(), server.interface()];
    let limits = limits(asked, &client, &server)?;
    let addresses = pair::choose_addresses(interfaces, asked.family)?;
    let pair = driver.pairs.insert(request_wait.file_id(), interfaces, limits)?;
    let plan = Plan { asked, pair: &pair, limits: &limits, addresses };
    let connected = connect(&pair, &plan, client, server, request_wait);
    let id = pair.id;
    drop(pair);
    // An event that came before the ends were in the pair has closed nothing.
    driver.closer.wake();
    match connected {
        Ok(made) => {
            let reply = PairCreateReply { pair: id, ..made };
            buffer.answer(reply.as_bytes()).ok_or(Status::BUFFER_TOO_SMALL)
        }
        Err(status) => {
            let _removed = driver.pairs.close(id, request_wait.file_id(), &driver.workers);
            Err(status)
        }
    }
}

/// What the pair may have, by what was asked for and by both adapters. Their descriptions are not part of the caller's frame.
#[inline(never)]
fn limits(asked: &PairCreateRequest, client: &OpenedAdapter, server: &OpenedAdapter) -> Result<PairLimits, Status> {
    let (client, server) = (client.handle().information()?, server.handle().information()?);
    asked.limits(&adapter_limits!(client), &adapter_limits!(server))
}

/// Connects the ends of a pair and describes them. Not part of its caller, whose frame would be there all the way down.
#[inline(never)]
fn connect(
    pair: &Pair,
    plan: &Plan<'_>,
    client: OpenedAdapter,
    server: OpenedAdapter,
    request_wait: &RequestWait<'_>,
) -> Result<PairCreateReply, Status> {
    let ends = Ends::connect(plan, client, server, &request_wait.with(pair))?;
    let [client, server] = ends.addresses.map(|address| endpoint(&address));
    let reply = PairCreateReply {
        header: RequestHeader::of::<PairCreateReply>(),
        pair: 0,
        initiator_queue_depth: pair.limits.initiator_queue_depth,
        receive_queue_depth: pair.limits.receive_queue_depth,
        max_request_sge: pair.limits.max_request_sge,
        read_limit: ends.read_limit,
        reserved: 0,
        client,
        server,
    };
    *pair.addresses.lock() = ends.addresses.map(|address| Some(address.ip()));
    *pair.ends.lock() = Some(ends);
    Ok(reply)
}

fn endpoint(address: &SocketAddr) -> PairEndpoint {
    let scope_id = match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    };
    PairEndpoint { address: AdapterAddress::new(address.ip(), 0, scope_id), port: address.port(), reserved: [0; 6] }
}
