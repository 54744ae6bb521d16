//! Transports of a cluster's networks: written, or decided once for all nodes.
//!
//! - A transport is decided once, by the controller, and kept in `status.transport`: no node decides for
//!   itself, so no two of them differ.
//! - A network with a number and without a transport is of a version that knew written transports only:
//!   it is `Local`, as its pods are attached.

use super::{ResolveError, Resolved};
use crate::{parameters::Transport, podnetwork::Given, validate::Network};

/// Returns the transport of a network of a cluster, which has given it this.
///
/// `None` while it is open: nothing is written, and nothing was decided.
#[must_use]
pub fn decided_transport(network: &Network, given: Given) -> Option<Transport> {
    let written = network.written.transport.then_some(network.transport);
    let as_it_was = given.number.map(|_| Transport::Local);
    given.transport.or(written).or(as_it_was)
}

impl Resolved {
    /// Gives each network the transport that `decided` returns.
    ///
    /// A network whose manifest has another takes no attachments, and one without either takes none yet.
    pub fn transport(&mut self, decided: impl Fn(&Network) -> Option<Transport>) {
        for (name, entry) in &mut self.networks {
            let Some(network) = &mut entry.definition else {
                continue;
            };
            let name = name.clone();
            let written = network.written.transport.then_some(network.transport);
            let refusal = match (decided(network), written) {
                (decided, Some(_)) if decided == written || decided.is_none() => continue,
                // The part of an uplink that is the network's is written in the manifest only.
                (Some(decided), None) if !decided.has_uplink() => {
                    network.carry_by(decided);
                    continue;
                }
                (Some(decided), written) => ResolveError::TransportConflict {
                    name,
                    written,
                    decided,
                },
                (None, _) => ResolveError::TransportPending { name },
            };
            entry.refusal.get_or_insert(refusal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NetworkId, parse_manifests, resolve};

    /// A network and its parameters, whose `spec` has this besides.
    fn network(more: &str) -> Resolved {
        let text = format!(
            "apiVersion: podnet.dev/v1alpha1\nkind: PodNetwork\nmetadata: {{name: blue}}\n\
             spec: {{provider: podnet.dev/ebpf, parametersRefs: [{{group: podnet.dev, \
             kind: PodNetworkParameters, name: blue}}]}}\n---\n\
             apiVersion: podnet.dev/v1alpha1\nkind: PodNetworkParameters\n\
             metadata: {{name: blue}}\nspec: {{mode: L3, subnets: [10.1.0.0/24]{more}}}\n"
        );
        let objects = parse_manifests("a.yaml", &text).into_iter();
        resolve(objects.map(Result::unwrap))
    }

    fn given(transport: Option<Transport>, number: Option<u32>) -> Given {
        Given {
            transport,
            number: number.and_then(NetworkId::new),
        }
    }

    /// Transport and MTU, or the reason of a refusal.
    fn carried(more: &str, decided: Option<Transport>) -> Result<(Transport, u16), &'static str> {
        let mut resolved = network(more);
        resolved.transport(|_| decided);
        let network = resolved.network("blue").map_err(|error| error.reason())?;
        Ok((network.transport, network.mtu))
    }

    #[test]
    fn a_transport_is_kept_before_it_is_written_and_written_before_it_is_as_it_was() {
        let decided = |more: &str, given: Given| {
            let resolved = network(more);
            decided_transport(resolved.definition("blue").unwrap(), given)
        };
        let (local, vxlan) = (Transport::Local, Transport::Vxlan);
        let of = ", transport: {type: VXLAN}";
        assert_eq!(decided("", given(None, None)), None);
        assert_eq!(decided(of, given(None, None)), Some(vxlan));
        assert_eq!(decided(", routing: Node", given(None, None)), Some(local));
        // Pods are attached to it as to a local one.
        assert_eq!(decided("", given(None, Some(7))), Some(local));
        assert_eq!(decided(of, given(None, Some(7))), Some(vxlan));
        let kept = given(Some(vxlan), Some(7));
        assert_eq!(decided("", kept), Some(vxlan));
        let written = ", transport: {type: Local}";
        assert_eq!(decided(written, kept), Some(vxlan));
    }

    #[test]
    fn a_network_without_a_transport_has_the_one_that_was_decided_on_with_its_mtu() {
        let (local, vxlan) = (Transport::Local, Transport::Vxlan);
        assert_eq!(carried("", Some(vxlan)), Ok((vxlan, 1430)));
        assert_eq!(carried("", Some(local)), Ok((local, 1500)));
        assert_eq!(carried(", mtu: 9000", Some(vxlan)), Ok((vxlan, 9000)));
        assert_eq!(carried(", routing: Node", None), Ok((local, 1500)));
    }

    #[test]
    fn a_network_without_a_decision_takes_no_attachments_and_names_both_remedies() {
        assert_eq!(carried("", None), Err("TransportPending"));
        let mut resolved = network("");
        resolved.transport(|_| None);
        let why = resolved.network("blue").unwrap_err().to_string();
        for words in ["podnet-agent controller", "write spec.transport"] {
            assert!(why.contains(words), "{why}");
        }
        assert!(resolved.definition("blue").is_some());
    }

    #[test]
    fn parameters_that_say_otherwise_than_when_the_network_was_made_are_refused() {
        let conflict = Err("TransportConflict");
        let local = ", transport: {type: Local}";
        assert_eq!(carried(local, Some(Transport::Vxlan)), conflict);
        assert_eq!(carried(", routing: Node", Some(Transport::Vxlan)), conflict);
        // Deleted, and made again without it.
        assert_eq!(carried("", Some(Transport::Vlan)), conflict);
        let native = ", transport: {type: Native, uplink: eth1}";
        assert_eq!(carried(native, Some(Transport::Local)), conflict);
        let mut resolved = network(local);
        resolved.transport(|_| Some(Transport::Vxlan));
        assert_eq!(
            resolved.network("blue").unwrap_err().to_string(),
            "PodNetwork blue was made with transport VXLAN, and its PodNetworkParameters have Local; \
             write VXLAN there, or make another PodNetwork"
        );
    }
}
