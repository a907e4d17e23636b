//! What is measured: the programs of a round in their order, and the rows that come out of them with their bounds and aims.

use super::affinity::Processors;
use super::longest::Paths;
use super::reports::Measurement;

/// One program of a round.
pub(super) struct Step {
    pub(super) program: Measuring,
    pub(super) processors: Processors,
    pub(super) rows: &'static [RowPlan],
}

/// What measures.
pub(super) enum Measuring {
    /// UCX's get of 8 bytes.
    UcxGet8,
    /// The program that measures the machine: the name of a number of its report.
    Machine(&'static str),
    /// `ndkctl perf` with these words.
    Perf(&'static str),
    /// `ndkctl perf` with these words on one processor and on two.
    Scaling(&'static str),
    /// The program that reads through softnd.dll: size, chain, requests outstanding, how long the driver polls after the last request in microseconds.
    Speed([&'static str; 4]),
    /// `ndkctl nd perf` of two kernel hosts, across a stream between them.
    Stream(StreamWork),
}

/// What the client of two kernel hosts does.
#[derive(Clone, Copy)]
pub(super) struct StreamWork {
    pub(super) operation: &'static str,
    pub(super) size: &'static str,
    pub(super) depth: &'static str,
    /// Frames have a CRC, as is usual.
    pub(super) has_crc: bool,
    /// Nanoseconds that a request may take, to say how many are measured.
    pub(super) about: f64,
}

pub(super) struct RowPlan {
    pub(super) key: &'static str,
    pub(super) quantity: Quantity,
    pub(super) baseline: Baseline,
    /// None where the row is a number to look at.
    pub(super) goal: Option<Goal>,
}

/// What of the program's report is the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    /// Nanoseconds of a request.
    Time,
    /// What two processors do, as a share of twice what one does.
    Scaling,
    QueuePairBytes,
    SystemCalls,
}

/// What the value is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Baseline {
    /// Nothing: bound and aim are numbers of the value's unit.
    None,
    /// memcpy of the same bytes, which the program itself measures before and after.
    Memcpy,
    /// The same bytes by Linux's TCP, between the same two programs.
    Tcp,
    /// Another row, measured earlier in the round.
    Row(&'static str),
    /// Three times another row, taken off the value: bound and aim are what is left, in nanoseconds.
    ThreeTimes(&'static str),
}

/// What the ratio, or the value where there is no baseline, should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Goal {
    /// Else at most.
    pub(super) at_least: bool,
    /// The run fails beyond it.
    pub(super) bound: f64,
    /// What the row should come to; none where the bound is all that is asked.
    pub(super) aim: Option<f64>,
}

impl Quantity {
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Time => "ns",
            Self::Scaling => "of twice one",
            Self::QueuePairBytes => "bytes",
            Self::SystemCalls => "calls/request",
        }
    }
}

impl Baseline {
    /// What a row's entry says that it is compared with.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Memcpy => Some("memcpy"),
            Self::Tcp => Some("plain TCP"),
            Self::Row(other) | Self::ThreeTimes(other) => Some(other),
        }
    }
}

impl Goal {
    /// Whether a number is on the good side of a limit. What is no number is on neither.
    pub(super) fn keeps(self, number: f64, limit: f64) -> bool {
        if self.at_least { number >= limit } else { number <= limit }
    }
}

impl RowPlan {
    const fn new(key: &'static str, quantity: Quantity, baseline: Baseline) -> Self {
        Self { key, quantity, baseline, goal: None }
    }

    const fn time(key: &'static str, baseline: Baseline) -> Self {
        Self::new(key, Quantity::Time, baseline)
    }

    const fn at_most(self, bound: f64, aim: f64) -> Self {
        Self { goal: Some(Goal { at_least: false, bound, aim: Some(aim) }), ..self }
    }

    const fn at_least(self, bound: f64, aim: f64) -> Self {
        Self { goal: Some(Goal { at_least: true, bound, aim: Some(aim) }), ..self }
    }

    /// A bound without an aim.
    const fn below(self, bound: f64) -> Self {
        Self { goal: Some(Goal { at_least: false, bound, aim: None }), ..self }
    }
}

