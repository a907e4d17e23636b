//! Raw frames over the virtual wire: every length, every destination and filter, lists of every shape, and the
//! frames under way when an adapter pauses, halts or is removed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use conformance::case;
use conformance::machine::{AdapterSetup, Machine, Setup, concurrently, pass_time, wait_until_idle, with_machine};
use conformance::trial::Case;
use kernel_host::ndis::data_path::Frame;
use kernel_host::ndis::life_cycle::DeviceEvent;
use kernel_host::{Adapter, HaltAction, dispatcher, fault, irql};
use ndkpi_sys::ndis::{
    NDIS_STATUS_INVALID_DATA, NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_NOT_ACCEPTED, NDIS_STATUS_PAUSED,
    NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS, OID_802_3_MULTICAST_LIST, OID_GEN_CURRENT_PACKET_FILTER,
    OID_GEN_LINK_PARAMETERS, OID_GEN_STATISTICS, OID_PNP_SET_POWER,
};

pub const CASES: &[Case] = &[
    case!(every_length_arrives_and_short_frames_are_padded: "NDIS-WIRE-1", "NDIS-WIRE-3"),
    case!(lengths_that_are_no_frame_are_refused: "NDIS-WIRE-4"),
    case!(each_filter_takes_its_destinations: "NDIS-WIRE-2"),
    case!(frames_in_pieces_and_behind_unused_space: "NDIS-WIRE-1", "NDIS-WIRE-7"),
    case!(several_frames_in_a_list_and_lists_in_a_chain: "NDIS-WIRE-5", "NDIS-WIRE-4"),
    case!(each_destination_is_counted_at_both_ends: "NDIS-WIRE-10"),
    case!(cancelling_a_finished_send_does_nothing: "NDIS-WIRE-5"),
    case!(frames_without_capacity_are_dropped_and_counted: "NDIS-WIRE-8"),
    case!(frames_that_cannot_be_mapped_are_refused: "NDIS-WIRE-4"),
    case!(lent_frames_come_back_before_a_pause_is_over: "NDIS-LIFE-5", "NDIS-WIRE-7"),
    case!(layers_that_keep_every_frame_do_not_stop_the_wire: "NDIS-WIRE-8", "NDIS-WIRE-7"),
    case!(sends_that_come_late_come_back_paused: "NDIS-WIRE-6"),
    case!(frames_on_their_way_do_not_outlive_a_pause: "NDIS-LIFE-5"),
    case!(traffic_goes_on_after_restart: "NDIS-LIFE-1", "NDIS-WIRE-1", "NDIS-WIRE-11"),
    case!(sends_after_a_surprise_removal_are_not_accepted: "NDIS-LIFE-3"),
    case!(three_on_one_wire_and_one_on_another: "NDIS-WIRE-1", "NDIS-WIRE-2"),
    case!(storm_while_the_other_end_comes_and_goes: "NDIS-WIRE-9", "NDIS-WIRE-5"),
    case!(storm_while_the_sender_pauses: "NDIS-WIRE-6", "NDIS-LIFE-5"),
    case!(power_states_are_checked: "NDIS-LIFE-7", "NDIS-OID-4"),
];

const BROADCAST: [u8; 6] = [0xFF; 6];
/// What TCP/IP has in the multicast list, and an address that is not in it.
const ALL_HOSTS: [u8; 6] = [0x01, 0x00, 0x5E, 0x00, 0x00, 0x01];
const OTHERS: [u8; 6] = [0x01, 0x00, 0x5E, 0x00, 0x00, 0x4D];
const UNRELATED: [u8; 6] = [0x02, 0, 0, 0, 0, 0x63];
const FRAME_MAX: usize = 1514;
/// Frames that an adapter holds for its protocols.
const CAPACITY: usize = 256;

pub fn mac(adapter: &Adapter) -> [u8; 6] {
    adapter.general().expect("a started adapter").current_mac
}

