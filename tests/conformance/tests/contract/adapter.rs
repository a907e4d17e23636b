//! How an adapter is opened: versions, its information, extensions, tables.

use conformance::case;
use conformance::consumer::{
    Buffer, CompletionQueue, Connector, Listener, MemoryWindow, Pair, ProtectionDomain, SharedEndpoint,
    SharedReceiveQueue, SharedShape, Window, WindowKind,
};
use conformance::machine::{Setup, with_machine, with_two_adapters};
use conformance::trial::Case;
use kernel_host::priority;
use ndkpi_sys::ndis::{NDIS_STATUS_ADAPTER_NOT_READY, NDIS_STATUS_BAD_VERSION};
use ndkpi_sys::ndkinfo::*;
use ndkpi_sys::ndkpi::NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE;
use ndkpi_sys::nt::{STATUS_BUFFER_TOO_SMALL, STATUS_NOT_SUPPORTED};

pub const CASES: &[Case] = &[
    case!(served_versions_run_at_their_highest_minor: "NDK-OPEN-1", "NDK-INFO-3", "NDK-OBJ-1"),
    case!(other_versions_are_refused: "NDK-OPEN-2"),
    case!(disabled_adapter_is_not_ready: "NDK-OPEN-3"),
    case!(several_opens_with_their_own_versions: "NDK-OPEN-4"),
    case!(information_of_version_2_takes_0x68_bytes: "NDK-INFO-1", "NDK-INFO-2"),
    case!(information_of_version_1_takes_0x60_bytes: "NDK-INFO-1", "NDK-INFO-2"),
    case!(default_limits_are_those_of_a_card: "NDK-INFO-4", "NDK-INFO-5", "NDK-INFO-6", "NDK-INFO-7"),
    case!(technology_follows_its_keyword: "NDK-INFO-7"),
    case!(unknown_extensions_are_refused_everywhere: "NDK-EXT-1"),
    case!(objects_are_complete_and_marked: "NDK-OBJ-1", "NDK-OBJ-2", "NDK-OBJ-3", "NDK-OBJ-4"),
    case!(what_there_is_is_advertised_and_works: "NDK-INFO-9", "NDK-CAP-1"),
    case!(threads_of_the_driver_are_preferred_and_never_realtime: "NDIS-LIFE-11"),
];

const fn version(major: u16, minor: u16) -> NDK_VERSION {
    NDK_VERSION { Major: major, Minor: minor }
}

fn served_versions_run_at_their_highest_minor() {
    with_machine(&Setup::default(), |machine| {
        for (asked, given) in [
            (version(1, 0), version(1, 2)),
            (version(1, 1), version(1, 2)),
            (version(1, 2), version(1, 2)),
            (version(2, 0), version(2, 1)),
            (version(2, 1), version(2, 1)),
        ] {
            let adapter = machine.try_open(0, asked).expect("a served version");
            assert_eq!(adapter.version(), given, "asked for {asked:?}");
            assert_eq!(adapter.info().Version, given, "asked for {asked:?}");
            let domain = ProtectionDomain::new(&adapter);
            if let Ok(domain) = domain {
                assert_eq!(domain.object().version(), given);
            }
        }
    });
}

fn other_versions_are_refused() {
    with_machine(&Setup::default(), |machine| {
        for asked in [version(0, 0), version(0, 1), version(1, 3), version(2, 2), version(3, 0), version(u16::MAX, 0)] {
            assert_eq!(machine.try_open(0, asked).err(), Some(NDIS_STATUS_BAD_VERSION), "asked for {asked:?}");
        }
    });
}

fn disabled_adapter_is_not_ready() {
    let mut setup = Setup::default();
    setup.adapters[0].keywords.push(("*NetworkDirect", "0"));
    with_machine(&setup, |machine| {
        assert_eq!(machine.try_open(0, version(2, 1)).err(), Some(NDIS_STATUS_ADAPTER_NOT_READY));
        drop(machine.open(1));
    });
}

