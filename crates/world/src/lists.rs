//! Read pods' lists of networks by the options that a whole cluster shares.
//!
//! The agent, the controller and the webhook are given the same values.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use api::nad::AllowedPlugins;
use api::selection::SelectionRules;
use clap::Args;

use crate::DefaultNetwork;

/// Defaults of a list's omissions, and limits of its choices.
#[derive(Debug, Clone, Args)]
pub struct ListOptions {
    /// First network of a pod that does not list all of its networks:
    /// podnetwork:NAME, delegate (the first configuration in the agent's --cni-conf-dir that is not
    /// podnet's), or none
    #[arg(
        long,
        value_name = "NETWORK",
        env = "PODNET_DEFAULT_NETWORK",
        default_value = "podnetwork:default"
    )]
    pub default_network: DefaultNetwork,
    /// NetworkAttachmentDefinitions, as NAMESPACE/NAME, that pods are attached to next
    /// to the default network, in this order and without naming them; a pod with a list of
    /// podnet.dev/networks, which is complete, has none of them. At most 16
    #[arg(
        long,
        value_name = "DEFINITIONS",
        env = "PODNET_DEFAULT_NETWORKS",
        default_value = "",
        value_parser = default_networks
    )]
    pub default_networks: DefaultNetworks,
    /// Namespaces whose pods have none of --default-networks
    #[arg(
        long,
        value_name = "NAMESPACES",
        env = "PODNET_SYSTEM_NAMESPACES",
        value_delimiter = ',',
        default_value = "kube-system"
    )]
    pub system_namespaces: Vec<String>,
    /// Namespace of the NetworkAttachmentDefinitions that pods may choose instead of
    /// the default network, by the annotation v1.multus-cni.io/default-network; no such choice when not
    /// given
    #[arg(long, value_name = "NAMESPACE", env = "PODNET_DEFAULT_OVERRIDE")]
    pub default_override: Option<String>,
    /// Attachments that one pod may have, that to the default network counted; a
    /// longer list is refused before any of its networks is looked at
    #[arg(
        long,
        value_name = "NUMBER",
        env = "PODNET_MAX_ATTACHMENTS_PER_POD",
        default_value_t = 32,
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    pub max_attachments_per_pod: u16,
    /// Plugins that NetworkAttachmentDefinitions may name, by type, also inside ipam,
    /// delegate, delegates and plugins of a plugin's configuration; every plugin when not given.
    /// Definitions without a configuration may still choose any file of --cni-conf-dir
    #[arg(
        long,
        value_name = "TYPES",
        env = "PODNET_DELEGATES_ALLOWED",
        value_delimiter = ','
    )]
    pub delegates_allowed: Option<Vec<String>>,
    /// Let pods name NetworkAttachmentDefinitions of their own namespace and of
    /// --global-namespaces only, and those and configurations name PodNetworkAttachments in the same way
    #[arg(long, env = "PODNET_NAMESPACE_ISOLATION")]
    pub namespace_isolation: bool,
    /// Namespaces whose definitions all pods may name, with --namespace-isolation
    #[arg(
        long,
        value_name = "NAMESPACES",
        env = "PODNET_GLOBAL_NAMESPACES",
        value_delimiter = ',',
        default_value = "default"
    )]
    pub global_namespaces: Vec<String>,
}

/// Definitions by namespace and name.
pub type DefaultNetworks = Arc<[(String, String)]>;

/// Most definitions that every pod may be attached to.
///
/// Each takes a port and addresses for each pod.
const DEFAULT_NETWORKS_MAX: usize = 16;

/// Reads `--default-networks`; an empty value has none.
fn default_networks(text: &str) -> Result<DefaultNetworks, String> {
    let parts = text.split(',').map(str::trim);
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    if parts.len() > DEFAULT_NETWORKS_MAX {
        let found = parts.len();
        return Err(format!(
            "{found} definitions are named, and {DEFAULT_NETWORKS_MAX} is the most; name fewer"
        ));
    }
    let read = |part: &&str| {
        let wrong = |why: &dyn std::fmt::Display| {
            format!("\"{part}\" is not NAMESPACE/NAME of a definition: {why}")
        };
        let (namespace, name) = part.split_once('/').ok_or_else(|| {
            wrong(&"it has no namespace; write kube-system/NAME for one of kube-system")
        })?;
        api::check_label(namespace).map_err(|error| wrong(&error))?;
        api::check_subdomain(name).map_err(|error| wrong(&error))?;
        Ok((namespace.to_owned(), name.to_owned()))
    };
    parts.iter().map(read).collect()
}

