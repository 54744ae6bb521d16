//! Results of a run of `podnet-bench`: one model for all reports.
//!
//! These are the terminal, the JSON file, the page, the tables of docs/performance.md, and the table and
//! picture of the README.
//!
//! It knows figures and how to draw them. It refuses to know how they are measured: it links nothing
//! of podnet, so that the documents can be checked without building it.

pub mod against;
pub mod bars;
pub mod chart;
pub mod generated;
pub mod highlights;
pub mod html;
pub mod load;
pub mod machine;
pub mod picture;
pub mod revision;
pub mod series;
pub mod spread;
pub mod store;
pub mod svg;
pub mod tables;
pub mod text;

use serde::{Deserialize, Serialize};

use crate::load::Load;
use crate::machine::Machine;
use crate::series::{Series, Summary};

/// The version of the file's layout.
pub const FORMAT: u32 = 1;

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// Name of the run.
    pub name: String,
    /// Whether it was the short run, for function rather than for figures.
    pub quick: bool,
    /// Where it was made.
    pub machine: Machine,
    /// Load averages of 1, 5 and 15 minutes before it.
    pub load_before: String,
    /// The same after it.
    pub load_after: String,
    /// Load by others before it.
    #[serde(default)]
    pub others: Option<Load>,
    /// When it began, seconds since 1970.
    pub started: u64,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Measured cases, in order.
    pub cases: Vec<Case>,
}

/// One case of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The name for `--case`.
    pub name: String,
    /// The heading.
    pub title: String,
    /// How it is measured and how to read it.
    pub about: String,
    /// When it began, seconds since 1970.
    pub started: u64,
    /// Load averages before it.
    pub load: String,
    /// Load by others before it, while the bench rested.
    #[serde(default)]
    pub others: Option<Load>,
    /// Share of the processors that a hypervisor took away meanwhile, 0 to 1.
    #[serde(default)]
    pub stolen: Option<f64>,
    /// Commit of podnet, abbreviated.
    pub commit: String,
    /// Whether the tree had changes that are in no commit.
    #[serde(default)]
    pub dirty: bool,
    /// Whether probes that share a processor had real-time priority.
    #[serde(default)]
    pub realtime: bool,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Subjects, which are compared with the others.
    pub subjects: Vec<String>,
    /// The figures.
    pub measures: Vec<Measure>,
    /// Curves.
    pub plots: Vec<Plot>,
    /// Peers that could not be measured, with the reasons.
    pub absent: Vec<Absent>,
    /// True when it was not measured because a program of others is missing.
    ///
    /// That is no failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
}

/// Which figures are good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Large ones.
    More,
    /// Small ones.
    Less,
}

/// One figure of everybody.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Measures of the same group are the lines of one table; empty if it has its own.
    pub group: String,
    /// Name of the measure; its line within a group.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Which figures are good.
    pub better: Better,
    /// Everybody's figures.
    pub rows: Vec<Row>,
    /// Subjects over others, paired by round.
    #[serde(default)]
    pub ratios: Vec<Ratio>,
}

/// The figures of one of those compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Subject or peer of the figures.
    pub who: String,
    /// Of each round.
    pub values: Series,
    /// Summary of the values.
    #[serde(default)]
    pub summary: Option<Summary>,
}

/// A subject's figures divided by another one's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The subject.
    pub subject: String,
    /// The other.
    pub over: String,
    /// Of the ratios of the rounds.
    pub summary: Summary,
}

/// A peer that could not be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// Name of the peer.
    pub who: String,
    /// Why.
    pub reason: String,
}

/// Quantity on a plot's x axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// Percentiles, so that the last ones have room.
    Percentile,
    /// Seconds.
    Time,
    /// A count, by powers of ten.
    Count,
}

/// Lines over a common x axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// Title of the plot.
    pub title: String,
    /// The x axis.
    pub axis: Axis,
    /// Unit of the x axis.
    pub x: String,
    /// Unit of the y axis.
    pub y: String,
    /// A horizontal line that should not be crossed.
    pub limit: Option<f64>,
    /// Everybody's points.
    pub lines: Vec<Line>,
}

/// One line of a plot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Subject or peer of the line.
    pub who: String,
    /// x and y.
    pub points: Vec<[f64; 2]>,
}

impl Report {
    /// Names the cases before which others had more of the machine than figures bear.
    ///
    /// They were measured by `--load-anyway`.
    pub fn loaded(&self) -> Vec<&str> {
        let loaded = |case: &&Case| case.others.is_some_and(|load| load.too_much().is_some());
        let cases = self.cases.iter().filter(loaded);
        cases.map(|case| case.name.as_str()).collect()
    }

