//! Charts: bars with whiskers, ratios around one, lines.

use super::svg::{Anchor, Svg, ticks};
use super::text::number;
use super::{Axis, Better, Line, Measure, Plot};
use crate::series::Summary;
use crate::spread::{self, Style};

const WIDTH: f64 = 720.0;
/// Height of a line of bars.
const LINE: f64 = 24.0;
/// Room for names on the left.
const NAMES: f64 = 190.0;
/// Room for figures on the right.
const FIGURES: f64 = 90.0;

/// Returns the class of a colour: a subject's own, or one of the others' in turn.
pub fn colour(who: &str, subjects: &[String], others: &[&str]) -> String {
    if let Some(place) = subjects.iter().position(|subject| subject == who) {
        return format!("s{}", place % 2);
    }
    let place = others.iter().position(|other| *other == who).unwrap_or(0);
    format!("o{}", place % 7)
}

/// Medians of a measure as bars, from quartile to quartile a whisker.
pub fn bars(measure: &Measure, subjects: &[String]) -> String {
    let rows: Vec<(&str, Summary)> = measure
        .rows
        .iter()
        .filter_map(|row| Some((row.who.as_str(), row.summary?)))
        .collect();
    let top = rows.iter().map(|(_, summary)| summary.p75);
    let marks = ticks(top.fold(0.0, f64::max));
    let end = marks.last().copied().unwrap_or(1.0);
    let scale = |value: f64| NAMES + value / end * (WIDTH - NAMES - FIGURES);
    let height = LINE * rows.len() as f64 + 26.0;
    let mut svg = Svg::new(WIDTH, height);
    for mark in &marks {
        svg.line("grid", (scale(*mark), 2.0), (scale(*mark), height - 22.0));
        let at = (scale(*mark), height - 8.0);
        svg.text("small", at, Anchor::Middle, &number(*mark));
    }
    for (place, (who, summary)) in rows.iter().enumerate() {
        let y = LINE * place as f64 + 4.0;
        let is_subject = subjects.iter().any(|subject| subject == who);
        let (bar, name) = if is_subject {
            (colour(who, subjects, &[]), "name strong")
        } else {
            ("other".to_owned(), "name")
        };
        svg.text(name, (NAMES - 8.0, y + 13.0), Anchor::End, who);
        let hint = format!(
            "{who}: {} {}, quartiles {} and {}, {} values",
            number(summary.median),
            measure.unit,
            number(summary.p25),
            number(summary.p75),
            summary.n
        );
        let width = scale(summary.median) - NAMES;
        svg.bar(
            &format!("fill {bar}"),
            (NAMES, y),
            (width, LINE - 8.0),
            &hint,
        );
        whisker(&mut svg, scale(summary.p25), scale(summary.p75), y + 8.0);
        let at = (
            scale(summary.p75).max(scale(summary.median)) + 8.0,
            y + 13.0,
        );
        svg.text("figure", at, Anchor::Start, &number(summary.median));
    }
    svg.end(&format!("{}, {}", measure.name, measure.unit))
}

