//! Every allocation of the engine made to fail once: a clean error, nothing left, and the next attempt succeeds.
//!
//! The allocator of this test counts per thread; the site is the n-th allocation inside the engine's calls.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;

use softndk_engine::{
    Accept, Connect, Limits, Outcome, QueuePair, QueuePairSettings, ReadLimits, Registration, RequestFlags, Rights,
    Semantics, Timeouts,
};
use softndk_engine_kit::{
    self as kit, A, B, Buffer, Depths, EVERYTHING, FIRST, Pair, SECOND, Side, World, outcomes, sge,
};

struct Failing;

thread_local! {
    /// Allocations until one fails; negative: none does.
    static LEFT: Cell<i64> = const { Cell::new(-1) };
    static ARMED: Cell<bool> = const { Cell::new(false) };
    static SEEN: Cell<u64> = const { Cell::new(0) };
}

fn fails() -> bool {
    if !ARMED.with(Cell::get) {
        return false;
    }
    SEEN.with(|seen| seen.set(seen.get() + 1));
    LEFT.with(|left| {
        let now = left.get();
        left.set(now - 1);
        now == 0
    })
}

// SAFETY: everything is passed to the system allocator or answered with null, which the contract allows.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if fails() {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; `place` came from the system allocator.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if fails() {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise; `place` came from the system allocator.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;

/// Runs one engine call with the allocator armed: what the test itself allocates does not fail.
fn engine<R>(call: impl FnOnce() -> R) -> R {
    ARMED.with(|armed| armed.set(true));
    let result = call();
    ARMED.with(|armed| armed.set(false));
    result
}

/// The whole life cycle of a pair, giving up cleanly at the first failure; `None` then.
fn object(world: &mut World) -> Option<()> {
    let sides = [(world.first.clone(), A), (world.second.clone(), B)];
    let mut opens = Vec::new();
    let result = object_of(world, &sides, &mut opens);
    for close in opens.into_iter().rev() {
        close();
    }
    result
}

const ONE_READ: ReadLimits = ReadLimits { inbound: 1, outbound: 1 };

type Closer = Box<dyn FnOnce()>;

/// Makes one object of the engine; its close is recorded for the end.
macro_rules! made {
    ($closers:ident, $world:ident, $make:expr) => {{
        let made = engine(|| $make).ok()?;
        let closing = made.clone();
        $closers.push(Box::new(move || drop(closing.close(1))) as Closer);
        made
    }};
}

fn object_of(
    world: &mut World,
    sides: &[(softndk_engine::Adapter<kit::Harness>, u64)],
    closers: &mut Vec<Closer>,
) -> Option<()> {
    let buffer = Buffer::new(8192, 3);
    let mut made = Vec::new();
    for (adapter, base) in sides {
        let consumer_object = || world.consumer_object(*base);
        let blocks: Vec<_> = (0..9).map(|_| consumer_object()).collect();
        let mut blocks = blocks.into_iter();
        let mut next = || blocks.next().unwrap();
        let given = next();
        let open = made!(closers, world, adapter.open(Semantics::NDK, given));
        let given = next();
        let domain = made!(closers, world, open.create_protection_domain(given));
        let given = next();
        let initiator = made!(closers, world, open.create_completion_queue(16, Some(1), None, given));
        let given = next();
        let receiver = made!(closers, world, open.create_completion_queue(16, Some(1), None, given));
        let settings = QueuePairSettings {
            receive_queue: &receiver,
            initiator_queue: &initiator,
            context: 1,
            receive_depth: 4,
            initiator_depth: 4,
            receive_sges: 2,
            initiator_sges: 2,
            inline_data: 64,
            shared: None,
        };
        let given = next();
        let pair = made!(closers, world, QueuePair::create(&domain, settings, given));
        let given = next();
        let region = made!(closers, world, domain.create_memory_region(false, given));
        let memory = world.map(&buffer);
        engine(|| region.register(Registration { memory, base: 0, length: 8192, rights: EVERYTHING })).ok()?;
        let given = next();
        let fast = made!(closers, world, domain.create_memory_region(true, given));
        engine(|| fast.initialize_fast_register(2, true)).ok()?;
        let memory = world.map(&buffer);
        let mapping = engine(|| open.build_mapping(memory)).ok()?;
        let owner = open.clone();
        closers.push(Box::new(move || assert!(owner.release_mapping(mapping.first))));
        let given = next();
        let window = made!(closers, world, domain.create_memory_window(given));
        let given = next();
        let connector = made!(closers, world, open.create_connector(given));
        let side = Side { open, domain, initiator, receiver, pair, connector };
        made.push((side, Memory { region, window }));
    }
    connect(world, &made, closers)
}

