//! Print the figures of an application at its end.

use serde::{Deserialize, Serialize};

use crate::series::{MEDIAN, P99, percentile};

/// Frames that came and went, as one line of JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Times that there was no room for a frame.
    pub full: u64,
    /// Frames lost because the application was too slow, as far as the port counts.
    pub dropped: u64,
    /// How long it ran.
    pub seconds: f64,
    /// Round trips, if it made any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trips: Option<Trips>,
}

/// Times of round trips in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Trips {
    /// Datagrams that were answered.
    pub answered: u64,
    /// Datagrams that were not answered in time.
    pub lost: u64,
    /// The middle.
    pub p50: f64,
    /// One in a hundred took longer.
    pub p99: f64,
}

impl Trips {
    /// Of these times.
    pub fn of(mut micros: Vec<f64>, lost: u64) -> Self {
        micros.sort_by(f64::total_cmp);
        Self {
            answered: micros.len() as u64,
            lost,
            p50: percentile(&micros, MEDIAN),
            p99: percentile(&micros, P99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trips_are_told_whatever_their_order() {
        let trips = Trips::of((0..=100).rev().map(f64::from).collect(), 2);
        assert_eq!((trips.answered, trips.lost), (101, 2));
        assert!((trips.p50 - 50.0).abs() < 1e-9 && (trips.p99 - 99.0).abs() < 1e-9);
    }

    #[test]
    fn a_tally_without_trips_does_not_speak_of_them() {
        let tally = Tally {
            received: 7,
            ..Tally::default()
        };
        let text = serde_json::to_string(&tally).unwrap();
        assert!(!text.contains("trips"), "{text}");
        assert_eq!(serde_json::from_str::<Tally>(&text).unwrap(), tally);
    }
}
