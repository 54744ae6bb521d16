//! Refuses networks that span nodes, where the node lacks address or numbers.

use super::{NetworkEntry, ResolveError, Resolved};
use crate::{
    parameters::{Mode, Transport},
    validate::Network,
};

impl Resolved {
    /// Refuses networks that need an address by which other nodes reach this one.
    ///
    /// A segment that the nodes are all on finds its own ways.
    pub fn without_tunnels(&mut self) {
        self.refuse_spanning(|network| {
            let needed = !network.transport.has_uplink() || network.mode == Mode::L3;
            needed.then(|| ResolveError::NoTunnelAddress {
                name: network.name.clone(),
                transport: network.transport,
            })
        });
    }

    /// Refuses networks that span nodes and have no number of their own.
    ///
    /// They need one where no controller gives a number to all nodes.
    pub fn without_shared_numbers(&mut self) {
        self.refuse_spanning(|network| {
            network.id.is_none().then(|| ResolveError::NoSharedNumber {
                name: network.name.clone(),
                transport: network.transport,
            })
        });
    }

    /// Reports whether a network spans nodes, even one that takes no attachments.
    #[must_use]
    pub fn spans_nodes(&self) -> bool {
        let definitions = self.networks.values();
        definitions
            .filter_map(|entry| entry.definition.as_ref())
            .any(|network| network.transport != Transport::Local)
    }

    fn refuse_spanning(&mut self, why: impl Fn(&Network) -> Option<ResolveError>) {
        for NetworkEntry {
            definition,
            refusal,
        } in self.networks.values_mut()
        {
            let spanning = definition
                .as_ref()
                .filter(|network| network.transport != Transport::Local);
            if let (None, Some(why)) = (&refusal, spanning.and_then(&why)) {
                *refusal = Some(why);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse_manifests, resolve};

    fn networks() -> Resolved {
        let of = |(name, spec): (&str, &str)| {
            format!(
                "---\napiVersion: podnet.dev/v1alpha1\nkind: PodNetwork\nmetadata: {{name: {name}}}\n\
                 spec: {{provider: podnet.dev/ebpf, parametersRefs: [{{group: podnet.dev, \
                 kind: PodNetworkParameters, name: {name}}}]}}\n---\n\
                 apiVersion: podnet.dev/v1alpha1\nkind: PodNetworkParameters\n\
                 metadata: {{name: {name}}}\nspec: {{mode: L2{spec}}}\n"
            )
        };
        let text: String = [
            ("here", ""),
            ("wide", ", transport: {type: VXLAN}"),
            ("wide-7", ", transport: {type: VXLAN}, networkID: 7"),
        ]
        .map(of)
        .concat();
        let objects = parse_manifests("a.yaml", &text).into_iter();
        resolve(objects.map(Result::unwrap))
    }

    fn reasons(resolved: &Resolved) -> Vec<&'static str> {
        resolved.statuses().map(|status| status.reason).collect()
    }

    #[test]
    fn a_node_without_an_address_for_tunnels_refuses_the_networks_that_span_nodes() {
        let mut resolved = networks();
        assert_eq!(reasons(&resolved), ["Ready"; 3]);
        resolved.without_tunnels();
        let refused = "NoTunnelAddress";
        assert_eq!(reasons(&resolved), ["Ready", refused, refused]);
        let why = resolved.network("wide").unwrap_err().to_string();
        assert!(
            why.contains("transport VXLAN") && why.contains("--vtep"),
            "{why}"
        );
        assert!(resolved.definition("wide").is_some());
    }

    #[test]
    fn nodes_that_do_not_know_of_each_other_need_the_number_of_what_spans_them() {
        let mut resolved = networks();
        resolved.without_shared_numbers();
        assert_eq!(reasons(&resolved), ["Ready", "NetworkIDMissing", "Ready"]);
        let why = resolved.network("wide").unwrap_err().to_string();
        assert!(why.contains("spec.networkID"), "{why}");
    }
}
