//! Print the state of the cluster when a test has failed.

use serde_json::Value;

use super::commands::{SYSTEM, kubectl};
use super::objects::{EVENT, Objects, POD};

/// Prints events and pods of a namespace and the end of the agents' logs.
pub(crate) fn dump(objects: &Objects, namespace: &str) {
    eprintln!("--- events in {namespace}");
    for event in objects.list(EVENT, namespace) {
        eprintln!(
            "{} {}: {}",
            text(&event["regarding"]["name"]),
            text(&event["reason"]),
            text(&event["note"])
        );
    }
    eprintln!("--- pods in {namespace}");
    for pod in objects.list(POD, namespace) {
        eprintln!(
            "{} on {}: {}, annotations {}",
            text(&pod["metadata"]["name"]),
            text(&pod["spec"]["nodeName"]),
            text(&pod["status"]["phase"]),
            pod["metadata"]["annotations"]
        );
    }
    for app in [
        "podnet-agent",
        "podnet-switch",
        "podnet-controller",
        "podnet-webhook",
    ] {
        let selector = format!("--selector=app.kubernetes.io/name={app}");
        let arguments = [
            "logs",
            "--namespace",
            SYSTEM,
            &selector,
            "--prefix",
            "--tail=40",
        ];
        let log = kubectl(&arguments).unwrap_or_else(|why| why);
        eprintln!("--- the end of the logs of {app}\n{log}");
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}
