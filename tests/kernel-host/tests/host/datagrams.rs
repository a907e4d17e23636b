//! Datagram sockets, as the kernel package has them: the functions of its test image in many orders, with losses, with every call failing
//! once, and between two hosts.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kernel_host::callout::{self, Context, ContextKind};
use kernel_host::inf::InterfaceAddress;
use kernel_host::netio::card;
use kernel_host::wsk::{self, MachineAddress};
use kernel_host::{Driver, Kernel, KernelConfig, Mode, fault, ledger, status};

const PORT: u64 = 4789;
const NOT_OPEN: i32 = -2;

/// What `cargo xtask driver` leaves; it has to be built before.
fn image() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/driver/x64/debug/datagrams.sys")
}

fn config() -> KernelConfig {
    KernelConfig { hang_limit: Some(Duration::from_secs(10)), ..KernelConfig::default() }
}

struct Host {
    kernel: Kernel,
    driver: Driver,
}

impl Host {
    fn boot(config: KernelConfig) -> Self {
        let kernel = Kernel::boot(config);
        let driver = kernel.load_driver(image(), "datagrams").expect("cargo xtask driver has built the image");
        Self { kernel, driver }
    }

    /// Calls an exported function.
    fn call(&self, name: &str, arguments: &[u64]) -> i32 {
        const CALL: Context = Context::new(ContextKind::Other, "a function of the test image");
        let exports = &self.driver.image().exports;
        let (_, address) = exports.iter().find(|(exported, _)| exported == name).expect("it is exported");
        // SAFETY: a function of the image, which takes numbers.
        unsafe { callout::call_image(CALL, *address, arguments) as i32 }
    }

    /// What ends well whatever fails; whether nothing did.
    fn persist(&self) -> bool {
        let answers =
            [self.call("exchange", &[PORT, 4]), self.call("burst", &[PORT, 20]), self.call("close_early", &[PORT, 10])];
        answers[0] >= 0 && answers[1..] == [20, 10]
    }

    /// Everything, where nothing is lost, with so many rounds of what is repeated.
    fn use_all(&self, rounds: u8) {
        let count = u64::from(rounds);
        assert_eq!(self.call("exchange", &[PORT, count]), 0);
        assert_eq!(self.call("burst", &[PORT, 2 * count]), 2 * i32::from(rounds));
        assert_eq!(self.call("too_long", &[PORT]), 1);
        assert_eq!(self.call("unreachable", &[PORT]), 1);
        assert_eq!(self.call("in_use", &[PORT]), status::STATUS_ADDRESS_ALREADY_EXISTS);
        assert_eq!(self.call("close_early", &[PORT, count]), i32::from(rounds));
    }

    /// Unloads the driver, whose sockets may still be closing.
    fn end(self) {
        self.driver.unload();
        assert_eq!(ledger::count(wsk::LEDGER_KIND_SOCKET), 0);
        let report = self.kernel.shutdown();
        assert!(report.is_clean(), "{report}");
    }
}

fn in_child(test: &str, body: impl FnOnce()) {
    if let Some(outcome) = crate::child::in_child(test, || {}, body) {
        outcome.expect_success();
    }
}

#[test]
fn sockets_work_in_every_order() {
    const TEST: &str = "sockets_work_in_every_order";
    const SEED: &str = "DATAGRAMS_SEED";
    if let Ok(seed) = std::env::var(SEED) {
        let host = Host::boot(KernelConfig { schedule: seed.parse().ok(), ..config() });
        host.use_all(5);
        return host.end();
    }
    for seed in 0..8 {
        crate::child::in_child_with(TEST, &[(SEED, &seed.to_string())]).expect_success();
    }
}

#[test]
fn sockets_work_without_a_seed() {
    in_child("sockets_work_without_a_seed", || {
        let host = Host::boot(config());
        host.use_all(40);
        host.end();
    });
}

#[test]
fn sockets_work_in_fast_mode() {
    in_child("sockets_work_in_fast_mode", || {
        let host = Host::boot(KernelConfig { hang_limit: config().hang_limit, ..KernelConfig::for_measuring() });
        host.use_all(40);
        host.end();
    });
}

#[test]
fn datagrams_are_lost_and_come_late() {
    in_child("datagrams_are_lost_and_come_late", || {
        let host = Host::boot(config());
        wsk::set_datagram_loss(4);
        let again = host.call("exchange", &[PORT, 60]);
        assert!(again > 0, "{again}");
        let came = host.call("burst", &[PORT, 100]);
        assert!((1..100).contains(&came), "{came}");
        wsk::set_datagram_loss(0);
        wsk::set_datagram_reordering(3);
        assert!(host.call("exchange", &[PORT, 20]) >= 0);
        wsk::set_datagram_reordering(0);
        assert_eq!(host.call("burst", &[PORT, 100]), 100);
        host.end();
    });
}

