//! Failures and deaths at each step of networks of every kind leave nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{Egress, Mode, Network, Routing, Share, Transport, Wire};
use book::record::NetworkFacts;
use book::samples;
use datapath::DatapathError;
use netdev::TableWrite;
use node_stack::egress::order::{self, Ways};
use node_stack::egress::{EgressError, GatewayPlan, PortsWritten};
use node_stack::routing::NotRouting;
use telemetry::fate::{Calls, Dead, Fate, Fated, Refused, call};

use super::{Members, admit, ensure, mend_ways_out, recover, release, settle, withdraw};
use crate::ReachError;
use crate::overlay::OverlayError;
use crate::underlay::UnderlayError;
use crate::uplink_networks::UplinkNetworkError;

mod ports;
mod recovery;
mod walk;

/// Things that outlive an agent, and what the agent knows of them.
#[derive(Debug, Default)]
struct Things {
    /// Networks of attachments, by container: the book.
    book: BTreeMap<u8, NetworkFacts>,
    /// The tunnel device and its guards, which stay until `cleanup`.
    tunnel: bool,
    /// The node's stack is prepared for the network that it routes for.
    routes: bool,
    /// Uplinks with the program.
    uplinks: BTreeSet<String>,
    /// Containers in it whose attachments are being removed.
    leaving: BTreeSet<u8>,
    /// Containers that a port of the node leads to.
    ports: BTreeSet<u8>,
    /// Networks whose gateways take no table of ports.
    broken: BTreeSet<u32>,
    /// Networks whose gateways take none until they are made again.
    lost: BTreeSet<u32>,
    /// Networks with a gateway.
    gateways: BTreeSet<u32>,
    /// The guards of ways out.
    fence: bool,
    /// The note that they may be there.
    mark: bool,
    /// Knowledge of the agent, which the tables are filled from.
    known: Known,
    /// Calls that had been made at each turn of changing ways out.
    turns: Vec<usize>,
    calls: Calls,
}

/// Knowledge of one agent.
#[derive(Debug, Default, Clone, PartialEq)]
struct Known {
    tunnel: bool,
    paths: bool,
    uplinks: BTreeSet<String>,
    hops: bool,
    open: BTreeSet<u32>,
    fenced: bool,
}

impl Fated for Things {
    fn calls(&mut self) -> &mut Calls {
        &mut self.calls
    }
}

impl Things {
    fn uplinks_needed(&self) -> BTreeSet<String> {
        let wires = self.book.values().filter_map(|it| it.wire.as_ref());
        wires.map(|wire| wire.uplink.clone()).collect()
    }

    /// Containers of networks with a gateway that is known, each of which has a port.
    fn ports_needed(&self) -> BTreeSet<u8> {
        let stay = self
            .book
            .iter()
            .filter(|(it, _)| !self.leaving.contains(it));
        let open = stay.filter(|(_, facts)| {
            self.known.open.contains(&facts.id) && !self.unwritable().contains(&facts.id)
        });
        open.map(|(it, _)| *it).collect()
    }

    /// Networks whose gateways take no ports.
    fn unwritable(&self) -> BTreeSet<u32> {
        let all = self.broken.union(&self.lost);
        all.copied()
            .filter(|it| self.known.open.contains(it))
            .collect()
    }

    /// Frees the addresses of an attachment.
    fn erase(&mut self, container: u8) {
        let is_mapped = self.ports.contains(&container);
        assert!(!is_mapped, "a port leads to an address that is free");
        self.book.remove(&container);
        self.leaving.remove(&container);
    }

    fn find_uplinks(&mut self) {
        self.uplinks = self.uplinks_needed();
        self.known.uplinks.clone_from(&self.uplinks);
    }

    /// Fails when packets could leave the node past its guards.
    ///
    /// Guards are noted first and forgotten last: an agent that finds no gateway looks for them where the
    /// note says so.
    fn assert_guarded(&self) {
        let is_guarded = self.gateways.is_empty() || self.fence;
        assert!(is_guarded, "a way out without guards");
        assert!(self.mark || !self.fence, "guards without a note of them");
        let open = &self.known.open;
        assert!(open.is_subset(&self.gateways), "tables lead to no gateway");
    }
}

/// Members of one agent.
#[derive(Debug, Clone, Default)]
struct Fake(Arc<Mutex<Things>>);

