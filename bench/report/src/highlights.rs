//! The six questions that are asked first, and comparisons that podnet loses.

use std::fmt::Write;

use super::tables::find;
use super::text::number;
use super::{Better, Measure, Report};
use crate::revision;
use crate::series::Summary;
use crate::spread::{self, NOISE, Style};

/// A row of the README's table, and a panel of its picture.
#[derive(Debug, Clone, Copy)]
pub struct Highlight {
    /// Heading of the row.
    pub title: &'static str,
    case: &'static str,
    measure: &'static str,
    /// The column of podnet.
    pub subject: &'static str,
    /// The usual way.
    pub usual: &'static str,
    /// The kernel's limit with nothing in the way.
    pub limit: Option<&'static str>,
}

const ROWS: [Highlight; 6] = [
    Highlight {
        title: "TCP, pods of one node",
        case: "tcp",
        measure: "TCP, 1 stream",
        subject: "podnet L2",
        usual: "bridge",
        limit: Some("bare veth pair"),
    },
    Highlight {
        title: "UDP of 64 bytes, pods of one node",
        case: "udp",
        measure: "UDP 64 B, 2 CPUs",
        subject: "podnet L2",
        usual: "bridge",
        limit: Some("bare veth pair"),
    },
    Highlight {
        title: "UDP round trip, pods of one node",
        case: "latency",
        measure: "UDP round trip, 1 CPU, p50",
        subject: "podnet L2",
        usual: "bridge",
        limit: Some("bare veth pair"),
    },
    Highlight {
        title: "TCP, pods of two nodes",
        case: "across",
        measure: "TCP, 1 stream",
        subject: "podnet L2",
        usual: "bridge + kernel VXLAN",
        limit: None,
    },
    Highlight {
        title: "memif to memif, 64 bytes",
        case: "memif",
        measure: "memif to memif, 64 B",
        subject: "podnet switch",
        usual: "testpmd io",
        limit: None,
    },
    Highlight {
        title: "CNI ADD, IPv4",
        case: "cni",
        measure: "ADD, IPv4",
        subject: "podnet",
        usual: "bridge",
        limit: Some("kernel alone"),
    },
];

/// One comparison of podnet with something else.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The other.
    pub over: String,
    /// Median of the other, in the unit of the measure.
    pub figure: f64,
    /// podnet's figure divided by the other's, paired by round.
    pub ratio: Summary,
    /// Whether podnet is better, worse, or nothing can be said.
    pub verdict: Verdict,
}

/// Outcome of a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// Better by this factor, above 1.
    Better(f64),
    /// The ratio differs from 1 by no more than it spreads.
    Same,
    /// Worse by this factor, above 1.
    Worse(f64),
    /// The rounds spread too far to say anything.
    Noise,
}

impl Verdict {
    /// Judges a ratio.
    pub fn of(ratio: &Summary, better: Better) -> Self {
        let gain = match better {
            Better::More => ratio.median,
            Better::Less => 1.0 / ratio.median,
        };
        if !spread::holds(ratio) {
            Self::Noise
        } else if (ratio.median - 1.0).abs() <= ratio.spread() {
            Self::Same
        } else if gain > 1.0 {
            Self::Better(gain)
        } else {
            Self::Worse(1.0 / gain)
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Better(gain) => write!(out, "{}× better", number(*gain)),
            Self::Same => out.write_str("the same"),
            Self::Worse(gain) => write!(out, "{}× worse", number(*gain)),
            Self::Noise => out.write_str(NOISE),
        }
    }
}

/// The figures of a highlight.
#[derive(Debug, Clone)]
pub struct Figures {
    /// The row.
    pub row: Highlight,
    /// Unit of all figures.
    pub unit: String,
    /// Which figures are good.
    pub better: Better,
    /// Median of podnet.
    pub own: f64,
    /// The usual way, then the limit, where there is one.
    pub others: Vec<Comparison>,
}

/// The highlights that a run has measured.
pub fn figures(report: &Report) -> Vec<Figures> {
    ROWS.iter()
        .filter_map(|row| {
            let measures = &find(report, row.case)?.measures;
            let measure = measures
                .iter()
                .find(|one| one.group.is_empty() && one.name == row.measure)?;
            let others = std::iter::once(row.usual).chain(row.limit);
            Some(Figures {
                row: *row,
                unit: measure.unit.clone(),
                better: measure.better,
                own: measure.summary(row.subject)?.median,
                others: others
                    .filter_map(|over| compare(measure, row.subject, over))
                    .collect(),
            })
        })
        .collect()
}

fn compare(measure: &Measure, subject: &str, over: &str) -> Option<Comparison> {
    let ratio = measure.ratio(subject, over)?;
    Some(Comparison {
        over: over.to_owned(),
        figure: measure.summary(over)?.median,
        verdict: Verdict::of(&ratio, measure.better),
        ratio,
    })
}

