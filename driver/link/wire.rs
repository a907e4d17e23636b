//! The virtual wire for raw frames: what one station sends, every other station with the same wire number receives, and those of other
//! machines where the sender has an uplink.
//!
//! It carries ARP, neighbour discovery and other frames; RDMA never comes here. A frame is copied into a list of the receiver's
//! own and indicated by the receiver's task, never from the sender's call, so that an answer inside the indication cannot
//! recurse. The layers above may keep lists until a pause; when few frames are left they must copy instead
//! (NDIS_RECEIVE_FLAGS_RESOURCES), and the lists come back at once.

use core::{ptr, slice, sync::atomic::Ordering};

use ndkpi_sys::{
    ndis::{
        NDIS_DEFAULT_PORT_NUMBER, NDIS_HANDLE, NDIS_NET_BUFFER_LIST_INFO_SLOTS, NDIS_OBJECT_HEADER,
        NDIS_OBJECT_TYPE_DEFAULT, NDIS_PACKET_TYPES, NDIS_PROTOCOL_ID_DEFAULT, NDIS_RECEIVE_FLAGS,
        NDIS_SEND_COMPLETE_FLAGS, NDIS_SEND_FLAGS, NDIS_SIZEOF_NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1, NDIS_STATUS,
        NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_NOT_ACCEPTED, NDIS_STATUS_PAUSED, NDIS_STATUS_RESOURCES,
        NDIS_STATUS_SUCCESS, NET_BUFFER, NET_BUFFER_LIST, NET_BUFFER_LIST_POOL_PARAMETERS,
        NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1, NdisAllocateNetBufferList, NdisAllocateNetBufferListPool,
        NdisFreeNetBufferList, NdisFreeNetBufferListPool, NdisGetDataBuffer, NdisMIndicateReceiveNetBufferLists,
        NdisMSendNetBufferListsComplete,
    },
    nt::MDL,
};
use softndk_kernel::{
    irql,
    pool_queue::PoolQueue,
    rundown::Rundown,
    spin_lock::SpinLock,
    work::{Next, Queue, Repeated, Task},
};

use super::{
    FRAME_MAX, FRAME_MIN, HEADER_LENGTH, Station,
    handle::{MacAddress, MiniportHandle},
    statistics::Destination,
};
use crate::tags;

/// Frames an adapter can hold that its protocols have not seen yet.
pub const FRAME_COUNT: usize = 256;
/// Frames indicated in one go.
const INDICATE_MAX: usize = 64;
/// With fewer frames free than these none is lent to the layers above.
const LEND_ABOVE: usize = FRAME_COUNT / 4;

/// The receiving end of one station.
pub struct Port {
    lists: ListPool,
    frames: SpinLock<Frames>,
    /// Open while the adapter is running. One reference for each frame that the layers above keep, and one for the station's
    /// task while it is queued.
    running: Rundown,
}

/// An NDIS pool of buffer lists.
struct ListPool(NDIS_HANDLE);

// SAFETY: a token that NDIS accepts from every thread.
unsafe impl Send for ListPool {}
// SAFETY: as above.
unsafe impl Sync for ListPool {}

/// One preallocated list for a whole frame.
#[derive(Clone, Copy)]
struct Frame {
    list: *mut NET_BUFFER_LIST,
    bytes: *mut u8,
}

// SAFETY: the list is used by one holder at a time: the context that took it out of `Frames`.
unsafe impl Send for Frame {}

/// A frame on its way: filled, not yet indicated.
#[derive(Clone, Copy)]
struct Received {
    frame: Frame,
    length: u32,
}

// SAFETY: as Frame.
unsafe impl Send for Received {}

const NO_FRAME: Frame = Frame { list: ptr::null_mut(), bytes: ptr::null_mut() };

/// Both can hold all frames.
struct Frames {
    free: PoolQueue<Frame>,
    received: PoolQueue<Received>,
}

impl ListPool {
    fn try_new(miniport: MiniportHandle) -> Result<Self, NDIS_STATUS> {
        let mut parameters = NET_BUFFER_LIST_POOL_PARAMETERS {
            Header: NDIS_OBJECT_HEADER {
                Type: NDIS_OBJECT_TYPE_DEFAULT,
                Revision: NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1,
                Size: NDIS_SIZEOF_NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1,
            },
            ProtocolId: NDIS_PROTOCOL_ID_DEFAULT,
            fAllocateNetBuffer: 1,
            ContextSize: 0,
            PoolTag: tags::FRAME.value(),
            DataSize: FRAME_MAX,
        };
        // SAFETY: inside InitializeEx with the miniport's handle; the parameters are complete.
        let pool = unsafe { NdisAllocateNetBufferListPool(miniport.0, &raw mut parameters) };
        if pool.is_null() { Err(NDIS_STATUS_RESOURCES) } else { Ok(Self(pool)) }
    }

