//! The programs of the privileged tests, and those that they test, built together.

use std::process::Command;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::build::{self, Built, Profile};
use crate::workspace;

/// Packages of all these programs.
///
/// Each command of cargo names all of them. A library has the features that the packages of a command want together, and is
/// built once more for a command whose packages want others.
const PACKAGES: [&str; 6] = ["agent", "bench", "datapath", "demo", "netdev", "tests"];

/// Packages whose integration tests need root, and a kernel to test against.
const PRIVILEGED: [&str; 3] = ["datapath", "netdev", "tests"];

/// The programs that are tested, and that show and measure others.
const BINARIES: [&str; 3] = ["podnet-agent", "podnet-bench", "podnet-demo"];

/// The test that needs an API server, and takes longest to build.
pub(crate) const API: &str = "kubernetes";

/// Returns `cargo test` of these packages, whose libraries are built once.
///
/// The caller names the tests.
pub fn release_tests() -> Command {
    let mut command = workspace::cargo(["test", "--release"]);
    packages(&mut command);
    command
}

/// Builds podnet, and everything that the tests here and in machines run.
pub(crate) fn build() -> Result<Built> {
    let mut command = workspace::cargo(["build", "--release"]);
    packages(&mut command);
    command.args(BINARIES.iter().flat_map(|name| ["--bin", name]));
    privileged(&mut command)?;
    build::by(Profile::Release, command)
}

fn packages(command: &mut Command) {
    command.args(PACKAGES.iter().flat_map(|name| ["--package", name]));
}

/// Names the privileged tests to cargo; returns how many programs they are.
pub(crate) fn privileged(command: &mut Command) -> Result<usize> {
    let packages = workspace::packages()?;
    let chosen = packages.iter().filter(|package| {
        let name = package["name"].as_str();
        name.is_some_and(|name| PRIVILEGED.contains(&name))
    });
    let mut names: Vec<&str> = chosen.flat_map(targets).collect();
    if names.is_empty() {
        bail!("packages {PRIVILEGED:?} have no integration tests");
    }
    let count = names.len();
    // One name may be of several packages, and is one argument.
    names.sort_unstable();
    names.dedup();
    command.args(names.iter().flat_map(|name| ["--test", name]));
    Ok(count)
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
    fn a_command_names_each_program_of_this_workspace_once() {
        let mut command = Command::new("cargo");
        let count = privileged(&mut command).unwrap();
        let names: Vec<_> = command.get_args().skip(1).step_by(2).collect();
        // `kernel` is of datapath and of netdev.
        assert_eq!(names.len(), count - 1, "{names:?}");
        assert!(names.iter().any(|it| *it == "policies"));
    }
}
