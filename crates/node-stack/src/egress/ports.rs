//! Ports of the node that lead to pods by the gateways of their networks.
//!
//! The node's table leads a port to the gateway's transit address, and the gateway's table leads it to the
//! pod. Both are written from the book, whole, apart from the tables of guards: counters and lists of
//! connections in those stay when a mapping comes or goes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{MutexGuard, PoisonError};

use book::host_ports::{HostPort, HostProtocol};
use book::ledger::Ledger;
use book::record::{NetworkFacts, State};
use netdev::{
    Bound, Gate, Guard, LinkName, Netns, Packets, PortForward, PortProtocol, Ports, Ruleset,
    TableWrite,
};

use super::plan::{self, LINK_PREFIX, UPLINK};
use super::{Egress, EgressError, order};

/// The table of mapped ports, in the node's namespace and in gateways.
pub const PORTS: &str = "podnet-ports";
/// Sources of the node's own connections to mapped ports.
///
/// They are the dummy address of IPv4, which no host has (RFC 7600), and one of the transit prefix that is at no
/// place.
///
/// They are no address of any link, and none that the datapath keeps on a network. Answers to these are routed as
/// those to the outside, so that the program at the gateway's link, which lets nothing pass to the node's own
/// addresses, needs no exception.
const NODE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
const NODE_V6: Ipv6Addr = Ipv6Addr::new(0xfd70, 0x6f64, 0x6e65, 0x7400, 0xffff, 0, 0, 0);

/// A port of the node and the address of the pod that it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mapping {
    port: HostPort,
    pod: IpAddr,
    /// Of the attachment, see [`mark_of`].
    mark: u32,
}

/// Mapped ports by the number of the network.
pub(super) type Mappings = BTreeMap<u32, BTreeSet<Mapping>>;

/// Tables of mapped ports as they were written last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Written {
    mappings: Mappings,
    /// Places of the gateways that the node's table leads to, by network.
    places: BTreeMap<u32, u16>,
    /// Networks whose gateways' tables could not be written.
    ///
    /// It is not known what these say.
    unknown: BTreeSet<u32>,
    /// The node has the table, which stays with its guards when the last port goes.
    has_table: bool,
}

/// Outcome of a write of all tables of mapped ports.
#[derive(Debug)]
pub struct PortsWritten {
    /// Outcome for the node's table.
    pub node: TableWrite,
    /// Gateways whose tables could not be written, by network.
    ///
    /// No port of the node leads there.
    pub failed: BTreeMap<u32, EgressError>,
}

impl PortsWritten {
    /// A write without failures.
    pub const fn all(node: TableWrite) -> Self {
        Self {
            node,
            failed: BTreeMap::new(),
        }
    }
}

/// Mark of connections of an attachment's ports to one of its addresses.
///
/// No later attachment has it: containers have names of many random bits. Nor has the same one that is made once more
/// with another address, while another pod has the one before. So connections to a pod that is gone are
/// known, whatever address and ports a later pod has. FNV-1a, which needs no secret: a pod's author does not choose
/// the name.
fn mark_of(key: &impl std::fmt::Display, pod: IpAddr) -> u32 {
    let name = format!("{key} {pod}");
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let [a, b, c, d, e, f, g, h] = hash.to_be_bytes();
    let folded = u32::from_be_bytes([a ^ e, b ^ f, c ^ g, d ^ h]);
    // Zero is the mark of connections without one.
    folded.max(1)
}

/// Mapped ports of all attachments that stay.
pub(super) fn mappings(ledger: &Ledger) -> Mappings {
    let mut all = Mappings::new();
    for record in ledger.with_host_ports() {
        // The port of a pod that is being removed leads nowhere.
        if !record.network.egress || record.state == State::Deleting {
            continue;
        }
        for port in &record.host_ports {
            let families: Vec<bool> = port.families(&record.leases).collect();
            for v4 in families {
                let mut leases = record.leases.iter().map(|lease| lease.address);
                if let Some(pod) = leases.find(|ip| ip.is_ipv4() == v4) {
                    let mapping = Mapping {
                        port: *port,
                        pod,
                        mark: mark_of(&record.key, pod),
                    };
                    all.entry(record.network.id).or_default().insert(mapping);
                }
            }
        }
    }
    all
}