fn several_opens_with_their_own_versions() {
    with_machine(&Setup::default(), |machine| {
        let opens: Vec<_> = [version(1, 0), version(2, 0), version(1, 2), version(2, 1)]
            .into_iter()
            .map(|asked| machine.try_open(0, asked).expect("a served version"))
            .collect();
        let versions: Vec<_> = opens.iter().map(|open| open.info().Version).collect();
        assert_eq!(versions, [version(1, 2), version(2, 1), version(1, 2), version(2, 1)]);
    });
}

/// NDK_FN_QUERY_ADAPTER_INFO for every capacity around the size of the version in force.
fn check_information(major: u16, size: u32) {
    with_machine(&Setup::default(), |machine| {
        let adapter = machine.try_open(0, version(major, 0)).expect("a served version");
        let mut needed = 0;
        assert_eq!(adapter.query_info(None, &mut needed), STATUS_BUFFER_TOO_SMALL, "a size probe");
        assert_eq!(needed, size);
        for capacity in [0, 1, 4, size - 1] {
            let mut bytes = [0x5A_u8; 0x100];
            let mut length = capacity;
            assert_eq!(adapter.query_info(Some(&mut bytes), &mut length), STATUS_BUFFER_TOO_SMALL, "{capacity} bytes");
            assert_eq!(length, size);
            assert!(bytes[capacity as usize..].iter().all(|byte| *byte == 0x5A), "written past {capacity} bytes");
        }
        for capacity in [size, size + 1, 0x100] {
            let mut bytes = [0x5A_u8; 0x100];
            let mut length = capacity;
            assert_eq!(adapter.query_info(Some(&mut bytes), &mut length), 0, "{capacity} bytes");
            assert!(length <= capacity && length >= size, "{length} bytes reported");
            assert!(bytes[length as usize..].iter().all(|byte| *byte == 0x5A), "written past what was reported");
            assert_ne!(bytes[..4], [0x5A; 4]);
        }
    });
}

fn information_of_version_2_takes_0x68_bytes() {
    check_information(2, 0x68);
}

fn information_of_version_1_takes_0x60_bytes() {
    check_information(1, 0x60);
}

fn default_limits_are_those_of_a_card() {
    let mut setup = Setup::default();
    setup.adapters.iter_mut().for_each(|adapter| adapter.keywords.push(("LimitsProfile", "0")));
    with_machine(&setup, |machine| {
        for index in 0..2 {
            let info = machine.open(index).info();
            assert_eq!((info.MaxInitiatorRequestSge, info.MaxReceiveRequestSge), (32, 32));
            assert!(info.MaxReadRequestSge <= info.MaxInitiatorRequestSge && info.MaxReadRequestSge > 0);
            assert_eq!((info.MaxInboundReadLimit, info.MaxOutboundReadLimit), (16, 128));
            assert_eq!(info.MaxCallerData, 56);
            assert_eq!(info.FRMRPageCount, 512);
            assert_eq!((info.MaxReceiveQueueDepth, info.MaxInitiatorQueueDepth), (16_351, 16_351));
            assert!(info.MaxCqDepth >= info.MaxReceiveQueueDepth);
            assert!(info.MaxTransferLength > 0 && info.MaxRegistrationSize > 0);
            let flags = NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED
                | NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED
                | NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED
                | NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED
                | NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED
                | NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED
                | NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED;
            assert_eq!(info.AdapterFlags, flags, "no more and no less");
            assert_eq!(info.RdmaTechnology, NdkiWarp);
        }
    });
}

fn technology_follows_its_keyword() {
    let mut setup = Setup::default();
    setup.adapters[1].keywords.push(("*NetworkDirectTechnology", "4"));
    with_machine(&setup, |machine| {
        assert_eq!(machine.open(0).info().RdmaTechnology, NdkiWarp);
        assert_eq!(machine.open(1).info().RdmaTechnology, NdkRoCEv2);
    });
}

