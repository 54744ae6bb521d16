//! How the node's own stack treats links of podnet.

use std::net::{IpAddr, Ipv4Addr};

use netdev::{Address, Connection, Family, Sysctl};

/// Number of podnet among the makers of routes (`rtm_protocol`).
///
/// Routes with it are ours to remove.
pub const PROTOCOL: u8 = 112;

/// Links that take packets from the dispatcher on behalf of an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ear {
    /// The host end.
    Host,
    /// The far end of its shaper. The routes back go out of the host end.
    Far,
}

/// Address without an owner: the dummy one of RFC 7600 section 4.8.
///
/// Even where reverse paths are checked loosely, the kernel drops packets that come in by a link without an
/// address.
const NOBODY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// Lists the settings with which the node's stack forwards packets of a link.
///
/// The link sends nothing of its own accord: it has no address that others could use, and solicits no
/// neighbour.
fn settings(ear: Ear, v6: bool) -> Vec<Sysctl> {
    let mut settings = vec![Sysctl::v4("forwarding", "1")];
    if ear == Ear::Far {
        // Loose: strict, the kernel drops what it would not answer by the same link.
        settings.push(Sysctl::v4("rp_filter", "2"));
    }
    settings.push(Sysctl::v6("accept_ra", "0"));
    settings.push(Sysctl::v6("disable_ipv6", if v6 { "0" } else { "1" }));
    settings
}

/// Prepares a link for the node's stack.
///
/// The namespace is that of the connection and of the calling thread.
///
/// # Errors
/// When the kernel refuses.
pub fn listen(
    connection: &mut Connection,
    (link, ifindex): (&str, u32),
    ear: Ear,
    v6: bool,
) -> Result<(), netdev::Error> {
    if ear == Ear::Far {
        let dummy = Address {
            host_only: true,
            ..Address::new(NOBODY.into(), 32)
        };
        let known = connection.addresses(ifindex)?;
        if !known.iter().any(|it| it.ip == IpAddr::V4(NOBODY)) {
            connection.add_address(ifindex, dummy)?;
        }
    }
    for setting in settings(ear, v6) {
        match netdev::sysctl::write(link, std::slice::from_ref(&setting)) {
            // A node without IPv6 routes none.
            Err(error) if error.is_gone() && setting.family == Family::V6 && !v6 => {}
            other => other?,
        }
    }
    Ok(())
}

/// True when a link is as [`listen`] leaves it.
///
/// # Errors
/// When the kernel does not tell, and when there is no such link.
pub fn listens(
    connection: &mut Connection,
    (link, ifindex): (&str, u32),
    ear: Ear,
    v6: bool,
) -> Result<bool, netdev::Error> {
    if ear == Ear::Far {
        let known = connection.addresses(ifindex)?;
        if !known.iter().any(|it| it.ip == IpAddr::V4(NOBODY)) {
            return Ok(false);
        }
    }
    for setting in settings(ear, v6) {
        match netdev::sysctl::read(link, setting.family, &setting.key) {
            Err(error) if error.is_gone() && setting.family == Family::V6 && !v6 => {}
            Ok(value) if value == setting.value => {}
            Ok(_) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Keeps the node's own stack from speaking IPv6 on a link.
///
/// Group membership reports are one thing it would say.
///
/// # Errors
/// When the setting cannot be written.
pub fn silence(link: &str) -> Result<(), netdev::Error> {
    match netdev::sysctl::write(link, &[Sysctl::v6("disable_ipv6", "1")]) {
        // A node without IPv6 has nothing to say.
        Err(error) if error.is_gone() => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_far_end_of_a_shaper_takes_packets_that_are_answered_by_another_link() {
        let loose = |ear| {
            let settings = settings(ear, true);
            settings.iter().any(|one| one.key == "rp_filter")
        };
        assert!(loose(Ear::Far));
        assert!(!loose(Ear::Host));
    }
}
