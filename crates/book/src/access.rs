//! The port that the node itself has on a network.
//!
//! It is an attachment like that of a pod, with an end in the node's own namespace. Its routes are in a table of their own, which
//! only packets that begin at the node are routed by: the node forwards nothing there.

use cni_spec::digest::digest;
use cni_spec::{AttachmentKey, ContainerId, IfName, SpecError};
use netdev::Sysctl;

use crate::ledger::Ledger;
use crate::record::{Attachment, State};

/// Containers that ports of the node are of begin so; no runtime may name one.
///
/// Each network has one: requests of a container wait for each other.
pub const CONTAINERS: &str = "podnet.node-access.";
/// Number of the table of their routes: the letters "pn".
pub const TABLE: u32 = 0x706e;
/// Priority of the rule that leads there, before that of the main table (32766).
pub const PRIORITY: u32 = 28_782;
/// Names of their links start so, in the node's namespace.
const PREFIX: &str = "podnet-n";
/// Bits of a digest in names: the kernel's have at most 15 bytes.
const BITS: u32 = 28;

/// Returns the key of the node's port on a network.
///
/// # Errors
/// Never; the types of names say otherwise.
pub fn key(network: &str) -> Result<AttachmentKey, SpecError> {
    let digest = digest(network.as_bytes()) >> (u64::BITS - BITS);
    Ok(AttachmentKey {
        container: ContainerId::new(format!("{CONTAINERS}{digest:07x}"))?,
        ifname: IfName::new(format!("{PREFIX}{digest:07x}"))?,
    })
}

/// Reports whether this is the container of a port of the node.
pub fn is_of_node(container: &ContainerId) -> bool {
    container.as_str().starts_with(CONTAINERS)
}

/// Lists the settings of its link.
///
/// No IPv4 packet from there is forwarded, and no other address of the node is told there.
pub(crate) fn sysctls(v6: bool) -> Vec<Sysctl> {
    let mut settings = vec![Sysctl::v4("forwarding", "0"), Sysctl::v4("arp_ignore", "1")];
    if !v6 {
        // Or a router of the network would be one of the node.
        settings.push(Sysctl::v6("disable_ipv6", "1"));
    }
    settings
}

impl Attachment {
    /// True for the port that the node itself has on a network.
    pub fn is_of_node(&self) -> bool {
        is_of_node(&self.key.container)
    }
}

impl Ledger {
    /// True for a network on which there are pods.
    ///
    /// A pod counts as soon as it has its links, of which [`Self::changes`] tells; that all is written down, it does not.
    pub fn has_pods(&self, network: &str) -> bool {
        let Some(id) = self.id_of(network) else {
            return false;
        };
        let added = self.entries_on(id).filter(|it| it.state == State::Added);
        added.chain(self.live_on(id)).any(|it| !it.is_of_node())
    }
}

#[cfg(test)]
mod tests {
    use api::Mode;
    use netdev::Route;

    use super::*;
    use crate::samples;

    fn of_node(mode: Mode) -> Attachment {
        let subnets = [
            ("10.40.0.0/24", "10.40.0.1"),
            ("10.41.0.0/24", "10.41.0.1"),
            ("fd40::/64", "fd40::1"),
        ];
        let network = samples::network("blue", mode, &subnets);
        samples::record(&network, |wanted| wanted.key = key("blue").unwrap())
    }

    #[test]
    fn each_network_has_a_link_of_its_own_that_fits_the_kernel() {
        let names = ["blue", "red", "a.very.long.name"].map(|it| key(it).unwrap().ifname);
        for name in &names {
            assert!(name.as_str().len() <= 15 && name.as_str().starts_with(PREFIX));
        }
        assert!(names[0] != names[1] && names[1] != names[2]);
        assert_eq!(key("blue").unwrap().ifname, names[0]);
    }

    #[test]
    fn a_port_of_the_node_has_routes_to_the_subnets_alone_in_a_table_of_their_own() {
        for mode in [Mode::L2, Mode::L3] {
            let mut record = of_node(mode);
            assert!(record.is_of_node());
            let pushed = "10.0.0.0/8".parse().unwrap();
            record.network.routes = vec![crate::record::RouteFacts {
                dst: pushed,
                gw: None,
            }];
            record.network.service_cidrs = vec!["10.96.0.0/12".parse().unwrap()];
            record.default_gateway = true.into();
            let end = record.pod_end();
            let lengths: Vec<u8> = end.addresses.iter().map(|it| it.prefix_len).collect();
            assert_eq!(lengths, [32, 128], "no route comes with an address");
            let own = |route: &Route| {
                record
                    .leases
                    .iter()
                    .any(|it| Some(it.address) == route.source)
            };
            assert!(end.routes.iter().all(own), "{:?}", end.routes);
            assert!(end.routes.iter().all(|it| it.table == Some(TABLE)));
            let mut to: Vec<String> = end
                .routes
                .iter()
                .map(|it| format!("{}/{}", it.dst, it.prefix_len))
                .collect();
            to.sort();
            // The second one of its family, in which it has no address, too.
            assert_eq!(to, ["10.40.0.0/24", "10.41.0.0/24", "fd40::/64"]);
        }
    }

    #[test]
    fn a_pod_has_its_routes_in_the_main_table() {
        let network = samples::network("blue", Mode::L3, &[("10.40.0.0/24", "10.40.0.1")]);
        let end = samples::record(&network, |_| ()).pod_end();
        assert!(
            end.routes
                .iter()
                .all(|it| it.table.is_none() && it.source.is_none())
        );
    }

    #[test]
    fn changes_are_told_when_a_network_has_its_first_pod_and_when_it_has_lost_its_last() {
        let blue = samples::network("blue", Mode::L3, &[("10.40.0.0/24", "")]);
        let mut ledger = Ledger::new(16);
        let mut changes = ledger.changes();
        let mut told = move |ledger: &Ledger| {
            let is_new = changes.has_changed().unwrap();
            changes.mark_unchanged();
            (is_new, ledger.has_pods("blue"))
        };
        let wanted = samples::wanted("c1");
        let host = samples::host(&wanted, 7);
        let pod = ledger.reserve(wanted, &blue, host).unwrap();
        assert!(!told(&ledger).1, "it has no links yet");
        ledger.set_live(&pod);
        assert_eq!(told(&ledger), (true, true));
        ledger.set_added(&pod.key);
        assert_eq!(told(&ledger), (false, true));
        // A pod whose link is lost is there until its runtime says otherwise.
        ledger.lose_link(7);
        assert_eq!(told(&ledger), (true, true));
        ledger.set_state(&pod.key, State::Deleting, false);
        assert_eq!(told(&ledger), (true, false));
    }

    #[test]
    fn a_port_of_the_node_is_no_pod() {
        let blue = samples::network("blue", Mode::L3, &[("10.40.0.0/24", "")]);
        let mut ledger = Ledger::new(16);
        let wanted = crate::ledger::Wanted {
            key: key("blue").unwrap(),
            ..samples::wanted("c1")
        };
        let host = samples::host(&wanted, 7);
        let port = ledger.reserve(wanted, &blue, host).unwrap();
        ledger.set_live(&port);
        ledger.set_added(&port.key);
        assert!(!ledger.has_pods("blue"));
    }
}