fn unknown_extensions_are_refused_everywhere() {
    with_two_adapters(|first, second| {
        assert_eq!(first.object().query_unknown_extension(), STATUS_NOT_SUPPORTED, "adapter");
        let pair = Pair::connect(first, second);
        let region = pair.active.domain.create_region(false).expect("a region");
        let window = MemoryWindow::new(&pair.active.domain).expect("a memory window");
        let shared =
            SharedReceiveQueue::new(&pair.active.domain, SharedShape::default()).expect("a shared receive queue");
        let endpoint = SharedEndpoint::new(first, first.address()).expect("a shared endpoint");
        let answers = [
            pair.active.domain.object().query_unknown_extension(),
            pair.active.receive.object().query_unknown_extension(),
            pair.active.queue_pair.object().query_unknown_extension(),
            pair.active.connector().object().query_unknown_extension(),
            pair.passive.connector().object().query_unknown_extension(),
            pair.listener.object().query_unknown_extension(),
            region.object().query_unknown_extension(),
            window.object().query_unknown_extension(),
            shared.object().query_unknown_extension(),
            endpoint.object().query_unknown_extension(),
        ];
        assert_eq!(answers, [STATUS_NOT_SUPPORTED; 10]);
        region.close();
    });
}

/// Header, table and reserved block are checked wherever the consumer layer adopts an object; here every kind is made.
fn objects_are_complete_and_marked() {
    with_two_adapters(|first, _| {
        let domain = ProtectionDomain::new(first).expect("a protection domain");
        domain.create_region(true).expect("a region").close();
        domain.create_region(false).expect("a region").close();
        CompletionQueue::new(first, 4).expect("a completion queue").close();
        Connector::new(first).expect("a connector").close();
        Listener::new(first).expect("a listener").close();
        MemoryWindow::new(&domain).expect("a memory window").close();
        SharedReceiveQueue::new(&domain, SharedShape::default()).expect("a shared receive queue").close();
        SharedEndpoint::new(first, first.address()).expect("a shared endpoint").close();
        domain.close();
    });
}

fn what_there_is_is_advertised_and_works() {
    with_two_adapters(|first, second| {
        let info = first.info();
        let advertised = NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED
            | NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED
            | NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED;
        assert!(info.AdapterFlags.contains(advertised), "{:?}", info.AdapterFlags);
        assert!(info.MaxSrqDepth > 0 && info.MaxWindowSize > 0, "{} and {}", info.MaxSrqDepth, info.MaxWindowSize);
        let queue = CompletionQueue::new(first, 4).expect("a completion queue");
        assert_eq!((queue.resize(8), queue.moderate(20, u32::MAX)), (0, 0));
        let domain = ProtectionDomain::new(first).expect("a protection domain");
        MemoryWindow::new(&domain).expect("a memory window").close();
        SharedReceiveQueue::new(&domain, SharedShape::default()).expect("a shared receive queue").close();
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(64), WindowKind::FastRegistered);
        let peer = Window::open(&pair.passive, Buffer::scattered(64), WindowKind::Registered);
        let flags = NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE;
        assert_eq!(pair.active.queue_pair.read(1, &[near.sge(0..64)], peer.remote(0), flags), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
    });
}

/// Those that consumers may poll for come before ordinary ones; none has a priority that starves the machine.
fn threads_of_the_driver_are_preferred_and_never_realtime() {
    with_machine(&Setup::default(), |machine| {
        let _open = machine.open(0);
        let threads = kernel_host::thread::all();
        let of_the_driver = threads.iter().filter(|thread| thread.name() == "system thread");
        let priorities: Vec<i32> = of_the_driver.map(|thread| thread.priority()).collect();
        assert!(priorities.iter().any(|priority| *priority > priority::NORMAL), "{priorities:?}");
        assert!(priorities.iter().all(|priority| *priority < priority::LOW_REALTIME), "{priorities:?}");
    });
}
