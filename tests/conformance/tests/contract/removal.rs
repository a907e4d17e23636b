//! Removal of an adapter while a consumer has everything open at once: connections with receives and held requests, connects
//! and Accepts without an answer, a large registration under way. The consumer's events, and that all of it ends,
//! however the adapter is removed and in whatever order the consumer closes.

use std::sync::{Arc, Mutex};

use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, Connector, End, Listener, MemoryList, MemoryRegion, Offer, Pair, QueuePairShape, Started, Window,
    WindowKind,
};
use conformance::machine::{Machine, Setup, wait_until_idle, with_machine};
use conformance::trial::Case;
use fastrand::Rng;
use kernel_host::HaltAction;
use kernel_host::ndis::life_cycle::DeviceEvent;
use ndkpi_sys::ndis::OID_NDK_SET_STATE;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::STATUS_CANCELLED;

pub const CASES: &[Case] = &[
    case!(surprise_removal_notifies_consumers_before_they_are_asked_to_close: "NDIS-LIFE-3", "NDIS-LIFE-9"),
    case!(disable_notifies_consumers_with_everything_open: "NDIS-OID-22", "NDIS-LIFE-9"),
    case!(low_power_leaves_everything_open_alone: "NDIS-LIFE-7"),
    case!(removal_of_the_peers_adapter_notifies_this_side: "NDIS-LIFE-9", "NDK-CM-8"),
    case!(a_hundred_removals_with_everything_open: "NDIS-LIFE-1", "NDIS-LIFE-2", "NDIS-LIFE-9"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
/// Above what the driver maps in the caller's own time.
const LARGE: usize = 8 << 20;
/// Requests that are held because none without NDK_OP_FLAG_DEFER follows.
const HELD: usize = 8;
const RECEIVES: usize = 4;

/// A connection half made: what each side has, and the requests that wait.
struct Attempt {
    connecting: Started,
    accepting: Option<Started>,
    connector: Connector,
    arrived: Connector,
    active: End<'static>,
    passive: End<'static>,
    listener: Listener,
}

impl Attempt {
    fn new(from: &'static Adapter, to: &'static Adapter, answer: bool) -> Self {
        let (active, passive) = (End::new(from, QueuePairShape::default()), End::new(to, QueuePairShape::default()));
        let listener = Listener::new(to).expect("a listener");
        assert_eq!(listener.listen(to.address()), 0);
        let connector = Connector::new(from).expect("a connector");
        let offer = Offer::default();
        let connecting = connector.begin_connect(&active.queue_pair, from.address(), listener.local_address(), &offer);
        let arrived = listener.next();
        let accepting = answer.then(|| arrived.begin_accept(&passive.queue_pair, &offer));
        if answer {
            assert_eq!(connecting.wait(), 0, "the answer");
        }
        Self { connecting, accepting, connector, arrived, active, passive, listener }
    }

    fn assert_failed(&self) {
        let waiting = self.accepting.unwrap_or(self.connecting);
        assert!(waiting.is_done(), "a request still waits for an adapter that is gone");
        assert!(waiting.wait() < 0, "{:#x}", waiting.wait());
    }

    fn parts(&self) -> Vec<Close<'_>> {
        let mut parts: Vec<Close<'_>> = vec![
            Box::new(|| self.connector.object().begin_close()),
            Box::new(|| self.arrived.object().begin_close()),
            Box::new(|| self.listener.object().begin_close()),
        ];
        parts.extend(end_parts(&self.active));
        parts.extend(end_parts(&self.passive));
        parts
    }
}

type Close<'a> = Box<dyn FnOnce() -> Started + 'a>;

fn end_parts<'a>(end: &'a End<'_>) -> Vec<Close<'a>> {
    let mut parts: Vec<Close<'a>> = vec![
        Box::new(|| end.queue_pair.object().begin_close()),
        Box::new(|| end.initiator.object().begin_close()),
        Box::new(|| end.receive.object().begin_close()),
        Box::new(|| end.domain.object().begin_close()),
    ];
    if let Some(connector) = &end.connector {
        parts.push(Box::new(|| connector.object().begin_close()));
    }
    parts
}

/// Everything a consumer can have open on the adapter `near` and its peer. The adapters are last, because all else is theirs.
struct Everything {
    forth: Pair<'static>,
    back: Pair<'static>,
    attempts: Vec<Attempt>,
    window: Window<'static>,
    registering: Started,
    large: MemoryRegion,
    list: MemoryList<'static>,
    buffer: Box<Buffer>,
    near: Box<Adapter>,
    peer: Box<Adapter>,
}

