//! The peer: `ucp_get` of UCX between two ends in one process, over the transports that UCX chooses for them.

use super::row::median;
use crate::command;
use anyhow::{Context, Result};
use std::{path::Path, process::Command};

/// Processes whose median is a measurement: each has its memory elsewhere, and its speed with it.
const PROCESSES: u64 = 3;

/// Nanoseconds of a get of so many bytes, from so many gets of `ucx_perftest`.
pub(super) fn get(program: &Path, size: u32, iterations: u64) -> Result<f64> {
    let share = (iterations / PROCESSES).max(100);
    let times = (0..PROCESSES).map(|_| one_process(program, size, share)).collect::<Result<Vec<_>>>()?;
    Ok(median(&times))
}

fn one_process(program: &Path, size: u32, iterations: u64) -> Result<f64> {
    let mut command = Command::new(program);
    command.env("UCX_LOG_LEVEL", "error").args(["-f", "-v", "-l", "-t", "ucp_get", "-s", &size.to_string()]);
    command.args(["-n", &iterations.to_string(), "-w", &(iterations / 20).to_string()]);
    let text = command::output(&mut command)?;
    nanoseconds(&text).with_context(|| format!("ucx_perftest printed no rate:\n{text}"))
}

/// The result has the names of its columns above it; the rate is the one with the most digits.
fn nanoseconds(text: &str) -> Option<f64> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("iterations,"));
    let column = lines.next()?.split(',').position(|name| name == "overall_mr")?;
    let rate: f64 = lines.last()?.split(',').nth(column)?.trim().parse().ok()?;
    (rate > 0.0).then(|| 1e9 / rate)
}

#[cfg(test)]
mod tests {
    use super::nanoseconds;

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
}
