//! The rows, how they are counted, and the comparison.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use conformance::consumer::{Buffer, End, FastRegistration, Mapping, Pair, QueuePairShape, Window, WindowKind};
use conformance::machine::{self, Machine, Setup};
use kernel_host::step::{self, Steps};
use kernel_host::{FrameOrder, Mode};
use ndkpi_sys::ndkpi::{NDK_OP_FLAG_ALLOW_REMOTE_READ, NDK_OP_FLAG_DEFER, NDK_OP_FLAGS};

/// Requests of a chain.
const CHAIN: usize = 16;
/// How far a row may be from its number.
const MARGIN: f64 = 0.05;
const IMAGE: &str = "softndk.sys";
const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();

/// Instructions of the image for one request, by row.
type Counted = BTreeMap<String, f64>;

pub fn main() -> ExitCode {
    let image = machine::image();
    if !image.components().any(|part| part.as_os_str() == "release") {
        println!("not counted: {} is no release image; set SOFTNDK_IMAGE", image.display());
        return ExitCode::SUCCESS;
    }
    let counted = count();
    if std::env::var_os("INSTRUCTIONS_BLESS").is_some() {
        let text = serde_json::to_string_pretty(&counted).expect("numbers are JSON");
        std::fs::write(file(), text + "\n").expect("the file can be written");
        return ExitCode::SUCCESS;
    }
    let text = std::fs::read_to_string(file()).expect("instructions.json can be read");
    let expected: Counted = serde_json::from_str(&text).expect("instructions.json has a number a row");
    compare(&counted, &expected)
}

fn file() -> PathBuf {
    machine::workspace().join("tests/conformance/instructions.json")
}

fn compare(counted: &Counted, expected: &Counted) -> ExitCode {
    let mut good = counted.keys().eq(expected.keys());
    if !good {
        println!("instructions.json has other rows than are counted");
    }
    for (row, count) in counted {
        let Some(number) = expected.get(row) else { continue };
        let change = count / number - 1.0;
        let remark = match change {
            change if change > MARGIN => "  too many: what has made it slower?",
            change if change < -MARGIN => "  fewer: INSTRUCTIONS_BLESS=1 writes the file",
            _ => "",
        };
        println!("{row:<24} {count:>9.1}  {:+6.1} %{remark}", change * 100.0);
        good &= remark.is_empty();
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn count() -> Counted {
    let mut setup = Setup::default();
    setup.kernel.mode = Mode::Fast;
    let machine = Machine::start(&setup);
    let counted = {
        let (here, there) = (machine.open(0), machine.open(1));
        let shape = QueuePairShape { initiator_depth: 256, receive_depth: 256, ..QueuePairShape::default() };
        let pair = Pair::connect_with(&here, &there, shape);
        let mut rows = Rows { counted: Counted::new() };
        rows.reads(&pair);
        rows.sends(&pair);
        rows.fast_registrations(&pair.active);
        let idle = QueuePairShape { initiator_depth: 16, receive_depth: 16, ..QueuePairShape::default() };
        rows.row("connect_and_close", 1, || drop(Pair::connect_with(&here, &there, idle)));
        rows.counted
    };
    machine.stop();
    counted
}

struct Rows {
    counted: Counted,
}

impl Rows {
    /// Counts `body`, which makes so many requests, once it has run a few times.
    fn row(&mut self, name: &str, requests: usize, body: impl Fn()) {
        for _ in 0..4 {
            body();
        }
        let steps = step::count(&body);
        print_functions(name, &steps, requests);
        let count = each(steps.of_image(IMAGE), requests);
        assert!(count > 10.0, "{name}: nothing is counted");
        self.counted.insert(name.to_owned(), (count * 10.0).round() / 10.0);
    }

    fn reads(&mut self, pair: &Pair<'_>) {
        let (near, far) = (&pair.active, &pair.passive);
        let local = Window::open(near, buffer(4096), WindowKind::Privileged);
        let remote = Window::open(far, buffer(4096), WindowKind::FastRegistered);
        let list = local.first_in_sges(8, 1);
        let read = |flags| assert_eq!(near.queue_pair.read(1, &list, remote.remote(0), flags), 0);
        let write = |flags| assert_eq!(near.queue_pair.write(1, &list, remote.remote(0), flags), 0);
        self.row("read_8_single", 1, || {
            read(NONE);
            poll(near, 1);
        });
        self.row("read_8_chain16", CHAIN, || {
            chain(read);
            poll(near, CHAIN);
        });
        self.row("write_8_chain16", CHAIN, || {
            chain(write);
            poll(near, CHAIN);
        });
        self.row("poll_empty", 1, || {
            assert!(near.initiator.take(1).is_empty());
        });
    }

    fn sends(&mut self, pair: &Pair<'_>) {
        let (near, far) = (&pair.active, &pair.passive);
        let source = Window::open(near, buffer(64), WindowKind::Privileged);
        let sink = Window::open(far, buffer(64), WindowKind::Privileged);
        let (source, sink) = (source.first_in_sges(64, 1), sink.first_in_sges(64, 1));
        self.row("send_64_chain16", CHAIN, || {
            for _ in 0..CHAIN {
                assert_eq!(far.queue_pair.receive(2, &sink), 0);
            }
            chain(|flags| assert_eq!(near.queue_pair.send(1, &source, flags), 0));
            poll(near, CHAIN);
            assert_eq!(far.receive.take(CHAIN).len(), CHAIN);
        });
    }

    fn fast_registrations(&mut self, end: &End<'_>) {
        const PAGES: u32 = 64;
        let memory = buffer(PAGES as usize * 4096);
        let mapping = Mapping::build(end.adapter, &memory).expect("a logical mapping");
        let region = end.domain.fast_region(PAGES, true);
        let run = mapping.pages().to_vec();
        let scattered: Vec<u64> = run.iter().rev().copied().collect();
        for (name, pages) in [("fast_register_64", run), ("fast_register_64_scattered", scattered)] {
            let length = memory.length();
            self.row(name, 1, || {
                let registration = FastRegistration { pages: &pages, first_byte_offset: 0, length, base: 0 };
                let flags = NDK_OP_FLAG_ALLOW_REMOTE_READ;
                assert_eq!(end.queue_pair.fast_register(1, region.object(), &registration, flags), 0);
                assert_eq!(end.queue_pair.invalidate(2, region.object(), NONE), 0);
                poll(end, 2);
            });
        }
    }
}

fn buffer(length: usize) -> Buffer {
    Buffer::new(length, 0, FrameOrder::Contiguous)
}

/// Posts a deferred chain.
fn chain(post: impl Fn(NDK_OP_FLAGS)) {
    for _ in 1..CHAIN {
        post(NDK_OP_FLAG_DEFER);
    }
    post(NONE);
}

/// Takes results, all of which are there.
fn poll(end: &End<'_>, count: usize) {
    let results = end.initiator.take(count);
    assert!(results.len() == count && results.iter().all(|result| result.Status == 0), "{results:x?}");
}

fn print_functions(name: &str, steps: &Steps, requests: usize) {
    if std::env::var("INSTRUCTIONS_OF").as_deref() != Ok(name) {
        return;
    }
    for (function, count) in steps.by_function(IMAGE, std::env::var_os("INLINED").is_some()) {
        println!("{:>9.2}  {function}", each(count, requests));
    }
}

/// The share of one request.
fn each(count: u64, requests: usize) -> f64 {
    let small = |number: u64| u32::try_from(number).map_or(f64::NAN, f64::from);
    small(count) / small(requests as u64)
}
