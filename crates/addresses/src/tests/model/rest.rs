//! Rest: nothing is lost or late any more, and all that can be done is done.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::IpBlock;
use kube_core::ResourceExt as _;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::check::{address, holder};
use super::pods::{PATIENCE, Want};
use super::steps::{Followed, Step};
use super::{CLAIMS, Cluster, HOSTS};

/// Seconds after which nothing of the dead is left, by all delays.
const ALL_DELAYS: usize = 400;
/// Seconds until a node has an address that is free, in turns of [`TURN`].
const SOON: usize = 120;
/// Seconds between two looks while pods wait.
const TURN: i64 = 3;
/// Seconds between two looks while nothing but time has to pass.
const LONG_TURN: i64 = 20;

impl Cluster {
    /// Lets everything arrive, and all who have something to do do it.
    ///
    /// A node begins a round when something asks for it or the time has come, and not before.
    fn turn(&mut self, seconds: i64) -> Result<(), TestCaseError> {
        while !self.late.is_empty() {
            self.play(Step::Late(0));
            self.check()?;
        }
        for who in 0..=HOSTS {
            for what in Followed::ALL {
                self.hear(who, what, usize::MAX);
            }
        }
        for host in 0..HOSTS {
            self.play(Step::Ready(host));
            self.play(Step::Settle(host));
            self.check()?;
            if self.hosts[host].bound.values().any(|it| it.ended) {
                self.play(Step::Delete(host));
            }
            self.play(Step::Say(host));
            let now = self.server.now;
            if self.hosts[host].look || self.hosts[host].again <= now {
                self.play(Step::Round(host));
                self.play(Step::Settle(host));
            }
            self.check()?;
            self.play(Step::Wake(host));
            self.play(Step::Settle(host));
            self.check()?;
        }
        self.play(Step::Plan);
        while self.control.act(&mut self.server) {
            self.check()?;
        }
        self.tick(seconds);
        self.check()
    }

    fn rest(&mut self, seconds: usize, turn: i64) -> Result<(), TestCaseError> {
        let turns = seconds / usize::try_from(turn).unwrap();
        (0..turns).try_for_each(|_| self.turn(turn))
    }

    /// Addresses that a port has or a reservation keeps.
    fn used(&self) -> BTreeSet<IpAddr> {
        let ports = self.hosts.iter().flat_map(|host| host.ports.values());
        let mut used: BTreeSet<IpAddr> = ports.flat_map(|port| port.ips.clone()).collect();
        used.extend(self.server.reservations.all().map(|it| address(it)));
        used
    }

    /// Checks that every address can be had, before and after all pods go.
    pub(super) fn finish(&mut self) -> Result<(), TestCaseError> {
        self.rest(30, 10)?;
        for host in 0..HOSTS {
            if self.server.nodes.get(&self.hosts[host].name).is_none() {
                self.register(host);
            }
            // Those that were refused would try again for ever.
            for pod in self.hosts[host].unattached() {
                let now = self.server.now;
                self.hosts[host].remove(&pod, &mut self.late, now);
            }
        }
        self.rest(ALL_DELAYS, LONG_TURN)?;
        self.check_dead()?;
        // Blocks of two forms can be in use side by side, and a whole one is not to be had then.
        if self.shape.forms.len() == 1 {
            self.leave_blocks_of_before()?;
            self.fill()?;
        }
        self.drain()?;
        self.check_first_attempts()?;
        self.drain()?;
        let host = usize::from(self.hosts[0].requests.is_multiple_of(2));
        self.fill_from(host)
    }

    /// Checks that nothing is left of pods, claims and nodes that are gone.
    fn check_dead(&self) -> Result<(), TestCaseError> {
        for reservation in self.server.reservations.all() {
            let (spec, uid) = (&reservation.spec, holder(reservation));
            let name = reservation.name_any();
            if let Some(holder) = &spec.pod {
                let pod = self.server.pods.get(&holder.name);
                let lives = pod.is_some_and(|pod| pod.uid() == uid);
                prop_assert!(lives, "{name} is of a pod that is gone");
            } else if let Some(claim) = &spec.claim {
                let found = self.server.claims.get(&claim.name);
                let found = found.filter(|it| it.uid().as_deref() == Some(uid));
                let status = found.and_then(|it| it.status.as_ref());
                let ips = status.map_or(&[][..], |status| &status.ips);
                let mut written = ips.iter().filter_map(|ip| ip.split('/').next());
                let is_written = written.any(|ip| ip == spec.address);
                let is_open = found.is_some() && ips.is_empty();
                // A pod that names the claim may have the address.
                let mut pods = self.hosts.iter().flat_map(|host| host.bound.values());
                let is_used = pods.any(|pod| match pod.want {
                    Want::Claim(number) => claim.name == format!("claim-{number}"),
                    Want::Any | Want::Named(_) => false,
                });
                prop_assert!(
                    is_written || is_open || is_used,
                    "{name} is kept for claim {}, which has {ips:?}",
                    claim.name
                );
            }
        }
        for block in self.server.blocks.all() {
            let spec = &block.spec;
            let node = self.server.nodes.get(&spec.node);
            let uid = node.and_then(|node| node.uid());
            let mut pods = self.server.pods.all();
            let busy = pods.any(|pod| pod.spec.node_name.as_ref() == Some(&spec.node));
            let lives = uid.as_ref() == Some(&spec.node_uid);
            prop_assert!(lives || busy, "{} is of a node that is gone", spec.cidr);
        }
        Ok(())
    }

