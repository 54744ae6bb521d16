//! Find the agents and the pods of a cluster.

use serde_json::Value;

use crate::error::PluginError;
use crate::kubectl::Kubectl;
use crate::pod::{Place, PodRef};

/// Label of the agents' pods.
const LABEL: &str = "--selector=app.kubernetes.io/name=podnet-agent";

/// The agent of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Agent {
    /// Its pod.
    pub(crate) pod: String,
    /// Its node.
    pub(crate) node: String,
}

impl Agent {
    /// Arguments of kubectl that run a command of the agent in its pod.
    pub(crate) fn exec(&self, kubectl: &Kubectl, words: &[&str]) -> Vec<String> {
        let mut all: Vec<String> = [
            "exec",
            &format!("--namespace={}", kubectl.podnet),
            &self.pod,
            "--container=agent",
            "--",
            "podnet-agent",
        ]
        .map(str::to_owned)
        .to_vec();
        all.extend(words.iter().map(|&word| word.to_owned()));
        all
    }

    /// Output of a command of the agent.
    ///
    /// # Errors
    /// As [`Kubectl::text`].
    pub(crate) fn text(&self, kubectl: &Kubectl, words: &[&str]) -> Result<String, PluginError> {
        kubectl.text(&borrow(&self.exec(kubectl, words)))
    }

    /// The same as JSON.
    ///
    /// # Errors
    /// As [`Kubectl::json`].
    pub(crate) fn json(&self, kubectl: &Kubectl, words: &[&str]) -> Result<Value, PluginError> {
        kubectl.json(&borrow(&self.exec(kubectl, words)))
    }
}

/// Words as kubectl takes them.
pub(crate) fn borrow(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// All agents that run, by the names of their nodes.
///
/// # Errors
/// kubectl fails, or there are none.
pub(crate) fn all(kubectl: &Kubectl) -> Result<Vec<Agent>, PluginError> {
    let namespace = format!("--namespace={}", kubectl.podnet);
    let pods = kubectl.json(&["get", "pods", &namespace, LABEL, "--output=json"])?;
    let mut agents = running(&pods);
    if agents.is_empty() {
        return Err(PluginError::NoAgents {
            namespace: kubectl.podnet.clone(),
        });
    }
    agents.sort_by(|one, other| one.node.cmp(&other.node));
    Ok(agents)
}

/// Agents of these nodes; all, when none is named.
///
/// # Errors
/// As [`all`], and when a node has none.
pub(crate) fn of(kubectl: &Kubectl, nodes: &[String]) -> Result<Vec<Agent>, PluginError> {
    let agents = all(kubectl)?;
    if nodes.is_empty() {
        return Ok(agents);
    }
    let find = |node: &String| {
        let agent = agents.iter().find(|agent| agent.node == *node);
        agent.cloned().ok_or_else(|| PluginError::NoAgent {
            node: node.clone(),
            others: list(agents.iter().map(|agent| agent.node.as_str())),
        })
    };
    nodes.iter().map(find).collect()
}

/// The agent of a pod's node.
///
/// # Errors
/// As [`of`].
pub(crate) fn at(kubectl: &Kubectl, place: &Place) -> Result<Agent, PluginError> {
    let mut one = of(kubectl, std::slice::from_ref(&place.node))?;
    Ok(one.swap_remove(0))
}

/// Looks a pod up.
///
/// # Errors
/// There is no such pod, or it has no node yet.
pub(crate) fn place(kubectl: &Kubectl, pod: &PodRef) -> Result<Place, PluginError> {
    let mut arguments = vec!["get", "pod", &pod.name, "--output=json"];
    let namespace = pod.namespace.as_ref().or(kubectl.namespace.as_ref());
    let namespace = namespace.map(|it| format!("--namespace={it}"));
    arguments.extend(namespace.as_deref());
    let object = kubectl.json(&arguments)?;
    let part = |at: &str| {
        object
            .pointer(at)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let (Some(namespace), Some(name)) = (part("/metadata/namespace"), part("/metadata/name"))
    else {
        return Err(kubectl.form(&arguments, "no pod"));
    };
    let Some(node) = part("/spec/nodeName") else {
        let pod = format!("{namespace}/{name}");
        return Err(PluginError::Unscheduled { pod });
    };
    Ok(Place {
        namespace,
        name,
        node,
    })
}

/// Pods that run on a node and do not end.
fn running(pods: &Value) -> Vec<Agent> {
    let items = pods["items"].as_array().into_iter().flatten();
    items
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
        .filter(|pod| pod["status"]["phase"] == "Running")
        .filter_map(|pod| {
            Some(Agent {
                pod: pod["metadata"]["name"].as_str()?.to_owned(),
                node: pod["spec"]["nodeName"].as_str()?.to_owned(),
            })
        })
        .collect()
}

/// Names for an error.
pub(crate) fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const MOST: usize = 10;
    let names: Vec<&str> = names.collect();
    let shown = names[..names.len().min(MOST)].join(", ");
    match names.len() {
        0 => "none".to_owned(),
        all if all > MOST => format!("{shown} and {} more", all - MOST),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_ends_or_has_not_begun_is_no_agent() {
        let pod = |name: &str, phase: &str, end: Option<&str>| {
            json!({
                "metadata": {"name": name, "deletionTimestamp": end},
                "spec": {"nodeName": "n1"},
                "status": {"phase": phase},
            })
        };
        let pods = json!({"items": [
            pod("old", "Running", Some("2026-01-01T00:00:00Z")),
            pod("new", "Running", None),
            pod("next", "Pending", None),
        ]});
        let found = running(&pods);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].pod, "new");
    }

    #[test]
    fn a_long_list_of_names_is_cut() {
        let names: Vec<String> = (0..12).map(|number| format!("n{number}")).collect();
        let text = list(names.iter().map(String::as_str));
        assert!(text.ends_with("n9 and 2 more"), "{text}");
        assert_eq!(list([].into_iter()), "none");
    }
}
