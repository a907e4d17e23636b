//! What is measured: the programs of a round in their order, and the rows that come out of them with their bounds and aims.

use super::affinity::Processors;
use super::longest::Paths;
use super::reports::Measurement;

/// One program of a round.
pub(super) struct Step {
    pub(super) program: Measuring,
    pub(super) processors: Processors,
    /// Measured right before and right after the program.
    pub(super) calibration: Calibration,
    pub(super) rows: &'static [RowPlan],
}

/// What measures.
pub(super) enum Measuring {
    /// `ndkctl perf` with these words.
    Perf(&'static str),
    /// `ndkctl perf` with these words on one processor and on two.
    Scaling(&'static str),
    /// The program that reads through softnd.dll: size, chain, requests outstanding, how long the driver polls after the last request in microseconds.
    Speed([&'static str; 4]),
}

/// Something that should take the same before a program and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calibration {
    /// memcpy of the row's size, which the program itself measures before and after.
    OwnMemcpy,
    UcxGet8,
    LockPair,
    CacheLine,
    TwoLoops,
}

pub(super) struct RowPlan {
    pub(super) key: &'static str,
    pub(super) quantity: Quantity,
    pub(super) baseline: Baseline,
    pub(super) goal: Goal,
}

/// What of the program's report is the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    /// Nanoseconds of a request.
    Time,
    /// Requests a second.
    Rate,
    QueuePairBytes,
    SystemCalls,
}

/// What the value is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Baseline {
    /// Nothing: bound and aim are numbers of the value's unit.
    None,
    /// memcpy of the same size, by this name.
    Memcpy(&'static str),
    UcxGet8,
    /// Another row, measured earlier in the round.
    Row(&'static str),
    /// Three round trips of a cache line, which are taken off the value: bound and aim are what is left, in nanoseconds.
    ThreeRoundTrips,
    /// What two processors do in independent loops.
    TwoLoops,
}

/// What the ratio, or the value where there is no baseline, should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Goal {
    AtMost(Limits),
    AtLeast(Limits),
    /// A number to look at.
    Number,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    /// The run fails beyond it.
    pub(super) bound: f64,
    /// What the row should come to; none where the bound is all that is asked.
    pub(super) aim: Option<f64>,
}

impl Quantity {
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Time => "ns",
            Self::Rate => "ops/s",
            Self::QueuePairBytes => "bytes",
            Self::SystemCalls => "calls/request",
        }
    }

    /// What is counted is the same on a slow machine.
    pub(super) fn depends_on_time(self) -> bool {
        matches!(self, Self::Time | Self::Rate)
    }
}

impl Goal {
    const fn at_most(bound: f64, aim: f64) -> Self {
        Self::AtMost(Limits { bound, aim: Some(aim) })
    }

    const fn at_least(bound: f64, aim: f64) -> Self {
        Self::AtLeast(Limits { bound, aim: Some(aim) })
    }

    /// A bound without an aim.
    const fn below(bound: f64) -> Self {
        Self::AtMost(Limits { bound, aim: None })
    }

    pub(super) fn limits(self) -> Option<Limits> {
        match self {
            Self::AtMost(limits) | Self::AtLeast(limits) => Some(limits),
            Self::Number => None,
        }
    }

    /// Whether a number is on the good side of a limit. What is no number is on neither.
    pub(super) fn keeps(self, number: f64, limit: f64) -> bool {
        match self {
            Self::AtMost(_) => number <= limit,
            Self::AtLeast(_) => number >= limit,
            Self::Number => true,
        }
    }
}

impl RowPlan {
    const fn new(key: &'static str, quantity: Quantity, baseline: Baseline, goal: Goal) -> Self {
        Self { key, quantity, baseline, goal }
    }

    const fn time(key: &'static str, baseline: Baseline, goal: Goal) -> Self {
        Self::new(key, Quantity::Time, baseline, goal)
    }

