//! Tables for a terminal.

use std::fmt::Write;

use super::{Better, Case, Measure, Report};
use crate::load::Load;
use crate::revision;
use crate::series::Summary;
use crate::spread::{self, Style};

/// A figure with three digits or more.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "-".to_owned();
    }
    match size {
        0.0 => "0".to_owned(),
        _ if size < 0.0995 => format!("{value:.3}"),
        _ if size < 9.995 => format!("{value:.2}"),
        _ if size < 99.95 || (size < 999.5 && value.fract() != 0.0) => format!("{value:.1}"),
        _ => thousands(&format!("{value:.0}")),
    }
}

/// A whole number's digits in groups of three.
pub fn thousands(digits: &str) -> String {
    let (sign, digits) = digits
        .strip_prefix('-')
        .map_or(("", digits), |digits| ("-", digits));
    let mut out = String::from(sign);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Measures of one table: those of the same group, or one alone.
pub fn tables(case: &Case) -> Vec<Vec<&Measure>> {
    let mut tables: Vec<Vec<&Measure>> = Vec::new();
    for measure in &case.measures {
        let same = tables.iter_mut().find(|table| {
            !measure.group.is_empty() && table.iter().all(|other| other.group == measure.group)
        });
        match same {
            Some(table) => table.push(measure),
            None => tables.push(vec![measure]),
        }
    }
    tables
}

/// `Gbit/s, more is better`.
pub fn unit(measure: &Measure) -> String {
    let better = match measure.better {
        Better::More => "more is better",
        Better::Less => "less is better",
    };
    format!("{}, {better}", measure.unit)
}

/// Everybody in a group's measures, in the order of their appearance.
pub fn columns<'a>(table: &[&'a Measure]) -> Vec<&'a str> {
    let mut columns: Vec<&str> = Vec::new();
    for row in table.iter().flat_map(|measure| &measure.rows) {
        if !columns.contains(&row.who.as_str()) {
            columns.push(&row.who);
        }
    }
    columns
}

/// More ratios than these make a line unreadable; the figures say it all the same.
const PAIRS: usize = 4;

/// Returns the pairs of subject and peer that have ratios in these measures.
///
/// It is empty if there are too many to show.
pub fn pairs<'a>(table: &[&'a Measure]) -> Vec<(&'a str, &'a str)> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for ratio in table.iter().flat_map(|measure| &measure.ratios) {
        let pair = (ratio.subject.as_str(), ratio.over.as_str());
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    if pairs.len() > PAIRS {
        pairs.clear();
    }
    pairs
}

/// The whole report.
pub fn report(report: &Report) -> String {
    let mut out = format!(
        "{}{}: {}\n{}\nload {} before, {} after; {:.0} s\n",
        report.name,
        if report.quick {
            " (quick: for function, not for figures)"
        } else {
            ""
        },
        revision::line(report),
        report.machine.line(),
        report.load_before,
        report.load_after,
        report.seconds,
    );
    for each in &report.cases {
        out.push('\n');
        out.push_str(&case(each));
    }
    out
}

/// One case.
pub fn case(case: &Case) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{} ({}, {:.0} s, load {})",
        case.title, case.name, case.seconds, case.load
    );
    if let Some(others) = case.others {
        let _ = writeln!(out, "  {}", around(case, &others));
    }
    for table in tables(case) {
        out.push('\n');
        let cells = match table[..] {
            [measure] if measure.group.is_empty() => {
                let _ = writeln!(out, "  {} ({})", measure.name, unit(measure));
                single(case, measure)
            }
            [first, ..] => {
                let _ = writeln!(out, "  {} ({})", first.group, unit(first));
                grouped(&table)
            }
            [] => continue,
        };
        align(&mut out, &cells);
    }
    for absent in &case.absent {
        let _ = writeln!(out, "  without {}: {}", absent.who, absent.reason);
    }
    out
}

/// Load by others before a case, and by a hypervisor meanwhile.
pub fn around(case: &Case, others: &Load) -> String {
    let stolen = case.stolen.map(|stolen| {
        let percent = stolen * 100.0;
        format!(", and {percent:.1} % meanwhile")
    });
    let line = format!("before it {}{}", others.line(), stolen.unwrap_or_default());
    match others.too_much() {
        Some(_) => format!("{line}: the machine was busy"),
        None => line,
    }
}

