//! Networks that want the same of one uplink.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::{NetworkEntry, ResolveError};
use crate::validate::{Network, Wire};

/// Refuses networks that want a share of an uplink that another network has.
///
/// The first by name has it: every agent decides the same. A disabled one counts, because its ports are
/// still there.
pub(super) fn refuse_second_owners(networks: &mut BTreeMap<String, NetworkEntry>) {
    let mut owners: Vec<(String, Wire, Vec<IpNet>)> = Vec::new();
    for (name, entry) in networks {
        let Some((wire, subnets)) = entry.definition.as_ref().and_then(claim) else {
            continue;
        };
        let clash = owners.iter().find_map(|(first, other, theirs)| {
            let clash = wire.clash(&subnets, other, theirs)?;
            Some((first.clone(), clash))
        });
        match clash {
            Some((first, what)) => {
                let uplink = wire.uplink.clone();
                let name = name.clone();
                entry.refusal.get_or_insert(ResolveError::UplinkConflict {
                    name,
                    first,
                    uplink,
                    what,
                });
            }
            None => owners.push((name.clone(), wire, subnets)),
        }
    }
}

fn claim(network: &Network) -> Option<(Wire, Vec<IpNet>)> {
    let prefixes = network.subnets.iter().map(|subnet| subnet.prefix);
    Some((network.wire.clone()?, prefixes.collect()))
}

#[cfg(test)]
mod tests {
    use crate::{parse_manifests, resolve};

    #[test]
    fn a_second_network_that_wants_a_vlan_is_refused_naming_both() {
        let of = |(name, id): &(&str, &str)| {
            format!(
                "---\napiVersion: podnet.dev/v1alpha1\nkind: PodNetwork\nmetadata: {{name: {name}}}\n\
                 spec: {{provider: podnet.dev/ebpf, parametersRefs: [{{group: podnet.dev, \
                 kind: PodNetworkParameters, name: {name}}}]}}\n---\n\
                 apiVersion: podnet.dev/v1alpha1\nkind: PodNetworkParameters\n\
                 metadata: {{name: {name}}}\nspec: {{mode: L2, transport: {{type: VLAN, uplink: \
                 eth1, {id}}}}}\n"
            )
        };
        let all = [
            ("blue", "id: 5"),
            ("red", "trunk: \"4-6\""),
            ("white", "id: 6"),
        ];
        let text: String = all.iter().map(of).collect();
        let objects = parse_manifests("a.yaml", &text).into_iter();
        let resolved = resolve(objects.map(Result::unwrap));
        // What red does not have can be another's.
        let ready: Vec<&str> = resolved.ready_networks().map(|it| &*it.name).collect();
        assert_eq!(ready, ["blue", "white"]);
        let error = resolved.network("red").unwrap_err();
        assert_eq!(error.reason(), "UplinkConflict");
        let why = error.to_string();
        for word in ["red", "blue", "VLAN 5", "eth1"] {
            assert!(why.contains(word), "{why}");
        }
    }
}
