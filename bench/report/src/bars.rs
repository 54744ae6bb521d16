//! Bars that podnet has set itself, and how far a run is from each.
//!
//! A bar is a bound of a figure, of a ratio, or of a quotient of two percentiles. It is reached, missed, or
//! not told: where the rounds of a ratio spread too far ([`crate::spread::LIMIT`]), and where no case of the run
//! measures it.

use std::fmt::Write;

use super::text::number;
use super::{Measure, Report};
use crate::series::Summary;
use crate::spread::{self, Style};
use crate::{revision, tables};

/// Cases of the bars, for one run: `cargo xtask bench --case …`.
pub const CASES: [&str; 11] = [
    "udp",
    "cni",
    "parallel",
    "busy-node",
    "add-by-ports",
    "many-shaped",
    "sockets",
    "agent",
    "policies",
    "guarded",
    "memif",
];

/// A number of a measure.
#[derive(Debug, Clone, Copy)]
enum Of {
    /// A figure's median.
    Figure,
    /// The median of a subject's ratios over another.
    Over(&'static str),
    /// The 90th percentile of a figure over its median.
    Tail,
}

/// A bound.
#[derive(Debug, Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// One bar.
struct Bar {
    text: &'static str,
    /// Case, group and measure.
    place: (&'static str, &'static str, &'static str),
    subject: &'static str,
    of: Of,
    bound: Bound,
}

use Bound::{AtLeast, AtMost};
use Of::{Figure, Over, Tail};

/// Case of pods one after the other.
const CNI: &str = "cni";
const DEL_OLD: &str = "DEL of a pod older than a minute";
const INTERRUPTS: &str = "CPU in interrupts, 50 pods of 10 Mbit/s both ways";
const RATES: &str = "Rate of a stream of 50 pods both ways";
const AF_PACKET: &str = "podnet veth, AF_PACKET";
const TAP: &str = "testpmd, TAP";
const VETH: &str = "bare veth pair";
const NO_POLICY: &str = "no policy";
const POLICY_UDP: (&str, &str, &str) = ("policies", "", "UDP 64 B, 1 CPU");
const POLICY_ADDED: (&str, &str, &str) = (
    "policies",
    "Added cost, over what as many policies of nftables add",
    "UDP 64 B, never answered, 1 CPU, added",
);
const JUDGED: &str = "podnet switch, judged";

#[rustfmt::skip]
const BARS: [Bar; 33] = [
    bar("ADD among 4,000 ports, over 100, p50", ("add-by-ports", "", "ADD, p50"), "4,000 ports", Over("100 ports"), AtMost(1.15)),
    bar("ADD among 4,000 ports, over 100, p90", ("add-by-ports", "", "ADD, p90"), "4,000 ports", Over("100 ports"), AtMost(1.15)),
    bar("ADD, IPv4, p50, ms", (CNI, "", "ADD, IPv4"), "podnet", Figure, AtMost(2.0)),
    bar("ADD, IPv4, p90 over p50", (CNI, "", "ADD, IPv4"), "podnet", Tail, AtMost(1.3)),
    bar("ADD of 50 at once on a busy node, over bridge", ("busy-node", "", "ADD of 50 at once on a busy node, all"), "podnet", Over("bridge"), AtMost(0.5)),
    bar("DEL of a pod older than a minute, over the kernel alone", (CNI, "", DEL_OLD), "podnet", Over("kernel alone"), AtMost(1.1)),
    bar("DEL of 10 at once, over bridge", ("parallel", "", "DEL of 10 at once, all"), "podnet", Over("bridge"), AtMost(0.15)),
    bar("DEL of 50 at once, over bridge", ("parallel", "", "DEL of 50 at once, all"), "podnet", Over("bridge"), AtMost(0.15)),
    bar("DEL of 250 at once, over bridge", ("parallel", "", "DEL of 250 at once, all"), "podnet", Over("bridge"), AtMost(0.15)),
    bar("Interrupts of 50 limited pods, over bridge + bandwidth", ("many-shaped", "", INTERRUPTS), "podnet", Over("bridge + bandwidth"), AtMost(1.2)),
    bar("Slowest of their streams, % of the rate", ("many-shaped", RATES, "slowest"), "podnet", Figure, AtLeast(97.0)),
    bar("Fastest of their streams, % of the rate", ("many-shaped", RATES, "fastest"), "podnet", Figure, AtMost(103.0)),
    bar("Packet on an L2 network, one CPU, over a veth pair", ("udp", "", "UDP 64 B, 1 CPU"), "podnet L2", Over(VETH), AtMost(1.08)),
    bar("Packet on an L3 network, one CPU, over a veth pair", ("udp", "", "UDP 64 B, 1 CPU"), "podnet L3", Over(VETH), AtMost(1.10)),
    bar("CPU at rest, 1,000 ports, ms per second", ("agent", "Agent's CPU", "at rest, 1000 attachments"), "podnet", Figure, AtMost(3.0)),
    bar("memif to a kernel pod, 64 B, over testpmd's TAP", ("sockets", "", "UDP 64 B, to a kernel pod"), "podnet memif", Over(TAP), AtLeast(1.0)),
    bar("memif to a kernel pod, 1500 B, over testpmd's TAP", ("sockets", "", "UDP 1500 B, to a kernel pod"), "podnet memif", Over(TAP), AtLeast(1.0)),
    bar("AF_XDP from a kernel pod, 64 B, over AF_PACKET", ("sockets", "", "UDP 64 B, from a kernel pod"), "podnet AF_XDP", Over(AF_PACKET), AtLeast(1.0)),
    bar("AF_XDP from a kernel pod, 1500 B, over AF_PACKET", ("sockets", "", "UDP 1500 B, from a kernel pod"), "podnet AF_XDP", Over(AF_PACKET), AtLeast(1.0)),
    bar("Memory of the agent, 1,000 ports, MiB", ("add-by-ports", "", "Agent's memory (RSS), by ports"), "1,000 ports", Figure, AtMost(60.0)),
    bar("Memory of the agent, 4,000 ports, MiB", ("add-by-ports", "", "Agent's memory (RSS), by ports"), "4,000 ports", Figure, AtMost(60.0)),
    bar("UDP under 1 policy, over none", POLICY_UDP, "1 policy", Over(NO_POLICY), AtMost(1.10)),
    bar("UDP under 1,000 policies, over none", POLICY_UDP, "1,000 policies", Over(NO_POLICY), AtMost(1.10)),
    bar("UDP under 1,000 policies, over 1", POLICY_UDP, "1,000 policies", Over("1 policy"), AtMost(1.03)),
    bar("TCP stream under 1,000 policies, over none", ("policies", "", "TCP stream, 1 CPU"), "1,000 policies", Over(NO_POLICY), AtLeast(0.97)),
    bar("Added by 1 policy to UDP never answered, over nftables'", POLICY_ADDED, "1 policy", Figure, AtMost(0.15)),
    bar("Added by 100 policies to UDP never answered, over nftables'", POLICY_ADDED, "100 policies", Figure, AtMost(0.01)),
    bar("New connections under 100 policies, over nftables", ("policies", "", "TCP connections, 1 CPU"), "100 policies", Over("nftables, 100"), AtLeast(1.2)),
    bar("Label among 10,000 members under 1,000 policies, p99, ms", ("guarded", "", "Label to packet, p99 of all"), "1,000 policies", Figure, AtMost(100.0)),
    bar("ADD under 1,000 policies, over none, p50", ("guarded", "", "ADD, p50"), "1,000 policies", Over(NO_POLICY), AtMost(1.25)),
    bar("Memory of the agent, 10,000 members, 1,000 policies, MiB", ("guarded", "", "Agent's memory (RSS)"), "1,000 policies", Figure, AtMost(150.0)),
    bar("memif to memif, judged, 64 B, over not judged", ("memif", "", "memif to memif, 64 B, judged in turn"), JUDGED, Over("podnet switch"), AtLeast(0.85)),
    bar("memif to memif, judged, 1500 B, over not judged", ("memif", "", "memif to memif, 1500 B, judged in turn"), JUDGED, Over("podnet switch"), AtLeast(0.85)),
];

const fn bar(
    text: &'static str,
    place: (&'static str, &'static str, &'static str),
    subject: &'static str,
    of: Of,
    bound: Bound,
) -> Bar {
    Bar {
        text,
        place,
        subject,
        of,
        bound,
    }
}

impl Bar {
    fn measure<'a>(&self, report: &'a Report) -> Option<&'a Measure> {
        let (case, group, name) = self.place;
        let mut measures = tables::find(report, case)?.measures.iter();
        measures.find(|it| it.group == group && it.name == name)
    }

