//! Processes that are killed at any point of their life, by themselves or by another thread: what they had goes, and the peer sees the end of
//! the connection and nothing else.
//!
//! SOFTNDK_KILLS is how many there are, SOFTNDK_KILL_SEED the seed of the first: a kill whose seed is in the output comes first in another
//! run. One in two comes before a call that the seed chooses; the others come from another thread, wherever that finds the process.

use super::client::*;
use super::ends::*;
use fastrand::Rng;
use networkdirect::machine::{Machine, address, pass};
use networkdirect::{cases, cases::Case};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;

pub const CASES: &[Case] = cases![processes_killed_at_any_point_leave_nothing];

const CONNECTION_ABORTED: u32 = 0xC000_0241;
const INVALID_DEVICE_STATE: u32 = 0xC000_0184;
const TIMEOUT: u32 = 0xC000_00B5;

/// Rounds of one survivor.
const LIFE: u64 = 25;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect(name))
}

fn processes_killed_at_any_point_leave_nothing() {
    let machine = Machine::start();
    let (rounds, first) = (number("SOFTNDK_KILLS", 100), number("SOFTNDK_KILL_SEED", 1));
    let mut ends = [0_u32; 3];
    let mut survivor = Program::start(&machine);
    for round in 0..rounds {
        eprintln!("kill {}", first + round);
        let mut random = Rng::with_seed(first + round);
        let victim = Program::start(&machine);
        let to = address(2, 10_000 + (round % 50_000) as u16);
        let both = random.u8(..8) == 0;
        ends[live_and_die(&survivor, &victim, to, both, &mut random) as usize] += 1;
        drop(victim);
        if both || (round + 1) % LIFE == 0 {
            survivor = Program::start(&machine);
        }
    }
    drop(survivor);
    let [early, connected, late] = ends;
    println!(
        "kills: {rounds} processes killed: {early} before they were connected, {connected} while, {late} at their end"
    );
    assert!(rounds < 20 || early.min(connected) > 0, "the kills do not spread: {ends:?}");
    machine.finish();
}

/// Where a kill has found its victim.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    Early,
    Connected,
    Late,
}

/// The process was killed.
struct Dead;

/// A request of the survivor, and how it may end.
struct Waiting {
    slot: usize,
    address: u64,
    may: &'static [u32],
}

/// One side of a round. Nothing is allocated in the process from here on, because it may be dead at any time.
struct Side<'a, 'p> {
    end: &'a End<'p>,
    scratch: u64,
    used: Cell<u64>,
    /// Calls until the process is killed by this thread.
    left: Cell<u32>,
    waiting: RefCell<Vec<Waiting>>,
    token: u32,
    remote: (u64, u64),
}

const SCRATCH: u64 = 1 << 17;

impl<'a, 'p> Side<'a, 'p> {
    fn new(end: &'a End<'p>, left: u32, peer: &End<'_>) -> Self {
        let remote = (peer.buffer, peer.remote_token());
        let (scratch, token) = (end.program.zeroed(SCRATCH as usize), end.token() as u32);
        let (used, left) = (Cell::new(0), Cell::new(left));
        Self { end, scratch, used, left, waiting: RefCell::default(), token, remote }
    }

    fn place(&self, bytes: &[u8]) -> u64 {
        let place = self.scratch + self.used.get();
        self.used.set(self.used.get() + (bytes.len() as u64).next_multiple_of(16));
        assert!(self.used.get() < SCRATCH);
        let _where_it_lives = self.end.program.process.write(place as usize, bytes);
        place
    }

    fn overlapped(&self) -> u64 {
        self.place(&[0; 32])
    }

