//! Validates rates and bursts.

use serde::Serialize;

use super::{Faults, FieldErrors, FieldProblem};

/// The smallest rate, bit/s.
///
/// Kubernetes refuses smaller ones in its bandwidth annotations too.
pub const RATE_MIN: u64 = 1_000;
/// The largest rate, bit/s; Kubernetes' as well.
pub const RATE_MAX: u64 = 1_000_000_000_000_000;

/// Names of the fields for a direction: rate, then burst.
pub(super) type Names = [&'static str; 2];
pub(super) const INGRESS: Names = ["ingressRate", "ingressBurst"];
pub(super) const EGRESS: Names = ["egressRate", "egressBurst"];

/// Limits in both directions, as seen from the pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bandwidth {
    /// Into the pod.
    pub ingress: Limit,
    /// Out of the pod.
    pub egress: Limit,
}

/// Limit of one direction, as one object has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// bit/s, [`RATE_MIN`] to [`RATE_MAX`]; 0 is no limit, whatever the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// Bits, not 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
}

impl Limit {
    /// Returns this limit, or `default` if it has no rate; a rate has its own burst.
    #[must_use]
    pub fn or(self, default: Self) -> Self {
        if self.rate.is_some() {
            self
        } else {
            Self {
                rate: default.rate,
                burst: self.burst.or(default.burst),
            }
        }
    }

    fn is_limited(self) -> bool {
        self.rate.is_some_and(|rate| rate > 0)
    }
}

impl Bandwidth {
    /// [`Limit::or`] for each direction.
    #[must_use]
    pub fn or(self, defaults: Self) -> Self {
        Self {
            ingress: self.ingress.or(defaults.ingress),
            egress: self.egress.or(defaults.egress),
        }
    }

    /// Every burst limits something.
    pub(crate) fn check_bursts(&self) -> Result<(), FieldErrors> {
        let mut faults = Faults::default();
        note_idle_bursts(&mut faults, self);
        faults.finish(())
    }
}

pub(super) fn note_idle_bursts(faults: &mut Faults, bandwidth: &Bandwidth) {
    for ([rate, burst], limit) in [(INGRESS, bandwidth.ingress), (EGRESS, bandwidth.egress)] {
        if limit.burst.is_some() && !limit.is_limited() {
            faults.push(
                format!("spec.{burst}"),
                FieldProblem::BurstWithoutRate { rate },
            );
        }
    }
}

/// The rate and the burst of one direction, as written.
pub(super) fn limit(
    faults: &mut Faults,
    [rate_name, burst_name]: Names,
    rate: Option<i64>,
    burst: Option<i64>,
) -> Limit {
    let written = rate.is_some();
    let rate = rate.and_then(|found| {
        let rate = not_negative(found).and_then(|rate| match rate {
            0 | RATE_MIN..=RATE_MAX => Ok(rate),
            _ => Err(FieldProblem::RateRange { found }),
        });
        faults.take(format!("spec.{rate_name}"), rate)
    });
    let burst = burst
        .and_then(|found| faults.take(format!("spec.{burst_name}"), not_negative(found)))
        // With the rate refused, "a burst without a rate" would only repeat that error.
        .filter(|burst| *burst > 0 && (rate.is_some() || !written));
    Limit { rate, burst }
}

fn not_negative(found: i64) -> Result<u64, FieldProblem> {
    u64::try_from(found).map_err(|_| FieldProblem::Negative { found })
}
