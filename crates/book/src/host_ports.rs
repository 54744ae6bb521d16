//! Tell which ports of the node that lead to pods exclude each other. Pure.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::BookError;
use crate::ledger::Ledger;
use crate::record::{Attachment, Decision, Lease};

/// Mapped ports that a node may have.
///
/// All rules of a table are written in one datagram, which the kernel does not take above 208 KiB.
pub const HOST_PORTS_MAX: usize = 64;

/// Mapped ports that one pod may have.
///
/// A quarter: the node's ports are for four pods at least, whatever one of them asks for.
pub const HOST_PORTS_OF_POD: usize = 16;
/// Mapped ports that pods of one network may have on a node together.
///
/// Networks are what tenants have. A tenant leaves a quarter of the node's ports to the others.
pub const HOST_PORTS_OF_NETWORK: usize = 48;

/// A protocol whose ports can be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostProtocol {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
}

impl fmt::Display for HostProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// A port of the node that leads to a port of the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostPort {
    /// Protocol of both.
    pub protocol: HostProtocol,
    /// The node's address that it is a port of; none for all of both families.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ip: Option<IpAddr>,
    /// Port of the node.
    pub host_port: u16,
    /// Port of the pod.
    pub container_port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host_ip {
            None => write!(f, "{}/{}", self.host_port, self.protocol),
            Some(ip) => {
                let at = SocketAddr::new(ip, self.host_port);
                write!(f, "{at}/{}", self.protocol)
            }
        }
    }
}

impl HostPort {
    /// True when it is a port of the node's addresses of this family.
    pub fn covers(&self, v4: bool) -> bool {
        self.host_ip.is_none_or(|ip| ip.is_ipv4() == v4)
    }

    /// The one address of the node that it is a port of; none for all addresses.
    pub fn only_at(&self) -> Option<IpAddr> {
        self.host_ip.filter(|ip| !ip.is_unspecified())
    }

    /// Lists the families that the port leads to a pod with these addresses in.
    pub fn families(&self, leases: &[Lease]) -> impl Iterator<Item = bool> {
        let has = |v4| leases.iter().any(|it| it.address.is_ipv4() == v4);
        let families = [true, false].map(|v4| (v4, self.covers(v4) && has(v4)));
        families
            .into_iter()
            .filter_map(|(v4, leads)| leads.then_some(v4))
    }

    /// True when a connection could be meant for both, by pods with these addresses.
    fn excludes(&self, leases: &[Lease], other: &Self, theirs: &[Lease]) -> bool {
        if (self.protocol, self.host_port) != (other.protocol, other.host_port) {
            return false;
        }
        let mut families = self.families(leases);
        families.any(|v4| {
            let both = other.families(theirs).any(|it| it == v4);
            both && match (self.only_at(), other.only_at()) {
                (Some(one), Some(two)) => one == two,
                _ => true,
            }
        })
    }

    /// True when both would be one port of the gateway of their network.
    ///
    /// Only the port tells the gateway to which pod a connection goes.
    fn is_one_inside(&self, leases: &[Lease], other: &Self, theirs: &[Lease]) -> bool {
        let same = (self.protocol, self.host_port) == (other.protocol, other.host_port);
        let mut families = self.families(leases);
        same && families.any(|v4| other.families(theirs).any(|it| it == v4))
    }
}

impl Ledger {
    /// Refuses more ports of the node than a pod or its network may have.
    ///
    /// Records in the store are not asked: an agent with other limits may have written these.
    ///
    /// # Errors
    /// As many are asked for, or held on the network together with these.
    pub(crate) fn limit_host_ports(
        &self,
        network: &str,
        wanted: &[HostPort],
    ) -> Result<(), BookError> {
        if wanted.len() > HOST_PORTS_OF_POD {
            return Err(BookError::HostPortsOfPod {
                wanted: wanted.len(),
                max: HOST_PORTS_OF_POD,
            });
        }
        let records = self.with_host_ports();
        let records = records.filter(|record| record.network.name == network);
        let held: usize = records.map(|record| record.host_ports.len()).sum();
        if !wanted.is_empty() && held + wanted.len() > HOST_PORTS_OF_NETWORK {
            return Err(BookError::HostPortsOfNetwork {
                network: network.to_owned(),
                wanted: wanted.len(),
                held,
                max: HOST_PORTS_OF_NETWORK,
            });
        }
        Ok(())
    }

