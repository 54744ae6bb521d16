//! Check invariants of every moment, by living ports and objects of the server.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::{GRANTED, IpReservation, Prefix};
use kube_core::ResourceExt as _;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::pods::{Port, Want};
use super::{BEHIND, Cluster, Tally, numbered};

impl Cluster {
    /// Checks everything that has to be so at any time.
    pub(super) fn check(&mut self) -> Result<(), TestCaseError> {
        self.check_holders()?;
        self.check_right()?;
        self.check_claims()?;
        for host in 0..self.hosts.len() {
            for pod in std::mem::take(&mut self.hosts[host].booked) {
                self.check_booked(host, &pod)?;
            }
        }
        Ok(())
    }

    /// Checks that each address has one holder: of a port, or of a grant.
    fn check_holders(&self) -> Result<(), TestCaseError> {
        let mut holders: BTreeMap<IpAddr, &str> = BTreeMap::new();
        let ports = self.hosts.iter().flat_map(|host| host.ports.values());
        for port in ports {
            for ip in &port.ips {
                let other = *holders.entry(*ip).or_insert(&port.holder);
                prop_assert_eq!(other, &port.holder, "{} has two holders", ip);
            }
        }
        for reservation in self.server.reservations.all() {
            if is_granted(reservation) {
                let (ip, holder) = (address(reservation), holder(reservation));
                let other = *holders.entry(ip).or_insert(holder);
                prop_assert_eq!(other, holder, "{} is promised to another", ip);
            }
        }
        Ok(())
    }

    /// Checks that each address in use has its block or its reservation.
    fn check_right(&self) -> Result<(), TestCaseError> {
        for host in &self.hosts {
            for (pod, port) in &host.ports {
                for ip in &port.ips {
                    let has = if port.reserved.contains(ip) {
                        let mut all = self.server.reservations.all();
                        all.any(|it| address(it) == *ip && holder(it) == port.holder)
                    } else {
                        let mut all = self.server.blocks.all();
                        all.any(|it| it.spec.node == host.name && has(&it.spec.cidr, ip))
                    };
                    prop_assert!(has, "{pod} on {} uses {ip}, which may be given", host.name);
                }
            }
        }
        Ok(())
    }

    /// Checks that a claim keeps its addresses, and that its pods have them.
    fn check_claims(&mut self) -> Result<(), TestCaseError> {
        for claim in self.server.claims.all() {
            let ips = claim.status.iter().flat_map(|status| &status.ips);
            let ips: Vec<String> = ips.cloned().collect();
            if !ips.is_empty() {
                let uid = claim.uid().unwrap();
                let first = self.written.entry(uid).or_insert_with(|| ips.clone());
                prop_assert_eq!(&*first, &ips, "{} has other addresses", claim.name_any());
            }
        }
        let ports = self.hosts.iter().flat_map(|host| &host.ports);
        for (pod, port) in ports.filter(|(_, port)| port.by_claim) {
            let written = self.written.get(&port.holder);
            let written = written.map_or(&[][..], Vec::as_slice);
            for ip in &port.ips {
                let ip = ip.to_string();
                let mut of_claim = written.iter().filter_map(|text| text.split('/').next());
                let found = of_claim.any(|written| written == ip);
                prop_assert!(found, "{pod} has {ip}, its claim {written:?}");
            }
        }
        Ok(())
    }

    /// Checks that a node had the right to what it has just given.
    fn check_booked(&mut self, host: usize, pod: &str) -> Result<(), TestCaseError> {
        let host = &self.hosts[host];
        let (Some(port), Some(bound)) = (host.ports.get(pod), host.bound.get(pod)) else {
            return Ok(());
        };
        if let Want::Named(index) = bound.want {
            let asked = numbered(self.shape.named[usize::from(index)]);
            prop_assert_eq!(&port.ips, &[asked]);
        }
        let then = self.server.now - BEHIND;
        for ip in &port.ips {
            if port.reserved.contains(ip) {
                let mut all = self.server.reservations.all();
                let granted = all.any(|it| address(it) == *ip && is_granted(it));
                prop_assert!(granted, "{ip} was used without a grant");
                continue;
            }
            let nodes = self.server.nodes.since(then);
            let nodes = nodes.filter(|node| node.name_any() == host.name);
            let uids: Vec<String> = nodes.filter_map(|node| node.uid()).collect();
            let mut blocks = self.server.blocks.since(then);
            let could = blocks.any(|block| {
                let status = block.status.as_ref();
                let is_marked = status.is_some_and(|status| status.reclaim_after.is_some());
                has(&block.spec.cidr, ip) && uids.contains(&block.spec.node_uid) && !is_marked
            });
            prop_assert!(
                could,
                "{} gave {ip} of a block that is not its own",
                host.name
            );
        }
        for other in self.hosts.iter().filter(|it| it.name != host.name) {
            let said = port.ips.iter().find(|ip| {
                // Of one with a reservation all nodes know that it has another place now.
                let mut said = other.said.iter();
                !port.reserved.contains(ip) && said.any(|(_, said)| said == *ip)
            });
            prop_assert!(said.is_none(), "{said:?} is said to be on {}", other.name);
        }
        let (uid, port) = (bound.uid.clone(), port.clone());
        let node = host.name.clone();
        self.count(&uid, &port, &node);
        Ok(())
    }

    fn count(&mut self, uid: &str, port: &Port, node: &str) {
        if !self.seen.insert(uid.to_owned()) {
            return;
        }
        let mut blocks = self.server.blocks.all();
        let block = blocks.find(|block| port.ips.iter().any(|ip| has(&block.spec.cidr, ip)));
        let is_of_another = block.is_some_and(|block| block.spec.node != node);
        let tally = &mut self.tally;
        tally.booked += 1;
        tally.by_name += u64::from(!port.by_claim && !port.reserved.is_empty());
        tally.by_claim += u64::from(port.by_claim);
        tally.granted_elsewhere += u64::from(is_of_another);
    }

    pub(super) fn tally(mut self) -> Tally {
        self.tally.given_back = self.hosts.iter().map(|host| host.given_back).sum();
        let done = self.control.done;
        self.tally.removed = done.removed;
        self.tally.taken_back = done.taken_back;
        self.tally.asked = done.asked;
        self.tally.revoked = done.revoked;
        self.tally
    }
}

fn has(cidr: &str, ip: &IpAddr) -> bool {
    cidr.parse::<Prefix>().unwrap().contains(ip)
}

pub(super) fn address(reservation: &IpReservation) -> IpAddr {
    reservation.spec.address.parse().unwrap()
}

/// UID of the holder.
pub(super) fn holder(reservation: &IpReservation) -> &str {
    let spec = &reservation.spec;
    match (&spec.pod, &spec.claim) {
        (Some(pod), _) => &pod.uid,
        (None, Some(claim)) => &claim.uid,
        (None, None) => unreachable!("a reservation without a holder"),
    }
}

fn is_granted(reservation: &IpReservation) -> bool {
    let conditions = reservation.status.iter().flat_map(|it| &it.conditions);
    let mut granted = conditions.filter(|it| it.type_ == GRANTED);
    granted.any(|it| it.status == "True")
}
