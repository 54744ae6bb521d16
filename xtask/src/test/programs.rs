//! The programs of the privileged tests, and those that they test, built together.

use std::process::Command;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::build::{self, Built, Profile};
use crate::workspace;

/// Packages of which all commands of cargo choose their programs.
///
/// A library has the features that the packages of a command want together, and is built once more for a command
/// whose packages want others. The kernel programs have another target.
const PACKAGES: [&str; 3] = ["--workspace", "--exclude", "agent-ebpf"];

/// Packages whose integration tests need root, and a kernel to test against.
const PRIVILEGED: [&str; 3] = ["datapath", "netdev", "tests"];

/// The programs that are tested, and that show and measure others.
const BINARIES: [&str; 3] = ["podnet-agent", "podnet-bench", "podnet-demo"];

/// The test that needs an API server, and takes longest to build.
pub(crate) const API: &str = "kubernetes";

/// Returns `cargo test` of all packages, as they are released.
///
/// The caller names the tests.
pub fn release_tests() -> Command {
    tests(Profile::Release)
}

fn tests(profile: Profile) -> Command {
    let mut command = workspace::cargo(["test"]);
    command.args(PACKAGES).args(profile.arguments());
    command
}

/// Returns the commands that run the tests which need no root.
pub(crate) fn unit(profile: Profile) -> Result<[Command; 2]> {
    let mut programs = tests(profile);
    programs.args(["--lib", "--bins"]);
    let packages = workspace::packages()?;
    let others = packages.iter().filter(|package| !is_privileged(package));
    name_tests(&mut programs, others.flat_map(targets).collect());
    let mut examples = tests(profile);
    examples.arg("--doc");
    Ok([programs, examples])
}

/// Builds podnet, and everything that the tests here and in machines run.
pub(crate) fn build() -> Result<Built> {
    let mut command = workspace::cargo(["build", "--release"]);
    command.args(PACKAGES);
    command.args(BINARIES.iter().flat_map(|name| ["--bin", name]));
    privileged(&mut command)?;
    build::by(Profile::Release, command)
}

/// Names the privileged tests to cargo; returns how many programs they are.
pub(crate) fn privileged(command: &mut Command) -> Result<usize> {
    let packages = workspace::packages()?;
    let chosen = packages.iter().filter(|package| is_privileged(package));
    let names: Vec<&str> = chosen.flat_map(targets).collect();
    if names.is_empty() {
        bail!("packages {PRIVILEGED:?} have no integration tests");
    }
    let count = names.len();
    name_tests(command, names);
    Ok(count)
}

fn is_privileged(package: &Value) -> bool {
    let name = package["name"].as_str();
    name.is_some_and(|name| PRIVILEGED.contains(&name))
}

/// Names tests to cargo; one name may be of several packages, and is one argument.
fn name_tests(command: &mut Command, mut names: Vec<&str>) {
    names.sort_unstable();
    names.dedup();
    command.args(names.iter().flat_map(|name| ["--test", name]));
}

/// Lists the test targets of a package that need no cluster around them.
fn targets(package: &Value) -> impl Iterator<Item = &str> {
    let targets = package["targets"].as_array().into_iter().flatten();
    targets.filter_map(|target| {
        let is_test = target["kind"].as_array()?.iter().any(|kind| kind == "test");
        let by_itself = target["test"] == true && target["name"] != API;
        target["name"].as_str().filter(|_| is_test && by_itself)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tests_that_need_a_cluster_or_an_api_server_are_not_among_the_privileged() {
        let target = |name: &str, kind: &str, test: bool| json!({"name": name, "kind": [kind], "test": test});
        let package = json!({"targets": [
            target("tests", "lib", true),
            target("memif", "test", true),
            target("e2e", "test", false),
            target(API, "test", true),
        ]});
        assert_eq!(targets(&package).collect::<Vec<_>>(), ["memif"]);
    }

    #[test]
    fn tests_that_need_root_are_not_named_as_those_that_need_none() {
        // A name that both have would run in both tiers.
        let [programs, _] = unit(Profile::Debug).unwrap();
        let named: Vec<_> = programs.get_args().collect();
        let mut command = Command::new("cargo");
        privileged(&mut command).unwrap();
        for name in command.get_args().skip(1).step_by(2) {
            assert!(!named.contains(&name), "{name:?}");
        }
        assert!(named.iter().any(|it| *it == "corpus"), "{named:?}");
    }

    #[test]
    fn a_command_names_each_program_of_this_workspace_once() {
        let mut command = Command::new("cargo");
        let count = privileged(&mut command).unwrap();
        let names: Vec<_> = command.get_args().skip(1).step_by(2).collect();
        // `kernel` is of datapath and of netdev.
        assert_eq!(names.len(), count - 1, "{names:?}");
        assert!(names.iter().any(|it| *it == "policies"));
    }
}