    fn long(&self, place: u64) -> Result<u64, Dead> {
        let bytes = self.end.program.process.read(place as usize, 8).ok_or(Dead)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    fn call(&self, object: &Com<'_>, slot: usize, arguments: &[u64]) -> Result<u32, Dead> {
        let process = &self.end.program.process;
        if self.left.get() == 0 {
            process.kill();
        }
        self.left.set(self.left.get().saturating_sub(1));
        let method = self.long(self.long(object.this)? + 8 * slot as u64)?;
        let all = [&[object.this], arguments].concat();
        // SAFETY: a method of a live interface with its arguments.
        unsafe { process.try_call(method as usize, &all) }.map(|status| status as u32).ok_or(Dead)
    }

    /// A call that must be answered so, unless the process is dead or the peer's end shows already.
    fn expect(&self, object: &Com<'_>, slot: usize, arguments: &[u64], may: &[u32]) -> Result<u32, Dead> {
        let status = self.call(object, slot, arguments)?;
        assert!(may.contains(&status), "slot {slot} answers {status:#010x}");
        Ok(status)
    }

    /// An overlapped request that is left alone until the peer is dead.
    fn begin(&self, object: &Com<'_>, slot: usize, arguments: &[u64], may: &'static [u32]) -> Result<u64, Dead> {
        let address = self.overlapped();
        let status = self.call(object, slot, &[arguments, &[address]].concat())?;
        assert!(status == PENDING || may.contains(&status), "slot {slot} answers {status:#010x}");
        if status == PENDING {
            self.waiting.borrow_mut().push(Waiting { slot, address, may });
        }
        Ok(address)
    }

    /// Waits for such a request, at most until one of both is dead.
    fn wait(&self, address: u64, peer: &Side<'_, '_>) -> Result<u32, Dead> {
        loop {
            let status = self.long(address)? as u32;
            if status != PENDING {
                return Ok(status);
            }
            if peer.end.program.process.is_dead() || self.end.program.process.is_dead() {
                return Err(Dead);
            }
            pass(1);
        }
    }

    fn sge(&self, length: u32) -> u64 {
        let offset = self.end.buffer;
        self.place(&[&offset.to_le_bytes()[..], &length.to_le_bytes(), &self.token.to_le_bytes()].concat())
    }
}

/// Begins to connect, as far as both live: the active side's Connect and the passive side's Accept.
fn establish(active: &Side<'_, '_>, passive: &Side<'_, '_>, listener: &Com<'_>, to: SocketAddr) -> Result<(), Dead> {
    let asked = passive.begin(listener, LISTENER_REQUEST, &[passive.end.connector.this], &[SUCCESS])?;
    let (own, length) = socket(active, address(1, 0));
    active.expect(&active.end.connector, CONNECTOR_BIND, &[own, length], &[SUCCESS])?;
    let (there, length) = socket(active, to);
    let arguments = [active.end.pair.this, there, length, 8, 8, 0, 0];
    let refused = &[SUCCESS, CONNECTION_REFUSED, TIMEOUT];
    let connecting = active.begin(&active.end.connector, CONNECTOR_CONNECT, &arguments, refused)?;
    passive.wait(asked, active)?;
    // The peer may be dead already, and its request withdrawn.
    let over = &[SUCCESS, CONNECTION_REFUSED, CONNECTION_ABORTED];
    let arguments = [passive.end.pair.this, 8, 8, 0, 0];
    let accepting = passive.begin(&passive.end.connector, CONNECTOR_ACCEPT, &arguments, over)?;
    active.wait(connecting, passive)?;
    let over = &[SUCCESS, CONNECTION_ABORTED, CONNECTION_INVALID];
    let completing = active.begin(&active.end.connector, CONNECTOR_COMPLETE, &[], over)?;
    active.wait(completing, passive)?;
    passive.wait(accepting, active)?;
    active.begin(&active.end.connector, CONNECTOR_NOTIFY, &[], &[SUCCESS, CONNECTION_DISCONNECTED])?;
    passive.begin(&passive.end.connector, CONNECTOR_NOTIFY, &[], &[SUCCESS, CONNECTION_DISCONNECTED])?;
    Ok(())
}

fn socket(side: &Side<'_, '_>, address: SocketAddr) -> (u64, u64) {
    let SocketAddr::V4(v4) = address else { panic!("IPv4 only") };
    let port = v4.port().to_be_bytes();
    (side.place(&[&[2, 0], &port[..], &v4.ip().octets(), &[0; 8]].concat()), 16)
}

const CANCELLED_OR_TOLD: &[u32] = &[SUCCESS, CANCELED];

/// One thing that a process with a connection does.
fn operate(side: &Side<'_, '_>, more: &More<'_>, random: &mut Rng) -> Result<(), Dead> {
    let end = side.end;
    let posted = &[SUCCESS, NO_MORE_ENTRIES, CONNECTION_INVALID];
    let sge = side.sge([64, 4096, 60_000][random.usize(..3)]);
    let (address, token) = side.remote;
    match random.u8(..14) {
        // Long enough for every message: one that is too long ends the connection of its sender without an event.
        0 | 1 => side.expect(&end.pair, RECEIVE, &[1, side.sge(60_000), 1], posted)?,
        2 | 3 => side.expect(&end.pair, SEND, &[2, sge, 1, 0], posted)?,
        4 => side.expect(&end.pair, READ, &[3, sge, 1, address, token, 0], posted)?,
        5 => side.expect(&end.pair, WRITE, &[4, sge, 1, address, token, SILENT], posted)?,
        6 => {
            side.begin(&end.queue, QUEUE_NOTIFY, &[random.u64(0..3)], CANCELLED_OR_TOLD)?;
            SUCCESS
        }
        7 => side.expect(&end.queue, CANCEL, &[], &[SUCCESS])?,
        // The region's memory is under way to the driver, or back from it, through the provider's own port.
        8 | 9 => {
            let length = [4096, 200_000][random.usize(..2)];
            let ends = &[SUCCESS, CANCELED, INVALID_DEVICE_STATE];
            side.begin(&more.region, REGION_REGISTER, &[end.buffer, length, LOCAL_WRITE], ends)?;
            SUCCESS
        }
        10 => {
            side.begin(&more.region, REGION_DEREGISTER, &[], &[SUCCESS, CANCELED, INVALID_DEVICE_STATE, DEVICE_BUSY])?;
            SUCCESS
        }
        11 => side.call(&more.region, CANCEL, &[])?,
        12 if !more.bound.get() => {
            let arguments = [5, end.region.this, more.window.this, end.buffer, 4096, ALLOW_READ | ALLOW_WRITE];
            let status = side.expect(&end.pair, BIND, &arguments, posted)?;
            more.bound.set(status == SUCCESS);
            status
        }
        // An Invalidate of a window that is not bound would end the connection.
        _ if more.bound.get() => {
            more.bound.set(false);
            side.expect(&end.pair, INVALIDATE, &[6, more.window.this, 0], posted)?
        }
        _ => SUCCESS,
    };
    Ok(())
}

/// Objects of which only some operations make use.
struct More<'p> {
    region: Com<'p>,
    window: Com<'p>,
    bound: Cell<bool>,
}

