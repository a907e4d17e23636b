//! Frames to and from other machines in VXLAN datagrams. The trial plays the other machines: it gets each datagram that leaves, and sends
//! what comes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use conformance::case;
use conformance::machine::{AdapterSetup, Machine, Setup, concurrently, pass_time, wait_until_idle, with_machine};
use conformance::trial::Case;
use kernel_host::io::{Caller, GENERIC_READ, GENERIC_WRITE, Opener, file};
use kernel_host::ndis::data_path::SendBatch;
use kernel_host::wsk::{self, Datagram, OtherMachines};
use kernel_host::{Adapter, HaltAction, dispatcher, fault, irql};
use ndkpi_sys::ndis::{NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_SUCCESS, OID_GEN_MAXIMUM_TOTAL_SIZE};
use softndk_ioctl::{
    EventEntry, EventKind, EventListReply, EventListRequest, Request, RequestHeader, Status, UplinkDrops, UplinkEntry,
    UplinkListReply, UplinkListRequest, WIN32_DEVICE_NAME,
};
use zerocopy::FromBytes;

use super::wire::{Counted, frame, mac, padded, received, send_one};

pub const CASES: &[Case] = &[
    case!(frames_leave_once_for_each_peer: "NDIS-UP-1"),
    case!(frames_of_peers_are_indicated: "NDIS-UP-2"),
    case!(stations_are_learned_moved_and_forgotten: "NDIS-UP-3"),
    case!(unknown_senders_and_other_networks_are_refused: "NDIS-UP-4"),
    case!(frames_that_are_none_are_dropped_and_counted: "NDIS-UP-4"),
    case!(frames_of_peers_go_to_no_other_peer: "NDIS-UP-5"),
    case!(packets_to_a_peer_do_not_go_through_its_own_uplink: "NDIS-UP-6"),
    case!(mtu_leaves_space_for_the_headers: "NDIS-UP-7"),
    case!(port_that_another_program_has_is_taken_when_it_is_free: "NDIS-UP-8"),
    case!(receives_that_fail_are_made_again: "NDIS-UP-8"),
    case!(socket_that_the_system_takes_away_is_made_anew: "NDIS-UP-8"),
    case!(frames_as_of_a_peer_are_not_taken: "NDIS-UP-2"),
    case!(frames_as_of_a_peer_at_another_port_are_not_taken: "NDIS-UP-2"),
    case!(adapters_of_several_wires_share_a_port: "NDIS-UP-1", "NDIS-UP-2"),
    case!(peers_of_the_other_family: "NDIS-UP-1", "NDIS-UP-2"),
    case!(text_that_is_no_list_of_peers_is_none: "NDIS-UP-9"),
    case!(frames_without_a_free_datagram_are_dropped_and_counted: "NDIS-UP-10"),
    case!(storm_both_ways_while_adapters_come_and_go: "NDIS-UP-11"),
];

const PORT: u16 = 4789;
const BROADCAST: [u8; 6] = [0xFF; 6];
/// A station behind a peer.
const STATION: [u8; 6] = [0x02, 0, 0, 0, 0, 0x51];
/// In the host's units.
const SECOND: i64 = 10_000_000;
/// Receives that an uplink has under way.
const RECEIVES: usize = 64;
/// Datagrams that wait for their socket at most.
const WAITING: usize = 128;

fn peer(last: u8) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(198, 51, 100, last).into(), PORT)
}

/// The address of this machine's real network card.
fn here() -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), PORT)
}

fn header(network: u32) -> Vec<u8> {
    let [_, high, middle, low] = network.to_be_bytes();
    vec![0x08, 0, 0, 0, high, middle, low, 0]
}

fn wrapped(network: u32, frame: &[u8]) -> Vec<u8> {
    [header(network), frame.to_vec()].concat()
}

/// Two adapters on wire 7; the first has peers.
fn setup(peers: &'static str) -> Setup {
    let mut setup = Setup::default();
    setup.adapters.iter_mut().for_each(|adapter| adapter.keywords.push(("WireNumber", "7")));
    setup.adapters[0].keywords.push(("UplinkPeers", peers));
    setup
}

fn with_peers(peers: &'static str, trial: impl FnOnce(&OtherMachines, &Machine, &Adapter, &Adapter)) {
    with_setup(&setup(peers), |others, machine| trial(others, machine, &machine.adapters[0], &machine.adapters[1]));
}