impl Fake {
    fn things(&self) -> MutexGuard<'_, Things> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call<T>(
        &self,
        name: &'static str,
        effect: impl FnOnce(&mut Things) -> T,
    ) -> Result<T, netdev::Error> {
        let done = call(&self.0, name, |things| {
            let done = effect(things);
            things.assert_guarded();
            done
        });
        let what = "the test refuses";
        done.map_err(|Refused| netdev::Error::Malformed { what })
    }

    fn has_tunnelled(&self) -> bool {
        let things = self.things();
        things.book.values().any(NetworkFacts::spans_nodes)
    }
}

impl Ways for Fake {
    type Turn<'a> = ();

    async fn turn(&self) {
        let mut things = self.things();
        let before = things.calls.names().len();
        things.turns.push(before);
    }

    fn plan(&self, network: u32) -> Option<GatewayPlan> {
        self.planned().remove(&network)
    }

    fn planned(&self) -> BTreeMap<u32, GatewayPlan> {
        let things = self.things();
        let mut plans = BTreeMap::new();
        for facts in things.book.values().filter(|it| it.egress) {
            let plan = plans.entry(facts.id).or_insert(GatewayPlan::of(facts.id));
            plan.serve(facts);
        }
        plans
    }

    fn is_open(&self, plan: &GatewayPlan) -> bool {
        self.things().known.open.contains(&plan.network)
    }

    fn mark(&self) {
        // Where it cannot be made there are no gateways.
        let mut things = self.things();
        things.mark = true;
        things.known.fenced = true;
    }

    async fn fence(&self, v4: bool, _: bool) -> Result<TableWrite, EgressError> {
        assert!(v4, "the family of the network");
        let fence = |things: &mut Things| std::mem::replace(&mut things.fence, true);
        let had = self.call("fence", fence)?;
        Ok(if had {
            TableWrite::Unneeded
        } else {
            TableWrite::Made
        })
    }

    async fn make(&self, plan: GatewayPlan) -> Result<bool, EgressError> {
        let made = self.call("gateway", |things| {
            things.gateways.insert(plan.network);
            things.lost.remove(&plan.network);
        });
        made?;
        Ok(self.things().known.open.insert(plan.network))
    }

    async fn write_ports(&self) -> Result<PortsWritten, EgressError> {
        self.call("ports", |things| things.ports = things.ports_needed())?;
        let things = self.things();
        let failed = things.unwritable().into_iter().map(|network| {
            let what = "the test breaks the gateway";
            (network, netdev::Error::Malformed { what }.into())
        });
        Ok(PortsWritten {
            failed: failed.collect(),
            ..PortsWritten::all(TableWrite::Unneeded)
        })
    }

    fn lead_to(&self, _: u32) -> Result<(), EgressError> {
        Ok(self.call("tables", |_| ())?)
    }

    fn forget(&self) -> BTreeSet<u32> {
        let kept: BTreeSet<u32> = self.planned().into_keys().collect();
        self.things().known.open.retain(|it| kept.contains(it));
        kept
    }

    async fn remove_all_but(&self, kept: &BTreeSet<u32>) -> Result<bool, EgressError> {
        Ok(self.call("remove gateways", |things| {
            let before = things.gateways.len();
            things.gateways.retain(|it| kept.contains(it));
            things.gateways.len() < before
        })?)
    }

    fn has_fence(&self) -> bool {
        self.things().known.fenced
    }

    async fn remove_fence(&self) -> Result<(), EgressError> {
        Ok(self.call("remove fence", |things| things.fence = false)?)
    }

    fn unmark(&self) {
        let _ = self.call("unmark", |things| {
            things.mark = false;
            things.known.fenced = false;
        });
    }
}

impl Members for Fake {
    fn has_tunnelled(&self) -> bool {
        self.has_tunnelled()
    }

    async fn admit_routed(&self, network: &Network) -> Result<(), NotRouting> {
        let routed = self.call("admit routed", |things| things.routes = true);
        routed.map_err(|_| NotRouting::new(&network.name, "the test refuses".to_owned()))
    }

    async fn admit_uplink(&self, _: &Network) -> Result<(), UplinkNetworkError> {
        Ok(self.call("admit uplink", |_| ())?)
    }

    async fn carry(&self, _: &Network) -> Result<(), OverlayError> {
        self.tunnel().await
    }

    async fn tunnel(&self) -> Result<(), OverlayError> {
        Ok(self.call("tunnel", |things| {
            things.tunnel = true;
            things.known.tunnel = true;
        })?)
    }

    async fn mend_tunnels(&self) {
        if self.has_tunnelled() {
            let _ = self.tunnel().await;
        }
    }

    async fn find_paths(&self) -> Result<(), UnderlayError> {
        Ok(self.call("find paths", |things| things.known.paths = true)?)
    }

