//! Validates the share that a network has of an uplink.

use std::{fmt, ops::RangeInclusive};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::ether_types::ether_types;
use super::{Faults, FieldProblem, network::overlap};
use crate::parameters::{Mode, Transport, TransportSpec};

/// The largest VLAN id (IEEE 802.1Q): 4095 is reserved.
pub(crate) const VLAN_MAX: u16 = 4094;
/// Longest name of an interface, bytes: `IFNAMSIZ` less the terminator.
pub(crate) const IFNAME_MAX: usize = 15;

/// The uplink of a network, and what of it is the network's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wire {
    /// Name of the interface, on every node.
    pub uplink: String,
    /// The network's share of it.
    pub share: Share,
    /// EtherTypes that pass besides IPv4, IPv6 and ARP, in order.
    ///
    /// Networks with their pods on a segment of the uplink have them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ether_types: Vec<u16>,
}

/// The share of an uplink that is a network's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Share {
    /// Frames without a tag.
    Untagged,
    /// Frames of one VLAN.
    Vlan(u16),
    /// Frames of these VLANs, which pods tag themselves. In order, with gaps between.
    Trunk(Vec<VlanRange>),
    /// Packets for the addresses of its pods, which routers lead to the nodes.
    Routed,
}

/// VLAN ids from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VlanRange {
    /// The first.
    pub first: u16,
    /// The last, not before the first.
    pub last: u16,
}

impl VlanRange {
    const fn ids(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }
}

impl Wire {
    /// Returns the network's VLAN ids: 0 for untagged frames, none if it is routed.
    pub fn ids(&self) -> impl Iterator<Item = u16> + '_ {
        let (one, many): (Option<u16>, &[VlanRange]) = match &self.share {
            Share::Untagged => (Some(0), &[]),
            Share::Vlan(id) => (Some(*id), &[]),
            Share::Trunk(ranges) => (None, ranges),
            Share::Routed => (None, &[]),
        };
        one.into_iter()
            .chain(many.iter().flat_map(|range| range.ids()))
    }

    /// The id that the node puts on frames; 0 for none.
    #[must_use]
    pub const fn tag(&self) -> u16 {
        match self.share {
            Share::Vlan(id) => id,
            Share::Untagged | Share::Trunk(_) | Share::Routed => 0,
        }
    }

    /// True when pods tag their frames themselves.
    #[must_use]
    pub const fn is_trunk(&self) -> bool {
        matches!(self.share, Share::Trunk(_))
    }

    /// True when routers lead to the pods.
    #[must_use]
    pub const fn is_routed(&self) -> bool {
        matches!(self.share, Share::Routed)
    }

    /// Returns the share that this network and another one both want.
    ///
    /// A network with `subnets` and this uplink, and one with `theirs`, cannot both have it.
    #[must_use]
    pub fn clash(&self, subnets: &[IpNet], other: &Self, theirs: &[IpNet]) -> Option<Clash> {
        if self.uplink != other.uplink {
            return None;
        }
        if self.is_routed() && other.is_routed() {
            let mut pairs = subnets
                .iter()
                .flat_map(|own| theirs.iter().map(move |it| (own, it)));
            let (own, their) = pairs.find(|(own, their)| overlap(own, their))?;
            return Some(Clash::Subnets(*own, *their));
        }
        let id = self.ids().find(|id| other.ids().any(|it| it == *id))?;
        Some(if id == 0 {
            Clash::Untagged
        } else {
            Clash::Vlan(id)
        })
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.uplink)?;
        match &self.share {
            Share::Untagged => write!(f, ", untagged"),
            Share::Vlan(id) => write!(f, ", VLAN {id}"),
            Share::Trunk(ranges) => {
                write!(f, ", VLANs ")?;
                for (index, range) in ranges.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    if range.first == range.last {
                        write!(f, "{comma}{}", range.first)?;
                    } else {
                        write!(f, "{comma}{}-{}", range.first, range.last)?;
                    }
                }
                Ok(())
            }
            Share::Routed => write!(f, ", routed"),
        }
    }
}

/// A share of one uplink that two networks want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clash {
    /// A VLAN.
    Vlan(u16),
    /// Frames without a tag.
    Untagged,
    /// Overlapping subnets: the first network's, and the other's.
    Subnets(IpNet, IpNet),
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vlan(id) => write!(f, "VLAN {id}"),
            Self::Untagged => write!(f, "what has no tag"),
            Self::Subnets(own, their) => write!(f, "subnet {own}, which overlaps {their}"),
        }
    }
}

