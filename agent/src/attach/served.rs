//! Refuse host ports that programs of the node serve.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};

use book::host_ports::{HostPort, HostProtocol};
use netdev::Connection;
use rustix::io::Errno;

use crate::error::AgentError;

/// Link with the addresses of Services, by kube-proxy of mode ipvs.
///
/// They are addresses of the node there, without a socket. IPVS looks at packets behind the translation of
/// destinations, so a pod with such a port would get what is for cluster DNS or the API server.
const SERVICES: &str = "kube-ipvs0";

/// Refuses ports of the addresses of Services.
///
/// # Errors
/// A port is of one of these, or of all addresses of the node; or the node does not tell its addresses.
pub(super) fn refuse_services(ports: &[HostPort]) -> Result<(), AgentError> {
    let Some(first) = ports.first() else {
        return Ok(());
    };
    let look = |source: netdev::Error| AgentError::HostPortLook {
        port: *first,
        source: io::Error::other(source),
    };
    let mut connection = Connection::open().map_err(look)?;
    let Some(link) = connection.by_name(SERVICES).map_err(look)? else {
        return Ok(());
    };
    let theirs = connection.addresses(link.ifindex).map_err(look)?;
    let is_theirs = |port: &&HostPort| {
        let at = port.only_at();
        at.is_none_or(|ip| theirs.iter().any(|it| it.ip == ip))
    };
    ports.iter().find(is_theirs).map_or(Ok(()), |port| {
        Err(AgentError::HostPortOfServices {
            port: *port,
            link: SERVICES,
        })
    })
}

/// Refuses ports at which a program of the node listens.
///
/// A pod must not take the node's own services away from their users. Nothing is reserved yet.
///
/// # Errors
/// A port is in use, or is of no address of the node, or the node does not tell.
pub(super) fn refuse_served(ports: &[HostPort]) -> Result<(), AgentError> {
    ports.iter().try_for_each(|port| {
        let any = [
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        ];
        let every = any.into_iter().filter(|ip| port.covers(ip.is_ipv4()));
        let addresses: Vec<IpAddr> = match port.only_at() {
            Some(ip) => vec![ip],
            None => every.collect(),
        };
        let mut addresses = addresses.into_iter();
        addresses.try_for_each(|ip| outcome(port, ip, try_to_listen(port, ip)))
    })
}

fn try_to_listen(port: &HostPort, ip: IpAddr) -> io::Result<()> {
    let at = SocketAddr::new(ip, port.host_port);
    match port.protocol {
        HostProtocol::Tcp => TcpListener::bind(at).map(drop),
        HostProtocol::Udp => UdpSocket::bind(at).map(drop),
    }
}

/// Meaning of an attempt to listen at a port; unknown errors refuse the port.
fn outcome(port: &HostPort, ip: IpAddr, bound: io::Result<()>) -> Result<(), AgentError> {
    let port = *port;
    match bound.map_err(|source| (source.kind(), Errno::from_io_error(&source), source)) {
        Ok(()) => Ok(()),
        // A node without IPv6 has no such sockets, and no program with one.
        Err((_, Some(Errno::AFNOSUPPORT), _)) if ip == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ok(()),
        Err((ErrorKind::AddrInUse, ..)) => Err(AgentError::HostPortServed { port }),
        Err((ErrorKind::AddrNotAvailable, ..) | (_, Some(Errno::AFNOSUPPORT), _)) => {
            Err(AgentError::HostPortAddress { port })
        }
        Err((.., source)) => Err(AgentError::HostPortLook { port, source }),
    }
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

    #[test]
    fn an_address_that_the_node_does_not_have_is_refused_in_both_families() {
        for ip in ["198.51.100.77", "2001:db8::77"] {
            let elsewhere = HostPort {
                host_ip: Some(ip.parse().unwrap()),
                ..port(HostProtocol::Tcp, 4567)
            };
            let refused = refuse_served(&[elsewhere]);
            assert!(
                matches!(refused, Err(AgentError::HostPortAddress { .. })),
                "{ip}: {refused:?}"
            );
        }
    }

    #[test]
    fn a_port_of_which_the_node_tells_nothing_is_refused() {
        let [v4, v6] = ["0.0.0.0", "::"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let asked = port(HostProtocol::Tcp, 80);
        for errno in [Errno::ACCESS, Errno::MFILE, Errno::NOBUFS, Errno::INVAL] {
            for ip in [v4, v6] {
                let refused = outcome(&asked, ip, Err(errno.into())).unwrap_err();
                let said = refused.to_string();
                assert!(said.contains("80/tcp"), "{said}");
                assert!(matches!(refused, AgentError::HostPortLook { .. }), "{said}");
            }
        }
        // A kernel without IPv6 has no program with a socket of it.
        outcome(&asked, v6, Err(Errno::AFNOSUPPORT.into())).unwrap();
        let one = "2001:db8::1".parse().unwrap();
        outcome(&asked, one, Err(Errno::AFNOSUPPORT.into())).unwrap_err();
        proof::of!("ATT-18d");
    }
}
