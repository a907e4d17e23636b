//! Things that end while something is going on: cancelled requests, closed pairs and files, adapters that go.

use crate::machine::{Machine, ask, list, refused, region, send, send_direct, start_direct};
use crate::pairs::{close, create_request, objects};
use crate::transfers::transfer_request;
use crate::{Case, cases};
use softndk_ioctl::{
    AdapterListRequest, MemcpyRequest, ObjectSummaryRequest, Request, RequestHeader, Status, TransferFlags,
    TransferRequest,
};
use zerocopy::IntoBytes;

pub const CASES: &[Case] = cases![
    a_cancelled_transfer_answers_cancelled,
    a_cancelled_memcpy_answers_cancelled,
    closing_the_pair_cancels_its_transfer,
    closing_the_file_cancels_its_transfer,
    disabling_ndk_ends_sessions,
    halting_an_adapter_ends_sessions,
    requests_after_the_last_adapter_answer_device_removed,
    unload_with_handles_open,
];

fn endless(pair: u32) -> TransferRequest {
    TransferRequest { request_count: u64::MAX, ..transfer_request(pair, 65_536) }
}

fn a_cancelled_transfer_answers_cancelled() {
    let machine = Machine::start();
    let file = machine.open();
    let pair = ask(&file, &create_request(&machine)).pair;
    let buffer = region(65_536);
    let running = start_direct(&file, &endless(pair), &buffer);
    assert!(running.cancel());
    let answer = running.wait();
    assert_eq!((Status(answer.status), answer.information), (Status::CANCELLED, 0));
    assert_eq!(close(&file, pair), Status::SUCCESS);
    file.close();
    drop(buffer);
    machine.finish();
}

fn a_cancelled_memcpy_answers_cancelled() {
    let machine = Machine::start();
    let file = machine.open();
    let request = MemcpyRequest {
        header: RequestHeader::of::<MemcpyRequest>(),
        region_length: 4096,
        request_count: u64::MAX,
        request_length: 4096,
        flags: TransferFlags::empty(),
        time_budget: 0,
        reserved: 0,
    };
    let buffer = region(4096);
    let running = start_direct(&file, &request, &buffer);
    assert!(running.cancel());
    assert_eq!(Status(running.wait().status), Status::CANCELLED);
    file.close();
    machine.finish();
}

fn closing_the_pair_cancels_its_transfer() {
    let machine = Machine::start();
    let file = machine.open();
    let pair = ask(&file, &create_request(&machine)).pair;
    let buffer = region(65_536);
    let running = start_direct(&file, &endless(pair), &buffer);
    assert_eq!(close(&file, pair), Status::SUCCESS);
    assert_eq!(Status(running.wait().status), Status::CANCELLED);
    file.close();
    machine.finish();
}

fn closing_the_file_cancels_its_transfer() {
    let machine = Machine::start();
    let (file, watcher) = (machine.open(), machine.open());
    let pair = ask(&file, &create_request(&machine)).pair;
    let buffer = region(65_536);
    let running = start_direct(&file, &endless(pair), &buffer);
    file.close();
    assert_eq!(Status(running.wait().status), Status::CANCELLED);
    drop(running);
    assert_eq!(objects(&watcher).pairs, 0);
    watcher.close();
    machine.finish();
}

/// Turns NDK on the second adapter on or off, as NDIS does.
fn set_ndk(machine: &Machine, enabled: bool) {
    const OID_NDK_SET_STATE: u32 = 0xFC04_0201;
    let answer = machine.adapters[1].set_oid(OID_NDK_SET_STATE, &[u8::from(enabled)]).expect("the adapter is started");
    assert_eq!(answer.status, 0);
    // The miniport tells NDIS from a thread of its own.
    machine.wait_until(|| machine.adapters[1].is_ndk_enabled() == enabled);
}

fn disabling_ndk_ends_sessions() {
    let machine = Machine::start();
    let file = machine.open();
    let request = create_request(&machine);
    let pair = ask(&file, &request).pair;
    let buffer = region(65_536);
    let running = start_direct(&file, &endless(pair), &buffer);
    set_ndk(&machine, false);
    assert_eq!(Status(running.wait().status), Status::DEVICE_REMOVED);
    assert_eq!(send_direct(&file, &transfer_request(pair, 4096), &mut region(4096)), Status::DEVICE_REMOVED);
    refused(&file, &request, Status::DEVICE_NOT_READY);
    assert_eq!(close(&file, pair), Status::SUCCESS);
    set_ndk(&machine, true);
    let again = ask(&file, &request).pair;
    assert_eq!(close(&file, again), Status::SUCCESS);
    file.close();
    machine.finish();
}

fn halting_an_adapter_ends_sessions() {
    let mut machine = Machine::start();
    let file = machine.open();
    let request = create_request(&machine);
    let pair = ask(&file, &request).pair;
    let buffer = region(65_536);
    let running = start_direct(&file, &endless(pair), &buffer);
    machine.adapters.remove(1).remove();
    assert_eq!(Status(running.wait().status), Status::DEVICE_REMOVED);
    assert_eq!(send_direct(&file, &transfer_request(pair, 4096), &mut region(4096)), Status::DEVICE_REMOVED);
    refused(&file, &request, Status::DEVICE_DOES_NOT_EXIST);
    assert_eq!(list(&file).len(), 1);
    assert_eq!(close(&file, pair), Status::SUCCESS);
    file.close();
    machine.finish();
}

fn requests_after_the_last_adapter_answer_device_removed() {
    let mut machine = Machine::start();
    let file = machine.open();
    for adapter in machine.adapters.drain(..) {
        adapter.remove();
    }
    for code in [AdapterListRequest::CODE, ObjectSummaryRequest::CODE] {
        let header = RequestHeader { version: 1, size: 8 };
        let (status, output) = send(&file, code, header.as_bytes(), 4096);
        assert_eq!(status, Status::DEVICE_REMOVED, "0x{code:08X}");
        assert!(output.is_empty());
    }
    file.close();
    machine.finish();
}

fn unload_with_handles_open() {
    let mut machine = Machine::start();
    let file = machine.open();
    let pair = ask(&file, &create_request(&machine)).pair;
    let buffer = region(65_536);
    let running = start_direct(&file, &endless(pair), &buffer);
    for adapter in machine.adapters.drain(..) {
        adapter.remove();
    }
    assert_eq!(Status(running.wait().status), Status::DEVICE_REMOVED);
    drop(running);
    // The handle outlives the adapters; the unload waits for its close.
    file.close();
    machine.finish();
}
