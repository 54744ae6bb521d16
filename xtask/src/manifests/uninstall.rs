//! Check `deploy/uninstall.yaml`, which takes the place of the agents.
//!
//! So it must be theirs in all that says which object it is, on which nodes, and with which program.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::workspace;

/// The manifest that replaces the agents.
const FILE: &str = "deploy/uninstall.yaml";
/// The agents.
const AGENT: &str = "deploy/base/agent.yaml";

/// Fields that both must have in common.
const SAME: [&str; 14] = [
    "/apiVersion",
    "/kind",
    "/metadata/name",
    "/metadata/namespace",
    "/metadata/labels",
    "/spec/selector",
    "/spec/template/metadata/labels",
    "/spec/template/spec/serviceAccountName",
    "/spec/template/spec/priorityClassName",
    "/spec/template/spec/tolerations",
    "/spec/template/spec/nodeSelector",
    "/spec/template/spec/hostNetwork",
    "/spec/template/spec/containers/0/image",
    "/spec/template/spec/containers/0/imagePullPolicy",
];
/// The same of the container that does the work.
const SAME_OF_CLEANUP: [&str; 3] = ["image", "imagePullPolicy", "securityContext"];
/// Parents of the agent's directories, mounted in their place.
///
/// The directories would be mount points if they were mounted alone.
const PARENTS: [(&str, &str); 3] = [
    ("/run/podnet", "/run"),
    ("/var/lib/podnet", "/var/lib"),
    ("/sys/fs/bpf", "/sys/fs/bpf"),
];

/// One line for each difference that must not be.
pub(super) fn check() -> Result<Vec<String>> {
    Ok(findings(&read(AGENT)?, &read(FILE)?))
}

fn read(file: &str) -> Result<Value> {
    let path = workspace::root().join(file);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {file}"))?;
    serde_saphyr::from_str(&text).with_context(|| format!("reading {file}"))
}

fn findings(agent: &Value, uninstall: &Value) -> Vec<String> {
    let mut findings = Vec::new();
    for place in SAME {
        let (wanted, found) = (agent.pointer(place), uninstall.pointer(place));
        if wanted.is_none() || wanted != found {
            findings.push(format!("{FILE}: {place} is not that of {AGENT}"));
        }
    }
    let pod = &uninstall["spec"]["template"]["spec"];
    let (agent, cleanup) = (
        &agent["spec"]["template"]["spec"]["containers"][0],
        &pod["initContainers"][0],
    );
    for field in SAME_OF_CLEANUP {
        if agent[field] != cleanup[field] {
            findings.push(format!(
                "{FILE}: the {field} of `cleanup` is not that of {AGENT}"
            ));
        }
    }
    let of_agent = paths(&agent["volumeMounts"]);
    let of_cleanup = paths(&cleanup["volumeMounts"]);
    for (own, parent) in PARENTS {
        if of_agent.contains(&own) && !of_cleanup.contains(&parent) {
            findings.push(format!("{FILE}: {parent} is not mounted, so {own} stays"));
        }
    }
    for path in &of_agent {
        // Those are not podnet's, and the cleanup has nothing to do there.
        let is_of_others = path.ends_with("/netns") || *path == "/host";
        let is_reached = of_cleanup.iter().any(|parent| path.starts_with(parent));
        if !is_of_others && !is_reached {
            findings.push(format!("{FILE}: the agent's {path} is not mounted"));
        }
    }
    for volume in pod["volumes"].as_array().into_iter().flatten() {
        let path = volume["hostPath"]["path"].as_str().unwrap_or_default();
        if !of_cleanup.contains(&path) {
            findings.push(format!("{FILE}: volume {path} is mounted at another place"));
        }
    }
    findings
}

fn paths(mounts: &Value) -> Vec<&str> {
    let mounts = mounts.as_array().into_iter().flatten();
    mounts
        .filter_map(|mount| mount["mountPath"].as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PAIN-BOOT-3
    #[test]
    fn the_uninstall_takes_the_agents_place_and_reaches_all_they_leave() {
        assert_eq!(check().unwrap(), [""; 0]);
        proof::of!("PAIN-BOOT-3");
    }

    #[test]
    fn another_image_and_a_directory_that_cannot_be_removed_are_found() {
        let (agent, mut uninstall) = (read(AGENT).unwrap(), read(FILE).unwrap());
        let pod = &mut uninstall["spec"]["template"]["spec"];
        pod["initContainers"][0]["image"] = "podnet:old".into();
        pod["initContainers"][0]["volumeMounts"][1]["mountPath"] = "/var/lib/podnet".into();
        let found = findings(&agent, &uninstall).join("\n");
        for words in ["the image of `cleanup`", "/var/lib is not mounted"] {
            assert!(found.contains(words), "{found}");
        }
    }
}
