//! TCP/IP over the frames of the real driver image: two adapters on one wire, the second with the stack of another machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::link::{
    FAR, FAR_V6, Link, MINUTE, NEAR, NEAR_V6, SECOND, connected, foreign, in_child, losing_one_in, pattern, transfer,
};
use kernel_host::callout::ContextKind;
use kernel_host::stack::{FrameDirection, IndicationCounts, StackConfig, StackError};
use kernel_host::thread::Thread;
use kernel_host::{HaltAction, KernelConfig, Mode, dispatcher};

fn pings(link: &Link) {
    for length in [0, 1, 1422, 1472] {
        let data = pattern(length, 7);
        assert_eq!(link.here.ping(FAR, &data, SECOND), Some(data.clone()), "{length} bytes");
        assert_eq!(link.there.ping(NEAR, &data, SECOND), Some(data), "{length} bytes back");
    }
    for length in [0, 1, 1452] {
        let data = pattern(length, 9);
        assert_eq!(link.here.ping(FAR_V6, &data, 3 * SECOND), Some(data.clone()), "{length} bytes");
        assert_eq!(link.there.ping(NEAR_V6, &data, 3 * SECOND), Some(data), "{length} bytes back");
    }
    let absent = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 9));
    let before = dispatcher::now();
    assert_eq!(link.here.ping(absent, &[1], 4 * SECOND), None);
    assert!(dispatcher::now() - before >= 4 * dispatcher::UNITS_PER_SECOND);
    assert_eq!(link.here.ping(IpAddr::V4(Ipv4Addr::new(10, 78, 0, 1)), &[1], SECOND), None, "not on the link");
}

#[test]
fn echo_requests_are_answered_both_ways() {
    in_child("echo_requests_are_answered_both_ways", || {
        let link = Link::boot(KernelConfig::default());
        pings(&link);
        assert!(link.near.take_received().expect("it runs").len() > 10, "tests still see the frames");
        link.end();
    });
}

#[test]
fn echo_requests_are_answered_in_other_orders() {
    const TEST: &str = "echo_requests_are_answered_in_other_orders";
    const SEED: &str = "STACK_SEED";
    if let Ok(seed) = std::env::var(SEED) {
        let link = Link::boot(KernelConfig { schedule: seed.parse().ok(), ..KernelConfig::default() });
        pings(&link);
        return link.end();
    }
    for seed in 1..=4 {
        crate::child::in_child_with(TEST, &[(SEED, &seed.to_string())]).expect_success();
    }
}

fn datagrams(link: &Link) {
    let (near, far) = (link.here.udp(0).expect("a port"), link.there.udp(5353).expect("a port"));
    for length in [0, 1, 1472] {
        let data = pattern(length, 3);
        assert!(near.send(SocketAddr::new(FAR, 5353), &data));
        let (received, from) = far.receive(SECOND).expect("a datagram");
        assert_eq!((received, from), (data.clone(), SocketAddr::new(NEAR, near.port())));
        assert!(far.send(from, &data));
        assert_eq!(near.receive(SECOND), Some((data, SocketAddr::new(FAR, 5353))));
    }
    assert_eq!(near.receive(SECOND), None);
}

fn streams(link: &Link, to: IpAddr) {
    let [near, far] = connected(&link.here, &link.there, SocketAddr::new(to, 7000));
    let near = transfer(&link.kernel, near, &far, pattern(1 << 20, 1));
    let far = transfer(&link.kernel, far, &near, pattern(1 << 20, 2));
    near.finish();
    assert_eq!(far.receive(100, MINUTE), Ok(Vec::new()));
    far.send(b"last", MINUTE).expect("this direction is open");
    assert_eq!(near.receive_exact(4, MINUTE), Ok(b"last".to_vec()));
    far.finish();
    assert_eq!(near.receive(100, MINUTE), Ok(Vec::new()));
    let refused = link.here.tcp_connect(SocketAddr::new(to, 7001), MINUTE);
    assert_eq!(refused.err(), Some(StackError::Refused));
}

#[test]
fn datagrams_and_streams_cross_the_wire() {
    in_child("datagrams_and_streams_cross_the_wire", || {
        let link = Link::boot(KernelConfig::default());
        datagrams(&link);
        streams(&link, FAR);
        streams(&link, FAR_V6);
        link.end();
    });
}

#[test]
fn datagrams_and_streams_cross_the_wire_in_fast_mode() {
    in_child("datagrams_and_streams_cross_the_wire_in_fast_mode", || {
        let link = Link::boot(KernelConfig { mode: Mode::Fast, ..KernelConfig::default() });
        datagrams(&link);
        streams(&link, FAR);
        link.end();
    });
}

#[test]
fn one_frame_in_ten_is_lost_and_all_bytes_arrive() {
    in_child("one_frame_in_ten_is_lost_and_all_bytes_arrive", || {
        let link = Link::boot(KernelConfig::default());
        link.here.set_filter(Some(losing_one_in(10)));
        let [near, far] = link.connected();
        let near = transfer(&link.kernel, near, &far, pattern(200_000, 1));
        drop(transfer(&link.kernel, far, &near, pattern(200_000, 2)));
        link.here.set_filter(None);
        link.end();
    });
}

