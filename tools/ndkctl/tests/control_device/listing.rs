//! The list of live objects: complete, in parts, and with the right holders.

use super::handles::File;
use super::machine::{Machine, ORDINARY, Wish, ask, refused, send};
use super::pairs::{close, create_request, objects};
use super::transfers::{move_all, transfer_request};
use super::{Case, cases};
use softndk_ioctl::{
    ObjectEntry, ObjectKind, ObjectListReply, ObjectListRequest, ObjectPosition, ObjectState, Operation, Request,
    RequestHeader, Status, TransferRequest,
};
use std::collections::BTreeSet;
use zerocopy::{FromBytes, IntoBytes};

pub const CASES: &[Case] = cases![
    a_pair_is_listed_with_all_that_it_depends_on,
    queue_pairs_are_listed_with_their_bytes,
    queue_pairs_across_a_stream_are_listed_with_their_bytes,
    the_list_in_parts_is_the_list,
    positions_from_nowhere_end_the_list,
    outputs_without_capacity_for_an_entry_are_too_small,
];

fn request(position: ObjectPosition) -> ObjectListRequest {
    ObjectListRequest { header: RequestHeader::of::<ObjectListRequest>(), position }
}

/// One part of the list, with space for so many entries.
fn part(file: &File, position: ObjectPosition, capacity: usize) -> (ObjectListReply, Vec<ObjectEntry>) {
    let length = size_of::<ObjectListReply>() + capacity * size_of::<ObjectEntry>();
    let (status, output) = send(file, ObjectListRequest::CODE, request(position).as_bytes(), length);
    assert_eq!(status, Status::SUCCESS);
    let (fixed, entries) = ObjectListReply::read_from_prefix(&output).expect("the fixed part");
    assert_eq!(fixed.entry_size as usize, size_of::<ObjectEntry>());
    assert_eq!(entries.len(), fixed.returned_count as usize * size_of::<ObjectEntry>(), "whole entries");
    let entries = entries.chunks_exact(size_of::<ObjectEntry>());
    (fixed, entries.map(|entry| ObjectEntry::read_from_bytes(entry).expect("an entry")).collect())
}

/// The whole list, read in parts.
pub fn all_objects(file: &File, capacity: usize) -> Vec<ObjectEntry> {
    let (mut position, mut list) = (ObjectPosition::default(), Vec::new());
    loop {
        let (fixed, entries) = part(file, position, capacity);
        list.extend(entries);
        if fixed.more == 0 {
            return list;
        }
        assert_eq!(fixed.more, ObjectListReply::MORE);
        position = fixed.next;
    }
}

fn a_pair_is_listed_with_all_that_it_depends_on() {
    let machine = Machine::start();
    let file = machine.open();
    assert_eq!(all_objects(&file, 100), []);
    let create = create_request(&machine);
    let pair = ask(&file, &create).pair;
    let list = all_objects(&file, 100);
    let count = |kind| list.iter().filter(|object| object.kind == kind).count() as u32;
    let summary = objects(&file);
    assert_eq!(count(ObjectKind::ADAPTER), summary.ndk_adapters);
    assert_eq!(count(ObjectKind::QUEUE_PAIR), summary.queue_pairs);
    assert_eq!((count(ObjectKind::QUEUE_PAIR), count(ObjectKind::CONNECTOR)), (2, 2));
    let numbers: BTreeSet<u64> = list.iter().map(|object| object.number).collect();
    assert_eq!(numbers.len(), list.len());
    for object in &list {
        // A queue pair that has one completion queue for both directions keeps it twice.
        let kept = list.iter().flat_map(|other| other.antecedents).filter(|&number| number == object.number);
        assert_eq!(kept.count() as u32, object.dependants, "{object:?}");
        assert!(object.holds > object.dependants, "{object:?}");
        let keeps = object.antecedents.iter().filter(|&&number| number != 0);
        assert!(keeps.clone().all(|number| numbers.contains(number)), "{object:?}");
        // Everything leads to an open, and opens are what consumers make.
        assert_eq!(object.kind == ObjectKind::ADAPTER, keeps.count() == 0, "{object:?}");
        assert_eq!(object.session, 0, "{object:?}");
    }
    let adapters: BTreeSet<u32> = list.iter().map(|object| object.adapter).collect();
    assert_eq!(adapters, BTreeSet::from([create.client_adapter, create.server_adapter]));
    let connected =
        |kind| list.iter().filter(|object| object.kind == kind).all(|object| object.state == ObjectState::CONNECTED);
    assert!(connected(ObjectKind::QUEUE_PAIR) && connected(ObjectKind::CONNECTOR));
    assert_eq!(close(&file, pair), Status::SUCCESS);
    assert_eq!(all_objects(&file, 100), []);
    file.close();
    machine.finish();
}

