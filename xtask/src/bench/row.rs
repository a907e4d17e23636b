//! A row of the results: the samples of its rounds, their middle, how far they lie apart, and what they say of the driver.

use super::plan::RowPlan;
use serde_json::{Value, json};

/// One round of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) value: f64,
    /// With the baseline of the same round; the value itself where there is none.
    pub(super) ratio: f64,
}

/// The middle one; of an even number, the mean of the two in the middle.
pub(super) fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.get(middle) {
        None => f64::NAN,
        Some(value) if sorted.len() % 2 == 1 => *value,
        Some(value) => f64::midpoint(*value, sorted[middle - 1]),
    }
}

/// A quarter of the values lies below the first, a quarter above the second. Of three values and fewer they are the least and the greatest.
fn quartiles(values: &[f64]) -> [f64; 2] {
    let sorted = sorted(values);
    let last = sorted.len().saturating_sub(1);
    [last / 4, last - last / 4].map(|index| sorted.get(index).copied().unwrap_or(f64::NAN))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// What a row says of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// A number without a bound.
    Number,
    KeepsAim,
    /// Keeps its bound and misses its aim.
    MissesAim,
    MissesBound,
    /// The bound lies between the quartiles: this run does not say on which side the row is.
    Noisy,
}

pub(super) struct BenchRow {
    pub(super) plan: &'static RowPlan,
    pub(super) value: f64,
    pub(super) ratio: f64,
    quartiles: [f64; 2],
}

impl BenchRow {
    pub(super) fn of(plan: &'static RowPlan, samples: &[Sample]) -> Self {
        let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
        let ratios: Vec<f64> = samples.iter().map(|sample| sample.ratio).collect();
        Self { plan, value: median(&values), ratio: median(&ratios), quartiles: quartiles(&ratios) }
    }

    /// Between the quartiles, as a share of the median.
    pub(super) fn spread(&self) -> f64 {
        let [low, high] = self.quartiles;
        if self.ratio == 0.0 { 0.0 } else { (high - low) / self.ratio.abs() }
    }

    pub(super) fn standing(&self) -> Standing {
        let Some(goal) = self.plan.goal else { return Standing::Number };
        match self.quartiles.map(|quartile| goal.keeps(quartile, goal.bound)) {
            [false, false] => Standing::MissesBound,
            [true, true] if goal.aim.is_none_or(|aim| goal.keeps(self.ratio, aim)) => Standing::KeepsAim,
            [true, true] => Standing::MissesAim,
            _ => Standing::Noisy,
        }
    }

    pub(super) fn json(&self) -> Value {
        let goal = self.plan.goal;
        json!({
            "value": self.value,
            "unit": self.plan.quantity.unit(),
            "baseline": self.plan.baseline.name(),
            "ratio": self.ratio,
            "bound": goal.map(|goal| goal.bound),
            "bound_is": goal.map(|goal| if goal.at_least { "at least" } else { "at most" }),
            "aim": goal.and_then(|goal| goal.aim),
            "misses_bound": self.standing() == Standing::MissesBound,
            "noisy": self.standing() == Standing::Noisy,
            "spread": self.spread(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;

    fn row(key: &str, ratios: &[f64]) -> BenchRow {
        let samples: Vec<_> = ratios.iter().map(|ratio| Sample { value: 100.0, ratio: *ratio }).collect();
        BenchRow::of(plan::rows().find(|row| row.key == key).unwrap(), &samples)
    }

    #[test]
    fn bounds_and_aims_are_on_the_good_side_of_themselves() {
        let expected = [Standing::KeepsAim, Standing::MissesAim, Standing::MissesAim, Standing::MissesBound];
        let stand = |key, ratios: [f64; 4]| ratios.map(|ratio| row(key, &[ratio; 3]).standing());
        assert_eq!(stand("read_8_single", [2.0, 2.01, 3.0, 3.01]), expected);
        assert_eq!(stand("read_8_two_cpus", [0.97, 0.96, 0.9, 0.89]), expected);
        assert_eq!(stand("frmr_256", [200.0, 201.0, 400.0, 401.0]), expected);
        assert_eq!(row("nd_read_64k", &[1.06]).standing(), Standing::KeepsAim);
        assert_eq!(row("read_8_two_cpus", &[f64::NAN]).standing(), Standing::MissesBound);
        assert_eq!(row("nd_calls_unpolled", &[7.0]).standing(), Standing::Number);
    }

    #[test]
    fn a_row_keeps_or_misses_its_bound_in_three_quarters_of_the_rounds_or_says_nothing() {
        let of_nine = |over: usize| {
            let ratios: Vec<f64> = (0..9).map(|round| if round < over { 3.5 } else { 2.5 }).collect();
            row("read_8_single", &ratios).standing()
        };
        assert_eq!([0, 2].map(of_nine), [Standing::MissesAim; 2]);
        assert_eq!([3, 6].map(of_nine), [Standing::Noisy; 2]);
        assert_eq!([7, 9].map(of_nine), [Standing::MissesBound; 2]);
        assert_eq!(row("read_8_single", &[2.0, 2.0, 3.5]).standing(), Standing::Noisy);
    }

    #[test]
    fn the_spread_is_that_of_the_middle_half() {
        assert!((row("read_8_single", &[1.0, 100.0, 110.0, 90.0, 900.0]).spread() - 0.2).abs() < 1e-9);
        assert!(row("read_8_single", &[5.0]).spread().abs() < 1e-9);
    }

    // Rule: NUMBERS-1
    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        assert!((median(&[9.0, 1.0, 4.0]) - 4.0).abs() < 1e-9);
        assert!((median(&[9.0, 1.0, 4.0, 6.0]) - 5.0).abs() < 1e-9);
        assert!(median(&[]).is_nan());
    }
}
