//! A run: its options, its cases one after the other, and where its report goes.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use clap::ValueEnum;
use tempfile::TempDir;

use crate::case::{Bench, Known, Run};
use crate::cases::CASES;
use crate::interrupt;
use crate::machine;
use crate::peers::{Peer, Stage};
use crate::progress::Progress;
use crate::quiet::{self, Rule};
use crate::report::load::Load;
use crate::report::revision::Revision;
use crate::report::{Case, FORMAT, Report, html, store, text};

/// Cases to measure, and the places of the report.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// A few minutes: for function, not for figures
    #[arg(long)]
    pub quick: bool,
    /// Only these cases (`--list` shows them)
    #[arg(long = "case", value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub cases: Vec<String>,
    /// Only these peers; podnet is always measured
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub peers: Option<Vec<Peer>>,
    /// Rounds of everything; without it at least nine, or one with --quick
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: Option<u16>,
    /// Measure on a busy machine, too; the report says so
    #[arg(long)]
    pub load_anyway: bool,
    /// No peers: podnet alone
    #[arg(long, conflicts_with = "peers")]
    pub alone: bool,
    /// Write the report's values to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the report as a page to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Keep the run as bench/results/NAME.json; --case replaces only its cases there
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Say which cases there are, and end
    #[arg(long)]
    pub list: bool,
    /// Commit of the binaries, this tree's if not given; `-dirty` is for changes
    #[arg(long, value_name = "HASH", env = "PODNET_COMMIT", hide = true)]
    pub commit: Option<String>,
    /// The eBPF object, for the costs of programs alone
    #[arg(long, value_name = "PATH", env = "PODNET_EBPF_OBJECT", hide = true)]
    pub object: Option<PathBuf>,
}

/// Measures and reports; false if a figure of podnet is missing.
///
/// # Errors
/// An option is wrong, the run is interrupted, or a file cannot be written.
pub fn run(options: &Options) -> Result<bool> {
    if options.list {
        for case in CASES {
            println!("{:<12} {}", case.name, case.title);
        }
        return Ok(true);
    }
    let chosen = choose(&options.cases)?;
    if let Some(name) = &options.name {
        store::check_name(name)?;
    }
    if !rustix::process::geteuid().is_root() {
        bail!("it makes network namespaces and loads eBPF programs: run it as root");
    }
    interrupt::listen()?;
    if !options.quick && !quiet::has_realtime() {
        let [program, ..] = quiet::REALTIME;
        bail!(
            "{program} cannot give real-time priority here, which probes need that share a processor: install \
             util-linux and run it with CAP_SYS_NICE, or give --quick"
        );
    }
    let rule = options.rule();
    let others = quiet::look(rule, Duration::from_secs(10))?;
    let dir = tempfile::Builder::new().prefix("podnet-bench-").tempdir()?;
    let started = Instant::now();
    let machine = machine::describe(&testbed::node::Binaries::find().agent);
    eprintln!("bench: {}; {}", machine.line(), others.line());
    let mut report = Report {
        format: FORMAT,
        name: options.name.clone().unwrap_or_else(|| "last".to_owned()),
        quick: options.quick,
        machine,
        load_before: machine::load(),
        load_after: String::new(),
        others: Some(others),
        started: now(),
        seconds: 0.0,
        cases: Vec::new(),
    };
    let earlier = earlier(options)?;
    if let Some(earlier) = &earlier {
        // Not after an hour of measuring.
        report.check_beside(earlier)?;
    }
    measure(options, &chosen, &dir, &mut report)?;
    report.load_after = machine::load();
    report.seconds = started.elapsed().as_secs_f64().round();
    print!("\n{}", text::report(&report));
    let failed = failed(&report);
    if let Some(earlier) = earlier {
        report.keep_from(earlier, &CASES.map(|case| case.name))?;
    }
    publish(options, &report)?;
    for case in &failed {
        eprintln!("bench: case {case}: figures of podnet are missing");
    }
    Ok(failed.is_empty())
}

/// The run of the same name of which cases are kept that this one does not measure.
///
/// # Errors
/// It cannot be read.
fn earlier(options: &Options) -> Result<Option<Report>> {
    let Some(name) = options.name.as_ref().filter(|_| !options.cases.is_empty()) else {
        return Ok(None);
    };
    let path = store::results().join(format!("{name}.json"));
    path.exists().then(|| store::read(&path)).transpose()
}

/// The rule by which a run of these options bears load.
pub(crate) fn rule(quick: bool, load_anyway: bool) -> Rule {
    match (quick, load_anyway) {
        (true, _) => Rule::Quick,
        (false, true) => Rule::Anyway,
        (false, false) => Rule::Refuse,
    }
}

impl Options {
    fn rule(&self) -> Rule {
        rule(self.quick, self.load_anyway)
    }

    fn revision(&self) -> Revision {
        let given = self.commit.as_deref().map(Revision::parse);
        given.unwrap_or_else(machine::revision)
    }
}

