//! Read the host ports of a request (CNI CONVENTIONS.md; NPWG 4.1.2.1.7).

use std::net::IpAddr;

use api::selection::Protocol;
use api::{Egress, Network};
use book::host_ports::{HostPort, HostProtocol};

use crate::error::AgentError;

/// Host ports that the runtime asks for.
///
/// # Errors
/// Nothing maps them on this network, or not these.
pub(super) fn of_runtime(
    network: &Network,
    mappings: &[cni_spec::PortMapping],
) -> Result<Vec<HostPort>, AgentError> {
    if let Some(mapping) = mappings.first().filter(|_| !has_ports(network)) {
        return Err(AgentError::HostPortOfRuntime {
            host: mapping.host_port,
            container: mapping.container_port,
        });
    }
    let checked = mappings.iter().map(|mapping| {
        let ports = (mapping.host_port, mapping.container_port);
        checked(ports, &mapping.protocol, mapping.host_ip)
    });
    checked.collect()
}

/// True when the network has a gateway on the node, by which ports lead to pods.
fn has_ports(network: &Network) -> bool {
    network.egress == Egress::Masquerade
}

fn checked(
    (host_port, container_port): (u16, u16),
    protocol: &str,
    host_ip: Option<IpAddr>,
) -> Result<HostPort, AgentError> {
    let refused = |reason| AgentError::HostPortKind {
        host: host_port,
        container: container_port,
        reason,
    };
    let protocol = match protocol.parse() {
        Ok(Protocol::Tcp) => HostProtocol::Tcp,
        Ok(Protocol::Udp) => HostProtocol::Udp,
        Ok(Protocol::Sctp) => {
            return Err(refused("protocol sctp: podnet maps ports of tcp and udp"));
        }
        Err(_) => {
            return Err(refused(
                "its protocol is not tcp or udp: write one of these",
            ));
        }
    };
    if host_port == 0 || container_port == 0 {
        return Err(refused("port 0: write ports from 1 to 65535"));
    }
    let host_ip = host_ip.map(|ip| ip.to_canonical());
    match host_ip {
        Some(ip) if ip.is_loopback() => Err(refused(
            "hostIP is a loopback address, which podnet does not map: write another address of the node, or none",
        )),
        Some(ip) if ip.is_multicast() => Err(refused(
            "hostIP is the address of a group: write an address of the node",
        )),
        // Each link has one of its own of these, and an answer would not find its link.
        Some(ip) if is_link_local(ip) => Err(refused(
            "hostIP is a link-local address, which podnet does not map: write another address of the node, or none",
        )),
        host_ip => Ok(HostPort {
            protocol,
            host_ip,
            host_port,
            container_port,
        }),
    }
}

/// True for addresses of RFC 3927 and of RFC 4291 section 2.5.6.
const fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_that_podnet_cannot_make_are_refused_by_their_reason() {
        let cases: [(u16, &str, &str, &str); 9] = [
            (8080, "sctp", "", "sctp"),
            (8080, "gre", "", "protocol"),
            (0, "tcp", "", "port 0"),
            (8080, "tcp", "127.0.0.1", "loopback"),
            (8080, "udp", "::ffff:127.0.0.1", "loopback"),
            (8080, "tcp", "169.254.64.1", "hostIP is a link-local"),
            (8080, "tcp", "::ffff:169.254.1.1", "hostIP is a link-local"),
            (8080, "udp", "fe80::1", "hostIP is a link-local"),
            (8080, "udp", "febf::1", "hostIP is a link-local"),
        ];
        for (host, protocol, ip, reason) in cases {
            let ip = (!ip.is_empty()).then(|| ip.parse().unwrap());
            let refused = checked((host, 80), protocol, ip).unwrap_err().to_string();
            assert!(refused.contains(reason), "{refused}");
        }
        let mapped = checked((8080, 80), "udp", Some("::ffff:192.0.2.1".parse().unwrap()));
        let expected: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(mapped.unwrap().host_ip, Some(expected));
    }

    #[test]
    fn ports_of_a_runtime_need_a_gateway() {
        let plain = book::samples::network("blue", api::Mode::L3, &[("10.0.0.0/24", "")]);
        let asked = cni_spec::PortMapping {
            host_port: 8080,
            container_port: 80,
            protocol: "udp".to_owned(),
            host_ip: None,
        };
        let asked = std::slice::from_ref(&asked);
        let refused = of_runtime(&plain, asked);
        assert!(matches!(refused, Err(AgentError::HostPortOfRuntime { .. })));
        let gateway = Network {
            egress: Egress::Masquerade,
            ..plain
        };
        let mapped = of_runtime(&gateway, asked).unwrap();
        let expected = HostPort {
            protocol: HostProtocol::Udp,
            host_ip: None,
            host_port: 8080,
            container_port: 80,
        };
        assert_eq!(mapped, [expected]);
    }
}
