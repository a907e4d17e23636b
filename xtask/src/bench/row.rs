//! A row of the results: the samples of its rounds, what they are compared with, and how far that may be trusted.

use super::plan::{Baseline, Goal, RowPlan};
use serde_json::{Value, json};

/// One round of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) value: f64,
    /// Of the same round; none where the value is compared with a number.
    pub(super) baseline: Option<f64>,
    /// The calibration right before and right after, each without and with what something else took of the processor: two numbers
    /// that lie farthest apart.
    pub(super) calibration: [f64; 2],
    /// By how much the baseline's own calibration differed, where the baseline is another row.
    pub(super) baseline_drift: f64,
}

impl Sample {
    /// By how much the calibration differs from itself, as a share of the smaller one.
    pub(super) fn drift(&self) -> f64 {
        let [one, other] = self.calibration;
        // What is not measured differs beyond every tolerance.
        if !(one > 0.0 && other > 0.0) {
            return f64::INFINITY;
        }
        (one.max(other) / one.min(other) - 1.0).max(self.baseline_drift)
    }

    /// What the bound is for.
    fn compared(&self, how: Baseline) -> f64 {
        match (how, self.baseline) {
            (_, None) => self.value,
            (Baseline::ThreeRoundTrips, Some(round_trip)) => self.value - 3.0 * round_trip,
            (_, Some(baseline)) => self.value / baseline,
        }
    }
}

/// The middle one; of an even number, the mean of the two in the middle.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.get(middle) {
        None => f64::NAN,
        Some(value) if sorted.len() % 2 == 1 => *value,
        Some(value) => f64::midpoint(*value, sorted[middle - 1]),
    }
}

/// Between the quartiles, as a share of the median.
fn spread(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let (Some(low), Some(high)) = (sorted.get(last / 4), sorted.get(last - last / 4)) else { return f64::NAN };
    let median = median(values);
    if median == 0.0 { 0.0 } else { (high - low) / median.abs() }
}

/// What a row says of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// A number without a bound.
    Number,
    KeepsAim,
    /// Keeps its bound and misses its aim.
    KeepsBound,
    MissesBound,
    /// The machine was too restless to say.
    Void,
}

pub(super) struct BenchRow {
    pub(super) key: &'static str,
    pub(super) unit: &'static str,
    pub(super) baseline: Option<String>,
    pub(super) value: f64,
    /// The value itself where there is no baseline.
    pub(super) ratio: f64,
    pub(super) goal: Goal,
    pub(super) spread: f64,
    /// Rounds whose calibration differed from itself by more than the row tolerates, of all.
    pub(super) void_rounds: usize,
    pub(super) rounds: usize,
}

impl BenchRow {
    /// Judges the rounds of a row: those that are void are left out, unless they are more than half.
    pub(super) fn of(plan: &RowPlan, baseline: Option<String>, samples: &[Sample]) -> Self {
        let tolerance = plan.tolerance();
        let good: Vec<&Sample> = samples.iter().filter(|sample| sample.drift() <= tolerance).collect();
        let void_rounds = samples.len() - good.len();
        let counted = if is_void(void_rounds, samples.len()) { samples.iter().collect() } else { good };
        let values: Vec<f64> = counted.iter().map(|sample| sample.value).collect();
        let ratios: Vec<f64> = counted.iter().map(|sample| sample.compared(plan.baseline)).collect();
        Self {
            key: plan.key,
            unit: plan.unit(),
            baseline,
            value: median(&values),
            ratio: median(&ratios),
            goal: plan.goal,
            spread: spread(&ratios),
            void_rounds,
            rounds: samples.len(),
        }
    }

    pub(super) fn is_void(&self) -> bool {
        is_void(self.void_rounds, self.rounds)
    }

    pub(super) fn verdict(&self) -> Standing {
        let keeps = |limit: f64| self.goal.keeps(self.ratio, limit);
        match self.goal.limits() {
            None => Standing::Number,
            Some(_) if self.is_void() => Standing::Void,
            Some(limits) if !keeps(limits.bound) => Standing::MissesBound,
            Some(limits) if limits.aim.is_none_or(keeps) => Standing::KeepsAim,
            Some(_) => Standing::KeepsBound,
        }
    }

