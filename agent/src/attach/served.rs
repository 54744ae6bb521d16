//! Refuse host ports that programs of the node serve.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};

use book::host_ports::{HostPort, HostProtocol};

use crate::error::AgentError;

/// Refuses ports at which a program of the node listens.
///
/// A pod must not take the node's own services away from their users.
///
/// # Errors
/// A port is in use, or is of no address of the node.
pub(super) fn refuse_served(ports: &[HostPort]) -> Result<(), AgentError> {
    for port in ports {
        let any = [
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        ];
        let every = any.into_iter().filter(|ip| port.covers(ip.is_ipv4()));
        let addresses: Vec<IpAddr> = match port.only_at() {
            Some(ip) => vec![ip],
            None => every.collect(),
        };
        for ip in addresses {
            let at = SocketAddr::new(ip, port.host_port);
            let bound = match port.protocol {
                HostProtocol::Tcp => TcpListener::bind(at).map(drop),
                HostProtocol::Udp => UdpSocket::bind(at).map(drop),
            };
            match bound {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    return Err(AgentError::HostPortServed { port: *port });
                }
                Err(error) if error.kind() == ErrorKind::AddrNotAvailable && ip.is_ipv4() => {
                    return Err(AgentError::HostPortAddress { port: *port });
                }
                // A node without IPv6 has no such sockets, and no program with one.
                Err(_) | Ok(()) => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(protocol: HostProtocol, host_port: u16) -> HostPort {
        HostPort {
            protocol,
            host_ip: None,
            host_port,
            container_port: 80,
        }
    }

    #[test]
    fn a_port_at_which_a_program_of_the_node_listens_is_refused() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let number = tcp.local_addr().unwrap().port();
        let refused = refuse_served(&[port(HostProtocol::Tcp, number)]);
        assert!(matches!(refused, Err(AgentError::HostPortServed { .. })));
        drop(tcp);
        refuse_served(&[port(HostProtocol::Tcp, number)]).unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let number = udp.local_addr().unwrap().port();
        let refused = refuse_served(&[port(HostProtocol::Udp, number)]);
        assert!(matches!(refused, Err(AgentError::HostPortServed { .. })));
        let elsewhere = HostPort {
            host_ip: Some("198.51.100.77".parse().unwrap()),
            ..port(HostProtocol::Udp, 4567)
        };
        let refused = refuse_served(&[elsewhere]);
        assert!(matches!(refused, Err(AgentError::HostPortAddress { .. })));
    }
}
