//! A page with everything in it: no script, no font, no picture from elsewhere.

use std::fmt::Write;

use super::chart::{self, Versus};
use super::svg::escape;
use super::text::{columns, number, pairs, tables, unit};
use super::{Case, Measure, Report};
use crate::revision;
use crate::series::Summary;
use crate::spread::{self, Style};

const STYLE: &str = include_str!("style.css");
/// Peers of the overview: the limit, and the usual way.
const FIRST: [&str; 2] = ["bare veth pair", "bridge"];

/// The page.
pub fn page(report: &Report) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>podnet: {0}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>podnet beside its peers: {0}</h1>\n",
        escape(&report.name)
    );
    head(&mut out, report);
    overview(&mut out, report);
    for case in &report.cases {
        section(&mut out, case);
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn head(out: &mut String, report: &Report) {
    // Writing to a string cannot fail, here and below.
    if report.quick {
        out.push_str("<p class=\"warn\">A quick run: for function, not for figures.</p>\n");
    }
    let _ = writeln!(
        out,
        "<p>{}<br>{}<br>Load {} before and {} after. {:.0} seconds, started {} UTC.</p>\n\
         <p>All were measured on this machine in the same run, in alternating rounds. A ratio is \
         made within a round, and the median of the rounds is shown. Whiskers are the quartiles, \
         and &plusmn; is half of their distance as a part of the median: differences below that \
         are noise, and where it is more than 15% no ratio is told.</p>",
        escape(&revision::line(report)),
        escape(&report.machine.line()),
        escape(&report.load_before),
        escape(&report.load_after),
        report.seconds,
        date(report.started),
    );
    out.push_str("<nav>");
    for case in &report.cases {
        let _ = write!(
            out,
            "<a href=\"#{}\">{}</a> ",
            escape(&case.name),
            escape(&case.title)
        );
    }
    out.push_str("</nav>\n");
}

/// Seconds since 1970 as a day and a time.
fn date(seconds: u64) -> String {
    // Howard Hinnant's days-to-civil, for years of this era.
    let days = seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let day = days % 146_097;
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, more) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!(
        "{}-{month:02}-{of_month:02} {:02}:{:02}",
        year + era * 400 + more,
        seconds / 3600 % 24,
        seconds / 60 % 60
    )
}

/// Draws all ratios of the first subject, but for groups of many lines.
fn overview(out: &mut String, report: &Report) {
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for case in &report.cases {
        let Some(subject) = case.subjects.first() else {
            continue;
        };
        // Sizes are compared with each other, not with others.
        if !subject.starts_with("podnet") {
            continue;
        }
        for measure in case.measures.iter().filter(|one| one.group.is_empty()) {
            for over in measure.ratios.iter().filter(|one| one.subject == *subject) {
                let versus = Versus {
                    name: format!("{}: {}", measure.name, over.over),
                    summary: over.summary,
                    better: measure.better,
                };
                if FIRST.contains(&over.over.as_str()) {
                    first.push(versus);
                } else {
                    rest.push(versus);
                }
            }
        }
    }
    if first.is_empty() {
        std::mem::swap(&mut first, &mut rest);
    }
    if first.is_empty() {
        return;
    }
    out.push_str("<section>\n<h2>Wins and losses</h2>\n");
    out.push_str(
        "<p>podnet, on an L2 network, over the others. To the right podnet is better, to the left \
         worse.</p>\n",
    );
    out.push_str(&chart::ratios(&first, "podnet over the others"));
    if !rest.is_empty() {
        out.push_str("<details><summary>Over all others</summary>\n");
        out.push_str(&chart::ratios(&rest, "podnet over all others"));
        out.push_str("</details>\n");
    }
    out.push_str("</section>\n");
}

fn section(out: &mut String, case: &Case) {
    let _ = writeln!(
        out,
        "<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n<p><small>{} UTC, {:.0} s, load before {}; podnet {}</small></p>",
        escape(&case.name),
        escape(&case.title),
        escape(&case.about),
        date(case.started),
        case.seconds,
        escape(&case.load),
        escape(&revision::of_case(case).to_string())
    );
    if let Some(others) = case.others {
        let class = if others.too_much().is_some() {
            "warn"
        } else {
            ""
        };
        let line = super::text::around(case, &others);
        let _ = writeln!(
            out,
            "<p class=\"{class}\"><small>{}</small></p>",
            escape(&line)
        );
    }
    for absent in &case.absent {
        let _ = writeln!(
            out,
            "<p class=\"warn\">Without {}: {}</p>",
            escape(&absent.who),
            escape(&absent.reason)
        );
    }
    for table in tables(case) {
        match table[..] {
            [measure] if measure.group.is_empty() => single(out, case, measure),
            [first, ..] => {
                let _ = writeln!(
                    out,
                    "<h3>{} <small>{}</small></h3>",
                    escape(&first.group),
                    escape(&unit(first))
                );
                // More than three bars on a line are a table.
                let few = columns(&table).len() <= 3;
                if few {
                    out.push_str(&chart::groups(&table, &case.subjects));
                    out.push_str("<details><summary>Figures</summary>\n");
                }
                group(out, &table);
                if few {
                    out.push_str("</details>\n");
                }
            }
            [] => {}
        }
    }
    if !case.plots.is_empty() {
        out.push_str("<div class=\"plots\">\n");
        for plot in &case.plots {
            let _ = writeln!(
                out,
                "<figure><figcaption>{} <small>{}</small></figcaption>",
                escape(&plot.title),
                escape(&plot.y)
            );
            out.push_str(&chart::lines(plot, &case.subjects));
            out.push_str("</figure>\n");
        }
        out.push_str("</div>\n");
    }
    out.push_str("</section>\n");
}

