//! The rounds of a run, and the rows that they make.

use super::{
    plan::{self, Baseline, Calibration, LONGEST, Quantity, RowPlan, STEPS, Step},
    programs::{Programs, Reading},
    reports::Measurement,
    row::{BenchRow, Sample},
};
use anyhow::{Context, Result, anyhow};
use std::collections::BTreeMap;

/// Everything that was measured.
#[derive(Default)]
pub(super) struct Session {
    samples: BTreeMap<&'static str, Vec<Sample>>,
    /// Rows that could not be measured, and why.
    pub(super) failures: BTreeMap<&'static str, String>,
    /// Values a round, by name.
    pub(super) calibrations: BTreeMap<String, Vec<f64>>,
    /// Imports of a request by row and name.
    pub(super) imports: BTreeMap<&'static str, BTreeMap<String, f64>>,
    /// The path that takes longest, and its nanoseconds, by row.
    pub(super) longest: BTreeMap<&'static str, (String, u64)>,
}

/// How often each program is counted: what it does once a run is seen so often.
const COUNTS: usize = 7;

/// A program's counts, and the times of its paths in all runs.
fn counted(programs: &Programs, step: &Step) -> Result<Option<Measurement>> {
    let count = || programs.count(&step.program, step.processors);
    let Some(mut counted) = count()? else { return Ok(None) };
    for _ in 1..COUNTS {
        let Some(again) = count()? else { break };
        counted.dpc_paths.add(again.dpc_paths);
        counted.dispatch_paths.add(again.dispatch_paths);
    }
    Ok(Some(counted))
}

impl Session {
    /// Runs every program once. A step that fails is not tried again.
    pub(super) fn round(&mut self, programs: &Programs) -> Result<()> {
        for (name, value) in programs.all_calibrations()? {
            self.calibrations.entry(name).or_default().extend(value.as_f64());
        }
        let mut round = Round::default();
        for step in STEPS {
            if step.rows.iter().any(|row| self.failures.contains_key(row.key)) {
                continue;
            }
            if let Err(error) = self.step(programs, step, &mut round) {
                self.failures.extend(step.rows.iter().map(|row| (row.key, format!("{error:#}"))));
            }
        }
        Ok(())
    }

