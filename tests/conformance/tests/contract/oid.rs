//! Object identifiers: every mandatory query into buffers of every size, sets that are short, long or invalid, and the
//! four of an NDK provider.

use conformance::case;
use conformance::consumer::{Buffer, Pair, Window, WindowKind};
use conformance::machine::{Machine, Setup, wait_until_idle, with_machine};
use conformance::trial::Case;
use kernel_host::ndis::oid::{Direction, ETHERNET, NDK};
use ndkpi_sys::ndis::{
    NDIS_STATUS_BUFFER_TOO_SHORT, NDIS_STATUS_INVALID_DATA, NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_MULTICAST_FULL,
    NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_SUCCESS, OID_802_3_CURRENT_ADDRESS, OID_802_3_MULTICAST_LIST,
    OID_802_3_PERMANENT_ADDRESS, OID_GEN_CURRENT_LOOKAHEAD, OID_GEN_CURRENT_PACKET_FILTER,
    OID_GEN_INTERRUPT_MODERATION, OID_GEN_MAXIMUM_TOTAL_SIZE, OID_GEN_RCV_OK, OID_GEN_RECEIVE_BLOCK_SIZE,
    OID_GEN_STATISTICS, OID_GEN_TRANSMIT_BLOCK_SIZE, OID_GEN_XMIT_OK, OID_NDK_CONNECTIONS, OID_NDK_LOCAL_ENDPOINTS,
    OID_NDK_SET_STATE, OID_NDK_STATISTICS,
};
use ndkpi_sys::ndkinfo::NDK_VERSION;
use ndkpi_sys::ndkpi::NDK_OP_FLAGS;

pub const CASES: &[Case] = &[
    case!(mandatory_queries_answer_into_every_buffer: "NDIS-OID-1", "NDIS-OID-2"),
    case!(frame_sizes_agree_with_the_mtu: "NDIS-OID-1"),
    case!(counters_answer_in_four_and_eight_bytes: "NDIS-OID-3", "NDIS-OID-2"),
    case!(unknown_identifiers_are_not_supported: "NDIS-OID-5"),
    case!(short_sets_say_what_they_need: "NDIS-OID-4"),
    case!(packet_filter_takes_supported_bits_only: "NDIS-OID-6"),
    case!(multicast_list_is_whole_addresses_and_not_too_many: "NDIS-OID-7"),
    case!(interrupt_moderation_is_not_supported: "NDIS-OID-1"),
    case!(station_addresses_are_local_unique_or_given: "NDIS-LIFE-4"),
    case!(ndk_statistics_count_connections_and_bytes: "NDIS-OID-9", "NDIS-OID-12", "NDIS-OID-15"),
    case!(ndk_connections_and_endpoints_are_listed: "NDIS-OID-19"),
    case!(statistics_count_rdma_bytes: "NDIS-OID-18"),
    case!(set_state_closes_and_opens_again: "NDIS-OID-8", "NDK-OPEN-3"),
    case!(set_state_cannot_enable_against_the_keyword: "NDIS-OID-10"),
];

/// Larger than any answer.
const CAPACITY: usize = 4096;

fn with_adapter(trial: impl FnOnce(&Machine, &kernel_host::Adapter)) {
    with_machine(&Setup::default(), |machine| trial(machine, &machine.adapters[0]));
}

fn query(adapter: &kernel_host::Adapter, oid: u32, capacity: usize) -> kernel_host::ndis::oid_request::OidAnswer {
    adapter.query_oid(oid, capacity).expect("a started adapter")
}

fn set(adapter: &kernel_host::Adapter, oid: u32, data: &[u8]) -> (i32, u32, u32) {
    let answer = adapter.set_oid(oid, data).expect("a started adapter");
    (answer.status, answer.bytes_done, answer.bytes_needed)
}

fn word(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}

fn mandatory_queries_answer_into_every_buffer() {
    with_adapter(|_, adapter| {
        for mandatory in ETHERNET.iter().chain(NDK).filter(|mandatory| mandatory.direction != Direction::Set) {
            let full = query(adapter, mandatory.oid, CAPACITY);
            assert_eq!(full.status, NDIS_STATUS_SUCCESS, "{}", mandatory.name);
            let size = full.data.len();
            // OID_PNP_QUERY_POWER answers with its status alone.
            if size == 0 {
                continue;
            }
            let exact = query(adapter, mandatory.oid, size);
            assert_eq!((exact.status, exact.data.len()), (NDIS_STATUS_SUCCESS, size), "{}", mandatory.name);
            // Counters have a form of four bytes, which has a trial of its own.
            if matches!(mandatory.oid, OID_GEN_XMIT_OK | OID_GEN_RCV_OK) {
                continue;
            }
            for capacity in [0, 1, size - 1] {
                let short = query(adapter, mandatory.oid, capacity);
                let seen = (short.status, short.bytes_done, short.bytes_needed as usize);
                assert_eq!(seen, (NDIS_STATUS_BUFFER_TOO_SHORT, 0, size), "{} with {capacity} bytes", mandatory.name);
            }
        }
    });
}

