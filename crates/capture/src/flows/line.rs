//! Writes lines of the flow log: one JSON object each. Pure.

use agent_common::drop::DropReason;
use serde::Serialize;

use crate::flows::key::Address;
use crate::flows::table::{Counts, Interval, Outcome, Row};
use crate::join::Direction;

/// Names of a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct About {
    /// Its network.
    pub network: String,
    /// Namespace of its pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Its container.
    pub container: String,
    /// The interface in the pod.
    pub interface: String,
}

/// Facts that the lines of an interval have in common.
#[derive(Debug, Clone, Copy)]
pub struct Header<'a> {
    /// The node.
    pub node: &'a str,
    /// End of the interval, nanoseconds since 1970.
    pub end_ns: u64,
    /// Length of the interval, milliseconds.
    pub interval_ms: u64,
    /// Frames of which one is sampled.
    pub one_of: u32,
    /// `CLOCK_REALTIME` at the zero of `CLOCK_MONOTONIC`, nanoseconds.
    pub epoch_ns: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Common<'a> {
    time: String,
    kind: &'static str,
    node: &'a str,
    interval_ms: u64,
    one_of: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FlowLine<'a> {
    #[serde(flatten)]
    common: Common<'a>,
    #[serde(flatten)]
    about: &'a About,
    direction: &'static str,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    source: Address,
    destination: Address,
    protocol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp_type: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vlan: Option<u16>,
    #[serde(flatten)]
    counts: CountsLine,
    first_seen: String,
    last_seen: String,
}

/// Numbers of a line: samples, and packets and bytes times the rate.
#[derive(Serialize)]
struct CountsLine {
    samples: u64,
    packets: u64,
    bytes: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RestLine<'a> {
    #[serde(flatten)]
    common: Common<'a>,
    #[serde(flatten)]
    about: &'a About,
    #[serde(flatten)]
    counts: CountsLine,
    lost_samples: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EndLine<'a> {
    #[serde(flatten)]
    common: Common<'a>,
    ports: usize,
    flows: usize,
    overflow_samples: u64,
    lost_samples: u64,
}

impl<'a> Header<'a> {
    fn common(&self, kind: &'static str) -> Common<'a> {
        Common {
            time: time(self.end_ns),
            kind,
            node: self.node,
            interval_ms: self.interval_ms,
            one_of: self.one_of,
        }
    }

    fn counts(&self, counts: &Counts) -> CountsLine {
        let rate = u64::from(self.one_of);
        CountsLine {
            samples: counts.samples,
            packets: counts.packets.saturating_mul(rate),
            bytes: counts.bytes.saturating_mul(rate),
        }
    }
}

/// Adds the lines of a port's interval to `to`, and returns their number.
///
/// # Errors
/// Never: every field can be written.
pub fn of_port(
    to: &mut Vec<u8>,
    header: &Header<'_>,
    about: &About,
    interval: &Interval,
) -> serde_json::Result<usize> {
    for row in &interval.rows {
        write(to, &flow(header, about, row))?;
    }
    let has_rest = interval.overflow.samples > 0 || interval.lost > 0;
    if has_rest {
        let rest = RestLine {
            common: header.common("rest"),
            about,
            counts: header.counts(&interval.overflow),
            lost_samples: interval.lost,
        };
        write(to, &rest)?;
    }
    Ok(interval.rows.len() + usize::from(has_rest))
}

/// Adds the last line of an interval to `to`: sums over these ports.
///
/// # Errors
/// As [`of_port`].
pub fn end(
    to: &mut Vec<u8>,
    header: &Header<'_>,
    ports: usize,
    all: &[(u64, Interval)],
) -> serde_json::Result<()> {
    let intervals = || all.iter().map(|(_, interval)| interval);
    let line = EndLine {
        common: header.common("end"),
        ports,
        flows: intervals().map(|interval| interval.rows.len()).sum(),
        overflow_samples: intervals().map(|it| it.overflow.samples).sum(),
        lost_samples: intervals().map(|interval| interval.lost).sum(),
    };
    write(to, &line)
}

fn write(to: &mut Vec<u8>, line: &impl Serialize) -> serde_json::Result<()> {
    serde_json::to_writer(&mut *to, line)?;
    to.push(b'\n');
    Ok(())
}

fn flow<'a>(header: &Header<'a>, about: &'a About, row: &Row) -> FlowLine<'a> {
    let Row {
        direction,
        key,
        outcome,
        counts,
    } = row;
    let (verdict, reason) = match outcome {
        Outcome::Forwarded => ("forwarded", None),
        Outcome::Dropped(number) => {
            let reason = DropReason::from_number(*number);
            ("dropped", Some(reason.map_or("unknown", DropReason::label)))
        }
        Outcome::Unknown => ("unknown", None),
    };
    let (first, last) = (counts.first_ns, counts.last_ns);
    FlowLine {
        common: header.common("flow"),
        about,
        direction: match direction {
            Direction::FromPod => "egress",
            Direction::ToPod => "ingress",
        },
        verdict,
        reason,
        source: key.source,
        destination: key.destination,
        protocol: key.protocol_name(),
        source_port: key.ports.map(|ports| ports.0),
        destination_port: key.ports.map(|ports| ports.1),
        icmp_type: key.icmp.map(|icmp| icmp.0),
        icmp_code: key.icmp.map(|icmp| icmp.1),
        vlan: key.vlan,
        counts: header.counts(counts),
        first_seen: time(header.epoch_ns.saturating_add(first)),
        last_seen: time(header.epoch_ns.saturating_add(last)),
    }
}

/// Writes a time as RFC 3339, in UTC and with milliseconds.
fn time(since_1970_ns: u64) -> String {
    const DAY: u64 = 86_400;
    let seconds = since_1970_ns / 1_000_000_000;
    let milliseconds = since_1970_ns / 1_000_000 % 1000;
    let (year, month, day) = date(seconds / DAY);
    let (hour, minute, second) = (seconds % DAY / 3600, seconds % 3600 / 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// The date of a day since 1970, by years and months that are counted off.
fn date(mut days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests;
