//! Compare two commits by the runs of both, round by round.

use std::fmt::Write;

use super::highlights::Verdict;
use super::series::{Series, Summary};
use super::spread::{self, Style};
use super::text::align;
use super::{Better, Case, Measure, Report};

/// Rounds with a figure of both, below which nothing is judged.
pub const FEWEST: usize = 5;

/// A row of both commits.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Name of the case.
    pub case: String,
    /// Group and name of the measure, and whose figure it is.
    pub what: String,
    /// Its unit.
    pub unit: String,
    /// Which figures are good.
    pub better: Better,
    /// Medians of the old commit's rounds.
    pub old: Summary,
    /// Medians of the new one's.
    pub new: Summary,
    /// New over old, paired by round; nothing where the old figure is 0.
    pub ratio: Option<Summary>,
}

impl Line {
    /// Judges the new commit; nothing where there is no ratio, or too few rounds.
    pub fn verdict(&self) -> Option<Verdict> {
        let Some(ratio) = self.ratio.filter(|ratio| ratio.n >= FEWEST) else {
            return self.out_of_nothing();
        };
        Some(Verdict::of(&ratio, self.better))
    }

    /// Judges a figure that was 0 in all rounds, and so has no ratio.
    fn out_of_nothing(&self) -> Option<Verdict> {
        let enough = self.old.n >= FEWEST && self.new.n >= FEWEST;
        let grown = self.old.max == 0.0 && self.new.p25 > 0.0;
        (enough && grown).then_some(match self.better {
            Better::Less => Verdict::Worse(f64::INFINITY),
            Better::More => Verdict::Better(f64::INFINITY),
        })
    }

    /// Whether the new commit is worse by more percent, in three of four rounds.
    ///
    /// A loss that is smaller than its spread is none.
    pub fn is_worse_by(&self, percent: f64) -> bool {
        let worse = |factor: f64| factor > 1.0 + percent / 100.0;
        let mostly = self.ratio.is_none_or(|ratio| match self.better {
            Better::Less => ratio.p25 > 1.0,
            Better::More => ratio.p75 < 1.0,
        });
        matches!(self.verdict(), Some(Verdict::Worse(factor)) if worse(factor) && mostly)
    }
}

/// Compares rows of both commits by the median of each round.
pub fn compare(old: &[Report], new: &[Report]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for case in new.iter().flat_map(|report| &report.cases) {
        for measure in &case.measures {
            for row in &measure.rows {
                let what = what(measure, &row.who, case);
                let known = |line: &Line| line.case == case.name && line.what == what;
                if lines.iter().any(known) {
                    continue;
                }
                let of = |reports: &[Report]| medians(reports, case, measure, &row.who);
                let (before, after) = (of(old), of(new));
                let (Some(old), Some(new)) = (before.summary(), after.summary()) else {
                    continue;
                };
                lines.push(Line {
                    case: case.name.clone(),
                    what,
                    unit: measure.unit.clone(),
                    better: measure.better,
                    old,
                    new,
                    ratio: after.over(&before).summary(),
                });
            }
        }
    }
    lines
}

fn what(measure: &Measure, who: &str, case: &Case) -> String {
    let group = if measure.group.is_empty() {
        String::new()
    } else {
        format!("{}, ", measure.group)
    };
    // The only one compared needs no name.
    let single = measure.rows.len() == 1 && case.subjects.len() == 1;
    let whose = if single {
        String::new()
    } else {
        format!(", {who}")
    };
    format!("{group}{}{whose}", measure.name)
}

/// A row's median of each run; a run without the row leaves a gap.
fn medians(reports: &[Report], case: &Case, measure: &Measure, who: &str) -> Series {
    let mut series = Series::default();
    for (round, report) in reports.iter().enumerate() {
        let median = report
            .cases
            .iter()
            .find(|one| one.name == case.name)
            .and_then(|one| {
                let mut measures = one.measures.iter();
                measures.find(|one| one.group == measure.group && one.name == measure.name)
            })
            .and_then(|measure| measure.rows.iter().find(|row| row.who == who))
            .map(|row| row.values.median());
        series.put(round, median.unwrap_or(f64::NAN));
    }
    series
}