fn number(adapter: &kernel_host::Adapter, oid: u32) -> u32 {
    let answer = query(adapter, oid, 4);
    assert_eq!(answer.status, NDIS_STATUS_SUCCESS);
    u32::from_le_bytes(answer.data.try_into().expect("four bytes"))
}

fn frame_sizes_agree_with_the_mtu() {
    with_adapter(|_, adapter| {
        let frame = 1500 + 14;
        let sizes = [OID_GEN_MAXIMUM_TOTAL_SIZE, OID_GEN_RECEIVE_BLOCK_SIZE, OID_GEN_TRANSMIT_BLOCK_SIZE];
        assert_eq!(sizes.map(|oid| number(adapter, oid)), [frame; 3]);
    });
}

fn counters_answer_in_four_and_eight_bytes() {
    with_adapter(|_, adapter| {
        for oid in [OID_GEN_XMIT_OK, OID_GEN_RCV_OK] {
            for (capacity, status, written, needed) in [
                (0, NDIS_STATUS_BUFFER_TOO_SHORT, 0, 8),
                (3, NDIS_STATUS_BUFFER_TOO_SHORT, 0, 8),
                (4, NDIS_STATUS_SUCCESS, 4, 8),
                (7, NDIS_STATUS_SUCCESS, 4, 8),
            ] {
                let answer = query(adapter, oid, capacity);
                let seen = (answer.status, answer.bytes_done, answer.bytes_needed);
                assert_eq!(seen, (status, written, needed), "{oid:#x} with {capacity} bytes");
            }
            for capacity in [8, 9, 64] {
                let answer = query(adapter, oid, capacity);
                assert_eq!(
                    (answer.status, answer.bytes_done),
                    (NDIS_STATUS_SUCCESS, 8),
                    "{oid:#x} with {capacity} bytes"
                );
            }
        }
    });
}

fn unknown_identifiers_are_not_supported() {
    with_adapter(|_, adapter| {
        for oid in [0, 1, 0x0001_0204, 0xFC04_0200, 0xFC04_0205, 0xFFFF_FFFF] {
            assert_eq!(query(adapter, oid, CAPACITY).status, NDIS_STATUS_NOT_SUPPORTED, "query {oid:#x}");
            assert_eq!(set(adapter, oid, &[0; 64]).0, NDIS_STATUS_NOT_SUPPORTED, "set {oid:#x}");
            let direct = adapter.direct_query_oid(oid, CAPACITY).expect("a started adapter");
            assert_eq!(direct.status, NDIS_STATUS_NOT_SUPPORTED, "direct query {oid:#x}");
        }
    });
}

fn short_sets_say_what_they_need() {
    with_adapter(|_, adapter| {
        for (oid, size) in [(OID_GEN_CURRENT_PACKET_FILTER, 4), (OID_GEN_CURRENT_LOOKAHEAD, 4), (OID_NDK_SET_STATE, 1)]
        {
            for length in 0..size {
                let answer = set(adapter, oid, &vec![0; length]);
                assert_eq!(answer, (NDIS_STATUS_INVALID_LENGTH, 0, size as u32), "{oid:#x} with {length} bytes");
            }
        }
    });
}

fn packet_filter_takes_supported_bits_only() {
    with_adapter(|_, adapter| {
        for filter in [0_u32, 0x1, 0x2F] {
            let answer = set(adapter, OID_GEN_CURRENT_PACKET_FILTER, &filter.to_le_bytes());
            assert_eq!((answer.0, answer.1), (NDIS_STATUS_SUCCESS, 4), "{filter:#x}");
        }
        for filter in [0x10_u32, 0x8000_0000, 0x2F | 0x40, u32::MAX] {
            let answer = set(adapter, OID_GEN_CURRENT_PACKET_FILTER, &filter.to_le_bytes());
            assert_eq!(answer.0, NDIS_STATUS_NOT_SUPPORTED, "{filter:#x}");
        }
    });
}

