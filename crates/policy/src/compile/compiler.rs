//! Compile a network again after a change, and keep what did not change.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::atoms::{Atoms, Found};
use super::classes::Classes;
use super::sets::{Ground, Sets};
use super::shape::Shape;
use super::workloads::Known;
use super::{CompileError, Guard, MAX_ATOMS, Network};
use crate::model::Policy;
use crate::world::{Workload, World};

/// Compiles one network, and keeps what a next compilation can use.
///
/// The answer is that of a compilation from nothing, but for its numbers: in two answers of which one follows the
/// other, with no error between them, a number of an atom, a row or a set that both have means the same. One exception is
/// told by [`Network::numbering`]. It holds about as much memory as the world and the policies that it was given last.
#[derive(Debug)]
pub struct Compiler {
    shape: Shape,
    known: Known,
    atoms: Atoms,
    classes: Classes,
    /// How often the classes have changed.
    classes_version: u64,
    sets: Sets,
    numbering: u64,
    /// Atoms that a network can have.
    most: usize,
}

impl Default for Compiler {
    fn default() -> Self {
        Self::of(MAX_ATOMS, 0)
    }
}

impl Compiler {
    fn of(most: usize, numbering: u64) -> Self {
        Self {
            shape: Shape::default(),
            known: Known::default(),
            atoms: Atoms::default(),
            classes: Classes::default(),
            classes_version: 0,
            sets: Sets::default(),
            numbering,
            most,
        }
    }

    /// Compiles the policies of the network, for the members that are judged here.
    ///
    /// Others are peers only. `judged` has their indexes in the world.
    ///
    /// # Errors
    /// The network has more of something than its tables hold. All that was kept is forgotten.
    pub fn compile(
        &mut self,
        world: &World,
        policies: &[Policy],
        judged: impl IntoIterator<Item = usize>,
    ) -> Result<Network, CompileError> {
        let judged: Vec<usize> = judged.into_iter().collect();
        let found = self.again(world, policies, &judged);
        if found.is_ok() && self.atoms.end() <= self.most {
            return found;
        }
        // Numbers that are kept may be spread over more than there can be. From nothing they have no holes.
        *self = Self::of(self.most, self.numbering + 1);
        found?;
        let found = self.again(world, policies, &judged);
        if found.is_err() {
            *self = Self::of(self.most, self.numbering + 1);
        }
        found
    }

    fn again(
        &mut self,
        world: &World,
        policies: &[Policy],
        judged: &[usize],
    ) -> Result<Network, CompileError> {
        self.shape.take(policies);
        // Members share workloads: most of these are asked for by where they are.
        let mut parts: HashMap<*const Workload, Option<u32>> = HashMap::new();
        let mut workloads = Vec::new();
        for member in &world.members {
            parts
                .entry(Arc::as_ptr(&member.workload))
                .or_insert_with(|| {
                    let workload = &member.workload;
                    workloads.push(workload.as_ref());
                    let parts = &mut self.atoms.parts;
                    self.known.part(world, &self.shape, workload, parts)
                });
        }
        let classes = Classes::of(self.shape.ports(), &workloads)?;
        if self.classes != classes || self.classes_version == 0 {
            self.classes_version += 1;
            self.classes = classes;
        }
        let ends = world.members.iter().flat_map(|member| {
            let part = parts.get(&Arc::as_ptr(&member.workload)).copied().flatten();
            member.addresses.iter().map(move |address| (*address, part))
        });
        let Found {
            identities,
            blocks,
            present,
        } = self
            .atoms
            .find(&self.shape, &world.nodes, ends, self.most)?;
        let mut guards = self.guards(world, judged);
        let ground = Ground {
            shape: &self.shape,
            atoms: &self.atoms,
            classes: &self.classes,
        };
        self.sets.fill(&ground, present);
        for guard in guards.values_mut() {
            guard.ingress = guard.ingress.map(|set| self.sets.told(set));
            guard.egress = guard.egress.map(|set| self.sets.told(set));
        }
        self.atoms.sweep();
        self.known.sweep(&world.namespaces);
        Ok(Network {
            identities,
            blocks,
            classes: self.classes.clone(),
            rows: self.sets.rows(),
            sets: self.sets.sets(),
            guards,
            numbering: self.numbering,
        })
    }

    fn guards(&mut self, world: &World, judged: &[usize]) -> BTreeMap<usize, Guard> {
        let judged = judged.iter().filter_map(|index| {
            let member = world.members.get(*index)?;
            let version = self.classes_version;
            let keys = self.known.keys(&self.shape, version, &member.workload);
            let [ingress, egress] = keys.map(|key| Some(self.sets.number(key?)));
            Some((*index, Guard { ingress, egress }))
        });
        judged.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Action, Direction, Kind, Namespaces, Peer, Pods, PolicyId, Ports, Protocol, Rule, Tier,
    };
    use crate::{Labels, Member, NamedPort, PeerEnd, Requirement, Selector, Traffic, judge};

    const WEB: Traffic = Traffic::Port(Protocol::Tcp, 80);

    fn app(value: usize) -> Labels {
        [("app".to_owned(), value.to_string())].into()
    }

