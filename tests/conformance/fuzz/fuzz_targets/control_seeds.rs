//! Inputs that reach every request and what is behind it: lists, pairs, transfers of every operation over every kind of memory,
//! scripts, and each of them given up.

use softndk_ioctl::{
    MemcpyRequest, Operation, PairCreateRequest, PairModerationRequest, RegionKind, Request, ScriptRequest,
    TransferRequest,
};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::{ANEW, LEFT_ALONE, OWN_PAIR, REQUESTS, RIGHT_HEADER, SECOND, TEXT};

/// A script without its end: what is left open is closed by the driver.
const SCRIPT: &str = include_str!("../../../../tools/ndkctl/tests/scripts/transfers.ndk");

fn step(how: u8, code: u32, input: &[u8], capacity: u16) -> Vec<u8> {
    let which = REQUESTS.iter().position(|(known, _)| *known == code).expect("a known code") as u8;
    let length = (input.len() as u16).to_le_bytes();
    [&[how, which][..], &length, &capacity.to_le_bytes(), input].concat()
}

fn request<R: Request + FromZeros + IntoBytes + Immutable>(how: u8, capacity: u16, fill: impl FnOnce(&mut R)) -> Vec<u8> {
    let mut request = R::new_zeroed();
    fill(&mut request);
    step(how | RIGHT_HEADER, R::CODE, request.as_bytes(), capacity)
}

fn pair(how: u8) -> Vec<u8> {
    request::<PairCreateRequest>(how, 200, |asked| asked.server_adapter = 1)
}

fn transfer(how: u8, operation: Operation, kind: RegionKind) -> Vec<u8> {
    // The output length is in units of three.
    request::<TransferRequest>(how | OWN_PAIR, 0x3000, |asked| {
        (asked.operation, asked.region_kind) = (operation, kind);
        (asked.region_length, asked.request_length, asked.request_count) = (8000, 900, 30);
        (asked.sge_count, asked.depth, asked.chain_length) = (2, 4, 2);
    })
}

fn script(how: u8, parts: usize) -> Vec<u8> {
    let text: Vec<&str> = SCRIPT.lines().filter(|line| !line.starts_with('#')).take(parts).collect();
    step(how | TEXT, ScriptRequest::CODE, text.join("\n").as_bytes(), 500)
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> =
        REQUESTS.iter().map(|(code, length)| step(RIGHT_HEADER, *code, &vec![0; *length], 2000)).collect();
    for operation in [Operation::READ, Operation::WRITE, Operation::SEND] {
        for kind in [RegionKind::REGISTERED, RegionKind::FAST_REGISTERED, RegionKind::LOGICAL, RegionKind::WINDOW] {
            seeds.push([pair(0), transfer(0, operation, kind)].concat());
        }
    }
    let moderation = request::<PairModerationRequest>(OWN_PAIR, 0, |asked| (asked.interval, asked.count) = (20, 4));
    seeds.push([pair(0), moderation, transfer(LEFT_ALONE, Operation::READ, RegionKind::REGISTERED)].concat());
    seeds.push([pair(0), transfer(LEFT_ALONE, Operation::SEND, RegionKind::LOGICAL), pair(ANEW)].concat());
    seeds.push([pair(LEFT_ALONE), pair(SECOND), pair(SECOND | LEFT_ALONE)].concat());
    seeds.push(request::<MemcpyRequest>(0, 0x3000, |asked| {
        (asked.region_length, asked.request_length, asked.request_count) = (8000, 900, 30);
    }));
    seeds.extend([5, 13, 25, 34, 200].map(|parts| script(0, parts)));
    seeds.push([script(LEFT_ALONE, 200), script(SECOND, 20)].concat());
    seeds
}