fn multicast_list_is_whole_addresses_and_not_too_many() {
    with_adapter(|_, adapter| {
        let addresses = |count: usize| vec![0x01; count * 6];
        for count in [0, 1, 32] {
            assert_eq!(set(adapter, OID_802_3_MULTICAST_LIST, &addresses(count)).0, NDIS_STATUS_SUCCESS, "{count}");
        }
        for length in [1, 5, 7, 191] {
            let (status, _, needed) = set(adapter, OID_802_3_MULTICAST_LIST, &vec![1; length]);
            assert_eq!(status, NDIS_STATUS_INVALID_LENGTH, "{length} bytes");
            assert_eq!(needed % 6, 0, "{length} bytes");
        }
        for count in [33, 100] {
            assert_eq!(set(adapter, OID_802_3_MULTICAST_LIST, &addresses(count)).0, NDIS_STATUS_MULTICAST_FULL);
        }
    });
}

fn interrupt_moderation_is_not_supported() {
    with_adapter(|_, adapter| {
        let answer = query(adapter, OID_GEN_INTERRUPT_MODERATION, 12);
        assert_eq!(answer.status, NDIS_STATUS_SUCCESS);
        assert_eq!(answer.data[8..12], 1_u32.to_le_bytes(), "NdisInterruptModerationNotSupported");
        assert_eq!(set(adapter, OID_GEN_INTERRUPT_MODERATION, &answer.data).0, NDIS_STATUS_INVALID_DATA);
    });
}

fn station_addresses_are_local_unique_or_given() {
    let mut setup = Setup::default();
    setup.adapters[1].keywords.push(("NetworkAddress", "02AABBCCDDEE"));
    with_machine(&setup, |machine| {
        let address = |index: usize, oid| query(&machine.adapters[index], oid, 6).data;
        let permanent = [0, 1].map(|index| address(index, OID_802_3_PERMANENT_ADDRESS));
        let current = [0, 1].map(|index| address(index, OID_802_3_CURRENT_ADDRESS));
        assert!(
            permanent.iter().all(|address| address[0] & 3 == 2),
            "not locally administered unicast: {permanent:x?}"
        );
        assert_ne!(permanent[0], permanent[1]);
        assert_eq!(current[0], permanent[0]);
        assert_eq!(current[1], [0x02, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE]);
    });
}

/// Moves `length` bytes by one RDMA Write.
fn write(pair: &Pair<'_>, length: usize) {
    let near = Window::open(&pair.active, Buffer::scattered(length), WindowKind::Registered);
    let peer = Window::open(&pair.passive, Buffer::scattered(length), WindowKind::Registered);
    let status = pair.active.queue_pair.write(1, &[near.sge(0..length)], peer.remote(0), NDK_OP_FLAGS::empty());
    assert_eq!(status, 0);
    assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
}

fn ndk_statistics_count_connections_and_bytes() {
    with_machine(&Setup::default(), |machine| {
        let counters = |index: usize| {
            let adapter: &kernel_host::Adapter = &machine.adapters[index];
            let direct = adapter.direct_query_oid(OID_NDK_STATISTICS, 0xF8).expect("a started adapter");
            assert_eq!((direct.status, direct.data.len()), (NDIS_STATUS_SUCCESS, 0xF8));
            assert_eq!(direct.data[..4], [0x80, 1, 0xF8, 0], "the header");
            (0..30).map(|index| word(&direct.data, 8 + 8 * index)).collect::<Vec<u64>>()
        };
        assert!(counters(0).iter().all(|counter| *counter == 0), "{:?}", counters(0));
        {
            let (first, second) = (machine.open(0), machine.open(1));
            let pair = Pair::connect(&first, &second);
            write(&pair, 100_000);
            let (active, passive) = (counters(0), counters(1));
            assert_eq!((active[0], active[1], active[4]), (1, 0, 1), "connect, accept, active of the active side");
            assert_eq!((passive[0], passive[1], passive[4]), (0, 1, 1));
            assert!(active[27] >= 100_000 && passive[26] >= 100_000, "bytes out {} in {}", active[27], passive[26]);
            assert!(active[29] > 0 && passive[28] > 0, "frames");
            assert!(active[5..25].iter().all(|counter| *counter == 0), "reserved counters are zero");
        }
        wait_until_idle();
        assert_eq!((counters(0)[4], counters(1)[4]), (0, 0), "no connection is active any more");
    });
}

