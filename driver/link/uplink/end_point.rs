//! A VXLAN tunnel end point: one socket of UDP for all uplinks with its port and family.
//!
//! Senders queue datagrams here; one task at DISPATCH_LEVEL sends them and hands to the stations what comes: no call of Winsock
//! Kernel is made inside a send of NDIS, and no frame is indicated inside a completion of Winsock Kernel. A socket that cannot be made or
//! bound is made again after a while, because an adapter starts before TCP/IP may be there, and a port may become free.

use core::{
    ffi::c_void,
    mem,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ptr::NonNull,
    sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
};

use ndkpi_sys::nt::{NTSTATUS, STATUS_INSUFFICIENT_RESOURCES, STATUS_PENDING, STATUS_SUCCESS};
use softndk_cells::Serialized;
use softndk_kernel::{
    irql,
    pool::{NoMemory, PoolBox, PoolSpace},
    rundown::Rundown,
    timer::Timer,
    winsock::{Client, DatagramLosses, DatagramSlots, DatagramSocket, DatagramState, Wake},
    work::{Next, Processors, Queue, Repeated, Task},
};
use softndk_vxlan::{NetworkIdentifier, datagram, frame};
use wdk_sys::KDPC;

use super::departures::{DATAGRAM_MAX, Departure, Departures};
use crate::{link::Station, tags};

/// Calls under way in each direction.
const SLOTS: DatagramSlots = DatagramSlots { receives: 64, sends: 64, bytes: DATAGRAM_MAX };
/// Datagrams that one run of the task handles in each direction.
const ROUND: usize = 64;
/// Runs that a context makes for others, one behind the other.
const RUNS: usize = 8;
/// When a socket is made anew that could not be made or bound.
const RETRY: u64 = 1_000_000_000;
/// When a receive that failed is repeated.
const STALL: u64 = 100_000_000;

/// Calls its argument with every station there is, on whatever wire.
pub type Stations = fn(&mut dyn FnMut(&Task<Station>));

/// What all end points stand on.
#[derive(Clone, Copy)]
pub struct Surroundings {
    pub client: &'static Client,
    pub processors: &'static Processors,
    pub stations: Stations,
    /// Takes what the socket has come to. DISPATCH_LEVEL.
    pub changed: fn(TunnelPort, NTSTATUS),
}

/// Where an end point receives, and sends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelPort {
    pub is_v6: bool,
    pub port: u16,
}

pub struct EndPoint {
    at: TunnelPort,
    surroundings: Surroundings,
    departures: Departures,
    tunnel: Serialized<Tunnel>,
    /// What the last attempt has come to; STATUS_PENDING while it is under way.
    status: AtomicI32,
    pub counters: EndPointCounters,
    stopping: AtomicBool,
    retry: Timer,
    /// The timer has run.
    resumes: AtomicBool,
    /// One reference for the socket until its last completion, and one for the task while it is queued.
    running: Rundown,
}

/// Fields as in `UplinkDrops`.
#[derive(Default)]
pub struct EndPointCounters {
    pub unsent: AtomicU64,
    pub malformed: AtomicU64,
    pub foreign: AtomicU64,
}

/// What the task uses.
#[derive(Default)]
struct Tunnel {
    socket: Option<DatagramSocket<EndPointWake>>,
    /// It was taken from the queue, and the socket had no slot for it.
    next: Option<Departure>,
    /// Losses of the socket that are counted.
    losses: DatagramLosses,
    /// The timer is set: what failed is not tried before.
    waits: bool,
}

/// Has the end point's task run. Keeps the end point.
struct EndPointWake(NonNull<Task<EndPoint>>);

// SAFETY: an end point may be used from every thread.
unsafe impl Send for EndPointWake {}
// SAFETY: as above.
unsafe impl Sync for EndPointWake {}

impl EndPointWake {
    fn new(end_point: &Task<EndPoint>) -> Option<Self> {
        end_point.running.acquire().then(|| Self(NonNull::from(end_point)))
    }

    fn end_point(&self) -> &Task<EndPoint> {
        // SAFETY: the reference on the gate keeps the end point.
        unsafe { self.0.as_ref() }
    }
}

impl Wake for EndPointWake {
    fn wake(&self) {
        schedule(self.end_point());
    }
}

impl Drop for EndPointWake {
    fn drop(&mut self) {
        self.end_point().running.release();
    }
}

