//! `cargo xtask bench`: podnet and its peers, measured on this machine.

mod against;
mod peers;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

pub use self::peers::multus;
use crate::build::{self, Built, Profile};
use crate::step::{execute, is_root, leave_signals_to_children, say, show};
use crate::{Done, workspace};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// Cases to measure and places of the report: `cargo xtask bench -- --help`
    /// shows all; `--against REV` measures another commit beside this tree; `report [RUN.json]` makes a page
    /// of a run, `tables` writes docs/performance.md and README.md
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OPTION"
    )]
    rest: Vec<OsString>,
}

/// Builds, installs what is missing, measures.
pub(crate) fn run(options: &Options) -> Done {
    match options.rest.split_first() {
        Some((verb, rest)) if verb == "report" => return report(rest),
        Some((verb, [])) if verb == "tables" => {
            execute(&mut documents(["tables"]))?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    if let Some((revision, rest)) = against::take(&options.rest)? {
        return against::run(&revision, &rest);
    }
    let only_tells = ["--help", "-h", "--list"];
    let tells = |word: &OsString| only_tells.iter().any(|one| word == one);
    if options.rest.iter().any(tells) {
        execute(
            Command::new(harness(Kind::Function)?)
                .arg("run")
                .args(&options.rest),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    measure(
        &harness(Kind::Figures)?,
        &build::named_or_built()?,
        &options.rest,
        |harness| peers::install(harness, measures_api(&options.rest)),
    )
}

/// Reports whether a case needs an API server, which takes long to build.
fn measures_api(arguments: &[OsString]) -> bool {
    let words: Vec<_> = arguments.iter().filter_map(|it| it.to_str()).collect();
    let names_cases = words.iter().any(|it| it.starts_with("--case"));
    !names_cases || words.iter().any(|it| it.contains("services-api"))
}

/// Runs the short run, for function: every case once, without built peers.
///
/// Peers that need no building are measured too. Fails if a figure of podnet is missing, and never
/// because of a figure.
pub(crate) fn quick(built: &Built) -> Result<()> {
    let arguments = ["--quick", "--peers", "veth,bridge,bandwidth"].map(OsString::from);
    // It was built with what it measures.
    let harness = Profile::Release.binary("podnet-bench");
    let packages = |_: &mut Command| peers::install_packages();
    if measure(&harness, built, &arguments, packages)? != ExitCode::SUCCESS {
        bail!("the bench failed, or figures of podnet are missing");
    }
    Ok(())
}

fn measure(
    harness: &Path,
    built: &Built,
    arguments: &[OsString],
    peers: impl FnOnce(&mut Command) -> Result<()>,
) -> Done {
    if !is_root() {
        bail!("the bench makes network namespaces and loads eBPF programs: run it as root");
    }
    let mut command = Command::new(harness);
    command.arg("run").args(arguments);
    command.current_dir(workspace::root());
    built.describe_to(&mut command);
    name_commit(&mut command);
    peers(&mut command)?;
    // The harness gets Ctrl-C, too, and takes down what it has put up: this process waits for it.
    leave_signals_to_children()?;
    let status = command
        .status()
        .with_context(|| format!("cannot start `{}`", show(&command)))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Tells the harness that named binaries are of an unknown commit.
fn name_commit(harness: &mut Command) {
    let has = |variable| env::var_os(variable).is_some();
    if has("PODNET_AGENT") && has("PODNET_CNI") && !has("PODNET_COMMIT") {
        harness.env("PODNET_COMMIT", "unknown");
    }
}

/// Builds the harness; returns its path.
///
/// It measures, so it is optimised whatever the profile. What it is made of moves packets, too, and is
/// optimised where figures are wanted.
fn harness(kind: Kind) -> Result<PathBuf> {
    say("building podnet-bench");
    let (profile, place) = match kind {
        Kind::Figures => (&["--release"][..], "release"),
        Kind::Function => (&[][..], "debug"),
    };
    let build = ["build", "--package", "bench", "--bin", "podnet-bench"];
    execute(workspace::cargo(build).args(profile))?;
    Ok(workspace::target().join(place).join("podnet-bench"))
}

/// The purpose of a harness.
#[derive(Clone, Copy)]
enum Kind {
    /// To measure.
    Figures,
    /// To say something.
    Function,
}

/// Writes a page with the charts of a run: the named file's, or the current one's.
fn report(rest: &[OsString]) -> Done {
    let page = workspace::target().join("podnet-bench.html");
    let mut command = documents(["report", "--out"]);
    execute(command.arg(page).args(rest))?;
    Ok(ExitCode::SUCCESS)
}

/// Starts `podnet-report`, which links nothing of podnet.
fn documents(arguments: impl IntoIterator<Item = &'static str>) -> Command {
    let run = ["run", "--quiet", "--package", "bench-report", "--"];
    workspace::cargo(run.into_iter().chain(arguments))
}
