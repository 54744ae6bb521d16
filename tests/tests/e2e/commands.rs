//! Programs in pods and on nodes.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Where podnet itself runs.
pub(crate) const SYSTEM: &str = "podnet-system";

fn variable(name: &str) -> PathBuf {
    let value = env::var_os(name);
    value
        .unwrap_or_else(|| unreachable!("{name} is not set; `cargo xtask cluster test` does"))
        .into()
}

/// Returns the output of a program, or its failure and its output.
fn outcome(mut command: Command) -> Result<String, String> {
    let output: Output = command
        .stdin(Stdio::null())
        .output()
        .expect("the program can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {text}{complaint}", output.status))
}

/// Runs kubectl as the administrator that `KUBECONFIG` names.
pub(crate) fn kubectl(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(variable("PODNET_KUBERNETES").join("kubectl"));
    command.args(arguments);
    outcome(command)
}

/// Runs lines of the documentation by a shell that finds kubectl.
pub(crate) fn shell(script: &str) -> Result<String, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let own = std::iter::once(variable("PODNET_KUBERNETES"));
    let path = env::join_paths(own.chain(env::split_paths(&path))).expect("a PATH");
    let mut command = Command::new("bash");
    command
        .args(["-e", "-c", script])
        .env("PATH", path)
        .current_dir(testbed::documented::root());
    outcome(command)
}

/// Runs a program in the container of a pod.
pub(crate) fn in_pod((namespace, pod): (&str, &str), program: &[&str]) -> Result<String, String> {
    let mut arguments = vec!["exec", "--namespace", namespace, pod, "--"];
    arguments.extend(program);
    kubectl(&arguments)
}

/// Runs a line of shell in the namespaces of a node.
///
/// # Panics
/// If it fails.
#[track_caller]
pub(crate) fn on_node(node: &str, script: &str) -> String {
    let mut command = Command::new(variable("PODNET_CLUSTER"));
    command.args(["exec", node, "--", "sh", "-c", script]);
    match outcome(command) {
        Ok(text) => text,
        Err(why) => unreachable!("`{script}` on {node}: {why}"),
    }
}

/// Names in a directory of a node; none when it is not there.
pub(crate) fn listing(node: &str, directory: &str) -> Vec<String> {
    let text = on_node(node, &format!("ls -1A {directory} 2>/dev/null || true"));
    text.lines().map(str::to_owned).collect()
}
