//! A histogram of durations with fixed log-linear buckets: sixteen per power of two, so a reading is off by at most 1/16,
//! and nothing is allocated while measuring.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Buckets: one each for 0 … 15 ns, then sixteen per power of two up to 2⁴¹ ns (36 minutes); the last one takes all longer ones.
pub const HISTOGRAM_BUCKETS: usize = 608;

const SUB_BUCKET_BITS: u32 = 4;
const SUB_BUCKETS: u64 = 1 << SUB_BUCKET_BITS;

/// Durations in nanoseconds. Some 2.5 KiB: it is kept in the pool or in a result page, never on a kernel stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Histogram {
    /// Samples recorded.
    pub count: u64,
    /// Sum of all samples, saturating.
    pub sum: u64,
    /// Shortest sample, exact; 0 without samples.
    pub min: u64,
    /// Longest sample, exact; 0 without samples.
    pub max: u64,
    /// Samples per bucket, saturating.
    pub buckets: [u32; HISTOGRAM_BUCKETS],
}

impl Histogram {
    /// No samples.
    pub const EMPTY: Self = Self { count: 0, sum: 0, min: 0, max: 0, buckets: [0; HISTOGRAM_BUCKETS] };

    /// Adds one sample.
    pub fn record(&mut self, nanoseconds: u64) {
        self.min = if self.count == 0 { nanoseconds } else { self.min.min(nanoseconds) };
        self.max = self.max.max(nanoseconds);
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(nanoseconds);
        if let Some(bucket) = self.buckets.get_mut(bucket_of(nanoseconds)) {
            *bucket = bucket.saturating_add(1);
        }
    }

    /// Adds all samples of another histogram.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket = bucket.saturating_add(*more);
        }
    }

    /// The mean; `None` without samples.
    #[must_use]
    pub const fn mean(&self) -> Option<u64> {
        self.sum.checked_div(self.count)
    }

    /// The duration that `per_mille` of 1000 samples do not exceed, as the middle of its bucket, within min and max;
    /// `None` without samples.
    #[must_use]
    pub fn quantile(&self, per_mille: u32) -> Option<u64> {
        let counted: u64 = self.buckets.iter().map(|&count| u64::from(count)).sum();
        if counted == 0 {
            return None;
        }
        let per_mille = u128::from(per_mille.min(1000));
        let rank = (u128::from(counted) * per_mille).div_ceil(1000).max(1);
        let mut below = 0_u128;
        for (index, &count) in self.buckets.iter().enumerate() {
            below += u128::from(count);
            if below >= rank {
                return Some(self.middle_of(index));
            }
        }
        Some(self.max)
    }

    fn middle_of(&self, bucket: usize) -> u64 {
        let low = lower_bound(bucket);
        let width = lower_bound(bucket + 1) - low;
        // From outside, min may be above max; `clamp` would panic on that.
        (low + width / 2).max(self.min).min(self.max)
    }
}

/// The bucket that counts a duration.
const fn bucket_of(nanoseconds: u64) -> usize {
    if nanoseconds < SUB_BUCKETS {
        return nanoseconds as usize;
    }
    let exponent = nanoseconds.ilog2();
    let shift = exponent - SUB_BUCKET_BITS;
    let sub_bucket = (nanoseconds >> shift) & (SUB_BUCKETS - 1);
    let bucket = (shift as usize + 1) * SUB_BUCKETS as usize + sub_bucket as usize;
    if bucket < HISTOGRAM_BUCKETS { bucket } else { HISTOGRAM_BUCKETS - 1 }
}

/// The shortest duration of a bucket. Defined for one past the last bucket too.
const fn lower_bound(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SUB_BUCKETS {
        return bucket;
    }
    let shift = bucket / SUB_BUCKETS - 1;
    (SUB_BUCKETS + bucket % SUB_BUCKETS) << shift
}

const _: () = {
    assert!(size_of::<Histogram>() == 32 + 4 * HISTOGRAM_BUCKETS);
    assert!(core::mem::offset_of!(Histogram, buckets) == 32);
    assert!(lower_bound(HISTOGRAM_BUCKETS) == 1 << 41);
};

#[cfg(test)]
mod tests {
    use super::{HISTOGRAM_BUCKETS, Histogram, bucket_of, lower_bound};

    #[test]
    fn every_bucket_starts_where_the_one_before_ends() {
        for bucket in 0..HISTOGRAM_BUCKETS {
            assert_eq!(bucket_of(lower_bound(bucket)), bucket);
            assert_eq!(bucket_of(lower_bound(bucket + 1) - 1), bucket);
        }
    }

    #[test]
    fn the_last_bucket_takes_everything_longer() {
        assert_eq!(bucket_of(1 << 41), HISTOGRAM_BUCKETS - 1);
        assert_eq!(bucket_of(u64::MAX), HISTOGRAM_BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_within_a_sixteenth() {
        let mut histogram = Histogram::EMPTY;
        for sample in 1..=10_000_u64 {
            histogram.record(sample * 7);
        }
        for per_mille in [1, 10, 250, 500, 990, 999] {
            let exact = u64::from(per_mille) * 10 * 7;
            let reading = histogram.quantile(per_mille).unwrap();
            assert!(reading.abs_diff(exact) <= exact / 16 + 1, "{per_mille}: {reading} for {exact}");
        }
        assert_eq!(histogram.quantile(1000).map(|longest| longest <= histogram.max), Some(true));
        assert_eq!((histogram.min, histogram.max, histogram.mean()), (7, 70_000, Some(35_003)));
    }

    #[test]
    fn one_sample_is_every_quantile() {
        let mut histogram = Histogram::EMPTY;
        histogram.record(1_234_567);
        for per_mille in [0, 1, 500, 1000, u32::MAX] {
            assert_eq!(histogram.quantile(per_mille), Some(1_234_567));
        }
    }

    #[test]
    fn without_samples_there_is_nothing_to_say() {
        assert_eq!(Histogram::EMPTY.quantile(500), None);
        assert_eq!(Histogram::EMPTY.mean(), None);
    }

    #[test]
    fn merging_is_recording_both() {
        let (mut all, mut even, mut odd) = (Histogram::EMPTY, Histogram::EMPTY, Histogram::EMPTY);
        for sample in 5..5000 {
            all.record(sample);
            if sample % 2 == 0 { even.record(sample) } else { odd.record(sample) }
        }
        let mut merged = Histogram::EMPTY;
        merged.merge(&Histogram::EMPTY);
        merged.merge(&even);
        merged.merge(&odd);
        assert_eq!(merged, all);
    }

    #[test]
    fn counters_saturate_and_nonsense_from_outside_does_not_panic() {
        let mut histogram = Histogram::EMPTY;
        histogram.buckets = [u32::MAX; HISTOGRAM_BUCKETS];
        histogram.sum = u64::MAX;
        histogram.count = u64::MAX;
        histogram.record(u64::MAX);
        assert_eq!((histogram.sum, histogram.count), (u64::MAX, u64::MAX));
        histogram.min = u64::MAX;
        histogram.max = 0;
        assert_eq!(histogram.quantile(500), Some(0));
    }
}
