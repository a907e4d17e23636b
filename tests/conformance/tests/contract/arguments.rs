//! Invalid arguments: null where a pointer is needed, addresses that are cut short or of no family, lengths without a buffer.
//! Each is refused in the call itself, nothing is written, no completion comes, and the object goes on working.

use std::net::IpAddr;

use conformance::case;
use conformance::consumer::completion::{begin_create, begin_request};
use conformance::consumer::{
    Adapter, Buffer, CompletionQueue, Connector, End, Listener, MemoryWindow, NdkObject, Object, Offer, Pair,
    QueuePairShape, Remote, SharedEndpoint, SharedReceiveQueue, SharedShape,
};
use conformance::machine::with_two_adapters;
use conformance::trial::Case;
use kernel_host::callout::{self, Context, ContextKind};
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{
    NTSTATUS, STATUS_INVALID_ADDRESS, STATUS_INVALID_BUFFER_SIZE, STATUS_INVALID_PARAMETER, STATUS_SUCCESS,
};

pub const CASES: &[Case] = &[
    case!(creates_without_a_place_for_the_object: "NDK-ARG-1"),
    case!(creates_without_what_they_need: "NDK-ARG-1"),
    case!(socket_addresses_that_are_none: "NDK-ARG-2"),
    case!(connecting_without_what_it_needs: "NDK-ARG-1"),
    case!(private_data_that_is_not_there: "NDK-ARG-1", "NDK-CM-18"),
    case!(queries_without_a_place_for_the_answer: "NDK-ARG-1"),
    case!(memory_without_a_list_or_a_length: "NDK-ARG-1"),
    case!(posts_without_their_list_or_object: "NDK-ARG-1", "NDK-QP-18"),
    case!(polling_without_capacity: "NDK-ARG-1"),
    case!(null_objects: "NDK-ARG-1"),
];

const INVALID: NTSTATUS = STATUS_INVALID_PARAMETER;
const NULL: u64 = 0;

/// Calls a function of a dispatch table with these words for arguments.
fn call(name: &'static str, function: usize, words: &[u64]) -> NTSTATUS {
    let context = Context::new(ContextKind::DispatchFunction, name);
    // SAFETY: as many words as the function has arguments; what is wrong with them is the point.
    (unsafe { callout::call_image(context, function, words) }) as NTSTATUS
}

/// A request whose last arguments are a completion and its context: what the call itself answers.
fn request(name: &'static str, function: usize, words: &[u64]) -> NTSTATUS {
    let started = begin_request(name, |callback, context| {
        call(name, function, &[words, &[callback as u64, context as u64]].concat())
    });
    started.inline()
}

/// A create whose last arguments are a completion, its context and a place for the object, which may be missing: what the call
/// itself answers.
fn create(name: &'static str, function: usize, words: &[u64], with_place: bool) -> NTSTATUS {
    let creating = begin_create::<NDK_PD>(name, |callback, context, place| {
        let place = if with_place { place as u64 } else { NULL };
        call(name, function, &[words, &[callback as u64, context as u64, place]].concat())
    });
    creating.started().inline()
}

fn word<T: NdkObject>(object: &Object<T>) -> u64 {
    object.pointer() as u64
}

/// An IPv4 address as consumers pass it, in a buffer as long as an IPv6 address.
fn socket_address(adapter: &Adapter) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[0] = 2;
    let IpAddr::V4(ip) = adapter.address().ip() else { panic!("the first address is IPv4") };
    bytes[4..8].copy_from_slice(&ip.octets());
    bytes
}

/// A function of the consumer's that is never called.
const NEVER: u64 = 0x0BAD_0000_CA11_0000;

