//! Everything at once on two adapters of the real driver image: frames, OIDs on both paths, NDK opens, NDK switched off and on,
//! addresses, pauses, the control device, and adapters that are halted and started again meanwhile. Each thread counts
//! its successes; a run in which one kind has too few continues for a limited time and then fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::driver_image::{image, root};
use kernel_host::inf::{AdapterConfig, Inx};
use kernel_host::io::{GENERIC_READ, GENERIC_WRITE};
use kernel_host::ndis::{oid, status};
use kernel_host::{Adapter, HaltAction, Kernel, KernelConfig, Mode, thread};
use ndkpi_sys::ndkinfo::NDK_VERSION;

const ROUNDS: usize = 120;
/// How often each kind of work must have succeeded.
const SUCCESSES: usize = ROUNDS / 4;
/// The rounds after which a run that has not come so far fails.
const MOST_ROUNDS: usize = 100 * ROUNDS;

/// Verify, or what `SOFTNDK_MODE=fast` asks for: real time, no guard pages, other interleavings.
fn mode() -> Mode {
    if std::env::var("SOFTNDK_MODE").is_ok_and(|mode| mode == "fast") { Mode::Fast } else { Mode::Verify }
}

/// One kind of work: a name, and whether one try succeeded.
struct Worker {
    name: &'static str,
    successes: Arc<AtomicUsize>,
    handle: thread::JoinHandle<()>,
}

fn work(name: &'static str, stop: &Arc<AtomicBool>, mut attempt: impl FnMut(usize) -> bool + Send + 'static) -> Worker {
    let successes = Arc::new(AtomicUsize::new(0));
    let (stop, count) = (Arc::clone(stop), Arc::clone(&successes));
    let handle = thread::spawn(name, move || {
        let mut round = 0;
        while !stop.load(Ordering::SeqCst) {
            if attempt(round) {
                count.fetch_add(1, Ordering::SeqCst);
            }
            round += 1;
            // Kernel time passes, so that the other threads run, and DPCs and threads of the driver run.
            kernel_host::dispatcher::delay(-1000);
        }
    });
    Worker { name, successes, handle }
}

// Rule: NDIS-WIRE-9, NDIS-LIFE-5
#[test]
fn everything_at_once() {
    crate::child::passes_in_child("everything_at_once", everything_at_once_here);
}

fn everything_at_once_here() {
    let kernel = Arc::new(Kernel::boot(KernelConfig { mode: mode(), ..KernelConfig::default() }));
    let inx = Inx::load(root().join("inf/softndk.inx")).expect("the INF is readable");
    let config = || AdapterConfig::from_inx(&inx).expect("the INF installs");
    let driver = kernel.load_driver(image(), "softndk").expect("the driver loads");
    let first = kernel.add_adapter(&driver, config()).expect("the first adapter starts");
    let second = kernel.add_adapter(&driver, config()).expect("the second adapter starts");
    let stop = Arc::new(AtomicBool::new(false));
    let workers = vec![
        frames("frames forth", &first, &second, &stop),
        frames("frames back", &second, &first, &stop),
        queries(&first, &stop),
        statistics(&second, &stop),
        opens("opens of the first", &first, &stop),
        opens("opens of the second", &second, &stop),
        switches(&second, &stop),
        addresses(&first, &stop),
        control_files(&kernel, &stop),
    ];
    let behind = || workers.iter().find(|worker| worker.successes.load(Ordering::SeqCst) < SUCCESSES);
    for round in 0.. {
        disturb(&first, &second, round);
        kernel.sleep(Duration::from_millis(2));
        match behind() {
            None if round + 1 >= ROUNDS => break,
            Some(worker) => assert!(round < MOST_ROUNDS, "{} has not succeeded often enough", worker.name),
            None => {}
        }
    }
    stop.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.handle.join();
    }
    driver.unload();
    let kernel = Arc::try_unwrap(kernel).expect("the workers have ended");
    let report = kernel.shutdown();
    assert!(report.is_clean(), "{report}");
}

