//! A simple bench of the engine in one process: the rows that matter, beside a plain copy of the same size.
//!
//! `cargo run --release -p softndk-engine --example bench`. It does not measure the driver: there is no kernel, and the locks
//! are the test platform's.

use std::hint::black_box;
use std::time::Instant;

use softndk_engine::{
    FastRegistration, LogicalAddress, MemoryToken, QueuePair, QueuePairSettings, RequestFlags, Semantics,
};
use softndk_engine_kit::{Buffer, Depths, EVERYTHING, Pair, sge};

const CHAIN: u32 = 16;

struct Row {
    pair: Pair,
    local: u64,
    remote_base: u64,
    remote: MemoryToken,
}

/// Local SGEs by privileged token, the remote side a fast-register region: as a storage initiator does.
fn row(length: usize) -> Row {
    let depths = Depths { completions: 256, initiator: 64, receive: 64, sges: 4, inline: 64 };
    let pair = Pair::with(Semantics::NDK, depths);
    let (here, there) = (Buffer::new(length.max(4096), 1), Buffer::new(length.max(4096), 2));
    let built = |side: &softndk_engine_kit::Side, buffer| side.open.build_mapping(pair.world.map(buffer)).ok().unwrap();
    let (local, remote) = (built(&pair.a, &here), built(&pair.b, &there));
    let region = pair.b.domain.create_memory_region(true, pair.world.consumer_object(1)).unwrap();
    region.initialize_fast_register(512, true).unwrap();
    let registration =
        FastRegistration { first_byte_offset: 0, length: length as u64, base: 0x1_0000, rights: EVERYTHING };
    let pages = (0..(length as u32).div_ceil(4096)).map(|page| LogicalAddress(remote.first.0 + u64::from(page) * 4096));
    pair.b.pair.fast_register(0, RequestFlags::SILENT_SUCCESS, &region, registration, pages).unwrap();
    Row { local: local.first.0, remote_base: 0x1_0000, remote: region.remote_token(), pair }
}

fn drain(row: &Row, expected: u32) {
    let mut count = 0;
    count += row.pair.a.initiator.poll(64, |_, completion| {
        black_box(completion);
    });
    assert_eq!(count, expected);
}

fn time(name: &str, per_round: u32, mut round: impl FnMut()) {
    for _ in 0..1000 {
        round();
    }
    let mut best = f64::MAX;
    for _ in 0..20 {
        let rounds = 2000;
        let start = Instant::now();
        for _ in 0..rounds {
            round();
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds) / f64::from(per_round));
    }
    println!("{name:<44} {best:>10.1} ns");
}

fn copy(length: usize) {
    let (from, mut to) = (vec![1_u8; length], vec![0_u8; length]);
    time(&format!("memcpy {length} B"), 1, || {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
    });
}

fn main() {
    let only = std::env::args().nth(1);
    let wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    if wanted("chain") {
        let row = row(8);
        let token = row.pair.a.privileged();
        time("Read 8 B, deferred chains of 16, per request", CHAIN, || {
            for index in 0..CHAIN {
                let flags = if index + 1 == CHAIN { RequestFlags::empty() } else { RequestFlags::DEFER };
                let list = [sge(row.local, 8, token)];
                row.pair.a.pair.read(1, flags, list.into_iter(), row.remote_base, row.remote).unwrap();
            }
            drain(&row, CHAIN);
        });
        time("Read 8 B, one at a time", 1, || {
            let list = [sge(row.local, 8, token)];
            row.pair.a.pair.read(1, RequestFlags::empty(), list.into_iter(), row.remote_base, row.remote).unwrap();
            drain(&row, 1);
        });
    }
    for length in [4096, 65536, 1 << 20] {
        if wanted("read") {
            let row = row(length);
            let token = row.pair.a.privileged();
            time(&format!("Read {length} B"), 1, || {
                let list = [sge(row.local, length as u32, token)];
                row.pair.a.pair.read(1, RequestFlags::empty(), list.into_iter(), row.remote_base, row.remote).unwrap();
                drain(&row, 1);
            });
            copy(length);
        }
    }
    if wanted("send") {
        let row = row(64);
        let (here, there) = (row.pair.a.privileged(), row.pair.b.privileged());
        let remote = Buffer::new(4096, 0);
        let mapped = row.pair.b.open.build_mapping(row.pair.world.map(&remote)).ok().unwrap();
        time("Send 64 B with its receive", 1, || {
            row.pair.b.pair.receive(1, [sge(mapped.first.0, 64, there)].into_iter()).unwrap();
            row.pair.a.pair.send(1, RequestFlags::empty(), [sge(row.local, 64, here)].into_iter()).unwrap();
            drain(&row, 1);
            assert_eq!(
                row.pair.b.receiver.poll(8, |_, completion| {
                    black_box(completion);
                }),
                1
            );
        });
    }
    if wanted("made") {
        let Row { mut pair, .. } = row(64);
        time("Queue pair: made, closed and freed", 1, || {
            let settings = QueuePairSettings {
                receive_queue: &pair.a.receiver,
                initiator_queue: &pair.a.initiator,
                context: 1,
                receive_depth: 64,
                initiator_depth: 64,
                receive_sges: 4,
                initiator_sges: 4,
                inline_data: 64,
                shared: None,
            };
            let made = QueuePair::create(&pair.a.domain, settings, pair.world.consumer_object(1)).unwrap();
            drop(made.close(1));
            drop(made);
            pair.world.run();
        });
    }
}
