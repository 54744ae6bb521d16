//! Numbers that a cluster gave its networks, one for all nodes.

use std::collections::BTreeMap;

use super::{ResolveError, Resolved};
use crate::validate::NetworkId;

impl Resolved {
    /// Gives networks the numbers in `given`, which are their `status.networkID`.
    ///
    /// A network without one keeps the number its parameters ask for, unless another was given it; with
    /// neither it takes no attachments yet.
    pub fn number(&mut self, given: &BTreeMap<String, NetworkId>) {
        let holders: BTreeMap<NetworkId, &String> =
            given.iter().map(|(name, id)| (*id, name)).collect();
        for (name, entry) in &mut self.networks {
            let Some(network) = &mut entry.definition else {
                continue;
            };
            if let Some(id) = given.get(name) {
                network.id = Some(*id);
                continue;
            }
            let name = name.clone();
            let refusal = match network.id.and_then(|id| Some((id, holders.get(&id)?))) {
                Some((id, holder)) => ResolveError::NetworkIdConflict {
                    name,
                    id,
                    others: vec![(*holder).clone()],
                    more: 0,
                },
                None if network.id.is_none() => ResolveError::NotNumbered { name },
                None => continue,
            };
            network.id = None;
            entry.refusal.get_or_insert(refusal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse_manifests, resolve};

    fn networks(with_ids: &[(&str, Option<u32>)]) -> Resolved {
        let of = |(name, id): &(&str, Option<u32>)| {
            let id = id.map_or(String::new(), |id| format!(", networkID: {id}"));
            format!(
                "---\napiVersion: podnet.dev/v1alpha1\nkind: PodNetwork\nmetadata: {{name: {name}}}\n\
                 spec: {{provider: podnet.dev/ebpf, parametersRefs: [{{group: podnet.dev, \
                 kind: PodNetworkParameters, name: {name}}}]}}\n---\n\
                 apiVersion: podnet.dev/v1alpha1\nkind: PodNetworkParameters\n\
                 metadata: {{name: {name}}}\nspec: {{mode: L2{id}}}\n"
            )
        };
        let text: String = with_ids.iter().map(of).collect();
        resolve(
            parse_manifests("a.yaml", &text)
                .into_iter()
                .map(Result::unwrap),
        )
    }

    fn given(numbers: &[(&str, u32)]) -> BTreeMap<String, NetworkId> {
        let numbers = numbers.iter();
        numbers
            .map(|(name, id)| ((*name).to_owned(), NetworkId::new(*id).unwrap()))
            .collect()
    }

    fn id(resolved: &Resolved, name: &str) -> Result<u32, &'static str> {
        let network = resolved.network(name).map_err(|error| error.reason())?;
        Ok(network.id.unwrap().get())
    }

    #[test]
    fn a_network_has_the_number_that_the_cluster_gave_it() {
        let mut resolved = networks(&[("blue", None), ("red", Some(7))]);
        resolved.number(&given(&[("blue", 0x80_0001), ("red", 5)]));
        assert_eq!(id(&resolved, "blue"), Ok(0x80_0001));
        // Pods use it under that number, and 7 is what somebody asks for meanwhile.
        assert_eq!(id(&resolved, "red"), Ok(5));
    }

    #[test]
    fn a_network_without_a_number_takes_no_attachments_and_says_who_gives_one() {
        let mut resolved = networks(&[("blue", None)]);
        resolved.number(&given(&[]));
        assert_eq!(id(&resolved, "blue"), Err("NetworkIDPending"));
        let status = resolved.statuses().next().unwrap();
        assert!(
            status.message.contains("podnet-agent controller"),
            "{status:?}"
        );
        assert!(resolved.definition("blue").is_some());
    }

    #[test]
    fn a_number_that_is_asked_for_serves_until_it_was_given_to_another() {
        let mut resolved = networks(&[("blue", None), ("red", Some(7))]);
        resolved.number(&given(&[("blue", 6)]));
        assert_eq!(id(&resolved, "red"), Ok(7));
        let mut resolved = networks(&[("blue", None), ("red", Some(7))]);
        resolved.number(&given(&[("blue", 7)]));
        assert_eq!(id(&resolved, "red"), Err("NetworkIDConflict"));
        assert_eq!(id(&resolved, "blue"), Ok(7));
    }
}