    /// Ends the pods of nodes that hold blocks of their time before.
    ///
    /// A node of another UID gives nothing of those while its pods run.
    fn leave_blocks_of_before(&mut self) -> Result<(), TestCaseError> {
        let mut any = false;
        for host in 0..HOSTS {
            let name = self.hosts[host].name.clone();
            let uid = self.server.nodes.get(&name).and_then(|node| node.uid());
            let is_of_before =
                |it: &IpBlock| it.spec.node == name && Some(&it.spec.node_uid) != uid.as_ref();
            if self.server.blocks.all().any(|it| is_of_before(it)) {
                any = true;
                self.remove_all(host);
            }
        }
        if any {
            self.rest(ALL_DELAYS, LONG_TURN)?;
        }
        Ok(())
    }

    fn remove_all(&mut self, host: usize) {
        let now = self.server.now;
        for pod in self.hosts[host].bound.keys().cloned().collect::<Vec<_>>() {
            self.hosts[host].remove(&pod, &mut self.late, now);
        }
    }

    /// Fills the subnet with pods of both nodes.
    fn fill(&mut self) -> Result<(), TestCaseError> {
        let free = self.shape.capacity - self.used().len();
        let mut pods: Vec<String> = (0..free).map(|_| self.bind(0, Want::Any)).collect();
        self.attach(0)?;
        pods.retain(|pod| !self.hosts[0].ports.contains_key(pod));
        for pod in &pods {
            let now = self.server.now;
            self.hosts[0].remove(pod, &mut self.late, now);
            self.bind(1, Want::Any);
        }
        self.turn(TURN)?;
        self.attach(1)?;
        let used = self.used();
        let blocks = self.blocks();
        prop_assert_eq!(used.len(), self.shape.capacity, "{:?}; {:?}", used, blocks);
        Ok(())
    }

    /// Fills the subnet with pods of one node.
    fn fill_from(&mut self, host: usize) -> Result<(), TestCaseError> {
        for _ in 0..self.shape.capacity {
            self.bind(host, Want::Any);
        }
        self.attach(host)?;
        let (used, blocks) = (self.used(), self.blocks());
        prop_assert_eq!(used.len(), self.shape.capacity, "{:?}; {:?}", used, blocks);
        Ok(())
    }

    fn blocks(&self) -> Vec<(String, String)> {
        let blocks = self.server.blocks.all();
        let blocks = blocks.map(|it| (it.spec.cidr.clone(), it.spec.node.clone()));
        blocks.collect()
    }

    /// Has all pods of a node try again, until they have addresses or a while is over.
    fn attach(&mut self, host: usize) -> Result<(), TestCaseError> {
        for _ in 0..SOON / usize::try_from(TURN).unwrap() {
            let unattached = self.hosts[host].unattached();
            if unattached.is_empty() {
                break;
            }
            for pod in unattached {
                self.hosts[host].add(&pod, &self.shape.named, self.server.now);
            }
            self.turn(TURN)?;
        }
        Ok(())
    }

    /// Deletes all pods and claims, and checks that every address is free again.
    fn drain(&mut self) -> Result<(), TestCaseError> {
        for host in 0..HOSTS {
            self.remove_all(host);
        }
        for number in 0..CLAIMS {
            self.play(Step::DropClaim(number));
        }
        self.rest(ALL_DELAYS, LONG_TURN)?;
        let blocks = self.blocks();
        prop_assert!(
            blocks.is_empty(),
            "no pod is left, and blocks are: {blocks:?}"
        );
        let reservations = self.server.reservations.all();
        let left: Vec<IpAddr> = reservations.map(|it| address(it)).collect();
        prop_assert!(left.is_empty(), "no pod is left, and {left:?} are reserved");
        Ok(())
    }

    /// Checks that the first attempt of a pod succeeds where an address is free.
    ///
    /// Either node gets a block for its first pod, and the other one an address of it by name, within
    /// the time of one `ADD`.
    fn check_first_attempts(&mut self) -> Result<(), TestCaseError> {
        for (host, want) in [(0, Want::Any), (1, Want::Named(1)), (0, Want::Named(2))] {
            let ip = match want {
                Want::Named(index) => Some(super::numbered(self.shape.named[usize::from(index)])),
                Want::Any | Want::Claim(_) => None,
            };
            // It may be that of the pod before.
            let is_free = ip.is_none_or(|ip| !self.used().contains(&ip));
            let pod = self.bind(host, want);
            let now = self.server.now;
            self.hosts[host].add(&pod, &self.shape.named, now);
            while self.server.now < now + PATIENCE && !self.hosts[host].ports.contains_key(&pod) {
                self.turn(1)?;
            }
            let port = self.hosts[host].ports.get(&pod);
            prop_assert!(
                port.is_some() || !is_free,
                "{pod} has no address for {want:?}"
            );
        }
        Ok(())
    }
}