/// A round. Rows that are compared with others come after them.
pub(super) const STEPS: &[Step] = &[
    Step {
        program: Measuring::UcxGet8,
        processors: Processors::One,
        rows: &[RowPlan::time("ucx_get_8", Baseline::None)],
    },
    perf(
        "--operation read --measure bandwidth --size 8 --chain 16 --depth 16",
        &[RowPlan::time("read_8_chain16", Baseline::Row("ucx_get_8")).at_most(1.5, 1.0)],
    ),
    perf(
        "--operation read --measure latency --size 8",
        &[RowPlan::time("read_8_single", Baseline::Row("ucx_get_8")).at_most(3.0, 2.0)],
    ),
    perf(
        "--operation read --measure bandwidth --size 4096 --chain 16 --depth 16",
        &[RowPlan::time("read_4k_chain16", Baseline::Memcpy).at_most(1.7, 1.4)],
    ),
    perf(
        "--operation read --measure bandwidth --size 65536 --chain 16 --depth 16",
        &[RowPlan::time("read_64k", Baseline::Memcpy).at_most(1.06, 1.03)],
    ),
    perf(
        "--operation write --measure bandwidth --size 65536 --chain 16 --depth 16",
        &[RowPlan::time("write_64k", Baseline::Memcpy).at_most(1.06, 1.03)],
    ),
    perf(
        "--operation read --measure latency --size 1048576 --at passive",
        &[RowPlan::time("read_1m", Baseline::Memcpy).at_most(1.02, 1.0)],
    ),
    perf(
        "--operation write --measure latency --size 1048576 --at passive",
        &[RowPlan::time("write_1m", Baseline::Memcpy).at_most(1.02, 1.0)],
    ),
    perf(
        "--operation send --measure bandwidth --size 64 --chain 16 --depth 16",
        &[RowPlan::time("send_64_chain16", Baseline::Row("read_8_chain16")).at_most(2.0, 1.5)],
    ),
    perf("--operation fast-register --pages 256", &[RowPlan::time("frmr_256", Baseline::None).at_most(400.0, 200.0)]),
    perf(
        "--operation fast-register --pages 256 --scattered",
        &[RowPlan::time("frmr_256_scattered", Baseline::None).at_most(1000.0, 500.0)],
    ),
    two(Measuring::Machine("cache_line_round_trip"), &[RowPlan::time("cache_line_round_trip", Baseline::None)]),
    two(
        Measuring::Perf("--operation notify"),
        &[RowPlan::time("notify_cross", Baseline::ThreeTimes("cache_line_round_trip")).at_most(1000.0, 500.0)],
    ),
    two(Measuring::Machine("two_loops"), &[RowPlan::new("two_loops", Quantity::Scaling, Baseline::None)]),
    two(
        Measuring::Scaling("--operation read --measure bandwidth --size 8 --chain 16 --depth 16"),
        &[RowPlan::new("read_8_two_cpus", Quantity::Scaling, Baseline::Row("two_loops")).at_least(0.9, 0.97)],
    ),
    perf(
        "--operation read --measure latency --size 8 --connections 1000",
        &[RowPlan::time("read_8_1k_qps", Baseline::Row("read_8_single")).at_most(3.0, 1.5)],
    ),
    perf(
        "--operation read --measure latency --size 8 --connections 10000",
        &[RowPlan::time("read_8_10k_qps", Baseline::Row("read_8_single")).at_most(6.0, 3.0)],
    ),
    perf(
        "--operation connect",
        &[
            RowPlan::time("connect_cycle", Baseline::None).at_most(10_000.0, 4_000.0),
            RowPlan::new("qp_bytes", Quantity::QueuePairBytes, Baseline::None).at_most(8192.0, 5120.0),
        ],
    ),
    speed(
        ["8", "16", "32", "1000"],
        &[
            RowPlan::time("nd_read_8_chain16", Baseline::Row("read_8_chain16")).below(2.0),
            RowPlan::new("nd_calls_polled", Quantity::SystemCalls, Baseline::None).below(0.01),
        ],
    ),
    speed(["8", "16", "16", "1000"], &[RowPlan::time("nd_read_8_one_chain", Baseline::None)]),
    speed(
        ["65536", "16", "32", "1000"],
        &[
            RowPlan::time("nd_read_64k", Baseline::Memcpy).below(1.06),
            RowPlan::new("nd_calls_polled_64k", Quantity::SystemCalls, Baseline::None).below(0.01),
        ],
    ),
    speed(
        ["8", "16", "16", "0"],
        &[
            RowPlan::time("nd_read_8_unpolled", Baseline::None),
            RowPlan::new("nd_calls_unpolled", Quantity::SystemCalls, Baseline::None),
        ],
    ),
    stream(["read", "8", "1"], true, 30_000.0, &[RowPlan::time("stream_read_8", Baseline::Tcp)]),
    stream(
        ["read", "8", "16"],
        true,
        5_000.0,
        &[RowPlan::time("stream_read_8_by_16", Baseline::Row("stream_read_8")).below(TWO_ROUND_TRIPS)],
    ),
    stream(["write", "8", "16"], true, 5_000.0, &[RowPlan::time("stream_write_8_by_16", Baseline::Tcp)]),
    stream(
        ["read", "64K", "16"],
        true,
        70_000.0,
        &[RowPlan::time("stream_read_64k", Baseline::Tcp).below(OF_TCP_WITH_CRC)],
    ),
    stream(
        ["read", "64K", "16"],
        false,
        70_000.0,
        &[RowPlan::time("stream_read_64k_no_crc", Baseline::Tcp).below(OF_TCP_WITHOUT)],
    ),
    stream(
        ["write", "64K", "16"],
        true,
        70_000.0,
        &[RowPlan::time("stream_write_64k", Baseline::Tcp).below(OF_TCP_WITH_CRC)],
    ),
    stream(
        ["read", "1M", "16"],
        true,
        800_000.0,
        &[RowPlan::time("stream_read_1m", Baseline::Tcp).below(OF_TCP_WITH_CRC)],
    ),
    stream(
        ["read", "1M", "16"],
        false,
        800_000.0,
        &[RowPlan::time("stream_read_1m_no_crc", Baseline::Tcp).below(OF_TCP_WITHOUT)],
    ),
    stream(
        ["write", "1M", "16"],
        true,
        800_000.0,
        &[RowPlan::time("stream_write_1m", Baseline::Tcp).below(OF_TCP_WITH_CRC)],
    ),
];

