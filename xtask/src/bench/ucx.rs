//! The peer: `ucp_get` of UCX between two ends in one process, over the transports that UCX chooses for them.

use super::row::median;
use crate::{command, setup};
use anyhow::{Context, Result};
use softndk_images::setup::Need;
use std::process::Command;

/// The program that measures it.
const PROGRAM: &str = "ucx_perftest";

/// A get of 8 bytes as a multiple of an uncontended lock pair, where UCX is not installed to say it itself: UCX 1.13.1 on an Intel Xeon
/// (Ice Lake, 2.8 GHz), 37 ns beside 8.1 ns, 2026-11-23. Other processes there take 71 ns from their first to their last get; this is
/// the number that is harder to keep.
pub(super) const GET_8_IN_LOCK_PAIRS: f64 = 4.6;

/// Processes whose median is a measurement: each has its memory elsewhere, and its speed with it.
const PROCESSES: u64 = 3;

pub(super) fn is_installed() -> bool {
    setup::ucx().is_some()
}

/// Installs it by the system's packages.
pub(super) fn install() -> Result<()> {
    setup::ensure(&[Need::Ucx])
}

/// Nanoseconds of a get of so many bytes, from so many gets.
pub(super) fn get(size: u32, iterations: u64) -> Result<f64> {
    let share = (iterations / PROCESSES).max(100);
    let times = (0..PROCESSES).map(|_| one_process(size, share)).collect::<Result<Vec<_>>>()?;
    Ok(median(&times))
}

fn one_process(size: u32, iterations: u64) -> Result<f64> {
    let words = ["-f", "-v", "-l", "-t", "ucp_get", "-s", &size.to_string(), "-n", &iterations.to_string()];
    let text = command::output(perftest("error").args(words).args(["-w", &(iterations / 20).to_string()]))?;
    nanoseconds(&text).with_context(|| format!("{PROGRAM} printed no rate:\n{text}"))
}

/// What it moves the bytes by: `rma(self/memory0 sysv/memory posix/memory)`.
pub(super) fn transport() -> Result<String> {
    let text = command::output(perftest("info").args(["-f", "-l", "-t", "ucp_get", "-n", "100", "-w", "10"]))?;
    Ok(chosen(&text).unwrap_or("unknown").to_owned())
}

fn perftest(log: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env("UCX_LOG_LEVEL", log);
    command
}

/// The result has the names of its columns above it; the rate is the one with the most digits.
fn nanoseconds(text: &str) -> Option<f64> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("iterations,"));
    let column = lines.next()?.split(',').position(|name| name == "overall_mr")?;
    let rate: f64 = lines.last()?.split(',').nth(column)?.trim().parse().ok()?;
    (rate > 0.0).then(|| 1e9 / rate)
}

fn chosen(log: &str) -> Option<&str> {
    let line = log.lines().find(|line| line.contains("ep_cfg[") && line.contains("rma("))?;
    Some(line.split_once("]: ")?.1.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
+----------------------------------------------------------------------------------------------------------+
| Message size: 8                                                                                          |
iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
200000,0.064,0.069,0.069,109.86,109.86,14399808,20000000
";

    #[test]
    fn the_rate_of_the_whole_run_is_read() {
        assert_eq!(nanoseconds(TABLE), Some(50.0));
        // The last line is the whole run; with long runs there are some before it.
        let long = TABLE.replace("200000,", "100000,0.1,0.1,0.1,1,1,1,1\n200000,");
        assert_eq!(nanoseconds(&long), Some(50.0));
    }

    #[test]
    fn what_is_no_rate_is_none() {
        let (names, _) = TABLE.rsplit_once("200000").unwrap();
        for text in ["", names, &TABLE.replace("20000000", "0"), &TABLE.replace("overall_mr", "other")] {
            assert_eq!(nanoseconds(text), None, "{text}");
        }
    }

    #[test]
    fn the_transport_is_that_of_remote_memory() {
        let log = "[1.5] [vm:1:0]  ucp_worker.c:1763 UCX  INFO    ep_cfg[0]: rma(self/memory0 sysv/memory)";
        assert_eq!(chosen(log), Some("rma(self/memory0 sysv/memory)"));
        assert_eq!(chosen("ep_cfg[0]: tag(self/memory0)"), None);
    }
}