const fn protocol(protocol: HostProtocol) -> PortProtocol {
    match protocol {
        HostProtocol::Tcp => PortProtocol::Tcp,
        HostProtocol::Udp => PortProtocol::Udp,
    }
}

/// The node's table: ports of its own addresses lead to gateways at these places.
///
/// What is translated to a place without a gateway ends there.
fn of_node(written: &Written) -> Ruleset {
    let mut forwards = Vec::new();
    for (network, mappings) in &written.mappings {
        let Some(place) = written.places.get(network) else {
            continue;
        };
        let gateway = plan::of_gateway(*place);
        forwards.extend(mappings.iter().map(|mapping| PortForward {
            protocol: protocol(mapping.port.protocol),
            at: mapping.port.only_at(),
            port: mapping.port.host_port,
            to: match mapping.pod {
                IpAddr::V4(_) => gateway.v4.into(),
                IpAddr::V6(_) => gateway.v6.into(),
            },
            to_port: None,
            mark: None,
        }));
    }
    let gate = Gate::Own {
        links: LinkName::Starts(LINK_PREFIX.to_owned()),
        v4: NODE_V4,
        v6: NODE_V6,
    };
    Ruleset {
        table: PORTS,
        masquerade: None,
        ports: (!forwards.is_empty()).then_some(Ports { gate, forwards }),
        limits: Vec::new(),
        guards: plan::to_no_gateway(),
        early: false,
    }
}

/// The table of a gateway: ports lead to pods.
///
/// A connection that a mapping has let in has the mark of its attachment, and ends with that: its packets meet the
/// guards, too, in both directions. So none reaches a later pod with the same address and port, and that one cannot
/// answer it. ICMP errors about a connection have its mark; those about no connection have none.
fn of_gateway(mappings: &BTreeSet<Mapping>) -> Ruleset {
    let forward = |mapping: &Mapping| PortForward {
        protocol: protocol(mapping.port.protocol),
        at: None,
        port: mapping.port.host_port,
        to: mapping.pod,
        to_port: Some(mapping.port.container_port),
        mark: Some(mapping.mark),
    };
    let forwards: BTreeSet<PortForward> = mappings.iter().map(forward).collect();
    let marks: BTreeSet<u32> = mappings.iter().map(|it| it.mark).collect();
    let pass = |mark| Guard::pass(Bound::Elsewhere, &[Packets::Marked(mark)]);
    let mut guards: Vec<Guard> = marks.into_iter().map(pass).collect();
    guards.push(Guard::stop(Bound::Elsewhere, &[Packets::ToTranslated]));
    Ruleset {
        table: PORTS,
        masquerade: None,
        ports: Some(Ports {
            gate: Gate::Link(LinkName::Is(UPLINK.to_owned())),
            forwards: forwards.into_iter().collect(),
        }),
        limits: Vec::new(),
        guards,
        early: false,
    }
}