    fn allocate(&self) -> Option<Frame> {
        // SAFETY: the pool is alive; it was made with buffers, so the list comes with one NET_BUFFER and its data.
        let list = unsafe { NdisAllocateNetBufferList(self.0, 0, 0) };
        // SAFETY: null, or a fresh list of the driver's.
        let fresh = unsafe { list.as_ref() }?;
        // SAFETY: the list's NET_BUFFER belongs to it.
        let buffer = unsafe { fresh.FirstNetBuffer.as_ref() };
        // SAFETY: the NET_BUFFER's MDL belongs to it.
        let mdl = buffer.and_then(|buffer| unsafe { buffer.MdlChain.as_ref() });
        if let Some(bytes) = mdl.and_then(system_address) {
            return Some(Frame { list, bytes });
        }
        // SAFETY: the list is the driver's and not in use.
        unsafe { NdisFreeNetBufferList(list) };
        None
    }
}

impl Drop for ListPool {
    fn drop(&mut self) {
        // SAFETY: every list has gone back (`Port::drop`).
        unsafe { NdisFreeNetBufferListPool(self.0) };
    }
}

/// Where the data of an MDL that NDIS made lies: non-paged memory that is always mapped.
fn system_address(mdl: &MDL) -> Option<*mut u8> {
    let capacity = mdl.ByteCount >= FRAME_MAX;
    (capacity && !mdl.MappedSystemVa.is_null()).then_some(mdl.MappedSystemVa.cast())
}

impl Port {
    /// PASSIVE_LEVEL.
    pub fn try_new(miniport: MiniportHandle) -> Result<Self, NDIS_STATUS> {
        let none = |_| NDIS_STATUS_RESOURCES;
        let frames = Frames {
            free: PoolQueue::try_empty(tags::FRAME, FRAME_COUNT).map_err(none)?,
            received: PoolQueue::try_empty(tags::FRAME, FRAME_COUNT).map_err(none)?,
        };
        let port = Self {
            lists: ListPool::try_new(miniport)?,
            frames: SpinLock::new(frames),
            running: Rundown::try_shut(tags::RUNDOWN).map_err(none)?,
        };
        for _ in 0..FRAME_COUNT {
            let frame = port.lists.allocate().ok_or(NDIS_STATUS_RESOURCES)?;
            port.frames.lock().free.push(frame);
        }
        Ok(port)
    }

    /// Lets frames in and out. PASSIVE_LEVEL.
    pub fn restart(&self) {
        self.running.reopen();
    }

    /// Lets no more frames in or out and waits for those on their way. PASSIVE_LEVEL.
    pub fn pause(&self) {
        self.running.shut();
        while let Some(received) = self.next_received() {
            self.frames.lock().free.push(received.frame);
        }
    }

    /// For the last time. PASSIVE_LEVEL. Harmless after [`Port::pause`].
    pub fn stop(&self) {
        self.pause();
    }

    pub fn is_running(&self) -> bool {
        self.running.enter().is_some()
    }

    /// Whether frames may be lent to the layers above; then each has a reference on the gate.
    fn lend(&self, count: usize) -> bool {
        if self.frames.lock().free.count() < LEND_ABOVE {
            return false;
        }
        let lent = (0..count).take_while(|_| self.running.acquire()).count();
        if lent < count {
            // A pause has begun: it should not wait for the layers above.
            (0..lent).for_each(|_| self.running.release());
        }
        lent == count
    }

    fn next_received(&self) -> Option<Received> {
        self.frames.lock().received.pop()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        loop {
            let frame = self.frames.lock().free.pop();
            let Some(frame) = frame else { break };
            // SAFETY: the frame was free, so its list is not in use.
            unsafe { NdisFreeNetBufferList(frame.list) };
        }
    }
}

/// Calls its argument with every other station there is, on whatever wire.
pub type Others<'a> = &'a dyn Fn(&mut dyn FnMut(&Task<Station>));