fn with_setup(setup: &Setup, trial: impl FnOnce(&OtherMachines, &Machine)) {
    with_machine(setup, |machine| {
        let others = OtherMachines::play();
        wait_until_idle();
        trial(&others, machine);
    });
}

/// Where each datagram went that left since the last call, and its bytes.
fn left(others: &OtherMachines) -> Vec<(SocketAddr, Vec<u8>)> {
    wait_until_idle();
    let sorted = |mut datagrams: Vec<Datagram>| {
        datagrams.sort_by_key(|datagram| datagram.to);
        datagrams.into_iter().map(|datagram| (datagram.to, datagram.bytes)).collect()
    };
    sorted(others.take_received())
}

fn goes_to(others: &OtherMachines, adapter: &Adapter, to: [u8; 6]) -> Vec<SocketAddr> {
    assert_eq!(send_one(adapter, frame(to, mac(adapter), 90)), NDIS_STATUS_SUCCESS);
    left(others).into_iter().map(|(to, _)| to).collect()
}

/// The driver's list, by the control device.
fn listed<R: Request, Entry: FromBytes>(request: &R, head: usize) -> Vec<Entry> {
    let opener = Opener { caller: Caller::Kernel, ..Opener::default() };
    let device = file::open(WIN32_DEVICE_NAME, GENERIC_READ | GENERIC_WRITE, opener).expect("the control device opens");
    let mut output = vec![0; head + 512 * size_of::<Entry>()];
    let answer = device.ioctl(R::CODE, request.as_bytes(), &mut output);
    assert_eq!(Status(answer.status), Status::SUCCESS);
    let entries = output[head..answer.information].chunks_exact(size_of::<Entry>());
    entries.map(|entry| Entry::read_from_bytes(entry).expect("an entry")).collect()
}

fn uplinks() -> Vec<UplinkEntry> {
    let request = UplinkListRequest { header: RequestHeader::of::<UplinkListRequest>(), first: 0 };
    listed(&request, size_of::<UplinkListReply>())
}

fn drops() -> UplinkDrops {
    uplinks()[0].drops
}

fn uplink_events() -> Vec<(EventKind, u16)> {
    let request = EventListRequest { header: RequestHeader::of::<EventListRequest>(), first: 0 };
    let events: Vec<EventEntry> = listed(&request, size_of::<EventListReply>());
    let of_uplinks =
        events.iter().filter(|event| [EventKind::UPLINK_OPEN, EventKind::UPLINK_FAILED].contains(&event.event));
    of_uplinks.map(|event| (event.event, event.ports[0])).collect()
}

fn frames_leave_once_for_each_peer() {
    with_peers("198.51.100.1, 198.51.100.2", |others, _, first, second| {
        for length in [14, 59, 60, 61, 500, 1463, 1464] {
            for to in [BROADCAST, STATION] {
                let sent = frame(to, mac(first), length);
                assert_eq!(send_one(first, sent.clone()), NDIS_STATUS_SUCCESS);
                let bytes = wrapped(7, &padded(sent.clone()));
                assert_eq!(left(others), [(peer(1), bytes.clone()), (peer(2), bytes)], "{length} bytes");
                let here = if to == BROADCAST { vec![padded(sent)] } else { Vec::new() };
                assert_eq!(received(second), here, "the other adapter of the wire");
            }
        }
        assert_eq!(send_one(second, frame(BROADCAST, mac(second), 90)), NDIS_STATUS_SUCCESS);
        assert_eq!(left(others), [], "an adapter without peers");
        assert_eq!(goes_to(others, first, mac(second)), [], "to a station of this machine");
        assert_eq!(received(second).len(), 1);
        let uplinks = uplinks();
        let sent = uplinks[0].peers().iter().map(|peer| peer.sent).collect::<Vec<_>>();
        assert_eq!((uplinks.len(), sent, uplinks[0].status), (1, vec![14, 14], 0));
    });
}

fn frames_of_peers_are_indicated() {
    with_peers("198.51.100.1", |others, _, first, second| {
        for length in [14, 59, 60, 500, 1464] {
            let sent = frame(mac(first), STATION, length);
            others.send(peer(1), here(), &wrapped(7, &sent));
            assert_eq!(received(first), [padded(sent)], "{length} bytes");
        }
        let all = frame(BROADCAST, STATION, 100);
        // The source port is any.
        others.send(SocketAddr::new(peer(1).ip(), 33_333), here(), &wrapped(7, &all));
        assert_eq!(received(first), [all]);
        others.send(peer(1), here(), &wrapped(7, &frame(STATION, STATION, 100)));
        assert_eq!(received(first), Vec::<Vec<u8>>::new(), "the packet filter counts here, too");
        assert_eq!(received(second), Vec::<Vec<u8>>::new(), "it has no peers");
        let peer = uplinks()[0].peers()[0];
        assert_eq!((peer.received, peer.has_answered, peer.stations), (7, 1, 1));
    });
}