impl Egress {
    /// Writes the tables of mapped ports as the book has the mappings.
    ///
    /// One that says it already is left as it is. That of the node stays when its last port goes, for connections that
    /// go on; that of a gateway stays as long as the gateway, and ends connections of ports that are gone. A gateway that cannot be
    /// written keeps no other from its ports, and has none itself: it may lead them to pods that are gone.
    pub(super) async fn write_mapped(&self) -> Result<PortsWritten, EgressError> {
        let mut wanted = self.planned_ports();
        // Until all is written, it is not known what the tables say.
        let before = self.ports().take();
        let is_clear = match &before {
            Some(before) => !before.has_table && before.unknown.is_empty(),
            // Where no guard is, no agent before this one has left a port; nf_tables is not touched.
            None => !self.is_fenced(),
        };
        if wanted.mappings.is_empty() && is_clear {
            *self.ports() = Some(wanted);
            return Ok(PortsWritten::all(TableWrite::Unneeded));
        }
        let had = |network: &u32| {
            before.as_ref().is_none_or(|before| {
                before.mappings.contains_key(network) || before.unknown.contains(network)
            })
        };
        let mut networks: BTreeSet<u32> = self.places().into_keys().collect();
        // A gateway that an agent before this one has left, and that could not be opened yet, may have ports.
        let left = self.planned_ways_out().into_keys();
        networks.extend(left.filter(|it| self.directory.join(plan::file(*it)).exists()));
        networks.retain(|it| had(it) || wanted.mappings.contains_key(it));
        let gateways = networks.into_iter().map(|network| {
            let path = self.directory.join(plan::file(network));
            (network, path, gateway_rules(&wanted, network))
        });
        let gateways: Vec<_> = gateways.collect();
        let inside = move |_: &mut netdev::Connection| -> Result<_, netdev::Error> {
            let gateways = gateways.into_iter();
            let failed = gateways.filter_map(|(network, path, rules)| {
                let source = write_gateway(&path, &rules).err()?;
                Some((network, EgressError::Refused { network, source }))
            });
            Ok(failed.collect::<BTreeMap<u32, EgressError>>())
        };
        // Before the node's table leads there, and before it says that nothing leads there any more.
        let failed = self.host.netlink.with(inside).await?;
        wanted.leave_out(failed.keys().copied());
        let is_empty = wanted.mappings.is_empty();
        let had_table = before.is_some_and(|before| before.has_table);
        let node = of_node(&wanted);
        let here = move |netfilter: &mut netdev::Netfilter| {
            // An agent before this one may have left one. Where there never was a port, there is none.
            if is_empty && !had_table && !netfilter.has(PORTS)? {
                return Ok(None);
            }
            netfilter.ensure(&node).map(Some)
        };
        let written = self.host.netlink.with_netfilter(here).await?;
        wanted.has_table = written.is_some();
        let written = written.unwrap_or(TableWrite::Unneeded);
        if written.is_change() && !is_empty {
            tracing::info!("ports of the node lead to pods, by the nf_tables table inet {PORTS}");
        }
        *self.ports() = Some(wanted);
        Ok(PortsWritten {
            node: written,
            failed,
        })
    }

    /// True when the tables say the mappings of a network as the book has them.
    pub(super) fn has_ports_of(&self, network: u32) -> bool {
        let wanted = self.planned_ports();
        let written = self.ports();
        let of = |tables: &Written| {
            let mappings = tables.mappings.get(&network).cloned();
            (mappings, tables.places.get(&network).copied())
        };
        let is_written = |it: &Written| !it.unknown.contains(&network) && of(it) == of(&wanted);
        written.as_ref().is_some_and(is_written)
    }

    /// Takes the ports of an attachment that is being removed out of the tables.
    ///
    /// Its addresses are still held, so that no other pod has these while a port leads there. A gateway that cannot be
    /// written is made again once.
    ///
    /// # Errors
    /// When the table of the node, or that of the network's gateway, may lead there still.
    pub async fn withdraw(&self, facts: &NetworkFacts) -> Result<(), EgressError> {
        if !facts.egress || self.has_ports_of(facts.id) {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        order::withdraw(self, facts.id).await
    }

    /// True when the node has the table of ports.
    pub fn has_ports(&self) -> bool {
        let ports = self.ports();
        ports.as_ref().is_some_and(|it| it.has_table)
    }

    /// Restores the node's table of mapped ports, and those of gateways.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn restore_ports(&self) -> Result<TableWrite, EgressError> {
        let _turn = self.turn.lock().await;
        if self.planned_ports().mappings.is_empty() && !self.has_ports() {
            return Ok(TableWrite::Unneeded);
        }
        let written = self.write_mapped().await?;
        order::first_of(written.failed).map(|()| written.node)
    }

