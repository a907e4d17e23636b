//! Teardown while a consumer has connections open and transfers running: NDK disabled, the adapter halted, removed or powered
//! down, the driver unloaded. The consumer closes when it is asked, as Windows requires.

use kernel_host::schedule;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use conformance::case;
use conformance::consumer::{Adapter, Buffer, End, Pair, QueuePairShape, Window, WindowKind, completion};
use conformance::machine::{Machine, Setup, concurrently, load, unload, wait_until, wait_until_idle, with_machine};
use conformance::trial::Case;
use kernel_host::ndis::life_cycle::DeviceEvent;
use kernel_host::thread::JoinHandle;
use kernel_host::{HaltAction, Kernel};
use ndkpi_sys::ndis::{NDIS_STATUS_NOT_ACCEPTED, OID_GEN_STATISTICS, OID_NDK_SET_STATE, OID_NDK_STATISTICS};
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::STATUS_CANCELLED;

pub const CASES: &[Case] = &[
    case!(disable_with_transfers_running: "NDIS-OID-8", "NDK-OPEN-5"),
    case!(halt_with_transfers_running: "NDIS-LIFE-2", "NDK-OPEN-5"),
    case!(surprise_removal_with_transfers_running: "NDIS-LIFE-3", "NDK-OPEN-5"),
    case!(after_a_surprise_removal_every_request_is_refused: "NDIS-LIFE-3"),
    case!(power_down_and_up_with_a_connection: "NDIS-LIFE-7"),
    case!(pause_and_restart_leave_connections_alone: "NDIS-LIFE-6"),
    case!(unload_with_transfers_running: "NDIS-LIFE-2", "NDIS-LIFE-1"),
    case!(halt_of_the_peers_adapter_ends_the_connection: "NDK-CM-8", "NDK-QP-14"),
    case!(close_of_an_open_waits_for_its_children: "NDK-OPEN-5"),
    case!(a_hundred_scenarios_with_a_transfer_each: "NDIS-LIFE-1"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const MIB: usize = 1 << 20;

/// Reads that are under way at any time.
const READS: u64 = 32;

/// What a consumer works with. The fields close in their order.
struct Objects {
    near: Window<'static>,
    peer: Window<'static>,
    pair: Pair<'static>,
    /// Reads that were posted, and those of them that have succeeded.
    posted: AtomicU64,
    succeeded: AtomicU64,
}

impl Objects {
    fn post(&self, count: usize) {
        for left in (0..count).rev() {
            let request = self.posted.fetch_add(1, Ordering::AcqRel);
            let flags = if left == 0 { NONE } else { NDK_OP_FLAG_DEFER };
            let near = self.near.in_sges(1);
            assert_eq!(self.pair.active.queue_pair.read(request, &near, self.peer.remote(0), flags), 0);
        }
    }

    fn under_way(&self) -> u64 {
        self.posted.load(Ordering::Acquire) - self.succeeded.load(Ordering::Acquire)
    }

    /// Reads again and again until a Read does not succeed; answers the statuses of those that did not.
    fn copy_without_end(&self) -> Vec<i32> {
        let initiator = &self.pair.active.initiator;
        let mut failed = Vec::new();
        self.post(READS as usize);
        while self.under_way() > failed.len() as u64 {
            let mut results = initiator.wait_for(1);
            results.extend(initiator.take(READS as usize));
            let good = results.iter().filter(|result| result.Status == 0).count();
            self.succeeded.fetch_add(good as u64, Ordering::AcqRel);
            failed.extend(results.iter().map(|result| result.Status).filter(|status| *status != 0));
            if failed.is_empty() {
                self.post(good);
            }
        }
        failed
    }
}

/// A consumer with a connection between two opens, a thread that copies without end, a Send and receives that wait.
struct Consumer {
    copying: JoinHandle<Vec<i32>>,
    objects: Arc<Objects>,
    first: Box<Adapter>,
    second: Box<Adapter>,
}

impl Consumer {
    fn new(machine: &Machine) -> Self {
        let (first, second) = (Box::new(machine.open(0)), Box::new(machine.open(1)));
        // SAFETY: the box outlives what borrows it: it is declared after it in the same struct and never moved out of.
        let near_adapter: &'static Adapter = unsafe { &*std::ptr::from_ref(first.as_ref()) };
        // SAFETY: as above.
        let peer_adapter: &'static Adapter = unsafe { &*std::ptr::from_ref(second.as_ref()) };
        let shape = QueuePairShape { initiator_depth: 64, ..QueuePairShape::default() };
        let length = near_adapter.fit_fast(MIB);
        let pair = Pair::connect_with(near_adapter, peer_adapter, shape);
        let near = Window::open(&pair.active, Buffer::scattered(length), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(length), WindowKind::FastRegistered);
        for request in 0..4 {
            assert_eq!(pair.passive.queue_pair.receive(request, &[peer.sge(0..64)]), 0);
        }
        assert_eq!(pair.passive.queue_pair.send(1, &[peer.sge(0..64)], NONE), 0);
        let objects = Objects { near, peer, pair, posted: AtomicU64::new(0), succeeded: AtomicU64::new(0) };
        let objects = Arc::new(objects);
        let copier = Arc::clone(&objects);
        let copying = machine.kernel.spawn("copies", move || copier.copy_without_end());
        while objects.succeeded.load(Ordering::Acquire) == 0 {
            schedule::let_others();
        }
        Self { copying, objects, first, second }
    }

    /// Ends the work as a consumer does before it closes; the transfers that were under way are cancelled.
    fn end(self) -> (Arc<Objects>, Box<Adapter>, Box<Adapter>) {
        let Self { copying, objects, first, second } = self;
        // Between the end of one batch and the next no request is under way.
        while objects.under_way() == 0 {
            schedule::let_others();
        }
        objects.pair.active.queue_pair.flush();
        let failed = copying.join();
        assert!(!failed.is_empty(), "no transfer was cancelled");
        assert!(failed.iter().all(|status| *status == STATUS_CANCELLED), "{failed:#x?}");
        (objects, first, second)
    }
}

/// Has the consumer closed on the system's request, as a real one closes on its WSK notification.
fn close_when_asked(machine: &Machine) -> (Arc<Mutex<Option<Consumer>>>, Vec<kernel_host::ndk::ConsumerRegistration>) {
    let place = Arc::new(Mutex::new(Some(Consumer::new(machine))));
    let registrations = machine
        .adapters
        .iter()
        .map(|adapter| {
            let place = Arc::clone(&place);
            let close = move || drop(place.lock().expect("no panic while closing").take().map(Consumer::end));
            adapter.on_ndk_close(close).expect("a started adapter")
        })
        .collect();
    (place, registrations)
}

fn disable_with_transfers_running() {
    with_machine(&Setup::default(), |machine| {
        for _ in 0..5 {
            let (place, registrations) = close_when_asked(machine);
            let answer = machine.adapters[0].set_oid(OID_NDK_SET_STATE, &[0]).expect("a started adapter");
            assert_eq!(answer.status, 0);
            wait_until("the consumer closes when it is asked", || place.lock().expect("closed").is_none());
            wait_until("NDIS gets the event that NDK is off", || !machine.adapters[0].is_ndk_enabled());
            machine.adapters[0].set_oid(OID_NDK_SET_STATE, &[1]).expect("a started adapter");
            wait_until("NDIS gets the event that NDK is on", || machine.adapters[0].is_ndk_enabled());
            drop(registrations);
        }
    });
}

fn halt_with_transfers_running() {
    with_machine(&Setup::default(), |machine| {
        for _ in 0..5 {
            let (place, registrations) = close_when_asked(machine);
            machine.adapters[1].halt(HaltAction::DeviceDisabled).expect("a halt");
            assert!(place.lock().expect("closed").is_none());
            drop(registrations);
            machine.adapters[1].start().unwrap_or_else(|error| panic!("starting again: {error}"));
        }
    });
}

fn surprise_removal_with_transfers_running() {
    with_machine(&Setup::default(), |machine| {
        let (place, registrations) = close_when_asked(machine);
        machine.adapters[0].surprise_remove().expect("a surprise removal");
        assert!(place.lock().expect("closed").is_none());
        drop(registrations);
        machine.adapters[0].start().unwrap_or_else(|error| panic!("starting again: {error}"));
    });
}

fn after_a_surprise_removal_every_request_is_refused() {
    with_machine(&Setup::default(), |machine| {
        let adapter = &machine.adapters[0];
        let statuses = || {
            [
                adapter.query_oid(OID_GEN_STATISTICS, 256).expect("a started adapter").status,
                adapter.direct_query_oid(OID_NDK_STATISTICS, 256).expect("a started adapter").status,
                adapter.set_oid(OID_NDK_SET_STATE, &[1]).expect("a started adapter").status,
            ]
        };
        assert_eq!(statuses(), [0; 3], "before the removal");
        adapter.device_event(DeviceEvent::SurpriseRemoved).expect("a started adapter");
        assert_eq!(statuses(), [NDIS_STATUS_NOT_ACCEPTED; 3]);
        adapter.halt(HaltAction::SurpriseRemoved).expect("a halt");
        adapter.start().unwrap_or_else(|error| panic!("starting again: {error}"));
    });
}

fn power_down_and_up_with_a_connection() {
    with_machine(&Setup::default(), |machine| {
        let consumer = Consumer::new(machine);
        for adapter in &machine.adapters {
            adapter.power_down().expect("power down");
            adapter.power_up().unwrap_or_else(|error| panic!("power up: {error}"));
        }
        drop(consumer.end());
    });
}

fn pause_and_restart_leave_connections_alone() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let pair = Pair::connect(&first, &second);
        let near = Window::open(&pair.active, Buffer::scattered(4096), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(4096), WindowKind::Registered);
        let write = |request| {
            assert_eq!(pair.active.queue_pair.write(request, &[near.sge(0..4096)], peer.remote(0), NONE), 0);
            assert_eq!(pair.active.initiator.wait_for_one().Status, 0, "write {request}");
        };
        write(1);
        machine.adapters.iter().for_each(|adapter| adapter.pause().expect("a pause"));
        write(2);
        machine.adapters.iter().for_each(|adapter| adapter.restart().expect("a restart"));
        write(3);
        assert_eq!(pair.active.connector().disconnect_events(), 0);
    });
}

