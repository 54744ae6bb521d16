//! `cargo xtask cluster tour`: runs the commands of docs/tour.md.
//!
//! What they print is compared with the page, which is what a person does with a cluster of two nodes, from
//! installation to removal. The commands run in one shell, so that variables stay.

mod page;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use testbed::pki::Pki;

use self::page::{Page, Step};
use super::place::{self, CONTROL};
use super::{Cni, Up, binaries, kubernetes, node, test, up};
use xtask::step::{execute, say};
use xtask::workspace;

const PAGE: &str = "docs/tour.md";
/// Stands before the output of a command; [`END`] stands before its exit code.
const BEGIN: &str = "@@podnet-tour-begin@@";
const END: &str = "@@podnet-tour-end@@";

#[derive(clap::Args)]
pub(super) struct Options {
    /// Write what the commands print into the page
    #[arg(long)]
    bless: bool,
    /// Leave the cluster running
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    podnet: test::Install,
}

/// Takes the tour in a cluster of its own.
///
/// # Errors
/// A cluster is there already, a command fails, or it prints something else than the page says.
pub(super) fn run(options: &Options) -> xtask::Done {
    if !place::nodes().is_empty() {
        bail!("a cluster is there already; `cargo xtask cluster down` removes it");
    }
    let path = workspace::root().join(PAGE);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let page = Page::parse(&text)?;
    let plugin = plugin()?;
    let archive = options.podnet.archive()?;
    up(&Up {
        nodes: test::NODES,
        cni: Cni::Reference,
        image: None,
    })?;
    let taken = (|| {
        for name in &place::nodes() {
            node::import(name, &archive)?;
        }
        take(&page, &plugin)
    })();
    let judged = taken.and_then(|outputs| {
        if options.bless {
            fs::write(&path, page.with(&outputs))
                .with_context(|| format!("writing {}", path.display()))?;
            say(format!("wrote {}", path.display()));
            return Ok(());
        }
        page.compare(&outputs)
    });
    if options.keep {
        say("the cluster is left running; `cargo xtask cluster down` removes it");
    } else {
        place::remove()?;
    }
    judged?;
    say(format!(
        "the {} commands of {PAGE} do what it says",
        page.steps().count()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Builds the plugin of kubectl, and returns its directory.
fn plugin() -> Result<PathBuf> {
    let folder = workspace::target().join("tour");
    let mut build = workspace::cargo(["xtask", "kubectl-plugin", "--output"]);
    execute(build.arg(&folder))?;
    Ok(folder.join(xtask::own_architecture()))
}

/// Runs all commands, and returns what each has printed.
fn take(page: &Page<'_>, plugin: &Path) -> Result<Vec<String>> {
    let helm = binaries::helm()?;
    let helm = helm.parent().context("the directory of Helm")?;
    let own = [plugin.to_path_buf(), kubernetes()?, helm.to_path_buf()];
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(own.into_iter().chain(env::split_paths(&path)))?;
    let home = place::dir().join("tour");
    fs::create_dir_all(&home).with_context(|| format!("creating {}", home.display()))?;
    place::netns(CONTROL)?;
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", place::netns_path(CONTROL).display()))
        .args(["--", "bash", "-c", &script(page.steps())])
        .current_dir(workspace::root())
        .env("PATH", path)
        .env("HOME", &home)
        .env("KUBECONFIG", Pki::open(&place::pki()).kubeconfig("admin"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = command.output().context("cannot start nsenter")?;
    outputs(&String::from_utf8_lossy(&output.stdout), page)
}

/// The commands for one shell; it ends with the first that fails.
fn script<'a>(steps: impl Iterator<Item = &'a Step<'a>>) -> String {
    let mut script = "exec 2>&1\n".to_owned();
    for step in steps {
        let command = step.command();
        script.push_str(&format!(
            "echo {BEGIN}\n{command}\ncode=$?; echo {END}$code; [ $code = 0 ] || exit\n"
        ));
    }
    script
}

/// Takes apart what the shell has printed.
fn outputs(printed: &str, page: &Page<'_>) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut steps = page.steps();
    for part in printed.split(BEGIN).skip(1) {
        let step = steps.next().context("more outputs than commands")?;
        let (output, code) = part
            .split_once(END)
            .with_context(|| format!("`{}` ended the shell: {part}", step.command()))?;
        if code.trim() != "0" {
            bail!("`{}` exited with {}: {output}", step.command(), code.trim());
        }
        found.push(output.trim_start_matches('\n').to_owned());
    }
    match steps.next() {
        Some(step) => bail!("`{}` was not run", step.command()),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# A page\n\n```console\n$ a=1\n$ echo $a \\\n    two\n1 two\n$ false\n```\n";

    fn run(text: &str) -> Result<Vec<String>> {
        let page = Page::parse(text)?;
        let output = Command::new("bash")
            .args(["-c", &script(page.steps())])
            .output()?;
        outputs(&String::from_utf8(output.stdout)?, &page)
    }

    #[test]
    fn commands_share_one_shell_and_the_first_that_fails_ends_the_tour() {
        let error = run(TEXT).unwrap_err();
        assert_eq!(error.to_string(), "`false` exited with 1: \n");
        let good = TEXT.replace("false", "true");
        assert_eq!(run(&good).unwrap(), ["", "1 two\n", ""]);
    }

    #[test]
    fn a_command_that_ends_the_shell_is_named() {
        let error = run(&TEXT.replace("false", "exit 3")).unwrap_err();
        assert!(
            error.to_string().contains("`exit 3` ended the shell"),
            "{error}"
        );
    }
}
