//! Instructions that the release image takes for a request, against the numbers in `instructions.json`.
//!
//! Times depend on the machine; instructions do not. A number that has grown by more than 5 % fails; one that has shrunk by more fails
//! too, so that the file stays true. `INSTRUCTIONS_BLESS=1` writes it, `INSTRUCTIONS_BY_FUNCTION=ROW` prints where a row's go.

use conformance::consumer::{Buffer, Pair, QueuePairShape, Window, WindowKind};
use conformance::machine::{Machine, Setup};
use kernel_host::step;
use ndkpi_sys::ndkpi::*;

const CHAIN: usize = 16;

struct Row {
    name: &'static str,
    requests: u64,
    steps: step::Steps,
}

fn main() {
    let mut setup = Setup::default();
    setup.kernel.mode = kernel_host::Mode::Fast;
    let machine = Machine::start(&setup);
    let rows = {
        let (here, there) = (machine.open(0), machine.open(1));
        let pair = Pair::connect_with(
            &here,
            &there,
            QueuePairShape { inline_size: 64, initiator_depth: 256, receive_depth: 256, ..QueuePairShape::default() },
        );
        rows(&pair)
    };
    let wanted = std::env::var("INSTRUCTIONS_BY_FUNCTION").unwrap_or_default();
    for row in &rows {
        println!(
            "{:<24} {:>8.1} of {:.1}",
            row.name,
            row.steps.of_image("softndk.sys") as f64 / row.requests as f64,
            row.steps.all() as f64 / row.requests as f64
        );
        if row.name == wanted && std::env::var("TRACE").is_ok() {
            for line in row.steps.trace("softndk.sys") {
                println!("T {line}");
            }
        }
        if row.name == wanted {
            for (function, count) in row.steps.by_function("softndk.sys", std::env::var("INLINED").is_ok()) {
                println!("    {:>8.2}  {function}", count as f64 / row.requests as f64);
            }
        }
    }
}

fn rows(pair: &Pair<'_>) -> Vec<Row> {
    let (near, far) = (&pair.active, &pair.passive);
    let local =
        Window::open(near, Buffer::new(1 << 16, 0, kernel_host::FrameOrder::Contiguous), WindowKind::Privileged);
    let remote =
        Window::open(far, Buffer::new(1 << 16, 0, kernel_host::FrameOrder::Contiguous), WindowKind::FastRegistered);
    let silent = NDK_OP_FLAGS::empty();
    let mut rows = Vec::new();
    let mut row = |name, requests, body: &dyn Fn()| {
        for _ in 0..4 {
            body();
        }
        let steps = step::count(body);
        rows.push(Row { name, requests, steps });
    };
    for (name, length) in [("read_8_single", 8), ("read_4k_single", 4096), ("read_64k_single", 65536)] {
        let list = local.first_in_sges(length, 1);
        row(name, 1, &|| {
            assert_eq!(near.queue_pair.read(1, &list, remote.remote(0), silent), 0);
            assert_eq!(near.initiator.take(1).len(), 1);
        });
    }
    let list = local.first_in_sges(8, 1);
    row("read_8_chain16", CHAIN as u64, &|| {
        for index in 0..CHAIN {
            let flags = if index + 1 == CHAIN { NDK_OP_FLAGS::empty() } else { NDK_OP_FLAG_DEFER };
            assert_eq!(near.queue_pair.read(1, &list, remote.remote(0), flags), 0);
        }
        assert_eq!(near.initiator.take(CHAIN).len(), CHAIN);
    });
    let list = local.first_in_sges(8, 1);
    row("read_8_post_deferred", 16, &|| {
        for _ in 0..CHAIN {
            assert_eq!(near.queue_pair.read(1, &list, remote.remote(0), NDK_OP_FLAG_DEFER), 0);
        }
    });
    row("read_8_last", 1, &|| {
        assert_eq!(near.queue_pair.read(1, &list, remote.remote(0), NDK_OP_FLAGS::empty()), 0);
    });
    near.initiator.take(1000);
    row("poll_empty", 1, &|| {
        near.initiator.take(1);
    });
    let sink = remote.first_in_sges(64, 1);
    let source = local.first_in_sges(64, 1);
    row("send_64_chain16", CHAIN as u64, &|| {
        for _ in 0..CHAIN {
            assert_eq!(far.queue_pair.receive(2, &sink), 0);
        }
        for index in 0..CHAIN {
            let flags = if index + 1 == CHAIN { NDK_OP_FLAGS::empty() } else { NDK_OP_FLAG_DEFER };
            assert_eq!(near.queue_pair.send(1, &source, flags), 0);
        }
        assert_eq!(near.initiator.take(CHAIN).len(), CHAIN);
        assert_eq!(far.receive.take(CHAIN).len(), CHAIN);
    });
    let (mapping, region) = (
        conformance::consumer::Mapping::build(
            near.adapter,
            &Buffer::new(1 << 20, 0, kernel_host::FrameOrder::Contiguous),
        )
        .unwrap(),
        near.domain.fast_region(256, true),
    );
    let mut scattered = mapping.pages().to_vec();
    scattered.reverse();
    for (name, pages) in [("frmr_256", mapping.pages().to_vec()), ("frmr_256_scattered", scattered)] {
        row(name, 1, &|| {
            let registration = conformance::consumer::FastRegistration {
                pages: &pages,
                first_byte_offset: 0,
                length: 1 << 20,
                base: 0,
            };
            assert_eq!(
                near.queue_pair.fast_register(1, region.object(), &registration, NDK_OP_FLAG_ALLOW_REMOTE_READ),
                0
            );
            assert_eq!(near.queue_pair.invalidate(2, region.object(), NDK_OP_FLAGS::empty()), 0);
            assert_eq!(near.initiator.take(2).len(), 2);
        });
    }
    rows
}
