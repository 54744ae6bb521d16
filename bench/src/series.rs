//! Numbers of several rounds, and what can be said about them.

use std::fmt;

use serde_json::{Value, json};

/// What was measured in each round, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    values: Vec<f64>,
}

impl Series {
    /// The measured values in order of the rounds.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The value below which a part of the others are; `part` is 0 to 1. NaN without values.
    pub fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        // Between the two nearest ranks, so that the median of an even count is their mean.
        let mut rank = 0;
        while rank < last && as_float(rank + 1) <= part * as_float(last) {
            rank += 1;
        }
        let Some(low) = sorted.get(rank) else {
            return f64::NAN;
        };
        let high = sorted.get(rank + 1).unwrap_or(low);
        low + (high - low) * (part * as_float(last) - as_float(rank))
    }

    /// The middle.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Half the distance between the quartiles, as a part of the median.
    pub fn spread(&self) -> f64 {
        (self.quantile(0.75) - self.quantile(0.25)) / 2.0 / self.median()
    }

    /// Each value divided by the other series' value of the same round: what both suffered from in
    /// a round cancels out.
    #[must_use]
    pub fn over(&self, other: &Self) -> Self {
        let pairs = self.values.iter().zip(&other.values);
        Self {
            values: pairs.map(|(a, b)| a / b).collect(),
        }
    }

    /// For `bench/results`.
    pub fn to_json(&self) -> Value {
        json!({
            "n": self.values.len(),
            "min": round(self.quantile(0.0)),
            "median": round(self.median()),
            "p90": round(self.quantile(0.9)),
            "max": round(self.quantile(1.0)),
            "spread": round(self.spread()),
            "values": self.values.iter().copied().map(round).collect::<Vec<_>>(),
        })
    }
}

impl Extend<f64> for Series {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, values: I) {
        self.values.extend(values);
    }
}

/// Exact for every count of rounds there will be.
fn as_float(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

fn round(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

/// Series by what was measured and on whom, in the order they came.
#[derive(Debug, Clone, Default)]
pub struct Table {
    rows: Vec<(String, String, Series)>,
}

impl Table {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the value of a round.
    pub fn add(&mut self, who: &str, what: &str, value: f64) {
        self.extend(who, what, [value]);
    }

    /// Adds values.
    pub fn extend(&mut self, who: &str, what: &str, values: impl IntoIterator<Item = f64>) {
        let mut rows = self.rows.iter_mut();
        if let Some((_, _, series)) = rows.find(|(a, b, _)| a == who && b == what) {
            series.extend(values);
            return;
        }
        let mut series = Series::default();
        series.extend(values);
        self.rows.push((who.to_owned(), what.to_owned(), series));
    }

    /// What was measured; empty if nothing was.
    pub fn series(&self, who: &str, what: &str) -> Series {
        let mut rows = self.rows.iter();
        rows.find(|(a, b, _)| a == who && b == what)
            .map(|(_, _, series)| series.clone())
            .unwrap_or_default()
    }

    /// The ratio of `who` to `other`, paired by round.
    pub fn ratio(&self, what: &str, who: &str, other: &str) -> Series {
        self.series(who, what).over(&self.series(other, what))
    }

    /// For `bench/results`.
    pub fn to_json(&self) -> Value {
        let rows = self.rows.iter().map(|(who, what, series)| {
            let mut row = series.to_json();
            row["who"] = who.as_str().into();
            row["what"] = what.as_str().into();
            row
        });
        rows.collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<28} {:<30} {:>4} {:>10} {:>10} {:>10} {:>10} {:>7}",
            "what", "who", "n", "min", "median", "p90", "max", "+-"
        )?;
        let mut rows: Vec<_> = self.rows.iter().collect();
        let order = |what: &str| self.rows.iter().position(|(_, other, _)| other == what);
        rows.sort_by_key(|(_, what, _)| order(what));
        for (who, what, series) in rows {
            writeln!(
                f,
                "{what:<28} {who:<30} {:>4} {:>10.2} {:>10.2} {:>10.2} {:>10.2} {:>6.1}%",
                series.values.len(),
                series.quantile(0.0),
                series.median(),
                series.quantile(0.9),
                series.quantile(1.0),
                series.spread() * 100.0,
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[f64]) -> Series {
        Series {
            values: values.to_vec(),
        }
    }

    #[test]
    fn a_median_is_in_the_middle_whatever_the_order() {
        assert!((series(&[9.0, 1.0, 5.0]).median() - 5.0).abs() < 1e-9);
        assert!((series(&[4.0, 1.0, 2.0, 3.0]).median() - 2.5).abs() < 1e-9);
        assert!(series(&[]).median().is_nan());
    }

    #[test]
    fn quantiles_end_at_the_extremes() {
        let series = series(&[3.0, 1.0, 2.0]);
        assert!((series.quantile(0.0) - 1.0).abs() < 1e-9);
        assert!((series.quantile(1.0) - 3.0).abs() < 1e-9);
    }

    #[test]
    fn ratios_are_made_within_a_round() {
        // The second round was twice as slow for both.
        let ratio = series(&[1.0, 2.0]).over(&series(&[2.0, 4.0]));
        assert_eq!(ratio, series(&[0.5, 0.5]));
    }
}
