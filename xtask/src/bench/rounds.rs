//! The rounds of a run, and the rows that they make.

use super::{
    plan::{self, Baseline, LONGEST, Measuring, RowPlan, STEPS, Step},
    programs::Programs,
    reports::Measurement,
    row::{BenchRow, Sample},
};
use anyhow::{Context, Result};
use std::collections::BTreeMap;

/// Values of a round so far, by row.
type Values = BTreeMap<&'static str, f64>;

/// Everything that was measured.
#[derive(Default)]
pub(super) struct Rounds {
    samples: BTreeMap<&'static str, Vec<Sample>>,
    /// Rows that could not be measured, and why.
    pub(super) failures: BTreeMap<&'static str, String>,
    /// The path that takes longest, and its nanoseconds, by row.
    pub(super) longest: BTreeMap<&'static str, (String, u64)>,
}

/// How often each program is counted: what it does once a run is seen so often.
const COUNTS: usize = 7;

impl Rounds {
    /// Runs every program once. A step that fails is not tried again.
    pub(super) fn measure(&mut self, programs: &Programs) {
        let mut values = Values::new();
        for step in STEPS {
            if step.rows.iter().any(|row| self.failures.contains_key(row.key)) {
                continue;
            }
            if let Err(error) = self.step(programs, step, &mut values) {
                self.failures.extend(step.rows.iter().map(|row| (row.key, format!("{error:#}"))));
            }
        }
    }

    fn step(&mut self, programs: &Programs, step: &Step, values: &mut Values) -> Result<()> {
        let measured = programs.measure(&step.program, step.processors)?;
        for row in step.rows {
            let sample = sample(row, &measured, values)?;
            values.insert(row.key, sample.value);
            self.samples.entry(row.key).or_default().push(sample);
        }
        Ok(())
    }

    /// Runs the programs again where the kernel host counts, which the times of the rounds must not show.
    pub(super) fn count(&mut self, programs: &Programs) {
        for step in STEPS {
            let Measuring::Perf(words) = step.program else { continue };
            match programs.count(words, step.processors, COUNTS) {
                Ok(counted) => self.take_longest(&counted),
                Err(error) => drop(self.failures.insert(step.rows[0].key, format!("counting: {error:#}"))),
            }
        }
        for (key, (_, time)) in &self.longest {
            let time = f64::from(u32::try_from(*time).unwrap_or(u32::MAX));
            self.samples.insert(key, vec![Sample { value: time, ratio: time }]);
        }
    }

    /// The longest of all programs.
    fn take_longest(&mut self, measured: &Measurement) {
        for plan in LONGEST {
            let Some((path, time)) = (plan.paths)(measured).longest() else { continue };
            let longest = self.longest.entry(plan.row.key).or_default();
            if time > longest.1 {
                *longest = (path.to_owned(), time);
            }
        }
    }

    /// The rows that were measured in every round.
    pub(super) fn rows(&self) -> Vec<BenchRow> {
        let plans = plan::rows().filter(|plan| !self.failures.contains_key(plan.key));
        plans.filter_map(|plan| Some(BenchRow::of(plan, self.samples.get(plan.key)?))).collect()
    }
}

fn sample(row: &RowPlan, measured: &Measurement, values: &Values) -> Result<Sample> {
    let value = measured.value(row.quantity)?;
    let other = |key| values.get(key).with_context(|| format!("{key} was not measured"));
    let ratio = match row.baseline {
        Baseline::None => value,
        Baseline::Memcpy => value / measured.memcpy.context("the report has no memcpy")?,
        Baseline::Tcp => value / measured.tcp.context("the report has no TCP")?,
        Baseline::Row(key) => value / other(key)?,
        Baseline::ThreeTimes(key) => value - 3.0 * other(key)?,
    };
    Ok(Sample { value, ratio })
}

#[cfg(test)]
mod tests {
    use super::super::longest::Paths;
    use super::*;