/// A frame whose payload differs from byte to byte and from frame to frame.
pub fn frame(to: [u8; 6], from: [u8; 6], length: usize) -> Vec<u8> {
    let payload = (0..length.saturating_sub(14)).map(|index| (index * 7 + length) as u8 | 1);
    let mut bytes: Vec<u8> = to.into_iter().chain(from).chain([0x88, 0xB5]).chain(payload).collect();
    bytes.truncate(length);
    bytes
}

pub fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().max(60), 0);
    bytes
}

pub fn received(adapter: &Adapter) -> Vec<Vec<u8>> {
    wait_until_idle();
    adapter.take_received().expect("a started adapter")
}

fn nothing() -> Vec<Vec<u8>> {
    Vec::new()
}

fn send(adapter: &Adapter, frames: Vec<Frame>) -> Vec<i32> {
    adapter.send(frames).expect("a started adapter").wait()
}

pub fn send_one(adapter: &Adapter, bytes: Vec<u8>) -> i32 {
    let answers = send(adapter, vec![bytes.into()]);
    assert_eq!(answers.len(), 1);
    answers[0]
}

fn set(adapter: &Adapter, oid: u32, data: &[u8]) -> i32 {
    adapter.set_oid(oid, data).expect("a started adapter").status
}

fn filter(adapter: &Adapter, bits: u32) {
    assert_eq!(set(adapter, OID_GEN_CURRENT_PACKET_FILTER, &bits.to_le_bytes()), NDIS_STATUS_SUCCESS);
}

/// NDIS_STATISTICS_INFO by the offsets of its members.
pub struct Counted {
    bytes: Vec<u8>,
}

impl Counted {
    pub fn of(adapter: &Adapter) -> Self {
        Self { bytes: adapter.query_oid(OID_GEN_STATISTICS, 0x98).expect("a started adapter").data }
    }

    fn at<const COUNT: usize>(&self, offsets: [usize; COUNT]) -> [u64; COUNT] {
        offsets.map(|offset| u64::from_le_bytes(self.bytes[offset..offset + 8].try_into().expect("eight bytes")))
    }

    /// ifInDiscards, ifInErrors.
    pub fn lost_in(&self) -> [u64; 2] {
        self.at([0x08, 0x10])
    }

    /// ifOutErrors, ifOutDiscards.
    pub fn lost_out(&self) -> [u64; 2] {
        self.at([0x58, 0x60])
    }

    /// Directed, multicast and broadcast frames and octets in, and all octets in.
    fn came(&self) -> [u64; 7] {
        self.at([0x20, 0x28, 0x30, 0x68, 0x70, 0x78, 0x18])
    }

    /// The same for what went out.
    fn went(&self) -> [u64; 7] {
        self.at([0x40, 0x48, 0x50, 0x80, 0x88, 0x90, 0x38])
    }
}

fn with_wire(trial: impl FnOnce(&Machine, &Adapter, &Adapter)) {
    with_machine(&Setup::default(), |machine| trial(machine, &machine.adapters[0], &machine.adapters[1]));
}

fn every_length_arrives_and_short_frames_are_padded() {
    with_wire(|_, first, second| {
        let (to, from) = (mac(second), mac(first));
        for length in (14..=80).chain([127, 128, 129, 1000, 1499, 1500, 1501, FRAME_MAX - 1, FRAME_MAX]) {
            let sent = frame(to, from, length);
            assert_eq!(send_one(first, sent.clone()), NDIS_STATUS_SUCCESS, "{length} bytes");
            assert_eq!(received(second), [padded(sent)], "{length} bytes");
        }
        assert_eq!(received(first), nothing(), "nothing comes back to the sender");
    });
}

