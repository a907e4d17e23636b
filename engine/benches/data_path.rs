//! Requests through the engine alone, beside a plain copy of the same size: `cargo bench -p softndk-engine`.
//!
//! This does not measure the driver: there is no kernel, and the locks are the test platform's. Times are of one request; every
//! completion is counted, and the bytes are compared when a row is done.

#![expect(clippy::cast_precision_loss, reason = "a share of a count")]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use criterion::{Bencher, Criterion, criterion_group, criterion_main};
use softndk_engine::{FastRegistration, LogicalAddress, MemoryRegion, MemoryToken, RequestFlags, Semantics};
use softndk_engine_kit::{Buffer, Depths, EVERYTHING, Harness, Pair, Side, sge};

const CHAIN: u32 = 16;
const PAGE: u64 = 4096;
/// What the region of a storage request has.
const PAGES: u32 = 256;
/// Where regions begin for those that name them.
const BASE: u64 = 0x1_0000;

/// Local memory by the privileged token, the remote side a fast-register region: as a storage initiator has it.
struct Connected {
    pair: Pair,
    here: Buffer,
    there: Buffer,
    local: LogicalAddress,
    far: LogicalAddress,
    remote: MemoryToken,
}

impl Connected {
    fn new(length: usize) -> Self {
        let depths = Depths { completions: 256, initiator: 64, receive: 64, sges: 4, inline: 64 };
        let pair = Pair::with(Semantics::NDK, depths);
        let (here, there) = (Buffer::new(length.max(4096), 1), Buffer::new(length.max(4096), 2));
        let (local, far) = (pair.a.build(&pair.world, &here), pair.b.build(&pair.world, &there));
        let region = fast_region(&pair, &pair.b, 512);
        let pages = (0..length.div_ceil(PAGE as usize)).map(|page| LogicalAddress(far.0 + page as u64 * PAGE));
        register(&pair.b, &region, length as u64, pages);
        Self { here, there, local, far, remote: region.remote_token(), pair }
    }

    fn read(&self, length: u32, flags: RequestFlags) {
        let list = [sge(self.local.0, length, self.pair.a.privileged())];
        self.pair.a.pair.read(1, flags, list.into_iter(), BASE, self.remote).unwrap();
    }

    /// A chain of reads and their completions.
    fn reads(&self, length: u32, chain: u32) {
        for index in 0..chain {
            let last = index + 1 == chain;
            self.read(length, if last { RequestFlags::empty() } else { RequestFlags::DEFER });
        }
        take(&self.pair.a, chain);
    }
}

fn fast_region(pair: &Pair, side: &Side, pages: u32) -> MemoryRegion<Harness> {
    let region = side.domain.create_memory_region(true, pair.world.consumer_object(1)).unwrap();
    region.initialize_fast_register(pages, true).unwrap();
    region
}

fn register(
    side: &Side,
    region: &MemoryRegion<Harness>,
    length: u64,
    pages: impl ExactSizeIterator<Item = LogicalAddress>,
) {
    let registration = FastRegistration { first_byte_offset: 0, length, base: BASE, rights: EVERYTHING };
    side.pair.fast_register(0, RequestFlags::SILENT_SUCCESS, region, registration, pages).unwrap();
}

/// Takes the completions of the requester; there must be so many.
fn take(side: &Side, expected: u32) {
    let count = side.initiator.poll(64, |_, completion| {
        black_box(completion);
    });
    assert_eq!(count, expected);
}

/// Times rounds of `requests` requests; what is reported is one request.
fn per_request(bencher: &mut Bencher<'_>, requests: u32, mut round: impl FnMut()) {
    bencher.iter_custom(|iterations| {
        let rounds = iterations.div_ceil(u64::from(requests));
        let begun = Instant::now();
        for _ in 0..rounds {
            round();
        }
        let scale = iterations as f64 / (rounds * u64::from(requests)) as f64;
        Duration::from_secs_f64(begun.elapsed().as_secs_f64() * scale)
    });
}

fn reads(criterion: &mut Criterion) {
    for (name, length, chain) in [
        ("read_8_chain16", 8, CHAIN),
        ("read_8_single", 8, 1),
        ("read_4k_chain16", 4096, CHAIN),
        ("read_64k", 65_536, 1),
        ("read_1m", 1 << 20, 1),
    ] {
        let connected = Connected::new(length);
        criterion.bench_function(name, |bencher| {
            per_request(bencher, chain, || connected.reads(length as u32, chain));
            assert_eq!(connected.here.read(0, length), connected.there.read(0, length), "{name} moved nothing");
        });
    }
}

fn copies(criterion: &mut Criterion) {
    for (name, length) in [("memcpy_4k", 4096), ("memcpy_64k", 65_536), ("memcpy_1m", 1 << 20)] {
        // From pages to pages, as the transfers do.
        let [source, mut target] = [1_u8, 0].map(|fill| vec![fill; length + 4096]);
        let [first, second] = [&source, &target].map(|buffer| buffer.as_ptr().align_offset(4096));
        let (from, to) = (&source[first..first + length], &mut target[second..second + length]);
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| black_box(&mut *to).copy_from_slice(black_box(from)));
        });
    }
}

/// A message with its receive, both completions taken.
fn sends(criterion: &mut Criterion) {
    const LENGTH: u32 = 64;
    let Connected { pair, here, there, local, far, .. } = Connected::new(LENGTH as usize);
    let (near_token, far_token) = (pair.a.privileged(), pair.b.privileged());
    let send = |chain: u32| {
        for _ in 0..chain {
            pair.b.pair.receive(1, [sge(far.0, LENGTH, far_token)].into_iter()).unwrap();
        }
        for index in 0..chain {
            let flags = if index + 1 == chain { RequestFlags::empty() } else { RequestFlags::DEFER };
            pair.a.pair.send(1, flags, [sge(local.0, LENGTH, near_token)].into_iter()).unwrap();
        }
        take(&pair.a, chain);
        let received = pair.b.receiver.poll(64, |_, completion| {
            black_box(completion);
        });
        assert_eq!(received, chain);
    };
    for (name, chain) in [("send_64_chain16", CHAIN), ("send_64_single", 1)] {
        criterion.bench_function(name, |bencher| per_request(bencher, chain, || send(chain)));
        assert_eq!(here.read(0, LENGTH as usize), there.read(0, LENGTH as usize), "{name} moved nothing");
    }
}

/// A region of 256 pages registered by a request and invalidated by another.
fn fast_registers(criterion: &mut Criterion) {
    let connected = Connected::new(2 * PAGES as usize * PAGE as usize);
    let side = &connected.pair.a;
    let region = fast_region(&connected.pair, side, PAGES);
    // Every other page, in an order in which no two neighbours lie side by side.
    let scattered = |page: u32| (page * 97 % PAGES) * 2;
    for (name, place) in [("frmr_256", &(|page| page) as &dyn Fn(u32) -> u32), ("frmr_256_scattered", &scattered)] {
        let pages: Vec<_> =
            (0..PAGES).map(|page| LogicalAddress(connected.local.0 + u64::from(place(page)) * PAGE)).collect();
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| {
                register(side, &region, u64::from(PAGES) * PAGE, pages.iter().copied());
                side.pair.invalidate(1, RequestFlags::empty(), &region).unwrap();
                take(side, 1);
            });
        });
    }
}

criterion_group!(benches, reads, copies, sends, fast_registers);
criterion_main!(benches);