#[test]
fn a_port_of_another_program_is_in_use() {
    in_child("a_port_of_another_program_is_in_use", || {
        let host = Host::boot(config());
        let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT as u16);
        let occupied = wsk::occupy_datagram_port(at).expect("the port is free");
        assert!(wsk::occupy_datagram_port(at).is_none());
        assert!(wsk::occupy(at).is_some());
        assert_eq!(host.call("exchange", &[PORT, 1]), NOT_OPEN);
        // It takes what is sent to it.
        assert_eq!(host.call("exchange", &[PORT + 1, 1]), 0);
        drop(occupied);
        assert_eq!(host.call("exchange", &[PORT, 1]), 0);
        host.end();
    });
}

#[test]
fn every_call_may_fail_once() {
    in_child("every_call_may_fail_once", || {
        let host = Host::boot(config());
        fault::start_recording();
        assert!(host.persist());
        let sites = fault::sites();
        fault::stop();
        for export in ["WskSocket", "WskBind", "WskSendTo", "WskReceiveFrom", "IoAllocateIrp", "IoAllocateMdl"] {
            assert!(sites.iter().any(|site| site.export == export), "{export} is never called");
        }
        let before = fault::failures();
        let hits = sites.iter().flat_map(|record| [(record.site, 1), (record.site, record.hits.div_ceil(2))]);
        let tried = hits.map(|(site, hit)| {
            fault::fail(site, hit);
            host.persist();
            fault::stop();
        });
        let (tried, failed) = (tried.count() as u64, fault::failures() - before);
        // Calls are made from here or there, as completions come.
        assert!(failed * 2 > tried, "{failed} of {tried} calls failed");
        assert!(host.persist());
        host.end();
    });
}

#[test]
fn a_receive_that_fails_is_not_repeated_at_once() {
    in_child("a_receive_that_fails_is_not_repeated_at_once", || {
        let host = Host::boot(config());
        let mut failures = 0;
        for _ in 0..40 {
            fault::start_recording();
            assert_eq!(host.call("rest", &[PORT]), 0);
            let sites = fault::sites().into_iter().filter(|site| site.export == "WskReceiveFrom");
            fault::stop();
            // The call comes from here or there, and its failure inside it or late.
            for site in sites.flat_map(|record| [record.site; 4]) {
                let before = fault::failures();
                fault::fail(site, 1);
                let rested = host.call("rest", &[PORT]);
                fault::stop();
                assert_eq!(rested as u64, fault::failures() - before);
                failures += fault::failures() - before;
            }
        }
        assert!(failures > 20, "{failures}");
        host.end();
    });
}

#[test]
fn calls_fail_at_random() {
    in_child("calls_fail_at_random", || {
        let host = Host::boot(config());
        let (before, mut well) = (fault::failures(), 0);
        for seed in 1..30 {
            // Rarely, then often.
            fault::fail_randomly(if seed < 20 { 2000 } else { 50 }, seed);
            well += u32::from(host.persist());
            fault::stop();
        }
        let failures = fault::failures() - before;
        assert!(failures > 10 && well > 0, "{failures} failures, {well} of 29 rounds ended well");
        assert!(host.persist());
        host.end();
    });
}

const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 78, 0, 1), Ipv4Addr::new(10, 78, 0, 2)];

/// One of two hosts in processes of their own, with a network card each.
fn on_host(number: usize, stand_ins: [Ipv4Addr; 2], body: impl FnOnce(&Host)) {
    let table = [0, 1].map(|each| MachineAddress { address: HOSTS[each].into(), stand_in: stand_ins[each] });
    let host = Host::boot(KernelConfig { mode: Mode::Fast, machines: table.to_vec(), ..config() });
    assert!(card::add_address(InterfaceAddress { address: HOSTS[number].into(), prefix_length: 24 }));
    body(&host);
    host.end();
}

#[test]
fn two_hosts_exchange_datagrams() {
    const TEST: &str = "two_hosts_exchange_datagrams";
    const NUMBER: &str = "DATAGRAMS_HOST";
    const STAND_INS: &str = "DATAGRAMS_STAND_INS";
    const COUNT: u64 = 200;
    if let (Ok(number), Ok(stand_ins)) = (std::env::var(NUMBER), std::env::var(STAND_INS)) {
        let both: Vec<_> = stand_ins.split(',').map(|each| each.parse().expect("an address")).collect();
        let both = both.try_into().expect("two addresses");
        return match number.as_str() {
            "0" => on_host(0, both, |host| {
                let answer = host.call("ask", &[u64::from(HOSTS[1].to_bits()), PORT, COUNT]);
                assert!(answer >= 0, "{answer}");
            }),
            _ => on_host(1, both, |host| assert_eq!(host.call("serve", &[PORT, COUNT]), 0)),
        };
    }
    let [.., high, low] = std::process::id().to_be_bytes();
    let stand_ins = format!("127.{high}.{low}.201,127.{high}.{low}.202");
    std::thread::scope(|scope| {
        let run = |number| crate::child::in_child_with(TEST, &[(NUMBER, number), (STAND_INS, &stand_ins)]);
        let stand = scope.spawn(move || run("1"));
        run("0").expect_success();
        stand.join().expect("no panic").expect_success();
    });
}