fn lengths_that_are_no_frame_are_refused() {
    with_wire(|_, first, second| {
        let lengths = [0, 1, 6, 13, FRAME_MAX + 1, FRAME_MAX + 4, 4096, 65_536];
        for length in lengths {
            let sent = frame(mac(second), mac(first), length);
            assert_eq!(send_one(first, sent), NDIS_STATUS_INVALID_LENGTH, "{length} bytes");
        }
        assert_eq!(received(second), nothing());
        assert_eq!(Counted::of(first).lost_out(), [lengths.len() as u64, 0]);
        assert_eq!(Counted::of(first).went(), [0; 7]);
        assert_eq!(Counted::of(second).lost_in(), [0, 0]);
    });
}

fn each_filter_takes_its_destinations() {
    const DIRECTED: u32 = 0x1;
    const MULTICAST: u32 = 0x2;
    const ALL_MULTICAST: u32 = 0x4;
    const TO_ALL: u32 = 0x8;
    const PROMISCUOUS: u32 = 0x20;
    with_wire(|_, first, second| {
        let own = mac(second);
        let destinations = [own, UNRELATED, ALL_HOSTS, OTHERS, BROADCAST];
        for (bits, takes) in [
            (0, [false, false, false, false, false]),
            (DIRECTED, [true, false, false, false, false]),
            (MULTICAST, [false, false, true, false, false]),
            (ALL_MULTICAST, [false, false, true, true, false]),
            (TO_ALL, [false, false, false, false, true]),
            (PROMISCUOUS, [true; 5]),
            (DIRECTED | MULTICAST | TO_ALL, [true, false, true, false, true]),
            (MULTICAST | ALL_MULTICAST, [false, false, true, true, false]),
        ] {
            filter(second, bits);
            let frames = destinations.map(|to| frame(to, mac(first), 90));
            let answers = send(first, frames.iter().cloned().map(Frame::from).collect());
            assert_eq!(answers, [NDIS_STATUS_SUCCESS; 5], "the sender does not know the filter");
            let expected: Vec<_> =
                frames.iter().zip(takes).filter(|(_, takes)| *takes).map(|(frame, _)| frame.clone()).collect();
            assert_eq!(received(second), expected, "filter {bits:#x}");
        }
        // The list that was set last is the one in force, down to none.
        filter(second, MULTICAST);
        for (list, takes) in
            [(OTHERS.to_vec(), [false, true]), ([OTHERS, ALL_HOSTS].concat(), [true, true]), (Vec::new(), [false; 2])]
        {
            assert_eq!(set(second, OID_802_3_MULTICAST_LIST, &list), NDIS_STATUS_SUCCESS);
            for (to, takes) in [ALL_HOSTS, OTHERS].into_iter().zip(takes) {
                assert_eq!(send_one(first, frame(to, mac(first), 90)), NDIS_STATUS_SUCCESS);
                assert_eq!(received(second).len(), usize::from(takes), "{to:x?} with the list {list:x?}");
            }
        }
    });
}

fn frames_in_pieces_and_behind_unused_space() {
    with_wire(|_, first, second| {
        let whole = frame(mac(second), mac(first), 900);
        for cuts in [vec![1], vec![5, 6, 7], vec![13, 14, 15], vec![899], (1..900).step_by(37).collect()] {
            for unused in [0, 1, 14, 200] {
                let mut pieces = Vec::new();
                let mut start = 0;
                for end in cuts.iter().copied().chain([whole.len()]) {
                    pieces.push(whole[start..end].to_vec());
                    start = end;
                }
                let head = [vec![0xEE; unused], pieces[0].clone()].concat();
                pieces[0] = head;
                let sent = Frame { pieces, unused, ..Frame::default() };
                assert_eq!(send(first, vec![sent]), [NDIS_STATUS_SUCCESS]);
                assert_eq!(received(second), std::slice::from_ref(&whole), "cut at {cuts:?} behind {unused} bytes");
            }
        }
    });
}