struct Memory {
    region: softndk_engine::MemoryRegion<kit::Harness>,
    window: softndk_engine::MemoryWindow<kit::Harness>,
}

fn connect(world: &mut World, made: &[(Side, Memory)], closers: &mut Vec<Closer>) -> Option<()> {
    let [(a, near), (b, peer)] = made else { return None };
    let consumer_object = world.consumer_object(9);
    let listener = made!(closers, world, b.open.create_listener(B, consumer_object));
    engine(|| listener.listen(SocketAddr::new(SECOND, 445), 0)).ok()?;
    let consumer_object = world.consumer_object(10);
    let endpoint = made!(closers, world, a.open.create_shared_endpoint(SocketAddr::new(FIRST, 0), consumer_object));
    let request = Connect {
        queue_pair: &a.pair,
        source: softndk_engine::Source::Shared(&endpoint),
        destination: SocketAddr::new(SECOND, 445),
        limits: ONE_READ,
        private_data: &[],
        callback: A,
    };
    engine(|| a.connector.connect(request)).ok()?;
    world.run();
    let arrived = world.events.arrived.pop();
    assert!(arrived.is_some() || cfg!(feature = "streams"), "a request that was taken arrives");
    // Across a stream it is refused where there was no memory for it.
    let arrived = arrived?;
    let closing = arrived.clone();
    closers.push(Box::new(move || drop(closing.close(1))));
    let answer = Accept { queue_pair: &b.pair, limits: ONE_READ, private_data: &[], disconnect: None, callback: B };
    let seen = || SEEN.with(Cell::get);
    let before = seen();
    let accepted = engine(|| arrived.accept(answer));
    assert!(cfg!(feature = "streams") || seen() == before, "accepting allocates nothing but buffers of a stream");
    accepted.ok()?;
    // From here on nothing may allocate, so nothing can fail.
    let before = seen();
    world.deliver_messages();
    engine(|| a.connector.complete_connect(Some(A), A)).unwrap();
    world.deliver_messages();
    let none = RequestFlags::empty();
    let list = [sge(0, 4096, near.region.local_token())].into_iter();
    engine(|| b.pair.bind(4, none, &peer.region, &peer.window, 4096, 4096, Rights::REMOTE_READ)).unwrap();
    engine(|| a.pair.read(1, none, list, 4096, peer.window.remote_token())).unwrap();
    engine(|| b.pair.invalidate_window(5, none, &peer.window)).unwrap();
    engine(|| b.pair.receive(2, std::iter::empty())).unwrap();
    engine(|| a.pair.send(3, RequestFlags::empty(), std::iter::empty())).unwrap();
    world.run();
    engine(|| a.connector.disconnect(A)).unwrap();
    engine(|| b.connector.close(1));
    assert_eq!(seen(), before, "posting, connecting and disconnecting allocate nothing");
    assert_eq!(outcomes(&b.initiator), [(4, Outcome::Success), (5, Outcome::Success)]);
    assert_eq!(outcomes(&a.initiator), [(1, Outcome::Success), (3, Outcome::Success)]);
    Some(())
}

// Rule: BUG-2
#[test]
fn every_allocation_fails_once_and_leaves_nothing() {
    let second = 1_000_000_000;
    let timeouts = Timeouts { connect: second, accept: second, disconnect: second, receiver_not_ready: None };
    let mut site = 0;
    loop {
        // With time-outs, which have timers.
        let mut world = World::with_settings(softndk_engine::AdapterSettings { timeouts, ..Default::default() });
        // The harness writes deadlines into a map of its own.
        world.harness().wakes.lock().unwrap().extend([(0, u64::MAX), (1, u64::MAX), (u32::MAX, u64::MAX)]);
        LEFT.with(|left| left.set(site));
        let done = object(&mut world);
        let passed = LEFT.with(Cell::get);
        LEFT.with(|left| left.set(-1));
        world.assert_empty();
        drop(world);
        if done.is_some() {
            assert!(passed >= 0, "site {site} failed without an effect");
            break;
        }
        site += 1;
        assert!(site < 500, "no end of sites");
    }
    assert!(site > 40, "only {site} sites were found");
}

#[test]
fn every_allocation_of_a_fabric_and_its_adapters_fails_once() {
    let mut site = 0;
    loop {
        LEFT.with(|left| left.set(site));
        // The blocks and counters of the harness are made inside too; they fail only where the engine would.
        let made = fabric();
        LEFT.with(|left| left.set(-1));
        if made {
            break;
        }
        site += 1;
        assert!(site < 50, "no end of sites");
    }
    assert!(site > 5, "only {site} sites were found");
}