fn stations_are_learned_moved_and_forgotten() {
    const AGE: i64 = 300 * SECOND;
    with_peers("198.51.100.1,198.51.100.2", |others, _, first, _| {
        let both = [peer(1), peer(2)];
        let show = |at| {
            others.send(at, here(), &wrapped(7, &frame(mac(first), STATION, 60)));
            assert_eq!(received(first).len(), 1);
        };
        assert_eq!(goes_to(others, first, STATION), both);
        for at in [peer(2), peer(1), peer(2)] {
            show(at);
            assert_eq!(goes_to(others, first, STATION), [at]);
            assert_eq!(goes_to(others, first, BROADCAST), both);
        }
        dispatcher::delay(-AGE);
        assert_eq!(goes_to(others, first, STATION), both, "five minutes later");
        show(peer(1));
        assert_eq!(goes_to(others, first, STATION), [peer(1)]);
    });
}

fn unknown_senders_and_other_networks_are_refused() {
    with_peers("198.51.100.1", |others, _, first, second| {
        let sent = frame(BROADCAST, STATION, 100);
        others.send(peer(9), here(), &wrapped(7, &sent));
        for network in [0, 6, 8, 0x07_0000, 0xFF_FFFF] {
            others.send(peer(1), here(), &wrapped(network, &sent));
        }
        assert_eq!((received(first), received(second)), (Vec::new(), Vec::new()));
        assert_eq!(goes_to(others, first, STATION), [peer(1)], "not learned: the only peer gets what is unknown");
        let uplink = uplinks()[0];
        assert_eq!((uplink.drops.foreign, uplink.drops.malformed, uplink.peers()[0].received), (6, 0, 0));
    });
}

fn frames_that_are_none_are_dropped_and_counted() {
    with_peers("198.51.100.1", |others, _, first, _| {
        let whole = wrapped(7, &frame(mac(first), STATION, 100));
        let mut without = whole.clone();
        without[0] = 0;
        for bytes in (0..22).map(|length| &whole[..length]).chain([&without[..]]) {
            others.send(peer(1), here(), bytes);
        }
        assert_eq!(received(first), Vec::<Vec<u8>>::new());
        assert_eq!(drops().malformed, 23);
        // One byte more than the MTU allows, as long as the socket takes, and longer.
        for length in [1465, 1514, 1515, 4000, 60_000] {
            others.send(peer(1), here(), &wrapped(7, &frame(mac(first), STATION, length)));
            // The socket keeps no more than 64 KiB.
            wait_until_idle();
        }
        // The adapter's own address.
        others.send(peer(1), here(), &wrapped(7, &frame(BROADCAST, mac(first), 60)));
        assert_eq!(received(first), Vec::<Vec<u8>>::new());
        assert_eq!((drops().oversized, drops().duplicates), (2, 1));
        assert_eq!(drops().malformed, 23 + 3, "those that the socket does not take");
        others.send(peer(1), here(), &whole);
        assert_eq!(received(first).len(), 1);
    });
}

fn frames_of_peers_go_to_no_other_peer() {
    let mut setup = setup("198.51.100.1,198.51.100.2");
    setup.adapters[1].keywords.push(("UplinkPeers", "198.51.100.2,198.51.100.1"));
    with_setup(&setup, |others, machine| {
        let [first, second] = [&machine.adapters[0], &machine.adapters[1]];
        let sent = frame(BROADCAST, STATION, 100);
        others.send(peer(1), here(), &wrapped(7, &sent));
        assert_eq!((received(first), received(second)), (vec![sent.clone()], vec![sent]), "once to each");
        assert_eq!(left(others), []);
    });
}