fn several_frames_in_a_list_and_lists_in_a_chain() {
    with_wire(|_, first, second| {
        let good = |length| frame(mac(second), mac(first), length);
        let list = |lengths: &[usize]| Frame {
            pieces: vec![good(lengths[0])],
            following: lengths[1..].iter().map(|length| good(*length)).collect(),
            ..Frame::default()
        };
        let chain =
            vec![list(&[60, 61, 62]), list(&[70]), list(&[80, 13, 82, 2000, 84]), list(&[2000]), list(&[90, 91])];
        let answers = send(first, chain);
        let bad = NDIS_STATUS_INVALID_LENGTH;
        assert_eq!(answers, [NDIS_STATUS_SUCCESS, NDIS_STATUS_SUCCESS, bad, bad, NDIS_STATUS_SUCCESS]);
        let expected = [60, 61, 62, 70, 80, 82, 84, 90, 91].map(good);
        assert_eq!(received(second), expected, "the good frames, in their order");
        assert_eq!(Counted::of(first).lost_out(), [3, 0], "an error for each bad frame");
    });
}

fn each_destination_is_counted_at_both_ends() {
    with_wire(|_, first, second| {
        let frames = [(mac(second), 100), (ALL_HOSTS, 200), (ALL_HOSTS, 20), (BROADCAST, 300), (mac(second), 1514)];
        for (to, length) in frames {
            assert_eq!(send_one(first, frame(to, mac(first), length)), NDIS_STATUS_SUCCESS);
        }
        assert_eq!(received(second).len(), 5);
        assert_eq!(Counted::of(first).went(), [2, 2, 1, 1614, 220, 300, 2134]);
        assert_eq!(Counted::of(second).came(), [2, 2, 1, 1614, 260, 300, 2174], "padded");
        assert_eq!((Counted::of(first).came(), Counted::of(second).went()), ([0; 7], [0; 7]));
        // What the filter stops was not received; a frame without a receiver is counted by its kind, and as discarded.
        filter(second, 0);
        assert_eq!(send_one(first, frame(BROADCAST, mac(first), 60)), NDIS_STATUS_SUCCESS);
        assert_eq!(received(second), nothing());
        assert_eq!(Counted::of(second).came()[2], 1);
        second.pause().expect("a pause");
        assert_eq!(send_one(first, frame(ALL_HOSTS, mac(first), 60)), NDIS_STATUS_SUCCESS);
        assert_eq!(send_one(first, frame(BROADCAST, mac(first), 60)), NDIS_STATUS_SUCCESS);
        assert_eq!(Counted::of(first).went()[..3], [2, 3, 3]);
        assert_eq!(Counted::of(first).lost_out(), [0, 2]);
        second.restart().expect("a restart");
    });
}

fn cancelling_a_finished_send_does_nothing() {
    with_wire(|_, first, second| {
        let sent = [1, 2, 1].map(|cancel_id| Frame {
            pieces: vec![frame(mac(second), mac(first), 60 + cancel_id)],
            cancel_id,
            ..Frame::default()
        });
        first.cancel_send(1).expect("a started adapter");
        assert_eq!(send(first, sent.to_vec()), [NDIS_STATUS_SUCCESS; 3]);
        first.cancel_send(1).expect("a started adapter");
        first.cancel_send(77).expect("a started adapter");
        assert_eq!(received(second).len(), 3);
    });
}

fn frames_without_capacity_are_dropped_and_counted() {
    with_wire(|_, first, second| {
        let sent: Vec<_> = (0..CAPACITY + 44).map(|index| frame(mac(second), mac(first), 60 + index % 1000)).collect();
        for round in 1..=2 {
            // No DPC runs before the level is lowered, so nothing is taken out of the queue.
            let level = irql::raise(irql::DISPATCH);
            let batch = first.send(sent.iter().cloned().map(Frame::from).collect()).expect("a started adapter");
            irql::lower(level);
            assert_eq!(batch.wait(), vec![NDIS_STATUS_SUCCESS; sent.len()]);
            assert_eq!(received(second), sent[..CAPACITY], "the first {CAPACITY} of them, in order");
            assert_eq!(Counted::of(second).lost_in(), [44 * round, 0]);
        }
    });
}