    #[test]
    fn a_row_is_compared_with_what_its_plan_says() {
        let measured = Measurement { time: 300.0, scaling: Some(0.8), memcpy: Some(250.0), ..Measurement::default() };
        let values = Values::from([
            ("ucx_get_8", 50.0),
            ("cache_line_round_trip", 80.0),
            ("two_loops", 0.8),
            ("read_8_single", 100.0),
        ]);
        let ratio = |key| sample(plan::rows().find(|row| row.key == key).unwrap(), &measured, &values).unwrap().ratio;
        for (key, expected) in [
            ("read_8_single", 6.0),
            ("read_64k", 1.2),
            ("notify_cross", 60.0),
            ("frmr_256", 300.0),
            ("read_8_two_cpus", 1.0),
            ("read_8_1k_qps", 3.0),
        ] {
            assert!((ratio(key) - expected).abs() < 1e-9, "{key}: {}", ratio(key));
        }
    }

    #[test]
    fn a_row_without_its_baseline_or_its_number_is_an_error() {
        for key in ["send_64_chain16", "read_64k", "qp_bytes", "nd_calls_polled", "read_8_two_cpus"] {
            let row = plan::rows().find(|row| row.key == key).unwrap();
            assert!(sample(row, &Measurement::default(), &Values::new()).is_err(), "{key}");
        }
    }

    #[test]
    fn the_longest_path_is_that_of_all_programs() {
        let mut rounds = Rounds::default();
        for (path, time) in [("a", "3"), ("b", "9"), ("c", "2")] {
            let dpc_paths = Paths::read(Some(&serde_json::json!({path: {time: 4}})));
            rounds.take_longest(&Measurement { dpc_paths, ..Measurement::default() });
        }
        assert_eq!(rounds.longest, BTreeMap::from([("longest_dpc", ("b".to_owned(), 9))]));
    }

    /// Both ndkctl of a pair, and one alone.
    #[cfg(unix)]
    const PERF: &str = r#"case "$*" in *--server*) echo listens at 10.77.1.1:7 >&2;; esac
        case "$*" in *"--size 8 --depth 16"*) took=4;; *) took=40;; esac
        case "$*" in *--machine*) echo '{"ok": true, "report": {"rows": [{"operation": "read", "requests": 4, "elapsed": '$took',
        "bytes_compared": 8, "tcp": {"elapsed": 40}}]}}'; exit;; esac
        echo '{"report": {"rows": [{"operation": "read", "size": 8, "rounds": [{"ns": 50.0, "memcpy_ns": 50.0,
        "memcpy_again_ns": 50.0}], "completions_verified": true, "bytes_verified": true, "queue_pair_bytes": 4000,
        "per_processor_ns": []}], "dpc_paths": {"a": {"4000": 9}}, "dispatch_paths": {"b": {"3000": 9}}, "debug_build": false}}'"#;

    /// Two rounds with scripts in place of the programs.
    #[cfg(unix)]
    fn two_rounds(name: &str, ndkctl: &str) -> super::super::report::BenchReport {
        let folder = std::env::temp_dir().join(format!("softndk-bench-{name}-{}", std::process::id()));
        let programs = Programs::scripts(&folder, ndkctl);
        let mut rounds = Rounds::default();
        for _ in 0..2 {
            rounds.measure(&programs);
        }
        rounds.count(&programs);
        std::fs::remove_dir_all(folder).unwrap();
        super::super::report::BenchReport::of(rounds)
    }

    #[cfg(unix)]
    #[test]
    fn a_round_measures_every_row() {
        let report = two_rounds("all", PERF);
        assert!(report.verdict().is_ok(), "{}", report.text());
        let document = report.json();
        let value = |key: &str| document["results"][key]["value"].as_f64().unwrap();
        assert!(plan::rows().all(|plan| value(plan.key) >= 0.0));
        for (key, expected) in [
            ("ucx_get_8", 40.0),
            ("two_loops", 0.5),
            ("read_8_two_cpus", 0.5),
            ("longest_dpc", 4000.0),
            ("longest_dispatch", 3000.0),
        ] {
            assert!((value(key) - expected).abs() < 1e-9, "{key}: {}", value(key));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_program_that_fails_leaves_its_rows_out_and_the_run_fails() {
        let report = two_rounds("one", &format!("case \"$*\" in *fast-register*) exit 3;; esac\n{PERF}"));
        let error = report.verdict().unwrap_err().to_string();
        assert_eq!(error, "these rows were not measured: frmr_256, frmr_256_scattered");
        assert!(report.text().contains("read_64k"));
    }
}
