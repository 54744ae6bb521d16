//! Validates `Vpc`.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde::Serialize;

use super::network::{overlap, unicast_prefix};
use super::{Faults, FieldErrors, FieldProblem, parse_prefix};
use crate::meta::check_subdomain;
use crate::vpc::{VPC_CIDRS_MAX, VPC_PEERS_MAX, VpcSpec};

/// A VPC with nothing left to doubt but its peers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Vpc {
    /// Its name.
    pub name: String,
    /// Disjoint prefixes, in the order of the manifest.
    pub cidrs: Vec<IpNet>,
    /// Names of the VPCs that it is to be routed to; none of them is its own.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub peers: BTreeSet<String>,
}

impl Vpc {
    /// Returns two prefixes, one of each VPC, that share addresses.
    pub(crate) fn overlap(&self, other: &Self) -> Option<(IpNet, IpNet)> {
        let pairs = self
            .cidrs
            .iter()
            .flat_map(|own| other.cidrs.iter().map(move |theirs| (*own, *theirs)));
        pairs.into_iter().find(|(own, theirs)| overlap(own, theirs))
    }
}

/// Checks the VPC `name`.
///
/// # Errors
/// Every field that is wrong, with what to write instead.
pub(crate) fn vpc(name: &str, spec: &VpcSpec) -> Result<Vpc, FieldErrors> {
    let mut faults = Faults::default();
    let cidrs = cidrs(&mut faults, &spec.cidrs);
    let mut peers = BTreeSet::new();
    let (found, max) = (spec.peers.len(), VPC_PEERS_MAX as usize);
    if found > max {
        faults.push("spec.peers", FieldProblem::Count { min: 0, max, found });
        return Err(FieldErrors(faults.0));
    }
    for (index, peer) in spec.peers.iter().enumerate() {
        let path = format!("spec.peers[{index}].vpc");
        let name_of_peer = peer.vpc.clone();
        if let Err(error) = check_subdomain(&peer.vpc) {
            faults.push(path, FieldProblem::Name(error));
        } else if peer.vpc == name {
            faults.push(path, FieldProblem::OwnPeer);
        } else if !peers.insert(peer.vpc.clone()) {
            faults.push(path, FieldProblem::PeerTwice { name: name_of_peer });
        }
    }
    faults.finish(Vpc {
        name: name.to_owned(),
        cidrs,
        peers,
    })
}

fn cidrs(faults: &mut Faults, written: &[String]) -> Vec<IpNet> {
    const PATH: &str = "spec.cidrs";
    let (found, max) = (written.len(), VPC_CIDRS_MAX as usize);
    if found == 0 || found > max {
        faults.push(PATH, FieldProblem::Count { min: 1, max, found });
        return Vec::new();
    }
    let mut good: Vec<IpNet> = Vec::new();
    for (index, text) in written.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        let prefix = parse_prefix(text).and_then(unicast_prefix);
        let Some(prefix) = faults.take(path.as_str(), prefix) else {
            continue;
        };
        match good.iter().find(|other| overlap(&prefix, other)) {
            Some(&other) => faults.push(path, FieldProblem::CidrOverlap { prefix, other }),
            None => good.push(prefix),
        }
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vpc::VpcPeerSpec;

    fn spec(cidrs: &[&str], peers: &[&str]) -> VpcSpec {
        let peer = |name: &&str| VpcPeerSpec {
            vpc: (*name).to_owned(),
        };
        VpcSpec {
            cidrs: cidrs.iter().map(|it| (*it).to_owned()).collect(),
            peers: peers.iter().map(peer).collect(),
        }
    }

    fn problems(cidrs: &[&str], peers: &[&str]) -> String {
        vpc("blue", &spec(cidrs, peers)).unwrap_err().to_string()
    }

    #[test]
    fn a_vpc_has_disjoint_prefixes_of_both_families_and_peers() {
        let vpc = vpc("blue", &spec(&["10.0.0.0/8", "fd10::/48"], &["red"])).unwrap();
        assert_eq!(vpc.cidrs.len(), 2);
        assert!(vpc.peers.contains("red"));
    }

    #[test]
    fn each_wrong_field_of_a_vpc_is_named() {
        for (cidrs, peers, words) in [
            (&[][..], &[][..], &["spec.cidrs", "1 to 8"][..]),
            (&["10.0.0.1/8"], &[], &["spec.cidrs[0]", "10.0.0.0/8"]),
            (&["0.0.0.0/0"], &[], &["spec.cidrs[0]", "unicast"]),
            (
                &["10.0.0.0/8", "10.1.0.0/16"],
                &[],
                &["spec.cidrs[1]", "10.0.0.0/8"],
            ),
            (
                &["10.0.0.0/8"],
                &["blue"],
                &["spec.peers[0].vpc", "another VPC"],
            ),
            (
                &["10.0.0.0/8"],
                &["red", "red"],
                &["spec.peers[1].vpc", "red"],
            ),
            (&["10.0.0.0/8"], &["R"], &["spec.peers[0].vpc", "DNS-1123"]),
        ] {
            let said = problems(cidrs, peers);
            for word in words {
                assert!(said.contains(word), "{said}");
            }
        }
        let many: Vec<String> = (0..17).map(|it| format!("vpc-{it}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(problems(&["10.0.0.0/8"], &many).contains("spec.peers"));
    }
}