fn creates_without_a_place_for_the_object() {
    with_two_adapters(|first, _| {
        let end = End::new(first, QueuePairShape::default());
        let shared = SharedReceiveQueue::new(&end.domain, SharedShape::default()).expect("a shared receive queue");
        let (adapter, domain, queue) = (first.pointer() as u64, word(end.domain.object()), word(end.receive.object()));
        let (of_adapter, of_domain) = (first.table(), end.domain.object().table());
        let address = socket_address(first);
        let calls: [(_, usize, Vec<u64>); 10] = [
            ("NDK_FN_CREATE_CQ", of_adapter.NdkCreateCq as usize, vec![adapter, 4, NULL, NULL, NULL]),
            ("NDK_FN_CREATE_PD", of_adapter.NdkCreatePd as usize, vec![adapter]),
            (
                "NDK_FN_CREATE_SHARED_ENDPOINT",
                of_adapter.NdkCreateSharedEndpoint as usize,
                vec![adapter, address.as_ptr() as u64, 16],
            ),
            ("NDK_FN_CREATE_CONNECTOR", of_adapter.NdkCreateConnector as usize, vec![adapter]),
            ("NDK_FN_CREATE_LISTENER", of_adapter.NdkCreateListener as usize, vec![adapter, NEVER, NULL]),
            ("NDK_FN_CREATE_MR", of_domain.NdkCreateMr as usize, vec![domain, 0]),
            ("NDK_FN_CREATE_MW", of_domain.NdkCreateMw as usize, vec![domain]),
            ("NDK_FN_CREATE_SRQ", of_domain.NdkCreateSrq as usize, vec![domain, 4, 1, 0, NULL, NULL, NULL]),
            ("NDK_FN_CREATE_QP", of_domain.NdkCreateQp as usize, vec![domain, queue, queue, NULL, 4, 4, 1, 1, 0]),
            (
                "NDK_FN_CREATE_QP_WITH_SRQ",
                of_domain.NdkCreateQpWithSrq as usize,
                vec![domain, queue, queue, word(shared.object()), NULL, 4, 1, 0],
            ),
        ];
        for (name, function, words) in calls {
            assert_eq!(create(name, function, &words, false), INVALID, "{name} without a place");
        }
    });
}

fn creates_without_what_they_need() {
    with_two_adapters(|first, _| {
        let end = End::new(first, QueuePairShape::default());
        let shared = SharedReceiveQueue::new(&end.domain, SharedShape::default()).expect("a shared receive queue");
        let (domain, queue, shared) = (word(end.domain.object()), word(end.receive.object()), word(shared.object()));
        let listener = create(
            "NDK_FN_CREATE_LISTENER",
            first.table().NdkCreateListener as usize,
            &[first.pointer() as u64, NULL, NULL],
            true,
        );
        assert_eq!(listener, INVALID, "a listener without a function");
        let plain = end.domain.object().table().NdkCreateQp as usize;
        for queues in [[NULL, queue], [queue, NULL]] {
            let words = [&[domain][..], &queues, &[NULL, 4, 4, 1, 1, 0]].concat();
            assert_eq!(create("NDK_FN_CREATE_QP", plain, &words, true), INVALID, "{queues:#x?}");
        }
        let sharing = end.domain.object().table().NdkCreateQpWithSrq as usize;
        for queues in [[NULL, queue, shared], [queue, NULL, shared], [queue, queue, NULL]] {
            let words = [&[domain][..], &queues, &[NULL, 4, 1, 0]].concat();
            assert_eq!(create("NDK_FN_CREATE_QP_WITH_SRQ", sharing, &words, true), INVALID, "{queues:#x?}");
        }
    });
}

