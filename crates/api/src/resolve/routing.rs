//! The one network that a node routes for.

use std::collections::BTreeMap;

use super::{NetworkEntry, ResolveError, Resolved};
use crate::{meta::DEFAULT_NETWORK, parameters::Routing};

/// Refuses all networks with routing by the node except the first.
///
/// The node has one table of routes. The network `default` has it before others, and else the first by
/// name: every agent decides the same, and no network takes it from a cluster's pods by mistake. A
/// disabled one counts, because its ports are still there.
pub(super) fn refuse_second(networks: &mut BTreeMap<String, NetworkEntry>) {
    if let Some(first) = holder(networks).cloned() {
        refuse_but(networks, &first);
    }
}

fn refuse_but(networks: &mut BTreeMap<String, NetworkEntry>, first: &str) {
    for (name, entry) in networks.iter_mut() {
        if is_routed(entry) && name != first {
            entry
                .refusal
                .get_or_insert_with(|| ResolveError::RoutingConflict {
                    name: name.clone(),
                    first: first.to_owned(),
                });
        }
    }
}

impl Resolved {
    /// Lets these networks have the node's routes where they have routing `Node`.
    ///
    /// Nodes whose default network is another than the cluster's have one. With `alone`, no other network has
    /// routes on this node then; without, this is about nodes of both kinds. Called before [`Self::number`].
    pub fn route_for<'a>(&mut self, names: impl IntoIterator<Item = &'a str>, alone: bool) {
        for name in names {
            let entry = self.networks.get_mut(name);
            let Some(entry) = entry.filter(|entry| is_routed(entry)) else {
                continue;
            };
            admit(entry);
            if alone {
                self.router = Some(name.to_owned());
                self.networks.values_mut().for_each(admit);
                refuse_but(&mut self.networks, name);
            }
        }
    }
}

fn admit(entry: &mut NetworkEntry) {
    entry
        .refusal
        .take_if(|refusal| matches!(refusal, ResolveError::RoutingConflict { .. }));
}

fn is_routed(entry: &NetworkEntry) -> bool {
    let definition = entry.definition.as_ref();
    definition.is_some_and(|network| network.routing == Routing::Node)
}

pub(super) fn holder(networks: &BTreeMap<String, NetworkEntry>) -> Option<&String> {
    let routed = || networks.iter().filter(|(_, entry)| is_routed(entry));
    let default = routed().find(|(name, _)| *name == DEFAULT_NETWORK);
    default.or_else(|| routed().next()).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse_manifests, resolve};

    fn networks() -> Resolved {
        let of = |name: &str| {
            format!(
                "apiVersion: podnet.dev/v1alpha1\nkind: PodNetwork\nmetadata: {{name: {name}}}\n\
                 spec: {{provider: podnet.dev/ebpf, parametersRefs: [{{group: podnet.dev, \
                 kind: PodNetworkParameters, name: {name}}}]}}\n---\n\
                 apiVersion: podnet.dev/v1alpha1\nkind: PodNetworkParameters\nmetadata: {{name: {name}}}\n\
                 spec: {{mode: L3, routing: Node, subnets: [10.0.0.0/24]}}\n"
            )
        };
        let text = ["default", "green", "azure"].map(of).join("---\n");
        let objects = parse_manifests("a.yaml", &text).into_iter();
        resolve(objects.map(|it| it.expect("a manifest")))
    }

    fn router(resolved: &Resolved) -> Option<&str> {
        resolved
            .routed_by_node()
            .map(|network| network.name.as_str())
    }

    /// KEP-DEF-6: the last default network is still there.
    #[test]
    fn a_node_with_a_default_network_of_its_own_routes_for_that_one() {
        let mut resolved = networks();
        resolved.route_for(["green"], true);
        assert_eq!(router(&resolved), Some("green"));
        assert!(resolved.network("green").is_ok());
        for other in ["default", "azure"] {
            let error = resolved.network(other).unwrap_err();
            assert_eq!(error.reason(), "RoutingConflict");
            assert!(error.to_string().contains("green"), "{error}");
        }
        // One that is not routed, or not there, takes the routes from none.
        let mut resolved = networks();
        resolved.route_for(["white"], true);
        assert_eq!(router(&resolved), Some("default"));
        proof::of!("KEP-DEF-6");
    }

    /// The controller speaks for nodes of both kinds.
    #[test]
    fn both_networks_are_ready_while_some_nodes_have_one_and_some_the_other() {
        let mut resolved = networks();
        resolved.route_for(["green"], false);
        assert_eq!(router(&resolved), Some("default"));
        assert!(resolved.network("default").is_ok() && resolved.network("green").is_ok());
        assert!(resolved.network("azure").is_err());
    }
}