    /// Runs every program once more where the kernel host counts, which the times of the rounds must not show.
    pub(super) fn count(&mut self, programs: &Programs) {
        for step in STEPS {
            let key = step.rows[0].key;
            match counted(programs, step) {
                Ok(Some(counted)) => {
                    self.take_longest(&counted);
                    self.imports.insert(key, counted.imports);
                }
                Ok(None) => {}
                Err(error) => {
                    self.failures.entry(key).or_insert_with(|| format!("counting: {error:#}"));
                }
            }
        }
        for (key, (_, time)) in &self.longest {
            let sample = Sample {
                value: f64::from(u32::try_from(*time).unwrap_or(u32::MAX)),
                baseline: None,
                calibration: [1.0; 2],
                baseline_drift: 0.0,
            };
            self.samples.entry(key).or_default().push(sample);
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

    fn step(&mut self, programs: &Programs, step: &Step, round: &mut Round) -> Result<()> {
        let before = programs.calibrate(step.calibration)?;
        let measured = programs.measure(&step.program, step.processors)?;
        let after = programs.calibrate(step.calibration)?;
        let calibration = if let (Some(before), Some(after)) = (before, after) {
            Calibrated::of(&[before, after])
        } else {
            let copies = measured.memcpy.context("the report has no memcpy")?;
            Calibrated::of(&copies.map(|copy| Reading { quiet: copy, mean: copy }))
        };
        if step.calibration == Calibration::UcxGet8 {
            self.calibrations.entry(ucx_name(programs.has_ucx).to_owned()).or_default().push(calibration.value);
        }
        for row in step.rows {
            let sample = round.sample(row, &measured, &calibration)?;
            self.samples.entry(row.key).or_default().push(sample);
        }
        Ok(())
    }

    /// The rows that were measured in every round.
    pub(super) fn rows(&self, has_ucx: bool) -> Vec<BenchRow> {
        let plans = plan::rows().chain(LONGEST.iter().map(|longest| &longest.row));
        plans
            .filter(|plan| !self.failures.contains_key(plan.key))
            .filter_map(|plan| {
                let samples = self.samples.get(plan.key)?;
                Some(BenchRow::of(plan, baseline_name(plan.baseline, has_ucx), samples))
            })
            .collect()
    }
}

/// The calibration of a step, before and after.
struct Calibrated {
    /// In the middle of both, without what something else took.
    value: f64,
    /// The least and the greatest.
    range: [f64; 2],
}

impl Calibrated {
    fn of(readings: &[Reading; 2]) -> Self {
        let [before, after] = readings;
        let all = [before.quiet, before.mean, after.quiet, after.mean];
        let range = if all.iter().any(|number| number.is_nan()) {
            [f64::NAN; 2]
        } else {
            [all.into_iter().fold(f64::INFINITY, f64::min), all.into_iter().fold(0.0, f64::max)]
        };
        Self { value: f64::midpoint(before.quiet, after.quiet), range }
    }
}

/// What the rows of a round hand on.
#[derive(Default)]
struct Round {
    /// Value and drift of the rows so far.
    samples: BTreeMap<&'static str, (f64, f64)>,
}

impl Round {
    fn sample(&mut self, row: &RowPlan, measured: &Measurement, calibration: &Calibrated) -> Result<Sample> {
        let value = match row.quantity {
            Quantity::Time => measured.time,
            Quantity::Rate => measured.rate,
            Quantity::QueuePairBytes => measured.queue_pair_bytes.context("the report has no queue_pair_bytes")?,
            Quantity::SystemCalls => measured.system_calls.context("the report has no system calls")?,
        };
        let (baseline, baseline_drift) = match row.baseline {
            Baseline::None => (None, 0.0),
            Baseline::Memcpy(_) | Baseline::UcxGet8 | Baseline::ThreeRoundTrips => (Some(calibration.value), 0.0),
            Baseline::TwoLoops => {
                let one = measured.rate_of_one.context("the report has no rate of one processor")?;
                (Some(2.0 * one * calibration.value), 0.0)
            }
            Baseline::Row(other) => {
                let other = self.samples.get(other).ok_or_else(|| anyhow!("{other} was not measured"))?;
                (Some(other.0), other.1)
            }
        };
        let sample = Sample { value, baseline, calibration: calibration.range, baseline_drift };
        self.samples.insert(row.key, (value, sample.drift()));
        Ok(sample)
    }
}

fn ucx_name(has_ucx: bool) -> &'static str {
    if has_ucx { "ucx_get_8_ns" } else { "ucx_get_8_from_lock_pair_ns" }
}

/// What a row's entry says that it is compared with.
fn baseline_name(baseline: Baseline, has_ucx: bool) -> Option<String> {
    match baseline {
        Baseline::None => None,
        Baseline::Memcpy(name) | Baseline::Row(name) => Some(name.to_owned()),
        Baseline::UcxGet8 if has_ucx => Some("ucx_get_8".to_owned()),
        Baseline::UcxGet8 => Some("ucx_get_8 (from lock pair)".to_owned()),
        Baseline::ThreeRoundTrips => Some("3 cache_line_round_trip (taken off)".to_owned()),
        Baseline::TwoLoops => Some("two_loops".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::longest::Paths;
    use super::*;

    fn measured() -> Measurement {
        Measurement { time: 300.0, rate: 1.5e7, rate_of_one: Some(1e7), ..Measurement::default() }
    }

    fn calibrated(before: f64, after: f64) -> Calibrated {
        Calibrated::of(&[before, after].map(|number| Reading { quiet: number, mean: number }))
    }

    fn plan(key: &str) -> &'static RowPlan {
        plan::rows().find(|row| row.key == key).unwrap()
    }

    #[test]
    fn a_row_is_compared_with_what_its_plan_says() {
        let mut round = Round::default();
        let mut baseline = |key, [before, after]: [f64; 2]| {
            round.sample(plan(key), &measured(), &calibrated(before, after)).unwrap().baseline
        };
        assert_eq!(baseline("read_8_single", [40.0, 60.0]), Some(50.0));
        assert_eq!(baseline("read_64k", [200.0, 300.0]), Some(250.0));
        assert_eq!(baseline("notify_cross", [100.0, 120.0]), Some(110.0));
        assert_eq!(baseline("frmr_256", [8.0, 9.0]), None);
        // Twice what one did, as far as two independent loops come.
        assert_eq!(baseline("read_8_two_cpus", [0.7, 0.8]), Some(1.5e7));
        assert_eq!(baseline("read_8_1k_qps", [8.0, 9.0]), Some(300.0));
    }

    #[test]
    fn what_a_row_is_compared_with_hands_on_how_restless_it_was() {
        let mut round = Round::default();
        round.sample(plan("read_8_single"), &measured(), &calibrated(40.0, 60.0)).unwrap();
        let sample = round.sample(plan("read_8_1k_qps"), &measured(), &calibrated(8.0, 8.0)).unwrap();
        assert!((sample.drift() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_machine_that_is_as_busy_before_as_after_is_restless_too() {
        let busy = Reading { quiet: 8.0, mean: 16.0 };
        let calibrated = Calibrated::of(&[busy, busy]);
        let sample = Round::default().sample(plan("frmr_256"), &measured(), &calibrated).unwrap();
        assert!((sample.drift() - 1.0).abs() < 1e-9 && (calibrated.value - 8.0).abs() < 1e-9);
    }

    #[test]
    fn a_row_without_its_baseline_or_its_number_is_an_error() {
        let mut round = Round::default();
        let one = Measurement { rate_of_one: None, ..measured() };
        for key in ["send_64_chain16", "qp_bytes", "nd_calls_polled", "read_8_two_cpus"] {
            assert!(round.sample(plan(key), &one, &calibrated(1.0, 1.0)).is_err(), "{key}");
        }
    }

    #[test]
    fn the_longest_path_is_that_of_all_programs() {
        let mut session = Session::default();
        for (path, time) in [("a", "3"), ("b", "9"), ("c", "2")] {
            let dpc_paths = Paths::read(Some(&serde_json::json!({path: {time: 4}})));
            session.take_longest(&Measurement { dpc_paths, ..measured() });
        }
        assert_eq!(session.longest, BTreeMap::from([("longest_dpc", ("b".to_owned(), 9))]));
    }

    #[test]
    fn without_ucx_the_entry_says_what_stands_in() {
        assert_eq!(baseline_name(Baseline::UcxGet8, true).unwrap(), "ucx_get_8");
        assert_eq!(baseline_name(Baseline::UcxGet8, false).unwrap(), "ucx_get_8 (from lock pair)");
    }

    #[cfg(unix)]
    const PERF: &str = r#"echo '{"report": {"rows": [{"operation": "read", "size": 8, "rounds": [{"ns": 50.0, "memcpy_ns": 50.0,
        "memcpy_again_ns": 50.0}], "completions_verified": true, "bytes_verified": true, "queue_pair_bytes": 4000,
        "per_processor_ns": []}], "dpc_paths": {"a": {"4000": 9}}, "dispatch_paths": {"b": {"3000": 9}}, "debug_build": false}}'"#;
    #[cfg(unix)]
    const SPEED: &str = r#"echo '{"nanoseconds": 90.0, "memcpy": 90.0, "memcpy_again": 90.0, "system_calls": 0.0}'"#;
    #[cfg(unix)]
    const CALIBRATE: &str = r#"echo '{"lock_pair_ns": 10.0, "lock_pair_mean_ns": 10.0,
        "cache_line_round_trip_ns": 20.0, "cache_line_round_trip_mean_ns": 20.0, "two_loops_scaling": 0.5}'"#;

    /// Two rounds with scripts in place of the programs.
    #[cfg(unix)]
    fn two_rounds(name: &str, ndkctl: &str) -> super::super::report::BenchReport {
        let folder = std::env::temp_dir().join(format!("softndk-bench-{name}-{}", std::process::id()));
        let programs = Programs::scripts(&folder, ndkctl, SPEED, CALIBRATE);
        let mut session = Session::default();
        for _ in 0..2 {
            session.round(&programs).unwrap();
        }
        session.count(&programs);
        std::fs::remove_dir_all(folder).unwrap();
        super::super::report::BenchReport::of(session, programs.has_ucx)
    }

    #[cfg(unix)]
    #[test]
    fn a_round_measures_every_row() {
        let report = two_rounds("all", PERF);
        assert!(report.verdict().is_ok(), "{}", report.text());
        let document = report.json();
        for plan in plan::rows() {
            assert_eq!(document["results"][plan.key]["void"], false, "{}", plan.key);
        }
        assert_eq!(document["results"]["read_8_single"]["baseline"], "ucx_get_8 (from lock pair)");
        assert_eq!(document["results"]["longest_dpc"]["value"], 4000.0);
        assert_eq!(document["results"]["longest_dispatch"]["value"], 3000.0);
    }

    #[cfg(unix)]
    #[test]
    fn a_program_that_fails_leaves_its_rows_out_and_the_run_fails() {
        let report = two_rounds("one", &format!("case \"$*\" in *fast-register*) exit 3;; esac\n{PERF}"));
        let error = report.verdict().unwrap_err().to_string();
        assert_eq!(error, "these rows were not measured: frmr_256, frmr_256_scattered");
        assert!(report.rows.iter().any(|row| row.key == "read_64k"));
    }
}
