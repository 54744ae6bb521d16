//! One attachment: its host end as a link of the node's own stack.

use std::net::{IpAddr, Ipv4Addr};

use netdev::{Address, Connection, Family, Neighbour, Sysctl};

use super::{NodeRouting, PROTOCOL};
use crate::host::HostError;
use crate::ports::far_name;
use crate::record::Attachment;

impl Attachment {
    /// The addresses that the node's stack reaches at the host end; none on a network that it does
    /// not route for.
    pub(crate) fn neighbours(&self) -> Vec<Neighbour> {
        if !self.network.by_node {
            return Vec::new();
        }
        let leases = self.leases.iter();
        leases
            .map(|lease| Neighbour {
                address: lease.address,
                mac: self.mac.0,
            })
            .collect()
    }

    /// True when it has an address of IPv6.
    pub(crate) fn has_v6(&self) -> bool {
        self.leases.iter().any(|lease| lease.address.is_ipv6())
    }
}

/// Who takes packets from the dispatcher on behalf of an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ear {
    /// The host end.
    Host,
    /// The far end of its shaper. The routes back go out of the host end.
    Far,
}

/// An address that nobody has: the dummy one of RFC 7600 section 4.8. Even where reverse paths are
/// checked loosely, the kernel drops what comes in by a link without an address.
const NOBODY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// What a link of the node needs for its stack to take and forward what comes in there. It says
/// nothing of its own accord: it has no address that others could use, and solicits nobody.
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

/// Prepares a link for the node's stack, in the namespace of the connection and the calling thread.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn listen(
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

/// The links of an attachment that the node's stack listens at.
fn ears(record: &Attachment) -> Vec<(String, u32, Ear)> {
    let mut ears = vec![(record.host.name.clone(), record.host.ifindex, Ear::Host)];
    if let Some(shaper) = record.shaper {
        ears.push((far_name(&record.host.name), shaper.far, Ear::Far));
    }
    ears
}

impl NodeRouting {
    /// Makes the node's stack reach an attachment again, where somebody undid a part of that.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) async fn mend(&self, record: &Attachment) -> Result<(), HostError> {
        let neighbours = record.neighbours();
        if neighbours.is_empty() {
            return Ok(());
        }
        let (ears, v6) = (ears(record), record.has_v6());
        let ifindex = record.host.ifindex;
        let mend = move |connection: &mut Connection| -> Result<_, netdev::Error> {
            for (link, index, ear) in ears {
                match listen(connection, (&link, index), ear, v6) {
                    // A shaper that is lost is made anew by those who look after rates.
                    Err(error) if error.is_gone() && ear == Ear::Far => {}
                    other => other?,
                }
            }
            let missing = connection.unreached(ifindex, &neighbours)?;
            connection.reach(ifindex, &missing, PROTOCOL)?;
            Ok(missing)
        };
        let mended = self.host.netlink.with(mend).await?;
        if !mended.is_empty() {
            let addresses: Vec<_> = mended.iter().map(|one| one.address).collect();
            tracing::warn!(attachment = %record.key, ?addresses, "routes or neighbours were gone, made again");
        }
        Ok(())
    }

    /// What is wrong with how the node's stack reaches an attachment.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(crate) async fn faults(&self, record: &Attachment) -> Result<Vec<String>, HostError> {
        let neighbours = record.neighbours();
        if neighbours.is_empty() {
            return Ok(Vec::new());
        }
        let ifindex = record.host.ifindex;
        let missing = self
            .host
            .netlink
            .with(move |connection| connection.unreached(ifindex, &neighbours))
            .await?;
        Ok(missing
            .iter()
            .map(|one| {
                format!(
                    "the node's route or neighbour entry of {} is gone",
                    one.address
                )
            })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use api::{Mode, Network, Routing};

    use super::*;
    use crate::samples;

    #[test]
    fn the_node_reaches_every_address_of_the_network_that_it_routes_for_and_of_no_other() {
        let isolated =
            samples::network("blue", Mode::L3, &[("10.0.0.0/24", ""), ("fd10::/64", "")]);
        assert_eq!(samples::record(&isolated, |_| ()).neighbours(), []);
        let by_node = Network {
            routing: Routing::Node,
            ..isolated
        };
        let record = samples::record(&by_node, |_| ());
        let addresses: Vec<_> = record.leases.iter().map(|lease| lease.address).collect();
        let reached: Vec<_> = record.neighbours();
        assert!(reached.iter().all(|one| one.mac == record.mac.0));
        let reached: Vec<_> = reached.iter().map(|one| one.address).collect();
        assert_eq!(reached, addresses);
        assert_eq!(reached.len(), 2);
    }

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