impl EndPoint {
    /// PASSIVE_LEVEL.
    pub fn try_new(at: TunnelPort, surroundings: Surroundings) -> Result<PoolBox<Task<Self>>, NoMemory> {
        let space = PoolSpace::<Task<Self>>::try_new(tags::UPLINK)?;
        // SAFETY: the routine takes the address of the end point; `stop` stops the timer before that goes.
        let retry = unsafe { Timer::try_new(tags::UPLINK, try_again, space.as_ptr().cast(), 0) }?;
        let end_point = Self {
            at,
            surroundings,
            departures: Departures::try_new()?,
            tunnel: Serialized::new(Tunnel::default()),
            status: AtomicI32::new(STATUS_PENDING),
            counters: EndPointCounters::default(),
            stopping: AtomicBool::new(false),
            retry,
            resumes: AtomicBool::new(false),
            running: Rundown::try_open(tags::RUNDOWN)?,
        };
        let end_point = space.fill(Task::new(end_point));
        schedule(&end_point);
        Ok(end_point)
    }

    /// Closes the socket and waits until nothing of it runs any more. PASSIVE_LEVEL, once, when no uplink uses it.
    pub fn stop(end_point: &Task<Self>) {
        end_point.stopping.store(true, Ordering::SeqCst);
        irql::raised(|_| work(end_point));
        end_point.running.shut();
        // Nothing sets it any more.
        end_point.retry.stop();
    }

    pub const fn at(&self) -> TunnelPort {
        self.at
    }

    /// STATUS_SUCCESS while it receives, STATUS_PENDING until it does, or why it does not.
    pub fn status(&self) -> NTSTATUS {
        self.status.load(Ordering::Relaxed)
    }

    /// Reports each change once: the same failure may come again each second.
    fn become_known(&self, status: NTSTATUS) {
        if self.status.swap(status, Ordering::Relaxed) != status {
            (self.surroundings.changed)(self.at, status);
        }
    }

    pub const fn departures(&self) -> &Departures {
        &self.departures
    }

    fn local_address(&self) -> SocketAddr {
        let any = if self.at.is_v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        SocketAddr::new(any, self.at.port)
    }
}

/// Has the task run, unless the end has begun: then false. `IRQL <= DISPATCH_LEVEL`.
pub fn schedule(end_point: &Task<EndPoint>) -> bool {
    if !end_point.running.acquire() {
        return false;
    }
    let queue = end_point.surroundings.processors.tasks(irql::processor());
    // SAFETY: the reference on the gate keeps the end point until its task has run.
    let queued = queue.is_some_and(|queue| unsafe { queue.task(end_point) });
    if !queued {
        end_point.running.release();
    }
    true
}

impl Repeated for EndPoint {
    fn run(task: &Task<Self>) -> Next {
        work(task);
        // The last thing: the end waits for it.
        task.running.release();
        Next::Done
    }
}

/// The timer's routine.
unsafe extern "C" fn try_again(_dpc: *mut KDPC, context: *mut c_void, _first: *mut c_void, _second: *mut c_void) {
    // SAFETY: the address of an end point, whose timer has not been stopped.
    if let Some(end_point) = unsafe { context.cast::<Task<EndPoint>>().as_ref() } {
        end_point.resumes.store(true, Ordering::Release);
        schedule(end_point);
    }
}

/// DISPATCH_LEVEL.
fn work(end_point: &Task<EndPoint>) {
    let mut held = end_point.tunnel.raise();
    for _ in 0..RUNS {
        let Some(mut tunnel) = held else { return };
        if end_point.stopping.load(Ordering::SeqCst) {
            drop(tunnel.socket.take());
        } else if step(end_point, &mut tunnel) {
            schedule(end_point);
        }
        held = tunnel.finish();
    }
    if held.is_some() {
        // Released first: a context that finds it held leaves. After `stop` no task is queued any more: this context closes the socket.
        drop(held);
        if !schedule(end_point) {
            work(end_point);
        }
    }
}

/// Opens the socket if there is none, and moves datagrams both ways; whether more are there.
fn step(end_point: &Task<EndPoint>, tunnel: &mut Tunnel) -> bool {
    let resumes = end_point.resumes.swap(false, Ordering::Acquire);
    tunnel.waits &= !resumes;
    if tunnel.socket.is_none() && !tunnel.waits {
        match open(end_point) {
            Ok(socket) => (tunnel.socket, tunnel.losses) = (Some(socket), DatagramLosses::default()),
            Err(status) => return fail(end_point, tunnel, status),
        }
    }
    let Some(socket) = &mut tunnel.socket else { return false };
    if resumes {
        socket.resume();
    } else {
        socket.advance();
    }
    match socket.state() {
        DatagramState::Starting => false,
        DatagramState::Failed(status) => {
            drop(tunnel.socket.take());
            fail(end_point, tunnel, status)
        }
        DatagramState::Open => {
            end_point.become_known(STATUS_SUCCESS);
            let more = receive(end_point, socket) | send(end_point, socket, &mut tunnel.next);
            socket.advance();
            count_losses(end_point, socket.losses(), &mut tunnel.losses);
            if socket.is_stalled() {
                wait(end_point, &mut tunnel.waits, STALL);
            }
            more
        }
    }
}