    /// Members of one namespace, each of another app.
    fn world(apps: std::ops::Range<usize>) -> World {
        let member = |app_number: usize| Member {
            workload: Arc::new(Workload {
                namespace: "a".to_owned(),
                labels: app(app_number),
                ports: vec![NamedPort {
                    name: "web".to_owned(),
                    protocol: Protocol::Tcp,
                    number: 80,
                }],
            }),
            addresses: vec![format!("10.0.0.{app_number}").parse().unwrap()],
        };
        World {
            namespaces: [("a".to_owned(), Labels::new())].into(),
            members: apps.map(member).collect(),
            nodes: Vec::new(),
        }
    }

    /// A policy for an app, which the next one may reach by its named port.
    fn policy(app_number: usize) -> Policy {
        let pods = |number: usize| Pods {
            namespaces: Namespaces::Named("a".to_owned()),
            pods: Selector::new(
                app(number)
                    .into_iter()
                    .map(|(key, value)| Requirement::In(key, [value].into())),
            ),
        };
        let rule = Rule {
            action: Action::Accept,
            peers: Some(vec![Peer::Pods(pods(app_number + 1))]),
            ports: Some(vec![Ports::Named(None, "web".to_owned())]),
        };
        Policy {
            id: PolicyId {
                kind: Kind::NetworkPolicy,
                namespace: "a".to_owned(),
                name: app_number.to_string(),
            },
            tier: Tier::Network,
            priority: 0,
            subject: pods(app_number),
            isolates_ingress: true,
            isolates_egress: true,
            ingress: vec![rule.clone()],
            egress: vec![rule],
        }
    }

    /// Compiles for all members, and compares with the rules.
    fn compile(
        compiler: &mut Compiler,
        world: &World,
        policies: &[Policy],
    ) -> Result<Network, CompileError> {
        let network = compiler.compile(world, policies, 0..world.members.len())?;
        for (subject, guard) in world.members.iter().zip(network.guards.values()) {
            for peer in &world.members {
                let address = peer.addresses[0];
                let end = PeerEnd::Member(peer, address);
                for (direction, set) in [
                    (Direction::Ingress, guard.ingress),
                    (Direction::Egress, guard.egress),
                ] {
                    let meant = judge(world, policies, direction, subject, end, WEB);
                    let found = network.allows(set, network.atom(address), WEB);
                    assert_eq!(found, meant.allows(), "{subject:?} {peer:?}");
                }
            }
        }
        Ok(network)
    }

    /// Counts what a compiler holds.
    fn held(compiler: &Compiler) -> [usize; 4] {
        [
            compiler.known.count(),
            compiler.shape.count(),
            compiler.atoms.count(),
            compiler.sets.count(),
        ]
    }

    #[test]
    fn nothing_is_kept_of_what_is_gone() {
        let mut compiler = Compiler::default();
        compile(&mut compiler, &World::default(), &[]).unwrap();
        let of_nothing = held(&compiler);
        let policies: Vec<Policy> = (0..20).map(policy).collect();
        compile(&mut compiler, &world(0..20), &policies).unwrap();
        let of_twenty = held(&compiler);
        for first in 0..20 {
            compile(&mut compiler, &world(first..first + 20), &policies).unwrap();
            let policies: Vec<Policy> = (first..first + 20).map(policy).collect();
            compile(&mut compiler, &world(first..first + 20), &policies).unwrap();
        }
        let after = held(&compiler);
        assert!(
            after
                .iter()
                .zip(of_twenty)
                .all(|(now, then)| *now <= 2 * then),
            "{after:?} {of_twenty:?}"
        );
        compile(&mut compiler, &World::default(), &[]).unwrap();
        assert_eq!(held(&compiler), of_nothing);
    }

    #[test]
    fn too_many_atoms_are_refused_with_their_number_until_there_are_fewer() {
        let policies: Vec<Policy> = (0..20).map(policy).collect();
        let mut compiler = Compiler::of(8, 0);
        compile(&mut compiler, &world(1..6), &policies).unwrap();
        let error = compile(&mut compiler, &world(1..12), &policies).unwrap_err();
        assert_eq!(error, CompileError::TooManyAtoms { found: 12 });
        compile(&mut compiler, &world(1..6), &policies).unwrap();
    }

    #[test]
    fn numbers_begin_anew_when_those_that_are_kept_are_too_high() {
        let policies: Vec<Policy> = (0..20).map(policy).collect();
        let mut compiler = Compiler::of(8, 0);
        let before = compile(&mut compiler, &world(1..6), &policies).unwrap();
        let after = compile(&mut compiler, &world(7..12), &policies).unwrap();
        assert!(after.identities.values().all(|atom| *atom < 8), "{after:?}");
        assert_ne!(before.numbering, after.numbering);
    }

    #[test]
    fn what_did_not_change_keeps_its_numbers() {
        let policies: Vec<Policy> = (0..20).map(policy).collect();
        let mut compiler = Compiler::default();
        let before = compile(&mut compiler, &world(1..6), &policies).unwrap();
        let after = compile(&mut compiler, &world(2..7), &policies[1..]).unwrap();
        assert_eq!(before.numbering, after.numbering);
        for member in &world(2..6).members {
            let address = &member.addresses[0];
            assert_eq!(before.identities[address], after.identities[address]);
        }
        for index in 0..4 {
            assert_eq!(before.guards[&(index + 1)], after.guards[&index]);
        }
    }
}
