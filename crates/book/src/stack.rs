//! Facts about an attachment for the node's own stack.

use netdev::Neighbour;

use super::record::Attachment;

impl Attachment {
    /// The addresses that the node's stack reaches at the host end.
    ///
    /// There are none on a network that it does not route for.
    pub fn neighbours(&self) -> Vec<Neighbour> {
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
    pub fn has_v6(&self) -> bool {
        self.leases.iter().any(|lease| lease.address.is_ipv6())
    }
}

#[cfg(test)]
mod tests {
    use api::{Mode, Network, Routing};

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
}