impl Everything {
    fn new(machine: &Machine, near_index: usize) -> Self {
        let (near, peer) = (Box::new(machine.open(near_index)), Box::new(machine.open(1 - near_index)));
        // SAFETY: the box is declared after every field of the struct that borrows it, and stays where it is.
        let here: &'static Adapter = unsafe { &*std::ptr::from_ref(near.as_ref()) };
        // SAFETY: as above.
        let there: &'static Adapter = unsafe { &*std::ptr::from_ref(peer.as_ref()) };
        let (forth, back) = (Pair::connect(here, there), Pair::connect(there, here));
        for end in [&forth.active, &forth.passive, &back.active, &back.passive] {
            for request in 0..RECEIVES {
                assert_eq!(end.queue_pair.receive(request as u64, &[]), 0);
            }
            end.receive.arm(NDK_CQ_NOTIFY_ANY);
        }
        let window = Window::open(&forth.active, Buffer::scattered(4096), WindowKind::Registered);
        for request in 0..HELD {
            let sge = [window.sge(0..64)];
            assert_eq!(forth.active.queue_pair.send(request as u64, &sge, NDK_OP_FLAG_DEFER), 0);
        }
        let attempts = [(here, there), (there, here)]
            .into_iter()
            .flat_map(|(from, to)| [false, true].map(|answer| Attempt::new(from, to, answer)))
            .collect();
        let buffer = Box::new(Buffer::scattered(here.fit_registered(LARGE)));
        // SAFETY: the box is declared after the list that borrows it, and stays where it is.
        let memory: &'static Buffer = unsafe { &*std::ptr::from_ref(buffer.as_ref()) };
        let list = memory.memory_list();
        let large = forth.active.domain.create_region(false).expect("a region");
        let registering = large.begin_register_list(list.pointer(), buffer.length(), NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
        Self { forth, back, attempts, window, registering, large, list, buffer, near, peer }
    }

    /// The consumer has an event or completion for every end and has closed no object.
    fn assert_notified(&self) {
        for (name, pair) in [("forth", &self.forth), ("back", &self.back)] {
            for (side, end) in [("active", &pair.active), ("passive", &pair.passive)] {
                assert_eq!(end.connector().disconnect_events(), 1, "{name}, {side}");
            }
        }
        for attempt in &self.attempts {
            attempt.assert_failed();
        }
    }

    /// Flushes, waits for what waits, and closes everything in an order of its own.
    fn close(self, seed: u64) {
        let ends = [&self.forth.active, &self.forth.passive, &self.back.active, &self.back.passive];
        for end in ends {
            end.queue_pair.flush();
        }
        let held = self.forth.active.initiator.wait_for(HELD);
        assert!(held.iter().all(|result| result.Status == STATUS_CANCELLED), "{HELD} held requests");
        for end in ends {
            let receives = end.receive.wait_for(RECEIVES);
            assert!(receives.iter().all(|result| result.Status == STATUS_CANCELLED), "{RECEIVES} receives");
        }
        // Registered, or refused because the adapter goes; it ends in either case.
        let _status = self.registering.wait();
        let Self { forth, back, attempts, window, registering: _, large, list, buffer, near, peer } = self;
        drop(window);
        let mut parts: Vec<Close<'_>> = ends_of(&forth).chain(ends_of(&back)).flat_map(end_parts).collect();
        parts.push(Box::new(|| large.object().begin_close()));
        parts.push(Box::new(|| forth.listener.object().begin_close()));
        parts.push(Box::new(|| back.listener.object().begin_close()));
        parts.extend(attempts.iter().flat_map(Attempt::parts));
        Rng::with_seed(seed).shuffle(&mut parts);
        let closing: Vec<Started> = parts.into_iter().map(|close| close()).collect();
        for close in &closing {
            assert_eq!(close.wait(), 0);
        }
        for attempt in &attempts {
            assert!(attempt.connecting.is_done() && attempt.accepting.is_none_or(|accepting| accepting.is_done()));
        }
        drop((forth, back, attempts, large, list, buffer));
        drop((near, peer));
    }
}

fn ends_of<'a>(pair: &'a Pair<'static>) -> impl Iterator<Item = &'a End<'static>> {
    [&pair.active, &pair.passive].into_iter()
}

/// Has the consumer closed on the system's request, whichever adapter it comes from.
fn close_when_asked(
    machine: &Machine,
    everything: Everything,
    seed: u64,
) -> (Arc<Mutex<Option<Everything>>>, Vec<kernel_host::ndk::ConsumerRegistration>) {
    let place = Arc::new(Mutex::new(Some(everything)));
    let registrations = machine
        .adapters
        .iter()
        .map(|adapter| {
            let place = Arc::clone(&place);
            let close = move || {
                let everything = place.lock().expect("no panic while closing").take();
                if let Some(everything) = everything {
                    everything.close(seed);
                }
            };
            adapter.on_ndk_close(close).expect("a started adapter")
        })
        .collect();
    (place, registrations)
}