    async fn plug(&self) -> Result<(), UplinkNetworkError> {
        self.find_hops().await?;
        self.find_uplinks().await
    }

    async fn mend_uplinks(&self) {
        let _ = self.find_uplinks().await;
    }

    async fn find_uplinks(&self) -> Result<(), UplinkNetworkError> {
        Ok(self.call("find uplinks", Things::find_uplinks)?)
    }

    async fn find_hops(&self) -> Result<(), UplinkNetworkError> {
        Ok(self.call("find hops", |things| things.known.hops = true)?)
    }

    async fn route(&self, _: &NetworkFacts) -> Result<(), DatapathError> {
        self.route_all().await
    }

    async fn route_all(&self) -> Result<(), DatapathError> {
        self.call("set routes", |_| ())
            .map_err(|_| DatapathError::NoObject)
    }

    async fn open(&self, facts: &NetworkFacts) -> Result<(), EgressError> {
        match self.planned().remove(&facts.id) {
            Some(plan) => order::open(self, facts.id, plan).await,
            None => Ok(()),
        }
    }

    async fn withdraw(&self, facts: &NetworkFacts) -> Result<(), EgressError> {
        order::withdraw(self, facts.id).await
    }

    async fn close(&self, facts: &NetworkFacts) {
        if facts.egress {
            order::close(self, facts).await;
        }
    }

    async fn recover_ways_out(&self) {
        order::recover(self).await;
    }

    async fn audit_ways_out(&self) -> Result<(), EgressError> {
        order::audit(self).await
    }

    fn complain(&self) {}
}

/// Each kind of network.
fn networks() -> Vec<Network> {
    let plain = |name: &str| samples::network(name, Mode::L3, &[("10.10.0.0/24", "10.10.0.1")]);
    let wired = |name: &str, uplink: &str, share: Share| {
        let uplink = uplink.to_owned();
        let ether_types = Vec::new();
        Network {
            transport: Transport::Native,
            wire: Some(Wire {
                uplink,
                share,
                ether_types,
            }),
            ..plain(name)
        }
    };
    vec![
        plain("local"),
        Network {
            transport: Transport::Vxlan,
            ..plain("tunnelled")
        },
        wired("native", "eth0", Share::Untagged),
        wired("tagged", "eth1", Share::Vlan(7)),
        Network {
            egress: Egress::Masquerade,
            ..plain("egress")
        },
        Network {
            egress: Egress::Masquerade,
            transport: Transport::Vxlan,
            ..plain("egress-tunnelled")
        },
        Network {
            egress: Egress::Masquerade,
            ..wired("egress-native", "eth0", Share::Routed)
        },
        Network {
            routing: Routing::Node,
            ..plain("routed")
        },
    ]
}

fn facts(index: usize) -> (Network, NetworkFacts) {
    let network = networks().swap_remove(index);
    let id = u32::try_from(index).unwrap() + 1;
    let facts = NetworkFacts::of(&network, id);
    (network, facts)
}

/// A node with one agent at a time.
struct Scene {
    runtime: tokio::runtime::Runtime,
    fake: Fake,
}

impl Scene {
    fn new() -> Self {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        Self {
            runtime: runtime.build().unwrap(),
            fake: Fake::default(),
        }
    }