fn count_losses(end_point: &EndPoint, now: DatagramLosses, counted: &mut DatagramLosses) {
    let counters = &end_point.counters;
    counters.unsent.fetch_add(now.sends.saturating_sub(counted.sends), Ordering::Relaxed);
    counters.malformed.fetch_add(now.too_long.saturating_sub(counted.too_long), Ordering::Relaxed);
    *counted = now;
}

fn open(end_point: &Task<EndPoint>) -> Result<DatagramSocket<EndPointWake>, NTSTATUS> {
    let memory = |NoMemory| STATUS_INSUFFICIENT_RESOURCES;
    let mut socket = DatagramSocket::try_new(end_point.surroundings.client, tags::SOCKET, SLOTS).map_err(memory)?;
    let wake = EndPointWake::new(end_point).ok_or(STATUS_PENDING)?;
    socket.open(end_point.local_address(), wake);
    Ok(socket)
}

fn fail(end_point: &EndPoint, tunnel: &mut Tunnel, status: NTSTATUS) -> bool {
    end_point.become_known(status);
    wait(end_point, &mut tunnel.waits, RETRY);
    false
}

/// Sets the timer once: each datagram that is sent would put it off.
fn wait(end_point: &EndPoint, waits: &mut bool, nanoseconds: u64) {
    if !mem::replace(waits, true) {
        end_point.retry.set(nanoseconds);
    }
}

/// Hands datagrams to the stations; whether there may be more.
fn receive(end_point: &EndPoint, socket: &mut DatagramSocket<EndPointWake>) -> bool {
    let taken = (0..ROUND).take_while(|_| socket.receive(|from, bytes| arrive(end_point, from, bytes))).count();
    taken == ROUND
}

/// One datagram, to every station that has its sender as a peer of its network.
fn arrive(end_point: &EndPoint, from: SocketAddr, bytes: &[u8]) {
    let Ok((network, frame)) = datagram::read(bytes) else {
        end_point.counters.malformed.fetch_add(1, Ordering::Relaxed);
        return;
    };
    // What a peer sends inside a tunnel as another peer would come to the socket of an end point, as that peer's own.
    if frame::ip_source(frame).is_some_and(|address| is_a_peer(end_point, address)) {
        end_point.counters.foreign.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let mut taken = false;
    (end_point.surroundings.stations)(&mut |station| taken |= is_taken(end_point, station, network, from.ip(), frame));
    if !taken {
        end_point.counters.foreign.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether any uplink has the address as a peer, on whatever network and port.
fn is_a_peer(end_point: &EndPoint, address: IpAddr) -> bool {
    let mut is_one = false;
    (end_point.surroundings.stations)(&mut |station| {
        is_one |= station.uplink.as_ref().is_some_and(|uplink| uplink.has_peer(address));
    });
    is_one
}

fn is_taken(
    end_point: &EndPoint,
    station: &Task<Station>,
    network: NetworkIdentifier,
    from: IpAddr,
    frame: &[u8],
) -> bool {
    let uplink = station.uplink.as_ref().filter(|uplink| uplink.at() == end_point.at);
    uplink.is_some_and(|uplink| uplink.receive(station, network, from, frame))
}

/// Sends what waits, as far as the socket has slots; whether more waits for the next run.
fn send(end_point: &EndPoint, socket: &mut DatagramSocket<EndPointWake>, next: &mut Option<Departure>) -> bool {
    for _ in 0..ROUND {
        let Some(departure) = next.take().or_else(|| end_point.departures.pop()) else { return false };
        let to = SocketAddr::new(departure.to, end_point.at.port);
        let fill = |memory: &mut [u8]| {
            let bytes = departure.slot.get(..departure.length)?;
            memory.get_mut(..departure.length)?.copy_from_slice(bytes);
            Some(departure.length)
        };
        if !socket.send(to, fill) {
            // A completion wakes the task.
            *next = Some(departure);
            return false;
        }
        end_point.departures.put_free(departure.slot);
    }
    true
}
