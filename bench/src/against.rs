//! Measure two commits in alternating rounds, each round a run of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::case::ROUNDS;
use crate::interrupt;
use crate::machine;
use crate::quiet;
use crate::report::{Report, against, store};
use crate::run;

/// Rounds for function: too few to judge by.
const QUICK_ROUNDS: usize = 3;

/// Binaries of two commits, and what is measured of them.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Directory with the old commit's podnet-agent and podnet
    #[arg(long, value_name = "DIRECTORY")]
    pub old: PathBuf,
    /// Its eBPF object
    #[arg(long, value_name = "PATH")]
    pub old_object: PathBuf,
    /// Its hash
    #[arg(long, value_name = "HASH")]
    pub old_commit: String,
    /// The new commit's agent
    #[arg(long, value_name = "PATH", env = "PODNET_AGENT")]
    pub agent: PathBuf,
    /// The new commit's CNI plugin
    #[arg(long, value_name = "PATH", env = "PODNET_CNI")]
    pub cni: PathBuf,
    /// The new commit's eBPF object
    #[arg(long, value_name = "PATH", env = "PODNET_EBPF_OBJECT")]
    pub object: PathBuf,
    /// The new commit's hash; this tree's when not given
    #[arg(long, value_name = "HASH", env = "PODNET_COMMIT")]
    pub commit: Option<String>,
    /// Only these cases
    #[arg(long = "case", value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub cases: Vec<String>,
    /// Rounds of both; nine when not given, three with --quick
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: Option<u16>,
    /// For function, not for figures
    #[arg(long)]
    pub quick: bool,
    /// Measure on a busy machine, too
    #[arg(long)]
    pub load_anyway: bool,
    /// Fail if a row is worse by more than this, and than it spreads
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub fail_above: Option<f64>,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("give percent, 0 or more, as 10".to_owned()),
    }
}

/// One of the two.
struct Side<'a> {
    agent: PathBuf,
    cni: PathBuf,
    object: &'a Path,
    commit: String,
}

/// Measures both, and prints the ratios; false if a row is worse than the bound.
///
/// # Errors
/// A run fails or is interrupted, or the two have no row in common.
pub fn run(options: &Options) -> Result<bool> {
    run::choose(&options.cases)?;
    if !rustix::process::geteuid().is_root() {
        bail!("it makes network namespaces and loads eBPF programs: run it as root");
    }
    interrupt::listen()?;
    let new = options.commit.clone().unwrap_or_else(|| {
        let revision = machine::revision();
        let dirty = if revision.dirty { "-dirty" } else { "" };
        format!("{}{dirty}", revision.commit)
    });
    let sides = [
        Side {
            agent: options.old.join("podnet-agent"),
            cni: options.old.join("podnet"),
            object: &options.old_object,
            commit: options.old_commit.clone(),
        },
        Side {
            agent: options.agent.clone(),
            cni: options.cni.clone(),
            object: &options.object,
            commit: new,
        },
    ];
    let rule = run::rule(options.quick, options.load_anyway);
    let others = quiet::look(rule, Duration::from_secs(10))?;
    let own = if options.quick { QUICK_ROUNDS } else { ROUNDS };
    let rounds = options.rounds.map_or(own, usize::from);
    let dir = tempfile::Builder::new()
        .prefix("podnet-against-")
        .tempdir()?;
    let mut reports: [Vec<Report>; 2] = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for turn in 0..sides.len() {
            let number = (turn + round) % sides.len();
            let side = &sides[number];
            eprintln!("bench: round {} of {rounds}: {}", round + 1, side.commit);
            let file = dir.path().join(format!("{round}-{number}.json"));
            let status = command(options, side, &file).status();
            let status = status.context("starting this program once more")?;
            interrupt::check()?;
            reports[number].push(read(&file, status)?);
        }
    }
    let [old, new] = &sides;
    println!(
        "\n{} over {}, {rounds} alternating rounds\n{}; before it {}\n",
        new.commit,
        old.commit,
        machine::describe(&new.agent).line(),
        others.line()
    );
    let lines = against::compare(&reports[0], &reports[1]);
    if lines.is_empty() {
        bail!("the two have no figure in common");
    }
    print!("{}", against::table(&lines));
    let Some(bound) = options.fail_above else {
        return Ok(true);
    };
    let worse: Vec<_> = lines
        .iter()
        .filter(|line| line.is_worse_by(bound))
        .collect();
    for line in &worse {
        println!("worse by more than {bound} %: {}: {}", line.case, line.what);
    }
    Ok(worse.is_empty())
}