fn failed(report: &Report) -> Vec<String> {
    let failed = report.cases.iter().filter(|case| case.failed());
    failed.map(|case| case.name.clone()).collect()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

pub(crate) fn choose(names: &[String]) -> Result<Vec<Known>> {
    for name in names {
        if !CASES.iter().any(|case| case.name == name) {
            let known: Vec<&str> = CASES.iter().map(|case| case.name).collect();
            bail!("--case {name}: there are {}", known.join(", "));
        }
    }
    let wanted = |case: &Known| names.is_empty() || names.iter().any(|name| name == case.name);
    Ok(CASES.into_iter().filter(wanted).collect())
}

fn measure(options: &Options, chosen: &[Known], dir: &TempDir, report: &mut Report) -> Result<()> {
    let everybody = Peer::value_variants();
    let peers: &[Peer] = if options.alone {
        &[]
    } else {
        options.peers.as_deref().unwrap_or(everybody)
    };
    let revision = options.revision();
    let mut stage: Option<Stage> = None;
    for (place, known) in chosen.iter().enumerate() {
        let progress = Progress::start(known.title, (place + 1, chosen.len()));
        let bench = Bench {
            quick: options.quick,
            rounds: options.rounds.map(usize::from),
            peers,
            dir,
            object: &options.object,
            progress: &progress,
        };
        let mut case = Case::new(known.name, known.title, known.about);
        (case.started, case.load) = (now(), machine::load());
        case.commit.clone_from(&revision.commit);
        case.dirty = revision.dirty;
        case.realtime = quiet::has_realtime();
        let started = Instant::now();
        // The fixtures of the tests panic where something is not as it must be; the other cases
        // can still be measured.
        let done = catch_unwind(AssertUnwindSafe(|| {
            if matches!(known.run, Run::Alone(_)) {
                stage = None;
            }
            progress.say("waiting for a quiet machine");
            case.others = Some(quiet::before_case(options.rule())?);
            let before = quiet::times()?;
            match known.run {
                Run::Traffic(run) => {
                    if stage.is_none() {
                        stage = Some(Stage::set(peers, dir, &progress)?);
                    }
                    let stage = stage.as_mut();
                    stage.map_or(Ok(()), |stage| run(&bench, stage, &mut case))?;
                }
                Run::Alone(run) => run(&bench, &mut case)?,
            }
            case.stolen = Some(Load::between(&before, &quiet::times()?).stolen);
            Ok::<_, anyhow::Error>(())
        }));
        interrupt::check()?;
        let done = done.unwrap_or_else(|panic| Err(anyhow::anyhow!("{}", words(&*panic))));
        case.seconds = started.elapsed().as_secs_f64().round();
        if let Err(error) = done {
            let who = case.subjects.first();
            let who = who.map_or_else(|| "podnet".to_owned(), Clone::clone);
            case.subjects = if case.subjects.is_empty() {
                vec![who.clone()]
            } else {
                case.subjects
            };
            case.miss(&who, &format!("{error:#}"));
        }
        case.seal();
        let outcome = if case.failed() { "FAILED" } else { "done" };
        progress.end(&format!("{outcome}, {:.0} s", case.seconds));
        for absent in &case.absent {
            eprintln!("bench:   without {}: {}", absent.who, absent.reason);
        }
        report.cases.push(case);
    }
    Ok(())
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
        .unwrap_or_else(|| "a panic without words".to_owned())
}

fn publish(options: &Options, report: &Report) -> Result<()> {
    let mut files: Vec<PathBuf> = options.json.iter().cloned().collect();
    if let Some(name) = &options.name {
        files.push(store::results().join(format!("{name}.json")));
    }
    if files.is_empty() && options.html.is_none() {
        files.push(std::env::current_exe()?.with_file_name("podnet-bench-last.json"));
    }
    for path in files {
        store::write(report, &path)?;
        println!(
            "values: {0}\npage: cargo xtask bench report {0}",
            path.display()
        );
    }
    if let Some(path) = &options.html {
        store::put(path, &html::page(report))?;
        println!("page: {}", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn cases_keep_their_order_and_unknown_ones_are_named() {
        let names = ["udp", "tcp"].map(String::from);
        let chosen = choose(&names).unwrap();
        let chosen: Vec<&str> = chosen.iter().map(|case| case.name).collect();
        assert_eq!(chosen, ["tcp", "udp"]);
        assert_eq!(choose(&[]).unwrap().len(), CASES.len());
        let error = choose(&["tpc".to_owned()]).unwrap_err().to_string();
        assert!(
            error.contains("tpc") && error.contains("shaping"),
            "{error}"
        );
    }

    fn options(arguments: &[&str]) -> Options {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: Options,
        }
        let words = std::iter::once("bench").chain(arguments.iter().copied());
        <Line as clap::Parser>::try_parse_from(words)
            .unwrap()
            .options
    }

    #[test]
    fn only_a_whole_run_refuses_a_busy_machine_and_it_can_be_told_not_to() {
        for (arguments, rule) in [
            (&[][..], Rule::Refuse),
            (&["--load-anyway"][..], Rule::Anyway),
            (&["--quick"][..], Rule::Quick),
            (&["--quick", "--load-anyway"][..], Rule::Quick),
        ] {
            assert_eq!(options(arguments).rule(), rule, "{arguments:?}");
        }
    }

    #[test]
    fn a_commit_that_is_given_is_written_down_and_not_this_trees() {
        let revision = options(&["--commit", "0123abc-dirty"]).revision();
        assert_eq!(
            (revision.commit.as_str(), revision.dirty),
            ("0123abc", true)
        );
    }

    #[test]
    fn a_whole_run_has_nine_rounds_at_least_unless_they_are_given() {
        let dir = TempDir::new().unwrap();
        let progress = Progress::start("rounds", (1, 1));
        let with = |arguments: &[&str], wanted: usize| {
            let options = options(arguments);
            let bench = Bench {
                quick: options.quick,
                rounds: options.rounds.map(usize::from),
                peers: &[],
                dir: &dir,
                object: &None,
                progress: &progress,
            };
            bench.rounds(wanted)
        };
        assert_eq!((with(&[], 5), with(&[], 40)), (9, 40));
        assert_eq!(
            (with(&["--quick"], 5), with(&["--rounds", "3"], 40)),
            (1, 3)
        );
    }

    #[test]
    fn names_of_cases_are_unique() {
        for (place, case) in CASES.iter().enumerate() {
            assert!(!CASES[..place].iter().any(|other| other.name == case.name));
        }
    }
}