/// What every function answers that takes a socket address: no bytes, too few for a family, too few for its form, no such family.
fn socket_addresses_that_are_none() {
    with_two_adapters(|first, second| {
        let good = socket_address(first);
        let of_family = |family: u16| {
            let mut bytes = good;
            bytes[..2].copy_from_slice(&family.to_le_bytes());
            bytes
        };
        let (v6, unknown, none) = (of_family(23), of_family(17), of_family(0));
        let table = [
            (NULL, 16, INVALID),
            (good.as_ptr() as u64, 0, INVALID),
            (good.as_ptr() as u64, 1, INVALID),
            (good.as_ptr() as u64, 2, INVALID),
            (good.as_ptr() as u64, 15, INVALID),
            (v6.as_ptr() as u64, 16, INVALID),
            (v6.as_ptr() as u64, 27, INVALID),
            (unknown.as_ptr() as u64, 28, STATUS_INVALID_ADDRESS),
            (none.as_ptr() as u64, 28, STATUS_INVALID_ADDRESS),
        ];
        let listener = Listener::new(first).expect("a listener");
        let connector = Connector::new(first).expect("a connector");
        let end = End::new(first, QueuePairShape::default());
        let endpoint = SharedEndpoint::new(first, first.address()).expect("a shared endpoint");
        let peer = socket_address(second);
        let (object, pair, peer) = (word(connector.object()), word(end.queue_pair.object()), peer.as_ptr() as u64);
        for (address, length, status) in table {
            let words = [first.pointer() as u64, address, length];
            let name = "NDK_FN_CREATE_SHARED_ENDPOINT";
            let endpoints = first.table().NdkCreateSharedEndpoint as usize;
            assert_eq!(create(name, endpoints, &words, true), status, "{length} bytes");
            let listen = listener.object().table().NdkListen as usize;
            let words = [word(listener.object()), address, length];
            assert_eq!(request("NDK_FN_LISTEN", listen, &words), status, "{length} bytes");
            let connect = connector.object().table().NdkConnect as usize;
            let words = [object, pair, address, length, peer, 16, 0, 0, NULL, 0];
            assert_eq!(request("NDK_FN_CONNECT", connect, &words), status, "from {length} bytes");
            let words = [object, pair, good.as_ptr() as u64, 16, address, length, 0, 0, NULL, 0];
            assert_eq!(request("NDK_FN_CONNECT", connect, &words), status, "to {length} bytes");
            let over = connector.object().table().NdkConnectWithSharedEndpoint as usize;
            let words = [object, pair, word(endpoint.object()), address, length, 0, 0, NULL, 0];
            assert_eq!(request("NDK_FN_CONNECT_WITH_SHARED_ENDPOINT", over, &words), status, "to {length} bytes");
        }
        // A longer buffer than the form needs is no mistake.
        let listen = listener.object().table().NdkListen as usize;
        let started = begin_request("NDK_FN_LISTEN", |callback, context| {
            let words = [word(listener.object()), good.as_ptr() as u64, 28, callback as u64, context as u64];
            call("NDK_FN_LISTEN", listen, &words)
        });
        assert_eq!(started.wait(), STATUS_SUCCESS);
    });
}

