//! The table of all pairs, and the request that makes one.
//!
//! A pair is found by its id and its file. Whoever uses one holds a reference on its gate; ending a pair shuts the gate, waits,
//! and closes what it stands on. A pair whose adapter went stays in the table, dead, until its file closes it.

use core::{
    net::SocketAddr,
    ops::Deref,
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use softndk_ioctl::{
    AdapterAddress, PairCreateReply, PairCreateRequest, PairEndpoint, PairLimits, RequestHeader, Status,
};
use softndk_kernel::{
    event::Mutex,
    pool::{OutOfMemory, PoolArray, PoolBox},
};

use super::{
    pair::{self, Ends, Pair, Plan},
    request::Patience,
    worker::Workers,
};
use crate::{
    adapter::Adapter,
    control::{adapter_list, irp::Request, request::Buffer},
    driver::{AdapterReference, Driver},
    tags,
};

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
    pub fn try_new() -> Result<Self, OutOfMemory> {
        let slots = PoolArray::try_from_fn(tags::SESSION, PAIR_MAX, |_| Ok::<_, OutOfMemory>(None))?;
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
        PairReference::take(pair).ok_or_else(|| pair.ended().unwrap_or(Status::NOT_FOUND))
    }

    /// The pair for a transfer: first come, first served. PASSIVE_LEVEL.
    pub fn claim(&self, id: u32, file: usize) -> Result<ClaimedPair, Status> {
        let pair = self.find(id, file)?;
        pair.begin_transfer()?;
        Ok(ClaimedPair(pair))
    }

    /// Puts a new pair in the table and takes a reference.
    fn insert(&self, file: usize, adapters: [usize; 2], limits: PairLimits) -> Result<PairReference, Status> {
        let mut slots = self.slots.lock();
        let (slot, place) =
            slots.iter_mut().enumerate().find(|(_, place)| place.is_none()).ok_or(Status::INSUFFICIENT_RESOURCES)?;
        // Never 0, and not the same again for a long time.
        let generation = self.generation.fetch_add(1, Ordering::Relaxed) % ((1 << (32 - SLOT_BITS)) - 1) + 1;
        let pair = Pair::try_new(generation << SLOT_BITS | slot as u32, file, adapters, limits)?;
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

    /// Ends all pairs that use an adapter; they stay in the table, dead. PASSIVE_LEVEL.
    pub fn end_adapter(&self, adapter: usize, workers: &Workers) {
        self.condemn(|pair| pair.adapters.contains(&adapter), Status::DEVICE_REMOVED);
        // Whether there is such a pair or not: scripts have the adapter open, too.
        workers.call_off();
        let _one_at_a_time = self.closing.lock();
        for slot in 0..PAIR_MAX {
            let pair = {
                let slots = self.slots.lock();
                let pair = slots.get(slot).and_then(Option::as_ref);
                pair.filter(|pair| pair.adapters.contains(&adapter)).map(|pair| NonNull::from(&**pair))
            };
            if let Some(pair) = pair {
                // SAFETY: pairs are taken out of the table only under `closing`, which is held.
                let pair = unsafe { pair.as_ref() };
                // One that is being made since; it gives up by itself.
                pair.condemn(Status::DEVICE_REMOVED);
                pair.end();
            }
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
    patience: &Patience<'_>,
) -> Result<usize, Status> {
    let mut buffer = Buffer::of(request);
    if buffer.output_length() < size_of::<PairCreateReply>() {
        return Err(Status::BUFFER_TOO_SMALL);
    }
    asked.check_fields()?;
    let client = driver.adapter(asked.client_adapter as usize).ok_or(Status::DEVICE_DOES_NOT_EXIST)?;
    let server = driver.adapter(asked.server_adapter as usize).ok_or(Status::DEVICE_DOES_NOT_EXIST)?;
    let limits =
        asked.limits(&adapter_list::limits(&client.ndk.information), &adapter_list::limits(&server.ndk.information))?;
    let addresses = pair::choose_addresses(&client, &server, asked.family)?;
    if client.configuration.wire_number != server.configuration.wire_number {
        return Err(Status::HOST_UNREACHABLE);
    }
    let adapters = [client.index, server.index];
    let pair = driver.pairs.insert(patience.file_id(), adapters, limits)?;
    let connected = ready(&client).and_then(|()| ready(&server)).and_then(|()| {
        let plan = Plan { asked, session: pair.id, limits: &limits, addresses };
        connect(&pair, &plan, client, server, patience)
    });
    let id = pair.id;
    drop(pair);
    match connected {
        Ok(reply) => buffer.reply(&PairCreateReply { pair: id, ..reply }),
        Err(status) => {
            let _removed = driver.pairs.close(id, patience.file_id(), &driver.workers);
            Err(status)
        }
    }
}

/// Whether sessions may be made on an adapter. Asked after the pair is in the table: whoever ends an adapter's sessions first
/// makes this say no and then goes through the table.
fn ready(adapter: &Adapter) -> Result<(), Status> {
    if adapter.provider.is_leaving() {
        Err(Status::DEVICE_REMOVED)
    } else if !adapter.provider.is_enabled() || !adapter.port.is_running() {
        Err(Status::DEVICE_NOT_READY)
    } else {
        Ok(())
    }
}

/// Connects the ends of a pair and describes them. Not part of its caller, whose frame would be there all the way down.
#[inline(never)]
fn connect(
    pair: &Pair,
    plan: &Plan<'_>,
    client: AdapterReference,
    server: AdapterReference,
    patience: &Patience<'_>,
) -> Result<PairCreateReply, Status> {
    let ends = Ends::connect(plan, client, server, &patience.with(pair))?;
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
