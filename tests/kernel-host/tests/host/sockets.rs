//! Sockets of Winsock Kernel: a driver's conversation with itself in many orders and in fast mode, and connects that a client of
//! this file makes to addresses that are silent, or go.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use crate::wsk_client::Client;
use kernel_host::{Kernel, KernelConfig, fault, status, wsk};
use softndk_images::bad_drivers;
use softndk_images::workspace::Workspace;

fn config() -> KernelConfig {
    KernelConfig { hang_limit: Some(Duration::from_secs(10)), ..KernelConfig::default() }
}

fn workspace() -> Workspace {
    Workspace::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

/// Loads and unloads the driver that talks to itself.
fn converse(config: KernelConfig) {
    let kernel = Kernel::boot(config);
    let driver = kernel.load_driver(bad_drivers::image(&workspace()), "own-irp-left.good").expect("the driver loads");
    driver.unload();
    let report = kernel.shutdown();
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_conversation_passes_in_every_order() {
    const TEST: &str = "a_conversation_passes_in_every_order";
    const SEED: &str = "SOCKETS_SEED";
    if let Ok(seed) = std::env::var(SEED) {
        return converse(KernelConfig { schedule: seed.parse().ok(), ..config() });
    }
    bad_drivers::build(&workspace()).expect("the bad drivers build");
    for seed in 0..24 {
        crate::child::in_child_with(TEST, &[(SEED, &seed.to_string())]).expect_success();
    }
}

#[test]
fn a_conversation_passes_in_fast_mode() {
    let build = || drop(bad_drivers::build(&workspace()).expect("the bad drivers build"));
    let fast = KernelConfig { hang_limit: config().hang_limit, ..KernelConfig::for_measuring() };
    let outcome = crate::child::in_child("a_conversation_passes_in_fast_mode", build, || converse(fast));
    if let Some(outcome) = outcome {
        outcome.expect_success();
    }
}

fn in_child(test: &str, body: impl FnOnce()) {
    if let Some(outcome) = crate::child::in_child(test, || {}, body) {
        outcome.expect_success();
    }
}

fn at(address: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::new(address.into(), port)
}

const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

#[test]
fn a_connect_to_a_silent_address_waits() {
    in_child("a_connect_to_a_silent_address_waits", || {
        let kernel = Kernel::boot(config());
        let client = Client::register();
        let socket = client.connection(at(Ipv4Addr::LOCALHOST, 0));
        wsk::set_silent(IpAddr::V4(ELSEWHERE), true);
        let waits = socket.connect(at(ELSEWHERE, 9));
        kernel.sleep(Duration::from_secs(20));
        assert!(!waits.is_completed());
        wsk::set_silent(IpAddr::V4(ELSEWHERE), false);
        assert_eq!(waits.end().0, status::STATUS_HOST_UNREACHABLE);
        wsk::set_silent(IpAddr::V4(ELSEWHERE), true);
        assert_eq!(socket.connect(at(ELSEWHERE, 9)).end().0, status::STATUS_IO_TIMEOUT);
        let waits = socket.connect(at(ELSEWHERE, 9));
        kernel.sleep(Duration::from_secs(1));
        assert!(!waits.is_completed());
        socket.close();
        assert_eq!(waits.end().0, status::STATUS_CANCELLED);
        client.end();
        let report = kernel.shutdown();
        assert!(report.is_clean(), "{report}");
    });
}

#[test]
fn a_call_that_is_made_to_fail_completes_its_packet() {
    in_child("a_call_that_is_made_to_fail_completes_its_packet", || {
        let kernel = Kernel::boot(config());
        let client = Client::register();
        let socket = client.connection(at(Ipv4Addr::LOCALHOST, 0));
        fault::start_recording();
        assert_eq!(socket.connect(at(Ipv4Addr::LOCALHOST, 9)).end().0, status::STATUS_CONNECTION_REFUSED);
        let site = fault::sites().into_iter().find(|site| site.export == "WskConnect").expect("a site");
        fault::fail(site.site, 1);
        assert_eq!(socket.connect(at(Ipv4Addr::LOCALHOST, 9)).end().0, status::STATUS_INSUFFICIENT_RESOURCES);
        fault::stop();
        socket.close();
        client.end();
        let report = kernel.shutdown();
        assert!(report.is_clean(), "{report}");
    });
}
