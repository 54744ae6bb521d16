//! Rest: nothing is lost or late any more, and all that can be done is done.

use std::collections::BTreeSet;
use std::net::IpAddr;

use kube_core::ResourceExt as _;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::host::Want;
use super::steps::{Followed, Step};
use super::{Cluster, HOSTS, capacity};

impl Cluster {
    /// Nothing is lost or late for a while; all who can do something do it.
    pub(super) fn rest(&mut self, times: usize) -> Result<(), TestCaseError> {
        for _ in 0..times {
            while !self.late.is_empty() {
                self.play(Step::Late(0));
                self.check()?;
            }
            for who in 0..=HOSTS {
                for what in Followed::ALL {
                    self.hear(who, what, Some(usize::MAX));
                }
            }
            for host in 0..HOSTS {
                let steps = [
                    Step::Ready(host),
                    Step::Settle(host),
                    Step::Delete(host),
                    Step::Say(host),
                    Step::Round(host),
                    Step::Settle(host),
                    Step::Wake(host),
                    Step::Settle(host),
                ];
                for step in steps {
                    self.play(step);
                    self.check()?;
                }
            }
            self.control.plan(self.server.now);
            while self.control.act(&mut self.server) {
                self.check()?;
            }
            self.server.now += 10;
        }
        Ok(())
    }

    /// Addresses that somebody has or is to have.
    fn used(&self) -> BTreeSet<IpAddr> {
        let mut used: BTreeSet<IpAddr> = self.held().into_iter().map(|(_, ip, _)| ip).collect();
        let reserved = self.server.reservations.all();
        used.extend(reserved.map(|it| it.spec.address.parse::<IpAddr>().unwrap()));
        used
    }

    /// Checks that nothing is left of the dead, and that pods can fill the subnet.
    pub(super) fn check_rest(&mut self) -> Result<(), TestCaseError> {
        for host in 0..HOSTS {
            if self.server.nodes.get(&self.hosts[host].name).is_none() {
                self.register(host);
            }
        }
        // Those that were refused would try again for ever.
        for host in 0..HOSTS {
            for pod in self.hosts[host].unattached() {
                let now = self.server.now;
                self.hosts[host].remove(&pod, &mut self.late, now);
            }
        }
        self.rest(60)?;
        for reservation in self.server.reservations.all() {
            let spec = &reservation.spec;
            let name = reservation.name_any();
            if let Some(holder) = &spec.pod {
                let pod = self.server.pods.get(&holder.name);
                let lives = pod.is_some_and(|pod| pod.uid() == holder.uid);
                prop_assert!(lives, "{name} is of a pod that is gone");
            }
        }
        for block in self.server.blocks.all() {
            let spec = &block.spec;
            let node = self
                .server
                .nodes
                .get(&spec.node)
                .and_then(|node| node.uid());
            let mut pods = self.server.pods.all();
            let busy = pods.any(|pod| pod.spec.node_name.as_ref() == Some(&spec.node));
            let lives = node.as_ref() == Some(&spec.node_uid);
            prop_assert!(lives || busy, "{} is of a node that is gone", spec.cidr);
        }
        // A node of another UID gives nothing of the blocks of before while its pods run.
        for host in 0..HOSTS {
            let pods: Vec<String> = self.hosts[host].bound.keys().cloned().collect();
            if self.is_of_before(host) {
                for pod in pods {
                    let now = self.server.now;
                    self.hosts[host].remove(&pod, &mut self.late, now);
                }
            }
        }
        self.rest(30)?;
        let mut refused = 0;
        let mut host = 0;
        while refused < HOSTS {
            let before = self.used().len();
            self.bind(host, Want::Any);
            let pod = self.hosts[host].unattached().pop().unwrap();
            for _ in 0..3 {
                if !self.hosts[host].attached().contains(&pod) {
                    self.hosts[host].add(&pod, self.server.now);
                    self.rest(3)?;
                }
            }
            let now = self.server.now;
            if self.used().len() == before {
                self.hosts[host].remove(&pod, &mut self.late, now);
                self.rest(1)?;
                refused += 1;
            } else {
                refused = 0;
            }
            host = (host + 1) % HOSTS;
        }
        let used = self.used();
        prop_assert_eq!(
            used.len(),
            capacity(self.len),
            "held and reserved: {:?}; {:?}",
            &used,
            self.server.blocks
        );
        Ok(())
    }

    fn is_of_before(&self, host: usize) -> bool {
        let name = &self.hosts[host].name;
        let uid = self.server.nodes.get(name).and_then(|node| node.uid());
        let mut blocks = self.server.blocks.all();
        blocks.any(|block| block.spec.node == *name && Some(&block.spec.node_uid) != uid.as_ref())
    }
}