fn single(out: &mut String, case: &Case, measure: &Measure) {
    let _ = writeln!(
        out,
        "<h3>{} <small>{}</small></h3>",
        escape(&measure.name),
        escape(&unit(measure))
    );
    out.push_str(&chart::bars(measure, &case.subjects));
    let mut head = ["", "n", "median", "\u{b1}", "min", "p90", "p99", "max"]
        .map(String::from)
        .to_vec();
    let subjects: Vec<&String> = case
        .subjects
        .iter()
        .filter(|subject| measure.ratios.iter().any(|one| one.subject == **subject))
        .collect();
    head.extend(subjects.iter().map(|subject| format!("{subject} / it")));
    let mut lines = Vec::new();
    for row in &measure.rows {
        let Some(summary) = row.summary else { continue };
        let mut line = vec![row.who.clone(), summary.n.to_string()];
        line.push(number(summary.median));
        let spread = spread::write(&summary, Style::Page);
        line.push(spread.trim_start_matches('\u{b1}').to_owned());
        line.extend([summary.min, summary.p90, summary.p99, summary.max].map(number));
        for subject in &subjects {
            let over = measure.ratio(subject, &row.who);
            line.push(over.as_ref().map(shown).unwrap_or_default());
        }
        lines.push(line);
    }
    out.push_str("<details><summary>Figures</summary>\n");
    rows(out, &head, &lines);
    out.push_str("</details>\n");
}

fn shown(summary: &Summary) -> String {
    spread::ratio(summary, Style::Page)
}

fn group(out: &mut String, table: &[&Measure]) {
    let (columns, pairs) = (columns(table), pairs(table));
    let mut head = vec![String::new()];
    head.extend(columns.iter().map(ToString::to_string));
    head.extend(pairs.iter().map(|(a, b)| format!("{a} / {b}")));
    let mut lines = Vec::new();
    for measure in table {
        let mut line = vec![measure.name.clone()];
        for who in &columns {
            let summary = measure.summary(who);
            let figure = summary.map(|one| spread::figure(&one, Style::Page));
            line.push(figure.unwrap_or_default());
        }
        for (subject, over) in &pairs {
            let over = measure.ratio(subject, over);
            line.push(over.as_ref().map(shown).unwrap_or_default());
        }
        lines.push(line);
    }
    rows(out, &head, &lines);
}

fn rows(out: &mut String, head: &[String], lines: &[Vec<String>]) {
    out.push_str("<div class=\"wide\"><table>\n<tr>");
    for cell in head {
        let _ = write!(out, "<th>{}</th>", escape(cell));
    }
    out.push_str("</tr>\n");
    for line in lines {
        out.push_str("<tr>");
        for cell in line {
            let _ = write!(out, "<td>{}</td>", escape(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::sample;

    #[test]
    fn a_page_needs_nothing_from_elsewhere() {
        let text = page(&sample());
        for foreign in ["http:", "https:", "src=", "<script", "@import", "url("] {
            assert!(!text.contains(foreign), "{foreign}");
        }
        assert!(text.contains("prefers-color-scheme"));
    }

    #[test]
    fn a_page_has_every_case_measure_plot_and_gap() {
        let text = page(&sample());
        for part in [
            "<section id=\"tcp\">",
            "TCP, 1 stream",
            "goodput",
            "100 Mbit/s",
            "Round trip",
            "Wins and losses",
            "Without Open vSwitch: not &amp; never installed",
            "1.22 \u{b1}1%",
        ] {
            assert!(text.contains(part), "{part}");
        }
        assert!(!text.contains("<1>"), "names are written out");
        for tag in ["section", "svg", "table", "details", "figure", "div"] {
            let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
            assert_eq!(
                text.matches(&open).count() - text.matches(&format!("<{tag}caption")).count(),
                text.matches(&close).count(),
                "{tag}"
            );
        }
    }

    #[test]
    fn a_moment_is_told_as_a_date() {
        assert_eq!(date(0), "1970-01-01 00:00");
        assert_eq!(date(1_709_208_000), "2024-02-29 12:00");
        assert_eq!(date(1_795_197_507), "2026-11-20 17:58");
    }
}
