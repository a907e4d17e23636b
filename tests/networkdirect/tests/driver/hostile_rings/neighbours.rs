//! Honest traffic beside the hostile process: a queue pair of the same process whose completion queue the hostile one uses, too, and two
//! processes of their own. Every message is looked at.

use super::super::program::*;
use super::guarded::{Guarded, SECRET};
use super::round::{GUILTY_CONTEXT, assert_documented};
use kernel_host::dispatcher::Event;
use kernel_host::memory::user_buffer::UserBuffer;
use networkdirect::machine::pass;
use softndk_ioctl::Status;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::rings::{OperationFlags, RequestType, ResultEntry};
use std::sync::atomic::{AtomicBool, Ordering};

/// Room for all that a hostile queue pair leaves between two looks.
const SHARED_DEPTH: u32 = 4096;
const LENGTH: usize = 3000;

/// Two connected programs that talk.
struct Couple {
    one: Program,
    other: Program,
    messages: u64,
}

pub struct Neighbours {
    couples: [Couple; 2],
}

/// The completion queue that the neighbour and the hostile queue pair share.
pub struct SharedQueue {
    pub handle: u64,
    memory: usize,
}

impl SharedQueue {
    /// Results that the neighbour has not taken.
    pub fn unread(&self) -> u32 {
        // SAFETY: the queue's memory, which the neighbour keeps until the hostile process has ended.
        let word = |offset: usize| unsafe { ((self.memory + offset) as *const u32).read_volatile() };
        word(0).wrapping_sub(word(softndk_ioctl::nd::rings::CONSUMER_OFFSET))
    }
}

/// Neighbours of a process, and memory of them and of it that nothing may reach: in domains of their own.
pub fn start(guilty: &Program) -> (Neighbours, Vec<Guarded>) {
    let file = open(100);
    let (bound, _) = send(&file, PROVIDER_BIND_FILE, zerocopy::IntoBytes::as_bytes(&handle(guilty.nd.token)), 0);
    assert_eq!(bound, Status::SUCCESS);
    let nd = Nd { file, token: guilty.nd.token };
    let domain = nd.create(PD_CREATE, guilty.adapter);
    let queue = nd.queue(guilty.adapter, SHARED_DEPTH);
    let pair = new_pair(&nd, domain, (queue.handle, queue.handle), SIZES);
    let region = nd.region(domain, 65_536, REMOTE_WRITE | REMOTE_READ);
    let near = Program { nd, adapter: guilty.adapter, domain, queue, pair, region, host: 1 };
    let couples = [(near, Program::start(200, 2)), (Program::start(300, 1), Program::start(400, 2))];
    let private = couples
        .iter()
        .flat_map(|(one, other)| [one, other])
        .map(|program| Guarded::new(&program.nd, program.domain, 8192, SECRET))
        .collect();
    let couples = couples.map(|(one, other)| {
        connect(&one, &other);
        Couple { one, other, messages: 0 }
    });
    (Neighbours { couples }, private)
}

impl Neighbours {
    pub fn shared_queue(&mut self) -> SharedQueue {
        let queue = &self.couples[0].one.queue;
        SharedQueue { handle: queue.handle, memory: queue.memory.address() }
    }

    /// Each time that they are told.
    pub fn talk_until(&mut self, stop: &AtomicBool, told: &Event) {
        while !stop.load(Ordering::SeqCst) {
            told.wait(None);
            for couple in &mut self.couples {
                couple.talk();
            }
        }
    }

    pub fn messages(&self) -> u64 {
        self.couples.iter().map(|couple| couple.messages).sum()
    }

    pub fn close(self) -> Vec<(Queue, Pair, Region)> {
        self.couples.into_iter().flat_map(|couple| [couple.one.close(), couple.other.close()]).collect()
    }
}

fn pattern(number: u64) -> Vec<u8> {
    (0..LENGTH).map(|index| ((index as u64).wrapping_mul(7).wrapping_add(number) % 199) as u8).collect()
}

fn put(buffer: &mut UserBuffer, offset: usize, bytes: &[u8]) {
    buffer.as_mut_slice()[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// One result of the program's own queue pair.
fn own_result(program: &Program) -> ResultEntry {
    for _ in 0..10_000 {
        // One at a time, so that the next one stays for the next look.
        for result in program.queue.take(1) {
            if result.queue_pair_context == PAIR_CONTEXT {
                return result;
            }
            assert_eq!(result.queue_pair_context, GUILTY_CONTEXT, "{result:?}");
            assert_documented(&result);
        }
        if program.queue.unread() == 0 {
            pass(1);
        }
    }
    panic!("no result for a neighbour");
}

#[track_caller]
fn expect(program: &Program, kind: RequestType, context: u64) {
    let result = own_result(program);
    let seen = (result.request_type, result.request_context, result.status);
    assert_eq!(seen, (kind as u32, context, 0), "a neighbour of the hostile queue pair suffers");
}

impl Couple {
    /// A message each way, a Write and a Read.
    fn talk(&mut self) {
        let number = self.messages;
        send_from(&mut self.one, &self.other, number);
        send_from(&mut self.other, &self.one, number + 1);
        let (one, other) = (&mut self.one, &mut self.other);
        put(&mut one.region.buffer, 0, &pattern(number + 2));
        let remote = |offset: u64| (other.region.address() + offset, other.region.token);
        one.pair.rdma(&one.nd, RequestType::Write, 3, &[one.region.sge(0, LENGTH as u32)], remote(20_000));
        expect(one, RequestType::Write, 3);
        one.pair.rdma(&one.nd, RequestType::Read, 4, &[one.region.sge(30_000, LENGTH as u32)], remote(20_000));
        expect(one, RequestType::Read, 4);
        assert_eq!(&one.region.buffer.as_slice()[30_000..30_000 + LENGTH], pattern(number + 2));
        self.messages += 4;
    }
}

fn send_from(from: &mut Program, to: &Program, number: u64) {
    let bytes = pattern(number);
    put(&mut from.region.buffer, 0, &bytes);
    to.pair.receive(&to.nd, number, &[to.region.sge(10_000, LENGTH as u32)]);
    from.pair.send(&from.nd, number, OperationFlags::empty(), &[from.region.sge(0, LENGTH as u32)]);
    expect(from, RequestType::Send, number);
    expect(to, RequestType::Receive, number);
    assert_eq!(&to.region.buffer.as_slice()[10_000..10_000 + LENGTH], bytes, "message {number}");
}