    fn ports(&self) -> MutexGuard<'_, Option<Written>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Places of the gateways that are open, by network.
    fn places(&self) -> BTreeMap<u32, u16> {
        let open = self.opened();
        open.iter()
            .map(|(network, opened)| (*network, opened.place))
            .collect()
    }

    /// Mapped ports as the tables shall say, of ways out that are open.
    pub(super) fn planned_ports(&self) -> Written {
        let mut mappings = mappings(&self.book.ledger());
        let places = self.places();
        mappings.retain(|network, _| places.contains_key(network));
        let places = places.into_iter();
        let places = places.filter(|(network, _)| mappings.contains_key(network));
        Written {
            places: places.collect(),
            mappings,
            ..Written::default()
        }
    }
}

impl Written {
    /// Leaves out gateways of which it is not known what they say.
    fn leave_out(&mut self, networks: impl IntoIterator<Item = u32>) {
        self.unknown.extend(networks);
        let unknown = &self.unknown;
        self.mappings
            .retain(|network, _| !unknown.contains(network));
        self.places.retain(|network, _| !unknown.contains(network));
    }
}

/// Writes the table of one gateway, unless it says this already.
pub(super) fn write_gateway(
    path: &std::path::Path,
    rules: &Ruleset,
) -> Result<TableWrite, netdev::Error> {
    Netns::open(path)?.run_in(|| netdev::Netfilter::open()?.ensure(rules))?
}

/// The table of a network's gateway.
///
/// Without ports it ends the connections of those that there were.
pub(super) fn gateway_rules(written: &Written, network: u32) -> Ruleset {
    let none = BTreeSet::new();
    of_gateway(written.mappings.get(&network).unwrap_or(&none))
}

#[cfg(test)]
mod tests {
    use api::{Mode, Network};
    use book::samples;

    use super::*;

    /// Of interface `net1` of container `c1`, by address.
    const MARKS: [(&str, u32); 2] = [("10.0.0.1", 0x4b87_c220), ("fd10::1", 0xc38e_7095)];

    fn mark(container: &str, interface: &str, pod: &str) -> u32 {
        mark_of(&samples::key(container, interface), pod.parse().unwrap())
    }

    fn ledger(ports: &[HostPort]) -> Ledger {
        let network = Network {
            egress: api::Egress::Masquerade,
            id: api::NetworkId::new(7),
            ..samples::network("green", Mode::L3, &[("10.0.0.0/24", ""), ("fd10::/64", "")])
        };
        let mut ledger = Ledger::new(16);
        let wanted = book::ledger::Wanted {
            host_ports: ports.to_vec(),
            ..samples::wanted("c1")
        };
        let host = samples::host(&wanted, 0);
        ledger.reserve(wanted, &network, host).unwrap();
        ledger
    }

    fn port(host_ip: Option<&str>, host_port: u16) -> HostPort {
        HostPort {
            protocol: HostProtocol::Udp,
            host_ip: host_ip.map(|ip| ip.parse().unwrap()),
            host_port,
            container_port: 53,
        }
    }

    fn written(ports: &[HostPort]) -> Written {
        Written {
            mappings: mappings(&ledger(ports)),
            places: BTreeMap::from([(7, 3)]),
            ..Written::default()
        }
    }

    fn said(rules: &Ruleset) -> Vec<String> {
        let forwards = rules.ports.iter().flat_map(|ports| &ports.forwards);
        forwards.map(ToString::to_string).collect()
    }

    #[test]
    fn a_port_leads_to_the_gateway_and_there_to_the_pod_in_each_family() {
        let written = written(&[port(None, 8053)]);
        let expected = [
            "UDP port 8053 to 169.254.64.7",
            "UDP port 8053 to fd70:6f64:6e65:7400::7",
        ];
        assert_eq!(said(&of_node(&written)), expected);
        let inside = gateway_rules(&written, 7);
        let [v4, v6] = MARKS.map(|(_, mark)| mark);
        let expected = [
            format!("UDP port 8053 to 10.0.0.1:53 marked {v4:08x}"),
            format!("UDP port 8053 to [fd10::1]:53 marked {v6:08x}"),
        ];
        assert_eq!(said(&inside), expected);
        let guards: Vec<String> = inside.guards.iter().map(ToString::to_string).collect();
        let passed = BTreeSet::from([v4, v6]).into_iter();
        let mut expected: Vec<String> = passed.map(|it| format!("pass marked {it:08x}")).collect();
        expected.push("stop to a translated address".to_owned());
        assert_eq!(guards, expected);
    }

