//! The rounds of a run, and the rows that they make.

use super::{
    plan::{self, Baseline, Calibration, LONGEST, Quantity, RowPlan, STEPS, Step},
    programs::Programs,
    reports::Measurement,
    row::{BenchRow, Sample},
    ucx,
};
use anyhow::{Context, Result, anyhow};
use serde_json::Value;
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
        for longest in LONGEST {
            if let Some(value) = round.totals.get(longest.field) {
                let sample = Sample { value: *value, baseline: None, calibration: [1.0; 2], baseline_drift: 0.0 };
                self.samples.entry(longest.row.key).or_default().push(sample);
            }
        }
        Ok(())
    }

    fn step(&mut self, programs: &Programs, step: &Step, round: &mut Round) -> Result<()> {
        let before = programs.calibrate(step.calibration)?;
        let measured = programs.measure(&step.program, step.processors)?;
        let after = programs.calibrate(step.calibration)?;
        let calibration = match (before, after) {
            (Some(before), Some(after)) => [before, after],
            _ => measured.memcpy.context("the report has no memcpy")?,
        };
        if step.calibration == Calibration::UcxGet8 {
            self.calibrations.entry(ucx_name(programs.has_ucx).to_owned()).or_default().extend(calibration);
        }
        for row in step.rows {
            let sample = round.sample(row, &measured, calibration)?;
            self.samples.entry(row.key).or_default().push(sample);
        }
        round.take_totals(&measured);
        if !measured.imports.is_empty() {
            self.imports.insert(step.rows[0].key, measured.imports);
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

/// What the rows of a round hand on.
#[derive(Default)]
struct Round {
    /// Value and drift of the rows so far.
    samples: BTreeMap<&'static str, (f64, f64)>,
    /// The largest of each number that reports have.
    totals: BTreeMap<String, f64>,
}

impl Round {
    fn sample(&mut self, row: &RowPlan, measured: &Measurement, calibration: [f64; 2]) -> Result<Sample> {
        let value = match row.quantity {
            Quantity::Time => measured.time,
            Quantity::Rate => measured.rate,
            Quantity::QueuePairBytes => measured.queue_pair_bytes.context("the report has no queue_pair_bytes")?,
            Quantity::SystemCalls => measured.system_calls.context("the report has no system calls")?,
        };
        let mean = f64::midpoint(calibration[0], calibration[1]);
        let (baseline, baseline_drift) = match row.baseline {
            Baseline::None => (None, 0.0),
            Baseline::Memcpy(_) | Baseline::UcxGet8 | Baseline::ThreeRoundTrips => (Some(mean), 0.0),
            Baseline::TwoLoops => {
                let one = measured.rate_of_one.context("the report has no rate of one processor")?;
                (Some(2.0 * one * mean), 0.0)
            }
            Baseline::Row(other) => {
                let other = self.samples.get(other).ok_or_else(|| anyhow!("{other} was not measured"))?;
                (Some(other.0), other.1)
            }
        };
        let sample = Sample { value, baseline, calibration, baseline_drift };
        self.samples.insert(row.key, (value, sample.drift()));
        Ok(sample)
    }

    fn take_totals(&mut self, measured: &Measurement) {
        for (name, value) in &measured.totals {
            let most = self.totals.entry(name.clone()).or_insert(*value);
            *most = most.max(*value);
        }
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