/// A connection is made after all these refusals.
fn connecting_without_what_it_needs() {
    with_two_adapters(|first, second| {
        let (active, passive) =
            (End::new(first, QueuePairShape::default()), End::new(second, QueuePairShape::default()));
        let listener = Listener::new(second).expect("a listener");
        assert_eq!(listener.listen(second.address()), 0);
        let (connector, offer) = (Connector::new(first).expect("a connector"), Offer::default());
        let (near, peer) = (socket_address(first), socket_address(second));
        let (from, to) = (near.as_ptr() as u64, peer.as_ptr() as u64);
        let (object, pair, of_connector) =
            (word(connector.object()), word(active.queue_pair.object()), connector.object().table());
        let connect = of_connector.NdkConnect as usize;
        assert_eq!(request("NDK_FN_CONNECT", connect, &[object, NULL, from, 16, to, 16, 0, 0, NULL, 0]), INVALID);
        let silent = [object, pair, from, 16, to, 16, 0, 0, NULL, 0, NULL, NULL];
        assert_eq!(call("NDK_FN_CONNECT", connect, &silent), INVALID, "without a completion");
        let over = of_connector.NdkConnectWithSharedEndpoint as usize;
        let words = [object, pair, NULL, to, 16, 0, 0, NULL, 0];
        assert_eq!(request("NDK_FN_CONNECT_WITH_SHARED_ENDPOINT", over, &words), INVALID, "without an endpoint");

        let connecting = connector.begin_connect(&active.queue_pair, first.address(), listener.local_address(), &offer);
        let accepted = listener.next();
        let (other, answering) = (word(accepted.object()), word(passive.queue_pair.object()));
        for (name, function) in [
            ("NDK_FN_ACCEPT", of_connector.NdkAccept as usize),
            ("NDK_FN_ACCEPT_EX", of_connector.NdkAcceptEx as usize),
        ] {
            let words = [other, NULL, 0, 0, NULL, 0, NULL, NULL];
            assert_eq!(request(name, function, &words), INVALID, "{name} without a queue pair");
            let words = [other, answering, 0, 0, NULL, 0, NULL, NULL, NULL, NULL];
            assert_eq!(call(name, function, &words), INVALID, "{name} without a completion");
        }
        let accepting = accepted.begin_accept(&passive.queue_pair, &offer);
        assert_eq!(connecting.wait(), 0);
        for (name, function) in [
            ("NDK_FN_COMPLETE_CONNECT", of_connector.NdkCompleteConnect as usize),
            ("NDK_FN_COMPLETE_CONNECT_EX", of_connector.NdkCompleteConnectEx as usize),
        ] {
            assert_eq!(call(name, function, &[object, NULL, NULL, NULL, NULL]), INVALID, "{name}");
        }
        assert_eq!(connector.begin_complete_connect().wait(), 0);
        assert_eq!(accepting.wait(), 0);
        let disconnect = of_connector.NdkDisconnect as usize;
        assert_eq!(call("NDK_FN_DISCONNECT", disconnect, &[object, NULL, NULL]), INVALID);
        assert_eq!(accepted.disconnect_events(), 0);
    });
}

fn private_data_that_is_not_there() {
    with_two_adapters(|first, second| {
        let (active, passive) =
            (End::new(first, QueuePairShape::default()), End::new(second, QueuePairShape::default()));
        let listener = Listener::new(second).expect("a listener");
        assert_eq!(listener.listen(second.address()), 0);
        let (connector, offer) = (Connector::new(first).expect("a connector"), Offer::default());
        let (near, peer) = (socket_address(first), socket_address(second));
        let (object, pair) = (word(connector.object()), word(active.queue_pair.object()));
        let connect = connector.object().table().NdkConnect as usize;
        // A length over the limit is refused before the bytes are read.
        let table = [(1, INVALID), (56, INVALID), (u64::from(u32::MAX), STATUS_INVALID_BUFFER_SIZE)];
        for (length, status) in table {
            let addresses = [near.as_ptr() as u64, 16, peer.as_ptr() as u64, 16];
            let words = [&[object, pair][..], &addresses, &[0, 0, NULL, length]].concat();
            assert_eq!(request("NDK_FN_CONNECT", connect, &words), status, "{length} bytes");
        }
        let connecting = connector.begin_connect(&active.queue_pair, first.address(), listener.local_address(), &offer);
        let accepted = listener.next();
        let (other, of_connector) = (word(accepted.object()), accepted.object().table());
        for (length, status) in table {
            let words = [other, word(passive.queue_pair.object()), 0, 0, NULL, length, NULL, NULL];
            assert_eq!(request("NDK_FN_ACCEPT", of_connector.NdkAccept as usize, &words), status, "{length} bytes");
            let reject = call("NDK_FN_REJECT", of_connector.NdkReject as usize, &[other, NULL, length]);
            assert_eq!(reject, status, "{length} bytes");
        }
        let reject = call("NDK_FN_REJECT", of_connector.NdkReject as usize, &[other, NULL, 0]);
        assert_eq!(reject, STATUS_SUCCESS, "no bytes from nowhere are no data");
        assert!(connecting.wait() < 0);
    });
}