    pub(super) fn json(&self) -> Value {
        let limits = self.goal.limits();
        json!({
            "value": self.value,
            "unit": self.unit,
            "baseline": self.baseline,
            "ratio": self.ratio,
            "bound": limits.map(|limits| limits.bound),
            "bound_is": match self.goal {
                Goal::AtMost(_) => Some("at most"),
                Goal::AtLeast(_) => Some("at least"),
                Goal::Number => None,
            },
            "aim": limits.and_then(|limits| limits.aim),
            "void": self.is_void(),
            "void_rounds": self.void_rounds,
            "spread": self.spread,
        })
    }
}

fn is_void(void_rounds: usize, rounds: usize) -> bool {
    2 * void_rounds > rounds
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Limits, Quantity};
    use super::*;

    fn plan(baseline: Baseline, goal: Goal) -> RowPlan {
        RowPlan { key: "key", quantity: Quantity::Time, baseline, goal }
    }

    /// Beside memcpy with a bound of 1.5: a calibration that is off by more than a quarter is void.
    const AT_MOST: RowPlan = RowPlan {
        key: "key",
        quantity: Quantity::Time,
        baseline: Baseline::Memcpy("memcpy"),
        goal: Goal::AtMost(Limits { bound: 1.5, aim: Some(1.2) }),
    };

    fn sample(value: f64, calibration: [f64; 2]) -> Sample {
        Sample { value, baseline: Some(100.0), calibration, baseline_drift: 0.0 }
    }

    fn quiet(values: &[f64]) -> Vec<Sample> {
        values.iter().map(|value| sample(*value, [100.0, 100.0])).collect()
    }

    fn row(plan: &RowPlan, samples: &[Sample]) -> BenchRow {
        BenchRow::of(plan, None, samples)
    }

    #[test]
    fn the_median_of_the_ratios_of_each_round_counts() {
        let mut samples = quiet(&[150.0, 500.0, 140.0, 130.0, 900.0]);
        assert_eq!(row(&AT_MOST, &samples).verdict(), Standing::KeepsBound);
        // A slow round whose baseline is as slow.
        samples[0] = Sample { baseline: Some(1000.0), ..sample(1000.0, [1000.0, 1000.0]) };
        let judged = row(&AT_MOST, &samples);
        assert!((judged.ratio - 1.4).abs() < 1e-9, "{}", judged.ratio);
        assert!((judged.value - 500.0).abs() < 1e-9, "{}", judged.value);
    }

    #[test]
    fn an_upper_bound_and_its_aim() {
        for (value, expected) in [
            (119.0, Standing::KeepsAim),
            (120.0, Standing::KeepsAim),
            (121.0, Standing::KeepsBound),
            (150.0, Standing::KeepsBound),
            (151.0, Standing::MissesBound),
            (f64::NAN, Standing::MissesBound),
        ] {
            assert_eq!(row(&AT_MOST, &quiet(&[value; 3])).verdict(), expected, "{value}");
        }
    }

    #[test]
    fn a_lower_bound_and_its_aim() {
        let plan = plan(Baseline::TwoLoops, Goal::AtLeast(Limits { bound: 0.9, aim: Some(0.97) }));
        for (value, expected) in [
            (99.0, Standing::KeepsAim),
            (97.0, Standing::KeepsAim),
            (96.0, Standing::KeepsBound),
            (90.0, Standing::KeepsBound),
            (89.0, Standing::MissesBound),
            (f64::NAN, Standing::MissesBound),
        ] {
            assert_eq!(row(&plan, &quiet(&[value; 3])).verdict(), expected, "{value}");
        }
    }

    #[test]
    fn without_a_baseline_the_value_is_judged() {
        let plan = plan(Baseline::None, Goal::AtMost(Limits { bound: 400.0, aim: Some(200.0) }));
        let samples = |value| [Sample { baseline: None, ..sample(value, [8.0, 8.0]) }];
        assert_eq!(row(&plan, &samples(200.0)).verdict(), Standing::KeepsAim);
        assert_eq!(row(&plan, &samples(400.0)).verdict(), Standing::KeepsBound);
        assert_eq!(row(&plan, &samples(401.0)).verdict(), Standing::MissesBound);
    }

    #[test]
    fn of_a_notification_three_round_trips_are_taken_off() {
        let plan = plan(Baseline::ThreeRoundTrips, Goal::AtMost(Limits { bound: 1000.0, aim: Some(500.0) }));
        assert_eq!(row(&plan, &quiet(&[800.0])).verdict(), Standing::KeepsAim);
        assert_eq!(row(&plan, &quiet(&[1300.0])).verdict(), Standing::KeepsBound);
        assert_eq!(row(&plan, &quiet(&[1301.0])).verdict(), Standing::MissesBound);
    }

    #[test]
    fn rounds_with_a_restless_calibration_do_not_count_and_too_many_make_the_row_void() {
        let good = sample(140.0, [100.0, 125.0]);
        let bad = sample(900.0, [126.0, 100.0]);
        let two_of_four = row(&AT_MOST, &[good, bad, good, bad]);
        assert_eq!((two_of_four.void_rounds, two_of_four.verdict()), (2, Standing::KeepsBound));
        let three_of_five = row(&AT_MOST, &[good, bad, good, bad, bad]);
        assert_eq!((three_of_five.void_rounds, three_of_five.verdict()), (3, Standing::Void));
        assert_eq!(row(&AT_MOST, &[sample(100.0, [f64::NAN, 100.0])]).verdict(), Standing::Void);
    }

    #[test]
    fn a_row_that_is_compared_with_another_one_shares_its_restlessness() {
        let plan = plan(Baseline::Row("other"), Goal::AtMost(Limits { bound: 2.0, aim: Some(1.5) }));
        let samples = |baseline_drift| [Sample { baseline_drift, ..sample(100.0, [8.0, 8.0]) }];
        assert_eq!(row(&plan, &samples(0.125)).verdict(), Standing::KeepsAim);
        assert_eq!(row(&plan, &samples(0.126)).verdict(), Standing::Void);
    }

    #[test]
    fn half_the_margin_is_half_of_what_memcpy_leaves_and_half_of_the_way_from_aim_to_bound_elsewhere() {
        assert!((AT_MOST.tolerance() - 0.25).abs() < 1e-9);
        let elsewhere = plan(Baseline::UcxGet8, Goal::AtMost(Limits { bound: 2.0, aim: Some(1.0) }));
        assert!((elsewhere.tolerance() - 0.25).abs() < 1e-9);
        let lower = plan(Baseline::TwoLoops, Goal::AtLeast(Limits { bound: 0.9, aim: Some(0.99) }));
        assert!((lower.tolerance() - 0.05).abs() < 1e-9);
    }

    #[test]
    fn a_bound_without_an_aim_tolerates_half_of_what_it_allows() {
        let goal = Goal::AtMost(Limits { bound: 1.5, aim: None });
        let other = plan(Baseline::Row("other"), goal);
        assert!((other.tolerance() - 0.25).abs() < 1e-9);
        assert_eq!(row(&other, &quiet(&[149.0])).verdict(), Standing::KeepsAim);
        assert_eq!(row(&other, &quiet(&[151.0])).verdict(), Standing::MissesBound);
        assert!(plan(Baseline::None, goal).tolerance().is_infinite());
    }

    #[test]
    fn what_is_counted_and_what_has_no_bound_is_never_void() {
        let calls = RowPlan { quantity: Quantity::SystemCalls, baseline: Baseline::None, ..AT_MOST };
        assert_eq!(row(&calls, &[sample(1.0, [1.0, 9.0])]).void_rounds, 0);
        let number = row(&plan(Baseline::None, Goal::Number), &[sample(1.0, [1.0, 9.0])]);
        assert_eq!(number.verdict(), Standing::Number);
    }

    #[test]
    fn the_spread_is_that_of_the_middle_half() {
        assert!((spread(&[1.0, 100.0, 110.0, 90.0, 900.0]) - 0.2).abs() < 1e-9);
        assert!(spread(&[5.0]).abs() < 1e-9);
    }

    // Rule: NUMBERS-1
    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        assert!((median(&[9.0, 1.0, 4.0]) - 4.0).abs() < 1e-9);
        assert!((median(&[9.0, 1.0, 4.0, 6.0]) - 5.0).abs() < 1e-9);
        assert!(median(&[]).is_nan());
    }
}