fn unload_with_transfers_running() {
    let machine = Machine::start(&Setup::default());
    let (place, registrations) = close_when_asked(&machine);
    machine.adapters.iter().for_each(kernel_host::Adapter::remove);
    assert!(place.lock().expect("closed").is_none());
    drop(registrations);
    machine.stop();
}

fn halt_of_the_peers_adapter_ends_the_connection() {
    with_machine(&Setup::default(), |machine| {
        // The peer's consumer closes when its adapter is halted; the local adapter stays.
        let (first, second) = (Box::new(machine.open(0)), Box::new(machine.open(1)));
        // SAFETY: the box is dropped at the end of this function, after everything that borrows it.
        let near_adapter: &'static Adapter = unsafe { &*std::ptr::from_ref(first.as_ref()) };
        // SAFETY: the box is dropped by the closure below, after everything that borrows it.
        let peer_adapter: &'static Adapter = unsafe { &*std::ptr::from_ref(second.as_ref()) };
        let near = End::new(near_adapter, QueuePairShape::default());
        let peer = End::new(peer_adapter, QueuePairShape::default());
        let Pair { active, passive, listener } = Pair::join(near, peer, near_adapter.address(), peer_adapter.address());
        let place = Mutex::new(Some((passive, listener, second)));
        let close = move || drop(place.lock().expect("no panic while closing").take());
        let registration = machine.adapters[1].on_ndk_close(close).expect("a started adapter");
        assert_eq!(active.queue_pair.receive(1, &[]), 0);
        machine.adapters[1].halt(HaltAction::DeviceDisabled).expect("a halt");
        drop(registration);
        assert!(active.connector().wait_for_disconnect(), "the local side gets an event");
        assert_eq!(active.queue_pair.send(2, &[], NONE), 0);
        assert_eq!(active.initiator.wait_for_one().Status, STATUS_CANCELLED);
        machine.adapters[1].start().unwrap_or_else(|error| panic!("starting again: {error}"));
    });
}

