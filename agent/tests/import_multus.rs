//! Runs `podnet-agent import-multus` as an operator does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

const DEFINITIONS: &str = "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n\
    metadata: {name: lan, namespace: kube-system}\n\
    spec: {config: '{\"cniVersion\": \"1.0.0\", \"type\": \"bridge\"}'}\n";

fn run(arguments: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_podnet-agent"));
    let command = command.arg("import-multus").args(arguments).env_clear();
    command.output().expect("podnet-agent can be executed")
}

fn written(directory: &Path, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, text).expect("a file of the test");
    path
}

fn said(output: &Output) -> String {
    assert!(
        !output.status.success() && output.stdout.is_empty(),
        "{output:?}"
    );
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// NPWG-X7: the configuration is taken over as options, and each field has a line.
#[test]
fn npwg_x7_a_configuration_of_multus_is_printed_as_options_that_podnet_takes() {
    let directory = tempfile::tempdir().expect("a directory");
    let conf = json!({
        "cniVersion": "0.3.1", "name": "multus-cni-network", "type": "multus", "clusterNetwork": "lan",
        "namespaceIsolation": true, "globalNamespaces": "default,tools", "defaultNetworks": ["lan", "storage"],
        "systemNamespaces": ["kube-system", "ops"],
        "kubeconfig": "/etc/cni/net.d/multus.d/multus.kubeconfig", "logLevel": "debug", "remark": "ours",
    });
    let file = written(directory.path(), "00-multus.conf", conf.to_string());
    let definitions = written(directory.path(), "nads.yaml", DEFINITIONS);
    let given = [file.as_path(), Path::new("--definitions"), &definitions];
    let output = run(&given);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for key in conf.as_object().expect("an object").keys() {
        let told = text
            .lines()
            .any(|line| line.starts_with("# ") && line.contains(&format!(" {key}")));
        assert!(told, "{key} has no line in\n{text}");
    }
    // What is printed is what the command line of the agent takes.
    let options: Vec<&str> = text.lines().filter(|line| line.starts_with("--")).collect();
    assert!(
        options.contains(&"--global-namespaces=default,tools"),
        "{text}"
    );
    let line = ["podnet-agent", "run"].into_iter().chain(options);
    let parsed = <agent::cli::Cli as clap::Parser>::try_parse_from(line).expect("options of `run`");
    let agent::cli::Command::Run(run_options) = parsed.command else {
        unreachable!("`run` was parsed");
    };
    let rules = run_options.pods.lists.rules();
    assert_eq!(rules.default_override.as_deref(), Some("kube-system"));
    assert_eq!(rules.global_namespaces.map(|it| it.len()), Some(2));
    let all = ["lan", "storage"].map(|name| ("kube-system".to_owned(), name.to_owned()));
    assert_eq!(rules.default_networks, all);
    assert!(rules.system_namespaces.contains("ops"));

    let json = [given.as_slice(), &[Path::new("-o"), Path::new("json")]].concat();
    let report: Value = serde_json::from_slice(&run(&json).stdout).expect("JSON");
    assert_eq!(report["files"][0]["path"], "/etc/cni/net.d/10-lan.conf");
    let findings = report["findings"].as_array().expect("a list");
    let lost = findings.iter().filter(|it| it["outcome"] == "notCarried");
    let lost: Vec<_> = lost
        .map(|it| it["field"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(lost, ["kubeconfig", "remark"]);
    proof::of!("NPWG-X7");
}

#[test]
fn files_that_cannot_be_read_whole_are_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let absent = directory.path().join("absent.conf");
    let most = usize::try_from(multus::TEXT_MAX).expect("a length");
    let conf = r#"{"type": "multus", "clusterNetwork": "/etc/cni/net.d"}"#;
    let padded = |length: usize| format!("{conf}{}", " ".repeat(length - conf.len()));
    let long = written(directory.path(), "long.conf", padded(most + 1));
    let binary = written(directory.path(), "binary.conf", b"{\"type\": \"\xff\"}");
    let twice = written(
        directory.path(),
        "twice.conf",
        r#"{"type": "multus", "type": "multus"}"#,
    );
    for (file, word) in [
        (absent.as_path(), "No such file"),
        (directory.path(), "not a regular file"),
        (&long, "1048576 bytes"),
        (&binary, "UTF-8"),
        (&twice, "twice"),
    ] {
        let text = said(&run(&[file]));
        let name = file.display().to_string();
        assert!(text.contains(&name) && text.contains(word), "{text}");
    }
    let full = written(directory.path(), "full.conf", padded(most));
    assert!(
        run(&[&full]).status.success(),
        "a file of the limit is read"
    );
    let text = said(&run(&[&full, Path::new("--definitions"), &twice]));
    assert!(text.contains("twice.conf"), "{text}");
}

/// A pipe is not waited for, and a link is the file that it leads to.
#[test]
fn a_pipe_is_refused_at_once_and_a_link_is_followed() {
    let directory = tempfile::tempdir().expect("a directory");
    let pipe = directory.path().join("pipe.conf");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo is there").success());
    assert!(said(&run(&[&pipe])).contains("not a regular file"));
    let link = directory.path().join("link.conf");
    std::os::unix::fs::symlink(&pipe, &link).expect("a link");
    assert!(said(&run(&[&link])).contains("not a regular file"));
    let conf = r#"{"type": "multus", "clusterNetwork": "/etc/cni/net.d"}"#;
    let file = written(directory.path(), "00-multus.conf", conf);
    fs::remove_file(&link).expect("it was there");
    std::os::unix::fs::symlink(file, &link).expect("a link");
    assert!(run(&[&link]).status.success());
    let secret = written(
        directory.path(),
        "kubeconfig",
        "apiVersion: v1\ntoken: hunter2\n",
    );
    for given in [
        vec![secret.as_path()],
        vec![&link, Path::new("--definitions"), &secret],
    ] {
        let text = said(&run(&given));
        assert!(
            text.contains("kubeconfig") && !text.contains("hunter2"),
            "{text}"
        );
    }
}