fn ratio(summary: &Summary) -> String {
    spread::ratio(summary, Style::Terminal)
}

fn single(case: &Case, measure: &Measure) -> Vec<Vec<String>> {
    let subjects: Vec<&String> = case
        .subjects
        .iter()
        .filter(|subject| {
            measure
                .ratios
                .iter()
                .any(|ratio| ratio.subject == **subject)
        })
        .collect();
    let mut head = ["", "n", "median", "+-", "min", "p90", "p99", "max"]
        .map(String::from)
        .to_vec();
    head.extend(subjects.iter().map(|subject| format!("{subject} / it")));
    let mut cells = vec![head];
    for row in &measure.rows {
        let Some(summary) = row.summary else { continue };
        let mut line = vec![row.who.clone(), summary.n.to_string()];
        line.push(number(summary.median));
        line.push(spread::write(&summary, Style::Terminal));
        line.extend([summary.min, summary.p90, summary.p99, summary.max].map(number));
        for subject in &subjects {
            let over = measure.ratio(subject, &row.who);
            line.push(over.as_ref().map(ratio).unwrap_or_default());
        }
        cells.push(line);
    }
    cells
}

fn grouped(table: &[&Measure]) -> Vec<Vec<String>> {
    let (columns, pairs) = (columns(table), pairs(table));
    let mut head = vec![String::new()];
    head.extend(columns.iter().map(ToString::to_string));
    head.extend(pairs.iter().map(|(a, b)| format!("{a} / {b}")));
    let mut cells = vec![head];
    for measure in table {
        let mut line = vec![measure.name.clone()];
        for who in &columns {
            let summary = measure.summary(who);
            let figure = summary.map(|one| spread::figure(&one, Style::Terminal));
            line.push(figure.unwrap_or_default());
        }
        for (subject, over) in &pairs {
            let over = measure.ratio(subject, over);
            line.push(over.as_ref().map(ratio).unwrap_or_default());
        }
        cells.push(line);
    }
    cells
}

/// The first column to the left, the others to the right.
pub(crate) fn align(out: &mut String, cells: &[Vec<String>]) {
    let columns = cells.iter().map(Vec::len).max().unwrap_or_default();
    let wide = |column: usize| {
        let cells = cells.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(wide).collect();
    for line in cells {
        out.push_str("  ");
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let _ = if column == 0 {
                write!(out, "{cell:<width$}")
            } else {
                write!(out, "  {cell:>width$}")
            };
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::sample;

    #[test]
    fn figures_have_three_digits_or_more() {
        for (value, expected) in [
            (0.0, "0"),
            (0.012_34, "0.012"),
            (0.996, "1.00"),
            (3.456, "3.46"),
            (42.25, "42.2"),
            (173.44, "173.4"),
            (250.0, "250"),
            (3639.4, "3,639"),
            (-1_234_567.0, "-1,234,567"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn a_table_says_who_how_much_and_how_far_from_the_others() {
        let text = report(&sample());
        let line = |start: &str| {
            let found = text
                .lines()
                .find(|line| line.trim_start().starts_with(start));
            found
                .unwrap_or_else(|| panic!("no line {start} in {text}"))
                .to_owned()
        };
        assert!(line("TCP, 1 stream").contains("(Gbit/s, more is better)"));
        assert!(line("bridge <1>").ends_with("1.22 +-1%"), "{text}");
        assert!(line("podnet L2").contains("11.0"), "{text}");
        assert!(line("without Open vSwitch").contains("never installed"));
    }

    #[test]
    fn measures_of_a_group_are_lines_of_one_table() {
        let report = sample();
        let tables = tables(&report.cases[0]);
        assert_eq!(tables.len(), 2);
        assert_eq!(tables[1].len(), 2);
        assert_eq!(columns(&tables[1]), ["podnet L2", "bridge <1>"]);
        assert_eq!(pairs(&tables[1]), [("podnet L2", "bridge <1>")]);
        let text = case(&report.cases[0]);
        assert_eq!(text.matches("goodput").count(), 1, "{text}");
    }
}