    /// Refuses ports of the node that cannot lead to a pod with these addresses.
    ///
    /// # Errors
    /// One of these is held, is asked for twice, or leads to no address of the pod; or the node has too many.
    pub(crate) fn check_host_ports(
        &self,
        network: u32,
        wanted: &[HostPort],
        leases: &[Lease],
    ) -> Result<(), BookError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let held = || self.with_host_ports();
        let count: usize = held().map(|record| record.host_ports.len()).sum();
        if count + wanted.len() > HOST_PORTS_MAX {
            return Err(BookError::NoHostPort {
                wanted: wanted.len(),
                held: count,
                max: HOST_PORTS_MAX,
            });
        }
        for (index, port) in wanted.iter().enumerate() {
            if port.families(leases).next().is_none() {
                return Err(BookError::HostPortFamily { port: *port });
            }
            let own = wanted.iter().take(index);
            let twice = own.into_iter().find(|other| {
                port.excludes(leases, other, leases)
                    || (port.is_one_inside(leases, other, leases)
                        && port.container_port != other.container_port)
            });
            if let Some(other) = twice {
                return Err(BookError::HostPortTwice {
                    port: *port,
                    other: *other,
                });
            }
            for record in held() {
                if let Some(other) = taken(port, network, leases, record) {
                    return Err(BookError::HostPortHeld {
                        port: *port,
                        other,
                        holder: holder(record),
                    });
                }
            }
        }
        Ok(())
    }
}

/// The port of an attachment that excludes one of another pod on this network.
fn taken(port: &HostPort, network: u32, leases: &[Lease], record: &Attachment) -> Option<HostPort> {
    let mut theirs = record.host_ports.iter();
    let found = theirs.find(|other| {
        port.excludes(leases, other, &record.leases)
            || (record.network.id == network && port.is_one_inside(leases, other, &record.leases))
    });
    found.copied()
}

/// The pod, or the attachment where no pod is known.
fn holder(record: &Attachment) -> String {
    match &record.pod {
        Some(pod) => format!(
            "pod {}/{} on network {}",
            pod.namespace, pod.name, record.network.name
        ),
        None => format!(
            "attachment {} to network {}",
            record.key, record.network.name
        ),
    }
}

/// Ports as they are told by `explain`.
pub(crate) fn decisions(ports: &[HostPort]) -> impl Iterator<Item = Decision> {
    ports.iter().map(|port| {
        let value = format!("{port} to port {}", port.container_port);
        Decision::new("host port", &value, "portMappings of the pod")
    })
}

#[cfg(test)]
mod tests {
    use api::{Egress, Mode, Network};

    use super::*;
    use crate::ledger::Wanted;
    use crate::record::PodIdentity;
    use crate::samples::{host, network, wanted};

    fn port(host_ip: &str, host_port: u16) -> HostPort {
        HostPort {
            protocol: HostProtocol::Tcp,
            host_ip: (!host_ip.is_empty()).then(|| host_ip.parse().unwrap()),
            host_port,
            container_port: 80,
        }
    }

    fn dual(name: &str) -> Network {
        Network {
            egress: Egress::Masquerade,
            ..network(name, Mode::L3, &[("10.0.0.0/24", ""), ("fd10::/64", "")])
        }
    }

    fn add(
        ledger: &mut Ledger,
        network: &Network,
        container: &str,
        ports: &[HostPort],
    ) -> Result<Attachment, BookError> {
        let wanted = Wanted {
            host_ports: ports.to_vec(),
            pod: Some(PodIdentity {
                namespace: "shop".to_owned(),
                name: container.to_owned(),
                uid: None,
            }),
            ..wanted(container)
        };
        let host = host(&wanted, 0);
        ledger.reserve(wanted, network, host)
    }

