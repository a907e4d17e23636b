//! A row of the results: a median, what it is compared with, and how far that may be trusted.

use serde_json::{Value, json};
use std::fmt::Write;

/// A value a round.
#[derive(Default)]
pub(super) struct Series(Vec<f64>);

impl Series {
    pub(super) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    fn sorted(&self) -> Vec<f64> {
        let mut values = self.0.clone();
        values.sort_by(f64::total_cmp);
        values
    }

    pub(super) fn median(&self) -> f64 {
        let values = self.sorted();
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Between the quartiles, as a share of the median.
    fn spread(&self) -> f64 {
        let values = self.sorted();
        let at = |quarter: usize| values.get((values.len() * quarter / 4).min(values.len().saturating_sub(1))).copied();
        match (at(1), at(3)) {
            (Some(low), Some(high)) if self.median() > 0.0 => (high - low) / self.median(),
            _ => 0.0,
        }
    }
}

pub(super) struct BenchRow {
    pub(super) key: &'static str,
    value: f64,
    unit: &'static str,
    baseline: Option<&'static str>,
    /// The value itself where there is no baseline.
    ratio: f64,
    bound: f64,
    void: bool,
    spread: f64,
}

impl BenchRow {
    /// A time, as a multiple of another one: the median of the rounds' ratios.
    pub(super) fn ratio(
        key: &'static str,
        series: &Series,
        baseline: &'static str,
        against: &Series,
        bound: f64,
    ) -> Self {
        let ratios = Series(series.0.iter().zip(&against.0).map(|(value, base)| value / base).collect());
        Self {
            key,
            value: series.median(),
            unit: "ns",
            baseline: Some(baseline),
            ratio: ratios.median(),
            bound,
            void: against.spread() > (bound - 1.0) / 2.0,
            spread: ratios.spread(),
        }
    }

    /// A number of its own, with a bound for itself.
    pub(super) fn count(key: &'static str, series: &Series, bound: f64) -> Self {
        let value = series.median();
        let unit = "calls/request";
        Self { key, value, unit, baseline: None, ratio: value, bound, void: false, spread: series.spread() }
    }

    /// A void row misses nothing.
    pub(super) fn is_missed(&self) -> bool {
        !self.void && (self.ratio.is_nan() || self.ratio > self.bound)
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "value": self.value, "unit": self.unit, "baseline": self.baseline, "ratio": self.ratio, "bound": self.bound,
            "void": self.void, "spread": self.spread,
        })
    }
}

/// The rows as lines.
pub(super) fn table(rows: &[BenchRow]) -> String {
    let mut text = format!(
        "{:<22} {:>10} {:<14} {:<24} {:>8} {:>7} {:>7}\n",
        "", "value", "unit", "compared with", "ratio", "bound", "spread"
    );
    for row in rows {
        let remark = if row.void {
            "  void: its baseline varies"
        } else if row.is_missed() {
            "  missed"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "{:<22} {:>10.4} {:<14} {:<24} {:>8.4} {:>7.2} {:>7.2}{remark}",
            row.key,
            row.value,
            row.unit,
            row.baseline.unwrap_or("-"),
            row.ratio,
            row.bound,
            row.spread
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[f64]) -> Series {
        Series(values.to_vec())
    }

    #[test]
    fn a_bound_is_missed_by_the_median_of_the_ratios() {
        let base = series(&[100.0, 101.0, 100.0, 99.0, 100.0]);
        let row = |times: &[f64]| BenchRow::ratio("key", &series(times), "base", &base, 1.5);
        assert!(!row(&[150.0, 500.0, 140.0, 130.0, 900.0]).is_missed());
        assert!(row(&[160.0, 160.0, 140.0, 130.0, 900.0]).is_missed());
        assert!(row(&[f64::NAN; 5]).is_missed(), "what is no number is no success");
    }

    #[test]
    fn a_baseline_that_varies_makes_the_row_void() {
        let row = |base: &[f64]| BenchRow::ratio("key", &series(&[300.0; 5]), "base", &series(base), 1.2);
        assert!(row(&[100.0, 150.0, 90.0, 130.0, 100.0]).void);
        assert!(!row(&[100.0, 101.0, 99.0, 100.0, 100.0]).void);
        assert!(row(&[100.0, 101.0, 99.0, 100.0, 100.0]).is_missed());
    }

    #[test]
    fn a_count_has_its_own_bound() {
        assert!(!BenchRow::count("calls", &series(&[0.0, 0.001, 0.5]), 0.01).is_missed());
        assert!(BenchRow::count("calls", &series(&[0.02, 0.02, 0.0]), 0.01).is_missed());
    }
}