fn start_again(adapter: &kernel_host::Adapter) {
    adapter.start().unwrap_or_else(|error| panic!("starting again: {error}"));
}

fn surprise_removal_notifies_consumers_before_they_are_asked_to_close() {
    with_machine(&Setup::default(), |machine| {
        for near in [0, 1] {
            let everything = Everything::new(machine, near);
            let adapter = &machine.adapters[near];
            adapter.device_event(DeviceEvent::SurpriseRemoved).expect("a started adapter");
            wait_until_idle();
            everything.assert_notified();
            everything.close(near as u64 + 1);
            adapter.halt(HaltAction::SurpriseRemoved).expect("a halt");
            start_again(adapter);
        }
    });
}

fn disable_notifies_consumers_with_everything_open() {
    with_machine(&Setup::default(), |machine| {
        for near in [0, 1] {
            let everything = Everything::new(machine, near);
            let adapter = &machine.adapters[near];
            assert_eq!(adapter.set_oid(OID_NDK_SET_STATE, &[0]).expect("a started adapter").status, 0);
            wait_until_idle();
            everything.assert_notified();
            everything.close(near as u64 + 3);
            assert_eq!(adapter.set_oid(OID_NDK_SET_STATE, &[1]).expect("a started adapter").status, 0);
            wait_until_idle();
            assert_eq!(adapter.ndk_events(), [false, true]);
        }
    });
}

fn low_power_leaves_everything_open_alone() {
    with_machine(&Setup::default(), |machine| {
        let everything = Everything::new(machine, 0);
        for adapter in &machine.adapters {
            adapter.power_down().expect("power down");
        }
        wait_until_idle();
        // No device carries the connections, so none is lost; work goes on even now.
        let pair = &everything.back;
        assert_eq!(pair.active.queue_pair.send(77, &[], NONE), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
        assert_eq!(pair.passive.receive.wait_for_one().Status, 0);
        for adapter in &machine.adapters {
            adapter.power_up().unwrap_or_else(|error| panic!("power up: {error}"));
        }
        for end in [&everything.forth.active, &pair.active, &pair.passive] {
            assert_eq!(end.connector().disconnect_events(), 0);
        }
        assert!(everything.attempts.iter().all(|attempt| attempt.accepting.is_some() || !attempt.connecting.is_done()));
        assert_eq!(pair.passive.queue_pair.receive(78, &[]), 0, "as many as the others have");
        everything.close(5);
    });
}

fn removal_of_the_peers_adapter_notifies_this_side() {
    with_machine(&Setup::default(), |machine| {
        {
            let (first, second) = (machine.open(0), machine.open(1));
            let pair = Pair::connect(&first, &second);
            let listener = Listener::new(&first).expect("a listener");
            assert_eq!(listener.listen(first.address()), 0);
            machine.adapters[1].device_event(DeviceEvent::SurpriseRemoved).expect("a started adapter");
            assert!(pair.active.connector().wait_for_disconnect());
            // The adapter that stays goes on: a connection of its own over a listener that was there before.
            let alone = (End::new(&first, QueuePairShape::default()), End::new(&first, QueuePairShape::default()));
            let made = conformance::consumer::establish(
                (&first, &alone.0.queue_pair, first.address()),
                (&listener, &alone.1.queue_pair),
                &Offer::default(),
            );
            drop(made.expect("a connection"));
        }
        machine.adapters[1].halt(HaltAction::SurpriseRemoved).expect("a halt");
        start_again(&machine.adapters[1]);
    });
}

fn a_hundred_removals_with_everything_open() {
    with_machine(&Setup::default(), |machine| {
        let mut random = Rng::with_seed(20_261_120);
        for round in 0..100_u64 {
            let near = (round % 2) as usize;
            let adapter = &machine.adapters[near];
            let (place, registrations) = close_when_asked(machine, Everything::new(machine, near), round);
            // Sometimes all has come to rest, sometimes the registration and the connects are under way.
            if random.u64(..2) == 0 {
                wait_until_idle();
            }
            match random.u64(..4) {
                0 => {
                    assert_eq!(adapter.set_oid(OID_NDK_SET_STATE, &[0]).expect("a started adapter").status, 0);
                    adapter.halt(HaltAction::DeviceDisabled).expect("a halt that meets a disable");
                }
                1 => adapter.halt(HaltAction::DeviceDisabled).expect("a halt"),
                2 => adapter.surprise_remove().expect("a surprise removal"),
                _ => {
                    adapter.power_down().expect("power down");
                    adapter.halt(HaltAction::DevicePoweredDown).expect("a halt in low power");
                }
            }
            assert!(
                place.lock().expect("no panic while closing").is_none(),
                "round {round}: the consumer was asked to close"
            );
            drop(registrations);
            start_again(adapter);
        }
    });
}