fn queries_without_a_place_for_the_answer() {
    with_two_adapters(|first, second| {
        let mut bytes = [0x5A_u8; 256];
        let place = bytes.as_mut_ptr() as u64;
        let query = first.table().NdkQueryAdapterInfo as usize;
        let adapter = first.pointer() as u64;
        assert_eq!(call("NDK_FN_QUERY_ADAPTER_INFO", query, &[adapter, place, NULL]), INVALID);
        let pair = Pair::connect(first, second);
        let endpoint = SharedEndpoint::new(first, first.address()).expect("a shared endpoint");
        let (connector, listener) = (pair.active.connector().object(), pair.listener.object());
        for (function, object) in [
            (connector.table().NdkGetLocalAddress as usize, word(connector)),
            (connector.table().NdkGetPeerAddress as usize, word(connector)),
            (listener.table().NdkGetLocalAddress as usize, word(listener)),
            (endpoint.object().table().NdkGetLocalAddress as usize, word(endpoint.object())),
        ] {
            assert_eq!(call("NDK_FN_GET_LOCAL_ADDRESS", function, &[object, place, NULL]), INVALID);
        }
        let data = connector.table().NdkGetConnectionData as usize;
        let object = word(connector);
        assert_eq!(call("NDK_FN_GET_CONNECTION_DATA", data, &[object, NULL, NULL, place, NULL]), INVALID);
        let mut length = 1_u32;
        let words = [object, NULL, NULL, NULL, &raw mut length as u64];
        assert_eq!(call("NDK_FN_GET_CONNECTION_DATA", data, &words), INVALID, "a length of one byte without a buffer");
        assert_eq!((length, bytes), (1, [0x5A; 256]), "a refusal writes nothing");
        // A null place for the limits means that the caller does not ask for them.
        let mut nothing = 0_u32;
        let words = [object, NULL, NULL, NULL, &raw mut nothing as u64];
        assert_eq!(call("NDK_FN_GET_CONNECTION_DATA", data, &words), STATUS_SUCCESS);
        let token = pair.active.domain.object().table().NdkGetPrivilegedMemoryRegionToken as usize;
        call("NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN", token, &[word(pair.active.domain.object()), NULL]);
    });
}

fn memory_without_a_list_or_a_length() {
    with_two_adapters(|first, _| {
        let end = End::new(first, QueuePairShape::default());
        let region = end.domain.create_region(false).expect("a region");
        let buffer = Buffer::scattered(4096);
        let list = buffer.memory_list();
        let (object, of_region) = (word(region.object()), region.object().table());
        let flags = u64::from(NDK_MR_FLAG_ALLOW_LOCAL_WRITE.bits());
        for (list, length) in [(NULL, 4096), (list.pointer() as u64, 0)] {
            let words = [object, list, length, flags];
            assert_eq!(request("NDK_FN_REGISTER_MR", of_region.NdkRegisterMr as usize, &words), INVALID, "{length}");
        }
        let (mut mapping, mut size) = ([0_u64; 16], 128_u32);
        let (place, capacity) = (mapping.as_mut_ptr() as u64, &raw mut size as u64);
        let (adapter, build) = (first.pointer() as u64, first.table().NdkBuildLAM as usize);
        for (list, length, capacity) in
            [(NULL, 4096, capacity), (list.pointer() as u64, 0, capacity), (list.pointer() as u64, 4096, NULL)]
        {
            let words = [adapter, list, length, NULL, NULL, place, capacity, NULL];
            assert_eq!(call("NDK_FN_BUILD_LAM", build, &words), INVALID, "{length} bytes at {list:#x}");
        }
        assert_eq!((mapping, size), ([0; 16], 128), "a refusal writes nothing");
        // Neither a null mapping nor one that was never built is released.
        let release = first.table().NdkReleaseLAM as usize;
        call("NDK_FN_RELEASE_LAM", release, &[adapter, NULL]);
        call("NDK_FN_RELEASE_LAM", release, &[adapter, place]);
        assert_eq!(region.register(&buffer, NDK_MR_FLAG_ALLOW_LOCAL_WRITE), 0);
        let deregister = of_region.NdkDeregisterMr as usize;
        assert_eq!(call("NDK_FN_DEREGISTER_MR", deregister, &[object, NULL, NULL]), INVALID, "no completion function");
        assert_eq!(region.deregister(), 0);
    });
}