/// The measures of a group as bars, one next to the other.
pub fn groups(table: &[&Measure], subjects: &[String]) -> String {
    const BAR: f64 = 11.0;
    let columns = super::text::columns(table);
    let others: Vec<&str> = columns
        .iter()
        .copied()
        .filter(|who| !subjects.iter().any(|subject| subject == who))
        .collect();
    let medians = table
        .iter()
        .flat_map(|measure| measure.rows.iter().filter_map(|row| row.summary));
    let top = medians.map(|summary| summary.median).fold(0.0, f64::max);
    let marks = ticks(top);
    let end = marks.last().copied().unwrap_or(1.0);
    let scale = |value: f64| NAMES + value / end * (WIDTH - NAMES - FIGURES);
    let each = BAR * columns.len() as f64 + 7.0;
    let height = each * table.len() as f64 + 46.0;
    let bottom = height - 42.0;
    let mut svg = Svg::new(WIDTH, height);
    for mark in &marks {
        svg.line("grid", (scale(*mark), 2.0), (scale(*mark), bottom));
        let at = (scale(*mark), bottom + 14.0);
        svg.text("small", at, Anchor::Middle, &number(*mark));
    }
    for (place, measure) in table.iter().enumerate() {
        let y = each * place as f64 + 4.0;
        let middle = y + (each - 7.0) / 2.0 + 4.0;
        svg.text("name", (NAMES - 8.0, middle), Anchor::End, &measure.name);
        for (turn, who) in columns.iter().enumerate() {
            let Some(summary) = measure.summary(who) else {
                continue;
            };
            let y = y + BAR * turn as f64;
            let class = format!("fill {}", colour(who, subjects, &others));
            let hint = format!("{who}: {} {}", number(summary.median), measure.unit);
            let width = scale(summary.median) - NAMES;
            svg.bar(&class, (NAMES, y), (width, BAR - 1.0), &hint);
            let at = (scale(summary.median) + 5.0, y + 9.0);
            svg.text("small", at, Anchor::Start, &number(summary.median));
        }
    }
    for (turn, who) in columns.iter().enumerate() {
        let at = (NAMES + 180.0 * turn as f64, height - 14.0);
        let class = format!("fill {}", colour(who, subjects, &others));
        svg.bar(&class, at, (12.0, 10.0), who);
        svg.text("small", (at.0 + 17.0, at.1 + 9.0), Anchor::Start, who);
    }
    let name = table.first().map_or("", |measure| &measure.group);
    svg.end(name)
}

fn whisker(svg: &mut Svg, from: f64, to: f64, y: f64) {
    if to - from < 1.0 {
        return;
    }
    svg.line("whisker", (from, y), (to, y));
    for x in [from, to] {
        svg.line("whisker", (x, y - 4.0), (x, y + 4.0));
    }
}

/// A ratio that is drawn next to others.
#[derive(Debug, Clone)]
pub struct Versus {
    /// Measure, and the peer that the ratio is over.
    pub name: String,
    /// The ratio.
    pub summary: Summary,
    /// Whether a large one is good.
    pub better: Better,
}

/// Draws ratios around one, by factors; the better ones are to the right.
pub fn ratios(list: &[Versus], name: &str) -> String {
    let gain = |value: f64, better: Better| match better {
        Better::More => value.log2(),
        Better::Less => -value.log2(),
    };
    let far = list
        .iter()
        .filter(|versus| spread::holds(&versus.summary))
        .map(|versus| gain(versus.summary.median, versus.better).abs());
    // Two octaves at least; more than five are cut off, and the figure says how much it was.
    let reach = far.fold(1.0, f64::max).ceil().clamp(1.0, 5.0);
    let names = 380.0;
    let middle = names + (WIDTH - names - FIGURES) / 2.0;
    let half = (WIDTH - names - FIGURES) / 2.0;
    let scale = |octaves: f64| middle + octaves.clamp(-reach, reach) / reach * half;
    let height = LINE * list.len() as f64 + 30.0;
    let mut svg = Svg::new(WIDTH, height);
    let mut mark = -reach;
    while mark <= reach {
        let class = if mark == 0.0 { "axis" } else { "grid" };
        svg.line(class, (scale(mark), 2.0), (scale(mark), height - 26.0));
        let text = match mark {
            _ if mark == 0.0 => "the same".to_owned(),
            _ if mark < 0.0 => format!("{:.0}x worse", 2_f64.powf(-mark)),
            _ => format!("{:.0}x better", 2_f64.powf(mark)),
        };
        let often = reach <= 2.0 || mark == 0.0 || mark.abs() == reach;
        if often {
            svg.text("small", (scale(mark), height - 10.0), Anchor::Middle, &text);
        }
        mark += 1.0;
    }
    for (place, versus) in list.iter().enumerate() {
        let y = LINE * place as f64 + 4.0;
        let Versus {
            summary, better, ..
        } = versus;
        svg.text("name", (names - 8.0, y + 13.0), Anchor::End, &versus.name);
        let figure = spread::ratio(summary, Style::Page);
        // Of noise only the whisker is drawn: it has no length that says anything.
        if spread::holds(summary) {
            let value = gain(summary.median, *better);
            let (from, to) = (scale(value.min(0.0)), scale(value.max(0.0)));
            let class = if value < 0.0 {
                "fill worse"
            } else {
                "fill better"
            };
            let hint = format!("{}: {figure}", versus.name);
            svg.bar(class, (from, y), ((to - from).max(1.5), LINE - 8.0), &hint);
        }
        let ends = [gain(summary.p25, *better), gain(summary.p75, *better)].map(scale);
        whisker(
            &mut svg,
            ends[0].min(ends[1]),
            ends[0].max(ends[1]),
            y + 8.0,
        );
        svg.text("figure", (WIDTH, y + 13.0), Anchor::End, &figure);
    }
    svg.end(name)
}