fn ndk_connections_and_endpoints_are_listed() {
    with_machine(&Setup::default(), |machine| {
        let list = |index: usize, oid: u32, entry: usize| {
            let adapter: &kernel_host::Adapter = &machine.adapters[index];
            let answer = query(adapter, oid, CAPACITY);
            assert_eq!(answer.status, NDIS_STATUS_SUCCESS);
            let count = u32::from_le_bytes(answer.data[8..12].try_into().expect("four bytes")) as usize;
            assert_eq!(answer.data.len(), 0x10 + entry * count, "{oid:#x}");
            assert_eq!(answer.data[..2], [0x80, 1], "the header");
            if count > 0 {
                let short = query(adapter, oid, 0x10 + entry * count - 1);
                let seen = (short.status, short.bytes_needed as usize);
                assert_eq!(seen, (NDIS_STATUS_BUFFER_TOO_SHORT, answer.data.len()));
            }
            (count, answer.data)
        };
        assert_eq!(list(0, OID_NDK_CONNECTIONS, 0x40).0, 0);
        assert_eq!(list(0, OID_NDK_LOCAL_ENDPOINTS, 0x24).0, 0);
        let (first, second) = (machine.open(0), machine.open(1));
        let pair = Pair::connect(&first, &second);
        let (active, connections) = list(0, OID_NDK_CONNECTIONS, 0x40);
        assert!(active == 1 || active == 2, "{active} entries; two where connections are mapped to TCP");
        let local = pair.active.connector().local_address();
        assert_eq!(connections[0x10..0x12], 2_u16.to_le_bytes(), "AF_INET");
        assert_eq!(connections[0x12..0x14], local.port().to_be_bytes());
        assert_eq!(connections[0x14..0x18], [10, 0, 0, 1]);
        assert_eq!(connections[0x10 + 0x20..0x10 + 0x24], [10, 0, 0, 2], "the remote address");
        assert_eq!(connections[0x10 + 0x38], 0, "a kernel connection has no user-mode owner");
        let (endpoints, listing) = list(1, OID_NDK_LOCAL_ENDPOINTS, 0x24);
        assert!(endpoints == 1 || endpoints == 2, "{endpoints} entries");
        let port = pair.listener.local_address().port();
        assert_eq!(listing[0x12..0x14], port.to_be_bytes());
        assert_eq!(listing[0x10 + 0x1D], 1, "a listener");
    });
}

fn statistics_count_rdma_bytes() {
    with_machine(&Setup::default(), |machine| {
        let statistics = |index: usize| {
            let answer = query(&machine.adapters[index], OID_GEN_STATISTICS, 0x98);
            assert_eq!((answer.status, answer.data.len()), (NDIS_STATUS_SUCCESS, 0x98));
            (word(&answer.data, 0x18), word(&answer.data, 0x38))
        };
        let (first, second) = (machine.open(0), machine.open(1));
        let pair = Pair::connect(&first, &second);
        let before = (statistics(0).1, statistics(1).0);
        write(&pair, 100_000);
        let after = (statistics(0).1, statistics(1).0);
        assert!(after.0 - before.0 >= 100_000, "bytes out of the active side: {before:?} to {after:?}");
        assert!(after.1 - before.1 >= 100_000, "bytes into the passive side: {before:?} to {after:?}");
    });
}

const ANY: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 0 };

fn set_state_closes_and_opens_again() {
    with_adapter(|machine, adapter| {
        for _ in 0..3 {
            drop(machine.open(0));
            assert_eq!(set(adapter, OID_NDK_SET_STATE, &[0]).0, NDIS_STATUS_SUCCESS);
            wait_until_idle();
            assert!(!adapter.is_ndk_enabled());
            assert!(machine.try_open(0, ANY).is_err());
            assert!(adapter.open_ndk_directly(ANY).is_err(), "the provider itself refuses");
            assert_eq!(set(adapter, OID_NDK_SET_STATE, &[1]).0, NDIS_STATUS_SUCCESS);
            wait_until_idle();
            assert!(adapter.is_ndk_enabled());
        }
        drop(machine.open(0));
    });
}

fn set_state_cannot_enable_against_the_keyword() {
    with_adapter(|machine, adapter| {
        adapter.set_keyword("*NetworkDirect", "0");
        assert_eq!(set(adapter, OID_NDK_SET_STATE, &[0]).0, NDIS_STATUS_SUCCESS);
        wait_until_idle();
        set(adapter, OID_NDK_SET_STATE, &[1]);
        wait_until_idle();
        assert!(!adapter.is_ndk_enabled(), "enabled although *NetworkDirect is 0");
        assert!(machine.try_open(0, ANY).is_err());
    });
}
