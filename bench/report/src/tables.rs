//! The tables of docs/performance.md, made from a run.

use std::fmt::Write;

use super::text::number;
use super::{Case, Measure, Report};
use crate::series::Summary;
use crate::spread::{self, Style};
use crate::{bars, highlights, revision};

/// Every table of a run, in Markdown, with the bars of one that has these cases.
pub fn markdown(report: &Report, measured: Option<&Report>) -> String {
    let machine = &report.machine;
    let name = &report.name;
    // Writing to a string cannot fail, here and below.
    let mut out = format!(
        "\n{}, {} x {}, Linux {}.\n",
        revision::line(report),
        machine.cpus,
        machine.cpu,
        machine.kernel
    );
    let _ = writeln!(
        out,
        "Everything in network namespaces of one machine, in alternating rounds. Medians; ratios are podnet's over the\n\
         other's, paired by round, and ± is half the distance of the quartiles as a part of the median. Above 1.00 is\n\
         better for rates, below for times. Where ± is more than 15 % a ratio is noise and is not told, and a figure has\n\
         its ± beside it. Every single value is in\n\
         [bench/results/{name}.json](../bench/results/{name}.json); `cargo xtask bench report` makes a page with\n\
         charts of it.\n"
    );
    if report.quick {
        out.push_str("A quick run, for function rather than for figures.\n\n");
    }
    let loaded = report.loaded();
    if !loaded.is_empty() {
        let _ = writeln!(
            out,
            "The machine was busy with other things, and these cases were measured all the same: {}.\n",
            loaded.join(", ")
        );
    }
    let mut bars = String::new();
    bars::write(&mut bars, measured.unwrap_or(report));
    if !bars.is_empty() {
        heading(&mut out, "Bars");
        out.push_str(&bars);
    }
    heading(&mut out, "Pods of one node");
    let traffic = ["tcp", "udp", "latency", "connect"];
    for subject in ["podnet L2", "podnet L3"] {
        versus(&mut out, report, &traffic, "pod to pod", subject);
    }
    heading(&mut out, "Pods of two nodes");
    for subject in ["podnet L2", "podnet L3"] {
        versus(&mut out, report, &["across"], "pods of two nodes", subject);
    }
    heading(&mut out, "memif and AF_XDP ports");
    for subject in ["podnet memif", "podnet AF_XDP"] {
        let heading = "a port that is a socket, and a pod of the kernel";
        versus(&mut out, report, &["sockets"], heading, subject);
    }
    for subject in ["podnet cross-connect", "podnet switch"] {
        versus(&mut out, report, &["memif"], "memif to memif", subject);
    }
    heading(&mut out, "CNI calls");
    let calls = ["cni", "parallel", "burst", "busy-node", "agent"];
    versus(&mut out, report, &calls, "CNI, exec to exit", "podnet");
    if let Some(case) = find(report, "add-by-ports") {
        grown(&mut out, case, "CNI among many ports", "100 ports");
    }
    if let Some(case) = find(report, "shaping") {
        heading(&mut out, "Rates");
        limits(&mut out, case);
    }
    if let Some(case) = find(report, "many-shaped") {
        versus(
            &mut out,
            report,
            &["many-shaped"],
            "many limited pods",
            "podnet",
        );
        alone(&mut out, "many limited pods", [case].into_iter());
    }
    if let Some(case) = find(report, "flood") {
        heading(&mut out, "Broadcasts");
        versus(
            &mut out,
            report,
            &["flood"],
            "broadcasts on an L2 network",
            "podnet",
        );
        alone(&mut out, "beside them", [case].into_iter());
    }
    if let Some(case) = find(report, "scale") {
        heading(&mut out, "Scale");
        grown(&mut out, case, "scale on one node", "1 network, 2 ports");
    }
    heading(&mut out, "The agent");
    let lines = ["agent", "restart", "sockets"].map(|name| find(report, name));
    alone(&mut out, "the agent", lines.into_iter().flatten());
    highlights::behind(&mut out, report);
    let mut gaps: Vec<String> = Vec::new();
    for case in &report.cases {
        for absent in &case.absent {
            let line = format!(
                "- {}: without {}: {}\n",
                case.name, absent.who, absent.reason
            );
            if !gaps.contains(&line) {
                gaps.push(line);
            }
        }
    }
    if !gaps.is_empty() {
        heading(&mut out, "Not measured");
        let _ = writeln!(out, "{}", gaps.concat());
    }
    out
}

fn heading(out: &mut String, text: &str) {
    let _ = writeln!(out, "## {text}\n");
}

pub(crate) fn find<'a>(report: &'a Report, name: &str) -> Option<&'a Case> {
    report.cases.iter().find(|case| case.name == name)
}