/// Lines with a legend.
pub fn lines(plot: &Plot, subjects: &[String]) -> String {
    let others: Vec<&str> = plot
        .lines
        .iter()
        .map(|line| line.who.as_str())
        .filter(|who| !subjects.iter().any(|subject| subject == who))
        .collect();
    let legend = 18.0 * plot.lines.len().div_ceil(3) as f64;
    let (left, top, width, height) = (62.0, 8.0, 360.0, 150.0);
    let total = top + height + 24.0 + legend + 8.0;
    let mut svg = Svg::new(left + width + 16.0, total);
    let points = || plot.lines.iter().flat_map(|line| &line.points);
    // One slow moment must not flatten all the rest.
    let highest = points().map(|point| point[1]).fold(0.0, f64::max);
    let ceiling = plot.limit.map_or(highest, |limit| highest.min(limit * 2.0));
    let marks = ticks(ceiling);
    let highest = marks.last().copied().unwrap_or(1.0);
    let y = |value: f64| top + height - (value.min(highest) / highest * height);
    for mark in &marks {
        svg.line("grid", (left, y(*mark)), (left + width, y(*mark)));
        let at = (left - 6.0, y(*mark) + 4.0);
        svg.text("small", at, Anchor::End, &number(*mark));
    }
    let last = points().map(|point| point[0]).fold(0.0, f64::max);
    let x = |value: f64| left + place(plot.axis, value, last) * width;
    for (mark, text) in x_marks(plot.axis, last) {
        svg.line("grid", (x(mark), top), (x(mark), top + height));
        svg.text(
            "small",
            (x(mark), top + height + 14.0),
            Anchor::Middle,
            &text,
        );
    }
    if let Some(limit) = plot.limit {
        svg.line("limit", (left, y(limit)), (left + width, y(limit)));
    }
    for (number, line) in plot.lines.iter().enumerate() {
        let class = colour(&line.who, subjects, &others);
        draw(&mut svg, line, &class, |point| (x(point[0]), y(point[1])));
        let (column, row) = ((number % 3) as f64, (number / 3) as f64);
        let at = (
            left - 50.0 + column * 142.0,
            top + height + 36.0 + row * 18.0,
        );
        svg.line(&format!("stroke {class}"), at, (at.0 + 14.0, at.1));
        svg.text("small", (at.0 + 18.0, at.1 + 4.0), Anchor::Start, &line.who);
    }
    svg.end(&plot.title)
}

fn draw(svg: &mut Svg, line: &Line, class: &str, place: impl Fn(&[f64; 2]) -> (f64, f64)) {
    let points: Vec<(f64, f64)> = line
        .points
        .iter()
        .filter(|point| point[1].is_finite())
        .map(place)
        .collect();
    svg.path(&format!("stroke {class}"), &points, &line.who);
}

