//! Two calls that meet, with the one stopped at each of its points in turn while the other runs whole: what must wait for the first
//! one waits, and what it uses does not go. Each window is met in every run, on real threads and without a seed.

use conformance::case;
use conformance::machine::{Machine, Setup, settle, with_machine};
use conformance::trial::Case;
use kernel_host::interruption::interrupted;
use kernel_host::{Adapter, HaltAction, schedule};
use ndkpi_sys::ndis::{OID_GEN_CURRENT_PACKET_FILTER, OID_GEN_STATISTICS, OID_NDK_SET_STATE};
use ndkpi_sys::ndkinfo::NDK_VERSION;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;

pub const CASES: &[Case] = &[
    case!(halt_at_every_point_of_a_frame_from_the_peer: "NDIS-LIFE-1", "BUG-8"),
    case!(pause_at_every_point_of_a_frame_from_the_peer: "NDIS-LIFE-5"),
    case!(surprise_removal_at_every_point_of_a_frame_from_the_peer: "NDIS-LIFE-3", "BUG-8"),
    case!(halt_at_every_point_of_a_change_of_addresses: "NDIS-LIFE-1", "BUG-8"),
    case!(halt_at_every_point_of_an_open: "NDIS-LIFE-2", "BUG-8"),
    case!(disable_at_every_point_of_an_open: "NDIS-OID-8", "NDK-OPEN-3"),
];

/// With so many points a call is stopped at every one of them, with more at some.
const POINTS: u64 = 80;

/// Runs `body` as often as it has points, with `other` in the middle, and `after` behind both. A schedule by a seed has
/// interruptions of its own.
fn at_every_point(other: impl Fn() + Sync, body: impl Fn(), after: impl Fn()) {
    if schedule::is_on() {
        return;
    }
    let mut points = 0;
    loop {
        let met = interrupted(points, || or_end(&other), || or_end(&body));
        after();
        if !met {
            break;
        }
        // Beyond the first ones in longer steps, so that a long call does not take minutes.
        points += if points < POINTS { 1 } else { points / 8 };
    }
    assert!(points > 4, "the call has {points} points: too few to have met anything");
}

/// A panic ends the trial at once: the other thread may be waiting for what will not come. What it said has been printed.
fn or_end(body: impl Fn()) {
    if std::panic::catch_unwind(AssertUnwindSafe(body)).is_err() {
        std::process::exit(101);
    }
}

/// Two adapters that take every frame.
fn with_wire(trial: impl FnOnce(&Adapter, &Adapter)) {
    const EVERYTHING: u32 = 0x20;
    with_machine(&Setup::default(), |machine: &Machine| {
        let filter = EVERYTHING.to_le_bytes();
        let [first, second] = [0, 1].map(|index| &machine.adapters[index]);
        first.set_oid(OID_GEN_CURRENT_PACKET_FILTER, &filter).expect("a started adapter");
        trial(first, second);
    });
}

fn start(adapter: &Adapter) {
    adapter.start().unwrap_or_else(|error| panic!("starting again: {error}"));
}

fn frame() -> Vec<u8> {
    let mut frame = vec![0xFF; 12];
    frame.extend([0x88, 0xB5]);
    frame.resize(200, 7);
    frame
}

fn send_to_the_peer(from: &Adapter) {
    assert_eq!(from.send_frames(&[frame(), frame()]).expect("a running adapter"), [0, 0], "the sender's wire stands");
}

fn halt_at_every_point_of_a_frame_from_the_peer() {
    with_wire(|first, second| {
        let halt = || second.halt(HaltAction::DeviceDisabled).expect("halts");
        at_every_point(
            halt,
            || send_to_the_peer(first),
            || {
                if second.state() == HALTED {
                    start(second);
                }
            },
        );
    });
}

const HALTED: kernel_host::ndis::miniport::State = kernel_host::ndis::miniport::State::Halted;

fn pause_at_every_point_of_a_frame_from_the_peer() {
    with_wire(|first, second| {
        let pause = || second.pause().expect("pauses");
        at_every_point(pause, || send_to_the_peer(first), || second.restart().expect("restarts"));
    });
}

fn surprise_removal_at_every_point_of_a_frame_from_the_peer() {
    with_wire(|first, second| {
        let remove = || second.surprise_remove().expect("is pulled out");
        at_every_point(
            remove,
            || send_to_the_peer(first),
            || {
                if second.state() == HALTED {
                    start(second);
                }
            },
        );
    });
}

fn halt_at_every_point_of_a_change_of_addresses() {
    with_wire(|_, second| {
        let address = IpAddr::from([10, 0, 0, 99]);
        let change = || {
            let _there_already = second.add_address(address, 24);
            let _gone_already = second.remove_address(address);
        };
        let halt = || second.halt(HaltAction::DeviceDisabled).expect("halts");
        at_every_point(halt, change, || {
            if second.state() == HALTED {
                start(second);
            }
        });
    });
}

const NEWEST: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 0 };

fn halt_at_every_point_of_an_open() {
    with_wire(|_, second| {
        // An open that meets the halt is refused, by NDIS or by the driver.
        let halt = || second.halt(HaltAction::DeviceDisabled).expect("halts");
        let open = || drop(second.open_ndk(NEWEST));
        at_every_point(halt, open, || {
            if second.state() == HALTED {
                start(second);
            }
        });
    });
}

fn disable_at_every_point_of_an_open() {
    with_wire(|_, second| {
        let set = |state| assert_eq!(second.set_oid(OID_NDK_SET_STATE, &[state]).expect("a started adapter").status, 0);
        // Past NDIS, as an open that is on its way when the disable comes.
        let open = || drop(second.open_ndk_directly(NEWEST));
        at_every_point(
            || set(0),
            open,
            || {
                settle();
                assert_eq!(second.ndk_opens(), 0);
                set(1);
                settle();
                assert!(second.is_ndk_enabled());
                assert_eq!(second.query_oid(OID_GEN_STATISTICS, 256).expect("a started adapter").status, 0);
            },
        );
    });
}