    /// By how much the calibration may differ from itself, as a share, before a sample says nothing of the driver: half the margin.
    ///
    /// A row beside memcpy does the work of its baseline, so its margin is what the bound allows over it; so it is where there is no aim.
    /// Elsewhere work and baseline differ, and the margin is the way from the aim to the bound: a machine that moves a row by less than half
    /// of that does not carry one that keeps its aim over its bound.
    pub(super) fn tolerance(&self) -> f64 {
        let Some(Limits { bound, aim }) = self.goal.limits() else { return f64::INFINITY };
        if !self.quantity.depends_on_time() {
            return f64::INFINITY;
        }
        let margin = match (self.baseline, aim) {
            (Baseline::None, None) => f64::INFINITY,
            (Baseline::Memcpy(_), _) | (_, None) => (bound - 1.0).abs(),
            (_, Some(aim)) => ((bound - aim) / bound).abs(),
        };
        margin / 2.0
    }

    /// The unit of what a row reports.
    pub(super) fn unit(&self) -> &'static str {
        self.quantity.unit()
    }
}

/// A round. Rows that are compared with others come after them.
pub(super) const STEPS: &[Step] = &[
    perf(
        "--operation read --measure bandwidth --size 8 --chain 16 --depth 16",
        Calibration::UcxGet8,
        &[RowPlan::time("read_8_chain16", Baseline::UcxGet8, Goal::at_most(1.5, 1.0))],
    ),
    perf(
        "--operation read --measure latency --size 8",
        Calibration::UcxGet8,
        &[RowPlan::time("read_8_single", Baseline::UcxGet8, Goal::at_most(3.0, 2.0))],
    ),
    perf(
        "--operation read --measure bandwidth --size 4096 --chain 16 --depth 16",
        Calibration::OwnMemcpy,
        &[RowPlan::time("read_4k_chain16", Baseline::Memcpy("memcpy_4k"), Goal::at_most(1.7, 1.4))],
    ),
    perf(
        "--operation read --measure bandwidth --size 65536 --chain 16 --depth 16",
        Calibration::OwnMemcpy,
        &[RowPlan::time("read_64k", Baseline::Memcpy("memcpy_64k"), Goal::at_most(1.06, 1.03))],
    ),
    perf(
        "--operation write --measure bandwidth --size 65536 --chain 16 --depth 16",
        Calibration::OwnMemcpy,
        &[RowPlan::time("write_64k", Baseline::Memcpy("memcpy_64k"), Goal::at_most(1.06, 1.03))],
    ),
    perf(
        "--operation read --measure latency --size 1048576 --at passive",
        Calibration::OwnMemcpy,
        &[RowPlan::time("read_1m", Baseline::Memcpy("memcpy_1m"), Goal::at_most(1.02, 1.0))],
    ),
    perf(
        "--operation write --measure latency --size 1048576 --at passive",
        Calibration::OwnMemcpy,
        &[RowPlan::time("write_1m", Baseline::Memcpy("memcpy_1m"), Goal::at_most(1.02, 1.0))],
    ),
    perf(
        "--operation send --measure bandwidth --size 64 --chain 16 --depth 16",
        Calibration::LockPair,
        &[RowPlan::time("send_64_chain16", Baseline::Row("read_8_chain16"), Goal::at_most(2.0, 1.5))],
    ),
    perf(
        "--operation fast-register --pages 256",
        Calibration::LockPair,
        &[RowPlan::time("frmr_256", Baseline::None, Goal::at_most(400.0, 200.0))],
    ),
    perf(
        "--operation fast-register --pages 256 --scattered",
        Calibration::LockPair,
        &[RowPlan::time("frmr_256_scattered", Baseline::None, Goal::at_most(1000.0, 500.0))],
    ),
    Step {
        program: Measuring::Perf("--operation notify"),
        processors: Processors::Two,
        calibration: Calibration::CacheLine,
        rows: &[RowPlan::time("notify_cross", Baseline::ThreeRoundTrips, Goal::at_most(1000.0, 500.0))],
    },
    Step {
        program: Measuring::Scaling("--operation read --measure bandwidth --size 8 --chain 16 --depth 16"),
        processors: Processors::Two,
        calibration: Calibration::TwoLoops,
        rows: &[RowPlan::new("read_8_two_cpus", Quantity::Rate, Baseline::TwoLoops, Goal::at_least(0.9, 0.97))],
    },
    perf(
        "--operation read --measure latency --size 8 --connections 1000",
        Calibration::LockPair,
        &[RowPlan::time("read_8_1k_qps", Baseline::Row("read_8_single"), Goal::at_most(3.0, 1.5))],
    ),
    perf(
        "--operation read --measure latency --size 8 --connections 10000",
        Calibration::LockPair,
        &[RowPlan::time("read_8_10k_qps", Baseline::Row("read_8_single"), Goal::at_most(6.0, 3.0))],
    ),
    perf(
        "--operation connect",
        Calibration::LockPair,
        &[
            RowPlan::time("connect_cycle", Baseline::None, Goal::at_most(10_000.0, 4_000.0)),
            RowPlan::new("qp_bytes", Quantity::QueuePairBytes, Baseline::None, Goal::at_most(8192.0, 5120.0)),
        ],
    ),
    speed(
        ["8", "16", "32", "1000"],
        Calibration::LockPair,
        &[
            RowPlan::time("nd_read_8_chain16", Baseline::Row("read_8_chain16"), Goal::below(2.0)),
            RowPlan::new("nd_calls_polled", Quantity::SystemCalls, Baseline::None, Goal::below(0.01)),
        ],
    ),
    speed(
        ["8", "16", "16", "1000"],
        Calibration::LockPair,
        &[RowPlan::time("nd_read_8_one_chain", Baseline::None, Goal::Number)],
    ),
    speed(
        ["65536", "16", "32", "1000"],
        Calibration::OwnMemcpy,
        &[
            RowPlan::time("nd_read_64k", Baseline::Memcpy("memcpy_64k"), Goal::below(1.06)),
            RowPlan::new("nd_calls_polled_64k", Quantity::SystemCalls, Baseline::None, Goal::below(0.01)),
        ],
    ),
    speed(
        ["8", "16", "16", "0"],
        Calibration::LockPair,
        &[
            RowPlan::time("nd_read_8_unpolled", Baseline::None, Goal::Number),
            RowPlan::new("nd_calls_unpolled", Quantity::SystemCalls, Baseline::None, Goal::Number),
        ],
    ),
];