/// Sends a chain of lists and completes all of it. `IRQL <= DISPATCH_LEVEL`.
///
/// # Safety
/// The chain belongs to the driver until it is completed.
pub unsafe fn send(station: &Station, others: Others<'_>, chain: *mut NET_BUFFER_LIST, send_flags: NDIS_SEND_FLAGS) {
    let running = station.port.running.enter();
    // NDIS: MiniportDevicePnPEventNotify. The device is gone, whatever NDIS has still on its way to it.
    let removed = station.removed.load(Ordering::Acquire);
    let mut next = chain;
    // SAFETY: the lists of the chain belong to the driver until they are completed.
    while let Some(list) = unsafe { next.as_mut() } {
        list.Status = match &running {
            _ if removed => NDIS_STATUS_NOT_ACCEPTED,
            None => NDIS_STATUS_PAUSED,
            Some(_) => send_list(station, others, list),
        };
        next = list.Next;
    }
    let mut flags = NDIS_SEND_COMPLETE_FLAGS::empty();
    flags.set(NDIS_SEND_COMPLETE_FLAGS::DISPATCH_LEVEL, send_flags.contains(NDIS_SEND_FLAGS::DISPATCH_LEVEL));
    // SAFETY: the chain was handed to the driver by NDIS for this station and every list has its status; no lock is held.
    unsafe { NdisMSendNetBufferListsComplete(station.miniport.0, chain, flags) };
    drop(running);
}

/// Puts every frame of a list on the wire; the status is that of the last frame that could not be sent.
fn send_list(station: &Station, others: Others<'_>, list: &NET_BUFFER_LIST) -> NDIS_STATUS {
    let mut status = NDIS_STATUS_SUCCESS;
    let mut next = list.FirstNetBuffer;
    // SAFETY: the buffers of a list belong to its owner.
    while let Some(buffer) = unsafe { next.as_mut() } {
        next = buffer.Next;
        if let Err(refused) = send_frame(station, others, buffer) {
            station.statistics.sent.errors.fetch_add(1, Ordering::Relaxed);
            status = refused;
        }
    }
    status
}

fn send_frame(station: &Station, others: Others<'_>, buffer: &mut NET_BUFFER) -> Result<(), NDIS_STATUS> {
    let length = data_length(buffer);
    if !(HEADER_LENGTH..=station.frame_max()).contains(&length) {
        return Err(NDIS_STATUS_INVALID_LENGTH);
    }
    let address = destination(buffer).ok_or(NDIS_STATUS_RESOURCES)?;
    let Reached { mut any, destination } = transmit(station, others, buffer, address)?;
    if let Some(uplink) = station.uplink.as_ref().filter(|_| !destination) {
        any |= uplink.send(buffer, address)?;
    }
    // No receiver on the wire: the frame is sent and dropped.
    if !any {
        station.statistics.sent.discards.fetch_add(1, Ordering::Relaxed);
    }
    station.statistics.sent.count(Destination::of(address), length as usize);
    Ok(())
}

/// Bytes of a frame, from the Ethernet header on.
fn data_length(buffer: &NET_BUFFER) -> u32 {
    // SAFETY: every bit pattern of the union is a number.
    unsafe { buffer.NbDataLength.DataLength }
}

/// The destination of a frame that holds at least a header; `None` when its memory cannot be mapped.
fn destination(buffer: &mut NET_BUFFER) -> Option<MacAddress> {
    let mut storage: MacAddress = [0; 6];
    // SAFETY: the buffer is the driver's and longer than an address; the storage holds one.
    let bytes = unsafe { NdisGetDataBuffer(buffer, storage.len() as u32, storage.as_mut_ptr().cast(), 1, 0) };
    // SAFETY: null, or as many bytes as asked for, in the buffer's memory or in the storage.
    unsafe { bytes.cast::<MacAddress>().as_ref() }.copied()
}

/// Which stations of this machine have taken a frame.
#[derive(Clone, Copy, Default)]
struct Reached {
    any: bool,
    /// The destination's own station is here, whether or not it has taken the frame.
    destination: bool,
}

/// Gives one frame to every other station on the wire. Fails when the frame's memory cannot be mapped.
fn transmit(
    sender: &Station,
    others: Others<'_>,
    buffer: &mut NET_BUFFER,
    address: MacAddress,
) -> Result<Reached, NDIS_STATUS> {
    let mut reached = Ok(Reached::default());
    others(&mut |receiver| {
        if receiver.wire_number == sender.wire_number
            && let Ok(before) = reached
        {
            let destination = before.destination || receiver.current_address == address;
            reached = deliver(receiver, buffer).map(|taken| Reached { any: before.any || taken, destination });
        }
    });
    reached
}