/// Where a value is on the x axis, from 0 to 1.
fn place(axis: Axis, value: f64, last: f64) -> f64 {
    match axis {
        // By nines: half of the width for the last tenth.
        Axis::Percentile => {
            let nines = |percent: f64| -(1.0 - percent.clamp(0.0, 99.995) / 100.0).log10();
            nines(value) / nines(last.max(90.0))
        }
        Axis::Time => value / last.max(1e-9),
        Axis::Count => value.max(1.0).log10() / last.max(10.0).log10(),
    }
}

fn x_marks(axis: Axis, last: f64) -> Vec<(f64, String)> {
    match axis {
        Axis::Percentile => [0.0, 50.0, 90.0, 99.0, 99.9, 99.99]
            .into_iter()
            .filter(|mark| *mark <= last)
            .map(|mark| (mark, format!("p{mark}")))
            .collect(),
        Axis::Time => ticks(last)
            .into_iter()
            .filter(|mark| *mark <= last)
            .map(|mark| (mark, format!("{} s", number(mark))))
            .collect(),
        Axis::Count => [1.0, 10.0, 100.0, 1000.0, 10_000.0]
            .into_iter()
            .filter(|mark| *mark <= last)
            .map(|mark| (mark, number(mark)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::sample;

    #[test]
    fn every_bar_has_its_name_its_figure_and_its_whisker() {
        let report = sample();
        let case = &report.cases[0];
        let text = bars(&case.measures[0], &case.subjects);
        assert_eq!(text.matches("<rect").count(), 3);
        assert!(
            text.contains("bridge &lt;1&gt;") && text.contains(">11.0<"),
            "{text}"
        );
        // Two of the three have any spread: a line and two ends each.
        assert_eq!(text.matches("\"whisker\"").count(), 6);
    }

    #[test]
    fn a_group_has_a_bar_for_everybody_on_every_line() {
        let report = sample();
        let case = &report.cases[0];
        let lines: Vec<&Measure> = case.measures[1..].iter().collect();
        let text = groups(&lines, &case.subjects);
        // Two lines of two, and the legend's two.
        assert_eq!(text.matches("<rect").count(), 6);
        assert!(
            text.contains(">100 Mbit/s<") && text.contains(">98.0<"),
            "{text}"
        );
    }

    #[test]
    fn less_of_a_cost_is_drawn_as_better() {
        let summary = sample().cases[0].measures[0]
            .ratio("podnet L2", "bridge <1>")
            .unwrap();
        let versus = |better| Versus {
            name: "a".to_owned(),
            summary,
            better,
        };
        assert!(ratios(&[versus(Better::More)], "x").contains("fill better"));
        assert!(ratios(&[versus(Better::Less)], "x").contains("fill worse"));
    }

    #[test]
    fn noise_has_a_whisker_and_a_word_but_no_bar() {
        let values = [0.5, 0.5, 1.0, 4.0, 4.0];
        let summary = values.into_iter().collect::<crate::series::Series>();
        let noise = Versus {
            name: "a".to_owned(),
            summary: summary.summary().unwrap(),
            better: Better::More,
        };
        let text = ratios(&[noise], "x");
        assert!(!text.contains("<rect"), "{text}");
        assert!(text.contains("\"whisker\""), "{text}");
        assert!(text.contains(">noise \u{b1}175%<"), "{text}");
    }

    #[test]
    fn half_of_a_percentile_axis_is_for_the_last_tenth() {
        let at = |value| place(Axis::Percentile, value, 99.0);
        assert!(at(0.0).abs() < 1e-9 && (at(99.0) - 1.0).abs() < 1e-9);
        assert!((at(90.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_plot_has_a_line_and_a_legend_for_each() {
        let report = sample();
        let case = &report.cases[0];
        let text = lines(&case.plots[0], &case.subjects);
        assert_eq!(text.matches("<polyline").count(), 1);
        assert!(text.contains(">podnet L2</text>"), "{text}");
        assert!(!text.contains("NaN"), "{text}");
    }
}