/// Writes one line for each measure without a group: the figure and its ratios.
///
/// The ratios are to each of the others.
fn versus(out: &mut String, report: &Report, cases: &[&str], heading: &str, subject: &str) {
    let lines: Vec<&Measure> = cases
        .iter()
        .filter_map(|name| find(report, name))
        .flat_map(|case| &case.measures)
        .filter(|measure| measure.group.is_empty() && measure.summary(subject).is_some())
        .collect();
    let mut others: Vec<&str> = Vec::new();
    for ratio in lines.iter().flat_map(|measure| &measure.ratios) {
        if ratio.subject == subject && !others.contains(&ratio.over.as_str()) {
            others.push(&ratio.over);
        }
    }
    if lines.is_empty() {
        return;
    }
    let _ = write!(out, "| {heading} | {subject} |");
    for other in &others {
        let _ = write!(out, " / {other} |");
    }
    let _ = writeln!(out, "\n|---|---|{}", "---|".repeat(others.len()));
    for measure in lines {
        let _ = write!(out, "| {} | ", measure.name);
        if let Some(summary) = measure.summary(subject) {
            out.push_str(&figure(&summary, &measure.unit));
        }
        out.push_str(" |");
        for other in &others {
            let ratio = measure.ratio(subject, other).as_ref().map(told);
            let _ = write!(out, " {} |", ratio.unwrap_or_default());
        }
        out.push('\n');
    }
    out.push('\n');
}

fn told(ratio: &Summary) -> String {
    spread::ratio(ratio, Style::Document)
}

/// A figure with its unit, and its spread where that is above the limit.
fn figure(summary: &Summary, unit: &str) -> String {
    let mark = spread::mark(summary, Style::Document);
    format!("{} {unit}{mark}", number(summary.median))
}

/// Writes the figures of a limit, all peers in one table.
fn limits(out: &mut String, case: &Case) {
    const GROUPS: [(&str, &str); 4] = [
        ("Goodput", "goodput, % of what the rate allows"),
        ("Worst second", "worst second, % of the rate"),
        ("Ping beside the streams, p99", "ping meanwhile, p99 ms"),
        ("CPU in interrupts", "CPU in interrupts, % of a core"),
    ];
    // Older runs have no figure of CPU.
    let groups = GROUPS.iter().filter(|(group, _)| {
        let mut measures = case.measures.iter();
        measures.any(|measure| measure.group == *group)
    });
    let groups: Vec<&(&str, &str)> = groups.collect();
    let lines: Vec<&Measure> = case
        .measures
        .iter()
        .filter(|measure| groups.iter().any(|(group, _)| measure.group == *group))
        .collect();
    let columns = super::text::columns(&lines);
    if lines.is_empty() {
        return;
    }
    out.push_str("| limit |");
    for (_, heading) in &groups {
        for who in &columns {
            let _ = write!(out, " {heading}: {who} |");
        }
    }
    let _ = writeln!(
        out,
        "\n|---|{}",
        "---|".repeat(columns.len() * groups.len())
    );
    for first in lines.iter().filter(|line| line.group == groups[0].0) {
        let _ = write!(out, "| {} |", first.name);
        for (group, _) in &groups {
            let mut same = lines.iter();
            let same = same.find(|line| line.group == *group && line.name == first.name);
            for who in &columns {
                let figure = same.and_then(|line| line.summary(who));
                let figure = figure.map(|one| {
                    let mark = spread::mark(&one, Style::Document);
                    format!("{}{mark}", number(one.median))
                });
                let _ = write!(out, " {} |", figure.unwrap_or_default());
            }
        }
        out.push('\n');
    }
    out.push('\n');
}

/// Figures without a ratio, with all whose they are.
fn alone<'a>(out: &mut String, heading: &str, cases: impl Iterator<Item = &'a Case>) {
    let lines: Vec<&Measure> = cases
        .flat_map(|case| &case.measures)
        .filter(|measure| !measure.group.is_empty())
        .collect();
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(out, "| {heading} | |\n|---|---|");
    for measure in lines {
        for row in &measure.rows {
            let Some(summary) = row.summary else { continue };
            let who = if measure.rows.len() > 1 {
                format!(", {}", row.who)
            } else {
                String::new()
            };
            let _ = writeln!(
                out,
                "| {}, {}{who} | {} |",
                measure.group,
                measure.name,
                figure(&summary, &measure.unit)
            );
        }
    }
    out.push('\n');
}