fn close_of_an_open_waits_for_its_children() {
    with_machine(&Setup::default(), |machine| {
        let consumer = Consumer::new(machine);
        let started = std::sync::atomic::AtomicBool::new(false);
        // Closing the opens first and the objects shortly afterwards: the close handler blocks until the last is gone.
        let (objects, first, second) = consumer.end();
        concurrently(
            machine,
            || {
                while !started.load(Ordering::Acquire) {
                    wait_until_idle();
                }
                wait_until_idle();
                assert_eq!(machine.adapters[0].ndk_opens(), 1, "the open was closed over its children");
                drop(objects);
            },
            || {
                started.store(true, Ordering::Release);
                drop(first);
                drop(second);
            },
        );
    });
}

fn a_hundred_scenarios_with_a_transfer_each() {
    let setup = Setup::default();
    let kernel = Kernel::boot(setup.kernel.clone());
    for scenario in 0..100 {
        let (driver, adapters) = load(&kernel, &setup);
        let machine = Parts { adapters: &adapters };
        let (first, second) = (machine.open(0, &setup), machine.open(1, &setup));
        {
            let pair = Pair::connect(&first, &second);
            let near = Window::open(&pair.active, Buffer::scattered(10_000), WindowKind::Registered);
            let peer = Window::open(&pair.passive, Buffer::scattered(10_000), WindowKind::FastRegistered);
            peer.buffer.fill_with_seed(scenario);
            assert_eq!(pair.active.queue_pair.read(1, &[near.sge(0..10_000)], peer.remote(0), NONE), 0);
            assert_eq!(pair.active.initiator.wait_for_one().Status, 0, "scenario {scenario}");
            near.buffer.assert_seed(scenario, 0..10_000);
        }
        drop((first, second));
        unload(driver, adapters);
        completion::verify_all();
        let report = kernel.report();
        assert!(report.is_clean(), "scenario {scenario}: {report}");
    }
    let report = kernel.shutdown();
    assert!(report.is_clean(), "{report}");
}

/// Adapters that are loaded and unloaded by the trial itself.
struct Parts<'a> {
    adapters: &'a [kernel_host::Adapter],
}

impl Parts<'_> {
    fn open(&self, index: usize, setup: &Setup) -> Adapter {
        let version = ndkpi_sys::ndkinfo::NDK_VERSION { Major: 2, Minor: 0 };
        let opened = self.adapters[index].open_ndk(version).expect("an NDK adapter");
        let addresses = setup.adapters[index].addresses.iter().map(|ip| std::net::SocketAddr::new(*ip, 0)).collect();
        Adapter::new(opened, addresses)
    }
}
