//! The picture of the README: a panel for each highlight, on light and dark pages.

use super::highlights::{Comparison, Figures, Verdict, figures};
use super::svg::{Anchor, Svg};
use super::text::number;
use super::{Better, Report};

const STYLE: &str = include_str!("picture.css");
const COLUMNS: usize = 2;
const PANEL: (f64, f64) = (460.0, 118.0);
const MARGIN: f64 = 20.0;
/// Height of the legend at the top.
const TOP: f64 = 46.0;
/// Where bars begin in a panel.
const BARS: f64 = 160.0;
/// Length of the longest bar.
const LONGEST: f64 = 124.0;
/// Distance of bars.
const PITCH: f64 = 23.0;
const THICK: f64 = 15.0;

/// The picture, a document of its own.
pub fn svg(report: &Report) -> String {
    let panels = figures(report);
    let rows = panels.len().div_ceil(COLUMNS) as f64;
    let width = MARGIN + PANEL.0 * COLUMNS as f64;
    let height = TOP + PANEL.1 * rows + MARGIN / 2.0;
    let mut svg = Svg::new(width, height);
    svg.bar(
        "card",
        (0.5, 0.5),
        (width - 1.0, height - 1.0),
        "podnet compared with others",
    );
    legend(&mut svg);
    for (place, figures) in panels.iter().enumerate() {
        let (column, row) = (place % COLUMNS, place / COLUMNS);
        let corner = (MARGIN + PANEL.0 * column as f64, TOP + PANEL.1 * row as f64);
        panel(&mut svg, corner, figures);
    }
    svg.document("podnet compared with the usual way and the limit", STYLE)
}

fn legend(svg: &mut Svg) {
    let mut x = MARGIN;
    for (class, text, width) in [
        ("fill own", "podnet", 76.0),
        ("fill usual", "the usual way", 112.0),
        (
            "fill limit",
            "the limit: the kernel with nothing in the way",
            320.0,
        ),
    ] {
        svg.bar(class, (x, 15.0), (12.0, 12.0), text);
        svg.text("small", (x + 18.0, 25.5), Anchor::Start, text);
        x += width;
    }
    let right = PANEL.0 * COLUMNS as f64;
    svg.text(
        "small",
        (right, 25.5),
        Anchor::End,
        "at the right: podnet compared with it",
    );
}

fn panel(svg: &mut Svg, (x, y): (f64, f64), figures: &Figures) {
    let unit = figures.unit.replace("us", "µs");
    let (better, class) = match figures.better {
        Better::More => ("longer is better", "small"),
        Better::Less => ("shorter is better", "small"),
    };
    svg.line("rule", (x, y + 0.5), (x + PANEL.0 - MARGIN, y + 0.5));
    svg.text("title", (x, y + 22.0), Anchor::Start, figures.row.title);
    let hint = format!("{unit}, {better}");
    svg.text(class, (x + PANEL.0 - MARGIN, y + 22.0), Anchor::End, &hint);
    let others = figures.others.iter().map(|other| other.figure);
    let top = others.fold(figures.own, f64::max);
    let bars = std::iter::once((figures.row.subject, figures.own, None)).chain(
        figures
            .others
            .iter()
            .map(|other| (&*other.over, other.figure, Some(other))),
    );
    for (turn, (name, figure, other)) in bars.enumerate() {
        let at = (x, y + 36.0 + PITCH * turn as f64);
        bar(svg, at, (name, figure, figure / top), other, figures);
    }
}

fn bar(
    svg: &mut Svg,
    (x, y): (f64, f64),
    (name, figure, share): (&str, f64, f64),
    other: Option<&Comparison>,
    figures: &Figures,
) {
    let base = y + THICK - 3.0;
    let is_limit = other.is_some_and(|other| Some(&*other.over) == figures.row.limit);
    let (fill, text) = match other {
        None => ("fill own", "name strong"),
        Some(_) if is_limit => ("fill limit", "name"),
        Some(_) => ("fill usual", "name"),
    };
    svg.text(text, (x + BARS - 8.0, base), Anchor::End, name);
    let hint = format!("{name}: {} {}", number(figure), figures.unit);
    let length = (share * LONGEST).max(2.0);
    svg.bar(fill, (x + BARS, y), (length, THICK), &hint);
    let at = x + BARS + length + 7.0;
    svg.text(text, (at, base), Anchor::Start, &number(figure));
    if let Some(other) = other {
        let class = match other.verdict {
            Verdict::Better(_) => "verdict better",
            Verdict::Same | Verdict::Noise => "verdict",
            Verdict::Worse(_) => "verdict worse",
        };
        let at = (x + PANEL.0 - MARGIN, base);
        svg.text(class, at, Anchor::End, &other.verdict.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::sample;

    #[test]
    fn the_picture_is_a_document_that_needs_nothing_from_elsewhere() {
        let text = svg(&sample());
        assert!(
            text.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""),
            "{text}"
        );
        for foreign in ["https:", "href", "<script", "@import", "url("] {
            assert!(!text.contains(foreign), "{foreign}");
        }
        assert!(text.contains("prefers-color-scheme: dark"), "{text}");
    }

    #[test]
    fn a_panel_has_a_bar_for_each_and_says_which_comparison_is_lost() {
        let text = svg(&sample());
        assert!(text.contains(">TCP, pods of one node<"), "{text}");
        assert!(text.contains("class=\"verdict worse\""), "{text}");
        assert!(text.contains(">1.09× worse<"), "{text}");
        // podnet's, the limit's, three of the legend, and the card.
        assert_eq!(text.matches("<rect").count(), 6, "{text}");
    }
}