    fn expect(&self, fate: Option<(usize, Fate)>) -> Vec<&'static str> {
        self.fake.things().calls.expect(fate)
    }

    /// Runs the work of the agent; none when it died.
    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        match self.runtime.block_on(async { tokio::spawn(work).await }) {
            Ok(done) => Some(done),
            Err(died) => {
                let payload = died.into_panic();
                if !payload.is::<Dead>() {
                    std::panic::resume_unwind(payload);
                }
                None
            }
        }
    }

    /// Does what the engine does for an attachment, up to its port.
    fn add(&self, container: u8, index: usize) -> Option<Result<(), ReachError>> {
        let fake = self.fake.clone();
        let (network, facts) = facts(index);
        self.run(async move {
            admit(&fake, &network).await?;
            fake.things().book.insert(container, facts.clone());
            ensure(&fake, &facts).await
        })
    }

    /// Does what the engine does when an attachment has gone.
    fn remove(&self, container: u8) -> Option<()> {
        let fake = self.fake.clone();
        let found = fake.things().book.get(&container).cloned();
        self.run(async move {
            let Some(facts) = found else { return };
            fake.things().leaving.insert(container);
            if facts.egress && withdraw(&fake, &facts).await.is_err() {
                return;
            }
            fake.things().erase(container);
            release(&fake, &facts).await;
        })
    }

    /// Does what the engine does at an audit for attachments whose removal has failed.
    fn finish_removals(&self) {
        let leaving = self.fake.things().leaving.clone();
        for container in leaving {
            self.remove(container).unwrap();
        }
    }

    /// The next agent, which drops attachments without a port.
    fn restart(&self, unfinished: Option<u8>) {
        self.expect(None);
        let mut things = self.fake.things();
        things.known = Known {
            fenced: things.mark,
            ..Known::default()
        };
        drop(things);
        let fake = self.fake.clone();
        self.run(async move { recover(&fake).await });
        self.assert_tables_can_be_filled();
        if let Some(container) = unfinished {
            self.remove(container).unwrap();
        }
        self.finish_removals();
        let fake = self.fake.clone();
        self.run(async move { mend_ways_out(&fake).await });
    }

    fn audit(&self) {
        self.finish_removals();
        let fake = self.fake.clone();
        self.run(async move { settle(&fake).await }).unwrap();
    }

    /// Fails when tables written now would take away what networks in the book need.
    fn assert_tables_can_be_filled(&self) {
        let things = self.fake.things();
        let needs = |need: fn(&NetworkFacts) -> bool| things.book.values().any(need);
        let known = &things.known;
        if needs(NetworkFacts::spans_nodes) {
            assert!(known.tunnel && known.paths, "paths go: {things:?}");
        }
        assert_eq!(known.uplinks, things.uplinks_needed(), "uplinks go");
        assert!(known.hops || !needs(|it| it.wire.is_some()), "hops go");
        let ways_out = things.book.values().filter(|it| it.egress).map(|it| it.id);
        let ways_out: BTreeSet<u32> = ways_out.collect();
        assert!(ways_out.is_subset(&known.open), "ways out go: {things:?}");
    }

    /// Fails unless there is what networks in the book need, and nothing else.
    fn assert_settled(&self, after: &str) {
        let things = self.fake.things();
        let egress = things.book.values().filter(|it| it.egress);
        let ways_out: BTreeSet<u32> = egress.map(|it| it.id).collect();
        assert_eq!(things.uplinks, things.uplinks_needed(), "{after}");
        assert_eq!(things.gateways, ways_out, "{after}");
        assert_eq!(things.known.open, ways_out, "{after}");
        assert_eq!(things.fence, !ways_out.is_empty(), "{after}");
        assert_eq!(things.ports, things.ports_needed(), "{after}");
    }
}

/// The calls of an attachment to a network, and those of its end.
fn clean_run(index: usize) -> (Vec<&'static str>, Vec<&'static str>) {
    let scene = Scene::new();
    scene.add(1, index).unwrap().unwrap();
    scene.assert_settled("an ADD");
    let added = scene.expect(None);
    scene.remove(1).unwrap();
    scene.assert_settled("a DEL");
    (added, scene.expect(None))
}

#[test]
fn a_network_of_any_kind_that_fails_at_any_step_leaves_nothing_once_it_is_released() {
    let mut steps = 0;
    for index in 0..networks().len() {
        let (calls, _) = clean_run(index);
        steps += calls.len();
        for (at, name) in calls.iter().enumerate() {
            for fate in Fate::FAILURES {
                let after = format!("network {index}: {fate:?} at {name}");
                let scene = Scene::new();
                scene.expect(Some((at, fate)));
                scene.add(1, index).unwrap().expect_err(&after);
                scene.expect(None);
                scene.remove(1).unwrap();
                scene.assert_settled(&after);
                scene.add(1, index).unwrap().expect(&after);
                scene.assert_settled(&after);
            }
        }
    }
    assert!(steps >= 20, "{steps}");
}

#[test]
fn an_agent_that_dies_at_any_step_of_a_network_leaves_nothing_to_the_next() {
    for index in 0..networks().len() {
        let (added, removed) = clean_run(index);
        for (calls, removes) in [(added, false), (removed, true)] {
            for (at, name) in calls.iter().enumerate() {
                for fate in Fate::DEATHS {
                    let after = format!("network {index}: {fate:?} at {name}, DEL: {removes}");
                    let scene = Scene::new();
                    if removes {
                        scene.add(1, index).unwrap().expect(&after);
                    }
                    scene.expect(Some((at, fate)));
                    let died = match removes {
                        true => scene.remove(1).is_none(),
                        false => scene.add(1, index).is_none(),
                    };
                    assert!(died, "{after}");
                    scene.restart(Some(1));
                    scene.assert_settled(&after);
                }
            }
        }
    }
}