/// The longest time that the driver spends on a path, of all programs that report paths.
pub(super) struct Longest {
    pub(super) paths: fn(&Measurement) -> &Paths,
    pub(super) row: RowPlan,
}

pub(super) const LONGEST: &[Longest] = &[
    Longest {
        paths: |measured| &measured.dpc_paths,
        row: RowPlan::time("longest_dpc", Baseline::None, Goal::below(1_000_000.0)),
    },
    Longest {
        paths: |measured| &measured.dispatch_paths,
        row: RowPlan::time("longest_dispatch", Baseline::None, Goal::below(50_000.0)),
    },
];

const fn perf(words: &'static str, calibration: Calibration, rows: &'static [RowPlan]) -> Step {
    Step { program: Measuring::Perf(words), processors: Processors::One, calibration, rows }
}

/// The consumer, the poller of the driver, and one for the rest.
const fn speed(words: [&'static str; 4], calibration: Calibration, rows: &'static [RowPlan]) -> Step {
    Step { program: Measuring::Speed(words), processors: Processors::All, calibration, rows }
}

pub(super) fn rows() -> impl Iterator<Item = &'static RowPlan> {
    STEPS.iter().flat_map(|step| step.rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_row_comes_once_and_after_what_it_is_compared_with() {
        let mut before = BTreeSet::new();
        for row in rows() {
            if let Baseline::Row(other) = row.baseline {
                assert!(before.contains(other), "{} comes before {other}", row.key);
            }
            assert!(before.insert(row.key), "{} comes twice", row.key);
        }
    }

    #[test]
    fn the_calibration_of_a_row_is_what_it_is_compared_with() {
        for step in STEPS {
            for row in step.rows {
                let expected = match row.baseline {
                    Baseline::Memcpy(_) => Calibration::OwnMemcpy,
                    Baseline::UcxGet8 => Calibration::UcxGet8,
                    Baseline::ThreeRoundTrips => Calibration::CacheLine,
                    Baseline::TwoLoops => Calibration::TwoLoops,
                    Baseline::Row(_) | Baseline::None => continue,
                };
                assert_eq!(step.calibration, expected, "{}", row.key);
            }
        }
    }

    #[test]
    fn aims_are_within_their_bounds() {
        let limits = rows().filter_map(|row| Some((row, row.goal.limits()?)));
        for (row, Limits { bound, aim }) in limits {
            assert!(aim.is_none_or(|aim| row.goal.keeps(aim, bound)), "{}", row.key);
        }
    }
}
