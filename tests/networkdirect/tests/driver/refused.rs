//! Requests and results that fail are on the driver's list of refusals, with their process or queue, status and cause; what is cancelled
//! or succeeds is not.

use super::program::*;
use networkdirect::machine::{Machine, ip};
use networkdirect::{cases, cases::Case, refusals};
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::rings::RequestType;
use softndk_ioctl::{NdkCall, ObjectKind, RefusalCause, RefusalPlace, RefusalWay, Status};
use std::net::SocketAddr;

pub const CASES: &[Case] = cases![
    a_request_that_fails_at_once_is_on_the_list,
    a_parameter_of_a_method_has_its_number,
    a_request_that_fails_after_it_has_pended_is_on_the_list,
    what_is_cancelled_or_succeeds_is_not,
    a_result_that_is_a_failure_has_the_engine_s_cause,
];

/// Call, cause, status, way and number of the newest refusal.
fn newest() -> (NdkCall, RefusalCause, Status, RefusalWay, u64) {
    let entry = refusals::kept().pop().expect("something was refused");
    (entry.call, entry.cause, entry.status(), entry.way, entry.object)
}

// Rule: IOCTL-13
fn a_request_that_fails_at_once_is_on_the_list() {
    let machine = Machine::start();
    let nd = Nd::start(77);
    assert_eq!(refusals::kept().len(), 0);
    let status = nd.try_ask::<u64>(PD_CREATE, &handle(0xDEAD)).expect_err("no such adapter");
    let of_call = (NdkCall::ND_PD_CREATE, RefusalCause::ND_BAD_HANDLE, status, RefusalWay::CALL, 77);
    assert_eq!(newest(), of_call);
    let adapter = nd.open_adapter(ip(1));
    let domain = nd.create(PD_CREATE, adapter);
    assert_eq!(nd.free(ADAPTER_CLOSE, adapter), Status::DEVICE_BUSY);
    let busy = (NdkCall::ND_ADAPTER_CLOSE, RefusalCause::ND_IN_USE, Status::DEVICE_BUSY, RefusalWay::CALL, 77);
    assert_eq!(newest(), busy);
    assert_eq!([nd.free(PD_FREE, domain), nd.free(ADAPTER_CLOSE, adapter)], [Status::SUCCESS; 2]);
    assert_eq!(refusals::kept().len(), 2, "what succeeds is not on the list");
    nd.close();
    machine.finish();
}

// Rule: IOCTL-13
fn a_parameter_of_a_method_has_its_number() {
    let machine = Machine::start();
    let nd = Nd::start(5);
    let adapter = nd.open_adapter(ip(1));
    let status = nd.create_queue(adapter, u32::MAX).expect_err("longer than any queue");
    let (call, cause, refused, ..) = newest();
    assert_eq!((call, refused), (NdkCall::ND_CQ_CREATE, status));
    let number = status.0.wrapping_sub(0xC000_00EF_u32.cast_signed()).cast_unsigned() + 1;
    assert!((1..=10).contains(&number), "{status} names a parameter");
    assert_eq!(cause.0, RefusalCause::ND_PARAMETER_1.0 + number - 1);
    nd.close();
    machine.finish();
}

// Rule: IOCTL-13
fn a_request_that_fails_after_it_has_pended_is_on_the_list() {
    let machine = Machine::start();
    let client = Program::start(9, 2);
    let ours = client.connector();
    assert_eq!(client.bind(CONNECTOR_BIND, ours, SocketAddr::new(ip(2), 0)), Status::SUCCESS);
    let ended = status(&client.connect(ours, SocketAddr::new(ip(1), 5000), b""));
    let refused = (NdkCall::ND_CONNECTOR_CONNECT, RefusalCause::CONNECT_REFUSED, ended, RefusalWay::COMPLETION, 9);
    assert_eq!(newest(), refused);
    drop(client.close());
    machine.finish();
}

// Rule: IOCTL-13
fn what_is_cancelled_or_succeeds_is_not() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    let notify = client.nd.notify(&client.queue, 1);
    notify.cancel();
    assert_eq!(status(&notify), Status::CANCELLED);
    let remote = (server.region.address(), server.region.token);
    client.pair.rdma(&client.nd, RequestType::Write, 1, &[client.region.sge(0, 64)], remote);
    assert_eq!(client.queue.wait(1)[0].status, 0);
    drop((server.close(), client.close()));
    let entries = refusals::kept();
    assert!(entries.is_empty(), "{entries:?}");
    machine.finish();
}

// Rule: IOCTL-13
fn a_result_that_is_a_failure_has_the_engine_s_cause() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    let remote = (server.region.address(), server.region.token ^ 0x00FF_0000);
    client.pair.rdma(&client.nd, RequestType::Read, 1, &[client.region.sge(0, 64)], remote);
    let result = client.queue.wait(1)[0];
    let entries = refusals::kept();
    let of = |way: RefusalWay| *entries.iter().find(|entry| entry.way == way).expect("on the list");
    let (here, there) = (of(RefusalWay::RESULT), of(RefusalWay::PEER));
    assert_eq!((here.call, here.kind, here.status), (NdkCall::READ, ObjectKind::COMPLETION_QUEUE, result.status));
    assert_eq!((here.place, there.place), (RefusalPlace::PEER_SOURCE, RefusalPlace::HERE_SOURCE));
    assert_eq!((here.cause, there.kind), (there.cause, ObjectKind::QUEUE_PAIR));
    assert!(here.cause == RefusalCause::RESULT_NO_TOKEN || here.cause == RefusalCause::RESULT_STALE_TOKEN, "{here:?}");
    drop((server.close(), client.close()));
    machine.finish();
}