    #[test]
    fn each_attachment_has_a_mark_of_its_own_that_no_restart_changes() {
        let marks: BTreeSet<u32> = (0..1000)
            .map(|it| mark(&format!("c{it}"), "net1", "10.0.0.1"))
            .collect();
        assert_eq!(marks.len(), 1000);
        assert!(!marks.contains(&0));
        let of = |interface, pod| mark("c1", interface, pod);
        assert_ne!(of("net1", "10.0.0.1"), of("net2", "10.0.0.1"));
        assert_ne!(
            of("net1", "10.0.0.1"),
            of("net1", "10.0.0.2"),
            "made once more, with another address"
        );
        for (pod, mark) in MARKS {
            let is = of("net1", pod);
            assert_eq!(
                is, mark,
                "an agent that restarts marks as the one before it: {is:08x}"
            );
        }
    }

    #[test]
    fn a_gateway_of_which_nothing_is_known_is_led_to_by_no_port() {
        let mut tables = written(&[port(None, 8053)]);
        tables.leave_out([8]);
        assert_eq!(said(&of_node(&tables)).len(), 2, "another network");
        tables.leave_out([7]);
        assert_eq!(said(&of_node(&tables)), [""; 0]);
        assert_eq!(tables.unknown, BTreeSet::from([7, 8]));
    }

    #[test]
    fn what_is_translated_to_no_gateway_ends_at_the_node_with_ports_and_without() {
        for tables in [written(&[port(None, 8053)]), Written::default()] {
            let guards = of_node(&tables).guards;
            let said: Vec<String> = guards.iter().map(ToString::to_string).collect();
            let expected = [
                "pass out by podnet-e*",
                "stop to 169.254.64.0/18",
                "stop to fd70:6f64:6e65:7400::/64",
                "stop to 169.254.128.0/19",
                "stop to fd70:6f64:6e65:7401::/64",
            ];
            assert_eq!(said, expected);
        }
        assert_eq!(of_node(&Written::default()).ports, None);
    }

    #[test]
    fn a_port_of_one_address_is_of_its_family_and_one_rule_of_the_gateway() {
        let both = [port(Some("192.0.2.1"), 53), port(Some("192.0.2.2"), 53)];
        let written = written(&both);
        let expected = [
            "UDP port 53 of 192.0.2.1 to 169.254.64.7",
            "UDP port 53 of 192.0.2.2 to 169.254.64.7",
        ];
        assert_eq!(said(&of_node(&written)), expected);
        let inside = gateway_rules(&written, 7);
        let mark = MARKS[0].1;
        let expected = format!("UDP port 53 to 10.0.0.1:53 marked {mark:08x}");
        assert_eq!(said(&inside), [expected]);
    }

    #[test]
    fn a_pod_that_is_being_removed_has_no_port() {
        let mut ledger = ledger(&[port(None, 8053)]);
        assert_eq!(mappings(&ledger).len(), 1);
        let key = samples::key("c1", "net1");
        ledger.set_state(&key, State::Deleting, true);
        assert!(mappings(&ledger).is_empty());
    }

    #[test]
    fn the_nodes_own_source_is_in_the_transit_prefixes_and_at_no_place() {
        for place in 0..plan::PLACES {
            for side in [plan::of_node(place), plan::of_gateway(place)] {
                assert_ne!(side.v6, NODE_V6);
                assert!(!NODE_V4.is_link_local() && side.v4 != NODE_V4);
            }
        }
    }
}