/// Figures of larger nodes, and their ratios over the smallest one.
fn grown(out: &mut String, case: &Case, heading: &str, smallest: &str) {
    let _ = writeln!(
        out,
        "| {heading} | figure | over {smallest} |\n|---|---|---|"
    );
    for measure in &case.measures {
        for row in &measure.rows {
            let subject = &row.who;
            let Some(summary) = row.summary.filter(|_| case.subjects.contains(subject)) else {
                continue;
            };
            let over = measure.ratio(subject, smallest);
            let over = over.as_ref().map(told).unwrap_or_default();
            let _ = writeln!(
                out,
                "| {subject}: {} | {} | {over} |",
                measure.name,
                figure(&summary, &measure.unit)
            );
        }
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Better;
    use crate::tests::sample;

    #[test]
    fn a_table_has_podnets_figure_the_ratios_and_the_gaps() {
        let text = markdown(&sample(), None);
        let line = "| TCP, 1 stream | 11.0 Gbit/s | 1.22 ±1 % | 0.92 ±5 % |";
        assert!(text.contains(line), "{text}");
        let head = "| pod to pod | podnet L2 | / bridge <1> | / bare veth pair |";
        assert!(text.contains(head), "{text}");
        let gap = "- tcp: without Open vSwitch: not & never installed";
        assert!(text.contains(gap), "{text}");
    }

    #[test]
    fn ports_that_are_sockets_have_tables_of_their_own() {
        let mut report = sample();
        let mut case = Case::new("sockets", "Sockets", "");
        case.subjects = vec!["podnet memif".to_owned()];
        let measure = case.measure("", "UDP 64 B, to a kernel pod", "kpps", Better::More);
        measure.put("podnet memif", 0, 500.0);
        measure.put("testpmd, TAP", 0, 250.0);
        case.measure("CPU of the switch", "idle", "% of a core", Better::Less)
            .put("podnet memif", 0, 0.03);
        case.seal();
        report.cases.push(case);
        let text = markdown(&report, None);
        let line = "| UDP 64 B, to a kernel pod | 500 kpps | 2.00 |";
        assert!(text.contains(line), "{text}");
        let line = "| CPU of the switch, idle | 0.030 % of a core |";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_limit_has_everybodys_figures_on_one_line() {
        let mut report = sample();
        let mut case = Case::new("shaping", "Limits", "");
        for (group, ours, theirs) in [
            ("Goodput", 99.0, 98.0),
            ("Worst second", 100.5, 106.0),
            ("Ping beside the streams, p99", 1.5, 12.0),
        ] {
            let measure = case.measure(group, "10 Mbit/s, both, 1 stream", "", Better::More);
            measure.put("podnet", 0, ours);
            measure.put("bridge + bandwidth", 0, theirs);
        }
        case.seal();
        report.cases.push(case);
        let text = markdown(&report, None);
        let line = "| 10 Mbit/s, both, 1 stream | 99.0 | 98.0 | 100.5 | 106 | 1.50 | 12.0 |";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("p99 ms: podnet | ping"), "{text}");
    }

    #[test]
    fn rows_that_spread_too_far_are_marked_and_have_no_ratio() {
        let mut report = sample();
        let case = &mut report.cases[0];
        let measure = case.measure("", "TCP, 8 streams", "Gbit/s", Better::More);
        for (round, (own, other)) in [(5.0, 5.0), (10.0, 20.0), (16.0, 8.0)].iter().enumerate() {
            measure.put("podnet L2", round, *own);
            measure.put("bridge <1>", round, *other);
        }
        case.seal();
        let text = markdown(&report, None);
        let line = "| TCP, 8 streams | 10.0 Gbit/s ±28 % | noise ±38 % |  |";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn the_head_names_the_commit_and_cases_of_a_busy_machine() {
        let mut report = sample();
        report.cases[0].commit = "0123abc-dirty".to_owned();
        let text = markdown(&report, None);
        let head = text.lines().nth(1).unwrap();
        assert!(
            head.starts_with("podnet 0123abc with uncommitted changes, "),
            "{head}"
        );
        assert!(!text.contains("busy"), "{text}");
        report.cases[0].others = Some(crate::load::Load {
            busy: 0.6,
            stolen: 0.0,
            runnable: 3,
        });
        let text = markdown(&report, None);
        assert!(text.contains("measured all the same: tcp."), "{text}");
    }

    #[test]
    fn larger_nodes_are_compared_with_the_smallest() {
        let mut report = sample();
        let mut case = Case::new("add-by-ports", "Ports", "");
        case.subjects = vec!["4,000 ports".to_owned()];
        let measure = case.measure("", "ADD, p50", "ms", Better::Less);
        measure.put("100 ports", 0, 2.0);
        measure.put("4,000 ports", 0, 2.2);
        case.seal();
        report.cases.push(case);
        let text = markdown(&report, None);
        let head = "| CNI among many ports | figure | over 100 ports |";
        assert!(text.contains(head), "{text}");
        let line = "| 4,000 ports: ADD, p50 | 2.20 ms | 1.10 |";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn what_only_the_agent_has_is_listed() {
        let mut report = sample();
        let mut case = Case::new("restart", "Restart", "");
        case.measure("Datagrams lost", "kill -9", "of 10,000", Better::Less)
            .put("podnet L2", 0, 0.0);
        case.seal();
        report.cases.push(case);
        let text = markdown(&report, None);
        let line = "| Datagrams lost, kill -9 | 0 of 10,000 |";
        assert!(text.contains(line), "{text}");
    }
}
