//! The ground taken away: NDK disabled, the adapter halted, removed or powered down, the driver unloaded, while a
//! consumer has connections open and transfers running. The consumer does what Windows makes it do: it closes when told.

use std::sync::{Arc, Mutex};

use conformance::case;
use conformance::consumer::{Adapter, Buffer, End, Pair, QueuePairShape, Window, WindowKind, completion};
use conformance::machine::{Machine, Setup, load, settle, unload, with_machine};
use conformance::trial::Case;
use kernel_host::{HaltAction, Kernel};
use ndkpi_sys::ndis::OID_NDK_SET_STATE;
use ndkpi_sys::ndkpi::*;

pub const CASES: &[Case] = &[
    case!(disable_with_transfers_running: "NDIS-OID-8", "NDK-OPEN-5"),
    case!(halt_with_transfers_running: "NDIS-LIFE-2", "NDK-OPEN-5"),
    case!(surprise_removal_with_transfers_running: "NDIS-LIFE-3", "NDK-OPEN-5"),
    case!(power_down_and_up_with_a_connection: "NDIS-LIFE-1"),
    case!(pause_and_restart_leave_connections_alone: "NDIS-LIFE-1"),
    case!(unload_with_transfers_running: "NDIS-LIFE-2", "NDIS-LIFE-1"),
    case!(halt_of_the_peers_adapter_ends_the_connection: "NDK-CM-8", "NDK-QP-14"),
    case!(close_of_an_open_waits_for_its_children: "NDK-OPEN-5"),
    case!(a_hundred_lives_with_a_transfer_each: "NDIS-LIFE-1"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const MIB: usize = 1 << 20;

/// A consumer with a connection between two opens and work in every queue. The fields close in their order.
struct Consumer {
    near: Window<'static>,
    far: Window<'static>,
    pair: Pair<'static>,
    first: Box<Adapter>,
    second: Box<Adapter>,
}

impl Consumer {
    fn new(machine: &Machine) -> Self {
        let (first, second) = (Box::new(machine.open(0)), Box::new(machine.open(1)));
        // SAFETY: the box outlives what borrows it: it is a later field of the same struct and never moved out of.
        let near_adapter: &'static Adapter = unsafe { &*std::ptr::from_ref(first.as_ref()) };
        // SAFETY: as above.
        let far_adapter: &'static Adapter = unsafe { &*std::ptr::from_ref(second.as_ref()) };
        let shape = QueuePairShape { initiator_depth: 64, ..QueuePairShape::default() };
        let pair = Pair::connect_with(near_adapter, far_adapter, shape);
        let near = Window::open(&pair.active, Buffer::scattered(MIB), WindowKind::Registered);
        let far = Window::open(&pair.passive, Buffer::scattered(MIB), WindowKind::FastRegistered);
        let consumer = Self { near, far, pair, first, second };
        consumer.post();
        consumer
    }

    /// Fills the queues: long copies, a send that waits, receives.
    fn post(&self) {
        let active: &End<'_> = &self.pair.active;
        for request in 0..16 {
            let near = [self.near.element(0..MIB)];
            assert_eq!(active.queue_pair.read(request, &near, self.far.remote(0), NONE), 0);
        }
        assert_eq!(active.queue_pair.send(99, &[self.near.element(0..64)], NONE), 0);
        for request in 0..4 {
            assert_eq!(active.queue_pair.receive(request, &[self.near.element(0..64)]), 0);
        }
    }
}

/// Hands the consumer to the system's request to close, as a real one would close on its WSK notification.
fn close_when_told(machine: &Machine) -> (Arc<Mutex<Option<Consumer>>>, Vec<kernel_host::ndk::ConsumerRegistration>) {
    let place = Arc::new(Mutex::new(Some(Consumer::new(machine))));
    let registrations = machine
        .adapters
        .iter()
        .map(|adapter| {
            let place = Arc::clone(&place);
            let close = move || drop(place.lock().expect("no panic while closing").take());
            adapter.on_ndk_close(close).expect("a started adapter")
        })
        .collect();
    (place, registrations)
}

fn disable_with_transfers_running() {
    with_machine(&Setup::default(), |machine| {
        for _ in 0..5 {
            let (place, registrations) = close_when_told(machine);
            let answer = machine.adapters[0].set_oid(OID_NDK_SET_STATE, &[0]).expect("a started adapter");
            assert_eq!(answer.status, 0);
            settle();
            assert!(place.lock().expect("closed").is_none(), "the consumer was told to close");
            assert!(!machine.adapters[0].is_ndk_enabled());
            machine.adapters[0].set_oid(OID_NDK_SET_STATE, &[1]).expect("a started adapter");
            settle();
            drop(registrations);
        }
    });
}

fn halt_with_transfers_running() {
    with_machine(&Setup::default(), |machine| {
        for _ in 0..5 {
            let (place, registrations) = close_when_told(machine);
            machine.adapters[1].halt(HaltAction::DeviceDisabled).expect("a halt");
            assert!(place.lock().expect("closed").is_none());
            drop(registrations);
            machine.adapters[1].start().unwrap_or_else(|error| panic!("starting again: {error}"));
        }
    });
}

fn surprise_removal_with_transfers_running() {
    with_machine(&Setup::default(), |machine| {
        let (place, registrations) = close_when_told(machine);
        machine.adapters[0].surprise_remove().expect("a surprise removal");
        assert!(place.lock().expect("closed").is_none());
        drop(registrations);
        machine.adapters[0].start().unwrap_or_else(|error| panic!("starting again: {error}"));
    });
}

fn power_down_and_up_with_a_connection() {
    with_machine(&Setup::default(), |machine| {
        let consumer = Consumer::new(machine);
        for adapter in &machine.adapters {
            adapter.power_down().expect("power down");
            adapter.power_up().unwrap_or_else(|error| panic!("power up: {error}"));
        }
        drop(consumer);
    });
}

fn pause_and_restart_leave_connections_alone() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let pair = Pair::connect(&first, &second);
        let near = Window::open(&pair.active, Buffer::scattered(4096), WindowKind::Registered);
        let far = Window::open(&pair.passive, Buffer::scattered(4096), WindowKind::Registered);
        let write = |request| {
            assert_eq!(pair.active.queue_pair.write(request, &[near.element(0..4096)], far.remote(0), NONE), 0);
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
    let (place, registrations) = close_when_told(&machine);
    machine.adapters.iter().for_each(kernel_host::Adapter::remove);
    assert!(place.lock().expect("closed").is_none());
    drop(registrations);
    machine.stop();
}

fn halt_of_the_peers_adapter_ends_the_connection() {
    with_machine(&Setup::default(), |machine| {
        // The far side's consumer closes when its adapter is halted; the near side's adapter stays.
        let (first, second) = (Box::new(machine.open(0)), Box::new(machine.open(1)));
        // SAFETY: the box is dropped at the end of this function, after everything that borrows it.
        let near_adapter: &'static Adapter = unsafe { &*std::ptr::from_ref(first.as_ref()) };
        // SAFETY: the box is dropped by the closure below, after everything that borrows it.
        let far_adapter: &'static Adapter = unsafe { &*std::ptr::from_ref(second.as_ref()) };
        let near = End::new(near_adapter, QueuePairShape::default());
        let far = End::new(far_adapter, QueuePairShape::default());
        let Pair { active, passive, listener } = Pair::join(near, far, near_adapter.address(), far_adapter.address());
        let place = Mutex::new(Some((passive, listener, second)));
        let close = move || drop(place.lock().expect("no panic while closing").take());
        let registration = machine.adapters[1].on_ndk_close(close).expect("a started adapter");
        assert_eq!(active.queue_pair.receive(1, &[]), 0);
        machine.adapters[1].halt(HaltAction::DeviceDisabled).expect("a halt");
        drop(registration);
        assert!(active.connector().wait_for_disconnect(), "the near side hears of the end");
        assert_eq!(active.queue_pair.send(2, &[], NONE), 0);
        assert_eq!(active.initiator.wait_for_one().Status, ndkpi_sys::nt::STATUS_CANCELLED);
        machine.adapters[1].start().unwrap_or_else(|error| panic!("starting again: {error}"));
    });
}

fn close_of_an_open_waits_for_its_children() {
    with_machine(&Setup::default(), |machine| {
        let consumer = Consumer::new(machine);
        let started = std::sync::atomic::AtomicBool::new(false);
        // Closing the opens first and the objects a moment later: the close handler blocks until the last is gone.
        let Consumer { near, far, pair, first, second } = consumer;
        conformance::machine::concurrently(
            machine,
            || {
                while !started.load(std::sync::atomic::Ordering::Acquire) {
                    settle();
                }
                settle();
                assert_eq!(machine.adapters[0].ndk_opens(), 1, "the open was closed over its children");
                drop((near, far));
                drop(pair);
            },
            || {
                started.store(true, std::sync::atomic::Ordering::Release);
                drop(first);
                drop(second);
            },
        );
    });
}

fn a_hundred_lives_with_a_transfer_each() {
    let setup = Setup::default();
    let kernel = Kernel::boot(setup.kernel.clone());
    for life in 0..100 {
        let (driver, adapters) = load(&kernel, &setup);
        let machine = Parts { adapters: &adapters };
        let (first, second) = (machine.open(0, &setup), machine.open(1, &setup));
        {
            let pair = Pair::connect(&first, &second);
            let near = Window::open(&pair.active, Buffer::scattered(10_000), WindowKind::Registered);
            let far = Window::open(&pair.passive, Buffer::scattered(10_000), WindowKind::FastRegistered);
            far.buffer.fill_with_seed(life);
            assert_eq!(pair.active.queue_pair.read(1, &[near.element(0..10_000)], far.remote(0), NONE), 0);
            assert_eq!(pair.active.initiator.wait_for_one().Status, 0, "life {life}");
            near.buffer.assert_seed(life, 0..10_000);
        }
        drop((first, second));
        unload(driver, adapters);
        completion::verify_all();
        let report = kernel.report();
        assert!(report.is_clean(), "life {life}: {report}");
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
