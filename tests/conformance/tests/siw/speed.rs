//! Siw to siw within the guest, beside TCP of the same guest: what another software iWARP reaches. The driver takes no part.

use super::guest;

/// The guest's own: siw and TCP connect to it by its loopback device.
const ADDRESS: &str = "10.0.2.15";
const QPERF_PORT: u16 = 19_765;
/// Where the programs of perftest listen.
const PERFTEST_PORT: u16 = 7174;
const SIZES: [usize; 2] = [65_536, 1 << 20];
/// What each run of perftest moves: at most a second's work for an emulated guest.
const BYTES: usize = 32 << 20;
/// Runs of perftest until it has measured: beside a busy machine it finds no clock, says so, and gives 0.
const RUNS: usize = 3;
const NO_CLOCK: &str = "Correlation coefficient";

pub fn siw_to_siw() {
    guest::begin("qperf", "qperf");
    guest::expect(&format!("listening {QPERF_PORT}"));
    let shares: Vec<_> = SIZES.into_iter().flat_map(shares).collect();
    guest::expect(&format!("qperf {ADDRESS} quit"));
    println!("counted: siw to siw as a share of TCP in the guest: {}", shares.join(", "));
}

/// TCP is measured before and after, because an emulated guest is noisy.
fn shares(size: usize) -> [String; 2] {
    let before = tcp(size);
    let rates = ["read", "write"].map(|way| (way, (0..RUNS).find_map(|_| siw(way, size))));
    let tcp = f64::midpoint(before, tcp(size));
    rates.map(|(way, rate)| match rate {
        Some(rate) => format!("{way} of {size} bytes {:.2}", rate / tcp),
        None => format!("{way} of {size} bytes not measured, the machine was too busy"),
    })
}

/// In gigabytes a second; `None` where perftest has moved all and measured nothing.
fn siw(way: &str, size: usize) -> Option<f64> {
    let program = format!("ib_{way}_bw -R -F --report_gbits -p {PERFTEST_PORT} -t 16 -s {size} -n {}", BYTES / size);
    guest::begin("perftest", &program);
    guest::expect(&format!("listening {PERFTEST_PORT}"));
    let said = guest::expect(&format!("{program} {ADDRESS}"));
    let (status, server) = guest::ended("perftest");
    assert_eq!(status, 0, "perftest's server said:\n{server}");
    let rate = perftest_rate(&said, size);
    let measured = rate > 0.0;
    assert!(measured || said.contains(NO_CLOCK), "perftest gives no rate:\n{said}");
    measured.then_some(rate / 8.0)
}

/// In gigabytes a second.
fn tcp(size: usize) -> f64 {
    let said = guest::expect(&format!("qperf {ADDRESS} --time 1 --unify_units --msg_size {size} tcp_bw"));
    let value = said.split_whitespace().skip_while(|word| *word != "=").nth(1);
    let bytes = value.and_then(|value| value.replace(',', "").parse::<f64>().ok());
    bytes.filter(|rate| *rate > 0.0).unwrap_or_else(|| panic!("qperf gives no rate:\n{said}")) / 1e9
}

/// The average, in gigabits a second, of the line that begins with the size.
fn perftest_rate(said: &str, size: usize) -> f64 {
    let fields = said.lines().rev().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut fields = fields.filter(|fields| fields.first() == Some(&&*size.to_string()));
    let line = fields.next();
    let rate = line.and_then(|fields| fields.get(3)?.parse::<f64>().ok());
    rate.unwrap_or_else(|| panic!("perftest gives no rate:\n{said}"))
}