impl<'p> More<'p> {
    fn new(end: &End<'p>) -> Self {
        let make = |slot, iid, arguments: &[u64]| end.adapter.makes(slot, iid, arguments).expect("an object");
        Self {
            region: make(ADAPTER_MEMORY_REGION, IND2_MEMORY_REGION, &[end.file]),
            window: make(ADAPTER_MEMORY_WINDOW, IND2_MEMORY_WINDOW, &[]),
            bound: Cell::new(false),
        }
    }
}

/// A round: two processes connect and work until the victim is killed, and perhaps the survivor, too.
fn live_and_die(survivor: &Program, victim: &Program, to: SocketAddr, both: bool, random: &mut Rng) -> Point {
    let passive_dies = random.bool();
    let (active, passive) = if passive_dies { (survivor, victim) } else { (victim, survivor) };
    let (active, passive) = (End::new(active, 1), End::new(passive, 2));
    let more = [More::new(&active), More::new(&passive)];
    let listener = listen(&passive, to);
    let by_itself = random.bool();
    let mut calls = |dies: bool| if dies && by_itself { random.u32(..40) } else { u32::MAX };
    let sides = [Side::new(&active, calls(!passive_dies), &passive), Side::new(&passive, calls(passive_dies), &active)];
    let spins = random.u32(..if by_itself { 1 } else { 400_000 });
    let mut point = Point::Early;
    std::thread::scope(|scope| {
        let killer = (!by_itself).then(|| {
            scope.spawn(|| {
                let _attachment = kernel_host::thread::attach("killer");
                for _ in 0..spins {
                    std::hint::spin_loop();
                }
                victim.process.kill();
            })
        });
        // Dead by now, or done.
        let _: Result<(), Dead> = (|| {
            establish(&sides[0], &sides[1], &listener, to)?;
            point = Point::Connected;
            for _ in 0..100 {
                let which = random.usize(..2);
                operate(&sides[which], &more[which], random)?;
            }
            point = Point::Late;
            let side = &sides[random.usize(..2)];
            side.begin(&side.end.connector, CONNECTOR_DISCONNECT, &[], &[SUCCESS])?;
            Ok(())
        })();
        if let Some(killer) = killer {
            killer.join().expect("the killer ends");
        }
    });
    victim.process.kill();
    if both {
        survivor.process.kill();
    } else {
        see_the_end(&sides[usize::from(!passive_dies)], &more[usize::from(!passive_dies)], &listener, passive_dies);
    }
    point
}

/// What the survivor has under way ends by itself where the peer's death ends it, else as cancelled; every end is a documented one.
fn see_the_end(side: &Side<'_, '_>, more: &More<'_>, listener: &Com<'_>, listener_is_dead: bool) {
    let end = side.end;
    pass(5);
    for object in [&end.queue, &more.region].into_iter().chain((!listener_is_dead).then_some(listener)) {
        assert!(matches!(side.call(object, CANCEL, &[]), Ok(SUCCESS)));
    }
    let done: Vec<_> = std::iter::from_fn(|| Some(end.results()).filter(|some| !some.is_empty())).flatten().collect();
    for done in &done {
        assert!(matches!(done.status, SUCCESS | CANCELED), "the peer's death is told as a fault: {done:x?}");
    }
    for waiting in side.waiting.borrow().iter() {
        let ended = (0..60_000).find_map(|_| {
            let status = end.program.u32_at(waiting.address);
            (status == PENDING).then(|| pass(1)).is_none().then_some(status)
        });
        let status = ended.unwrap_or_else(|| panic!("the request of slot {} does not end", waiting.slot));
        // The event of the end is not one of those that were cancelled above.
        let may_be_cancelled = status == CANCELED && waiting.slot != CONNECTOR_NOTIFY;
        assert!(may_be_cancelled || waiting.may.contains(&status), "slot {} ends with {status:#010x}", waiting.slot);
    }
}