fn posts_without_their_list_or_object() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let domain = &pair.active.domain;
        let (region, window) = (domain.fast_region(4, true), MemoryWindow::new(domain).expect("a memory window"));
        let shared = SharedReceiveQueue::new(domain, SharedShape::default()).expect("a shared receive queue");
        let (posts, object) = (pair.active.queue_pair.object().table(), word(pair.active.queue_pair.object()));
        let (region, window) = (word(region.object()), word(window.object()));
        let odd = &raw const pair as u64 | 1;
        for list in [NULL, odd] {
            let calls: [(_, usize, Vec<u64>); 7] = [
                ("NDK_FN_SEND", posts.NdkSend as usize, vec![object, 1, list, 1, 0]),
                ("NDK_FN_SEND_AND_INVALIDATE", posts.NdkSendAndInvalidate as usize, vec![object, 1, list, 1, 0, 7]),
                ("NDK_FN_RECEIVE", posts.NdkReceive as usize, vec![object, 1, list, 1]),
                ("NDK_FN_READ", posts.NdkRead as usize, vec![object, 1, list, 1, 0, 0, 0]),
                ("NDK_FN_WRITE", posts.NdkWrite as usize, vec![object, 1, list, 1, 0, 0, 0]),
                (
                    "NDK_FN_FAST_REGISTER",
                    posts.NdkFastRegister as usize,
                    vec![object, 1, region, 1, list, 0, 4096, 0, 0],
                ),
                (
                    "NDK_FN_SRQ_RECEIVE",
                    shared.object().table().NdkSrqReceive as usize,
                    vec![word(shared.object()), 1, list, 1],
                ),
            ];
            for (name, function, words) in calls {
                assert_eq!(call(name, function, &words), INVALID, "{name} with a list at {list:#x}");
            }
        }
        let queue = word(pair.active.receive.object());
        let no_pages = [object, 1, NULL, 0, NULL, 0, 0, 0, 0];
        assert_eq!(call("NDK_FN_FAST_REGISTER", posts.NdkFastRegister as usize, &no_pages), INVALID, "no region");
        for (region, window) in [(NULL, window), (region, NULL)] {
            let words = [object, 1, region, window, 0, 4096, 0];
            assert_eq!(call("NDK_FN_BIND", posts.NdkBind as usize, &words), INVALID, "{region:#x} and {window:#x}");
        }
        for what in [NULL, queue] {
            let words = [object, 1, what, 0];
            assert_eq!(call("NDK_FN_INVALIDATE", posts.NdkInvalidate as usize, &words), INVALID, "{what:#x}");
        }
        // Nothing of all that was posted, and the connection is still there.
        let nowhere = Remote { address: 0, token: 0 };
        assert_eq!(pair.active.queue_pair.read(9, &[], nowhere, NDK_OP_FLAGS::empty()), 0);
        let result = pair.active.initiator.wait_for_one();
        assert_eq!((result.Status, result.RequestContext as u64), (0, 9));
        assert!(pair.active.receive.take(1).is_empty());
    });
}

fn polling_without_capacity() {
    with_two_adapters(|first, _| {
        let end = End::new(first, QueuePairShape::default());
        assert_eq!(end.queue_pair.receive(5, &[]), 0);
        end.queue_pair.flush();
        let (of_queue, queue) = (end.receive.object().table(), word(end.receive.object()));
        assert_eq!(call("NDK_FN_GET_CQ_RESULTS", of_queue.NdkGetCqResults as usize, &[queue, NULL, 4]), 0);
        assert_eq!(call("NDK_FN_GET_CQ_RESULTS_EX", of_queue.NdkGetCqResultsEx as usize, &[queue, NULL, 4]), 0);
        assert_eq!(end.receive.wait_for_one().RequestContext as u64, 5, "no result was lost");
    });
}