fn packets_to_a_peer_do_not_go_through_its_own_uplink() {
    with_peers("198.51.100.1,198.51.100.2", |others, _, first, second| {
        let packet = |to: [u8; 4]| {
            let mut bytes = frame(BROADCAST, mac(first), 80);
            bytes[12..14].copy_from_slice(&[0x08, 0x00]);
            bytes[30..34].copy_from_slice(&to);
            bytes
        };
        // More often than there are free datagrams: each comes back.
        for last in [1, 2].into_iter().cycle().take(2 * WAITING) {
            let sent = packet([198, 51, 100, last]);
            assert_eq!(send_one(first, sent.clone()), NDIS_STATUS_SUCCESS);
            assert_eq!(left(others), []);
            assert_eq!(received(second), [sent], "the wire of this machine has it");
        }
        assert_eq!(drops().looped, 2 * WAITING as u64);
        assert_eq!(send_one(first, packet([198, 51, 100, 3])), NDIS_STATUS_SUCCESS);
        assert_eq!(left(others).len(), 2);
    });
}

fn mtu_leaves_space_for_the_headers() {
    const ROWS: [(&str, &str, u32); 6] = [
        ("198.51.100.1", "1500", 1450),
        ("2001:db8:1::1", "1500", 1430),
        ("198.51.100.1", "1400", 1350),
        ("198.51.100.1", "9000", 1500),
        ("198.51.100.1", "1349", 1450),
        ("", "1400", 1500),
    ];
    let mut setup = Setup { adapters: vec![AdapterSetup::numbered(1)], ..Setup::default() };
    for (number, (peers, outer, _)) in (2..).zip(ROWS) {
        let mut adapter = AdapterSetup::numbered(number);
        adapter.keywords.extend([("UplinkPeers", peers), ("UplinkOuterMtu", outer)]);
        setup.adapters.push(adapter);
    }
    with_setup(&setup, |_, machine| {
        let plain = &machine.adapters[0];
        for (adapter, (peers, outer, mtu)) in machine.adapters[1..].iter().zip(ROWS) {
            assert_eq!(adapter.general().expect("a started adapter").mtu, mtu, "{peers} {outer}");
            let total = adapter.query_oid(OID_GEN_MAXIMUM_TOTAL_SIZE, 4).expect("a started adapter").data;
            assert_eq!(total, (mtu + 14).to_le_bytes());
            let longest = mtu as usize + 14;
            let sent = frame(mac(plain), mac(adapter), longest);
            assert_eq!(send_one(adapter, sent.clone()), NDIS_STATUS_SUCCESS);
            assert!(received(plain) == [sent], "{peers} {outer}");
            assert_eq!(send_one(adapter, frame(mac(plain), mac(adapter), longest + 1)), NDIS_STATUS_INVALID_LENGTH);
            // A longer one of another adapter is not taken.
            let [discards, errors] = Counted::of(adapter).lost_in();
            assert_eq!(send_one(plain, frame(mac(adapter), mac(plain), 1514)), NDIS_STATUS_SUCCESS);
            assert_eq!(received(adapter).len(), usize::from(mtu == 1500));
            assert_eq!(Counted::of(adapter).lost_in(), [discards, errors + u64::from(mtu != 1500)]);
        }
    });
}

fn port_that_another_program_has_is_taken_when_it_is_free() {
    with_peers("198.51.100.1", |others, _, first, second| {
        first.halt(HaltAction::DeviceDisabled).expect("a halt");
        let occupied =
            wsk::occupy_datagram_port(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT)).expect("a free port");
        first.start().unwrap_or_else(|error| panic!("starting again: {error}"));
        assert_eq!(goes_to(others, first, BROADCAST), []);
        assert_ne!(uplinks()[0].status, 0);
        assert_eq!(received(second).len(), 1, "the wire of this machine goes on");
        drop(occupied);
        dispatcher::delay(-2 * SECOND);
        assert_eq!(left(others).len(), 1, "what has waited");
        assert_eq!(uplinks()[0].status, 0);
        assert_eq!(goes_to(others, first, BROADCAST), [peer(1)]);
        let (open, failed) = ((EventKind::UPLINK_OPEN, PORT), (EventKind::UPLINK_FAILED, PORT));
        assert_eq!(uplink_events(), [open, failed, open], "each change once");
    });
}

fn socket_that_the_system_takes_away_is_made_anew() {
    with_peers("198.51.100.1", |others, _, first, _| {
        assert_eq!(goes_to(others, first, BROADCAST), [peer(1)]);
        wsk::close_forcibly();
        wait_until_idle();
        assert_ne!(uplinks()[0].status, 0);
        dispatcher::delay(-2 * SECOND);
        assert_eq!(uplinks()[0].status, 0);
        assert_eq!(goes_to(others, first, BROADCAST), [peer(1)]);
    });
}