/// How much longer than plain TCP a request may take: its rate is then 0.6 or 0.8 of TCP's.
const OF_TCP_WITH_CRC: f64 = 1.67;
const OF_TCP_WITHOUT: f64 = 1.25;

/// Sixteen Reads outstanding take two of one: a request two sixteenths of it.
const TWO_ROUND_TRIPS: f64 = 0.125;

/// The longest time that the driver spends on a path, of all programs that report paths.
pub(super) struct Longest {
    pub(super) paths: fn(&Measurement) -> &Paths,
    pub(super) row: RowPlan,
}

pub(super) const LONGEST: &[Longest] = &[
    Longest {
        paths: |measured| &measured.dpc_paths,
        row: RowPlan::time("longest_dpc", Baseline::None).below(1_000_000.0),
    },
    Longest {
        paths: |measured| &measured.dispatch_paths,
        row: RowPlan::time("longest_dispatch", Baseline::None).below(50_000.0),
    },
];

const fn perf(words: &'static str, rows: &'static [RowPlan]) -> Step {
    Step { program: Measuring::Perf(words), processors: Processors::One, rows }
}

const fn two(program: Measuring, rows: &'static [RowPlan]) -> Step {
    Step { program, processors: Processors::Two, rows }
}

/// Two kernel hosts, with what each has of threads.
const fn stream(
    [operation, size, depth]: [&'static str; 3],
    has_crc: bool,
    about: f64,
    rows: &'static [RowPlan],
) -> Step {
    let work = StreamWork { operation, size, depth, has_crc, about };
    Step { program: Measuring::Stream(work), processors: Processors::All, rows }
}

/// The consumer, the poller of the driver, and one for the rest.
const fn speed(words: [&'static str; 4], rows: &'static [RowPlan]) -> Step {
    Step { program: Measuring::Speed(words), processors: Processors::All, rows }
}

pub(super) fn rows() -> impl Iterator<Item = &'static RowPlan> {
    STEPS.iter().flat_map(|step| step.rows).chain(LONGEST.iter().map(|longest| &longest.row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_row_comes_once_and_after_what_it_is_compared_with() {
        let mut before = BTreeSet::new();
        for row in rows() {
            if let Baseline::Row(other) | Baseline::ThreeTimes(other) = row.baseline {
                assert!(before.contains(other), "{} comes before {other}", row.key);
            }
            assert!(before.insert(row.key), "{} comes twice", row.key);
        }
    }

    #[test]
    fn aims_are_within_their_bounds() {
        for (key, goal) in rows().filter_map(|row| Some((row.key, row.goal?))) {
            assert!(goal.aim.is_none_or(|aim| goal.keeps(aim, goal.bound)), "{key}");
        }
    }
}
