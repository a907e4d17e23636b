//! What a hostile peer may do to a queue pair of the engine that is connected to it, in both roles: any bytes, frames of any payload with
//! a right CRC, and messages that go on where the last ended. Memory that was not granted stays as it is, the peer gets a bounded number
//! of bytes, and nothing is left when both have ended.
#![no_main]

use libfuzzer_sys::fuzz_target;
use softndk_engine::{
    AdapterSettings, LogicalAddress, MemoryRegion, RequestFlags, Rights, Semantics, Socket as _, Transport,
};
use softndk_engine_kit::{
    A, ACCEPT, Buffer, CLOSE, Depths, FIRST, GONE, Harness, Network, Pair, SECOND, Side, TcpListeningSocket, TcpSocket,
    Travel, World, sge,
};
use softndk_iwarp::frame;
use std::net::SocketAddr;

#[path = "../../../conformance/fuzz/fuzz_targets/seeds.rs"]
mod seeds;

const NONE: RequestFlags = RequestFlags::empty();
const PAGE: usize = 4096;
/// Bytes of a receive, and of a Read, and from one to the next.
const PART: usize = 48;
const STEP: usize = 64;
const RECEIVES: usize = 6;
const READS: usize = 2;
/// What each memory is filled with.
const CLOSED: u8 = 2;
const RECEIVED: u8 = 3;
const READ: u8 = 4;

fuzz_target!(init: seeds::write(seeds()), |bytes: &[u8]| {
    let Some(([mode, cut], script)) = bytes.split_first_chunk::<2>() else { return };
    let mut scene = Scene::new(mode & 1 != 0);
    scene.play(script, usize::from(*cut).max(1));
    scene.end(mode & 2 != 0);
});

/// A start-up frame of revision 2 with CRC, four Reads each way, and a ready-to-receive Write.
fn start_frame(kind: &str) -> Vec<u8> {
    [format!("MPA ID {kind} Frame").as_bytes(), &[0x50, 2, 0, 4, 0x80, 4, 0x80, 4]].concat()
}

fn framed(payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; frame::length(payload.len())];
    frame::build(&mut bytes, payload.len(), true, |into| {
        into.copy_from_slice(payload);
        Some(())
    })
    .expect("a payload fits");
    bytes
}

/// The consumer's memory.
struct Memories {
    open: MemoryRegion<Harness>,
    closed: (Buffer, MemoryRegion<Harness>),
    received: (Buffer, LogicalAddress),
    read: (Buffer, LogicalAddress),
}

struct Scene {
    pair: Pair,
    is_initiator: bool,
    peer: TcpSocket,
    _listener: Option<TcpListeningSocket>,
    memories: Memories,
    /// The numbers of the peer's next Send and Read Request.
    numbers: [u32; 2],
}

fn memories(world: &World, side: &Side) -> Memories {
    let buffers = [1, CLOSED, RECEIVED, READ].map(|byte| Buffer::new(PAGE, byte));
    let [open, closed, received, read] = buffers;
    Memories {
        open: side.register(world, &open, 0x1000, Rights::REMOTE_READ | Rights::REMOTE_WRITE),
        closed: (closed.clone(), side.register(world, &closed, 0x1000, Rights::empty())),
        received: (received.clone(), side.build(world, &received)),
        read: (read.clone(), side.build(world, &read)),
    }
}

impl Scene {
    fn new(is_initiator: bool) -> Self {
        let settings = AdapterSettings { transport: Transport::Stream, ..AdapterSettings::default() };
        let world = World::with_travel(Travel::Exactly(0), settings);
        let mut pair = Pair::unconnected(world, Semantics::NDK, Depths::default());
        let memories = memories(&pair.world, if is_initiator { &pair.a } else { &pair.b });
        let (listener, peer) = if is_initiator { connect(&mut pair) } else { (None, accept(&mut pair)) };
        let mut scene = Self { pair, is_initiator, peer, _listener: listener, memories, numbers: [1; 2] };
        scene.post();
        scene
    }

    fn side(&self) -> &Side {
        if self.is_initiator { &self.pair.a } else { &self.pair.b }
    }