    /// Checks that the figures of an earlier run belong together with this one's.
    ///
    /// # Errors
    /// The earlier run was made elsewhere, or one of the two is a quick run.
    pub fn check_beside(&self, earlier: &Self) -> anyhow::Result<()> {
        let same = |report: &Self| {
            let machine = &report.machine;
            (
                machine.kernel.clone(),
                machine.cpu.clone(),
                machine.cpus,
                report.quick,
            )
        };
        if same(self) != same(earlier) {
            anyhow::bail!(
                "the run `{}` is of another machine or kernel, or only one of both is quick: \
                 choose another --name",
                earlier.name
            );
        }
        Ok(())
    }

    /// Takes over the cases of an earlier run that this one has not measured.
    ///
    /// They are put in this order of names.
    ///
    /// # Errors
    /// As [`Self::check_beside`].
    pub fn keep_from(&mut self, earlier: Self, order: &[&str]) -> anyhow::Result<()> {
        self.check_beside(&earlier)?;
        let mine = |case: &Case| self.cases.iter().any(|own| own.name == case.name);
        let kept: Vec<Case> = earlier
            .cases
            .into_iter()
            .filter(|case| !mine(case))
            .collect();
        self.cases.extend(kept);
        let place = |case: &Case| order.iter().position(|name| *name == case.name);
        self.cases.sort_by_key(place);
        self.seconds = self.cases.iter().map(|case| case.seconds).sum();
        Ok(())
    }
}

impl Case {
    /// Nothing measured yet.
    pub fn new(name: &str, title: &str, about: &str) -> Self {
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            about: about.to_owned(),
            started: 0,
            load: String::new(),
            others: None,
            stolen: None,
            commit: String::new(),
            dirty: false,
            realtime: false,
            seconds: 0.0,
            subjects: Vec::new(),
            measures: Vec::new(),
            plots: Vec::new(),
            absent: Vec::new(),
            skipped: false,
        }
    }

    /// Says that nothing is measured without somebody's program.
    pub fn skip(&mut self, who: &str, reason: &str) {
        self.miss(who, reason);
        self.skipped = true;
    }

    /// The measure of this group and name, made when it is first asked for.
    pub fn measure(&mut self, group: &str, name: &str, unit: &str, better: Better) -> &mut Measure {
        let found = self
            .measures
            .iter()
            .position(|measure| measure.group == group && measure.name == name);
        let index = found.unwrap_or(self.measures.len());
        if found.is_none() {
            self.measures.push(Measure {
                group: group.to_owned(),
                name: name.to_owned(),
                unit: unit.to_owned(),
                better,
                rows: Vec::new(),
                ratios: Vec::new(),
            });
        }
        &mut self.measures[index]
    }

    /// The plot of this title, made when it is first asked for.
    pub fn plot(&mut self, title: &str, axis: Axis, x: &str, y: &str) -> &mut Plot {
        let found = self.plots.iter().position(|plot| plot.title == title);
        let index = found.unwrap_or(self.plots.len());
        if found.is_none() {
            self.plots.push(Plot {
                title: title.to_owned(),
                axis,
                x: x.to_owned(),
                y: y.to_owned(),
                limit: None,
                lines: Vec::new(),
            });
        }
        &mut self.plots[index]
    }

    /// Says that somebody is missing; once is enough.
    pub fn miss(&mut self, who: &str, reason: &str) {
        let absent = Absent {
            who: who.to_owned(),
            reason: reason.to_owned(),
        };
        if !self.absent.contains(&absent) {
            self.absent.push(absent);
        }
    }

    /// Figures of a subject that are missing are a failure, not only a gap.
    pub fn failed(&self) -> bool {
        (self.measures.is_empty() && !self.skipped)
            || self
                .absent
                .iter()
                .any(|absent| self.subjects.contains(&absent.who))
    }

    /// Summaries and ratios from the values.
    pub fn seal(&mut self) {
        for measure in &mut self.measures {
            measure.seal(&self.subjects);
        }
    }
}

impl Measure {
    /// Adds somebody's value of a round.
    pub fn put(&mut self, who: &str, round: usize, value: f64) {
        self.row(who).values.put(round, value);
    }

    /// Adds somebody's next value.
    pub fn push(&mut self, who: &str, value: f64) {
        let values = &mut self.row(who).values;
        values.put(values.rounds(), value);
    }

    fn row(&mut self, who: &str) -> &mut Row {
        let found = self.rows.iter().position(|row| row.who == who);
        let index = found.unwrap_or(self.rows.len());
        if found.is_none() {
            self.rows.push(Row {
                who: who.to_owned(),
                values: Series::default(),
                summary: None,
            });
        }
        &mut self.rows[index]
    }

