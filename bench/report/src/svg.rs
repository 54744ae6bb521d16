//! Just enough SVG: shapes with classes, whose colours a style sheet chooses.

use std::fmt::Write;

/// A drawing of a fixed width and height in its own units; it scales to the page.
#[derive(Debug)]
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// Where a text is attached to its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// Its beginning.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// The text with what has a meaning in HTML and SVG written out.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(c),
        }
    }
    out
}

impl Svg {
    /// An empty drawing.
    pub fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            body: String::new(),
        }
    }

    /// A filled rectangle with a text that shows when it is pointed at.
    pub fn bar(&mut self, class: &str, corner: (f64, f64), size: (f64, f64), hint: &str) {
        let ((x, y), (width, height)) = (corner, size);
        // Writing to a string cannot fail, here and below.
        let _ = write!(
            self.body,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\"><title>{}</title></rect>",
            width.max(0.0),
            height.max(0.0),
            escape(hint)
        );
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = write!(
            self.body,
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A line through points.
    pub fn path(&mut self, class: &str, points: &[(f64, f64)], hint: &str) {
        if points.is_empty() {
            return;
        }
        let list: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = write!(
            self.body,
            "<polyline class=\"{class}\" points=\"{}\"><title>{}</title></polyline>",
            list.join(" "),
            escape(hint)
        );
    }

    /// A text whose baseline begins, ends or is centred at a point.
    pub fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = write!(
            self.body,
            "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            at.0,
            at.1,
            escape(text)
        );
    }

    /// A document of its own, with a style sheet, for pages that show it as a picture.
    pub fn document(self, name: &str, style: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0} {1:.0}\" width=\"{0:.0}\" height=\"{1:.0}\" \
             role=\"img\" aria-label=\"{2}\">\n<style>\n{style}</style>\n{3}\n</svg>\n",
            self.width,
            self.height,
            escape(name),
            self.body.replace("><", ">\n<").replace(">\n</", "></")
        )
    }

    /// The element, with a name for those who do not see it.
    pub fn end(self, name: &str) -> String {
        format!(
            "<svg viewBox=\"0 0 {:.0} {:.0}\" role=\"img\" aria-label=\"{}\">{}</svg>\n",
            self.width,
            self.height,
            escape(name),
            self.body
        )
    }
}

/// Round values from 0 to at least `top`: 1, 2 or 5 times a power of ten apart.
pub fn ticks(top: f64) -> Vec<f64> {
    if !top.is_finite() || top <= 0.0 {
        return vec![0.0, 1.0];
    }
    let power = 10_f64.powf((top / 4.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| top / step <= 5.0)
        .unwrap_or(power * 10.0);
    let mut ticks = vec![0.0];
    let mut next = step;
    while ticks.last().is_some_and(|last| *last < top * 0.999) {
        ticks.push(next);
        next += step;
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_top() {
        for top in [0.003, 0.7, 1.0, 14.2, 99.0, 173.0, 3639.0] {
            let ticks = ticks(top);
            assert!(ticks.last().unwrap() >= &(top * 0.999), "{top}: {ticks:?}");
            assert!((3..=8).contains(&ticks.len()), "{top}: {ticks:?}");
        }
        assert_eq!(ticks(10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(f64::NAN), [0.0, 1.0]);
    }

    #[test]
    fn what_means_something_in_html_is_written_out() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text("t", (0.0, 0.0), Anchor::Start, "a < b & \"c\"");
        let text = svg.end("x > y");
        assert!(text.contains("a &lt; b &amp; &quot;c&quot;"), "{text}");
        assert!(text.contains("aria-label=\"x &gt; y\""), "{text}");
    }
}