    fn post(&mut self) {
        let side = self.side();
        let element = |first: LogicalAddress, index: usize| {
            [sge(first.0 + (index * STEP) as u64, PART as u32, side.privileged())].into_iter()
        };
        for index in 0..RECEIVES {
            side.pair.receive(index as u64, element(self.memories.received.1, index)).unwrap();
        }
        if !self.is_initiator {
            self.send(&framed(&[0xC1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), usize::MAX);
        }
        let side = self.side();
        let token = self.memories.open.remote_token();
        for index in 0..READS {
            side.pair.read(100, NONE, element_of(side, self.memories.read.1, index), 0, token).unwrap();
        }
        self.pair.world.run();
    }

    fn play(&mut self, mut script: &[u8], cut: usize) {
        while let Some(([what, length], rest)) = script.split_first_chunk::<2>() {
            let (data, rest) = rest.split_at(usize::from(*length).min(rest.len()));
            script = rest;
            let bytes = match what % 4 {
                0 => data.to_vec(),
                1 => framed(data),
                2 => framed(&self.tagged(what >> 2, data)),
                _ => framed(&self.untagged(what >> 2, data)),
            };
            self.send(&bytes, cut);
        }
    }

    /// A Write into the memory that is open or the one that is not, or a response to one of the Reads.
    fn tagged(&self, kind: u8, data: &[u8]) -> Vec<u8> {
        let last = if kind & 1 == 0 { 0xC1 } else { 0x81 };
        let (at, data) = data.split_first().map_or((0, data), |(at, data)| (*at, data));
        let (opcode, stag, offset) = match kind >> 1 & 3 {
            0 => (0x40, self.memories.open.remote_token().0, 0x1000 + u64::from(at) * 16),
            1 => (0x40, self.memories.closed.1.local_token().0, 0x1000 + u64::from(at)),
            _ => (0x42, 1 + u32::from(kind >> 1 & 1), u64::from(at % 2 * kind)),
        };
        [&[last, opcode][..], &stag.to_be_bytes(), &offset.to_be_bytes(), data].concat()
    }

    /// A Send of any kind, a Read Request, or a Terminate, with the number that is due.
    fn untagged(&mut self, kind: u8, data: &[u8]) -> Vec<u8> {
        let is_last = kind & 1 == 0;
        let (opcode, queue, stag) = match kind >> 1 & 7 {
            0..4 => (0x43 + (kind >> 1 & 3), 0, self.memories.open.remote_token().0),
            4 | 5 => (0x41, 1, 0),
            _ => (0x47, 2, 0),
        };
        let number = self.numbers.get(queue as usize).copied().unwrap_or(1);
        if let Some(next) = self.numbers.get_mut(queue as usize).filter(|_| is_last) {
            *next = next.wrapping_add(1);
        }
        let mut payload = vec![if is_last { 0x41 } else { 0x01 }, opcode];
        for word in [stag, queue, number, 0] {
            payload.extend(word.to_be_bytes());
        }
        if opcode == 0x41 {
            let [at, length] = [0, 1].map(|index| data.get(index).copied().unwrap_or(8));
            let token =
                if kind & 0x20 == 0 { self.memories.open.remote_token() } else { self.memories.closed.1.local_token() };
            payload.extend(7_u32.to_be_bytes());
            payload.extend(0_u64.to_be_bytes());
            payload.extend((u32::from(length) * 16).to_be_bytes());
            payload.extend(token.0.to_be_bytes());
            payload.extend((0x1000 + u64::from(at) * 16).to_be_bytes());
        } else {
            payload.extend(data);
        }
        payload
    }

    /// Bytes in pieces; what comes back is taken, and is bounded.
    fn send(&mut self, bytes: &[u8], cut: usize) {
        for piece in bytes.chunks(cut) {
            let _taken = self.peer.send(piece);
            self.pair.world.run();
            let received = self.peer.take_received();
            assert!(received.len() < 1 << 18, "{} bytes for one piece", received.len());
        }
    }

    fn end(mut self, resets: bool) {
        if resets {
            self.peer.abort()
        } else {
            self.peer.finish()
        }
        self.pair.world.run();
        self.peer.take_received();
        let Memories { open, closed, received, read } = self.memories;
        assert_eq!(closed.0.read(0, PAGE), [CLOSED; PAGE], "memory that no peer may write");
        check(&received.0, RECEIVED, RECEIVES);
        check(&read.0, READ, READS);
        drop(self.peer);
        let side = if self.is_initiator { &self.pair.a } else { &self.pair.b };
        drop((open.close(CLOSE), closed.1.close(CLOSE)));
        let (pair, opened) = (side.pair.clone(), side.open.clone());
        pair.flush();
        self.pair.world.run();
        assert!(opened.release_mapping(received.1) && opened.release_mapping(read.1));
        drop((pair, opened));
        self.pair.close();
    }
}

fn element_of(side: &Side, first: LogicalAddress, index: usize) -> impl ExactSizeIterator<Item = softndk_engine::Sge> {
    [sge(first.0 + (index * STEP) as u64, PART as u32, side.privileged())].into_iter()
}

/// Nothing was stored outside of the parts.
fn check(buffer: &Buffer, filled: u8, parts: usize) {
    for (at, byte) in buffer.read(0, PAGE).iter().enumerate() {
        let is_inside = at / STEP < parts && at % STEP < PART;
        assert!(is_inside || *byte == filled, "byte {at} was stored");
    }
}

/// A connects to a peer that accepts, and has completed.
fn connect(pair: &mut Pair) -> (Option<TcpListeningSocket>, TcpSocket) {
    let (listener, mut peer, _) = pair.connect_to_bytes(4);
    let _taken = peer.send(&start_frame("Rep"));
    pair.world.run();
    pair.a.connector.complete_connect(Some(A + GONE), A + ACCEPT).unwrap();
    pair.world.run();
    (Some(listener), peer)
}

/// A peer connects to B, which accepts.
fn accept(pair: &mut Pair) -> TcpSocket {
    let network = pair.world.harness().network.clone();
    let mut peer = Network::dial(&network, SocketAddr::new(FIRST, 1000), SocketAddr::new(SECOND, 445));
    let _taken = peer.send(&start_frame("Req"));
    pair.world.run();
    pair.take_arrived();
    pair.accept().unwrap();
    pair.world.run();
    peer.take_received();
    peer
}

/// One message of each kind, in both roles and with both ends.
fn seeds() -> impl Iterator<Item = Vec<u8>> {
    let messages = (0..32_u8).flat_map(|kind| [[kind << 2 | 2, 9], [kind << 2 | 3, 9]]);
    let one_each = |(number, [what, length]): (usize, [u8; 2])| {
        [&[number as u8 & 3, 5, what, length][..], &[what; 9], &[1, 20], &[0x41; 20]].concat()
    };
    messages.enumerate().step_by(2).map(one_each)
}