/// What the main thread does to the adapters while the others work.
fn disturb(first: &Adapter, second: &Adapter, round: usize) {
    match round % 4 {
        0 => {
            let _ = first.restart();
        }
        1 => {
            let _ = second.pause().and_then(|()| second.restart());
        }
        2 => {
            second.halt(HaltAction::DeviceDisabled).expect("halts");
            second.start().expect("starts again");
        }
        _ => {
            first.surprise_remove().expect("is pulled out");
            first.start().expect("is put back");
        }
    }
}

fn frames(name: &'static str, from: &Adapter, to: &Adapter, stop: &Arc<AtomicBool>) -> Worker {
    let (from, to) = (from.clone(), to.clone());
    work(name, stop, move |_| {
        let mut frame = vec![0xFF; 12];
        frame.extend([0x88, 0xB5]);
        frame.resize(200, 7);
        let Ok(answers) = from.send_frames(&[frame.clone(), frame]) else { return false };
        let arrived = to.take_received().is_ok_and(|frames| !frames.is_empty());
        arrived && answers.iter().all(|answer| *answer == status::SUCCESS)
    })
}

fn queries(adapter: &Adapter, stop: &Arc<AtomicBool>) -> Worker {
    const GEN_STATISTICS: u32 = 0x0002_0106;
    let adapter = adapter.clone();
    work("queries", stop, move |_| {
        adapter.query_oid(GEN_STATISTICS, 256).is_ok_and(|answer| answer.status == status::SUCCESS)
    })
}

fn statistics(adapter: &Adapter, stop: &Arc<AtomicBool>) -> Worker {
    let adapter = adapter.clone();
    work("statistics", stop, move |_| {
        adapter.direct_query_oid(oid::OID_NDK_STATISTICS, 0xF8).is_ok_and(|answer| answer.status == status::SUCCESS)
    })
}

fn opens(name: &'static str, adapter: &Adapter, stop: &Arc<AtomicBool>) -> Worker {
    let adapter = adapter.clone();
    work(name, stop, move |round| {
        let version = NDK_VERSION { Major: 1 + (round % 2) as u16, Minor: 0 };
        // Every second time past NDIS, as an open that meets a disable on its way.
        let opened = if round % 4 < 2 { adapter.open_ndk(version) } else { adapter.open_ndk_directly(version) };
        opened.is_ok()
    })
}

fn switches(adapter: &Adapter, stop: &Arc<AtomicBool>) -> Worker {
    let adapter = adapter.clone();
    work("switches", stop, move |round| {
        let wanted = u8::from(round % 2 == 1);
        adapter.set_oid(oid::OID_NDK_SET_STATE, &[wanted]).is_ok_and(|answer| answer.status == status::SUCCESS)
    })
}

fn addresses(adapter: &Adapter, stop: &Arc<AtomicBool>) -> Worker {
    let adapter = adapter.clone();
    work("addresses", stop, move |round| {
        let address = std::net::IpAddr::from([10, 1, 0, (round % 5) as u8 + 1]);
        adapter.add_address(address, 24) && adapter.remove_address(address)
    })
}

fn control_files(kernel: &Arc<Kernel>, stop: &Arc<AtomicBool>) -> Worker {
    /// The version request of the control device, and an unknown one.
    const CODES: [u32; 2] = [0x8000 << 16 | 3 << 14 | 0x800 << 2, 0x8000 << 16 | 3 << 14 | 0xFFF << 2];
    let kernel = Arc::downgrade(kernel);
    work("control files", stop, move |round| {
        let Some(kernel) = kernel.upgrade() else { return false };
        let Ok(file) = kernel.open_device(r"\\.\SoftNdk", GENERIC_READ | GENERIC_WRITE) else { return false };
        let mut output = [0; 64];
        let code = CODES.get(round % CODES.len()).copied().unwrap_or_default();
        let _ = file.ioctl(code, &[0; 16], &mut output);
        file.close();
        true
    })
}