/// A peer of one wire sends, inside its tunnel, as a peer of any: its datagram would come to the socket of the uplinks.
fn frames_as_of_a_peer_are_not_taken() {
    with_peers("198.51.100.1", |others, _, first, _| {
        let packet = |source: [u8; 4]| {
            let mut packet = frame(BROADCAST, STATION, 100);
            packet[12..14].copy_from_slice(&[8, 0]);
            packet[26..30].copy_from_slice(&source);
            packet
        };
        let foreign = drops().foreign;
        others.send(peer(1), here(), &wrapped(7, &packet([198, 51, 100, 1])));
        assert_eq!(received(first), Vec::<Vec<u8>>::new());
        assert_eq!(drops().foreign, foreign + 1);
        let other = packet([198, 51, 100, 9]);
        others.send(peer(1), here(), &wrapped(7, &other));
        assert_eq!(received(first), [other]);
    });
}

/// The same of a peer of another adapter, whose tunnel has another port.
fn frames_as_of_a_peer_at_another_port_are_not_taken() {
    let mut setup = setup("198.51.100.1");
    setup.adapters[1].keywords.extend([("UplinkPeers", "198.51.100.9"), ("UplinkPort", "4790")]);
    with_setup(&setup, |others, machine| {
        let first = &machine.adapters[0];
        let mut packet = frame(BROADCAST, STATION, 100);
        packet[12..14].copy_from_slice(&[8, 0]);
        packet[26..30].copy_from_slice(&[198, 51, 100, 9]);
        others.send(peer(1), here(), &wrapped(7, &packet));
        assert_eq!(received(first), Vec::<Vec<u8>>::new());
    });
}

fn receives_that_fail_are_made_again() {
    with_peers("198.51.100.1", |others, _, first, _| {
        let arrive = || others.send(peer(1), here(), &wrapped(7, &frame(BROADCAST, STATION, 100)));
        // Every receive is completed by a datagram, and none can be made meanwhile.
        let begun = dispatcher::now();
        fault::fail_calls_of("WskReceiveFrom");
        (0..RECEIVES).for_each(|_| arrive());
        wait_until_idle();
        fault::stop();
        // Whether it fails inside its call or late, each success allows one attempt, and the timer as many as there are, each second.
        let attempts = fault::calls_of("WskReceiveFrom");
        let seconds = (dispatcher::now() - begun) / SECOND.unsigned_abs();
        let most = RECEIVES as u64 * (2 + seconds);
        assert!((1..=most).contains(&attempts), "{attempts} receives were made in {seconds} s");
        drop(received(first));
        arrive();
        dispatcher::delay(-2 * SECOND);
        assert_eq!(received(first).len(), 1);
        assert_eq!(uplinks()[0].status, 0);
    });
}

fn adapters_of_several_wires_share_a_port() {
    let mut setup = setup("198.51.100.1");
    setup.adapters[1] = AdapterSetup::numbered(2);
    setup.adapters[1].keywords.extend([("WireNumber", "8"), ("UplinkPeers", "198.51.100.1,198.51.100.2")]);
    setup.adapters.push(AdapterSetup::numbered(3));
    setup.adapters[2].keywords.extend([("WireNumber", "7"), ("UplinkPeers", "198.51.100.1"), ("UplinkPort", "4790")]);
    with_setup(&setup, |others, machine| {
        let adapters = &machine.adapters;
        let other_port = SocketAddr::new(peer(1).ip(), 4790);
        assert_eq!(goes_to(others, &adapters[1], BROADCAST), [peer(1), peer(2)]);
        assert_eq!(goes_to(others, &adapters[2], BROADCAST), [other_port]);
        assert_eq!(Counted::of(&adapters[1]).lost_out(), [0, 0], "the only adapter of its wire here");
        for adapter in adapters {
            drop(received(adapter));
        }
        let sent = frame(BROADCAST, STATION, 100);
        for (network, port, taken) in
            [(7, PORT, [1, 0, 0]), (8, PORT, [0, 1, 0]), (7, 4790, [0, 0, 1]), (8, 4790, [0; 3])]
        {
            others.send(peer(1), SocketAddr::new(here().ip(), port), &wrapped(network, &sent));
            let counts = [0, 1, 2].map(|index: usize| received(&adapters[index]).len());
            assert_eq!(counts, taken, "network {network}, port {port}");
        }
        // The socket stays as long as one of them.
        adapters[0].halt(HaltAction::DeviceDisabled).expect("a halt");
        others.send(peer(2), here(), &wrapped(8, &sent));
        assert_eq!(received(&adapters[1]).len(), 1);
        adapters[0].start().unwrap_or_else(|error| panic!("starting again: {error}"));
    });
}

