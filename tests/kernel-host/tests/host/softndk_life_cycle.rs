//! The NDIS life cycle of the real driver image, a hundred times: load, two adapters, open NDK at both versions, query, close, pause,
//! restart, power down and up, addresses, control device, halt, unload. Nothing may be left, and every structure and call on the
//! way is checked by the host.

use std::net::IpAddr;

use crate::driver_image::{image, root};
use kernel_host::inf::{AdapterConfig, Inx};
use kernel_host::io::{GENERIC_READ, GENERIC_WRITE};
use kernel_host::ndis::miniport::MiniportState;
use kernel_host::ndis::{oid, status};
use kernel_host::{Adapter, HaltAction, Kernel, KernelConfig};
use ndkpi_sys::ndkinfo::NDK_VERSION;

const SCENARIOS: usize = 100;

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn config(inx: &Inx, host: &str) -> AdapterConfig {
    AdapterConfig::from_inx(inx).expect("the INF installs").with_address(address(host), 24)
}

// Rule: NDIS-LIFE-1
#[test]
fn a_hundred_scenarios_leave_nothing() {
    crate::child::passes_in_child("a_hundred_scenarios_leave_nothing", a_hundred_scenarios_leave_nothing_here);
}

fn a_hundred_scenarios_leave_nothing_here() {
    let kernel = Kernel::boot(KernelConfig::default());
    let inx = Inx::load(root().join("inf/softndk.inx")).expect("the INF is readable");
    for _ in 0..SCENARIOS {
        one_scenario(&kernel, &inx);
    }
    let report = kernel.shutdown();
    assert!(report.is_clean(), "{report}");
}

fn one_scenario(kernel: &Kernel, inx: &Inx) {
    let driver = kernel.load_driver(image(), "softndk").expect("the driver loads");
    let first = kernel.add_adapter(&driver, config(inx, "10.0.0.1")).expect("the first adapter starts");
    let second = kernel.add_adapter(&driver, config(inx, "10.0.0.2")).expect("the second adapter starts");
    assert_eq!((first.state(), second.state()), (MiniportState::Running, MiniportState::Running));
    query_mandatory_oids(&first);
    open_and_close_ndk(&first);
    open_and_close_ndk(&second);
    disturb(&first);
    open_and_close_control_device(kernel);
    second.halt(HaltAction::DeviceDisabled).expect("the second adapter halts");
    second.start().expect("and starts again");
    second.surprise_remove().expect("and is pulled out");
    first.halt(HaltAction::InstanceDeInitialized).expect("the first adapter halts");
    driver.unload();
}

fn query_mandatory_oids(adapter: &Adapter) {
    const CAPACITY: usize = 256;
    for entry in oid::ETHERNET.iter().chain(oid::NDK).filter(|entry| entry.direction != oid::Direction::Set) {
        let direct = entry.oid == oid::OID_NDK_STATISTICS;
        let ask = |capacity| {
            if direct { adapter.direct_query_oid(entry.oid, capacity) } else { adapter.query_oid(entry.oid, capacity) }
        };
        let answer = ask(CAPACITY).expect("the adapter runs");
        assert_eq!(answer.status, status::SUCCESS, "{}", entry.name);
        if entry.oid == oid::OID_PNP_QUERY_POWER {
            continue;
        }
        assert!(answer.bytes_done > 0, "{} says nothing", entry.name);
        let short = ask(0).expect("the adapter runs");
        assert_eq!(short.status, status::BUFFER_TOO_SHORT, "{} with no space", entry.name);
        assert!(short.bytes_needed > 0, "{}", entry.name);
    }
    let unknown = adapter.query_oid(0x7777_7777, CAPACITY).expect("the adapter runs");
    assert_eq!(unknown.status, status::NOT_SUPPORTED);
}

fn open_and_close_ndk(adapter: &Adapter) {
    for (asked, runs) in [((1, 0), (1, 2)), ((1, 2), (1, 2)), ((2, 0), (2, 1)), ((2, 1), (2, 1))] {
        let opened = adapter.open_ndk(NDK_VERSION { Major: asked.0, Minor: asked.1 }).expect("NDK opens");
        assert_eq!((opened.version().Major, opened.version().Minor), runs);
        opened.close();
    }
    for (major, minor) in [(0, 0), (1, 3), (2, 2), (3, 0)] {
        let refused = adapter.open_ndk(NDK_VERSION { Major: major, Minor: minor });
        assert_eq!(refused.err(), Some(status::BAD_VERSION), "{major}.{minor}");
    }
    assert_eq!(adapter.ndk_opens(), 0);
}

/// The ordinary events of an adapter.
fn disturb(adapter: &Adapter) {
    adapter.restart().expect("restarts");
    adapter.pause().expect("pauses");
    adapter.restart().expect("restarts");
    adapter.power_down().expect("powers down");
    adapter.power_up().expect("powers up");
    assert!(adapter.add_address(address("fd00::1"), 64));
    assert!(adapter.remove_address(address("fd00::1")));
}

fn open_and_close_control_device(kernel: &Kernel) {
    let file = kernel.open_device(r"\\.\SoftNdk", GENERIC_READ | GENERIC_WRITE).expect("the control device opens");
    file.close();
    let below = kernel.open_device(r"\\.\SoftNdk\below", GENERIC_READ | GENERIC_WRITE);
    assert!(below.is_err(), "the device has nothing below it");
}