/// Copies a frame into the receiver's memory and leaves the rest to its task; whether it was taken. Fails when the sender's memory
/// cannot be mapped.
fn deliver(receiver: &Task<Station>, buffer: &mut NET_BUFFER) -> Result<bool, NDIS_STATUS> {
    if data_length(buffer) > receiver.frame_max() {
        receiver.statistics.received.errors.fetch_add(1, Ordering::Relaxed);
        return Ok(false);
    }
    hand_over(receiver, |memory| copy_frame(buffer, memory).ok_or(NDIS_STATUS_RESOURCES))
}

/// As [`deliver`], of a frame that came in a datagram and is not longer than the receiver's frames. DISPATCH_LEVEL.
pub fn deliver_bytes(receiver: &Task<Station>, bytes: &[u8]) {
    let copy = |memory: &mut [u8]| {
        memory.get_mut(..bytes.len()).ok_or(NDIS_STATUS_INVALID_LENGTH)?.copy_from_slice(bytes);
        Ok(pad(memory, bytes.len()))
    };
    let _taken = hand_over(receiver, copy);
}

/// Has a free frame of the receiver's filled and queues it; whether there was one.
fn hand_over(
    receiver: &Task<Station>,
    fill: impl FnOnce(&mut [u8]) -> Result<u32, NDIS_STATUS>,
) -> Result<bool, NDIS_STATUS> {
    let port = &receiver.port;
    let Some(_running) = port.running.enter() else { return Ok(false) };
    if receiver.removed.load(Ordering::Acquire) {
        return Ok(false);
    }
    let frame = port.frames.lock().free.pop();
    let Some(frame) = frame else {
        receiver.statistics.received.discards.fetch_add(1, Ordering::Relaxed);
        return Ok(false);
    };
    // SAFETY: the frame was taken out of the free ones, so its memory, which holds the longest frame, is this context's.
    let memory = unsafe { slice::from_raw_parts_mut(frame.bytes, FRAME_MAX as usize) };
    match fill(memory) {
        Ok(length) => {
            port.frames.lock().received.push(Received { frame, length });
            schedule(receiver);
            Ok(true)
        }
        Err(status) => {
            port.frames.lock().free.push(frame);
            Err(status)
        }
    }
}

/// Copies a frame's bytes to memory that holds the longest frame, and pads it to the shortest one.
pub fn copy_frame(buffer: &mut NET_BUFFER, memory: &mut [u8]) -> Option<u32> {
    let length = data_length(buffer);
    let target = memory.get_mut(..length as usize)?;
    let storage = target.as_mut_ptr();
    // SAFETY: the buffer is the driver's; `storage` holds `length` bytes. NDIS answers with a pointer into the buffer's own
    // memory, or with `storage` after copying, or with null when mapping failed.
    let bytes = unsafe { NdisGetDataBuffer(buffer, length, storage.cast(), 1, 0) }.cast::<u8>();
    if bytes.is_null() {
        return None;
    }
    if bytes != storage {
        // SAFETY: NDIS promises `length` bytes at `bytes`, which is not the driver's own memory.
        unsafe { storage.copy_from_nonoverlapping(bytes, length as usize) };
    }
    Some(pad(memory, length as usize))
}

/// Pads a frame of so many bytes to the shortest one; how many it has then.
fn pad(memory: &mut [u8], length: usize) -> u32 {
    if let Some(rest) = memory.get_mut(length..FRAME_MIN as usize) {
        rest.fill(0);
    }
    (length as u32).max(FRAME_MIN)
}

/// Has what a station received indicated. Not when a pause has begun: that throws the frames away.
fn schedule(station: &Task<Station>) {
    if !station.port.running.acquire() {
        return;
    }
    // SAFETY: the reference on the gate keeps the station until its task has run.
    let queued = station.processors.tasks(irql::processor()).is_some_and(|queue| unsafe { queue.task(station) });
    if !queued {
        station.port.running.release();
    }
}

impl Repeated for Station {
    fn run(task: &Task<Self>) -> Next {
        if indicate_received(task) == INDICATE_MAX {
            schedule(task);
        }
        // The last thing: a pause waits for it.
        task.port.running.release();
        Next::Done
    }
}