/// The table, for a terminal.
pub fn table(lines: &[Line]) -> String {
    let mut out = String::new();
    let mut cases: Vec<&str> = lines.iter().map(|line| line.case.as_str()).collect();
    cases.dedup();
    for case in cases {
        let _ = writeln!(out, "{case}");
        let head = ["", "unit", "old", "new", "new / old", "new is"];
        let mut cells = vec![head.map(String::from).to_vec()];
        for line in lines.iter().filter(|line| line.case == case) {
            let ratio = line.ratio.as_ref();
            let ratio = ratio.map(|one| spread::ratio(one, Style::Terminal));
            let verdict = line.verdict().map(|verdict| verdict.to_string());
            cells.push(vec![
                line.what.clone(),
                line.unit.clone(),
                spread::figure(&line.old, Style::Terminal),
                spread::figure(&line.new, Style::Terminal),
                ratio.unwrap_or_default(),
                verdict.unwrap_or_default(),
            ]);
        }
        align(&mut out, &cells);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::sample;

    /// A run of one round with these figures.
    fn run(figures: &[(&str, Better, f64)]) -> Report {
        let mut report = sample();
        let mut case = Case::new("cni", "CNI", "");
        case.subjects = vec!["podnet".to_owned()];
        for (name, better, figure) in figures {
            let measure = case.measure("", name, "ms", *better);
            // The median counts.
            for value in [*figure, figure * 0.9, figure * 3.0] {
                measure.push("podnet", value);
            }
        }
        case.seal();
        report.cases = vec![case];
        report
    }

    fn runs(name: &str, better: Better, figures: &[f64]) -> Vec<Report> {
        let run = |figure: &f64| run(&[(name, better, *figure)]);
        figures.iter().map(run).collect()
    }

    fn line(better: Better, old: &[f64], new: &[f64]) -> Line {
        let mut lines = compare(&runs("ADD", better, old), &runs("ADD", better, new));
        assert_eq!(lines.len(), 1);
        lines.remove(0)
    }

    #[test]
    fn ratios_are_new_over_old_within_a_round() {
        // The second round was slow for both.
        let line = line(
            Better::Less,
            &[2.0, 20.0, 2.0, 2.0, 2.0],
            &[3.0, 30.0, 3.0, 3.0, 3.0],
        );
        assert_eq!(line.what, "ADD");
        let ratio = line.ratio.unwrap();
        assert!(
            (ratio.median - 1.5).abs() < 1e-9 && ratio.n == 5,
            "{ratio:?}"
        );
        assert_eq!(line.verdict(), Some(Verdict::Worse(1.5)));
        assert!(line.is_worse_by(49.0) && !line.is_worse_by(50.0));
    }

    #[test]
    fn more_of_a_rate_is_better_and_never_above_a_bound() {
        let line = line(Better::More, &[10.0; 5], &[12.0; 5]);
        assert_eq!(line.verdict(), Some(Verdict::Better(1.2)));
        assert!(!line.is_worse_by(0.0));
    }

    #[test]
    fn what_spreads_too_far_or_has_too_few_rounds_is_never_worse() {
        let noise = line(Better::Less, &[1.0; 5], &[1.0, 1.5, 2.0, 3.0, 4.0]);
        assert_eq!(noise.verdict(), Some(Verdict::Noise));
        assert!(!noise.is_worse_by(0.0));
        let table = table(&[noise]);
        assert!(table.contains("noise +-38%"), "{table}");
        let few = line(Better::Less, &[1.0; 4], &[9.0; 4]);
        assert_eq!((few.verdict(), few.is_worse_by(0.0)), (None, false));
    }

    #[test]
    fn a_loss_of_less_than_three_in_four_rounds_is_not_held_against_the_new_commit() {
        let old = [1.0; 5];
        // Its lower quartile is no loss, though the median is.
        let new = [0.99, 0.99, 1.2, 1.21, 1.22];
        let line = line(Better::Less, &old, &new);
        assert!(matches!(line.verdict(), Some(Verdict::Worse(_))));
        assert!(!line.is_worse_by(5.0));
    }

    #[test]
    fn losses_that_were_none_before_are_worse_without_a_ratio() {
        let lost = line(Better::Less, &[0.0; 5], &[4.0; 5]);
        assert_eq!(lost.ratio, None);
        assert!(lost.is_worse_by(1000.0));
        assert!(!line(Better::Less, &[0.0; 5], &[0.0; 5]).is_worse_by(0.0));
        assert!(!line(Better::Less, &[0.0; 5], &[0.0, 0.0, 0.0, 0.0, 4.0]).is_worse_by(0.0));
    }

    #[test]
    fn rows_of_one_side_alone_and_gaps_of_a_round_are_left_out() {
        let old = runs("ADD", Better::Less, &[1.0, 1.0, 1.0, 1.0]);
        let mut new = runs("ADD", Better::Less, &[2.0, 2.0, 2.0, 2.0]);
        new[1].cases.clear();
        new.push(run(&[("a new row", Better::Less, 1.0)]));
        let lines = compare(&old, &new);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].ratio.unwrap().n, 3);
    }

    #[test]
    fn a_table_has_both_figures_the_ratio_and_the_verdict() {
        let line = line(Better::Less, &[2.0; 5], &[3.0; 5]);
        let text = table(&[line]);
        let row = text.lines().nth(2).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        let expected = [
            "ADD",
            "ms",
            "2.00",
            "+-0%",
            "3.00",
            "+-0%",
            "1.50",
            "+-0%",
            "1.50\u{d7}",
            "worse",
        ];
        assert_eq!(words, expected, "{text}");
    }
}