/// This program once more, for a round of one of them.
fn command(options: &Options, side: &Side<'_>, file: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["run", "--alone", "--rounds", "1", "--json"]);
    command.arg(file);
    for (flag, given) in [
        ("--quick", options.quick),
        ("--load-anyway", options.load_anyway),
    ] {
        if given {
            command.arg(flag);
        }
    }
    for case in &options.cases {
        command.args(["--case", case]);
    }
    command
        .env("PODNET_AGENT", &side.agent)
        .env("PODNET_CNI", &side.cni)
        .env("PODNET_EBPF_OBJECT", side.object)
        .env("PODNET_COMMIT", &side.commit)
        .stdin(Stdio::null())
        // Its tables are of one round.
        .stdout(Stdio::null());
    command
}

/// A run that lacks a figure has a report, too: the row has a gap then.
fn read(file: &Path, status: ExitStatus) -> Result<Report> {
    if !file.exists() {
        bail!("a round has failed ({status}): what it says is above");
    }
    store::read(file)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(more: &[&str]) -> Result<Options, clap::Error> {
        let given = [
            "bench",
            "--old",
            "/old",
            "--old-object",
            "/old.o",
            "--old-commit",
            "aaa",
            "--agent",
            "/a",
            "--cni",
            "/c",
            "--object",
            "/o",
        ];
        let words = given.into_iter().chain(more.iter().copied());
        Ok(<Line as clap::Parser>::try_parse_from(words)?.options)
    }

    #[test]
    fn a_round_runs_one_side_with_its_binaries_its_commit_and_no_peer() {
        let options = options(&["--case", "cni", "udp", "--load-anyway"]).unwrap();
        let side = Side {
            agent: "/old/podnet-agent".into(),
            cni: "/old/podnet".into(),
            object: Path::new("/old.o"),
            commit: "aaa".to_owned(),
        };
        let command = command(&options, &side, Path::new("/tmp/0-0.json"));
        let words: Vec<_> = command
            .get_args()
            .map(|word| word.to_str().unwrap())
            .collect();
        let expected =
            "run --alone --rounds 1 --json /tmp/0-0.json --load-anyway --case cni --case udp";
        assert_eq!(words.join(" "), expected);
        let set = |name: &str| {
            let mut all = command.get_envs();
            let found = all
                .find(|(key, _)| *key == name)
                .and_then(|(_, value)| value);
            found.and_then(|value| value.to_str()).map(str::to_owned)
        };
        assert_eq!(set("PODNET_AGENT").as_deref(), Some("/old/podnet-agent"));
        assert_eq!(set("PODNET_COMMIT").as_deref(), Some("aaa"));
    }

    #[test]
    fn a_bound_is_percent_and_nothing_below_0() {
        let bound = |text: &str| options(&["--fail-above", text]).map(|one| one.fail_above);
        assert_eq!(bound("10").unwrap(), Some(10.0));
        assert_eq!(bound("2.5%").unwrap(), Some(2.5));
        for wrong in ["-1", "many", "inf"] {
            let error = options(&[&format!("--fail-above={wrong}")])
                .unwrap_err()
                .to_string();
            assert!(error.contains("0 or more"), "{error}");
        }
    }

    #[test]
    fn a_round_without_a_report_is_told() {
        let status = Command::new("false").status().unwrap();
        let error = read(Path::new("/nowhere/0-0.json"), status).unwrap_err();
        assert!(error.to_string().contains("a round has failed"), "{error}");
    }
}