    #[test]
    fn a_port_of_the_node_has_one_holder() {
        let cases = [
            ("", "", true),
            ("", "192.0.2.1", true),
            ("192.0.2.1", "", true),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "2001:db8::1", false),
            ("0.0.0.0", "192.0.2.1", true),
            ("0.0.0.0", "2001:db8::1", false),
            ("0.0.0.0", "::", false),
            ("::", "", true),
        ];
        for (one, two, clash) in cases {
            let mut ledger = Ledger::new(16);
            add(&mut ledger, &dual("amber"), "a", &[port(one, 8080)]).unwrap();
            let second = add(&mut ledger, &dual("ochre"), "b", &[port(two, 8080)]);
            match second {
                Err(BookError::HostPortHeld { holder, .. }) => {
                    assert!(clash, "{one} and {two}");
                    assert_eq!(holder, "pod shop/a on network amber");
                    assert_eq!(ledger.len(), 1, "nothing is booked");
                }
                other => assert!(other.is_ok() && !clash, "{one} and {two}: {other:?}"),
            }
        }
    }

    #[test]
    fn protocols_and_numbers_are_different_ports() {
        let mut ledger = Ledger::new(16);
        add(&mut ledger, &dual("amber"), "a", &[port("", 8080)]).unwrap();
        let udp = HostPort {
            protocol: HostProtocol::Udp,
            ..port("", 8080)
        };
        add(&mut ledger, &dual("amber"), "b", &[udp, port("", 8081)]).unwrap();
    }

    #[test]
    fn pods_of_different_families_share_a_port_of_all_addresses() {
        let mut ledger = Ledger::new(16);
        let four = network("four", Mode::L3, &[("10.0.0.0/24", "")]);
        let six = network("six", Mode::L3, &[("fd10::/64", "")]);
        add(&mut ledger, &four, "a", &[port("", 8080)]).unwrap();
        add(&mut ledger, &six, "b", &[port("", 8080)]).unwrap();
        let third = add(&mut ledger, &six, "c", &[port("", 8080)]);
        assert!(matches!(third, Err(BookError::HostPortHeld { .. })));
    }

    #[test]
    fn on_one_network_addresses_of_the_node_do_not_tell_pods_apart() {
        let mut ledger = Ledger::new(16);
        add(&mut ledger, &dual("amber"), "a", &[port("192.0.2.1", 80)]).unwrap();
        let second = add(&mut ledger, &dual("amber"), "b", &[port("192.0.2.2", 80)]);
        assert!(matches!(second, Err(BookError::HostPortHeld { .. })));
        // Of one pod they lead to the same port.
        let both = [port("192.0.2.1", 81), port("192.0.2.2", 81)];
        add(&mut ledger, &dual("amber"), "c", &both).unwrap();
        let other = HostPort {
            container_port: 90,
            ..port("192.0.2.2", 82)
        };
        let differ = add(
            &mut ledger,
            &dual("amber"),
            "d",
            &[port("192.0.2.1", 82), other],
        );
        assert!(matches!(differ, Err(BookError::HostPortTwice { .. })));
    }

    #[test]
    fn a_port_leads_to_an_address_that_the_pod_has() {
        let mut ledger = Ledger::new(16);
        let four = network("four", Mode::L3, &[("10.0.0.0/24", "")]);
        let refused = add(&mut ledger, &four, "a", &[port("2001:db8::1", 8080)]);
        assert!(matches!(refused, Err(BookError::HostPortFamily { .. })));
        assert!(ledger.is_empty());
    }

    #[test]
    fn a_port_is_free_when_its_holder_is_gone_and_held_again_from_the_store() {
        let mut ledger = Ledger::new(16);
        let record = add(&mut ledger, &dual("amber"), "a", &[port("", 8080)]).unwrap();
        let stored = serde_json::to_string(&record).unwrap();
        ledger.release(&record.key);
        add(&mut ledger, &dual("amber"), "b", &[port("", 8080)]).unwrap();
        let mut other = Ledger::new(16);
        other.restore(serde_json::from_str(&stored).unwrap());
        let second = add(&mut other, &dual("amber"), "b", &[port("", 8080)]);
        assert!(matches!(second, Err(BookError::HostPortHeld { .. })));
        assert!(other.admits(&record).is_err(), "a copy of a record");
    }

    /// Ports from `first` on.
    fn ports(first: u16, count: usize) -> Vec<HostPort> {
        let numbers = (first..).take(count);
        numbers.map(|it| port("", it)).collect()
    }

    #[test]
    fn a_node_has_so_many_mapped_ports_and_no_more() {
        let mut ledger = Ledger::new(16);
        let mut first = 1000;
        for index in 0..HOST_PORTS_MAX / HOST_PORTS_OF_POD {
            let network = dual(&format!("net{}", index % 2));
            let all = ports(first, HOST_PORTS_OF_POD);
            add(&mut ledger, &network, &format!("c{index}"), &all).unwrap();
            first += 16;
        }
        let more = add(&mut ledger, &dual("net0"), "b", &[port("", first)]);
        assert!(matches!(more, Err(BookError::NoHostPort { .. })));
    }

    #[test]
    fn one_pod_does_not_take_the_ports_of_a_node() {
        let mut ledger = Ledger::new(16);
        let all = ports(1000, HOST_PORTS_OF_POD + 1);
        let refused = add(&mut ledger, &dual("amber"), "a", &all);
        assert!(matches!(refused, Err(BookError::HostPortsOfPod { .. })));
        assert!(ledger.is_empty(), "nothing is booked");
        add(&mut ledger, &dual("amber"), "a", &all[1..]).unwrap();
    }

    #[test]
    fn one_network_leaves_ports_of_a_node_to_others() {
        let mut ledger = Ledger::new(16);
        for (container, first) in [("a", 1000), ("b", 1100), ("c", 1200)] {
            let all = ports(first, HOST_PORTS_OF_POD);
            add(&mut ledger, &dual("amber"), container, &all).unwrap();
        }
        let one = [port("", 2000)];
        match add(&mut ledger, &dual("amber"), "d", &one) {
            Err(BookError::HostPortsOfNetwork { held, network, .. }) => {
                assert_eq!((held, network.as_str()), (HOST_PORTS_OF_NETWORK, "amber"));
            }
            other => unreachable!("{other:?}"),
        }
        // Pods without ports are not counted, and other networks have what is left.
        add(&mut ledger, &dual("amber"), "e", &[]).unwrap();
        let rest = ports(3000, HOST_PORTS_OF_POD);
        add(&mut ledger, &dual("ochre"), "f", &rest).unwrap();
        proof::of!("ATT-18d");
    }

    #[test]
    fn a_record_above_the_limit_of_a_pod_stays_after_a_restart() {
        let mut ledger = Ledger::new(16);
        let mut record = add(&mut ledger, &dual("amber"), "a", &[]).unwrap();
        record.host_ports = ports(1000, HOST_PORTS_OF_POD + 1);
        let stored = Ledger::new(16);
        stored.admits(&record).unwrap();
    }
}