#[test]
fn a_peer_that_vanishes_ends_the_connection_after_its_retransmissions() {
    in_child("a_peer_that_vanishes_ends_the_connection_after_its_retransmissions", || {
        let link = Link::boot(KernelConfig::default());
        let [near, far] = link.connected();
        near.send(&[1; 100], SECOND).expect("it is taken");
        assert_eq!(far.receive_exact(100, MINUTE), Ok(vec![1; 100]));
        near.flush(MINUTE).expect("it is acknowledged");
        let sent = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&sent);
        // From now on the machine over there neither sees nor sends anything.
        link.there.set_filter(Some(Box::new(|_, _| false)));
        link.here.set_filter(Some(Box::new(move |direction, _| {
            counted.fetch_add(u64::from(direction == FrameDirection::Sent), Ordering::Relaxed);
            true
        })));
        let before = dispatcher::skipped();
        near.send(&[2; 3000], SECOND).expect("it is taken");
        assert_eq!(near.flush(2 * MINUTE), Err(StackError::Broken));
        let passed = (dispatcher::skipped() - before) / dispatcher::UNITS_PER_SECOND;
        assert!((15..60).contains(&passed), "{passed} s were skipped");
        assert!((4..100).contains(&sent.load(Ordering::Relaxed)), "{} frames", sent.load(Ordering::Relaxed));
        link.end();
    });
}

#[test]
fn adapters_pause_restart_and_halt_under_a_stack() {
    in_child("adapters_pause_restart_and_halt_under_a_stack", || {
        let link = Link::boot(KernelConfig::default());
        for adapter in [&link.near, &link.far] {
            let [near, far] = link.connected();
            let bytes = pattern(300_000, 5);
            let sent = bytes.clone();
            let sender = link.kernel.spawn("sender", move || {
                near.send(&sent, MINUTE).expect("it is taken");
                near
            });
            let mut received = far.receive_exact(50_000, MINUTE).expect("it comes");
            adapter.pause().expect("pauses");
            link.kernel.sleep(SECOND);
            adapter.restart().expect("restarts");
            received.extend(far.receive_exact(100_000, MINUTE).expect("it comes again"));
            adapter.restart().expect("pauses and restarts");
            received.extend(far.receive_exact(150_000, MINUTE).expect("it comes again"));
            assert!(received == bytes);
            drop(sender.join());
        }
        let [near, far] = link.connected();
        near.send(&pattern(20_000, 3), MINUTE).expect("it is taken");
        link.near.halt(HaltAction::DeviceDisabled).expect("halts");
        assert_eq!(near.receive(1, MINUTE), Err(StackError::Broken));
        link.near.start().expect("starts");
        let again = link.near.stack().expect("a new stack");
        assert_eq!(again.ping(FAR, b"again", 3 * SECOND), Some(b"again".to_vec()));
        link.near.surprise_remove().expect("is pulled out");
        drop((near, far));
        link.end();
    });
}

#[test]
fn a_reentrant_stack_answers_inside_the_indication() {
    in_child("a_reentrant_stack_answers_inside_the_indication", || {
        let mut link = Link::boot(KernelConfig::default());
        let reentrant = StackConfig { reentrant: true, ..StackConfig::default() };
        link.here = link.near.bind_stack(reentrant.clone()).expect("it runs");
        link.there = link.far.bind_stack(StackConfig { foreign: foreign().foreign, ..reentrant }).expect("it runs");
        // The driver indicates in a DPC of its own.
        let answers = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&answers);
        link.there.set_filter(Some(Box::new(move |direction, _| {
            let inside = Thread::current().is_inside(ContextKind::DeferredProcedureCall);
            if direction == FrameDirection::Sent && inside {
                seen.fetch_add(1, Ordering::Relaxed);
            }
            true
        })));
        assert_eq!(link.here.ping(FAR, b"now", 3 * SECOND), Some(b"now".to_vec()));
        assert!(answers.load(Ordering::Relaxed) >= 2, "the answers to ARP and to the echo request");
        let [near, far] = link.connected();
        drop(transfer(&link.kernel, near, &far, pattern(100_000, 1)));
        drop(far);
        link.end();
    });
}

#[test]
fn lists_are_returned_kept_and_indicated_with_the_resources_flag() {
    in_child("lists_are_returned_kept_and_indicated_with_the_resources_flag", || {
        let link = Link::boot(KernelConfig::default());
        let (near, far) = (link.here.udp(9).expect("a port"), link.there.udp(0).expect("a port"));
        let all = |counts: IndicationCounts| counts.returned != 0 && counts.kept != 0 && counts.resources != 0;
        for round in 0..400 {
            while far.send(SocketAddr::new(NEAR, 9), &[round as u8; 700]) {}
            link.kernel.sleep(SECOND / 1000);
            while near.receive(Duration::ZERO).is_some() {}
            if all(link.here.indications()) {
                return link.end();
            }
        }
        panic!("{:?}", link.here.indications());
    });
}