/// Features of the whole cluster.
#[derive(Debug, Clone, Args)]
pub struct FeatureGates {
    /// Features by name: MultiNetwork=true|false. Without it lists mean nothing:
    /// every pod is taken as it is, and those that wait for their networks are let go
    #[arg(long, value_name = "NAME=BOOL", value_delimiter = ',', value_parser = feature, env = "PODNET_FEATURE_GATES")]
    pub feature_gates: Vec<(Feature, bool)>,
}

/// Something that can be switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// More than one network for a pod (KEP-CTL-4).
    MultiNetwork,
}

impl ListOptions {
    /// How a list is read on a node whose pods without one have this network first.
    pub fn rules_on(&self, default: &DefaultNetwork) -> SelectionRules {
        let is_other = *default != self.default_network;
        SelectionRules {
            node_default: is_other.then(|| default.name().to_owned()),
            ..self.rules()
        }
    }

    /// How a list is read.
    pub fn rules(&self) -> SelectionRules {
        SelectionRules {
            default_network: self.default_network.name().to_owned(),
            default_override: self.default_override.clone(),
            default_networks: self.default_networks.to_vec(),
            system_namespaces: set(&self.system_namespaces),
            max_attachments: self.max_attachments_per_pod.into(),
            global_namespaces: self
                .namespace_isolation
                .then(|| set(&self.global_namespaces)),
            plugins: match &self.delegates_allowed {
                None => AllowedPlugins::All,
                Some(types) => AllowedPlugins::Listed(set(types)),
            },
            ..SelectionRules::default()
        }
    }
}

/// The names that were typed; an empty value has none.
fn set(typed: &[String]) -> BTreeSet<String> {
    let names = typed.iter().map(|name| name.trim());
    let names = names.filter(|name| !name.is_empty());
    names.map(ToOwned::to_owned).collect()
}

impl FeatureGates {
    /// Returns whether a feature is on; the last value given for it counts.
    ///
    /// `MultiNetwork` is on unless it is switched off.
    pub fn has(&self, feature: Feature) -> bool {
        let mut said = self.feature_gates.iter().rev();
        said.find(|(named, _)| *named == feature)
            .is_none_or(|(_, on)| *on)
    }
}

fn feature(text: &str) -> Result<(Feature, bool), String> {
    let on = match text {
        "MultiNetwork=true" => true,
        "MultiNetwork=false" => false,
        _ => return Err("write MultiNetwork=true or MultiNetwork=false".to_owned()),
    };
    Ok((Feature::MultiNetwork, on))
}

/// Rules of a node for the lists of its pods.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Fate of a pod whose lists cannot be understood.
    pub invalid: InvalidAnnotation,
    /// Options by which lists are read.
    pub lists: ListOptions,
    /// Directory of other plugins' configurations, as the node has it.
    pub conf_dir: PathBuf,
}