    /// Somebody's summary.
    pub fn summary(&self, who: &str) -> Option<Summary> {
        self.rows.iter().find(|row| row.who == who)?.summary
    }

    /// A subject over another.
    pub fn ratio(&self, subject: &str, over: &str) -> Option<Summary> {
        let mut ratios = self.ratios.iter();
        ratios
            .find(|ratio| ratio.subject == subject && ratio.over == over)
            .map(|ratio| ratio.summary)
    }

    fn seal(&mut self, subjects: &[String]) {
        for row in &mut self.rows {
            row.summary = row.values.summary();
        }
        self.ratios.clear();
        for subject in subjects {
            let Some(own) = self.rows.iter().find(|row| row.who == *subject) else {
                continue;
            };
            for other in self.rows.iter().filter(|row| !subjects.contains(&row.who)) {
                if let Some(summary) = own.values.over(&other.values).summary() {
                    self.ratios.push(Ratio {
                        subject: subject.clone(),
                        over: other.who.clone(),
                        summary,
                    });
                }
            }
        }
    }
}

impl Plot {
    /// Adds a line, or points to the line that is there.
    pub fn line(&mut self, who: &str, points: impl IntoIterator<Item = [f64; 2]>) {
        if let Some(line) = self.lines.iter_mut().find(|line| line.who == who) {
            line.points.extend(points);
            return;
        }
        self.lines.push(Line {
            who: who.to_owned(),
            points: points.into_iter().collect(),
        });
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A small report with a win, a loss, a gap and a plot.
    pub(crate) fn sample() -> Report {
        let mut case = Case::new("tcp", "TCP", "From pod to pod.");
        case.subjects = vec!["podnet L2".to_owned()];
        for (round, values) in [[10.0, 8.0, 12.0], [12.0, 10.0, 12.0], [11.0, 9.0, 12.0]]
            .iter()
            .enumerate()
        {
            let measure = case.measure("", "TCP, 1 stream", "Gbit/s", Better::More);
            for (who, value) in ["podnet L2", "bridge <1>", "bare veth pair"]
                .iter()
                .zip(values)
            {
                measure.put(who, round, *value);
            }
        }
        for (line, value) in [("10 Mbit/s", 99.0), ("100 Mbit/s", 98.0)] {
            let measure = case.measure("goodput", line, "%", Better::More);
            measure.put("podnet L2", 0, value);
            measure.put("bridge <1>", 0, value - 2.0);
        }
        case.plot("Round trip", Axis::Percentile, "percentile", "us")
            .line("podnet L2", [[50.0, 10.0], [99.0, 20.0]]);
        case.miss("Open vSwitch", "not & never installed");
        case.seal();
        Report {
            format: FORMAT,
            name: "sample".to_owned(),
            quick: true,
            machine: Machine::default(),
            load_before: "0.10 0.20 0.30".to_owned(),
            load_after: "1.00 0.50 0.30".to_owned(),
            others: None,
            started: 1_700_000_000,
            seconds: 12.0,
            cases: vec![case],
        }
    }

    #[test]
    fn ratios_are_of_subjects_over_everybody_else() {
        let report = sample();
        let measure = &report.cases[0].measures[0];
        let ratio = measure.ratio("podnet L2", "bridge <1>").unwrap();
        assert!((ratio.median - 1.222).abs() < 0.001, "{ratio:?}");
        assert!(measure.ratio("bridge <1>", "podnet L2").is_none());
        assert!(measure.ratio("podnet L2", "podnet L2").is_none());
    }

    #[test]
    fn cases_measured_again_replace_those_of_the_same_run() {
        let mut old = sample();
        old.cases.push(Case::new("udp", "old UDP", ""));
        let mut new = sample();
        new.cases[0] = Case::new("udp", "new UDP", "");
        new.keep_from(old.clone(), &["tcp", "udp"]).unwrap();
        let titles: Vec<&str> = new.cases.iter().map(|case| case.title.as_str()).collect();
        assert_eq!(titles, ["TCP", "new UDP"]);
        old.machine.kernel = "other".to_owned();
        let error = new.keep_from(old, &[]).unwrap_err().to_string();
        assert!(error.contains("--name"), "{error}");
    }

    #[test]
    fn a_case_without_its_subject_has_failed_and_without_a_peer_has_not() {
        let mut case = sample().cases.remove(0);
        assert!(!case.failed());
        case.miss("podnet L2", "the agent died");
        assert!(case.failed());
        let mut case = Case::new("memif", "memif", "");
        assert!(case.failed());
        case.skip("testpmd", "not here");
        assert!(!case.failed());
    }
}