fn fabric() -> bool {
    let harness = kit::Harness::default();
    let Ok(fabric) = engine(|| softndk_engine::Fabric::try_new(harness, 2)) else { return false };
    let settings = softndk_engine::AdapterSettings { limits: Limits::default(), wire: 0, ..Default::default() };
    let Ok(adapter) = engine(|| fabric.add_adapter(settings)) else { return false };
    let addressed = engine(|| adapter.set_addresses(&[FIRST, SECOND]));
    adapter.remove();
    addressed.is_ok()
}

/// Fails this allocation for the port of a new address. Whether there was one, and whether the listener was not reached there at once;
/// then it is after a while, unless it is closed before.
#[cfg(feature = "streams")]
fn fail_port(site: i64, is_closed: bool) -> (bool, bool) {
    let other = std::net::IpAddr::from([10, 0, 0, 9]);
    let mut pair = Pair::unconnected(World::new(), Semantics::NDK, Depths::default());
    let listener = pair.b.open.create_listener(B + 7, pair.world.consumer_object(B + 7)).unwrap();
    listener.listen(SocketAddr::new(std::net::IpAddr::from([0, 0, 0, 0]), 446), 0).unwrap();
    pair.world.run();
    LEFT.with(|left| left.set(site));
    let set = engine(|| pair.world.second.set_addresses(&[SECOND, other]));
    let has_failed = LEFT.with(|left| left.replace(-1)) < 0;
    let network = pair.world.harness().network.clone();
    let is_reached = |pair: &mut Pair| {
        let mut peer = kit::Network::dial(&network, SocketAddr::new(FIRST, 1000), SocketAddr::new(other, 446));
        pair.world.run();
        softndk_engine::Socket::receive(&mut peer) == softndk_engine::Arrived::Nothing
    };
    let is_late = set.is_ok() && has_failed && !is_reached(&mut pair);
    if is_late && !is_closed {
        pair.world.advance(softndk_engine::limits::PORT_RETRY);
        pair.world.run();
        assert!(is_reached(&mut pair), "site {site}");
    }
    drop((listener.close(kit::CLOSE), listener));
    pair.close_for_good();
    (has_failed, is_late)
}

/// A listener that is closed while its port waits leaves no timer that points to it.
#[cfg(feature = "streams")]
#[test]
fn a_port_that_lacked_memory_comes_later() {
    let sites: Vec<_> = (0..).take_while(|site| fail_port(*site, false).0).collect();
    let late = sites.iter().filter(|site| fail_port(**site, true).1).count();
    assert!(late > 1, "{late} ports were late");
}

// Rule: NDK-FAULT-2
#[test]
fn closing_and_flushing_allocate_nothing() {
    let pair = Pair::with(Semantics::NDK, Depths::default());
    pair.a.pair.receive(1, std::iter::empty()).unwrap();
    let before = SEEN.with(Cell::get);
    LEFT.with(|left| left.set(-1));
    engine(|| {
        pair.a.pair.flush();
        drop(pair.a.connector.close(1));
        drop(pair.a.pair.close(1));
    });
    assert_eq!(SEEN.with(Cell::get), before);
    pair.close();
}

// Rule: NDK-LIM-3
#[test]
fn the_largest_queue_pair_can_really_be_made() {
    let world = World::new();
    let limits = *world.first.limits();
    let open = world.first.open(Semantics::NDK, world.consumer_object(1)).unwrap();
    let domain = open.create_protection_domain(world.consumer_object(1)).unwrap();
    let queue = open.create_completion_queue(2 * limits.initiator_depth, None, None, world.consumer_object(1)).unwrap();
    let settings = |depth: u32, sges: u32| QueuePairSettings {
        receive_queue: &queue,
        initiator_queue: &queue,
        context: 1,
        receive_depth: limits.receive_depth,
        initiator_depth: depth,
        receive_sges: limits.receive_sges,
        initiator_sges: sges,
        inline_data: limits.inline_data,
        shared: None,
    };
    let over = [(limits.initiator_depth + 1, 1), (1, limits.initiator_sges + 1)];
    for (depth, sges) in over {
        let made = QueuePair::create(&domain, settings(depth, sges), world.consumer_object(1));
        assert_eq!(made.err(), Some(softndk_engine::CreateError::OverLimit));
    }
    let largest = settings(limits.initiator_depth, limits.initiator_sges);
    let pair = QueuePair::create(&domain, largest, world.consumer_object(1)).unwrap();
    drop((pair.close(1), queue.close(1), domain.close(1), open.close(1)));
}