fn peers_of_the_other_family() {
    with_peers("2001:db8:1::1 2001:db8:1::2", |others, _, first, _| {
        let at = |last: u16| SocketAddr::new(IpAddr::from([0x2001, 0xDB8, 1, 0, 0, 0, 0, last]), PORT);
        let here = SocketAddr::new(IpAddr::from([0x2001, 0xDB8, 0, 0, 0, 0, 0, 1]), PORT);
        assert_eq!(goes_to(others, first, BROADCAST), [at(1), at(2)]);
        let sent = frame(BROADCAST, STATION, 1444);
        others.send(at(2), here, &wrapped(7, &sent));
        assert_eq!(received(first), [sent]);
        assert_eq!(goes_to(others, first, STATION), [at(2)]);
    });
}

fn text_that_is_no_list_of_peers_is_none() {
    let mut setup = Setup { adapters: vec![AdapterSetup::numbered(1)], ..Setup::default() };
    for (number, peers) in (2..).zip(["server", "198.51.100.1,198.51.100.1", "198.51.100.1,::1", "0.0.0.0"]) {
        let mut adapter = AdapterSetup::numbered(number);
        adapter.keywords.push(("UplinkPeers", peers));
        setup.adapters.push(adapter);
    }
    with_setup(&setup, |others, machine| {
        for adapter in &machine.adapters {
            assert_eq!(adapter.general().expect("a started adapter").mtu, 1500);
            assert_eq!(goes_to(others, adapter, BROADCAST), []);
        }
        assert_eq!((received(&machine.adapters[0]).len(), uplinks().len()), (4, 0));
    });
}

fn frames_without_a_free_datagram_are_dropped_and_counted() {
    with_peers("198.51.100.1", |others, _, first, second| {
        let sent: Vec<_> = (0..WAITING + 20).map(|index| frame(BROADCAST, mac(first), 60 + index)).collect();
        for round in 1..=3 {
            // No DPC runs before the level is lowered, so nothing is taken out of the queue.
            let level = irql::raise(irql::DISPATCH);
            let batch = first.send(sent.iter().cloned().map(Into::into).collect()).expect("a started adapter");
            irql::lower(level);
            assert_eq!(batch.wait(), vec![NDIS_STATUS_SUCCESS; sent.len()]);
            // A network may change their order.
            let mut lengths: Vec<_> = left(others).iter().map(|(_, bytes)| bytes.len()).collect();
            lengths.sort_unstable();
            let expected: Vec<_> = (0..WAITING).map(|index| 8 + 60 + index).collect();
            assert!(lengths == expected, "round {round}, the first {WAITING}: {} came", lengths.len());
            assert_eq!(drops().exhausted, 20 * round);
            assert_eq!(received(second).len(), sent.len());
        }
    });
}

fn storm_both_ways_while_adapters_come_and_go() {
    let mut setup = setup("198.51.100.1,198.51.100.2");
    setup.adapters[1].keywords.push(("UplinkPeers", "198.51.100.1"));
    with_setup(&setup, |others, machine| {
        let [first, second] = [&machine.adapters[0], &machine.adapters[1]];
        let stop = AtomicBool::new(false);
        let from = mac(second);
        concurrently(
            machine,
            || {
                while !stop.load(Ordering::Acquire) {
                    for number in 0..8 {
                        let mut station = STATION;
                        station[5] = number;
                        others.send(peer(1 + number % 3), here(), &wrapped(7, &frame(BROADCAST, station, 70)));
                    }
                    drop(second.send(vec![frame(BROADCAST, from, 90).into()]).map(SendBatch::wait));
                    dispatcher::delay(-2000);
                }
            },
            || {
                for round in 0..30 {
                    match round % 3 {
                        0 => first.restart().expect("a pause and a restart"),
                        1 => {
                            first.halt(HaltAction::DeviceDisabled).expect("a halt");
                            first.start().unwrap_or_else(|error| panic!("starting again: {error}"));
                        }
                        _ => {
                            first.surprise_remove().expect("a surprise removal");
                            first.start().unwrap_or_else(|error| panic!("starting again: {error}"));
                        }
                    }
                    pass_time();
                }
                stop.store(true, Ordering::Release);
            },
        );
        drop(left(others));
        assert_eq!(goes_to(others, first, BROADCAST), [peer(1), peer(2)]);
        let came = received(first).len();
        assert!(came != 0, "frames came in the storm");
    });
}