/// No object at all.
fn null_objects() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let domain = &pair.active.domain;
        let (region, window) = (domain.fast_region(1, true), MemoryWindow::new(domain).expect("a memory window"));
        let shared = SharedReceiveQueue::new(domain, SharedShape::default()).expect("a shared receive queue");
        let endpoint = SharedEndpoint::new(first, first.address()).expect("a shared endpoint");
        let queue = CompletionQueue::new(first, 4).expect("a completion queue");
        let (mut capacity, address) = (256_u32, socket_address(first));
        let (size, address) = (&raw mut capacity as u64, address.as_ptr() as u64);

        let table = first.table();
        assert_eq!(call("QueryAdapterInfo", table.NdkQueryAdapterInfo as usize, &[NULL, NULL, size]), INVALID);
        assert_eq!(create("CreateCq", table.NdkCreateCq as usize, &[NULL, 4, NULL, NULL, NULL], true), INVALID);
        assert_eq!(create("CreatePd", table.NdkCreatePd as usize, &[NULL], true), INVALID);
        assert_eq!(create("CreateConnector", table.NdkCreateConnector as usize, &[NULL], true), INVALID);
        assert_eq!(create("CreateListener", table.NdkCreateListener as usize, &[NULL, NEVER, NULL], true), INVALID);
        let endpoints = table.NdkCreateSharedEndpoint as usize;
        assert_eq!(create("CreateSharedEndpoint", endpoints, &[NULL, address, 16], true), INVALID);
        let words = [NULL, NULL, 4096, NULL, NULL, NULL, size, NULL];
        assert_eq!(call("BuildLAM", table.NdkBuildLAM as usize, &words), INVALID);
        call("ReleaseLAM", table.NdkReleaseLAM as usize, &[NULL, NULL]);

        let table = domain.object().table();
        assert_eq!(create("CreateMr", table.NdkCreateMr as usize, &[NULL, 0], true), INVALID);
        assert_eq!(create("CreateMw", table.NdkCreateMw as usize, &[NULL], true), INVALID);
        assert_eq!(create("CreateSrq", table.NdkCreateSrq as usize, &[NULL, 4, 1, 0, NULL, NULL, NULL], true), INVALID);
        let cq = word(queue.object());
        let words = [NULL, cq, cq, NULL, 4, 4, 1, 1, 0];
        assert_eq!(create("CreateQp", table.NdkCreateQp as usize, &words, true), INVALID);
        let words = [NULL, cq, cq, word(shared.object()), NULL, 4, 1, 0];
        assert_eq!(create("CreateQpWithSrq", table.NdkCreateQpWithSrq as usize, &words, true), INVALID);
        call("GetPrivilegedToken", table.NdkGetPrivilegedMemoryRegionToken as usize, &[NULL, size]);
        assert_eq!(capacity, 256, "a token of no domain");

        let table = queue.object().table();
        assert_eq!(request("ResizeCq", table.NdkResizeCq as usize, &[NULL, 8]), INVALID);
        assert_eq!(call("Moderation", table.NdkControlCqInterruptModeration as usize, &[NULL, 1, 1]), INVALID);
        call("ArmCq", table.NdkArmCq as usize, &[NULL, 1]);
        assert_eq!(call("GetCqResults", table.NdkGetCqResults as usize, &[NULL, size, 1]), 0);
        assert_eq!(call("GetCqResultsEx", table.NdkGetCqResultsEx as usize, &[NULL, size, 1]), 0);

        let table = region.object().table();
        assert_eq!(request("RegisterMr", table.NdkRegisterMr as usize, &[NULL, NULL, 4096, 0]), INVALID);
        assert_eq!(request("DeregisterMr", table.NdkDeregisterMr as usize, &[NULL]), INVALID);
        assert_eq!(request("InitializeFrmr", table.NdkInitializeFastRegisterMr as usize, &[NULL, 1, 0]), INVALID);
        assert_eq!(call("GetRemoteToken", table.NdkGetRemoteTokenFromMr as usize, &[NULL]), 0);
        assert_eq!(call("GetLocalToken", table.NdkGetLocalTokenFromMr as usize, &[NULL]), 0);
        let remote_token = window.object().table().NdkGetRemoteTokenFromMw as usize;
        assert_eq!(call("GetRemoteToken", remote_token, &[NULL]), 0);

        let table = shared.object().table();
        assert_eq!(request("ModifySrq", table.NdkModifySrq as usize, &[NULL, 8, 0]), INVALID);
        assert_eq!(call("SrqReceive", table.NdkSrqReceive as usize, &[NULL, 1, NULL, 0]), INVALID);

        let table = pair.active.queue_pair.object().table();
        for (function, words) in [
            (table.NdkSend as usize, &[NULL, 1, NULL, 0, 0][..]),
            (table.NdkSendAndInvalidate as usize, &[NULL, 1, NULL, 0, 0, 0]),
            (table.NdkReceive as usize, &[NULL, 1, NULL, 0]),
            (table.NdkRead as usize, &[NULL, 1, NULL, 0, 0, 0, 0]),
            (table.NdkWrite as usize, &[NULL, 1, NULL, 0, 0, 0, 0]),
            (table.NdkBind as usize, &[NULL, 1, NULL, NULL, 0, 0, 0]),
            (table.NdkFastRegister as usize, &[NULL, 1, NULL, 0, NULL, 0, 0, 0, 0]),
            (table.NdkInvalidate as usize, &[NULL, 1, NULL, 0]),
        ] {
            assert_eq!(call("a post", function, words), INVALID, "{words:?}");
        }
        call("Flush", table.NdkFlush as usize, &[NULL]);

        let listener = pair.listener.object().table();
        assert_eq!(request("Listen", listener.NdkListen as usize, &[NULL, address, 16]), INVALID);
        call("ControlConnectEvents", listener.NdkControlConnectEvents as usize, &[NULL, 1]);
        let table = pair.active.connector().object().table();
        for function in [
            table.NdkGetLocalAddress as usize,
            table.NdkGetPeerAddress as usize,
            listener.NdkGetLocalAddress as usize,
            endpoint.object().table().NdkGetLocalAddress as usize,
        ] {
            assert_eq!(call("GetLocalAddress", function, &[NULL, NULL, size]), INVALID);
        }
        let qp = word(pair.active.queue_pair.object());
        let words = [NULL, qp, address, 16, address, 16, 0, 0, NULL, 0];
        assert_eq!(request("Connect", table.NdkConnect as usize, &words), INVALID);
        let over = word(endpoint.object());
        let words = [NULL, qp, over, address, 16, 0, 0, NULL, 0];
        assert_eq!(request("ConnectOver", table.NdkConnectWithSharedEndpoint as usize, &words), INVALID);
        for (function, words) in [
            (table.NdkCompleteConnect as usize, &[NULL, NULL, NULL][..]),
            (table.NdkCompleteConnectEx as usize, &[NULL, NULL, NULL]),
            (table.NdkAccept as usize, &[NULL, qp, 0, 0, NULL, 0, NULL, NULL]),
            (table.NdkAcceptEx as usize, &[NULL, qp, 0, 0, NULL, 0, NULL, NULL]),
            (table.NdkDisconnect as usize, &[NULL]),
        ] {
            assert_eq!(request("a connector's request", function, words), INVALID, "{words:?}");
        }
        assert_eq!(call("Reject", table.NdkReject as usize, &[NULL, NULL, 0]), INVALID);
        let words = [NULL, NULL, NULL, NULL, size];
        assert_eq!(call("GetConnectionData", table.NdkGetConnectionData as usize, &words), INVALID);
        assert_eq!(capacity, 256, "a refusal writes nothing");
    });
}