fn queue_pairs_are_listed_with_their_bytes() {
    bytes_of_queue_pairs(ORDINARY);
}

fn queue_pairs_across_a_stream_are_listed_with_their_bytes() {
    bytes_of_queue_pairs(Wish { streams: true, ..ORDINARY });
}

/// Both queue pairs of an idle connection have moved no bytes; those of the other one have moved the payload of its Write and its Read,
/// and headers.
fn bytes_of_queue_pairs(wish: Wish) {
    const LENGTH: u64 = 100_000;
    let machine = Machine::with(&[wish; 2]);
    let file = machine.open();
    let [idle, busy] = [(); 2].map(|()| ask(&file, &create_request(&machine)).pair);
    let write = TransferRequest { operation: Operation::WRITE, ..transfer_request(busy, LENGTH) };
    move_all(&file, &write);
    move_all(&file, &transfer_request(busy, 3 * LENGTH));
    machine.wait_until_idle();
    let list = all_objects(&file, 100);
    let of_others = list.iter().filter(|object| object.kind != ObjectKind::QUEUE_PAIR);
    assert!(of_others.into_iter().all(|object| (object.sent, object.received) == (0, 0)));
    let pairs = list.iter().filter(|object| object.kind == ObjectKind::QUEUE_PAIR);
    let mut bytes: Vec<_> = pairs.map(|pair| (pair.sent, pair.received)).collect();
    bytes.sort_unstable();
    let [(0, 0), (0, 0), client, server] = bytes[..] else { panic!("{bytes:?}") };
    assert_eq!(client, (server.1, server.0), "what one end sends the other receives");
    for (bytes, payload) in [(client.0, LENGTH), (client.1, 3 * LENGTH)] {
        assert!(bytes > payload && bytes < payload + payload / 10, "{bytes} for {payload}");
    }
    for pair in [idle, busy] {
        assert_eq!(close(&file, pair), Status::SUCCESS);
    }
    file.close();
    machine.finish();
}

fn the_list_in_parts_is_the_list() {
    let machine = Machine::start();
    let file = machine.open();
    let pairs: Vec<u32> = (0..3).map(|_| ask(&file, &create_request(&machine)).pair).collect();
    let numbers = |capacity| all_objects(&file, capacity).iter().map(|object| object.number).collect::<Vec<_>>();
    let whole = numbers(1000);
    assert!(whole.len() >= 3 * 11, "{}", whole.len());
    for capacity in [1, 2, 7, whole.len() - 1, whole.len()] {
        assert_eq!(numbers(capacity), whole, "in parts of {capacity}");
    }
    for pair in pairs {
        assert_eq!(close(&file, pair), Status::SUCCESS);
    }
    file.close();
    machine.finish();
}

fn positions_from_nowhere_end_the_list() {
    let machine = Machine::start();
    let file = machine.open();
    let pair = ask(&file, &create_request(&machine)).pair;
    for (adapter, object) in [(0, u32::MAX), (u32::MAX, 0), (31, 5), (32, 0), (u32::MAX, u32::MAX)] {
        let (fixed, entries) = part(&file, ObjectPosition { adapter, object }, 4);
        assert!(entries.is_empty() || adapter == 0, "{adapter} {object}");
        assert!(fixed.more == 0 || adapter == 0, "{adapter} {object}");
    }
    assert_eq!(close(&file, pair), Status::SUCCESS);
    file.close();
    machine.finish();
}

fn outputs_without_capacity_for_an_entry_are_too_small() {
    let machine = Machine::start();
    let file = machine.open();
    for length in [0, 1, size_of::<ObjectListReply>(), size_of::<ObjectListReply>() + size_of::<ObjectEntry>() - 1] {
        let ask = request(ObjectPosition::default());
        let (status, output) = send(&file, ObjectListRequest::CODE, ask.as_bytes(), length);
        assert_eq!((status, output.len()), (Status::BUFFER_TOO_SMALL, 0), "{length}");
    }
    let mut wrong = request(ObjectPosition::default());
    wrong.header.version += 1;
    refused(&file, &wrong, Status::REVISION_MISMATCH);
    wrong = request(ObjectPosition::default());
    wrong.header.size -= 1;
    refused(&file, &wrong, Status::INFO_LENGTH_MISMATCH);
    file.close();
    machine.finish();
}
