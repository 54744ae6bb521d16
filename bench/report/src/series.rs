//! Numbers of several rounds, and what can be said about them.

use serde::{Deserialize, Serialize};

/// A percentile in thousandths of a percent, exact unlike a fraction of floats.
pub type Percentile = u32;
/// The middle.
pub const MEDIAN: Percentile = 50_000;
/// One in a hundred is above it.
pub const P99: Percentile = 99_000;
const ALL: Percentile = 100_000;

/// Values of the rounds, in order; `None` where a round failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Series {
    values: Vec<Option<f64>>,
}

/// Figures of a series in a table, in the units of the series.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many values.
    pub n: usize,
    /// The smallest.
    pub min: f64,
    /// The lower quartile.
    pub p25: f64,
    /// The middle.
    pub median: f64,
    /// The upper quartile.
    pub p75: f64,
    /// Nine of ten are below.
    pub p90: f64,
    /// 99 of 100 are below; the largest of fewer.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Half the distance of the quartiles as a part of the median.
    ///
    /// Infinite where the median is 0 and the quartiles are not the same.
    pub fn spread(&self) -> f64 {
        let half = (self.p75 - self.p25) / 2.0;
        if half == 0.0 {
            return 0.0;
        }
        (half / self.median).abs()
    }
}

impl Series {
    /// Sets the value of a round; rounds in between that have none stay empty.
    pub fn put(&mut self, round: usize, value: f64) {
        if self.values.len() <= round {
            self.values.resize(round + 1, None);
        }
        if let Some(place) = self.values.get_mut(round) {
            *place = Some(round_off(value)).filter(|value| value.is_finite());
        }
    }

    /// How many rounds, failed ones included.
    pub fn rounds(&self) -> usize {
        self.values.len()
    }

    /// The values that there are, in order of the rounds.
    pub fn present(&self) -> impl Iterator<Item = f64> + '_ {
        self.values.iter().flatten().copied()
    }

    /// Divides each value by the other series' value of the same round.
    ///
    /// Influences that both had in a round cancel out.
    #[must_use]
    pub fn over(&self, other: &Self) -> Self {
        let pairs = self.values.iter().zip(&other.values);
        let ratio = |(a, b): (&Option<f64>, &Option<f64>)| match (a, b) {
            (Some(a), Some(b)) if *b != 0.0 => Some(round_off(a / b)),
            _ => None,
        };
        Self {
            values: pairs.map(ratio).collect(),
        }
    }

    /// Nothing without values.
    pub fn summary(&self) -> Option<Summary> {
        let mut sorted: Vec<f64> = self.present().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |part| round_off(percentile(&sorted, part));
        (!sorted.is_empty()).then(|| Summary {
            n: sorted.len(),
            min: at(0),
            p25: at(25_000),
            median: at(MEDIAN),
            p75: at(75_000),
            p90: at(90_000),
            p99: at(P99),
            max: at(ALL),
        })
    }

    /// The middle; NaN without values.
    pub fn median(&self) -> f64 {
        self.summary().map_or(f64::NAN, |summary| summary.median)
    }
}

impl FromIterator<f64> for Series {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut series = Self::default();
        for (round, value) in values.into_iter().enumerate() {
            series.put(round, value);
        }
        series
    }
}

/// Returns the value below which a part of the sorted values are, interpolated.
///
/// It is between the two nearest ranks; NaN without values.
pub fn percentile(sorted: &[f64], part: Percentile) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = last as u64 * u64::from(part.min(ALL));
    let rank = usize::try_from(place / u64::from(ALL)).unwrap_or(last);
    let Some(low) = sorted.get(rank) else {
        return f64::NAN;
    };
    let high = sorted.get(rank + 1).unwrap_or(low);
    low + (high - low) * (place % u64::from(ALL)) as f64 / f64::from(ALL)
}

/// Six digits: enough for any figure here, and half the size of the file.
pub fn round_off(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10_f64.powf(5.0 - value.abs().log10().floor());
    if scale.is_finite() {
        (value * scale).round() / scale
    } else {
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[f64]) -> Series {
        values.iter().copied().collect()
    }

    #[test]
    fn a_median_is_in_the_middle_whatever_the_order() {
        assert!((series(&[9.0, 1.0, 5.0]).median() - 5.0).abs() < 1e-9);
        assert!((series(&[4.0, 1.0, 2.0, 3.0]).median() - 2.5).abs() < 1e-9);
        assert!(series(&[]).median().is_nan());
    }

    #[test]
    fn percentiles_end_at_the_extremes_and_lie_between_ranks() {
        let sorted = [1.0, 2.0, 3.0, 4.0, 5.0];
        for (part, expected) in [
            (0, 1.0),
            (25_000, 2.0),
            (90_000, 4.6),
            (100_000, 5.0),
            (200_000, 5.0),
        ] {
            assert!(
                (percentile(&sorted, part) - expected).abs() < 1e-9,
                "{part}"
            );
        }
    }

    #[test]
    fn ratios_are_made_within_a_round_and_skip_what_failed() {
        // The second round was twice as slow for both; in the third one of them failed.
        let mut other = series(&[2.0, 4.0]);
        other.put(3, 8.0);
        let ratio = series(&[1.0, 2.0, 3.0, 4.0]).over(&other);
        assert_eq!(ratio.present().collect::<Vec<_>>(), [0.5, 0.5, 0.5]);
        assert_eq!(ratio.rounds(), 4);
    }

    #[test]
    fn a_spread_is_half_the_quartiles_distance_over_the_median() {
        let summary = series(&[8.0, 9.0, 10.0, 11.0, 12.0]).summary().unwrap();
        assert!((summary.spread() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_failed_round_survives_being_written_and_read() {
        let mut before = series(&[1.5]);
        before.put(2, 2.5);
        before.put(3, f64::NAN);
        let text = serde_json::to_string(&before).unwrap();
        assert_eq!(text, "[1.5,null,2.5,null]");
        assert_eq!(serde_json::from_str::<Series>(&text).unwrap(), before);
    }

    #[test]
    fn numbers_are_kept_to_six_digits() {
        assert!((round_off(1_234.567_89) - 1_234.57).abs() < 1e-9);
        assert!((round_off(0.000_123_456_78) - 0.000_123_457).abs() < 1e-12);
    }
}
