//! `cargo xtask manifests`: writes `deploy/install.yaml` and the Helm chart.
//!
//! Other files in deploy/ are made of something there too.

mod chart;
mod rule;
mod uninstall;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::step::say;
use crate::workspace;

/// The files that belong into it, in order; `kubectl apply -k deploy` reads it too.
const LIST: &str = "deploy/kustomization.yaml";
/// The file that is written.
const FILE: &str = "deploy/install.yaml";

const HEADER: &str = "\
# podnet, for `kubectl apply -f`.
# Generated from deploy/base and deploy/crds by `cargo xtask manifests`. Do not edit.
";

#[derive(clap::Args)]
pub(crate) struct Options {}

#[derive(Deserialize)]
struct Kustomization {
    resources: Vec<PathBuf>,
}

/// Writes the files again.
pub(crate) fn run(_: &Options) -> Result<()> {
    for (file, text) in generated()? {
        let path = workspace::root().join(&file);
        if fs::read_to_string(&path).unwrap_or_default() != text {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)
                    .with_context(|| format!("creating {}", folder.display()))?;
            }
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
            say(format!("wrote {file}"));
        }
    }
    Ok(())
}

/// Every generated file: its path in the repository and its text.
fn generated() -> Result<Vec<(String, String)>> {
    let mut files = vec![
        (FILE.to_owned(), text()?),
        (rule::FILE.to_owned(), rule::text()?),
    ];
    files.extend(chart::generated()?);
    Ok(files)
}

/// One line for each file that is stale, and for each that was forgotten.
pub(crate) fn check() -> Result<Vec<String>> {
    let mut findings = uninstall::check()?;
    for (file, text) in generated()? {
        if fs::read_to_string(workspace::root().join(&file)).unwrap_or_default() != text {
            findings.push(format!("{file}: stale, run `cargo xtask manifests`"));
        }
    }
    let listed = resources()?;
    let names: Vec<String> = listed.iter().map(|file| relative(file)).collect();
    findings.extend(chart::check(&names)?);
    for folder in ["deploy/base", "deploy/crds"] {
        for file in yaml_files(&workspace::root().join(folder))? {
            let name = relative(&file);
            if !listed.contains(&file) && !is_of_others(&file) {
                findings.push(format!("{name}: not in the resources of {LIST}"));
            }
        }
    }
    Ok(findings)
}

/// Kinds of a standard are not podnet's to install over somebody else's.
fn is_of_others(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    file.parent().is_some_and(|folder| folder.ends_with("crds"))
        && !name.ends_with(".podnet.dev.yaml")
}

fn text() -> Result<String> {
    let mut text = String::from(HEADER);
    for file in resources()? {
        let content =
            fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        text.push_str("---\n");
        text.push_str(&without_header(&content));
    }
    Ok(text)
}

/// Removes the header that names a generator, which is not that of the whole.
fn without_header(content: &str) -> String {
    content
        .lines()
        .skip_while(|line| line.starts_with("# Generated "))
        .flat_map(|line| [line, "\n"])
        .collect()
}

fn resources() -> Result<Vec<PathBuf>> {
    let path = workspace::root().join(LIST);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let list: Kustomization =
        serde_saphyr::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let files: Vec<PathBuf> = list
        .resources
        .iter()
        .map(|name| folder.join(name))
        .collect();
    for file in &files {
        if !file.is_file() {
            bail!("{LIST} lists {}, which is not there", relative(file));
        }
    }
    Ok(files)
}

fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries = fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))?;
    for entry in entries {
        let path = entry
            .with_context(|| format!("listing {}", folder.display()))?
            .path();
        if path.extension().is_some_and(|kind| kind == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn relative(file: &Path) -> String {
    let root = workspace::root();
    let name = file.strip_prefix(&root).unwrap_or(file);
    name.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_come_before_what_uses_them_and_the_namespace_first() {
        let text = text().unwrap();
        let place = |needle: &str| text.find(needle).unwrap();
        assert!(place("kind: Namespace\n") < place("kind: CustomResourceDefinition\n"));
        assert!(place("kind: CustomResourceDefinition\n") < place("kind: DaemonSet\n"));
        assert!(place("kind: ServiceAccount\n") < place("kind: DaemonSet\n"));
    }

    /// PAIN-MULTI-1
    #[test]
    fn definitions_of_others_are_not_installed_over_theirs() {
        let text = text().unwrap();
        assert!(!text.contains("name: network-attachment-definitions.k8s.cni.cncf.io"));
        assert!(!text.contains("name: ipamclaims.k8s.cni.cncf.io"));
        assert!(text.contains("name: podnetworks.podnet.dev"));
        proof::of!("NPWG-3.1", "PAIN-MULTI-1");
    }

    fn documents() -> Vec<serde_json::Value> {
        serde_saphyr::from_multiple(&text().unwrap()).unwrap()
    }

    /// KEP-DEF-3: Pods that networks need are on the nodes'; the webhook delays none.
    #[test]
    fn pods_of_podnet_need_no_network_of_podnets() {
        let mut on_nodes = Vec::new();
        for document in documents() {
            let template = &document["spec"]["template"];
            let name = document["metadata"]["name"].as_str().unwrap_or_default();
            if template.is_object() {
                assert_eq!(document["metadata"]["namespace"], "podnet-system", "{name}");
                let annotations = template["metadata"]["annotations"].as_object();
                let mut keys = annotations.into_iter().flatten().map(|(key, _)| key);
                assert!(keys.all(|key| !key.contains("network")), "{name}");
                on_nodes.push((name.to_owned(), template["spec"]["hostNetwork"] == true));
            }
            for hook in document["webhooks"].as_array().into_iter().flatten() {
                assert_eq!(hook["failurePolicy"], "Ignore", "{name}");
            }
        }
        on_nodes.sort();
        let expected = [
            ("podnet-agent", true),
            ("podnet-controller", true),
            ("podnet-switch", true),
            ("podnet-webhook", false),
        ];
        assert_eq!(on_nodes, expected.map(|(name, is)| (name.to_owned(), is)));
        proof::of!("KEP-DEF-3");
    }

    /// NRI-01: new pods of all namespaces are reviewed, but of podnet's own.
    #[test]
    fn pods_of_podnets_namespace_are_not_reviewed() {
        let mut reviewers = 0;
        for document in documents() {
            let hooks = document["webhooks"].as_array().into_iter().flatten();
            for hook in hooks {
                let name = &hook["name"];
                let rule = serde_json::json!({
                    "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["podnet-system"],
                });
                let left_out = &hook["namespaceSelector"]["matchExpressions"];
                assert_eq!(left_out, &serde_json::json!([rule]), "{name}");
                let asked = hook["rules"].as_array().into_iter().flatten();
                let asked: Vec<_> = asked
                    .map(|rule| (&rule["operations"], &rule["resources"]))
                    .collect();
                if asked
                    .iter()
                    .all(|(_, resources)| **resources == serde_json::json!(["services"]))
                {
                    continue;
                }
                let new_pods = (&serde_json::json!(["CREATE"]), &serde_json::json!(["pods"]));
                assert!(asked.contains(&new_pods), "{name}");
                reviewers += 1;
            }
        }
        assert_eq!(
            reviewers, 3,
            "two that change pods and one that refuses them"
        );
        proof::of!("NRI-01");
    }

    #[test]
    fn every_document_is_yaml_with_a_kind() {
        let documents = documents();
        assert!(documents.len() > 10);
        for document in documents {
            assert!(document["kind"].is_string(), "{document}");
            assert!(document["metadata"]["name"].is_string(), "{document}");
        }
    }
}
