//! Judge the spread of ratios, for all tables, pages, pictures and comparisons.
//!
//! The spread of values is half of the distance of their quartiles, divided by their median. A ratio whose
//! rounds spread by more than [`LIMIT`] is noise: it is printed with its spread and without its figure.

use crate::series::Summary;
use crate::text::number;

/// Spread above which a ratio is not told: 15 % of the median.
pub const LIMIT: f64 = 0.15;

/// Word that stands where a ratio would be.
pub const NOISE: &str = "noise";

/// Way of writing a spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// `+-5%`, for a terminal.
    Terminal,
    /// `±5%`, for a page.
    Page,
    /// `±5 %`, for a document.
    Document,
}

/// Returns whether values are near enough to each other to be compared.
///
/// One value has no spread: it is told as it is, and without one.
pub fn holds(summary: &Summary) -> bool {
    summary.spread() <= LIMIT
}

/// Writes a ratio with its spread, or that it is noise.
pub fn ratio(summary: &Summary, style: Style) -> String {
    let figure = if holds(summary) {
        number(summary.median)
    } else {
        NOISE.to_owned()
    };
    beside(figure, summary, style)
}

/// Writes a figure with its spread.
pub fn figure(summary: &Summary, style: Style) -> String {
    beside(number(summary.median), summary, style)
}

/// Writes a figure's spread where it is above the limit; else nothing.
pub fn mark(summary: &Summary, style: Style) -> String {
    if holds(summary) {
        String::new()
    } else {
        beside(String::new(), summary, style)
    }
}

/// Writes a spread; nothing for a single value, and for a median of 0.
pub fn write(summary: &Summary, style: Style) -> String {
    let percent = summary.spread() * 100.0;
    if summary.n < 2 || !percent.is_finite() {
        return String::new();
    }
    // One that is just above the limit must not look as if it were at it.
    let text = if !holds(summary) && percent.round() <= LIMIT * 100.0 {
        format!("{:.1}", (percent * 10.0).ceil() / 10.0)
    } else {
        format!("{percent:.0}")
    };
    match style {
        Style::Terminal => format!("+-{text}%"),
        Style::Page => format!("\u{b1}{text}%"),
        Style::Document => format!("\u{b1}{text} %"),
    }
}

fn beside(mut text: String, summary: &Summary, style: Style) -> String {
    let spread = write(summary, style);
    if !spread.is_empty() {
        text.push(' ');
        text.push_str(&spread);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Series;

    fn summary(values: &[f64]) -> Summary {
        let series: Series = values.iter().copied().collect();
        series.summary().unwrap()
    }

    #[test]
    fn a_spread_at_the_limit_holds_and_one_above_it_is_noise() {
        let at = summary(&[0.85, 0.85, 1.0, 1.15, 1.15]);
        assert!((at.spread() - LIMIT).abs() < 1e-9);
        assert_eq!(ratio(&at, Style::Document), "1.00 \u{b1}15 %");
        let above = summary(&[0.84, 0.84, 1.0, 1.16, 1.16]);
        assert!(!holds(&above));
        assert_eq!(ratio(&above, Style::Document), "noise \u{b1}16 %");
        assert_eq!(ratio(&above, Style::Terminal), "noise +-16%");
        assert_eq!(ratio(&above, Style::Page), "noise \u{b1}16%");
        let just = summary(&[0.848, 0.848, 1.0, 1.153, 1.153]);
        assert_eq!(ratio(&just, Style::Document), "noise \u{b1}15.3 %");
    }

    #[test]
    fn a_figure_is_told_and_marked_where_it_spreads_too_far() {
        let wide = summary(&[5.0, 5.0, 10.0, 15.0, 15.0]);
        assert_eq!(figure(&wide, Style::Terminal), "10.0 +-50%");
        assert_eq!(mark(&wide, Style::Document), " \u{b1}50 %");
        assert_eq!(mark(&summary(&[10.0, 10.1, 10.2]), Style::Document), "");
    }

    #[test]
    fn a_single_value_has_no_spread_to_be_judged_by() {
        let one = summary(&[2.0]);
        assert!(holds(&one));
        assert_eq!(ratio(&one, Style::Document), "2.00");
        assert_eq!(write(&one, Style::Page), "");
    }

    #[test]
    fn values_around_nothing_have_a_spread() {
        // A median of 0 has no part that could be 15 % of it: any other value is more.
        let some = summary(&[0.0, 0.0, 0.0, 4.0, 4.0]);
        assert!(!holds(&some));
        assert_eq!(figure(&some, Style::Document), "0");
        assert!(holds(&summary(&[0.0, 0.0, 0.0])));
    }
}