fn frames_that_cannot_be_mapped_are_refused() {
    with_wire(|_, first, second| {
        let sent = || frame(mac(second), mac(first), 100);
        fault::start_recording();
        assert_eq!(send_one(first, sent()), NDIS_STATUS_SUCCESS);
        let mut sites = fault::sites();
        fault::stop();
        sites.retain(|record| record.export == "NdisGetDataBuffer");
        assert!(!sites.is_empty(), "a frame was read");
        assert_eq!(received(second).len(), 1);
        for (errors, record) in (1..).zip(&sites) {
            fault::fail(record.site, 1);
            let status = send_one(first, sent());
            fault::stop();
            assert_eq!(status, NDIS_STATUS_RESOURCES);
            assert_eq!(received(second), nothing());
            assert_eq!(Counted::of(first).lost_out(), [errors, 0]);
        }
        // No frame is lost by it: the receiver has all of its frames.
        let level = irql::raise(irql::DISPATCH);
        let batch = first.send((0..CAPACITY).map(|_| sent().into()).collect()).expect("a started adapter");
        irql::lower(level);
        drop(batch.wait());
        assert_eq!(received(second).len(), CAPACITY);
    });
}

fn lent_frames_come_back_before_a_pause_is_over() {
    with_wire(|_, first, second| {
        second.keep_received(true).expect("a started adapter");
        for round in 0..3 {
            for length in 60..100 {
                assert_eq!(send_one(first, frame(mac(second), mac(first), length)), NDIS_STATUS_SUCCESS);
            }
            assert_eq!(received(second).len(), 40);
            // The host gives them back a second after the pause began, and checks that none is out at its end.
            second.pause().expect("a pause");
            second.restart().unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        second.keep_received(false).expect("a started adapter");
    });
}

fn layers_that_keep_every_frame_do_not_stop_the_wire() {
    with_wire(|_, first, second| {
        second.keep_received(true).expect("a started adapter");
        for length in 0..2 * CAPACITY {
            let sent = frame(mac(second), mac(first), 60 + length);
            assert_eq!(send_one(first, sent.clone()), NDIS_STATUS_SUCCESS);
            assert_eq!(received(second), [sent], "frame {length}");
        }
        assert_eq!(Counted::of(second).lost_in(), [0, 0], "the last frames are not lent");
        second.return_received().expect("a started adapter");
        second.keep_received(false).expect("a started adapter");
        let level = irql::raise(irql::DISPATCH);
        let all = (0..CAPACITY).map(|_| frame(mac(second), mac(first), 60).into()).collect();
        let batch = first.send(all).expect("a started adapter");
        irql::lower(level);
        drop(batch.wait());
        assert_eq!(received(second).len(), CAPACITY, "every frame came back");
    });
}

fn sends_that_come_late_come_back_paused() {
    with_wire(|_, first, second| {
        first.pause().expect("a pause");
        let late = (0..5).map(|_| frame(mac(second), mac(first), 60).into()).collect();
        let answers = first.send_late(late).expect("a started adapter").wait();
        assert_eq!(answers, [NDIS_STATUS_PAUSED; 5]);
        assert_eq!(received(second), nothing());
        assert_eq!(Counted::of(first).went(), [0; 7]);
        first.restart().expect("a restart");
    });
}

fn frames_on_their_way_do_not_outlive_a_pause() {
    with_wire(|machine, first, second| {
        let sent: Vec<_> = (0..200).map(|index| frame(mac(second), mac(first), 60 + index)).collect();
        let mut arrived = 0;
        for _ in 0..20 {
            // The pause begins while the receiver's DPC has just been queued; the host sees an indication that comes later.
            concurrently(
                machine,
                || drop(send(first, sent.iter().cloned().map(Frame::from).collect())),
                || second.pause().expect("a pause"),
            );
            let before = second.take_received().expect("a started adapter").len();
            arrived += before;
            second.restart().expect("a restart");
            assert_eq!(received(second), nothing(), "nothing was kept for later");
        }
        // Every frame of the receiver is there again.
        assert_eq!(send(first, sent.iter().cloned().map(Frame::from).collect()), [NDIS_STATUS_SUCCESS; 200]);
        assert_eq!(received(second).len(), 200, "{arrived} arrived before the pauses");
    });
}

fn traffic_goes_on_after_restart() {
    with_wire(|_, first, second| {
        for round in 0..10 {
            for (one, other) in [(first, second), (second, first)] {
                one.restart().expect("a pause and a restart");
                let sent = frame(mac(other), mac(one), 100 + round);
                assert_eq!(send_one(one, sent.clone()), NDIS_STATUS_SUCCESS);
                assert_eq!(received(other), [sent]);
            }
        }
        for adapter in [first, second] {
            adapter.power_down().expect("power down");
            adapter.power_up().unwrap_or_else(|error| panic!("power up: {error}"));
        }
        let sent = frame(mac(second), mac(first), 77);
        assert_eq!(send_one(first, sent.clone()), NDIS_STATUS_SUCCESS);
        assert_eq!(received(second), [sent], "after low power");
    });
}

fn sends_after_a_surprise_removal_are_not_accepted() {
    with_wire(|_, first, second| {
        first.device_event(DeviceEvent::SurpriseRemoved).expect("a started adapter");
        let sent = (0..3).map(|_| frame(mac(second), mac(first), 60).into()).collect();
        assert_eq!(send(first, sent), [NDIS_STATUS_NOT_ACCEPTED; 3]);
        assert_eq!(received(second), nothing());
        assert_eq!(send_one(second, frame(mac(first), mac(second), 60)), NDIS_STATUS_SUCCESS, "a cable without an end");
        assert_eq!(received(first), nothing(), "what is gone receives nothing");
        first.halt(HaltAction::SurpriseRemoved).expect("a halt");
        first.start().unwrap_or_else(|error| panic!("starting again: {error}"));
        let sent = frame(mac(second), mac(first), 61);
        assert_eq!(send_one(first, sent.clone()), NDIS_STATUS_SUCCESS);
        assert_eq!(received(second), [sent]);
    });
}

fn three_on_one_wire_and_one_on_another() {
    let mut setup = Setup::default();
    setup.adapters.extend([AdapterSetup::numbered(3), AdapterSetup::numbered(4)]);
    setup.adapters[3].keywords.push(("WireNumber", "7"));
    with_machine(&setup, |machine| {
        let adapters = &machine.adapters;
        for (sender, adapter) in adapters.iter().enumerate() {
            let broadcast = frame(BROADCAST, mac(adapter), 80 + sender);
            assert_eq!(send_one(adapter, broadcast.clone()), NDIS_STATUS_SUCCESS);
            wait_until_idle();
            for (index, other) in adapters.iter().enumerate() {
                let receives = index != sender && index < 3 && sender < 3;
                let expected = if receives { vec![broadcast.clone()] } else { nothing() };
                assert_eq!(received(other), expected, "{sender} to {index}");
            }
        }
        let one = frame(mac(&adapters[2]), mac(&adapters[0]), 90);
        assert_eq!(send_one(&adapters[0], one.clone()), NDIS_STATUS_SUCCESS);
        assert_eq!(received(&adapters[1]), nothing(), "not addressed");
        assert_eq!(received(&adapters[2]), [one]);
        // A frame that reaches one of two is no discard.
        adapters[1].pause().expect("a pause");
        assert_eq!(send_one(&adapters[0], frame(BROADCAST, mac(&adapters[0]), 60)), NDIS_STATUS_SUCCESS);
        assert_eq!(Counted::of(&adapters[0]).lost_out(), [0, 0]);
        adapters[1].restart().expect("a restart");
    });
}

/// Frames that were sent in a storm, and those of them that came back paused.
#[derive(Default)]
struct Storm {
    sent: AtomicUsize,
    paused: AtomicUsize,
}

/// Sends without end from a thread of its own while `disturb` runs: this many rounds, and on until the storm has had the required effect.
fn storm(
    machine: &Machine,
    (from, to): (&Adapter, &Adapter),
    rounds: usize,
    met: impl Fn(&Storm) -> bool + Sync,
    disturb: impl Fn(usize) + Send + Sync,
) {
    let (stop, storm) = (AtomicBool::new(false), Storm::default());
    let (target, source) = (mac(to), mac(from));
    concurrently(
        machine,
        || {
            while !stop.load(Ordering::Acquire) {
                let frames = (0..8).map(|index| frame(target, source, 60 + index).into()).collect();
                for answer in send(from, frames) {
                    match answer {
                        NDIS_STATUS_SUCCESS => storm.sent.fetch_add(1, Ordering::AcqRel),
                        NDIS_STATUS_PAUSED => storm.paused.fetch_add(1, Ordering::AcqRel),
                        other => panic!("a send completed with {other:#x}"),
                    };
                }
                dispatcher::delay(-2000);
            }
        },
        || {
            for round in 0.. {
                if round >= rounds && met(&storm) {
                    break;
                }
                let (sent, paused) = (storm.sent.load(Ordering::Acquire), storm.paused.load(Ordering::Acquire));
                assert!(round < AGAIN * rounds, "{round} rounds, {sent} frames sent, {paused} came back paused");
                disturb(round);
            }
            stop.store(true, Ordering::Release);
        },
    );
}

/// A storm that has not met what it is for goes on for so many times its rounds.
const AGAIN: usize = 100;

fn storm_while_the_other_end_comes_and_goes() {
    with_wire(|machine, first, second| {
        let met = |storm: &Storm| {
            assert_eq!(storm.paused.load(Ordering::Acquire), 0, "the sender was never paused");
            storm.sent.load(Ordering::Acquire) > 100
        };
        storm(machine, (first, second), 40, met, |round| {
            match round % 4 {
                0 => second.restart().expect("a pause and a restart"),
                1 => {
                    second.halt(HaltAction::DeviceDisabled).expect("a halt");
                    second.start().unwrap_or_else(|error| panic!("starting again: {error}"));
                }
                2 => {
                    second.surprise_remove().expect("a surprise removal");
                    second.start().unwrap_or_else(|error| panic!("starting again: {error}"));
                }
                _ => {
                    second.power_down().expect("power down");
                    second.power_up().unwrap_or_else(|error| panic!("power up: {error}"));
                }
            }
            pass_time();
        });
    });
}

fn storm_while_the_sender_pauses() {
    with_wire(|machine, first, second| {
        let met = |storm: &Storm| storm.sent.load(Ordering::Acquire) > 100 && storm.paused.load(Ordering::Acquire) > 0;
        storm(machine, (first, second), 30, met, |_| {
            first.pause().expect("a pause");
            dispatcher::delay(-1000);
            first.restart().expect("a restart");
            pass_time();
        });
        let last = frame(mac(second), mac(first), 99);
        drop(received(second));
        assert_eq!(send_one(first, last.clone()), NDIS_STATUS_SUCCESS);
        assert_eq!(received(second), [last]);
    });
}

fn power_states_are_checked() {
    with_wire(|_, first, _| {
        for state in [0_u32, 5, 6, 0xFF, u32::MAX] {
            assert_eq!(set(first, OID_PNP_SET_POWER, &state.to_le_bytes()), NDIS_STATUS_INVALID_DATA, "{state}");
        }
        for (oid, size) in [(OID_PNP_SET_POWER, 4), (OID_GEN_LINK_PARAMETERS, 0x20)] {
            for length in [0, 1, size - 1] {
                let answer = first.set_oid(oid, &vec![0; length]).expect("a started adapter");
                let seen = (answer.status, answer.bytes_done, answer.bytes_needed as usize);
                assert_eq!(seen, (NDIS_STATUS_INVALID_LENGTH, 0, size), "{oid:#x} with {length} bytes");
            }
        }
    });
}