/// Fate of a pod whose lists cannot be understood (NPWG-G1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum InvalidAnnotation {
    /// It does not start, and says why.
    #[default]
    Fail,
    /// It starts with the default network alone, which is the letter of NPWG §4.1.
    Ignore,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        lists: ListOptions,
        #[command(flatten)]
        gates: FeatureGates,
    }

    fn parse(arguments: &[&str]) -> Result<Line, String> {
        let line = std::iter::once(&"podnet").chain(arguments);
        Line::try_parse_from(line).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_are_read_by_the_default_network_and_what_may_replace_it() {
        let rules = |arguments: &[&str]| parse(arguments).unwrap().lists.rules();
        let plain = rules(&[]);
        assert_eq!(plain.default_network, "default");
        assert_eq!(plain.default_override, None);
        let chosen = rules(&[
            "--default-network=podnetwork:blue",
            "--default-override=kube-system",
        ]);
        assert_eq!(chosen.default_network, "blue");
        assert_eq!(chosen.default_override.as_deref(), Some("kube-system"));
        assert!(parse(&["--default-network=blue"]).is_err());
    }

    /// ATT-04a
    #[test]
    fn a_pod_may_have_32_attachments_or_as_many_as_the_operator_says() {
        let limit = |arguments: &[&str]| {
            let line = parse(arguments)?;
            Ok::<_, String>(line.lists.rules().max_attachments)
        };
        assert_eq!(limit(&[]), Ok(api::selection::ATTACHMENTS_MAX));
        assert_eq!(limit(&["--max-attachments-per-pod=100"]), Ok(100));
        for wrong in ["0", "1025", "all"] {
            let argument = format!("--max-attachments-per-pod={wrong}");
            assert!(limit(&[&argument]).is_err(), "{wrong}");
        }
        proof::of!("ATT-04a");
    }

    /// ATT-07b: all plugins are allowed without a limit, and an empty list allows none.
    #[test]
    fn plugins_and_namespaces_are_limited_by_options() {
        let rules = |arguments: &[&str]| parse(arguments).unwrap().lists.rules();
        let names = |names: &[&str]| names.iter().map(|one| (*one).to_owned()).collect();
        let plain = rules(&["--global-namespaces=ops"]);
        assert_eq!(plain.plugins, AllowedPlugins::All);
        assert_eq!(plain.global_namespaces, None);
        let limited = rules(&[
            "--delegates-allowed=bridge, host-local",
            "--namespace-isolation",
        ]);
        assert_eq!(
            limited.plugins,
            AllowedPlugins::Listed(names(&["bridge", "host-local"]))
        );
        assert_eq!(limited.global_namespaces, Some(names(&["default"])));
        let strict = rules(&[
            "--delegates-allowed=",
            "--namespace-isolation",
            "--global-namespaces=",
        ]);
        assert_eq!(strict.plugins, AllowedPlugins::Listed(names(&[])));
        assert_eq!(strict.global_namespaces, Some(names(&[])));
        proof::of!("ATT-07b");
    }

    /// NPWG-X7
    #[test]
    fn default_networks_are_definitions_with_their_namespace_and_few() {
        let rules = |arguments: &[&str]| parse(arguments).map(|line| line.lists.rules());
        let plain = rules(&[]).unwrap();
        assert!(plain.default_networks.is_empty());
        assert_eq!(plain.system_namespaces, ["kube-system".to_owned()].into());
        let given = rules(&[
            "--default-networks=kube-system/lan, ops/san.b",
            "--system-namespaces=",
        ]);
        let given = given.unwrap();
        let named = given.default_networks.iter();
        let named: Vec<String> = named
            .map(|(space, name)| format!("{space}/{name}"))
            .collect();
        assert_eq!(named, ["kube-system/lan", "ops/san.b"]);
        assert!(given.system_namespaces.is_empty());
        let many = format!("--default-networks={}", ["a/b"; 17].join(","));
        for (wrong, word) in [
            ("--default-networks=lan", "write kube-system/NAME"),
            ("--default-networks=/etc/cni/net.d", "NAMESPACE/NAME"),
            ("--default-networks=Ops/lan", "Ops/lan"),
            ("--default-networks=ops/../lan", "ops/../lan"),
            (many.as_str(), "16 is the most"),
        ] {
            let error = rules(&[wrong]).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        proof::of!("NPWG-X7");
    }

    /// KEP-CTL-4
    #[test]
    fn the_feature_is_on_unless_it_is_switched_off() {
        let on = |arguments: &[&str]| parse(arguments).unwrap().gates.has(Feature::MultiNetwork);
        assert!(on(&[]));
        assert!(!on(&["--feature-gates", "MultiNetwork=false"]));
        assert!(on(&[
            "--feature-gates=MultiNetwork=false,MultiNetwork=true"
        ]));
        for wrong in ["MultiNetwork", "MultiNetwork=yes", "Other=true"] {
            let error = parse(&["--feature-gates", wrong]).unwrap_err();
            assert!(error.contains("write MultiNetwork=true"), "{error}");
        }
        proof::of!("KEP-CTL-4");
    }
}