/// The table of the README, with how often podnet wins and loses.
pub fn readme(report: &Report) -> String {
    let mut out = String::from(
        "\n| | podnet | the usual way | podnet is | the limit | podnet is |\n|---|---|---|---|---|---|\n",
    );
    for figures in figures(report) {
        // Writing to a string cannot fail, here and below.
        let _ = write!(
            out,
            "| {} | {} {} |",
            figures.row.title,
            number(figures.own),
            figures.unit
        );
        let name = |over: Option<&str>| figures.others.iter().find(|one| Some(&*one.over) == over);
        for other in [name(Some(figures.row.usual)), name(figures.row.limit)] {
            let _ = match other {
                Some(other) => write!(
                    out,
                    " {}: {} | {} {} |",
                    other.over,
                    number(other.figure),
                    strong(other.verdict),
                    spread::write(&other.ratio, Style::Document)
                ),
                None => write!(out, " | |"),
            };
        }
        out.push('\n');
    }
    let all = comparisons(report);
    let count =
        |wanted: fn(&Verdict) -> bool| all.iter().filter(|one| wanted(&one.verdict)).count();
    let _ = writeln!(
        out,
        "\nOf all {} comparisons podnet is better in {}, the same within their spread in {}, worse in {}, and {} are noise,\n\
         because their rounds spread by more than 15 %. Those that it loses are in\n\
         [docs/performance.md](docs/performance.md#where-podnet-is-behind), worst first.\n\
         {}, {} x {}, Linux {}.\n",
        all.len(),
        count(|verdict| matches!(verdict, Verdict::Better(_))),
        count(|verdict| matches!(verdict, Verdict::Same)),
        count(|verdict| matches!(verdict, Verdict::Worse(_))),
        count(|verdict| matches!(verdict, Verdict::Noise)),
        revision::line(report),
        report.machine.cpus,
        report.machine.cpu,
        report.machine.kernel
    );
    out
}

fn strong(verdict: Verdict) -> String {
    match verdict {
        Verdict::Same | Verdict::Noise => verdict.to_string(),
        Verdict::Better(_) | Verdict::Worse(_) => format!("**{verdict}**"),
    }
}

/// A comparison with its place in the report.
struct Placed<'a> {
    measure: &'a Measure,
    subject: &'a str,
    over: &'a str,
    ratio: &'a Summary,
    verdict: Verdict,
}

/// Every comparison of podnet with something else in a measure that stands alone.
fn comparisons(report: &Report) -> Vec<Placed<'_>> {
    let measures = report.cases.iter().flat_map(|case| &case.measures);
    measures
        .filter(|measure| measure.group.is_empty())
        .flat_map(|measure| measure.ratios.iter().map(move |ratio| (measure, ratio)))
        .filter(|(_, ratio)| ratio.subject.starts_with("podnet"))
        .map(|(measure, ratio)| Placed {
            measure,
            subject: &ratio.subject,
            over: &ratio.over,
            ratio: &ratio.summary,
            verdict: Verdict::of(&ratio.summary, measure.better),
        })
        .collect()
}

/// The comparisons that podnet loses, worst first.
pub(crate) fn behind(out: &mut String, report: &Report) {
    let mut lost: Vec<(f64, Placed<'_>)> = comparisons(report)
        .into_iter()
        .filter_map(|placed| match placed.verdict {
            Verdict::Worse(factor) => Some((factor, placed)),
            Verdict::Better(_) | Verdict::Same | Verdict::Noise => None,
        })
        .collect();
    lost.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    out.push_str("## Where podnet is behind\n\n");
    if lost.is_empty() {
        out.push_str("Nowhere in this run.\n\n");
        return;
    }
    out.push_str("| measure | | compared with | podnet is |\n|---|---|---|---|\n");
    for (_, placed) in &lost {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} {} |",
            placed.measure.name,
            placed.subject,
            placed.over,
            placed.verdict,
            spread::write(placed.ratio, Style::Document)
        );
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::sample;

    #[test]
    fn a_row_has_both_comparisons_and_says_which_is_lost() {
        let text = readme(&sample());
        let line = "| TCP, pods of one node | 11.0 Gbit/s | | | bare veth pair: 12.0 | **1.09× worse** ±5 % |";
        assert!(text.contains(line), "{text}");
        assert!(
            text.contains("Of all 2 comparisons podnet is better in 1,"),
            "{text}"
        );
    }

    #[test]
    fn what_differs_less_than_it_spreads_is_the_same() {
        let mut case = crate::Case::new("tcp", "", "");
        case.subjects = vec!["podnet".to_owned()];
        let measure = case.measure("", "time", "ms", Better::Less);
        for (round, (own, other)) in [(10.0, 10.0), (11.0, 10.0), (9.0, 10.0)]
            .into_iter()
            .enumerate()
        {
            measure.put("podnet", round, own);
            measure.put("other", round, other);
            measure.put("slow", round, own * 2.0);
            measure.put("fast", round, own / 4.0);
        }
        case.seal();
        let verdict = |over| {
            let measure = &case.measures[0];
            Verdict::of(&measure.ratio("podnet", over).unwrap(), measure.better)
        };
        assert_eq!(verdict("other"), Verdict::Same);
        assert_eq!(verdict("slow"), Verdict::Better(2.0));
        assert_eq!(verdict("fast"), Verdict::Worse(4.0));
    }

    #[test]
    fn rounds_that_spread_too_far_are_noise_and_counted_as_such() {
        let mut report = sample();
        let case = &mut report.cases[0];
        for (round, value) in [4.0, 12.0, 40.0].into_iter().enumerate() {
            let measure = case.measure("", "TCP, 1 stream", "Gbit/s", Better::More);
            measure.put("bare veth pair", round, value);
        }
        case.seal();
        let text = readme(&report);
        let cell = "| bare veth pair: 12.0 | noise ±";
        assert!(text.contains(cell), "{text}");
        assert!(text.contains("worse in 0, and 1 are noise"), "{text}");
        let mut lost = String::new();
        behind(&mut lost, &report);
        assert!(lost.contains("Nowhere"), "{lost}");
    }

    #[test]
    fn the_worst_loss_comes_first_and_wins_are_not_listed() {
        let mut report = sample();
        let mut text = String::new();
        behind(&mut text, &report);
        let line = "| TCP, 1 stream | podnet L2 | bare veth pair | 1.09× worse ±5 % |";
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("bridge"), "{text}");
        report.cases.clear();
        text.clear();
        behind(&mut text, &report);
        assert!(text.contains("Nowhere"), "{text}");
    }
}