    /// Returns the number and what it is told by: that of the figure, or of the ratios.
    fn found(&self, report: &Report) -> Option<(f64, Summary)> {
        let measure = self.measure(report)?;
        let figure = measure.summary(self.subject);
        match self.of {
            Figure => figure.map(|it| (it.median, it)),
            Tail => figure.map(|it| (it.p90 / it.median, it)),
            Over(other) => measure.ratio(self.subject, other).map(|it| (it.median, it)),
        }
    }

    /// Writes the number and whether it is within the bound.
    fn told(&self, report: &Report) -> (String, &'static str) {
        let Some((value, summary)) = self.found(report) else {
            return ("not measured".to_owned(), "");
        };
        if matches!(self.of, Over(_)) && !spread::holds(&summary) {
            return (spread::ratio(&summary, Style::Document), "");
        }
        let spread = match self.of {
            Tail => String::new(),
            _ => format!(" {}", spread::write(&summary, Style::Document)),
        };
        let reached = match self.bound {
            AtMost(most) => value <= most,
            AtLeast(least) => value >= least,
        };
        let word = if reached { "reached" } else { "missed" };
        (format!("{}{}", number(value), spread.trim_end()), word)
    }

    fn wanted(&self) -> String {
        match self.bound {
            AtMost(most) => format!("≤ {}", number(most)),
            AtLeast(least) => format!("≥ {}", number(least)),
        }
    }
}

/// Writes the table of bars; nothing where a run has none of their cases.
pub fn write(out: &mut String, report: &Report) {
    if BARS.iter().all(|bar| bar.measure(report).is_none()) {
        return;
    }
    let cases = report.cases.iter();
    let cases = cases.filter(|case| CASES.contains(&case.name.as_str()));
    let mut commits: Vec<String> = cases
        .map(|case| revision::of_case(case).to_string())
        .collect();
    commits.sort();
    commits.dedup();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "| bar, measured on {}, Linux {} | wanted | found | |\n|---|---|---|---|",
        commits.join(", "),
        report.machine.kernel
    );
    for bar in &BARS {
        let (found, word) = bar.told(report);
        let _ = writeln!(
            out,
            "| {} | {} | {found} | {word} |",
            bar.text,
            bar.wanted()
        );
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::sample;
    use crate::{Better, Case};

    /// A report with some figures of a measure, by round.
    fn report(place: (&str, &str, &str), rows: &[(&str, &[f64])], subject: &str) -> Report {
        let (name, group, measure) = place;
        let mut case = Case::new(name, "", "");
        case.subjects = vec![subject.to_owned()];
        case.commit = "abc".to_owned();
        for (who, values) in rows {
            for value in *values {
                case.measure(group, measure, "ms", Better::Less)
                    .push(who, *value);
            }
        }
        case.seal();
        let mut report = sample();
        report.cases = vec![case];
        report
    }

    fn line<'a>(text: &'a str, start: &str) -> &'a str {
        let mut lines = text.lines();
        lines.find(|line| line.starts_with(start)).unwrap()
    }

    #[test]
    fn a_bar_is_reached_or_missed_or_not_told() {
        let place = ("busy-node", "", "ADD of 50 at once on a busy node, all");
        let text = |own: &[f64]| {
            let rows = [("podnet", own), ("bridge", &[10.0, 10.0, 10.0])];
            let mut out = String::new();
            write(&mut out, &report(place, &rows, "podnet"));
            out
        };
        let start = "| ADD of 50 at once on a busy node";
        let reached = text(&[4.0, 4.0, 4.0]);
        assert!(
            line(&reached, start).ends_with("| ≤ 0.50 | 0.40 ±0 % | reached |"),
            "{reached}"
        );
        let missed = text(&[8.0, 8.0, 8.0]);
        assert!(
            line(&missed, start).ends_with("| 0.80 ±0 % | missed |"),
            "{missed}"
        );
        let noise = text(&[2.0, 4.0, 9.0]);
        assert!(line(&noise, start).contains("| noise ±"), "{noise}");
        assert!(line(&noise, start).ends_with("|  |"), "{noise}");
        // Cases that the run does not have.
        assert!(
            line(&noise, "| ADD, IPv4, p50").ends_with("| not measured |  |"),
            "{noise}"
        );
        assert!(line(&noise, "| bar").contains("measured on abc"), "{noise}");
    }

    #[test]
    fn a_tail_is_told_without_the_spread_of_the_figure() {
        let values = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.5, 1.5];
        let report = report(("cni", "", "ADD, IPv4"), &[("podnet", &values)], "podnet");
        let mut out = String::new();
        write(&mut out, &report);
        assert!(
            line(&out, "| ADD, IPv4, p90").contains("| 1.50 | missed |"),
            "{out}"
        );
        assert!(line(&out, "| ADD, IPv4, p50").contains("| 1.00 ±"), "{out}");
    }

    #[test]
    fn a_run_without_these_cases_has_no_table() {
        let mut out = String::new();
        write(&mut out, &sample());
        assert_eq!(out, "");
    }

    #[test]
    fn each_bar_is_of_a_case_that_is_measured_for_them() {
        for bar in &BARS {
            assert!(CASES.contains(&bar.place.0), "{}", bar.text);
        }
    }
}