/// Indicates [`INDICATE_MAX`] frames at most; how many.
fn indicate_received(station: &Station) -> usize {
    // So that a run after a pause has begun indicates nothing.
    let Some(_running) = station.port.running.enter() else { return 0 };
    let mut taken = [NO_FRAME; INDICATE_MAX];
    let mut count = 0;
    let mut chain: *mut NET_BUFFER_LIST = ptr::null_mut();
    let mut end: *mut *mut NET_BUFFER_LIST = &raw mut chain;
    // In the order in which they came.
    while count < INDICATE_MAX {
        let Some(received) = station.port.next_received() else { break };
        if !passes(station, &received) {
            station.port.frames.lock().free.push(received.frame);
            continue;
        }
        // SAFETY: the frame was taken from the queue, so its list belongs to the driver.
        if let Some(list) = unsafe { received.frame.list.as_mut() } {
            prepare(station, list, received.frame.bytes, received.length);
            list.Next = ptr::null_mut();
            // SAFETY: the head above, or the link of the list before, which belongs to the driver until it is indicated.
            unsafe { end.write(list) };
            end = &raw mut list.Next;
        }
        if let Some(place) = taken.get_mut(count) {
            *place = received.frame;
            count += 1;
        }
    }
    if count != 0 && !station.port.lend(count) {
        indicate(station, chain, count, NDIS_RECEIVE_FLAGS::RESOURCES);
        for frame in taken.iter().take(count) {
            station.port.frames.lock().free.push(*frame);
        }
    } else if count != 0 {
        indicate(station, chain, count, NDIS_RECEIVE_FLAGS::empty());
    }
    count
}

/// Hands a chain to NDIS: for the call, with NDIS_RECEIVE_FLAGS_RESOURCES, or else until [`give_back`].
fn indicate(station: &Station, chain: *mut NET_BUFFER_LIST, count: usize, flags: NDIS_RECEIVE_FLAGS) {
    // SAFETY: DISPATCH_LEVEL in the driver's DPC, no lock held; the lists are the driver's own and prepared. Those that are
    // lent have a reference on the gate each and are not touched until they come back.
    unsafe {
        NdisMIndicateReceiveNetBufferLists(
            station.miniport.0,
            chain,
            NDIS_DEFAULT_PORT_NUMBER,
            count as u32,
            NDIS_RECEIVE_FLAGS::DISPATCH_LEVEL | flags,
        );
    }
}

/// Takes lists back that were lent. `IRQL <= DISPATCH_LEVEL`.
///
/// # Safety
/// The chain consists of lists that this station indicated without NDIS_RECEIVE_FLAGS_RESOURCES, given back once.
pub unsafe fn give_back(station: &Station, chain: *mut NET_BUFFER_LIST) {
    let mut next = chain;
    // SAFETY: the lists belong to the driver again (the caller's promise).
    while let Some(list) = unsafe { next.as_mut() } {
        next = list.Next;
        let frame = Frame { list, bytes: list.MiniportReserved[0].cast() };
        station.port.frames.lock().free.push(frame);
        // The last thing: a pause waits for it.
        station.port.running.release();
    }
}

/// Applies the packet filter and counts what passes.
fn passes(station: &Station, received: &Received) -> bool {
    // SAFETY: every received frame holds at least a header.
    let address = unsafe { received.frame.bytes.cast::<MacAddress>().read() };
    let filter = NDIS_PACKET_TYPES::from_bits_retain(station.packet_filter.load(Ordering::Relaxed));
    let destination = Destination::of(address);
    let passes = filter.contains(NDIS_PACKET_TYPES::PROMISCUOUS)
        || match destination {
            Destination::Unicast => filter.contains(NDIS_PACKET_TYPES::DIRECTED) && address == station.current_address,
            Destination::Broadcast => filter.contains(NDIS_PACKET_TYPES::BROADCAST),
            Destination::Multicast => {
                filter.contains(NDIS_PACKET_TYPES::ALL_MULTICAST)
                    || (filter.contains(NDIS_PACKET_TYPES::MULTICAST) && station.multicast.lock().contains(address))
            }
        };
    if passes {
        station.statistics.received.count(destination, received.length as usize);
    }
    passes
}

/// Makes a list ready to be indicated: one frame of `length` bytes from the start of its memory.
fn prepare(station: &Station, list: &mut NET_BUFFER_LIST, bytes: *mut u8, length: u32) {
    list.SourceHandle = station.miniport.0;
    list.Status = NDIS_STATUS_SUCCESS;
    list.NblFlags = 0;
    list.MiniportReserved[0] = bytes.cast();
    // The layers above wrote it for the previous frame.
    list.NetBufferListInfo = [ptr::null_mut(); NDIS_NET_BUFFER_LIST_INFO_SLOTS];
    // SAFETY: the list's NET_BUFFER belongs to it.
    if let Some(buffer) = unsafe { list.FirstNetBuffer.as_mut() } {
        buffer.CurrentMdl = buffer.MdlChain;
        buffer.CurrentMdlOffset = 0;
        buffer.DataOffset = 0;
        buffer.NbDataLength.stDataLength = length as usize;
    }
}