/// Reads the uplink from `spec.transport`, if its type has one.
pub(super) fn wire(
    faults: &mut Faults,
    spec: &TransportSpec,
    mode: Mode,
    has_subnets: bool,
) -> Option<Wire> {
    let kind = spec.kind;
    let known = faults.0.len();
    match (&spec.uplink, kind.has_uplink()) {
        (None, true) => {
            faults.push(
                "spec.transport.uplink",
                FieldProblem::UplinkRequired { kind },
            );
        }
        (Some(_), false) => {
            faults.push("spec.transport.uplink", FieldProblem::NoUplink { kind });
        }
        (Some(name), true) if !is_interface_name(name) => {
            let found = name.clone();
            faults.push("spec.transport.uplink", FieldProblem::BadUplink { found });
        }
        _ => {}
    }
    let share = match (kind, spec.id, &spec.trunk) {
        (Transport::Vlan, Some(_), Some(_)) | (Transport::Vlan, None, None) => {
            faults.push("spec.transport.id", FieldProblem::IdOrTrunk);
            None
        }
        (Transport::Vlan, Some(found), None) => {
            let id = u16::try_from(found).ok().filter(|id| is_vlan(*id));
            let id = id.ok_or(FieldProblem::VlanRange { found });
            faults.take("spec.transport.id", id).map(Share::Vlan)
        }
        (Transport::Vlan, None, Some(text)) => {
            // Pods make interfaces of their own on a trunk, with addresses that podnet does not know.
            if mode == Mode::L3 || has_subnets {
                faults.push("spec.transport.trunk", FieldProblem::TrunkHasNoAddresses);
            }
            let ranges = ranges(text).ok_or_else(|| FieldProblem::BadTrunk {
                found: text.clone(),
            });
            faults
                .take("spec.transport.trunk", ranges)
                .map(Share::Trunk)
        }
        (_, id, trunk) => {
            for (path, written) in [("id", id.is_some()), ("trunk", trunk.is_some())] {
                if written {
                    let path = format!("spec.transport.{path}");
                    faults.push(path, FieldProblem::NoVlan { kind });
                }
            }
            Some(match mode {
                Mode::L2 => Share::Untagged,
                Mode::L3 => Share::Routed,
            })
        }
    };
    let ether_types = ether_types(faults, spec, mode);
    let (uplink, share) = (spec.uplink.clone()?, share?);
    (kind.has_uplink() && faults.0.len() == known).then_some(Wire {
        uplink,
        share,
        ether_types,
    })
}

const fn is_vlan(id: u16) -> bool {
    id >= 1 && id <= VLAN_MAX
}

/// Reports whether the kernel takes it as a name of an interface.
fn is_interface_name(name: &str) -> bool {
    let fits = !name.is_empty() && name.len() <= IFNAME_MAX && name != "." && name != "..";
    fits && name
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':')
}

/// Ids and ranges of them with commas between, each id once, as ordered ranges.
fn ranges(text: &str) -> Option<Vec<VlanRange>> {
    let mut ranges = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            plain
                .then(|| text.parse::<u16>().ok())?
                .filter(|id| is_vlan(*id))
        };
        let range = VlanRange {
            first: number(first)?,
            last: number(last)?,
        };
        if range.first > range.last {
            return None;
        }
        ranges.push(range);
    }
    ranges.sort_by_key(|range| range.first);
    let twice = ranges.windows(2).any(|pair| match pair {
        [before, after] => before.last >= after.first,
        _ => false,
    });
    (!twice).then_some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(share: Share) -> Wire {
        Wire {
            uplink: "eth1".to_owned(),
            share,
            ether_types: Vec::new(),
        }
    }

    #[test]
    fn a_trunk_is_ids_and_ranges_each_id_once() {
        let read = |text: &str| ranges(text).map(|it| of(Share::Trunk(it)).to_string());
        assert_eq!(
            read("300-310,100,200").as_deref(),
            Some("eth1, VLANs 100,200,300-310")
        );
        assert_eq!(read("1-4094").as_deref(), Some("eth1, VLANs 1-4094"));
        for wrong in [
            "", "0", "4095", "70000", "10-5", "5,5", "1-9,9-12", "5,", "a", "-5", "+5", "1 ",
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_is_one_networks_is_no_others() {
        let trunk = |text: &str| of(Share::Trunk(ranges(text).unwrap()));
        let clash = |a: &Wire, b: &Wire| a.clash(&[], b, &[]);
        let five = of(Share::Vlan(5));
        assert_eq!(clash(&five, &five), Some(Clash::Vlan(5)));
        assert_eq!(clash(&five, &trunk("1,4-6")), Some(Clash::Vlan(5)));
        assert_eq!(clash(&trunk("1-4"), &trunk("4-6")), Some(Clash::Vlan(4)));
        assert_eq!(clash(&five, &trunk("6-9")), None);
        let plain = of(Share::Untagged);
        assert_eq!(clash(&plain, &plain), Some(Clash::Untagged));
        assert_eq!(clash(&plain, &five), None);
        let elsewhere = Wire {
            uplink: "eth2".to_owned(),
            ..five.clone()
        };
        assert_eq!(clash(&five, &elsewhere), None);
        let routed = of(Share::Routed);
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let (wide, narrow) = (net("10.0.0.0/8"), net("10.9.0.0/16"));
        assert_eq!(
            routed.clash(&[narrow], &routed, &[wide]),
            Some(Clash::Subnets(narrow, wide))
        );
        assert_eq!(routed.clash(&[narrow], &routed, &[net("fd00::/8")]), None);
        assert_eq!(routed.clash(&[wide], &plain, &[wide]), None);
    }

    #[test]
    fn a_name_that_the_kernel_would_not_take_is_none() {
        for good in ["eth1", "bond0.7", "enp1s0f0np0"] {
            assert!(is_interface_name(good), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "a:1", "sixteen-letters-"] {
            assert!(!is_interface_name(bad), "{bad}");
        }
    }
}
